/* rubato train: train the model of a job file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/str.h"
#include "comm/member/member.h"
#include "env/file/claim.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "launch/hosts.h"
#include "launch/launch.h"
#include "launch/way.h"
#include "tool/cmd.h"
#include "tool/cmd/from.h"
#include "tool/cmd/metrics.h"
#include "tool/functions.h"
#include "tool/serve/client.h"
#include "train/app/app_run.h"
#include "train/driver/find_lr.h"
#include "train/driver/trainer.h"
#include "train/elastic/elastic.h"

enum { ADDRESSES_MAX = 64 };

_Static_assert((int)RU_HOSTS_WORKERS_MAX == (int)RU_WORKERS_MAX, "what hosts may say, a job takes");

static const ru_opt opts[] = {
    RU_OPT(TEXT, "out", "DIR",
           "folder of the run (default: runs/<name>-<number> with the next free number)",
           .letter = 'o'),
    RU_OPT(
        FLAG, "resume", NULL,
        "continue from the newest checkpoint of the run, with the result of an uninterrupted run"),
    RU_OPT(TEXTS, "set", "KEY=VALUE",
           "set a key of the job, such as train.batch=64; may be given several times",
           .letter = 's'),
    RU_OPT(TEXT, "workers", "N",
           "worker processes on this machine: a number (failed workers are not replaced), or "
           "MIN:MAX to let workers join and leave (below MIN, Rubato starts another)",
           .letter = 'w', .def = "1"),
    RU_OPT(TEXT, "listen", "HOST:PORT",
           "address at which workers of other hosts reach the first worker (default: this "
           "machine only); an empty host means every interface"),
    RU_OPT(TEXT, "resume-from", "s3://BUCKET/FOLDER",
           "start from the newest checkpoint that checkpoint.copy_to of a run has put there; --out "
           "names a new folder"),
    RU_OPT(TEXT, "weights", "HOST:PORT",
           "give the first worker's weights, while it trains, to `rubato predict --from` and "
           "`rubato eval --from` at this address; the token is in OUT/weights-token"),
    RU_OPT(TEXT, "hosts", "a:2,b:2",
           "start workers on these hosts over ssh (RUBATO_SSH names another program); this "
           "machine must be one of them. b:2:transient: that host may be reclaimed at any time, "
           "and its workers have no vote. @FILE: one host a line"),
    RU_OPT(TEXT, "nnodes", "N", "torchrun: number of machines, N or MIN:MAX"),
    RU_OPT(TEXT, "nproc-per-node", "N",
           "torchrun: number of workers on this machine; auto or cpu: one per core"),
    RU_OPT(TEXT, "rdzv-endpoint", "HOST:PORT", "torchrun: address of the job"),
    RU_OPT(TEXT, "rdzv-id", "ID", "torchrun: name of the job"),
    RU_OPT(TEXT, "node-rank", "N", "torchrun: rank of this machine; machine 0 starts the job"),
    RU_OPT(TEXT, "master-addr", "HOST", "torchrun: address of machine 0"),
    RU_OPT(TEXT, "master-port", "PORT", "torchrun: port of machine 0"),
    RU_OPT(FLAG, "standalone", NULL, "torchrun: this machine only"),
    RU_OPT(TEXT, "token-file", "FILE",
           "file with the secret that workers of several machines share (default: RUBATO_TOKEN; "
           "created if this process starts all workers, derived from "
           "~/.config/rubato/secret if torchrun, srun or mpirun does)"),
    RU_OPT(FLAG, "deterministic", NULL,
           "with -w: runs with the same workers give bit-identical results; with --beside: the "
           "team keeps its threads beside a batch"),
    RU_OPT(FLAG, "sockets", NULL, "sum gradients over sockets even between workers of one machine"),
    RU_OPT(FLAG, "equal-shares", NULL, "with -w: do not give faster workers more samples"),
    RU_OPT(CHOICE, "tier", "TIER",
           "transient: the provider may reclaim this machine at any time. Its workers join the "
           "job of another machine (--node-rank 1, Slurm, ...) and have no vote, so the others "
           "continue even if all such machines fail at once",
           .def = "reliable", .choices = "reliable|transient"),
    RU_OPT(TEXTS, "beside", "HOST:PORT",
           "train on the cores of this server (`rubato serve --instances 1` on this machine) while "
           "its promise holds: each op waits until the server leaves room for it; again: also "
           "beside that one"),
    RU_OPT(CHOICE, "gate", "METHOD",
           "with --beside, which ops may run beside a batch. lag: those that leave the promise "
           "time; priority: none",
           .def = "lag", .choices = "lag|priority"),
    RU_OPT(TIME, "op-max", "TIME",
           "with --beside: batches in so many parts (as train.accumulate makes) that no op takes "
           "longer; 0: as long as it takes",
           .def = "0", RU_IN(0, 1e17)),
    RU_OPT(TIME, "gate-quiet", "TIME", "with --beside: no op begins so soon behind a batch",
           .def = "0", RU_IN(0, 1e17)),
    RU_OPT_FUNCTIONS,
    RU_OPT(I64, "threads", "N", "number of compute threads (train.threads)", RU_IN(0, 1024)),
    RU_OPT(TEXT, "metrics", "PORT",
           "serve the run's figures over HTTP while it trains: /metrics for Prometheus, /top for "
           "rubato top HOST:PORT. PORT: this machine only; :PORT or HOST:PORT: other machines too "
           "(port 0: any). Requests carry the token of OUT/token as a bearer token"),
    RU_OPT(FLAG, "metrics-open", NULL, "with --metrics: answer requests without a token"),
    RU_OPT(FLAG, "find-lr", NULL,
           "do not train: try learning rates from 1e-7 to 10 in 100 steps and suggest one. The "
           "curve goes to find-lr.csv in the run's folder (runs/<name>-find-lr-<number>), which "
           "`rubato plot` draws"),
    RU_OPT(FLAG, "json", NULL, "print progress as JSON Lines on stdout"),
    RU_OPT(FLAG, "help-job", NULL, "print every key of a job file and exit"),
    RU_OPT(FLAG, "schema", NULL, "print the JSON Schema of a job file and exit"),
};

static const ru_example examples[] = {
    {"rubato train job.yaml", "train the job; Ctrl-C saves a checkpoint and ends"},
    {"rubato train job.yaml --set train.epochs=1 --set train.batch=256", "change settings"},
    {"rubato train job.yaml -w 4", "train on four processes; if one fails, no sample is lost"},
    {"rubato train job.yaml -w 2:8 --listen :4000",
     "let workers of other hosts join; Rubato prints the command for them"},
    {"rubato train job.yaml --hosts localhost:2,node7:2", "train on two hosts, started over ssh"},
    {"rubato train job.yaml --out runs/digits --resume", "continue after a stop or a crash"},
    {"rubato train job.yaml --functions local -w 2", "train on two function instances"},
    {"rubato train job.yaml --find-lr", "suggest a learning rate"},
    {"rubato train --help-job", "list every key with its type, default and range"},
};

static ru_status print_text(const ru_text *t, ru_err *err)
{
    if (t->cut) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the help text");
    }
    (void)fwrite(t->p, 1, (size_t)t->n, stdout);
    return RU_OK;
}

/* --set and options that set a key. */
static ru_status list_sets(ru_cmd_in *in, const char ***out, uint32_t *n_out, ru_err *err)
{
    uint32_t n;
    const char *const *given = ru_cmd_texts(in, "set", &n);
    const char **sets = RU_NEW(in->arena, const char *, n + 1);
    if (sets == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the command line");
    }
    for (uint32_t k = 0; k < n; k++) {
        sets[k] = given[k];
    }
    if (ru_cmd_given(in, "threads")) {
        sets[n] =
            ru_arena_printf(in->arena, "train.threads=%lld", (long long)ru_cmd_i64(in, "threads"));
        n += sets[n] != NULL;
    }
    *out = sets;
    *n_out = n;
    return RU_OK;
}

