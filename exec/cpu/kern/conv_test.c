/* Kernels of convolutions, and large products, against sums in double, on odd sizes and every
 * instruction set that this CPU has. Every array ends, and in a second turn begins, at a page that
 * nobody may touch. */
#include "exec/cpu/kern/numbers.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/test.h"

enum { W = 8, NR = 16, POS = 36 };

/* -- memory between pages that nobody may touch --------------------------------------------------
 */

enum { WALLED_MAX = 16 };

typedef struct walled {
    struct {
        void *p;
        size_t bytes;
    } at[WALLED_MAX];
    uint32_t n;
    bool at_begin; /* arrays begin behind a wall, else they end before one */
} walled;

/* `n` floats that are not numbers. */
static float *room(walled *w, int64_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)n * sizeof(float);
    size_t inner = (bytes + page - 1) / page * page, all = inner + 2 * page;
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED && w->n < WALLED_MAX);
    assert_int_equal(mprotect(p, page, PROT_NONE) | mprotect(p + page + inner, page, PROT_NONE), 0);
    w->at[w->n].p = p;
    w->at[w->n++].bytes = all;
    float *x = (float *)(void *)(p + page + (w->at_begin ? 0 : inner - bytes));
    for (int64_t i = 0; i < n; i++) {
        x[i] = NAN;
    }
    return x;
}

static float *numbers(walled *w, int64_t n, uint64_t seed)
{
    float *x = room(w, n);
    for (int64_t i = 0; i < n; i++) {
        uint64_t k = (seed * 1000003u + (uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
        k = (k ^ (k >> 31)) * 0xbf58476d1ce4e5b9u;
        x[i] = (float)(k >> 40) / (float)(1 << 23) - 1.0f;
    }
    return x;
}

static void free_rooms(walled *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        (void)munmap(w->at[i].p, w->at[i].bytes);
    }
    w->n = 0;
}

/* -- the convolution in double -------------------------------------------------------------------
 */

typedef struct conv {
    int64_t n, ci, co, h, w, kh, kw, pad_t, pad_l, sy, sx, oh, ow;
    int64_t lanes; /* of x: 8 or 1 */
} conv;

/* Place of channel c, row y, column x of image n in blocks of `lanes` channels. */
static int64_t image_at(int64_t lanes, int64_t channels, int64_t h, int64_t w, int64_t n, int64_t c,
                        int64_t y, int64_t x)
{
    return (((n * channels + c / lanes * lanes) * h + y * lanes) * w + x * lanes) + c % lanes;
}

/* OIhw8i8o, or Ohwi8o where x has 1 lane. */
static int64_t weight_at(const conv *c, int64_t o, int64_t i, int64_t ky, int64_t kx)
{
    int64_t k = ky * c->kw + kx, area = c->kh * c->kw;
    return c->lanes == 1 ? ((o / W * area + k) * c->ci + i) * W + o % W
                         : (((o / W * (c->ci / W) + i / W) * area + k) * W + i % W) * W + o % W;
}

/* x, w, y: what each product of the convolution goes through. */
typedef void (*term_fn)(void *arg, int64_t x, int64_t w, int64_t y);

static void terms_of(const conv *c, int64_t n, int64_t o, int64_t oy, int64_t ox, term_fn fn,
                     void *arg)
{
    int64_t y = image_at(W, c->co, c->oh, c->ow, n, o, oy, ox);
    for (int64_t i = 0; i < c->ci; i++) {
        for (int64_t k = 0; k < c->kh * c->kw; k++) {
            int64_t ky = k / c->kw, kx = k % c->kw;
            int64_t iy = oy * c->sy + ky - c->pad_t, ix = ox * c->sx + kx - c->pad_l;
            if (iy >= 0 && iy < c->h && ix >= 0 && ix < c->w) {
                fn(arg, image_at(c->lanes, c->ci, c->h, c->w, n, i, iy, ix),
                   weight_at(c, o, i, ky, kx), y);
            }
        }
    }
}

static void all_terms(const conv *c, term_fn fn, void *arg)
{
    for (int64_t n = 0; n < c->n; n++) {
        for (int64_t q = 0; q < c->co * c->oh * c->ow; q++) {
            terms_of(c, n, q / (c->oh * c->ow), q / c->ow % c->oh, q % c->ow, fn, arg);
        }
    }
}

/* Sums of a * b into places, and of their sizes: what rounding is measured by. */
typedef struct sums {
    const float *x, *w, *y; /* two of them */
    double *sum, *size;
} sums;

static void add_term(const sums *s, double a, double b, int64_t at)
{
    s->sum[at] += a * b;
    s->size[at] += fabs(a * b);
}

static void term_y(void *arg, int64_t x, int64_t w, int64_t y)
{
    const sums *s = arg;
    add_term(s, (double)s->x[x], (double)s->w[w], y);
}

static void term_x(void *arg, int64_t x, int64_t w, int64_t y)
{
    const sums *s = arg;
    add_term(s, (double)s->y[y], (double)s->w[w], x);
}

static void term_w(void *arg, int64_t x, int64_t w, int64_t y)
{
    const sums *s = arg;
    add_term(s, (double)s->y[y], (double)s->x[x], w);
}

static sums sums_of(const conv *c, term_fn fn, const float *x, const float *w, const float *y,
                    int64_t n)
{
    sums s = {x, w, y, test_calloc((size_t)n, sizeof(double)),
              test_calloc((size_t)n, sizeof(double))};
    all_terms(c, fn, &s);
    return s;
}

/* Worst difference of `n` results, in units of the largest sum of sizes and of 2^-24. */
static double off(const float *got, sums *s, int64_t n)
{
    double most = 1e-30, worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - s->sum[i]);
        most = fmax(most, s->size[i]);
        worst = d > worst || isnan(d) ? d : worst; /* NaN stays */
        if (isnan(d)) {
            break;
        }
    }
    test_free(s->sum);
    test_free(s->size);
    return worst / most * 0x1p24;
}

