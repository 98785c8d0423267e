/* The row of `alloc` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>
#include <string.h>

#include "plan/fleet/alloc.h"
#include "plan/row/policy.h"

typedef struct sample_file {
    uint32_t nodes, replicas, local;
    double pass_s, step_s;
} sample_file;

typedef struct job_file {
    const char *name;
    uint32_t replicas_min, replicas_max, replicas, restarts, demoted;
    uint32_t batch_first, batch_max, local_min, local_max, batch;
    bool one_pass;
    ru_conf_f64s perf, step;
    ru_conf_sections measured; /* of sample_file */
    ru_conf_i64s now;
    double sqr, var, service_s, remaining, left;
    int64_t age_ns;
} job_file;

typedef struct alloc_file {
    ru_conf_i64s nodes;
    ru_conf_sections jobs; /* of job_file */
    ru_conf_f64s weights;
    double power, util_low, util_high, demote_s, decay, decay_s, rush, time_price;
    int64_t restart_ns, hold_ns, seed;
    uint32_t spread_max, nodes_min, nodes_max, tries, method;
    bool share_links;
} alloc_file;

static const ru_conf_field sample_fields[] = {
    RU_ROW(U32, sample_file, nodes, NULL, "number of nodes of the replicas", RU_IN(1, 1e6)),
    RU_ROW(U32, sample_file, replicas, NULL, "number of replicas", RU_IN(1, 1e6)),
    RU_ROW(U32, sample_file, local, NULL, "examples of a replica in a pass", RU_IN(1, 1e9)),
    RU_ROW_AS("pass", F64, sample_file, pass_s, NULL,
              "time of a pass that only accumulates gradients [s]", RU_IN(1e-9, 1e9)),
    RU_ROW_AS("step", F64, sample_file, step_s, NULL,
              "time of a step with one pass and the sum of gradients [s]", RU_IN(1e-9, 1e9)),
};

static ru_status check_sample(const void *section, ru_err *err)
{
    const sample_file *f = section;
    return f->nodes <= f->replicas
               ? RU_OK
               : RU_FAIL(err, RU_E_ARG, "%u replicas lie on %u nodes; expected a replica on each",
                         f->replicas, f->nodes);
}

static const ru_conf_table sample_table = RU_TABLE(
    "sample", sample_file, sample_fields, "mean times at one configuration", .check = check_sample);

#define COUNT(key, member, dflt, low, high, text)                                            \
    {                                                                                        \
        .name = key, .type = RU_CONF_U32, .offset = offsetof(job_file, member), .def = dflt, \
        .min = low, .max = high, .help = text                                                \
    }
