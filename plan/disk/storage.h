/* Which temporary files go to SSD when they are opened, and how far they may grow there.
 *
 *   opened: forests say what it is expected to save with each limit that has room; it goes to SSD
 *       with the best one, if that saves
 *   grown beyond its limit: what follows goes to HDD (demoted: the rest alone)
 *   deleted: room again; the file is history now
 *
 * A demoted file saves the share of its saving that its part on SSD has.
 *
 * Forests may be wrong, most of all after a short history. So what one file may lose is at most a
 * share (`stake`) of what they have saved: of files that were placed and ended, and of the second
 * half of the history, placed by forests that know the first half.
 *
 * Source: hafeez-2022, byom-2025 (classes, adaptive threshold), cachesack-2022 (groups by
 * density). Thread: any, pure. */
#ifndef RU_PLAN_STORAGE_H
#define RU_PLAN_STORAGE_H

#include "cost/density.h"

enum { RU_STORAGE_FILES_MAX = 1 << 20 };

typedef enum ru_storage_method {
    RU_STORAGE_TREES,      /* ours */
    RU_STORAGE_HISTORY,    /* ours without a library: the group's record, else neighbours' */
    RU_STORAGE_FIRST_FIT,  /* whatever fits whole */
    RU_STORAGE_CACHESACK,  /* groups of the last window by saving for a byte and second */
    RU_STORAGE_LIFETIME,   /* files that are predicted to be short-lived */
    RU_STORAGE_CATEGORY,   /* classes by trees, threshold by spilled disk time */
    RU_STORAGE_HASH,       /* the same with drawn classes */
    RU_STORAGE_TRUE_CLASS, /* the same with true classes */
    RU_STORAGE_HINDSIGHT,  /* limits by what is known at the opening, the best ones in hindsight */
    RU_STORAGE_GREEDY, /* knows all files: by saving for a byte and second, while there is room */
} ru_storage_method;

typedef struct ru_storage_in {
    const ru_density_file *files; /* [n] in the order of their opening */
    uint32_t n, n_groups;
    double from_s;      /* files opened before are history alone */
    double quota_bytes; /* of the SSD; > 0 */
    ru_density_prices prices;
    ru_storage_method method;
    double stake;    /* of what was saved so far, one file may lose so much; of TREES */
    double ttl_s;    /* of LIFETIME */
    double window_s; /* of CACHESACK */
    double spill_low, spill_high, look_s, decide_s; /* of the threshold */
    const ru_solver *solver;
    uint64_t seed;
} ru_storage_in;

typedef struct ru_storage_place {
    uint32_t file;
    double limit_bytes; /* it may grow so far on SSD; 0: HDD */
    double ssd_bytes;   /* what it had there */
} ru_storage_place;

typedef struct ru_storage_plan {
    ru_storage_place *places; /* [n] files opened from from_s on, in order */
    uint32_t n, admitted, demoted;
    double saving_usd, hdd_usd; /* hdd: all of these files on HDD */
    double peak_bytes;          /* on SSD */
} ru_storage_plan;

/* Owner: places in `out`. Cost: O(n log n) and below 100 us a file; GREEDY O(n^2).
 * Errors: RU_E_ARG, RU_E_UNSUPPORTED without trees, RU_E_INFEASIBLE for too little history,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_storage(const ru_storage_in *in, ru_arena *out, ru_arena *scratch,
                                      ru_storage_plan *plan, ru_err *err);
/* No choice of places saves more: all files known, each on SSD in any part.
 * Cost: a search of O(n log n) for each file that saves at most. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_storage_bound(const ru_storage_in *in, ru_arena *scratch, double *usd,
                                            ru_err *err);
/* The same for an input of the row `storage`. */
RU_MUST_USE ru_status ru_storage_policy_bound(const void *in, ru_arena *scratch, double *usd,
                                              ru_err *err);
/* Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_storage_check(const ru_storage_in *in, const ru_storage_plan *plan,
                                            ru_arena *scratch, ru_err *err);

#endif
