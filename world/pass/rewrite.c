/* Working copies for rewriting passes, and the queries patterns are made of. */
#include "world/graph/copy_impl.h"
#include "world/pass/pass.h"
#include "world/pass/rewrite_impl.h"

#include <math.h>
#include <string.h>

static void fail_full(rui_rw *rw)
{
    if (rw->status == RU_OK) {
        rw->status = RU_FAIL(&rw->err, RU_E_LIMIT, "the arena of the graph is full");
    }
}

static void count_use(rui_rw *rw, ru_value_id v, uint32_t i)
{
    rw->uses[v.v]++;
    rw->first[v.v] = rw->first[v.v] == 0 ? i : rw->first[v.v];
    rw->last[v.v] = i;
}

ru_status rui_rw_open(const ru_graph *g, ru_arena *arena, rui_rw *rw, ru_err *err)
{
    *rw = (rui_rw){.n0 = g->n_values};
    RU_TRY(rui_copy_graph(g, arena, &rw->g, err));
    rw->uses = RU_NEW(arena, uint32_t, g->n_values);
    rw->first = RU_NEW(arena, uint32_t, g->n_values);
    rw->last = RU_NEW(arena, uint32_t, g->n_values);
    if (rw->uses == NULL || rw->first == NULL || rw->last == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            count_use(rw, g->nodes[i].in[k], i);
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        rw->uses[g->outputs[i].v] += 2; /* never a private intermediate */
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        rw->uses[g->updates[i].value.v] += 2;
    }
    return RU_OK;
}

ru_status rui_rw_close(rui_rw *rw, ru_arena *arena, ru_graph *out, ru_err *err)
{
    if (rw->status != RU_OK) {
        return RU_FAIL(err, rw->status, "%s", rw->err.text);
    }
    ru_graph n;
    RU_TRY(rui_copy_values(&rw->g, arena, &n, err));
    for (uint32_t i = 1; i < rw->g.n_nodes; i++) {
        for (const rui_extra *e = rw->extras; e != NULL; e = e->next) {
            if (e->before == i) {
                RU_TRY(ru_graph_add_node_into(&n, &e->node, NULL, err));
                RU_TRY(ru_graph_infer_node(&n, (ru_graph_node_id){n.n_nodes - 1}, err));
            }
        }
        if (rw->g.nodes[i].op != RU_OP_NONE) {
            RU_TRY(ru_graph_add_node_into(&n, &rw->g.nodes[i], NULL, err));
        }
    }
    RU_TRY(rui_copy_ends(&rw->g, &n, err));
    return ru_pass_dead(&n, arena, out, err);
}

uint32_t rui_rw_index(const rui_rw *rw, ru_value_id v)
{
    const ru_value *x = &rw->g.values[v.v];
    return v.v != 0 && x->kind == RU_VALUE_TEMP ? x->producer.v : 0;
}

ru_node *rui_rw_made_by(const rui_rw *rw, ru_value_id v, ru_op op)
{
    uint32_t i = rui_rw_index(rw, v);
    if (i == 0 || rw->g.values[v.v].producer_out != 0) {
        return NULL;
    }
    ru_node *n = &rw->g.nodes[i];
    return n->op != RU_OP_NONE && (op == RU_OP_NONE || n->op == op) ? n : NULL;
}

uint32_t rui_rw_uses(const rui_rw *rw, ru_value_id v)
{
    return v.v < rw->n0 ? rw->uses[v.v] : 1;
}

uint32_t rui_rw_only_user(const rui_rw *rw, ru_value_id v, ru_op op)
{
    if (v.v == 0 || v.v >= rw->n0 || rw->uses[v.v] != 1) {
        return 0;
    }
    uint32_t i = rw->last[v.v];
    return op == RU_OP_NONE || rw->g.nodes[i].op == op ? i : 0;
}

const ru_type *rui_rw_type(const rui_rw *rw, ru_value_id v)
{
    return &rw->g.values[v.v].type;
}

void rui_rw_kill(rui_rw *rw, uint32_t i)
{
    ru_node *n = &rw->g.nodes[i];
    for (uint32_t k = 0; k < n->n_in && n->op != RU_OP_NONE; k++) {
        if (n->in[k].v < rw->n0 && rw->uses[n->in[k].v] > 0) {
            rw->uses[n->in[k].v]--;
        }
    }
    n->op = RU_OP_NONE;
    rw->changes++;
}

