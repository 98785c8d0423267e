/* A loop of clients over stations in series, simulated request by request: what a profile measures.
 * Thread: main. */
#ifndef RU_BENCH_REPLAY_LOOP_H
#define RU_BENCH_REPLAY_LOOP_H

#include "base/arena.h"
#include "cost/closed.h"

enum { RUI_LOOP_CLIENTS_MAX = 64 };

/* How service times are spread around their mean. */
typedef enum rui_loop_law {
    RUI_LOOP_EXPONENTIAL,
    RUI_LOOP_EVEN,  /* gamma of shape 4: squared variation 0.25 */
    RUI_LOOP_BURSTY /* two exponentials: squared variation 4.5 */
} rui_loop_law;

typedef struct rui_loop_in {
    const ru_station *station; /* [n] one server each, first come first served */
    uint32_t n;
    rui_loop_law law;
    double rate; /* > 0: an open loop of that many requests per second, clients are not used */
    uint32_t clients;
    double think_s; /* exponential */
    uint64_t seed;
    double warm_s, measure_s;
} rui_loop_in;

/* Latencies of requests that end in the measured time. Owner: in `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status rui_loop_run(const rui_loop_in *in, ru_arena *arena, double **latency,
                                   uint32_t *n, ru_err *err);

#endif
