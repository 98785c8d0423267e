/* The bound libraries: integer programs against enumeration, linear programs by their duals,
 * boosted trees by what they must learn. Without a library its tests check the sentence that says
 * so. */
#include "solve/solver.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/math/trees.h"
#include "test/test.h"

enum { COLS = 5, TOP = 3 };

/* A random program of whole numbers 0 .. TOP; even coefficients, so that values are exact. */
static void random_program(ru_rng *r, ru_arena *a, bool maximise, ru_milp *p)
{
    ru_err err;
    ru_milp_builder b = ru_milp_build(a);
    for (uint32_t j = 0; j < COLS; j++) {
        (void)ru_milp_col(&b, (double)ru_rng_below(r, 21) - 10, 0, TOP, true);
    }
    for (uint32_t i = 0; i < 3; i++) {
        bool both = ru_rng_below(r, 4) == 0;
        double high = (double)ru_rng_below(r, 20);
        (void)ru_milp_row(&b, both ? high - 6 : -(double)INFINITY, high);
        for (uint32_t j = 0; j < COLS; j++) {
            ru_milp_term(&b, j, (double)ru_rng_below(r, 9) - 3);
            ru_milp_term(&b, j, 1); /* the same column again: adds up */
        }
    }
    assert_ok(ru_milp_done(&b, maximise, p, &err), err);
    p->constant = 0.5;
}

/* Best value over all points; false when none is feasible. */
static bool enumerate(const ru_milp *p, double *best, double *at)
{
    bool found = false;
    for (uint32_t code = 0; code < 1u << (2 * COLS); code++) {
        double x[COLS];
        for (uint32_t j = 0; j < COLS; j++) {
            x[j] = code >> (2 * j) & 3;
        }
        double v = ru_milp_value(p, x);
        if (ru_milp_feasible(p, x, 1e-9, NULL) == RU_OK &&
            (!found || (p->maximise ? v > *best : v < *best))) {
            *best = v;
            memcpy(at, x, sizeof x);
            found = true;
        }
    }
    return found;
}

static void missing_libraries_say_what_to_install(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_solution s;
    ru_trees trees;
    ru_rng r = ru_rng_from(1, 1);
    ru_milp p;
    random_program(&r, &a, false, &p);
    ru_solve_in in = {.milp = &p};
    static const float x[2] = {1, 2}, y[2] = {1, 2};
    ru_trees_in train = {.x = x, .y = y, .m = 2, .n = 1, .rounds = 1};
    if (!ru_solver_has_milp()) {
        assert_int_equal(ru_solver_library.milp(&in, &a, &s, &err), RU_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "coinor-libcbc"));
    }
    if (!ru_solver_has_lp()) {
        assert_int_equal(ru_solver_library.lp(&in, &a, &s, &err), RU_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "coinor-libclp"));
    }
    if (!ru_solver_has_trees()) {
        assert_int_equal(ru_solver_library.trees(&train, &a, &trees, &err), RU_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "libxgboost"));
    }
    ru_arena_fini(&a);
}

static void integer_programs_equal_enumeration(void **state)
{
    (void)state;
    if (!ru_solver_has_milp()) {
        skip();
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 12);
    uint32_t feasible = 0;
    for (uint32_t round = 0; round < 40; round++) {
        ru_milp p;
        ru_err err;
        ru_solution s, again;
        double best = 0, at[COLS];
        random_program(&r, &a, round % 2 == 1, &p);
        bool any = enumerate(&p, &best, at);
        ru_solve_in in = {.milp = &p, .seed = round};
        assert_ok(ru_solver_library.milp(&in, &a, &s, &err), err);
        assert_int_equal(s.end, any ? RU_SOLVE_OPTIMAL : RU_SOLVE_INFEASIBLE);
        feasible += any;
        if (!any) {
            assert_null(s.x);
            continue;
        }
        assert_near(s.value, best, 1e-6);
        assert_true(fabs(s.bound - best) <= 1e-4 * (1 + fabs(best)));
        assert_ok(ru_milp_feasible(&p, s.x, 1e-6, &err), err);
        in.start = at; /* a warm start changes nothing but the work */
        assert_ok(ru_solver_library.milp(&in, &a, &again, &err), err);
        assert_near(again.value, best, 1e-6);
        at[0] = 0.5;
        assert_int_equal(ru_solver_library.milp(&in, &a, &again, NULL), RU_E_ARG);
    }
    assert_true(feasible > 10);
    ru_arena_fini(&a);
}

