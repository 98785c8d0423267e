/* The methods: the best pipeline by search, and the baselines by their formulas. */
#include "plan/cut/pipe.h"

#include <math.h>

#include "plan/cut/pipe_impl.h"

typedef struct planner {
    const ru_pipe_in *in;
    ru_arena *out, *scratch;
    rui_pipe_cuts cuts;
    uint32_t total;       /* workers */
    double bytes_per_s;   /* of the slowest level */
    rui_pipe_parts parts; /* first and end are cuts until stages are numbered */
    ru_pipe_stage *stages;
    uint32_t *stage_of;
    ru_pipe_plan p;
} planner;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the stages of a pipeline");
}

static ru_status check_speeds(const ru_pipe_in *in, ru_err *err)
{
    if (in->n_levels > 1 || in->n_speeds != in->levels[0].units) {
        return RU_FAIL(err, RU_E_ARG, "%u speeds of %u workers on %u levels, expected one each",
                       in->n_speeds, in->levels[0].units, in->n_levels);
    }
    for (uint32_t k = 0; k < in->n_speeds; k++) {
        if (!(in->speeds[k] > 0) || isinf(in->speeds[k])) {
            return RU_FAIL(err, RU_E_ARG, "worker %u has the speed %g, expected above 0", k,
                           in->speeds[k]);
        }
    }
    return RU_OK;
}

/* Of the worker of a stage. One worker alone is the fastest; who share a batch wait for the
 * slowest.
 */
static double speed_of(const ru_pipe_in *in, ru_pipe_method method, uint32_t stage)
{
    double speed = in->n_speeds > 0 ? in->speeds[stage] : 1;
    for (uint32_t k = 0; k < in->n_speeds; k++) {
        speed = method == RU_PIPE_SINGLE          ? fmax(speed, in->speeds[k])
                : method == RU_PIPE_DATA_PARALLEL ? fmin(speed, in->speeds[k])
                                                  : speed;
    }
    return speed;
}

static ru_status check_in(const ru_pipe_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_PIPE_LAYERS_MAX || in->n_levels < 1 ||
        in->n_levels > RU_PIPE_LEVELS_MAX || in->cuts_max < 2 || in->microbatches < 1) {
        return RU_FAIL(err, RU_E_ARG,
                       "the question is not valid: %u layers (1 to %d), %u levels (1 to %d), %u "
                       "micro-batches, %u cuts",
                       in->n, RU_PIPE_LAYERS_MAX, in->n_levels, RU_PIPE_LEVELS_MAX,
                       in->microbatches, in->cuts_max);
    }
    for (uint32_t k = 0; k < in->n_levels; k++) {
        uint32_t units = in->levels[k].units;
        if (units < 1 || units > RU_PIPE_UNITS_MAX || !(in->levels[k].bytes_per_s > 0)) {
            return RU_FAIL(err, RU_E_ARG,
                           "level %u has %u units (1 to %d) and %g bytes per second (above 0)", k,
                           units, RU_PIPE_UNITS_MAX, in->levels[k].bytes_per_s);
        }
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        if (in->edges[e].from >= in->n || in->edges[e].to >= in->n) {
            return RU_FAIL(
                err, RU_E_ARG,
                "an edge goes from layer %u to layer %u, but there are %u layers (from 0)",
                in->edges[e].from, in->edges[e].to, in->n);
        }
    }
    return in->n_speeds > 0 ? check_speeds(in, err) : RU_OK;
}

