/* The update rules of pipelines, done in one process, one micro-batch after the other:
 *
 *     rule RUN [as KIND] [STEP...]
 *
 *     several workers   micro-batch j of a step counts for sum j mod m of each stage with m
 *                       workers; a stage updates by its sums added in their order
 *     stash             a stage updates the newest weights. Each of its workers has at most a
 *                       micro-batches on their way: a is 1 in the last stage, and before it 1 more
 *                       than is enough for all workers of the next stage. So when the i-th of a
 *                       worker goes forward, i + 1 - a of its own went back, and it uses the
 *                       weights after the updates of the steps that are among these, or after c
 *     vertical          all micro-batches of step t, in all stages, with the weights with which
 *                       stash computes the first one in the first stage
 *     2bw               with those after max(t - 1, c), in all stages
 *
 *     With one micro-batch in a step and one worker a stage stash is late by n - 1 - s in stage s
 *     of n, and vertical by n - 1.
 *
 *     Running statistics are compared only where a step is one micro-batch.
 *
 *     c: the last step at which the pipeline drained: an evaluation, or a STEP
 *
 * as KIND instead of the job's schedule: flush; naive (forward as stash, backward with the newest
 * weights). Trains the job of RUN from its beginning to its newest checkpoint and compares all
 * states, bit by bit. Shares nothing with the runtime of pipelines: neither its cut nor its
 * schedule, its links or its sums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/reader.h"
#include "exec/exe.h"
#include "run/ckpt.h"
#include "train/job/job.h"
#include "train/job/schedule.h"
#include "train/model/model.h"
#include "train/model/step.h"

enum { GRADS_MAX = 256, WORKERS_MAX = 16, STATES_MAX = 256, VERSIONS_MAX = 16, STEPS_MAX = 1024 };

/* A parameter, and what it was after each of the last updates. */
typedef struct trained {
    ru_value_id state;
    uint32_t stage;
    void *after[VERSIONS_MAX]; /* of update k: k mod VERSIONS_MAX */
} trained;

typedef struct rule {
    ru_arena arena;
    ru_job job;
    ru_ckpt_info saved;
    ru_dataset *data;
    ru_stream *stream;
    ru_model model;
    ru_step_graph step;
    ru_exe *exe, *there; /* of this process; with the checkpoint */
    const ru_exe_grad *grads;
    uint32_t n_grads, micro;
    float *sums[GRADS_MAX][WORKERS_MAX];
    uint32_t workers[GRADS_MAX]; /* of the stage of each gradient */
    const char *kind;            /* flush, stash, vertical, 2bw, naive */
    trained params[STATES_MAX];
    uint32_t n_params;
    int64_t drained, drains[STEPS_MAX]; /* [n_drains] beside evaluations */
    uint32_t n_drains;
} rule;

/* Parameters stand in the order of the model: a cut begins a stage with the first that has its
 * name. */
static uint32_t stage_of(const rule *r, const char *param)
{
    const ru_graph *g = &r->step.graph;
    const ru_job_pipeline *p = &r->job.train.pipeline;
    uint32_t stage = 0;
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        if (x->kind != RU_VALUE_STATE || x->role != RU_ROLE_PARAM || x->name == NULL) {
            continue;
        }
        size_t n = stage < p->cut.n ? strlen(p->cut.at[stage]) : 0;
        if (n > 0 && strncmp(x->name, p->cut.at[stage], n) == 0 && x->name[n] == '.') {
            stage++;
        }
        if (strcmp(x->name, param) == 0) {
            return stage;
        }
    }
    return 0;
}

/* What the model makes: the first operand of the node that reads the labels. Loss and gradients
 * come after it. */
static ru_value_id answer_of(const ru_step_graph *s)
{
    const ru_graph *g = &s->graph;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 1; k < g->nodes[i].n_in; k++) {
            if (g->nodes[i].in[k].v == s->y[0].v) {
                return g->nodes[i].in[0];
            }
        }
    }
    return s->loss;
}

