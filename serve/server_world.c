/* The world file of a server: what its requests took, and its choice of batches as the input of the
 * policy `batch`, so that others can look at it, or choose again. */
#include <string.h>

#include "plan/row/policy.h"
#include "serve/server_impl.h"
#include "store/world_file.h"

#define MEMORY_MB 1024 /* of the policy's functions: one size, so that cost counts time alone */

/* Time of a batch of k requests as t0 + t1 k, by least squares over the sizes that are open. */
static void service_of(const ru_serve_pace *p, double *t0, double *t1)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (uint32_t k = 0; k < RU_SERVE_SIZES && p->service_ns[k] > 0; k++) {
        double rows = (double)(1u << k), s = (double)p->service_ns[k] * 1e-9;
        n++;
        x += rows;
        y += s;
        xx += rows * rows;
        xy += rows * s;
    }
    double slope = n > 1 ? (n * xy - x * y) / (n * xx - x * x) : 0;
    double first = (double)p->service_ns[0] * 1e-9;
    *t1 = slope > 0 ? slope : 0;
    *t0 = (y - *t1 * x) / n;
    *t0 = *t0 > first / 100 ? *t0 : first / 100; /* no batch takes no time */
}

/* Its choice, as a server with a given batch and delay: the method `fixed`. */
static void put_question(const rui_version *v, ru_json *j)
{
    const ru_server_options *o = &v->server->opt;
    uint64_t from = v->n_came > RUI_CAME_MAX ? v->n_came - RUI_CAME_MAX : 0;
    double t0, t1, slo_s = (double)o->slo_ns * 1e-9;
    service_of(&v->pace, &t0, &t1);
    ru_json_open(j, NULL, '{');
    ru_json_open(j, "arrivals", '{');
    ru_json_open(j, "gaps_s", '[');
    for (uint64_t k = from + 1; k < v->n_came; k++) {
        int64_t gap_ns = ru_time_since(v->came[k % RUI_CAME_MAX], v->came[(k - 1) % RUI_CAME_MAX]);
        ru_json_f64(j, NULL, gap_ns > 0 ? (double)gap_ns * 1e-9 : 0); /* heads overtake bodies */
    }
    ru_json_close(j);
    ru_json_close(j);
    ru_json_open(j, "service", '[');
    for (uint32_t k = 0; k < 10; k++) {
        ru_json_f64(j, NULL, k == 0 ? t0 : k == 1 ? t1 : 0);
    }
    ru_json_close(j);
    ru_json_i64(j, "memory_min_mb", MEMORY_MB);
    ru_json_i64(j, "memory_max_mb", MEMORY_MB);
    ru_json_i64(j, "fixed_memory_mb", MEMORY_MB);
    ru_json_i64(j, "batch_max", ru_served_facts_get(v->served)->rows_max);
    ru_json_i64(j, "fixed_batch", v->pace.batch);
    ru_json_f64(j, "fixed_timeout_s", (double)v->config.delay_us * 1e-6);
    ru_json_f64(j, "timeout_max_s", slo_s);
    ru_json_f64(j, "timeout_step_s", slo_s / 20);
    ru_json_f64(j, "slo_s", slo_s);
    ru_json_f64(j, "quantile", o->slo_q);
    ru_json_str(j, "method", "fixed");
    ru_json_close(j);
}

static ru_status plan_of(const rui_version *v, ru_arena *arena, ru_world_plan *out, ru_err *err)
{
    const ru_policy *p = ru_policy_find("batch");
    char id[33];
    ru_conf *c;
    ru_text asked = ru_text_arena(arena), input = asked;
    ru_json j = ru_json_into(&asked);
    put_question(v, &j);
    RU_CHECK(p != NULL);
    void *in = ru_arena_zalloc(arena, p->in->size_bytes, 64);
    if (in == NULL || asked.cut) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a plan");
    }
    RU_TRY(ru_conf_new(p->in, arena, &c, err));
    RU_TRY(ru_conf_add_json(c, "server", asked.p, asked.n, err));
    RU_TRY(ru_conf_apply(c, in, err));
    j = ru_json_into(&input);
    ru_fields_json(p->in, in, NULL, &j);
    ru_hash128_text(ru_policy_head(p, in).id, id);
    *out = (ru_world_plan){.policy = p->name,
                           .version = p->version,
                           .id = ru_arena_str(arena, id),
                           .job = v->model,
                           .at_ns = ru_clock_wall_ns(),
                           .input = input.p};
    return out->id != NULL && !input.cut ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a plan");
}

/* A fact for each size of batch that was computed. */
static uint32_t facts_of(const rui_version *v, ru_request_fact *out)
{
    const ru_served_facts *f = ru_served_facts_get(v->served);
    const rui_stats *s = &v->stats;
    uint32_t n = 0;
    int64_t size = 0;
    double over_s = (double)ru_time_since(ru_clock_now(), v->since) * 1e-9;
    for (uint32_t k = 0; k < f->n_inputs; k++) {
        size += ru_type_count(&f->inputs[k].type);
    }
    for (uint32_t k = 0; k < RU_SERVE_SIZES; k++) {
        uint64_t batches = s->batches_of[k];
        if (batches > 0) {
            out[n++] = (ru_request_fact){
                .model = v->model,
                .size = size,
                .batch = INT64_C(1) << k,
                .rate_per_s = over_s > 0 ? (double)s->request.count / over_s : 0,
                .took = {.count = (int64_t)s->request.count,
                         .mean_ns = s->request.count > 0
                                        ? (double)s->request.sum_ns / (double)s->request.count
                                        : 0},
                .served = {.count = (int64_t)batches,
                           .mean_ns = (double)s->batch_ns[k] / (double)batches}};
        }
    }
    return n;
}

ru_status rui_server_world(const ru_server *s, ru_arena *arena, ru_text *out, ru_err *err)
{
    uint32_t n = 0, n_facts = 0, n_plans = 0;
    for (const rui_version *v = s->versions; v != NULL; v = v->next) {
        n++;
    }
    ru_request_fact *facts = RU_NEW(arena, ru_request_fact, n * RU_SERVE_SIZES);
    ru_world_plan *plans = RU_NEW(arena, ru_world_plan, n);
    if (facts == NULL || plans == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the world file");
    }
    for (const rui_version *v = s->versions; v != NULL; v = v->next) {
        if (v->state != RUI_READY) {
            continue;
        }
        n_facts += facts_of(v, facts + n_facts);
        if (s->opt.slo_ns > 0 && v->n_came > 2 && v->pace.service_ns[0] > 0 && v->far == NULL) {
            /* without a promise, or times, there is no choice; that of functions has a page */
            RU_TRY(plan_of(v, arena, &plans[n_plans++], err));
        }
    }
    const ru_world w = {.facts.requests = {.at = facts, .n = n_facts},
                        .plans = {.at = plans, .n = n_plans}};
    return ru_world_file_put(&w, out, err);
}
