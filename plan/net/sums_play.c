/* What a way to sum gradients costs: steps played one after another. */
#include <math.h>
#include <stddef.h>

#include "base/heap.h"
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

/* A bucket as it is played; its last piece may be smaller. */
typedef struct sum {
    int64_t held_ns[2], total_ns[2]; /* of a piece, of the last one */
    uint32_t first, n, sent;         /* pieces */
    uint32_t urgency;
    uint32_t next; /* of those that the same backward pass makes ready; UINT32_MAX: none */
    int64_t ready_ns;
} sum;

/* The played steps. Computing runs until it needs a piece that is not sent yet: nothing before that
 * depends on what the network does next. Each forward pass awaits all pieces of the step before, so
 * those of one step are on their way at a time. */
typedef struct stage {
    const rui_sums_graph *g;
    const ru_sums_plan *plan;
    sum *sums;             /* [n_buckets] */
    int64_t *arrive_ns;    /* [n_pieces] of the step whose pieces are on their way */
    uint32_t *made;        /* [n] by op: its place in the backward order */
    uint32_t *bucket;      /* [n] by op; UINT32_MAX: it has no gradient */
    int64_t *offset_bytes; /* [n] by op: in its bucket */
    uint32_t *makes;       /* [n] by place in the backward order: the first bucket it makes ready */
    int64_t *start_ns, *end_ns; /* [2, 2 n] of this step and of the one before: forward, backward */
    ru_heap made_ready;         /* buckets by the instant at which they are ready */
    ru_heap ready;              /* buckets by urgency, or by number */
    int64_t step_end_ns[RU_SUMS_PLAYED];
    int64_t now_ns, net_ns; /* computing stands there; the network is free from there on */
    uint32_t n_steps, step, at;
} stage;

static void put_sum(stage *s, uint32_t i, uint32_t first)
{
    const ru_sums_in *in = s->g->in;
    const ru_sums_plan *p = s->plan;
    const ru_sums_bucket *b = &p->buckets[i];
    uint32_t more = (uint32_t)((b->size_bytes - 1) / b->chunk_bytes), last = 0;
    sum x = {.first = first, .n = more + 1, .urgency = UINT32_MAX, .ready_ns = b->ready_ns};
    for (uint32_t k = 0; k < 2; k++) {
        int64_t size = k == 0 && more > 0 ? b->chunk_bytes : b->size_bytes - more * b->chunk_bytes;
        x.held_ns[k] = rui_sums_held_ns(in, b->algo, size, p->depth);
        x.total_ns[k] = rui_sums_ns(in, b->algo, size);
    }
    int64_t at = 0;
    for (uint32_t k = b->first; k < b->first + b->n; k++) {
        uint32_t op = p->tensors[k], need = s->g->place[op];
        x.urgency = need < x.urgency ? need : x.urgency;
        last = s->made[op] > last ? s->made[op] : last; /* it is ready when its last gradient is */
        s->bucket[op] = i;
        s->offset_bytes[op] = at;
        at += in->param_bytes[op];
    }
    last = p->after ? in->n - 1 : last;
    x.next = s->makes[last];
    s->makes[last] = i;
    s->sums[i] = x;
}

static bool stage_init(stage *s, ru_arena *a)
{
    const ru_sums_plan *p = s->plan;
    uint32_t n = s->g->in->n, first = 0;
    s->n_steps = p->barrier ? 1 : RU_SUMS_PLAYED;
    s->sums = RU_NEW(a, sum, p->n_buckets);
    s->arrive_ns = RU_NEW(a, int64_t, p->n_pieces);
    s->made = RU_NEW(a, uint32_t, n);
    s->bucket = RU_NEW(a, uint32_t, n);
    s->offset_bytes = RU_NEW(a, int64_t, n);
    s->makes = RU_NEW(a, uint32_t, n);
    s->start_ns = RU_NEW(a, int64_t, (int64_t)n * 4);
    s->end_ns = RU_NEW(a, int64_t, (int64_t)n * 4);
    ru_heap_item *items = RU_NEW(a, ru_heap_item, (int64_t)p->n_buckets * 2);
    if (s->sums == NULL || s->arrive_ns == NULL || s->made == NULL || s->bucket == NULL ||
        s->offset_bytes == NULL || s->makes == NULL || s->start_ns == NULL || s->end_ns == NULL ||
        items == NULL) {
        return false;
    }
    ru_heap_init(&s->made_ready, items, p->n_buckets);
    ru_heap_init(&s->ready, items + p->n_buckets, p->n_buckets);
    for (uint32_t k = 0; k < n; k++) {
        s->made[p->backward[k]] = k;
        s->bucket[k] = s->makes[k] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < p->n_buckets; i++) {
        put_sum(s, i, first);
        first += s->sums[i].n;
    }
    return true;
}