static ru_status open_exes(rule *r, const ru_model_facts *facts, ru_err *err)
{
    const ru_job_train *t = &r->job.train;
    r->micro = t->accumulate > 1 ? (uint32_t)t->accumulate : 1;
    const ru_step_options so = {.loss = r->model.loss,
                                .optimizer = ru_job_optimizer_get(&r->job),
                                .groups = t->groups.at,
                                .n_groups = t->groups.n,
                                .label_smoothing = t->label_smoothing,
                                .accumulate = 1,
                                .batch = t->batch / r->micro,
                                .share_of = t->batch,
                                .x = facts->x,
                                .y = facts->y};
    RU_TRY(ru_step_build(&r->model.train, &so, &r->arena, &r->step, err));
    const ru_value_id answer = answer_of(&r->step);
    const ru_exe_options eo = {
        .threads = 1, .two_phase = true, .plain_grads = true, .forward = &answer, .n_forward = 1};
    RU_TRY(ru_exe_open(&r->step.graph, &eo, &r->exe, err));
    RU_TRY(ru_exe_open(&r->step.graph, &eo, &r->there, err));
    RU_TRY(ru_ckpt_load(&r->saved, &r->step.graph, r->there, true, err));
    return ru_model_init(&r->model, (uint64_t)t->seed, &r->step.graph, r->exe, 1, err);
}

static int64_t workers_of(const rule *r, uint32_t stage)
{
    const ru_conf_i64s *of = &r->job.train.pipeline.workers;
    return of->n > stage ? of->at[stage] : 1;
}

static ru_status open_sums(rule *r, ru_err *err)
{
    r->n_grads = ru_exe_grads(r->exe, &r->grads);
    for (uint32_t k = 0; k < r->n_grads; k++) {
        const char *param = r->grads[k].param; /* NULL: a figure of the last stage */
        uint32_t stage = param != NULL ? stage_of(r, param) : r->job.train.pipeline.cut.n;
        int64_t m = workers_of(r, stage);
        if (k >= GRADS_MAX || m > WORKERS_MAX) {
            return RU_FAIL(err, RU_E_UNSUPPORTED, "gradient %u is too much for this test", k);
        }
        r->workers[k] = (uint32_t)m;
        for (uint32_t i = 0; i < r->workers[k]; i++) {
            r->sums[k][i] = ru_arena_zalloc(&r->arena, r->grads[k].size_bytes, 64);
        }
    }
    return RU_OK;
}

/* -- weights of other steps ---------------------------------------------------------------------
 */

static ru_status open_params(rule *r, ru_err *err)
{
    const ru_graph *g = &r->step.graph;
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        if (x->kind != RU_VALUE_STATE || x->role != RU_ROLE_PARAM || x->name == NULL) {
            continue;
        }
        if (r->n_params == STATES_MAX) {
            return RU_FAIL(err, RU_E_UNSUPPORTED, "too many parameters for this test");
        }
        trained *p = &r->params[r->n_params++];
        *p = (trained){.state = {v}, .stage = stage_of(r, x->name)};
        for (uint32_t k = 0; k < VERSIONS_MAX; k++) {
            p->after[k] = ru_arena_zalloc(&r->arena, ru_type_bytes(&x->type), 64);
        }
    }
    return RU_OK;
}

static ru_status keep(rule *r, int64_t updates, ru_err *err)
{
    for (uint32_t k = 0; k < r->n_params; k++) {
        RU_TRY(ru_exe_state_read(r->exe, r->params[k].state,
                                 r->params[k].after[updates % VERSIONS_MAX], err));
    }
    return RU_OK;
}

/* After how many updates stash computes micro-batch j of `step` in this stage, were there no
 * drains: of all micro-batches so far, those of its worker that went back before it. */
static int64_t stashed(const rule *r, int64_t step, uint32_t j, uint32_t stage)
{
    int64_t m = workers_of(r, stage), behind = 0, ahead = 1;
    for (uint32_t s = r->job.train.pipeline.cut.n; s > stage; s--) {
        int64_t each = 1;
        while ((each - 1) * workers_of(r, s) < behind) {
            each++;
        }
        behind = each * workers_of(r, s);
    }
    while ((ahead - 1) * m < behind) {
        ahead++;
    }
    int64_t own = (step * r->micro + j) / m + 1; /* with this one */
    return own < ahead ? 0 : (own - ahead) * m / r->micro;
}

