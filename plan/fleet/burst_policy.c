/* The row of `burst` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>

#include "plan/fleet/burst.h"
#include "plan/row/policy.h"

enum { SAMPLES_MAX = 100000 };

typedef struct clients_in {
    uint32_t n;
    double think_s;
} clients_in;

typedef struct load_in {
    uint32_t which;
    clients_in clients;
    double rate;
} load_in;

/* The planner's input comes first; its load follows from the file's, and its model from a profile.
 */
typedef struct burst_in {
    ru_burst_in q;
    load_in load;
    ru_conf_f64s profile;
} burst_in;
_Static_assert(offsetof(burst_in, q) == 0, "rows name fields of q");

static ru_status check_resource(const void *section, ru_err *err)
{
    const ru_burst_resource *r = section;
    if (r->rules.burst < r->rules.earn) {
        return RU_FAIL(err, RU_E_ARG,
                       "'burst' (%g) of %s is below 'earn' (%g), so it would have no credits",
                       r->rules.burst, r->name, r->rules.earn);
    }
    if (r->now.earned > r->rules.cap) {
        return RU_FAIL(err, RU_E_ARG, "'level' (%g) of %s is above 'cap' (%g)", r->now.earned,
                       r->name, r->rules.cap);
    }
    return RU_OK;
}

static const ru_conf_field resource_fields[] = {
    RU_ROW(TEXT, ru_burst_resource, name, NULL, "name of the resource: cpu, disk, network"),
    RU_ROW_AS("earn", F64, ru_burst_resource, rules.earn, NULL,
              "rate at which tokens are earned [1/s]; CPU: 1 token = 1 vCPU-minute, so credits per "
              "hour / 3600",
              RU_OVER(0, 1e15)),
    RU_ROW_AS("cap", F64, ru_burst_resource, rules.cap, NULL, "largest number of saved tokens",
              RU_OVER(0, 1e18)),
    RU_ROW_AS("burst", F64, ru_burst_resource, rules.burst, NULL,
              "rate at which full speed uses tokens [1/s]; CPU: vCPUs / 60", RU_OVER(0, 1e15)),
    RU_ROW_AS("level", F64, ru_burst_resource, now.earned, NULL, "earned tokens saved now",
              RU_IN(0, 1e18)),
    RU_ROW_AS("launch", F64, ru_burst_resource, now.launch, "0",
              "launch tokens left; they do not count towards cap and are spent first",
              RU_IN(0, 1e18)),
    RU_ROW(F64, ru_burst_resource, need, NULL, "tokens that one request needs", RU_OVER(0, 1e15)),
    RU_ROW(U32, ru_burst_resource, servers, "1", "requests served at the same time; CPU: vCPUs",
           RU_IN(1, 1024)),
    RU_ROW_AS("unlimited", BOOL, ru_burst_resource, rules.unlimited, "false",
              "true: with an empty bucket the machine buys surplus tokens instead of slowing down"),
    RU_ROW_AS("usd_per_token", F64, ru_burst_resource, rules.usd_per_token, "0.000833333",
              "price of a surplus token; CPU: USD of a vCPU-hour / 60", RU_IN(0, 1e9)),
};

static const ru_conf_table resource_table =
    RU_TABLE("resource", ru_burst_resource, resource_fields, "a resource behind a bucket of tokens",
             .check = check_resource);

static const ru_conf_field clients_fields[] = {
    RU_ROW(U32, clients_in, n, NULL, "number of clients; each waits for its answer",
           RU_IN(1, RU_BURST_CLIENTS_MAX)),
    RU_ROW(F64, clients_in, think_s, "0", "time from an answer to the next request of a client [s]",
           RU_IN(0, 1e6)),
};

static const ru_conf_table clients_table =
    RU_TABLE("clients", clients_in, clients_fields, "a closed loop");

static const ru_conf_field load_fields[] = {
    RU_ROW(SECTION, load_in, clients, NULL, "closed loop of clients", .table = &clients_table),
    RU_ROW(F64, load_in, rate, "1", "open-loop rate of requests [1/s]", RU_OVER(0, 1e12)),
};

static const ru_conf_table load_table =
    RU_TABLE("load", load_in, load_fields, "what has to be served", .one_of = "clients|rate",
             .which_offset = offsetof(load_in, which));

