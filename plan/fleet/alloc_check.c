#include <math.h>
#include <stddef.h>

#include "base/rng.h"
#include "plan/fleet/alloc.h"

/* What the plan says of one job, counted again. */
typedef struct count {
    uint32_t replicas, devices, nodes, most; /* of the job; of the cluster; largest node */
    bool pollux;
    double weights; /* sum over jobs */
} count;

static ru_status check_parts(const ru_alloc_in *in, const ru_alloc_plan *p, uint32_t i,
                             uint32_t *used, uint32_t *spans, ru_err *err)
{
    const ru_alloc_share *s = &p->jobs[i];
    uint32_t spread = in->spread_max > 0 ? in->spread_max : 16, sum = 0;
    if (s->first > p->n_parts || s->n_parts > p->n_parts - s->first || s->n_parts > spread) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "job %u has %u of %u parts from part %u on; expected at most %u", i,
                       s->n_parts, p->n_parts, s->first, spread);
    }
    for (uint32_t k = 0; k < s->n_parts; k++) {
        const ru_alloc_part *a = &p->parts[s->first + k];
        if (a->node >= in->n_nodes || (k > 0 && a->node <= a[-1].node) || a->devices < 1 ||
            a->devices > in->devices[a->node] - used[a->node]) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "job %u uses %u devices of node %u, which has fewer", i, a->devices,
                           a->node);
        }
        used[a->node] += a->devices;
        sum += a->devices;
        if (s->n_parts > 1 && ++spans[a->node] > 1 && in->method == RU_ALLOC_POLLUX &&
            !in->share_links) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "node %u has two jobs that use several nodes",
                           a->node);
        }
    }
    return sum == s->replicas
               ? RU_OK
               : RU_FAIL(err, RU_E_INFEASIBLE, "job %u has %u replicas on %u devices", i,
                         s->replicas, sum);
}

static bool moved(const ru_alloc_job *j, const ru_alloc_share *s, const ru_alloc_part *parts)
{
    uint32_t found = 0;
    for (uint32_t k = 0; k < s->n_parts; k++) {
        for (uint32_t o = 0; o < j->n_now; o++) {
            found += j->now[o].node == parts[k].node && j->now[o].devices == parts[k].devices;
        }
    }
    return found != s->n_parts || s->n_parts != j->n_now;
}

static ru_status check_share(const ru_alloc_in *in, const ru_alloc_plan *p, uint32_t i, ru_err *err)
{
    const ru_alloc_share *s = &p->jobs[i];
    const ru_alloc_job *j = &in->jobs[i];
    const ru_goodput_model *m = &j->model;
    uint32_t k = s->replicas;
    bool bounds = ru_alloc_fixed(in->method) ? k == j->replicas
                                             : k >= j->replicas_min && k <= j->replicas_max;
    if ((k > 0 && !bounds) || s->changed != moved(j, s, &p->parts[s->first])) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "job %u has %u replicas, but 'changed' is %d", i, k,
                       s->changed);
    }
    if (k == 0) {
        return s->local == 0 && s->passes == 0 && s->goodput == 0
                   ? RU_OK
                   : RU_FAIL(err, RU_E_INFEASIBLE, "job %u waits, but has a batch", i);
    }
    double batch = (double)k * s->local * (s->passes + 1.0);
    /* a fixed batch is rounded up to whole examples of a replica */
    double most = m->batch > 0 ? fmax(m->batch_max, batch) : m->batch_max;
    bool measured = m->perf.overlap >= 1;
    double is =
        measured && s->goodput > 0 ? ru_goodput_at(m, s->n_parts, k, s->local, s->passes) : 0;
    if (s->local < 1 || batch > most || fabs(is - s->goodput) > 1e-9 * is ||
        (is > 0 && s->local > m->local_max)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "job %u: %u examples in %u passes on %u replicas have the goodput %.12g, "
                       "the plan says %.12g",
                       i, s->local, s->passes + 1, k, is, s->goodput);
    }
    ru_goodput_choice best = measured ? ru_goodput_best(m, s->n_parts, k) : (ru_goodput_choice){0};
    return best.goodput <= s->goodput * (1 + 1e-9)
               ? RU_OK
               : RU_FAIL(err, RU_E_INFEASIBLE,
                         "job %u: %u examples in %u passes have a higher goodput", i, best.local,
                         best.passes + 1);
}

static double goodput_of(const ru_alloc_job *j, uint32_t replicas, bool several)
{
    bool measured = j->model.perf.overlap >= 1;
    return measured && replicas > 0 ? ru_goodput_best(&j->model, several ? 2 : 1, replicas).goodput
                                    : replicas;
}

