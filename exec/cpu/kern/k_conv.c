/* Gradient of the weights of any small convolution on images in blocks of 8 channels, or of 1.
 *
 * dw[co][ci][kh][kw] = sum over images and positions of x[ci][y * sh + kh][x * sw + kw]
 * dy[co][y][x]
 *
 * A product whose sums run along rows of the image: the taps of one row of the kernel, times 2
 * channels where it is 3 wide, are up to 6 rows of a tile, 16 channels of dy its columns; the tile
 * stays in registers over all rows of a chunk of images, which is small enough for L2. x with its
 * frame of zeros is laid beside, when it has one. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/tile.h"

/* Bytes of x and dy of a chunk that one tile runs over: half of a small L2. */
enum { CONV_CHUNK_BYTES = 256 << 10 };

typedef struct conv_rows {
    const float *x, *dy; /* first image, first row */
    int64_t images, rows, n;
    int64_t x_image, x_row, x_step;    /* in floats */
    int64_t dy_image, dy_row, dy_half; /* dy_half: from 8 channels to the next 8 */
} conv_rows;

/* Row i of the tile reads x at (i % taps) * tap + (i / taps). */
RU_KERN_INLINE void sum_rows(const conv_rows *r, const int64_t mr, const int64_t taps,
                             const int64_t tap, tile_v acc[TILE_MR][2])
{
    for (int64_t image = 0; image < r->images; image++) {
        for (int64_t y = 0; y < r->rows; y++) {
            const float *a = r->x + image * r->x_image + y * r->x_row;
            const float *b = r->dy + image * r->dy_image + y * r->dy_row, *c = b + r->dy_half;
            for (int64_t p = 0; p < r->n; p++, a += r->x_step, b += TILE_W, c += TILE_W) {
                tile_v b0 = tile_load(b), b1 = tile_load(c);
#pragma GCC unroll 8
                for (int64_t i = 0; i < mr; i++) {
                    float v = a[i % taps * tap + i / taps];
                    acc[i][0] += v * b0;
                    acc[i][1] += v * b1;
                }
            }
        }
    }
}

/* The tile's place in dw: `half` floats from 8 outputs to the next, row i at (i % taps) * tap +
 * (i / taps) * lane. */
typedef struct conv_place {
    float *dw;
    int64_t half, tap, lane;
    bool add;
} conv_place;

RU_KERN_INLINE void one_tile(const conv_rows *r, const int64_t mr, const int64_t taps,
                             const int64_t tap, const conv_place *to)
{
    tile_v acc[TILE_MR][2];
#pragma GCC unroll 8
    for (int64_t i = 0; i < mr; i++) {
        const float *at = to->dw + i % taps * to->tap + i / taps * to->lane;
        acc[i][0] = to->add ? tile_load(at) : (tile_v){0};
        acc[i][1] = to->add ? tile_load(at + to->half) : (tile_v){0};
    }
    sum_rows(r, mr, taps, tap, acc);
#pragma GCC unroll 8
    for (int64_t i = 0; i < mr; i++) {
        float *at = to->dw + i % taps * to->tap + i / taps * to->lane;
        tile_store(at, acc[i][0]);
        tile_store(at + to->half, acc[i][1]);
    }
}

/* Widths of a kernel's row: 3 takes two channels at a time where channels stand side by side. */
static void some_tile(const conv_rows *r, int64_t kw, int64_t lanes, const conv_place *to)
{
    switch (kw * 16 + lanes) {
    case 3 * 16 + 8:
        one_tile(r, 6, 3, 8, to);
        break;
    case 5 * 16 + 8:
        one_tile(r, 5, 5, 8, to);
        break;
    case 3 * 16 + 1:
        one_tile(r, 3, 3, 1, to);
        break;
    default:
        one_tile(r, 5, 5, 1, to);
        break;
    }
}

bool RUI_K(rui_kern_conv_dw_takes)(int64_t kw, int64_t lanes)
{
    return (kw == 3 || kw == 5) && (lanes == 8 || lanes == 1);
}

static bool framed(const ru_kern_conv *g)
{
    return g->pad_t != 0 || g->pad_l != 0 || (g->oh - 1) * g->stride_y + g->kh > g->h ||
           (g->ow - 1) * g->stride_x + g->kw > g->w;
}

/* Rows and columns that the windows cover. */
static int64_t covered(int64_t out, int64_t stride, int64_t kernel)
{
    return (out - 1) * stride + kernel;
}

static int64_t frame_floats(const ru_kern_conv *g)
{
    return covered(g->oh, g->stride_y, g->kh) * covered(g->ow, g->stride_x, g->kw) * g->lanes;
}