static ru_status check_profile(const burst_in *in, ru_err *err)
{
    uint32_t width = in->q.n + 2;
    if (in->profile.n % width != 0 || in->profile.n / width > SAMPLES_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "'profile' has %u numbers; expected %u for each request (load, speed of "
                       "each resource, latency), and at most %d requests",
                       in->profile.n, width, SAMPLES_MAX);
    }
    if (in->profile.n / width < ru_burst_features_n(in->q.n)) {
        return RU_FAIL(err, RU_E_ARG, "'profile' has %u requests, expected %u or more",
                       in->profile.n / width, ru_burst_features_n(in->q.n));
    }
    for (uint32_t i = 0; i < in->profile.n; i++) {
        double v = in->profile.at[i];
        bool speed = i % width > 0 && i % width < width - 1;
        bool closed = i % width == 0 && in->load.which == 1;
        if (!(v > 0) || (speed && v > 1) || (closed && v > RU_BURST_CLIENTS_MAX)) {
            return RU_FAIL(err, RU_E_ARG,
                           "number %u of 'profile' is %g; expected loads and latencies above 0, at "
                           "most %d clients, and speeds above 0 and at most 1",
                           i, v, RU_BURST_CLIENTS_MAX);
        }
    }
    return RU_OK;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const burst_in *in = section;
    if (in->q.n < 1 || in->q.n > RU_BURST_RESOURCES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'resources' has %u entries, expected 1 to %d", in->q.n,
                       RU_BURST_RESOURCES_MAX);
    }
    if ((in->q.n_model == 0) == (in->profile.n == 0)) {
        return RU_FAIL(err, RU_E_ARG, "give either 'model' or 'profile'");
    }
    uint32_t want = ru_burst_features_n(in->q.n);
    if (in->q.n_model != 0 && in->q.n_model != want) {
        return RU_FAIL(err, RU_E_ARG, "'model' has %u coefficients, expected %u", in->q.n_model,
                       want);
    }
    return in->profile.n != 0 ? check_profile(in, err) : RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW_AS("resources", SECTIONS, ru_burst_in, resource, NULL, "token buckets of the machine",
              .table = &resource_table),
    RU_ROW(SECTION, burst_in, load, NULL, "forecast of the load", .table = &load_table),
    RU_ROW(F64_LIST, ru_burst_in, model, "[]",
           "coefficients of the latency model: a constant; then for each resource service time, "
           "waiting time, and the root of their product",
           RU_IN(0, 1e9)),
    RU_ROW(F64_LIST, burst_in, profile, "[]",
           "measurements to fit the latency model: load, speed of each resource, latency [s]",
           RU_IN(0, 1e9)),
    RU_ROW(F64, ru_burst_in, slo_s, NULL,
           "latency objective: the quantile of latency must not exceed it [s]", RU_OVER(0, 1e6)),
    RU_ROW(F64, ru_burst_in, quantile, "0.95", "fraction of requests that must meet slo_s",
           RU_IN(0.01, 0.999)),
    RU_ROW(F64, ru_burst_in, margin, "0.1",
           "safety margin for model errors, as a fraction of slo_s", RU_IN(0, 0.9)),
    RU_ROW(F64, ru_burst_in, gain_min, "0.02",
           "smallest fraction of credits that throttling must save; below it the machine runs at "
           "full speed",
           RU_IN(0, 1)),
    RU_ROW(F64, ru_burst_in, reserve_s, "600",
           "request another machine if the credits last less than this [s]", RU_IN(0, 1e7)),
    RU_ROW(F64, ru_burst_in, speed_min, "0.2",
           "lowest speed of the grid, as a fraction of full speed", RU_IN(0.01, 0.99)),
    RU_ROW(U32, ru_burst_in, speeds, "9",
           "number of speeds of the grid of each resource, with full speed",
           RU_IN(1, RU_BURST_SPEEDS_MAX)),
    RU_ROW(CHOICE, ru_burst_in, method, "model",
           "model: throttle by the latency model; none: full speed; half: half speed; first: "
           "throttle the first resource only",
           .choices = "model|none|half|first"),
};

static const ru_conf_table table = RU_TABLE(
    "burst", burst_in, fields, "a burstable machine for the next minute", .check = check_in);

static ru_status fit_of(const burst_in *in, ru_burst_in *q, ru_arena *a, ru_err *err)
{
    uint32_t n = in->q.n, m = in->profile.n / (n + 2);
    ru_burst_sample *samples = RU_NEW(a, ru_burst_sample, m);
    if (samples == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a profile of %u samples", m);
    }
    for (uint32_t i = 0; i < m; i++) {
        const double *row = &in->profile.at[i * (n + 2)];
        samples[i] = (ru_burst_sample){.load = row[0], .latency_s = row[n + 1]};
        for (uint32_t k = 0; k < n; k++) {
            samples[i].speed[k] = row[1 + k];
        }
    }
    return ru_burst_fit(q->resource, n, &q->load, samples, m, q->quantile, a, a, &q->model, err);
}

static ru_status inner(const burst_in *in, ru_arena *a, ru_burst_in *out, ru_err *err)
{
    *out = in->q;
    out->load = (ru_burst_load){in->load.which == 2, in->load.rate, in->load.clients.n,
                                in->load.clients.think_s};
    return in->profile.n > 0 ? fit_of(in, out, a, err) : RU_OK;
}

static ru_status plan_burst(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_burst_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_burst(&q, plan, err);
}

