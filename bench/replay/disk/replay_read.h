/* A reader and its tuner in the simulator. Thread: main. */
#ifndef RU_BENCH_REPLAY_READ_H
#define RU_BENCH_REPLAY_READ_H

#include "bench/replay/disk/replay_read_store.h"
#include "bench/replay/replay.h"

typedef struct rui_read_drive {
    ru_read_in in;
    ru_sim *sim;
    ru_arena *arena;
    rui_store store;
    rui_reader reader;
    ru_read_state state;
    ru_read_meter meter;
    bool frozen; /* the setting is not tuned */
    uint64_t delivered[2];
    int64_t converged_ns;
    uint32_t windows;
    ru_status status;
    ru_err err;
} rui_read_drive;

/* 64 KiB to 16 MiB, 1 to 256 outstanding, 256 MiB. */
ru_read_in rui_read_input(int64_t sample_bytes, ru_read_method method);
void rui_read_open(rui_read_drive *d, ru_sim *sim, const rui_store_spec *store,
                   const rui_records *records, const ru_read_in *in, uint64_t seed,
                   ru_arena *arena);

#endif
