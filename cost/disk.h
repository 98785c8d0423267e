/* How fast storage delivers reads of one size with a number of them outstanding.
 *
 *   request_s(q, r) = max(latency + r * byte_s,  q * r * shared_byte_s,  q * shared_request_s)
 *   rate(q, r)      = q * r / request_s(q, r)                                       (Little)
 *
 * Below the knee a request takes what it takes alone; beyond it the outstanding bytes or requests
 * wait for what the storage delivers per second, and more of them only wait longer.
 *
 * Source: lazowska-1984 ch. 5 (asymptotic bounds); magnani-boyd-2009 (fit of a maximum of planes).
 * Thread: any, pure. */
#ifndef RU_COST_DISK_H
#define RU_COST_DISK_H

#include "base/arena.h"

typedef struct ru_disk {
    double latency_s;        /* of a request of no bytes, alone */
    double byte_s;           /* of each byte of a request, alone */
    double shared_byte_s;    /* 1 / delivered bytes per second at most; 0: no limit was seen */
    double shared_request_s; /* 1 / requests per second at most; 0: no limit was seen */
    double error;            /* mean relative error of request_s over the samples */
} ru_disk;

typedef struct ru_disk_sample {
    int64_t size_bytes; /* of a request, >= 1 */
    uint32_t depth;     /* outstanding, >= 1 */
    double bytes_per_s; /* measured, > 0 */
} ru_disk_sample;

double ru_disk_request_s(const ru_disk *d, int64_t size_bytes, double depth);
double ru_disk_rate(const ru_disk *d, int64_t size_bytes, double depth);
/* The depth beyond which more requests only wait; at least 1, at most 1e9. */
double ru_disk_knee(const ru_disk *d, int64_t size_bytes);

/* The model nearest to the samples in relative error. Each sample belongs to the term that is
 * largest there; terms and samples take turns. Cost: O(n), at most 12 rounds.
 * Errors: RU_E_ARG for numbers outside the contract, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_disk_fit(const ru_disk_sample *s, uint32_t n, ru_arena *scratch,
                                  ru_disk *out, ru_err *err);

#endif
