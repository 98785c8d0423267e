/* The row of `bid` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>
#include <string.h>

#include "plan/fleet/bid.h"
#include "plan/row/policy.h"

typedef struct market_file {
    const char *name;
    ru_conf_i64s at;
    ru_conf_f64s usd;
    double on_demand_usd, work;
    bool closed;
} market_file;

typedef struct held_file {
    uint32_t market;
    double instances, bid_usd, paid_usd;
    int64_t left_ns;
    bool due;
} held_file;

/* The planner's input comes first; markets and allocations follow from the file's, with fixed,
 * sigma_h and lambda_h. */
typedef struct bid_file {
    ru_bid_in q;
    RU_SECTIONS(market_file) markets;
    RU_SECTIONS(held_file) held;
    double delta;
    int64_t sigma_ns, lambda_ns, window_ns;
    bool states;
} bid_file;
_Static_assert(offsetof(bid_file, q) == 0, "rows name fields of q");

static const char *const act_names[] = {"acquire", "renew", "release"};

static const ru_conf_field market_fields[] = {
    RU_ROW(TEXT, market_file, name, "", "name of the market in the plan; empty: its number"),
    RU_ROW(I64_LIST, market_file, at, NULL,
           "time of each price change in seconds, ascending; together more than an hour",
           RU_IN(0, 1e12)),
    RU_ROW(F64_LIST, market_file, usd, NULL,
           "price of an instance-hour after each change; the last one is the price now",
           RU_OVER(0, 1e6)),
    RU_ROW_AS("on_demand", F64, market_file, on_demand_usd, "0",
              "on-demand price of an instance-hour; 0: the highest price of the history",
              RU_IN(0, 1e6)),
    RU_ROW(F64, market_file, work, "1",
           "work of an instance in an hour: measured samples, or its number of cores",
           RU_OVER(0, 1e12)),
    RU_ROW(BOOL, market_file, closed, "false",
           "true: acquire nothing in this market, because it has no capacity or its prices are "
           "too old"),
};

static const ru_conf_table market_table =
    RU_TABLE("market", market_file, market_fields, "one market with its price history");

static const ru_conf_field held_fields[] = {
    RU_ROW(U32, held_file, market, NULL, "index of the market, from 0",
           RU_IN(0, RU_BID_MARKETS_MAX)),
    RU_ROW(F64, held_file, instances, NULL, "number of instances of the allocation",
           RU_OVER(0, 1e9)),
    RU_ROW_AS("bid", F64, held_file, bid_usd, "0", "bid for an instance-hour; 0: bought on demand",
              RU_IN(0, 1e6)),
    RU_ROW_AS("paid", F64, held_file, paid_usd, NULL, "price of the current hour", RU_IN(0, 1e6)),
    RU_ROW_AS("left", TIME, held_file, left_ns, "0s", "time left in the current hour",
              RU_IN(0, 3600e9)),
    RU_ROW(BOOL, held_file, due, "false",
           "true: the hour ends now, so the allocation must be renewed or released"),
};

static const ru_conf_table held_table =
    RU_TABLE("held", held_file, held_fields, "one allocation that runs");

