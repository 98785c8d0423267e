/* A fleet for a day of 24 hourly rates: decided hour by hour, and every ten minutes with machines
 * that are billed by the second (aws-billing); every machine's credits run exactly;
 * beside regular fleets, T3 unlimited, a linear program that knows the whole day, and a bound for
 * whole machines.
 *
 * Prices: on-demand Linux in us-east-1 (aws-prices). A vCPU is a queue of its own with exponential
 * service, so its tail is known: p95 = ln 20 / (1 / service - rate). */
#include <math.h>
#include <string.h>

#include "bench/replay/fleet/replay_burst.h"
#include "bench/replay/replay_csv.h"
#include "bench/replay/replay_loop.h"
#include "cost/math/quantile.h"
#include "plan/fleet/burst_fleet.h"
#include "solve/solver.h"

#define SLO_S  0.5
#define HOUR_S 3600.0
#define LN20   2.995732273553991

enum {
    HOURS = 24,
    PERIODS_MAX = 6 * HOURS,
    TYPES = 6,
    T3_SMALL = 4,
    C5 = 5,
    LAUNCHES = 100,
    LIVE_MAX = 512
};

typedef struct day {
    double rate[HOURS];
    double service_s; /* of a request on one vCPU */
    ru_burst_type type[TYPES];
    uint32_t vcpus[TYPES];
} day;

static void types_of(day *d)
{
    static const struct {
        const char *name;
        uint32_t vcpus;
        double per_h, cap, launch, usd;
    } all[TYPES] = {
        {"t2.nano", 1, 3, 72, 30, 0.0058},   {"t2.micro", 1, 6, 144, 30, 0.0116},
        {"t2.small", 1, 12, 288, 30, 0.023}, {"t3.micro", 2, 12, 288, 0, 0.0104},
        {"t3.small", 2, 24, 576, 0, 0.0208}, {"c5.large", 2, 120, 2880, 0, 0.085},
    };
    for (uint32_t t = 0; t < TYPES; t++) {
        /* One vCPU serves so many that its p95 keeps 90 % of the objective. */
        double rate = 1 / d->service_s - LN20 / (0.9 * SLO_S);
        d->vcpus[t] = all[t].vcpus;
        d->type[t] = (ru_burst_type){
            .name = all[t].name,
            .rules = ru_credit_cpu(all[t].vcpus, all[t].per_h, all[t].cap, all[t].launch, true),
            .usd_per_h = all[t].usd,
            .rate_max = all[t].vcpus * rate,
            .need = d->service_s / 60,
        };
    }
}

typedef struct outcome {
    double usd;  /* of the day */
    double late; /* periods in which a machine ran out of credits */
    uint32_t launches;
} outcome;

/* So many decisions an hour. */
static ru_status play(ru_replay *r, const day *d, uint32_t an_hour, outcome *out, ru_err *err)
{
    ru_burst_machine live[LIVE_MAX];
    uint32_t n = 0;
    double period_s = HOUR_S / an_hour;
    *out = (outcome){0};
    for (uint32_t k = 0; k < HOURS * an_hour; k++) {
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        const ru_burst_fleet_in in = {
            d->type, TYPES, live, n, d->rate[k / an_hour], period_s, LAUNCHES - out->launches};
        ru_burst_fleet_plan p;
        RU_TRY(ru_plan_burst_fleet(&in, r->arena, r->arena, &p, err));
        RU_TRY(ru_plan_burst_fleet_check(&in, &p, err));
        RU_CHECK(p.n <= LIVE_MAX);
        bool late = false;
        for (uint32_t i = 0; i < p.n; i++) {
            const ru_burst_type *t = &d->type[p.machine[i].type];
            live[i] = p.machine[i];
            out->launches += p.from[i] == UINT32_MAX && t->rules.launch > 0 ? 1 : 0;
            double want = p.rate[i] * t->need;
            late = late || ru_credit_run(&t->rules, &live[i].now, want, period_s) <
                               want * period_s * (1 - 1e-9);
        }
        n = p.n;
        out->usd += p.usd;
        out->late += late ? 1 : 0;
        ru_arena_rewind(r->arena, mark);
    }
    return RU_OK;
}

/* Pools of credits instead of machines, fractions of machines, the whole day known: no fleet is
 * cheaper. */
