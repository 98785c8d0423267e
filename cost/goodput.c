#include "cost/goodput.h"

#include <math.h>
#include <stddef.h>

#include "base/rng.h"
#include "cost/math/minimize.h"

static const double time_min = 1e-12; /* logarithms of times stay finite */
static const double slack = 1 - 1e-9; /* of a bound: more than rounding takes */
static const double eps = 1e-8; /* of floor and ceil, and the time of a sum that there is none of */

double ru_perf_pass_s(const ru_perf *p, double local)
{
    return p->pass_s + p->pass_example_s * local;
}

static double sum_s(const ru_perf *p, uint32_t nodes, uint32_t replicas)
{
    if (replicas <= 1) {
        return eps;
    }
    double more = replicas > 2 ? replicas - 2 : eps;
    double s =
        nodes > 1 ? p->net_s + p->net_replica_s * more : p->node_s + p->node_replica_s * more;
    return fmax(s, time_min);
}

/* log of (pass^g + sum^g)^(1/g), and what the larger of the two adds. */
static double log_both(double log_pass, double log_sum, double g)
{
    double most = log_pass > log_sum ? log_pass : log_sum;
    double gap = g * (log_pass > log_sum ? log_sum - log_pass : log_pass - log_sum);
    return gap < -36 ? most : most + ru_math_log(1 + ru_math_exp(gap)) / g;
}

static double step_of(const ru_perf *p, double log_sum, double pass, double passes)
{
    pass = fmax(pass, time_min);
    return passes * pass + ru_math_exp(log_both(ru_math_log(pass), log_sum, p->overlap));
}

double ru_perf_step_s(const ru_perf *p, uint32_t nodes, uint32_t replicas, uint32_t local,
                      uint32_t passes)
{
    return step_of(p, ru_math_log(sum_s(p, nodes, replicas)), ru_perf_pass_s(p, local), passes);
}

double ru_goodput_efficiency(const ru_goodput_model *m, double batch)
{
    double scale = batch / m->batch_first, below = m->var / scale + m->sqr;
    return below > 0 ? (m->var + m->sqr) / below / scale : 1 / scale;
}

/* From gain = batch / first (noise + first) / (noise + batch). */
double ru_goodput_noise(double batch_first, double batch, double gain)
{
    const double most = 1e12;
    double over = batch * batch_first * (gain - 1), left = batch - gain * batch_first;
    if (batch <= batch_first || over <= 0) {
        return 0;
    }
    return left > 0 ? fmin(over / left, most) : most;
}

double ru_goodput_at(const ru_goodput_model *m, uint32_t nodes, uint32_t replicas, uint32_t local,
                     uint32_t passes)
{
    double batch = (double)replicas * local * (passes + 1.0);
    double worth = m->batch > 0 ? 1 : ru_goodput_efficiency(m, batch);
    return batch / ru_perf_step_s(&m->perf, nodes, replicas, local, passes) * worth;
}

ru_goodput_choice ru_goodput_split(const ru_goodput_model *m, uint32_t replicas, double batch)
{
    double local = batch / replicas, passes = ceil(local / m->local_max - eps) - 1;
    if (!m->one_pass && replicas == 1 && local > m->batch_first + eps && passes < 1) {
        passes = 1;
    }
    passes = passes < 0 ? 0 : passes;
    double most = floor(m->batch_max / (replicas * (passes + 1)) + eps);
    local = ceil(local / (passes + 1) - eps);
    return (ru_goodput_choice){.local = (uint32_t)(local < most || most < 1 ? local : most),
                               .passes = (uint32_t)passes};
}

/* No step is shorter, and it takes no logarithms: the norm of the pass and the sum falls with the
 * overlap, so that of 2 bounds all up to 2, and the larger of both bounds every one. */
static double step_least(const ru_perf *p, double sum, double pass, double passes)
{
    return passes * pass + (p->overlap <= 2 ? sqrt(pass * pass + sum * sum)
                            : pass > sum    ? pass
                                            : sum);
}

typedef struct finder {
    const ru_goodput_model *m;
    uint32_t replicas;
    double sum, log_sum;
    ru_goodput_choice best, last;
} finder;