static ru_status check_file(const void *section, ru_err *err)
{
    const bid_file *f = section;
    const market_file *m = f->markets.at;
    const held_file *h = f->held.at;
    if (f->markets.n < 1 || f->markets.n > RU_BID_MARKETS_MAX || f->held.n > RU_BID_HELD_MAX) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'markets' has %u entries, expected 1 to %d; 'held' has %u, expected at most %d",
            f->markets.n, RU_BID_MARKETS_MAX, f->held.n, RU_BID_HELD_MAX);
    }
    for (uint32_t i = 0; i < f->markets.n; i++) {
        if (m[i].at.n != m[i].usd.n || m[i].at.n < 2 ||
            m[i].at.at[m[i].at.n - 1] - m[i].at.at[0] <= 3600) {
            return RU_FAIL(err, RU_E_ARG,
                           "markets[%u] has %u times and %u prices; expected equal numbers that "
                           "cover more than an hour",
                           i, m[i].at.n, m[i].usd.n);
        }
        ru_err why;
        if (ru_prices_check(&(ru_prices){m[i].at.at, m[i].usd.at, m[i].at.n}, &why) != RU_OK) {
            return RU_FAIL(err, RU_E_ARG, "markets[%u]: %s", i, why.text);
        }
    }
    for (uint32_t i = 0; i < f->held.n; i++) {
        const market_file *k = h[i].market < f->markets.n ? &m[h[i].market] : NULL;
        bool safe = !(h[i].bid_usd > 0);
        if (k == NULL || (!safe && k->usd.at[k->usd.n - 1] > h[i].bid_usd + 1e-9)) {
            return RU_FAIL(
                err, RU_E_ARG,
                "held[%u]: market %u must be one of the %u markets, and its price at most the bid",
                i, h[i].market, f->markets.n);
        }
    }
    bool found = f->q.n_deltas >= 1 && f->q.n_deltas <= RU_BID_DELTAS_MAX;
    for (uint32_t d = 1; found && d < f->q.n_deltas; d++) {
        found = f->q.deltas_usd[d] > f->q.deltas_usd[d - 1];
    }
    if (!found) {
        return RU_FAIL(err, RU_E_ARG, "'deltas' must be 1 to %d rising numbers", RU_BID_DELTAS_MAX);
    }
    if (f->q.step_work > 0 && f->q.cap_work / f->q.step_work > RU_BID_ACQUIRE_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'cap' is more than %d times 'step'", RU_BID_ACQUIRE_MAX);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, bid_file, markets, NULL, "spot markets", .table = &market_table),
    RU_ROW(SECTIONS, bid_file, held, "[]", "running allocations", .table = &held_table),
    RU_ROW_AS("deltas", F64_LIST, ru_bid_in, deltas_usd,
              "[0.0001, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4]",
              "candidate bids in USD above the current price, ascending", RU_IN(0, 1e6)),
    RU_ROW_AS("reliable", F64, ru_bid_in, reliable_usd, "0",
              "cost per hour of the machines that always run [USD]", RU_IN(0, 1e9)),
    RU_ROW(F64, ru_bid_in, phi, "1",
           "scalability: fraction of its work that an added instance contributes to the job",
           RU_OVER(0, 1)),
    RU_ROW_AS("sigma", TIME, bid_file, sigma_ns, "120s",
              "start-up time of a new allocation, in which it does no work", RU_IN(0, 3600e9)),
    RU_ROW_AS("lambda", TIME, bid_file, lambda_ns, "60s", "time that the job loses at an eviction",
              RU_IN(0, 3600e9)),
    RU_ROW_AS("cap", F64, ru_bid_in, cap_work, NULL,
              "largest work per hour of all instances together", RU_OVER(0, 1e15)),
    RU_ROW_AS("step", F64, ru_bid_in, step_work, "0",
              "work per hour of one request; 0: one request for all", RU_IN(0, 1e15)),
    RU_ROW_AS("price_max", F64, ru_bid_in, price_max_usd, "0",
              "highest cost of a unit of work at which instances are acquired, or renewed by cycle "
              "[USD]; 0: no limit but the on-demand price",
              RU_IN(0, 1e6)),
    RU_ROW_AS("window", TIME, bid_file, window_ns, "168h",
              "length of the newest part of the price history that is used",
              RU_IN(2 * 3600e9, 1e18)),
    RU_ROW(BOOL, ru_bid_in, fractions, "false", "true: numbers of instances may be fractions"),
    RU_ROW(BOOL, bid_file, states, "true",
           "true: estimate evictions only from past hours whose price compared with the hour "
           "before as it does now"),
    RU_ROW(F64, bid_file, delta, "0",
           "method fixed: bid the largest of 'deltas' that does not exceed this", RU_IN(0, 1e6)),
    RU_ROW(CHOICE, ru_bid_in, method, "cycle", "cycle: Rubato's; others: baselines",
           .choices = "cycle|bidbrain|fixed|standard|on-demand"),
};

static const ru_conf_table table =
    RU_TABLE("bid", bid_file, fields, "one decision of a job that runs on spot markets",
             .check = check_file);

