/* The driver in a process that leads late, or again: an evaluation that its predecessor owed is
 * made and told once; one that was told stays as it is. */
#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "test/run_lab.h"
#include "test/test.h"
#include "train/driver/driver.h"

enum { STEPS = 6, EVERY = 2, BATCH = 8 };

/* An exchange of one process that leads from some step on. */
typedef struct rig {
    rui_trainer t;
    rui_driver d;
    int64_t leads_from; /* steps done */
    bool built;
    const char *over;
    uint32_t finished;
    ru_status st;
    ru_err err;
} rig;

static void next(void *self, rui_turn *turn)
{
    rig *r = self;
    *turn = (rui_turn){.kind = RUI_TURN_STEP,
                       .share = {.n = BATCH, .batch = BATCH, .at = r->t.samples},
                       .build_n = BATCH,
                       .step = r->t.step_done,
                       .begun = ru_clock_now(),
                       .leads = r->built && r->t.step_done >= r->leads_from,
                       .workers = 1,
                       .members = 1,
                       .voters = 1};
    if (r->st != RU_OK || r->finished > 0) {
        turn->kind = RUI_TURN_QUIT;
    } else if (!r->built) {
        turn->kind = RUI_TURN_BUILD;
    } else if (r->t.step_done == STEPS || r->over != NULL) {
        turn->kind = RUI_TURN_FINISH;
        turn->ended = "done";
    }
}

static void done(void *self, const rui_turn *turn, ru_status st, const ru_err *err)
{
    rig *r = self;
    r->st = st;
    r->err = *err;
    r->built = true;
    r->finished += turn->kind == RUI_TURN_FINISH ? 1 : 0;
}

static ru_status build(void *self, const rui_turn *turn, ru_err *err)
{
    (void)turn;
    rui_trainer *t = &((rig *)self)->t;
    ru_step_options so;
    ru_exe_options eo;
    rui_trainer_options(t, &so, &eo);
    RU_TRY(ru_step_build(&t->model.train, &so, t->arena, &t->step, err));
    return ru_exe_open(&t->step.graph, &eo, &t->exe, err);
}

static ru_status run(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err)
{
    (void)turn;
    *waited_ns = 1;
    return ru_exe_run(((rig *)self)->t.exe, args, err);
}

static ru_status odd(void *self, const rui_odd_step *step, ru_err *err)
{
    (void)self;
    (void)step;
    return RU_FAIL(err, RU_E_USER, "not expected here");
}

static bool over(void *self, const char *why)
{
    ((rig *)self)->over = why;
    return false;
}

/* All of a step but what others held up is computing: its samples are too. */
static void stepped(void *self, const ru_run_report_step *s)
{
    (void)self;
    assert_int_equal(s->compute_ns, s->step_ns - 1);
}

static const rui_exchange_ops ops = {.name = "test",
                                     .next = next,
                                     .done = done,
                                     .build = build,
                                     .run = run,
                                     .stepped = stepped,
                                     .odd = odd,
                                     .over = over};

static int setup(void **state)
{
    return run_lab_open(state,
                        "name: t\nmodel: {zoo: mlp, hidden: [4]}\n"
                        "data: {format: synthetic, generator: gaussian, count: 64, test_count: 24, "
                        "features: 4, classes: 3}\n"
                        "train: {batch: 8, steps: 6, eval_every: 2, threads: 1, device: ref, "
                        "optimizer: sgd}\n"
                        "checkpoint: {every: 0s}\n");
}

static char *metrics_of(lab *l, const char *run)
{
    ru_err err = {0};
    char *text;
    int64_t n;
    const char *path =
        ru_path_join(&l->arena, ru_path_join(&l->arena, l->dir, run), "metrics.jsonl");
    assert_ok(ru_file_read(path, 0, &l->arena, &text, &n, &err), err);
    return text;
}

