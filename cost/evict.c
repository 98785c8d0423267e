#include "cost/evict.h"

#include <math.h>
#include <stddef.h>

#include "base/rng.h"

static const int64_t hour_s = 3600;

ru_status ru_prices_check(const ru_prices *p, ru_err *err)
{
    if (p->n < 1 || p->n > RU_EVICT_ROWS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a price history has %u rows, expected 1 to %d", p->n,
                       RU_EVICT_ROWS_MAX);
    }
    for (uint32_t k = 0; k < p->n; k++) {
        if (!(p->usd[k] > 0) || !(p->usd[k] <= 1e6)) {
            return RU_FAIL(err, RU_E_ARG, "row %u has the price %g, expected above 0 to 1e6", k + 1,
                           p->usd[k]);
        }
        if (p->at_s[k] < 0 || p->at_s[k] > (int64_t)1 << 40 ||
            (k > 0 && p->at_s[k] < p->at_s[k - 1])) {
            return RU_FAIL(err, RU_E_ARG,
                           "row %u has the time %lld, expected seconds not before the row above",
                           k + 1, (long long)p->at_s[k]);
        }
    }
    return RU_OK;
}

ru_status ru_prices_parse(const char *label, ru_str text, ru_arena *arena, ru_prices *out,
                          ru_err *err)
{
    uint32_t n = 1, k = 0;
    for (int64_t i = 0; i < text.n; i++) {
        n += text.p[i] == '\n';
    }
    int64_t *at_s = RU_NEW(arena, int64_t, n);
    double *usd = RU_NEW(arena, double, n);
    ru_str line, word;
    if (at_s == NULL || usd == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the prices of %s", label);
    }
    for (; ru_str_trim(text).n > 0 && ru_str_next(&text, '\n', &line); k++) {
        if (!ru_str_next(&line, ' ', &word) || !ru_str_i64(word, &at_s[k]) ||
            !ru_str_f64(ru_str_trim(line), &usd[k])) {
            return RU_FAIL(err, RU_E_DATA, "%s:%u: expected a time in seconds, a blank and a price",
                           label, k + 1);
        }
    }
    *out = (ru_prices){at_s, usd, k};
    ru_status st = ru_prices_check(out, err);
    return st == RU_OK ? st : ru_err_wrap(err, RU_E_DATA, "%s", label);
}

ru_status ru_prices_drawn(double usd, double per_hour, int64_t from_s, uint64_t seed,
                          ru_arena *arena, ru_prices *out, ru_err *err)
{
    enum { TIMES_MAX = 500000 };
    const double hours = 87600;
    RU_CHECK(usd > 0 && per_hour >= 0 && from_s >= 0);
    double times = fmin(per_hour * hours * 1.1 + 100, TIMES_MAX), at_h = 0;
    uint32_t n = 1;
    int64_t *at_s = RU_NEW(arena, int64_t, 2 * (int64_t)times + 1);
    double *price = RU_NEW(arena, double, 2 * (int64_t)times + 1);
    ru_rng rng = ru_rng_from(seed, 1);
    if (at_s == NULL || price == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the prices of a market");
    }
    at_s[0] = from_s;
    price[0] = usd;
    while (per_hour > 0 && n + 2 <= 2 * (uint32_t)times && at_h < hours) {
        at_h += fmax(ru_rng_exponential(&rng) / per_hour, 2.0 / 3600);
        at_s[n] = from_s + (int64_t)(at_h * 3600);
        price[n] = 100 * (usd + 1);
        at_s[n + 1] = at_s[n] + 1;
        price[n + 1] = usd;
        n += 2;
    }
    *out = (ru_prices){at_s, price, n};
    return RU_OK;
}

uint32_t ru_prices_row(const ru_prices *p, int64_t s)
{
    uint32_t low = 0,
             high = p->n; /* rows below `low` are at or before s, those from `high` later */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (p->at_s[mid] <= s) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low == 0 ? UINT32_MAX : low - 1;
}

