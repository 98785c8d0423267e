#include "store/safetensors.h"

#include <string.h>
#include <unistd.h>

#include "test/test.h"

/* safetensors.numpy.save({w: f4 (2,3) of -1, -0.5 .. 1.5, ids: i8 [[1],[2]], s: f2 scalar 2.5,
 * e: f4 (0,4)}, metadata={format: pt, k: v}) */
/* clang-format off */
static const uint8_t written_by_python[322] = {
    16,1,0,0,0,0,0,0,123,34,95,95,109,101,116,97,100,97,116,97,95,95,34,58,123,34,107,34,58,34,
    118,34,44,34,102,111,114,109,97,116,34,58,34,112,116,34,125,44,34,105,100,115,34,58,123,34,
    100,116,121,112,101,34,58,34,73,54,52,34,44,34,115,104,97,112,101,34,58,91,50,44,49,93,44,34,
    100,97,116,97,95,111,102,102,115,101,116,115,34,58,91,48,44,49,54,93,125,44,34,101,34,58,123,
    34,100,116,121,112,101,34,58,34,70,51,50,34,44,34,115,104,97,112,101,34,58,91,48,44,52,93,44,
    34,100,97,116,97,95,111,102,102,115,101,116,115,34,58,91,49,54,44,49,54,93,125,44,34,119,34,
    58,123,34,100,116,121,112,101,34,58,34,70,51,50,34,44,34,115,104,97,112,101,34,58,91,50,44,51,
    93,44,34,100,97,116,97,95,111,102,102,115,101,116,115,34,58,91,49,54,44,52,48,93,125,44,34,
    115,34,58,123,34,100,116,121,112,101,34,58,34,70,49,54,34,44,34,115,104,97,112,101,34,58,91,
    93,44,34,100,97,116,97,95,111,102,102,115,101,116,115,34,58,91,52,48,44,52,50,93,125,125,32,
    32,32,32,32,32,1,0,0,0,0,0,0,0,2,0,0,0,0,0,0,0,0,0,128,191,0,0,0,191,0,0,0,0,0,0,0,63,0,0,128,
    63,0,0,192,63,0,65};
/* clang-format on */

static void reads_pythons_file(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_safetensors s;
    ru_err err;
    assert_ok(ru_safetensors_parse(written_by_python, sizeof written_by_python, &arena, &s, &err),
              err);
    assert_int_equal(s.tensors.n, 4);
    const ru_array *w = ru_arrays_find(&s.tensors, "w");
    assert_non_null(w);
    assert_int_equal(w->type.dims[0], 2);
    assert_true(((const float *)w->data)[5] == 1.5F);
    assert_memory_equal(ru_arrays_find(&s.tensors, "ids")->data, ((const int64_t[]){1, 2}), 16);
    const ru_array *half = ru_arrays_find(&s.tensors, "s");
    assert_int_equal(half->type.rank, 0);
    assert_true(ru_f16_to_f32(*(const uint16_t *)half->data) == 2.5F);
    assert_int_equal(ru_type_count(&ru_arrays_find(&s.tensors, "e")->type), 0);
    assert_string_equal(ru_meta_find(s.meta, s.n_meta, "format"), "pt");
    assert_null(ru_meta_find(s.meta, s.n_meta, "none"));
    ru_arena_fini(&arena);
}

static ru_status parse_header(const char *json, int64_t data_bytes, ru_err *err)
{
    int64_t n = (int64_t)strlen(json);
    uint8_t *bytes = calloc(1, (size_t)(8 + n + data_bytes));
    bytes[0] = (uint8_t)n;
    bytes[1] = (uint8_t)(n >> 8);
    memcpy(bytes + 8, json, (size_t)n);
    ru_arena arena;
    ru_arena_init(&arena, 1 << 20);
    ru_safetensors s;
    ru_status st = ru_safetensors_parse(bytes, 8 + n + data_bytes, &arena, &s, err);
    ru_arena_fini(&arena);
    free(bytes);
    return st;
}

static void hostile_headers(void **state)
{
    (void)state;
#define T(name, dtype, shape, b, e) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" b "," e "]}"
    static const struct {
        const char *json;
        int64_t data_bytes;
        ru_status st;
        const char *say;
    } cases[] = {
        {"{" T("a", "F32", "[2]", "0", "8") "}", 8, RU_OK, ""},
        {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "U8", "[3]", "8", "11") "}   ", 11, RU_OK,
         ""},
        {"{" T("b", "U8", "[3]", "8", "11") "," T("a", "F32", "[2]", "0", "8") "}", 11, RU_OK, ""},
        {"{}", 0, RU_OK, ""},
        {"{" T("a", "F32", "[2]", "0", "8") "}", 9, RU_E_DATA, "no tensor"},
        {"{" T("a", "F32", "[2]", "0", "8") "}", 7, RU_E_DATA, "outside"},
        {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8, RU_E_DATA,
         "overlaps"},
        {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "12", "16") "}", 16, RU_E_DATA,
         "gap"},
        {"{" T("a", "F32", "[2]", "0", "8") "," T("a", "F32", "[1]", "8", "12") "}", 12, RU_E_DATA,
         "JSON"},
        {"{" T("a", "F32", "[3]", "0", "8") "}", 8, RU_E_DATA, "does not match"},
        {"{" T("a", "F32", "[-2]", "0", "8") "}", 8, RU_E_DATA, "not a valid size"},
        {"{" T("a", "F32", "[2.0]", "0", "8") "}", 8, RU_E_DATA, "not a valid size"},
        {"{" T("a", "F32", "[1152921504606846976,16]", "0", "8") "}", 8, RU_E_DATA,
         "not a valid size"},
        {"{" T("a", "F32", "[4294967296,4294967296]", "0", "0") "}", 0, RU_E_DATA,
         "does not match"},
        {"{" T("a", "F8_E4M3", "[8]", "0", "8") "}", 8, RU_E_UNSUPPORTED, "F8_E4M3"},
        {"{" T("a", "F32", "[2]", "8", "0") "}", 8, RU_E_DATA, "outside"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, RU_E_UNSUPPORTED, "dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, RU_E_DATA, "data_offsets"},
        {"{\"a\":[]}", 8, RU_E_DATA, "dtype"},
        {"{\"__metadata__\":{\"a\":1}}", 0, RU_E_DATA, "text"},
        {"[1]", 0, RU_E_DATA, "header"},
        {"{\"a\":", 0, RU_E_DATA, "JSON"},
        {"{} x", 0, RU_E_DATA, "JSON"},
    };
