#include "store/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "store/foreign.h"

enum {
    HEADER_MAX = 100 * 1000 * 1000,
    TENSORS_MAX = 1 << 20,
    DATA_ALIGN = 64,
};

static const char *dtype_word(ru_dtype t)
{
    switch (t) {
#define RU_X(name, word, bytes, onnx, st, np) \
    case RU_##name:                           \
        return st;
        RU_DTYPE_LIST(RU_X)
#undef RU_X
    case RU_DTYPE_COUNT:
        break;
    }
    return "";
}

static ru_dtype dtype_find(const char *word)
{
    for (int t = RU_F32; t < RU_DTYPE_COUNT; t++) {
        if (strcmp(dtype_word((ru_dtype)t), word) == 0) {
            return (ru_dtype)t;
        }
    }
    return RU_NONE;
}

const char *ru_meta_find(const ru_meta *meta, uint32_t n, const char *key)
{
    for (uint32_t k = 0; k < n; k++) {
        if (strcmp(meta[k].key, key) == 0) {
            return meta[k].value;
        }
    }
    return NULL;
}

/* -- reading ----------------------------------------------------------------------------------- */

typedef struct span {
    int64_t begin, end;
    uint32_t tensor;
} span;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "safetensors: the arena is full");
}

/* A JSON integer in 0 .. max. */
static bool size_get(const json_t *j, int64_t max, int64_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0 || json_integer_value(j) > max) {
        return false;
    }
    *out = json_integer_value(j);
    return true;
}

static ru_status shape_get(const char *name, const json_t *j, ru_type *type, ru_err *err)
{
    size_t rank = json_array_size(j);
    if (!json_is_array(j)) {
        return RU_FAIL(err, RU_E_DATA, "safetensors: tensor '%s' has no shape", name);
    }
    if (rank > RU_RANK_MAX) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "safetensors: tensor '%s' has %zu dimensions, at most "
                       "%d are supported",
                       name, rank, RU_RANK_MAX);
    }
    for (size_t k = 0; k < rank; k++) {
        if (!size_get(json_array_get(j, k), INT64_MAX / 16, &type->dims[k])) {
            return RU_FAIL(err, RU_E_DATA,
                           "safetensors: tensor '%s' has a dimension that is not a valid size",
                           name);
        }
    }
    type->rank = (uint32_t)rank;
    return RU_OK;
}

static ru_status tensor_get(const char *name, const json_t *j, int64_t data_bytes, ru_type *type,
                            span *at, ru_err *err)
{
    const json_t *dtype = json_object_get(j, "dtype");
    const json_t *offsets = json_object_get(j, "data_offsets");
    if (!json_is_object(j) || !json_is_string(dtype) || json_object_size(j) != 3) {
        return RU_FAIL(err, RU_E_DATA,
                       "safetensors: tensor '%s' should have dtype, shape and data_offsets", name);
    }
    *type = (ru_type){.dtype = dtype_find(json_string_value(dtype))};
    if (type->dtype == RU_NONE) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "safetensors: tensor '%s' has element type '%.40s', which is not supported",
                       name, json_string_value(dtype));
    }
    RU_TRY(shape_get(name, json_object_get(j, "shape"), type, err));
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !size_get(json_array_get(offsets, 0), data_bytes, &at->begin) ||
        !size_get(json_array_get(offsets, 1), data_bytes, &at->end) || at->begin > at->end) {
        return RU_FAIL(err, RU_E_DATA,
                       "safetensors: tensor '%s' has data_offsets outside the %lld bytes of data",
                       name, (long long)data_bytes);
    }
    int64_t count = ru_type_count(type);
    if (count < 0 || count > INT64_MAX / 16 ||
        count * ru_dtype_bytes(type->dtype) != at->end - at->begin) {
        return RU_FAIL(
            err, RU_E_DATA,
            "safetensors: tensor '%s' has %lld bytes, which does not match its dtype and shape",
            name, (long long)(at->end - at->begin));
    }
    return RU_OK;
}

static ru_status meta_get(const json_t *j, ru_arena *arena, ru_safetensors *out, ru_err *err)
{
    if (!json_is_object(j)) {
        return RU_FAIL(err, RU_E_DATA, "safetensors: __metadata__ should be an object of texts");
    }
    out->meta = RU_NEW(arena, ru_meta, json_object_size(j));
    if (out->meta == NULL) {
        return full(err);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)j, key, value)
    {
        if (!json_is_string(value)) {
            return RU_FAIL(err, RU_E_DATA, "safetensors: __metadata__ '%.60s' should be a text",
                           key);
        }
        ru_meta m = {ru_arena_str(arena, key), ru_arena_str(arena, json_string_value(value))};
        if (m.key == NULL || m.value == NULL) {
            return full(err);
        }
        out->meta[out->n_meta++] = m;
    }
    return RU_OK;
}

