/* Mixed-integer programs by CBC. See solver.h.
 *
 * Left-out rows are found and added between whole solves: branch and bound starts again with what
 * was bought so far of the node budget, which keeps every bound valid for the rows at hand, and the
 * rows at hand are a relaxation of all. */
#include "solve/solver_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef RU_HAS_CBC
#include <Cbc_C_Interface.h>

#define RUI_CBC_LIST(X)            \
    X(Cbc_newModel)                \
    X(Cbc_deleteModel)             \
    X(Cbc_loadProblem)             \
    X(Cbc_setInteger)              \
    X(Cbc_setParameter)            \
    X(Cbc_setLogLevel)             \
    X(Cbc_setMIPStartI)            \
    X(Cbc_solve)                   \
    X(Cbc_status)                  \
    X(Cbc_secondaryStatus)         \
    X(Cbc_isProvenInfeasible)      \
    X(Cbc_isContinuousUnbounded)   \
    X(Cbc_bestSolution)            \
    X(Cbc_getBestPossibleObjValue) \
    X(Cbc_getNodeCount)            \
    X(Cbc_getIterationCount)

typedef struct cbc_library {
#define RU_X(f) __typeof__(f) *f;
    RUI_CBC_LIST(RU_X)
#undef RU_X
} cbc_library;

static bool load(cbc_library *lib)
{
    bool all = true;
#define RU_X(f) all = all && rui_load(RU_CBC_SONAME, #f, &lib->f);
    RUI_CBC_LIST(RU_X)
#undef RU_X
    return all;
}

bool ru_solver_has_milp(void)
{
    cbc_library lib;
    return load(&lib);
}

typedef struct round_in {
    const cbc_library *lib;
    const ru_solve_in *in;
    const ru_milp_rows *more; /* rows found so far */
    int64_t nodes_left;
} round_in;

static void set_number(const cbc_library *lib, Cbc_Model *model, const char *name, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    lib->Cbc_setParameter(model, name, text);
}

static Cbc_Model *make(const round_in *r, const rui_columns *c, ru_arena *arena)
{
    const ru_milp *p = r->in->milp;
    const cbc_library *lib = r->lib;
    Cbc_Model *model = lib->Cbc_newModel();
    int *index = RU_NEW(arena, int, p->n_cols);
    if (model == NULL || index == NULL) {
        return NULL;
    }
    lib->Cbc_setLogLevel(model, 0);
    lib->Cbc_setParameter(model, "log", "0");
    lib->Cbc_loadProblem(model, c->n_cols, c->n_rows, c->at, c->row, c->coef, p->low, p->high,
                         c->cost, c->row_low, c->row_high);
    for (uint32_t j = 0; j < p->n_cols; j++) {
        index[j] = (int)j;
        if (p->integer != NULL && p->integer[j]) {
            lib->Cbc_setInteger(model, (int)j);
        }
    }
    set_number(lib, model, "maxNodes", (double)r->nodes_left);
    set_number(lib, model, "ratioGap", r->in->gap_rel > 0 ? r->in->gap_rel : 1e-6);
    set_number(lib, model, "randomCbcSeed", (double)(r->in->seed % 1000000 + 1));
    set_number(lib, model, "randomSeed", (double)(r->in->seed % 1000000 + 1));
    if (r->in->start != NULL) {
        lib->Cbc_setMIPStartI(model, (int)p->n_cols, index, r->in->start);
    }
    return model;
}

/* Round what must be whole, so that callers may cast; the rest is as CBC left it. */
static void copy_solution(const ru_milp *p, const double *from, double *x)
{
    for (uint32_t j = 0; j < p->n_cols; j++) {
        double v = p->integer != NULL && p->integer[j] ? round(from[j]) : from[j];
        x[j] = v < p->low[j] ? p->low[j] : v > p->high[j] ? p->high[j] : v;
    }
}

