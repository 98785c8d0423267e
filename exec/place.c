/* Inputs that a run reads where the caller has them. */
#include <string.h>

#include "exec/exe_impl.h"

/* The place of an input in the list of the graph; n_inputs: it is none. */
static uint32_t index_of(const ru_exe *e, ru_value_id input)
{
    uint32_t i = 0;
    while (i < e->outer->n_inputs && e->outer->inputs[i].v != input.v) {
        i++;
    }
    return i;
}

ru_status rui_inputs_take(ru_exe *e, const ru_run_args *args, ru_err *err)
{
    for (uint32_t k = 0; k < args->n_inputs; k++) {
        const ru_run_input *in = &args->inputs[k];
        bool is = index_of(e, in->input) < e->outer->n_inputs, again = false;
        for (uint32_t i = 0; i < k; i++) {
            again = again || args->inputs[i].input.v == in->input.v;
        }
        if (!is || again ||
            (in->data == NULL && ru_type_bytes(&e->outer->values[in->input.v].type) > 0)) {
            return RU_FAIL(err, RU_E_ARG,
                           "value %u %s: expected inputs of the graph, each once and with its data",
                           in->input.v,
                           !is     ? "is no input"
                           : again ? "is given twice"
                                   : "has no data");
        }
    }
    for (uint32_t k = 0; k < args->n_inputs; k++) {
        const ru_run_input *in = &args->inputs[k];
        ru_value_id inner = e->g.inputs[index_of(e, in->input)];
        int64_t bytes = ru_type_bytes(&e->outer->values[in->input.v].type);
        bool fits = (uintptr_t)in->data % RU_RUN_ALIGN == 0 && e->awaits.n == 0 && bytes > 0 &&
                    e->ops->place != NULL;
        void *own = ru_exe_input(e, in->input);
        if (own != NULL && own != in->data && bytes > 0 &&
            !(fits && e->ops->place(e->dev, inner, in->data))) {
            memmove(own, in->data, (size_t)bytes);
            e->copied_bytes += bytes;
        }
    }
    return RU_OK;
}

void rui_inputs_back(ru_exe *e, const ru_run_args *args)
{
    for (uint32_t k = 0; k < args->n_inputs && e->ops->place != NULL; k++) {
        (void)e->ops->place(e->dev, e->g.inputs[index_of(e, args->inputs[k].input)], NULL);
    }
}
