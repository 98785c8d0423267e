#include "burst/source.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"
#include "web/fetch.h"

enum { READ_MAX = 4 << 20, PATIENCE_MS = 2000 };

static void add(ru_source_news *out, double latency_s)
{
    out->requests++;
    if (out->n < RU_SOURCE_MAX) {
        out->latency_s[out->n++] = latency_s;
    }
}

bool rui_source_line(ru_str line, uint32_t column, double *latency_s)
{
    ru_str word, at = ru_str_c("");
    uint32_t k = 0;
    line = ru_str_trim(line);
    while ((column == 0 || k < column) && ru_str_next(&line, ' ', &word)) {
        k += word.n > 0;
        at = word.n > 0 ? word : at;
    }
    return (column == 0 || k == column) && ru_str_f64(at, latency_s) && *latency_s >= 0 &&
           *latency_s < 1e6;
}

/* Whole lines from where the last look ended. */
static ru_status look_log(ru_source *s, ru_source_news *out, ru_err *err)
{
    ru_in_file f;
    if (ru_path_exists(s->opt.log) && !ru_path_is_file(s->opt.log)) {
        return RU_FAIL(err, RU_E_CONFIG, /* a pipe would be waited for, and its lines taken away */
                       "%s is no file; the access log must be written into one", s->opt.log);
    }
    RU_TRY(ru_in_open(s->opt.log, &f, err));
    if (!s->begun || f.id != s->file || f.size_bytes < s->offset) {
        s->offset = s->begun ? 0 : f.size_bytes; /* rotated, or what was there before us */
        s->file = f.id;
    }
    int64_t n = f.size_bytes - s->offset;
    n = n < READ_MAX ? n : READ_MAX;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    char *text = ru_arena_alloc(&arena, n + 1, 1);
    ru_status st = text == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for lines of %s", s->opt.log)
                   : n == 0     ? RU_OK
                                : ru_in_read(&f, s->opt.log, s->offset, text, n, err);
    ru_in_close(&f);
    int64_t got = n;
    while (st == RU_OK && n > 0 && text[n - 1] != '\n') {
        n--;
    }
    n = n == 0 && got == READ_MAX ? got : n; /* no line is that long: past it */
    ru_str rest = ru_str_n(text, st == RU_OK ? n : 0), line;
    s->offset += rest.n;
    while (ru_str_next(&rest, '\n', &line)) {
        double latency_s;
        if (rui_source_line(line, s->opt.column, &latency_s)) {
            add(out, latency_s);
            s->bad = 0;
        } else {
            s->bad += line.n > 0;
        }
    }
    if (st == RU_OK && s->bad >= 100 && out->requests == 0) {
        st = RU_FAIL(err, RU_E_DATA,
                     "%s: no line holds a number of seconds in column %u (0: the last one); let "
                     "the log end with one ($request_time of nginx) or name its column",
                     s->opt.log, s->opt.column);
    }
    ru_arena_fini(&arena);
    return st;
}

/* NAME_bucket{...le="BOUND"...} COUNT: of several label sets the counts are summed by bound. */
typedef struct buckets {
    double bound[RU_SOURCE_BUCKETS], count[RU_SOURCE_BUCKETS];
    uint32_t n;
} buckets;

static bool number(ru_str text, double *out)
{
    if (ru_str_eq_c(text, "+Inf")) {
        *out = (double)INFINITY;
        return true;
    }
    return ru_str_f64(text, out);
}

static void put_bucket(buckets *b, ru_str line, const char *histogram)
{
    int64_t head = (int64_t)strlen(histogram);
    double bound, count;
    if (!ru_str_starts(line, histogram) || !ru_str_starts(ru_str_from(line, head), "_bucket{")) {
        return;
    }
    int64_t le = ru_str_find(line, "le=\""), end = ru_str_find(line, "} ");
    if (le < 0 || end < 0) {
        return;
    }
    ru_str text = ru_str_from(line, le + 4), tail = ru_str_trim(ru_str_from(line, end + 2)), value;
    if (!ru_str_next(&text, '"', &value) || !number(value, &bound) || !(bound >= 0) ||
        !ru_str_next(&tail, ' ', &text) || !ru_str_f64(text, &count) || !(count >= 0)) {
        return;
    }
    uint32_t k = 0;
    while (k < b->n && b->bound[k] < bound) {
        k++;
    }
    if (k < b->n && b->bound[k] == bound) {
        b->count[k] += count;
    } else if (b->n < RU_SOURCE_BUCKETS) {
        memmove(&b->bound[k + 1], &b->bound[k], (b->n - k) * sizeof b->bound[0]);
        memmove(&b->count[k + 1], &b->count[k], (b->n - k) * sizeof b->count[0]);
        b->bound[k] = bound;
        b->count[k] = count;
        b->n++;
    }
}

ru_status rui_source_page(ru_source *s, ru_str page, ru_source_news *out, ru_err *err)
{
    buckets b = {.n = 0};
    ru_str line;
    while (ru_str_next(&page, '\n', &line)) {
        put_bucket(&b, line, s->opt.histogram);
    }
    if (b.n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s has no histogram %s (%s_bucket{...le=\"...\"} lines)",
                       s->opt.metrics, s->opt.histogram, s->opt.histogram);
    }
    /* A service that began anew counts from 0. */
    bool same = s->n_before == b.n && b.count[b.n - 1] >= s->before[b.n - 1];
    double below = 0, base = same ? s->before[b.n - 1] : 0;
    double share = fmin(1, RU_SOURCE_MAX / fmax(1, b.count[b.n - 1] - base) * 0.9);
    for (uint32_t k = 0; k < b.n && s->begun; k++) {
        double now = b.count[k] - (same ? s->before[k] : 0), low = k > 0 ? b.bound[k - 1] : 0;
        double n = floor(fmin(fmax(now - below, 0), 1e6)),
               high = isinf(b.bound[k]) ? low : b.bound[k];
        double drawn = ceil(n * share);
        below = now;
        out->requests += (uint32_t)n;
        for (double i = 0; i < drawn && out->n < RU_SOURCE_MAX; i++) {
            out->latency_s[out->n++] = low + (high - low) * (i + 0.5) / drawn;
        }
    }
    RU_CHECK(b.n <= RU_SOURCE_BUCKETS && out->n <= out->requests);
    memcpy(s->before, b.count, b.n * sizeof b.count[0]);
    s->n_before = b.n;
    return RU_OK;
}

ru_status ru_source_look(ru_source *s, ru_source_news *out, ru_err *err)
{
    out->requests = out->n = 0;
    ru_status st;
    if (s->opt.metrics[0] != 0) {
        ru_arena arena;
        char *text;
        int64_t n;
        const ru_fetch f = {.url = s->opt.metrics, .patience_ms = PATIENCE_MS};
        ru_arena_init(&arena, 0);
        st = ru_http_fetch(&f, &arena, &text, &n, err);
        st = st == RU_OK ? rui_source_page(s, ru_str_n(text, n), out, err) : st;
        ru_arena_fini(&arena);
    } else {
        st = look_log(s, out, err);
    }
    s->begun = s->begun || st == RU_OK;
    return st;
}
