/* rubato bench: its table; the measurements are a program of their own, rubato-bench
 * (bench/main.c).
 */
#include "env/process/process.h"
#include "tool/cmd.h"

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    const char *path = ru_process_beside(in->arena, "rubato-bench", "bench");
    if (path == NULL) {
        return RU_FAIL(err, RU_E_PEER,
                       "the program rubato-bench, which measures, is not beside this program; "
                       "`make` builds both and `make install` installs both");
    }
    const char **argv = RU_NEW(in->arena, const char *, in->n_words + 2);
    if (argv == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the command line");
    }
    argv[0] = path;
    for (uint32_t i = 0; i < in->n_words; i++) {
        argv[i + 1] = in->words[i];
    }
    return ru_process_become(path, argv, err);
}

static const ru_opt opts[] = {
    RU_OPT(FLAG, "json", NULL, "one JSON object (rubato.bench/1) on stdout"),
    RU_OPT(FLAG, "quick", NULL, "run fewer and shorter rounds"),
    RU_OPT(TEXT, "only", "WORD", "run only rows whose name contains this text", .def = ""),
    RU_OPT(I64, "threads", "N", "run only rows with this number of threads (0: all)", .def = "0",
           RU_IN(0, 1024)),
    RU_OPT(TEXT, "zoo", "DIR",
           "infer: compare each DIR/NAME.onnx (on the arrays of NAME.npz, else on random arrays) "
           "with ONNX Runtime and OpenVINO"),
    RU_OPT(FLAG, "ops", NULL,
           "infer: compare each op alone with ONNX Runtime, from 1 KiB to 64 MiB (quick: 16)"),
    RU_OPT(TEXT, "dir", "DIR", "folder for exported models and generated inputs",
           .def = "out/bench"),
    RU_OPT(FLAG, "resume", NULL, "replay: go on where a replay with the same options was stopped"),
    RU_OPT(FLAG, "list", NULL, "list the policies that `rubato bench replay` can replay"),
    RU_OPT(FLAG, "worker", NULL,
           "act as one side of a benchmark: train|infer MODEL THREADS f32|bf16 BATCH with the "
           "line protocol of bench/peer.py"),
};

static const ru_example examples[] = {
    {"rubato bench", "list the benchmarks"},
    {"rubato bench train --only resnet18", "compare one model with PyTorch"},
    {"rubato bench infer --json > infer.json", "write the results as JSON"},
    {"rubato bench infer --zoo zoo", "measure a folder of models (bench/zoo.py exports one)"},
    {"rubato bench infer --ops --only ReduceMax", "measure one op at several sizes and axes"},
    {"rubato bench replay share", "compare a policy with its baselines and a bound"},
    {"rubato bench replay alloc --resume", "go on with a replay that was stopped"},
};

const ru_cmd rui_cmd_bench = {
    .name = "bench",
    .summary = "measure this machine and compare it with other systems in the same run",
    .about = "The two sides of every row run alternately. The output shows medians, the range over "
             "the rounds and the ratio; a ratio above 1 means that Rubato is better. If a peer "
             "system is not installed, the output says so and names the command that installs it. "
             "Every number is measured now; no stored number is shown.",
    RU_CMD_ARGS("[NAME] [REPLAY]...", 0, 32),
    RU_CMD_LISTS(opts, examples),
    .exits = "69 the program rubato-bench is not installed",
    .run = run,
};