static const ru_conf_field job_fields[] = {
    RU_ROW(TEXT, job_file, name, "", "name of the job in the plan; empty: its number"),
    COUNT("replicas", replicas, "1", 1, 65536,
          "all methods but pollux: number of devices that the user requested"),
    COUNT("replicas_min", replicas_min, "0", 0, 65536,
          "smallest number of devices; the job gets at least these or none"),
    COUNT("replicas_max", replicas_max, "64", 1, 65536,
          "largest number of devices; a job without measurements gets at most twice as many as it "
          "has used before"),
    COUNT("batch_first", batch_first, "1", 1, 1e9,
          "batch size for which the user chose the learning rate"),
    COUNT("batch_max", batch_max, "1000000000", 1, 1e9, "largest batch in examples"),
    COUNT("local_min", local_min, "1", 1, 1e9,
          "smallest number of examples of a replica in a pass"),
    COUNT("local_max", local_max, "1000000000", 1, 1e9,
          "largest number of examples of a replica in a pass, limited by its memory"),
    COUNT("batch", batch, "0", 0, 1e9, "fixed batch size; 0: the batch may change"),
    RU_ROW(BOOL, job_file, one_pass, "false",
           "one device computes a larger batch in one pass: two steps tell the noise; false: in "
           "two passes or more, which tell it"),
    RU_ROW(F64_LIST, job_file, perf, "[]",
           "coefficients of the step time model [a_c, b_c, a_n, b_n, a_r, b_r, g]; empty: they "
           "are fitted to 'measured'",
           RU_IN(0, 1e9)),
    RU_ROW(SECTIONS, job_file, measured, "[]",
           "measured steps; without these and without 'perf' the job's speed is unknown",
           .table = &sample_table),
    RU_ROW(F64, job_file, sqr, "0", "squared length of the mean gradient", RU_IN(0, 1e30)),
    RU_ROW(F64, job_file, var, "0",
           "variance of the gradient of a batch of batch_first; the noise scale is batch_first * "
           "var / sqr",
           RU_IN(0, 1e30)),
    RU_ROW_AS("age", TIME, job_file, age_ns, "0s", "time since the job arrived", RU_IN(0, 1e18)),
    RU_ROW_AS("service", F64, job_file, service_s, "0", "device-seconds that the job has used",
              RU_IN(0, 1e15)),
    COUNT("restarts", restarts, "0", 0, 1e9, "number of restarts so far"),
    RU_ROW(F64, job_file, remaining, "0",
           "number of remaining steps, if known: methods optimus, srtf; pollux: a restart must pay "
           "before they are done",
           RU_IN(0, 1e15)),
    RU_ROW(F64, job_file, left, "0",
           "examples that are left, counted as of batch_first: epochs that are left times the "
           "examples of one; 0: unknown",
           RU_IN(0, 1e30)),
    RU_ROW(F64_LIST, job_file, step, "[]",
           "methods optimus, srtf: step time on 1, 2, ... devices, if measured [s]",
           RU_OVER(0, 1e9)),
    RU_ROW(I64_LIST, job_file, now, "[]",
           "node of each device of the job, such as [0, 0, 1]; empty: the job waits",
           RU_IN(0, RU_ALLOC_NODES_MAX)),
    COUNT("demoted", demoted, "0", 0, 1e9,
          "method tiresias: position in the lower queue; 0: the job is in the upper queue"),
};

/* Each node's devices in `count`; false: more nodes than a job may have. */
static bool parts_of(const ru_conf_i64s *now, ru_alloc_part *parts, uint32_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < now->n; i++) {
        uint32_t node = (uint32_t)now->at[i], k = 0;
        while (k < *n && parts[k].node != node) {
            k++;
        }
        if (k == RU_ALLOC_PARTS_MAX) {
            return false;
        }
        if (k == *n) {
            parts[(*n)++] = (ru_alloc_part){node, 0};
        }
        parts[k].devices++;
    }
    return true;
}

static ru_status check_job(const void *section, ru_err *err)
{
    const job_file *f = section;
    ru_alloc_part parts[RU_ALLOC_PARTS_MAX];
    uint32_t n;
    if (f->perf.n != 0 && (f->perf.n != 7 || !(f->perf.at[6] >= 1 && f->perf.at[6] <= 10) ||
                           !(f->perf.at[0] + f->perf.at[1] > 0))) {
        return RU_FAIL(err, RU_E_ARG,
                       "'perf' needs 7 numbers; the first two must not both be 0, and the last one "
                       "is 1 to 10");
    }
    for (uint32_t i = 2; i < f->perf.n && i < 6; i += 2) {
        if (!(f->perf.at[i] > 0)) {
            return RU_FAIL(err, RU_E_ARG, "'perf' number %u must be above 0", i + 1);
        }
    }
    if (f->replicas_min > f->replicas_max || f->batch_first > f->batch_max ||
        f->local_min > f->local_max || f->local_min > f->batch_max) {
        return RU_FAIL(err, RU_E_ARG,
                       "replicas_min must be at most replicas_max, batch_first at most batch_max, "
                       "and local_min at most local_max and batch_max");
    }
    return parts_of(&f->now, parts, &n)
               ? RU_OK
               : RU_FAIL(err, RU_E_ARG, "'now' names more than %d nodes", RU_ALLOC_PARTS_MAX);
}

static const ru_conf_table job_table =
    RU_TABLE("job", job_file, job_fields, "one job that runs or waits", .check = check_job);

