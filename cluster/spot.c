#include "cluster/spot_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/json.h"

static const int64_t second_ns = 1000000000;
static const double hour_ns = 3600e9;

static const ru_conf_field deal_fields[] = {
    RU_ROW(TEXT, rui_deal, market, "", "market"),
    RU_ROW(TEXT, rui_deal, why, "", "why"),
    RU_ROW(F64, rui_deal, usd, "0", "price or bid"),
    RU_ROW(F64, rui_deal, on_demand_usd, "0", "price on demand"),
    RU_ROW(F64, rui_deal, hour_usd, "0", "expected cost of an hour"),
    RU_ROW(BOOL, rui_deal, told, "false", "the market tells when it comes"),
    RU_ROW(BOOL, rui_deal, refused, "false", "the market did not give it"),
    RU_ROW(I64, rui_deal, late_ns, "0", "how far the clock was past it", RU_IN(0, 4e18)),
};
static const ru_conf_table deal_table =
    RU_TABLE("deal", rui_deal, deal_fields, "an event of a market");

void ru_spot_name(const ru_spot_options *o, uint32_t market, uint32_t lease, char into[80])
{
    RU_CHECK(market < o->n && lease >= 1 && lease <= o->at[market].nodes);
    (void)snprintf(into, 80, "%.64s%u", o->at[market].name, lease);
}

bool ru_spot_of(const ru_spot_options *o, const char *name, uint32_t *market, uint32_t *lease)
{
    for (uint32_t m = 0; m < o->n; m++) {
        int64_t number;
        size_t n = strlen(o->at[m].name);
        if (strncmp(name, o->at[m].name, n) == 0 && name[n] != '0' &&
            ru_str_i64(ru_str_c(name + n), &number) && number >= 1 && number <= o->at[m].nodes) {
            *market = m;
            *lease = (uint32_t)number;
            return true;
        }
    }
    return false;
}

double ru_spot_price(const ru_spot_market *m, int64_t now_ns)
{
    RU_CHECK(m->prices.n > 0 && now_ns >= 0);
    if (m->flat_usd > 0) {
        return m->flat_usd;
    }
    uint32_t row = ru_prices_row(&m->prices, now_ns / second_ns);
    return m->prices.usd[row == UINT32_MAX ? 0 : row];
}

ru_status ru_spot_reaches(const char *name, const ru_prices *p, int64_t now_ns, ru_err *err)
{
    const int64_t now_s = now_ns / second_ns;
    return now_s - p->at_s[0] > 3600
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "market '%s': its prices begin at %lld, and the markets' clock at %lld; "
                         "expected more than an hour of prices before (market.begin)",
                         name, (long long)p->at_s[0], (long long)now_s);
}

/* -- the fold ------------------------------------------------------------------------------------
 */

static ru_status begin(ru_market_job *j, int64_t at_ns, ru_err *err)
{
    ru_market_spec spec = {.n_markets = RU_SPOT_MARKETS_MAX,
                           .total_work = (double)INFINITY,
                           .speed = 1,
                           .notice_ns = RUI_SPOT_DUE_NS};
    for (uint32_t m = 0; m < RU_SPOT_MARKETS_MAX; m++) {
        spec.work[m] = 1;
    }
    return ru_market_init(j, &spec, (ru_time){at_ns}, err);
}

static void apply(ru_market_job *j, const ru_journal_event *e, const rui_deal *d)
{
    ru_arena memory;
    ru_effects fx;
    const ru_market_bid bid = {.market = (uint32_t)e->node,
                               .usd = d->usd > 0 ? d->usd : (double)INFINITY,
                               .instances = 1,
                               .lease = (uint32_t)e->job,
                               .told = d->told};
    const bool has_bid = e->a == RU_MARKET_PRICE || e->a == RU_MARKET_ACQUIRE;
    const ru_event ev = {.kind = e->a == RU_MARKET_TIMER ? RU_EV_TIMER : RU_EV_LOCAL,
                         .now = {e->b},
                         .what = (uint32_t)e->a,
                         .value = ru_market_alloc_of(j, bid.market, bid.lease),
                         .data = has_bid ? &bid : NULL,
                         .size_bytes = has_bid ? (int64_t)sizeof bid : 0};
    ru_arena_init(&memory, 0);
    ru_effects_init(&fx, &memory);
    if (e->a == RU_MARKET_ACQUIRE) {
        j->spec.on_demand_usd[bid.market] = d->on_demand_usd;
    }
    ru_market_step(j, &ev, &fx);
    ru_arena_fini(&memory);
}

/* Can this happen now? */
static bool follows(const ru_market_job *j, const ru_journal_event *e, const rui_deal *d)
{
    uint32_t at = ru_market_alloc_of(j, (uint32_t)e->node, (uint32_t)e->job);
    return e->b >= j->now.ns &&
           (e->a == RU_MARKET_PRICE     ? d->usd > 0
            : e->a == RU_MARKET_ACQUIRE ? at == UINT32_MAX && e->job >= 1 && d->usd >= 0
            : e->a == RU_MARKET_TIMER   ? true
            : e->a == RU_MARKET_GIVEN   ? at != UINT32_MAX && j->allocs[at].waits
            : e->a == RU_MARKET_TAKEN   ? at != UINT32_MAX && j->allocs[at].told
                                        : at != UINT32_MAX && !j->allocs[at].waits);
}

