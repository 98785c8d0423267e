/* BATCH: the law against given vectors, and the choice for measured hours beside the artefact's. */
#include <math.h>
#include <string.h>

#include "bench/replay/replay.h"
#include "bench/replay/replay_csv.h"
#include "bench/replay/serve/replay_serve.h"
#include "env/clock.h"
#include "plan/serve/batch.h"

typedef struct hours {
    rui_csv rows; /* batch_map2_hourly.csv */
    rui_csv poly;
} hours;

/* Coefficients of a model, n of them. */
static uint32_t poly_of(const hours *h, const char *model, double *into)
{
    for (uint32_t r = 0; r < h->poly.n; r++) {
        if (strcmp(rui_csv_text(&h->poly, r, 0), model) == 0) {
            uint32_t n = 0;
            for (uint32_t c = 1; c < h->poly.n_columns; c++) {
                double v = rui_csv_f64(&h->poly, r, c);
                n = isnan(v) ? n : c;
                into[c - 1] = isnan(v) ? 0 : v;
            }
            return n;
        }
    }
    return 0;
}

/* The printed rates have seven digits: the diagonal is made to fit the rest. */
static bool hour_of(const hours *h, const char *trace, double hour, ru_markov *out)
{
    for (uint32_t r = 0; r < h->rows.n; r++) {
        if (strcmp(rui_csv_text(&h->rows, r, 0), trace) != 0 ||
            rui_csv_f64(&h->rows, r, 1) != hour) {
            continue;
        }
        *out = (ru_markov){.n = 2};
        for (uint32_t i = 0; i < 4; i++) {
            out->d0[i] = rui_csv_f64(&h->rows, r, 2 + i);
            out->d1[i] = rui_csv_f64(&h->rows, r, 6 + i);
        }
        out->d0[0] = -(out->d0[1] + out->d1[0] + out->d1[1]);
        out->d0[3] = -(out->d0[2] + out->d1[2] + out->d1[3]);
        return true;
    }
    return false;
}

/* "twitter_h15", "poisson_20", "synth_w14". */
static bool process_of(const hours *h, const char *name, ru_markov *out)
{
    ru_str s = ru_str_c(name);
    double v;
    if (ru_str_starts(s, "poisson_") && ru_str_f64(ru_str_from(s, 8), &v)) {
        *out = ru_markov_poisson(v);
        return true;
    }
    if (strcmp(name, "synth_w14") == 0 || strcmp(name, "synth_w16") == 0) {
        *out = strcmp(name, "synth_w14") == 0 ? ru_markov_mmpp(10, 120, 0.05, 0.05)
                                              : ru_markov_mmpp(10, 200, 0.01, 0.01);
        return true;
    }
    int64_t at = ru_str_find(s, "_h");
    return at > 0 && ru_str_f64(ru_str_from(s, at + 2), &v) &&
           hour_of(h, ru_str_starts(s, "nys") ? "NYS" : "Twitter", v, out);
}

static ru_batch_in input(const double *poly, uint32_t n_poly, const double *memory,
                         uint32_t n_memory)
{
    return (ru_batch_in){.service = {poly, n_poly},
                         .memory_mb = memory,
                         .n_memory = n_memory,
                         .batch_max = 20,
                         .timeout_max_s = 1,
                         .timeout_step_s = 0.02,
                         .slo_s = 5,
                         .quantile = 0.95,
                         .margin = RU_BATCH_MARGIN,
                         .usd_per_gb_s = 1.66667e-5,
                         .usd_per_call = 2e-7,
                         .billing_step_s = 0.001};
}

