/* Frames: bytes as documented, limits, every single-bit corruption with a checksum; HMAC vectors.
 */
#include "comm/chan/frame.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "comm/chan/hmac.h"
#include "test/test.h"

static void test_layout(void **state)
{
    (void)state;
    rui_frame f = {.type = RUI_DATA,
                   .class = 2,
                   .flags = RUI_FIRST,
                   .rank = 0x0304,
                   .iter = 0x05060708,
                   .len = 0x00010203,
                   .stream = 0x1112131415161718ull,
                   .offset = 0x0000212223242526ull,
                   .deadline = 0x31323334,
                   .crc = 0x41424344};
    static const uint8_t want[RU_LINK_HEAD_BYTES] = {0x52, 0x42, RUI_FRAME_VERSION,
                                                     4,    2,    2,
                                                     0x04, 0x03, 0x08,
                                                     0x07, 0x06, 0x05,
                                                     0x03, 0x02, 0x01,
                                                     0x00, 0x18, 0x17,
                                                     0x16, 0x15, 0x14,
                                                     0x13, 0x12, 0x11,
                                                     0x26, 0x25, 0x24,
                                                     0x23, 0x22, 0x21,
                                                     0x00, 0x00, 0x34,
                                                     0x33, 0x32, 0x31,
                                                     0x44, 0x43, 0x42,
                                                     0x41};
    uint8_t head[RU_LINK_HEAD_BYTES];
    rui_frame_encode(&f, head);
    assert_memory_equal(head, want, sizeof want);
    rui_frame back;
    ru_err err;
    assert_ok(rui_frame_decode(head, &back, &err), err);
    assert_memory_equal(&back.stream, &f.stream, 8);
    assert_int_equal(back.rank, f.rank);
    assert_int_equal(back.deadline, f.deadline);
    assert_int_equal(rui_frame_crc(head), ru_crc32c_table(0, head, 36));
}

static ru_status decode(rui_frame f)
{
    uint8_t head[RU_LINK_HEAD_BYTES];
    rui_frame_encode(&f, head);
    return rui_frame_decode(head, &f, NULL);
}

static void test_limits(void **state)
{
    (void)state;
    const rui_frame data = {.type = RUI_DATA, .len = 1};
    assert_int_equal(decode(data), RU_OK);
    rui_frame f = data;
    f.len = 0;
    assert_int_equal(decode(f), RU_E_PEER);
    f.len = RU_LINK_FRAME_MAX + 1;
    assert_int_equal(decode(f), RU_E_PEER);
    f = data;
    f.class = 4;
    assert_int_equal(decode(f), RU_E_PEER);
    f = data;
    f.flags = 0x80;
    assert_int_equal(decode(f), RU_E_PEER);
    f = data;
    f.offset = (uint64_t)RUI_STREAM_BYTES_MAX;
    assert_int_equal(decode(f), RU_E_PEER);
    f.offset = UINT64_MAX;
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_DATA, .len = RUI_MESSAGE_MAX + 1, .flags = RUI_WHOLE};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_DATA, .len = 1, .flags = RUI_WHOLE | RUI_FENCE};
    assert_int_equal(decode(f), RU_OK);
    f.flags = RUI_FENCE;
    assert_int_equal(decode(f), RU_E_PEER);
    f.flags = RUI_FENCE | RUI_LAST;
    assert_int_equal(decode(f), RU_OK);
    f = (rui_frame){.type = RUI_MESSAGE, .len = RUI_MESSAGE_MAX + 1};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_ACK};
    assert_int_equal(decode(f), RU_E_PEER); /* of what? */
    f.flags = RUI_DONE | RUI_STOPPED;
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_ACK, .flags = RUI_HELD, .len = 17};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_ACK, .flags = RUI_DONE, .len = 16};
    assert_int_equal(decode(f), RU_E_PEER);
    f.len = RUI_MORE_MAX * RUI_NAME_BYTES;
    assert_int_equal(decode(f), RU_OK);
    f.len += RUI_NAME_BYTES;
    assert_int_equal(decode(f), RU_E_PEER);
    f.flags = RUI_DONE | RUI_STAMP;
    f.len = RUI_MORE_MAX * (RUI_NAME_BYTES + RUI_STAMP_BYTES);
    assert_int_equal(decode(f), RU_OK);
    f.len += RUI_NAME_BYTES + RUI_STAMP_BYTES;
    assert_int_equal(decode(f), RU_E_PEER);
    f.len = RUI_NAME_BYTES;
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_ACK, .flags = RUI_STOPPED | RUI_STAMP};
    assert_int_equal(decode(f), RU_E_PEER);
    f.flags = RUI_STAMP;
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_ACK, .flags = RUI_STOPPED, .len = RUI_NAME_BYTES};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_ACK, .flags = RUI_HELD, .len = 16 * (RUI_HELD_MAX + 1)};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_GRANT, .len = 1};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_PROOF, .len = RUI_PROOF_BYTES - 1};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_HELLO, .len = RUI_HELLO_MAX + 1};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = (rui_frame_type)0, .len = 1};
    assert_int_equal(decode(f), RU_E_PEER);
    f = (rui_frame){.type = RUI_FRAME_TYPES, .len = 1};
    assert_int_equal(decode(f), RU_E_PEER);
    uint8_t head[RU_LINK_HEAD_BYTES];
    rui_frame_encode(&data, head);
    head[2]++;
    assert_int_equal(rui_frame_decode(head, &f, NULL), RU_E_UNSUPPORTED);
}

