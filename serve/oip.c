#include "serve/oip.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/scan.h"

static const char *const names[RU_DTYPE_COUNT] = {
    [RU_BOOL] = "BOOL",  [RU_U8] = "UINT8", [RU_U16] = "UINT16", [RU_U32] = "UINT32",
    [RU_U64] = "UINT64", [RU_I8] = "INT8",  [RU_I16] = "INT16",  [RU_I32] = "INT32",
    [RU_I64] = "INT64",  [RU_F16] = "FP16", [RU_F32] = "FP32",   [RU_F64] = "FP64",
    [RU_BF16] = "BF16"};

const char *ru_oip_datatype(ru_dtype t)
{
    return t < RU_DTYPE_COUNT ? names[t] : NULL;
}

/* -- requests ----------------------------------------------------------------------------------
 */

/* What the members of a tensor said, before they are put together. */
typedef struct member {
    ru_str name, datatype;
    int64_t dims[RU_RANK_MAX];
    uint32_t rank;
    bool has_shape, has_type, binary, has_binary;
    const char *data;     /* where its elements stand in the JSON; NULL: they do not */
    int64_t binary_bytes; /* -1: not binary */
} member;

static ru_status refuse(rui_scan *s, const char *what, ru_str name)
{
    if (s->st == RU_OK) {
        s->st = RU_FAIL(s->err, RU_E_DATA, "%s '%.*s' is not supported", what, RUI_CUT(name, 100));
    }
    return s->st;
}

static void read_shape(rui_scan *s, member *m)
{
    int64_t v;
    m->rank = 0;
    m->has_shape = true;
    for (bool first = rui_scan_open(s, '['); rui_scan_item(s, &first);) {
        if (!rui_scan_i64(s, &v)) {
            return;
        }
        if (m->rank == RU_RANK_MAX || v < 0) {
            (void)rui_scan_wrong(s, "a shape of at most 8 numbers from 0 on before it");
            return;
        }
        m->dims[m->rank++] = v;
    }
}

/* Parameters of a tensor. */
static void read_tensor_parameters(rui_scan *s, member *m, bool output)
{
    ru_str key;
    for (bool first = rui_scan_open(s, '{'); rui_scan_key(s, &first, &key);) {
        if (!output && ru_str_eq_c(key, "binary_data_size")) {
            if (rui_scan_i64(s, &m->binary_bytes) && m->binary_bytes < 0) {
                (void)rui_scan_wrong(s, "a size from 0 on before it");
            }
        } else if (output && ru_str_eq_c(key, "binary_data")) {
            m->has_binary = rui_scan_bool(s, &m->binary);
        } else if (output && ru_str_eq_c(key, "classification")) {
            int64_t classes;
            if (rui_scan_i64(s, &classes) && classes != 0) {
                (void)refuse(s, "the parameter of an output", key);
            }
        } else {
            (void)refuse(s, output ? "the parameter of an output" : "the parameter of an input",
                         key);
        }
    }
}

static void read_member(rui_scan *s, member *m, bool output)
{
    const char *from;
    ru_str key;
    *m = (member){.binary_bytes = -1};
    for (bool first = rui_scan_open(s, '{'); rui_scan_key(s, &first, &key);) {
        if (ru_str_eq_c(key, "name")) {
            (void)rui_scan_text(s, &m->name);
        } else if (ru_str_eq_c(key, "parameters")) {
            read_tensor_parameters(s, m, output);
        } else if (!output && ru_str_eq_c(key, "datatype")) {
            m->has_type = rui_scan_text(s, &m->datatype);
        } else if (!output && ru_str_eq_c(key, "shape")) {
            read_shape(s, m);
        } else if (!output && ru_str_eq_c(key, "data")) {
            (void)rui_scan_skip(s, &from);
            m->data = from;
        } else {
            (void)refuse(s, output ? "the member of an output" : "the member of an input", key);
        }
    }
}