static int span_order(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Together the spans cover [0, data_bytes) once. */
static ru_status spans_check(span *spans, const ru_safetensors *s, int64_t data_bytes, ru_err *err)
{
    qsort(spans, s->tensors.n, sizeof *spans, span_order);
    int64_t at = 0;
    for (uint32_t k = 0; k < s->tensors.n; k++) {
        if (spans[k].begin != at) {
            return RU_FAIL(err, RU_E_DATA, "safetensors: tensor '%s' %s at byte %lld of the data",
                           s->tensors.at[spans[k].tensor].name,
                           spans[k].begin < at ? "overlaps another one" : "leaves a gap before it",
                           (long long)spans[k].begin);
        }
        at = spans[k].end;
    }
    if (at != data_bytes) {
        return RU_FAIL(err, RU_E_DATA,
                       "safetensors: %lld bytes of data belong to no tensor (cut off or damaged)",
                       (long long)(data_bytes - at));
    }
    return RU_OK;
}

static ru_status tensors_get(const json_t *root, const uint8_t *data, int64_t data_bytes,
                             ru_arena *arena, ru_safetensors *out, ru_err *err)
{
    size_t n_max = json_object_size(root);
    span *spans = n_max <= TENSORS_MAX ? RU_NEW(arena, span, n_max) : NULL;
    if (spans == NULL) {
        return full(err);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            RU_TRY(meta_get(value, arena, out, err));
            continue;
        }
        ru_array a = {.name = ru_arena_str(arena, key)};
        if (a.name == NULL) {
            return full(err);
        }
        span *at = &spans[out->tensors.n];
        at->tensor = out->tensors.n;
        RU_TRY(tensor_get(a.name, value, data_bytes, &a.type, at, err));
        a.data = data + at->begin;
        if ((uintptr_t)a.data % (uintptr_t)ru_dtype_bytes(a.type.dtype) != 0) {
            a.data = ru_arena_copy(arena, a.data, at->end - at->begin, 64);
            if (a.data == NULL) {
                return full(err);
            }
        }
        RU_TRY(ru_arrays_add(&out->tensors, arena, &a, err));
    }
    return spans_check(spans, out, data_bytes, err);
}

ru_status ru_safetensors_parse(const void *data, int64_t size_bytes, ru_arena *arena,
                               ru_safetensors *out, ru_err *err)
{
    const uint8_t *bytes = data;
    uint64_t n = 0;
    for (int k = 0; k < 8 && size_bytes >= 8; k++) {
        n |= (uint64_t)bytes[k] << (8 * k);
    }
    if (size_bytes < 8 || n < 2 || n > HEADER_MAX || (int64_t)n > size_bytes - 8 ||
        bytes[8] != '{') {
        return RU_FAIL(
            err, RU_E_DATA,
            "safetensors: no header: %lld bytes, header length %llu (at most %d and within "
            "the file)",
            (long long)size_bytes, (unsigned long long)n, HEADER_MAX);
    }
    json_error_t why;
    json_t *root = json_loadb((const char *)bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL) {
        return RU_FAIL(err, RU_E_DATA, "safetensors: the header is not valid JSON at byte %d: %s",
                       why.position, why.text);
    }
    ru_safetensors s = {0};
    ru_status st = tensors_get(root, bytes + 8 + n, size_bytes - 8 - (int64_t)n, arena, &s, err);
    json_decref(root);
    if (st == RU_OK) {
        *out = s;
    }
    return st;
}

ru_status ru_safetensors_open(const char *path, ru_arena *arena, ru_map_file *map,
                              ru_safetensors *out, ru_err *err)
{
    ru_map_file m;
    RU_TRY(ru_file_map(path, &m, err));
    ru_status st = ru_safetensors_parse(m.data, m.size_bytes, arena, out, err);
    if (st != RU_OK) {
        st = ru_err_wrap(err, st, "%s", path);
        ru_err named = {0};
        if (ru_foreign_refuse(path, m.data, m.size_bytes, "safetensors", &named) != RU_OK) {
            st = RU_FAIL(err, RU_E_DATA, "%s", named.text);
        }
        ru_file_unmap(&m);
        return st;
    }
    *map = m;
    return RU_OK;
}

