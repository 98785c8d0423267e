#include "env/cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "env/file/secret.h"

enum { KEY = RU_CIPHER_KEY_BYTES, TAG = RU_CIPHER_TAG_BYTES, WORDS = 1024 };

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for cryptography");
}

ru_status ru_cipher_public(const uint8_t secret[KEY], uint8_t into[KEY], ru_err *err)
{
    size_t n = KEY;
    EVP_PKEY *k = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, secret, KEY);
    bool fine = k != NULL && EVP_PKEY_get_raw_public_key(k, into, &n) == 1 && n == KEY;
    EVP_PKEY_free(k);
    return fine ? RU_OK : full(err);
}

ru_status ru_cipher_secret_open(const uint8_t secret[KEY], ru_cipher_secret **out, ru_err *err)
{
    EVP_PKEY *k = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, secret, KEY);
    EVP_PKEY_CTX *x = k != NULL ? EVP_PKEY_CTX_new(k, NULL) : NULL;
    EVP_PKEY_free(k); /* x has it */
    if (x == NULL || EVP_PKEY_derive_init(x) != 1) {
        EVP_PKEY_CTX_free(x);
        return full(err);
    }
    *out = x;
    return RU_OK;
}

void ru_cipher_secret_close(ru_cipher_secret *s)
{
    EVP_PKEY_CTX_free(s);
}

ru_status ru_cipher_agree(ru_cipher_secret *mine, const uint8_t public_key[KEY],
                          const char *const *purposes, uint32_t n, uint8_t (*keys)[KEY],
                          ru_err *err)
{
    uint8_t both[KEY];
    size_t bytes = sizeof both;
    EVP_PKEY *other = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, public_key, KEY);
    bool fine = other != NULL && EVP_PKEY_derive_set_peer(mine, other) == 1 &&
                EVP_PKEY_derive(mine, both, &bytes) == 1 && bytes == sizeof both;
    ru_status st = other == NULL ? full(err)
                   : fine        ? RU_OK
                                 : RU_FAIL(err, RU_E_DATA, "a public key is none");
    EVP_PKEY_free(other);
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        st = ru_secret_derive(both, sizeof both, purposes[k], keys[k], err);
    }
    OPENSSL_cleanse(both, sizeof both);
    return st;
}

/* A key has one box, so that the nonce may be the same for all. */
static const uint8_t nonce[12];

ru_status ru_cipher_seal(const uint8_t key[KEY], const void *from, uint32_t bytes, uint8_t *into,
                         ru_err *err)
{
    int n = 0, end = 0;
    EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
    bool fine = x != NULL && EVP_EncryptInit_ex(x, EVP_aes_256_gcm(), NULL, key, nonce) == 1 &&
                EVP_EncryptUpdate(x, into, &n, from, (int)bytes) == 1 &&
                EVP_EncryptFinal_ex(x, into + n, &end) == 1 &&
                EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_AEAD_GET_TAG, TAG, into + bytes) == 1;
    EVP_CIPHER_CTX_free(x);
    return fine ? RU_OK : full(err);
}

ru_status ru_cipher_open(const uint8_t key[KEY], const uint8_t *from, uint32_t bytes, void *into,
                         ru_err *err)
{
    int n = 0;
    uint8_t tag[TAG];
    memcpy(tag, from + bytes, TAG);
    EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
    bool there = x != NULL && EVP_DecryptInit_ex(x, EVP_aes_256_gcm(), NULL, key, nonce) == 1;
    bool fine = there && EVP_DecryptUpdate(x, into, &n, from, (int)bytes) == 1 &&
                EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_AEAD_SET_TAG, TAG, tag) == 1 &&
                EVP_DecryptFinal_ex(x, (uint8_t *)into + n, &n) == 1;
    EVP_CIPHER_CTX_free(x);
    return !there ? full(err)
           : fine ? RU_OK
                  : RU_FAIL(err, RU_E_DATA, "a sealed box is not of this key");
}

/* flip ~0: take away. With a fixed number of words compilers use vectors. */
static void add(uint32_t *restrict at, const uint32_t *restrict more, uint32_t flip)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        at[i] += (more[i] ^ flip) - flip;
    }
}

ru_status ru_cipher_stream(const uint8_t key[KEY], bool minus, uint32_t *at, int64_t n, ru_err *err)
{
    static const uint32_t zeros[WORDS];
    static const uint8_t first[16];
    uint32_t more[WORDS], flip = minus ? UINT32_MAX : 0;
    EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
    bool fine = x != NULL && EVP_EncryptInit_ex(x, EVP_aes_256_ctr(), NULL, key, first) == 1;
    for (int64_t k = 0; fine && k < n; k += WORDS) {
        int64_t words = n - k < WORDS ? n - k : WORDS;
        int bytes = 0;
        fine = EVP_EncryptUpdate(x, (uint8_t *)more, &bytes, (const uint8_t *)zeros,
                                 (int)(words * (int64_t)sizeof *more)) == 1;
        if (words == WORDS) {
            add(at + k, more, flip);
            continue;
        }
        for (int64_t i = 0; i < words; i++) {
            at[k + i] += (more[i] ^ flip) - flip;
        }
    }
    OPENSSL_cleanse(more, sizeof more);
    EVP_CIPHER_CTX_free(x);
    return fine ? RU_OK : full(err);
}

void ru_cipher_wipe(void *at, int64_t bytes)
{
    OPENSSL_cleanse(at, (size_t)bytes);
}