static void consider(finder *f, ru_goodput_choice c)
{
    const ru_goodput_model *m = f->m;
    bool fixed = m->batch > 0, again = c.local == f->last.local && c.passes == f->last.passes;
    if (again || c.local < 1 || (!fixed && c.local < m->local_min) || c.local > m->local_max) {
        return;
    }
    double batch = (double)f->replicas * c.local * (c.passes + 1.0);
    double worth = fixed ? 1 : ru_goodput_efficiency(m, batch);
    double pass = ru_perf_pass_s(&m->perf, c.local);
    f->last = c;
    if (batch * worth < slack * f->best.goodput * step_least(&m->perf, f->sum, pass, c.passes)) {
        return; /* even so it is not the best */
    }
    c.goodput = batch * worth / step_of(&m->perf, f->log_sum, pass, c.passes);
    f->best = c.goodput > f->best.goodput ? c : f->best;
}

/* Where one pass more begins, full passes are the best of those before: they are looked at too. */
ru_goodput_choice ru_goodput_best(const ru_goodput_model *m, uint32_t nodes, uint32_t replicas)
{
    double sum = sum_s(&m->perf, nodes, replicas);
    finder f = {.m = m, .replicas = replicas, .sum = sum, .log_sum = ru_math_log(sum)};
    if (m->batch > 0) {
        consider(&f, ru_goodput_split(m, replicas, m->batch));
        return f.best;
    }
    double low = fmax(m->batch_first, (double)m->local_min * replicas), high = m->batch_max;
    if (low > high + eps) {
        return f.best;
    }
    uint32_t n = low < high ? RU_GOODPUT_BATCHES - 1 : 0;
    double ratio = n > 0 ? ru_math_exp(ru_math_log(high / low) / n) : 1;
    for (uint32_t k = 0; k <= n; k++, low *= ratio) {
        ru_goodput_choice c = ru_goodput_split(m, replicas, k == n ? high : low);
        bool more = f.last.local > 0 && c.passes == f.last.passes + 1 &&
                    (replicas > 1 || m->one_pass || f.last.passes > 0);
        if (more) {
            consider(&f, (ru_goodput_choice){.local = m->local_max, .passes = f.last.passes});
        }
        consider(&f, c);
    }
    return f.best;
}

uint32_t ru_goodput_replicas_max(const ru_goodput_model *m)
{
    uint32_t most = m->batch > 0 ? m->batch : m->batch_max / m->local_min;
    return most > 1 ? most : 1;
}

/* -- fit ----------------------------------------------------------------------------------------*/

enum { PARAMS = 7 };

typedef struct fit {
    const ru_perf_sample *at;
    const double *log_pass, *log_step; /* [n] measured */
    uint32_t n;
    bool squares; /* mean squares instead of their roots: smooth where the fit is exact */
} fit;

static ru_perf perf_of(const double *x)
{
    return (ru_perf){x[0], x[1], x[2], x[3], x[4], x[5], x[6]};
}

/* Value and gradient by the parameters themselves. */
static double loss_of(const fit *f, const double *x, double *grad)
{
    ru_perf p = perf_of(x);
    double squares[2] = {0}, by[2][PARAMS] = {{0}};
    for (uint32_t i = 0; i < f->n; i++) {
        const ru_perf_sample *s = &f->at[i];
        double pass = ru_perf_pass_s(&p, s->local), sum = sum_s(&p, s->nodes, s->replicas);
        double log_pass = ru_math_log(pass), log_sum = ru_math_log(sum), g = p.overlap;
        double log_step = log_both(log_pass, log_sum, g);
        double e = log_pass - f->log_pass[i], d = log_step - f->log_step[i];
        squares[0] += e * e;
        squares[1] += d * d;
        if (grad == NULL) {
            continue;
        }
        double of_pass = ru_math_exp(fmax(g * (log_pass - log_step), -700));
        double of_sum = ru_math_exp(fmax(g * (log_sum - log_step), -700));
        by[0][0] += e / pass;
        by[0][1] += e / pass * s->local;
        by[1][0] += d * of_pass / pass;
        by[1][1] += d * of_pass / pass * s->local;
        by[1][6] += d * (of_pass * log_pass + of_sum * log_sum - log_step) / g;
        if (s->replicas > 1) {
            uint32_t at = s->nodes > 1 ? 2 : 4;
            by[1][at] += d * of_sum / sum;
            by[1][at + 1] += d * of_sum / sum * (s->replicas > 2 ? s->replicas - 2 : eps);
        }
    }
    double v = 1e-3 * (x[6] - 1) * (x[6] - 1), rn = x[3] / x[2], rr = x[5] / x[4];
    v += 1e-2 * (rn * rn + rr * rr);
    for (uint32_t j = 0; grad != NULL && j < PARAMS; j++) {
        grad[j] = 0;
    }
    for (uint32_t k = 0; k < 2; k++) {
        double mean = squares[k] / f->n, rmse = sqrt(mean + 1e-14);
        v += f->squares ? 100 * mean : rmse;
        for (uint32_t j = 0; grad != NULL && j < PARAMS; j++) {
            grad[j] += by[k][j] / f->n * (f->squares ? 200 : 1 / rmse);
        }
    }
    if (grad != NULL) {
        grad[6] += 2e-3 * (x[6] - 1);
        grad[2] -= 2e-2 * rn * rn / x[2];
        grad[3] += 2e-2 * rn / x[2];
        grad[4] -= 2e-2 * rr * rr / x[4];
        grad[5] += 2e-2 * rr / x[4];
    }
    return v;
}

