#include "burst/fleet.h"

#include <math.h>
#include <string.h>

#include "base/conf.h"
#include "cost/math/quantile.h"
#include "plan/row/policy.h"

static const double rate_min = 1e-3; /* the policy serves some request */

ru_status ru_fleet_init(ru_fleet *f, const ru_fleet_options *o, uint64_t seed, ru_err *err)
{
    memset(f, 0, sizeof *f);
    f->opt = *o;
    f->rng = ru_rng_from(seed, 1);
    ru_arena_init(&f->arena, 0);
    if (o->n_types < 1 || o->n_types > RU_BURST_TYPES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "%u types of machines; expected 1 to %d", o->n_types,
                       RU_BURST_TYPES_MAX);
    }
    RU_CHECK(o->period_s > 0 && o->clock > 0);
    for (uint32_t k = 0; k < o->n_types; k++) {
        const ru_fleet_type *t = &o->types[k];
        f->type[k] = (ru_burst_type){
            t->name, ru_credit_cpu(t->vcpus, t->credits_per_h, t->cap, t->launch, true),
            t->usd_per_h, t->rate_max, t->cpu_s / 60};
    }
    return RU_OK;
}

void ru_fleet_fini(ru_fleet *f)
{
    ru_arena_fini(&f->arena);
}

double ru_fleet_vcpus(const ru_fleet *f, uint32_t one)
{
    const ru_credit_rules *r = &f->type[f->one[one].type].rules;
    return 60 * (f->one[one].limited ? fmin(r->earn, r->burst) : r->burst);
}

/* As plan/fleet/burst_fleet_policy.c reads it. */
static const char *question(ru_fleet *f)
{
    ru_text t = ru_text_arena(&f->arena);
    ru_json j = ru_json_into(&t);
    ru_json_open(&j, NULL, '{');
    ru_json_open(&j, "types", '[');
    for (uint32_t k = 0; k < f->opt.n_types; k++) {
        const ru_fleet_type *y = &f->opt.types[k];
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "name", y->name);
        ru_json_i64(&j, "vcpus", y->vcpus);
        ru_json_f64(&j, "credits_per_h", y->credits_per_h);
        ru_json_f64(&j, "cap", y->cap);
        ru_json_f64(&j, "launch", y->launch);
        ru_json_f64(&j, "usd_per_h", y->usd_per_h);
        ru_json_f64(&j, "rate_max", y->rate_max);
        ru_json_f64(&j, "cpu_s", y->cpu_s);
        ru_json_close(&j);
    }
    ru_json_close(&j);
    ru_json_open(&j, "machines", '[');
    for (uint32_t k = 0; k < f->n; k++) {
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "type", f->type[f->one[k].type].name);
        ru_json_f64(&j, "level", f->one[k].now.earned);
        ru_json_f64(&j, "launch", f->one[k].now.launch);
        ru_json_close(&j);
    }
    ru_json_close(&j);
    ru_json_f64(&j, "rate", f->expected);
    ru_json_f64(&j, "period_s", f->opt.period_s);
    ru_json_i64(&j, "launches_left", f->opt.launches - f->launched);
    ru_json_close(&j);
    return t.cut ? NULL : t.p;
}

static bool has_credits(const ru_burst_type *t)
{
    return t->rules.launch + t->rules.start > 0;
}

static ru_status take(ru_fleet *f, const ru_burst_fleet_plan *p, ru_err *err)
{
    ru_fleet_one next[RU_FLEET_MAX];
    if (p->n > RU_FLEET_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "the plan wants %u machines; at most %d are possible", p->n,
                       RU_FLEET_MAX);
    }
    f->usd = p->usd;
    for (uint32_t k = 0; k < p->n; k++) {
        bool new = p->from[k] == UINT32_MAX;
        RU_CHECK(new || p->from[k] < f->n);
        next[k] = new ? (ru_fleet_one){.number = ++f->count, .type = p->machine[k].type}
                      : f->one[p->from[k]];
        next[k].now = p->machine[k].now;
        next[k].rate = p->rate[k];
        f->launched += new &&has_credits(&f->type[next[k].type]);
    }
    memcpy(f->one, next, p->n * sizeof *next);
    f->n = p->n;
    return RU_OK;
}

static ru_status plan(ru_fleet *f, ru_fleet_effects *fx, ru_err *err)
{
    const ru_policy *fleet = &ru_policy_burst_fleet;
    ru_burst_fleet_plan p;
    ru_arena scratch;
    ru_conf *c;
    void *in = ru_arena_zalloc(&f->arena, fleet->in->size_bytes, 64);
    fx->input = question(f);
    if (fx->input == NULL || in == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a question");
    }
    RU_TRY(ru_conf_new(fleet->in, &f->arena, &c, err));
    RU_TRY(ru_conf_add_json(c, "the fleet", fx->input, (int64_t)strlen(fx->input), err));
    RU_TRY(ru_conf_apply(c, in, err));
    ru_hash128_text(ru_policy_head(fleet, in).id, fx->id);
    ru_arena_init(&scratch, 0);
    const ru_policy_tools tools = {&f->arena, &scratch, NULL};
    ru_status st = fleet->plan(in, &tools, &p, err);
    st = st == RU_OK ? fleet->check(in, &p, &scratch, err) : st;
    ru_arena_fini(&scratch);
    RU_TRY(st);
    RU_TRY(take(f, &p, err));
    fx->plan = true;
    return RU_OK;
}

