/* Histograms of durations and sizes with logarithmic buckets: 32 buckets to each doubling, so a
 * quantile is at most 1.6 % off at any scale. Merging adds counts: any number of threads, processes
 * or machines give the histogram of all their values together.
 *
 * Thread: one at a time. Memory: fixed, about 15 KB, no allocation. */
#ifndef RU_BASE_HIST_H
#define RU_BASE_HIST_H

#include "base/status.h"

/* 64 exact buckets for 0..63, then 32 for each of the 57 doublings 2^6 .. 2^62. */
enum { RU_HIST_SUB_BITS = 5, RU_HIST_BUCKETS = 64 + 57 * 32 };

typedef struct ru_hist {
    uint64_t counts[RU_HIST_BUCKETS];
    uint64_t n;
    int64_t min, max; /* exact; 0 while n is 0 */
    double sum;
} ru_hist;

/* Zeroed memory is an empty histogram. */
void ru_hist_add(ru_hist *h, int64_t value); /* negative values count as 0 */
void ru_hist_add_n(ru_hist *h, int64_t value, uint64_t times);
void ru_hist_merge(ru_hist *into, const ru_hist *from);

/* The value below which a share q (0..1) of all values lies: the middle of its bucket, kept within
 * min..max; 0 for an empty histogram. */
int64_t ru_hist_quantile(const ru_hist *h, double q);

/* Lowest value of bucket i, for printing: bucket i holds low(i) .. low(i+1) - 1. */
int64_t ru_hist_low(uint32_t bucket);

#endif
