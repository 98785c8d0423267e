/* Grants as a flow: the least time T in which every worker ends, when w may give up to `tail` of
 * its items to its helpers.
 *
 *   source -> in(w)   items - speed T   of workers that would be late
 *   in(w) -> out(w)   tail              what w may give
 *   out(w) -> in(h)   any               h is a helper of w
 *   in(w) -> sink     speed T - items   of workers with time left
 *
 * A maximum flow that fills all sources serves T. One that does not leaves a cut S of workers with
 * (their items - what those may give that have a helper outside) / speeds > T: the next T. It grows
 * to the optimum in few rounds, and the last cut proves it.
 *
 * Source: dinic-1970 (blocking flows), dinkelbach-1967 (ratios by rounds). */
#include <math.h>
#include <string.h>

#include "plan/crew/reassign_impl.h"

enum { ROUNDS_MAX = 64 };

typedef struct net {
    uint32_t n, group;
    const uint32_t *helper;
    int64_t *supply, *demand; /* [n] what is left of source and sink edges */
    int64_t *through;         /* [n] of in -> out, what is left */
    int64_t tail;
    int64_t *given;                /* [n, group] flow of out(w) -> in(h) */
    uint32_t *back_at, *back;      /* edges into in(h): back[back_at[h] ..] = w * group + k */
    uint32_t *level, *queue, *arc; /* [2 n] nodes: in(w) = w, out(w) = n + w */
    uint32_t *path;                /* [2 n] nodes from a source on */
    uint32_t *edge;                /* [2 n] place of the edge that leads on from path[i] */
} net;

/* Edges of node v in order: k < group (or 1): forward, then backward ones. Returns the other node,
 * or UINT32_MAX after the last; *room: what may still flow. */
static uint32_t edge_of(const net *g, uint32_t v, uint32_t k, int64_t *room)
{
    if (v < g->n) { /* in(v): to out(v), back to out(w) that gave to v */
        if (k == 0) {
            *room = g->through[v];
            return g->n + v;
        }
        uint32_t at = g->back_at[v] + k - 1;
        if (at >= g->back_at[v + 1]) {
            return UINT32_MAX;
        }
        *room = g->given[g->back[at]];
        return g->n + g->back[at] / g->group;
    }
    uint32_t w = v - g->n;
    if (k < g->group) {
        uint32_t h = g->helper[w * g->group + k];
        *room = h == RU_REASSIGN_NONE ? 0 : INT64_MAX;
        return h == RU_REASSIGN_NONE ? v : h;
    }
    *room = g->tail - g->through[w];
    return k == g->group ? w : UINT32_MAX;
}

static void push(net *g, uint32_t v, uint32_t k, int64_t amount)
{
    if (v < g->n) {
        if (k == 0) {
            g->through[v] -= amount;
        } else {
            g->given[g->back[g->back_at[v] + k - 1]] -= amount;
        }
        return;
    }
    uint32_t w = v - g->n;
    if (k < g->group) {
        g->given[w * g->group + k] += amount;
    } else {
        g->through[w] += amount;
    }
}

