/* Scores of classes against values that other libraries document, and against counting pairs. */
#include "train/driver/scores.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static ru_class_scores scores_of(const int64_t *labels, const float *scores, int64_t n, int64_t c,
                                 ru_arena *a)
{
    ru_err err = {0};
    ru_class_scores s;
    assert_ok(ru_class_scores_get(labels, scores, n, c, true, a, &s, &err), err);
    return s;
}

/* scikit-learn's documented example of roc_auc_score gives 0.75. */
static void two_classes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const int64_t labels[] = {0, 0, 1, 1};
    const float scores[] = {0.9f, 0.1f, 0.6f, 0.4f, 0.65f, 0.35f, 0.2f, 0.8f};
    ru_class_scores s = scores_of(labels, scores, 4, 2, &a);
    assert_true(s.auc[1] == 0.75 && s.auc[0] == 0.75);
    const int64_t want[] = {2, 0, 1, 1};
    assert_memory_equal(s.confusion, want, sizeof want);
    assert_true(s.precision[0] == 2.0 / 3 && s.recall[0] == 1 && s.f1[0] == 0.8);
    assert_true(s.precision[1] == 1 && s.recall[1] == 0.5 && s.f1[1] == 2.0 / 3);
    assert_true(isnan(s.top5));
    ru_arena_fini(&a);
}

/* Area by its meaning: the fraction of pairs in the right order, half of a tie. */
static double area_by_pairs(const int64_t *labels, const float *scores, int64_t n, int64_t c,
                            int64_t k)
{
    double right = 0, pairs = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; labels[i] == k && j < n; j++) {
            if (labels[j] != k) {
                float x = scores[i * c + k], y = scores[j * c + k];
                right += x > y ? 1 : x == y ? 0.5 : 0;
                pairs++;
            }
        }
    }
    return pairs > 0 ? right / pairs : RU_NAN;
}

static void areas_and_hits_by_counting(void **state)
{
    (void)state;
    enum { N = 60, C = 7 };
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng rng = ru_rng_from(5, 6);
    for (int round = 0; round < 20; round++) {
        int64_t labels[N], top = 0, hits = 0;
        float scores[N * C];
        for (int64_t i = 0; i < N; i++) {
            labels[i] = (int64_t)ru_rng_below(&rng, C - 1); /* the last class never occurs */
            for (int64_t k = 0; k < C; k++) {
                scores[i * C + k] = (float)ru_rng_below(&rng, 6); /* ties */
            }
        }
        ru_class_scores s = scores_of(labels, scores, N, C, &a);
        for (int64_t k = 0; k < C; k++) {
            double want = area_by_pairs(labels, scores, N, C, k);
            assert_true(isnan(want) ? isnan(s.auc[k]) : fabs(s.auc[k] - want) < 1e-12);
            hits += s.confusion[k * C + k];
        }
        for (int64_t i = 0; i < N; i++) {
            int64_t above = 0;
            for (int64_t k = 0; k < C; k++) {
                above += scores[i * C + k] > scores[i * C + labels[i]] ||
                         (scores[i * C + k] == scores[i * C + labels[i]] && k < labels[i]);
            }
            top += above < 5;
            hits -= above == 0;
        }
        assert_int_equal(hits, 0);
        assert_true(s.top5 == (double)top / N);
        assert_true(ru_class_means_get(&s).recall > 0);
    }
    ru_arena_fini(&a);
}

static ru_metrics figures_of(ru_scores *s, const float *outputs, const void *labels, ru_arena *a)
{
    ru_err err = {0};
    ru_metrics m = {0};
    assert_ok(ru_scores_open(s, a, &err), err);
    ru_scores_put(s, 3, s->count - 3, outputs + 3 * s->outputs, /* batches in any order */
                  (const uint8_t *)labels + 3 * s->label_bytes);
    ru_scores_put(s, 0, 3, outputs, labels);
    assert_ok(ru_scores_get(s, a, &m, &err), err);
    assert_int_equal(m.n, s->n_names);
    return m;
}

