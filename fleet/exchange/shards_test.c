/* Blocks and shards cover the vector once, for any size and number of workers; a key comes back as
 * it was put. */
#include "fleet/exchange/shards.h"

#include "test/test.h"

static void test_cover(void **state)
{
    static const int64_t counts[] = {1, 2, 7, 65535, 65536, 65537, 1000003, 25000000};
    static const uint32_t workers[] = {1, 2, 3, 7, 64};
    (void)state;
    for (uint32_t i = 0; i < 8 * 5; i++) {
        ru_shards s = ru_shards_of(counts[i / 5], workers[i % 5]);
        int64_t at = 0;
        for (uint32_t b = 0; b < s.blocks; b++) {
            for (uint32_t k = 0; k < s.workers; k++) {
                int64_t first, n;
                ru_shards_range(&s, b, k, &first, &n);
                assert_int_equal(first, at);
                assert_true(n >= 0 && n <= s.block);
                at += n;
            }
        }
        assert_int_equal(at, counts[i / 5]);
    }
}

static void test_key(void **state)
{
    uint8_t buf[RU_SHARD_KEY_BYTES];
    ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
    const ru_shard_key k = {.job = UINT64_C(0x123456789abcdef0),
                            .epoch = 3,
                            .kind = RU_SHARD_SUM,
                            .step = INT64_C(1) << 40,
                            .block = 5,
                            .shard = 6,
                            .rank = 7};
    (void)state;
    ru_shard_key_put(&o, &k);
    assert_int_equal(ru_wire_size(&o), RU_SHARD_KEY_BYTES);
    ru_wire_in in = ru_wire_in_from(buf, sizeof buf);
    ru_shard_key got = ru_shard_key_get(&in);
    assert_true(!in.bad && got.job == k.job && got.epoch == k.epoch && got.kind == k.kind);
    assert_true(got.step == k.step && got.block == k.block && got.shard == k.shard);
    assert_int_equal(got.rank, k.rank);
}

RU_TESTS(fleet_shards, cmocka_unit_test(test_cover), cmocka_unit_test(test_key))
