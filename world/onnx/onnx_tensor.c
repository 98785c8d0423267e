/* TensorProto: its head, and its elements in every form they come in. */
#include "world/onnx/onnx.h"
#include "world/onnx/onnx_proto.h"
#include "world/onnx/onnx_texts.h"

#include <string.h>

const char *rui_onnx_type_name(int32_t data_type)
{
    static const char *const names[] = {
        "undefined",      "float",      "uint8",          "int8",       "uint16",   "int16",
        "int32",          "int64",      "string",         "bool",       "float16",  "double",
        "uint32",         "uint64",     "complex64",      "complex128", "bfloat16", "float8e4m3fn",
        "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",     "float4e2m1"};
    return data_type >= 0 && data_type < (int32_t)RU_ARRAY_LEN(names) ? names[data_type]
                                                                      : "unknown";
}

static ru_status text_get(const ru_pb_field *f, ru_arena *arena, const char **out, ru_err *err)
{
    if (f->wire != RU_PB_LEN || memchr(f->data, 0, (size_t)f->size_bytes) != NULL) {
        return RU_FAIL(err, RU_E_DATA, "onnx: a tensor's field %u should be a text", f->number);
    }
    *out = ru_arena_strn(arena, (const char *)f->data, f->size_bytes);
    return *out != NULL ? RU_OK : RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
}

static ru_status dims_add(rui_onnx_tensor *t, const ru_pb_field *f, ru_err *err)
{
    uint64_t dims[RU_RANK_MAX];
    int64_t n = ru_pb_count(f, RU_PB_VARINT);
    if (n < 0 || n > RU_RANK_MAX - (int64_t)t->type.rank) {
        return RU_FAIL(err, n < 0 ? RU_E_DATA : RU_E_UNSUPPORTED,
                       "onnx: tensor '%s' has more than %d dimensions", t->name, RU_RANK_MAX);
    }
    n = ru_pb_values(f, RU_PB_VARINT, dims, n);
    for (int64_t k = 0; k < n; k++) {
        if (dims[k] > (uint64_t)INT64_MAX / 16) {
            return RU_FAIL(err, RU_E_DATA, "onnx: tensor '%s' has dimension %lld", t->name,
                           (long long)dims[k]);
        }
        t->type.dims[t->type.rank++] = (int64_t)dims[k];
    }
    return RU_OK;
}

/* "4096" of an external entry. */
static ru_status number_parse(const char *s, const char *key, int64_t *out, ru_err *err)
{
    int64_t v = 0;
    if (s == NULL || *s == 0) {
        return RU_FAIL(err, RU_E_DATA, "onnx: external data has an empty %s", key);
    }
    for (const char *c = s; *c != 0; c++) {
        if (*c < '0' || *c > '9' || v > (INT64_MAX - 9) / 10) {
            return RU_FAIL(err, RU_E_DATA, "onnx: external data has %s '%s', a size was expected",
                           key, s);
        }
        v = v * 10 + (*c - '0');
    }
    *out = v;
    return RU_OK;
}

static ru_status external_add(rui_onnx_tensor *t, ru_pb_in in, ru_arena *arena, ru_err *err)
{
    const char *key = "";
    const char *value = "";
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number == 1) {
            RU_TRY(text_get(&f, arena, &key, err));
        } else if (f.number == 2) {
            RU_TRY(text_get(&f, arena, &value, err));
        }
    }
    RU_TRY(ru_pb_in_end(&in, "an ONNX external entry", err));
    if (strcmp(key, "location") == 0) {
        t->location = value;
    } else if (strcmp(key, "offset") == 0) {
        return number_parse(value, key, &t->offset, err);
    } else if (strcmp(key, "length") == 0) {
        return number_parse(value, key, &t->length, err);
    }
    return RU_OK;
}