/* Stages are the parts of level 0; their workers are those of all parts around them. */
static ru_status number_stages(planner *x, ru_err *err)
{
    uint32_t around[RU_PIPE_LEVELS_MAX + 1], n = 0;
    x->stages = RU_NEW(x->out, ru_pipe_stage, x->parts.n);
    x->stage_of = RU_NEW(x->out, uint32_t, x->in->n);
    if (x->stages == NULL || x->stage_of == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k <= RU_PIPE_LEVELS_MAX; k++) {
        around[k] = 1;
    }
    uint32_t *stage_end = RU_NEW(x->scratch, uint32_t, (int64_t)x->cuts.n + 1);
    if (stage_end == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < x->parts.n; i++) {
        ru_pipe_part *p = &x->parts.at[i];
        around[p->level] = around[p->level + 1] * p->units;
        if (p->level > 0) {
            continue;
        }
        const uint64_t *from = x->cuts.set + (uint64_t)p->first * x->cuts.words;
        const uint64_t *to = x->cuts.set + (uint64_t)p->end * x->cuts.words;
        ru_pipe_stage *s = &x->stages[n];
        *s = (ru_pipe_stage){
            .workers = around[0],
            .compute_s = (x->cuts.compute_s[p->end] - x->cuts.compute_s[p->first]) /
                         speed_of(x->in, x->p.method, n),
            .param_bytes = x->cuts.param_bytes[p->end] - x->cuts.param_bytes[p->first],
            .activation_bytes =
                x->cuts.activation_bytes[p->end] - x->cuts.activation_bytes[p->first],
            .cut_bytes = p->end < x->cuts.n ? x->cuts.cut_bytes[p->end] : 0};
        for (uint32_t k = 0; k < x->in->n; k++) {
            if (((to[k / 64] & ~from[k / 64]) >> (k % 64) & 1) != 0) {
                x->stage_of[k] = n;
            }
        }
        n++;
        stage_end[p->end] = n;
    }
    for (uint32_t i = 0; i < x->parts.n; i++) { /* cut 0 ends no stage: stage_end[0] is 0 */
        x->parts.at[i].first = stage_end[x->parts.at[i].first];
        x->parts.at[i].end = stage_end[x->parts.at[i].end];
    }
    x->p.n_stages = n;
    return RU_OK;
}

/* Minibatches under way and versions by 1F1B; memory. */
static void schedule(planner *x)
{
    uint32_t behind = 0;
    for (uint32_t s = x->p.n_stages; s-- > 0;) {
        ru_pipe_stage *t = &x->stages[s];
        t->in_flight = ru_cost_pipe_in_flight(t->workers, behind);
        t->versions = t->in_flight;
        t->memory_bytes = ru_cost_pipe_memory_bytes(
            x->in->model, t->param_bytes, t->activation_bytes, t->in_flight, x->in->state);
        behind += t->workers;
    }
    x->p.workers = behind;
}

static ru_status search(planner *x, bool straight, ru_err *err)
{
    RU_TRY(
        rui_pipe_search(x->in, &x->cuts, straight, x->scratch, &x->parts, &x->p.minibatch_s, err));
    RU_TRY(number_stages(x, err));
    schedule(x);
    return RU_OK;
}

/* All layers as one part of each level, on all its units. */
static double data_parallel_s(const planner *x)
{
    double s = x->cuts.compute_s[x->cuts.n] / speed_of(x->in, RU_PIPE_DATA_PARALLEL, 0);
    double param = x->cuts.param_bytes[x->cuts.n];
    for (uint32_t k = 0; k < x->in->n_levels; k++) {
        const ru_pipe_cost c = {x->in->model, x->in->levels[k].bytes_per_s,
                                k > 0 ? x->in->levels[k - 1].units : 1, x->in->compression,
                                x->in->overlap};
        ru_pipe_rate rate = ru_cost_pipe_rate(&c, x->in->levels[k].units, true);
        s = ru_cost_pipe_stage_s(&rate, s, param);
        param /= x->in->model == RU_PIPE_CALIBRATED ? x->in->levels[k].units : 1;
    }
    return s;
}