/* A stamp is the instant within 2048 ns, however late it is read within 262 ms. */
static void test_stamps(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    for (uint32_t k = 0; k < 10000; k++) {
        ru_time at = {(int64_t)(ru_rng_u64(&r) >> 4)};
        int64_t late_ns = (int64_t)ru_rng_below(&r, 262000000);
        int64_t off =
            ru_time_since(rui_stamp_time(rui_stamp_of(at), ru_time_after(at, late_ns)), at);
        assert_true(off >= -2048 && off <= 2048);
    }
    uint8_t name[RUI_NAME_BYTES + RUI_STAMP_BYTES];
    uint64_t stream;
    uint32_t iter;
    uint16_t stamp = 5;
    rui_more_encode(name, RUI_DONE | RUI_STAMP, UINT64_MAX, 8, 9);
    rui_more_decode(name, RUI_DONE, &stream, &iter, &stamp);
    assert_true(stream == UINT64_MAX && iter == 8 && stamp == 5);
    rui_more_decode(name, RUI_DONE | RUI_STAMP, &stream, &iter, &stamp);
    assert_true(stream == UINT64_MAX && iter == 8 && stamp == 9);
}

static void test_random_frames_round_trip(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    uint32_t good = 0;
    for (uint32_t k = 0; k < 200000; k++) {
        uint8_t head[RU_LINK_HEAD_BYTES], again[RU_LINK_HEAD_BYTES];
        for (uint32_t i = 0; i < sizeof head; i++) {
            head[i] = (uint8_t)ru_rng_u32(&r);
        }
        head[0] = 0x52;
        head[1] = 0x42;
        head[2] = RUI_FRAME_VERSION;
        head[3] = (uint8_t)(head[3] % 10);
        head[4] &= 3;
        head[5] &= (uint8_t)ru_rng_u32(&r) & 15;
        head[14] = head[15] = head[13] = 0;
        head[31] = head[30] = 0;
        rui_frame f;
        if (rui_frame_decode(head, &f, NULL) == RU_OK) {
            good++;
            rui_frame_encode(&f, again);
            assert_memory_equal(head, again, sizeof head);
        }
    }
    assert_true(good > 10000);
}