static ru_status load_job(ru_cmd_in *in, ru_job *job, ru_conf **conf, ru_err *err)
{
    const char **sets;
    uint32_t n;
    RU_TRY(list_sets(in, &sets, &n, err));
    return ru_job_load(in->args[0], sets, n, in->arena, job, conf, err);
}

/* What the command prints at the end, for whoever still reads it. */
static void tell_out(const char *out)
{
    ru_self_tell(out, (int64_t)strlen(out));
    ru_self_tell("\n", 1);
}

static ru_status run_app(ru_cmd_in *in, ru_run_opened opened, ru_err *err)
{
    const char **sets;
    uint32_t n;
    ru_app_job_file file;
    ru_app_train_result result;
    RU_TRY(list_sets(in, &sets, &n, err));
    RU_TRY(ru_app_job_load(in->args[0], sets, n, in->arena, &file, err));
    bool json = ru_cmd_flag(in, "json"), mixed = json && ru_self_columns(1) > 0;
    const ru_app_train_options to = {
        .file = &file,
        .out = ru_cmd_text(in, "out"),
        .resume = ru_cmd_flag(in, "resume"),
        .json = json,
        .quiet = in->verbose < 0,
        .columns = in->progress && !mixed ? ru_self_columns(2) : 0,
        .opened = opened,
    };
    ru_self_stop_watch();
    ru_status st = ru_app_train(&to, in->arena, &result, err);
    ru_self_stop_unwatch();
    RU_TRY(st);
    if (!json) {
        tell_out(result.out);
    }
    return RU_OK;
}

