/* Convolutions of one channel each, or of groups of few, group after group, row-major: over three
 * axes, which oneDNN computes as products of one row, and over two where the image stands
 * row-major, which oneDNN would reorder into blocks of channels and back. Groups of few channels it
 * would pad to vectors of them. */
#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    AXES = 3,
    WORK_MAX = 4 << 20, /* floats */
    FLAT_MAX = 1 << 17, /* of an image of two axes: stays near */
    FLAT_ROW = 8,       /* shorter rows fill too little of a vector */
    FLAT_TAPS = 25,     /* more cost more than reorders do */
    FEW = 8,            /* channels of a group */
    FEW_PAIRS = 32,     /* more pairs of channels fill vectors of them */
};

typedef struct depth_state {
    const ru_kern *k;
    ru_kern_depth d;
    int64_t n, groups, each; /* each: results of one group of the image's channels */
    int64_t work;            /* floats of one thread */
} depth_state;

enum { D_X, D_W, D_BIAS, D_Y, D_WORK, D_BUFS };

static void depth_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const depth_state *s = state;
    int64_t in = s->d.in[0] * s->d.in[1] * s->d.in[2],
            out = s->d.out[0] * s->d.out[1] * s->d.out[2];
    int64_t taps = s->d.kernel[0] * s->d.kernel[1] * s->d.kernel[2];
    for (int64_t r = begin, next; r < end; r = next) {
        int64_t group = r / s->each, o = r % (s->groups * s->each);
        next = (group + 1) * s->each < end ? (group + 1) * s->each : end;
        s->k->depth(&s->d, (const float *)bufs[D_X] + group * in,
                    (const float *)bufs[D_W] + o * taps,
                    bufs[D_BIAS] != NULL ? (const float *)bufs[D_BIAS] + o : NULL, next - r,
                    (float *)bufs[D_Y] + r * out, own);
    }
}

static ru_status depth_run(void *state, void *const *bufs, const rui_run *run)
{
    const depth_state *s = state;
    rui_kern_for_own(run, depth_part, s, bufs, s->n * s->groups * s->each,
                     rui_kern_grain(s->d.out[0] * s->d.out[1] * s->d.out[2]), bufs[D_WORK],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

/* Room for the image with all its padding, and for what the last windows reach. False: too much. */
static bool plan(ru_kern_depth *d, const rui_window *w)
{
    int64_t left = w->nsp == AXES ? WORK_MAX : FLAT_MAX;
    for (int k = 0; k < AXES; k++) {
        int at = k - (AXES - w->nsp); /* < 0: an axis of one */
        int64_t dilation = at < 0 ? 1 : w->dilate[at] + 1;
        d->in[k] = at < 0 ? 1 : w->in[at];
        d->out[k] = at < 0 ? 1 : w->out[at];
        d->kernel[k] = at < 0 ? 1 : w->kernel[at];
        d->stride[k] = at < 0 ? 1 : w->stride[at];
        d->dilation[k] = dilation;
        d->before[k] = at < 0 ? 0 : w->pad_l[at];
        if (at < 0 && k == 0) { /* the channels of a group */
            d->in[k] = d->kernel[k] = w->ci / w->groups;
        }
        int64_t reach = (d->out[k] - 1) * d->stride[k] + (d->kernel[k] - 1) * dilation + 1;
        int64_t inside = d->in[k] + d->before[k];
        d->room[k] = inside > reach ? inside : reach;
        left /= d->room[k];
    }
    return left > 0;
}

static bool pays(rui_low *lo, const ru_node *n, const rui_window *w)
{
    bool flat = w->nsp == 2 && w->out[1] >= FLAT_ROW && w->kernel[0] * w->kernel[1] <= FLAT_TAPS &&
                rui_standing(lo, n->in[0])->plain;
    bool padded = true;
    for (int k = 0; k < w->nsp; k++) {
        padded = padded && w->pad_l[k] >= 0;
    }
    bool alone = w->ci == w->groups;
    int64_t ci = w->ci / w->groups, co = w->co / w->groups;
    bool few = ci <= FEW && co <= FEW && ci * co <= FEW_PAIRS;
    return (w->nsp == AXES ? alone : flat && (alone || few)) && w->groups > 1 &&
           w->stride[w->nsp - 1] == 1 && padded;
}

ru_status rui_lower_kern_depth(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    if (!rui_inference(lo) || ru_type_count(rui_type(lo, n->out[0])) <= 0 ||
        !rui_conv_plain(lo, n, false, &w) || !pays(lo, n, &w)) {
        return RU_E_UNSUPPORTED;
    }
    depth_state made = {.k = ru_kern_best(), .n = w.n, .groups = w.groups, .each = w.co / w.groups};
    if (!plan(&made.d, &w)) {
        return RU_E_UNSUPPORTED;
    }
    made.work = (made.k->depth_work(&made.d) + 15) / 16 * 16;
    depth_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = made;
    rui_buf bufs[D_BUFS] = {[D_X] = rui_in_plain(lo, n->in[0]), [D_W] = rui_in_plain(lo, n->in[1])};
    bufs[D_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[D_Y] = rui_out_plain(lo, n->out[0]);
    bufs[D_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern depthwise",
                             .fn = depth_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = D_BUFS});
    rui_act_emit(lo, n);
    return rui_done(lo);
}
