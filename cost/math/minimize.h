/* Minima of smooth functions within bounds.
 *
 * A function is a pointer and its `self`; a value that is not finite counts as +infinity, and the
 * search turns back. The budget is counted in calls: a value with its gradient is one call, each
 * value of a difference quotient is one. The same input gives the same calls.
 *
 * Source: nocedal-wright-2006 ch. 7, 16 (projected quasi-Newton).
 * Thread: any, pure when the function is. */
#ifndef RU_COST_MINIMIZE_H
#define RU_COST_MINIMIZE_H

#include "base/arena.h"

/* Value at x [n]; where `grad` [n] is not NULL, also the gradient, when `has_grad` says so. */
typedef double (*ru_minimize_fn)(void *self, const double *x, double *grad);

typedef struct ru_minimize_in {
    ru_minimize_fn fn;
    void *self;
    bool has_grad;            /* fn fills `grad`; else by central differences, 2 n calls each */
    uint32_t n;               /* 1 .. RU_MINIMIZE_N_MAX */
    const double *start;      /* [n] moved into the bounds first */
    const double *low, *high; /* [n] -INFINITY and INFINITY for none; NULL: none at all */
    const double *scale;      /* [n] typical size of each variable, > 0; NULL: all 1 */
    uint32_t calls_max;       /* 0: 200 (n + 1), times 2 n + 1 without gradient */
    double grad_tol;          /* stop: largest projected gradient, relative to 1 + |f|; 0: 1e-9 */
    double step_tol;          /* stop: relative decrease of f in one step; 0: 1e-14 */
} ru_minimize_in;

enum { RU_MINIMIZE_N_MAX = 64 };

typedef struct ru_minimum {
    double *x; /* [n] within the bounds */
    double value;
    uint32_t calls;
    bool converged; /* false: the budget ended the search */
} ru_minimum;

/* Projected quasi-Newton (BFGS on the variables that are free, backtracking along the projection).
 * Owner: out->x lives in `arena`. Cost: O(n^3) a step besides the calls.
 * Errors: RU_E_ARG (bounds that cross, a start that is not a number), RU_E_INFEASIBLE when the
 * function is not finite at the start, RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_minimize(const ru_minimize_in *in, ru_arena *arena, ru_minimum *out,
                                  ru_err *err);

#endif
