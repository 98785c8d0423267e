/* What a way to sum gradients costs: steps played one after another. */
#include <math.h>
#include <stddef.h>

#include "plan/net/sums_impl.h"

/* At least 1 ns: sums that take no time would make the order of equal instants matter. */
static int64_t whole_ns(double ns)
{
    return ns < 1 ? 1 : ns < 0x1p60 ? (int64_t)floor(ns + 0.5) : INT64_C(1) << 60;
}

ru_coll_cost rui_sums_cost(const ru_sums_in *in, ru_coll_algo algo)
{
    bool own = in->costs != NULL && in->costs[algo].n_points > 0;
    return own ? in->costs[algo]
               : (ru_coll_cost){.alpha_ns = (double)in->alpha_ns,
                                .beta_ns = in->beta_ns,
                                .gamma_ns = in->gamma_ns};
}

/* What was measured of one sum was measured while nobody else was on the links: behind others a
 * byte takes as long as of the largest ones, beyond what a shaped link lets go at full speed. */
static double link_ns(const ru_sums_in *in, const ru_coll_cost *c, ru_coll_algo algo, double size)
{
    return c->alpha_ns + ru_cost_coll_byte_ns(c, RU_COLL_ALL_REDUCE, algo, in->n_ranks) * size;
}

static double exact_ns(const ru_sums_in *in, ru_coll_algo algo, int64_t size_bytes)
{
    ru_coll_cost c = rui_sums_cost(in, algo);
    double size = (double)size_bytes;
    if (c.n_at >= 2) {
        int64_t alone = ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, algo, in->n_ranks, size_bytes);
        return fmax((double)alone, link_ns(in, &c, algo, size));
    }
    ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, algo, in->n_ranks);
    return t.steps * c.alpha_ns + t.sent * size * c.beta_ns + t.added * size * c.gamma_ns;
}

int64_t rui_sums_ns(const ru_sums_in *in, ru_coll_algo algo, int64_t size_bytes)
{
    return whole_ns(exact_ns(in, algo, size_bytes));
}

int64_t rui_sums_held_ns(const ru_sums_in *in, ru_coll_algo algo, int64_t size_bytes,
                         uint32_t depth)
{
    ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, algo, in->n_ranks);
    ru_coll_cost c = rui_sums_cost(in, algo);
    double whole = exact_ns(in, algo, size_bytes), size = (double)size_bytes;
    double busy =
        c.n_at >= 2 ? link_ns(in, &c, algo, size) : c.alpha_ns + t.busy * size * c.beta_ns;
    return whole_ns(fmin(whole, fmax(whole / depth, busy)));
}

ru_coll_algo rui_sums_algo(const ru_sums_in *in, int64_t size_bytes)
{
    ru_coll_algo best = RU_COLL_ALGOS;
    int64_t least = INT64_MAX;
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        if ((in->algos >> a & 1) != 0 && rui_sums_ns(in, (ru_coll_algo)a, size_bytes) < least) {
            best = (ru_coll_algo)a;
            least = rui_sums_ns(in, best, size_bytes);
        }
    }
    RU_CHECK(best != RU_COLL_ALGOS);
    return best;
}

double rui_sums_per_byte_ns(const ru_sums_in *in)
{
    double least = (double)INFINITY;
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, (ru_coll_algo)a, in->n_ranks);
        ru_coll_cost c = rui_sums_cost(in, (ru_coll_algo)a);
        double per_byte = t.busy * c.beta_ns; /* with enough in flight */
        per_byte = in->depth_max == 1 ? t.sent * c.beta_ns + t.added * c.gamma_ns : per_byte;
        per_byte = c.n_at >= 2
                       ? ru_cost_coll_byte_ns(&c, RU_COLL_ALL_REDUCE, (ru_coll_algo)a, in->n_ranks)
                       : per_byte;
        least = (in->algos >> a & 1) != 0 ? fmin(least, per_byte) : least;
    }
    return least;
}

/* Tasks of the played steps. Server 0 computes, in the order of its tasks; server 1 is the network.
 * In step k: task base + i is the forward, base + n + i the backward pass of the i-th op of their
 * order, then the pieces, then the end of the step. */
typedef struct stage {
    const rui_sums_graph *g;
    const ru_sums_plan *plan;
    ru_step_task *tasks;
    ru_step_edge *edges;
    uint32_t n, n_edges, n_steps;
    uint32_t per_step; /* tasks */
    uint32_t *made;    /* [n] place in the backward order */
    uint32_t *urgency; /* [n_buckets] */
} stage;

