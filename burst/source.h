/* What requests took, from an access log that grows or from a histogram of /metrics.
 *
 *   log       the number in one column of each new line, in seconds; the file may be rotated
 *   metrics   a Prometheus histogram: what was added to its buckets since the last look, spread
 *             evenly within each bucket
 *
 * Thread: loop only; metrics block as web/fetch.h says. */
#ifndef RU_BURST_SOURCE_H
#define RU_BURST_SOURCE_H

#include "base/str.h"

enum { RU_SOURCE_MAX = 4096, RU_SOURCE_BUCKETS = 256 };

typedef struct ru_source_options {
    const char *log;       /* path; "": none */
    uint32_t column;       /* of the seconds, from 1; 0: the last one */
    const char *metrics;   /* URL; "": none */
    const char *histogram; /* its name, without _bucket */
} ru_source_options;

typedef struct ru_source {
    ru_source_options opt;
    int64_t offset; /* read so far of the file with this id */
    uint64_t file;
    bool begun;
    double before[RU_SOURCE_BUCKETS]; /* counts of the histogram's buckets at the last look */
    uint32_t n_before;
    uint32_t bad; /* lines without a number there, since the last one with it */
} ru_source;

typedef struct ru_source_news {
    uint32_t requests;
    double latency_s[RU_SOURCE_MAX]; /* [n] of them */
    uint32_t n;
} ru_source_news;

/* What ended since the last look; the first one only says where to begin. Errors: RU_E_MISSING (the
 * file), RU_E_PEER, RU_E_DATA (no such column or histogram). */
RU_MUST_USE ru_status ru_source_look(ru_source *s, ru_source_news *out, ru_err *err);
/* The parts that need no system. A whole line of a log; false: no number there. */
bool rui_source_line(ru_str line, uint32_t column, double *latency_s);
/* A page of /metrics. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_source_page(ru_source *s, ru_str page, ru_source_news *out, ru_err *err);

#endif
