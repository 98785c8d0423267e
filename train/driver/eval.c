#include "train/driver/eval.h"

#include <math.h>
#include <string.h>

#include "env/process/self.h"
#include "train/driver/scores.h"

typedef struct eval_size {
    ru_step_graph step;
    ru_exe *exe;
    int64_t n; /* samples */
} eval_size;

struct ru_eval {
    const ru_model *model;
    ru_dataset *data;
    ru_arena scratch;
    eval_size main,
        tail; /* tail.exe NULL: the batches come out even; it shares the state of main */
    uint32_t readers;
    int64_t x_bytes, y_bytes; /* of one sample */
    ru_scores scores;         /* n_names 0: none */
    ru_eval_stage stage;      /* take NULL: the whole model */
};

static ru_status size_open(const ru_model *m, int64_t n, const ru_eval_options *opt, ru_exe *share,
                           ru_arena *arena, eval_size *out, ru_err *err)
{
    ru_step_options so = {.loss = m->loss,
                          .label_smoothing = opt->label_smoothing,
                          .batch = n,
                          .x = m->facts.x,
                          .y = m->facts.y,
                          .outputs = opt->n_figures > 0};
    ru_exe_options eo = opt->exe;
    eo.share = share;
    out->n = n;
    if (opt->stage != NULL) {
        out->step = *opt->stage->step[share != opt->exe.share];
    } else {
        RU_TRY(ru_step_build_eval(&m->infer, &so, arena, &out->step, err));
    }
    return ru_exe_open(&out->step.graph, &eo, &out->exe, err);
}

/* The largest size down to half of `most` that divides `count`, else `most`: where batches come out
 * even, no second executable is opened for the last one. */
static int64_t even_batch(int64_t count, int64_t most)
{
    for (int64_t n = most; n > most / 2; n--) {
        if (count % n == 0) {
            return n;
        }
    }
    return most;
}

int64_t ru_eval_batch(const ru_job *job)
{
    const ru_job_train *t = &job->train;
    return t->eval_batch != 0 ? t->eval_batch : t->batch < 256 ? t->batch : 256;
}

void ru_eval_sizes(int64_t count, int64_t batch, int64_t size[2])
{
    RU_CHECK(count >= 1 && batch >= 1);
    size[0] = even_batch(count, batch < count ? batch : count);
    size[1] = count % size[0];
}

static ru_status scores_open(ru_eval *e, const ru_eval_options *opt, ru_arena *arena, ru_err *err)
{
    const ru_step_graph *s = &e->main.step;
    if (opt->n_figures == 0 || s->output.v == 0) {
        return RU_OK;
    }
    const ru_type *out = &ru_graph_value(&s->graph, s->output)->type;
    e->scores = (ru_scores){.names = opt->figures,
                            .n_names = opt->n_figures,
                            .loss = e->model->loss,
                            .label = &e->model->facts.y,
                            .count = ru_dataset_count(e->data),
                            .outputs = ru_type_count(out) / e->main.n};
    return ru_scores_open(&e->scores, arena, err);
}

ru_status ru_eval_open(const ru_model *m, ru_dataset *data, const ru_eval_options *opt,
                       ru_arena *arena, ru_eval **out, ru_err *err)
{
    ru_eval *e = RU_NEW(arena, ru_eval, 1);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the evaluation is full");
    }
    int64_t count = ru_dataset_count(data), batch = opt->batch;
    if (count < 1 || batch < 1) {
        return RU_FAIL(err, RU_E_DATA, "the test data contains no sample");
    }
    int64_t size[2];
    ru_eval_sizes(count, batch, size);
    e->model = m;
    e->data = data;
    e->stage = opt->stage != NULL ? *opt->stage : (ru_eval_stage){0};
    e->readers = opt->readers;
    e->x_bytes = ru_type_bytes(&m->facts.x);
    e->y_bytes = ru_type_bytes(&m->facts.y);
    ru_arena_init(&e->scratch, 0);
    ru_status st = size_open(m, size[0], opt, opt->exe.share, arena, &e->main, err);
    if (st == RU_OK && size[1] > 0) {
        st = size_open(m, size[1], opt, e->main.exe, arena, &e->tail, err);
    }
    st = st == RU_OK ? scores_open(e, opt, arena, err) : st;
    if (st != RU_OK) {
        ru_eval_close(e);
        return ru_err_wrap(err, st, "evaluation");
    }
    *out = e;
    return RU_OK;
}

