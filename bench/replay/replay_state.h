/* What a replay has done: its rows in a file, unit by unit, so that one that was stopped goes on
 * there, and lines on stderr that tell how far it is.
 *
 *   out/bench/replay.state
 *     rubato.replay_state/1 <tab> what the rows depend on
 *     begin <tab> replay <tab> unit
 *     row <tab> replay <tab> unit <tab> fields ...        numbers in hexadecimal: no digit is lost
 *     done <tab> replay <tab> unit                        the unit is whole; others count for
 * nothing
 *
 * Thread: main only. */
#ifndef RU_BENCH_REPLAY_STATE_H
#define RU_BENCH_REPLAY_STATE_H

#include <stdio.h>

#include "bench/replay/replay.h"

typedef struct rui_replay_state {
    ru_arena *arena;
    const char *path, *of; /* of: what the rows depend on: the program, the data, the options */
    ru_str kept;           /* lines of the run before; empty: begun anew */
    FILE *file;            /* lines of this run are added here */
    bool bar, quiet;       /* a line that is drawn over; none */
    int64_t begun_ns, told_ns;
    uint32_t rows, units, taken; /* taken: units from the file */
} rui_replay_state;

/* Owner: texts in `arena`. Errors: RU_E_MISSING when there is nothing to resume, RU_E_CONFIG when
 * it is of another program, other data or other options, those of files. */
RU_MUST_USE ru_status rui_replay_state_open(rui_replay_state *s, const char *dir, const char *of,
                                            bool resume, ru_arena *arena, ru_err *err);
/* All is done: the file goes. */
void rui_replay_state_end(rui_replay_state *s);
/* Stopped or failed: the file stays. */
void rui_replay_state_close(rui_replay_state *s);

/* The rows of a whole unit into r->rows. False: it was not done, or not wholly. */
bool rui_replay_state_take(rui_replay_state *s, ru_replay *r, const char *unit);
/* Rows from `first` on are those of the unit, which is whole. Errors: RU_E_IO. */
RU_MUST_USE ru_status rui_replay_state_put(rui_replay_state *s, const ru_replay *r,
                                           const char *unit, uint32_t first, ru_err *err);
/* How far it is, at most ten times a second on a terminal, else every 30 s. */
void rui_replay_state_tell(rui_replay_state *s, const ru_replay *r, const char *at);

/* Takes the drawn line away; NULL: there is none. */
void rui_replay_state_clear(rui_replay_state *s);

#endif
