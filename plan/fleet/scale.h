/* How many function workers train, and with how much memory: measure a few choices, then run the
 * best one, by Bayesian optimisation whose own cost counts.
 *
 *   ln(step workers share(memory)) = Gaussian process of (ln workers, ln memory)
 *
 * so that without measurements scaling is perfect, and one process gives time, price and the
 * chance of keeping each limit together (all follow from the step time). A choice is measured next
 * when what it is expected to save of the rest of the job, over all outcomes that keep the limits,
 * exceeds what measuring it costs, and when the job still keeps its limits if it turns out badly.
 * Where decisions follow, a choice may run that keeps the limits as expected only, as long as the
 * rest can be saved by another one after a bad stretch. Measurements that the last three contradict
 * are dropped (drift).
 *
 * Source: ali-2022-smlt (goals, rivals), gardner-2014 (constrained improvement); the joint
 * improvement in closed form is ours. Cost: O(choices probes^2). Thread: any, pure. */
#ifndef RU_PLAN_SCALE_H
#define RU_PLAN_SCALE_H

#include "base/arena.h"
#include "cost/function.h"

enum { RU_SCALE_PROBES_MAX = 128, RU_SCALE_MEMORIES_MAX = 256, RU_SCALE_CHOICES_MAX = 1 << 20 };

typedef enum ru_scale_method {
    RU_SCALE_JOINT,   /* ours */
    RU_SCALE_PRODUCT, /* improvement times probability, of two independent processes */
    RU_SCALE_UCB,     /* upper confidence bound, limits are seen when the job is done (published) */
    RU_SCALE_PENALTY, /* the same, what breaks a limit counts -1e9 */
    RU_SCALE_HETER,   /* product divided by what measuring costs (HeterBO) */
    RU_SCALE_RANDOM,  /* choices by lot, then the best of them */
    RU_SCALE_FIXED,   /* the choice in force; else the middle of the grid */
} ru_scale_method;

typedef struct ru_scale_probe {
    uint32_t workers;
    double memory_mb;
    double step_s; /* measured */
    bool failed;   /* out of memory: so much or less is too little for so many workers or fewer */
    bool run;      /* seen while the choice was in force, not measured for its own sake */
} ru_scale_probe;

/* As the table of the row fills it: lists are pairs as ru_conf_sections. */
typedef struct ru_scale_in {
    uint32_t workers_min, workers_max, workers_step;
    struct {
        const double *memory_mb; /* [n_memory] rising */
        uint32_t n_memory;
    };
    struct {
        const double *start_s; /* [n_start] start of a worker of each of these; */
        uint32_t n_start;      /* 0: rules.init_s for all */
    };
    double steps;     /* that are left */
    uint32_t fastest; /* 1: least time; 0: least money */
    double limit_s;   /* time left; 0: no limit */
    double limit_usd; /* money left; 0: no limit */
    struct {
        const ru_scale_probe *probe; /* [n_probes] measurements, oldest first */
        uint32_t n_probes;
    };
    uint32_t now_workers; /* choice in force; 0: none */
    double now_memory_mb;
    ru_function_rules rules;
    double core_mb;     /* memory that brings one core */
    double noise;       /* deviation of a measured step time, relative */
    double probe_steps; /* of one measurement: they count as work */
    double plan_steps;  /* until the next decision; 0: there is none */
    uint32_t probes_max;
    double probing_max; /* part of the money for the job that measuring may take */
    double gain_min;    /* a measurement must save this part of the rest */
    double confidence;  /* probability with which limits are kept */
    uint64_t seed;
    ru_scale_method method;
} ru_scale_in;

typedef struct ru_scale_plan {
    bool probe; /* measure this choice for probe_steps; else run it to the end */
    uint32_t workers;
    double memory_mb;
    double step_s, spread; /* median of the predicted step time, deviation of its logarithm */
    double seconds, usd;   /* of the steps left with this choice at step_s */
    double met;            /* probability that the limits are kept with this choice */
    double gain;           /* of measuring it: s or USD, its cost deducted; 0 for a run */
    double probed_usd;     /* what measuring has cost */
    bool drifted;          /* the last three measurements contradict those before: forget these */
    bool blind;            /* nothing is known yet: step_s to met are 0 */
} ru_scale_plan;

/* Rules of workers with this memory. */
static inline ru_function_rules ru_scale_rules(const ru_scale_in *in, double memory_mb)
{
    ru_function_rules r = in->rules;
    for (uint32_t k = 0; k < in->n_start && k < in->n_memory; k++) {
        r.init_s = in->memory_mb[k] == memory_mb ? in->start_s[k] : r.init_s;
    }
    return r;
}

/* Errors: RU_E_ARG, RU_E_INFEASIBLE when measurements are used up and no choice keeps the limits,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_scale(const ru_scale_in *in, ru_arena *scratch, ru_scale_plan *plan,
                                    ru_err *err);
/* The choice is of the grid and not one that failed, figures follow from its step time, the limits
 * of measuring are kept, a run keeps the limits of the job. Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_scale_check(const ru_scale_in *in, const ru_scale_plan *plan,
                                          ru_err *err);

#endif
