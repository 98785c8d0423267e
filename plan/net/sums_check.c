/* The judge of sums: buckets counted, order followed, the steps played by two clocks, one for the
 * computing and one for the network. */
#include <math.h>
#include <stddef.h>

#include "plan/net/sums.h"

typedef struct judge {
    const ru_sums_in *in;
    const ru_sums_plan *plan;
    uint32_t *forward; /* [n] ops in the order of the forward pass */
    uint32_t *place;   /* [n] inverse */
    uint32_t *made;    /* [n] place in the backward order; n: not seen */
    uint32_t *bucket;  /* [n] whose bucket holds the gradient; UINT32_MAX: none */
    int64_t *offset;   /* [n] of the gradient in its bucket */
} judge;

static bool judge_init(judge *j, ru_arena *a)
{
    uint32_t n = j->in->n;
    j->forward = RU_NEW(a, uint32_t, n);
    j->place = RU_NEW(a, uint32_t, n);
    j->made = RU_NEW(a, uint32_t, n);
    j->bucket = RU_NEW(a, uint32_t, n);
    j->offset = RU_NEW(a, int64_t, n);
    return j->forward != NULL && j->place != NULL && j->made != NULL && j->bucket != NULL &&
           j->offset != NULL;
}

/* The smallest op that waits for nobody, again and again. */
static ru_status find_forward(judge *j, ru_arena *a, ru_err *err)
{
    uint32_t n = j->in->n, *waits = RU_NEW(a, uint32_t, n);
    if (waits == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check the sums of %u ops", n);
    }
    for (uint32_t e = 0; e < j->in->n_edges; e++) {
        waits[j->in->edges[e].to]++;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = 0;
        while (i < n && waits[i] != 0) {
            i++;
        }
        if (i == n) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the ops wait for each other in a cycle");
        }
        waits[i] = UINT32_MAX;
        j->forward[k] = i;
        j->place[i] = k;
        for (uint32_t e = 0; e < j->in->n_edges; e++) {
            waits[j->in->edges[e].to] -= j->in->edges[e].from == i ? 1 : 0;
        }
    }
    return RU_OK;
}

static ru_status check_backward(judge *j, ru_err *err)
{
    uint32_t n = j->in->n;
    for (uint32_t i = 0; i < n; i++) {
        j->made[i] = n;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t op = j->plan->backward[k];
        if (op >= n || j->made[op] != n) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the backward pass runs op %u twice", op);
        }
        j->made[op] = k;
        if (j->in->made != NULL && j->in->made[k] != op) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "the backward pass runs op %u where the machine runs op %u", op,
                           j->in->made[k]);
        }
    }
    for (uint32_t e = 0; e < j->in->n_edges; e++) {
        const ru_step_edge *edge = &j->in->edges[e];
        if (j->made[edge->to] > j->made[edge->from]) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "the backward pass runs op %u before op %u, whose gradient it needs",
                           edge->from, edge->to);
        }
    }
    return RU_OK;
}