/* One whole solve. s->x keeps its place; has_x says whether it was filled. */
static ru_status solve_round(round_in *r, ru_arena *arena, ru_solution *s, bool *has_x, ru_err *err)
{
    const ru_milp *p = r->in->milp;
    const cbc_library *lib = r->lib;
    rui_columns c;
    RU_TRY(rui_columns_make(p, r->more, arena, &c, err));
    Cbc_Model *model = make(r, &c, arena);
    if (model == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a program of %u columns", p->n_cols);
    }
    (void)lib->Cbc_solve(model);
    int status = lib->Cbc_status(model), second = lib->Cbc_secondaryStatus(model);
    bool stopped = status == 1 && second != 2; /* ending on the gap is what was asked for */
    const double *best = lib->Cbc_bestSolution(model);
    double sign = p->maximise ? -1 : 1;
    s->nodes += lib->Cbc_getNodeCount(model);
    s->pivots += lib->Cbc_getIterationCount(model);
    r->nodes_left -= lib->Cbc_getNodeCount(model);
    double bound = sign * lib->Cbc_getBestPossibleObjValue(model) + p->constant;
    bool unbounded = lib->Cbc_isContinuousUnbounded(model) != 0;
    bool infeasible = lib->Cbc_isProvenInfeasible(model) != 0;
    *has_x = best != NULL && !infeasible && !unbounded;
    if (*has_x) {
        copy_solution(p, best, s->x);
    }
    lib->Cbc_deleteModel(model);
    s->bound = fabs(bound) < 1e49 ? bound : -sign * (double)INFINITY;
    if (status == 2 || (!*has_x && !infeasible && !unbounded && !stopped)) {
        return RU_FAIL(err, RU_E_BUG, "CBC could not solve a program of %u columns (status %d, %d)",
                       p->n_cols, status, second);
    }
    s->end = unbounded    ? RU_SOLVE_UNBOUNDED
             : infeasible ? RU_SOLVE_INFEASIBLE
             : !*has_x    ? RU_SOLVE_EMPTY
             : stopped    ? RU_SOLVE_STOPPED
                          : RU_SOLVE_OPTIMAL;
    if (*has_x) {
        s->value = ru_milp_value(p, s->x);
        /* A bound beyond the value is rounding. */
        s->bound = sign * (s->value - s->bound) < 0 ? s->value : s->bound;
        RU_TRY(ru_milp_feasible(p, s->x, 1e-5, err));
    }
    return RU_OK;
}

/* The rows of both, in `arena`. */
static ru_status join_rows(const ru_milp_rows *a, const ru_milp_rows *b, ru_arena *arena,
                           ru_milp_rows *out, ru_err *err)
{
    ru_milp_builder builder = ru_milp_build(arena);
    const ru_milp_rows *both[2] = {a, b};
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < both[k]->n; i++) {
            (void)ru_milp_row(&builder, both[k]->low[i], both[k]->high[i]);
            for (uint32_t t = both[k]->at[i]; t < both[k]->at[i + 1]; t++) {
                ru_milp_term(&builder, both[k]->col[t], both[k]->coef[t]);
            }
        }
    }
    return ru_milp_rows_done(&builder, out, err);
}

static ru_status check_more(const ru_milp *p, const ru_milp_rows *more, ru_err *err)
{
    ru_milp with = *p;
    with.rows = *more;
    ru_status st = ru_milp_check(&with, err);
    return st == RU_OK ? st : ru_err_wrap(err, st, "a lazy constraint");
}

static ru_status rounds(round_in *r, ru_arena *arena, ru_solution *s, bool *has_x, ru_err *err)
{
    uint32_t most = r->in->lazy_rounds_max > 0 ? r->in->lazy_rounds_max : 100;
    ru_milp_rows all = {0};
    for (;;) {
        r->more = &all;
        RU_TRY(solve_round(r, arena, s, has_x, err));
        s->rounds++;
        if (!*has_x || r->in->lazy == NULL) {
            return RU_OK;
        }
        ru_milp_rows more = {0}, joined;
        RU_TRY(r->in->lazy(r->in->lazy_self, s->x, arena, &more, err));
        if (more.n == 0) {
            return RU_OK;
        }
        RU_TRY(check_more(r->in->milp, &more, err));
        if (s->rounds >= most || r->nodes_left <= 0) {
            /* x breaks rows; the bound of fewer rows stays a bound of all. */
            *has_x = false;
            s->end = RU_SOLVE_EMPTY;
            return RU_OK;
        }
        RU_TRY(join_rows(&all, &more, arena, &joined, err));
        all = joined;
    }
}

ru_status rui_milp_solve(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err)
{
    const ru_milp *p = in->milp;
    cbc_library lib;
    if (!load(&lib)) {
        return rui_no_library("integer programs (CBC)", "coinor-libcbc3", true, err);
    }
    RU_TRY(ru_milp_check(p, err));
    if (in->start != NULL && ru_milp_feasible(p, in->start, 1e-6, err) != RU_OK) {
        return ru_err_wrap(err, RU_E_ARG, "the start of an integer program");
    }
    ru_solution s = {.x = RU_NEW(out, double, p->n_cols)};
    if (s.x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a program of %u columns", p->n_cols);
    }
    ru_arena_mark mark = ru_arena_mark_get(out);
    round_in r = {.lib = &lib, .in = in, .nodes_left = in->nodes_max > 0 ? in->nodes_max : 10000};
    bool has_x = false;
    ru_status st = rounds(&r, out, &s, &has_x, err);
    ru_arena_rewind(out, mark);
    if (st == RU_OK) {
        s.x = has_x ? s.x : NULL;
        *sol = s;
    }
    return st;
}

#else

bool ru_solver_has_milp(void)
{
    return false;
}

ru_status rui_milp_solve(const ru_solve_in *in, ru_arena *out, ru_solution *sol, ru_err *err)
{
    (void)in;
    (void)out;
    (void)sol;
    return rui_no_library("integer programs (CBC)", "coinor-libcbc-dev", false, err);
}

#endif
