/* What solves problems of size: an ops table, so that a policy's driver, a test and the simulator
 * pass whichever they have. The libraries are bound in solve/solver.h.
 *
 * Budgets count work (nodes, pivots, rounds), never seconds: the same call gives the same answer.
 * Thread: one call at a time for each arena; the tables are constant. */
#ifndef RU_WORLD_SOLVER_H
#define RU_WORLD_SOLVER_H

#include "world/graph/trees.h"
#include "world/milp.h"

typedef enum ru_solve_end {
    RU_SOLVE_OPTIMAL,    /* within the asked gap, proven */
    RU_SOLVE_STOPPED,    /* the budget ended: x is feasible, bound says how far it may be */
    RU_SOLVE_EMPTY,      /* the budget ended without a feasible x; bound is valid */
    RU_SOLVE_INFEASIBLE, /* proven */
    RU_SOLVE_UNBOUNDED,
} ru_solve_end;

/* Rows that were left out and that x breaks, or none (n 0); x [n_cols] is whole where asked. Called
 * until it finds none. Rows may live in `arena` until the solve ends. */
typedef ru_status (*ru_solve_lazy)(void *self, const double *x, ru_arena *arena, ru_milp_rows *more,
                                   ru_err *err);

typedef struct ru_solve_in {
    const ru_milp *milp;
    const double *start; /* [n_cols] a feasible x to begin with; NULL: none */
    int64_t nodes_max;   /* of branch and bound, all rounds of lazy rows together; 0: 10000 */
    int64_t pivots_max;  /* of each linear program alone; 0: 1e6 */
    double gap_rel;      /* stop when |value - bound| <= gap_rel |value|; 0: 1e-6 */
    uint64_t seed;
    ru_solve_lazy lazy; /* NULL: no rows are left out */
    void *lazy_self;
    uint32_t lazy_rounds_max; /* 0: 100 */
} ru_solve_in;

typedef struct ru_solution {
    ru_solve_end end;
    double *x;       /* [n_cols] whole numbers exactly where asked; NULL when there is none */
    double value;    /* of x */
    double bound;    /* proven: no feasible x is better */
    double *dual;    /* [rows] change of value when a row's active bound grows by 1; lp only */
    double *reduced; /* [n_cols] the same of a column's active bound; lp only */
    int64_t nodes, pivots;
    uint32_t rounds; /* of lazy rows */
} ru_solution;

typedef enum ru_trees_goal {
    RU_TREES_SQUARED,  /* mean */
    RU_TREES_BINARY,   /* y in {0, 1}: probability */
    RU_TREES_CLASSES,  /* y in 0 .. n_classes - 1: probabilities */
    RU_TREES_QUANTILE, /* quantile q of y */
} ru_trees_goal;

typedef struct ru_trees_in {
    const float *x;      /* [m, n] NaN: missing */
    const float *y;      /* [m] */
    const float *weight; /* [m] >= 0; NULL: all 1 */
    uint32_t m, n;
    ru_trees_goal goal;
    uint32_t n_classes;             /* of RU_TREES_CLASSES */
    double q;                       /* of RU_TREES_QUANTILE, 0 < q < 1 */
    uint32_t rounds;                /* 0: 100 */
    uint32_t depth;                 /* 0: 6 */
    double rate;                    /* 0: 0.1 */
    double ridge;                   /* on leaves; 0: 1 (XGBoost's lambda), < 0: none */
    double split_gain_min;          /* XGBoost's gamma */
    double leaf_weight_min;         /* sum of second derivatives in a leaf; 0: 1 */
    double row_share, column_share; /* drawn for each tree; 0: 1 */
    const int8_t *monotone;         /* [n] 1: rising, -1: falling, 0: free; NULL: all free */
    uint64_t seed;
} ru_trees_in;

typedef struct ru_solver {
    const char *name;
    /* Each blocks. Owner: results in `out`. Errors: RU_E_UNSUPPORTED when the build lacks the
     * library (the sentence names the package), RU_E_ARG for bad input, RU_E_LIMIT (arena),
     * RU_E_BUG when the library breaks its word. An infeasible problem is an answer, no error. */
    ru_status (*milp)(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err);
    /* Wholeness is ignored: the relaxation, with duals. `start` is ignored. */
    ru_status (*lp)(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err);
    ru_status (*trees)(const ru_trees_in *in, ru_arena *out, ru_trees *trees, ru_err *err);
} ru_solver;

#endif
