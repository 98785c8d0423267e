/* Sums of updates against the closed form, updates that are none, and messages cut anywhere. */
#include "fleet/sum.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "fleet/wire.h"
#include "test/test.h"

enum { N = 3 };

static ru_fed_sum open_sum(ru_arena *a, ru_fed_sum_options o)
{
    ru_fed_sum s;
    ru_err err;
    o.count = N;
    o.params = 2; /* the last value is a statistic */
    o.most = 5;
    assert_ok(ru_fed_sum_open(&o, a, &s, &err), err);
    return s;
}

static void test_mean_by_samples(void **state)
{
    (void)state;
    static const float a[N] = {1, -2, 0.5f}, b[N] = {4, 2, 0}, bad[N] = {0, NAN, 1};
    float mean[N] = {9, 9, 9};
    ru_arena arena;
    ru_err err;
    ru_arena_init(&arena, 0);
    ru_fed_sum s = open_sum(&arena, (ru_fed_sum_options){0});
    for (uint32_t twice = 0; twice < 2; twice++) {
        ru_fed_sum_begin(&s, mean);
        assert_ok(ru_fed_sum_add(&s, a, 1, &err), err);
        assert_int_equal(ru_fed_sum_add(&s, bad, 5, &err), RU_E_DATA);
        assert_string_equal(err.text, "value 1 of the update is not finite");
        assert_ok(ru_fed_sum_add(&s, b, 3, &err), err);
        ru_fed_sum_end(&s, mean);
        for (uint32_t i = 0; i < N; i++) {
            assert_near((double)mean[i], (double)(a[i] + 3 * b[i]) / 4, 1e-7);
        }
    }
    ru_arena_fini(&arena);
}

/* Of masked updates the sum of their moves is there alone. */
static void test_masked(void **state)
{
    (void)state;
    static const float from[N] = {1, 2, 3};
    const uint32_t moves[N] = {8, (uint32_t)-4, 0};
    float got[N];
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_fed_sum s = open_sum(&arena, (ru_fed_sum_options){0});
    ru_fed_sum_begin(&s, from);
    ru_fed_sum_masked(&s, moves, 0.5, 4, 2); /* moves of 4 and -2, over a weight of 4 */
    ru_fed_sum_end(&s, got);
    assert_true(got[0] == 2 && got[1] == 1.5f && got[2] == 3);
    s.opt.clip = 1; /* by `most`, 5, whoever answered */
    ru_fed_sum_begin(&s, from);
    ru_fed_sum_masked(&s, moves, 0.5, 4, 2);
    ru_fed_sum_end(&s, got);
    assert_near((double)got[0], 1.8, 1e-6);
    assert_near((double)got[1], 1.6, 1e-6);
    ru_arena_fini(&arena);
}

/* Five updates, two of them far off. */
static void test_sums_that_withstand(void **state)
{
    (void)state;
    static const float u[5][N] = {
        {1, 5, 2}, {1000, -9e9f, 1}, {3, 7, 0}, {-1000, 6, 4}, {2, 9e9f, 3}};
    static const double trimmed[N] = {2, 6, 2}, median[N] = {2, 6, 2};
    ru_arena arena;
    ru_err err;
    ru_arena_init(&arena, 0);
    for (uint32_t even = 0; even < 2; even++) {
        float got[N] = {0};
        ru_fed_sum t = open_sum(&arena, (ru_fed_sum_options){.kind = RU_FED_TRIMMED, .trim = 0.2});
        ru_fed_sum m = open_sum(&arena, (ru_fed_sum_options){.kind = RU_FED_MEDIAN});
        ru_fed_sum_begin(&t, got);
        ru_fed_sum_begin(&m, got);
        for (uint32_t k = 0; k < 5 - even; k++) {
            assert_ok(ru_fed_sum_add(&t, u[k], k + 1, &err), err);
            assert_ok(ru_fed_sum_add(&m, u[k], 1, &err), err);
        }
        ru_fed_sum_end(&t, got);
        for (uint32_t i = 0; i < N && even == 0; i++) {
            assert_near((double)got[i], trimmed[i], 1e-6);
        }
        ru_fed_sum_end(&m, got);
        for (uint32_t i = 0; i < N && even == 0; i++) {
            assert_near((double)got[i], median[i], 1e-6);
        }
        assert_true(even == 0 || (got[0] >= 2 && got[0] <= 2)); /* of -1000, 1, 3, 1000 */
    }
    ru_fed_sum m = open_sum(&arena, (ru_fed_sum_options){.kind = RU_FED_MEDIAN});
    ru_fed_sum_begin(&m, u[0]);
    for (uint32_t k = 0; k < 5; k++) {
        assert_ok(ru_fed_sum_add(&m, u[k], 1, &err), err);
    }
    assert_int_equal(ru_fed_sum_add(&m, u[0], 1, &err), RU_E_LIMIT);
    ru_arena_fini(&arena);
}

