#include "train/pipe/ways.h"

#include <math.h>
#include <string.h>

#include "plan/cut/place.h"
#include "train/pipe/meter.h"

enum { TURNS = 6 }; /* cuts that are tried for memory */

const char *const ru_way_names[RU_WAY_KINDS] = {"single", "data",     "flush", "gpipe",
                                                "stash",  "vertical", "2bw",   "placed"};

ru_status ru_ways_open(const ru_job *job, const char *against, bool placed, uint32_t threads,
                       const uint32_t *workers, uint32_t n, ru_arena *arena, ru_ways *out,
                       ru_err *err)
{
    const ru_job_train *t = &job->train;
    rui_meter *m = RU_NEW(arena, rui_meter, 1);
    const char *why = against != NULL ? ru_arena_printf(arena, "a pipeline %s", against) : NULL;
    *out = (ru_ways){.meter = m, .no_pipeline = why, .no_placed = why};
    if (m == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the ways of a job");
    }
    *m = (rui_meter){.job = job, .arena = arena, .threads = threads};
    RU_TRY(rui_meter_open(m, err));
    rui_meter_memory eval = rui_meter_eval(m);
    out->eval_bytes = eval.state + eval.step;
    out->eval_state_bytes = eval.state;
    ru_status st = rui_meter_layers(m, workers, n, &out->layers, err);
    if (st == RU_E_CONFIG && out->layers.n_shares > 0) { /* it has no cut */
        out->no_pipeline = ru_arena_str(arena, err->text);
        out->no_placed = out->no_pipeline;
        return RU_OK;
    }
    RU_TRY(st);
    const char *other = t->pipeline.stale           ? "train.stale is for pipelines"
                        : t->pipeline.workers.n > 0 ? "train.pipeline.workers is for pipelines"
                        : t->pipeline.cut.n > 0     ? "train.pipeline.cut is for pipelines"
                                                    : NULL;
    out->no_placed = out->no_placed != NULL ? out->no_placed : other;
    return placed && n > 0 && out->no_placed == NULL ? rui_units_measure(m, &out->units, err)
                                                     : RU_OK;
}

void ru_ways_close(ru_ways *w)
{
    if (w->meter != NULL) {
        rui_meter_close(w->meter);
    }
}

/* -- memory of a pipeline ---------------------------------------------------------------------- */

/* Places of pieces at both ends of a stage. */
static int64_t piece_bytes(const ru_stages *s, uint32_t stage, uint32_t ahead)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        bool here = e->from == stage || e->to == stage;
        sum += here ? rui_meter_piece_bytes(e, ahead) : 0;
    }
    return sum;
}

/* train.recompute: inputs of a micro-batch on its way. */
static int64_t kept_bytes(const ru_stages *s, uint32_t stage)
{
    const ru_step_graph *g = &s->at[stage].step;
    int64_t sum = 0;
    for (uint32_t k = 0; k < 2; k++) {
        ru_value_id v = k == 0 ? g->x[0] : g->y[0];
        sum += v.v != 0 ? ru_type_bytes(&ru_graph_value(&g->graph, v)->type) : 0;
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        sum += e->to == stage && !e->held ? ru_type_bytes(&e->type) : 0;
    }
    return sum;
}

static bool is_enough(int64_t memory_bytes, int64_t needed)
{
    return needed >= 0 && (memory_bytes == 0 || needed <= memory_bytes);
}

/* Of who evaluates each stage: its part of the inference form, and pieces on their way. Where that
 * cannot be cut so, the last one has the whole model. */
static ru_status eval_bytes(const ru_ways *w, const ru_pipe_choice *c, const ru_stages *step,
                            int64_t *bytes, ru_err *err)
{
    const rui_meter *m = w->meter;
    const ru_job_train *t = &m->job->train;
    const ru_step_options so = {.loss = m->so.loss, .batch = m->eval_n, .x = m->so.x, .y = m->so.y};
    const ru_exe_options eo = {.device = (ru_device_kind)t->device,
                               .precision = (ru_precision)t->precision,
                               .threads = m->threads};
    ru_stages s;
    ru_err ignored = {0};
    memset(bytes, 0, step->n * sizeof *bytes);
    if (w->eval_bytes == 0) {
        return RU_OK;
    }
    if (ru_stages_build_eval(&m->model.infer, &so, c->cut, c->n_cut, step, m->arena, &s,
                             &ignored) != RU_OK) {
        bytes[step->n - 1] = w->eval_bytes;
        return RU_OK;
    }
    for (uint32_t k = 0; k < s.n; k++) {
        ru_exe *e;
        RU_TRY(ru_exe_open(&s.at[k].step.graph, &eo, &e, err));
        rui_meter_memory x = rui_meter_count(e);
        ru_exe_close(e);
        bytes[k] = x.state + x.step + piece_bytes(&s, k, 2);
    }
    return RU_OK;
}