/* One stage with all layers on `workers`, one version of the weights. */
static ru_status one_stage(planner *x, uint32_t workers, ru_err *err)
{
    ru_pipe_part *p = rui_pipe_parts_push(&x->parts, x->scratch);
    if (p == NULL) {
        return full(err);
    }
    *p = (ru_pipe_part){0, workers, 0, x->cuts.n, 0};
    RU_TRY(number_stages(x, err));
    x->stages[0].workers = workers;
    schedule(x);
    x->parts.n = 0;
    return RU_OK;
}

/* The straight cut for a group of `depth` workers over the slowest links, without a memory bound;
 * its parts are the planner's. */
static ru_status straight_group(planner *x, uint32_t depth, double *bottleneck_s, ru_err *err)
{
    const ru_pipe_level level = {depth, x->bytes_per_s};
    ru_pipe_in group = *x->in;
    group.levels = &level;
    group.n_levels = 1;
    group.memory_bytes = 0;
    x->parts.n = 0;
    return rui_pipe_search(&group, &x->cuts, true, x->scratch, &x->parts, bottleneck_s, err);
}

static ru_pipe_cost slow_cost(const planner *x)
{
    return (ru_pipe_cost){x->in->model, x->bytes_per_s, 1, x->in->compression, x->in->overlap};
}

/* Seconds that a minibatch is on the way between the parts of the group. */
static double travel_s(const planner *x)
{
    const ru_pipe_cost c = slow_cost(x);
    double s = 0;
    for (uint32_t i = 0; i + 1 < x->parts.n; i++) {
        s += ru_cost_pipe_boundary_s(&c, x->cuts.cut_bytes[x->parts.at[i].end], 1, 1);
    }
    return s;
}

/* Seconds of a minibatch when `copies` of the group share the work; each stage adds its gradients
 * over the copies once in `every` minibatches. In turn: one minibatch is in the group. */
static double group_s(const planner *x, uint32_t copies, uint32_t every, bool in_turn,
                      double bottleneck_s)
{
    const ru_pipe_cost c = slow_cost(x);
    double parts_s = 0, sync_s = 0;
    for (uint32_t i = 0; i < x->parts.n; i++) {
        const ru_pipe_part *p = &x->parts.at[i];
        double param = x->cuts.param_bytes[p->end] - x->cuts.param_bytes[p->first];
        double own = ru_cost_pipe_rate(&c, copies, false).sync_s_per_byte * param / every;
        sync_s = fmax(sync_s, own);
        parts_s += (x->cuts.compute_s[p->end] - x->cuts.compute_s[p->first]) /
                   speed_of(x->in, x->p.method, i);
    }
    ru_pipe_rate rate = ru_cost_pipe_rate(&c, copies, false);
    rate.sync_s_per_byte = 1;
    return ru_cost_pipe_stage_s(&rate, in_turn ? parts_s + travel_s(x) : bottleneck_s, sync_s);
}

/* Of all ways to make equal groups of the workers, the fastest one. */
static ru_status plan_groups(planner *x, bool in_turn, uint32_t every, ru_err *err)
{
    double bottleneck_s;
    uint32_t best = 0;
    x->p.minibatch_s = INFINITY;
    for (uint32_t depth = 1; depth <= x->total; depth++) {
        if (x->total % depth != 0 || depth > RU_PIPE_UNITS_MAX) {
            continue;
        }
        ru_arena_mark mark = ru_arena_mark_get(x->scratch);
        rui_pipe_parts parts = x->parts;
        RU_TRY(straight_group(x, depth, &bottleneck_s, err));
        double s = isinf(bottleneck_s) ? (double)INFINITY
                                       : group_s(x, x->total / depth, every, in_turn, bottleneck_s);
        best = s < x->p.minibatch_s ? depth : best;
        x->p.minibatch_s = s < x->p.minibatch_s ? s : x->p.minibatch_s;
        x->parts = parts;
        ru_arena_rewind(x->scratch, mark);
    }
    RU_TRY(straight_group(x, best, &bottleneck_s, err));
    RU_TRY(number_stages(x, err));
    schedule(x);
    x->p.copies = x->total / best;
    x->p.workers *= x->p.copies;
    for (uint32_t s = 0; s < x->p.n_stages; s++) {
        ru_pipe_stage *t = &x->stages[s];
        t->in_flight = in_turn ? 1 : t->in_flight;
        t->versions = in_turn ? 1 : 2;
        t->memory_bytes =
            t->param_bytes * (t->versions + x->in->state) + t->activation_bytes * t->in_flight;
    }
    x->parts.n = 0;
    return RU_OK;
}

