/* From an order of ops to a schedule. */
#include <string.h>

#include "base/heap.h"
#include "plan/cut/place_impl.h"

bool rui_place_room_new(const rui_place *g, ru_arena *a, rui_place_room *r)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t inputs = g->in_at[i + 1] - g->in_at[i];
        most = inputs > most ? inputs : most;
    }
    *r = (rui_place_room){.start = RU_NEW(a, int64_t, g->n),
                          .finish = RU_NEW(a, int64_t, g->n),
                          .cause = RU_NEW(a, uint32_t, g->n),
                          .send_at = RU_NEW(a, int64_t, g->m),
                          .send_end = RU_NEW(a, int64_t, g->m),
                          .send_before = RU_NEW(a, uint32_t, g->m),
                          .send_after = RU_NEW(a, uint32_t, g->m),
                          .run_first = RU_NEW(a, uint32_t, g->m),
                          .run_last = RU_NEW(a, uint32_t, g->m),
                          .dev_free = RU_NEW(a, int64_t, g->n_devs),
                          .dev_last = RU_NEW(a, uint32_t, g->n_devs),
                          .op_before = RU_NEW(a, uint32_t, g->n),
                          .link_last = RU_NEW(a, uint32_t, (int64_t)g->n_devs * g->n_devs),
                          .carried = RU_NEW(a, uint32_t, (int64_t)g->n_values * g->n_devs),
                          .crossing = RU_NEW(a, uint32_t, most),
                          .merged = RU_NEW(a, uint32_t, most)};
    return r->start != NULL && r->finish != NULL && r->cause != NULL && r->send_at != NULL &&
           r->send_end != NULL && r->send_before != NULL && r->dev_free != NULL &&
           r->dev_last != NULL && r->op_before != NULL && r->link_last != NULL &&
           r->carried != NULL && r->crossing != NULL && r->send_after != NULL &&
           r->run_first != NULL && r->run_last != NULL && r->merged != NULL;
}

void rui_place_clear(const rui_place *g, rui_place_room *r)
{
    for (uint32_t d = 0; d < g->n_devs; d++) {
        r->dev_free[d] = 0;
        r->dev_last[d] = RUI_PLACE_NONE;
    }
    memset(r->link_last, 0xff, (size_t)g->n_devs * g->n_devs * sizeof *r->link_last);
    memset(r->carried, 0xff, (size_t)g->n_values * g->n_devs * sizeof *r->carried);
}

/* Who brought the value of e to a device; NULL: it is of e alone. */
static uint32_t *carrier(const rui_place *g, rui_place_room *r, uint32_t e, uint32_t dev)
{
    uint32_t v = g->value != NULL ? g->value[e] : 0;
    return v > 0 ? &r->carried[(size_t)v * g->n_devs + dev] : NULL;
}

/* Transfers of a link without a gap between them are a run: nothing fits inside of it, so a search
 * for a gap goes from run to run. Its ends know each other. */
static void join_runs(rui_place_room *r, uint32_t e, uint32_t before, uint32_t behind)
{
    bool joins = before != RUI_PLACE_NONE && r->send_end[before] == r->send_at[e];
    bool joined = behind != RUI_PLACE_NONE && r->send_end[e] == r->send_at[behind];
    uint32_t first = joins ? r->run_first[before] : e, last = joined ? r->run_last[behind] : e;
    r->run_first[last] = first;
    r->run_last[first] = last;
}

/* What join_runs overwrote when e came last. */
static void part_runs(rui_place_room *r, uint32_t e, uint32_t before, uint32_t behind)
{
    if (behind != RUI_PLACE_NONE && r->send_end[e] == r->send_at[behind]) {
        r->run_first[r->run_last[behind]] = behind;
    }
    if (before != RUI_PLACE_NONE && r->send_end[before] == r->send_at[e]) {
        r->run_last[r->run_first[before]] = before;
    }
}

/* The first gap of the link that holds the transfer, which takes more than no time. */
static int64_t book(rui_place_room *r, uint32_t link, uint32_t e, int64_t ready, int64_t took)
{
    uint32_t at = r->link_last[link], later = RUI_PLACE_NONE, before = at, behind = RUI_PLACE_NONE;
    int64_t start = at != RUI_PLACE_NONE && r->send_end[at] > ready ? r->send_end[at] : ready;
    while (at != RUI_PLACE_NONE && r->send_end[at] > ready) {
        at = r->run_first[at];
        uint32_t q = r->send_before[at];
        int64_t s = q != RUI_PLACE_NONE && r->send_end[q] > ready ? r->send_end[q] : ready;
        later = at;
        if (s + took <= r->send_at[at]) {
            start = s;
            before = q;
            behind = later;
        }
        at = q;
    }
    r->send_before[e] = before;
    r->send_after[e] = behind;
    if (before != RUI_PLACE_NONE) {
        r->send_after[before] = e;
    }
    *(behind == RUI_PLACE_NONE ? &r->link_last[link] : &r->send_before[behind]) = e;
    r->send_at[e] = start;
    r->send_end[e] = start + took;
    join_runs(r, e, before, behind);
    return start + took;
}

