#include "tool/explain/what_if.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/step/op.h"
#include "lab/script.h"

enum { STEPS = 40, FITS = 10, RUNS_MAX = 8, WORKERS_MAX = 1024 };

/* Parts by which a prediction may be wrong: the simulator about a step that it plays with exact
 * costs (docs/sim.md, real processes); the rate of a link that no collective measured; what the
 * simulator lacks of the recorded step, under other costs. */
#define MODEL_ERROR 0.05
#define FIT_ERROR   0.15
#define REST_ERROR  0.5
/* More workers than cores take turns, which the simulator shares evenly: a sum waits for the last.
 */
#define TURN_NS 4e6

/* What may be asked: the simulator counts in whole nanoseconds and bytes. */
#define FACTOR_MIN 0.001
#define FACTOR_MAX 1000
#define RATE_MIN   1e3
#define RATE_MAX   1e12

typedef struct question {
    double network, network_factor; /* bytes/s, or 0; on the recorded rate */
    int64_t workers, per_host, batch;
    double device; /* on all speeds */
    int64_t slow_worker;
    double slow_factor;
    double quota; /* on all quotas of processor time */
    int64_t held_worker;
    double held_factor;
    double storage;
    bool direct;
} question;

static const char *const keys[] = {"network", "workers", "per_host",   "device",
                                   "quota",   "batch",   "collective", "storage"};

static const char *value_of(const char *set, const char *key)
{
    size_t n = strlen(key);
    return strncmp(set, key, n) == 0 && set[n] == '=' ? set + n + 1 : NULL;
}

bool rui_what_if_is(const char *set)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(keys); k++) {
        if (value_of(set, keys[k]) != NULL) {
            return true;
        }
    }
    return false;
}

bool rui_factor_of(const char *text, double *into)
{
    char *end;
    *into = text[0] == 'x' ? strtod(text + 1, &end) : 0;
    return text[0] == 'x' && *end == '\0' && *into >= FACTOR_MIN && *into <= FACTOR_MAX;
}

static bool whole_of(const char *text, int64_t most, int64_t *into)
{
    char *end;
    *into = strtoll(text, &end, 10);
    return end != text && *end == '\0' && *into >= 1 && *into <= most;
}

bool rui_rate_of(const char *text, double *into)
{
    static const struct {
        const char *unit;
        double bytes_per_s;
    } units[] = {{"Gbit", 1.25e8}, {"Mbit", 1.25e5}, {"kbit", 125}, {"GB", 1e9}, {"MB", 1e6}};
    char *end;
    double x = strtod(text, &end);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(units) && end != text; k++) {
        size_t n = strlen(units[k].unit);
        if (strncasecmp(end, units[k].unit, n) == 0 &&
            (end[n] == '\0' || strcmp(end + n, "/s") == 0)) {
            *into = x * units[k].bytes_per_s;
            return *into >= RATE_MIN && *into <= RATE_MAX;
        }
    }
    return false;
}

/* "x0.5" for all, "1:x0.5" for worker 1. */
static bool whose_of(const char *text, double *all, int64_t *worker, double *one)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL) {
        return rui_factor_of(text, all);
    }
    char *end;
    *worker = strtoll(text, &end, 10);
    return end == colon && *worker >= 1 && *worker <= WORKERS_MAX && rui_factor_of(colon + 1, one);
}

