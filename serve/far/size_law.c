/* Requests that differ in size: buffers for sizes by the policy `route`, and what the law says of
 * them. */
#include <math.h>
#include <string.h>

#include "cost/arrive.h"
#include "serve/far/far_impl.h"

#define TOO_LONG 100 /* promises: batches that take longer are all alike */

/* -- the law -----------------------------------------------------------------------------------
 */

/* Seconds of up to b rows whose largest is of a class: [classes, b]. */
static const double *service_of(const rui_far *f, uint32_t memory, uint32_t b, ru_arena *a)
{
    double *s = RU_NEW(a, double, (int64_t)f->size->n *b);
    for (uint32_t i = 0; s != NULL && i < f->size->n * b; i++) {
        s[i] = fmin(rui_far_known_s(f, i / b, memory, i % b + 1), TOO_LONG * rui_far_slo_s(f));
    }
    return s;
}

/* The latency that such a part of a class keeps, by bisection. */
static void quantiles(const rui_far *f, const ru_route_mix *mix, const ru_batch_law *law,
                      const double *service, double *latency_s)
{
    double by_class[RU_ROUTE_CLASSES_MAX], allow[RUI_FAR_CLASSES];
    for (uint32_t j = 0; j < mix->n; j++) {
        double low = 0, high = 2 * TOO_LONG * rui_far_slo_s(f);
        for (uint32_t round = 0; round < 50; round++) {
            double mid = 0.5 * (low + high);
            for (uint32_t k = 0; k < f->size->n; k++) {
                allow[k] = mid;
            }
            (void)ru_route_met(mix, law, service, allow, by_class);
            bool kept = by_class[j] >= f->v->server->opt.slo_q;
            low = kept ? low : mid;
            high = kept ? mid : high;
        }
        uint32_t k = mix->class_of[j];
        high += f->facts.cold_s;
        latency_s[k] = fmax(latency_s[k], high); /* of buffers that share a class the later one */
    }
}

/* Sums over the batches of a buffer. */
typedef struct buffer_sums {
    double share, usd, busy_s, calls, own, padded; /* a request of all */
} buffer_sums;

static ru_status judge_buffer(rui_far *f, rui_far_routes *r, uint32_t i, const ru_markov *arrivals,
                              buffer_sums *s, ru_err *err)
{
    const rui_far_size *z = f->size;
    const ru_batch_choice *c = &r->at[i];
    ru_arena *a = &f->plan_arena;
    double share[RUI_FAR_CLASSES];
    ru_route_mix mix;
    ru_markov_law process;
    ru_batch_law law;
    for (uint32_t k = 0; k < z->n; k++) {
        share[k] = r->route[i * z->n + k] * z->share[k];
    }
    RU_TRY(ru_route_mix_of(share, z->n, c->batch, a, &mix, err));
    ru_markov part = ru_markov_thinned(arrivals, fmin(mix.share, 1));
    RU_TRY(ru_markov_solve(&part, &process, err));
    RU_TRY(
        ru_batch_law_of(&process, c->batch, c->batch == 1 ? 0 : c->timeout_s, 1, a, a, &law, err));
    const double *service = service_of(f, rui_far_memory(f, c->memory_mb), c->batch, a);
    if (service == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a choice");
    }
    quantiles(f, &mix, &law, service, r->latency_s);
    *s = (buffer_sums){.share = mix.share, .calls = mix.share / law.mean_batch};
    for (uint32_t b = 1; b <= c->batch; b++) {
        for (uint32_t j = 0; j < mix.n; j++) {
            double p = s->calls * law.size_p[b] * ru_route_largest(&mix, b, j);
            double took = service[mix.class_of[j] * c->batch + b - 1];
            s->usd += p * rui_far_call_usd(f, c->memory_mb, took);
            s->busy_s += p * (took + f->facts.cold_s);
            s->padded += p * b * z->bound[mix.class_of[j]];
        }
    }
    for (uint32_t j = 0; j < mix.n; j++) {
        s->own += mix.share * mix.p[j] * z->bound[mix.class_of[j]];
    }
    return RU_OK;
}

/* What the law says of these routes when requests come `times` as far from each other. */
static ru_status judge(rui_far *f, rui_far_routes *r, double times, rui_far_choice *out,
                       ru_err *err)
{
    ru_arrive_fit fit;
    buffer_sums all = {0};
    uint32_t batch = 1;
    ru_arena_rewind(&f->plan_arena, (ru_arena_mark){0});
    RU_TRY(ru_arrive_of(f->facts.gap_s, f->facts.n, &fit, err));
    for (uint32_t k = 0; k < fit.process.n * fit.process.n; k++) {
        fit.process.d0[k] /= times;
        fit.process.d1[k] /= times;
    }
    for (uint32_t k = 0; k < f->size->n; k++) {
        r->latency_s[k] = 0;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        buffer_sums s = {0};
        RU_TRY(judge_buffer(f, r, i, &fit.process, &s, err));
        all.usd += s.usd;
        all.busy_s += s.busy_s;
        all.calls += s.calls;
        all.own += s.own;
        all.padded += s.padded;
        batch = r->at[i].batch > batch ? r->at[i].batch : batch;
    }
    r->padding = fmax(0, all.padded / all.own - 1);
    *out = (rui_far_choice){.at = {.memory_mb = r->at[0].memory_mb, .batch = batch},
                            .usd = all.usd,
                            .mean_batch = 1 / all.calls,
                            .instances = all.busy_s * f->facts.rate / times};
    for (uint32_t k = 0; k < f->size->n; k++) {
        out->latency_s = fmax(out->latency_s, r->latency_s[k]);
    }
    return RU_OK;
}

/* -- a choice ----------------------------------------------------------------------------------
 */