static ru_status bound(ru_replay *r, const day *d, uint32_t an_hour, double *usd, ru_err *err)
{
    ru_milp_builder b = ru_milp_build(r->arena);
    uint32_t n[TYPES][PERIODS_MAX], start[TYPES][PERIODS_MAX], work[TYPES][PERIODS_MAX],
        pool[TYPES][PERIODS_MAX];
    double period_s = HOUR_S / an_hour;
    for (uint32_t t = 0; t < TYPES; t++) {
        const ru_burst_type *k = &d->type[t];
        for (uint32_t h = 0; h < HOURS * an_hour; h++) {
            n[t][h] = ru_milp_col(&b, k->usd_per_h / an_hour, 0, INFINITY, false);
            start[t][h] = ru_milp_col(&b, 0, 0, INFINITY, false);
            work[t][h] = ru_milp_col(&b, 0, 0, INFINITY, false); /* requests per second */
            pool[t][h] = ru_milp_col(&b, 0, 0, INFINITY, false); /* tokens at the end */
            ru_milp_row(&b, 0, INFINITY);                        /* who runs ran before or starts */
            ru_milp_term(&b, start[t][h], 1);
            ru_milp_term(&b, n[t][h], -1);
            if (h > 0) {
                ru_milp_term(&b, n[t][h - 1], 1);
            }
            ru_milp_row(&b, 0, INFINITY); /* who starts runs for a period */
            ru_milp_term(&b, n[t][h], 1);
            ru_milp_term(&b, start[t][h], -1);
            ru_milp_row(&b, 0, INFINITY);
            ru_milp_term(&b, n[t][h], k->rate_max);
            ru_milp_term(&b, work[t][h], -1);
            ru_milp_row(&b, 0, INFINITY);
            ru_milp_term(&b, n[t][h], k->rules.earn * period_s);
            ru_milp_term(&b, start[t][h], k->rules.launch);
            ru_milp_term(&b, work[t][h], -k->need * period_s);
            ru_milp_term(&b, pool[t][h], -1);
            if (h > 0) {
                ru_milp_term(&b, pool[t][h - 1], 1);
            }
        }
    }
    for (uint32_t h = 0; h < HOURS * an_hour; h++) {
        ru_milp_row(&b, d->rate[h / an_hour], INFINITY);
        for (uint32_t t = 0; t < TYPES; t++) {
            ru_milp_term(&b, work[t][h], 1);
        }
    }
    ru_milp_row(&b, -INFINITY, LAUNCHES);
    for (uint32_t t = 0; t < TYPES; t++) {
        for (uint32_t h = 0; h < HOURS * an_hour && d->type[t].rules.launch > 0; h++) {
            ru_milp_term(&b, start[t][h], 1);
        }
    }
    ru_milp p;
    RU_TRY(ru_milp_done(&b, false, &p, err));
    const ru_solve_in in = {.milp = &p};
    ru_solution s;
    RU_TRY(ru_solver_library.lp(&in, r->arena, &s, err));
    *usd = s.end == RU_SOLVE_OPTIMAL ? s.bound : RU_NAN;
    return RU_OK;
}

/* What a machine gives in its first hour. */
static double block(const ru_burst_type *t)
{
    return fmin(t->rate_max, (t->rules.earn + t->rules.launch / HOUR_S) / t->need);
}

static double least_usd(const day *d, uint32_t type, double rate, double per_rate)
{
    if (type == TYPES || rate <= 0) {
        return fmax(0, rate) * per_rate;
    }
    const ru_burst_type *t = &d->type[type];
    double gives = block(t), best = INFINITY;
    for (double n = 0; n == 0 || (n - 1) * gives < rate; n++) {
        best = fmin(best, n * t->usd_per_h + least_usd(d, type + 1, rate - n * gives, per_rate));
    }
    return best;
}

/* Whole machines, the whole day known, any number of launches: no fleet is cheaper.
 *
 * Let credits beyond the launch credits a have the price c = usd / earn of an hour, g(level) =
 * c max(0, level - a). Over a machine's life the sum of g(before) - g(after) is at most 0, so its
 * cost is at least the sum over its hours of usd + g(before) - g(after). An hour that uses s is
 * then worth at least c s for s <= earn, usd for s <= a + earn, and usd + c (s - a - earn) beyond:
 * hours are independent, and each is covered by whole blocks of a + earn for usd and by the rest at
 * the least c. A machine that cannot use more than it earns stores nothing of use: c = 0. */
static double whole_bound(const day *d)
{
    double per_rate = INFINITY, usd = 0;
    for (uint32_t t = 0; t < TYPES; t++) {
        const ru_burst_type *k = &d->type[t];
        double per_s = k->rules.earn / k->need;
        per_rate = per_s < k->rate_max ? fmin(per_rate, k->usd_per_h / per_s) : per_rate;
    }
    for (uint32_t h = 0; h < HOURS; h++) {
        usd += least_usd(d, 0, d->rate[h], per_rate);
    }
    return usd;
}

static double peak(const day *d)
{
    double most = 0;
    for (uint32_t h = 0; h < HOURS; h++) {
        most = fmax(most, d->rate[h]);
    }
    return most;
}

/* T3 without a policy: as many as the peak needs, surplus above what a day earns is billed. */
static double unlimited(const day *d)
{
    ru_burst_type t = d->type[T3_SMALL];
    t.rules.unlimited = true;
    double n = ceil(peak(d) / t.rate_max), usd = 0;
    ru_credit c = ru_credit_launch(&t.rules);
    for (uint32_t h = 0; h < HOURS; h++) {
        (void)ru_credit_run(&t.rules, &c, d->rate[h] / n * t.need, HOUR_S);
        usd += n * t.usd_per_h;
    }
    ru_credit_stop(&t.rules, &c, 0);
    return usd + n * c.billed * 0.05 / 60;
}

