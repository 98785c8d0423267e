/* The row of `moves` in plan/row/policy.def: its input as a file, its report. */
#include "plan/crew/moves_policy.h"

#include <math.h>
#include <string.h>

#include "plan/row/policy.h"

enum { SHOWN_MAX = 40 };

typedef ru_moves_policy_object object_in;
typedef ru_moves_policy_pair pair_in;
typedef ru_moves_policy_in moves_in;

static const ru_conf_field worker_fields[] = {
    RU_ROW(F64, ru_moves_worker, cores, "1", "number of cores for the job, times their speed",
           RU_IN(1e-3, 1e6)),
    RU_ROW(F64, ru_moves_worker, bytes_per_s, "125e6", "bandwidth of its link", RU_IN(1e3, 1e15)),
    RU_ROW_AS("memory", SIZE, ru_moves_worker, memory_bytes, "0",
              "memory for states and inputs; 0: no limit", RU_IN(0, 1e16)),
    RU_ROW(BOOL, ru_moves_worker, leaving, "false",
           "true: the worker leaves, so it must hold nothing afterwards"),
};
static const ru_conf_table worker_table = RU_TABLE("worker", ru_moves_worker, worker_fields, NULL);

#define OBJECT_FIELDS                                                                              \
    RU_ROW(I64, object_in, on, "-1", "worker that holds it; -1: none, it is loaded from storage",  \
           RU_IN(-1, RU_MOVES_WORKERS_MAX - 1)),                                                   \
        RU_ROW_AS("net", SIZE, object_in, net_bytes, "0",                                          \
                  "bytes that it sends and receives in an iteration", RU_IN(0, 1e15)),             \
        RU_ROW_AS("state", SIZE, object_in, state_bytes, "0", "bytes that are sent when it moves", \
                  RU_IN(0, 1e15))

static const ru_conf_field executor_fields[] = {
    OBJECT_FIELDS,
    RU_ROW(F64, object_in, cpu_s, "0",
           "CPU time of an iteration on one core of speed 1; samples take precedence",
           RU_IN(0, 1e6)),
    RU_ROW_AS("data", SIZE, object_in, data_bytes, "0",
              "size of the input that a worker must read when it receives the executor",
              RU_IN(0, 1e15)),
    RU_ROW(I64, object_in, home, "-1", "worker that already has this input; -1: none",
           RU_IN(-1, RU_MOVES_WORKERS_MAX - 1)),
};
static const ru_conf_table executor_table = RU_TABLE("executor", object_in, executor_fields, NULL);
static const ru_conf_field shard_fields[] = {
    OBJECT_FIELDS,
};
static const ru_conf_table shard_table = RU_TABLE("shard", object_in, shard_fields, NULL);

static const ru_conf_field pair_fields[] = {
    RU_ROW(U32, pair_in, executor, NULL, "its number, from 0"),
    RU_ROW(U32, pair_in, shard, NULL, "its number, from 0"),
    RU_ROW(SIZE, pair_in, bytes, NULL,
           "bytes between the two in an iteration; part of the 'net' of both", RU_IN(0, 1e15)),
};
static const ru_conf_table pair_table = RU_TABLE("pair", pair_in, pair_fields, NULL);

static const ru_conf_field sample_fields[] = {
    RU_ROW(U32, ru_load_sample, executor, NULL, "its number"),
    RU_ROW(U32, ru_load_sample, worker, NULL, "number of the worker that ran it"),
    RU_ROW(F64, ru_load_sample, took_s, NULL,
           "CPU time of one iteration of the executor on this worker", RU_IN(1e-12, 1e6)),
};
static const ru_conf_table sample_table = RU_TABLE("sample", ru_load_sample, sample_fields, NULL);

