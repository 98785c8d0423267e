/* Which ways to sum are tried by each method, and the plan around the best one. */
#include "plan/net/sums.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "plan/net/sums_impl.h"

#define KIB (INT64_C(1) << 10)
#define MIB (INT64_C(1) << 20)

/* Of splitting and merging buckets: about as much work as all other ways together. */
enum { POLISH_TASKS = 2000000, POLISH_PLAYS_MAX = 200 };

#define HARDLY 0.25 /* of the gain that is worth no barrier: worth no more pieces */

static ru_status check_in(const ru_sums_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_SUMS_OPS_MAX || in->n_ranks < 2 || in->method >= RU_SUMS_METHODS ||
        in->depth_max < 1 || in->depth_max > RU_SUMS_DEPTH_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u ops, %u ranks and %u sums in flight, method %u; expected 1 to "
                       "%d ops, at least 2 ranks and 1 to %d sums in flight",
                       in->n, in->n_ranks, in->depth_max, (uint32_t)in->method, RU_SUMS_OPS_MAX,
                       RU_SUMS_DEPTH_MAX);
    }
    if (in->alpha_ns < 0 || !(in->beta_ns > 0) || !(in->gamma_ns >= 0) || !isfinite(in->beta_ns) ||
        !isfinite(in->gamma_ns)) {
        return RU_FAIL(err, RU_E_ARG,
                       "alpha is %lld ns, beta %g and gamma %g ns per byte, which is out of range",
                       (long long)in->alpha_ns, in->beta_ns, in->gamma_ns);
    }
    if (!(in->gain_min >= 0 && in->gain_min <= 1)) {
        return RU_FAIL(err, RU_E_ARG, "gain_min is %g, expected 0 to 1", in->gain_min);
    }
    bool any = false;
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, (ru_coll_algo)a, in->n_ranks);
        bool used = (in->algos >> a & 1) != 0;
        if (used && !(t.sent > 0)) {
            return RU_FAIL(err, RU_E_ARG, "the algorithm %s cannot do an all-reduce",
                           ru_coll_algo_name((ru_coll_algo)a));
        }
        any = any || used;
        const ru_coll_cost *c = in->costs != NULL ? &in->costs[a] : &(ru_coll_cost){0};
        if (c->n_points > 0 &&
            (!(c->beta_ns > 0) || !isfinite(c->beta_ns) || !(c->alpha_ns >= 0) ||
             !isfinite(c->alpha_ns) || !(c->gamma_ns >= 0) || !isfinite(c->gamma_ns))) {
            return RU_FAIL(err, RU_E_ARG,
                           "%s: alpha is %g ns, beta %g and gamma %g ns per byte; expected 0 or "
                           "more, beta above 0",
                           ru_coll_algo_name((ru_coll_algo)a), c->alpha_ns, c->beta_ns,
                           c->gamma_ns);
        }
    }
    if (!any || in->algos >> RU_COLL_ALGOS != 0) {
        return RU_FAIL(err, RU_E_ARG, "no algorithm is allowed, or an allowed one is unknown");
    }
    for (uint32_t i = 0; i < in->n; i++) {
        if (in->forward_ns[i] < 0 || in->backward_ns[i] < 0 || in->param_bytes[i] < 0) {
            return RU_FAIL(err, RU_E_ARG,
                           "op %u takes %lld and %lld ns and has %lld bytes; expected 0 or more", i,
                           (long long)in->forward_ns[i], (long long)in->backward_ns[i],
                           (long long)in->param_bytes[i]);
        }
    }
    return RU_OK;
}

/* A given backward order has every op once, and none before an op that reads its result. */
static ru_status check_made(const ru_sums_in *in, ru_arena *scratch, ru_err *err)
{
    uint32_t *place = in->made != NULL ? RU_NEW(scratch, uint32_t, in->n) : NULL;
    if (in->made == NULL) {
        return RU_OK;
    }
    if (place == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the backward order of %u ops", in->n);
    }
    for (uint32_t k = 0; k < in->n; k++) {
        if (in->made[k] >= in->n || place[in->made[k]] != 0) {
            return RU_FAIL(err, RU_E_ARG, "the backward order has op %u twice, or there is none",
                           in->made[k]);
        }
        place[in->made[k]] = k + 1;
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        const ru_step_edge *x = &in->edges[e];
        if (place[x->to] > place[x->from]) {
            return RU_FAIL(err, RU_E_ARG,
                           "the backward order has op %u before op %u, which reads it", x->from,
                           x->to);
        }
    }
    return RU_OK;
}

