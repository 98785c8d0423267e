/* MBS: equal-load tables against the given ones; buffers, cuts and their cost on four mixes of
 * sizes beside every baseline. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "bench/replay/replay.h"
#include "bench/replay/replay_csv.h"
#include "bench/replay/serve/replay_route_bound.h"
#include "bench/replay/serve/replay_serve.h"
#include "cost/math/quantile.h"
#include "env/clock.h"
#include "plan/serve/route.h"

enum { CLASSES = 32, BATCH = 25, MEMORIES_MAX = 32 };

typedef struct route_data {
    rui_csv mix, table, reference, service;
    ru_markov arrivals;
    double size[CLASSES], share[4][CLASSES], memory[MEMORIES_MAX];
    uint32_t n_memory;
    double *seconds; /* [n_memory, CLASSES, BATCH] */
} route_data;

static const char *const mixes[] = {"original", "bimodal", "exp_small", "random"};

static ru_status read_service(ru_replay *r, route_data *d, ru_err *err)
{
    RU_TRY(rui_csv_read(ru_replay_data(r, "serving/mbs_service_time_ms.csv"), r->arena, &d->service,
                        err));
    d->seconds = RU_NEW(r->arena, double, MEMORIES_MAX *CLASSES *BATCH);
    if (d->seconds == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for service times");
    }
    for (uint32_t k = 0; k < d->service.n; k++) {
        double memory = rui_csv_f64(&d->service, k, 0), class_of = rui_csv_f64(&d->service, k, 1);
        if (d->n_memory == 0 || d->memory[d->n_memory - 1] < memory) {
            if (d->n_memory == MEMORIES_MAX) {
                return RU_FAIL(err, RU_E_ARG, "more than %d memories", MEMORIES_MAX);
            }
            d->memory[d->n_memory++] = memory;
        }
        for (uint32_t b = 0; b < BATCH && class_of < CLASSES; b++) {
            d->seconds[((d->n_memory - 1) * CLASSES + (uint32_t)class_of) * BATCH + b] =
                1e-3 * rui_csv_f64(&d->service, k, 2 + b);
        }
    }
    return RU_OK;
}