uint32_t ru_evict_state(const ru_prices *p, int64_t s)
{
    uint32_t row = ru_prices_row(p, s);
    if (row == UINT32_MAX) {
        return RU_EVICT_ALL;
    }
    int64_t from = s - hour_s > p->at_s[0] ? s - hour_s : p->at_s[0], above = 0, end = s;
    for (uint32_t k = row; end > from; k--) {
        int64_t begin = p->at_s[k] > from ? p->at_s[k] : from;
        above += p->usd[k] > p->usd[row] + 1e-9 ? end - begin : 0;
        end = begin;
    }
    return above == 0 ? RU_EVICT_TOP : 2 * above < s - from ? RU_EVICT_MIDDLE : RU_EVICT_LOW;
}

/* The k-th smallest of `n` counted seconds 0..3600. */
static int64_t nth(const uint32_t *seconds, uint32_t k)
{
    int64_t s = 0;
    for (uint32_t below = seconds[0]; below <= k; below += seconds[s]) {
        s++;
    }
    return s;
}

ru_status ru_evict_count(const ru_prices *p, int64_t from_s, int64_t until_s, double delta_usd,
                         uint32_t state, ru_arena *scratch, ru_evict_law *out, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    uint32_t *seconds = RU_NEW(scratch, uint32_t, hour_s + 1); /* evictions by second after start */
    if (seconds == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to count evictions");
    }
    ru_evict_law l = {0};
    uint32_t row = ru_prices_row(p, from_s);
    for (int64_t s = from_s; s < until_s - hour_s; s += RU_EVICT_STRIDE_S) {
        while ((row == UINT32_MAX ? 0 : row + 1) < p->n &&
               p->at_s[row == UINT32_MAX ? 0 : row + 1] <= s) {
            row = row == UINT32_MAX ? 0 : row + 1;
        }
        if (row == UINT32_MAX || (state != RU_EVICT_ALL && ru_evict_state(p, s) != state)) {
            continue;
        }
        l.n_starts++;
        double bid = p->usd[row] + delta_usd;
        uint32_t k = row + 1;
        while (k < p->n && p->at_s[k] <= s + hour_s && !(p->usd[k] > bid + 1e-9)) {
            k++;
        }
        if (k < p->n && p->at_s[k] <= s + hour_s) {
            seconds[p->at_s[k] - s]++;
        }
    }
    uint32_t n = 0;
    for (int64_t s = 0; s <= hour_s; s++) {
        n += seconds[s];
        if (s % 60 == 0) {
            l.evicted[s / 60] = n;
        }
    }
    if (n > 0) {
        l.median_s = (double)nth(seconds, n / 2);
    }
    ru_arena_rewind(scratch, mark);
    if (l.n_starts == 0) {
        return RU_FAIL(err, RU_E_ARG,
                       "the price history has no start with an hour behind it in %lld .. %lld",
                       (long long)from_s, (long long)until_s);
    }
    *out = l;
    return RU_OK;
}

double ru_evict_chance(const ru_evict_law *l, double hours)
{
    double at = fmin(fmax(hours, 0), 1) * RU_EVICT_MINUTES;
    uint32_t k = (uint32_t)at;
    double low = l->evicted[k], high = l->evicted[k < RU_EVICT_MINUTES ? k + 1 : k];
    return (low + (high - low) * (at - k)) / l->n_starts;
}

double ru_evict_service(const ru_evict_law *l, double hours)
{
    double at = fmin(fmax(hours, 0), 1) * RU_EVICT_MINUTES;
    uint32_t whole = (uint32_t)at;
    double minutes = at - whole, sum = 0;
    for (uint32_t k = 0; k < whole; k++) {
        sum += 0.5 * ((double)l->evicted[k] + l->evicted[k + 1]);
    }
    double low = l->evicted[whole], high = (double)ru_evict_chance(l, hours) * l->n_starts;
    sum += 0.5 * (low + high) * minutes;
    return (at - sum / l->n_starts) / RU_EVICT_MINUTES;
}