static void add_edge(stage *s, uint32_t from, uint32_t to)
{
    s->edges[s->n_edges++] = (ru_step_edge){from, to};
}

static void put_compute(stage *s, uint32_t step)
{
    const ru_sums_in *in = s->g->in;
    uint32_t base = step * s->per_step;
    for (uint32_t k = 0; k < in->n; k++) {
        uint32_t forward = s->g->topo[k], backward = s->plan->backward[k];
        s->tasks[base + k] = (ru_step_task){.ns = in->forward_ns[forward], .rank = base + k};
        s->tasks[base + in->n + k] =
            (ru_step_task){.ns = in->backward_ns[backward], .rank = base + in->n + k};
    }
    uint32_t end = base + s->per_step - 1;
    s->tasks[end] = (ru_step_task){.rank = end}; /* waits for the backward pass: it stands behind */
}

/* The next step's forward pass of an op of the bucket waits for the pieces with its bytes. */
static void release(stage *s, uint32_t step, const ru_sums_bucket *b, uint32_t piece, int64_t from,
                    int64_t to)
{
    int64_t at = 0;
    for (uint32_t k = b->first; k < b->first + b->n; k++) {
        uint32_t op = s->plan->tensors[k];
        int64_t end = at + s->g->in->param_bytes[op];
        if (end > from && at < to && step + 1 < s->n_steps) {
            add_edge(s, piece, (step + 1) * s->per_step + s->g->place[op]);
        }
        at = end;
    }
}

static void put_pieces(stage *s, uint32_t step)
{
    const ru_sums_in *in = s->g->in;
    const ru_sums_plan *p = s->plan;
    uint32_t base = step * s->per_step, at = base + 2 * in->n;
    for (uint32_t i = 0; i < p->n_buckets; i++) {
        const ru_sums_bucket *b = &p->buckets[i];
        uint32_t last = 0; /* the bucket is ready when its last gradient is */
        for (uint32_t k = b->first; k < b->first + b->n; k++) {
            last = s->made[p->tensors[k]] > last ? s->made[p->tensors[k]] : last;
        }
        last = p->after ? in->n - 1 : last;
        for (int64_t from = 0; from < b->size_bytes; from += b->chunk_bytes, at++) {
            int64_t rest = b->size_bytes - from;
            int64_t size = rest < b->chunk_bytes ? rest : b->chunk_bytes;
            int64_t held = rui_sums_held_ns(in, b->algo, size, p->depth);
            s->tasks[at] =
                (ru_step_task){.ns = held,
                               .latency_ns = rui_sums_ns(in, b->algo, size) - held,
                               .ready_ns = b->ready_ns,
                               .rank = p->by_priority ? (int64_t)step * in->n + s->urgency[i] : at,
                               .server = 1};
            add_edge(s, base + in->n + last, at);
            if (p->barrier) {
                add_edge(s, at, base + s->per_step - 1);
            } else {
                release(s, step, b, at, from, from + size);
            }
        }
    }
}

static bool stage_init(stage *s, ru_arena *a)
{
    const ru_sums_plan *p = s->plan;
    uint32_t n = s->g->in->n;
    s->n_steps = p->barrier ? 1 : RU_SUMS_PLAYED;
    s->per_step = 2 * n + p->n_pieces + 1;
    s->n = s->n_steps * s->per_step;
    /* a piece has one edge in; out, one for each tensor it touches or one to the end */
    int64_t edges = (int64_t)s->n_steps * (2 * (int64_t)p->n_pieces + p->n_tensors + 1);
    s->tasks = RU_NEW(a, ru_step_task, s->n);
    s->edges = RU_NEW(a, ru_step_edge, edges);
    s->made = RU_NEW(a, uint32_t, n);
    s->urgency = RU_NEW(a, uint32_t, p->n_buckets);
    if (s->tasks == NULL || s->edges == NULL || s->made == NULL || s->urgency == NULL) {
        return false;
    }
    for (uint32_t k = 0; k < n; k++) {
        s->made[p->backward[k]] = k;
    }
    for (uint32_t i = 0; i < p->n_buckets; i++) {
        s->urgency[i] = UINT32_MAX;
        for (uint32_t k = p->buckets[i].first; k < p->buckets[i].first + p->buckets[i].n; k++) {
            uint32_t need = s->g->place[p->tensors[k]];
            s->urgency[i] = need < s->urgency[i] ? need : s->urgency[i];
        }
    }
    return true;
}

