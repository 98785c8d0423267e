/* Sums as this worker saw them: spans in its trace beside what was predicted; where it leads, two
 * lines a plan in OUT/plans/sums.jsonl: what was planned and why, and what was measured. */
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "env/file.h"
#include "train/worker/worker_impl.h"

static ru_recorder *recorder(rui_worker *w)
{
    return w->t.recorder;
}

static uint16_t *name_batches(rui_worker *w)
{
    rui_sums *s = &w->sums;
    uint16_t *names = RU_NEW(&s->arena, uint16_t, s->plan.n_batches);
    for (uint32_t b = 0; names != NULL && b < s->plan.n_batches; b++) {
        const ru_elastic_batch *at = &s->plan.at[b];
        const ru_elastic_part *p = &at->part;
        char name[64], cut[24] = "";
        if (b > 0 && p->offset_bytes > 0) {
            (void)snprintf(cut, sizeof cut, " + %lld MiB", (long long)(p->offset_bytes >> 20));
        }
        (void)snprintf(name, sizeof name, "gradients %u..%u%s %s", p->first, p->first + p->n - 1,
                       cut, s->plan.local ? "shared memory" : ru_coll_algo_name(at->choice.algo));
        names[b] = ru_recorder_name(recorder(w), name, "sum");
    }
    return names;
}

static void put_ns(ru_text *t, const char *key, double ns)
{
    ru_text_putf(t, ",\"%s\":", key);
    ru_text_f64(t, ns);
}

static void print_cost(ru_text *t, ru_coll_algo algo, const ru_coll_cost *c, bool first)
{
    ru_text_putf(t, "%s\"%s\":{\"points\":%u", first ? "" : ",", ru_coll_algo_name(algo),
                 c->n_points);
    put_ns(t, "alpha_ns", c->alpha_ns);
    put_ns(t, "beta_ns_per_byte", c->beta_ns);
    put_ns(t, "gamma_ns_per_byte", c->gamma_ns);
    put_ns(t, "error", c->error);
    ru_text_put(t, ",\"at\":[");
    for (uint32_t k = 0; k < c->n_at; k++) {
        ru_text_putf(t, "%s[%lld,%lld]", k > 0 ? "," : "", (long long)c->at[k].size_bytes,
                     (long long)c->at[k].ns);
    }
    ru_text_put(t, "]}");
}

/* What every measured algorithm would take in one piece: why the choice is as it is. */
static void print_candidates(ru_text *t, const ru_elastic_sums *p, int64_t size_bytes)
{
    ru_text_put(t, ",\"candidates_ns\":{");
    bool first = true;
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        const ru_coll_cost *c = &p->costs[a];
        if (c->n_points > 0) {
            int64_t ns =
                ru_cost_coll_ns(c, RU_COLL_ALL_REDUCE, (ru_coll_algo)a, p->n_members, size_bytes);
            ru_text_putf(t, "%s\"%s\":%lld", first ? "" : ",", ru_coll_algo_name((ru_coll_algo)a),
                         (long long)ns);
            first = false;
        }
    }
    ru_text_put(t, "}");
}

static void print_batch(ru_text *t, const ru_elastic_sums *p, uint32_t b)
{
    const ru_elastic_batch *at = &p->at[b];
    ru_text_putf(t, "%s{\"first\":%u,\"tensors\":%u,\"offset\":%lld,\"bytes\":%lld",
                 b > 0 ? "," : "", at->part.first, at->part.n, (long long)at->part.offset_bytes,
                 (long long)at->part.size_bytes);
    if (p->plan != 0) {
        ru_text_putf(t, ",\"algorithm\":\"%s\",\"chunk_bytes\":%lld,\"depth\":%u",
                     ru_coll_algo_name(at->choice.algo), (long long)at->choice.chunk_bytes,
                     at->choice.depth);
        ru_text_putf(t, ",\"predicted_alone_ns\":%lld", (long long)at->choice.predicted_ns);
    }
    if (p->costs != NULL) {
        print_candidates(t, p, at->part.size_bytes);
    }
    ru_text_put(t, "}");
}

static void print_costs(ru_text *t, const ru_elastic_sums *p)
{
    ru_text_put(t, ",\"costs\":{");
    bool first = true;
    for (uint32_t a = 0; p->costs != NULL && a < RU_COLL_ALGOS; a++) {
        if (p->costs[a].n_points > 0) {
            print_cost(t, (ru_coll_algo)a, &p->costs[a], first);
            first = false;
        }
    }
    ru_text_put(t, "}");
}

