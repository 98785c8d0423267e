/* Bids on four spot markets of 2016 from random starts: cost, its 95th percentile and run time of a
 * job by ours and every baseline, through cluster/market.h in the simulator's event queue. Counts
 * of evictions come from the week before each day (ours) or the month before all starts. First the
 * bound: what a job pays that knows all prices and loses no time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench/replay/replay.h"
#include "cluster/market.h"
#include "env/file/file.h"
#include "sim/sim.h"

enum { MARKETS = 4, DELTAS = 10, DAYS = 28, STARTS_MIN = 30, STARTS_MAX = 400, TICKS_MAX = 3000 };

static const char *const market_files[MARKETS] = {
    "m4.10xlarge_us-east-1a", "m4.10xlarge_us-east-1b", "m4.10xlarge_us-east-1c",
    "m4.4xlarge_us-east-1b"};
static const double cores[MARKETS] = {40, 40, 40, 16};
static const double on_demand[MARKETS] = {2.394, 2.394, 2.394, 0.958};
static const double deltas[DELTAS] = {0.0001, 0.001, 0.0025, 0.005, 0.01,
                                      0.02,   0.05,  0.1,    0.2,   0.4};
static const int64_t train_from_s = 1456444800, train_until_s = 1459036800,
                     test_until_s = 1461456000;
static const double job_work = 512, od_usd = 30.66;
static const int64_t minute_ns = 60LL * 1000000000;

typedef struct setup {
    ru_prices prices[MARKETS];
    ru_evict_law month[MARKETS][DELTAS];                           /* before the starts */
    ru_evict_law week[DAYS][MARKETS][RU_EVICT_STATES + 1][DELTAS]; /* before each day */
    int64_t starts[STARTS_MAX];
    uint32_t n_starts;
} setup;

typedef struct rule {
    const char *name;
    ru_bid_method method;
    uint32_t fixed;
    bool checkpoints, states;
    double step, reliable_usd;
} rule;

/* Every method with both caps on cores: the job's size, and twice it. */
static const double caps[] = {256, 512};

static const rule rules[] = {
    {"cycle", RU_BID_CYCLE, 0, false, true, 64, 0.627},
    {"standard+checkpoint", RU_BID_STANDARD, 0, true, false, 0, 0.627},
    {"standard+agileml", RU_BID_STANDARD, 0, false, false, 0, 0.627},
    {"bidbrain", RU_BID_BIDBRAIN, 0, false, false, 64, 0.627},
    {"fixed 0.0001", RU_BID_FIXED, 0, false, false, 64, 0.627},
    {"fixed 0.01", RU_BID_FIXED, 4, false, false, 64, 0.627},
    {"fixed 0.4", RU_BID_FIXED, 9, false, false, 64, 0.627},
    {"cycle, no states", RU_BID_CYCLE, 0, false, false, 64, 0.627},
    {"standard+checkpoint, no reliable", RU_BID_STANDARD, 0, true, false, 0, 0},
};

typedef struct result {
    double cost[STARTS_MAX], mean, p95, minutes, evictions, free;
} result;

/* Instants of the simulator are those of the job plus a minute: it begins later than 0. */
typedef struct drive {
    const setup *s;
    const rule *rule;
    double cap;
    ru_sim *sim;
    ru_market_job job;
    ru_arena arena, memory; /* memory: of effects */
    ru_effects fx;
    uint32_t feed[MARKETS]; /* first row of each */
    int64_t begin_s;
    bool evicted; /* since the last decision */
    ru_err err;
    ru_status failed;
} drive;

typedef struct feed {
    drive *d;
    uint32_t market;
} feed;

static int64_t sim_s(const drive *d)
{
    return d->begin_s + (ru_sim_now(d->sim).ns - minute_ns) / 1000000000;
}

static void stop(drive *d, ru_status st)
{
    d->failed = d->failed == RU_OK ? st : d->failed;
    ru_sim_stop(d->sim);
}

