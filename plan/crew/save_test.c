/* Saves and recoveries: no other choice of as many blocks leaves less, checkers refuse changes, and
 * the bound holds on quadratics whose rate is known. */
#include "plan/crew/save.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/perturb.h"
#include "test/test.h"

static double left_by(const double *d, uint32_t n, uint32_t set)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (set >> i & 1) != 0 ? 0 : d[i] * d[i];
    }
    return sqrt(sum);
}

static void test_no_choice_leaves_less(void **state)
{
    (void)state;
    enum { N = 9 };
    for (uint64_t seed = 0; seed < 40; seed++) {
        ru_rng r = ru_rng_from(seed, 0);
        double d[N];
        for (uint32_t i = 0; i < N; i++) {
            d[i] = ru_rng_below(&r, 6) * 0.25; /* ties and zeroes */
        }
        for (uint32_t k = 1; k <= N; k++) {
            ru_arena a;
            ru_arena_init(&a, 0);
            const ru_save_in in = {.distance = d, .n = N, .fraction = (double)k / N};
            ru_save_plan p;
            ru_err err;
            assert_ok(ru_plan_save(&in, &a, &p, &err), err);
            assert_int_equal(p.n, k);
            double best = INFINITY;
            for (uint32_t set = 0; set < 1u << N; set++) {
                if ((uint32_t)__builtin_popcount(set) == k) {
                    best = fmin(best, left_by(d, N, set));
                }
            }
            assert_true(fabs(p.left_norm - best) < 1e-12);
            assert_ok(ru_plan_save_check(&in, &p, &a, &err), err);
            ru_arena_fini(&a);
        }
    }
}

static void test_cycles_and_draws_cover_all(void **state)
{
    (void)state;
    enum { N = 7 };
    double d[N] = {1, 1, 1, 1, 1, 1, 1};
    uint32_t count[N] = {0}, drawn[N] = {0}, cursor = 0;
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < 7 * 40; k++) {
        ru_save_in in = {.distance = d, .n = N, .fraction = 0.4, .cursor = cursor, .seed = k};
        ru_save_plan p;
        ru_err err;
        in.method = RU_SAVE_ROUND_ROBIN;
        assert_ok(ru_plan_save(&in, &a, &p, &err), err);
        assert_ok(ru_plan_save_check(&in, &p, &a, &err), err);
        cursor = p.cursor;
        for (uint32_t i = 0; i < p.n; i++) {
            count[p.block[i]]++;
        }
        in.method = RU_SAVE_RANDOM;
        assert_ok(ru_plan_save(&in, &a, &p, &err), err);
        assert_ok(ru_plan_save_check(&in, &p, &a, &err), err);
        for (uint32_t i = 0; i < p.n; i++) {
            drawn[p.block[i]]++;
        }
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(count[i], 3 * 40);
        assert_true(drawn[i] > 80 && drawn[i] < 160);
    }
    ru_arena_fini(&a);
}