static ru_status check_places(const object_in *o, uint32_t n, const char *what, uint32_t workers,
                              ru_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t far = o[i].on > o[i].home ? o[i].on : o[i].home;
        if (far >= workers) {
            return RU_FAIL(err, RU_E_ARG,
                           "%s %u names worker %lld, but there are %u workers (from 0)", what, i,
                           (long long)far, workers);
        }
    }
    return RU_OK;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const moves_in *in = section;
    if (in->workers.n < 1 || in->workers.n > RU_MOVES_WORKERS_MAX || in->executors.n < 1 ||
        in->executors.n > RU_MOVES_OBJECTS_MAX / 2 || in->shards.n > RU_MOVES_OBJECTS_MAX / 2) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u workers, %u executors and %u shards; expected 1 to %d, 1 to "
                       "%d, and at most %d",
                       in->workers.n, in->executors.n, in->shards.n, RU_MOVES_WORKERS_MAX,
                       RU_MOVES_OBJECTS_MAX / 2, RU_MOVES_OBJECTS_MAX / 2);
    }
    RU_TRY(check_places(in->executors.at, in->executors.n, "executor", in->workers.n, err));
    RU_TRY(check_places(in->shards.at, in->shards.n, "shard", in->workers.n, err));
    const pair_in *p = in->local.at;
    for (uint32_t i = 0; i < in->local.n; i++) {
        if (p[i].executor >= in->executors.n || p[i].shard >= in->shards.n) {
            return RU_FAIL(err, RU_E_ARG,
                           "local %u names executor %u and shard %u, but there are %u executors "
                           "and %u shards (from 0)",
                           i, p[i].executor, p[i].shard, in->executors.n, in->shards.n);
        }
    }
    const ru_load_sample *s = in->samples.at;
    for (uint32_t i = 0; i < in->samples.n; i++) {
        if (s[i].executor >= in->executors.n || s[i].worker >= in->workers.n) {
            return RU_FAIL(err, RU_E_ARG,
                           "sample %u names executor %u on worker %u, but there are %u executors "
                           "and %u workers (from 0)",
                           i, s[i].executor, s[i].worker, in->executors.n, in->workers.n);
        }
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, moves_in, workers, NULL, "workers that may hold executors and shards",
           .table = &worker_table),
    RU_ROW(SECTIONS, moves_in, executors, NULL, "executors: parts of the work with their state",
           .table = &executor_table),
    RU_ROW(SECTIONS, moves_in, shards, "[]", "parts of the parameters", .table = &shard_table),
    RU_ROW(SECTIONS, moves_in, local, "[]",
           "traffic between an executor and a shard that needs no link if one worker holds both",
           .table = &pair_table),
    RU_ROW(SECTIONS, moves_in, samples, "[]",
           "measured tasks; costs of executors and speeds of workers are fitted to them",
           .table = &sample_table),
    RU_ROW(F64, ru_moves_in, iterations, "1000",
           "number of iterations within which moves must pay off", RU_IN(0, 1e12)),
    RU_ROW(F64, ru_moves_in, noise, "0.05",
           "relative error of a worker's measured load; what need not move stays unless moving "
           "gains more than this part of the iterations",
           RU_IN(0, 1)),
    RU_ROW_AS("barrier", TIME, ru_moves_in, barrier_ns, "0s",
              "part of an iteration's time that does not depend on the map", RU_IN(0, 1e15)),
    RU_ROW_AS("pause", TIME, ru_moves_in, pause_ns, "10ms",
              "time that a worker loses for each object that it sends or receives, in addition to "
              "the bytes",
              RU_IN(0, 1e12)),
    RU_ROW(U32, moves_in, nodes_max, "200000", "budget of branch and bound for at most 24 objects"),
    RU_ROW(CHOICE, ru_moves_in, method, "balance",
           "balance: Rubato's; keep: nothing moves; count: equal numbers of executors per core; "
           "lpt: a new map, largest executors first; greedy: from the most to the least loaded "
           "worker; restart: stop the job and restart it with the map of lpt",
           .choices = "balance|keep|count|lpt|greedy|restart"),
};

static const ru_conf_table table = RU_TABLE(
    "moves", moves_in, fields, "executors and shards of one job on its workers", .check = check_in);

