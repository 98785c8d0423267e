/* Logs of requests as inputs of the policies `batch` and `route`: one line a request, its time
 * first, its size (tokens, KB) second. The rest of the input comes by --set. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "store/natural.h"

enum { REQUESTS_MAX = 1 << 20, CLASSES = 8 };

typedef struct request {
    int64_t s; /* whole seconds */
    double part_s, size;
    bool sized;
} request;

static bool digits(ru_str text, int64_t at, int64_t n, int64_t *out)
{
    return at + n <= text.n && ru_str_i64(ru_str_n(text.p + at, n), out) && *out >= 0;
}

/* Days from 1970-01-01 in the calendar of today. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    static const int64_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    int64_t y = year - 1, leaps = y / 4 - y / 100 + y / 400 - 477;
    return 365 * (year - 1970) + leaps + before[month - 1] + (leap && month > 2 ? 1 : 0) + day - 1;
}

/* "2023-11-16 18:17:03.9799600", also with T and Z; or seconds. */
static bool time_of(ru_str word, request *out)
{
    int64_t year, month, day, hour, minute, second;
    if (word.n > 0 && word.p[word.n - 1] == 'Z') {
        word.n--;
    }
    if (!digits(word, 0, 4, &year) || word.n < 19 || word.p[4] != '-') {
        double s;
        if (!ru_str_f64(word, &s) || !(s >= 0 && s <= 1e12)) {
            return false;
        }
        out->s = (int64_t)floor(s);
        out->part_s = s - floor(s);
        return true;
    }
    bool made = digits(word, 5, 2, &month) && digits(word, 8, 2, &day) &&
                digits(word, 11, 2, &hour) && digits(word, 14, 2, &minute) &&
                digits(word, 17, 2, &second);
    if (!made || year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 ||
        minute > 59 || second > 60 || word.p[7] != '-' || word.p[13] != ':' || word.p[16] != ':' ||
        (word.p[10] != ' ' && word.p[10] != 'T')) {
        return false;
    }
    out->s = 86400 * days_of(year, month, day) + 3600 * hour + 60 * minute + second;
    out->part_s = 0;
    return word.n == 19 || (word.p[19] == '.' && ru_str_f64(ru_str_from(word, 19), &out->part_s));
}

static bool request_of(ru_str line, request *out)
{
    ru_str rest = ru_str_trim(line), word, size;
    *out = (request){0};
    if (!ru_str_next(&rest, ',', &word) || !time_of(ru_str_trim(word), out)) {
        return false;
    }
    out->sized = ru_str_next(&rest, ',', &size) && ru_str_f64(ru_str_trim(size), &out->size) &&
                 out->size > 0 && out->size <= 1e12;
    return true;
}

/* The first line, or the one below a head. */
static bool first_of(ru_str text, request *out)
{
    ru_str line;
    return (ru_str_next(&text, '\n', &line) && request_of(line, out)) ||
           (ru_str_find(line, ",") > 0 && ru_str_next(&text, '\n', &line) && request_of(line, out));
}

static bool is_log(const char *path, ru_str text)
{
    (void)path;
    request r;
    return first_of(text, &r);
}

static bool is_sized_log(const char *path, ru_str text)
{
    (void)path;
    request r;
    return first_of(text, &r) && r.sized;
}

