/* Which choice, and when again. */
#include <math.h>

#include "base/log.h"
#include "plan/row/policy.h"
#include "serve/far/far_impl.h"

enum { GAPS_MIN = 64, GAPS_FRESH = 32 };
#define SLACK    0.25 /* of the CUSUM, in standard deviations: drifts of half of them are found */
#define ALARM    12.0
#define PAUSE_NS INT64_C(2000000000) /* between two choices */

double rui_far_slo_s(const rui_far *f)
{
    return (double)f->v->server->opt.slo_ns * 1e-9;
}

double rui_far_call_usd(const rui_far *f, double memory_mb, double s)
{
    return s * memory_mb / 1024 * f->opt->usd_per_gb_s + f->opt->usd_per_call;
}

/* -- in force ----------------------------------------------------------------------------------
 */

static void install(rui_far *f, const rui_far_choice *c, ru_time now)
{
    uint32_t m = rui_far_memory(f, c->at.memory_mb);
    f->now = *c;
    f->since = (rui_far_mark){.at = now, .meter = ru_function_host_meter(f->host)};
    f->took = (ru_hist){0};
    f->late = 0;
    f->installed++;
    if (f->size != NULL) {
        rui_size_install(f);
        return;
    }
    const ru_serve_rule rule = {.batch = c->at.batch,
                                .timeout_ns = (int64_t)(c->at.timeout_s * 1e9),
                                .memory_mb = c->at.memory_mb,
                                .promise_ns = f->v->server->opt.slo_ns};
    const double share = 1;
    const ru_serve_table table = {.n = 1, .n_classes = 1, .rule = &rule, .share = &share};
    ru_serve_pace p = {.batch = c->at.batch};
    for (uint32_t k = 0; k < f->n_sizes && 1u << k < 2 * c->at.batch; k++) {
        p.service_ns[k] = (int64_t)(rui_far_now_s(f, 0, m, 1u << k) * 1e9);
    }
    f->v->pace = p;
    rui_infer_step(f->v, (ru_event){.kind = RU_EV_LOCAL,
                                    .what = RU_SERVE_TABLE,
                                    .data = &table,
                                    .size_bytes = sizeof table});
    rui_infer_step(
        f->v,
        (ru_event){.kind = RU_EV_LOCAL, .what = RU_SERVE_PACE, .data = &p, .size_bytes = sizeof p});
}

void rui_far_by_hand(const rui_far *f, uint32_t rows, rui_far_choice *c)
{
    uint32_t m = rui_far_memory(f, c->at.memory_mb), last = f->size != NULL ? f->size->n - 1 : 0;
    while (rows > 1 && rui_far_service_s(f, last, m, rows) > rui_far_slo_s(f)) {
        rows /= 2;
    }
    c->at.batch = rows;
    c->at.timeout_s = (double)f->v->config.delay_us * 1e-6;
    c->latency_s = c->at.timeout_s + rui_far_service_s(f, last, m, rows);
}

/* Every request alone, with the cheapest memory that keeps the promise: what needs no arrivals. */
ru_status rui_far_begin(rui_far *f, ru_time now, ru_err *err)
{
    double least_s = INFINITY, least_mb = 0, limit = (1 - RUI_FAR_MARGIN) * rui_far_slo_s(f);
    uint32_t classes = f->size != NULL ? f->size->n : 1;
    rui_far_choice best = {.usd = INFINITY};
    for (uint32_t m = 0; m < f->n_memory; m++) {
        double s = 0;
        for (uint32_t k = 0; k < classes; k++) { /* also where a function lacks one */
            s = fmax(s, rui_far_service_s(f, k, m, 1));
        }
        double usd = rui_far_call_usd(f, f->memory_mb[m], s);
        if (s < least_s) {
            least_s = s;
            least_mb = f->memory_mb[m];
        }
        if (s <= limit && usd < best.usd) {
            best = (rui_far_choice){.at = {.memory_mb = f->memory_mb[m], .batch = 1},
                                    .latency_s = s,
                                    .usd = usd,
                                    .mean_batch = 1};
        }
    }
    if (isinf(best.usd) && f->why[0] != '\0' && f->size != NULL) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no function answers requests of all %u sizes (an endpoint has --sizes %u "
                       "too): %.600s",
                       f->size->n, f->size->n, f->why);
    }
    if (isinf(best.usd) && f->why[0] != '\0') {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no function answers: %.600s", f->why);
    }
    if (isinf(best.usd)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no function answers one request within %g s, the promise less %g %%: the "
                       "best that can be kept is %.3g s, with %g MB; promise more time, or allow "
                       "more memory",
                       limit, RUI_FAR_MARGIN * 100, least_s / (1 - RUI_FAR_MARGIN), least_mb);
    }
    f->alone = best;
    if (f->v->config.delay_us > 0) {
        rui_far_by_hand(f, (uint32_t)ru_served_facts_get(f->v->served)->rows_max, &best);
    }
    if (f->size != NULL) {
        rui_size_begin(f, &best.at);
    }
    f->ready = (rui_far_mark){.at = now, .meter = ru_function_host_meter(f->host)};
    install(f, &best, now);
    return RU_OK;
}

