/* How much longer a step may last than predicted. See timing.h.
 *
 * Networks are left out in turn; each case gives the logarithm of measured over predicted time. A
 * network has weight 1, shared by its cases, and one more network, which nobody has seen, weighs 1
 * at infinity: the quantile of that mixture is what a case of that network stays below.
 *
 * Source: lee-2023 (hierarchical conformal prediction). */
#include <math.h>

#include "base/rng.h"
#include "cost/math/norm.h"
#include "cost/math/quantile.h"
#include "cost/step/timing.h"

enum { GROUPS = 8 };

/* Larger logarithms are as good as infinity. */
static const double log_most = 100;

typedef struct margin {
    const ru_timing_in *in;
    const ru_timing_case *cases; /* [n] */
    uint32_t n, n_nets, groups;
    double *score; /* [n] */
} margin;

static double ops_at(const ru_timing_model *model, const ru_timing_case *c)
{
    double sum = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        sum += ru_timing_at(model, &c->rows[i]);
    }
    return sum;
}

static double measured_of(const ru_timing_case *c)
{
    double sum = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        sum += c->rows[i].seconds;
    }
    return c->step.seconds > 0 ? c->step.seconds : sum;
}

static double score_of(double is, double was)
{
    double log = is > 0 && was > 0 ? ru_num_log(is / was) : is > 0 ? log_most : 0;
    return fmin(fmax(log, -log_most), log_most);
}

/* Fit to the networks outside of the group: ops, then steps over these ops. */
static ru_status fit_rest(const margin *m, uint32_t group, ru_arena *scratch,
                          ru_timing_model *model, ru_timing_step_model *whole, ru_err *err)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        n += m->cases[i].n;
    }
    ru_timing_row *rows = RU_NEW(scratch, ru_timing_row, (int64_t)n + 1);
    ru_timing_step *steps = RU_NEW(scratch, ru_timing_step, (int64_t)m->n + 1);
    if (rows == NULL || steps == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the timings of %u steps", m->n);
    }
    ru_timing_in rest = *m->in;
    rest.rows = rows;
    rest.n = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const ru_timing_case *c = &m->cases[i];
        for (uint32_t k = 0; c->net % m->groups != group && c->teaches && k < c->n; k++) {
            rows[rest.n++] = c->rows[k];
        }
    }
    RU_TRY(ru_timing_fit(&rest, scratch, scratch, model, err));
    uint32_t n_steps = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const ru_timing_case *c = &m->cases[i];
        if (c->net % m->groups != group && c->step.seconds > 0) {
            steps[n_steps] = c->step;
            steps[n_steps++].ops_s = ops_at(model, c);
        }
    }
    return ru_timing_step_fit(steps, n_steps, model->has_trees ? m->in->solver : NULL, m->in->seed,
                              scratch, scratch, whole, err);
}

static ru_status leave_out(const margin *m, uint32_t group, ru_arena *scratch, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    ru_timing_model model;
    ru_timing_step_model whole;
    RU_TRY(fit_rest(m, group, scratch, &model, &whole, err));
    for (uint32_t i = 0; i < m->n; i++) {
        const ru_timing_case *c = &m->cases[i];
        if (c->net % m->groups == group) {
            ru_timing_step s = c->step;
            s.ops_s = ops_at(&model, c);
            double was = s.seconds > 0 ? ru_timing_step_at(&whole, &s) : s.ops_s;
            m->score[i] = score_of(measured_of(c), was);
        }
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

static ru_status quantile_of(const margin *m, double probability, ru_arena *scratch, double *out,
                             ru_err *err)
{
    uint32_t *order = RU_NEW(scratch, uint32_t, m->n);
    double *each = RU_NEW(scratch, double, m->n_nets), sum = 0;
    if (order == NULL || each == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", m->n);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        each[m->cases[i].net]++;
    }
    ru_sort_order_f64(m->score, order, m->n);
    *out = (double)INFINITY;
    for (uint32_t k = 0; k < m->n && isinf(*out); k++) {
        sum += 1 / each[m->cases[order[k]].net];
        /* a sum of n roundings may miss a level that is a whole number of networks */
        if (sum + 1e-9 >= probability * (m->n_nets + 1.0)) {
            *out = m->score[order[k]];
        }
    }
    return RU_OK;
}

ru_status ru_timing_margin(const ru_timing_in *in, const ru_timing_case *cases, uint32_t n,
                           double probability, ru_arena *scratch, double *factor, ru_err *err)
{
    margin m = {.in = in, .cases = cases, .n = n};
    if (!(probability > 0 && probability < 1)) {
        return RU_FAIL(err, RU_E_ARG, "a probability of %g is outside 0 .. 1", probability);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (cases[i].net >= n) {
            return RU_FAIL(err, RU_E_ARG, "step %u is of network %u, more than there are steps", i,
                           cases[i].net);
        }
        m.n_nets = cases[i].net >= m.n_nets ? cases[i].net + 1 : m.n_nets;
    }
    *factor = (double)INFINITY;
    m.groups = m.n_nets < GROUPS ? m.n_nets : GROUPS;
    if (m.n_nets < 2) {
        return RU_OK;
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double log = 0;
    m.score = RU_NEW(scratch, double, n);
    if (m.score == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", n);
    }
    for (uint32_t g = 0; g < m.groups; g++) {
        RU_TRY(leave_out(&m, g, scratch, err));
    }
    RU_TRY(quantile_of(&m, probability, scratch, &log, err));
    ru_arena_rewind(scratch, mark);
    *factor = isinf(log) ? (double)INFINITY : fmax(ru_math_exp(log), 1);
    return RU_OK;
}
