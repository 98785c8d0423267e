/* TLS 1.3 with a pre-shared key; the only file that touches OpenSSL.
 *
 * Both sides hold the same key, there are no certificates: the key schedule starts from the key and
 * a fresh Diffie-Hellman exchange (psk_dhe_ke), so that a key that leaks later opens no old
 * traffic. The key on the wire is derived from the given one, so that the same secret may serve
 * another proof elsewhere. Where the kernel has TLS it encrypts what is sent; else records of at
 * most 16 KiB are made here: those of a frame lie behind each other in `wire` and go to the kernel
 * with one call, and as many are read with one. On the 2-core machine, with a call per record: 1.7
 * to 1.9 us of processor per KiB sent, 1.5 to 1.6 received; so: 1.0 to 1.4 and 1.0 to 1.2, of which
 * AES takes 0.36.
 *
 * Source: rfc8446 sec 2.2, 4.2.9, 4.2.11. */
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/link_tcp_impl.h"

enum {
    RECORD_BYTES = 16384,
    RECORD_MORE = 64, /* header, padding and tag */
    RECORDS_BULK = 5, /* a chunk of 64 KiB and its header */
    KEY_BYTES = 32
};

static const char identity[] = "rubato";

struct rui_tls_host {
    SSL_CTX *ctx;
    BIO_METHOD *to_wire;
    uint8_t key[KEY_BYTES];
};

struct rui_tls {
    SSL *ssl;
    int fd;
    bool stands, broken, kernel;
    int64_t
        pending; /* bytes of the caller that are in `wire`, which the kernel did not take whole */
    uint32_t records_max;
    uint32_t wire_at, wire_end, wire_max;
    uint8_t record[RECORD_BYTES]; /* of several pieces */
    uint8_t wire[];               /* [wire_max] records */
};

/* ---- what OpenSSL writes, gathered ---- */

static int to_wire(BIO *b, const char *data, size_t bytes, size_t *written)
{
    rui_tls *t = BIO_get_data(b);
    if (bytes > t->wire_max - t->wire_end) {
        BIO_set_retry_write(b);
        return 0;
    }
    memcpy(t->wire + t->wire_end, data, bytes);
    t->wire_end += (uint32_t)bytes;
    *written = bytes;
    return 1;
}

static long wire_ctrl(BIO *b, int command, long n, void *p)
{
    (void)b, (void)n, (void)p;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static int wire_made(BIO *b)
{
    BIO_set_init(b, 1);
    return 1;
}

static bool wire_method(rui_tls_host *h)
{
    h->to_wire = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "wire");
    return h->to_wire != NULL && BIO_meth_set_write_ex(h->to_wire, to_wire) == 1 &&
           BIO_meth_set_ctrl(h->to_wire, wire_ctrl) == 1 &&
           BIO_meth_set_create(h->to_wire, wire_made) == 1;
}

/* The handshake is over: from now on records are gathered. */
static bool gather_records(rui_tls *t)
{
    const rui_tls_host *h = SSL_CTX_get_app_data(SSL_get_SSL_CTX(t->ssl));
    BIO *b = BIO_new(h->to_wire);
    if (b == NULL) {
        return false;
    }
    BIO_set_data(b, t);
    SSL_set0_wbio(t->ssl, b);
    return true;
}

/* true: the kernel took all there was. */
static bool wire_flush(rui_tls *t)
{
    int end = t->records_max == 1 ? MSG_EOR : 0; /* urgent: never corked (link_tcp_tx.c) */
    while (t->wire_at < t->wire_end) {
        ssize_t put = send(t->fd, t->wire + t->wire_at, t->wire_end - t->wire_at,
                           MSG_DONTWAIT | MSG_NOSIGNAL | end);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return false;
        }
        t->wire_at += (uint32_t)put;
    }
    t->wire_at = t->wire_end = 0;
    return true;
}

static SSL_SESSION *session_of(SSL *ssl)
{
    const rui_tls_host *h = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    static const unsigned char aes_128_gcm_sha256[2] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *s = SSL_SESSION_new();
    if (s != NULL && cipher != NULL && SSL_SESSION_set1_master_key(s, h->key, KEY_BYTES) == 1 &&
        SSL_SESSION_set_cipher(s, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) == 1) {
        return s;
    }
    SSL_SESSION_free(s);
    return NULL;
}

static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
                   SSL_SESSION **session)
{
    (void)md; /* given only after a retry; the cipher has the one hash we know */
    *session = session_of(ssl);
    *id = (const unsigned char *)identity;
    *id_bytes = sizeof identity - 1;
    return *session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    bool known = id_bytes == sizeof identity - 1 && memcmp(id, identity, id_bytes) == 0;
    *session = known ? session_of(ssl) : NULL;
    return 1;
}

