/* What to buy, keep and give back: the question to the policy `bid`, and events of its plan. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cluster/spot_impl.h"
#include "plan/row/policy.h"

static const int64_t second_ns = 1000000000;
static const double hour_ns = 3600e9;
static const int64_t window_s = 7 * 86400; /* of prices that the policy sees */

typedef struct asking {
    const ru_spot *s;
    const ru_spot_options *o;
    const ru_spot_facts *f;
    int64_t now_ns;
    ru_arena *arena;
    uint32_t held[RU_MARKET_ALLOCS_MAX]; /* allocations that the question is about */
    uint32_t n_held;
    bool due[RU_MARKET_ALLOCS_MAX];                     /* of those */
    bool taken[RU_SPOT_MARKETS_MAX][RU_SPOT_NODES_MAX]; /* leases */
    bool priced[RU_SPOT_MARKETS_MAX];                   /* the price now is in the journal */
    ru_spot_answer *out;
} asking;

static bool is_due(const ru_market_alloc *a, int64_t now_ns)
{
    return !a->waits && !a->renewed && !a->leaving && a->hour_end.ns - now_ns <= RUI_SPOT_DUE_NS;
}

bool ru_spot_due(const ru_spot *s, int64_t now_ns)
{
    bool due = false;
    for (uint32_t i = 0; i < s->job.n; i++) {
        due = due || is_due(&s->job.allocs[i], now_ns);
    }
    return due;
}

static void put_event(asking *q, ru_market_word word, uint32_t market, uint32_t lease,
                      const rui_deal *d)
{
    RU_CHECK(q->out->n < RU_SPOT_EVENTS_MAX && market < q->o->n);
    ru_journal_event *e = &q->out->events[q->out->n++];
    *e = (ru_journal_event){
        .node = market, .job = lease, .a = word, .b = q->now_ns, .text = rui_deal_put(d, q->arena)};
}

/* Slots that stay, and what is asked about; nodes that nobody needs are given back unasked, first
 * those that have not come yet, then those whose hour ends. */
static uint32_t sort_held(asking *q)
{
    uint32_t keep = 0;
    for (uint32_t pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0; i < q->s->job.n; i++) {
            const ru_market_alloc *a = &q->s->job.allocs[i];
            bool due = is_due(a, q->now_ns);
            if (a->leaving || a->market >= q->o->n || pass != (a->waits ? 2 : due ? 1 : 0)) {
                continue;
            }
            if (pass > 0 && keep >= q->f->wants) {
                rui_deal d = {.market = q->o->at[a->market].name};
                d.why = ru_arena_printf(q->arena, "the jobs can use %u workers there, and %u stay",
                                        q->f->wants, keep);
                put_event(q, a->waits ? RU_MARKET_TAKEN : RU_MARKET_RELEASE, a->market, a->lease,
                          &d);
                continue;
            }
            keep += q->o->at[a->market].slots;
            q->due[q->n_held] = due;
            q->held[q->n_held++] = i;
        }
    }
    return keep;
}

static bool is_free(const asking *q, uint32_t m, uint32_t *lease)
{
    for (uint32_t k = 0; k < q->o->at[m].nodes; k++) {
        if (!q->f->busy[m][k] && !q->taken[m][k]) {
            *lease = k + 1;
            return true;
        }
    }
    return false;
}

/* It refused a short time ago: others are asked meanwhile. */
static bool is_closed(const asking *q, uint32_t m)
{
    int64_t at_ns = q->s->refused_ns[m];
    return at_ns > 0 && q->now_ns - at_ns < q->o->at[m].patience_ns;
}

