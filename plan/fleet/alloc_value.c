/* Losses of allocations by lookup. */
#include "plan/fleet/alloc_impl.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/rng.h"

static const double floor_x = 1e-3; /* qiao-2021's code adds it, so that a job that waits counts */
static const double loss_max = 1e12;
static const double log_weight_max = 4; /* no more than a factor of 55 either way */

int64_t rui_alloc_loss_of(const rui_alloc_values *v, double speedup, double weight)
{
    double x = speedup * v->scale, p = v->in->power, loss;
    if (p == -1) {
        loss = 1e9 / (x + floor_x);
    } else if (p == 0) {
        loss = -1e9 * ru_math_log(fmax(x, floor_x));
    } else if (p < 0) {
        loss = loss_max * ru_math_exp(p * (ru_math_log(x + floor_x) - ru_math_log(floor_x)));
    } else {
        loss = -fmin(1e9 * ru_math_exp(p * ru_math_log(x + floor_x)), loss_max);
    }
    return (int64_t)floor(weight * loss + 0.5);
}

static double goodput_of(const ru_alloc_job *j, uint32_t replicas, bool several)
{
    if (replicas == 0) {
        return 0;
    }
    if (!(j->model.perf.overlap >= 1)) {
        return replicas;
    }
    return ru_goodput_best(&j->model, several ? 2 : 1, replicas).goodput;
}

const rui_alloc_value *rui_alloc_look(rui_alloc_values *v, uint32_t job, uint32_t replicas,
                                      bool several)
{
    RU_DCHECK(replicas <= v->cap[job] || replicas == 1);
    rui_alloc_value *at = &v->table[job][2 * replicas + (several ? 1 : 0)];
    if (at->goodput < 0) {
        at->goodput = goodput_of(&v->in->jobs[job], replicas, several);
        double speedup = v->fair[job] > 0 ? at->goodput / v->fair[job] : 0;
        at->loss[0] = rui_alloc_loss_of(v, speedup, v->weight[job]);
        at->loss[1] = rui_alloc_loss_of(v, speedup * v->factor[job], v->weight[job]);
    }
    return at;
}

/* Seconds until the job ends, as it runs now. */
static double ends_in(const ru_alloc_job *j, uint32_t devices)
{
    const ru_goodput_model *m = &j->model;
    double batch = m->batch > 0 ? m->batch : m->batch_first, goodput = 0;
    if (j->remaining > 0 && m->perf.overlap >= 1) {
        goodput = goodput_of(j, devices, j->n_now > 1);
    }
    return goodput > 0 ? j->remaining * batch * ru_goodput_efficiency(m, batch) / goodput
                       : (double)INFINITY;
}

/* What a restart leaves of a speedup. The published factor looks back: the part of its life that
 * the job has not spent in restarts. Ours also looks ahead: a change must pay within hold_s, and
 * before the job ends; one of a large job wastes more devices. */
static double factor_of(const rui_alloc_values *v, const ru_alloc_job *j)
{
    const ru_alloc_in *in = v->in;
    double lost = j->restarts * in->restart_s, below = j->age_s + in->restart_s;
    uint32_t devices = 0;
    if (j->n_now == 0 || below <= 0) {
        return 1;
    }
    for (uint32_t k = 0; k < j->n_now; k++) {
        devices += j->now[k].devices;
    }
    double back = fmax(j->age_s - lost, 0) / below;
    if (!(in->hold_s > 0)) {
        return back;
    }
    double large = fmin(fmax((double)devices / v->fair_k, 1), 3);
    double hold_s = fmin(in->hold_s, ends_in(j, devices));
    return fmin(back, fmax(1 - large * in->restart_s / hold_s, 0.1));
}

/* Jobs that have had much service count less: long jobs would else hold up many short ones.
 * Source: qiao-2020 sec 4.2 (weights of jobs). What is left says more than what has been: a job
 * near its end frees its devices for the others soon. `fair` is its goodput on `k` devices. */
static double weight_of(const ru_alloc_in *in, const ru_alloc_job *j, double fair, uint32_t k)
{
    if (in->rush > 0 && in->decay_s > 0 && j->left > 0 && j->model.perf.overlap >= 1 && fair > 0) {
        double log =
            ru_math_log(in->decay_s) + ru_math_log(fair) - ru_math_log(j->left) - ru_math_log(k);
        return ru_math_exp(in->rush * fmin(fmax(log, -log_weight_max), log_weight_max));
    }
    return in->decay > 0 && in->decay_s > 0 && j->service_s > in->decay_s
               ? ru_math_exp(in->decay * ru_math_log(in->decay_s / j->service_s))
               : 1;
}

/* The sum of power p is least where devices are as W^(1 / (1 - p)), if goodput is. */
static double weight_beside(const ru_alloc_in *in, const ru_alloc_job *j, double mean)
{
    double w = (j->weight > 0 ? j->weight : 1) / mean;
    w = fmin(fmax(w, 1 / RU_ALLOC_WEIGHT_RATIO), RU_ALLOC_WEIGHT_RATIO);
    return w == 1 ? 1 : ru_math_exp((1 - in->power) * ru_math_log(w));
}

static void job_init(rui_alloc_values *v, uint32_t i, double mean)
{
    const ru_alloc_job *j = &v->in->jobs[i];
    bool measured = j->model.perf.overlap >= 1;
    uint32_t most = v->spread * v->most, cap = j->replicas_max;
    cap = cap < most ? cap : most;
    cap = cap < v->total ? cap : v->total;
    uint32_t feeds = measured ? ru_goodput_replicas_max(&j->model) : cap;
    v->cap[i] = cap < feeds ? cap : feeds;
    uint32_t fair = v->fair_k < feeds || !measured ? v->fair_k : feeds;
    v->fair[i] = goodput_of(j, fair, fair > v->most);
    v->factor[i] = factor_of(v, j);
    v->weight[i] = weight_of(v->in, j, v->fair[i], fair) * weight_beside(v->in, j, mean);
}

