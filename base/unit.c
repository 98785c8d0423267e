/* Time and size words. The number is read as decimal digits with an optional fraction and scaled in
 * integers, so 0.1s is exactly 100000000 ns. */
#include "base/unit.h"

#include <string.h>

typedef struct unit_row {
    const char *word;
    int64_t scale;
} unit_row;

static const unit_row time_rows[] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"min", 60 * (int64_t)1000000000},
    {"h", 3600 * (int64_t)1000000000},
    {"d", 86400 * (int64_t)1000000000},
};

static const unit_row size_rows[] = {
    {"B", 1},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"KiB", 1024},
    {"MiB", 1024 * 1024},
    {"GiB", 1024 * 1024 * 1024},
    {"TiB", (int64_t)1024 * 1024 * 1024 * 1024},
};

/* digits[.digits] at the front of `s`: whole part and fraction times 10^places; false when there is
 * no digit or too many. */
static bool read_decimal(ru_str *s, int64_t *whole, int64_t *part, int64_t *places)
{
    *whole = *part = 0;
    *places = 1;
    int64_t digits = 0;
    while (s->n > 0 && s->p[0] >= '0' && s->p[0] <= '9') {
        int64_t d = s->p[0] - '0';
        if (*whole > (INT64_MAX - d) / 10) {
            return false;
        }
        *whole = *whole * 10 + d;
        *s = ru_str_from(*s, 1);
        digits++;
    }
    if (s->n > 1 && s->p[0] == '.' && digits > 0) {
        *s = ru_str_from(*s, 1);
        int64_t after = 0;
        for (; s->n > 0 && s->p[0] >= '0' && s->p[0] <= '9'; after++) {
            if (after == 15) {
                return false;
            }
            *part = *part * 10 + (s->p[0] - '0');
            *places *= 10;
            *s = ru_str_from(*s, 1);
        }
        return after > 0;
    }
    return digits > 0;
}

static bool scaled(int64_t whole, int64_t part, int64_t places, int64_t scale, int64_t *out)
{
    /* part/places * scale must be whole. Both fit in 2^50 and 2^47: use 128 bits. */
    __extension__ typedef __int128 wide;
    wide fraction = (wide)part * scale;
    if (fraction % places != 0) {
        return false;
    }
    wide all = (wide)whole * scale + fraction / places;
    if (all > INT64_MAX) {
        return false;
    }
    *out = (int64_t)all;
    return true;
}

static bool read_unit(ru_str word, const unit_row *rows, uint32_t n, int64_t *out)
{
    int64_t whole, part, places;
    if (!read_decimal(&word, &whole, &part, &places)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (ru_str_eq_c(word, rows[i].word)) {
            return scaled(whole, part, places, rows[i].scale, out);
        }
    }
    return false;
}

bool ru_unit_time(ru_str word, int64_t *ns)
{
    if (ru_str_eq_c(word, "0")) {
        *ns = 0;
        return true;
    }
    return read_unit(word, time_rows, RU_ARRAY_LEN(time_rows), ns);
}

bool ru_unit_size(ru_str word, int64_t *bytes)
{
    uint64_t bare;
    if (word.n > 0 && word.p[word.n - 1] >= '0' && word.p[word.n - 1] <= '9') {
        if (ru_str_starts(word, "0x") || ru_str_starts(word, "+") || !ru_str_u64(word, &bare) ||
            bare > INT64_MAX) {
            return false;
        }
        *bytes = (int64_t)bare;
        return true;
    }
    return read_unit(word, size_rows, RU_ARRAY_LEN(size_rows), bytes);
}

void ru_text_time(ru_text *t, int64_t ns)
{
    if (ns == 0) {
        ru_text_put(t, "0");
        return;
    }
    /* Hours and days only when whole; else the largest of ns .. min that divides. */
    uint32_t best = 0;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(time_rows); i++) {
        best = ns % time_rows[i].scale == 0 ? i : best;
    }
    if (ns < 2 * time_rows[best].scale && best >= 4) {
        best--; /* 60s and 60min say more than 1min and 1h beside other values */
    }
    ru_text_putf(t, "%lld%s", (long long)(ns / time_rows[best].scale), time_rows[best].word);
}

void ru_text_size(ru_text *t, int64_t bytes)
{
    static const uint32_t kib = 6; /* rows from here on are powers of 1024 */
    uint32_t best = 0;
    for (uint32_t i = kib; i < RU_ARRAY_LEN(size_rows) && bytes > 0; i++) {
        best = bytes % size_rows[i].scale == 0 ? i : best;
    }
    ru_text_putf(t, "%lld%s", (long long)(bytes / size_rows[best].scale),
                 best == 0 ? "" : size_rows[best].word);
}

/* Three digits and a unit. */
static void three_digits(ru_text *t, double v, const char *unit)
{
    double size = v < 0 ? -v : v;
    ru_text_putf(t, size < 9.995 ? "%.2f %s" : size < 99.95 ? "%.1f %s" : "%.0f %s", v, unit);
}

void ru_text_time_short(ru_text *t, int64_t ns)
{
    double s = (double)ns * 1e-9;
    double size = s < 0 ? -s : s;
    if (size < 0.9995e-6) {
        ru_text_putf(t, "%lld ns", (long long)ns);
    } else if (size < 0.9995e-3) {
        three_digits(t, s * 1e6, "us");
    } else if (size < 0.9995) {
        three_digits(t, s * 1e3, "ms");
    } else if (size < 119.5) {
        three_digits(t, s, "s");
    } else if (size < 7170) {
        long long whole = (long long)(s + 0.5);
        ru_text_putf(t, "%lld min %lld s", whole / 60, whole % 60);
    } else {
        long long minutes = (long long)(s / 60 + 0.5);
        ru_text_putf(t, "%lld h %lld min", minutes / 60, minutes % 60);
    }
}

void ru_text_size_short(ru_text *t, int64_t bytes)
{
    static const char *const words[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    uint32_t i = 0;
    for (; v >= 999.5 && i + 1 < RU_ARRAY_LEN(words); i++) {
        v /= 1024;
    }
    if (i == 0) {
        ru_text_putf(t, "%lld B", (long long)bytes);
    } else {
        three_digits(t, v, words[i]);
    }
}

void ru_text_count_short(ru_text *t, double count)
{
    static const char *const words[] = {"", "k", "M", "G", "T"};
    uint32_t i = 0;
    for (; count >= 999.5 && i + 1 < RU_ARRAY_LEN(words); i++) {
        count /= 1000;
    }
    if (i == 0) {
        ru_text_putf(t, "%.0f", count);
    } else {
        three_digits(t, count, words[i]);
    }
}
