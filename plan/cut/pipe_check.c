/* The judge of pipelines: sums of layers by stage, cuts by walking the edges, times by reading the
 * parts from the outside to the inside. */
#include <math.h>
#include <string.h>

#include "plan/cut/pipe.h"

typedef struct judge {
    const ru_pipe_in *in;
    const ru_pipe_plan *p;
    uint32_t total;     /* workers there are */
    double bytes_per_s; /* of the slowest level */
    bool *seen;         /* [n] */
    bool *ends;         /* [n] no layer of the cut reads it */
    bool *counts;       /* [n] its output crosses the cut */
    uint32_t at;        /* part to read next */
} judge;

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)));
}

static ru_status check_layers(const judge *j, ru_err *err)
{
    const ru_pipe_plan *p = j->p;
    if (p->n_layers != j->in->n || p->n_stages < 1 || p->n_stages > j->in->n || p->copies < 1) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the plan has %u stages in %u copies of %u layers, but there are %u layers",
                       p->n_stages, p->copies, p->n_layers, j->in->n);
    }
    for (uint32_t i = 0; i < j->in->n; i++) {
        if (p->stage_of[i] >= p->n_stages) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "layer %u is in stage %u of %u", i, p->stage_of[i],
                           p->n_stages);
        }
    }
    for (uint32_t e = 0; e < j->in->n_edges; e++) {
        uint32_t a = j->in->edges[e].from, b = j->in->edges[e].to;
        if (p->stage_of[a] > p->stage_of[b]) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "layer %u of stage %u reads layer %u of stage %u",
                           b, p->stage_of[b], a, p->stage_of[a]);
        }
    }
    return RU_OK;
}

/* Everything that `last` needs, itself too, by going over the edges until nothing is new. */
static void mark_needed(judge *j, uint32_t last)
{
    memset(j->seen, 0, j->in->n * sizeof *j->seen);
    j->seen[last] = true;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t e = j->in->n_edges; e-- > 0;) {
            bool fresh = j->seen[j->in->edges[e].to] && !j->seen[j->in->edges[e].from];
            j->seen[j->in->edges[e].from] = fresh || j->seen[j->in->edges[e].from];
            more = more || fresh;
        }
    }
}

/* Bytes that cross behind stage s, as the model counts them. */
static double cut_after(judge *j, uint32_t s)
{
    const ru_pipe_in *in = j->in;
    const uint32_t *stage = j->p->stage_of;
    double bytes = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        j->ends[i] = stage[i] <= s;
        j->counts[i] = false;
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        bool inside = stage[in->edges[e].to] <= s;
        j->ends[in->edges[e].from] = j->ends[in->edges[e].from] && !inside;
        j->counts[in->edges[e].from] =
            j->counts[in->edges[e].from] ||
            (in->model == RU_PIPE_CALIBRATED && stage[in->edges[e].from] <= s && !inside);
    }
    for (uint32_t i = 0; i < in->n && in->model != RU_PIPE_CALIBRATED; i++) {
        if (!j->ends[i]) {
            continue;
        }
        j->counts[i] = true;
        mark_needed(j, i);
        for (uint32_t e = 0; e < in->n_edges; e++) {
            if (j->seen[in->edges[e].from] && !j->seen[in->edges[e].to] && in->edges[e].from != i) {
                j->counts[in->edges[e].from] = true;
            }
        }
    }
    for (uint32_t i = 0; i < in->n; i++) {
        bytes += j->counts[i] ? (double)in->layers[i].activation_bytes : 0;
    }
    return bytes;
}

/* The worker of the stage; of one stage with all layers the fastest one, or the slowest of all. */
static double speed(const judge *j, uint32_t stage, bool one, bool all)
{
    const double *at = j->in->speeds;
    double x = j->in->n_speeds > 0 ? at[stage] : 1;
    for (uint32_t k = 0; k < j->in->n_speeds; k++) {
        x = (one && at[k] > x) || (all && at[k] < x) ? at[k] : x;
    }
    return x;
}

