/* Fewer, larger ops: edges are contracted, the longest transfers first, so that no circle appears.
 *
 * Many at once are safe when each of them joins (source that one op reads), or (sink that reads one
 * op), or ops of heights h and h + 1 for h of one parity, where u has one reader or v one input: a
 * circle would need a joined u with another reader, whose v has then no second input to close it.
 * Source: pesto-2021 sec 4 (single contractions); the rule for many is ours. */
#include <string.h>

#include "base/heap.h"
#include "plan/cut/place_impl.h"

typedef enum how { SOURCES, SINKS, EVEN, ODD, WAYS } how;

typedef struct coarsener {
    const rui_place *fine;
    rui_place g; /* as coarse as it is now */
    ru_arena *a;
    uint32_t *of; /* [fine->n] */
    uint32_t most;
    double work_max;   /* of an op: twice the mean of `most` ops */
    int64_t bytes_max; /* of a unit that grows */
} coarsener;

static uint32_t root(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i) {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    return i;
}

/* Distinct neighbours: edges between the same two ops are one by now. */
static bool joins(const rui_place *g, const uint32_t *height, uint32_t e, how way)
{
    uint32_t u = g->from[e], v = g->to[e];
    bool one_reader = g->out_at[u + 1] - g->out_at[u] == 1;
    bool one_input = g->in_at[v + 1] - g->in_at[v] == 1;
    if (way == SOURCES) {
        return one_reader && g->in_at[u + 1] == g->in_at[u];
    }
    if (way == SINKS) {
        return one_input && g->out_at[v + 1] == g->out_at[v];
    }
    return (one_reader || one_input) && height[v] == height[u] + 1 &&
           height[u] % 2 == (way == ODD ? 1u : 0u);
}

/* May both units become one? */
static bool may_share(coarsener *c, uint32_t *units, const int64_t *bytes, const uint32_t *pin,
                      uint32_t u, uint32_t v)
{
    uint32_t a = root(units, u), b = root(units, v);
    return a == b || (bytes[a] + bytes[b] <= c->bytes_max &&
                      (pin[a] == pin[b] || pin[a] == RUI_PLACE_NONE || pin[b] == RUI_PLACE_NONE));
}

typedef struct round_room {
    uint32_t *op, *unit; /* [n], [n_units] roots */
    uint32_t *height, *order, *spare, *pin;
    int64_t *bytes;     /* [n_units] */
    double *key, *work; /* [m], [n] */
    bool *taken;        /* [n] */
} round_room;

static bool room_new(coarsener *c, round_room *r)
{
    const rui_place *g = &c->g;
    *r = (round_room){.op = RU_NEW(c->a, uint32_t, g->n),
                      .unit = RU_NEW(c->a, uint32_t, g->n_units),
                      .height = RU_NEW(c->a, uint32_t, g->n),
                      .order = RU_NEW(c->a, uint32_t, g->m),
                      .spare = RU_NEW(c->a, uint32_t, g->m),
                      .pin = RU_NEW(c->a, uint32_t, g->n_units),
                      .bytes = RU_NEW(c->a, int64_t, g->n_units),
                      .key = RU_NEW(c->a, double, g->m),
                      .work = RU_NEW(c->a, double, g->n),
                      .taken = RU_NEW(c->a, bool, g->n)};
    if (r->op == NULL || r->unit == NULL || r->height == NULL || r->order == NULL ||
        r->spare == NULL || r->pin == NULL || r->bytes == NULL || r->key == NULL ||
        r->work == NULL || r->taken == NULL) {
        return false;
    }
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t i = g->topo[k];
        r->op[i] = i;
        r->work[i] = (double)rui_place_least(g, i);
        for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1]; x++) {
            uint32_t h = r->height[g->from[g->in_edge[x]]] + 1;
            r->height[i] = h > r->height[i] ? h : r->height[i];
        }
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        r->unit[u] = u;
        r->bytes[u] = g->unit_bytes[u];
        r->pin[u] = g->unit_pin[u];
    }
    for (uint32_t e = 0; e < g->m; e++) {
        r->order[e] = e;
        r->key[e] = (double)g->send[e];
    }
    rui_place_sort(r->key, g->m, r->order, r->spare);
    return true;
}

static uint32_t contract(coarsener *c, round_room *r, how way)
{
    const rui_place *g = &c->g;
    uint32_t n = g->n;
    for (uint32_t k = 0; k < g->m && n > c->most; k++) {
        uint32_t e = r->order[k], u = g->from[e], v = g->to[e];
        /* The op that others are drawn into may be drawn into several times. */
        bool free = (way == SINKS || !r->taken[u]) && (way == SOURCES || !r->taken[v]);
        uint32_t a = root(r->op, u), b = root(r->op, v);
        if (!free || !joins(g, r->height, e, way) || r->work[a] + r->work[b] > c->work_max ||
            !may_share(c, r->unit, r->bytes, r->pin, g->unit[u], g->unit[v])) {
            continue;
        }
        r->taken[u] = r->taken[v] = true;
        r->work[a] += r->work[b];
        r->op[b] = a;
        uint32_t x = root(r->unit, g->unit[u]), y = root(r->unit, g->unit[v]);
        if (x != y) {
            r->bytes[x] += r->bytes[y];
            r->pin[x] = r->pin[x] != RUI_PLACE_NONE ? r->pin[x] : r->pin[y];
            r->unit[y] = x;
        }
        n--;
    }
    return g->n - n;
}

