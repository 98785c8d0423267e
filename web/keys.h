/* Bytes by key in a store elsewhere: many requests of a loop at a time.
 *
 *   redis://HOST:PORT      SET with NX and an end after a day, GET, DEL; REDISCLI_AUTH: password
 *   rediss://HOST:PORT     the same over TLS (web/redis_tls.h)
 *   s3://BUCKET[/PREFIX]   PUT, GET, DELETE with the login that objects have (web/objects.h)
 *
 * The first put of a key counts (Redis), or all are the same (S3). A store that is full, slow, away
 * or overloaded is asked again after waiting longer each time, for 20 s; the log says once who does
 * not answer well and what it says. No sentence holds a password.
 *
 * Thread: loop only. */
#ifndef RU_WEB_KEYS_H
#define RU_WEB_KEYS_H

#include "base/arena.h"
#include "env/loop/loop.h"

enum { RU_KEYS_NAME_MAX = 128 };

typedef struct ru_keys ru_keys;

/* Other results than RU_OK: `why` is a sentence. RU_E_MISSING: the key of a get is not there;
 * RU_E_PERM: access is refused; RU_E_PEER: no good answer for too long; RU_E_CONFIG, RU_E_IO. */
typedef void (*ru_keys_done)(void *self, ru_status st, const char *why, const void *data,
                             int64_t n);

typedef enum ru_keys_what { RU_KEYS_PUT, RU_KEYS_GET, RU_KEYS_REMOVE } ru_keys_what;

typedef struct ru_keys_ask {
    ru_keys_what what;
    const char *key;   /* at most RU_KEYS_NAME_MAX - 1 of letters, digits, '/', '-', '.'; copied */
    const void *data;  /* [n] PUT: view until `done` */
    int64_t n;         /* GET: the most that may come */
    ru_keys_done done; /* once, later than the call; NULL: nobody waits */
    void *self;
} ru_keys_ask;

/* Asks for nothing yet. Owner: in `arena`, until ru_keys_close. Errors: RU_E_CONFIG (address,
 * login), RU_E_PEER (no such host), RU_E_UNSUPPORTED (no libcurl), RU_E_MEM. */
RU_MUST_USE ru_status ru_keys_open(ru_loop *loop, const char *address, ru_arena *arena,
                                   ru_keys **out, ru_err *err);
/* Requests under way are dropped: their `done` is not called. NULL is fine. */
void ru_keys_close(ru_keys *k);
uint32_t ru_keys_busy(const ru_keys *k); /* requests under way */
/* Errors: RU_E_MEM, RU_E_UNSUPPORTED; then `done` is not called. */
RU_MUST_USE ru_status ru_keys_send(ru_keys *k, const ru_keys_ask *ask, ru_err *err);

#endif
