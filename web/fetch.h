/* One HTTP request and its answer. libcurl does it; the library is opened with the first request.
 *
 * Thread: any; blocks. */
#ifndef RU_WEB_FETCH_H
#define RU_WEB_FETCH_H

#include "base/str.h"

enum { RU_FETCH_HEADERS_MAX = 32 };

typedef struct ru_fetch {
    const char *url;
    const char *token;  /* as a bearer token; NULL: none */
    const char *body;   /* [body_bytes] POST; NULL: GET */
    const char *method; /* another one; NULL: that of the body */
    int64_t body_bytes;
    const char *type;          /* of the body */
    const char *const *header; /* [n_headers] "Name: value"; more of them */
    uint32_t n_headers;
    int64_t bytes_max;   /* of the answer; 0: 16 MiB */
    int64_t patience_ms; /* whole request; 0: 10 s */
    bool says;           /* a server of ru_http_refuse: its sentence becomes the error */
} ru_fetch;

/* Owner: *text in `arena`, ends with a zero byte. Errors: RU_E_PEER (nobody answers), RU_E_PERM
 * (401, 403), RU_E_MISSING (404), RU_E_AGAIN (429, 502 to 504), RU_E_IO (other answers; with
 * `says` RU_E_USAGE for 400 and 413), RU_E_LIMIT, RU_E_UNSUPPORTED (no library). */
RU_MUST_USE ru_status ru_http_fetch(const ru_fetch *f, ru_arena *arena, char **text, int64_t *n,
                                    ru_err *err);

/* Can requests be made? Appends name and version of the library; *tls: also of https. Errors:
 * RU_E_UNSUPPORTED, and what to install behind "; run ". */
RU_MUST_USE ru_status ru_http_fetch_ready(ru_text *library, bool *tls, ru_err *err);

#endif
