#include "store/npy_impl.h"

#include <stdio.h>
#include <string.h>

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* -- the header: a Python literal of three known keys ------------------------------------------ */

typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) {
        c->at++;
    }
}

static bool accept(cursor *c, char x)
{
    skip_space(c);
    if (c->at < c->end && *c->at == x) {
        c->at++;
        return true;
    }
    return false;
}

/* 'text' or "text" without escapes into `into`. */
static bool quoted(cursor *c, char *into, int64_t size_bytes)
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) {
        return false;
    }
    char quote = *c->at++;
    int64_t n = 0;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' || n + 1 >= size_bytes) {
            return false;
        }
        into[n++] = *c->at++;
    }
    into[n] = 0;
    return accept(c, quote);
}

static bool word(cursor *c, const char *w)
{
    skip_space(c);
    int64_t n = (int64_t)strlen(w);
    if (c->end - c->at < n || memcmp(c->at, w, (size_t)n) != 0) {
        return false;
    }
    c->at += n;
    return true;
}

static bool number(cursor *c, int64_t *out)
{
    skip_space(c);
    const char *begin = c->at;
    int64_t v = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && v < INT64_MAX / 160) {
        v = v * 10 + (*c->at++ - '0');
    }
    *out = v;
    bool any = c->at > begin;
    if (c->at < c->end && *c->at == 'L') { /* Python 2 wrote 3L */
        c->at++;
    }
    return any;
}

typedef struct header {
    char descr[16];
    bool fortran;
    ru_type type;
    bool has_descr, has_order, has_shape;
} header;

static bool shape_read(cursor *c, ru_type *t)
{
    if (!accept(c, '(')) {
        return false;
    }
    while (!accept(c, ')')) {
        if (t->rank == RU_RANK_MAX || !number(c, &t->dims[t->rank])) {
            return false;
        }
        t->rank++;
        if (!accept(c, ',')) {
            return accept(c, ')');
        }
    }
    return true;
}

static bool header_read(cursor *c, header *h)
{
    if (!accept(c, '{')) {
        return false;
    }
    while (!accept(c, '}')) {
        char key[32];
        if (!quoted(c, key, sizeof key) || !accept(c, ':')) {
            return false;
        }
        if (strcmp(key, "descr") == 0 && !h->has_descr) {
            h->has_descr = quoted(c, h->descr, sizeof h->descr);
        } else if (strcmp(key, "fortran_order") == 0 && !h->has_order) {
            h->fortran = word(c, "True");
            h->has_order = h->fortran || word(c, "False");
        } else if (strcmp(key, "shape") == 0 && !h->has_shape) {
            h->has_shape = shape_read(c, &h->type);
        } else {
            return false;
        }
        if (!accept(c, ',')) {
            break;
        }
    }
    (void)accept(c, '}');
    skip_space(c);
    return c->at == c->end && h->has_descr && h->has_order && h->has_shape;
}

/* '<f4' to f32; *swap when the bytes are big-endian. */
static ru_dtype descr_dtype(const char *descr, bool *swap)
{
    static const struct {
        const char *code;
        ru_dtype dtype;
    } table[] = {{"f2", RU_F16}, {"f4", RU_F32},  {"f8", RU_F64}, {"i1", RU_I8},  {"i2", RU_I16},
                 {"i4", RU_I32}, {"i8", RU_I64},  {"u1", RU_U8},  {"u2", RU_U16}, {"u4", RU_U32},
                 {"u8", RU_U64}, {"b1", RU_BOOL}, {"V2", RU_BF16}};
    if (descr[0] == 0 || strchr("<>|=", descr[0]) == NULL) {
        return RU_NONE;
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(table); k++) {
        if (strcmp(descr + 1, table[k].code) == 0) {
            *swap = descr[0] == '>' && ru_dtype_bytes(table[k].dtype) > 1;
            return table[k].dtype;
        }
    }
    return RU_NONE;
}

/* -- reading ----------------------------------------------------------------------------------- */

/* Element (i0, i1, ...) of the row-major copy is at i0 + d0*(i1 + d1*(...)) of the column-major
 * one. */
static void from_fortran(const uint8_t *src, const ru_type *t, int64_t bytes, uint8_t *dst)
{
    int64_t index[RU_RANK_MAX] = {0};
    int64_t count = ru_type_count(t);
    for (int64_t k = 0; k < count; k++) {
        int64_t from = 0;
        for (uint32_t d = t->rank; d-- > 0;) {
            from = from * t->dims[d] + index[d];
        }
        memcpy(dst + k * bytes, src + from * bytes, (size_t)bytes);
        for (uint32_t d = t->rank; d-- > 0 && ++index[d] == t->dims[d];) {
            index[d] = 0;
        }
    }
}

