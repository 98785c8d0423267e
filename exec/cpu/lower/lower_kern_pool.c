/* Pools of row-major images: those that oneDNN does not take (maxima with their places or with
 * dilation, averages whose windows hang over the end, NaN kept) and those that it would do element
 * by element. A row of results is made of its rows of the image, first joined into one line with
 * the padding on both sides, then along that line (exec/cpu/kern/k_pool.c). With places, results
 * whose windows lie inside a row are made side by side, others one by one. Taps are cut to the
 * image once per axis. */
#include <math.h>
#include <string.h>

#include "exec/cpu/low/window.h"
#include "exec/cpu/lower/lower_kern.h"

enum { AXES = 3, CHUNK = 256, FEW = 64, LINE = 4096 };

typedef struct pool_state {
    const ru_kern *k;
    ru_dtype t;
    int64_t inner_from, inner_to; /* results of a row whose windows lie inside it */
    int64_t in[AXES], out[AXES], kernel[AXES], stride[AXES], dilation[AXES];
    int64_t before[AXES], after[AXES]; /* padding that counts */
    int64_t planes, big, small;
    bool max, sum, with_pads, by_columns; /* neither max nor sum: means */
    int64_t line; /* results of a row that are made of one joined line; 0: no lines */
} pool_state;

/* Taps of one axis that lie inside the image: first, number; `all`: also those in the padding. */
typedef struct taps {
    int64_t from, n, all;
} taps;

/* Taps at i, i + dilation, ... that lie in low .. high - 1; *first: the first of them. */
static int64_t taps_in(const pool_state *s, int d, int64_t i, int64_t low, int64_t high,
                       int64_t *first)
{
    int64_t step = s->dilation[d], skip = low > i ? low - i : 0, room = high - i;
    int64_t k = step == 1 ? skip : (skip + step - 1) / step;
    int64_t end = room <= 0 ? 0 : step == 1 ? room : (room + step - 1) / step;
    end = end < s->kernel[d] ? end : s->kernel[d];
    *first = i + k * step;
    return end > k ? end - k : 0;
}

static taps taps_at(const pool_state *s, int d, int64_t o)
{
    taps t;
    int64_t unused, i = o * s->stride[d] - s->before[d];
    t.n = taps_in(s, d, i, 0, s->in[d], &t.from);
    t.all = !s->with_pads ? t.n : taps_in(s, d, i, -s->before[d], s->in[d] + s->after[d], &unused);
    return t;
}

static float value_at(const pool_state *s, const void *x, int64_t i)
{
    return s->t == RU_F32  ? ((const float *)x)[i]
           : s->t == RU_U8 ? (float)((const uint8_t *)x)[i]
                           : (float)((const int8_t *)x)[i];
}

static int64_t max_of(const pool_state *s, const void *x, const taps *t)
{
    int64_t best = -1;
    float top = -INFINITY;
    for (int64_t a = 0; a < t[0].n; a++) {
        for (int64_t b = 0; b < t[1].n; b++) {
            int64_t row =
                ((t[0].from + a * s->dilation[0]) * s->in[1] + t[1].from + b * s->dilation[1]) *
                s->in[2];
            for (int64_t c = 0; c < t[2].n; c++) {
                int64_t i = row + t[2].from + c * s->dilation[2];
                float v = value_at(s, x, i);
                bool more = best < 0 || v > top || (isnan(v) && !isnan(top));
                best = more ? i : best;
                top = more ? v : top;
            }
        }
    }
    return best;
}

static float mean_of(const pool_state *s, const float *x, const taps *t)
{
    double sum = 0.0;
    int64_t count = t[0].all * t[1].all * t[2].all;
    for (int64_t a = 0; a < t[0].n; a++) {
        for (int64_t b = 0; b < t[1].n; b++) {
            int64_t row =
                ((t[0].from + a * s->dilation[0]) * s->in[1] + t[1].from + b * s->dilation[1]) *
                s->in[2];
            for (int64_t c = 0; c < t[2].n; c++) {
                sum += (double)x[row + t[2].from + c * s->dilation[2]];
            }
        }
    }
    return s->sum ? (float)sum : count > 0 ? (float)(sum / (double)count) : 0.0f;
}

/* Counted with the last axis slowest, for storage_order 1. */
static int64_t by_columns(const pool_state *s, int64_t i)
{
    int64_t c = i % s->in[2], b = i / s->in[2] % s->in[1], a = i / s->in[2] / s->in[1];
    return (c * s->in[1] + b) * s->in[0] + a;
}

