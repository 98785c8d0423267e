/* The graph of a placement: limits, durations on every device and link, units, topological order.
 */
#include <math.h>
#include <string.h>

#include "plan/cut/place_impl.h"

/* All times of a step together: sums cannot overflow. */
#define TIME_MAX 4e18

static ru_status check_sizes(const ru_place_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_PLACE_OPS_MAX || in->n_edges > RU_PLACE_EDGES_MAX ||
        in->n_devices < 1 || in->n_devices > RU_PLACE_DEVICES_MAX ||
        in->method >= RU_PLACE_METHODS || in->work_max < 0 || in->nodes_max < 0) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u ops, %u edges and %u devices, method %u; expected 1 to %d "
                       "ops, at most %d edges and 1 to %d devices",
                       in->n, in->n_edges, in->n_devices, (uint32_t)in->method, RU_PLACE_OPS_MAX,
                       RU_PLACE_EDGES_MAX, RU_PLACE_DEVICES_MAX);
    }
    for (uint32_t d = 0; d < in->n_devices; d++) {
        double speed = in->devices[d].speed;
        if (!(speed >= 0.01 && speed <= 100) || in->devices[d].memory_bytes < 0) {
            return RU_FAIL(err, RU_E_ARG,
                           "device %u has speed %g and %lld bytes; expected a speed of 0.01 to 100 "
                           "and 0 bytes or more",
                           d, speed, (long long)in->devices[d].memory_bytes);
        }
    }
    return RU_OK;
}

static ru_status check_links(const ru_place_in *in, ru_err *err)
{
    if (in->latency_ns < 0 || !(in->bytes_per_s > 0) || !(in->byte_ns >= 0)) {
        return RU_FAIL(
            err, RU_E_ARG,
            "links have a latency of %lld ns, a rate of %g bytes/s and %g ns for a byte; "
            "expected 0 or more, and a rate above 0",
            (long long)in->latency_ns, in->bytes_per_s, in->byte_ns);
    }
    for (uint32_t k = 0; k < in->n_links; k++) {
        const ru_place_link *l = &in->links[k];
        if (l->from >= in->n_devices || l->to >= in->n_devices || l->from == l->to) {
            return RU_FAIL(err, RU_E_ARG,
                           "link %u joins devices %u and %u, but there are %u devices (from 0)", k,
                           l->from, l->to, in->n_devices);
        }
        if (l->latency_ns < 0 || !(l->bytes_per_s > 0)) {
            return RU_FAIL(err, RU_E_ARG,
                           "link %u has a latency of %lld ns and a rate of %g bytes/s; expected 0 "
                           "or more, and a rate above 0",
                           k, (long long)l->latency_ns, l->bytes_per_s);
        }
    }
    return RU_OK;
}

static ru_status check_graph(const ru_place_in *in, ru_err *err)
{
    double bytes = 0;
    int64_t most = (int64_t)in->n_devices;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_place_op *o = &in->ops[i];
        bytes += (double)o->bytes;
        if (o->time_ns < 0 || o->bytes < 0 || o->group < RU_PLACE_ANY || o->pin < RU_PLACE_ANY ||
            o->pin >= most || o->given < RU_PLACE_ANY || o->given >= most) {
            return RU_FAIL(err, RU_E_ARG,
                           "op %u is not valid: %lld ns, %lld bytes, group %d, pinned to device "
                           "%d, placed on device %d, %lld devices",
                           i, (long long)o->time_ns, (long long)o->bytes, o->group, o->pin,
                           o->given, (long long)most);
        }
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        const ru_place_edge *x = &in->edges[e];
        if (x->from >= in->n || x->to >= in->n || x->from == x->to || x->time_ns < 0 ||
            x->bytes < 0 || x->value >= RU_PLACE_VALUES_MAX) {
            return RU_FAIL(err, RU_E_ARG,
                           "edge %u from op %u to op %u is not valid: there are %u ops, and the "
                           "edge has %lld ns and %lld bytes",
                           e, x->from, x->to, in->n, (long long)x->time_ns, (long long)x->bytes);
        }
    }
    return bytes < 4e18 ? RU_OK
                        : RU_FAIL(err, RU_E_ARG,
                                  "the ops keep %g bytes together; expected less than 4e18", bytes);
}

/* -- durations --------------------------------------------------------------------------------- */

typedef struct wire {
    int64_t latency_ns;
    double bytes_per_s;
} wire;

static double send_ns(const ru_place_edge *e, const wire *w)
{
    double more =
        e->bytes > 0 ? (double)w->latency_ns + (double)e->bytes * 1e9 / w->bytes_per_s : 0;
    return floor((double)e->time_ns + more + 0.5);
}

