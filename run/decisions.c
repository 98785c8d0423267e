/* Installed plans: a ring of entries, each with an arena of its own. */
#include "run/decisions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/thread.h"

enum { FIGURES_MAX = 24 };

typedef struct entry {
    ru_arena arena;
    const ru_policy *policy;
    ru_world_plan plan;
    ru_hash128 id;
    ru_conf_pair predicted[FIGURES_MAX], measured[FIGURES_MAX];
} entry;

struct ru_decisions {
    ru_mutex lock;
    const char *dir, *job;
    entry at[RU_DECISIONS_MAX];
    uint32_t first, n; /* ring */
    ru_coll_fact *sums;
    uint32_t n_sums;
};

ru_status ru_decisions_open(const char *dir, const char *job, ru_decisions **out, ru_err *err)
{
    ru_decisions *d = calloc(1, sizeof *d);
    ru_coll_fact *sums = calloc(RU_DECISIONS_SUMS_MAX, sizeof *sums);
    if (d == NULL || sums == NULL) {
        free(d);
        free(sums);
        return RU_FAIL(err, RU_E_MEM, "not enough memory to record decisions");
    }
    d->dir = dir;
    d->job = job;
    d->sums = sums;
    ru_mutex_init(&d->lock);
    *out = d;
    return RU_OK;
}

void ru_decisions_close(ru_decisions *d)
{
    if (d == NULL) {
        return;
    }
    for (uint32_t i = 0; i < RU_DECISIONS_MAX; i++) {
        ru_arena_fini(&d->at[i].arena);
    }
    ru_mutex_fini(&d->lock);
    free(d->sums);
    free(d);
}

static entry *newest(ru_decisions *d, const ru_policy *policy)
{
    for (uint32_t i = d->n; i > 0; i--) {
        entry *e = &d->at[(d->first + i - 1) % RU_DECISIONS_MAX];
        if (e->policy == policy) {
            return e;
        }
    }
    return NULL;
}

/* -- plans ----------------------------------------------------------------------------------------
 */

static void set_figure(ru_conf_pairs *list, ru_conf_pair *at, const char *name, double value)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(at[i].key, name) == 0) {
            at[i].value = value;
            return;
        }
    }
    if (list->n < FIGURES_MAX && isfinite(value)) {
        at[list->n++] = (ru_conf_pair){name, value};
    }
    list->at = at;
}

static ru_status fill(entry *e, const ru_decisions *d, const ru_policy *policy, const void *in,
                      const ru_policy_answer *a, ru_err *err)
{
    char id[33];
    ru_text input = ru_text_arena(&e->arena);
    ru_json j = ru_json_into(&input);
    ru_fields_json(policy->in, in, NULL, &j);
    ru_hash128_text(a->head.id, id);
    e->policy = policy;
    e->id = a->head.id;
    e->plan = (ru_world_plan){.policy = policy->name,
                              .version = policy->version,
                              .id = ru_arena_str(&e->arena, id),
                              .job = d->job,
                              .at_ns = ru_clock_wall_ns(),
                              .input = input.p};
    for (uint32_t i = 0; i < a->head.predicted.n; i++) {
        const char *name = ru_arena_str(&e->arena, a->head.predicted.at[i].name);
        if (name != NULL) {
            set_figure(&e->plan.predicted, e->predicted, name, a->head.predicted.at[i].value);
        }
    }
    return e->plan.id == NULL || input.cut ? RU_FAIL(err, RU_E_MEM, "no memory for a plan") : RU_OK;
}

/* Appended and not synced: nobody may wait for a disk. */
static ru_status put_line(const ru_decisions *d, const char *file, ru_text *t, ru_arena *scratch,
                          ru_err *err)
{
    ru_text_put(t, "\n");
    const char *dir = ru_path_join(scratch, d->dir, "plans");
    const char *path = dir == NULL ? NULL : ru_path_join(scratch, dir, file);
    if (path == NULL || t->cut) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a plan");
    }
    ru_log_file *f = NULL;
    RU_TRY(ru_dir_make(dir, err));
    RU_TRY(ru_log_file_open(path, true, &f, err));
    ru_status st = ru_log_file_append(f, t->p, t->n, err);
    ru_log_file_close(f);
    return st;
}

