/* Tail latency of throttled loops: fit to a short profile of a simulated loop, asked at loads and
 * speeds that the profile has not. The fit sees latencies only; the law of service is hidden. */
#include <math.h>

#include "bench/replay/fleet/replay_burst.h"
#include "bench/replay/replay_loop.h"
#include "cost/math/lsq.h"
#include "cost/math/quantile.h"
#include "plan/fleet/burst.h"

#define THINK_S 0.2
#define MEAN_S  0.015 /* of a request at full speed of the first resource */

enum { SAMPLES = 150, WIDTH_MAX = RU_BURST_FEATURES_MAX };

static const double seen_speeds[] = {0.2, 0.4, 0.6, 0.8, 1};
static const uint32_t seen_clients[] = {1, 5, 12, 25, 40};
static const double new_speeds[] = {0.3, 0.5, 0.7, 0.9};
static const uint32_t new_clients[] = {3, 8, 18, 32};

typedef struct profile {
    const ru_burst_resource *r;
    uint32_t n;
    rui_loop_law law;
    ru_burst_sample *samples; /* [m] */
    uint32_t m;
} profile;

static ru_status simulate(ru_replay *r, const profile *p, double speed, uint32_t clients,
                          uint64_t seed, double seconds, double **latency, uint32_t *n, ru_err *err)
{
    ru_station s[RU_BURST_RESOURCES_MAX];
    for (uint32_t i = 0; i < p->n; i++) {
        double at = i == 0 ? speed : 1.3 - speed; /* speeds of two resources differ */
        s[i] = (ru_station){p->r[i].need / (fmin(1, at) * p->r[i].rules.burst), 1};
    }
    const rui_loop_in in = {.station = s,
                            .n = p->n,
                            .law = p->law,
                            .clients = clients,
                            .think_s = THINK_S,
                            .seed = seed,
                            .warm_s = 20,
                            .measure_s = seconds};
    return rui_loop_run(&in, r->arena, latency, n, err);
}

static void speeds_of(double speed, double *into)
{
    into[0] = speed;
    into[1] = fmin(1, 1.3 - speed);
}

/* 60 seconds at every speed and load; at most SAMPLES requests of each, evenly spread. */
static ru_status measure(ru_replay *r, profile *p, ru_err *err)
{
    p->samples = RU_NEW(r->arena, ru_burst_sample, SAMPLES * 25);
    if (p->samples == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a profile");
    }
    for (uint32_t a = 0; a < RU_ARRAY_LEN(seen_speeds); a++) {
        for (uint32_t b = 0; b < RU_ARRAY_LEN(seen_clients); b++) {
            double *latency;
            uint32_t n;
            RU_TRY(simulate(r, p, seen_speeds[a], seen_clients[b], 100 + 5 * a + b, 60, &latency,
                            &n, err));
            uint32_t keep = n < SAMPLES ? n : SAMPLES;
            for (uint32_t k = 0; k < keep; k++) {
                ru_burst_sample *s = &p->samples[p->m++];
                *s = (ru_burst_sample){.load = seen_clients[b],
                                       .latency_s = latency[(uint64_t)k * n / keep]};
                speeds_of(seen_speeds[a], s->speed);
            }
        }
    }
    return RU_OK;
}

/* The published terms: 1, N, then of each resource 1/speed, N/speed, (N/speed)^2; scaled. */
static uint32_t published_terms(uint32_t n, double clients, const double *speed, double *x)
{
    x[0] = 1;
    x[1] = clients / 40;
    for (uint32_t i = 0; i < n; i++) {
        double q = clients / speed[i] / 200;
        x[2 + 3 * i] = 0.2 / speed[i];
        x[3 + 3 * i] = q;
        x[4 + 3 * i] = q * q;
    }
    return 2 + 3 * n;
}

typedef struct rivals {
    const double *ours, *published, *mean;
} rivals;

static ru_status fit_all(ru_replay *r, const profile *p, rivals *fits, ru_err *err)
{
    const ru_burst_load load = {.think_s = THINK_S};
    RU_TRY(ru_burst_fit(p->r, p->n, &load, p->samples, p->m, 0.95, r->arena, r->arena, &fits->ours,
                        err));
    uint32_t width = 2 + 3 * p->n;
    double *a = RU_NEW(r->arena, double, (int64_t)p->m *width);
    double *b = RU_NEW(r->arena, double, p->m);
    if (a == NULL || b == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a fit");
    }
    for (uint32_t i = 0; i < p->m; i++) {
        (void)published_terms(p->n, p->samples[i].load, p->samples[i].speed, &a[i * width]);
        b[i] = p->samples[i].latency_s;
    }
    const ru_quantile_regress_in q = {.a = a, .b = b, .m = p->m, .n = width, .q = 0.95};
    ru_quantile_fit qf;
    RU_TRY(ru_quantile_regress(&q, r->arena, r->arena, &qf, err));
    const ru_lsq_in l = {.a = a, .b = b, .m = p->m, .n = width};
    ru_lsq_fit lf;
    RU_TRY(ru_lsq_solve(&l, r->arena, r->arena, &lf, err));
    fits->published = qf.x;
    fits->mean = lf.x;
    return RU_OK;
}

