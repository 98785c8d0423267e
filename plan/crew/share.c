#include "plan/crew/share.h"

#include <math.h>
#include <string.h>

/* What the method sees of a member's speed. */
static double seen(const ru_share_in *in, uint32_t i)
{
    double v = in->speed != NULL ? in->speed[i] : 0;
    return in->method == RU_SHARE_EQUAL && v > 0 ? 0 : v;
}

/* Speeds with the unknown ones filled in; members that get nothing have 0. */
static double *speeds(const ru_share_in *in, ru_arena *out)
{
    double *s = RU_NEW(out, double, in->n);
    double sum = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; s != NULL && i < in->n; i++) {
        double v = seen(in, i);
        if (v > 0) {
            sum += v;
            known++;
        }
        s[i] = v;
    }
    double mean = known > 0 ? sum / known : 1.0;
    for (uint32_t i = 0; s != NULL && i < in->n; i++) {
        s[i] = s[i] < 0 ? 0 : s[i] > 0 ? s[i] : mean;
    }
    return s;
}

static double longest(const int64_t *share, const double *speed, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        double t = share[i] > 0 ? (double)share[i] / speed[i] : 0;
        most = t > most ? t : most;
    }
    return most;
}

/* Give away the samples one by one to whom ends first with one more: optimal for the longest part.
 * Starts from the rounded-down proportional shares, so that at most 2n are left. */
static void hand_out(const ru_share_in *in, const double *speed, int64_t *share)
{
    double sum = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        sum += speed[i];
    }
    int64_t left = in->batch;
    for (uint32_t i = 0; i < in->n; i++) {
        double part = (double)in->batch * (speed[i] / sum);
        share[i] = (int64_t)part - 1 > 0 ? (int64_t)part - 1 : 0;
        left -= share[i];
    }
    for (; left > 0; left--) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < in->n; i++) {
            if (speed[i] > 0 && (best == UINT32_MAX || (double)(share[i] + 1) * speed[best] <
                                                           (double)(share[best] + 1) * speed[i])) {
                best = i;
            }
        }
        share[best]++;
    }
}

static ru_status check_in(const ru_share_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_SHARES_MAX || in->batch < 1) {
        return RU_FAIL(
            err, RU_E_ARG,
            "a batch of %lld samples cannot be shared among %u members; expected 1 to %d members",
            (long long)in->batch, in->n, RU_SHARES_MAX);
    }
    if (in->n_now != 0 && in->n_now != in->n) {
        return RU_FAIL(err, RU_E_ARG, "shares of %u of %u members are in force", in->n_now, in->n);
    }
    uint32_t workers = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        double v = in->speed == NULL ? 1 : in->speed[i];
        workers += v >= 0 ? 1 : 0;
        if (!isfinite(v) || (v > 0 && (v < RU_SHARE_SPEED_MIN || v > RU_SHARE_SPEED_MAX))) {
            return RU_FAIL(err, RU_E_ARG,
                           "member %u computes %g samples a second; expected %g to %g, 0 for not "
                           "known or less for none",
                           i, v, RU_SHARE_SPEED_MIN, RU_SHARE_SPEED_MAX);
        }
    }
    if (workers == 0) {
        return RU_FAIL(err, RU_E_ARG, "none of the %u members may compute", in->n);
    }
    return RU_OK;
}

ru_status ru_plan_share(const ru_share_in *in, ru_arena *out, ru_share_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    double *speed = speeds(in, out);
    int64_t *share = RU_NEW(out, int64_t, in->n);
    if (speed == NULL || share == NULL) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "the arena is full while a batch is shared among %u members", in->n);
    }
    hand_out(in, speed, share);
    bool known = false;
    for (uint32_t i = 0; i < in->n; i++) {
        known = known || seen(in, i) > 0;
    }
    ru_share_plan p = {.share = share, .n = in->n, .changed = true};
    double new_s = longest(share, speed, in->n);
    p.predicted_s = known ? new_s : 0;
    bool usable = in->n_now > 0 && in->method == RU_SHARE_SPEED;
    for (uint32_t i = 0; usable && i < in->n; i++) {
        usable = in->now[i] == 0 || speed[i] > 0; /* an excluded member must not keep its part */
    }
    if (usable) {
        double now_s = longest(in->now, speed, in->n);
        p.predicted_now_s = known ? now_s : 0;
        if (new_s > now_s * (1.0 - in->gain_min) ||
            memcmp(share, in->now, in->n * sizeof *share) == 0) {
            memcpy(share, in->now, in->n * sizeof *share);
            p.changed = false;
            p.predicted_s = p.predicted_now_s;
        }
    }
    *plan = p;
    return RU_OK;
}
