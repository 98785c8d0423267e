/* GroupNormalization and InstanceNormalization, forward and backward: one group at a time. */
#include "exec/cpu/lower/lower_kern.h"

typedef struct group_state {
    const ru_kern *k;
    ru_dtype t;
    int64_t samples, groups, channels, inner; /* channels: of one group */
    float epsilon;
} group_state;

/* False when the op's attributes or types are not for the kernels. */
static bool group_of(rui_low *lo, const ru_node *n, ru_value_id x, ru_value_id scale,
                     group_state *s)
{
    const ru_type *t = rui_type(lo, x);
    bool instance = n->op == RU_OP_InstanceNormalization || n->op == RU_OP_InstanceNormGrad;
    if (t->rank < 2 || ru_type_count(t) <= 0) {
        return false;
    }
    int64_t groups = instance ? t->dims[1] : ru_node_int(n, RU_ATTR_num_groups, 1);
    ru_dtype dt = rui_kern_dtype(lo, x);
    if (groups < 1 || t->dims[1] % groups != 0 || !rui_kern_float(dt) ||
        ru_type_count(rui_type(lo, scale)) != t->dims[1]) {
        return false;
    }
    *s = (group_state){.k = ru_kern_best(),
                       .t = dt,
                       .samples = t->dims[0],
                       .groups = groups,
                       .channels = t->dims[1] / groups,
                       .inner = rui_dims(t, 2, t->rank),
                       .epsilon = (float)ru_node_float(n, RU_ATTR_epsilon, 1e-5)};
    return true;
}

static rui_buf in_f32(rui_low *lo, ru_value_id v)
{
    return rui_in(lo, v, rui_plain_as(lo, rui_type(lo, v), RU_F32));
}

enum {
    FEW_PLACES = 64, /* below it channels are joined to rows */
    SPREAD = 1024,   /* elements whose coefficients stay in L1 */
};

/* y = d * mul + add of `channels` channels. */
static void spread_out(const group_state *s, const float *d, const float *mul, const float *add,
                       float *y, int64_t channels)
{
    float by[SPREAD + RUI_SPREAD_PAST], off[SPREAD + RUI_SPREAD_PAST];
    if (s->inner > 1) {
        rui_kern_spread(mul, channels, s->inner, by);
        rui_kern_spread(add, channels, s->inner, off);
        mul = by;
        add = off;
    }
    s->k->bn_apply(&(ru_kern_bn){
        .t = RU_F32, .lanes = channels * s->inner, .x = d, .out = y, .mul = mul, .add = add});
}

/* w whole groups of one sample, of at most SPREAD elements together. */
static void small_groups(const group_state *s, const float *x, const float *scale,
                         const float *bias, float *y, int64_t w)
{
    float mean[SPREAD], each[SPREAD + RUI_SPREAD_PAST], d[SPREAD], mul[SPREAD];
    int64_t n = s->channels * s->inner;
    float count = (float)n;
    s->k->reduce_rows(RU_KERN_RED_SUM, RU_F32, x, w, n, mean);
    s->k->map2(RU_KERN_MAP2_Div, 0, 0, RU_F32, mean, 1, &count, 0, mean, w);
    rui_kern_spread(mean, w, n, each);
    s->k->map2(RU_KERN_MAP2_Sub, 0, 0, RU_F32, x, 1, each, 1, d, w * n);
    s->k->reduce_rows(RU_KERN_RED_SUM_SQUARE, RU_F32, d, w, n, mean);
    s->k->map1(RU_KERN_MAP1_Scale, 1.0f / count, s->epsilon, RU_F32, mean, mean, w);
    s->k->map1(RU_KERN_MAP1_Sqrt, 0, 0, RU_F32, mean, mean, w);
    rui_kern_spread(mean, w, s->channels, each);
    s->k->map2(RU_KERN_MAP2_Div, 0, 0, RU_F32, scale, 1, each, 1, mul, w * s->channels);
    spread_out(s, d, mul, bias, y, w * s->channels);
}

/* One group of many channels of few places. */
static void wide_group(const group_state *s, const float *x, const float *scale, const float *bias,
                       float *y)
{
    float d[SPREAD], mul[SPREAD], mean, inverse;
    int64_t many = SPREAD / s->inner;
    s->k->moments(RU_F32, x, s->channels * s->inner, s->epsilon, &mean, &inverse);
    for (int64_t c = 0; c < s->channels; c += many) {
        int64_t w = s->channels - c < many ? s->channels - c : many, at = c * s->inner;
        s->k->map1(RU_KERN_MAP1_Scale, 1.0f, -mean, RU_F32, x + at, d, w * s->inner);
        s->k->map1(RU_KERN_MAP1_Scale, inverse, 0.0f, RU_F32, scale + c, mul, w);
        spread_out(s, d, mul, bias + c, y + at, w);
    }
}

