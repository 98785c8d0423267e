/* Pools of row-major images: those that oneDNN does not take (maxima with their places or with
 * dilation, averages whose windows hang over the end, NaN kept) and those that it would do element
 * by element. A row of results is made of its rows of the image, first joined into one line with
 * the padding on both sides, then along that line (exec/cpu/kern/k_pool.c). With places, results
 * whose windows lie inside a row are made side by side, others one by one. Taps are cut to the
 * image once per axis. */
#include <math.h>
#include <string.h>

#include "exec/cpu/kern/side.h"
#include "exec/cpu/low/window.h"
#include "exec/cpu/lower/lower_kern.h"

enum { AXES = 3, CHUNK = 256, FEW = 64, LINE = 4096, ROWS = 8, POWER_MAX = 4 };

/* Planes side by side: elements of a plane that stay near, that one result's slab has at most, and
 * the longest row. One core with AVX-512, windows of 3x3, time of lines over that of planes: 4.5 of
 * 14x14 and 0.9 of 56x56 with steps of two, 2.8 of 32x32 and 0.5 of 64x64 without. */
enum { SIDE_NEAR = 2048, SIDE_MOST = 8192, SIDE_LONGEST = 40 };

typedef ru_kern_side_taps taps;

typedef struct pool_state {
    const ru_kern *k;
    ru_dtype t;
    int64_t inner_from, inner_to; /* results of a row whose windows lie inside it */
    int64_t in[AXES], out[AXES], kernel[AXES], stride[AXES], dilation[AXES];
    int64_t before[AXES], after[AXES]; /* padding that counts */
    int64_t planes, big;
    bool max, with_pads, by_columns;
    int64_t power;     /* > 0: the root of the sum of powers. Neither power nor max: means */
    int64_t line;      /* results of a row that are made of one joined line; 0: no lines */
    taps *table[AXES]; /* [out] of each axis */
    float *count;      /* [out] counted taps along a row; NULL: not a mean, or no lines */
    /* With `slab`: planes side by side, so many results of axis 0 at once */
    int64_t slab, work; /* work: bytes of one thread */
    const ru_kern_sides *sides;
    ru_kern_side side;
} pool_state;

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

static taps find_taps(const pool_state *s, int d, int64_t o)
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
    return count > 0 ? (float)(sum / (double)count) : 0.0f;
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
        r->t[2] = s->table[2][o];
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

/* Results from .. from + n of the rows k .. k + rows, each by one joined line. */
static void along_lines(const pool_state *s, void *const *bufs, int64_t k, int64_t rows,
                        int64_t from, int64_t n)
{
    _Alignas(64) char lines[LINE * sizeof(double)];
    ru_kern_pool_from f[ROWS];
    int64_t bytes = ru_dtype_bytes(s->t), i0 = from * s->stride[2] - s->before[2];
    int64_t i1 = i0 + (n - 1) * s->stride[2] + (s->kernel[2] - 1) * s->dilation[2] + 1;
    int64_t first = i0 < 0 ? 0 : i0, last = i1 < s->in[2] ? i1 : s->in[2];
    first = first < i1 ? first : i1;
    last = last > first ? last : first;
    int64_t line = (i1 - i0 + 15) / 16 * 16, next = n * s->stride[2];
    line = n == s->out[2] && next >= i1 - i0 && next < line ? next : line; /* rows make one line */
    const ru_kern_pool p = {.t = s->t,
                            .max = s->max,
                            .power = s->power,
                            .stride = s->stride[2],
                            .taps = s->kernel[2],
                            .dilation = s->dilation[2],
                            .plane_step = s->dilation[0] * s->in[1] * s->in[2],
                            .row_step = s->dilation[1] * s->in[2],
                            .before = first - i0,
                            .width = last - first,
                            .after = i1 - last,
                            .line = line,
                            .y_step = s->out[2],
                            .end = (const char *)bufs[0] + s->planes * s->big * bytes,
                            .count = s->count == NULL ? NULL : s->count + from};
    int64_t b = k % s->out[1], a = k / s->out[1] % s->out[0], plane = k / (s->out[0] * s->out[1]);
    for (int64_t r = 0; r < rows; r++) {
        const taps *ta = &s->table[0][a], *tb = &s->table[1][b];
        int64_t at = (ta->from * s->in[1] + tb->from) * s->in[2] + first;
        bool none = ta->n * tb->n * p.width == 0;
        f[r] = (ru_kern_pool_from){.x = (const char *)bufs[0] +
                                        (plane * s->big + (none ? 0 : at)) * bytes,
                                   .planes = ta->n,
                                   .rows = tb->n,
                                   .area = (float)(ta->all * tb->all)};
        b = b + 1 < s->out[1] ? b + 1 : 0;
        a = b > 0 ? a : a + 1 < s->out[0] ? a + 1 : 0;
        plane += a + b == 0;
    }
    s->k->pool_rows(&p, f, rows, lines, (char *)bufs[1] + (k * s->out[2] + from) * bytes, n);
}

