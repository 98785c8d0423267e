/* rubato cluster: jobs of several people on shared machines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cluster/agent.h"
#include "cluster/book.h"
#include "cluster/journal.h"
#include "cluster/scheduler.h"
#include "cluster/slurm.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "launch/hosts.h"
#include "tool/cluster/burst.h"
#include "tool/cluster/cluster.h"
#include "tool/cluster/fleet.h"
#include "tool/cluster/markets.h"
#include "tool/cluster/nodes.h"
#include "tool/cluster/notice.h"
#include "tool/cmd.h"
#include "train/app/app_job.h"
#include "train/job/job.h"

#define OPT_CLUSTER                \
    RU_OPT(TEXT, "cluster", "DIR", \
           "folder of the cluster (default: RUBATO_CLUSTER, else that of your last `up`)")
#define OPT_JSON RU_OPT(FLAG, "json", NULL, "print one JSON object")

static const int64_t follow_ns = 500000000;
enum {
    EXPLAINED = 20,
    CPU_PERIOD_NS = 10000000
}; /* longer ones make all that waits for a worker wait so long */

static ru_status folder_of(ru_cmd_in *in, const char **folder, ru_err *err)
{
    return rui_cluster_folder(ru_cmd_text(in, "cluster"), in->arena, folder, err);
}

/* Ask and print what comes. */
static ru_status show(ru_cmd_in *in, const char *path, const char *body, bool json, ru_err *err)
{
    rui_cluster_ask a = {.path = path, .body = body, .json = json};
    char *text = NULL;
    int64_t n = 0;
    ru_arena arena; /* `top` asks again and again */
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a request");
    }
    ru_arena_init(&arena, 0);
    ru_status st = rui_cluster_folder(ru_cmd_text(in, "cluster"), &arena, &a.folder, err);
    st = st == RU_OK ? rui_cluster_asked(&a, &arena, &text, &n, err) : st;
    if (st == RU_OK) {
        (void)fwrite(text, 1, (size_t)n, stdout);
    }
    ru_arena_fini(&arena);
    return st;
}

/* -- processes -----------------------------------------------------------------------------------
 */

static ru_status run_up(ru_cmd_in *in, ru_err *err)
{
    rui_cluster c;
    RU_TRY(rui_cluster_load(in->args[0], in->arena, &c, err));
    RU_TRY(rui_cluster_up(&c, in->arena, err));
    (void)printf("%s\n", c.folder);
    return RU_OK;
}

static ru_status run_down(ru_cmd_in *in, ru_err *err)
{
    const char *folder;
    RU_TRY(folder_of(in, &folder, err));
    return rui_cluster_down(folder, ru_cmd_i64(in, "timeout"), in->arena, err);
}

/* One that `up` starts begins when `up` has noted its number. */
static ru_status begin(ru_cmd_in *in, const char **folder, ru_err *err)
{
    if (ru_cmd_flag(in, "held") && getchar() == EOF) {
        return RU_FAIL(err, RU_E_PEER, "who started this process ended before it let it begin");
    }
    return folder_of(in, folder, err);
}

