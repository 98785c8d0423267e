/* Slices, number reading, nearest word, text building. */
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ru_str ru_str_c(const char *s)
{
    return s == NULL ? (ru_str){0} : (ru_str){s, (int64_t)strlen(s)};
}

ru_str ru_str_n(const char *s, int64_t n)
{
    RU_CHECK(n >= 0);
    return (ru_str){s, n};
}

bool ru_str_eq(ru_str a, ru_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, (size_t)a.n) == 0);
}

bool ru_str_eq_c(ru_str a, const char *b)
{
    return ru_str_eq(a, ru_str_c(b));
}

bool ru_str_starts(ru_str s, const char *head)
{
    int64_t n = (int64_t)strlen(head);
    return s.n >= n && (n == 0 || memcmp(s.p, head, (size_t)n) == 0);
}

bool ru_str_ends(ru_str s, const char *tail)
{
    int64_t n = (int64_t)strlen(tail);
    return s.n >= n && (n == 0 || memcmp(s.p + (s.n - n), tail, (size_t)n) == 0);
}

int64_t ru_str_find(ru_str s, const char *what)
{
    if (s.n == 0) {
        return *what == '\0' ? 0 : -1;
    }
    const char *at = memmem(s.p, (size_t)s.n, what, strlen(what));
    return at == NULL ? -1 : at - s.p;
}

bool ru_str_match(ru_str s, const char *pattern, ru_str *stars, uint32_t n_stars)
{
    int64_t i = 0, from = 0, run = 0; /* the last * stands for s[from, from + run) so far */
    const char *p = pattern, *after = NULL;
    uint32_t k = 0; /* stars so far */
    while (i < s.n || *p == '*') {
        if (*p == '*') {
            after = ++p;
            from = i;
            run = 0;
            k++;
        } else if (i < s.n && *p == s.p[i]) {
            p++;
            i++;
        } else if (after != NULL && i < s.n) { /* one more character for the last star */
            i = from + ++run;
            p = after;
        } else {
            return false;
        }
        if (k > 0 && k <= n_stars) {
            stars[k - 1] = ru_str_n(s.p + from, run);
        }
    }
    return *p == '\0';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

ru_str ru_str_trim(ru_str s)
{
    while (s.n > 0 && is_blank(s.p[s.n - 1])) {
        s.n--;
    }
    while (s.n > 0 && is_blank(s.p[0])) {
        s.p++;
        s.n--;
    }
    return s;
}

ru_str ru_str_from(ru_str s, int64_t at)
{
    at = at < 0 ? 0 : at;
    at = at > s.n ? s.n : at;
    return (ru_str){s.p != NULL ? s.p + at : NULL, s.n - at};
}

bool ru_str_next(ru_str *rest, char sep, ru_str *item)
{
    if (rest->p == NULL) {
        return false;
    }
    const char *at = rest->n > 0 ? memchr(rest->p, sep, (size_t)rest->n) : NULL;
    if (at == NULL) {
        *item = *rest;
        *rest = (ru_str){0};
        return true;
    }
    *item = (ru_str){rest->p, at - rest->p};
    *rest = (ru_str){at + 1, rest->n - item->n - 1};
    return true;
}

enum { NUMBER_MAX = 400 }; /* longest number text read; 1e308 written out fits */

/* NUL-terminated copy of a slice that could be a number, else false. */
static bool number_text(ru_str s, char *buf)
{
    if (s.n < 1 || s.n >= NUMBER_MAX || memchr(s.p, '\0', (size_t)s.n) != NULL) {
        return false;
    }
    if (is_blank(s.p[0]) || s.p[0] == '\v' || s.p[0] == '\f') {
        return false;
    }
    memcpy(buf, s.p, (size_t)s.n);
    buf[s.n] = '\0';
    return true;
}

static int base_of(const char *text)
{
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    return digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') ? 16 : 10;
}

bool ru_str_i64(ru_str s, int64_t *out)
{
    char buf[NUMBER_MAX], *end;
    if (!number_text(s, buf)) {
        return false;
    }
    errno = 0;
    long long v = strtoll(buf, &end, base_of(buf));
    if (errno != 0 || end == buf || *end != '\0') {
        return false;
    }
    *out = v;
    return true;
}

bool ru_str_is_traceparent(const char *text)
{
    static const char hex[] = "0123456789abcdef";
    bool form = strspn(text, "0123456789abcdef-") == 55 && text[55] == '\0' &&
                strspn(text, hex) == 2 && text[2] == '-' && strspn(text + 3, hex) == 32 &&
                text[35] == '-' && strspn(text + 36, hex) == 16 && text[52] == '-' &&
                strspn(text + 53, hex) == 2;
    return form && strncmp(text, "ff", 2) != 0 && strspn(text + 3, "0") != 32 &&
           strspn(text + 36, "0") != 16;
}

bool ru_str_u64(ru_str s, uint64_t *out)
{
    char buf[NUMBER_MAX], *end;
    if (!number_text(s, buf) || buf[0] == '-') {
        return false;
    }
    errno = 0;
    unsigned long long v = strtoull(buf, &end, base_of(buf));
    if (errno != 0 || end == buf || *end != '\0') {
        return false;
    }
    *out = v;
    return true;
}

/* Digits up to 2^53 and a power of ten up to 22 are exact in doubles, so that one operation rounds
 * once; false: the long way. Source: clinger-1990 (fast path). */
static bool short_f64(ru_str s, double *out)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *p = s.p, *end = s.p + s.n;
    bool minus = *p == '-';
    uint64_t digits = 0;
    int seen = 0, power = 0, given = 0;
    p += *p == '-' || *p == '+';
    for (; p < end && *p >= '0' && *p <= '9'; p++, seen++) {
        digits = digits * 10 + (uint64_t)(*p - '0');
    }
    if (p < end && *p == '.') {
        for (p++; p < end && *p >= '0' && *p <= '9'; p++, seen++, power--) {
            digits = digits * 10 + (uint64_t)(*p - '0');
        }
    }
    if (seen > 0 && p + 1 < end && (*p == 'e' || *p == 'E')) {
        bool down = p[1] == '-';
        const char *from = p + (down || p[1] == '+' ? 2 : 1);
        for (p = from; p < end && p - from < 3 && *p >= '0' && *p <= '9'; p++) {
            given = given * 10 + (*p - '0');
        }
        power += down ? -given : given;
        seen = p == from ? 0 : seen;
    }
    if (p != end || seen < 1 || seen > 19 || digits > UINT64_C(1) << 53 || power < -22 ||
        power > 22) {
        return false;
    }
    double v = power < 0 ? (double)digits / tens[-power] : (double)digits * tens[power];
    *out = minus ? -v : v;
    return true;
}