static double dot(const double *a, const double *b, uint32_t n)
{
    double s = 0;
    for (uint32_t i = 0; i < n; i++) {
        s += a[i] * b[i];
    }
    return s;
}

static double pinball(const double *v, uint32_t n, double at)
{
    double s = 0;
    for (uint32_t i = 0; i < n; i++) {
        double u = v[i] - at;
        s += u * (0.95 - (u < 0 ? 1 : 0));
    }
    return s / n;
}

typedef struct errors {
    double ours, published, mean;
    double loss_ours, loss_published, loss_mean;
    uint32_t n;
} errors;

static ru_status ask(ru_replay *r, const profile *p, const rivals *fits, double speed,
                     uint32_t clients, errors *e, ru_err *err)
{
    double *latency, truth, x[WIDTH_MAX], y[WIDTH_MAX], speeds[RU_BURST_RESOURCES_MAX];
    uint32_t n;
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    RU_TRY(simulate(r, p, speed, clients, 9000 + clients, r->quick ? 100 : 600, &latency, &n, err));
    RU_TRY(ru_quantile(latency, n, 0.95, RU_QUANTILE_LINEAR, r->arena, &truth, err));
    speeds_of(speed, speeds);
    const ru_burst_load load = {.clients = clients, .think_s = THINK_S};
    ru_queue_mean mean;
    (void)ru_burst_features(p->r, p->n, &load, speeds, x, &mean);
    uint32_t width = published_terms(p->n, clients, speeds, y);
    double ours = dot(fits->ours, x, ru_burst_features_n(p->n));
    double published = dot(fits->published, y, width), average = dot(fits->mean, y, width);
    e->ours += fabs(ours / truth - 1);
    e->published += fabs(published / truth - 1);
    e->mean += fabs(average / truth - 1);
    e->loss_ours += pinball(latency, n, ours);
    e->loss_published += pinball(latency, n, published);
    e->loss_mean += pinball(latency, n, average);
    e->n++;
    ru_arena_rewind(r->arena, mark);
    return RU_OK;
}

static ru_status rows(ru_replay *r, const char *name, const errors *e, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, "p95_relative_error", true);
    row.ours = e->ours / e->n;
    row.published = 0.1;
    row.goal = 0.1;
    ru_replay_baseline(r, &row, "published terms", e->published / e->n);
    ru_replay_baseline(r, &row, "mean regression", e->mean / e->n);
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "pinball_loss_s", true);
    row.ours = e->loss_ours / e->n;
    row.goal = e->loss_mean / e->n;
    ru_replay_baseline(r, &row, "published terms", e->loss_published / e->n);
    ru_replay_baseline(r, &row, "mean regression", e->loss_mean / e->n);
    return ru_replay_add(r, &row, err);
}

/* Share of windows of about a minute whose p95 is within the objective. */
static ru_status within(const double *latency, uint32_t n, uint32_t windows, double slo_s,
                        ru_arena *scratch, double *share, ru_err *err)
{
    *share = 0;
    for (uint32_t w = 0; w < windows; w++) {
        uint32_t from = (uint32_t)((uint64_t)w * n / windows);
        uint32_t to = (uint32_t)((uint64_t)(w + 1) * n / windows);
        double p95;
        RU_TRY(
            ru_quantile(&latency[from], to - from, 0.95, RU_QUANTILE_LINEAR, scratch, &p95, err));
        *share += p95 <= slo_s ? 1.0 / windows : 0;
    }
    return RU_OK;
}