/* By hand; the statistic is averaged as it is. */
static void test_server_optimizers(void **state)
{
    (void)state;
    static const float mean[N] = {2, 0, 7};
    ru_arena arena;
    ru_err err;
    ru_arena_init(&arena, 0);
    ru_fed_sum s[2] = {
        open_sum(&arena, (ru_fed_sum_options){.by = RU_FED_MOMENTUM, .lr = 0.5, .beta1 = 0.9}),
        open_sum(&arena,
                 (ru_fed_sum_options){
                     .by = RU_FED_ADAM, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3})};
    for (uint32_t k = 0; k < 2; k++) {
        float w[N] = {1, 1, 1};
        double x = 1, m = 0, v = 0;
        for (uint32_t round = 0; round < 3; round++) {
            ru_fed_sum_begin(&s[k], w);
            assert_ok(ru_fed_sum_add(&s[k], mean, 4, &err), err);
            ru_fed_sum_end(&s[k], w);
            double d = 2 - x;
            m = k == 0 ? 0.9 * m + d : 0.9 * m + 0.1 * d;
            v = 0.99 * v + 0.01 * d * d;
            x += k == 0 ? 0.5 * m : 0.1 * m / (sqrt(v) + 1e-3);
            assert_near((double)w[0], x, 1e-6);
            assert_near((double)w[2], 7, 0);
        }
    }
    ru_arena_fini(&arena);
}

/* Moves of length 5 and 0.5 with a clip of 1: shortened, not stretched, alike whatever their
 * samples, over as many as were asked. */
static void test_clip(void **state)
{
    (void)state;
    static const float a[N] = {1 + 3, 2 + 4, 3}, b[N] = {1, 2, 3.5f};
    float w[N] = {1, 2, 3};
    ru_arena arena;
    ru_err err;
    ru_arena_init(&arena, 0);
    ru_fed_sum_options o = {.count = N, .params = N, .most = 4, .clip = 1};
    ru_fed_sum s;
    assert_ok(ru_fed_sum_open(&o, &arena, &s, &err), err);
    ru_fed_sum_begin(&s, w);
    assert_ok(ru_fed_sum_add(&s, a, 1000, &err), err);
    assert_ok(ru_fed_sum_add(&s, b, 1, &err), err);
    ru_fed_sum_end(&s, w);
    assert_near((double)w[0], 1 + 0.6 / 4, 1e-6);
    assert_near((double)w[1], 2 + 0.8 / 4, 1e-6);
    assert_near((double)w[2], 3 + 0.5 / 4, 1e-6);
    o.params = 2;
    assert_int_equal(ru_fed_sum_open(&o, &arena, &s, &err), RU_E_CONFIG);
    ru_arena_fini(&arena);
}

/* Noise of both sources: mean and deviation of many values, which are not those of another sum. */
static void test_noise(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    static float zero[MANY], w[2][MANY];
    ru_arena arena;
    ru_err err;
    ru_arena_init(&arena, 0);
    ru_rng rng = ru_rng_from(ru_test_seed(), 7);
    for (uint32_t seeded = 0; seeded < 2; seeded++) {
        const ru_fed_sum_options o = {.count = MANY,
                                      .params = MANY,
                                      .most = 10,
                                      .clip = 3,
                                      .noise = 2,
                                      .rng = seeded ? &rng : NULL};
        ru_fed_sum s;
        assert_ok(ru_fed_sum_open(&o, &arena, &s, &err), err);
        double sum = 0, square = 0, both = 0;
        for (uint32_t k = 0; k < 2; k++) {
            ru_fed_sum_begin(&s, zero);
            assert_ok(ru_fed_sum_add(&s, zero, 1, &err), err);
            ru_fed_sum_end(&s, w[k]);
        }
        for (uint32_t i = 0; i < MANY; i++) {
            sum += (double)w[0][i];
            square += (double)w[0][i] * (double)w[0][i];
            both += (double)w[0][i] * (double)w[1][i];
        }
        assert_near(sum / MANY, 0, 0.6 * 6 / sqrt(MANY)); /* six deviations */
        assert_near(sqrt(square / MANY), 0.6, 0.6 * 0.04);
        assert_near(both / MANY, 0, 0.36 * 6 / sqrt(MANY));
    }
    ru_arena_fini(&arena);
}

