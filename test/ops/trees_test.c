/* Boosted trees: XGBoost's own predictions for a stored model, and what trained trees must learn.
 */
#include "cost/math/trees.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "solve/solver.h"
#include "test/test.h"

/* Trained by XGBoost 1.7.4 (binary:logistic, 3 rounds of depth 2, base score 0.3) on 40 rows with
 * missing values; ' stands for ", lists that nobody reads are left out. */
static const char model_json[] =
    "{'learner':{'gradient_booster':{'model':{'gbtree_model_param':{'num_parallel_tree':'1','"
    "num_trees':'3','size_leaf_vector':'0'},'tree_info':[0,0,0],'trees':[{'default_left':[1,1"
    ",0,0,0],'left_children':[1,3,-1,-1,-1],'right_children':[2,4,-1,-1,-1],'split_conditions"
    "':[1.125,2.5,0.6583629,0.3225806,-0.26119405],'split_indices':[0,1,0,0,0],'split_type':["
    "0,0,0,0,0]},{'default_left':[1,1,1,0,0,0,0],'left_children':[1,3,5,-1,-1,-1,-1],'right_c"
    "hildren':[2,4,6,-1,-1,-1,-1],'split_conditions':[2.5,4.5,4.5,0.49636582,-0.23950158,-0.2"
    "816766,0.13550754],'split_indices':[2,1,2,0,0,0,0],'split_type':[0,0,0,0,0,0,0]},{'defau"
    "lt_left':[1,0,1,0,0,0,0],'left_children':[1,3,5,-1,-1,-1,-1],'right_children':[2,4,6,-1,"
    "-1,-1,-1],'split_conditions':[-1.5,5.5,0.5,0.33956414,0.0061598117,-0.36369115,0.1370460"
    "4],'split_indices':[2,1,2,0,0,0,0],'split_type':[0,0,0,0,0,0,0]}]},'name':'gbtree'},'lea"
    "rner_model_param':{'base_score':'3E-1','boost_from_average':'0','num_class':'0','num_fea"
    "ture':'3','num_target':'1'},'objective':{'name':'binary:logistic','reg_loss_param':{'sca"
    "le_pos_weight':'1'}}},'version':[1,7,4]}";