/* number[i] of each root in the order of first members; answer: how many. */
static uint32_t renumber(uint32_t *parent, uint32_t n, uint32_t *number)
{
    uint32_t count = 0;
    memset(number, 0xff, n * sizeof *number);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = root(parent, i);
        number[r] = number[r] == RUI_PLACE_NONE ? count++ : number[r];
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = root(parent, i);
        number[i] = i == r ? number[i] : number[r];
    }
    return count;
}

/* Edges of the smaller graph: inner ones go, those between the same two ops add up. */
static bool put_edges(coarsener *c, const uint32_t *number, rui_place *to)
{
    const rui_place *g = &c->g;
    uint32_t *seen = RU_NEW(c->a, uint32_t, to->n); /* edge + 1 from the op at hand */
    uint32_t *mapped = RU_NEW(c->a, uint32_t, g->m), *by = RU_NEW(c->a, uint32_t, g->m);
    uint32_t *begin = RU_NEW(c->a, uint32_t, (int64_t)to->n + 1), m = 0;
    to->from = RU_NEW(c->a, uint32_t, g->m);
    to->to = RU_NEW(c->a, uint32_t, g->m);
    if (seen == NULL || mapped == NULL || by == NULL || begin == NULL || to->from == NULL ||
        to->to == NULL) {
        return false;
    }
    for (uint32_t e = 0; e < g->m; e++) {
        begin[number[g->from[e]]]++;
    }
    for (uint32_t k = 0, sum = 0; k <= to->n; k++) {
        uint32_t n = begin[k];
        begin[k] = sum;
        sum += n;
    }
    for (uint32_t e = 0; e < g->m; e++) {
        by[begin[number[g->from[e]]]++] = e;
    }
    for (uint32_t k = 0; k < g->m; k++) {
        uint32_t e = by[k], u = number[g->from[e]], v = number[g->to[e]];
        mapped[e] = RUI_PLACE_NONE;
        if (u == v) {
            continue;
        }
        if (seen[v] == 0 || to->from[seen[v] - 1] != u) {
            to->from[m] = u;
            to->to[m] = v;
            seen[v] = ++m;
        }
        mapped[e] = seen[v] - 1;
    }
    to->m = m;
    to->send = RU_NEW(c->a, int64_t, (int64_t)g->n_kinds * m);
    for (uint32_t e = 0; e < g->m && to->send != NULL; e++) {
        for (uint32_t k = 0; k < g->n_kinds && mapped[e] != RUI_PLACE_NONE; k++) {
            to->send[(size_t)k * m + mapped[e]] += g->send[(size_t)k * g->m + e];
        }
    }
    return to->send != NULL;
}

static bool rebuild(coarsener *c, round_room *r)
{
    const rui_place *g = &c->g;
    rui_place to = {.in = g->in,
                    .n_devs = g->n_devs,
                    .n_kinds = g->n_kinds,
                    .kind = g->kind,
                    .memory = g->memory};
    uint32_t *number = RU_NEW(c->a, uint32_t, g->n), *unit = RU_NEW(c->a, uint32_t, g->n_units);
    if (number == NULL || unit == NULL) {
        return false;
    }
    to.n = renumber(r->op, g->n, number);
    to.n_units = renumber(r->unit, g->n_units, unit);
    to.took = RU_NEW(c->a, int64_t, (int64_t)to.n * to.n_devs);
    to.unit = RU_NEW(c->a, uint32_t, to.n);
    to.unit_bytes = RU_NEW(c->a, int64_t, to.n_units);
    to.unit_pin = RU_NEW(c->a, uint32_t, to.n_units);
    if (to.took == NULL || to.unit == NULL || to.unit_bytes == NULL || to.unit_pin == NULL ||
        !put_edges(c, number, &to)) {
        return false;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        to.unit[number[i]] = unit[g->unit[i]];
        for (uint32_t d = 0; d < g->n_devs; d++) {
            to.took[(size_t)number[i] * g->n_devs + d] += rui_place_took(g, i, d);
        }
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        uint32_t x = root(r->unit, u);
        to.unit_bytes[unit[u]] = r->bytes[x];
        to.unit_pin[unit[u]] = r->pin[x];
    }
    for (uint32_t i = 0; i < c->fine->n; i++) {
        c->of[i] = number[c->of[i]];
    }
    uint32_t circle;
    bool ok = rui_place_index(&to, c->a, &circle);
    RU_CHECK(circle == RUI_PLACE_NONE);
    c->g = to;
    return ok;
}

