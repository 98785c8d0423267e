/* The checker of moves: the figures from the map by their definition, worker by worker. */
#include <math.h>
#include <string.h>

#include "plan/crew/moves.h"

typedef struct sums {
    double *load, *moving; /* [workers] ns */
    int64_t *memory;       /* [workers] */
    int64_t *cpu, *net, *moved;
    uint32_t *touched;
} sums;

static bool sums_new(sums *s, uint32_t n, ru_arena *a)
{
    s->load = RU_NEW(a, double, n);
    s->moving = RU_NEW(a, double, n);
    s->memory = RU_NEW(a, int64_t, n);
    s->cpu = RU_NEW(a, int64_t, n);
    s->net = RU_NEW(a, int64_t, n);
    s->moved = RU_NEW(a, int64_t, n);
    s->touched = RU_NEW(a, uint32_t, n);
    return s->load != NULL && s->moving != NULL && s->memory != NULL && s->cpu != NULL &&
           s->net != NULL && s->moved != NULL && s->touched != NULL;
}

static double rounded(double ns)
{
    return ns + 0.5 >= 1e18 ? 1e18 : floor(ns + 0.5);
}

static void sum_up(const ru_moves_in *in, const uint32_t *to, uint32_t n, sums *s)
{
    for (uint32_t j = 0; j < n; j++) {
        const ru_moves_object *o = &in->object[j];
        uint32_t w = to[j];
        s->cpu[w] += o->cpu_ns;
        s->net[w] += o->net_bytes;
        s->memory[w] += o->state_bytes + o->data_bytes;
        if (w == o->on && in->method != RU_MOVES_RESTART) {
            continue;
        }
        s->moved[w] += o->state_bytes;
        s->moved[w] += w != o->home ? o->data_bytes : 0;
        s->touched[w]++;
        if (o->on != RU_MOVES_NONE) {
            s->moved[o->on] += o->state_bytes;
            s->touched[o->on]++;
        }
    }
    for (uint32_t k = 0; k < in->n_pairs; k++) {
        const ru_moves_pair *p = &in->pair[k];
        s->net[to[p->a]] -= to[p->a] == to[p->b] ? 2 * p->bytes : 0;
    }
    for (uint32_t w = 0; w < in->n_workers; w++) {
        const ru_moves_worker *k = &in->worker[w];
        s->load[w] =
            rounded((double)s->cpu[w] / k->cores + (double)s->net[w] * 1e9 / k->bytes_per_s);
        s->moving[w] = rounded((double)(in->pause_ns * s->touched[w]) +
                               (double)s->moved[w] * 1e9 / k->bytes_per_s);
    }
}

static ru_status check_figures(const ru_moves_in *in, const ru_moves_plan *p, const sums *s,
                               ru_err *err)
{
    double load = 0, moving = 0;
    for (uint32_t w = 0; w < in->n_workers; w++) {
        load = fmax(load, s->load[w]);
        moving = fmax(moving, s->moving[w]);
        int64_t room = in->worker[w].memory_bytes;
        if (room > 0 && s->memory[w] > room) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u holds %lld bytes, but has %lld", w,
                           (long long)s->memory[w], (long long)room);
        }
    }
    double iteration = load + (double)in->barrier_ns;
    if ((double)p->iteration_ns != iteration || (double)p->moving_ns != moving ||
        p->cost_ns != in->iterations * iteration + moving) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "an iteration of %.0f ns and moves of %.0f ns follow from the map, not "
                       "%lld and %lld",
                       iteration, moving, (long long)p->iteration_ns, (long long)p->moving_ns);
    }
    if (p->bound_ns < 0 || (double)p->bound_ns > iteration) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a bound of %lld ns is above the map's %.0f",
                       (long long)p->bound_ns, iteration);
    }
    return RU_OK;
}

static ru_status check_moves(const ru_moves_in *in, const ru_moves_plan *p, ru_err *err)
{
    uint32_t n = 0;
    int64_t bytes = 0;
    for (uint32_t j = 0; j < p->n; j++) {
        const ru_moves_object *o = &in->object[j];
        if (p->to[j] >= in->n_workers || in->worker[p->to[j]].leaving) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "object %u moves to worker %u, which %s", j,
                           p->to[j], p->to[j] >= in->n_workers ? "does not exist" : "leaves");
        }
        if (p->to[j] != o->on || in->method == RU_MOVES_RESTART) {
            n++;
            bytes += o->state_bytes + (p->to[j] != o->home ? o->data_bytes : 0);
        }
    }
    if (n != p->n_moves || bytes != p->moved_bytes) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u objects of %lld bytes move, not %u of %lld", n,
                       (long long)bytes, p->n_moves, (long long)p->moved_bytes);
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t j = p->move[k];
        bool moves = j < p->n && (p->to[j] != in->object[j].on || in->method == RU_MOVES_RESTART);
        bool follows = true;
        if (moves && k > 0) { /* strictly increasing, so no object stands there twice */
            uint32_t i = p->move[k - 1];
            bool later = (i >= in->n_executors) == (j >= in->n_executors);
            int64_t a = in->object[i].state_bytes, b = in->object[j].state_bytes;
            follows = later ? a < b || (a == b && i < j) : j >= in->n_executors;
        }
        if (!moves || !follows) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "move %u, of object %u, is out of order", k, j);
        }
    }
    return RU_OK;
}

