/* Markovian arrival processes of few phases: D0 holds the rates of changes of phase without an
 * arrival (and the diagonal), D1 those with one; (D0 + D1) 1 = 0. Poisson, Erlang and
 * hyperexponential renewal processes, MMPP and MAP(2) fits are all of this form.
 *
 * Times are seconds, rates 1/s. Counting probabilities by uniformisation, whose terms are all
 * positive: no cancellation.
 *
 * Source: neuts-1979; fischer-meierhellstern-1993.
 * Thread: any, pure. */
#ifndef RU_COST_MARKOV_H
#define RU_COST_MARKOV_H

#include "base/arena.h"
#include "base/rng.h"

enum { RU_MARKOV_PHASES_MAX = 8, RU_MARKOV_CELLS_MAX = 64 };

typedef struct ru_markov {
    uint32_t n;
    double d0[RU_MARKOV_CELLS_MAX], d1[RU_MARKOV_CELLS_MAX]; /* [n, n], rows without gaps */
} ru_markov;

/* Are the signs, row sums (to 1e-9 of the largest rate) and sizes those of an arrival process with
 * a positive rate and one recurrent class? */
RU_MUST_USE ru_status ru_markov_check(const ru_markov *m, ru_err *err);

/* Makers. All arguments > 0 unless said. */
ru_markov ru_markov_poisson(double rate);
ru_markov ru_markov_erlang(uint32_t phases, double rate); /* `rate` of arrivals */
/* Two exponential laws of rates mu chosen with p and 1 - p; after each arrival the law stays with
 * probability gamma (0: renewal), which gives the interarrivals' autocorrelation its decay. */
ru_markov ru_markov_hyper(double mu1, double mu2, double p, double gamma);
/* Rates rate1, rate2 (one may be 0), leaving the phases at leave1, leave2. */
ru_markov ru_markov_mmpp(double rate1, double rate2, double leave1, double leave2);
/* The same process, each arrival kept with probability p. */
ru_markov ru_markov_thinned(const ru_markov *m, double p);

typedef struct ru_markov_law {
    ru_markov map;                           /* a copy */
    double rate;                             /* arrivals a second */
    double at_time[RU_MARKOV_PHASES_MAX];    /* phases at a random time: pi (D0 + D1) = 0 */
    double at_arrival[RU_MARKOV_PHASES_MAX]; /* phases just after an arrival: pi P = pi */
    double jump[RU_MARKOV_CELLS_MAX];        /* P = (-D0)^-1 D1, [n, n] */
    double wait[RU_MARKOV_CELLS_MAX];        /* (-D0)^-1, [n, n] */
} ru_markov_law;

/* Stationary vectors and what the functions below need. Errors: of ru_markov_check. */
RU_MUST_USE ru_status ru_markov_solve(const ru_markov *m, ru_markov_law *out, ru_err *err);
/* Squared coefficient of variation of the times between arrivals: 1 if memoryless. */
double ru_markov_scv(const ru_markov_law *law);

/* Counting from given phases: into[j, phase] = probability of exactly j arrivals in (0, t] with the
 * process then in `phase`, j < n_counts, begun with weights `from` [n]. Shape: into [n_counts, n].
 * Cost: O((q t + 10 sqrt(q t) + 20) n_counts n^2), q the largest total rate.
 * Errors: RU_E_LIMIT (scratch), RU_E_ARG. */
RU_MUST_USE ru_status ru_markov_count_from(const ru_markov *m, const double *from, double t,
                                           uint32_t n_counts, ru_arena *scratch, double *into,
                                           ru_err *err);
/* The same from every phase: into [n_counts, n, n], V_j(t). */
RU_MUST_USE ru_status ru_markov_count(const ru_markov *m, double t, uint32_t n_counts,
                                      ru_arena *scratch, double *into, ru_err *err);

/* The time to the next arrival and the phase after it; *phase in and out. To begin in steady state
 * draw *phase by ru_rng_pick(r, law.at_time or at_arrival, n). */
double ru_markov_draw(const ru_markov *m, ru_rng *r, uint32_t *phase);

#endif
