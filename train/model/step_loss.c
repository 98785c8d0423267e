/* Losses and the metrics that come with them. */
#include <stddef.h>

#include "train/model/step_impl.h"

/* `v` in dtype `to`. */
static ru_value_id cast(ru_build *b, ru_value_id v, ru_dtype to)
{
    if (ru_graph_value(b->g, v)->type.dtype == to) {
        return v;
    }
    return ru_build_op1(b, RU_OP_Cast, v, (ru_attr[]){RU_AI(to, ru_dtype_onnx(to)), RU_A_END});
}

/* `v` in the shape of `like`, when the counts agree. */
static ru_value_id reshape_like(ru_build *b, ru_value_id v, ru_value_id like)
{
    ru_type to = ru_graph_value(b->g, like)->type;
    if (ru_graph_value(b->g, v)->type.rank == to.rank) {
        return v;
    }
    return ru_build_op2(b, RU_OP_Reshape, v, ru_build_const_i64s(b, to.dims, to.rank), NULL);
}

static ru_status shape_error(const ru_build *b, const char *loss, ru_value_id prediction,
                             ru_value_id y, const char *expected, ru_err *err)
{
    char p[160], t[160];
    ru_type_print(b->g, &ru_graph_value(b->g, prediction)->type, p, sizeof p);
    ru_type_print(b->g, &ru_graph_value(b->g, y)->type, t, sizeof t);
    return RU_FAIL(err, RU_E_CONFIG,
                   "loss %s: the model's output is %s but the labels of the data are %s; %s", loss,
                   p, t, expected);
}

/* The mean is over samples, not over their weights, so that parts of a batch add up. */
static ru_status class_weights(ru_build *b, const ru_step_options *opt, int64_t classes,
                               ru_value_id *out, ru_err *err)
{
    if (opt->loss != RU_LOSS_CROSS_ENTROPY || opt->n_class_weights != classes) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.class_weights has %u numbers, but %s; it needs the loss "
                       "cross_entropy and one number for each class",
                       opt->n_class_weights,
                       opt->loss != RU_LOSS_CROSS_ENTROPY ? "the loss is another one"
                                                          : "the model has another number of "
                                                            "outputs");
    }
    float *w = RU_NEW(b->g->arena, float, classes);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
    }
    for (int64_t k = 0; k < classes; k++) {
        w[k] = (float)opt->class_weights[k];
    }
    *out = ru_build_const(b, ru_type_make(RU_F32, 1, &classes), w);
    return RU_OK;
}

/* Labels that are shares of the classes (one-hot, mixup): -sum(w y log softmax(x)) / N. A hit is
 * where the largest logit and the largest share are at the same class. */
static ru_status share_loss(ru_build *b, const ru_step_options *opt, ru_value_id x, ru_value_id y,
                            rui_loss_out *out, ru_err *err)
{
    ru_type t = ru_graph_value(b->g, x)->type; /* [N,C] */
    const ru_attr last[] = {RU_AI(axis, -1), RU_A_END}, all[] = {RU_AI(keepdims, 0), RU_A_END};
    double smooth = opt->label_smoothing;
    ru_value_id target = y;
    if (smooth > 0) {
        target = ru_build_op2(b, RU_OP_Mul, y, ru_build_const_f32(b, (float)(1 - smooth)), NULL);
        target = ru_build_op2(b, RU_OP_Add, target,
                              ru_build_const_f32(b, (float)(smooth / (double)t.dims[1])), NULL);
    }
    if (opt->n_class_weights > 0) {
        ru_value_id weights;
        RU_TRY(class_weights(b, opt, t.dims[1], &weights, err));
        target = ru_build_op2(b, RU_OP_Mul, target, weights, NULL);
    }
    ru_value_id logs = ru_build_op1(b, RU_OP_LogSoftmax, x, last);
    ru_value_id sum =
        ru_build_op1(b, RU_OP_ReduceSum, ru_build_op2(b, RU_OP_Mul, target, logs, NULL), all);
    out->loss = ru_build_op2(b, RU_OP_Mul, sum,
                             ru_build_const_f32(b, (float)(-1.0 / (double)t.dims[0])), NULL);
    ru_value_id same = ru_build_op2(b, RU_OP_Equal, ru_build_op1(b, RU_OP_ArgMax, x, last),
                                    ru_build_op1(b, RU_OP_ArgMax, y, last), NULL);
    out->correct = ru_build_op1(b, RU_OP_ReduceSum, cast(b, same, RU_F32), all);
    out->count = ru_build_const_f32(b, (float)t.dims[0]);
    return RU_OK;
}