/* Largest relative difference from the given vectors, by figure. */
static ru_status vectors(ru_replay *r, const hours *h, const char *path, ru_err *err)
{
    static const char *const names[] = {"p50", "p95", "p99", "mean batch", "cost"};
    static const uint32_t column[] = {4, 5, 6, 7, 8};
    static const double goal[] = {0.005, 0.005, 0.005, 0.005, 0.001};
    double worst[5] = {0}, over[5] = {0};
    rui_csv csv;
    RU_TRY(rui_csv_read(path, r->arena, &csv, err));
    for (uint32_t k = 0; k < csv.n; k++) {
        double poly[15];
        uint32_t n_poly = poly_of(h, rui_csv_text(&csv, k, 10), poly);
        double memory = rui_csv_f64(&csv, k, 3);
        ru_batch_in in = input(poly, n_poly, &memory, 1);
        if (n_poly == 0 || !process_of(h, rui_csv_text(&csv, k, 0), &in.arrivals)) {
            return RU_FAIL(err, RU_E_DATA, "%s: row %u names an unknown process or model", path,
                           k + 2);
        }
        const ru_batch_choice at = {memory, (uint32_t)rui_csv_f64(&csv, k, 1),
                                    rui_csv_f64(&csv, k, 2)};
        static const double q[] = {0.5, 0.95, 0.99};
        double is[5] = {0};
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        for (uint32_t i = 0; i < 3; i++) {
            ru_batch_plan p;
            in.quantile = q[i];
            RU_TRY(ru_plan_batch_at(&in, &at, r->arena, r->arena, &p, err));
            is[i] = p.latency_s;
            is[3] = p.mean_batch;
            is[4] = p.usd_per_request;
        }
        ru_arena_rewind(r->arena, mark);
        for (uint32_t i = 0; i < 5; i++) {
            double e = fabs(is[i] / rui_csv_f64(&csv, k, column[i]) - 1);
            worst[i] = fmax(worst[i], e);
            over[i] += e > goal[i] ? 1 : 0;
        }
    }
    for (uint32_t i = 0; i < 5; i++) {
        char name[64];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "%s of %u given rows, worst difference", names[i], csv.n);
        ru_replay_row row = ru_replay_row_of(name, "relative_error", true);
        row.ours = worst[i];
        row.goal = goal[i];
        if (over[i] > 0) {
            char note[128];
            ru_text n = ru_text_into(note, sizeof note);
            ru_text_putf(&n, "%.0f rows over; simulation agrees with ours (docs/policies/batch.md)",
                         over[i]);
            row.note = note;
            RU_TRY(ru_replay_add(r, &row, err));
        } else {
            RU_TRY(ru_replay_add(r, &row, err));
        }
    }
    return RU_OK;
}

/* Cost of each method. The given optimum uses the whole objective: with a margin it is no goal. */
static ru_status methods(ru_replay *r, const char *name, ru_batch_in in, double best,
                         double artefact, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, "micro_usd_per_request", true);
    ru_batch_plan p;
    ru_err why;
    RU_TRY(ru_plan_batch(&in, r->arena, r->arena, &p, err));
    row.ours = 1e6 * p.usd_per_request;
    row.best_known = 1e6 * best;
    row.goal = in.margin > 0 ? RU_NAN : row.best_known * 1.01;
    in.method = RU_BATCH_NONE;
    RU_TRY(ru_plan_batch(&in, r->arena, r->arena, &p, err));
    ru_replay_baseline(r, &row, "no batching", 1e6 * p.usd_per_request);
    in.method = RU_BATCH_PUBLISHED;
    ru_status st = ru_plan_batch(&in, r->arena, r->arena, &p, &why);
    ru_replay_baseline(r, &row, "published rule", st == RU_OK ? 1e6 * p.usd_per_request : RU_NAN);
    for (uint32_t rule = RU_BATCH_CLIPPER; rule <= RU_BATCH_MARK; rule++) {
        in.method = (ru_batch_method)rule;
        st = ru_plan_batch(&in, r->arena, r->arena, &p, &why);
        ru_replay_baseline(r, &row, rule == RU_BATCH_CLIPPER ? "clipper" : "mark",
                           st == RU_OK ? 1e6 * p.usd_per_request : RU_NAN);
    }
    ru_replay_baseline(r, &row, "artefact", 1e6 * artefact);
    return ru_replay_add(r, &row, err);
}