ru_status rui_tls_host_open(const ru_link_tcp_options *opt, rui_tls_host **out, ru_err *err)
{
    static const char purpose[] = "rubato link tls 1.3";
    rui_tls_host *h = calloc(1, sizeof *h);
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    unsigned int n = 0;
    if (h == NULL || ctx == NULL ||
        HMAC(EVP_sha256(), opt->psk, (int)opt->psk_bytes, (const unsigned char *)purpose,
             sizeof purpose - 1, h->key, &n) == NULL ||
        SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256") != 1 || !wire_method(h)) {
        if (h != NULL) {
            BIO_meth_free(h->to_wire);
        }
        free(h);
        SSL_CTX_free(ctx);
        return RU_FAIL(err, RU_E_MEM, "cannot set up TLS 1.3");
    }
    RU_CHECK(n == KEY_BYTES);
    h->ctx = ctx;
    SSL_CTX_set_app_data(ctx, h);
    SSL_CTX_set_psk_use_session_callback(ctx, use_key);
    SSL_CTX_set_psk_find_session_callback(ctx, find_key);
    /* No authority is trusted: a peer that offers a certificate instead of the key fails. */
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(ctx, SSL_OP_ENABLE_KTLS | SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_num_tickets(ctx, 0);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 1);
    struct sigaction sa; /* OpenSSL writes without MSG_NOSIGNAL */
    if (sigaction(SIGPIPE, NULL, &sa) == 0 && sa.sa_handler == SIG_DFL) {
        (void)signal(SIGPIPE, SIG_IGN);
    }
    *out = h;
    return RU_OK;
}

void rui_tls_host_close(rui_tls_host *h)
{
    if (h != NULL) {
        SSL_CTX_free(h->ctx);
        BIO_meth_free(h->to_wire);
        OPENSSL_cleanse(h->key, sizeof h->key);
        free(h);
    }
}

rui_tls *rui_tls_new(rui_tls_host *h, int fd, bool accepted, ru_link_class class)
{
    uint32_t records = class == RU_LINK_BULK ? RECORDS_BULK : 1;
    uint32_t wire_max = (records + 1) * (RECORD_BYTES + RECORD_MORE); /* and what TLS says itself */
    rui_tls *t = calloc(1, sizeof *t + wire_max);
    SSL *ssl = t != NULL ? SSL_new(h->ctx) : NULL;
    if (ssl == NULL || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        free(t);
        return NULL;
    }
    if (accepted) {
        SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL); /* of clients only the key is asked */
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
    }
    SSL_set_default_read_buffer_len(ssl, records * (RECORD_BYTES + RECORD_MORE));
    t->ssl = ssl;
    t->fd = fd;
    t->records_max = records;
    t->wire_max = wire_max;
    return t;
}

void rui_tls_free(rui_tls *t)
{
    if (t == NULL) {
        return;
    }
    if (t->stands && !t->broken) {
        ERR_clear_error();
        (void)SSL_shutdown(t->ssl); /* the notice only; nobody waits for the answer */
        (void)wire_flush(t);
    }
    SSL_free(t->ssl);
    OPENSSL_cleanse(t->record, sizeof t->record);
    free(t);
}

/* Why a handshake failed, for people. */
static ru_status explain(const rui_tls *t, char *sentence, uint32_t size_bytes)
{
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_REASON(e);
    const char *text = ERR_reason_error_string(e);
    ru_status st = RU_E_PERM;
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
        snprintf(sentence, size_bytes, "refused: it holds another key for TLS");
    } else if (SSL_is_server(t->ssl) && e != 0) {
        snprintf(sentence, size_bytes, "refused: no TLS 1.3 with the key of this job (%s)",
                 text != NULL ? text : "unknown");
    } else if (e != 0) {
        snprintf(sentence, size_bytes,
                 "no TLS 1.3 with it: it holds another key, or does not speak TLS (%s)",
                 text != NULL ? text : "unknown");
    } else {
        snprintf(sentence, size_bytes, "the other side went away during the TLS handshake");
        st = RU_E_IO; /* RU_E_AGAIN means that the handshake goes on */
    }
    return st;
}