/* Each move alone, taken back: the cost must not fall. */
static ru_status check_taking_back(const ru_moves_in *in, const ru_moves_plan *p, const sums *s,
                                   ru_arena *scratch, ru_err *err)
{
    uint32_t *to = ru_arena_copy(scratch, p->to, (int64_t)(p->n * sizeof *to), 8);
    sums t;
    if (to == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check %u moves", p->n_moves);
    }
    for (uint32_t k = 0; k < p->n_moves; k++) {
        uint32_t j = p->move[k], on = in->object[j].on;
        const ru_moves_object *o = &in->object[j];
        if (on == RU_MOVES_NONE || in->worker[on].leaving ||
            (in->worker[on].memory_bytes > 0 &&
             s->memory[on] + o->state_bytes + o->data_bytes > in->worker[on].memory_bytes)) {
            continue;
        }
        ru_arena_mark mark = ru_arena_mark_get(scratch);
        to[j] = on;
        if (!sums_new(&t, in->n_workers, scratch)) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory to check %u moves", p->n_moves);
        }
        sum_up(in, to, p->n, &t);
        to[j] = p->to[j];
        double load = 0, moving = 0;
        for (uint32_t w = 0; w < in->n_workers; w++) {
            load = fmax(load, t.load[w]);
            moving = fmax(moving, t.moving[w]);
        }
        ru_arena_rewind(scratch, mark);
        if (in->iterations * (load + (double)in->barrier_ns) + moving < p->cost_ns) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "moving object %u to worker %u does not pay off",
                           j, p->to[j]);
        }
    }
    return RU_OK;
}

/* All moves that need not be, taken back together: the noise must not explain what they gain. */
static ru_status check_noise(const ru_moves_in *in, const ru_moves_plan *p, ru_arena *scratch,
                             ru_err *err)
{
    uint32_t *to = ru_arena_copy(scratch, p->to, (int64_t)(p->n * sizeof *to), 8);
    sums t;
    if (to == NULL || !sums_new(&t, in->n_workers, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check %u moves", p->n_moves);
    }
    uint32_t back = 0;
    for (uint32_t j = 0; j < p->n; j++) {
        uint32_t on = in->object[j].on;
        if (on != RU_MOVES_NONE && !in->worker[on].leaving && on != to[j]) {
            to[j] = on;
            back++;
        }
    }
    sum_up(in, to, p->n, &t);
    double load = 0, moving = 0;
    bool fits = true;
    for (uint32_t w = 0; w < in->n_workers; w++) {
        int64_t most = in->worker[w].memory_bytes;
        load = fmax(load, t.load[w]);
        moving = fmax(moving, t.moving[w]);
        fits = fits && (most == 0 || t.memory[w] <= most);
    }
    double before = load + (double)in->barrier_ns;
    double gain = in->iterations * before + moving - p->cost_ns;
    if (back > 0 && fits && gain < in->noise * in->iterations * before * (1 - 1e-9)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%u moves gain %g s together, which is less than the noise", back,
                       gain * 1e-9);
    }
    return RU_OK;
}

ru_status ru_plan_moves_check(const ru_moves_in *in, const ru_moves_plan *plan, ru_arena *scratch,
                              ru_err *err)
{
    /* Taking back a move is summed up anew for each: of many moves only the order is checked. */
    enum { WORK_MAX = 200 * 1000 * 1000 };
    if (plan->n != in->n_executors + in->n_shards) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the map has %u objects, which is not the number of the question", plan->n);
    }
    RU_TRY(check_moves(in, plan, err));
    sums s;
    if (!sums_new(&s, in->n_workers, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", in->n_workers);
    }
    sum_up(in, plan->to, plan->n, &s);
    RU_TRY(check_figures(in, plan, &s, err));
    if (in->method == RU_MOVES_BALANCE && in->noise > 0) {
        RU_TRY(check_noise(in, plan, scratch, err));
    }
    double work = (double)plan->n_moves * ((double)plan->n + in->n_pairs + in->n_workers);
    bool ours = in->method == RU_MOVES_BALANCE && work < WORK_MAX;
    return ours ? check_taking_back(in, plan, &s, scratch, err) : RU_OK;
}