/* The job looks every minute, whatever its timer wants. */
static void step(drive *d, ru_event ev)
{
    ev.now = ru_sim_now(d->sim);
    ru_market_step(&d->job, &ev, &d->fx);
    for (uint32_t i = 0; i < d->fx.n; i++) {
        const ru_effect *e = &d->fx.at[i];
        bool gone = e->what == RU_MARKET_EVICTED || e->what == RU_MARKET_LEFT;
        d->evicted = d->evicted || (e->kind == RU_FX_LOCAL && gone);
    }
    ru_effects_clear(&d->fx);
}

static void bid(drive *d, ru_market_word word, ru_market_bid b)
{
    step(d, (ru_event){.kind = RU_EV_LOCAL, .what = word, .data = &b, .size_bytes = sizeof b});
}

static void obey(drive *d, const ru_bid_plan *p, const uint32_t *alloc)
{
    for (uint32_t k = 0; k < p->n; k++) {
        const ru_bid_action *a = &p->actions[k];
        if (a->act == RU_BID_ACQUIRE) {
            bid(d, RU_MARKET_ACQUIRE,
                (ru_market_bid){.market = a->market, .usd = a->bid_usd, .instances = a->instances});
        } else {
            uint32_t word = a->act == RU_BID_RENEW ? RU_MARKET_RENEW : RU_MARKET_RELEASE;
            step(d, (ru_event){.kind = RU_EV_LOCAL, .what = word, .value = alloc[a->held]});
        }
    }
}

/* Released allocations stay until their hour ends; their replacement gets ready meanwhile. */
static void decide(drive *d)
{
    const rule *r = d->rule;
    ru_bid_market m[MARKETS];
    int64_t day = (sim_s(d) - train_until_s) / 86400;
    day = day < DAYS ? day : DAYS - 1;
    ru_bid_held held[RU_MARKET_ALLOCS_MAX];
    for (uint32_t i = 0; i < MARKETS; i++) {
        uint32_t state = r->states ? ru_evict_state(&d->s->prices[i], sim_s(d)) : RU_EVICT_ALL;
        m[i] = (ru_bid_market){d->job.usd[i], on_demand[i], cores[i], false,
                               d->rule->method == RU_BID_CYCLE ? d->s->week[day][i][state]
                                                               : d->s->month[i]};
    }
    uint32_t n = 0, alloc[RU_MARKET_ALLOCS_MAX];
    for (uint32_t i = 0; i < d->job.n; i++) {
        const ru_market_alloc *a = &d->job.allocs[i];
        if (!a->leaving) {
            double left = (double)(a->hour_end.ns - d->job.now.ns) / 3600e9;
            held[n] = (ru_bid_held){a->market,   a->instances,           a->bid_usd,
                                    a->paid_usd, fmax(fmin(left, 1), 0), ru_market_due(&d->job, i)};
            alloc[n++] = i;
        }
    }
    const ru_bid_in in = {.markets = m,
                          .n_markets = MARKETS,
                          .deltas_usd = deltas,
                          .n_deltas = DELTAS,
                          .held = held,
                          .n_held = n,
                          .reliable_usd = r->reliable_usd,
                          .phi = 1,
                          .sigma_h = 2.0 / 60,
                          .lambda_h = 1.0 / 60,
                          .cap_work = d->cap,
                          .step_work = r->step,
                          .fractions = true,
                          .fixed = r->fixed,
                          .method = r->method};
    ru_bid_plan p;
    ru_arena_mark mark = ru_arena_mark_get(&d->arena);
    ru_status st = ru_plan_bid(&in, &d->arena, &d->arena, &p, &d->err);
    st = st != RU_OK ? st : ru_plan_bid_check(&in, &p, &d->err);
    if (st != RU_OK) {
        stop(d, st);
        return;
    }
    obey(d, &p, alloc);
    ru_arena_rewind(&d->arena, mark);
}