static ru_status check_file(const void *section, ru_err *err)
{
    const alloc_file *f = section;
    const job_file *jobs = f->jobs.at;
    if (f->nodes.n < 1 || f->nodes.n > RU_ALLOC_NODES_MAX || f->jobs.n > RU_ALLOC_JOBS_MAX) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'nodes' has %u entries, expected 1 to %d; 'jobs' has %u, expected at most %d",
            f->nodes.n, RU_ALLOC_NODES_MAX, f->jobs.n, RU_ALLOC_JOBS_MAX);
    }
    for (uint32_t i = 0; i < f->jobs.n; i++) {
        for (uint32_t k = 0; k < jobs[i].now.n; k++) {
            if (jobs[i].now.at[k] >= f->nodes.n) {
                return RU_FAIL(err, RU_E_ARG,
                               "jobs[%u] runs on node %lld, but there are %u nodes (from 0)", i,
                               (long long)jobs[i].now.at[k], f->nodes.n);
            }
        }
        if (jobs[i].now.n > 0 && jobs[i].now.n > (uint64_t)f->nodes.n * RU_ALLOC_DEVICES_MAX) {
            return RU_FAIL(err, RU_E_ARG, "jobs[%u] runs on more devices than the node has", i);
        }
    }
    if (f->weights.n > 0 && (f->weights.n != f->jobs.n || f->power < -1)) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'weights' has %u entries for %u jobs at the power %g; expected one for each "
            "job and a power of -1 or more",
            f->weights.n, f->jobs.n, f->power);
    }
    if (f->util_low > f->util_high ||
        ((f->util_high > 0 || f->time_price > 0) && f->nodes_max < f->nodes_min)) {
        return RU_FAIL(err, RU_E_ARG,
                       "util_low must be at most util_high, and nodes_min at most nodes_max");
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(I64_LIST, alloc_file, nodes, NULL,
           "devices of each node; 0: the node leaves or takes no work",
           RU_IN(0, RU_ALLOC_DEVICES_MAX)),
    RU_ROW(SECTIONS, alloc_file, jobs, NULL, "jobs in order of arrival", .table = &job_table),
    RU_ROW(F64, alloc_file, power, "-1",
           "exponent of the power mean of speedups: -1 harmonic, 0 geometric, 1 arithmetic; "
           "smaller is fairer",
           RU_IN(-2, 1)),
    RU_ROW_AS("restart", TIME, alloc_file, restart_ns, "30s",
              "time that a job loses when its devices change", RU_IN(0, 1e15)),
    RU_ROW_AS("hold", TIME, alloc_file, hold_ns, "240s",
              "time within which a restart must pay off; 0: use only the published factor",
              RU_IN(0, 1e15)),
    RU_ROW(F64, alloc_file, decay, "0.25",
           "a job with more service than decay_service has the weight (decay_service / "
           "service)^decay; 0: all jobs have the same weight",
           RU_IN(0, 1)),
    RU_ROW_AS("decay_service", F64, alloc_file, decay_s, "14400",
              "service [device-seconds] up to which a job has full weight", RU_IN(0, 1e15)),
    RU_ROW(F64, alloc_file, rush, "0.5",
           "a job that gives 'left' weighs (decay_service / device-seconds left)^rush, so that "
           "short work goes first; 0: 'left' does not count",
           RU_IN(0, 1)),
    RU_ROW(BOOL, alloc_file, share_links, "false",
           "true: several jobs that use several nodes may share a node"),
    RU_ROW(U32, alloc_file, spread_max, "16", "largest number of nodes of a job",
           RU_IN(1, RU_ALLOC_PARTS_MAX)),
    RU_ROW(F64, alloc_file, time_price, "0",
           "autoscaling: price of time in nodes; 0: scale by util_low and util_high",
           RU_IN(0, 1e6)),
    RU_ROW(F64, alloc_file, util_low, "0",
           "autoscaling: mean speedup per device below which nodes are released", RU_IN(0, 1)),
    RU_ROW(F64, alloc_file, util_high, "0",
           "autoscaling: mean speedup per device above which nodes are added; 0: no autoscaling",
           RU_IN(0, 1)),
    RU_ROW(U32, alloc_file, nodes_min, "1", "autoscaling: smallest number of nodes",
           RU_IN(1, RU_ALLOC_NODES_MAX)),
    RU_ROW(U32, alloc_file, nodes_max, "1", "autoscaling: largest number of nodes",
           RU_IN(1, RU_ALLOC_NODES_MAX)),
    RU_ROW_AS(
        "demote", F64, alloc_file, demote_s, "57600",
        "method tiresias: service [device-seconds] after which a job moves to the lower queue",
        RU_OVER(0, 1e15)),
    RU_ROW(I64, alloc_file, seed, "1", "seed of the search", RU_IN(0, 1e15)),
    RU_ROW(U32, alloc_file, tries, "0",
           "number of moves of the search; 0: 400 for each job and node", RU_IN(0, 400000)),
    RU_ROW(CHOICE, alloc_file, method, "pollux", "pollux: Rubato's; others: baselines",
           .choices = RU_ALLOC_METHOD_NAMES),
    RU_ROW(F64_LIST, alloc_file, weights, "",
           "method pollux: weight of each job: contended devices go to jobs in the ratio of their "
           "weights, as far as their goodput grows with devices; empty: all have the same",
           RU_OVER(0, 1e9)),
};

