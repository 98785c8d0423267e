#include "serve/scan.h"

#include <math.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

rui_scan rui_scan_over(const void *data, int64_t size_bytes, ru_arena *arena, ru_err *err)
{
    const char *p = data != NULL ? data : "";
    return (rui_scan){.begin = p, .p = p, .end = p + size_bytes, .arena = arena, .err = err};
}

bool rui_scan_wrong(rui_scan *s, const char *expected)
{
    if (s->st == RU_OK) {
        s->st = RU_FAIL(s->err, RU_E_DATA, "the JSON is damaged at byte %lld: expected %s",
                        (long long)(s->p - s->begin), expected);
    }
    return false;
}

/* The next byte that is no blank; '\0' at the end. */
static char peek(rui_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) {
        s->p++;
    }
    return s->p < s->end ? *s->p : '\0';
}

bool rui_scan_open(rui_scan *s, char bracket)
{
    if (s->st != RU_OK) {
        return false;
    }
    if (peek(s) != bracket) {
        return rui_scan_wrong(s, bracket == '{' ? "an object" : "a list");
    }
    s->p++;
    return true;
}

static bool next(rui_scan *s, bool *first, char closer)
{
    if (s->st != RU_OK) {
        return false;
    }
    char c = peek(s);
    if (c == closer) {
        s->p++;
        return false;
    }
    if (!*first) {
        if (c != ',') {
            return rui_scan_wrong(s, closer == '}' ? "',' or '}'" : "',' or ']'");
        }
        s->p++;
        (void)peek(s); /* who asks for an item may look how it begins */
    }
    *first = false;
    return true;
}

bool rui_scan_key(rui_scan *s, bool *first, ru_str *key)
{
    if (!next(s, first, '}') || !rui_scan_text(s, key)) {
        return false;
    }
    if (peek(s) != ':') {
        return rui_scan_wrong(s, "':'");
    }
    s->p++;
    return true;
}

bool rui_scan_item(rui_scan *s, bool *first)
{
    return next(s, first, ']');
}

bool rui_scan_end(rui_scan *s)
{
    return s->st == RU_OK &&
           (peek(s) == '\0' && s->p == s->end ? true : rui_scan_wrong(s, "the end"));
}

/* -- texts -------------------------------------------------------------------------------------
 */

static int hex4(const char *p)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    int v = 0;
    for (int k = 0; k < 4; k++) {
        const char *d = p[k] != '\0' ? strchr(digits, p[k]) : NULL;
        if (d == NULL) {
            return -1;
        }
        v = v * 16 + (int)(d - digits) % 16;
    }
    return v;
}

static char *put_utf8(char *at, uint32_t u)
{
    static const uint8_t heads[] = {0, 0xC0, 0xE0, 0xF0};
    int more = u < 0x80 ? 0 : u < 0x800 ? 1 : u < 0x10000 ? 2 : 3;
    *at++ = (char)(heads[more] | u >> 6 * more);
    while (more-- > 0) {
        *at++ = (char)(0x80 | (u >> 6 * more & 63));
    }
    return at;
}