static void objects_of(const object_in *o, uint32_t n, const double *cost, ru_moves_object *to)
{
    for (uint32_t i = 0; i < n; i++) {
        to[i] = (ru_moves_object){
            .on = o[i].on < 0 ? RU_MOVES_NONE : (uint32_t)o[i].on,
            .home = o[i].home < 0 ? RU_MOVES_NONE : (uint32_t)o[i].home,
            .cpu_ns = (int64_t)(fmin(cost != NULL ? cost[i] : o[i].cpu_s, 1e6) * 1e9 + 0.5),
            .net_bytes = o[i].net_bytes,
            .state_bytes = o[i].state_bytes,
            .data_bytes = o[i].data_bytes};
    }
}

/* The planner's input; costs and speeds from the samples when there are any. */
static ru_status inner(const moves_in *in, ru_arena *a, ru_moves_in *out, ru_err *err)
{
    uint32_t n_workers = in->workers.n, n = in->executors.n;
    ru_moves_worker *w = RU_NEW(a, ru_moves_worker, n_workers);
    ru_moves_object *o = RU_NEW(a, ru_moves_object, (int64_t)n + (int64_t)in->shards.n);
    ru_moves_pair *p = RU_NEW(a, ru_moves_pair, (int64_t)in->local.n + 1);
    double *cost = RU_NEW(a, double, n), *speed = RU_NEW(a, double, n_workers);
    if (w == NULL || o == NULL || p == NULL || cost == NULL || speed == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u executors", n);
    }
    bool fitted = in->samples.n > 0;
    if (fitted) {
        RU_TRY(ru_load_fit(in->samples.at, in->samples.n, n, n_workers, a, cost, speed, err));
    }
    for (uint32_t i = 0; i < n_workers; i++) {
        w[i] = in->workers.at[i];
        w[i].cores = fmax(w[i].cores * (fitted ? speed[i] : 1), 1e-6);
    }
    objects_of(in->executors.at, n, fitted ? cost : NULL, o);
    objects_of(in->shards.at, in->shards.n, NULL, o + n);
    for (uint32_t i = 0; i < in->local.n; i++) {
        const pair_in *pair = &in->local.at[i];
        p[i] = (ru_moves_pair){pair->executor, n + pair->shard, pair->bytes};
    }
    *out = in->q;
    out->worker = w;
    out->object = o;
    out->pair = p;
    out->n_workers = n_workers;
    out->n_executors = n;
    out->n_shards = in->shards.n;
    out->n_pairs = in->local.n;
    out->nodes_max = in->nodes_max;
    out->rounds_max = 0;
    return RU_OK;
}