static const char *env_get(void *self, const char *name)
{
    (void)self;
    return ru_conf_env(name);
}

/* --hosts @FILE: lines "host", "host:workers" or "host:workers:tier"; '#' begins a remark. */
static ru_status hosts_of(ru_cmd_in *in, const char **hosts, ru_err *err)
{
    const char *given = ru_cmd_text(in, "hosts");
    *hosts = given;
    if (given == NULL || given[0] != '@') {
        return RU_OK;
    }
    char *text;
    int64_t n;
    RU_TRY(ru_file_read(given + 1, 1 << 20, in->arena, &text, &n, err));
    ru_text list = ru_text_arena(in->arena);
    ru_str rest = ru_str_n(text, n), line;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t remark = ru_str_find(line, "#");
        line = ru_str_trim(remark >= 0 ? ru_str_n(line.p, remark) : line);
        if (line.n > 0) {
            ru_text_putf(&list, "%s%.*s", list.n > 0 ? "," : "", (int)line.n, line.p);
        }
    }
    if (list.n == 0) {
        return RU_FAIL(err, RU_E_USAGE, "--hosts: %s names no host", given + 1);
    }
    *hosts = list.p;
    return list.cut ? RU_FAIL(err, RU_E_MEM, "not enough memory for %s", given + 1) : RU_OK;
}

/* How many workers, where, and who founds the job: flags, torchrun, Slurm, MPI. */
static ru_status resolve(ru_cmd_in *in, ru_hosts_plan *plan, ru_err *err)
{
    char *host = ru_arena_zalloc(in->arena, 256, 1);
    if (host == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the command line");
    }
    const char *hosts;
    RU_TRY(hosts_of(in, &hosts, err));
    ru_self_host(host, 256);
    char(*addresses)[RU_SELF_ADDRESS_BYTES] =
        ru_arena_zalloc(in->arena, (int64_t)ADDRESSES_MAX * RU_SELF_ADDRESS_BYTES, 1);
    const char *here[1 + ADDRESSES_MAX] = {host};
    uint32_t n_here = 1 + (addresses != NULL ? ru_self_addresses(addresses, ADDRESSES_MAX) : 0);
    for (uint32_t k = 1; k < n_here; k++) {
        here[k] = addresses[k - 1];
    }
    const ru_hosts_flags flags = {
        .workers = ru_cmd_given(in, "workers") ? ru_cmd_text(in, "workers") : NULL,
        .hosts = hosts,
        .nnodes = ru_cmd_text(in, "nnodes"),
        .nproc_per_node = ru_cmd_text(in, "nproc-per-node"),
        .rdzv_endpoint = ru_cmd_text(in, "rdzv-endpoint"),
        .rdzv_id = ru_cmd_text(in, "rdzv-id"),
        .node_rank = ru_cmd_text(in, "node-rank"),
        .master_addr = ru_cmd_text(in, "master-addr"),
        .master_port = ru_cmd_text(in, "master-port"),
        .standalone = ru_cmd_flag(in, "standalone"),
        .cpu_workers = ru_pool_cores(),
        .names_here = here,
        .n_names_here = n_here,
    };
    return ru_hosts_resolve(&flags, env_get, NULL, in->arena, plan, err);
}

static bool is_transient(const ru_cmd_in *in)
{
    return ru_cmd_choice(in, "tier") == RU_TIER_TRANSIENT;
}

static ru_status check_tier(const ru_cmd_in *in, const ru_hosts_plan *plan, ru_err *err)
{
    bool joins = plan->workers_max > 1 && plan->founds != RU_FOUNDS_YES;
    if (!is_transient(in) || joins) {
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_USAGE,
                   "--tier transient: this machine starts the job, and the first machine must be "
                   "reliable; start the job on a reliable machine and let this one join (rubato "
                   "worker --join HOST:PORT --tier transient)");
}

/* What was decided, and how the workers of this start know each other when nobody said it. */
static void tell_plan(const ru_hosts_plan *plan, const ru_token *token)
{
    (void)fprintf(stderr, "%s", plan->line);
    if (token->secret != NULL) {
        (void)fprintf(stderr,
                      "; the token is derived from %s, which all hosts must share (else "
                      "set RUBATO_TOKEN)",
                      token->secret);
    }
    (void)fputc('\n', stderr);
}

/* The folder of a worker that joins the job of another process: none was named. */
static const char *out_of_one(ru_cmd_in *in, const ru_hosts_plan *plan, const char *name)
{
    return ru_arena_printf(in->arena, "runs/%s-%s", name, plan->job != NULL ? plan->job : "shared");
}

