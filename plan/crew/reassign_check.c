/* The checker of reassign: groups and grants by their rules, the bound by its cut. */
#include <math.h>
#include <string.h>

#include "plan/crew/reassign.h"

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 2 + 1e-6 * fmax(fabs(a), fabs(b)));
}

static ru_status check_rules(const ru_reassign_in *in, const ru_reassign_rules *r, ru_err *err)
{
    bool slices = in->method <= RU_REASSIGN_STEAL;
    bool whole = r->first_ppm >= 0 && r->first_ppm <= r->next_ppm && r->next_ppm <= 1000000 &&
                 r->least_ppm >= 0 && r->grain_ppm > 0 && r->grain_ppm <= 10000 &&
                 r->report_ppm >= 0 && r->report_ppm <= 1000000 && r->rtt_ns == in->rtt_ns &&
                 r->behind_ppm >= 0 && r->behind_ppm <= r->trigger_ppm &&
                 r->trigger_ppm >= r->idle_ppm - (r->pull ? 20000 : 0);
    bool kind = (r->push || r->pull) == (slices || in->method == RU_REASSIGN_STATIC) &&
                !(r->push && r->pull) && (in->method == RU_REASSIGN_STEAL) == r->pull;
    static const uint32_t slack[RU_REASSIGN_METHODS] = {[RU_REASSIGN_FLEXRR] = 1,
                                                        [RU_REASSIGN_STEAL] = 1,
                                                        [RU_REASSIGN_SSP1] = 1,
                                                        [RU_REASSIGN_SSP3] = 3};
    bool stale = in->method == RU_REASSIGN_STICKY ? r->slack <= in->slack_max
                                                  : r->slack == slack[in->method];
    bool backup = in->method == RU_REASSIGN_BACKUP ? r->backup < in->n : r->backup == 0;
    if (!whole || !kind || !stale || !backup || r->group >= in->n ||
        (in->group_max > 0 && r->group > in->group_max)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "rules with a group of %u, slack %u, backup %u and slices of %lld ppm do "
                       "not fit the facts",
                       r->group, r->slack, r->backup, (long long)r->next_ppm);
    }
    return RU_OK;
}

/* Helpers are others, once each, on other machines; none after the last. */
static ru_status check_groups(const ru_reassign_in *in, const ru_reassign_plan *p, uint32_t *helped,
                              ru_err *err)
{
    uint32_t g = p->rules.group;
    for (uint32_t w = 0; w < p->n; w++) {
        const uint32_t *h = p->helper + (uint64_t)w * g;
        for (uint32_t k = 0; k < g; k++) {
            if (h[k] == RU_REASSIGN_NONE && (k + 1 == g || h[k + 1] == RU_REASSIGN_NONE)) {
                continue;
            }
            bool legal = h[k] < p->n && h[k] != w;
            for (uint32_t i = 0; legal && i < k; i++) {
                legal = h[i] != h[k];
            }
            legal = legal && (in->n_machine == 0 || in->machine[h[k]] != in->machine[w]);
            legal = legal && ++helped[h[k]] <= RU_REASSIGN_GROUP_MAX;
            if (!legal) {
                return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u must not be helper %u of %u", h[k],
                               k, w);
            }
        }
    }
    return RU_OK;
}

/* Grants are the helpers', within the tail; the longest time is the predicted one. */
static ru_status check_grants(const ru_reassign_in *in, const ru_reassign_plan *p, double *load,
                              ru_err *err)
{
    uint32_t g = p->rules.group;
    bool may = in->method == RU_REASSIGN_STICKY || in->method == RU_REASSIGN_STATIC;
    double longest = 0;
    for (uint32_t w = 0; w < p->n; w++) {
        double sum = 0;
        for (uint32_t k = 0; k < g; k++) {
            uint64_t e = (uint64_t)w * g + k;
            uint32_t items = p->grant[e];
            if (items > 0 && (p->helper[e] == RU_REASSIGN_NONE || !may)) {
                return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u grants %u items without a helper",
                               w, items);
            }
            sum += items;
            load[w] -= items;
            if (items > 0) {
                load[p->helper[e]] += items;
            }
        }
        load[w] += in->items;
        if (sum > in->tail * in->items) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u grants %.0f of %u items", w, sum,
                           in->items);
        }
    }
    for (uint32_t w = 0; w < p->n; w++) {
        longest = fmax(longest, load[w] / in->items * p->next_s[w]);
    }
    if (!near(longest * 1e9, (double)p->clock_ns)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "grants make a clock of %g s, not %lld ns", longest,
                       (long long)p->clock_ns);
    }
    return RU_OK;
}

