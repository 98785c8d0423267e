/* rubato bench ddp: data-parallel training in the network laboratory against PyTorch's
 * DistributedDataParallel over gloo.
 *
 * Each worker stands on a laboratory host of its own (a namespace behind a shaped link), computes
 * with one thread and is held to one core, the same for both sides. A round is a whole job of some
 * steps on each side, in turns; its figure is the median step after the first ones. The bound of a
 * step is the larger of computing alone and moving 2(N-1)/N of the gradients at the link's rate. A
 * second bound adds to computing what the thread of the messages used of the same core, as the
 * workers' traces tell.
 * Beside it stands the same job whose steps wait for all sums of the one before (train.barrier). On
 * links of the last kind a step's transfers take TRANSFERS times as long as computing alone: there
 * a step gains most from not waiting.
 * "Alone" is without a network: as many workers compute at the same time on the same cores, each a
 * job of its own, because cores of one machine share its memory, and four workers two cores. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "bench/bench.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "store/npy.h"
#include "trace/read/fold.h"
#include "trace/read/read.h"

enum { STEPS_SKIPPED = 4, WORKERS_MAX = 4, SAMPLES = 256 };
/* Exit code of a worker that others took for dead because it was starved of its core, and who found
 * the job at its end when it came again. Such a round is run again, so many times at most. */
enum { LOST = 69, TRIES = 4 };

static const int64_t patience_ns = INT64_C(540000000000);

typedef struct net {
    const char *model;
    int64_t batch; /* of one worker */
    int64_t gradient_bytes;
    const char *zoo; /* NULL: the ONNX file that PyTorch exports */
    int64_t side;    /* of images; 0: tokens */
} net;

/* The nets of bench/models.py. */
static const net nets[] = {
    {"vgg", 16, 59601290LL * 4, NULL, 64},
    {"vgg", 64, 59601290LL * 4, NULL, 64},
    {"resnet18", 32, 11173962LL * 4, "resnet18", 32},
    {"gpt", 8, 3323392LL * 4, "gpt", 0},
};

typedef struct rate {
    const char *name, *tc;
    double bytes_per_s; /* of TCP payload on such a link */
} rate;

/* The last one is set when computing alone is measured. */
static const rate rates[] = {{"1 Gbit/s", "1gbit", 119.5e6},
                             {"10 Gbit/s", "10gbit", 1170e6},
                             {"transfers 1.5 x compute", NULL, 0}};

#define TRANSFERS 1.5
#define PAYLOAD   0.956   /* of a link's rate */
#define BURST     "512kb" /* more than a packet of the kernel, which would go in pieces else */

typedef struct ddp {
    ru_bench *b;
    const char *self, *scripts, *lab_script;
    char lab[16], token[40];
    uint32_t rounds, steps, port;
} ddp;

typedef struct job {
    const net *n;
    const rate *r;
    rate set; /* where the rate follows from computing */
    uint32_t workers;
    bool barrier;     /* a step waits for all sums of the one before */
    const char *yaml; /* path */
    const char *out;  /* run directory */
} job;

/* -- input ---------------------------------------------------------------------------------------
 */

static ru_status save_images(const ddp *d, const net *n, const char *x, const char *y, ru_err *err)
{
    const int64_t dims[4] = {SAMPLES, 3, n->side, n->side};
    ru_array ax = {.type = ru_type_make(RU_F32, 4, dims)};
    ru_array ay = {.type = ru_type_make(RU_I64, 1, dims)};
    int64_t count = ru_type_count(&ax.type);
    float *pixels = malloc((size_t)count * sizeof *pixels);
    int64_t *labels = malloc(SAMPLES * sizeof *labels);
    ru_status st = RU_OK;
    if (pixels == NULL || labels == NULL) {
        st = RU_FAIL(err, RU_E_MEM, "no memory for %d images", SAMPLES);
        goto out;
    }
    ru_rng rng = ru_rng_from(1, 1);
    for (int64_t i = 0; i < count; i++) {
        pixels[i] = (float)ru_rng_normal(&rng);
    }
    for (int64_t i = 0; i < SAMPLES; i++) {
        labels[i] = (int64_t)ru_rng_below(&rng, 10);
    }
    ax.data = pixels;
    ay.data = labels;
    st = ru_npy_save(x, &ax, err);
    st = st == RU_OK ? ru_npy_save(y, &ay, err) : st;
out:
    free(pixels);
    free(labels);
    (void)d;
    return st;
}

