#include "burst/pace.h"

#include <math.h>
#include <stdio.h>

#include "base/str.h"
#include "burst/pace_impl.h"
#include "cost/math/quantile.h"

enum { DOWN_MIN = 8, DOWN_MAX = 64, REQUESTS_MIN = 20, CLOSED_MIN = 3 };

static const double settle_share = 0.2; /* of a window of the profile: its load begins */
static const double open_below = 0.75;  /* of the rate that so many clients would cause */
static const double drift_gain = 0.3, drift_min = 0.5, drift_max = 2;
static const double busy_max = 0.9; /* of a resource that clients who wait keep busy */
static const double margin_gain = 0.1, margin_max = 0.5, late_share = 0.05;
static const double clients_min = 0.9; /* fewer do not wait for answers: there is one at least */
static const double more_clients = 2;
static const double late_by = 1.5; /* of what was predicted: else it is chance */

static ru_status check_resource(const ru_pace_resource *o, ru_err *err)
{
    RU_CHECK(o->servers > 0 && o->rate_min > 0);
    if (!(o->rules.earn > 0) || o->rules.earn >= o->rules.burst) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the %s earns %g credits an hour and uses %g at full speed, so there is "
                       "nothing to save; expected fewer than it uses",
                       o->name, o->rules.earn * 3600, o->rules.burst * 3600);
    }
    if (o->begin.earned > o->rules.cap) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: a level of %g credits is above the cap of %g",
                       o->name, o->begin.earned, o->rules.cap);
    }
    return RU_OK;
}

ru_status ru_pace_init(ru_pace *p, const ru_pace_options *o, uint64_t seed, ru_err *err)
{
    *p = (ru_pace){.opt = *o,
                   .think_s = o->think_s,
                   .drift = 1,
                   .margin = o->margin,
                   .down = DOWN_MIN,
                   .predicted_s = (double)NAN,
                   .rng = ru_rng_from(seed, 1)};
    RU_CHECK(o->n > 0 && o->n <= RU_PACE_RESOURCES);
    for (uint32_t i = 0; i < o->n; i++) {
        RU_TRY(check_resource(&o->at[i], err));
        p->bucket[i] = o->at[i].begin;
        p->speed[i] = 1;
        p->level_predicted[i] = (double)NAN;
    }
    for (uint32_t k = 1; k < RU_PACE_LOADS; k++) {
        if ((o->clients[0] != 0) != (o->clients[k] != 0) ||
            (o->clients[0] != 0 && o->clients[k] <= o->clients[k - 1])) {
            return RU_FAIL(err, RU_E_CONFIG, "a profile needs %d rising numbers of clients",
                           RU_PACE_LOADS);
        }
    }
    ru_arena_init(&p->arena, 0);
    return RU_OK;
}

void ru_pace_fini(ru_pace *p)
{
    ru_arena_fini(&p->arena);
}

/* -- what is in force ----------------------------------------------------------------------------
 */

static void all_full(ru_pace *p)
{
    for (uint32_t i = 0; i < p->opt.n; i++) {
        p->speed[i] = 1;
    }
}

/* Of a load: full speed first, then one resource after the other, ever slower. */
static void speeds_of(ru_pace *p, uint32_t point)
{
    uint32_t k = point % rui_pace_points(p);
    all_full(p);
    if (k > 0) {
        uint32_t slower = (k - 1) % RU_PACE_SLOWER + 1;
        p->speed[(k - 1) / RU_PACE_SLOWER] -= (1 - p->opt.speed_min) * slower / RU_PACE_SLOWER;
    }
}

/* An empty bucket leaves what it earns, as the machine itself would. */
static void put_quota(ru_pace *p, ru_pace_effects *fx)
{
    for (uint32_t i = 0; i < p->opt.n; i++) {
        const ru_pace_resource *o = &p->opt.at[i];
        double rate = p->speed[i] * o->rules.burst;
        if (p->limited[i]) {
            rate = fmin(rate, o->rules.earn);
        }
        rate = fmax(rate, o->rate_min);
        if (rate != p->rate[i]) {
            p->rate[i] = fx->rate[i] = rate;
            fx->quota[i] = true;
        }
    }
}