static ru_status run_scheduler(ru_cmd_in *in, ru_err *err)
{
    rui_cluster c;
    const char *folder;
    RU_TRY(begin(in, &folder, err));
    RU_TRY(rui_cluster_of(folder, in->arena, &c, err));
    if (ru_journal_is_database(c.journal)) { /* all its schedulers must say the same */
        char *real = realpath(folder, NULL);
        folder = ru_arena_str(in->arena, real != NULL ? real : folder);
        free(real);
    } else if (c.journal[0] == 0) {
        c.journal = ru_arena_printf(in->arena, "%s/journal", folder);
    }
    if (folder == NULL || c.journal == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a scheduler");
    }
    ru_scheduler_options o = {.folder = folder,
                              .journal = c.journal,
                              .listen = c.listen,
                              .agents = c.agents,
                              .own_accounts = c.accounts == 0,
                              .silent_ns = c.silent_ns,
                              .round_ns = c.round_ns,
                              .method = (ru_alloc_method)c.alloc.method,
                              .demote_s = c.alloc.demote_s,
                              .restarts = c.alloc.resize == 1};
    const char *exe = ru_process_beside(in->arena, "rubato", "tool");
    const ru_slurm_options slurm = {.name = "slurm",
                                    .folder = folder,
                                    .exe = exe,
                                    .partition = c.slurm.partition,
                                    .options = c.slurm.options,
                                    .seats = c.slurm.seats,
                                    .seats_min = c.slurm.seats_min,
                                    .slots = c.slurm.node.slots,
                                    .threads = c.slurm.node.threads,
                                    .idle_ns = c.slurm.idle_ns};
    o.slurm = slurm.seats > 0 ? &slurm : NULL;
    ru_spot_options spot;
    rui_cluster_prices *prices = NULL;
    if (c.markets.n > 0) {
        RU_TRY(rui_cluster_spot(&c, in->arena, &spot, &prices, err));
        RU_TRY(rui_cluster_providers(&c, folder, exe, in->arena, &o.providers, err));
        o.spot = &spot;
        o.refresh = rui_cluster_prices_refresh;
        o.prices = prices;
    }
    RU_TRY(rui_cluster_key(folder, "admin", in->arena, &o.key, err));
    RU_TRY(rui_cluster_key(folder, "agent", in->arena, &o.agent_key, err));
    ru_status st = ru_scheduler_run(&o, in->arena, err);
    rui_cluster_prices_close(prices);
    const char *again[] = {"rubato", "cluster", "scheduler", "--cluster", folder, NULL};
    return st == RU_E_CANCELLED ? ru_process_become("/proc/self/exe", again, err) : st;
}

static ru_status run_agent(ru_cmd_in *in, ru_err *err)
{
    rui_cluster c;
    const char *folder, *name = ru_cmd_text(in, "node");
    RU_TRY(begin(in, &folder, err));
    RU_TRY(rui_cluster_of(folder, in->arena, &c, err));
    rui_cluster_node n;
    if (name == NULL || !rui_cluster_node_of(&c, name, &n)) {
        return RU_FAIL(err, RU_E_USAGE, "the cluster in %s has no node '%s'; name one with --node",
                       folder, name != NULL ? name : "");
    }
    if (ru_cmd_flag(in, "start")) {
        return rui_cluster_agent_start(folder, name, in->arena, err);
    }
    if (ru_cmd_flag(in, "stop")) {
        return rui_cluster_agent_stop(folder, name, in->arena, err);
    }
    ru_agent_options o = {.name = name,
                          .folder = ru_arena_printf(in->arena, "%s/run/%s", folder, name),
                          .find = ru_arena_printf(in->arena, "%s/agents", folder),
                          .slots = n.slots,
                          .threads = n.threads,
                          .listen = c.workers,
                          .leaves =
                              ru_cmd_flag(in, "leaves") || n.notice != RUI_NOTICE_NONE || n.leaves,
                          .grace_ns = n.grace_ns,
                          .own_accounts = c.accounts == 0,
                          .limits = {.cpu_quota_ns = (int64_t)(n.cpu * CPU_PERIOD_NS),
                                     .cpu_period_ns = CPU_PERIOD_NS,
                                     .memory_bytes = n.memory_bytes,
                                     .pids = n.pids}};
    RU_TRY(rui_cluster_key(folder, "agent", in->arena, &o.key, err));
    o.bursts = rui_cluster_bursts_of(&c, name, in->arena, &o.n_bursts);
    if (o.folder == NULL || o.find == NULL || o.bursts == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an agent");
    }
    rui_notice *notice = NULL;
    if (n.notice != RUI_NOTICE_NONE) {
        RU_TRY(rui_notice_open(n.notice, n.notice_url, in->arena, &notice, err));
    }
    ru_status st = ru_agent_run(&o, in->arena, err);
    rui_notice_close(notice);
    return st;
}