/* -- on the loader's thread --------------------------------------------------------------------
 */

void rui_far_put_gaps(const rui_far *f, double times, ru_json *j)
{
    ru_json_open(j, "arrivals", '{');
    ru_json_open(j, "gaps_s", '[');
    for (uint32_t k = 0; k < f->facts.n; k++) {
        ru_json_f64(j, NULL, f->facts.gap_s[k] * times);
    }
    ru_json_close(j);
    ru_json_close(j);
}

void rui_far_put_prices(const rui_far *f, ru_json *j)
{
    ru_json_f64(j, "timeout_max_s", rui_far_slo_s(f));
    ru_json_f64(j, "timeout_step_s", rui_far_slo_s(f) / RUI_FAR_STEPS);
    ru_json_f64(j, "quantile", f->v->server->opt.slo_q);
    ru_json_f64(j, "usd_per_gb_s", f->opt->usd_per_gb_s);
    ru_json_f64(j, "usd_per_call", f->opt->usd_per_call);
    ru_json_f64(j, "billing_step_s", 1e-6); /* means of what is billed are no whole steps */
}

ru_status rui_far_plan(rui_far *f, const char *policy, const ru_text *question, void *plan,
                       ru_err *err)
{
    const ru_policy *p = ru_policy_find(policy);
    ru_arena *a = &f->plan_arena;
    ru_conf *c;
    void *in = ru_arena_zalloc(a, p->in->size_bytes, 64);
    if (question->cut || in == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a choice");
    }
    const ru_policy_tools tools = {.out = a, .scratch = a};
    RU_TRY(ru_conf_new(p->in, a, &c, err));
    RU_TRY(ru_conf_add_json(c, "server", question->p, question->n, err));
    RU_TRY(ru_conf_apply(c, in, err));
    RU_TRY(p->plan(in, &tools, plan, err));
    return p->check(in, plan, a, err);
}

/* What the policy is asked. */
typedef struct question {
    const char *method;
    const ru_batch_choice *fixed; /* of that method */
    double margin, times;         /* times: stretches the gaps */
    uint32_t batch_max;
} question;

static void put_question(const rui_far *f, const question *q, ru_json *j)
{
    ru_json_open(j, NULL, '{');
    rui_far_put_gaps(f, q->times, j);
    ru_json_open(j, "measured_s", '[');
    for (uint32_t i = 0; i < f->n_memory; i++) {
        for (uint32_t k = 1; k <= q->batch_max; k++) {
            ru_json_f64(j, NULL, rui_far_known_s(f, 0, i, k));
        }
    }
    ru_json_close(j);
    ru_json_f64(j, "memory_min_mb", f->memory_mb[0]);
    ru_json_f64(j, "memory_max_mb", f->memory_mb[f->n_memory - 1]);
    ru_json_f64(j, "memory_step_mb", f->n_memory > 1 ? f->memory_mb[1] - f->memory_mb[0] : 64);
    ru_json_i64(j, "batch_max", q->batch_max);
    rui_far_put_prices(f, j);
    /* What delays a call is not billed: it is part of the objective, not of the times. */
    ru_json_f64(j, "slo_s", rui_far_slo_s(f) - f->facts.delay_s / (1 - q->margin));
    ru_json_f64(j, "margin", q->margin);
    ru_json_str(j, "method", q->method);
    ru_json_f64(j, "fixed_memory_mb", q->fixed->memory_mb);
    ru_json_i64(j, "fixed_batch", q->fixed->batch);
    ru_json_f64(j, "fixed_timeout_s", q->fixed->timeout_s);
    ru_json_close(j);
}

static ru_status ask(rui_far *f, const question *q, rui_far_choice *out, ru_err *err)
{
    ru_arena_rewind(&f->plan_arena, (ru_arena_mark){0});
    ru_text text = ru_text_arena(&f->plan_arena);
    ru_json j = ru_json_into(&text);
    ru_batch_plan plan;
    put_question(f, q, &j);
    RU_TRY(rui_far_plan(f, "batch", &text, &plan, err));
    *out = (rui_far_choice){.at = plan.at,
                            .latency_s = plan.latency_s + f->facts.cold_s,
                            .usd = plan.usd_per_request,
                            .mean_batch = plan.mean_batch,
                            .instances = plan.instances + f->facts.cold_s * f->facts.rate /
                                                              (q->times * plan.mean_batch)};
    return RU_OK;
}