static bool any(const ru_pace *p, const bool *of)
{
    bool is = false;
    for (uint32_t i = 0; i < p->opt.n; i++) {
        is = is || of[i];
    }
    return is;
}

static bool slowed(const ru_pace *p)
{
    bool is = false;
    for (uint32_t i = 0; i < p->opt.n; i++) {
        is = is || p->speed[i] < 1;
    }
    return is;
}

static void begin_window(ru_pace *p, ru_time now)
{
    p->sum.begun = now;
    p->sum.latency_s = 0;
    p->sum.requests = p->sum.heard = p->sum.n = 0;
    for (uint32_t i = 0; i < p->opt.n; i++) {
        p->sum.used[i] = 0;
        p->sum.empty[i] = p->limited[i];
    }
}

static void begin_point(ru_pace *p, ru_pace_effects *fx)
{
    speeds_of(p, p->point);
    p->settling = true;
    if (p->opt.clients[0] != 0) {
        fx->load = true;
        fx->clients = p->opt.clients[p->point / rui_pace_points(p)];
    }
}

static void account(ru_pace *p, const ru_pace_tick *t)
{
    double dt_s = 1e-9 * (double)ru_time_since(t->now, p->last);
    p->last = t->now;
    for (uint32_t i = 0; i < p->opt.n && dt_s > 0; i++) {
        RU_CHECK(t->used[i] >= 0);
        ru_credit_rules r = p->opt.at[i].rules;
        r.burst = fmax(r.burst, t->used[i] / dt_s); /* the kernel may let a little more pass */
        (void)ru_credit_run(&r, &p->bucket[i], t->used[i] / dt_s, dt_s * p->opt.clock);
        double level = ru_credit_level(&p->bucket[i]);
        bool was = p->limited[i];
        p->limited[i] = level <= 0 || (was && level < r.burst * dt_s * p->opt.clock * 2);
        p->sum.empty[i] = p->sum.empty[i] || p->limited[i];
    }
}

static void hear(ru_pace *p, const ru_pace_tick *t)
{
    ru_pace_sum *s = &p->sum;
    RU_CHECK(t->n <= t->requests);
    for (uint32_t i = 0; i < p->opt.n; i++) {
        s->used[i] += t->used[i];
    }
    s->requests += t->requests;
    for (uint32_t k = 0; k < t->n; k++) {
        s->latency_s += t->latency_s[k];
        uint32_t at = s->heard < RU_PACE_HEARD ? s->heard : ru_rng_below(&p->rng, s->heard + 1);
        s->heard++;
        s->n = s->heard < RU_PACE_HEARD ? s->heard : RU_PACE_HEARD;
        if (at < RU_PACE_HEARD) {
            s->kept[at] = t->latency_s[k];
        }
    }
}

/* -- the decision --------------------------------------------------------------------------------
 */

/* How many clients the next window has: the mean of the last ones, or what the last jump reached.
 */
static double forecast(ru_pace *p, double clients)
{
    double last = p->n_recent > 0 ? p->recent[(p->n_recent - 1) % 3] : clients, sum = 0;
    if (fabs(clients - last) > 0.2 * last) {
        p->n_recent = 0;
    }
    p->recent[p->n_recent++ % 3] = clients;
    uint32_t n = p->n_recent < 3 ? p->n_recent : 3;
    for (uint32_t k = 0; k < n; k++) {
        sum += p->recent[k];
    }
    return sum / n;
}

static void full(ru_pace *p)
{
    p->phase = RU_PACE_FULL;
    all_full(p);
}

/* A slower window showed that throttling saves nothing, or costs more than the model knows: clients
 * who wait for answers do not become more by waiting. */
static bool failed(ru_pace *p, const ru_pace_record *r, bool *late)
{
    *late = r->latency_s > p->opt.slo_s && r->latency_s > late_by * r->predicted_s;
    bool trial = p->phase == RU_PACE_TRIAL, held = p->phase == RU_PACE_HOLD;
    return (trial && (*late || r->rate > 0.3 * p->rate_full + 0.7 * p->rate_expected)) ||
           (held && *late && r->clients > more_clients * p->load);
}

