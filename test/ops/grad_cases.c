/* The gradient cases, one function each; rows at the end. */
#include "test/ops/grad_case.h"

#include "test/test.h"

vid param_of(maker *m, ru_dtype dtype, uint32_t rank, const int64_t *dims, double lo, double hi,
             bool wanted)
{
    char name[16] = {'p', (char)('0' + m->n), '\0'};
    assert_true(m->n < RU_GRAD_PARAMS_MAX);
    m->lo[m->n] = lo;
    m->hi[m->n] = hi;
    m->wanted[m->n] = wanted;
    m->params[m->n] = ru_build_param(&m->b, name, ru_type_make(dtype, rank, dims), NULL);
    return m->params[m->n++];
}

static vid ints(maker *m, uint32_t n, const int64_t *xs)
{
    return ru_build_const_i64s(&m->b, xs, n);
}

/* `k`-th output of a node. */
static vid node_out(maker *m, ru_op op, const vid *in, uint32_t n_in, const ru_attr *attrs,
                    uint32_t n_out, uint32_t k)
{
    vid out[8];
    ru_build_node(&m->b, op, in, n_in, attrs, out, n_out);
    return out[k];
}

/* -- element-wise ------------------------------------------------------------------------------ */

static vid make_gelu_tanh(maker *m)
{
    return OP1A(Gelu, P(m, -3, 3, 3, 4), A(RU_AS(approximate, "tanh")));
}

static vid make_clip(maker *m)
{
    vid x = P(m, -2, 2, 3, 4);
    double lo = -1.03;
    double hi = 0.97;
    vid a = ru_build_const(&m->b, ru_type_scalar(RU_F64), &lo);
    vid b = ru_build_const(&m->b, ru_type_scalar(RU_F64), &hi);
    return OP3A(Clip, x, a, b, NULL);
}

static vid make_add(maker *m)
{
    return OP2(Add, P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 4));
}

static vid make_sub(maker *m)
{
    return OP2(Sub, P(m, -1, 1, 3, 1), P(m, -1, 1, 2, 3, 4));
}

static vid make_mul(maker *m)
{
    return OP2(Mul, P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 3, 1));
}

static vid make_square(maker *m)
{
    vid x = P(m, -1, 1, 2, 3);
    return OP2(Mul, x, x);
}

static vid make_div(maker *m)
{
    return OP2(Div, P(m, -1, 1, 2, 3, 4), P(m, 0.5, 2, 1, 4));
}

static vid make_pow(maker *m)
{
    return OP2(Pow, P(m, 0.5, 2, 2, 3), P(m, -1, 3, 3));
}

static vid make_pow_const(maker *m)
{
    double k = 3.0;
    return OP2(Pow, P(m, -2, 2, 2, 3), ru_build_const(&m->b, ru_type_scalar(RU_F64), &k));
}

static vid make_max(maker *m)
{
    vid in[3] = {P(m, -1, 1, 2, 3), P(m, -1, 1, 3), P(m, -1, 1, 2, 1)};
    return node_out(m, RU_OP_Max, in, 3, NULL, 1, 0);
}

static vid make_min(maker *m)
{
    return OP2(Min, P(m, -1, 1, 2, 3), P(m, -1, 1, 3));
}

static vid make_mean(maker *m)
{
    vid in[3] = {P(m, -1, 1, 2, 3), P(m, -1, 1, 3), P(m, -1, 1, 2, 1)};
    return node_out(m, RU_OP_Mean, in, 3, NULL, 1, 0);
}

static vid make_sum(maker *m)
{
    vid in[3] = {P(m, -1, 1, 2, 3), P(m, -1, 1, 3), P(m, -1, 1, 2, 1)};
    return node_out(m, RU_OP_Sum, in, 3, NULL, 1, 0);
}

static vid make_where(maker *m)
{
    uint8_t cond[6] = {1, 0, 0, 1, 1, 0};
    vid c = ru_build_const(&m->b, ru_type_make(RU_BOOL, 2, INTS(2, 3)), cond);
    return OP3A(Where, c, P(m, -1, 1, 3), P(m, -1, 1, 2, 3), NULL);
}

