/* The checker of `read`: limits, and what must hold of a finished search, from the windows alone.
 */
#include <math.h>

#include "plan/disk/read.h"

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-15);
}

static bool power(int64_t v)
{
    return v >= 1 && (v & (v - 1)) == 0;
}

static bool searches_grid(const ru_read_in *in)
{
    return in->method == RU_READ_MODEL || in->method == RU_READ_PHASES ||
           in->method == RU_READ_GRID;
}

static ru_status check_limits(const ru_read_in *in, const ru_read_plan *p, ru_err *err)
{
    bool fits = p->size_bytes >= 1 && p->depth >= 1 && p->depth <= RU_READ_DEPTH_MAX &&
                p->size_bytes <= in->memory_max_bytes / p->depth;
    if (!fits) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u requests of %lld bytes do not fit %lld bytes",
                       p->depth, (long long)p->size_bytes, (long long)in->memory_max_bytes);
    }
    int64_t room = in->memory_max_bytes / p->size_bytes;
    room = room < in->depth_max ? room : in->depth_max;
    bool deep = in->method != RU_READ_MODEL || p->depth >= in->depth_min || 2 * p->depth > room;
    if (!deep) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u requests are fewer than %u", p->depth,
                       in->depth_min);
    }
    bool on_grid = power(p->size_bytes) && power(p->depth) && p->depth <= in->depth_max &&
                   p->size_bytes <= in->size_max && 2 * p->size_bytes > in->size_min;
    if (searches_grid(in) && !on_grid) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u requests of %lld bytes are not in the grid",
                       p->depth, (long long)p->size_bytes);
    }
    return RU_OK;
}

/* What baselines without a search do. */
static ru_status check_fixed(const ru_read_in *in, const ru_read_plan *p, ru_err *err)
{
    uint32_t want = 0;
    switch (in->method) {
    case RU_READ_ONE:
        want = 1;
        break;
    case RU_READ_LOADER2:
    case RU_READ_AHEAD:
        want = 2;
        break;
    case RU_READ_LOADER8:
        want = 8;
        break;
    case RU_READ_FIXED16:
        want = 16;
        break;
    case RU_READ_CORES:
        want = in->cores > 1 ? in->cores : 1;
        break;
    case RU_READ_MODEL:
    case RU_READ_PHASES:
    case RU_READ_CLIMB:
    case RU_READ_AIMD:
    case RU_READ_GRID:
        break;
    }
    bool one_size = !searches_grid(in) && in->method != RU_READ_AHEAD;
    int64_t size = in->method == RU_READ_AHEAD ? 131072 : in->sample_bytes;
    size = size > in->memory_max_bytes ? in->memory_max_bytes : size;
    if ((one_size || want > 0) && p->size_bytes != size) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "requests of %lld bytes instead of %lld",
                       (long long)p->size_bytes, (long long)size);
    }
    int64_t room = in->memory_max_bytes / size;
    if (want > 0 && (int64_t)p->depth != (want < room ? want : room)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u requests outstanding instead of %u", p->depth,
                       want);
    }
    return RU_OK;
}

/* A setting in force was measured. Over one search without an accepted try, no measured point at
 * its size and depth or more delivered much more; ours, at any. */
static ru_status check_steady(const ru_read_in *in, const ru_read_plan *p, ru_err *err)
{
    if (!searches_grid(in) || p->phase != RU_READ_STEADY) {
        return RU_OK;
    }
    double here = 0, here_error = 0, most = 0, most_error = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_window *w = &in->window[i];
        double cap = in->need_bytes_per_s > 0 ? 1.1 * in->need_bytes_per_s : 1e300;
        double x = fmin(w->bytes_per_s, cap);
        if (w->size_bytes == p->size_bytes && w->depth == p->depth && x > here) {
            here = x;
            here_error = w->error;
        }
        if (x > most) {
            most = x;
            most_error = w->error;
        }
    }
    if (!(here > 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u requests of %lld bytes were never measured",
                       p->depth, (long long)p->size_bytes);
    }
    double slack = 4 * (here_error + most_error);
    double keep = (1 - in->loss_max) * (1 - in->loss_max) / (1 + in->gain_min) / (1 + in->gain_min);
    bool ours = in->method == RU_READ_MODEL && p->changes == 0;
    if (ours && here < keep * most - slack) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%.4g bytes/s were measured at this setting, %.4g at another", here, most);
    }
    return RU_OK;
}