/* Worked by hand: errors 1, -1, 0, 2 and 0, 0, 0, 4 of labels 1 2 3 4 and 0 0 0 0. */
static void numbers_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    static const char *const names[] = {"mae", "rmse", "r2"};
    const ru_type label = {.dtype = RU_F32, .rank = 1, .dims = {2}};
    const float y[] = {1, 0, 2, 0, 3, 0, 4, 0}, x[] = {2, 0, 1, 0, 3, 0, 6, 4};
    ru_scores s = {.names = names,
                   .n_names = 3,
                   .loss = RU_LOSS_MSE,
                   .label = &label,
                   .count = 4,
                   .outputs = 2};
    ru_metrics m = figures_of(&s, x, y, &a);
    assert_true(m.at[0].value == 1);                           /* 8 / 8 */
    assert_true(fabs(m.at[1].value - sqrt(22.0 / 8)) < 1e-15); /* 1 + 1 + 0 + 4 + 16 */
    assert_true(fabs(m.at[2].value - (1 - 6.0 / 5)) < 1e-15);  /* the second does not vary */
    ru_arena_fini(&a);
}

/* One output: logits above 0 say class 1, whatever the labels are stored as. */
static void one_output_is_two_classes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    static const char *const names[] = {"precision", "recall", "f1", "auc"};
    const float logits[] = {-2, 0.5f, -1, 3, 1};
    const float shares[] = {0, 0, 1, 1, 1};
    const int64_t classes[] = {0, 0, 1, 1, 1};
    for (int k = 0; k < 2; k++) {
        const ru_type label = {.dtype = k == 0 ? RU_F32 : RU_I64};
        ru_scores s = {.names = names,
                       .n_names = 4,
                       .loss = RU_LOSS_BINARY_CROSS_ENTROPY,
                       .label = &label,
                       .count = 5,
                       .outputs = 1};
        ru_metrics m = figures_of(&s, logits, k == 0 ? (const void *)shares : classes, &a);
        assert_true(fabs(m.at[0].value - (0.5 + 2.0 / 3) / 2) < 1e-15);
        assert_true(fabs(m.at[1].value - (0.5 + 2.0 / 3) / 2) < 1e-15);
        assert_true(fabs(m.at[2].value - (0.5 + 2.0 / 3) / 2) < 1e-15);
        assert_true(fabs(m.at[3].value - 5.0 / 6) < 1e-15); /* pairs: all but -1 above 0.5 */
    }
    ru_arena_fini(&a);
}

static void figures_must_fit_the_job(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    static const struct {
        const char *name;
        ru_loss_kind loss;
        ru_type label;
        int64_t outputs;
        const char *words;
    } rows[] = {
        {"f1", RU_LOSS_MSE, {.dtype = RU_F32}, 1, "f1 needs a classifier"},
        {"f1",
         RU_LOSS_NEXT_TOKEN,
         {.dtype = RU_I64, .rank = 1, .dims = {8}},
         80,
         "f1 needs a clas"},
        {"mae", RU_LOSS_CROSS_ENTROPY, {.dtype = RU_I64}, 10, "mae needs train.loss mse"},
        {"top5",
         RU_LOSS_CROSS_ENTROPY,
         {.dtype = RU_I64},
         5,
         "more than 5 classes, the data have 5"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_scores s = {.names = &rows[k].name,
                       .n_names = 1,
                       .loss = rows[k].loss,
                       .label = &rows[k].label,
                       .count = 4,
                       .outputs = rows[k].outputs};
        assert_int_equal(ru_scores_open(&s, &a, &err), RU_E_CONFIG);
        assert_non_null(strstr(err.text, rows[k].words));
    }
    ru_arena_fini(&a);
}

RU_TESTS(train_scores, cmocka_unit_test(two_classes), cmocka_unit_test(areas_and_hits_by_counting),
         cmocka_unit_test(numbers_by_hand), cmocka_unit_test(one_output_is_two_classes),
         cmocka_unit_test(figures_must_fit_the_job))
