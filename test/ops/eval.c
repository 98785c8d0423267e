/* Running a graph on the reference kernels. */
#include "test/ops/eval.h"

#include "exec/ref.h"
#include "test/test.h"

#include <string.h>

void rui_graph_eval_init(rui_graph_eval *e, const ru_graph *g, ru_arena *arena)
{
    *e = (rui_graph_eval){.g = g, .data = RU_NEW(arena, void *, g->n_values)};
    assert_non_null(e->data);
    for (uint32_t i = 1; i < g->n_values; i++) {
        const ru_value *v = &g->values[i];
        if (v->type.dtype == RU_NONE || !ru_type_is_concrete(&v->type)) {
            continue; /* left behind by a pass */
        }
        int64_t size = ru_type_bytes(&v->type);
        e->data[i] = ru_arena_zalloc(arena, size, 64);
        assert_non_null(e->data[i]);
        if (v->data != NULL && size > 0) {
            memcpy(e->data[i], v->data, (size_t)size);
        }
    }
}

void rui_graph_eval_run(rui_graph_eval *e)
{
    ru_err err;
    for (uint32_t i = 1; i < e->g->n_nodes; i++) {
        const ru_node *n = &e->g->nodes[i];
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        ru_tensor *in = RU_NEW(&scratch, ru_tensor, n->n_in);
        ru_tensor *out = RU_NEW(&scratch, ru_tensor, n->n_out);
        for (uint32_t k = 0; k < n->n_in; k++) {
            in[k].data = n->in[k].v != 0 ? e->data[n->in[k].v] : NULL;
            in[k].type = e->g->values[n->in[k].v].type;
        }
        for (uint32_t k = 0; k < n->n_out; k++) {
            out[k].data = n->out[k].v != 0 ? e->data[n->out[k].v] : NULL;
            out[k].type = e->g->values[n->out[k].v].type;
        }
        ru_ref_call call = {.node = n, .in = in, .out = out, .args = &e->args, .scratch = &scratch};
        ru_ref_fn fn = ru_ref_kernel(n->op);
        assert_non_null(fn);
        ru_status st = fn(&call, &err);
        ru_arena_fini(&scratch);
        if (st != RU_OK) {
            fail_msg("node %u (%s): %s", i, ru_op_get(n->op)->name, err.text);
        }
    }
}

double rui_graph_eval_get(const rui_graph_eval *e, ru_value_id v, int64_t i)
{
    ru_dtype t = e->g->values[v.v].type.dtype;
    assert_true(t == RU_F32 || t == RU_F64);
    return t == RU_F32 ? (double)((const float *)e->data[v.v])[i]
                       : ((const double *)e->data[v.v])[i];
}

void rui_graph_eval_set(rui_graph_eval *e, ru_value_id v, int64_t i, double x)
{
    ru_dtype t = e->g->values[v.v].type.dtype;
    assert_true(t == RU_F32 || t == RU_F64);
    if (t == RU_F32) {
        ((float *)e->data[v.v])[i] = (float)x;
    } else {
        ((double *)e->data[v.v])[i] = x;
    }
}

void rui_graph_eval_fill(rui_graph_eval *e, ru_value_id v, double lo, double hi, uint64_t seed)
{
    const ru_type *t = &e->g->values[v.v].type;
    int64_t n = ru_type_count(t);
    uint64_t s = seed * 0x9e3779b97f4a7c15U + 1;
    for (int64_t i = 0; i < n; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        double x = lo + (hi - lo) * ((double)(s >> 11) * 0x1p-53);
        if (t->dtype == RU_I64) {
            ((int64_t *)e->data[v.v])[i] = (int64_t)x;
        } else if (t->dtype == RU_BOOL) {
            ((uint8_t *)e->data[v.v])[i] = x >= 0.5 ? 1 : 0;
        } else {
            rui_graph_eval_set(e, v, i, x);
        }
    }
}
