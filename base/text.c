/* The text builder of str.h. */
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a builder points before its first allocation and when there is no room at all. It is never
 * written: cap is 0 then. */
static char *empty_text(void)
{
    static const char nul[1] = "";
    union {
        const char *in;
        char *out;
    } u = {.in = nul};
    return u.out;
}

ru_text ru_text_into(char *buf, int64_t cap_bytes)
{
    RU_CHECK(cap_bytes >= 1);
    buf[0] = '\0';
    return (ru_text){.p = buf, .cap = cap_bytes};
}

ru_text ru_text_arena(ru_arena *arena)
{
    return (ru_text){.p = empty_text(), .arena = arena};
}

/* Make room for n more bytes and the NUL; false when there is none. */
static bool room(ru_text *t, int64_t n)
{
    if (t->cut || n > INT64_MAX / 4 - t->n) {
        t->cut = true;
        return false;
    }
    if (t->n + n < t->cap) {
        return true;
    }
    if (t->arena == NULL) {
        return false;
    }
    int64_t cap = t->cap < 64 ? 64 : t->cap;
    while (cap <= t->n + n) {
        cap *= 2;
    }
    char *p = ru_arena_alloc(t->arena, cap, 1);
    if (p == NULL) {
        t->cut = true;
        return false;
    }
    memcpy(p, t->p, (size_t)t->n + 1);
    t->p = p;
    t->cap = cap;
    return true;
}

void ru_text_put_n(ru_text *t, const char *s, int64_t n)
{
    if (n <= 0) {
        return;
    }
    if (!room(t, n)) {
        bool first = !t->cut;
        t->cut = true;
        n = t->cap - 1 - t->n;
        if (!first || n <= 0) {
            return;
        }
    }
    memcpy(t->p + t->n, s, (size_t)n);
    t->n += n;
    t->p[t->n] = '\0';
}

void ru_text_put(ru_text *t, const char *s)
{
    ru_text_put_n(t, s, (int64_t)strlen(s));
}

void ru_text_char(ru_text *t, char c, int64_t times)
{
    for (int64_t i = 0; i < times; i++) {
        ru_text_put_n(t, &c, 1);
    }
}

/* Two digits a division by a constant: one a division by the base takes ten times as long. */
static char *decimal(char *end, uint64_t v)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233"
        "34353637383940414243444546474849505152535455565758596061626364656667"
        "6869707172737475767778798081828384858687888990919293949596979899";
    for (; v >= 100; v /= 100) {
        end -= 2;
        memcpy(end, pairs + 2 * (v % 100), 2);
    }
    if (v >= 10) {
        end -= 2;
        memcpy(end, pairs + 2 * v, 2);
    } else {
        *--end = (char)('0' + v);
    }
    return end;
}

static char *hexadecimal(char *end, uint64_t v)
{
    do {
        *--end = "0123456789abcdef"[v & 15];
        v >>= 4;
    } while (v > 0);
    return end;
}

static void put_number(ru_text *t, uint64_t v, bool minus, bool hex, int digits_min)
{
    char buf[40], *const end = buf + sizeof buf;
    char *p = hex ? hexadecimal(end, v) : decimal(end, v);
    while (end - p < digits_min - (minus ? 1 : 0)) {
        *--p = '0';
    }
    if (minus) {
        *--p = '-';
    }
    ru_text_put_n(t, p, end - p);
}

/* A conversion of a format: what stands between % and its letter. */
typedef struct conversion {
    const char *end; /* after the letter */
    int zeros;       /* of %0ZEROSu; 0: none */
    bool is_long, cut;
    char letter; /* '\0': left to the C library */
} conversion;

static conversion conversion_at(const char *p)
{
    conversion c = {0};
    if (p[0] == '0' && p[1] >= '1' && p[1] <= '9') {
        for (p++; *p >= '0' && *p <= '9' && c.zeros < 30; p++) {
            c.zeros = 10 * c.zeros + (*p - '0');
        }
    }
    if (p[0] == '.' && p[1] == '*' && p[2] == 's') {
        c.cut = true;
        p += 2;
    }
    if (p[0] == 'l') {
        c.is_long = true;
        p += p[1] == 'l' ? 2 : 1;
    }
    bool number = *p == 'd' || *p == 'u' || *p == 'x';
    bool plain = (*p == 's' || *p == 'c' || *p == '%') && !c.is_long && c.zeros == 0;
    c.letter = (number && c.zeros <= 30) || plain ? *p : '\0';
    c.end = p + 1;
    return c;
}

static RU_PRINTF(2, 0) void vputf_rest(ru_text *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n > 0 && room(t, n)) {
        vsnprintf(t->p + t->n, (size_t)n + 1, fmt, again);
        t->n += n;
    } else if (n > 0) {
        bool first = !t->cut;
        t->cut = true;
        if (first && t->cap > t->n + 1) {
            vsnprintf(t->p + t->n, (size_t)(t->cap - t->n), fmt, again);
            t->n = t->cap - 1;
        }
    }
    va_end(again);
}

/* The common conversions by hand: vsnprintf takes some 150 ns a call, twice, of which an answer of
 * the server and its line of the log have thirty. */
