/* Steps of every offer, predicted from timings of other networks. See device_policy.h. */
#include <math.h>
#include <string.h>

#include "cost/math/lsq.h"
#include "plan/cut/device_policy.h"

/* Timings as rows: names become numbers in the order of their first appearance. */
typedef struct shelf {
    const ru_device_policy_in *in;
    const char **kinds, **nets; /* [n_kinds], [n_nets] */
    uint32_t n_kinds, n_nets;
    bool *heavy;            /* [n_kinds] */
    ru_timing_row *rows;    /* [timed.n] */
    uint32_t *type;         /* [timed.n] */
    ru_timing_row *net;     /* [net.n] of the network to train */
    ru_timing_row *of_type; /* [n_of_type] copies of the rows of one type */
    uint32_t n_of_type;
} shelf;

static uint32_t number_of(const char *name, const char **names, uint32_t *n)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    names[*n] = name;
    return (*n)++;
}

static uint32_t type_number(const ru_device_policy_in *in, const char *name)
{
    const ru_device_type_in *t = in->types.at;
    for (uint32_t i = 0; i < in->types.n; i++) {
        if (strcmp(t[i].name, name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

static ru_status row_of(shelf *s, const ru_device_op_in *op, ru_arena *a, ru_timing_row *row,
                        ru_err *err)
{
    double *x = RU_NEW(a, double, RU_TIMING_COLUMNS);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the timings");
    }
    const ru_timing_op o = {op->in_bytes, op->out_bytes,   op->host_bytes,   op->param_bytes,
                            op->flops,    op->channels_in, op->channels_out, op->taps};
    ru_timing_add(&o, op->count, x);
    row->kind = number_of(op->op, s->kinds, &s->n_kinds);
    if (s->n_kinds > RU_TIMING_KINDS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %d kinds of ops", RU_TIMING_KINDS_MAX);
    }
    row->x = x;
    row->seconds = op->seconds;
    return RU_OK;
}

/* Kinds whose ops take 0.5 ms on the device that is slowest at them. */
static void mark_heavy(shelf *s)
{
    for (uint32_t k = 0; k < s->n_kinds; k++) {
        for (uint32_t t = 0; t < s->in->types.n && !s->heavy[k]; t++) {
            double sum = 0, n = 0;
            for (uint32_t i = 0; i < s->in->timed.n; i++) {
                bool here = s->rows[i].kind == k && s->type[i] == t;
                sum += here ? s->rows[i].seconds : 0;
                n += here ? s->rows[i].x[0] : 0;
            }
            s->heavy[k] = n > 0 && sum / n >= 0.5e-3;
        }
    }
}

static ru_status fill(const ru_device_policy_in *in, ru_arena *a, shelf *s, ru_err *err)
{
    const ru_device_op_in *timed = in->timed.at, *net = in->net.at;
    *s = (shelf){.in = in};
    s->kinds = RU_NEW(a, const char *, RU_TIMING_KINDS_MAX + 2);
    s->nets = RU_NEW(a, const char *, (int64_t)in->timed.n + 1);
    s->rows = RU_NEW(a, ru_timing_row, (int64_t)in->timed.n + 1);
    s->of_type = RU_NEW(a, ru_timing_row, (int64_t)in->timed.n + 1);
    s->type = RU_NEW(a, uint32_t, (int64_t)in->timed.n + 1);
    s->net = RU_NEW(a, ru_timing_row, in->net.n);
    s->heavy = RU_NEW(a, bool, RU_TIMING_KINDS_MAX);
    if (s->kinds == NULL || s->nets == NULL || s->rows == NULL || s->of_type == NULL ||
        s->type == NULL || s->net == NULL || s->heavy == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", in->timed.n);
    }
    for (uint32_t i = 0; i < in->timed.n; i++) {
        RU_TRY(row_of(s, &timed[i], a, &s->rows[i], err));
        s->rows[i].net = number_of(timed[i].net, s->nets, &s->n_nets);
        s->type[i] = type_number(in, timed[i].type);
    }
    for (uint32_t i = 0; i < in->net.n; i++) {
        RU_TRY(row_of(s, &net[i], a, &s->net[i], err));
    }
    mark_heavy(s);
    return RU_OK;
}

/* What a step does beside its ops. */
static ru_timing_step step_of(const ru_timing_row *rows, uint32_t n, uint32_t net, double ops_s)
{
    ru_timing_step s = {.ops_s = ops_s, .devices = 1};
    for (uint32_t i = 0; i < n; i++) {
        if (net == UINT32_MAX || rows[i].net == net) {
            s.launches += rows[i].x[0];
            s.param_bytes += rows[i].x[3];
            s.host_bytes += rows[i].x[4];
        }
    }
    return s;
}

static double sum_at(const ru_timing_model *m, const ru_timing_row *rows, uint32_t n, uint32_t net)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (net == UINT32_MAX || rows[i].net == net) {
            sum += ru_timing_at(m, &rows[i]);
        }
    }
    return sum;
}

/* Networks timed on the type, numbered anew, each with the mean of its steps on one device. */
static ru_status cases_of(const shelf *s, uint32_t type, ru_arena *scratch, ru_timing_case **out,
                          uint32_t *n, ru_err *err)
{
    const ru_device_step_in *in = s->in->steps.at;
    uint32_t *first = RU_NEW(scratch, uint32_t, (int64_t)s->n_nets + 1);
    uint32_t *of = RU_NEW(scratch, uint32_t, (int64_t)s->n_nets + 1);
    ru_timing_row *rows = RU_NEW(scratch, ru_timing_row, (int64_t)s->n_of_type + 1);
    ru_timing_case *cases = RU_NEW(scratch, ru_timing_case, (int64_t)s->n_nets + 1);
    if (first == NULL || of == NULL || rows == NULL || cases == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", s->n_of_type);
    }
    for (uint32_t i = 0; i < s->n_of_type; i++) {
        first[s->of_type[i].net + 1]++;
    }
    *n = 0;
    for (uint32_t k = 0; k < s->n_nets; k++) {
        uint32_t count = first[k + 1];
        first[k + 1] += first[k];
        of[k] = *n;
        if (count > 0) {
            cases[*n] = (ru_timing_case){*n, rows + first[k], 0, true, {.devices = 1}};
            *n += 1;
        }
    }
    for (uint32_t i = 0; i < s->n_of_type; i++) {
        ru_timing_case *c = &cases[of[s->of_type[i].net]];
        rows[(uint32_t)(c->rows - rows) + c->n++] = s->of_type[i];
    }
    for (uint32_t k = 0; k < *n; k++) {
        uint32_t steps = 0;
        double sum = 0;
        const char *net = s->nets[cases[k].rows[0].net];
        for (uint32_t i = 0; i < s->in->steps.n; i++) {
            bool one = in[i].devices == 1 && type_number(s->in, in[i].type) == type &&
                       strcmp(in[i].net, net) == 0;
            sum += one ? in[i].seconds : 0;
            steps += one;
        }
        cases[k].step = step_of(cases[k].rows, cases[k].n, UINT32_MAX, 0);
        cases[k].step.seconds = steps > 0 ? sum / steps : 0;
    }
    *out = cases;
    return RU_OK;
}

static ru_status fit_steps(const shelf *s, uint32_t type, const ru_timing_model *m,
                           const ru_policy_tools *tools, ru_timing_step_model *steps, ru_err *err)
{
    const ru_device_step_in *in = s->in->steps.at;
    ru_timing_step *list = RU_NEW(tools->scratch, ru_timing_step, (int64_t)s->in->steps.n + 1);
    uint32_t n = 0;
    if (list == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", s->in->steps.n);
    }
    for (uint32_t i = 0; i < s->in->steps.n; i++) {
        if (type_number(s->in, in[i].type) != type) {
            continue;
        }
        uint32_t net = 0;
        while (net < s->n_nets && strcmp(s->nets[net], in[i].net) != 0) {
            net++;
        }
        double ops_s = sum_at(m, s->of_type, s->n_of_type, net);
        if (!(ops_s > 0)) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "step %u is of network '%s', which has no timed ops on '%s'", i,
                           in[i].net, in[i].type);
        }
        list[n] = step_of(s->of_type, s->n_of_type, net, ops_s);
        list[n].devices = in[i].devices;
        list[n++].seconds = in[i].seconds;
    }
    return ru_timing_step_fit(list, n, m->has_trees ? tools->solver : NULL, 1, tools->out,
                              tools->scratch, steps, err);
}

