#include "train/pipe/measure.h"

#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "exec/pool.h"
#include "exec/together.h"
#include "store/world_file.h"
#include "train/driver/eval.h"
#include "train/pipe/meter.h"
#include "train/pipe/profile.h"

enum { RUNS = RUI_METER_RUNS };

typedef rui_meter meter;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the layers is full");
}

ru_status rui_meter_open(rui_meter *m, ru_err *err)
{
    const ru_job_train *t = &m->job->train;
    ru_model_facts facts;
    ru_data_options d = ru_job_data_options(m->job, false);
    RU_TRY(ru_dataset_open(&d, &m->data, err));
    RU_TRY(ru_model_facts_from(m->data, m->arena, &facts, err));
    RU_TRY(ru_model_open(m->job, &facts, NULL, m->arena, &m->model, err));
    int64_t micro = t->accumulate > 1 ? t->accumulate : 1;
    m->so = (ru_step_options){.loss = m->model.loss,
                              .optimizer = ru_job_optimizer_get(m->job),
                              .groups = t->groups.at,
                              .n_groups = t->groups.n,
                              .label_smoothing = t->label_smoothing,
                              .batch = t->batch / micro,
                              .share_of = t->batch,
                              .x = facts.x,
                              .y = facts.y};
    const ru_job_data *data = &m->job->data;
    int64_t most = ru_eval_batch(m->job); /* as the trainer does */
    bool few = data->test_count > 0 && data->test_count < most && !(data->validation > 0);
    m->eval_n = !ru_job_has_test(m->job) ? 0 : few ? data->test_count : most;
    return RU_OK;
}

void rui_meter_close(rui_meter *m)
{
    ru_model_close(&m->model);
    ru_dataset_close(m->data);
}

/* -- layers ------------------------------------------------------------------------------------ */

/* The layer of a state: what stands before the last point of its name. */
static const char *layer_of(const ru_value *v, ru_arena *arena)
{
    const char *dot = v->kind == RU_VALUE_STATE && v->name != NULL ? strrchr(v->name, '.') : NULL;
    return dot != NULL ? ru_arena_strn(arena, v->name, dot - v->name) : NULL;
}

/* Every layer but the first, in the order of the model; of too many, evenly spaced ones. */
static ru_status list_layers(const meter *m, const char ***out, uint32_t *n, ru_err *err)
{
    const ru_graph *g = &m->model.train;
    const char **at = RU_NEW(m->arena, const char *, g->n_values);
    uint32_t found = 0;
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        /* A normalisation stays with the convolution whose kernel it may be a part of. */
        bool look = g->nodes[i].op != RU_OP_BatchNormTrain;
        for (uint32_t k = 0; k < g->nodes[i].n_in && look; k++) {
            const char *name = layer_of(&g->values[g->nodes[i].in[k].v], m->arena);
            look = name == NULL;
            for (uint32_t j = 0; j < found && !look; j++) {
                if (strcmp(at[j], name) == 0) {
                    name = NULL;
                    break;
                }
            }
            if (name != NULL) {
                at[found++] = name;
            }
        }
    }
    uint32_t some = found > RU_STAGES_MAX ? RU_STAGES_MAX : found;
    for (uint32_t k = 0; k < some; k++) {
        at[k] = at[(uint64_t)k * found / some];
    }
    if (some < 2) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the model has %u layer%s with parameters, so it cannot be cut; train it "
                       "data parallel",
                       some, some == 1 ? "" : "s");
    }
    *out = at;
    *n = some;
    return RU_OK;
}

