/* The row of `pipe` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>

#include "plan/cut/pipe.h"
#include "plan/row/policy.h"

typedef struct pipe_layer {
    const char *name;
    int64_t forward_ns, backward_ns, param_bytes, activation_bytes;
    ru_conf_i64s after;
} pipe_layer;

typedef struct pipe_file {
    ru_pipe_in q;            /* without layers, edges and levels */
    ru_conf_sections layers; /* of pipe_layer */
    ru_conf_i64s units;
    ru_conf_f64s bytes_per_s;
    ru_conf_f64s speeds;
} pipe_file;
_Static_assert(offsetof(pipe_file, q) == 0, "rows name fields of q");

#define METHODS \
    "pipeline|straight|data_parallel|single|asp|model_parallel|hybrid|gpipe|flush|2bw|naive"

static const ru_conf_field layer_fields[] = {
    RU_ROW(TEXT, pipe_layer, name, "", "name of the layer in the plan; empty: its number"),
    RU_ROW_AS("forward", TIME, pipe_layer, forward_ns, NULL,
              "time of the forward pass of one minibatch on one worker", RU_IN(0, 1e12)),
    RU_ROW_AS("backward", TIME, pipe_layer, backward_ns, NULL, "time of the backward pass",
              RU_IN(0, 1e12)),
    RU_ROW_AS("parameters", SIZE, pipe_layer, param_bytes, "0", "size of the weights",
              RU_IN(0, 1e13)),
    RU_ROW_AS("activation", SIZE, pipe_layer, activation_bytes, "0",
              "size of the output for one minibatch", RU_IN(0, 1e13)),
    RU_ROW(I64_LIST, pipe_layer, after, "[]",
           "indexes (from 0) of the layers whose outputs it reads",
           RU_IN(0, RU_PIPE_LAYERS_MAX - 1)),
};

static const ru_conf_table layer_table =
    RU_TABLE("layer", pipe_layer, layer_fields, "one layer of the network");