/* -- jobs ----------------------------------------------------------------------------------------
 */

/* The job with its paths resolved, as text. `varies`: workers come one after the other. */
static ru_status resolve(ru_cmd_in *in, bool varies, const char **name, const char **yaml,
                         ru_err *err)
{
    uint32_t n;
    const char *const *sets = ru_cmd_texts(in, "set", &n);
    if (ru_app_job_is(in->args[0])) {
        ru_app_job_file file;
        RU_TRY(ru_app_job_load(in->args[0], sets, n, in->arena, &file, err));
        *name = file.job->name;
        *yaml = file.yaml;
        return RU_OK;
    }
    ru_job job;
    ru_conf *conf;
    ru_text text = ru_text_arena(in->arena);
    RU_TRY(ru_job_load(in->args[0], sets, n, in->arena, &job, &conf, err));
    bool placed = job.train.parallel == RU_PARALLEL_PLACED;
    if (varies && (placed || job.train.parallel == RU_PARALLEL_PIPELINE)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s: train.parallel is %s, whose workers start together, and a cluster "
                       "starts them one after the other; set it to data, or use `rubato train`",
                       ru_conf_origin(conf, "train.parallel"), placed ? "placed" : "pipeline");
    }
    ru_job_dump(&job, conf, &text);
    *name = job.name;
    *yaml = text.p;
    return text.cut ? RU_FAIL(err, RU_E_MEM, "no memory for the job") : RU_OK;
}

static void put_range(ru_json *j, uint32_t min, uint32_t max)
{
    ru_json_i64(j, "min", min);
    ru_json_i64(j, "max", max);
}

static ru_status run_submit(ru_cmd_in *in, ru_err *err)
{
    const char *name, *yaml;
    uint32_t min, max;
    RU_TRY(ru_hosts_range(ru_str_c(ru_cmd_text(in, "workers")), "-w", &min, &max, err));
    RU_TRY(resolve(in, true, &name, &yaml, err));
    ru_text body = ru_text_arena(in->arena);
    ru_json j = ru_json_into(&body);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "name", name);
    put_range(&j, min, max);
    ru_json_i64(&j, "request", ru_cmd_i64(in, "request"));
    ru_json_i64(&j, "priority", ru_cmd_i64(in, "priority"));
    ru_json_str(&j, "yaml", yaml);
    ru_json_close(&j);
    return show(in, "/jobs", body.p, false, err);
}

/* A word for a shell. */
static void put_word(ru_text *t, const char *word)
{
    ru_text_put(t, " '");
    for (; *word != 0; word++) {
        if (*word == '\'') {
            ru_text_put(t, "'\\''");
        } else {
            ru_text_char(t, *word, 1);
        }
    }
    ru_text_put(t, "'");
}

/* A name for lines of #SBATCH, which end at a blank, and in which % and \ mean more. */
static const char *plain_name(ru_arena *arena, const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char *out = ru_arena_str(arena, name);
    for (char *c = out; c != NULL && *c != 0; c++) {
        *c = strchr(plain, *c) != NULL ? *c : '_';
    }
    return out;
}

