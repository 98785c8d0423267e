#include "cost/credit.h"

#include <math.h>

#define HOUR_S   3600.0
#define MINUTE_S 60.0

ru_credit_rules ru_credit_cpu(uint32_t vcpus, double credits_per_hour, double cap, double launch,
                              bool launch_apart)
{
    return (ru_credit_rules){.earn = credits_per_hour / HOUR_S,
                             .cap = cap,
                             .launch = launch_apart ? launch : 0,
                             .start = launch_apart ? 0 : fmin(launch, cap),
                             .burst = vcpus / MINUTE_S};
}

ru_credit_rules ru_credit_gp2(double size_gib)
{
    double earn = fmin(16000, fmax(100, 3 * size_gib));
    return (ru_credit_rules){.earn = earn, .cap = 5.4e6, .start = 5.4e6, .burst = fmax(3000, earn)};
}

ru_credit ru_credit_launch(const ru_credit_rules *r)
{
    return (ru_credit){.earned = r->start, .launch = r->launch};
}

double ru_credit_level(const ru_credit *c)
{
    return c->earned + c->launch;
}

double ru_credit_empty_s(const ru_credit_rules *r, const ru_credit *c, double use)
{
    double drain = fmin(use, r->burst) - r->earn;
    /* Rates given in decimals: a difference below their last digits is none. */
    return drain > 1e-12 * r->earn ? ru_credit_level(c) / drain : (double)INFINITY;
}

double ru_credit_refill_s(const ru_credit_rules *r, const ru_credit *c, double use)
{
    double missing = r->cap - c->earned + c->surplus;
    double gain = r->earn - use;
    return missing <= 0 ? 0 : gain > 0 ? missing / gain : (double)INFINITY;
}

static void accrue(const ru_credit_rules *r, ru_credit *c, double tokens)
{
    double pays = fmin(tokens, c->surplus);
    c->surplus -= pays;
    c->earned = fmin(r->cap, c->earned + (tokens - pays));
}

double ru_credit_run(const ru_credit_rules *r, ru_credit *c, double use, double dt_s)
{
    double rate = fmin(use, r->burst);
    double drain = (rate - r->earn) * dt_s;
    if (drain <= 0) {
        accrue(r, c, -drain);
        return rate * dt_s;
    }
    double from_launch = fmin(drain, c->launch);
    c->launch -= from_launch;
    drain -= from_launch;
    double from_earned = fmin(drain, c->earned);
    c->earned -= from_earned;
    drain -= from_earned;
    if (!r->unlimited) {
        return rate * dt_s - drain;
    }
    double owed = fmin(drain, r->cap - c->surplus);
    c->surplus = fmin(r->cap, c->surplus + owed);
    c->billed += drain - owed;
    return rate * dt_s;
}

void ru_credit_stop(const ru_credit_rules *r, ru_credit *c, double off_s)
{
    double billed = c->billed + c->surplus;
    if (off_s > r->keep_s) {
        *c = ru_credit_launch(r);
    }
    c->surplus = 0;
    c->billed = billed;
}