/* The one with the fewest pieces of the plans that take hardly longer than the shortest, since a
 * sum costs more than the model says where the processor is busy. */
typedef struct lean {
    ru_sums_plan plan; /* step_ns 0: none yet */
    int64_t least_ns;  /* of the shortest */
} lean;

typedef struct search {
    rui_sums_graph g;
    const uint32_t *backward[RUI_SUMS_ORDERS]; /* the same as an earlier one when equal */
    ru_arena *scratch;
    ru_sums_plan best; /* step_ns 0: none yet */
    lean held, free;   /* with a barrier; without one */
    rui_sums_way way;
    uint32_t tried;
} search;

/* Does the plan take the place of the one that was kept? */
static bool keep_lean(search *s, const ru_sums_plan *p)
{
    lean *l = p->barrier ? &s->held : &s->free;
    double part = p->barrier ? HARDLY * s->g.in->gain_min : RUI_SUMS_TIE;
    if (p->step_ns == 0) { /* there is none: no way could be played */
        return false;
    }
    int64_t was = l->plan.step_ns;
    l->least_ns = was == 0 || p->step_ns < l->least_ns ? p->step_ns : l->least_ns;
    double most = (1 + part) * (double)l->least_ns;
    bool fewer =
        p->n_pieces < l->plan.n_pieces || (p->n_pieces == l->plan.n_pieces && p->step_ns < was);
    bool better = was == 0 || ((double)p->step_ns <= most && ((double)was > most || fewer));
    l->plan = better ? *p : l->plan;
    return better;
}

/* Play a way; keep it when it is the first or the shortest so far. A way with too many pieces is
 * left out. Errors: those of playing. */
static ru_status try_way(search *s, rui_sums_way way, ru_err *err)
{
    way.depth = way.depth < 1 ? 1 : way.depth;
    ru_arena_mark mark = ru_arena_mark_get(s->scratch);
    ru_sums_plan p;
    ru_status st = rui_sums_make(&s->g, &way, s->backward[way.order], s->scratch, &p, err);
    if (st == RU_E_LIMIT && s->tried > 0) {
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(rui_sums_predict(&s->g, s->scratch, &p, err));
    bool kept = keep_lean(s, &p);
    if (s->tried == 0 || p.step_ns < s->best.step_ns) {
        s->best = p;
        s->way = way;
    } else if (!kept) {
        ru_arena_rewind(s->scratch, mark);
    }
    s->tried++;
    return RU_OK;
}

/* The size whose start costs `part` of its transfer. */
static int64_t chunk_of(const ru_sums_in *in, double part)
{
    ru_coll_algo algo = rui_sums_algo(in, 64 * MIB);
    ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, algo, in->n_ranks);
    ru_coll_cost cost = rui_sums_cost(in, algo);
    double per_byte = t.sent * cost.beta_ns;
    if (cost.n_at >= 2) {
        per_byte = ru_cost_coll_byte_ns(&cost, RU_COLL_ALL_REDUCE, algo, in->n_ranks);
    }
    double bytes = t.steps * cost.alpha_ns / (part * per_byte);
    return bytes < 64.0 * KIB ? 64 * KIB : bytes > 64.0 * MIB ? 64 * MIB : (int64_t)bytes;
}

/* A twentieth, where transfers do not decide alone; else a hundredth: cutting buys little there. */
static int64_t rule_chunk(const search *s)
{
    const ru_sums_in *in = s->g.in;
    double compute = (double)s->g.forward_ns;
    for (uint32_t i = 0; i < in->n; i++) {
        compute += (double)in->backward_ns[i];
    }
    double comm = (double)s->g.bytes * rui_sums_per_byte_ns(in);
    return chunk_of(in, comm <= 1.5 * compute ? 0.05 : 0.01);
}

static ru_status try_rule(search *s, ru_err *err)
{
    int64_t c = rule_chunk(s);
    return try_way(s,
                   (rui_sums_way){.group = RUI_SUMS_SIZE,
                                  .size = c,
                                  .chunk = c,
                                  .barrier = s->g.in->barrier,
                                  .by_priority = true},
                   err);
}

static ru_status try_ddp(search *s, ru_err *err)
{
    return try_way(
        s, (rui_sums_way){.group = RUI_SUMS_SIZE, .first = MIB, .size = 25 * MIB, .barrier = true},
        err);
}

static ru_status try_mgwfbp(search *s, ru_err *err)
{
    return try_way(s, (rui_sums_way){.group = RUI_SUMS_WALK, .size = INT64_MAX, .barrier = true},
                   err);
}