static void within(double units, double limit, const conv *c, const char *what, const ru_kern *k)
{
    if (!(units <= limit)) {
        fail_msg(
            "%s on %s: off by %.3g units, allowed %g: n%d c%d k%d %dx%d kernel %dx%d pad %d %d "
            "stride %d %d",
            what, k->name, units, limit, (int)c->n, (int)c->ci, (int)c->co, (int)c->h, (int)c->w,
            (int)c->kh, (int)c->kw, (int)c->pad_t, (int)c->pad_l, (int)c->sy, (int)c->sx);
    }
}

/* Sums of dy over images and positions, in units as above. */
static double bias_off(const conv *c, const float *dy, const float *db)
{
    double worst = 0.0;
    for (int64_t o = 0; o < c->co; o++) {
        double sum = 0.0, size = 1e-30;
        for (int64_t p = 0; p < c->n * c->oh * c->ow; p++) {
            double v = (double)dy[image_at(W, c->co, c->oh, c->ow, p / (c->oh * c->ow), o,
                                           p / c->ow % c->oh, p % c->ow)];
            sum += v;
            size += fabs(v);
        }
        double d = fabs((double)db[o] - sum) / size * 0x1p24;
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

/* -- gradient of the weights, sums along rows ----------------------------------------------------
 */

static void weights_case(const ru_kern *k, const conv *c, bool at_begin)
{
    walled m = {.at_begin = at_begin};
    ru_kern_conv g = {.n = c->n,
                      .ci = c->ci,
                      .co = c->co,
                      .h = c->h,
                      .w = c->w,
                      .oh = c->oh,
                      .ow = c->ow,
                      .kh = c->kh,
                      .kw = c->kw,
                      .pad_t = c->pad_t,
                      .pad_l = c->pad_l,
                      .stride_y = c->sy,
                      .stride_x = c->sx,
                      .lanes = c->lanes};
    int64_t nx = c->n * c->ci * c->h * c->w, ny = c->n * c->co * c->oh * c->ow;
    int64_t nw = c->co * c->ci * c->kh * c->kw, panels = c->co / NR;
    float *x = numbers(&m, nx, 1), *dy = numbers(&m, ny, 2), *dw = room(&m, nw);
    float *db = room(&m, c->co), *again = room(&m, nw), *work = room(&m, k->conv_work(&g));
    assert_true(k->conv_dw_takes(c->kw, c->lanes));
    k->conv_dw(&g, x, dy, 0, panels, dw, db, work);
    k->conv_dw(&g, x, dy, 0, panels / 2, again, NULL, work);
    k->conv_dw(&g, x, dy, panels / 2, panels, again, NULL, work);
    assert_memory_equal(dw, again, sizeof(float) * (size_t)nw);
    sums s = sums_of(c, term_w, x, NULL, dy, nw);
    within(off(dw, &s, nw), 8, c, "gradient of weights", k);
    within(bias_off(c, dy, db), 8, c, "gradient of bias", k);
    free_rooms(&m);
}

/* Every size with kernels of both widths, strides, pads (also beyond the kernel) and both layouts.
 */
static void weights_on(const ru_kern *k)
{
    static const int64_t sides[][2] = {{1, 1}, {2, 5}, {7, 3}, {5, 8}, {12, 11}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(sides) * 3 * 2 * 3 * 2; i++) {
        uint32_t q = i / RU_ARRAY_LEN(sides);
        conv c = {.n = 1 + 2 * (i % 2),
                  .lanes = q % 2 != 0 ? 8 : 1,
                  .h = sides[i % RU_ARRAY_LEN(sides)][0],
                  .w = sides[i % RU_ARRAY_LEN(sides)][1],
                  .sy = 1 + q / 2 % 3,
                  .sx = 1 + (q / 2 + i) % 3,
                  .kw = q / 6 % 2 != 0 ? 5 : 3,
                  .kh = 1 + (q + i) % 4,
                  .pad_t = (q / 12 + i) % 5};
        static const int64_t pads[] = {0, 2, 6};
        c.pad_l = pads[q / 12];
        c.ci = c.lanes == 1 ? 1 + 2 * (i % 2) : 8 + 16 * (i % 2);
        c.co = 16 + 32 * (q % 2);
        int64_t free_y = c.h + c.pad_t + (int64_t)(i % 3) - c.kh;
        int64_t free_x = c.w + c.pad_l + (int64_t)(q % 3) - c.kw;
        if (free_y >= 0 && free_x >= 0) {
            c.oh = free_y / c.sy + 1;
            c.ow = free_x / c.sx + 1;
            weights_case(k, &c, (i + q) % 2 != 0);
        }
    }
}

/* Sizes that the table above does not meet. */
static void odd_weights_on(const ru_kern *k)
{
    /* n, ci, co, h, w, kh, kw, pad_t, pad_l, sy, sx, oh, ow, lanes */
    static const conv cases[] = {
        {5, 8, 16, 34, 33, 3, 3, 1, 1, 1, 1, 34, 33, 8}, /* chunks of images, the last shorter */
        {2, 8, 16, 9, 10, 3, 3, 0, 0, 2, 3, 2, 2, 8},    /* rows that the windows do not reach */
        {2, 8, 16, 60, 58, 3, 3, 1, 1, 1, 1, 60, 58, 8}, /* an image larger than a chunk */
        {1, 8, 16, 1, 1, 1, 3, 0, 6, 1, 7, 1, 1, 8},     /* windows that see the frame only */
        {1, 8, 16, 5, 7, 3, 3, 0, 0, 1, 1, 4, 5, 8},     /* a frame below only */
        {1, 8, 16, 5, 7, 3, 3, 0, 0, 1, 1, 3, 6, 8},     /* at the right only */
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        weights_case(k, &cases[i], false);
    }
}

static void weight_gradients_agree_with_double(void **state)
{
    (void)state;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        if (k != NULL) {
            weights_on(k);
            odd_weights_on(k);
        }
    }
}

/* -- Winograd ------------------------------------------------------------------------------------
 */

/* Strides as tight as they may be, for `tiles` of them at a time. */
static ru_kern_wino wino_of(const conv *c, bool turned, int64_t tiles)
{
    ru_kern_wino g = {.ci = turned ? c->co : c->ci,
                      .co = turned ? c->ci : c->co,
                      .h = turned ? c->oh : c->h,
                      .w = turned ? c->ow : c->w,
                      .oh = turned ? c->h : c->oh,
                      .ow = turned ? c->w : c->ow,
                      .pad_t = turned ? 2 - c->pad_t : c->pad_t,
                      .pad_l = turned ? 2 - c->pad_l : c->pad_l,
                      .turned = turned};
    g.tiles_y = (g.oh + 3) / 4;
    g.tiles_x = (g.ow + 3) / 4;
    g.v_row = g.ci;
    g.v_pos = g.v_row * tiles;
    g.u_pos = g.ci * NR;
    g.d_pos = NR * tiles;
    return g;
}

static int64_t all_tiles(const conv *c, const ru_kern_wino *g)
{
    return c->n * g->tiles_y * g->tiles_x;
}

/* y, or dx when turned: all panels over `tb` tiles at a time. */
static double wino_conv(const ru_kern *k, const conv *c, bool turned, bool at_begin, int64_t tb)
{
    walled m = {.at_begin = at_begin};
    ru_kern_wino g = wino_of(c, turned, tb);
    int64_t tiles = all_tiles(c, &g), panels = g.co / NR, first = (panels + 1) / 2;
    int64_t nx = c->n * c->ci * c->h * c->w, ny = c->n * c->co * c->oh * c->ow;
    float *x = turned ? room(&m, nx) : numbers(&m, nx, 1);
    float *y = turned ? numbers(&m, ny, 2) : room(&m, ny);
    float *w = numbers(&m, c->ci * c->co * 9, 3), *v = room(&m, POS * g.v_pos);
    float *u = room(&m, POS * g.u_pos * panels), *part = room(&m, POS * NR * (tb * first + 1));
    k->wino_weights(&g, w, 0, first, u);
    k->wino_weights(&g, w, first, panels, u + POS * g.u_pos * first);
    for (int64_t t = 0; t < tiles; t += tb) {
        int64_t end = t + tb < tiles ? t + tb : tiles, half = (t + end) / 2;
        k->wino_in(&g, turned ? y : x, t, half, t, v);
        k->wino_in(&g, turned ? y : x, half, end, t, v);
        for (int64_t p = 0; p < panels; p += first) {
            int64_t last = p + first < panels ? p + first : panels;
            k->wino_out(&g, v, u + POS * g.u_pos * p, p, last, t, end, NULL, turned ? x : y, part);
        }
    }
    sums s = sums_of(c, turned ? term_x : term_y, x, w, y, turned ? nx : ny);
    double units = off(turned ? x : y, &s, turned ? nx : ny);
    free_rooms(&m);
    return units;
}

/* dw and db, `tb` tiles at a time; some channels, then the others. */
static double wino_weights(const ru_kern *k, const conv *c, bool at_begin, int64_t tb)
{
    walled m = {.at_begin = at_begin};
    ru_kern_wino g = wino_of(c, false, tb);
    int64_t tiles = all_tiles(c, &g), panels = c->co / NR, nw = c->ci * c->co * 9;
    float *x = numbers(&m, c->n * c->ci * c->h * c->w, 1);
    float *dy = numbers(&m, c->n * c->co * c->oh * c->ow, 2), *v = room(&m, POS * g.v_pos);
    float *d = room(&m, POS * g.d_pos * panels), *dw = room(&m, nw), *db = room(&m, c->co);
    const int64_t c_at[] = {0, 8, c->ci}, sum_n = POS * NR * (c->ci * panels + 1);
    float *part[2] = {room(&m, sum_n), room(&m, sum_n)};
    for (int64_t t = 0; t < tiles; t += tb) {
        int64_t end = t + tb < tiles ? t + tb : tiles, half = (t + end + 1) / 2;
        k->wino_in(&g, x, t, end, t, v);
        k->wino_dy(&g, dy, t, half, t, d);
        k->wino_dy(&g, dy, half, end, t, d);
        for (int i = 0; i < 2; i++) {
            k->wino_dw(&g, v, d, end - t, c_at[i], c_at[i + 1], 0, panels, t > 0, part[i]);
        }
        k->wino_db(&g, d, end - t, 0, panels, t > 0, db);
    }
    for (int i = 0; i < 2; i++) {
        k->wino_dw_out(&g, part[i], c_at[i], c_at[i + 1], 0, panels, dw);
    }
    within(bias_off(c, dy, db), 8, c, "Winograd, bias", k);
    sums s = sums_of(c, term_w, x, NULL, dy, nw);
    double units = off(dw, &s, nw);
    free_rooms(&m);
    return units;
}

/* The transforms round more than direct sums (3 units): at most 28 were seen, whatever the number
 * of channels and tiles (docs/exec-kern.md). */
enum { UNITS = 40 };

static void winograd_agrees_with_double(void **state)
{
    (void)state;
    static const int64_t sides[][2] = {{1, 1}, {2, 5}, {7, 3}, {4, 4}, {5, 9}, {13, 6}};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t i = 0; k != NULL && i < RU_ARRAY_LEN(sides) * 9; i++) {
            uint32_t q = i / RU_ARRAY_LEN(sides);
            conv c = {.n = 1 + 2 * (i % 2),
                      .lanes = 8,
                      .kh = 3,
                      .kw = 3,
                      .sy = 1,
                      .sx = 1,
                      .h = sides[i % RU_ARRAY_LEN(sides)][0],
                      .w = sides[i % RU_ARRAY_LEN(sides)][1],
                      .ci = 16 + 16 * (i % 3),
                      .co = 16 + 32 * (q % 2),
                      .pad_t = q % 3,
                      .pad_l = q / 3};
            int64_t pad_b = (q + i) % 3, pad_r = (q / 3 + i) % 3;
            c.oh = c.h + c.pad_t + pad_b - 2;
            c.ow = c.w + c.pad_l + pad_r - 2;
            if (c.oh > 0 && c.ow > 0) {
                bool edge = i % 4 < 2;
                int64_t tb = 1 + (int64_t)i % 7;
                within(wino_conv(k, &c, false, edge, tb), UNITS, &c, "Winograd", k);
                within(wino_conv(k, &c, true, edge, tb), UNITS, &c, "Winograd, data", k);
                within(wino_weights(k, &c, edge, tb), UNITS, &c, "Winograd, weights", k);
            }
        }
    }
}