/* -- times ------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int64_t rui_meter_median(int64_t *ns)
{
    qsort(ns, RUNS, sizeof *ns, compare);
    return ns[RUNS / 2];
}

void rui_meter_fill(const ru_graph *g, ru_exe *e)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ru_type *t = &ru_graph_value(g, g->inputs[i])->type;
        void *p = ru_exe_input(e, g->inputs[i]);
        for (int64_t k = 0; k < ru_type_count(t) && t->dtype == RU_F32; k++) {
            ((float *)p)[k] = (float)(k * 131 % 257) / 257.0f - 0.5f;
        }
    }
}

static ru_exe_options stage_options(const rui_meter *m, const ru_stage *s)
{
    const ru_job_train *t = &m->job->train;
    return (ru_exe_options){.device = (ru_device_kind)t->device,
                            .precision = (ru_precision)t->precision,
                            .threads = m->threads,
                            .two_phase = true,
                            .forward = s->ends,
                            .n_forward = s->n_ends,
                            .ports = s->ports,
                            .n_ports = s->n_ports};
}

ru_status rui_meter_stage(const rui_meter *m, const ru_stage *s, ru_exe **out, ru_err *err)
{
    const ru_exe_options eo = stage_options(m, s);
    return ru_exe_open(&s->step.graph, &eo, out, err);
}

ru_status rui_meter_part(const rui_meter *m, const ru_stages *s, const ru_placed *p, uint32_t part,
                         ru_exe **out, ru_err *err)
{
    ru_exe_options eo = stage_options(m, &s->at[part]);
    ru_value_id *ports;
    uint32_t n_brief;
    RU_TRY(ru_placed_ports(s, p, part, m->arena, &ports, &n_brief, err));
    eo.ports = ports;
    return ru_exe_open_part(&s->at[part].step.graph, &eo, n_brief, out, err);
}

ru_status rui_meter_predict(const rui_meter *m, const ru_exe *e, ru_meter_told *out, ru_err *err)
{
    ru_op_fact *ops;
    const ru_exe_grad *grads;
    uint32_t n, n_grads = ru_exe_grads(e, &grads), update;
    RU_TRY(ru_exe_ops(e, 0, m->arena, &ops, &n, err));
    update = n;
    for (uint32_t k = 0; k < n_grads; k++) {
        update = grads[k].read < update ? grads[k].read : update;
    }
    ru_profile_step often = ru_cost_profile_step(m->facts, ops, update);
    ru_profile_step once = ru_cost_profile_step(m->facts, ops + update, n - update);
    *out = (ru_meter_told){.often_ns = often.ns,
                           .once_ns = once.ns,
                           .error = often.error > once.error ? often.error : once.error};
    return RU_OK;
}

ru_status rui_meter_sums(const meter *m, const ru_stage *s, const ru_exe *e, double *ns,
                         ru_err *err)
{
    const ru_exe_grad *grads;
    uint32_t n = ru_exe_grads(e, &grads);
    const ru_graph *g = &s->step.graph;
    ru_op_fact *ops = RU_NEW(m->arena, ru_op_fact, n + 1);
    char one[128];
    if (ops == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_type *t = &ru_graph_value(g, grads[k].value)->type;
        const char *x = ru_type_print(g, t, one, sizeof one);
        ops[k] = (ru_op_fact){.op = "AddInto",
                              .kernel = "kern map2",
                              .shapes = ru_arena_printf(m->arena, "%s %s > %s", x, x, x),
                              .device_type = "",
                              .flops = ru_type_count(t),
                              .bytes = 3 * grads[k].size_bytes};
        if (ops[k].shapes == NULL) {
            return full(err);
        }
    }
    *ns = ru_cost_profile_step(m->facts, ops, n).ns;
    return RU_OK;
}

static ru_status time_stage(const meter *m, const ru_stage *s, int64_t *forward_ns,
                            int64_t *backward_ns, int64_t *update_ns, ru_err *err)
{
    int64_t f[RUNS], b[RUNS];
    ru_exe *e;
    RU_TRY(rui_meter_stage(m, s, &e, err));
    if (m->facts != NULL) {
        ru_meter_told told = {0};
        int64_t micro = m->job->train.accumulate > 1 ? m->job->train.accumulate : 1;
        double sums = 0;
        ru_status predicted = rui_meter_predict(m, e, &told, err);
        predicted =
            predicted == RU_OK && micro > 1 ? rui_meter_sums(m, s, e, &sums, err) : predicted;
        int64_t ns = (int64_t)(told.often_ns * (double)micro);
        *forward_ns = ns / 3; /* a part back computes two products for each of a part forward */
        *backward_ns = ns - *forward_ns + (int64_t)(sums * (double)micro);
        *update_ns = (int64_t)told.once_ns;
        ru_exe_close(e);
        return predicted;
    }
    ru_status st = ru_model_init(&m->model, 1, &s->step.graph, e, m->threads, err);
    rui_meter_fill(&s->step.graph, e);
    for (uint32_t k = 0; k < RUNS + 1 && st == RU_OK; k++) { /* the first one warms up */
        const ru_run_args args = {.seed = 1, .step = k};
        ru_time t0 = ru_clock_now();
        st = ru_exe_phase(e, RU_PHASE_FORWARD, &args, err);
        ru_time t1 = ru_clock_now();
        st = st == RU_OK ? ru_exe_phase(e, RU_PHASE_BACKWARD, &args, err) : st;
        if (st == RU_OK && m->job->train.accumulate > 1) { /* to the sums of a step, or others */
            st = ru_exe_grads_add(e, e, err);
        }
        f[k % RUNS] = ru_time_since(t1, t0);
        b[k % RUNS] = ru_time_since(ru_clock_now(), t1);
    }
    ru_exe_close(e);
    RU_TRY(st);
    *update_ns = 0; /* small beside them, and not measured */
    *forward_ns = rui_meter_median(f);
    *backward_ns = rui_meter_median(b);
    return RU_OK;
}

