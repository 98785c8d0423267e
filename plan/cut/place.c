/* Which ways to place are tried by each method, and the plan around the best one. */
#include "plan/cut/place.h"

#include <string.h>

#include "plan/cut/place_impl.h"

enum { TIES_OPS_MAX = 4096 }; /* larger graphs take one rule: a list takes ops x ready ops */

/* Of the search, for the graph with fewer ops; the rest is for the whole one. */
static const double COARSE_SHARE = 0.4;
static const double HEAT = 0.03, HEAT_FINE = 0.01; /* pesto-2021 starts where nothing is known */

typedef struct search {
    rui_place g;
    const ru_solver *solver;
    ru_arena *scratch;
    rui_place_sched best, now;
    ru_place_method from;
    rui_place_list lists[RU_PLACE_METHODS + 1]; /* legal ones, best first */
    int64_t steps[RU_PLACE_METHODS + 1];
    uint32_t n_lists;
    int64_t bound_ns, work;
    ru_place_proof proof;
    ru_place_program program;
} search;

bool rui_place_sched_new(const rui_place *g, ru_arena *a, rui_place_sched *s)
{
    *s = (rui_place_sched){.device = RU_NEW(a, uint32_t, g->n),
                           .start = RU_NEW(a, int64_t, g->n),
                           .send = RU_NEW(a, int64_t, g->m),
                           .step_ns = INT64_MAX};
    return s->device != NULL && s->start != NULL && s->send != NULL;
}

void rui_place_sched_copy(const rui_place *g, rui_place_sched *to, const rui_place_sched *from)
{
    memcpy(to->device, from->device, g->n * sizeof *to->device);
    memcpy(to->start, from->start, g->n * sizeof *to->start);
    memcpy(to->send, from->send, g->m * sizeof *to->send);
    to->step_ns = from->step_ns;
}

static ru_status no_memory(const search *s, ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory to place %u ops with %u edges", s->g.n, s->g.m);
}

static bool new_list(const rui_place *g, ru_arena *a, rui_place_list *l)
{
    l->unit_dev = RU_NEW(a, uint32_t, g->n_units);
    l->seq = RU_NEW(a, uint32_t, g->n);
    return l->unit_dev != NULL && l->seq != NULL;
}

static bool within_memory(const rui_place *g, const rui_place_list *l)
{
    for (uint32_t d = 0; d < g->n_devs; d++) {
        int64_t left = g->memory[d];
        for (uint32_t u = 0; u < g->n_units; u++) {
            if (l->unit_dev[u] == d) {
                if (g->unit_bytes[u] > left) {
                    return false;
                }
                left -= g->unit_bytes[u];
            }
        }
    }
    return true;
}

/* RU_E_INFEASIBLE: memory does not allow what the heuristic wants. `child`: m-SCT. */
static ru_status make_list(search *s, ru_place_method m, const uint32_t *child, uint32_t ties,
                           rui_place_list *l)
{
    const rui_place *g = &s->g;
    switch (m) {
    case RU_PLACE_SINGLE:
        return rui_place_single(g, l);
    case RU_PLACE_TOPO:
        return rui_place_topo(g, s->scratch, l);
    case RU_PLACE_ETF:
    case RU_PLACE_SCT:
        return rui_place_etf(g, child, ties, s->scratch, l);
    case RU_PLACE_HEFT:
        return rui_place_heft(g, s->scratch, l);
    case RU_PLACE_SPLIT:
        return rui_place_split(g, s->scratch, l);
    case RU_PLACE_LOAD:
        return rui_place_load(g, s->scratch, l);
    case RU_PLACE_GIVEN:
        return rui_place_given(g, l);
    case RU_PLACE_SEARCH:
    case RU_PLACE_METHODS:
        break;
    }
    return RU_E_BUG;
}

/* As links allow: transfers as they get ready or in the order of their readers, whichever is
 * shorter. Into s->now when it is shorter than that. */