/* Twenty clients for an hour of a machine with a full bucket: what throttling wins, simulated. */
static ru_status stretch(ru_replay *r, const profile *p, const double *model, const char *law,
                         ru_err *err)
{
    enum { CLIENTS = 20, MINUTES = 60 };
    const double slo_s = 1;
    ru_burst_resource machine = p->r[0];
    machine.now.earned = machine.rules.cap;
    const ru_burst_in in = {.resource = &machine,
                            .n = 1,
                            .load = {.clients = CLIENTS, .think_s = THINK_S},
                            .model = model,
                            .slo_s = slo_s,
                            .quantile = 0.95,
                            .margin = 0.1,
                            .gain_min = 0.02,
                            .reserve_s = 600,
                            .speed_min = 0.2,
                            .speeds = 9};
    ru_burst_plan plan;
    RU_TRY(ru_plan_burst(&in, &plan, err));
    RU_TRY(ru_plan_burst_check(&in, &plan, err));
    double *latency, *unused, empty[2], share;
    uint32_t n, n_full;
    RU_TRY(simulate(r, p, plan.speed[0], CLIENTS, 77, 60.0 * MINUTES, &latency, &n, err));
    RU_TRY(simulate(r, p, 1, CLIENTS, 77, 60.0 * MINUTES, &unused, &n_full, err));
    RU_TRY(within(latency, n, MINUTES, slo_s, r->arena, &share, err));
    empty[0] = ru_credit_empty_s(&machine.rules, &machine.now, n * machine.need / 60 / MINUTES);
    empty[1] =
        ru_credit_empty_s(&machine.rules, &machine.now, n_full * machine.need / 60 / MINUTES);
    char name[64], note[64];
    ru_text t = ru_text_into(name, sizeof name), o = ru_text_into(note, sizeof note);
    ru_text_putf(&t, "20 clients, %s service", law);
    ru_text_putf(&o, "speed %.2f", plan.speed[0]);
    ru_replay_row row = ru_replay_row_of(name, "burst_time_ratio", false);
    row.ours = empty[0] / empty[1];
    row.published = 2.4;
    row.goal = 2.4;
    row.note = note;
    ru_replay_baseline(r, &row, "full speed", 1);
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "minutes_within_objective", false);
    row.ours = share;
    row.goal = 0.95;
    return ru_replay_add(r, &row, err);
}

/* Requests at a rate of their own: what the policy costs them against full speed. */
static ru_status open_load(ru_replay *r, const profile *p, const double *model, const char *law,
                           ru_err *err)
{
    ru_burst_resource machine = p->r[0];
    machine.now.earned = machine.rules.cap;
    ru_burst_in in = {.resource = &machine,
                      .n = 1,
                      .load = {.open = true, .rate = 30},
                      .model = model,
                      .slo_s = 1,
                      .quantile = 0.95,
                      .margin = 0.1,
                      .gain_min = 0.02,
                      .reserve_s = 600,
                      .speed_min = 0.2,
                      .speeds = 9};
    double p95[2];
    for (uint32_t k = 0; k < 2; k++) {
        ru_burst_plan plan;
        in.method = k == 0 ? RU_BURST_MODEL : RU_BURST_HALF;
        RU_TRY(ru_plan_burst(&in, &plan, err));
        const ru_station s[2] = {{MEAN_S / plan.speed[0], 1}, {MEAN_S, 1}};
        double at[2];
        for (uint32_t j = 0; j < 2; j++) {
            const rui_loop_in loop = {.station = &s[j],
                                      .n = 1,
                                      .law = p->law,
                                      .rate = 30,
                                      .seed = 11,
                                      .warm_s = 20,
                                      .measure_s = 600};
            double *latency;
            uint32_t n;
            RU_TRY(rui_loop_run(&loop, r->arena, &latency, &n, err));
            RU_TRY(ru_quantile(latency, n, 0.95, RU_QUANTILE_LINEAR, r->arena, &at[j], err));
        }
        p95[k] = at[0] / at[1];
    }
    char name[64];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "open load, 30 requests/s, %s service", law);
    ru_replay_row row = ru_replay_row_of(name, "p95_over_full_speed", true);
    row.ours = p95[0];
    row.goal = 1.02;
    ru_replay_baseline(r, &row, "half speed", p95[1]);
    return ru_replay_add(r, &row, err);
}

ru_status rui_burst_model(ru_replay *r, ru_err *err)
{
    static const char *const laws[] = {"exponential", "even", "bursty"};
    const ru_burst_resource machine[2] = {
        {.rules = ru_credit_cpu(1, 6, 144, 0, false), .need = MEAN_S / 60, .servers = 1},
        {.rules = ru_credit_gp2(100), .need = MEAN_S * 3000 * 0.6, .servers = 1},
    };
    for (uint32_t n = 1; n <= 2; n++) {
        for (uint32_t law = 0; law < RU_ARRAY_LEN(laws); law++) {
            profile p = {.r = machine, .n = n, .law = (rui_loop_law)law};
            rivals fits;
            errors e = {0};
            RU_TRY(measure(r, &p, err));
            RU_TRY(fit_all(r, &p, &fits, err));
            for (uint32_t a = 0; a < RU_ARRAY_LEN(new_speeds); a++) {
                for (uint32_t b = 0; b < RU_ARRAY_LEN(new_clients); b++) {
                    RU_TRY(ask(r, &p, &fits, new_speeds[a], new_clients[b], &e, err));
                }
            }
            if (n == 1) {
                RU_TRY(stretch(r, &p, fits.ours, laws[law], err));
                RU_TRY(open_load(r, &p, fits.ours, laws[law], err));
            }
            char name[64];
            ru_text t = ru_text_into(name, sizeof name);
            ru_text_putf(&t, "%s service, %s, 16 unseen points", laws[law],
                         n == 1 ? "CPU" : "CPU and disk");
            RU_TRY(rows(r, name, &e, err));
        }
    }
    return RU_OK;
}
