/* Batch normalisation over activations in any order oneDNN knows.
 *
 * Training: oneDNN gives batch mean and biased variance; a small step turns them into what the op
 * promises (running statistics, 1/sqrt(var+eps)). The variance itself is remembered for the gradient,
 * because it cannot be recovered exactly from its inverse root. Inference runs with the given
 * statistics. scale and bias stand side by side, as oneDNN wants: [2, C]. */
#include <math.h>
#include <string.h>

#include "exec/cpu/conv.h"

typedef struct bn_pack {
    int64_t channels;
    float epsilon, momentum;
    bool unbiased;
    int64_t count; /* elements per channel */
} bn_pack;

static ru_status pack_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const bn_pack *p = state;
    size_t bytes = (size_t)p->channels * sizeof(float);
    memcpy(bufs[2], bufs[0], bytes);
    memcpy((float *)bufs[2] + p->channels, bufs[1], bytes);
    return RU_OK;
}

/* bufs: mean, var, mean_in, var_in, mean_out, var_out, save_mean, save_invstd */
static ru_status stats_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const bn_pack *p = state;
    const float *mean = bufs[0];
    const float *var = bufs[1];
    const float *mean_in = bufs[2];
    const float *var_in = bufs[3];
    float *mean_out = bufs[4];
    float *var_out = bufs[5];
    float *save_mean = bufs[6];
    float *save_invstd = bufs[7];
    float unbias = p->unbiased && p->count > 1 ? (float)p->count / (float)(p->count - 1) : 1.0f;
    float keep = p->momentum;
    for (int64_t c = 0; c < p->channels; c++) {
        mean_out[c] = keep * mean_in[c] + (1.0f - keep) * mean[c];
        var_out[c] = keep * var_in[c] + (1.0f - keep) * var[c] * unbias;
        save_invstd[c] = 1.0f / sqrtf(var[c] + p->epsilon);
    }
    if (save_mean != mean) {
        memcpy(save_mean, mean, (size_t)p->channels * sizeof(float));
    }
    return RU_OK;
}

/* [2, C] split into two results. */
static ru_status split_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const bn_pack *p = state;
    size_t bytes = (size_t)p->channels * sizeof(float);
    memcpy(bufs[1], bufs[0], bytes);
    memcpy(bufs[2], (const float *)bufs[0] + p->channels, bytes);
    return RU_OK;
}

static bool bn_takes(rui_low *lo, ru_value_id x, dnnl_memory_desc_t *md)
{
    const ru_type *t = &rui_graph(lo)->values[x.v].type;
    if ((t->dtype != RU_F32 && t->dtype != RU_BF16) || t->rank < 2 || t->rank > 5 ||
        ru_type_count(t) <= 0) {
        return false;
    }
    const rui_layout *l = rui_standing(lo, x);
    *md = l->md;
    bool same = md->ndims == (int)t->rank && !l->opaque &&
                (l->type.dtype == RU_F32 || l->type.dtype == RU_BF16);
    if (!same) {
        *md = rui_md_plain(lo, (int)t->rank, t->dims, rui_dnnl_type(rui_store_dtype(lo, x)));
    }
    return true;
}

static rui_buf pack_scale(rui_low *lo, ru_value_id scale, ru_value_id bias, int64_t channels)
{
    bn_pack *p = rui_keep(lo, sizeof *p);
    if (p == NULL) {
        return (rui_buf){0};
    }
    p->channels = channels;
    rui_buf bufs[3] = {rui_in_plain(lo, scale), rui_in_plain(lo, bias),
                       rui_workspace(lo, 2 * channels * (int64_t)sizeof(float))};
    const rui_step step = {
        .kernel = "bn pack", .fn = pack_run, .state = p, .bufs = bufs, .n_bufs = 3};
    rui_emit(lo, &step);
    return bufs[2];
}

