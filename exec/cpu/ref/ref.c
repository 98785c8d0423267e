/* The table of reference kernels, and the evaluator of constant folding on top of it. */
#include "exec/ref.h"

#include "exec/cpu/ref/ref_impl.h"

static const ru_ref_fn kernels[RU_OP_COUNT] = {
#define RU_OP(name, ...) [RU_OP_##name] = rui_ref_##name,
#include "world/graph/ops.def"
#undef RU_OP
};

ru_ref_fn ru_ref_kernel(ru_op op)
{
    return (uint32_t)op < RU_OP_COUNT ? kernels[op] : NULL;
}

ru_status ru_ref_eval(void *self, const ru_graph *g, const ru_node *n, const void *const *in,
                      void *const *out, ru_err *err)
{
    (void)self;
    ru_ref_fn fn = ru_ref_kernel(n->op);
    if (fn == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "%s has no reference kernel", ru_op_get(n->op)->name);
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_tensor *ins = RU_NEW(&scratch, ru_tensor, n->n_in);
    ru_tensor *outs = RU_NEW(&scratch, ru_tensor, n->n_out);
    ru_status st = RU_OK;
    if (ins == NULL || outs == NULL) {
        st = RU_FAIL(err, RU_E_MEM, "%s: no memory for its arguments", ru_op_get(n->op)->name);
        goto out;
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        if (in[k] != NULL) {
            /* Kernels only read inputs; ru_tensor has one data pointer for both directions. */
            ins[k] = (ru_tensor){(void *)(uintptr_t)in[k], ru_graph_value(g, n->in[k])->type};
        }
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (out[k] != NULL) {
            outs[k] = (ru_tensor){out[k], ru_graph_value(g, n->out[k])->type};
        }
    }
    ru_run_args args = {0};
    ru_ref_call call = {.node = n, .in = ins, .out = outs, .args = &args, .scratch = &scratch};
    st = fn(&call, err);
out:
    ru_arena_fini(&scratch);
    return st;
}

ru_fold_ops ru_ref_fold_ops(void)
{
    return (ru_fold_ops){.name = "reference", .eval = ru_ref_eval};
}