/* Lines that tell of an evaluation after this step. */
static uint32_t told(const char *text, int64_t step)
{
    char head[80];
    uint32_t n = 0;
    (void)snprintf(head, sizeof head, "{\"schema\":\"rubato.train.eval/1\",\"step\":%lld,",
                   (long long)step);
    for (const char *p = text; (p = strstr(p, head)) != NULL; p++) {
        n++;
    }
    return n;
}

/* Take over after `leads_from` steps a run of which `lines` are told; returns the file at its end.
 */
static char *take_over(lab *l, const char *name, int64_t leads_from, const char *lines)
{
    ru_err err = {0};
    rig *r = test_calloc(1, sizeof *r);
    const char *dir = ru_path_join(&l->arena, l->dir, name);
    const ru_train_options opt = {.job = &l->job, .out = dir, .no_trace = true, .quiet = true};
    r->t = (rui_trainer){.opt = &opt, .job = &l->job, .arena = &l->arena, .saved_step = -1};
    r->leads_from = leads_from;
    rui_driver_init(&r->d, &r->t, &ops, r);
    assert_ok(rui_trainer_prepare(&r->t, &err), err);
    const char *path = ru_path_join(&l->arena, dir, "metrics.jsonl");
    assert_ok(ru_file_replace(path, lines, (int64_t)strlen(lines), &err), err);
    assert_ok(rui_trainer_reports(&r->t, true, leads_from, &l->arena, &err), err);
    r->d.started = true; /* by the one before */
    rui_drive(&r->d);
    assert_ok(r->st, r->err);
    assert_int_equal(r->finished, 1);
    rui_driver_fini(&r->d);
    rui_trainer_close(&r->t);
    test_free(r);
    return metrics_of(l, name);
}

#define STEP_LINE(k) "{\"schema\":\"rubato.train.step/1\",\"step\":" #k ",\"loss\":1}\n"
#define EVAL_LINE(k)                                   \
    "{\"schema\":\"rubato.train.eval/1\",\"step\":" #k \
    ",\"epoch\":1,\"metric\":{\"accuracy\":0.25,\"loss\":1},\"eval_s\":0}\n"

static void an_evaluation_that_is_owed_is_made_once(void **state)
{
    lab *l = *state;
    const char *text = take_over(l, "owed", 4, STEP_LINE(3) STEP_LINE(4));
    assert_int_equal(told(text, 2), 0); /* of steps of the one before: gone with it */
    assert_int_equal(told(text, 4), 1);
    assert_int_equal(told(text, 6), 1);
    assert_true(strstr(text, "eval/1\",\"step\":4") < strstr(text, "step/1\",\"step\":5"));
}

static void an_evaluation_that_was_told_is_not_told_again(void **state)
{
    lab *l = *state;
    const char *text = take_over(l, "told", 4, STEP_LINE(4) EVAL_LINE(4));
    assert_int_equal(told(text, 4), 1);
    assert_non_null(strstr(text, "0.25")); /* it is the one before's */
    assert_int_equal(told(text, 6), 1);
    l->job.train.until = (ru_conf_pairs){
        .n = 1, .at = (ru_conf_pair[]){{.key = "loss", .value = 1e9}}}; /* reached at once */
    text = take_over(l, "target", 4, STEP_LINE(4) EVAL_LINE(4));
    assert_int_equal(told(text, 4), 1);
    assert_non_null(strstr(text, "0.25"));
}

static void between_evaluations_none_is_owed(void **state)
{
    lab *l = *state;
    const char *text = take_over(l, "between", 3, STEP_LINE(2) EVAL_LINE(2) STEP_LINE(3));
    assert_int_equal(told(text, 2), 1);
    assert_int_equal(told(text, 3), 0);
    assert_int_equal(told(text, 4), 1);
}

RU_TESTS(train_driver,
         cmocka_unit_test_setup_teardown(an_evaluation_that_is_owed_is_made_once, setup,
                                         run_lab_close),
         cmocka_unit_test_setup_teardown(an_evaluation_that_was_told_is_not_told_again, setup,
                                         run_lab_close),
         cmocka_unit_test_setup_teardown(between_evaluations_none_is_owed, setup, run_lab_close))
