/* HMAC-SHA256 of a shared secret (OpenSSL), its memory taken at open: proofs of the job's token.
 *
 * Source: rfc2104. Thread: one at a time. */
#ifndef RU_COMM_CHAN_HMAC_H
#define RU_COMM_CHAN_HMAC_H

#include "base/status.h"

enum { RUI_HMAC_BYTES = 32 };

typedef struct rui_hmac rui_hmac;

/* Copies the key into the library's own memory. Errors: RU_E_ARG (an empty key), RU_E_BUG. */
RU_MUST_USE ru_status rui_hmac_open(const uint8_t *key, uint32_t key_bytes, rui_hmac **out,
                                    ru_err *err);
void rui_hmac_close(rui_hmac *h); /* NULL is fine; the key is wiped */

/* label's characters, a 0 byte, then the parts. */
typedef struct rui_hmac_part {
    const void *data;
    int64_t size_bytes;
} rui_hmac_part;
void rui_hmac_of(rui_hmac *h, const char *label, const rui_hmac_part *parts, uint32_t n,
                 uint8_t into[RUI_HMAC_BYTES]);

/* In time that does not depend on the contents. */
bool rui_hmac_same(const uint8_t a[RUI_HMAC_BYTES], const uint8_t b[RUI_HMAC_BYTES]);

#endif