/* When the sums of an op have arrived; INT64_MAX: some are not sent yet. */
static int64_t arrival(const stage *s, uint32_t op)
{
    const ru_sums_bucket *b = &s->plan->buckets[s->bucket[op]];
    const sum *x = &s->sums[s->bucket[op]];
    int64_t from = s->offset_bytes[op], to = from + s->g->in->param_bytes[op], last = 0;
    if ((to - 1) / b->chunk_bytes >= x->sent) {
        return INT64_MAX;
    }
    for (int64_t k = from / b->chunk_bytes; k * b->chunk_bytes < to; k++) {
        int64_t when = s->arrive_ns[x->first + (uint32_t)k];
        last = when > last ? when : last;
    }
    return last;
}

/* The backward pass at this place has ended. */
static void make_ready(stage *s, uint32_t place)
{
    bool read = s->plan->barrier || s->step + 1 < s->n_steps;
    for (uint32_t i = s->makes[place]; i != UINT32_MAX && read; i = s->sums[i].next) {
        sum *x = &s->sums[i];
        int64_t least = s->plan->buckets[i].ready_ns;
        x->ready_ns = s->now_ns > least ? s->now_ns : least;
        x->sent = 0;
        RU_CHECK(ru_heap_push(&s->made_ready, x->ready_ns, i) == RU_OK);
    }
}

static void compute(stage *s)
{
    const ru_sums_in *in = s->g->in;
    while (s->step < s->n_steps) {
        bool forward = s->at < in->n;
        uint32_t op = forward ? s->g->topo[s->at] : s->plan->backward[s->at - in->n];
        bool waits = forward && s->step > 0 && s->bucket[op] != UINT32_MAX;
        int64_t from = waits ? arrival(s, op) : 0;
        if (from == INT64_MAX) {
            return;
        }
        uint64_t slot = (uint64_t)(s->step % 2) * 2 * in->n + s->at;
        s->start_ns[slot] = from > s->now_ns ? from : s->now_ns;
        s->now_ns = s->start_ns[slot] + (forward ? in->forward_ns[op] : in->backward_ns[op]);
        s->end_ns[slot] = s->now_ns;
        if (!forward) {
            make_ready(s, s->at - in->n);
        }
        if (++s->at == 2 * in->n) {
            s->step_end_ns[s->step++] = s->now_ns;
            s->at = 0;
        }
    }
}

/* The bucket of which a piece goes next, and when; false: there is none. In order, the first one
 * waits until it is ready. */
static bool next_sum(stage *s, uint32_t *bucket, int64_t *from_ns)
{
    const ru_heap_item *top = ru_heap_peek(&s->made_ready), *first = ru_heap_peek(&s->ready);
    ru_heap_item item;
    bool by = s->plan->by_priority;
    *from_ns = first == NULL && top != NULL && top->key > s->net_ns ? top->key : s->net_ns;
    for (; top != NULL && (!by || top->key <= *from_ns); top = ru_heap_peek(&s->made_ready)) {
        RU_CHECK(ru_heap_pop(&s->made_ready, &item));
        int64_t key = by ? s->sums[item.value].urgency : (int64_t)item.value;
        RU_CHECK(ru_heap_push(&s->ready, key, item.value) == RU_OK);
    }
    first = ru_heap_peek(&s->ready);
    if (first == NULL) {
        return false;
    }
    *bucket = (uint32_t)first->value;
    int64_t ready = s->sums[*bucket].ready_ns;
    *from_ns = by || ready < s->net_ns ? *from_ns : ready;
    return true;
}

