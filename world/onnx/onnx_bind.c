/* Specialising a model on the arrays it will run on. */
#include "world/onnx/onnx.h"

#include <string.h>

enum { SETTLE_BYTES_MAX = 1 << 20 }; /* larger results decide no shape */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
}

typedef struct binding {
    ru_onnx_dim *dims; /* [n_dims] */
    ru_array *fixed;   /* [n_fixed] */
    uint32_t n_dims, n_fixed;
} binding;

/* Symbol `sym` is `number` because of array `a`. */
static ru_status bind_dim(binding *b, const ru_graph *g, int64_t dim, int64_t number,
                          const ru_array *a, ru_err *err)
{
    const char *symbol = g->symbols[ru_dim_sym(dim)];
    for (uint32_t k = 0; k < b->n_dims; k++) {
        if (strcmp(b->dims[k].symbol, symbol) != 0) {
            continue;
        }
        if (b->dims[k].number != number) {
            return RU_FAIL(err, RU_E_DATA,
                           "input '%s': dimension %s is %lld here and %lld elsewhere", a->name,
                           symbol, (long long)number, (long long)b->dims[k].number);
        }
        return RU_OK;
    }
    RU_CHECK(b->n_dims < RU_SYMBOLS_MAX);
    b->dims[b->n_dims++] = (ru_onnx_dim){symbol, number};
    return RU_OK;
}

static ru_status bind_array(binding *b, const ru_graph *g, const ru_array *a, const bool *shapes,
                            ru_err *err)
{
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        const ru_value *v = ru_graph_value(g, g->inputs[k]);
        if (strcmp(v->name, a->name) != 0) {
            continue;
        }
        bool fits = v->type.dtype == a->type.dtype && v->type.rank == a->type.rank;
        for (uint32_t i = 0; fits && i < v->type.rank; i++) {
            fits = ru_dim_is_symbolic(v->type.dims[i]) || v->type.dims[i] == a->type.dims[i];
        }
        if (!fits) {
            char want[256], have[256];
            bool dtype = v->type.dtype != a->type.dtype;
            return RU_FAIL(
                err, RU_E_DATA, "input '%s' is %s, but the given array is %s%s", a->name,
                ru_type_print(g, &v->type, want, sizeof want),
                ru_type_print(g, &a->type, have, sizeof have),
                dtype ? "; Rubato converts no types, so save it with the expected element type"
                      : "");
        }
        for (uint32_t i = 0; i < v->type.rank; i++) {
            if (ru_dim_is_symbolic(v->type.dims[i])) {
                RU_TRY(bind_dim(b, g, v->type.dims[i], a->type.dims[i], a, err));
            }
        }
        if (shapes[k]) {
            b->fixed[b->n_fixed++] = *a;
        }
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_DATA, "the model has no input '%s'", a->name);
}

ru_status ru_onnx_read_bound(const void *data, int64_t size_bytes, const ru_onnx_options *opt,
                             const ru_array *arrays, uint32_t n_arrays, ru_arena *arena,
                             ru_graph *out, ru_onnx_info *info, ru_err *err)
{
    ru_onnx_options o = opt != NULL ? *opt : (ru_onnx_options){0};
    ru_graph g;
    ru_onnx_info about;
    o.signature = true;
    RU_TRY(ru_onnx_read(data, size_bytes, &o, arena, &g, &about, err));
    o.signature = opt != NULL && opt->signature;

    binding b = {.dims = RU_NEW(arena, ru_onnx_dim, o.n_dims + RU_SYMBOLS_MAX),
                 .fixed = RU_NEW(arena, ru_array, o.n_fixed + n_arrays)};
    if (b.dims == NULL || b.fixed == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n_arrays; k++) {
        RU_TRY(bind_array(&b, &g, &arrays[k], about.shapes, err));
    }
    for (uint32_t k = 0; k < o.n_dims; k++) {
        b.dims[b.n_dims++] = o.dims[k];
    }
    for (uint32_t k = 0; k < o.n_fixed; k++) {
        b.fixed[b.n_fixed++] = o.fixed[k];
    }
    o.dims = b.dims;
    o.n_dims = b.n_dims;
    o.fixed = b.fixed;
    o.n_fixed = b.n_fixed;
    return ru_onnx_read(data, size_bytes, &o, arena, out, info, err);
}

static ru_status concrete(const ru_graph *g, ru_err *err)
{
    for (uint32_t k = 1; k < g->n_values; k++) {
        const ru_value *v = &g->values[k];
        bool orphan = v->kind == RU_VALUE_TEMP && v->producer.v == 0;
        if (orphan || v->type.dtype == RU_NONE || ru_type_is_concrete(&v->type)) {
            continue; /* no node uses it */
        }
        char type[256];
        if (v->kind == RU_VALUE_INPUT) {
            return RU_FAIL(err, RU_E_DATA,
                           "input '%s' is %s; give an array for it or values for its dimensions",
                           v->name, ru_type_print(g, &v->type, type, sizeof type));
        }
        const ru_node *n = v->producer.v != 0 ? ru_graph_node(g, v->producer) : NULL;
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "value '%s' of %s is %s; its shape depends on data of the run; rubato run "
                       "computes it from "
                       "the given arrays, but a model cannot be trained with it: end the model "
                       "before this op, "
                       "or select with Where and a mask",
                       v->name != NULL ? v->name : "",
                       n != NULL ? ru_op_get(n->op)->name : "the graph",
                       ru_type_print(g, &v->type, type, sizeof type));
    }
    return RU_OK;
}

ru_status ru_onnx_settle(const ru_graph *g, const ru_fold_ops *ops, ru_arena *arena, ru_graph *out,
                         ru_err *err)
{
    ru_graph now = *g;
    for (uint32_t n_last = UINT32_MAX; concrete(&now, err) != RU_OK && now.n_nodes < n_last;) {
        n_last = now.n_nodes;
        ru_graph folded;
        RU_TRY(ru_pass_fold(&now, ops, SETTLE_BYTES_MAX, arena, &folded, err));
        RU_TRY(ru_graph_infer(&folded, err));
        now = folded;
    }
    RU_TRY(concrete(&now, err));
    *out = now;
    return RU_OK;
}
