/* The order of samples: a bijection, uniform over pairs, the same on every machine. */
#include "data/data_impl.h"
#include "test/test.h"

#include <math.h>
#include <string.h>

static void check_bijection(uint64_t seed, int64_t epoch, int64_t count)
{
    uint8_t *seen = calloc((size_t)count, 1);
    assert_non_null(seen);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = ru_order_sample(seed, epoch, i, count);
        assert_in_range(k, 0, count - 1);
        assert_int_equal(seen[k], 0);
        seen[k] = 1;
    }
    free(seen);
}

static void test_bijective_for_all_small_counts(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 700; count++) {
        check_bijection(1, count % 7, count);
    }
    for (uint64_t seed = 0; seed < 20; seed++) {
        for (int64_t count = 1; count <= 20; count++) {
            check_bijection(seed * 0x123456789abcdefu, (int64_t)seed, count);
        }
    }
    check_bijection(3, 0, 65536);
    check_bijection(3, 1, 65537);
    check_bijection(3, 2, 99991);
}

static void test_large_counts_stay_in_range(void **state)
{
    (void)state;
    int64_t counts[] = {((int64_t)1 << 32) - 1, (int64_t)1 << 32, ((int64_t)1 << 40) + 7,
                        (int64_t)1 << 62};
    for (uint32_t c = 0; c < RU_ARRAY_LEN(counts); c++) {
        int64_t last = -1;
        for (int64_t i = 0; i < 1000; i++) {
            int64_t k = ru_order_sample(9, 4, counts[c] - 1 - i * 12345, counts[c]);
            assert_true(k >= 0 && k < counts[c]);
            assert_int_not_equal(k, last);
            last = k;
        }
    }
}

/* Sum of (seen - expected)^2 / expected over `cells` cells is near `cells` +- sqrt(2 cells). */
static void check_chi_square(const int64_t *seen, int64_t cells, int64_t draws)
{
    double expected = (double)draws / (double)cells, sum = 0.0;
    for (int64_t i = 0; i < cells; i++) {
        double d = (double)seen[i] - expected;
        sum += d * d / expected;
    }
    double free_cells = (double)cells - 1.0,
           deviations = (sum - free_cells) / sqrt(2.0 * free_cells);
    if (deviations > 5.0 || deviations < -5.0) {
        fail_msg("chi-square %.1f over %lld cells is %.1f deviations off", sum, (long long)cells,
                 deviations);
    }
}

/* Where do positions i and j land together? All ordered pairs of different places, over many epochs
 * and over many seeds. */
static void test_pairs_are_uniform(void **state)
{
    (void)state;
    enum { N = 12, DRAWS = 60000 };
    const int64_t at[][2] = {{0, 1}, {3, 4}, {0, N - 1}, {5, 9}};
    for (uint32_t c = 0; c < RU_ARRAY_LEN(at) * 2; c++) {
        int64_t i = at[c / 2][0], j = at[c / 2][1], seen[N * N] = {0}, cells[N * (N - 1)], n = 0;
        for (int64_t k = 0; k < DRAWS; k++) {
            uint64_t seed = c % 2 == 0 ? ru_test_seed() : ru_test_seed() + (uint64_t)k;
            int64_t epoch = c % 2 == 0 ? k : 0;
            seen[ru_order_sample(seed, epoch, i, N) * N + ru_order_sample(seed, epoch, j, N)]++;
        }
        for (int64_t k = 0; k < N * N; k++) {
            if (k / N != k % N) {
                cells[n++] = seen[k];
            } else {
                assert_int_equal(seen[k], 0);
            }
        }
        check_chi_square(cells, n, DRAWS);
    }
}

/* Within one epoch of many samples: neighbours of the order fall into all pairs of regions alike.
 */
static void test_neighbours_are_spread(void **state)
{
    (void)state;
    enum { REGIONS = 32 };
    const int64_t counts[] = {60000, 50000, 65536, 100003};
    for (uint32_t c = 0; c < RU_ARRAY_LEN(counts); c++) {
        int64_t seen[REGIONS * REGIONS] = {0}, n = counts[c];
        rui_order o;
        rui_order_init(&o, ru_test_seed(), RUI_ORDER_FULL, 1, n);
        for (int64_t i = 0; i + 1 < n; i += 2) {
            int64_t a = rui_order_at(&o, i) * REGIONS / n,
                    b = rui_order_at(&o, i + 1) * REGIONS / n;
            seen[a * REGIONS + b]++;
        }
        check_chi_square(seen, (int64_t)REGIONS * REGIONS, n / 2);
    }
}

static void test_epochs_and_seeds_differ(void **state)
{
    (void)state;
    int64_t same_epoch = 0, same_seed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t k = ru_order_sample(1, 0, i, 1000);
        same_epoch += k == ru_order_sample(1, 1, i, 1000);
        same_seed += k == ru_order_sample(2, 0, i, 1000);
    }
    assert_true(same_epoch < 12);
    assert_true(same_seed < 12);
}

