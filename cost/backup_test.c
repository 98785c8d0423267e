/* The clock of a parameter server by hand, and what must hold of any. */
#include "cost/backup.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static const ru_backup_job job = {.model_bytes = 100e6,
                                  .read_bytes = 10e6,
                                  .write_bytes = 20e6,
                                  .touched = 1,
                                  .work_s = 16,
                                  .link_bytes_per_s = 100e6,
                                  .serve_bytes_per_s = 1e9,
                                  .clocks_max = 4};

static void test_by_hand(void **state)
{
    (void)state;
    /* One server of 16 workers, itself a worker: 15 times 10 MB out, 15 times 20 MB in. */
    const ru_backup_layout one = {.servers = 1, .workers = 16, .shared = 1};
    ru_backup_clock c = ru_backup_clock_of(&job, &one);
    assert_true(fabs(c.read_s - 1.5) < 1e-12);
    assert_true(fabs(c.write_s - 3) < 1e-12);
    assert_true(fabs(c.clock_s - 5.5) < 1e-12);
    /* 8 servers, 15 workers without the reliable machine, its link takes 100 MB a clock. */
    const ru_backup_layout three = {.servers = 8, .workers = 15, .shared = 8, .backups = 1};
    c = ru_backup_clock_of(&job, &three);
    assert_true(fabs(c.read_s - 10e6 / 8 * 14 / 100e6) < 1e-12);
    assert_int_equal(c.batch, 1);
    assert_true(fabs(c.stream_bytes - 100e6) < 1e-6);
    assert_true(fabs(c.clock_s - (c.read_s + c.write_s + c.compute_s)) < 1e-12);
    ru_backup_job slow = job; /* the stream holds all up: batches of 4 */
    slow.model_bytes = 1000e6;
    c = ru_backup_clock_of(&slow, &three);
    assert_int_equal(c.batch, 4);
    assert_true(fabs(c.clock_s - 2.5) < 1e-9);
}

static void test_changed_parts(void **state)
{
    (void)state;
    ru_backup_job j = job;
    j.touched = 0.1;
    assert_true(fabs(ru_backup_delta_bytes(&j, 1, 1) - 10e6) < 1);
    assert_true(fabs(ru_backup_delta_bytes(&j, 2, 1) - 19e6) < 1);
    assert_true(fabs(ru_backup_delta_bytes(&j, 1, 2) - 19e6) < 1);
    assert_true(fabs(ru_backup_delta_bytes(&j, 65535, 1024) - 100e6) < 1);
    j.touched = 0;
    assert_true(fabs(ru_backup_delta_bytes(&j, 64, 1)) < 1e-6);
}

/* The reads beside a stream are a fixed point: what comes while it reads makes the clock longer. */
static void test_the_clock_beside_a_stream_is_consistent(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(9, 1);
    uint32_t longer = 0;
    for (uint32_t round = 0; round < 500; round++) {
        ru_backup_job j = job;
        j.model_bytes = ru_rng_uniform(&r, 1e7, 2e9);
        j.work_s = ru_rng_uniform(&r, 1, 100);
        j.touched = ru_rng_f64(&r);
        j.clocks_max = 1;
        uint32_t t = 1 + ru_rng_below(&r, 60), n = 1 + ru_rng_below(&r, 8);
        const ru_backup_layout l = {.servers = 1 + ru_rng_below(&r, t),
                                    .workers = t + n,
                                    .shared = 1,
                                    .backups = n,
                                    .backups_work = true};
        ru_backup_clock c = ru_backup_clock_of(&j, &l);
        double phases = c.read_s + c.compute_s + c.write_s;
        double queued = j.read_bytes + c.stream_bytes / n * c.read_s / c.clock_s;
        double beside = queued / j.link_bytes_per_s + c.compute_s + c.write_s;
        assert_true(c.clock_s >= phases * (1 - 1e-12));
        assert_true(c.clock_s >= beside * (1 - 1e-9));
        longer += c.clock_s > phases * 1.001 ? 1 : 0;
        ru_backup_layout apart = l;
        apart.backups_work = false;
        assert_true(ru_backup_clock_of(&j, &apart).clock_s <= c.clock_s * (1 + 1e-12));
    }
    assert_true(longer > 50);
}

RU_TESTS(cost_backup, cmocka_unit_test(test_by_hand), cmocka_unit_test(test_changed_parts),
         cmocka_unit_test(test_the_clock_beside_a_stream_is_consistent))
