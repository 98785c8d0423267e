/* The row of `batch` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>

#include "plan/row/arrivals.h"
#include "plan/row/policy.h"
#include "plan/serve/batch.h"

/* The question, its arrivals and memories as the file has them. */
typedef struct batch_in {
    ru_batch_in q; /* without both */
    rui_arrivals_in arrivals;
    double memory_min_mb, memory_max_mb, memory_step_mb;
} batch_in;
_Static_assert(offsetof(batch_in, q) == 0, "rows name fields of q");

enum { MEMORIES_MAX = 4096 };

#define SERVICE_MAX_S 1e9
#define CALL_MAX_USD  9000 /* 1e-15 USD are counted in 64 bits */

static uint32_t n_memories(const batch_in *in)
{
    return 1 + (uint32_t)((in->memory_max_mb - in->memory_min_mb) / in->memory_step_mb + 1e-9);
}

/* Every batch of a memory takes time, and costs what whole numbers can hold. */
static ru_status check_memory(const ru_batch_in *in, double memory_mb, uint32_t batch, ru_err *err)
{
    for (uint32_t k = 1; k <= batch; k++) {
        double s = ru_batch_service_s(in, k, memory_mb);
        double usd = ru_batch_call_usd(in, k, memory_mb);
        if (!(s > 0 && s <= SERVICE_MAX_S)) {
            return RU_FAIL(err, RU_E_ARG,
                           "by 'service', %u requests with %g MB take %g s; expected above 0 to %g "
                           "s: lower 'batch_max' or narrow the range of memories",
                           k, memory_mb, s, SERVICE_MAX_S);
        }
        if (!(usd <= CALL_MAX_USD)) {
            return RU_FAIL(err, RU_E_ARG,
                           "%u requests with %g MB cost %g USD; expected at most %d USD: check "
                           "'service', 'usd_per_gb_s' and 'billing_step_s'",
                           k, memory_mb, usd, CALL_MAX_USD);
        }
    }
    return RU_OK;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const batch_in *in = section;
    const ru_batch_in *q = &in->q;
    ru_markov m;
    RU_TRY(rui_arrivals_of(&in->arrivals, &m, err));
    double memories = (in->memory_max_mb - in->memory_min_mb) / in->memory_step_mb;
    bool some = memories >= 0 && memories < MEMORIES_MAX;
    if (q->measured.n > 0 && (q->service.n > 0 || !some || q->fixed.batch > q->batch_max ||
                              q->measured.n != n_memories(in) * q->batch_max)) {
        return RU_FAIL(err, RU_E_ARG,
                       "'measured_s' has %u times, expected batch_max (%u) for each memory, no "
                       "'service' beside it, and 'fixed_batch' of at most batch_max",
                       q->measured.n, q->batch_max);
    }
    if (q->measured.n == 0 && q->service.n != 10 && q->service.n != 15) {
        return RU_FAIL(err, RU_E_ARG,
                       "'service' has %u coefficients, expected 10 (third degree) or 15 (fourth)",
                       q->service.n);
    }
    if (!some) {
        return RU_FAIL(
            err, RU_E_ARG,
            "memories from %g to %g MB in steps of %g MB: there is none, or there are more than %d",
            in->memory_min_mb, in->memory_max_mb, in->memory_step_mb, MEMORIES_MAX);
    }
    if (q->timeout_max_s / q->timeout_step_s > 10000 || q->timeout_step_s > q->timeout_max_s) {
        return RU_FAIL(
            err, RU_E_ARG,
            "timeouts up to %g s in steps of %g s: there is none, or there are more than 10000",
            q->timeout_max_s, q->timeout_step_s);
    }
    ru_batch_in by = *q;
    by.measured_from_mb = in->memory_min_mb;
    by.measured_step_mb = in->memory_step_mb;
    for (uint32_t i = 0; i < n_memories(in); i++) {
        RU_TRY(check_memory(&by, in->memory_min_mb + i * in->memory_step_mb, q->batch_max, err));
    }
    return q->method != RU_BATCH_FIXED ? RU_OK
                                       : check_memory(&by, q->fixed.memory_mb, q->fixed.batch, err);
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTION, batch_in, arrivals, NULL, "arrival process of the requests",
           .table = &rui_arrivals_table),
    RU_ROW(F64_LIST, ru_batch_in, service, "[]",
           "coefficients of the service time [s] of a batch of k requests with m MB: t0 + t1 k + "
           "t2 m + t3 k^2 + t4 km + t5 m^2 + t6 k^3 + t7 mk^2 + t8 km^2 + t9 m^3 [+ k^4, mk^3, "
           "m^2k^2, km^3, m^4]"),
    RU_ROW_AS("measured_s", F64_LIST, ru_batch_in, measured, "[]",
              "instead of 'service': measured seconds of 1 to batch_max requests with the smallest "
              "memory, then with the next one, ..."),
    RU_ROW(F64, batch_in, memory_min_mb, "1280", "smallest memory of a function [MB]",
           RU_IN(1, 1e7)),
    RU_ROW(F64, batch_in, memory_max_mb, "3008", "largest memory of a function [MB]",
           RU_IN(1, 1e7)),
    RU_ROW(F64, batch_in, memory_step_mb, "64", "difference between two sizes of memory [MB]",
           RU_IN(0.001, 1e7)),
    RU_ROW(U32, ru_batch_in, batch_max, "20", "largest batch size in requests",
           RU_IN(1, RU_BATCH_MAX)),
    RU_ROW(F64, ru_batch_in, timeout_max_s, "1", "longest timeout of a batch [s]",
           RU_IN(1e-9, 1e6)),
    RU_ROW(F64, ru_batch_in, timeout_step_s, "0.02", "difference between two timeouts [s]",
           RU_IN(1e-9, 1e6)),
    RU_ROW(F64, ru_batch_in, slo_s, NULL,
           "latency objective: the quantile of latency must not exceed it [s]", RU_OVER(0, 1e6)),
    RU_ROW(F64, ru_batch_in, quantile, "0.95", "fraction of requests that must meet slo_s",
           RU_IN(0.001, 0.9999)),
    RU_ROW(F64, ru_batch_in, margin, "0.05",
           "part of slo_s that stays free: service times and quantiles are measured, and known to "
           "no more than that",
           RU_IN(0, 0.5)),
    RU_ROW(F64, ru_batch_in, usd_per_gb_s, "1.66667e-5", "price of 1024 MB for a second",
           RU_IN(0, 1e3)),
    RU_ROW(F64, ru_batch_in, usd_per_call, "2e-7", "price of an invocation", RU_IN(0, 1e3)),
    RU_ROW(F64, ru_batch_in, billing_step_s, "0.001",
           "billing granularity: service times are rounded up to a multiple of this [s]",
           RU_IN(1e-6, 3600)),
    RU_ROW(CHOICE, ru_batch_in, method, "exact",
           "exact: exact latency distribution; published: published rule with the batch size "
           "fixed at batch_max; none: no batching; clipper: the largest batch that is served "
           "within slo_s, 2 ms of wait; mark: wait and service of a whole batch fit slo_s; fixed: "
           "the values of the fixed_ keys, as servers with a given batch and delay have",
           .choices = "exact|published|none|clipper|mark|fixed"),
    RU_ROW_AS("fixed_memory_mb", F64, ru_batch_in, fixed.memory_mb, "1792",
              "method fixed: memory [MB]", RU_IN(1, 1e7)),
    RU_ROW_AS("fixed_batch", U32, ru_batch_in, fixed.batch, "5", "method fixed: batch size",
              RU_IN(1, RU_BATCH_MAX)),
    RU_ROW_AS("fixed_timeout_s", F64, ru_batch_in, fixed.timeout_s, "0.1",
              "method fixed: timeout [s]", RU_IN(0, 1e6)),
};