#undef T
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_err err = {0};
        ru_status st = parse_header(cases[k].json, cases[k].data_bytes, &err);
        if (st != cases[k].st || strstr(err.text, cases[k].say) == NULL) {
            fail_msg("case %u: status %d, %s", k, (int)st, err.text);
        }
    }
}

static void every_cut(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof written_by_python; n++) {
        uint8_t *bytes = malloc(n + (n == 0)); /* exact: sanitizers see a step beyond */
        memcpy(bytes, written_by_python, n);
        ru_arena arena;
        ru_arena_init(&arena, 1 << 20);
        ru_safetensors s;
        ru_err err;
        assert_int_not_equal(ru_safetensors_parse(bytes, (int64_t)n, &arena, &s, &err), RU_OK);
        ru_arena_fini(&arena);
        free(bytes);
    }
}

/* Wherever the bytes lie, elements may be read as what they are. */
static void elements_are_aligned(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 8; shift++) {
        uint8_t *bytes = malloc(sizeof written_by_python + shift);
        memcpy(bytes + shift, written_by_python, sizeof written_by_python);
        ru_arena arena;
        ru_arena_init(&arena, 1 << 20);
        ru_safetensors s;
        ru_err err;
        assert_ok(ru_safetensors_parse(bytes + shift, sizeof written_by_python, &arena, &s, &err),
                  err);
        for (uint32_t k = 0; k < s.tensors.n; k++) {
            const ru_array *a = &s.tensors.at[k];
            assert_int_equal((uintptr_t)a->data % (uintptr_t)ru_dtype_bytes(a->type.dtype), 0);
        }
        assert_memory_equal(ru_arrays_find(&s.tensors, "ids")->data, ((const int64_t[]){1, 2}), 16);
        ru_arena_fini(&arena);
        free(bytes);
    }
}

static void writes_and_reads(void **state)
{
    (void)state;
    char path[] = "/tmp/rubato-st-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const uint8_t bits[3] = {1, 0, 1};
    const float x[2] = {1.25F, -3};
    const double d = 1e300;
    const ru_array in[] = {
        {"bits", {.dtype = RU_BOOL, .rank = 1, .dims = {3}}, bits, NULL},
        {"layer.0.weight \"q\" \xc3\xa4", {.dtype = RU_F32, .rank = 2, .dims = {1, 2}}, x, NULL},
        {"d", {.dtype = RU_F64}, &d, NULL},
        {"none", {.dtype = RU_F32, .rank = 1, .dims = {0}}, x, NULL},
    };
    const ru_meta meta[] = {{"step", "12"}};
    ru_err err;
    assert_ok(ru_safetensors_save(path, in, 4, meta, 1, &err), err);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_map_file map;
    ru_safetensors s;
    assert_ok(ru_safetensors_open(path, &arena, &map, &s, &err), err);
    assert_int_equal(s.tensors.n, 4);
    for (uint32_t k = 0; k < 4; k++) {
        const ru_array *a = ru_arrays_find(&s.tensors, in[k].name);
        assert_non_null(a);
        assert_true(ru_type_equal(&a->type, &in[k].type));
        assert_memory_equal(a->data, in[k].data, (size_t)ru_type_bytes(&a->type));
    }
    /* aligned: nothing was copied out of the map */
    const ru_array *first = ru_arrays_find(&s.tensors, "d");
    assert_true((const uint8_t *)first->data >= map.data &&
                (const uint8_t *)first->data < map.data + map.size_bytes);
    assert_int_equal((uintptr_t)first->data % 64, 0);
    assert_string_equal(ru_meta_find(s.meta, s.n_meta, "step"), "12");
    ru_file_unmap(&map);

    const ru_array twice[] = {in[0], in[0]};
    assert_int_equal(ru_safetensors_save(path, twice, 2, NULL, 0, &err), RU_E_UNSUPPORTED);
    assert_ok(ru_safetensors_open(path, &arena, &map, &s, &err), err); /* the old file is intact */
    ru_file_unmap(&map);
    ru_arena_fini(&arena);
    unlink(path);
}

RU_TESTS(store_safetensors, cmocka_unit_test(reads_pythons_file), cmocka_unit_test(hostile_headers),
         cmocka_unit_test(every_cut), cmocka_unit_test(elements_are_aligned),
         cmocka_unit_test(writes_and_reads))
