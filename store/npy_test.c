#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/npy.h"
#include "test/test.h"

/* Written by numpy 2: arange(6)/2-1 as f4 (2,3); arange(24) as i2 (2,3,4) column-major, version 2;
 * [1,-2,300000] as >i4; two texts; savez(x=the first, n=7); savez_compressed(zeros=(10,20),
 * b=[T,F]). */
/* clang-format off */
static const uint8_t npy_plain[152] = {
    147,78,85,77,80,89,1,0,118,0,123,39,100,101,115,99,114,39,58,32,39,60,102,52,39,44,32,39,102,
    111,114,116,114,97,110,95,111,114,100,101,114,39,58,32,70,97,108,115,101,44,32,39,115,104,97,
    112,101,39,58,32,40,50,44,32,51,41,44,32,125,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,10,0,0,128,191,0,0,0,191,0,0,0,0,0,0,0,63,0,0,128,63,0,0,192,
    63};
static const uint8_t npy_fortran_v2[176] = {
    147,78,85,77,80,89,2,0,116,0,0,0,123,39,100,101,115,99,114,39,58,32,39,60,105,50,39,44,32,39,
    102,111,114,116,114,97,110,95,111,114,100,101,114,39,58,32,84,114,117,101,44,32,39,115,104,97,
    112,101,39,58,32,40,50,44,32,51,44,32,52,41,44,32,125,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,10,0,0,12,0,4,0,16,0,8,0,20,0,1,0,13,0,5,0,17,0,9,0,21,0,2,0,14,
    0,6,0,18,0,10,0,22,0,3,0,15,0,7,0,19,0,11,0,23,0};
static const uint8_t npy_big[140] = {
    147,78,85,77,80,89,1,0,118,0,123,39,100,101,115,99,114,39,58,32,39,62,105,52,39,44,32,39,102,
    111,114,116,114,97,110,95,111,114,100,101,114,39,58,32,70,97,108,115,101,44,32,39,115,104,97,
    112,101,39,58,32,40,51,44,41,44,32,125,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,10,0,0,0,1,255,255,255,254,0,4,147,224};
static const uint8_t npy_text[144] = {
    147,78,85,77,80,89,1,0,118,0,123,39,100,101,115,99,114,39,58,32,39,60,85,50,39,44,32,39,102,
    111,114,116,114,97,110,95,111,114,100,101,114,39,58,32,70,97,108,115,101,44,32,39,115,104,97,
    112,101,39,58,32,40,50,44,41,44,32,125,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,10,97,0,0,0,0,0,0,0,98,0,0,0,99,0,0,0};
static const uint8_t npz_stored[522] = {
    80,75,3,4,45,0,0,0,0,0,0,0,33,0,75,74,104,1,255,255,255,255,255,255,255,255,5,0,20,0,120,46,
    110,112,121,1,0,16,0,152,0,0,0,0,0,0,0,152,0,0,0,0,0,0,0,147,78,85,77,80,89,1,0,118,0,123,39,
    100,101,115,99,114,39,58,32,39,60,102,52,39,44,32,39,102,111,114,116,114,97,110,95,111,114,
    100,101,114,39,58,32,70,97,108,115,101,44,32,39,115,104,97,112,101,39,58,32,40,50,44,32,51,41,
    44,32,125,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,10,
    0,0,128,191,0,0,0,191,0,0,0,0,0,0,0,63,0,0,128,63,0,0,192,63,80,75,3,4,45,0,0,0,0,0,0,0,33,0,
    35,184,240,108,255,255,255,255,255,255,255,255,5,0,20,0,110,46,110,112,121,1,0,16,0,136,0,0,0,
    0,0,0,0,136,0,0,0,0,0,0,0,147,78,85,77,80,89,1,0,118,0,123,39,100,101,115,99,114,39,58,32,39,
    60,105,56,39,44,32,39,102,111,114,116,114,97,110,95,111,114,100,101,114,39,58,32,70,97,108,
    115,101,44,32,39,115,104,97,112,101,39,58,32,40,41,44,32,125,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,10,7,0,0,0,0,0,0,0,80,75,1,2,45,3,
    45,0,0,0,0,0,0,0,33,0,75,74,104,1,152,0,0,0,152,0,0,0,5,0,0,0,0,0,0,0,0,0,0,0,128,1,0,0,0,0,
    120,46,110,112,121,80,75,1,2,45,3,45,0,0,0,0,0,0,0,33,0,35,184,240,108,136,0,0,0,136,0,0,0,5,
    0,0,0,0,0,0,0,0,0,0,0,128,1,207,0,0,0,110,46,110,112,121,80,75,5,6,0,0,0,0,2,0,2,0,102,0,0,0,
    142,1,0,0,0,0};
