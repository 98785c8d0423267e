#include "fleet/local.h"

#include <math.h>
#include <string.h>

#include "exec/exe.h"
#include "train/model/step.h"

enum { SIZES_MAX = 256 };

/* The step, or the evaluation, of batches of one size. */
typedef struct sized {
    int64_t n;
    ru_step_graph step;
    ru_exe *exe;
} sized;

struct ru_local {
    const ru_job *job;
    ru_arena *arena;
    ru_model model;
    ru_exe_options eo;
    ru_optimizer optimizer;
    ru_schedule schedule;
    ru_flat flat;
    sized train[SIZES_MAX], eval[SIZES_MAX]; /* the state of all is that of train[0] */
    uint32_t n_train, n_eval;
};

static ru_status check(const ru_job *job, ru_err *err)
{
    const ru_augment none = {0};
    if (memcmp(&job->data.augment, &none, sizeof none) != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "clients do not change their samples at random; leave data.augment out");
    }
    if (job->train.batch > SIZES_MAX * INT64_C(1024)) {
        return RU_FAIL(err, RU_E_CONFIG, "train.batch is %lld; clients take at most %d samples",
                       (long long)job->train.batch, SIZES_MAX * 1024);
    }
    return RU_OK;
}

static ru_status open_sized(ru_local *l, int64_t n, bool eval, sized *s, ru_err *err)
{
    const ru_job_train *j = &l->job->train;
    ru_step_options so = {.loss = l->model.loss,
                          .optimizer = l->optimizer,
                          .groups = j->groups.at,
                          .n_groups = j->groups.n,
                          .label_smoothing = eval ? 0 : j->label_smoothing,
                          .clip_norm = j->clip_norm,
                          .prox = eval ? 0 : l->job->federated.prox,
                          .accumulate = 1,
                          .batch = n,
                          .x = l->model.facts.x,
                          .y = l->model.facts.y};
    ru_exe_options eo = l->eo;
    eo.share = l->n_train > 0 ? l->train[0].exe : NULL;
    s->n = n;
    RU_TRY(eval ? ru_step_build_eval(&l->model.infer, &so, l->arena, &s->step, err)
                : ru_step_build(&l->model.train, &so, l->arena, &s->step, err));
    return ru_exe_open(&s->step.graph, &eo, &s->exe, err);
}

static ru_status sized_of(ru_local *l, int64_t n, bool eval, sized **out, ru_err *err)
{
    sized *at = eval ? l->eval : l->train;
    uint32_t *count = eval ? &l->n_eval : &l->n_train;
    for (uint32_t k = 0; k < *count; k++) {
        if (at[k].n == n) {
            *out = &at[k];
            return RU_OK;
        }
    }
    if (*count == SIZES_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %d sizes of batches among the clients",
                       SIZES_MAX);
    }
    RU_TRY(open_sized(l, n, eval, &at[*count], err));
    *out = &at[(*count)++];
    return RU_OK;
}

ru_status ru_local_open(const ru_rundir *run, uint32_t threads, ru_arena *arena, ru_local **out,
                        ru_err *err)
{
    const ru_job *job = &run->job;
    RU_TRY(check(job, err));
    ru_local *l = RU_NEW(arena, ru_local, 1);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a client");
    }
    *l = (ru_local){.job = job,
                    .arena = arena,
                    .optimizer = ru_job_optimizer_get(job),
                    .schedule = ru_job_schedule_get(job, job->federated.rounds)};
    l->eo = (ru_exe_options){.device = (ru_device_kind)job->train.device,
                             .precision = (ru_precision)job->train.precision,
                             .threads = threads > 0 ? threads : job->train.threads};
    sized *first;
    RU_TRY(ru_model_open(job, &run->ckpt.facts, run->onnx, arena, &l->model, err));
    ru_status st = sized_of(l, job->train.batch, false, &first, err);
    st = st == RU_OK ? ru_flat_of(&first->step.graph, arena, &l->flat, err) : st;
    if (st != RU_OK) {
        ru_local_close(l);
        return st;
    }
    *out = l;
    return RU_OK;
}

/* Batches of n samples: whole ones, and what is left. */
static ru_status prepare_sizes(ru_local *l, int64_t n, bool eval, ru_err *err)
{
    sized *s;
    int64_t batch = l->job->train.batch;
    RU_TRY(n >= batch ? sized_of(l, batch, eval, &s, err) : RU_OK);
    return n % batch > 0 ? sized_of(l, n % batch, eval, &s, err) : RU_OK;
}