static ru_status ask(const char *set, question *q, ru_err *err)
{
    static const char *const expected[] = {
        "a rate from 8kbit to 8000Gbit, or a factor from x0.001 to x1000",
        "a number from 1 to 1024",
        "a number from 1 to 1024",
        "a factor from x0.001 to x1000, or 1:x0.5 for worker 1",
        "a factor from x0.001 to x1000, or 1:x0.5 for worker 1",
        "a number of samples",
        "direct or fastest",
        "a factor from x0.001 to x1000"};
    const char *v = NULL;
    uint32_t k = 0;
    while (k < RU_ARRAY_LEN(keys) && (v = value_of(set, keys[k])) == NULL) {
        k++;
    }
    RU_CHECK(v != NULL);
    bool ok = false;
    switch (k) {
    case 0:
        ok = rui_factor_of(v, &q->network_factor) || rui_rate_of(v, &q->network);
        break;
    case 1:
        ok = whole_of(v, WORKERS_MAX, &q->workers);
        break;
    case 2:
        ok = whole_of(v, WORKERS_MAX, &q->per_host);
        break;
    case 3:
        ok = whose_of(v, &q->device, &q->slow_worker, &q->slow_factor);
        break;
    case 4:
        ok = whose_of(v, &q->quota, &q->held_worker, &q->held_factor);
        break;
    case 5:
        ok = whole_of(v, UINT32_MAX, &q->batch);
        break;
    case 6:
        q->direct = strcmp(v, "direct") == 0;
        ok = q->direct || strcmp(v, "fastest") == 0;
        break;
    default:
        ok = rui_factor_of(v, &q->storage);
        break;
    }
    return ok ? RU_OK
              : RU_FAIL(err, RU_E_USAGE, "--if %s: expected %s=%s", set, keys[k], expected[k]);
}

/* -- playing ----------------------------------------------------------------------------------- */

/* How the recorded job differs from what its op instances and collectives say: so many times slower
 * at computing, and a link of this part of the fitted rate. */
typedef struct fit {
    double slower, link;
} fit;

typedef struct played {
    ru_sim_world x;
    uint32_t founders;
    double step_ns, spread_ns; /* mean of the runs, and how far apart they are */
    double computed_ns;        /* of the step: until all gradients are ready */
} played;

/* Only a quota that a worker uses up is in the simulated job. */
static ru_status check_quota(const question *q, const ru_sim_job *job, ru_err *err)
{
    bool one = q->held_worker > 0, asked = one || q->quota < 1 || q->quota > 1;
    bool held = job->quotas != NULL && (!one || job->quotas[q->held_worker - 1].quota_ns > 0);
    if (asked && !held) {
        return RU_FAIL(err, RU_E_MISSING,
                       "--if quota: %s used up a quota of processor time, so there is "
                       "nothing to change; device=x0.5 changes the speed",
                       one ? "the worker never" : "no worker of the run");
    }
    return RU_OK;
}

/* The simulated job with all changes (q NULL: as it was). */
static ru_status job_of(const ru_world *w, const question *q, const fit *f, uint64_t seed,
                        ru_arena *arena, ru_sim_job *job, ru_sim_world *x, ru_err *err)
{
    *job = (ru_sim_job){.seed = seed, .steps = STEPS};
    if (q != NULL) {
        job->per_host = (uint32_t)q->per_host;
        job->founders = (uint32_t)q->workers;
        job->batch = q->batch;
        job->deterministic = q->direct;
    }
    RU_TRY(ru_sim_job_of_world(w, arena, job, x, err));
    RU_TRY(q != NULL ? check_quota(q, job, err) : RU_OK);
    double speed = (q != NULL ? q->device : 1) / f->slower;
    double link = f->link * (q != NULL ? q->network_factor : 1);
    double *speeds = RU_NEW(arena, double, job->founders);
    ru_sim_quota *quotas = RU_NEW(arena, ru_sim_quota, job->founders);
    if (speeds == NULL || quotas == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", job->founders);
    }
    for (uint32_t k = 0; k < job->founders; k++) {
        bool slow = q != NULL && k + 1 == q->slow_worker,
             held = q != NULL && k + 1 == q->held_worker;
        speeds[k] = job->speeds[k] * speed * (slow ? q->slow_factor : 1);
        if (job->quotas != NULL) {
            quotas[k] = job->quotas[k];
            double part = (q != NULL ? q->quota : 1) * (held ? q->held_factor : 1);
            quotas[k].quota_ns = (int64_t)((double)quotas[k].quota_ns * part);
        }
    }
    job->speeds = speeds;
    job->quotas = job->quotas != NULL ? quotas : NULL;
    job->nic.bytes_per_s = q != NULL && q->network > 0 ? q->network : job->nic.bytes_per_s * link;
    job->nic.local_bytes_per_s *= link;
    job->steps = job->founders > 64 ? STEPS / 4 : STEPS;
    return RU_OK;
}

/* Quotas of different processes begin their periods at different instants, which no trace says: so
 * many runs with other ones. */