static ru_status check_file(const void *section, ru_err *err)
{
    const pipe_file *f = section;
    const pipe_layer *layers = f->layers.at;
    if (f->layers.n < 1 || f->layers.n > RU_PIPE_LAYERS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'layers' has %u entries, expected 1 to %d", f->layers.n,
                       RU_PIPE_LAYERS_MAX);
    }
    if (f->units.n < 1 || f->units.n > RU_PIPE_LEVELS_MAX || f->units.n != f->bytes_per_s.n) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'units' has %u entries and 'bytes_per_s' %u; expected equal numbers, 1 to %d",
            f->units.n, f->bytes_per_s.n, RU_PIPE_LEVELS_MAX);
    }
    if (f->speeds.n > 0 && (f->units.n != 1 || f->speeds.n != f->units.at[0])) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'speeds' has %u entries, expected one for each worker of one level, or none",
            f->speeds.n);
    }
    double time = 0;
    for (uint32_t i = 0; i < f->layers.n; i++) {
        time += (double)layers[i].forward_ns + (double)layers[i].backward_ns;
        for (uint32_t k = 0; k < layers[i].after.n; k++) {
            if (layers[i].after.at[k] >= f->layers.n || layers[i].after.at[k] == i) {
                return RU_FAIL(err, RU_E_ARG,
                               "layers[%u].after: there is no other layer %lld, expected 0 to %u",
                               i, (long long)layers[i].after.at[k], f->layers.n - 1);
            }
        }
    }
    return time > 0 ? RU_OK : RU_FAIL(err, RU_E_ARG, "every layer of 'layers' has compute time 0");
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, pipe_file, layers, NULL, "layers of the network", .table = &layer_table),
    RU_ROW(I64_LIST, pipe_file, units, "[4]",
           "number of units at each level: workers of a host, hosts of a rack, and so on",
           RU_IN(1, RU_PIPE_UNITS_MAX)),
    RU_ROW(F64_LIST, pipe_file, bytes_per_s, "[1e9]",
           "bandwidth of the link of one unit, for each level", RU_IN(1, 1e15)),
    RU_ROW(F64_LIST, pipe_file, speeds, "",
           "speed of each worker beside one that takes the times of the layers: worker k has stage "
           "k; methods straight, model_parallel, gpipe, flush; empty: all are alike",
           RU_IN(RU_PIPE_SPEED_MIN, RU_PIPE_SPEED_MAX)),
    RU_ROW_AS("memory", F64, ru_pipe_in, memory_bytes, "0",
              "memory of a worker in bytes; 0: no limit", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_pipe_in, state, "1",
           "bytes of gradients and optimizer state per byte of weights", RU_IN(0, 100)),
    RU_ROW_AS("cost", CHOICE, ru_pipe_in, model, "calibrated",
              "cost model of stages; calibrated: ring all-reduce with overlap; repo: that of the "
              "published optimizer; paper: that of the paper",
              .choices = "calibrated|repo|paper"),
    RU_ROW(F64, ru_pipe_in, overlap, "1",
           "cost calibrated: measured fraction of the shorter of gradient exchange and "
           "computation that overlaps with the longer",
           RU_IN(0, 1)),
    RU_ROW(F64, ru_pipe_in, compression, "1",
           "compression ratio of activations between stages; 0: the transfer costs nothing",
           RU_IN(0, 1e6)),
    RU_ROW(U32, ru_pipe_in, microbatches, "4",
           "methods gpipe, flush: number of microbatches of a minibatch; 2bw: minibatches "
           "between two gradient exchanges",
           RU_IN(1, 65536)),
    RU_ROW(U32, ru_pipe_in, cuts_max, "4096",
           "a graph with more possible cuts than this is cut only along one topological order",
           RU_IN(2, 16384)),
    RU_ROW(CHOICE, ru_pipe_in, method, "pipeline", "pipeline: Rubato's; others: baselines",
           .choices = METHODS),
};

static const ru_conf_table table =
    RU_TABLE("pipe", pipe_file, fields, "a network to train, and the workers that train it",
             .check = check_file);

ru_status ru_pipe_in_of(const void *row_in, ru_arena *a, ru_pipe_in *in, ru_err *err)
{
    const pipe_file *f = row_in;
    const pipe_layer *from = f->layers.at;
    uint32_t n_edges = 0, e = 0;
    for (uint32_t i = 0; i < f->layers.n; i++) {
        n_edges += from[i].after.n;
    }
    ru_pipe_layer *layers = RU_NEW(a, ru_pipe_layer, f->layers.n);
    ru_pipe_edge *edges = RU_NEW(a, ru_pipe_edge, n_edges);
    ru_pipe_level *levels = RU_NEW(a, ru_pipe_level, f->units.n);
    if (layers == NULL || edges == NULL || levels == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u layers", f->layers.n);
    }
    for (uint32_t i = 0; i < f->layers.n; i++) {
        layers[i] = (ru_pipe_layer){from[i].forward_ns + from[i].backward_ns, from[i].param_bytes,
                                    from[i].activation_bytes};
        for (uint32_t k = 0; k < from[i].after.n; k++) {
            edges[e++] = (ru_pipe_edge){(uint32_t)from[i].after.at[k], i};
        }
    }
    for (uint32_t k = 0; k < f->units.n; k++) {
        levels[k] = (ru_pipe_level){(uint32_t)f->units.at[k], f->bytes_per_s.at[k]};
    }
    *in = f->q;
    in->layers = layers;
    in->n = f->layers.n;
    in->edges = edges;
    in->n_edges = n_edges;
    in->levels = levels;
    in->n_levels = f->units.n;
    in->speeds = f->speeds.at;
    in->n_speeds = f->speeds.n;
    return RU_OK;
}

