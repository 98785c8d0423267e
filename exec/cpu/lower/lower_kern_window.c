/* Convolutions and transposed ones of images that stand row-major, group after group: of one
 * channel each over three axes, which oneDNN computes as products of one row; of few channels,
 * which it pads to vectors of them; and where the reorders into blocks of channels and back would
 * cost more than its kernels give. Transposed ones that sum many channels are a product first. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    AXES = 3,
    AXIS_TAPS = 64,
    TAPS_MAX = 1 << 14, /* of a group */
    LOOK_MAX = 1 << 24, /* taps looked at while all are listed, phase by phase */
    WORK_MAX = 4 << 20, /* floats */
    FLAT_MAX = 1 << 17, /* of an image of two axes: stays near */
    FLAT_ROW = 8,       /* shorter rows fill too little of a vector */
    FLAT_TAPS = 25,     /* more cost more than reorders do */
    OUTWARD_TAPS = 128, /* of a result that only the caller reads; more cost more than reorders */
    FEW = 8,            /* channels of a group */
    FEW_PAIRS = 32,     /* more pairs of channels fill vectors of them */
    TURNED_FEW = 16,    /* channels of a group on one side */
    BAND_MAX = 3 << 14, /* floats of a band of channels apart: stays near */
    NEAR_ROW = 8,       /* results of a row of a channel: fewer fill too little of a vector */
    TURNED_TAPS = 64,   /* of a result; more cost more than reorders do */
};

typedef struct window_state {
    const ru_kern *k;
    ru_kern_window g;
    int64_t n, groups, each; /* each: results of one group of the image's channels */
    int64_t w_group;         /* weights of a group */
    int64_t work;            /* floats of one thread */
} window_state;

enum { T_X, T_W, T_BIAS, T_Y, T_WORK, T_BUFS };

static void window_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const window_state *s = state;
    const ru_kern_window *g = &s->g;
    int64_t in = g->ci * g->in[0] * g->in[1] * g->in[2], out = g->out[0] * g->out[1] * g->out[2];
    for (int64_t r = begin, next; r < end; r = next) {
        int64_t part = r / s->each, o = r % (s->groups * s->each);
        next = (part + 1) * s->each < end ? (part + 1) * s->each : end;
        s->k->window(g, (const float *)bufs[T_X] + part * in,
                     (const float *)bufs[T_W] + part % s->groups * s->w_group +
                         r % s->each * g->w_step,
                     bufs[T_BIAS] != NULL ? (const float *)bufs[T_BIAS] + o : NULL, next - r,
                     (float *)bufs[T_Y] + r * out, own);
    }
}

