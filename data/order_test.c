/* The order of samples: a bijection, uniform over pairs, the same on every machine. */
#include "data/data_impl.h"
#include "test/test.h"

#include <math.h>

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
        rui_order_init(&o, ru_test_seed(), 1, n);
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

RU_TESTS(data_order, cmocka_unit_test(test_bijective_for_all_small_counts),
         cmocka_unit_test(test_large_counts_stay_in_range),
         cmocka_unit_test(test_pairs_are_uniform), cmocka_unit_test(test_neighbours_are_spread),
         cmocka_unit_test(test_epochs_and_seeds_differ))
