/* Ops whose output elements are elements of the input, axis by axis: cuts with steps, padding,
 * repetition, and the gradients of those that give every element one place.
 *
 * Each op but repetition only fills a table per axis (output position -> input position, or -1 for
 * the fill). The tables are merged where neighbours are whole and in order, and the last axis
 * becomes a few runs that copy, repeat or stride. */
#include "exec/cpu/lower/lower_kern_places.h"

#include <string.h>

enum { ROW_MIN = 32, ROW_MAX = 1 << 16 };

typedef struct places_state {
    const ru_kern *k;
    ru_kern_places p;
    int64_t rows;
} places_state;

/* bufs: x fill y */
static void places_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const places_state *s = state;
    s->k->places(&s->p, bufs[0], bufs[1], bufs[2], begin, end);
}

static ru_status places_run(void *state, void *const *bufs, const rui_run *run)
{
    const places_state *s = state;
    rui_kern_for(run, places_part, s, bufs, s->rows, rui_kern_grain(s->p.dims[s->p.rank - 1]));
    return RU_OK;
}

bool rui_places_new(rui_low *lo, rui_places *p, const ru_type *x, const ru_type *y)
{
    *p = (rui_places){.rank = y->rank};
    for (uint32_t d = 0; d < y->rank; d++) {
        uint32_t back = y->rank - d;
        p->in[d] = back <= x->rank ? x->dims[x->rank - back] : 1;
        p->out[d] = y->dims[d];
        p->from[d] = rui_keep(lo, (p->out[d] + 1) * (int64_t)sizeof(int64_t));
        for (int64_t i = 0; p->from[d] != NULL && i < p->out[d]; i++) {
            p->from[d][i] = i;
        }
        if (p->from[d] == NULL) {
            return false;
        }
    }
    return true;
}

static bool whole(const rui_places *p, uint32_t d)
{
    bool same = p->in[d] == p->out[d];
    for (int64_t i = 0; same && i < p->out[d]; i++) {
        same = p->from[d][i] == i;
    }
    return same;
}

/* One axis in place of d and d + 1. */
static void join(rui_low *lo, rui_places *p, uint32_t d)
{
    int64_t n = p->out[d] * p->out[d + 1], *from = rui_keep(lo, (n + 1) * (int64_t)sizeof *from);
    if (from == NULL) {
        return;
    }
    for (int64_t i = 0; i < p->out[d]; i++) {
        for (int64_t j = 0; j < p->out[d + 1]; j++) {
            bool none = p->from[d][i] < 0 || p->from[d + 1][j] < 0;
            from[i * p->out[d + 1] + j] =
                none ? -1 : p->from[d][i] * p->in[d + 1] + p->from[d + 1][j];
        }
    }
    p->in[d] *= p->in[d + 1];
    p->out[d] = n;
    p->from[d] = from;
    for (uint32_t k = d + 1; k + 1 < p->rank; k++) {
        p->in[k] = p->in[k + 1];
        p->out[k] = p->out[k + 1];
        p->from[k] = p->from[k + 1];
    }
    p->rank--;
}

/* Do two axes repeat one element, in a table of bearable size? */
static bool one_for_all(const rui_places *p, uint32_t d)
{
    bool one = p->in[d] == 1 && p->in[d + 1] == 1 && p->out[d] <= ROW_MAX / p->out[d + 1];
    for (uint32_t k = d; one && k < d + 2; k++) {
        for (int64_t i = 0; one && i < p->out[k]; i++) {
            one = p->from[k][i] == 0;
        }
    }
    return one;
}

/* Whole neighbours become one axis, and those that repeat one element; a short last axis is joined
 * to the one before. */
static void merge(rui_low *lo, rui_places *p)
{
    for (uint32_t d = 0; d + 1 < p->rank && rui_done(lo) == RU_OK;) {
        bool last = d + 2 == p->rank;
        bool small = last && p->out[d + 1] < ROW_MIN && p->out[d] * p->out[d + 1] <= ROW_MAX;
        if ((whole(p, d) && whole(p, d + 1)) || one_for_all(p, d) || small) {
            join(lo, p, d);
            d = d > 0 ? d - 1 : 0;
        } else {
            d++;
        }
    }
}

/* Stretches of one step; none when they are too short to pay. */
static ru_kern_place_run *runs_of(rui_low *lo, const int64_t *from, int64_t n, int64_t *count)
{
    ru_kern_place_run *runs = rui_keep(lo, (n + 1) * (int64_t)sizeof *runs);
    *count = 0;
    for (int64_t i = 0; runs != NULL && i < n;) {
        int64_t step = i + 1 < n ? from[i + 1] - from[i] : 1, m = 1;
        bool none = from[i] < 0;
        while (i + m < n && (none ? from[i + m] < 0
                                  : from[i + m] >= 0 && from[i + m] - from[i + m - 1] == step)) {
            m++;
        }
        runs[(*count)++] = (ru_kern_place_run){i, m, from[i], m == 1 ? 1 : step};
        i += m;
    }
    if (*count > n / 4 && *count > 4) {
        *count = 0;
    }
    return runs;
}

