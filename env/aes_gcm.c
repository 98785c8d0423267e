/* Counter mode and its hash, eight blocks at a time in four registers of two:
 *
 *   counters -- ten rounds --> key stream ^ text --> cipher text --> hash of the eight
 *
 * The hash of eight blocks is the sum of each times its power of the hash key, reduced once. Blocks
 * are turned to the machine's byte order; the bits of GCM's polynomials then stand in reverse,
 * which costs a factor of x in each product: the powers hold it already (key_of_hash). When
 * sealing, the blocks hashed are those of the turn before, so that both chains run side by side.
 *
 * Source: NIST SP 800-38D; Gueron and Kounavis, "Intel carry-less multiplication instruction and
 * its usage for computing the GCM mode" (aggregated reduction). */
#include "env/aes_gcm.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define WIDE __attribute__((target("avx2,aes,pclmul,vaes,vpclmulqdq")))
/* Values of these would be passed in memory: all are within one function. */
#define WITHIN WIDE __attribute__((always_inline)) static inline

enum { ROUNDS = 10, BLOCK = 16, TURN = RUI_GCM_BLOCKS * BLOCK };

bool rui_gcm_can(void)
{
    uint32_t a, b, c, d;
    bool wide = __get_cpuid_count(7, 0, &a, &b, &c, &d) == 1 && (c & bit_VAES) != 0 &&
                (c & bit_VPCLMULQDQ) != 0;
    return wide && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("aes") &&
           __builtin_cpu_supports("pclmul");
}

/* ---- the hash ---- */

typedef struct product {
    __m256i low, middle, high; /* not reduced; of two blocks each */
} product;

WITHIN __m128i polynomial(void)
{
    return _mm_set_epi64x((int64_t)0xc200000000000000u, 1);
}