/* One line of OUT/plans/measured.jsonl. */
static void tell_measured(ru_decisions *d, const entry *e, const char *figure, double measured)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text t = ru_text_arena(&scratch);
    ru_json j = ru_json_into(&t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.measured/1");
    ru_json_str(&j, "policy", e->plan.policy);
    ru_json_str(&j, "id", e->plan.id);
    ru_json_i64(&j, "at_ns", ru_clock_wall_ns());
    ru_json_str(&j, "figure", figure);
    for (uint32_t i = 0; i < e->plan.predicted.n; i++) {
        if (strcmp(e->predicted[i].key, figure) == 0) {
            ru_json_f64(&j, "predicted", e->predicted[i].value);
        }
    }
    ru_json_f64(&j, "measured", measured);
    ru_json_close(&j);
    ru_err err = {0};
    if (put_line(d, "measured.jsonl", &t, &scratch, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "plan", "what was measured is not recorded: %s", err.text);
    }
    ru_arena_fini(&scratch);
}

/* One line of OUT/plans/installed.jsonl. */
static ru_status append(const ru_decisions *d, const entry *e, const ru_policy_answer *a,
                        ru_arena *scratch, ru_err *err)
{
    ru_text t = ru_text_arena(scratch);
    ru_json j = ru_json_into(&t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.plan/1");
    ru_json_str(&j, "policy", e->plan.policy);
    ru_json_i64(&j, "version", e->plan.version);
    ru_json_str(&j, "id", e->plan.id);
    ru_json_i64(&j, "at_ns", e->plan.at_ns);
    RU_TRY(ru_report_json(&a->report, &j, err));
    ru_json_raw(&j, "asked", e->plan.input);
    ru_json_close(&j);
    return put_line(d, "installed.jsonl", &t, scratch, err);
}

static entry *entry_at(ru_decisions *d, uint32_t k)
{
    return &d->at[(d->first + k) % RU_DECISIONS_MAX];
}

static void move(entry *to, const entry *from)
{
    *to = *from;
    to->plan.predicted.at = to->predicted;
    to->plan.measured.at = to->measured;
}

/* The oldest goes whose policy has a newer plan: policies that plan often do not push out others.
 */
static void make_room(ru_decisions *d)
{
    uint32_t k = 0;
    while (newest(d, entry_at(d, k)->policy) == entry_at(d, k)) {
        k++;
    }
    entry gone = *entry_at(d, k);
    for (; k > 0; k--) {
        move(entry_at(d, k), entry_at(d, k - 1));
    }
    move(entry_at(d, 0), &gone);
    d->first = (d->first + 1) % RU_DECISIONS_MAX;
    d->n--;
}

static ru_status add(ru_decisions *d, const ru_policy *policy, const void *in, bool many,
                     ru_arena *out, ru_arena *scratch, ru_err *err)
{
    RU_CHECK(d->n <= RU_DECISIONS_MAX && policy->in != NULL);
    const ru_policy_tools tools = {out, scratch, NULL};
    const entry *last = newest(d, policy);
    ru_hash128 id = ru_policy_head(policy, in).id;
    for (uint32_t i = 0; i < d->n; i++) {
        const entry *e = &d->at[(d->first + i) % RU_DECISIONS_MAX];
        if ((many || e == last) && memcmp(&e->id, &id, sizeof id) == 0) {
            return RU_OK;
        }
    }
    ru_policy_answer a;
    RU_TRY(ru_policy_run(policy, in, &tools, &a, err));
    if (d->n == RU_DECISIONS_MAX) {
        make_room(d);
    }
    entry *e = entry_at(d, d->n);
    ru_arena_fini(&e->arena);
    memset(e, 0, sizeof *e);
    ru_arena_init(&e->arena, 0);
    RU_TRY(fill(e, d, policy, in, &a, err));
    d->n++;
    return append(d, e, &a, scratch, err);
}

void ru_decisions_add(ru_decisions *d, const ru_policy *policy, const void *in, bool many)
{
    if (d == NULL) {
        return;
    }
    ru_arena out, scratch;
    ru_arena_init(&out, 0);
    ru_arena_init(&scratch, 0);
    ru_err err;
    ru_mutex_lock(&d->lock);
    ru_status st = add(d, policy, in, many, &out, &scratch, &err);
    ru_mutex_unlock(&d->lock);
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "plan", "the plan of %s is not recorded: %s", policy->name,
               err.text);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&out);
}