static ru_status play(const ru_world *w, const question *q, const fit *f, ru_arena *arena,
                      played *into, ru_err *err)
{
    double sum = 0, squares = 0, computed = 0, n = 0;
    ru_sim_job job;
    ru_arena_mark mark = ru_arena_mark_get(arena);
    for (uint64_t seed = 1; seed <= RUNS_MAX; seed++) {
        ru_sim_job_result r;
        ru_arena_rewind(arena, mark);
        RU_TRY(job_of(w, q, f, seed, arena, &job, &into->x, err));
        RU_TRY(ru_sim_job_run(&job, &r, err));
        sum += (double)r.step_ns;
        squares += (double)r.step_ns * (double)r.step_ns;
        computed += (double)r.compute_ns;
        n++;
        if (job.quotas == NULL || job.founders > 64) {
            break;
        }
    }
    double v = squares / n - sum / n * sum / n;
    into->founders = job.founders;
    into->step_ns = sum / n;
    into->spread_ns = v > 0 ? sqrt(v) : 0;
    into->computed_ns = computed / n;
    return RU_OK;
}

/* What the trace of the worker says that the facts of steps are of; NULL: nothing. */
static const ru_processor_fact *traced(const ru_world *w)
{
    enum { STEPS_MIN = 20 };
    for (uint32_t k = 0; k < w->facts.processors.n; k++) {
        const ru_processor_fact *p = &w->facts.processors.at[k];
        if (p->rank == w->facts.steps.at[0].rank && p->took.count >= STEPS_MIN) {
            return p;
        }
    }
    return NULL;
}

/* The recorded steps without the first ones, else the mean of all. */
static ru_fact recorded_of(const ru_world *w)
{
    const ru_processor_fact *p = traced(w);
    return p != NULL ? p->took : w->facts.steps.at[0].took;
}

/* Where no quota of processor time stretches it, the recorded compute time tells how slow the
 * device was. Where no collective was measured, what is left of the step is the network's; a job of
 * one worker has none, and steps that even the slowest link does not make as long as they took say
 * nothing of the link. */
static ru_status calibrate(const ru_world *w, ru_arena *arena, fit *f, played *was, ru_err *err)
{
    const ru_step_fact *s = &w->facts.steps.at[0];
    double goal_ns = recorded_of(w).mean_ns - s->input_ns - s->wait_ns, low = 1.0 / 32, high = 4;
    *f = (fit){1, 1};
    RU_TRY(play(w, NULL, f, arena, was, err));
    const ru_script *x = &was->x.script;
    double says = (double)x->fixed_ns + (double)s->samples * x->sample_ns + (double)x->update_ns;
    if (!was->x.quota) {
        f->slower = says > 0 && s->compute_ns > 0 ? s->compute_ns / (says * was->x.slower) : 1;
        f->slower = f->slower < 0.25 ? 0.25 : f->slower > 8 ? 8 : f->slower;
    }
    bool fits = s->workers > 1 && !was->x.link_measured;
    if (fits) {
        f->link = low;
        RU_TRY(play(w, NULL, f, arena, was, err));
        fits = was->step_ns > goal_ns;
        f->link = 1;
    }
    for (uint32_t k = 0; k < FITS && fits; k++) {
        f->link = sqrt(low * high);
        ru_arena_mark mark = ru_arena_mark_get(arena);
        RU_TRY(play(w, NULL, f, arena, was, err));
        ru_arena_rewind(arena, mark);
        if (was->step_ns > goal_ns) {
            low = f->link;
        } else {
            high = f->link;
        }
    }
    return play(w, NULL, f, arena, was, err);
}

/* How uncertain the mean time of a step's ops is, relative: each mean by its spread and count. */
static double ops_error(const ru_world *w)
{
    double square = 0, all = 0;
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        const ru_fact *f = &w->facts.ops.at[i].took;
        if (f->count > 0) {
            double e = f->stddev_ns / sqrt((double)f->count);
            square += e * e;
            all += f->mean_ns;
        }
    }
    return all > 0 ? sqrt(square) / all : 0.1;
}

/* How far the simulated pauses of quotas are from the recorded ones: relative to the time that a
 * worker computes, pauses included. */