static ru_status save_tokens(const char *path, ru_err *err)
{
    uint8_t bytes[SAMPLES * 128 + 1];
    ru_rng rng = ru_rng_from(2, 1);
    for (uint32_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)ru_rng_below(&rng, 256);
    }
    return ru_file_replace(path, bytes, sizeof bytes, err);
}

static ru_status export_net(const ddp *d, const char *model, const char *path, ru_err *err)
{
    if (ru_path_exists(path)) {
        return RU_OK;
    }
    const char *argv[] = {"python3", ru_path_join(d->b->arena, d->scripts, "models.py"), d->b->dir,
                          model, NULL};
    ru_bench_side exporter = {.argv = argv};
    return ru_bench_export(&exporter, path, "pip install torch==2.13.0 onnx onnxscript", err);
}

static ru_status write_job(const ddp *d, job *j, ru_err *err)
{
    ru_arena *a = d->b->arena;
    const char *dir = d->b->dir;
    const char *x = ru_arena_printf(a, "%s/ddp-%s-x.npy", dir, j->n->model);
    const char *y = ru_arena_printf(a, "%s/ddp-%s-y.npy", dir, j->n->model);
    const char *data, *model;
    if (j->n->side > 0) {
        RU_TRY(save_images(d, j->n, x, y, err));
        data = ru_arena_printf(a, "{format: npy, train: [%s, %s]}", x, y);
    } else {
        x = ru_arena_printf(a, "%s/ddp-tokens.bin", dir);
        RU_TRY(save_tokens(x, err));
        data = ru_arena_printf(a, "{format: tokens, train: [%s], token_bytes: 1, context: 128}", x);
    }
    if (j->n->zoo != NULL) {
        bool tokens = j->n->side == 0;
        model = ru_arena_printf(a, "{zoo: %s%s}", j->n->zoo,
                                tokens ? ", layers: 4, heads: 4, width: 256, context: 128, "
                                         "vocab: 256, tie: false"
                                       : ", classes: 10");
    } else {
        const char *file = ru_arena_printf(a, "%s/%s.onnx", dir, j->n->model);
        RU_TRY(export_net(d, j->n->model, file, err));
        model = ru_arena_printf(a, "{onnx: %s}", file);
    }
    const char *optimizer =
        j->n->side > 0 ? "{sgd: {lr: 0.01, momentum: 0.9}}" : "{adamw: {lr: 3e-4}}";
    const char *text =
        ru_arena_printf(a,
                        "name: ddp\nmodel: %s\ndata: %s\ntrain: {optimizer: %s, batch: %lld, "
                        "steps: %u, threads: 1, barrier: %s}\n"
                        "checkpoint: {every: 0s, keep: 1}\n",
                        model, data, optimizer, (long long)j->n->batch * j->workers, d->steps,
                        j->barrier ? "always" : "auto");
    j->yaml = ru_arena_printf(a, "%s/ddp.yaml", dir);
    j->out = ru_arena_printf(a, "%s/ddp-run", dir);
    if (text == NULL || j->yaml == NULL || j->out == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full");
    }
    return ru_file_replace(j->yaml, text, (int64_t)strlen(text), err);
}

/* -- processes on laboratory hosts ---------------------------------------------------------------
 */

static ru_status run_lab(const char *const *argv, ru_err *err)
{
    ru_process *p = NULL;
    const ru_process_options opt = {.argv = argv, .pipe_out = true};
    const char *line = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    do {
        line = NULL;
    } while (ru_process_line(p, patience_ns, &line, NULL) == RU_OK && line != NULL);
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_MISSING,
                               "the network laboratory could not be set up (exit code %d): try "
                               "test/lab/net.sh check",
                               code);
}

static ru_status lab_up(const ddp *d, const job *j, ru_err *err)
{
    const char *hosts = ru_arena_printf(d->b->arena, "%u", j->workers);
    const char *owner = ru_arena_printf(d->b->arena, "%lld", (long long)ru_self_pid());
    const char *argv[] = {
        d->lab_script, "up",  d->lab,      hosts,  "--rate",  j->r->tc != NULL ? j->r->tc : "1gbit",
        "--burst",     BURST, "--latency", "20ms", "--owner", owner,
        NULL};
    return run_lab(argv, err);
}

