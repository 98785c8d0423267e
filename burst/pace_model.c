/* The latency model of a service, and what the policy is asked with it. */
#include <math.h>
#include <string.h>

#include "burst/pace_impl.h"
#include "cost/math/quantile.h"
#include "plan/row/policy.h"

enum { GRID = 17, GRID_OF_SEVERAL = 9 };

uint32_t rui_pace_points(const ru_pace *p)
{
    return 1 + RU_PACE_SLOWER * p->opt.n;
}

/* What a service used once is not what its requests need. Its mean falls then without becoming 0,
 * and coefficients of the model grow beyond what a question may have. */
static const double least_share = 1e-7; /* of the objective, at full speed */

bool rui_pace_needs(const ru_pace *p, uint32_t i)
{
    return p->need[i] > least_share * p->opt.slo_s * p->opt.at[i].rules.burst;
}

static uint32_t needed(const ru_pace *p, uint32_t of[RU_PACE_RESOURCES])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->opt.n; i++) {
        of[n] = i;
        n += rui_pace_needs(p, i);
    }
    return n;
}

static uint32_t resources_of(const ru_pace *p, const uint32_t *of, uint32_t n, ru_burst_resource *r)
{
    for (uint32_t i = 0; i < n; i++) {
        const ru_pace_resource *o = &p->opt.at[of[i]];
        r[i] = (ru_burst_resource){.name = o->name,
                                   .rules = o->rules,
                                   .now = p->bucket[of[i]],
                                   .need = p->need[of[i]],
                                   .servers = o->servers};
    }
    return n;
}

static uint32_t whole(double clients)
{
    return (uint32_t)fmin(fmax(1, floor(clients + 0.5)), RU_BURST_CLIENTS_MAX);
}

/* Without a model: of those needed. */
double rui_pace_modelled(const ru_pace *p, double clients, const double *speed, double *rate)
{
    uint32_t of[RU_PACE_RESOURCES] = {0}, n = p->fitted ? p->n_of : needed(p, of);
    const uint32_t *whose = p->fitted ? p->of : of;
    ru_burst_resource r[RU_PACE_RESOURCES];
    double at[RU_PACE_RESOURCES];
    (void)resources_of(p, whose, n, r);
    for (uint32_t i = 0; i < n; i++) {
        at[i] = speed[whose[i]];
    }
    const ru_burst_load load = {.clients = whole(clients), .think_s = p->think_s + p->delay_s};
    double x[RU_BURST_FEATURES_MAX], sum = 0;
    ru_queue_mean mean;
    (void)ru_burst_features(r, n, &load, at, x, &mean); /* a closed loop is always served */
    for (uint32_t i = 0; i < ru_burst_features_n(n); i++) {
        sum += p->model[i] * x[i];
    }
    *rate = mean.rate;
    return p->fitted ? sum : (double)NAN;
}

/* What the least load of a profile at full speed tells of its clients: the time until they ask
 * again, and the part of an answer in which they do not wait for these resources. */
void rui_pace_learn_think(ru_pace *p, double rate, double clients, double mean_s)
{
    const double full[RU_PACE_RESOURCES] = {1, 1, 1};
    RU_CHECK(rate > 0 && clients >= 1);
    double low = 0, high = clients / rate, got;
    p->think_s = fmax(0, clients / rate - mean_s);
    p->delay_s = -p->think_s;
    (void)rui_pace_modelled(p, clients, full, &got);
    p->delay_s = 0;
    for (uint32_t k = 0; k < 50 && got > rate; k++) {
        double middle = (low + high) / 2, at;
        p->delay_s = middle - p->think_s;
        (void)rui_pace_modelled(p, clients, full, &at);
        low = at > rate ? middle : low;
        high = at > rate ? high : middle;
    }
    p->delay_s = fmax(p->delay_s, 0);
}

