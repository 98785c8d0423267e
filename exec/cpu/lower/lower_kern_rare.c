/* Ops that few networks have: regions of images (RoiAlign, MaxRoiPool), images from the places of
 * their maxima (MaxUnpool), determinants. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern_index.h"
#include "exec/cpu/ref/roi.h"

#include <float.h>

/* -- regions -------------------------------------------------------------------------------------
 *
 * What the bins of a region read is worked out once for many channels: of each axis, elements and
 * their weights.
 */

enum { CHANNELS = 64, WORK_MAX = 64 << 20, LANES = 16 };

typedef struct roi_state {
    const ru_kern_numbers *k;
    rui_roi_how how;
    int64_t rois, channels, blocks;
    int64_t room[2]; /* elements that a bin reads along an axis, at most */
    int64_t bins;    /* along the last axis, in whole vectors */
    int64_t units;   /* of 4 bytes: what a thread needs */
} roi_state;

/* Memory of a thread. */
typedef struct roi_tables {
    float *high, *low; /* [largest side] weights of a bin; kept at what says that there is none */
    int32_t *n[2], *at[2], *col;
    float *weight[2], *col_weight, *line;
} roi_tables;

static roi_tables tables_of(const roi_state *s, void *own)
{
    const int64_t *size = s->how.size, *pooled = s->how.pooled;
    int64_t side = size[0] > size[1] ? size[0] : size[1];
    float *at = own;
    roi_tables t;
    t.high = at;
    t.low = t.high + side;
    at = t.low + side;
    for (int d = 0; d < 2; d++) {
        t.n[d] = (int32_t *)(void *)at;
        t.at[d] = t.n[d] + pooled[d];
        t.weight[d] = (float *)(void *)(t.at[d] + pooled[d] * s->room[d]);
        at = t.weight[d] + pooled[d] * s->room[d];
    }
    t.col = (int32_t *)(void *)at;
    t.col_weight = (float *)(void *)(t.col + s->bins * s->room[1]);
    t.line = t.col_weight + s->bins * s->room[1];
    for (int64_t i = 0; i < side; i++) {
        t.high[i] = -1.0f;
        t.low[i] = 2.0f;
    }
    return t;
}

/* What bin b of an axis reads into at[] and weight[]: sums of weights, or the largest and least. */
static int32_t bin_taps(const rui_roi_axis *a, int64_t b, bool most, const roi_tables *t,
                        int32_t *at, float *weight)
{
    int64_t i0, i1, first = a->size, last = -1;
    int32_t n = 0;
    bool out = false;
    rui_roi_range(a, b, &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        rui_roi_tap tap;
        if (!rui_roi_tap_of(a, b, i, &tap)) {
            out = true;
            continue;
        }
        for (int k = 0; k < 2; k++) {
            float *high = t->high + tap.at[k], *low = t->low + tap.at[k], w = (float)tap.weight[k];
            *high = !most && *high >= 0 ? *high + w : w > *high ? w : *high;
            *low = w < *low ? w : *low;
        }
        first = tap.at[0] < first ? tap.at[0] : first;
        last = tap.at[1] > last ? tap.at[1] : last;
    }
    for (int64_t k = first; k <= last; k++) {
        float high = t->high[k], low = t->low[k];
        t->high[k] = -1.0f;
        t->low[k] = 2.0f;
        if (high >= 0) { /* also of weight 0: a NaN counts */
            at[n] = (int32_t)k;
            weight[n++] = high;
        }
        if (most && low < high) {
            at[n] = (int32_t)k;
            weight[n++] = low;
        }
    }
    if (most && out) { /* a sample outside is 0 */
        at[n] = -1;
        weight[n++] = 0;
    }
    return n;
}

/* Columns by tap, so that bins stand side by side. */
static void columns_of(const roi_state *s, const roi_tables *t, ru_kern_roi *r)
{
    const int64_t wide = s->how.pooled[1], room = s->room[1];
    int64_t first = s->how.size[1], last = -1;
    r->taps = 0;
    for (int64_t b = 0; b < wide; b++) {
        for (int64_t k = 0; k < t->n[1][b]; k++) {
            int64_t at = t->at[1][b * room + k];
            first = at >= 0 && at < first ? at : first;
            last = at > last ? at : last;
        }
        r->taps = t->n[1][b] > r->taps ? t->n[1][b] : r->taps;
    }
    r->first = last < 0 ? 0 : first;
    r->cols = last < 0 ? 0 : last - first + 1;
    int64_t whole = (r->cols + LANES - 1) / LANES * LANES;
    if (whole <= s->how.size[1]) { /* a line has no rest: columns that nobody reads do no harm */
        r->first = r->first < s->how.size[1] - whole ? r->first : s->how.size[1] - whole;
        r->cols = whole;
    }
    for (int64_t b = 0; b < s->bins; b++) {
        const int32_t n = b < wide ? t->n[1][b] : 0;
        for (int64_t k = 0; k < r->taps; k++) {
            bool more = k < n, again = !more && s->how.most && n > 0;
            int64_t from = b * room + (more ? k : 0);
            bool none = (!more && !again) || t->at[1][from] < 0;
            t->col[k * s->bins + b] = (int32_t)(none ? r->cols : t->at[1][from] - r->first);
            t->col_weight[k * s->bins + b] = none ? 0.0f : t->weight[1][from];
        }
    }
}

