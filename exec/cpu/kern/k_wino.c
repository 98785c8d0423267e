/* Winograd's convolution F(4x4,3x3) on images in blocks of 8 channels (nChw8c), and its gradients.
 *
 *   x tiles of 6x6 --B'xB--> V[36][tile][ci]  \
 *                                              36 products --> M[36][tile][co] --A'MA--> y 4x4
 *   weights 3x3    --GwG'--> U[36][ci][co]    /
 *   dw = G' (sum over tiles of V (x) A dy A') G, with D[36][tile][co] = A dy A'
 *
 * 36 multiplications make 16 results that take 144 directly. The gradient of the data is the same
 * with the weights turned by half a circle and their two sides exchanged. Tiles that stick out of
 * the image read zeros and are cut. Rows and positions are laid apart by odd numbers of cache lines
 * (the strides in ru_kern_wino), as 36 streams a power of two apart would share one set of L1.
 *
 * Source: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", 2015. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/tile.h"

enum { WINO_IN = 6, WINO_OUT = 4, WINO_POS = 36, WINO_KC = 256 };

/* -- the four small transforms: one line of a tile -----------------------------------------------
 */

RU_KERN_INLINE void line_b(const tile_v d[6], int64_t step, tile_v o[6], int64_t ostep)
{
    tile_v d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
           d5 = d[5 * step];
    tile_v even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1, even2 = d4 - d2, odd2 = 2.0f * (d3 - d1);
    o[0] = 4.0f * d0 - 5.0f * d2 + d4;
    o[ostep] = even + odd;
    o[2 * ostep] = even - odd;
    o[3 * ostep] = even2 + odd2;
    o[4 * ostep] = even2 - odd2;
    o[5 * ostep] = 4.0f * d1 - 5.0f * d3 + d5;
}

RU_KERN_INLINE void line_at(const tile_v *m, int64_t step, tile_v *o, int64_t ostep)
{
    tile_v s1 = m[step] + m[2 * step], e1 = m[step] - m[2 * step];
    tile_v s2 = m[3 * step] + m[4 * step], e2 = m[3 * step] - m[4 * step];
    o[0] = m[0] + s1 + s2;
    o[ostep] = e1 + 2.0f * e2;
    o[2 * ostep] = s1 + 4.0f * s2;
    o[3 * ostep] = e1 + 8.0f * e2 + m[5 * step];
}

RU_KERN_INLINE void line_a(const tile_v *y, int64_t step, tile_v *o, int64_t ostep)
{
    tile_v y0 = y[0], y1 = y[step], y2 = y[2 * step], y3 = y[3 * step];
    tile_v even = y0 + y2, odd = y1 + y3, even2 = y0 + 4.0f * y2, odd2 = 2.0f * y1 + 8.0f * y3;
    o[0] = y0;
    o[ostep] = even + odd;
    o[2 * ostep] = even - odd;
    o[3 * ostep] = even2 + odd2;
    o[4 * ostep] = even2 - odd2;
    o[5 * ostep] = y3;
}

RU_KERN_INLINE void line_g(const tile_v *g, int64_t step, tile_v *o, int64_t ostep)
{
    tile_v g0 = g[0], g1 = g[step], g2 = g[2 * step];
    tile_v even = (g0 + g2) * (-1.0f / 6), odd = g1 * (1.0f / 6);
    tile_v even2 = g0 * (1.0f / 24) + g2 * (1.0f / 6), odd2 = g1 * (1.0f / 12);
    o[0] = g0 * 0.25f;
    o[ostep] = even - odd;
    o[2 * ostep] = even + odd;
    o[3 * ostep] = even2 + odd2;
    o[4 * ostep] = even2 - odd2;
    o[5 * ostep] = g2;
}

RU_KERN_INLINE void line_gt(const tile_v *m, int64_t step, tile_v *o, int64_t ostep)
{
    tile_v s1 = (m[step] + m[2 * step]) * (1.0f / 6), e1 = m[2 * step] - m[step];
    tile_v s2 = m[3 * step] + m[4 * step], e2 = m[3 * step] - m[4 * step];
    o[0] = m[0] * 0.25f - s1 + s2 * (1.0f / 24);
    o[ostep] = e1 * (1.0f / 6) + e2 * (1.0f / 12);
    o[2 * ostep] = s2 * (1.0f / 6) - s1 + m[5 * step];
}

/* -- tiles of images -----------------------------------------------------------------------------
 */

