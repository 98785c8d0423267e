/* Scores of classes against values that other libraries document, and against counting pairs. */
#include "tool/eval_classes.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static ru_class_scores scores_of(const int64_t *labels, const float *scores, int64_t n, int64_t c,
                                 ru_arena *a)
{
    ru_err err = {0};
    ru_class_scores s;
    assert_ok(ru_class_scores_get(labels, scores, n, c, a, &s, &err), err);
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
    return pairs > 0 ? right / pairs : (double)NAN;
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

RU_TESTS(tool_eval_classes, cmocka_unit_test(two_classes),
         cmocka_unit_test(areas_and_hits_by_counting))
