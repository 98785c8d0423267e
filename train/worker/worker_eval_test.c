/* An evaluation that several workers share gives the metrics of one, bit for bit, whatever the
 * others send: all of their part, some of it, nothing, of other steps, or nonsense. */
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "env/loop/loop.h"
#include "env/process/self.h"
#include "env/process/stop.h"
#include "test/test.h"
#include "train/worker/worker_impl.h"

enum { STEP = 7, BATCHES = 13, ROWS_MAX = 8 * (3 * 4 + 8) };

typedef struct rig {
    ru_arena arena;
    ru_job job;
    rui_worker w;
    ru_eval_sums right[BATCHES];
    uint8_t rows[BATCHES][ROWS_MAX]; /* where figures are asked for */
    ru_metrics alone;
    int64_t run; /* batches of the last evaluation alone */
} rig;

static void on_events(void *self, ru_time now)
{
    (void)self;
    (void)now;
}

static void keep_right(void *self, int64_t batch, const ru_eval_sums *sums)
{
    rig *r = self;
    assert_true(batch < BATCHES);
    r->right[batch] = *sums;
    r->run++;
}

static int setup_with(void **state, const char *figures)
{
    static ru_worker_options options;
    static const ru_train_options plain;
    rig *r = aligned_alloc(_Alignof(rig), sizeof *r); /* its rings stand on lines of their own */
    ru_err err = {0};
    assert_non_null(r);
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    const char *job = ru_arena_printf(&r->arena,
                                      "name: t\nmodel: {zoo: mlp, hidden: [8]}\n"
                                      "data: {format: synthetic, generator: gaussian, count: 64, "
                                      "test_count: 97, features: 6, classes: 3}\n"
                                      "train: {batch: 8, eval_batch: 8, eval_every: 1, threads: 1, "
                                      "device: ref, optimizer: sgd, metrics: [%s]}\n",
                                      figures);
    assert_ok(ru_job_parse("t", job, &r->arena, &r->job, &err), err);
    rui_worker *w = &r->w;
    rui_trainer *t = &w->t;
    w->opt = &options;
    w->arena = t->arena = &r->arena;
    t->job = &r->job;
    t->opt = &plain;
    ru_mutex_init(&w->lock);
    ru_cond_init(&w->changed);
    w->shell.arena = &r->arena;
    assert_ok(ru_loop_open(&w->shell.loop, &err), err);
    assert_ok(ru_loop_waker(w->shell.loop, on_events, r, &w->shell.waker, &err), err);
    assert_ok(ru_shell_line(&w->shell, &w->line, RUI_EVENTS_MAX, sizeof(rui_event), &err), err);
    const ru_data_options train = ru_job_data_options(&r->job, false);
    const ru_data_options test = ru_job_data_options(&r->job, true);
    ru_model_facts facts;
    ru_step_options so;
    ru_exe_options eo;
    assert_ok(ru_dataset_open(&train, &t->train_set, &err), err);
    assert_ok(ru_dataset_open(&test, &t->test_set, &err), err);
    t->count = ru_dataset_count(t->train_set);
    assert_ok(ru_model_facts_from(t->train_set, &r->arena, &facts, &err), err);
    assert_ok(ru_model_open(&r->job, &facts, NULL, &r->arena, &t->model, &err), err);
    t->optimizer = ru_job_optimizer_get(&r->job);
    rui_trainer_options(t, &so, &eo);
    assert_ok(ru_step_build(&t->model.train, &so, &r->arena, &t->step, &err), err);
    assert_ok(ru_exe_open(&t->step.graph, &eo, &t->exe, &err), err);
    assert_ok(ru_model_init(&t->model, 1, &t->step.graph, t->exe, 1, &err), err);
    t->step_done = STEP;
    rui_driver_init(&w->d, t, &rui_worker_exchange, w);
    assert_ok(rui_driver_evals_open(&w->d, &err), err);
    assert_int_equal(w->evals.n, BATCHES);
    assert_ok(ru_eval_state_from(t->eval, &t->step.graph, t->exe, &err), err);
    assert_ok(ru_eval_run(t->eval, &r->alone, &err), err);
    const ru_eval_part all = {.end = BATCHES, .done = keep_right, .self = r};
    assert_ok(ru_eval_run_part(t->eval, &all, &err), err);
    assert_int_equal(r->run, BATCHES);
    for (int64_t b = 0; b < BATCHES && figures[0] != 0; b++) {
        assert_in_range(ru_eval_rows_bytes(t->eval, b), 1, ROWS_MAX);
        ru_eval_rows_pack(t->eval, b, r->rows[b]);
    }
    *state = r;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, "");
}