/* Links whose transfers of a step take TRANSFERS times as long as computing. */
static ru_status lab_rate(const ddp *d, job *j, double alone, ru_err *err)
{
    double bytes = 2.0 * (j->workers - 1) / j->workers * (double)j->n->gradient_bytes;
    j->set = *j->r;
    j->set.bytes_per_s = bytes / (TRANSFERS * alone);
    j->set.tc = ru_arena_printf(d->b->arena, "%.0fkbit", j->set.bytes_per_s / PAYLOAD * 8e-3);
    j->r = &j->set;
    fprintf(stderr, "computing alone takes %.3f s: links of %s\n", alone, j->set.tc);
    for (uint32_t k = 1; k <= j->workers; k++) {
        const char *host = ru_arena_printf(d->b->arena, "%u", k);
        const char *argv[] = {d->lab_script, "rate", d->lab, host, j->set.tc, "both", BURST, NULL};
        RU_TRY(run_lab(argv, err));
    }
    return RU_OK;
}

static void lab_down(const ddp *d)
{
    const char *argv[] = {d->lab_script, "down", d->lab, NULL};
    (void)!run_lab(argv, NULL);
}

typedef struct crew {
    ru_process *at[WORKERS_MAX];
    uint32_t n;
} crew;

static void crew_close(crew *c)
{
    for (uint32_t k = 0; k < c->n; k++) {
        ru_process_close(c->at[k]);
    }
}

static ru_status crew_add(crew *c, const char *const *argv, const char *const *set, uint32_t core,
                          ru_err *err)
{
    const ru_process_options opt = {.argv = argv, /* why one fails is told as it says so */
                                    .set = set,
                                    .pipe_out = true,
                                    .cores_mask = INT64_C(1) << core};
    RU_TRY(ru_process_start(&opt, &c->at[c->n], err));
    c->n++;
    return RU_OK;
}

static const char *word(const ddp *d, int64_t x)
{
    return ru_arena_printf(d->b->arena, "%lld", (long long)x);
}

/* Seconds of a step in the file of metrics of a run: median after the first ones. */
static ru_status median_of_run(const ddp *d, const job *j, double *median, ru_err *err)
{
    char *text;
    int64_t size;
    double seconds[1024];
    uint32_t n = 0, seen = 0;
    RU_TRY(ru_file_read(ru_path_join(d->b->arena, j->out, "metrics.jsonl"), 0, d->b->arena, &text,
                        &size, err));
    ru_str rest = ru_str_n(text, size), line;
    while (ru_str_next(&rest, '\n', &line)) {
        json_t *root = json_loadb(line.p, (size_t)line.n, 0, NULL);
        const char *schema = json_string_value(json_object_get(root, "schema"));
        if (schema != NULL && strcmp(schema, "rubato.train.step/1") == 0 &&
            seen++ >= STEPS_SKIPPED && n < RU_ARRAY_LEN(seconds)) {
            seconds[n++] = json_number_value(json_object_get(root, "step_s"));
        }
        json_decref(root);
    }
    if (n == 0) {
        return RU_FAIL(err, RU_E_PEER, "our workers made no step after the first %d; see %s/log",
                       STEPS_SKIPPED, j->out);
    }
    *median = ru_bench_stat_of(seconds, n).median;
    return RU_OK;
}

/* Worker k of `founders`, numbered from 1, on its laboratory host. */
static ru_status start_worker(ddp *d, const job *j, uint32_t k, uint32_t founders, crew *c,
                              ru_err *err)
{
    const char *token = ru_arena_printf(d->b->arena, "RUBATO_TOKEN=%s", d->token);
    const char *const set[] = {token, NULL};
    const char *argv[40] = {
        d->lab_script, "in",
        d->lab,        word(d, k),
        d->self,       "worker",
        "--job",       j->yaml,
        "--out",       j->out,
        "--founders",  word(d, founders),
        "--threads",   "1",
        "--quiet",     "--equal-shares",
        "--rank",      word(d, founders > 1 ? k - 1 : 0),
        "--listen",    ru_arena_printf(d->b->arena, "10.77.0.%u:%u", k, d->port)};
    if (founders > 1 && k > 1) {
        argv[20] = "--join";
        argv[21] = ru_arena_printf(d->b->arena, "10.77.0.1:%u", d->port);
    }
    return crew_add(c, argv, set, (k - 1) % ru_pool_cores(), err);
}

