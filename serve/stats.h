/* What a version of a model did: counts, and times with fixed bounds, as Prometheus and Triton's
 * statistics want them.
 *
 * Thread: loop only. */
#ifndef RU_SERVE_STATS_H
#define RU_SERVE_STATS_H

#include "base/str.h"
#include "serve/serve.h"

enum { RUI_BOUNDS = 18 };

typedef struct rui_times {
    uint64_t n[RUI_BOUNDS + 1]; /* by the first bound that is not below; the last: beyond all */
    uint64_t count;
    int64_t sum_ns;
} rui_times;

/* Why a request got no outputs. */
typedef enum rui_miss {
    RUI_MISS_BAD,       /* 400 */
    RUI_MISS_FULL,      /* 429 */
    RUI_MISS_LATE,      /* 504 */
    RUI_MISS_CANCELLED, /* its client left */
    RUI_MISS_FAILED,    /* 500, 503 */
    RUI_MISSES
} rui_miss;

typedef struct rui_stats {
    rui_times request, queue, compute, parse, answer; /* of requests; compute: of their batches */
    uint64_t miss[RUI_MISSES];
    int64_t missed_ns;     /* sum, of those */
    uint64_t late_answers; /* later than promised */
    uint64_t rows;
    int64_t last_ms;                     /* the last answer, since 1970; 0: none yet */
    uint64_t batches_of[RU_SERVE_SIZES]; /* by rows: 1, 2, up to 4, up to 8, ... */
    int64_t batch_ns[RU_SERVE_SIZES];
} rui_stats;

const char *rui_stats_reason(uint32_t why); /* ru_serve_reason */
void rui_times_add(rui_times *t, int64_t ns);

typedef struct rui_stats_of {
    const char *model, *version;
    const rui_stats *stats;
    const ru_serve_pace *pace;
    ru_serve_stats machine;
    uint32_t under_way;
    int64_t promise_ns;
} rui_stats_of;

/* The page for Prometheus (text format 0.0.4). */
void rui_stats_prometheus(const rui_stats_of *of, uint32_t n, ru_text *t);
/* The same facts by the names that Triton's page has. */
void rui_stats_triton(const rui_stats_of *of, uint32_t n, ru_text *t);
/* Triton's statistics as JSON. */
void rui_stats_json(const rui_stats_of *of, uint32_t n, ru_text *t);

#endif