/* Rows of results begin .. end by lines, as many at once as lines have room. */
static void by_lines(const pool_state *s, void *const *bufs, int64_t begin, int64_t end)
{
    int64_t reach = (s->kernel[2] - 1) * s->dilation[2];
    int64_t rows = LINE / ((s->out[2] - 1) * s->stride[2] + reach + 16);
    rows = rows < 1 ? 1 : rows < ROWS ? rows : ROWS;
    for (int64_t k = begin; k < end; k += rows) {
        rows = end - k < rows ? end - k : rows;
        for (int64_t o = 0; o < s->out[2]; o += s->line) {
            int64_t n = s->out[2] - o < s->line ? s->out[2] - o : s->line;
            along_lines(s, bufs, k, rows, o, n);
        }
    }
}

/* Rows of results, along the last axis. bufs: x y places, which may be absent */
static void pool_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const pool_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t);
    if (s->line > 0) {
        by_lines(s, bufs, begin, end);
        return;
    }
    for (int64_t k = begin; k < end; k++) {
        int64_t plane = k / (s->out[0] * s->out[1]);
        row r = {.x = (const char *)bufs[0] + plane * s->big * bytes,
                 .y = (char *)bufs[1] + k * s->out[2] * bytes,
                 .place = bufs[2] == NULL ? NULL : (int64_t *)bufs[2] + k * s->out[2],
                 .first = plane * s->big,
                 .t = {s->table[0][k / s->out[1] % s->out[0]], s->table[1][k % s->out[1]]}};
        one_by_one(s, &r, 0, s->inner_from);
        for (int64_t o = s->inner_from; o < s->inner_to; o += CHUNK) {
            side_by_side(s, &r, o, s->inner_to - o < CHUNK ? s->inner_to - o : CHUNK);
        }
        one_by_one(s, &r, s->inner_to, s->out[2]);
    }
}

/* Slabs of so many planes as lie side by side. */
static void side_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const pool_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t), lanes = RU_KERN_SIDE_BYTES / ru_dtype_bytes(s->t);
    int64_t slabs = (s->out[0] + s->slab - 1) / s->slab, out = s->out[0] * s->out[1] * s->out[2];
    for (int64_t k = begin; k < end; k++) {
        int64_t plane = k / slabs * lanes, a0 = k % slabs * s->slab, a1 = a0 + s->slab;
        int64_t planes = s->planes - plane < lanes ? s->planes - plane : lanes;
        s->sides->pool(&s->side, (const char *)bufs[0] + plane * s->big * bytes, planes, a0,
                       a1 < s->out[0] ? a1 : s->out[0], own, (char *)bufs[1] + plane * out * bytes,
                       bufs[2] == NULL ? NULL : (int64_t *)bufs[2] + plane * out, plane * s->big);
    }
}

static ru_status side_run(void *state, void *const *bufs, const rui_run *run)
{
    const pool_state *s = state;
    int64_t lanes = RU_KERN_SIDE_BYTES / ru_dtype_bytes(s->t),
            slabs = (s->out[0] + s->slab - 1) / s->slab;
    rui_kern_for_own(run, side_part, s, bufs, (s->planes + lanes - 1) / lanes * slabs,
                     rui_kern_grain(s->slab * s->in[1] * s->in[2] * lanes), bufs[3], s->work);
    return RU_OK;
}

static ru_status pool_run(void *state, void *const *bufs, const rui_run *run)
{
    const pool_state *s = state;
    int64_t cells = s->kernel[0] * s->kernel[1] * s->kernel[2];
    rui_kern_for(run, pool_part, s, bufs, s->planes * s->out[0] * s->out[1],
                 rui_kern_grain(s->out[2] * cells));
    return RU_OK;
}

/* Images of fewer axes have ones before the last: slabs are cut along the first. */
static void plan(pool_state *s, const rui_window *w, const ru_node *n)
{
    uint32_t count = 0;
    const int64_t *pads = ru_node_ints(n, RU_ATTR_pads, &count);
    bool own = pads != NULL && strcmp(ru_node_str(n, RU_ATTR_auto_pad, "NOTSET"), "NOTSET") == 0;
    s->planes = w->n * w->ci;
    s->big = 1;
    for (int d = 0; d < AXES; d++) {
        int k = d == AXES - 1 ? w->nsp - 1 : d < w->nsp - 1 ? d : -1;
        s->in[d] = k < 0 ? 1 : w->in[k];
        s->out[d] = k < 0 ? 1 : w->out[k];
        s->kernel[d] = k < 0 ? 1 : w->kernel[k];
        s->stride[d] = k < 0 ? 1 : w->stride[k];
        s->dilation[d] = k < 0 ? 1 : w->dilate[k] + 1;
        s->before[d] = k < 0 ? 0 : w->pad_l[k];
        s->after[d] = k < 0 ? 0 : own ? pads[w->nsp + k] : w->pad_r[k];
        s->big *= s->in[d];
    }
}

