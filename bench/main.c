/* The program `rubato-bench`, which `rubato bench` becomes: lists and runs the project's own
 * measurements. Its options and help stand in the table of `rubato` (tool/cmd/cmd_bench.c). */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/burst.h"
#include "bench/cluster.h"
#include "bench/params/params.h"
#include "bench/python.h"
#include "bench/reader/reader.h"
#include "bench/replay/replay.h"
#include "bench/serve/bench_serve.h"
#include "bench/train/device.h"
#include "bench/train/fleet.h"
#include "bench/train/pipe.h"
#include "bench/train/placed.h"
#include "bench/wire/net.h"
#include "bench/wire/order.h"
#include "bench/wire/sums.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "tool/run.h"

/* X(name, function, what it measures) */
#define BENCH_LIST(X)                                                                              \
    X(train, ru_bench_train, "training speed and memory compared with PyTorch, f32 and bf16")      \
    X(infer, ru_bench_infer,                                                                       \
      "inference of exported ONNX models compared with PyTorch and ONNX Runtime")                  \
    X(reader, ru_bench_reader,                                                                     \
      "speed of reading files and stores, warm and cold, compared with fio, PyTorch's "            \
      "DataLoader and Pillow")                                                                     \
    X(storage, ru_bench_storage,                                                                   \
      "epochs of JPEGs whose samples are kept, compared with none kept and PyTorch's DataLoader; " \
      "files of pipelines on two folders, placed by what was learned and by first fit")            \
    X(ddp, ru_bench_ddp,                                                                           \
      "data-parallel steps on shaped links compared with PyTorch DDP over gloo")                   \
    X(net, ru_bench_net,                                                                           \
      "latency of urgent messages beside bulk transfers on shaped links, compared with gRPC and "  \
      "iperf3")                                                                                    \
    X(collective, ru_bench_collective,                                                             \
      "all-reduce of 2, 4 and 8 processes compared with Open MPI and gloo")                        \
    X(elastic, ru_bench_elastic,                                                                   \
      "several workers compared with one process; cost of a crash and of a join")                  \
    X(fleet, ru_bench_fleet,                                                                       \
      "federated rounds in simulated time: choice, memory, tiers; masked updates between "         \
      "processes; exchanges of gradients through a store on shaped links")                         \
    X(params, ru_bench_params,                                                                     \
      "apps with shared parameters compared with single-process programs")                         \
    X(start, ru_bench_start, "time from program start to the end of the first training step")      \
    X(trace, ru_bench_trace, "cost of a trace record, and of recording to a step")                 \
    X(order, ru_bench_order,                                                                       \
      "steps of workers that pull parameters in different orders, on shaped links")                \
    X(clock, ru_bench_clock,                                                                       \
      "how well traces of four hosts with wrong clocks are laid over each other")                  \
    X(whatif, ru_bench_whatif,                                                                     \
      "steps that `rubato explain --if` predicts from one trace compared with measured ones")      \
    X(predict, ru_bench_predict,                                                                   \
      "predicted times of transfers and sums compared with measured ones, on real workers")        \
    X(python, ru_bench_python,                                                                     \
      "the Python package compared with ONNX Runtime, DataLoader, torch, DDP and torchrun")        \
    X(serve, ru_bench_serve,                                                                       \
      "rubato serve compared with uvicorn and ONNX Runtime, and with its own promises")            \
    X(promise, ru_bench_promise,                                                                   \
      "a promise at the least cost: batches on functions, a training on the cores of a server")    \
    X(cluster, ru_bench_cluster,                                                                   \
      "the scheduler of a cluster: rounds, durable events, history; jobs under three methods")     \
    X(burst, ru_bench_burst,                                                                       \
      "a service with processor credits: nginx with wrk, untouched and paced, in turns")           \
    X(sim, ru_bench_sim,                                                                           \
      "simulator: events, time and memory by number of workers; seeds with faults")