/* Leave out all rows; give back the first that x breaks. */
static ru_status first_broken(void *self, const double *x, ru_arena *arena, ru_milp_rows *more,
                              ru_err *err)
{
    const ru_milp_rows *all = self;
    for (uint32_t i = 0; i < all->n; i++) {
        double sum = 0;
        for (uint32_t k = all->at[i]; k < all->at[i + 1]; k++) {
            sum += all->coef[k] * x[all->col[k]];
        }
        if (sum < all->low[i] - 1e-6 || sum > all->high[i] + 1e-6) {
            ru_milp_builder b = ru_milp_build(arena);
            (void)ru_milp_row(&b, all->low[i], all->high[i]);
            for (uint32_t k = all->at[i]; k < all->at[i + 1]; k++) {
                ru_milp_term(&b, all->col[k], all->coef[k]);
            }
            return ru_milp_rows_done(&b, more, err);
        }
    }
    *more = (ru_milp_rows){0};
    return RU_OK;
}

static void left_out_rows_come_when_broken(void **state)
{
    (void)state;
    if (!ru_solver_has_milp()) {
        skip();
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 13);
    for (uint32_t round = 0; round < 12; round++) {
        ru_milp p;
        ru_err err;
        ru_solution s;
        double best = 0, at[COLS];
        random_program(&r, &a, round % 2 == 1, &p);
        bool any = enumerate(&p, &best, at);
        ru_milp_rows all = p.rows;
        p.rows = (ru_milp_rows){0};
        ru_solve_in in = {.milp = &p, .lazy = first_broken, .lazy_self = &all};
        assert_ok(ru_solver_library.milp(&in, &a, &s, &err), err);
        assert_int_equal(s.end, any ? RU_SOLVE_OPTIMAL : RU_SOLVE_INFEASIBLE);
        assert_true(s.rounds >= 1 && s.rounds <= 4);
        if (any) {
            assert_near(s.value, best, 1e-6);
        }
        in.lazy_rounds_max = 1;
        assert_ok(ru_solver_library.milp(&in, &a, &s, &err), err);
        if (s.end == RU_SOLVE_EMPTY && any) { /* the bound of the relaxation holds */
            assert_true(p.maximise ? s.bound >= best - 1e-6 : s.bound <= best + 1e-6);
        }
    }
    ru_arena_fini(&a);
}

/* Assign 24 jobs of random length to 3 machines: far from proven after few nodes. */
static void budgets_stop_and_bounds_hold(void **state)
{
    (void)state;
    if (!ru_solver_has_milp()) {
        skip();
    }
    enum { JOBS = 24, MACHINES = 3 };
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_rng r = ru_rng_from(5, 5);
    ru_milp_builder b = ru_milp_build(&a);
    uint32_t longest = ru_milp_col(&b, 1, 0, (double)INFINITY, false);
    double job[JOBS], total = 0, start[1 + JOBS * MACHINES] = {0};
    for (uint32_t k = 0; k < JOBS; k++) {
        job[k] = 1000 + ru_rng_below(&r, 9000);
        total += job[k];
        for (uint32_t m = 0; m < MACHINES; m++) {
            (void)ru_milp_col(&b, 0, 0, 1, true);
        }
        (void)ru_milp_row(&b, 1, 1);
        for (uint32_t m = 0; m < MACHINES; m++) {
            ru_milp_term(&b, 1 + k * MACHINES + m, 1);
        }
        start[1 + k * MACHINES] = 1; /* all on the first machine */
    }
    start[longest] = total;
    for (uint32_t m = 0; m < MACHINES; m++) {
        (void)ru_milp_row(&b, 0, (double)INFINITY);
        ru_milp_term(&b, longest, 1);
        for (uint32_t k = 0; k < JOBS; k++) {
            ru_milp_term(&b, 1 + k * MACHINES + m, -job[k]);
        }
    }
    ru_milp p;
    assert_ok(ru_milp_done(&b, false, &p, &err), err);
    ru_solution s, again;
    ru_solve_in in = {.milp = &p, .start = start, .nodes_max = 20, .gap_rel = 1e-9};
    assert_ok(ru_solver_library.milp(&in, &a, &s, &err), err);
    assert_non_null(s.x);
    assert_true(s.end == RU_SOLVE_STOPPED || s.end == RU_SOLVE_OPTIMAL);
    assert_true(s.nodes <= 20 + 1);
    assert_true(s.value < 0.8 * total && s.bound <= s.value);
    assert_true(s.bound >= total / MACHINES - 1e-3 && s.value >= total / MACHINES - 1e-3);
    assert_ok(ru_solver_library.milp(&in, &a, &again, &err), err);
    assert_memory_equal(s.x, again.x, sizeof start); /* the same call, the same answer */
    assert_true(s.nodes == again.nodes && s.pivots == again.pivots);
    ru_arena_fini(&a);
}

