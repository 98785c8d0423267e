/* The table of gradients, predicted and as two ranks recorded them: by hand. */
#include "tool/explain/explain_sums.h"

#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"
#include "trace/record/recorder.h"

/* Two gradients of 1000 and 2000 bytes in one sum behind a barrier; a ring of two. Steps 0 and 1
 * read the parameters, 2 makes `b`, 3 makes `a`: 1 ms each. */
static const double took[] = {1e6, 1e6, 1e6, 1e6};
static const ru_sums_grad grads[] = {{"b", 2000, 2, 1}, {"a", 1000, 3, 0}};
static const ru_coll_cost costs[RU_COLL_ALGOS] = {
    [RU_ALGO_RING] = {.alpha_ns = 1000, .beta_ns = 100, .n_points = 2}};
static const ru_sums_facts facts = {.step_ns = took,
                                    .n_steps = 4,
                                    .update_from = 4,
                                    .grads = grads,
                                    .n_grads = 2,
                                    .n_ranks = 2,
                                    .costs = costs,
                                    .method = RU_SUMS_NONE};

static void explain(ru_scratch *f, const char *path, ru_text *out)
{
    ru_sums_policy_in input;
    ru_sums_in in;
    ru_sums_plan plan;
    assert_ok(ru_sums_policy_in_of(&facts, &f->arena, &input, &f->err), f->err);
    input.primitive = 1; /* ring */
    assert_ok(ru_sums_in_of(&input, &f->arena, &in, &f->err), f->err);
    assert_ok(ru_plan_sums(&in, &f->arena, &f->arena, &plan, &f->err), f->err);
    *out = ru_text_arena(&f->arena);
    assert_ok(rui_explain_sums(path, &input, &plan, &f->arena, &(ru_tell){.text = out}, &f->err),
              f->err);
}

/* The words of the line that begins with this one. */
static const char *line_of(ru_scratch *f, const ru_text *text, const char *first)
{
    ru_str rest = ru_str_n(text->p, text->n), line, word;
    while (ru_str_next(&rest, '\n', &line)) {
        ru_text out = ru_text_arena(&f->arena);
        while (ru_str_next(&line, ' ', &word)) {
            if (word.n > 0) {
                ru_text_putf(&out, "%s%.*s", out.n > 0 ? " " : "", (int)word.n, word.p);
            }
        }
        if (out.n > 0 && strncmp(out.p, first, strlen(first)) == 0) {
            return out.p;
        }
    }
    return "";
}

static void test_a_world_has_predictions(void **state)
{
    ru_scratch *f = *state;
    ru_text out;
    explain(f, f->root, &out);
    /* Both arrive 2 alpha and 3000 beta behind the backward pass of 4 ms. */
    assert_string_equal(line_of(f, &out, "b "), "b 1 1.95 KiB 3.00 ms 4.30 ms 4.00 ms 302 us");
    assert_string_equal(line_of(f, &out, "a "), "a 0 0.98 KiB 4.00 ms 4.30 ms 4.00 ms 302 us");
    assert_non_null(strstr(out.p, "recorded no sums whose time it had predicted"));
}

/* Rank 1 is the last: its sums begin 5 ms after the step and take 2 ms. */
static void record(ru_scratch *f, const char *dir, uint32_t rank, int64_t bytes, const char *by)
{
    const ru_recorder_options opt = {.dir = dir, .rank = rank, .driven = true};
    ru_recorder *r;
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    uint16_t step = ru_recorder_name(r, "step", "train");
    uint16_t sum = ru_recorder_name(r, by, "train");
    for (uint32_t s = 0; s < 3; s++) {
        int64_t at = 1000000000 + 20000000 * (int64_t)s, begin = at + (rank == 1 ? 5000000 : 100);
        const ru_rec_flow x = {.kind = RU_REC_SUM,
                               .name = sum,
                               .label = sum,
                               .flow = 1 + s,
                               .start_ns = begin,
                               .end_ns = at + 7000000,
                               .bytes = bytes,
                               .step = s,
                               .predicted_ns = 1500000};
        ru_rec_flows(r, &x);
        ru_rec_span(r, step, at, at + 9000000, s + 1);
    }
    ru_recorder_close(r);
}

