/* Schedules of the batch against a walk step by step. */
#include "train/job/batch.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static void test_steps_are_those_of_a_walk(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    static const char *const epochs[] = {"2", "3", "5", "9"};
    for (uint32_t round = 0; round < 2000; round++) {
        ru_conf_pair pairs[4];
        ru_job_train j = {.batch = 1 + ru_rng_below(&r, 40), .epochs = 1 + ru_rng_below(&r, 12)};
        int64_t count = 40 + ru_rng_below(&r, 100);
        for (uint32_t k = 0; k < 4; k++) {
            if (ru_rng_below(&r, 2) == 0) {
                pairs[j.batch_schedule.n++] =
                    (ru_conf_pair){epochs[k], (double)(1 + ru_rng_below(&r, 60))};
            }
        }
        j.batch_schedule.at = pairs;
        int64_t at = 0, steps = 0, before = 0, same = 1;
        while (at < j.epochs * count) {
            int64_t epoch = at / count + 1, batch = j.batch;
            for (uint32_t k = 0; k < j.batch_schedule.n; k++) {
                bool on = epoch >= (int64_t)(pairs[k].key[0] - '0');
                batch = on ? (int64_t)pairs[k].value : batch;
            }
            assert_int_equal(ru_job_batch_at(&j, at, count), batch);
            assert_int_equal(ru_job_samples_of(&j, steps, count), at);
            int64_t left = ru_job_batch_steps(&j, at, count);
            assert_true(left > 0 && (same == INT64_MAX || same == 1 || left == same - 1));
            assert_true(batch == before || same <= 1);
            before = batch;
            same = left;
            at += batch;
            steps++;
        }
        assert_int_equal(ru_job_epoch_steps(&j, count), steps);
    }
}

static void test_bad_schedules_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
        double batch;
        const char *says;
    } bad[] = {{"1", "3", 8, "'1' is no epoch"},       {"3", "3", 8, "'3' is no epoch after 3"},
               {"x", "3", 8, "'x' is no epoch"},       {"2", "4", 8.5, "is 8.5"},
               {"2", "3", 6, "multiple of train.acc"}, {"2", "3", 0, "is 0"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        const ru_conf_pair pairs[] = {{bad[k].first, 16}, {bad[k].second, bad[k].batch}};
        const ru_job_train j = {.batch = 16, .accumulate = 4, .batch_schedule = {pairs, 2}};
        ru_err err;
        assert_int_equal(ru_job_batches_check(&j, &err), RU_E_CONFIG);
        if (strstr(err.text, bad[k].says) == NULL) {
            fail_msg("%s", err.text);
        }
    }
}

RU_TESTS(train_batch, cmocka_unit_test(test_steps_are_those_of_a_walk),
         cmocka_unit_test(test_bad_schedules_are_refused))