/* Distances from the sources; true: a sink with room is reached. */
static bool levels(net *g)
{
    uint32_t n = 0;
    bool reached = false;
    for (uint32_t v = 0; v < 2 * g->n; v++) {
        g->level[v] = UINT32_MAX;
        if (v < g->n && g->supply[v] > 0) {
            g->level[v] = 0;
            g->queue[n++] = v;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = g->queue[i], to;
        int64_t room;
        reached = reached || (v < g->n && g->demand[v] > 0);
        for (uint32_t k = 0; (to = edge_of(g, v, k, &room)) != UINT32_MAX; k++) {
            if (room > 0 && g->level[to] == UINT32_MAX) {
                g->level[to] = g->level[v] + 1;
                g->queue[n++] = to;
            }
        }
    }
    return reached;
}

/* One path from source s along rising levels to a sink; false: there is none left. */
static bool augment(net *g, uint32_t s)
{
    uint32_t depth = 0, v = s;
    for (;;) {
        if (v < g->n && g->demand[v] > 0) {
            break;
        }
        uint32_t to;
        int64_t room;
        while ((to = edge_of(g, v, g->arc[v], &room)) != UINT32_MAX &&
               !(room > 0 && g->level[to] == g->level[v] + 1)) {
            g->arc[v]++;
        }
        if (to != UINT32_MAX) {
            g->path[depth] = v;
            g->edge[depth++] = g->arc[v];
            v = to;
        } else if (depth == 0) {
            return false;
        } else {
            v = g->path[--depth];
            g->arc[v]++;
        }
    }
    int64_t most = g->supply[s] < g->demand[v] ? g->supply[s] : g->demand[v], room;
    for (uint32_t i = 0; i < depth; i++) {
        (void)edge_of(g, g->path[i], g->edge[i], &room);
        most = room < most ? room : most;
    }
    RU_CHECK(most > 0);
    for (uint32_t i = 0; i < depth; i++) {
        push(g, g->path[i], g->edge[i], most);
    }
    g->supply[s] -= most;
    g->demand[v] -= most;
    return true;
}

static void maximum_flow(net *g)
{
    while (levels(g)) {
        memset(g->arc, 0, 2 * (size_t)g->n * sizeof *g->arc);
        for (uint32_t s = 0; s < g->n; s++) {
            while (g->supply[s] > 0 && augment(g, s)) {
            }
        }
    }
}

static ru_status net_init(net *g, const rui_reassign_flow *f, ru_arena *a, ru_err *err)
{
    int64_t n = f->n, edges = n * f->group;
    *g = (net){.n = f->n,
               .group = f->group,
               .helper = f->helper,
               .tail = (int64_t)(f->tail * RUI_REASSIGN_MILLI)};
    g->supply = RU_NEW(a, int64_t, n);
    g->demand = RU_NEW(a, int64_t, n);
    g->through = RU_NEW(a, int64_t, n);
    g->given = RU_NEW(a, int64_t, edges + 1);
    g->back_at = RU_NEW(a, uint32_t, n + 2);
    g->back = RU_NEW(a, uint32_t, edges + 1);
    g->level = RU_NEW(a, uint32_t, 2 * n);
    g->queue = RU_NEW(a, uint32_t, 2 * n);
    g->arc = RU_NEW(a, uint32_t, 2 * n);
    g->path = RU_NEW(a, uint32_t, 2 * n);
    g->edge = RU_NEW(a, uint32_t, 2 * n);
    if (g->supply == NULL || g->demand == NULL || g->through == NULL || g->given == NULL ||
        g->back_at == NULL || g->back == NULL || g->level == NULL || g->queue == NULL ||
        g->arc == NULL || g->path == NULL || g->edge == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for groups of %u workers", f->n);
    }
    for (uint32_t e = 0; e < edges; e++) {
        if (f->helper[e] != RU_REASSIGN_NONE) {
            g->back_at[f->helper[e] + 2]++;
        }
    }
    for (uint32_t w = 0; w < f->n; w++) {
        g->back_at[w + 2] += g->back_at[w + 1];
    }
    for (uint32_t e = 0; e < edges; e++) {
        if (f->helper[e] != RU_REASSIGN_NONE) {
            g->back[g->back_at[f->helper[e] + 1]++] = e;
        }
    }
    return RU_OK;
}

/* The cut of the last flow: workers that the sources still reach. Returns its time. */
static double cut_of(const net *g, const rui_reassign_flow *f, uint8_t *tight)
{
    double work = 0, speed = 0, items = (double)f->items;
    for (uint32_t w = 0; w < f->n; w++) {
        tight[w] = g->level[w] != UINT32_MAX ? 1 : 0;
    }
    for (uint32_t w = 0; w < f->n; w++) {
        bool leaks = false;
        for (uint32_t k = 0; tight[w] != 0 && k < f->group; k++) {
            uint32_t h = f->helper[w * f->group + k];
            leaks = leaks || (h != RU_REASSIGN_NONE && tight[h] == 0);
        }
        work += tight[w] == 0 ? 0 : items - (leaks ? f->tail : 0);
        speed += tight[w] == 0 ? 0 : items / f->next_s[w];
    }
    return work / speed;
}

ru_status rui_reassign_balance(rui_reassign_flow *f, ru_arena *a, ru_err *err)
{
    net g;
    RU_TRY(net_init(&g, f, a, err));
    f->tight = RU_NEW(a, uint8_t, f->n);
    uint8_t *tight = RU_NEW(a, uint8_t, f->n);
    if (f->tight == NULL || tight == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for groups of %u workers", f->n);
    }
    double speed = 0;
    for (uint32_t w = 0; w < f->n; w++) {
        speed += 1 / f->next_s[w];
        f->tight[w] = 1; /* all workers together: the first bound */
    }
    f->clock_s = f->n / speed;
    for (uint32_t r = 0; r < ROUNDS_MAX; r++) {
        int64_t left = 0;
        memset(g.given, 0, (size_t)f->n * f->group * sizeof *g.given);
        for (uint32_t w = 0; w < f->n; w++) {
            double can = fmin(f->items * (f->clock_s / f->next_s[w]), 1e13);
            int64_t late =
                (int64_t)f->items * RUI_REASSIGN_MILLI - (int64_t)(can * RUI_REASSIGN_MILLI + 1);
            g.supply[w] = late > 0 ? late : 0;
            g.demand[w] = late < 0 ? -late : 0;
            g.through[w] = g.tail;
        }
        maximum_flow(&g);
        for (uint32_t w = 0; w < f->n; w++) {
            left += g.supply[w];
        }
        if (left == 0) {
            break;
        }
        double next = cut_of(&g, f, tight);
        if (!(next > f->clock_s * (1 + 1e-12))) {
            break; /* thousandths that rounding left over */
        }
        f->clock_s = next;
        memcpy(f->tight, tight, f->n);
    }
    f->given = g.given;
    return RU_OK;
}