/* One tile of 4 x 4 from 3 x 3 weights, with ReLU behind it. */
static void winograd_keeps_nan(void **state)
{
    (void)state;
    const conv c = {.n = 1,
                    .ci = NR,
                    .co = NR,
                    .h = 4,
                    .w = 4,
                    .kh = 3,
                    .kw = 3,
                    .pad_t = 1,
                    .pad_l = 1,
                    .sy = 1,
                    .sx = 1,
                    .oh = 4,
                    .ow = 4,
                    .lanes = 8};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        walled m = {0};
        ru_kern_wino g = wino_of(&c, false, 1);
        g.relu = true;
        float *x = numbers(&m, NR * 16, 1), *w = numbers(&m, NR * NR * 9, 3);
        float *v = room(&m, POS * g.v_pos), *u = room(&m, POS * g.u_pos);
        float *part = room(&m, POS * NR * 2), *y = room(&m, NR * 16);
        for (int bad = 0; k != NULL && bad < 2; bad++) {
            x[image_at(W, NR, 4, 4, 0, 3, 1, 2)] = bad != 0 ? NAN : 0.5f;
            k->wino_weights(&g, w, 0, 1, u);
            k->wino_in(&g, x, 0, 1, 0, v);
            k->wino_out(&g, v, u, 0, 1, 0, 1, NULL, y, part);
            float at = y[image_at(W, NR, 4, 4, 0, 5, 1, 2)];
            assert_true(bad != 0 ? isnan(at) : at >= 0.0f);
        }
        free_rooms(&m);
    }
}