void ru_eval_close(ru_eval *e)
{
    if (e == NULL) {
        return;
    }
    ru_exe_close(e->main.exe);
    ru_exe_close(e->tail.exe);
    e->main.exe = e->tail.exe = NULL;
    ru_arena_fini(&e->scratch);
}

int64_t ru_eval_bytes(const ru_eval *e, int64_t *packed)
{
    ru_exe *const all[] = {e->main.exe, e->tail.exe};
    int64_t sum = 0;
    *packed = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(all) && all[k] != NULL; k++) {
        ru_exe_stats s;
        ru_exe_stats_get(all[k], &s);
        sum += s.state_bytes + s.const_bytes + s.arena_bytes + s.scratch_bytes + s.io_bytes;
        *packed += s.const_bytes;
    }
    return sum;
}

ru_exe *ru_eval_exe(ru_eval *e, const ru_graph **graph)
{
    *graph = &e->main.step.graph;
    return e->main.exe;
}

/* Samples of a batch. */
static int64_t samples_of(const ru_eval *e, int64_t batch)
{
    int64_t left = ru_dataset_count(e->data) - batch * e->main.n;
    RU_CHECK(batch >= 0 && left > 0);
    return left < e->main.n ? left : e->main.n;
}

int64_t ru_eval_rows_bytes(const ru_eval *e, int64_t batch)
{
    return e->scores.n_names > 0 ? ru_scores_bytes(&e->scores, samples_of(e, batch)) : 0;
}

void ru_eval_rows_pack(const ru_eval *e, int64_t batch, void *into)
{
    ru_scores_pack(&e->scores, batch * e->main.n, samples_of(e, batch), into);
}

void ru_eval_rows_unpack(ru_eval *e, int64_t batch, const void *from)
{
    ru_scores_unpack(&e->scores, batch * e->main.n, samples_of(e, batch), from);
}

ru_status ru_eval_state_from(ru_eval *e, const ru_graph *graph, ru_exe *from, ru_err *err)
{
    return ru_model_state_copy(graph, from, &e->main.step.graph, e->main.exe, &e->scratch, err);
}

/* Does it need samples, or labels? */
static bool reads(const ru_eval *e)
{
    return e->main.step.x[0].v != 0 || e->main.step.y[0].v != 0;
}

static ru_status run_batch(ru_eval *e, const eval_size *s, const ru_batch *b, ru_eval_sums *to,
                           ru_err *err)
{
    const ru_eval_stage *stage = &e->stage;
    int64_t batch = b->position / e->main.n;
    bool tail = s == &e->tail;
    if (s->step.x[0].v != 0) {
        memcpy(ru_exe_input(s->exe, s->step.x[0]), b->fields[0], (size_t)(e->x_bytes * b->n));
    }
    if (s->step.y[0].v != 0) {
        memcpy(ru_exe_input(s->exe, s->step.y[0]), b->fields[1], (size_t)(e->y_bytes * b->n));
    }
    RU_TRY(stage->take != NULL ? stage->take(stage->self, batch, tail, s->exe) : RU_OK);
    RU_TRY(ru_exe_run(s->exe, &(ru_run_args){.sample_offset = b->position}, err));
    RU_TRY(stage->give != NULL ? stage->give(stage->self, batch, tail, s->exe) : RU_OK);
    if (s->step.loss.v == 0) {
        return RU_OK;
    }
    double loss = (double)*(const float *)ru_exe_output(s->exe, s->step.loss);
    double weight = (double)b->n;
    if (s->step.correct.v != 0) {
        to->correct = (double)*(const float *)ru_exe_output(s->exe, s->step.correct);
        weight = (double)*(const float *)ru_exe_output(s->exe, s->step.count);
        to->count = weight;
    }
    if (e->scores.n_names > 0) {
        ru_scores_put(&e->scores, b->position, b->n, ru_exe_output(s->exe, s->step.output),
                      b->fields[1]);
    }
    to->loss = loss * weight;
    to->weight = weight;
    return RU_OK;
}

