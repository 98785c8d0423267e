#include "exec/settle.h"

#include <string.h>

#include "exec/ref.h"
#include "world/onnx.h"

typedef struct stage {
    const ru_exe_options *opt;
    const ru_array *arrays; /* [n_arrays] */
    uint32_t n_arrays;
    ru_arena *arena;
} stage;

static const ru_array *array_of(const stage *s, const char *name)
{
    for (uint32_t k = 0; name != NULL && k < s->n_arrays; k++) {
        if (strcmp(s->arrays[k].name, name) == 0) {
            return &s->arrays[k];
        }
    }
    return NULL;
}

/* The first selection whose size is open while its boxes and scores have one; NULL: none. */
static const ru_node *open_selection(const ru_graph *g)
{
    for (uint32_t k = 1; k < g->n_nodes; k++) {
        const ru_node *n = &g->nodes[k];
        if (n->op == RU_OP_NonMaxSuppression &&
            !ru_type_is_concrete(&ru_graph_value(g, n->out[0])->type)) {
            bool ready = ru_type_is_concrete(&ru_graph_value(g, n->in[0])->type) &&
                         ru_type_is_concrete(&ru_graph_value(g, n->in[1])->type);
            return ready ? n : NULL;
        }
    }
    return NULL;
}

static ru_status inputs_fill(const stage *s, const ru_graph *g, ru_exe *exe, ru_err *err)
{
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        const ru_value *v = ru_graph_value(g, g->inputs[k]);
        const ru_array *a = array_of(s, v->name);
        if (a == NULL || !ru_type_equal(&a->type, &v->type)) {
            return RU_FAIL(
                err, RU_E_DATA,
                "sizes inside the model depend on the data of input '%s'; give an array for it",
                v->name != NULL ? v->name : "");
        }
        if (ru_type_bytes(&v->type) > 0) {
            memcpy(ru_exe_input(exe, g->inputs[k]), a->data, (size_t)ru_type_bytes(&v->type));
        }
    }
    return RU_OK;
}

static ru_status outputs_keep(const stage *s, const ru_graph *g, ru_exe *exe, const void **data,
                              ru_err *err)
{
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        const ru_type *t = &ru_graph_value(g, g->outputs[k])->type;
        data[k] = ru_arena_copy(s->arena, ru_exe_output(exe, g->outputs[k]), ru_type_bytes(t), 64);
        if (data[k] == NULL) {
            return RU_FAIL(err, RU_E_MEM,
                           "not enough memory for the part of the model that determines sizes");
        }
    }
    return RU_OK;
}

/* Compute values `ids` of g on the arrays. */
static ru_status run_to(const stage *s, const ru_graph *g, ru_value_id *ids, uint32_t n,
                        const void **data, ru_err *err)
{
    ru_graph part = *g, live;
    part.outputs = ids;
    part.n_outputs = n;
    part.n_updates = 0;
    RU_TRY(ru_pass_dead(&part, s->arena, &live, err));
    ru_exe *exe = NULL;
    RU_TRY(ru_exe_open(&live, s->opt, &exe, err));
    ru_status st = inputs_fill(s, &live, exe, err);
    st = st == RU_OK ? ru_exe_run(exe, &(ru_run_args){0}, err) : st;
    st = st == RU_OK ? outputs_keep(s, &live, exe, data, err) : st;
    ru_exe_close(exe);
    return st;
}

/* Boxes and scores of the selection become constants of `g`. */
static ru_status pin_selection(const stage *s, const ru_node *n, ru_graph *g, ru_err *err)
{
    ru_value_id pins[2], made[2];
    const void *data[2], *computed[2];
    uint32_t n_pins = 0, n_made = 0;
    for (uint32_t k = 0; k < 2; k++) {
        const ru_value *v = ru_graph_value(g, n->in[k]);
        const ru_array *a = v->kind == RU_VALUE_INPUT ? array_of(s, v->name) : NULL;
        if (v->kind == RU_VALUE_CONST) {
            continue;
        }
        if (a != NULL && ru_type_equal(&a->type, &v->type)) {
            pins[n_pins] = n->in[k];
            data[n_pins++] = a->data;
        } else {
            made[n_made++] = n->in[k];
        }
    }
    if (n_made > 0) {
        RU_TRY(run_to(s, g, made, n_made, computed, err));
    }
    for (uint32_t k = 0; k < n_made; k++) {
        pins[n_pins] = made[k];
        data[n_pins++] = computed[k];
    }
    RU_TRY(ru_pass_pin(g, pins, data, n_pins, s->arena, g, err));
    return ru_graph_infer(g, err);
}

ru_status ru_exe_settle(const ru_graph *g, const ru_exe_options *opt, const ru_array *arrays,
                        uint32_t n_arrays, ru_arena *arena, ru_graph *out, uint32_t *ran,
                        ru_err *err)
{
    const ru_fold_ops fold = ru_ref_fold_ops();
    const stage s = {opt, arrays, n_arrays, arena};
    ru_graph now = *g, settled;
    ru_status st;
    uint32_t runs = 0;
    while ((st = ru_onnx_settle(&now, &fold, arena, &settled, err)) == RU_E_UNSUPPORTED) {
        const ru_node *n = open_selection(&now);
        if (n == NULL) {
            return st; /* its sentence is in err */
        }
        RU_TRY(pin_selection(&s, n, &now, err));
        runs++;
    }
    RU_TRY(st);
    *out = settled;
    if (ran != NULL) {
        *ran = runs;
    }
    return RU_OK;
}
