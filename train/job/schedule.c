#include "train/job/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Part of the way after the warm-up, 0..1. */
static double progress(const ru_schedule *s, int64_t step)
{
    int64_t length = s->steps - s->warmup;
    if (length <= 0) {
        return 1.0;
    }
    double p = (double)(step - s->warmup) / (double)length;
    return p < 0 ? 0 : p > 1 ? 1 : p;
}

/* The top stands at step rise * steps - 1, the floor at the last. */
static double one_cycle(const ru_schedule *s, int64_t step)
{
    double last = (double)(s->steps - 1), top = s->rise * (double)s->steps - 1, at = (double)step;
    at = at > last ? last : at;
    bool up = at <= top && top > 0;
    double from = up ? s->start : 1, to = up ? 1 : s->floor;
    double p = up ? at / top : last > top ? (at - top) / (last - top) : 1;
    return to + (from - to) * 0.5 * (1 + cos(pi * (p < 0 ? 0 : p)));
}

double ru_schedule_lr(const ru_schedule *s, double lr, int64_t step)
{
    if (step < s->warmup) {
        return lr * (double)(step + 1) / (double)s->warmup;
    }
    switch (s->kind) {
    case RU_SCHEDULE_CONSTANT:
        return lr;
    case RU_SCHEDULE_STEP:
        return lr * pow(s->gamma, (double)((step - s->warmup) / (s->every > 0 ? s->every : 1)));
    case RU_SCHEDULE_COSINE:
        return lr * (s->floor + (1 - s->floor) * 0.5 * (1 + cos(pi * progress(s, step))));
    case RU_SCHEDULE_LINEAR:
        return lr * (1 - (1 - s->floor) * progress(s, step));
    case RU_SCHEDULE_SWEEP:
        return lr * pow(s->floor, (double)step / (double)(s->steps > 1 ? s->steps - 1 : 1));
    case RU_SCHEDULE_ONE_CYCLE:
        return lr * one_cycle(s, step);
    }
    return lr;
}
