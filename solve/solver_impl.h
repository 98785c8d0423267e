/* Inside of solve/: what the bindings share. Thread: any. */
#ifndef RU_SOLVE_SOLVER_IMPL_H
#define RU_SOLVE_SOLVER_IMPL_H

#include "solve/solver.h"

/* A function of a library by name: into *at [size of a function pointer]. The library is opened
 * when it is first asked for and stays open; false when it or the function is not there. */
bool rui_load(const char *library, const char *name, void *at);

/* Why a call cannot be done: no library at build time, or none on this machine now. */
ru_status rui_no_library(const char *what, const char *package, bool built, ru_err *err);

/* A program by columns, as the libraries take it; `more` rows (may be NULL) follow its own. */
typedef struct rui_columns {
    int n_cols, n_rows;
    int *at;                    /* [n_cols + 1] */
    int *row;                   /* [terms] */
    double *coef;               /* [terms] */
    double *cost;               /* [n_cols] to be minimised */
    double *row_low, *row_high; /* [n_rows] */
} rui_columns;
RU_MUST_USE ru_status rui_columns_make(const ru_milp *p, const ru_milp_rows *more, ru_arena *arena,
                                       rui_columns *out, ru_err *err);

ru_status rui_milp_solve(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err);
ru_status rui_lp_solve(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err);
ru_status rui_trees_train(const ru_trees_in *in, ru_arena *out, ru_trees *trees, ru_err *err);

#endif
