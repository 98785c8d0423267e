#include "train/driver/odd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "world/pass/pass.h"

/* Index of the first of n floats that is not finite, -1: none. */
static int64_t first_odd(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return i;
        }
    }
    return -1;
}

static void *memory_for(const ru_graph *g)
{
    int64_t most = 64;
    for (uint32_t v = 1; v < g->n_values; v++) {
        int64_t bytes = g->values[v].type.dtype == RU_NONE ? 0 : ru_type_bytes(&g->values[v].type);
        most = bytes > most ? bytes : most;
    }
    return aligned_alloc(64, (size_t)(most + 63) / 64 * 64);
}

static bool holds_floats(const ru_value *v)
{
    return v->kind == RU_VALUE_STATE && v->type.dtype == RU_F32;
}

/* -- parameters -------------------------------------------------------------------------------- */

ru_status rui_odd_states(rui_trainer *t, int64_t step, double lr, ru_err *err)
{
    const ru_graph *g = &t->step.graph;
    float *data = memory_for(g);
    ru_status st =
        data != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "not enough memory to check parameters");
    for (uint32_t v = 1; v < g->n_values && st == RU_OK; v++) {
        const ru_value *x = &g->values[v];
        if (!holds_floats(x)) {
            continue;
        }
        st = ru_exe_state_read(t->exe, (ru_value_id){v}, data, err);
        int64_t at = st == RU_OK ? first_odd(data, ru_type_count(&x->type)) : -1;
        if (at >= 0) {
            st = RU_FAIL(
                err, RU_E_USER,
                "%s[%lld] is %s at step %lld, after the previous update (lr %g): training "
                "diverged; lower the learning rate (train.optimizer, lr) or set train.clip_norm",
                x->name != NULL ? x->name : "a parameter", (long long)at,
                isnan(data[at]) ? "not a number" : "infinite", (long long)step, lr);
        }
    }
    free(data);
    return st;
}

/* -- values ------------------------------------------------------------------------------------ */

/* The part of the step that makes the loss; ids stay. */
static ru_status forward_of(const ru_step_graph *s, ru_arena *a, ru_graph *out, ru_err *err)
{
    ru_graph g = s->graph;
    g.n_updates = 0;
    g.outputs = (ru_value_id *)ru_arena_copy(a, &s->loss, sizeof s->loss, 8);
    g.n_outputs = 1;
    if (g.outputs == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to find the value that is not finite");
    }
    RU_TRY(ru_pass_dead(&g, a, out, err));
    for (uint32_t v = 1; v < out->n_values; v++) { /* nothing leaves it */
        out->values[v].role = RU_ROLE_PLAIN;
    }
    return RU_OK;
}

/* States and inputs of the step into the executable `e` of its forward part. */
static ru_status give_all(rui_trainer *t, const ru_graph *g, ru_exe *e, void *data, ru_err *err)
{
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].kind == RU_VALUE_STATE) {
            RU_TRY(ru_exe_state_read(t->exe, (ru_value_id){v}, data, err));
            RU_TRY(ru_exe_state_write(e, (ru_value_id){v}, data, err));
        }
    }
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        const void *from = ru_exe_input(t->exe, g->inputs[k]);
        void *to = ru_exe_input(e, g->inputs[k]);
        if (from != NULL && to != NULL) {
            memcpy(to, from, (size_t)ru_type_bytes(&g->values[g->inputs[k].v].type));
        }
    }
    return RU_OK;
}

/* "Conv of conv1.weight", or "Softmax" */
static void name_node(const ru_graph *g, const ru_node *n, ru_text *into)
{
    ru_text_put(into, ru_op_get(n->op)->name);
    for (uint32_t k = 0; k < n->n_in; k++) {
        const ru_value *v = &g->values[n->in[k].v];
        if (v->kind == RU_VALUE_STATE && v->name != NULL) {
            ru_text_putf(into, " of %s", v->name);
            return;
        }
    }
    if (n->name != NULL) {
        ru_text_putf(into, " '%s'", n->name);
    }
}

static ru_status name_value(rui_trainer *t, const rui_odd_step *s, const ru_node *n, ru_value_id v,
                            int64_t at, bool nan, ru_err *err)
{
    const ru_graph *g = &t->step.graph;
    const ru_step_place *p = &t->step.places[v.v];
    char node[160], where[512] = "", type[128], hint[128] = "";
    ru_text text = ru_text_into(node, sizeof node);
    name_node(g, n, &text);
    if (p->inner > 0 && s->stream != NULL) {
        int64_t position = s->position + p->first + at / p->inner % p->n;
        (void)ru_dataset_where(t->train_set, ru_stream_sample(s->stream, position), where,
                               sizeof where);
    }
    return RU_FAIL(err, RU_E_USER,
                   "training diverged at step %lld (lr %g): the first value that is not finite is "
                   "the result of %s, %s, which is %s%s%s; all parameters were finite; lower the "
                   "learning rate (train.optimizer, lr) or set train.clip_norm%s",
                   (long long)s->args.step + 1, s->lr, node,
                   ru_type_print(g, &g->values[v.v].type, type, sizeof type),
                   nan ? "not a number" : "infinite", where[0] != '\0' ? " for " : "", where,
                   rui_trainer_scale_hint(t, hint, sizeof hint));
}

static ru_status look_at_values(rui_trainer *t, const rui_odd_step *s, const ru_graph *g, ru_exe *e,
                                float *data, ru_err *err)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_out; k++) {
            ru_value_id v = n->out[k];
            ru_err unread = {0};
            if (v.v == 0 || g->values[v.v].type.dtype != RU_F32 ||
                ru_exe_value_read(e, v, data, &unread) != RU_OK) {
                continue; /* a view of another value, or one that no kernel makes on its own */
            }
            int64_t at = first_odd(data, ru_type_count(&g->values[v.v].type));
            if (at >= 0) {
                return name_value(t, s, n, v, at, isnan(data[at]), err);
            }
        }
    }
    return RU_OK;
}

ru_status rui_odd_find(rui_trainer *t, const rui_odd_step *s, ru_err *err)
{
    RU_TRY(rui_odd_states(t, s->args.step + 1, s->lr, err));
    ru_arena arena;
    ru_graph g;
    ru_exe *e = NULL;
    ru_step_options so;
    ru_exe_options eo;
    rui_trainer_options(t, &so, &eo);
    eo.autotune = false;
    eo.keep_temps = eo.no_fuse = eo.keep_nan = true;
    ru_arena_init(&arena, 0);
    void *data = memory_for(&t->step.graph);
    ru_status st =
        data != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "not enough memory to check values");
    st = st == RU_OK ? forward_of(&t->step, &arena, &g, err) : st;
    st = st == RU_OK ? ru_exe_open(&g, &eo, &e, err) : st;
    st = st == RU_OK ? give_all(t, &g, e, data, err) : st;
    st = st == RU_OK ? ru_exe_run(e, &s->args, err) : st;
    st = st == RU_OK ? look_at_values(t, s, &g, e, data, err) : st;
    ru_exe_close(e);
    free(data);
    ru_arena_fini(&arena);
    return st;
}
