/* The choices of a run on functions that has a deadline or a budget: what was measured so far, and
 * what the policy `scale` says comes next. Measurements are steps of the run. Where the batch
 * changes and there is a deadline, but no budget, plan/fleet/scale_rest.h chooses.
 *
 * Thread: one at a time. */
#ifndef RU_FLEET_FUNC_SCALE_H
#define RU_FLEET_FUNC_SCALE_H

#include "fleet/func.h"
#include "plan/fleet/scale_rest.h"

typedef struct ru_func_scale_options {
    uint32_t workers_min, workers_max;
    double memory_min_mb, memory_max_mb, memory_step_mb;
    int64_t deadline_ns; /* of the whole run from its start; 0: none */
    int64_t end_ns;      /* what follows the last step until the run has ended */
    double budget_usd;   /* 0: none */
    int64_t life_ns;
    double usd_per_gb_s, usd_per_call;
} ru_func_scale_options;

typedef struct ru_func_scale {
    ru_func_scale_options opt;
    ru_scale_in in;
    ru_scale_in asked; /* as the policy was asked last: it answers the same again */
    ru_scale_plan plan;
    ru_scale_probe seen[RU_SCALE_PROBES_MAX];   /* [in.n_probes] as they were measured */
    double batch[RU_SCALE_PROBES_MAX];          /* [in.n_probes] of these */
    ru_scale_probe probes[RU_SCALE_PROBES_MAX]; /* [in.n_probes] as of the batch now */
    double now_batch;
    double memory_mb[RU_SCALE_MEMORIES_MAX];
    uint32_t started[RU_SCALE_MEMORIES_MAX]; /* workers of these that have started before */
    double start_s[RU_SCALE_MEMORIES_MAX];   /* what that should take with each memory */
    ru_time begun;
    double part; /* samples from one decision to the next */
    bool late;   /* the deadline cannot be kept any more */
    bool law;    /* plan/fleet/scale_rest.h chooses; the policy is asked about its choice alone: */
    ru_scale_probe told[2];
    double told_mb;
    double again_s, other_s; /* as in ru_scale_rest_in */
    ru_func_choice was;      /* the choice that was measured last */
    double was_batch;
    double known_s;        /* its start and its steps; 0: it was not measured */
    ru_time chosen;        /* when the choice in force began */
    double took_s, lost_s; /* all choices; of that what was neither start nor step */
} ru_func_scale;

/* Errors: RU_E_USAGE for a grid that makes no sense. */
RU_MUST_USE ru_status ru_func_scale_init(ru_func_scale *s, const ru_func_scale_options *opt,
                                         ru_time now, ru_err *err);
/* The next choice, when `spent_usd` were spent: of the first one of the parts [n] that are left,
 * each with one batch. s->asked and s->plan say why. What was measured with another batch counts as
 * the law of plan/fleet/scale_parts.h has it. Where the deadline cannot be kept any more, the
 * fastest choice goes on (s->late). Errors: RU_E_INFEASIBLE when the budget does not suffice. */
RU_MUST_USE ru_status ru_func_scale_next(ru_func_scale *s, int64_t done, const ru_scale_part *parts,
                                         uint32_t n, double spent_usd, ru_time now,
                                         ru_arena *scratch, ru_func_choice *out, ru_err *err);
/* The choice in force made so many steps, took so long for each, and `init_s` before the first one:
 * the start of workers, unless all of them were there before. */
void ru_func_scale_measured(ru_func_scale *s, double steps, double step_s, double init_s);
/* It ran out of memory. */
void ru_func_scale_failed(ru_func_scale *s);

#endif