/* size x size vectors of 8 channels from (y, x) on; zeros outside of h x w. */
RU_KERN_INLINE void read_tile(const float *image, int64_t h, int64_t w, int64_t y, int64_t x,
                              const int64_t size, tile_v *d)
{
    bool inside = y >= 0 && x >= 0 && y + size <= h && x + size <= w;
    for (int64_t i = 0; i < size; i++) {
        for (int64_t j = 0; j < size; j++) {
            bool there = inside || (y + i >= 0 && y + i < h && x + j >= 0 && x + j < w);
            d[i * size + j] =
                there ? tile_load(image + ((y + i) * w + x + j) * TILE_W) : (tile_v){0};
        }
    }
}

void RUI_K(rui_kern_wino_in)(const ru_kern_wino *g, const float *x, int64_t t0, int64_t t1,
                             int64_t first, float *v)
{
    int64_t per_image = g->tiles_y * g->tiles_x;
    for (int64_t t = t0; t < t1; t++) {
        int64_t n = t / per_image, ty = t % per_image / g->tiles_x, tx = t % g->tiles_x;
        for (int64_t c = 0; c < g->ci; c += TILE_W) {
            tile_v d[WINO_POS], e[WINO_POS];
            read_tile(x + (n * g->ci + c) * g->h * g->w, g->h, g->w, ty * WINO_OUT - g->pad_t,
                      tx * WINO_OUT - g->pad_l, WINO_IN, d);
#pragma GCC unroll 6
            for (int j = 0; j < WINO_IN; j++) {
                line_b(d + j, WINO_IN, e + j, WINO_IN);
            }
            float *to = v + (t - first) * g->v_row + c;
#pragma GCC unroll 6
            for (int i = 0; i < WINO_IN; i++) {
                tile_v o[WINO_IN];
                line_b(e + i * WINO_IN, 1, o, 1);
                for (int j = 0; j < WINO_IN; j++) {
                    tile_store(to + (i * WINO_IN + j) * g->v_pos, o[j]);
                }
            }
        }
    }
}

/* Panels of 16 channels: d[panel][36][tile][16]. */
void RUI_K(rui_kern_wino_dy)(const ru_kern_wino *g, const float *dy, int64_t t0, int64_t t1,
                             int64_t first, float *d)
{
    int64_t per_image = g->tiles_y * g->tiles_x;
    for (int64_t t = t0; t < t1; t++) {
        int64_t n = t / per_image, ty = t % per_image / g->tiles_x, tx = t % g->tiles_x;
        for (int64_t c = 0; c < g->co; c += TILE_W) {
            tile_v y[WINO_OUT * WINO_OUT], e[WINO_IN * WINO_OUT];
            read_tile(dy + (n * g->co + c) * g->oh * g->ow, g->oh, g->ow, ty * WINO_OUT,
                      tx * WINO_OUT, WINO_OUT, y);
#pragma GCC unroll 4
            for (int j = 0; j < WINO_OUT; j++) {
                line_a(y + j, WINO_OUT, e + j, WINO_OUT);
            }
            float *to = d + c / TILE_NR * WINO_POS * g->d_pos + (t - first) * TILE_NR + c % TILE_NR;
#pragma GCC unroll 6
            for (int i = 0; i < WINO_IN; i++) {
                tile_v o[WINO_IN];
                line_a(e + i * WINO_OUT, 1, o, 1);
                for (int j = 0; j < WINO_IN; j++) {
                    tile_store(to + (i * WINO_IN + j) * g->d_pos, o[j]);
                }
            }
        }
    }
}

/* -- weights, in blocks OIhw8i8o -----------------------------------------------------------------
 */

/* One block [9][8 in][8 out] of the weights as this direction reads them. */
static const float *weight_block(const ru_kern_wino *g, const float *w, int64_t in, int64_t out,
                                 float *turned)
{
    enum { AREA = TILE_W * TILE_W };
    if (!g->turned) {
        return w + (out * (g->ci / TILE_W) + in) * 9 * AREA;
    }
    const float *from = w + (in * (g->co / TILE_W) + out) * 9 * AREA;
    for (int k = 0; k < 9; k++) {
        tile_v r[TILE_W];
        for (int i = 0; i < TILE_W; i++) {
            r[i] = tile_load(from + k * AREA + i * TILE_W);
        }
        tile_transpose(r);
        for (int i = 0; i < TILE_W; i++) {
            tile_store(turned + (8 - k) * AREA + i * TILE_W, r[i]);
        }
    }
    return turned;
}

