/* Wire cursors: round trip, byte order, and every truncation. */
#include "base/wire.h"

#include <string.h>

#include "test/test.h"

static void write_all(ru_wire_out *w)
{
    ru_wire_put_u8(w, 0x12);
    ru_wire_put_u16(w, 0x3456);
    ru_wire_put_u32(w, 0x789abcde);
    ru_wire_put_u64(w, 0x1122334455667788u);
    ru_wire_put_f64(w, 2.25);
    ru_wire_put_text(w, "word", 4);
}

static void test_round_trip_and_order(void **state)
{
    (void)state;
    uint8_t buf[64];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    write_all(&w);
    assert_false(w.bad);
    int64_t n = ru_wire_size(&w);
    assert_int_equal(n, 1 + 2 + 4 + 8 + 8 + 8);
    const uint8_t head[] = {0x12, 0x56, 0x34, 0xde, 0xbc, 0x9a, 0x78, 0x88};
    assert_memory_equal(buf, head, sizeof head);
    ru_wire_in r = ru_wire_in_from(buf, n);
    assert_int_equal(ru_wire_u8(&r), 0x12);
    assert_int_equal(ru_wire_u16(&r), 0x3456);
    assert_int_equal(ru_wire_u32(&r), 0x789abcde);
    assert_true(ru_wire_u64(&r) == 0x1122334455667788u);
    assert_true(ru_wire_f64(&r) == 2.25);
    uint32_t len = 0;
    const char *s = ru_wire_text(&r, 100, &len);
    assert_true(s != NULL && len == 4 && memcmp(s, "word", 4) == 0);
    assert_false(r.bad);
    assert_int_equal(ru_wire_left(&r), 0);
}

static void test_every_truncation_is_seen(void **state)
{
    (void)state;
    uint8_t buf[64];
    ru_wire_out whole = ru_wire_out_into(buf, sizeof buf);
    write_all(&whole);
    int64_t n = ru_wire_size(&whole);
    for (int64_t cut = 0; cut < n; cut++) {
        uint8_t small[64];
        ru_wire_out w = ru_wire_out_into(small, cut);
        write_all(&w);
        assert_true(w.bad);
        ru_wire_in r = ru_wire_in_from(buf, cut);
        (void)ru_wire_u8(&r);
        (void)ru_wire_u16(&r);
        (void)ru_wire_u32(&r);
        (void)ru_wire_u64(&r);
        (void)ru_wire_f64(&r);
        uint32_t len;
        assert_null(ru_wire_text(&r, 100, &len));
        assert_true(r.bad);
        assert_int_equal(ru_wire_left(&r), 0);
    }
}

static void test_lengths_that_lie(void **state)
{
    (void)state;
    uint8_t buf[] = {0xff, 0xff, 0xff, 0xff, 'x'};
    uint32_t len = 77;
    ru_wire_in r = ru_wire_in_from(buf, sizeof buf);
    assert_null(ru_wire_text(&r, UINT32_MAX, &len));
    assert_true(r.bad && len == 77);
    r = ru_wire_in_from(buf, sizeof buf);
    assert_null(ru_wire_bytes(&r, -1));
    assert_true(r.bad);
    r = ru_wire_in_from(NULL, 0);
    assert_int_equal(ru_wire_u8(&r), 0);
    assert_true(r.bad);
    uint8_t ok[] = {3, 0, 0, 0, 'a', 'b', 'c'};
    r = ru_wire_in_from(ok, sizeof ok);
    assert_null(ru_wire_text(&r, 2, &len));
}

RU_TESTS(base_wire, cmocka_unit_test(test_round_trip_and_order),
         cmocka_unit_test(test_every_truncation_is_seen), cmocka_unit_test(test_lengths_that_lie))
