/* Stages as two ranks recorded them, the step that follows, and other costs: by hand. */
#include "tool/explain/explain_pipe.h"

#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"
#include "trace/record/recorder.h"

#define MS INT64_C(1000000)

typedef struct writer {
    ru_recorder *r;
    uint16_t step, forward, backward, update, input, waits, links[2];
    int64_t at; /* ms */
} writer;

static void part(writer *w, uint16_t name, int64_t value, int64_t wait, uint32_t link, int64_t ms)
{
    if (wait > 0) {
        ru_rec_wait(w->r, w->waits, w->at * MS, (w->at + wait) * MS, w->links[link]);
    }
    ru_rec_span(w->r, name, w->at * MS, (w->at + wait + ms) * MS, value);
    w->at += wait + ms;
}

static void end(writer *w, ru_rec_kind kind, uint32_t link, uint32_t number, int64_t from,
                int64_t to)
{
    const ru_rec_flow x = {.kind = kind,
                           .name = w->step,
                           .label = w->links[link],
                           .flow = 1 + 2 * number + link,
                           .start_ns = from * MS,
                           .end_ns = to * MS,
                           .bytes = 4096,
                           .step = number};
    ru_rec_flows(w->r, &x);
}

/* Stage 1 computes 10 and 20 ms, stage 2 as well; links take 4 ms forward, 5 ms back. Stage 2 waits
 * 59 ms for its first micro-batch, 20 ms more than the schedule does. */
static void record(ru_scratch *f, const char *dir, uint32_t stage, const char *schedule)
{
    const ru_recorder_options opt = {.dir = dir, .rank = stage + 1, .driven = true};
    writer w = {0};
    assert_ok(ru_recorder_open(&opt, &w.r, &f->err), f->err);
    w.step = ru_recorder_name(w.r, "step", "train");
    w.forward = ru_recorder_name(w.r, "forward", "train");
    w.backward = ru_recorder_name(w.r, "backward", "train");
    w.update = ru_recorder_name(w.r, "update", "train");
    w.input = ru_recorder_name(w.r, "input", "train");
    w.waits = ru_recorder_name(w.r, "wait for a stage", "train");
    w.links[0] = ru_recorder_name(w.r, "stage 1 to 2", "stage");
    w.links[1] = ru_recorder_name(w.r, "stage 2 to 1", "stage");
    ru_recorder_meta(w.r, "pipe",
                     ru_arena_printf(&f->arena, "%u 2 2 %s fc%u", stage, schedule, stage + 1));
    for (uint32_t s = 0; s < 3; s++) {
        int64_t t = 1000 + 200 * (int64_t)s;
        for (uint32_t j = 0; j < 2; j++) {
            if (stage == 0) { /* 2 of the 10 ms are reading */
                ru_rec_span(w.r, w.input, (t + 10 * j) * MS, (t + 10 * j + 2) * MS, 0);
            }
            int64_t at = t + 10 * (int64_t)j, back = t + 50 + 30 * (int64_t)j;
            end(&w, stage == 0 ? RU_REC_SEND : RU_REC_RECV, 0, 2 * s + j, at, at + 4);
            end(&w, stage == 1 ? RU_REC_SEND : RU_REC_RECV, 1, 2 * s + j, back, back + 5);
        }
        w.at = t;
        part(&w, w.forward, 0, stage == 1 ? 59 : 0, 0, 10);
        if (stage == 0) {
            part(&w, w.forward, 1, 0, 0, 10);
            part(&w, w.backward, 0, 29, 1, 20);
        } else {
            part(&w, w.backward, 0, 0, 0, 20);
            part(&w, w.forward, 1, 0, 0, 10);
        }
        part(&w, w.backward, 1, stage == 0 ? 10 : 0, 1, 20);
        part(&w, w.update, 0, 0, 0, 5);
        ru_rec_span(w.r, w.step, t * MS, w.at * MS, s + 1);
    }
    ru_recorder_close(w.r);
}

static bool explain(ru_scratch *f, const char *const *sets, uint32_t n, ru_text *out)
{
    bool shown = false;
    *out = ru_text_arena(&f->arena);
    assert_ok(rui_explain_pipe(f->root, NULL, NULL, sets, n, &f->arena, &(ru_tell){.text = out},
                               &shown, &f->err),
              f->err);
    return shown;
}

static void says(const ru_text *out, const char *what)
{
    if (strstr(out->p, what) == NULL) {
        fail_msg("'%s' is not in:\n%s", what, out->p);
    }
}

