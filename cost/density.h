/* Which temporary files are worth a place on SSD, learned from those that ended.
 *
 *   hdd     = size life kappa_hdd_byte + (ops seek + 2 size / bandwidth) kappa_hdd_io
 *   ssd     = size life kappa_ssd_byte + size kappa_wear
 *   saving  = hdd - ssd            below 0: large, written in long runs, soon deleted
 *
 * When a file is opened its size is not known. Three forests answer: `sizes` says how likely each
 * class of sizes is (powers of two), `ratio` what a file of that size would cost on HDD over SSD,
 * and `sized` whether it would save. The first two give the expected saving of every limit: a file
 * stays on SSD until it grows beyond its limit. The third bounds the limit, because the few files
 * of the largest classes, which lose most, are too few for `sizes`. Its rows weigh as the fourth
 * root of what is at stake: with the whole of it a handful of files are the sample, with none of it
 * cheap mistakes count as dear ones.
 *
 * What is known at the opening: what the job reads, its writers and readers (0: not told), the
 * hour, and how earlier files of its group, and of jobs that read about as much, ended.
 *
 * Source: hafeez-2022 (I/O density is predictable), byom-2025 (classes by saving and density).
 * Limits by expected saving, weights and neighbours by input are ours. Thread: any, pure; a history
 * has one user. */
#ifndef RU_COST_DENSITY_H
#define RU_COST_DENSITY_H

#include "base/arena.h"
#include "world/solver.h"

enum {
    RU_DENSITY_TRAITS = 28,
    RU_DENSITY_RECENT = 4000, /* files that a neighbour is looked for among */
    RU_DENSITY_CLASSES = 26,  /* of sizes: from 2^20 bytes on */
    RU_DENSITY_FILES_MAX = 1 << 22,
};

typedef struct ru_density_prices {
    double hdd_byte_s, hdd_io_s; /* USD for a byte over a second, for a second of a disk */
    double ssd_byte_s, wear_byte;
    double seek_s, hdd_bytes_per_s;
} ru_density_prices;

typedef struct ru_density_file {
    double open_s;
    uint32_t group; /* files of one step of one pipeline; below the history's groups */
    double input_bytes;
    double writers, readers; /* tasks that write it and read it; readers 0: not told */
    double size_bytes;       /* what it grew to, > 0 */
    double life_s, ops;      /* until it was deleted; disk operations on it */
} ru_density_file;

/* What a disk and an SSD in a data centre cost, in time and wear. */
extern const ru_density_prices ru_density_list;

double ru_density_hdd(const ru_density_prices *p, const ru_density_file *f);
double ru_density_saving(const ru_density_prices *p, const ru_density_file *f);

typedef struct ru_density_group {
    double last_open_s, last_input, last_size, last_life;
    double log_sizes, n, saving, n_saving, hdd; /* sums; n_saving: files that saved */
} ru_density_group;

typedef struct ru_density_seen {
    double log_input, log_ratio;
    bool saves;
} ru_density_seen;

typedef struct ru_density_history {
    ru_density_prices prices;
    ru_density_group *groups; /* [n_groups] */
    uint32_t n_groups;
    ru_density_seen *recent; /* [RU_DENSITY_RECENT] */
    uint64_t n;              /* files learned */
} ru_density_history;

RU_MUST_USE ru_status ru_density_history_init(ru_density_history *h, const ru_density_prices *p,
                                              uint32_t n_groups, ru_arena *arena, ru_err *err);
/* A file ended. */
void ru_density_learn(ru_density_history *h, const ru_density_file *f);
/* What is known when `f` is opened; its size, life and ops are not looked at. NaN: not known. */
void ru_density_traits(const ru_density_history *h, const ru_density_file *f, float *x);

/* Traits of files [n], in the order of their opening, each with what had ended before. Shape: x [n,
 * stride]. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_density_rows(const ru_density_file *files, uint32_t n,
                                      ru_density_history *h, float *x, uint32_t stride,
                                      ru_arena *scratch, ru_err *err);

typedef struct ru_density_model {
    ru_trees sizes, ratio, sized;
    uint32_t first_class; /* of sizes */
    double ssd_byte;      /* USD of a byte on SSD, a mean */
} ru_density_model;

/* Train on files [n] in the order of their opening; each row knows what had ended before. Owner:
 * the model and all scratch live in `arena`. Errors: RU_E_UNSUPPORTED without a solver that has
 * trees, RU_E_INFEASIBLE for fewer than 50 files, RU_E_LIMIT. Cost: O(n recent) for neighbours, 140
 * trees and 20 for each class. */
RU_MUST_USE ru_status ru_density_train(const ru_density_file *files, uint32_t n, uint32_t n_groups,
                                       const ru_density_prices *p, const ru_solver *solver,
                                       uint64_t seed, ru_arena *arena, ru_density_model *m,
                                       ru_err *err);

typedef struct ru_density_answer {
    double limit_bytes; /* stay on SSD until it grows beyond; 0: never there */
    double saving_usd;  /* expected with that limit; above 0 unless the limit is 0 */
} ru_density_answer;

/* The limit of the largest expected saving, at most `most_bytes`. `size_bytes` is what the file's
 * program expects; then the limit leaves twice as much room. 0: not told. Cost: below 100 us. */
ru_density_answer ru_density_ask(const ru_density_model *m, const float *traits, double size_bytes,
                                 double most_bytes);

#endif