static ru_status plan_moves(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_moves_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_moves(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_moves(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_moves_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_moves_check(&q, plan, scratch, err);
}

static void show_moves(const ru_moves_in *q, const ru_moves_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "moves", "<object >from >to >bytes");
    for (uint32_t k = 0; k < p->n_moves && k < SHOWN_MAX; k++) {
        uint32_t j = p->move[k];
        const ru_moves_object *o = &q->object[j];
        bool shard = j >= q->n_executors;
        ru_table_textf(t, "%s %u", shard ? "shard" : "executor", shard ? j - q->n_executors : j);
        if (o->on == RU_MOVES_NONE) {
            ru_table_str(t, "storage");
        } else {
            ru_table_i64(t, o->on);
        }
        ru_table_i64(t, p->to[j]);
        ru_table_bytes(t, o->state_bytes + (p->to[j] == o->home ? 0 : o->data_bytes));
    }
    if (p->n_moves > SHOWN_MAX) {
        ru_report_assume(r, "%u more moves are not shown", p->n_moves - SHOWN_MAX);
    }
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_moves_in *s = v->won_in; /* the first of the file's fields */
    const ru_moves_plan *p = v->won, *other = v->plan;
    double noise = s->noise * s->iterations * (double)p->iteration_ns;
    if (s->method == RU_MOVES_BALANCE && other->cost_ns < p->cost_ns &&
        p->cost_ns - other->cost_ns <= noise) {
        ru_rival_beside(v, other->cost_ns * 1e-9,
                        "gains no more than what the measured costs are known to");
    } else {
        ru_rival_is(
            v, other->cost_ns * 1e-9, true, "an iteration takes %.4g s, %u moves take %.4g s",
            (double)other->iteration_ns * 1e-9, other->n_moves, (double)other->moving_ns * 1e-9);
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_DECISION(U32, ru_moves_plan, to, "to", RU_LIST(ru_moves_plan, n)),
    RU_DECISION(U32, ru_moves_plan, move, "moves", RU_LIST(ru_moves_plan, n_moves)),
};

static ru_status report_moves(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_moves_plan *p = plan;
    ru_moves_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    ru_report_answer(r, "move %u of %u executors and shards", p->n_moves, p->n);
    ru_report_figure(r, "horizon_s", p->cost_ns * 1e-9);
    ru_report_figure(r, "iteration_s", (double)p->iteration_ns * 1e-9);
    ru_report_figure(r, "iteration_bound_s", (double)p->bound_ns * 1e-9);
    ru_report_figure(r, "moving_s", (double)p->moving_ns * 1e-9);
    ru_report_figure(r, "moved_bytes", (double)p->moved_bytes);
    show_moves(&q, p, r);
    ru_policy_winner(&ru_policy_moves, in, r, p->cost_ns * 1e-9, true, "%s",
                     p->optimal ? "no map costs less" : "chosen");
    RU_TRY(ru_policy_rivals(&ru_policy_moves, in, plan, tools, judge, r, err));
    ru_report_assume(
        r, "executors cost as much as measured; the work of a worker is spread over its cores");
    ru_report_assume(r, "the job pauses while objects move");
    if (q.noise > 0) {
        ru_report_assume(r, "what gains less than %.3g %% of an iteration is measurement noise",
                         100 * q.noise);
    }
    ru_report_trigger(r, "iteration_s", 0.1);
    return RU_OK;
}

const ru_policy ru_policy_moves = {
    .name = "moves",
    .version = 2,
    .decides = "which worker holds which executor and which shard of the parameters",
    .source = "litz-2018",
    .in = &table,
    .plan_bytes = sizeof(ru_moves_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_moves,
    .check = check_moves,
    .report = report_moves,
    .example = "# Worker 2 has joined; executors 0 to 7 and four shards lie on workers 0 and 1.\n"
               "workers:\n"
               "  - {cores: 4, bytes_per_s: 125e6}\n"
               "  - {cores: 4, bytes_per_s: 125e6}\n"
               "  - {cores: 4, bytes_per_s: 125e6}\n"
               "executors:\n"
               "  - {on: 0, cpu_s: 1.9, state: 40MB, data: 200MB}\n"
               "  - {on: 0, cpu_s: 1.1, state: 40MB, data: 200MB, home: 2}\n"
               "  - {on: 0, cpu_s: 0.7, state: 40MB, data: 200MB}\n"
               "  - {on: 0, cpu_s: 0.9, state: 40MB, data: 200MB, home: 2}\n"
               "  - {on: 1, cpu_s: 1.4, state: 40MB, data: 200MB, home: 2}\n"
               "  - {on: 1, cpu_s: 0.8, state: 40MB, data: 200MB}\n"
               "  - {on: 1, cpu_s: 1.2, state: 40MB, data: 200MB}\n"
               "  - {on: 1, cpu_s: 1.0, state: 40MB, data: 200MB, home: 2}\n"
               "shards:\n"
               "  - {on: 0, net: 12MB, state: 6MB}\n"
               "  - {on: 0, net: 12MB, state: 6MB}\n"
               "  - {on: 1, net: 12MB, state: 6MB}\n"
               "  - {on: 1, net: 12MB, state: 6MB}\n"
               "iterations: 500\n"
               "barrier: 5ms\n",
};