/* Another launcher started this process: it is one worker. The first one founds the job, the others
 * take the state from it, so that no disk need be shared. */
static ru_status run_as_worker(ru_cmd_in *in, ru_train_options *to, const ru_hosts_plan *plan,
                               ru_err *err)
{
    ru_token token;
    ru_train_place place = {0};
    bool founds = plan->founds == RU_FOUNDS_YES;
    ru_err why = {0};
    ru_status st =
        ru_token_shared(ru_cmd_text(in, "token-file"), plan->launch, in->arena, &token, &why);
    if (st != RU_OK) {
        return RU_FAIL(err, st,
                       "%s. This process is one worker of several, by what its environment says "
                       "(%s); unset these variables to train on this machine alone",
                       why.text, plan->line);
    }
    uint32_t token_bytes = (uint32_t)strlen(token.text);
    uint64_t key = ru_worker_key((const uint8_t *)token.text, token_bytes);
    if (!to->quiet) {
        tell_plan(plan, &token);
    }
    if (founds) {
        to->dir_shared = true; /* on a common disk, one that joins may have claimed it before */
        RU_TRY(ru_train_dir(to, key, in->arena, &place, err));
        to->out = place.out;
        const char *file = ru_path_join(in->arena, to->out, "token"); /* for those who join later */
        RU_TRY(file != NULL ? ru_file_secret(file, token.text, token_bytes, err) : RU_OK);
    } else if (to->out == NULL) {
        to->out = out_of_one(in, plan, to->job->name);
    }
    to->dir_made = true;
    to->opened.fn = founds ? to->opened.fn : NULL; /* one of the workers serves */
    to->rank = plan->rank;
    char here[256];
    ru_self_host(here, sizeof here);
    const char *colon = plan->address != NULL ? strrchr(plan->address, ':') : NULL;
    const ru_worker_options wo = {
        .train = *to,
        .shell = {.join = founds ? NULL : plan->address,
                  .listen = !founds         ? ":0"
                            : colon != NULL ? colon
                                            : ":0",
                  .toward = plan->address,
                  .token = (const uint8_t *)token.text,
                  .token_bytes = token_bytes,
                  .newcomer = !founds,
                  .number = plan->rank + 1,
                  .transient = is_transient(in) ||
                               (!founds && ru_host_listed(&to->job->train.transient, here))},
        .n_min = plan->workers_min != plan->workers_max ? plan->workers_min : 1,
        .n_begin = plan->workers_min,
        .deterministic = ru_cmd_flag(in, "deterministic"),
        .equal_shares = ru_cmd_flag(in, "equal-shares"),
        .sockets_only = ru_cmd_flag(in, "sockets"),
        .weights = founds ? ru_cmd_text(in, "weights") : NULL,
    };
    ru_worker_result result;
    ru_self_stop_watch();
    st = ru_worker_run(&wo, in->arena, &result, err);
    ru_self_stop_unwatch();
    ru_claim_close(place.claim);
    if (st == RU_OK && result.number == 0) {
        (void)fprintf(stderr, "gave up joining\n");
    }
    return st;
}

/* The first host that is another machine, with a port as addresses have. */
static const char *other_host(const ru_hosts_plan *plan, ru_arena *arena)
{
    for (uint32_t k = 0; k < plan->hosts.n; k++) {
        if (!plan->hosts.at[k].here) {
            return ru_arena_printf(arena, "%s:22", plan->hosts.at[k].name);
        }
    }
    return NULL;
}

/* This process starts workers. A fixed number may shrink to one; a range begins with as many as
 * there are cores. */
