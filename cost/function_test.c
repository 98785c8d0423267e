/* Lives and prices of functions by hand, and exchanges of gradients by adding up their messages. */
#include "cost/function.h"

#include <math.h>

#include "test/test.h"

static void test_lives_hold_whole_steps(void **state)
{
    (void)state;
    ru_function_rules r = {.life_s = 100,
                           .init_s = 5,
                           .save_s = 1,
                           .usd_per_gb_s = 1e-5,
                           .usd_per_call = 1e-6,
                           .billing_step_s = 1,
                           .store_usd_per_h = 0.36};
    ru_function_run run;
    /* 94 s of a life hold 13 steps of 7 s: 27 steps need three lives. */
    assert_true(ru_function_run_of(&r, 4, 2048, 27, 7, &run));
    assert_near(run.lives, 3, 1e-15);
    assert_near(run.seconds, 5 + 27 * 7 + 2 * 6, 1e-15);
    /* 206 s in three lives: 68.67 s, billed as 69 */
    assert_near(run.usd, 4 * 3 * (2 * 1e-5 * 69 + 1e-6) + 206 * 1e-4, 1e-12);
    assert_true(ru_function_run_of(&r, 4, 2048, 26, 7, &run));
    assert_near(run.lives, 2, 1e-15);
    assert_false(ru_function_run_of(&r, 4, 2048, 1, 95, &run));
    r.life_s = 0;
    assert_true(ru_function_run_of(&r, 4, 2048, 1, 95, &run));
    assert_near(run.lives, 1, 1e-15);
    assert_false(ru_function_run_of(&r, 4, 2048, 1e9, 100, &run));
}

/* Bytes that the busiest worker and the store move, message by message. */
static void bytes_of(ru_function_sync how, uint32_t n, double bytes, double *worker, double *store)
{
    double moved[64] = {0};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t s = 0; s < n && how == RU_SYNC_SHARDED; s++) {
            moved[i] += bytes / n;              /* own slice s up */
            moved[s] += bytes / n;              /* slice s of i down to its owner */
            moved[i] += bytes / n;              /* the sum of s down */
            moved[i] += s == i ? bytes / n : 0; /* the sum of an owned slice up */
        }
        if (how == RU_SYNC_ALL) {
            moved[i] += bytes + n * bytes;
        } else if (how == RU_SYNC_SERVER) {
            moved[i] += 2 * bytes;
        }
    }
    *worker = *store = 0;
    for (uint32_t i = 0; i < n; i++) {
        *worker = fmax(*worker, moved[i]);
        *store += moved[i];
    }
}

static void test_exchanges_move_what_their_messages_add_up_to(void **state)
{
    (void)state;
    static const ru_function_sync all[] = {RU_SYNC_SHARDED, RU_SYNC_ALL, RU_SYNC_SERVER};
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t n = 1; n <= 64; n *= 2) {
            double worker, store;
            bytes_of(all[k], n, 1e6, &worker, &store);
            ru_function_net net = {.worker_bytes_per_s = 1e6, .store_bytes_per_s = 1e15};
            assert_near(ru_function_sync_s(all[k], &net, n, 1e6), worker / 1e6, 1e-12);
            net = (ru_function_net){.worker_bytes_per_s = 1e15, .store_bytes_per_s = 1e6};
            assert_near(ru_function_sync_s(all[k], &net, n, 1e6), store / 1e6, 1e-12);
        }
    }
    ru_function_net net = {1e15, 1e15, 0.01, 1000, 0, 0};
    assert_near(ru_function_sync_s(RU_SYNC_SHARDED, &net, 10, 1), 0.31 + 0.04, 1e-9);
    net = (ru_function_net){1e15, 1e15, 0, 0, 1e6, 0};
    assert_near(ru_function_sync_s(RU_SYNC_SERVER, &net, 10, 1e6), 10, 1e-6);
    assert_near(ru_function_sync_s(RU_SYNC_SHARDED, &net, 10, 1e6), 1, 1e-6);
    assert_near(ru_function_sync_s(RU_SYNC_LEADER, &net, 10, 1e6), 10, 1e-6);
}

/* Message by message in each direction: what a worker keeps does not move, and the slower direction
 * counts. One block alone is four phases, one behind the other. */
static void test_blocks_move_both_ways_at_once(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 64; n *= 2) {
        double up[64] = {0}, down[64] = {0}, in = 0, out = 0;
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t s = 0; s < n; s++) {
                up[i] += 1e6 / n;                /* a piece, or the sum of the own shard */
                down[s] += s != i ? 1e6 / n : 0; /* the piece, to who adds it */
                down[i] += s != i ? 1e6 / n : 0; /* the sum of another shard */
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            in += up[i];
            out += down[i];
        }
        ru_function_net net = {.worker_bytes_per_s = 1e6, .store_bytes_per_s = 1e15, .blocks = 1e9};
        assert_near(ru_function_sync_s(RU_SYNC_BLOCKS, &net, n, 1e6), fmax(up[0], down[0]) / 1e6,
                    1e-8);
        net.blocks = 1;
        assert_near(ru_function_sync_s(RU_SYNC_BLOCKS, &net, n, 1e6), (up[0] + down[0]) / 1e6,
                    1e-8);
        net =
            (ru_function_net){.worker_bytes_per_s = 1e15, .store_bytes_per_s = 1e6, .blocks = 1e9};
        assert_near(ru_function_sync_s(RU_SYNC_BLOCKS, &net, n, 1e6), fmax(in, out) / 1e6, 1e-6);
        net.blocks = 1;
        assert_near(ru_function_sync_s(RU_SYNC_BLOCKS, &net, n, 1e6), (in + out) / 1e6, 1e-8);
        net = (ru_function_net){1e15, 1e15, 0, 1000, 0, 5}; /* each block has its own operations */
        assert_near(ru_function_sync_s(RU_SYNC_BLOCKS, &net, n, 1),
                    5 * n * (n - 1 + n - 1 + 1 + n - 1) / 1e3, 1e-9);
    }
}

RU_TESTS(cost_function, cmocka_unit_test(test_blocks_move_both_ways_at_once),
         cmocka_unit_test(test_lives_hold_whole_steps),
         cmocka_unit_test(test_exchanges_move_what_their_messages_add_up_to))