/* Number of the wire in `wires`, appended when it is new; links of the same figures share one. */
static uint32_t wire_of(wire *wires, uint32_t *n, wire w)
{
    for (uint32_t k = 0; k < *n; k++) {
        if (wires[k].latency_ns == w.latency_ns && wires[k].bytes_per_s == w.bytes_per_s) {
            return k;
        }
    }
    wires[*n] = w;
    return (*n)++;
}

/* What transfers cost the devices at their ends; *total grows by all of it. */
static ru_status put_hosts(rui_place *g, ru_arena *a, double *total, ru_err *err)
{
    const ru_place_in *in = g->in;
    g->host = in->byte_ns > 0 ? RU_NEW(a, int64_t, (int64_t)g->m * g->n_devs) : NULL;
    if (in->byte_ns > 0 && g->host == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u edges on %u devices", g->m, g->n_devs);
    }
    for (uint32_t e = 0; e < g->m && g->host != NULL; e++) {
        double most = 0;
        for (uint32_t d = 0; d < g->n_devs; d++) {
            double bytes = (double)in->edges[e].bytes;
            double t = floor(bytes * in->byte_ns / in->devices[d].speed + 0.5);
            most = fmax(most, t);
            g->host[(size_t)e * g->n_devs + d] = t < TIME_MAX ? (int64_t)t : 0;
        }
        *total += 2 * most;
    }
    return RU_OK;
}

static ru_status put_durations(rui_place *g, ru_arena *a, ru_err *err)
{
    const ru_place_in *in = g->in;
    wire *wires = RU_NEW(a, wire, (int64_t)in->n_links + 1);
    g->took = RU_NEW(a, int64_t, (int64_t)g->n * g->n_devs);
    g->kind = RU_NEW(a, uint32_t, (int64_t)g->n_devs * g->n_devs);
    if (wires == NULL || g->took == NULL || g->kind == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops on %u devices", g->n, g->n_devs);
    }
    (void)wire_of(wires, &g->n_kinds, (wire){in->latency_ns, in->bytes_per_s});
    for (uint32_t k = 0; k < in->n_links; k++) {
        const ru_place_link *l = &in->links[k];
        g->kind[l->from * g->n_devs + l->to] =
            wire_of(wires, &g->n_kinds, (wire){l->latency_ns, l->bytes_per_s});
    }
    g->send = RU_NEW(a, int64_t, (int64_t)g->n_kinds * g->m);
    if (g->send == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u edges on %u kinds of links", g->m,
                       g->n_kinds);
    }
    double total = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        double most = 0;
        for (uint32_t d = 0; d < g->n_devs; d++) {
            double t = floor((double)in->ops[i].time_ns / in->devices[d].speed + 0.5);
            most = fmax(most, t);
            g->took[(size_t)i * g->n_devs + d] = t < TIME_MAX ? (int64_t)t : 0;
        }
        total += most;
    }
    for (uint32_t e = 0; e < g->m; e++) {
        double most = 0;
        for (uint32_t k = 0; k < g->n_kinds; k++) {
            double t = send_ns(&in->edges[e], &wires[k]);
            most = fmax(most, t);
            g->send[(size_t)k * g->m + e] = t < TIME_MAX ? (int64_t)t : 0;
        }
        total += most;
    }
    RU_TRY(put_hosts(g, a, &total, err));
    return total < TIME_MAX
               ? RU_OK
               : RU_FAIL(err, RU_E_ARG,
                         "ops and transfers together take %g s; expected less than %g s",
                         total * 1e-9, TIME_MAX * 1e-9);
}

/* -- units ------------------------------------------------------------------------------------- */

/* Ops of one group are one unit; units are numbered by their first op. */
static ru_status put_units(rui_place *g, ru_arena *a, ru_err *err)
{
    const ru_place_in *in = g->in;
    int64_t groups = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        groups = in->ops[i].group >= groups ? (int64_t)in->ops[i].group + 1 : groups;
    }
    if (groups > RU_PLACE_OPS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a group has the number %lld; expected numbers below %d",
                       (long long)groups - 1, RU_PLACE_OPS_MAX);
    }
    uint32_t *of_group = RU_NEW(a, uint32_t, groups); /* unit + 1; 0: none yet */
    int64_t *memory = RU_NEW(a, int64_t, g->n_devs);
    g->unit = RU_NEW(a, uint32_t, g->n);
    g->unit_bytes = RU_NEW(a, int64_t, g->n);
    g->unit_pin = RU_NEW(a, uint32_t, g->n);
    if (of_group == NULL || memory == NULL || g->unit == NULL || g->unit_bytes == NULL ||
        g->unit_pin == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", g->n);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        const ru_place_op *o = &in->ops[i];
        bool known = o->group >= 0 && of_group[o->group] > 0;
        uint32_t u = known ? of_group[o->group] - 1 : g->n_units++;
        if (!known) {
            g->unit_pin[u] = RUI_PLACE_NONE;
            if (o->group >= 0) {
                of_group[o->group] = u + 1;
            }
        }
        g->unit[i] = u;
        g->unit_bytes[u] += o->bytes;
        if (o->pin >= 0 && g->unit_pin[u] != RUI_PLACE_NONE && g->unit_pin[u] != (uint32_t)o->pin) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "op %u is pinned to device %d, but another op of its group %d is pinned "
                           "to device %u",
                           i, o->pin, o->group, g->unit_pin[u]);
        }
        g->unit_pin[u] = o->pin >= 0 ? (uint32_t)o->pin : g->unit_pin[u];
    }
    for (uint32_t d = 0; d < g->n_devs; d++) {
        int64_t bytes = in->devices[d].memory_bytes;
        memory[d] = bytes > 0 ? bytes : INT64_MAX;
    }
    g->memory = memory;
    return RU_OK;
}