static const ru_conf_table table = RU_TABLE(
    "alloc", alloc_file, fields, "one round of a cluster's scheduler", .check = check_file);

static ru_status perf_of(const job_file *f, ru_arena *a, ru_perf *out, ru_err *err)
{
    const double *x = f->perf.at;
    if (f->perf.n == 7) {
        *out = (ru_perf){x[0], x[1], x[2], x[3], x[4], x[5], x[6]};
        return RU_OK;
    }
    if (f->measured.n == 0) {
        *out = (ru_perf){0};
        return RU_OK;
    }
    const sample_file *s = f->measured.at;
    ru_perf_sample *samples = RU_NEW(a, ru_perf_sample, f->measured.n);
    if (samples == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u samples", f->measured.n);
    }
    for (uint32_t i = 0; i < f->measured.n; i++) {
        samples[i] =
            (ru_perf_sample){s[i].nodes, s[i].replicas, s[i].local, s[i].pass_s, s[i].step_s};
    }
    return ru_perf_fit(samples, f->measured.n, NULL, a, out, NULL, err);
}

static ru_status job_of(const job_file *f, ru_arena *a, ru_alloc_job *out, ru_err *err)
{
    ru_alloc_part *now = RU_NEW(a, ru_alloc_part, RU_ALLOC_PARTS_MAX);
    if (now == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a job");
    }
    *out = (ru_alloc_job){.model = {.sqr = f->sqr,
                                    .var = f->var,
                                    .batch_first = f->batch_first,
                                    .batch_max = f->batch_max,
                                    .local_min = f->local_min,
                                    .local_max = f->local_max,
                                    .batch = f->batch,
                                    .one_pass = f->one_pass},
                          .replicas_min = f->replicas_min,
                          .replicas_max = f->replicas_max,
                          .replicas = f->replicas,
                          .age_s = (double)f->age_ns * 1e-9,
                          .service_s = f->service_s,
                          .restarts = f->restarts,
                          .remaining = f->remaining,
                          .left = f->left,
                          .step_s = f->step.at,
                          .n_step = f->step.n,
                          .demoted = f->demoted,
                          .now = now};
    RU_CHECK(parts_of(&f->now, now, &out->n_now));
    return perf_of(f, a, &out->model.perf, err);
}

static ru_status inner(const alloc_file *f, ru_arena *a, ru_alloc_in *in, ru_err *err)
{
    const job_file *files = f->jobs.at;
    ru_alloc_job *jobs = RU_NEW(a, ru_alloc_job, f->jobs.n);
    uint32_t *devices = RU_NEW(a, uint32_t, f->nodes.n);
    if (jobs == NULL || devices == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", f->jobs.n);
    }
    for (uint32_t i = 0; i < f->jobs.n; i++) {
        ru_status st = job_of(&files[i], a, &jobs[i], err);
        if (st != RU_OK) {
            return ru_err_wrap(err, st, "jobs[%u]", i);
        }
        jobs[i].weight = f->weights.n > 0 ? f->weights.at[i] : 0;
    }
    for (uint32_t i = 0; i < f->nodes.n; i++) {
        devices[i] = (uint32_t)f->nodes.at[i];
    }
    *in = (ru_alloc_in){.jobs = jobs,
                        .n_jobs = f->jobs.n,
                        .devices = devices,
                        .n_nodes = f->nodes.n,
                        .power = f->power,
                        .restart_s = (double)f->restart_ns * 1e-9,
                        .hold_s = (double)f->hold_ns * 1e-9,
                        .decay = f->decay,
                        .decay_s = f->decay_s,
                        .rush = f->rush,
                        .share_links = f->share_links,
                        .spread_max = f->spread_max,
                        .demote_s = f->demote_s,
                        .time_price = f->time_price,
                        .util_low = f->util_low,
                        .util_high = f->util_high,
                        .nodes_min = f->nodes_min,
                        .nodes_max = f->nodes_max,
                        .seed = (uint64_t)f->seed,
                        .tries = f->tries,
                        .method = f->method};
    return RU_OK;
}

