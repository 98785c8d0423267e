#include "train/pipe/profile.h"

#include <math.h>
#include <string.h>

#include "env/clock.h"
#include "env/process/groups.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "train/job/batch.h"
#include "train/pipe/meter.h"

enum { WARM = 3, STEPS_MAX = 100000 };

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the facts of the profile");
}

ru_status rui_meter_step(const rui_meter *m, int64_t batch, bool tune, ru_step_graph *step,
                         ru_exe **out, ru_err *err)
{
    const ru_job_train *t = &m->job->train;
    ru_step_options so = m->so;
    so.batch = batch;
    so.share_of = 0;
    so.accumulate =
        batch % (t->accumulate > 1 ? t->accumulate : 1) == 0 ? (uint32_t)t->accumulate : 1;
    so.clip_norm = t->clip_norm;
    so.ema = t->ema;
    const ru_exe_options eo = {.device = (ru_device_kind)t->device,
                               .precision = (ru_precision)t->precision,
                               .threads = m->threads,
                               .autotune = t->autotune && tune};
    RU_TRY(ru_step_build(&m->model.train, &so, m->arena, step, err));
    RU_TRY(ru_exe_open(&step->graph, &eo, out, err));
    ru_status st = ru_model_init(&m->model, 1, &step->graph, *out, m->threads, err);
    if (st != RU_OK) {
        ru_exe_close(*out);
        return st;
    }
    rui_meter_fill(&step->graph, *out);
    *(float *)ru_exe_input(*out, step->lr) = 1e-6F; /* the numbers stay such as they are */
    for (uint32_t k = 0; k < step->n_rates; k++) {
        *(float *)ru_exe_input(*out, step->rates[k].input) = 1e-6F;
    }
    if (step->step.v != 0) {
        *(int64_t *)ru_exe_input(*out, step->step) = 1;
    }
    return RU_OK;
}

ru_status rui_meter_stream(const rui_meter *m, ru_stream **out, ru_err *err)
{
    const ru_job *job = m->job;
    const ru_stream_options so = {.seed = (uint64_t)job->train.seed,
                                  .augment = job->data.augment,
                                  .shuffle = ru_job_shuffle(job),
                                  .batch = job->train.batch,
                                  .threads = job->data.threads,
                                  .bytes_max = job->data.memory};
    if (ru_dataset_count(m->data) < job->train.batch) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.batch is %lld, but the training data contains %lld samples; set "
                       "train.batch to at most that number",
                       (long long)job->train.batch, (long long)ru_dataset_count(m->data));
    }
    return ru_stream_open(m->data, &so, out, err);
}

/* -- measuring ------------------------------------------------------------------------------------
 */

typedef struct series {
    int64_t n;
    double sum, squares;
} series;

static void put(series *s, int64_t ns)
{
    s->n++;
    s->sum += (double)ns;
    s->squares += (double)ns * (double)ns;
}

static bool enough(const series *s, const ru_profile_options *opt)
{
    return s->n >= STEPS_MAX || (s->n >= opt->steps && s->sum >= (double)opt->least_ns);
}

static ru_fact fact_of(const series *s)
{
    double n = s->n > 0 ? (double)s->n : 1, mean = s->sum / n;
    double spread = s->squares / n - mean * mean;
    return (ru_fact){.count = s->n, .mean_ns = mean, .stddev_ns = spread > 0 ? sqrt(spread) : 0};
}

typedef struct bench {
    const ru_profile_options *opt;
    rui_meter m;
    ru_step_graph step;
    ru_exe *exe;
    ru_stream *stream;
    int64_t sample_x, sample_y; /* bytes */
    series compute, input, took;
    int64_t runs, cpu_ns; /* processor time of `compute` */
} bench;

