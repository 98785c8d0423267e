/* Inputs of policies in replays: read from a published file as `rubato plan FILE POLICY` reads it,
 * then changed field by field. Thread: main only. */
#ifndef RU_BENCH_REPLAY_INPUT_H
#define RU_BENCH_REPLAY_INPUT_H

#include "bench/replay/replay.h"
#include "plan/row/policy.h"

typedef struct rui_replay_input {
    const char *name; /* view */
    const ru_policy *policy;
    union {
        const void *in; /* by the policy's table */
        uint8_t *bytes;
    } u;
} rui_replay_input;

/* Errors: RU_E_DATA when the policy does not read such files, those of reading. */
RU_MUST_USE ru_status rui_replay_load(ru_replay *r, const ru_policy *policy, const char *path,
                                      const char *name, rui_replay_input *out, ru_err *err);
/* Fields by name; a choice by its number. */
void rui_replay_set_u32(rui_replay_input *g, const char *name, uint32_t v);
void rui_replay_set_i64(rui_replay_input *g, const char *name, int64_t v);
void rui_replay_set_f64(rui_replay_input *g, const char *name, double v);
/* NaN: there is no such field. */
double rui_replay_f64(const rui_replay_input *g, const char *name);

#endif