ru_status rui_alloc_values_init(rui_alloc_values *v, const ru_alloc_in *in, ru_arena *scratch,
                                ru_err *err)
{
    *v = (rui_alloc_values){.in = in, .spread = in->spread_max > 0 ? in->spread_max : 16};
    for (uint32_t n = 0; n < in->n_nodes; n++) {
        v->total += in->devices[n];
        v->most = in->devices[n] > v->most ? in->devices[n] : v->most;
    }
    v->scale = v->total > 0 ? (double)in->n_nodes / v->total : 1;
    v->fair_k = in->n_jobs > 0 ? (v->total + in->n_jobs - 1) / in->n_jobs : 1;
    v->fair_k = v->fair_k > 0 ? v->fair_k : 1;
    v->cap = RU_NEW(scratch, uint32_t, in->n_jobs);
    v->fair = RU_NEW(scratch, double, in->n_jobs);
    v->factor = RU_NEW(scratch, double, in->n_jobs);
    v->weight = RU_NEW(scratch, double, in->n_jobs);
    v->table = RU_NEW(scratch, rui_alloc_value *, in->n_jobs);
    bool room = v->cap != NULL && v->fair != NULL && v->factor != NULL && v->weight != NULL &&
                v->table != NULL;
    double weights = 0;
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        weights += in->jobs[i].weight > 0 ? in->jobs[i].weight : 1;
    }
    double all = 0;
    for (uint32_t i = 0; room && i < in->n_jobs; i++) {
        job_init(v, i, weights / in->n_jobs);
        all += v->weight[i];
        uint32_t n = 2 * ((v->cap[i] > 1 ? v->cap[i] : 1) + 1);
        v->table[i] = RU_NEW(scratch, rui_alloc_value, n);
        room = v->table[i] != NULL;
        for (uint32_t k = 0; room && k < n; k++) {
            v->table[i][k].goodput = -1;
        }
    }
    for (uint32_t i = 0; room && all > RU_ALLOC_WEIGHTS_MAX && i < in->n_jobs; i++) {
        v->weight[i] *= RU_ALLOC_WEIGHTS_MAX / all;
    }
    return room ? RU_OK : RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", in->n_jobs);
}

ru_status rui_alloc_state_init(rui_alloc_state *s, const rui_alloc_values *v, ru_arena *scratch,
                               ru_err *err)
{
    const ru_alloc_in *in = v->in;
    *s = (rui_alloc_state){.spread = v->spread,
                           .parts = RU_NEW(scratch, ru_alloc_part, (int64_t)in->n_jobs * v->spread),
                           .n_parts = RU_NEW(scratch, uint32_t, in->n_jobs),
                           .k = RU_NEW(scratch, uint32_t, in->n_jobs),
                           .open = RU_NEW(scratch, uint32_t, in->n_nodes)};
    if (s->parts == NULL || s->n_parts == NULL || s->k == NULL || s->open == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to place %u jobs on %u nodes", in->n_jobs,
                       in->n_nodes);
    }
    memcpy(s->open, in->devices, in->n_nodes * sizeof *s->open);
    return RU_OK;
}

bool rui_alloc_same(const ru_alloc_in *in, const rui_alloc_state *s, uint32_t job)
{
    const ru_alloc_job *j = &in->jobs[job];
    const ru_alloc_part *p = &s->parts[(size_t)job * s->spread];
    if (s->n_parts[job] != j->n_now) {
        return false;
    }
    for (uint32_t i = 0; i < j->n_now; i++) {
        bool found = false;
        for (uint32_t k = 0; !found && k < j->n_now; k++) {
            found = p[k].node == j->now[i].node && p[k].devices == j->now[i].devices;
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

void rui_alloc_give(rui_alloc_state *s, uint32_t job, uint32_t node, uint32_t devices)
{
    ru_alloc_part *p = &s->parts[(size_t)job * s->spread];
    uint32_t i = 0;
    while (i < s->n_parts[job] && p[i].node != node) {
        i++;
    }
    if (i == s->n_parts[job]) {
        RU_CHECK(i < s->spread);
        p[s->n_parts[job]++] = (ru_alloc_part){node, 0};
    }
    RU_DCHECK(s->open[node] >= devices);
    p[i].devices += devices;
    s->k[job] += devices;
    s->open[node] -= devices;
}

void rui_alloc_take(rui_alloc_state *s, uint32_t job, uint32_t node, uint32_t devices)
{
    ru_alloc_part *p = &s->parts[(size_t)job * s->spread];
    uint32_t i = 0;
    while (p[i].node != node) {
        i++;
        RU_CHECK(i < s->n_parts[job]);
    }
    RU_DCHECK(p[i].devices >= devices);
    p[i].devices -= devices;
    s->k[job] -= devices;
    s->open[node] += devices;
    if (p[i].devices == 0) {
        p[i] = p[--s->n_parts[job]];
    }
}

void rui_alloc_start(const ru_alloc_in *in, rui_alloc_state *s)
{
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        const ru_alloc_job *job = &in->jobs[j];
        bool fits = job->n_now <= s->spread;
        for (uint32_t i = 0; fits && i < job->n_now; i++) {
            fits = s->open[job->now[i].node] >= job->now[i].devices;
        }
        for (uint32_t i = 0; fits && i < job->n_now; i++) {
            rui_alloc_give(s, j, job->now[i].node, job->now[i].devices);
        }
    }
}