/* The job as one of Slurm alone, with a fixed number of workers: each a task of one step. */
static ru_status run_slurm_script(ru_cmd_in *in, ru_err *err)
{
    const char *name, *yaml, *exe = ru_process_beside(in->arena, "rubato", "tool");
    uint32_t min, max, n;
    const char *const *sets = ru_cmd_texts(in, "set", &n);
    int64_t threads = ru_cmd_i64(in, "threads");
    RU_TRY(ru_hosts_range(ru_str_c(ru_cmd_text(in, "workers")), "-w", &min, &max, err));
    if (min != max) {
        return RU_FAIL(err, RU_E_USAGE,
                       "-w %u:%u: Slurm alone gives a job a fixed number of workers; write -w %u",
                       min, max, max);
    }
    RU_TRY(resolve(in, false, &name, &yaml, err));
    name = plain_name(in->arena, name);
    if (name == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a script");
    }
    char *path = realpath(in->args[0], NULL);
    ru_text t = ru_text_arena(in->arena);
    ru_text_putf(&t, "#!/bin/sh\n#SBATCH --job-name=%s\n#SBATCH --ntasks=%u\n", name, min);
    ru_text_putf(&t, "#SBATCH --cpus-per-task=%lld\n#SBATCH --requeue\n", (long long)threads);
    ru_text_putf(&t, "#SBATCH --open-mode=append\n#SBATCH --output=%s-%%j.log\n", name);
    ru_text_put(&t, "# One worker a task. Requeued, the job goes on from its newest checkpoint.\n");
    ru_text_put(&t, "out=\"$PWD/run-$SLURM_JOB_ID\"\nresume=\n");
    ru_text_put(&t, "[ ! -d \"$out/checkpoints\" ] || resume=--resume\nexec srun");
    ru_text_putf(&t, " --ntasks=%u --cpus-per-task=%lld", min, (long long)threads);
    put_word(&t, exe != NULL ? exe : "rubato");
    ru_text_put(&t, " train");
    put_word(&t, path != NULL ? path : in->args[0]);
    for (uint32_t k = 0; k < n; k++) {
        ru_text_put(&t, " --set");
        put_word(&t, sets[k]);
    }
    ru_text_put(&t, " --out \"$out\" $resume\n");
    free(path);
    if (t.cut) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a script");
    }
    (void)fputs(t.p, stdout);
    return RU_OK;
}

static ru_status run_scale(ru_cmd_in *in, ru_err *err)
{
    uint32_t min, max;
    RU_TRY(ru_hosts_range(ru_str_c(in->args[1]), "scale", &min, &max, err));
    ru_text body = ru_text_arena(in->arena);
    ru_json j = ru_json_into(&body);
    ru_json_open(&j, NULL, '{');
    put_range(&j, min, max);
    ru_json_close(&j);
    return show(in, ru_arena_printf(in->arena, "/jobs/%s/scale", in->args[0]), body.p, false, err);
}

static ru_status run_cancel(ru_cmd_in *in, ru_err *err)
{
    return show(in, ru_arena_printf(in->arena, "/jobs/%s/cancel", in->args[0]), "", false, err);
}

static ru_status run_user(ru_cmd_in *in, ru_err *err)
{
    if (strcmp(in->args[0], "add") != 0) {
        return RU_FAIL(err, RU_E_USAGE, "rubato cluster user %s: expected: user add NAME",
                       in->args[0]);
    }
    ru_text body = ru_text_arena(in->arena);
    ru_json j = ru_json_into(&body);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "name", in->args[1]);
    ru_json_i64(&j, "slots", ru_cmd_i64(in, "slots"));
    ru_json_i64(&j, "weight", ru_cmd_i64(in, "weight"));
    ru_json_close(&j);
    return show(in, "/users", body.p, false, err);
}

/* A service with credits. */
static ru_status run_burst(ru_cmd_in *in, ru_err *err)
{
    ru_burst_options o;
    RU_TRY(rui_burst_load(in->args[0], in->arena, &o, err));
    o.patience_ns = ru_cmd_i64(in, "for");
    return ru_cmd_flag(in, "guard") ? ru_burst_guard(&o, err) : ru_burst_run(&o, in->arena, err);
}

/* A service on burstable machines that come and go. */
static ru_status run_fleet(ru_cmd_in *in, ru_err *err)
{
    ru_fleet_run_options o;
    RU_TRY(rui_fleet_load(in->args[0], in->arena, &o, err));
    o.patience_ns = ru_cmd_i64(in, "for");
    return ru_fleet_run(&o, in->arena, err);
}