static ru_status try_horovod(search *s, ru_err *err)
{
    static const int64_t sizes[] = {64, 128, 1, 2, 4, 8, 16, 32};
    static const int64_t cycles[] = {1000000, 2500000, 5000000, 10000000};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(sizes); i++) {
        for (uint32_t k = 0; k < RU_ARRAY_LEN(cycles); k++) {
            RU_TRY(try_way(s,
                           (rui_sums_way){.group = RUI_SUMS_TICK,
                                          .size = sizes[i] * MIB,
                                          .cycle_ns = cycles[k],
                                          .barrier = true},
                           err));
        }
    }
    return RU_OK;
}

/* Whole tensors in partitions of 1 to 128 MiB, credit for one to depth_max of them. */
static ru_status try_partitions(search *s, uint32_t depth_max, ru_err *err)
{
    static const int64_t sizes[] = {32, 1, 2, 4, 8, 16, 64, 128};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(sizes); i++) {
        for (uint32_t d = 1; d <= depth_max; d *= 2) {
            RU_TRY(try_way(s,
                           (rui_sums_way){.group = RUI_SUMS_EACH,
                                          .chunk = sizes[i] * MIB,
                                          .depth = d,
                                          .barrier = s->g.in->barrier,
                                          .by_priority = true},
                           err));
        }
    }
    return RU_OK;
}

/* Groups times chunks by priority, in both backward orders. */
static ru_status try_groups(search *s, int64_t c, ru_err *err)
{
    const rui_sums_way groups[] = {
        {.group = RUI_SUMS_SIZE, .size = c},         {.group = RUI_SUMS_WALK, .size = c},
        {.group = RUI_SUMS_WALK, .size = INT64_MAX}, {.group = RUI_SUMS_SIZE, .size = MIB / 4},
        {.group = RUI_SUMS_SIZE, .size = MIB},       {.group = RUI_SUMS_SIZE, .size = 4 * MIB},
        {.group = RUI_SUMS_SIZE, .size = 16 * MIB},  {.group = RUI_SUMS_EACH}};
    uint32_t orders = s->backward[0] == s->backward[1] ? 1 : 2;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(groups) * 2 * orders; k++) {
        rui_sums_way way = groups[k / 2 % RU_ARRAY_LEN(groups)];
        way.chunk = k % 2 == 0 ? c : 0;
        way.order = k / 2 >= RU_ARRAY_LEN(groups) ? RUI_SUMS_JOHNSON : RUI_SUMS_REVERSE;
        way.by_priority = true;
        way.barrier = s->g.in->barrier;
        RU_TRY(try_way(s, way, err));
    }
    return RU_OK;
}

/* The best way, and single tensors whole, in the other backward orders. */
static ru_status try_orders(search *s, ru_err *err)
{
    rui_sums_way base = s->way;
    for (uint32_t k = RUI_SUMS_LONGEST; k < RUI_SUMS_ORDERS; k++) {
        bool fresh = true;
        for (uint32_t i = 0; i < k; i++) {
            fresh = fresh && s->backward[i] != s->backward[k];
        }
        if (fresh) {
            rui_sums_way way = base;
            way.order = (rui_sums_order)k;
            RU_TRY(try_way(s, way, err));
            RU_TRY(try_way(s,
                           (rui_sums_way){.group = RUI_SUMS_EACH,
                                          .order = way.order,
                                          .barrier = s->g.in->barrier,
                                          .by_priority = true},
                           err));
        }
    }
    return RU_OK;
}

/* INT64_MAX is no bound on bytes, and stays so. */
static int64_t times(int64_t bytes, double by)
{
    double x = (double)bytes * by;
    return x < (double)INT64_MAX ? (int64_t)x : INT64_MAX;
}

/* Around the best: other sizes of chunk and bucket, then more in flight for a gain of a twentieth
 * (its chunks may be smaller). */
static ru_status refine(search *s, int64_t c, ru_err *err)
{
    static const double scales[] = {0.25, 0.5, 2, 4, 8};
    rui_sums_way base = s->way;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(scales); k++) {
        rui_sums_way way = base;
        way.chunk = times(c, scales[k]);
        RU_TRY(try_way(s, way, err));
        way = base;
        way.size = base.group == RUI_SUMS_SIZE ? times(base.size, scales[k]) : base.size;
        RU_TRY(try_way(s, way, err));
    }
    int64_t last = s->best.step_ns;
    for (uint32_t d = 2; d <= s->g.in->depth_max; d *= 2) {
        rui_sums_way way = s->way;
        way.depth = d;
        RU_TRY(try_way(s, way, err));
        way.chunk = way.chunk / 2 > 64 * KIB ? way.chunk / 2 : way.chunk;
        RU_TRY(try_way(s, way, err));
        if ((double)s->best.step_ns > 0.95 * (double)last) {
            break;
        }
        last = s->best.step_ns;
    }
    return RU_OK;
}

