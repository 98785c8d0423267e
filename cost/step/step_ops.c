/* Ops on devices as tasks: every piece of data that changes its device becomes a transfer. */
#include "cost/step/step.h"

#include <stddef.h>

typedef struct expansion {
    const ru_step_ops_in *in;
    ru_step_task *tasks;
    ru_step_edge *edges;
    uint32_t n, n_edges;
    uint32_t *first,
        *by_from;        /* data by the op it comes from: first [n_ops + 2], by_from [n_data] */
    uint32_t *sent;      /* [n_devices] transfer of the op at hand to this device */
    uint32_t *sent_by;   /* [n_devices] which op that was, from 1 */
    int64_t *sent_bytes; /* [n_devices] */
} expansion;

static ru_status check_ops(const ru_step_ops_in *in, ru_err *err)
{
    if (in->n_ops > RU_STEP_TASKS_MAX / 2 || in->n_data > RU_STEP_TASKS_MAX / 2) {
        return RU_FAIL(err, RU_E_ARG, "%u ops and %u edges, expected at most %d of each", in->n_ops,
                       in->n_data, RU_STEP_TASKS_MAX / 2);
    }
    for (uint32_t i = 0; i < in->n_ops; i++) {
        if (in->device[i] >= in->n_devices) {
            return RU_FAIL(err, RU_E_ARG, "op %u is on device %u of %u", i, in->device[i],
                           in->n_devices);
        }
    }
    for (uint32_t e = 0; e < in->n_data; e++) {
        const ru_step_data *d = &in->data[e];
        if (d->from >= in->n_ops || d->to >= in->n_ops || d->size_bytes < 0) {
            return RU_FAIL(err, RU_E_ARG, "edge %u carries %lld bytes from op %u to %u of %u", e,
                           (long long)d->size_bytes, d->from, d->to, in->n_ops);
        }
        uint64_t a = in->device[d->from], b = in->device[d->to];
        if (a != b && in->channel[a * in->n_devices + b] >= in->n_channels) {
            return RU_FAIL(err, RU_E_ARG,
                           "edge %u needs a channel from device %u to %u: there is "
                           "none",
                           e, in->device[d->from], in->device[d->to]);
        }
    }
    for (uint32_t c = 0; c < in->n_channels; c++) {
        const ru_link_cost *l = &in->channel_cost[c];
        if (l->overhead_ns < 0 || l->latency_ns < 0 || !(l->bytes_per_s > 0)) {
            return RU_FAIL(err, RU_E_ARG,
                           "channel %u has %g bytes a second and a negative time, or "
                           "no bandwidth",
                           c, l->bytes_per_s);
        }
    }
    return RU_OK;
}

static bool expansion_init(expansion *x, const ru_step_ops_in *in, ru_arena *out, ru_arena *scratch)
{
    *x = (expansion){.in = in,
                     .tasks = RU_NEW(out, ru_step_task, (int64_t)in->n_ops + in->n_data),
                     .edges = RU_NEW(out, ru_step_edge, (int64_t)in->n_data * 2),
                     .first = RU_NEW(scratch, uint32_t, (int64_t)in->n_ops + 2),
                     .by_from = RU_NEW(scratch, uint32_t, in->n_data),
                     .sent = RU_NEW(scratch, uint32_t, in->n_devices),
                     .sent_by = RU_NEW(scratch, uint32_t, in->n_devices),
                     .sent_bytes = RU_NEW(scratch, int64_t, in->n_devices)};
    if (x->tasks == NULL || x->edges == NULL || x->first == NULL || x->by_from == NULL ||
        x->sent == NULL || x->sent_by == NULL || x->sent_bytes == NULL) {
        return false;
    }
    for (uint32_t e = 0; e < in->n_data; e++) {
        x->first[in->data[e].from + 2]++;
    }
    for (uint32_t i = 2; i < in->n_ops + 2; i++) {
        x->first[i] += x->first[i - 1];
    }
    for (uint32_t e = 0; e < in->n_data; e++) {
        x->by_from[x->first[in->data[e].from + 1]++] = e;
    }
    return true;
}

static void add_edge(expansion *x, uint32_t from, uint32_t to)
{
    x->edges[x->n_edges++] = (ru_step_edge){from, to};
}

/* One edge of op i: a dependency, or a transfer, or one more reader of a transfer. */
static void carry(expansion *x, const ru_step_data *d)
{
    const ru_step_ops_in *in = x->in;
    uint32_t from = in->device[d->from], to = in->device[d->to];
    if (from == to) {
        add_edge(x, d->from, d->to);
        return;
    }
    int64_t rank = in->rank != NULL ? in->rank[d->to] : d->to;
    bool known = !in->each_edge && x->sent_by[to] == d->from + 1;
    uint32_t at = known ? x->sent[to] : x->n++;
    uint32_t channel = in->channel[(uint64_t)from * in->n_devices + to];
    const ru_link_cost *cost = &in->channel_cost[channel];
    ru_step_task *t = &x->tasks[at];
    if (!known) {
        x->sent[to] = at;
        x->sent_by[to] = d->from + 1;
        x->sent_bytes[to] = -1;
        *t = (ru_step_task){
            .rank = rank, .latency_ns = cost->latency_ns, .server = in->n_devices + channel};
        add_edge(x, d->from, at);
    }
    if (d->size_bytes > x->sent_bytes[to]) {
        x->sent_bytes[to] = d->size_bytes;
        t->ns = ru_cost_link_held_ns(cost, d->size_bytes);
    }
    t->rank = rank < t->rank ? rank : t->rank;
    add_edge(x, at, d->to);
}

ru_status ru_cost_step_expand(const ru_step_ops_in *in, ru_arena *out, ru_arena *scratch,
                              ru_step_in *step, ru_err *err)
{
    RU_TRY(check_ops(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    expansion x;
    if (!expansion_init(&x, in, out, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a step of %u ops and %u edges", in->n_ops,
                       in->n_data);
    }
    x.n = in->n_ops;
    for (uint32_t i = 0; i < in->n_ops; i++) {
        x.tasks[i] = (ru_step_task){.ns = in->op_ns[i],
                                    .rank = in->rank != NULL ? in->rank[i] : i,
                                    .server = in->device[i]};
        for (uint32_t k = x.first[i]; k < x.first[i + 1]; k++) {
            carry(&x, &in->data[x.by_from[k]]);
        }
    }
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    *step = (ru_step_in){.tasks = x.tasks,
                         .n = x.n,
                         .edges = x.edges,
                         .n_edges = x.n_edges,
                         .n_servers = in->n_devices + in->n_channels};
    return RU_OK;
}
