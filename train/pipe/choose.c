/* How a job should be cut: what the policy `pipe` is asked by measured layers, and what a step
 * takes with its answer as it runs here. */
#include <math.h>
#include <string.h>

#include "plan/cut/pipe.h"
#include "plan/row/policy.h"
#include "train/pipe/meter.h"
#include "train/pipe/play.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the layers is full");
}

/* -- the policy's input ------------------------------------------------------------------------ */

void rui_meter_put_ns(ru_json *j, const char *key, int64_t ns)
{
    char text[32];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "%lldns", (long long)ns);
    ru_json_str(j, key, text);
}

void ru_pipe_question(const ru_pipe_layers *l, uint32_t units, double bytes_per_s,
                      const char *method, ru_json *j)
{
    const ru_pipe_shape shape = {.schedule = l->schedule, .micro = l->micro};
    bool on = ru_pipe_flows_on(l->schedule);
    const char *own = ru_pipe_whole(&shape)                   ? "straight"
                      : l->schedule == RU_PIPE_SCHEDULE_GPIPE ? "gpipe"
                                                              : "flush";
    ru_json_str(j, "method", method != NULL ? method : own);
    /* Data-parallel workers divide the batch, so its whole exchange is one step's: "paper". */
    ru_json_str(j, "cost", "paper");
    ru_json_i64(j, "microbatches", l->micro);
    ru_json_f64(j, "state", l->state + (on ? 1 : 0)); /* the newest weights, beside the versions */
    if (l->memory_bytes > 0) {
        ru_json_f64(j, "memory", l->memory_bytes);
    }
    if (units > 0) {
        ru_json_open(j, "units", '[');
        ru_json_i64(j, NULL, units);
        ru_json_close(j);
        ru_json_open(j, "bytes_per_s", '[');
        ru_json_f64(j, NULL, bytes_per_s);
        ru_json_close(j);
    }
    if (units > 0 && l->speeds != NULL) {
        ru_json_open(j, "speeds", '[');
        for (uint32_t k = 0; k < units; k++) {
            ru_json_f64(j, NULL, l->speeds[k]);
        }
        ru_json_close(j);
    }
    ru_json_open(j, "layers", '[');
    for (uint32_t k = 0; k < l->n; k++) {
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", l->name[k]);
        rui_meter_put_ns(j, "forward", l->forward_ns[k]);
        rui_meter_put_ns(j, "backward", l->backward_ns[k] + l->update_ns[k]);
        ru_json_i64(j, "parameters", l->param_bytes[k]);
        ru_json_i64(j, "activation", l->cross_bytes[k]);
        ru_json_open(j, "after", '[');
        if (k > 0) { /* a chain: what skips layers is counted where it crosses */
            ru_json_i64(j, NULL, k - 1);
        }
        ru_json_close(j);
        ru_json_close(j);
    }
    ru_json_close(j);
}

ru_status rui_meter_ask(const ru_policy *policy, const ru_text *question, ru_arena *arena,
                        const void **plan, ru_err *err)
{
    ru_arena scratch;
    ru_conf *c;
    ru_policy_answer a;
    void *in = ru_arena_zalloc(arena, policy->in->size_bytes, 64);
    if (question->cut || in == NULL) {
        return full(err);
    }
    RU_TRY(ru_conf_new(policy->in, arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, "measured layers", question->p, question->n, err));
    RU_TRY(ru_conf_apply(c, in, err));
    ru_arena_init(&scratch, 0);
    ru_status st =
        ru_policy_run(policy, in, &(ru_policy_tools){.out = arena, .scratch = &scratch}, &a, err);
    ru_arena_fini(&scratch);
    *plan = a.plan;
    return st;
}

/* What the policy answers, NULL: nothing fits into l->memory_bytes; *json: what it was asked. */
static ru_status ask(const ru_pipe_layers *l, uint32_t workers, double bytes_per_s,
                     const char *method, ru_arena *arena, const char **json,
                     const ru_pipe_plan **plan, ru_err *err)
{
    const void *answer;
    ru_text text = ru_text_arena(arena);
    ru_json j = ru_json_into(&text);
    ru_json_open(&j, NULL, '{');
    ru_pipe_question(l, workers, bytes_per_s, method, &j);
    ru_json_close(&j);
    ru_status st = rui_meter_ask(&ru_policy_pipe, &text, arena, &answer, err);
    bool none = st == RU_E_INFEASIBLE && l->memory_bytes > 0;
    *json = text.p;
    *plan = st == RU_OK ? answer : NULL;
    return none ? RU_OK : st;
}

