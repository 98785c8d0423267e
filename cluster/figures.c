#include "cluster/figures.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "env/file/file.h"

enum { BYTES = 256 << 10, WARM = 3 }; /* steps after a change that do not count */

static const double steps_min = 5; /* of a number of replicas, before it counts */
/* The last step before a change that takes so many times as long as others was held up by it: who
 * comes is waited for in that step. An evaluation makes a step longer, too. */
static const double held_up = 8;
static const double count_max = 1e15;

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* The file is its user's, who may have written anything there. */
static double count(const json_t *o, const char *key)
{
    double n = floor(number(o, key, 0));
    return n >= 0 && n <= count_max ? n : 0;
}

/* Without room the configuration with the fewest steps is forgotten. */
static void add(ru_cluster_figures *f, uint32_t nodes, uint32_t local, double step_s)
{
    uint32_t k = 0, least = 0;
    nodes = nodes < 1 ? 1 : nodes < f->workers ? nodes : f->workers;
    while (k < f->n && (f->seen[k].nodes != nodes || f->seen[k].replicas != f->workers ||
                        f->seen[k].local != local)) {
        least = f->seen[k].steps < f->seen[least].steps ? k : least;
        k++;
    }
    if (!(step_s > 0)) {
        return;
    }
    if (k == f->n) {
        k = f->n < RU_FIGURES_SAMPLES ? f->n++ : least;
        memset(&f->seen[k], 0, sizeof f->seen[k]);
        f->seen[k].nodes = nodes;
        f->seen[k].replicas = f->workers;
        f->seen[k].local = local;
    }
    double pass_s =
        f->workers > 1 && f->compute_s > 0 && f->compute_s < step_s ? f->compute_s : step_s;
    f->seen[k].steps += 1;
    f->seen[k].step_s += step_s;
    f->seen[k].pass_s += pass_s;
    f->last.at = k;
    f->last.step_s = step_s;
    f->last.pass_s = pass_s;
}

/* The first step with other workers takes as much longer as their change took, and perhaps the one
 * before it. */
static void on_change(ru_cluster_figures *f, double step_s)
{
    if (f->step_s > 0 && f->since >= WARM) {
        double usual_s = f->step_s, held_s = 0;
        RU_CHECK(f->last.at < RU_FIGURES_SAMPLES);
        if (f->last.step_s > held_up * f->last.usual_s && f->seen[f->last.at].steps > 1) {
            usual_s = f->last.usual_s;
            held_s = f->last.step_s - usual_s;
            f->seen[f->last.at].steps -= 1;
            f->seen[f->last.at].step_s -= f->last.step_s;
            f->seen[f->last.at].pass_s -= f->last.pass_s;
        }
        f->paused_s += held_s + fmax(step_s - usual_s, 0);
        f->pauses++;
    }
    f->step_s = f->last.step_s = 0;
}

/* What each worker computes of the step: its batch shows in the speed, where it adapts. */
static uint32_t local_of(const ru_cluster_figures *f, double samples)
{
    double batch = f->batch_max > 0 && samples >= 1 && samples < 1e9 ? samples : f->batch;
    return (uint32_t)((batch + 0.5) / f->workers + (1 - 1.0 / f->workers));
}

static void on_step(ru_cluster_figures *f, const json_t *o, uint32_t nodes)
{
    double workers = number(o, "workers", 1);
    uint32_t n = workers >= 1 && workers <= 1024 ? (uint32_t)workers : 1;
    f->step = (int64_t)count(o, "step");
    f->epoch = count(o, "epoch");
    f->loss = number(o, "loss", (double)f->loss);
    f->samples_per_s = number(o, "samples_per_s", 0);
    double step_s = number(o, "step_s", 0);
    if (n != f->workers) {
        on_change(f, step_s);
    }
    f->since = n == f->workers ? f->since + 1 : 0;
    f->workers = n;
    f->noise = number(o, "gradient_noise", f->noise);
    f->compute_s = number(o, "compute_s", f->compute_s); /* with what a quota takes of it */
    if (f->since >= WARM) {
        f->last.usual_s = f->step_s > 0 ? f->step_s : step_s;
        f->step_s = f->last.usual_s + 0.1 * (step_s - f->last.usual_s);
        add(f, nodes, local_of(f, f->samples_per_s * step_s), step_s);
    }
}

static void on_line(ru_cluster_figures *f, const char *line, int64_t n, uint32_t nodes)
{
    json_t *o = json_loadb(line, (size_t)n, 0, NULL);
    const char *schema = json_string_value(json_object_get(o, "schema"));
    if (schema != NULL && strcmp(schema, "rubato.train.step/1") == 0) {
        on_step(f, o, nodes);
    } else if (schema != NULL && strcmp(schema, "rubato.train.start/1") == 0) {
        double batch = number(o, "batch", 0);
        f->total = count(o, "steps");
        f->epochs = count(o, "epochs");
        double most = number(o, "batch_max", 0), local = number(o, "local_max", 0);
        f->batch = batch >= 1 && batch < 1e9 ? (uint32_t)batch : 0;
        f->batch_max = most >= batch && most < 1e9 ? (uint32_t)most : 0;
        f->local_max = local >= 1 && local < 1e9 ? (uint32_t)local : 0;
    } else if (schema != NULL && strcmp(schema, "rubato.train.event/1") == 0) {
        f->compute_s = number(o, "predicted_compute_s", f->compute_s);
    }
    json_decref(o);
}

