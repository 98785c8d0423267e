/* The row of `route` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>
#include <stddef.h>

#include "plan/row/arrivals.h"
#include "plan/row/policy.h"
#include "plan/serve/route.h"

/* The question, its arrivals and lists as the file has them. */
typedef struct route_in {
    ru_route_in q; /* without both */
    rui_arrivals_in arrivals;
    ru_conf_f64s sizes, shares, memory_mb, service_s;
} route_in;
_Static_assert(offsetof(route_in, q) == 0, "rows name fields of q");

#define SERVICE_MAX_S 1e9
#define CALL_MAX_USD  9 /* 1e-18 USD are counted in 64 bits */

static bool positive_and_rising(const ru_conf_f64s *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (!(x->at[i] > (i > 0 ? x->at[i - 1] : 0))) {
            return false;
        }
    }
    return x->n > 0;
}

static ru_status check_shares(const route_in *in, ru_err *err)
{
    double sum = 0;
    for (uint32_t k = 0; k < in->shares.n; k++) {
        sum += in->shares.at[k] > 0 ? in->shares.at[k] : RU_NAN;
    }
    if (in->shares.n != in->sizes.n || !(fabs(sum - 1) < 1e-3)) {
        return RU_FAIL(err, RU_E_ARG,
                       "'shares' has %u numbers, expected one above 0 for each of the %u 'sizes', "
                       "with the sum 1",
                       in->shares.n, in->sizes.n);
    }
    return RU_OK;
}

/* Every batch takes time, and costs what whole numbers can hold. */
static ru_status check_service(const route_in *in, ru_err *err)
{
    for (uint32_t i = 0; i < in->service_s.n; i++) {
        double s = in->service_s.at[i];
        double memory_mb = in->memory_mb.at[i / (in->sizes.n * in->q.batch_max)];
        double billed = in->q.billing_step_s * ceil(s / in->q.billing_step_s);
        double usd = billed * memory_mb / 1024 * in->q.usd_per_gb_s + in->q.usd_per_call;
        if (!(s > 0 && s <= SERVICE_MAX_S)) {
            return RU_FAIL(err, RU_E_ARG,
                           "number %u of 'service_s' is %g; expected above 0 to %g s", i + 1, s,
                           SERVICE_MAX_S);
        }
        if (!(usd <= CALL_MAX_USD)) {
            return RU_FAIL(err, RU_E_ARG,
                           "number %u of 'service_s', %g s with %g MB, costs %g USD; expected at "
                           "most %d USD: check 'usd_per_gb_s' and 'billing_step_s'",
                           i + 1, s, memory_mb, usd, CALL_MAX_USD);
        }
    }
    return RU_OK;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const route_in *in = section;
    ru_markov m;
    RU_TRY(rui_arrivals_of(&in->arrivals, &m, err));
    if (!positive_and_rising(&in->sizes) || in->sizes.n > RU_ROUTE_CLASSES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'sizes' are not 1 to %d rising numbers above 0",
                       RU_ROUTE_CLASSES_MAX);
    }
    RU_TRY(check_shares(in, err));
    if (!positive_and_rising(&in->memory_mb)) {
        return RU_FAIL(err, RU_E_ARG, "'memory_mb' are not rising numbers above 0");
    }
    uint64_t cells = (uint64_t)in->memory_mb.n * in->sizes.n * in->q.batch_max;
    if (in->service_s.n != cells) {
        return RU_FAIL(err, RU_E_ARG,
                       "'service_s' has %u numbers, expected %llu: for each of %u memories and %u "
                       "sizes the time of 1 to %u requests",
                       in->service_s.n, (unsigned long long)cells, in->memory_mb.n, in->sizes.n,
                       in->q.batch_max);
    }
    RU_TRY(check_service(in, err));
    if (in->q.timeout_max_s / in->q.timeout_step_s > 1000 ||
        in->q.timeout_step_s > in->q.timeout_max_s) {
        return RU_FAIL(
            err, RU_E_ARG,
            "timeouts up to %g s in steps of %g s: there is none, or there are more than 1000",
            in->q.timeout_max_s, in->q.timeout_step_s);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTION, route_in, arrivals, NULL, "arrival process of all requests together",
           .table = &rui_arrivals_table),
    RU_ROW(F64_LIST, route_in, sizes, NULL,
           "size of each class of requests, ascending: KB, tokens, seconds of audio",
           RU_IN(0, 1e12)),
    RU_ROW(F64_LIST, route_in, shares, NULL, "fraction of the requests in each class", RU_IN(0, 1)),
    RU_ROW(F64_LIST, route_in, memory_mb, NULL,
           "memory sizes of functions to choose from, ascending [MB]", RU_IN(0, 1e7)),
    RU_ROW(F64_LIST, route_in, service_s, NULL,
           "for each memory size and each class: service times of batches of 1 to batch_max "
           "requests whose largest request is of that class [s]",
           RU_IN(0, 1e6)),
    RU_ROW(U32, ru_route_in, batch_max, "8", "largest batch size in requests",
           RU_IN(1, RU_BATCH_MAX)),
    RU_ROW(F64, ru_route_in, timeout_max_s, "0.5", "longest timeout of a batch [s]",
           RU_IN(1e-9, 1e6)),
    RU_ROW(F64, ru_route_in, timeout_step_s, "0.02", "difference between two timeouts [s]",
           RU_IN(1e-9, 1e6)),
    RU_ROW(F64, ru_route_in, slo_s, NULL,
           "latency objective per unit of size: the quantile must not exceed it [s]",
           RU_OVER(0, 1e6)),
    RU_ROW_AS("per", CHOICE, ru_route_in, per_request, "size",
              "size: slo_s is the latency per unit of size; request: that of a request of any size",
              .choices = "size|request"),
    RU_ROW(F64, ru_route_in, quantile, "0.95", "fraction of requests that must meet slo_s",
           RU_IN(0.001, 0.9999)),
    RU_ROW_AS("keep", CHOICE, ru_route_in, by_class, "buffer",
              "buffer: the quantile is over the requests of each buffer; class: over those of each "
              "class",
              .choices = "buffer|class"),
    RU_ROW(F64, ru_route_in, usd_per_gb_s, "1.66667e-5", "price of 1024 MB for a second",
           RU_IN(0, 1)),
    RU_ROW(F64, ru_route_in, usd_per_call, "2e-7", "price of an invocation", RU_IN(0, 1)),
    RU_ROW(F64, ru_route_in, billing_step_s, "0.001",
           "billing granularity: service times are rounded up to a multiple of this [s]",
           RU_IN(1e-6, 3600)),
    RU_ROW(U32, ru_route_in, buffers_max, "8", "largest number of buffers",
           RU_IN(1, RU_ROUTE_CLASSES_MAX)),
    RU_ROW(U32, ru_route_in, buffers, "0",
           "number of buffers; 0: the cheapest number up to buffers_max",
           RU_IN(0, RU_ROUTE_CLASSES_MAX)),
    RU_ROW(F64, ru_route_in, instances_max, "1e9",
           "largest mean number of functions that run at the same time", RU_OVER(0, 1e9)),
    RU_ROW(CHOICE, ru_route_in, method, "cuts",
           "cuts: sizes cut by cost, or equal or width where they are cheaper; equal: equal shares "
           "of requests; width: bins of equal "
           "width; random: all classes to every buffer; single: one buffer; none: no batching",
           .choices = "cuts|equal|width|random|single|none"),
};