static int setup_figures(void **state)
{
    return setup_with(state, "f1, auc");
}

static int teardown(void **state)
{
    rig *r = *state;
    ru_eval_close(r->w.t.eval);
    ru_exe_close(r->w.t.exe);
    ru_model_close(&r->w.t.model);
    ru_dataset_close(r->w.t.test_set);
    ru_dataset_close(r->w.t.train_set);
    ru_loop_close(r->w.shell.loop);
    ru_cond_fini(&r->w.changed);
    ru_mutex_fini(&r->w.lock);
    ru_arena_fini(&r->arena);
    free(r);
    return 0;
}

static void send(rig *r, int64_t step, uint32_t batch, const ru_eval_sums *s, int64_t size_bytes)
{
    uint8_t buf[64 + ROWS_MAX];
    uint64_t bits[4];
    int64_t rows = batch < BATCHES ? ru_eval_rows_bytes(r->w.t.eval, batch) : 0;
    memcpy(bits, s, sizeof bits);
    ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u64(&o, (uint64_t)step);
    ru_wire_put_u32(&o, batch);
    for (uint32_t k = 0; k < 4; k++) {
        ru_wire_put_u64(&o, bits[k]);
    }
    memcpy(buf + ru_wire_size(&o), r->rows[rows > 0 ? batch : 0], (size_t)rows);
    rui_evals_hear(&r->w, RUI_MSG_EVAL, buf,
                   size_bytes >= 0 ? size_bytes : ru_wire_size(&o) + rows);
}

/* As the leader of so many; how many batches the others' messages saved is seen by `have`. */
static void evaluate(rig *r, uint32_t rank, uint32_t members)
{
    ru_err err = {0};
    r->w.d.turn = (rui_turn){.rank = rank, .members = members, .leads = true};
    memset(&r->w.t.metrics, 0, sizeof r->w.t.metrics);
    for (int64_t b = 0; b < BATCHES; b++) { /* nothing is left from an evaluation before */
        static const uint8_t none[ROWS_MAX];
        if (ru_eval_rows_bytes(r->w.t.eval, b) > 0) {
            ru_eval_rows_unpack(r->w.t.eval, b, none);
        }
    }
    assert_ok(rui_driver_evaluate(&r->w.d, &err), err);
    assert_int_equal(r->w.t.metrics.n, r->alone.n);
    for (uint32_t k = 0; k < r->alone.n; k++) {
        assert_memory_equal(&r->w.t.metrics.at[k].value, &r->alone.at[k].value, sizeof(double));
    }
    assert_int_equal(r->w.evals.over, r->w.t.step_done);
    r->w.t.step_done++;
}

static void whoever_helps_the_metrics_are_the_same(void **state)
{
    rig *r = *state;
    const ru_eval_sums wrong = {1e9, 1e9, 1e9, 1e9};
    for (uint32_t members = 1; members <= BATCHES + 2; members++) {
        const int64_t step = r->w.t.step_done;
        for (uint32_t b = 0; b < BATCHES; b += members % 3 + 1) {
            send(r, step, b, &r->right[b], -1);
        }
        send(r, step - 1, 0, &wrong, -1); /* late */
        send(r, step, BATCHES, &wrong, -1);
        send(r, step, 1, &wrong, 43); /* cut */
        send(r, step, 1, &wrong, 45); /* too long, or its rows are cut */
        evaluate(r, members % 2 == 0 ? 0 : members - 1, members);
    }
}

