#include "tool/explain/explain_order.h"

ru_status rui_explain_order(const ru_order_policy_in *input, const ru_order_plan *plan,
                            ru_arena *arena, const ru_tell *out, ru_err *err)
{
    static const char *const heads[] = {"rank", "bytes", "arrives", "is needed", "waits"};
    ru_order_in in;
    uint32_t n;
    RU_TRY(ru_order_in_of(input, arena, &in, err));
    ru_order_time *times = RU_NEW(arena, ru_order_time, in.n);
    if (times == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u ops", in.n);
    }
    RU_TRY(ru_order_times(&in, plan, arena, times, &n, err));
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "op", RU_TABLE_LEFT);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(heads); k++) {
        ru_table_col(&t, heads[k], RU_TABLE_RIGHT);
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_order_time *x = &times[k];
        ru_table_str(&t, input->ops.at[x->op].name);
        ru_table_i64(&t, plan->rank[x->op]);
        ru_table_bytes(&t, in.param_bytes[x->op]);
        ru_table_ns(&t, x->arrive_ns);
        ru_table_ns(&t, x->need_ns);
        ru_table_ns(&t, x->wait_ns);
    }
    RU_TRY(ru_tell_table(
        out, "parameters",
        in.workers > 1 ? "parameters of worker 0, from the begin of the step, as ops read them"
                       : "parameters of the worker, from the begin of the step, as ops read them",
        &t, err));
    return RU_OK;
}
