/* The table of solvers and what its rows share. See solver.h. */
#include "solve/solver_impl.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

const ru_solver ru_solver_library = {"cbc, clp, xgboost", rui_milp_solve, rui_lp_solve,
                                     rui_trees_train};

bool rui_load(const char *library, const char *name, void *at)
{
    /* Opened, not linked: a command that solves nothing does not wait for five megabytes of
     * libraries. A library that is open is only counted again. */
    void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    void *found = handle != NULL ? dlsym(handle, name) : NULL;
    memcpy(at, &found, sizeof found);
    return found != NULL;
}

ru_status rui_no_library(const char *what, const char *package, bool built, ru_err *err)
{
    if (built) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the library for %s is not installed; run apt-get install %s", what,
                       package);
    }
    return RU_FAIL(err, RU_E_UNSUPPORTED,
                   "Rubato was built without %s; run apt-get install %s and build it again", what,
                   package);
}

static void count_terms(const ru_milp_rows *r, int *at)
{
    for (uint32_t k = 0; r != NULL && r->n > 0 && k < r->at[r->n]; k++) {
        at[r->col[k] + 1]++;
    }
}

static void put_terms(const ru_milp_rows *r, int first_row, rui_columns *c, int *next)
{
    for (uint32_t i = 0; r != NULL && i < r->n; i++) {
        c->row_low[first_row + (int)i] = r->low[i];
        c->row_high[first_row + (int)i] = r->high[i];
        for (uint32_t k = r->at[i]; k < r->at[i + 1]; k++) {
            int place = next[r->col[k]]++;
            c->row[place] = first_row + (int)i;
            c->coef[place] = r->coef[k];
        }
    }
}

ru_status rui_columns_make(const ru_milp *p, const ru_milp_rows *more, ru_arena *arena,
                           rui_columns *out, ru_err *err)
{
    int64_t rows = (int64_t)p->rows.n + (more != NULL ? more->n : 0);
    int64_t terms = p->rows.n > 0 ? p->rows.at[p->rows.n] : 0;
    terms += more != NULL && more->n > 0 ? more->at[more->n] : 0;
    if (rows > INT_MAX || terms > INT_MAX || p->n_cols > INT_MAX - 1) {
        return RU_FAIL(err, RU_E_LIMIT, "a program of %u columns and %lld terms is too large",
                       p->n_cols, (long long)terms);
    }
    rui_columns c = {.n_cols = (int)p->n_cols, .n_rows = (int)rows};
    c.at = RU_NEW(arena, int, p->n_cols + 1);
    int *next = RU_NEW(arena, int, p->n_cols + 1);
    c.row = RU_NEW(arena, int, terms);
    c.coef = RU_NEW(arena, double, terms);
    c.cost = RU_NEW(arena, double, p->n_cols);
    c.row_low = RU_NEW(arena, double, rows);
    c.row_high = RU_NEW(arena, double, rows);
    if (c.at == NULL || next == NULL || c.row == NULL || c.coef == NULL || c.cost == NULL ||
        c.row_low == NULL || c.row_high == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a program of %u columns", p->n_cols);
    }
    count_terms(&p->rows, c.at);
    count_terms(more, c.at);
    for (uint32_t j = 0; j < p->n_cols; j++) {
        c.at[j + 1] += c.at[j];
        next[j] = c.at[j];
        c.cost[j] = p->maximise ? -p->cost[j] : p->cost[j];
    }
    put_terms(&p->rows, 0, &c, next);
    put_terms(more, (int)p->rows.n, &c, next);
    *out = c;
    return RU_OK;
}