/* Can it run: all workers, no copies, one worker in stages with running statistics, and in the last
 * one of what flows on, as many micro-batches for each worker of a stage, and something that learns
 * in the first stage; and late parameters of one stage and the last one only? */
static bool runs(const ru_pipe_layers *l, const ru_pipe_plan *p, uint32_t workers)
{
    bool on = ru_pipe_flows_on(l->schedule);
    bool is = p->n_stages > 1 && p->n_stages <= RU_STAGES_MAX && p->workers == workers &&
              p->copies == 1 && (!on || p->stages[p->n_stages - 1].workers == 1) &&
              p->stages[0].param_bytes > 0;
    uint32_t many[RU_STAGES_MAX] = {0};
    for (uint32_t k = 0; k < p->n_stages && is; k++) {
        many[k] = p->stages[k].workers;
        is = l->micro % many[k] == 0;
    }
    const ru_pipe_shape shape = {
        .schedule = l->schedule, .n = p->n_stages, .micro = l->micro, .workers = many};
    is = is && l->micro >= ru_pipe_micro_min(&shape);
    for (uint32_t k = 0; k < p->n_layers && is; k++) {
        bool later = k > 0 && p->stage_of[k] < p->stage_of[k - 1];
        is = !later && (!l->stats[k] || p->stages[p->stage_of[k]].workers == 1);
    }
    for (uint32_t i = 0; i < l->n_helds && is && on; i++) {
        uint32_t from = p->stage_of[l->helds[i].from], to = p->stage_of[l->helds[i].to];
        is = from == to || to + 1 == p->n_stages;
    }
    return is;
}

/* A step of the plan's stages as they run: the slowest stage or cut, filling and draining, and the
 * sums of workers of one stage, each of which sends its own to the others at the end. What flows on
 * does not fill and drain, and others compute while a stage adds. */
static double step_s(const ru_pipe_layers *l, const ru_pipe_plan *p, double bytes_per_s)
{
    double slowest = 0, sums = 0, micro = l->micro;
    bool on = ru_pipe_flows_on(l->schedule);
    for (uint32_t k = 0; k < p->n_stages; k++) {
        const ru_pipe_stage *s = &p->stages[k];
        uint32_t behind = k + 1 < p->n_stages ? p->stages[k + 1].workers : 1;
        uint32_t links = s->workers < behind ? s->workers : behind;
        double own = s->compute_s / s->workers, cut = 2 * s->cut_bytes / bytes_per_s / links;
        double sum = (s->workers - 1.0) * s->param_bytes / bytes_per_s;
        own += on ? sum : 0;
        slowest = own > slowest ? own : slowest;
        slowest = cut > slowest ? cut : slowest;
        sums = sum > sums ? sum : sums;
    }
    return on ? slowest : slowest * (micro + p->n_stages - 1) / micro + sums;
}

/* Is the parameter between two stages, and no earlier entry between the same ones? */
static bool is_apart(const ru_pipe_layers *l, const ru_pipe_plan *p, uint32_t held)
{
    const ru_pipe_held *h = &l->helds[held];
    bool is = p->stage_of[h->from] != p->stage_of[h->to];
    for (uint32_t i = 0; i < held && is; i++) {
        const ru_pipe_held *o = &l->helds[i];
        is = o->from != h->from || o->value != h->value || p->stage_of[o->to] != p->stage_of[h->to];
    }
    return is;
}

/* Links of a micro-batch into `at`. Cuts count a parameter of two layers in all boundaries between
 * them, but it goes past the stages in between: its new value, once a step, before what the step
 * sends, its gradients when those of the activations have gone. */
static uint32_t put_links(const ru_pipe_layers *l, const ru_pipe_plan *p, int64_t micro,
                          double bytes_per_s, ru_pipe_play_link *at)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_helds; i++) {
        const ru_pipe_held *h = &l->helds[i];
        int64_t ns = (int64_t)(1e9 * (double)h->bytes / (double)micro / bytes_per_s);
        if (is_apart(l, p, i)) {
            at[n++] = (ru_pipe_play_link){p->stage_of[h->from], p->stage_of[h->to], ns};
        }
    }
    for (uint32_t k = 0; k + 1 < p->n_stages; k++) {
        double bytes = p->stages[k].cut_bytes;
        for (uint32_t i = 0; i < l->n_helds; i++) {
            const ru_pipe_held *h = &l->helds[i];
            bool over = p->stage_of[h->from] <= k && p->stage_of[h->to] > k;
            bytes -= over ? (double)(((int64_t)l->micro + 1) * h->bytes / 2) : 0;
        }
        int64_t sent = (int64_t)(1e9 * fmax(bytes, 0) / (double)micro / bytes_per_s);
        at[n++] = (ru_pipe_play_link){k, k + 1, sent};
        at[n++] = (ru_pipe_play_link){k + 1, k, sent};
    }
    for (uint32_t i = 0; i < l->n_helds; i++) {
        const ru_pipe_held *h = &l->helds[i];
        int64_t ns = (int64_t)(1e9 * (double)h->bytes / bytes_per_s);
        if (is_apart(l, p, i)) {
            at[n++] = (ru_pipe_play_link){p->stage_of[h->to], p->stage_of[h->from], ns};
        }
    }
    return n;
}

