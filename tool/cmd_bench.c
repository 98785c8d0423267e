/* rubato bench: lists and runs the project's own measurements. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "env/file.h"
#include "env/self.h"
#include "exec/pool.h"
#include "tool/bench.h"
#include "tool/bench_net.h"
#include "tool/cmd.h"

/* X(name, function, what it measures) */
#define BENCH_LIST(X)                                                                              \
    X(train, ru_bench_train, "training speed and memory against PyTorch, f32 and bf16")            \
    X(infer, ru_bench_infer, "inference of exported ONNX models against PyTorch and ONNX Runtime") \
    X(reader, ru_bench_reader, "reading tokens, IDX and photos against the disk and Pillow")       \
    X(ddp, ru_bench_ddp, "data-parallel steps on shaped links against PyTorch DDP over gloo")      \
    X(net, ru_bench_net, "urgent beside bulk in the network laboratory; gRPC and iperf3")          \
    X(collective, ru_bench_collective,                                                             \
      "all-reduce of 2, 4 and 8 processes against Open MPI, gloo")                                 \
    X(elastic, ru_bench_elastic, "workers against one process; what a death and a join cost")      \
    X(start, ru_bench_start, "starting the program and the first training step")                   \
    X(trace, ru_bench_trace, "cost of one record of the recorder")                                 \
    X(sim, ru_bench_sim, "simulated workers: events, time and memory by workers, seeds of faults")

static const struct {
    const char *name;
    ru_bench_fn fn;
    const char *help;
} benches[] = {
#define RU_X(name, fn, help) {#name, fn, help},
    BENCH_LIST(RU_X)
#undef RU_X
};

bool ru_bench_wants(const ru_bench *b, const char *name)
{
    return strstr(name, b->only) != NULL;
}

double ru_bench_ratio(const ru_bench_row *row)
{
    if (row->ours.n == 0 || row->theirs.n == 0 || row->ours.median <= 0 ||
        row->theirs.median <= 0) {
        return 0;
    }
    double r = row->ours.median / row->theirs.median;
    return row->lower ? 1 / r : r;
}

/* Four significant digits without an exponent. */
static const char *figure(double x, char *into, size_t size)
{
    int digits = x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : 3;
    snprintf(into, size, "%.*f", digits, x);
    return into;
}

static bool goal_met(const ru_bench_row *row)
{
    double ratio = ru_bench_ratio(row);
    if (row->peer != NULL) {
        return ratio >= row->goal;
    }
    return row->lower ? row->ours.median <= row->goal : row->ours.median >= row->goal;
}

static void show(const ru_bench_row *row)
{
    char a[32], lo[32], hi[32], c[32];
    fprintf(stderr, "%-38s %9s %-12s [%s .. %s]", row->name, figure(row->ours.median, a, sizeof a),
            row->unit, figure(row->ours.min, lo, sizeof lo), figure(row->ours.max, hi, sizeof hi));
    if (row->theirs.n > 0) {
        fprintf(stderr, "  %9s [%s .. %s]  ratio %.2f", figure(row->theirs.median, c, sizeof c),
                figure(row->theirs.min, lo, sizeof lo), figure(row->theirs.max, hi, sizeof hi),
                ru_bench_ratio(row));
    }
    bool judged = row->goal > 0 && (row->peer == NULL || row->theirs.n > 0);
    if (judged) {
        fprintf(stderr, "  goal %.3g %s", row->goal, goal_met(row) ? "met" : "MISSED");
    }
    if (row->peer != NULL) {
        fprintf(stderr, "  %s", row->peer);
    }
    if (row->missing != NULL) {
        fprintf(stderr, " (not measured: %s)", row->missing);
    }
    fputc('\n', stderr);
}

ru_status ru_bench_add(ru_bench *b, const ru_bench_row *row, ru_err *err)
{
    if (b->n == b->cap) {
        uint32_t cap = b->cap == 0 ? 64 : b->cap * 2;
        ru_bench_row *rows = RU_NEW(b->arena, ru_bench_row, cap);
        if (rows == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for benchmark rows is full");
        }
        if (b->n > 0) {
            memcpy(rows, b->rows, b->n * sizeof *rows);
        }
        b->rows = rows;
        b->cap = cap;
    }
    b->rows[b->n++] = *row;
    show(row);
    return RU_OK;
}

static void json_text(const char *s)
{
    putchar('"');
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c < 0x20) {
            printf("\\u%04x", c);
        } else {
            putchar(c);
        }
    }
    putchar('"');
}

static void json_row(const ru_bench_row *r, bool comma)
{
    printf("%s{\"case\":", comma ? "," : "");
    json_text(r->name);
    printf(",\"unit\":\"%s\",\"better\":\"%s\",\"ours\":%.9g,\"ours_min\":%.9g,\"ours_max\":%.9g",
           r->unit, r->lower ? "lower" : "higher", r->ours.median, r->ours.min, r->ours.max);
    printf(",\"peer\":");
    json_text(r->peer != NULL ? r->peer : "");
    if (r->theirs.n > 0) {
        printf(",\"theirs\":%.9g,\"theirs_min\":%.9g,\"theirs_max\":%.9g,\"ratio\":%.6g",
               r->theirs.median, r->theirs.min, r->theirs.max, ru_bench_ratio(r));
    } else {
        printf(",\"theirs\":null,\"ratio\":null");
    }
    if (r->missing != NULL) {
        printf(",\"missing\":");
        json_text(r->missing);
    }
    printf(",\"goal\":%.6g,\"runs\":%u}", r->goal, r->ours.n);
}

