/* Search over (device of each unit, order of ops): a random change is kept when it makes the step
 * shorter, or longer by less than a random amount that shrinks with the work done.
 *
 * An op on the critical path is changed more often than others, since a step gets shorter only when
 * each of its longest chains does. A changed order is given up as soon as one op with the longest
 * path behind it must end too late. */
#include <string.h>

#include "plan/cut/place_impl.h"

enum {
    WALKS = 4,
    PULL_MAX = 16,       /* units that change the device together */
    PLAYS_PER_OP = 4000, /* of a walk: small graphs need no more */
    NEAR = 12,           /* places of a short move in the order */
};

static const double COOL_END = 1e-3; /* of the first temperature */

typedef struct walk {
    const rui_place *g;
    ru_rng rng;
    uint32_t *unit_dev, *seq, *place; /* [n_units], [n], [n] inverse of seq */
    int64_t *used;                    /* [n_devs] bytes */
    uint32_t *critical;               /* [n_critical] ops of a longest chain */
    uint32_t n_critical;
    rui_place_room room;
    int64_t now, best;
    rui_place_list *out;
    /* the change to take back */
    uint32_t pulled[PULL_MAX], pulled_from[PULL_MAX], n_pulled;
    uint32_t moved_op, moved_from; /* place; moved_op RUI_PLACE_NONE: none */
} walk;

static void set_place(walk *w, uint32_t from, uint32_t to)
{
    uint32_t i = w->seq[from];
    for (; from < to; from++) {
        w->seq[from] = w->seq[from + 1];
        w->place[w->seq[from]] = from;
    }
    for (; from > to; from--) {
        w->seq[from] = w->seq[from - 1];
        w->place[w->seq[from]] = from;
    }
    w->seq[to] = i;
    w->place[i] = to;
}

static void set_device(walk *w, uint32_t u, uint32_t dev)
{
    w->used[w->unit_dev[u]] -= w->g->unit_bytes[u];
    w->used[dev] += w->g->unit_bytes[u];
    w->unit_dev[u] = dev;
}

static void take_back(walk *w)
{
    while (w->n_pulled > 0) {
        w->n_pulled--;
        set_device(w, w->pulled[w->n_pulled], w->pulled_from[w->n_pulled]);
    }
    if (w->moved_op != RUI_PLACE_NONE) {
        set_place(w, w->place[w->moved_op], w->moved_from);
    }
}

static uint32_t any_op(walk *w)
{
    if (w->n_critical > 0 && ru_rng_below(&w->rng, 10) < 7) {
        return w->critical[ru_rng_below(&w->rng, w->n_critical)];
    }
    return ru_rng_below(&w->rng, w->g->n);
}

/* An op that i reads or that reads i; i itself when there is none. */
static uint32_t neighbour(walk *w, uint32_t i)
{
    const rui_place *g = w->g;
    uint32_t before = g->in_at[i + 1] - g->in_at[i], behind = g->out_at[i + 1] - g->out_at[i];
    if (before + behind == 0) {
        return i;
    }
    uint32_t k = ru_rng_below(&w->rng, before + behind);
    return k < before ? g->from[g->in_edge[g->in_at[i] + k]]
                      : g->to[g->out_edge[g->out_at[i] + k - before]];
}

static void pull(walk *w, uint32_t u, uint32_t dev)
{
    bool may = w->g->unit_pin[u] == RUI_PLACE_NONE && w->unit_dev[u] != dev;
    if (may && w->n_pulled < PULL_MAX) {
        w->pulled[w->n_pulled] = u;
        w->pulled_from[w->n_pulled++] = w->unit_dev[u];
        set_device(w, u, dev);
    }
}

/* A unit and, each with half the chance, ops next to it go to another device. */
static void change_device(walk *w, uint32_t i)
{
    const rui_place *g = w->g;
    uint32_t old = w->unit_dev[g->unit[i]], dev = w->unit_dev[g->unit[neighbour(w, i)]];
    if (dev == old || ru_rng_below(&w->rng, 2) == 0) {
        dev = ru_rng_below(&w->rng, g->n_devs - 1);
        dev += dev >= old ? 1 : 0;
    }
    pull(w, g->unit[i], dev);
    uint32_t many = 1u << ru_rng_below(&w->rng, 5);
    for (uint32_t k = 1; k < many; k++) {
        i = neighbour(w, i);
        if (w->unit_dev[g->unit[i]] == old) {
            pull(w, g->unit[i], dev);
        }
    }
}

/* Two units on different devices change places: all that full devices allow. */
static void exchange(walk *w, uint32_t i)
{
    uint32_t u = w->g->unit[i], v = w->g->unit[ru_rng_below(&w->rng, w->g->n)];
    uint32_t here = w->unit_dev[u], there = w->unit_dev[v];
    if (here != there && w->g->unit_pin[u] == RUI_PLACE_NONE &&
        w->g->unit_pin[v] == RUI_PLACE_NONE) {
        pull(w, u, there);
        pull(w, v, here);
    }
}

/* Elsewhere between the last op that i reads and the first that reads i. */
static void change_place(walk *w, uint32_t i)
{
    const rui_place *g = w->g;
    uint32_t at = w->place[i], lo = 0, hi = g->n - 1;
    for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1]; x++) {
        uint32_t p = w->place[g->from[g->in_edge[x]]] + 1;
        lo = p > lo ? p : lo;
    }
    for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
        uint32_t p = w->place[g->to[g->out_edge[x]]] - 1;
        hi = p < hi ? p : hi;
    }
    if (ru_rng_below(&w->rng, 2) == 0) {
        lo = at > NEAR && at - NEAR > lo ? at - NEAR : lo;
        hi = hi - at > NEAR ? at + NEAR : hi;
    }
    uint32_t to = lo + ru_rng_below(&w->rng, hi - lo + 1);
    if (to != at) {
        w->moved_op = i;
        w->moved_from = at;
        set_place(w, at, to);
    }
}