static void test_stages_links_and_other_costs(void **state)
{
    ru_scratch *f = *state;
    ru_text out;
    const char *dir = ru_path_join(&f->arena, f->root, "trace");
    assert_false(explain(f, NULL, 0, &out));
    assert_ok(ru_dir_make(dir, &f->err), f->err);
    record(f, dir, 0, "flush");
    assert_false(explain(f, NULL, 0, &out)); /* the other stage is not there yet */
    record(f, dir, 1, "flush");
    assert_true(explain(f, NULL, 0, &out));
    /* F F . B . B update: 20 + 29 + 20 + 10 + 20 + 5; the last stage has recorded 59 + 60 + 5. */
    says(&out, "a step: 124 ms recorded, 104 ms by the schedule with the recorded times (-16 %)");
    says(&out, "1 by 20.0 ms");
    says(&out, "means of 3 recorded steps");
    static const struct {
        const char *set, *answer;
    } asked[] = {{"worker1=x0.5", "with --if: 147 ms by the schedule, 1.41 times"},
                 {"network=x0.5", "with --if: 113 ms by the schedule, 1.09 times"},
                 {"network=8kbit", "with --if: 12.4 s by the schedule"},
                 {"worker2=x0.5", "with --if: 164 ms by the schedule, 1.58 times"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(asked); k++) {
        assert_true(rui_explain_pipe_is(asked[k].set));
        assert_true(explain(f, &asked[k].set, 1, &out));
        says(&out, asked[k].answer);
    }
    assert_false(rui_explain_pipe_is("units=[4]"));
    for (uint32_t stage = 0; stage < 2; stage++) {
        record(f, dir, stage, "stash");
    }
    assert_true(explain(f, NULL, 0, &out));
    says(&out, "in a step of 2 micro-batches (stash)");
}

/* Of stages with several workers what each keeps is shown, of a worker that started again its
 * newest record. */
static void test_workers_of_a_stage(void **state)
{
    ru_scratch *f = *state;
    ru_text out;
    static const struct {
        uint32_t rank;
        const char *stage, *memory;
    } said[] = {{1, "0 2 2 stash fc1", "9 3145728 3145728 0 9"},
                {3, "1 2 2 stash fc2", "1 5120 92160 0 0"},
                {2, "0 2 2 stash fc1", "3 5120 81920 0 1"},
                {1, "0 2 2 stash fc1", "3 5120 71680 0 1"}};
    const char *dir = ru_path_join(&f->arena, f->root, "trace");
    assert_ok(ru_dir_make(dir, &f->err), f->err);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(said); k++) {
        const ru_recorder_options opt = {.dir = dir, .rank = said[k].rank, .driven = true};
        ru_recorder *r;
        assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
        ru_recorder_meta(r, "pipe workers", said[k].stage);
        ru_recorder_meta(r, "pipe memory", said[k].memory);
        ru_recorder_close(r);
    }
    assert_true(explain(f, NULL, 0, &out));
    says(&out, "some stages have several workers");
    const char *one = strstr(out.p, "70"), *two = strstr(out.p, "80"), *last = strstr(out.p, "90");
    assert_true(one != NULL && two > one && last > two);
    assert_null(strstr(out.p, "MiB"));
}

static void test_what_cannot_be_asked(void **state)
{
    ru_scratch *f = *state;
    ru_text out = ru_text_arena(&f->arena);
    bool shown;
    static const struct {
        const char *set;
        ru_status st;
        const char *why;
    } asked[] = {{"network=fast", RU_E_USAGE, "a rate such as 100Mbit"},
                 {"worker2=0.5", RU_E_USAGE, "a factor from x0.001"},
                 {"worker0=x2", RU_E_USAGE, "a factor from x0.001"},
                 {"network=x2", RU_E_MISSING, "no records of all stages"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(asked); k++) {
        assert_int_equal(rui_explain_pipe(f->root, NULL, NULL, &asked[k].set, 1, &f->arena,
                                          &(ru_tell){.text = &out}, &shown, &f->err),
                         asked[k].st);
        assert_non_null(strstr(f->err.text, asked[k].why));
    }
    const char *const twice[] = {"network=x2", "network=1Gbit"};
    assert_int_equal(rui_explain_pipe(f->root, NULL, NULL, twice, 2, &f->arena,
                                      &(ru_tell){.text = &out}, &shown, NULL),
                     RU_E_USAGE);
}

RU_TESTS(tool_explain_pipe,
         cmocka_unit_test_setup_teardown(test_stages_links_and_other_costs, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_workers_of_a_stage, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_what_cannot_be_asked, ru_scratch_open,
                                         ru_scratch_close))