/* What every maximum is above. */
static void lowest(ru_dtype t, void *y, int64_t n)
{
    for (int64_t i = 0; t == RU_F32 && i < n; i++) {
        ((float *)y)[i] = -INFINITY;
    }
    if (t != RU_F32) {
        memset(y, t == RU_I8 ? INT8_MIN : 0, (size_t)n);
    }
}

/* One row of results. */
typedef struct row {
    const char *x; /* its plane */
    char *y;
    int64_t *place, first; /* places count from `first`, of the plane's first element */
    taps t[AXES];
} row;

static void one_by_one(const pool_state *s, row *r, int64_t from, int64_t to)
{
    for (int64_t o = from; o < to; o++) {
        r->t[2] = taps_at(s, 2, o);
        if (!s->max) {
            ((float *)r->y)[o] = mean_of(s, (const float *)r->x, r->t);
            continue;
        }
        int64_t best = max_of(s, r->x, r->t), bytes = ru_dtype_bytes(s->t);
        if (best >= 0) {
            memcpy(r->y + o * bytes, r->x + best * bytes, (size_t)bytes);
        } else {
            lowest(s->t, r->y + o * bytes, 1);
        }
        if (r->place != NULL) {
            r->place[o] = r->first + (s->by_columns && best > 0 ? by_columns(s, best) : best);
        }
    }
}

/* Maxima with their places of results from .. from + n, at most CHUNK, all inside along the row. */
static void side_by_side(const pool_state *s, row *r, int64_t from, int64_t n)
{
    const ru_kern_pool p = {
        .t = s->t, .stride = s->stride[2], .taps = s->kernel[2], .dilation = s->dilation[2]};
    int64_t cut = from * s->stride[2] - s->before[2];
    float *y = (float *)(void *)r->y + from;
    int32_t at[CHUNK];
    lowest(s->t, y, n);
    memset(at, -1, sizeof at);
    for (int64_t k = 0; k < r->t[0].n * r->t[1].n; k++) {
        int64_t a = r->t[0].from + k / r->t[1].n * s->dilation[0];
        int64_t b = r->t[1].from + k % r->t[1].n * s->dilation[1];
        int64_t i = (a * s->in[1] + b) * s->in[2] + cut;
        s->k->pool_place(&p, (const float *)(const void *)r->x + i, (int32_t)i, y, at, n);
    }
    for (int64_t o = 0; o < n; o++) {
        r->place[from + o] = r->first + (s->by_columns && at[o] > 0 ? by_columns(s, at[o]) : at[o]);
    }
}

/* Sums of results from .. from + n become means. */
static void mean_line(const pool_state *s, const row *r, int64_t from, int64_t n, float *sum)
{
    float area = (float)(r->t[0].all * r->t[1].all), whole = area * (float)s->kernel[2];
    for (int64_t o = 0; o < n; o++) {
        if (from + o >= s->inner_from && from + o < s->inner_to && whole > 0.0f) {
            int64_t left = s->inner_to - (from + o), m = left < n - o ? left : n - o;
            s->k->map2(RU_KERN_MAP2_Div, 0, 0, RU_F32, sum + o, 1, &whole, 0, sum + o, m);
            o += m - 1;
        } else {
            float count = area * (float)taps_at(s, 2, from + o).all;
            sum[o] = count > 0.0f ? sum[o] / count : 0.0f;
        }
    }
}

/* Results from .. from + n of a row, by one joined line. */
static void along_line(const pool_state *s, const row *r, int64_t from, int64_t n)
{
    _Alignas(64) char line[LINE * sizeof(float)];
    int64_t bytes = ru_dtype_bytes(s->t), i0 = from * s->stride[2] - s->before[2];
    int64_t i1 = i0 + (n - 1) * s->stride[2] + (s->kernel[2] - 1) * s->dilation[2] + 1;
    int64_t first = i0 < 0 ? 0 : i0, last = i1 < s->in[2] ? i1 : s->in[2];
    first = first < i1 ? first : i1;
    last = last > first ? last : first;
    const ru_kern_pool p = {.t = s->t,
                            .max = s->max,
                            .stride = s->stride[2],
                            .taps = s->kernel[2],
                            .dilation = s->dilation[2],
                            .planes = r->t[0].n,
                            .plane_step = s->dilation[0] * s->in[1] * s->in[2],
                            .rows = r->t[1].n,
                            .row_step = s->dilation[1] * s->in[2],
                            .before = first - i0,
                            .width = last - first,
                            .after = i1 - last};
    int64_t at = p.planes * p.rows * p.width == 0
                     ? 0
                     : (r->t[0].from * s->in[1] + r->t[1].from) * s->in[2] + first;
    s->k->pool_row(&p, r->x + at * bytes, line, r->y + from * bytes, n);
    if (!s->max && !s->sum) {
        mean_line(s, r, from, n, (float *)(void *)r->y + from);
    }
}