static void test_messages(void **state)
{
    (void)state;
    uint8_t m[RUI_FED_HEAD_MAX];
    rui_fed_ready r, r_in = {.samples = 7, .held = 2, .count = 9, .hash = 3};
    rui_fed_task t, t_in = {.task = 5, .round = 2, .epochs = 3, .kind = RUI_FED_EVALUATE};
    rui_fed_update u, u_in = {.task = 5, .loss = 0.5, .loss_rms = 0.75, .accuracy = -1};
    rui_fed_score c, c_in = {.task = 5, .correct = 3, .count = 4, .loss = 1};
    uint32_t n = rui_fed_ready_put(&r_in, m);
    assert_true(rui_fed_ready_get(m, n, &r) && memcmp(&r, &r_in, sizeof r) == 0);
    n = rui_fed_task_put(&t_in, m);
    assert_true(rui_fed_task_get(m, n, &t) && memcmp(&t, &t_in, sizeof t) == 0);
    n = rui_fed_score_put(&c_in, m);
    assert_true(rui_fed_score_get(m, n, &c) && c.count >= 4);
    n = rui_fed_update_put(&u_in, m);
    assert_true(rui_fed_update_get(m, n, &u) && u.task == 5);
    for (uint32_t cut = 0; cut < n; cut++) {
        assert_false(rui_fed_update_get(m, cut, &u));
    }
    const double absurd[] = {0, -1, 1e18, (double)NAN, (double)INFINITY};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(absurd); k++) {
        r_in.samples = absurd[k];
        n = rui_fed_ready_put(&r_in, m);
        assert_false(rui_fed_ready_get(m, n, &r));
        u_in.loss = k == 0 ? (double)NAN : k == 1 ? -1e39 : k == 2 ? 0.5 : absurd[k];
        u_in.loss_rms = k == 2 ? -1e-9 : 1;
        n = rui_fed_update_put(&u_in, m);
        assert_false(rui_fed_update_get(m, n, &u));
        c_in.correct = k < 2 ? 5 : absurd[k];
        n = rui_fed_score_put(&c_in, m);
        assert_false(rui_fed_score_get(m, n, &c));
    }
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t k = 0; k < 100000; k++) { /* whatever comes: no crash, and sane numbers */
        n = ru_rng_below(&rng, RUI_FED_HEAD_MAX);
        for (uint32_t i = 0; i < n; i++) {
            m[i] = (uint8_t)ru_rng_u32(&rng);
        }
        assert_true(!rui_fed_ready_get(m, n, &r) || (r.samples >= 1 && r.samples <= 1e9));
        assert_true(!rui_fed_update_get(m, n, &u) || fabs(u.loss) < 1e39);
        assert_true(!rui_fed_task_get(m, n, &t) || (t.epochs >= 1 && t.kind <= RUI_FED_EVALUATE));
        assert_true(!rui_fed_score_get(m, n, &c) || c.correct <= c.count);
    }
    assert_true(rui_fed_name_ok("alice-2.x_Y") && !rui_fed_name_ok("") && !rui_fed_name_ok("a b"));
    assert_false(rui_fed_name_ok("a-name-of-32-bytes-that-is-too-l"));
}

RU_TESTS(fleet_sum, cmocka_unit_test(test_mean_by_samples), cmocka_unit_test(test_masked),
         cmocka_unit_test(test_sums_that_withstand), cmocka_unit_test(test_server_optimizers),
         cmocka_unit_test(test_clip), cmocka_unit_test(test_noise), cmocka_unit_test(test_messages))
