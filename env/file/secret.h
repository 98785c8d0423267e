/* The secret of this user: 32 random bytes in a file that no other user can read, made when it is
 * first needed. Programs of one user derive keys from it that others cannot guess; hosts that share
 * the home directory have the same one.
 *
 * A derived key says nothing of the secret or of other derived keys (HMAC-SHA-256).
 *
 * Thread: any. */
#ifndef RU_ENV_SECRET_H
#define RU_ENV_SECRET_H

#include "base/status.h"

enum { RU_SECRET_BYTES = 32, RU_SECRET_TEXT = 2 * RU_SECRET_BYTES + 1 };

/* A secret, or a hash of as many bytes, in hexadecimal digits. */
void ru_secret_text(const uint8_t raw[RU_SECRET_BYTES], char text[RU_SECRET_TEXT]);

/* The key that `purpose` has with the secret in `path`, which is made when it is not there; whoever
 * makes it first, all read the same one.
 * Errors: RU_E_CONFIG for a file that others can read, that belongs to another user, or that is no
 * secret; those of reading and writing files. */
RU_MUST_USE ru_status ru_secret_key(const char *path, const char *purpose,
                                    uint8_t key[RU_SECRET_BYTES], ru_err *err);

/* The key that `purpose` has with a secret of its own, for example a job's token.
 * Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_secret_derive(const void *secret, uint32_t secret_bytes,
                                       const char *purpose, uint8_t key[RU_SECRET_BYTES],
                                       ru_err *err);

/* SHA-256 of the bytes in hexadecimal digits. */
void ru_sha256_text(const void *data, int64_t size_bytes, char text[RU_SECRET_TEXT]);
/* The same of bytes that come one after another: what is taken is the hash of all
 * since the last take. NULL: no memory. */
typedef struct evp_md_ctx_st ru_sha256;
ru_sha256 *ru_sha256_new(void);
void ru_sha256_put(ru_sha256 *h, const void *data, int64_t size_bytes);
void ru_sha256_take(ru_sha256 *h, char text[RU_SECRET_TEXT]);
void ru_sha256_free(ru_sha256 *h); /* NULL is fine */

#endif
