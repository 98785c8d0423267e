/* Training and inference against PyTorch and ONNX Runtime: speed and resident memory. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "env/file/file.h"
#include "exec/pool.h"

static const char *const models[] = {"mlp", "lenet", "resnet18", "gpt", "lstm"};
static const int64_t train_batch[] = {128, 64, 64, 16, 32};

static const char install_torch[] = "pip install torch==2.13.0";
static const char install_ort[] = "pip install torch==2.13.0 onnx onnxscript onnxruntime";

typedef struct pair {
    const char *task, *model, *precision;
    int64_t batch;
    uint32_t threads;
    const char *file; /* ONNX; NULL in training */
} pair;

static const char *number(ru_arena *a, int64_t x)
{
    return ru_arena_printf(a, "%lld", (long long)x);
}

static const char **ours_argv(ru_bench *b, const pair *p)
{
    const char **argv = RU_NEW(b->arena, const char *, 10);
    if (argv != NULL) {
        const char *words[] = {ru_bench_rubato(b->arena),
                               "bench",
                               "--worker",
                               p->task,
                               p->file != NULL ? p->file : p->model,
                               number(b->arena, p->threads),
                               p->precision,
                               number(b->arena, p->batch)};
        memcpy(argv, words, sizeof words);
    }
    return argv;
}

static const char **peer_argv(ru_bench *b, const pair *p, const char *side)
{
    const char **argv = RU_NEW(b->arena, const char *, 20);
    const char *scripts = ru_bench_scripts(b->arena);
    if (argv != NULL) {
        const char *words[] = {
            "python3",     ru_path_join(b->arena, scripts != NULL ? scripts : "", "peer.py"),
            "--side",      side,
            "--task",      p->task,
            "--model",     p->model,
            "--threads",   number(b->arena, p->threads),
            "--precision", p->precision,
            "--batch",     number(b->arena, p->batch),
            "--onnx",      p->file != NULL ? p->file : ""};
        memcpy(argv, words, sizeof words);
    }
    return argv;
}

static ru_bench_stat rates(ru_bench_side *s, uint32_t rounds, double scale)
{
    if (s->missing != NULL) {
        return (ru_bench_stat){0};
    }
    for (uint32_t k = 0; k < rounds; k++) {
        s->rates[k] *= scale;
    }
    return ru_bench_stat_of(s->rates, rounds);
}

static const char *missing_text(ru_bench *b, const ru_bench_side *s, const char *install)
{
    return s->missing == NULL ? NULL
                              : ru_arena_printf(b->arena, "%s; install: %s", s->missing, install);
}

static ru_bench_turns turns_of(const ru_bench *b, uint32_t threads)
{
    return (ru_bench_turns){
        .rounds = b->quick ? 3 : 9, .seconds = b->quick ? 0.3 : 0.6, .threads = threads};
}

static ru_status add_speed(ru_bench *b, const pair *p, ru_bench_side *sides, uint32_t n,
                           const char *const *labels, const double *goals, const char *install,
                           ru_err *err)
{
    ru_bench_turns t = turns_of(b, p->threads);
    ru_bench_stat ours = rates(&sides[0], t.rounds, (double)p->batch);
    for (uint32_t k = 1; k < n; k++) {
        ru_bench_row row = {
            .name = ru_arena_printf(b->arena, "%s %s %s b%lld %u thread%s", p->model, p->task,
                                    p->precision, (long long)p->batch, p->threads,
                                    p->threads == 1 ? "" : "s"),
            .unit = "samples/s",
            .ours = ours,
            .theirs = rates(&sides[k], t.rounds, (double)p->batch),
            .peer =
                ru_arena_printf(b->arena, "%s%s%s", labels[k], sides[k].detail != NULL ? ": " : "",
                                sides[k].detail != NULL ? sides[k].detail : ""),
            .missing = missing_text(b, &sides[k], install),
            .goal = goals[k],
        };
        RU_TRY(ru_bench_add(b, &row, err));
    }
    return RU_OK;
}

static ru_status add_memory(ru_bench *b, const pair *p, const ru_bench_side *sides, ru_err *err)
{
    ru_bench_row row = {
        .name = ru_arena_printf(b->arena, "%s train %s memory %u thread%s", p->model, p->precision,
                                p->threads, p->threads == 1 ? "" : "s"),
        .unit = "MiB resident",
        .lower = true,
        .peer = "torch eager",
        .goal = 1 / 0.7,
        .missing = missing_text(b, &sides[1], install_torch),
    };
    double ours = (double)sides[0].rss_bytes / 1048576,
           theirs = (double)sides[1].rss_bytes / 1048576;
    row.ours = (ru_bench_stat){ours, ours, ours, 1};
    if (sides[1].missing == NULL) {
        row.theirs = (ru_bench_stat){theirs, theirs, theirs, 1};
    }
    return ru_bench_add(b, &row, err);
}

