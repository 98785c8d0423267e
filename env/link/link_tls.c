/* TLS 1.3 with a pre-shared key: the handshake is OpenSSL's, the records behind it are ours.
 *
 * Both sides hold the same key, there are no certificates: the key schedule starts from the key and
 * a fresh Diffie-Hellman exchange (psk_dhe_ke), so that a key that leaks later opens no old
 * traffic. The key on the wire is derived from the given one, so that the same secret may serve
 * another proof elsewhere.
 *
 * When the handshake is over its traffic secrets are taken from OpenSSL. Where the kernel has TLS
 * it encrypts what is sent; else records of at most 16 KiB are sealed here (env/link/tls_record.h),
 * from the caller's memory into `wire`, those of a frame behind each other, and go to the kernel
 * with one call. As many are read with one call into `in`, and opened from there into the caller's
 * memory: a byte is touched once between the user's memory and the kernel's, each way.
 *
 *   sending    tensor --seal--> wire --send--> kernel
 *   receiving  kernel --recv--> in --open--> tensor
 *
 * Source: rfc8446 sec 2.2, 4.2.9, 4.2.11, 4.6.3, 5. */
#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/link/link_tcp_impl.h"
#include "env/link/tls_record.h"

enum {
    RECORD_ROOM = RUI_RECORD_BYTES + 64, /* of a whole record */
    /* Of bulk connections, with one call. 10 Gbit/s between namespaces, ns of processor a byte,
     * sent and received: 5 out and 5 in 1.09 and 0.89; 9, 5: 0.92 and 0.75; 17, 5: 0.90 and 0.71;
     * 33, 5: 0.87 and 0.62; 17, 17: 1.05 and 0.73. Each call may wake the other side. */
    RECORDS_OUT = 17, /* a chunk of 256 KiB and its header */
    RECORDS_IN = 5,   /* one of 64 KiB */
    OWN_ROOM = 64,    /* records of our own: an update of keys, a farewell */
    KEY_BYTES = 32,
};

#define IDENTITY "rubato" /* then a blank and the peer's name, if it has one */

struct rui_tls_host {
    SSL_CTX *ctx;
    const ru_link_tcp_options *opt;
    char identity[sizeof IDENTITY + 1 + RU_LINK_PSK_NAME_MAX];
    uint8_t key[KEY_BYTES];
};

struct rui_tls {
    SSL *ssl; /* until the handshake is over */
    int fd;
    bool stands, kernel;
    uint8_t secrets[2][RUI_SECRET_BYTES]; /* of the client and of the server */
    uint32_t n_secrets;
    uint32_t records_max; /* made with one call */
    rui_record_key out_key, in_key;
    /* Sending. */
    uint64_t key_records; /* what a key seals at most */
    int64_t pending;      /* bytes of the caller that are in `wire`, which is not empty then */
    bool update_asked;    /* the other side asked for another key */
    uint8_t *wire;        /* [wire_max] records, [wire_at, wire_end) not handed over */
    uint32_t wire_at, wire_end, wire_max;
    /* Receiving. */
    int error;   /* errno of what ended it; 0: none */
    bool ended;  /* the other side said that nothing follows */
    bool dry;    /* the socket was empty after the last call */
    uint8_t *in; /* [in_max] records, [in_at, in_end) not opened */
    uint32_t in_at, in_end, in_max;
    uint32_t rest_at, rest_end; /* in `in`: opened, and not fetched */
    uint8_t bytes[];            /* wire, then in */
};

/* ---- the handshake ---- */

