#include "plan/crew/share.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

/* Brute force: the least longest part over all ways to share `batch` among n members. */
static double best_of(const double *speed, uint32_t n, int64_t batch)
{
    if (n == 1) {
        return (double)batch / speed[0];
    }
    double best = 1e300;
    for (int64_t k = 0; k <= batch; k++) {
        double rest = best_of(speed + 1, n - 1, batch - k);
        double here = (double)k / speed[0];
        double worse = here > rest ? here : rest;
        best = worse < best ? worse : best;
    }
    return best;
}

static void shares_are_optimal(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(7, 1);
    for (uint32_t round = 0; round < 400; round++) {
        double speed[4];
        uint32_t n = 1 + (uint32_t)ru_rng_below(&r, 4);
        int64_t batch = 1 + (int64_t)ru_rng_below(&r, 18);
        for (uint32_t i = 0; i < n; i++) {
            speed[i] = 1.0 + (double)ru_rng_below(&r, 100);
            speed[i] *= ru_rng_below(&r, 4) == 0 ? 1e-3 : 1; /* so slow that none is best */
        }
        ru_share_in in = {.batch = batch, .n = n, .speed = speed};
        ru_share_plan p;
        ru_err err;
        ru_arena_mark m = ru_arena_mark_get(&a);
        assert_ok(ru_plan_share(&in, &a, &p, &err), err);
        assert_ok(ru_plan_share_check(&in, &p, &err), err);
        double best = best_of(speed, n, batch);
        assert_true(fabs(p.predicted_s - best) <= 1e-12 * best);
        for (uint32_t i = 0; i < n; i++) { /* every one-place corruption is refused */
            int64_t *s = (int64_t *)(uintptr_t)p.share;
            s[i]++;
            assert_int_equal(ru_plan_share_check(&in, &p, &err), RU_E_INFEASIBLE);
            s[i]--;
        }
        ru_arena_rewind(&a, m);
    }
    ru_arena_fini(&a);
}

static void half_speed_gets_half(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_share_plan p;
    const double speed[3] = {100, 100, 50};
    ru_share_in in = {.batch = 100, .n = 3, .speed = speed, .gain_min = 0.1};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 40);
    assert_int_equal(p.share[1], 40);
    assert_int_equal(p.share[2], 20);
    const int64_t near_by[3] = {41, 39, 20}; /* 2.5 % from the best: not worth a rebuild */
    in.now = near_by;
    in.n_now = 3;
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_false(p.changed);
    assert_int_equal(p.share[0], 41);
    const double gone[3] = {100, 100, -1};
    in.speed = gone;
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_true(p.changed);
    assert_int_equal(p.share[0] + p.share[1], 100);
    assert_int_equal(p.share[2], 0);
    ru_arena_fini(&a);
}

