/* Sampling an image at the places of a grid or in regions, and adding columns back into an image.
 */
#include "exec/cpu/ref/ref_conv_impl.h"
#include "exec/cpu/ref/roi.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { TAPS_MAX = 4 };

/* What one coordinate reads along its axis. */
typedef struct taps {
    uint32_t n;
    int64_t at[TAPS_MAX]; /* -1: outside, where the image is 0 */
    double w[TAPS_MAX];
} taps;

typedef struct sampler {
    char mode, pad; /* first letters: linear, nearest, cubic; zeros, border, reflection */
    bool align, single;
} sampler;

/* -1 .. 1 to elements. The standard's coordinates are f32 when the grid is: which element is
 * nearest depends on it. */
static double place_of(const sampler *s, double g, int64_t size)
{
    if (s->single) {
        float x = (float)g, n = (float)size;
        return (double)(s->align ? (x + 1) / 2 * (n - 1) : ((x + 1) * n - 1) / 2);
    }
    double n = (double)size;
    return s->align ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
}

/* Element k, which may lie outside, as one inside; -1: there is none. */
static int64_t inside(const sampler *s, double k, int64_t size)
{
    double n = (double)size;
    if (k >= 0 && k < n) {
        return (int64_t)k;
    }
    if (s->pad == 'z' || size == 0) {
        return -1;
    }
    if (s->pad == 'b') {
        return k < 0 ? 0 : size - 1;
    }
    double low = s->align ? 0 : -0.5, span = s->align ? n - 1 : n;
    if (!(span > 0)) {
        return 0;
    }
    double r = fmod(fabs(k - low), 2 * span);
    r = (r > span ? 2 * span - r : r) + low;
    return r < 0 ? 0 : r < n - 1 ? (int64_t)rint(r) : size - 1;
}