/* What the policy would have cost if it had known the rate, with credits used exactly. */
static void replay(ru_fleet *f, double rate)
{
    const ru_burst_fleet_in in = {f->type,
                                  f->opt.n_types,
                                  f->replay,
                                  f->n_replay,
                                  fmax(rate, rate_min),
                                  f->opt.period_s,
                                  f->opt.launches - f->replay_launched};
    ru_burst_fleet_plan p;
    ru_err err;
    ru_arena a;
    ru_arena_init(&a, 0);
    bool good = ru_plan_burst_fleet(&in, &a, &a, &p, &err) == RU_OK && p.n <= RU_FLEET_MAX;
    for (uint32_t k = 0; good && k < p.n; k++) {
        const ru_burst_type *t = &f->type[p.machine[k].type];
        f->replay[k] = p.machine[k];
        f->replay_launched += p.from[k] == UINT32_MAX && has_credits(t);
        (void)ru_credit_run(&t->rules, &f->replay[k].now, p.rate[k] * t->need, f->opt.period_s);
    }
    f->n_replay = good ? p.n : f->n_replay;
    f->replay_usd += good ? p.usd : (double)NAN;
    ru_arena_fini(&a);
}

static void account(ru_fleet *f, const ru_fleet_tick *t)
{
    double dt_s = 1e-9 * (double)ru_time_since(t->now, f->last);
    f->last = t->now;
    for (uint32_t k = 0; dt_s > 0 && k < f->n; k++) {
        ru_credit_rules r = f->type[f->one[k].type].rules;
        double use = t->used[k] / dt_s;
        RU_CHECK(use >= 0);
        r.burst = fmax(r.burst, use); /* the kernel's limit may let a little more pass */
        (void)ru_credit_run(&r, &f->one[k].now, use, dt_s * f->opt.clock);
        double level = ru_credit_level(&f->one[k].now);
        bool was = f->one[k].limited;
        f->one[k].limited =
            r.earn < r.burst && (level <= 0 || (was && level < r.burst * dt_s * f->opt.clock * 2));
        f->was_limited[k] = f->was_limited[k] || f->one[k].limited;
    }
    f->requests += t->requests;
    for (uint32_t k = 0; k < t->n; k++) {
        uint32_t at = f->heard < RU_FLEET_HEARD ? f->heard : ru_rng_below(&f->rng, f->heard + 1);
        f->heard += f->heard < UINT32_MAX - 1;
        if (at < RU_FLEET_HEARD) {
            f->kept[at] = t->latency_s[k];
        }
    }
}

static double expect(const ru_fleet *f, double rate)
{
    const ru_fleet_options *o = &f->opt;
    double is = o->n_forecast > 0 ? o->forecast[f->period % o->n_forecast]
                : f->begun        ? rate
                                  : o->rate_first;
    return fmax(is * (1 + o->headroom), rate_min);
}

static void end_period(ru_fleet *f, ru_time now, ru_fleet_record *r)
{
    uint32_t n = f->heard < RU_FLEET_HEARD ? f->heard : RU_FLEET_HEARD;
    *r = (ru_fleet_record){.period = f->period,
                           .expected = f->expected,
                           .rate =
                               (double)f->requests / (1e-9 * (double)ru_time_since(now, f->since)),
                           .latency_s = (double)NAN,
                           .machines = f->n,
                           .usd = f->usd};
    f->usd_all += f->usd;
    r->usd_all = f->usd_all;
    for (uint32_t k = 0; k < f->n; k++) {
        r->limited += f->was_limited[k];
    }
    if (n > 0) {
        ru_sort_f64(f->kept, n);
        r->latency_s = ru_quantile_sorted(f->kept, n, f->opt.quantile, RU_QUANTILE_LINEAR);
    }
    replay(f, r->rate);
    r->replay_usd_all = f->replay_usd;
}

ru_status ru_fleet_step(ru_fleet *f, const ru_fleet_tick *t, ru_fleet_effects *fx, ru_err *err)
{
    *fx = (ru_fleet_effects){0};
    ru_arena_fini(&f->arena);
    ru_arena_init(&f->arena, 0);
    double in_s = 1e-9 * (double)ru_time_since(t->now, f->since) * f->opt.clock;
    if (f->begun) {
        account(f, t);
        if (in_s < f->opt.period_s) {
            return RU_OK;
        }
        end_period(f, t->now, &fx->was);
        fx->record = true;
        f->period++;
    }
    f->expected = expect(f, fx->was.rate);
    int64_t period_ns = (int64_t)(1e9 * f->opt.period_s / f->opt.clock);
    /* Late ticks add up to nothing. */
    bool late = !f->begun || ru_time_since(t->now, f->since) > 2 * period_ns;
    f->since = late ? t->now : ru_time_after(f->since, period_ns);
    f->last = t->now;
    f->begun = true;
    f->requests = 0;
    f->heard = 0;
    ru_status st = plan(f, fx, err);
    for (uint32_t k = 0; k < f->n; k++) {
        f->was_limited[k] = f->one[k].limited;
    }
    return st;
}
