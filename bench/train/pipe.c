/* Pipelines on four workers, each with 40 % of a core on a host of its own in the network
 * laboratory, behind links of 100 Mbit/s and 1 Gbit/s; of two workers behind 1 Gbit/s too.
 *
 * `rubato profile` measures each net under that quota, and `rubato plan` cuts it by these facts. A
 * round trains the same cut in turns:
 *
 *   flush                the job's own step, 1F1B: what all others stand beside
 *   stash                without draining; gradients are late
 *   data parallel        the same batch, divided among the workers, sums overlap computing
 *   model parallel       one whole batch at a time through the same stages
 *   PyTorch              torch.distributed.pipelining, Schedule1F1B over gloo, the same cut
 *
 * A figure is samples per second over all steps but the first ones, and the largest resident size
 * of the worker that needs most. The step that the plan predicted stands beside the measured one.
 * Micro-batches are large enough that a part of a stage takes several periods of the quota: a
 * worker that waits for less leaves some of its quota unused. */
#include "bench/train/pipe.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "bench/lab_run.h"
#include "env/file/file.h"

enum { MICRO = 8, ROUNDS = 3, STEPS_MAX = 64 };

#define QUOTA   "40"
#define PAYLOAD 0.956 /* of a link's rate */

typedef struct net {
    const char *name, *model, *data;
    int batch;
} net;

/* The last three are those of `rubato bench ddp`; %s: the folder. */
static const net nets[] = {
    {"mlp", "{zoo: mlp, hidden: [2048, 2048, 2048]}",
     "{format: idx, train: [@digits/train-images, @digits/train-labels]}", 512},
    {"vgg", "{onnx: %s/vgg.onnx}",
     "{format: npy, train: [@noise64/train-x.npy, @noise64/train-y.npy]}", 64},
    {"resnet18", "{zoo: resnet18, classes: 10}",
     "{format: npy, train: [@noise/train-x.npy, @noise/train-y.npy]}", 64},
    {"gpt", "{zoo: gpt, layers: 4, heads: 4, width: 256, context: 128, vocab: 256, tie: false}",
     "{format: tokens, train: [@text/train.txt], token_bytes: 1, context: 128}", 32},
};

static const struct place {
    const char *name, *rate,
        *burst; /* about 1 ms of the rate: a piece is not let through at once */
    uint32_t workers;
    double bit_per_s;
} places[] = {{"4 workers, 100 Mbit/s", "100mbit", "16kb", 4, 100e6},
              {"4 workers, 1 Gbit/s", "1gbit", "128kb", 4, 1e9},
              {"2 workers, 1 Gbit/s", "1gbit", "128kb", 2, 1e9}};

typedef enum side { FLUSH, STASH, DATA, MODEL, TORCH, SIDES } side;

static const char *const side_names[SIDES] = {"flush", "stash", "data parallel", "model parallel",
                                              "PyTorch"};

typedef struct found {
    double rates[SIDES][ROUNDS];      /* samples a second */
    double peak_bytes[SIDES][ROUNDS]; /* of the worker that needs most */
    bool wants[SIDES];
    uint32_t rounds;
    const char *missing; /* why PyTorch is not there */
} found;

typedef struct bench_pipe {
    ru_lab_run lab;
    double errors[RU_ARRAY_LEN(nets) * RU_ARRAY_LEN(places)]; /* [n_errors] percent */
    uint32_t n_errors;
} bench_pipe;

/* A net on a place. */
typedef struct job {
    const net *n;
    const struct place *at;
    const char *cut;    /* "fc2, fc3" */
    double predicted_s; /* of a step */
} job;

/* -- jobs --------------------------------------------------------------------------------------
 */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the words of the benchmark");
}

/* A job of the net; `more`: what one side wants. */
static ru_status put_job(const bench_pipe *t, const net *n, const char *more, uint32_t steps,
                         const char **yaml, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *model = strchr(n->model, '%') == NULL
                            ? n->model
                            : ru_arena_printf(a, "{onnx: %s/%s.onnx}", t->lab.dir, n->name);
    const char *train = ru_arena_printf(a, "batch: %d, steps: %u%s", n->batch, steps, more);
    return model == NULL || train == NULL
               ? full(err)
               : ru_lab_run_job(&t->lab, n->name, model, n->data, train, yaml, err);
}

