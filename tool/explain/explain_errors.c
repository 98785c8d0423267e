#include "tool/explain/explain_errors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/math/quantile.h"
#include "env/file/file.h"
#include "plan/row/policy.h"

enum { TRACE_BYTES = 16 << 20, FIGURES_MAX = 64 };

static const double median_max = 0.05, p95_max = 0.15;

static const double *value_of(const ru_conf_pairs *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(list->at[i].key, name) == 0) {
            return &list->at[i].value;
        }
    }
    return NULL;
}

static void row(ru_table *t, const char *of, const ru_predictor_error *e)
{
    bool meets = e->median <= median_max && e->p95 <= p95_max;
    ru_table_str(t, e->predictor);
    ru_table_str(t, of);
    ru_table_i64(t, e->n);
    ru_table_percent(t, e->median, 1);
    ru_table_percent(t, e->p95, 1);
    ru_table_percent(t, e->bias, 1);
    if (e->repeat_n > 0) {
        ru_table_percent(t, e->repeat_median, 1);
        ru_table_percent(t, e->repeat_p95, 1);
    } else {
        ru_table_absent(t, "share");
        ru_table_absent(t, "share");
    }
    ru_table_bool(t, meets);
}

/* A figure of a policy, over all its plans that were measured. */
static ru_status figure_row(const ru_world *w, const char *policy, const char *figure, ru_table *t,
                            ru_arena *arena, ru_err *err)
{
    double *off = RU_NEW(arena, double, w->plans.n), all_said = 0, all = 0;
    uint32_t n = 0;
    if (off == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the errors of predictions");
    }
    for (uint32_t i = 0; i < w->plans.n; i++) {
        const ru_world_plan *p = &w->plans.at[i];
        const double *said = value_of(&p->predicted, figure), *is = value_of(&p->measured, figure);
        if (strcmp(p->policy, policy) != 0 || said == NULL || is == NULL || *is == 0 ||
            *said == 0 || !isfinite(*said) || !isfinite(*is)) {
            continue;
        }
        off[n++] = fabs(*said - *is) / fabs(*is);
        all_said += *said;
        all += *is;
    }
    if (n == 0) {
        return RU_OK;
    }
    ru_sort_f64(off, n);
    char label[64];
    ru_text x = ru_text_into(label, sizeof label);
    ru_figure_put_name(figure, &x);
    const ru_predictor_error e = {.predictor = policy,
                                  .n = n,
                                  .median = ru_quantile_sorted(off, n, 0.5, RU_QUANTILE_LINEAR),
                                  .p95 = ru_quantile_sorted(off, n, 0.95, RU_QUANTILE_LINEAR),
                                  .bias = all != 0 ? all_said / all - 1 : 0};
    row(t, label, &e);
    return RU_OK;
}

/* Is this the first plan of its policy that measured the figure? */
static bool first(const ru_world *w, uint32_t plan, const char *figure)
{
    for (uint32_t i = 0; i < plan; i++) {
        if (strcmp(w->plans.at[i].policy, w->plans.at[plan].policy) == 0 &&
            value_of(&w->plans.at[i].measured, figure) != NULL) {
            return false;
        }
    }
    return true;
}

static ru_status policy_rows(const ru_world *w, ru_table *t, ru_arena *arena, ru_err *err)
{
    for (uint32_t i = 0; i < w->plans.n; i++) {
        const ru_world_plan *p = &w->plans.at[i];
        for (uint32_t k = 0; k < p->measured.n; k++) {
            if (first(w, i, p->measured.at[k].key)) {
                RU_TRY(figure_row(w, p->policy, p->measured.at[k].key, t, arena, err));
            }
        }
    }
    return RU_OK;
}

/* The newest records of the run; a world file has none. */
static ru_status record_rows(const char *path, ru_table *t, ru_arena *arena, ru_err *err)
{
    ru_trace *traces;
    ru_trace_clocks clocks;
    ru_predictor_error e[RU_PREDICTORS_MAX];
    uint32_t n, n_errors = 0;
    const char *dir = ru_path_join(arena, path, "trace");
    if (dir == NULL || !ru_path_is_dir(dir)) {
        return RU_OK;
    }
    ru_status st = ru_trace_run_load_end(path, TRACE_BYTES, arena, &traces, &n, err);
    if (st == RU_E_MISSING) { /* a run that records nothing */
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(ru_trace_align(traces, n, arena, &clocks, err));
    RU_TRY(ru_trace_predicted(traces, n, &clocks, 0, arena, e, &n_errors, err));
    for (uint32_t k = 0; k < n_errors; k++) {
        row(t,
            strcmp(e[k].predictor, "coll") == 0        ? "time of a sum"
            : strcmp(e[k].predictor, "coll step") == 0 ? "time of all sums of a step"
            : strcmp(e[k].predictor, "link") == 0      ? "time of a transfer"
            : strcmp(e[k].predictor, "link probe") == 0
                ? "time of a transfer, measuring the network"
                : "time of a span",
            &e[k]);
    }
    return RU_OK;
}

ru_status rui_explain_errors(const ru_world *w, const char *path, const ru_predictor_error *ops,
                             ru_arena *arena, const ru_tell *out, ru_err *err)
{
    ru_table t = ru_table_in(arena);
    static const char *const right[] = {"n", "median", "p95", "together", "repeat", "repeat p95"};
    ru_table_col(&t, "predictor", RU_TABLE_LEFT);
    ru_table_col(&t, "of", RU_TABLE_LEFT);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(right); k++) {
        ru_table_col(&t, right[k], RU_TABLE_RIGHT);
    }
    ru_table_col(&t, "within 5 and 15 %", RU_TABLE_RIGHT);
    if (ops->n > 0) {
        row(&t, "time of an op, by the others", ops);
    }
    RU_TRY(record_rows(path, &t, arena, err));
    RU_TRY(policy_rows(w, &t, arena, err));
    if (t.cells.n == 0) {
        return RU_OK;
    }
    return ru_tell_table(out, "errors", "errors of predictions", &t, err);
}
