/* An evaluation whose batches go through two stages has the metrics of one process, bit for bit,
 * figures of all outputs among them, with a last batch that is shorter. */
#include <stdlib.h>
#include <string.h>

#include "test/test.h"
#include "train/driver/eval.h"
#include "train/job/metric.h"
#include "train/model/stage.h"

enum { PIECES_MAX = 64, SEED = 3 };

typedef struct rig {
    ru_arena arena;
    ru_job job;
    ru_dataset *data;
    ru_model model;
    ru_stages step, at[2];
    void *pieces[PIECES_MAX]; /* of each batch, where one edge crosses */
    uint32_t stage, taken, given;
} rig;

static const ru_stage_edge *edge_of(const rig *r, int64_t batch, bool tail)
{
    assert_true(batch < PIECES_MAX);
    assert_int_equal(r->at[tail].n_edges, 1);
    return &r->at[tail].edges[0];
}

static ru_status take(void *self, int64_t batch, bool tail, ru_exe *e)
{
    rig *r = self;
    const ru_stage_edge *x = edge_of(r, batch, tail);
    if (r->stage == x->to) {
        memcpy(ru_exe_input(e, x->in), r->pieces[batch], (size_t)ru_type_bytes(&x->type));
        r->taken++;
    }
    return RU_OK;
}

static ru_status give(void *self, int64_t batch, bool tail, ru_exe *e)
{
    rig *r = self;
    const ru_stage_edge *x = edge_of(r, batch, tail);
    size_t bytes = (size_t)ru_type_bytes(&x->type);
    if (r->stage == x->from) {
        r->pieces[batch] = ru_arena_alloc(&r->arena, (int64_t)bytes, 64);
        memcpy(r->pieces[batch], ru_exe_output(e, x->out), bytes);
        r->given++;
    }
    return RU_OK;
}

static int setup(void **state)
{
    static const char job[] =
        "name: t\nmodel: {zoo: mlp, hidden: [8, 6]}\n"
        "data: {format: synthetic, generator: gaussian, count: 64, test_count: 97, features: 6, "
        "classes: 3}\n"
        "train: {batch: 8, threads: 1, optimizer: sgd, metrics: [f1, auc]}\n";
    static const char *const cut[] = {"fc2"};
    rig *r = calloc(1, sizeof *r);
    ru_err err = {0};
    int64_t size[2];
    assert_non_null(r);
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_job_parse("t", job, &r->arena, &r->job, &err), err);
    const ru_data_options test = ru_job_data_options(&r->job, true);
    ru_model_facts facts;
    assert_ok(ru_dataset_open(&test, &r->data, &err), err);
    assert_ok(ru_model_facts_from(r->data, &r->arena, &facts, &err), err);
    assert_ok(ru_model_open(&r->job, &facts, NULL, &r->arena, &r->model, &err), err);
    ru_step_options so = {
        .loss = r->model.loss, .batch = 8, .share_of = 8, .x = facts.x, .y = facts.y};
    assert_ok(ru_stages_build(&r->model.train, &so, cut, 1, &r->arena, &r->step, &err), err);
    so.outputs = true;
    ru_eval_sizes(ru_dataset_count(r->data), ru_eval_batch(&r->job), size);
    assert_int_equal(size[0], 8);
    assert_int_equal(size[1], 1);
    for (uint32_t k = 0; k < 2; k++) {
        so.batch = size[k];
        assert_ok(ru_stages_build_eval(&r->model.infer, &so, cut, 1, &r->step, &r->arena, &r->at[k],
                                       &err),
                  err);
    }
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    rig *r = *state;
    ru_model_close(&r->model);
    ru_dataset_close(r->data);
    ru_arena_fini(&r->arena);
    free(r);
    return 0;
}

static ru_metrics evaluate(rig *r, const ru_eval_stage *stage)
{
    ru_err err = {0};
    const ru_graph *g;
    ru_eval *e;
    ru_metrics out;
    ru_eval_options o = {
        .batch = ru_eval_batch(&r->job), .exe = {.threads = 1}, .readers = 1, .stage = stage};
    assert_ok(ru_job_figures(&r->job, &r->arena, &o.figures, &o.n_figures, &err), err);
    assert_int_equal(o.n_figures, 2);
    assert_ok(ru_eval_open(&r->model, r->data, &o, &r->arena, &e, &err), err);
    ru_exe *exe = ru_eval_exe(e, &g);
    assert_ok(ru_model_init(&r->model, SEED, g, exe, 1, &err), err);
    assert_ok(ru_eval_run(e, &out, &err), err);
    ru_eval_close(e);
    return out;
}

static void stages_have_the_metrics_of_one(void **state)
{
    rig *r = *state;
    const ru_metrics right = evaluate(r, NULL);
    ru_metrics now = {0};
    for (r->stage = 0; r->stage < 2; r->stage++) {
        const ru_eval_stage s = {.step = {&r->at[0].at[r->stage].step, &r->at[1].at[r->stage].step},
                                 .take = take,
                                 .give = give,
                                 .self = r};
        now = evaluate(r, &s);
    }
    assert_int_equal(r->given, 13);
    assert_int_equal(r->taken, 13);
    assert_int_equal(right.n, 4); /* accuracy, loss, f1, auc */
    assert_int_equal(now.n, right.n);
    for (uint32_t k = 0; k < right.n; k++) {
        assert_string_equal(now.at[k].name, right.at[k].name);
        assert_true(now.at[k].value == right.at[k].value);
    }
}

RU_TESTS(train_eval,
         cmocka_unit_test_setup_teardown(stages_have_the_metrics_of_one, setup, teardown))