/* By the time they get ready, earlier edges first: runs of 1, 2, 4, ... are merged. */
static void sort_crossing(const rui_place *g, rui_place_room *r, uint32_t n)
{
    for (uint32_t size = 1; size < n; size *= 2) {
        const uint32_t *at = r->crossing;
        for (uint32_t first = 0, k = 0; first < n; first += 2 * size) {
            uint32_t a = first, middle = first + size < n ? first + size : n;
            uint32_t b = middle, end = middle + size < n ? middle + size : n;
            while (k < end) {
                bool left = b == end ||
                            (a < middle && r->finish[g->from[at[a]]] <= r->finish[g->from[at[b]]]);
                r->merged[k++] = left ? at[a++] : at[b++];
            }
        }
        uint32_t *other = r->crossing;
        r->crossing = r->merged;
        r->merged = other;
    }
}

void rui_place_put(const rui_place *g, const uint32_t *unit_dev, uint32_t i, uint32_t dev,
                   rui_place_room *r)
{
    int64_t ready = r->dev_free[dev];
    uint32_t cause = r->dev_last[dev], n_crossing = 0;
    for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1]; x++) {
        uint32_t e = g->in_edge[x], j = g->from[e];
        if (unit_dev[g->unit[j]] != dev) {
            r->crossing[n_crossing++] = e;
        } else if (r->finish[j] > ready) {
            ready = r->finish[j];
            cause = j;
        }
    }
    sort_crossing(g, r, n_crossing);
    for (uint32_t k = 0; k < n_crossing; k++) {
        uint32_t e = r->crossing[k], j = g->from[e], from = unit_dev[g->unit[j]];
        int64_t took = rui_place_send(g, e, from, dev), there = r->finish[j];
        uint32_t *by = carrier(g, r, e, dev);
        if (took > 0 && by != NULL && *by != RUI_PLACE_NONE) {
            r->send_at[e] = r->send_at[*by];
            there = r->send_end[*by];
        } else if (took > 0) {
            if (by != NULL) {
                *by = e;
            }
            there = book(r, from * g->n_devs + dev, e, there, took);
        } else {
            r->send_at[e] = there;
        }
        if (there > ready) {
            ready = there;
            cause = j;
        }
    }
    r->n_crossing = n_crossing;
    r->op_before[i] = r->dev_last[dev];
    r->start[i] = ready;
    r->finish[i] = ready + rui_place_runs(g, unit_dev, i, dev);
    r->cause[i] = cause;
    r->dev_free[dev] = r->finish[i];
    r->dev_last[dev] = i;
}

void rui_place_unput(const rui_place *g, const uint32_t *unit_dev, uint32_t i, uint32_t dev,
                     rui_place_room *r)
{
    uint32_t before = r->op_before[i];
    r->dev_last[dev] = before;
    r->dev_free[dev] = before != RUI_PLACE_NONE ? r->finish[before] : 0;
    for (uint32_t k = r->n_crossing; k-- > 0;) {
        uint32_t e = r->crossing[k], from = unit_dev[g->unit[g->from[e]]];
        uint32_t *last = &r->link_last[from * g->n_devs + dev], *by = carrier(g, r, e, dev);
        bool own = by == NULL || *by == e;
        if (rui_place_send(g, e, from, dev) > 0 && own) {
            if (by != NULL) {
                *by = RUI_PLACE_NONE;
            }
            uint32_t q = r->send_before[e], behind = r->send_after[e];
            part_runs(r, e, q, behind);
            *(behind == RUI_PLACE_NONE ? last : &r->send_before[behind]) = q;
            if (q != RUI_PLACE_NONE) {
                r->send_after[q] = behind;
            }
        }
    }
}

int64_t rui_place_decode(const rui_place *g, const uint32_t *unit_dev, const uint32_t *seq,
                         int64_t limit, rui_place_room *r)
{
    int64_t end = 0;
    rui_place_clear(g, r);
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t i = seq[k];
        rui_place_put(g, unit_dev, i, unit_dev[g->unit[i]], r);
        r->work += 1 + g->in_at[i + 1] - g->in_at[i];
        if (r->finish[i] + g->tail[i] > limit) {
            return INT64_MAX;
        }
        end = r->finish[i] > end ? r->finish[i] : end;
    }
    return end;
}