static const ru_conf_table table = RU_TABLE(
    "route", route_in, fields, "a model on functions; requests differ in size", .check = check_in);

static ru_status inner(const route_in *in, ru_arena *a, ru_route_in *out, ru_err *err)
{
    double *share = RU_NEW(a, double, in->shares.n), sum = 0;
    if (share == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u classes", in->shares.n);
    }
    for (uint32_t k = 0; k < in->shares.n; k++) {
        sum += in->shares.at[k];
    }
    for (uint32_t k = 0; k < in->shares.n; k++) {
        share[k] = in->shares.at[k] / sum;
    }
    *out = in->q;
    out->n_classes = in->sizes.n;
    out->size = in->sizes.at;
    out->share = share;
    out->memory_mb = in->memory_mb.at;
    out->n_memory = in->memory_mb.n;
    out->service_s = in->service_s.at;
    return rui_arrivals_of(&in->arrivals, &out->arrivals, err);
}

static ru_status plan_route(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_route_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_route(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_route(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_route_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_route_check(&q, plan, err);
}

/* What another method would cost. */
static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_route_plan *p = v->plan, *mine = v->won;
    ru_rival_is(v, p->usd_per_request, true, "%u buffer%s, padding %.3g %%%s", p->n,
                p->n == 1 ? "" : "s", 100 * p->padding,
                p->usd_per_request > mine->usd_per_request ? ", costs more" : "");
    return RU_OK;
}

static void buffer_rows(const route_in *in, const ru_route_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(
        r, "buffers",
        ">buffer >sizes >requests >memory_mb >batch >timeout_s >latency_s >padding >micro_usd");
    for (uint32_t i = 0; i < p->n; i++) {
        const ru_route_buffer *b = &p->buffers[i];
        uint32_t first = in->sizes.n, last = 0;
        for (uint32_t k = 0; k < in->sizes.n; k++) {
            if (p->share[(size_t)i * in->sizes.n + k] > 0) {
                first = k < first ? k : first;
                last = k;
            }
        }
        ru_table_i64(t, i);
        ru_table_textf(t, "%g-%g", in->sizes.at[first], in->sizes.at[last]);
        ru_table_f64(t, b->share, 4);
        ru_table_f64(t, in->memory_mb.at[b->memory], 0);
        ru_table_i64(t, b->batch);
        ru_table_f64(t, b->timeout_s, 4);
        ru_table_f64(t, b->latency_s, 4);
        ru_table_f64(t, b->padding, 3);
        ru_table_f64(t, 1e6 * b->usd_per_request, 3);
    }
}

static void routing_rows(const route_in *in, const ru_route_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "routes", ">size >buffer >probability");
    for (uint32_t k = 0; k < in->sizes.n; k++) {
        double sum = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            sum += p->share[(size_t)i * in->sizes.n + k];
        }
        for (uint32_t i = 0; i < p->n; i++) {
            double x = p->share[(size_t)i * in->sizes.n + k];
            if (x > 0) {
                ru_table_textf(t, "%g", in->sizes.at[k]);
                ru_table_i64(t, i);
                ru_table_f64(t, x / sum, 4);
            }
        }
    }
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_route_plan, usd_per_request, "per_request_usd"),
    RU_DECISION(U32, ru_route_plan, n, "buffers"),
};