/* The search moves the logarithms of the six times: they differ by orders of magnitude. */
static double loss_log(void *self, const double *y, double *grad)
{
    double x[PARAMS];
    for (uint32_t j = 0; j < 6; j++) {
        x[j] = ru_math_exp(y[j]);
    }
    x[6] = y[6];
    double v = loss_of(self, x, grad);
    for (uint32_t j = 0; grad != NULL && j < 6; j++) {
        grad[j] *= x[j];
    }
    return v;
}

static ru_status logs_of(const ru_perf_sample *s, uint32_t n, ru_arena *a, fit *f, ru_err *err)
{
    double *log_pass = RU_NEW(a, double, n), *log_step = RU_NEW(a, double, n);
    if (log_pass == NULL || log_step == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to fit %u samples", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool right = s[i].nodes >= 1 && s[i].replicas >= s[i].nodes && s[i].local >= 1 &&
                     s[i].pass_s > 1e-12 && s[i].pass_s < 1e12 && s[i].step_s > 1e-12 &&
                     s[i].step_s < 1e12;
        if (!right) {
            return RU_FAIL(err, RU_E_ARG,
                           "sample %u: %g s a pass, %g s a step of %u examples on %u replicas of "
                           "%u nodes",
                           i, s[i].pass_s, s[i].step_s, s[i].local, s[i].replicas, s[i].nodes);
        }
        log_pass[i] = ru_math_log(s[i].pass_s);
        log_step[i] = ru_math_log(s[i].step_s);
    }
    *f = (fit){s, log_pass, log_step, n, false};
    return RU_OK;
}

typedef struct seen {
    bool locals, net, node;   /* several m; several nodes; one node with several replicas */
    bool net_more, node_more; /* there, several numbers of replicas: else what each more costs is
                                 not known */
    double mean_pass;
} seen;

static seen look(const ru_perf_sample *s, uint32_t n)
{
    seen k = {0};
    uint32_t first[2] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t several = s[i].nodes > 1, *one = &first[several];
        bool more = s[i].replicas > 1 && *one > 0 && s[i].replicas != *one;
        *one = s[i].replicas > 1 ? s[i].replicas : *one;
        k.net_more = k.net_more || (several == 1 && more);
        k.node_more = k.node_more || (several == 0 && more);
        k.locals = k.locals || s[i].local != s[0].local;
        k.net = k.net || s[i].nodes > 1;
        k.node = k.node || (s[i].nodes == 1 && s[i].replicas > 1);
        k.mean_pass += s[i].pass_s / n;
    }
    return k;
}