/* A step of stages of one worker each: their fixed lists, played. What a link of the plan carries
 * forward comes back as gradients, at the same time in the other direction. */
static ru_status played_s(const ru_pipe_layers *l, const ru_pipe_plan *p, double bytes_per_s,
                          ru_arena *arena, double *s, ru_err *err)
{
    uint32_t n = p->n_stages;
    int64_t *ns = RU_NEW(arena, int64_t, 3 * (int64_t)n);
    int64_t micro = l->micro;
    ru_pipe_play_link *link = RU_NEW(arena, ru_pipe_play_link, 2 * ((int64_t)n + l->n_helds));
    ru_pipe_play played;
    if (ns == NULL || link == NULL) {
        return full(err);
    }
    memset(ns, 0, 3 * n * sizeof *ns);
    for (uint32_t k = 0; k < p->n_layers; k++) {
        ns[p->stage_of[k]] += l->forward_ns[k] / micro;
        ns[n + p->stage_of[k]] += l->backward_ns[k] / micro;
        ns[2 * n + p->stage_of[k]] += l->update_ns[k];
    }
    for (uint32_t k = 0; k < 3 * n && l->speeds != NULL; k++) {
        ns[k] = (int64_t)((double)ns[k] / l->speeds[k % n]);
    }
    const ru_pipe_play_in in = {.n = n,
                                .micro = l->micro,
                                .schedule = l->schedule,
                                .forward_ns = ns,
                                .backward_ns = ns + n,
                                .update_ns = ns + 2 * n,
                                .links = link,
                                .n_links = put_links(l, p, micro, bytes_per_s, link)};
    RU_TRY(ru_pipe_play_step(&in, arena, &played, err));
    *s = 1e-9 * (double)played.step_ns;
    return RU_OK;
}

ru_status rui_pipe_firsts(const ru_pipe_layers *l, const char *const *cut, uint32_t n_cut,
                          ru_arena *arena, uint32_t **out, ru_err *err)
{
    uint32_t *first = RU_NEW(arena, uint32_t, n_cut + 2), at = 0;
    if (first == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n_cut; k++) {
        while (at < l->n && strcmp(l->name[at], cut[k]) != 0) {
            at++;
        }
        first[k + 1] = at;
    }
    first[n_cut + 1] = l->n;
    *out = first;
    return at < l->n ? RU_OK : RU_FAIL(err, RU_E_MISSING, "the cut is not one of measured layers");
}

/* No faster than its samples are read. */
static double read_bound(const ru_pipe_layers *l, uint32_t readers, double step_s)
{
    return fmax(1e-9 * (double)l->read_ns / readers, step_s);
}

ru_status ru_pipe_given(const ru_pipe_layers *l, const char *const *cut, uint32_t n_cut,
                        double bytes_per_s, ru_arena *arena, double *step_s, ru_err *err)
{
    uint32_t *first, *stage_of = RU_NEW(arena, uint32_t, l->n);
    ru_pipe_stage *stages = RU_NEW(arena, ru_pipe_stage, n_cut + 1);
    if (stage_of == NULL || stages == NULL) {
        return full(err);
    }
    RU_TRY(rui_pipe_firsts(l, cut, n_cut, arena, &first, err));
    for (uint32_t k = 0; k <= n_cut; k++) {
        for (uint32_t i = first[k]; i < first[k + 1]; i++) {
            stage_of[i] = k;
        }
        stages[k].cut_bytes = k < n_cut ? (double)l->cross_bytes[first[k + 1] - 1] : 0;
    }
    const ru_pipe_plan p = {
        .stage_of = stage_of, .n_layers = l->n, .stages = stages, .n_stages = n_cut + 1};
    RU_TRY(played_s(l, &p, bytes_per_s, arena, step_s, err));
    *step_s = read_bound(l, 1, *step_s);
    return RU_OK;
}

/* Data parallel: gradients are summed while the backward part goes on. Whoever divides the batch
 * divides its reading. */