/* Twitter's eighth hour, whose printed rates have seven digits: the diagonal is made to fit. */
static ru_status read_arrivals(ru_replay *r, route_data *d, ru_err *err)
{
    rui_csv h;
    RU_TRY(rui_csv_read(ru_replay_data(r, "serving/batch_map2_hourly.csv"), r->arena, &h, err));
    for (uint32_t k = 0; k < h.n; k++) {
        if (strcmp(rui_csv_text(&h, k, 0), "Twitter") == 0 && rui_csv_f64(&h, k, 1) == 8) {
            ru_markov *m = &d->arrivals;
            m->n = 2;
            for (uint32_t i = 0; i < 4; i++) {
                m->d0[i] = rui_csv_f64(&h, k, 2 + i);
                m->d1[i] = rui_csv_f64(&h, k, 6 + i);
            }
            m->d0[0] = -(m->d0[1] + m->d1[0] + m->d1[1]);
            m->d0[3] = -(m->d0[2] + m->d1[2] + m->d1[3]);
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_ARG, "no hour 8 of Twitter");
}

static ru_status read_all(ru_replay *r, route_data *d, ru_err *err)
{
    *d = (route_data){0};
    RU_TRY(rui_csv_read(ru_replay_data(r, "serving/mbs_class_mix.csv"), r->arena, &d->mix, err));
    RU_TRY(rui_csv_read(ru_replay_data(r, "serving/mbs_equal_load_routes.csv"), r->arena, &d->table,
                        err));
    RU_TRY(
        rui_csv_read(ru_replay_data(r, "serving/mbs_reference.csv"), r->arena, &d->reference, err));
    if (d->mix.n != CLASSES) {
        return RU_FAIL(err, RU_E_ARG, "%u classes, expected %d", d->mix.n, CLASSES);
    }
    for (uint32_t m = 0; m < RU_ARRAY_LEN(mixes); m++) {
        double sum = 0;
        for (uint32_t k = 0; k < CLASSES; k++) {
            d->size[k] = rui_csv_f64(&d->mix, k, 1);
            sum += rui_csv_f64(&d->mix, k, 2 + m);
        }
        for (uint32_t k = 0; k < CLASSES; k++) {
            d->share[m][k] = rui_csv_f64(&d->mix, k, 2 + m) / sum;
        }
    }
    RU_TRY(read_service(r, d, err));
    return read_arrivals(r, d, err);
}

/* Every memory; timeouts by 20 ms in the full grid, by 100 ms in the coarse one. */
static ru_route_in input(const route_data *d, uint32_t mix, double slo, bool full)
{
    return (ru_route_in){
        .arrivals = d->arrivals,
        .n_classes = CLASSES,
        .size = d->size,
        .share = d->share[mix],
        .memory_mb = d->memory,
        .n_memory = d->n_memory,
        .batch_max = BATCH,
        .service_s = d->seconds,
        .timeout_max_s = 2,
        .timeout_step_s = full ? 0.02 : 0.1,
        .slo_s = slo,
        .quantile = 0.95,
        .usd_per_gb_s = 1.66667e-5,
        .usd_per_call = 2e-7,
        .billing_step_s = 0.001,
        .buffers_max = 8,
        .instances_max = 1e9,
    };
}

/* Worst difference of a share of a given equal-load table. */
static ru_status tables(ru_replay *r, const route_data *d, ru_err *err)
{
    double worst = 0, into[32 * CLASSES];
    for (uint32_t k = 0; k < d->table.n; k++) {
        uint32_t mix = 0, n = (uint32_t)rui_csv_f64(&d->table, k, 1),
                 buffer = (uint32_t)rui_csv_f64(&d->table, k, 2),
                 class_of = (uint32_t)rui_csv_f64(&d->table, k, 3);
        while (mix + 1 < RU_ARRAY_LEN(mixes) &&
               strcmp(mixes[mix], rui_csv_text(&d->table, k, 0)) != 0) {
            mix++;
        }
        if (n > 32 || buffer >= n || class_of >= CLASSES) {
            return RU_FAIL(err, RU_E_ARG, "row %u of the tables is out of range", k);
        }
        ru_route_in in = input(d, mix, 0.3, false);
        ru_route_table(&in, RU_ROUTE_EQUAL, n, into);
        worst = fmax(worst, fabs(into[buffer * CLASSES + class_of] - rui_csv_f64(&d->table, k, 4)));
    }
    ru_replay_row row = ru_replay_row_of("equal-load tables", "worst_share", true);
    row.ours = worst;
    row.goal = 1e-6;
    return ru_replay_add(r, &row, err);
}

static double cost_of(ru_replay *r, ru_route_in in, ru_route_method method, uint32_t buffers)
{
    ru_route_plan p;
    ru_err why;
    in.method = method;
    in.buffers = buffers;
    return ru_plan_route(&in, r->arena, r->arena, &p, &why) == RU_OK ? 1e6 * p.usd_per_request
                                                                     : RU_NAN;
}

/* The least given cost of a mix and routing, in micro USD; NaN: none given. */
static double given(const route_data *d, const char *mix, double slo, const char *routing, double n)
{
    double best = RU_NAN;
    for (uint32_t k = 0; k < d->reference.n; k++) {
        if (strcmp(rui_csv_text(&d->reference, k, 0), mix) == 0 &&
            rui_csv_f64(&d->reference, k, 1) == slo &&
            strcmp(rui_csv_text(&d->reference, k, 3), routing) == 0 &&
            (n == 0 || rui_csv_f64(&d->reference, k, 4) == n)) {
            best = fmin(best, 1e6 * rui_csv_f64(&d->reference, k, 5));
        }
    }
    return best;
}

/* The sum of the bounds of all buffers of a plan, micro USD. */
static ru_status bound_of(ru_replay *r, const ru_route_in *in, const ru_route_plan *p,
                          double *bound, ru_err *err)
{
    *bound = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        double usd;
        RU_TRY(rui_route_bound(in, p->share + (size_t)i * CLASSES, p->buffers[i].usd_per_request,
                               r->arena, &usd, err));
        *bound += 1e6 * p->buffers[i].share * usd;
    }
    return RU_OK;
}

