/* The judge of orders: pieces counted, ranks followed, the step played by scanning. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "plan/net/order.h"

typedef struct judge {
    const ru_order_in *in;
    const ru_order_plan *plan;
    uint32_t *place;  /* [n] topological, smallest index first */
    int64_t *arrival; /* [workers, n] last piece of the op's parameters */
    int64_t *came;    /* [workers, n_pieces] */
    uint32_t *next;   /* [workers] piece to send */
    int64_t *left;    /* [n] bytes still to come in the list at hand */
    uint32_t *waits;  /* [n] */
} judge;

static bool judge_init(judge *j, ru_arena *a)
{
    uint32_t n = j->in->n;
    j->place = RU_NEW(a, uint32_t, n);
    j->arrival = RU_NEW(a, int64_t, (int64_t)n * j->in->workers);
    j->left = RU_NEW(a, int64_t, n);
    j->came = RU_NEW(a, int64_t, (int64_t)j->plan->n_pieces * j->in->workers);
    j->next = RU_NEW(a, uint32_t, j->in->workers);
    j->waits = RU_NEW(a, uint32_t, n);
    return j->place != NULL && j->arrival != NULL && j->left != NULL && j->came != NULL &&
           j->next != NULL && j->waits != NULL;
}

static void count_waits(judge *j)
{
    memset(j->waits, 0, j->in->n * sizeof *j->waits);
    for (uint32_t e = 0; e < j->in->n_edges; e++) {
        j->waits[j->in->edges[e].to]++;
    }
}

/* One op after another; edges are searched each time. Leaves waits[i] at UINT32_MAX. */
static void pass_edges(judge *j, uint32_t i)
{
    j->waits[i] = UINT32_MAX;
    for (uint32_t e = 0; e < j->in->n_edges; e++) {
        j->waits[j->in->edges[e].to] -= j->in->edges[e].from == i ? 1 : 0;
    }
}

static ru_status find_places(judge *j, ru_err *err)
{
    count_waits(j);
    for (uint32_t k = 0; k < j->in->n; k++) {
        uint32_t i = 0;
        while (i < j->in->n && j->waits[i] != 0) {
            i++;
        }
        if (i == j->in->n) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the ops wait for each other in a cycle");
        }
        j->place[i] = k;
        pass_edges(j, i);
    }
    return RU_OK;
}

static const ru_order_piece *list_of(const judge *j, uint32_t worker)
{
    uint64_t skip = j->plan->n_lists > 1 ? (uint64_t)worker * j->plan->n_pieces : 0;
    return j->plan->pieces + skip;
}

/* Every byte once, pieces of one op in one run, ranks rising along list 0. */
static ru_status check_list(judge *j, uint32_t list, ru_err *err)
{
    const ru_order_piece *p = list_of(j, list);
    memcpy(j->left, j->in->param_bytes, j->in->n * sizeof *j->left);
    uint32_t ops = 0, group = 0;
    for (uint32_t k = 0; k < j->plan->n_pieces; k++) {
        uint32_t op = p[k].op;
        if (op >= j->in->n || p[k].size_bytes < 1 || p[k].size_bytes > j->left[op]) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "piece %u sends %lld bytes of op %u", k,
                           (long long)p[k].size_bytes, op);
        }
        bool fresh = j->left[op] == j->in->param_bytes[op];
        j->left[op] -= p[k].size_bytes;
        if (!fresh && p[k - 1].op != op) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the pieces of op %u are not consecutive", op);
        }
        if (list == 0 && fresh) {
            group = j->plan->rank[op] == group ? group : ops;
            if (j->plan->rank[op] != group) {
                return RU_FAIL(err, RU_E_INFEASIBLE, "op %u is sent at position %u with rank %u",
                               op, ops, j->plan->rank[op]);
            }
        }
        ops += fresh ? 1 : 0;
    }
    for (uint32_t i = 0; i < j->in->n; i++) {
        bool ranked = j->plan->rank[i] != RU_ORDER_NO_RANK;
        if (j->left[i] != 0 || ranked != (j->in->param_bytes[i] > 0)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "op %u lacks %lld bytes of its parameters", i,
                           (long long)j->left[i]);
        }
    }
    return RU_OK;
}