static ru_status run_list(search *s, const rui_place_list *l, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(s->scratch);
    rui_place_room room;
    rui_place_sched fifo;
    if (!rui_place_room_new(&s->g, s->scratch, &room) ||
        !rui_place_sched_new(&s->g, s->scratch, &fifo) ||
        !rui_place_play(&s->g, l->unit_dev, l->seq, s->scratch, &fifo)) {
        return no_memory(s, err);
    }
    int64_t step = rui_place_decode(&s->g, l->unit_dev, l->seq, INT64_MAX - 1, &room);
    if (fifo.step_ns <= step && fifo.step_ns < s->now.step_ns) {
        rui_place_sched_copy(&s->g, &s->now, &fifo);
    } else if (step < s->now.step_ns) {
        rui_place_take(&s->g, l->unit_dev, &room, step, &s->now);
    }
    s->work += 2 * ((int64_t)s->g.n + s->g.m);
    ru_arena_rewind(s->scratch, mark);
    return RU_OK;
}

/* One heuristic; the best of its plans in s->now. */
static ru_status try_method(search *s, ru_place_method m, rui_place_list *best, ru_err *err)
{
    bool earliest = m == RU_PLACE_ETF || m == RU_PLACE_SCT;
    uint32_t *child = NULL, ties = earliest && s->g.n <= TIES_OPS_MAX ? RUI_PLACE_TIES : 1;
    ru_status got = RU_E_INFEASIBLE;
    s->now.step_ns = INT64_MAX;
    if (m == RU_PLACE_SCT) {
        child = RU_NEW(s->scratch, uint32_t, s->g.n);
        if (child == NULL) {
            return no_memory(s, err);
        }
        RU_TRY(rui_place_children(&s->g, s->solver, s->scratch, child, err));
    }
    for (uint32_t k = 0; k < ties; k++) {
        rui_place_list l;
        int64_t before = s->now.step_ns;
        if (!new_list(&s->g, s->scratch, &l)) {
            return no_memory(s, err);
        }
        ru_status st = make_list(s, m, child, k, &l);
        if (st == RU_E_INFEASIBLE || (st == RU_OK && !within_memory(&s->g, &l))) {
            continue;
        }
        if (st != RU_OK) {
            return no_memory(s, err);
        }
        RU_TRY(run_list(s, &l, err));
        *best = s->now.step_ns < before ? l : *best;
        got = RU_OK;
    }
    return got;
}

/* Keeps lists by step, earlier ones first among equals. */
static void add_list(search *s, ru_place_method m, const rui_place_list *l)
{
    uint32_t k = s->n_lists++;
    for (; k > 0 && s->steps[k - 1] > s->now.step_ns; k--) {
        s->steps[k] = s->steps[k - 1];
        s->lists[k] = s->lists[k - 1];
    }
    s->steps[k] = s->now.step_ns;
    s->lists[k] = *l;
    if (s->now.step_ns < s->best.step_ns) {
        rui_place_sched_copy(&s->g, &s->best, &s->now);
        s->from = m;
    }
}

/* Why nothing fits. */
static ru_status explain(const rui_place *g, ru_err *err)
{
    int64_t room = 0, most = 0, need = 0, largest = 0;
    uint32_t at = 0;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        room = g->memory[d] == INT64_MAX || room > INT64_MAX - g->memory[d] ? INT64_MAX
                                                                            : room + g->memory[d];
        most = g->memory[d] > most ? g->memory[d] : most;
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        need += g->unit_bytes[u];
        at = g->unit_bytes[u] > largest ? u : at;
        largest = g->unit_bytes[u] > largest ? g->unit_bytes[u] : largest;
    }
    if (largest > most) {
        return RU_FAIL(
            err, RU_E_INFEASIBLE,
            "op %u and the other ops of its group keep %lld bytes, but the largest device has %lld",
            g->unit_op[g->unit_at[at]], (long long)largest, (long long)most);
    }
    if (need > room) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the ops keep %lld bytes, but all devices together have %lld",
                       (long long)need, (long long)room);
    }
    return RU_FAIL(err, RU_E_INFEASIBLE,
                   "no placement was found that fits: the ops keep %lld bytes and the devices have "
                   "%lld, but groups and pins do not permit to distribute them",
                   (long long)need, (long long)room);
}