static double pauses_error(const played *was)
{
    double recorded_ns = (double)was->x.compute_ns;
    return was->x.quota && recorded_ns > 0 ? fabs(was->computed_ns / recorded_ns - 1) : 0;
}

/* Readers work ahead: a step waits for them when they need longer for its samples than it takes
 * itself. What it waited for beyond that becomes longer with the storage. */
static double with_input(const ru_world *w, const question *q, double own_ns)
{
    const ru_step_fact *s = &w->facts.steps.at[0];
    const ru_processor_fact *p = traced(w);
    double read_ns = p != NULL ? p->read_ns : 0;
    double behind_ns = read_ns - (recorded_of(w).mean_ns - s->input_ns);
    double beyond_ns = s->input_ns - (behind_ns > 0 ? behind_ns : 0);
    double batch = (double)(q->batch > 0 ? q->batch : w->jobs.at[0].batch);
    double share = batch / (double)(q->workers > 0 ? q->workers : s->workers > 0 ? s->workers : 1);
    read_ns *= share / (double)s->samples / q->storage;
    return (own_ns > read_ns ? own_ns : read_ns) + (beyond_ns > 0 ? beyond_ns / q->storage : 0);
}

/* Half of the interval: parts that have nothing to do with each other. */
static double half_of(const ru_world *w, const question *q, const played *was, const played *then,
                      double step_ns)
{
    const ru_fact recorded = recorded_of(w);
    double network_ns = then->step_ns - then->computed_ns;
    bool scaled = q->workers > 0 || q->batch > 0;
    double compute = ops_error(w) + (scaled ? 0.25 * then->x.error : 0);
    compute = compute < 0.3 ? compute : 0.3;
    double link = then->x.link_measured ? then->x.link_error : FIT_ERROR;
    const double parts[] = {
        MODEL_ERROR * step_ns,
        recorded.stddev_ns / recorded.mean_ns * step_ns,
        then->spread_ns,
        compute * then->computed_ns,
        pauses_error(was) * then->computed_ns,
        link * (network_ns > 0 ? network_ns : 0),
        (was->x.slower > 1) != (then->x.slower > 1) ? TURN_NS : 0,
        REST_ERROR * (recorded.mean_ns - w->facts.steps.at[0].input_ns - was->step_ns),
    };
    double sum = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(parts); k++) {
        sum += parts[k] * parts[k];
    }
    return sqrt(sum);
}

static void put_row(ru_table *t, const char *what, double ns, const char *from)
{
    ru_table_str(t, what);
    ru_table_ns(t, (int64_t)ns);
    ru_table_str(t, from != NULL ? from : "");
}

/* The number of hosts decides how many workers share cores and a network interface. */
static const char *where(const ru_world *w, const played *then, ru_arena *arena)
{
    uint32_t n = then->founders, hosts = then->x.hosts;
    const char *cores = w->cluster.hosts.n > 0 && w->cluster.hosts.at[0].cores > 0
                            ? ru_arena_printf(arena, " of %u core%s", w->cluster.hosts.at[0].cores,
                                              w->cluster.hosts.at[0].cores == 1 ? "" : "s")
                            : "";
    return ru_arena_printf(arena, "%u worker%s on %u host%s%s", n, n == 1 ? "" : "s", hosts,
                           hosts == 1 ? "" : "s", cores != NULL ? cores : "");
}