/* How many plans may be played while buckets are split and merged: their tasks are bounded. */
static uint32_t polish_max(const search *s)
{
    int64_t tasks = RU_SUMS_PLAYED * (2 * (int64_t)s->g.in->n + s->best.n_pieces + 1);
    int64_t plays = POLISH_TASKS / tasks;
    return plays < POLISH_PLAYS_MAX ? (uint32_t)plays : POLISH_PLAYS_MAX;
}

/* Split or merge buckets at one tensor after another, as long as it helps. */
static ru_status polish(search *s, ru_err *err)
{
    uint32_t n = s->best.n_tensors, left = polish_max(s);
    bool *begins = RU_NEW(s->scratch, bool, n);
    if (begins == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for %u buckets", n);
    }
    for (uint32_t i = 0; i < s->best.n_buckets; i++) {
        begins[s->best.buckets[i].first] = true;
    }
    for (bool better = s->best.by_priority; better && left > 0;) {
        better = false;
        for (uint32_t k = 1; k < n && left > 0; k++, left--) {
            ru_arena_mark mark = ru_arena_mark_get(s->scratch);
            ru_sums_plan p;
            begins[k] = !begins[k];
            ru_status st =
                rui_sums_regroup(&s->g, &s->best, begins, s->way.chunk, s->scratch, &p, err);
            st = st == RU_OK ? rui_sums_predict(&s->g, s->scratch, &p, err) : st;
            if (st == RU_OK && p.step_ns < s->best.step_ns) {
                s->best = p;
                (void)keep_lean(s, &p);
                better = true;
            } else {
                begins[k] = !begins[k];
                ru_arena_rewind(s->scratch, mark);
            }
            RU_TRY(st == RU_E_LIMIT ? RU_OK : st);
        }
    }
    return RU_OK;
}

static ru_status try_baseline(search *s, ru_sums_method method, ru_err *err)
{
    switch (method) {
    case RU_SUMS_RULE:
        return try_rule(s, err);
    case RU_SUMS_NONE:
        return try_way(
            s,
            (rui_sums_way){
                .group = RUI_SUMS_SIZE, .size = INT64_MAX, .barrier = true, .after = true},
            err);
    case RU_SUMS_SERIAL:
        return try_way(s, (rui_sums_way){.group = RUI_SUMS_EACH, .barrier = true, .after = true},
                       err);
    case RU_SUMS_FIFO:
        return try_way(s, (rui_sums_way){.group = RUI_SUMS_EACH, .barrier = true}, err);
    case RU_SUMS_DDP:
        return try_ddp(s, err);
    case RU_SUMS_HOROVOD:
        return try_horovod(s, err);
    case RU_SUMS_MGWFBP:
        return try_mgwfbp(s, err);
    case RU_SUMS_P3:
        return try_way(s,
                       (rui_sums_way){.group = RUI_SUMS_EACH,
                                      .chunk = 200000,
                                      .barrier = s->g.in->barrier,
                                      .by_priority = true},
                       err);
    case RU_SUMS_BYTESCHEDULER:
        return try_partitions(s, s->g.in->depth_max, err);
    case RU_SUMS_CARAMEL:
    case RU_SUMS_METHODS:
        break;
    }
    return RU_FAIL(err, RU_E_ARG, "there is no such method");
}

/* Every way of a baseline, then those of ours: no baseline has a shorter step. */
static ru_status try_all(search *s, ru_err *err)
{
    int64_t c = rule_chunk(s);
    for (uint32_t m = RU_SUMS_CARAMEL + 1; m < RU_SUMS_METHODS; m++) {
        RU_TRY(try_baseline(s, (ru_sums_method)m, err));
    }
    RU_TRY(try_groups(s, c, err));
    RU_TRY(try_orders(s, err));
    RU_TRY(refine(s, c, err));
    return polish(s, err);
}

static ru_status try_method(search *s, ru_err *err)
{
    ru_sums_method method = s->g.in->method;
    return method == RU_SUMS_CARAMEL ? try_all(s, err) : try_baseline(s, method, err);
}