static void linear_programs_have_duals(void **state)
{
    (void)state;
    if (!ru_solver_has_lp()) {
        skip();
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 14);
    ru_err err;
    for (uint32_t round = 0; round < 30; round++) {
        ru_milp p;
        ru_solution s, more;
        random_program(&r, &a, round % 2 == 1, &p);
        ru_solve_in in = {.milp = &p};
        assert_ok(ru_solver_library.lp(&in, &a, &s, &err), err);
        if (s.end == RU_SOLVE_INFEASIBLE) {
            continue;
        }
        assert_int_equal(s.end, RU_SOLVE_OPTIMAL);
        /* value = constant + duals at active bounds + reduced costs at active bounds. */
        double sum = p.constant;
        for (uint32_t i = 0; i < p.rows.n; i++) {
            double at = 0;
            for (uint32_t k = p.rows.at[i]; k < p.rows.at[i + 1]; k++) {
                at += p.rows.coef[k] * s.x[p.rows.col[k]];
            }
            sum += s.dual[i] * at;
            bool inside = at > p.rows.low[i] + 1e-6 && at < p.rows.high[i] - 1e-6;
            assert_true(!inside || fabs(s.dual[i]) < 1e-9);
        }
        for (uint32_t j = 0; j < COLS; j++) {
            sum += s.reduced[j] * s.x[j];
            bool inside = s.x[j] > 1e-6 && s.x[j] < TOP - 1e-6;
            assert_true(!inside || fabs(s.reduced[j]) < 1e-9);
        }
        assert_near(s.value, sum, 1e-8);
        double best = 0, at[COLS];
        if (enumerate(&p, &best, at)) {
            assert_true(p.maximise ? s.value >= best - 1e-9 : s.value <= best + 1e-9);
        }
        (void)more;
    }
    ru_milp_builder b = ru_milp_build(&a);
    (void)ru_milp_col(&b, -1, 0, (double)INFINITY, false);
    ru_milp p;
    ru_solution s;
    assert_ok(ru_milp_done(&b, false, &p, &err), err);
    ru_solve_in in = {.milp = &p};
    assert_ok(ru_solver_library.lp(&in, &a, &s, &err), err);
    assert_true(s.end == RU_SOLVE_UNBOUNDED && s.x == NULL);
    ru_arena_fini(&a);
}

static void bad_programs_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_milp p;
    ru_milp_builder b = ru_milp_build(&a);
    assert_int_equal(ru_milp_done(&b, false, &p, NULL), RU_E_ARG); /* no column */
    b = ru_milp_build(&a);
    (void)ru_milp_col(&b, RU_NAN, 0, 1, false);
    assert_int_equal(ru_milp_done(&b, false, &p, NULL), RU_E_ARG);
    b = ru_milp_build(&a);
    (void)ru_milp_col(&b, 1, 2, 1, false);
    assert_int_equal(ru_milp_done(&b, false, &p, NULL), RU_E_ARG);
    b = ru_milp_build(&a);
    (void)ru_milp_col(&b, 1, 0, 1, false);
    (void)ru_milp_row(&b, 0, 1);
    ru_milp_term(&b, 1, 1);
    assert_int_equal(ru_milp_done(&b, false, &p, NULL), RU_E_ARG); /* a column that is not there */
    ru_arena small;
    ru_arena_init_fixed(&small, &p, 0);
    b = ru_milp_build(&small);
    (void)ru_milp_col(&b, 1, 0, 1, false);
    (void)ru_milp_row(&b, 0, 1);
    ru_milp_term(&b, 0, 1);
    assert_int_equal(ru_milp_done(&b, false, &p, NULL), RU_E_LIMIT);
    ru_arena_fini(&a);
}

RU_TESTS(test_solver, cmocka_unit_test(missing_libraries_say_what_to_install),
         cmocka_unit_test(integer_programs_equal_enumeration),
         cmocka_unit_test(left_out_rows_come_when_broken),
         cmocka_unit_test(budgets_stop_and_bounds_hold),
         cmocka_unit_test(linear_programs_have_duals), cmocka_unit_test(bad_programs_are_refused))
