/* Recurrent pipelines that write, read and remove files (storage_live.c, storage_loop.c): what each
 * step does, by seed alone, and what the files cost.
 *
 * Thread: any. */
#ifndef RU_BENCH_STORAGE_LIVE_H
#define RU_BENCH_STORAGE_LIVE_H

#include "base/arena.h"
#include "cost/density.h"

enum {
    RUI_LIVE_WORLDS = 2, /* learned, first fit */
    RUI_LIVE_PIPELINES = 8,
    RUI_LIVE_STEPS = 5,
    RUI_LIVE_KEPT = 10, /* files of a losing step stay so many steps; others 2 */
    RUI_LIVE_BYTES_MAX = 4 << 20,
};

typedef struct rui_live {
    uint32_t rounds; /* of all steps */
    uint64_t seed;
    double speed; /* of the pipelines' clock, times the real one */
    int64_t quota_bytes;
} rui_live;

typedef struct rui_live_file {
    ru_density_file is; /* on the clock of the pipelines */
    int64_t in[2];      /* bytes in the fast and the slow folder */
    double jumps;
} rui_live_file;

uint32_t rui_live_lag(uint32_t pipeline); /* steps after which its files go */
/* What step k of a pipeline writes; how long it thinks before; the size that it tells. */
rui_live_file rui_live_drawn(const rui_live *l, uint32_t p, uint32_t k, double *think_s,
                             double *guess);
double rui_live_peak(const rui_live *l); /* bytes of all that lives at one time */
void rui_live_names(const rui_live *l, uint32_t p, uint32_t k, char name[32], char group[32]);
/* Files of rounds from .. to - 1 in the order of their opening, which is about the same for all
 * pipelines; their cost in percent of all of them on the slow disk. */
double rui_live_cost(const rui_live_file *files, uint32_t from, uint32_t to);
/* The same if they had been placed by true saving. Errors: RU_E_LIMIT, those of the policy. */
RU_MUST_USE ru_status rui_live_oracle(const rui_live *l, const rui_live_file *files, uint32_t from,
                                      uint32_t to, ru_arena *arena, double *percent, ru_err *err);

#endif