static const ru_conf_table table = RU_TABLE(
    "batch", batch_in, fields, "a model served by functions behind one buffer", .check = check_in);

static ru_status inner(const batch_in *in, ru_arena *a, ru_batch_in *out, ru_err *err)
{
    uint32_t n = n_memories(in);
    double *memory = RU_NEW(a, double, n);
    if (memory == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u candidates", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        memory[i] = in->memory_min_mb + i * in->memory_step_mb;
    }
    *out = in->q;
    out->memory_mb = memory;
    out->n_memory = n;
    out->measured_from_mb = in->memory_min_mb;
    out->measured_step_mb = in->memory_step_mb;
    return rui_arrivals_of(&in->arrivals, &out->arrivals, err);
}

static ru_status plan_batch(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_batch_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_batch(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_batch(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_batch_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_batch_check(&q, plan, err);
}

/* What another method would choose, and what it would cost. */
static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    const ru_batch_plan *p = v->plan, *mine = v->won;
    ru_batch_in q;
    RU_TRY(inner(v->in, tools->scratch, &q, err));
    bool keeps = p->latency_s <= ru_batch_limit_s(&q);
    bool fits = p->at.timeout_s <= q.timeout_max_s &&
                (q.method != RU_BATCH_FIXED || ru_batch_fixed_fits(&q));
    ru_rival_is(v, p->usd_per_request, keeps && fits, "%.4g MB, batch %u, timeout %.4g s: %.4g s%s",
                p->at.memory_mb, p->at.batch, p->at.timeout_s, p->latency_s,
                !keeps  ? ", misses the objective less the margin"
                : !fits ? ", is not among the memories, batches and timeouts"
                : p->usd_per_request > mine->usd_per_request ? ", costs more"
                                                             : "");
    return RU_OK;
}

/* How far the rate may drift, either way, before this choice misses the objective: by the exact law
 * of the same process with a clock that runs so much faster or slower. At most a fifth: then
 * another choice is cheaper as a rule. At least a hundredth: no rate is known better. */
static ru_status drift_of(const ru_batch_in *q, const ru_batch_plan *p, ru_arena *scratch,
                          double *drift, ru_err *err)
{
    static const double steps[] = {0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2};
    *drift = steps[0];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(steps); k++) {
        for (int way = -1; way <= 1; way += 2) {
            ru_batch_in in = *q;
            ru_batch_plan then;
            double times = 1 + way * steps[k];
            for (uint32_t i = 0; i < q->arrivals.n * q->arrivals.n; i++) {
                in.arrivals.d0[i] *= times;
                in.arrivals.d1[i] *= times;
            }
            ru_arena_mark m = ru_arena_mark_get(scratch);
            RU_TRY(ru_plan_batch_at(&in, &p->at, scratch, scratch, &then, err));
            double latency = then.latency_s;
            ru_arena_rewind(scratch, m);
            if (latency > q->slo_s) {
                return RU_OK;
            }
        }
        *drift = steps[k];
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_batch_plan, usd_per_request, "per_request_usd"),
    RU_FIGURE(F64, ru_batch_plan, latency_s, "latency_s"),
    RU_FIGURE(F64, ru_batch_plan, mean_batch, "mean_batch"),
    RU_FIGURE(F64, ru_batch_plan, instances, "mean_instances"),
    RU_DECISION(F64, ru_batch_plan, at.memory_mb, "memory_mb"),
    RU_DECISION(U32, ru_batch_plan, at.batch, "batch_requests"),
    RU_DECISION(F64, ru_batch_plan, at.timeout_s, "timeout_s"),
};