static void put_list(ru_json *j, const char *name, const double *x, uint32_t n)
{
    ru_json_open(j, name, '[');
    for (uint32_t k = 0; k < n; k++) {
        ru_json_f64(j, NULL, x[k]);
    }
    ru_json_close(j);
}

/* Method "none", every request alone, is what a choice saves of, however many instances that would
 * take. What delays a call is not billed: it is part of the objective. */
static void put_question(const rui_far *f, const char *method, double margin, ru_json *j)
{
    const rui_far_size *z = f->size;
    double most_s = TOO_LONG * rui_far_slo_s(f);
    uint32_t batch_max = rui_far_batch_most(f);
    ru_json_open(j, NULL, '{');
    rui_far_put_gaps(f, 1, j);
    put_list(j, "sizes", z->bound, z->n);
    put_list(j, "shares", z->share, z->n);
    put_list(j, "memory_mb", f->memory_mb, f->n_memory);
    ru_json_i64(j, "batch_max", batch_max);
    ru_json_open(j, "service_s", '[');
    for (uint32_t m = 0; m < f->n_memory; m++) {
        for (uint32_t k = 0; k < z->n; k++) {
            for (uint32_t b = 1; b <= batch_max; b++) {
                ru_json_f64(j, NULL, fmin(rui_far_known_s(f, k, m, b), most_s));
            }
        }
    }
    ru_json_close(j);
    rui_far_put_prices(f, j);
    ru_json_f64(j, "slo_s", (1 - margin) * rui_far_slo_s(f) - f->facts.delay_s);
    ru_json_str(j, "per", "request");
    ru_json_str(j, "keep", "class");
    ru_json_i64(j, "buffers_max", f->opt->buffers_max < z->n ? f->opt->buffers_max : z->n);
    if (strcmp(method, "none") != 0) {
        ru_json_f64(j, "instances_max", RUI_FAR_BUSY * f->v->instances);
    }
    ru_json_str(j, "method", method);
    ru_json_close(j);
}

static ru_status ask(rui_far *f, const char *method, double margin, rui_far_routes *r, ru_err *err)
{
    const rui_far_size *z = f->size;
    ru_arena_rewind(&f->plan_arena, (ru_arena_mark){0});
    ru_text text = ru_text_arena(&f->plan_arena);
    ru_json j = ru_json_into(&text);
    ru_route_plan plan;
    put_question(f, method, margin, &j);
    RU_TRY(rui_far_plan(f, "route", &text, &plan, err));
    RU_CHECK(plan.n <= RUI_FAR_CLASSES);
    *r = (rui_far_routes){.n = plan.n};
    for (uint32_t i = 0; i < plan.n; i++) {
        const ru_route_buffer *b = &plan.buffers[i];
        r->at[i] = (ru_batch_choice){
            .memory_mb = f->memory_mb[b->memory], .batch = b->batch, .timeout_s = b->timeout_s};
        for (uint32_t k = 0; k < z->n; k++) {
            r->route[i * z->n + k] = plan.share[i * z->n + k] / z->share[k];
        }
    }
    return RU_OK;
}

/* Routes, what the law says of them, and do they keep the promise when the rate is off by two
 * standard errors, either way? */
typedef struct option {
    rui_far_routes routes;
    rui_far_choice law;
    bool careful;
} option;

/* Of a method, with as much margin as makes it careful; the last one is as careful as can be.
 * Errors: RU_E_INFEASIBLE. */
static ru_status careful(rui_far *f, const char *method, option *o, ru_err *err)
{
    double off = fmin(2 * fmax(sqrt(f->facts.scv), 1) / sqrt(f->facts.n), 0.5);
    rui_far_routes found;
    rui_far_choice slower, faster;
    o->careful = false;
    for (double margin = RUI_FAR_MARGIN; margin <= RUI_FAR_MARGIN_MAX && !o->careful; margin *= 2) {
        ru_status st = ask(f, method, margin, &found, err);
        if (st == RU_E_INFEASIBLE && margin > RUI_FAR_MARGIN) {
            break;
        }
        RU_TRY(st);
        o->routes = found;
        RU_TRY(judge(f, &found, 1 + off, &slower, err));
        RU_TRY(judge(f, &found, 1 - off, &faster, err));
        o->careful = fmax(slower.latency_s, faster.latency_s) <= rui_far_slo_s(f);
    }
    return judge(f, &o->routes, 1, &o->law, err);
}

/* One buffer feels the rate less than several with a part of it each, and requests alone do not:
 * care may cost more than buffers by size save. */
ru_status rui_size_choose(rui_far *f, ru_err *err)
{
    rui_far_size *z = f->size;
    option by_size, one;
    rui_far_routes alone;
    RU_TRY(ask(f, "none", RUI_FAR_MARGIN, &alone, err));
    RU_TRY(judge(f, &alone, 1, &f->found.alone, err));
    z->kept = z->now;
    RU_TRY(judge(f, &z->kept, 1, &f->found.kept, err));
    RU_TRY(careful(f, "cuts", &by_size, err));
    ru_status st = by_size.routes.n > 1 ? careful(f, "single", &one, err) : RU_E_INFEASIBLE;
    if (st != RU_OK && st != RU_E_INFEASIBLE) {
        return st;
    }
    z->next = by_size.routes;
    f->found.next = by_size.law;
    if (st == RU_OK &&
        (one.careful != by_size.careful ? one.careful : one.law.usd < by_size.law.usd)) {
        z->next = one.routes;
        f->found.next = one.law;
    }
    if (f->found.alone.usd < f->found.next.usd && rui_far_finds_room(f, &f->found.alone)) {
        z->next = alone;
        f->found.next = f->found.alone;
    }
    return RU_OK;
}