/* Line through the passes with weights 1 / pass^2, and the mean of what a step takes longer. */
static void guess(const ru_perf_sample *s, uint32_t n, double *x)
{
    double w = 0, wm = 0, wmm = 0, wp = 0, wmp = 0, more[2] = {0}, count[2] = {0};
    for (uint32_t i = 0; i < n; i++) {
        double k = 1 / (s[i].pass_s * s[i].pass_s), m = s[i].local;
        w += k;
        wm += k * m;
        wmm += k * m * m;
        wp += k * s[i].pass_s;
        wmp += k * m * s[i].pass_s;
        if (s[i].replicas > 1) {
            more[s[i].nodes == 1] += fmax(s[i].step_s - s[i].pass_s, 0.05 * s[i].step_s);
            count[s[i].nodes == 1]++;
        }
    }
    double det = w * wmm - wm * wm, slope = det > 1e-12 * w * wmm ? (w * wmp - wm * wp) / det : 0;
    double mean = wp / w, each = mean * w / wm;
    x[1] = fmin(fmax(slope, 0.02 * each), each);
    x[0] = fmax(mean - x[1] * wm / w, 0.02 * mean);
    for (uint32_t k = 0; k < 2; k++) {
        x[2 + 2 * k] = count[k] > 0 ? more[k] / count[k] : mean;
        x[3 + 2 * k] = 0.02 * x[2 + 2 * k];
    }
    x[6] = 1;
}

static ru_status search(fit *f, const double *from, const bool *frozen, ru_arena *a, ru_minimum *m,
                        ru_err *err)
{
    double start[PARAMS], low[PARAMS], high[PARAMS], scale[PARAMS];
    for (uint32_t j = 0; j < PARAMS; j++) {
        bool last = j == 6;
        start[j] = last ? fmin(fmax(from[j], 1), 10) : ru_math_log(fmax(from[j], 1e-8));
        low[j] = frozen[j] ? start[j] : last ? 1 : ru_math_log(1e-8);
        high[j] = frozen[j] ? start[j] : last ? 10 : 30;
        scale[j] = 1;
    }
    const ru_minimize_in in = {.fn = loss_log,
                               .self = f,
                               .has_grad = true,
                               .n = PARAMS,
                               .start = start,
                               .low = low,
                               .high = high,
                               .scale = scale,
                               .calls_max = 400,
                               .grad_tol = 1e-6,
                               .step_tol = 1e-7};
    return ru_minimize(&in, a, m, err);
}

/* From the guess with little and with much overlap, by squares and then by their roots; and from
 * an earlier fit, which replaces the second guess. */
static ru_status search_all(fit *f, double *x, const double *start, const bool *frozen, ru_arena *a,
                            ru_err *err)
{
    static const double overlaps[] = {1.2, 3};
    ru_minimum m;
    double least = (double)INFINITY, from[PARAMS], best[PARAMS];
    for (uint32_t k = 0; k < 2; k++) {
        bool warm = k == 1 && start != NULL;
        for (uint32_t j = 0; j < PARAMS; j++) {
            from[j] = warm ? start[j] : j < 6 ? x[j] : overlaps[k];
        }
        for (uint32_t stage = warm ? 1 : 0; stage < 2; stage++) {
            f->squares = stage == 0;
            RU_TRY(search(f, from, frozen, a, &m, err));
            for (uint32_t j = 0; j < PARAMS; j++) {
                from[j] = j < 6 ? ru_math_exp(m.x[j]) : m.x[j];
            }
        }
        for (uint32_t j = 0; m.value < least && j < PARAMS; j++) {
            best[j] = from[j];
        }
        least = m.value < least ? m.value : least;
    }
    for (uint32_t j = 0; j < PARAMS; j++) {
        x[j] = best[j];
    }
    return RU_OK;
}