static ru_status explain_service(ru_cmd_in *in, ru_err *err)
{
    ru_burst_options o;
    ru_text t = ru_text_arena(in->arena);
    RU_TRY(rui_burst_load(in->args[0], in->arena, &o, err));
    RU_TRY(ru_burst_explain(o.folder, EXPLAINED, in->arena, &t, err));
    (void)fputs(t.p, stdout);
    return RU_OK;
}

static ru_status run_explain(ru_cmd_in *in, ru_err *err)
{
    int64_t job;
    if (!ru_str_i64(ru_str_c(in->args[0]), &job) && ru_path_is_file(in->args[0])) {
        return explain_service(in, err);
    }
    return show(in, ru_arena_printf(in->arena, "/jobs/%s/explain", in->args[0]), NULL, false, err);
}

static ru_status run_ps(ru_cmd_in *in, ru_err *err)
{
    return show(in, "/jobs", NULL, ru_cmd_flag(in, "json"), err);
}

/* On a terminal again and again, until Ctrl-C. */
static ru_status run_top(ru_cmd_in *in, ru_err *err)
{
    bool json = ru_cmd_flag(in, "json"), again = !json && ru_self_columns(1) > 0;
    do {
        if (again) {
            (void)fputs("\033[H\033[2J", stdout);
        }
        RU_TRY(show(in, "/top", NULL, json, err));
        (void)fflush(stdout);
        if (again) {
            ru_clock_pause(2 * follow_ns);
        }
    } while (again);
    return RU_OK;
}

static ru_status run_nodes(ru_cmd_in *in, ru_err *err)
{
    return show(in, "/nodes", NULL, ru_cmd_flag(in, "json"), err);
}

static ru_status run_audit(ru_cmd_in *in, ru_err *err)
{
    return show(in, "/audit", NULL, ru_cmd_flag(in, "json"), err);
}

static ru_status run_drain(ru_cmd_in *in, ru_err *err)
{
    return show(in,
                ru_arena_printf(in->arena, "/nodes/%s/%s", in->args[0],
                                ru_cmd_flag(in, "resume") ? "resume" : "drain"),
                "", false, err);
}

/* Does the job still run? Its row of `ps` says so. */
static ru_status lives(const char *job, const char *folder, ru_arena *arena, bool *yes, ru_err *err)
{
    const rui_cluster_ask a = {.folder = folder, .path = "/jobs", .json = true};
    char *text;
    int64_t n;
    RU_TRY(rui_cluster_asked(&a, arena, &text, &n, err));
    const char *key = ru_arena_printf(arena, "\"job\":%s,", job);
    const char *row = key != NULL ? strstr(text, key) : NULL;
    const char *state = row != NULL ? strstr(row, "\"state\":\"") : NULL;
    *yes =
        state != NULL && (strncmp(state + 9, "waits", 5) == 0 ||
                          strncmp(state + 9, "runs", 4) == 0 || strncmp(state + 9, "ends", 4) == 0);
    return RU_OK;
}

static ru_status run_logs(ru_cmd_in *in, ru_err *err)
{
    rui_cluster_ask a = {0};
    int64_t at = 0, n = 0;
    bool follow = ru_cmd_flag(in, "follow"), more = true;
    RU_TRY(folder_of(in, &a.folder, err));
    while (more) {
        char *text = NULL;
        bool alive = false;
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_status st = follow ? lives(in->args[0], a.folder, &arena, &alive, err) : RU_OK;
        a.path = ru_arena_printf(&arena, "/jobs/%s/log/%lld", in->args[0], (long long)at);
        st = st != RU_OK      ? st
             : a.path != NULL ? rui_cluster_asked(&a, &arena, &text, &n, err)
                              : RU_FAIL(err, RU_E_MEM, "no memory for a log");
        if (st == RU_OK) {
            (void)fwrite(text, 1, (size_t)n, stdout);
            (void)fflush(stdout);
            at += n;
        }
        ru_arena_fini(&arena);
        RU_TRY(st);
        more = (n > 0 || alive) && ferror(stdout) == 0;
        if (n == 0 && more) {
            ru_clock_pause(follow_ns);
        }
    }
    return RU_OK;
}