static vid make_prelu(maker *m)
{
    return OP2(PRelu, P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 3, 1));
}

static vid make_cast(maker *m)
{
    return OP1A(Cast, P(m, -1, 1, 2, 3), A(RU_AI(to, 11)));
}

/* -- products ---------------------------------------------------------------------------------- */

static vid make_gemm(maker *m)
{
    return OP3A(Gemm, P(m, -1, 1, 3, 4), P(m, -1, 1, 4, 5), P(m, -1, 1, 5),
                A(RU_AF(alpha, 0.5), RU_AF(beta, 2.0)));
}

static vid make_gemm_ta(maker *m)
{
    return OP3A(Gemm, P(m, -1, 1, 4, 3), P(m, -1, 1, 4, 5), P(m, -1, 1, 3, 1), A(RU_AI(transA, 1)));
}

static vid make_gemm_tb(maker *m)
{
    return OP2A(Gemm, P(m, -1, 1, 3, 4), P(m, -1, 1, 5, 4), A(RU_AI(transB, 1)));
}

static vid make_gemm_tatb(maker *m)
{
    return OP2A(Gemm, P(m, -1, 1, 4, 3), P(m, -1, 1, 5, 4), A(RU_AI(transA, 1), RU_AI(transB, 1)));
}

static vid make_matmul(maker *m)
{
    return OP2(MatMul, P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 4, 5));
}

static vid make_matmul_batch(maker *m)
{
    return OP2(MatMul, P(m, -1, 1, 2, 1, 3, 4), P(m, -1, 1, 3, 4, 2));
}

static vid make_matmul_tatb(maker *m)
{
    return OP2A(MatMul, P(m, -1, 1, 2, 4, 3), P(m, -1, 1, 2, 5, 4),
                A(RU_AI(transA, 1), RU_AI(transB, 1)));
}

static vid make_matmul_tb(maker *m)
{
    return OP2A(MatMul, P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 5, 4), A(RU_AI(transB, 1)));
}

static vid make_matmul_vec(maker *m)
{
    return OP2(MatMul, P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 4));
}

static vid make_matmul_row(maker *m)
{
    return OP2(MatMul, P(m, -1, 1, 3), P(m, -1, 1, 2, 3, 4));
}

static vid make_matmul_dot(maker *m)
{
    return OP2(MatMul, P(m, -1, 1, 3), P(m, -1, 1, 3));
}

static vid make_einsum(maker *m)
{
    return OP2A(Einsum, P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 2, 5, 4),
                A(RU_AS(equation, "bij,bkj->bik")));
}

static vid make_einsum_implicit(maker *m)
{
    return OP2A(Einsum, P(m, -1, 1, 3, 4), P(m, -1, 1, 4, 2), A(RU_AS(equation, "ij, jk")));
}

static vid make_einsum_sum(maker *m)
{
    return OP2A(Einsum, P(m, -1, 1, 3, 4, 2), P(m, -1, 1, 4), A(RU_AS(equation, "ijs,j->i")));
}

/* -- convolution and pooling ------------------------------------------------------------------- */

static vid make_conv(maker *m)
{
    return OP3A(Conv, P(m, -1, 1, 2, 4, 5, 6), P(m, -1, 1, 6, 2, 3, 2), P(m, -1, 1, 6),
                A(RU_AI(group, 2), RU_AIS(pads, INTS(1, 0, 2, 1), 4),
                  RU_AIS(strides, INTS(2, 1), 2), RU_AIS(dilations, INTS(1, 2), 2)));
}

static vid make_conv_1d(maker *m)
{
    return OP2A(Conv, P(m, -1, 1, 2, 2, 7), P(m, -1, 1, 3, 2, 3), A(RU_AS(auto_pad, "SAME_UPPER")));
}