/* Errors: RU_E_ARG: times beyond what is counted, RU_E_LIMIT. */
static ru_status play(stage *s, ru_arena *scratch, ru_err *err)
{
    const ru_sums_in *in = s->g->in;
    double all = (double)s->g->forward_ns;
    uint32_t i;
    int64_t from;
    if (!stage_init(s, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps of %u ops and %u sums",
                       RU_SUMS_PLAYED, in->n, s->plan->n_pieces);
    }
    for (i = 0; i < in->n; i++) {
        all += (double)in->backward_ns[i];
    }
    for (i = 0; i < s->plan->n_buckets; i++) {
        all += (double)s->plan->buckets[i].ready_ns;
        all += (double)s->sums[i].n * (double)s->sums[i].total_ns[0];
    }
    if (all * RU_SUMS_PLAYED > 0x1p61) {
        return RU_FAIL(err, RU_E_ARG, "a step takes %.3g s, expected less than %.3g s", all * 1e-9,
                       0x1p61 / RU_SUMS_PLAYED * 1e-9);
    }
    compute(s);
    while (next_sum(s, &i, &from)) {
        sum *x = &s->sums[i];
        uint32_t last = x->sent + 1 == x->n ? 1 : 0;
        ru_heap_item item;
        s->net_ns = from + x->held_ns[last];
        s->arrive_ns[x->first + x->sent++] = from + x->total_ns[last];
        if (last == 1) {
            RU_CHECK(ru_heap_pop(&s->ready, &item));
        }
        compute(s);
    }
    return RU_OK;
}

/* When all is done, with a barrier. */
static int64_t held_end(const stage *s)
{
    int64_t last = s->step_end_ns[0];
    for (uint32_t k = 0; k < s->plan->n_pieces; k++) {
        last = s->arrive_ns[k] > last ? s->arrive_ns[k] : last;
    }
    return last;
}

ru_status rui_sums_predict(const rui_sums_graph *g, ru_arena *scratch, ru_sums_plan *plan,
                           ru_err *err)
{
    const uint32_t last = RU_SUMS_PLAYED - 1;
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    stage s = {.g = g, .plan = plan};
    RU_TRY(play(&s, scratch, err));
    plan->step_ns = plan->barrier ? held_end(&s)
                                  : (s.step_end_ns[last] - s.step_end_ns[last - RU_SUMS_AVERAGED]) /
                                        RU_SUMS_AVERAGED;
    ru_arena_rewind(scratch, mark);
    plan->compute_ns = g->forward_ns;
    for (uint32_t i = 0; i < g->in->n; i++) {
        plan->compute_ns += g->in->backward_ns[i];
    }
    int64_t moved = whole_ns((double)g->bytes * rui_sums_per_byte_ns(g->in));
    plan->bound_ns = moved > plan->compute_ns ? moved : plan->compute_ns;
    return RU_OK;
}

ru_status ru_sums_times(const ru_sums_in *in, const ru_sums_plan *plan, ru_arena *scratch,
                        ru_sums_time *into, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    rui_sums_graph g;
    RU_TRY(rui_sums_graph_make(in, scratch, &g, err));
    stage s = {.g = &g, .plan = plan};
    RU_TRY(play(&s, scratch, err));
    uint64_t base = plan->barrier ? 0 : (uint64_t)(RU_SUMS_PLAYED % 2) * 2 * in->n;
    uint64_t next = (uint64_t)((RU_SUMS_PLAYED - 1) % 2) * 2 * in->n;
    int64_t begin = s.start_ns[base], end = s.end_ns[base + 2 * in->n - 1];
    for (uint32_t k = 0; k < plan->n_tensors; k++) {
        uint32_t op = plan->tensors[k], place = g.place[op];
        int64_t arrives = arrival(&s, op);
        /* before its forward pass stands that of another op, or the end of the step */
        int64_t before = place > 0 ? s.end_ns[next + place - 1] : end;
        int64_t need = plan->barrier ? end : before;
        int64_t begins = plan->barrier ? arrives : s.start_ns[next + place];
        into[k] = (ru_sums_time){.op = op,
                                 .bucket = s.bucket[op],
                                 .ready_ns = s.end_ns[base + in->n + s.made[op]] - begin,
                                 .arrive_ns = arrives - begin,
                                 .need_ns = need - begin,
                                 .wait_ns = begins > need ? begins - need : 0};
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