/* One group as deep as helps. Microbatches are equal parts of a minibatch. */
static ru_status plan_one_group(planner *x, ru_pipe_method method, ru_err *err)
{
    double bottleneck_s;
    uint32_t depth = x->total < RU_PIPE_UNITS_MAX ? x->total : RU_PIPE_UNITS_MAX;
    bool in_turn = method == RU_PIPE_IN_TURN;
    RU_TRY(straight_group(x, depth, &bottleneck_s, err));
    double m = x->in->microbatches, stages = x->parts.n;
    x->p.minibatch_s =
        in_turn ? group_s(x, 1, 1, true, bottleneck_s) : bottleneck_s * (m + stages - 1) / m;
    RU_TRY(number_stages(x, err));
    schedule(x);
    for (uint32_t s = 0; s < x->p.n_stages; s++) {
        ru_pipe_stage *t = &x->stages[s];
        double kept = in_turn || method == RU_PIPE_GPIPE ? 1 : fmin(t->in_flight / m, 1);
        t->in_flight = in_turn ? 1 : method == RU_PIPE_GPIPE ? x->in->microbatches : t->in_flight;
        t->versions = 1;
        t->memory_bytes = t->param_bytes * (1 + x->in->state) + t->activation_bytes * kept;
    }
    x->parts.n = 0;
    return RU_OK;
}

/* Does it give a worker a stage, or all workers all layers? */
static bool one_each(ru_pipe_method m)
{
    return m == RU_PIPE_STRAIGHT || m == RU_PIPE_IN_TURN || m == RU_PIPE_GPIPE ||
           m == RU_PIPE_FLUSH || m == RU_PIPE_SINGLE || m == RU_PIPE_DATA_PARALLEL;
}

static ru_status by_method(planner *x, ru_pipe_method method, ru_err *err)
{
    double all_s = x->cuts.compute_s[x->cuts.n];
    x->p.method = method;
    if (x->in->n_speeds > 0 && !one_each(method)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a stage of several workers needs workers of one speed; with 'speeds' take "
                       "straight, model_parallel, gpipe or flush");
    }
    switch (method) {
    case RU_PIPE_STRAIGHT:
        return search(x, true, err);
    case RU_PIPE_NAIVE:
        RU_TRY(search(x, false, err));
        for (uint32_t s = 0; s < x->p.n_stages; s++) {
            ru_pipe_stage *t = &x->stages[s];
            t->versions = 1;
            t->memory_bytes =
                t->param_bytes * (1 + x->in->state) + t->activation_bytes * t->in_flight;
        }
        return RU_OK;
    case RU_PIPE_DATA_PARALLEL:
        x->p.minibatch_s = x->p.data_parallel_s;
        return one_stage(x, x->total, err);
    case RU_PIPE_SINGLE:
        x->p.minibatch_s = x->p.single_s;
        return one_stage(x, 1, err);
    case RU_PIPE_ASP: {
        double sync_s = 2 * x->cuts.param_bytes[x->cuts.n] / x->bytes_per_s;
        x->p.minibatch_s = fmax(all_s, sync_s) / x->total;
        return one_stage(x, x->total, err);
    }
    case RU_PIPE_HYBRID:
        return plan_groups(x, true, 1, err);
    case RU_PIPE_TWO_VERSIONS:
        return plan_groups(x, false, x->in->microbatches, err);
    case RU_PIPE_IN_TURN:
    case RU_PIPE_GPIPE:
    case RU_PIPE_FLUSH:
        return plan_one_group(x, method, err);
    case RU_PIPE_PIPELINE:
    case RU_PIPE_METHODS:
        break;
    }
    return search(x, false, err);
}