static vid make_convtranspose(maker *m)
{
    return OP3A(ConvTranspose, P(m, -1, 1, 2, 4, 3, 3), P(m, -1, 1, 4, 3, 3, 2), P(m, -1, 1, 6),
                A(RU_AI(group, 2), RU_AIS(pads, INTS(1, 0, 1, 0), 4),
                  RU_AIS(strides, INTS(2, 2), 2), RU_AIS(output_padding, INTS(1, 0), 2)));
}

static vid make_maxpool(maker *m)
{
    return OP1A(MaxPool, P(m, -1, 1, 2, 2, 5, 6),
                A(RU_AIS(kernel_shape, INTS(3, 2), 2), RU_AIS(strides, INTS(2, 2), 2),
                  RU_AIS(pads, INTS(1, 0, 1, 0), 4)));
}

static vid make_avgpool(maker *m)
{
    return OP1A(AveragePool, P(m, -1, 1, 2, 2, 5, 6),
                A(RU_AIS(kernel_shape, INTS(3, 2), 2), RU_AIS(strides, INTS(2, 2), 2),
                  RU_AIS(pads, INTS(1, 0, 1, 0), 4), RU_AI(ceil_mode, 1)));
}

static vid make_avgpool_pad(maker *m)
{
    return OP1A(AveragePool, P(m, -1, 1, 1, 2, 5, 6),
                A(RU_AIS(kernel_shape, INTS(3, 2), 2), RU_AIS(pads, INTS(1, 0, 1, 0), 4),
                  RU_AI(count_include_pad, 1)));
}

static vid make_gap(maker *m)
{
    return OP1(GlobalAveragePool, P(m, -1, 1, 2, 3, 4, 5));
}

static vid make_gmp(maker *m)
{
    return OP1(GlobalMaxPool, P(m, -1, 1, 2, 3, 4, 5));
}

/* -- normalisation and softmax ----------------------------------------------------------------- */

static vid make_layernorm(maker *m)
{
    return OP3A(LayerNormalization, P(m, -1, 1, 2, 3, 5), P(m, 0.5, 1.5, 5), P(m, -1, 1, 5),
                A(RU_AI(stash_type, 11), RU_AF(epsilon, 1e-3)));
}

static vid make_layernorm_2(maker *m)
{
    return OP3A(LayerNormalization, P(m, -1, 1, 2, 3, 5), P(m, 0.5, 1.5, 3, 5), P(m, -1, 1, 3, 5),
                A(RU_AI(stash_type, 11), RU_AI(axis, 1)));
}

static vid make_groupnorm(maker *m)
{
    return OP3A(GroupNormalization, P(m, -1, 1, 2, 4, 3, 2), P(m, 0.5, 1.5, 4), P(m, -1, 1, 4),
                A(RU_AI(num_groups, 2)));
}

static vid make_instancenorm(maker *m)
{
    return OP3A(InstanceNormalization, P(m, -1, 1, 2, 4, 3, 2), P(m, 0.5, 1.5, 4), P(m, -1, 1, 4),
                NULL);
}

static vid make_batchnorm(maker *m)
{
    vid x = P(m, -1, 1, 3, 4, 2, 2);
    vid in[5] = {x, P(m, 0.5, 1.5, 4), P(m, -1, 1, 4), param_of(m, RU_F64, DIMS(4), 0, 1, false),
                 param_of(m, RU_F64, DIMS(4), 1, 2, false)};
    return node_out(m, RU_OP_BatchNormTrain, in, 5, A(RU_AF(epsilon, 1e-3)), 5, 0);
}

static vid make_softmax(maker *m)
{
    return OP1A(Softmax, P(m, -1, 1, 2, 3, 4), A(RU_AI(axis, 1)));
}

static vid make_logsoftmax(maker *m)
{
    return OP1(LogSoftmax, P(m, -1, 1, 2, 5));
}

/* -- reductions -------------------------------------------------------------------------------- */