/* Rows of results, along the last axis. bufs: x y places, which may be absent */
static void pool_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const pool_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t);
    for (int64_t k = begin; k < end; k++) {
        int64_t plane = k / (s->out[0] * s->out[1]);
        row r = {.x = (const char *)bufs[0] + plane * s->big * bytes,
                 .y = (char *)bufs[1] + k * s->out[2] * bytes,
                 .place = bufs[2] == NULL ? NULL : (int64_t *)bufs[2] + k * s->out[2],
                 .first = plane * s->big,
                 .t = {taps_at(s, 0, k / s->out[1] % s->out[0]), taps_at(s, 1, k % s->out[1])}};
        for (int64_t o = 0; s->line > 0 && o < s->out[2]; o += s->line) {
            along_line(s, &r, o, s->out[2] - o < s->line ? s->out[2] - o : s->line);
        }
        if (s->line > 0) {
            continue;
        }
        int64_t from = r.place == NULL ? 0 : s->inner_from, to = r.place == NULL ? 0 : s->inner_to;
        one_by_one(s, &r, 0, from);
        for (int64_t o = from; o < to; o += CHUNK) {
            side_by_side(s, &r, o, to - o < CHUNK ? to - o : CHUNK);
        }
        one_by_one(s, &r, to, s->out[2]);
    }
}

static ru_status pool_run(void *state, void *const *bufs, const rui_run *run)
{
    const pool_state *s = state;
    int64_t cells = s->kernel[0] * s->kernel[1] * s->kernel[2];
    rui_kern_for(run, pool_part, s, bufs, s->planes * s->out[0] * s->out[1],
                 rui_kern_grain(s->out[2] * cells));
    return RU_OK;
}

/* Images of fewer axes have leading ones. */
static void plan(pool_state *s, const rui_window *w, const ru_node *n)
{
    uint32_t count = 0;
    const int64_t *pads = ru_node_ints(n, RU_ATTR_pads, &count);
    bool own = pads != NULL && strcmp(ru_node_str(n, RU_ATTR_auto_pad, "NOTSET"), "NOTSET") == 0;
    s->planes = w->n * w->ci;
    s->big = s->small = 1;
    for (int d = 0; d < AXES; d++) {
        int k = d - (AXES - w->nsp);
        s->in[d] = k < 0 ? 1 : w->in[k];
        s->out[d] = k < 0 ? 1 : w->out[k];
        s->kernel[d] = k < 0 ? 1 : w->kernel[k];
        s->stride[d] = k < 0 ? 1 : w->stride[k];
        s->dilation[d] = k < 0 ? 1 : w->dilate[k] + 1;
        s->before[d] = k < 0 ? 0 : w->pad_l[k];
        s->after[d] = k < 0 ? 0 : own ? pads[w->nsp + k] : w->pad_r[k];
        s->big *= s->in[d];
        s->small *= s->out[d];
    }
}

/* Which results of a row have all their taps in it. Sums of many taps stay in double, and places
 * beyond 2^31 are not counted here. */
static void find_inner(pool_state *s)
{
    int64_t reach = (s->kernel[2] - 1) * s->dilation[2];
    int64_t first = (s->before[2] + s->stride[2] - 1) / s->stride[2];
    int64_t last = s->in[2] - 1 - reach + s->before[2];
    int64_t to = last < 0 ? 0 : last / s->stride[2] + 1;
    bool few = s->max || s->kernel[0] * s->kernel[1] * s->kernel[2] <= FEW;
    to = to < s->out[2] ? to : s->out[2];
    if (few && s->big <= INT32_MAX && first < to) {
        s->inner_from = first;
        s->inner_to = to;
    } else {
        s->inner_from = s->inner_to = 0;
    }
}

/* Lines of LINE elements at most, where no place is asked for; sums of many taps stay in double. */
static void find_line(pool_state *s, bool places)
{
    int64_t reach = (s->kernel[2] - 1) * s->dilation[2];
    bool few = s->max || s->kernel[0] * s->kernel[1] * s->kernel[2] <= FEW;
    s->line = places || !few || reach >= LINE ? 0 : (LINE - 1 - reach) / s->stride[2] + 1;
}

/* oneDNN has pools of blocked images and of bytes in vectors, of row-major ones element by element;
 * the gradient of a maximum reads what its pool kept. */
static bool pool_pays(rui_low *lo, const ru_node *n)
{
    return rui_inference(lo) && rui_standing(lo, n->in[0])->plain &&
           rui_type(lo, n->in[0])->dtype == RU_F32 && !rui_bf16(lo);
}

