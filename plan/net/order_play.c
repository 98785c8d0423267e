/* What an order costs: the step played through, and a bound of all orders. */
#include <stddef.h>

#include "base/heap.h"
#include "plan/net/order_impl.h"

static bool graph_arrays(const ru_order_in *in, ru_arena *a, rui_order_graph *g)
{
    uint32_t n_xfers = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        n_xfers += in->param_bytes[i] > 0 ? 1 : 0;
    }
    *g = (rui_order_graph){.in = in, .words = (n_xfers + 63) / 64};
    g->place = RU_NEW(a, uint32_t, in->n);
    g->level = RU_NEW(a, uint32_t, in->n);
    g->turn = RU_NEW(a, uint32_t, in->n);
    g->op = RU_NEW(a, uint32_t, n_xfers);
    g->xfer_ns = RU_NEW(a, int64_t, n_xfers);
    g->needs = RU_NEW(a, uint64_t, (int64_t)in->n * g->words);
    return g->place != NULL && g->level != NULL && g->turn != NULL && g->op != NULL &&
           g->xfer_ns != NULL && g->needs != NULL;
}

/* An op needs what the ops before it need: edges taken by the place of their start. */
static bool spread(rui_order_graph *g, ru_arena *a)
{
    const ru_order_in *in = g->in;
    uint32_t *first = RU_NEW(a, uint32_t, (int64_t)in->n + 2);
    uint32_t *to = RU_NEW(a, uint32_t, in->n_edges);
    if (first == NULL || to == NULL) {
        return false;
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        first[in->edges[e].from + 2]++;
    }
    for (uint32_t i = 2; i < in->n + 2; i++) {
        first[i] += first[i - 1];
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        to[first[in->edges[e].from + 1]++] = in->edges[e].to;
    }
    for (uint32_t k = 0; k < in->n; k++) {
        uint32_t i = g->topo[k];
        const uint64_t *from = g->needs + (uint64_t)i * g->words;
        for (uint32_t e = first[i]; e < first[i + 1]; e++) {
            uint64_t *into = g->needs + (uint64_t)to[e] * g->words;
            for (uint32_t w = 0; w < g->words; w++) {
                into[w] |= from[w];
            }
            g->level[to[e]] = g->level[i] + 1 > g->level[to[e]] ? g->level[i] + 1 : g->level[to[e]];
        }
    }
    return true;
}

static void find_turns(rui_order_graph *g)
{
    const ru_order_in *in = g->in;
    for (uint32_t i = 0; i < in->n; i++) {
        bool leaf = g->level[i] == 0 && in->op_ns[i] == 0;
        g->turn[i] = leaf ? UINT32_MAX : g->place[i];
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        uint32_t i = in->edges[e].from, reader = g->place[in->edges[e].to];
        bool leaf = g->level[i] == 0 && in->op_ns[i] == 0;
        g->turn[i] = leaf && reader < g->turn[i] ? reader : g->turn[i];
    }
}

ru_status rui_order_graph_make(const ru_order_in *in, ru_arena *a, rui_order_graph *g, ru_err *err)
{
    ru_step_task *tasks = RU_NEW(a, ru_step_task, in->n);
    if (tasks == NULL || !graph_arrays(in, a, g)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the transfers of %u ops", in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        tasks[i].ns = in->op_ns[i];
    }
    const ru_step_in ops = {
        .tasks = tasks, .n = in->n, .edges = in->edges, .n_edges = in->n_edges, .n_servers = 1};
    ru_step_path path;
    RU_TRY(ru_cost_step_path(&ops, a, a, &path, err));
    g->topo = path.order;
    for (uint32_t k = 0; k < in->n; k++) {
        uint32_t i = g->topo[k], r = g->n_xfers;
        g->place[i] = k;
        if (in->param_bytes[i] > 0) {
            g->op[r] = i;
            g->xfer_ns[r] = ru_cost_link_held_ns(&in->link, in->param_bytes[i]);
            g->needs[(uint64_t)i * g->words + r / 64] |= UINT64_C(1) << r % 64;
            g->n_xfers++;
        }
    }
    if (!spread(g, a)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the transfers of %u ops", in->n);
    }
    find_turns(g);
    return RU_OK;
}

/* Tasks of all workers: worker w computes on server w, the link is the last server. */
typedef struct stage {
    ru_step_task *tasks;
    ru_step_edge *edges;
    uint32_t n, n_edges;
} stage;