static void on_price(void *self, uint64_t k)
{
    feed *f = self;
    drive *d = f->d;
    double usd = d->s->prices[f->market].usd[d->feed[f->market] + k];
    bid(d, RU_MARKET_PRICE, (ru_market_bid){.market = f->market, .usd = usd});
    if (d->evicted && !d->job.done) { /* at once, not at the next tick */
        d->evicted = false;
        decide(d);
    }
}

static void on_tick(void *self, uint64_t k)
{
    drive *d = self;
    step(d, (ru_event){.kind = RU_EV_TIMER, .what = RU_MARKET_TIMER});
    bool due = false;
    for (uint32_t i = 0; i < d->job.n; i++) {
        due = due || ru_market_due(&d->job, i);
    }
    if (!d->job.done && (k % 2 == 0 || d->evicted || due)) {
        d->evicted = false;
        decide(d);
    }
    if (d->job.done) {
        ru_sim_stop(d->sim);
    } else {
        ru_sim_at(d->sim, (ru_time){(int64_t)(k + 2) * minute_ns}, on_tick, d, k + 1);
    }
}

static ru_status play(drive *d, int64_t *at_ns[MARKETS], ru_err *err)
{
    const rule *r = d->rule;
    ru_market_spec spec = {.n_markets = MARKETS,
                           .reliable_usd = r->reliable_usd,
                           .total_work = job_work,
                           .speed = r->checkpoints ? 1 / 1.17 : 1,
                           .sigma_ns = 2 * minute_ns,
                           .lambda_ns = (r->checkpoints ? 4 : 1) * minute_ns,
                           .lost_ns = r->checkpoints ? 5 * minute_ns : 0,
                           .notice_ns = 2 * minute_ns};
    memcpy(spec.work, cores, sizeof cores);
    memcpy(spec.on_demand_usd, on_demand, sizeof on_demand);
    RU_TRY(ru_market_init(&d->job, &spec, (ru_time){minute_ns}, err));
    RU_TRY(ru_sim_open(&(ru_sim_options){.seed = 1}, &d->sim, err));
    feed feeds[MARKETS];
    for (uint32_t i = 0; i < MARKETS; i++) {
        const ru_prices *p = &d->s->prices[i];
        uint32_t first = ru_prices_row(p, d->begin_s), n = 0;
        feeds[i] = (feed){d, i};
        d->feed[i] = first;
        for (uint32_t k = first; k < p->n && p->at_s[k] < d->begin_s + TICKS_MAX * 60; k++) {
            int64_t s = p->at_s[k] - d->begin_s;
            at_ns[i][n++] = (s > 0 ? s : 0) * 1000000000 + minute_ns;
        }
        ru_sim_feed(d->sim, at_ns[i], n, on_price, &feeds[i]);
    }
    ru_sim_at(d->sim, (ru_time){minute_ns}, on_tick, d, 0);
    ru_status st = ru_sim_run(d->sim, (ru_time){TICKS_MAX * minute_ns}, err);
    if (st == RU_OK && d->failed != RU_OK) {
        st = RU_FAIL(err, d->failed, "%s", d->err.text);
    }
    ru_sim_close(d->sim);
    return st;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ru_status run_rule(ru_replay *r, const setup *s, const rule *by, double cap, result *out,
                          ru_err *err)
{
    drive *d = RU_NEW(r->arena, drive, 1);
    int64_t *at_ns[MARKETS];
    bool full = d == NULL;
    for (uint32_t i = 0; i < MARKETS; i++) {
        at_ns[i] = RU_NEW(r->arena, int64_t, s->prices[i].n);
        full = full || at_ns[i] == NULL;
    }
    if (full) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a replay of prices");
    }
    memset(out, 0, sizeof *out);
    double service = 0, free_h = 0;
    for (uint32_t k = 0; k < s->n_starts; k++) {
        memset(d, 0, sizeof *d);
        d->s = s;
        d->rule = by;
        d->cap = cap;
        d->begin_s = s->starts[k];
        ru_arena_init(&d->arena, 0);
        ru_arena_init(&d->memory, 0);
        ru_effects_init(&d->fx, &d->memory);
        ru_status st = play(d, at_ns, err);
        ru_arena_fini(&d->memory);
        ru_arena_fini(&d->arena);
        RU_TRY(st);
        out->cost[k] = ru_market_cost(&d->job) / od_usd * 100;
        out->mean += out->cost[k] / s->n_starts;
        out->minutes += (double)(d->job.now.ns - minute_ns) / (double)minute_ns / s->n_starts;
        out->evictions += (double)d->job.evictions / s->n_starts;
        service += d->job.service_h;
        free_h += d->job.free_h;
    }
    qsort(out->cost, s->n_starts, sizeof *out->cost, by_value);
    out->p95 = out->cost[(s->n_starts * 95 + 99) / 100 - 1];
    out->free = 100 * free_h / service;
    return RU_OK;
}