static ru_status type_of(const member *m, ru_type *out, ru_err *err)
{
    ru_dtype t = RU_NONE;
    if (!m->has_shape || !m->has_type) {
        return RU_FAIL(err, RU_E_DATA, "input '%.*s' has no %s", RUI_CUT(m->name, 100),
                       m->has_shape ? "datatype" : "shape");
    }
    for (uint32_t k = 1; k < RU_DTYPE_COUNT; k++) {
        t = names[k] != NULL && ru_str_eq_c(m->datatype, names[k]) ? (ru_dtype)k : t;
    }
    t = ru_str_eq_c(m->datatype, "BYTES") ? RU_I64 : t;
    if (t == RU_NONE) {
        return RU_FAIL(err, RU_E_DATA,
                       "input '%.*s' has the datatype '%.*s', which this server does not take",
                       RUI_CUT(m->name, 100), RUI_CUT(m->datatype, 40));
    }
    *out = ru_type_make(t, m->rank, m->dims);
    int64_t count = ru_type_count(out);
    if (count < 0 || count > INT64_MAX / 8) {
        return RU_FAIL(err, RU_E_DATA, "the shape of input '%.*s' is too large",
                       RUI_CUT(m->name, 100));
    }
    return RU_OK;
}

/* Elements from the JSON: a tensor cannot have more than half the bytes of its text. */
static ru_status elements_of(rui_scan *s, const member *m, ru_texts *words, ru_oip_tensor *t)
{
    int64_t bytes = ru_type_bytes(&t->type);
    rui_scan at = *s;
    if (ru_type_count(&t->type) > (s->end - m->data) / 2 + 1) {
        return RU_FAIL(s->err, RU_E_DATA, "input '%.*s' has less data than its shape says",
                       RUI_CUT(t->name, 100));
    }
    void *data = ru_arena_alloc(s->arena, bytes, 64);
    if (data == NULL) {
        return RU_FAIL(s->err, RU_E_LIMIT, "no memory for the request");
    }
    at.p = m->data;
    if (!rui_scan_elements(&at, &t->type, t->texts ? words : NULL, data)) {
        return ru_err_wrap(s->err, at.st, "input '%.*s'", RUI_CUT(t->name, 100));
    }
    t->data = data;
    return RU_OK;
}

/* Texts behind the JSON: the length of each stands before it. */
static ru_status binary_texts(rui_scan *s, const member *m, const uint8_t **binary,
                              const uint8_t *end, ru_texts *words, ru_oip_tensor *t)
{
    int64_t n = ru_type_count(&t->type), left = m->binary_bytes;
    const uint8_t *p = *binary;
    int64_t *codes = n <= left / 4 && left <= end - p ? RU_NEW(s->arena, int64_t, n) : NULL;
    for (int64_t k = 0; codes != NULL && k < n && s->st == RU_OK; k++) {
        uint32_t bytes = left >= 4 ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                         (uint32_t)p[3] << 24
                                   : 0;
        left -= 4 + (int64_t)bytes;
        if (left < 0) {
            break;
        }
        (void)rui_scan_code(s, ru_str_n((const char *)p + 4, bytes), words, &codes[k]);
        p += 4 + (int64_t)bytes;
    }
    RU_TRY(s->st);
    if (codes == NULL || left != 0) {
        return RU_FAIL(
            s->err, RU_E_DATA,
            "the texts of input '%.*s' do not fit its %lld elements and the %lld bytes of "
            "binary_data_size",
            RUI_CUT(m->name, 100), (long long)n, (long long)m->binary_bytes);
    }
    t->data = codes;
    *binary = p;
    return RU_OK;
}

static ru_status input_of(rui_scan *s, const member *m, const uint8_t **binary, const uint8_t *end,
                          ru_texts *words, ru_oip_tensor *t)
{
    t->name = m->name;
    t->texts = ru_str_eq_c(m->datatype, "BYTES");
    RU_TRY(type_of(m, &t->type, s->err));
    int64_t bytes = ru_type_bytes(&t->type);
    if (m->binary_bytes < 0) {
        return m->data != NULL ? elements_of(s, m, words, t)
                               : RU_FAIL(s->err, RU_E_DATA,
                                         "input '%.*s' has no data: neither `data` nor the "
                                         "parameter binary_data_size",
                                         RUI_CUT(m->name, 100));
    }
    if (m->data != NULL) {
        return RU_FAIL(s->err, RU_E_DATA, "input '%.*s' has both `data` and binary data",
                       RUI_CUT(m->name, 100));
    }
    if (t->texts) {
        return binary_texts(s, m, binary, end, words, t);
    }
    if (m->binary_bytes != bytes || bytes > end - *binary) {
        return RU_FAIL(s->err, RU_E_DATA,
                       "input '%.*s' needs %lld bytes, binary_data_size says %lld and %lld are "
                       "left in the body",
                       RUI_CUT(m->name, 100), (long long)bytes, (long long)m->binary_bytes,
                       (long long)(end - *binary));
    }
    t->data = *binary;
    *binary += bytes;
    return RU_OK;
}

