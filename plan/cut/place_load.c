/* Baselines that look at loads, not at time: what a device computes, sends and receives.
 *
 * Source: tarnawski-2020 sec 4 and 5 (least load of the fullest device; local search); their
 * dynamic program runs here along one topological order, as pipedream-2019 cuts. */
#include <string.h>

#include "plan/cut/place_impl.h"

/* More units are cut only between blocks of some. */
enum { BLOCKS_MAX = 2048, PASSES_MAX = 50 };

typedef struct cutter {
    const rui_place *g;
    uint32_t *block;    /* [n_units] */
    uint32_t *unit_by;  /* [n_units] in topological order */
    uint32_t *block_at; /* [n_blocks + 1] places in unit_by */
    uint32_t n_blocks;
    int64_t *cost;         /* [n_devs + 1, n_blocks + 1] of the fullest device */
    uint32_t *from;        /* the same: where the last part begins */
    int64_t *took, *bytes; /* [n_devs], of the part at hand */
    bool *wrong;           /* [n_devs] a unit of the part is pinned elsewhere */
} cutter;

static bool cutter_new(cutter *c, const rui_place *g, ru_arena *a)
{
    uint32_t n = g->n_units < BLOCKS_MAX ? g->n_units : BLOCKS_MAX;
    int64_t cells = ((int64_t)g->n_devs + 1) * ((int64_t)n + 1);
    *c = (cutter){.g = g,
                  .block = RU_NEW(a, uint32_t, g->n_units),
                  .unit_by = RU_NEW(a, uint32_t, g->n_units),
                  .block_at = RU_NEW(a, uint32_t, (int64_t)n + 1),
                  .n_blocks = n,
                  .cost = RU_NEW(a, int64_t, cells),
                  .from = RU_NEW(a, uint32_t, cells),
                  .took = RU_NEW(a, int64_t, g->n_devs),
                  .bytes = RU_NEW(a, int64_t, 1),
                  .wrong = RU_NEW(a, bool, g->n_devs)};
    return c->block != NULL && c->unit_by != NULL && c->block_at != NULL && c->cost != NULL &&
           c->from != NULL && c->took != NULL && c->bytes != NULL && c->wrong != NULL;
}

static void put_blocks(cutter *c)
{
    const rui_place *g = c->g;
    uint32_t n = 0;
    memset(c->block, 0xff, g->n_units * sizeof *c->block);
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t u = g->unit[g->topo[k]];
        if (c->block[u] == RUI_PLACE_NONE) {
            c->block[u] = (uint32_t)((uint64_t)n * c->n_blocks / g->n_units);
            c->unit_by[n++] = u;
        }
    }
    for (uint32_t k = n; k-- > 0;) {
        c->block_at[c->block[c->unit_by[k]]] = k;
    }
    c->block_at[c->n_blocks] = n;
}

/* Change of what crosses when block b joins blocks first .. b - 1. */
static int64_t joined(const cutter *c, uint32_t first, uint32_t b)
{
    const rui_place *g = c->g;
    int64_t change = 0;
    for (uint32_t k = c->block_at[b]; k < c->block_at[b + 1]; k++) {
        uint32_t u = c->unit_by[k];
        for (uint32_t o = g->unit_at[u]; o < g->unit_at[u + 1]; o++) {
            uint32_t i = g->unit_op[o];
            for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1]; x++) {
                uint32_t e = g->in_edge[x], at = c->block[g->unit[g->from[e]]];
                change += at == b ? 0 : at >= first && at < b ? -g->send[e] : g->send[e];
            }
            for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
                uint32_t e = g->out_edge[x], at = c->block[g->unit[g->to[e]]];
                change += at == b ? 0 : at >= first && at < b ? -g->send[e] : g->send[e];
            }
        }
    }
    return change;
}

static void add_block(cutter *c, uint32_t b)
{
    const rui_place *g = c->g;
    for (uint32_t k = c->block_at[b]; k < c->block_at[b + 1]; k++) {
        uint32_t u = c->unit_by[k];
        c->bytes[0] += g->unit_bytes[u];
        for (uint32_t d = 0; d < g->n_devs; d++) {
            c->wrong[d] = c->wrong[d] || (g->unit_pin[u] != RUI_PLACE_NONE && g->unit_pin[u] != d);
            for (uint32_t o = g->unit_at[u]; o < g->unit_at[u + 1]; o++) {
                c->took[d] += rui_place_took(g, g->unit_op[o], d);
            }
        }
    }
}

/* Parts that begin at block `first`: devices in order, each one part, which may be empty. */
static void parts_from(cutter *c, uint32_t first)
{
    const rui_place *g = c->g;
    uint32_t wide = c->n_blocks + 1;
    int64_t crossing = 0;
    memset(c->took, 0, g->n_devs * sizeof *c->took);
    memset(c->wrong, 0, g->n_devs * sizeof *c->wrong);
    c->bytes[0] = 0;
    for (uint32_t end = first; end <= c->n_blocks; end++) {
        for (uint32_t d = 0; d < g->n_devs; d++) {
            int64_t before = c->cost[d * wide + first], load = c->took[d] + crossing;
            int64_t most = before > load ? before : load;
            if (!c->wrong[d] && c->bytes[0] <= g->memory[d] &&
                most < c->cost[(d + 1) * wide + end]) {
                c->cost[(d + 1) * wide + end] = most;
                c->from[(d + 1) * wide + end] = first;
            }
        }
        if (end < c->n_blocks) {
            crossing += joined(c, first, end);
            add_block(c, end);
        }
    }
}