rui_meter_memory rui_meter_count(const ru_exe *e)
{
    const ru_exe_grad *grads;
    ru_exe_stats b;
    ru_exe_stats_get(e, &b);
    rui_meter_memory m = {.state = b.state_bytes + b.const_bytes,
                          .step = b.arena_bytes + b.scratch_bytes + b.io_bytes};
    for (uint32_t k = ru_exe_grads(e, &grads); k-- > 0;) {
        m.grads += grads[k].size_bytes;
    }
    return m;
}

rui_meter_memory rui_meter_eval(const rui_meter *m)
{
    const ru_job_train *t = &m->job->train;
    const ru_step_options so = {.loss = m->so.loss,
                                .label_smoothing = t->label_smoothing,
                                .batch = m->eval_n,
                                .x = m->so.x,
                                .y = m->so.y};
    const ru_exe_options eo = {.device = (ru_device_kind)t->device,
                               .precision = (ru_precision)t->precision,
                               .threads = m->threads};
    ru_step_graph step;
    ru_exe *e;
    ru_exe_stats b;
    ru_err ignored;
    if (m->eval_n == 0 ||
        ru_step_build_eval(&m->model.infer, &so, m->arena, &step, &ignored) != RU_OK ||
        ru_exe_open(&step.graph, &eo, &e, &ignored) != RU_OK) {
        return (rui_meter_memory){0};
    }
    ru_exe_stats_get(e, &b);
    ru_exe_close(e);
    return (rui_meter_memory){.state = b.state_bytes,
                              .step = b.const_bytes + b.arena_bytes + b.scratch_bytes + b.io_bytes};
}

int64_t rui_meter_message_bytes(int64_t state_bytes)
{
    return state_bytes <= RU_STAGE_PIECE_BYTES ? state_bytes : 2 * (int64_t)RU_STAGE_PIECE_BYTES;
}

ru_status rui_meter_stage_bytes(const rui_meter *m, const ru_stage *s, rui_meter_memory *out,
                                ru_err *err)
{
    ru_exe *e;
    RU_TRY(rui_meter_stage(m, s, &e, err));
    *out = rui_meter_count(e);
    ru_exe_close(e);
    return RU_OK;
}

int64_t rui_meter_piece_bytes(const ru_stage_edge *e, uint32_t ahead)
{
    int64_t bytes = ru_type_bytes(&e->type), ways = !e->held + (e->grad.v != 0);
    return bytes * ways * ahead + (e->held ? bytes : 0);
}

int64_t rui_meter_bytes(const ru_graph *g, ru_value_role role)
{
    int64_t sum = 0;
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        sum += x->kind == RU_VALUE_STATE && x->role == role ? ru_type_bytes(&x->type) : 0;
    }
    return sum;
}

/* What a cut behind layer k sends forward. */
static int64_t crossing(const ru_stages *s, uint32_t k, int64_t micro)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        bool again = e->from > k || e->to <= k;
        for (uint32_t j = 0; j < i && !e->held; j++) { /* a value crosses a cut once */
            const ru_stage_edge *o = &s->edges[j];
            again = again || (o->from == e->from && o->out.v == e->out.v && o->to > k);
        }
        int64_t bytes = ru_type_bytes(&e->type);
        sum += again ? 0 : e->held ? (micro + 1) * bytes / 2 : micro * bytes;
    }
    return sum;
}

static ru_status list_held(const meter *m, ru_pipe_layers *l, ru_err *err)
{
    ru_pipe_held *at = RU_NEW(m->arena, ru_pipe_held, m->stages.n_edges + 1);
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < m->stages.n_edges; i++) {
        const ru_stage_edge *e = &m->stages.edges[i];
        if (e->held) {
            at[l->n_helds++] = (ru_pipe_held){e->from, e->to, e->out.v, ru_type_bytes(&e->type)};
        }
    }
    l->helds = at;
    return RU_OK;
}