static ru_status get_deal(const char *text, ru_arena *arena, rui_deal *out, ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(&deal_table, arena, &c, err));
    RU_TRY(ru_conf_add_json(c, "journal", text, (int64_t)strlen(text), err));
    return ru_conf_apply(c, out, err);
}

static ru_status fold(ru_spot *s, const ru_journal_event *e, ru_arena *scratch, ru_err *err)
{
    rui_deal d;
    RU_TRY(get_deal(e->text, scratch, &d, err));
    if (!s->begun) {
        RU_TRY(begin(&s->job, e->b, err));
        s->begun = true;
    }
    if (!follows(&s->job, e, &d)) {
        return RU_FAIL(err, RU_E_DATA,
                       "event %lld of the journal (market %lld, node %lld) cannot follow",
                       (long long)e->seq, (long long)e->node, (long long)e->job);
    }
    double hours = (double)(e->b - s->job.now.ns) / hour_ns;
    s->predicted_usd += s->job.n > 0 ? s->hour_usd * hours : 0;
    s->hour_usd = d.hour_usd > 0 ? d.hour_usd : s->hour_usd;
    if (e->b + d.late_ns >= s->clock_ns) { /* else it is of a clock that catches up */
        s->clock_ns = e->b + d.late_ns;
        s->wall_ns = e->wall_ns;
    }
    if (e->a == RU_MARKET_ACQUIRE) {
        s->lent[e->node][e->job - 1] = true;
    }
    s->refused_ns[e->node] = d.refused ? e->b : s->refused_ns[e->node];
    apply(&s->job, e, &d);
    return RU_OK;
}

static bool is_word(int64_t a)
{
    return (a >= 0 && a <= RU_MARKET_TIMER) || a == RU_MARKET_GIVEN || a == RU_MARKET_TAKEN;
}

ru_status ru_spot_fold(ru_spot *s, const ru_journal_event *e, ru_err *err)
{
    ru_arena scratch;
    if (e->node < 0 || e->node >= RU_SPOT_MARKETS_MAX || !is_word(e->a) || e->b < 0 || e->job < 0 ||
        e->job > RU_SPOT_NODES_MAX) {
        return RU_FAIL(err, RU_E_DATA, "event %lld of the journal is of no market",
                       (long long)e->seq);
    }
    ru_arena_init(&scratch, 0);
    ru_status st = fold(s, e, &scratch, err);
    ru_arena_fini(&scratch);
    return st;
}

double ru_spot_cost(const ru_spot *s, int64_t now_ns)
{
    RU_CHECK(s->begun || s->job.n == 0);
    double usd = s->begun ? ru_market_cost(&s->job) : 0;
    for (uint32_t i = 0; i < s->job.n; i++) {
        double left = (double)(s->job.allocs[i].hour_end.ns - now_ns) / hour_ns; /* waits: of 0 */
        usd -= s->job.allocs[i].paid_usd * fmax(left, 0);
    }
    return usd;
}

/* -- events --------------------------------------------------------------------------------------
 */

const char *rui_deal_put(const rui_deal *d, ru_arena *arena)
{
    ru_text t = ru_text_arena(arena);
    ru_json j = ru_json_into(&t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "market", d->market);
    ru_json_str(&j, "why", d->why != NULL ? d->why : "");
    ru_json_f64(&j, "usd", d->usd);
    if (d->on_demand_usd > 0) {
        ru_json_f64(&j, "on_demand_usd", d->on_demand_usd);
    }
    if (d->hour_usd > 0) {
        ru_json_f64(&j, "hour_usd", d->hour_usd);
    }
    if (d->told) {
        ru_json_bool(&j, "told", true);
    }
    if (d->refused) {
        ru_json_bool(&j, "refused", true);
    }
    if (d->late_ns > 0) {
        ru_json_i64(&j, "late_ns", d->late_ns);
    }
    ru_json_close(&j);
    return t.cut ? NULL : t.p;
}

/* What the machine will do with it, in words. */
static const char *outcome(const ru_spot *s, const ru_journal_event *e, const rui_deal *d,
                           ru_arena *arena)
{
    ru_market_job *after = ru_arena_copy(arena, &s->job, sizeof s->job, 8);
    if (after == NULL || !s->begun) {
        return "";
    }
    apply(after, e, d);
    uint32_t evicted = after->evictions - s->job.evictions, left = s->job.n - evicted - after->n;
    double usd = after->cost_usd - s->job.cost_usd;
    return evicted > 0 ? ru_arena_printf(arena, "%u evicted: above the bid; %.4g USD are refunded",
                                         evicted, -usd)
           : left > 0 && usd > 0
               ? ru_arena_printf(arena, "%u left at the end of the hour; %.4g USD for new hours",
                                 left, usd)
           : left > 0 ? ru_arena_printf(arena, "%u left at the end of the hour", left)
           : usd > 0  ? ru_arena_printf(arena, "%.4g USD for new hours", usd)
                      : "";
}