static void take(bench *b, const ru_batch *batch)
{
    const ru_step_graph *s = &b->step;
    int64_t n = batch->n / s->micro;
    for (uint32_t k = 0; k < s->micro; k++) {
        memcpy(ru_exe_input(b->exe, s->x[k]), (const char *)batch->fields[0] + k * n * b->sample_x,
               (size_t)(n * b->sample_x));
        memcpy(ru_exe_input(b->exe, s->y[k]), (const char *)batch->fields[1] + k * n * b->sample_y,
               (size_t)(n * b->sample_y));
    }
}

static ru_status run_step(bench *b, ru_err *err)
{
    const ru_run_args args = {.seed = 1, .step = b->runs++};
    return ru_exe_run(b->exe, &args, err);
}

/* Steps with reading beside, then on the last batch alone, then reading alone. */
static ru_status measure(bench *b, ru_err *err)
{
    ru_batch batch;
    for (uint32_t k = 0; k < WARM || !enough(&b->took, b->opt); k++) {
        ru_time t0 = ru_clock_now();
        RU_TRY(ru_stream_next(b->stream, &batch, err));
        take(b, &batch);
        RU_TRY(run_step(b, err));
        if (k >= WARM) {
            put(&b->took, ru_time_since(ru_clock_now(), t0));
        }
    }
    ru_stream_close(b->stream);
    b->stream = NULL;
    ru_exe_profile(b->exe, true);
    b->cpu_ns = -ru_clock_cpu_ns();
    while (!enough(&b->compute, b->opt)) {
        ru_time t0 = ru_clock_now();
        RU_TRY(run_step(b, err));
        put(&b->compute, ru_time_since(ru_clock_now(), t0));
    }
    b->cpu_ns += ru_clock_cpu_ns();
    RU_TRY(rui_meter_stream(&b->m, &b->stream, err)); /* nothing is read ahead of it */
    ru_time t0 = ru_clock_now();
    while (b->input.n < b->opt->steps) {
        RU_TRY(ru_stream_next(b->stream, &batch, err));
        b->input.n++;
    }
    b->input.sum = (double)ru_time_since(ru_clock_now(), t0);
    return RU_OK;
}

/* -- facts ----------------------------------------------------------------------------------------
 */

static ru_status put_machine(const bench *b, ru_arena *arena, ru_world *w, ru_err *err)
{
    char cpu[128];
    ru_cluster_host *h = RU_NEW(arena, ru_cluster_host, 1);
    ru_cluster_device *d = RU_NEW(arena, ru_cluster_device, 1);
    ru_self_cpu(cpu, sizeof cpu);
    if (h == NULL || d == NULL) {
        return full(err);
    }
    uint32_t cores = b->m.threads > 0 ? b->m.threads : ru_pool_cores();
    *h = (ru_cluster_host){.name = b->opt->type,
                           .cpu = ru_arena_str(arena, cpu),
                           .cores = cores,
                           .memory_bytes = ru_self_memory_bytes(),
                           .market = "",
                           .availability = 1};
    *d = (ru_cluster_device){.name = b->opt->type,
                             .host = b->opt->type,
                             .type = b->opt->type,
                             .cores = cores,
                             .votes = true,
                             .availability = 1};
    w->cluster.hosts.at = h;
    w->cluster.devices.at = d;
    w->cluster.hosts.n = w->cluster.devices.n = 1;
    return h->cpu != NULL ? RU_OK : full(err);
}