static ru_status check_sums(judge *j, ru_err *err)
{
    bool one = j->p->method == RU_PIPE_SINGLE, all = j->p->method == RU_PIPE_DATA_PARALLEL;
    if (j->in->n_speeds > 0 && j->p->n_stages > j->in->n_speeds) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u stages for %u workers", j->p->n_stages,
                       j->in->n_speeds);
    }
    for (uint32_t s = 0; s < j->p->n_stages; s++) {
        const ru_pipe_stage *t = &j->p->stages[s];
        double compute = 0, param = 0, activation = 0;
        uint32_t n = 0;
        for (uint32_t i = 0; i < j->in->n; i++) {
            if (j->p->stage_of[i] == s) {
                compute += (double)j->in->layers[i].compute_ns;
                param += (double)j->in->layers[i].param_bytes;
                activation += (double)j->in->layers[i].activation_bytes;
                n++;
            }
        }
        compute /= speed(j, s, one, all);
        double cut = s + 1 < j->p->n_stages ? cut_after(j, s) : 0;
        /* sums of cuts are subtracted: small stages inherit the rounding of large ones */
        bool same = fabs(compute * 1e-9 - t->compute_s) <= 1e-12 * (1 + j->p->single_s) &&
                    near(param, t->param_bytes) && near(activation, t->activation_bytes) &&
                    near(cut, t->cut_bytes);
        if (n == 0 || !same) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "stage %u has %u layers of %g s, %g bytes of weights, %g of outputs, %g "
                           "to later stages: the plan says %g, %g, %g, %g",
                           s, n, compute * 1e-9, param, activation, cut, t->compute_s,
                           t->param_bytes, t->activation_bytes, t->cut_bytes);
        }
    }
    return RU_OK;
}

/* Gradients of `param` bytes over m units, and the time of a minibatch with them. */
static double shared_s(const ru_pipe_in *in, double bytes_per_s, double inner, double compute,
                       double param, double m)
{
    double ring = 2 * (m - 1) / m * param / bytes_per_s;
    if (in->model == RU_PIPE_REPO) {
        return (compute + 2 * ring / inner) / m;
    }
    if (in->model == RU_PIPE_PAPER) {
        return fmax(compute, ring * m) / m;
    }
    return (fmax(compute, ring) + (1 - in->overlap) * fmin(compute, ring)) / m;
}

static double crossing_s(const ru_pipe_in *in, double bytes_per_s, double bytes, double left,
                         double right)
{
    double links = in->model == RU_PIPE_REPO    ? right
                   : in->model == RU_PIPE_PAPER ? 1
                                                : fmin(left, right);
    return in->compression > 0 ? 2 * bytes / bytes_per_s / links / in->compression : 0;
}

/* The parts of a level that compute stages [first, end), around[k + 1] workers being around each;
 * their slowest part or boundary. NaN when they are no parts of that. One part of all units
 * exchanges gradients among them first: outer levels once in *share minibatches (calibrated). */
static double read_level(judge *j, uint32_t k, uint32_t first, uint32_t end, uint32_t around,
                         double *share)
{
    const ru_pipe_in *in = j->in;
    double most = 0, bytes_per_s = in->levels[k].bytes_per_s;
    double below = 1;
    uint32_t used = 0, before = 0;
    for (uint32_t from = first; from < end;) {
        const ru_pipe_part *p = &j->p->parts[j->at];
        if (j->at >= j->p->n_parts || p->level != k || p->first != from || p->end <= from ||
            p->end > end || p->units < 1 || p->units > in->levels[k].units - used ||
            (j->p->method == RU_PIPE_STRAIGHT && p->units != 1) || (k == 0 && p->end != from + 1)) {
            return RU_NAN;
        }
        j->at++;
        used += p->units;
        double compute = j->p->stages[from].compute_s, param = 0;
        for (uint32_t s = from; s < p->end; s++) {
            param += j->p->stages[s].param_bytes;
        }
        if (k > 0) {
            compute = read_level(j, k - 1, from, p->end, around * p->units, &below);
            param /= below;
        } else if (j->p->stages[from].workers != around * p->units) {
            return RU_NAN;
        }
        double inner = k > 0 && before == 0 ? in->levels[k - 1].units : 1;
        double s = shared_s(in, bytes_per_s, inner, compute, param, p->units);
        if (isnan(compute) || !(fabs(s - p->time_s) <= 1e-9 * s + 1e-12)) {
            return RU_NAN;
        }
        most = fmax(most, s);
        if (before > 0) {
            most = fmax(most, crossing_s(in, bytes_per_s, j->p->stages[from - 1].cut_bytes, before,
                                         p->units));
        }
        if (before > 0 && in->model == RU_PIPE_REPO) { /* charged twice */
            most = fmax(most, crossing_s(in, bytes_per_s, j->p->stages[p->end - 1].cut_bytes,
                                         p->units, p->units));
        }
        before = p->units;
        from = p->end;
        *share = p->first == first && p->end == end && p->units == in->levels[k].units &&
                         in->model == RU_PIPE_CALIBRATED
                     ? below * p->units
                     : 1;
    }
    bool fewer = (in->model == RU_PIPE_CALIBRATED || j->p->method == RU_PIPE_STRAIGHT) &&
                 k + 1 == in->n_levels;
    return used == in->levels[k].units || fewer ? most : RU_NAN;
}