static ru_status run_workers(ru_cmd_in *in, ru_train_options *to, const ru_app_job_file *app,
                             const ru_way_choice *way, const ru_hosts_plan *plan, ru_err *err)
{
    bool range = plan->workers_min != plan->workers_max;
    uint32_t cores = ru_pool_cores(), n_min = plan->workers_min, n_max = plan->workers_max;
    uint32_t start = cores < n_min ? n_min : cores > n_max ? n_max : cores;
    bool several = plan->hosts.n > 1 || plan->source == RU_HOSTS_TORCHRUN || plan->is_worker;
    start = !range ? n_max : start;
    ru_token token = {0};
    const char *token_file = ru_cmd_text(in, "token-file"), *listen = ru_cmd_text(in, "listen");
    bool far = (plan->source == RU_HOSTS_TORCHRUN || plan->is_worker) && plan->address != NULL;
    if (far || token_file != NULL) {
        RU_TRY(ru_token_shared(token_file, plan->launch, in->arena, &token, err));
    }
    if (far) {
        const char *colon = strrchr(plan->address, ':');
        listen = listen != NULL ? listen : colon != NULL ? colon : ":0";
    }
    if (listen != NULL && !ru_link_tcp_address_ok(listen)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--listen '%s': expected HOST:PORT, [v6]:PORT or :PORT with a port from 0 "
                       "(any) to 65535",
                       listen);
    }
    bool joins = plan->founds == RU_FOUNDS_NO ||
                 (plan->founds == RU_FOUNDS_IF_FREE && !ru_link_tcp_free(listen));
    to->dir_made = to->out != NULL && joins; /* the one that founds the job may share the disk */
    to->dir_shared = plan->founds == RU_FOUNDS_IF_FREE || plan->is_worker;
    const ru_launch_options lo = {
        .train = to,
        .app = app,
        .n_min = range ? n_min : 1,
        .n_begin = several ? n_min : 1,
        .n_start = several ? plan->workers_here : start,
        .n_max = n_max,
        .open = range || several || ru_cmd_given(in, "listen"),
        .deterministic = ru_cmd_flag(in, "deterministic"),
        .equal_shares = ru_cmd_flag(in, "equal-shares"),
        .sockets_only = ru_cmd_flag(in, "sockets"),
        .transient = is_transient(in),
        .listen = listen != NULL      ? listen
                  : plan->hosts.n > 1 ? ":0"
                                      : NULL,
        .weights = ru_cmd_text(in, "weights"),
        .toward = plan->hosts.n > 1 ? other_host(plan, in->arena) : plan->address,
        .join = joins ? plan->address : NULL,
        .join_if_taken = plan->founds == RU_FOUNDS_IF_FREE ? plan->address : NULL,
        .token = token.text,
        .hosts = plan->hosts.n > 1 ? &plan->hosts : NULL,
        .rank_first = plan->rank,
        .verbose = in->verbose,
    };
    ru_launch_result result;
    ru_self_stop_watch(); /* ru_way_launch does, but what is told before may have no reader */
    if (plan->source != RU_HOSTS_ALONE && !to->quiet) {
        tell_plan(plan, &token);
    }
    if (lo.n_start > cores) {
        ru_log(RU_LOG_WARN, "tool", "workers",
               "%u workers share %u core%s of this machine, so each step takes longer than with %u",
               lo.n_start, cores, cores == 1 ? "" : "s", cores);
    }
    ru_status st = ru_way_launch(&lo, to, way, in->arena, &result, err);
    ru_self_stop_unwatch();
    RU_TRY(st);
    in->exit_code = result.code;
    if (!to->json && result.code == 0) {
        tell_out(result.out);
    }
    return RU_OK;
}

/* The first worker runs where this command does: that must be one of the hosts. */
static ru_status check_here(const ru_hosts_plan *plan, ru_err *err)
{
    for (uint32_t k = 0; k < plan->hosts.n; k++) {
        if (plan->hosts.at[k].here && plan->hosts.at[k].transient) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--hosts: this machine ('%s') starts the job, so it cannot be transient",
                           plan->hosts.at[k].name);
        }
    }
    if (plan->hosts.n == 0 || plan->workers_here > 0 ||
        (plan->source != RU_HOSTS_FLAG && plan->workers_max <= 1)) {
        return RU_OK;
    }
    char here[256];
    ru_self_host(here, sizeof here);
    if (plan->source == RU_HOSTS_FLAG) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--hosts does not name this machine ('%s'), on which the first worker runs; "
                       "add it, as in --hosts %s:1,%s:%u",
                       here, here, plan->hosts.at[0].name, plan->hosts.at[0].workers);
    }
    return RU_FAIL(err, RU_E_CONFIG,
                   "this machine ('%s') is not one of the %u hosts of Slurm job %s; start the "
                   "command there with sbatch or srun, or unset SLURM_JOB_ID to train here",
                   here, plan->hosts.n, plan->job != NULL ? plan->job : "?");
}

/* An app on several workers. */
static ru_status run_app_workers(ru_cmd_in *in, const ru_hosts_plan *plan, ru_run_opened opened,
                                 ru_err *err)
{
    const char **sets;
    uint32_t n;
    ru_app_job_file file;
    RU_TRY(list_sets(in, &sets, &n, err));
    RU_TRY(ru_app_job_load(in->args[0], sets, n, in->arena, &file, err));
    bool json = ru_cmd_flag(in, "json"), mixed = json && ru_self_columns(1) > 0;
    const char *out = ru_cmd_text(in, "out");
    if (out == NULL && plan->is_worker && plan->founds == RU_FOUNDS_NO) {
        out = out_of_one(in, plan, file.job->name);
    }
    ru_train_options to = {.out = out,
                           .resume = ru_cmd_flag(in, "resume"),
                           .json = json,
                           .quiet = in->verbose < 0,
                           .columns = in->progress && !mixed ? ru_self_columns(2) : 0,
                           .opened = opened};
    return run_workers(in, &to, &file, NULL, plan, err);
}