static ru_status wait_for_crew(crew *c, const job *j, ru_err *err)
{
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < c->n && st == RU_OK; k++) {
        const char *line;
        do { /* what it reports is in the file of metrics as well */
            line = NULL;
        } while (ru_process_line(c->at[k], patience_ns, &line, NULL) == RU_OK && line != NULL);
        int code = ru_process_wait(c->at[k]);
        if (code == LOST) {
            st = RU_FAIL(err, RU_E_AGAIN, "worker %u of ours was lost; see %s/log", k + 1, j->out);
        } else if (code != 0) {
            st = RU_FAIL(err, RU_E_PEER, "worker %u of ours ended with exit code %d; see %s/log",
                         k + 1, code, j->out);
        }
    }
    crew_close(c);
    return st;
}

static ru_status empty_dir(const char *path, ru_err *err)
{
    if (ru_path_exists(path)) {
        RU_TRY(ru_path_remove(path, err));
    }
    return ru_dir_make(path, err);
}

/* Processor time of a step for messages, of the worker that needs most; 0: its trace says nothing.
 */
static ru_status messages_of_run(const job *j, double *s, ru_err *err)
{
    ru_arena arena;
    ru_trace *traces = NULL;
    uint32_t n = 0;
    ru_arena_init(&arena, 0);
    ru_status st = ru_trace_run_load_end(j->out, 64 << 20, &arena, &traces, &n, err);
    *s = 0;
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        ru_processor_fact f;
        bool more = ru_trace_fold_processor(&traces[k], &f) && f.message_ns > *s * 1e9;
        *s = more ? f.message_ns * 1e-9 : *s;
    }
    ru_arena_fini(&arena);
    return st;
}

static ru_status try_ours(ddp *d, const job *j, ru_err *err)
{
    RU_TRY(empty_dir(j->out, err));
    crew c = {.n = 0};
    ru_status st = RU_OK;
    for (uint32_t k = 1; k <= j->workers && st == RU_OK; k++) {
        st = start_worker(d, j, k, j->workers, &c, err);
    }
    if (st == RU_OK) {
        st = wait_for_crew(&c, j, err);
    } else {
        crew_close(&c);
    }
    d->port++;
    return st;
}

static ru_status run_ours(ddp *d, const job *j, double *median, ru_err *err)
{
    ru_status st = RU_E_AGAIN;
    for (uint32_t k = 0; k < TRIES && st == RU_E_AGAIN; k++) {
        st = try_ours(d, j, err);
        if (st == RU_E_AGAIN) {
            fprintf(stderr, "%s: the round is run again\n", err->text);
        }
    }
    return st == RU_OK ? median_of_run(d, j, median, err) : st;
}

/* The slowest of as many jobs of one worker as `j` has workers, at the same time: a step of all is
 * never shorter. */
static ru_status run_alone(ddp *d, const job *j, double *median, ru_err *err)
{
    job one = *j, at[WORKERS_MAX];
    one.workers = 1;
    RU_TRY(write_job(d, &one, err));
    crew c = {.n = 0};
    ru_status st = RU_OK;
    for (uint32_t k = 1; k <= j->workers && st == RU_OK; k++) {
        at[k - 1] = one;
        at[k - 1].out = ru_arena_printf(d->b->arena, "%s/ddp-alone-%u", d->b->dir, k);
        st = at[k - 1].out != NULL ? empty_dir(at[k - 1].out, err)
                                   : RU_FAIL(err, RU_E_LIMIT, "the arena is full");
        st = st == RU_OK ? start_worker(d, &at[k - 1], k, 1, &c, err) : st;
    }
    if (st == RU_OK) {
        st = wait_for_crew(&c, &at[0], err);
    } else {
        crew_close(&c);
    }
    d->port++;
    *median = 0;
    for (uint32_t k = 0; k < j->workers && st == RU_OK; k++) {
        double of_one = 0;
        st = median_of_run(d, &at[k], &of_one, err);
        *median = of_one > *median ? of_one : *median;
    }
    return st;
}