/* NaN without the library. */
static ru_status program(ru_replay *r, const day *d, uint32_t an_hour, double *usd, ru_err *err)
{
    ru_status st = bound(r, d, an_hour, usd, err);
    *usd = st == RU_OK ? *usd : RU_NAN;
    return st == RU_E_UNSUPPORTED ? RU_OK : st;
}

/* Without the policy, USD per day: the cheapest regular type (c5.large is the only one here) as
 * the peak needs it, and hour by hour as the rate does; T3 unlimited. */
typedef struct regular {
    double peak, by_hour, unlimited;
} regular;

/* `low`: the program's cost of hourly decisions, `bounded`: the bound of these. */
static ru_status rows(ru_replay *r, const outcome *o, const regular *g, const char *name,
                      double low, double bounded, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, "usd_per_day", true);
    char note[160];
    ru_text t = ru_text_into(note, sizeof note);
    ru_text_putf(&t, "%u launches; %g periods short of credits", o->launches, o->late);
    row.note = note;
    row.ours = o->usd;
    row.bound = bounded;
    row.goal = 0.5 * g->peak;
    ru_replay_baseline(r, &row, "c5.large for the peak", g->peak);
    ru_replay_baseline(r, &row, "c5.large by the hour", g->by_hour);
    ru_replay_baseline(r, &row, "t3.small unlimited", g->unlimited);
    ru_replay_baseline(r, &row, "linear program", low);
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "over_the_linear_program", true);
    row.ours = o->usd / low;
    row.bound = bounded / low;
    row.goal = 1.1;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "over_regular_machines_by_the_hour", true);
    row.ours = o->usd / g->by_hour;
    row.bound = bounded / g->by_hour;
    row.goal = 0.5;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "periods_short_of_credits", true);
    row.ours = o->late;
    row.goal = 0;
    return ru_replay_add(r, &row, err);
}

static ru_status one(ru_replay *r, day *d, const char *name, ru_err *err)
{
    enum { OFTEN = 6 };
    double low, low_often, whole;
    outcome o, often;
    types_of(d);
    RU_TRY(play(r, d, 1, &o, err));
    RU_TRY(play(r, d, OFTEN, &often, err));
    RU_TRY(program(r, d, 1, &low, err));
    RU_TRY(program(r, d, OFTEN, &low_often, err));
    whole = whole_bound(d);
    RU_CHECK(o.usd >= whole * (1 - 1e-9));
    const ru_burst_type *c5 = &d->type[C5];
    regular g = {HOURS * c5->usd_per_h * ceil(peak(d) / c5->rate_max), 0, unlimited(d)};
    for (uint32_t h = 0; h < HOURS; h++) {
        g.by_hour += c5->usd_per_h * ceil(d->rate[h] / c5->rate_max);
    }
    RU_TRY(rows(r, &o, &g, name, low, fmax(low, whole), err));
    return rows(r, &often, &g, ru_arena_printf(r->arena, "%s, every 10 minutes", name), low,
                low_often, err);
}

/* The rate that is taken to keep the objective, request by request. */
static ru_status tail(ru_replay *r, const day *d, ru_err *err)
{
    const ru_station s = {d->service_s, 1};
    const rui_loop_in in = {.station = &s,
                            .n = 1,
                            .law = RUI_LOOP_EXPONENTIAL,
                            .rate = d->type[0].rate_max,
                            .seed = 5,
                            .warm_s = 20,
                            .measure_s = 3000};
    double *latency, p95;
    uint32_t n;
    RU_TRY(rui_loop_run(&in, r->arena, &latency, &n, err));
    RU_TRY(ru_quantile(latency, n, 0.95, RU_QUANTILE_LINEAR, r->arena, &p95, err));
    ru_replay_row row = ru_replay_row_of("fleet, a vCPU at its largest rate", "p95_s", true);
    row.ours = p95;
    row.goal = SLO_S;
    return ru_replay_add(r, &row, err);
}

ru_status rui_burst_fleet(ru_replay *r, ru_err *err)
{
    rui_csv csv;
    RU_TRY(rui_csv_read(ru_replay_data(r, "serving/batch_map2_hourly.csv"), r->arena, &csv, err));
    static const double vcpus[] = {1, 2, 3, 4, 5, 6, 8};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(vcpus); k++) {
        day d = {0};
        double mean = 0;
        for (uint32_t i = 0; i < csv.n; i++) {
            double hour = rui_csv_f64(&csv, i, 1);
            if (strcmp(rui_csv_text(&csv, i, 0), "Twitter") == 0 && hour >= 1 && hour <= HOURS) {
                d.rate[(uint32_t)hour - 1] = rui_csv_f64(&csv, i, 10);
                mean += rui_csv_f64(&csv, i, 10) / HOURS;
            }
        }
        /* Requests as given would need other machines: rates are scaled. */
        d.service_s = 0.02;
        for (uint32_t h = 0; h < HOURS; h++) {
            d.rate[h] *= vcpus[k] / d.service_s / mean;
        }
        char name[64];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "fleet, Twitter day, %g vCPU on average", vcpus[k]);
        RU_TRY(one(r, &d, name, err));
        if (k == 0) {
            RU_TRY(tail(r, &d, err));
        }
    }
    return RU_OK;
}
