/* Parts of the replay of burst. Thread: main. */
#ifndef RU_BENCH_REPLAY_BURST_H
#define RU_BENCH_REPLAY_BURST_H

#include "bench/replay/replay.h"

/* Tail latency at loads and speeds that a profile has not. */
RU_MUST_USE ru_status rui_burst_model(ru_replay *r, ru_err *err);
/* A day of a fleet against regular machines and a bound. */
RU_MUST_USE ru_status rui_burst_fleet(ru_replay *r, ru_err *err);

#endif
