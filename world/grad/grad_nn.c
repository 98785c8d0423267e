/* Gradients of convolution, pooling, normalisation, losses, attention, recurrence and dropout. */
#include "world/grad/grad_impl.h"

#include <string.h>

/* Bias gradient of a convolution alone: the sum over all but the channel axis. */
static vid channel_sum(rui_grad *c, vid dy)
{
    uint32_t rank = rui_type(c, dy).rank;
    int64_t axes[RU_RANK_MAX] = {0};
    for (uint32_t i = 2; i < rank; i++) {
        axes[i - 1] = (int64_t)i;
    }
    return ru_build_op1(&c->b, RU_OP_ReduceSum, dy,
                        (ru_attr[]){RU_AIS(axes, axes, rank - 1), RU_AI(keepdims, 0), RU_A_END});
}

static void conv_rule(rui_grad *c, ru_op op_x, ru_op op_w)
{
    vid dy = rui_dy(c, 0);
    if (ru_node_has_in(&c->n, 3)) {
        rui_no_gradient(c, "it is fused with a residual; differentiate before fusing");
        return;
    }
    if (rui_want(c, 1)) {
        vid out[2];
        bool bias = rui_want(c, 2);
        rui_node_same(c, op_w, (vid[]){dy, rui_x(c, 0), rui_x(c, 1)}, 3,
                      (ru_attr[]){RU_AI(bias_term, bias ? 1 : 0), RU_A_END}, out, bias ? 2 : 1);
        rui_give(c, 1, out[0]);
        if (bias) {
            rui_give(c, 2, out[1]);
        }
    } else if (rui_want(c, 2)) {
        rui_give(c, 2, channel_sum(c, dy));
    }
    if (rui_want(c, 0)) {
        rui_give(c, 0, rui_op_same(c, op_x, (vid[]){dy, rui_x(c, 1), rui_x(c, 0)}, 3));
    }
}

void rui_grad_conv(rui_grad *c)
{
    conv_rule(c, RU_OP_ConvGradX, RU_OP_ConvGradW);
}

void rui_grad_convtranspose(rui_grad *c)
{
    conv_rule(c, RU_OP_ConvTransposeGradX, RU_OP_ConvTransposeGradW);
}

void rui_grad_maxpool(rui_grad *c)
{
    vid in[3] = {rui_dy(c, 0), rui_x(c, 0), rui_y(c, 0)};
    rui_give(c, 0, rui_op_same(c, RU_OP_MaxPoolGrad, in, 3));
}

void rui_grad_averagepool(rui_grad *c)
{
    rui_give(c, 0, rui_op_same(c, RU_OP_AveragePoolGrad, (vid[]){rui_dy(c, 0), rui_x(c, 0)}, 2));
}

void rui_grad_globalaveragepool(rui_grad *c)
{
    rui_give(c, 0, rui_op2(c, RU_OP_GlobalAveragePoolGrad, rui_dy(c, 0), rui_x(c, 0)));
}

void rui_grad_globalmaxpool(rui_grad *c)
{
    rui_give(c, 0, rui_op3(c, RU_OP_GlobalMaxPoolGrad, rui_dy(c, 0), rui_x(c, 0), rui_y(c, 0)));
}

void rui_grad_softmax(rui_grad *c)
{
    rui_give(c, 0, rui_op_same(c, RU_OP_SoftmaxGrad, (vid[]){rui_dy(c, 0), rui_y(c, 0)}, 2));
}

void rui_grad_logsoftmax(rui_grad *c)
{
    rui_give(c, 0, rui_op_same(c, RU_OP_LogSoftmaxGrad, (vid[]){rui_dy(c, 0), rui_y(c, 0)}, 2));
}

/* dx, dscale, dbias of a normalisation from one node. */
static void norm_rule(rui_grad *c, ru_op op, const vid *in, uint32_t n_in)
{
    vid out[3];
    rui_node_same(c, op, in, n_in, NULL, out, 3);
    for (uint32_t k = 0; k < 3; k++) {
        rui_give(c, k, out[k]);
    }
}

void rui_grad_layernorm(rui_grad *c)
{
    if (rui_dy(c, 1).v != 0 || rui_dy(c, 2).v != 0) {
        rui_no_gradient(c, "trained parts use its statistics, which have no gradient");
        return;
    }
    vid mean = rui_force_output(c, 1);
    vid inv = rui_force_output(c, 2);
    vid in[5] = {rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1), mean, inv};
    norm_rule(c, RU_OP_LayerNormGrad, in, 5);
}

