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
#include "env/file.h"
#include "env/process.h"
#include "env/self.h"

enum { ROUNDS = 3, STEPS = 100, STEPS_QUICK = 45, STEPS_FIRST = 5, WORKERS_MAX = 4, PORT = 7730 };

static const char *const token = "RUBATO_TOKEN=of-the-questions-of-the-laboratory";

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
    ru_bench *b;
    const char *script, *self, *dir;
    char lab[16];
    uint32_t cases, near, inside;
    double errors[RU_ARRAY_LEN(jobs) * RU_ARRAY_LEN(scenes)]; /* [cases] sizes, percent */
} bench_whatif;

/* Wait for its end; what it says goes nowhere. */
static ru_status finish(ru_process *p, int *code, ru_err *err)
{
    const char *line = "";
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
    }
    *code = ru_process_wait(p);
    return st;
}

static ru_status quietly(const char *const *argv, ru_err *err)
{
    int code = 0;
    ru_process *p = NULL;
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = finish(p, &code, err);
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_USER, "%s %s ended with %d", argv[0], argv[1], code);
}

/* -- inputs ------------------------------------------------------------------------------------ */

static ru_status make_data(const bench_whatif *t, const char *kind, const char *to,
                           const char *const *more, ru_err *err)
{
    const char *path = ru_path_join(t->b->arena, t->dir, to);
    const char *argv[16] = {t->self, "data", "make", kind, "--out", path};
    for (uint32_t k = 0; more[k] != NULL; k++) {
        argv[6 + k] = more[k];
    }
    return path == NULL || ru_path_exists(path) ? RU_OK : quietly(argv, err);
}

static ru_status make_inputs(const bench_whatif *t, ru_err *err)
{
    static const char *const digits[] = {"--count", "4000", "--test", "200", NULL};
    static const char *const noise[] = {"--count", "4000",      "--test", "100", "--features",
                                        "32",      "--classes", "10",     NULL};
    static const char *const text[] = {"--count", "400000", NULL};
    RU_TRY(make_data(t, "digits", "digits", digits, err));
    RU_TRY(make_data(t, "noise", "noise", noise, err));
    return make_data(t, "grammar", "text", text, err);
}

/* A worker looks for the data from where it stands: @ becomes the folder. */
static void put_data(ru_text *y, const char *data, const char *dir)
{
    for (; *data != '\0'; data++) {
        if (*data == '@') {
            ru_text_putf(y, "%s/", dir);
        } else {
            ru_text_putf(y, "%c", *data);
        }
    }
}

static ru_status put_job(const bench_whatif *t, const job *j, const char **path, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    *path = ru_arena_printf(t->b->arena, "%s/%s.yaml", t->dir, j->name);
    ru_text_putf(&y, "name: %s\nmodel: %s\ndata: ", j->name, j->model);
    put_data(&y, j->data, t->dir);
    ru_text_putf(&y,
                 "\ntrain: {optimizer: {sgd: {lr: 0.01}}, batch: %d, steps: %d, threads: 1, "
                 "autotune: false}\ncheckpoint: {every: 0s, keep: 1}\n",
                 j->batch, t->b->quick ? STEPS_QUICK : STEPS);
    return *path != NULL && !y.cut ? ru_file_replace(*path, y.p, y.n, err)
                                   : RU_FAIL(err, RU_E_MEM, "no memory for a job file");
}

/* -- measuring --------------------------------------------------------------------------------- */

static const char *number(ru_arena *a, uint32_t k)
{
    return ru_arena_printf(a, "%u", k);
}

static ru_status start_worker(const bench_whatif *t, const scene *s, uint32_t k, const char *yaml,
                              const char *out, ru_process **p, ru_err *err)
{
    ru_arena *a = t->b->arena;
    const char *first = ru_arena_printf(a, "10.77.0.1:%d", PORT);
    const char *argv[] = {t->script,
                          "cpu",
                          t->lab,
                          number(a, k + 1),
                          k == 0 ? s->quota : "40",
                          t->self,
                          "worker",
                          "-q",
                          "--job",
                          yaml,
                          "--out",
                          out,
                          "--founders",
                          number(a, s->workers),
                          "--threads",
                          "1",
                          "--sockets",
                          "--equal-shares",
                          "--rank",
                          number(a, k),
                          "--listen",
                          ru_arena_printf(a, "10.77.0.%u:%u", k + 1, PORT + k),
                          k > 0 ? "--join" : NULL,
                          first,
                          NULL};
    const char *const set[] = {token, NULL};
    const ru_process_options opt = {.argv = argv, .set = set, .pipe_out = true};
    return ru_process_start(&opt, p, err);
}

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
    char owner[24];
    ru_process *p[WORKERS_MAX] = {NULL};
    snprintf(owner, sizeof owner, "%lld", (long long)ru_self_pid());
    const char *up[] = {t->script, "up",    t->lab,    number(t->b->arena, s->workers),
                        "--rate",  s->rate, "--burst", "128kb",
                        "--owner", owner,   NULL};
    const char *down[] = {t->script, "down", t->lab, NULL};
    RU_TRY(ru_path_exists(out) ? ru_path_remove(out, err) : RU_OK);
    RU_TRY(quietly(up, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < s->workers && st == RU_OK; k++) {
        st = start_worker(t, s, k, yaml, out, &p[k], err);
    }
    for (uint32_t k = 0; k < s->workers && st == RU_OK; k++) {
        int code = 0;
        st = finish(p[k], &code, err);
        if (st == RU_OK && code != 0) {
            st = RU_FAIL(err, RU_E_USER, "%s: worker %u ended with %d", out, k + 1, code);
        }
    }
    for (uint32_t k = 0; k < s->workers; k++) {
        ru_process_close(p[k]);
    }
    (void)!quietly(down, NULL);
    return st == RU_OK ? steps_of(out, t->b->arena, mean_ms, err) : st;
}