/* -- large products ------------------------------------------------------------------------------
 */

static void product_case(const ru_kern *k, int64_t m, int64_t n, int64_t d, int how)
{
    walled r = {.at_begin = (how & 4) != 0};
    float *a = numbers(&r, m * d, 1), *b = numbers(&r, d * n, 2), *bias = numbers(&r, n, 3);
    float *c = room(&r, m * n), *work = room(&r, k->product_work(m, n, d));
    bool ta = (how & 1) != 0, tb = (how & 2) != 0;
    ru_kern_product g = {.m = m,
                         .n = n,
                         .k = d,
                         .a = a,
                         .a_row = ta ? 1 : d,
                         .a_col = ta ? m : 1,
                         .b = b,
                         .b_row = tb ? 1 : n,
                         .b_col = tb ? d : 1,
                         .bias = bias,
                         .c = c,
                         .c_row = n,
                         .alpha = 1.0f};
    k->product(&g, 0, m, 0, n, work);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = (double)bias[i % n], size = fabs(sum);
        for (int64_t p = 0; p < d; p++) {
            double one =
                (double)a[i / n * g.a_row + p * g.a_col] * (double)b[p * g.b_row + i % n * g.b_col];
            sum += one;
            size += fabs(one);
        }
        assert_true(fabs((double)c[i] - sum) <= 4 * 0x1p-24 * size);
    }
    free_rooms(&r);
}

