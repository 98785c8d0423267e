#include "plan/fleet/alloc.h"

#include <math.h>
#include <stddef.h>

#include "base/rng.h"
#include "plan/fleet/alloc_impl.h"

const char *ru_alloc_method_name(ru_alloc_method m)
{
    static const char *const names[] = {"pollux", "tiresias", "optimus", "fifo", "srtf"};
    RU_CHECK(m < RU_ALLOC_METHODS);
    return names[m];
}

bool ru_alloc_fixed(ru_alloc_method m)
{
    return m != RU_ALLOC_POLLUX && m != RU_ALLOC_OPTIMUS;
}

static ru_status check_job(const ru_alloc_in *in, uint32_t i, ru_err *err)
{
    const ru_alloc_job *j = &in->jobs[i];
    const ru_goodput_model *m = &j->model;
    if (j->replicas_max < 1 || j->replicas_min > j->replicas_max || j->n_now > RU_ALLOC_PARTS_MAX ||
        !(j->age_s >= 0) || !(j->service_s >= 0) || !(j->remaining >= 0) ||
        !(j->left >= 0 && j->left <= 1e30) || !(j->weight >= 0 && j->weight <= 1e9)) {
        return RU_FAIL(err, RU_E_ARG,
                       "job %u: replicas from %u to %u, age %g s, %g examples left, weight %g; "
                       "expected rising "
                       "numbers of replicas, an age, a rest and a weight of 0 or more",
                       i, j->replicas_min, j->replicas_max, j->age_s, j->left, j->weight);
    }
    if (j->weight > 0 && in->power < -1) {
        return RU_FAIL(err, RU_E_ARG, "job %u has a weight, which needs a power of -1 or more", i);
    }
    if (m->batch_first < 1 || m->batch_max < m->batch_first || m->local_min < 1 ||
        m->local_max < m->local_min || m->local_min > m->batch_max) {
        return RU_FAIL(
            err, RU_E_ARG,
            "job %u: batches from %u to %u examples, per replica from %u to %u; both ranges must "
            "rise, and the largest batch must not be smaller than the smallest one of a replica",
            i, m->batch_first, m->batch_max, m->local_min, m->local_max);
    }
    for (uint32_t k = 0; k < j->n_now; k++) {
        if (j->now[k].node >= in->n_nodes || j->now[k].devices < 1 ||
            j->now[k].devices > RU_ALLOC_DEVICES_MAX) {
            return RU_FAIL(err, RU_E_ARG,
                           "job %u runs on %u devices of node %u, but there are %u nodes (from 0), "
                           "or too many devices",
                           i, j->now[k].devices, j->now[k].node, in->n_nodes);
        }
        for (uint32_t o = 0; o < k; o++) {
            if (j->now[o].node == j->now[k].node) {
                return RU_FAIL(err, RU_E_ARG, "job %u runs on node %u twice", i, j->now[k].node);
            }
        }
    }
    return RU_OK;
}

static ru_status check_in(const ru_alloc_in *in, ru_err *err)
{
    if (in->n_jobs > RU_ALLOC_JOBS_MAX || in->n_nodes < 1 || in->n_nodes > RU_ALLOC_NODES_MAX ||
        in->spread_max > RU_ALLOC_PARTS_MAX || in->method >= RU_ALLOC_METHODS ||
        !(in->power >= -2 && in->power <= 1) || !(in->restart_s >= 0) || !(in->hold_s >= 0) ||
        !(in->decay >= 0 && in->decay <= 1) || !(in->decay_s >= 0) ||
        !(in->rush >= 0 && in->rush <= 1)) {
        return RU_FAIL(err, RU_E_ARG,
                       "expected other numbers: %u jobs (at most %d), %u nodes (1 to %d), %u nodes "
                       "per job (at most %d), power %g (-2 to 1), decay %g and rush %g (0 to 1)",
                       in->n_jobs, RU_ALLOC_JOBS_MAX, in->n_nodes, RU_ALLOC_NODES_MAX,
                       in->spread_max, RU_ALLOC_PARTS_MAX, in->power, in->decay, in->rush);
    }
    for (uint32_t n = 0; n < in->n_nodes; n++) {
        if (in->devices[n] > RU_ALLOC_DEVICES_MAX) {
            return RU_FAIL(err, RU_E_ARG, "node %u has %u devices; expected at most %d", n,
                           in->devices[n], RU_ALLOC_DEVICES_MAX);
        }
    }
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        RU_TRY(check_job(in, i, err));
    }
    return RU_OK;
}

