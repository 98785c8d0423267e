/* Additions of vectors.
 *
 * One pass over memory, wide loads, no dependence between elements. Measured on the 2-core test
 * machine see docs/comm.md. Streaming stores help when the target is larger than the caches: a
 * plain store reads the line first. */
#include "comm/coll/coll_add.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define X86    1
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define AVX2   __attribute__((target("avx2")))
#endif

/* -- plain code ----------------------------------------------------------------------------------
 */

static void sum_f32_plain(float *into, const void *const *from, uint32_t n_from, int64_t at,
                          int64_t n)
{
    for (int64_t k = at; k < n; k++) {
        float x = ((const float *)from[0])[k];
        for (uint32_t s = 1; s < n_from; s++) {
            x += ((const float *)from[s])[k];
        }
        into[k] = x;
    }
}

static void sum_bf16_plain(uint16_t *into, const void *const *from, uint32_t n_from, int64_t at,
                           int64_t n)
{
    for (int64_t k = at; k < n; k++) {
        float x = ru_bf16_to_f32(((const uint16_t *)from[0])[k]);
        for (uint32_t s = 1; s < n_from; s++) {
            x += ru_bf16_to_f32(((const uint16_t *)from[s])[k]);
        }
        into[k] = ru_f32_to_bf16(x);
    }
}

#ifdef X86

/* Elements to do alone until `into` stands on a line of 64 bytes. */
static int64_t head_of(const void *into, int64_t elem_bytes, int64_t n)
{
    int64_t off = (int64_t)((uintptr_t)into & 63);
    int64_t head = off == 0 ? 0 : (64 - off) / elem_bytes;
    return head < n ? head : n;
}

/* -- AVX-512 -------------------------------------------------------------------------------------
 */

AVX512 static int64_t sum_f32_avx512(float *into, const void *const *from, uint32_t n_from,
                                     int64_t at, int64_t n, bool stream)
{
    for (; at + 64 <= n; at += 64) {
        const float *p = (const float *)from[0] + at;
        __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
        __m512 c = _mm512_loadu_ps(p + 32), d = _mm512_loadu_ps(p + 48);
        for (uint32_t s = 1; s < n_from; s++) {
            p = (const float *)from[s] + at;
            a = _mm512_add_ps(a, _mm512_loadu_ps(p));
            b = _mm512_add_ps(b, _mm512_loadu_ps(p + 16));
            c = _mm512_add_ps(c, _mm512_loadu_ps(p + 32));
            d = _mm512_add_ps(d, _mm512_loadu_ps(p + 48));
        }
        float *q = into + at;
        if (stream) {
            _mm512_stream_ps(q, a);
            _mm512_stream_ps(q + 16, b);
            _mm512_stream_ps(q + 32, c);
            _mm512_stream_ps(q + 48, d);
        } else {
            _mm512_storeu_ps(q, a);
            _mm512_storeu_ps(q + 16, b);
            _mm512_storeu_ps(q + 32, c);
            _mm512_storeu_ps(q + 48, d);
        }
    }
    return at;
}

/* bf16 in pairs: a vector of 32-bit words holds the elements of even places in the low halves and
 * those of odd places in the high halves. Each half is a float once the other is out of the way, so
 * nothing has to be unpacked or packed. */
AVX512 static __m512 even_avx512(__m512i v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

AVX512 static __m512 odd_avx512(__m512i v)
{
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
}

/* The nearest bf16, ties to even, in the high half; a NaN stays a quiet one. */
AVX512 static __m512i round_bf16_avx512(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i last = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), last);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
}

/* High halves of b, high halves of a shifted down. */
AVX512 static __m512i pair_bf16_avx512(__m512 a, __m512 b)
{
    __m512i low = _mm512_srli_epi32(round_bf16_avx512(a), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, round_bf16_avx512(b));
}

AVX512 static int64_t sum_bf16_avx512(uint16_t *into, const void *const *from, uint32_t n_from,
                                      int64_t at, int64_t n, bool stream)
{
    for (; at + 64 <= n; at += 64) {
        const uint16_t *p = (const uint16_t *)from[0] + at;
        __m512i v = _mm512_loadu_si512((const void *)p);
        __m512i w = _mm512_loadu_si512((const void *)(p + 32));
        __m512 a = even_avx512(v), b = odd_avx512(v), c = even_avx512(w), d = odd_avx512(w);
        for (uint32_t s = 1; s < n_from; s++) {
            p = (const uint16_t *)from[s] + at;
            v = _mm512_loadu_si512((const void *)p);
            w = _mm512_loadu_si512((const void *)(p + 32));
            a = _mm512_add_ps(a, even_avx512(v));
            b = _mm512_add_ps(b, odd_avx512(v));
            c = _mm512_add_ps(c, even_avx512(w));
            d = _mm512_add_ps(d, odd_avx512(w));
        }
        __m512i x = pair_bf16_avx512(a, b), y = pair_bf16_avx512(c, d);
        if (stream) {
            _mm512_stream_si512((void *)(into + at), x);
            _mm512_stream_si512((void *)(into + at + 32), y);
        } else {
            _mm512_storeu_si512((void *)(into + at), x);
            _mm512_storeu_si512((void *)(into + at + 32), y);
        }
    }
    return at;
}

/* -- AVX2 ----------------------------------------------------------------------------------------
 */