static void swap_bytes(uint8_t *data, int64_t count, int64_t bytes)
{
    for (int64_t k = 0; k < count; k++, data += bytes) {
        for (int64_t i = 0; i < bytes / 2; i++) {
            uint8_t x = data[i];
            data[i] = data[bytes - 1 - i];
            data[bytes - 1 - i] = x;
        }
    }
}

/* Characters of an element of texts: '<U7' gives 7; -1: no such type. */
static int64_t text_chars(const char *descr)
{
    int64_t n = 0;
    if (descr[0] == 0 || strchr("<>=", descr[0]) == NULL || descr[1] != 'U' || descr[2] == 0) {
        return -1;
    }
    for (const char *c = descr + 2; *c != 0; c++) {
        if (*c < '0' || *c > '9') {
            return -1;
        }
        n = n * 10 + (*c - '0');
    }
    return n;
}

/* The UTF-8 form of code point c; 0: it is none. */
static int utf8_put(uint32_t c, char *to)
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
        return 0;
    }
    static const uint8_t heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int k = n - 1; k > 0; k--) {
        to[k] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    to[0] = (char)(heads[n] | c);
    return n;
}

/* One element: `chars` code points, ended early by 0s. NULL: damaged, or the arena is full. */
static const char *text_read(const uint8_t *data, int64_t chars, ru_arena *arena)
{
    char *text = ru_arena_alloc(arena, chars * 4 + 1, 1);
    int64_t n = 0, at = 0;
    for (; text != NULL && at < chars; at++) {
        uint32_t c;
        memcpy(&c, data + at * 4, sizeof c);
        int more = utf8_put(c, text + n);
        if (more == 0 && c != 0) {
            return NULL;
        }
        if (c == 0) {
            break;
        }
        n += more;
    }
    for (; text != NULL && at < chars; at++) {
        uint32_t c;
        memcpy(&c, data + at * 4, sizeof c);
        if (c != 0) {
            return NULL; /* a NUL inside */
        }
    }
    if (text != NULL) {
        text[n] = 0;
    }
    return text;
}

/* Elements of `words` units of `bytes` each, row-major and of this machine's byte order: a view of
 * `data`, or a copy. */
static ru_status elements_put(const uint8_t *data, const header *h, int64_t words, int64_t bytes,
                              bool swap, ru_arena *arena, const void **out, ru_err *err)
{
    int64_t count = ru_type_count(&h->type);
    bool turned = h->fortran && h->type.rank > 1;
    *out = data;
    if (!turned && !swap && (uintptr_t)data % (uintptr_t)bytes == 0) {
        return RU_OK;
    }
    int64_t all = count * words * bytes;
    uint8_t *copy = ru_arena_alloc(arena, all, 64);
    if (copy == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "npy: no room for %lld bytes", (long long)all);
    }
    if (turned) {
        from_fortran(data, &h->type, words * bytes, copy);
    } else if (all > 0) {
        memcpy(copy, data, (size_t)all);
    }
    if (swap) {
        swap_bytes(copy, count * words, bytes);
    }
    *out = copy;
    return RU_OK;
}

static ru_status elements_read(const uint8_t *data, const header *h, bool swap, ru_arena *arena,
                               ru_array *out, ru_err *err)
{
    *out = (ru_array){.type = h->type};
    return elements_put(data, h, 1, ru_dtype_bytes(h->type.dtype), swap, arena, &out->data, err);
}

/* Texts become numbers; `h->type` is of I64. */
static ru_status texts_read(const uint8_t *data, const header *h, int64_t chars, ru_arena *arena,
                            ru_texts *texts, ru_array *out, ru_err *err)
{
    int64_t count = ru_type_count(&h->type);
    const char **text = RU_NEW(arena, const char *, count);
    int64_t *codes = RU_NEW(arena, int64_t, count);
    const void *points;
    RU_TRY(elements_put(data, h, chars, 4, h->descr[0] == '>', arena, &points, err));
    for (int64_t k = 0; k < count && codes != NULL && text != NULL; k++) {
        text[k] = text_read((const uint8_t *)points + k * chars * 4, chars, arena);
        if (text[k] == NULL) {
            return RU_FAIL(err, RU_E_DATA, "npy: element %lld is no text", (long long)k);
        }
        RU_TRY(ru_texts_code(texts, text[k], &codes[k], err));
    }
    if (codes == NULL || text == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "npy: no room for %lld texts", (long long)count);
    }
    *out = (ru_array){.type = h->type, .data = codes, .text = text};
    return RU_OK;
}

