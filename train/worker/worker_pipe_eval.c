/* An evaluation of a pipeline: each batch goes forward through the stages in inference form, and
 * the last one has loss and figures.
 *
 *   stage 0   samples --> run --> pieces --> stage 1 --> run --> ... --> last stage, labels: sums
 *
 * Every stage runs all batches in their order, so the sums are those of one process. Two pieces of
 * an edge have a place at each end, so stages work at the same time, and none runs far ahead. No
 * state crosses: each stage copies its newest weights and statistics into executables that evaluate
 * it. Of several workers of a stage one evaluates, because they have the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "train/job/metric.h"
#include "train/worker/worker_pipe_impl.h"

enum { CHUNK_BYTES = 1 << 20 }; /* of a state that is copied */

/* -- the cut ----------------------------------------------------------------------------------- */

ru_status rui_pipe_eval_cut(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    const ru_job_pipeline *p = &t->job->train.pipeline;
    rui_pipe_eval *v = &w->plan.eval;
    const char *const *figures;
    uint32_t n_figures;
    int64_t size[2];
    int64_t count = t->test_set != NULL ? ru_dataset_count(t->test_set) : 0;
    if (count < 1 || w->seats.placed.n > 0 || w->stages.n == 1) {
        return RU_OK;
    }
    ru_eval_sizes(count, ru_eval_batch(t->job), size);
    RU_TRY(ru_job_figures(t->job, w->arena, &figures, &n_figures, err));
    v->batches = (uint32_t)(count / size[0]);
    for (uint32_t k = 0; k < 2 && size[k] > 0; k++) {
        const ru_step_options so = {.loss = t->model.loss,
                                    .batch = size[k],
                                    .x = t->model.facts.x,
                                    .y = t->model.facts.y,
                                    .outputs = n_figures > 0};
        ru_err why = {0};
        ru_status st = ru_stages_build_eval(&t->model.infer, &so, p->cut.at, p->cut.n, &w->stages,
                                            w->arena, &v->at[k], &why);
        if (st == RU_E_LIMIT || st == RU_E_MEM) {
            return ru_err_set(err, st, "evaluation: %s", why.text);
        }
        if (st != RU_OK) {
            *v = (rui_pipe_eval){.alone = ru_arena_str(w->arena, why.text)};
            break;
        }
    }
    return RU_OK;
}

uint32_t rui_pipe_eval_seat(const rui_pipe_worker *w, uint32_t stage)
{
    return stage + 1 == w->stages.n ? w->seats.n - 1 : w->seats.first[stage];
}

/* -- pieces ------------------------------------------------------------------------------------ */

static uint32_t number_of(const rui_pipe_worker *w, int64_t batch, bool tail)
{
    uint32_t n = w->counts.evals;
    return tail ? n : n * w->plan.eval.batches + (uint32_t)batch;
}

static ru_status move(rui_pipe_worker *w, int64_t batch, bool tail, bool out, ru_exe *e)
{
    const ru_stages *s = &w->plan.eval.at[tail];
    uint32_t number = number_of(w, batch, tail), stage = w->parts[0].stage;
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *x = &s->edges[i];
        uint32_t link = w->plan.eval.first[tail] + i;
        size_t bytes = (size_t)ru_type_bytes(&x->type);
        void *piece;
        if ((out ? x->from : x->to) == stage) {
            RU_TRY(rui_flow_place(w, link, number, &piece));
            if (out) {
                memcpy(piece, ru_exe_output(e, x->out), bytes);
            } else {
                memcpy(ru_exe_input(e, x->in), piece, bytes);
            }
            rui_flow_go(w, link, number);
        }
    }
    return RU_OK;
}

static ru_status take(void *self, int64_t batch, bool tail, ru_exe *e)
{
    return move(self, batch, tail, false, e);
}

static ru_status give(void *self, int64_t batch, bool tail, ru_exe *e)
{
    return move(self, batch, tail, true, e);
}

/* -- running ----------------------------------------------------------------------------------- */

ru_status rui_pipe_eval_open(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    const rui_pipe_eval *v = &w->plan.eval;
    uint32_t stage = w->parts[0].stage;
    bool whole = v->at[0].n == 0;
    uint32_t seat = whole ? w->seats.n - 1 : rui_pipe_eval_seat(w, stage);
    ru_step_options so;
    ru_exe_options eo;
    if (t->test_set == NULL || seat != w->seats.own) {
        return RU_OK;
    }
    rui_trainer_options(t, &so, &eo);
    if (whole) {
        return rui_trainer_eval_open(t, &eo, NULL, err);
    }
    const ru_eval_stage s = {
        .step = {&v->at[0].at[stage].step, v->at[1].n > 0 ? &v->at[1].at[stage].step : NULL},
        .take = take,
        .give = give,
        .self = w};
    return rui_trainer_eval_open(t, &eo, &s, err);
}

int64_t rui_pipe_eval_bytes(const rui_pipe_worker *w)
{
    int64_t packed;
    return w->t.eval != NULL ? ru_eval_bytes(w->t.eval, &packed) : 0;
}

/* A state of this stage, or its copy of that of another one. */
static ru_status put_state(rui_pipe_worker *w, ru_exe *e, ru_value_id v, const ru_value *x,
                           void *chunk, ru_err *err)
{
    const rui_pipe_part *p = w->parts;
    ru_value_id from = ru_graph_find(&w->stages.at[p->stage].step.graph, x->name);
    int64_t bytes = ru_type_bytes(&x->type);
    RU_CHECK(from.v != 0);
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        int64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        RU_TRY(ru_exe_state_read_part(p->home, from, at, n, chunk, err));
        RU_TRY(ru_exe_state_write_part(e, v, at, n, chunk, err));
    }
    return RU_OK;
}

/* The newest weights and statistics, into what evaluates. */
static ru_status renew(rui_pipe_worker *w, ru_err *err)
{
    const ru_graph *g;
    ru_exe *e = ru_eval_exe(w->t.eval, &g);
    void *chunk = aligned_alloc(64, CHUNK_BYTES);
    ru_status st = chunk != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for the evaluation");
    for (uint32_t v = 1; v < g->n_values && st == RU_OK; v++) {
        const ru_value *x = &g->values[v];
        bool is = x->kind == RU_VALUE_STATE;
        st = is ? put_state(w, e, (ru_value_id){v}, x, chunk, err) : RU_OK;
    }
    free(chunk);
    return st;
}

ru_status rui_pipe_eval_run(rui_pipe_worker *w, ru_metrics *out, ru_err *err)
{
    rui_trainer *t = &w->t;
    RU_TRY(renew(w, err));
    RU_TRY(ru_eval_run(t->eval, out, err));
    w->counts.evals++;
    return RU_OK;
}