/* Edges of one value come from one op, with as much to send. */
static ru_status put_values(rui_place *g, ru_arena *a, ru_err *err)
{
    const ru_place_edge *at = g->in->edges;
    for (uint32_t e = 0; e < g->m; e++) {
        g->n_values = at[e].value >= g->n_values && at[e].value > 0 ? at[e].value + 1 : g->n_values;
    }
    if (g->n_values == 0) {
        return RU_OK;
    }
    uint32_t *first = RU_NEW(a, uint32_t, g->n_values); /* edge + 1 */
    g->value = RU_NEW(a, uint32_t, g->m);
    if (first == NULL || g->value == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u edges", g->m);
    }
    for (uint32_t e = 0; e < g->m; e++) {
        uint32_t v = at[e].value, like = v > 0 && first[v] > 0 ? first[v] - 1 : e;
        first[v] = like + 1;
        g->value[e] = v;
        if (at[e].from != at[like].from || at[e].bytes != at[like].bytes ||
            at[e].time_ns != at[like].time_ns) {
            return RU_FAIL(err, RU_E_ARG,
                           "edges %u and %u carry value %u, but have different ops, bytes or times",
                           like, e, v);
        }
    }
    return RU_OK;
}

/* -- order ------------------------------------------------------------------------------------- */

void rui_place_sort(const double *key, uint32_t n, uint32_t *order, uint32_t *room)
{
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t lo = 0; lo < n; lo += 2 * width) {
            uint32_t mid = lo + width < n ? lo + width : n;
            uint32_t hi = mid + width < n ? mid + width : n, i = lo, j = mid;
            for (uint32_t k = lo; k < hi; k++) {
                bool left = i < mid && (j >= hi || key[order[i]] >= key[order[j]]);
                room[k] = left ? order[i++] : order[j++];
            }
        }
        memcpy(order, room, n * sizeof *order);
    }
}

/* at[k] .. at[k + 1] - 1 are the places of item k in `list`; key[i] says the item of i. */
static void bucket(const uint32_t *key, uint32_t n, uint32_t n_keys, uint32_t *at, uint32_t *list)
{
    for (uint32_t i = 0; i < n; i++) {
        at[key[i] + 1]++;
    }
    for (uint32_t k = 0; k < n_keys; k++) {
        at[k + 1] += at[k];
    }
    for (uint32_t i = n; i-- > 0;) {
        list[--at[key[i] + 1]] = i;
    }
    /* at[k + 1] is now where k begins: one to the left. */
    for (uint32_t k = 0; k < n_keys; k++) {
        at[k] = at[k + 1];
    }
    at[n_keys] = n;
}

bool rui_place_first(const rui_place *g, const uint32_t *unit_dev, uint32_t e, uint32_t dev)
{
    bool first = true, shared = g->value != NULL && g->value[e] > 0;
    for (uint32_t x = g->out_at[g->from[e]]; shared && first && g->out_edge[x] != e; x++) {
        uint32_t f = g->out_edge[x];
        first = g->value[f] != g->value[e] || unit_dev[g->unit[g->to[f]]] != dev;
    }
    return first;
}

int64_t rui_place_runs(const rui_place *g, const uint32_t *unit_dev, uint32_t i, uint32_t dev)
{
    int64_t ns = rui_place_took(g, i, dev);
    for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1] && g->host != NULL; x++) {
        uint32_t e = g->in_edge[x], from = unit_dev[g->unit[g->from[e]]];
        bool pays = from != dev && from != RUI_PLACE_NONE && rui_place_first(g, unit_dev, e, dev);
        ns += pays ? g->host[(size_t)e * g->n_devs + dev] : 0;
    }
    for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1] && g->host != NULL; x++) {
        uint32_t e = g->out_edge[x], to = unit_dev[g->unit[g->to[e]]];
        bool pays = to != dev && to != RUI_PLACE_NONE && rui_place_first(g, unit_dev, e, to);
        ns += pays ? g->host[(size_t)e * g->n_devs + dev] : 0;
    }
    return ns;
}

