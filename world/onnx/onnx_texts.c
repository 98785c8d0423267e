#include "world/onnx/onnx_texts.h"

#include <string.h>

ru_status rui_texts_mark(rui_texts *t, ru_value_id v, ru_err *err)
{
    if (v.v >= t->n_marks) {
        uint32_t n = v.v < 64 ? 128 : v.v * 2;
        uint8_t *more = ru_arena_zalloc(t->words.arena, n, 16);
        if (more == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
        }
        if (t->n_marks > 0) {
            memcpy(more, t->is_text, t->n_marks);
        }
        t->is_text = more;
        t->n_marks = n;
    }
    t->is_text[v.v] = 1;
    return RU_OK;
}

bool rui_texts_is(const rui_texts *t, ru_value_id v)
{
    return v.v < t->n_marks && t->is_text[v.v] != 0;
}

ru_status rui_texts_tensor(rui_texts *t, const rui_onnx_tensor *tensor, const void **out,
                           ru_err *err)
{
    enum { STRING_DATA = 6 };
    int64_t want = ru_type_count(&tensor->type), n = 0;
    int64_t *codes = want >= 0 && want < INT32_MAX ? RU_NEW(t->words.arena, int64_t, want) : NULL;
    if (codes == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "onnx: no room for tensor '%s'", tensor->name);
    }
    ru_pb_in in = ru_pb_in_open(tensor->bytes.data, tensor->bytes.size_bytes);
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number != STRING_DATA) {
            continue;
        }
        const char *text =
            f.wire != RU_PB_LEN || n == want || memchr(f.data, 0, (size_t)f.size_bytes) != NULL
                ? NULL
                : ru_arena_strn(t->words.arena, (const char *)f.data, f.size_bytes);
        if (text == NULL) {
            return RU_FAIL(err, RU_E_DATA, "onnx: tensor '%s' has damaged texts or too many",
                           tensor->name);
        }
        RU_TRY(ru_texts_code(&t->words, text, &codes[n++], err));
    }
    if (n != want) {
        return RU_FAIL(err, RU_E_DATA, "onnx: tensor '%s' has %lld texts, its shape needs %lld",
                       tensor->name, (long long)n, (long long)want);
    }
    *out = codes;
    return RU_OK;
}

static bool op_among(const char *op, const char *const *list, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        if (strcmp(list[k], op) == 0) {
            return true;
        }
    }
    return false;
}

ru_status rui_texts_pass(const rui_lift *l, bool *out, ru_err *err)
{
    static const char *const moves[] = {"Identity",  "Reshape",   "Flatten",  "Squeeze",
                                        "Unsqueeze", "Transpose", "Gather",   "Slice",
                                        "Concat",    "Split",     "Expand",   "Tile",
                                        "Where",     "Compress",  "GatherND", "GatherElements"};
    static const char *const asks[] = {"Equal", "Shape", "Size"};
    const char *op = l->op_name;
    bool all = strcmp(op, "Concat") == 0 || strcmp(op, "Equal") == 0, where = op[0] == 'W';
    *out = false;
    for (uint32_t k = 0; k < l->n_in; k++) {
        *out = *out || rui_texts_is(l->texts, l->in[k]);
    }
    if (!*out) {
        return RU_OK;
    }
    *out = op_among(op, moves, RU_ARRAY_LEN(moves));
    if (!*out && !op_among(op, asks, RU_ARRAY_LEN(asks))) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "its input is of texts, which this op cannot work on here; convert texts to "
                       "numbers before it (LabelEncoder, OneHotEncoder)");
    }
    for (uint32_t k = 0; k < l->n_in; k++) {
        bool text = all || (where ? k > 0 : k == 0);
        if (rui_texts_is(l->texts, l->in[k]) != text) {
            return RU_FAIL(err, RU_E_DATA, "input %u is of %s", k,
                           text ? "numbers, but others are of texts" : "texts");
        }
    }
    return RU_OK;
}

ru_status rui_texts_list(const rui_texts *t, const ru_value_id *ids, uint32_t n, const bool **out,
                         ru_err *err)
{
    bool *is = RU_NEW(t->words.arena, bool, n);
    if (is == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
    }
    for (uint32_t k = 0; k < n; k++) {
        is[k] = rui_texts_is(t, ids[k]);
    }
    *out = is;
    return RU_OK;
}
