/* Batch normalisation with residual and ReLU inside, on our own kernels (exec/cpu/kern/k_bn.c).
 *
 * Activations stand in blocked order nChw16c, nChw8c or row-major. The work is cut into channel
 * blocks (16, 8 or 1 channels): a block's statistics and its result are made by one thread while
 * its data is warm.
 *
 *     x [n][blocks][s][lanes]     run i of block c starts at (i * blocks + c) * s * lanes
 *
 * Sums of one run are f32, the runs are added in double in their order, so the result does not
 * depend on the number of threads. Coefficient arrays are padded to whole blocks with zeros, so
 * that padding stays zero. */
#include <math.h>
#include <string.h>

#include "exec/cpu/lower/lower.h"
#include "exec/cpu/lower/lower_kern.h"

typedef struct bn_state {
    const ru_kern *k;
    ru_dtype t;
    int64_t n, blocks, s, lanes, channels;
    float epsilon, momentum;
    bool unbiased, relu, mask_y;
    void *const *bufs;
} bn_state;

/* Coefficients of one block. */
typedef struct bn_coef {
    float mean[16], mul[16], add[16], k_dy[16], k_x[16], k_1[16];
} bn_coef;

static const void *at(const bn_state *b, const void *base, int64_t run, int64_t block)
{
    int64_t e = (run * b->blocks + block) * b->s * b->lanes;
    return base == NULL ? NULL : (const uint8_t *)base + e * ru_dtype_bytes(b->t);
}

static void *at_out(const bn_state *b, void *base, int64_t run, int64_t block)
{
    int64_t e = (run * b->blocks + block) * b->s * b->lanes;
    return base == NULL ? NULL : (uint8_t *)base + e * ru_dtype_bytes(b->t);
}

static int64_t lanes_in(const bn_state *b, int64_t block)
{
    int64_t left = b->channels - block * b->lanes;
    return left < b->lanes ? left : b->lanes;
}

/* -- forward
 * ---------------------------------------------------------------------------------------- */

enum {
    F_X,
    F_SCALE,
    F_BIAS,
    F_MEAN_IN,
    F_VAR_IN,
    F_RES,
    F_Y,
    F_MEAN_OUT,
    F_VAR_OUT,
    F_MEAN,
    F_INVSTD,
    F_COUNT
};

static float *fbuf(const bn_state *b, int k)
{
    return b->bufs[k];
}

static void store_stats(const bn_state *b, int64_t c, double mean, double var)
{
    double count = (double)(b->n * b->s);
    double unbias = b->unbiased && count > 1.5 ? count / (count - 1.0) : 1.0;
    double keep = (double)b->momentum;
    float mean_in = fbuf(b, F_MEAN_IN)[c];
    float var_in = fbuf(b, F_VAR_IN)[c];
    if (fbuf(b, F_MEAN_OUT) != NULL) {
        fbuf(b, F_MEAN_OUT)[c] = (float)(keep * (double)mean_in + (1.0 - keep) * mean);
    }
    if (fbuf(b, F_VAR_OUT) != NULL) {
        fbuf(b, F_VAR_OUT)[c] = (float)(keep * (double)var_in + (1.0 - keep) * var * unbias);
    }
    fbuf(b, F_MEAN)[c] = (float)mean;
    fbuf(b, F_INVSTD)[c] = (float)(1.0 / sqrt(var + (double)b->epsilon));
}

/* Statistics of a block around a pivot taken from the data, so that a large mean costs no digits.
 */
static void block_stats(const bn_state *b, int64_t block)
{
    float pivot[16] = {0};
    float sum[16];
    float sq[16];
    double all[16] = {0};
    double all_sq[16] = {0};
    const void *first = at(b, b->bufs[F_X], 0, block);
    for (int64_t l = 0; l < b->lanes; l++) {
        pivot[l] = b->t == RU_BF16 ? ru_bf16_to_f32(((const uint16_t *)first)[l])
                                   : ((const float *)first)[l];
    }
    for (int64_t i = 0; i < b->n; i++) {
        const ru_kern_bn run = {.t = b->t,
                                .s = b->s,
                                .lanes = b->lanes,
                                .mean = pivot,
                                .x = at(b, b->bufs[F_X], i, block)};
        b->k->bn_sums(&run, sum, sq);
        for (int64_t l = 0; l < b->lanes; l++) {
            all[l] += (double)sum[l];
            all_sq[l] += (double)sq[l];
        }
    }
    double count = (double)(b->n * b->s);
    for (int64_t l = 0; l < lanes_in(b, block); l++) {
        double d = all[l] / count;
        double var = all_sq[l] / count - d * d;
        store_stats(b, block * b->lanes + l, (double)pivot[l] + d, var < 0.0 ? 0.0 : var);
    }
}