static ru_status put_facts(const bench *b, ru_arena *arena, ru_world *w, ru_err *err)
{
    ru_op_fact *ops;
    ru_exe_stats stats;
    const ru_job *job = b->m.job;
    ru_step_fact *s = RU_NEW(arena, ru_step_fact, 1);
    ru_processor_fact *p = RU_NEW(arena, ru_processor_fact, 1);
    int64_t quota_ns, period_ns;
    if (s == NULL || p == NULL) {
        return full(err);
    }
    RU_TRY(ru_exe_ops(b->exe, 0, arena, &ops, &w->facts.ops.n, err));
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        ops[i].device_type = b->opt->type;
    }
    ru_exe_stats_get(b->exe, &stats);
    *s = (ru_step_fact){.job = job->name,
                        .workers = 1,
                        .samples = job->train.batch,
                        .batch = job->train.batch,
                        .flops = stats.flops,
                        .state_bytes = stats.state_bytes,
                        .arena_bytes = stats.arena_bytes + stats.scratch_bytes,
                        .compute_ns = fact_of(&b->compute).mean_ns,
                        .input_ns = fact_of(&b->input).mean_ns,
                        .took = fact_of(&b->took)};
    (void)ru_groups_quota(arena, &quota_ns, &period_ns);
    *p = (ru_processor_fact){.quota_ns = (double)quota_ns,
                             .period_ns = (double)period_ns,
                             .compute_ns = (double)b->cpu_ns / (double)b->compute.n,
                             .read_ns = fact_of(&b->input).mean_ns,
                             .took = fact_of(&b->compute)};
    w->facts.ops.at = ops;
    w->facts.steps.at = s;
    w->facts.processors.at = p;
    w->facts.steps.n = w->facts.processors.n = 1;
    return RU_OK;
}

ru_status ru_profile_job(const ru_job *job, const ru_profile_options *opt, ru_arena *arena,
                         ru_world *out, ru_err *err)
{
    bench b = {.opt = opt, .m = {.job = job, .arena = arena, .threads = opt->threads}};
    *out = (ru_world){.profiled = RU_PROFILE_VERSION};
    ru_status st = rui_meter_open(&b.m, err);
    if (st == RU_OK) {
        b.sample_x = ru_type_bytes(&b.m.so.x);
        b.sample_y = ru_type_bytes(&b.m.so.y);
        st = rui_meter_stream(&b.m, &b.stream, err);
    }
    st = st == RU_OK ? rui_meter_step(&b.m, job->train.batch, true, &b.step, &b.exe, err) : st;
    if (st == RU_OK) {
        st = measure(&b, err);
        st = st == RU_OK ? put_machine(&b, arena, out, err) : st;
        st = st == RU_OK ? put_facts(&b, arena, out, err) : st;
        ru_exe_close(b.exe);
    }
    ru_stream_close(b.stream);
    rui_meter_close(&b.m);
    return st;
}

ru_status ru_profile_check(const ru_world *w, const char *path, ru_err *err)
{
    return w->profiled == RU_PROFILE_VERSION
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "%s has profiles of version %u (0: before versions, or none), and this "
                         "program reads those of version %d: profile again, without --add of this "
                         "file",
                         path, w->profiled, RU_PROFILE_VERSION);
}

ru_status ru_profile_list(const ru_job *job, ru_arena *arena, ru_op_fact **ops, uint32_t *n,
                          int64_t *memory_bytes, int64_t *samples, ru_err *err)
{
    rui_meter m = {.job = job, .arena = arena, .threads = 1};
    ru_step_graph step;
    ru_exe_stats s;
    ru_exe *e;
    ru_status st = rui_meter_open(&m, err);
    st = st == RU_OK ? rui_meter_step(&m, job->train.batch, false, &step, &e, err) : st;
    if (st == RU_OK) {
        ru_exe_stats_get(e, &s);
        *memory_bytes =
            s.state_bytes + s.arena_bytes + s.const_bytes + s.scratch_bytes + s.io_bytes;
        *samples = ru_dataset_count(m.data);
        st = ru_exe_ops(e, 0, arena, ops, n, err);
        ru_exe_close(e);
    }
    rui_meter_close(&m);
    return st;
}

/* -- several profiles -----------------------------------------------------------------------------
 */

/* Where the first device of the type is; NULL: there is none. */
static const ru_cluster_host *host_of(const ru_cluster *c, const char *type)
{
    for (uint32_t i = 0; i < c->devices.n; i++) {
        uint32_t at = ru_cluster_host_find(c, c->devices.at[i].host);
        if (strcmp(c->devices.at[i].type, type) == 0 && at != UINT32_MAX) {
            return &c->hosts.at[at];
        }
    }
    return NULL;
}