/* The workers of `tight` cannot end sooner than the bound: their work less what may leave them,
 * over their speed. And the grants come that near, but for rounding and slices too small to grant.
 */
static ru_status check_bound(const ru_reassign_in *in, const ru_reassign_plan *p, ru_err *err)
{
    uint32_t g = p->rules.group;
    bool may = in->method == RU_REASSIGN_STICKY || in->method == RU_REASSIGN_STATIC;
    double work = 0, speed = 0, slowest = 0;
    for (uint32_t w = 0; w < p->n; w++) {
        slowest = fmax(slowest, p->next_s[w]);
        if (p->tight[w] == 0) {
            continue;
        }
        bool leaves = false;
        for (uint32_t k = 0; k < g; k++) {
            uint32_t h = p->helper[(uint64_t)w * g + k];
            leaves = leaves || (h != RU_REASSIGN_NONE && p->tight[h] == 0);
        }
        work += in->items - (leaves && may ? in->tail * in->items : 0);
        speed += in->items / p->next_s[w];
    }
    double bound = work / speed;
    double step = 2 + (double)p->rules.least_ppm * in->items * 1e-6;
    double room = (g + 1) * step / in->items * slowest;
    if (!(speed > 0) || !near(bound * 1e9, (double)p->bound_ns) ||
        (double)p->clock_ns > (bound + room) * 1e9 + 2) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a clock of %lld ns with bound %lld: the cut gives %g s",
                       (long long)p->clock_ns, (long long)p->bound_ns, bound);
    }
    return RU_OK;
}

/* Speeds and times of the history, where they have a closed form. */
static ru_status check_history(const ru_reassign_in *in, const ru_reassign_plan *p, ru_err *err)
{
    double ideal = 0, barrier = 0;
    for (uint32_t c = 0; c < in->clocks; c++) {
        double rate = 0, worst = 0;
        for (uint32_t w = 0; w < in->n; w++) {
            rate += 1 / in->took[(uint64_t)c * in->n + w];
            worst = fmax(worst, in->took[(uint64_t)c * in->n + w]);
        }
        ideal += in->n / rate;
        barrier += worst;
    }
    bool exact = in->method == RU_REASSIGN_BSP;
    if (!near(ideal * 1e9, (double)p->ideal_ns) ||
        (p->rules.backup == 0 && (double)p->history_ns < ideal * 1e9 * (1 - 1e-6) - 2) ||
        (exact && !near(barrier * 1e9, (double)p->history_ns)) ||
        (p->rules.slack > 0 && !p->rules.push && !p->rules.pull &&
         (double)p->history_ns > barrier * 1e9 * (1 + 1e-6) + 2) ||
        !(p->stays >= 0 && p->stays <= 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a history of %lld ns: the ideal takes %g s, a barrier %g s",
                       (long long)p->history_ns, ideal, barrier);
    }
    for (uint32_t w = 0; w < in->n; w++) {
        if (!(p->next_s[w] > 0 && p->next_s[w] <= 1e7)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u is predicted to take %g s", w,
                           p->next_s[w]);
        }
    }
    return RU_OK;
}

ru_status ru_plan_reassign_check(const ru_reassign_in *in, const ru_reassign_plan *plan,
                                 ru_arena *scratch, ru_err *err)
{
    uint32_t *helped = RU_NEW(scratch, uint32_t, in->n);
    double *load = RU_NEW(scratch, double, in->n);
    if (helped == NULL || load == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check groups of %u workers", in->n);
    }
    if (plan->n != in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the plan has %u workers, which is not the number of the question", plan->n);
    }
    RU_TRY(check_rules(in, &plan->rules, err));
    RU_TRY(check_history(in, plan, err));
    RU_TRY(check_groups(in, plan, helped, err));
    RU_TRY(check_grants(in, plan, load, err));
    return check_bound(in, plan, err);
}