static ru_status measure(meter *m, ru_pipe_layers *l, ru_err *err)
{
    int64_t slots = 0, params = 0, micro = l->micro;
    RU_TRY(
        ru_stages_build(&m->model.train, &m->so, l->name + 1, l->n - 1, m->arena, &m->stages, err));
    for (uint32_t k = 0; k < l->n; k++) {
        const ru_stage *s = &m->stages.at[k];
        RU_TRY(time_stage(m, s, &l->forward_ns[k], &l->backward_ns[k], &l->update_ns[k], err));
        l->forward_ns[k] *= m->facts != NULL ? 1 : micro;
        l->backward_ns[k] *= m->facts != NULL ? 1 : micro;
        l->backward_ns[k] += m->job->train.pipeline.recompute ? l->forward_ns[k] : 0;
        l->stats[k] = s->n_stats > 0;
        l->param_bytes[k] = rui_meter_bytes(&s->step.graph, RU_ROLE_PARAM);
        params += l->param_bytes[k];
        slots += rui_meter_bytes(&s->step.graph, RU_ROLE_SLOT);
        l->cross_bytes[k] = crossing(&m->stages, k, micro);
    }
    RU_TRY(list_held(m, l, err));
    l->state = params > 0 ? 1 + (double)slots / (double)params : 1;
    return RU_OK;
}

/* Does the model itself say another number of samples than a share computes at a time? */
static bool is_fixed(const meter *m, int64_t batch)
{
    const ru_graph *g = &m->model.train;
    const ru_type *t = g->n_inputs > 0 ? &ru_graph_value(g, g->inputs[0])->type : NULL;
    int64_t micro = m->job->train.accumulate > 1 ? m->job->train.accumulate : 1;
    int64_t n = batch % micro == 0 ? batch / micro : batch;
    return t != NULL && t->rank > 0 && !ru_dim_is_symbolic(t->dims[0]) && t->dims[0] != n;
}

/* The step of one of `workers` that divide the batch. */
static ru_status time_share(const meter *m, uint32_t workers, ru_pipe_share *s, double *error,
                            ru_err *err)
{
    int64_t ns[RUNS] = {0}, batch = m->job->train.batch;
    ru_step_graph step;
    ru_exe_stats stats;
    ru_exe *e;
    if (is_fixed(m, (batch + workers - 1) / workers)) {
        *s = (ru_pipe_share){.workers = workers, .memory_bytes = RU_PIPE_FIXED_BATCH};
        return RU_OK;
    }
    ru_status opened = rui_meter_step(m, (batch + workers - 1) / workers, false, &step, &e, err);
    if (opened == RU_E_MEM) {
        *s = (ru_pipe_share){.workers = workers, .memory_bytes = -1};
        return RU_OK;
    }
    RU_TRY(opened);
    ru_exe_stats_get(e, &stats);
    *s = (ru_pipe_share){.workers = workers,
                         .state_bytes = stats.state_bytes,
                         .memory_bytes = stats.state_bytes + stats.arena_bytes + stats.const_bytes +
                                         stats.scratch_bytes + stats.io_bytes};
    ru_meter_told told = {0};
    ru_status st = m->facts != NULL ? rui_meter_predict(m, e, &told, err) : RU_OK;
    s->ns = (int64_t)(told.often_ns + told.once_ns);
    *error = told.error;
    for (uint32_t k = 0; m->facts == NULL && k < RUNS + 1 && st == RU_OK; k++) {
        const ru_run_args args = {.seed = 1, .step = k};
        ru_time t0 = ru_clock_now();
        st = ru_exe_run(e, &args, err);
        ns[k % RUNS] = ru_time_since(ru_clock_now(), t0);
    }
    if (m->facts == NULL && st == RU_OK) {
        s->ns = rui_meter_median(ns);
        *error = s->ns > 0 ? (double)(ns[RUNS - 2] - ns[1]) / 2 / (double)s->ns : 0;
    }
    ru_exe_close(e);
    return st;
}

static ru_status time_shares(const meter *m, const uint32_t *workers, uint32_t n, ru_pipe_layers *l,
                             ru_err *err)
{
    ru_pipe_share *s = RU_NEW(m->arena, ru_pipe_share, n + 1);
    if (s == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k <= n; k++) {
        double error = 0;
        RU_TRY(time_share(m, k == 0 ? 1 : workers[k - 1], &s[k], &error, err));
        l->error = error > l->error ? error : l->error;
    }
    l->shares = s;
    l->n_shares = n + 1;
    return RU_OK;
}