ru_status rui_places_emit(rui_low *lo, rui_places *p, ru_value_id x, ru_value_id fill,
                          ru_value_id y, const char *name)
{
    const ru_type *xt = rui_type(lo, x), *yt = rui_type(lo, y);
    ru_dtype t = rui_kern_float(xt->dtype) ? rui_kern_dtype(lo, x) : xt->dtype;
    places_state *s = rui_keep(lo, (int64_t)sizeof *s);
    int64_t *dims = rui_keep(lo, RU_RANK_MAX * (int64_t)sizeof *dims);
    const int64_t **from = rui_keep(lo, RU_RANK_MAX * (int64_t)sizeof *from);
    merge(lo, p);
    if (s == NULL || dims == NULL || from == NULL || rui_done(lo) != RU_OK) {
        return rui_done(lo);
    }
    *s = (places_state){.k = ru_kern_best(),
                        .p = {.bytes = ru_dtype_bytes(t), .rank = p->rank, .dims = dims},
                        .rows = 1};
    int64_t step = 1;
    for (uint32_t d = p->rank; d-- > 0;) {
        dims[d] = p->out[d];
        for (int64_t i = 0; i < p->out[d]; i++) {
            p->from[d][i] = p->from[d][i] < 0 ? -1 : p->from[d][i] * step;
        }
        from[d] = p->from[d];
        step *= p->in[d];
        s->rows *= d + 1 < p->rank ? p->out[d] : 1;
    }
    s->p.from = from;
    s->p.runs = runs_of(lo, from[p->rank - 1], dims[p->rank - 1], &s->p.n_runs);
    rui_buf bufs[3] = {rui_in(lo, x, rui_plain_as(lo, xt, t)),
                       fill.v == 0 ? (rui_buf){0}
                                   : rui_in(lo, fill, rui_plain_as(lo, rui_type(lo, fill), t)),
                       rui_out(lo, y, rui_plain_as(lo, yt, t))};
    rui_emit(lo,
             &(rui_step){.kernel = name, .fn = places_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* -- the ops -------------------------------------------------------------------------------------
 */

/* Integers of a constant, NULL when absent; false when it is not constant. */
static bool const_ints(rui_low *lo, const ru_node *n, uint32_t k, const int64_t **xs,
                       uint32_t *count)
{
    *xs = NULL;
    *count = 0;
    if (!ru_node_has_in(n, k)) {
        return true;
    }
    const ru_value *v = &rui_graph(lo)->values[n->in[k].v];
    *xs = rui_const_i64(lo, n->in[k], count);
    if (*xs != NULL || v->kind != RU_VALUE_CONST || v->type.dtype != RU_I32 || v->data == NULL) {
        return *xs != NULL;
    }
    *count = (uint32_t)ru_type_count(&v->type);
    int64_t *wide = rui_keep(lo, (int64_t)(*count + 1) * (int64_t)sizeof *wide);
    for (uint32_t i = 0; wide != NULL && i < *count; i++) {
        wide[i] = ((const int32_t *)v->data)[i];
    }
    *xs = wide;
    return wide != NULL;
}

static bool movable(const ru_type *x, const ru_type *y)
{
    int64_t bytes = ru_dtype_bytes(x->dtype);
    return x->dtype == y->dtype && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) &&
           ru_type_count(x) > 0 && ru_type_count(y) > 0 && y->rank > 0;
}

/* First index and step of each axis of `t`. */
static bool slice_plan(rui_low *lo, const ru_node *n, uint32_t k, const ru_type *t, int64_t *first,
                       int64_t *step)
{
    const int64_t *starts, *axes, *steps;
    uint32_t count, n_axes, n_steps;
    if (!const_ints(lo, n, k, &starts, &count) || !const_ints(lo, n, k + 2, &axes, &n_axes) ||
        !const_ints(lo, n, k + 3, &steps, &n_steps) || starts == NULL) {
        return false;
    }
    for (uint32_t d = 0; d < t->rank; d++) {
        first[d] = 0;
        step[d] = 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = axes != NULL ? rui_axis(axes[i], t->rank) : i;
        if (d >= t->rank) {
            return false;
        }
        int64_t dim = t->dims[d], s = starts[i] + (starts[i] < 0 ? dim : 0);
        step[d] = steps != NULL ? steps[i] : 1;
        int64_t last = step[d] < 0 ? dim - 1 : dim;
        first[d] = s < 0 ? 0 : (s > last ? last : s);
    }
    return true;
}

/* Slice(x, starts, ends, axes?, steps?) and SliceGrad(dy, x_like, ...): any axes and steps. */
ru_status rui_lower_kern_slice(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool grad = n->op == RU_OP_SliceGrad;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    const ru_type *large = grad ? y : x, *small = grad ? x : y;
    int64_t first[RU_RANK_MAX], step[RU_RANK_MAX];
    rui_places p;
    if (!movable(x, y) || !slice_plan(lo, n, grad ? 2 : 1, large, first, step) ||
        !rui_places_new(lo, &p, x, y)) {
        return rui_done(lo) == RU_OK ? RU_E_UNSUPPORTED : rui_done(lo);
    }
    for (uint32_t d = 0; d < y->rank; d++) {
        for (int64_t i = 0; grad && i < y->dims[d]; i++) {
            p.from[d][i] = -1;
        }
        for (int64_t i = 0; i < small->dims[d]; i++) {
            int64_t at = first[d] + i * step[d];
            if (at < 0 || at >= large->dims[d]) {
                return RU_E_UNSUPPORTED;
            }
            p.from[d][grad ? at : i] = grad ? i : at;
        }
    }
    return rui_places_emit(lo, &p, n->in[0], (ru_value_id){0}, n->out[0],
                           grad ? "kern slice grad" : "kern slice");
}

/* Where position i (counted from the first kept element) of a padded axis reads; -1: the fill. */
static int64_t pad_from(int64_t i, int64_t dim, const char *mode)
{
    if (i >= 0 && i < dim) {
        return i;
    }
    if (strcmp(mode, "edge") == 0) {
        return i < 0 ? 0 : dim - 1;
    }
    if (strcmp(mode, "wrap") == 0) {
        return (i % dim + dim) % dim;
    }
    if (strcmp(mode, "reflect") == 0) {
        int64_t period = dim == 1 ? 1 : 2 * (dim - 1), r = (i % period + period) % period;
        return r < dim ? r : period - r;
    }
    return -1;
}

/* Pad(x, pads, fill?, axes?) and PadGrad(dy, pads, x_like) of mode constant. */
ru_status rui_lower_kern_pad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool grad = n->op == RU_OP_PadGrad;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    const char *mode = ru_node_str(n, RU_ATTR_mode, "constant");
    const int64_t *pads, *axes = NULL;
    uint32_t count, n_axes = 0;
    int64_t before[RU_RANK_MAX] = {0};
    rui_places p;
    if (!movable(x, y) || (grad && strcmp(mode, "constant") != 0) ||
        !const_ints(lo, n, 1, &pads, &count) || pads == NULL ||
        (!grad && !const_ints(lo, n, 3, &axes, &n_axes))) {
        return RU_E_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < count / 2; i++) {
        uint32_t d = axes != NULL ? rui_axis(axes[i], x->rank) : i;
        if (d >= x->rank) {
            return RU_E_UNSUPPORTED;
        }
        before[d] = pads[i];
    }
    if (!rui_places_new(lo, &p, x, y)) {
        return rui_done(lo);
    }
    for (uint32_t d = 0; d < y->rank; d++) {
        for (int64_t i = 0; i < y->dims[d]; i++) {
            int64_t at = grad ? i + before[d] : pad_from(i - before[d], x->dims[d], mode);
            p.from[d][i] = at < x->dims[d] ? at : -1;
        }
    }
    ru_value_id fill = !grad && ru_node_has_in(n, 2) ? n->in[2] : (ru_value_id){0};
    return rui_places_emit(lo, &p, n->in[0], fill, n->out[0], grad ? "kern pad grad" : "kern pad");
}

/* -- repetition ----------------------------------------------------------------------------------
 * An axis goes through its positions in x, and that `times` times. Axes are merged where either the
 * outer one has a single position or the inner one goes once, so short rows are all that is left to
 * do one by one; the rest are copies of what lies in the output already.
 */

enum { STORE = 16, SHORT_IN = 64, SHORT_OUT = 512, NEAR_BYTES = 16384 };

typedef struct repeat_state {
    uint32_t rank;
    int64_t in[RU_RANK_MAX], times[RU_RANK_MAX];
    int64_t x_step[RU_RANK_MAX], y_step[RU_RANK_MAX]; /* bytes from position to position */
    bool by_times;                                    /* parts: repetitions of axis 0 */
} repeat_state;

typedef struct store {
    char bytes[STORE];
} store;

/* n bytes, and times - 1 copies behind them: of twice as many each time, while they are near. */
static void repeat(char *y, int64_t n, int64_t times)
{
    int64_t all = n * times, from = n;
    for (int64_t done = n; done < all;) {
        int64_t now = from < all - done ? from : all - done;
        memcpy(y + done, y, (size_t)now);
        done += now;
        from = done <= NEAR_BYTES ? done : from;
    }
}

/* A row by whole stores: the last one may reach up to STORE - 1 bytes beyond it, and so may what is
 * read of x. */
static void short_row(const char *x, int64_t in, int64_t times, char *y)
{
    store v;
    if (in <= STORE && (in & (in - 1)) == 0) {
        for (int64_t i = 0; i < STORE; i += in) {
            memcpy(v.bytes + i, x, (size_t)in);
        }
        for (int64_t i = 0; i < in * times; i += STORE) {
            memcpy(y + i, &v, sizeof v);
        }
        return;
    }
    for (int64_t t = 0; t < times; t++) {
        for (int64_t i = 0; i < in; i += STORE) {
            memcpy(&v, x + i, sizeof v);
            memcpy(y + t * in + i, &v, sizeof v);
        }
    }
}

/* n rows of `in` bytes, each `times` times. What a short row stores too far, the next one mends. */
static void repeat_rows(const char *x, int64_t n, int64_t in, int64_t times, char *y)
{
    bool few = in <= SHORT_IN && in * times <= SHORT_OUT;
    int64_t i = 0, end = few ? n - (STORE + in - 1) / in - 1 : 0;
    for (; i < end; i++) {
        short_row(x + i * in, in, times, y + i * in * times);
    }
    for (; i < n; i++) {
        memcpy(y + i * in * times, x + i * in, (size_t)in);
        repeat(y + i * in * times, in, times);
    }
}

/* n positions of axis d, once. */
static void repeat_axis(const repeat_state *s, uint32_t d, int64_t n, const char *x, char *y)
{
    if (d + 1 == s->rank) {
        memcpy(y, x, (size_t)(n * s->x_step[d]));
        return;
    }
    int64_t in = s->in[d + 1], times = s->times[d + 1];
    if (d + 2 == s->rank) {
        repeat_rows(x, n, in * s->x_step[d + 1], times, y);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        char *to = y + i * s->y_step[d];
        repeat_axis(s, d + 1, in, x + i * s->x_step[d], to);
        repeat(to, in * s->y_step[d + 1], times);
    }
}

static void repeat_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const repeat_state *s = state;
    int64_t step = s->y_step[0], all = s->in[0] * step;
    char *y = (char *)bufs[1] + begin * (s->by_times ? all : step);
    if (s->by_times) {
        repeat_axis(s, 0, s->in[0], bufs[0], y);
        repeat(y, all, end - begin);
        return;
    }
    repeat_axis(s, 0, end - begin, (const char *)bufs[0] + begin * s->x_step[0], y);
    for (int64_t t = 1; t < s->times[0]; t++) {
        memcpy(y + t * all, y, (size_t)((end - begin) * step));
    }
}