typedef struct beside_answer {
    const char *handle, *model;
    int64_t memory_bytes;
} beside_answer;

static const ru_conf_field beside_fields[] = {
    RU_ROW(TEXT, beside_answer, handle, NULL, "of the ring"),
    RU_ROW(TEXT, beside_answer, model, "", "of the server"),
    RU_ROW(I64, beside_answer, memory_bytes, "0", "that the training may have", RU_IN(0, 1e15)),
};
static const ru_conf_table beside_table = RU_TABLE("answer", beside_answer, beside_fields, NULL);

/* The server gives this process a ring of what it does. */
static ru_status ask_beside(ru_arena *arena, const char *at, const char *body, beside_answer *a,
                            ru_err *err)
{
    char *text;
    int64_t n;
    ru_conf *c;
    ru_status st = rui_served_post(at, "/v2/rubato/beside", body, arena, &text, &n, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "--beside %s", at);
    }
    RU_TRY(ru_conf_new(&beside_table, arena, &c, err));
    RU_TRY(ru_conf_add_json(c, at, text, n, err));
    return ru_conf_apply(c, a, err);
}

/* --beside: of what several servers allow, the least is the training's bound of memory. */
static ru_status go_beside(ru_cmd_in *in, const ru_hosts_plan *plan, ru_train_options *to,
                           ru_err *err)
{
    uint32_t n;
    const char *const *at = ru_cmd_texts(in, "beside", &n);
    if (plan->is_worker || plan->workers_max > 1 || ru_cmd_given(in, "listen") ||
        ru_cmd_given(in, "weights") || to->job->train.adapt.batch_max > 0) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--beside is for a training of one process, without --workers, --listen, "
                       "--weights and train.adapt");
    }
    int64_t mb = 0, bytes = 0;
    const char *memory = ru_cmd_given(in, "memory") ? ru_cmd_text(in, "memory") : "0";
    if (!ru_str_i64(ru_str_c(memory), &mb) || mb < (ru_cmd_given(in, "memory") ? 1 : 0) ||
        mb > 1000000000) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--memory '%s': with --beside expected a number of MB that the training "
                       "may have",
                       memory);
    }
    const char *body = ru_arena_printf(in->arena, "{\"pid\": %lld, \"memory_bytes\": %lld}",
                                       (long long)ru_self_pid(), (long long)mb * 1000000);
    const char **handles = RU_NEW(in->arena, const char *, n);
    if (body == NULL || handles == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to ask %s", at[0]);
    }
    for (uint32_t k = 0; k < n; k++) {
        beside_answer a;
        for (uint32_t i = 0; i < k; i++) {
            if (strcmp(at[i], at[k]) == 0) {
                return RU_FAIL(err, RU_E_USAGE, "--beside %s is given twice; leave one out", at[k]);
            }
        }
        RU_TRY(ask_beside(in->arena, at[k], body, &a, err));
        handles[k] = a.handle;
        bytes = k == 0 || a.memory_bytes < bytes ? a.memory_bytes : bytes;
    }
    to->beside = handles;
    to->n_besides = n;
    to->beside_plain = ru_cmd_choice(in, "gate") == 1;
    to->beside_fixed = ru_cmd_flag(in, "deterministic");
    to->beside_op_max_ns = ru_cmd_i64(in, "op-max");
    to->beside_quiet_ns = ru_cmd_i64(in, "gate-quiet");
    if (to->beside_op_max_ns > 0 && to->beside_fixed) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--op-max takes as many parts of a batch as measured times say, which is "
                       "not --deterministic; set train.accumulate instead");
    }
    if (bytes > 0) {
        ru_memory_own_bound(bytes);
        ru_log(RU_LOG_INFO, "train", "beside", "the training may have %lld MB",
               (long long)(bytes / 1000000));
    }
    return RU_OK;
}

