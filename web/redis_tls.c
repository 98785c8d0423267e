#include "web/redis_tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdio.h>

struct rui_redis_tls {
    SSL_CTX *ctx;
    SSL *ssl;             /* NULL: no connection */
    char *host;           /* not const: OpenSSL's macro casts it */
    bool writes, blocked; /* a call waits for room; a send waits for what comes first */
    bool refused;
    char why[200]; /* "": errno says it */
};

ru_status rui_redis_tls_open(const char *host, ru_arena *arena, rui_redis_tls **out, ru_err *err)
{
    struct sigaction sa; /* OpenSSL writes without MSG_NOSIGNAL */
    rui_redis_tls *t = RU_NEW(arena, rui_redis_tls, 1);
    char *name = ru_arena_str(arena, host);
    SSL_CTX *ctx = t != NULL && name != NULL ? SSL_CTX_new(TLS_client_method()) : NULL;
    if (ctx == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for TLS");
    }
    if (SSL_CTX_set_default_verify_paths(ctx) != 1 ||
        SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(ctx);
        return RU_FAIL(err, RU_E_CONFIG,
                       "the certificates of authorities cannot be read; set SSL_CERT_FILE");
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    (void)SSL_CTX_set_mode(ctx,
                           SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (sigaction(SIGPIPE, NULL, &sa) == 0 && sa.sa_handler == SIG_DFL) {
        (void)signal(SIGPIPE, SIG_IGN);
    }
    *t = (rui_redis_tls){.ctx = ctx, .host = name};
    *out = t;
    return RU_OK;
}

void rui_redis_tls_close(rui_redis_tls *t)
{
    if (t != NULL) {
        rui_redis_tls_cut(t);
        SSL_CTX_free(t->ctx);
    }
}

void rui_redis_tls_cut(rui_redis_tls *t)
{
    SSL_free(t->ssl);
    t->ssl = NULL;
}

bool rui_redis_tls_dial(rui_redis_tls *t, int fd)
{
    RU_CHECK(t->ssl == NULL);
    t->ssl = SSL_new(t->ctx);
    t->writes = t->blocked = t->refused = false;
    t->why[0] = '\0';
    if (t->ssl == NULL || SSL_set_fd(t->ssl, fd) != 1) {
        return false;
    }
    SSL_set_connect_state(t->ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t->ssl), t->host) == 1) {
        return true;
    }
    return SSL_set1_host(t->ssl, t->host) == 1 && SSL_set_tlsext_host_name(t->ssl, t->host) == 1;
}

/* What a call that moved nothing means, as an errno. */
static ssize_t failed(rui_redis_tls *t, int rc)
{
    int why = SSL_get_error(t->ssl, rc);
    long verify = SSL_get_verify_result(t->ssl);
    unsigned long e = ERR_get_error();
    t->writes = why == SSL_ERROR_WANT_WRITE;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (why == SSL_ERROR_ZERO_RETURN || (why == SSL_ERROR_SYSCALL && errno == 0)) {
        return 0;
    }
    if (why != SSL_ERROR_SYSCALL) {
        const char *reason = verify != X509_V_OK ? X509_verify_cert_error_string(verify)
                             : e != 0            ? ERR_reason_error_string(e)
                                                 : NULL;
        t->refused = verify != X509_V_OK;
        (void)snprintf(t->why, sizeof t->why, "TLS: %s%s", t->refused ? "its certificate: " : "",
                       reason != NULL ? reason : "the handshake failed");
        errno = EPROTO;
    }
    return -1;
}

ssize_t rui_redis_tls_send(rui_redis_tls *t, const void *data, size_t n)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_write(t->ssl, data, n < INT_MAX ? (int)n : INT_MAX);
    t->writes = t->blocked = false;
    ssize_t sent = rc > 0 ? rc : failed(t, rc);
    t->blocked = sent < 0 && errno == EAGAIN && !t->writes;
    return sent;
}

ssize_t rui_redis_tls_recv(rui_redis_tls *t, void *into, size_t n)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_read(t->ssl, into, n < INT_MAX ? (int)n : INT_MAX);
    return rc > 0 ? rc : failed(t, rc);
}

bool rui_redis_tls_writes(const rui_redis_tls *t, bool pending)
{
    return t->writes || (pending && !t->blocked);
}

const char *rui_redis_tls_why(const rui_redis_tls *t, bool *refused)
{
    *refused = t->refused;
    return t->why[0] != '\0' ? t->why : NULL;
}
