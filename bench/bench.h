/* The project's own measurements: what a benchmark fills and how it is shown.
 *
 * A benchmark measures two sides in turns within one run and reports medians and spread; a ratio is
 * always written so that above 1 means ahead. Absolute times of these machines mean little, ratios
 * of interleaved rounds do.
 *
 * Thread: main only. */
#ifndef RU_BENCH_BENCH_H
#define RU_BENCH_BENCH_H

#include "base/arena.h"

enum { RU_BENCH_ROUNDS_MAX = 64, RU_BENCH_SIDES_MAX = 4 };

/* Median and range of one side's rounds. `n` 0: not measured. */
typedef struct ru_bench_stat {
    double median, min, max;
    uint32_t n;
} ru_bench_stat;

/* Of n >= 1 values; sorts `values`. */
ru_bench_stat ru_bench_stat_of(double *values, uint32_t n);

typedef struct ru_bench_row {
    const char *name; /* "lenet train f32 1 thread" */
    const char *unit; /* "samples/s" */
    bool lower;       /* lower is better */
    ru_bench_stat ours, theirs;
    const char *peer;    /* "torch 2.13.0 eager"; NULL: a figure of ours against a bound only */
    const char *missing; /* why the peer was not measured and the command that installs it */
    double goal;         /* for the ratio (with a peer) or for ours (without); 0: none */
} ru_bench_row;

typedef struct ru_bench {
    ru_arena *arena;
    bool quick;       /* fewer and shorter rounds */
    const char *dir;  /* folder for generated inputs */
    const char *only; /* rows whose name contains this; "" all */
    const char *zoo;  /* folder of ONNX models that `infer` measures instead of its own; or NULL */
    bool ops;         /* `infer` measures single ops instead of its models */
    uint32_t threads; /* 0: 1 and 2 (as far as there are cores) */
    ru_bench_row *rows; /* [n] */
    uint32_t n, cap;
    bool told; /* what was asked for was told without rows */
} ru_bench;

/* Should this row be measured? */
bool ru_bench_wants(const ru_bench *b, const char *name);
/* Keep a row and show it on stderr at once. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_bench_add(ru_bench *b, const ru_bench_row *row, ru_err *err);
/* ours/theirs, inverted where lower is better; 0 when one side is missing. */
double ru_bench_ratio(const ru_bench_row *row);
/* All rows as one object on stdout: "rubato.bench/1". */
void ru_bench_json(const ru_bench *b, const char *name);
/* On stderr: the geometric mean of the ratios over the eager peer, and how many goals are met. */
void ru_bench_summary(const ru_bench *b);

/* -- two sides in turns ---------------------------------------------------------------------------
 */

/* One side: a child process that speaks the line protocol of bench/peer.py. */
typedef struct ru_bench_side {
    const char *const *argv;
    /* filled */
    struct ru_process *process;
    const char *detail;                /* what it says of itself */
    const char *missing;               /* not NULL: it could not be started, and why */
    double rates[RU_BENCH_ROUNDS_MAX]; /* steps per second of each round */
    double loss;
    int64_t rss_bytes;
    int64_t steps; /* of one round */
} ru_bench_side;

typedef struct ru_bench_turns {
    uint32_t rounds;  /* of each side, in turns */
    double seconds;   /* of one round */
    uint32_t threads; /* both sides are held to this many cores */
} ru_bench_turns;

/* Start all sides, warm up, run rounds in turns, ask for memory, end them. A peer that cannot start
 * is marked missing; side 0 (ours) must start. */
RU_MUST_USE ru_status ru_bench_run_turns(ru_bench_side *sides, uint32_t n,
                                         const ru_bench_turns *turns, ru_arena *arena, ru_err *err);

/* Start all sides without running anything; a peer that cannot start is marked missing. End them
 * with ru_bench_sides_end. ru_bench_ask: one line there, one line back (view until the next). */
RU_MUST_USE ru_status ru_bench_sides_start(ru_bench_side *sides, uint32_t n, uint32_t threads,
                                           ru_arena *arena, ru_err *err);
void ru_bench_sides_end(ru_bench_side *sides, uint32_t n);
RU_MUST_USE ru_status ru_bench_ask(ru_bench_side *s, const char *question, const char **answer,
                                   ru_err *err);

/* Run an exporter script to its end; `path` must exist afterwards. `install` stands in the error.
 */
RU_MUST_USE ru_status ru_bench_export(ru_bench_side *exporter, const char *path,
                                      const char *install, ru_err *err);

/* Our side of train and infer: answers the protocol on stdin and stdout until "quit".
 * words: train|infer|zoo MODEL-or-FILE THREADS PRECISION BATCH */
RU_MUST_USE ru_status ru_bench_worker(const char *const *words, uint32_t n, ru_err *err);

/* -- the benchmarks
 * --------------------------------------------------------------------------------- */

typedef ru_status (*ru_bench_fn)(ru_bench *b, ru_err *err);
ru_status ru_bench_train(ru_bench *b, ru_err *err);
ru_status ru_bench_infer(ru_bench *b, ru_err *err);
ru_status ru_bench_zoo(ru_bench *b, ru_err *err); /* of infer, for a folder of models */
ru_status ru_bench_ops(ru_bench *b, ru_err *err); /* of infer, for single ops */
ru_status ru_bench_reader(ru_bench *b, ru_err *err);
ru_status ru_bench_net(ru_bench *b, ru_err *err);
ru_status ru_bench_collective(ru_bench *b, ru_err *err);
ru_status ru_bench_start(ru_bench *b, ru_err *err);
ru_status ru_bench_elastic(ru_bench *b, ru_err *err);
ru_status ru_bench_trace(ru_bench *b, ru_err *err);
ru_status ru_bench_clock(ru_bench *b, ru_err *err);
ru_status ru_bench_sim(ru_bench *b, ru_err *err);
ru_status ru_bench_seeds(ru_bench *b, ru_err *err); /* of sim; b->only: seeds, seeds:A-B, seed:N */
ru_status ru_bench_ddp(ru_bench *b, ru_err *err);
ru_status ru_bench_whatif(ru_bench *b, ru_err *err);
ru_status ru_bench_predict(ru_bench *b, ru_err *err);

/* The path of `rubato`, whose commands the benchmarks start (its `bench` becomes this program), and
 * the folder with peer.py and models.py. NULL: not found. */
const char *ru_bench_rubato(ru_arena *arena);
const char *ru_bench_scripts(ru_arena *arena);

#endif
