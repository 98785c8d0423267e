#include "plan/crew/share.h"

#include <stddef.h>

/* Speed of member i as the header defines it, found anew for each question. */
static double speed_of(const ru_share_in *in, uint32_t i)
{
    if (in->speed == NULL) {
        return 1;
    }
    if (in->method == RU_SHARE_EQUAL) {
        return in->speed[i] < 0 ? 0 : 1;
    }
    if (in->speed[i] > 0 || in->speed[i] < 0) {
        return in->speed[i] < 0 ? 0 : in->speed[i];
    }
    double sum = 0, known = 0;
    for (uint32_t k = 0; k < in->n; k++) {
        sum += in->speed[k] > 0 ? in->speed[k] : 0;
        known += in->speed[k] > 0 ? 1 : 0;
    }
    return known > 0 ? sum / known : 1;
}

static ru_status check_sum(const ru_share_in *in, const ru_share_plan *plan, ru_err *err)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        bool may = in->speed == NULL || in->speed[i] >= 0;
        if (plan->share[i] < 0 || plan->share[i] > in->batch || (plan->share[i] > 0 && !may)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "member %u must not have %lld samples", i,
                           (long long)plan->share[i]);
        }
        sum += plan->share[i];
    }
    if (sum != in->batch) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "shares add up to %lld of %lld samples",
                       (long long)sum, (long long)in->batch);
    }
    return RU_OK;
}

/* No single sample moved away from the member that ends last may help. */
static ru_status check_best(const ru_share_in *in, const ru_share_plan *plan, ru_err *err)
{
    uint32_t last = 0;
    double most = -1, fits = 1e300;
    for (uint32_t i = 0; i < in->n; i++) {
        double s = speed_of(in, i);
        double t = s > 0 ? (double)plan->share[i] / s : 0;
        if (t > most) {
            most = t;
            last = i;
        }
    }
    for (uint32_t i = 0; i < in->n; i++) {
        double s = speed_of(in, i);
        double t = s > 0 && i != last ? (double)(plan->share[i] + 1) / s : 1e300;
        fits = t < fits ? t : fits;
    }
    if (plan->share[last] > 0 && fits < most * (1.0 - 1e-9)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "member %u ends last and could give a sample away",
                       last);
    }
    return RU_OK;
}

/* Time until the last member ends; 0 when no speed is known or an excluded member has samples. */
static double ends_s(const ru_share_in *in, const int64_t *share)
{
    double last = 0;
    bool known = false, legal = true;
    for (uint32_t i = 0; i < in->n; i++) {
        double s = speed_of(in, i);
        double t = s > 0 ? (double)share[i] / s : 0;
        last = t > last ? t : last;
        known = known || (in->method == RU_SHARE_SPEED && in->speed != NULL && in->speed[i] > 0);
        legal = legal && (share[i] == 0 || s > 0);
    }
    return known && legal ? last : 0;
}

static ru_status check_figure(double said, double is, const char *what, ru_err *err)
{
    if (!(said >= is - 1e-9 * is && said <= is + 1e-9 * is)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a step with %s takes %.9g s, the plan says %.9g s",
                       what, is, said);
    }
    return RU_OK;
}

ru_status ru_plan_share_check(const ru_share_in *in, const ru_share_plan *plan, ru_err *err)
{
    if (plan->n != in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan has %u shares for %u members", plan->n,
                       in->n);
    }
    RU_TRY(check_sum(in, plan, err));
    bool force = in->n_now > 0 && in->method == RU_SHARE_SPEED; /* `now` counts */
    if (plan->changed) {
        RU_TRY(check_best(in, plan, err));
    }
    for (uint32_t i = 0; i < in->n && !plan->changed; i++) {
        if (!force || plan->share[i] != in->now[i]) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "the share of member %u changed, but the plan says that nothing changed",
                           i);
        }
    }
    double now_s = force ? ends_s(in, in->now) : 0;
    RU_TRY(check_figure(plan->predicted_s, ends_s(in, plan->share), "these shares", err));
    return check_figure(plan->predicted_now_s, now_s, "the shares in force", err);
}

static int64_t within(int64_t v, int64_t max)
{
    return v < 0 ? 0 : v < max ? v : max;
}

void ru_share_cover_part(ru_share_cover *c, int64_t first, int64_t n, int64_t batch)
{
    first = within(first, batch);
    int64_t end = first + within(n, batch);
    c->repeated += end > batch ? end - batch : 0; /* of the next step */
    end = within(end, batch);
    if (first < c->at && end > first) {
        c->repeated += (end < c->at ? end : c->at) - first;
    }
    c->lost += first > c->at && end > first ? first - c->at : 0;
    c->at = end > c->at && end > first ? end : c->at;
}

void ru_share_cover_end(ru_share_cover *c, int64_t batch)
{
    c->lost += batch - c->at;
    c->at = batch;
}