/* A minute is free where a later price within the hour is above the price now: who knows that bids
 * between them. Else it belongs to an hour that began at one of the prices of the last hour. */
static double minute_usd(const ru_prices *p, int64_t s)
{
    uint32_t row = ru_prices_row(p, s);
    for (uint32_t k = row + 1; k < p->n && p->at_s[k] <= s + 3600; k++) {
        if (p->usd[k] > p->usd[row] + 1e-9) {
            return 0;
        }
    }
    double least = p->usd[row];
    for (uint32_t k = row; k > 0 && p->at_s[k] > s - 3600; k--) {
        least = fmin(least, p->usd[k - 1]);
    }
    return least;
}

/* Least cost of the job from one start: the cheapest minutes that suffice at the cap among the
 * first T and T minutes of reliable machines, for the best T. No overheads. */
static double clairvoyant(const setup *s, int64_t start_s, double cap)
{
    enum { LONGEST = 240, BUSY_MAX = 120 };
    double best = (double)INFINITY, cheapest[BUSY_MAX];
    const uint32_t busy = (uint32_t)(60 * job_work / cap);
    for (uint32_t t = 0; t < LONGEST; t++) {
        double usd = (double)INFINITY; /* a core-hour */
        for (uint32_t m = 0; m < MARKETS; m++) {
            usd = fmin(usd, minute_usd(&s->prices[m], start_s + 60 * (int64_t)t) / cores[m]);
        }
        uint32_t n = t < busy ? t : busy - 1, at = n; /* rising; the last one makes room */
        if (t >= busy && usd >= cheapest[busy - 1]) {
            at = busy;
        }
        for (; at < busy && at > 0 && cheapest[at - 1] > usd; at--) {
            cheapest[at] = cheapest[at - 1];
        }
        if (at < busy) {
            cheapest[at] = usd;
        }
        double sum = 0;
        for (uint32_t k = 0; k < busy; k++) {
            sum += t + 1 >= busy ? cheapest[k] : 0;
        }
        if (t + 1 >= busy) {
            best = fmin(best, 0.627 * (t + 1) / 60 + sum / busy * job_work);
        }
    }
    return best / od_usd * 100;
}

static ru_status read_prices(ru_replay *r, const char *path, ru_prices *out, ru_err *err)
{
    char *text;
    int64_t size;
    RU_TRY(ru_file_read(path, 0, r->arena, &text, &size, err));
    return ru_prices_parse(path, ru_str_n(text, size), r->arena, out, err);
}

/* Every row of eviction-reference.tsv: trace, from, until, delta, starts, evicted, chance, median.
 */
