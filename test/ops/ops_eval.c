/* A graph, node by node, on the reference kernels, with guard zones around every result. */
#include "test/ops/ops.h"

#include <string.h>

enum { GUARD = 64, CANARY = 0xc5 };

int64_t ops_count(const ru_tensor *t)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < t->type.rank; d++) {
        n *= t->type.dims[d];
    }
    return n;
}

double ops_get(const ru_tensor *t, int64_t i)
{
    switch (t->type.dtype) {
    case RU_F64:
        return ((const double *)t->data)[i];
    case RU_F32:
        return (double)((const float *)t->data)[i];
    case RU_I64:
        return (double)((const int64_t *)t->data)[i];
    case RU_I32:
        return (double)((const int32_t *)t->data)[i];
    case RU_U8:
    case RU_BOOL:
        return ((const uint8_t *)t->data)[i];
    case RU_I8:
        return ((const int8_t *)t->data)[i];
    case RU_U32:
        return ((const uint32_t *)t->data)[i];
    case RU_BF16:
        return (double)ru_bf16_to_f32(((const uint16_t *)t->data)[i]);
    case RU_F16:
        return (double)ru_f16_to_f32(((const uint16_t *)t->data)[i]);
    case RU_I16:
        return ((const int16_t *)t->data)[i];
    case RU_U16:
        return ((const uint16_t *)t->data)[i];
    case RU_U64:
        return (double)((const uint64_t *)t->data)[i];
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    ru_panic(__FILE__, __LINE__, "no samples of dtype %s", ru_dtype_name(t->type.dtype));
}

void ops_set(const ru_tensor *t, int64_t i, double x)
{
    switch (t->type.dtype) {
    case RU_F64:
        ((double *)t->data)[i] = x;
        return;
    case RU_F32:
        ((float *)t->data)[i] = (float)x;
        return;
    case RU_I64:
        ((int64_t *)t->data)[i] = (int64_t)x;
        return;
    case RU_I32:
        ((int32_t *)t->data)[i] = (int32_t)x;
        return;
    case RU_U8:
    case RU_BOOL:
        ((uint8_t *)t->data)[i] = (uint8_t)(int64_t)x;
        return;
    case RU_I8:
        ((int8_t *)t->data)[i] = (int8_t)(int64_t)x;
        return;
    case RU_U32:
        ((uint32_t *)t->data)[i] = (uint32_t)x;
        return;
    case RU_BF16:
        ((uint16_t *)t->data)[i] = ru_f32_to_bf16((float)x);
        return;
    case RU_F16:
        ((uint16_t *)t->data)[i] = ru_f32_to_f16((float)x);
        return;
    case RU_I16:
    case RU_U16:
    case RU_U64: /* results only */
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    ru_panic(__FILE__, __LINE__, "no samples of dtype %s", ru_dtype_name(t->type.dtype));
}

static int64_t bytes_of(const ru_tensor *t)
{
    return ops_count(t) * ru_dtype_bytes(t->type.dtype);
}

static ru_type type_in_run(const ru_type *t, bool wide)
{
    ru_type r = *t;
    r.dtype = wide && t->dtype == RU_F32 ? RU_F64 : t->dtype;
    return r;
}

/* A tensor between two guard zones. */
static ru_tensor guarded(ru_arena *arena, const ru_type *type)
{
    ru_tensor t = {.type = *type};
    int64_t bytes = bytes_of(&t);
    uint8_t *p = ru_arena_alloc(arena, bytes + 2 * GUARD, GUARD);
    RU_CHECK(p != NULL);
    memset(p, CANARY, (size_t)(bytes + 2 * GUARD));
    t.data = p + GUARD;
    return t;
}

static bool guards_whole(const ru_tensor *t)
{
    const uint8_t *p = (const uint8_t *)t->data - GUARD;
    int64_t bytes = bytes_of(t);
    for (int64_t i = 0; i < GUARD; i++) {
        if (p[i] != CANARY || p[GUARD + bytes + i] != CANARY) {
            return false;
        }
    }
    return true;
}

/* `data` of dtype `from` as the run wants it. */
static ru_tensor converted(ru_arena *arena, const ru_type *from, const void *data, bool wide)
{
    ru_type want = type_in_run(from, wide);
    ru_tensor to = guarded(arena, &want);
    if (want.dtype == from->dtype) {
        memcpy(to.data, data, (size_t)bytes_of(&to));
        return to;
    }
    for (int64_t i = 0; i < ops_count(&to); i++) {
        ((double *)to.data)[i] = (double)((const float *)data)[i];
    }
    return to;
}

/* Ops whose kernel copies an attribute's bytes keep the graph's dtype. */
static bool copies_attribute(ru_op op)
{
    return op == RU_OP_Constant || op == RU_OP_ConstantOfShape;
}

static ru_status eval_node(const ru_graph *g, const ru_node *n, bool wide, const ru_run_args *args,
                           ru_arena *arena, ru_tensor *values, ru_err *err)
{
    bool keep = copies_attribute(n->op);
    ru_tensor *in = RU_NEW(arena, ru_tensor, n->n_in), *before = RU_NEW(arena, ru_tensor, n->n_in);
    ru_tensor *out = RU_NEW(arena, ru_tensor, n->n_out);
    for (uint32_t k = 0; k < n->n_in; k++) {
        in[k] = values[n->in[k].v];
        before[k] = in[k];
        if (in[k].data != NULL) {
            before[k].data = ru_arena_copy(arena, in[k].data, bytes_of(&in[k]), 8);
        }
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (n->out[k].v != 0) {
            ru_type t = type_in_run(&g->values[n->out[k].v].type, wide && !keep);
            out[k] = guarded(arena, &t);
        }
    }
    ru_ref_call call = {.node = n, .in = in, .out = out, .args = args, .scratch = arena};
    ru_ref_fn fn = ru_ref_kernel(n->op);
    RU_TRY(fn(&call, err));
    for (uint32_t k = 0; k < n->n_in; k++) {
        bool same =
            in[k].data == NULL || memcmp(in[k].data, before[k].data, (size_t)bytes_of(&in[k])) == 0;
        if (!same || (in[k].data != NULL && !guards_whole(&in[k]))) {
            return RU_FAIL(err, RU_E_BUG, "%s wrote into its input %u", ru_op_get(n->op)->name, k);
        }
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (out[k].data != NULL && !guards_whole(&out[k])) {
            return RU_FAIL(err, RU_E_BUG, "%s wrote around its output %u", ru_op_get(n->op)->name,
                           k);
        }
        if (out[k].data != NULL && keep && wide) {
            out[k] = converted(arena, &out[k].type, out[k].data, wide);
        }
        values[n->out[k].v] = out[k];
    }
    values[0] = (ru_tensor){0};
    return RU_OK;
}

ru_status ops_eval(const ru_graph *g, const ru_tensor *inputs, bool wide, const ru_run_args *args,
                   ru_arena *arena, ru_tensor *values, ru_err *err)
{
    const ru_run_args none = {0};
    memset(values, 0, g->n_values * sizeof values[0]);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        values[g->inputs[i].v] = converted(arena, &inputs[i].type, inputs[i].data, wide);
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].kind == RU_VALUE_CONST) {
            values[v] = converted(arena, &g->values[v].type, g->values[v].data, wide);
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        RU_TRY(eval_node(g, &g->nodes[i], wide, args != NULL ? args : &none, arena, values, err));
    }
    return RU_OK;
}
