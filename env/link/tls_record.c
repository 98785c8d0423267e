/* A record: head (23, 3, 3, length) in the clear, then content, its type and the tag. The head is
 * what is authenticated beside the content; the nonce is the IV with the record's number added
 * without carry.
 *
 * What is opened is written to its place before the tag is known to be right, so that no second
 * pass over it is needed: nobody is told of it before, and a wrong tag ends the connection.
 *
 * Source: rfc8446 sec 5.2, 5.3, 7.1 to 7.3. */
#include "env/link/tls_record.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

enum { TAG_BYTES = 16, INFO_MAX = 64 };

/* HKDF-Expand-Label of at most 32 bytes without context. */
static bool expand(const uint8_t secret[RUI_SECRET_BYTES], const char *label, uint8_t *into,
                   uint32_t bytes)
{
    uint8_t info[INFO_MAX], out[EVP_MAX_MD_SIZE];
    uint32_t n = 0, label_bytes = (uint32_t)strlen(label);
    RU_CHECK(bytes <= RUI_SECRET_BYTES && label_bytes + 5 <= INFO_MAX);
    info[n++] = 0;
    info[n++] = (uint8_t)bytes;
    info[n++] = (uint8_t)label_bytes;
    memcpy(info + n, label, label_bytes);
    n += label_bytes;
    info[n++] = 0; /* no context */
    info[n++] = 1; /* the first block, which is enough */
    unsigned int made = 0;
    bool done =
        HMAC(EVP_sha256(), secret, RUI_SECRET_BYTES, info, n, out, &made) != NULL && made >= bytes;
    if (done) {
        memcpy(into, out, bytes);
    }
    OPENSSL_cleanse(out, sizeof out);
    return done;
}

static bool derive(rui_record_key *k)
{
    k->next = 0;
    return expand(k->secret, "tls13 key", k->key, sizeof k->key) &&
           expand(k->secret, "tls13 iv", k->iv, sizeof k->iv) &&
           EVP_CipherInit_ex(k->cipher, EVP_aes_128_gcm(), NULL, k->key, k->iv, k->seals ? 1 : 0) ==
               1;
}

bool rui_record_key_init(rui_record_key *k, const uint8_t secret[RUI_SECRET_BYTES], bool seals)
{
    *k = (rui_record_key){.cipher = EVP_CIPHER_CTX_new(), .seals = seals};
    memcpy(k->secret, secret, sizeof k->secret);
    return k->cipher != NULL && derive(k);
}

bool rui_record_key_next(rui_record_key *k)
{
    uint8_t secret[RUI_SECRET_BYTES];
    bool done = expand(k->secret, "tls13 traffic upd", secret, sizeof secret);
    memcpy(k->secret, secret, sizeof secret);
    OPENSSL_cleanse(secret, sizeof secret);
    return done && derive(k);
}

void rui_record_key_fini(rui_record_key *k)
{
    EVP_CIPHER_CTX_free(k->cipher);
    OPENSSL_cleanse(k, sizeof *k);
}

/* The cipher stands before the next record with this head. */
static bool begin(rui_record_key *k, const uint8_t *head)
{
    uint8_t nonce[RUI_RECORD_IV_BYTES];
    memcpy(nonce, k->iv, sizeof nonce);
    for (uint32_t i = 0; i < 8; i++) {
        nonce[4 + i] ^= (uint8_t)(k->next >> (56 - 8 * i));
    }
    k->next++;
    int n;
    return EVP_CipherInit_ex(k->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(k->cipher, NULL, &n, head, RUI_RECORD_HEAD) == 1;
}

static bool crypt_some(rui_record_key *k, uint8_t *to, const uint8_t *from, size_t bytes)
{
    int n = 0;
    return EVP_CipherUpdate(k->cipher, to, &n, from, (int)bytes) == 1 && n == (int)bytes;
}

/* The next piece of at most `left` bytes; empty ones are passed over. */
static uint8_t *piece(rui_pieces *p, size_t left, size_t *bytes)
{
    while (p->k < p->n && p->at == p->iov[p->k].iov_len) {
        p->k++;
        p->at = 0;
    }
    RU_CHECK(p->k < p->n);
    size_t here = p->iov[p->k].iov_len - p->at;
    *bytes = here < left ? here : left;
    uint8_t *data = (uint8_t *)p->iov[p->k].iov_base + p->at;
    p->at += *bytes;
    return data;
}

void rui_pieces_read(rui_pieces *p, uint8_t *into, uint32_t n)
{
    for (size_t left = n, here; left > 0; left -= here, into += here) {
        const uint8_t *data = piece(p, left, &here);
        memcpy(into, data, here);
    }
}

void rui_pieces_write(rui_pieces *p, const uint8_t *from, uint32_t n)
{
    for (size_t left = n, here; left > 0; left -= here, from += here) {
        uint8_t *data = piece(p, left, &here);
        memcpy(data, from, here);
    }
}

bool rui_record_seal(rui_record_key *k, rui_record_type type, rui_pieces *from, uint32_t bytes,
                     uint8_t *into)
{
    RU_CHECK(k->seals && bytes <= RUI_RECORD_BYTES);
    uint32_t length = bytes + 1 + TAG_BYTES;
    uint8_t head[RUI_RECORD_HEAD] = {RUI_RECORD_DATA, 3, 3, (uint8_t)(length >> 8),
                                     (uint8_t)length};
    uint8_t kind = (uint8_t)type, *at = into + RUI_RECORD_HEAD;
    memcpy(into, head, sizeof head);
    bool done = begin(k, head);
    for (size_t left = bytes, n; done && left > 0; left -= n, at += n) {
        const uint8_t *data = piece(from, left, &n);
        done = crypt_some(k, at, data, n);
    }
    int n = 0;
    return done && crypt_some(k, at, &kind, 1) && EVP_CipherFinal_ex(k->cipher, at + 1, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(k->cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, at + 1) == 1;
}

uint32_t rui_record_size(const uint8_t head[RUI_RECORD_HEAD])
{
    uint32_t length = (uint32_t)head[3] << 8 | head[4];
    bool fits = length > TAG_BYTES && length <= RUI_RECORD_MAX - RUI_RECORD_HEAD;
    bool known = head[0] == RUI_RECORD_DATA && head[1] == 3 && head[2] == 3;
    return fits && known ? RUI_RECORD_HEAD + length : 0;
}

bool rui_record_open(rui_record_key *k, const uint8_t *record, uint32_t size, rui_pieces *to,
                     rui_record_type *type)
{
    RU_CHECK(!k->seals && size >= RUI_RECORD_MORE && size <= RUI_RECORD_MAX);
    const uint8_t *at = record + RUI_RECORD_HEAD;
    uint8_t tag[TAG_BYTES], kind = 0, last[1];
    memcpy(tag, record + size - TAG_BYTES, TAG_BYTES);
    bool done = begin(k, record);
    for (size_t left = size - RUI_RECORD_MORE, n; done && left > 0; left -= n, at += n) {
        uint8_t *data = piece(to, left, &n);
        done = crypt_some(k, data, at, n);
    }
    int n = 0;
    done = done && crypt_some(k, &kind, at, 1) &&
           EVP_CIPHER_CTX_ctrl(k->cipher, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) == 1 &&
           EVP_CipherFinal_ex(k->cipher, last, &n) == 1;
    *type = (rui_record_type)kind;
    /* Zeros behind the type would be padding: nobody here pads, so they are refused. */
    return done && kind >= RUI_RECORD_ALERT && kind <= RUI_RECORD_DATA;
}
