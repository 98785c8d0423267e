/* Is `rubato explain RUN --if ...` right? Six jobs, each recorded once: two workers on hosts of
 * their own in the network laboratory, behind links of 200 Mbit/s, each with 40 % of a core in
 * periods of 10 ms. From that one trace come four predictions, beside each what is then measured.
 *
 *   network halved, network doubled, 2 to 4 workers, worker 1 at half its quota */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/lab_run.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { ROUNDS = 3, STEPS = 100, STEPS_QUICK = 45, STEPS_FIRST = 5 };

typedef struct job {
    const char *name, *model, *data;
    int batch;
} job;

#define DIGITS "{format: idx, train: [@digits/train-images, @digits/train-labels]}"
#define NOISE  "{format: npy, train: [@noise/train-x.npy, @noise/train-y.npy]}"
#define TEXT   "{format: tokens, train: [@text/train.txt], context: 64}"

/* A step of each takes 70 to 130 ms as it is recorded. */
static const job jobs[] = {
    {"mlp", "{zoo: mlp, hidden: [512, 256]}", DIGITS, 128},
    {"lenet", "{zoo: lenet, width: 24}", DIGITS, 192},
    {"resnet18", "{zoo: resnet18, width: 16}", NOISE, 16},
    {"gpt", "{zoo: gpt, layers: 2, width: 128, heads: 2}", TEXT, 16},
    {"lstm", "{zoo: lstm, layers: 1, width: 192}", TEXT, 32},
    {"vgg", "{zoo: vgg11, channels: 16, width: 256}", NOISE, 16},
};

typedef struct scene {
    const char *name, *rate, *question;
    uint32_t workers;
    const char *quota; /* of the first worker, percent of a core */
} scene;

static const scene recorded = {"as recorded", "200mbit", NULL, 2, "40"};
static const scene scenes[] = {
    {"network halved", "100mbit", "network=x0.5", 2, "40"},
    {"network doubled", "400mbit", "network=x2", 2, "40"},
    {"2 to 4 workers", "200mbit", "workers=4", 4, "40"},
    {"worker 1 at half its quota", "200mbit", "quota=1:x0.5", 2, "20"},
};

typedef struct bench_whatif {
    ru_lab_run lab;
    uint32_t cases, near, inside;
    double errors[RU_ARRAY_LEN(jobs) * RU_ARRAY_LEN(scenes)]; /* [cases] sizes, percent */
} bench_whatif;

static ru_status put_job(const bench_whatif *t, const job *j, const char **path, ru_err *err)
{
    char train[64];
    snprintf(train, sizeof train, "batch: %d, steps: %d", j->batch,
             t->lab.b->quick ? STEPS_QUICK : STEPS);
    return ru_lab_run_job(&t->lab, j->name, j->model, j->data, train, path, err);
}

/* -- measuring --------------------------------------------------------------------------------- */

/* Mean of the steps of out/metrics.jsonl without the first ones. */
static ru_status steps_of(const char *out, ru_arena *arena, double *mean_ms, ru_err *err)
{
    char *text;
    int64_t n, count = 0;
    double sum = 0;
    RU_TRY(ru_file_read(ru_path_join(arena, out, "metrics.jsonl"), INT64_C(1) << 26, arena, &text,
                        &n, err));
    for (const char *at = text; (at = strstr(at, "\"rubato.train.step/1\"")) != NULL; at++) {
        const char *took = strstr(at, "\"step_s\":");
        if (took != NULL && count++ >= STEPS_FIRST) {
            sum += strtod(took + strlen("\"step_s\":"), NULL);
        }
    }
    *mean_ms = count > STEPS_FIRST ? 1e3 * sum / (double)(count - STEPS_FIRST) : 0;
    return count > STEPS_FIRST
               ? RU_OK
               : RU_FAIL(err, RU_E_USER, "%s has only %lld steps", out, (long long)count);
}

/* All workers of a scene, each on its host; `out` is their run. */
static ru_status run_scene(const bench_whatif *t, const scene *s, const char *yaml, const char *out,
                           double *mean_ms, ru_err *err)
{
    const char *const up[] = {"--rate", s->rate, "--burst", "128kb", NULL};
    ru_lab_scene lab = {.workers = s->workers, .up = up};
    for (uint32_t k = 0; k < s->workers; k++) {
        lab.quota[k] = k == 0 ? s->quota : "40";
    }
    RU_TRY(ru_lab_run_scene(&t->lab, &lab, yaml, out, NULL, err));
    return steps_of(out, t->lab.b->arena, mean_ms, err);
}

