/* Linear programs by Clp. See solver.h. */
#include "solve/solver_impl.h"

#include <math.h>
#include <string.h>

#ifdef RU_HAS_CLP
#include <Clp_C_Interface.h>

#define RUI_CLP_LIST(X)         \
    X(Clp_newModel)             \
    X(Clp_deleteModel)          \
    X(Clp_loadProblem)          \
    X(Clp_setLogLevel)          \
    X(Clp_setMaximumIterations) \
    X(Clp_initialSolve)         \
    X(Clp_status)               \
    X(Clp_numberIterations)     \
    X(Clp_getColSolution)       \
    X(Clp_getRowPrice)          \
    X(Clp_getReducedCost)

typedef struct clp_library {
#define RU_X(f) __typeof__(f) *f;
    RUI_CLP_LIST(RU_X)
#undef RU_X
} clp_library;

static bool load(clp_library *lib)
{
    bool all = true;
#define RU_X(f) all = all && rui_load(RU_CLP_SONAME, #f, &lib->f);
    RUI_CLP_LIST(RU_X)
#undef RU_X
    return all;
}

bool ru_solver_has_lp(void)
{
    clp_library lib;
    return load(&lib);
}

/* What Clp says of the model; values for maximising turned back. */
static ru_status answer(const clp_library *lib, Clp_Simplex *model, const ru_milp *p,
                        ru_solution *s, ru_err *err)
{
    double sign = p->maximise ? -1 : 1, none = -sign * (double)INFINITY;
    int status = lib->Clp_status(model);
    s->pivots = lib->Clp_numberIterations(model);
    s->bound = none;
    double *x = s->x;
    s->x = NULL;
    switch (status) {
    case 0:
        break;
    case 1:
        s->end = RU_SOLVE_INFEASIBLE;
        return RU_OK;
    case 2:
        s->end = RU_SOLVE_UNBOUNDED;
        return RU_OK;
    case 3:
        s->end = RU_SOLVE_EMPTY;
        return RU_OK;
    default:
        return RU_FAIL(err, RU_E_BUG, "Clp could not solve a program of %u columns (status %d)",
                       p->n_cols, status);
    }
    s->end = RU_SOLVE_OPTIMAL;
    s->x = x;
    memcpy(s->x, lib->Clp_getColSolution(model), p->n_cols * sizeof *s->x);
    for (uint32_t j = 0; j < p->n_cols; j++) {
        s->reduced[j] = sign * lib->Clp_getReducedCost(model)[j];
    }
    for (uint32_t i = 0; i < p->rows.n; i++) {
        s->dual[i] = sign * lib->Clp_getRowPrice(model)[i];
    }
    s->value = s->bound = ru_milp_value(p, s->x);
    return RU_OK;
}

ru_status rui_lp_solve(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err)
{
    const ru_milp *p = in->milp;
    clp_library lib;
    if (!load(&lib)) {
        return rui_no_library("linear programs (Clp)", "coinor-libclp1", true, err);
    }
    RU_TRY(ru_milp_check(p, err));
    ru_solution s = {.x = RU_NEW(out, double, p->n_cols),
                     .reduced = RU_NEW(out, double, p->n_cols),
                     .dual = RU_NEW(out, double, p->rows.n)};
    if (s.x == NULL || s.reduced == NULL || s.dual == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a program of %u columns", p->n_cols);
    }
    ru_arena_mark mark = ru_arena_mark_get(out);
    rui_columns c;
    ru_status st = rui_columns_make(p, NULL, out, &c, err);
    Clp_Simplex *model = st == RU_OK ? lib.Clp_newModel() : NULL;
    if (model != NULL) {
        int64_t pivots = in->pivots_max > 0 ? in->pivots_max : 1000000;
        lib.Clp_setLogLevel(model, 0);
        lib.Clp_setMaximumIterations(model, pivots < INT32_MAX ? (int)pivots : INT32_MAX);
        lib.Clp_loadProblem(model, c.n_cols, c.n_rows, c.at, c.row, c.coef, p->low, p->high, c.cost,
                            c.row_low, c.row_high);
        (void)lib.Clp_initialSolve(model);
        st = answer(&lib, model, p, &s, err);
        lib.Clp_deleteModel(model);
    } else if (st == RU_OK) {
        st = RU_FAIL(err, RU_E_MEM, "no memory for a linear program of %u columns", p->n_cols);
    }
    ru_arena_rewind(out, mark);
    if (st == RU_OK) {
        *sol = s;
    }
    return st;
}

#else

bool ru_solver_has_lp(void)
{
    return false;
}

ru_status rui_lp_solve(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err)
{
    (void)in;
    (void)out;
    (void)sol;
    return rui_no_library("linear programs (Clp)", "coinor-libclp-dev", false, err);
}

#endif
