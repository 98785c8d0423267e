/* Inputs that a run reads, and outputs that it makes, where the caller has them. */
#include <string.h>

#include "exec/exe_impl.h"

/* The place of a value in a list of the graph; n: it is not there. */
static uint32_t index_of(const ru_value_id *list, uint32_t n, ru_value_id v)
{
    uint32_t i = 0;
    while (i < n && list[i].v != v.v) {
        i++;
    }
    return i;
}

static uint32_t input_of(const ru_exe *e, ru_value_id v)
{
    return index_of(e->outer->inputs, e->outer->n_inputs, v);
}

static uint32_t output_of(const ru_exe *e, ru_value_id v)
{
    return index_of(e->outer->outputs, e->outer->n_outputs, v);
}

static ru_status check(const ru_exe *e, ru_value_id v, const char *what, bool is, bool again,
                       const void *data, ru_err *err)
{
    if (is && !again && (data != NULL || ru_type_bytes(&e->outer->values[v.v].type) == 0)) {
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_ARG,
                   "value %u %s%s: expected %ss of the graph, each once and with its data", v.v,
                   !is     ? "is no "
                   : again ? "is given twice"
                           : "has no data",
                   !is ? what : "", what);
}

static ru_status check_all(const ru_exe *e, const ru_run_args *args, ru_err *err)
{
    for (uint32_t k = 0; k < args->n_inputs; k++) {
        const ru_run_input *in = &args->inputs[k];
        bool again = false;
        for (uint32_t i = 0; i < k; i++) {
            again = again || args->inputs[i].input.v == in->input.v;
        }
        RU_TRY(check(e, in->input, "input", input_of(e, in->input) < e->outer->n_inputs, again,
                     in->data, err));
    }
    for (uint32_t k = 0; k < args->n_outputs; k++) {
        const ru_run_output *out = &args->outputs[k];
        bool again = false;
        for (uint32_t i = 0; i < k; i++) {
            again = again || args->outputs[i].output.v == out->output.v;
        }
        RU_TRY(check(e, out->output, "output", output_of(e, out->output) < e->outer->n_outputs,
                     again, out->data, err));
    }
    return RU_OK;
}

ru_status rui_places_take(ru_exe *e, const ru_run_args *args, ru_err *err)
{
    RU_TRY(check_all(e, args, err));
    for (uint32_t k = 0; k < args->n_inputs; k++) {
        const ru_run_input *in = &args->inputs[k];
        ru_value_id inner = e->g.inputs[input_of(e, in->input)];
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
    /* what a judge or a port looks at has its place from the start, and one run may be in parts */
    bool apart = e->judge == NULL && e->n_grads + e->awaits.n + e->leaves.n + e->opt.n_forward == 0;
    for (uint32_t k = 0; k < args->n_outputs && apart && e->ops->place_output != NULL; k++) {
        const ru_run_output *out = &args->outputs[k];
        if ((uintptr_t)out->data % RU_RUN_OUT_ALIGN == 0) { /* else, or where it fails, a copy */
            (void)e->ops->place_output(e->dev, output_of(e, out->output), out->data);
        }
    }
    return RU_OK;
}

void rui_places_back(ru_exe *e, const ru_run_args *args, bool done)
{
    for (uint32_t k = 0; k < args->n_outputs && done; k++) {
        const ru_run_output *out = &args->outputs[k];
        const void *made = e->ops->output(e->dev, output_of(e, out->output));
        int64_t bytes = ru_type_bytes(&e->outer->values[out->output.v].type);
        if (made != out->data && bytes > 0) {
            memcpy(out->data, made, (size_t)bytes);
            e->copied_bytes += bytes;
        }
    }
    for (uint32_t k = 0; k < args->n_outputs && e->ops->place_output != NULL; k++) {
        (void)e->ops->place_output(e->dev, output_of(e, args->outputs[k].output), NULL);
    }
    for (uint32_t k = 0; k < args->n_inputs && e->ops->place != NULL; k++) {
        (void)e->ops->place(e->dev, e->g.inputs[input_of(e, args->inputs[k].input)], NULL);
    }
}