void rui_rw_set(rui_rw *rw, uint32_t i, ru_op op, const ru_value_id *in, uint32_t n_in,
                const ru_attr *attrs, uint32_t n_attrs, const ru_value_id *out, uint32_t n_out)
{
    ru_arena *m = rw->g.arena;
    ru_value_id *my_in = ru_arena_copy(m, in, (int64_t)n_in * (int64_t)sizeof *in, 4);
    ru_value_id *my_out = ru_arena_copy(m, out, (int64_t)n_out * (int64_t)sizeof *out, 4);
    ru_attr *my_attrs = ru_arena_copy(m, n_attrs > 0 ? (const void *)attrs : "",
                                      (int64_t)n_attrs * (int64_t)sizeof *attrs, 8);
    if (my_in == NULL || my_out == NULL || my_attrs == NULL) {
        fail_full(rw);
        return;
    }
    const char *name = rw->g.nodes[i].name;
    rui_rw_kill(rw, i);
    rw->g.nodes[i] = (ru_node){.op = op,
                               .name = name,
                               .in = my_in,
                               .out = my_out,
                               .attrs = my_attrs,
                               .n_in = n_in,
                               .n_out = n_out,
                               .n_attrs = n_attrs};
    for (uint32_t k = 0; k < n_in; k++) {
        if (in[k].v < rw->n0) {
            rw->uses[in[k].v]++;
            rw->last[in[k].v] = rw->last[in[k].v] < i ? i : rw->last[in[k].v];
        }
    }
    for (uint32_t k = 0; k < n_out; k++) {
        if (my_out[k].v != 0) {
            rw->g.values[my_out[k].v].producer = (ru_graph_node_id){i};
            rw->g.values[my_out[k].v].producer_out = k;
        }
    }
}

ru_value_id rui_rw_insert(rui_rw *rw, uint32_t i, ru_op op, const ru_value_id *in, uint32_t n_in,
                          const ru_attr *attrs, uint32_t n_attrs)
{
    ru_arena *m = rw->g.arena;
    ru_value_id *out = RU_NEW(m, ru_value_id, 1);
    rui_extra *e = RU_NEW(m, rui_extra, 1);
    ru_value_id *my_in = ru_arena_copy(m, in, (int64_t)n_in * (int64_t)sizeof *in, 4);
    ru_attr *my_attrs = ru_arena_copy(m, n_attrs > 0 ? (const void *)attrs : "",
                                      (int64_t)n_attrs * (int64_t)sizeof *attrs, 8);
    if (out == NULL || e == NULL || my_in == NULL || my_attrs == NULL) {
        fail_full(rw);
        return (ru_value_id){0};
    }
    ru_status st = ru_graph_add_value(&rw->g, &(ru_value){.kind = RU_VALUE_TEMP}, out, &rw->err);
    if (st != RU_OK) {
        rw->status = rw->status == RU_OK ? st : rw->status;
        return (ru_value_id){0};
    }
    *e = (rui_extra){.before = i,
                     .node = {.op = op,
                              .in = my_in,
                              .out = out,
                              .attrs = my_attrs,
                              .n_in = n_in,
                              .n_out = 1,
                              .n_attrs = n_attrs}};
    if (rw->extras_end == NULL) {
        rw->extras = e;
    } else {
        rw->extras_end->next = e;
    }
    rw->extras_end = e;
    return *out;
}

ru_value_id rui_rw_const(rui_rw *rw, ru_type type, const void *data)
{
    ru_value_id id = {0};
    ru_value proto = {.type = type, .kind = RU_VALUE_CONST, .data = data};
    ru_status st = data == NULL ? RU_E_LIMIT : ru_graph_add_value(&rw->g, &proto, &id, &rw->err);
    if (st != RU_OK) {
        fail_full(rw);
    }
    return id;
}