/* Of the stage that needs most with this cut. */
static ru_status cut_bytes(const ru_ways *w, const ru_pipe_choice *c, ru_pipe_schedule schedule,
                           int64_t *most, ru_err *err)
{
    const rui_meter *m = w->meter;
    uint32_t workers[RU_STAGES_MAX], n = c->n_cut + 1, ahead = 1, least = 1;
    const ru_pipe_shape shape = {
        .schedule = schedule, .n = n, .micro = w->layers.micro, .workers = workers};
    int64_t sent = 0; /* places of messages with states at who leads */
    int64_t eval[RU_STAGES_MAX];
    ru_stages s;
    RU_CHECK(n > 1 && n <= RU_STAGES_MAX);
    RU_TRY(ru_stages_build(&m->model.train, &m->so, c->cut, c->n_cut, m->arena, &s, err));
    for (uint32_t k = 0; k < n; k++) {
        workers[k] = (uint32_t)c->workers[k];
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t x = ru_pipe_in_flight(&shape, k);
        least = x > least ? x : least;
    }
    while (ahead < least) {
        ahead *= 2;
    }
    RU_TRY(eval_bytes(w, c, &s, eval, err));
    *most = 0;
    for (uint32_t k = 0; k < n; k++) { /* the last one leads */
        rui_meter_memory x;
        int64_t params = rui_meter_bytes(&s.at[k].step.graph, RU_ROLE_PARAM);
        bool whole = ru_pipe_whole(&shape), stash = schedule == RU_PIPE_SCHEDULE_STASH;
        bool apart = shape.micro > 1 || whole; /* sums, from slots */
        int64_t late = ru_pipe_late(&shape, k);
        int64_t slots = whole ? late + 1 : ru_pipe_in_flight(&shape, k);
        int64_t versions = ru_pipe_versions(&shape, k) - 1; /* beside the newest */
        RU_TRY(rui_meter_stage_bytes(m, &s.at[k], &x, err));
        bool again = m->job->train.pipeline.recompute && slots > 1;
        slots *= whole || stash || again ? 1 : late + 1; /* others have one for each version */
        int64_t steps = again ? x.step + slots * kept_bytes(&s, k) : x.step * slots;
        int64_t sum = x.state + steps + (apart ? x.grads : 0) + versions * params +
                      2 * (workers[k] - 1) * params + piece_bytes(&s, k, ahead);
        int64_t message = rui_meter_message_bytes(x.state);
        sent += message;
        sum += eval[k] + (k + 1 < n ? message : sent - message);
        *most = sum > *most ? sum : *most;
    }
    return RU_OK;
}

/* The fastest cut that fits, else the fastest one; *is: there is one. What the policy counts is
 * less than what executables need, so it is asked again with less until they fit. */
static ru_status list_pipeline(const ru_ways *w, ru_pipe_schedule schedule, double bytes_per_s,
                               int64_t memory_bytes, ru_way *out, bool *is, ru_err *err)
{
    ru_pipe_layers l = w->layers;
    l.schedule = schedule;
    *is = false;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        ru_pipe_choice c;
        int64_t bytes;
        RU_TRY(ru_pipe_choose(&l, out->workers, bytes_per_s, w->meter->arena, &c, err));
        if (c.n_cut == 0) {
            break;
        }
        ru_status st = cut_bytes(w, &c, schedule, &bytes, err);
        RU_TRY(st != RU_E_MEM ? st : RU_OK);
        bytes = st == RU_OK ? bytes : -1;
        out->fits = is_enough(memory_bytes, bytes);
        if (turn == 0 || out->fits) {
            *is = true;
            out->c = c;
            out->step_s = c.pipeline_s;
            out->memory_bytes = bytes;
            out->net_bytes = c.sent_bytes;
        }
        if (out->fits) {
            break;
        }
        double less =
            bytes > 0 ? c.stage_bytes * (double)memory_bytes / (double)bytes : 0.7 * c.stage_bytes;
        bool slow = l.memory_bytes > 0 && less > 0.9 * l.memory_bytes;
        l.memory_bytes = slow ? 0.9 * l.memory_bytes : less;
    }
    return RU_OK;
}