static ru_status tensor_field(rui_onnx_tensor *t, ru_pb_in *in, const ru_pb_field *f,
                              ru_arena *arena, ru_err *err)
{
    switch (f->number) {
    case 1:
        return dims_add(t, f, err);
    case 2:
        t->data_type = (int32_t)ru_pb_i64(in, f);
        break;
    case 3:
        return RU_FAIL(err, RU_E_UNSUPPORTED, "onnx: tensor '%s' is stored in segments", t->name);
    case 8:
        return text_get(f, arena, &t->name, err);
    case 9:
        if (f->wire != RU_PB_LEN) {
            return RU_FAIL(err, RU_E_DATA, "onnx: tensor '%s' has damaged raw data", t->name);
        }
        t->raw = (rui_onnx_bytes){f->data, f->size_bytes};
        break;
    case 13:
        return external_add(t, ru_pb_sub(f), arena, err);
    case 14:
        t->external = ru_pb_i64(in, f) == 1;
        break;
    default:
        break;
    }
    return RU_OK;
}

ru_status rui_onnx_tensor_parse(rui_onnx_bytes bytes, ru_arena *arena, rui_onnx_tensor *out,
                                ru_err *err)
{
    rui_onnx_tensor t = {.name = "", .bytes = bytes, .length = -1};
    ru_pb_in in = ru_pb_in_open(bytes.data, bytes.size_bytes);
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        RU_TRY(tensor_field(&t, &in, &f, arena, err));
    }
    RU_TRY(ru_pb_in_end(&in, "an ONNX tensor", err));
    t.type.dtype = ru_dtype_from_onnx(t.data_type);
    *out = t;
    return RU_OK;
}

static ru_status type_check(const rui_onnx_tensor *t, int64_t *size_bytes, ru_err *err)
{
    if (t->type.dtype == RU_NONE) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "onnx: tensor '%s' has element type %s (%d), which is not supported",
                       t->name, rui_onnx_type_name(t->data_type), t->data_type);
    }
    int64_t count = ru_type_count(&t->type);
    int64_t bytes = ru_dtype_bytes(t->type.dtype);
    if (count < 0 || count > INT64_MAX / 16) {
        return RU_FAIL(err, RU_E_DATA, "onnx: tensor '%s' has too many elements", t->name);
    }
    *size_bytes = count * bytes;
    return RU_OK;
}

/* Numbers of 4 bits as bytes: the low half of a byte comes first. */
static ru_status unpack(const rui_onnx_tensor *t, const uint8_t *data, int64_t n, ru_arena *arena,
                        const void **out, ru_err *err)
{
    uint8_t *to = ru_arena_alloc(arena, n, 64);
    if (to == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "onnx: no room for tensor '%s'", t->name);
    }
    for (int64_t k = 0; k < n; k++) {
        uint8_t bits = (data[k / 2] >> (k % 2 * 4)) & 0xf;
        to[k] = t->type.dtype == RU_I8 && bits > 7 ? (uint8_t)(bits | 0xf0) : bits;
    }
    *out = to;
    return RU_OK;
}

ru_status rui_onnx_tensor_bytes(const rui_onnx_tensor *t, const void *data, int64_t size_bytes,
                                ru_arena *arena, const void **out, ru_err *err)
{
    int64_t want = 0;
    RU_TRY(type_check(t, &want, err));
    if (rui_onnx_four_bits(t->data_type) && size_bytes == (want + 1) / 2) {
        return unpack(t, data, want, arena, out, err);
    }
    want = rui_onnx_four_bits(t->data_type) ? (want + 1) / 2 : want;
    if (size_bytes != want) {
        return RU_FAIL(err, RU_E_DATA,
                       "onnx: tensor '%s' has %lld bytes, its type and shape need %lld", t->name,
                       (long long)size_bytes, (long long)want);
    }
    if ((uintptr_t)data % (uintptr_t)ru_dtype_bytes(t->type.dtype) == 0 && want > 0) {
        *out = data;
        return RU_OK;
    }
    *out = ru_arena_copy(arena, data, want, 64);
    return *out != NULL ? RU_OK
                        : RU_FAIL(err, RU_E_LIMIT, "onnx: no room for tensor '%s'", t->name);
}