static void json_print(const ru_bench *b, const char *name)
{
    char host[128], cpu[128];
    ru_self_host(host, sizeof host);
    ru_self_cpu(cpu, sizeof cpu);
    printf("{\"schema\":\"rubato.bench/1\",\"name\":\"%s\",\"machine\":{\"cpu\":", name);
    json_text(cpu);
    printf(",\"cores\":%u,\"memory_bytes\":%lld},\"rows\":[", ru_pool_cores(),
           (long long)ru_self_memory_bytes());
    for (uint32_t k = 0; k < b->n; k++) {
        json_row(&b->rows[k], k > 0);
    }
    printf("]}\n");
}

/* Geometric mean of the ratios to each first peer of a row's name, as the goals are stated. */
static void summary(const ru_bench *b)
{
    double sum = 0;
    uint32_t n = 0, met = 0, judged = 0;
    for (uint32_t k = 0; k < b->n; k++) {
        const ru_bench_row *r = &b->rows[k];
        double ratio = ru_bench_ratio(r);
        if (ratio > 0 && strncmp(r->peer, "torch eager", 11) == 0 && !r->lower) {
            sum += log(ratio);
            n++;
        }
        if (r->goal > 0 && (r->peer == NULL || ratio > 0)) {
            judged++;
            met += goal_met(r) ? 1 : 0;
        }
    }
    if (n > 0) {
        fprintf(stderr, "geometric mean over torch eager: %.2f of %u rows\n", exp(sum / n), n);
    }
    if (judged > 0) {
        fprintf(stderr, "%u of %u goals met\n", met, judged);
    }
}

static ru_status list(void)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(benches); k++) {
        printf("%-10s %s\n", benches[k].name, benches[k].help);
    }
    return RU_OK;
}

static ru_status run_named(ru_cmd_in *in, const char *name, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(benches); k++) {
        if (strcmp(benches[k].name, name) != 0) {
            continue;
        }
        ru_bench b = {.arena = in->arena,
                      .quick = ru_cmd_flag(in, "quick"),
                      .dir = ru_cmd_text(in, "dir"),
                      .only = ru_cmd_text(in, "only"),
                      .threads = (uint32_t)ru_cmd_i64(in, "threads")};
        RU_TRY(ru_dir_make(b.dir, err));
        RU_TRY(benches[k].fn(&b, err));
        if (b.n == 0 && !b.told && (b.only[0] != '\0' || b.threads != 0)) {
            return RU_FAIL(err, RU_E_USAGE,
                           "no row of '%s' goes with --only '%s' and --threads %u; without them it "
                           "tells the names of all",
                           name, b.only, b.threads);
        }
        summary(&b);
        if (ru_cmd_flag(in, "json")) {
            json_print(&b, name);
        }
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_USAGE, "there is no benchmark '%s'; `rubato bench` lists them", name);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    if (ru_cmd_flag(in, "worker") && in->n_args > 0 && strcmp(in->args[0], "net") == 0) {
        return ru_bench_net_role(in->args + 1, in->n_args - 1, err);
    }
    if (ru_cmd_flag(in, "worker")) {
        return ru_bench_worker(in->args, in->n_args, err);
    }
    if (in->n_args == 0) {
        return list();
    }
    if (in->n_args > 1) {
        return RU_FAIL(err, RU_E_USAGE, "unexpected argument '%s'; one benchmark at a time",
                       in->args[1]);
    }
    return run_named(in, in->args[0], err);
}

static const ru_opt opts[] = {
    {.name = "json", .type = RU_OPT_FLAG, .help = "one JSON object (rubato.bench/1) on stdout"},
    {.name = "quick", .type = RU_OPT_FLAG, .help = "fewer and shorter rounds: a first look"},
    {.name = "only",
     .type = RU_OPT_TEXT,
     .word = "WORD",
     .def = "",
     .help = "only rows whose name contains this"},
    {.name = "threads",
     .type = RU_OPT_I64,
     .word = "N",
     .def = "0",
     .min = 0,
     .max = 1024,
     .help = "only rows with this number of threads (0: all)"},
    {.name = "dir",
     .type = RU_OPT_TEXT,
     .word = "DIR",
     .def = "out/bench",
     .help = "folder for exported models and generated inputs"},
    {.name = "worker",
     .type = RU_OPT_FLAG,
     .help = "be one side of a benchmark: train|infer MODEL THREADS f32|bf16 BATCH on the line "
             "protocol "
             "of bench/peer.py"},
};

static const ru_example examples[] = {
    {"rubato bench", "list them"},
    {"rubato bench train --only resnet18", "one model against PyTorch"},
    {"rubato bench infer --json > infer.json", "for a program"},
};

const ru_cmd rui_cmd_bench = {
    .name = "bench",
    .summary = "measure this machine, each figure beside a peer measured in the same run",
    .about =
        "Both sides of every row run in turns; printed are medians, the range over the rounds and "
        "the ratio, written so that above 1 is ahead. A peer that is not installed is said to be "
        "missing, with the command that installs it; stored numbers are never shown.",
    .args = "[NAME]",
    .arg_min = 0,
    .arg_max = 32,
    .opts = opts,
    .n_opts = RU_ARRAY_LEN(opts),
    .examples = examples,
    .n_examples = RU_ARRAY_LEN(examples),
    .computes = true,
    .run = run,
};
