/* Order statistics, isotonic regression, conformal bounds. See quantile.h. */
#include "cost/math/quantile.h"

#include <math.h>
#include <string.h>

static void sift_f64(double *v, uint64_t at, uint64_t n)
{
    double item = v[at];
    for (uint64_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && v[child + 1] > v[child];
        if (v[child] <= item) {
            break;
        }
        v[at] = v[child];
    }
    v[at] = item;
}

void ru_sort_f64(double *v, uint32_t n)
{
    for (uint32_t k = n / 2; k-- > 0;) {
        sift_f64(v, k, n);
    }
    for (uint32_t k = n; k-- > 1;) {
        double last = v[k];
        v[k] = v[0];
        v[0] = last;
        sift_f64(v, 0, k);
    }
}

static bool after(const double *key, uint32_t a, uint32_t b)
{
    return key[a] != key[b] ? key[a] > key[b] : a > b;
}

static void sift_order(const double *key, uint32_t *order, uint64_t at, uint64_t n)
{
    uint32_t item = order[at];
    for (uint64_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && after(key, order[child + 1], order[child]);
        if (!after(key, order[child], item)) {
            break;
        }
        order[at] = order[child];
    }
    order[at] = item;
}

void ru_sort_order_f64(const double *key, uint32_t *order, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        order[k] = k;
    }
    for (uint32_t k = n / 2; k-- > 0;) {
        sift_order(key, order, k, n);
    }
    for (uint32_t k = n; k-- > 1;) {
        uint32_t last = order[k];
        order[k] = order[0];
        order[0] = last;
        sift_order(key, order, 0, k);
    }
}

double ru_quantile_sorted(const double *v, uint32_t n, double q, ru_quantile_kind kind)
{
    RU_CHECK(n >= 1);
    RU_CHECK(q >= 0 && q <= 1);
    double at = q * (n - 1), below = floor(at);
    uint32_t low = (uint32_t)below, high = at > below ? low + 1 : low;
    switch (kind) {
    case RU_QUANTILE_LINEAR:
        return v[low] + (at - below) * (v[high] - v[low]);
    case RU_QUANTILE_LOWER:
        return v[low];
    case RU_QUANTILE_HIGHER:
        return v[high];
    case RU_QUANTILE_RANK:
        break;
    }
    /* ceil(q n), where q n may be a whole number but for its rounding: 0.07 * 100. */
    double rank = ceil(q * n * (1 - 4e-16));
    return v[rank < 1 ? 0 : (uint32_t)rank - 1];
}

/* Into v[k] what a sort would put there; nothing larger before it, nothing smaller behind it. The
 * part that holds the place k is divided by the value there, until it is one value. */
static void put_at(double *v, int64_t n, int64_t k)
{
    for (int64_t first = 0, last = n - 1; first < last;) {
        double by = v[k];
        int64_t i = first, j = last;
        while (i <= j) {
            while (v[i] < by) {
                i++;
            }
            while (by < v[j]) {
                j--;
            }
            if (i <= j) {
                double t = v[i];
                v[i++] = v[j];
                v[j--] = t;
            }
        }
        first = j < k ? i : first;
        last = k < i ? j : last;
    }
}

double ru_quantile_select(double *v, uint32_t n, double q, ru_quantile_kind kind)
{
    RU_CHECK(n >= 1 && q >= 0 && q <= 1);
    int64_t low = (int64_t)floor(q * (n - 1)) - (kind == RU_QUANTILE_RANK ? 1 : 0);
    low = low > 0 ? low : 0;
    put_at(v, n, low);
    for (int64_t k = low + 1; k < n && k < low + 3; k++) { /* the neighbours that it may look at */
        put_at(v + k, n - k, 0);
    }
    return ru_quantile_sorted(v, n, q, kind);
}

static ru_status check_sample(const double *v, uint32_t n, double q, ru_err *err)
{
    if (n == 0) {
        return RU_FAIL(err, RU_E_ARG, "a quantile of no samples");
    }
    if (!(q >= 0 && q <= 1)) {
        return RU_FAIL(err, RU_E_ARG, "quantile %g is outside 0 .. 1", q);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (isnan(v[i])) {
            return RU_FAIL(err, RU_E_ARG, "sample %u of %u is not a number", i, n);
        }
    }
    return RU_OK;
}

static ru_status no_room(uint32_t n, ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for %u samples", n);
}

ru_status ru_quantile(const double *v, uint32_t n, double q, ru_quantile_kind kind,
                      ru_arena *scratch, double *out, ru_err *err)
{
    RU_TRY(check_sample(v, n, q, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *copy = ru_arena_copy(scratch, v, (int64_t)n * (int64_t)sizeof *v, _Alignof(double));
    if (copy == NULL) {
        return no_room(n, err);
    }
    ru_sort_f64(copy, n);
    *out = ru_quantile_sorted(copy, n, q, kind);
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

/* A block of equal fitted values, at most as many as points. */
typedef struct block {
    double sum, weight;
    uint32_t n;
} block;

ru_status ru_conformal(const double *scores, uint32_t n, double miss, ru_arena *scratch,
                       double *out, ru_err *err)
{
    if (!(miss > 0 && miss < 1)) {
        return RU_FAIL(err, RU_E_ARG, "a share of misses of %g is outside 0 .. 1", miss);
    }
    double rank = ceil(((double)n + 1) * (1 - miss) * (1 - 4e-16));
    if (n == 0 || rank > n) {
        *out = (double)INFINITY;
        return RU_OK;
    }
    RU_TRY(check_sample(scores, n, 0, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *copy =
        ru_arena_copy(scratch, scores, (int64_t)n * (int64_t)sizeof *copy, _Alignof(double));
    if (copy == NULL) {
        return no_room(n, err);
    }
    ru_sort_f64(copy, n);
    *out = copy[(uint32_t)rank - 1];
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

double ru_conformal_next(double miss_now, double miss_goal, bool missed, double rate)
{
    double next = miss_now + rate * (miss_goal - (missed ? 1 : 0));
    return next < 1e-6 ? 1e-6 : next > 1 - 1e-6 ? 1 - 1e-6 : next;
}
