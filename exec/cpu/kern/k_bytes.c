/* Sums of few products of bytes: up to six rows by four vectors of columns stay in registers.
 *
 * A packed piece is [terms / 4][RU_KERN_BYTES_COLS][4]: one instruction adds the products of four
 * terms to 16 sums. What terms lack is 0. */
#include "exec/cpu/kern/side.h"

#include <immintrin.h>
#include <string.h>

#include "exec/cpu/kern/vec.h"

enum { ROWS = RU_KERN_BYTES_ROWS, LANES = 16, VECTORS = RU_KERN_BYTES_COLS / LANES };

static int64_t piece(int64_t terms)
{
    return (terms + 3) / 4 * (4 * RU_KERN_BYTES_COLS);
}

/* Four lines of bytes become 64 quadruples in order. */
RU_KERN_INLINE void zip(const __m512i r[4], __m512i to[VECTORS])
{
    const __m512i low = _mm512_unpacklo_epi8(r[0], r[1]), high = _mm512_unpackhi_epi8(r[0], r[1]);
    const __m512i low2 = _mm512_unpacklo_epi8(r[2], r[3]), high2 = _mm512_unpackhi_epi8(r[2], r[3]);
    const __m512i a = _mm512_unpacklo_epi16(low, low2), b = _mm512_unpackhi_epi16(low, low2);
    const __m512i c = _mm512_unpacklo_epi16(high, high2), d = _mm512_unpackhi_epi16(high, high2);
    const __m512i e = _mm512_shuffle_i32x4(a, b, 0x44), f = _mm512_shuffle_i32x4(c, d, 0x44);
    const __m512i g = _mm512_shuffle_i32x4(a, b, 0xee), h = _mm512_shuffle_i32x4(c, d, 0xee);
    to[0] = _mm512_shuffle_i32x4(e, f, 0x88);
    to[1] = _mm512_shuffle_i32x4(e, f, 0xdd);
    to[2] = _mm512_shuffle_i32x4(g, h, 0x88);
    to[3] = _mm512_shuffle_i32x4(g, h, 0xdd);
}

static void pack(const uint8_t *x, int64_t step, int64_t terms, int64_t n, uint8_t flip, bool sign,
                 uint8_t *to, int32_t *sums)
{
    RU_CHECK(n > 0 && n <= RU_KERN_BYTES_COLS);
    const __mmask64 some = n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
    const __m512i flips = _mm512_set1_epi8((char)flip), ones = _mm512_set1_epi8(1);
    __m512i sum[VECTORS] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                            _mm512_setzero_si512()};
    for (int64_t k = 0; k < terms; k += 4, to += 4 * RU_KERN_BYTES_COLS) {
        __m512i r[4], v[VECTORS];
        for (int64_t i = 0; i < 4; i++) {
            r[i] = k + i < terms
                       ? _mm512_xor_si512(_mm512_maskz_loadu_epi8(some, x + (k + i) * step), flips)
                       : _mm512_setzero_si512();
        }
        zip(r, v);
        for (int j = 0; j < VECTORS; j++) {
            _mm512_storeu_si512(to + j * 64, v[j]);
            if (sums != NULL) {
                sum[j] = sign ? _mm512_dpbusd_epi32(sum[j], ones, v[j])
                              : _mm512_dpbusd_epi32(sum[j], v[j], ones);
            }
        }
    }
    for (int64_t j = 0; sums != NULL && j * LANES < n; j++) {
        _mm512_mask_storeu_epi32(sums + j * LANES, (__mmask16)(some >> j * LANES), sum[j]);
    }
}

static void line(const uint8_t *x, int64_t step, int64_t n, uint8_t *to)
{
    const __mmask64 all = ~UINT64_C(0);
    uint8_t at[64];
    if (step == 1) {
        const __mmask64 some = n >= 64 ? all : (UINT64_C(1) << n) - 1;
        _mm512_mask_storeu_epi8(to, some, _mm512_maskz_loadu_epi8(some, x));
        return;
    }
    if (step > 4 || n < 4) {
        for (int64_t i = 0; i < n; i++) {
            to[i] = x[i * step];
        }
        return;
    }
    for (int i = 0; i < 64; i++) {
        at[i] = (uint8_t)(i * step);
    }
    const __m512i places = _mm512_loadu_si512(at);
    const int64_t most = 64 / step;
    for (int64_t i = 0; i < n; i += most) {
        int64_t m = kv_min_i64(most, n - i), bytes = (m - 1) * step + 1;
        __m512i v =
            _mm512_maskz_loadu_epi8(bytes >= 64 ? all : (UINT64_C(1) << bytes) - 1, x + i * step);
        _mm512_mask_storeu_epi8(to + i, (UINT64_C(1) << m) - 1, _mm512_permutexvar_epi8(places, v));
    }
}

RU_KERN_INLINE __m512i products(bool a_sign, __m512i sum, uint32_t a, __m512i c)
{
    const __m512i four = _mm512_set1_epi32((int)a);
    return a_sign ? _mm512_dpbusd_epi32(sum, c, four) : _mm512_dpbusd_epi32(sum, four, c);
}

