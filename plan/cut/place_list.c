/* Baselines that place one op after another.
 *
 * Source: baechi-2020 sec 3 (m-TOPO, m-ETF, m-SCT); topcuoglu-2002 sec 4 (HEFT), with transfers
 * that hold their link. */
#include <string.h>

#include "plan/cut/place_impl.h"

static bool fits(const rui_place *g, const int64_t *used, uint32_t u, uint32_t dev)
{
    return (g->unit_pin[u] == RUI_PLACE_NONE || g->unit_pin[u] == dev) &&
           g->unit_bytes[u] <= g->memory[dev] - used[dev];
}

ru_status rui_place_single(const rui_place *g, rui_place_list *l)
{
    uint32_t best = RUI_PLACE_NONE;
    int64_t least = INT64_MAX;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        int64_t left = g->memory[d], took = 0;
        bool ok = true;
        for (uint32_t u = 0; u < g->n_units && ok; u++) {
            ok = (g->unit_pin[u] == RUI_PLACE_NONE || g->unit_pin[u] == d) &&
                 g->unit_bytes[u] <= left;
            left -= g->unit_bytes[u];
        }
        for (uint32_t i = 0; i < g->n; i++) {
            took += rui_place_took(g, i, d);
        }
        if (ok && took < least) {
            best = d;
            least = took;
        }
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        l->unit_dev[u] = best;
    }
    memcpy(l->seq, g->topo, g->n * sizeof *l->seq);
    return best != RUI_PLACE_NONE ? RU_OK : RU_E_INFEASIBLE;
}

/* Devices are filled up to their share and the largest unit on top. */
ru_status rui_place_topo(const rui_place *g, ru_arena *a, rui_place_list *l)
{
    int64_t *used = RU_NEW(a, int64_t, g->n_devs);
    if (used == NULL) {
        return RU_E_LIMIT;
    }
    int64_t sum = 0, most = 0;
    uint32_t dev = 0;
    for (uint32_t u = 0; u < g->n_units; u++) {
        sum += g->unit_bytes[u];
        most = g->unit_bytes[u] > most ? g->unit_bytes[u] : most;
        l->unit_dev[u] = RUI_PLACE_NONE;
    }
    int64_t cap = sum / g->n_devs + most;
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t u = g->unit[g->topo[k]];
        if (l->unit_dev[u] != RUI_PLACE_NONE) {
            continue;
        }
        uint32_t at = g->unit_pin[u] != RUI_PLACE_NONE ? g->unit_pin[u] : dev;
        while (at == dev && g->unit_pin[u] == RUI_PLACE_NONE && dev + 1 < g->n_devs &&
               used[dev] + g->unit_bytes[u] > cap) {
            at = ++dev;
        }
        if (!fits(g, used, u, at)) {
            return RU_E_INFEASIBLE;
        }
        used[at] += g->unit_bytes[u];
        l->unit_dev[u] = at;
    }
    memcpy(l->seq, g->topo, g->n * sizeof *l->seq);
    return RU_OK;
}

/* -- m-ETF and m-SCT --------------------------------------------------------------------------- */

typedef struct etf {
    const rui_place *g;
    const uint32_t *child;
    rui_place_list *l;
    int64_t *used, *freed, *finish; /* [n_devs], [n_devs], [n] */
    int64_t *there;                 /* [n, n_devs] inputs of a ready op */
    uint32_t *waits;                /* [n] */
    uint32_t *ready;                /* [n_ready] in the order of getting ready */
    uint32_t *awake;                /* [n_devs] the op that a device waits for */
    bool *done;                     /* [n] */
    uint32_t n_ready;
    uint32_t ties;
} etf;

static void get_ready(etf *s, uint32_t i)
{
    const rui_place *g = s->g;
    s->ready[s->n_ready++] = i;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        int64_t *there = &s->there[(size_t)i * g->n_devs + d];
        *there = 0;
        for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1]; x++) {
            uint32_t e = g->in_edge[x], j = g->from[e], from = s->l->unit_dev[g->unit[j]];
            int64_t at = s->finish[j] + (from != d ? rui_place_send(g, e, from, d) : 0);
            *there = at > *there ? at : *there;
        }
    }
}

/* A device that waits for its favourite takes only what can start at once. */
static bool is_open(const etf *s, uint32_t i, uint32_t d)
{
    return s->child == NULL || s->awake[d] == RUI_PLACE_NONE || s->awake[d] == i ||
           s->there[(size_t)i * s->g->n_devs + d] <= s->freed[d];
}

static bool breaks_tie(const etf *s, uint32_t i, uint32_t d, uint32_t j, uint32_t f)
{
    const rui_place *g = s->g;
    int64_t here = g->memory[d] - s->used[d], there = g->memory[f] - s->used[f];
    if ((s->ties & RUI_PLACE_LONGEST) != 0 && i != j) {
        return g->tail[i] > g->tail[j];
    }
    return (s->ties & RUI_PLACE_ROOMIEST) != 0 && i == j && here > there;
}

