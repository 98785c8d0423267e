/* How short a step can be at best, whatever the placement and the order.
 *
 * Work: ops that cannot start before h and that leave at least t behind them run in between, so the
 * step is no shorter than h, their work spread evenly over all devices, and t. */
#include <math.h>
#include <string.h>

#include "plan/cut/place_impl.h"

/* Thresholds of `head` that are tried: the time is this times n. */
enum { HEADS_MAX = 4096 };

typedef struct bounds {
    const rui_place *g;
    double *work; /* [n] at speed 1; durations are rounded: the least that they can mean */
    double *key;  /* [n] */
    uint32_t *order, *room; /* [n] */
} bounds;

static double work_of(const rui_place *g, uint32_t i)
{
    double least = (double)INFINITY;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        least = fmin(least, (double)rui_place_took(g, i, d) * g->in->devices[d].speed);
    }
    return least;
}

static int64_t bound_path(const rui_place *g)
{
    int64_t best = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        int64_t path = g->tail[i] + rui_place_least(g, i);
        best = path > best ? path : best;
    }
    return best;
}

/* Work of ops b->room[0 .. n) by falling tail, between `head` and the tail of each. */
static int64_t bound_between(const bounds *b, uint32_t n, int64_t head, double speed)
{
    int64_t best = 0;
    double work = 0;
    for (uint32_t q = 0; q < n; q++) {
        uint32_t i = b->room[q];
        work += b->work[i];
        int64_t spread = (int64_t)floor(work / speed * (1 - 1e-12));
        /* Whole ns: up, unless the rest is rounding. */
        spread += work / speed - (double)spread > 1e-3 ? 1 : 0;
        int64_t bound = head + spread + b->g->tail[i];
        best = bound > best ? bound : best;
    }
    return best;
}

/* Ops that only `dev` may run, or all on all devices (RUI_PLACE_NONE); thresholds of head from the
 * latest on. */
static int64_t bound_work(bounds *b, uint32_t dev)
{
    const rui_place *g = b->g;
    double speed = 0;
    uint32_t n = 0;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        speed += dev == RUI_PLACE_NONE || dev == d ? g->in->devices[d].speed : 0;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        b->key[i] = (double)g->head[i];
        if (dev == RUI_PLACE_NONE || g->unit_pin[g->unit[i]] == dev) {
            b->order[n++] = i;
        }
    }
    rui_place_sort(b->key, n, b->order, b->room);
    uint32_t step = n / HEADS_MAX + 1;
    int64_t best = 0, head = INT64_MAX;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = b->order[k], p = k;
        head = g->head[i] < head ? g->head[i] : head;
        for (; p > 0 && g->tail[b->room[p - 1]] < g->tail[i]; p--) {
            b->room[p] = b->room[p - 1];
        }
        b->room[p] = i;
        if ((k + 1) % step == 0 || k + 1 == n) {
            int64_t bound = bound_between(b, k + 1, head, speed);
            best = bound > best ? bound : best;
        }
    }
    return best;
}

/* Most work that the memory of a device holds: the densest ops first, the last one in part. */
static double most_work(const bounds *b, uint32_t dev)
{
    const rui_place *g = b->g;
    double left = (double)g->memory[dev], work = 0;
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t i = b->order[k];
        double bytes = (double)g->in->ops[i].bytes;
        if (bytes > left) {
            return work + b->work[i] * (left / bytes);
        }
        left -= bytes;
        work += b->work[i];
    }
    return work;
}

/* The least time in which devices that are limited by what they hold do all the work: they drop out
 * one by one, the one that is full first, and what is left runs on the others. */
static int64_t bound_memory(bounds *b)
{
    const rui_place *g = b->g;
    double left = 0, begin = 0, speed = 0;
    bool out[RU_PLACE_DEVICES_MAX] = {false};
    for (uint32_t i = 0; i < g->n; i++) {
        double bytes = (double)g->in->ops[i].bytes;
        left += b->work[i];
        b->key[i] = bytes > 0 ? b->work[i] / bytes : (double)INFINITY;
        b->order[i] = i;
    }
    rui_place_sort(b->key, g->n, b->order, b->room);
    for (uint32_t d = 0; d < g->n_devs; d++) {
        speed += g->in->devices[d].speed;
    }
    for (uint32_t round = 0; round < g->n_devs; round++) {
        double full = (double)INFINITY;
        uint32_t next = 0;
        for (uint32_t d = 0; d < g->n_devs; d++) {
            double until = most_work(b, d) / g->in->devices[d].speed;
            if (!out[d] && until < full) {
                full = until;
                next = d;
            }
        }
        if (begin + left / speed <= full || round + 1 == g->n_devs) {
            break;
        }
        left -= (full - begin) * speed;
        begin = full;
        speed -= g->in->devices[next].speed;
        out[next] = true;
    }
    return (int64_t)floor((begin + fmax(left, 0) / speed) * (1 - 1e-9));
}

bool rui_place_bound(const rui_place *g, ru_arena *a, int64_t *bound_ns, ru_place_proof *proof)
{
    ru_arena_mark mark = ru_arena_mark_get(a);
    bounds b = {.g = g,
                .work = RU_NEW(a, double, g->n),
                .key = RU_NEW(a, double, g->n),
                .order = RU_NEW(a, uint32_t, g->n),
                .room = RU_NEW(a, uint32_t, g->n)};
    if (b.work == NULL || b.key == NULL || b.order == NULL || b.room == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        b.work[i] = work_of(g, i);
    }
    int64_t best = bound_path(g);
    *proof = RU_PLACE_BY_PATH;
    for (uint32_t d = 0; d <= g->n_devs; d++) {
        int64_t bound = bound_work(&b, d < g->n_devs ? d : RUI_PLACE_NONE);
        *proof = bound > best ? RU_PLACE_BY_WORK : *proof;
        best = bound > best ? bound : best;
    }
    int64_t bound = bound_memory(&b);
    *proof = bound > best ? RU_PLACE_BY_MEMORY : *proof;
    *bound_ns = bound > best ? bound : best;
    ru_arena_rewind(a, mark);
    return true;
}
