/* Pools that oneDNN does not take: maxima with their places or with dilation, averages whose
 * windows hang over the end (ceil_mode), NaN kept. Plain images, f32; every window in row-major
 * order, its taps cut to the image once per axis. */
#include <math.h>
#include <string.h>

#include "exec/low/window.h"
#include "exec/lower/lower_kern.h"

enum { AXES = 3 };

typedef struct pool_state {
    int64_t in[AXES], out[AXES], kernel[AXES], stride[AXES], dilation[AXES];
    int64_t before[AXES], after[AXES]; /* padding that counts */
    int64_t planes, big, small;
    bool max, with_pads, by_columns;
} pool_state;

/* Taps of one axis that lie inside the image: first, number; `all`: also those in the padding. */
typedef struct taps {
    int64_t from, n, all;
} taps;

static taps taps_at(const pool_state *s, int d, int64_t o)
{
    taps t = {.from = -1};
    int64_t low = s->with_pads ? -s->before[d] : 0;
    int64_t high = s->in[d] + (s->with_pads ? s->after[d] : 0);
    for (int64_t k = 0; k < s->kernel[d]; k++) {
        int64_t i = o * s->stride[d] - s->before[d] + k * s->dilation[d];
        if (i >= 0 && i < s->in[d]) {
            t.from = t.n == 0 ? i : t.from;
            t.n++;
        }
        t.all += i >= low && i < high;
    }
    return t;
}

static int64_t max_of(const pool_state *s, const float *x, const taps *t)
{
    int64_t best = -1;
    for (int64_t a = 0; a < t[0].n; a++) {
        for (int64_t b = 0; b < t[1].n; b++) {
            int64_t row =
                ((t[0].from + a * s->dilation[0]) * s->in[1] + t[1].from + b * s->dilation[1]) *
                s->in[2];
            for (int64_t c = 0; c < t[2].n; c++) {
                int64_t i = row + t[2].from + c * s->dilation[2];
                bool more = best < 0 || x[i] > x[best] || (x[i] != x[i] && x[best] == x[best]);
                best = more ? i : best;
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

/* Rows of results, along the last axis. bufs: x y places, which may be absent */
static void pool_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const pool_state *s = state;
    for (int64_t r = begin; r < end; r++) {
        int64_t plane = r / (s->out[0] * s->out[1]);
        const float *x = (const float *)bufs[0] + plane * s->big;
        float *y = (float *)bufs[1] + r * s->out[2];
        int64_t *place = bufs[2] == NULL ? NULL : (int64_t *)bufs[2] + r * s->out[2];
        taps t[AXES] = {taps_at(s, 0, r / s->out[1] % s->out[0]), taps_at(s, 1, r % s->out[1])};
        for (int64_t o = 0; o < s->out[2]; o++) {
            t[2] = taps_at(s, 2, o);
            if (!s->max) {
                y[o] = mean_of(s, x, t);
                continue;
            }
            int64_t best = max_of(s, x, t);
            y[o] = best < 0 ? -INFINITY : x[best];
            if (place != NULL) {
                place[o] =
                    plane * s->big + (s->by_columns && best > 0 ? by_columns(s, best) : best);
            }
        }
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

ru_status rui_lower_kern_pool(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    rui_window w;
    if (x->dtype != RU_F32 || x->rank > AXES + 2 ||
        rui_window_of(n, x, NULL, y, false, false, &w) != RU_OK) {
        return RU_E_UNSUPPORTED;
    }
    pool_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    s->max = n->op == RU_OP_MaxPool;
    s->with_pads = ru_node_int(n, RU_ATTR_count_include_pad, 0) != 0;
    s->by_columns = ru_node_int(n, RU_ATTR_storage_order, 0) != 0;
    plan(s, &w, n);
    bool places = ru_node_has_out(n, 1);
    rui_buf bufs[3] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0]),
                       places ? rui_out_plain(lo, n->out[1]) : (rui_buf){0}};
    rui_emit(lo, &(rui_step){.kernel = s->max ? "kern max pool" : "kern average pool",
                             .fn = pool_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}