/* The earliest start of all. */
static uint32_t pick(const etf *s, bool strict, uint32_t *dev)
{
    const rui_place *g = s->g;
    uint32_t best = RUI_PLACE_NONE;
    int64_t earliest = INT64_MAX;
    for (uint32_t r = 0; r < s->n_ready; r++) {
        uint32_t i = s->ready[r], u = g->unit[i];
        for (uint32_t d = 0; d < g->n_devs; d++) {
            int64_t there = s->there[(size_t)i * g->n_devs + d];
            int64_t start = there > s->freed[d] ? there : s->freed[d];
            bool may = s->l->unit_dev[u] == RUI_PLACE_NONE ? fits(g, s->used, u, d)
                                                           : s->l->unit_dev[u] == d;
            if (may &&
                (start < earliest ||
                 (start == earliest && breaks_tie(s, i, d, s->ready[best], *dev))) &&
                (!strict || is_open(s, i, d))) {
                best = r;
                earliest = start;
                *dev = d;
            }
        }
    }
    return best;
}

static void keep_awake(etf *s, uint32_t i, uint32_t dev)
{
    const rui_place *g = s->g;
    s->awake[dev] = RUI_PLACE_NONE;
    uint32_t c = s->child != NULL ? s->child[i] : RUI_PLACE_NONE;
    if (c == RUI_PLACE_NONE || s->done[c] || !fits(g, s->used, g->unit[c], dev)) {
        return;
    }
    int64_t here = s->freed[dev], least = INT64_MAX;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        for (uint32_t x = g->in_at[c]; x < g->in_at[c + 1] && d != dev; x++) {
            uint32_t e = g->in_edge[x];
            int64_t at = s->finish[i] + rui_place_send(g, e, dev, d);
            at = g->from[e] != i ? INT64_MAX : at > s->freed[d] ? at : s->freed[d];
            least = at < least ? at : least;
        }
    }
    s->awake[dev] = here <= least ? c : RUI_PLACE_NONE;
}

static void settle(etf *s, uint32_t r, uint32_t dev)
{
    const rui_place *g = s->g;
    uint32_t i = s->ready[r], u = g->unit[i];
    int64_t there = s->there[(size_t)i * g->n_devs + dev];
    int64_t start = there > s->freed[dev] ? there : s->freed[dev];
    memmove(&s->ready[r], &s->ready[r + 1], (s->n_ready - r - 1) * sizeof *s->ready);
    s->n_ready--;
    if (s->l->unit_dev[u] == RUI_PLACE_NONE) {
        s->l->unit_dev[u] = dev;
        s->used[dev] += g->unit_bytes[u];
    }
    s->finish[i] = start + rui_place_took(g, i, dev);
    s->freed[dev] = s->finish[i];
    s->done[i] = true;
    for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
        uint32_t j = g->to[g->out_edge[x]];
        if (--s->waits[j] == 0) {
            get_ready(s, j);
        }
    }
    keep_awake(s, i, dev);
}

ru_status rui_place_etf(const rui_place *g, const uint32_t *child, uint32_t ties, ru_arena *a,
                        rui_place_list *l)
{
    etf s = {.g = g,
             .child = child,
             .ties = ties,
             .l = l,
             .used = RU_NEW(a, int64_t, g->n_devs),
             .freed = RU_NEW(a, int64_t, g->n_devs),
             .finish = RU_NEW(a, int64_t, g->n),
             .there = RU_NEW(a, int64_t, (int64_t)g->n * g->n_devs),
             .waits = RU_NEW(a, uint32_t, g->n),
             .ready = RU_NEW(a, uint32_t, g->n),
             .awake = RU_NEW(a, uint32_t, g->n_devs),
             .done = RU_NEW(a, bool, g->n)};
    if (s.used == NULL || s.freed == NULL || s.finish == NULL || s.there == NULL ||
        s.waits == NULL || s.ready == NULL || s.awake == NULL || s.done == NULL) {
        return RU_E_LIMIT;
    }
    memset(s.awake, 0xff, g->n_devs * sizeof *s.awake);
    memset(l->unit_dev, 0xff, g->n_units * sizeof *l->unit_dev);
    for (uint32_t i = 0; i < g->n; i++) {
        s.waits[i] = g->in_at[i + 1] - g->in_at[i];
        if (s.waits[i] == 0) {
            get_ready(&s, i);
        }
    }
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t dev = 0, r = pick(&s, true, &dev);
        r = r == RUI_PLACE_NONE ? pick(&s, false, &dev) : r;
        if (r == RUI_PLACE_NONE) {
            return RU_E_INFEASIBLE; /* no op that is ready fits anywhere */
        }
        l->seq[k] = s.ready[r];
        settle(&s, r, dev);
    }
    return RU_OK;
}

/* -- HEFT -------------------------------------------------------------------------------------- */