/* bufs: x scale bias y */
static void group_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const group_state *s = state;
    int64_t n = s->channels * s->inner, bytes = n * ru_dtype_bytes(s->t);
    bool few = s->t == RU_F32 && s->inner < FEW_PLACES;
    for (int64_t r = begin, w; r < end; r += w) {
        int64_t g = r % s->groups, c = g * s->channels;
        const char *x = (const char *)bufs[0] + r * bytes;
        const float *scale = (const float *)bufs[1] + c, *bias = (const float *)bufs[2] + c;
        char *y = (char *)bufs[3] + r * bytes;
        w = 1;
        if (few && n <= SPREAD / 2) {
            w = SPREAD / n < s->groups - g ? SPREAD / n : s->groups - g;
            w = w < end - r ? w : end - r;
            small_groups(s, (const float *)x, scale, bias, (float *)y, w);
        } else if (few) {
            wide_group(s, (const float *)x, scale, bias, (float *)y);
        } else {
            s->k->groupnorm(s->t, x, scale, bias, s->epsilon, y, s->channels, s->inner);
        }
    }
}

static ru_status group_run(void *state, void *const *bufs, const rui_run *run)
{
    const group_state *s = state;
    rui_kern_for(run, group_part, s, bufs, s->samples * s->groups,
                 rui_kern_grain(s->channels * s->inner));
    return RU_OK;
}

ru_status rui_lower_kern_groupnorm(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    group_state group, *s;
    if (!group_of(lo, n, n->in[0], n->in[1], &group)) {
        return RU_E_UNSUPPORTED;
    }
    s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = group;
    const rui_layout *l = rui_plain_as(lo, rui_type(lo, n->in[0]), s->t);
    rui_buf x = rui_in(lo, n->in[0], l);
    rui_buf bufs[4] = {x, in_f32(lo, n->in[1]), in_f32(lo, n->in[2]),
                       rui_out_over(lo, n->out[0], l, x)};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern groupnorm", .fn = group_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}

/* bufs: dy x scale dx dscale dbias sums [samples][2][channels of all groups] */
static void grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const group_state *s = state;
    int64_t bytes = s->channels * s->inner * ru_dtype_bytes(s->t), all = s->groups * s->channels;
    for (int64_t r = begin; r < end; r++) {
        int64_t c = r % s->groups * s->channels;
        float *sums = (float *)bufs[6] + r / s->groups * 2 * all + c;
        s->k->groupnorm_grad(s->t, (const char *)bufs[0] + r * bytes,
                             (const char *)bufs[1] + r * bytes, (const float *)bufs[2] + c,
                             s->epsilon, (char *)bufs[3] + r * bytes, sums, sums + all, s->channels,
                             s->inner);
    }
}

static ru_status grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const group_state *s = state;
    int64_t all = s->groups * s->channels;
    rui_kern_for(run, grad_part, s, bufs, s->samples * s->groups,
                 rui_kern_grain(s->channels * s->inner));
    for (int64_t k = 0; k < 2; k++) {
        if (bufs[4 + k] != NULL) {
            s->k->sum_rows(RU_F32, (const float *)bufs[6] + k * all, s->samples, 2 * all, 0, all,
                           bufs[4 + k]);
        }
    }
    return RU_OK;
}

static rui_buf out_f32(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_out(n, k)
               ? rui_out(lo, n->out[k], rui_plain_as(lo, rui_type(lo, n->out[k]), RU_F32))
               : (rui_buf){0};
}

/* GroupNormGrad(dy, x, scale) -> dx, dscale, dbias; the statistics are computed again. */
ru_status rui_lower_kern_groupnorm_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    group_state group, *s;
    if (!group_of(lo, n, n->in[1], n->in[2], &group)) {
        return RU_E_UNSUPPORTED;
    }
    s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = group;
    const rui_layout *l = rui_plain_as(lo, rui_type(lo, n->in[1]), s->t);
    rui_buf dy = rui_in(lo, n->in[0], l), x = rui_in(lo, n->in[1], l);
    rui_buf scale = in_f32(lo, n->in[2]);
    rui_buf dx =
        ru_node_has_out(n, 0) ? rui_out_over(lo, n->out[0], l, dy) : rui_scratch(lo, l->size_bytes);
    rui_buf bufs[7] = {dy,
                       x,
                       scale,
                       dx,
                       out_f32(lo, n, 1),
                       out_f32(lo, n, 2),
                       rui_scratch(lo, s->samples * 2 * s->groups * s->channels * 4)};
    rui_emit(lo, &(rui_step){.kernel = "kern groupnorm grad",
                             .fn = grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 7});
    return rui_done(lo);
}
