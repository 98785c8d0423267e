/* Activations of convolutions and products: as post-ops of oneDNN, or as steps of their own where
 * a kernel has no such post-op. */
#include <string.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

typedef struct act_row {
    const char *name;
    dnnl_alg_kind_t alg; /* undef: oneDNN has no function whose definition equals the graph's */
    ru_kern_map1 map;
    double alpha, beta; /* defaults, as ONNX says */
    bool zero_at_zero;  /* padding stays zero */
} act_row;

static const act_row rows[] = {
    {"relu", dnnl_eltwise_relu, RU_KERN_MAP1_Relu, 0.0, 0.0, true},
    {"leaky_relu", dnnl_eltwise_relu, RU_KERN_MAP1_LeakyRelu, 0.01, 0.0, true},
    {"tanh", dnnl_eltwise_tanh, RU_KERN_MAP1_Tanh, 0.0, 0.0, true},
    {"sigmoid", dnnl_eltwise_logistic, RU_KERN_MAP1_Sigmoid, 0.0, 0.0, false},
    {"elu", dnnl_eltwise_elu, RU_KERN_MAP1_Elu, 1.0, 0.0, true},
    {"gelu", dnnl_eltwise_gelu_erf, RU_KERN_MAP1_Gelu, 0.0, 0.0, true},
    {"gelu_tanh", dnnl_eltwise_gelu_tanh, RU_KERN_MAP1_GeluTanh, 0.0, 0.0, true},
    {"silu", dnnl_eltwise_swish, RU_KERN_MAP1_Silu, 1.0, 0.0, true},
    {"clip", dnnl_eltwise_clip_v2, RU_KERN_MAP1_Clip, 0.0, 6.0, false},
    {"hardswish", dnnl_eltwise_hardswish, RU_KERN_MAP1_HardSwish, 0.0, 0.0, true},
    {"hardsigmoid", dnnl_alg_kind_undef, RU_KERN_MAP1_HardSigmoid, 0.2, 0.5, false},
};

static const act_row *row_of(const ru_node *n)
{
    const char *name = ru_node_str(n, RU_ATTR_activation, "");
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

ru_status rui_post_of_node(rui_low *lo, const ru_node *n, rui_post *post)
{
    if (ru_node_str(n, RU_ATTR_activation, "")[0] == '\0') {
        return RU_OK;
    }
    if (rui_options(lo)->keep_nan) {
        return RU_E_UNSUPPORTED;
    }
    RU_TRY(rui_post_of_whole(n, post));
    rui_drops_nan(lo);
    return RU_OK;
}

ru_status rui_post_of_whole(const ru_node *n, rui_post *post)
{
    if (ru_node_str(n, RU_ATTR_activation, "")[0] == '\0') {
        return RU_OK;
    }
    const act_row *row = row_of(n);
    if (row == NULL || row->alg == dnnl_alg_kind_undef) {
        return RU_E_UNSUPPORTED;
    }
    post->has_act = true;
    post->act = row->alg;
    post->alpha = (float)ru_node_float(n, RU_ATTR_activation_alpha, row->alpha);
    post->beta = (float)ru_node_float(n, RU_ATTR_activation_beta, row->beta);
    return RU_OK;
}

/* -- what is not fused ----------------------------------------------------------------------------
 */

typedef struct apart_state {
    const ru_kern *k;
    ru_kern_map1 map;
    float a, b;
    ru_dtype t;
    int64_t n;
} apart_state;

static void act_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const apart_state *s = state;
    char *y = (char *)bufs[0] + begin * ru_dtype_bytes(s->t);
    s->k->map1(s->map, s->a, s->b, s->t, y, y, end - begin);
}

static ru_status act_run(void *state, void *const *bufs, const rui_run *run)
{
    const apart_state *s = state;
    rui_kern_for(run, act_part, s, bufs, s->n, 4096);
    return RU_OK;
}

static void add_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const apart_state *s = state;
    int64_t at = begin * ru_dtype_bytes(s->t);
    char *y = (char *)bufs[0] + at;
    s->k->map2(RU_KERN_MAP2_Add, 0, 0, s->t, y, 1, (const char *)bufs[1] + at, 1, y, end - begin);
}

static ru_status add_run(void *state, void *const *bufs, const rui_run *run)
{
    const apart_state *s = state;
    rui_kern_for(run, add_part, s, bufs, s->n, 4096);
    return RU_OK;
}

static apart_state *apart_new(rui_low *lo, const rui_layout *l)
{
    apart_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (apart_state){.k = ru_kern_best(), .t = l->type.dtype, .n = l->flat_n};
    }
    return s;
}

bool rui_act_on(const ru_node *n, float *x, int64_t count)
{
    const act_row *row = row_of(n);
    if (row != NULL && count > 0) {
        ru_kern_best()->map1(
            row->map, (float)ru_node_float(n, RU_ATTR_activation_alpha, row->alpha),
            (float)ru_node_float(n, RU_ATTR_activation_beta, row->beta), RU_F32, x, x, count);
    }
    return row != NULL;
}