static void take_type(shelf *s, uint32_t type)
{
    s->n_of_type = 0;
    for (uint32_t i = 0; i < s->in->timed.n; i++) {
        if (s->type[i] == type) {
            s->of_type[s->n_of_type++] = s->rows[i];
        }
    }
}

/* Sums over kinds on the anchor that explain the sum on this type: as many columns as kinds, few
 * rows, so a ridge holds them. */
static ru_status from_anchor(const shelf *s, uint32_t type, ru_arena *scratch, double *ops_s,
                             ru_err *err)
{
    uint32_t k = s->n_kinds, n = s->n_nets, anchor = type_number(s->in, s->in->anchor);
    double *a = RU_NEW(scratch, double, (int64_t)n *k), *b = RU_NEW(scratch, double, n);
    double *w = RU_NEW(scratch, double, n), *x = RU_NEW(scratch, double, k);
    if (a == NULL || b == NULL || w == NULL || x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u networks", n);
    }
    for (uint32_t i = 0; i < s->in->timed.n; i++) {
        const ru_timing_row *row = &s->rows[i];
        a[(size_t)row->net * k + row->kind] += s->type[i] == anchor ? row->seconds : 0;
        b[row->net] += s->type[i] == type ? row->seconds : 0;
    }
    double scale = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool both = false;
        for (uint32_t c = 0; c < k; c++) {
            both = both || a[(size_t)i * k + c] > 0;
            scale = fmax(scale, a[(size_t)i * k + c]);
        }
        w[i] = both && b[i] > 0 ? 1 / (b[i] * b[i]) : 0;
    }
    if (!(scale > 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no network was timed on the anchor '%s'",
                       s->in->anchor);
    }
    const ru_lsq_in in = {
        .a = a, .b = b, .weight = w, .m = n, .n = k, .ridge = 1e-6, .nonneg = true};
    ru_lsq_fit fit;
    RU_TRY(ru_lsq_solve(&in, scratch, scratch, &fit, err));
    for (uint32_t i = 0; i < s->in->net.n; i++) {
        x[s->net[i].kind] += s->net[i].seconds;
    }
    *ops_s = 0;
    for (uint32_t c = 0; c < k; c++) {
        *ops_s += fit.x[c] * x[c];
    }
    return RU_OK;
}