/* y = x * mul + add with the batch's statistics. */
static void coef_forward(const bn_state *b, int64_t block, const float *scale, const float *bias,
                         const float *mean, const float *invstd, bn_coef *c)
{
    memset(c, 0, sizeof *c);
    for (int64_t l = 0; l < lanes_in(b, block); l++) {
        int64_t ch = block * b->lanes + l;
        c->mean[l] = mean[ch];
        c->mul[l] = scale[ch] * invstd[ch];
        c->add[l] = (bias != NULL ? bias[ch] : 0.0f) - mean[ch] * c->mul[l];
    }
}

static void apply_block(const bn_state *b, int64_t block, const bn_coef *c)
{
    for (int64_t i = 0; i < b->n; i++) {
        const ru_kern_bn run = {.t = b->t,
                                .s = b->s,
                                .lanes = b->lanes,
                                .relu = b->relu,
                                .x = at(b, b->bufs[F_X], i, block),
                                .residual = at(b, b->bufs[F_RES], i, block),
                                .out = at_out(b, b->bufs[F_Y], i, block),
                                .mul = c->mul,
                                .add = c->add};
        b->k->bn_apply(&run);
    }
}

static void train_part(void *arg, uint32_t thread, uint32_t threads)
{
    const bn_state *b = arg;
    int64_t begin = 0;
    int64_t end = 0;
    ru_pool_split(b->blocks, 1, thread, threads, &begin, &end);
    for (int64_t block = begin; block < end; block++) {
        bn_coef c;
        block_stats(b, block);
        coef_forward(b, block, fbuf(b, F_SCALE), fbuf(b, F_BIAS), fbuf(b, F_MEAN),
                     fbuf(b, F_INVSTD), &c);
        apply_block(b, block, &c);
    }
}

static void infer_part(void *arg, uint32_t thread, uint32_t threads)
{
    const bn_state *b = arg;
    int64_t begin = 0;
    int64_t end = 0;
    ru_pool_split(b->blocks, 1, thread, threads, &begin, &end);
    for (int64_t block = begin; block < end; block++) {
        float invstd[16] = {0};
        bn_coef c;
        memset(&c, 0, sizeof c);
        for (int64_t l = 0; l < lanes_in(b, block); l++) {
            int64_t ch = block * b->lanes + l;
            invstd[l] = 1.0f / sqrtf(fbuf(b, F_VAR_IN)[ch] + b->epsilon);
            c.mul[l] = fbuf(b, F_SCALE)[ch] * invstd[l];
            c.add[l] = fbuf(b, F_BIAS)[ch] - fbuf(b, F_MEAN_IN)[ch] * c.mul[l];
        }
        apply_block(b, block, &c);
    }
}

enum {
    FEW_PLACES = 64, /* below it channels are joined to rows: one by one they took 20 ns each */
    SPREAD = 1024,   /* elements whose coefficients stay in L1 */
};

/* mul and add of w channels from c on. */
static void coef_infer(const bn_state *b, int64_t c, int64_t w, float *mul, float *add)
{
    b->k->map1(RU_KERN_MAP1_Scale, 1.0f, b->epsilon, RU_F32, fbuf(b, F_VAR_IN) + c, mul, w);
    b->k->map1(RU_KERN_MAP1_Sqrt, 0, 0, RU_F32, mul, mul, w);
    b->k->map2(RU_KERN_MAP2_Div, 0, 0, RU_F32, fbuf(b, F_SCALE) + c, 1, mul, 1, mul, w);
    b->k->map2(RU_KERN_MAP2_Mul, 0, 0, RU_F32, fbuf(b, F_MEAN_IN) + c, 1, mul, 1, add, w);
    b->k->map2(RU_KERN_MAP2_Sub, 0, 0, RU_F32, fbuf(b, F_BIAS) + c, 1, add, 1, add, w);
}

