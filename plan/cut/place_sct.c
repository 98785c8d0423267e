/* Favourite children for m-SCT: a linear program says which transfer of each op may be free.
 *
 *   minimise w;  s_i + p_i + c_ij x_ij <= s_j,  s_i + p_i <= w,  0 <= x <= 1,
 *   at most one input and one output of each op with x = 0: sums of x >= degree - 1
 *
 * An edge with x below a half makes its reader the favourite. Source: baechi-2020 sec 3.2. */
#include <math.h>

#include "plan/cut/place_impl.h"

static void put_degrees(ru_milp_builder *b, const uint32_t *at, const uint32_t *edge, uint32_t n,
                        uint32_t x)
{
    for (uint32_t i = 0; i < n; i++) {
        if (at[i + 1] - at[i] > 1) {
            (void)ru_milp_row(b, (double)(at[i + 1] - at[i] - 1), (double)INFINITY);
            for (uint32_t k = at[i]; k < at[i + 1]; k++) {
                ru_milp_term(b, x + edge[k], 1);
            }
        }
    }
}

ru_status rui_place_children(const rui_place *g, const ru_solver *solver, ru_arena *a,
                             uint32_t *child, ru_err *err)
{
    if (solver == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "m-SCT needs a solver of linear programs, and none was given");
    }
    ru_arena_mark mark = ru_arena_mark_get(a);
    ru_milp_builder b = ru_milp_build(a);
    double scale = 1;
    for (uint32_t i = 0; i < g->n; i++) {
        double path = (double)(g->head[i] + rui_place_least(g, i) + g->tail[i]);
        scale = path > scale ? path : scale;
    }
    scale /= 1000;
    uint32_t w = ru_milp_col(&b, 1, 0, (double)INFINITY, false);
    for (uint32_t i = 0; i < g->n; i++) {
        (void)ru_milp_col(&b, 0, 0, (double)INFINITY, false);
    }
    uint32_t x = 1 + g->n;
    for (uint32_t e = 0; e < g->m; e++) {
        (void)ru_milp_col(&b, 0, 0, 1, false);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        (void)ru_milp_row(&b, (double)rui_place_least(g, i) / scale, (double)INFINITY);
        ru_milp_term(&b, w, 1);
        ru_milp_term(&b, 1 + i, -1);
    }
    for (uint32_t e = 0; e < g->m; e++) {
        (void)ru_milp_row(&b, (double)rui_place_least(g, g->from[e]) / scale, (double)INFINITY);
        ru_milp_term(&b, 1 + g->to[e], 1);
        ru_milp_term(&b, 1 + g->from[e], -1);
        ru_milp_term(&b, x + e, -(double)g->send[e] / scale);
    }
    put_degrees(&b, g->in_at, g->in_edge, g->n, x);
    put_degrees(&b, g->out_at, g->out_edge, g->n, x);
    ru_milp p;
    ru_solution sol;
    RU_TRY(ru_milp_done(&b, false, &p, err));
    ru_solve_in in = {.milp = &p, .seed = 1};
    RU_TRY(solver->lp(&in, a, &sol, err));
    if (sol.x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the linear program of m-SCT ended without an answer");
    }
    for (uint32_t i = 0; i < g->n; i++) {
        child[i] = RUI_PLACE_NONE;
    }
    for (uint32_t e = 0; e < g->m; e++) {
        child[g->from[e]] = sol.x[x + e] < 0.5 ? g->to[e] : child[g->from[e]];
    }
    ru_arena_rewind(a, mark);
    return RU_OK;
}