static double by_roofline(const shelf *s, uint32_t type)
{
    const ru_device_type_in *t = s->in->types.at;
    const ru_device_type_in *from = &t[type_number(s->in, s->in->anchor)], *to = &t[type];
    double sum = 0;
    for (uint32_t i = 0; i < s->in->net.n; i++) {
        sum += ru_timing_scaled(s->net[i].x, s->net[i].seconds, from->bytes_per_s,
                                from->flops_per_s, to->bytes_per_s, to->flops_per_s);
    }
    return sum;
}

/* Gradients summed around a ring of the type's own links, hidden under a share of the step. */
static double ring_s(const ru_device_policy_in *in, const ru_device_type_in *t, double step_s,
                     const ru_timing_step *s)
{
    double d = s->devices, rounds = 2 * (d - 1);
    double sum = rounds * (double)t->link_latency_ns * 1e-9 +
                 rounds / d * s->param_bytes / t->link_bytes_per_s;
    return fmax(0, sum - in->overlap * step_s);
}

static ru_status offers_of(shelf *s, uint32_t type, const ru_device_from *from,
                           const ru_policy_tools *tools, ru_device_type *out,
                           ru_device_offer *offers, ru_err *err)
{
    const ru_device_type_in *t = (const ru_device_type_in *)s->in->types.at + type;
    take_type(s, type);
    if (s->n_of_type == 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "'timed' holds no op of type '%s'", t->name);
    }
    const ru_timing_in in = {s->of_type, s->n_of_type, s->kinds,      s->n_kinds,
                             s->heavy,   from->method, tools->solver, 1};
    ru_timing_model m;
    ru_timing_step_model steps;
    RU_TRY(ru_timing_fit(&in, tools->scratch, tools->scratch, &m, err));
    RU_TRY(fit_steps(s, type, &m, tools, &steps, err));
    double ops_s = sum_at(&m, s->net, s->in->net.n, UINT32_MAX), factor = 1, sure = 0;
    bool anchored = from->scaled || from->profet;
    if (from->profet) {
        RU_TRY(from_anchor(s, type, tools->scratch, &ops_s, err));
    } else if (from->scaled) {
        ops_s = by_roofline(s, type);
    }
    if (s->in->sure > 0 && !anchored) {
        ru_timing_case *cases = NULL;
        uint32_t nets = 0;
        RU_TRY(cases_of(s, type, tools->scratch, &cases, &nets, err));
        sure = nets > 1 ? fmin(s->in->sure, nets / (nets + 1.0)) : 0;
        RU_TRY(nets > 1 ? ru_timing_margin(&in, cases, nets, sure, tools->scratch, &factor, err)
                        : RU_OK);
    }
    *out = (ru_device_type){t->name,         t->usd_per_h,      t->released,
                            t->memory_bytes, fmin(factor, 1e6), sure};
    ru_timing_step step = step_of(s->net, s->in->net.n, UINT32_MAX, ops_s);
    double one_s = ru_timing_step_at(&steps, &step);
    if (!(one_s > 0) || !(one_s < 1e9)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a step on '%s' is predicted to take %g s", t->name,
                       one_s);
    }
    for (uint32_t k = 1; k <= t->count_max; k++) {
        step.devices = k;
        if (k > 1 && !steps.sums && !(t->link_bytes_per_s > 0)) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "%u devices of '%s': neither 'link_bytes_per_s' nor 3 steps on several "
                           "devices are given",
                           k, t->name);
        }
        double sum_s = k == 1       ? 0
                       : steps.sums ? ru_timing_sum_at(&steps, &step)
                                    : ring_s(s->in, t, one_s, &step);
        offers[k - 1] = (ru_device_offer){type, k, one_s + sum_s};
    }
    return RU_OK;
}

