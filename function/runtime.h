/* The program side of a function where the platform starts it by itself and hands out calls over
 * Lambda's runtime API, one at a time:
 *
 *   http://API/2018-06-01/runtime/...
 *
 *   GET  invocation/next          answers when there is a call, with the fields
 *                                   Lambda-Runtime-Aws-Request-Id: ID
 *                                   Lambda-Runtime-Deadline-Ms: when it is ended, by the wall clock
 *   POST invocation/ID/response   the answer
 *   POST invocation/ID/error      the call failed
 *   POST init/error               the program cannot take calls
 *
 * Requests go there directly, whatever proxies the environment names for others.
 *
 * An answer that the platform does not take as too large (413) becomes a failure of the call; other
 * refusals of an answer are a warning, as the call has ended meanwhile. A platform that does not
 * answer, or answers a request for a call with anything else than one, ends the program.
 *
 * Thread: loop only. */
#ifndef RU_FUNCTION_RUNTIME_H
#define RU_FUNCTION_RUNTIME_H

#include "function/instance.h"

typedef struct ru_function_runtime ru_function_runtime;

typedef struct ru_function_runtime_options {
    ru_loop *loop;
    const char *api; /* HOST:PORT, as AWS_LAMBDA_RUNTIME_API says it */
    ru_function_handle_fn handle;
    void *self;
} ru_function_runtime_options;

/* Asks nothing yet. Errors: those of ru_posts_open. */
RU_MUST_USE ru_status ru_function_runtime_open(const ru_function_runtime_options *opt,
                                               ru_arena *arena, ru_function_runtime **out,
                                               ru_err *err);
void ru_function_runtime_close(ru_function_runtime *r); /* NULL is fine */
/* Takes calls until somebody stops the loop. Errors: RU_E_PEER, RU_E_DATA (a call without a name),
 * RU_E_MEM. */
RU_MUST_USE ru_status ru_function_runtime_run(ru_function_runtime *r, ru_err *err);
/* The platform hears why the program cannot take calls. */
void ru_function_runtime_refuse(ru_function_runtime *r, const ru_err *why);

#endif