static ru_status plan_pipe(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_pipe_in q;
    RU_TRY(ru_pipe_in_of(in, tools->scratch, &q, err));
    return ru_plan_pipe(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_pipe(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_pipe_in q;
    RU_TRY(ru_pipe_in_of(in, scratch, &q, err));
    return ru_plan_pipe_check(&q, plan, scratch, err);
}

static void put_name(const pipe_file *f, uint32_t i, ru_table *t)
{
    const pipe_layer *layers = f->layers.at;
    if (layers[i].name[0] != '\0') {
        ru_table_str(t, layers[i].name);
    } else {
        ru_table_textf(t, "layer %u", i);
    }
}

static void put_stages(const pipe_file *f, const ru_pipe_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(
        r, "stages",
        ">stage <first <last >layers >workers >compute_s >send_bytes >weight_bytes "
        ">in_flight >versions >memory_bytes");
    for (uint32_t s = 0; s < p->n_stages; s++) {
        uint32_t n = 0, first = UINT32_MAX, last = 0;
        for (uint32_t i = 0; i < p->n_layers; i++) {
            n += p->stage_of[i] == s ? 1 : 0;
            first = p->stage_of[i] == s && first == UINT32_MAX ? i : first;
            last = p->stage_of[i] == s ? i : last;
        }
        ru_table_i64(t, s);
        put_name(f, first, t);
        put_name(f, last, t);
        ru_table_i64(t, n);
        ru_table_i64(t, p->stages[s].workers);
        ru_table_f64(t, p->stages[s].compute_s, 6);
        ru_table_bytes(t, (int64_t)p->stages[s].cut_bytes);
        ru_table_bytes(t, (int64_t)p->stages[s].param_bytes);
        ru_table_i64(t, p->stages[s].in_flight);
        ru_table_i64(t, p->stages[s].versions);
        ru_table_bytes(t, (int64_t)p->stages[s].memory_bytes);
    }
}

static void put_parts(const ru_pipe_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "parts", ">level >units >first_stage >last_stage >time_s");
    for (uint32_t k = 0; k < p->n_parts; k++) {
        ru_table_i64(t, p->parts[k].level + 1);
        ru_table_i64(t, p->parts[k].units);
        ru_table_i64(t, p->parts[k].first);
        ru_table_i64(t, p->parts[k].end - 1);
        ru_table_f64(t, p->parts[k].time_s, 9);
    }
}

/* What speaks against a method besides its time; NULL: nothing. */
static const char *against(uint32_t method)
{
    return method == RU_PIPE_NAIVE ? "gradients mix weights of several versions"
           : method == RU_PIPE_ASP ? "gradients are stale by as many updates as there are workers"
           : method == RU_PIPE_TWO_VERSIONS ? "one update for several minibatches: other training"
                                            : NULL;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_pipe_plan *p = v->plan, *mine = v->won;
    double ratio = p->minibatch_s / mine->minibatch_s;
    const char *but = against(v->method), *s = p->workers == 1 ? "" : "s";
    if (v->method == RU_PIPE_TWO_VERSIONS) {
        /* It may be faster: it is another training, not a better schedule of this one. */
        ru_rival_beside(v, p->minibatch_s, "%.3g times the time per minibatch on %u worker%s; %s",
                        ratio, p->workers, s, but);
    } else {
        ru_rival_is(v, p->minibatch_s, but == NULL,
                    "%.3g times the time per minibatch on %u worker%s%s%s", ratio, p->workers, s,
                    but != NULL ? "; " : "", but != NULL ? but : "");
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_DECISION(U32, ru_pipe_plan, n_stages, "stages"),
    RU_DECISION(U32, ru_pipe_plan, workers, "workers"),
    RU_DECISION(U32, ru_pipe_plan, copies, "copies"),
    RU_DECISION(U32, ru_pipe_plan, in_flight, "minibatches_in_flight"),
    RU_DECISION(CHOICE, ru_pipe_plan, method, "plan_of", .choices = METHODS),
    RU_DECISION(U32, ru_pipe_plan, stage_of, "stage_of_layer", RU_LIST(ru_pipe_plan, n_layers)),
};

static ru_status report_pipe(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const pipe_file *f = in;
    const ru_pipe_plan *p = plan;
    ru_report_answer(r, "cut the layers into %u %s on %u %s, %u %s under way per first worker",
                     p->n_stages, p->n_stages == 1 ? "stage" : "stages", p->workers,
                     p->workers == 1 ? "worker" : "workers", p->in_flight,
                     p->in_flight == 1 ? "minibatch" : "minibatches");
    if (p->copies > 1) {
        ru_report_answer(r, "run %u copies of these stages, each on its own workers", p->copies);
    }
    double least = p->single_s < p->data_parallel_s ? p->single_s : p->data_parallel_s;
    if (p->minibatch_s > least) {
        ru_report_answer(r, "%s is predicted to be faster: do not use this plan",
                         least < p->data_parallel_s ? "one worker" : "data parallel training");
    }
    ru_report_figure(r, "minibatch_s", p->minibatch_s);
    ru_report_figure(r, "single_s", p->single_s);
    ru_report_figure(r, "data_parallel_s", p->data_parallel_s);
    ru_report_figure(r, "speedup_over_single", p->single_s / p->minibatch_s);
    ru_report_figure(r, "speedup_over_data_parallel", p->data_parallel_s / p->minibatch_s);
    put_stages(f, p, r);
    if (p->n_parts > 0) {
        put_parts(p, r);
    }
    char by[32];
    ru_fields_choice(METHODS, p->method, by, sizeof by);
    ru_policy_winner(&ru_policy_pipe, in, r, p->minibatch_s, true,
                     p->method == f->q.method ? "chosen" : "chosen: the plan of %s", by);
    RU_TRY(ru_policy_rivals(&ru_policy_pipe, in, plan, tools, judge, r, err));
    ru_report_assume(r, "each worker alternates one forward and one backward pass; in both "
                        "directions batch b goes to worker b mod n of a stage with n workers");
    ru_report_assume(r, "transfers between stages overlap computation; a layer takes %s",
                     f->speeds.n > 0 ? "its time by the speed of the worker of its stage"
                                     : "the same time in every stage");
    ru_report_assume(r, "%s %u cuts were tried", p->all_cuts ? "all" : "of one layer order,",
                     p->n_cuts);
    ru_report_trigger(r, "minibatch_s", 0.2);
    return RU_OK;
}

const ru_policy ru_policy_pipe = {
    .name = "pipe",
    .version = 3,
    .decides = "how layers are cut into stages, replicated, scheduled and versioned",
    .source = "pipedream-2019 sec 3",
    .in = &table,
    .plan_bytes = sizeof(ru_pipe_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_pipe,
    .check = check_pipe,
    .report = report_pipe,
    .example =
        "# Convolutions that compute long and hold little, then layers with many weights.\n"
        "units: [4]\n"
        "bytes_per_s: [1.25e9]\n"
        "memory: 8e9\n"
        "layers:\n"
        "  - {name: conv1, forward: 22ms, backward: 40ms, parameters: 7KB, activation: 400MB}\n"
        "  - {name: conv2, forward: 46ms, backward: 90ms, parameters: 150KB, activation: 200MB, "
        "after: [0]}\n"
        "  - {name: conv3, forward: 30ms, backward: 60ms, parameters: 2MB, activation: 50MB, "
        "after: [1]}\n"
        "  - {name: conv4, forward: 15ms, backward: 29ms, parameters: 9MB, activation: 12MB, "
        "after: [2]}\n"
        "  - {name: dense1, forward: 12ms, backward: 25ms, parameters: 411MB, activation: 2MB, "
        "after: [3]}\n"
        "  - {name: dense2, forward: 8ms, backward: 16ms, parameters: 67MB, activation: 2MB, "
        "after: [4]}\n",
};