static dnnl_primitive_desc_t bn_fwd_pd(rui_low *lo, const dnnl_memory_desc_t *x, bool train,
                                       double epsilon)
{
    dnnl_batch_normalization_desc_t d;
    unsigned flags = dnnl_use_scaleshift | (train ? 0U : dnnl_use_global_stats);
    if (rui_nn(lo)->batch_normalization_forward_desc_init(
            &d, train ? dnnl_forward_training : dnnl_forward_inference, x, (float)epsilon,
            flags) != dnnl_success) {
        return NULL;
    }
    dnnl_primitive_desc_t pd = rui_pd_make(lo, &d, NULL, NULL);
    if (pd != NULL && rui_pd_is_ref(lo, pd)) {
        rui_pd_free(lo, pd);
        pd = NULL;
    }
    return pd;
}

static void emit_stats(rui_low *lo, const ru_node *n, const bn_pack *proto, rui_buf mean,
                       rui_buf var)
{
    bn_pack *p = rui_keep(lo, sizeof *p);
    if (p == NULL) {
        return;
    }
    *p = *proto;
    rui_buf mean_in = rui_in_plain(lo, n->in[3]);
    rui_buf var_in = rui_in_plain(lo, n->in[4]);
    const rui_layout *vec = rui_plain(lo, &rui_graph(lo)->values[n->in[3].v].type);
    rui_buf bufs[8] = {mean,
                       var,
                       mean_in,
                       var_in,
                       rui_out_over(lo, n->out[1], vec, mean_in),
                       rui_out_over(lo, n->out[2], vec, var_in),
                       rui_out_plain(lo, n->out[3]),
                       rui_out_plain(lo, n->out[4])};
    const rui_step step = {
        .kernel = "bn stats", .fn = stats_run, .state = p, .bufs = bufs, .n_bufs = 8};
    rui_emit(lo, &step);
}

/* BatchNormTrain(x, scale, bias, mean_in, var_in) -> y, mean_out, var_out, save_mean, save_invstd */
ru_status rui_lower_dnnl_bn_train(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    dnnl_memory_desc_t x;
    const ru_type *t = &rui_graph(lo)->values[n->in[0].v].type;
    double epsilon = ru_node_float(n, RU_ATTR_epsilon, 1e-5);
    for (uint32_t k = 0; k < 5; k++) {
        if (!ru_node_has_out(n, k)) {
            return RU_E_UNSUPPORTED;
        }
    }
    if (!bn_takes(lo, n->in[0], &x)) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_primitive_desc_t pd = bn_fwd_pd(lo, &x, true, epsilon);
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    int64_t c = t->dims[1];
    dnnl_memory_desc_t vec = rui_md_vec(lo, c, dnnl_f32);
    dnnl_memory_desc_t ss = rui_pd_md(lo, pd, dnnl_query_weights_md);
    rui_buf packed = pack_scale(lo, n->in[1], n->in[2], c);
    rui_buf mean = rui_workspace(lo, c * (int64_t)sizeof(float));
    rui_buf var = rui_workspace(lo, c * (int64_t)sizeof(float));
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], &x);
    rui_prim_buf(&p, DNNL_ARG_SCALE_SHIFT, packed, &ss);
    rui_prim_buf(&p, DNNL_ARG_MEAN, mean, &vec);
    rui_prim_buf(&p, DNNL_ARG_VARIANCE, var, &vec);
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], &x);
    RU_TRY(rui_prim_emit(&p, "bn"));
    const bn_pack proto = {.channels = c,
                           .epsilon = (float)epsilon,
                           .momentum = (float)ru_node_float(n, RU_ATTR_momentum, 0.9),
                           .unbiased = ru_node_int(n, RU_ATTR_bias, 0) != 0,
                           .count = ru_type_count(t) / c};
    emit_stats(lo, n, &proto, mean, var);
    rui_note(lo, n->out[4], var, "variance");
    return rui_done(lo);
}