static ru_status report_route(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const route_in *q = in;
    const ru_route_plan *p = plan;
    double latency = 0, least = 1;
    for (uint32_t i = 0; i < p->n; i++) {
        latency = fmax(latency, p->buffers[i].latency_s);
        least = fmin(least, p->buffers[i].least_met);
    }
    ru_report_answer(r, "%u buffer%s before functions, requests routed by size", p->n,
                     p->n == 1 ? "" : "s");
    ru_report_figure(r, "worst_buffer_latency_per_size_s", latency);
    ru_report_figure(r, "in_time", p->met);
    ru_report_figure(r, "worst_class_in_time", least);
    ru_report_figure(r, "padding", p->padding);
    ru_report_figure(r, "mean_instances", p->instances);
    buffer_rows(q, p, r);
    routing_rows(q, p, r);
    RU_TRY(ru_policy_rivals(&ru_policy_route, in, plan, tools, judge, r, err));
    ru_report_assume(r, "sizes are known on arrival and do not depend on when requests come");
    ru_report_assume(r, "every batch finds a free instance at once; there are no cold starts");
    ru_report_valid(r, INT64_C(600000000000));
    ru_report_trigger(r, "per_request_usd", 0.1);
    return RU_OK;
}

const ru_policy ru_policy_route = {
    .name = "route",
    .version = 1,
    .decides = "which buffer takes each request by its size, and each buffer's memory, batch size "
               "and timeout",
    .source = "ali-2022 (MBS)",
    .in = &table,
    .plan_bytes = sizeof(ru_route_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_route,
    .check = check_route,
    .report = report_route,
    .example = "# Speech of five lengths on functions of two sizes.\n"
               "arrivals:\n"
               "  map: {d0: [-40.1, 0.1, 0.1, -20.1], d1: [40, 0, 0, 20]}  # per second\n"
               "sizes: [1, 2, 4, 8, 16]  # seconds of audio\n"
               "shares: [0.3, 0.25, 0.2, 0.15, 0.1]\n"
               "memory_mb: [1024, 2048]\n"
               "batch_max: 4\n"
               "service_s: [  # of 1 to 4 requests, for each memory and size\n"
               "  0.36, 0.52, 0.68, 0.84,  0.52, 0.84, 1.16, 1.48,  0.84, 1.48, 2.12, 2.76,\n"
               "  1.48, 2.76, 4.04, 5.32,  2.76, 5.32, 7.88, 10.44,\n"
               "  0.19, 0.27, 0.35, 0.43,  0.27, 0.43, 0.59, 0.75,  0.43, 0.75, 1.07, 1.39,\n"
               "  0.75, 1.39, 2.03, 2.67,  1.39, 2.67, 3.95, 5.23]\n"
               "timeout_max_s: 0.4\n"
               "timeout_step_s: 0.05\n"
               "slo_s: 0.6  # per second of audio\n"
               "buffers_max: 4\n",
};