static void stand_down(ru_pace *p, ru_pace_record *r, bool late)
{
    ru_text t = ru_text_into(r->why, sizeof r->why);
    full(p);
    p->down_until = p->window + p->down;
    ru_text_putf(&t, "stands down for %u windows: at speed %.2f", p->down, r->at[0].speed);
    for (uint32_t i = 1; i < p->opt.n; i++) {
        ru_text_putf(&t, " and %.2f", r->at[i].speed);
    }
    ru_text_put(&t, late ? " it was late"
                         : " as many requests came as before, so throttling saves no credits");
    p->down = p->down * 2 < DOWN_MAX ? p->down * 2 : DOWN_MAX;
}

static void obey(ru_pace *p, const ru_burst_plan *plan, ru_pace_record *r)
{
    bool slower = false, forever = true;
    RU_CHECK(plan->n == p->n_of);
    for (uint32_t i = 0; i < plan->n; i++) {
        RU_CHECK(plan->speed[i] > 0 && plan->speed[i] <= 1);
        slower = slower || plan->speed[i] < 1;
        forever = forever && isinf(plan->empty_s[i]);
    }
    r->stretch = plan->stretch;
    if (slower && p->phase == RU_PACE_FULL && p->window < p->down_until) {
        (void)snprintf(r->why, sizeof r->why, "stands down until window %u", p->down_until);
        slower = false;
    } else if (plan->action == RU_BURST_SWITCH && plan->latency_s > p->opt.slo_s) {
        (void)snprintf(r->why, sizeof r->why,
                       "late even at full speed: this load needs another machine");
    } else if (plan->action == RU_BURST_SWITCH) {
        (void)snprintf(r->why, sizeof r->why,
                       "credits end within the reserve: this load needs another machine");
    } else if (slower) {
        (void)snprintf(r->why, sizeof r->why, "the slowest speed%s that keep%s the objective",
                       plan->n > 1 ? "s" : "", plan->n > 1 ? "" : "s");
    } else {
        (void)snprintf(r->why, sizeof r->why, "%s",
                       forever ? "credits do not end at full speed"
                               : "throttling would save too little");
    }
    if (!slower) {
        full(p);
        return;
    }
    if (p->phase == RU_PACE_FULL && p->closed < CLOSED_MIN) {
        full(p);
        (void)snprintf(r->why, sizeof r->why, "looks once more whether requests wait for answers");
        return;
    }
    bool trial = p->phase == RU_PACE_FULL;
    all_full(p);
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t of = p->of[i];
        double busy = r->rate * p->need[of] / p->opt.at[of].rules.burst;
        p->speed[of] =
            trial && busy < busy_max ? fmax(plan->speed[i], (1 + busy) / 2) : plan->speed[i];
    }
    p->rate_full = trial ? r->rate : p->rate_full;
    p->phase = trial ? RU_PACE_TRIAL : RU_PACE_HOLD;
}

static void decide(ru_pace *p, ru_pace_record *r)
{
    ru_burst_plan plan;
    const double full_speed[RU_PACE_RESOURCES] = {1, 1, 1};
    ru_err err = {0};
    bool late, other = false;
    if (failed(p, r, &late)) {
        stand_down(p, r, late);
        return;
    }
    p->down = p->phase == RU_PACE_HOLD ? DOWN_MIN : p->down;
    double load = p->load = r->open ? r->rate : forecast(p, r->clients), at_full;
    ru_status st = rui_pace_ask(p, r->open, load, r, &plan, &err);
    if (st != RU_OK) {
        full(p);
        (void)snprintf(r->why, sizeof r->why, "full speed: %.200s", err.text);
        return;
    }
    obey(p, &plan, r);
    double rate = plan.rate;
    r->next_s = plan.latency_s;
    for (uint32_t i = 0; i < plan.n; i++) {
        other = other || p->speed[p->of[i]] != plan.speed[i];
    }
    if (other && !r->open) {
        r->next_s = p->drift * rui_pace_modelled(p, load, p->speed, &rate);
    }
    (void)rui_pace_modelled(p, load, full_speed, &at_full);
    p->rate_expected = r->rate * rate / at_full; /* of a trial, from full speed */
    for (uint32_t i = 0; i < p->opt.n; i++) {
        ru_credit next = p->bucket[i];
        (void)ru_credit_run(&p->opt.at[i].rules, &next, rate * p->need[i],
                            1e-9 * (double)p->opt.window_ns * p->opt.clock);
        p->level_predicted[i] = ru_credit_level(&next);
    }
}