static bool price_event(const ru_spot *s, const ru_spot_options *o, uint32_t m, int64_t at_ns,
                        int64_t until_ns, ru_arena *arena, ru_journal_event *out)
{
    rui_deal d = {.market = o->at[m].name,
                  .usd = ru_spot_price(&o->at[m], at_ns),
                  .late_ns = until_ns - at_ns};
    *out = (ru_journal_event){.node = m, .a = RU_MARKET_PRICE, .b = at_ns};
    d.why = outcome(s, out, &d, arena);
    out->text = rui_deal_put(&d, arena);
    return out->text != NULL;
}

/* When a price next evicts a node of this market, at most `until_ns`; INT64_MAX: it does not. */
static int64_t evicts_at(const ru_spot *s, const ru_spot_options *o, uint32_t m, int64_t until_ns)
{
    double least = (double)INFINITY;
    for (uint32_t i = 0; i < s->job.n; i++) {
        const ru_market_alloc *a = &s->job.allocs[i];
        least = a->market == m && !a->told ? fmin(least, a->bid_usd) : least;
    }
    const ru_prices *p = &o->at[m].prices;
    uint32_t row = ru_prices_row(p, s->job.now.ns / second_ns);
    row = row == UINT32_MAX ? 0 : row; /* a price of now may have been told late */
    for (; isfinite(least) && row < p->n && p->at_s[row] * second_ns <= until_ns; row++) {
        if (p->usd[row] > least + 1e-9) {
            int64_t at_ns = p->at_s[row] * second_ns;
            return at_ns > s->job.now.ns ? at_ns : s->job.now.ns;
        }
    }
    return INT64_MAX;
}

bool ru_spot_next(const ru_spot *s, const ru_spot_options *o, int64_t until_ns, ru_arena *arena,
                  ru_journal_event *out)
{
    RU_CHECK(o->n >= 1 && o->n <= RU_SPOT_MARKETS_MAX);
    if (!s->begun) {
        return price_event(s, o, 0, o->begin_s * second_ns, until_ns, arena, out);
    }
    int64_t timer = s->job.told.ns > s->job.now.ns ? s->job.told.ns : s->job.now.ns;
    timer = s->job.told.ns <= until_ns ? timer : INT64_MAX;
    int64_t limit = timer < until_ns ? timer : until_ns, first = INT64_MAX;
    uint32_t of = 0;
    for (uint32_t m = 0; m < o->n; m++) {
        int64_t at = evicts_at(s, o, m, limit);
        of = at < first ? m : of;
        first = at < first ? at : first;
    }
    if (first < INT64_MAX) {
        return price_event(s, o, of, first, until_ns, arena, out);
    }
    if (timer == INT64_MAX || timer > until_ns) {
        return false;
    }
    for (uint32_t i = 0; i < s->job.n; i++) { /* an hour that begins is paid at the price then */
        uint32_t m = s->job.allocs[i].market;
        if (m < o->n && s->job.usd[m] != ru_spot_price(&o->at[m], timer)) {
            return price_event(s, o, m, timer, until_ns, arena, out);
        }
    }
    rui_deal d = {.market = "", .late_ns = until_ns - timer};
    *out = (ru_journal_event){.a = RU_MARKET_TIMER, .b = timer};
    d.why = outcome(s, out, &d, arena);
    out->text = rui_deal_put(&d, arena);
    return out->text != NULL;
}

uint32_t ru_spot_tell(const ru_spot *s, const ru_spot_options *o, ru_market_word word,
                      uint32_t market, uint32_t lease, const char *why, int64_t now_ns,
                      ru_arena *arena, ru_journal_event out[2])
{
    RU_CHECK(market < o->n && (word == RU_MARKET_GIVEN || word == RU_MARKET_TAKEN));
    rui_deal d = {.market = o->at[market].name, .why = why};
    ru_journal_event e = {.node = market, .job = lease, .a = word, .b = now_ns};
    double usd = ru_spot_price(&o->at[market], now_ns);
    uint32_t n = 0;
    if (!follows(&s->job, &e, &d)) {
        return 0;
    }
    d.refused =
        word == RU_MARKET_TAKEN && s->job.allocs[ru_market_alloc_of(&s->job, market, lease)].waits;
    if (word == RU_MARKET_GIVEN && s->job.usd[market] != usd) { /* its hour costs the price now */
        rui_deal price = {.market = d.market, .usd = usd};
        out[n++] = (ru_journal_event){
            .node = market, .a = RU_MARKET_PRICE, .b = now_ns, .text = rui_deal_put(&price, arena)};
    }
    e.text = rui_deal_put(&d, arena);
    out[n++] = e;
    return out[0].text != NULL && e.text != NULL ? n : 0;
}