/* Prices of the last week, the last row now. */
static void put_market(const asking *q, uint32_t m, ru_json *j)
{
    const ru_spot_market *k = &q->o->at[m];
    int64_t now_s = q->now_ns / second_ns;
    uint32_t last = ru_prices_row(&k->prices, now_s), lease;
    uint32_t first = ru_prices_row(&k->prices, now_s - window_s);
    first = first == UINT32_MAX ? 0 : first;
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "name", k->name);
    ru_json_open(j, "at", '[');
    for (uint32_t r = first; last != UINT32_MAX && r <= last; r++) {
        ru_json_i64(j, NULL, k->prices.at_s[r]);
    }
    ru_json_i64(j, NULL, now_s);
    ru_json_close(j);
    ru_json_open(j, "usd", '[');
    for (uint32_t r = first; last != UINT32_MAX && r <= last; r++) {
        ru_json_f64(j, NULL, k->prices.usd[r]);
    }
    ru_json_f64(j, NULL, ru_spot_price(k, q->now_ns));
    ru_json_close(j);
    ru_json_f64(j, "on_demand", k->on_demand_usd);
    ru_json_f64(j, "work", k->slots * q->f->work);
    ru_json_bool(j, "closed", is_closed(q, m) || !is_free(q, m, &lease));
    ru_json_close(j);
}

static void put_time(ru_json *j, const char *key, int64_t ns)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lldns", (long long)(ns < 0 ? 0 : ns));
    ru_json_str(j, key, text);
}

static void put_held(const asking *q, uint32_t k, ru_json *j)
{
    const ru_market_alloc *a = &q->s->job.allocs[q->held[k]];
    int64_t left = a->waits ? (int64_t)hour_ns : a->hour_end.ns - q->now_ns;
    double paid = a->waits ? ru_spot_price(&q->o->at[a->market], q->now_ns) : a->paid_usd;
    ru_json_open(j, NULL, '{');
    ru_json_i64(j, "market", a->market);
    ru_json_f64(j, "instances", 1);
    ru_json_f64(j, "bid", isinf(a->bid_usd) ? 0 : a->bid_usd);
    ru_json_f64(j, "paid", paid);
    put_time(j, "left", left < (int64_t)hour_ns ? left : (int64_t)hour_ns);
    ru_json_bool(j, "due", q->due[k]);
    ru_json_close(j);
}

static const char *question(const asking *q)
{
    ru_text t = ru_text_arena(q->arena);
    ru_json j = ru_json_into(&t);
    uint32_t slots = UINT32_MAX;
    ru_json_open(&j, NULL, '{');
    ru_json_open(&j, "markets", '[');
    for (uint32_t m = 0; m < q->o->n; m++) {
        put_market(q, m, &j);
        slots = q->o->at[m].slots < slots ? q->o->at[m].slots : slots;
    }
    ru_json_close(&j);
    ru_json_open(&j, "held", '[');
    for (uint32_t k = 0; k < q->n_held; k++) {
        put_held(q, k, &j);
    }
    ru_json_close(&j);
    ru_json_f64(&j, "phi", q->f->phi);
    put_time(&j, "sigma", q->f->sigma_ns);
    put_time(&j, "lambda", q->f->lambda_ns);
    uint32_t nodes = q->f->wants < RU_SPOT_LEASES_MAX * slots ? (q->f->wants + slots - 1) / slots
                                                              : RU_SPOT_LEASES_MAX;
    ru_json_f64(&j, "cap", nodes * slots * q->f->work);
    ru_json_f64(&j, "step", slots * q->f->work);
    ru_json_close(&j);
    return t.cut ? NULL : t.p;
}

/* A node of this market, or none if there is none left. */
static void buy(asking *q, uint32_t m, const ru_bid_action *x, const rui_deal *d)
{
    uint32_t lease;
    if (!is_free(q, m, &lease)) {
        return;
    }
    double usd = ru_spot_price(&q->o->at[m], q->now_ns);
    if (!q->priced[m] && q->s->job.usd[m] != usd) {
        put_event(q, RU_MARKET_PRICE, m, 0, &(rui_deal){.market = d->market, .usd = usd});
    }
    q->priced[m] = q->taken[m][lease - 1] = true;
    rui_deal mine = *d;
    mine.usd = !isinf(x->bid_usd) ? x->bid_usd : q->o->at[m].on_demand_usd > 0 ? 0 : usd;
    mine.on_demand_usd = q->o->at[m].on_demand_usd;
    mine.told = q->o->at[m].told;
    put_event(q, RU_MARKET_ACQUIRE, m, lease, &mine);
}