/* Data parallel steps move all weights: of the largest net one takes half a minute. */
static uint32_t steps_of(const bench_pipe *t, side s)
{
    bool quick = t->lab.b->quick;
    return s == DATA || s == MODEL ? (quick ? 2 : 5) : (quick ? 8 : 14);
}

static uint32_t skipped(side s)
{
    return s == DATA || s == MODEL ? 1 : 4;
}

static ru_status inputs(const bench_pipe *t, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *images = ru_path_join(a, t->lab.dir, "noise64");
    if (images == NULL) {
        return full(err);
    }
    RU_TRY(ru_lab_run_inputs(&t->lab, err));
    const char *make[] = {t->lab.self, "data",   "make", "noise",      "--out", images, "--count",
                          "256",       "--test", "16",   "--features", "64",    NULL};
    return ru_path_exists(images) ? RU_OK : ru_lab_run_command(&t->lab, make, NULL, err);
}

/* The net that PyTorch writes. */
static ru_status export_vgg(const bench_pipe *t, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *file = ru_path_join(a, t->lab.dir, "vgg.onnx");
    const char *script = ru_path_join(a, ru_bench_scripts(a), "models.py");
    if (file == NULL || script == NULL) {
        return full(err);
    }
    const char *argv[] = {"python3", script, t->lab.dir, "vgg", NULL};
    ru_bench_side exporter = {.argv = argv};
    return ru_path_exists(file)
               ? RU_OK
               : ru_bench_export(&exporter, file, "pip install torch==2.13.0 onnx onnxscript", err);
}

/* -- the plan ----------------------------------------------------------------------------------
 */

/* Facts of steps with two micro-batches under the quota: ops have the shapes of those of a stage.
 */
static ru_status profile(const bench_pipe *t, const net *n, const char **facts, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *yaml, *batch = ru_arena_printf(a, "train.batch=%d", 2 * n->batch / MICRO);
    *facts = ru_arena_printf(a, "%s/%s-facts.json", t->lab.dir, n->name);
    if (batch == NULL || *facts == NULL) {
        return full(err);
    }
    RU_TRY(put_job(t, n, ", accumulate: 2", 1, &yaml, err));
    return ru_lab_run_profile(&t->lab, yaml, batch, (const char *const[]){QUOTA}, 1, *facts, err);
}

static ru_status read_plan(const char *said, uint32_t workers, ru_arena *a, job *j, ru_err *err)
{
    json_t *root = said != NULL ? json_loads(said, 0, NULL) : NULL, *ways, *way;
    size_t k;
    ways = json_object_get(root, "ways");
    json_array_foreach(ways, k, way)
    {
        const char *name = json_string_value(json_object_get(way, "way"));
        const char *cut = json_string_value(json_object_get(way, "cut"));
        if (name != NULL && cut != NULL && strcmp(name, "flush") == 0 &&
            json_integer_value(json_object_get(way, "workers")) == workers) {
            j->cut = ru_arena_str(a, cut);
            j->predicted_s = json_number_value(json_object_get(way, "step_s"));
        }
    }
    json_decref(root);
    return j->cut != NULL && j->predicted_s > 0 && strchr(j->cut, ';') == NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_USER, "%s: the plan cuts it into no %u stages of one worker",
                         j->n->name, workers);
}