static vid reduce(maker *m, ru_op op, double lo, double hi)
{
    vid x = P(m, lo, hi, 2, 3, 4);
    vid a = ru_build_op2(&m->b, op, x, ints(m, 2, INTS(0, -1)), A(RU_AI(keepdims, 0)));
    vid b = ru_build_op1(&m->b, op, x, A(RU_AIS(axes, INTS(1), 1)));
    vid c = ru_build_op1(&m->b, op, x, A(RU_AI(keepdims, 0)));
    return OP2(Add, OP2(Mul, a, c), OP2(MatMul, b, P(m, -1, 1, 4, 3)));
}

static vid make_reducesum(maker *m)
{
    return reduce(m, RU_OP_ReduceSum, -1, 1);
}

static vid make_reducemean(maker *m)
{
    return reduce(m, RU_OP_ReduceMean, -1, 1);
}

static vid make_reducel1(maker *m)
{
    return reduce(m, RU_OP_ReduceL1, 0.2, 1);
}

static vid make_reducel2(maker *m)
{
    return reduce(m, RU_OP_ReduceL2, -1, 1);
}

static vid make_reducelse(maker *m)
{
    return reduce(m, RU_OP_ReduceLogSumExp, -1, 1);
}

static vid make_reducesq(maker *m)
{
    return reduce(m, RU_OP_ReduceSumSquare, -1, 1);
}

static vid make_reducemax(maker *m)
{
    return reduce(m, RU_OP_ReduceMax, -1, 1);
}

static vid make_reducemin(maker *m)
{
    return reduce(m, RU_OP_ReduceMin, -1, 1);
}

static vid make_cumsum(maker *m)
{
    vid x = P(m, -1, 1, 2, 4);
    int64_t axis = 1;
    vid a = ru_build_const(&m->b, ru_type_scalar(RU_I64), &axis);
    return OP2A(CumSum, OP2A(CumSum, x, a, A(RU_AI(exclusive, 1))), a, A(RU_AI(reverse, 1)));
}

static vid make_topk(maker *m)
{
    vid in[2] = {P(m, -1, 1, 3, 5), ints(m, 1, INTS(2))};
    return node_out(m, RU_OP_TopK, in, 2, A(RU_AI(axis, 1)), 2, 0);
}

/* -- shape ------------------------------------------------------------------------------------- */

static vid make_concat(maker *m)
{
    vid in[3] = {P(m, -1, 1, 2, 3), P(m, -1, 1, 2, 1), P(m, -1, 1, 2, 2)};
    return node_out(m, RU_OP_Concat, in, 3, A(RU_AI(axis, -1)), 1, 0);
}

static vid make_split(maker *m)
{
    vid in[2] = {P(m, -1, 1, 2, 6), ints(m, 3, INTS(1, 3, 2))};
    vid out[3];
    ru_build_node(&m->b, RU_OP_Split, in, 2, A(RU_AI(axis, 1)), out, 3);
    return OP2(Mul, out[0], out[2]); /* the middle part has no gradient */
}

static vid make_reshape(maker *m)
{
    vid x = OP2(Reshape, P(m, -1, 1, 2, 6), ints(m, 3, INTS(3, -1, 2)));
    x = OP2(Unsqueeze, x, ints(m, 2, INTS(0, -1)));
    return OP1A(Flatten, OP2(Squeeze, x, ints(m, 1, INTS(0))), A(RU_AI(axis, 2)));
}

static vid make_transpose(maker *m)
{
    return OP1A(Transpose, P(m, -1, 1, 2, 3, 4), A(RU_AIS(perm, INTS(2, 0, 1), 3)));
}

static vid make_transpose_all(maker *m)
{
    return OP1(Transpose, P(m, -1, 1, 2, 3, 4));
}

static vid make_expand(maker *m)
{
    return OP2(Expand, P(m, -1, 1, 3, 1), ints(m, 3, INTS(2, 3, 4)));
}

static vid make_tile(maker *m)
{
    return OP2(Tile, P(m, -1, 1, 2, 3), ints(m, 2, INTS(1, 3)));
}

