/* The checker of `read-share`: sums, order and limits instead of formulas. */
#include <math.h>
#include <stddef.h>

#include "plan/disk/read_share.h"

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-15);
}

/* Jain's index as one over one plus the squared coefficient of variation. */
static double jain(const ru_read_share_in *in, const double *outstanding)
{
    double mean = 0, squares = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_worker *w = &in->worker[i];
        double part = outstanding != NULL ? outstanding[i] / w->outstanding_bytes : 1;
        mean += w->bytes_per_s / w->need_bytes_per_s * part / in->n;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_worker *w = &in->worker[i];
        double part = outstanding != NULL ? outstanding[i] / w->outstanding_bytes : 1;
        double d = w->bytes_per_s / w->need_bytes_per_s * part / mean - 1;
        squares += d * d / in->n;
    }
    return 1 / (1 + squares);
}

static ru_status check_flag(const ru_read_share_in *in, const ru_read_share_plan *p, ru_err *err)
{
    if (p->worst >= in->n || p->n != in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u of %u cannot be the worst", p->worst,
                       in->n);
    }
    const ru_read_worker *w = &in->worker[p->worst];
    double all = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_worker *o = &in->worker[i];
        if (o->bytes_per_s / o->need_bytes_per_s < w->bytes_per_s / w->need_bytes_per_s) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u gets less than worker %u", i, p->worst);
        }
        all += o->bytes_per_s;
    }
    bool unfair = p->jain < 0.95 && w->stall_s > 0.05 * in->seconds &&
                  w->stall_s > 0.5 * w->late_s && all >= 0.8 * in->capacity_bytes_per_s;
    uint32_t want = !unfair ? 0 : in->windows < 3 ? in->windows + 1 : in->windows;
    bool ours = in->method == RU_READ_SHARE_BALANCE;
    bool repairs = ours && (want >= 3 || (in->repairs && p->jain < 0.99));
    if (p->windows != want || p->flagged != (want >= 3) || p->repairs != repairs) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u windows in a row look unfair, not %u", want,
                       p->windows);
    }
    return RU_OK;
}

ru_status ru_plan_read_share_check(const ru_read_share_in *in, const ru_read_share_plan *p,
                                   ru_err *err)
{
    RU_TRY(check_flag(in, p, err));
    if (!near(p->jain, jain(in, NULL)) || !near(p->jain_next, jain(in, p->outstanding_bytes))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "Jain's index is not %g, then %g", p->jain,
                       p->jain_next);
    }
    double worst = 0, worst_next = 0; /* windows that deliver what is needed in one */
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_worker *w = &in->worker[i];
        double windows = w->need_bytes_per_s / w->bytes_per_s;
        worst = fmax(worst, windows);
        worst_next = fmax(worst_next, windows * w->outstanding_bytes / p->outstanding_bytes[i]);
    }
    double wait = fmax(1 - 1 / worst, 0), next = fmax(1 - 1 / worst_next, 0);
    if (!(fabs(p->wait_s / in->seconds - wait) < 1e-9) ||
        !(fabs(p->wait_next_s / in->seconds - next) < 1e-9)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "all do not wait for %g s, then %g s", p->wait_s,
                       p->wait_next_s);
    }
    double before = 0, after = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        before += in->worker[i].outstanding_bytes;
        after += p->outstanding_bytes[i];
    }
    if (!near(before, after)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%g bytes are outstanding instead of %g", after,
                       before);
    }
    const ru_read_worker *w0 = &in->worker[p->worst];
    double most = p->outstanding_bytes[p->worst] / w0->outstanding_bytes;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_worker *w = &in->worker[i];
        double part = p->outstanding_bytes[i] / w->outstanding_bytes;
        bool even = near(p->outstanding_bytes[i], before / in->n);
        bool right = in->method == RU_READ_SHARE_EQUAL ? even
                     : !p->repairs                     ? near(part, 1)
                                   : part <= most * (1 + 1e-9) && 4 * part >= most * (1 - 1e-9);
        if (!right) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "worker %u may not have %g bytes outstanding", i,
                           p->outstanding_bytes[i]);
        }
    }
    return RU_OK;
}