static const uint8_t npz_deflated[392] = {
    80,75,3,4,45,0,0,0,8,0,0,0,33,0,25,198,2,117,255,255,255,255,255,255,255,255,9,0,20,0,122,101,
    114,111,115,46,110,112,121,1,0,16,0,160,3,0,0,0,0,0,0,80,0,0,0,0,0,0,0,155,236,23,234,27,16,
    201,200,80,198,80,173,158,146,90,156,92,164,110,165,160,110,147,102,162,174,163,160,158,150,
    95,84,82,148,152,23,159,95,148,146,10,18,119,75,204,41,78,5,138,23,103,36,22,164,2,249,26,134,
    6,58,10,70,6,154,58,10,181,10,100,2,46,134,81,48,10,70,1,78,0,0,80,75,3,4,45,0,0,0,8,0,0,0,33,
    0,238,25,187,93,255,255,255,255,255,255,255,255,5,0,20,0,98,46,110,112,121,1,0,16,0,130,0,0,0,
    0,0,0,0,70,0,0,0,0,0,0,0,155,236,23,234,27,16,201,200,80,198,80,173,158,146,90,156,92,164,110,
    165,160,94,147,100,168,174,163,160,158,150,95,84,82,148,152,23,159,95,148,146,10,18,119,75,
    204,41,78,5,138,23,103,36,22,164,2,249,26,70,58,154,58,10,181,10,20,0,46,70,6,0,80,75,1,2,45,
    3,45,0,0,0,8,0,0,0,33,0,25,198,2,117,80,0,0,0,160,3,0,0,9,0,0,0,0,0,0,0,0,0,0,0,128,1,0,0,0,0,
    122,101,114,111,115,46,110,112,121,80,75,1,2,45,3,45,0,0,0,8,0,0,0,33,0,238,25,187,93,70,0,0,
    0,130,0,0,0,5,0,0,0,0,0,0,0,0,0,0,0,128,1,139,0,0,0,98,46,110,112,121,80,75,5,6,0,0,0,0,2,0,2,
    0,106,0,0,0,8,1,0,0,0,0};
/* clang-format on */

static void reads_numpy(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_err err;
    ru_array a;
    assert_ok(ru_npy_parse(npy_plain, sizeof npy_plain, &arena, &a, &err), err);
    assert_int_equal(a.type.dtype, RU_F32);
    assert_int_equal(a.type.rank, 2);
    assert_int_equal(a.type.dims[1], 3);
    assert_true(((const float *)a.data)[5] == 1.5F);

    assert_ok(ru_npy_parse(npy_fortran_v2, sizeof npy_fortran_v2, &arena, &a, &err), err);
    assert_int_equal(a.type.rank, 3);
    for (int16_t k = 0; k < 24; k++) {
        assert_int_equal(((const int16_t *)a.data)[k], k);
    }
    assert_ok(ru_npy_parse(npy_big, sizeof npy_big, &arena, &a, &err), err);
    assert_memory_equal(a.data, ((const int32_t[]){1, -2, 300000}), 12);
    assert_int_equal(ru_npy_parse(npy_text, sizeof npy_text, &arena, &a, &err), RU_E_UNSUPPORTED);
    ru_arena_fini(&arena);
}

