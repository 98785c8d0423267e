#include "plan/fleet/scale_rest.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cost/math/norm.h"
#include "plan/fleet/scale_impl.h"

enum { HALVINGS = 60, SEEN_MAX = 3 };
#define PRICE_LOW  1e-15 /* USD for a second */
#define PRICE_HIGH 1e15

/* Errors of a step time that is expected, relative: where it was measured (calls of one choice
 * differ by as much), and where the law alone says it: more, the further the samples of a worker
 * are from any that were measured, by logarithm. */
static const double seen_error = 0.06, law_error = 0.1, far_error = 0.25, far_most = 2;
static const double sure = 1.645; /* deviations: 95 % */
static const double spare = 0.01; /* of the time, beside errors */
static const double tighter = 0.97;
enum { TIGHTER_MAX = 24 };

/* A part with a choice. */
typedef struct cost {
    double seconds, usd, step_s;
    double error; /* of step_s, relative */
} cost;

typedef struct search {
    const ru_scale_rest_in *r;
    uint32_t n;            /* choices */
    const cost *costs;     /* [parts][n]; seconds INFINITY: has failed */
    uint32_t *pick, *fast; /* [parts] the choices; those of least time */
} search;

static const cost *at(const search *s, uint32_t part, uint32_t k)
{
    return &s->costs[(size_t)part * s->n + k];
}

/* How far off the law is for this choice: the mean of its last measurements with this batch, or
 * else with others. */
static double ratio_of(const ru_scale_rest_in *r, const ru_scale_law *l, rui_scale_choice c,
                       double batch, bool *seen)
{
    const ru_scale_in *in = r->in;
    double sum[2] = {0, 0}, n[2] = {0, 0};
    for (uint32_t i = in->n_probes; i-- > 0;) {
        const ru_scale_probe *p = &in->probe[i];
        if (p->failed || p->workers != c.workers || p->memory_mb != c.memory_mb) {
            continue;
        }
        uint32_t same = r->batch[i] == batch ? 1 : 0;
        double says = ru_scale_law_step(l, in, p->workers, p->memory_mb, r->batch[i]);
        if (n[same] < SEEN_MAX && says > 0) {
            sum[same] += p->step_s / says;
            n[same]++;
        }
    }
    *seen = n[1] > 0;
    return n[1] > 0 ? sum[1] / n[1] : n[0] > 0 ? sum[0] / n[0] : 1;
}

/* How far the samples of a worker are from those of measurements with one worker, or with several.
 */
static double far_of(const ru_scale_rest_in *r, rui_scale_choice c, double batch)
{
    const ru_scale_in *in = r->in;
    double least = far_most;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        const ru_scale_probe *p = &in->probe[i];
        if (!p->failed && (p->workers > 1) == (c.workers > 1)) {
            double ratio = batch / c.workers * p->workers / r->batch[i];
            least = fmin(least, fabs(ru_num_log(ratio)));
        }
    }
    return least;
}

static bool in_force(const ru_scale_in *in, rui_scale_choice c)
{
    return c.workers == in->now_workers && c.memory_mb == in->now_memory_mb;
}

static cost cost_of(const ru_scale_rest_in *r, const ru_scale_law *l, uint32_t part, uint32_t k)
{
    const ru_scale_in *in = r->in;
    const rui_scale_choice c = rui_scale_at(in, k);
    const ru_scale_part *p = &r->parts[part];
    bool seen, there = c.workers <= r->there[k % in->n_memory];
    if (rui_scale_failed(in, c)) {
        return (cost){.seconds = (double)INFINITY, .usd = (double)INFINITY};
    }
    ru_function_rules rules = ru_scale_rules(in, c.memory_mb);
    double step_s = ru_scale_law_step(l, in, c.workers, c.memory_mb, p->batch) *
                    ratio_of(r, l, c, p->batch, &seen);
    step_s = fmax(step_s, 1e-9);
    double stretch = fmax(r->stretch_steps * r->parts[0].batch / p->batch, r->stretch_s / step_s);
    rules.init_s = part == 0 && in_force(in, c) ? r->again_s : there ? r->other_s : rules.init_s;
    rules.init_s += r->again_s * floor(p->steps / stretch); /* the decisions between */
    ru_function_run run;
    if (!ru_function_run_of(&rules, c.workers, c.memory_mb, p->steps, step_s, &run)) {
        return (cost){.seconds = (double)INFINITY, .usd = (double)INFINITY};
    }
    double error = seen ? seen_error : law_error + far_error * far_of(r, c, p->batch);
    return (cost){run.seconds, run.usd, step_s, error};
}

/* -- all parts ------------------------------------------------------------------------------------
 */

/* Of each part the choice that is best at this price of a second. Seconds of all. */
static double pick_at(search *s, double price)
{
    double all = 0;
    for (uint32_t p = 0; p < s->r->n; p++) {
        double least = (double)INFINITY;
        for (uint32_t k = 0; k < s->n; k++) {
            const cost *c = at(s, p, k);
            double v = isfinite(c->seconds) ? c->usd + price * c->seconds : (double)INFINITY;
            if (v < least) {
                least = v;
                s->pick[p] = k;
            }
        }
        all += at(s, p, s->pick[p])->seconds;
    }
    return all;
}

