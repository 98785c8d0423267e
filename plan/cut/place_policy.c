/* The row of `place` in plan/row/policy.def: its input as a file, its report. */
#include "plan/cut/place_policy.h"

#include <math.h>
#include <string.h>

#include "plan/row/policy.h"

#define METHODS "search|single|topo|etf|sct|heft|split|load|given"

static const ru_conf_field op_fields[] = {
    RU_ROW(TEXT, ru_place_file_op, name, "", "name of the op in the plan; empty: its number"),
    RU_ROW_AS("time", TIME, ru_place_file_op, time_ns, NULL, "duration on a device of speed 1",
              RU_IN(0, 1e13)),
    RU_ROW_AS("memory", SIZE, ru_place_file_op, bytes, "0",
              "memory that the op occupies on its device during the step", RU_IN(0, 1e15)),
    RU_ROW(I64, ru_place_file_op, group, "-1",
           "number of its group; all ops of a group run on one device; -1: no group",
           RU_IN(-1, RU_PLACE_OPS_MAX - 1)),
    RU_ROW_AS("device", I64, ru_place_file_op, pin, "-1",
              "number of the device on which the op must run; -1: any device",
              RU_IN(-1, RU_PLACE_DEVICES_MAX - 1)),
    RU_ROW(I64, ru_place_file_op, given, "-1",
           "method given: number of its device in the given placement; -1: none",
           RU_IN(-1, RU_PLACE_DEVICES_MAX - 1)),
};

static const ru_conf_table op_table =
    RU_TABLE("op", ru_place_file_op, op_fields, "one operator of the step");

static const ru_conf_field edge_fields[] = {
    RU_ROW(U32, ru_place_edge, from, NULL, "number of the op (from 0) that computes the tensor",
           RU_IN(0, RU_PLACE_OPS_MAX - 1)),
    RU_ROW(U32, ru_place_edge, to, NULL, "number of the op that reads it",
           RU_IN(0, RU_PLACE_OPS_MAX - 1)),
    RU_ROW_AS("time", TIME, ru_place_edge, time_ns, "0s",
              "measured duration of the transfer if the two ops are on different devices",
              RU_IN(0, 1e13)),
    RU_ROW(SIZE, ru_place_edge, bytes, "0",
           "size of the tensor; the transfer takes time + latency + bytes / bandwidth",
           RU_IN(0, 1e15)),
    RU_ROW(U32, ru_place_edge, value, "0",
           "number of the tensor: edges of one op with the same number go to a device once; 0: a "
           "tensor of its own",
           RU_IN(0, RU_PLACE_VALUES_MAX - 1)),
};

static const ru_conf_table edge_table =
    RU_TABLE("edge", ru_place_edge, edge_fields, "one op that reads from another");

static const ru_conf_field device_fields[] = {
    RU_ROW(TEXT, ru_place_file_device, name, "",
           "name of the device in the plan; empty: its number"),
    RU_ROW_AS("memory", SIZE, ru_place_file_device, memory_bytes, "0",
              "memory for ops; 0: no limit", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_place_file_device, speed, "1",
           "speed of the device; times of ops are divided by it", RU_IN(0.01, 100)),
};

static const ru_conf_table device_table =
    RU_TABLE("device", ru_place_file_device, device_fields, "one device");

static const ru_conf_field link_fields[] = {
    RU_ROW(U32, ru_place_link, from, NULL, "number of the device (from 0) that sends",
           RU_IN(0, RU_PLACE_DEVICES_MAX - 1)),
    RU_ROW(U32, ru_place_link, to, NULL, "number of the device that receives",
           RU_IN(0, RU_PLACE_DEVICES_MAX - 1)),
    RU_ROW_AS("latency", TIME, ru_place_link, latency_ns, "0s", "latency of each transfer",
              RU_IN(0, 1e12)),
    RU_ROW(F64, ru_place_link, bytes_per_s, NULL, "bandwidth", RU_IN(1, 1e15)),
};

static const ru_conf_table link_table =
    RU_TABLE("link", ru_place_link, link_fields, "one direction between two devices");