/* The field that carries elements of this type when raw_data is not used. */
static uint32_t elements_field(ru_dtype dtype, ru_pb_wire *wire)
{
    *wire = dtype == RU_F32 ? RU_PB_FIXED32 : dtype == RU_F64 ? RU_PB_FIXED64 : RU_PB_VARINT;
    switch (dtype) {
    case RU_F32:
        return 4;
    case RU_I64:
        return 7;
    case RU_F64:
        return 10;
    case RU_U32:
    case RU_U64:
        return 11;
    case RU_F16:
    case RU_BF16:
    case RU_I8:
    case RU_U8:
    case RU_I16:
    case RU_U16:
    case RU_I32:
    case RU_BOOL:
        return 5;
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    RU_CHECK(false);
    return 0;
}

static void element_store(uint8_t *into, uint64_t bits, int64_t bytes)
{
    memcpy(into, &bits, (size_t)bytes); /* little-endian: the low bytes come first */
}

ru_status rui_onnx_tensor_data(const rui_onnx_tensor *t, ru_arena *arena, const void **out,
                               ru_err *err)
{
    RU_CHECK(!t->external);
    int64_t want = 0;
    RU_TRY(type_check(t, &want, err));
    if (t->raw.data != NULL) {
        return rui_onnx_tensor_bytes(t, t->raw.data, t->raw.size_bytes, arena, out, err);
    }
    ru_pb_wire wire;
    uint32_t number = elements_field(t->type.dtype, &wire);
    int64_t bytes = ru_dtype_bytes(t->type.dtype);
    int64_t have = 0, count = want;
    bool packed = rui_onnx_four_bits(t->data_type);
    want = packed ? (want + 1) / 2 : want;
    ru_pb_in in = ru_pb_in_open(t->bytes.data, t->bytes.size_bytes);
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        int64_t n = f.number == number ? ru_pb_count(&f, wire) : 0;
        if (n < 0) {
            return RU_FAIL(err, RU_E_DATA, "onnx: tensor '%s' has damaged elements", t->name);
        }
        have += n;
    }
    if (have * bytes != want) {
        return RU_FAIL(err, RU_E_DATA, "onnx: tensor '%s' has %lld elements, its shape needs %lld",
                       t->name, (long long)have, (long long)(want / bytes));
    }
    uint8_t *data = ru_arena_alloc(arena, want, 64);
    if (data == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "onnx: no room for tensor '%s'", t->name);
    }
    uint8_t *at = data;
    in = ru_pb_in_open(t->bytes.data, t->bytes.size_bytes);
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number != number) {
            continue;
        }
        ru_pb_field one = f;
        int64_t n = ru_pb_count(&f, wire);
        for (int64_t k = 0; k < n; k++, at += bytes) {
            uint64_t bits = 0;
            if (f.wire == RU_PB_LEN && wire == RU_PB_VARINT) {
                RU_CHECK(ru_pb_values(&one, wire, &bits, 1) == 1);
                while ((*one.data & 0x80) != 0) {
                    one.data++, one.size_bytes--;
                }
                one.data++, one.size_bytes--;
            } else if (f.wire == RU_PB_LEN) {
                memcpy(&bits, f.data + k * bytes, (size_t)bytes);
            } else {
                bits = f.value;
            }
            element_store(at, t->type.dtype == RU_BOOL ? (bits != 0) : bits, bytes);
        }
    }
    *out = data;
    return packed ? unpack(t, data, count, arena, out, err) : RU_OK;
}

ru_status ru_onnx_tensor_read(const void *data, int64_t size_bytes, ru_texts *words,
                              ru_arena *arena, ru_type *type, const void **elements,
                              const char **name, ru_err *err)
{
    enum { TEXTS = 8 };
    rui_onnx_tensor t;
    RU_TRY(rui_onnx_tensor_parse((rui_onnx_bytes){data, size_bytes}, arena, &t, err));
    if (t.external) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "onnx: tensor '%s' is stored in another file",
                       t.name);
    }
    if (words != NULL && t.data_type == TEXTS) {
        rui_texts table = {.words = *words};
        t.type.dtype = RU_I64;
        RU_TRY(rui_texts_tensor(&table, &t, elements, err));
        *words = table.words;
    } else {
        RU_TRY(rui_onnx_tensor_data(&t, arena, elements, err));
    }
    *type = t.type;
    if (name != NULL) {
        *name = t.name;
    }
    return RU_OK;
}