static ru_status window_run(void *state, void *const *bufs, const rui_run *run)
{
    const window_state *s = state;
    rui_kern_for_own(run, window_part, s, bufs, s->n * s->groups * s->each,
                     rui_kern_grain(s->g.out[0] * s->g.out[1] * s->g.out[2]), bufs[T_WORK],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

/* The taps along one axis. */
typedef struct axis_taps {
    int64_t n, phase[AXIS_TAPS]; /* of the results that read it */
    int64_t off[AXIS_TAPS];      /* in the padded image, from where the taps begin */
} axis_taps;

/* Axis k of the plan. Results begin `every` apart; their taps begin at off + q * step. */
static void plan_axis(ru_kern_window *g, int k, const rui_window *w, bool turned, axis_taps *t)
{
    int at = k - (AXES - w->nsp); /* < 0: an axis of one */
    int64_t stride = at < 0 ? 1 : w->stride[at], pad = at < 0 ? 0 : w->pad_l[at], least = 0;
    g->in[k] = at < 0 ? 1 : w->in[at];
    g->out[k] = at < 0 ? 1 : w->out[at];
    g->every[k] = turned ? stride : 1;
    g->step[k] = turned ? 1 : stride;
    t->n = at < 0 ? 1 : w->kernel[at];
    for (int64_t i = 0; i < t->n; i++) {
        int64_t shift = i * (at < 0 ? 1 : w->dilate[at] + 1) - pad;
        int64_t phase = shift % g->every[k];
        t->phase[i] = phase < 0 ? phase + g->every[k] : phase;
        t->off[i] = turned ? (t->phase[i] - shift) / stride : shift;
        least = t->off[i] < least ? t->off[i] : least;
    }
    g->before[k] = -least;
    g->room[k] = g->in[k] - least;
    for (int64_t i = 0; i < t->n; i++) {
        t->off[i] -= least;
        int64_t places = (g->out[k] - t->phase[i] + g->every[k] - 1) / g->every[k];
        int64_t reach = (places - 1) * g->step[k] + t->off[i] + 1;
        g->room[k] = reach > g->room[k] ? reach : g->room[k];
    }
}

/* All taps, phase after phase. `w_channel` 0: each plane has one tap, its own, and all one weight.
 */
static void list_taps(const ru_kern_window *g, const axis_taps *t, int64_t w_channel,
                      ru_kern_tap *taps, int64_t *first)
{
    int64_t phases = g->every[0] * g->every[1] * g->every[2], n = 0;
    int64_t kernel = t[0].n * t[1].n * t[2].n;
    for (int64_t p = 0; p < phases; p++) {
        first[p] = n;
        for (int64_t j = 0; j < (w_channel != 0 ? g->ci * kernel : kernel); j++) {
            int64_t c = w_channel != 0 ? j / kernel : j, i = j % kernel, a = i / (t[1].n * t[2].n),
                    b = i / t[2].n % t[1].n, d = i % t[2].n;
            if ((t[0].phase[a] * g->every[1] + t[1].phase[b]) * g->every[2] + t[2].phase[d] == p) {
                int64_t plane = c * g->room[0] + t[0].off[a];
                int64_t at = (plane * g->room[1] + t[1].off[b]) * g->room[2] + t[2].off[d];
                taps[n++] =
                    (ru_kern_tap){(int32_t)at, (int32_t)(w_channel != 0 ? c * w_channel + i : 0)};
            }
        }
    }
    first[phases] = n;
}

static bool keep_taps(rui_low *lo, ru_kern_window *g, const axis_taps *t, int64_t w_channel)
{
    int64_t kernel = t[0].n * t[1].n * t[2].n, phases = g->every[0] * g->every[1] * g->every[2];
    ru_kern_tap *taps = rui_keep(lo, g->ci * kernel * (int64_t)sizeof *taps);
    int64_t *first = rui_keep(lo, (phases + 1) * (int64_t)sizeof *first);
    if (taps == NULL || first == NULL) {
        return false;
    }
    list_taps(g, t, w_channel, taps, first);
    g->taps = taps;
    g->first = first;
    return true;
}

/* `own`: each channel has one tap, its own. False: more than it is for. */
static bool plan(window_state *s, const rui_window *w, bool turned, bool own, int64_t room,
                 axis_taps t[AXES])
{
    for (int d = 0; d < w->nsp; d++) {
        if (w->kernel[d] > AXIS_TAPS || (turned && w->stride[d] > AXIS_TAPS)) {
            return false;
        }
    }
    room /= s->g.ci;
    for (int k = 0; k < AXES; k++) {
        plan_axis(&s->g, k, w, turned, &t[k]);
        room /= s->g.room[k];
    }
    int64_t kernel = t[0].n * t[1].n * t[2].n;
    s->w_group = s->g.ci * s->each * kernel;
    s->g.w_step = turned ? kernel : s->g.ci * kernel;
    int64_t phases = s->g.every[0] * s->g.every[1] * s->g.every[2];
    int64_t taps = own ? kernel : s->g.ci * kernel;
    return room > 0 && s->w_group < INT32_MAX && taps <= TAPS_MAX && phases * taps <= LOOK_MAX;
}

static ru_status lower(rui_low *lo, const ru_node *n, const rui_window *w, bool turned,
                       int64_t room)
{
    window_state made = {
        .k = ru_kern_best(), .n = w->n, .groups = w->groups, .each = w->co / w->groups};
    made.g.ci = w->ci / w->groups;
    axis_taps t[AXES];
    if (!plan(&made, w, turned, false, room, t)) {
        return RU_E_UNSUPPORTED;
    }
    int64_t kernel = t[0].n * t[1].n * t[2].n;
    window_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL || !keep_taps(lo, &made.g, t, turned ? made.each * kernel : kernel)) {
        return rui_done(lo);
    }
    made.work = (made.k->window_work(&made.g) + 15) / 16 * 16;
    *s = made;
    rui_buf bufs[T_BUFS] = {[T_X] = rui_in_plain(lo, n->in[0]), [T_W] = rui_in_plain(lo, n->in[1])};
    bufs[T_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[T_Y] = rui_out_plain(lo, n->out[0]);
    bufs[T_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = turned ? "kern deconv windows" : "kern conv windows",
                             .fn = window_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = T_BUFS});
    rui_act_emit(lo, n);
    return rui_done(lo);
}

static bool pays(rui_low *lo, const ru_node *n, const rui_window *w, int64_t *room)
{
    int64_t ci = w->ci / w->groups, co = w->co / w->groups, taps = ci;
    for (int d = 0; d < w->nsp; d++) {
        taps *= w->kernel[d];
    }
    bool in_rows = w->nsp != 1 && w->out[w->nsp - 1] >= FLAT_ROW &&
                   rui_standing(lo, n->in[0])->plain && w->stride[w->nsp - 1] == 1;
    bool alone = w->ci == w->groups && w->groups > 1;
    bool few = w->groups > 1 && ci <= FEW && co <= FEW && ci * co <= FEW_PAIRS;
    bool outward = ru_kern_at(RU_KERN_AVX512) != NULL && rui_leaves(lo, n) && taps <= OUTWARD_TAPS;
    *room = w->nsp == AXES || outward ? WORK_MAX : FLAT_MAX;
    if (w->nsp == AXES && alone) {
        return w->stride[w->nsp - 1] == 1;
    }
    return in_rows && (outward || (w->nsp == 2 && taps <= FLAT_TAPS * ci && (alone || few)));
}

/* -- channels apart ------------------------------------------------------------------------------
 */

typedef struct apart_state {
    const ru_kern_numbers *k;
    ru_kern_apart g;
    int64_t n, channels, lanes, blocks, bands, work;
} apart_state;

/* A part is a band of a channel. */
static void near_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const apart_state *s = state;
    const ru_kern_apart *g = &s->g;
    const float *bias = bufs[T_BIAS];
    for (int64_t r = begin; r < end; r++) {
        int64_t plane = r / s->bands, c = plane % s->channels, band = r % s->bands;
        s->k->near(g, (const float *)bufs[T_X] + plane * g->in[1] * g->in[2],
                   (const float *)bufs[T_W] + c * g->n_taps, bias != NULL ? bias[c] : 0.0f,
                   g->out[1] * band / s->bands, g->out[1] * (band + 1) / s->bands,
                   (float *)bufs[T_Y] + plane * g->out[1] * g->out[2]);
    }
}

