#include "exec/settle.h"

#include <string.h>

#include "exec/ref.h"
#include "world/pass/pass.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "not enough memory for the part of the model that decides sizes");
}

/* -- running a part ---------------------------------------------------------------------------- */

static ru_status array_find(const ru_settle *s, const ru_value *v, const ru_array **out,
                            ru_err *err)
{
    *out = v->name != NULL ? ru_arrays_find(s->arrays, v->name) : NULL;
    return *out != NULL && ru_type_equal(&(*out)->type, &v->type)
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "sizes inside the model depend on the data of input '%s'; give an array "
                         "for it",
                         v->name != NULL ? v->name : "");
}

static ru_status inputs_fill(const ru_settle *s, const ru_graph *g, ru_exe *exe, ru_err *err)
{
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        const ru_value *v = ru_graph_value(g, g->inputs[k]);
        const ru_array *a;
        RU_TRY(array_find(s, v, &a, err));
        if (ru_type_bytes(&v->type) > 0) {
            memcpy(ru_exe_input(exe, g->inputs[k]), a->data, (size_t)ru_type_bytes(&v->type));
        }
    }
    return RU_OK;
}

/* Compute values `ids` of g, all sizes of which are numbers before them, on the arrays; their data
 * are copied to `into`. Constants are views. */
static ru_status run_to(ru_settle *s, const ru_graph *g, const ru_value_id *ids, uint32_t n,
                        ru_arena *into, const void **data, ru_err *err)
{
    ru_graph part = *g, live;
    ru_exe_options opt = *s->opt;
    opt.autotune = opt.profile = false;
    part.n_updates = part.n_outputs = 0;
    part.outputs = RU_NEW(s->arena, ru_value_id, n);
    if (part.outputs == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        if (ru_graph_value(g, ids[k])->kind == RU_VALUE_TEMP) {
            part.outputs[part.n_outputs++] = ids[k];
        }
    }
    RU_TRY(ru_pass_dead(&part, s->arena, &live, err));
    ru_exe *exe = NULL;
    ru_status st = part.n_outputs > 0 ? ru_exe_open(&live, &opt, &exe, err) : RU_OK;
    st = st == RU_OK && exe != NULL ? inputs_fill(s, &live, exe, err) : st;
    st = st == RU_OK && exe != NULL ? ru_exe_run(exe, &(ru_run_args){0}, err) : st;
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        const ru_value *v = ru_graph_value(g, ids[k]);
        data[k] = v->data;
        if (v->kind == RU_VALUE_TEMP) {
            data[k] = ru_arena_copy(into, ru_exe_output(exe, ids[k]), ru_type_bytes(&v->type), 64);
            st = data[k] != NULL ? RU_OK : full(err);
        }
    }
    ru_exe_close(exe);
    s->ran++;
    return st;
}

/* -- where sizes are decided ------------------------------------------------------------------- */

typedef struct cut {
    bool *ready; /* [n_values] known before any place where a size is open */
    bool *need;  /* [n_values] ready, and read there or behind */
    bool moves;  /* something that decides a size is not constant yet */
} cut;

/* All values that node n makes have numbers for sizes. */
static bool sized(const ru_graph *g, const ru_node *n)
{
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (ru_node_has_out(n, k) && !ru_type_is_concrete(&ru_graph_value(g, n->out[k])->type)) {
            return false;
        }
    }
    return true;
}

static void cut_node(const ru_graph *g, const ru_node *n, cut *c)
{
    bool ready = true;
    for (uint32_t k = 0; k < n->n_in; k++) {
        ready = ready && (n->in[k].v == 0 || c->ready[n->in[k].v]);
    }
    bool whole = ready && sized(g, n);
    for (uint32_t k = 0; whole && k < n->n_out; k++) {
        c->ready[n->out[k].v] = true;
    }
    for (uint32_t k = 0; !whole && k < n->n_in; k++) {
        const ru_value *v = ru_graph_value(g, n->in[k]);
        bool decides = ready && k < 32 && (ru_op_sized_by(n->op) >> k & 1) != 0;
        bool open = n->in[k].v != 0 && c->ready[n->in[k].v] && v->kind != RU_VALUE_CONST;
        if (open && (decides || v->kind == RU_VALUE_TEMP)) {
            c->need[n->in[k].v] = true;
            c->moves = c->moves || decides;
        }
    }
}

static ru_status cut_make(const ru_settle *s, const ru_graph *g, cut *c, ru_err *err)
{
    *c = (cut){.ready = RU_NEW(s->arena, bool, g->n_values),
               .need = RU_NEW(s->arena, bool, g->n_values)};
    if (c->ready == NULL || c->need == NULL) {
        return full(err);
    }
    for (uint32_t k = 1; k < g->n_values; k++) {
        const ru_value *v = &g->values[k];
        c->ready[k] = v->kind != RU_VALUE_TEMP && ru_type_is_concrete(&v->type);
    }
    for (uint32_t k = 1; k < g->n_nodes; k++) {
        cut_node(g, &g->nodes[k], c);
    }
    return RU_OK;
}