/* As many steps as the longest delivery takes, within the limits. One batch fewer would not last.
 */
static ru_status check_ahead(const ru_read_in *in, const ru_read_plan *p, double rate, double error,
                             ru_err *err)
{
    double batch_s = in->delivery_s, spread_s = in->delivery_sd_s;
    if (batch_s <= 0) {
        batch_s = rate > 0 ? in->batch_bytes / rate : 0;
        spread_s = rate > 0 ? batch_s * error / rate : 0;
    }
    double late_s = batch_s + 3 * spread_s, most = RU_READ_AHEAD_MAX;
    if (in->ahead_max > 0) {
        most = in->ahead_max;
    } else if (in->batch_bytes > 0) {
        most = fmin(most, floor((double)in->memory_max_bytes / in->batch_bytes));
    }
    double least = in->ahead_min > 1 ? in->ahead_min : 1, n = p->read_ahead;
    bool known = in->step_s > 0 && late_s > 0;
    bool within = n >= least && n <= fmax(most, least);
    bool lasts = n * in->step_s >= late_s * (1 - 1e-9) || n + 1 > most;
    bool needed = n == least || (n - 1) * in->step_s < late_s * (1 + 1e-9);
    if (!within || (known && !(lasts && needed)) || (!known && n != least)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%u batches ahead, of %g s each, for %g s of delivery within %g to %g",
                       p->read_ahead, in->step_s, late_s, least, most);
    }
    return RU_OK;
}

/* The model and the figures, computed anew from the windows. */
static ru_status check_figures(const ru_read_in *in, const ru_read_plan *p, ru_err *err)
{
    if (p->fitted != (in->n > 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a model of %u windows is not possible", in->n);
    }
    const ru_disk *d = &p->disk;
    bool signs =
        d->latency_s >= 0 && d->byte_s >= 0 && d->shared_byte_s >= 0 && d->shared_request_s >= 0;
    double sum = 0, rate = 0, latency = 0, error = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_window *w = &in->window[i];
        double r = (double)w->size_bytes, q = w->depth;
        double model = fmax(d->latency_s + r * d->byte_s, q * r * d->shared_byte_s);
        model = fmax(model, q * d->shared_request_s);
        sum += fabs(model * w->bytes_per_s / (q * r) - 1);
        if (w->size_bytes == p->size_bytes && w->depth == p->depth) {
            rate = w->bytes_per_s;
            latency = w->latency_s;
            error = w->error;
        }
    }
    if (!signs || (in->n > 0 && !near(sum / in->n, d->error))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the model's error is not %g", d->error);
    }
    if (in->n > 0 && !(rate > 0)) {
        double r = (double)p->size_bytes, q = p->depth;
        latency = fmax(d->latency_s + r * d->byte_s, q * r * d->shared_byte_s);
        latency = fmax(latency, q * d->shared_request_s);
        rate = latency > 0 ? q * r / latency : 0;
        error = d->error * rate;
    }
    if (!near(rate, p->bytes_per_s) || !near(latency, p->latency_s)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the predicted rate and latency do not fit");
    }
    return check_ahead(in, p, rate, error, err);
}

ru_status ru_plan_read_check(const ru_read_in *in, const ru_read_plan *plan, ru_err *err)
{
    if (plan->phase > RU_READ_TRY) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "phase %d does not exist", (int)plan->phase);
    }
    RU_TRY(check_limits(in, plan, err));
    RU_TRY(check_fixed(in, plan, err));
    RU_TRY(check_steady(in, plan, err));
    return check_figures(in, plan, err);
}
