/* Requests of a loop, many at a time: libcurl on the loop's own descriptors and timers, so
 * that there is no thread and no lock. The library is opened with the first ru_posts.
 *
 *   ru_posts_send --> socket in the loop --> done(answer), once, always later than the call
 *
 * Connections are kept and used again. With `sign` a request carries a signature of version 4 for
 * that service of the login that objects have (AWS_ACCESS_KEY_ID, AWS_REGION, ...); for "s3" with
 * the hash of the body.
 *
 * Thread: loop only. */
#ifndef RU_WEB_POST_H
#define RU_WEB_POST_H

#include "base/arena.h"
#include "env/loop/loop.h"

typedef struct ru_posts ru_posts;

enum { RU_POST_NOTE_BYTES = 64 };

typedef struct ru_post_answer {
    long status;      /* 0: none came */
    const char *why;  /* status 0: one clause */
    const char *text; /* [n] view until `done` returns */
    int64_t n;
    /* Values of the fields that the request names; "": none. */
    char note[RU_POST_NOTE_BYTES], also[RU_POST_NOTE_BYTES];
} ru_post_answer;

typedef struct ru_post {
    const char *url;
    const char *method; /* "PUT", "GET", "DELETE"; NULL: POST */
    const void *body;   /* [body_bytes] view until `done` */
    int64_t body_bytes;
    const char *type;         /* of the body; NULL: not said */
    const char *token;        /* as a bearer token; NULL: none */
    const char *note, *also;  /* names of fields of the answer; NULL: none; view until `done` */
    bool direct;              /* past the proxies of the environment */
    int64_t patience_ms;      /* whole request; 0: no limit */
    int64_t answer_max_bytes; /* more is no answer; 0: 64 MiB */
    void (*done)(void *self, const ru_post_answer *a);
    void *self;
} ru_post;

/* sign: service, as "lambda"; NULL: requests are not signed. Owner: the login in `arena`. Errors:
 * RU_E_UNSUPPORTED (no library, or one that cannot sign), RU_E_CONFIG (half of a login, or none
 * although `sign`), RU_E_MEM. */
RU_MUST_USE ru_status ru_posts_open(ru_loop *loop, const char *sign, ru_arena *arena,
                                    ru_posts **out, ru_err *err);
/* Requests under way are dropped: their `done` is not called. NULL is fine. */
void ru_posts_close(ru_posts *p);
/* Errors: RU_E_MEM; then `done` is not called. */
RU_MUST_USE ru_status ru_posts_send(ru_posts *p, const ru_post *post, ru_err *err);

#endif