static void large_products_stay_within(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {7, 17, 9}, {5, 8, 16}, {6, 24, 8}, {13, 31, 11}};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t i = 0; k != NULL && i < RU_ARRAY_LEN(sizes); i++) {
            for (int how = 0; how < 8; how++) {
                product_case(k, sizes[i][0], sizes[i][1], sizes[i][2], how);
            }
        }
    }
}

/* -- windows over rows ---------------------------------------------------------------------------
 */

typedef struct rows_case {
    int64_t ci, outs, in[3], before[3], after[3], out[3], every[3], step[3];
} rows_case;

/* Three taps of each phase and channel, somewhere in the padded image. */
static void rows_on(const ru_kern *k, const rows_case *c, bool at_begin)
{
    enum { EACH = 3 };
    walled m = {.at_begin = at_begin};
    ru_kern_window g = {.ci = c->ci};
    int64_t free_at[3];
    for (int d = 0; d < 3; d++) {
        g.in[d] = c->in[d];
        g.before[d] = c->before[d];
        g.room[d] = c->before[d] + c->in[d] + c->after[d];
        g.out[d] = c->out[d];
        g.every[d] = c->every[d];
        g.step[d] = c->step[d];
        free_at[d] = g.room[d] - (c->out[d] - 1) / c->every[d] * c->step[d];
        assert_true(free_at[d] > 0);
    }
    int64_t phases = g.every[0] * g.every[1] * g.every[2], n = phases * c->ci * EACH;
    int64_t room_floats = c->ci * g.room[0] * g.room[1] * g.room[2];
    int64_t out = g.out[0] * g.out[1] * g.out[2];
    g.w_step = n;
    ru_kern_tap *taps = (ru_kern_tap *)(void *)room(&m, 2 * n);
    int64_t *first = (int64_t *)(void *)room(&m, 2 * (phases + 1));
    for (int64_t i = 0; i < n; i++) {
        int64_t plane = i % c->ci * g.room[0] + i * 7 % free_at[0];
        int64_t at = (plane * g.room[1] + i * 5 % free_at[1]) * g.room[2] + i * 3 % free_at[2];
        taps[i] = (ru_kern_tap){(int32_t)at, (int32_t)(n - 1 - i)};
    }
    for (int64_t i = 0; i <= phases; i++) {
        first[i] = i * c->ci * EACH;
    }
    g.taps = taps;
    g.first = first;
    const float *x = numbers(&m, c->ci * g.in[0] * g.in[1] * g.in[2], 1);
    const float *w = numbers(&m, c->outs * n, 2), *bias = numbers(&m, c->outs, 3);
    float *y = room(&m, c->outs * out), *image = room(&m, room_floats);
    float *work = room(&m, k->window_work(&g));
    k->window(&g, x, w, at_begin ? NULL : bias, c->outs, y, work);
    for (int64_t i = 0; i < room_floats; i++) {
        int64_t d[3] = {i / (g.room[1] * g.room[2]) % g.room[0] - g.before[0],
                        i / g.room[2] % g.room[1] - g.before[1], i % g.room[2] - g.before[2]};
        int64_t ch = i / (g.room[0] * g.room[1] * g.room[2]);
        bool inside = true;
        for (int a = 0; a < 3; a++) {
            inside = inside && d[a] >= 0 && d[a] < g.in[a];
        }
        image[i] = inside ? x[((ch * g.in[0] + d[0]) * g.in[1] + d[1]) * g.in[2] + d[2]] : 0.0f;
    }
    for (int64_t i = 0; i < c->outs * out; i++) {
        int64_t o = i / out;
        int64_t a = i % out / (g.out[1] * g.out[2]), b = i / g.out[2] % g.out[1], e = i % g.out[2];
        int64_t phase =
            (a % g.every[0] * g.every[1] + b % g.every[1]) * g.every[2] + e % g.every[2];
        int64_t from =
            (a / g.every[0] * g.step[0] * g.room[1] + b / g.every[1] * g.step[1]) * g.room[2] +
            e / g.every[2];
        double sum = at_begin ? 0 : (double)bias[o];
        for (int64_t t = first[phase]; t < first[phase + 1]; t++) {
            sum += (double)w[o * g.w_step + taps[t].w] * (double)image[from + taps[t].at];
        }
        if (!(fabs(sum - (double)y[i]) <= 1e-5)) {
            fail_msg("result %lld is %g, expected %g", (long long)i, (double)y[i], sum);
        }
    }
    free_rooms(&m);
}