/* -- windows -------------------------------------------------------------------------------------
 */

static void measure(ru_pace *p, ru_time now, ru_pace_record *r)
{
    ru_pace_sum *s = &p->sum;
    double took_s = 1e-9 * (double)ru_time_since(now, s->begun);
    double mean_s = s->heard > 0 ? s->latency_s / s->heard : 0;
    *r = (ru_pace_record){.window = p->window,
                          .phase = p->phase,
                          .empty = any(p, s->empty),
                          .rate = s->requests / took_s,
                          .latency_s = (double)NAN,
                          .predicted_s = p->predicted_s,
                          .next_s = (double)NAN,
                          .stretch = 1};
    for (uint32_t i = 0; i < p->opt.n; i++) {
        r->at[i] = (ru_pace_bucket){.speed = p->speed[i],
                                    .empty = s->empty[i],
                                    .level = ru_credit_level(&p->bucket[i]),
                                    .level_predicted = p->level_predicted[i],
                                    .use = s->used[i] / took_s};
        r->at[i].empty_s = ru_credit_empty_s(&p->opt.at[i].rules, &p->bucket[i], r->at[i].use);
    }
    if (s->n > 0) {
        ru_sort_f64(s->kept, s->n);
        r->latency_s = ru_quantile_sorted(s->kept, s->n, p->opt.quantile, RU_QUANTILE_LINEAR);
    }
    bool profile = p->phase == RU_PACE_PROFILE && p->opt.clients[0] != 0, needed = false;
    if (s->requests >= REQUESTS_MIN) {
        for (uint32_t i = 0; i < p->opt.n; i++) {
            double need = s->used[i] / s->requests;
            p->need[i] = p->need[i] > 0 ? 0.7 * p->need[i] + 0.3 * need : need;
            needed = needed || rui_pace_needs(p, i);
        }
        if (profile && p->point == 0) {
            rui_pace_learn_think(p, r->rate, p->opt.clients[0], mean_s);
        }
    }
    r->clients =
        profile ? p->opt.clients[p->point / rui_pace_points(p)] : r->rate * (mean_s + p->think_s);
    if (needed && !profile && !r->empty) {
        double would;
        (void)rui_pace_modelled(p, r->clients, p->speed, &would);
        /* A late one is rather a machine with other work. */
        r->open = (r->clients < clients_min || r->rate < open_below * would) &&
                  r->latency_s <= p->opt.slo_s;
    }
}

/* How far the measured quantile lies above the model at what really came. */
static void learn_drift(ru_pace *p, const ru_pace_record *r)
{
    double rate, is = rui_pace_modelled(p, r->clients, p->speed, &rate);
    if (is > 0) {
        double ratio = fmin(fmax(r->latency_s / is, drift_min), drift_max);
        p->drift =
            fmin(fmax(p->drift * (1 - drift_gain) + drift_gain * ratio, drift_min), drift_max);
    }
}

static void learn_margin(ru_pace *p, const ru_pace_record *r)
{
    double late = slowed(p) && r->latency_s > p->opt.slo_s;
    p->margin = fmin(fmax(p->margin + margin_gain * (late - late_share), p->opt.margin),
                     fmax(margin_max, p->opt.margin));
}

/* Without a load of its own the profile leaves out speeds below one that was late. */
static void next_point(ru_pace *p, const ru_pace_record *r)
{
    const uint32_t points = rui_pace_points(p);
    uint32_t was = p->point++ % points;
    bool late = p->opt.clients[0] == 0 && r->latency_s > p->opt.slo_s;
    while (late && p->point % points != 0 &&
           (was == 0 || (p->point % points - 1) % RU_PACE_SLOWER != 0)) {
        p->point++;
    }
}