static ru_status softmax_loss(ru_build *b, const ru_step_options *opt, ru_value_id prediction,
                              ru_value_id y, rui_loss_out *out, ru_err *err)
{
    bool tokens = opt->loss == RU_LOSS_NEXT_TOKEN;
    const char *name = tokens ? "next_token" : "cross_entropy";
    ru_type p = ru_graph_value(b->g, prediction)->type; /* copies: building moves the values */
    ru_type t = ru_graph_value(b->g, y)->type;
    uint32_t rows = p.rank > 0 ? p.rank - 1 : 0;
    if (!tokens && p.rank == 2 && t.dtype == RU_F32 && ru_type_equal(&p, &t)) {
        *out = (rui_loss_out){0};
        return share_loss(b, opt, prediction, y, out, err);
    }
    bool fits = p.rank >= 2 && (t.rank == rows || (t.rank == rows + 1 && t.dims[rows] == 1));
    for (uint32_t d = 0; fits && d < rows; d++) {
        fits = t.dims[d] == p.dims[d];
    }
    if (!fits) {
        return shape_error(b, name, prediction, y,
                           tokens ? "it needs tokens [N,T] and logits [N,T,vocab]"
                                  : "it needs logits [N,classes], and of each sample a class "
                                    "number or a share of each class",
                           err);
    }
    ru_value_id labels = cast(b, y, RU_I64);
    if (t.rank == rows + 1) {
        labels = ru_build_op2(b, RU_OP_Reshape, labels, ru_build_const_i64s(b, p.dims, rows), NULL);
    }
    ru_value_id weight = {0}, outs[4] = {{0}};
    if (opt->n_class_weights > 0) {
        RU_TRY(class_weights(b, opt, p.dims[rows], &weight, err));
    }
    ru_build_node(b, RU_OP_SoftmaxCrossEntropy, (ru_value_id[]){prediction, labels, weight},
                  weight.v != 0 ? 3 : 2,
                  (ru_attr[]){RU_AF(label_smoothing, opt->label_smoothing),
                              RU_AI(ignore_index, -100),
                              RU_AS(reduction, weight.v != 0 ? "rows" : "mean"), RU_A_END},
                  outs, 4);
    *out = (rui_loss_out){.loss = outs[0], .correct = outs[2], .count = outs[3]};
    return RU_OK;
}

/* How many elements of x > 0 agree with y > 0.5. */
static void binary_hits(ru_build *b, ru_value_id x, ru_value_id y, rui_loss_out *out)
{
    ru_value_id p = ru_build_op2(b, RU_OP_Greater, x, ru_build_const_f32(b, 0.0f), NULL);
    ru_value_id t = ru_build_op2(b, RU_OP_Greater, y, ru_build_const_f32(b, 0.5f), NULL);
    ru_value_id same = cast(b, ru_build_op2(b, RU_OP_Equal, p, t, NULL), RU_F32);
    out->correct =
        ru_build_op1(b, RU_OP_ReduceSum, same, (ru_attr[]){RU_AI(keepdims, 0), RU_A_END});
    int64_t n = ru_type_count(&ru_graph_value(b->g, x)->type);
    out->count = ru_build_const_f32(b, (float)n);
}

ru_status rui_step_loss(ru_build *b, const ru_step_options *opt, ru_value_id prediction,
                        ru_value_id y, rui_loss_out *out, ru_err *err)
{
    if (opt->loss == RU_LOSS_CROSS_ENTROPY || opt->loss == RU_LOSS_NEXT_TOKEN) {
        return softmax_loss(b, opt, prediction, y, out, err);
    }
    bool mse = opt->loss == RU_LOSS_MSE;
    if (ru_type_count(&ru_graph_value(b->g, prediction)->type) !=
        ru_type_count(&ru_graph_value(b->g, y)->type)) {
        return shape_error(b, mse ? "mse" : "binary_cross_entropy", prediction, y,
                           "both need the same number of elements (model option classes sets the "
                           "outputs of a zoo model)",
                           err);
    }
    ru_value_id target = reshape_like(b, cast(b, y, RU_F32), prediction);
    *out = (rui_loss_out){0};
    out->loss = ru_build_op2(b, mse ? RU_OP_MeanSquaredError : RU_OP_BinaryCrossEntropyLogits,
                             prediction, target, NULL);
    if (!mse) {
        binary_hits(b, prediction, target, out);
    }
    return RU_OK;
}
