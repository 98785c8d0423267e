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

RU_TESTS(train_schedule, cmocka_unit_test(rates_follow_their_curves))