void RUI_K(rui_kern_wino_weights)(const ru_kern_wino *g, const float *w, int64_t p0, int64_t p1,
                                  float *u)
{
    float turned[9 * TILE_W * TILE_W];
    for (int64_t p = p0; p < p1; p++, u += WINO_POS * g->u_pos) {
        for (int64_t in = 0; in < g->ci / TILE_W; in++) {
            for (int64_t half = 0; half < 2; half++) {
                const float *block = weight_block(g, w, in, 2 * p + half, turned);
                for (int64_t i = 0; i < TILE_W; i++) {
                    tile_v k[9], e[WINO_IN * 3];
                    for (int j = 0; j < 9; j++) {
                        k[j] = tile_load(block + (j * TILE_W + i) * TILE_W);
                    }
#pragma GCC unroll 3
                    for (int j = 0; j < 3; j++) {
                        line_g(k + j, 3, e + j, 3);
                    }
                    float *to = u + (in * TILE_W + i) * TILE_NR + half * TILE_W;
#pragma GCC unroll 6
                    for (int a = 0; a < WINO_IN; a++) {
                        tile_v o[WINO_IN];
                        line_g(e + a * 3, 1, o, 1);
                        for (int j = 0; j < WINO_IN; j++) {
                            tile_store(to + (a * WINO_IN + j) * g->u_pos, o[j]);
                        }
                    }
                }
            }
        }
    }
}

/* -- the 36 products -----------------------------------------------------------------------------
 */

RU_KERN_INLINE void rows_of(const int64_t mr, int64_t k, const float *a, int64_t a_row,
                            int64_t a_col, const float *b, float *c, int64_t c_row, bool add)
{
    tile_v acc[TILE_MR][2];
#pragma GCC unroll 8
    for (int64_t i = 0; i < mr; i++) {
        acc[i][0] = add ? tile_load(c + i * c_row) : (tile_v){0};
        acc[i][1] = add ? tile_load(c + i * c_row + TILE_W) : (tile_v){0};
    }
    tile_sum(mr, k, a, a_row, a_col, b, acc);
#pragma GCC unroll 8
    for (int64_t i = 0; i < mr; i++) {
        tile_store(c + i * c_row, acc[i][0]);
        tile_store(c + i * c_row + TILE_W, acc[i][1]);
    }
}

#define WINO_ROWS(mr)                                       \
    case mr:                                                \
        if (turned) {                                       \
            rows_of(mr, k, a, 1, a_step, b, c, c_row, add); \
        } else {                                            \
            rows_of(mr, k, a, a_step, 1, b, c, c_row, add); \
        }                                                   \
        break;

static void some_rows(int64_t mr, bool turned, int64_t k, const float *a, int64_t a_step,
                      const float *b, float *c, int64_t c_row, bool add)
{
    switch (mr) {
        WINO_ROWS(1)
        WINO_ROWS(2)
        WINO_ROWS(3)
        WINO_ROWS(4)
        WINO_ROWS(5)
        WINO_ROWS(6)
    default:
        break;
    }
}

/* c[m][16] (+)= A[m][k] b[k][16]; a_step from row to row, `turned`: from k to k. */
static void multiply(int64_t m, int64_t k, bool turned, const float *a, int64_t a_step,
                     const float *b, float *c, int64_t c_row, bool add)
{
    int64_t groups = (m + TILE_MR - 1) / TILE_MR;
    for (int64_t k0 = 0; k0 < k; k0 += WINO_KC) {
        int64_t kc = kv_min_i64(WINO_KC, k - k0);
        for (int64_t q = 0; q < groups; q++) {
            int64_t i0 = m * q / groups, i1 = m * (q + 1) / groups;
            const float *at = turned ? a + k0 * a_step + i0 : a + i0 * a_step + k0;
            some_rows(i1 - i0, turned, kc, at, a_step, b + k0 * TILE_NR, c + i0 * c_row, c_row,
                      add || k0 > 0);
        }
    }
}

/* -- results -------------------------------------------------------------------------------------
 */

/* One tile and 8 channels of y from its 36 sums. */
RU_KERN_INLINE void write_tile(const ru_kern_wino *g, const float *m, int64_t m_pos, tile_v bias,
                               int64_t ty, int64_t tx, float *image)
{
    tile_v d[WINO_POS], e[WINO_OUT * WINO_IN], o[WINO_OUT * WINO_OUT];
#pragma GCC unroll 36
    for (int q = 0; q < WINO_POS; q++) {
        d[q] = tile_load(m + q * m_pos);
    }
#pragma GCC unroll 6
    for (int j = 0; j < WINO_IN; j++) {
        line_at(d + j, WINO_IN, e + j, WINO_IN);
    }
#pragma GCC unroll 4
    for (int i = 0; i < WINO_OUT; i++) {
        line_at(e + i * WINO_IN, 1, o + i * WINO_OUT, 1);
    }
    int64_t rows = kv_min_i64(WINO_OUT, g->oh - ty * WINO_OUT),
            cols = kv_min_i64(WINO_OUT, g->ow - tx * WINO_OUT);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            tile_v y = o[i * WINO_OUT + j] + bias;
            if (g->relu) {
                for (int lane = 0; lane < TILE_W; lane++) {
                    y[lane] = y[lane] < 0.0f ? 0.0f : y[lane];
                }
            }
            tile_store(image + ((ty * WINO_OUT + i) * g->ow + tx * WINO_OUT + j) * TILE_W, y);
        }
    }
}