/* BatchNormGrad(dy, x, scale, save_mean, save_invstd) -> dx, dscale, dbias */
ru_status rui_lower_dnnl_bn_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    dnnl_memory_desc_t x;
    rui_buf var = {0};
    const void *note = NULL;
    double epsilon = ru_node_float(n, RU_ATTR_epsilon, 1e-5);
    if (!rui_noted(lo, n->in[4], &var, &note) || !bn_takes(lo, n->in[1], &x)) {
        return RU_E_UNSUPPORTED;
    }
    int64_t c = rui_graph(lo)->values[n->in[1].v].type.dims[1];
    dnnl_batch_normalization_desc_t d;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_desc_t hint = bn_fwd_pd(lo, &x, true, epsilon);
    if (hint != NULL && rui_nn(lo)->batch_normalization_backward_desc_init(
                            &d, dnnl_backward, &x, &x, (float)epsilon, dnnl_use_scaleshift) ==
                            dnnl_success) {
        pd = rui_pd_make(lo, &d, NULL, hint);
    }
    rui_pd_free(lo, hint);
    if (pd == NULL || rui_pd_is_ref(lo, pd)) {
        rui_pd_free(lo, pd);
        return RU_E_UNSUPPORTED;
    }
    dnnl_memory_desc_t vec = rui_md_vec(lo, c, dnnl_f32);
    dnnl_memory_desc_t ss = rui_pd_md(lo, pd, dnnl_query_weights_md);
    rui_buf packed = pack_scale(lo, n->in[2], n->in[2], c); /* the shift is not read */
    rui_buf dss = rui_workspace(lo, 2 * c * (int64_t)sizeof(float));
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[1], &x);
    rui_prim_in(&p, DNNL_ARG_DIFF_DST, n->in[0], &x);
    rui_prim_in(&p, DNNL_ARG_MEAN, n->in[3], &vec);
    rui_prim_buf(&p, DNNL_ARG_VARIANCE, var, &vec);
    rui_prim_buf(&p, DNNL_ARG_SCALE_SHIFT, packed, &ss);
    rui_prim_buf(&p, DNNL_ARG_DIFF_SCALE_SHIFT, dss, &ss);
    rui_prim_out(&p, DNNL_ARG_DIFF_SRC, n->out[0], &x);
    RU_TRY(rui_prim_emit(&p, "bn_bwd"));
    bn_pack *split = rui_keep(lo, sizeof *split);
    if (split == NULL) {
        return rui_done(lo);
    }
    split->channels = c;
    rui_buf bufs[3] = {dss, rui_out_plain(lo, n->out[1]), rui_out_plain(lo, n->out[2])};
    bufs[1] = bufs[1].v != 0 ? bufs[1] : rui_scratch(lo, c * (int64_t)sizeof(float));
    bufs[2] = bufs[2].v != 0 ? bufs[2] : rui_scratch(lo, c * (int64_t)sizeof(float));
    const rui_step step = {
        .kernel = "bn split", .fn = split_run, .state = split, .bufs = bufs, .n_bufs = 3};
    rui_emit(lo, &step);
    return rui_done(lo);
}

/* BatchNormalization at inference: x, scale, bias, mean, var */
ru_status rui_lower_dnnl_bn(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    dnnl_memory_desc_t x;
    if (ru_node_int(n, RU_ATTR_training_mode, 0) != 0 || ru_node_has_out(n, 1) ||
        ru_node_str(n, RU_ATTR_activation, NULL) != NULL || !bn_takes(lo, n->in[0], &x)) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_primitive_desc_t pd =
        bn_fwd_pd(lo, &x, false, ru_node_float(n, RU_ATTR_epsilon, 1e-5));
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    int64_t c = rui_graph(lo)->values[n->in[0].v].type.dims[1];
    dnnl_memory_desc_t vec = rui_md_vec(lo, c, dnnl_f32);
    dnnl_memory_desc_t ss = rui_pd_md(lo, pd, dnnl_query_weights_md);
    rui_buf packed = pack_scale(lo, n->in[1], n->in[2], c);
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], &x);
    rui_prim_buf(&p, DNNL_ARG_SCALE_SHIFT, packed, &ss);
    rui_prim_in(&p, DNNL_ARG_MEAN, n->in[3], &vec);
    rui_prim_in(&p, DNNL_ARG_VARIANCE, n->in[4], &vec);
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], &x);
    return rui_prim_emit(&p, "bn");
}