/* The batch on the devices that a job got. A job of fixed batch always has one. */
static void choose_batch(const ru_alloc_job *j, ru_alloc_share *s)
{
    const ru_goodput_model *m = &j->model;
    ru_goodput_choice c = {0};
    if (m->perf.overlap >= 1) {
        c = ru_goodput_best(m, s->n_parts, s->replicas);
        s->goodput = c.goodput;
    }
    if (c.local == 0) { /* never measured, or more replicas than the batch feeds */
        double batch =
            m->batch > 0 ? m->batch : fmax(m->batch_first, (double)m->local_min * s->replicas);
        c = ru_goodput_split(m, s->replicas, batch);
    }
    s->local = c.local;
    s->passes = c.passes;
}

static void sort_parts(ru_alloc_part *p, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        ru_alloc_part x = p[i];
        uint32_t k = i;
        for (; k > 0 && p[k - 1].node > x.node; k--) {
            p[k] = p[k - 1];
        }
        p[k] = x;
    }
}

static void measure(rui_alloc_values *v, const rui_alloc_state *s, ru_alloc_share *shares,
                    ru_alloc_plan *p)
{
    const ru_alloc_in *in = v->in;
    double sum = 0;
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        ru_alloc_share *a = &shares[j];
        bool several = s->n_parts[j] > 1, known = in->jobs[j].model.perf.overlap >= 1;
        if (a->replicas > 0) {
            choose_batch(&in->jobs[j], a);
        }
        double goodput = known ? a->goodput : a->replicas;
        a->speedup = v->fair[j] > 0 ? goodput / v->fair[j] : 0;
        double one = rui_alloc_look(v, j, 1, false)->goodput;
        p->utility += one > 0 ? goodput / one : 0;
        p->used += a->replicas;
        if (in->method == RU_ALLOC_POLLUX) {
            p->loss += rui_alloc_look(v, j, a->replicas, several)->loss[a->changed];
        }
        double x = a->speedup * (a->changed ? v->factor[j] : 1) * v->scale + 1e-3;
        sum += in->power == 0 ? ru_math_log(x) : ru_math_exp(in->power * ru_math_log(x));
    }
    double mean = in->n_jobs > 0 ? sum / in->n_jobs : 0;
    if (in->n_jobs > 0) { /* 1: all have their fair share */
        double x = in->power == 0 ? ru_math_exp(mean) : ru_math_exp(ru_math_log(mean) / in->power);
        p->fitness = (x - 1e-3) / v->scale;
    }
    p->devices = v->total;
    p->utility /= v->total > 0 ? v->total : 1;
    p->nodes_wanted = rui_alloc_nodes(v);
}

static ru_status finish(rui_alloc_values *v, rui_alloc_state *s, const uint32_t *demoted,
                        ru_arena *out, ru_alloc_plan *plan, ru_err *err)
{
    const ru_alloc_in *in = v->in;
    uint32_t n = 0;
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        n += s->n_parts[j];
    }
    ru_alloc_share *shares = RU_NEW(out, ru_alloc_share, in->n_jobs);
    ru_alloc_part *parts = RU_NEW(out, ru_alloc_part, n);
    if (shares == NULL || parts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the plan of %u jobs", in->n_jobs);
    }
    ru_alloc_plan p = {.jobs = shares, .parts = parts, .n_jobs = in->n_jobs};
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        ru_alloc_part *from = &s->parts[(size_t)j * s->spread];
        sort_parts(from, s->n_parts[j]);
        shares[j] = (ru_alloc_share){.first = p.n_parts,
                                     .n_parts = s->n_parts[j],
                                     .replicas = s->k[j],
                                     .changed = !rui_alloc_same(in, s, j),
                                     .demoted = demoted != NULL ? demoted[j] : 0};
        for (uint32_t i = 0; i < s->n_parts[j]; i++) {
            parts[p.n_parts++] = from[i];
        }
    }
    measure(v, s, shares, &p);
    *plan = p;
    return RU_OK;
}