/* The weights that micro-batch j of `step` is computed with; newest: those after all updates so
 * far. */
static ru_status weights(rule *r, int64_t step, uint32_t j, bool newest, ru_err *err)
{
    bool flush = newest || strcmp(r->kind, "flush") == 0;
    bool same = strcmp(r->kind, "vertical") == 0;
    for (uint32_t k = 0; k < r->n_params; k++) {
        const trained *p = &r->params[k];
        int64_t updates = strcmp(r->kind, "2bw") == 0
                              ? step - 1
                              : stashed(r, step, same ? 0 : j, same ? 0 : p->stage);
        updates = updates > r->drained ? updates : r->drained;
        updates = flush ? step : updates;
        RU_TRY(ru_exe_state_write(r->exe, p->state, p->after[updates % VERSIONS_MAX], err));
    }
    return RU_OK;
}

static bool drains_at(const rule *r, int64_t step)
{
    int64_t every = r->job.train.eval_every;
    bool is = every > 0 && step % every == 0;
    for (uint32_t k = 0; k < r->n_drains; k++) {
        is = is || r->drains[k] == step;
    }
    return is;
}

static ru_status open_all(rule *r, const char *run, ru_err *err)
{
    ru_model_facts facts;
    RU_TRY(ru_ckpt_find(run, &r->arena, &r->saved, err));
    RU_TRY(ru_job_parse("checkpoint", r->saved.job_yaml, &r->arena, &r->job, err));
    const ru_data_options d = ru_job_data_options(&r->job, false);
    RU_TRY(ru_dataset_open(&d, &r->data, err));
    RU_TRY(ru_model_facts_from(r->data, &r->arena, &facts, err));
    RU_TRY(ru_model_open(&r->job, &facts, NULL, &r->arena, &r->model, err));
    RU_TRY(open_exes(r, &facts, err));
    RU_TRY(open_sums(r, err));
    static const char *const kinds[] = {"flush", "flush", "stash", "vertical", "2bw"};
    r->kind = r->kind != NULL ? r->kind : kinds[r->job.train.pipeline.schedule % 5];
    RU_TRY(open_params(r, err));
    RU_TRY(keep(r, 0, err));
    const ru_stream_options so = {.seed = (uint64_t)r->job.train.seed,
                                  .augment = r->job.data.augment,
                                  .shuffle = ru_job_shuffle(&r->job),
                                  .batch = r->job.train.batch / r->micro};
    return ru_stream_open(r->data, &so, &r->stream, err);
}

static ru_status micro_batch(rule *r, int64_t step, uint32_t j, ru_err *err)
{
    const ru_step_graph *s = &r->step;
    ru_batch b;
    RU_TRY(ru_stream_next(r->stream, &b, err));
    for (uint32_t k = 0; k < 2; k++) {
        ru_value_id v = k == 0 ? s->x[0] : s->y[0];
        memcpy(ru_exe_input(r->exe, v), b.fields[k],
               (size_t)ru_type_bytes(&ru_graph_value(&s->graph, v)->type));
    }
    const ru_run_args args = {
        .seed = (uint64_t)r->job.train.seed, .step = step, .sample_offset = (int64_t)j * b.n};
    RU_TRY(weights(r, step, j, false, err));
    RU_TRY(ru_exe_phase(r->exe, RU_PHASE_FORWARD, &args, err));
    RU_TRY(strcmp(r->kind, "naive") == 0 ? weights(r, step, j, true, err) : RU_OK);
    RU_TRY(ru_exe_phase(r->exe, RU_PHASE_BACKWARD, &args, err));
    RU_TRY(weights(r, step, j, true, err));
    for (uint32_t k = 0; k < r->n_grads; k++) {
        float *sum = r->sums[k][j % r->workers[k]];
        const float *g = r->grads[k].data;
        for (int64_t i = 0; i < r->grads[k].size_bytes / 4; i++) {
            sum[i] = j < r->workers[k] ? g[i] : sum[i] + g[i];
        }
    }
    return RU_OK;
}

