/* One HTTP request: GET of a page. libcurl does it; the library is opened with the first request.
 *
 * Thread: any; blocks. */
#ifndef RU_WEB_GET_H
#define RU_WEB_GET_H

#include "base/arena.h"

typedef struct ru_get {
    const char *url;
    const char *token;   /* as a bearer token; NULL: none */
    int64_t bytes_max;   /* 0: 16 MiB */
    int64_t patience_ms; /* whole request; 0: 10 s */
} ru_get;

/* Owner: *text in `arena`, ends with a zero byte. Errors: RU_E_PEER (nobody answers), RU_E_PERM
 * (token), RU_E_MISSING (404), RU_E_IO (other answers), RU_E_LIMIT, RU_E_UNSUPPORTED (no library).
 */
RU_MUST_USE ru_status ru_http_get(const ru_get *g, ru_arena *arena, char **text, int64_t *n,
                                  ru_err *err);

#endif