/* -- predicting -------------------------------------------------------------------------------- */

/* What the program tells a person: predicted, least, most, in ms. */
static ru_status ask(const bench_whatif *t, const char *run, const char *question, double ms[3],
                     ru_err *err)
{
    const char *argv[] = {t->self, "explain", run, "--if", question, NULL};
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
    const char *name = ru_arena_printf(t->b->arena, "%s: %s", j->name, s->name);
    return name != NULL ? name : "";
}

static ru_status measure(bench_whatif *t, const job *j, const scene *s, const char *yaml,
                         const char *was, ru_err *err)
{
    uint32_t n = t->b->quick ? 1 : ROUNDS;
    double said[3], took[ROUNDS];
    const char *out = ru_arena_printf(t->b->arena, "%s/%s-then", t->dir, j->name);
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
    return ru_bench_add(t->b, &row, err);
}

static ru_status run_job(bench_whatif *t, const job *j, ru_err *err)
{
    bool wants = false;
    double ms;
    const char *yaml, *was = ru_arena_printf(t->b->arena, "%s/%s-was", t->dir, j->name);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(scenes); k++) {
        wants = wants || ru_bench_wants(t->b, row_name(t, j, &scenes[k]));
    }
    if (!wants) {
        return RU_OK;
    }
    RU_TRY(put_job(t, j, &yaml, err));
    RU_TRY(run_scene(t, &recorded, yaml, was, &ms, err));
    fprintf(stderr, "%-38s %9.1f ms\n", row_name(t, j, &recorded), ms);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(scenes); k++) {
        if (ru_bench_wants(t->b, row_name(t, j, &scenes[k]))) {
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
    return ru_bench_add(t->b, &row, err);
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
    return ru_bench_add(t->b, &row, err);
}

/* Can this machine hold the laboratory? Its script says what is missing. */
static ru_status check_lab(const bench_whatif *t, ru_err *err)
{
    enum { REASON_MAX = 400 };
    static const char needs[] = "bench whatif runs workers in network namespaces with quotas of "
                                "processor time, which this machine cannot hold";
    const char *argv[] = {"sh", "-c", "exec \"$0\" check cpu 2>&1", t->script, NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true};
    if (!ru_path_exists(t->script)) {
        return RU_FAIL(err, RU_E_MISSING, "%s: %s is not there; run it in the source tree", needs,
                       t->script);
    }
    char reason[REASON_MAX] = "its check says nothing";
    const char *line = "";
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
        if (st == RU_OK && line != NULL && line[0] != '\0') {
            const char *skipped = strstr(line, "skipped: ");
            (void)snprintf(reason, sizeof reason, "%s",
                           skipped != NULL ? skipped + strlen("skipped: ") : line);
        }
    }
    int code = ru_process_wait(p);
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_MISSING, "%s: %s", needs, reason);
}

ru_status ru_bench_whatif(ru_bench *b, ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena);
    bench_whatif t = {.b = b, .self = ru_bench_self(b->arena)};
    t.script = ru_path_join(b->arena, scripts != NULL ? scripts : ".", "../test/lab/net.sh");
    t.dir = ru_path_join(b->arena, b->dir, "whatif");
    if (t.self == NULL || t.script == NULL || t.dir == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the paths of the benchmark");
    }
    snprintf(t.lab, sizeof t.lab, "w%lld", (long long)ru_self_pid());
    RU_TRY(check_lab(&t, err));
    RU_TRY(ru_dir_make(t.dir, err));
    RU_TRY(make_inputs(&t, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(jobs); k++) {
        RU_TRY(run_job(&t, &jobs[k], err));
    }
    return judge(&t, err);
}