static void end_window(ru_pace *p, ru_time now, ru_pace_effects *fx)
{
    ru_pace_record *r = &fx->window;
    const uint32_t points = rui_pace_points(p) * RU_PACE_LOADS;
    ru_err err = {0};
    measure(p, now, r);
    for (uint32_t i = 0; i < p->opt.n; i++) {
        p->level_predicted[i] = (double)NAN;
    }
    p->closed = r->open || p->phase == RU_PACE_PROFILE ? 0 : p->closed + 1;
    bool good = !r->empty && !r->open && p->sum.n >= REQUESTS_MIN;
    if (good) {
        if (p->phase != RU_PACE_PROFILE) {
            learn_drift(p, r);
            learn_margin(p, r);
        }
        rui_pace_keep(p, r->clients);
    }
    if (p->phase == RU_PACE_PROFILE) {
        next_point(p, r);
        (void)snprintf(r->why, sizeof r->why, "profile, %u of %u", p->point, points);
        if (p->point >= points) {
            full(p);
            fx->load = p->settling = p->opt.clients[0] != 0; /* it has to drain */
        }
    }
    if (p->phase != RU_PACE_PROFILE) {
        ru_status st = good ? rui_pace_fit(p, &err) : RU_OK;
        if (p->fitted && p->sum.requests >= REQUESTS_MIN && !fx->load) {
            decide(p, r);
        } else if (!fx->load) {
            full(p);
            (void)snprintf(r->why, sizeof r->why, "full speed: %.200s",
                           r->empty      ? "the bucket is empty"
                           : st != RU_OK ? err.text
                                         : "too few requests came");
        }
    } else {
        begin_point(p, fx);
    }
    p->predicted_s = any(p, p->limited) ? (double)NAN : r->next_s;
    for (uint32_t i = 0; i < p->opt.n; i++) {
        r->at[i].next_speed = p->speed[i];
    }
    fx->record = true;
    p->window++;
    begin_window(p, now);
}

/* By time until a bucket is empty, not by its level. One at a time: another in the next window. */
static void watch(ru_pace *p, ru_pace_effects *fx)
{
    for (uint32_t i = 0; i < p->opt.n; i++) {
        const ru_pace_bucket *r = &fx->window.at[i];
        const ru_credit_rules *rules = &p->opt.at[i].rules;
        bool short_of = r->empty_s < p->opt.reserve_s;
        if (short_of && !p->alarmed[i]) {
            if (fx->alarm[0] != 0) {
                continue;
            }
            (void)snprintf(
                fx->alarm, sizeof fx->alarm,
                "credits of the %s end in %.0f s of the bucket's clock at this use (%.4g "
                "are left); send requests to another machine",
                p->opt.at[i].name, r->empty_s, r->level);
        }
        /* An empty bucket lets nothing use more than is earned: that alone is no end of it. */
        double full_s = ru_credit_empty_s(rules, &p->bucket[i], rules->burst);
        p->alarmed[i] = short_of || (p->alarmed[i] && full_s < 1.5 * p->opt.reserve_s &&
                                     r->level < 0.5 * rules->cap);
    }
}

void ru_pace_step(ru_pace *p, const ru_pace_tick *t, ru_pace_effects *fx)
{
    *fx = (ru_pace_effects){0};
    ru_arena_fini(&p->arena);
    ru_arena_init(&p->arena, 0);
    if (!p->begun) {
        p->begun = true;
        p->last = t->now;
        if (p->phase == RU_PACE_PROFILE) {
            begin_point(p, fx);
        }
        begin_window(p, t->now);
        put_quota(p, fx);
        return;
    }
    account(p, t);
    int64_t into_ns = ru_time_since(t->now, p->sum.begun);
    if (p->settling) {
        if ((double)into_ns >= settle_share * (double)p->opt.window_ns) {
            p->settling = false;
            begin_window(p, t->now);
        }
    } else {
        hear(p, t);
        if (into_ns >= p->opt.window_ns) {
            end_window(p, t->now, fx);
            watch(p, fx);
        }
    }
    put_quota(p, fx);
}
