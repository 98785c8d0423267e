/* The libraries behind world/solver.h: CBC (integer programs), Clp (linear programs with duals),
 * XGBoost (boosted trees). Each is optional when Rubato is built; a call to one that is missing
 * says which package brings it.
 *
 * Thread: any; the libraries run in the caller's thread alone. */
#ifndef RU_SOLVE_SOLVER_H
#define RU_SOLVE_SOLVER_H

#include "world/solver.h"

extern const ru_solver ru_solver_library;

/* Was the library for integer programs, linear programs, trees there at build time? */
bool ru_solver_has_milp(void);
bool ru_solver_has_lp(void);
bool ru_solver_has_trees(void);

/* A model that XGBoost saved as JSON, as plain arrays. Needs no library. Goals: squared error,
 * logistic, softmax, gamma, poisson, tweedie, quantile, absolute error; booster gbtree without
 * categorical splits. Owner: arrays in `out`. Errors: RU_E_DATA, RU_E_UNSUPPORTED, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_trees_read_json(const char *text, int64_t size_bytes, ru_arena *out,
                                         ru_trees *trees, ru_err *err);

#endif
