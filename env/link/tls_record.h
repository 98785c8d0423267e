/* Records of TLS 1.3 (AES-128-GCM, SHA-256) behind the handshake: sealed straight from the caller's
 * memory into what the socket takes, opened straight into where the caller wants them.
 *
 * A traffic secret of the handshake gives key and nonces of one direction; a record's place in the
 * sequence is part of its nonce, so none can be left out, repeated or moved.
 *
 * Thread: loop only. */
#ifndef RU_ENV_TLS_RECORD_H
#define RU_ENV_TLS_RECORD_H

#include <sys/uio.h>

#include "base/status.h"

enum {
    RUI_RECORD_BYTES = 16384,     /* content at most */
    RUI_RECORD_HEAD = 5,          /* type, version, length */
    RUI_RECORD_MORE = 5 + 1 + 16, /* head; type of the content and tag behind it */
    RUI_RECORD_MAX = RUI_RECORD_HEAD + RUI_RECORD_BYTES + 256, /* others may say more */
    RUI_SECRET_BYTES = 32,
    RUI_RECORD_KEY_BYTES = 16,
    RUI_RECORD_IV_BYTES = 12,
    /* A key seals no more records than this: half of what keeps an attacker's advantage below
     * 2^-57 (rfc8446 sec 5.5: 2^24.5). */
    RUI_RECORDS_MAX = 1 << 23,
};

typedef enum rui_record_type {
    RUI_RECORD_ALERT = 21,
    RUI_RECORD_HANDSHAKE = 22,
    RUI_RECORD_DATA = 23,
} rui_record_type;

/* A place in pieces of memory, which moves on. */
typedef struct rui_pieces {
    const struct iovec *iov;
    uint32_t n, k; /* piece */
    size_t at;     /* in it */
} rui_pieces;

/* Copy the next n bytes out, or in; there are as many. */
void rui_pieces_read(rui_pieces *p, uint8_t *into, uint32_t n);
void rui_pieces_write(rui_pieces *p, const uint8_t *from, uint32_t n);

/* One direction. Zeroed: none. */
typedef struct rui_record_key {
    struct evp_cipher_ctx_st *cipher;
    uint8_t secret[RUI_SECRET_BYTES];
    uint8_t key[RUI_RECORD_KEY_BYTES], iv[RUI_RECORD_IV_BYTES];
    uint64_t next; /* number of the next record under this key */
    bool seals;    /* else it opens */
} rui_record_key;

/* Take over where the handshake ended. false: no memory. */
bool rui_record_key_init(rui_record_key *k, const uint8_t secret[RUI_SECRET_BYTES], bool seals);
/* Both ends of both directions continue with the next key at the same sequence number. false: not
 * enough memory; the key cannot be used then. */
bool rui_record_key_next(rui_record_key *k);
void rui_record_key_fini(rui_record_key *k); /* wipes it */

/* Seal the next `bytes` of `from`, at most RUI_RECORD_BYTES, as one record of
 * bytes + RUI_RECORD_MORE at `into`. false: no memory. */
bool rui_record_seal(rui_record_key *k, rui_record_type type, rui_pieces *from, uint32_t bytes,
                     uint8_t *into);
/* The size of the record whose first RUI_RECORD_HEAD bytes these are, all of it; 0: it is none. */
uint32_t rui_record_size(const uint8_t head[RUI_RECORD_HEAD]);
/* Open a whole record of `size` into `to`, which has room for its size - RUI_RECORD_MORE bytes of
 * content; it may be the record's own content in place. false: it is not the other side's next one;
 * what was written is of no meaning then. */
bool rui_record_open(rui_record_key *k, const uint8_t *record, uint32_t size, rui_pieces *to,
                     rui_record_type *type);

#endif