static const struct {
    const char *name;
    ru_bench_fn fn;
    const char *help;
} benches[] = {
#define RU_X(name, fn, help) {#name, fn, help},
    BENCH_LIST(RU_X)
#undef RU_X
        {"pipe", ru_bench_pipe,
         "pipelines on four small workers compared with data parallel training and PyTorch; "
         "predicted and measured steps"},
    {"placed", ru_bench_placed,
     "placed steps on unequal workers compared with one worker, consecutive layers, m-ETF and "
     "HEFT; predicted and measured steps"},
    {"ways", ru_bench_ways,
     "data parallel, pipelined and placed steps of 20 pairs of job and cluster, beside what "
     "train.parallel: auto takes"},
    {"device", ru_bench_device,
     "steps of nets that were not profiled, predicted and measured under quotas; money of the "
     "quota that is chosen"},
    {"allreduce-plan", ru_bench_sums,
     "steps whose gradients are summed by the plan, as DDP does, and one by one, on shaped "
     "links"},
};

static ru_status list(void)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(benches); k++) {
        printf("%-14s %s\n", benches[k].name, benches[k].help);
    }
    printf("%-14s %s\n", "replay", "policies and their baselines on published data [NAME]...");
    return RU_OK;
}

static ru_status run_named(ru_cmd_in *in, const char *name, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(benches); k++) {
        if (strcmp(benches[k].name, name) != 0) {
            continue;
        }
        if (ru_bench_rubato(in->arena) == NULL) {
            return RU_FAIL(err, RU_E_PEER,
                           "the program rubato, which the benchmarks start, is not beside this "
                           "program; `make` builds both and `make install` installs both");
        }
        ru_bench b = {.arena = in->arena,
                      .quick = ru_cmd_flag(in, "quick"),
                      .dir = ru_cmd_text(in, "dir"),
                      .only = ru_cmd_text(in, "only"),
                      .zoo = ru_cmd_text(in, "zoo"),
                      .ops = ru_cmd_flag(in, "ops"),
                      .threads = (uint32_t)ru_cmd_i64(in, "threads")};
        RU_TRY(ru_dir_make(b.dir, err));
        RU_TRY(benches[k].fn(&b, err));
        if (b.n == 0 && !b.told && (b.only[0] != '\0' || b.threads != 0)) {
            char threads[32] = "";
            if (b.threads != 0) {
                snprintf(threads, sizeof threads, " with --threads %u", b.threads);
            }
            return RU_FAIL(err, RU_E_USAGE,
                           "no row of '%s' has '%s' in its name%s; run it without these options to "
                           "see all row names",
                           name, b.only, threads);
        }
        ru_bench_summary(&b);
        if (ru_cmd_flag(in, "json")) {
            ru_bench_json(&b, name);
        }
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_USAGE, "there is no benchmark '%s'; `rubato bench` lists them", name);
}

static ru_status replay(ru_cmd_in *in, ru_err *err)
{
    if (ru_cmd_flag(in, "list")) {
        ru_text out = ru_text_arena(in->arena);
        ru_replay_list(&out);
        fputs(out.p, stdout);
        return RU_OK;
    }
    const ru_replay r = {.data = ru_conf_env("RUBATO_DATA"),
                         .dir = ru_cmd_text(in, "dir"),
                         .quick = ru_cmd_flag(in, "quick"),
                         .only = ru_cmd_text(in, "only"),
                         .resume = ru_cmd_flag(in, "resume"),
                         .bar = in->progress,
                         .quiet = in->verbose < 0};
    return ru_replay_run(in->args + 1, in->n_args - 1, &r, ru_cmd_flag(in, "json"), err);
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
    if (strcmp(in->args[0], "replay") == 0) {
        return replay(in, err);
    }
    if (in->n_args > 1) {
        return RU_FAIL(err, RU_E_USAGE, "unexpected argument '%s'; name one benchmark at a time",
                       in->args[1]);
    }
    return run_named(in, in->args[0], err);
}

int main(int argc, char **argv)
{
    const char *const *words = (const char *const *)argv;
    if (argc < 1) {
        return 70;
    }
    ru_self_streams();
    ru_tool_limit_spinning();
    ru_self_name("rubato-bench");
    return ru_tool_run_as("bench", run, words + 1, (uint32_t)argc - 1);
}