static void put_ops(const rui_order_graph *g, uint32_t worker, stage *s)
{
    const ru_order_in *in = g->in;
    uint32_t base = s->n;
    for (uint32_t i = 0; i < in->n; i++) {
        s->tasks[s->n++] =
            (ru_step_task){.ns = in->op_ns[i], .rank = g->place[i], .server = worker};
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        s->edges[s->n_edges++] = (ru_step_edge){base + in->edges[e].from, base + in->edges[e].to};
    }
}

/* Pieces of one worker; with CREDIT a piece waits until those so many bytes before it have come. */
static void put_pieces(const rui_order_graph *g, const ru_order_plan *plan, uint32_t worker,
                       stage *s)
{
    const ru_order_in *in = g->in;
    const ru_order_piece *pieces =
        plan->pieces + (plan->n_lists > 1 ? (uint64_t)worker * plan->n_pieces : 0);
    uint32_t base = s->n, oldest = 0;
    int64_t under_way = 0;
    for (uint32_t k = 0; k < plan->n_pieces; k++) {
        s->tasks[s->n] = (ru_step_task){.ns = ru_cost_link_held_ns(&in->link, pieces[k].size_bytes),
                                        .latency_ns = in->link.latency_ns,
                                        .rank = (int64_t)k * in->workers + worker,
                                        .server = in->workers};
        s->edges[s->n_edges++] = (ru_step_edge){s->n, worker * in->n + pieces[k].op};
        under_way += pieces[k].size_bytes;
        bool waits = false;
        while (in->method == RU_ORDER_CREDIT && under_way > in->credit_bytes && oldest < k) {
            under_way -= pieces[oldest++].size_bytes;
            waits = true;
        }
        if (waits) {
            s->edges[s->n_edges++] = (ru_step_edge){base + oldest - 1, s->n};
        }
        s->n++;
    }
}

static ru_status make_stage(const rui_order_graph *g, const ru_order_plan *plan, ru_arena *a,
                            ru_step_in *step, ru_err *err)
{
    const ru_order_in *in = g->in;
    uint64_t tasks = (uint64_t)in->workers * (in->n + (uint64_t)plan->n_pieces);
    uint64_t edges = (uint64_t)in->workers * (in->n_edges + 2 * (uint64_t)plan->n_pieces);
    if (tasks > RU_STEP_TASKS_MAX || edges > RU_STEP_EDGES_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%u workers with %u ops and %u transfers give %llu tasks; the limit is %d",
                       in->workers, in->n, plan->n_pieces, (unsigned long long)tasks,
                       RU_STEP_TASKS_MAX);
    }
    stage s = {.tasks = RU_NEW(a, ru_step_task, tasks), .edges = RU_NEW(a, ru_step_edge, edges)};
    if (s.tasks == NULL || s.edges == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a step of %llu tasks",
                       (unsigned long long)tasks);
    }
    for (uint32_t w = 0; w < in->workers; w++) {
        put_ops(g, w, &s);
    }
    for (uint32_t w = 0; w < in->workers; w++) {
        put_pieces(g, plan, w, &s);
    }
    *step = (ru_step_in){.tasks = s.tasks,
                         .n = s.n,
                         .edges = s.edges,
                         .n_edges = s.n_edges,
                         .n_servers = in->workers + 1};
    return RU_OK;
}

