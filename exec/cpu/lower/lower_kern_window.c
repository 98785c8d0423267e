/* Convolutions and transposed ones of images that stand row-major, group after group: of one
 * channel each over three axes, which oneDNN computes as products of one row; of few channels,
 * which it pads to vectors of them; and where the reorders into blocks of channels and back would
 * cost more than its kernels give. */
#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    AXES = 3,
    AXIS_TAPS = 32,
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

/* All taps, phase after phase. */
static void list_taps(const ru_kern_window *g, const axis_taps *t, int64_t w_channel,
                      ru_kern_tap *taps, int64_t *first)
{
    int64_t phases = g->every[0] * g->every[1] * g->every[2], n = 0;
    int64_t kernel = t[0].n * t[1].n * t[2].n;
    for (int64_t p = 0; p < phases; p++) {
        first[p] = n;
        for (int64_t i = 0; i < g->ci * kernel; i++) {
            int64_t c = i / kernel, a = i / (t[1].n * t[2].n) % t[0].n, b = i / t[2].n % t[1].n,
                    d = i % t[2].n;
            if ((t[0].phase[a] * g->every[1] + t[1].phase[b]) * g->every[2] + t[2].phase[d] == p) {
                int64_t plane = c * g->room[0] + t[0].off[a];
                int64_t at = (plane * g->room[1] + t[1].off[b]) * g->room[2] + t[2].off[d];
                taps[n++] = (ru_kern_tap){(int32_t)at, (int32_t)(c * w_channel + i % kernel)};
            }
        }
    }
    first[phases] = n;
}

/* False: more than it is for. */
static bool plan(window_state *s, const rui_window *w, bool turned, int64_t room, axis_taps t[AXES])
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
    return room > 0 && s->w_group < INT32_MAX && s->g.ci * kernel <= TAPS_MAX &&
           phases * s->g.ci * kernel <= LOOK_MAX;
}

static ru_status lower(rui_low *lo, const ru_node *n, const rui_window *w, bool turned,
                       int64_t room)
{
    window_state made = {
        .k = ru_kern_best(), .n = w->n, .groups = w->groups, .each = w->co / w->groups};
    made.g.ci = w->ci / w->groups;
    axis_taps t[AXES];
    if (!plan(&made, w, turned, room, t)) {
        return RU_E_UNSUPPORTED;
    }
    int64_t kernel = t[0].n * t[1].n * t[2].n;
    int64_t phases = made.g.every[0] * made.g.every[1] * made.g.every[2];
    window_state *s = rui_keep(lo, (int64_t)sizeof *s);
    ru_kern_tap *taps = rui_keep(lo, made.g.ci * kernel * (int64_t)sizeof *taps);
    int64_t *first = rui_keep(lo, (phases + 1) * (int64_t)sizeof *first);
    if (s == NULL || taps == NULL || first == NULL) {
        return rui_done(lo);
    }
    list_taps(&made.g, t, turned ? made.each * kernel : kernel, taps, first);
    made.g.taps = taps;
    made.g.first = first;
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

/* Nobody but the caller reads the result, in rows, so that oneDNN would reorder it back. */
static bool leaves(const rui_low *lo, const ru_node *n)
{
    return rui_uses(lo, n->out[0]) == 1 && rui_only_reader(lo, n->out[0]) == NULL;
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
    bool outward = ru_kern_at(RU_KERN_AVX512) != NULL && leaves(lo, n) && taps <= OUTWARD_TAPS;
    *room = w->nsp == AXES || outward ? WORK_MAX : FLAT_MAX;
    if (w->nsp == AXES && alone) {
        return w->stride[w->nsp - 1] == 1;
    }
    return in_rows && (outward || (w->nsp == 2 && taps <= FLAT_TAPS * ci && (alone || few)));
}

ru_status rui_lower_kern_window(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    int64_t room = 0;
    if (!rui_inference(lo) || !rui_conv_plain(lo, n, false, &w) || !pays(lo, n, &w, &room)) {
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
