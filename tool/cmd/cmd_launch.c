/* rubato launch: processes of a program of one's own that train together (train/embed/embed.h). */
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "launch/hosts.h"
#include "launch/launch.h"
#include "launch/script.h"
#include "tool/cmd.h"

static const ru_opt opts[] = {
    RU_OPT(TEXT, "workers", "N",
           "processes on this machine: a number (those that die are not replaced), or MIN:MAX to "
           "let workers join and leave (below MIN, Rubato starts another)",
           .letter = 'w', .def = "1"),
    RU_OPT(TEXT, "join", "HOST:PORT",
           "join a job that runs, at the address of any of its workers, with its RUBATO_TOKEN"),
    RU_OPT(TEXT, "listen", "HOST",
           "address of this machine at which workers of other machines reach those started here "
           "(default: 127.0.0.1, or the interface that reaches --join)"),
    RU_OPT(TEXT, "token-file", "FILE",
           "file with the secret of the job (default: RUBATO_TOKEN, or a fresh one)"),
};

static const ru_example examples[] = {
    {"rubato launch -w 4 -- python train.py", "four processes; if one fails, no sample is lost"},
    {"rubato launch -w 2:8 -- python train.py --epochs 10",
     "at least two processes, at most eight; those that die are replaced"},
    {"rubato launch -w 2 --listen 10.0.0.5 -- python train.py",
     "two processes that those of other machines can join"},
    {"rubato launch -w 2 --join 10.0.0.5:4000 -- python train.py",
     "two more processes from another machine"},
};

/* As it was typed, with an end. */
static const char *const *argv_of(const ru_cmd_in *in)
{
    const char **argv = RU_NEW(in->arena, const char *, (int64_t)in->n_args + 1);
    for (uint32_t k = 0; argv != NULL && k < in->n_args; k++) {
        argv[k] = in->args[k];
    }
    return argv;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    const char *join = ru_cmd_text(in, "join");
    const char *file = ru_cmd_text(in, "token-file"), *listen = ru_cmd_text(in, "listen");
    uint32_t n_min, n_max, cores = ru_pool_cores();
    char fresh[2 * RU_TOKEN_BYTES + 1], near[RU_LINK_TCP_ADDRESS_MAX];
    ru_str workers = ru_str_c(ru_cmd_text(in, "workers"));
    RU_TRY(ru_hosts_range(workers, "--workers", &n_min, &n_max, err));
    if (join != NULL && !ru_link_tcp_address_ok(join)) {
        return RU_FAIL(err, RU_E_USAGE, "--join '%s': expected HOST:PORT", join);
    }
    if (join != NULL && listen == NULL && ru_link_tcp_source(join, near)) {
        listen = near;
    }
    const char *token = fresh;
    ru_token_make(fresh);
    if (join != NULL || file != NULL || ru_conf_env("RUBATO_TOKEN") != NULL) {
        RU_TRY(ru_token_get(file, in->arena, &token, err));
    }
    bool range = n_min != n_max;
    ru_launch_script_options o = {.argv = argv_of(in),
                                  .n_min = n_min,
                                  .n_max = n_max,
                                  .n_start = !range          ? n_max
                                             : cores < n_min ? n_min
                                             : cores > n_max ? n_max
                                                             : cores,
                                  .refill = range,
                                  .listen = listen,
                                  .join = join,
                                  .token = token,
                                  .quiet = in->verbose < 0};
    if (o.argv == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the command line");
    }
    ru_self_stop_watch();
    ru_status st = ru_launch_script(&o, in->arena, &in->exit_code, err);
    ru_self_stop_unwatch();
    return st;
}

const ru_cmd rui_cmd_launch = {
    .name = "launch",
    .summary = "start processes of your program that train together",
    .about = "Starts a program of yours several times, as members of one elastic job: a script "
             "with rubato.torch.elastic (docs/python.md), or a program with train/embed/embed.h "
             "(docs/library.md). Members find each other by the variables RUBATO_LISTEN, "
             "RUBATO_JOIN, RUBATO_TOKEN, RUBATO_WORKERS, RUBATO_MIN and RUBATO_MAX. When one dies, "
             "the others continue in the same processes.\n\nWrite -- before the program when it "
             "has options.",
    RU_CMD_ARGS("PROGRAM [ARGUMENT]...", 1, UINT32_MAX),
    .opts = opts,
    .n_opts = RU_ARRAY_LEN(opts),
    .called = "nproc-per-node=-w N|nproc_per_node=-w N|np=-w N|nnodes=rubato launch --join on the "
              "other machines",
    .examples = examples,
    .n_examples = RU_ARRAY_LEN(examples),
    .exits = "0 one of the processes ended well|69 the address is taken",
    .run = run,
};
