#include "cost/recur.h"

#include <math.h>

#include "base/rng.h"

enum { ALIKE = 8, CLIP_FROM = 3 };
static const double GAIN = 1.0 / 8, OFF_GAIN = 1.0 / 4, CLIP = 3, OFF_MIN = 0.01;

static void follow(ru_recur_track *t, double x)
{
    double gain = t->n < ALIKE ? 1.0 / (t->n + 1) : GAIN, off = fabs(x - t->mean);
    double step = x - t->mean, most = CLIP * (t->off > OFF_MIN ? t->off : OFF_MIN);
    if (t->n >= CLIP_FROM) {
        step = step > most ? most : step < -most ? -most : step;
        t->off += OFF_GAIN * (off - t->off);
    } else if (t->n > 0) { /* the mean of the distances so far */
        t->off += (off - t->off) / t->n;
    }
    t->mean += gain * step;
    t->n++;
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
    if (model_ns == 0 || r->model.n == 0 || r->time.off < r->model.off) {
        return whole_ns(r->time.mean);
    }
    return whole_ns(ru_math_log((double)model_ns) + r->model.mean);
}
