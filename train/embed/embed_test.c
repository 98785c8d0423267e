/* A member inside this process, alone in its job: calls out of order, and a stop signal that the
 * program watches. */
#include "train/embed/embed.h"

#include <math.h>
#include <signal.h>

#include "base/rng.h"
#include "env/process/self.h"
#include "env/thread.h"
#include "test/test.h"
#include "train/embed/noise.h"
#include "world/dtype.h"

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

/* Gradients with a known mean and variance: a walk of the sums' own batches, alone. */
static void noise_is_that_of_the_gradients(void **state)
{
    (void)state;
    enum { SIZE = 256, STEPS = 1600 };
    static const int64_t bytes[] = {SIZE * 4, 4};
    const ru_team_state all = {state_of, sizeof state_of, 0};
    const ru_team_options opt = {.token = "0123456789abcdef",
                                 .batch = 4,
                                 .gradient_bytes = bytes,
                                 .n_gradients = 2,
                                 .state = &all,
                                 .n_state = 1,
                                 .noise = 1};
    ru_team *t = NULL;
    ru_team_step s = {0};
    ru_err err = {0};
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    assert_ok(ru_team_open(&opt, &t, &err), err);
    for (int k = 0; k < STEPS; k++) {
        assert_ok(ru_team_begin(t, 0, &s, &err), err);
        assert_true((s.noise_var > 0) == (k > 128));
        float *g = ru_team_gradient(t, 0);
        for (int i = 0; i < SIZE; i++) { /* mean 0.5; in (-1, 1) evenly: variance 1/3 */
            g[i] = 0.5f + (float)(2 * ru_rng_f64(&rng) - 1);
        }
        *ru_team_gradient(t, 1) = 100; /* no gradient */
        assert_int_equal(ru_team_ready(t, 1), RU_OK);
        assert_int_equal(ru_team_ready(t, 0), RU_OK);
        assert_ok(ru_team_wait(t, 0, &err), err);
        assert_int_equal(ru_team_done(t), RU_OK);
    }
    double sqr = 0.25 * SIZE, var = SIZE / 3.0;
    if (!(s.noise_sqr > 0.9 * sqr && s.noise_sqr < 1.1 * sqr && s.noise_var > 0.9 * var &&
          s.noise_var < 1.1 * var)) {
        fail_msg("sqr %g, var %g, expected %g, %g", s.noise_sqr, s.noise_var, sqr, var);
    }
    ru_team_close(t);
}

/* Pairs of steps of one member do not count any more once two tell of their parts. */
static void noise_of_a_member_alone_is_forgotten(void **state)
{
    (void)state;
    enum { EVERY = 8, LAST = 16 * EVERY }; /* step alone, whose sample is the sixteenth */
    ru_embed_noise x;
    ru_err err = {0};
    ru_rng rng = ru_rng_from(ru_test_seed(), 5);
    assert_ok(ru_embed_noise_open(&x, 1, &err), err);
    double sqr, var;
    for (int64_t k = 0; k < 2 * LAST + EVERY; k++) {
        bool alone = k <= LAST;
        float sum = (float)ru_rng_normal(&rng), vector[2];
        ru_embed_noise_tell((double)(sum * sum), alone ? 1 : 0.5, vector);
        vector[1] *= alone ? 1 : 2;
        ru_embed_noise_summed(&x, k, 1, &(ru_span){.data = &sum, .size_bytes = sizeof sum}, 1,
                              vector);
        bool known = (k >= LAST && k < LAST + EVERY) || k >= 2 * LAST;
        assert_int_equal(ru_embed_noise_known(&x, &sqr, &var), known);
    }
    ru_embed_noise_close(&x);
}

/* Three members of unequal parts: gradients of one, two and five samples of a batch of eight. */
static void noise_of_parts_is_that_of_the_batch(void **state)
{
    (void)state;
    enum { SIZE = 64, STEPS = 4000 };
    static const int samples[] = {1, 2, 5};
    ru_embed_noise x;
    ru_err err = {0};
    ru_rng rng = ru_rng_from(ru_test_seed(), 4);
    assert_ok(ru_embed_noise_open(&x, SIZE, &err), err);
    double sqr, var;
    for (int64_t k = 0; k < STEPS; k++) {
        float sum[SIZE] = {0}, vector[2] = {0};
        for (int m = 0; m < 3; m++) {
            float own[SIZE], told[2];
            double part = samples[m] / 8.0;
            for (int i = 0; i < SIZE; i++) { /* of a sample: mean 0.25, variance 1 */
                own[i] = (float)(part * (0.25 + ru_rng_normal(&rng) / sqrt(samples[m])));
                sum[i] += own[i];
            }
            ru_embed_noise_tell(ru_embed_noise_square(own, SIZE), part, told);
            vector[0] += told[0];
            vector[1] += told[1];
        }
        ru_embed_noise_summed(&x, k, 1, &(ru_span){.data = sum, .size_bytes = sizeof sum}, 1,
                              vector);
    }
    assert_true(ru_embed_noise_known(&x, &sqr, &var));
    if (!(fabs(sqr / (SIZE / 16.0) - 1) < 0.25 && fabs(var / (SIZE / 8.0) - 1) < 0.15)) {
        fail_msg("sqr %g, var %g, expected %g, %g", sqr, var, SIZE / 16.0, SIZE / 8.0);
    }
    ru_embed_noise_close(&x);
}