static void windows_over_rows_agree_with_double(void **state)
{
    (void)state;
    static const rows_case cases[] = {
        {1, 1, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
        {3, 5, {1, 9, 21}, {0, 1, 1}, {0, 1, 1}, {1, 9, 21}, {1, 1, 1}, {1, 1, 1}},
        {2, 4, {3, 7, 40}, {1, 2, 0}, {0, 0, 3}, {2, 4, 32}, {1, 1, 1}, {2, 2, 1}},
        {2, 6, {2, 6, 17}, {0, 1, 1}, {1, 0, 1}, {4, 12, 35}, {2, 2, 2}, {1, 1, 1}},
        {1, 9, {1, 5, 18}, {0, 0, 2}, {0, 1, 0}, {1, 13, 52}, {1, 3, 3}, {1, 1, 1}},
        {4, 2, {1, 1, 16}, {0, 0, 0}, {0, 0, 0}, {1, 1, 31}, {1, 1, 2}, {1, 1, 1}},
    };
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t i = 0; k != NULL && i < 2 * RU_ARRAY_LEN(cases); i++) {
            rows_on(k, &cases[i / 2], i % 2 == 1);
        }
    }
}

/* -- channels apart ------------------------------------------------------------------------------
 */

typedef struct apart_case {
    ru_kern_apart g;
    int64_t kernel[3], dilate[3], channels;
} apart_case;

static int64_t drawn(uint64_t *seed, int64_t from, int64_t to)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return from + (int64_t)((*seed >> 33) % (uint64_t)(to - from + 1));
}