static vid make_slice(maker *m)
{
    vid in[5] = {P(m, -1, 1, 4, 5), ints(m, 2, INTS(-1, 0)), ints(m, 2, INTS(-5, 3)),
                 ints(m, 2, INTS(1, 0)), ints(m, 2, INTS(-2, 1))};
    return node_out(m, RU_OP_Slice, in, 5, NULL, 1, 0);
}

static vid pad(maker *m, const char *mode)
{
    return OP2A(Pad, P(m, -1, 1, 3, 4), ints(m, 4, INTS(1, 0, 0, 2)), A(RU_AS(mode, mode)));
}

static vid make_pad(maker *m)
{
    return pad(m, "constant");
}

static vid make_pad_reflect(maker *m)
{
    return pad(m, "reflect");
}

static vid make_pad_edge(maker *m)
{
    return pad(m, "edge");
}

static vid make_pad_axes(maker *m)
{
    vid in[4] = {P(m, -1, 1, 2, 3, 4), ints(m, 2, INTS(1, 2)), {0}, ints(m, 1, INTS(-2))};
    return node_out(m, RU_OP_Pad, in, 4, A(RU_AS(mode, "reflect")), 1, 0);
}

static vid make_gather(maker *m)
{
    return OP2A(Gather, P(m, -1, 1, 2, 5), INT(m, 0, 5, 2, 3), A(RU_AI(axis, 1)));
}

static vid make_gatherelements(maker *m)
{
    return OP2A(GatherElements, P(m, -1, 1, 3, 4), INT(m, 0, 3, 2, 4), A(RU_AI(axis, 0)));
}

static vid make_gathernd(maker *m)
{
    return OP2A(GatherND, P(m, -1, 1, 3, 2, 4), INT(m, 0, 2, 5, 2), NULL);
}

static vid make_scatterelements(maker *m)
{
    vid idx = ints(m, 4, INTS(2, 0, 1, 3));
    idx = OP2(Reshape, idx, ints(m, 2, INTS(2, 2)));
    return OP3A(ScatterElements, P(m, -1, 1, 2, 4), idx, P(m, -1, 1, 2, 2), A(RU_AI(axis, 1)));
}

static vid make_scatternd(maker *m)
{
    vid idx = OP2(Reshape, ints(m, 2, INTS(2, 0)), ints(m, 2, INTS(2, 1)));
    return OP3A(ScatterND, P(m, -1, 1, 3, 4), idx, P(m, -1, 1, 2, 4), NULL);
}

static vid make_scatternd_add(maker *m)
{
    vid idx = OP2(Reshape, ints(m, 2, INTS(1, 1)), ints(m, 2, INTS(2, 1)));
    return OP3A(ScatterND, P(m, -1, 1, 3, 4), idx, P(m, -1, 1, 2, 4), A(RU_AS(reduction, "add")));
}

static vid make_depthtospace(maker *m)
{
    vid x = P(m, -1, 1, 1, 8, 2, 3);
    vid a = OP1A(DepthToSpace, x, A(RU_AI(blocksize, 2)));
    vid b = OP1A(DepthToSpace, x, A(RU_AI(blocksize, 2), RU_AS(mode, "CRD")));
    return OP2(Mul, a, b);
}

static vid make_spacetodepth(maker *m)
{
    return OP1A(SpaceToDepth, P(m, -1, 1, 1, 2, 4, 6), A(RU_AI(blocksize, 2)));
}

static vid make_trilu(maker *m)
{
    int64_t k = 1;
    vid kk = ru_build_const(&m->b, ru_type_scalar(RU_I64), &k);
    return OP2A(Trilu, P(m, -1, 1, 4, 4), kk, A(RU_AI(upper, 0)));
}

/* -- losses, attention, recurrence ------------------------------------------------------------- */

static vid make_sce(maker *m)
{
    vid in[2] = {P(m, -1, 1, 2, 3, 5), INT(m, 0, 5, 2, 3)};
    return node_out(m, RU_OP_SoftmaxCrossEntropy, in, 2,
                    A(RU_AF(label_smoothing, 0.1), RU_AI(ignore_index, 2)), 4, 0);
}