/* The move to a cheaper choice of one part that saves most and keeps the limit; false: none. */
static bool cheapen(search *s, double spare_s)
{
    double most = 0;
    uint32_t part = 0, to = 0;
    for (uint32_t p = 0; p < s->r->n; p++) {
        const cost *now = at(s, p, s->pick[p]);
        for (uint32_t k = 0; k < s->n; k++) {
            const cost *c = at(s, p, k);
            if (c->seconds - now->seconds <= spare_s && now->usd - c->usd > most) {
                most = now->usd - c->usd;
                part = p;
                to = k;
            }
        }
    }
    if (most > 0) {
        s->pick[part] = to;
    }
    return most > 0;
}

static double seconds_of(const search *s)
{
    double all = 0;
    for (uint32_t p = 0; p < s->r->n; p++) {
        all += at(s, p, s->pick[p])->seconds;
    }
    return all;
}

/* The least money that ends within limit_s, as expected; false: nothing does, the fastest is
 * picked. */
static bool solve(search *s, double limit_s)
{
    double low = PRICE_LOW, high = PRICE_HIGH;
    if (pick_at(s, high) > limit_s) {
        return false;
    }
    if (pick_at(s, 0) <= limit_s) {
        return true;
    }
    for (uint32_t i = 0; i < HALVINGS; i++) {
        double price = sqrt(low) * sqrt(high);
        bool keeps = pick_at(s, price) <= limit_s;
        high = keeps ? price : high;
        low = keeps ? low : price;
    }
    (void)pick_at(s, high);
    for (uint32_t i = 0; i < 2 * s->r->n && cheapen(s, limit_s - seconds_of(s)); i++) {
    }
    return true;
}

/* -- the first stretch ----------------------------------------------------------------------------
 */

/* Steps until the next decision. The last part has one more before its end. */
static double stretch_of(const search *s, const cost *c)
{
    const ru_scale_rest_in *r = s->r;
    double left = r->parts[0].steps, want = fmax(r->stretch_steps, ceil(r->stretch_s / c->step_s));
    if (r->n == 1 && left * c->step_s > 2 * r->stretch_s) {
        want = fmin(want, ceil(left * 2 / 3));
    }
    return 1.4 * want >= left ? left : want;
}

/* The rest, if the stretch with choice k turns out badly and the fastest choices follow, which may
 * do so, too. */
static double worst_of(const search *s, uint32_t k)
{
    const ru_scale_rest_in *r = s->r;
    const cost *c = at(s, 0, k);
    if (!isfinite(c->seconds)) {
        return (double)INFINITY;
    }
    double steps = stretch_of(s, c), left = r->parts[0].steps - steps;
    double mean = c->seconds - left * c->step_s, off = c->error * steps * c->step_s;
    double squares = off * off;
    for (uint32_t p = left > 0 ? 0 : 1; p < r->n; p++) {
        const cost *f = at(s, p, s->fast[p]);
        double t = f->seconds * (p == 0 ? left / r->parts[0].steps : 1);
        mean += t;
        squares += f->error * t * f->error * t;
    }
    return mean + sure * sqrt(squares);
}

/* The choice of the first part that comes closest to a way out. */
static uint32_t closest(const search *s)
{
    uint32_t best = 0;
    for (uint32_t k = 1; k < s->n; k++) {
        best = worst_of(s, k) < worst_of(s, best) ? k : best;
    }
    return best;
}

ru_status ru_scale_rest(const ru_scale_rest_in *r, ru_arena *scratch, ru_scale_rest_plan *out,
                        ru_err *err)
{
    ru_scale_law law;
    search s = {.r = r, .n = rui_scale_choices(r->in)};
    RU_CHECK(r->n >= 1 && r->n <= RU_SCALE_PARTS_MAX && r->in->limit_s > 0);
    RU_TRY(ru_scale_law_of(r->in, r->batch, scratch, &law, err));
    cost *costs = RU_NEW(scratch, cost, (int64_t)r->n * s.n);
    s.pick = RU_NEW(scratch, uint32_t, r->n);
    s.fast = RU_NEW(scratch, uint32_t, r->n);
    if (costs == NULL || s.pick == NULL || s.fast == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u choices of %u parts", s.n, r->n);
    }
    for (uint32_t p = 0; p < r->n; p++) {
        for (uint32_t k = 0; k < s.n; k++) {
            costs[(size_t)p * s.n + k] = cost_of(r, &law, p, k);
        }
    }
    s.costs = costs;
    if (!isfinite(pick_at(&s, PRICE_HIGH))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "every choice of workers and memory has failed");
    }
    memcpy(s.fast, s.pick, r->n * sizeof *s.fast);
    double limit_s = r->in->limit_s, aim_s = limit_s / (1 + spare);
    bool keeps = solve(&s, aim_s);
    const bool late = !keeps && seconds_of(&s) > limit_s;
    for (uint32_t i = 0; i < TIGHTER_MAX && keeps && worst_of(&s, s.pick[0]) > limit_s; i++) {
        aim_s *= tighter;
        keeps = solve(&s, aim_s);
    }
    if (worst_of(&s, s.pick[0]) > limit_s) {
        s.pick[0] = closest(&s);
    }
    const cost *first = at(&s, 0, s.pick[0]);
    const rui_scale_choice c = rui_scale_at(r->in, s.pick[0]);
    *out = (ru_scale_rest_plan){.workers = c.workers,
                                .memory_mb = c.memory_mb,
                                .step_s = first->step_s,
                                .steps = stretch_of(&s, first),
                                .late = late};
    for (uint32_t p = 0; p < r->n; p++) {
        out->seconds += at(&s, p, s.pick[p])->seconds;
        out->usd += at(&s, p, s.pick[p])->usd;
    }
    return RU_OK;
}