static ru_status reference(ru_replay *r, const char *dir, ru_err *err)
{
    char *text;
    int64_t size;
    const char *path = ru_arena_printf(r->arena, "%s/eviction-reference.tsv", dir);
    RU_TRY(ru_file_read(path, 0, r->arena, &text, &size, err));
    ru_str all = ru_str_n(text, size), line, f[8] = {{0}}, last = {0};
    ru_prices p = {0};
    uint32_t wrong = 0, n = 0;
    ru_str_next(&all, '\n', &line);
    for (; ru_str_next(&all, '\n', &line) && line.n > 0; n++) {
        for (uint32_t k = 0; k < 8; k++) {
            f[k] = (ru_str){0};
            ru_str_next(&line, '\t', &f[k]);
        }
        if (!ru_str_eq(f[0], last)) {
            path = ru_arena_printf(r->arena, "%s/%.*s", dir, RU_STR_ARG(f[0]));
            RU_TRY(read_prices(r, path, &p, err));
            last = f[0];
        }
        int64_t from, until, starts, evicted, median = 0;
        double delta;
        if (!ru_str_i64(f[1], &from) || !ru_str_i64(f[2], &until) || !ru_str_f64(f[3], &delta) ||
            !ru_str_i64(f[4], &starts) || !ru_str_i64(f[5], &evicted) ||
            (f[7].n > 0 && !ru_str_i64(f[7], &median))) {
            return RU_FAIL(err, RU_E_DATA, "eviction-reference.tsv:%u: not 8 fields", n + 2);
        }
        ru_evict_law l;
        RU_TRY(ru_evict_count(&p, from, until, delta, RU_EVICT_ALL, r->arena, &l, err));
        wrong += l.n_starts != starts || l.evicted[RU_EVICT_MINUTES] != evicted ||
                 l.median_s != (double)median;
    }
    ru_replay_row row = ru_replay_row_of("counts of evictions", "rows_that_differ", true);
    row.ours = wrong;
    row.goal = 0;
    row.note = ru_arena_printf(r->arena, "%u rows: starts, evicted, median", n);
    return ru_replay_add(r, &row, err);
}

/* As plan/fleet/bid_policy.c counts: a state with few starts takes the counts of all. */
static ru_status week_before(ru_replay *r, setup *s, uint32_t market, uint32_t day, ru_err *err)
{
    int64_t end = train_until_s + 86400 * (int64_t)day, from = end - 7 * 86400;
    for (uint32_t d = 0; d < DELTAS; d++) {
        ru_evict_law *all = &s->week[day][market][RU_EVICT_ALL][d];
        RU_TRY(ru_evict_count(&s->prices[market], from, end, deltas[d], RU_EVICT_ALL, r->arena, all,
                              err));
        for (uint32_t state = 0; state < RU_EVICT_STATES; state++) {
            ru_evict_law *l = &s->week[day][market][state][d];
            ru_err none;
            if (ru_evict_count(&s->prices[market], from, end, deltas[d], state, r->arena, l,
                               &none) != RU_OK ||
                l->n_starts < STARTS_MIN) {
                *l = *all;
            }
        }
    }
    return RU_OK;
}

static ru_status prepare(ru_replay *r, const char *dir, setup *s, ru_err *err)
{
    for (uint32_t i = 0; i < MARKETS; i++) {
        const char *path = ru_arena_printf(r->arena, "%s/2016/%s.txt", dir, market_files[i]);
        RU_TRY(read_prices(r, path, &s->prices[i], err));
        for (uint32_t d = 0; d < DELTAS; d++) {
            RU_TRY(ru_evict_count(&s->prices[i], train_from_s, train_until_s, deltas[d],
                                  RU_EVICT_ALL, r->arena, &s->month[i][d], err));
        }
        for (uint32_t day = 0; day < DAYS; day++) {
            RU_TRY(week_before(r, s, i, day, err));
        }
    }
    ru_rng rng = ru_rng_from(2016, 1);
    s->n_starts = r->quick ? 40 : STARTS_MAX;
    for (uint32_t k = 0; k < s->n_starts; k++) {
        uint32_t minutes = (uint32_t)((test_until_s - train_until_s) / 60) - 1440;
        s->starts[k] = train_until_s + 60 * (int64_t)ru_rng_below(&rng, minutes);
    }
    return RU_OK;
}