/* numpy.save of what `head` says, elements behind it. */
static ru_status parse_made(const char *head, const void *elements, int64_t n, ru_texts *texts,
                            ru_arena *arena, ru_array *a, ru_err *err)
{
    uint8_t *b = ru_arena_zalloc(arena, 256, 64);
    assert_non_null(b);
    int len = snprintf((char *)b + 10, 118, "{%s}", head);
    memset(b + 10 + len, ' ', (size_t)(117 - len));
    memcpy(b, "\x93NUMPY\1\0\x76\0", 10);
    b[127] = '\n';
    memcpy(b + 128, elements, (size_t)n);
    ru_arrays list = {.texts = texts};
    ru_status st = ru_npz_read(b, 128 + n, arena, &list, err);
    *a = list.n == 1 ? list.at[0] : (ru_array){0};
    return st;
}

/* ml_dtypes 0.6 and numpy 2: array([1.5, -2], bfloat16) is '<V2'; array([1, 65535]) as u2. */
static void reads_halves_and_words(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        uint8_t bytes[4];
        ru_dtype dtype;
        uint16_t want[2];
    } rows[] = {{"<V2", {0xC0, 0x3F, 0x00, 0xC0}, RU_BF16, {0x3FC0, 0xC000}},
                {"|V2", {0xC0, 0x3F, 0x00, 0xC0}, RU_BF16, {0x3FC0, 0xC000}},
                {"<u2", {1, 0, 255, 255}, RU_U16, {1, 65535}},
                {">u2", {0, 1, 255, 255}, RU_U16, {1, 65535}}};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        char head[100];
        ru_array a;
        ru_err err = {0};
        (void)snprintf(head, sizeof head, "'descr': '%s', 'fortran_order': False, 'shape': (2,), ",
                       rows[k].descr);
        assert_ok(parse_made(head, rows[k].bytes, 4, NULL, &arena, &a, &err), err);
        assert_int_equal(a.type.dtype, rows[k].dtype);
        assert_memory_equal(a.data, rows[k].want, 4);
    }
    assert_true(ru_bf16_to_f32(0x3FC0) == 1.5F && ru_bf16_to_f32(0xC000) == -2);
    ru_arena_fini(&arena);
}

static const uint32_t smile[6] = {'a', 0xE9, 0x1F600, 'b', 0, 0}; /* "aé", U+1F600 "b", "" */

static void reads_texts(void **state)
{
    (void)state;
    static const uint8_t big[8] = {0, 0, 0, 'a', 0, 1, 0xF6, 0};
    static const char plain[] = "'descr': '<U2', 'fortran_order': False, 'shape': (3,), ";
    static const char *const want[] = {"aé", "😀b", ""};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_texts texts = {.arena = &arena};
    ru_array a;
    ru_err err = {0};
    assert_ok(parse_made(plain, smile, sizeof smile, &texts, &arena, &a, &err), err);
    assert_int_equal(a.type.dtype, RU_I64);
    for (uint32_t k = 0; k < 3; k++) {
        int64_t code;
        assert_string_equal(a.text[k], want[k]);
        assert_ok(ru_texts_code(&texts, want[k], &code, &err), err);
        assert_true(((const int64_t *)a.data)[k] == code);
    }
    assert_int_equal(parse_made(plain, smile, sizeof smile, NULL, &arena, &a, &err),
                     RU_E_UNSUPPORTED);
    assert_ok(parse_made("'descr': '>U1', 'fortran_order': False, 'shape': (2,), ", big, sizeof big,
                         &texts, &arena, &a, &err),
              err);
    assert_string_equal(a.text[1], "😀");
    assert_ok(parse_made("'descr': '<U1', 'fortran_order': True, 'shape': (2, 2), ", smile, 16,
                         &texts, &arena, &a, &err),
              err);
    assert_string_equal(a.text[1], "😀"); /* row 0 is of elements 0 and 2 */
    assert_string_equal(a.text[2], "é");
    assert_int_equal(parse_made("'descr': '<U6', 'fortran_order': False, 'shape': (1,), ",
                                (const uint32_t[6]){'a', 0, 'b'}, 24, &texts, &arena, &a, &err),
                     RU_E_DATA);
    ru_arena_fini(&arena);
}