static ru_status median_of_line(const char *line, double *median, ru_err *err)
{
    json_t *root = line != NULL ? json_loads(line, 0, NULL) : NULL;
    json_t *list = json_object_get(root, "seconds");
    double seconds[1024];
    uint32_t n = 0;
    for (size_t k = STEPS_SKIPPED; k < json_array_size(list) && n < RU_ARRAY_LEN(seconds); k++) {
        seconds[n++] = json_number_value(json_array_get(list, k));
    }
    json_decref(root);
    if (n == 0) {
        return RU_FAIL(err, RU_E_MISSING, "PyTorch's workers made no step");
    }
    *median = ru_bench_stat_of(seconds, n).median;
    return RU_OK;
}

/* PyTorch's DDP over the process group `backend`. */
static ru_status run_theirs(ddp *d, const job *j, const char *backend, double *median, ru_err *err)
{
    crew c = {.n = 0};
    ru_status st = RU_OK;
    const char *script = ru_path_join(d->b->arena, d->scripts, "ddp_peer.py");
    for (uint32_t k = 1; k <= j->workers && st == RU_OK; k++) {
        const char *argv[] = {d->lab_script, "in",
                              d->lab,        word(d, k),
                              "python3",     script,
                              "--model",     j->n->model,
                              "--batch",     word(d, j->n->batch),
                              "--steps",     word(d, d->steps),
                              "--rank",      word(d, k - 1),
                              "--world",     word(d, j->workers),
                              "--address",   "10.77.0.1",
                              "--port",      word(d, d->port),
                              "--interface", "eth0",
                              "--backend",   backend,
                              NULL};
        st = crew_add(&c, argv, NULL, (k - 1) % ru_pool_cores(), err);
    }
    const char *line = NULL;
    if (st == RU_OK) {
        st = ru_process_line(c.at[0], patience_ns, &line, err);
        st = st == RU_OK ? median_of_line(line, median, err) : st;
    }
    for (uint32_t k = 0; k < c.n && st == RU_OK; k++) {
        (void)ru_process_wait(c.at[k]);
    }
    crew_close(&c);
    d->port++;
    return st;
}

/* -- rows ----------------------------------------------------------------------------------------
 */

static ru_status add_rows(ddp *d, const job *j, const char *name, double *ours, double *theirs,
                          uint32_t n, const char *missing, double alone, double messages,
                          ru_err *err)
{
    double wire =
        2.0 * (j->workers - 1) / j->workers * (double)j->n->gradient_bytes / j->r->bytes_per_s;
    double bound = alone > wire ? alone : wire;
    bool even = alone < 1.5 * wire && wire < 1.5 * alone;
    ru_bench_row row = {.name = name,
                        .unit = "s/step",
                        .lower = true,
                        .ours = ru_bench_stat_of(ours, n),
                        .peer = "PyTorch DDP, gloo",
                        .missing = missing,
                        .goal = even ? 1.3 : 1.1};
    if (missing == NULL) {
        row.theirs = ru_bench_stat_of(theirs, n);
    }
    RU_TRY(ru_bench_add(d->b, &row, err));
    row.name = ru_arena_printf(d->b->arena, "%s over max(compute, transfer)", name);
    row.theirs = (ru_bench_stat){bound, bound, bound, n};
    row.peer = alone > wire ? "bound: computing alone" : "bound: the transfer alone";
    row.missing = NULL;
    row.goal = 1 / 1.08;
    RU_TRY(ru_bench_add(d->b, &row, err));
    double busy = alone + messages, most = busy > wire ? busy : wire;
    row.name = ru_arena_printf(d->b->arena, "%s over max(compute + messages, transfer)", name);
    row.theirs = (ru_bench_stat){most, most, most, n};
    row.peer = busy > wire ? "bound: the core, computing and messages" : row.peer;
    return ru_bench_add(d->b, &row, err);
}

static ru_status add_barrier(ddp *d, const job *j, const char *name, double *ours, double *held,
                             uint32_t n, ru_err *err)
{
    const ru_bench_row row = {.name = ru_arena_printf(d->b->arena, "%s, barrier", name),
                              .unit = "s/step",
                              .lower = true,
                              .ours = ru_bench_stat_of(ours, n),
                              .theirs = ru_bench_stat_of(held, n),
                              .peer = "train.barrier: always",
                              .goal = j->r == &j->set ? 1.12 : 0.98};
    return ru_bench_add(d->b, &row, err);
}

