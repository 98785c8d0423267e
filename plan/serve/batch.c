#include "plan/serve/batch.h"

#include <math.h>

#include "cost/route.h"

double ru_batch_limit_s(const ru_batch_in *in)
{
    return (1 - in->margin) * in->slo_s;
}

double ru_batch_service_s(const ru_batch_in *in, uint32_t k, double memory_mb)
{
    double x = k, m = memory_mb;
    if (in->measured.n > 0) {
        double last = (double)(in->measured.n / in->batch_max - 1);
        double row = floor((m - in->measured_from_mb) / in->measured_step_mb + 0.5);
        row = fmin(fmax(row, 0), last);
        return in->measured.at[(uint32_t)row * in->batch_max + k - 1];
    }
    const double term[15] = {1,
                             x,
                             m,
                             x * x,
                             x * m,
                             m * m,
                             x * x * x,
                             m * x * x,
                             x * m * m,
                             m * m * m,
                             x * x * x * x,
                             m * x * x * x,
                             m * m * x * x,
                             x * m * m * m,
                             m * m * m * m};
    double s = 0;
    for (uint32_t i = 0; i < in->service.n; i++) {
        s += in->service.at[i] * term[i];
    }
    return s;
}

double ru_batch_call_usd(const ru_batch_in *in, uint32_t k, double memory_mb)
{
    double s = ru_batch_service_s(in, k, memory_mb);
    double billed = in->billing_step_s * ceil(s / in->billing_step_s - 1e-9);
    return billed * memory_mb / 1024 * in->usd_per_gb_s + in->usd_per_call;
}

/* The search, or one point of it. */
typedef struct batch_search {
    const ru_batch_in *in;
    ru_markov_law law;
    ru_arena *out, *scratch;
    ru_batch_plan best;
    int64_t best_cost; /* 1e-15 USD */
    bool found;
    double least_s; /* latency that was possible at all */
    double service[RU_BATCH_MAX + 1], usd[RU_BATCH_MAX + 1];
} batch_search;

/* Costs that are compared are whole numbers: equal on every machine. */
static int64_t rounded(double usd)
{
    return (int64_t)floor(usd * 1e15 + 0.5);
}

static void fill_costs(batch_search *s, uint32_t batch, double memory_mb)
{
    for (uint32_t k = 1; k <= batch; k++) {
        s->service[k] = ru_batch_service_s(s->in, k, memory_mb);
        s->usd[k] = ru_batch_call_usd(s->in, k, memory_mb);
    }
}

static ru_status law_of(batch_search *s, bool published, uint32_t batch, double timeout_s,
                        ru_batch_law *law, ru_err *err)
{
    s->best.laws++;
    if (published) {
        return ru_batch_law_published(&s->law, batch, timeout_s, s->scratch, s->scratch, law, err);
    }
    return ru_batch_law_of(&s->law, batch, timeout_s, 1, s->scratch, s->scratch, law, err);
}

/* All memories under one law. */
static void try_law(batch_search *s, const ru_batch_law *law, double timeout_s)
{
    const ru_batch_in *in = s->in;
    for (uint32_t m = 0; m < in->n_memory; m++) {
        fill_costs(s, law->batch, in->memory_mb[m]);
        int64_t cost = rounded(ru_batch_per_request(law, s->usd));
        if (s->found && cost >= s->best_cost) {
            continue;
        }
        double q = ru_batch_quantile(law, s->service, in->quantile);
        s->least_s = fmin(s->least_s, q);
        if (q <= ru_batch_limit_s(in)) {
            s->found = true;
            s->best_cost = cost;
            s->best.at = (ru_batch_choice){in->memory_mb[m], law->batch, timeout_s};
        }
    }
}

/* Could this law give a cheaper choice? By its sizes alone, as if nobody waited. */
static bool may_pay(batch_search *s, const double *size_p, uint32_t batch)
{
    const ru_batch_in *in = s->in;
    ru_batch_law law = {.batch = batch, .size_p = size_p};
    for (uint32_t b = 1; b <= batch; b++) {
        law.mean_batch += b * size_p[b];
    }
    bool may = false;
    for (uint32_t m = 0; m < in->n_memory && !may; m++) {
        fill_costs(s, batch, in->memory_mb[m]);
        /* A little less than the exact cost: the sizes come from another sum. */
        double cost = ru_batch_per_request(&law, s->usd) * (1 - 1e-9), in_time = 0,
               least = INFINITY;
        for (uint32_t b = 1; b <= batch; b++) {
            least = fmin(least, s->service[b]);
            in_time += s->service[b] <= ru_batch_limit_s(in) ? b * size_p[b] : 0;
        }
        s->least_s = fmin(s->least_s, fmax(least, ru_batch_limit_s(in)));
        may = (!s->found || rounded(cost) < s->best_cost) &&
              in_time >= (in->quantile - 1e-6) * law.mean_batch;
    }
    return may;
}