static ru_status axes_of(const roi_state *s, void *const *bufs, int64_t r, rui_roi_axis *axes,
                         ru_err *err)
{
    const float *roi = (const float *)bufs[1] + 4 * r;
    const double wide[4] = {(double)roi[0], (double)roi[1], (double)roi[2], (double)roi[3]};
    return rui_roi_make(&s->how, r, wide, ((const int64_t *)bufs[2])[r], axes, err);
}

/* False: the region is nowhere. */
static bool bins_of(const roi_state *s, void *const *bufs, int64_t roi, const roi_tables *t)
{
    rui_roi_axis axes[2];
    ru_status checked = axes_of(s, bufs, roi, axes, NULL);
    RU_CHECK(checked == RU_OK);
    if (axes[0].nowhere || axes[1].nowhere) {
        return false;
    }
    for (int d = 0; d < 2; d++) {
        for (int64_t b = 0; b < s->how.pooled[d]; b++) {
            t->n[d][b] = bin_taps(&axes[d], b, s->how.most, t, t->at[d] + b * s->room[d],
                                  t->weight[d] + b * s->room[d]);
        }
    }
    double count = (double)axes[0].grid * (double)axes[1].grid;
    const float share = s->how.most || count < 1 ? 1.0f : (float)(1 / count);
    for (int64_t b = 0; b < s->how.pooled[0]; b++) {
        for (int64_t k = b * s->room[0]; k < b * s->room[0] + t->n[0][b]; k++) {
            t->weight[0][k] *= share;
        }
    }
    return true;
}

/* bufs: x rois images y work */
static void roi_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const roi_state *s = state;
    const int64_t *pooled = s->how.pooled, plane = s->how.size[0] * s->how.size[1];
    const int64_t bins = pooled[0] * pooled[1];
    const roi_tables t = tables_of(s, own);
    for (int64_t i = begin; i < end; i++) {
        int64_t roi = i / s->blocks, c0 = i % s->blocks * CHANNELS;
        int64_t c1 = c0 + CHANNELS < s->channels ? c0 + CHANNELS : s->channels;
        const bool place = bins_of(s, bufs, roi, &t);
        ru_kern_roi r = {.most = s->how.most,
                         .width = s->how.size[1],
                         .pooled = {pooled[0], pooled[1]},
                         .n_rows = t.n[0],
                         .row = t.at[0],
                         .row_weight = t.weight[0],
                         .bins = s->bins,
                         .room = s->room[0],
                         .col = t.col,
                         .col_weight = t.col_weight};
        if (place) {
            columns_of(s, &t, &r);
        }
        const float *x =
            (const float *)bufs[0] + ((const int64_t *)bufs[2])[roi] * s->channels * plane;
        float *y = (float *)bufs[3] + roi * s->channels * bins;
        for (int64_t k = c0 * bins; !place && k < c1 * bins; k++) {
            y[k] = NAN;
        }
        for (int64_t c = c0; place && c < c1; c++) {
            s->k->roi(&r, x + c * plane, t.line, y + c * bins);
        }
    }
}

/* First and last + 1 of each bin, of both axes one after the other. */
typedef struct box_bins {
    int32_t *from[2], *to[2];
    float *line; /* [width] the largest of each column of a row of bins */
} box_bins;

static box_bins box_bins_of(const roi_state *s, const rui_roi_box *box, void *own)
{
    int32_t *at = own;
    box_bins t;
    for (int d = 0; d < 2; d++) {
        t.from[d] = at;
        t.to[d] = at + s->how.pooled[d];
        at += 2 * s->how.pooled[d];
        for (int64_t b = 0; b < s->how.pooled[d]; b++) {
            int64_t from, to;
            rui_roi_bin(&box[d], b, &from, &to);
            t.from[d][b] = (int32_t)from;
            t.to[d][b] = (int32_t)to;
        }
    }
    t.line = (float *)(void *)at;
    return t;
}