/* a [n], then b [more]; NULL: no memory. */
static void *join(ru_arena *arena, const void *a, uint32_t n, const void *b, uint32_t more,
                  size_t size)
{
    char *to = ru_arena_alloc(arena, (int64_t)size * ((int64_t)n + more + 1), 8);
    if (to != NULL && n > 0) {
        memcpy(to, a, n * size);
    }
    if (to != NULL && more > 0) {
        memcpy(to + n * size, b, more * size);
    }
    return to;
}

/* The machines of types that `w` does not have. */
static ru_status add_machines(ru_world *w, const ru_cluster *more, ru_arena *arena, ru_err *err)
{
    ru_cluster *c = &w->cluster;
    ru_cluster_host *h =
        join(arena, c->hosts.at, c->hosts.n, more->hosts.at, more->hosts.n, sizeof *h);
    ru_cluster_device *d =
        join(arena, c->devices.at, c->devices.n, more->devices.at, more->devices.n, sizeof *d);
    if (h == NULL || d == NULL) {
        return full(err);
    }
    c->hosts.at = h;
    c->devices.at = d;
    for (uint32_t i = 0; i < more->devices.n; i++) {
        const ru_cluster_device *x = &more->devices.at[i];
        const ru_cluster_host *had = host_of(c, x->type), *its = host_of(more, x->type);
        if (had != NULL && its != NULL && had->cpu[0] != '\0' && strcmp(had->cpu, its->cpu) != 0) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "the type '%s' was profiled on '%s', and here is '%s'; name this one "
                           "with --type, or write another file",
                           x->type, had->cpu, its->cpu);
        }
        if (had == NULL && its != NULL && ru_cluster_host_find(c, x->host) == UINT32_MAX) {
            h[c->hosts.n++] = *its;
            d[c->devices.n++] = *x;
        }
    }
    return RU_OK;
}

ru_status ru_profile_add(ru_world *w, const ru_world *more, ru_arena *arena, ru_err *err)
{
    ru_facts *a = &w->facts;
    const ru_facts *b = &more->facts;
    uint32_t rank = a->ops.n > 0 ? a->ops.at[a->ops.n - 1].rank + 1 : 0; /* they are sorted */
    ru_op_fact *ops = join(arena, a->ops.at, a->ops.n, b->ops.at, b->ops.n, sizeof *ops);
    ru_step_fact *steps =
        join(arena, a->steps.at, a->steps.n, b->steps.at, b->steps.n, sizeof *steps);
    ru_processor_fact *cpu = join(arena, a->processors.at, a->processors.n, b->processors.at,
                                  b->processors.n, sizeof *cpu);
    if (ops == NULL || steps == NULL || cpu == NULL) {
        return full(err);
    }
    RU_TRY(add_machines(w, &more->cluster, arena, err));
    for (uint32_t i = 0; i < a->steps.n; i++) {
        rank = steps[i].rank >= rank ? steps[i].rank + 1 : rank;
    }
    for (uint32_t i = 0; i < a->processors.n; i++) {
        rank = cpu[i].rank >= rank ? cpu[i].rank + 1 : rank;
    }
    for (uint32_t i = 0; i < b->ops.n; i++) {
        ops[a->ops.n + i].rank += rank;
    }
    for (uint32_t i = 0; i < b->steps.n; i++) {
        steps[a->steps.n + i].rank += rank;
    }
    for (uint32_t i = 0; i < b->processors.n; i++) {
        cpu[a->processors.n + i].rank += rank;
    }
    w->profiled = more->profiled;
    a->ops.at = ops;
    a->steps.at = steps;
    a->processors.at = cpu;
    a->ops.n += b->ops.n;
    a->steps.n += b->steps.n;
    a->processors.n += b->processors.n;
    return RU_OK;
}