static double fair_of(const ru_alloc_job *j, const count *c, uint32_t n_jobs)
{
    uint32_t k = (c->devices + n_jobs - 1) / n_jobs, feeds = ru_goodput_replicas_max(&j->model);
    k = k < 1 ? 1 : j->model.perf.overlap >= 1 && k > feeds ? feeds : k;
    return goodput_of(j, k, k > c->most);
}

/* What counts of a job beside the others. */
static double weight_of(const ru_alloc_in *in, const count *c, const ru_alloc_job *j)
{
    double fair = fair_of(j, c, in->n_jobs), w = 1;
    if (in->rush > 0 && in->decay_s > 0 && j->left > 0 && j->model.perf.overlap >= 1 && fair > 0) {
        uint32_t k = (c->devices + in->n_jobs - 1) / in->n_jobs;
        uint32_t feeds = ru_goodput_replicas_max(&j->model);
        k = k < 1 ? 1 : k > feeds ? feeds : k;
        w = fair * in->decay_s / (j->left * k);
        w = ru_math_pow(fmin(fmax(w, ru_math_exp(-4)), ru_math_exp(4)), in->rush);
    } else if (in->decay > 0 && in->decay_s > 0 && j->service_s > in->decay_s) {
        w = ru_math_pow(in->decay_s / j->service_s, in->decay);
    }
    double share = (j->weight > 0 ? j->weight : 1) * in->n_jobs / c->weights;
    share = fmax(fmin(share, RU_ALLOC_WEIGHT_RATIO), 1 / RU_ALLOC_WEIGHT_RATIO);
    return w * ru_math_pow(share, 1 - in->power);
}

static double kept_of(const ru_alloc_in *in, const count *c, const ru_alloc_job *j, bool changed)
{
    double below = j->age_s + in->restart_s, had = 0;
    if (!changed || j->n_now == 0 || below <= 0) {
        return 1;
    }
    for (uint32_t k = 0; k < j->n_now; k++) {
        had += j->now[k].devices;
    }
    uint32_t fair = (c->devices + in->n_jobs - 1) / in->n_jobs;
    double kept = fmax(0, j->age_s - in->restart_s * j->restarts) / below;
    double shares = had / (fair > 0 ? fair : 1), ahead = 1;
    if (in->hold_s > 0) {
        const ru_goodput_model *m = &j->model;
        double first = m->batch > 0 ? m->batch : m->batch_first, within = in->hold_s;
        double examples = j->remaining * first * ru_goodput_efficiency(m, first);
        double rate = m->perf.overlap >= 1 ? goodput_of(j, (uint32_t)had, j->n_now > 1) : 0;
        within = rate > 0 && examples > 0 && examples < within * rate ? examples / rate : within;
        ahead = 1 - in->restart_s / within * (shares < 1 ? 1 : shares > 3 ? 3 : shares);
    }
    return fmin(kept, ahead > 0.1 ? ahead : 0.1);
}

static bool near(double a, double b, double by)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= by * (1e-12 + fmax(fabs(a), fabs(b))));
}

/* Loss of a scaled speedup in units of 1e-9, not rounded. */
static double loss_of(double power, double x)
{
    return power == 0  ? -1e9 * ru_math_log(fmax(x, 1e-3))
           : power < 0 ? 1e12 * ru_math_pow((x + 1e-3) / 1e-3, power)
                       : -fmin(1e12, 1e9 * ru_math_pow(x + 1e-3, power));
}

static ru_status check_figures(const ru_alloc_in *in, const ru_alloc_plan *p, const count *c,
                               ru_arena *scratch, ru_err *err)
{
    double loss = 0, mean = 0, utility = 0,
           scale = c->devices > 0 ? 1.0 * in->n_nodes / c->devices : 1;
    double all = 0, *weight = RU_NEW(scratch, double, in->n_jobs);
    if (weight == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check %u jobs", in->n_jobs);
    }
    for (uint32_t i = 0; c->pollux && i < in->n_jobs; i++) {
        weight[i] = weight_of(in, c, &in->jobs[i]);
        all += weight[i];
    }
    double less = all > RU_ALLOC_WEIGHTS_MAX ? RU_ALLOC_WEIGHTS_MAX / all : 1;
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        const ru_alloc_job *j = &in->jobs[i];
        const ru_alloc_share *s = &p->jobs[i];
        bool measured = j->model.perf.overlap >= 1;
        double good = measured ? s->goodput : s->replicas, fair = fair_of(j, c, in->n_jobs);
        double speedup = fair > 0 ? good / fair : 0, one = goodput_of(j, 1, false);
        if (!near(speedup, s->speedup, 1e-9)) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "job %u has the speedup %.12g, the plan says %.12g", i, speedup,
                           s->speedup);
        }
        double x = speedup * kept_of(in, c, j, s->changed) * scale;
        loss += c->pollux ? less * weight[i] * loss_of(in->power, x) : 0;
        mean += (in->power == 0 ? ru_math_log(x + 1e-3) : ru_math_pow(x + 1e-3, in->power)) /
                in->n_jobs;
        utility += one > 0 ? good / one : 0;
    }
    double fitness = in->n_jobs == 0  ? 1e-3
                     : in->power == 0 ? ru_math_exp(mean)
                                      : ru_math_pow(mean, 1 / in->power);
    utility /= c->devices > 0 ? c->devices : 1;
    if (fabs((double)p->loss - loss) > in->n_jobs + 1e-6 * fabs(loss) ||
        !near(fitness, p->fitness * scale + 1e-3, 1e-9) || !near(utility, p->utility, 1e-9)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "loss %lld, fitness %.12g, utility %.12g, not %.12g, %.12g, %.12g",
                       (long long)p->loss, p->fitness, p->utility, loss, (fitness - 1e-3) / scale,
                       utility);
    }
    return RU_OK;
}

