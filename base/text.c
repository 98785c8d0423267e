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

void ru_text_vputf(ru_text *t, const char *fmt, va_list ap)
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

void ru_text_json(ru_text *t, ru_str s)
{
    ru_text_char(t, '"', 1);
    for (int64_t i = 0; i < s.n;) {
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
    ru_text_char(t, '"', 1);
}

void ru_text_csv(ru_text *t, const char *s)
{
    ru_text_char(t, '"', 1);
    for (; *s != '\0'; s++) {
        ru_text_char(t, *s, *s == '"' ? 2 : 1);
    }
    ru_text_char(t, '"', 1);
}