enum { RULES = RU_ARRAY_LEN(rules), CAPS = RU_ARRAY_LEN(caps) };

/* All methods with one cap; `half`: those with the job's size as cap, for the published row. */
static ru_status rows_of(ru_replay *r, double cap, double bound, const result *out,
                         const result *half, ru_err *err)
{
    const result *ours = &out[0], *checkpoint = &out[1], *agile = &out[2];
    bool twice = out != half;
    const char *all = ru_arena_printf(r->arena, "4 m4 markets, all with %g cores", cap);
    const char *published = "4 m4 markets, cycle with 512 cores, standard with 256";
    ru_replay_row rows[] = {
        ru_replay_row_of(all, "cost_percent_of_on_demand", true),
        ru_replay_row_of(all, "p95_cost_percent_of_on_demand", true),
        ru_replay_row_of(all, "cost_percent_of_standard_checkpoint", true),
        ru_replay_row_of(all, "run_time_min", true),
        ru_replay_row_of(all, "evictions", true),
        ru_replay_row_of(all, "service_refunded_percent", false),
        ru_replay_row_of(published, "cost_percent_of_standard_checkpoint", true),
        ru_replay_row_of(published, "run_time_percent_of_standard_checkpoint", true)};
    rows[0].goal = twice ? 18 : 22;
    rows[1].goal = agile->p95;
    rows[2].goal = 65;
    rows[6].goal = 57;
    rows[7].goal = 60;
    rows[0].published = twice ? 15 : RU_NAN;
    rows[6].published = 57;
    rows[7].published = 63;
    rows[5].published = twice ? 32 : RU_NAN;
    rows[0].bound = bound;
    rows[0].note =
        ru_arena_printf(r->arena, "%.1f points above the clairvoyant bound", ours->mean - bound);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows) - (twice ? 0 : 2); k++) {
        const result *base = k >= 6 ? &half[1] : checkpoint;
        for (uint32_t i = 0; i < RULES; i++) {
            const double v[] = {out[i].mean,
                                out[i].p95,
                                100 * out[i].mean / base->mean,
                                out[i].minutes,
                                out[i].evictions,
                                out[i].free,
                                100 * out[i].mean / base->mean,
                                100 * out[i].minutes / base->minutes};
            if (i == 0) {
                rows[k].ours = v[k];
            } else if (k < 6) {
                ru_replay_baseline(r, &rows[k], rules[i].name, v[k]);
            }
        }
        if (k == 0) {
            ru_replay_baseline(r, &rows[k], "on-demand", 100);
        }
        RU_TRY(ru_replay_add(r, &rows[k], err));
    }
    return RU_OK;
}

ru_status rui_replay_bid(ru_replay *r, ru_err *err)
{
    const char *dir = ru_replay_data(r, "spot-prices");
    if (dir == NULL) {
        return RU_OK;
    }
    RU_TRY(reference(r, dir, err));
    setup *s = RU_NEW(r->arena, setup, 1);
    result *out = RU_NEW(r->arena, result, (int64_t)RULES * CAPS);
    if (s == NULL || out == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %d starts", STARTS_MAX);
    }
    RU_TRY(prepare(r, dir, s, err));
    for (uint32_t c = 0; c < CAPS; c++) {
        double bound = 0;
        for (uint32_t k = 0; k < s->n_starts; k++) {
            bound += clairvoyant(s, s->starts[k], caps[c]) / s->n_starts;
        }
        for (uint32_t k = 0; k < RULES; k++) {
            ru_arena_mark mark = ru_arena_mark_get(r->arena);
            RU_TRY(run_rule(r, s, &rules[k], caps[c], &out[c * RULES + k], err));
            ru_arena_rewind(r->arena, mark);
        }
        RU_TRY(rows_of(r, caps[c], bound, &out[c * RULES], out, err));
    }
    return RU_OK;
}