WITHIN __m128i turned(__m128i x)
{
    return _mm_shuffle_epi8(x, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

WITHIN __m256i turned2(__m256i x)
{
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_set_epi8(
                                      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
}

WITHIN void add_product(product *p, __m256i a, __m256i b)
{
    p->low = _mm256_xor_si256(p->low, _mm256_clmulepi64_epi128(a, b, 0x00));
    p->high = _mm256_xor_si256(p->high, _mm256_clmulepi64_epi128(a, b, 0x11));
    __m256i middle = _mm256_xor_si256(_mm256_clmulepi64_epi128(a, b, 0x01),
                                      _mm256_clmulepi64_epi128(a, b, 0x10));
    p->middle = _mm256_xor_si256(p->middle, middle);
}

/* Both halves summed, then 64 bits at a time folded upwards. */
WITHIN __m128i reduce(const product *p)
{
    __m128i low =
        _mm_xor_si128(_mm256_castsi256_si128(p->low), _mm256_extracti128_si256(p->low, 1));
    __m128i middle =
        _mm_xor_si128(_mm256_castsi256_si128(p->middle), _mm256_extracti128_si256(p->middle, 1));
    __m128i high =
        _mm_xor_si128(_mm256_castsi256_si128(p->high), _mm256_extracti128_si256(p->high, 1));
    __m128i poly = polynomial();
    middle = _mm_xor_si128(middle, _mm_shuffle_epi32(low, 0x4e));
    middle = _mm_xor_si128(middle, _mm_clmulepi64_si128(poly, low, 0x01));
    high = _mm_xor_si128(high, _mm_shuffle_epi32(middle, 0x4e));
    return _mm_xor_si128(high, _mm_clmulepi64_si128(poly, middle, 0x01));
}

WITHIN __m128i times(__m128i a, __m128i b)
{
    product p = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    add_product(&p, _mm256_zextsi128_si256(a), _mm256_zextsi128_si256(b));
    return reduce(&p);
}

WITHIN __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

WITHIN __m256i load2(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

WITHIN void store(uint8_t *p, __m128i x)
{
    _mm_storeu_si128((__m128i *)(void *)p, x);
}

WITHIN void store2(uint8_t *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x);
}

/* One block of cipher text, or of the head. */
WITHIN void hash_block(rui_gcm *g, __m128i block)
{
    __m128i y = _mm_xor_si128(load(g->hash), turned(block));
    store(g->hash, times(y, load(g->powers[RUI_GCM_BLOCKS - 1])));
}

/* ---- the cipher ---- */

WITHIN __m128i block_of(const rui_gcm *g, __m128i x)
{
    x = _mm_xor_si128(x, load(g->rounds[0]));
    for (uint32_t k = 1; k < ROUNDS; k++) {
        x = _mm_aesenc_si128(x, load(g->rounds[k]));
    }
    return _mm_aesenclast_si128(x, load(g->rounds[ROUNDS]));
}

WITHIN __m128i next_key(__m128i key, __m128i assist)
{
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    return _mm_xor_si128(key, _mm_shuffle_epi32(assist, 0xff));
}

WITHIN void keep_round(rui_gcm *g, uint32_t k, __m128i key)
{
    store(g->rounds[k], key);
    store(g->rounds[k] + BLOCK, key);
}

/* The hash key times x, so that products need no shift. */
WITHIN __m128i key_of_hash(__m128i h)
{
    uint64_t low = (uint64_t)_mm_extract_epi64(h, 0), high = (uint64_t)_mm_extract_epi64(h, 1);
    uint64_t carry = 0 - (high >> 63);
    high = (high << 1 | low >> 63) ^ (carry & 0xc200000000000000u);
    low = low << 1 ^ (carry & 1);
    return _mm_set_epi64x((int64_t)high, (int64_t)low);
}

WIDE void rui_gcm_key(rui_gcm *g, const uint8_t key[RUI_GCM_KEY_BYTES])
{
    __m128i k = load(key);
    keep_round(g, 0, k);
#define ROUND(n, constant)                                     \
    k = next_key(k, _mm_aeskeygenassist_si128(k, (constant))); \
    keep_round(g, (n), k);
    ROUND(1, 0x01)
    ROUND(2, 0x02)
    ROUND(3, 0x04)
    ROUND(4, 0x08)
    ROUND(5, 0x10)
    ROUND(6, 0x20)
    ROUND(7, 0x40)
    ROUND(8, 0x80)
    ROUND(9, 0x1b)
    ROUND(10, 0x36)
#undef ROUND
    __m128i h = key_of_hash(turned(block_of(g, _mm_setzero_si128()))), power = h;
    for (uint32_t n = RUI_GCM_BLOCKS; n > 0; n--) {
        store(g->powers[n - 1], power);
        power = times(power, h);
    }
}

WIDE void rui_gcm_begin(rui_gcm *g, const uint8_t nonce[RUI_GCM_NONCE_BYTES], const uint8_t *head,
                        uint32_t head_bytes)
{
    RU_CHECK(head_bytes <= BLOCK);
    uint8_t first[BLOCK] = {0}, padded[BLOCK] = {0};
    memcpy(first, nonce, RUI_GCM_NONCE_BYTES);
    first[BLOCK - 1] = 1;
    store(g->first, block_of(g, load(first)));
    store(g->counter, _mm_add_epi32(turned(load(first)), _mm_set_epi32(0, 0, 0, 1)));
    store(g->hash, _mm_setzero_si128());
    g->n_part = g->text_bytes = 0;
    g->head_bytes = head_bytes;
    if (head_bytes > 0) {
        memcpy(padded, head, head_bytes);
        hash_block(g, load(padded));
    }
}

/* ---- text ---- */

WITHIN void next_stream(rui_gcm *g)
{
    __m128i counter = load(g->counter);
    store(g->stream, block_of(g, turned(counter)));
    store(g->counter, _mm_add_epi32(counter, _mm_set_epi32(0, 0, 0, 1)));
}

/* Bytes of one block, which may have been begun. */
WITHIN void some_bytes(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n, bool seals)
{
    if (g->n_part == 0) {
        next_stream(g);
        store(g->part, _mm_setzero_si128());
    }
    for (int64_t i = 0; i < n; i++) {
        uint8_t in = from[i], out = in ^ g->stream[g->n_part];
        g->part[g->n_part++] = seals ? out : in;
        to[i] = out;
    }
    if (g->n_part == BLOCK) {
        hash_block(g, load(g->part));
        g->n_part = 0;
    }
}

/* Eight blocks. By name: an array of them would live in memory. */
typedef struct eight {
    __m256i a, b, c, d;
} eight;

WITHIN eight load8(const uint8_t *p)
{
    return (eight){load2(p), load2(p + 32), load2(p + 64), load2(p + 96)};
}

WITHIN void store8(uint8_t *p, eight x)
{
    store2(p, x.a);
    store2(p + 32, x.b);
    store2(p + 64, x.c);
    store2(p + 96, x.d);
}

WITHIN eight add8(eight x, eight y)
{
    return (eight){_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b),
                   _mm256_xor_si256(x.c, y.c), _mm256_xor_si256(x.d, y.d)};
}

/* Key stream of the counters from *counter on. */
WITHIN eight stream8(const rui_gcm *g, __m256i *counter)
{
    const __m256i two = _mm256_set_epi32(0, 0, 0, 2, 0, 0, 0, 2);
    __m256i round = load2(g->rounds[0]), n = *counter;
    eight x;
    x.a = _mm256_xor_si256(turned2(n), round);
    n = _mm256_add_epi32(n, two);
    x.b = _mm256_xor_si256(turned2(n), round);
    n = _mm256_add_epi32(n, two);
    x.c = _mm256_xor_si256(turned2(n), round);
    n = _mm256_add_epi32(n, two);
    x.d = _mm256_xor_si256(turned2(n), round);
    *counter = _mm256_add_epi32(n, two);
    for (uint32_t k = 1; k < ROUNDS; k++) {
        round = load2(g->rounds[k]);
        x.a = _mm256_aesenc_epi128(x.a, round);
        x.b = _mm256_aesenc_epi128(x.b, round);
        x.c = _mm256_aesenc_epi128(x.c, round);
        x.d = _mm256_aesenc_epi128(x.d, round);
    }
    round = load2(g->rounds[ROUNDS]);
    return (eight){_mm256_aesenclast_epi128(x.a, round), _mm256_aesenclast_epi128(x.b, round),
                   _mm256_aesenclast_epi128(x.c, round), _mm256_aesenclast_epi128(x.d, round)};
}

WITHIN __m128i hash8(const rui_gcm *g, __m128i y, eight x)
{
    product p = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i begun = _mm256_xor_si256(turned2(x.a), _mm256_zextsi128_si256(y));
    add_product(&p, begun, load2(g->powers[0]));
    add_product(&p, turned2(x.b), load2(g->powers[2]));
    add_product(&p, turned2(x.c), load2(g->powers[4]));
    add_product(&p, turned2(x.d), load2(g->powers[6]));
    return reduce(&p);
}

/* Whole turns of eight blocks; the bytes done. */
WITHIN int64_t turns(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n, bool seals)
{
    __m128i first = load(g->counter), y = load(g->hash);
    __m256i counter = _mm256_set_m128i(_mm_add_epi32(first, _mm_set_epi32(0, 0, 0, 1)), first);
    eight last = load8(from);
    int64_t at = 0;
    for (; n - at >= TURN; at += TURN) {
        eight in = load8(from + at), stream = stream8(g, &counter);
        if (!seals || at > 0) {
            y = hash8(g, y, seals ? last : in);
        }
        last = add8(stream, in);
        store8(to + at, last);
    }
    if (seals) {
        y = hash8(g, y, last);
    }
    store(g->counter, _mm256_castsi256_si128(counter));
    store(g->hash, y);
    return at;
}

WITHIN void text(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n, bool seals)
{
    RU_CHECK(n >= 0);
    g->text_bytes += (uint64_t)n;
    int64_t at = 0;
    while (at < n) {
        if (g->n_part == 0 && n - at >= TURN) {
            at += turns(g, to + at, from + at, n - at, seals);
            continue;
        }
        int64_t room = BLOCK - (int64_t)g->n_part, here = n - at < room ? n - at : room;
        some_bytes(g, to + at, from + at, here, seals);
        at += here;
    }
}

WIDE void rui_gcm_seal(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n)
{
    text(g, to, from, n, true);
}

WIDE void rui_gcm_open(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n)
{
    text(g, to, from, n, false);
}

WIDE void rui_gcm_tag(rui_gcm *g, uint8_t tag[RUI_GCM_TAG_BYTES])
{
    if (g->n_part > 0) {
        hash_block(g, load(g->part)); /* zeros behind it */
        g->n_part = 0;
    }
    __m128i sizes = _mm_set_epi64x((int64_t)(8 * g->head_bytes), (int64_t)(8 * g->text_bytes));
    hash_block(g, turned(sizes));
    store(tag, _mm_xor_si128(turned(load(g->hash)), load(g->first)));
}

#else

bool rui_gcm_can(void)
{
    return false;
}

void rui_gcm_key(rui_gcm *g, const uint8_t key[RUI_GCM_KEY_BYTES])
{
    (void)g, (void)key;
    RU_CHECK(false);
}

void rui_gcm_begin(rui_gcm *g, const uint8_t nonce[RUI_GCM_NONCE_BYTES], const uint8_t *head,
                   uint32_t head_bytes)
{
    (void)g, (void)nonce, (void)head, (void)head_bytes;
    RU_CHECK(false);
}

void rui_gcm_seal(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n)
{
    (void)g, (void)to, (void)from, (void)n;
    RU_CHECK(false);
}

void rui_gcm_open(rui_gcm *g, uint8_t *to, const uint8_t *from, int64_t n)
{
    (void)g, (void)to, (void)from, (void)n;
    RU_CHECK(false);
}

void rui_gcm_tag(rui_gcm *g, uint8_t tag[RUI_GCM_TAG_BYTES])
{
    (void)g, (void)tag;
    RU_CHECK(false);
}

#endif