static int64_t bytes_of(const sized *at, uint32_t n)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < n; k++) {
        ru_exe_stats s;
        ru_exe_stats_get(at[k].exe, &s);
        bytes += s.arena_bytes + s.const_bytes + s.scratch_bytes + s.io_bytes;
    }
    return bytes;
}

ru_status ru_local_prepare(ru_local *l, int64_t train, int64_t held, int64_t *bytes, ru_err *err)
{
    ru_exe_stats s;
    RU_TRY(prepare_sizes(l, train, false, err));
    RU_TRY(prepare_sizes(l, held, true, err));
    ru_exe_stats_get(l->train[0].exe, &s);
    *bytes = s.state_bytes + bytes_of(l->train, l->n_train) + bytes_of(l->eval, l->n_eval);
    return RU_OK;
}

void ru_local_close(ru_local *l)
{
    if (l == NULL) {
        return;
    }
    for (uint32_t k = 0; k < l->n_eval; k++) {
        ru_exe_close(l->eval[k].exe);
    }
    for (uint32_t k = l->n_train; k-- > 0;) {
        ru_exe_close(l->train[k].exe);
    }
    l->n_train = l->n_eval = 0;
    ru_model_close(&l->model);
}

const ru_flat *ru_local_flat(const ru_local *l)
{
    return &l->flat;
}

/* -- a task ---------------------------------------------------------------------------------------
 */

/* The anchors of FedProx: the parameters as they were sent. */
static ru_status set_anchors(ru_local *l, const float *values, ru_err *err)
{
    const ru_graph *g = &l->train[0].step.graph;
    ru_arena_mark mark = ru_arena_mark_get(l->arena);
    for (uint32_t k = 0; k < l->flat.n && l->job->federated.prox > 0; k++) {
        const ru_value *p = &g->values[l->flat.at[k].v];
        const char *name = ru_arena_printf(l->arena, "%s.%s", p->name, RU_ANCHOR_SUFFIX);
        ru_value_id anchor = name != NULL ? ru_graph_find(g, name) : (ru_value_id){0};
        ru_arena_rewind(l->arena, mark);
        if (anchor.v != 0) { /* a frozen one has none */
            RU_TRY(ru_exe_state_write(l->train[0].exe, anchor, values, err));
        }
        values += ru_type_count(&p->type);
    }
    return RU_OK;
}

/* Slots of the optimizer begin with zeros. */
static ru_status clear_slots(ru_local *l, ru_err *err)
{
    const ru_graph *g = &l->train[0].step.graph;
    ru_arena_mark mark = ru_arena_mark_get(l->arena);
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].kind != RU_VALUE_STATE || g->values[v].role != RU_ROLE_SLOT) {
            continue;
        }
        int64_t bytes = ru_type_bytes(&g->values[v].type);
        void *zeros = ru_arena_alloc(l->arena, bytes, 64);
        if (zeros == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the optimizer of a client");
        }
        memset(zeros, 0, (size_t)bytes);
        RU_TRY(ru_exe_state_write(l->train[0].exe, (ru_value_id){v}, zeros, err));
        ru_arena_rewind(l->arena, mark);
    }
    return RU_OK;
}

/* The samples at positions [at, at + s->n) of a pass. */
static ru_status feed(const ru_local *l, const ru_local_view *view, sized *s, int64_t at,
                      const ru_local_task *task, int64_t pass, ru_err *err)
{
    const ru_step_graph *g = &s->step;
    int64_t x_bytes = ru_type_bytes(&l->model.facts.x), y_bytes = ru_type_bytes(&l->model.facts.y);
    uint8_t *x = ru_exe_input(s->exe, g->x[0]), *y = ru_exe_input(s->exe, g->y[0]);
    bool shuffle = task != NULL && ru_job_shuffle(l->job) != RU_SHUFFLE_NONE;
    for (int64_t k = 0; k < s->n; k++) {
        int64_t p = shuffle ? ru_order_sample(task->seed, pass, at + k, view->n) : at + k;
        void *fields[RU_FIELDS_MAX] = {x + k * x_bytes, y + k * y_bytes};
        RU_TRY(ru_dataset_read(view->data, view->index != NULL ? view->index[p] : p, fields, err));
    }
    return RU_OK;
}