ru_status rui_order_predict(const rui_order_graph *g, ru_arena *scratch, ru_order_plan *plan,
                            ru_err *err)
{
    const ru_order_in *in = g->in;
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    ru_step_in step;
    ru_step_times times;
    RU_TRY(make_stage(g, plan, scratch, &step, err));
    RU_TRY(ru_cost_step(&step, scratch, scratch, &times, err));
    int64_t first = INT64_MAX, last = 0;
    for (uint32_t w = 0; w < in->workers; w++) {
        int64_t end = 0;
        for (uint32_t i = w * in->n; i < (w + 1) * in->n; i++) {
            end = times.end_ns[i] > end ? times.end_ns[i] : end;
        }
        first = end < first ? end : first;
        last = end > last ? end : last;
    }
    plan->step_ns = last;
    plan->straggle_ns = last - first;
    /* of one worker beside the link that all share */
    int64_t compute = times.busy_ns[0], link = times.busy_ns[in->workers];
    int64_t sum = compute + link, longest = compute > link ? compute : link;
    plan->efficiency = sum > longest ? (double)(sum - last) / (double)(sum - longest) : 1.0;
    plan->speedup_max = longest > 0 ? (double)(sum - longest) / (double)longest : 0;
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

/* The largest (key + sum of ns over all with a key at least as large), keys that are taken down. */
static int64_t worst_suffix(ru_heap *by_key, const int64_t *ns)
{
    int64_t rest = 0, worst = 0;
    for (ru_heap_item top; ru_heap_pop(by_key, &top);) {
        rest += ns[top.value];
        worst = rest - top.key > worst ? rest - top.key : worst; /* keys are negative */
    }
    return worst;
}

/* One worker alone with the link, W transfers in its turn's time at best: an op starts after all
 * that it needs has come, the ops that wait for a transfer are computed after it. */
ru_status rui_order_bound(const rui_order_graph *g, ru_arena *scratch, int64_t *bound_ns,
                          ru_err *err)
{
    const ru_order_in *in = g->in;
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    uint32_t most = in->n > g->n_xfers ? in->n : g->n_xfers;
    ru_heap_item *items = RU_NEW(scratch, ru_heap_item, most);
    int64_t *behind = RU_NEW(scratch, int64_t, g->n_xfers);
    if (items == NULL || behind == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the bound of %u ops", in->n);
    }
    ru_heap ops, xfers;
    ru_heap_init(&ops, items, most);
    int64_t link = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        int64_t head = 0;
        for (uint32_t w = 0; w < g->words; w++) {
            uint64_t rest = g->needs[(uint64_t)i * g->words + w];
            for (; rest != 0; rest &= rest - 1) {
                uint32_t r = w * 64 + (uint32_t)__builtin_ctzll(rest);
                head += g->xfer_ns[r];
                behind[r] += in->op_ns[i];
            }
        }
        head += head > 0 ? in->link.latency_ns : 0;
        RU_CHECK(ru_heap_push(&ops, -head, i) == RU_OK);
    }
    int64_t bound = worst_suffix(&ops, in->op_ns);
    ru_heap_init(&xfers, items, most);
    for (uint32_t r = 0; r < g->n_xfers; r++) {
        link += g->xfer_ns[r];
        RU_CHECK(ru_heap_push(&xfers, -behind[r] - in->link.latency_ns, r) == RU_OK);
    }
    int64_t other = worst_suffix(&xfers, g->xfer_ns);
    bound = other > bound ? other : bound;
    /* all workers: the whole link time, then at least what stands behind the last transfer */
    int64_t least = g->n_xfers > 0 ? INT64_MAX : 0;
    for (uint32_t r = 0; r < g->n_xfers; r++) {
        least = behind[r] < least ? behind[r] : least;
    }
    int64_t all = link * in->workers + least + (g->n_xfers > 0 ? in->link.latency_ns : 0);
    *bound_ns = all > bound ? all : bound;
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

ru_status ru_order_times(const ru_order_in *in, const ru_order_plan *plan, ru_arena *scratch,
                         ru_order_time *into, uint32_t *n, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    rui_order_graph g;
    ru_step_in step;
    ru_step_times times;
    RU_TRY(rui_order_graph_make(in, scratch, &g, err));
    RU_TRY(make_stage(&g, plan, scratch, &step, err));
    RU_TRY(ru_cost_step(&step, scratch, scratch, &times, err));
    int64_t *arrives = RU_NEW(scratch, int64_t, in->n), now = 0;
    if (arrives == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the transfers of %u ops", in->n);
    }
    for (uint32_t k = 0; k < plan->n_pieces; k++) { /* those of worker 0 come first */
        int64_t at = times.end_ns[in->workers * in->n + k] + in->link.latency_ns;
        uint32_t op = plan->pieces[k].op;
        arrives[op] = at > arrives[op] ? at : arrives[op];
    }
    *n = 0;
    for (uint32_t k = 0; k < step.n; k++) {
        uint32_t op = times.order[k];
        if (op >= in->n) { /* a transfer, or an op of another worker */
            continue;
        }
        if (in->param_bytes[op] > 0) {
            int64_t late = arrives[op] - now;
            into[(*n)++] = (ru_order_time){
                .op = op, .arrive_ns = arrives[op], .need_ns = now, .wait_ns = late > 0 ? late : 0};
        }
        now = times.end_ns[op];
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