void ru_decisions_measured(ru_decisions *d, const ru_policy *policy, const char *figure,
                           double predicted, double measured)
{
    if (d == NULL) {
        return;
    }
    ru_mutex_lock(&d->lock);
    entry *e = newest(d, policy);
    const char *name = e != NULL ? ru_arena_str(&e->arena, figure) : NULL;
    if (name != NULL) {
        if (!isnan(predicted)) {
            set_figure(&e->plan.predicted, e->predicted, name, predicted);
        }
        set_figure(&e->plan.measured, e->measured, name, measured);
        if (isfinite(measured)) {
            tell_measured(d, e, name, measured);
        }
    }
    ru_mutex_unlock(&d->lock);
}

uint32_t ru_decisions_newest(ru_decisions *d, const ru_policy *policy, const char *figure,
                             uint32_t *predicted_ns)
{
    uint32_t id = 0;
    *predicted_ns = 0;
    if (d == NULL) {
        return 0;
    }
    ru_mutex_lock(&d->lock);
    const entry *e = newest(d, policy);
    for (uint32_t i = 0; e != NULL && i < e->plan.predicted.n; i++) {
        double ns = strcmp(e->predicted[i].key, figure) == 0 ? e->predicted[i].value * 1e9 : 0;
        *predicted_ns = ns >= 1 && ns < UINT32_MAX ? (uint32_t)ns : *predicted_ns;
    }
    id = e != NULL ? (uint32_t)e->id.low : 0;
    ru_mutex_unlock(&d->lock);
    return id;
}

/* -- sums -----------------------------------------------------------------------------------------
 */

static bool same(const ru_coll_fact *a, const ru_coll_fact *b)
{
    return a->n_ranks == b->n_ranks && a->size_bytes == b->size_bytes &&
           a->chunk_bytes == b->chunk_bytes && a->depth == b->depth &&
           strcmp(a->algo, b->algo) == 0 && strcmp(a->op, b->op) == 0;
}

void ru_decisions_sum(ru_decisions *d, const ru_coll_fact *fact)
{
    if (d == NULL) {
        return;
    }
    ru_mutex_lock(&d->lock);
    RU_CHECK(fact->took.count > 0); /* else the file would be refused */
    uint32_t i = 0;
    while (i < d->n_sums && !same(&d->sums[i], fact)) {
        i++;
    }
    if (i < RU_DECISIONS_SUMS_MAX) {
        d->sums[i] = *fact;
        d->n_sums = i == d->n_sums ? i + 1 : d->n_sums;
    }
    ru_mutex_unlock(&d->lock);
}

/* -- giving them out ------------------------------------------------------------------------------
 */

static bool copy_pairs(ru_conf_pairs *list, ru_arena *arena)
{
    ru_conf_pair *at = RU_NEW(arena, ru_conf_pair, list->n);
    for (uint32_t i = 0; at != NULL && i < list->n; i++) {
        at[i] = (ru_conf_pair){ru_arena_str(arena, list->at[i].key), list->at[i].value};
        at = at[i].key != NULL ? at : NULL;
    }
    list->at = at;
    return at != NULL;
}

static bool copy_plan(ru_world_plan *p, ru_arena *arena)
{
    p->id = ru_arena_str(arena, p->id);
    p->input = ru_arena_str(arena, p->input);
    return p->id != NULL && p->input != NULL && copy_pairs(&p->predicted, arena) &&
           copy_pairs(&p->measured, arena);
}

ru_status ru_decisions_get(ru_decisions *d, ru_arena *arena, ru_world *into, ru_err *err)
{
    ru_mutex_lock(&d->lock);
    ru_world_plan *plans = RU_NEW(arena, ru_world_plan, d->n);
    ru_coll_fact *sums =
        ru_arena_copy(arena, d->sums, (int64_t)d->n_sums * (int64_t)sizeof *sums, 8);
    bool full = plans == NULL || sums == NULL;
    for (uint32_t i = 0; i < d->n && !full; i++) {
        plans[i] = d->at[(d->first + i) % RU_DECISIONS_MAX].plan;
        full = !copy_plan(&plans[i], arena);
    }
    into->plans.at = plans;
    into->plans.n = d->n;
    into->facts.collectives.at = sums;
    into->facts.collectives.n = d->n_sums;
    ru_mutex_unlock(&d->lock);
    return full ? RU_FAIL(err, RU_E_MEM, "no memory for the plans of the run") : RU_OK;
}