/* -- the table -----------------------------------------------------------------------------------
 */

static const ru_opt cluster_opts[] = {OPT_CLUSTER};
static const ru_opt shown_opts[] = {OPT_CLUSTER, OPT_JSON};
static const ru_opt down_opts[] = {OPT_CLUSTER, RU_OPT(TIME, "timeout", "TIME",
                                                       "how long to wait for checkpoints",
                                                       .def = "120s", RU_IN(1e9, 1e14))};
#define OPT_HELD \
    RU_OPT(FLAG, "held", NULL, "begin when a byte comes on standard input, and not at all without")
static const ru_opt scheduler_opts[] = {OPT_CLUSTER, OPT_HELD};
static const ru_opt agent_opts[] = {
    OPT_CLUSTER,
    OPT_HELD,
    RU_OPT(TEXT, "node", "NAME", "name of an agent's node in CLUSTER.yaml"),
    RU_OPT(FLAG, "leaves", NULL,
           "a stop signal is a notice: the workers leave, then the agent ends"),
    RU_OPT(FLAG, "start", NULL, "start the agent in the background unless it runs, and end"),
    RU_OPT(FLAG, "stop", NULL, "stop the agent that runs, and end")};
static const ru_opt submit_opts[] = {
    OPT_CLUSTER,
    RU_OPT(TEXT, "workers", "N", "number of workers, or MIN:MAX for a job that grows and shrinks",
           .letter = 'w', .def = "1"),
    RU_OPT(I64, "request", "N",
           "workers that it has, or none, where the cluster's method gives what a job requests; 0: "
           "the most",
           .def = "0", RU_IN(0, 1024)),
    RU_OPT(I64, "priority", "N", "jobs of higher priority take their slots first", .def = "0",
           RU_IN(-1000, 1000)),
    RU_OPT(TEXTS, "set", "KEY=VALUE", "set a key of the job", .letter = 's'),
};
static const ru_opt slurm_opts[] = {
    RU_OPT(TEXT, "workers", "N", "number of workers", .letter = 'w', .def = "1"),
    RU_OPT(I64, "threads", "N", "cores of each worker", .def = "1", RU_IN(1, 1024)),
    RU_OPT(TEXTS, "set", "KEY=VALUE", "set a key of the job", .letter = 's'),
};
static const ru_opt logs_opts[] = {
    OPT_CLUSTER,
    RU_OPT(FLAG, "follow", NULL, "print what is added until the job ends", .letter = 'f')};
static const ru_opt user_opts[] = {
    OPT_CLUSTER,
    RU_OPT(I64, "slots", "N", "slots that all its jobs may have at one time; 0: no limit",
           .def = "0", RU_IN(0, 100000)),
    RU_OPT(I64, "weight", "N",
           "its share of contended slots beside other users under pollux; 0: none is given, which "
           "counts as 1 as soon as another user has one",
           .def = "0", RU_IN(0, RU_BOOK_WEIGHT_MAX)),
};
static const ru_opt drain_opts[] = {OPT_CLUSTER,
                                    RU_OPT(FLAG, "resume", NULL, "the node takes work again")};

#define OPT_FOR                                                                         \
    RU_OPT(TIME, "for", "TIME", "end after so long; 0s: at a stop signal", .def = "0s", \
           RU_IN(0, 1e16))
static const ru_opt fleet_opts[] = {OPT_FOR};
static const ru_opt burst_opts[] = {
    OPT_FOR,
    RU_OPT(FLAG, "guard", NULL,
           "wait for the end of standard input, then take the quota away (what `burst` starts)")};

#define EXITS                                                                       \
    "2 the cluster cannot do what was asked|66 there is no such job, node or file|" \
    "69 the cluster is not up|75 it takes no more jobs|"                            \
    "77 the key is not one of the cluster, or may not do this|78 the file is not valid"