static ru_status near_run(void *state, void *const *bufs, const rui_run *run)
{
    const apart_state *s = state;
    rui_kern_for(run, near_part, s, bufs, s->n * s->channels * s->bands,
                 rui_kern_grain(s->g.out[1] / s->bands * s->g.out[2] * s->g.n_taps / 4));
    return RU_OK;
}

/* A part is a band of a block of channels. */
static void apart_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const apart_state *s = state;
    const ru_kern_apart *g = &s->g;
    const int64_t in = g->in[0] * g->in[1] * g->in[2], out = g->out[0] * g->out[1] * g->out[2];
    const float *bias = bufs[T_BIAS];
    for (int64_t r = begin; r < end; r++) {
        int64_t image = r / s->bands / s->blocks, c = r / s->bands % s->blocks * s->lanes;
        int64_t b0 = r % s->bands * g->band, b1 = b0 + g->band, n = s->channels - c;
        int64_t plane = image * s->channels + c;
        s->k->apart(g, (const float *)bufs[T_X] + plane * in, n < s->lanes ? n : s->lanes,
                    (const float *)bufs[T_W] + c * g->n_taps, bias != NULL ? bias + c : NULL, b0,
                    b1 < g->out[1] ? b1 : g->out[1], (float *)bufs[T_Y] + plane * out, own);
    }
}