bool rui_far_finds_room(const rui_far *f, const rui_far_choice *c)
{
    return c->instances <= RUI_FAR_BUSY * f->v->instances;
}

/* The largest batch worth a look: those that could be served, and could fill up, in time. */
uint32_t rui_far_batch_most(const rui_far *f)
{
    uint32_t most = 1u << (f->n_sizes - 1), k = 1;
    double fill = 3 * f->facts.rate * rui_far_slo_s(f) + 2;
    for (; k < most && k < fill; k++) {
        double best = INFINITY;
        for (uint32_t m = 0; m < f->n_memory; m++) {
            best = fmin(best, rui_far_known_s(f, 0, m, k + 1));
        }
        if (best + f->facts.delay_s > rui_far_slo_s(f)) {
            break;
        }
    }
    return k > f->now.at.batch ? k : f->now.at.batch; /* that one is looked at too */
}

ru_status rui_far_choose(rui_far *f, ru_err *err)
{
    if (f->size != NULL) {
        return rui_size_choose(f, err);
    }
    question q = {
        .method = "none", .margin = RUI_FAR_MARGIN, .times = 1, .batch_max = rui_far_batch_most(f)};
    rui_far_choice found, slower, faster, *c = &f->found.next;
    q.fixed = &f->now.at;
    /* two standard errors of the rate, either way, must keep the promise too */
    double off = fmin(2 * fmax(sqrt(f->facts.scv), 1) / sqrt(f->facts.n), 0.5);
    RU_TRY(ask(f, &q, &f->found.alone, err));
    q.method = "fixed";
    RU_TRY(ask(f, &q, &f->found.kept, err));
    for (double margin = RUI_FAR_MARGIN; margin <= RUI_FAR_MARGIN_MAX; margin *= 2) {
        q = (question){"exact", &f->now.at, margin, 1, q.batch_max};
        ru_status st = ask(f, &q, &found, err);
        if (st == RU_E_INFEASIBLE && margin > RUI_FAR_MARGIN) {
            break; /* the last one is as careful as can be */
        }
        RU_TRY(st);
        *c = found;
        q = (question){"fixed", &c->at, RUI_FAR_MARGIN, 1 + off, q.batch_max};
        RU_TRY(ask(f, &q, &slower, err));
        q.times = 1 - off;
        RU_TRY(ask(f, &q, &faster, err));
        if (slower.latency_s <= rui_far_slo_s(f) && faster.latency_s <= rui_far_slo_s(f)) {
            break;
        }
    }
    if (f->found.alone.usd < c->usd && rui_far_finds_room(f, &f->found.alone)) {
        *c = f->found.alone; /* as careful: it does not feel the rate */
    }
    return RU_OK;
}

/* -- when --------------------------------------------------------------------------------------
 */

static double gap_s(const rui_far *f, uint64_t k)
{
    int64_t ns = ru_time_since(f->came[k % RUI_FAR_CAME], f->came[(k - 1) % RUI_FAR_CAME]);
    return ns > 0 ? (double)ns * 1e-9 : 0;
}

/* What the loader's thread works on: the loop goes on meanwhile. */
static void fit(rui_far *f)
{
    rui_far_facts *x = &f->facts;
    double sum = 0, squares = 0;
    x->n = 0;
    for (uint64_t k = f->from + 1; k < f->n_came; k++) {
        double gap = gap_s(f, k);
        x->gap_s[x->n++] = gap;
        sum += gap;
        squares += gap * gap;
    }
    f->mean_s = fmax(sum / x->n, 1e-9);
    f->sd_s = sqrt(fmax(squares / x->n - f->mean_s * f->mean_s, 1e-18));
    f->rises = f->falls = 0;
    f->rises_from = f->falls_from = f->n_came - 1;
    x->scv = f->sd_s * f->sd_s / (f->mean_s * f->mean_s);
    x->rate = 1 / f->mean_s;
    rui_far_live_fit(f);
    if (f->size != NULL) {
        rui_size_fit(f);
    }
}

static void choose(rui_far *f, ru_time now)
{
    uint64_t oldest = f->n_came > RUI_FAR_CAME / 2 ? f->n_came - RUI_FAR_CAME / 2 : 0;
    f->from = f->from > oldest ? f->from : oldest;
    if (f->v->config.delay_us > 0 || f->choosing || f->n_came - f->from < GAPS_FRESH ||
        (f->choices > 0 && ru_time_since(now, f->chosen_at) < PAUSE_NS)) {
        return;
    }
    fit(f);
    f->chosen_n = f->n_came;
    f->chosen_at = now;
    f->choosing = rui_version_choose(f->v);
}

/* CUSUM of the gaps in both directions; an alarm begins a new rate where its sum left 0. One gap
 * that is an alarm by itself is a stop: the new rate begins behind it. */