/* Where the header's text stands. */
static ru_status header_find(const uint8_t *b, int64_t size_bytes, cursor *text, ru_err *err)
{
    bool one = size_bytes >= 10 && b[6] == 1;
    bool two = size_bytes >= 12 && (b[6] == 2 || b[6] == 3);
    if (size_bytes < 10 || memcmp(b, magic, sizeof magic) != 0 || (!one && !two)) {
        return RU_FAIL(err, RU_E_DATA, "npy: this is not an .npy file of version 1 to 3");
    }
    int64_t begin = one ? 10 : 12;
    int64_t n = (int64_t)b[8] | (int64_t)b[9] << 8;
    if (two) {
        n |= (int64_t)b[10] << 16 | (int64_t)b[11] << 24;
    }
    if (n > size_bytes - begin) {
        return RU_FAIL(err, RU_E_DATA, "npy: the header of %lld bytes reaches beyond the end",
                       (long long)n);
    }
    text->at = (const char *)b + begin;
    text->end = text->at + n;
    return RU_OK;
}

/* The header of a file of `size_bytes`, of which `head_bytes` are at hand; *at: its elements. */
static ru_status look(const uint8_t *head, int64_t head_bytes, int64_t size_bytes, bool texts,
                      header *out, bool *swap, int64_t *at, ru_err *err)
{
    cursor c = {0};
    header h = {0};
    RU_TRY(header_find(head, head_bytes, &c, err));
    *at = (const uint8_t *)c.end - head;
    if (!header_read(&c, &h)) {
        return RU_FAIL(
            err, RU_E_DATA,
            "npy: the header is not {'descr': TEXT, 'fortran_order': BOOL, 'shape': TUPLE "
            "of at most %d}",
            RU_RANK_MAX);
    }
    *swap = false;
    int64_t chars = texts ? text_chars(h.descr) : -1;
    h.type.dtype = chars >= 0 ? RU_I64 : descr_dtype(h.descr, swap);
    if (h.type.dtype == RU_NONE) {
        return RU_FAIL(
            err, RU_E_UNSUPPORTED,
            "npy: element type '%s' is not supported (numbers and booleans are)%s", h.descr,
            strstr(h.descr, "O") != NULL ? "; these are Python objects: write numbers, with "
                                           "numpy.save(FILE, ARRAY.astype('float32')) or 'int64'"
                                         : "");
    }
    int64_t count = ru_type_count(&h.type);
    int64_t have = size_bytes - *at;
    int64_t bytes = chars >= 0 ? chars * 4 : ru_dtype_bytes(h.type.dtype);
    if (count < 0 || count > INT64_MAX / 16 || bytes > INT32_MAX ||
        (bytes > 0 && (have % bytes != 0 || have / bytes != count)) || (bytes == 0 && have != 0)) {
        return RU_FAIL(err, RU_E_DATA, "npy: the elements have %lld bytes, but the shape needs %s",
                       (long long)have, have > 0 ? "another number" : "more");
    }
    *out = h;
    return RU_OK;
}

ru_status rui_npy_parse(const void *data, int64_t size_bytes, ru_arena *arena, ru_texts *texts,
                        ru_array *out, ru_err *err)
{
    header h;
    bool swap;
    int64_t at;
    RU_TRY(look(data, size_bytes, size_bytes, texts != NULL, &h, &swap, &at, err));
    if (texts != NULL && text_chars(h.descr) >= 0) {
        return texts_read((const uint8_t *)data + at, &h, text_chars(h.descr), arena, texts, out,
                          err);
    }
    return elements_read((const uint8_t *)data + at, &h, swap, arena, out, err);
}

ru_status ru_npy_parse(const void *data, int64_t size_bytes, ru_arena *arena, ru_array *out,
                       ru_err *err)
{
    return rui_npy_parse(data, size_bytes, arena, NULL, out, err);
}

ru_status ru_npy_look(const void *head, int64_t head_bytes, int64_t size_bytes, ru_type *type,
                      int64_t *at, bool *plain, ru_err *err)
{
    header h;
    bool swap;
    RU_TRY(look(head, head_bytes, size_bytes, false, &h, &swap, at, err));
    *type = h.type;
    *plain = !swap && !(h.fortran && h.type.rank > 1);
    return RU_OK;
}

/* -- writing ----------------------------------------------------------------------------------- */

static const char *dtype_descr(ru_dtype t)
{
    switch (t) {
#define RU_X(name, w, bytes, onnx, st, np) \
    case RU_##name:                        \
        return np;
        RU_DTYPE_LIST(RU_X)
#undef RU_X
    case RU_DTYPE_COUNT:
        break;
    }
    return "";
}

static ru_dtype written_dtype(ru_dtype t)
{
    return t == RU_BF16 ? RU_F32 : t;
}