static void test_greetings_and_intervals(void **state)
{
    (void)state;
    rui_hello h = {.job = 1, .node = 2, .pair = 3, .wishes = 1, .address_len = 6}, back;
    memcpy(h.address, "host:1", 7);
    uint8_t buf[RUI_HELLO_MAX];
    int64_t n = rui_hello_encode(&h, buf);
    assert_int_equal(rui_hello_decode(buf, n, &back, NULL), RU_OK);
    assert_string_equal(back.address, "host:1");
    for (int64_t k = 0; k < n; k++) {
        assert_int_equal(rui_hello_decode(buf, k, &back, NULL), RU_E_PEER);
    }
    buf[n - 2] = '\n';
    assert_int_equal(rui_hello_decode(buf, n, &back, NULL), RU_E_PEER);
    rui_range held[RUI_HELD_MAX] = {{0, 5}, {7, 9}}, got[RUI_HELD_MAX];
    uint8_t bytes[16 * RUI_HELD_MAX];
    uint32_t count;
    int64_t size = rui_held_encode(held, 2, bytes);
    assert_int_equal(rui_held_decode(bytes, size, 9, got, &count), RU_OK);
    assert_int_equal(count, 2);
    assert_memory_equal(got, held, sizeof held[0] * 2);
    assert_int_equal(rui_held_decode(bytes, size, 8, got, &count), RU_E_PEER);
    held[1].from = 5; /* touches: one interval written as two */
    rui_held_encode(held, 2, bytes);
    assert_int_equal(rui_held_decode(bytes, size, 9, got, &count), RU_E_PEER);
    held[1] = (rui_range){8, 8};
    rui_held_encode(held, 2, bytes);
    assert_int_equal(rui_held_decode(bytes, size, 9, got, &count), RU_E_PEER);
}

/* label, a 0 byte, data, computed with Python's hmac module. */
static void test_hmac_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *key, *label, *data, *hex;
    } rows[] = {
        {"Jefe", "what do ya want", "for nothing?",
         "adf13648edae17564744ff0aef28b138a329fa4a8104ff63388d270cef395d2b"},
        {"a longer key than one block of the hash, which is sixty-four bytes long, as here", "", "",
         "ce71644ad01f51305072a1c8df9425212d274d517104f8a4d9e60b2d66b31e34"},
        {"k", "label", "part one and part two",
         "972b9ef6ca6bf33b4f8197c8307c9b919471138ac5b6f5cd3c1cd7d72904d176"},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        rui_hmac *h = NULL;
        ru_err err;
        assert_ok(
            rui_hmac_open((const uint8_t *)rows[i].key, (uint32_t)strlen(rows[i].key), &h, &err),
            err);
        for (uint32_t again = 0; again < 2; again++) {
            size_t n = strlen(rows[i].data), half = n / 2;
            const rui_hmac_part parts[2] = {{rows[i].data, (int64_t)half},
                                            {rows[i].data + half, (int64_t)(n - half)}};
            uint8_t mac[RUI_HMAC_BYTES];
            rui_hmac_of(h, rows[i].label, parts, 2, mac);
            for (uint32_t k = 0; k < RUI_HMAC_BYTES; k++) {
                static const char digits[] = "0123456789abcdef";
                assert_int_equal(digits[mac[k] >> 4], rows[i].hex[2 * k]);
                assert_int_equal(digits[mac[k] & 15], rows[i].hex[2 * k + 1]);
            }
        }
        rui_hmac_close(h);
    }
    uint8_t mine[RUI_HMAC_BYTES] = {1, 2, 3}, theirs[RUI_HMAC_BYTES] = {1, 2, 3};
    assert_true(rui_hmac_same(mine, theirs));
    for (uint32_t k = 0; k < RUI_HMAC_BYTES; k++) { /* all of it counts */
        theirs[k] ^= 0x10;
        assert_false(rui_hmac_same(mine, theirs));
        theirs[k] ^= 0x10;
    }
    rui_hmac *none = NULL;
    assert_int_equal(rui_hmac_open((const uint8_t *)"", 0, &none, NULL), RU_E_ARG);
}

RU_TESTS(comm_frame, cmocka_unit_test(test_layout), cmocka_unit_test(test_limits),
         cmocka_unit_test(test_stamps), cmocka_unit_test(test_random_frames_round_trip),
         cmocka_unit_test(test_greetings_and_intervals), cmocka_unit_test(test_hmac_vectors))