static ru_status plan(const bench_pipe *t, job *j, const char *facts, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    ru_text y = ru_text_arena(a);
    const char *yaml, *said = NULL, *path = ru_path_join(a, t->lab.dir, "cluster.yaml");
    ru_text_put(&y, "hosts:\n");
    for (uint32_t k = 0; k < j->at->workers; k++) {
        ru_text_putf(&y, "- {name: h%u, cores: 1, net_bytes_per_s: %.6g}\n", k,
                     PAYLOAD * j->at->bit_per_s / 8);
    }
    ru_text_put(&y, "devices:\n");
    for (uint32_t k = 0; k < j->at->workers; k++) {
        ru_text_putf(&y, "- {name: d%u, host: h%u, type: cpu" QUOTA "}\n", k, k);
    }
    if (y.cut || path == NULL) {
        return full(err);
    }
    RU_TRY(ru_file_replace(path, y.p, y.n, err));
    RU_TRY(put_job(t, j->n, ", accumulate: 8", 1, &yaml, err));
    const char *argv[] = {t->lab.self, "plan", yaml,     "--cluster", path,
                          "--facts",   facts,  "--json", NULL};
    RU_TRY(ru_lab_run_command(&t->lab, argv, &said, err));
    return read_plan(said, j->at->workers, a, j, err);
}

/* -- runs --------------------------------------------------------------------------------------
 */

/* From the seconds [n] of steps, without the first ones. */
static ru_status rate_of(const double *s, uint32_t n, side of, int batch, double *rate, ru_err *err)
{
    double sum = 0;
    for (uint32_t k = skipped(of); k < n; k++) {
        sum += s[k];
    }
    if (n <= skipped(of)) {
        return RU_FAIL(err, RU_E_PEER, "%s made %u steps only", side_names[of], n);
    }
    *rate = (double)batch * (double)(n - skipped(of)) / sum;
    return RU_OK;
}

static void seconds_of_line(const char *line, double *s, uint32_t *n)
{
    json_t *root = json_loads(line, 0, NULL), *list = json_object_get(root, "seconds");
    for (size_t k = 0; k < json_array_size(list) && *n < STEPS_MAX; k++) {
        s[(*n)++] = json_number_value(json_array_get(list, k));
    }
    json_decref(root);
}

static const char *keys_of(const job *j, side s, ru_arena *a)
{
    switch (s) {
    case STASH:
        return ru_arena_printf(
            a, ", parallel: pipeline, stale: true, pipeline: {cut: [%s], schedule: stash}", j->cut);
    case MODEL:
        return ru_arena_printf(a, ", parallel: pipeline, pipeline: {cut: [%s]}", j->cut);
    case FLUSH:
        return ru_arena_printf(a, ", parallel: pipeline, accumulate: %d, pipeline: {cut: [%s]}",
                               MICRO, j->cut);
    case DATA:
    case TORCH:
    case SIDES:
        break;
    }
    return "";
}

/* The cut without blanks. */
static const char *words_of(const char *cut, ru_arena *a)
{
    ru_text t = ru_text_arena(a);
    for (; *cut != '\0'; cut++) {
        if (*cut != ' ') {
            ru_text_putf(&t, "%c", *cut);
        }
    }
    return t.cut ? NULL : t.p;
}

static ru_status run_side(const bench_pipe *t, const job *j, side s, double *rate,
                          double *peak_bytes, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *const up[] = {"--rate", j->at->rate, "--burst", j->at->burst, NULL};
    const char *yaml = "", *out = ru_path_join(a, t->lab.dir, "run");
    const char *script = ru_path_join(a, ru_bench_scripts(a), "pipe_peer.py");
    const char *cut = words_of(j->cut, a), *keys = keys_of(j, s, a);
    const char *batch = ru_arena_printf(a, "%d", j->n->batch);
    const char *micro = ru_arena_printf(a, "%d", MICRO);
    const char *steps = ru_arena_printf(a, "%u", steps_of(t, s));
    if (out == NULL || script == NULL || cut == NULL || keys == NULL || batch == NULL ||
        micro == NULL || steps == NULL) {
        return full(err);
    }
    const char *const peer[] = {"python3", script,    "--model", j->n->name, "--cut",
                                cut,       "--batch", batch,     "--micro",  micro,
                                "--steps", steps,     NULL};
    ru_lab_scene scene = {.workers = j->at->workers, .up = up, .peer = s == TORCH ? peer : NULL};
    for (uint32_t k = 0; k < scene.workers; k++) {
        scene.quota[k] = QUOTA;
    }
    ru_lab_told told;
    double seconds[STEPS_MAX];
    uint32_t n = 0;
    RU_TRY(s == TORCH ? RU_OK : put_job(t, j->n, keys, steps_of(t, s), &yaml, err));
    RU_TRY(ru_lab_run_scene(&t->lab, &scene, yaml, out, &told, err));
    if (s == TORCH) {
        seconds_of_line(told.line, seconds, &n);
    } else {
        RU_TRY(ru_lab_run_steps(&t->lab, out, seconds, STEPS_MAX, &n, err));
    }
    *peak_bytes = 0;
    for (uint32_t k = 0; k < scene.workers; k++) {
        *peak_bytes = fmax(*peak_bytes, (double)told.peak_bytes[k]);
    }
    RU_TRY(rate_of(seconds, n, s, j->n->batch, rate, err));
    fprintf(stderr, "  %-14s %9.2f samples/s  %7.1f MB\n", side_names[s], *rate,
            1e-6 * *peak_bytes);
    return RU_OK;
}