/* -- state that is no memory, gradients in bf16 ------------------------------------------------ */

enum { STATE = 1000, BF16 = 64, AWAY_STEPS = 12 };

typedef struct away {
    ru_team *team;
    double state[STATE]; /* what others see as its negative, in f32 */
    int64_t moved[2];    /* bytes out of it, into it */
    ru_status end;
} away;

static bool away_move(void *self, uint32_t k, int64_t offset, int64_t size, void *memory,
                      bool into_state)
{
    away *w = self;
    float *values = memory;
    for (int64_t i = 0; i < size / 4; i++) {
        double *at = &w->state[offset / 4 + i];
        *at = into_state ? -(double)values[i] : *at;
        values[i] = (float)-*at;
    }
    w->moved[into_state ? 1 : 0] += size;
    return k == 0 && offset % 4 == 0 && size % 4 == 0;
}

static void away_train(void *self)
{
    away *w = self;
    ru_team_step s;
    ru_err err = {0};
    ru_status st;
    while ((st = ru_team_begin(w->team, 0, &s, &err)) == RU_OK && !s.over) {
        uint16_t *g = (void *)ru_team_gradient(w->team, 0);
        for (int i = 0; s.n > 0 && i < BF16; i++) {
            g[i] = ru_f32_to_bf16((float)s.n / (float)s.batch);
        }
        st = s.n > 0 ? ru_team_ready(w->team, 0) : RU_OK;
        st = st == RU_OK ? ru_team_wait(w->team, 0, &err) : st;
        for (int i = 0; st == RU_OK && i < STATE; i++) {
            w->state[i] += (double)ru_bf16_to_f32(g[i % BF16]);
        }
        if (st != RU_E_CANCELLED && (st != RU_OK || ru_team_done(w->team) != RU_OK)) {
            break;
        }
    }
    w->end = st;
}

/* The second one begins with the state of the first, that only the program can read. */
static void state_is_moved_by_the_program(void **state)
{
    (void)state;
    static const int64_t bytes[] = {BF16 * 2};
    static away w[2];
    const ru_team_state all = {NULL, STATE * 4, 0};
    ru_thread threads[2];
    ru_err err = {0};
    for (int m = 0; m < 2; m++) {
        const ru_team_options opt = {.token = "0123456789abcdef",
                                     .join = m > 0 ? ru_team_address(w[0].team) : NULL,
                                     .newcomer = m > 0,
                                     .n_begin = 2,
                                     .batch = 8,
                                     .steps = AWAY_STEPS,
                                     .gradient_bytes = bytes,
                                     .n_gradients = 1,
                                     .bf16 = true,
                                     .state = &all,
                                     .n_state = 1,
                                     .move = away_move,
                                     .move_self = &w[m]};
        w[m] = (away){.state = {0}};
        for (int i = 0; i < STATE; i++) {
            w[m].state[i] = m > 0 ? 777 : i;
        }
        assert_ok(ru_team_open(&opt, &w[m].team, &err), err);
        assert_ok(ru_thread_start(&threads[m], "member", away_train, &w[m], &err), err);
    }
    for (int m = 0; m < 2; m++) {
        ru_thread_join(&threads[m]);
    }
    for (int m = 0; m < 2; m++) {
        assert_int_equal(w[m].end, RU_OK);
        assert_int_equal(w[m].moved[1 - m], 0);
        assert_int_equal(w[m].moved[m], STATE * 4);
        for (int i = 0; i < STATE; i++) {
            assert_true(w[m].state[i] == i + AWAY_STEPS);
        }
        ru_team_close(w[m].team);
    }
}

RU_TESTS(train_embed, cmocka_unit_test(state_is_moved_by_the_program),
         cmocka_unit_test(a_begin_inside_of_a_step_changes_nothing),
         cmocka_unit_test(a_stop_signal_lets_it_leave),
         cmocka_unit_test(noise_is_that_of_the_gradients),
         cmocka_unit_test(noise_of_a_member_alone_is_forgotten),
         cmocka_unit_test(noise_of_parts_is_that_of_the_batch))
