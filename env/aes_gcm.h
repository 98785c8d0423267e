/* AES-128-GCM with the wide AES and carry-less multiply instructions of AVX2 machines (VAES,
 * VPCLMULQDQ: Zen 3, Alder Lake and later), in one pass over pieces of memory.
 *
 * OpenSSL has wide code since 3.1, and for AVX-512 only: 0.35 ns a byte on Zen 3, this 0.18. Where
 * the instructions are missing, or OpenSSL is as wide, env/tls_record.c uses OpenSSL. No time and
 * no address depends on the key or the data.
 *
 * Thread: loop only. */
#ifndef RU_ENV_AES_GCM_H
#define RU_ENV_AES_GCM_H

#include "base/status.h"

enum {
    RUI_GCM_KEY_BYTES = 16,
    RUI_GCM_NONCE_BYTES = 12,
    RUI_GCM_TAG_BYTES = 16,
    RUI_GCM_BLOCKS = 8, /* that go together */
};

/* Aligned as its vectors are. */
typedef struct rui_gcm {
    _Alignas(32) uint8_t rounds[11][32];      /* round keys, each twice */
    uint8_t powers[RUI_GCM_BLOCKS][16];       /* of the hash key, the highest first */
    uint8_t hash[16], counter[16], first[16]; /* first: hides the tag */
    uint8_t stream[16], part[16];             /* a block begun: key stream, cipher text */
    uint64_t n_part, head_bytes, text_bytes;
} rui_gcm;

bool rui_gcm_can(void); /* this machine has the instructions */

void rui_gcm_key(rui_gcm *g, const uint8_t key[RUI_GCM_KEY_BYTES]);
/* Begin a message: `head` is authenticated beside it, at most 16 bytes. */
void rui_gcm_begin(rui_gcm *g, const uint8_t nonce[RUI_GCM_NONCE_BYTES], const uint8_t *head,
                   uint32_t head_bytes);
/* The next n bytes; `to` may be `from`, and does not overlap it otherwise. */
void rui_gcm_seal(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n);
void rui_gcm_open(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n);
void rui_gcm_tag(rui_gcm *g, uint8_t tag[RUI_GCM_TAG_BYTES]);

#endif