/* -- writing ----------------------------------------------------------------------------------- */

typedef struct rank_of {
    int64_t bytes;
    uint32_t tensor;
} rank_of;

static int rank_order(const void *a, const void *b)
{
    const rank_of *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->tensor < y->tensor ? -1 : 1;
}

static json_t *tensor_json(const ru_array *a, int64_t begin, int64_t end)
{
    json_t *shape = json_array();
    for (uint32_t k = 0; k < a->type.rank; k++) {
        json_array_append_new(shape, json_integer(a->type.dims[k]));
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_word(a->type.dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* The header as text; NULL when a name repeats, is no UTF-8, or memory ran out. */
static char *header_make(const ru_array *tensors, const rank_of *order, uint32_t n,
                         const ru_meta *meta, uint32_t n_meta)
{
    json_t *root = json_object();
    bool good = root != NULL;
    if (n_meta > 0) {
        json_t *m = json_object();
        for (uint32_t k = 0; k < n_meta; k++) {
            good = json_object_set_new(m, meta[k].key, json_string(meta[k].value)) == 0 && good;
        }
        good = json_object_set_new(root, "__metadata__", m) == 0 && good;
    }
    int64_t at = 0;
    for (uint32_t k = 0; k < n && good; k++) {
        const ru_array *a = &tensors[order[k].tensor];
        int64_t end = at + ru_type_bytes(&a->type);
        good = json_object_get(root, a->name) == NULL &&
               json_object_set_new(root, a->name, tensor_json(a, at, end)) == 0;
        at = end;
    }
    char *text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

typedef ru_status (*take_fn)(void *self, const void *data, int64_t size_bytes, ru_err *err);

static ru_status header_write(take_fn take, void *self, const char *text, ru_err *err)
{
    int64_t n = (int64_t)strlen(text);
    int64_t padded = (8 + n + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN - 8;
    uint8_t length[8];
    for (int k = 0; k < 8; k++) {
        length[k] = (uint8_t)((uint64_t)padded >> (8 * k));
    }
    char spaces[DATA_ALIGN];
    memset(spaces, ' ', sizeof spaces);
    if (padded > HEADER_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "safetensors: the header would be larger than %d bytes",
                       HEADER_MAX);
    }
    RU_TRY(take(self, length, 8, err));
    RU_TRY(take(self, text, n, err));
    return take(self, spaces, padded - n, err);
}

ru_status ru_safetensors_put(take_fn take, void *self, const ru_array *tensors, uint32_t n,
                             const ru_meta *meta, uint32_t n_meta, ru_err *err)
{
    rank_of *order = calloc((size_t)n + 1, sizeof *order);
    if (order == NULL) {
        return RU_FAIL(err, RU_E_MEM, "safetensors: no memory for %u tensors", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        order[k] = (rank_of){ru_dtype_bytes(tensors[k].type.dtype), k};
    }
    qsort(order, n, sizeof *order, rank_order);
    char *text = header_make(tensors, order, n, meta, n_meta);
    ru_status st =
        text != NULL
            ? header_write(take, self, text, err)
            : RU_FAIL(err, RU_E_UNSUPPORTED,
                      "safetensors: two tensors have the same name, or a name is not UTF-8");
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        const ru_array *a = &tensors[order[k].tensor];
        int64_t bytes = ru_type_bytes(&a->type);
        st = bytes > 0 ? take(self, a->data, bytes, err) : RU_OK;
    }
    free(text);
    free(order);
    return st;
}

static ru_status into_out(void *self, const void *data, int64_t size_bytes, ru_err *err)
{
    return ru_out_write(self, data, size_bytes, err);
}

ru_status ru_safetensors_write(ru_out *file, const ru_array *tensors, uint32_t n,
                               const ru_meta *meta, uint32_t n_meta, ru_err *err)
{
    return ru_safetensors_put(into_out, file, tensors, n, meta, n_meta, err);
}

ru_status ru_safetensors_save(const char *path, const ru_array *tensors, uint32_t n,
                              const ru_meta *meta, uint32_t n_meta, ru_err *err)
{
    ru_out *file = NULL;
    RU_TRY(ru_out_open(path, &file, err));
    ru_status st = ru_safetensors_write(file, tensors, n, meta, n_meta, err);
    if (st == RU_OK) {
        st = ru_out_commit(file, err);
    }
    ru_out_close(file);
    return st;
}