static ru_status check_file(const void *section, ru_err *err)
{
    const ru_place_file *f = section;
    if (f->ops.n < 1 || f->ops.n > RU_PLACE_OPS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'ops' has %u entries, expected 1 to %d", f->ops.n,
                       RU_PLACE_OPS_MAX);
    }
    if (f->edges.n > RU_PLACE_EDGES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'edges' has %u entries, expected at most %d", f->edges.n,
                       RU_PLACE_EDGES_MAX);
    }
    if (f->devices.n < 1 || f->devices.n > RU_PLACE_DEVICES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'devices' has %u entries, expected 1 to %d", f->devices.n,
                       RU_PLACE_DEVICES_MAX);
    }
    const ru_place_file_op *ops = f->ops.at;
    for (uint32_t i = 0; i < f->ops.n; i++) {
        if (ops[i].pin >= f->devices.n || ops[i].given >= f->devices.n) {
            return RU_FAIL(err, RU_E_ARG, "ops[%u] names device %lld; expected 0 to %u", i,
                           (long long)(ops[i].pin >= f->devices.n ? ops[i].pin : ops[i].given),
                           f->devices.n - 1);
        }
    }
    const ru_place_edge *edges = f->edges.at;
    for (uint32_t e = 0; e < f->edges.n; e++) {
        if (edges[e].from >= f->ops.n || edges[e].to >= f->ops.n || edges[e].from == edges[e].to) {
            return RU_FAIL(
                err, RU_E_ARG,
                "edges[%u] goes from op %u to op %u; expected two different ops from 0 to %u", e,
                edges[e].from, edges[e].to, f->ops.n - 1);
        }
    }
    const ru_place_link *links = f->links.at;
    for (uint32_t k = 0; k < f->links.n; k++) {
        if (links[k].from >= f->devices.n || links[k].to >= f->devices.n ||
            links[k].from == links[k].to) {
            return RU_FAIL(err, RU_E_ARG,
                           "links[%u] goes from device %u to device %u; expected two different "
                           "devices from 0 to %u",
                           k, links[k].from, links[k].to, f->devices.n - 1);
        }
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, ru_place_file, ops, NULL, "operators of one step", .table = &op_table),
    RU_ROW(SECTIONS, ru_place_file, edges, "[]", "dependencies between ops", .table = &edge_table),
    RU_ROW(SECTIONS, ru_place_file, devices, NULL, "devices on which the ops may run",
           .table = &device_table),
    RU_ROW(SECTIONS, ru_place_file, links, "[]",
           "directions of links that differ from latency and bytes_per_s; the last entry of a "
           "direction counts",
           .table = &link_table),
    RU_ROW_AS("latency", TIME, ru_place_in, latency_ns, "0s",
              "latency of each transfer between two devices", RU_IN(0, 1e12)),
    RU_ROW(F64, ru_place_in, bytes_per_s, "1e9", "bandwidth of each direction between two devices",
           RU_IN(1, 1e15)),
    RU_ROW(F64, ru_place_in, byte_ns, "0",
           "time in ns for which each byte of a transfer keeps both devices from ops, at speed 1",
           RU_IN(0, 1e6)),
    RU_ROW_AS("work", I64, ru_place_in, work_max, "500000000",
              "budget of the search: number of ops and edges that it may visit", RU_IN(0, 1e15)),
    RU_ROW_AS(
        "nodes", I64, ru_place_in, nodes_max, "2000",
        "largest number of branches of the integer program for a small graph without byte_ns and "
        "values; 0: do not solve it",
        RU_IN(0, 1e9)),
    RU_ROW_AS("coarse", U32, ru_place_in, coarse_ops, "120",
              "a graph with more ops is first searched in a coarse form of about this many ops; 0: "
              "never",
              RU_IN(0, RU_PLACE_OPS_MAX)),
    RU_ROW(U32, ru_place_file, seed, "1", "seed of the random search"),
    RU_ROW(CHOICE, ru_place_in, method, "search", "search: Rubato's; others: baselines",
           .choices = METHODS),
};

static const ru_conf_table table =
    RU_TABLE("place", ru_place_file, fields, "operators of a step, and devices for them",
             .check = check_file);

