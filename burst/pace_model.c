/* The latency model of a service, and what the policy is asked with it. */
#include <math.h>
#include <string.h>

#include "burst/pace_impl.h"
#include "cost/math/quantile.h"
#include "plan/row/policy.h"

enum { GRID = 17 };

static ru_burst_resource resource_of(const ru_pace *p)
{
    return (ru_burst_resource){.name = p->opt.resource,
                               .rules = p->opt.rules,
                               .now = p->bucket,
                               .need = p->need,
                               .servers = p->opt.servers};
}

static uint32_t whole(double clients)
{
    return (uint32_t)fmin(fmax(1, floor(clients + 0.5)), RU_BURST_CLIENTS_MAX);
}

/* Rate and quantile of so many clients at a speed, as the model has them; NAN without one. */
double rui_pace_modelled(const ru_pace *p, double clients, double speed, double *rate)
{
    const ru_burst_resource r = resource_of(p);
    const ru_burst_load load = {.clients = whole(clients), .think_s = p->think_s + p->delay_s};
    double x[RU_BURST_FEATURES_MAX], sum = 0;
    ru_queue_mean mean;
    (void)ru_burst_features(&r, 1, &load, &speed, x, &mean); /* a closed loop is always served */
    for (uint32_t i = 0; i < ru_burst_features_n(1); i++) {
        sum += p->model[i] * x[i];
    }
    *rate = mean.rate;
    return p->fitted ? sum : (double)NAN;
}

/* What the least load of a profile at full speed tells of its clients: the time until they ask
 * again, and the part of an answer in which they do not wait for the processor. */
void rui_pace_learn_think(ru_pace *p, double rate, double clients, double mean_s)
{
    RU_CHECK(rate > 0 && clients >= 1);
    double low = 0, high = clients / rate, got;
    p->think_s = fmax(0, clients / rate - mean_s);
    p->delay_s = -p->think_s;
    (void)rui_pace_modelled(p, clients, 1, &got);
    p->delay_s = 0;
    for (uint32_t k = 0; k < 50 && got > rate; k++) {
        double middle = (low + high) / 2, at;
        p->delay_s = middle - p->think_s;
        (void)rui_pace_modelled(p, clients, 1, &at);
        low = at > rate ? middle : low;
        high = at > rate ? high : middle;
    }
    p->delay_s = fmax(p->delay_s, 0);
}

void rui_pace_keep(ru_pace *p, double clients, double speed)
{
    ru_pace_kept *k = &p->kept[p->next_kept];
    const ru_pace_sum *s = &p->sum;
    RU_CHECK(s->n > 0 && s->n <= RU_PACE_HEARD && speed > 0);
    *k = (ru_pace_kept){.load = clients, .speed = speed};
    for (uint32_t i = 0; i < RU_PACE_DRAWN; i++) {
        k->latency_s[i] =
            ru_quantile_sorted(s->kept, s->n, (i + 0.5) / RU_PACE_DRAWN, RU_QUANTILE_LINEAR);
    }
    /* The profile stays: windows at one speed and load alone fit no model. */
    p->next_kept =
        p->next_kept + 1 < RU_PACE_KEPT ? p->next_kept + 1 : RU_PACE_SPEEDS * RU_PACE_LOADS;
    p->n_kept = p->n_kept < RU_PACE_KEPT ? p->n_kept + 1 : RU_PACE_KEPT;
}

ru_status rui_pace_fit(ru_pace *p, ru_err *err)
{
    uint32_t m = 0;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_burst_sample *s = RU_NEW(&scratch, ru_burst_sample, RU_PACE_KEPT * RU_PACE_DRAWN);
    for (uint32_t k = 0; s != NULL && k < p->n_kept; k++) {
        for (uint32_t i = 0; i < RU_PACE_DRAWN; i++) {
            s[m++] = (ru_burst_sample){.load = whole(p->kept[k].load),
                                       .speed = {p->kept[k].speed},
                                       .latency_s = p->kept[k].latency_s[i]};
        }
    }
    const ru_burst_resource r = resource_of(p);
    const ru_burst_load load = {.think_s = p->think_s + p->delay_s};
    const double *model;
    ru_status st =
        s == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a profile")
        : !(p->need > 0)
            ? RU_FAIL(err, RU_E_ARG,
                      "requests came, but the service used nothing of the %s; is it the one that "
                      "pid_file names?",
                      p->opt.resource)
        : m < ru_burst_features_n(1)
            ? RU_FAIL(err, RU_E_ARG, "too few requests were measured")
            : ru_burst_fit(&r, 1, &load, s, m, p->opt.quantile, &scratch, &scratch, &model, err);
    if (st == RU_OK) {
        memcpy(p->model, model, ru_burst_features_n(1) * sizeof *model);
        p->fitted = true;
    }
    ru_arena_fini(&scratch);
    return st;
}

