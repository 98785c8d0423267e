/* Times of ops with boosted trees from the library: `device` as `rubato plan` runs it. */
#include "cost/step/timing.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/math/norm.h"
#include "plan/row/policy.h"
#include "solve/solver.h"
#include "test/test.h"

enum { ROWS = 400, NETS = 10 };

typedef struct made {
    double x[ROWS][RU_TIMING_COLUMNS];
    ru_timing_row rows[ROWS];
} made;

/* Products whose speed falls to a third below a size: no sum of columns says that. */
static void make(made *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    ru_rng r = ru_rng_from(seed, 7);
    for (uint32_t i = 0; i < ROWS; i++) {
        double c = 16 * (1.0 + ru_rng_below(&r, 8)), hw = 7 * (1.0 + ru_rng_below(&r, 8));
        double bytes = 128 * c * hw * hw;
        const ru_timing_op op = {.in_bytes = bytes,
                                 .out_bytes = bytes,
                                 .flops = 9 * bytes * c / 4,
                                 .channels_in = c,
                                 .channels_out = c,
                                 .taps = 9};
        ru_timing_add(&op, 1, m->x[i]);
        double t = 2e-5 + op.flops * 2e-13;
        m->rows[i] = (ru_timing_row){0, i % NETS, m->x[i], op.flops < 2e8 ? 3 * t : t};
    }
}

static void trees_learn_what_columns_cannot(void **state)
{
    (void)state;
    static made m, other;
    static const char *const kinds[] = {"conv"};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_timing_model line, both;
    make(&m, 5);
    make(&other, 6);
    ru_timing_in in = {.rows = m.rows,
                       .n = ROWS,
                       .kinds = kinds,
                       .n_kinds = 1,
                       .method = RU_TIMING_SQUARES,
                       .solver = &ru_solver_library};
    assert_ok(ru_timing_fit(&in, &a, &a, &line, &err), err);
    in.method = RU_TIMING_TREES;
    if (!ru_solver_has_trees()) {
        assert_int_equal(ru_timing_fit(&in, &a, &a, &both, &err), RU_E_UNSUPPORTED);
        ru_arena_fini(&a);
        return;
    }
    assert_ok(ru_timing_fit(&in, &a, &a, &both, &err), err);
    double miss_line = 0, miss_both = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        double t = other.rows[i].seconds;
        miss_line += fabs(ru_num_log(ru_timing_at(&line, &other.rows[i]) / t));
        miss_both += fabs(ru_num_log(ru_timing_at(&both, &other.rows[i]) / t));
    }
    assert_true(miss_both < 0.3 * miss_line);
    double factor;
    static ru_timing_row rows[ROWS];
    ru_timing_case cases[NETS];
    for (uint32_t net = 0, n = 0; net < NETS; net++) {
        cases[net] = (ru_timing_case){net, rows + n, 0, true, {.devices = 1}};
        for (uint32_t i = 0; i < ROWS; i++) {
            if (m.rows[i].net == net) {
                rows[n++] = m.rows[i];
                cases[net].n++;
            }
        }
    }
    assert_ok(ru_timing_margin(&in, cases, NETS, 0.8, &a, &factor, &err), err);
    assert_true(factor >= 1 && factor < 1.3);
    ru_arena_fini(&a);
}

/* Every method plans its example; those that need more say what. */
static void every_method_of_device_plans_or_says_why(void **state)
{
    (void)state;
    static const char *const methods[] = {"trees",  "squares", "ceer",     "median", "paleo",
                                          "scaled", "profet",  "cheapest", "newest"};
    const ru_policy *p = ru_policy_find("device");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(methods); k++) {
        ru_arena a, scratch;
        ru_arena_init(&a, 0);
        ru_arena_init(&scratch, 0);
        ru_conf *c;
        ru_err err;
        void *in = ru_arena_zalloc(&a, p->in->size_bytes, 64);
        assert_ok(ru_conf_new(p->in, &a, &c, &err), err);
        int64_t size = (int64_t)strlen(p->example);
        assert_ok(ru_conf_add_yaml(c, p->name, p->example, size, &err), err);
        assert_ok(ru_conf_add_flag(c, "--method", "method", methods[k], &err), err);
        bool anchored = k == 5 || k == 6;
        assert_int_equal(ru_conf_apply(c, in, &err), anchored ? RU_E_CONFIG : RU_OK);
        if (anchored) {
            assert_non_null(strstr(err.text, "'anchor'"));
        } else {
            ru_policy_tools tools = {&a, &scratch, &ru_solver_library};
            ru_policy_answer answer;
            ru_status st = ru_policy_run(p, in, &tools, &answer, &err);
            bool lacks = k == 0 && !ru_solver_has_trees();
            assert_int_equal(st, lacks ? RU_E_UNSUPPORTED : RU_OK);
        }
        ru_arena_fini(&scratch);
        ru_arena_fini(&a);
    }
}

RU_TESTS(test_device_trees, cmocka_unit_test(trees_learn_what_columns_cannot),
         cmocka_unit_test(every_method_of_device_plans_or_says_why))
