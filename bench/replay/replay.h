/* Replays: a policy and all its baselines over published data, beside the published figure, the
 * best known one and a bound. One function a policy, named in bench/replay/replay.def:
 *
 *     ru_status rui_replay_order(ru_replay *r, ru_err *err)
 *     {
 *         const char *graphs = ru_replay_data(r, "operator-graphs");      NULL: no data, say so
 *         ...
 *         ru_replay_row row = ru_replay_row_of("vgg16", "step_s", true);  lower is better
 *         row.ours = 1.02; row.published = 1.05; row.goal = 1.03;
 *         ru_replay_baseline(r, &row, "fifo", 1.4);
 *         RU_TRY(ru_replay_add(r, &row, err));
 *     }
 *
 * Replays draw nothing from the clock: the same seed gives the same rows. Time that a decision took
 * is measured and reported as a row of its own, marked `timed`.
 *
 * Thread: main only. */
#ifndef RU_BENCH_REPLAY_H
#define RU_BENCH_REPLAY_H

#include "base/table.h"

enum { RU_REPLAY_BASELINES_MAX = 16 };

typedef struct ru_replay_row {
    const char *name;    /* "vgg16, 2 workers" */
    const char *measure; /* what is compared, unit at the end: "makespan_s", "cost_usd", "regret" */
    bool lower;          /* lower is better */
    bool timed;          /* wall clock of this machine: differs from run to run */
    double ours;
    double published, best_known; /* NaN: none */
    double bound;                 /* proven: no method is better; NaN: none */
    double goal; /* ours must be on the good side of it; one beyond the bound is counted apart; NaN:
                    none */
    uint32_t n_baselines;
    const char *baseline_name[RU_REPLAY_BASELINES_MAX];
    double baseline[RU_REPLAY_BASELINES_MAX];
    const char *note; /* NULL: none; why a goal is missed, what was left out */
} ru_replay_row;

RU_VEC(rui_replay_rows, ru_replay_row)

typedef struct ru_replay {
    const char *name; /* of the replay under way */
    ru_arena *arena;
    const char *data; /* folder of published data (RUBATO_DATA); NULL: not there */
    const char *dir;  /* for files that a replay makes */
    bool quick;       /* fewer seeds and cases */
    const char *only; /* rows whose name contains this; "" all */
    bool resume;      /* go on where the run before was stopped */
    bool bar, quiet;  /* stderr is a terminal: a line that is drawn over; say nothing */
    rui_replay_rows rows;
    struct rui_replay_state *state; /* NULL: none is kept */
    const char *unit;               /* under way; its rows begin at unit_rows */
    uint32_t unit_rows;
} ru_replay;

ru_replay_row ru_replay_row_of(const char *name, const char *measure, bool lower);
void ru_replay_baseline(ru_replay *r, ru_replay_row *row, const char *name, double value);
/* Keeps a copy (texts too). Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_replay_add(ru_replay *r, const ru_replay_row *row, ru_err *err);
/* Units of work: long replays do theirs one by one, and one that was stopped goes on after the last
 * whole unit. What a unit adds must follow from the options and its name alone.
 *
 *     if (!ru_replay_have(r, "readers told, quota 5 %")) {
 *         RU_TRY(work(r, err));              adds rows
 *         RU_TRY(ru_replay_keep(r, err));
 *     }
 *
 * True: the rows of this unit are there, from the run before. */
bool ru_replay_have(ru_replay *r, const char *fmt, ...) RU_PRINTF(2, 3);
/* Errors: RU_E_IO. */
RU_MUST_USE ru_status ru_replay_keep(ru_replay *r, ru_err *err);
/* Path of a folder or file of the published data; NULL when it is not there. */
const char *ru_replay_data(ru_replay *r, const char *name);

/* The rows of one replay into r->rows. Errors: those of the replay; RU_E_USAGE for an unknown name.
 */
RU_MUST_USE ru_status ru_replay_rows_of(const char *name, ru_replay *r, ru_err *err);
/* Replays by name, or all when n is 0, one after the other; rows to stdout, as a table or JSON
 * ("rubato.replay/1", one object a replay). Errors: RU_E_USAGE for an unknown name. */
RU_MUST_USE ru_status ru_replay_run(const char *const *names, uint32_t n, const ru_replay *in,
                                    bool json, ru_err *err);
void ru_replay_list(ru_text *out);

#define RU_REPLAY(name, symbol, help) ru_status rui_replay_##symbol(ru_replay *r, ru_err *err);
#include "bench/replay/replay.def"
#undef RU_REPLAY

#endif