static void reads_archives(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_err err;
    ru_arrays list = {0};
    assert_ok(ru_npz_parse(npz_stored, sizeof npz_stored, &arena, &list, &err), err);
    assert_int_equal(list.n, 2);
    const ru_array *n = ru_arrays_find(&list, "n");
    assert_non_null(n);
    assert_int_equal(n->type.rank, 0);
    assert_int_equal(*(const int64_t *)n->data, 7);
    assert_true(((const float *)ru_arrays_find(&list, "x")->data)[0] == -1.0F);

    assert_ok(ru_npz_parse(npz_deflated, sizeof npz_deflated, &arena, &list, &err), err);
    const ru_array *zeros = ru_arrays_find(&list, "zeros");
    assert_non_null(zeros);
    assert_int_equal(zeros->type.dims[1], 20);
    assert_true(((const float *)zeros->data)[199] == 0);
    assert_memory_equal(ru_arrays_find(&list, "b")->data, "\1\0", 2);
    ru_arena_fini(&arena);
}

/* Every cut and every changed byte is either noticed or harmless; nothing is read outside. The
 * bytes stand at the end of an exact allocation, so that sanitizers see a step beyond. */
static void cut_and_flipped(void **state)
{
    (void)state;
    static const struct {
        const uint8_t *data;
        int64_t n;
    } files[] = {{npz_stored, sizeof npz_stored}, {npz_deflated, sizeof npz_deflated}};
    for (uint32_t f = 0; f < RU_ARRAY_LEN(files); f++) {
        for (int64_t n = 0; n < 2 * files[f].n; n++) {
            int64_t size = n < files[f].n ? n : files[f].n;
            uint8_t *bytes = malloc((size_t)size + (size == 0));
            memcpy(bytes, files[f].data, (size_t)size);
            if (n >= files[f].n) {
                bytes[n - files[f].n] ^= 0x55;
            }
            ru_arena arena;
            ru_arena_init(&arena, 1 << 24);
            ru_arrays list = {0};
            ru_err err;
            ru_status st = ru_npz_parse(bytes, size, &arena, &list, &err);
            assert_true(n >= files[f].n || st != RU_OK);
            ru_arena_fini(&arena);
            free(bytes);
        }
    }
}

/* One number of the archive changed: which sentence comes. Offsets are those of the zip format:
 * directory entries begin at 398 and 449 (stored), at 264 (deflated). */