static ru_status check_memory(const planner *x, ru_err *err)
{
    for (uint32_t s = 0; s < x->p.n_stages && x->in->memory_bytes > 0; s++) {
        if (x->stages[s].memory_bytes > x->in->memory_bytes) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "stage %u needs %.4g bytes of memory on a worker, but a worker has %.4g",
                           s, x->stages[s].memory_bytes, x->in->memory_bytes);
        }
    }
    return RU_OK;
}

/* Those that train as PIPELINE does, in the order in which the first wins. */
static const ru_pipe_method alike[] = {RU_PIPE_PIPELINE, RU_PIPE_SINGLE,  RU_PIPE_DATA_PARALLEL,
                                       RU_PIPE_STRAIGHT, RU_PIPE_IN_TURN, RU_PIPE_HYBRID,
                                       RU_PIPE_GPIPE,    RU_PIPE_FLUSH};

/* The fastest that fits into memory, with the error of the pipeline when none does. */
static ru_status best_method(planner *x, ru_err *err)
{
    planner best = {0};
    ru_err why, *say = err;
    ru_status first = RU_OK;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(alike); k++) {
        planner y = *x;
        ru_status st = by_method(&y, alike[k], say);
        st = st == RU_OK ? check_memory(&y, say) : st;
        if (st != RU_OK && st != RU_E_INFEASIBLE) {
            return k == 0 ? st : ru_err_set(err, st, "%s", why.text);
        }
        first = k == 0 ? st : first;
        if (st == RU_OK && (best.in == NULL || y.p.minibatch_s < best.p.minibatch_s)) {
            best = y;
        }
        say = &why;
    }
    if (best.in == NULL) {
        return first;
    }
    *x = best;
    return RU_OK;
}

ru_status ru_plan_pipe(const ru_pipe_in *in, ru_arena *out, ru_arena *scratch, ru_pipe_plan *plan,
                       ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    planner x = {.in = in, .out = out, .scratch = scratch, .total = 1, .bytes_per_s = INFINITY};
    for (uint32_t k = 0; k < in->n_levels; k++) {
        if (in->levels[k].units > 65536 / x.total) {
            return RU_FAIL(err, RU_E_ARG, "more than 65536 workers in all levels");
        }
        x.total *= in->levels[k].units;
        x.bytes_per_s = fmin(x.bytes_per_s, in->levels[k].bytes_per_s);
    }
    x.p.copies = 1;
    RU_TRY(rui_pipe_cuts_find(in, scratch, &x.cuts, err));
    x.p.single_s = x.cuts.compute_s[x.cuts.n] / speed_of(in, RU_PIPE_SINGLE, 0);
    x.p.data_parallel_s = data_parallel_s(&x);
    if (in->method == RU_PIPE_PIPELINE) {
        RU_TRY(best_method(&x, err));
    } else {
        RU_TRY(by_method(&x, in->method, err));
        RU_TRY(check_memory(&x, err));
    }
    if (x.parts.n > 0) {
        x.p.parts = ru_arena_copy(out, x.parts.at, (int64_t)(x.parts.n * sizeof *x.parts.at),
                                  _Alignof(ru_pipe_part));
        if (x.p.parts == NULL) {
            return full(err);
        }
    }
    x.p.n_parts = x.parts.n;
    x.p.in_flight = x.stages[0].in_flight;
    x.p.stages = x.stages;
    x.p.stage_of = x.stage_of;
    x.p.n_layers = in->n;
    x.p.n_cuts = x.cuts.n;
    x.p.all_cuts = x.cuts.all;
    *plan = x.p;
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    return RU_OK;
}