bool ru_str_f64(ru_str s, double *out)
{
    char buf[NUMBER_MAX], *end;
    if (s.n > 0 && s.n < NUMBER_MAX && short_f64(s, out)) {
        return true;
    }
    if (!number_text(s, buf) || base_of(buf) == 16 || strchr(buf, '(') != NULL) {
        return false;
    }
    errno = 0;
    double v = strtod(buf, &end);
    bool overflow = errno == ERANGE && (v > 1.0 || v < -1.0);
    if (overflow || end == buf || *end != '\0') {
        return false;
    }
    *out = v;
    return true;
}

enum { WORD_MAX = 64 };

static char folded(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (char)(c - 'A' + 'a');
    }
    return c == '-' ? '_' : c;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t ru_str_distance(ru_str a, ru_str b)
{
    /* Optimal string alignment, three rows of the table. */
    uint32_t rows[3][WORD_MAX + 1];
    uint32_t na = a.n > WORD_MAX ? WORD_MAX : (uint32_t)a.n;
    uint32_t nb = b.n > WORD_MAX ? WORD_MAX : (uint32_t)b.n;
    for (uint32_t j = 0; j <= nb; j++) {
        rows[0][j] = j;
    }
    for (uint32_t i = 1; i <= na; i++) {
        uint32_t *now = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        now[0] = i;
        for (uint32_t j = 1; j <= nb; j++) {
            char ca = folded(a.p[i - 1]), cb = folded(b.p[j - 1]);
            uint32_t best = min_u32(up[j - 1] + (ca != cb), min_u32(up[j], now[j - 1]) + 1);
            bool swap = i > 1 && j > 1 && ca == folded(b.p[j - 2]) && cb == folded(a.p[i - 2]);
            now[j] = swap ? min_u32(best, up2[j - 2] + 1) : best;
        }
    }
    return rows[na % 3][nb];
}

int32_t ru_str_nearest(ru_str word, const char *const *words, uint32_t n)
{
    int32_t best = -1;
    /* A third of the letters may differ; below three letters one may. */
    uint32_t least = (uint32_t)(word.n > WORD_MAX ? WORD_MAX : word.n) / 3 + 2;
    for (uint32_t i = 0; i < n; i++) {
        ru_str w = ru_str_c(words[i]);
        uint32_t d = ru_str_distance(word, w);
        /* A word typed in part ("opt" for "optimizer") counts as one step away. */
        bool part =
            word.n >= 3 && w.n > word.n && ru_str_distance(word, ru_str_n(w.p, word.n)) == 0;
        d = part ? min_u32(d, 1) : d;
        if (d < least && d < (uint32_t)w.n + (w.n == 0)) {
            least = d;
            best = (int32_t)i;
        }
    }
    return best;
}
