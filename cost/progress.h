/* Progress of workers of a clocked job: how fast each will be in the next clock, and what a history
 * of clocks would have taken under a barrier, under bounded staleness, or with all work spread
 * freely.
 *
 * took [clocks, n]: seconds that worker w needed for its own items of clock c, waiting left out.
 *
 * Source: flexrr-2016 (progress in clocks, staleness); the predictor is ours.
 * Thread: any, pure. */
#ifndef RU_COST_PROGRESS_H
#define RU_COST_PROGRESS_H

#include "base/arena.h"

/* Predicted seconds of the next clock, each worker: the level of all, times the part of the
 * worker's mean ratio that is no accident (between workers against within, empirical Bayes), times
 * the part of its last deviation from that which follows from one clock to the next over all
 * workers; nothing beyond what was measured. Returns the first part: 1: differences between workers
 * last, 0: none does, or one clock is all that is known. Shape: next [n]. Cost: O(clocks n). */
double ru_progress_next(const double *took, uint32_t clocks, uint32_t n, double *next);

/* Seconds until all have done all clocks, when nobody begins clock c before all have done c - slack
 * (0: a barrier). Without its last `backup` workers a clock ends sooner, their work of it is lost,
 * and more clocks make up for that. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_progress_bounded(const double *took, uint32_t clocks, uint32_t n,
                                          uint32_t slack, uint32_t backup, ru_arena *scratch,
                                          double *total_s, ru_err *err);
/* All work spread freely at all times: no schedule is shorter. */
double ru_progress_ideal(const double *took, uint32_t clocks, uint32_t n);

#endif