static ru_status repeat_run(void *state, void *const *bufs, const rui_run *run)
{
    const repeat_state *s = state;
    int64_t n = s->by_times ? s->times[0] : s->in[0], other = s->by_times ? s->in[0] : s->times[0];
    rui_kern_for(run, repeat_part, s, bufs, n, rui_kern_grain(other * s->y_step[0] / 4 + 1));
    return RU_OK;
}

/* Axes of x and y, merged, for elements of `bytes`. */
static void repeat_plan(repeat_state *s, const ru_type *x, const ru_type *y, int64_t bytes)
{
    for (uint32_t d = 0; d < y->rank; d++) {
        uint32_t back = y->rank - d, last = s->rank - 1;
        int64_t in = back <= x->rank ? x->dims[x->rank - back] : 1, times = y->dims[d] / in;
        if (s->rank > 0 && (times == 1 || s->in[last] == 1)) {
            s->in[last] *= in;
            s->times[last] *= times;
        } else {
            s->in[s->rank] = in;
            s->times[s->rank++] = times;
        }
    }
    for (uint32_t d = s->rank; d-- > 0;) {
        bool last = d + 1 == s->rank;
        s->x_step[d] = last ? bytes : s->in[d + 1] * s->x_step[d + 1];
        s->y_step[d] = last ? bytes : s->in[d + 1] * s->times[d + 1] * s->y_step[d + 1];
    }
    s->by_times = s->times[0] > s->in[0];
}

/* Expand(x, shape) and Tile(x, repeats): the output's shape says all. */
ru_status rui_lower_kern_repeat(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    if (!movable(x, y)) {
        return RU_E_UNSUPPORTED;
    }
    repeat_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    ru_dtype t = rui_kern_float(x->dtype) ? rui_kern_dtype(lo, n->in[0]) : x->dtype;
    *s = (repeat_state){.rank = 0};
    repeat_plan(s, x, y, ru_dtype_bytes(t));
    rui_buf bufs[2] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, t)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, y, t))};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern repeat", .fn = repeat_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}