/* Inference on [n, channels, few places] of f32: each element of a sample has its coefficients. */
static void infer_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const bn_state *b = arg;
    int64_t begin = 0, end = 0, many = SPREAD / b->s;
    float mul[SPREAD], add[SPREAD], by[SPREAD + RUI_SPREAD_PAST], off[SPREAD + RUI_SPREAD_PAST];
    ru_pool_split(b->channels, many, thread, threads, &begin, &end);
    for (int64_t c = begin; c < end; c += many) {
        int64_t w = end - c < many ? end - c : many;
        coef_infer(b, c, w, mul, add);
        rui_kern_spread(mul, w, b->s, by);
        rui_kern_spread(add, w, b->s, off);
        for (int64_t i = 0; i < b->n; i++) {
            int64_t from = (i * b->channels + c) * b->s;
            const float *res = b->bufs[F_RES];
            const ru_kern_bn run = {.t = RU_F32,
                                    .lanes = w * b->s,
                                    .relu = b->relu,
                                    .x = (const float *)b->bufs[F_X] + from,
                                    .residual = res == NULL ? NULL : res + from,
                                    .out = (float *)b->bufs[F_Y] + from,
                                    .mul = by,
                                    .add = off};
            b->k->bn_apply(&run);
        }
    }
}

static ru_status train_run(void *state, void *const *bufs, const rui_run *run)
{
    bn_state b = *(const bn_state *)state;
    b.bufs = bufs;
    ru_pool_run(run->pool, train_part, &b);
    return RU_OK;
}

static ru_status infer_run(void *state, void *const *bufs, const rui_run *run)
{
    bn_state b = *(const bn_state *)state;
    b.bufs = bufs;
    bool rows = b.s < FEW_PLACES && b.lanes == 1 && b.t == RU_F32;
    ru_pool_run(run->pool, rows ? infer_rows : infer_part, &b);
    return RU_OK;
}

/* -- backward
 * --------------------------------------------------------------------------------------- */

enum {
    B_DY,
    B_X,
    B_SCALE,
    B_MEAN,
    B_INVSTD,
    B_Y,
    B_BIAS,
    B_DX,
    B_DSCALE,
    B_DBIAS,
    B_DRES,
    B_COUNT
};

static ru_kern_bn grad_run(const bn_state *b, int64_t run, int64_t block, const bn_coef *c)
{
    return (ru_kern_bn){.t = b->t,
                        .s = b->s,
                        .lanes = b->lanes,
                        .relu = b->relu,
                        .x = at(b, b->bufs[B_X], run, block),
                        .dy = at(b, b->bufs[B_DY], run, block),
                        .y = b->mask_y ? at(b, b->bufs[B_Y], run, block) : NULL,
                        .out = at_out(b, b->bufs[B_DX], run, block),
                        .dres = at_out(b, b->bufs[B_DRES], run, block),
                        .mean = c->mean,
                        .mul = c->mul,
                        .add = c->add,
                        .k_dy = c->k_dy,
                        .k_x = c->k_x,
                        .k_1 = c->k_1};
}

/* dx = scale * invstd * (dy - mean(dy) - xhat * mean(dy * xhat)), as three coefficients. */
static void coef_backward(const bn_state *b, int64_t block, const double *sum, const double *dot,
                          bn_coef *c)
{
    double count = (double)(b->n * b->s);
    for (int64_t l = 0; l < lanes_in(b, block); l++) {
        int64_t ch = block * b->lanes + l;
        double invstd = (double)fbuf(b, B_INVSTD)[ch];
        double k = (double)fbuf(b, B_SCALE)[ch] * invstd;
        double dscale = dot[l] * invstd;
        double k_x = -k * invstd * dscale / count;
        c->k_dy[l] = (float)k;
        c->k_x[l] = (float)k_x;
        c->k_1[l] = (float)(-k * sum[l] / count - k_x * (double)c->mean[l]);
        if (fbuf(b, B_DSCALE) != NULL) {
            fbuf(b, B_DSCALE)[ch] = (float)dscale;
        }
        if (fbuf(b, B_DBIAS) != NULL) {
            fbuf(b, B_DBIAS)[ch] = (float)sum[l];
        }
    }
}

static void grad_part(void *arg, uint32_t thread, uint32_t threads)
{
    const bn_state *b = arg;
    int64_t begin = 0;
    int64_t end = 0;
    ru_pool_split(b->blocks, 1, thread, threads, &begin, &end);
    for (int64_t block = begin; block < end; block++) {
        bn_coef c;
        float sum[16];
        float dot[16];
        double all[16] = {0};
        double all_dot[16] = {0};
        coef_forward(b, block, fbuf(b, B_SCALE), fbuf(b, B_BIAS), fbuf(b, B_MEAN),
                     fbuf(b, B_INVSTD), &c);
        for (int64_t i = 0; i < b->n; i++) {
            const ru_kern_bn run = grad_run(b, i, block, &c);
            b->k->bn_grad_sums(&run, sum, dot);
            for (int64_t l = 0; l < b->lanes; l++) {
                all[l] += (double)sum[l];
                all_dot[l] += (double)dot[l];
            }
        }
        coef_backward(b, block, all, all_dot, &c);
        for (int64_t i = 0; i < b->n; i++) {
            const ru_kern_bn run = grad_run(b, i, block, &c);
            b->k->bn_grad_apply(&run);
        }
    }
}

