#include "base/pb.h"

#include <string.h>

#include "test/test.h"

/* The encodings of the protobuf documentation: field 1 = 150, field 2 = "testing", packed 3, 270,
 * 86942 in field 6. */
static void known_bytes(void **state)
{
    (void)state;
    ru_pb_out o;
    ru_pb_out_init(&o);
    ru_pb_put_u64(&o, 1, 150);
    ru_pb_put_str(&o, 2, "testing");
    ru_pb_put_packed_i64(&o, 6, (int64_t[]){3, 270, 86942}, 3);
    ru_err err;
    assert_ok(ru_pb_out_end(&o, &err), err);
    const uint8_t want[] = {0x08, 0x96, 0x01, 0x12, 0x07, 't',  'e',  's',  't',  'i',
                            'n',  'g',  0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05};
    assert_int_equal(o.size_bytes, sizeof want);
    assert_memory_equal(o.data, want, sizeof want);
    ru_pb_out_fini(&o);
}

static void reads_what_it_wrote(void **state)
{
    (void)state;
    ru_pb_out o;
    ru_pb_out_init(&o);
    ru_pb_put_i64(&o, 1, -7);
    ru_pb_put_f32(&o, 2, 1.5F);
    ru_pb_put_f64(&o, 3, -2.25);
    ru_pb_put_fixed64(&o, 4, 0x0123456789abcdefULL);
    ru_pb_begin(&o, 5);
    ru_pb_begin(&o, 1);
    ru_pb_put_u64(&o, 9, UINT64_MAX);
    ru_pb_end(&o);
    ru_pb_end(&o);
    ru_pb_put_bytes(&o, 6, (float[]){1, 2, 3}, 3 * sizeof(float)); /* packed */

    ru_pb_in in = ru_pb_in_open(o.data, o.size_bytes);
    ru_pb_field f;
    assert_true(ru_pb_next(&in, &f));
    assert_int_equal(ru_pb_i64(&in, &f), -7);
    assert_true(ru_pb_next(&in, &f));
    assert_true(ru_pb_f32(&in, &f) == 1.5F);
    assert_true(ru_pb_next(&in, &f));
    assert_true(f.value == 0xc002000000000000ULL); /* -2.25 */
    assert_true(ru_pb_next(&in, &f));
    assert_true(f.value == 0x0123456789abcdefULL);
    assert_true(ru_pb_next(&in, &f));
    ru_pb_in one = ru_pb_sub(&f);
    ru_pb_field g;
    assert_true(ru_pb_next(&one, &g));
    ru_pb_in two = ru_pb_sub(&g);
    assert_true(ru_pb_next(&two, &g));
    assert_int_equal(g.number, 9);
    assert_true(g.value == UINT64_MAX);
    assert_true(ru_pb_next(&in, &f));
    uint64_t bits[3];
    assert_int_equal(ru_pb_count(&f, RU_PB_FIXED32), 3);
    assert_int_equal(ru_pb_values(&f, RU_PB_FIXED32, bits, 3), 3);
    assert_true(ru_pb_bits_f32(bits[2]) == 3);
    assert_false(ru_pb_next(&in, &f));
    ru_err err;
    assert_ok(ru_pb_in_end(&in, "test", &err), err);
    ru_pb_out_fini(&o);
}

/* Bodies on both sides of every length-of-length border come back whole. */
static void nested_sizes(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 127, 128, 16383, 16384, 65530, 65536, 65537, 2097151, 2097152};
    ru_pb_out o;
    ru_pb_out_init(&o);
    uint8_t *fill = calloc(1, 1 << 22);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes); k++) {
        ru_pb_out_reset(&o);
        ru_pb_begin(&o, 3);
        ru_pb_raw(&o, fill, sizes[k]);
        ru_pb_end(&o);
        ru_pb_put_u64(&o, 4, 5);
        ru_pb_in in = ru_pb_in_open(o.data, o.size_bytes);
        ru_pb_field f;
        assert_true(ru_pb_next(&in, &f));
        assert_int_equal(f.size_bytes, sizes[k]);
        assert_true(ru_pb_next(&in, &f));
        assert_int_equal(f.value, 5);
        assert_false(ru_pb_next(&in, &f));
        assert_null(in.why);
    }
    free(fill);
    ru_pb_out_fini(&o);
}

static void packed_or_not(void **state)
{
    (void)state;
    const uint8_t unpacked[] = {0x08, 0x05, 0x08, 0x06};
    ru_pb_in in = ru_pb_in_open(unpacked, sizeof unpacked);
    ru_pb_field f;
    int64_t sum = 0;
    while (ru_pb_next(&in, &f)) {
        uint64_t v = 0;
        assert_int_equal(ru_pb_count(&f, RU_PB_VARINT), 1);
        assert_int_equal(ru_pb_values(&f, RU_PB_VARINT, &v, 1), 1);
        sum += (int64_t)v;
    }
    assert_int_equal(sum, 11);
    const uint8_t cut[] = {0x0a, 0x02, 0x05, 0x86};
    in = ru_pb_in_open(cut, sizeof cut);
    assert_true(ru_pb_next(&in, &f));
    assert_int_equal(ru_pb_count(&f, RU_PB_VARINT), -1);
    assert_int_equal(ru_pb_count(&f, RU_PB_FIXED32), -1);
}

static void hostile(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[16];
        int64_t n;
        const char *why;
    } cases[] = {
        {{0x80}, 1, "tag"},
        {{0x00}, 1, "number 0"},
        {{0x0b}, 1, "groups"},
        {{0x0e, 0}, 2, "wire type"},
        {{0x08}, 1, "number is cut"},
        {{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 11, "64 bits"},
        {{0x0a, 0x05, 1, 2, 3, 4}, 6, "beyond the end"},
        {{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11, "beyond the end"},
        {{0x0d, 1, 2, 3}, 4, "cut off"},
        {{0x09, 1, 2, 3, 4, 5, 6, 7}, 8, "cut off"},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 7, "tag"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_pb_in in = ru_pb_in_open(cases[k].bytes, cases[k].n);
        ru_pb_field f;
        assert_false(ru_pb_next(&in, &f));
        ru_err err = {0};
        assert_int_equal(ru_pb_in_end(&in, "test", &err), RU_E_DATA);
        if (strstr(err.text, cases[k].why) == NULL) {
            fail_msg("case %u: %s", k, err.text);
        }
    }
}

RU_TESTS(base_pb, cmocka_unit_test(known_bytes), cmocka_unit_test(reads_what_it_wrote),
         cmocka_unit_test(nested_sizes), cmocka_unit_test(packed_or_not), cmocka_unit_test(hostile))