/* All requests, in rising time. */
static ru_status read_all(const char *path, ru_str text, bool sized, ru_arena *arena,
                          request **requests, uint32_t *n, ru_err *err)
{
    uint32_t room = 0, row = 0;
    for (int64_t i = 0; i < text.n; i++) {
        room += text.p[i] == '\n' ? 1 : 0;
    }
    request *all = RU_NEW(arena, request, (int64_t)room + 1), r;
    if (all == NULL || room >= REQUESTS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: %u requests, expected at most %d", path, room,
                       REQUESTS_MAX - 1);
    }
    *n = 0;
    for (ru_str line; ru_str_next(&text, '\n', &line); row++) {
        bool made = request_of(line, &r), head = row == 0 && !made;
        bool later = made && (*n == 0 || r.s > all[*n - 1].s ||
                              (r.s == all[*n - 1].s && r.part_s >= all[*n - 1].part_s));
        if (head || (ru_str_trim(line).n == 0 && ru_str_trim(text).n == 0)) {
            continue;
        }
        if (!later || (sized && !r.sized)) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s:%u: '%.*s', expected a time not before the line above%s, as in "
                           "'2023-11-16 18:17:03.97,4808'",
                           path, row + 1, (int)(line.n < 60 ? line.n : 60), line.p,
                           sized ? " and a size above 0" : "");
        }
        all[(*n)++] = r;
    }
    *requests = all;
    return *n >= 3 ? RU_OK
                   : RU_FAIL(err, RU_E_DATA, "%s: %u requests, expected three and more", path, *n);
}

static void put_gaps(const request *all, uint32_t n, ru_json *j)
{
    ru_json_open(j, "arrivals", '{');
    ru_json_open(j, "gaps_s", '[');
    for (uint32_t i = 1; i < n; i++) {
        double s = (double)(all[i].s - all[i - 1].s);
        ru_json_f64(j, NULL, fmax(0, s + (all[i].part_s - all[i - 1].part_s)));
    }
    ru_json_close(j);
    ru_json_close(j);
}

static ru_status read_log(const char *path, ru_str text, ru_arena *arena, ru_json *j, ru_err *err)
{
    request *all;
    uint32_t n;
    RU_TRY(read_all(path, text, false, arena, &all, &n, err));
    put_gaps(all, n, j);
    return RU_OK;
}

static int rising(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Up to eight classes of about equally many requests; a request counts as the largest of its
 * class. */
static ru_status read_sized_log(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                                ru_err *err)
{
    request *all;
    uint32_t n, classes = 0, until[CLASSES];
    RU_TRY(read_all(path, text, true, arena, &all, &n, err));
    put_gaps(all, n, j);
    double *size = RU_NEW(arena, double, n), top[CLASSES];
    if (size == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for %u sizes", path, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        size[i] = all[i].size;
    }
    qsort(size, n, sizeof *size, rising);
    for (uint32_t k = 1; k <= CLASSES; k++) {
        uint32_t at = (uint32_t)((uint64_t)k * n / CLASSES);
        if (at == 0 || (classes > 0 && !(size[at - 1] > top[classes - 1]))) {
            continue;
        }
        while (at < n && !(size[at] > size[at - 1])) {
            at++;
        }
        top[classes] = size[at - 1];
        until[classes++] = at;
    }
    ru_json_open(j, "sizes", '[');
    for (uint32_t k = 0; k < classes; k++) {
        ru_json_f64(j, NULL, top[k]);
    }
    ru_json_close(j);
    ru_json_open(j, "shares", '[');
    for (uint32_t k = 0; k < classes; k++) {
        ru_json_f64(j, NULL, (double)(until[k] - (k > 0 ? until[k - 1] : 0)) / n);
    }
    ru_json_close(j);
    return RU_OK;
}

const ru_natural rui_natural_batch_log = {
    .policy = "batch",
    .what = "log of requests: lines 'TIME[,...]' with seconds or YYYY-MM-DD HH:MM:SS.F, ascending; "
            "give 'service' and 'slo_s' with --set",
    .is = is_log,
    .read = read_log,
};

const ru_natural rui_natural_route_log = {
    .policy = "route",
    .what = "log of requests: lines 'TIME,SIZE[,...]' with seconds or YYYY-MM-DD HH:MM:SS.F, "
            "ascending; sizes form up to eight classes of about equally many requests; give "
            "'memory_mb', 'service_s' and 'slo_s' with --set",
    .is = is_sized_log,
    .read = read_sized_log,
};
