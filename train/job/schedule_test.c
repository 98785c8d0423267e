#include "test/test.h"

#include <math.h>

#include "train/job/schedule.h"

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12)) {
        fail_msg("%.15g, expected %.15g", got, want);
    }
}

/* Witness: values by hand from the definitions. */
static void rates_follow_their_curves(void **state)
{
    (void)state;
    ru_schedule constant = {.kind = RU_SCHEDULE_CONSTANT, .warmup = 4};
    near(ru_schedule_lr(&constant, 0.8, 0), 0.2);
    near(ru_schedule_lr(&constant, 0.8, 3), 0.8);
    near(ru_schedule_lr(&constant, 0.8, 1000), 0.8);
    ru_schedule step = {.kind = RU_SCHEDULE_STEP, .every = 10, .gamma = 0.5};
    near(ru_schedule_lr(&step, 1, 9), 1);
    near(ru_schedule_lr(&step, 1, 10), 0.5);
    near(ru_schedule_lr(&step, 1, 35), 0.125);
    ru_schedule cosine = {.kind = RU_SCHEDULE_COSINE, .warmup = 10, .floor = 0.1, .steps = 110};
    near(ru_schedule_lr(&cosine, 2, 9), 2);
    near(ru_schedule_lr(&cosine, 2, 10), 2);
    near(ru_schedule_lr(&cosine, 2, 60), 2 * (0.1 + 0.9 * 0.5));
    near(ru_schedule_lr(&cosine, 2, 110), 0.2);
    near(ru_schedule_lr(&cosine, 2, 5000), 0.2);
    ru_schedule linear = {.kind = RU_SCHEDULE_LINEAR, .steps = 100};
    near(ru_schedule_lr(&linear, 1, 25), 0.75);
    near(ru_schedule_lr(&linear, 1, 100), 0);
}

/* Witness: torch.optim.lr_scheduler.OneCycleLR(max_lr=0.5, total_steps=20) of PyTorch 2.14. */
static void one_cycle_is_that_of_pytorch(void **state)
{
    (void)state;
    static const double want[20] = {0.02,
                                    0.06583592135,
                                    0.18583592135,
                                    0.33416407865,
                                    0.45416407865,
                                    0.5,
                                    0.493732003118,
                                    0.475242316007,
                                    0.445458088786,
                                    0.405872826975,
                                    0.358471500896,
                                    0.305631010968,
                                    0.250001,
                                    0.194370989032,
                                    0.141530499104,
                                    0.0941291730251,
                                    0.0545439112145,
                                    0.0247596839933,
                                    0.00626999688246,
                                    2e-06};
    const ru_schedule s = {
        .kind = RU_SCHEDULE_ONE_CYCLE, .start = 0.04, .rise = 0.3, .floor = 4e-6, .steps = 20};
    for (int64_t k = 0; k < 20; k++) {
        near(ru_schedule_lr(&s, 0.5, k), want[k]);
    }
    near(ru_schedule_lr(&s, 0.5, 99), 2e-6);
    for (int64_t n = 1; n < 6; n++) { /* runs too short for a rise */
        const ru_schedule t = {
            .kind = RU_SCHEDULE_ONE_CYCLE, .start = 0.04, .rise = 0.3, .floor = 0.01, .steps = n};
        for (int64_t k = 0; k < n; k++) {
            double lr = ru_schedule_lr(&t, 1, k);
            assert_true(lr >= 0.01 - 1e-12 && lr <= 1 + 1e-12);
        }
    }
}

RU_TESTS(train_schedule, cmocka_unit_test(rates_follow_their_curves),
         cmocka_unit_test(one_cycle_is_that_of_pytorch))