/* Every given row with the same routing, number of buffers and grid: G1 is the full one. */
static ru_status given_rows(ru_replay *r, const route_data *d, ru_err *err)
{
    for (uint32_t k = 0; k < d->reference.n; k += r->quick ? 4 : 1) {
        uint32_t mix = 0, n = (uint32_t)rui_csv_f64(&d->reference, k, 4);
        while (mix + 1 < RU_ARRAY_LEN(mixes) &&
               strcmp(mixes[mix], rui_csv_text(&d->reference, k, 0)) != 0) {
            mix++;
        }
        bool equal = strcmp(rui_csv_text(&d->reference, k, 3), "equal_load") == 0;
        bool full = strcmp(rui_csv_text(&d->reference, k, 2), "G1") == 0;
        if (n < 1 || n > 32) {
            return RU_FAIL(err, RU_E_DATA, "row %u of the given costs has %u buffers", k, n);
        }
        ru_route_in in = input(d, mix, rui_csv_f64(&d->reference, k, 1), full);
        in.buffers_max = n > in.buffers_max ? n : in.buffers_max;
        char name[96];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "%s, %g s/KB, %s, %u buffer%s", mixes[mix], in.slo_s,
                     equal ? "equal load" : "cuts", n, n == 1 ? "" : "s");
        ru_replay_row row = ru_replay_row_of(name, "micro_usd_per_request", true);
        ru_route_plan p;
        in.method = equal ? RU_ROUTE_EQUAL : RU_ROUTE_CUTS;
        in.buffers = n;
        RU_TRY(ru_plan_route(&in, r->arena, r->arena, &p, err));
        row.ours = 1e6 * p.usd_per_request;
        row.best_known = 1e6 * rui_csv_f64(&d->reference, k, 5);
        row.goal = row.best_known * 1.005;
        if (equal || n == 1) {
            RU_TRY(bound_of(r, &in, &p, &row.bound, err));
        }
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

static ru_status mix_rows(ru_replay *r, const route_data *d, uint32_t mix, ru_err *err)
{
    for (uint32_t all = 0; all < 2; all++) {
        ru_route_in in = input(d, mix, 0.3, all == 1);
        char name[96];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "%s, 0.3 s/KB, %s", mixes[mix],
                     all == 1 ? "full grid, up to 8 buffers" : "coarse grid, up to 16 buffers");
        in.buffers_max = all == 1 ? 8 : 16;
        ru_route_plan p;
        int64_t begun = ru_clock_cpu_ns();
        RU_TRY(ru_plan_route(&in, r->arena, r->arena, &p, err));
        double took = (double)(ru_clock_cpu_ns() - begun) * 1e-9;
        ru_replay_row row = ru_replay_row_of(name, "micro_usd_per_request", true);
        row.ours = 1e6 * p.usd_per_request;
        row.best_known = fmin(given(d, mixes[mix], 0.3, "dp_cuts", 0),
                              given(d, mixes[mix], 0.3, "equal_load", 0));
        row.goal =
            mix == 1 ? (all == 1 ? 82.0 : 82.5) : (mix == 3 && all == 0 ? 74.0 : row.best_known);
        ru_replay_baseline(r, &row, "equal load", cost_of(r, in, RU_ROUTE_EQUAL, 0));
        ru_replay_baseline(r, &row, "equal width", cost_of(r, in, RU_ROUTE_WIDTH, 0));
        ru_replay_baseline(r, &row, "4 at random", cost_of(r, in, RU_ROUTE_RANDOM, 4));
        ru_replay_baseline(r, &row, "one buffer", cost_of(r, in, RU_ROUTE_SINGLE, 0));
        ru_replay_baseline(r, &row, "no batching", cost_of(r, in, RU_ROUTE_NONE, 0));
        RU_TRY(ru_replay_add(r, &row, err));
        ru_replay_row time = ru_replay_row_of(name, "decision_s", true);
        time.timed = true;
        time.ours = took;
        time.goal = 10;
        RU_TRY(ru_replay_add(r, &time, err));
    }
    return RU_OK;
}

/* -- through the server ------------------------------------------------------------------------ */

static uint32_t memory_of(const ru_route_in *in, double memory_mb)
{
    uint32_t m = 0;
    while (m + 1 < in->n_memory && in->memory_mb[m] != memory_mb) {
        m++;
    }
    return m;
}

static double seconds_of(const void *self, uint32_t n, uint32_t largest, double memory_mb)
{
    const ru_route_in *in = self;
    uint32_t m = memory_of(in, memory_mb);
    return in->service_s[((size_t)m * CLASSES + largest) * BATCH + n - 1];
}

static double usd_of(const void *self, uint32_t n, uint32_t largest, double memory_mb)
{
    const ru_route_in *in = self;
    return ru_route_call_usd(in, memory_of(in, memory_mb), largest, n);
}

typedef struct buffer_law {
    ru_route_mix mix;
    ru_batch_law law;
    const double *service_s;
} buffer_law;