static double all_together_s(const judge *j, double compute, double param)
{
    for (uint32_t k = 0; k < j->in->n_levels; k++) {
        compute =
            shared_s(j->in, j->in->levels[k].bytes_per_s, k > 0 ? j->in->levels[k - 1].units : 1,
                     compute, param, j->in->levels[k].units);
        param /= j->in->model == RU_PIPE_CALIBRATED ? j->in->levels[k].units : 1;
    }
    return compute;
}

/* Of baselines that are groups of one worker a stage. */
static double group_s(const judge *j, bool in_turn, double every)
{
    double sum = 0, slowest = 0, sync = 0, m = j->p->copies;
    for (uint32_t s = 0; s < j->p->n_stages; s++) {
        const ru_pipe_stage *t = &j->p->stages[s];
        double cross = crossing_s(j->in, j->bytes_per_s, t->cut_bytes, 1, 1);
        sum += t->compute_s + cross;
        slowest = fmax(slowest, fmax(t->compute_s, cross));
        sync = fmax(sync, t->param_bytes / every);
    }
    return shared_s(j->in, j->bytes_per_s, 1, in_turn ? sum : slowest, sync, m);
}

static double expected_s(judge *j)
{
    const ru_pipe_plan *p = j->p;
    double compute = 0, param = 0, micro = j->in->microbatches;
    for (uint32_t i = 0; i < j->in->n; i++) {
        compute += (double)j->in->layers[i].compute_ns;
        param += (double)j->in->layers[i].param_bytes;
    }
    compute *= 1e-9;
    double alone = compute / speed(j, 0, true, false);
    if (!near(alone, p->single_s) ||
        !near(all_together_s(j, compute / speed(j, 0, false, true), param), p->data_parallel_s)) {
        return RU_NAN;
    }
    switch (p->method) {
    case RU_PIPE_DATA_PARALLEL:
        return p->data_parallel_s;
    case RU_PIPE_SINGLE:
        return alone;
    case RU_PIPE_ASP:
        return fmax(compute, 2 * param / j->bytes_per_s) / j->total;
    case RU_PIPE_IN_TURN:
        return group_s(j, true, 1);
    case RU_PIPE_HYBRID:
        return group_s(j, true, 1);
    case RU_PIPE_GPIPE:
    case RU_PIPE_FLUSH:
        return group_s(j, false, 1) * (micro + p->n_stages - 1) / micro;
    case RU_PIPE_TWO_VERSIONS:
        return group_s(j, false, micro);
    case RU_PIPE_PIPELINE:
    case RU_PIPE_STRAIGHT:
    case RU_PIPE_NAIVE:
    case RU_PIPE_METHODS:
        break;
    }
    double share, s = read_level(j, j->in->n_levels - 1, 0, p->n_stages, 1, &share);
    return j->at == p->n_parts ? s : RU_NAN;
}

/* Minibatches that have to be under way so that stage s never waits. */
static uint32_t depth(const judge *j, uint32_t s)
{
    uint32_t later = 0, own = j->p->stages[s].workers, n = 1;
    for (uint32_t k = s + 1; k < j->p->n_stages; k++) {
        later += j->p->stages[k].workers;
    }
    while ((uint64_t)own * (n - 1) < later) {
        n++;
    }
    return n;
}

