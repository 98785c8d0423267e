/* Sixteen floats at a time, with the same order of additions on every instruction set.
 *
 * Thread: any. */
#ifndef RU_APPS_LANES_H
#define RU_APPS_LANES_H

#include <stdint.h>

#include "apps/kern_impl.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { LANES = 16 };

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)

typedef __m512 lanes;

RUI_APP_INLINE lanes lanes_zero(void)
{
    return _mm512_setzero_ps();
}

RUI_APP_INLINE lanes lanes_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

RUI_APP_INLINE void lanes_store(float *p, lanes a)
{
    _mm512_storeu_ps(p, a);
}

RUI_APP_INLINE lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

RUI_APP_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

RUI_APP_INLINE lanes lanes_gather(const float *from, const uint16_t *at)
{
    __m512i places = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));
    return _mm512_i32gather_ps(places, from, sizeof(float));
}

/* Halves onto halves. */
RUI_APP_INLINE float lanes_sum(lanes a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a),
                             _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/* Each lane and all before it: steps of 1, 2, 4, 8 lanes. */
RUI_APP_INLINE lanes lanes_scan(lanes a)
{
    __m512i zero = _mm512_setzero_si512();
    a = _mm512_add_ps(
        a, _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(a), zero, LANES - 1)));
    a = _mm512_add_ps(
        a, _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(a), zero, LANES - 2)));
    a = _mm512_add_ps(
        a, _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(a), zero, LANES - 4)));
    return _mm512_add_ps(
        a, _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(a), zero, LANES - 8)));
}

RUI_APP_INLINE float lanes_last(lanes a)
{
    __m128 top = _mm512_extractf32x4_ps(a, 3);
    return _mm_cvtss_f32(_mm_shuffle_ps(top, top, 3));
}

RUI_APP_INLINE __mmask16 lanes_where(const uint16_t *at, uint32_t k)
{
    return _mm256_cmpeq_epi16_mask(_mm256_loadu_si256((const __m256i *)(const void *)at),
                                   _mm256_set1_epi16((short)k));
}

/* v where `at` has k. */
RUI_APP_INLINE lanes lanes_put(lanes a, const uint16_t *at, uint32_t k, float v)
{
    return _mm512_mask_mov_ps(a, lanes_where(at, k), _mm512_set1_ps(v));
}

/* 1 less where `at` has k, but not below 0. */
RUI_APP_INLINE lanes lanes_less(lanes a, const uint16_t *at, uint32_t k)
{
    a = _mm512_mask_sub_ps(a, lanes_where(at, k), a, _mm512_set1_ps(1.0F));
    return _mm512_max_ps(a, _mm512_setzero_ps());
}

/* Lanes that are at most u. */
RUI_APP_INLINE uint32_t lanes_up_to(lanes a, float u)
{
    return (uint32_t)__builtin_popcount(_mm512_cmp_ps_mask(a, _mm512_set1_ps(u), _CMP_LE_OQ));
}

/* The first of 16 numbers that is k; LANES: none. */
RUI_APP_INLINE uint32_t lanes_first(const uint16_t *at, uint32_t k)
{
    return (uint32_t)__builtin_ctz((uint32_t)lanes_where(at, k) | 1U << LANES);
}

#else

typedef struct lanes {
    float v[LANES];
} lanes;

RUI_APP_INLINE lanes lanes_zero(void)
{
    return (lanes){0};
}

RUI_APP_INLINE lanes lanes_load(const float *p)
{
    lanes a;
    for (uint32_t i = 0; i < LANES; i++) {
        a.v[i] = p[i];
    }
    return a;
}

RUI_APP_INLINE void lanes_store(float *p, lanes a)
{
    for (uint32_t i = 0; i < LANES; i++) {
        p[i] = a.v[i];
    }
}

RUI_APP_INLINE lanes lanes_add(lanes a, lanes b)
{
    for (uint32_t i = 0; i < LANES; i++) {
        a.v[i] += b.v[i];
    }
    return a;
}

RUI_APP_INLINE lanes lanes_mul(lanes a, lanes b)
{
    for (uint32_t i = 0; i < LANES; i++) {
        a.v[i] *= b.v[i];
    }
    return a;
}

RUI_APP_INLINE lanes lanes_gather(const float *from, const uint16_t *at)
{
    lanes a;
#if defined(__AVX2__)
    for (uint32_t i = 0; i < LANES; i += 8) {
        __m256i places =
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(at + i)));
        _mm256_storeu_ps(a.v + i, _mm256_i32gather_ps(from, places, sizeof(float)));
    }
#else
    for (uint32_t i = 0; i < LANES; i++) {
        a.v[i] = from[at[i]];
    }
#endif
    return a;
}

RUI_APP_INLINE float lanes_sum(lanes a)
{
    float b[8], c[4];
    for (uint32_t i = 0; i < 8; i++) {
        b[i] = a.v[i] + a.v[i + 8];
    }
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = b[i] + b[i + 4];
    }
    return (c[0] + c[2]) + (c[1] + c[3]);
}

RUI_APP_INLINE lanes lanes_scan(lanes a)
{
    for (uint32_t step = 1; step < LANES; step *= 2) {
        lanes b = a;
        for (uint32_t i = step; i < LANES; i++) {
            a.v[i] = b.v[i] + b.v[i - step];
        }
    }
    return a;
}

RUI_APP_INLINE float lanes_last(lanes a)
{
    return a.v[LANES - 1];
}

RUI_APP_INLINE lanes lanes_put(lanes a, const uint16_t *at, uint32_t k, float v)
{
    for (uint32_t i = 0; i < LANES; i++) {
        a.v[i] = at[i] == k ? v : a.v[i];
    }
    return a;
}

RUI_APP_INLINE lanes lanes_less(lanes a, const uint16_t *at, uint32_t k)
{
    for (uint32_t i = 0; i < LANES; i++) {
        float less = at[i] == k ? a.v[i] - 1.0F : a.v[i];
        a.v[i] = less > 0.0F ? less : 0.0F;
    }
    return a;
}

RUI_APP_INLINE uint32_t lanes_up_to(lanes a, float u)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        n += a.v[i] <= u;
    }
    return n;
}

RUI_APP_INLINE uint32_t lanes_first(const uint16_t *at, uint32_t k)
{
    uint32_t mask = 1U << LANES;
    for (uint32_t i = 0; i < LANES; i++) {
        mask |= (uint32_t)(at[i] == k) << i;
    }
    uint32_t first = 0;
    while ((mask >> first & 1) == 0) {
        first++;
    }
    return first;
}

#endif

#endif
