/* Records: keys as rfc8448 has them, every size in every cut, and nothing but the next record of
 * the other side opens. */
#include "env/link/tls_record.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { ROOM = RUI_RECORD_MAX, SIZES = 700 };

static uint8_t data[ROOM], record[ROOM], got[ROOM];
static const uint8_t secret[RUI_SECRET_BYTES] = "a secret of this test, 32 bytes";

static void fill(void)
{
    for (uint32_t k = 0; k < sizeof data; k++) {
        data[k] = (uint8_t)(k * 2654435761u >> 13);
    }
}

/* rfc8448 sec 3, "server_application_traffic_secret_0" and the keys that follow from it. */
static void test_keys(void **state)
{
    (void)state;
    static const uint8_t given[RUI_SECRET_BYTES] = {0xa1, 0x1a, 0xf9, 0xf0, 0x55, 0x31, 0xf8, 0x56,
                                                    0xad, 0x47, 0x11, 0x6b, 0x45, 0xa9, 0x50, 0x32,
                                                    0x82, 0x04, 0xb4, 0xf4, 0x4b, 0xfb, 0x6b, 0x3a,
                                                    0x4b, 0x4f, 0x1f, 0x3f, 0xcb, 0x63, 0x16, 0x43};
    static const uint8_t key[RUI_RECORD_KEY_BYTES] = {0x9f, 0x02, 0x28, 0x3b, 0x6c, 0x9c,
                                                      0x07, 0xef, 0xc2, 0x6b, 0xb9, 0xf2,
                                                      0xac, 0x92, 0xe3, 0x56};
    static const uint8_t iv[RUI_RECORD_IV_BYTES] = {0xcf, 0x78, 0x2b, 0x88, 0xdd, 0x83,
                                                    0x54, 0x9a, 0xad, 0xf1, 0xe9, 0x84};
    rui_record_key k;
    assert_true(rui_record_key_init(&k, given, true));
    assert_memory_equal(k.key, key, sizeof key);
    assert_memory_equal(k.iv, iv, sizeof iv);
    rui_record_key_fini(&k);
}

/* rfc8448 sec 3: the first record of application data of the client (its first under this key) and
 * of the server (its second, after a ticket): 50 bytes, 0 to 49. */
static void test_published_records(void **state)
{
    (void)state;
    static const uint8_t secrets[2][RUI_SECRET_BYTES] = {
        {0x9e, 0x40, 0x64, 0x6c, 0xe7, 0x9a, 0x7f, 0x9d, 0xc0, 0x5a, 0xf8,
         0x88, 0x9b, 0xce, 0x65, 0x52, 0x87, 0x5a, 0xfa, 0x0b, 0x06, 0xdf,
         0x00, 0x87, 0xf7, 0x92, 0xeb, 0xb7, 0xc1, 0x75, 0x04, 0xa5},
        {0xa1, 0x1a, 0xf9, 0xf0, 0x55, 0x31, 0xf8, 0x56, 0xad, 0x47, 0x11,
         0x6b, 0x45, 0xa9, 0x50, 0x32, 0x82, 0x04, 0xb4, 0xf4, 0x4b, 0xfb,
         0x6b, 0x3a, 0x4b, 0x4f, 0x1f, 0x3f, 0xcb, 0x63, 0x16, 0x43}};
    static const uint8_t published[2][67] = {
        {0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa, 0xfe, 0x82, 0x28, 0xba,
         0x55, 0xcb, 0xef, 0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc, 0xab, 0x3f, 0x2b,
         0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b, 0x39, 0x5b, 0xd5, 0x4a, 0x9a, 0x20, 0x44, 0x1e,
         0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2, 0x97, 0x70, 0x14, 0xbd, 0x1e,
         0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4},
        {0x2e, 0x93, 0x7e, 0x11, 0xef, 0x4a, 0xc7, 0x40, 0xe5, 0x38, 0xad, 0x36, 0x00, 0x5f,
         0xc4, 0xa4, 0x69, 0x32, 0xfc, 0x32, 0x25, 0xd0, 0x5f, 0x82, 0xaa, 0x1b, 0x36, 0xe3,
         0x0e, 0xfa, 0xf9, 0x7d, 0x90, 0xe6, 0xdf, 0xfc, 0x60, 0x2d, 0xcb, 0x50, 0x1a, 0x59,
         0xa8, 0xfc, 0xc4, 0x9c, 0x4b, 0xf2, 0xe5, 0xf0, 0xa2, 0x1c, 0x00, 0x47, 0xc2, 0xab,
         0xf3, 0x32, 0x54, 0x0d, 0xd0, 0x32, 0xe1, 0x67, 0xc2, 0x95, 0x5d}};
    uint8_t content[50];
    for (uint32_t k = 0; k < sizeof content; k++) {
        content[k] = (uint8_t)k;
    }
    for (uint32_t side = 0; side < 2; side++) {
        rui_record_key k;
        assert_true(rui_record_key_init(&k, secrets[side], true));
        for (uint32_t r = 0; r <= side; r++) {
            struct iovec iov = {content, sizeof content};
            rui_pieces from = {.iov = &iov, .n = 1};
            assert_true(rui_record_seal(&k, RUI_RECORD_DATA, &from, sizeof content, record));
        }
        assert_int_equal(rui_record_size(record), RUI_RECORD_HEAD + sizeof published[side]);
        assert_memory_equal(record + RUI_RECORD_HEAD, published[side], sizeof published[side]);
        rui_record_key_fini(&k);
    }
}