void rui_place_take(const rui_place *g, const uint32_t *unit_dev, const rui_place_room *r,
                    int64_t step, rui_place_sched *s)
{
    for (uint32_t i = 0; i < g->n; i++) {
        s->device[i] = unit_dev[g->unit[i]];
        s->start[i] = r->start[i];
    }
    for (uint32_t e = 0; e < g->m; e++) {
        s->send[e] = s->device[g->from[e]] != s->device[g->to[e]] ? r->send_at[e] : -1;
    }
    s->step_ns = step;
}

/* -- plans of others --------------------------------------------------------------------------- */

typedef struct player {
    const rui_place *g;
    const uint32_t *unit_dev;
    uint32_t *next;     /* [n] the op behind it on its device */
    uint32_t *waits;    /* [n] inputs and the device that it waits for */
    int64_t *ready;     /* [n] */
    int64_t *link_free; /* [n_devs, n_devs] */
    ru_heap heap;       /* ends of ops */
    rui_place_sched *s;
} player;

static void release(player *p, uint32_t i, int64_t at)
{
    p->ready[i] = at > p->ready[i] ? at : p->ready[i];
    if (--p->waits[i] > 0) {
        return;
    }
    int64_t end = p->ready[i] + rui_place_runs(p->g, p->unit_dev, i, p->s->device[i]);
    p->s->start[i] = p->ready[i];
    p->s->step_ns = end > p->s->step_ns ? end : p->s->step_ns;
    RU_CHECK(ru_heap_push(&p->heap, end, i) == RU_OK);
}

/* The edge that brought the value of edge number x of its op to the same device. */
static uint32_t brought(const player *p, uint32_t x, uint32_t to)
{
    const rui_place *g = p->g;
    uint32_t e = g->out_edge[x], f = e;
    for (uint32_t y = g->out_at[g->from[e]]; y < x && g->value != NULL && f == e; y++) {
        uint32_t q = g->out_edge[y];
        bool same = g->value[e] > 0 && g->value[q] == g->value[e];
        f = same && p->s->device[g->to[q]] == to ? q : f;
    }
    return f;
}

static void finish(player *p, uint32_t i, int64_t at)
{
    const rui_place *g = p->g;
    uint32_t dev = p->s->device[i];
    for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
        uint32_t e = g->out_edge[x], j = g->to[e], to = p->s->device[j];
        int64_t there = at, took = to != dev ? rui_place_send(g, e, dev, to) : 0;
        uint32_t by = to != dev ? brought(p, x, to) : e;
        p->s->send[e] = to != dev ? at : -1;
        if (by != e) {
            p->s->send[e] = p->s->send[by];
            there = p->s->send[by] + took;
        } else if (took > 0) {
            int64_t *freed = &p->link_free[dev * g->n_devs + to];
            p->s->send[e] = *freed > at ? *freed : at;
            *freed = p->s->send[e] + took;
            there = *freed;
        }
        release(p, j, there);
    }
    if (p->next[i] != RUI_PLACE_NONE) {
        release(p, p->next[i], at);
    }
}

bool rui_place_play(const rui_place *g, const uint32_t *unit_dev, const uint32_t *seq, ru_arena *a,
                    rui_place_sched *s)
{
    ru_arena_mark mark = ru_arena_mark_get(a);
    player p = {.g = g,
                .unit_dev = unit_dev,
                .next = RU_NEW(a, uint32_t, g->n),
                .waits = RU_NEW(a, uint32_t, g->n),
                .ready = RU_NEW(a, int64_t, g->n),
                .link_free = RU_NEW(a, int64_t, (int64_t)g->n_devs * g->n_devs),
                .s = s};
    uint32_t *last = RU_NEW(a, uint32_t, g->n_devs);
    ru_heap_item *items = RU_NEW(a, ru_heap_item, g->n);
    if (p.next == NULL || p.waits == NULL || p.ready == NULL || p.link_free == NULL ||
        last == NULL || items == NULL) {
        return false;
    }
    ru_heap_init(&p.heap, items, g->n);
    s->step_ns = 0;
    memset(last, 0xff, g->n_devs * sizeof *last);
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t i = seq[k], dev = unit_dev[g->unit[i]];
        s->device[i] = dev;
        p.next[i] = RUI_PLACE_NONE;
        p.waits[i] = g->in_at[i + 1] - g->in_at[i] + 1; /* one for the device */
        if (last[dev] != RUI_PLACE_NONE) {
            p.next[last[dev]] = i;
        }
        last[dev] = i;
    }
    memset(last, 0xff, g->n_devs * sizeof *last);
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t i = seq[k];
        if (last[s->device[i]] == RUI_PLACE_NONE) {
            last[s->device[i]] = i;
            release(&p, i, 0);
        }
    }
    ru_heap_item item;
    uint32_t ended = 0;
    while (ru_heap_pop(&p.heap, &item)) {
        finish(&p, (uint32_t)item.value, item.key);
        ended++;
    }
    RU_CHECK(ended == g->n);
    ru_arena_rewind(a, mark);
    return true;
}