#define SUB(name_, summary_, args_, n_, opts_, run_)                                               \
    {                                                                                              \
        .name = (name_), .summary = (summary_), .args = (args_), .arg_min = (n_), .arg_max = (n_), \
        .opts = (opts_), .n_opts = RU_ARRAY_LEN(opts_), .run = (run_), .exits = EXITS              \
    }

static const ru_cmd subs[] = {
    SUB("up", "start scheduler and agents that do not run yet", "CLUSTER.yaml", 1, cluster_opts,
        run_up),
    SUB("submit", "hand in a job; prints its number once it is durable", "JOB.yaml", 1, submit_opts,
        run_submit),
    SUB("ps", "list the jobs", NULL, 0, shown_opts, run_ps),
    SUB("top", "show steps, loss and speed of the jobs that run", NULL, 0, shown_opts, run_top),
    SUB("logs", "print the log of a job", "JOB", 1, logs_opts, run_logs),
    SUB("explain", "say why a job waits, or why it has what it has; steps predicted and measured",
        "JOB|SERVICE|SERVICE.yaml", 1, cluster_opts, run_explain),
    SUB("scale", "let a job have N, or MIN:MAX, workers from now on", "JOB N", 2, cluster_opts,
        run_scale),
    SUB("cancel", "end a job; its checkpoint stays", "JOB", 1, cluster_opts, run_cancel),
    SUB("nodes", "list the nodes", NULL, 0, shown_opts, run_nodes),
    SUB("drain", "move the jobs of a node elsewhere and give it no more", "NODE", 1, drain_opts,
        run_drain),
    SUB("user", "add a user, or give one another key, slots and weight; prints the key", "add NAME",
        2, user_opts, run_user),
    SUB("slurm-script", "print a script for sbatch that trains the job on Slurm alone", "JOB.yaml",
        1, slurm_opts, run_slurm_script),
    SUB("audit", "list everything that happened", NULL, 0, shown_opts, run_audit),
    SUB("down", "end all jobs with checkpoints, then the cluster; `up` continues them", NULL, 0,
        down_opts, run_down),
    SUB("burst", "let a service run as fast as its credits allow; explain says why", "SERVICE.yaml",
        1, burst_opts, run_burst),
    SUB("fleet", "serve on as many burstable machines as requests need, planned by the hour",
        "FLEET.yaml", 1, fleet_opts, run_fleet),
    SUB("scheduler",
        "be a scheduler of a cluster (what `up` starts); where another one leads, wait behind it",
        NULL, 0, scheduler_opts, run_scheduler),
    SUB("agent", "be the agent of a node (what `up` starts)", NULL, 0, agent_opts, run_agent),
};

static const ru_example examples[] = {
    {"rubato cluster up cluster.yaml", "start the cluster of this file"},
    {"rubato cluster submit job.yaml -w 1:8", "hand in a job that may have 1 to 8 workers"},
    {"rubato cluster ps", "list the jobs"},
    {"rubato cluster scale 3 2", "let job 3 have two workers from now on"},
    {"rubato cluster user add alice --slots 4 --weight 2 >alice.key",
     "make a key for alice (RUBATO_CLUSTER_KEY names its file)"},
    {"rubato cluster logs -f 3", "follow the log of job 3"},
};

const ru_cmd rui_cmd_cluster = {
    .name = "cluster",
    .summary = "share machines between jobs that grow and shrink while they run",
    .about = "A scheduler gives the slots of its nodes to jobs, which are ordinary runs with "
             "several workers. A job grows and shrinks while it trains; a worker that stays is "
             "never restarted. Every event is on the disk before it is answered or acted on. "
             "Scheduler and agents may be killed at any time: jobs go on, and what starts again "
             "finds them.",
    .examples = examples,
    .n_examples = RU_ARRAY_LEN(examples),
    .exits = EXITS,
    .subs = subs,
    .n_subs = RU_ARRAY_LEN(subs),
};