static ru_status check_burst(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_burst_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_burst_check(&q, plan, err);
}

static void answer(const ru_burst_in *in, const ru_burst_plan *p, ru_report *r)
{
    static const char *const said[] = {
        "throttle",
        "run at full speed",
        "ask for another machine: late even at full speed, or credits end within the reserve",
    };
    ru_report_answer(r, "%s", said[p->action]);
    if (p->action == RU_BURST_STAND_DOWN && in->method != RU_BURST_NONE) {
        ru_report_answer(r,
                         "no bucket would ever be empty, or throttling saves less than gain_min");
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_burst_resource *s = &in->resource[i];
        if (p->speed[i] < 1) {
            ru_report_answer(r, "%s at %.4g of full speed", s->name, p->speed[i]);
        }
    }
}

static void resources_table(const ru_burst_in *in, const ru_burst_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "resources",
                                    "<resource >speed >use_per_s >earn_per_s >empty_after "
                                    ">surplus_usd_per_h");
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_burst_resource *s = &in->resource[i];
        ru_table_str(t, s->name);
        ru_table_f64(t, p->speed[i], 4);
        ru_table_f64(t, p->use[i], 4);
        ru_table_f64(t, s->rules.earn, 4);
        if (isinf(p->empty_s[i])) {
            ru_table_none(t);
        } else {
            ru_table_ns(t, (int64_t)fmin(p->empty_s[i] * 1e9, 9e18));
        }
        /* Once the bucket and the day's surplus are used up. */
        double owed = s->rules.unlimited ? fmax(0, p->use[i] - s->rules.earn) : 0;
        ru_table_f64(t, 3600 * owed * s->rules.usd_per_token, 4);
    }
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_burst_in *q = v->in; /* the first of the file's fields */
    const ru_burst_plan *p = v->won, *other = v->plan;
    bool keeps = other->latency_s <= (1 - q->margin) * q->slo_s;
    bool slow = v->method == RU_BURST_HALF && q->speed_min > 0.5;
    bool less = other->spend < p->spend && p->action == RU_BURST_STAND_DOWN;
    bool ours = ((const ru_burst_in *)v->won_in)->method == RU_BURST_MODEL;
    if (keeps && !slow && less && ours) {
        ru_rival_beside(v, 3600 * other->spend, "%.4g s, %.4g requests/s; to save is not needed",
                        other->latency_s, other->rate);
        return RU_OK;
    }
    ru_rival_is(v, 3600 * other->spend, keeps && !slow, "%.4g s, %.4g requests/s%s",
                other->latency_s, other->rate,
                !keeps ? ", misses the objective less the margin"
                : slow ? ", slower than 'speed_min'"
                       : "");
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_DECISION(CHOICE, ru_burst_plan, action, "action",
                .choices = "throttle|full_speed|ask_for_a_machine"),
    RU_DECISION(F64, ru_burst_plan, speed, "speed", RU_LIST_INSIDE(ru_burst_plan, n)),
};

static ru_status report_burst(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_burst_in *q = in; /* the first of the file's fields */
    const ru_burst_plan *p = plan;
    answer(q, p, r);
    ru_report_figure(r, "caps_per_h", 3600 * p->spend);
    ru_report_figure(r, "latency_s", p->latency_s);
    ru_report_figure(r, "requests_per_s", p->rate);
    if (!isinf(p->stretch)) {
        ru_report_figure(r, "burst_time_ratio", p->stretch);
    }
    resources_table(q, p, r);
    RU_TRY(ru_policy_rivals(&ru_policy_burst, in, plan, tools, judge, r, err));
    ru_report_assume(
        r, "the load is as forecast; a request needs the same number of tokens at any speed");
    ru_report_assume(r, "an empty bucket limits the resource to its earn rate at once");
    ru_report_valid(r, INT64_C(60000000000));
    ru_report_trigger(r, "latency_s", 0.1);
    return RU_OK;
}

const ru_policy ru_policy_burst = {
    .name = "burst",
    .version = 2,
    .decides = "at which speed each resource of a burstable machine runs",
    .source = "ali-2018 (CEDULE), ali-2021 (several resources)",
    .in = &table,
    .plan_bytes = sizeof(ru_burst_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_burst,
    .check = check_burst,
    .report = report_burst,
    .example =
        "# A small machine that serves 20 clients; its disk has a bucket as well.\n"
        "resources:\n"
        "  - {name: cpu, earn: 0.00166667, cap: 144, burst: 0.0166667, level: 90, need: 0.00025}\n"
        "  - {name: disk, earn: 100, cap: 5.4e6, burst: 3000, level: 2e6, need: 12, servers: 4}\n"
        "load: {clients: {n: 20, think_s: 0.05}}\n"
        "model: [0.001, 1, 1.1, 1, 1, 1.2, 1]\n"
        "slo_s: 1.2\n",
};