static ru_status check_buckets(judge *j, ru_err *err)
{
    const ru_sums_plan *p = j->plan;
    uint32_t at = 0, gradients = 0;
    int64_t pieces = 0;
    for (uint32_t i = 0; i < j->in->n; i++) {
        j->bucket[i] = UINT32_MAX;
        gradients += j->in->param_bytes[i] > 0 ? 1 : 0;
    }
    for (uint32_t i = 0; i < p->n_buckets; i++) {
        const ru_sums_bucket *b = &p->buckets[i];
        if (b->first != at || b->n < 1 || b->n > p->n_tensors - at) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "bucket %u has %u gradients from %u on", i, b->n,
                           b->first);
        }
        int64_t size = 0;
        for (at = b->first; at < b->first + b->n; at++) {
            uint32_t op = p->tensors[at];
            if (op >= j->in->n || j->in->param_bytes[op] == 0 || j->bucket[op] != UINT32_MAX) {
                return RU_FAIL(err, RU_E_INFEASIBLE, "bucket %u sums the gradient of op %u", i, op);
            }
            j->bucket[op] = i;
            j->offset[op] = size;
            size += j->in->param_bytes[op];
        }
        bool may = b->algo < RU_COLL_ALGOS && (j->in->algos >> b->algo & 1) != 0;
        if (size != b->size_bytes || b->chunk_bytes < 1 || b->chunk_bytes > size || !may ||
            b->ready_ns < 0 || (b->ready_ns > 0 && !p->barrier)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "bucket %u: %lld bytes in pieces of %lld", i,
                           (long long)b->size_bytes, (long long)b->chunk_bytes);
        }
        pieces += (size + b->chunk_bytes - 1) / b->chunk_bytes;
    }
    if (at != p->n_tensors || gradients != p->n_tensors || pieces != p->n_pieces ||
        pieces > RU_SUMS_PIECES_MAX || p->depth < 1 || p->depth > j->in->depth_max ||
        (j->in->barrier && !p->barrier) || (p->after && !p->barrier)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%u of %u gradients are summed in %u pieces, %u in flight, %s barrier",
                       p->n_tensors, gradients, p->n_pieces, p->depth,
                       p->barrier ? "with a" : "without");
    }
    return RU_OK;
}

/* A piece, the same in every step. */
typedef struct piece {
    uint32_t bucket, last; /* last: place of the backward pass that completes it */
    uint32_t urgency;      /* first forward place of its bucket */
    int64_t ready_ns, total_ns, held_ns;
} piece;

/* What the clocks know. Piece k of step s stands at s * n_pieces + k. */
typedef struct clocks {
    piece *pieces;     /* [n_pieces] in the order of sending when all are ready */
    uint32_t *number;  /* [n_pieces] by bucket and offset -> place in pieces */
    uint32_t *first;   /* [n_buckets] number of its first piece */
    int64_t *ready;    /* [steps, n_pieces] INT64_MAX: its gradients are not made */
    int64_t *arrived;  /* [steps, n_pieces] INT64_MAX: not sent, or not all known */
    uint32_t *unsent;  /* [steps] first place that is not sent */
    uint32_t step, at; /* next op: forward 0 .. n-1, backward n .. 2n-1 */
    int64_t now, net;
    int64_t *end; /* [steps] of the backward pass */
    uint32_t steps;
} clocks;

static int64_t rounded(double ns)
{
    return ns < 1 ? 1 : ns < 0x1p60 ? (int64_t)floor(ns + 0.5) : INT64_C(1) << 60;
}

/* By what algorithm a goes: its own measurements, or what all take. */
static ru_coll_cost price(const ru_sums_in *in, uint32_t a)
{
    if (in->costs != NULL && in->costs[a].n_points > 0) {
        return in->costs[a];
    }
    return (ru_coll_cost){(double)in->alpha_ns, in->beta_ns, in->gamma_ns, 0, 0, 0, {{0, 0}}};
}

/* How long it keeps a link busy behind others. */
static double link_ns(const ru_sums_in *in, uint32_t a, double size)
{
    ru_coll_cost c = price(in, a);
    ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, (ru_coll_algo)a, in->n_ranks);
    return c.n_at > 1 ? c.alpha_ns + size * ru_cost_coll_byte_ns(&c, RU_COLL_ALL_REDUCE,
                                                                 (ru_coll_algo)a, in->n_ranks)
                      : c.alpha_ns + t.busy * size * c.beta_ns;
}

static double piece_ns(const ru_sums_in *in, uint32_t a, int64_t size)
{
    ru_coll_cost c = price(in, a);
    ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, (ru_coll_algo)a, in->n_ranks);
    if (c.n_at > 1) {
        double link = link_ns(in, a, (double)size),
               alone = (double)ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, (ru_coll_algo)a, in->n_ranks,
                                               size);
        return link > alone ? link : alone;
    }
    return t.steps * c.alpha_ns + t.sent * (double)size * c.beta_ns +
           t.added * (double)size * c.gamma_ns;
}

