/* A member inside this process, alone in its job: calls out of order, and a stop signal that the
 * program watches. */
#include "train/embed/embed.h"

#include <signal.h>

#include "env/process/self.h"
#include "test/test.h"

static float state_of[4];

static ru_team *team_open(void)
{
    static const int64_t bytes[] = {16, 16};
    const ru_team_state all = {state_of, sizeof state_of, 0};
    const ru_team_options opt = {.token = "0123456789abcdef",
                                 .batch = 4,
                                 .gradient_bytes = bytes,
                                 .n_gradients = 2,
                                 .state = &all,
                                 .n_state = 1};
    ru_team *t = NULL;
    ru_err err = {0};
    assert_ok(ru_team_open(&opt, &t, &err), err);
    return t;
}

static void a_begin_inside_of_a_step_changes_nothing(void **state)
{
    (void)state;
    ru_team *t = team_open();
    ru_team_step s;
    ru_err err = {0};
    assert_ok(ru_team_begin(t, 0, &s, &err), err);
    assert_true(ru_team_leads(t));
    assert_int_equal(s.n, 4);
    assert_int_equal(ru_team_ready(t, 0), RU_OK);
    assert_int_equal(ru_team_begin(t, 0, &s, &err), RU_E_USAGE);
    assert_int_equal(ru_team_ready(t, 0), RU_E_USAGE);
    assert_int_equal(ru_team_ready(t, 1), RU_OK);
    assert_ok(ru_team_wait(t, 0, &err), err);
    assert_int_equal(ru_team_done(t), RU_OK);
    assert_ok(ru_team_begin(t, 0, &s, &err), err);
    assert_int_equal(s.step, 1);
    ru_team_close(t);
}

/* Whatever it is at when the signal comes, the next call that waits says that it left. */
static void a_stop_signal_lets_it_leave(void **state)
{
    (void)state;
    ru_self_stop_watch();
    ru_team *t = team_open();
    ru_team_step s;
    ru_err err = {0};
    assert_ok(ru_team_begin(t, 0, &s, &err), err);
    assert_int_equal(raise(SIGTERM), 0);
    ru_status st = RU_OK;
    while (st == RU_OK) {
        for (uint32_t k = 0; k < 2; k++) {
            (void)!ru_team_ready(t, k);
        }
        st = ru_team_wait(t, 0, &err);
        st = st == RU_OK ? ru_team_done(t) : st;
        st = st == RU_OK ? ru_team_begin(t, 0, &s, &err) : st;
    }
    assert_int_equal(st, RU_E_PEER);
    assert_int_equal(ru_team_begin(t, 0, &s, &err), RU_E_PEER);
    assert_string_equal(err.text, "this process has left the job");
    ru_team_close(t);
    ru_self_stop_unwatch();
}

RU_TESTS(train_embed, cmocka_unit_test(a_begin_inside_of_a_step_changes_nothing),
         cmocka_unit_test(a_stop_signal_lets_it_leave))