void rui_pace_keep(ru_pace *p, double clients)
{
    ru_pace_kept *k = &p->kept[p->next_kept];
    const ru_pace_sum *s = &p->sum;
    RU_CHECK(s->n > 0 && s->n <= RU_PACE_HEARD);
    *k = (ru_pace_kept){.load = clients};
    memcpy(k->speed, p->speed, sizeof k->speed);
    for (uint32_t i = 0; i < RU_PACE_DRAWN; i++) {
        k->latency_s[i] =
            ru_quantile_sorted(s->kept, s->n, (i + 0.5) / RU_PACE_DRAWN, RU_QUANTILE_LINEAR);
    }
    /* The profile stays: windows at one speed and load alone fit no model. */
    p->next_kept =
        p->next_kept + 1 < RU_PACE_KEPT ? p->next_kept + 1 : rui_pace_points(p) * RU_PACE_LOADS;
    p->n_kept = p->n_kept < RU_PACE_KEPT ? p->n_kept + 1 : RU_PACE_KEPT;
}

ru_status rui_pace_fit(ru_pace *p, ru_err *err)
{
    uint32_t m = 0, of[RU_PACE_RESOURCES] = {0}, n = needed(p, of);
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_burst_sample *s = RU_NEW(&scratch, ru_burst_sample, RU_PACE_KEPT * RU_PACE_DRAWN);
    for (uint32_t k = 0; s != NULL && k < p->n_kept; k++) {
        for (uint32_t i = 0; i < RU_PACE_DRAWN; i++) {
            s[m] = (ru_burst_sample){.load = whole(p->kept[k].load),
                                     .latency_s = p->kept[k].latency_s[i]};
            for (uint32_t a = 0; a < n; a++) {
                s[m].speed[a] = p->kept[k].speed[of[a]];
            }
            m++;
        }
    }
    ru_burst_resource r[RU_PACE_RESOURCES];
    (void)resources_of(p, of, n, r);
    const ru_burst_load load = {.think_s = p->think_s + p->delay_s};
    const double *model;
    ru_status st =
        s == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a profile")
        : n == 0
            ? RU_FAIL(err, RU_E_ARG,
                      "requests came, but the service used nothing of the %s; is it the one that "
                      "pid_file names?",
                      p->opt.n == 1 ? p->opt.at[0].name : "resources")
        : m < ru_burst_features_n(n)
            ? RU_FAIL(err, RU_E_ARG, "too few requests were measured")
            : ru_burst_fit(r, n, &load, s, m, p->opt.quantile, &scratch, &scratch, &model, err);
    if (st == RU_OK) {
        memcpy(p->model, model, ru_burst_features_n(n) * sizeof *model);
        memcpy(p->of, of, sizeof p->of);
        p->n_of = n;
        p->fitted = true;
    }
    ru_arena_fini(&scratch);
    return st;
}

uint32_t ru_pace_save(const ru_pace *p, double into[RU_PACE_SAVED])
{
    uint32_t n = p->opt.n;
    memcpy(into, p->need, n * sizeof *into);
    into[n++] = p->think_s;
    into[n++] = p->delay_s;
    for (uint32_t k = 0; k < p->n_kept; k++) {
        into[n++] = p->kept[k].load;
        for (uint32_t i = 0; i < p->opt.n; i++) {
            into[n++] = p->kept[k].speed[i];
        }
        memcpy(&into[n], p->kept[k].latency_s, sizeof p->kept[k].latency_s);
        n += RU_PACE_DRAWN;
    }
    return n;
}