static void print_head(ru_text *t, const char *schema, const rui_sums *s)
{
    ru_text_putf(t, "{\"schema\":\"%s\",\"plan\":\"%016llx\",\"epoch\":%u,\"step\":%lld", schema,
                 (unsigned long long)s->plan.plan, s->plan.epoch, (long long)s->step);
    ru_text_putf(t, ",\"members\":%u,\"over\":\"%s\"", s->plan.n_members,
                 s->plan.local ? "shared memory" : "network");
}

static void print_plan(ru_text *t, const rui_sums *s)
{
    print_head(t, "rubato.plan.sums/1", s);
    if (s->plan.plan != 0) {
        ru_text_putf(t, ",\"measured\":%s", s->plan.costs != NULL ? "true" : "false");
        print_costs(t, &s->plan);
    }
    ru_text_put(t, ",\"batches\":[");
    for (uint32_t b = 0; b < s->plan.n_batches; b++) {
        print_batch(t, &s->plan, b);
    }
    ru_text_put(t, "]}\n");
}

static void print_measured(ru_text *t, const rui_sums *s)
{
    print_head(t, "rubato.plan.sums.measured/1", s);
    ru_text_put(t, ",\"batches\":[");
    for (uint32_t b = 0; b < s->plan.n_batches; b++) {
        const rui_sum_measured *m = &s->measured[b];
        double n = m->n > 0 ? (double)m->n : 1;
        ru_text_putf(t, "%s{\"sums\":%lld", b > 0 ? "," : "", (long long)m->n);
        if (m->predicted_ns > 0) {
            put_ns(t, "predicted_ns", (double)m->predicted_ns / n);
        }
        put_ns(t, "measured_ns", (double)m->took_ns / n);
        ru_text_put(t, "}");
    }
    ru_text_put(t, "]}\n");
}

/* Appended and not synced: the loop must not wait for a disk. */
static void keep(rui_worker *w, void (*print)(ru_text *t, const rui_sums *s))
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text t = ru_text_arena(&scratch);
    print(&t, &w->sums);
    const char *dir = ru_path_join(&scratch, w->t.out, "plans");
    const char *path = dir == NULL ? NULL : ru_path_join(&scratch, dir, "sums.jsonl");
    ru_log_file *f = NULL;
    ru_err err = {.text = "no memory"};
    if (path == NULL || t.cut || ru_dir_make(dir, &err) != RU_OK ||
        ru_log_file_open(path, true, &f, &err) != RU_OK ||
        ru_log_file_append(f, t.p, t.n, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "plan", "the plan of sums is not kept: %s", err.text);
    }
    ru_log_file_close(f);
    ru_arena_fini(&scratch);
}

void rui_worker_sums_end(rui_worker *w)
{
    rui_sums *s = &w->sums;
    bool any = false;
    for (uint32_t b = 0; s->measured != NULL && b < s->plan.n_batches; b++) {
        any = any || s->measured[b].n > 0;
    }
    if (s->led && any) {
        keep(w, print_measured);
    }
    if (s->open) {
        ru_arena_fini(&s->arena);
    }
    *s = (rui_sums){0};
}

void rui_worker_sums_planned(rui_worker *w, int64_t step)
{
    rui_worker_sums_end(w);
    rui_sums *s = &w->sums;
    ru_arena_init(&s->arena, 0);
    s->open = true;
    ru_err err = {.text = "no memory"};
    ru_status st = ru_elastic_sums_get(ru_peer_elastic(w->node), &s->arena, &s->plan, &err);
    uint16_t *names = st == RU_OK ? name_batches(w) : NULL;
    rui_sum_measured *measured = RU_NEW(&s->arena, rui_sum_measured, s->plan.n_batches);
    if (names == NULL || measured == NULL) {
        ru_log(RU_LOG_WARN, "train", "plan", "sums are not recorded: %s", err.text);
        return;
    }
    s->names = names;
    s->measured = measured;
    s->step = step;
    s->led = ru_member_leads(ru_peer_member(w->node));
    if (s->led) {
        keep(w, print_plan);
    }
}

void rui_worker_summed(void *self, const ru_elastic_sum *sum)
{
    rui_worker *w = self;
    rui_sums *s = &w->sums;
    if (s->names == NULL || sum->batch >= s->plan.n_batches) {
        return;
    }
    int64_t predicted = sum->predicted_ns > UINT32_MAX ? UINT32_MAX : sum->predicted_ns;
    ru_rec_async(recorder(w), s->names[sum->batch], sum->begun.ns, sum->ended.ns, sum->size_bytes,
                 (uint32_t)sum->plan, (uint32_t)predicted);
    rui_sum_measured *m = &s->measured[sum->batch];
    m->n++;
    m->took_ns += ru_time_since(sum->ended, sum->begun);
    m->predicted_ns += sum->predicted_ns;
}