static int64_t held_ns(const ru_order_in *in, int64_t size_bytes)
{
    double ns = (double)in->link.overhead_ns + (double)size_bytes / in->link.bytes_per_s * 1e9;
    return (int64_t)floor(ns + 0.5);
}

/* From when on worker w may send its piece k: with CREDIT, once so much of what it sent before has
 * arrived that its credit covers the piece. */
static int64_t may_send(const judge *j, uint32_t w, uint32_t k)
{
    const ru_order_piece *p = list_of(j, w);
    int64_t under_way = 0;
    uint32_t first = k + 1;
    while (j->in->method == RU_ORDER_CREDIT && first > 0 &&
           under_way + p[first - 1].size_bytes <= j->in->credit_bytes) {
        under_way += p[--first].size_bytes;
    }
    bool free = j->in->method != RU_ORDER_CREDIT || first == 0;
    return free ? 0 : j->came[(uint64_t)w * j->plan->n_pieces + first - 1];
}

/* The link takes the piece that can start first; of those, the lowest number, then worker. */
static void send_all(judge *j)
{
    const ru_order_in *in = j->in;
    uint32_t workers = in->workers, n = j->plan->n_pieces;
    int64_t now = 0;
    memset(j->arrival, 0, (size_t)in->n * workers * sizeof *j->arrival);
    memset(j->next, 0, workers * sizeof *j->next);
    for (uint64_t sent = 0; sent < (uint64_t)n * workers; sent++) {
        uint32_t best = workers;
        int64_t best_at = INT64_MAX;
        for (uint32_t w = 0; w < workers; w++) {
            int64_t from = j->next[w] < n ? may_send(j, w, j->next[w]) : INT64_MAX;
            int64_t at = from > now ? from : now;
            bool sooner =
                at < best_at || (at == best_at && best < workers && j->next[w] < j->next[best]);
            if (j->next[w] < n && sooner) {
                best = w;
                best_at = at;
            }
        }
        uint32_t k = j->next[best]++;
        const ru_order_piece *p = list_of(j, best) + k;
        now = best_at + held_ns(in, p->size_bytes);
        j->came[(uint64_t)best * n + k] = now + in->link.latency_ns;
        j->arrival[(uint64_t)best * in->n + p->op] = now + in->link.latency_ns;
    }
}

/* Of the ops that may start, the first in topological order, as soon as one may. */
static int64_t compute(judge *j, uint32_t worker)
{
    const ru_order_in *in = j->in;
    const int64_t *arrival = j->arrival + (uint64_t)worker * in->n;
    int64_t now = 0;
    count_waits(j);
    for (uint32_t k = 0; k < in->n; k++) {
        uint32_t best = in->n;
        int64_t best_at = INT64_MAX;
        for (uint32_t i = 0; i < in->n; i++) {
            int64_t at = arrival[i] > now ? arrival[i] : now;
            bool sooner = at < best_at || (at == best_at && j->place[i] < j->place[best]);
            if (j->waits[i] == 0 && sooner) {
                best = i;
                best_at = at;
            }
        }
        now = best_at + in->op_ns[best];
        pass_edges(j, best);
    }
    return now;
}