/* --find-lr: one process, whatever the job trains on. */
static ru_status find_lr(ru_cmd_in *in, const ru_train_options *opt, ru_err *err)
{
    static const char *const names[] = {"",        "sgd",     "adam", "adamw",
                                        "adagrad", "rmsprop", "lion", "lamb"};
    ru_lr_found f;
    ru_train_options to = *opt;
    bool json = opt->json;
    to.json = false;
    if (opt->resume || ru_cmd_given(in, "resume-from") || ru_cmd_given(in, "beside")) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--find-lr starts a run of its own; leave out --resume, --resume-from and "
                       "--beside");
    }
    ru_self_stop_watch();
    ru_status st = ru_find_lr(&to, in->arena, &f, err);
    ru_self_stop_unwatch();
    RU_TRY(st);
    const char *csv = ru_path_join(in->arena, f.out, "find-lr.csv");
    csv = csv != NULL ? csv : f.out;
    if (json) {
        ru_text line = ru_text_arena(in->arena);
        ru_text_put(&line, "{\"schema\":\"rubato.train.find_lr/1\",\"lr\":");
        ru_text_f64(&line, f.lr);
        ru_text_put(&line, ",\"lowest\":");
        ru_text_f64(&line, f.lowest);
        ru_text_putf(&line, ",\"steps\":%lld,\"curve\":", (long long)f.n);
        ru_text_json(&line, ru_str_c(csv));
        ru_text_put(&line, "}\n");
        return print_text(&line, err);
    }
    (void)printf("learning rate %.2g: the loss falls fastest there; it is lowest at %.2g\n"
                 "  rubato train %s --set train.optimizer.%s.lr=%.2g\n"
                 "  rubato plot %s\n",
                 f.lr, f.lowest, in->args[0], names[opt->job->train.optimizer.which & 7], f.lr,
                 csv);
    return RU_OK;
}

/* At least one worker must compute, and each server adds what all others send. */
static ru_status check_servers(const ru_job *job, const ru_conf *conf, uint32_t workers,
                               ru_err *err)
{
    if (job->train.servers > 0 && workers > RU_ELASTIC_SERVED_MAX) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s: a job with train.servers has at most %d workers, but up to %u would "
                       "start; start fewer or set it to 0",
                       ru_conf_origin(conf, "train.servers"), RU_ELASTIC_SERVED_MAX, workers);
    }
    if (job->train.servers < workers || job->train.servers == 0) {
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_CONFIG,
                   "%s: train.servers is %u, but %u worker%s would start and one must compute; "
                   "start more (-w %u) or lower it",
                   ru_conf_origin(conf, "train.servers"), job->train.servers, workers,
                   workers == 1 ? "" : "s", job->train.servers + 1);
}

static ru_status check_weights(ru_cmd_in *in, ru_err *err)
{
    const char *at = ru_cmd_text(in, "weights");
    if (at != NULL && !ru_link_tcp_address_ok(at)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--weights '%s': expected HOST:PORT, [v6]:PORT or :PORT with a port from 0 "
                       "to 65535",
                       at);
    }
    RU_TRY(rui_check_functions(in, err));
    bool model_only = at != NULL || ru_cmd_given(in, "resume-from") || ru_cmd_given(in, "beside") ||
                      ru_cmd_given(in, "functions");
    return !model_only || !ru_app_job_is(in->args[0])
               ? RU_OK
               : RU_FAIL(
                     err, RU_E_USAGE,
                     "--weights, --resume-from, --beside and --functions are for models, but %s "
                     "trains the tables of an app; leave them out",
                     in->args[0]);
}

