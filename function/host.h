/* Function instances on a loop: the machine of function/pool.h over processes of this machine, or
 * over an endpoint, and calls over HTTP as Lambda's Invoke has them:
 *
 *   POST ADDRESS/2015-03-31/functions/NAME/invocations   the body goes in, the answer's comes out
 *   200; field X-Amz-Function-Error: the function failed, the body says why; 429: come again
 *
 * A process (its arguments are the owner's) writes one line, "http://HOST:PORT/... answers", when
 * it does; it listens on the loopback. It is in a control group of its own: its memory, and of the
 * processor the share memory / RU_FUNCTION_CORE_MB. Where groups cannot bound memory, its address
 * space is bounded; one warning says what is not bounded. It ends with this process.
 *
 * Thread: loop only. */
#ifndef RU_FUNCTION_HOST_H
#define RU_FUNCTION_HOST_H

#include "env/loop/loop.h"
#include "function/pool.h"

#define RU_FUNCTION_CORE_MB 1769 /* memory for which platforms give a whole core */

typedef struct ru_function_host ru_function_host;

typedef struct ru_function_host_options {
    ru_loop *loop;
    ru_functions_options pool; /* `remote` follows from url */
    const char *const *argv;   /* NULL-terminated, of an instance; used where url is NULL */
    const char *url;           /* "http://HOST:PORT" of an endpoint; NULL: processes here */
    const char *name;          /* of the function */
    bool sign;                 /* signature of version 4, service lambda */
} ru_function_host_options;

typedef struct ru_function_outcome {
    ru_function_answer answer;
    const char *text; /* [n] body of the answer, view until `done` returns; "": none */
    int64_t n;
    const char *why; /* result other than OK: a sentence; view as `text` */
} ru_function_outcome;

typedef void (*ru_function_done_fn)(void *self, const ru_function_outcome *o);

/* Starts nothing yet. Owner: `arena` keeps texts of *opt alive. Errors: those of ru_functions_init
 * and ru_posts_open. */
RU_MUST_USE ru_status ru_function_host_open(const ru_function_host_options *opt, ru_arena *arena,
                                            ru_function_host **out, ru_err *err);
/* Kills what runs; calls under way are dropped: their `done` is not called. NULL is fine. */
void ru_function_host_close(ru_function_host *h);
/* `done` once, maybe before this returns. The body is copied. type: of the body. Errors: RU_E_MEM;
 * then `done` is not called. */
RU_MUST_USE ru_status ru_function_host_call(ru_function_host *h, uint32_t memory_mb,
                                            const void *body, int64_t body_bytes,
                                            ru_function_done_fn done, void *self, ru_err *err);
ru_function_meter ru_function_host_meter(const ru_function_host *h);
/* What is not bounded, for a page: "cpu and memory"; "": nothing, or nothing has started. */
const char *ru_function_host_lacks(const ru_function_host *h);

#endif