/* Each is the fastest for its pieces, of equal ones the first, or all go by the same. */
static ru_status check_algorithms(const judge *j, ru_err *err)
{
    const ru_sums_plan *p = j->plan;
    bool alone = j->in->method == RU_SUMS_CARAMEL;
    for (uint32_t i = 1; i < p->n_buckets; i++) {
        alone = alone && p->buckets[i].algo == p->buckets[0].algo;
    }
    for (uint32_t i = 0; i < p->n_buckets && !alone; i++) {
        const ru_sums_bucket *b = &p->buckets[i];
        int64_t mine = rounded(piece_ns(j->in, b->algo, b->chunk_bytes));
        for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
            int64_t other = rounded(piece_ns(j->in, a, b->chunk_bytes));
            if ((j->in->algos >> a & 1) != 0 && (other < mine || (other == mine && a < b->algo))) {
                return RU_FAIL(err, RU_E_INFEASIBLE,
                               "bucket %u goes by %s, but %s is the one for %lld bytes", i,
                               ru_coll_algo_name(b->algo), ru_coll_algo_name((ru_coll_algo)a),
                               (long long)b->chunk_bytes);
            }
        }
    }
    return RU_OK;
}

static piece piece_of(const judge *j, uint32_t i, int64_t size)
{
    const ru_sums_bucket *b = &j->plan->buckets[i];
    double total = piece_ns(j->in, b->algo, size), busy = link_ns(j->in, b->algo, (double)size);
    double held = total / j->plan->depth > busy ? total / j->plan->depth : busy;
    piece p = {.bucket = i,
               .urgency = UINT32_MAX,
               .ready_ns = b->ready_ns,
               .total_ns = rounded(total),
               .held_ns = rounded(held < total ? held : total)};
    for (uint32_t k = b->first; k < b->first + b->n; k++) {
        uint32_t op = j->plan->tensors[k];
        p.last = j->made[op] > p.last ? j->made[op] : p.last;
        p.urgency = j->place[op] < p.urgency ? j->place[op] : p.urgency;
    }
    p.last = j->plan->after ? j->in->n - 1 : p.last;
    return p;
}

/* Stable: by urgency where that decides, else as they are launched. */
static void sort_pieces(const judge *j, clocks *c, const piece *raw)
{
    uint32_t n = j->plan->n_pieces, at = 0;
    for (uint32_t u = 0; u <= j->in->n && j->plan->by_priority; u++) {
        for (uint32_t k = 0; k < n; k++) {
            if (raw[k].urgency == u) {
                c->number[k] = at;
                c->pieces[at++] = raw[k];
            }
        }
    }
    for (uint32_t k = 0; k < n && !j->plan->by_priority; k++) {
        c->number[k] = k;
        c->pieces[k] = raw[k];
    }
}

static bool clocks_init(const judge *j, clocks *c, ru_arena *a)
{
    uint32_t n = j->plan->n_pieces, k = 0;
    c->steps = j->plan->barrier ? 1 : RU_SUMS_PLAYED;
    piece *raw = RU_NEW(a, piece, n);
    c->pieces = RU_NEW(a, piece, n);
    c->number = RU_NEW(a, uint32_t, n);
    c->first = RU_NEW(a, uint32_t, j->plan->n_buckets);
    c->ready = RU_NEW(a, int64_t, (int64_t)n * c->steps);
    c->arrived = RU_NEW(a, int64_t, (int64_t)n * c->steps);
    c->unsent = RU_NEW(a, uint32_t, c->steps);
    c->end = RU_NEW(a, int64_t, c->steps);
    if (raw == NULL || c->pieces == NULL || c->number == NULL || c->first == NULL ||
        c->ready == NULL || c->arrived == NULL || c->unsent == NULL || c->end == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < j->plan->n_buckets; i++) {
        const ru_sums_bucket *b = &j->plan->buckets[i];
        c->first[i] = k;
        for (int64_t from = 0; from < b->size_bytes; from += b->chunk_bytes) {
            int64_t rest = b->size_bytes - from;
            raw[k++] = piece_of(j, i, rest < b->chunk_bytes ? rest : b->chunk_bytes);
        }
    }
    sort_pieces(j, c, raw);
    for (uint64_t i = 0; i < (uint64_t)n * c->steps; i++) {
        c->ready[i] = c->arrived[i] = INT64_MAX;
    }
    return true;
}