static const rui_tls_host *host_of(const SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

static bool derive(const uint8_t *psk, uint32_t psk_bytes, uint8_t key[KEY_BYTES])
{
    static const char purpose[] = "rubato link tls 1.3";
    unsigned int n = 0;
    return HMAC(EVP_sha256(), psk, (int)psk_bytes, (const unsigned char *)purpose,
                sizeof purpose - 1, key, &n) != NULL &&
           n == KEY_BYTES;
}

static SSL_SESSION *session_of(const uint8_t key[KEY_BYTES], SSL *ssl)
{
    static const unsigned char aes_128_gcm_sha256[2] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *s = SSL_SESSION_new();
    if (s != NULL && cipher != NULL && SSL_SESSION_set1_master_key(s, key, KEY_BYTES) == 1 &&
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
    const rui_tls_host *h = host_of(ssl);
    *session = session_of(h->key, ssl);
    *id = (const unsigned char *)h->identity;
    *id_bytes = strlen(h->identity);
    return *session != NULL;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* OpenSSL tells its secrets in lines: label, the client's random number, the secret. */
static void note_secret(const SSL *ssl, const char *line)
{
    static const char *const labels[] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};
    rui_tls *t = SSL_get_app_data(ssl);
    const char *hex = strrchr(line, ' ');
    for (uint32_t k = 0; k < 2; k++) {
        if (strncmp(line, labels[k], strlen(labels[k])) != 0 || hex == NULL ||
            strlen(hex + 1) < (size_t)2 * RUI_SECRET_BYTES) {
            continue;
        }
        for (uint32_t i = 0; i < RUI_SECRET_BYTES; i++) {
            int high = hex_of(hex[1 + 2 * i]), low = hex_of(hex[2 + 2 * i]);
            RU_CHECK(high >= 0 && low >= 0);
            t->secrets[k][i] = (uint8_t)(high << 4 | low);
        }
        t->n_secrets |= 1u << k;
    }
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    const rui_tls_host *h = host_of(ssl);
    const size_t first = sizeof IDENTITY - 1;
    char name[RU_LINK_PSK_NAME_MAX + 1];
    uint8_t psk[RU_LINK_PSK_MAX], key[KEY_BYTES];
    uint32_t psk_bytes = 0;
    *session = NULL;
    if (id_bytes < first || memcmp(id, IDENTITY, first) != 0) {
        return 1;
    }
    if (h->opt->psk_of == NULL) { /* all have one key, whatever they are called */
        *session = session_of(h->key, ssl);
        return 1;
    }
    if (id_bytes <= first + 1 || id[first] != ' ' || id_bytes - first - 1 > RU_LINK_PSK_NAME_MAX) {
        return 1;
    }
    memcpy(name, id + first + 1, id_bytes - first - 1);
    name[id_bytes - first - 1] = '\0';
    if (h->opt->psk_of(h->opt->psk_self, name, psk, &psk_bytes) && derive(psk, psk_bytes, key)) {
        *session = session_of(key, ssl);
    }
    OPENSSL_cleanse(psk, sizeof psk);
    OPENSSL_cleanse(key, sizeof key);
    return 1;
}

ru_status rui_tls_host_open(const ru_link_tcp_options *opt, rui_tls_host **out, ru_err *err)
{
    rui_tls_host *h = calloc(1, sizeof *h);
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    if (h == NULL || ctx == NULL ||
        (opt->psk_bytes > 0 && !derive(opt->psk, opt->psk_bytes, h->key)) ||
        SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256") != 1) {
        free(h);
        SSL_CTX_free(ctx);
        return RU_FAIL(err, RU_E_MEM, "cannot set up TLS 1.3");
    }
    h->ctx = ctx;
    h->opt = opt;
    (void)snprintf(h->identity, sizeof h->identity, "%s%s%s", IDENTITY,
                   opt->psk_name != NULL ? " " : "", opt->psk_name != NULL ? opt->psk_name : "");
    SSL_CTX_set_app_data(ctx, h);
    SSL_CTX_set_psk_use_session_callback(ctx, use_key);
    SSL_CTX_set_psk_find_session_callback(ctx, find_key);
    /* No authority is trusted: a peer that offers a certificate instead of the key fails. */
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_keylog_callback(ctx, note_secret);
    (void)SSL_CTX_set_num_tickets(ctx, 0);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(ctx, 0); /* it takes no byte behind the handshake from the socket */
    struct sigaction sa;            /* OpenSSL writes without MSG_NOSIGNAL */
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
        OPENSSL_cleanse(h->key, sizeof h->key);
        free(h);
    }
}

rui_tls *rui_tls_new(rui_tls_host *h, int fd, bool accepted, ru_link_class class)
{
    uint32_t out = class == RU_LINK_BULK ? RECORDS_OUT : 1;
    uint32_t in = class == RU_LINK_BULK ? RECORDS_IN : 1;
    uint32_t wire_max = out * RECORD_ROOM + OWN_ROOM;
    uint32_t in_max = (in - 1) * RECORD_ROOM + RUI_RECORD_MAX;
    rui_tls *t = malloc(sizeof *t + wire_max + in_max);
    SSL *ssl = t != NULL ? SSL_new(h->ctx) : NULL;
    if (ssl == NULL || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        free(t);
        return NULL;
    }
    *t = (rui_tls){.ssl = ssl,
                   .fd = fd,
                   .records_max = out,
                   .key_records = RUI_RECORDS_MAX,
                   .wire_max = wire_max,
                   .in_max = in_max};
    t->wire = t->bytes;
    t->in = t->bytes + wire_max;
    SSL_set_app_data(ssl, t);
    if (accepted) {
        SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL); /* of clients only the key is asked */
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
    }
    return t;
}