static ru_status try_all(search *s, ru_err *err)
{
    for (uint32_t m = RU_PLACE_SINGLE; m < RU_PLACE_METHODS; m++) {
        rui_place_list l = {NULL, NULL};
        ru_err why;
        ru_status st = try_method(s, (ru_place_method)m, &l, &why);
        if (st == RU_OK) {
            add_list(s, (ru_place_method)m, &l);
        } else if (st != RU_OK && st != RU_E_INFEASIBLE && st != RU_E_UNSUPPORTED) {
            return RU_FAIL(err, st, "%s", why.text);
        }
    }
    if (s->n_lists == 0) {
        rui_place_list l;
        if (!new_list(&s->g, s->scratch, &l)) {
            return no_memory(s, err);
        }
        ru_status st = rui_place_pack(&s->g, s->scratch, &l);
        if (st == RU_E_INFEASIBLE) {
            return explain(&s->g, err);
        }
        if (st != RU_OK) {
            return no_memory(s, err);
        }
        s->now.step_ns = INT64_MAX;
        RU_TRY(run_list(s, &l, err));
        add_list(s, RU_PLACE_SEARCH, &l);
    }
    return RU_OK;
}

/* The search on a graph of fewer ops, each of them some ops that run one after another; what it
 * finds becomes one more start. */
static ru_status search_coarse(search *s, int64_t work_max, ru_err *err)
{
    const rui_place *g = &s->g;
    rui_place c;
    rui_place_list l, best;
    uint32_t *of = RU_NEW(s->scratch, uint32_t, g->n);
    if (of == NULL || !rui_place_coarsen(g, g->in->coarse_ops, s->scratch, &c, of)) {
        return no_memory(s, err);
    }
    if (c.n == g->n) {
        return RU_OK;
    }
    if (!new_list(&c, s->scratch, &best) || !new_list(g, s->scratch, &l)) {
        return no_memory(s, err);
    }
    rui_place_list from[RU_PLACE_METHODS + 1];
    uint32_t n_from = 0;
    for (uint32_t k = 0; k < s->n_lists; k++) {
        if (!new_list(&c, s->scratch, &from[n_from])) {
            return no_memory(s, err);
        }
        if (!rui_place_to_coarse(g, &c, of, &s->lists[k], s->scratch, &from[n_from])) {
            return no_memory(s, err);
        }
        n_from += within_memory(&c, &from[n_from]) ? 1 : 0;
    }
    if (n_from == 0) {
        return RU_OK;
    }
    rui_place_walk w = {.from = from,
                        .n_from = n_from,
                        .bound_ns = s->bound_ns,
                        .work_max = work_max,
                        .heat = HEAT};
    if (!rui_place_anneal(&c, &w, s->scratch, &best, NULL) ||
        !rui_place_to_fine(g, &c, of, &best, s->scratch, &l)) {
        return no_memory(s, err);
    }
    s->work += w.work;
    s->now.step_ns = INT64_MAX;
    RU_TRY(run_list(s, &l, err));
    add_list(s, RU_PLACE_SEARCH, &l);
    return RU_OK;
}

