#include "tool/what_if.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "cost/op.h"
#include "lab/script.h"

enum { STEPS = 40, FITS = 10, WORKERS_MAX = 1024 };

/* Part by which the simulator may be wrong about a step that it plays with exact costs; of its
 * network time, more: the fit of a link is not the link. */
#define MODEL_ERROR   0.04
#define NETWORK_ERROR 0.15

typedef struct question {
    double network, network_factor; /* bytes/s, or 0; on the recorded rate */
    int64_t workers, per_host, batch;
    double device; /* on all speeds */
    int64_t slow_worker;
    double slow_factor;
    double storage;
    bool direct;
} question;

static const char *const keys[] = {"network", "workers",    "per_host", "device",
                                   "batch",   "collective", "storage"};

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

static bool factor_of(const char *text, double *into)
{
    char *end;
    *into = text[0] == 'x' ? strtod(text + 1, &end) : 0;
    return text[0] == 'x' && *end == '\0' && isfinite(*into) && *into > 0;
}

static bool whole_of(const char *text, int64_t most, int64_t *into)
{
    char *end;
    *into = strtoll(text, &end, 10);
    return end != text && *end == '\0' && *into >= 1 && *into <= most;
}

/* "10Gbit", "250 Mbit/s", "1.25GB/s" in bytes/s. */
static bool rate_of(const char *text, double *into)
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
            return isfinite(x) && x > 0;
        }
    }
    return false;
}

static bool device_of(const char *text, question *q)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL) {
        return factor_of(text, &q->device);
    }
    char *end;
    q->slow_worker = strtoll(text, &end, 10);
    return end == colon && q->slow_worker >= 1 && q->slow_worker <= WORKERS_MAX &&
           factor_of(colon + 1, &q->slow_factor);
}