/* Images of up to 40 a row, windows that may lie beside them altogether. Some `dense`: over two
 * axes at most, in steps of one. */
static apart_case apart_drawn(uint64_t *seed, int64_t lanes, bool dense)
{
    apart_case c = {.channels = drawn(seed, 1, lanes), .g.n_taps = 1};
    ru_kern_apart *g = &c.g;
    for (int d = 0; d < 3; d++) {
        const bool flat = d == 0 && (dense || drawn(seed, 0, 2) > 0);
        c.kernel[d] = flat ? 1 : drawn(seed, 1, d == 0 ? 2 : 5);
        c.dilate[d] = dense ? 1 : drawn(seed, 1, 3);
        g->in[d] = flat ? 1 : drawn(seed, 1, d == 0 ? 3 : d == 1 ? 12 : 40);
        g->before[d] = flat ? 0 : drawn(seed, 0, 5);
        g->step[d] = dense ? 1 : drawn(seed, 1, 3);
        g->kernel[d] = c.kernel[d];
        int64_t reach = (c.kernel[d] - 1) * c.dilate[d] + 1;
        int64_t room = g->in[d] + g->before[d] + (flat ? 0 : drawn(seed, 0, 5));
        room = room < reach ? reach : room;
        g->out[d] = (room - reach) / g->step[d] + 1;
        g->band = d == 1 ? drawn(seed, 1, g->out[d]) : g->band;
        g->room[d] = d == 1 ? (g->band - 1) * g->step[d] + reach : room;
        g->n_taps *= c.kernel[d];
    }
    return c;
}

/* Result (a, b, e) of channel ch. */
static double apart_sum(const apart_case *c, const float *x, const float *w, int64_t ch, int64_t a,
                        int64_t b, int64_t e)
{
    const ru_kern_apart *g = &c->g;
    const int64_t at[3] = {a, b, e};
    double sum = 0;
    for (int64_t k = 0; k < g->n_taps; k++) {
        const int64_t tap[3] = {k / c->kernel[2] / c->kernel[1], k / c->kernel[2] % c->kernel[1],
                                k % c->kernel[2]};
        int64_t place = ch;
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            int64_t i = at[d] * g->step[d] + tap[d] * c->dilate[d] - g->before[d];
            inside = inside && i >= 0 && i < g->in[d];
            place = place * g->in[d] + i;
        }
        sum += inside ? (double)x[place] * (double)w[ch * g->n_taps + k] : 0;
    }
    return sum;
}

/* `rows`: channel by channel instead, such a dense window of which so many rows go together. */
static void apart_on(const ru_kern_numbers *k, apart_case *c, bool at_begin, int64_t rows)
{
    walled m = {.at_begin = at_begin};
    ru_kern_apart *g = &c->g;
    const int64_t out = g->out[0] * g->out[1] * g->out[2];
    int32_t *taps = (int32_t *)(void *)room(&m, g->n_taps);
    for (int64_t i = 0; i < g->n_taps; i++) {
        int64_t a = i / c->kernel[2] / c->kernel[1], b = i / c->kernel[2] % c->kernel[1];
        taps[i] = (int32_t)((a * c->dilate[0] * g->room[1] + b * c->dilate[1]) * g->room[2] +
                            i % c->kernel[2] * c->dilate[2]);
    }
    g->taps = taps;
    const float *x = numbers(&m, c->channels * g->in[0] * g->in[1] * g->in[2], 1);
    const float *w = numbers(&m, c->channels * g->n_taps, 2), *bias = numbers(&m, c->channels, 3);
    float *y = room(&m, c->channels * out), *work = room(&m, k->apart_work(g));
    const int64_t cut = rows <= g->band && g->band + rows <= g->out[1] ? g->band : 0;
    for (int64_t ch = 0; rows > 0 && ch < c->channels; ch++) {
        const float *of = x + ch * g->in[1] * g->in[2], by = at_begin ? 0.0f : bias[ch];
        k->near(g, of, w + ch * g->n_taps, by, cut, g->out[1], y + ch * out);
        k->near(g, of, w + ch * g->n_taps, by, 0, cut, y + ch * out);
    }
    for (int64_t b = 0; rows == 0 && b < g->out[1]; b += g->band) {
        int64_t end = b + g->band < g->out[1] ? b + g->band : g->out[1];
        k->apart(g, x, c->channels, w, at_begin ? NULL : bias, b, end, y, work);
    }
    for (int64_t i = 0; i < c->channels * out; i++) {
        int64_t ch = i / out, b = i / g->out[2] % g->out[1];
        double want = apart_sum(c, x, w, ch, i % out / (g->out[1] * g->out[2]), b, i % g->out[2]);
        want += at_begin ? 0 : (double)bias[ch];
        if (!(fabs((double)y[i] - want) <= 1e-5)) {
            fail_msg("channel %lld of %lld, [%lld]: %g for %g", (long long)ch,
                     (long long)c->channels, (long long)(i % out), (double)y[i], want);
        }
    }
    free_rooms(&m);
}