/* One hour and objective: the policy as users get it, then beside the given optimum. */
static ru_status hour(ru_replay *r, const hours *h, const rui_csv *csv, uint32_t k, ru_err *err)
{
    double poly[15], memory[28];
    for (uint32_t m = 0; m < 28; m++) {
        memory[m] = 1280 + 64 * m;
    }
    ru_batch_in in = input(poly, poly_of(h, "tf_inception_v4", poly), memory, 28);
    const char *trace = rui_csv_text(csv, k, 0);
    in.slo_s = rui_csv_f64(csv, k, 2);
    if (!hour_of(h, trace, rui_csv_f64(csv, k, 1), &in.arrivals)) {
        return RU_OK;
    }
    char name[64], whole[80];
    ru_text t = ru_text_into(name, sizeof name), u = ru_text_into(whole, sizeof whole);
    ru_text_putf(&t, "%s hour %.0f, p95 <= %g s", trace, rui_csv_f64(csv, k, 1), in.slo_s);
    ru_text_putf(&u, "%s, margin 0", name);
    ru_batch_plan p;
    int64_t begun = ru_clock_cpu_ns();
    RU_TRY(ru_plan_batch(&in, r->arena, r->arena, &p, err));
    double took = (double)(ru_clock_cpu_ns() - begun) * 1e-9;
    double best = rui_csv_f64(csv, k, 7), artefact = rui_csv_f64(csv, k, 9);
    RU_TRY(methods(r, name, in, best, artefact, err));
    in.margin = 0;
    RU_TRY(methods(r, whole, in, best, artefact, err));
    ru_replay_row time = ru_replay_row_of(name, "decision_s", true);
    time.timed = true;
    time.ours = took;
    time.goal = 1;
    return ru_replay_add(r, &time, err);
}

/* -- through the server ------------------------------------------------------------------------ */

typedef struct service {
    ru_batch_in in; /* polynomial and prices */
    bool fast;      /* 40 ms and 10 ms a request instead: waits count for more */
} service;

static double seconds_of(const void *self, uint32_t n, uint32_t largest, double memory_mb)
{
    const service *v = self;
    (void)largest;
    return v->fast ? 0.04 + 0.01 * n : ru_batch_service_s(&v->in, n, memory_mb);
}

static double usd_of(const void *self, uint32_t n, uint32_t largest, double memory_mb)
{
    const service *v = self;
    double s = seconds_of(self, n, largest, memory_mb);
    double steps = ceil(s / v->in.billing_step_s - 1e-9);
    return steps * v->in.billing_step_s * memory_mb / 1024 * v->in.usd_per_gb_s +
           v->in.usd_per_call;
}

static const double levels[] = {0.5, 0.95, 0.99};
enum { LEVELS = RUI_SERVE_LEVELS, FIGURES = LEVELS + 2 };

typedef struct errors {
    double worst[FIGURES]; /* p50, p95, p99, mean batch, cost */
    double standard;       /* largest standard error of a quantile */
    uint32_t cases, runs;
} errors;

static ru_status one_case(ru_replay *r, const service *v, uint32_t batch, double timeout_s,
                          uint64_t seed, errors *e, ru_err *err)
{
    static const double all[1] = {1};
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    const ru_serve_rule rule = {
        .batch = batch, .timeout_ns = llround(timeout_s * 1e9), .memory_mb = 1792};
    const rui_serve_in in = {.arrivals = v->in.arrivals,
                             .table = {1, 1, &rule, all},
                             .class_share = all,
                             .service_s = seconds_of,
                             .usd = usd_of,
                             .self = v,
                             .requests = r->quick ? 100000 : 1000000,
                             .instances_max = UINT32_MAX,
                             .seed = seed};
    rui_serve_law is;
    ru_markov_law arrivals;
    ru_batch_law law;
    double service_s[RU_BATCH_MAX + 1] = {0}, usd[RU_BATCH_MAX + 1] = {0}, off[FIGURES];
    RU_TRY(rui_serve_estimate(&in, levels, 1.0 / 300, r->quick ? 32 : 8, r->arena, &is, err));
    RU_TRY(ru_markov_solve(&in.arrivals, &arrivals, err));
    RU_TRY(ru_batch_law_of(&arrivals, batch, timeout_s, 1, r->arena, r->arena, &law, err));
    for (uint32_t b = 1; b <= batch; b++) {
        service_s[b] = seconds_of(v, b, 0, 1792);
        usd[b] = usd_of(v, b, 0, 1792);
    }
    for (uint32_t k = 0; k < LEVELS; k++) {
        off[k] = fabs(is.quantile[k] / ru_batch_quantile(&law, service_s, levels[k]) - 1);
        e->standard = fmax(e->standard, is.error[k]);
    }
    off[3] = fabs(is.mean_batch / law.mean_batch - 1);
    off[4] = fabs(is.usd_per_request / ru_batch_per_request(&law, usd) - 1);
    for (uint32_t k = 0; k < FIGURES; k++) {
        e->worst[k] = fmax(e->worst[k], off[k]);
    }
    e->cases++;
    e->runs += is.runs;
    ru_arena_rewind(r->arena, mark);
    return RU_OK;
}