/* Nobody waits who could start beside the others and would gain. */
static ru_status check_waiting(const ru_alloc_in *in, const ru_alloc_plan *p, const count *c,
                               const uint32_t *used, ru_err *err)
{
    uint32_t open = 0;
    for (uint32_t n = 0; n < in->n_nodes; n++) {
        open = in->devices[n] - used[n] > open ? in->devices[n] - used[n] : open;
    }
    for (uint32_t i = 0; c->pollux && i < in->n_jobs; i++) {
        const ru_alloc_job *j = &in->jobs[i];
        uint32_t k = j->replicas_min > 1 ? j->replicas_min : 1;
        if (p->jobs[i].replicas == 0 && open >= k && j->n_now == 0 &&
            k <= (j->model.perf.overlap >= 1 ? ru_goodput_replicas_max(&j->model) : k) &&
            goodput_of(j, k, false) > 1e-3 * fair_of(j, c, in->n_jobs)) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "job %u waits for %u devices, although %u are free", i, k, open);
        }
    }
    return RU_OK;
}

/* Places in the lower queue stay; those of newcomers follow in order of arrival. */
static ru_status check_demoted(const ru_alloc_in *in, const ru_alloc_plan *p, ru_err *err)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        last = in->jobs[i].demoted > last ? in->jobs[i].demoted : last;
    }
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        uint32_t want = in->jobs[i].demoted;
        if (want == 0 && in->jobs[i].service_s >= (in->demote_s > 0 ? in->demote_s : 57600)) {
            want = last + (last < UINT32_MAX);
            last = want;
        }
        want = in->method == RU_ALLOC_TIRESIAS ? want : 0;
        if (p->jobs[i].demoted != want) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "job %u has position %u of the lower queue, expected %u", i,
                           p->jobs[i].demoted, want);
        }
    }
    return RU_OK;
}

ru_status ru_plan_alloc_check(const ru_alloc_in *in, const ru_alloc_plan *plan, ru_arena *scratch,
                              ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    uint32_t *used = RU_NEW(scratch, uint32_t, in->n_nodes), sum = 0;
    uint32_t *spans = RU_NEW(scratch, uint32_t, in->n_nodes);
    if (used == NULL || spans == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check %u nodes", in->n_nodes);
    }
    if (plan->n_jobs != in->n_jobs) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan has %u jobs, the question %u", plan->n_jobs,
                       in->n_jobs);
    }
    count c = {.pollux = in->method == RU_ALLOC_POLLUX};
    for (uint32_t n = 0; n < in->n_nodes; n++) {
        c.devices += in->devices[n];
        c.most = in->devices[n] > c.most ? in->devices[n] : c.most;
    }
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        c.weights += in->jobs[i].weight > 0 ? in->jobs[i].weight : 1;
        RU_TRY(check_parts(in, plan, i, used, spans, err));
        RU_TRY(check_share(in, plan, i, err));
        sum += plan->jobs[i].replicas;
    }
    bool scales = (in->util_high > 0 || in->time_price > 0) && in->nodes_max >= in->nodes_min;
    uint32_t low = in->nodes_min > 0 ? in->nodes_min : 1, want = plan->nodes_wanted;
    if (plan->devices != c.devices || plan->used != sum ||
        (want != in->n_nodes && !(scales && want >= low && want <= in->nodes_max))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u of %u devices used, %u nodes wanted", plan->used,
                       plan->devices, want);
    }
    RU_TRY(check_figures(in, plan, &c, scratch, err));
    RU_TRY(check_waiting(in, plan, &c, used, err));
    RU_TRY(check_demoted(in, plan, err));
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