static ru_status too_many(rui_scan *s)
{
    s->st = RU_FAIL(s->err, RU_E_DATA, "a request may name at most %d tensors", RU_OIP_TENSORS_MAX);
    return s->st;
}

static void read_inputs(rui_scan *s, const uint8_t **binary, const uint8_t *end, ru_oip_request *r)
{
    member m;
    for (bool first = rui_scan_open(s, '['); rui_scan_item(s, &first);) {
        read_member(s, &m, false);
        if (s->st != RU_OK || (r->n_inputs == RU_OIP_TENSORS_MAX && too_many(s) != RU_OK)) {
            return;
        }
        s->st = input_of(s, &m, binary, end, &r->words, &r->inputs[r->n_inputs++]);
    }
}

/* `own`: bit k: output k says itself whether it is binary. */
static void read_outputs(rui_scan *s, ru_oip_request *r, uint64_t *own)
{
    member m;
    for (bool first = rui_scan_open(s, '['); rui_scan_item(s, &first);) {
        read_member(s, &m, true);
        if (s->st != RU_OK || (r->n_outputs == RU_OIP_TENSORS_MAX && too_many(s) != RU_OK)) {
            return;
        }
        *own |= m.has_binary ? UINT64_C(1) << r->n_outputs : 0;
        r->outputs[r->n_outputs++] = (ru_oip_tensor){.name = m.name, .binary = m.binary};
    }
}

/* A number, or a text that holds one (tritonclient of old). */
static void read_count(rui_scan *s, int64_t *out)
{
    const char *from = s->p;
    ru_str text;
    while (from < s->end && *from == ' ') {
        from++;
    }
    bool ok = from < s->end && *from == '"' ? rui_scan_text(s, &text) && ru_str_i64(text, out)
                                            : rui_scan_i64(s, out);
    if ((!ok || *out < 0) && s->st == RU_OK) {
        (void)rui_scan_wrong(s, "a whole number from 0 on before it");
    }
}

static void read_parameters(rui_scan *s, ru_oip_request *r)
{
    ru_str key;
    int64_t zero;
    bool no;
    for (bool first = rui_scan_open(s, '{'); rui_scan_key(s, &first, &key);) {
        if (ru_str_eq_c(key, "binary_data_output")) {
            (void)rui_scan_bool(s, &r->binary);
        } else if (ru_str_eq_c(key, "priority")) {
            read_count(s, &r->priority);
        } else if (ru_str_eq_c(key, "timeout")) {
            read_count(s, &r->timeout_us);
        } else if (ru_str_eq_c(key, "sequence_id")) {
            if (rui_scan_i64(s, &zero) && zero != 0) {
                (void)refuse(s, "the parameter", key);
            }
        } else if (ru_str_eq_c(key, "sequence_start") || ru_str_eq_c(key, "sequence_end")) {
            if (rui_scan_bool(s, &no) && no) {
                (void)refuse(s, "the parameter", key);
            }
        } else {
            (void)refuse(s, "the parameter", key);
        }
    }
}

static ru_status read_all(rui_scan *s, const uint8_t *binary, const uint8_t *end, ru_oip_request *r)
{
    ru_str key;
    uint64_t own = 0;
    bool has_inputs = false;
    for (bool first = rui_scan_open(s, '{'); rui_scan_key(s, &first, &key);) {
        if (ru_str_eq_c(key, "id")) {
            (void)rui_scan_text(s, &r->id);
        } else if (ru_str_eq_c(key, "parameters")) {
            read_parameters(s, r);
        } else if (ru_str_eq_c(key, "inputs") && !has_inputs) {
            has_inputs = true;
            read_inputs(s, &binary, end, r);
        } else if (ru_str_eq_c(key, "outputs") && r->n_outputs == 0) {
            read_outputs(s, r, &own);
        } else {
            (void)refuse(s, "the member", key);
        }
    }
    (void)rui_scan_end(s);
    RU_TRY(s->st);
    if (!has_inputs) {
        return RU_FAIL(s->err, RU_E_DATA, "the request has no member 'inputs'");
    }
    if (binary != end) {
        return RU_FAIL(s->err, RU_E_DATA, "%lld bytes of the body belong to no input",
                       (long long)(end - binary));
    }
    for (uint32_t k = 0; k < r->n_outputs; k++) {
        r->outputs[k].binary = own >> k & 1 ? r->outputs[k].binary : r->binary;
    }
    return RU_OK;
}

