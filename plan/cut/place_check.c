/* The judge of placements: intervals of devices and links, sorted and walked; sums of memory; every
 * edge from the end of its op to the start of its reader. */
#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "plan/cut/place.h"

/* Longer steps cannot come from a legal input; sums stay within 64 bits. */
#define STEP_MAX_NS INT64_C(4000000000000000000)

typedef struct judge {
    const ru_place_in *in;
    const ru_place_plan *p;
    ru_heap heap;
    uint32_t *carrier; /* [n_edges] the first edge that brings the same value to the same device */
    int64_t *more_ns;  /* [n_ops] what transfers cost them */
} judge;

static int64_t took_on(const judge *j, uint32_t i)
{
    double speed = j->in->devices[j->p->device[i]].speed;
    return (int64_t)floor((double)j->in->ops[i].time_ns / speed + 0.5) + j->more_ns[i];
}

static int64_t sent_for(const judge *j, const ru_place_edge *e)
{
    const ru_place_in *in = j->in;
    uint32_t from = j->p->device[e->from], to = j->p->device[e->to];
    int64_t latency_ns = in->latency_ns;
    double bytes_per_s = in->bytes_per_s;
    for (uint32_t k = 0; k < in->n_links; k++) {
        if (in->links[k].from == from && in->links[k].to == to) {
            latency_ns = in->links[k].latency_ns;
            bytes_per_s = in->links[k].bytes_per_s;
        }
    }
    double more = 0;
    if (e->bytes > 0) {
        more = (double)latency_ns + (double)e->bytes * 1e9 / bytes_per_s;
    }
    return (int64_t)floor((double)e->time_ns + more + 0.5);
}

static int64_t costs(const judge *j, uint32_t op, int64_t bytes)
{
    double ns = (double)bytes * j->in->byte_ns / j->in->devices[j->p->device[op]].speed;
    return (int64_t)floor(ns + 0.5);
}

static ru_status put_transfers(judge *j, ru_arena *a, ru_err *err)
{
    const ru_place_in *in = j->in;
    int64_t values = 0;
    for (uint32_t e = 0; e < in->n_edges; e++) {
        values = in->edges[e].value >= values ? (int64_t)in->edges[e].value + 1 : values;
    }
    uint32_t *first = RU_NEW(a, uint32_t, values * in->n_devices); /* edge + 1 */
    j->carrier = RU_NEW(a, uint32_t, in->n_edges);
    j->more_ns = RU_NEW(a, int64_t, in->n);
    if (first == NULL || j->carrier == NULL || j->more_ns == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check %u edges", in->n_edges);
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        const ru_place_edge *x = &in->edges[e];
        uint32_t to = j->p->device[x->to], *at = &first[(int64_t)x->value * in->n_devices + to];
        *at = x->value > 0 && *at > 0 ? *at : e + 1;
        j->carrier[e] = *at - 1;
        if (*at - 1 == e && j->p->device[x->from] != to) {
            j->more_ns[x->from] += costs(j, x->from, x->bytes);
            j->more_ns[x->to] += costs(j, x->to, x->bytes);
        }
    }
    return RU_OK;
}

static ru_status check_devices(const judge *j, ru_err *err)
{
    const ru_place_in *in = j->in;
    const ru_place_plan *p = j->p;
    if (p->n_ops != in->n || p->n_edges != in->n_edges || p->bound_ns > p->step_ns ||
        p->bound_ns < 0 || p->step_ns > STEP_MAX_NS) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%u ops, %u edges, a step of %lld ns above a bound of %lld ns: there are %u "
                       "and %u, and a bound is no longer than a step",
                       p->n_ops, p->n_edges, (long long)p->step_ns, (long long)p->bound_ns, in->n,
                       in->n_edges);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        bool pinned = in->ops[i].pin >= 0;
        if (p->device[i] >= in->n_devices || (pinned && p->device[i] != (uint32_t)in->ops[i].pin)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "op %u is on device %u of %u, its pin says %d", i,
                           p->device[i], in->n_devices, in->ops[i].pin);
        }
    }
    for (uint32_t d = 0; d < in->n_devices; d++) {
        int64_t bytes = 0, most = in->devices[d].memory_bytes;
        for (uint32_t i = 0; i < in->n; i++) {
            bytes += p->device[i] == d ? in->ops[i].bytes : 0;
        }
        if (most > 0 && bytes > most) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "device %u keeps %lld bytes and has %lld", d,
                           (long long)bytes, (long long)most);
        }
    }
    return RU_OK;
}

/* The first op of each group says where it is. */
static ru_status check_groups(const judge *j, ru_arena *a, ru_err *err)
{
    int64_t groups = 0;
    for (uint32_t i = 0; i < j->in->n; i++) {
        int64_t group = j->in->ops[i].group;
        groups = group >= groups ? group + 1 : groups;
    }
    uint32_t *first = RU_NEW(a, uint32_t, groups);
    if (first == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %lld groups", (long long)groups);
    }
    for (uint32_t i = j->in->n; i-- > 0;) {
        if (j->in->ops[i].group >= 0) {
            first[j->in->ops[i].group] = i;
        }
    }
    for (uint32_t i = 0; i < j->in->n; i++) {
        int32_t group = j->in->ops[i].group;
        if (group >= 0 && j->p->device[first[group]] != j->p->device[i]) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "ops %u and %u of group %d are on devices %u and %u", first[group], i,
                           group, j->p->device[first[group]], j->p->device[i]);
        }
    }
    return RU_OK;
}