/* What is taken from others is not run here: a wrong sum shows, in its part and in no other. */
static void what_others_sent_is_not_run_again(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    const ru_eval_sums mark = {0, 1000, 0, 1000};
    r->w.d.turn = (rui_turn){.rank = 0, .members = 2, .leads = true};
    send(r, r->w.t.step_done, BATCHES - 1, &mark, -1); /* of the other's part */
    send(r, r->w.t.step_done, 0, &mark, -1);           /* of its own, which it runs */
    assert_ok(rui_driver_evaluate(&r->w.d, &err), err);
    assert_true(r->w.d.sums[BATCHES - 1].count == 1000);
    assert_true(r->w.d.sums[0].count == 8);
    send(r, r->w.t.step_done, 3, &mark, -1); /* it is over */
    assert_int_equal(r->w.evals.have[3], 0);
}

/* A signal that asks this worker to leave stops an evaluation on the way, but not that at the end
 * of the job: nobody else would tell how it ended. */
static void who_is_asked_to_leave_at_the_end_evaluates(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    ru_self_stop_watch();
    ru_self_stop_ask();
    r->w.d.turn = (rui_turn){.kind = RUI_TURN_STEP, .members = 1, .leads = true};
    assert_int_equal(rui_driver_evaluate(&r->w.d, &err), RU_E_CANCELLED);
    r->w.d.turn.kind = RUI_TURN_FINISH;
    assert_ok(rui_driver_evaluate(&r->w.d, &err), err);
    ru_self_stop_unwatch();
    assert_memory_equal(&r->w.t.metrics.at[0].value, &r->alone.at[0].value, sizeof(double));
}

/* Who helps sends its part and stops when nothing is missing any more. */
static void who_helps_sends_its_part(void **state)
{
    rig *r = *state;
    rui_worker *w = &r->w;
    w->d.turn = (rui_turn){.rank = 1, .members = 3, .share = {.n = 2}};
    rui_driver_help(&w->d);
    assert_int_equal(ru_spsc_used(&w->line), BATCHES * 2 / 3 - BATCHES / 3);
    rui_event x;
    for (uint32_t k = 0; ru_spsc_pop(&w->line, &x); k++) {
        assert_int_equal(x.tensor, BATCHES / 3 + k);
        assert_int_equal(x.ns, STEP);
        assert_memory_equal(&x.sums, &r->right[x.tensor], sizeof x.sums);
    }
    uint8_t over[8] = {STEP};
    rui_evals_hear(w, RUI_MSG_EVAL_OVER, over, sizeof over);
    rui_driver_help(&w->d);
    assert_int_equal(ru_spsc_used(&w->line), 0);
    w->t.step_done++;
    w->d.turn.share.n = 0; /* its parameters may not be there yet */
    rui_driver_help(&w->d);
    assert_int_equal(ru_spsc_used(&w->line), 0);
}

RU_TESTS(train_worker_eval,
         cmocka_unit_test_setup_teardown(whoever_helps_the_metrics_are_the_same, setup, teardown),
         cmocka_unit_test_setup_teardown(whoever_helps_the_metrics_are_the_same, setup_figures,
                                         teardown),
         cmocka_unit_test_setup_teardown(who_helps_sends_its_part, setup_figures, teardown),
         cmocka_unit_test_setup_teardown(what_others_sent_is_not_run_again, setup, teardown),
         cmocka_unit_test_setup_teardown(who_is_asked_to_leave_at_the_end_evaluates, setup,
                                         teardown),
         cmocka_unit_test_setup_teardown(who_helps_sends_its_part, setup, teardown))