static ru_status report_batch(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_batch_plan *p = plan;
    ru_batch_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    ru_report_answer(r, "functions with %.4g MB; dispatch at %u requests or %.4g s after the first",
                     p->at.memory_mb, p->at.batch, p->at.timeout_s);
    double drift;
    RU_TRY(drift_of(&q, p, tools->scratch, &drift, err));
    ru_markov_law law;
    RU_TRY(ru_markov_solve(&q.arrivals, &law, err));
    ru_report_figure(r, "arrivals_per_s", law.rate);
    ru_report_figure(r, "arrivals_scv", ru_markov_scv(&law));
    ru_table *t = ru_report_grid_of(r, "batches", ">size >probability >service_s");
    for (uint32_t k = 1; k <= p->at.batch; k++) {
        ru_table_i64(t, k);
        ru_table_f64(t, p->size_p[k], 4);
        ru_table_f64(t, ru_batch_service_s(&q, k, p->at.memory_mb), 4);
    }
    RU_TRY(ru_policy_rivals(&ru_policy_batch, in, plan, tools, judge, r, err));
    ru_report_assume(r, "arrivals continue as given; every batch finds a free instance at once; "
                        "there are no cold starts");
    ru_report_valid(r, INT64_C(600000000000));
    /* before the objective is missed: (1 - margin)(1 + margin) < 1 */
    ru_report_trigger(r, "latency_s", q.margin > 0 ? fmin(q.margin, 0.1) : 0.1);
    ru_report_trigger(r, "arrivals_per_s", drift);
    ru_report_trigger(r, "arrivals_scv", 0.2);
    return RU_OK;
}

const ru_policy ru_policy_batch = {
    .name = "batch",
    .version = 2,
    .decides = "memory, batch size and timeout of served functions",
    .source = "ali-2020 (BATCH)",
    .in = &table,
    .plan_bytes = sizeof(ru_batch_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_batch,
    .check = check_batch,
    .report = report_batch,
    .example = "# A model on functions; requests come in bursts (two phases).\n"
               "arrivals:\n"
               "  map: {d0: [-60.05, 0.05, 0.05, -20.05], d1: [60, 0, 0, 20]}  # per second\n"
               "# seconds of a batch of k with m MB\n"
               "service: [0.4, 0.12, -1.2e-4, 0.001, -3e-5, 1e-8, 0, 0, 3e-9, 0]\n"
               "memory_min_mb: 1024\n"
               "memory_max_mb: 2048\n"
               "memory_step_mb: 256\n"
               "batch_max: 8\n"
               "timeout_max_s: 0.4\n"
               "timeout_step_s: 0.05\n"
               "slo_s: 1.2\n",
};