void RUI_K(rui_kern_wino_out)(const ru_kern_wino *g, const float *v, const float *u, int64_t p0,
                              int64_t p1, int64_t t0, int64_t t1, const float *bias, float *y,
                              float *m)
{
    int64_t tb = t1 - t0, panel = tb * TILE_NR, m_pos = (p1 - p0) * panel + TILE_NR;
    int64_t per_image = g->tiles_y * g->tiles_x;
    for (int64_t q = 0; q < WINO_POS; q++) {
        for (int64_t p = 0; p < p1 - p0; p++) {
            multiply(tb, g->ci, false, v + q * g->v_pos, g->v_row,
                     u + (p * WINO_POS + q) * g->u_pos, m + q * m_pos + p * panel, TILE_NR, false);
        }
    }
    for (int64_t t = t0; t < t1; t++) {
        int64_t n = t / per_image, ty = t % per_image / g->tiles_x, tx = t % g->tiles_x;
        for (int64_t c = p0 * TILE_NR; c < p1 * TILE_NR; c += TILE_W) {
            tile_v b = bias != NULL ? tile_load(bias + c) : (tile_v){0};
            const float *from = m + (c / TILE_NR - p0) * panel + (t - t0) * TILE_NR + c % TILE_NR;
            write_tile(g, from, m_pos, b, ty, tx, y + (n * g->co + c) * g->oh * g->ow);
        }
    }
}

/* sums[36][c1 - c0][16 (p1 - p0)] (+)= over `tb` tiles of v x d. */
void RUI_K(rui_kern_wino_dw)(const ru_kern_wino *g, const float *v, const float *d, int64_t tb,
                             int64_t c0, int64_t c1, int64_t p0, int64_t p1, bool add, float *sums)
{
    int64_t row = (p1 - p0) * TILE_NR, pos = (c1 - c0) * row + TILE_NR;
    for (int64_t q = 0; q < WINO_POS; q++) {
        for (int64_t p = p0; p < p1; p++) {
            multiply(c1 - c0, tb, true, v + q * g->v_pos + c0, g->v_row,
                     d + (p * WINO_POS + q) * g->d_pos, sums + q * pos + (p - p0) * TILE_NR, row,
                     add);
        }
    }
}

void RUI_K(rui_kern_wino_dw_out)(const ru_kern_wino *g, const float *sums, int64_t c0, int64_t c1,
                                 int64_t p0, int64_t p1, float *dw)
{
    int64_t row = (p1 - p0) * TILE_NR, pos = (c1 - c0) * row + TILE_NR;
    for (int64_t o = p0 * TILE_NR; o < p1 * TILE_NR; o += TILE_W) {
        for (int64_t i = c0; i < c1; i++) {
            const float *from = sums + (i - c0) * row + o - p0 * TILE_NR;
            tile_v m[WINO_POS], e[3 * WINO_IN];
#pragma GCC unroll 36
            for (int q = 0; q < WINO_POS; q++) {
                m[q] = tile_load(from + q * pos);
            }
#pragma GCC unroll 6
            for (int j = 0; j < WINO_IN; j++) {
                line_gt(m + j, WINO_IN, e + j, WINO_IN);
            }
            float *to =
                dw +
                ((o / TILE_W * (g->ci / TILE_W) + i / TILE_W) * 9 * TILE_W + i % TILE_W) * TILE_W;
#pragma GCC unroll 3
            for (int a = 0; a < 3; a++) {
                tile_v r[3];
                line_gt(e + a * WINO_IN, 1, r, 1);
                for (int j = 0; j < 3; j++) {
                    tile_store(to + (a * 3 + j) * TILE_W * TILE_W, r[j]);
                }
            }
        }
    }
}

/* Position (1, 1) of A dy A' is the sum of the tile. */
void RUI_K(rui_kern_wino_db)(const ru_kern_wino *g, const float *d, int64_t tb, int64_t p0,
                             int64_t p1, bool add, float *db)
{
    for (int64_t p = p0; p < p1; p++) {
        const float *from = d + (p * WINO_POS + WINO_IN + 1) * g->d_pos;
        for (int64_t c = 0; c < TILE_NR; c += TILE_W) {
            float *to = db + p * TILE_NR + c;
            tile_v sum = add ? tile_load(to) : (tile_v){0};
            for (int64_t t = 0; t < tb; t++) {
                sum += tile_load(from + t * TILE_NR + c);
            }
            tile_store(to, sum);
        }
    }
}