/* -- rows --------------------------------------------------------------------------------------
 */

static const char *row_name(const ru_bench *b, const net *n, const struct place *at,
                            const char *what)
{
    const char *name = ru_arena_printf(b->arena, "%s, %s: %s", n->name, at->name, what);
    return name != NULL ? name : "";
}

static const char row_data[] = "flush over data parallel", row_stash[] = "stash over flush",
                  row_model[] = "flush over model parallel", row_torch[] = "flush over PyTorch",
                  row_memory[] = "memory of a worker", row_error[] = "predicted step, error",
                  row_errors[] = "predicted steps, median error";

/* Which sides do the wanted rows need? false: none. */
static bool wanted(const ru_bench *b, const net *n, const struct place *at, found *f)
{
    const char *const rows[] = {row_data, row_stash, row_model, row_torch, row_memory, row_error};
    static const side of[] = {DATA, STASH, MODEL, TORCH, TORCH, FLUSH};
    *f = (found){.rounds = b->quick ? 1 : ROUNDS};
    f->wants[FLUSH] = ru_bench_wants(b, row_errors);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        bool small = at->workers == 2 && (of[k] == DATA || of[k] == STASH || of[k] == MODEL);
        if (!small && ru_bench_wants(b, row_name(b, n, at, rows[k]))) {
            f->wants[of[k]] = f->wants[FLUSH] = true;
        }
    }
    return f->wants[FLUSH];
}

static ru_status add(const bench_pipe *t, const job *j, const char *what, double *ours,
                     double *theirs, const char *peer, const found *f, double goal, ru_err *err)
{
    bool memory = what == row_memory;
    const char *name = row_name(t->lab.b, j->n, j->at, what);
    if (!ru_bench_wants(t->lab.b, name)) {
        return RU_OK;
    }
    ru_bench_row row = {.name = name,
                        .unit = memory ? "MB" : "samples/s",
                        .lower = memory,
                        .ours = ru_bench_stat_of(ours, f->rounds),
                        .peer = peer,
                        .goal = goal};
    if (theirs != f->rates[TORCH] && theirs != f->peak_bytes[TORCH]) {
        row.theirs = ru_bench_stat_of(theirs, f->rounds);
    } else if ((row.missing = f->missing) == NULL) {
        row.theirs = ru_bench_stat_of(theirs, f->rounds);
    }
    return ru_bench_add(t->lab.b, &row, err);
}

static ru_status add_error(bench_pipe *t, const job *j, const found *f, ru_err *err)
{
    double rates[ROUNDS];
    memcpy(rates, f->rates[FLUSH], sizeof rates);
    double took = j->n->batch / ru_bench_stat_of(rates, f->rounds).median;
    double error = 100 * fabs(j->predicted_s / took - 1);
    fprintf(stderr, "  a step was predicted to take %.1f ms and took %.1f ms\n",
            1e3 * j->predicted_s, 1e3 * took);
    t->errors[t->n_errors++] = error;
    const ru_bench_row row = {.name = row_name(t->lab.b, j->n, j->at, row_error),
                              .unit = "%",
                              .lower = true,
                              .ours = ru_bench_stat_of(&error, 1),
                              .goal = 12};
    return ru_bench_wants(t->lab.b, row.name) ? ru_bench_add(t->lab.b, &row, err) : RU_OK;
}

