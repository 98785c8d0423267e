/* What a worker tells at the end: the summary by who leads then, and no error of a step that was
 * given up. */
#include <string.h>

#include "test/job/lives.h"
#include "test/test.h"
#include "train/worker/worker_impl.h"

typedef struct rig {
    ru_arena arena;
    ru_worker_options opt;
    rui_worker w;
} rig;

/* The compute thread has answered. */
static void on_events(void *self, ru_time now)
{
    (void)now;
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    w->next.kind = RUI_TURN_QUIT;
    ru_cond_signal(&w->changed);
    ru_mutex_unlock(&w->lock);
    ru_loop_stop(w->shell.loop);
}

static void rig_open(rig *r)
{
    ru_err err = {0};
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    r->w.opt = &r->opt;
    ru_mutex_init(&r->w.lock);
    ru_cond_init(&r->w.changed);
    ru_shell *h = &r->w.shell;
    h->arena = &r->arena;
    h->opt = &r->opt.shell;
    assert_ok(ru_loop_open(&h->loop, &err), err);
    assert_ok(ru_loop_waker(h->loop, on_events, &r->w, &h->waker, &err), err);
    assert_ok(ru_shell_line(h, &r->w.line, RUI_EVENTS_MAX, sizeof(rui_event), &err), err);
}

static void rig_close(rig *r)
{
    ru_loop_close(r->w.shell.loop);
    ru_cond_fini(&r->w.changed);
    ru_mutex_fini(&r->w.lock);
    ru_arena_fini(&r->arena);
}

/* Two processes of a job, the first leads; both led before, as far as their reports know. */
static void who_leads_at_the_end_writes_the_summary(void **state)
{
    (void)state;
    static rig r;
    job j = {0};
    job_open(&j, 2, 3, 0);
    assert_true(job_run(&j));
    for (uint32_t k = 0; k < 5;
         k++) { /* k 2: the job failed; 3: it never led; 4: it told the end */
        life *l = j.l[k == 1 || k == 4 ? 1 : 0];
        assert_true(ru_member_leads(ru_node_member(l->node)) == (k != 1 && k != 4));
        rig_open(&r);
        r.w.shell.timers.node = l->node;
        r.w.shell.tracing.member = ru_node_member(l->node);
        r.w.elastic = l->elastic;
        r.w.led = k != 3;
        const ru_elastic_news end = {.what = RU_ELASTIC_ENDED,
                                     .a = k == 4,
                                     .status = k == 2 ? RU_E_DATA : RU_OK,
                                     .sentence = "done"};
        rui_worker_news(&r.w, &end, ru_clock_now());
        assert_true(r.w.shell.ended);
        assert_int_equal(r.w.next.kind, k == 0 || k == 4 ? RUI_TURN_FINISH : RUI_TURN_NONE);
        rig_close(&r);
    }
    job_close(&j);
}

/* A step that was run under another leader counts when this worker leads: it is told, once. */
static void a_successor_tells_the_step_of_before(void **state)
{
    (void)state;
    static rig r;
    job j = {0};
    job_open(&j, 2, 3, 0);
    assert_true(job_run(&j));
    for (uint32_t k = 0; k < 2; k++) { /* k 1: another one leads */
        ru_err err = {0};
        rig_open(&r);
        r.w.shell.timers.node = j.l[k]->node;
        r.w.elastic = j.l[k]->elastic;
        r.w.led = true;
        const ru_run_report_options ro = {0};
        assert_ok(ru_run_report_open(&ro, &r.arena, &r.w.t.report, &err), err);
        const ru_run_report_step five = {.step = 5};
        assert_ok(ru_run_report_step_put(r.w.t.report, &five, &err), err);
        r.w.past[6] = (rui_past){.step = 6, .report = {.step = 6}};
        const rui_event x = {.kind = RUI_EVENT_UPDATED, .step = 5};
        rui_worker_said(&r.w, &x, ru_clock_now(), NULL);
        assert_int_equal(ru_run_report_told(r.w.t.report), k == 0 ? 6 : 5);
        ru_run_report_close(r.w.t.report);
        rig_close(&r);
    }
    job_close(&j);
}

/* A failure that nothing follows is told; one of a step that the group had given up is not. */
static void a_failure_is_told_when_the_job_ends_by_it(void **state)
{
    (void)state;
    static rig r;
    for (uint32_t goes_on = 0; goes_on < 2; goes_on++) {
        ru_err err = {0};
        rig_open(&r);
        r.w.end.failed = true;
        r.w.next.kind = goes_on ? RUI_TURN_FINISH : RUI_TURN_QUIT;
        assert_ok(ru_thread_start(&r.w.thread, "compute", rui_worker_compute, &r.w, &err), err);
        if (goes_on) {
            assert_ok(ru_loop_run(r.w.shell.loop, &err), err);
        }
        ru_thread_join(&r.w.thread);
        assert_int_equal(ru_spsc_used(&r.w.line), goes_on);
        assert_true(r.w.end.failed == !goes_on);
        rig_close(&r);
    }
}

/* The next step may have been asked for before the loop thread heard that the last one failed: it
 * is not begun, and the sentence stays. Giving the steps up forgets it: the job goes on. */
static void no_step_begins_behind_a_failure(void **state)
{
    (void)state;
    static rig r;
    for (uint32_t given_up = 0; given_up < 2; given_up++) {
        ru_err err = {0};
        rig_open(&r);
        r.w.end.failed = true;
        r.w.next.kind = given_up ? RUI_TURN_NONE : RUI_TURN_STEP;
        r.w.verdict = given_up ? RUI_VERDICT_ABORT : RUI_VERDICT_NONE;
        r.w.capture.due = !given_up; /* its event comes where the step would begin */
        assert_ok(ru_thread_start(&r.w.thread, "compute", rui_worker_compute, &r.w, &err), err);
        assert_ok(ru_loop_run(r.w.shell.loop, &err), err);
        ru_thread_join(&r.w.thread);
        assert_int_equal(ru_spsc_used(&r.w.line), 1);
        assert_int_equal(r.w.cmd.kind, RUI_TURN_QUIT);
        assert_true(r.w.end.failed == !given_up);
        rig_close(&r);
    }
}

RU_TESTS(train_worker_end, cmocka_unit_test(no_step_begins_behind_a_failure),
         cmocka_unit_test(who_leads_at_the_end_writes_the_summary),
         cmocka_unit_test(a_successor_tells_the_step_of_before),
         cmocka_unit_test(a_failure_is_told_when_the_job_ends_by_it))