/* The last terms of a row, fewer than four, beyond which nothing is read. */
RU_KERN_INLINE uint32_t last_terms(const uint8_t *a, int64_t terms)
{
    uint32_t four = 0;
    if (terms >= 4) {
        memcpy(&four, a + terms - 4, 4);
        return four >> (32 - 8 * (terms % 4));
    }
    for (int64_t k = 0; k < terms; k++) {
        four |= (uint32_t)a[k] << 8 * k;
    }
    return four;
}

/* All but `s` and `i0` are constants where this is inlined. */
RU_KERN_INLINE void tile(const bool a_sign, const bool own, const int64_t m, const int64_t v,
                         const ru_kern_bytes_sums *s, int64_t i0)
{
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum[ROWS][VECTORS], row[ROWS];
    const uint8_t *a = s->a + i0 * s->a_step, *c = s->c;
#pragma GCC unroll 8
    for (int64_t i = 0; i < m; i++) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < v; j++) {
            sum[i][j] = _mm512_setzero_si512();
        }
        row[i] = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < s->terms; k += 4, c += 4 * RU_KERN_BYTES_COLS) {
        __m512i four[VECTORS];
#pragma GCC unroll 4
        for (int64_t j = 0; j < v; j++) {
            four[j] = _mm512_loadu_si512(c + j * 64);
        }
        const bool last = k + 4 > s->terms;
#pragma GCC unroll 8
        for (int64_t i = 0; i < m; i++) {
            uint32_t some;
            if (RU_LIKELY(!last)) {
                memcpy(&some, a + i * s->a_step + k, 4);
            } else {
                some = last_terms(a + i * s->a_step, s->terms);
            }
#pragma GCC unroll 4
            for (int64_t j = 0; j < v; j++) {
                sum[i][j] = products(a_sign, sum[i][j], some, four[j]);
            }
            if (own) {
                row[i] = products(a_sign, row[i], some, ones);
            }
        }
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < m; i++) {
        if (own) {
            row[i] = _mm512_sub_epi32(row[i], _mm512_set1_epi32((int)s->all));
            row[i] = _mm512_mullo_epi32(row[i], _mm512_set1_epi32((int)s->each));
        } else if (s->rows != NULL) {
            row[i] = _mm512_set1_epi32((int)s->rows[i0 + i]);
        }
    }
#pragma GCC unroll 4
    for (int64_t j = 0; j < v; j++) {
        const int64_t left = s->n - j * LANES;
        const __mmask16 some = (__mmask16)(left >= LANES ? 0xffff : (1U << left) - 1);
        const __m512i cols = s->cols != NULL ? _mm512_maskz_loadu_epi32(some, s->cols + j * LANES)
                                             : _mm512_setzero_si512();
        const __m512i by = s->by != NULL ? _mm512_maskz_loadu_epi32(some, s->by + j * LANES)
                                         : _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int64_t i = 0; i < m; i++) {
            uint32_t *y = s->y + (i0 + i) * s->y_step + j * LANES;
            const __m512i rows = s->by != NULL ? _mm512_mullo_epi32(row[i], by) : row[i];
            const __m512i all = _mm512_sub_epi32(sum[i][j], _mm512_add_epi32(cols, rows));
            if (left >= LANES) {
                _mm512_storeu_si512(y, all);
            } else {
                _mm512_mask_storeu_epi32(y, some, all);
            }
        }
    }
}

#define ROWS_CASE(v, m)                        \
    case m:                                    \
        if ((v) == 1 && s->own && s->a_sign) { \
            tile(true, (v) == 1, m, v, s, i);  \
        } else if ((v) == 1 && s->own) {       \
            tile(false, (v) == 1, m, v, s, i); \
        } else if (s->a_sign) {                \
            tile(true, false, m, v, s, i);     \
        } else {                               \
            tile(false, false, m, v, s, i);    \
        }                                      \
        break;

#define OF_VECTORS(v)                                                 \
    static void sums_##v(const ru_kern_bytes_sums *s, int64_t n_rows) \
    {                                                                 \
        for (int64_t i = 0; i < n_rows; i += ROWS) {                  \
            switch (kv_min_i64(ROWS, n_rows - i)) {                   \
                ROWS_CASE(v, 1)                                       \
                ROWS_CASE(v, 2)                                       \
                ROWS_CASE(v, 3)                                       \
                ROWS_CASE(v, 4)                                       \
                ROWS_CASE(v, 5)                                       \
                ROWS_CASE(v, 6)                                       \
            default:                                                  \
                break;                                                \
            }                                                         \
        }                                                             \
    }

OF_VECTORS(1)
OF_VECTORS(2)
OF_VECTORS(3)
OF_VECTORS(4)

static void sums(const ru_kern_bytes_sums *s, int64_t n_rows)
{
    RU_CHECK(s->n > 0 && s->n <= RU_KERN_BYTES_COLS);
    RU_CHECK(!s->own || s->n <= RU_KERN_BYTES_OWN);
    switch ((s->n + LANES - 1) / LANES) {
    case 1:
        sums_1(s, n_rows);
        break;
    case 2:
        sums_2(s, n_rows);
        break;
    case 3:
        sums_3(s, n_rows);
        break;
    default:
        sums_4(s, n_rows);
        break;
    }
}

extern const ru_kern_bytes rui_kern_bytes_vnni;
const ru_kern_bytes rui_kern_bytes_vnni = {
    .piece = piece, .pack = pack, .line = line, .sums = sums};