ru_status ru_perf_fit(const ru_perf_sample *samples, uint32_t n, const ru_perf *start,
                      ru_arena *scratch, ru_perf *out, double *loss, ru_err *err)
{
    if (n < 1) {
        return RU_FAIL(err, RU_E_ARG, "no samples to fit");
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    fit f;
    RU_TRY(logs_of(samples, n, scratch, &f, err));
    seen k = look(samples, n);
    double x[PARAMS];
    guess(samples, n, x);
    if (!k.locals) {
        x[0] = k.mean_pass / 2;
        x[1] = x[0] / samples[0].local;
    }
    const bool frozen[PARAMS] = {!k.locals, false,        !k.net, !k.net_more,
                                 !k.node,   !k.node_more, false};
    for (uint32_t j = 2; j < 6; j++) {
        x[j] = frozen[j] ? eps : x[j];
    }
    /* A frozen b beside a frozen a would count as b / a = 1 in the objective: a constant. */
    double start_x[PARAMS];
    if (start != NULL && start->overlap >= 1) {
        ru_perf p = *start;
        const double y[PARAMS] = {p.pass_s, p.pass_example_s, p.net_s,  p.net_replica_s,
                                  p.node_s, p.node_replica_s, p.overlap};
        for (uint32_t j = 0; j < PARAMS; j++) {
            start_x[j] = frozen[j] ? x[j] : y[j];
        }
    }
    RU_TRY(search_all(&f, x, start != NULL && start->overlap >= 1 ? start_x : NULL, frozen, scratch,
                      err));
    ru_perf p = perf_of(x);
    if (loss != NULL) {
        *loss = ru_perf_loss(&p, samples, n);
    }
    if (!k.net) { /* several nodes are not better than one */
        p.net_s = fmax(p.net_s, 1.1 * p.node_s);
    }
    *out = p;
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

double ru_perf_loss(const ru_perf *p, const ru_perf_sample *samples, uint32_t n)
{
    double squares[2] = {0}, rn = p->net_replica_s / p->net_s, rr = p->node_replica_s / p->node_s;
    for (uint32_t i = 0; i < n; i++) {
        const ru_perf_sample *s = &samples[i];
        double e = ru_math_log(ru_perf_pass_s(p, s->local) / s->pass_s);
        double d = ru_math_log(ru_perf_step_s(p, s->nodes, s->replicas, s->local, 0) / s->step_s);
        squares[0] += e * e / n;
        squares[1] += d * d / n;
    }
    return sqrt(squares[0]) + sqrt(squares[1]) + 1e-3 * (p->overlap - 1) * (p->overlap - 1) +
           1e-2 * (rn * rn + rr * rr);
}

/* -- gradient noise -----------------------------------------------------------------------------*/

/* Of a sample that stands for several steps, in steps of the first batch: about fifty samples
 * always count, however large the batch. */
#define WEIGHT_MAX 20.0

void ru_noise_add(ru_noise *e, double n, double scale, double mean_sqr, double sqr_mean)
{
    if (!isfinite(mean_sqr) || !isfinite(sqr_mean) || !(scale > 0) || !(n >= 1)) {
        return;
    }
    bool paired = n <= 1;
    double of = paired ? 2 : n;
    scale *= paired ? 2 : 1;
    if (!paired && e->paired) {
        *e = (ru_noise){.every = e->every}; /* pairs of steps are biased by the step between them */
    }
    e->paired = paired;
    double sqr = (of * sqr_mean - mean_sqr) / (of - 1);
    double var = (mean_sqr - sqr_mean) * scale / (of - 1);
    double weight = e->every > 1 ? fmin(scale * e->every, WEIGHT_MAX) : scale;
    double keep = ru_math_exp(weight > 1e5 ? -100 : weight * ru_math_log(0.999));
    e->sqr_sum = keep * e->sqr_sum + (1 - keep) * sqr;
    e->sqr_weight = keep * e->sqr_weight + (1 - keep);
    e->spread_sum = keep * e->spread_sum + (1 - keep) * sqr * sqr;
    e->square_weight = keep * keep * e->square_weight + (1 - keep) * (1 - keep);
    e->var_sum = keep * e->var_sum + (1 - keep) * var;
    e->var_weight = keep * e->var_weight + (1 - keep);
}

double ru_noise_var(const ru_noise *e)
{
    return e->var_weight > 0 ? fmax(e->var_sum / e->var_weight, 1e-6) : 0;
}

double ru_noise_sqr_least(const ru_noise *e)
{
    if (!(e->sqr_weight > 0)) {
        return 0;
    }
    double mean = e->sqr_sum / e->sqr_weight, spread = e->spread_sum / e->sqr_weight - mean * mean;
    double part = fmin(e->square_weight / (e->sqr_weight * e->sqr_weight), 1); /* 1 / samples */
    double error = part < 1 ? sqrt(fmax(spread, 0) * part / (1 - part)) : fabs(mean);
    return fmax(mean, error);
}
