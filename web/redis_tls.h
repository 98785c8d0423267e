/* TLS on a connection to Redis: the server shows a certificate that an authority of this system
 * signed (SSL_CERT_FILE names others) and that has the name, or address, that was dialled.
 *
 * Thread: loop only. */
#ifndef RU_WEB_REDIS_TLS_H
#define RU_WEB_REDIS_TLS_H

#include <sys/types.h>

#include "base/arena.h"

typedef struct rui_redis_tls rui_redis_tls;

/* Errors: RU_E_MEM, RU_E_CONFIG (no authorities). Owner: in `arena`, until close. */
RU_MUST_USE ru_status rui_redis_tls_open(const char *host, ru_arena *arena, rui_redis_tls **out,
                                         ru_err *err);
void rui_redis_tls_close(rui_redis_tls *t); /* NULL is fine */
/* A connection that is being made. False: no memory. */
bool rui_redis_tls_dial(rui_redis_tls *t, int fd);
void rui_redis_tls_cut(rui_redis_tls *t);
/* As send and recv of a socket that does not block; the handshake is inside. */
ssize_t rui_redis_tls_send(rui_redis_tls *t, const void *data, size_t n);
ssize_t rui_redis_tls_recv(rui_redis_tls *t, void *into, size_t n);
/* Does it wait until the socket takes bytes? pending: there are some to send. */
bool rui_redis_tls_writes(const rui_redis_tls *t, bool pending);
/* Why a call failed otherwise; NULL: the socket's errno says it. *refused: the certificate is not
 * good, so asking again is of no use. */
const char *rui_redis_tls_why(const rui_redis_tls *t, bool *refused);

#endif