static ru_status train_one(ru_bench *b, const pair *p, ru_err *err)
{
    static const char *const labels[] = {"", "torch eager", "torch.compile"};
    static const char *const labels_bf16[] = {"", "torch bf16 autocast"};
    bool f32 = strcmp(p->precision, "f32") == 0;
    ru_bench_side sides[3] = {{.argv = ours_argv(b, p)},
                              {.argv = peer_argv(b, p, "torch")},
                              {.argv = peer_argv(b, p, "torch-compile")}};
    uint32_t n = f32 ? 3 : 2;
    double goals[3] = {0, f32 ? 1.2 : 1.1, 1.0};
    ru_bench_turns t = turns_of(b, p->threads);
    RU_TRY(ru_bench_run_turns(sides, n, &t, b->arena, err));
    RU_TRY(add_speed(b, p, sides, n, f32 ? labels : labels_bf16, goals, install_torch, err));
    return add_memory(b, p, sides, err);
}

ru_status ru_bench_train(ru_bench *b, ru_err *err)
{
    static const char *const precisions[] = {"f32", "bf16"};
    uint32_t cores = ru_pool_cores();
    for (uint32_t prec = 0; prec < 2; prec++) {
        for (uint32_t m = 0; m < RU_ARRAY_LEN(models); m++) {
            for (uint32_t threads = 1; threads <= 2 && threads <= cores; threads++) {
                pair p = {"train", models[m], precisions[prec], train_batch[m], threads, NULL};
                const char *name = ru_arena_printf(b->arena, "%s train %s b%lld %u thread", p.model,
                                                   p.precision, (long long)p.batch, threads);
                if (name != NULL && ru_bench_wants(b, name) &&
                    (b->threads == 0 || b->threads == threads)) {
                    RU_TRY(train_one(b, &p, err));
                }
            }
        }
    }
    return RU_OK;
}

/* The ONNX file that PyTorch exports; made once per folder. */
static ru_status onnx_file(ru_bench *b, const char *model, const char **path, ru_err *err)
{
    *path = ru_arena_printf(b->arena, "%s/%s.onnx", b->dir, model);
    if (*path == NULL || ru_path_exists(*path)) {
        return *path != NULL ? RU_OK : RU_FAIL(err, RU_E_LIMIT, "the arena is full");
    }
    const char *scripts = ru_bench_scripts(b->arena);
    if (scripts == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "bench/models.py is not beside this program");
    }
    const char *argv[] = {"python3", ru_path_join(b->arena, scripts, "models.py"), b->dir, model,
                          NULL};
    ru_bench_side exporter = {.argv = argv};
    return ru_bench_export(&exporter, *path, install_ort, err);
}

static ru_status infer_one(ru_bench *b, const pair *p, ru_err *err)
{
    static const char *const labels[] = {"", "torch eager", "ONNX Runtime"};
    static const double goals[] = {0, 1.3, 1.0};
    ru_bench_side sides[3] = {{.argv = ours_argv(b, p)},
                              {.argv = peer_argv(b, p, "torch")},
                              {.argv = peer_argv(b, p, "ort")}};
    ru_bench_turns t = turns_of(b, p->threads);
    RU_TRY(ru_bench_run_turns(sides, 3, &t, b->arena, err));
    return add_speed(b, p, sides, 3, labels, goals, install_ort, err);
}

ru_status ru_bench_infer(ru_bench *b, ru_err *err)
{
    if (b->zoo != NULL) {
        return ru_bench_zoo(b, err);
    }
    if (b->ops) {
        return ru_bench_ops(b, err);
    }
    static const int64_t batches[] = {1, 32};
    uint32_t cores = ru_pool_cores();
    for (uint32_t m = 0; m < RU_ARRAY_LEN(models); m++) {
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t threads = 1; threads <= 2 && threads <= cores; threads++) {
                pair p = {"infer", models[m], "f32", batches[k], threads, NULL};
                const char *name = ru_arena_printf(b->arena, "%s infer f32 b%lld %u thread",
                                                   p.model, (long long)p.batch, threads);
                if (name == NULL || !ru_bench_wants(b, name) ||
                    (b->threads != 0 && b->threads != threads)) {
                    continue;
                }
                RU_TRY(onnx_file(b, p.model, &p.file, err));
                RU_TRY(infer_one(b, &p, err));
            }
        }
    }
    return RU_OK;
}