/* Witness: the same orders from another program. Made by test/oracle/order.py. */
static const struct {
    int64_t count;
    uint64_t seed;
    int64_t epoch, block;
    int64_t samples[3]; /* at the first position, at a third, at the last */
} known[] = {
    {1, 1, 0, 0, {0, 0, 0}},
    {1, 1, 1, 0, {0, 0, 0}},
    {1, 1099511627781, 3, 0, {0, 0, 0}},
    {2, 1, 0, 0, {1, 1, 0}},
    {2, 1, 1, 0, {1, 1, 0}},
    {2, 1099511627781, 3, 0, {0, 0, 1}},
    {7, 1, 0, 0, {6, 3, 0}},
    {7, 1, 1, 0, {4, 2, 0}},
    {7, 1099511627781, 3, 0, {6, 4, 3}},
    {49, 1, 0, 0, {46, 15, 23}},
    {49, 1, 1, 0, {11, 22, 14}},
    {49, 1099511627781, 3, 0, {12, 42, 10}},
    {50, 1, 0, 0, {47, 23, 43}},
    {50, 1, 1, 0, {30, 38, 29}},
    {50, 1099511627781, 3, 0, {6, 21, 37}},
    {1000, 1, 0, 0, {799, 915, 938}},
    {1000, 1, 1, 0, {423, 707, 627}},
    {1000, 1099511627781, 3, 0, {961, 832, 790}},
    {65536, 1, 0, 0, {10028, 47567, 2234}},
    {65536, 1, 1, 0, {25857, 9666, 8301}},
    {65536, 1099511627781, 3, 0, {10247, 54146, 23094}},
    {10, 1, 0, 3, {9, 8, 3}},
    {10, 1, 1, 3, {1, 7, 4}},
    {10, 1099511627781, 3, 3, {7, 1, 2}},
    {640, 1, 0, 10, {250, 2, 64}},
    {640, 1, 1, 10, {469, 359, 525}},
    {640, 1099511627781, 3, 10, {361, 470, 563}},
    {641, 1, 0, 10, {190, 582, 114}},
    {641, 1, 1, 10, {409, 126, 10}},
    {641, 1099511627781, 3, 10, {400, 514, 262}},
    {5000, 1, 0, 7, {4228, 1958, 2530}},
    {5000, 1, 1, 7, {3084, 3449, 262}},
    {5000, 1099511627781, 3, 7, {2857, 320, 4263}},
    {5000, 1, 0, 1, {2832, 2183, 2639}},
    {5000, 1, 1, 1, {4404, 4691, 3765}},
    {5000, 1099511627781, 3, 1, {1917, 1253, 4877}},
    {100, 1, 0, 1000, {75, 32, 30}},
    {100, 1, 1, 1000, {1, 50, 36}},
    {100, 1099511627781, 3, 1000, {42, 52, 61}},
};

static void test_orders_are_those_of_the_oracle(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(known); k++) {
        int64_t n = known[k].count, at[3] = {0, n / 3, n - 1};
        for (uint32_t i = 0; i < 3; i++) {
            int64_t got = known[k].block == 0
                              ? ru_order_sample(known[k].seed, known[k].epoch, at[i], n)
                              : ru_order_block_sample(known[k].seed, known[k].epoch, at[i], n,
                                                      known[k].block);
            if (got != known[k].samples[i]) {
                fail_msg("row %u, position %lld: sample %lld, expected %lld", k, (long long)at[i],
                         (long long)got, (long long)known[k].samples[i]);
            }
        }
    }
}

/* Every count and block: each sample once, and a window's samples in at most its blocks. */
static void test_blocks_are_a_bijection(void **state)
{
    (void)state;
    static const int64_t block_sizes[] = {1, 2, 3, 7, 64, 1000};
    for (int64_t count = 1; count <= 300; count += count < 150 ? 1 : 29) {
        for (uint32_t k = 0; k < RU_ARRAY_LEN(block_sizes); k++) {
            uint8_t seen[512] = {0};
            for (int64_t i = 0; i < count; i++) {
                int64_t s =
                    ru_order_block_sample((uint64_t)count % 5, count % 3, i, count, block_sizes[k]);
                assert_in_range(s, 0, count - 1);
                assert_int_equal(seen[s]++, 0);
            }
        }
    }
}

static void test_a_window_reads_its_blocks_only(void **state)
{
    (void)state;
    enum { COUNT = 10007, BLOCK = 10, WINDOW = BLOCK * RUI_ORDER_WINDOW };
    static uint8_t used[COUNT];
    rui_block_order o;
    rui_block_order_init(&o, 7, 2, COUNT, BLOCK);
    assert_int_equal(o.window, WINDOW);
    int64_t covered = 0, near = 0;
    for (int64_t w = 0; w * WINDOW < COUNT; w++) {
        memset(used, 0, sizeof used);
        for (int64_t slot = w * RUI_ORDER_WINDOW; slot < (w + 1) * RUI_ORDER_WINDOW; slot++) {
            int64_t n, first;
            if (slot * BLOCK >= COUNT) {
                break;
            }
            first = rui_block_order_slot(&o, slot, &n);
            for (int64_t i = 0; i < n; i++) {
                used[(first + i) % COUNT]++;
                covered++;
            }
        }
        int64_t end = (w + 1) * WINDOW < COUNT ? (w + 1) * WINDOW : COUNT;
        int64_t last = -10;
        for (int64_t p = w * WINDOW; p < end; p++) {
            int64_t s = rui_block_order_at(&o, p);
            assert_int_equal(used[s], 1);
            near += s / BLOCK == last / BLOCK;
            last = s;
        }
    }
    assert_int_equal(covered, COUNT);
    assert_true(near <
                COUNT / 30); /* neighbours of a window are of other blocks: 1 in 64 are not */
}

RU_TESTS(data_order, cmocka_unit_test(test_orders_are_those_of_the_oracle),
         cmocka_unit_test(test_blocks_are_a_bijection),
         cmocka_unit_test(test_a_window_reads_its_blocks_only),
         cmocka_unit_test(test_bijective_for_all_small_counts),
         cmocka_unit_test(test_large_counts_stay_in_range),
         cmocka_unit_test(test_pairs_are_uniform), cmocka_unit_test(test_neighbours_are_spread),
         cmocka_unit_test(test_epochs_and_seeds_differ))
