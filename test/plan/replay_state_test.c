/* Replays that are stopped and go on: the state of a whole run, cut at any byte, gives the same
 * rows again; states of other runs are refused. */
#include "bench/replay/replay_state.h"

#include <math.h>
#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

/* The replay `share`, by the state in `dir`; how many units came from it. */
static void played(const char *dir, const char *of, bool resume, ru_arena *a, ru_replay *r,
                   uint32_t *taken)
{
    ru_err err;
    rui_replay_state s = {.quiet = true};
    *r = (ru_replay){.arena = a, .dir = dir, .quick = true, .only = "", .state = &s};
    assert_ok(rui_replay_state_open(&s, dir, of, resume, a, &err), err);
    assert_ok(ru_replay_rows_of("share", r, &err), err);
    rui_replay_state_close(&s);
    *taken = s.taken;
}

static bool same(double x, double y)
{
    return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
}

static void assert_rows_alike(const ru_replay *x, const ru_replay *y)
{
    assert_int_equal(x->rows.n, y->rows.n);
    for (uint32_t i = 0; i < x->rows.n; i++) {
        const ru_replay_row *a = &x->rows.at[i], *b = &y->rows.at[i];
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->measure, b->measure);
        assert_true(a->lower == b->lower && a->timed == b->timed);
        assert_true(same(a->ours, b->ours) && same(a->published, b->published));
        assert_true(same(a->best_known, b->best_known) && same(a->bound, b->bound));
        assert_true(same(a->goal, b->goal) && (a->note == NULL) == (b->note == NULL));
        assert_int_equal(a->n_baselines, b->n_baselines);
        for (uint32_t k = 0; k < a->n_baselines; k++) {
            assert_string_equal(a->baseline_name[k], b->baseline_name[k]);
            assert_true(same(a->baseline[k], b->baseline[k]));
        }
    }
}

static void test_a_stopped_replay_ends_with_the_same_rows(void **state)
{
    ru_scratch *x = *state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const char *dir = x->root;
    ru_replay whole, again;
    uint32_t taken, some = 0;
    played(dir, "x", false, &a, &whole, &taken);
    assert_true(whole.rows.n == 5 && taken == 0);
    const char *path = ru_path_join(&a, dir, "replay.state");
    char *text = NULL;
    int64_t n = 0;
    ru_err err;
    assert_ok(ru_file_read(path, 0, &a, &text, &n, &err), err);
    for (int64_t cut = (int64_t)strlen("rubato.replay_state/1\tx\n"); cut <= n; cut += 53) {
        assert_ok(ru_file_replace(path, text, cut, &err), err);
        played(dir, "x", true, &a, &again, &taken);
        assert_rows_alike(&whole, &again);
        some += taken > 0;
        /* stopped a second time, after what was written behind the cut */
        played(dir, "x", true, &a, &again, &taken);
        assert_rows_alike(&whole, &again);
        assert_int_equal(taken, 1); /* all of it */
    }
    assert_true(some > 5);
    ru_arena_fini(&a);
}

static void test_a_state_of_another_run_is_refused(void **state)
{
    ru_scratch *x = *state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const char *dir = x->root;
    ru_replay r;
    ru_err err;
    uint32_t taken;
    rui_replay_state s = {.quiet = true};
    assert_int_equal(rui_replay_state_open(&s, dir, "x", true, &a, &err), RU_E_MISSING);
    played(dir, "x", false, &a, &r, &taken);
    assert_int_equal(rui_replay_state_open(&s, dir, "y", true, &a, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "without --resume"));
    ru_arena_fini(&a);
}

RU_TESTS(test_replay_state,
         cmocka_unit_test_setup_teardown(test_a_stopped_replay_ends_with_the_same_rows,
                                         ru_scratch_open, ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_a_state_of_another_run_is_refused, ru_scratch_open,
                                         ru_scratch_close))