static ru_status search_all(search *s, ru_err *err)
{
    const ru_place_in *in = s->g.in;
    RU_TRY(try_all(s, err));
    bool coarse = s->g.n > in->coarse_ops && in->coarse_ops > 0;
    if (coarse && s->best.step_ns > s->bound_ns) {
        RU_TRY(search_coarse(s, (int64_t)((double)in->work_max * COARSE_SHARE), err));
    }
    if (s->best.step_ns > s->bound_ns && in->work_max > s->work) {
        rui_place_list best;
        int64_t before = s->best.step_ns;
        rui_place_walk w = {.from = s->lists,
                            .n_from = s->n_lists,
                            .bound_ns = s->bound_ns,
                            .work_max = in->work_max - s->work,
                            .heat = coarse ? HEAT_FINE : HEAT};
        if (!new_list(&s->g, s->scratch, &best) ||
            !rui_place_anneal(&s->g, &w, s->scratch, &best, &s->best)) {
            return no_memory(s, err);
        }
        s->work += w.work;
        s->from = s->best.step_ns < before ? RU_PLACE_SEARCH : s->from;
    }
    return RU_OK;
}

static ru_status plan_method(search *s, ru_err *err)
{
    ru_place_method m = s->g.in->method;
    rui_place_list l = {NULL, NULL};
    ru_status st = try_method(s, m, &l, err);
    if (st == RU_E_INFEASIBLE) {
        return m == RU_PLACE_GIVEN
                   ? RU_FAIL(err, st,
                             "the given placement names no device for some op, breaks a "
                             "group or pin, or does not fit into memory")
                   : RU_FAIL(err, st, "this method finds no placement that fits into memory");
    }
    RU_TRY(st);
    rui_place_sched_copy(&s->g, &s->best, &s->now);
    s->from = m;
    return RU_OK;
}

/* What each op takes on the device of the best plan. */
static ru_status put_took(const search *s, ru_arena *out, const int64_t **took, ru_err *err)
{
    const rui_place *g = &s->g;
    uint32_t *unit_dev = RU_NEW(s->scratch, uint32_t, g->n_units);
    int64_t *at = RU_NEW(out, int64_t, g->n);
    if (unit_dev == NULL || at == NULL) {
        return no_memory(s, err);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        unit_dev[g->unit[i]] = s->best.device[i];
    }
    for (uint32_t i = 0; i < g->n; i++) {
        at[i] = rui_place_runs(g, unit_dev, i, s->best.device[i]);
    }
    *took = at;
    return RU_OK;
}

ru_status ru_plan_place(const ru_place_in *in, const ru_solver *solver, ru_arena *out,
                        ru_arena *scratch, ru_place_plan *plan, ru_err *err)
{
    search s = {.solver = solver, .scratch = scratch};
    RU_TRY(rui_place_make(in, scratch, &s.g, err));
    if (!rui_place_sched_new(&s.g, out, &s.best) || !rui_place_sched_new(&s.g, scratch, &s.now) ||
        !rui_place_bound(&s.g, scratch, &s.bound_ns, &s.proof)) {
        return no_memory(&s, err);
    }
    if (in->method == RU_PLACE_SEARCH) {
        RU_TRY(search_all(&s, err));
        int64_t bound = s.bound_ns, step = s.best.step_ns;
        if (step > bound) {
            RU_TRY(rui_place_solve(&s.g, solver, scratch, &s.best, &s.bound_ns, &s.program, err));
        }
        s.proof = s.bound_ns > bound ? RU_PLACE_BY_PROGRAM : s.proof;
        s.from = s.best.step_ns < step ? RU_PLACE_SEARCH : s.from;
    } else {
        RU_TRY(plan_method(&s, err));
    }
    RU_CHECK(s.bound_ns <= s.best.step_ns);
    const int64_t *took = NULL;
    RU_TRY(put_took(&s, out, &took, err));
    *plan = (ru_place_plan){.device = s.best.device,
                            .start_ns = s.best.start,
                            .took_ns = took,
                            .send_ns = s.best.send,
                            .n_ops = in->n,
                            .n_edges = in->n_edges,
                            .step_ns = s.best.step_ns,
                            .bound_ns = s.bound_ns,
                            .proof = s.proof,
                            .program = s.program,
                            .from = s.from,
                            .units = s.g.n_units,
                            .work = s.work};
    return RU_OK;
}
