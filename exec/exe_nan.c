/* What is not a number: a judge before the update, and a run once more on kernels that keep NaN. */
#include "exec/exe_impl.h"

#include <string.h>

#include "base/log.h"
#include "exec/pool.h"

bool ru_exe_invalid(const ru_exe *e)
{
    return e->invalid;
}

ru_status rui_exe_ask(ru_exe *e, ru_err *err)
{
    e->invalid = ru_pool_invalid(e->pool);
    ru_status st = e->judge(e->judge_self, *e->judged, e->invalid && e->dev->drops_nan);
    return st == RU_OK ? RU_OK : RU_FAIL(err, st, "the step was aborted before its update");
}

ru_status ru_exe_judge_set(ru_exe *e, ru_value_id v, ru_exe_judge judge, void *self, ru_err *err)
{
    for (uint32_t i = 0; i < e->outer->n_outputs; i++) {
        rui_dev_value at;
        if (e->outer->outputs[i].v == v.v && e->ops->value(e->dev, e->g.outputs[i], &at) &&
            at.made != UINT32_MAX) {
            e->judge = judge;
            e->judge_self = self;
            e->judged = at.data;
            e->judge_step = at.made;
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_ARG, "value %u is not an output of a step of the executable", v.v);
}

/* -- once more ------------------------------------------------------------------------------------
 */

static ru_status open_keeper(ru_exe *e, ru_err *err)
{
    ru_exe_options o = e->opt;
    o.keep_nan = true;
    o.autotune = o.profile = false;
    o.share = e;
    ru_log(RU_LOG_INFO, "exec", "not_a_number",
           "an operation produced NaN; Rubato repeats such runs on kernels that keep NaN");
    e->kept = RU_NEW(&e->arena, ru_run_input, e->outer->n_inputs + 1);
    return e->kept != NULL ? rui_exe_open_on(e->ops, e->outer, &o, &e->keeper, err)
                           : RU_FAIL(err, RU_E_MEM, "no memory to keep what is not a number");
}

/* Where this run read an input. */
static const void *data_of(ru_exe *e, ru_value_id input, const ru_run_args *args)
{
    for (uint32_t k = 0; args != NULL && k < args->n_inputs; k++) {
        if (args->inputs[k].input.v == input.v) {
            return args->inputs[k].data;
        }
    }
    return ru_exe_input(e, input);
}

ru_status rui_exe_repeat(ru_exe *e, const ru_run_args *args, ru_err *err)
{
    const ru_graph *g = e->outer;
    if (e->keeper == NULL) {
        RU_TRY(open_keeper(e, err));
    }
    ru_run_args same = args != NULL ? *args : (ru_run_args){0};
    same.inputs = e->kept;
    same.n_inputs = 0;
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        const void *from = data_of(e, g->inputs[k], args);
        if (from != NULL) { /* else no step reads it */
            e->kept[same.n_inputs++] = (ru_run_input){g->inputs[k], from};
        }
    }
    RU_TRY(ru_exe_run(e->keeper, &same, err));
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        void *to = e->ops->output(e->dev, k);
        const void *from = ru_exe_output(e->keeper, g->outputs[k]);
        if (to != from) { /* else a constant, maybe in pages that nobody may write, or a state */
            memcpy(to, from, (size_t)ru_type_bytes(&g->values[g->outputs[k].v].type));
        }
    }
    return RU_OK;
}