/* Sizes under every timeout, [steps + 1, B + 1, B + 1]; NULL when they would be too many. */
static ru_status all_sizes(batch_search *s, double steps, const double **out, ru_err *err)
{
    enum { CELLS_MAX = 1 << 24 };
    const ru_batch_in *in = s->in;
    uint32_t row = in->batch_max + 1;
    *out = NULL;
    if ((steps + 1) * row * row > CELLS_MAX) {
        return RU_OK;
    }
    double *sizes = RU_NEW(s->scratch, double, (int64_t)(steps + 1) * row * row);
    if (sizes == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the sizes of %.0f timeouts", steps);
    }
    *out = sizes;
    return ru_route_sizes(&s->law, in->batch_max, in->timeout_step_s, (uint32_t)steps, s->scratch,
                          sizes, err);
}

/* Batch and timeout that a rule gives one memory; false: the rule gives none. */
static bool rule_of(const ru_batch_in *in, double memory_mb, uint32_t batch, double *timeout_s)
{
    double room = ru_batch_limit_s(in) - ru_batch_service_s(in, batch, memory_mb);
    if (in->method == RU_BATCH_CLIPPER) {
        *timeout_s = batch == 1 ? 0 : RU_BATCH_CLIPPER_S;
        return room >= 0 && (batch == in->batch_max ||
                             ru_batch_service_s(in, batch + 1, memory_mb) > ru_batch_limit_s(in));
    }
    double steps = floor(fmin(room, in->timeout_max_s) / in->timeout_step_s + 1e-9);
    *timeout_s = batch == 1 ? 0 : steps * in->timeout_step_s;
    return batch == 1 ? room >= 0 : steps >= 1;
}

/* The cheapest choice among those of a rule. */
static ru_status search_rule(batch_search *s, ru_err *err)
{
    ru_batch_in one = *s->in;
    const ru_batch_in *all = s->in;
    one.n_memory = 1;
    for (uint32_t m = 0; m < all->n_memory; m++) {
        one.memory_mb = &all->memory_mb[m];
        for (uint32_t b = 1; b <= all->batch_max; b++) {
            double timeout_s;
            if (!rule_of(all, all->memory_mb[m], b, &timeout_s)) {
                continue;
            }
            ru_arena_mark mark = ru_arena_mark_get(s->scratch);
            ru_batch_law law;
            RU_TRY(law_of(s, false, b, timeout_s, &law, err));
            s->in = &one;
            try_law(s, &law, timeout_s);
            s->in = all;
            ru_arena_rewind(s->scratch, mark);
        }
    }
    return RU_OK;
}

static ru_status search_grid(batch_search *s, ru_err *err)
{
    const ru_batch_in *in = s->in;
    double most = floor(in->timeout_max_s / in->timeout_step_s + 1e-9);
    const double *sizes = NULL;
    if (in->method == RU_BATCH_EXACT && in->batch_max > 1) {
        RU_TRY(all_sizes(s, most, &sizes, err));
    }
    uint32_t row = in->batch_max + 1;
    bool published = in->method == RU_BATCH_PUBLISHED;
    uint32_t from = published ? in->batch_max : 1;
    uint32_t to = in->method == RU_BATCH_NONE ? 1 : in->batch_max;
    for (uint32_t b = from; b <= to; b++) {
        double steps = b == 1 ? 1 : most;
        for (double k = 1; k <= steps; k++) {
            double timeout_s = b == 1 ? 0 : k * in->timeout_step_s;
            if (sizes != NULL && b > 1 && !may_pay(s, sizes + ((size_t)k * row + b) * row, b)) {
                continue;
            }
            ru_arena_mark mark = ru_arena_mark_get(s->scratch);
            ru_batch_law law;
            RU_TRY(law_of(s, published, b, timeout_s, &law, err));
            try_law(s, &law, timeout_s);
            ru_arena_rewind(s->scratch, mark);
        }
    }
    return RU_OK;
}

bool ru_batch_fixed_fits(const ru_batch_in *in)
{
    const ru_batch_choice *f = &in->fixed;
    bool listed = false;
    for (uint32_t m = 0; m < in->n_memory; m++) {
        listed = listed || in->memory_mb[m] == f->memory_mb;
    }
    return listed && f->batch >= 1 && f->batch <= in->batch_max &&
           (f->batch == 1 ? f->timeout_s == 0
                          : f->timeout_s > 0 && f->timeout_s <= in->timeout_max_s);
}