static void test_a_run_has_what_came_of_it(void **state)
{
    ru_scratch *f = *state;
    for (uint32_t k = 0; k < 2; k++) {
        const char *run = ru_path_join(&f->arena, f->root, k == 0 ? "same" : "other");
        const char *dir = ru_path_join(&f->arena, run, "trace");
        ru_text out;
        assert_ok(ru_dir_make(dir, &f->err), f->err);
        const char *by = k == 0 ? "gradients 0..1 doubling" : "gradients 0..1 shared memory";
        record(f, dir, 0, k == 0 ? 3000 : 3004, by);
        record(f, dir, 1, k == 0 ? 3000 : 3004, by);
        explain(f, run, &out);
        const char *said = "a 0 0.98 KiB 4.00 ms 4.30 ms 4.00 ms 302 us";
        const char *is = k == 0 ? " 5.00 ms 7.00 ms 1 (3 of 3)" : "";
        assert_string_equal(line_of(f, &out, "a "), ru_arena_printf(&f->arena, "%s%s", said, is));
        assert_true((strstr(out.p, "other bytes") != NULL) == (k == 1));
        assert_string_equal(line_of(f, &out, "b 2 "),
                            k == 0 ? "b 2 2.93 KiB 1 ring 302 us doubling 2.00 ms"
                                   : "b 2 2.93 KiB 1 ring 302 us");
        assert_true((strstr(out.p, "by other algorithms") != NULL) == (k == 0));
    }
}

/* Numbered as the next step needs them, which is the reverse of the order in which they are ready:
 * `b` in two cuts from 5 and 5.5 ms on, `a` from 6 ms on. */
static void record_two(ru_scratch *f, const char *dir, uint32_t rank)
{
    static const struct {
        const char *name;
        int64_t bytes, begin_us, end_us;
    } sums[] = {{"gradients 0..0 ring", 1200, 5000, 7000},
                {"gradients 0..0 + 0 MiB ring", 800, 5500, 8000},
                {"gradients 1..1 doubling", 1000, 6000, 7500}};
    enum { SUMS = RU_ARRAY_LEN(sums) };
    const ru_recorder_options opt = {.dir = dir, .rank = rank, .driven = true};
    ru_recorder *r;
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    uint16_t step = ru_recorder_name(r, "step", "train");
    for (uint32_t s = 0; s < 3; s++) {
        int64_t at = 1000000000 + 20000000 * (int64_t)s;
        for (uint32_t k = 0; k < SUMS; k++) {
            uint16_t name = ru_recorder_name(r, sums[k].name, "sum");
            const ru_rec_flow x = {.kind = RU_REC_SUM,
                                   .name = name,
                                   .label = name,
                                   .flow = 1 + SUMS * s + k,
                                   .start_ns = at + 1000 * sums[k].begin_us - (rank == 0 ? 100 : 0),
                                   .end_ns = at + 1000 * sums[k].end_us,
                                   .bytes = sums[k].bytes,
                                   .step = s,
                                   .rank = (uint16_t)(SUMS - 1 - k),
                                   .predicted_ns = 1500000};
            ru_rec_flows(r, &x);
        }
        ru_rec_span(r, step, at, at + 9000000, s + 1);
    }
    ru_recorder_close(r);
}

static void test_sums_are_those_of_their_gradients(void **state)
{
    ru_scratch *f = *state;
    const char *run = ru_path_join(&f->arena, f->root, "two");
    const char *dir = ru_path_join(&f->arena, run, "trace");
    ru_text out;
    assert_ok(ru_dir_make(dir, &f->err), f->err);
    record_two(f, dir, 0);
    record_two(f, dir, 1);
    explain(f, run, &out);
    assert_string_equal(line_of(f, &out, "b "), "b 1 1.95 KiB 3.00 ms 4.30 ms 4.00 ms 302 us "
                                                "5.50 ms 8.00 ms 1 (3 of 3)");
    assert_string_equal(line_of(f, &out, "a "), "a 0 0.98 KiB 4.00 ms 4.30 ms 4.00 ms 302 us "
                                                "6.00 ms 7.50 ms 1 (3 of 3)");
    assert_string_equal(line_of(f, &out, "b 2 "), "b 2 2.93 KiB 1 ring 302 us - 2.00 ms");
}

RU_TESTS(tool_explain_sums,
         cmocka_unit_test_setup_teardown(test_sums_are_those_of_their_gradients, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_a_world_has_predictions, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_a_run_has_what_came_of_it, ru_scratch_open,
                                         ru_scratch_close))