/* The same script over Rubato's process group and over gloo. */
static ru_status add_group(ddp *d, const char *name, double *ours, double *theirs, uint32_t n,
                           const char *missing, ru_err *err)
{
    ru_bench_row row = {.name = ru_arena_printf(d->b->arena, "%s, PyTorch DDP over rubato", name),
                        .unit = "s/step",
                        .lower = true,
                        .peer = "PyTorch DDP, gloo",
                        .missing = missing,
                        .goal = 1};
    if (missing == NULL) {
        row.ours = ru_bench_stat_of(ours, n);
        row.theirs = ru_bench_stat_of(theirs, n);
    }
    return ru_bench_add(d->b, &row, err);
}

static ru_status run_job(ddp *d, job *j, const char *name, ru_err *err)
{
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX], group[RU_BENCH_ROUNDS_MAX];
    double held[RU_BENCH_ROUNDS_MAX], messages = 0;
    double alone = 0;
    const char *missing = NULL, *no_group = NULL;
    RU_TRY(write_job(d, j, err));
    RU_TRY(lab_up(d, j, err));
    ru_status st = run_alone(d, j, &alone, err);
    st = st == RU_OK && j->r->tc == NULL ? lab_rate(d, j, alone, err) : st;
    for (uint32_t k = 0; k < d->rounds && st == RU_OK; k++) {
        for (uint32_t side = 0; side < 2 && st == RU_OK; side++) {
            j->barrier = side != k % 2;
            st = write_job(d, j, err);
            st = st == RU_OK ? run_ours(d, j, j->barrier ? &held[k] : &ours[k], err) : st;
            st = st == RU_OK && !j->barrier ? messages_of_run(j, &messages, err) : st;
        }
        ru_err why;
        if (st == RU_OK && missing == NULL && run_theirs(d, j, "gloo", &theirs[k], &why) != RU_OK) {
            no_group = missing =
                ru_arena_printf(d->b->arena, "%s; install: pip install torch==2.13.0", why.text);
        }
        if (st == RU_OK && no_group == NULL &&
            run_theirs(d, j, "rubato", &group[k], &why) != RU_OK) {
            no_group = ru_arena_printf(d->b->arena, "%s; install: pip install .", why.text);
        }
    }
    lab_down(d);
    RU_TRY(st);
    RU_TRY(add_rows(d, j, name, ours, theirs, d->rounds, missing, alone, messages, err));
    RU_TRY(add_barrier(d, j, name, ours, held, d->rounds, err));
    return add_group(d, name, group, theirs, d->rounds, no_group, err);
}

ru_status ru_bench_ddp(ru_bench *b, ru_err *err)
{
    ddp d = {.b = b, .self = ru_bench_rubato(b->arena), .port = 7100};
    const char *scripts = ru_bench_scripts(b->arena);
    if (scripts == NULL || d.self == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "bench/ddp_peer.py is not beside this program");
    }
    d.scripts = scripts;
    d.lab_script = ru_path_join(b->arena, scripts, "../test/lab/net.sh");
    snprintf(d.lab, sizeof d.lab, "d%lld", (long long)ru_self_pid());
    snprintf(d.token, sizeof d.token, "token-of-the-laboratory-%lld", (long long)ru_self_pid());
    d.rounds = b->quick ? 1 : 3;
    d.steps = b->quick ? 8 : 12;
    RU_TRY(ru_dir_make(b->dir, err));
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rates); r++) {
        for (uint32_t k = 0; k < RU_ARRAY_LEN(nets); k++) {
            for (uint32_t workers = 2; workers <= WORKERS_MAX; workers *= 2) {
                job j = {.n = &nets[k], .r = &rates[r], .workers = workers};
                const char *name =
                    ru_arena_printf(b->arena, "%s b%lld, %u workers, %s", nets[k].model,
                                    (long long)nets[k].batch, workers, rates[r].name);
                if (name != NULL && ru_bench_wants(b, name)) {
                    RU_TRY(run_job(&d, &j, name, err));
                }
            }
        }
    }
    return RU_OK;
}