static void channels_apart_agree_with_double(void **state)
{
    (void)state;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern_numbers *k = ru_kern_numbers_at((ru_kern_level)level);
        uint64_t seed = 29;
        for (int i = 0; k != NULL && i < 900; i++) {
            apart_case c = apart_drawn(&seed, k->apart_lanes(), i >= 300);
            const int64_t rows = i < 300 ? 0 : k->near_rows(&c.g);
            if (i < 300 || (rows > 0 && c.g.out[1] >= rows)) {
                apart_on(k, &c, i % 2 == 1, rows);
            }
        }
    }
}

/* -- patches ------------------------------------------------------------------------------------
 */

static void patches_on(const ru_kern_numbers *k, uint64_t *seed, bool at_begin)
{
    walled m = {.at_begin = at_begin};
    const int64_t steps[] = {1, 2, 3, 4, 8, 14, 16};
    int64_t ci = drawn(seed, 1, 3), in[3], taps[3], each[3], image = 1;
    ru_kern_patch g = {.depth = ci, .co = drawn(seed, 1, 70)};
    for (int d = 2; d >= 0; d--) {
        each[d] = steps[drawn(seed, 0, d == 2 ? 6 : 1)];
        g.out[d] = drawn(seed, 1, d == 2 ? 33 : 5);
        taps[d] = drawn(seed, 1, each[d]);
        in[d] = (g.out[d] - 1) * each[d] + taps[d] + drawn(seed, 0, 1);
        g.step[d] = each[d] * image;
        image *= in[d];
        g.depth *= taps[d];
    }
    int32_t *at = (int32_t *)(void *)room(&m, g.depth);
    for (int64_t i = 0; i < g.depth; i++) {
        int64_t e = i % taps[2], b = i / taps[2] % taps[1], a = i / taps[2] / taps[1] % taps[0];
        int64_t c = i / taps[2] / taps[1] / taps[0];
        at[i] = (int32_t)(((c * in[0] + a) * in[1] + b) * in[2] + e);
    }
    g.at = at;
    const float *x = numbers(&m, ci * image, 1), *w = numbers(&m, g.co * g.depth, 2);
    const float *bias = numbers(&m, g.co, 3);
    int64_t rows = g.out[0] * g.out[1], plane = rows * g.out[2], cut = drawn(seed, 0, rows);
    float *packed = room(&m, k->patch_floats(&g)), *work = room(&m, k->patch_work(&g));
    float *y = room(&m, g.co * plane);
    k->patch_pack(&g, w, packed);
    k->patch(&g, x, packed, at_begin ? NULL : bias, 0, cut, y, work);
    k->patch(&g, x, packed, at_begin ? NULL : bias, cut, rows, y, work);
    for (int64_t i = 0; i < g.co * plane; i++) {
        int64_t o = i / plane, r = i % plane / g.out[2];
        int64_t from = r / g.out[1] * g.step[0] + r % g.out[1] * g.step[1];
        double want = at_begin ? 0 : (double)bias[o];
        for (int64_t j = 0; j < g.depth; j++) {
            want += (double)x[from + i % g.out[2] * g.step[2] + at[j]] * (double)w[o * g.depth + j];
        }
        if (!(fabs((double)y[i] - want) <= 1e-4)) {
            fail_msg("channel %lld of %lld, [%lld]: %g for %g", (long long)o, (long long)g.co,
                     (long long)(i % plane), (double)y[i], want);
        }
    }
    free_rooms(&m);
}

static void patches_agree_with_double(void **state)
{
    (void)state;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern_numbers *k = ru_kern_numbers_at((ru_kern_level)level);
        uint64_t seed = 31;
        for (int i = 0; k != NULL && i < 150; i++) {
            patches_on(k, &seed, i % 2 == 1);
        }
    }
}

RU_TESTS(exec_conv, cmocka_unit_test(patches_agree_with_double),
         cmocka_unit_test(large_products_stay_within), cmocka_unit_test(winograd_keeps_nan),
         cmocka_unit_test(weight_gradients_agree_with_double),
         cmocka_unit_test(winograd_agrees_with_double),
         cmocka_unit_test(windows_over_rows_agree_with_double),
         cmocka_unit_test(channels_apart_agree_with_double))