static double scalar(const sized *s, ru_value_id v)
{
    return (double)*(const float *)ru_exe_output(s->exe, v);
}

static void set_scalars(const ru_local *l, sized *s, int64_t round, int64_t step)
{
    double lr = ru_schedule_lr(&l->schedule, l->optimizer.lr, round - 1);
    *(float *)ru_exe_input(s->exe, s->step.lr) = (float)lr;
    for (uint32_t k = 0; k < s->step.n_rates; k++) {
        *(float *)ru_exe_input(s->exe, s->step.rates[k].input) =
            (float)(lr * s->step.rates[k].factor);
    }
    if (s->step.step.v != 0) {
        *(int64_t *)ru_exe_input(s->exe, s->step.step) = step + 1;
    }
}

typedef struct sums {
    double loss, square, correct, count;
    int64_t steps;
} sums;

static ru_status step(ru_local *l, const ru_local_view *view, const ru_local_task *task,
                      int64_t pass, int64_t at, sums *sum, ru_err *err)
{
    sized *s;
    int64_t left = view->n - at, batch = l->job->train.batch;
    RU_TRY(sized_of(l, left < batch ? left : batch, false, &s, err));
    RU_TRY(feed(l, view, s, at, task, pass, err));
    set_scalars(l, s, task->round, sum->steps);
    const ru_run_args args = {
        .seed = task->seed, .step = (task->round << 20) + sum->steps, .sample_offset = at};
    RU_TRY(ru_exe_run(s->exe, &args, err));
    double loss = scalar(s, s->step.loss);
    if (!isfinite(loss)) {
        return RU_FAIL(err, RU_E_USER,
                       "the loss is not a number in step %lld of round %lld: training diverged; "
                       "lower the learning rate (train.optimizer, lr) or set train.clip_norm",
                       (long long)sum->steps + 1, (long long)task->round);
    }
    sum->steps++;
    sum->loss += loss;
    sum->square += loss * loss;
    if (s->step.correct.v != 0) {
        sum->correct += scalar(s, s->step.correct);
        sum->count += scalar(s, s->step.count);
    }
    return RU_OK;
}

ru_status ru_local_train(ru_local *l, const ru_local_view *view, const ru_local_task *task,
                         float *values, ru_local_result *out, ru_err *err)
{
    sums sum = {0};
    const ru_graph *g = &l->train[0].step.graph;
    RU_TRY(ru_flat_write(&l->flat, g, l->train[0].exe, values, err));
    RU_TRY(clear_slots(l, err));
    RU_TRY(set_anchors(l, values, err));
    for (int64_t e = 0; e < task->epochs; e++) {
        int64_t pass = (task->round - 1) * task->epochs + e;
        for (int64_t at = 0; at < view->n; at += l->job->train.batch) {
            if (task->stop != NULL && task->stop(task->self)) {
                return RU_FAIL(err, RU_E_CANCELLED, "the task was given up");
            }
            RU_TRY(step(l, view, task, pass, at, &sum, err));
        }
    }
    *out = (ru_local_result){.loss = sum.loss / (double)sum.steps,
                             .loss_rms = sqrt(sum.square / (double)sum.steps),
                             .accuracy = sum.count > 0 ? sum.correct / sum.count : -1,
                             .samples = view->n};
    return ru_flat_read(&l->flat, g, l->train[0].exe, values, err);
}

ru_status ru_local_eval(ru_local *l, const ru_local_view *view, const float *values,
                        ru_local_score *out, ru_err *err)
{
    ru_local_score score = {0};
    int64_t batch = l->job->train.batch;
    RU_TRY(ru_flat_write(&l->flat, &l->train[0].step.graph, l->train[0].exe, values, err));
    for (int64_t at = 0; at < view->n; at += batch) {
        sized *s;
        int64_t n = view->n - at < batch ? view->n - at : batch;
        RU_TRY(sized_of(l, n, true, &s, err));
        RU_TRY(feed(l, view, s, at, NULL, 0, err));
        RU_TRY(ru_exe_run(s->exe, &(ru_run_args){0}, err));
        score.loss += scalar(s, s->step.loss) * (double)n;
        if (s->step.correct.v != 0) {
            score.correct += scalar(s, s->step.correct);
            score.count += scalar(s, s->step.count);
        }
    }
    score.loss /= view->n > 0 ? (double)view->n : 1;
    *out = score;
    return RU_OK;
}