static ru_status check_edges(const judge *j, ru_err *err)
{
    const ru_place_plan *p = j->p;
    for (uint32_t e = 0; e < j->in->n_edges; e++) {
        const ru_place_edge *x = &j->in->edges[e];
        int64_t ended = p->start_ns[x->from] + took_on(j, x->from);
        bool apart = p->device[x->from] != p->device[x->to];
        if (apart ? p->send_ns[e] < ended || p->send_ns[e] > p->step_ns : p->send_ns[e] != -1) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "edge %u is sent at %lld ns, op %u ends at %lld ns", e,
                           (long long)p->send_ns[e], x->from, (long long)ended);
        }
        if (apart && p->send_ns[e] != p->send_ns[j->carrier[e]]) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "edges %u and %u bring one value to device %u, but are sent at %lld and "
                           "%lld ns",
                           j->carrier[e], e, p->device[x->to], (long long)p->send_ns[j->carrier[e]],
                           (long long)p->send_ns[e]);
        }
        int64_t there = apart ? p->send_ns[e] + sent_for(j, x) : ended;
        if (p->start_ns[x->to] < there) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "op %u starts at %lld ns, what edge %u brings is there at %lld ns",
                           x->to, (long long)p->start_ns[x->to], e, (long long)there);
        }
    }
    return RU_OK;
}

/* Ops of one device, as they start; one without time may stand at the edges of others. */
static ru_status play_device(judge *j, uint32_t d, int64_t *end, ru_err *err)
{
    const ru_place_plan *p = j->p;
    int64_t freed = 0;
    ru_heap_item item;
    /* Equal starts: those without time first. */
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < p->n_ops; i++) {
            if (p->device[i] == d && (took_on(j, i) > 0) == (turn == 1)) {
                RU_CHECK(ru_heap_push(&j->heap, p->start_ns[i], i) == RU_OK);
            }
        }
    }
    while (ru_heap_pop(&j->heap, &item)) {
        uint32_t i = (uint32_t)item.value;
        if (item.key < freed) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "device %u is busy until %lld ns, op %u starts at "
                           "%lld ns",
                           d, (long long)freed, i, (long long)item.key);
        }
        freed = item.key + took_on(j, i);
    }
    *end = freed > *end ? freed : *end;
    return RU_OK;
}

static ru_status play_link(judge *j, uint32_t from, uint32_t to, ru_err *err)
{
    const ru_place_plan *p = j->p;
    int64_t freed = 0;
    ru_heap_item item;
    for (uint32_t e = 0; e < p->n_edges; e++) {
        const ru_place_edge *x = &j->in->edges[e];
        if (p->device[x->from] == from && p->device[x->to] == to && sent_for(j, x) > 0 &&
            j->carrier[e] == e) {
            RU_CHECK(ru_heap_push(&j->heap, p->send_ns[e], e) == RU_OK);
        }
    }
    while (ru_heap_pop(&j->heap, &item)) {
        if (item.key < freed) {
            return RU_FAIL(
                err, RU_E_INFEASIBLE,
                "the link from device %u to %u is busy until %lld ns, edge %u is sent at "
                "%lld ns",
                from, to, (long long)freed, (uint32_t)item.value, (long long)item.key);
        }
        freed = item.key + sent_for(j, &j->in->edges[item.value]);
    }
    return RU_OK;
}

ru_status ru_plan_place_check(const ru_place_in *in, const ru_place_plan *plan, ru_arena *scratch,
                              ru_err *err)
{
    judge j = {.in = in, .p = plan};
    int64_t end = 0;
    RU_TRY(check_devices(&j, err));
    RU_TRY(put_transfers(&j, scratch, err));
    RU_TRY(check_groups(&j, scratch, err));
    for (uint32_t i = 0; i < in->n; i++) {
        if (plan->start_ns[i] < 0 || plan->start_ns[i] > plan->step_ns) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "op %u starts at %lld ns of a step of %lld ns", i,
                           (long long)plan->start_ns[i], (long long)plan->step_ns);
        }
        if (plan->took_ns[i] != took_on(&j, i)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "op %u takes %lld ns, the plan says %lld ns", i,
                           (long long)took_on(&j, i), (long long)plan->took_ns[i]);
        }
    }
    RU_TRY(check_edges(&j, err));
    uint32_t most = in->n > in->n_edges ? in->n : in->n_edges;
    ru_heap_item *items = RU_NEW(scratch, ru_heap_item, most);
    bool *used = RU_NEW(scratch, bool, (int64_t)in->n_devices * in->n_devices);
    if (items == NULL || used == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check %u ops", in->n);
    }
    ru_heap_init(&j.heap, items, most);
    for (uint32_t d = 0; d < in->n_devices; d++) {
        RU_TRY(play_device(&j, d, &end, err));
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        uint32_t from = plan->device[in->edges[e].from], to = plan->device[in->edges[e].to];
        used[from * in->n_devices + to] = from != to;
    }
    for (uint32_t k = 0; k < in->n_devices * in->n_devices; k++) {
        if (used[k]) {
            RU_TRY(play_link(&j, k / in->n_devices, k % in->n_devices, err));
        }
    }
    return end == plan->step_ns
               ? RU_OK
               : RU_FAIL(err, RU_E_INFEASIBLE, "the last op ends at %lld ns, the plan says %lld ns",
                         (long long)end, (long long)plan->step_ns);
}