static ru_status add_rows(bench_pipe *t, const job *j, found *f, ru_err *err)
{
    bool large = strcmp(j->n->name, "vgg") == 0 && j->at->bit_per_s < 1e9;
    double mb[2][ROUNDS];
    for (uint32_t k = 0; k < f->rounds; k++) {
        mb[0][k] = 1e-6 * f->peak_bytes[FLUSH][k];
        f->peak_bytes[TORCH][k] *= 1e-6;
    }
    if (f->wants[DATA]) {
        RU_TRY(add(t, j, row_data, f->rates[FLUSH], f->rates[DATA], "ours, data parallel", f,
                   large ? 5 : 0, err));
    }
    if (f->wants[STASH]) {
        RU_TRY(add(t, j, row_stash, f->rates[STASH], f->rates[FLUSH], "ours, flush", f,
                   large ? 1.05 : 0, err));
    }
    if (f->wants[MODEL]) {
        RU_TRY(add(t, j, row_model, f->rates[FLUSH], f->rates[MODEL], "ours, one micro-batch", f, 0,
                   err));
    }
    if (f->wants[TORCH]) {
        const char *peer = "PyTorch 1F1B, gloo";
        RU_TRY(add(t, j, row_torch, f->rates[FLUSH], f->rates[TORCH], peer, f, 1.3, err));
        RU_TRY(add(t, j, row_memory, mb[0], f->peak_bytes[TORCH], peer, f, 1 / 0.7, err));
    }
    return add_error(t, j, f, err);
}

static ru_status run_job(bench_pipe *t, job *j, const char *facts, found *f, ru_err *err)
{
    RU_TRY(plan(t, j, facts, err));
    fprintf(stderr, "%s, %s: cut at %s\n", j->n->name, j->at->name, j->cut);
    for (uint32_t k = 0; k < f->rounds; k++) {
        for (uint32_t s = 0; s < SIDES; s++) {
            ru_err why;
            if (!f->wants[s] || (s == TORCH && f->missing != NULL)) {
                continue;
            }
            ru_status st = run_side(t, j, (side)s, &f->rates[s][k], &f->peak_bytes[s][k], &why);
            if (st != RU_OK && s == TORCH) {
                f->missing = ru_arena_printf(t->lab.b->arena,
                                             "%s; install: pip install torch==2.13.0", why.text);
            } else if (st != RU_OK) {
                return ru_err_set(err, st, "%s", why.text);
            }
        }
    }
    return add_rows(t, j, f, err);
}

ru_status ru_bench_pipe(ru_bench *b, ru_err *err)
{
    bench_pipe t = {0};
    found f;
    bool any = false, vgg = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets) * RU_ARRAY_LEN(places); k++) {
        const net *n = &nets[k / RU_ARRAY_LEN(places)];
        bool here = wanted(b, n, &places[k % RU_ARRAY_LEN(places)], &f);
        any = any || here;
        vgg = vgg || (here && strcmp(n->name, "vgg") == 0);
    }
    if (!any) { /* the caller tells that there is no such row */
        return RU_OK;
    }
    RU_TRY(ru_lab_run_open(b, "pipe", true, &t.lab, err));
    RU_TRY(inputs(&t, err));
    RU_TRY(vgg ? export_vgg(&t, err) : RU_OK);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets); k++) {
        const char *facts = NULL;
        for (uint32_t p = 0; p < RU_ARRAY_LEN(places); p++) {
            job j = {.n = &nets[k], .at = &places[p]};
            if (wanted(b, j.n, j.at, &f)) {
                RU_TRY(facts != NULL ? RU_OK : profile(&t, j.n, &facts, err));
                RU_TRY(run_job(&t, &j, facts, &f, err));
            }
        }
    }
    const ru_bench_row row = {.name = row_errors,
                              .unit = "%",
                              .lower = true,
                              .ours = ru_bench_stat_of(t.errors, t.n_errors),
                              .goal = 5};
    return ru_bench_wants(b, row.name) ? ru_bench_add(b, &row, err) : RU_OK;
}