static ru_status read_on(ru_cluster_figures *f, const char *out, uint32_t nodes, ru_arena *scratch,
                         ru_err *err)
{
    const char *path = ru_path_join(scratch, out, "metrics.jsonl");
    char *bytes = ru_arena_alloc(scratch, BYTES, 1);
    ru_in_file in;
    if (path == NULL || bytes == NULL || !ru_path_is_file(path)) {
        return RU_OK;
    }
    RU_TRY(ru_in_open_own(path, &in, err));
    bool cut = in.size_bytes - f->at_bytes > BYTES && f->at_bytes > 0;
    /* A run that goes on from a checkpoint has cut off the steps that it does again. */
    f->at_bytes = in.size_bytes < f->at_bytes ? in.size_bytes
                  : cut                       ? in.size_bytes - BYTES
                                              : f->at_bytes;
    int64_t n = in.size_bytes - f->at_bytes;
    n = n < BYTES ? n : BYTES;
    ru_status st = n > 0 ? ru_in_read(&in, path, f->at_bytes, bytes, n, err) : RU_OK;
    ru_in_close(&in);
    RU_TRY(st);
    int64_t at = 0;
    const char *end;
    while (at < n && (end = memchr(bytes + at, '\n', (size_t)(n - at))) != NULL) {
        int64_t size = end - (bytes + at);
        if (!cut || at > 0) { /* the first may be a part */
            on_line(f, bytes + at, size, nodes);
        }
        at += size + 1;
    }
    f->at_bytes += at;
    return RU_OK;
}

void ru_figures_look(ru_cluster_figures *f, const char *out, uint32_t nodes)
{
    ru_arena scratch;
    ru_err err;
    ru_arena_init(&scratch, 0);
    (void)!read_on(f, out, nodes, &scratch, &err); /* what cannot be read now is read later */
    ru_arena_fini(&scratch);
}

/* Steps of a job that adapts count for more than one: its epochs tell how far it is. */
double ru_figures_remaining(const ru_cluster_figures *f)
{
    bool by_epochs = f->batch_max > 0 && f->epochs > 0 && f->epoch >= 1;
    double left =
        by_epochs ? f->total * (f->epochs + 1 - f->epoch) / f->epochs : f->total - (double)f->step;
    return f->step < 1 ? 0 : f->total > 0 ? fmax(left, 1) : (double)f->step;
}

void ru_figures_model(const ru_cluster_figures *f, ru_goodput_model *into)
{
    ru_perf_sample samples[RU_FIGURES_SAMPLES];
    ru_arena scratch;
    ru_err err;
    uint32_t n = 0;
    bool adapts = f->batch_max > f->batch && f->noise > 0 && f->batch > 0;
    uint32_t most = adapts ? f->batch_max : f->batch;
    *into = (ru_goodput_model){.sqr = adapts ? 1 : 0,
                               .var = adapts ? f->noise / f->batch : 0,
                               .batch_first = f->batch,
                               .batch_max = most,
                               .local_min = 1,
                               .local_max = f->local_max > 0 && adapts ? f->local_max : most,
                               .batch = adapts ? 0 : f->batch,
                               .one_pass = true};
    for (uint32_t k = 0; k < f->n && f->batch > 0; k++) {
        if (f->seen[k].steps >= steps_min) {
            samples[n++] = (ru_perf_sample){.nodes = f->seen[k].nodes,
                                            .replicas = f->seen[k].replicas,
                                            .local = f->seen[k].local,
                                            .pass_s = f->seen[k].pass_s / f->seen[k].steps,
                                            .step_s = f->seen[k].step_s / f->seen[k].steps};
        }
    }
    ru_arena_init(&scratch, 0);
    if (n == 0 || ru_perf_fit(samples, n, NULL, &scratch, &into->perf, NULL, &err) != RU_OK) {
        into->perf = (ru_perf){0};
    }
    ru_arena_fini(&scratch);
}

/* A rule that counts workers alone believes what it measured, also where a place made it slow: the
 * next place is like it. */
uint32_t ru_figures_steps(const ru_cluster_figures *f, const ru_goodput_model *m, uint32_t slots,
                          double *step_s, uint32_t max)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        bool counts = f->seen[k].steps >= steps_min && f->seen[k].replicas > most;
        most = counts ? f->seen[k].replicas : most;
    }
    if (most == 0 || m->batch == 0 || !(m->perf.overlap >= 1)) {
        return 0;
    }
    const uint32_t n = most < max ? most + 1 : max;
    for (uint32_t r = 1; r <= n; r++) {
        ru_goodput_choice c = ru_goodput_split(m, r, m->batch);
        double sum_s = 0, steps = 0;
        for (uint32_t k = 0; k < f->n; k++) {
            if (f->seen[k].replicas == r && f->seen[k].steps >= steps_min) {
                sum_s += f->seen[k].step_s;
                steps += f->seen[k].steps;
            }
        }
        step_s[r - 1] = steps > 0 ? sum_s / steps
                                  : ru_perf_step_s(&m->perf, r > slots ? 2 : 1, r,
                                                   c.local > 0 ? c.local : 1, c.passes);
    }
    return n;
}