/* One row of bins of a channel: down first, whole rows side by side, then across. */
static void box_row(const roi_state *s, const box_bins *t, const float *x, int64_t bin, float *y)
{
    const int64_t wide = s->how.pooled[1], from = t->from[1][0], n = t->to[1][wide - 1] - from;
    const int64_t y0 = t->from[0][bin], y1 = t->to[0][bin];
    float *restrict line = t->line;
    for (int64_t j = 0; j < n; j++) {
        line[j] = -FLT_MAX;
    }
    for (int64_t i = y0; i < y1; i++) {
        const float *restrict row = x + i * s->how.size[1] + from;
        for (int64_t j = 0; j < n; j++) {
            line[j] = row[j] > line[j] ? row[j] : line[j];
        }
    }
    for (int64_t b = 0; b < wide; b++) {
        const int64_t x0 = t->from[1][b] - from, x1 = t->to[1][b] - from;
        float most = -FLT_MAX;
        for (int64_t j = x0; j < x1; j++) {
            most = line[j] > most ? line[j] : most;
        }
        y[b] = y0 < y1 && x0 < x1 ? most : 0;
    }
}

/* bufs: x rois images y work */
static void box_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const roi_state *s = state;
    const int64_t *pooled = s->how.pooled, plane = s->how.size[0] * s->how.size[1];
    for (int64_t i = begin; i < end; i++) {
        int64_t roi = i / s->blocks, c0 = i % s->blocks * CHANNELS;
        int64_t c1 = c0 + CHANNELS < s->channels ? c0 + CHANNELS : s->channels;
        const float *at = (const float *)bufs[1] + 4 * roi;
        const double wide[4] = {(double)at[0], (double)at[1], (double)at[2], (double)at[3]};
        rui_roi_box box[2];
        rui_roi_boxes(&s->how, wide, box);
        const box_bins t = box_bins_of(s, box, own);
        const float *x =
            (const float *)bufs[0] + ((const int64_t *)bufs[2])[roi] * s->channels * plane;
        float *y = (float *)bufs[3] + roi * s->channels * pooled[0] * pooled[1];
        for (int64_t k = c0 * pooled[0]; k < c1 * pooled[0]; k++) {
            box_row(s, &t, x + k / pooled[0] * plane, k % pooled[0], y + k * pooled[1]);
        }
    }
}

static ru_status roi_run(void *state, void *const *bufs, const rui_run *run)
{
    const roi_state *s = state;
    for (int64_t r = 0; r < s->rois; r++) {
        rui_roi_axis axes[2];
        RU_TRY(axes_of(s, bufs, r, axes, run->err));
    }
    rui_kern_for_own(run, s->how.whole ? box_part : roi_part, s, bufs, s->rois * s->blocks, 1,
                     bufs[4], s->units * (int64_t)sizeof(float));
    return RU_OK;
}

/* Units of 4 bytes that a thread needs. */
static double units_of(roi_state *s)
{
    const rui_roi_how *h = &s->how;
    if (h->whole) {
        return 2.0 * (double)(h->pooled[0] + h->pooled[1]) + (double)h->size[1];
    }
    int64_t side = h->size[0] > h->size[1] ? h->size[0] : h->size[1];
    double units = 2.0 * (double)side + (double)h->size[1] + RU_KERN_ROI_LINE;
    for (int d = 0; d < 2; d++) {
        int64_t all = h->size[d], few = 2 * h->ratio;
        s->room[d] = (h->ratio > 0 && few < all ? few : all) * (h->most ? 2 : 1) + 1;
        units += (double)h->pooled[d] * (1.0 + 2.0 * (double)s->room[d]);
    }
    s->bins = (h->pooled[1] + RU_KERN_ROI_BINS - 1) / RU_KERN_ROI_BINS * RU_KERN_ROI_BINS;
    return units + 2.0 * (double)s->bins * (double)s->room[1];
}

/* RoiAlign(x, rois, batch_indices) */
ru_status rui_lower_kern_roi(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *rois = rui_type(lo, n->in[1]);
    const ru_type *y = rui_type(lo, n->out[0]);
    if (x->dtype != RU_F32 || rois->dtype != RU_F32 || ru_type_count(x) <= 0 ||
        ru_type_count(y) <= 0 || x->dims[2] > INT32_MAX || x->dims[3] >= INT32_MAX) {
        return RU_E_UNSUPPORTED;
    }
    roi_state made = {.k = ru_kern_numbers_best(),
                      .how = rui_roi_how_of(n, x, y, RU_F32),
                      .rois = y->dims[0],
                      .channels = y->dims[1],
                      .blocks = (y->dims[1] + CHANNELS - 1) / CHANNELS};
    double units = units_of(&made);
    roi_state *s = units * 4 > WORK_MAX ? NULL : rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return units * 4 > WORK_MAX ? RU_E_UNSUPPORTED : rui_done(lo);
    }
    made.units = ((int64_t)units + 16 + 15) / 16 * 16;
    *s = made;
    rui_buf bufs[5] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, RU_F32)),
                       rui_in(lo, n->in[1], rui_plain_as(lo, rois, RU_F32)),
                       rui_in_plain(lo, n->in[2]),
                       rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32)),
                       rui_scratch(lo, s->units * 4 * (int64_t)rui_threads(lo))};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern roi", .fn = roi_run, .state = s, .bufs = bufs, .n_bufs = 5});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}