static ru_status plan_alloc(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_alloc_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_alloc(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_alloc(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_alloc_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_alloc_check(&q, plan, scratch, err);
}

static void put_place(ru_table *t, const ru_alloc_plan *p, const ru_alloc_share *s)
{
    char text[160];
    ru_text out = ru_text_into(text, sizeof text);
    for (uint32_t k = 0; k < s->n_parts && k < 8; k++) {
        const ru_alloc_part *a = &p->parts[s->first + k];
        ru_text_putf(&out, "%s%u:%u", k > 0 ? " " : "", a->node, a->devices);
    }
    ru_text_put(&out, s->n_parts > 8 ? " ..." : "");
    ru_table_str(t, text);
}

static void put_jobs(const alloc_file *f, const ru_alloc_plan *p, ru_report *r)
{
    static const char *const heads[] = {"job",   "devices", "node:devices", "change",
                                        "local", "passes",  "goodput",      "speedup"};
    const job_file *jobs = f->jobs.at;
    ru_table *t = ru_report_table(r, "jobs");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(heads); k++) {
        ru_table_col(t, heads[k], k == 0 || k == 2 || k == 3 ? RU_TABLE_LEFT : RU_TABLE_RIGHT);
    }
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        const ru_alloc_share *s = &p->jobs[i];
        if (jobs[i].name[0] != '\0') {
            ru_table_str(t, jobs[i].name);
        } else {
            ru_table_textf(t, "job %u", i);
        }
        ru_table_i64(t, s->replicas);
        put_place(t, p, s);
        bool runs = jobs[i].now.n > 0;
        ru_table_str(t, !s->changed        ? (runs ? "stays" : "waits")
                        : s->replicas == 0 ? "stops"
                        : runs             ? "restarts"
                                           : "starts");
        if (s->local > 0) {
            ru_table_i64(t, s->local);
            ru_table_i64(t, (int64_t)s->passes + 1);
        } else {
            ru_table_none(t);
            ru_table_none(t);
        }
        if (s->goodput > 0) {
            ru_table_f64(t, s->goodput, 1);
        } else {
            ru_table_none(t);
        }
        ru_table_f64(t, s->speedup, 2);
    }
}

/* Those of other systems give a job what it asked for, whatever it may have. */
static bool beyond(const alloc_file *f, const ru_alloc_plan *p)
{
    const job_file *jobs = f->jobs.at;
    bool is = false;
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        uint32_t n = p->jobs[i].replicas;
        is = is || (n > 0 && (n > jobs[i].replicas_max || n < jobs[i].replicas_min));
    }
    return is;
}

/* Does what is left of a job decide with the fitness? */
static bool hurries(const alloc_file *f)
{
    const job_file *jobs = f->jobs.at;
    bool is = false;
    for (uint32_t i = 0; i < f->jobs.n; i++) {
        is = is || (f->rush > 0 && jobs[i].left > 0);
    }
    return is;
}

typedef struct changes {
    uint32_t waits, restarts;
} changes;

static changes changes_of(const ru_alloc_plan *p)
{
    changes c = {0};
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        c.waits += p->jobs[i].replicas == 0;
        c.restarts += p->jobs[i].changed;
    }
    return c;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const alloc_file *f = v->in;
    const ru_alloc_plan *p = v->plan;
    const changes c = changes_of(p);
    if (beyond(f, p)) {
        ru_rival_is(v, p->fitness, false, "a job gets more or fewer replicas than it may have");
    } else if (hurries(f)) {
        ru_rival_beside(v, p->fitness,
                        "%u of %u devices, %u jobs wait, %u change; jobs near their end do not "
                        "come first",
                        p->used, p->devices, c.waits, c.restarts);
    } else {
        ru_rival_is(v, p->fitness, true, "%u of %u devices, %u jobs wait, %u change", p->used,
                    p->devices, c.waits, c.restarts);
    }
    return RU_OK;
}

