/* Images times a factor for each channel, as in squeeze-and-excitation: [n, c, ..] * [n, c, 1, ..].
 *
 * Convolutions leave images with channels side by side (in blocks, or all of them). The general
 * broadcast works on rows in C order, so it cost a reorder of the image before and after it; here
 * the image stays as it stands. */
#include "exec/cpu/lower/lower_kern.h"

enum { BLOCK_MAX = 16 };

typedef struct gate_state {
    const ru_kern *k;
    ru_dtype t;
    int64_t batch, channels, lanes, places; /* lanes: channels side by side */
} gate_state;

/* Ranges of one image's lanes: [begin, end) of batch * channels / lanes. bufs: x factors y */
static void blocks_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    static const float zeros[BLOCK_MAX];
    const gate_state *s = state;
    int64_t step = s->places * s->lanes * ru_dtype_bytes(s->t);
    for (int64_t i = begin; i < end; i++) {
        s->k->bn_apply(&(ru_kern_bn){.t = s->t,
                                     .s = s->places,
                                     .lanes = s->lanes,
                                     .x = (const char *)bufs[0] + i * step,
                                     .out = (char *)bufs[2] + i * step,
                                     .mul = (const float *)bufs[1] + i * s->lanes,
                                     .add = zeros});
    }
}

/* Places [begin, end) of batch * places, all channels of one side by side. */
static void rows_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const gate_state *s = state;
    int64_t c = s->channels;
    for (int64_t r = begin; r < end; r++) {
        s->k->map2(RU_KERN_MAP2_Mul, 0, 0, s->t, (const float *)bufs[0] + r * c, 1,
                   (const float *)bufs[1] + r / s->places * c, 1, (float *)bufs[2] + r * c, c);
    }
}

static ru_status gate_run(void *state, void *const *bufs, const rui_run *run)
{
    const gate_state *s = state;
    if (s->lanes <= BLOCK_MAX) {
        rui_kern_for(run, blocks_part, s, bufs, s->batch * (s->channels / s->lanes),
                     rui_kern_grain(s->places * s->lanes));
    } else {
        rui_kern_for(run, rows_part, s, bufs, s->batch * s->places, rui_kern_grain(s->channels));
    }
    return RU_OK;
}

/* Is `f` one number for each image and channel of `x`? */
static bool is_gate(const ru_type *x, const ru_type *f)
{
    bool fits = f->rank == x->rank && x->rank >= 3 && f->dims[0] == x->dims[0] &&
                f->dims[1] == x->dims[1] && rui_dims(x, 2, x->rank) > 1;
    return fits && rui_dims(f, 2, f->rank) == 1;
}

ru_status rui_lower_kern_gate(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *out = rui_type(lo, n->out[0]);
    uint32_t image = is_gate(out, rui_type(lo, n->in[0])) ? 1 : 0;
    if (out->dtype != RU_F32 || n->n_in != 2 || !is_gate(out, rui_type(lo, n->in[1 - image])) ||
        rui_type(lo, n->in[image])->rank != out->rank || rui_undecided(lo, n->in[image]) ||
        ru_type_count(rui_type(lo, n->in[image])) != ru_type_count(out)) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *l = rui_standing(lo, n->in[image]);
    int64_t lanes =
        l->opaque || l->padded || l->md.ndims != (int)out->rank ? 0 : rui_side_by_side(l, out);
    bool rows = lanes > BLOCK_MAX && l->type.dtype == RU_F32;
    if (lanes == 0 || (lanes > BLOCK_MAX && !rows) ||
        (lanes <= BLOCK_MAX && lanes != 16 && lanes != 8) || !rui_kern_float(l->type.dtype)) {
        return RU_E_UNSUPPORTED;
    }
    gate_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (gate_state){.k = ru_kern_best(),
                      .t = l->type.dtype,
                      .batch = out->dims[0],
                      .channels = out->dims[1],
                      .lanes = lanes,
                      .places = rui_dims(out, 2, out->rank)};
    RU_CHECK(s->channels % s->lanes == 0);
    ru_value_id f = n->in[1 - image];
    rui_buf x = rui_in(lo, n->in[image], l);
    rui_buf bufs[3] = {x, rui_in(lo, f, rui_plain_as(lo, rui_type(lo, f), RU_F32)),
                       rui_out_over(lo, n->out[0], l, x)};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern gate", .fn = gate_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}