static bool drifts(rui_far *f)
{
    double z = (gap_s(f, f->n_came - 1) - f->mean_s) / f->sd_s;
    f->falls = fmax(0, f->falls + z - SLACK);
    f->rises = fmax(0, f->rises - z - SLACK);
    f->falls_from = f->falls == 0 ? f->n_came - 1 : f->falls_from;
    f->rises_from = f->rises == 0 ? f->n_came - 1 : f->rises_from;
    bool alarm = f->falls > ALARM || f->rises > ALARM;
    if (alarm) {
        f->from = z > SLACK + ALARM  ? f->n_came - 1
                  : f->rises > ALARM ? f->rises_from
                                     : f->falls_from;
        f->rises = f->falls = 0;
        f->rises_from = f->falls_from = f->n_came - 1;
    }
    return alarm;
}

uint32_t rui_far_came(rui_far *f, ru_time now, int64_t size)
{
    uint32_t class_of = f->size != NULL ? rui_size_class(f, size) : 0;
    bool shifts = f->size != NULL && rui_size_came(f, class_of);
    f->came[f->n_came++ % RUI_FAR_CAME] = now;
    if (f->n_came < GAPS_MIN) {
        return class_of;
    }
    uint64_t known = f->chosen_n > f->from ? f->chosen_n - f->from : 0, have = f->n_came - f->from;
    bool first = f->mean_s == 0, more = have >= 2 * known && known < RUI_FAR_CAME / 4;
    bool old = ru_time_since(now, f->chosen_at) > RUI_FAR_AGAIN_NS;
    if (first || (f->sd_s > 0 && drifts(f)) || more || old || shifts || f->live.strays) {
        choose(f, now);
    }
    return class_of;
}

/* GB-s of a request, of what it costs with its part of a call. */
static double gb_s_of(const rui_far *f, const rui_far_choice *c)
{
    double call_usd = f->opt->usd_per_call / fmax(c->mean_batch, 1);
    return f->opt->usd_per_gb_s > 0 ? (c->usd - call_usd) / f->opt->usd_per_gb_s : 0;
}

void rui_far_answered(rui_far *f, int64_t size, int64_t all_ns)
{
    uint64_t late = all_ns > f->v->server->opt.slo_ns ? 1 : 0;
    ru_hist_add(&f->took, all_ns);
    f->all.n++;
    f->all.law_usd += f->now.usd;
    f->all.law_gb_s += gb_s_of(f, &f->now);
    f->late += late;
    if (f->size != NULL) {
        uint32_t k = rui_size_class(f, size);
        ru_hist_add(&f->size->took[k], all_ns);
        f->size->late[k] += late;
    }
}

bool rui_far_sized(const rui_far *f)
{
    return f->size != NULL;
}

static void name(const rui_far *f, const rui_far_choice *c, ru_text *t)
{
    if (f->size != NULL) {
        ru_text_putf(t, "%u buffer%s by size", f->size->next.n, f->size->next.n == 1 ? "" : "s");
    } else {
        ru_text_putf(t, "%g MB, batches of %u, wait %.4g s", c->at.memory_mb, c->at.batch,
                     c->at.timeout_s);
    }
}

void rui_far_chosen(rui_far *f, ru_status st, const ru_err *err, ru_time now)
{
    const rui_far_choice *c = &f->found.next, *kept = &f->found.kept;
    f->choosing = false;
    f->choices++;
    double limit = (1 - RUI_FAR_MARGIN) * rui_far_slo_s(f);
    limit = fmin(limit, rui_far_slo_s(f) - (f->facts.delay_s - f->facts.cold_s));
    if (st != RU_OK || !rui_far_finds_room(f, c)) {
        ru_text t = ru_text_into(f->refusal, sizeof f->refusal);
        f->refused++;
        if (st != RU_OK) {
            ru_text_put(&t, err->text);
        } else {
            name(f, c, &t);
            ru_text_putf(&t,
                         ": they need %.3g instances on average, more than %g %% of the %u that "
                         "there are",
                         c->instances, RUI_FAR_BUSY * 100, f->v->instances);
        }
        ru_log(RU_LOG_WARN, "serve", "no_choice", "%s: %s", f->v->model, f->refusal);
        return;
    }
    f->refusal[0] = '\0';
    f->alone = f->found.alone;
    if (c->usd < (1 - RUI_FAR_GAIN) * kept->usd || kept->latency_s > limit) {
        char text[128];
        ru_text t = ru_text_into(text, sizeof text);
        name(f, c, &t);
        ru_log(RU_LOG_INFO, "serve", "choice", "%s: %s: p%g %.4g s", f->v->model, text,
               f->v->server->opt.slo_q * 100, c->latency_s);
        install(f, c, now);
    } else {
        f->now = *kept; /* the same choice, what the law says of it now */
        if (f->size != NULL) {
            f->size->now = f->size->kept;
        }
    }
}