static void cubic(double t, double *w)
{
    const double a = -0.75;
    for (int64_t k = 0; k < 4; k++) {
        double d = fabs(t + 1 - (double)k);
        w[k] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                      : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

static void taps_of(const sampler *s, double g, int64_t size, taps *t)
{
    double x = place_of(s, g, size), first = floor(x);
    if (!isfinite(x)) { /* no place: NaN stays NaN */
        *t = (taps){.n = 1, .at = {size > 0 ? 0 : -1}, .w = {NAN}};
        return;
    }
    if (s->mode == 'n') {
        *t = (taps){.n = 1, .w = {1}};
        first = rint(x);
    } else if (s->mode == 'c') {
        *t = (taps){.n = 4};
        cubic(x - first, t->w);
        first -= 1;
    } else {
        *t = (taps){.n = 2, .w = {1 - (x - first), x - first}};
    }
    for (uint32_t k = 0; k < t->n; k++) {
        t->at[k] = inside(s, first + (double)k, size);
    }
}

/* All combinations of taps inside the image: places in a plane and their weights. Outside, only a
 * weight that is NaN counts (place -1). */
static int64_t combine(const ru_type *x, const taps *t, uint32_t rank, int64_t *at, double *weight)
{
    int64_t dims[RUI_SPATIAL_MAX], n = 0;
    rui_walk w;
    for (uint32_t d = 0; d < rank; d++) {
        dims[d] = t[d].n;
    }
    rui_walk_init(&w, dims, rank);
    do {
        at[n] = 0;
        weight[n] = 1;
        for (uint32_t d = 0; d < rank; d++) {
            int64_t k = t[d].at[w.at[d]];
            weight[n] *= t[d].w[w.at[d]];
            at[n] = k < 0 || at[n] < 0 ? -1 : at[n] * x->dims[d + 2] + k;
        }
        n += at[n] >= 0 || isnan(weight[n]) ? 1 : 0;
    } while (rui_walk_next(&w));
    return n;
}

static double sample(const double *plane, const int64_t *at, const double *weight, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        sum += at[k] >= 0 ? weight[k] * plane[at[k]] : weight[k];
    }
    return sum;
}

ru_status rui_ref_GridSample(const ru_ref_call *c, ru_err *err)
{
    const ru_type *tx = &c->in[0].type, *ty = &c->out[0].type;
    const sampler s = {.mode = ru_node_str(c->node, RU_ATTR_mode, "linear")[0],
                       .pad = ru_node_str(c->node, RU_ATTR_padding_mode, "zeros")[0],
                       .align = ru_node_int(c->node, RU_ATTR_align_corners, 0) != 0,
                       .single = c->in[1].type.dtype == RU_F32};
    uint32_t rank = tx->rank - 2;
    int64_t channels = tx->dims[1], plane = rui_ref_span(tx, 2, tx->rank);
    int64_t places = rui_ref_span(ty, 2, ty->rank);
    double *x, *grid, *y, *weight;
    int64_t *inner, most = 1;
    for (uint32_t d = 0; d < rank; d++) {
        most *= TAPS_MAX;
    }
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &grid, err));
    RU_TRY(rui_ref_zeros(c, most, &weight, err));
    RU_TRY(rui_ref_zero_ints(c, most, &inner, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(ty), &y, err));
    for (int64_t p = 0; p < tx->dims[0] * places; p++) {
        taps t[RUI_SPATIAL_MAX];
        for (uint32_t d = 0; d < rank; d++) { /* the grid names the last axis first */
            taps_of(&s, grid[p * rank + (rank - 1 - d)], tx->dims[d + 2], &t[d]);
        }
        int64_t n = combine(tx, t, rank, inner, weight);
        for (int64_t ch = 0; ch < channels; ch++) {
            int64_t at = p / places * channels + ch;
            y[at * places + p % places] = sample(x + at * plane, inner, weight, n);
        }
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

ru_status rui_ref_Col2Im(const ru_ref_call *c, ru_err *err)
{
    const ru_type *tx = &c->in[0].type, *ty = &c->out[0].type;
    uint32_t rank = ty->rank - 2;
    int64_t *block, places = tx->dims[2], plane = rui_ref_span(ty, 2, ty->rank);
    ru_type positions = {.rank = ty->rank};
    double *x, *y;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in_ints(c, 2, &block, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(ty), &y, err));
    rui_window w;
    RU_TRY(rui_window_make(c, ty, &positions, block, rank, &w, err));
    int64_t n_taps = 1;
    for (uint32_t d = 0; d < rank; d++) {
        int64_t reach = (w.kernel[d] - 1) * w.dilation[d] + 1;
        w.small[d] = (w.big[d] + w.before[d] + w.after[d] - reach) / w.stride[d] + 1;
        n_taps *= w.kernel[d];
    }
    rui_walk at, tap;
    rui_walk_init(&at, w.small, rank);
    for (int64_t l = 0; l < places; l++) {
        rui_walk_init(&tap, w.kernel, rank);
        for (int64_t k = 0; k < n_taps; k++) {
            int64_t to = rui_window_big(&w, at.at, tap.at);
            for (int64_t ch = 0; to >= 0 && ch < ty->dims[0] * ty->dims[1]; ch++) {
                y[ch * plane + to] += x[(ch * n_taps + k) * places + l];
            }
            rui_walk_next(&tap);
        }
        rui_walk_next(&at);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* -- regions ----------------------------------------------------------------------------- */

typedef struct pooled {
    double sum, most;
    bool any;
} pooled;

/* The four elements around a sample; its maximum is that of the four weighed elements, as the
 * standard's own implementation has it. A NaN wins. */
static void pool_sample(const double *x, int64_t cols, const rui_roi_tap *y_tap,
                        const rui_roi_tap *x_tap, pooled *p)
{
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t a = k / 2, b = k % 2;
        double v = y_tap->weight[a] * x_tap->weight[b] * x[y_tap->at[a] * cols + x_tap->at[b]];
        p->sum += v;
        p->most = !p->any || v > p->most || isnan(v) ? v : p->most;
        p->any = true;
    }
}

/* A sample outside is 0. */
static void pool_none(pooled *p)
{
    p->most = !p->any || p->most < 0 ? 0 : p->most;
    p->any = true;
}

static double pool_bin(const rui_roi_axis *axes, int64_t high, int64_t wide, const double *x,
                       bool most)
{
    pooled p = {0};
    int64_t y0, y1, x0, x1;
    rui_roi_range(&axes[0], high, &y0, &y1);
    rui_roi_range(&axes[1], wide, &x0, &x1);
    for (int64_t i = y0; i < y1; i++) {
        rui_roi_tap ty, tx;
        bool in = rui_roi_tap_of(&axes[0], high, i, &ty);
        for (int64_t j = x0; in && j < x1; j++) {
            if (rui_roi_tap_of(&axes[1], wide, j, &tx)) {
                pool_sample(x, axes[1].size, &ty, &tx, &p);
            } else {
                pool_none(&p);
            }
        }
        if (!in) {
            pool_none(&p);
        }
    }
    double count = (double)axes[0].grid * (double)axes[1].grid;
    return most ? p.most : p.sum / (count > 1 ? count : 1);
}

/* No element: 0. What is not a number is no maximum, and neither is minus infinity. */
static double largest(const rui_roi_box *axes, int64_t high, int64_t wide, const double *x)
{
    int64_t y0, y1, x0, x1;
    rui_roi_bin(&axes[0], high, &y0, &y1);
    rui_roi_bin(&axes[1], wide, &x0, &x1);
    double most = axes->single ? -(double)FLT_MAX : -DBL_MAX;
    for (int64_t i = y0; i < y1; i++) {
        const double *row = x + i * (int64_t)axes[1].size;
        for (int64_t j = x0; j < x1; j++) {
            most = row[j] > most ? row[j] : most;
        }
    }
    return y0 < y1 && x0 < x1 ? most : 0;
}

ru_status rui_ref_RoiAlign(const ru_ref_call *c, ru_err *err)
{
    const ru_type *tx = &c->in[0].type, *ty = &c->out[0].type;
    const rui_roi_how how = rui_roi_how_of(c->node, tx, ty, c->in[1].type.dtype);
    int64_t plane = tx->dims[2] * tx->dims[3], bins = ty->dims[2] * ty->dims[3];
    double *x, *rois, *y;
    int64_t *image;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &rois, err));
    RU_TRY(rui_ref_in_ints(c, 2, &image, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(ty), &y, err));
    for (int64_t r = 0; r < ty->dims[0]; r++) {
        rui_roi_axis axes[2];
        rui_roi_box box[2];
        RU_TRY(rui_roi_make(&how, r, rois + 4 * r, image[r], axes, err));
        rui_roi_boxes(&how, rois + 4 * r, box);
        for (int64_t k = 0; k < ty->dims[1] * bins; k++) {
            int64_t ch = k / bins, high = k % bins / ty->dims[3], wide = k % ty->dims[3];
            const double *from = x + (image[r] * tx->dims[1] + ch) * plane;
            y[r * ty->dims[1] * bins + k] = how.whole ? largest(box, high, wide, from)
                                            : axes[0].nowhere || axes[1].nowhere
                                                ? (double)NAN
                                                : pool_bin(axes, high, wide, from, how.most);
        }
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}