/* Values that were made inputs get their arrays. */
static ru_status pins_keep(const ru_settle *s, const ru_graph *g, const ru_pin *pins, uint32_t n,
                           ru_err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        const ru_value *v = ru_graph_value(g, pins[k].value);
        bool input = v->kind == RU_VALUE_INPUT && ru_arrays_find(s->arrays, v->name) == NULL;
        const ru_array a = {.name = v->name, .type = v->type, .data = pins[k].data};
        RU_TRY(input ? ru_arrays_add(s->arrays, s->arena, &a, err) : RU_OK);
    }
    return RU_OK;
}

/* Compute what is needed at the cut and put it in place. */
static ru_status stage_run(ru_settle *s, ru_graph *g, const cut *c, ru_err *err)
{
    uint32_t n = 0, n_made = 0;
    ru_pin *pins = RU_NEW(s->arena, ru_pin, g->n_values);
    ru_value_id *made = RU_NEW(s->arena, ru_value_id, g->n_values);
    const void **data = RU_NEW(s->arena, const void *, g->n_values);
    if (pins == NULL || made == NULL || data == NULL) {
        return full(err);
    }
    for (uint32_t k = 1; k < g->n_values; k++) {
        if (c->need[k] && g->values[k].kind == RU_VALUE_TEMP) {
            made[n_made++] = (ru_value_id){k};
        } else if (c->need[k]) {
            const ru_array *a;
            RU_TRY(array_find(s, &g->values[k], &a, err));
            pins[n++] = (ru_pin){{k}, a->data};
        }
    }
    if (n_made > 0) {
        RU_TRY(run_to(s, g, made, n_made, s->arena, data, err));
    }
    for (uint32_t k = 0; k < n_made; k++) {
        pins[n++] = (ru_pin){made[k], data[k]};
    }
    RU_TRY(ru_pass_pin(g, pins, n, s->arena, g, err));
    RU_TRY(pins_keep(s, g, pins, n, err));
    return ru_graph_infer(g, err);
}

ru_status ru_exe_settle(ru_settle *s, const ru_graph *g, ru_graph *out, ru_err *err)
{
    const ru_fold_ops fold = ru_ref_fold_ops();
    ru_graph now, settled;
    ru_status st;
    RU_TRY(ru_pass_dead(g, s->arena, &now, err));
    while ((st = ru_onnx_settle(&now, &fold, s->arena, &settled, err)) == RU_E_UNSUPPORTED) {
        cut c;
        ru_err unseen = {0};
        RU_TRY(cut_make(s, &now, &c, &unseen));
        if (!c.moves) {
            return st; /* its sentence is in err */
        }
        RU_TRY(stage_run(s, &now, &c, err));
    }
    RU_TRY(st);
    *out = settled;
    return RU_OK;
}

/* -- while a model is read --------------------------------------------------------------------- */

static ru_status ahead_compute(void *self, const ru_graph *g, const ru_value_id *ids, uint32_t n,
                               ru_array *out, ru_err *err)
{
    ru_settle *s = self;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_arrays arrays = {.at = s->arrays->at, .n = s->arrays->n, .cap = s->arrays->n};
    ru_settle part = {.opt = s->opt, .arrays = &arrays, .arena = &arena};
    ru_graph ends = *g, settled;
    const void **data = RU_NEW(&arena, const void *, n);
    ends.outputs = RU_NEW(&arena, ru_value_id, n);
    ends.n_outputs = n;
    ends.n_updates = 0;
    ru_status st = data != NULL && ends.outputs != NULL ? RU_OK : full(err);
    if (st == RU_OK) {
        memcpy(ends.outputs, ids, n * sizeof *ids);
        st = ru_exe_settle(&part, &ends, &settled, err);
    }
    st = st == RU_OK ? run_to(&part, &settled, ids, n, g->arena, data, err) : st;
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        const ru_value *v = ru_graph_value(&settled, ids[k]);
        out[k] = (ru_array){.type = v->type, .data = data[k]};
        if (v->kind != RU_VALUE_TEMP) { /* not copied yet */
            out[k].data = ru_arena_copy(g->arena, v->data, ru_type_bytes(&v->type), 64);
            st = out[k].data != NULL ? RU_OK : full(err);
        }
    }
    s->ran++;
    ru_arena_fini(&arena);
    return st;
}

static ru_status ahead_keep(void *self, const ru_array *a, ru_err *err)
{
    ru_settle *s = self;
    return ru_arrays_add(s->arrays, s->arena, a, err);
}

ru_onnx_ahead ru_exe_ahead(ru_settle *s)
{
    return (ru_onnx_ahead){
        .name = "executable", .compute = ahead_compute, .keep = ahead_keep, .self = s};
}