ru_status rui_tls_shake(rui_tls *t, bool *in, bool *out, char *sentence, uint32_t size_bytes)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    if (rc == 1) {
        if (SSL_session_reused(t->ssl) != 1) { /* for TLS 1.3: the key was used */
            t->broken = true;
            snprintf(sentence, size_bytes, "refused: TLS without the key of this job");
            return RU_E_PERM;
        }
        t->kernel = BIO_get_ktls_send(SSL_get_wbio(t->ssl)) != 0;
        if (!t->kernel && !gather_records(t)) {
            snprintf(sentence, size_bytes, "no memory for TLS");
            return RU_E_MEM;
        }
        t->stands = true;
        return RU_OK;
    }
    int why = SSL_get_error(t->ssl, rc);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        *in = why == SSL_ERROR_WANT_READ;
        *out = why == SSL_ERROR_WANT_WRITE;
        return RU_E_AGAIN;
    }
    t->broken = true;
    return explain(t, sentence, size_bytes);
}

/* What SSL_read or SSL_write could not do, in errno's words: 0 at the end, else -1. */
static ssize_t failed(rui_tls *t, int rc)
{
    int before = errno;
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        t->broken = true;
        errno = before != 0 ? before : ECONNRESET;
        return -1;
    default:
        t->broken = true;
        errno = EPROTO;
        return -1;
    }
}

ssize_t rui_tls_recv(rui_tls *t, const struct iovec *iov, uint32_t n)
{
    ssize_t got = 0;
    for (uint32_t k = 0; k < n; k++) {
        size_t at = 0;
        while (at < iov[k].iov_len) {
            size_t want = iov[k].iov_len - at;
            ERR_clear_error();
            errno = 0;
            int rc = SSL_read(t->ssl, (uint8_t *)iov[k].iov_base + at,
                              want > INT32_MAX ? INT32_MAX : (int)want);
            if (rc <= 0) {
                return got > 0 ? got : failed(t, rc);
            }
            at += (size_t)rc;
            got += rc;
        }
    }
    return got;
}

/* The next record's bytes at *at of iov[*k]: in place, or gathered when they lie in pieces. */
static const uint8_t *next_record(rui_tls *t, const struct iovec *iov, uint32_t n, uint32_t *k,
                                  size_t *at, uint32_t *bytes)
{
    size_t left = iov[*k].iov_len - *at;
    if (left >= RECORD_BYTES || *k + 1 == n) {
        const uint8_t *from = (const uint8_t *)iov[*k].iov_base + *at;
        *bytes = left < RECORD_BYTES ? (uint32_t)left : RECORD_BYTES;
        *at += *bytes;
        return from;
    }
    *bytes = 0;
    while (*k < n && *bytes < RECORD_BYTES) {
        if (*bytes > 0 && *at == 0 && iov[*k].iov_len >= RECORD_BYTES) {
            break; /* a long piece behind a header is not copied */
        }
        size_t room = RECORD_BYTES - *bytes;
        left = iov[*k].iov_len - *at;
        size_t take = left < room ? left : room;
        memcpy(t->record + *bytes, (const uint8_t *)iov[*k].iov_base + *at, take);
        *bytes += (uint32_t)take;
        *at += take;
        if (take == left) {
            (*k)++;
            *at = 0;
        }
    }
    return t->record;
}

/* Records of what is offered, as many as `wire` is for. 0: one could not be made. */
static int64_t fill_wire(rui_tls *t, const struct iovec *iov, uint32_t n)
{
    uint32_t k = 0;
    size_t at = 0;
    int64_t done = 0;
    for (uint32_t r = 0; r < t->records_max; r++) {
        while (k < n && at == iov[k].iov_len) {
            k++;
            at = 0;
        }
        if (k == n) {
            break;
        }
        uint32_t bytes;
        const uint8_t *from = next_record(t, iov, n, &k, &at, &bytes);
        ERR_clear_error();
        errno = 0;
        int rc = SSL_write(t->ssl, from, (int)bytes);
        if (rc <= 0) {
            if (failed(t, rc) == 0) {
                errno = EPIPE;
            }
            return 0;
        }
        RU_CHECK(rc == (int)bytes); /* there is room for it */
        done += rc;
    }
    return done;
}

ssize_t rui_tls_send(rui_tls *t, const struct iovec *iov, uint32_t n)
{
    if (t->pending == 0) { /* else the caller offers the same bytes again */
        if (!wire_flush(t)) {
            return -1;
        }
        t->pending = fill_wire(t, iov, n);
        if (t->pending == 0) {
            return -1;
        }
    }
    if (!wire_flush(t)) {
        return -1;
    }
    ssize_t sent = (ssize_t)t->pending;
    t->pending = 0;
    return sent;
}

bool rui_tls_holds(const rui_tls *t)
{
    return SSL_has_pending(t->ssl) == 1;
}

bool rui_tls_kernel(const rui_tls *t)
{
    return t->kernel;
}