enum { STARTS_MIN = 30 }; /* of a state, before its counts are used */

static ru_status market_of(const bid_file *f, const market_file *m, ru_arena *a, ru_bid_market *out,
                           ru_err *err)
{
    ru_prices p = {m->at.at, m->usd.at, m->at.n};
    ru_evict_law *law = RU_NEW(a, ru_evict_law, f->q.n_deltas);
    if (law == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u deltas", f->q.n_deltas);
    }
    int64_t end = p.at_s[p.n - 1];
    uint32_t state =
        f->states && f->q.method == RU_BID_CYCLE ? ru_evict_state(&p, end) : (uint32_t)RU_EVICT_ALL;
    double most = 0;
    int64_t from = end - f->window_ns / 1000000000;
    from = from > p.at_s[0] ? from : p.at_s[0];
    for (uint32_t d = 0; d < f->q.n_deltas; d++) {
        RU_TRY(ru_evict_count(&p, from, end, f->q.deltas_usd[d], RU_EVICT_ALL, a, &law[d], err));
        ru_evict_law some;
        ru_err none;
        if (state != RU_EVICT_ALL &&
            ru_evict_count(&p, from, end, f->q.deltas_usd[d], state, a, &some, &none) == RU_OK &&
            some.n_starts >= STARTS_MIN) {
            law[d] = some;
        }
    }
    for (uint32_t k = 0; k < p.n; k++) {
        most = fmax(most, p.usd[k]);
    }
    *out = (ru_bid_market){.usd = p.usd[p.n - 1],
                           .on_demand_usd = m->on_demand_usd > 0 ? m->on_demand_usd : most,
                           .work = m->work,
                           .closed = m->closed,
                           .law = law};
    return RU_OK;
}

static ru_status inner(const bid_file *f, ru_arena *a, ru_bid_in *in, ru_err *err)
{
    ru_bid_market *markets = RU_NEW(a, ru_bid_market, f->markets.n);
    ru_bid_held *held = RU_NEW(a, ru_bid_held, f->held.n);
    if (markets == NULL || held == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u markets", f->markets.n);
    }
    for (uint32_t i = 0; i < f->markets.n; i++) {
        RU_TRY(market_of(f, &f->markets.at[i], a, &markets[i], err));
    }
    for (uint32_t i = 0; i < f->held.n; i++) {
        const held_file *h = &f->held.at[i];
        held[i] = (ru_bid_held){.market = h->market,
                                .instances = h->instances,
                                .bid_usd = h->bid_usd > 0 ? h->bid_usd : (double)INFINITY,
                                .paid_usd = h->paid_usd,
                                .left_h = (double)h->left_ns / 3600e9,
                                .due = h->due};
    }
    *in = f->q;
    in->markets = markets;
    in->n_markets = f->markets.n;
    in->held = held;
    in->n_held = f->held.n;
    in->sigma_h = (double)f->sigma_ns / 3600e9;
    in->lambda_h = (double)f->lambda_ns / 3600e9;
    in->fixed = 0;
    while (in->fixed + 1 < in->n_deltas && in->deltas_usd[in->fixed + 1] <= f->delta) {
        in->fixed++;
    }
    return RU_OK;
}

