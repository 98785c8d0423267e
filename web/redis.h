/* A client of Redis on a loop: commands leave one behind the other on one connection, and their
 * replies come in that order.
 *
 *   ru_redis_send --> out --socket in the loop--> in --> done(reply), once, later than the call
 *
 * It dials with the first command. A connection that breaks, or brings nothing for 20 s although
 * commands wait, ends all of them without a reply; the next command dials anew. A password is said
 * first on every connection.
 *
 * Thread: loop only. Source: redis.io/docs/reference/protocol-spec (RESP 2). */
#ifndef RU_WEB_REDIS_H
#define RU_WEB_REDIS_H

#include "base/str.h"
#include "env/loop/loop.h"

typedef struct ru_redis ru_redis;

typedef struct ru_redis_reply {
    char kind;        /* '+' status, '-' error, ':' number, '$' bytes; 0: none came */
    const char *text; /* [n] view until `done` returns; kind 0: one clause, ended by NUL */
    int64_t n;        /* '$': -1: no such key */
    bool refused;     /* kind 0: its certificate is not good, so asking again is of no use */
} ru_redis_reply;

typedef void (*ru_redis_done)(void *self, const ru_redis_reply *r);

/* address: HOST:PORT; resolves the name, which may block. tls: web/redis_tls.h. password: NULL:
 * none; copied. Owner: in `arena`, until ru_redis_close. Errors: RU_E_CONFIG (address), RU_E_PEER
 * (no such host), RU_E_MEM.
 */
RU_MUST_USE ru_status ru_redis_open(ru_loop *loop, const char *address, bool tls,
                                    const char *password, ru_arena *arena, ru_redis **out,
                                    ru_err *err);
/* Commands under way are dropped: their `done` is not called. NULL is fine. */
void ru_redis_close(ru_redis *r);
/* A command of `n` words, copied; its reply is no array. Errors: RU_E_MEM, RU_E_PEER (no socket);
 * then `done` is not called. */
RU_MUST_USE ru_status ru_redis_send(ru_redis *r, const ru_str *words, uint32_t n,
                                    ru_redis_done done, void *self, ru_err *err);

/* The form of commands and replies, for those who keep their own connection. */
enum { RU_REDIS_HEAD_BYTES = 32 };
/* "*n\r\n" (kind '*', of n words) or "$n\r\n" (kind '$', before n bytes and "\r\n"). Returns its
 * bytes. */
uint32_t ru_redis_head(char kind, int64_t n, char into[RU_REDIS_HEAD_BYTES]);
/* The head of a reply at in[at], of in[0, end): its kind and number. Returns where the next byte
 * stands; 0: it is not whole yet. */
int64_t ru_redis_head_of(const uint8_t *in, int64_t end, int64_t at, char *kind, int64_t *n);

#endif
