#include "comm/chan/hmac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

/* The context itself is the handle: OpenSSL frees and wipes it. */
static EVP_MAC_CTX *context(rui_hmac *h)
{
    return (EVP_MAC_CTX *)(void *)h;
}

ru_status rui_hmac_open(const uint8_t *key, uint32_t key_bytes, rui_hmac **out, ru_err *err)
{
    if (key == NULL || key_bytes == 0) {
        return RU_FAIL(err, RU_E_ARG, "the job's token is empty; every job needs one");
    }
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = mac != NULL ? EVP_MAC_CTX_new(mac) : NULL;
    EVP_MAC_free(mac);
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    if (ctx == NULL || EVP_MAC_init(ctx, key, key_bytes, params) != 1) {
        EVP_MAC_CTX_free(ctx);
        return RU_FAIL(err, RU_E_BUG, "OpenSSL offers no HMAC with SHA-256; check libssl3");
    }
    *out = (rui_hmac *)(void *)ctx;
    return RU_OK;
}

void rui_hmac_close(rui_hmac *h)
{
    EVP_MAC_CTX_free(context(h));
}

void rui_hmac_of(rui_hmac *h, const char *label, const rui_hmac_part *parts, uint32_t n,
                 uint8_t into[RUI_HMAC_BYTES])
{
    EVP_MAC_CTX *ctx = context(h);
    RU_CHECK(EVP_MAC_init(ctx, NULL, 0, NULL) == 1); /* the same key again */
    RU_CHECK(EVP_MAC_update(ctx, (const unsigned char *)label, strlen(label) + 1) == 1);
    for (uint32_t i = 0; i < n; i++) {
        RU_CHECK(EVP_MAC_update(ctx, parts[i].data, (size_t)parts[i].size_bytes) == 1);
    }
    size_t size = 0;
    RU_CHECK(EVP_MAC_final(ctx, into, &size, RUI_HMAC_BYTES) == 1);
    RU_CHECK(size == RUI_HMAC_BYTES);
}

bool rui_hmac_same(const uint8_t a[RUI_HMAC_BYTES], const uint8_t b[RUI_HMAC_BYTES])
{
    return CRYPTO_memcmp(a, b, RUI_HMAC_BYTES) == 0;
}