bool rui_rw_replace(rui_rw *rw, ru_value_id from, ru_value_id to)
{
    for (uint32_t i = 0; i < rw->g.n_outputs; i++) {
        if (rw->g.outputs[i].v == from.v) {
            return false;
        }
    }
    for (uint32_t i = 0; i < rw->g.n_updates; i++) {
        if (rw->g.updates[i].value.v == from.v) {
            return false;
        }
    }
    if (rw->g.values[from.v].role == RU_ROLE_GRAD) {
        return false;
    }
    uint32_t at = rui_rw_index(rw, from);
    for (uint32_t i = at + 1; i < rw->g.n_nodes; i++) {
        ru_node *n = &rw->g.nodes[i];
        for (uint32_t k = 0; k < n->n_in && n->op != RU_OP_NONE; k++) {
            if (n->in[k].v != from.v) {
                continue;
            }
            ru_value_id *in =
                ru_arena_copy(rw->g.arena, n->in, (int64_t)n->n_in * (int64_t)sizeof *in, 4);
            if (in == NULL) {
                fail_full(rw);
                return false;
            }
            in[k] = to;
            n->in = in;
            if (to.v < rw->n0) {
                rw->uses[to.v]++;
                rw->last[to.v] = rw->last[to.v] < i ? i : rw->last[to.v];
            }
        }
    }
    return true;
}

bool rui_rw_scalar(const rui_rw *rw, ru_value_id v, double *x)
{
    const ru_value *p = &rw->g.values[v.v];
    if (v.v == 0 || p->kind != RU_VALUE_CONST || p->data == NULL || ru_type_count(&p->type) != 1) {
        return false;
    }
    float f;
    uint16_t h;
    switch ((uint32_t)p->type.dtype) {
    case RU_F32:
        memcpy(&f, p->data, sizeof f);
        *x = (double)f;
        return true;
    case RU_F64:
        memcpy(x, p->data, sizeof *x);
        return true;
    case RU_F16:
        memcpy(&h, p->data, sizeof h);
        *x = (double)ru_f16_to_f32(h);
        return true;
    case RU_BF16:
        memcpy(&h, p->data, sizeof h);
        *x = (double)ru_bf16_to_f32(h);
        return true;
    default:
        return false;
    }
}

bool rui_rw_is(const rui_rw *rw, ru_value_id v, double x)
{
    double y;
    return rui_rw_scalar(rw, v, &y) && fabs(x - y) <= 1e-4 * fabs(x);
}

ru_value_id rui_rw_with_const(const rui_rw *rw, ru_value_id v, ru_op op, double x)
{
    const ru_node *n = rui_rw_made_by(rw, v, op);
    for (uint32_t k = 0; n != NULL && k < 2; k++) {
        if (rui_rw_is(rw, n->in[k], x)) {
            return n->in[1 - k];
        }
    }
    return (ru_value_id){0};
}

const int64_t *rui_rw_ints(const rui_rw *rw, ru_value_id v, uint32_t *n)
{
    const ru_value *x = &rw->g.values[v.v];
    int64_t count = ru_type_count(&x->type);
    const int64_t *known = x->known;
    *n = 0;
    if (known == NULL && x->kind == RU_VALUE_CONST && x->type.dtype == RU_I64) {
        known = x->data;
    }
    for (int64_t i = 0; known != NULL && i < count; i++) {
        if (known[i] == RU_DIM_UNKNOWN || ru_dim_is_symbolic(known[i])) {
            return NULL;
        }
    }
    *n = v.v != 0 && known != NULL && count >= 0 ? (uint32_t)count : 0;
    return *n > 0 ? known : NULL;
}

ru_attr *rui_rw_attrs(rui_rw *rw, const ru_node *n, const ru_attr *more, uint32_t n_more,
                      uint32_t *count)
{
    ru_attr *a = RU_NEW(rw->g.arena, ru_attr, n->n_attrs + n_more);
    if (a == NULL) {
        fail_full(rw);
        *count = 0;
        return NULL;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        bool again = false;
        for (uint32_t j = 0; j < n_more; j++) {
            again = again || more[j].key == n->attrs[i].key;
        }
        if (!again) {
            a[at++] = n->attrs[i];
        }
    }
    for (uint32_t j = 0; j < n_more; j++) {
        a[at++] = more[j];
    }
    *count = at;
    return a;
}
