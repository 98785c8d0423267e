/* Checksums, hashes and histograms. */
#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/hist.h"
#include "base/rng.h"
#include "test/test.h"

static void test_crc32c_known_answers(void **state)
{
    (void)state;
    uint8_t buf[48];
    /* Source: rfc3720 sec B.4 */
    memset(buf, 0, 32);
    assert_int_equal(ru_crc32c(0, buf, 32), 0x8a9136aa);
    memset(buf, 0xff, 32);
    assert_int_equal(ru_crc32c(0, buf, 32), 0x62a8ab43);
    for (uint8_t i = 0; i < 32; i++) {
        buf[i] = i;
    }
    assert_int_equal(ru_crc32c(0, buf, 32), 0x46dd794e);
    for (uint8_t i = 0; i < 32; i++) {
        buf[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(ru_crc32c(0, buf, 32), 0x113fdb5c);
    assert_int_equal(ru_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(ru_crc32c(0, "", 0), 0);
}

static void test_crc32c_paths_agree_in_pieces(void **state)
{
    (void)state;
    uint8_t buf[300];
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t i = 0; i < sizeof buf; i++) {
        buf[i] = (uint8_t)ru_rng_u32(&r);
    }
    for (int64_t from = 0; from < 9; from++) {
        for (int64_t n = 0; from + n <= 300; n += 7) {
            uint32_t whole = ru_crc32c(0, buf + from, n);
            assert_int_equal(whole, ru_crc32c_table(0, buf + from, n));
            int64_t cut = n / 3;
            uint32_t part = ru_crc32c(0, buf + from, cut);
            assert_int_equal(whole, ru_crc32c(part, buf + from + cut, n - cut));
        }
    }
    assert_int_equal(ru_crc32c_mask(0), 0xa282ead8);
}

static void test_hash_pieces_and_text(void **state)
{
    (void)state;
    /* Published XXH3 vectors: 64 bits of nothing with seed 0, 128 bits of nothing. */
    assert_true(ru_hash_bytes("", 0, 0) == 0x2d06800538d394c2u);
    ru_hash128 none = ru_hash128_bytes("", 0);
    char text[33];
    ru_hash128_text(none, text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
    ru_hasher h;
    ru_hasher_init(&h);
    char data[1000];
    for (int i = 0; i < 1000; i++) {
        data[i] = (char)(i * 7);
    }
    for (int i = 0; i < 1000; i += 125) {
        ru_hasher_put(&h, data + i, 125);
    }
    ru_hash128 a = ru_hasher_get(&h), b = ru_hash128_bytes(data, 1000);
    assert_true(a.low == b.low && a.high == b.high);
    ru_hasher_put_str(&h, "x");
    ru_hash128 c = ru_hasher_get(&h);
    assert_true(a.low != c.low);
}

static void test_hist_buckets_tile_the_line(void **state)
{
    (void)state;
    for (uint32_t i = 0; i + 1 < RU_HIST_BUCKETS; i++) {
        int64_t low = ru_hist_low(i), next = ru_hist_low(i + 1);
        assert_true(low < next);
        ru_hist h = {0};
        ru_hist_add(&h, low);
        ru_hist_add(&h, next - 1);
        assert_int_equal(h.counts[i], 2);
    }
    ru_hist h = {0};
    ru_hist_add(&h, INT64_MAX);
    ru_hist_add(&h, -5);
    assert_int_equal(h.counts[RU_HIST_BUCKETS - 1], 1);
    assert_int_equal(h.counts[0], 1);
}

static void test_hist_quantiles_and_merge(void **state)
{
    (void)state;
    static ru_hist parts[3], all, merged;
    memset(parts, 0, sizeof parts);
    memset(&all, 0, sizeof all);
    memset(&merged, 0, sizeof merged);
    for (int64_t v = 1; v <= 100000; v++) {
        ru_hist_add(&parts[v % 3], v * 10);
        ru_hist_add(&all, v * 10);
    }
    for (int i = 0; i < 3; i++) {
        ru_hist_merge(&merged, &parts[i]);
    }
    assert_memory_equal(merged.counts, all.counts, sizeof all.counts);
    assert_true(merged.n == all.n && merged.min == 10 && merged.max == 1000000);
    for (double q = 0.01; q < 1; q += 0.01) {
        double want = q * 1000000, got = (double)ru_hist_quantile(&merged, q);
        assert_true(fabs(got / want - 1) < 0.0165);
    }
    assert_true(ru_hist_quantile(&merged, 0) >= 10 && ru_hist_quantile(&merged, 1) <= 1000000);
}

RU_TESTS(base_sums, cmocka_unit_test(test_crc32c_known_answers),
         cmocka_unit_test(test_crc32c_paths_agree_in_pieces),
         cmocka_unit_test(test_hash_pieces_and_text),
         cmocka_unit_test(test_hist_buckets_tile_the_line),
         cmocka_unit_test(test_hist_quantiles_and_merge))