/* Why a handshake failed, for people. */
static ru_status explain(const rui_tls *t, char *sentence, uint32_t size_bytes)
{
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_REASON(e);
    const char *text = ERR_reason_error_string(e);
    ru_status st = RU_E_PERM;
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
        snprintf(sentence, size_bytes, "refused: it has another TLS key");
    } else if (SSL_is_server(t->ssl) && e != 0) {
        snprintf(sentence, size_bytes, "refused: no TLS 1.3 with the key of this job (%s)",
                 text != NULL ? text : "unknown");
    } else if (e != 0) {
        snprintf(sentence, size_bytes,
                 "no TLS 1.3 connection: the other side has another key or does not use TLS (%s)",
                 text != NULL ? text : "unknown");
    } else {
        snprintf(sentence, size_bytes,
                 "the other side closed the connection during the TLS handshake");
        st = RU_E_IO; /* RU_E_AGAIN means that the handshake goes on */
    }
    return st;
}

/* The kernel seals what is sent from now on. */
static bool to_kernel(int fd, const rui_record_key *k)
{
    struct tls12_crypto_info_aes_gcm_128 info = {
        .info = {.version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_128}};
    memcpy(info.key, k->key, sizeof info.key);
    memcpy(info.salt, k->iv, sizeof info.salt);
    memcpy(info.iv, k->iv + sizeof info.salt, sizeof info.iv);
    bool done = setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0 &&
                setsockopt(fd, SOL_TLS, TLS_TX, &info, sizeof info) == 0;
    OPENSSL_cleanse(&info, sizeof info);
    return done;
}

/* The handshake is over: its secrets are ours, OpenSSL goes. */
static bool take_over(rui_tls *t)
{
    uint32_t mine = SSL_is_server(t->ssl) ? 1 : 0;
    bool done = t->n_secrets == 3 && !SSL_has_pending(t->ssl) &&
                rui_record_key_init(&t->out_key, t->secrets[mine], true) &&
                rui_record_key_init(&t->in_key, t->secrets[1 - mine], false);
    OPENSSL_cleanse(t->secrets, sizeof t->secrets);
    t->kernel = done && to_kernel(t->fd, &t->out_key);
    t->stands = done;
    SSL_free(t->ssl);
    t->ssl = NULL;
    return done;
}

ru_status rui_tls_shake(rui_tls *t, bool *in, bool *out, char *sentence, uint32_t size_bytes)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    if (rc == 1) {
        if (SSL_session_reused(t->ssl) != 1) { /* for TLS 1.3: the key was used */
            snprintf(sentence, size_bytes, "refused: TLS without the key of this job");
            return RU_E_PERM;
        }
        if (!take_over(t)) {
            snprintf(sentence, size_bytes, "no memory for TLS");
            return RU_E_MEM;
        }
        return RU_OK;
    }
    int why = SSL_get_error(t->ssl, rc);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        *in = why == SSL_ERROR_WANT_READ;
        *out = why == SSL_ERROR_WANT_WRITE;
        return RU_E_AGAIN;
    }
    return explain(t, sentence, size_bytes);
}

/* ---- sending ---- */

/* true: the kernel took all there was. After less than that it takes nothing for now: it is not
 * asked again. */