ru_status rui_place_split(const rui_place *g, ru_arena *a, rui_place_list *l)
{
    cutter c;
    if (!cutter_new(&c, g, a)) {
        return RU_E_LIMIT;
    }
    uint32_t wide = c.n_blocks + 1, end = c.n_blocks;
    put_blocks(&c);
    for (uint32_t k = 0; k < (g->n_devs + 1) * wide; k++) {
        c.cost[k] = INT64_MAX;
    }
    c.cost[0] = 0;
    /* Costs of parts that end at a block are complete before parts begin there: an empty part only
     * passes on to the next device, which the loop over devices does in order. */
    for (uint32_t first = 0; first <= c.n_blocks; first++) {
        parts_from(&c, first);
    }
    if (c.cost[g->n_devs * wide + end] == INT64_MAX) {
        return RU_E_INFEASIBLE;
    }
    for (uint32_t d = g->n_devs; d-- > 0;) {
        uint32_t first = c.from[(d + 1) * wide + end];
        for (uint32_t k = c.block_at[first]; k < c.block_at[end]; k++) {
            l->unit_dev[c.unit_by[k]] = d;
        }
        end = first;
    }
    memcpy(l->seq, g->topo, g->n * sizeof *l->seq);
    return RU_OK;
}

/* -- local search ------------------------------------------------------------------------------ */

typedef struct loads {
    const rui_place *g;
    uint32_t *dev; /* [n_units] */
    int64_t *load; /* [n_devs] */
    int64_t *used; /* [n_devs] */
} loads;

/* Adds (sign 1) or takes away (-1) what unit u computes, sends and receives. */
static void count_unit(loads *w, uint32_t u, int64_t sign)
{
    const rui_place *g = w->g;
    uint32_t d = w->dev[u];
    w->used[d] += sign * g->unit_bytes[u];
    for (uint32_t o = g->unit_at[u]; o < g->unit_at[u + 1]; o++) {
        uint32_t i = g->unit_op[o];
        w->load[d] += sign * rui_place_took(g, i, d);
        for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1]; x++) {
            uint32_t e = g->in_edge[x], other = w->dev[g->unit[g->from[e]]];
            if (other != d) {
                w->load[d] += sign * rui_place_send(g, e, other, d);
                w->load[other] += sign * rui_place_send(g, e, other, d);
            }
        }
        for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
            uint32_t e = g->out_edge[x], other = w->dev[g->unit[g->to[e]]];
            if (other != d) {
                w->load[d] += sign * rui_place_send(g, e, d, other);
                w->load[other] += sign * rui_place_send(g, e, d, other);
            }
        }
    }
}

static void judge(const loads *w, int64_t *most, double *squares)
{
    *most = 0;
    *squares = 0;
    for (uint32_t d = 0; d < w->g->n_devs; d++) {
        *most = w->load[d] > *most ? w->load[d] : *most;
        *squares += (double)w->load[d] * (double)w->load[d];
    }
}

/* Moves one unit to where the fullest device is least full; equal: where loads are more even. */
static bool improve(loads *w, uint32_t u)
{
    const rui_place *g = w->g;
    uint32_t old = w->dev[u], best = old;
    int64_t most, now;
    double squares, now_squares;
    judge(w, &most, &squares);
    for (uint32_t d = 0; d < g->n_devs && g->unit_pin[u] == RUI_PLACE_NONE; d++) {
        if (d == old || g->unit_bytes[u] > g->memory[d] - w->used[d]) {
            continue;
        }
        count_unit(w, u, -1);
        w->dev[u] = d;
        count_unit(w, u, 1);
        judge(w, &now, &now_squares);
        if (now < most || (now == most && now_squares < squares)) {
            most = now;
            squares = now_squares;
            best = d;
        }
        count_unit(w, u, -1);
        w->dev[u] = old;
        count_unit(w, u, 1);
    }
    count_unit(w, u, -1);
    w->dev[u] = best;
    count_unit(w, u, 1);
    return best != old;
}

ru_status rui_place_load(const rui_place *g, ru_arena *a, rui_place_list *l)
{
    ru_status st = rui_place_pack(g, a, l);
    if (st != RU_OK) {
        return st;
    }
    loads w = {.g = g,
               .dev = l->unit_dev,
               .load = RU_NEW(a, int64_t, g->n_devs),
               .used = RU_NEW(a, int64_t, g->n_devs)};
    if (w.load == NULL || w.used == NULL) {
        return RU_E_LIMIT;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t d = w.dev[g->unit[i]];
        w.load[d] += rui_place_took(g, i, d);
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        w.used[w.dev[u]] += g->unit_bytes[u];
    }
    for (uint32_t e = 0; e < g->m; e++) {
        uint32_t from = w.dev[g->unit[g->from[e]]], to = w.dev[g->unit[g->to[e]]];
        if (from != to) {
            w.load[from] += rui_place_send(g, e, from, to);
            w.load[to] += rui_place_send(g, e, from, to);
        }
    }
    bool more = true;
    for (uint32_t pass = 0; pass < PASSES_MAX && more; pass++) {
        more = false;
        for (uint32_t u = 0; u < g->n_units; u++) {
            more = improve(&w, u) || more;
        }
    }
    return RU_OK;
}