static ru_status ask(const char *set, question *q, ru_err *err)
{
    static const char *const expected[] = {"a rate as in 10Gbit or a factor as in x0.5",
                                           "a number from 1 to 1024",
                                           "a number from 1 to 1024",
                                           "a factor as in x0.5, or 1:x0.5 for worker 1",
                                           "a number of samples",
                                           "direct or fastest",
                                           "a factor as in x0.5"};
    const char *v = NULL;
    uint32_t k = 0;
    while (k < RU_ARRAY_LEN(keys) && (v = value_of(set, keys[k])) == NULL) {
        k++;
    }
    RU_CHECK(v != NULL);
    bool ok = false;
    switch (k) {
    case 0:
        ok = factor_of(v, &q->network_factor) || rate_of(v, &q->network);
        break;
    case 1:
        ok = whole_of(v, WORKERS_MAX, &q->workers);
        break;
    case 2:
        ok = whole_of(v, WORKERS_MAX, &q->per_host);
        break;
    case 3:
        ok = device_of(v, q);
        break;
    case 4:
        ok = whole_of(v, UINT32_MAX, &q->batch);
        break;
    case 5:
        q->direct = strcmp(v, "direct") == 0;
        ok = q->direct || strcmp(v, "fastest") == 0;
        break;
    default:
        ok = factor_of(v, &q->storage);
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
    int64_t step_ns, computed_ns; /* of the step: of the longest share */
} played;

/* The job with all changes (q NULL: as it was); per_host and the fit hold for both. */
static ru_status play(const ru_world *w, const question *q, int64_t per_host, const fit *f,
                      ru_arena *arena, played *into, ru_err *err)
{
    ru_sim_job_result r;
    ru_sim_job job = {.seed = 1, .steps = STEPS, .per_host = (uint32_t)per_host};
    if (q != NULL) {
        job.founders = (uint32_t)q->workers;
        job.batch = q->batch;
        job.deterministic = q->direct;
    }
    RU_TRY(ru_sim_job_of_world(w, arena, &job, &into->x, err));
    double speed = (q != NULL ? q->device : 1) / f->slower;
    double link = f->link * (q != NULL ? q->network_factor : 1);
    double *speeds = RU_NEW(arena, double, job.founders);
    if (speeds == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", job.founders);
    }
    for (uint32_t k = 0; k < job.founders; k++) {
        bool slow = q != NULL && k + 1 == q->slow_worker;
        speeds[k] = job.speeds[k] * speed * (slow ? q->slow_factor : 1);
    }
    job.speeds = speeds;
    job.nic.bytes_per_s = q != NULL && q->network > 0 ? q->network : job.nic.bytes_per_s * link;
    job.nic.local_bytes_per_s *= link;
    job.steps = job.founders > 64 ? STEPS / 4 : STEPS;
    RU_TRY(ru_sim_job_run(&job, &r, err));
    int64_t share = (job.batch + job.founders - 1) / job.founders;
    const ru_script *s = &into->x.script;
    into->computed_ns =
        (int64_t)(((double)s->fixed_ns + (double)share * s->sample_ns) / speed * into->x.slower);
    into->step_ns = r.step_ns;
    return RU_OK;
}

/* The recorded split of a step: its compute tells how slow the device was, what is left of the step
 * is the network's. A job of one worker has no network. */
static ru_status calibrate(const ru_world *w, int64_t per_host, ru_arena *arena, fit *f,
                           played *was, ru_err *err)
{
    const ru_step_fact *s = &w->facts.steps.at[0];
    double goal_ns = s->took.mean_ns - s->input_ns - s->wait_ns, low = 1.0 / 32, high = 4;
    *f = (fit){1, 1};
    RU_TRY(play(w, NULL, per_host, f, arena, was, err));
    const ru_script *x = &was->x.script;
    double says = (double)x->fixed_ns + (double)s->samples * x->sample_ns + (double)x->update_ns;
    f->slower = says > 0 && s->compute_ns > 0 ? s->compute_ns / (says * was->x.slower) : 1;
    f->slower = f->slower < 0.25 ? 0.25 : f->slower > 8 ? 8 : f->slower;
    RU_TRY(play(w, NULL, per_host, f, arena, was, err));
    for (uint32_t k = 0; k < FITS && s->workers > 1; k++) {
        f->link = sqrt(low * high);
        ru_arena_mark mark = ru_arena_mark_get(arena);
        RU_TRY(play(w, NULL, per_host, f, arena, was, err));
        ru_arena_rewind(arena, mark);
        if ((double)was->step_ns > goal_ns) {
            low = f->link;
        } else {
            high = f->link;
        }
    }
    return play(w, NULL, per_host, f, arena, was, err);
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

static void put_row(ru_table *t, const char *what, double ns, const char *from)
{
    ru_table_str(t, what);
    ru_table_ns(t, (int64_t)ns);
    ru_table_str(t, from != NULL ? from : "");
}

static ru_status tell(const ru_world *w, const question *q, const played *was, const played *then,
                      ru_arena *arena, ru_text *out, ru_err *err)
{
    const ru_step_fact *s = &w->facts.steps.at[0];
    double measured = s->took.mean_ns, rest = measured - s->input_ns - (double)was->step_ns;
    double input = s->input_ns / q->storage;
    /* What the simulator lacks does not shrink below nothing: then it is all in proportion. */
    double step =
        rest >= 0 ? (double)then->step_ns + rest + input
                  : (double)then->step_ns * (measured - s->input_ns) / (double)was->step_ns + input;
    double network = (double)(then->step_ns - then->computed_ns);
    network = network > 0 ? network : 0;
    bool scaled = then->computed_ns != was->computed_ns;
    double compute_error = ops_error(w) + (scaled ? 0.25 * then->x.error : 0);
    compute_error = compute_error < 0.3 ? compute_error : 0.3;
    double e[] = {MODEL_ERROR * step, compute_error * (double)then->computed_ns,
                  NETWORK_ERROR * network, 0.3 * fabs(rest)};
    double half = sqrt(e[0] * e[0] + e[1] * e[1] + e[2] * e[2] + e[3] * e[3]);
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "step", RU_TABLE_LEFT);
    ru_table_col(&t, "time", RU_TABLE_RIGHT);
    ru_table_col(&t, "from", RU_TABLE_LEFT);
    put_row(&t, "measured", measured,
            ru_arena_printf(arena, "%u worker%s", s->workers, s->workers == 1 ? "" : "s"));
    put_row(&t, "simulated as it was", (double)was->step_ns, "op instances and links of the facts");
    put_row(&t, "simulated with the changes", (double)then->step_ns, "");
    put_row(&t, "predicted", step, "with what the simulator lacks of the measured step");
    RU_TRY(ru_table_print(&t, 2, out, err));
    ru_text_putf(
        out, "predicted step: %.4g s, between %.4g and %.4g s; %.2f times as fast as measured\n",
        step * 1e-9, (step - half) * 1e-9, (step + half) * 1e-9, measured / step);
    return RU_OK;
}

ru_status rui_what_if(const ru_world *w, const char *const *sets, uint32_t n, ru_arena *arena,
                      ru_text *out, ru_err *err)
{
    question q = {.network_factor = 1, .device = 1, .slow_factor = 1, .storage = 1};
    played was, then;
    ru_text_put(out, "what if");
    for (uint32_t k = 0; k < n; k++) {
        if (!rui_what_if_is(sets[k])) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--if %s: expected one of network, workers, per_host, device, batch, "
                           "collective and storage, or a policy before the options",
                           sets[k]);
        }
        RU_TRY(ask(sets[k], &q, err));
        ru_text_putf(out, "%s %s", k > 0 ? "," : "", sets[k]);
    }
    ru_text_put(out, "\n");
    if (w->facts.steps.n == 0 || w->facts.steps.at[0].took.count == 0) {
        return RU_FAIL(err, RU_E_MISSING, "the run has no measured steps to start from");
    }
    if (q.network > 0 && q.per_host == 0) {
        q.per_host = 1; /* a rate between hosts: each worker has one */
    }
    fit f;
    RU_TRY(calibrate(w, q.per_host, arena, &f, &was, err));
    RU_TRY(play(w, &q, q.per_host, &f, arena, &then, err));
    return tell(w, &q, &was, &then, arena, out, err);
}
