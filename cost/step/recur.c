#include "cost/step/recur.h"

#include <math.h>

#include "base/rng.h"

static const double OFF_GAIN = 1.0 / 4;

/* Of the last ones; n > 0. */
static double median(const ru_recur_track *t)
{
    float sorted[RU_RECUR_LAST];
    uint32_t n = t->n < RU_RECUR_LAST ? t->n : RU_RECUR_LAST;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && sorted[k - 1] > t->last[i]; k--) {
            sorted[k] = sorted[k - 1];
        }
        sorted[k] = t->last[i];
    }
    return ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
}

static void follow(ru_recur_track *t, double x)
{
    if (t->n > 0) {
        double off = fabs(x - median(t));
        t->off += (float)((t->n == 1 ? 1 : OFF_GAIN) * (off - (double)t->off));
    }
    t->last[t->n % RU_RECUR_LAST] = (float)x;
    t->n++;
    t->n -= t->n == 3 * RU_RECUR_LAST ? RU_RECUR_LAST : 0;
}

void ru_recur_add(ru_recur *r, int64_t model_ns, int64_t took_ns)
{
    RU_CHECK(took_ns > 0 && model_ns >= 0);
    double x = ru_math_log((double)took_ns);
    follow(&r->time, x);
    if (model_ns > 0) {
        follow(&r->model, x - ru_math_log((double)model_ns));
    }
}

/* At most 300 years. */
static int64_t whole_ns(double log_ns)
{
    return log_ns < 43 ? (int64_t)(ru_math_exp(log_ns > 0 ? log_ns : 0) + 0.5) : INT64_C(1) << 62;
}

int64_t ru_recur_ns(const ru_recur *r, int64_t model_ns)
{
    RU_CHECK(model_ns >= 0);
    if (r->time.n == 0) {
        return model_ns;
    }
    /* After one measurement nobody knows how far it is off. */
    bool modelled = r->model.n > 1 || r->model.n == r->time.n;
    if (model_ns == 0 || r->model.n == 0 || !modelled || r->time.off < r->model.off) {
        return whole_ns(median(&r->time));
    }
    return whole_ns(ru_math_log((double)model_ns) + median(&r->model));
}