#define SHARE(type_, field_, name_)                \
    RU_DECISION(type_, ru_alloc_plan, jobs, name_, \
                RU_LIST_OF(ru_alloc_plan, n_jobs, ru_alloc_share, field_))
#define PART(field_, name_)                       \
    RU_DECISION(U32, ru_alloc_plan, parts, name_, \
                RU_LIST_OF(ru_alloc_plan, n_parts, ru_alloc_part, field_))
static const ru_report_row rows[] = {
    SHARE(U32, replicas, "replicas"),
    SHARE(U32, first, "first_part"),
    SHARE(U32, n_parts, "parts"),
    PART(node, "part_node"),
    PART(devices, "part_devices"),
    SHARE(U32, local, "local_samples"), /* 0: the job's own business */
    SHARE(U32, passes, "more_passes"),
    SHARE(BOOL, changed, "changed"),
    RU_DECISION(U32, ru_alloc_plan, nodes_wanted, "nodes_wanted"),
};

static ru_status report_alloc(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const alloc_file *f = in;
    const ru_alloc_plan *p = plan;
    ru_report_answer(r, "use %u of %u devices for %u jobs", p->used, p->devices, p->n_jobs);
    if (p->nodes_wanted != f->nodes.n) {
        ru_report_answer(r, "ask for %u nodes instead of %u", p->nodes_wanted, f->nodes.n);
    }
    ru_report_figure(r, "fitness", p->fitness);
    ru_report_figure(r, "utility", p->utility);
    ru_report_figure(r, "nodes_wanted", p->nodes_wanted);
    put_jobs(f, p, r);
    const changes c = changes_of(p);
    ru_policy_winner(&ru_policy_alloc, in, r, p->fitness, true,
                     "chosen: %u of %u devices, %u jobs wait, %u change", p->used, p->devices,
                     c.waits, c.restarts);
    RU_TRY(ru_policy_rivals(&ru_policy_alloc, in, plan, tools, judge, r, err));
    ru_report_assume(r,
                     "fitness is the power mean (%g) over jobs of goodput divided by the goodput "
                     "of a fair share, times what a restart leaves; larger is better, 1 is fair",
                     f->power);
    if (p->devices > 0) {
        ru_report_assume(r,
                         "to each job's ratio %.3g is added before the mean and taken off after, "
                         "so that a job that waits counts as little and not as nothing",
                         1e-3 * p->devices / f->nodes.n);
    }
    ru_report_assume(r,
                     "all devices are equal; goodput depends on how many devices, and on whether "
                     "they lie on one node");
    ru_report_trigger(r, "fitness", 0.1);
    ru_report_valid(r, (int64_t)60 * 1000000000);
    return RU_OK;
}

/* Devices of a host; "": of the host that has most. */
static uint32_t devices_of(const ru_world *w, const char *host)
{
    uint32_t n = 0;
    for (uint32_t i = 0; host[0] == 0 && i < w->cluster.hosts.n; i++) {
        uint32_t k = devices_of(w, w->cluster.hosts.at[i].name);
        n = k > n ? k : n;
    }
    for (uint32_t i = 0; host[0] != 0 && i < w->cluster.devices.n; i++) {
        n += strcmp(w->cluster.devices.at[i].host, host) == 0;
    }
    return n;
}

/* The job's steps by its numbers of workers, which lie on as few hosts as they can. */
static double put_measured(const ru_world *w, const ru_world_job *job, uint32_t most, ru_json *j)
{
    double noise = 0;
    ru_json_open(j, "measured", '[');
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        const ru_step_fact *s = &w->facts.steps.at[i];
        bool its = strcmp(s->job, job->name) == 0 || (s->job[0] == 0 && w->jobs.n == 1);
        if (!its || s->rank > 0 || s->samples < 1 || s->workers < 1 || !(s->took.mean_ns >= 1)) {
            continue;
        }
        bool parts = s->compute_ns >= 1 && s->compute_ns < s->took.mean_ns;
        ru_json_open(j, NULL, '{');
        ru_json_i64(j, "nodes", 1 + (s->workers - 1) / most);
        ru_json_i64(j, "replicas", s->workers);
        ru_json_i64(j, "local", s->samples);
        ru_json_f64(j, "pass", (parts ? s->compute_ns : s->took.mean_ns) * 1e-9);
        ru_json_f64(j, "step", s->took.mean_ns * 1e-9);
        ru_json_close(j);
        noise = s->gradient_noise > 0 ? s->gradient_noise : noise;
    }
    ru_json_close(j);
    return noise;
}