bool rui_place_coarsen(const rui_place *g, uint32_t most, ru_arena *a, rui_place *coarse,
                       uint32_t *of)
{
    coarsener c = {.fine = g, .g = *g, .a = a, .of = of, .most = most, .bytes_max = INT64_MAX};
    int64_t bytes = 0;
    double work = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        of[i] = i;
        work += (double)rui_place_least(g, i);
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        bytes = g->unit_bytes[u] > bytes ? g->unit_bytes[u] : bytes;
    }
    for (uint32_t d = 0; d < g->n_devs; d++) {
        c.bytes_max = g->memory[d] / 8 < c.bytes_max ? g->memory[d] / 8 : c.bytes_max;
    }
    c.bytes_max = c.bytes_max > bytes ? c.bytes_max : bytes;
    c.work_max = 2 * work / most;
    for (uint32_t idle = 0, way = SOURCES; idle < WAYS && c.g.n > most; way = (way + 1) % WAYS) {
        round_room r;
        if (!room_new(&c, &r)) {
            return false;
        }
        uint32_t n = contract(&c, &r, (how)way);
        idle = n > 0 ? 0 : idle + 1;
        if (n > 0 && !rebuild(&c, &r)) {
            return false;
        }
    }
    *coarse = c.g;
    return true;
}

/* The coarse op goes where most of its work is. */
static void vote(const rui_place *g, const rui_place *c, const uint32_t *of,
                 const rui_place_list *fine, double *votes, rui_place_list *to)
{
    memset(votes, 0, (size_t)c->n_units * c->n_devs * sizeof *votes);
    for (uint32_t i = 0; i < g->n; i++) {
        votes[(size_t)c->unit[of[i]] * c->n_devs + fine->unit_dev[g->unit[i]]] +=
            (double)rui_place_least(g, i) + 1;
    }
    for (uint32_t u = 0; u < c->n_units; u++) {
        uint32_t best = 0;
        for (uint32_t d = 1; d < c->n_devs; d++) {
            best =
                votes[(size_t)u * c->n_devs + d] > votes[(size_t)u * c->n_devs + best] ? d : best;
        }
        to->unit_dev[u] = c->unit_pin[u] != RUI_PLACE_NONE ? c->unit_pin[u] : best;
    }
}

bool rui_place_to_coarse(const rui_place *g, const rui_place *c, const uint32_t *of,
                         const rui_place_list *fine, ru_arena *a, rui_place_list *to)
{
    double *votes = RU_NEW(a, double, (int64_t)c->n_units * c->n_devs);
    uint32_t *waits = RU_NEW(a, uint32_t, c->n), *first = RU_NEW(a, uint32_t, c->n), n = 0;
    ru_heap_item *items = RU_NEW(a, ru_heap_item, c->n), item;
    if (votes == NULL || waits == NULL || first == NULL || items == NULL) {
        return false;
    }
    vote(g, c, of, fine, votes, to);
    for (uint32_t k = g->n; k-- > 0;) {
        first[of[fine->seq[k]]] = k;
    }
    ru_heap heap;
    ru_heap_init(&heap, items, c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        waits[i] = c->in_at[i + 1] - c->in_at[i];
        if (waits[i] == 0) {
            RU_CHECK(ru_heap_push(&heap, first[i], i) == RU_OK);
        }
    }
    while (ru_heap_pop(&heap, &item)) {
        uint32_t i = (uint32_t)item.value;
        to->seq[n++] = i;
        for (uint32_t x = c->out_at[i]; x < c->out_at[i + 1]; x++) {
            uint32_t j = c->to[c->out_edge[x]];
            if (--waits[j] == 0) {
                RU_CHECK(ru_heap_push(&heap, first[j], j) == RU_OK);
            }
        }
    }
    RU_CHECK(n == c->n);
    return true;
}

bool rui_place_to_fine(const rui_place *g, const rui_place *c, const uint32_t *of,
                       const rui_place_list *coarse, ru_arena *a, rui_place_list *to)
{
    uint32_t *at = RU_NEW(a, uint32_t, (int64_t)c->n + 1), *size = RU_NEW(a, uint32_t, c->n);
    if (at == NULL || size == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        to->unit_dev[g->unit[i]] = coarse->unit_dev[c->unit[of[i]]];
        size[of[i]]++;
    }
    for (uint32_t k = 0, sum = 0; k < c->n; k++) {
        at[coarse->seq[k]] = sum;
        sum += size[coarse->seq[k]];
    }
    for (uint32_t k = 0; k < g->n; k++) {
        to->seq[at[of[g->topo[k]]]++] = g->topo[k];
    }
    return true;
}
