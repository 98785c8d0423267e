/* Text: slices (views with a length), strict number reading, and a builder that formats into a
 * caller's buffer or into an arena.
 *
 * Nothing here depends on the locale, allocates outside an arena, or touches files, so the pure
 * folders may use all of it.
 *
 * Thread: any. */
#ifndef RU_BASE_STR_H
#define RU_BASE_STR_H

#include "base/arena.h"

RU_API_BEGIN

/* Text being built: always NUL-terminated at `p`. With an arena it grows; without, it is cut at the
 * caller's buffer and `cut` says so. */
typedef struct ru_text {
    char *p;     /* the text; "" before the first byte */
    int64_t n;   /* bytes without the NUL */
    int64_t cap; /* bytes that fit, NUL included */
    ru_arena *arena;
    bool cut; /* something did not fit */
} ru_text;

/* Into the caller's `buf` of cap_bytes >= 1, or growing in `arena`. */
ru_text ru_text_into(char *buf, int64_t cap_bytes);
ru_text ru_text_arena(ru_arena *arena);

void ru_text_put(ru_text *t, const char *s);
void ru_text_putf(ru_text *t, const char *fmt, ...) RU_PRINTF(2, 3);
/* Shortest decimal that reads back as the same double; "inf", "-inf", "nan" for the others. */
void ru_text_f64(ru_text *t, double v);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* A view of n bytes; not NUL-terminated. {0} is the empty slice. */
typedef struct ru_str {
    const char *p;
    int64_t n;
} ru_str;

/* For printf: printf("%.*s", RU_STR_ARG(s)). */
#define RU_STR_ARG(s) (int)(s).n, (s).p
ru_str ru_str_c(const char *s); /* view of a C string; NULL gives the empty slice */
ru_str ru_str_n(const char *s, int64_t n);
bool ru_str_eq(ru_str a, ru_str b);
bool ru_str_eq_c(ru_str a, const char *b);
bool ru_str_starts(ru_str s, const char *head);
bool ru_str_ends(ru_str s, const char *tail);
int64_t ru_str_find(ru_str s, const char *what); /* index of the first match, -1 when none */
/* Does `s` match `pattern`, in which every * stands for any run of characters? stars[k] (k <
 * n_stars) is what the k-th * stood for, as short as possible from the left; view. */
bool ru_str_match(ru_str s, const char *pattern, ru_str *stars, uint32_t n_stars);
ru_str ru_str_trim(ru_str s);             /* without blanks, tabs and line ends at the ends */
ru_str ru_str_from(ru_str s, int64_t at); /* the part from `at` on; at is clamped to 0..n */
/* Cut off the text before the next `sep`; false when nothing is left. "a,,b" gives a, "", b; the
 * empty slice gives nothing.  while (ru_str_next(&rest, ',', &item)) ... */
bool ru_str_next(ru_str *rest, char sep, ru_str *item);
/* Strict reading of the whole slice; false (and *out untouched) for anything else, overflow and
 * surrounding blanks included. i64 and u64 take decimal and 0x; f64 takes decimal, inf and nan. */
bool ru_str_i64(ru_str s, int64_t *out);
bool ru_str_u64(ru_str s, uint64_t *out);
bool ru_str_f64(ru_str s, double *out);
void ru_text_put_n(ru_text *t, const char *s, int64_t n);
void ru_text_char(ru_text *t, char c, int64_t times);
/* Is this a W3C traceparent of version 00 or a later one of its form? Source: W3C trace-context. */
bool ru_str_is_traceparent(const char *text);
/* Number of insertions, deletions, replacements and swaps of neighbours between two words (bytes
 * after the 64th of either are ignored), ignoring case and the difference between '-' and '_'. */
uint32_t ru_str_distance(ru_str a, ru_str b);
/* Index of the word most similar to `word`, or -1 when none is similar enough. Ties go to the
 * earlier word. */
int32_t ru_str_nearest(ru_str word, const char *const *words, uint32_t n);
void ru_text_vputf(ru_text *t, const char *fmt, va_list ap) RU_PRINTF(2, 0);
/* Lines of `text` from column `column` on, each wrapped between words at `width` and ended; `at` is
 * the column where `t` stands now. */
void ru_text_wrap(ru_text *t, const char *text, uint32_t at, uint32_t column, uint32_t width);
/* Bytes that are not UTF-8 become U+FFFD. */
void ru_text_utf8(ru_text *t, ru_str s);
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void ru_text_json(ru_text *t, ru_str s);
/* A quoted field of CSV. Source: rfc-4180. */
void ru_text_csv(ru_text *t, const char *s);

#endif