/* What baselines choose between the points of the grid. */
static ru_status search_between(batch_search *s, ru_err *err)
{
    const ru_batch_in *all = s->in;
    ru_batch_in one = *all;
    one.method = RU_BATCH_CLIPPER;
    s->in = &one;
    ru_status st = all->timeout_max_s >= RU_BATCH_CLIPPER_S ? search_rule(s, err) : RU_OK;
    if (st == RU_OK && ru_batch_fixed_fits(all)) {
        ru_batch_law law;
        one.memory_mb = &all->fixed.memory_mb;
        one.n_memory = 1;
        st = law_of(s, false, all->fixed.batch, all->fixed.timeout_s, &law, err);
        if (st == RU_OK) {
            try_law(s, &law, all->fixed.timeout_s);
        }
    }
    s->in = all;
    return st;
}

static ru_status search(batch_search *s, ru_err *err)
{
    const ru_batch_in *in = s->in;
    bool rule = in->method == RU_BATCH_CLIPPER || in->method == RU_BATCH_MARK;
    RU_TRY(rule ? search_rule(s, err) : search_grid(s, err));
    if (in->method == RU_BATCH_EXACT) {
        RU_TRY(search_between(s, err));
    }
    if (!s->found && rule && isinf(s->least_s)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the rule gives no choice: no batch is served in %g s; allow more memory or "
                       "a longer latency",
                       ru_batch_limit_s(in));
    }
    if (!s->found) {
        return RU_FAIL(
            err, RU_E_INFEASIBLE,
            "no choice keeps the %g quantile at %g s, the objective less the margin; the "
            "smallest possible is %.4g s; allow more memory or a longer latency",
            in->quantile, ru_batch_limit_s(in), s->least_s);
    }
    return RU_OK;
}

/* The figures of s->best.at under the exact law. */
static ru_status finish(batch_search *s, ru_err *err)
{
    ru_batch_law law;
    ru_batch_plan *p = &s->best;
    RU_TRY(
        ru_batch_law_of(&s->law, p->at.batch, p->at.timeout_s, 1, s->out, s->scratch, &law, err));
    fill_costs(s, p->at.batch, p->at.memory_mb);
    p->latency_s = ru_batch_quantile(&law, s->service, s->in->quantile);
    p->usd_per_request = ru_batch_per_request(&law, s->usd);
    p->mean_batch = law.mean_batch;
    p->size_p = law.size_p;
    p->instances = law.rate * ru_batch_per_request(&law, s->service);
    return RU_OK;
}

static ru_status check_service(const ru_batch_in *in, uint32_t batch, double memory_mb, ru_err *err)
{
    for (uint32_t k = 1; k <= batch; k++) {
        double s = ru_batch_service_s(in, k, memory_mb);
        if (!(s > 0) || isinf(s)) {
            return RU_FAIL(err, RU_E_ARG,
                           "the service time of %u requests with %g MB is %g s, expected above 0; "
                           "lower the largest batch or narrow the range of memories",
                           k, memory_mb, s);
        }
    }
    return RU_OK;
}

static ru_status open_search(batch_search *s, const ru_batch_in *in, ru_arena *out,
                             ru_arena *scratch, ru_err *err)
{
    *s = (batch_search){.in = in, .out = out, .scratch = scratch, .least_s = INFINITY};
    if (in->batch_max < 1 || in->batch_max > RU_BATCH_MAX) {
        return RU_FAIL(err, RU_E_ARG, "the largest batch is %u, expected 1 to %d", in->batch_max,
                       RU_BATCH_MAX);
    }
    for (uint32_t m = 0; m < in->n_memory; m++) {
        RU_TRY(check_service(in, in->batch_max, in->memory_mb[m], err));
    }
    return ru_markov_solve(&in->arrivals, &s->law, err);
}

ru_status ru_plan_batch_at(const ru_batch_in *in, const ru_batch_choice *at, ru_arena *out,
                           ru_arena *scratch, ru_batch_plan *plan, ru_err *err)
{
    batch_search s;
    RU_TRY(open_search(&s, in, out, scratch, err));
    RU_TRY(check_service(in, at->batch, at->memory_mb, err));
    s.best.at = *at;
    RU_TRY(finish(&s, err));
    *plan = s.best;
    return RU_OK;
}

ru_status ru_plan_batch(const ru_batch_in *in, ru_arena *out, ru_arena *scratch,
                        ru_batch_plan *plan, ru_err *err)
{
    if (in->method == RU_BATCH_FIXED) {
        return ru_plan_batch_at(in, &in->fixed, out, scratch, plan, err);
    }
    batch_search s;
    RU_TRY(open_search(&s, in, out, scratch, err));
    RU_TRY(search(&s, err));
    RU_TRY(finish(&s, err));
    *plan = s.best;
    return RU_OK;
}