/* Mean time of an op and of its transfers over devices, to the end of the step. */
static void put_ranks(const rui_place *g, double *up)
{
    double pairs = (double)g->n_devs * (g->n_devs - 1);
    for (uint32_t k = g->n; k-- > 0;) {
        uint32_t i = g->topo[k];
        double own = 0, most = 0;
        for (uint32_t d = 0; d < g->n_devs; d++) {
            own += (double)rui_place_took(g, i, d) / g->n_devs;
        }
        for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
            uint32_t e = g->out_edge[x];
            double send = 0;
            for (uint32_t p = 0; p < g->n_devs * g->n_devs && g->n_kinds > 1; p++) {
                bool real = p / g->n_devs != p % g->n_devs;
                send += real ? (double)g->send[(size_t)g->kind[p] * g->m + e] / pairs : 0;
            }
            send = g->n_kinds == 1 ? (double)g->send[e] : send;
            double way = up[g->to[e]] + send;
            most = way > most ? way : most;
        }
        up[i] = own + most;
    }
}

ru_status rui_place_heft(const rui_place *g, ru_arena *a, rui_place_list *l)
{
    double *up = RU_NEW(a, double, g->n);
    uint32_t *spare = RU_NEW(a, uint32_t, g->n);
    int64_t *used = RU_NEW(a, int64_t, g->n_devs);
    rui_place_room room;
    if (up == NULL || spare == NULL || used == NULL || !rui_place_room_new(g, a, &room)) {
        return RU_E_LIMIT;
    }
    put_ranks(g, up);
    memcpy(l->seq, g->topo, g->n * sizeof *l->seq);
    rui_place_sort(up, g->n, l->seq, spare);
    memset(l->unit_dev, 0xff, g->n_units * sizeof *l->unit_dev);
    rui_place_clear(g, &room);
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t i = l->seq[k], u = g->unit[i], best = l->unit_dev[u];
        int64_t earliest = INT64_MAX;
        for (uint32_t d = 0; d < g->n_devs && l->unit_dev[u] == RUI_PLACE_NONE; d++) {
            if (!fits(g, used, u, d)) {
                continue;
            }
            rui_place_put(g, l->unit_dev, i, d, &room);
            if (room.finish[i] < earliest) {
                earliest = room.finish[i];
                best = d;
            }
            rui_place_unput(g, l->unit_dev, i, d, &room);
        }
        if (best == RUI_PLACE_NONE) {
            return RU_E_INFEASIBLE;
        }
        used[best] += l->unit_dev[u] == RUI_PLACE_NONE ? g->unit_bytes[u] : 0;
        l->unit_dev[u] = best;
        rui_place_put(g, l->unit_dev, i, best, &room);
    }
    return RU_OK;
}

/* -- any placement ----------------------------------------------------------------------------- */

ru_status rui_place_given(const rui_place *g, rui_place_list *l)
{
    memset(l->unit_dev, 0xff, g->n_units * sizeof *l->unit_dev);
    for (uint32_t i = 0; i < g->n; i++) {
        int32_t dev = g->in->ops[i].given;
        uint32_t *at = &l->unit_dev[g->unit[i]];
        uint32_t pin = g->unit_pin[g->unit[i]];
        if (dev < 0 || (*at != RUI_PLACE_NONE && *at != (uint32_t)dev) ||
            (pin != RUI_PLACE_NONE && pin != (uint32_t)dev)) {
            return RU_E_INFEASIBLE;
        }
        *at = (uint32_t)dev;
    }
    memcpy(l->seq, g->topo, g->n * sizeof *l->seq);
    return RU_OK;
}

/* Pinned units first, then the largest into the most room. */
ru_status rui_place_pack(const rui_place *g, ru_arena *a, rui_place_list *l)
{
    uint32_t *order = RU_NEW(a, uint32_t, g->n_units), *spare = RU_NEW(a, uint32_t, g->n_units);
    double *size = RU_NEW(a, double, g->n_units);
    int64_t *used = RU_NEW(a, int64_t, g->n_devs);
    if (order == NULL || spare == NULL || size == NULL || used == NULL) {
        return RU_E_LIMIT;
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        size[u] = (g->unit_pin[u] != RUI_PLACE_NONE ? 1e19 : 0) + (double)g->unit_bytes[u];
        order[u] = u;
    }
    rui_place_sort(size, g->n_units, order, spare);
    for (uint32_t k = 0; k < g->n_units; k++) {
        uint32_t u = order[k], best = RUI_PLACE_NONE;
        for (uint32_t d = 0; d < g->n_devs; d++) {
            if (fits(g, used, u, d) &&
                (best == RUI_PLACE_NONE || g->memory[d] - used[d] > g->memory[best] - used[best])) {
                best = d;
            }
        }
        if (best == RUI_PLACE_NONE) {
            return RU_E_INFEASIBLE;
        }
        used[best] += g->unit_bytes[u];
        l->unit_dev[u] = best;
    }
    memcpy(l->seq, g->topo, g->n * sizeof *l->seq);
    return RU_OK;
}