static ru_status check_figures(judge *j, ru_err *err)
{
    const ru_order_in *in = j->in;
    send_all(j);
    int64_t first = INT64_MAX, last = 0, op_sum = 0;
    double link = 0;
    for (uint32_t w = 0; w < in->workers; w++) {
        int64_t end = compute(j, w);
        first = end < first ? end : first;
        last = end > last ? end : last;
        for (uint32_t k = 0; k < j->plan->n_pieces; k++) {
            link += (double)held_ns(in, list_of(j, w)[k].size_bytes);
        }
    }
    for (uint32_t i = 0; i < in->n; i++) {
        op_sum += in->op_ns[i];
    }
    if (last != j->plan->step_ns || last - first != j->plan->straggle_ns) {
        return RU_FAIL(
            err, RU_E_INFEASIBLE,
            "the step takes %lld ns with %lld ns between workers, the plan says %lld and "
            "%lld",
            (long long)last, (long long)(last - first), (long long)j->plan->step_ns,
            (long long)j->plan->straggle_ns);
    }
    double both = (double)op_sum + link, longest = fmax((double)op_sum, link);
    double efficiency = both > longest ? (both - (double)last) / (both - longest) : 1;
    double speedup = longest > 0 ? (both - longest) / longest : 0;
    /* what sums of doubles lose matters where nearly all time is the link's or the ops' */
    double lost = 1e-15 * (2.0 + (double)j->plan->n_pieces * in->workers) * both;
    double slack = 1e-9 * (1 + fabs(efficiency)) + (both > longest ? lost / (both - longest) : 0);
    if (!(fabs(efficiency - j->plan->efficiency) <= slack) ||
        !(fabs(speedup - j->plan->speedup_max) <= 1e-9)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "efficiency is %g, speed-up at most %g: the plan says %g and %g", efficiency,
                       speedup, j->plan->efficiency, j->plan->speedup_max);
    }
    /* cut pieces are rounded one by one, and each has its overhead */
    int64_t rounding = (int64_t)in->workers * j->plan->n_pieces, whole = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        whole += in->param_bytes[i] > 0 ? held_ns(in, in->param_bytes[i]) * in->workers : 0;
    }
    int64_t bound = j->plan->bound_ns;
    if (bound > last + rounding || bound < whole || bound < op_sum) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a bound of %lld ns for a step of %lld ns",
                       (long long)j->plan->bound_ns, (long long)last);
    }
    return RU_OK;
}

/* Edges, those into late ops first: one walk over them finds all that an op needs. */
static bool late_edges_first(const judge *j, ru_arena *a, uint32_t *edges)
{
    const ru_order_in *in = j->in;
    uint32_t *at = RU_NEW(a, uint32_t, (int64_t)in->n + 1);
    if (at == NULL) {
        return false;
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        at[in->n - j->place[in->edges[e].to]]++;
    }
    for (uint32_t k = 0; k < in->n; k++) {
        at[k + 1] += at[k];
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        edges[at[in->n - 1 - j->place[in->edges[e].to]]++] = e;
    }
    return true;
}

/* TIC by its definition: of the ops that need r and others, the least number of transfers; what an
 * op needs is found by walking back from it. */
static ru_status check_tic(judge *j, ru_arena *a, ru_err *err)
{
    const ru_order_in *in = j->in;
    uint32_t *least = RU_NEW(a, uint32_t, in->n);
    uint32_t *edges = RU_NEW(a, uint32_t, in->n_edges);
    bool *seen = RU_NEW(a, bool, in->n);
    if (least == NULL || seen == NULL || edges == NULL || !late_edges_first(j, a, edges)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the ranks of %u ops", in->n);
    }
    memset(least, 0xff, in->n * sizeof *least);
    for (uint32_t i = 0; i < in->n; i++) {
        memset(seen, 0, in->n * sizeof *seen);
        seen[i] = true;
        for (uint32_t e = 0; e < in->n_edges; e++) {
            const ru_step_edge *edge = &in->edges[edges[e]];
            seen[edge->from] = seen[edge->from] || seen[edge->to];
        }
        uint32_t count = 0;
        for (uint32_t k = 0; k < in->n; k++) {
            count += seen[k] && in->param_bytes[k] > 0 ? 1 : 0;
        }
        for (uint32_t k = 0; count > 1 && k < in->n; k++) {
            least[k] = seen[k] && count < least[k] ? count : least[k];
        }
    }
    for (uint32_t k = 1; k < j->plan->n_pieces; k++) {
        uint32_t x = j->plan->pieces[k - 1].op, y = j->plan->pieces[k].op;
        bool together = j->plan->rank[x] == j->plan->rank[y];
        if (least[x] > least[y] || together != (least[x] == least[y])) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "op %u must not be sent right before op %u", x, y);
        }
    }
    return RU_OK;
}