static ru_status metrics_from(ru_eval *e, const ru_eval_sums *s, ru_metrics *out, ru_err *err)
{
    ru_metrics m = {0};
    double loss = s->weight > 0 ? s->loss / s->weight : RU_NAN;
    if (s->count > 0) {
        m.at[m.n++] = (ru_metric){"accuracy", s->correct / s->count};
    }
    m.at[m.n++] = (ru_metric){"loss", loss};
    if (e->model->loss == RU_LOSS_NEXT_TOKEN) {
        m.at[m.n++] = (ru_metric){"perplexity", exp(loss)};
    } else if (e->model->loss == RU_LOSS_MSE) {
        m.at[m.n++] = (ru_metric){"mse", loss};
    }
    if (e->scores.n_names > 0) {
        ru_arena_mark mark = ru_arena_mark_get(&e->scratch);
        ru_status st = ru_scores_get(&e->scores, &e->scratch, &m, err);
        ru_arena_rewind(&e->scratch, mark);
        RU_TRY(st);
    }
    *out = m;
    return RU_OK;
}

static void add(ru_eval_sums *to, const ru_eval_sums *s)
{
    to->loss += s->loss;
    to->weight += s->weight;
    to->correct += s->correct;
    to->count += s->count;
}

int64_t ru_eval_batches(const ru_eval *e)
{
    return (ru_dataset_count(e->data) + e->main.n - 1) / e->main.n;
}

ru_status ru_eval_metrics(ru_eval *e, const ru_eval_sums *at, ru_metrics *out, ru_err *err)
{
    ru_eval_sums all = {0};
    for (int64_t k = 0; k < ru_eval_batches(e); k++) {
        add(&all, &at[k]);
    }
    return metrics_from(e, &all, out, err);
}

/* Batch k. false: no further one is to be run, or `st` says what went wrong. */
static bool run_next(ru_eval *e, ru_stream *stream, int64_t k, const ru_eval_part *p, ru_status *st,
                     ru_err *err)
{
    ru_batch b = {.position = k * e->main.n, .n = samples_of(e, k)};
    ru_eval_sums sums = {0};
    *st = stream != NULL ? ru_stream_next(stream, &b, err) : RU_OK;
    if (*st != RU_OK || b.n == 0) {
        return false;
    }
    if (!p->whole && ru_self_stop_asked() != 0) {
        *st = RU_FAIL(err, RU_E_CANCELLED, "the evaluation was stopped");
        return false;
    }
    const eval_size *size = b.n == e->main.n ? &e->main : &e->tail;
    if (size->exe == NULL || b.n != size->n) {
        *st =
            RU_FAIL(err, RU_E_DATA, "the data gave a batch of %lld samples, which was not expected",
                    (long long)b.n);
        return false;
    }
    *st = run_batch(e, size, &b, &sums, err);
    if (*st == RU_OK) {
        p->done(p->self, b.position / e->main.n, &sums);
    }
    return *st == RU_OK;
}

ru_status ru_eval_run_part(ru_eval *e, const ru_eval_part *p, ru_err *err)
{
    ru_stream *stream = NULL;
    ru_stream_options so = {.batch = e->main.n,
                            .start = p->first * e->main.n,
                            .epochs = 1,
                            .partial_last = true,
                            .threads = e->readers,
                            .ahead = p->end - p->first == 1 ? 1 : 0};
    if (p->first >= p->end) {
        return RU_OK;
    }
    RU_TRY(reads(e) ? ru_stream_open(e->data, &so, &stream, err) : RU_OK);
    ru_status st = RU_OK;
    for (int64_t k = p->first; k < p->end && (p->stop == NULL || !p->stop(p->self)); k++) {
        if (!run_next(e, stream, k, p, &st, err)) {
            break;
        }
    }
    ru_stream_close(stream);
    return st;
}

static void add_batch(void *self, int64_t batch, const ru_eval_sums *sums)
{
    (void)batch;
    add(self, sums);
}

ru_status ru_eval_run(ru_eval *e, ru_metrics *out, ru_err *err)
{
    ru_eval_sums all = {0};
    const ru_eval_part p = {
        .end = ru_eval_batches(e), .whole = e->stage.take != NULL, .done = add_batch, .self = &all};
    RU_TRY(ru_eval_run_part(e, &p, err));
    return metrics_from(e, &all, out, err);
}