/* false: nothing changed, or not within memory. */
static bool change(walk *w)
{
    const rui_place *g = w->g;
    uint32_t i = any_op(w), kind = ru_rng_below(&w->rng, 100);
    w->n_pulled = 0;
    w->moved_op = RUI_PLACE_NONE;
    if (kind < 55 && g->n_devs > 1) {
        change_device(w, i);
    } else if (kind < 60 && g->n_devs > 1) {
        exchange(w, i);
    }
    if (kind >= 45) {
        change_place(w, i);
    }
    bool ok = w->n_pulled > 0 || w->moved_op != RUI_PLACE_NONE;
    for (uint32_t k = 0; k < w->n_pulled; k++) {
        uint32_t dev = w->unit_dev[w->pulled[k]];
        ok = ok && w->used[dev] <= g->memory[dev];
    }
    return ok;
}

static void find_critical(walk *w)
{
    const rui_place *g = w->g;
    uint32_t i = RUI_PLACE_NONE;
    w->n_critical = 0;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        i = w->room.dev_last[d] != RUI_PLACE_NONE && w->room.dev_free[d] == w->now
                ? w->room.dev_last[d]
                : i;
    }
    for (; i != RUI_PLACE_NONE; i = w->room.cause[i]) {
        w->critical[w->n_critical++] = i;
    }
}

static void keep(walk *w)
{
    w->best = w->now;
    memcpy(w->out->unit_dev, w->unit_dev, w->g->n_units * sizeof *w->unit_dev);
    memcpy(w->out->seq, w->seq, w->g->n * sizeof *w->seq);
}

static void begin(walk *w, const rui_place_list *from)
{
    const rui_place *g = w->g;
    uint32_t n = 0;
    memcpy(w->unit_dev, from->unit_dev, g->n_units * sizeof *w->unit_dev);
    /* What takes no time and waits for nothing is never in the way. */
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < g->n; k++) {
            uint32_t i = from->seq[k];
            bool free = g->in_at[i] == g->in_at[i + 1] && rui_place_took(g, i, 0) == 0;
            if (free == (pass == 0)) {
                w->place[i] = n;
                w->seq[n++] = i;
            }
        }
    }
    memset(w->used, 0, g->n_devs * sizeof *w->used);
    for (uint32_t u = 0; u < g->n_units; u++) {
        w->used[w->unit_dev[u]] += g->unit_bytes[u];
    }
    w->now = rui_place_decode(g, w->unit_dev, w->seq, INT64_MAX - 1, &w->room);
    find_critical(w);
}

static void cool(walk *w, const rui_place_walk *in, int64_t work_max)
{
    int64_t first = w->room.work, plays = 0, plays_max = (int64_t)PLAYS_PER_OP * (w->g->n + 8);
    double heat = in->heat * (double)w->now, t = heat;
    /* Changes that need no play cost nothing else: they end the walk as well. */
    for (int64_t k = 0; k < 4 * plays_max && plays < plays_max && w->best > in->bound_ns; k++) {
        int64_t spent = w->room.work - first;
        if (spent >= work_max) {
            break;
        }
        if (k % 64 == 0) {
            double by_work = (double)spent / (double)work_max;
            double by_plays = (double)plays / (double)plays_max;
            double done = by_work > by_plays ? by_work : by_plays;
            t = heat * ru_math_exp(done * ru_math_log(COOL_END));
        }
        if (!change(w)) {
            take_back(w);
            continue;
        }
        double more = -t * ru_math_log(1 - ru_rng_f64(&w->rng));
        int64_t limit = w->now + (int64_t)(more < 1e18 ? more : 1e18);
        int64_t step = rui_place_decode(w->g, w->unit_dev, w->seq, limit, &w->room);
        plays++;
        if (step > limit) {
            take_back(w);
            continue;
        }
        w->now = step;
        find_critical(w);
        if (step < w->best) {
            keep(w);
        }
    }
}

bool rui_place_anneal(const rui_place *g, rui_place_walk *in, ru_arena *a, rui_place_list *best,
                      rui_place_sched *s)
{
    walk w = {.g = g,
              .unit_dev = RU_NEW(a, uint32_t, g->n_units),
              .seq = RU_NEW(a, uint32_t, g->n),
              .place = RU_NEW(a, uint32_t, g->n),
              .used = RU_NEW(a, int64_t, g->n_devs),
              .critical = RU_NEW(a, uint32_t, g->n),
              .best = INT64_MAX,
              .out = best};
    if (w.unit_dev == NULL || w.seq == NULL || w.place == NULL || w.used == NULL ||
        w.critical == NULL || !rui_place_room_new(g, a, &w.room)) {
        return false;
    }
    for (uint32_t k = 0; k < WALKS && w.best > in->bound_ns; k++) {
        bool again = k >= in->n_from;
        w.rng = ru_rng_from(g->in->seed, k + 16 * (uint64_t)g->n);
        begin(&w, again ? best : &in->from[k]);
        if (w.now < w.best) {
            keep(&w);
        }
        cool(&w, in, (in->work_max - w.room.work) / (WALKS - k));
    }
    if (s != NULL && w.best < s->step_ns) {
        int64_t step = rui_place_decode(g, best->unit_dev, best->seq, INT64_MAX - 1, &w.room);
        RU_CHECK(step == w.best);
        rui_place_take(g, best->unit_dev, &w.room, step, s);
    }
    in->work += w.room.work;
    return true;
}