ru_status rui_lower_kern_pool_rows(rui_low *lo, const ru_node *n, ru_err *err)
{
    return pool_pays(lo, n) ? rui_lower_kern_pool(lo, n, err) : RU_E_UNSUPPORTED;
}

/* NULL: the sticky error is set, or, `*fits` false, it is not this kernel's business. */
static pool_state *state_new(rui_low *lo, const ru_node *n, bool *fits)
{
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    rui_window w;
    bool places = ru_node_has_out(n, 1), max = n->op == RU_OP_MaxPool;
    bool whole = (x->dtype == RU_U8 || x->dtype == RU_I8) && max && !places;
    *fits = (x->dtype == RU_F32 || whole) && x->rank <= AXES + 2 && ru_type_count(x) > 0 &&
            rui_window_of(n, x, NULL, y, false, false, &w) == RU_OK;
    pool_state *s = *fits ? rui_keep(lo, (int64_t)sizeof *s) : NULL;
    if (s == NULL) {
        return NULL;
    }
    s->k = ru_kern_best();
    s->t = x->dtype;
    s->max = max;
    s->sum = n->op == RU_OP_LpPool;
    s->with_pads = ru_node_int(n, RU_ATTR_count_include_pad, 0) != 0;
    s->by_columns = ru_node_int(n, RU_ATTR_storage_order, 0) != 0;
    plan(s, &w, n);
    find_line(s, places);
    find_inner(s);
    return s;
}

ru_status rui_lower_kern_pool(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool places = ru_node_has_out(n, 1), fits;
    pool_state *s = state_new(lo, n, &fits);
    if (s == NULL) {
        return fits ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    rui_buf bufs[3] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0]),
                       places ? rui_out_plain(lo, n->out[1]) : (rui_buf){0}};
    rui_emit(lo, &(rui_step){.kernel = s->max ? "kern max pool" : "kern average pool",
                             .fn = pool_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}

/* -- LpPool: the root of a sum of powers ---------------------------------------------------------
 */

enum { POWER_MAX = 4 }; /* higher ones of ordinary numbers are beyond f32 */

typedef struct power_state {
    const ru_kern *k;
    int64_t n, p;
    bool root;
} power_state;

/* bufs: x y, which may be the same. y = |x|^p, or the p-th root of x, which is not negative */
static void power_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const power_state *s = state;
    const float *x = (const float *)bufs[0] + begin;
    float *y = (float *)bufs[1] + begin;
    float p = s->root ? 1.0f / (float)s->p : (float)s->p;
    int64_t n = end - begin;
    if (s->p == 2 && s->root) {
        s->k->map1(RU_KERN_MAP1_Sqrt, 0, 0, RU_F32, x, y, n);
    } else if (s->p == 2) {
        s->k->map2(RU_KERN_MAP2_Mul, 0, 0, RU_F32, x, 1, x, 1, y, n);
    } else {
        s->k->map1(RU_KERN_MAP1_Abs, 0, 0, RU_F32, x, y, n);
        if (s->p != 1) {
            s->k->map2(RU_KERN_MAP2_Pow, 0, 0, RU_F32, y, 1, &p, 0, y, n);
        }
    }
}

static ru_status power_run(void *state, void *const *bufs, const rui_run *run)
{
    const power_state *s = state;
    rui_kern_for(run, power_part, s, bufs, s->n, 4096);
    return RU_OK;
}

static void power_emit(rui_low *lo, int64_t count, int64_t p, bool root, rui_buf x, rui_buf y)
{
    power_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (power_state){ru_kern_best(), count, p, root};
        rui_buf bufs[2] = {x, y};
        rui_emit(lo, &(rui_step){.kernel = root ? "kern pool roots" : "kern pool powers",
                                 .fn = power_run,
                                 .state = s,
                                 .bufs = bufs,
                                 .n_bufs = 2});
    }
}

ru_status rui_lower_kern_lp_pool(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    int64_t p = ru_node_int(n, RU_ATTR_p, 2), count = ru_type_count(rui_type(lo, n->in[0]));
    bool fits;
    if (p > POWER_MAX) {
        return RU_E_UNSUPPORTED;
    }
    pool_state *s = state_new(lo, n, &fits);
    if (s == NULL) {
        return fits ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    rui_buf powers = rui_workspace(lo, count * (int64_t)sizeof(float));
    power_emit(lo, count, p, false, rui_in_plain(lo, n->in[0]), powers);
    rui_buf bufs[3] = {powers, rui_out_plain(lo, n->out[0])};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern sum pool", .fn = pool_run, .state = s, .bufs = bufs, .n_bufs = 3});
    if (p != 1) {
        power_emit(lo, ru_type_count(rui_type(lo, n->out[0])), p, true, bufs[1], bufs[1]);
    }
    return rui_done(lo);
}