static void edges(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_share_plan p;
    ru_share_in in = {.batch = 10, .n = 3};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 4); /* equal remainders: the earlier member */
    assert_int_equal(p.share[2], 3);
    const double unknown[3] = {0, 10, 30}; /* the unknown counts as their mean, 20 */
    in.speed = unknown;
    in.batch = 60;
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 20);
    in.batch = 2; /* fewer samples than members */
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_ok(ru_plan_share_check(&in, &p, &err), err);
    const double none[3] = {-1, -1, -1};
    in.speed = none;
    assert_int_equal(ru_plan_share(&in, &a, &p, &err), RU_E_ARG);
    in.batch = 0;
    assert_int_equal(ru_plan_share(&in, &a, &p, &err), RU_E_ARG);
    const double slow[2] = {1000, 0.001}; /* one sample would take a quarter of an hour */
    in = (ru_share_in){.batch = 5, .n = 2, .speed = slow};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 5);
    assert_int_equal(p.share[1], 0);
    const double still[2] = {1, 1e-300}; /* no speed: its times are no numbers */
    in.speed = still;
    assert_int_equal(ru_plan_share(&in, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* `equal` looks at no speed and no shares in force, but at who is excluded. */
static void equal_shares_are_equal(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_share_plan p;
    const double speed[3] = {300, -1, 100};
    const int64_t now[3] = {50, 0, 50}, fast[3] = {75, 0, 25};
    ru_share_in in = {
        .batch = 100, .n = 3, .speed = speed, .now = now, .n_now = 3, .method = RU_SHARE_EQUAL};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_ok(ru_plan_share_check(&in, &p, &err), err);
    assert_memory_equal(p.share, now, sizeof now);
    assert_true(p.changed && p.predicted_s == 0 && p.predicted_now_s == 0);
    p.share = fast;
    assert_int_equal(ru_plan_share_check(&in, &p, &err), RU_E_INFEASIBLE);
    in.method = RU_SHARE_SPEED;
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_memory_equal(p.share, fast, sizeof fast);
    in.n_now = 2; /* of three */
    assert_int_equal(ru_plan_share(&in, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Answers that are wrong in one way only, each found. */
/* Until the last of three members ends. */
static double last_s(const double *speed, const int64_t *share)
{
    double last = 0;
    for (uint32_t i = 0; share != NULL && i < 3; i++) {
        last = share[i] > 0 ? fmax(last, (double)share[i] / speed[i]) : last;
    }
    return last;
}

static void the_checker_refuses(void **state)
{
    (void)state;
    ru_err err;
    const double speed[3] = {100, 50, -1}, slow[3] = {1000, 1000, 0.001};
    const int64_t now[3] = {41, 19, 0};
    const struct {
        const char *part; /* of the sentence; NULL: a good answer */
        ru_share_in in;
        int64_t share[3];
        uint32_t n;
        bool changed;
    } rows[] = {
        {NULL, {.batch = 60, .n = 3, .speed = speed}, {40, 20, 0}, 3, true},
        {"2 shares for 3", {.batch = 60, .n = 3, .speed = speed}, {40, 20, 0}, 2, true},
        {"must not have 1", {.batch = 60, .n = 3, .speed = speed}, {39, 20, 1}, 3, true},
        {"must not have -1", {.batch = 60, .n = 3, .speed = speed}, {60, -1, 0}, 3, true},
        {"add up to 59", {.batch = 60, .n = 3, .speed = speed}, {40, 19, 0}, 3, true},
        {"member 0 ends last", {.batch = 60, .n = 3, .speed = speed}, {42, 18, 0}, 3, true},
        {"member 1 ends last", {.batch = 60, .n = 3, .speed = speed}, {38, 22, 0}, 3, true},
        {NULL, {.batch = 10, .n = 3, .speed = slow}, {5, 5, 0}, 3, true},
        {"member 2 ends last", {.batch = 10, .n = 3, .speed = slow}, {5, 4, 1}, 3, true},
        {NULL, {.batch = 2, .n = 3, .speed = slow}, {1, 1, 0}, 3, true},
        {NULL,
         {.batch = 60, .n = 3, .speed = speed, .now = now, .n_now = 3},
         {41, 19, 0},
         3,
         false},
        {"says that nothing changed",
         {.batch = 60, .n = 3, .speed = speed, .now = now, .n_now = 3},
         {40, 20, 0},
         3,
         false},
        {"says that nothing changed", {.batch = 60, .n = 3, .speed = speed}, {40, 20, 0}, 3, false},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        const ru_share_in *in = &rows[i].in;
        ru_share_plan p = {.share = rows[i].share, .n = rows[i].n, .changed = rows[i].changed};
        p.predicted_s = last_s(in->speed, p.share);
        p.predicted_now_s = last_s(in->speed, in->now);
        ru_status st = ru_plan_share_check(in, &p, &err);
        assert_int_equal(st, rows[i].part == NULL ? RU_OK : RU_E_INFEASIBLE);
        assert_true(rows[i].part == NULL || strstr(err.text, rows[i].part) != NULL);
        p.predicted_s *= 1.001;
        assert_int_equal(ru_plan_share_check(in, &p, &err), RU_E_INFEASIBLE);
    }
}

/* Who is excluded now gives its part away, whatever little that gains. */
static void the_excluded_keep_nothing(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_share_plan p;
    const double speed[3] = {-1, 100, 100};
    const int64_t now[3] = {1, 50, 49};
    const ru_share_in in = {
        .batch = 100, .n = 3, .speed = speed, .now = now, .n_now = 3, .gain_min = 0.1};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_ok(ru_plan_share_check(&in, &p, &err), err);
    assert_true(p.changed);
    assert_int_equal(p.share[0], 0);
    ru_arena_fini(&a);
}

/* Every three parts of a batch of 5 against a map of positions. */
static void parts_cover_the_step(void **state)
{
    (void)state;
    enum { BATCH = 5, PARTS = 36 }; /* [first, first + n) with both 0 .. 5 */
    for (uint32_t k = 0; k < PARTS * PARTS * PARTS; k++) {
        const uint32_t part[3] = {k / PARTS / PARTS, k / PARTS % PARTS, k % PARTS};
        ru_share_cover c = {0};
        uint32_t seen[2 * BATCH + 1] = {0};
        int64_t lost = 0, repeated = 0, last = 0;
        bool ordered = true;
        for (uint32_t i = 0; i < 3; i++) {
            int64_t first = part[i] / 6, n = part[i] % 6;
            ordered = ordered && (n == 0 || first >= last);
            last = n > 0 ? first : last;
            ru_share_cover_part(&c, first, n, BATCH);
            for (int64_t p = first; p < first + n; p++) {
                seen[p]++;
            }
        }
        for (uint32_t p = 0; p < 2 * BATCH; p++) {
            lost += p < BATCH && seen[p] == 0;
            repeated += p >= BATCH ? seen[p] : seen[p] > 1 ? seen[p] - 1 : 0;
        }
        ru_share_cover_end(&c, BATCH);
        if (ordered) {
            assert_int_equal(c.lost, lost);
            assert_int_equal(c.repeated, repeated);
        } else {
            assert_true(c.lost + c.repeated > 0);
        }
    }
    ru_share_cover c = {0}; /* nonsense on the wire is no position */
    ru_share_cover_part(&c, INT64_MIN, INT64_MAX, BATCH);
    ru_share_cover_part(&c, INT64_MAX, INT64_MIN, BATCH);
    ru_share_cover_end(&c, BATCH);
    assert_int_equal(c.lost, 0);
}

RU_TESTS(plan_share, cmocka_unit_test(shares_are_optimal), cmocka_unit_test(half_speed_gets_half),
         cmocka_unit_test(edges), cmocka_unit_test(equal_shares_are_equal),
         cmocka_unit_test(the_checker_refuses), cmocka_unit_test(the_excluded_keep_nothing),
         cmocka_unit_test(parts_cover_the_step))