/* -- predicting -------------------------------------------------------------------------------- */

/* What the program tells a person: predicted, least, most, in ms. */
static ru_status ask(const bench_whatif *t, const char *run, const char *question, double ms[3],
                     ru_err *err)
{
    const char *argv[] = {t->lab.self, "explain", run, "--if", question, NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true};
    ru_process *p = NULL;
    const char *line = "";
    bool said = false;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
        said = said || (st == RU_OK && line != NULL &&
                        sscanf(line, "predicted step: %lf s, between %lf and %lf s", &ms[0], &ms[1],
                               &ms[2]) == 3);
    }
    (void)ru_process_wait(p);
    ru_process_close(p);
    RU_TRY(st);
    for (uint32_t k = 0; k < 3; k++) {
        ms[k] *= 1e3;
    }
    return said ? RU_OK : RU_FAIL(err, RU_E_USER, "%s --if %s: nothing predicted", run, question);
}

static const char *row_name(const bench_whatif *t, const job *j, const scene *s)
{
    const char *name = ru_arena_printf(t->lab.b->arena, "%s: %s", j->name, s->name);
    return name != NULL ? name : "";
}

static ru_status measure(bench_whatif *t, const job *j, const scene *s, const char *yaml,
                         const char *was, ru_err *err)
{
    uint32_t n = t->lab.b->quick ? 1 : ROUNDS;
    double said[3], took[ROUNDS];
    const char *out = ru_arena_printf(t->lab.b->arena, "%s/%s-then", t->lab.dir, j->name);
    RU_TRY(ask(t, was, s->question, said, err));
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(run_scene(t, s, yaml, out, &took[k], err));
    }
    const ru_bench_row row = {.name = row_name(t, j, s),
                              .unit = "ms",
                              .ours = {said[0], said[1], said[2], 1},
                              .theirs = ru_bench_stat_of(took, n),
                              .peer = "measured"};
    double error = 100 * (said[0] / row.theirs.median - 1);
    t->errors[t->cases++] = fabs(error);
    t->near += fabs(error) <= 10;
    t->inside += row.theirs.median >= said[1] && row.theirs.median <= said[2];
    return ru_bench_add(t->lab.b, &row, err);
}

static ru_status run_job(bench_whatif *t, const job *j, ru_err *err)
{
    bool wants = false;
    double ms;
    const char *yaml, *was = ru_arena_printf(t->lab.b->arena, "%s/%s-was", t->lab.dir, j->name);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(scenes); k++) {
        wants = wants || ru_bench_wants(t->lab.b, row_name(t, j, &scenes[k]));
    }
    if (!wants) {
        return RU_OK;
    }
    RU_TRY(put_job(t, j, &yaml, err));
    RU_TRY(run_scene(t, &recorded, yaml, was, &ms, err));
    fprintf(stderr, "%-38s %9.1f ms\n", row_name(t, j, &recorded), ms);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(scenes); k++) {
        if (ru_bench_wants(t->lab.b, row_name(t, j, &scenes[k]))) {
            RU_TRY(measure(t, j, &scenes[k], yaml, was, err));
        }
    }
    return RU_OK;
}

static ru_status add(bench_whatif *t, const char *name, bool lower, double x, double goal,
                     ru_err *err)
{
    const ru_bench_row row = {
        .name = name, .unit = "%", .lower = lower, .goal = goal, .ours = ru_bench_stat_of(&x, 1)};
    return ru_bench_add(t->lab.b, &row, err);
}

static ru_status judge(bench_whatif *t, ru_err *err)
{
    if (t->cases == 0) {
        return RU_OK;
    }
    double n = t->cases;
    const ru_bench_stat errors = ru_bench_stat_of(t->errors, t->cases);
    RU_TRY(add(t, "predicted within 10 %", false, 100 * t->near / n, 90, err));
    RU_TRY(add(t, "measured inside the interval", false, 100 * t->inside / n, 85, err));
    const ru_bench_row row = {
        .name = "size of the error", .unit = "%", .lower = true, .ours = errors};
    return ru_bench_add(t->lab.b, &row, err);
}

ru_status ru_bench_whatif(ru_bench *b, ru_err *err)
{
    bench_whatif t = {0};
    RU_TRY(ru_lab_run_open(b, "whatif", true, &t.lab, err));
    RU_TRY(ru_lab_run_inputs(&t.lab, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(jobs); k++) {
        RU_TRY(run_job(&t, &jobs[k], err));
    }
    return judge(&t, err);
}