static int64_t chunk_images(const ru_kern_conv *g)
{
    int64_t image = (g->h * g->w * g->lanes + g->oh * g->ow * TILE_NR) * 4;
    int64_t n = CONV_CHUNK_BYTES / image;
    return n < 1 ? 1 : kv_min_i64(n, g->n);
}

int64_t RUI_K(rui_kern_conv_work)(const ru_kern_conv *g)
{
    return framed(g) ? chunk_images(g) * frame_floats(g) : 0;
}

/* One block of channels of an image with its frame. */
static void frame(const ru_kern_conv *g, const float *x, float *to)
{
    int64_t rows = covered(g->oh, g->stride_y, g->kh), cols = covered(g->ow, g->stride_x, g->kw);
    int64_t x0 = g->pad_l, x1 = kv_min_i64(cols, g->pad_l + g->w);
    memset(to, 0, sizeof(float) * (size_t)frame_floats(g));
    for (int64_t y = g->pad_t; y < kv_min_i64(rows, g->pad_t + g->h); y++) {
        if (x1 > x0) {
            memcpy(to + (y * cols + x0) * g->lanes, x + (y - g->pad_t) * g->w * g->lanes,
                   sizeof(float) * (size_t)((x1 - x0) * g->lanes));
        }
    }
}

/* All taps of one block of input channels and one panel over a chunk. */
static void block(const ru_kern_conv *g, conv_rows *r, int64_t cb, int64_t panel, bool add,
                  float *dw)
{
    int64_t blocks = g->ci / g->lanes, area = g->kh * g->kw;
    int64_t step = g->lanes == 8 && g->kw == 3 ? 2 : 1;
    const float *x = r->x;
    for (int64_t lane = 0; lane < g->lanes; lane += step) {
        for (int64_t y = 0; y < g->kh; y++) {
            conv_place to = {.add = add, .lane = TILE_W};
            if (g->lanes == 1) { /* Ohwi8o */
                to.half = area * g->ci * TILE_W;
                to.tap = g->ci * TILE_W;
                to.dw = dw + 2 * panel * to.half + (y * g->kw * g->ci + cb) * TILE_W;
            } else { /* OIhw8i8o */
                to.half = blocks * area * TILE_W * TILE_W;
                to.tap = TILE_W * TILE_W;
                to.dw = dw + 2 * panel * to.half + (cb * area + y * g->kw) * to.tap + lane * TILE_W;
            }
            r->x = x + y * r->x_row / g->stride_y + lane;
            some_tile(r, g->kw, g->lanes, &to);
        }
    }
    r->x = x;
}

static void bias_sums(const ru_kern_conv *g, const float *dy, int64_t images, int64_t panel,
                      bool add, float *db)
{
    int64_t area = g->oh * g->ow * TILE_W;
    for (int64_t half = 0; half < 2; half++) {
        float *to = db + panel * TILE_NR + half * TILE_W;
        tile_v sum = add ? tile_load(to) : (tile_v){0};
        for (int64_t n = 0; n < images; n++) {
            const float *from = dy + n * g->co / TILE_W * area + half * area;
            tile_v one = {0};
            for (int64_t p = 0; p < area; p += TILE_W) {
                one += tile_load(from + p);
            }
            sum += one;
        }
        tile_store(to, sum);
    }
}

void RUI_K(rui_kern_conv_dw)(const ru_kern_conv *g, const float *x, const float *dy, int64_t p0,
                             int64_t p1, float *dw, float *db, float *work)
{
    int64_t most = chunk_images(g), area = g->oh * g->ow * TILE_W, plane = g->h * g->w;
    bool frames = framed(g);
    int64_t cols = frames ? covered(g->ow, g->stride_x, g->kw) : g->w;
    for (int64_t n = 0; n < g->n; n += most) {
        conv_rows r = {.images = kv_min_i64(most, g->n - n),
                       .rows = g->oh,
                       .n = g->ow,
                       .x_image = frames ? frame_floats(g) : g->ci * plane,
                       .x_row = g->stride_y * cols * g->lanes,
                       .x_step = g->stride_x * g->lanes,
                       .dy_image = g->co / TILE_W * area,
                       .dy_row = g->ow * TILE_W,
                       .dy_half = area};
        for (int64_t cb = 0; cb < g->ci / g->lanes; cb++) {
            const float *from = x + (n * g->ci + cb * g->lanes) * plane;
            for (int64_t i = 0; frames && i < r.images; i++) {
                frame(g, from + i * g->ci * plane, work + i * r.x_image);
            }
            r.x = frames ? work : from;
            for (int64_t p = p0; p < p1; p++) {
                r.dy = dy + n * r.dy_image + 2 * p * area;
                block(g, &r, cb, p, n > 0, dw);
                if (cb == 0 && db != NULL) {
                    bias_sums(g, r.dy, r.images, p, n > 0, db);
                }
            }
        }
    }
}