ru_status ru_plan_alloc(const ru_alloc_in *in, ru_arena *out, ru_arena *scratch,
                        ru_alloc_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    rui_alloc_values v;
    rui_alloc_state s;
    RU_TRY(rui_alloc_values_init(&v, in, scratch, err));
    RU_TRY(rui_alloc_state_init(&s, &v, scratch, err));
    uint32_t *demoted = RU_NEW(scratch, uint32_t, in->n_jobs);
    if (demoted == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", in->n_jobs);
    }
    if (in->method == RU_ALLOC_POLLUX) {
        RU_TRY(rui_alloc_pollux(&v, &s, scratch, err));
    } else {
        RU_TRY(rui_alloc_rules(&v, &s, demoted, scratch, err));
    }
    RU_TRY(finish(&v, &s, demoted, out, plan, err));
    if (scratch != out) {
        ru_arena_rewind(scratch, mark);
    }
    return RU_OK;
}

/* -- autoscaling --------------------------------------------------------------------------------*/

/* Sum of the best speedups over one replica on n nodes of equal size, each job with an equal part,
 * over the devices. A job that explores has a bound: nodes that nobody may use yet are not rented.
 */
static double utility_of(rui_alloc_values *v, uint32_t nodes)
{
    const ru_alloc_in *in = v->in;
    uint32_t devices = nodes * v->most, k = devices / in->n_jobs;
    double sum = 0;
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        const ru_goodput_model *m = &in->jobs[j].model;
        uint32_t feeds = ru_goodput_replicas_max(m), most = k > 0 ? k : 1;
        most = most < feeds ? most : feeds;
        most = most < in->jobs[j].replicas_max ? most : in->jobs[j].replicas_max;
        if (m->perf.overlap >= 1) {
            double one = ru_goodput_best(m, 1, 1).goodput;
            double all = ru_goodput_best(m, most > v->most ? 2 : 1, most).goodput;
            sum += one > 0 ? all / one : 0;
        } else {
            sum += most;
        }
    }
    return sum / devices;
}

/* The band of the paper: the last count at which utility, which falls with nodes, is not below the
 * middle. */
static uint32_t nodes_by_band(rui_alloc_values *v, uint32_t low, uint32_t high)
{
    const ru_alloc_in *in = v->in;
    double now = utility_of(v, in->n_nodes), target = (in->util_low + in->util_high) / 2;
    if (now >= in->util_low && now <= in->util_high && in->n_nodes >= low && in->n_nodes <= high) {
        return in->n_nodes;
    }
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (utility_of(v, mid) >= target) {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    return low;
}

/* Work for the price of nodes and time together; staying is preferred to a gain of less than 3 %.
 * A fixed price of time gives the cheapest of all plans that take as long. */
static uint32_t nodes_by_price(rui_alloc_values *v, uint32_t low, uint32_t high)
{
    uint32_t best = low, step = 1 + (high - low) / 32, now = v->in->n_nodes;
    double most = 0, price = v->in->time_price;
    if (now >= low && now <= high) {
        best = now;
        most = 1.03 * utility_of(v, now) * now / (now + price);
    }
    for (uint32_t n = low; n <= high; n += step) {
        double is = utility_of(v, n) * n / (n + price);
        best = is > most ? n : best;
        most = is > most ? is : most;
    }
    return best;
}

uint32_t rui_alloc_nodes(rui_alloc_values *v)
{
    const ru_alloc_in *in = v->in;
    uint32_t low = in->nodes_min > 0 ? in->nodes_min : 1, high = in->nodes_max;
    bool scales = in->time_price > 0 || in->util_high > 0;
    if (!scales || in->n_jobs == 0 || high < low || v->most == 0) {
        return in->n_nodes;
    }
    return in->time_price > 0 ? nodes_by_price(v, low, high) : nodes_by_band(v, low, high);
}