static ru_status plan_bid(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_bid_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_bid(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_bid(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_bid_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_bid_check(&q, plan, err);
}

static void put_market(ru_table *t, const bid_file *f, uint32_t market)
{
    const market_file *m = f->markets.at;
    if (m[market].name[0] != '\0') {
        ru_table_str(t, m[market].name);
    } else {
        ru_table_textf(t, "market %u", market);
    }
}

static bool same_action(const ru_bid_action *a, const ru_bid_action *b)
{
    return a->act == b->act && a->held == UINT32_MAX && b->held == UINT32_MAX &&
           a->market == b->market && a->instances == b->instances && a->bid_usd == b->bid_usd;
}

/* Equal requests, one after the other, are one row with their number. */
static void put_actions(const bid_file *f, const ru_bid_plan *p, ru_report *r)
{
    ru_table *t =
        ru_report_grid_of(r, "actions", ">times <action >held <market >instances >bid_usd");
    for (uint32_t k = 0, times; k < p->n; k += times) {
        const ru_bid_action *a = &p->actions[k];
        for (times = 1; k + times < p->n && same_action(a, &p->actions[k + times]); times++) {
        }
        ru_table_i64(t, times);
        ru_table_str(t, act_names[a->act]);
        if (a->held == UINT32_MAX) {
            ru_table_none(t);
        } else {
            ru_table_i64(t, a->held);
        }
        put_market(t, f, a->market);
        ru_table_f64(t, a->instances, f->q.fractions ? 2 : 0);
        if (isinf(a->bid_usd)) {
            ru_table_none(t);
        } else {
            ru_table_f64(t, a->bid_usd, 4);
        }
    }
}

static void put_laws(const bid_file *f, const ru_bid_in *q, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "evictions within an hour, by USD above the price",
                                    "<market >price_usd >delta_usd >evicted >starts >median_s");
    for (uint32_t m = 0; m < q->n_markets; m++) {
        for (uint32_t d = 0; d < q->n_deltas; d++) {
            const ru_evict_law *l = &q->markets[m].law[d];
            put_market(t, f, m);
            ru_table_f64(t, q->markets[m].usd, 4);
            ru_table_f64(t, q->deltas_usd[d], 4);
            ru_table_i64(t, l->evicted[RU_EVICT_MINUTES]);
            ru_table_i64(t, l->n_starts);
            ru_table_f64(t, l->median_s, 0);
        }
    }
}

/* All other methods are measured by the long-run cost of ours, so that the figures compare. A plan
 * that costs less because it does less work is no rival: it leaves a part of the cap. */
static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    bid_file f = *(const bid_file *)v->won_in;
    f.q.method = RU_BID_CYCLE;
    ru_bid_in ours;
    ru_bid_value mine, other;
    RU_TRY(inner(&f, tools->scratch, &ours, err));
    RU_TRY(ru_bid_long_run(&ours, v->won, tools->scratch, &mine, err));
    RU_TRY(ru_bid_long_run(&ours, v->plan, tools->scratch, &other, err));
    bool acts = isfinite(other.usd);
    bool less = other.work < mine.work * (1 - 1e-9) && other.usd < mine.usd;
    ru_rival_is(v, acts ? other.usd : 0, acts && !less, "%s",
                !acts  ? "acquires nothing"
                : less ? "does less work, so it is not compared"
                : v->method == RU_BID_BIDBRAIN
                    ? "in the long run; it looks at the hours that run alone"
                    : "in the long run");
    return RU_OK;
}

#define ACTION(type_, field_, ...)                        \
    RU_DECISION(type_, ru_bid_plan, actions, __VA_ARGS__, \
                RU_LIST_OF(ru_bid_plan, n, ru_bid_action, field_))
static const ru_report_row rows[] = {
    ACTION(CHOICE, act, "action", .choices = "acquire|renew|release"),
    ACTION(U32, held, "held"),
    ACTION(U32, market, "market"),
    ACTION(F64, instances, "instances"),
    ACTION(F64, bid_usd, "bid_usd"), /* null: on demand */
};

static ru_status report_bid(const void *in, const void *plan, const ru_policy_tools *tools,
                            ru_report *r, ru_err *err)
{
    const bid_file *f = in;
    const ru_bid_plan *p = plan;
    uint32_t n[3] = {0};
    for (uint32_t k = 0; k < p->n; k++) {
        n[p->actions[k].act]++;
    }
    ru_report_answer(r, "acquire %u, renew %u, release %u", n[0], n[1], n[2]);
    double usd = isfinite(p->after.usd) ? p->after.usd : 0;
    ru_report_figure(r, "usd_per_work", usd);
    ru_report_figure(r, "cost_usd", p->after.cost_usd);
    ru_report_figure(r, "work", p->after.work);
    ru_report_figure(r, f->q.method == RU_BID_BIDBRAIN ? "eviction_chance" : "evictions_per_h",
                     p->after.chance);
    put_actions(f, p, r);
    ru_bid_in q;
    RU_TRY(inner(f, tools->scratch, &q, err));
    put_laws(f, &q, r);
    ru_policy_winner(&ru_policy_bid, in, r, p->after.usd, isfinite(p->after.usd), "chosen");
    RU_TRY(ru_policy_rivals(&ru_policy_bid, in, plan, tools, judge, r, err));
    ru_report_assume(r, "an instance runs while price <= bid; an hour costs the price at its "
                        "start, and nothing if the provider evicts the instance within it");
    ru_report_assume(r, "evictions are as frequent as in the history; allocations with the same "
                        "market and bid are evicted together");
    ru_report_trigger(r, "usd_per_work", 0.1);
    ru_report_valid(r, (int64_t)120 * 1000000000);
    return RU_OK;
}