static ru_status grad_step(void *state, void *const *bufs, const rui_run *run)
{
    bn_state b = *(const bn_state *)state;
    b.bufs = bufs;
    ru_pool_run(run->pool, grad_part, &b);
    return RU_OK;
}

/* -- lowering
 * --------------------------------------------------------------------------------------- */

int64_t rui_block_lanes(const rui_layout *l)
{
    const dnnl_blocking_desc_t *b = &l->md.format_desc.blocking;
    if (l->plain || l->opaque || l->md.ndims < 3 || b->inner_nblks != 1 ||
        (b->inner_blks[0] != 16 && b->inner_blks[0] != 8) || b->inner_idxs[0] != 1) {
        return 0;
    }
    int64_t lanes = b->inner_blks[0], stride = lanes;
    for (int d = l->md.ndims - 1; d >= 2; d--) {
        if (l->md.dims[d] > 1 && b->strides[d] != stride) {
            return 0;
        }
        stride *= l->md.padded_dims[d];
    }
    bool dense = (l->md.padded_dims[1] == lanes || b->strides[1] == stride) &&
                 (l->md.dims[0] == 1 || b->strides[0] == stride * (l->md.padded_dims[1] / lanes));
    return dense ? lanes : 0;
}

/* The layout in which the kernels take `x`: where it stands when blocked, else row-major. */
static bn_state *bn_make(rui_low *lo, const ru_node *n, ru_value_id x, const rui_layout **layout)
{
    const ru_type *t = &rui_graph(lo)->values[x.v].type;
    const rui_layout *l = rui_standing(lo, x);
    int64_t lanes = rui_block_lanes(l);
    bool blocked = lanes > 0 && l->md.ndims == (int)t->rank;
    ru_dtype dtype = l->type.dtype == RU_BF16 ? RU_BF16 : RU_F32;
    if ((t->dtype != RU_F32 && t->dtype != RU_BF16) || t->rank < 2 || ru_type_count(t) <= 0) {
        return NULL;
    }
    bn_state *b = rui_keep(lo, sizeof *b);
    if (b == NULL) {
        return NULL;
    }
    *layout = blocked ? l : rui_plain_as(lo, t, dtype);
    b->k = ru_kern_best();
    b->t = dtype;
    b->n = t->dims[0];
    b->channels = t->dims[1];
    b->lanes = blocked ? lanes : 1;
    b->blocks = (b->channels + b->lanes - 1) / b->lanes;
    b->s = ru_type_count(t) / (b->n * b->channels);
    b->epsilon = (float)ru_node_float(n, RU_ATTR_epsilon, 1e-5);
    b->momentum = (float)ru_node_float(n, RU_ATTR_momentum, 0.9);
    b->unbiased = ru_node_int(n, RU_ATTR_bias, 0) != 0;
    const char *act = ru_node_str(n, RU_ATTR_activation, "");
    b->relu = strcmp(act, "relu") == 0;
    return b->relu || act[0] == '\0' ? b : NULL;
}

static ru_value_id in_or_none(const ru_node *n, uint32_t k)
{
    return k < n->n_in ? n->in[k] : (ru_value_id){0};
}

static ru_value_id out_or_none(const ru_node *n, uint32_t k)
{
    return k < n->n_out ? n->out[k] : (ru_value_id){0};
}

/* Statistics are needed inside even where the graph does not want them. */
static rui_buf vector_out(rui_low *lo, const ru_node *n, uint32_t k, int64_t channels)
{
    rui_buf b = rui_out_plain(lo, out_or_none(n, k));
    return b.v != 0 ? b : rui_scratch(lo, channels * (int64_t)sizeof(float));
}

static bool stats_are_f32(const rui_low *lo, const ru_node *n, uint32_t first, uint32_t last)
{
    for (uint32_t k = first; k <= last; k++) {
        ru_value_id v = in_or_none(n, k);
        if (v.v == 0 || rui_graph(lo)->values[v.v].type.dtype != RU_F32) {
            return false;
        }
    }
    return true;
}

