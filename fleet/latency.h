/* How long tasks of simulated clients take: from a law, or as a trace has recorded it.
 *
 *   law     median * speed(client), with a spread s, z normal and u uniform in (0, 1):
 *             lognormal exp(s z); pareto (2 u)^-s; uniform 1 - s + 2 s u, s at most 1
 *   trace   a CSV file whose first line names its columns: `client` (any text), `seconds` (a time,
 *           or `lost`: nobody answers), and perhaps `round` (from 1). Other columns are ignored.
 *
 * Clients of a trace are numbered as they come first. If the simulation has more clients, those of
 * the trace are used again in turn. Without rounds the k-th task of a client takes its k-th row,
 * and the first row follows the last. With rounds it takes the last row that is not of a later
 * round, else the first.
 *
 * Thread: any. */
#ifndef RU_FLEET_LATENCY_H
#define RU_FLEET_LATENCY_H

#include "base/arena.h"
#include "base/rng.h"

typedef enum ru_latency_law {
    RU_LATENCY_LOGNORMAL,
    RU_LATENCY_PARETO,
    RU_LATENCY_UNIFORM
} ru_latency_law;

/* Of one client in units of the median one. */
double ru_latency_speed(ru_latency_law law, double spread, ru_rng *rng);

typedef struct ru_latency_trace ru_latency_trace;

/* Owner: in `arena`. Errors: RU_E_DATA with the line, those of ru_file_read, RU_E_MEM. */
RU_MUST_USE ru_status ru_latency_trace_open(const char *path, ru_arena *arena,
                                            ru_latency_trace **out, ru_err *err);
/* Seconds of a task, the turn-th of this client (from 0), in this round (0: before the first). < 0:
 * it is lost. */
double ru_latency_trace_at(const ru_latency_trace *t, uint32_t client, uint32_t round,
                           uint32_t turn);
uint64_t ru_latency_trace_hash(const ru_latency_trace *t); /* of what it says */

#endif