/* What stands behind a backslash at p; NULL: nothing that JSON knows. */
static const char *unescape(const char *p, const char *end, char **at)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *known = p < end && *p != '\0' ? strchr(from, *p) : NULL;
    if (known != NULL) {
        *(*at)++ = to[known - from];
        return p + 1;
    }
    int u = end - p >= 5 && *p == 'u' ? hex4(p + 1) : -1;
    if (u < 0) {
        return NULL;
    }
    p += 5;
    uint32_t full = (uint32_t)u;
    if (u >= 0xD800 && u < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
        int low = hex4(p + 2);
        if (low >= 0xDC00 && low < 0xE000) {
            full = 0x10000 + ((uint32_t)(u - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
            p += 6;
        }
    }
    *at = put_utf8(*at, full >= 0xD800 && full < 0xE000 ? 0xFFFD : full);
    return p;
}

bool rui_scan_text(rui_scan *s, ru_str *out)
{
    if (s->st != RU_OK) {
        return false;
    }
    if (peek(s) != '"') {
        return rui_scan_wrong(s, "a text in quotes");
    }
    const char *from = ++s->p;
    bool escapes = false;
    while (s->p < s->end && *s->p != '"') {
        if ((unsigned char)*s->p < ' ') {
            return rui_scan_wrong(s, "no control character in a text");
        }
        escapes = escapes || *s->p == '\\';
        s->p += *s->p == '\\' ? 2 : 1;
    }
    if (s->p >= s->end) {
        s->p = s->end;
        return rui_scan_wrong(s, "'\"' at the end of a text");
    }
    const char *end = s->p++;
    *out = ru_str_n(from, end - from);
    if (!escapes) {
        return true;
    }
    char *copy = ru_arena_alloc(s->arena, end - from, 1), *at = copy;
    if (copy == NULL) {
        s->st = RU_FAIL(s->err, RU_E_LIMIT, "no memory for a text of the request");
        return false;
    }
    while (from != NULL && from < end) {
        if (*from == '\\') {
            from = unescape(from + 1, end, &at);
        } else {
            *at++ = *from++;
        }
    }
    *out = ru_str_n(copy, at - copy);
    return from != NULL ? true : rui_scan_wrong(s, "an escape that JSON knows before it");
}

/* -- numbers and words -------------------------------------------------------------------------
 */

/* The number or word at s->p. */
static ru_str word_at(rui_scan *s)
{
    (void)peek(s);
    const char *from = s->p;
    while (s->p < s->end &&
           ((*s->p >= '0' && *s->p <= '9') || (*s->p >= 'a' && *s->p <= 'z') ||
            (*s->p >= 'A' && *s->p <= 'Z') || *s->p == '-' || *s->p == '+' || *s->p == '.')) {
        s->p++;
    }
    return ru_str_n(from, s->p - from);
}

bool rui_scan_i64(rui_scan *s, int64_t *out)
{
    if (s->st != RU_OK) {
        return false;
    }
    ru_str w = word_at(s);
    s->p -= w.n;
    if (w.n == 0 || (w.n > 1 && (w.p[1] == 'x' || w.p[1] == 'X')) || !ru_str_i64(w, out)) {
        return rui_scan_wrong(s, "a whole number");
    }
    s->p += w.n;
    return true;
}

bool rui_scan_bool(rui_scan *s, bool *out)
{
    if (s->st != RU_OK) {
        return false;
    }
    ru_str w = word_at(s);
    *out = ru_str_eq_c(w, "true");
    if (!*out && !ru_str_eq_c(w, "false")) {
        s->p -= w.n;
        return rui_scan_wrong(s, "true or false");
    }
    return true;
}

bool rui_scan_skip(rui_scan *s, const char **from)
{
    char closers[DEPTH_MAX];
    uint32_t depth = 0;
    ru_str text;
    (void)peek(s);
    *from = s->p;
    while (s->st == RU_OK) {
        char c = peek(s);
        if (c == '{' || c == '[') {
            if (depth == DEPTH_MAX) {
                return rui_scan_wrong(s, "fewer levels");
            }
            closers[depth++] = c == '{' ? '}' : ']';
            s->p++;
            continue;
        }
        if (depth > 0 && c == closers[depth - 1]) {
            depth--;
            s->p++;
        } else if (depth > 0 && (c == ',' || c == ':')) {
            s->p++;
            continue;
        } else if (c == '"') {
            (void)rui_scan_text(s, &text);
        } else if (word_at(s).n == 0) {
            return rui_scan_wrong(s, "a value");
        }
        if (depth == 0) {
            return s->st == RU_OK;
        }
    }
    return false;
}

/* A finite decimal number: no "+1", no words. */
static bool number(ru_str w, double *out)
{
    bool begins = w.n > 0 && (w.p[0] == '-' || w.p[0] == '.' || (w.p[0] >= '0' && w.p[0] <= '9'));
    return begins && ru_str_f64(w, out) && isfinite(*out);
}

bool rui_scan_f64(rui_scan *s, double *out)
{
    if (s->st != RU_OK) {
        return false;
    }
    ru_str w = word_at(s);
    if (!number(w, out)) {
        s->p -= w.n;
        return rui_scan_wrong(s, "a number");
    }
    return true;
}

static bool real(ru_str w, double *out)
{
    if (number(w, out)) {
        return true;
    }
    bool minus = w.n > 0 && w.p[0] == '-';
    if (ru_str_eq_c(ru_str_from(w, minus ? 1 : 0), "Infinity")) {
        *out = minus ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    *out = RU_NAN;
    return ru_str_eq_c(w, "NaN") || ru_str_eq_c(w, "null");
}

static bool whole(ru_str w, int64_t least, int64_t most, int64_t *out)
{
    return !(w.n > 1 && (w.p[1] == 'x' || w.p[1] == 'X')) && ru_str_i64(w, out) && *out >= least &&
           *out <= most;
}

/* One element; false: the word is none of that type. */
static bool element(ru_str w, ru_dtype t, void *into)
{
    static const int bits[RU_DTYPE_COUNT] = {
        [RU_I8] = 7, [RU_U8] = 8, [RU_I16] = 15, [RU_U16] = 16, [RU_I32] = 31, [RU_U32] = 32};
    double x;
    int64_t v;
    if (ru_dtype_is_float(t)) {
        if (!real(w, &x)) {
            return false;
        }
        float f = (float)x;
        if (t == RU_F64) {
            memcpy(into, &x, 8);
        } else if (isfinite(x) && !isfinite(f)) {
            return false;
        } else if (t == RU_F32) {
            memcpy(into, &f, 4);
        } else {
            uint16_t h = t == RU_F16 ? ru_f32_to_f16(f) : ru_f32_to_bf16(f);
            memcpy(into, &h, 2);
        }
        return true;
    }
    if (t == RU_BOOL) {
        bool yes = ru_str_eq_c(w, "true") || ru_str_eq_c(w, "1");
        *(uint8_t *)into = yes ? 1 : 0;
        return yes || ru_str_eq_c(w, "false") || ru_str_eq_c(w, "0");
    }
    if (t == RU_U64) {
        uint64_t u;
        bool ok = !(w.n > 1 && (w.p[1] == 'x' || w.p[1] == 'X')) && ru_str_u64(w, &u);
        if (ok) {
            memcpy(into, &u, 8);
        }
        return ok;
    }
    bool is_signed = t == RU_I8 || t == RU_I16 || t == RU_I32;
    int64_t most = t == RU_I64 ? INT64_MAX : ((int64_t)1 << bits[t]) - 1;
    if (!whole(w, t == RU_I64 ? INT64_MIN : is_signed ? -most - 1 : 0, most, &v)) {
        return false;
    }
    memcpy(into, &v, (size_t)ru_dtype_bytes(t)); /* little-endian, as all of the protocol */
    return true;
}

/* Where the walk through a tensor's lists stands. */
typedef struct walk {
    const ru_type *type;
    int64_t opened_at[RU_RANK_MAX + 1]; /* [depth] elements before the list */
    int64_t inside[RU_RANK_MAX + 1];    /* [depth] elements of a list of that depth */
    int64_t n, count;
    uint32_t depth, leaf; /* leaf: depth of all elements; 0: none was seen */
} walk;

static bool shape_wrong(rui_scan *s, const walk *w)
{
    if (s->st == RU_OK) {
        s->st = RU_FAIL(s->err, RU_E_DATA,
                        "data does not have the shape that is said: %lld elements, flat, or nested "
                        "as the shape is (byte %lld)",
                        (long long)w->count, (long long)(s->p - s->begin));
    }
    return false;
}

static bool close_list(rui_scan *s, walk *w)
{
    int64_t got = w->n - w->opened_at[w->depth];
    bool flat = w->depth == 1 && w->leaf <= 1;
    s->p++;
    return got == (flat ? w->count : w->inside[w->depth]) || shape_wrong(s, w);
}

bool rui_scan_code(rui_scan *s, ru_str text, ru_texts *words, void *into)
{
    int64_t code;
    if (memchr(text.p, 0, (size_t)text.n) != NULL) {
        return rui_scan_wrong(s, "a text without zero bytes before it");
    }
    const char *copy = ru_arena_strn(words->arena, text.p, text.n);
    s->st = copy != NULL ? ru_texts_code(words, copy, &code, s->err)
                         : RU_FAIL(s->err, RU_E_LIMIT, "no memory for the request");
    if (s->st == RU_OK) {
        memcpy(into, &code, sizeof code);
    }
    return s->st == RU_OK;
}

static bool element_of(rui_scan *s, ru_dtype type, ru_texts *words, void *into)
{
    ru_str word;
    if (words != NULL) {
        return rui_scan_text(s, &word) && rui_scan_code(s, word, words, into);
    }
    word = word_at(s);
    if (!element(word, type, into)) {
        s->p = word.p;
        return rui_scan_wrong(s, "an element of the datatype that is said");
    }
    return true;
}

bool rui_scan_elements(rui_scan *s, const ru_type *type, ru_texts *words, void *into)
{
    walk w = {.type = type, .count = ru_type_count(type)};
    int64_t bytes = ru_dtype_bytes(type->dtype);
    w.inside[type->rank] = type->rank > 0 ? type->dims[type->rank - 1] : 1;
    for (uint32_t d = type->rank; d > 1; d--) { /* of no elements: dimensions may be of any size */
        w.inside[d - 1] = w.count > 0 ? w.inside[d] * type->dims[d - 2] : 0;
    }
    uint32_t depth_max = type->rank > 0 ? type->rank : 1;
    bool more = rui_scan_open(s, '['), item = true, empty = true; /* `empty`: a list begins */
    w.depth = 1;
    while (more && w.depth > 0) {
        char c = peek(s);
        if (c == '[' && item) {
            if (w.depth == depth_max || w.leaf == w.depth) {
                return shape_wrong(s, &w);
            }
            w.opened_at[++w.depth] = w.n;
            s->p++;
            empty = true;
            continue;
        }
        if (c == ']' && (!item || empty)) {
            more = close_list(s, &w);
            w.depth--;
            item = false;
        } else if (c == ',' && !item) {
            s->p++;
            item = true;
        } else if (item && w.n < w.count && (w.leaf == 0 || w.leaf == w.depth) &&
                   (w.depth == 1 || w.depth == depth_max)) {
            if (!element_of(s, type->dtype, words, (uint8_t *)into + w.n * bytes)) {
                return false;
            }
            w.leaf = w.depth;
            w.n++;
            item = false;
        } else {
            return c == '\0' ? rui_scan_wrong(s, "']'") : shape_wrong(s, &w);
        }
        empty = false;
    }
    return more && (w.n == w.count || shape_wrong(s, &w));
}