static bool wire_flush(rui_tls *t)
{
    int end = t->records_max == 1 ? MSG_EOR : 0; /* urgent: never corked (link_tcp_tx.c) */
    while (t->wire_at < t->wire_end) {
        size_t left = t->wire_end - t->wire_at;
        ssize_t put = send(t->fd, t->wire + t->wire_at, left, MSG_DONTWAIT | MSG_NOSIGNAL | end);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        t->wire_at += put > 0 ? (uint32_t)put : 0;
        if (put < (ssize_t)left) {
            errno = put < 0 ? errno : EAGAIN;
            return false;
        }
    }
    t->wire_at = t->wire_end = 0;
    return true;
}

static bool seal(rui_tls *t, rui_record_type type, rui_pieces *from, uint32_t bytes)
{
    RU_CHECK(bytes + RUI_RECORD_MORE <= t->wire_max - t->wire_end);
    bool done = rui_record_seal(&t->out_key, type, from, bytes, t->wire + t->wire_end);
    t->wire_end += done ? bytes + RUI_RECORD_MORE : 0;
    return done;
}

static bool seal_own(rui_tls *t, rui_record_type type, uint8_t *content, uint32_t bytes)
{
    struct iovec iov = {content, bytes};
    return seal(t, type, &(rui_pieces){.iov = &iov, .n = 1}, bytes);
}

/* What the next record holds: 16 KiB, but a long piece begins one of its own, so that the other
 * side opens it where it belongs once it knows the header before it. */
static uint32_t next_record(const rui_pieces *p)
{
    size_t bytes = 0, at = p->at;
    for (uint32_t k = p->k; k < p->n && bytes < RUI_RECORD_BYTES; k++, at = 0) {
        size_t here = p->iov[k].iov_len - at;
        if (bytes > 0 && here >= RUI_RECORD_BYTES) {
            break;
        }
        bytes += here;
    }
    return bytes < RUI_RECORD_BYTES ? (uint32_t)bytes : RUI_RECORD_BYTES;
}

/* Another key follows, before this one sealed too much. */
static bool update_key(rui_tls *t)
{
    uint8_t key_update[] = {24, 0, 0, 1, 0}; /* the other direction's may stay */
    t->update_asked = false;
    return seal_own(t, RUI_RECORD_HANDSHAKE, key_update, sizeof key_update) &&
           rui_record_key_next(&t->out_key);
}

/* Records of what is offered, as many as `wire` is for. 0: one could not be made. */
static int64_t fill_wire(rui_tls *t, const struct iovec *iov, uint32_t n)
{
    rui_pieces from = {.iov = iov, .n = n};
    int64_t done = 0;
    bool made = true;
    if (t->update_asked || t->out_key.next + t->records_max >= t->key_records) {
        made = update_key(t);
    }
    for (uint32_t r = 0; made && r < t->records_max; r++) {
        uint32_t bytes = next_record(&from);
        if (bytes == 0) {
            break;
        }
        made = seal(t, RUI_RECORD_DATA, &from, bytes);
        done += bytes;
    }
    if (!made) {
        errno = ENOMEM;
    }
    return made ? done : 0;
}