/* Pieces of random sizes, empty ones too. */
static uint32_t cut(uint8_t *at, uint32_t bytes, ru_rng *rng, struct iovec iov[8])
{
    uint32_t n = 0;
    for (; n < 7; n++) {
        uint32_t part = (uint32_t)ru_rng_below_u64(rng, bytes + 1);
        iov[n] = (struct iovec){at, part};
        at += part;
        bytes -= part;
    }
    iov[n++] = (struct iovec){at, bytes};
    return n;
}

static void pass(rui_record_key *a, rui_record_key *b, uint32_t bytes, ru_rng *rng)
{
    struct iovec from[8], to[8];
    rui_pieces source = {.iov = from, .n = cut(data, bytes, rng, from)};
    memset(got, 0, bytes);
    assert_true(rui_record_seal(a, RUI_RECORD_DATA, &source, bytes, record));
    uint32_t size = rui_record_size(record);
    assert_int_equal(size, bytes + RUI_RECORD_MORE);
    rui_pieces place = {.iov = to, .n = cut(got, bytes, rng, to)};
    rui_record_type type;
    assert_true(rui_record_open(b, record, size, &place, &type));
    assert_int_equal(type, RUI_RECORD_DATA);
    assert_memory_equal(got, data, bytes);
}

static void test_sizes(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    fill();
    rui_record_key a, b;
    assert_true(rui_record_key_init(&a, secret, true) && rui_record_key_init(&b, secret, false));
    for (uint32_t bytes = 0; bytes < SIZES; bytes++) {
        pass(&a, &b, bytes, &rng);
    }
    for (uint32_t bytes = RUI_RECORD_BYTES - 100; bytes <= RUI_RECORD_BYTES; bytes++) {
        pass(&a, &b, bytes, &rng);
        if (bytes % 40 == 0) {
            assert_true(rui_record_key_next(&a) && rui_record_key_next(&b));
        }
    }
    rui_record_key_fini(&a);
    rui_record_key_fini(&b);
}

static bool opens(const rui_record_key *before, uint32_t size)
{
    rui_record_key k;
    assert_true(rui_record_key_init(&k, secret, false));
    k.next = before->next;
    struct iovec iov = {got, sizeof got};
    rui_record_type type;
    bool right = rui_record_open(&k, record, size, &(rui_pieces){.iov = &iov, .n = 1}, &type);
    rui_record_key_fini(&k);
    return right;
}

static void test_forged(void **state)
{
    (void)state;
    enum { BYTES = 100, SIZE = BYTES + RUI_RECORD_MORE };
    fill();
    rui_record_key a, at = {.next = 2};
    assert_true(rui_record_key_init(&a, secret, true));
    a.next = 2;
    struct iovec iov = {data, BYTES};
    assert_true(
        rui_record_seal(&a, RUI_RECORD_DATA, &(rui_pieces){.iov = &iov, .n = 1}, BYTES, record));
    assert_true(opens(&at, SIZE));
    for (uint32_t k = 0; k < SIZE; k++) { /* each byte counts, the head's too */
        record[k] ^= 1;
        assert_false(opens(&at, SIZE));
        record[k] ^= 1;
    }
    assert_false(opens(&at, SIZE - 1));
    at.next = 1; /* left out */
    assert_false(opens(&at, SIZE));
    at.next = 3; /* repeated */
    assert_false(opens(&at, SIZE));
    rui_record_key_fini(&a);
}

static void test_heads(void **state)
{
    (void)state;
    static const struct {
        uint8_t head[RUI_RECORD_HEAD];
        uint32_t size;
    } heads[] = {
        {{23, 3, 3, 0, 17}, 22},   {{23, 3, 3, 0, 16}, 0},       {{23, 3, 3, 0, 0}, 0},
        {{22, 3, 3, 0, 17}, 0},    {{20, 3, 3, 0, 17}, 0},       {{23, 3, 1, 0, 17}, 0},
        {{23, 2, 3, 0, 17}, 0},    {{23, 3, 3, 0x41, 0}, 16645}, {{23, 3, 3, 0x41, 1}, 0},
        {{23, 3, 3, 255, 255}, 0},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(heads); k++) {
        assert_int_equal(rui_record_size(heads[k].head), heads[k].size);
    }
}

RU_TESTS(env_tls_record, cmocka_unit_test(test_keys), cmocka_unit_test(test_published_records),
         cmocka_unit_test(test_sizes), cmocka_unit_test(test_forged), cmocka_unit_test(test_heads))
