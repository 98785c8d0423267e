#include "plan/crew/moves.h"

#include <string.h>

#include "plan/crew/moves_impl.h"

static ru_status check_objects(const ru_moves_in *in, uint32_t n, ru_err *err)
{
    double cpu = 0, net = 0, bytes = 0;
    for (uint32_t j = 0; j < n; j++) {
        const ru_moves_object *o = &in->object[j];
        if ((o->on >= in->n_workers && o->on != RU_MOVES_NONE) ||
            (o->home >= in->n_workers && o->home != RU_MOVES_NONE)) {
            return RU_FAIL(err, RU_E_ARG,
                           "object %u is on worker %u and its input on worker %u, but there are %u "
                           "workers (from 0)",
                           j, o->on, o->home, in->n_workers);
        }
        if (o->cpu_ns < 0 || o->net_bytes < 0 || o->state_bytes < 0 || o->data_bytes < 0) {
            return RU_FAIL(err, RU_E_ARG, "object %u has a negative cost or size", j);
        }
        cpu += (double)o->cpu_ns;
        net += (double)o->net_bytes;
        bytes += (double)o->state_bytes + (double)o->data_bytes;
    }
    if (cpu > 1e17 || net > 1e17 || bytes > 1e17) {
        return RU_FAIL(err, RU_E_ARG,
                       "all objects together need %g ns and %g bytes and hold %g bytes; expected "
                       "at most 1e17 of each",
                       cpu, net, bytes);
    }
    return RU_OK;
}

static ru_status check_in(const ru_moves_in *in, ru_err *err)
{
    uint32_t n = in->n_executors + in->n_shards, stay = 0;
    if (in->n_workers < 1 || in->n_workers > RU_MOVES_WORKERS_MAX || n < 1 ||
        in->n_executors > RU_MOVES_OBJECTS_MAX || n > RU_MOVES_OBJECTS_MAX ||
        in->n_pairs > RU_MOVES_PAIRS_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u workers, %u objects and %u pairs; expected 1 to %d, 1 to %d, "
                       "and at most %d",
                       in->n_workers, n, in->n_pairs, RU_MOVES_WORKERS_MAX, RU_MOVES_OBJECTS_MAX,
                       RU_MOVES_PAIRS_MAX);
    }
    for (uint32_t w = 0; w < in->n_workers; w++) {
        const ru_moves_worker *k = &in->worker[w];
        if (!(k->cores > 0 && k->bytes_per_s > 0) || k->memory_bytes < 0) {
            return RU_FAIL(err, RU_E_ARG, "worker %u has no cores, no link, or negative memory", w);
        }
        stay += k->leaving ? 0 : 1;
    }
    if (stay == 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "every worker leaves, so no worker can hold the executors");
    }
    if (!(in->iterations >= 0 && in->iterations <= 1e15) || in->barrier_ns < 0 ||
        !(in->noise >= 0 && in->noise <= 1) || in->pause_ns < 0 || in->barrier_ns > (int64_t)1e17 ||
        in->pause_ns > (int64_t)1e12) {
        return RU_FAIL(err, RU_E_ARG,
                       "a horizon of %g iterations, a noise of %g, or a pause is out of range",
                       in->iterations, in->noise);
    }
    RU_TRY(check_objects(in, n, err));
    for (uint32_t k = 0; k < in->n_pairs; k++) {
        const ru_moves_pair *p = &in->pair[k];
        if (p->a >= n || p->b >= n || p->a == p->b || p->bytes < 0) {
            return RU_FAIL(err, RU_E_ARG,
                           "pair %u names objects %u and %u, but there are %u objects (from 0)", k,
                           p->a, p->b, n);
        }
    }
    return RU_OK;
}

/* Ours: from the map in force and from scratch, the cheapest; then branch and bound for few. From
 * scratch: plain LPT, and with more and more weight on workers that suit an object (measured: where
 * cores and links are uneven, 1.050 times the bound at worst becomes 1.023). */
static ru_status balance(rui_moves_map *m, const rui_moves_dual *dual, ru_arena *scratch,
                         bool *proven, ru_err *err)
{
    static const double misfits[] = {0, 1, 4, 16};
    uint32_t *best = RU_NEW(scratch, uint32_t, m->n);
    if (best == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u objects", m->n);
    }
    RU_TRY(rui_moves_keep(m, scratch, err));
    RU_TRY(rui_moves_improve(m, false, scratch, err));
    int64_t over = m->over_bytes;
    double cost = rui_moves_cost(m);
    memcpy(best, m->to, m->n * sizeof *best);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(misfits); i++) {
        RU_TRY(rui_moves_lpt(m, dual, misfits[i], scratch, err));
        RU_TRY(rui_moves_improve(m, false, scratch, err));
        double other = rui_moves_cost(m);
        if (m->over_bytes < over || (m->over_bytes == over && other < cost)) {
            over = m->over_bytes;
            cost = other;
            memcpy(best, m->to, m->n * sizeof *best);
        }
    }
    rui_moves_put_all(m, best);
    if (m->n <= RUI_MOVES_EXACT_MAX) {
        RU_TRY(rui_moves_exact(m, dual, scratch, proven, err));
    }
    return RU_OK;
}

/* Does the map at hand cost at most the noise more than `cost`? */
static bool within_noise(const rui_moves_map *m, double cost)
{
    const ru_moves_in *in = m->in;
    double iteration = (double)m->load.at[1] + (double)in->barrier_ns;
    return m->over_bytes == 0 && rui_moves_cost(m) - cost <= in->noise * in->iterations * iteration;
}