static ru_status inner(const ru_place_file *f, ru_arena *a, ru_place_in *in, ru_err *err)
{
    const ru_place_file_op *from = f->ops.at;
    const ru_place_file_device *devs = f->devices.at;
    ru_place_op *ops = RU_NEW(a, ru_place_op, f->ops.n);
    ru_place_device *devices = RU_NEW(a, ru_place_device, f->devices.n);
    if (ops == NULL || devices == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", f->ops.n);
    }
    for (uint32_t i = 0; i < f->ops.n; i++) {
        ops[i] = (ru_place_op){from[i].time_ns, from[i].bytes, (int32_t)from[i].group,
                               (int32_t)from[i].pin, (int32_t)from[i].given};
    }
    for (uint32_t d = 0; d < f->devices.n; d++) {
        devices[d] = (ru_place_device){devs[d].memory_bytes, devs[d].speed};
    }
    *in = f->q;
    in->ops = ops;
    in->n = f->ops.n;
    in->edges = f->edges.at;
    in->n_edges = f->edges.n;
    in->devices = devices;
    in->n_devices = f->devices.n;
    in->links = f->links.at;
    in->n_links = f->links.n;
    in->seed = f->seed;
    return RU_OK;
}

static ru_status plan_place(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_place_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_place(&q, tools->solver, tools->out, tools->scratch, plan, err);
}

static ru_status check_place(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_place_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_place_check(&q, plan, scratch, err);
}

static void put_op(const ru_place_file *f, uint32_t i, ru_table *t)
{
    const ru_place_file_op *ops = f->ops.at;
    if (ops[i].name[0] != '\0') {
        ru_table_str(t, ops[i].name);
    } else {
        ru_table_textf(t, "op %u", i);
    }
}

static void put_device(const ru_place_file *f, uint32_t d, ru_table *t)
{
    const ru_place_file_device *devices = f->devices.at;
    if (devices[d].name[0] != '\0') {
        ru_table_str(t, devices[d].name);
    } else {
        ru_table_textf(t, "device %u", d);
    }
}

static void put_devices(const ru_place_file *f, const ru_place_plan *p, ru_report *r)
{
    const ru_place_file_op *ops = f->ops.at;
    const ru_place_file_device *devices = f->devices.at;
    const ru_place_edge *edges = f->edges.at;
    ru_table *t = ru_report_grid_of(
        r, "devices", "<device >ops >busy_s >idle_share >memory_bytes >room_bytes >receives");
    for (uint32_t d = 0; d < f->devices.n; d++) {
        int64_t busy = 0, bytes = 0, n = 0, receives = 0;
        for (uint32_t i = 0; i < p->n_ops; i++) {
            bool here = p->device[i] == d;
            n += here ? 1 : 0;
            busy += here ? p->took_ns[i] : 0;
            bytes += here ? ops[i].bytes : 0;
        }
        for (uint32_t e = 0; e < p->n_edges; e++) {
            receives += p->device[edges[e].to] == d && p->device[edges[e].from] != d ? 1 : 0;
        }
        put_device(f, d, t);
        ru_table_i64(t, n);
        ru_table_f64(t, (double)busy * 1e-9, 6);
        ru_table_f64(t, p->step_ns > 0 ? 1 - (double)busy / (double)p->step_ns : 0, 3);
        ru_table_bytes(t, bytes);
        if (devices[d].memory_bytes > 0) {
            ru_table_bytes(t, devices[d].memory_bytes - bytes);
        } else {
            ru_table_none(t);
        }
        ru_table_i64(t, receives);
    }
}

/* By start, then by number: what each device does in turn. */
static ru_status put_order(const ru_place_file *f, const ru_place_plan *p, ru_arena *scratch,
                           ru_report *r, ru_err *err)
{
    uint32_t *order = RU_NEW(scratch, uint32_t, p->n_ops),
             *room = RU_NEW(scratch, uint32_t, p->n_ops);
    if (order == NULL || room == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to list %u ops", p->n_ops);
    }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        order[i] = i;
    }
    for (uint32_t width = 1; width < p->n_ops; width *= 2) {
        for (uint32_t lo = 0; lo < p->n_ops; lo += 2 * width) {
            uint32_t mid = lo + width < p->n_ops ? lo + width : p->n_ops;
            uint32_t hi = mid + width < p->n_ops ? mid + width : p->n_ops, i = lo, j = mid;
            for (uint32_t k = lo; k < hi; k++) {
                bool left = i < mid && (j >= hi || p->start_ns[order[i]] <= p->start_ns[order[j]]);
                room[k] = left ? order[i++] : order[j++];
            }
        }
        memcpy(order, room, p->n_ops * sizeof *order);
    }
    ru_table *t = ru_report_grid_of(r, "order", ">start_s >end_s <op <device");
    for (uint32_t k = 0; k < p->n_ops; k++) {
        uint32_t i = order[k];
        ru_table_f64(t, (double)p->start_ns[i] * 1e-9, 6);
        ru_table_f64(t, (double)(p->start_ns[i] + p->took_ns[i]) * 1e-9, 6);
        put_op(f, i, t);
        put_device(f, p->device[i], t);
    }
    return RU_OK;
}