/* The quantile of latency by size over all requests, by bisection over the closed form. */
static ru_status quantile_of(ru_replay *r, const ru_route_in *in, const ru_route_plan *p, double q,
                             double *out, ru_err *err)
{
    buffer_law b[32];
    for (uint32_t i = 0; i < p->n; i++) {
        const ru_route_buffer *f = &p->buffers[i];
        ru_markov thin = ru_markov_thinned(&in->arrivals, fmin(f->share, 1));
        ru_markov_law arrivals;
        RU_TRY(ru_markov_solve(&thin, &arrivals, err));
        RU_TRY(ru_batch_law_of(&arrivals, f->batch, f->timeout_s, 1, r->arena, r->arena, &b[i].law,
                               err));
        RU_TRY(ru_route_mix_of(p->share + (size_t)i * CLASSES, CLASSES, BATCH, r->arena, &b[i].mix,
                               err));
        b[i].service_s = in->service_s + (size_t)f->memory * CLASSES * BATCH;
    }
    double low = 0, high = 10;
    for (uint32_t step = 0; step < 50; step++) {
        double x = (low + high) / 2, sum = 0, allow[CLASSES], by_class[CLASSES];
        for (uint32_t k = 0; k < CLASSES; k++) {
            allow[k] = x * in->size[k];
        }
        for (uint32_t i = 0; i < p->n; i++) {
            sum += p->buffers[i].share *
                   ru_route_met(&b[i].mix, &b[i].law, b[i].service_s, allow, by_class);
        }
        low = sum < q ? x : low;
        high = sum < q ? high : x;
    }
    *out = high;
    return RU_OK;
}

static ru_status one_run(ru_replay *r, const route_data *d, uint32_t mix, uint32_t n, double *p95,
                         double *cost, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    ru_route_in in = input(d, mix, 0.3, false);
    in.method = RU_ROUTE_EQUAL;
    in.buffers = in.buffers_max = n;
    ru_route_plan p;
    RU_TRY(ru_plan_route(&in, r->arena, r->arena, &p, err));
    ru_serve_rule rule[RU_SERVE_BUFFERS_MAX];
    for (uint32_t i = 0; i < p.n; i++) {
        const ru_route_buffer *f = &p.buffers[i];
        rule[i] = (ru_serve_rule){.batch = f->batch,
                                  .timeout_ns = llround(f->timeout_s * 1e9),
                                  .memory_mb = in.memory_mb[f->memory]};
    }
    const rui_serve_in run = {.arrivals = in.arrivals,
                              .table = {p.n, CLASSES, rule, p.share},
                              .class_share = in.share,
                              .class_size = in.size,
                              .service_s = seconds_of,
                              .usd = usd_of,
                              .self = &in,
                              .requests = r->quick ? 100000 : 1000000,
                              .instances_max = UINT32_MAX,
                              .seed = 10 * mix + n};
    rui_serve_out o;
    double law = 0;
    RU_TRY(rui_serve_run(&run, r->arena, &o, err));
    RU_TRY(quantile_of(r, &in, &p, in.quantile, &law, err));
    ru_sort_f64(o.latency, o.n);
    *p95 = fmax(*p95,
                fabs(ru_quantile_sorted(o.latency, o.n, in.quantile, RU_QUANTILE_RANK) / law - 1));
    *cost = fmax(*cost, fabs(o.usd_per_request / p.usd_per_request - 1));
    ru_arena_rewind(r->arena, mark);
    return RU_OK;
}

/* The closed form beside requests that pass the server, by number of buffers. */
static ru_status simulated(ru_replay *r, const route_data *d, ru_err *err)
{
    for (uint32_t n = 1; n <= 16; n *= 2) {
        double p95 = 0, cost = 0;
        for (uint32_t mix = 0; mix < RU_ARRAY_LEN(mixes); mix++) {
            RU_TRY(one_run(r, d, mix, n, &p95, &cost, err));
        }
        char name[96];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "p95 s/KB through the server, 4 mixes, %u buffers", n);
        ru_replay_row row = ru_replay_row_of(name, "relative_error", true);
        row.ours = p95;
        row.goal = 0.01;
        RU_TRY(ru_replay_add(r, &row, err));
        t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "cost through the server, 4 mixes, %u buffers", n);
        row = ru_replay_row_of(name, "relative_error", true);
        row.ours = cost;
        row.goal = 0.005;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

ru_status rui_replay_route(ru_replay *r, ru_err *err)
{
    if (ru_replay_data(r, "serving") == NULL) {
        return RU_FAIL(err, RU_E_MISSING,
                       "no folder 'serving' in the published data; set RUBATO_DATA");
    }
    route_data d;
    RU_TRY(read_all(r, &d, err));
    RU_TRY(tables(r, &d, err));
    RU_TRY(simulated(r, &d, err));
    RU_TRY(given_rows(r, &d, err));
    for (uint32_t mix = r->quick ? 1 : 0; mix < RU_ARRAY_LEN(mixes); mix += r->quick ? 2 : 1) {
        RU_TRY(mix_rows(r, &d, mix, err)); /* quick: those with a required cost */
    }
    return RU_OK;
}