bool rui_conv_plain(rui_low *lo, const ru_node *n, bool transposed, rui_window *w)
{
    const ru_type *x = rui_type(lo, n->in[0]), *wt = rui_type(lo, n->in[1]);
    bool act = ru_node_str(n, RU_ATTR_activation, "")[0] != '\0';
    return x->dtype == RU_F32 && wt->dtype == RU_F32 && !rui_bf16(lo) && !ru_node_has_in(n, 3) &&
           (!act || rui_act_on(n, NULL, 0)) &&
           rui_window_of(n, x, wt, rui_type(lo, n->out[0]), transposed, false, w) == RU_OK;
}

void rui_act_emit(rui_low *lo, const ru_node *n)
{
    const act_row *row = row_of(n);
    if (row == NULL || rui_done(lo) != RU_OK) {
        return;
    }
    const rui_layout *l = rui_standing(lo, n->out[0]);
    if (l->padded && !row->zero_at_zero) { /* padding would not stay zero */
        l = rui_plain_as(lo, rui_type(lo, n->out[0]), l->type.dtype);
        rui_stand_only(lo, n->out[0], l);
    }
    rui_buf y = rui_in(lo, n->out[0], l);
    apart_state *s = apart_new(lo, l);
    if (s != NULL) {
        s->map = row->map;
        s->a = (float)ru_node_float(n, RU_ATTR_activation_alpha, row->alpha);
        s->b = (float)ru_node_float(n, RU_ATTR_activation_beta, row->beta);
        rui_emit(lo, &(rui_step){
                         .kernel = "kern map", .fn = act_run, .state = s, .bufs = &y, .n_bufs = 1});
    }
}

void rui_residual_emit(rui_low *lo, const ru_node *n)
{
    const rui_layout *l = rui_standing(lo, n->out[0]);
    rui_buf bufs[2] = {rui_in(lo, n->out[0], l), rui_in(lo, n->in[3], l)};
    apart_state *s = apart_new(lo, l);
    if (s != NULL) {
        rui_emit(lo,
                 &(rui_step){
                     .kernel = "kern map2", .fn = add_run, .state = s, .bufs = bufs, .n_bufs = 2});
    }
}

typedef struct bias_state {
    const ru_kern *k;
    float beta;
    ru_dtype t;
    int64_t rows, cols, row,
        col; /* row, col: elements of the bias from one to the next; 0: it repeats */
} bias_state;

static void bias_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const bias_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t);
    if (s->row == s->cols && s->col == 1) { /* as large as the result */
        char *y = (char *)bufs[0] + begin * s->cols * bytes;
        s->k->map2(RU_KERN_MAP2_Axpy, s->beta, 0, s->t, y, 1,
                   (const char *)bufs[1] + begin * s->row * bytes, 1, y, (end - begin) * s->cols);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        char *y = (char *)bufs[0] + r * s->cols * bytes;
        s->k->map2(RU_KERN_MAP2_Axpy, s->beta, 0, s->t, y, 1,
                   (const char *)bufs[1] + r * s->row * bytes, s->col, y, s->cols);
    }
}

static ru_status bias_run(void *state, void *const *bufs, const rui_run *run)
{
    const bias_state *s = state;
    rui_kern_for(run, bias_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

bool rui_bias_known(const rui_low *lo, const ru_node *n)
{
    return n->op == RU_OP_Gemm && ru_node_has_in(n, 2) && rui_type(lo, n->in[2])->rank <= 2 &&
           ru_node_float(n, RU_ATTR_beta, 1.0) != 0.0;
}

void rui_bias_emit(rui_low *lo, const ru_node *n)
{
    const rui_layout *l = rui_standing(lo, n->out[0]);
    const ru_type *c = rui_type(lo, n->in[2]), *y = rui_type(lo, n->out[0]);
    RU_CHECK(l->plain && y->rank == 2);
    int64_t high = c->rank == 2 ? c->dims[0] : 1, wide = c->rank > 0 ? c->dims[c->rank - 1] : 1;
    rui_buf bufs[2] = {rui_in(lo, n->out[0], l),
                       rui_in(lo, n->in[2], rui_plain_as(lo, c, l->type.dtype))};
    bias_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (bias_state){.k = ru_kern_best(),
                          .beta = (float)ru_node_float(n, RU_ATTR_beta, 1.0),
                          .t = l->type.dtype,
                          .rows = y->dims[0],
                          .cols = y->dims[1],
                          .row = high == 1 ? 0 : wide,
                          .col = wide == 1 ? 0 : 1};
        rui_emit(lo,
                 &(rui_step){
                     .kernel = "kern bias", .fn = bias_run, .state = s, .bufs = bufs, .n_bufs = 2});
    }
}

const ru_node *rui_node_bare(rui_low *lo, const ru_node *n, uint32_t n_in)
{
    ru_node *bare = rui_keep(lo, (int64_t)sizeof *bare);
    ru_attr *attrs = rui_keep(lo, (int64_t)(n->n_attrs + 1) * (int64_t)sizeof *attrs);
    if (bare == NULL || attrs == NULL) {
        return NULL;
    }
    *bare = *n;
    bare->attrs = attrs;
    bare->n_attrs = 0;
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        if (n->attrs[i].key != RU_ATTR_activation) {
            attrs[bare->n_attrs++] = n->attrs[i];
        }
    }
    bare->n_in = n_in < n->n_in ? n_in : n->n_in;
    return bare;
}
