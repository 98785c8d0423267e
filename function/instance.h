/* The program side of a function: listens on the loopback, and answers calls one at a time as
 * function/host.h has them. A platform starts as many of it as it wants. function/runtime.h asks
 * for calls instead.
 *
 * Thread: loop only. */
#ifndef RU_FUNCTION_INSTANCE_H
#define RU_FUNCTION_INSTANCE_H

#include "base/str.h"
#include "env/loop/loop.h"

typedef struct ru_function_instance ru_function_instance;

/* Answer one call: append to `out`, which lives in `arena` until the answer has gone. until: the
 * call is ended from outside then; 0: nobody says when. What fails is told to the caller as a
 * failure of the function. */
typedef ru_status (*ru_function_handle_fn)(void *self, const uint8_t *body, int64_t body_bytes,
                                           ru_time until, ru_arena *arena, ru_text *out,
                                           ru_err *err);

typedef struct ru_function_instance_options {
    ru_loop *loop;
    const char *listen; /* as ru_http_options */
    const char *name;   /* of the function */
    ru_function_handle_fn handle;
    void *self;
} ru_function_instance_options;

/* Errors: those of ru_http_open. */
RU_MUST_USE ru_status ru_function_instance_open(const ru_function_instance_options *opt,
                                                ru_arena *arena, ru_function_instance **out,
                                                ru_err *err);
void ru_function_instance_close(ru_function_instance *f); /* NULL is fine */
/* Where calls go: "http://HOST:PORT/2015-03-31/functions/NAME/invocations". */
const char *ru_function_instance_url(const ru_function_instance *f);

/* The JSON of a call that failed. */
void ru_function_failure(ru_text *t, const ru_err *err);

#endif