void ru_pipe_data(const ru_pipe_layers *l, uint32_t workers, double bytes_per_s, ru_pipe_choice *c)
{
    double n = workers, forward = 0, all = 0, read_s = 1e-9 * (double)l->read_ns;
    for (uint32_t k = 0; k < l->n; k++) {
        forward += (double)l->forward_ns[k];
        all += (double)(l->forward_ns[k] + l->backward_ns[k]);
    }
    c->sum_s = 2 * (n - 1) / n * (double)l->weight_bytes / bytes_per_s;
    for (uint32_t k = 0; k < l->n_shares; k++) {
        double s = 1e-9 * (double)l->shares[k].ns;
        if (l->shares[k].memory_bytes < 0) {
            continue; /* it was not measured */
        }
        if (l->shares[k].workers == 1) {
            c->single_s = s > read_s ? s : read_s;
        }
        if (l->shares[k].workers == workers) {
            double late = (all > 0 ? forward / all : 0) * s + c->sum_s;
            c->compute_s = s;
            c->data_s = late > s ? late : s;
            c->data_s = read_s / n > c->data_s ? read_s / n : c->data_s;
        }
    }
}

static ru_status take(const ru_pipe_layers *l, const ru_pipe_plan *p, double bytes_per_s,
                      double pipeline_s, ru_arena *arena, ru_pipe_choice *c, ru_err *err)
{
    const char **cut = RU_NEW(arena, const char *, l->n);
    int64_t *workers = RU_NEW(arena, int64_t, p->n_stages);
    if (cut == NULL || workers == NULL) {
        return full(err);
    }
    c->n_cut = 0;
    for (uint32_t k = 1; k < p->n_layers; k++) {
        if (p->stage_of[k] != p->stage_of[k - 1]) {
            cut[c->n_cut++] = l->name[k];
        }
    }
    c->stage_bytes = c->sent_bytes = c->slowest_s = c->cut_s = 0;
    for (uint32_t k = 0; k < p->n_stages; k++) {
        const ru_pipe_stage *s = &p->stages[k];
        workers[k] = s->workers;
        double own = s->compute_s / s->workers, send = 2 * s->cut_bytes / bytes_per_s;
        c->slowest_s = own > c->slowest_s ? own : c->slowest_s;
        c->cut_s = send > c->cut_s ? send : c->cut_s;
        c->stage_bytes = s->memory_bytes > c->stage_bytes ? s->memory_bytes : c->stage_bytes;
        c->sent_bytes += 2 * s->cut_bytes + s->workers * (s->workers - 1.0) * s->param_bytes;
    }
    c->pipeline_s = read_bound(l, p->stages[0].workers, pipeline_s);
    c->cut = cut;
    c->workers = workers;
    return RU_OK;
}

ru_status ru_pipe_choose(const ru_pipe_layers *l, uint32_t workers, double bytes_per_s,
                         ru_arena *arena, ru_pipe_choice *out, ru_err *err)
{
    const ru_pipe_plan *p;
    const char *asked;
    ru_pipe_choice c = {0};
    const ru_pipe_shape one_each = {.schedule = l->schedule, .n = workers, .micro = l->micro};
    if (l->n == 0 || l->micro < ru_pipe_micro_min(&one_each)) {
        ru_pipe_data(l, workers, bytes_per_s, &c);
        *out = c;
        return RU_OK;
    }
    RU_TRY(ask(l, workers, bytes_per_s, NULL, arena, &asked, &p, err));
    if (p != NULL) {
        c.data_s = p->data_parallel_s;
        c.single_s = p->single_s;
    }
    ru_pipe_data(l, workers, bytes_per_s, &c);
    if (p != NULL && runs(l, p, workers)) {
        double s = p->minibatch_s;
        RU_TRY(p->n_stages == workers ? played_s(l, p, bytes_per_s, arena, &s, err) : RU_OK);
        RU_TRY(take(l, p, bytes_per_s, s, arena, &c, err));
        c.asked = asked;
    }
    if (!ru_pipe_whole(&one_each) && l->speeds == NULL) { /* else one worker a stage */
        RU_TRY(ask(l, workers, bytes_per_s, "pipeline", arena, &asked, &p, err));
        double s = p != NULL ? step_s(l, p, bytes_per_s) : 0;
        bool is = p != NULL && runs(l, p, workers) && p->n_stages < workers;
        if (is && (c.n_cut == 0 || s < c.pipeline_s)) {
            RU_TRY(take(l, p, bytes_per_s, s, arena, &c, err));
            c.asked = asked;
        }
    }
    *out = c;
    return RU_OK;
}