/* The prices from `first` on that are of one market; the number of the next one's first. */
static uint32_t put_prices(const ru_world *w, uint32_t first, ru_json *j)
{
    const ru_price_fact *p = w->facts.prices.at;
    uint32_t end = first, cores = 1;
    while (end < w->facts.prices.n && strcmp(p[end].market, p[first].market) == 0) {
        end++;
    }
    for (uint32_t i = 0; i < w->cluster.hosts.n; i++) {
        const ru_cluster_host *h = &w->cluster.hosts.at[i];
        cores = strcmp(h->market, p[first].market) == 0 && h->cores > cores ? h->cores : cores;
    }
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "name", p[first].market);
    ru_json_open(j, "at", '[');
    for (uint32_t i = first; i < end; i++) {
        ru_json_i64(j, NULL, p[i].at_s);
    }
    ru_json_close(j);
    ru_json_open(j, "usd", '[');
    for (uint32_t i = first; i < end; i++) {
        ru_json_f64(j, NULL, p[i].usd_per_h);
    }
    ru_json_close(j);
    ru_json_f64(j, "work", cores);
    ru_json_close(j);
    return end;
}

/* Markets by their prices, work by cores: as many as the jobs may have workers. */
static ru_status derive_bid(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    (void)scratch;
    double workers = 0;
    for (uint32_t i = 0; i < w->jobs.n; i++) {
        workers += w->jobs.at[i].workers_max;
    }
    if (w->facts.prices.n == 0 || !(workers > 0)) {
        return RU_FAIL(err, RU_E_MISSING, "it must hold facts.prices, and jobs with 'workers_max'");
    }
    ru_json_open(j, "markets", '[');
    for (uint32_t i = 0; i < w->facts.prices.n;) {
        i = put_prices(w, i, j);
    }
    ru_json_close(j);
    ru_json_f64(j, "cap", workers);
    return RU_OK;
}

const ru_policy ru_policy_bid = {
    .name = "bid",
    .version = 3,
    .decides =
        "which instances of which spot market to acquire, renew and release, and at which bid",
    .source = "harlap-2017 sec 4.2",
    .in = &table,
    .plan_bytes = sizeof(ru_bid_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_bid,
    .check = check_bid,
    .report = report_bid,
    .derive = derive_bid,
    .example =
        "# Two markets of 16 and 40 cores, six hours of prices; one allocation must be renewed.\n"
        "markets:\n"
        "  - name: calm\n"
        "    at: [0, 4000, 9000, 14000, 21600]\n"
        "    usd: [0.23, 0.24, 0.23, 0.235, 0.23]\n"
        "    on_demand: 0.958\n"
        "    work: 16\n"
        "  - name: lively\n"
        "    at: [0, 1500, 3000, 5200, 7000, 9100, 12000, 13500, 16000, 18800, 21600]\n"
        "    usd: [0.55, 0.58, 0.54, 0.61, 0.55, 0.57, 0.54, 0.6, 0.53, 0.58, 0.55]\n"
        "    on_demand: 2.394\n"
        "    work: 40\n"
        "held:\n"
        "  - {market: 0, instances: 4, bid: 0.24, paid: 0.235, due: true}\n"
        "deltas: [0.0001, 0.01, 0.05, 0.1]\n"
        "reliable: 0.627\n"
        "cap: 512\n"
        "step: 64\n",
};
