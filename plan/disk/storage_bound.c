/* What no choice of places saves more than, if all files were known and could lie on SSD in part: a
 * linear program over time, which is a flow.
 *
 *   (0) ---> (1) ---> (2) ---> ... ---> (n)    node i: just before the i-th file is opened
 *     \________________/                       a file: an arc from its opening to the first one
 *        gain a byte, at most its size         after its end; the quota flows from 0 to n
 *
 * Paths of largest gain carry it, one after the other, by potentials. The bound is the value of the
 * dual program at the last potentials: whatever they are, it holds. Gains are whole numbers here,
 * so that no rounding decides.
 *
 * Source: ahuja-1993 (successive shortest paths); that the rows of intervals are a flow is
 * well known. Thread: any, pure. */
#include <math.h>
#include <stddef.h>

#include "base/heap.h"
#include "plan/disk/storage.h"

#define GAIN_MAX   1e9 /* of a byte, as a whole number; 2^20 of them fit 64 bits */
#define BYTE_LEAST 0.5 /* less room than this is rounding */

typedef struct arc {
    uint32_t to, next;
    double room_bytes;
    int64_t cost;
} arc;

typedef struct flow {
    uint32_t n, n_arcs; /* nodes 0 .. n */
    arc *arcs;          /* arc k ^ 1 is the way back */
    uint32_t *first;    /* [n + 1] */
    uint32_t *by;       /* [n + 1] arc over which the path comes */
    int64_t *potential, *distance;
    ru_heap_item *items;
} flow;

static void put_arc(flow *w, uint32_t from, uint32_t to, double room_bytes, int64_t cost)
{
    w->arcs[w->n_arcs] = (arc){to, w->first[from], room_bytes, cost};
    w->first[from] = w->n_arcs++;
    w->arcs[w->n_arcs] = (arc){from, w->first[to], 0, -cost};
    w->first[to] = w->n_arcs++;
}

static double gain_of(const ru_storage_in *in, const ru_density_file *f)
{
    return ru_density_saving(&in->prices, f) / f->size_bytes;
}

/* The node of the first opening that file i does not see. */
static uint32_t end_of(const ru_density_file *files, uint32_t n, uint32_t i)
{
    double end = files[i].open_s + files[i].life_s;
    uint32_t low = i + 1, high = n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        bool sees = files[mid].open_s < end;
        low = sees ? mid + 1 : low;
        high = sees ? high : mid;
    }
    return low;
}

static bool flow_new(flow *w, uint32_t n, ru_arena *a)
{
    *w = (flow){.n = n,
                .arcs = RU_NEW(a, arc, 4 * (int64_t)n + 2),
                .first = RU_NEW(a, uint32_t, (int64_t)n + 1),
                .by = RU_NEW(a, uint32_t, (int64_t)n + 1),
                .potential = RU_NEW(a, int64_t, (int64_t)n + 1),
                .distance = RU_NEW(a, int64_t, (int64_t)n + 1),
                .items = RU_NEW(a, ru_heap_item, 4 * (int64_t)n + 2)};
    for (uint32_t v = 0; v <= n && w->first != NULL; v++) {
        w->first[v] = UINT32_MAX;
    }
    return w->arcs != NULL && w->first != NULL && w->by != NULL && w->potential != NULL &&
           w->distance != NULL && w->items != NULL;
}

/* Without any flow all arcs lead to later nodes. */
static void first_potentials(flow *w)
{
    for (uint32_t v = 0; v <= w->n; v++) {
        w->potential[v] = 0; /* along the chain */
    }
    for (uint32_t v = 0; v <= w->n; v++) {
        for (uint32_t k = w->first[v]; k != UINT32_MAX; k = w->arcs[k].next) {
            const arc *e = &w->arcs[k];
            int64_t to = w->potential[v] + e->cost;
            if (e->room_bytes > 0 && to < w->potential[e->to]) {
                w->potential[e->to] = to;
            }
        }
    }
}

/* Distances from node 0 by costs that the potentials make 0 or more; then the potentials are the
 * distances. False: the last node is not reached. */
static bool find_path(flow *w)
{
    ru_heap heap;
    ru_heap_item item;
    ru_heap_init(&heap, w->items, 4 * w->n + 2);
    for (uint32_t v = 0; v <= w->n; v++) {
        w->distance[v] = INT64_MAX;
    }
    w->distance[0] = 0;
    RU_CHECK(ru_heap_push(&heap, 0, 0) == RU_OK);
    while (ru_heap_pop(&heap, &item)) {
        uint32_t v = (uint32_t)item.value;
        if (item.key > w->distance[v]) {
            continue;
        }
        for (uint32_t k = w->first[v]; k != UINT32_MAX; k = w->arcs[k].next) {
            const arc *e = &w->arcs[k];
            int64_t d = item.key + e->cost + w->potential[v] - w->potential[e->to];
            if (e->room_bytes >= BYTE_LEAST && d < w->distance[e->to]) {
                w->distance[e->to] = d;
                w->by[e->to] = k;
                RU_CHECK(ru_heap_push(&heap, d, e->to) == RU_OK);
            }
        }
    }
    for (uint32_t v = 0; v <= w->n && w->distance[w->n] != INT64_MAX; v++) {
        w->potential[v] += w->distance[v] < w->distance[w->n] ? w->distance[v] : w->distance[w->n];
    }
    return w->distance[w->n] != INT64_MAX;
}

/* As much as fits over the path; returns how much. */
static double push_over(flow *w, double most_bytes)
{
    for (uint32_t v = w->n; v != 0; v = w->arcs[w->by[v] ^ 1].to) {
        most_bytes = fmin(most_bytes, w->arcs[w->by[v]].room_bytes);
    }
    for (uint32_t v = w->n; v != 0; v = w->arcs[w->by[v] ^ 1].to) {
        w->arcs[w->by[v]].room_bytes -= most_bytes;
        w->arcs[w->by[v] ^ 1].room_bytes += most_bytes;
    }
    return most_bytes;
}

ru_status ru_plan_storage_bound(const ru_storage_in *in, ru_arena *scratch, double *usd,
                                ru_err *err)
{
    uint32_t from = 0;
    while (from < in->n && in->files[from].open_s < in->from_s) {
        from++;
    }
    const ru_density_file *files = in->files + from;
    uint32_t n = in->n - from;
    flow w;
    double best = 0, left = in->quota_bytes, bound = 0;
    if (!flow_new(&w, n, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the bound of %u files", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        best = fmax(best, gain_of(in, &files[i]));
        put_arc(&w, i, i + 1, INFINITY, 0);
    }
    double unit = best / GAIN_MAX;
    for (uint32_t i = 0; i < n; i++) {
        double gain = gain_of(in, &files[i]);
        if (gain > 0) {
            put_arc(&w, i, end_of(files, n, i), files[i].size_bytes, -(int64_t)(gain / unit));
        }
    }
    first_potentials(&w);
    while (left >= BYTE_LEAST && find_path(&w) && w.potential[n] < w.potential[0]) {
        left -= push_over(&w, left);
    }
    for (uint32_t i = 0; i < n; i++) {
        double price = unit * (double)(w.potential[i] - w.potential[end_of(files, n, i)]);
        double step = unit * (double)(w.potential[i] - w.potential[i + 1]);
        bound += in->quota_bytes * fmax(step, 0);
        bound += files[i].size_bytes * fmax(0, gain_of(in, &files[i]) - fmax(price, 0));
    }
    *usd = bound;
    return RU_OK;
}