/* The same with each allowed algorithm alone: which is best for pieces of a size does not say which
 * is best for the step. Errors: those of trying; one that finds no way counts for nothing. */
static ru_status try_alone(search *s, ru_err *err)
{
    const ru_sums_in *in = s->g.in;
    if (in->method != RU_SUMS_CARAMEL || (in->algos & (in->algos - 1)) == 0) {
        return RU_OK;
    }
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        if ((in->algos >> a & 1) == 0) {
            continue;
        }
        search other = *s;
        ru_sums_in one = *in;
        one.algos = 1U << a;
        other.g.in = &one;
        other.tried = 0;
        RU_TRY(try_all(&other, err));
        (void)keep_lean(s, &other.held.plan);
        (void)keep_lean(s, &other.free.plan);
        if (other.best.step_ns < s->best.step_ns) {
            other.best.bound_ns = s->best.bound_ns; /* of all of them */
            s->best = other.best;
        }
    }
    return RU_OK;
}

/* The leanest plan without a barrier, or with one when that takes hardly longer: the best of the
 * ways that have one, or the best plan's buckets with one. */
static ru_status weigh(search *s, ru_err *err)
{
    const ru_sums_in *in = s->g.in;
    if (in->method != RU_SUMS_CARAMEL) {
        return RU_OK;
    }
    ru_sums_plan p = s->best;
    int64_t bound = s->best.bound_ns, free = s->best.barrier ? 0 : s->free.plan.step_ns;
    p.barrier = true;
    RU_TRY(rui_sums_predict(&s->g, s->scratch, &p, err));
    (void)keep_lean(s, &p);
    int64_t held = s->held.plan.step_ns;
    bool holds = free == 0 || (double)free > (1 - in->gain_min) * (double)held;
    s->best = holds ? s->held.plan : s->free.plan;
    s->best.bound_ns = bound; /* of all algorithms */
    s->best.held_ns = held;
    s->best.free_ns = free;
    return RU_OK;
}

/* Baselines have the first one. */
static bool make_orders(search *s)
{
    uint32_t n = s->g.in->n, orders = s->g.in->method == RU_SUMS_CARAMEL ? RUI_SUMS_ORDERS : 1;
    for (uint32_t k = 0; k < RUI_SUMS_ORDERS && s->g.in->made != NULL; k++) {
        s->backward[k] = s->g.in->made;
    }
    if (s->g.in->made != NULL) {
        return true;
    }
    for (uint32_t k = 0; k < orders; k++) {
        uint32_t *order = RU_NEW(s->scratch, uint32_t, n);
        if (order == NULL || !rui_sums_backward(&s->g, (rui_sums_order)k, s->scratch, order)) {
            return false;
        }
        s->backward[k] = order;
        for (uint32_t i = 0; i < k; i++) {
            bool same = memcmp(s->backward[i], order, n * sizeof *order) == 0;
            s->backward[k] = same && s->backward[k] == order ? s->backward[i] : s->backward[k];
        }
    }
    return true;
}

/* The plan moves to `out`. */
static bool keep(const ru_sums_plan *p, uint32_t n, ru_arena *out, ru_sums_plan *plan)
{
    const int64_t word = (int64_t)sizeof(uint32_t);
    ru_sums_plan q = *p;
    q.backward = ru_arena_copy(out, p->backward, n * word, word);
    q.tensors = ru_arena_copy(out, p->tensors, p->n_tensors * word, word);
    q.buckets = ru_arena_copy(out, p->buckets, p->n_buckets * (int64_t)sizeof *p->buckets, 8);
    *plan = q;
    return q.backward != NULL && q.tensors != NULL && q.buckets != NULL;
}

ru_status ru_plan_sums(const ru_sums_in *in, ru_arena *out, ru_arena *scratch, ru_sums_plan *plan,
                       ru_err *err)
{
    RU_TRY(check_in(in, err));
    search s = {.scratch = scratch};
    RU_TRY(rui_sums_graph_make(in, scratch, &s.g, err));
    RU_TRY(check_made(in, scratch, err));
    ru_sums_plan p;
    if (!make_orders(&s)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the backward order of %u ops", in->n);
    }
    RU_TRY(try_method(&s, err));
    RU_TRY(try_alone(&s, err));
    RU_TRY(weigh(&s, err));
    if (!keep(&s.best, in->n, out, &p)) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for a plan of %u buckets",
                       s.best.n_buckets);
    }
    *plan = p;
    return RU_OK;
}