/* -- images from the places of their maxima ------------------------------------------------------
 *
 * An index counts in the whole output, but MaxPool gives ones that stay in their plane: planes are
 * filled on their own, and all is done again one after the other where one leaves its plane.
 */

typedef struct unpool_state {
    int64_t bytes, planes, small, big; /* of an element; elements of a plane */
} unpool_state;

/* Elements [from, to) of x; false: an index is outside of y's elements [low, low + n). */
static bool put_back(const unpool_state *s, void *const *bufs, int64_t from, int64_t to,
                     int64_t low, int64_t n)
{
    const int64_t *at = bufs[1];
    for (int64_t i = from; i < to; i++) {
        if ((uint64_t)at[i] - (uint64_t)low >= (uint64_t)n) {
            return false;
        }
        rui_index_move(s->bytes, bufs[2], at[i], bufs[0], i);
    }
    return true;
}

/* bufs: x indices y strays */
static void unpool_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const unpool_state *s = state;
    for (int64_t p = begin; p < end; p++) {
        memset((char *)bufs[2] + p * s->big * s->bytes, 0, (size_t)(s->big * s->bytes));
        ((uint8_t *)bufs[3])[p] =
            !put_back(s, bufs, p * s->small, (p + 1) * s->small, p * s->big, s->big);
    }
}

static ru_status unpool_run(void *state, void *const *bufs, const rui_run *run)
{
    const unpool_state *s = state;
    const int64_t *at = bufs[1], all = s->planes * s->big, n = s->planes * s->small;
    rui_kern_for(run, unpool_part, s, bufs, s->planes, rui_kern_grain(s->big));
    if (memchr(bufs[3], 1, (size_t)s->planes) == NULL) {
        return RU_OK;
    }
    memset(bufs[2], 0, (size_t)(all * s->bytes));
    if (put_back(s, bufs, 0, n, 0, all)) {
        return RU_OK;
    }
    int64_t i = 0;
    while (at[i] >= 0 && at[i] < all) {
        i++;
    }
    return RU_FAIL(run->err, RU_E_DATA, "index %lld at position %lld is outside 0..%lld",
                   (long long)at[i], (long long)i, (long long)(all - 1));
}

/* MaxUnpool(x, indices, output_shape?) */
ru_status rui_lower_kern_unpool(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    if (ru_type_count(x) <= 0 || ru_type_count(y) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    unpool_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (unpool_state){.bytes = ru_dtype_bytes(x->dtype),
                        .planes = x->dims[0] * x->dims[1],
                        .small = rui_dims(x, 2, x->rank),
                        .big = rui_dims(y, 2, y->rank)};
    rui_buf bufs[4] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       rui_out_plain(lo, n->out[0]), rui_scratch(lo, s->planes)};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern unpool", .fn = unpool_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}

/* -- determinants --------------------------------------------------------------------------------
 */

typedef struct det_state {
    const ru_kern_numbers *k;
    int64_t n, count;
} det_state;

/* bufs: x y work */
static void det_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const det_state *s = state;
    s->k->det((const float *)bufs[0] + begin * s->n * s->n, s->n, end - begin, own,
              (float *)bufs[1] + begin);
}

static ru_status det_run(void *state, void *const *bufs, const rui_run *run)
{
    const det_state *s = state;
    rui_kern_for_own(run, det_part, s, bufs, s->count, rui_kern_grain(s->n * s->n * s->n / 4),
                     bufs[2], s->n * s->n * (int64_t)sizeof(double));
    return RU_OK;
}

/* Det(x) */
ru_status rui_lower_kern_det(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    if (x->dtype != RU_F32 || ru_type_count(x) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    det_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (det_state){
        .k = ru_kern_numbers_best(), .n = x->dims[x->rank - 1], .count = ru_type_count(y)};
    int64_t threads = s->count > 1 ? (int64_t)rui_threads(lo) : 1; /* one matrix may be large */
    int64_t work = s->n * s->n * (int64_t)sizeof(double) * threads;
    rui_buf bufs[3] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, RU_F32)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32)), rui_scratch(lo, work)};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern det", .fn = det_run, .state = s, .bufs = bufs, .n_bufs = 3});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}
