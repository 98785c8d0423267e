/* The policy `storage` one opening at a time: what a live owner of files asks (store/tiers/), and
 * what ru_plan_storage repeats over a list that is complete.
 *
 *   begin -- train? -- open -- grown -- ended -- open ...
 *
 * With the method TREES and without forests it is first fit. Methods that look at the whole list
 * (classes, HINDSIGHT, GREEDY) are for ru_plan_storage alone.
 *
 * Thread: any, pure; one at a time for each object. */
#ifndef RU_PLAN_STORAGE_LIVE_H
#define RU_PLAN_STORAGE_LIVE_H

#include "plan/disk/storage.h"

typedef struct ru_storage_live ru_storage_live;

/* Forests, and what they would have saved: what one file may lose follows from it. */
typedef struct ru_storage_forests {
    ru_density_model model;
    double credit_usd;
} ru_storage_forests;

typedef struct ru_storage_wish {
    double limit_bytes; /* 0: HDD */
    double saving_usd;  /* expected; 0: the method does not say */
    bool partial;       /* take what room there is */
    bool learned;       /* by forests */
} ru_storage_wish;

/* Nothing has ended yet. `in` and `arena` outlive it; of `in` n_groups, prices, method, stake.
 * Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_storage_live_begin(const ru_storage_in *in, ru_arena *arena,
                                            ru_storage_live **out, ru_err *err);
/* Of `f` what is known at its opening is looked at. expected_bytes 0: its size is not known.
 * Cost: below 100 us. */
ru_storage_wish ru_storage_live_open(ru_storage_live *l, const ru_density_file *f,
                                     double expected_bytes, double room_bytes);
/* It has its size; so much of it is on SSD, where it `wanted` to be. */
void ru_storage_live_grown(ru_storage_live *l, const ru_density_file *f, bool wanted,
                           double ssd_bytes);
/* It was deleted: history now. Files that were there before the owner: ssd_bytes 0. */
void ru_storage_live_ended(ru_storage_live *l, const ru_density_file *f, double ssd_bytes);

/* Forests that know the files of `in`, which ended; on any thread, beside openings. Owner: all
 * lives in `arena`. Cost: twice ru_density_train. Errors: those of ru_density_train. */
RU_MUST_USE ru_status ru_storage_train(const ru_storage_in *in, ru_arena *arena,
                                       ru_storage_forests *out, ru_err *err);
/* From now on these decide; they outlive their use. NULL: first fit. */
void ru_storage_live_train(ru_storage_live *l, const ru_storage_forests *to);

#endif