void ru_pace_resume(ru_pace *p, const double *from, uint32_t n)
{
    const uint32_t of = p->opt.n, head = of + 2, width = 1 + of + RU_PACE_DRAWN;
    const uint32_t windows = n > head ? (n - head) / width : 0;
    ru_err err;
    bool good = windows >= rui_pace_points(p) * RU_PACE_LOADS && n == head + windows * width &&
                windows <= RU_PACE_KEPT;
    for (uint32_t i = 0; i < n && good; i++) {
        bool may = i < head || (i - head) % width > of;
        good = from[i] > 0 || (may && from[i] == 0);
    }
    if (!good) {
        return;
    }
    memcpy(p->need, from, of * sizeof *from);
    p->think_s = from[of];
    p->delay_s = from[of + 1];
    for (uint32_t k = 0; k < windows; k++) {
        const double *at = &from[head + k * width];
        p->kept[k] = (ru_pace_kept){.load = at[0]};
        memcpy(p->kept[k].speed, &at[1], of * sizeof *at);
        memcpy(p->kept[k].latency_s, &at[1 + of], sizeof p->kept[k].latency_s);
    }
    p->n_kept = windows;
    p->next_kept = windows < RU_PACE_KEPT ? windows : rui_pace_points(p) * RU_PACE_LOADS;
    p->phase = rui_pace_fit(p, &err) == RU_OK ? RU_PACE_FULL : RU_PACE_PROFILE;
}

static const char *question(ru_pace *p, bool open, double load)
{
    const ru_pace_options *o = &p->opt;
    ru_burst_resource at[RU_PACE_RESOURCES];
    const uint32_t n = resources_of(p, p->of, p->n_of, at);
    ru_text t = ru_text_arena(&p->arena);
    for (uint32_t i = 0; i < n; i++) {
        const ru_burst_resource r = at[i];
        ru_text_putf(&t,
                     "%s{\"name\":\"%s\",\"earn\":%.17g,\"cap\":%.17g,\"burst\":%.17g,"
                     "\"level\":%.17g,\"launch\":%.17g,\"need\":%.17g,\"servers\":%u}",
                     i == 0 ? "{\"resources\":[" : ",", r.name, r.rules.earn, r.rules.cap,
                     r.rules.burst, r.now.earned, r.now.launch, r.need, r.servers);
    }
    if (open) {
        ru_text_putf(&t, "],\"load\":{\"rate\":%.17g},", load);
    } else {
        ru_text_putf(&t, "],\"load\":{\"clients\":{\"n\":%u,\"think_s\":%.17g}},", whole(load),
                     p->think_s + p->delay_s);
    }
    for (uint32_t i = 0; i < ru_burst_features_n(n); i++) {
        ru_text_putf(&t, "%s%.17g", i == 0 ? "\"model\":[" : ",", p->model[i] * p->drift);
    }
    ru_text_putf(&t,
                 "],\"slo_s\":%.17g,\"quantile\":%.17g,\"margin\":%.17g,\"gain_min\":%.17g,"
                 "\"reserve_s\":%.17g,\"speed_min\":%.17g,\"speeds\":%d}",
                 o->slo_s, o->quantile, p->margin, o->gain_min, o->reserve_s, o->speed_min,
                 n == 1 ? GRID : GRID_OF_SEVERAL);
    return t.cut ? NULL : t.p;
}

ru_status rui_pace_ask(ru_pace *p, bool open, double load, ru_pace_record *r, ru_burst_plan *plan,
                       ru_err *err)
{
    RU_CHECK(p->fitted && p->n_of > 0);
    const ru_policy *burst = &ru_policy_burst;
    ru_arena scratch;
    ru_conf *c;
    void *in = ru_arena_zalloc(&p->arena, burst->in->size_bytes, 64);
    r->input = question(p, open, load);
    if (r->input == NULL || in == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a question");
    }
    RU_TRY(ru_conf_new(burst->in, &p->arena, &c, err));
    RU_TRY(ru_conf_add_json(c, "the service", r->input, (int64_t)strlen(r->input), err));
    RU_TRY(ru_conf_apply(c, in, err));
    ru_hash128_text(ru_policy_head(burst, in).id, r->plan);
    ru_arena_init(&scratch, 0);
    const ru_policy_tools tools = {&p->arena, &scratch, NULL};
    ru_status st = burst->plan(in, &tools, plan, err);
    st = st == RU_OK ? burst->check(in, plan, &scratch, err) : st;
    ru_arena_fini(&scratch);
    return st;
}