static void every_number_is_checked(void **state)
{
    (void)state;
    static const struct {
        bool deflated;
        int32_t at[2];
        uint8_t value[2];
        ru_status st;
        const char *words;
    } rows[] = {
        {false, {200, 200}, {0x7f, 0x7f}, RU_E_DATA, "checksum"},
        {false, {418, 418}, {151, 151}, RU_E_DATA, "two sizes"},
        {false, {470, 474}, {1, 1}, RU_E_DATA, "beyond the end"},
        {false, {492, 492}, {1, 1}, RU_E_DATA, "no local header"},
        {false, {408, 408}, {9, 9}, RU_E_UNSUPPORTED, "method 9"},
        {true, {272, 272}, {1, 1}, RU_E_UNSUPPORTED, "encrypted"},
        {true, {288, 288}, {0xa1, 0xa1}, RU_E_DATA, "does not decompress"},
        {true, {288, 288}, {0x9f, 0x9f}, RU_E_DATA, "does not decompress"},
        {true, {290, 291}, {0xff, 0x7f}, RU_E_DATA, "size that is not possible"},
        {true, {280, 280}, {0, 0}, RU_E_DATA, "checksum"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        const uint8_t *from = rows[k].deflated ? npz_deflated : npz_stored;
        size_t n = rows[k].deflated ? sizeof npz_deflated : sizeof npz_stored;
        uint8_t bytes[sizeof npz_stored];
        ru_arena arena;
        ru_arrays list = {0};
        ru_err err = {0};
        memcpy(bytes, from, n);
        bytes[rows[k].at[0]] = rows[k].value[0];
        bytes[rows[k].at[1]] = rows[k].value[1];
        ru_arena_init(&arena, 1 << 24);
        ru_status st = ru_npz_parse(bytes, (int64_t)n, &arena, &list, &err);
        if (st != rows[k].st || strstr(err.text, rows[k].words) == NULL) {
            fail_msg("row %u: %s", k, st == RU_OK ? "taken" : err.text);
        }
        ru_arena_fini(&arena);
    }
}

static void hostile_headers(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }",
        "{'descr': '<f4', 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,",
        "{'descr': '<f4",
        /* a key as long as its buffer, one that fits with its end, a number beyond 64 bits */
        "{'0123456789abcdef0123456789abcdef': '<f4', 'shape': (1,), }",
        "{'0123456789abcdef0123456789abcde': '<f4', 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551617,), }",
        "",
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(heads); k++) {
        uint8_t bytes[256] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)strlen(heads[k]), 0};
        memcpy(bytes + 10, heads[k], strlen(heads[k]));
        ru_arena arena;
        ru_arena_init(&arena, 1 << 20);
        ru_array a;
        ru_err err;
        ru_status st = ru_npy_parse(bytes, 10 + (int64_t)strlen(heads[k]) + 4, &arena, &a, &err);
        assert_true(st == RU_E_DATA || st == RU_E_UNSUPPORTED);
        ru_arena_fini(&arena);
    }
}

static void writes_and_reads(void **state)
{
    (void)state;
    char path[] = "/tmp/rubato-npz-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    float x[6] = {1, 2, 3, 4, 5, 6};
    uint16_t half = ru_f32_to_bf16(1.5F);
    int64_t scalar = -9;
    const ru_array in[] = {
        {"x", {.dtype = RU_F32, .rank = 2, .dims = {2, 3}}, x, NULL},
        {"h", {.dtype = RU_BF16, .rank = 1, .dims = {1}}, &half, NULL},
        {"scalar", {.dtype = RU_I64}, &scalar, NULL},
        {"empty", {.dtype = RU_F32, .rank = 2, .dims = {0, 5}}, x, NULL},
    };
    ru_err err;
    assert_ok(ru_npz_save(path, in, 4, &err), err);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_map_file map;
    ru_arrays out = {0};
    assert_ok(ru_npz_open(path, &arena, &map, &out, &err), err);
    assert_int_equal(out.n, 4);
    assert_memory_equal(out.at[0].data, x, sizeof x);
    assert_int_equal(out.at[1].type.dtype, RU_F32);
    assert_true(*(const float *)out.at[1].data == 1.5F);
    assert_int_equal(*(const int64_t *)out.at[2].data, -9);
    assert_int_equal(ru_type_count(&out.at[3].type), 0);
    ru_file_unmap(&map);
    assert_ok(ru_npy_save(path, &in[0], &err), err);
    assert_ok(ru_npz_open(path, &arena, &map, &out, &err), err);
    assert_int_equal(out.n, 1);
    assert_memory_equal(out.at[0].data, x, sizeof x);
    ru_file_unmap(&map);
    ru_arena_fini(&arena);
    unlink(path);
}

RU_TESTS(store_npy, cmocka_unit_test(reads_numpy), cmocka_unit_test(reads_halves_and_words),
         cmocka_unit_test(reads_texts), cmocka_unit_test(reads_archives),
         cmocka_unit_test(cut_and_flipped), cmocka_unit_test(every_number_is_checked),
         cmocka_unit_test(hostile_headers), cmocka_unit_test(writes_and_reads))
