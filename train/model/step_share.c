/* A step that is a part of a larger one: what leaves it beside the gradients.
 *
 *   shared = [loss n/B | correct | count | measured | running statistics n/B ...]   a small vector
 *
 * It has role GRAD like the gradients, so that the same sum over the parts serves all: afterwards
 * it holds the loss of the whole batch, its hits and rows, and the mean of the parts' statistics.
 * The update takes its pieces from there. The graph leaves `measured` 0: whoever runs it writes
 * there (train/worker/worker_noise.c). */
#include <stddef.h>

#include "train/model/step_impl.h"

static ru_value_id flat(ru_build *b, ru_value_id v)
{
    int64_t n = ru_type_count(&ru_graph_value(b->g, v)->type);
    return ru_build_op2(b, RU_OP_Reshape, v, ru_build_const_i64s(b, &n, 1), NULL);
}

/* A gradient that somebody else reads, or that stands for two parameters, leaves as a copy: its
 * memory is going to hold the sum. */
void rui_step_own_grads(ru_build *b, ru_step_graph *s)
{
    for (uint32_t k = 0; k < s->n_params; k++) {
        ru_value_id v = s->grads[k];
        bool shared = ru_graph_value(b->g, v)->kind != RU_VALUE_TEMP;
        for (uint32_t j = 0; j < s->n_params; j++) {
            shared = shared || (j != k && s->grads[j].v == v.v);
        }
        for (uint32_t i = 1; i < b->g->n_nodes && !shared; i++) {
            const ru_node *n = &b->g->nodes[i];
            for (uint32_t j = 0; j < n->n_in; j++) {
                shared = shared || n->in[j].v == v.v;
            }
        }
        if (shared) {
            s->grads[k] = ru_build_op1(b, RU_OP_Identity, v, NULL);
            ru_graph_value(b->g, s->grads[k])->role = RU_ROLE_GRAD;
        }
    }
}

/* Cut the vector into pieces of the types of `values`, which are replaced. */
static ru_status cut(ru_build *b, ru_value_id vector, ru_value_id *values, uint32_t n, ru_err *err)
{
    ru_arena *a = b->g->arena;
    int64_t *sizes = RU_NEW(a, int64_t, n);
    ru_value_id *pieces = RU_NEW(a, ru_value_id, n);
    if (sizes == NULL || pieces == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
    }
    for (uint32_t k = 0; k < n; k++) {
        sizes[k] = ru_type_count(&ru_graph_value(b->g, values[k])->type);
    }
    ru_build_node(b, RU_OP_Split, (ru_value_id[]){vector, ru_build_const_i64s(b, sizes, n)}, 2,
                  (ru_attr[]){RU_AI(axis, 0), RU_A_END}, pieces, n);
    for (uint32_t k = 0; k < n && b->status == RU_OK; k++) {
        ru_type t = ru_graph_value(b->g, values[k])->type;
        values[k] =
            ru_build_op2(b, RU_OP_Reshape, pieces[k], ru_build_const_i64s(b, t.dims, t.rank), NULL);
    }
    return ru_build_finish(b, err);
}

/* Place for what the caller measures and sums beside the gradients. */
static ru_value_id zeros(ru_build *b)
{
    float *at = RU_NEW(b->g->arena, float, RU_STEP_MEASURED);
    if (at == NULL) {
        b->status = RU_FAIL(&b->err, RU_E_LIMIT, "the arena of the step graph is full");
        return (ru_value_id){0};
    }
    return ru_build_const(b, ru_type_make(RU_F32, 1, (int64_t[]){RU_STEP_MEASURED}), at);
}

ru_status rui_step_shared(ru_build *b, const ru_step_options *opt, ru_step_graph *s,
                          ru_value_id *news, uint32_t n_news, ru_err *err)
{
    ru_arena *a = b->g->arena;
    uint32_t n = 0;
    ru_value_id *values = RU_NEW(a, ru_value_id, n_news + 4);
    ru_value_id *parts = RU_NEW(a, ru_value_id, n_news + 4);
    if (values == NULL || parts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
    }
    values[n++] = s->loss;
    if (s->correct.v != 0) {
        values[n++] = s->correct;
        values[n++] = s->count;
    }
    uint32_t figures = n;
    values[n++] = zeros(b);
    uint32_t head = n;
    ru_value_id weight = ru_build_const_f32(b, (float)((double)opt->batch / (double)opt->share_of));
    for (uint32_t k = 0; k < n_news; k++) {
        values[n++] = news[k];
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_value *v = ru_graph_value(b->g, values[k]);
        if (v->type.dtype != RU_F32) {
            return RU_FAIL(
                err, RU_E_UNSUPPORTED,
                "%s is %s; with several workers only f32 values can change outside the optimizer",
                v->name != NULL ? v->name : "a state of the model", ru_dtype_name(v->type.dtype));
        }
        ru_value_id w = flat(b, values[k]);
        parts[k] = k < head ? w : ru_build_op2(b, RU_OP_Mul, w, weight, NULL);
    }
    ru_build_node(b, RU_OP_Concat, parts, n, (ru_attr[]){RU_AI(axis, 0), RU_A_END}, &s->shared, 1);
    RU_TRY(ru_build_finish(b, err));
    ru_graph_value(b->g, s->shared)->role = RU_ROLE_GRAD;
    RU_TRY(cut(b, s->shared, values, n, err));
    s->loss = values[0];
    if (figures == 3) {
        s->correct = values[1];
        s->count = values[2];
    }
    for (uint32_t k = 0; k < n_news; k++) {
        news[k] = values[head + k];
    }
    return RU_OK;
}