static void test_checker_refuses_changed_saves(void **state)
{
    (void)state;
    const double d[] = {0.5, 0.1, 0.9, 0.4, 0.9, 0.2};
    const ru_save_in in = {.distance = d, .n = 6, .fraction = 0.5};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_save_plan p, q;
    ru_err err;
    assert_ok(ru_plan_save(&in, &a, &p, &err), err);
    assert_int_equal(p.n, 3);
    for (uint32_t place = 0; place < 3; place++) {
        for (uint32_t other = 0; other < 8; other++) {
            uint32_t block[3];
            memcpy(block, p.block, sizeof block);
            if (block[place] == other) {
                continue;
            }
            block[place] = other;
            q = p;
            q.block = block;
            assert_int_equal(ru_plan_save_check(&in, &q, &a, &err), RU_E_INFEASIBLE);
        }
    }
    q = p, q.n = 2;
    assert_int_equal(ru_plan_save_check(&in, &q, &a, &err), RU_E_INFEASIBLE);
    q = p, q.left_norm *= 1.01;
    assert_int_equal(ru_plan_save_check(&in, &q, &a, &err), RU_E_INFEASIBLE);
    q = p, q.saved_norm *= 0.99;
    assert_int_equal(ru_plan_save_check(&in, &q, &a, &err), RU_E_INFEASIBLE);
    q = p, q.left_most = 0.9;
    assert_int_equal(ru_plan_save_check(&in, &q, &a, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

static void test_recovery_takes_the_newest(void **state)
{
    (void)state;
    ru_recover_block b[4] = {{true, 40, 49, 0.3, 0.02, 2},
                             {false, 44, -1, 0.2, 0, 3},
                             {true, 48, -1, 0.05, 0, 1},
                             {true, -1, -1, 0, 0, 0.5}};
    static const uint8_t want[4][4] = {{1, 0, 2, 3}, {2, 0, 2, 3}, {2, 2, 2, 3}, {3, 0, 3, 3}};
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t m = 0; m < 4; m++) {
        const ru_recover_in in = {.block = b, .n = 4, .method = (ru_recover_method)m};
        ru_recover_plan p, q;
        ru_err err;
        assert_ok(ru_plan_recover(&in, &a, &p, &err), err);
        assert_memory_equal(p.from, want[m], 4);
        assert_ok(ru_plan_recover_check(&in, &p, &err), err);
        for (uint32_t i = 0; i < 4; i++) {
            for (uint8_t f = 0; f < 5; f++) {
                uint8_t from[4];
                memcpy(from, p.from, 4);
                from[i] = f;
                q = p;
                q.from = from;
                ru_status st = ru_plan_recover_check(&in, &q, &err);
                assert_int_equal(st, f == p.from[i] ? RU_OK : RU_E_INFEASIBLE);
            }
        }
        q = p, q.norm += 0.01;
        assert_int_equal(ru_plan_recover_check(&in, &q, &err), RU_E_INFEASIBLE);
    }
    ru_arena_fini(&a);
}

/* Iterations of x - a (Q x - b) with diagonal Q until the distance stays below eps. */
static double iterations(const double *shrink, const double *begin, uint32_t n, uint32_t at,
                         const double *d, double eps)
{
    double x[16], norm = INFINITY;
    memcpy(x, begin, n * sizeof *x);
    uint32_t k = 0, last = 0;
    for (; k < 5000 && (norm > eps * 1e-3 || k <= at); k++) {
        norm = 0;
        for (uint32_t i = 0; i < n; i++) {
            norm = hypot(norm, x[i]);
            x[i] = shrink[i] * (x[i] + (k == at && d != NULL ? d[i] : 0));
        }
        last = norm >= eps ? k + 1 : last;
    }
    return last;
}

static void test_bound_holds_on_quadratics(void **state)
{
    (void)state;
    enum { N = 4, TRIALS = 1000 };
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        ru_rng r = ru_rng_from(trial, 9);
        double shrink[N], begin[N], d[N], c = 0, x0 = 0, norm = 0;
        uint32_t at = ru_rng_below(&r, 60);
        double size = ru_math_exp(ru_rng_uniform(&r, -6, 1));
        for (uint32_t i = 0; i < N; i++) {
            shrink[i] = ru_rng_uniform(&r, 0.3, 0.97);
            begin[i] = ru_rng_normal(&r);
            d[i] = size * ru_rng_normal(&r);
            c = fmax(c, shrink[i]);
            x0 = hypot(x0, begin[i]);
            norm = hypot(norm, d[i]);
        }
        /* The bound counts from |y_k| <= c^k (...): the undisturbed run by the same measure. */
        double eps = 1e-4 * x0, plain = ceil(log(eps / x0) / log(c));
        double cost = iterations(shrink, begin, N, at, d, eps) - plain;
        double bound = ru_perturb_iterations(c, x0, at, norm);
        if (cost > bound + 1) {
            fail_msg("trial %llu: %g extra iterations, bound %g", (unsigned long long)trial, cost,
                     bound);
        }
    }
    assert_true(ru_perturb_iterations(0.9, 1, 0, 0) == 0);
    assert_true(fabs(ru_perturb_iterations(0.5, 1, 2, 0.75) - 2) < 1e-12); /* 1 + 4 * 0.75 = 2^2 */
    assert_true(isfinite(ru_perturb_iterations(0.01, 1, 1e6, 1)));
}

RU_TESTS(plan_save, cmocka_unit_test(test_no_choice_leaves_less),
         cmocka_unit_test(test_cycles_and_draws_cover_all),
         cmocka_unit_test(test_checker_refuses_changed_saves),
         cmocka_unit_test(test_recovery_takes_the_newest),
         cmocka_unit_test(test_bound_holds_on_quadratics))