/* What need not move stays if all its moves together gain no more than what the costs are known
 * to: with what must move where the best map has it, or where `keep` puts it. */
static ru_status settle(rui_moves_map *m, ru_arena *scratch, bool *proven, ru_err *err)
{
    const ru_moves_in *in = m->in;
    uint32_t *best = ru_arena_copy(scratch, m->to, (int64_t)(m->n * sizeof *best), 4);
    if (best == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u objects", m->n);
    }
    double cost = rui_moves_cost(m);
    bool moved = false;
    for (uint32_t j = 0; j < m->n; j++) {
        uint32_t on = in->object[j].on;
        if (on != RU_MOVES_NONE && !in->worker[on].leaving && m->to[j] != on) {
            rui_moves_put(m, j, on);
            moved = true;
        }
    }
    if (moved && !within_noise(m, cost)) {
        RU_TRY(rui_moves_keep(m, scratch, err));
        if (!within_noise(m, cost)) {
            rui_moves_put_all(m, best);
            return RU_OK;
        }
    }
    *proven = *proven && !moved;
    return RU_OK;
}

static ru_status find_map(rui_moves_map *m, const rui_moves_dual *dual, ru_arena *scratch,
                          bool *proven, ru_err *err)
{
    switch (m->in->method) {
    case RU_MOVES_KEEP:
        return rui_moves_keep(m, scratch, err);
    case RU_MOVES_COUNT:
        return rui_moves_count(m, scratch, err);
    case RU_MOVES_LPT:
    case RU_MOVES_RESTART:
        return rui_moves_lpt(m, dual, 0, scratch, err);
    case RU_MOVES_GREEDY:
        RU_TRY(rui_moves_keep(m, scratch, err));
        return rui_moves_improve(m, true, scratch, err);
    case RU_MOVES_BALANCE:
    case RU_MOVES_METHODS:
        break;
    }
    RU_TRY(balance(m, dual, scratch, proven, err));
    return m->in->noise > 0 && m->over_bytes == 0 ? settle(m, scratch, proven, err) : RU_OK;
}

/* Does x go before y? Executors first, each kind with the least state first. */
static bool before(const ru_moves_in *in, uint32_t x, uint32_t y)
{
    bool shard_x = x >= in->n_executors, shard_y = y >= in->n_executors;
    int64_t a = in->object[x].state_bytes, b = in->object[y].state_bytes;
    return shard_x != shard_y ? shard_y : a != b ? a < b : x < y;
}

/* Moved objects in their order: a heap with the last one on top, emptied from the end. */
static void order_moves(const ru_moves_in *in, uint32_t *move, uint32_t n)
{
    for (uint32_t k = 1; k < n; k++) { /* grow the heap */
        uint32_t at = k, x = move[k];
        for (; at > 0 && before(in, move[(at - 1) / 2], x); at = (at - 1) / 2) {
            move[at] = move[(at - 1) / 2];
        }
        move[at] = x;
    }
    for (uint32_t k = n; k-- > 1;) {
        uint32_t x = move[k], at = 0, child;
        move[k] = move[0];
        while ((child = 2 * at + 1) < k) {
            child += child + 1 < k && before(in, move[child], move[child + 1]) ? 1 : 0;
            if (!before(in, x, move[child])) {
                break;
            }
            move[at] = move[child];
            at = child;
        }
        move[at] = x;
    }
}

static ru_status answer(const rui_moves_map *m, const rui_moves_dual *dual, bool proven,
                        ru_arena *out, ru_moves_plan *plan, ru_err *err)
{
    const ru_moves_in *in = m->in;
    uint32_t *to = ru_arena_copy(out, m->to, (int64_t)(m->n * sizeof *to), RU_ALIGNOF(uint32_t));
    uint32_t *move = RU_NEW(out, uint32_t, m->n);
    if (to == NULL || move == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a map of %u objects", m->n);
    }
    ru_moves_plan p = {.to = to, .move = move, .n = m->n, .optimal = proven};
    for (uint32_t j = 0; j < m->n; j++) {
        const ru_moves_object *o = &in->object[j];
        if (to[j] != o->on || in->method == RU_MOVES_RESTART) {
            move[p.n_moves++] = j;
            p.moved_bytes += o->state_bytes + (to[j] == o->home ? 0 : o->data_bytes);
        }
    }
    order_moves(in, move, p.n_moves);
    p.iteration_ns = m->load.at[1] + in->barrier_ns;
    p.moving_ns = m->moving.at[1];
    p.bound_ns = dual->bound_ns + in->barrier_ns;
    p.cost_ns = rui_moves_cost(m);
    *plan = p;
    return RU_OK;
}

ru_status ru_plan_moves(const ru_moves_in *in, ru_arena *out, ru_arena *scratch,
                        ru_moves_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    rui_moves_map m;
    rui_moves_dual dual;
    bool proven = false;
    RU_TRY(rui_moves_map_init(&m, in, scratch, err));
    RU_TRY(rui_moves_bound(&m, scratch, &dual, err));
    RU_TRY(find_map(&m, &dual, scratch, &proven, err));
    if (m.over_bytes > 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no map was found that fits into memory; the best one needs %lld bytes more",
                       (long long)m.over_bytes);
    }
    return answer(&m, &dual, proven, out, plan, err);
}