/* Code points of UTF-8 text s into `to` (NULL: counted only); what is not UTF-8 stands as U+FFFD.
 */
static int64_t utf32_put(const char *s, uint32_t *to)
{
    int64_t n = 0;
    for (const uint8_t *p = (const uint8_t *)s; *p != 0; n++) {
        int more = *p < 0x80 ? 0 : (*p & 0xE0) == 0xC0 ? 1 : (*p & 0xF0) == 0xE0 ? 2 : 3;
        uint32_t c = more == 0 ? *p : *p & (0x3FU >> more);
        p++;
        for (int k = 0; k < more; k++, p++) {
            if ((*p & 0xC0) != 0x80) {
                c = 0xFFFD;
                break;
            }
            c = c << 6 | (*p & 0x3F);
        }
        if (to != NULL) {
            to[n] = c > 0x10FFFF ? 0xFFFD : c;
        }
    }
    return n;
}

/* Characters of the longest text. */
static int64_t chars_most(const ru_array *a)
{
    int64_t most = 1, count = ru_type_count(&a->type);
    for (int64_t k = 0; k < count; k++) {
        int64_t n = utf32_put(a->text[k], NULL);
        most = n > most ? n : most;
    }
    return most;
}

int64_t rui_npy_header(const ru_array *a, char into[RUI_NPY_HEADER_MAX])
{
    char texts[32];
    char shape[RU_RANK_MAX * 24] = "";
    int n = 0;
    for (uint32_t k = 0; k < a->type.rank; k++) {
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%lld%s", (long long)a->type.dims[k],
                      a->type.rank == 1      ? ","
                      : k + 1 < a->type.rank ? ", "
                                             : "");
    }
    memcpy(into, magic, sizeof magic);
    into[6] = 1;
    into[7] = 0;
    snprintf(texts, sizeof texts, "<U%lld", a->text != NULL ? (long long)chars_most(a) : 0LL);
    n = snprintf(into + 10, RUI_NPY_HEADER_MAX - 10,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                 a->text != NULL ? texts : dtype_descr(written_dtype(a->type.dtype)), shape);
    int64_t size_bytes = (10 + n + 1 + 63) / 64 * 64;
    RU_CHECK(size_bytes <= RUI_NPY_HEADER_MAX);
    memset(into + 10 + n, ' ', (size_t)(size_bytes - 10 - n));
    into[size_bytes - 1] = '\n';
    into[8] = (char)((size_bytes - 10) & 0xff);
    into[9] = (char)((size_bytes - 10) >> 8);
    return size_bytes;
}

int64_t rui_npy_bytes(const ru_array *a)
{
    int64_t count = ru_type_count(&a->type);
    return count *
           (a->text != NULL ? 4 * chars_most(a) : ru_dtype_bytes(written_dtype(a->type.dtype)));
}

static const void *text_elements(const ru_array *a, ru_arena *arena)
{
    int64_t count = ru_type_count(&a->type), chars = chars_most(a);
    uint32_t *c = ru_arena_zalloc(arena, (count * chars + 1) * (int64_t)sizeof *c, 16);
    for (int64_t k = 0; c != NULL && k < count; k++) {
        utf32_put(a->text[k], c + k * chars);
    }
    return c;
}

const void *rui_npy_elements(const ru_array *a, ru_arena *arena)
{
    if (a->text != NULL) {
        return text_elements(a, arena);
    }
    if (a->type.dtype != RU_BF16) {
        return a->data;
    }
    int64_t n = ru_type_count(&a->type);
    float *f = RU_NEW(arena, float, n);
    for (int64_t k = 0; f != NULL && k < n; k++) {
        f[k] = ru_bf16_to_f32(((const uint16_t *)a->data)[k]);
    }
    return f;
}

static ru_status array_write(ru_out *file, const ru_array *a, ru_err *err)
{
    char head[RUI_NPY_HEADER_MAX];
    RU_TRY(ru_out_write(file, head, rui_npy_header(a, head), err));
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const void *elements = rui_npy_elements(a, &arena);
    int64_t bytes = rui_npy_bytes(a);
    ru_status st = elements == NULL ? RU_FAIL(err, RU_E_MEM, "npy: no memory")
                   : bytes > 0      ? ru_out_write(file, elements, bytes, err)
                                    : RU_OK;
    ru_arena_fini(&arena);
    return st;
}

ru_status ru_npy_save(const char *path, const ru_array *a, ru_err *err)
{
    ru_out *file = NULL;
    RU_TRY(ru_out_open(path, &file, err));
    ru_status st = array_write(file, a, err);
    if (st == RU_OK) {
        st = ru_out_commit(file, err);
    }
    ru_out_close(file);
    return st;
}
