/* In which order a step that is a part of a larger one makes its gradients: each as soon as what it
 * is made of is there. Rules of differentiation write the chain first, since gradients of the next
 * layer wait for it; but a gradient whose sum can begin waits for nobody.
 *
 *   as built     dY2 -> dX2 -> dW2, db2 -> dX1 -> dW1, db1       chain: dY2, dX2, dX1
 *   as run       dY2 -> dW2, db2 -> dX2 -> dW1, db1 -> dX1
 *
 * Only the order of nodes changes. The chain keeps its own, so do forward pass and update. The
 * order follows from the graph, so all workers have the same.
 *
 * A node that leads to one gradient and nowhere else (a side node) goes right behind the last node
 * of the chain that it needs; one that needs no node of the backward pass goes before the first
 * that reads it, so that it does not hold memory over the forward pass.
 *
 * Source: caramel-2020 (gradients as early as the graph allows). */
#include <stdlib.h>

#include "train/model/step_impl.h"

static const uint32_t MANY = UINT32_MAX; /* leads to several gradients, or elsewhere */

typedef struct seat {
    uint32_t behind, size, one, i; /* in this order; i: of the node as built */
    ru_node node;
} seat;

typedef struct sorter {
    const ru_graph *g;
    bool *leaves;   /* [n_values] gradients, and the shared vector */
    uint32_t *size; /* [n_values] of gradients: side nodes that lead there */
    bool *ahead;    /* [n_nodes] the loss or what is told of the step depends on it */
    bool *backward; /* [n_nodes] side nodes: made of what the backward pass makes */
    uint32_t *one;  /* [n_nodes] the gradient that a node leads to; 0: none; or MANY */
    uint32_t *use;  /* [n_nodes] behind which node the first one goes that reads it */
    seat *seats;    /* [n_nodes] */
} sorter;

static uint32_t producer(const sorter *s, ru_value_id v)
{
    return v.v != 0 ? s->g->values[v.v].producer.v : 0; /* 0: no node makes it */
}

static void lead(uint32_t *one, uint32_t to)
{
    *one = *one == 0 || *one == to ? to : MANY;
}

static bool is_side(const sorter *s, uint32_t i)
{
    return s->one[i] != 0 && s->one[i] != MANY;
}

/* From the last node back: what the loss is made of, and what leads to one gradient. */
static void mark(sorter *s)
{
    for (uint32_t i = s->g->n_nodes; i-- > 1;) {
        const ru_node *n = &s->g->nodes[i];
        for (uint32_t k = 0; k < n->n_out; k++) {
            if (s->leaves[n->out[k].v]) {
                lead(&s->one[i], n->out[k].v);
            }
        }
        s->one[i] = s->ahead[i] ? MANY : s->one[i];
        for (uint32_t k = 0; k < n->n_in; k++) {
            uint32_t p = producer(s, n->in[k]);
            s->ahead[p] |= s->ahead[i];
            if (!s->leaves[n->in[k].v]) { /* what reads a gradient waits for its sum */
                lead(&s->one[p], is_side(s, i) ? s->one[i] : MANY);
            }
        }
    }
}

static void find_seats(sorter *s)
{
    const ru_graph *g = s->g;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        uint32_t behind = 0;
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            uint32_t p = producer(s, g->nodes[i].in[k]);
            behind = s->seats[p].behind > behind ? s->seats[p].behind : behind;
            s->backward[i] |= is_side(s, p) ? s->backward[p] : p != 0 && !s->ahead[p];
        }
        s->seats[i] = (seat){.behind = i, .i = i, .node = g->nodes[i]};
        s->use[i] = i;
        if (is_side(s, i)) {
            s->seats[i].behind = behind;
            s->seats[i].one = s->one[i];
            s->size[s->one[i]]++;
        }
    }
    for (uint32_t i = g->n_nodes; i-- > 1;) {
        seat *x = &s->seats[i];
        x->behind = is_side(s, i) && !s->backward[i] ? s->use[i] : x->behind;
        x->size = s->size[x->one];
        for (uint32_t k = 0; k < x->node.n_in; k++) {
            uint32_t *use = &s->use[producer(s, x->node.in[k])];
            *use = x->behind < *use ? x->behind : *use;
        }
    }
}

/* Behind one node: first itself, then what leads to gradients, those of few nodes first. */
static int before(const void *a, const void *b)
{
    const seat *x = a, *y = b;
    uint32_t p[] = {x->behind, x->size, x->one, x->i}, q[] = {y->behind, y->size, y->one, y->i};
    uint32_t k = 0;
    while (k < 3 && p[k] == q[k]) {
        k++;
    }
    return p[k] < q[k] ? -1 : p[k] > q[k];
}

static void rearrange(sorter *s)
{
    const ru_graph *g = s->g;
    qsort(s->seats + 1, g->n_nodes - 1, sizeof *s->seats, before);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        ru_node *n = &g->nodes[i];
        *n = s->seats[i].node;
        for (uint32_t k = 0; k < n->n_out; k++) {
            if (n->out[k].v != 0) {
                g->values[n->out[k].v].producer.v = i;
            }
        }
    }
}

ru_status rui_step_order(const ru_graph *g, const ru_step_graph *step, ru_err *err)
{
    ru_arena *a = g->arena;
    sorter s = {.g = g,
                .leaves = RU_NEW(a, bool, g->n_values),
                .size = RU_NEW(a, uint32_t, g->n_values),
                .ahead = RU_NEW(a, bool, g->n_nodes),
                .backward = RU_NEW(a, bool, g->n_nodes),
                .one = RU_NEW(a, uint32_t, g->n_nodes),
                .use = RU_NEW(a, uint32_t, g->n_nodes),
                .seats = RU_NEW(a, seat, g->n_nodes)};
    if (s.leaves == NULL || s.size == NULL || s.ahead == NULL || s.backward == NULL ||
        s.one == NULL || s.use == NULL || s.seats == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
    }
    s.ahead[producer(&s, step->shared)] = s.leaves[step->shared.v] = true;
    for (uint32_t k = 0; k < step->n_params; k++) {
        s.leaves[step->grads[k].v] = true;
    }
    s.one[0] = MANY; /* no node */
    mark(&s);
    find_seats(&s);
    rearrange(&s);
    return RU_OK;
}