static ru_status play(stage *s, ru_arena *scratch, ru_step_times *times, ru_err *err)
{
    if (!stage_init(s, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps of %u ops and %u sums",
                       RU_SUMS_PLAYED, s->g->in->n, s->plan->n_pieces);
    }
    for (uint32_t k = 0; k < s->n_steps; k++) {
        put_compute(s, k);
        put_pieces(s, k);
    }
    const bool in_order[2] = {true, !s->plan->by_priority};
    const ru_step_in step = {.tasks = s->tasks,
                             .n = s->n,
                             .edges = s->edges,
                             .n_edges = s->n_edges,
                             .n_servers = 2,
                             .in_order = in_order};
    return ru_cost_step(&step, scratch, scratch, times, err);
}

ru_status rui_sums_predict(const rui_sums_graph *g, ru_arena *scratch, ru_sums_plan *plan,
                           ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    stage s = {.g = g, .plan = plan};
    ru_step_times times;
    RU_TRY(play(&s, scratch, &times, err));
    if (plan->barrier) {
        plan->step_ns = times.end_ns[s.per_step - 1];
    } else {
        int64_t last = times.end_ns[RU_SUMS_PLAYED * s.per_step - 1];
        int64_t first = times.end_ns[(RU_SUMS_PLAYED - RU_SUMS_AVERAGED) * s.per_step - 1];
        plan->step_ns = (last - first) / RU_SUMS_AVERAGED;
    }
    ru_arena_rewind(scratch, mark);
    plan->compute_ns = g->forward_ns;
    for (uint32_t i = 0; i < g->in->n; i++) {
        plan->compute_ns += g->in->backward_ns[i];
    }
    int64_t moved = whole_ns((double)g->bytes * rui_sums_per_byte_ns(g->in));
    plan->bound_ns = moved > plan->compute_ns ? moved : plan->compute_ns;
    return RU_OK;
}

/* When the pieces with bytes [from, to) of bucket i have arrived; its first piece is task `at`. */
static int64_t arrival(const stage *s, const ru_step_times *t, uint32_t i, uint32_t at,
                       int64_t from, int64_t to)
{
    int64_t chunk = s->plan->buckets[i].chunk_bytes, last = 0;
    for (int64_t k = from / chunk; k * chunk < to; k++) {
        uint32_t task = at + (uint32_t)k;
        int64_t when = t->end_ns[task] + s->tasks[task].latency_ns;
        last = when > last ? when : last;
    }
    return last;
}

ru_status ru_sums_times(const ru_sums_in *in, const ru_sums_plan *plan, ru_arena *scratch,
                        ru_sums_time *into, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    rui_sums_graph g;
    ru_step_times t;
    RU_TRY(rui_sums_graph_make(in, scratch, &g, err));
    stage s = {.g = &g, .plan = plan};
    RU_TRY(play(&s, scratch, &t, err));
    uint32_t base = plan->barrier ? 0 : (RU_SUMS_PLAYED - 2) * s.per_step;
    uint32_t at = base + 2 * in->n, next = base + s.per_step;
    int64_t begin = t.start_ns[base], end = t.end_ns[base + 2 * in->n - 1];
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const ru_sums_bucket *b = &plan->buckets[i];
        int64_t from = 0;
        for (uint32_t k = b->first; k < b->first + b->n; k++) {
            uint32_t op = plan->tensors[k], place = g.place[op];
            int64_t to = from + in->param_bytes[op];
            ru_sums_time x = {.op = op, .bucket = i};
            int64_t arrives = arrival(&s, &t, i, at, from, to);
            /* the end of a step is the task before the first op of the next */
            int64_t need = plan->barrier ? end : t.end_ns[next + place - 1];
            int64_t begins = plan->barrier ? arrives : t.start_ns[next + place];
            x.ready_ns = t.end_ns[base + in->n + s.made[op]] - begin;
            x.arrive_ns = arrives - begin;
            x.need_ns = need - begin;
            x.wait_ns = begins > need ? begins - need : 0;
            into[k] = x;
            from = to;
        }
        at += (uint32_t)((b->size_bytes - 1) / b->chunk_bytes) + 1;
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
