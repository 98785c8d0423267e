/* Goodput of a data-parallel training job: how many useful examples a second it makes on k
 * replicas of n nodes with a batch of k m (s + 1): m examples a replica at a time, s passes that
 * accumulate before the one that sums gradients.
 *
 *   pass(m)    = a_c + b_c m
 *   sum(n, k)  = 0 | a_r + b_r (k - 2) on one node | a_n + b_n (k - 2) on several
 *   step       = s pass + (pass^g + sum^g)^(1/g)               g = 1: no overlap, 10: full overlap
 *   goodput    = k m (s + 1) / step * efficiency(k m (s + 1))
 *   efficiency = (noise + M0) / (noise + M)     M0: the batch that the user chose, noise: examples
 *
 * The seven numbers are fitted to measured steps; what was never measured stays at the optimistic
 * end, so that a scheduler tries it: also what a replica more costs, until two numbers of replicas
 * were measured there. The gradient noise scale is M0 var / sqr, where sqr is the
 * square of the gradient's mean and var its variance at batch M0.
 *
 * Source: qiao-2021 sec 3, sec 4.1; the fit's objective and the priors are those of its published
 * code. Thread: any, pure. */
#ifndef RU_COST_GOODPUT_H
#define RU_COST_GOODPUT_H

#include "base/arena.h"

enum { RU_GOODPUT_BATCHES = 50 }; /* batches that the search looks at, in geometric steps */

typedef struct ru_perf {
    double pass_s, pass_example_s; /* a_c, b_c */
    double net_s, net_replica_s;   /* a_n, b_n: several nodes */
    double node_s, node_replica_s; /* a_r, b_r: one node */
    double overlap;                /* g, 1 .. 10; 0: nothing was measured yet */
} ru_perf;

/* What was measured at one configuration: the mean of all its steps. */
typedef struct ru_perf_sample {
    uint32_t nodes, replicas, local; /* local: m */
    double pass_s, step_s;           /* a pass that accumulates; the pass that sums as well */
} ru_perf_sample;

typedef struct ru_goodput_model {
    ru_perf perf;
    double sqr, var;                 /* of gradients at batch_first; both 0: no noise known */
    uint32_t batch_first, batch_max; /* M0, largest M */
    uint32_t local_min, local_max;   /* bounds of m */
    uint32_t batch;                  /* > 0: M is fixed, only m and s are chosen */
    bool one_pass; /* one replica needs no second pass for its noise: two steps tell it */
} ru_goodput_model;

typedef struct ru_goodput_choice {
    double goodput;         /* 0: no batch fits */
    uint32_t local, passes; /* m, s */
} ru_goodput_choice;

/* Seconds of a pass that accumulates, and of a whole step. */
double ru_perf_pass_s(const ru_perf *p, double local);
double ru_perf_step_s(const ru_perf *p, uint32_t nodes, uint32_t replicas, uint32_t local,
                      uint32_t passes);
/* What an example of a batch of this size is worth beside one of batch_first: 0..1. */
double ru_goodput_efficiency(const ru_goodput_model *m, double batch);
/* The gradient noise scale at which a step of `batch` samples is worth `gain` steps of
 * `batch_first`: 0 to 1e12; 0 also for batches that tell nothing, which are no larger. */
double ru_goodput_noise(double batch_first, double batch, double gain);
double ru_goodput_at(const ru_goodput_model *m, uint32_t nodes, uint32_t replicas, uint32_t local,
                     uint32_t passes);
/* The best batch for this allocation. Cost: 50 values, a few microseconds. */
ru_goodput_choice ru_goodput_best(const ru_goodput_model *m, uint32_t nodes, uint32_t replicas);
/* How m and s follow from a batch: as few passes as the bounds of m allow, two on one replica above
 * batch_first without one_pass, because one gradient alone tells nothing about the noise. */
ru_goodput_choice ru_goodput_split(const ru_goodput_model *m, uint32_t replicas, double batch);
/* Most replicas that batch_max or `batch` can feed, at least 1. */
uint32_t ru_goodput_replicas_max(const ru_goodput_model *m);

/* Fit the seven numbers: least RMSE(log pass) + RMSE(log step) + 1e-3 (g - 1)^2 +
 * 1e-2 ((b_n/a_n)^2 + (b_r/a_r)^2). `start` (may be NULL) is an earlier fit: it makes this one
 * cheaper. `loss` (may be NULL) is that objective at the fit.
 * Cost: about 100 n logarithms times 4. Errors: RU_E_ARG for no samples or times that are not above
 * 0, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_perf_fit(const ru_perf_sample *samples, uint32_t n, const ru_perf *start,
                                  ru_arena *scratch, ru_perf *out, double *loss, ru_err *err);
double ru_perf_loss(const ru_perf *p, const ru_perf_sample *samples, uint32_t n);

/* Running estimate of sqr and var from the gradients of steps.
 * Source: qiao-2021 sec 3.1; johnson-2020 (unbiased differences of squares). */
typedef struct ru_noise {
    double sqr_sum, sqr_weight, var_sum, var_weight;
    double spread_sum, square_weight; /* squares of the samples of sqr; of their weights */
    uint32_t every;                   /* steps that one sample stands for; 0: one */
    bool paired; /* the averages come from pairs of steps, because one gradient a step is all */
} ru_noise;

/* One step: n micro-gradients of equal size, the mean of their squared lengths, and the squared
 * length of their mean; scale: batch / batch_first. A step with n = 1 passes the two numbers of the
 * pair (this gradient, the one before): mean of the two squared lengths and the squared length of
 * their mean, and n = 1. Of
 * gradients of other sizes n is 1 over the sum of the squares of their parts of the whole. A value
 * that is not finite skips the step. */
void ru_noise_add(ru_noise *e, double n, double scale, double mean_sqr, double sqr_mean);
double ru_noise_var(const ru_noise *e);
/* The mean of sqr, but no less than its standard error: near a minimum the mean gradient is smaller
 * than what can be told of it, and its estimate may be below 0. Then the noise is at least what is
 * believed. */
double ru_noise_sqr_least(const ru_noise *e);

#endif
