/* A run's figures over HTTP: /metrics for Prometheus, /top for `rubato top HOST:PORT`.
 *
 * A thread of its own reads the run's files (watch/run.h) when somebody asks, at most twice a
 * second, and answers on its own loop (web/http.h). The job knows nothing of it.
 *
 * Thread: start and stop by one; the rest is inside. */
#ifndef RU_WATCH_SERVE_H
#define RU_WATCH_SERVE_H

#include "base/arena.h"

typedef struct ru_watch_serve ru_watch_serve;

/* `run`: folder of the run; `listen`: "PORT" (this machine only), ":PORT" or HOST:PORT; `token`:
 * NULL: everybody may read. All are kept by the caller. Errors: those of ru_http_open. */
RU_MUST_USE ru_status ru_watch_serve_start(const char *run, const char *listen, const char *token,
                                           ru_watch_serve **out, ru_err *err);
void ru_watch_serve_stop(ru_watch_serve *s);                 /* NULL is fine */
const char *ru_watch_serve_address(const ru_watch_serve *s); /* host:port where it listens */

#endif