/* Every given process behind buffers by lot. */
static ru_status simulated(ru_replay *r, const hours *h, bool bursty, ru_err *err)
{
    static const char *const names[] = {"p50", "p95", "p99", "mean batch", "cost"};
    double poly[15];
    service v = {.in = input(poly, poly_of(h, "tf_inception_v4", poly), NULL, 0)};
    errors e = {0};
    ru_rng rng = ru_rng_from(3, ru_rng_label("buffers"));
    for (uint32_t k = 0, seen = 0; k < h->rows.n; k++) {
        const char *trace = rui_csv_text(&h->rows, k, 0);
        bool slow = rui_csv_f64(&h->rows, k, 14) > 100; /* index of dispersion */
        if (slow != bursty || (r->quick && seen++ % 8 != 0 && !bursty)) {
            continue;
        }
        bool known = hour_of(h, trace, rui_csv_f64(&h->rows, k, 1), &v.in.arrivals);
        for (uint32_t twice = 0; twice < 2 && known; twice++) {
            v.fast = twice == 1;
            uint32_t batch = 2 + ru_rng_below(&rng, 19);
            double timeout_s = 0.02 + 0.98 * ru_rng_f64(&rng);
            RU_TRY(one_case(r, &v, batch, timeout_s, 2 * k + twice, &e, err));
        }
    }
    const char *kind = bursty ? "dispersion above 100" : "dispersion below 2";
    for (uint32_t k = 0; k < FIGURES; k++) {
        char name[96];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "%s of %u cases through the server, %s", names[k], e.cases, kind);
        ru_replay_row row = ru_replay_row_of(name, "relative_error", true);
        row.ours = e.worst[k];
        row.goal = 0.01;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    char name[96], note[96];
    ru_text t = ru_text_into(name, sizeof name), u = ru_text_into(note, sizeof note);
    ru_text_putf(&t, "standard error of these quantiles, %s", kind);
    ru_text_putf(&u, "%u runs of %s requests", e.runs, r->quick ? "100,000" : "1,000,000");
    ru_replay_row row = ru_replay_row_of(name, "relative_error", true);
    row.ours = e.standard;
    row.goal = 1.0 / 300;
    row.note = note;
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_batch(ru_replay *r, ru_err *err)
{
    const char *data = ru_replay_data(r, "serving");
    if (data == NULL) {
        return RU_FAIL(err, RU_E_MISSING,
                       "no folder 'serving' in the published data; set RUBATO_DATA");
    }
    hours h;
    RU_TRY(
        rui_csv_read(ru_replay_data(r, "serving/batch_map2_hourly.csv"), r->arena, &h.rows, err));
    RU_TRY(
        rui_csv_read(ru_replay_data(r, "serving/batch_service_poly.csv"), r->arena, &h.poly, err));
    RU_TRY(vectors(r, &h, ru_replay_data(r, "serving/batch_reference_vectors.csv"), err));
    rui_csv best;
    RU_TRY(rui_csv_read(ru_replay_data(r, "serving/batch_day_optimum.csv"), r->arena, &best, err));
    for (uint32_t k = 0; k < best.n; k += r->quick ? 5 : 1) {
        if (!ru_replay_have(r, "hour %u", k)) {
            RU_TRY(hour(r, &h, &best, k, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    for (uint32_t bursty = 0; bursty < 2; bursty++) {
        if (!ru_replay_have(r, "simulated %u", bursty)) {
            RU_TRY(simulated(r, &h, bursty == 1, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    return RU_OK;
}
