/* What secure aggregation needs of cryptography: keys that two sides agree on (X25519), boxes that
 * one key seals once (AES-256-GCM), and streams of numbers that nobody without the key can tell
 * from random ones (AES-256-CTR from 0).
 *
 * Thread: any. */
#ifndef RU_ENV_CIPHER_H
#define RU_ENV_CIPHER_H

#include "base/status.h"

enum { RU_CIPHER_KEY_BYTES = 32, RU_CIPHER_TAG_BYTES = 16 };

/* Errors of all: RU_E_MEM. */
RU_MUST_USE ru_status ru_cipher_public(const uint8_t secret[RU_CIPHER_KEY_BYTES],
                                       uint8_t into[RU_CIPHER_KEY_BYTES], ru_err *err);
/* A secret that is ready for many agreements: half the time of each is spent for its own side.
 * Thread: one at a time. */
typedef struct evp_pkey_ctx_st ru_cipher_secret;
RU_MUST_USE ru_status ru_cipher_secret_open(const uint8_t secret[RU_CIPHER_KEY_BYTES],
                                            ru_cipher_secret **out, ru_err *err);
void ru_cipher_secret_close(ru_cipher_secret *s); /* NULL is fine */
/* The keys of both sides for n purposes: HMAC-SHA-256 of each under what X25519 gives. Errors:
 * RU_E_DATA for a public key with which all secrets agree on the same. */
RU_MUST_USE ru_status ru_cipher_agree(ru_cipher_secret *mine,
                                      const uint8_t public_key[RU_CIPHER_KEY_BYTES],
                                      const char *const *purposes, uint32_t n,
                                      uint8_t (*keys)[RU_CIPHER_KEY_BYTES], ru_err *err);

/* A key seals one box, no more. Shape: from [bytes], into [bytes + RU_CIPHER_TAG_BYTES]. */
RU_MUST_USE ru_status ru_cipher_seal(const uint8_t key[RU_CIPHER_KEY_BYTES], const void *from,
                                     uint32_t bytes, uint8_t *into, ru_err *err);
/* Shape: from [bytes + RU_CIPHER_TAG_BYTES], into [bytes]. Errors: RU_E_DATA for a box that this
 * key did not seal; what was written is of no meaning then. */
RU_MUST_USE ru_status ru_cipher_open(const uint8_t key[RU_CIPHER_KEY_BYTES], const uint8_t *from,
                                     uint32_t bytes, void *into, ru_err *err);

/* Add the stream of `key` to at [n] modulo 2^32, or take it away. */
RU_MUST_USE ru_status ru_cipher_stream(const uint8_t key[RU_CIPHER_KEY_BYTES], bool minus,
                                       uint32_t *at, int64_t n, ru_err *err);

/* Zeros that the compiler does not leave out. */
void ru_cipher_wipe(void *at, int64_t bytes);

#endif