static ru_status one_step(rule *r, const ru_schedule *schedule, int64_t step, ru_err *err)
{
    const ru_step_graph *s = &r->step;
    double lr = ru_schedule_lr(schedule, ru_job_optimizer_get(&r->job).lr, step);
    for (uint32_t j = 0; j < r->micro; j++) {
        RU_TRY(micro_batch(r, step, j, err));
    }
    for (uint32_t k = 0; k < r->n_grads; k++) {
        float *g = r->grads[k].data;
        for (int64_t i = 0; i < r->grads[k].size_bytes / 4; i++) {
            g[i] = r->sums[k][0][i];
            for (uint32_t w = 1; w < r->workers[k]; w++) {
                g[i] += r->sums[k][w][i];
            }
        }
    }
    *(float *)ru_exe_input(r->exe, s->lr) = (float)lr;
    if (s->step.v != 0) {
        *(int64_t *)ru_exe_input(r->exe, s->step) = step + 1;
    }
    const ru_run_args args = {.seed = (uint64_t)r->job.train.seed, .step = step};
    RU_TRY(ru_exe_phase(r->exe, RU_PHASE_UPDATE, &args, err));
    r->drained = drains_at(r, step + 1) ? step + 1 : r->drained;
    return keep(r, step + 1, err);
}

static ru_status compare(rule *r, ru_err *err)
{
    const ru_graph *g = &r->step.graph;
    uint32_t n = 0;
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        bool follows = r->micro > 1 && x->role == RU_ROLE_BUFFER;
        if (x->kind != RU_VALUE_STATE || x->name == NULL || follows) {
            continue;
        }
        int64_t bytes = ru_type_bytes(&x->type);
        void *a = ru_arena_zalloc(&r->arena, bytes, 64), *b = ru_arena_zalloc(&r->arena, bytes, 64);
        RU_TRY(ru_exe_state_read(r->exe, (ru_value_id){v}, a, err));
        RU_TRY(ru_exe_state_read(r->there, (ru_value_id){v}, b, err));
        if (memcmp(a, b, (size_t)bytes) != 0) {
            return RU_FAIL(err, RU_E_DATA, "'%s' differs from that of the rule", x->name);
        }
        n++;
    }
    printf("%u states of step %lld have the bits of the rule\n", n, (long long)r->saved.at.step);
    return RU_OK;
}

int main(int argc, char **argv)
{
    static rule r;
    ru_err err = {0};
    ru_arena_init(&r.arena, 0);
    int at = 2;
    if (argc > 3 && strcmp(argv[2], "as") == 0) {
        r.kind = argv[3];
        at = 4;
    }
    for (; at < argc && r.n_drains < STEPS_MAX; at++) {
        r.drains[r.n_drains++] = strtoll(argv[at], NULL, 10);
    }
    if (argc < 2 || at < argc) {
        fprintf(stderr, "usage: rule RUN [as KIND] [STEP...]\n");
        return 2;
    }
    ru_status st = open_all(&r, argv[1], &err);
    int64_t steps = st == RU_OK ? r.saved.at.step : 0;
    const ru_schedule schedule =
        st == RU_OK ? ru_job_schedule_get(&r.job, r.job.train.steps) : (ru_schedule){0};
    for (int64_t k = 0; k < steps && st == RU_OK; k++) {
        st = one_step(&r, &schedule, k, &err);
    }
    st = st == RU_OK ? compare(&r, &err) : st;
    if (st != RU_OK) {
        fprintf(stderr, "rule: %s\n", err.text);
    }
    ru_stream_close(r.stream);
    ru_exe_close(r.exe);
    ru_exe_close(r.there);
    ru_model_close(&r.model);
    ru_dataset_close(r.data);
    ru_arena_fini(&r.arena);
    return st == RU_OK ? 0 : 1;
}