uint32_t ru_pace_save(const ru_pace *p, double into[RU_PACE_SAVED])
{
    const double head[3] = {p->need, p->think_s, p->delay_s};
    uint32_t n = RU_ARRAY_LEN(head);
    memcpy(into, head, sizeof head);
    for (uint32_t k = 0; k < p->n_kept; k++) {
        into[n++] = p->kept[k].load;
        into[n++] = p->kept[k].speed;
        memcpy(&into[n], p->kept[k].latency_s, sizeof p->kept[k].latency_s);
        n += RU_PACE_DRAWN;
    }
    return n;
}

void ru_pace_resume(ru_pace *p, const double *from, uint32_t n)
{
    const uint32_t width = 2 + RU_PACE_DRAWN, windows = n > 3 ? (n - 3) / width : 0;
    ru_err err;
    bool good = windows >= RU_PACE_SPEEDS * RU_PACE_LOADS && n == 3 + windows * width &&
                n <= RU_PACE_SAVED && from[0] > 0;
    for (uint32_t i = 3; i < n && good; i++) {
        good = from[i] > 0 || ((i - 3) % width > 1 && from[i] == 0);
    }
    if (!good) {
        return;
    }
    p->need = from[0];
    p->think_s = from[1];
    p->delay_s = from[2];
    for (uint32_t k = 0; k < windows; k++) {
        const double *at = &from[3 + k * width];
        p->kept[k] = (ru_pace_kept){.load = at[0], .speed = at[1]};
        memcpy(p->kept[k].latency_s, &at[2], sizeof p->kept[k].latency_s);
    }
    p->n_kept = windows;
    p->next_kept = windows < RU_PACE_KEPT ? windows : RU_PACE_SPEEDS * RU_PACE_LOADS;
    p->phase = rui_pace_fit(p, &err) == RU_OK ? RU_PACE_FULL : RU_PACE_PROFILE;
}

static const char *question(ru_pace *p, bool open, double load)
{
    const ru_pace_options *o = &p->opt;
    const ru_burst_resource r = resource_of(p);
    ru_text t = ru_text_arena(&p->arena);
    ru_text_putf(&t,
                 "{\"resources\":[{\"name\":\"%s\",\"earn\":%.17g,\"cap\":%.17g,\"burst\":%.17g,"
                 "\"level\":%.17g,\"launch\":%.17g,\"need\":%.17g,\"servers\":%u}],",
                 r.name, r.rules.earn, r.rules.cap, r.rules.burst, r.now.earned, r.now.launch,
                 r.need, r.servers);
    if (open) {
        ru_text_putf(&t, "\"load\":{\"rate\":%.17g},", load);
    } else {
        ru_text_putf(&t, "\"load\":{\"clients\":{\"n\":%u,\"think_s\":%.17g}},", whole(load),
                     p->think_s + p->delay_s);
    }
    for (uint32_t i = 0; i < ru_burst_features_n(1); i++) {
        ru_text_putf(&t, "%s%.17g", i == 0 ? "\"model\":[" : ",", p->model[i] * p->drift);
    }
    ru_text_putf(&t,
                 "],\"slo_s\":%.17g,\"quantile\":%.17g,\"margin\":%.17g,\"gain_min\":%.17g,"
                 "\"reserve_s\":%.17g,\"speed_min\":%.17g,\"speeds\":%d}",
                 o->slo_s, o->quantile, p->margin, o->gain_min, o->reserve_s, o->speed_min, GRID);
    return t.cut ? NULL : t.p;
}

ru_status rui_pace_ask(ru_pace *p, bool open, double load, ru_pace_record *r, ru_burst_plan *plan,
                       ru_err *err)
{
    RU_CHECK(p->fitted && p->need > 0);
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