/* Some batches, which nothing else reads beside. */
static ru_status time_reading(const meter *m, int64_t *ns, ru_err *err)
{
    ru_stream *stream;
    ru_batch batch;
    ru_status st = RU_OK;
    RU_TRY(rui_meter_stream(m, &stream, err));
    ru_time t0 = ru_clock_now();
    for (int64_t k = 1; k <= RUNS && st == RU_OK; k++) {
        st = ru_stream_next(stream, &batch, err);
        *ns = ru_time_since(ru_clock_now(), t0) / k;
    }
    ru_stream_close(stream);
    return st;
}

/* The model of the type that the job names; of a job that was profiled there also its reading. */
ru_status rui_meter_facts(meter *m, int64_t *read_ns, ru_err *err)
{
    const ru_job_pipeline *p = &m->job->train.pipeline;
    ru_world w;
    ru_arena scratch;
    ru_profile_model *model = RU_NEW(m->arena, ru_profile_model, 1);
    RU_TRY(ru_world_file_load(p->facts, m->arena, &w, err));
    RU_TRY(ru_profile_check(&w, p->facts, err));
    ru_arena_init(&scratch, 0);
    ru_status st = model != NULL
                       ? ru_cost_profile(&w.facts, p->type, m->arena, &scratch, model, err)
                       : full(err);
    ru_arena_fini(&scratch);
    m->facts = model;
    m->cores = 0;
    for (uint32_t i = 0; i < w.facts.ops.n && st == RU_OK; i++) {
        const ru_op_fact *op = &w.facts.ops.at[i];
        const ru_step_fact *s = ru_cost_profile_of(&w.facts, op->rank);
        bool mine = s != NULL && strcmp(op->device_type, p->type) == 0 &&
                    strcmp(s->job, m->job->name) == 0 && s->batch == m->job->train.batch;
        *read_ns = mine ? (int64_t)s->input_ns : *read_ns;
        const ru_processor_fact *cpu = ru_cost_profile_processor(&w.facts, op->rank);
        bool here = strcmp(op->device_type, p->type) == 0 && cpu != NULL && cpu->period_ns > 0;
        m->cores = here ? cpu->quota_ns / cpu->period_ns : m->cores;
    }
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", p->facts);
}

ru_status rui_meter_layers(rui_meter *m, const uint32_t *workers, uint32_t n_workers,
                           ru_pipe_layers *out, ru_err *err)
{
    const ru_job_train *t = &m->job->train;
    ru_arena *arena = m->arena;
    ru_pipe_layers l = {.micro = t->accumulate > 1 ? (uint32_t)t->accumulate : 1,
                        .schedule = (ru_pipe_schedule)t->pipeline.schedule};
    RU_TRY(t->pipeline.facts[0] != '\0' ? rui_meter_facts(m, &l.read_ns, err) : RU_OK);
    RU_TRY(time_shares(m, workers, n_workers, &l, err));
    RU_TRY(l.read_ns == 0 ? time_reading(m, &l.read_ns, err) : RU_OK);
    l.samples = ru_dataset_count(m->data);
    l.weight_bytes = rui_meter_bytes(&m->model.train, RU_ROLE_PARAM);
    *out = l;
    RU_TRY(list_layers(m, &l.name, &l.n, err));
    l.forward_ns = RU_NEW(arena, int64_t, l.n);
    l.backward_ns = RU_NEW(arena, int64_t, l.n);
    l.update_ns = RU_NEW(arena, int64_t, l.n);
    l.param_bytes = RU_NEW(arena, int64_t, l.n);
    l.cross_bytes = RU_NEW(arena, int64_t, l.n);
    l.stats = RU_NEW(arena, bool, l.n);
    if (l.stats == NULL || l.forward_ns == NULL || l.backward_ns == NULL || l.update_ns == NULL ||
        l.param_bytes == NULL || l.cross_bytes == NULL) {
        return full(err);
    }
    RU_TRY(measure(m, &l, err));
    *out = l;
    return RU_OK;
}

ru_status ru_pipe_measure(const ru_job *job, uint32_t threads, const uint32_t *workers,
                          uint32_t n_workers, ru_arena *arena, ru_pipe_layers *out, ru_err *err)
{
    meter m = {.job = job, .arena = arena, .threads = threads};
    ru_status st = rui_meter_open(&m, err);
    st = st == RU_OK ? rui_meter_layers(&m, workers, n_workers, out, err) : st;
    rui_meter_close(&m);
    return st;
}