/* Where places are asked for: which results of a row have all their taps in it. Places beyond 2^31
 * are not counted here. */
static void find_inner(pool_state *s, bool places)
{
    int64_t reach = (s->kernel[2] - 1) * s->dilation[2];
    int64_t first = (s->before[2] + s->stride[2] - 1) / s->stride[2];
    int64_t last = s->in[2] - 1 - reach + s->before[2];
    int64_t to = last < 0 ? 0 : last / s->stride[2] + 1;
    to = to < s->out[2] ? to : s->out[2];
    if (places && s->big <= INT32_MAX && first < to) {
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
    bool few = s->max || s->power > 0 || s->kernel[0] * s->kernel[1] * s->kernel[2] <= FEW;
    s->line = places || !few || reach >= LINE ? 0 : (LINE - 1 - reach) / s->stride[2] + 1;
}

/* Planes side by side, in slabs that stay near. */
static void find_side(pool_state *s)
{
    int64_t lanes = RU_KERN_SIDE_BYTES / ru_dtype_bytes(s->t), inner = s->in[1] * s->in[2];
    int64_t reach = (s->kernel[0] - 1) * s->dilation[0] + 1, room = SIDE_NEAR / inner - reach;
    bool fits = s->power == 0 && s->planes >= lanes / 2 && s->big <= INT32_MAX &&
                inner * (reach < s->in[0] ? reach : s->in[0]) <= SIDE_MOST;
    bool wide = s->stride[2] > 1 && s->kernel[2] > 3;
    fits = fits && s->in[2] <= (wide ? 2 * SIDE_LONGEST : SIDE_LONGEST);
    s->slab = room <= 0 ? 1 : room / s->stride[0] + 1;
    s->slab = !fits ? 0 : s->slab < s->out[0] ? s->slab : s->out[0];
    s->side = (ru_kern_side){.t = s->t, .max = s->max, .by_columns = s->by_columns};
    for (int d = 0; d < AXES; d++) {
        s->side.in[d] = s->in[d];
        s->side.out[d] = s->out[d];
        s->side.dilation[d] = s->dilation[d];
        s->side.taps[d] = s->table[d];
    }
    for (int64_t a = 0; s->slab > 0 && a < s->out[0]; a += s->slab) {
        int64_t a1 = a + s->slab < s->out[0] ? a + s->slab : s->out[0];
        int64_t work = s->sides->work(&s->side, a, a1);
        s->work = work > s->work ? work : s->work;
    }
}

/* False: no memory. */
static bool find_tables(rui_low *lo, pool_state *s)
{
    for (int d = 0; d < AXES; d++) {
        taps *t = s->table[d] = rui_keep(lo, s->out[d] * (int64_t)sizeof *t);
        for (int64_t o = 0; t != NULL && o < s->out[d]; o++) {
            t[o] = find_taps(s, d, o);
        }
        if (t == NULL) {
            return false;
        }
    }
    bool mean = s->line > 0 && !s->max && s->power == 0;
    s->count = mean ? rui_keep(lo, s->out[2] * (int64_t)sizeof *s->count) : NULL;
    for (int64_t o = 0; s->count != NULL && o < s->out[2]; o++) {
        s->count[o] = (float)s->table[2][o].all;
    }
    return !mean || s->count != NULL;
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
    s->sides = ru_kern_sides_best();
    s->t = x->dtype;
    s->max = max;
    s->power = n->op == RU_OP_LpPool ? ru_node_int(n, RU_ATTR_p, 2) : 0;
    s->with_pads = ru_node_int(n, RU_ATTR_count_include_pad, 0) != 0;
    s->by_columns = ru_node_int(n, RU_ATTR_storage_order, 0) != 0;
    plan(s, &w, n);
    find_line(s, places);
    *fits = s->power == 0 || s->line > 0;
    if (!*fits) {
        return NULL;
    }
    find_inner(s, places);
    if (!find_tables(lo, s)) {
        return NULL;
    }
    find_side(s);
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
    rui_buf bufs[4] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0]),
                       places ? rui_out_plain(lo, n->out[1]) : (rui_buf){0}};
    bufs[3] = s->slab > 0 ? rui_scratch(lo, s->work * rui_threads(lo)) : (rui_buf){0};
    rui_emit(lo, &(rui_step){.kernel = s->max         ? "kern max pool"
                                       : s->power > 0 ? "kern power pool"
                                                      : "kern average pool",
                             .fn = s->slab > 0 ? side_run : pool_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 4});
    return rui_done(lo);
}

/* LpPool. The kernel knows powers up to POWER_MAX. */
ru_status rui_lower_kern_lp_pool(rui_low *lo, const ru_node *n, ru_err *err)
{
    int64_t p = ru_node_int(n, RU_ATTR_p, 2);
    return p < 1 || p > POWER_MAX ? RU_E_UNSUPPORTED : rui_lower_kern_pool(lo, n, err);
}