/* Minibatches under way, versions and memory of a stage by the method's rule. */
static void expected_memory(const judge *j, uint32_t s, ru_pipe_stage *t)
{
    const ru_pipe_in *in = j->in;
    double kept = t->in_flight = t->versions = depth(j, s);
    bool stashes = false;
    switch (j->p->method) {
    case RU_PIPE_IN_TURN:
    case RU_PIPE_HYBRID:
        kept = t->in_flight = t->versions = 1;
        break;
    case RU_PIPE_GPIPE:
        t->in_flight = in->microbatches;
        t->versions = 1;
        kept = 1;
        break;
    case RU_PIPE_FLUSH:
        kept = fmin(kept / in->microbatches, 1);
        t->versions = 1;
        break;
    case RU_PIPE_NAIVE:
        t->versions = 1;
        break;
    case RU_PIPE_TWO_VERSIONS:
        t->versions = 2;
        break;
    case RU_PIPE_PIPELINE:
    case RU_PIPE_STRAIGHT:
    case RU_PIPE_DATA_PARALLEL:
    case RU_PIPE_SINGLE:
    case RU_PIPE_ASP:
    case RU_PIPE_METHODS:
        stashes = true;
        break;
    }
    t->memory_bytes = t->param_bytes * (t->versions + in->state) + t->activation_bytes * kept;
    if (in->model == RU_PIPE_REPO && stashes) { /* neither the version in use nor gradients */
        t->memory_bytes = (t->param_bytes + t->activation_bytes) * (kept - 1);
    }
}

static ru_status check_stages(const judge *j, ru_err *err)
{
    uint32_t workers = 0;
    for (uint32_t s = 0; s < j->p->n_stages; s++) {
        const ru_pipe_stage *t = &j->p->stages[s];
        if (t->workers < 1 || t->workers > j->total || workers > j->total - t->workers) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "stage %u has %u workers, there are %u in all", s,
                           t->workers, j->total);
        }
        workers += t->workers;
    }
    if ((uint64_t)workers * j->p->copies != j->p->workers || j->p->workers > j->total) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u workers in %u copies, the plan says %u of %u",
                       workers, j->p->copies, j->p->workers, j->total);
    }
    for (uint32_t s = 0; s < j->p->n_stages; s++) {
        const ru_pipe_stage *t = &j->p->stages[s];
        ru_pipe_stage want = *t;
        expected_memory(j, s, &want);
        if (t->in_flight != want.in_flight || t->versions != want.versions ||
            !near(t->memory_bytes, want.memory_bytes)) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "stage %u needs %u minibatches under way, %u versions, %g bytes: the "
                           "plan says %u, %u, %g",
                           s, want.in_flight, want.versions, want.memory_bytes, t->in_flight,
                           t->versions, t->memory_bytes);
        }
        if (j->in->memory_bytes > 0 && t->memory_bytes > j->in->memory_bytes) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "stage %u needs %g bytes, a worker has %g", s,
                           t->memory_bytes, j->in->memory_bytes);
        }
    }
    return RU_OK;
}

ru_status ru_plan_pipe_check(const ru_pipe_in *in, const ru_pipe_plan *plan, ru_arena *scratch,
                             ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    judge j = {.in = in, .p = plan, .total = 1, .bytes_per_s = INFINITY};
    j.seen = RU_NEW(scratch, bool, in->n);
    j.ends = RU_NEW(scratch, bool, in->n);
    j.counts = RU_NEW(scratch, bool, in->n);
    if (j.seen == NULL || j.ends == NULL || j.counts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to check the stages of %u layers", in->n);
    }
    for (uint32_t k = 0; k < in->n_levels; k++) {
        j.total *= in->levels[k].units;
        j.bytes_per_s = fmin(j.bytes_per_s, in->levels[k].bytes_per_s);
    }
    bool other = plan->method == RU_PIPE_ASP || plan->method == RU_PIPE_NAIVE ||
                 plan->method == RU_PIPE_TWO_VERSIONS; /* other training */
    if (plan->method != in->method && (in->method != RU_PIPE_PIPELINE || other)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan is of method %u, asked was %u",
                       (uint32_t)plan->method, (uint32_t)in->method);
    }
    RU_TRY(check_layers(&j, err));
    RU_TRY(check_sums(&j, err));
    RU_TRY(check_stages(&j, err));
    double s = expected_s(&j);
    if (!near(s, plan->minibatch_s)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the parts take %g s for a minibatch, the plan says %g (one worker %g, data "
                       "parallel %g)",
                       s, plan->minibatch_s, plan->single_s, plan->data_parallel_s);
    }
    if (plan->in_flight != plan->stages[0].in_flight) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u minibatches under way, the first stage has %u",
                       plan->in_flight, plan->stages[0].in_flight);
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