void rui_grad_groupnorm(rui_grad *c)
{
    norm_rule(c, RU_OP_GroupNormGrad, (vid[]){rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1)}, 3);
}

void rui_grad_instancenorm(rui_grad *c)
{
    norm_rule(c, RU_OP_InstanceNormGrad, (vid[]){rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1)}, 3);
}

/* With statistics that do not move: y = (x - mean) k + bias, k = scale / sqrt(var + epsilon). */
void rui_grad_batchnorm(rui_grad *c)
{
    if (rui_want(c, 3) || rui_want(c, 4) || ru_node_has_in(&c->n, 5)) {
        rui_no_gradient(c, "its statistics and fused forms have no gradient");
        return;
    }
    vid dy = rui_dy(c, 0), zero = rui_zeros_like(c, rui_x(c, 3)), var = rui_x(c, 4);
    int64_t axes[RU_RANK_MAX];
    uint32_t n = 0;
    for (uint32_t d = 0; d < rui_type(c, dy).rank; d++) {
        axes[n] = d;
        n += d != 1 ? 1 : 0;
    }
    const ru_attr *sum = (ru_attr[]){RU_AIS(axes, axes, n), RU_AI(keepdims, 0), RU_A_END};
    if (rui_want(c, 0)) {
        vid in[5] = {dy, rui_x(c, 1), zero, zero, var};
        rui_give(c, 0, rui_op_same(c, RU_OP_BatchNormalization, in, 5));
    }
    if (rui_want(c, 1)) {
        vid one = rui_op2(c, RU_OP_Add, zero, rui_scalar(c, rui_type(c, zero).dtype, 1));
        vid in[5] = {rui_x(c, 0), one, zero, rui_x(c, 3), var};
        vid norm = rui_op_same(c, RU_OP_BatchNormalization, in, 5);
        rui_give(c, 1, ru_build_op1(&c->b, RU_OP_ReduceSum, rui_mul(c, dy, norm), sum));
    }
    if (rui_want(c, 2)) {
        rui_give(c, 2, ru_build_op1(&c->b, RU_OP_ReduceSum, dy, sum));
    }
}

void rui_grad_batchnormtrain(rui_grad *c)
{
    if (rui_dy(c, 0).v == 0 || ru_node_has_in(&c->n, 5)) {
        rui_no_gradient(c, "only its output y, not yet fused with a residual, has a gradient");
        return;
    }
    vid in[5] = {rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1), rui_y(c, 3), rui_y(c, 4)};
    norm_rule(c, RU_OP_BatchNormGrad, in, 5);
}

/* -- losses ------------------------------------------------------------------------------------ */

void rui_grad_sce(rui_grad *c)
{
    if (rui_dy(c, 0).v == 0) {
        rui_no_gradient(c, "only its output loss has a gradient");
        return;
    }
    vid in[4] = {rui_dy(c, 0), rui_y(c, 1), rui_x(c, 1), rui_x(c, 2)};
    rui_give(c, 0, rui_op_same(c, RU_OP_SoftmaxCrossEntropyGrad, in, in[3].v != 0 ? 4 : 3));
}

void rui_grad_bce(rui_grad *c)
{
    vid in[3] = {rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1)};
    rui_give(c, 0, rui_op_same(c, RU_OP_BinaryCrossEntropyLogitsGrad, in, 3));
    if (rui_want(c, 1)) {
        rui_no_gradient(c, "the target has no gradient");
    }
}

void rui_grad_mse(rui_grad *c)
{
    vid in[3] = {rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1)};
    vid d = rui_op_same(c, RU_OP_MeanSquaredErrorGrad, in, 3);
    rui_give(c, 0, d);
    if (rui_want(c, 1)) {
        rui_give(c, 1, rui_scale(c, d, -1.0));
    }
}

/* -- attention, recurrence, dropout ------------------------------------------------------------ */

void rui_grad_attention(rui_grad *c)
{
    vid stats = rui_force_output(c, 1);
    vid in[7] = {rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1), rui_x(c, 2),
                 rui_y(c, 0),  stats,       rui_x(c, 3)};
    vid out[3];
    rui_node_same(c, RU_OP_AttentionGrad, in, in[6].v != 0 ? 7 : 6, NULL, out, 3);
    for (uint32_t k = 0; k < 3; k++) {
        rui_give(c, k, out[k]);
    }
    if (rui_want(c, 3)) {
        rui_no_gradient(c, "the mask has no gradient");
    }
}

