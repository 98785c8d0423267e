/* Bucket of v: for v < 64, v itself; else the exponent of the leading bit picks the doubling and
 * the next five bits the bucket in it. */
#include "base/hist.h"

static uint32_t bucket_of(int64_t value)
{
    uint64_t v = value < 0 ? 0 : (uint64_t)value;
    if (v < 64) {
        return (uint32_t)v;
    }
    uint32_t top = 63u - (uint32_t)__builtin_clzll(v);
    return 64 + (top - 6) * 32 + (uint32_t)((v >> (top - RU_HIST_SUB_BITS)) & 31);
}

int64_t ru_hist_low(uint32_t bucket)
{
    if (bucket < 64) {
        return bucket;
    }
    if (bucket >= RU_HIST_BUCKETS) {
        return INT64_MAX;
    }
    uint32_t top = (bucket - 64) / 32 + 6, sub = (bucket - 64) % 32;
    return (int64_t)((uint64_t)(32 + sub) << (top - RU_HIST_SUB_BITS));
}

void ru_hist_add_n(ru_hist *h, int64_t value, uint64_t times)
{
    if (times == 0) {
        return;
    }
    value = value < 0 ? 0 : value;
    h->counts[bucket_of(value)] += times;
    h->min = h->n == 0 || value < h->min ? value : h->min;
    h->max = value > h->max ? value : h->max;
    h->n += times;
    h->sum += (double)value * (double)times;
}

void ru_hist_add(ru_hist *h, int64_t value)
{
    ru_hist_add_n(h, value, 1);
}

void ru_hist_merge(ru_hist *into, const ru_hist *from)
{
    if (from->n == 0) {
        return;
    }
    for (uint32_t i = 0; i < RU_HIST_BUCKETS; i++) {
        into->counts[i] += from->counts[i];
    }
    into->min = into->n == 0 || from->min < into->min ? from->min : into->min;
    into->max = from->max > into->max ? from->max : into->max;
    into->n += from->n;
    into->sum += from->sum;
}

int64_t ru_hist_quantile(const ru_hist *h, double q)
{
    if (h->n == 0) {
        return 0;
    }
    q = q < 0 ? 0 : q > 1 ? 1 : q;
    uint64_t rank = (uint64_t)(q * (double)(h->n - 1)), seen = 0;
    for (uint32_t i = 0; i < RU_HIST_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > rank) {
            int64_t low = ru_hist_low(i), high = ru_hist_low(i + 1) - 1;
            int64_t middle = low + (high - low) / 2;
            middle = middle < h->min ? h->min : middle;
            return middle > h->max ? h->max : middle;
        }
    }
    return h->max;
}