int64_t rui_place_least(const rui_place *g, uint32_t i)
{
    uint32_t pin = g->unit_pin[g->unit[i]];
    int64_t least = rui_place_took(g, i, pin != RUI_PLACE_NONE ? pin : 0);
    for (uint32_t d = 1; d < g->n_devs && pin == RUI_PLACE_NONE; d++) {
        int64_t t = rui_place_took(g, i, d);
        least = t < least ? t : least;
    }
    return least;
}

/* First in, first out; *circle: an op that is never ready. */
static bool sort_ops(rui_place *g, uint32_t *waits, uint32_t *circle)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        waits[i] = g->in_at[i + 1] - g->in_at[i];
        if (waits[i] == 0) {
            g->topo[n++] = i;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = g->topo[k];
        for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
            uint32_t j = g->to[g->out_edge[x]];
            if (--waits[j] == 0) {
                g->topo[n++] = j;
            }
        }
    }
    for (uint32_t i = 0; i < g->n && n < g->n; i++) {
        if (waits[i] > 0) {
            *circle = i;
            return false;
        }
    }
    return true;
}

static void put_paths(rui_place *g)
{
    for (uint32_t k = 0; k < g->n; k++) {
        uint32_t i = g->topo[k];
        for (uint32_t x = g->in_at[i]; x < g->in_at[i + 1]; x++) {
            uint32_t j = g->from[g->in_edge[x]];
            int64_t t = g->head[j] + rui_place_least(g, j);
            g->head[i] = t > g->head[i] ? t : g->head[i];
        }
    }
    for (uint32_t k = g->n; k-- > 0;) {
        uint32_t i = g->topo[k];
        for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
            uint32_t j = g->to[g->out_edge[x]];
            int64_t t = g->tail[j] + rui_place_least(g, j);
            g->tail[i] = t > g->tail[i] ? t : g->tail[i];
        }
    }
}

bool rui_place_index(rui_place *g, ru_arena *a, uint32_t *circle)
{
    *circle = RUI_PLACE_NONE;
    g->in_at = RU_NEW(a, uint32_t, (int64_t)g->n + 1);
    g->out_at = RU_NEW(a, uint32_t, (int64_t)g->n + 1);
    g->unit_at = RU_NEW(a, uint32_t, (int64_t)g->n_units + 1);
    g->in_edge = RU_NEW(a, uint32_t, g->m);
    g->out_edge = RU_NEW(a, uint32_t, g->m);
    g->unit_op = RU_NEW(a, uint32_t, g->n);
    g->topo = RU_NEW(a, uint32_t, g->n);
    g->head = RU_NEW(a, int64_t, g->n);
    g->tail = RU_NEW(a, int64_t, g->n);
    uint32_t *waits = RU_NEW(a, uint32_t, g->n);
    if (g->in_at == NULL || g->out_at == NULL || g->unit_at == NULL || g->in_edge == NULL ||
        g->out_edge == NULL || g->unit_op == NULL || g->topo == NULL || g->head == NULL ||
        g->tail == NULL || waits == NULL) {
        return false;
    }
    bucket(g->to, g->m, g->n, g->in_at, g->in_edge);
    bucket(g->from, g->m, g->n, g->out_at, g->out_edge);
    bucket(g->unit, g->n, g->n_units, g->unit_at, g->unit_op);
    if (!sort_ops(g, waits, circle)) {
        return false;
    }
    put_paths(g);
    return true;
}

ru_status rui_place_make(const ru_place_in *in, ru_arena *a, rui_place *g, ru_err *err)
{
    RU_TRY(check_sizes(in, err));
    RU_TRY(check_links(in, err));
    RU_TRY(check_graph(in, err));
    *g = (rui_place){.in = in, .n = in->n, .m = in->n_edges, .n_devs = in->n_devices};
    RU_TRY(put_durations(g, a, err));
    RU_TRY(put_units(g, a, err));
    RU_TRY(put_values(g, a, err));
    g->from = RU_NEW(a, uint32_t, g->m);
    g->to = RU_NEW(a, uint32_t, g->m);
    if (g->from == NULL || g->to == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u edges", g->m);
    }
    for (uint32_t e = 0; e < g->m; e++) {
        g->from[e] = in->edges[e].from;
        g->to[e] = in->edges[e].to;
    }
    uint32_t circle;
    if (!rui_place_index(g, a, &circle)) {
        return circle != RUI_PLACE_NONE
                   ? RU_FAIL(err, RU_E_ARG,
                             "op %u waits for itself, because the edges form a cycle", circle)
                   : RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops and %u edges", g->n, g->m);
    }
    return RU_OK;
}