static ru_status run_job(ru_cmd_in *in, ru_run_opened opened, ru_err *err)
{
    ru_hosts_plan plan;
    RU_TRY(check_weights(in, err));
    RU_TRY(resolve(in, &plan, err));
    if (ru_app_job_is(in->args[0])) {
        RU_TRY(check_here(&plan, err));
        RU_TRY(check_tier(in, &plan, err));
        return plan.workers_max > 1 || ru_cmd_given(in, "listen")
                   ? run_app_workers(in, &plan, opened, err)
                   : run_app(in, opened, err);
    }
    RU_TRY(check_here(&plan, err));
    RU_TRY(check_tier(in, &plan, err));
    ru_job job;
    ru_conf *conf;
    ru_train_result result;
    RU_TRY(load_job(in, &job, &conf, err));
    RU_TRY(check_servers(&job, conf, plan.workers_max, err));
    ru_way_choice way = {0};
    RU_TRY(ru_cmd_flag(in, "find-lr") ? RU_OK : ru_way_check(&job, &plan, in->arena, &way, err));
    bool quiet = in->verbose < 0;
    bool mixed = ru_cmd_flag(in, "json") && ru_self_columns(1) > 0; /* lines and a moving line */
    ru_train_options to = {
        .job = &job,
        .conf = conf,
        .out = ru_cmd_text(in, "out"),
        .resume = ru_cmd_flag(in, "resume"),
        .json = ru_cmd_flag(in, "json"),
        .quiet = quiet,
        .columns = in->progress && !mixed ? ru_self_columns(2) : 0,
        .cache_dir = ru_choices_dir(in->arena),
        .opened = opened,
    };
    if (ru_cmd_given(in, "functions")) {
        return rui_train_functions(in, &to, &plan, err);
    }
    if (ru_cmd_flag(in, "find-lr")) {
        return find_lr(in, &to, err);
    }
    RU_TRY(rui_resume_from(in, to.out, plan.is_worker, &to.resume, err));
    if (ru_cmd_given(in, "beside")) {
        RU_TRY(go_beside(in, &plan, &to, err));
    } else if (ru_cmd_given(in, "gate") || ru_cmd_given(in, "op-max") ||
               ru_cmd_given(in, "gate-quiet")) {
        return RU_FAIL(err, RU_E_USAGE, "--gate, --gate-quiet and --op-max need --beside");
    }
    if (job.train.adapt.batch_max > 0 && ru_cmd_flag(in, "deterministic")) {
        return RU_FAIL(err, RU_E_USAGE,
                       "train.adapt chooses batches by measured times, which no two runs share; "
                       "leave out train.adapt or --deterministic");
    }
    if (plan.is_worker && plan.workers_max > 1) {
        return run_as_worker(in, &to, &plan, err);
    }
    if (plan.workers_max > 1 || ru_cmd_given(in, "listen") || ru_cmd_given(in, "weights") ||
        job.train.adapt.batch_max > 0) {
        return run_workers(in, &to, NULL, &way, &plan, err);
    }
    ru_self_stop_watch();
    ru_status st = ru_train(&to, in->arena, &result, err);
    ru_self_stop_unwatch();
    RU_TRY(st);
    if (!to.json && !quiet && result.first_step_ns > 0) {
        (void)fprintf(stderr, "first step after %.3f s\n", (double)result.first_step_ns * 1e-9);
    }
    if (!to.json) {
        tell_out(result.out);
    }
    return RU_OK;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    ru_text text = ru_text_arena(in->arena);
    if (ru_cmd_flag(in, "help-job") || ru_cmd_flag(in, "schema")) {
        if (ru_cmd_flag(in, "schema")) {
            ru_conf_schema(&ru_job_table, "Rubato job", &text);
        } else {
            ru_conf_help(&ru_job_table, 0, &text);
            RU_TRY(ru_app_job_help(in->arena, &text, err));
        }
        return print_text(&text, err);
    }
    if (in->n_args != 1) {
        return RU_FAIL(err, RU_E_USAGE,
                       "name a job file: rubato train JOB.yaml (--help shows examples)");
    }
    rui_metrics metrics = {.in = in};
    ru_status st = run_job(in, rui_metrics_opened(&metrics), err);
    rui_metrics_close(&metrics);
    return st;
}

/* Of torchrun, Horovod, Lightning and the like. */
static const char called[] =
    "max-restarts=-w MIN:MAX (Rubato starts another worker when fewer than MIN are left)|"
    "np=-w N|num-proc=-w N|n=-w N|min-np=-w MIN:MAX|max-np=-w MIN:MAX|gpus=-w N|devices=-w N|"
    "H=--hosts a:2,b:2|batch-size=--set train.batch=N|epochs=--set train.epochs=N|"
    "max-epochs=--set train.epochs=N|steps=--set train.steps=N|max-steps=--set train.steps=N|"
    "seed=--set train.seed=N|lr=--set 'train.optimizer={sgd: {lr: 0.1}}'|"
    "learning-rate=--set 'train.optimizer={sgd: {lr: 0.1}}'|config=the job file, without an option|"
    "ckpt-path=--out RUN --resume|output-dir=--out DIR|"
    "log-dir=--out DIR (each run has its log there)|device=--set train.device=cpu";

const ru_cmd rui_cmd_train = {
    .name = "train",
    .summary = "train the model of a job file",
    .about = "Reads the job (YAML or JSON), trains the model, evaluates it after each epoch, saves "
             "checkpoints during training, and prints the run's folder.\n\nThe first Ctrl-C (or "
             "SIGTERM) stops training after the current step, saves a checkpoint and exits with "
             "code 0; the second stops at once. --resume continues a run that was stopped or "
             "killed. The resulting parameters are bit-identical to those of an uninterrupted run.",
    RU_CMD_ARGS("JOB.yaml", 0, 1),
    .opts = opts,
    .n_opts = RU_ARRAY_LEN(opts),
    .called = called,
    .examples = examples,
    .n_examples = RU_ARRAY_LEN(examples),
    .exits = "1 training diverged, or all workers failed|65 the data is damaged|66 an input is "
             "missing|69 a host of the job does not answer or has another token|73 the run's "
             "folder cannot be created or written|75 another job uses the run's folder|78 the job "
             "file is not valid or differs from that of the other workers",
    .computes = true,
    .run = run,
};