ru_status rui_device_predict(const ru_device_policy_in *in, const ru_device_from *from,
                             const ru_policy_tools *tools, ru_device_in *q, ru_err *err)
{
    const ru_device_type_in *t = in->types.at;
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->types.n; i++) {
        n += t[i].count_max;
    }
    shelf s;
    ru_device_type *types = RU_NEW(tools->out, ru_device_type, in->types.n);
    ru_device_offer *offers = RU_NEW(tools->out, ru_device_offer, n);
    if (types == NULL || offers == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u offers", n);
    }
    RU_TRY(fill(in, tools->scratch, &s, err));
    for (uint32_t i = 0, at = 0; i < in->types.n; at += t[i++].count_max) {
        RU_TRY(offers_of(&s, i, from, tools, &types[i], offers + at, err));
    }
    *q = (ru_device_in){.types = types,
                        .n_types = in->types.n,
                        .offers = offers,
                        .n = n,
                        .samples = in->samples,
                        .batch = in->batch,
                        .memory_bytes = in->memory_bytes,
                        .goal = in->goal == 0 ? RU_DEVICE_COST : RU_DEVICE_TIME,
                        .deadline_s = (double)in->deadline_ns * 1e-9,
                        .budget_usd = in->budget_usd};
    return RU_OK;
}