/* BatchNormTrain(x, scale, bias, mean_in, var_in, residual?) -> y, mean_out, var_out, save_mean,
 * save_invstd; BatchNormalization(x, scale, bias, mean, var, residual?) -> y */
ru_status rui_lower_kern_bn(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const rui_layout *l = NULL;
    bool train = n->op == RU_OP_BatchNormTrain;
    if (!stats_are_f32(lo, n, 1, 4) ||
        (!train && (ru_node_has_out(n, 1) || ru_node_int(n, RU_ATTR_training_mode, 0) != 0))) {
        return RU_E_UNSUPPORTED;
    }
    bn_state *b = bn_make(lo, n, n->in[0], &l);
    if (b == NULL) {
        return RU_E_UNSUPPORTED;
    }
    rui_buf bufs[F_COUNT] = {{0}};
    bufs[F_X] = rui_in(lo, n->in[0], l);
    for (uint32_t k = 1; k <= 4; k++) {
        bufs[F_X + k] = rui_in_plain(lo, n->in[k]);
    }
    bufs[F_RES] = rui_in(lo, in_or_none(n, 5), l);
    bufs[F_Y] = rui_out_over(lo, n->out[0], l, bufs[F_RES].v != 0 ? bufs[F_RES] : bufs[F_X]);
    if (train) {
        const rui_layout *vec = rui_plain(lo, &rui_graph(lo)->values[n->in[3].v].type);
        bufs[F_MEAN_OUT] = rui_out_over(lo, out_or_none(n, 1), vec, bufs[F_MEAN_IN]);
        bufs[F_VAR_OUT] = rui_out_over(lo, out_or_none(n, 2), vec, bufs[F_VAR_IN]);
        bufs[F_MEAN] = vector_out(lo, n, 3, b->channels);
        bufs[F_INVSTD] = vector_out(lo, n, 4, b->channels);
    }
    const rui_step step = {.kernel = train ? "kern bn_train" : "kern bn",
                           .fn = train ? train_run : infer_run,
                           .state = b,
                           .bufs = bufs,
                           .n_bufs = F_COUNT};
    rui_emit(lo, &step);
    if (train) { /* the gradient's mask can be computed again only when nothing was added */
        rui_note(lo, n->out[0], bufs[F_BIAS], bufs[F_RES].v != 0 ? "residual" : "no residual");
    }
    return rui_done(lo);
}

/* BatchNormGrad(dy, x, scale, save_mean, save_invstd, y?) -> dx, dscale, dbias, dresidual? */
ru_status rui_lower_kern_bn_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const rui_layout *l = NULL;
    if (!stats_are_f32(lo, n, 2, 4)) {
        return RU_E_UNSUPPORTED;
    }
    bn_state *b = bn_make(lo, n, n->in[1], &l);
    if (b == NULL || (b->relu && !ru_node_has_in(n, 5))) {
        return RU_E_UNSUPPORTED;
    }
    rui_buf bias = {0};
    const void *note = NULL;
    ru_value_id y = in_or_none(n, 5);
    bool known = b->relu && rui_noted(lo, y, &bias, &note) && strcmp(note, "no residual") == 0;
    b->mask_y = b->relu && !known;
    rui_buf bufs[B_COUNT] = {{0}};
    bufs[B_DY] = rui_in(lo, n->in[0], l);
    bufs[B_X] = rui_in(lo, n->in[1], l);
    for (uint32_t k = 2; k <= 4; k++) {
        bufs[k] = rui_in_plain(lo, n->in[k]);
    }
    bufs[B_Y] = b->mask_y ? rui_in(lo, y, l) : (rui_buf){0};
    bufs[B_BIAS] = known ? bias : (rui_buf){0};
    bufs[B_DRES] = rui_out_over(lo, out_or_none(n, 3), l, bufs[B_DY]);
    bufs[B_DX] = rui_out_over(lo, n->out[0], l, bufs[B_DRES].v != 0 ? bufs[B_X] : bufs[B_DY]);
    bufs[B_DSCALE] = rui_out_plain(lo, n->out[1]);
    bufs[B_DBIAS] = rui_out_plain(lo, n->out[2]);
    const rui_step step = {
        .kernel = "kern bn_grad", .fn = grad_step, .state = b, .bufs = bufs, .n_bufs = B_COUNT};
    rui_emit(lo, &step);
    return rui_done(lo);
}