static char *json_text(ru_arena *a)
{
    char *text = ru_arena_str(a, model_json);
    assert_non_null(text);
    for (char *p = text; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    return text;
}

static void stored_models_predict_as_xgboost_does(void **state)
{
    (void)state;
    static const float nan = NAN,
                       rows[8][4] = {
                           {0.0f, nan, -6.0f, 0.494452387f},   {1.75f, 3.0f, -5.0f, 0.656333029f},
                           {0.75f, 6.0f, -4.0f, 0.207208678f}, {2.5f, 2.0f, -3.0f, 0.656333029f},
                           {1.5f, 5.0f, -2.0f, 0.477796495f},  {0.5f, nan, -1.0f, 0.40322569f},
                           {2.25f, 4.0f, 0.0f, 0.485938638f},  {1.25f, 0.0f, 1.0f, 0.60932529f},
                       };
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_trees t;
    char *text = json_text(&a);
    assert_ok(ru_trees_read_json(text, (int64_t)strlen(text), &a, &t, &err), err);
    assert_true(t.n_trees == 3 && t.n_nodes == 19 && t.n_features == 3 && t.n_outputs == 1);
    for (uint32_t i = 0; i < 8; i++) {
        assert_near((double)ru_trees_value(&t, rows[i]), (double)rows[i][3], 2e-7);
    }
    /* Every cut is refused or, never, crashes; a circle is refused. */
    for (int64_t n = 0; n < (int64_t)strlen(text); n += 7) {
        assert_int_equal(ru_trees_read_json(text, n, &a, &t, NULL), RU_E_DATA);
    }
    char *left = strstr(text, "[1,3,-1");
    assert_non_null(left);
    left[3] = '0';
    assert_int_equal(ru_trees_read_json(text, (int64_t)strlen(text), &a, &t, NULL), RU_E_DATA);
    ru_arena_fini(&a);
}

static void broken_arrays_are_found(void **state)
{
    (void)state;
    static const float base[1] = {0}, value[3] = {1, 2, 3}, bad_value[3] = {1, NAN, 3};
    static const uint32_t zero[1] = {0}, five[1] = {5}, left[3] = {1, 0, 0}, right[3] = {2, 0, 0},
                          circle[3] = {0, 0, 0};
    static const int32_t feature[3] = {0, -1, -1}, far[3] = {4, -1, -1};
    static const uint8_t missing[3] = {0};
    const ru_trees fine = {1,     1,    1,     3,      RU_TREES_IDENTITY, base, zero, zero, feature,
                           value, left, right, missing};
    ru_err err;
    assert_ok(ru_trees_check(&fine, &err), err);
    ru_trees t = fine;
    t.root = five;
    assert_int_equal(ru_trees_check(&t, NULL), RU_E_DATA);
    t = fine;
    t.output = five;
    assert_int_equal(ru_trees_check(&t, NULL), RU_E_DATA);
    t = fine;
    t.left = circle;
    assert_int_equal(ru_trees_check(&t, NULL), RU_E_DATA);
    t = fine;
    t.feature = far;
    assert_int_equal(ru_trees_check(&t, NULL), RU_E_DATA);
    t = fine;
    t.value = bad_value;
    assert_int_equal(ru_trees_check(&t, NULL), RU_E_DATA);
}

enum { M = 600, N = 3 };

/* y = step of x0 + 2 x1, noise by x2's sign. */
static void sample(ru_rng *r, float *x, float *y, double noise)
{
    for (uint32_t i = 0; i < M; i++) {
        for (uint32_t j = 0; j < N; j++) {
            x[i * N + j] = (float)ru_rng_uniform(r, -1, 1);
        }
        y[i] = (float)((x[i * N] > 0.2f ? 3 : 0) + 2 * (double)x[i * N + 1] +
                       noise * ru_rng_normal(r));
    }
}

static void trained_trees_learn(void **state)
{
    (void)state;
    if (!ru_solver_has_trees()) {
        skip();
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_rng r = ru_rng_from(7, 7);
    static float x[M * N], y[M], test_x[M * N], test_y[M];
    sample(&r, x, y, 0.1);
    sample(&r, test_x, test_y, 0);
    ru_trees t, again;
    static const int8_t monotone[N] = {0, 1, 0};
    ru_trees_in in = {.x = x,
                      .y = y,
                      .m = M,
                      .n = N,
                      .depth = 3,
                      .rounds = 80,
                      .seed = 3,
                      .row_share = 0.8,
                      .monotone = monotone};
    assert_ok(ru_solver_library.trees(&in, &a, &t, &err), err);
    assert_ok(ru_solver_library.trees(&in, &a, &again, &err), err);
    assert_true(t.n_trees == 80 && t.n_nodes == again.n_nodes);
    assert_memory_equal(t.value, again.value, t.n_nodes * sizeof *t.value);
    double squares = 0, all = 0;
    for (uint32_t i = 0; i < M; i++) {
        double off = (double)(ru_trees_value(&t, test_x + i * N) - test_y[i]);
        squares += off * off;
        all += (double)(test_y[i] * test_y[i]);
        float up[N] = {test_x[i * N], test_x[i * N + 1] + 0.3f, test_x[i * N + 2]};
        assert_true(ru_trees_value(&t, up) >= ru_trees_value(&t, test_x + i * N));
    }
    assert_true(squares < 0.03 * all);
    in.y = test_y; /* not whole: no class */
    in.goal = RU_TREES_BINARY;
    assert_int_equal(ru_solver_library.trees(&in, &a, &t, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

static void quantiles_and_classes_are_learned(void **state)
{
    (void)state;
    if (!ru_solver_has_trees()) {
        skip();
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_rng r = ru_rng_from(8, 8);
    static float x[M * N], y[M], test_x[M * N], test_y[M];
    sample(&r, x, y, 1);
    sample(&r, test_x, test_y, 1);
    ru_trees t;
    ru_trees_in in = {.x = x,
                      .y = y,
                      .m = M,
                      .n = N,
                      .goal = RU_TREES_QUANTILE,
                      .q = 0.9,
                      .depth = 2,
                      .rounds = 60,
                      .leaf_weight_min = 30};
    assert_ok(ru_solver_library.trees(&in, &a, &t, &err), err);
    uint32_t below = 0, wide = 0;
    for (uint32_t i = 0; i < M; i++) {
        float at = ru_trees_value(&t, test_x + i * N);
        below += test_y[i] <= at;
        wide += at > 4; /* a constant could not follow x0 */
    }
    assert_true(below > 0.84 * M && below < 0.95 * M);
    assert_true(wide > 0.1 * M && wide < 0.6 * M);
    in.monotone = (const int8_t[N]){0, 1, 0};
    assert_int_equal(ru_solver_library.trees(&in, &a, &t, NULL), RU_E_UNSUPPORTED);
    for (uint32_t i = 0; i < M; i++) {
        y[i] = x[i * N] > 0.2f ? 2 : x[i * N + 1] > 0 ? 1 : 0;
        test_y[i] = test_x[i * N] > 0.2f ? 2 : test_x[i * N + 1] > 0 ? 1 : 0;
    }
    in = (ru_trees_in){.x = x,
                       .y = y,
                       .m = M,
                       .n = N,
                       .goal = RU_TREES_CLASSES,
                       .n_classes = 3,
                       .depth = 3,
                       .rounds = 20,
                       .rate = 0.3};
    assert_ok(ru_solver_library.trees(&in, &a, &t, &err), err);
    uint32_t right = 0;
    for (uint32_t i = 0; i < M; i++) {
        float p[3];
        ru_trees_predict(&t, test_x + i * N, p);
        uint32_t best = p[1] > p[0] ? 1 : 0;
        best = p[2] > p[best] ? 2 : best;
        right += (float)best == test_y[i];
        assert_true(fabsf(p[0] + p[1] + p[2] - 1) < 1e-5f);
    }
    assert_true(right > 0.97 * M);
    ru_arena_fini(&a);
}

RU_TESTS(test_trees, cmocka_unit_test(stored_models_predict_as_xgboost_does),
         cmocka_unit_test(broken_arrays_are_found), cmocka_unit_test(trained_trees_learn),
         cmocka_unit_test(quantiles_and_classes_are_learned))