static ru_status apart_run(void *state, void *const *bufs, const rui_run *run)
{
    const apart_state *s = state;
    int64_t places = s->g.out[0] * s->g.band * s->g.out[2];
    rui_kern_for_own(run, apart_part, s, bufs, s->n * s->blocks * s->bands,
                     rui_kern_grain(places * s->g.n_taps), bufs[T_WORK],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

static void apart_axes(const rui_window *w, apart_state *s, axis_taps t[AXES])
{
    ru_kern_window g = {0};
    *s = (apart_state){.k = ru_kern_numbers_best(), .n = w->n, .channels = w->ci};
    for (int k = 0; k < AXES; k++) {
        plan_axis(&g, k, w, false, &t[k]);
        s->g.in[k] = g.in[k];
        s->g.out[k] = g.out[k];
        s->g.before[k] = g.before[k];
        s->g.room[k] = g.room[k];
        s->g.step[k] = g.step[k];
        s->g.kernel[k] = t[k].n;
    }
    s->lanes = s->k->apart_lanes();
    s->blocks = (s->channels + s->lanes - 1) / s->lanes;
    s->g.n_taps = t[0].n * t[1].n * t[2].n;
}

/* Channels in lanes, half of each block at least. False: more than it is for. */
static bool apart_plan(rui_low *lo, apart_state *s)
{
    ru_kern_apart *g = &s->g;
    int64_t reach = g->room[1] - (g->out[1] - 1) * g->step[1];
    reach = reach < 1 ? 1 : reach;
    /* by division, because the product of far padding overflows */
    if (2 * s->channels < s->blocks * s->lanes || s->channels == 1 ||
        reach > WORK_MAX / s->lanes / g->room[0] / g->room[2]) {
        return false;
    }
    int64_t row = g->room[0] * g->room[2] * s->lanes;
    int64_t band = row > BAND_MAX ? 1 : (BAND_MAX / row - reach) / g->step[1] + 1;
    band = band < 1 ? 1 : band > g->out[1] ? g->out[1] : band;
    int64_t parts = s->n * s->blocks, threads = (int64_t)rui_threads(lo);
    s->bands = (g->out[1] + band - 1) / band;
    s->bands = parts * s->bands < threads && g->out[1] >= threads ? threads : s->bands;
    g->band = (g->out[1] + s->bands - 1) / s->bands;
    s->bands = (g->out[1] + g->band - 1) / g->band;
    g->room[1] = (g->band - 1) * g->step[1] + reach;
    s->work = (s->k->apart_work(g) + 15) / 16 * 16;
    return s->work <= WORK_MAX;
}

/* In rows instead. One core (Zen 5), time by lanes over that by rows: 2.0 of 3x3 windows of
 * 32 x 112 x 112, 1.3 of 128 x 28 x 28, 1.0 of 512 x 7 x 7, 1.2 of 5x5 of 96 x 28 x 28. */
static bool near_plan(rui_low *lo, const rui_window *w, apart_state *s)
{
    ru_kern_apart *g = &s->g;
    bool dense = w->nsp < AXES;
    for (int d = 0; d < w->nsp; d++) {
        dense = dense && (w->stride[d] == 1 || w->out[d] == 1) &&
                (w->dilate[d] == 0 || w->kernel[d] == 1);
    }
    int64_t rows = dense ? s->k->near_rows(g) : 0, parts = s->n * s->channels;
    if (rows == 0 || g->out[1] < rows || g->out[2] < NEAR_ROW) {
        return false;
    }
    int64_t most = g->out[1] / rows, threads = (int64_t)rui_threads(lo);
    s->bands = parts >= threads ? 1 : most < threads ? most : threads;
    return true;
}

static void apart_emit(rui_low *lo, const ru_node *n, apart_state *s, bool near)
{
    rui_buf bufs[T_BUFS] = {[T_X] = rui_in_plain(lo, n->in[0]), [T_W] = rui_in_plain(lo, n->in[1])};
    bufs[T_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[T_Y] = rui_out_plain(lo, n->out[0]);
    bufs[T_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = near ? "kern conv apart in rows" : "kern conv apart",
                             .fn = near ? near_run : apart_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = T_BUFS});
    rui_act_emit(lo, n);
}

static ru_status lower_apart(rui_low *lo, const ru_node *n, const rui_window *w)
{
    axis_taps t[AXES];
    apart_state made;
    for (int d = 0; d < w->nsp; d++) {
        if (w->kernel[d] > AXIS_TAPS) {
            return RU_E_UNSUPPORTED;
        }
    }
    apart_axes(w, &made, t);
    const bool near = near_plan(lo, w, &made);
    if (!near && !apart_plan(lo, &made)) {
        return RU_E_UNSUPPORTED;
    }
    apart_state *s = rui_keep(lo, (int64_t)sizeof *s);
    int32_t *taps = rui_keep(lo, made.g.n_taps * (int64_t)sizeof *taps);
    if (s == NULL || taps == NULL) {
        return rui_done(lo);
    }
    for (int64_t k = 0; k < made.g.n_taps; k++) {
        int64_t a = k / (t[1].n * t[2].n), b = k / t[2].n % t[1].n, d = k % t[2].n;
        taps[k] =
            (int32_t)((t[0].off[a] * made.g.room[1] + t[1].off[b]) * made.g.room[2] + t[2].off[d]);
    }
    made.g.taps = taps;
    *s = made;
    apart_emit(lo, n, s, near);
    return rui_done(lo);
}

/* One channel to one. */
static bool apart_pays(rui_low *lo, const ru_node *n, const rui_window *w)
{
    return w->ci == w->groups && w->co == w->groups && rui_standing(lo, n->in[0])->plain &&
           rui_leaves(lo, n);
}

ru_status rui_lower_kern_window(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    int64_t room = 0;
    if (!rui_inference(lo) || !rui_conv_plain(lo, n, false, &w)) {
        return RU_E_UNSUPPORTED;
    }
    bool takes = pays(lo, n, &w, &room);
    if (apart_pays(lo, n, &w)) {
        ru_status st = lower_apart(lo, n, &w);
        if (st != RU_E_UNSUPPORTED) {
            return st;
        }
    }
    if (!takes) {
        return RU_E_UNSUPPORTED;
    }
    return lower(lo, n, &w, false, room);
}

/* One core with AVX-512, 64 x 64 channels of 128x128, time of oneDNN's kernels over that of these:
 * 0.7 of 3x3 windows, 0.75 of 4x4 with steps of two, 1.5 of 2x2 with steps of two. */
static bool turned_pays(const rui_window *w)
{
    int64_t ci = w->ci / w->groups, co = w->co / w->groups, taps = ci, phases = 1;
    for (int d = 0; d < w->nsp; d++) {
        taps *= w->kernel[d];
        phases *= w->stride[d];
    }
    return ci <= TURNED_FEW || co <= TURNED_FEW || taps <= TURNED_TAPS * phases;
}

/* -- transposed: a product, then sums ------------------------------------------------------------
 * columns [co kernel, image] = w [ci, co kernel] transposed * x [ci, image]
 * y of a channel = the windows of its `kernel` planes of columns, each with one tap of weight 1
 * Some channels of columns at a time stay near. */

enum {
    COLUMNS_NEAR = 1 << 17, /* floats: 512 KiB */
    COLUMNS_DEEP = 8,       /* sums of fewer products are no work for a product */
    COLUMNS_WIDE = 32,      /* a smaller image leaves a vector empty */
    COLUMNS_CI = 32,        /* sums of more: a product is faster than windows, as it is for */
    COLUMNS_CO = 4,         /* fewer channels of the result, which leave windows few registers */
};

typedef struct columns_state {
    window_state s; /* of one channel of the result */
    int64_t ci, co; /* of a group */
    int64_t kernel, image, each, packed;
    int64_t w_row, w_col;     /* steps from one row of the product's left side, and one column */
    int64_t columns, product; /* floats of one thread, before those of the window */
    float one;
} columns_state;

enum { C_X, C_W, C_BIAS, C_Y, C_PACKED, C_WORK, C_BUFS };

static void columns_pack(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const columns_state *c = state;
    for (int64_t p = begin; p < end; p++) {
        c->s.k->gemm_pack((const float *)bufs[C_X] + p * c->ci * c->image, c->image, 1, c->ci,
                          c->image, (float *)bufs[C_PACKED] + p * c->packed);
    }
}

static void columns_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                         void *own)
{
    const columns_state *c = state;
    const ru_kern_window *g = &c->s.g;
    float *columns = own, *work = columns + c->columns;
    int64_t out = g->out[0] * g->out[1] * g->out[2];
    for (int64_t r = begin, next; r < end; r = next) {
        int64_t part = r / c->co, group = part % c->s.groups, o = r % c->co;
        next = r - o + (o / c->each + 1) * c->each;
        next = next < (part + 1) * c->co ? next : (part + 1) * c->co;
        next = next < end ? next : end;
        const float *w = (const float *)bufs[C_W] + group * c->ci * c->co * c->kernel;
        c->s.k->gemm(&(ru_kern_gemm){.m = (next - r) * c->kernel,
                                     .n = c->image,
                                     .k = c->ci,
                                     .a = w + o * c->kernel * c->w_row,
                                     .a_row = c->w_row,
                                     .a_col = c->w_col,
                                     .packed_b = (const float *)bufs[C_PACKED] + part * c->packed,
                                     .c = columns,
                                     .c_row = c->image,
                                     .alpha = 1.0f,
                                     .work = work});
        for (int64_t k = r; k < next; k++) {
            const float *bias = bufs[C_BIAS];
            c->s.k->window(g, columns + (k - r) * c->kernel * c->image, &c->one,
                           bias != NULL ? bias + group * c->co + k % c->co : NULL, 1,
                           (float *)bufs[C_Y] + k * out, work + c->product);
        }
    }
}

static ru_status columns_run(void *state, void *const *bufs, const rui_run *run)
{
    const columns_state *c = state;
    int64_t parts = c->s.n * c->s.groups;
    rui_kern_for(run, columns_pack, c, bufs, parts, rui_kern_grain(c->ci * c->image));
    rui_kern_for_own(run, columns_part, c, bufs, parts * c->co,
                     rui_kern_grain(c->kernel * c->image * c->ci / 8), bufs[C_WORK],
                     c->s.work * (int64_t)sizeof(float));
    return RU_OK;
}

/* False: more than it is for. */
static bool columns_plan(const rui_window *w, columns_state *c, axis_taps t[AXES])
{
    *c = (columns_state){.s = {.k = ru_kern_best(), .n = w->n, .groups = w->groups, .each = 1},
                         .ci = w->ci / w->groups,
                         .co = w->co / w->groups,
                         .kernel = 1,
                         .image = 1,
                         .one = 1.0f};
    for (int d = 0; d < w->nsp; d++) {
        c->kernel *= w->kernel[d];
        c->image *= w->in[d];
    }
    c->s.g.ci = c->kernel;
    if (c->ci < COLUMNS_DEEP || c->image < COLUMNS_WIDE ||
        !plan(&c->s, w, true, true, WORK_MAX, t)) {
        return false;
    }
    c->s.g.w_step = 0;
    int64_t each = COLUMNS_NEAR / (c->kernel * c->image);
    c->each = each < 1 ? 1 : each > c->co ? c->co : each;
    c->packed = (c->s.k->gemm_pack_floats(c->ci, c->image) + 15) / 16 * 16;
    c->columns = (c->each * c->kernel * c->image + 15) / 16 * 16;
    c->product = (c->s.k->gemm_work(c->each * c->kernel, 0, c->ci) + 15) / 16 * 16;
    c->s.work = c->columns + c->product + (c->s.k->window_work(&c->s.g) + 15) / 16 * 16;
    return true;
}

/* Held weights are turned once, so that a row of the product's left side stands side by side. */
static rui_buf columns_weights(rui_low *lo, const ru_node *n, columns_state *c)
{
    const ru_value *v = &rui_graph(lo)->values[n->in[1].v];
    int64_t rows = c->co * c->kernel, all = rows * c->ci;
    c->w_row = 1;
    c->w_col = rows;
    if (v->kind != RU_VALUE_CONST && (v->kind != RU_VALUE_STATE || !rui_inference(lo))) {
        return rui_in_plain(lo, n->in[1]);
    }
    const int64_t dims[] = {c->s.groups, rows, c->ci}, turned[] = {all, 1, rows};
    dnnl_memory_desc_t seen = rui_md_strided(lo, 3, dims, turned, dnnl_f32);
    dnnl_memory_desc_t want = rui_md_plain(lo, 3, dims, dnnl_f32);
    c->w_row = c->ci;
    c->w_col = 1;
    return rui_in_as(lo, n->in[1], &seen, &want);
}

ru_status rui_lower_kern_columns(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    axis_taps t[AXES];
    columns_state made;
    if (!rui_conv_plain(lo, n, true, &w) || !rui_standing(lo, n->in[0])->plain ||
        (rui_inference(lo) && turned_pays(&w) && w.ci / w.groups <= COLUMNS_CI &&
         w.co / w.groups >= COLUMNS_CO) ||
        !columns_plan(&w, &made, t)) {
        return RU_E_UNSUPPORTED;
    }
    columns_state *c = rui_keep(lo, (int64_t)sizeof *c);
    if (c == NULL || !keep_taps(lo, &made.s.g, t, 0)) {
        return rui_done(lo);
    }
    *c = made;
    rui_buf bufs[C_BUFS] = {[C_X] = rui_in_plain(lo, n->in[0]), [C_W] = columns_weights(lo, n, c)};
    bufs[C_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[C_Y] = rui_out_plain(lo, n->out[0]);
    bufs[C_PACKED] = rui_scratch(lo, w.n * w.groups * c->packed * (int64_t)sizeof(float));
    bufs[C_WORK] = rui_scratch(lo, c->s.work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern deconv columns",
                             .fn = columns_run,
                             .state = c,
                             .bufs = bufs,
                             .n_bufs = C_BUFS});
    rui_act_emit(lo, n);
    return rui_done(lo);
}

ru_status rui_lower_kern_window_turned(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    if (!rui_inference(lo) || !rui_conv_plain(lo, n, true, &w) ||
        !rui_standing(lo, n->in[0])->plain || !turned_pays(&w)) {
        return RU_E_UNSUPPORTED;
    }
    return lower(lo, n, &w, true, WORK_MAX);
}