ru_status ru_oip_read(const void *body, int64_t size_bytes, int64_t json_bytes, ru_arena *arena,
                      ru_oip_request *out, ru_err *err)
{
    if (json_bytes > size_bytes) {
        return RU_FAIL(err, RU_E_DATA,
                       "Inference-Header-Content-Length is %lld, but the body has %lld bytes",
                       (long long)json_bytes, (long long)size_bytes);
    }
    const uint8_t *p = body, *end = p + size_bytes;
    json_bytes = json_bytes < 0 ? size_bytes : json_bytes;
    rui_scan s = rui_scan_over(p, json_bytes, arena, err);
    out->id = (ru_str){0};
    out->n_inputs = out->n_outputs = 0;
    out->binary = false;
    out->priority = out->timeout_us = 0;
    out->words = (ru_texts){.arena = arena};
    return read_all(&s, p + json_bytes, end, out);
}

/* A key with escapes may be any. */
bool ru_oip_may_have_priority(const void *body, int64_t size_bytes, int64_t json_bytes)
{
    static const char key[] = "priority";
    bool cut = json_bytes >= 0 && json_bytes < size_bytes;
    size_t n = (size_t)(cut ? json_bytes : size_bytes), at = 0;
    const char *text = body;
    if (n > 0 && memchr(text, '\\', n) != NULL) {
        return true;
    }
    while (n - at >= sizeof key - 1) {
        const char *next = memchr(text + at, key[0], n - at - (sizeof key - 2));
        if (next == NULL) {
            return false;
        }
        if (memcmp(next, key, sizeof key - 1) == 0) {
            return true;
        }
        at = (size_t)(next - text) + 1;
    }
    return false;
}

ru_status ru_oip_read_answer(const void *body, int64_t size_bytes, ru_arena *arena,
                             ru_oip_request *out, ru_err *err)
{
    rui_scan s = rui_scan_over(body, size_bytes, arena, err);
    const uint8_t *none = NULL;
    const char *from;
    ru_str key;
    *out = (ru_oip_request){.words = {.arena = arena}};
    for (bool first = rui_scan_open(&s, '{'); rui_scan_key(&s, &first, &key);) {
        if (ru_str_eq_c(key, "outputs") && out->n_inputs == 0) {
            read_inputs(&s, &none, none, out);
        } else {
            (void)rui_scan_skip(&s, &from);
        }
    }
    (void)rui_scan_end(&s);
    return s.st;
}

/* -- answers -----------------------------------------------------------------------------------
 */

/* Shortest decimal of at most 9 digits that reads back as the same float; 9 always do. */
static void put_f32(ru_text *t, float x)
{
    char buf[32];
    double a = fabs((double)x);
    if (a >= 1e-4 && a < 1e7) { /* n / 10^k: exact enough in doubles, no formatted printing */
        double scale = 1;
        for (int k = 0; k <= 12; k++, scale *= 10) {
            double n = nearbyint(a * scale);
            if ((float)(n / scale) == (float)a) {
                int at = (int)sizeof buf;
                uint64_t u = (uint64_t)n;
                for (int d = 0; d < k || u > 0 || d == k; d++) {
                    buf[--at] = (char)('0' + u % 10);
                    u /= 10;
                    if (d + 1 == k) {
                        buf[--at] = '.';
                    }
                }
                if (x < 0) {
                    buf[--at] = '-';
                }
                ru_text_put_n(t, buf + at, (int64_t)sizeof buf - at);
                return;
            }
        }
    }
    snprintf(buf, sizeof buf, "%.9g", (double)x);
    ru_text_put(t, buf);
}

/* The number of strict JSON that every reader takes for infinity. */
static void put_float(ru_text *t, double x, bool wide)
{
    if (isnan(x)) {
        ru_text_put(t, "null");
    } else if (isinf(x)) {
        ru_text_put(t, x < 0 ? "-1e999" : "1e999");
    } else if (wide) {
        ru_text_f64(t, x);
    } else {
        put_f32(t, (float)x);
    }
}