ssize_t rui_tls_send(rui_tls *t, const struct iovec *iov, uint32_t n)
{
    if (t->pending == 0) { /* else the caller offers the same bytes again */
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

void rui_tls_free(rui_tls *t)
{
    if (t == NULL) {
        return;
    }
    uint8_t close_notify[] = {1, 0};
    if (t->stands && !t->kernel && t->error == 0 &&
        t->wire_max - t->wire_end >= sizeof close_notify + RUI_RECORD_MORE &&
        seal_own(t, RUI_RECORD_ALERT, close_notify, sizeof close_notify)) {
        (void)wire_flush(t); /* nobody waits for the answer */
    }
    SSL_free(t->ssl);
    rui_record_key_fini(&t->out_key);
    rui_record_key_fini(&t->in_key);
    OPENSSL_cleanse(t->secrets, sizeof t->secrets);
    OPENSSL_cleanse(t->in, t->in_max);
    free(t);
}

/* ---- receiving ---- */

/* More of the stream. false: there is none for now, or no more at all. */
static bool fetch(rui_tls *t)
{
    memmove(t->in, t->in + t->in_at, t->in_end - t->in_at);
    t->in_end -= t->in_at;
    t->in_at = 0;
    size_t room = t->in_max - t->in_end;
    ssize_t got;
    do {
        got = recv(t->fd, t->in + t->in_end, room, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    t->dry = got < (ssize_t)room;
    if (got == 0) {
        t->ended = true;
    } else if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        t->error = errno;
    }
    t->in_end += got > 0 ? (uint32_t)got : 0;
    return got > 0;
}

/* The size of the record that `in` begins with; 0: not all of it is there. */
static uint32_t whole_record(const rui_tls *t)
{
    uint32_t have = t->in_end - t->in_at;
    uint32_t size = have >= RUI_RECORD_HEAD ? rui_record_size(t->in + t->in_at) : 0;
    return size <= have ? size : 0;
}

/* What other records than data say. */
static void hear(rui_tls *t, rui_record_type type, const uint8_t *said, uint32_t bytes)
{
    static const uint8_t key_update[] = {24, 0, 0, 1};
    if (type == RUI_RECORD_ALERT && bytes == 2 && said[1] == 0) {
        t->ended = true; /* close_notify */
    } else if (type == RUI_RECORD_HANDSHAKE && bytes == sizeof key_update + 1 && said[4] <= 1 &&
               memcmp(said, key_update, sizeof key_update) == 0) {
        t->update_asked = t->update_asked || said[4] == 1;
        t->error = rui_record_key_next(&t->in_key) ? 0 : ENOMEM;
    } else {
        t->error = EPROTO;
    }
}

/* Open the first record, whole as it is: to where it shall go when that has room for all of it,
 * else in place. The bytes placed. */
static int64_t open_record(rui_tls *t, uint32_t size, rui_pieces *to, int64_t room)
{
    uint32_t content = size - RUI_RECORD_MORE, at = t->in_at + RUI_RECORD_HEAD;
    bool direct = content <= room;
    struct iovec here = {t->in + at, content};
    rui_pieces was = *to, in_place = {.iov = &here, .n = 1};
    rui_record_type type;
    bool right =
        rui_record_open(&t->in_key, t->in + t->in_at, size, direct ? to : &in_place, &type);
    t->in_at += size;
    if (!right) {
        t->error = EPROTO;
    } else if (type == RUI_RECORD_DATA && direct) {
        return content;
    } else if (type == RUI_RECORD_DATA) {
        t->rest_at = at;
        t->rest_end = at + content;
    } else {
        uint8_t said[8];
        uint32_t n = content < sizeof said ? content : sizeof said;
        rui_pieces from = direct ? was : (rui_pieces){.iov = &here, .n = 1};
        rui_pieces_read(&from, said, n);
        *to = was;
        hear(t, type, said, content);
    }
    return 0;
}

static int64_t take_rest(rui_tls *t, rui_pieces *to, int64_t room)
{
    int64_t bytes = t->rest_end - t->rest_at;
    bytes = bytes < room ? bytes : room;
    rui_pieces_write(to, t->in + t->rest_at, (uint32_t)bytes);
    t->rest_at += (uint32_t)bytes;
    return bytes;
}

ssize_t rui_tls_recv(rui_tls *t, const struct iovec *iov, uint32_t n, bool first)
{
    rui_pieces to = {.iov = iov, .n = n};
    int64_t room = 0, got = 0;
    for (uint32_t k = 0; k < n; k++) {
        room += (int64_t)iov[k].iov_len;
    }
    t->dry = t->dry && !first;
    while (got < room && t->error == 0) {
        uint32_t size;
        if (t->rest_at < t->rest_end) {
            got += take_rest(t, &to, room - got);
        } else if ((size = whole_record(t)) > 0) {
            got += open_record(t, size, &to, room - got);
        } else if (t->in_end - t->in_at >= RUI_RECORD_HEAD &&
                   rui_record_size(t->in + t->in_at) == 0) {
            t->error = EPROTO;
        } else if (t->ended || t->dry || !fetch(t)) {
            break;
        }
    }
    if (got > 0) {
        return got;
    }
    errno = t->error != 0 ? t->error : EAGAIN;
    return t->ended && t->error == 0 ? 0 : -1;
}

bool rui_tls_holds(const rui_tls *t)
{
    return t->stands &&
           (t->rest_at < t->rest_end || whole_record(t) > 0 || t->ended || t->error != 0);
}

bool rui_tls_kernel(const rui_tls *t)
{
    return t->kernel;
}

void rui_tls_key_records(rui_tls *t, uint64_t records)
{
    t->key_records = records;
}