/* -- all --------------------------------------------------------------------------------------- */

static ru_status list_placed(const ru_ways *w, double bytes_per_s, int64_t memory_bytes,
                             ru_way *out, bool *is, ru_err *err)
{
    *is = false;
    if (w->units == NULL || out->workers > RU_PLACE_DEVICES_MAX) {
        return RU_OK;
    }
    ru_status st =
        rui_units_ask(w->units, out->workers, bytes_per_s, memory_bytes, &out->placed, err);
    out->fits = st == RU_OK && out->placed.memory_bytes >= 0;
    if (st == RU_E_INFEASIBLE && memory_bytes > 0) { /* what it would need */
        st = rui_units_ask(w->units, out->workers, bytes_per_s, 0, &out->placed, err);
    }
    RU_TRY(st);
    RU_CHECK(out->placed.used >= 1 && out->placed.used <= out->workers);
    *is = true;
    if (out->placed.used < out->workers) {
        out->same = false;
        out->why =
            ru_arena_printf(w->meter->arena, "the shortest placed step takes %u of %u workers",
                            out->placed.used, out->workers);
    }
    /* Who has a layer that reads samples reads all of them. */
    out->step_s = fmax(out->placed.step_s, 1e-9 * (double)w->layers.read_ns);
    out->memory_bytes = out->placed.memory_bytes;
    out->net_bytes = (double)out->placed.sent_bytes;
    return RU_OK;
}

static void list_data(const ru_ways *w, double bytes_per_s, int64_t memory_bytes, ru_way *out)
{
    const ru_pipe_layers *l = &w->layers;
    ru_pipe_data(l, out->workers, bytes_per_s, &out->c);
    out->step_s = out->workers > 1 ? out->c.data_s : out->c.single_s;
    for (uint32_t k = 0; k < l->n_shares; k++) {
        const ru_pipe_share *s = &l->shares[k];
        int64_t more = s->state_bytes + w->eval_bytes - w->eval_state_bytes; /* it shares that */
        int64_t all = s->memory_bytes < 0 ? s->memory_bytes : s->memory_bytes + more;
        out->memory_bytes = s->workers == out->workers ? all : out->memory_bytes;
    }
    out->net_bytes = 2 * (out->workers - 1.0) * (double)l->weight_bytes;
    out->fits = is_enough(memory_bytes, out->memory_bytes);
}

ru_status ru_ways_list(const ru_ways *w, uint32_t workers, double bytes_per_s, int64_t memory_bytes,
                       ru_way *at, uint32_t *n, ru_err *err)
{
    const ru_job_train *t = &w->meter->job->train;
    RU_CHECK(workers >= 1 && bytes_per_s > 0);
    *n = 1;
    at[0] = (ru_way){
        .kind = workers > 1 ? RU_WAY_DATA : RU_WAY_SINGLE, .workers = workers, .same = true};
    list_data(w, bytes_per_s, memory_bytes, &at[0]);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ru_pipe_schedule_names) && workers > 1; k++) {
        ru_pipe_schedule schedule = (ru_pipe_schedule)k;
        bool asked = w->no_pipeline == NULL && (t->pipeline.stale || !ru_pipe_flows_on(schedule));
        ru_way *x = &at[*n];
        bool is = false;
        *x = (ru_way){.kind = (ru_way_kind)(RU_WAY_FLUSH + k),
                      .workers = workers,
                      .same = k == t->pipeline.schedule};
        RU_TRY(asked ? list_pipeline(w, schedule, bytes_per_s, memory_bytes, x, &is, err) : RU_OK);
        *n += is;
    }
    ru_way *x = &at[*n];
    bool is = false;
    *x = (ru_way){.kind = RU_WAY_PLACED, .workers = workers, .same = true};
    RU_TRY(workers > 1 ? list_placed(w, bytes_per_s, memory_bytes, x, &is, err) : RU_OK);
    *n += is;
    return RU_OK;
}

const ru_way *ru_ways_best(const ru_way *at, uint32_t n, bool pipeline)
{
    const ru_way *best = NULL;
    for (uint32_t k = 0; k < n; k++) { /* data parallel stands first */
        const ru_way *x = &at[k];
        double more = best != NULL && best->kind == RU_WAY_DATA ? 1 + RU_WAY_GAIN / 100.0 : 1;
        bool is = x->same && x->fits && (!pipeline || x->c.n_cut > 0);
        best = is && (best == NULL || more * x->step_s < best->step_s) ? x : best;
    }
    return best;
}