static void put_transfers(const ru_place_file *f, const ru_place_plan *p, ru_report *r)
{
    const ru_place_edge *edges = f->edges.at;
    ru_table *t = NULL;
    for (uint32_t e = 0; e < p->n_edges; e++) {
        if (p->send_ns[e] < 0) {
            continue;
        }
        if (t == NULL) {
            t = ru_report_grid_of(r, "transfers", ">edge >start_s <from <to <output_of <read_by");
        }
        ru_table_i64(t, e);
        ru_table_f64(t, (double)p->send_ns[e] * 1e-9, 6);
        put_device(f, p->device[edges[e].from], t);
        put_device(f, p->device[edges[e].to], t);
        put_op(f, edges[e].from, t);
        put_op(f, edges[e].to, t);
    }
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_place_plan *p = v->plan, *mine = v->won;
    double s = (double)p->step_ns * 1e-9;
    if (mine->step_ns > 0) {
        ru_rival_is(v, s, true, "%.3g times the step", (double)p->step_ns / (double)mine->step_ns);
    } else {
        ru_rival_is(v, s, true, "as long");
    }
    return RU_OK;
}

/* Does the file say where an op was before? */
static bool is_given(const ru_place_file *f)
{
    const ru_place_file_op *ops = f->ops.at;
    bool is = false;
    for (uint32_t i = 0; i < f->ops.n; i++) {
        is = is || ops[i].given >= 0;
    }
    return is;
}

/* Every baseline on the same input; the search, which starts from them, is not repeated. */
static ru_status put_candidates(const ru_place_file *f, const ru_place_plan *p,
                                const ru_policy_tools *tools, ru_report *r, ru_err *err)
{
    ru_policy_winner(&ru_policy_place, f, r, (double)p->step_ns * 1e-9, true, "%s",
                     f->q.method != RU_PLACE_SEARCH ? "the method was given"
                     : p->from == RU_PLACE_SEARCH
                         ? "chosen"
                         : "no plan better than that of a baseline was found");
    for (uint32_t m = RU_PLACE_SINGLE; m < RU_PLACE_METHODS; m++) {
        ru_place_file other = *f;
        ru_rival v = {.in = &other, .won_in = f, .won = p};
        other.q.method = (ru_place_method)m;
        if (other.q.method != f->q.method && (m != RU_PLACE_GIVEN || is_given(f))) {
            RU_TRY(ru_policy_rival(&ru_policy_place, NULL, &v, tools, judge, r, err));
        }
    }
    return RU_OK;
}

static void put_proof(const ru_place_plan *p, ru_report *r)
{
    static const char *const proofs[] = {"the longest path", "work between two instants",
                                         "what memory lets devices compute", "the integer program"};
    double gap = p->bound_ns > 0 ? (double)p->step_ns / (double)p->bound_ns - 1 : 0;
    if (p->step_ns == p->bound_ns) {
        ru_report_answer(r, "no plan is shorter: %s", proofs[p->proof]);
    } else {
        ru_report_answer(r, "at most %.3g %% longer than the best one: bound by %s", 100 * gap,
                         proofs[p->proof]);
    }
    if (p->program == RU_PLACE_NO_SOLVER) {
        ru_report_answer(r, "no solver for integer programs is installed; CBC could prove a better "
                            "bound or find a shorter plan");
    }
}

