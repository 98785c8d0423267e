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
 * Gradients of one micro-batch of several, and of a parameter that is used twice, are parts of a
 * sum: the last one of them is what counts.
 *
 * Source: caramel-2020 (gradients as early as the graph allows). */
#include <stddef.h>

#include "train/model/step_impl.h"

typedef struct sorter {
    const ru_graph *g;
    bool *leaves; /* [n_values] gradients, and the shared vector */
    bool *ahead;  /* [n_values] the loss or what is told of the step depends on it */
    bool *late;   /* [n_nodes] reads a gradient that leaves, or what is made of one */
    bool *side;   /* [n_nodes] of the backward pass; leads to one gradient and nowhere else */
    uint32_t *one, *far; /* [n_nodes] of side ones: which, and over how many nodes at most */
    bool *loose;         /* [n_nodes] side, and made of nothing that the backward pass makes */
    bool *placed;        /* [n_nodes] */
    uint32_t *first, *readers; /* [n_nodes + 1], nodes that read what a node makes */
    uint32_t *order, n;        /* [n_nodes] */
} sorter;

static uint32_t producer(const sorter *s, ru_value_id v)
{
    return v.v != 0 ? s->g->values[v.v].producer.v : 0; /* 0: no node makes it */
}

/* Counted, then filled: readers of node i stand in [first[i], first[i + 1]), in their order. */
static bool find_readers(sorter *s, ru_arena *a)
{
    const ru_graph *g = s->g;
    uint32_t total = 0;
    s->first = RU_NEW(a, uint32_t, (int64_t)g->n_nodes + 2);
    for (uint32_t i = 1; s->first != NULL && i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            s->first[producer(s, g->nodes[i].in[k]) + 2]++;
            total++;
        }
    }
    s->readers = RU_NEW(a, uint32_t, (int64_t)total + 1);
    if (s->first == NULL || s->readers == NULL) {
        return false;
    }
    for (uint32_t i = 2; i < g->n_nodes + 2; i++) {
        s->first[i] += s->first[i - 1];
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            s->readers[s->first[producer(s, g->nodes[i].in[k]) + 1]++] = i;
        }
    }
    return true;
}

/* What the shared vector and gradients are made of, from their nodes back; what reads them. */
static void mark_ends(sorter *s, const ru_step_graph *step)
{
    const ru_graph *g = s->g;
    bool *late = s->late;
    s->ahead[step->shared.v] = s->leaves[step->shared.v] = true;
    for (uint32_t k = 0; k < step->n_params; k++) {
        s->leaves[step->grads[k].v] = true;
    }
    for (uint32_t i = g->n_nodes; i-- > 1;) {
        const ru_node *n = &g->nodes[i];
        bool any = false;
        for (uint32_t k = 0; k < n->n_out; k++) {
            any = any || (n->out[k].v != 0 && s->ahead[n->out[k].v]);
        }
        for (uint32_t k = 0; any && k < n->n_in; k++) {
            s->ahead[n->in[k].v] = true;
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            ru_value_id v = g->nodes[i].in[k];
            late[i] = late[i] || s->leaves[v.v] || late[producer(s, v)];
        }
    }
}

/* One gradient that node i leads to, and how far it is; `one` 0: none so far. */
static bool leads_to(sorter *s, uint32_t i, uint32_t *one)
{
    const ru_node *n = &s->g->nodes[i];
    for (uint32_t k = 0; k < n->n_out; k++) {
        uint32_t v = n->out[k].v;
        if (v == 0) {
            continue;
        }
        if (s->ahead[v] || (s->leaves[v] && *one != 0)) {
            return false;
        }
        *one = s->leaves[v] ? v : *one;
    }
    for (uint32_t k = s->first[i]; k < s->first[i + 1]; k++) {
        uint32_t r = s->readers[k];
        if (s->late[r] && *one != 0 && s->leaves[*one]) {
            continue;
        }
        if (!s->side[r] || (*one != 0 && s->one[r] != *one)) {
            return false;
        }
        *one = s->one[r];
        s->far[i] = s->far[r] >= s->far[i] ? s->far[r] + 1 : s->far[i];
    }
    return *one != 0;
}