void ru_text_vputf(ru_text *t, const char *fmt, va_list ap)
{
    _Static_assert(sizeof(long) == sizeof(long long), "%ld is read as %lld");
    for (;;) {
        const char *next = strchrnul(fmt, '%');
        ru_text_put_n(t, fmt, next - fmt);
        if (*next == '\0') {
            return;
        }
        conversion c = conversion_at(next + 1);
        if (c.letter == '\0') {
            fmt = next;
            vputf_rest(t, fmt, ap);
            return;
        }
        fmt = c.end;
        if (c.letter == '%') {
            ru_text_put_n(t, "%", 1);
        } else if (c.letter == 'c') {
            char one = (char)va_arg(ap, int);
            ru_text_put_n(t, &one, 1);
        } else if (c.letter == 's') {
            int most = c.cut ? va_arg(ap, int) : -1;
            const char *text = va_arg(ap, const char *);
            text = text == NULL ? "(null)" : text;
            ru_text_put_n(t, text,
                          (int64_t)(most >= 0 ? strnlen(text, (size_t)most) : strlen(text)));
        } else if (c.letter == 'd') {
            int64_t v = c.is_long ? va_arg(ap, long long) : va_arg(ap, int);
            put_number(t, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0, false, c.zeros);
        } else {
            uint64_t v = c.is_long ? va_arg(ap, unsigned long long) : va_arg(ap, unsigned);
            put_number(t, v, false, c.letter == 'x', c.zeros);
        }
    }
}

void ru_text_putf(ru_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ru_text_vputf(t, fmt, ap);
    va_end(ap);
}

void ru_text_wrap(ru_text *t, const char *text, uint32_t at, uint32_t column, uint32_t width)
{
    ru_str lines = ru_str_c(text), line, word;
    while (ru_str_next(&lines, '\n', &line)) {
        if (at < column) {
            ru_text_char(t, ' ', column - at);
            at = column;
        }
        for (bool first = true; ru_str_next(&line, ' ', &word); first = false) {
            if (!first && at + 1 + (uint32_t)word.n > width) {
                ru_text_put(t, "\n");
                ru_text_char(t, ' ', column);
                at = column;
                first = true;
            }
            ru_text_putf(t, "%s%.*s", first ? "" : " ", RU_STR_ARG(word));
            at += (uint32_t)word.n + (first ? 0 : 1);
        }
        ru_text_put(t, "\n");
        at = 0;
    }
}

void ru_text_f64(ru_text *t, double v)
{
    if (isnan(v)) {
        ru_text_put(t, "nan");
        return;
    }
    if (isinf(v)) {
        ru_text_put(t, v > 0 ? "inf" : "-inf");
        return;
    }
    if (v == floor(v) && v > -1e15 && v < 1e15) {
        ru_text_putf(t, "%.0f", v);
        return;
    }
    char buf[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        double back = strtod(buf, NULL);
        if (memcmp(&back, &v, sizeof v) == 0) {
            break;
        }
        digits = digits == 7 ? 14 : digits; /* decimals that people write have at most 7 digits */
    }
    ru_text_put(t, buf);
}

/* Length of the well-formed UTF-8 sequence at s[0], 0 when it is none. */
static int utf8_len(const uint8_t *s, int64_t n)
{
    if (s[0] < 0x80) {
        return 1;
    }
    int len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n < len) {
        return 0;
    }
    for (int i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool outside = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || outside ? 0 : len;
}

void ru_text_utf8(ru_text *t, ru_str s)
{
    for (int64_t i = 0; i < s.n;) {
        int len = utf8_len((const uint8_t *)s.p + i, s.n - i);
        ru_text_put_n(t, len > 0 ? s.p + i : "\xef\xbf\xbd", len > 0 ? len : 3);
        i += len > 0 ? len : 1;
    }
}

/* How many bytes from here need no change: ASCII that JSON takes as it is. */
static int64_t as_it_is(const char *s, int64_t n)
{
    int64_t k = 0;
    while (k < n && s[k] >= 0x20 && s[k] < 0x7f && s[k] != '"' && s[k] != '\\') {
        k++;
    }
    return k;
}

void ru_text_json(ru_text *t, ru_str s)
{
    ru_text_put_n(t, "\"", 1);
    for (int64_t i = 0; i < s.n;) {
        int64_t same = as_it_is(s.p + i, s.n - i);
        if (same > 0) {
            ru_text_put_n(t, s.p + i, same);
            i += same;
            continue;
        }
        const uint8_t *at = (const uint8_t *)s.p + i;
        int len = utf8_len(at, s.n - i);
        if (len == 0) {
            ru_text_put(t, "\xef\xbf\xbd");
            i++;
            continue;
        }
        if (*at == '"' || *at == '\\') {
            ru_text_putf(t, "\\%c", *at);
        } else if (*at == '\n') {
            ru_text_put(t, "\\n");
        } else if (*at == '\t') {
            ru_text_put(t, "\\t");
        } else if (*at < 0x20 || *at == 0x7f) {
            ru_text_putf(t, "\\u%04x", *at);
        } else {
            ru_text_put_n(t, s.p + i, len);
        }
        i += len;
    }
    ru_text_put_n(t, "\"", 1);
}

void ru_text_csv(ru_text *t, const char *s)
{
    ru_text_char(t, '"', 1);
    for (; *s != '\0'; s++) {
        ru_text_char(t, *s, *s == '"' ? 2 : 1);
    }
    ru_text_char(t, '"', 1);
}