AVX2 static int64_t sum_f32_avx2(float *into, const void *const *from, uint32_t n_from, int64_t at,
                                 int64_t n, bool stream)
{
    for (; at + 16 <= n; at += 16) {
        const float *p = (const float *)from[0] + at;
        __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
        for (uint32_t s = 1; s < n_from; s++) {
            p = (const float *)from[s] + at;
            a = _mm256_add_ps(a, _mm256_loadu_ps(p));
            b = _mm256_add_ps(b, _mm256_loadu_ps(p + 8));
        }
        if (stream) {
            _mm256_stream_ps(into + at, a);
            _mm256_stream_ps(into + at + 8, b);
        } else {
            _mm256_storeu_ps(into + at, a);
            _mm256_storeu_ps(into + at + 8, b);
        }
    }
    return at;
}

AVX2 static __m256 even_avx2(__m256i v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

AVX2 static __m256 odd_avx2(__m256i v)
{
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
}

AVX2 static __m256i round_bf16_avx2(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i last = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), last);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
}

AVX2 static int64_t sum_bf16_avx2(uint16_t *into, const void *const *from, uint32_t n_from,
                                  int64_t at, int64_t n, bool stream)
{
    for (; at + 16 <= n; at += 16) {
        __m256i v = _mm256_loadu_si256((const void *)((const uint16_t *)from[0] + at));
        __m256 a = even_avx2(v), b = odd_avx2(v);
        for (uint32_t s = 1; s < n_from; s++) {
            v = _mm256_loadu_si256((const void *)((const uint16_t *)from[s] + at));
            a = _mm256_add_ps(a, even_avx2(v));
            b = _mm256_add_ps(b, odd_avx2(v));
        }
        __m256i r =
            _mm256_blend_epi16(_mm256_srli_epi32(round_bf16_avx2(a), 16), round_bf16_avx2(b), 0xaa);
        if (stream) {
            _mm256_stream_si256((void *)(into + at), r);
        } else {
            _mm256_storeu_si256((void *)(into + at), r);
        }
    }
    return at;
}

AVX512 static void copy_avx512(uint8_t *into, const uint8_t *from, int64_t n)
{
    for (int64_t at = 0; at < n; at += 128) {
        __m512i a = _mm512_loadu_si512((const void *)(from + at));
        __m512i b = _mm512_loadu_si512((const void *)(from + at + 64));
        _mm512_stream_si512((void *)(into + at), a);
        _mm512_stream_si512((void *)(into + at + 64), b);
    }
    _mm_sfence();
}

AVX2 static void copy_avx2(uint8_t *into, const uint8_t *from, int64_t n)
{
    for (int64_t at = 0; at < n; at += 128) {
        for (int64_t k = 0; k < 128; k += 32) {
            _mm256_stream_si256((void *)(into + at + k),
                                _mm256_loadu_si256((const void *)(from + at + k)));
        }
    }
    _mm_sfence();
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* The part of [at, n) that vectors do; returns where they stopped. */
static int64_t sum_vector(ru_dtype dtype, void *into, const void *const *from, uint32_t n_from,
                          int64_t at, int64_t n, bool stream)
{
    if (has_avx512()) {
        return dtype == RU_F32 ? sum_f32_avx512(into, from, n_from, at, n, stream)
                               : sum_bf16_avx512(into, from, n_from, at, n, stream);
    }
    if (__builtin_cpu_supports("avx2")) {
        return dtype == RU_F32 ? sum_f32_avx2(into, from, n_from, at, n, stream)
                               : sum_bf16_avx2(into, from, n_from, at, n, stream);
    }
    return at;
}

const char *ru_coll_add_isa(void)
{
    return has_avx512() ? "avx512" : __builtin_cpu_supports("avx2") ? "avx2" : "plain";
}

#else

const char *ru_coll_add_isa(void)
{
    return "plain";
}

#endif

static void sum_plain(ru_dtype dtype, void *into, const void *const *from, uint32_t n_from,
                      int64_t at, int64_t n)
{
    if (dtype == RU_F32) {
        sum_f32_plain(into, from, n_from, at, n);
    } else {
        sum_bf16_plain(into, from, n_from, at, n);
    }
}

void ru_coll_sum(ru_dtype dtype, void *into, const void *const *from, uint32_t n_from, int64_t n,
                 bool stream)
{
    RU_CHECK((dtype == RU_F32 || dtype == RU_BF16) && n_from >= 1 && n_from <= RU_COLL_SUM_MAX);
    int64_t at = 0;
#ifdef X86
    if (stream) {
        at = head_of(into, ru_dtype_bytes(dtype), n);
        sum_plain(dtype, into, from, n_from, 0, at);
    }
    at = sum_vector(dtype, into, from, n_from, at, n, stream);
    if (stream) {
        _mm_sfence();
    }
#else
    (void)stream;
#endif
    sum_plain(dtype, into, from, n_from, at, n);
}

void ru_coll_add(ru_dtype dtype, void *mine, const void *theirs, int64_t n, bool before)
{
    const void *from[2] = {before ? theirs : mine, before ? mine : theirs};
    ru_coll_sum(dtype, mine, from, 2, n, false);
}

void ru_coll_copy(void *into, const void *from, int64_t size_bytes, bool stream)
{
    int64_t at = 0;
#ifdef X86
    bool avx512 = has_avx512();
    if (stream && (avx512 || __builtin_cpu_supports("avx2"))) {
        int64_t head = head_of(into, 1, size_bytes), n = (size_bytes - head) / 128 * 128;
        memcpy(into, from, (size_t)head);
        (avx512 ? copy_avx512 : copy_avx2)((uint8_t *)into + head, (const uint8_t *)from + head, n);
        at = head + n;
    }
#else
    (void)stream;
#endif
    memcpy((uint8_t *)into + at, (const uint8_t *)from + at, (size_t)(size_bytes - at));
}