/* When the sums of an op of this step have arrived; INT64_MAX: some are not sent yet. */
static int64_t sums_arrive(const judge *j, const clocks *c, uint32_t step, uint32_t op)
{
    uint32_t i = j->bucket[op];
    int64_t last = 0, chunk = i != UINT32_MAX ? j->plan->buckets[i].chunk_bytes : 1;
    int64_t end = j->offset[op] + j->in->param_bytes[op];
    for (int64_t k = j->offset[op] / chunk; i != UINT32_MAX && k * chunk < end; k++) {
        uint32_t at = c->number[c->first[i] + (uint32_t)k];
        int64_t when = c->arrived[(uint64_t)step * j->plan->n_pieces + at];
        last = when > last ? when : last;
    }
    return last;
}

/* Compute until something that is not sent yet is needed. Nothing before that depends on what the
 * network does next. */
static void run_compute(const judge *j, clocks *c)
{
    uint32_t n = j->in->n;
    while (c->step < c->steps) {
        if (c->at < n) {
            uint32_t op = j->forward[c->at];
            int64_t wait = c->step == 0 ? 0 : sums_arrive(j, c, c->step - 1, op);
            if (wait == INT64_MAX) {
                return;
            }
            c->now = (wait > c->now ? wait : c->now) + j->in->forward_ns[op];
        } else {
            c->now += j->in->backward_ns[j->plan->backward[c->at - n]];
            for (uint32_t k = 0; k < j->plan->n_pieces; k++) {
                if (c->pieces[k].last == c->at - n) {
                    int64_t least = c->pieces[k].ready_ns;
                    c->ready[(uint64_t)c->step * j->plan->n_pieces + k] =
                        c->now > least ? c->now : least;
                }
            }
        }
        if (++c->at == 2 * n) {
            c->end[c->step++] = c->now;
            c->at = 0;
        }
    }
}

/* The place of the piece to send next, earlier steps first; UINT64_MAX: none is ready. By priority
 * the first that is ready when the network is free, or when the first one becomes ready. */
static uint64_t next_piece(const judge *j, clocks *c)
{
    uint32_t n = j->plan->n_pieces;
    int64_t soonest = INT64_MAX;
    for (uint32_t pass = 0; pass < 2; pass++) {
        int64_t by = pass == 0 ? c->net : soonest;
        for (uint32_t s = 0; s < c->steps; s++) {
            uint64_t base = (uint64_t)s * n;
            while (c->unsent[s] < n && c->arrived[base + c->unsent[s]] != INT64_MAX) {
                c->unsent[s]++;
            }
            for (uint32_t k = c->unsent[s]; k < n; k++) {
                int64_t ready = c->arrived[base + k] == INT64_MAX ? c->ready[base + k] : INT64_MAX;
                if (ready <= by && ready != INT64_MAX) {
                    return base + k;
                }
                soonest = ready < soonest ? ready : soonest;
                if (!j->plan->by_priority && ready == INT64_MAX) {
                    return UINT64_MAX; /* the others wait behind it */
                }
                if (!j->plan->by_priority) {
                    return base + k;
                }
            }
        }
    }
    return UINT64_MAX;
}