/* Key of an op in the simple orders: place in the graph, number in the input, bytes. */
static int64_t simple_key(const judge *j, uint32_t by, uint32_t op)
{
    return by == 0 ? j->place[op] : by == 1 ? op : j->in->param_bytes[op];
}

/* None of the simple orders may be shorter than what is called the best. Whole parameters, the same
 * for all workers; the next one is found by scanning. */
static ru_status check_simple(const judge *of, ru_arena *a, ru_err *err)
{
    const ru_order_in *in = of->in;
    ru_order_piece *pieces = RU_NEW(a, ru_order_piece, in->n);
    bool *sent = RU_NEW(a, bool, in->n);
    ru_order_plan rival = {.n_lists = 1, .pieces = pieces};
    for (uint32_t i = 0; i < in->n; i++) {
        rival.n_pieces += in->param_bytes[i] > 0 ? 1 : 0;
    }
    judge j = {.in = in, .plan = &rival};
    if (pieces == NULL || sent == NULL || !judge_init(&j, a)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check the order of %u ops", in->n);
    }
    memcpy(j.place, of->place, in->n * sizeof *j.place);
    for (uint32_t by = 0; by < 3; by++) {
        memset(sent, 0, in->n * sizeof *sent);
        for (uint32_t k = 0; k < rival.n_pieces; k++) {
            uint32_t best = in->n;
            for (uint32_t i = 0; i < in->n; i++) {
                bool open = in->param_bytes[i] > 0 && !sent[i];
                best = open && (best == in->n || simple_key(&j, by, i) < simple_key(&j, by, best))
                           ? i
                           : best;
            }
            sent[best] = true;
            pieces[k] = (ru_order_piece){best, in->param_bytes[best]};
        }
        send_all(&j);
        int64_t last = 0;
        for (uint32_t w = 0; w < in->workers; w++) {
            int64_t end = compute(&j, w);
            last = end > last ? end : last;
        }
        if (last < of->plan->step_ns) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "a step of %lld ns is not the shortest: a simple order takes %lld ns",
                           (long long)of->plan->step_ns, (long long)last);
        }
    }
    return RU_OK;
}

ru_status ru_plan_order_check(const ru_order_in *in, const ru_order_plan *plan, ru_arena *scratch,
                              ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    ru_order_in by = *in;
    by.method = plan->method;
    judge j = {.in = &by, .plan = plan};
    bool best = in->method == RU_ORDER_BEST;
    if (plan->method == RU_ORDER_BEST || plan->method >= RU_ORDER_METHODS ||
        (!best && plan->method != in->method)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the order is of method %u instead of %u",
                       (uint32_t)plan->method, (uint32_t)in->method);
    }
    bool per_worker = plan->method == RU_ORDER_RANDOM;
    if (plan->n_lists != (per_worker ? in->workers : 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan has %u lists for %u workers", plan->n_lists,
                       in->workers);
    }
    if (!judge_init(&j, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check the order of %u ops", in->n);
    }
    RU_TRY(find_places(&j, err));
    for (uint32_t list = 0; list < plan->n_lists; list++) {
        RU_TRY(check_list(&j, list, err));
    }
    RU_TRY(check_figures(&j, err));
    if (plan->method == RU_ORDER_TIC) {
        RU_TRY(check_tic(&j, scratch, err));
    }
    if (best) {
        by.method = RU_ORDER_FIFO; /* no credit */
        RU_TRY(check_simple(&j, scratch, err));
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
