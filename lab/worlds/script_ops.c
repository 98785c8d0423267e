#include "lab/worlds/script_ops.h"

#include <string.h>

ru_status ru_script_ops_open(const ru_script_ops *ops, ru_arena *arena, ru_script_ops_play *p,
                             ru_err *err)
{
    uint32_t n = ops->n;
    ru_heap_item *items = RU_NEW(arena, ru_heap_item, n);
    *p = (ru_script_ops_play){.ops = ops,
                              .waits = RU_NEW(arena, uint32_t, n),
                              .out = RU_NEW(arena, uint32_t, ops->n_edges + 1),
                              .first = RU_NEW(arena, uint32_t, n + 1)};
    if (items == NULL || p->waits == NULL || p->out == NULL || p->first == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a script of %u ops", n);
    }
    ru_heap_init(&p->ready, items, n);
    for (uint32_t e = 0; e < ops->n_edges; e++) {
        if (ops->edges[e].from >= ops->edges[e].to || ops->edges[e].to >= n) {
            return RU_FAIL(err, RU_E_ARG, "op %u of %u cannot follow op %u", ops->edges[e].to, n,
                           ops->edges[e].from);
        }
        p->first[ops->edges[e].from + 1]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        p->first[i + 1] += p->first[i];
    }
    for (uint32_t e = 0; e < ops->n_edges; e++) { /* waits counts places, until the step begins */
        uint32_t from = ops->edges[e].from;
        p->out[p->first[from] + p->waits[from]++] = e;
    }
    return RU_OK;
}

static void less(ru_script_ops_play *p, uint32_t op)
{
    RU_CHECK(p->waits[op] > 0);
    if (--p->waits[op] == 0) {
        RU_CHECK(ru_heap_push(&p->ready, op, op) == RU_OK);
    }
}

void ru_script_ops_begin(ru_script_ops_play *p)
{
    const ru_script_ops *o = p->ops;
    p->n_done = 0;
    p->ready.n = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        p->waits[i] = 1 + (o->need[i] > 0);
    }
    for (uint32_t e = 0; e < o->n_edges; e++) {
        p->waits[o->edges[e].to]++;
    }
    for (uint32_t i = 0; i < o->n; i++) { /* the one that all wait for */
        less(p, i);
    }
}

void ru_script_ops_arrived(ru_script_ops_play *p, uint32_t op)
{
    less(p, op);
}

bool ru_script_ops_next(ru_script_ops_play *p, uint32_t *op)
{
    ru_heap_item top;
    if (!ru_heap_pop(&p->ready, &top)) {
        return false;
    }
    *op = (uint32_t)top.value;
    return true;
}

void ru_script_ops_done(ru_script_ops_play *p, uint32_t op)
{
    p->n_done++;
    for (uint32_t k = p->first[op]; k < p->first[op + 1]; k++) {
        less(p, p->ops->edges[p->out[k]].to);
    }
}