static vid make_bce(maker *m)
{
    vid t = param_of(m, RU_F64, DIMS(3, 4), 0, 1, false);
    return OP2(BinaryCrossEntropyLogits, P(m, -2, 2, 3, 4), t);
}

static vid make_mse(maker *m)
{
    return OP2(MeanSquaredError, P(m, -2, 2, 3, 4), P(m, -1, 1, 3, 4));
}

static vid make_attention(maker *m)
{
    vid in[4] = {P(m, -1, 1, 2, 3, 4), P(m, -1, 1, 2, 5, 4), P(m, -1, 1, 2, 5, 4),
                 param_of(m, RU_F64, DIMS(3, 5), -1, 1, false)};
    return node_out(m, RU_OP_Attention, in, 4, A(RU_AI(heads, 2), RU_AF(scale, 0.7)), 1, 0);
}

static vid make_attention_bhtd(maker *m)
{
    vid in[3] = {P(m, -1, 1, 2, 2, 3, 4), P(m, -1, 1, 2, 2, 3, 4), P(m, -1, 1, 2, 2, 3, 4)};
    return node_out(m, RU_OP_Attention, in, 3,
                    A(RU_AI(causal, 1), RU_AF(scale, 0.5), RU_AS(layout, "bhtd")), 1, 0);
}

static vid make_attentionqkv(maker *m)
{
    return OP1A(AttentionQkv, P(m, -1, 1, 2, 3, 12),
                A(RU_AI(heads, 2), RU_AI(causal, 1), RU_AF(scale, 0.7)));
}

static vid rnn(maker *m, bool lstm, const char *direction, int64_t layout, int64_t lbr)
{
    int64_t dirs = direction[0] == 'b' ? 2 : 1;
    int64_t gates = lstm ? 4 : 3;
    int64_t xd[3] = {layout != 0 ? 2 : 4, layout != 0 ? 4 : 2, 3};
    int64_t hd[3] = {layout != 0 ? 2 : dirs, layout != 0 ? dirs : 2, 2};
    vid in[7] = {param_of(m, m->dtype, 3, xd, -1, 1, true),
                 param_of(m, m->dtype, 3, INTS(dirs, gates * 2, 3), -1, 1, true),
                 param_of(m, m->dtype, 3, INTS(dirs, gates * 2, 2), -1, 1, true),
                 param_of(m, m->dtype, 2, INTS(dirs, gates * 4), -1, 1, true),
                 {0},
                 param_of(m, m->dtype, 3, hd, -1, 1, true)};
    if (lstm) {
        in[6] = param_of(m, m->dtype, 3, hd, -1, 1, true);
    }
    vid out[4];
    ru_build_node(&m->b, lstm ? RU_OP_LSTMTrain : RU_OP_GRUTrain, in, lstm ? 7 : 6,
                  A(RU_AI(hidden_size, 2), RU_AS(direction, direction), RU_AI(layout, layout),
                    RU_AI(linear_before_reset, lbr)),
                  out, lstm ? 4 : 3);
    vid last = lstm ? OP2(Mul, out[1], out[2]) : out[1];
    vid sum = OP1A(ReduceSum, last, A(RU_AI(keepdims, 0)));
    return OP2(Mul, out[0], sum);
}

static vid make_lstm(maker *m)
{
    return rnn(m, true, "forward", 0, 0);
}

static vid make_lstm_bi(maker *m)
{
    return rnn(m, true, "bidirectional", 1, 0);
}

static vid make_gru(maker *m)
{
    return rnn(m, false, "forward", 0, 0);
}

static vid make_gru_lbr(maker *m)
{
    return rnn(m, false, "reverse", 0, 1);
}

static vid make_dropout(maker *m)
{
    vid in[1] = {P(m, -1, 1, 4, 6)};
    return node_out(m, RU_OP_DropoutTrain, in, 1, A(RU_AF(ratio, 0.4), RU_AI(stream, 3)), 2, 0);
}