/* From the last node back. */
static void mark_sides(sorter *s)
{
    const ru_graph *g = s->g;
    for (uint32_t i = g->n_nodes; i-- > 1;) {
        const ru_node *n = &g->nodes[i];
        bool loose = true;
        for (uint32_t k = 0; k < n->n_in; k++) {
            loose = loose && (producer(s, n->in[k]) == 0 || s->ahead[n->in[k].v]);
        }
        s->side[i] = !s->late[i] && leads_to(s, i, &s->one[i]);
        s->loose[i] = s->side[i] && loose;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) { /* the nearest to its gradient first */
        uint32_t *r = s->readers + s->first[i], n = s->first[i + 1] - s->first[i];
        for (uint32_t k = 1; k < n; k++) {
            uint32_t x = r[k], at = k;
            for (; at > 0 && s->far[r[at - 1]] > s->far[x]; at--) {
                r[at] = r[at - 1];
            }
            r[at] = x;
        }
    }
}

static bool is_there(const sorter *s, uint32_t i)
{
    for (uint32_t k = 0; k < s->g->nodes[i].n_in; k++) {
        uint32_t p = producer(s, s->g->nodes[i].in[k]);
        if (p != 0 && !s->placed[p] && !(s->loose[p] && is_there(s, p))) {
            return false;
        }
    }
    return true;
}

/* Is the gradient there when side node i is? A part of a sum whose others are still to come would
 * only hold up the chain. */
static bool ends(const sorter *s, uint32_t i)
{
    for (uint32_t k = s->first[i]; k < s->first[i + 1]; k++) {
        const uint32_t r = s->readers[k];
        for (uint32_t j = 0; !s->late[r] && j < s->g->nodes[r].n_in; j++) {
            uint32_t p = producer(s, s->g->nodes[r].in[j]);
            if (p != 0 && p != i && !s->placed[p] && !s->loose[p]) {
                return false;
            }
        }
        if (!s->late[r] && !ends(s, r)) {
            return false;
        }
    }
    return true;
}

/* Node i, before it what is loose, behind it what waited for it alone. */
static void place(sorter *s, uint32_t i)
{
    const ru_node *n = &s->g->nodes[i];
    if (s->placed[i]) {
        return;
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        uint32_t p = producer(s, n->in[k]);
        if (p != 0) {
            place(s, p);
        }
    }
    if (s->placed[i]) { /* the last of what it waited for has placed it */
        return;
    }
    s->placed[i] = true;
    s->order[s->n++] = i;
    for (uint32_t k = s->first[i]; k < s->first[i + 1]; k++) {
        uint32_t r = s->readers[k];
        bool waits = s->side[r] && !s->loose[r] && !s->placed[r];
        if (waits && is_there(s, r) && ends(s, r)) {
            place(s, r);
        }
    }
}

static void rearrange(const sorter *s, ru_node *was)
{
    const ru_graph *g = s->g;
    for (uint32_t k = 0; k < s->n; k++) {
        was[k] = g->nodes[s->order[k]];
    }
    for (uint32_t k = 0; k < s->n; k++) {
        g->nodes[1 + k] = was[k];
        for (uint32_t j = 0; j < was[k].n_out; j++) {
            if (was[k].out[j].v != 0) {
                g->values[was[k].out[j].v].producer.v = 1 + k;
            }
        }
    }
}

ru_status rui_step_order(const ru_graph *g, const ru_step_graph *step, ru_err *err)
{
    ru_arena *a = g->arena;
    sorter s = {.g = g,
                .leaves = RU_NEW(a, bool, g->n_values),
                .ahead = RU_NEW(a, bool, g->n_values),
                .late = RU_NEW(a, bool, g->n_nodes),
                .side = RU_NEW(a, bool, g->n_nodes),
                .loose = RU_NEW(a, bool, g->n_nodes),
                .placed = RU_NEW(a, bool, g->n_nodes),
                .one = RU_NEW(a, uint32_t, g->n_nodes),
                .far = RU_NEW(a, uint32_t, g->n_nodes),
                .order = RU_NEW(a, uint32_t, g->n_nodes)};
    ru_node *was = RU_NEW(a, ru_node, g->n_nodes);
    if (s.leaves == NULL || s.ahead == NULL || s.late == NULL || s.side == NULL ||
        s.loose == NULL || s.placed == NULL || s.one == NULL || s.far == NULL || s.order == NULL ||
        was == NULL || !find_readers(&s, a)) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
    }
    mark_ends(&s, step);
    mark_sides(&s);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        place(&s, i);
    }
    RU_CHECK(s.n == g->n_nodes - 1);
    rearrange(&s, was);
    return RU_OK;
}