void rui_grad_attentionqkv(rui_grad *c)
{
    vid stats = rui_force_output(c, 1);
    vid in[5] = {rui_dy(c, 0), rui_x(c, 0), rui_y(c, 0), stats, rui_x(c, 1)};
    rui_give(c, 0, rui_op_same(c, RU_OP_AttentionQkvGrad, in, in[4].v != 0 ? 5 : 4));
    if (rui_want(c, 1)) {
        rui_no_gradient(c, "the mask has no gradient");
    }
}

/* LSTM inputs: X W R B lens h0 c0 P; GRU: X W R B lens h0. `last`: h0 (and c0). */
static void rnn_rule(rui_grad *c, bool lstm)
{
    uint32_t ws = lstm ? 3 : 2;
    if (ru_node_has_in(&c->n, 4) || ru_node_has_in(&c->n, 7)) {
        rui_no_gradient(c, "sequence lengths and peepholes have no gradient");
        return;
    }
    if (ru_node_attr(&c->n, RU_ATTR_activations) != NULL ||
        ru_node_attr(&c->n, RU_ATTR_clip) != NULL ||
        ru_node_int(&c->n, RU_ATTR_input_forget, 0) != 0) {
        rui_no_gradient(c, "attributes activations, clip and input_forget have no gradient");
        return;
    }
    vid in[11];
    uint32_t n = 0;
    for (uint32_t k = 0; k < ws; k++) {
        in[n++] = rui_dy(c, k);
    }
    for (uint32_t k = 0; k < 4; k++) {
        in[n++] = rui_x(c, k);
    }
    in[n++] = rui_x(c, 5);
    if (lstm) {
        in[n++] = rui_x(c, 6);
    }
    in[n++] = rui_y(c, 0);
    in[n++] = rui_y(c, ws);
    vid out[6];
    rui_node_same(c, lstm ? RU_OP_LSTMGrad : RU_OP_GRUGrad, in, n, NULL, out, lstm ? 6 : 5);
    for (uint32_t k = 0; k < 4; k++) {
        rui_give(c, k, out[k]);
    }
    rui_give(c, 5, out[4]);
    if (lstm) {
        rui_give(c, 6, out[5]);
    }
}

void rui_grad_lstmtrain(rui_grad *c)
{
    rnn_rule(c, true);
}

void rui_grad_grutrain(rui_grad *c)
{
    rnn_rule(c, false);
}

/* All activations Tanh, or all Relu, as the standard spells them. */
static bool plain_activations(const ru_node *n)
{
    const ru_attr *a = ru_node_attr(n, RU_ATTR_activations);
    bool tanh = true, relu = a != NULL;
    for (uint32_t k = 0; a != NULL && k < a->n; k++) {
        tanh = tanh && strcmp(a->u.ss[k], "Tanh") == 0;
        relu = relu && strcmp(a->u.ss[k], "Relu") == 0;
    }
    return tanh || relu;
}

void rui_grad_rnn(rui_grad *c)
{
    if (ru_node_has_in(&c->n, 4) || ru_node_attr(&c->n, RU_ATTR_clip) != NULL ||
        !plain_activations(&c->n)) {
        rui_no_gradient(c, "sequence lengths, clip and activations other than Tanh and Relu have "
                           "no gradient");
        return;
    }
    vid y = rui_force_output(c, 0);
    vid in[8] = {rui_dy(c, 0), rui_dy(c, 1), rui_x(c, 0), rui_x(c, 1),
                 rui_x(c, 2),  rui_x(c, 3),  rui_x(c, 5), y};
    vid out[5];
    rui_node_same(c, RU_OP_RNNGrad, in, 8, NULL, out, 5);
    for (uint32_t k = 0; k < 4; k++) {
        rui_give(c, k, out[k]);
    }
    rui_give(c, 5, out[4]);
}

void rui_grad_dropouttrain(rui_grad *c)
{
    rui_give(c, 0, rui_op_same(c, RU_OP_DropoutGrad, (vid[]){rui_dy(c, 0), rui_y(c, 1)}, 2));
}