static int64_t play(const judge *j, clocks *c)
{
    int64_t last = 0;
    run_compute(j, c);
    for (uint64_t k; (k = next_piece(j, c)) != UINT64_MAX;) {
        const piece *p = &c->pieces[k % j->plan->n_pieces];
        int64_t from = c->ready[k] > c->net ? c->ready[k] : c->net;
        c->net = from + p->held_ns;
        c->arrived[k] = from + p->total_ns;
        last = c->arrived[k] > last ? c->arrived[k] : last;
        run_compute(j, c);
    }
    if (j->plan->barrier) {
        return last > c->end[0] ? last : c->end[0];
    }
    return (c->end[RU_SUMS_PLAYED - 1] - c->end[RU_SUMS_PLAYED - RU_SUMS_AVERAGED - 1]) /
           RU_SUMS_AVERAGED;
}

static ru_status check_figures(const judge *j, ru_arena *a, ru_err *err)
{
    const ru_sums_plan *p = j->plan;
    clocks c = {0};
    if (!clocks_init(j, &c, a)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to play %u sums", p->n_pieces);
    }
    int64_t step = play(j, &c), compute = 0, bytes = 0;
    double per_byte = (double)INFINITY;
    for (uint32_t i = 0; i < j->in->n; i++) {
        compute += j->in->forward_ns[i] + j->in->backward_ns[i];
        bytes += j->in->param_bytes[i];
    }
    for (uint32_t k = 0; k < RU_COLL_ALGOS; k++) {
        ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, (ru_coll_algo)k, j->in->n_ranks);
        ru_coll_cost own = price(j->in, k);
        double one = j->in->depth_max > 1 ? t.busy * own.beta_ns
                                          : t.sent * own.beta_ns + t.added * own.gamma_ns;
        if (own.n_at > 1) {
            one = ru_cost_coll_byte_ns(&own, RU_COLL_ALL_REDUCE, (ru_coll_algo)k, j->in->n_ranks);
        }
        per_byte = (j->in->algos >> k & 1) != 0 && one < per_byte ? one : per_byte;
    }
    int64_t moved = rounded((double)bytes * per_byte);
    int64_t bound = moved > compute ? moved : compute;
    if (step != p->step_ns || compute != p->compute_ns || bound != p->bound_ns) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a step takes %lld ns, %lld ns of compute, bound %lld ns: the plan says "
                       "%lld, %lld and %lld",
                       (long long)step, (long long)compute, (long long)bound, (long long)p->step_ns,
                       (long long)p->compute_ns, (long long)p->bound_ns);
    }
    return RU_OK;
}

/* The barrier goes where that gains enough, and only there. */
static ru_status check_gain(const ru_sums_in *in, const ru_sums_plan *p, ru_err *err)
{
    double most = (1 - in->gain_min) * (double)p->held_ns;
    bool ours = in->method == RU_SUMS_CARAMEL;
    bool fits = p->barrier
                    ? p->held_ns == p->step_ns && (p->free_ns == 0 || !((double)p->free_ns <= most))
                    : p->free_ns == p->step_ns && (double)p->free_ns <= most;
    if (ours ? !fits || (p->free_ns > 0 && in->barrier) : p->held_ns != 0 || p->free_ns != 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%s barrier, but a step takes %lld ns with one and %lld ns without",
                       p->barrier ? "a" : "no", (long long)p->held_ns, (long long)p->free_ns);
    }
    return RU_OK;
}

ru_status ru_plan_sums_check(const ru_sums_in *in, const ru_sums_plan *plan, ru_arena *scratch,
                             ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    judge j = {.in = in, .plan = plan};
    if (!judge_init(&j, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check the sums of %u ops", in->n);
    }
    RU_TRY(find_forward(&j, scratch, err));
    RU_TRY(check_backward(&j, err));
    RU_TRY(check_buckets(&j, err));
    RU_TRY(check_algorithms(&j, err));
    RU_TRY(check_figures(&j, scratch, err));
    RU_TRY(check_gain(in, plan, err));
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