static ru_status tell(const ru_world *w, const question *q, const played *was, const played *then,
                      ru_arena *arena, const ru_tell *out, ru_err *err)
{
    const ru_step_fact *s = &w->facts.steps.at[0];
    const ru_fact recorded = recorded_of(w);
    double measured = recorded.mean_ns, rest = measured - s->input_ns - was->step_ns;
    /* What the simulator lacks does not shrink below nothing: then it is all in proportion. */
    double own = measured - s->input_ns;
    double step =
        with_input(w, q, rest >= 0 ? then->step_ns + rest : then->step_ns * own / was->step_ns);
    double half = half_of(w, q, was, then, step), low = step > half ? step - half : 0;
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "step", RU_TABLE_LEFT);
    ru_table_col(&t, "time", RU_TABLE_RIGHT);
    ru_table_col(&t, "from", RU_TABLE_LEFT);
    put_row(&t, "measured", measured,
            ru_arena_printf(arena, "%u worker%s", s->workers, s->workers == 1 ? "" : "s"));
    put_row(&t, "simulated as it was", was->step_ns, "op instances and links of the facts");
    put_row(&t, "simulated with the changes", then->step_ns, where(w, then, arena));
    put_row(&t, "predicted", step, "with what the simulator lacks of the measured step");
    RU_TRY(ru_tell_table(out, "times", NULL, &t, err));
    ru_tell_i64(out, "workers", s->workers);
    ru_tell_i64(out, "workers_then", then->founders);
    ru_tell_i64(out, "hosts_then", then->x.hosts);
    ru_tell_i64(out, "cores", w->cluster.hosts.n > 0 ? w->cluster.hosts.at[0].cores : 0);
    ru_tell_ns(out, "predicted_step_s", step);
    ru_tell_ns(out, "low_s", low);
    ru_tell_ns(out, "high_s", step + half);
    ru_tell_f64(out, "times_as_fast", measured / step);
    ru_text_putf(
        out->text,
        "predicted step: %.4g s, between %.4g and %.4g s; %.2f times as fast as measured\n",
        step * 1e-9, low * 1e-9, (step + half) * 1e-9, measured / step);
    return RU_OK;
}

static ru_status refuse(const char *set, ru_err *err)
{
    char text[128];
    ru_text names = ru_text_into(text, sizeof text);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(keys); k++) {
        ru_text_putf(&names, "%s%s",
                     k == 0                       ? ""
                     : k + 1 < RU_ARRAY_LEN(keys) ? ", "
                                                  : " and ",
                     keys[k]);
    }
    return RU_FAIL(err, RU_E_USAGE, "--if %s: expected one of %s, or a policy before the options",
                   set, text);
}

ru_status rui_what_if(const ru_world *w, const char *const *sets, uint32_t n, ru_arena *arena,
                      const ru_tell *out, ru_err *err)
{
    question q = {.network_factor = 1,
                  .device = 1,
                  .slow_factor = 1,
                  .quota = 1,
                  .held_factor = 1,
                  .storage = 1};
    played was, then;
    ru_text_put(out->text, "what if");
    ru_tell_open(out, "if", '[');
    for (uint32_t k = 0; k < n; k++) {
        if (!rui_what_if_is(sets[k])) {
            return refuse(sets[k], err);
        }
        RU_TRY(ask(sets[k], &q, err));
        ru_text_putf(out->text, "%s %s", k > 0 ? "," : "", sets[k]);
        ru_tell_str(out, NULL, sets[k]);
    }
    ru_text_put(out->text, "\n");
    ru_tell_close(out);
    if (w->facts.steps.n == 0 || w->facts.steps.at[0].took.count == 0) {
        return RU_FAIL(err, RU_E_MISSING, "the run has no measured steps to start from");
    }
    if (w->jobs.n > 0 && (double)q.batch > FACTOR_MAX * (double)w->jobs.at[0].batch) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--if batch=%lld: expected at most 1000 times the batch of the run, %lld",
                       (long long)q.batch, (long long)w->jobs.at[0].batch);
    }
    int64_t workers = q.workers > 0 ? q.workers : w->facts.steps.at[0].workers;
    int64_t named = q.slow_worker > q.held_worker ? q.slow_worker : q.held_worker;
    if (named > (workers > 0 ? workers : 1)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--if names worker %lld, but the job has %lld: name one from 1 to %lld",
                       (long long)named, (long long)workers, (long long)workers);
    }
    if (q.per_host == 0 && q.network > 0) {
        q.per_host = 1; /* a rate between hosts: each worker has one */
    } else if (q.per_host == 0 && w->cluster.hosts.n == 1) {
        q.per_host =
            workers; /* no second host is known: more workers share the cores of this one */
    }
    fit f;
    RU_TRY(calibrate(w, arena, &f, &was, err));
    ru_status st = play(w, &q, &f, arena, &then, err);
    if (st == RU_E_PEER) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--if: with these costs workers do not hear from each other in time and the "
                       "job goes on without them: ask for a faster network");
    }
    RU_TRY(st);
    return tell(w, &q, &was, &then, arena, out, err);
}