static const ru_report_row rows[] = {
    RU_FIGURE(NS, ru_place_plan, step_ns, "step_s"),
    RU_FIGURE(NS, ru_place_plan, bound_ns, "bound_s"),
    RU_FIGURE(U32, ru_place_plan, units, "units"),
    RU_FIGURE(I64, ru_place_plan, work, "work"),
    RU_DECISION(U32, ru_place_plan, device, "device_of_op", RU_LIST(ru_place_plan, n_ops)),
    RU_DECISION(NS, ru_place_plan, start_ns, "start_of_op_s", RU_LIST(ru_place_plan, n_ops)),
};

static ru_status report_place(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_place_file *f = in;
    const ru_place_plan *p = plan;
    uint64_t used = 0;
    const ru_place_edge *edges = f->edges.at;
    bool values = false; /* some edges share one */
    int64_t sends = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        used |= UINT64_C(1) << p->device[i];
    }
    uint32_t n_used = 0;
    for (; used != 0; used &= used - 1) {
        n_used++;
    }
    for (uint32_t e = 0; e < p->n_edges; e++) {
        sends += p->send_ns[e] >= 0 ? 1 : 0;
        values = values || edges[e].value > 0;
    }
    ru_report_answer(r, "run %u %s on %u %s with %lld %s between them", p->n_ops,
                     p->n_ops == 1 ? "op" : "ops", n_used, n_used == 1 ? "device" : "devices",
                     (long long)sends, sends == 1 ? "transfer" : "transfers");
    put_proof(p, r);
    put_devices(f, p, r);
    RU_TRY(put_order(f, p, tools->scratch, r, err));
    put_transfers(f, p, r);
    RU_TRY(put_candidates(f, p, tools, r, err));
    ru_report_assume(r, "each device runs its ops, and each link direction its transfers, one at a "
                        "time in the order of the plan");
    ru_report_assume(r,
                     "each edge between two devices is a separate transfer%s, and computation "
                     "continues during transfers%s",
                     values ? ", but those of one value to a device are one" : "",
                     f->q.byte_ns > 0 ? ", except for byte_ns" : "");
    ru_report_assume(r, "an op keeps its memory for the whole step");
    if (f->q.nodes_max > 0 && (values || f->q.byte_ns > 0)) {
        ru_report_assume(
            r, "the integer program knows neither values nor byte_ns, so it was not asked");
    }
    ru_report_trigger(r, "step_s", 0.1);
    return RU_OK;
}

const ru_policy ru_policy_place = {
    .name = "place",
    .version = 1,
    .decides = "which device runs each operator of a step, and in which order",
    .source = "pesto-2021 sec 3, 4",
    .in = &table,
    .plan_bytes = sizeof(ru_place_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_place,
    .check = check_place,
    .report = report_place,
    .example = "# Two branches that join, forward and backward; weights stay with their ops.\n"
               "devices:\n"
               "  - {name: gpu0, memory: 3GB}\n"
               "  - {name: gpu1, memory: 2GB, speed: 0.8}\n"
               "latency: 100us\n"
               "bytes_per_s: 10e9\n"
               "ops:\n"
               "  - {name: read, time: 1ms, memory: 100MB}\n"
               "  - {name: wide, time: 9ms, memory: 900MB, group: 0}\n"
               "  - {name: deep1, time: 5ms, memory: 500MB, group: 1}\n"
               "  - {name: deep2, time: 4ms, memory: 500MB, group: 2}\n"
               "  - {name: join, time: 3ms, memory: 300MB}\n"
               "  - {name: deep2_grad, time: 8ms, memory: 200MB, group: 2}\n"
               "  - {name: deep1_grad, time: 10ms, memory: 200MB, group: 1}\n"
               "  - {name: wide_grad, time: 18ms, memory: 400MB, group: 0}\n"
               "edges:\n"
               "  - {from: 0, to: 1, bytes: 20MB}\n"
               "  - {from: 0, to: 2, bytes: 20MB}\n"
               "  - {from: 2, to: 3, bytes: 30MB}\n"
               "  - {from: 1, to: 4, bytes: 10MB}\n"
               "  - {from: 3, to: 4, bytes: 10MB}\n"
               "  - {from: 4, to: 5, bytes: 10MB}\n"
               "  - {from: 4, to: 7, bytes: 10MB}\n"
               "  - {from: 5, to: 6, bytes: 30MB}\n",
};