/* Hosts with their devices, and jobs as if all waited. */
static ru_status derive_alloc(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    (void)scratch;
    uint32_t most = devices_of(w, "");
    if (most == 0 || w->jobs.n == 0) {
        return RU_FAIL(err, RU_E_MISSING, "it must hold jobs, and hosts with devices");
    }
    ru_json_open(j, "nodes", '[');
    for (uint32_t i = 0; i < w->cluster.hosts.n; i++) {
        ru_json_i64(j, NULL, devices_of(w, w->cluster.hosts.at[i].name));
    }
    ru_json_close(j);
    ru_json_open(j, "jobs", '[');
    for (uint32_t i = 0; i < w->jobs.n; i++) {
        const ru_world_job *job = &w->jobs.at[i];
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", job->name);
        ru_json_i64(j, "replicas_min", job->workers_min);
        if (job->workers_max > 0) {
            ru_json_i64(j, "replicas", job->workers_max);
            ru_json_i64(j, "replicas_max", job->workers_max);
        }
        double noise = put_measured(w, job, most, j);
        if (job->batch > 0) { /* the noise makes no difference to a batch that stays */
            ru_json_i64(j, "batch_first", job->batch);
            ru_json_i64(j, "batch_max", job->batch);
            ru_json_i64(j, "batch", job->batch);
            ru_json_f64(j, "sqr", noise > 0 ? 1 : 0);
            ru_json_f64(j, "var", noise / (double)job->batch);
        }
        ru_json_close(j);
    }
    ru_json_close(j);
    return RU_OK;
}

const ru_policy ru_policy_alloc = {
    .name = "alloc",
    .version = 3,
    .decides = "which job runs on which devices of a cluster, with what batch",
    .source = "qiao-2021 sec 4.2",
    .in = &table,
    .plan_bytes = sizeof(ru_alloc_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .more_is_better = true,
    .plan = plan_alloc,
    .check = check_alloc,
    .report = report_alloc,
    .derive = derive_alloc,
    .example = "# Two nodes of four devices. One job has run alone, one waits, one is new.\n"
               "nodes: [4, 4]\n"
               "jobs:\n"
               "  - name: vision\n"
               "    batch_first: 128\n"
               "    batch_max: 1280\n"
               "    local_min: 64\n"
               "    local_max: 256\n"
               "    perf: [0.121, 0.00568, 0.0236, 0.00634, 0.0118, 0.00317, 1.14]\n"
               "    sqr: 0.00136\n"
               "    var: 0.000502\n"
               "    replicas: 4\n"
               "    remaining: 9000\n"
               "    age: 900s\n"
               "    service: 800\n"
               "    now: [0]\n"
               "  - name: text\n"
               "    batch_first: 12\n"
               "    batch_max: 384\n"
               "    local_min: 4\n"
               "    local_max: 12\n"
               "    measured:\n"
               "      - {nodes: 1, replicas: 1, local: 6, pass: 0.556, step: 0.569}\n"
               "      - {nodes: 1, replicas: 1, local: 12, pass: 0.908, step: 0.921}\n"
               "      - {nodes: 1, replicas: 2, local: 12, pass: 0.91, step: 1.21}\n"
               "    sqr: 1\n"
               "    var: 35\n"
               "    replicas_max: 4\n"
               "    replicas: 2\n"
               "    remaining: 4000\n"
               "    age: 600s\n"
               "    restarts: 1\n"
               "    service: 700\n"
               "  - name: new\n"
               "    batch_first: 32\n"
               "    batch_max: 1024\n"
               "    local_max: 256\n"
               "    replicas_max: 1\n"
               "    replicas: 8\n"
               "    age: 20s\n",
};