static void put_element(ru_text *t, ru_dtype type, const void *at)
{
    switch ((int)type) {
    case RU_F32:
        put_float(t, (double)*(const float *)at, false);
        return;
    case RU_F64:
        put_float(t, *(const double *)at, true);
        return;
    case RU_F16:
        put_float(t, (double)ru_f16_to_f32(*(const uint16_t *)at), false);
        return;
    case RU_BF16:
        put_float(t, (double)ru_bf16_to_f32(*(const uint16_t *)at), false);
        return;
    case RU_BOOL:
        ru_text_put(t, *(const uint8_t *)at != 0 ? "true" : "false");
        return;
    case RU_U64:
        ru_text_putf(t, "%llu", (unsigned long long)*(const uint64_t *)at);
        return;
    default:
        break;
    }
    int64_t v = type == RU_I8    ? *(const int8_t *)at
                : type == RU_U8  ? *(const uint8_t *)at
                : type == RU_I16 ? *(const int16_t *)at
                : type == RU_U16 ? *(const uint16_t *)at
                : type == RU_I32 ? *(const int32_t *)at
                : type == RU_U32 ? *(const uint32_t *)at
                                 : *(const int64_t *)at;
    ru_text_putf(t, "%lld", (long long)v);
}

static void put_tensor(ru_text *t, const ru_oip_tensor *o)
{
    ru_text_put(t, "{\"name\":");
    ru_text_json(t, o->name);
    ru_text_putf(t, ",\"datatype\":\"%s\",\"shape\":[", o->texts ? "BYTES" : names[o->type.dtype]);
    for (uint32_t d = 0; d < o->type.rank; d++) {
        ru_text_putf(t, "%s%lld", d > 0 ? "," : "", (long long)o->type.dims[d]);
    }
    if (o->binary) {
        ru_text_putf(t, "],\"parameters\":{\"binary_data_size\":%lld}}",
                     (long long)ru_oip_bytes(o));
        return;
    }
    ru_text_put(t, "],\"data\":[");
    const uint8_t *at = o->data;
    int64_t n = ru_type_count(&o->type), bytes = ru_dtype_bytes(o->type.dtype);
    for (int64_t i = 0; i < n; i++, at += bytes) {
        if (i > 0) {
            ru_text_char(t, ',', 1);
        }
        if (o->texts) {
            ru_text_json(t, ru_str_c(o->text[i]));
        } else {
            put_element(t, o->type.dtype, at);
        }
    }
    ru_text_put(t, "]}");
}

static void put_tensors(ru_text *t, const char *key, const ru_oip_tensor *list, uint32_t n)
{
    ru_text_putf(t, "\"%s\":[", key);
    for (uint32_t k = 0; k < n; k++) {
        ru_text_put(t, k > 0 ? "," : "");
        put_tensor(t, &list[k]);
    }
    ru_text_put(t, "]}");
}

int64_t ru_oip_bytes(const ru_oip_tensor *t)
{
    int64_t bytes = 0, n = t->texts ? ru_type_count(&t->type) : 0;
    for (int64_t i = 0; i < n; i++) {
        bytes += 4 + (int64_t)strlen(t->text[i]);
    }
    return t->texts ? bytes : ru_type_bytes(&t->type);
}

void ru_oip_pack(const ru_oip_tensor *t, uint8_t *into)
{
    for (int64_t i = 0, n = ru_type_count(&t->type); i < n; i++) {
        uint32_t bytes = (uint32_t)strlen(t->text[i]);
        for (int k = 0; k < 4; k++) {
            *into++ = (uint8_t)(bytes >> 8 * k);
        }
        memcpy(into, t->text[i], bytes);
        into += bytes;
    }
}

void ru_oip_answer(const char *model, const char *version, ru_str id, const ru_oip_tensor *outputs,
                   uint32_t n, ru_text *into)
{
    ru_text_put(into, "{\"model_name\":");
    ru_text_json(into, ru_str_c(model));
    ru_text_put(into, ",\"model_version\":");
    ru_text_json(into, ru_str_c(version));
    if (id.n > 0) {
        ru_text_put(into, ",\"id\":");
        ru_text_json(into, id);
    }
    ru_text_put(into, ",");
    put_tensors(into, "outputs", outputs, n);
}

void ru_oip_ask(const ru_oip_tensor *inputs, uint32_t n, ru_text *into)
{
    ru_text_put(into, "{");
    put_tensors(into, "inputs", inputs, n);
}