/* A value used twice, a value not differentiated, and a loss that is the output of several paths.
 */
static vid make_fanout(maker *m)
{
    vid x = P(m, -1, 1, 3, 4);
    vid y = OP1(Tanh, OP2(MatMul, x, P(m, -1, 1, 4, 4)));
    vid z = OP2(Add, OP2(Mul, x, y), OP1(Sigmoid, x));
    return OP2(Sub, z, OP2(Mul, y, y));
}

static vid make_reduceto(maker *m)
{
    return OP2(ReduceTo, P(m, -1, 1, 2, 3, 4), param_of(m, RU_F64, DIMS(3, 1), 0, 1, false));
}

#define CASE(name)                     \
    {                                  \
#name, make_##name, 1e-5, 1e-7 \
    }
#define CASE_F32(name, h, t)     \
    {                            \
#name, make_##name, h, t \
    } /* some part is f32 by contract */

static const grad_case cases[] = {
    CASE(gelu_tanh),
    CASE(clip),
    CASE(add),
    CASE(sub),
    CASE(mul),
    CASE(square),
    CASE(div),
    CASE(pow),
    CASE(pow_const),
    CASE(max),
    CASE(min),
    CASE(mean),
    CASE(sum),
    CASE(where),
    CASE(prelu),
    CASE(cast),
    CASE(gemm),
    CASE(gemm_ta),
    CASE(gemm_tb),
    CASE(gemm_tatb),
    CASE(matmul),
    CASE(matmul_batch),
    CASE(matmul_tatb),
    CASE(matmul_tb),
    CASE(matmul_vec),
    CASE(matmul_row),
    CASE(matmul_dot),
    CASE(einsum),
    CASE(einsum_implicit),
    CASE(einsum_sum),
    CASE(conv),
    CASE(conv_1d),
    CASE(convtranspose),
    CASE(maxpool),
    CASE(avgpool),
    CASE(avgpool_pad),
    CASE(gap),
    CASE(gmp),
    CASE(layernorm),
    CASE(layernorm_2),
    CASE(groupnorm),
    CASE(instancenorm),
    CASE_F32(batchnorm, 1e-5, 1e-5),
    CASE(softmax),
    CASE(logsoftmax),
    CASE(reducesum),
    CASE(reducemean),
    CASE(reducel1),
    CASE(reducel2),
    CASE(reducelse),
    CASE(reducesq),
    CASE(reducemax),
    CASE(reducemin),
    CASE(cumsum),
    CASE(topk),
    CASE(concat),
    CASE(split),
    CASE(reshape),
    CASE(transpose),
    CASE(transpose_all),
    CASE(expand),
    CASE(tile),
    CASE(slice),
    CASE(pad),
    CASE(pad_reflect),
    CASE(pad_edge),
    CASE(pad_axes),
    CASE(gather),
    CASE(gatherelements),
    CASE(gathernd),
    CASE(scatterelements),
    CASE(scatternd),
    CASE(scatternd_add),
    CASE(depthtospace),
    CASE(spacetodepth),
    CASE(trilu),
    CASE_F32(sce, 1e-2, 1e-3),
    CASE_F32(bce, 1e-2, 1e-3),
    CASE_F32(mse, 1e-2, 1e-3),
    CASE_F32(attention, 1e-5, 1e-5),
    CASE_F32(attention_bhtd, 1e-5, 1e-5),
    CASE_F32(attentionqkv, 1e-5, 1e-5),
    CASE_F32(lstm, 1e-5, 1e-5),
    CASE_F32(lstm_bi, 1e-5, 1e-5),
    CASE_F32(gru, 1e-5, 1e-5),
    CASE_F32(gru_lbr, 1e-5, 1e-5),
    CASE(dropout),
    CASE(fanout),
    CASE(reduceto),
};

const grad_case *grad_cases(uint32_t *n)
{
    *n = RU_ARRAY_LEN(cases);
    return cases;
}