static void obey(asking *q, const ru_bid_plan *p)
{
    static const char *const does[] = {"rented", "renewed", "given back at the end of its hour"};
    for (uint32_t k = 0; k < p->n; k++) {
        const ru_bid_action *x = &p->actions[k];
        const ru_spot_market *m = &q->o->at[x->market];
        bool safe = isinf(x->bid_usd);
        rui_deal d = {.market = m->name, .hour_usd = p->after.cost_usd};
        double usd = safe && m->on_demand_usd > 0 ? m->on_demand_usd : ru_spot_price(m, q->now_ns);
        const char *other = m->on_demand_usd > 0
                                ? ru_arena_printf(q->arena, ", on demand %.4g", m->on_demand_usd)
                                : "";
        d.why = ru_arena_printf(q->arena,
                                "%s at %.4g USD an hour%s; an hour of a worker costs %.4g with it "
                                "(plan %s)",
                                does[x->act], usd, other != NULL ? other : "",
                                isfinite(p->after.usd) ? p->after.usd * q->f->work : 0, q->out->id);
        if (x->act != RU_BID_ACQUIRE) {
            const ru_market_alloc *a = &q->s->job.allocs[q->held[x->held]];
            put_event(q, x->act == RU_BID_RENEW ? RU_MARKET_RENEW : RU_MARKET_RELEASE, a->market,
                      a->lease, &d);
            continue;
        }
        for (double n = x->instances; n > 0.5; n--) {
            buy(q, x->market, x, &d);
        }
    }
}

static ru_status ask_policy(asking *q, ru_err *err)
{
    const ru_policy *bid = &ru_policy_bid;
    ru_arena scratch;
    ru_conf *c;
    ru_bid_plan plan;
    void *in = ru_arena_zalloc(q->arena, bid->in->size_bytes, 64);
    q->out->input = question(q);
    if (q->out->input == NULL || in == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to ask about %u markets", q->o->n);
    }
    RU_TRY(ru_conf_new(bid->in, q->arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, "markets", q->out->input, (int64_t)strlen(q->out->input), err));
    RU_TRY(ru_conf_apply(c, in, err));
    ru_arena_init(&scratch, 0);
    const ru_policy_tools tools = {q->arena, &scratch, NULL};
    ru_status st = bid->plan(in, &tools, &plan, err);
    st = st == RU_OK ? bid->check(in, &plan, &scratch, err) : st;
    ru_arena_fini(&scratch);
    RU_TRY(st);
    ru_hash128_text(ru_policy_head(bid, in).id, q->out->id);
    q->out->hour_usd = plan.after.cost_usd;
    obey(q, &plan);
    return RU_OK;
}

ru_status ru_spot_ask(const ru_spot *s, const ru_spot_options *o, const ru_spot_facts *f,
                      int64_t now_ns, ru_arena *arena, ru_spot_answer *out, ru_err *err)
{
    RU_CHECK(now_ns >= s->job.now.ns && f->work > 0 && f->phi > 0 && f->phi <= 1);
    asking *q = RU_NEW(arena, asking, 1);
    memset(out, 0, sizeof *out);
    out->events = RU_NEW(arena, ru_journal_event, RU_SPOT_EVENTS_MAX);
    if (q == NULL || out->events == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to ask about %u markets", o->n);
    }
    *q = (asking){.s = s, .o = o, .f = f, .now_ns = now_ns, .arena = arena, .out = out};
    for (uint32_t i = 0; i < s->job.n; i++) {
        const ru_market_alloc *a = &s->job.allocs[i];
        q->taken[a->market][a->lease - 1] = true;
    }
    uint32_t keep = sort_held(q);
    bool asks = keep < f->wants;
    for (uint32_t k = 0; k < q->n_held; k++) {
        asks = asks || q->due[k];
    }
    RU_TRY(asks ? ask_policy(q, err) : RU_OK);
    for (uint32_t k = 0; k < out->n; k++) {
        if (out->events[k].text == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the events of a market");
        }
    }
    return RU_OK;
}
