/* The description of weights: there and back, and everything that damage can make of it. */
#include "train/remote/remote.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static const ru_remote_tensor tensors[] = {
    {.name = "conv1.weight", .type = {.dtype = RU_F32, .rank = 4, .dims = {8, 3, 3, 3}}, .hash = 7},
    {.name = "conv1.bias", .type = {.dtype = RU_F32, .rank = 1, .dims = {8}}, .hash = 9},
    {.name = "steps", .type = {.dtype = RU_I64, .rank = 0}, .hash = UINT64_MAX},
};

static ru_span pack(ru_arena *a, const ru_remote_tensor *at, uint32_t n)
{
    ru_err err;
    ru_span s;
    const ru_remote w = {.state = "{\"step\": 4}", .state_bytes = 11, .at = at, .n = n};
    assert_ok(ru_remote_pack(&w, a, &s, &err), err);
    return s;
}

static ru_status parse(ru_arena *a, const void *data, int64_t n, ru_remote *out, ru_err *err)
{
    return ru_remote_parse("10.0.0.5:4100", data, n, a, out, err);
}

static void test_description(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_remote w;
    ru_arena_init(&a, 0);
    ru_span s = pack(&a, tensors, RU_ARRAY_LEN(tensors));
    assert_ok(parse(&a, s.data, s.size_bytes, &w, &err), err);
    assert_int_equal(w.state_bytes, 11);
    assert_memory_equal(w.state, "{\"step\": 4}", 11);
    assert_int_equal(w.n, RU_ARRAY_LEN(tensors));
    for (uint32_t i = 0; i < w.n; i++) {
        assert_string_equal(w.at[i].name, tensors[i].name);
        assert_true(ru_type_equal(&w.at[i].type, &tensors[i].type));
        assert_int_equal(w.at[i].hash, tensors[i].hash);
    }
    /* The hash of all follows each of them. */
    ru_hash128 all = w.hash;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(tensors); i++) {
        ru_remote_tensor other[RU_ARRAY_LEN(tensors)];
        memcpy(other, tensors, sizeof tensors);
        other[i].hash++;
        s = pack(&a, other, RU_ARRAY_LEN(tensors));
        assert_ok(parse(&a, s.data, s.size_bytes, &w, &err), err);
        assert_true(w.hash.low != all.low || w.hash.high != all.high);
    }
    ru_arena_fini(&a);
}

static void test_damaged_description(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_remote w;
    ru_arena_init(&a, 0);
    ru_span s = pack(&a, tensors, RU_ARRAY_LEN(tensors));
    for (int64_t n = 0; n < s.size_bytes; n++) {
        assert_int_equal(parse(&a, s.data, n, &w, &err), RU_E_DATA);
    }
    assert_non_null(strstr(err.text, "from 10.0.0.5:4100 is damaged"));
    ru_remote_tensor twice[2] = {tensors[1], tensors[1]};
    s = pack(&a, twice, 2);
    assert_int_equal(parse(&a, s.data, s.size_bytes, &w, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "twice"));
    static const int64_t dims[] = {0, -1, INT64_MAX, INT64_C(1) << 39};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(dims); k++) {
        ru_remote_tensor huge = tensors[0];
        huge.type.dims[0] = dims[k];
        huge.type.dims[1] = k == 3 ? dims[k] : 3;
        s = pack(&a, &huge, 1);
        assert_int_equal(parse(&a, s.data, s.size_bytes, &w, &err), RU_E_DATA);
    }
    /* Bytes at random never make it read outside. */
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    for (uint32_t k = 0; k < 2000; k++) {
        uint8_t m[200];
        s = pack(&a, tensors, RU_ARRAY_LEN(tensors));
        memcpy(m, s.data, (size_t)s.size_bytes);
        m[ru_rng_below(&rng, (uint32_t)s.size_bytes)] = (uint8_t)ru_rng_u64(&rng);
        if (parse(&a, m, s.size_bytes, &w, &err) == RU_OK) {
            assert_in_range(w.n, 1, RU_ARRAY_LEN(tensors));
        }
    }
    ru_arena_fini(&a);
}

RU_TESTS(train_remote, cmocka_unit_test(test_description),
         cmocka_unit_test(test_damaged_description))
