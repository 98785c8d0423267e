#include "tool/cluster/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cluster/book.h"
#include "cluster/journal.h"
#include "cluster/slurm.h"
#include "env/clock.h"
#include "env/file/claim.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "launch/launch.h"
#include "tool/cluster/markets.h"
#include "tool/cluster/nodes.h"
#include "web/fetch.h"

static const int64_t up_patience_ns = 20 * INT64_C(1000000000), look_ns = 50000000;

/* -- the file ------------------------------------------------------------------------------------
 */

static const ru_conf_field node_fields[] = {
    RU_ROW(TEXT, rui_cluster_node, name, "",
           "name of the node: letters, digits, - and _; empty: the first part of its host"),
    RU_ROW(TEXT, rui_cluster_node, host, "",
           "[USER@]HOST where its agent runs, over ssh; empty: this machine"),
    RU_ROW(U32, rui_cluster_node, slots, "1", "workers at one time",
           RU_IN(1, RU_ALLOC_DEVICES_MAX)),
    RU_ROW(U32, rui_cluster_node, threads, "1", "compute threads of a worker", RU_IN(1, 1024)),
    RU_ROW(F64, rui_cluster_node, cpu, "0", "cores that a worker may use at most; 0: no limit",
           RU_IN(0, 1024)),
    RU_ROW_AS("memory", SIZE, rui_cluster_node, memory_bytes, "0B",
              "memory that a worker may use at most; 0B: no limit", RU_IN(0, 1e15)),
    RU_ROW(U32, rui_cluster_node, pids, "0",
           "processes and threads that a worker may have at most; 0: no limit", RU_IN(0, 1000000)),
    RU_ROW(CHOICE, rui_cluster_node, notice, "none",
           "whose metadata tell that the node is taken away", .choices = "none|aws|gcp"),
    RU_ROW(TEXT, rui_cluster_node, notice_url, "http://169.254.169.254", "where they are asked"),
};
static const ru_conf_field slurm_fields[] = {
    RU_ROW_AS("nodes", U32, rui_cluster_slurm, seats, "0",
              "most nodes that Slurm gives at one time; 0: none", RU_IN(0, RU_SLURM_SEATS_MAX)),
    RU_ROW_AS("nodes_min", U32, rui_cluster_slurm, seats_min, "0",
              "nodes that are asked for even if no job needs them", RU_IN(0, RU_SLURM_SEATS_MAX)),
    RU_ROW(TEXT, rui_cluster_slurm, partition, "", "partition; empty: Slurm's own choice"),
    RU_ROW(TEXT_LIST, rui_cluster_slurm, options, "[]", "more options of sbatch"),
    RU_ROW_AS("idle", TIME, rui_cluster_slurm, idle_ns, "60s",
              "a node that no job needs is given back after it", RU_IN(0, 1e14)),
    RU_ROW_AS("slots", U32, rui_cluster_slurm, node.slots, "1", "workers of a node at one time",
              RU_IN(1, RU_ALLOC_DEVICES_MAX)),
    RU_ROW_AS("threads", U32, rui_cluster_slurm, node.threads, "1", "compute threads of a worker",
              RU_IN(1, 1024)),
    RU_ROW_AS("cpu", F64, rui_cluster_slurm, node.cpu, "0",
              "cores that a worker may use at most; 0: what Slurm says", RU_IN(0, 1024)),
    RU_ROW_AS("memory", SIZE, rui_cluster_slurm, node.memory_bytes, "0B",
              "memory that a worker may use at most; 0B: what Slurm says", RU_IN(0, 1e15)),
};
static const ru_conf_table slurm_table =
    RU_TABLE("slurm", rui_cluster_slurm, slurm_fields, "nodes that are jobs of Slurm");
static const ru_conf_table node_table =
    RU_TABLE("node", rui_cluster_node, node_fields, "an agent and its slots");

static const ru_conf_field alloc_fields[] = {
    RU_ROW(CHOICE, rui_cluster_alloc, method, "pollux",
           "who decides how many slots a job has: pollux by measured goodput; others are baselines",
           .choices = RU_ALLOC_METHOD_NAMES),
    RU_ROW_AS("demote", F64, rui_cluster_alloc, demote_s, "57600",
              "tiresias: service [slot-seconds] after which a job moves to the lower queue",
              RU_IN(1e-3, 1e12)),
    RU_ROW(CHOICE, rui_cluster_alloc, resize, "in_place",
           "when the slots of a job that runs change: in_place: it grows and shrinks while it "
           "trains; restart: it stops with a checkpoint and starts from it",
           .choices = "in_place|restart"),
};
static const ru_conf_table alloc_table =
    RU_TABLE("alloc", rui_cluster_alloc, alloc_fields, "how slots are given to jobs");

static ru_status check(const void *section, ru_err *err)
{
    const rui_cluster *c = section;
    return c->nodes.n > 0 || c->slurm.seats > 0 || c->markets.n > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "a cluster needs at least one node");
}

static const ru_conf_field cluster_fields[] = {
    RU_ROW(TEXT, rui_cluster, folder, "cluster",
           "folder of keys, logs, runs and the journal, as seen from this file"),
    RU_ROW(
        TEXT, rui_cluster, journal, "",
        "where all events are kept: a path, as seen from this file, or the address of a database, "
        "postgres://USER@HOST/NAME; empty: FOLDER/journal"),
    RU_ROW(TEXT, rui_cluster, listen, "127.0.0.1:0",
           "where commands reach the scheduler; port 0: any"),
    RU_ROW(TEXT, rui_cluster, agents, "127.0.0.1:0", "where agents reach it"),
    RU_ROW(TEXT, rui_cluster, workers, "127.0.0.1:0", "where workers reach each other"),
    RU_ROW(CHOICE, rui_cluster, accounts, "own",
           "own: the workers of a user run under the account of the same name, which needs root; "
           "shared: all run as who started the cluster",
           .choices = "own|shared"),
    RU_ROW(SECTIONS, rui_cluster, nodes, "[]", "nodes", .table = &node_table),
    RU_ROW(SECTIONS, rui_cluster, bursts, "[]", "services with processor credits that agents pace",
           .table = &rui_cluster_burst_table),
    RU_ROW(SECTION, rui_cluster, slurm, NULL, "nodes that are jobs of Slurm",
           .table = &slurm_table),
    RU_ROW(SECTIONS, rui_cluster, markets, "[]", "markets that rent nodes by the hour",
           .table = &rui_cluster_market_table),
    RU_ROW(SECTION, rui_cluster, market, NULL, "what all markets share",
           .table = &rui_cluster_trade_table),
    RU_ROW(SECTION, rui_cluster, alloc, NULL, "how slots are given to jobs", .table = &alloc_table),
    RU_ROW_AS("silent", TIME, rui_cluster, silent_ns, "30s",
              "a node that says nothing for so long is given up", RU_IN(1e9, 1e13)),
    RU_ROW_AS("round", TIME, rui_cluster, round_ns, "30s", "longest time between two plans",
              RU_IN(1e9, 1e13)),
};
static const ru_conf_table cluster_table =
    RU_TABLE("cluster", rui_cluster, cluster_fields, "a cluster", .check = check);

static ru_status no_memory(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for a cluster");
}

/* FOLDER/a/b */
static const char *path_of(ru_arena *arena, const char *folder, const char *a, const char *b)
{
    const char *in = ru_path_join(arena, folder, a);
    return in != NULL && b != NULL ? ru_path_join(arena, in, b) : in;
}

static ru_status read_conf(const char *path, ru_arena *arena, rui_cluster *out, ru_err *err)
{
    char *text;
    int64_t n;
    ru_conf *c;
    RU_TRY(ru_file_read(path, 1 << 20, arena, &text, &n, err));
    RU_TRY(ru_conf_new(&cluster_table, arena, &c, err));
    RU_TRY(ru_conf_add_file(c, path, text, n, err));
    RU_TRY(ru_conf_apply(c, out, err));
    RU_TRY(ru_journal_check(out->journal, err));
    RU_TRY(rui_cluster_markets_check(out, err));
    RU_TRY(rui_cluster_nodes_check(out, arena, err));
    return rui_cluster_bursts_check(out, err);
}

/* As seen from the folder `from`. */
static const char *placed(ru_arena *arena, const char *from, const char *path)
{
    return path[0] == '/' ? path : ru_path_join(arena, from, path);
}

ru_status rui_cluster_load(const char *path, ru_arena *arena, rui_cluster *out, ru_err *err)
{
    RU_TRY(read_conf(path, arena, out, err));
    char *real = realpath(path, NULL);
    char *slash = real != NULL ? strrchr(real, '/') : NULL;
    ru_status st = RU_OK;
    if (slash != NULL) {
        *slash = 0;
        out->folder = placed(arena, real, out->folder);
        if (out->journal[0] != 0 && !ru_journal_is_database(out->journal)) {
            out->journal = placed(arena, real, out->journal);
        }
        st = rui_cluster_markets_place(out, real, arena, err);
        st = st == RU_OK ? rui_cluster_bursts_place(out, real, arena, err) : st;
    }
    free(real);
    return st != RU_OK || (out->folder != NULL && out->journal != NULL) ? st : no_memory(err);
}

ru_status rui_cluster_of(const char *folder, ru_arena *arena, rui_cluster *out, ru_err *err)
{
    const char *path = path_of(arena, folder, "cluster.yaml", NULL);
    return path != NULL ? read_conf(path, arena, out, err) : no_memory(err);
}

/* Where the folder of the last `up` is remembered; NULL: nowhere. */
static const char *pointer(ru_arena *arena)
{
    const char *base = ru_conf_env("XDG_CONFIG_HOME"), *home = ru_conf_env("HOME");
    return base != NULL && base[0] == '/'   ? ru_path_join(arena, base, "rubato/cluster")
           : home != NULL && home[0] == '/' ? ru_path_join(arena, home, ".config/rubato/cluster")
                                            : NULL;
}

ru_status rui_cluster_folder(const char *given, ru_arena *arena, const char **folder, ru_err *err)
{
    const char *path = pointer(arena);
    char *text;
    int64_t n;
    *folder = given != NULL ? given : ru_conf_env("RUBATO_CLUSTER");
    if (*folder == NULL && path != NULL && ru_path_is_file(path)) {
        RU_TRY(ru_file_read(path, 4096, arena, &text, &n, err));
        text[strcspn(text, "\n")] = 0;
        *folder = text;
    }
    return *folder != NULL && ru_path_is_dir(*folder)
               ? RU_OK
               : RU_FAIL(
                     err, RU_E_USAGE,
                     "no cluster is known here%s%s: start one (rubato cluster up CLUSTER.yaml), "
                     "or name its folder with --cluster or RUBATO_CLUSTER",
                     *folder != NULL ? ", there is no folder " : "",
                     *folder != NULL ? *folder : "");
}

ru_status rui_cluster_key(const char *folder, const char *name, ru_arena *arena, const char **key,
                          ru_err *err)
{
    const char *path = path_of(arena, folder, "keys", name);
    return path != NULL ? ru_token_get(path, arena, key, err) : no_memory(err);
}

/* -- processes -----------------------------------------------------------------------------------
 */

typedef struct running {
    int64_t pid;
    const char *mark;
} running;

static const ru_conf_field running_fields[] = {
    RU_ROW(I64, running, pid, NULL, "process"),
    RU_ROW(TEXT, running, mark, NULL, "its mark"),
};
static const ru_conf_table running_table = RU_TABLE("process", running, running_fields, NULL);

static const char *pid_path(ru_arena *arena, const char *folder, const char *name)
{
    return ru_arena_printf(arena, "%s/run/%s.pid", folder, name);
}

/* false: it does not run. */
static bool find(const char *folder, const char *name, ru_arena *arena, running *out)
{
    const char *path = pid_path(arena, folder, name);
    char *text;
    int64_t n;
    ru_conf *c;
    ru_err err;
    return path != NULL && ru_path_is_file(path) &&
           ru_file_read(path, 4096, arena, &text, &n, &err) == RU_OK &&
           ru_conf_new(&running_table, arena, &c, &err) == RU_OK &&
           ru_conf_add_json(c, path, text, n, &err) == RU_OK &&
           ru_conf_apply(c, out, &err) == RU_OK && ru_process_signal(out->pid, out->mark, 0);
}

/* `rubato cluster WHAT` in a session of its own. It begins when it is noted: if this process ends
 * before, it ends, too, and nobody has to look for it. */
static ru_status start(const char *folder, const char *what, const char *name, ru_arena *arena,
                       ru_err *err)
{
    const char *log = path_of(arena, folder, "log", name);
    const char *path = pid_path(arena, folder, name);
    const char *argv[] = {"/proc/self/exe", "cluster", what, "--held", "--cluster",
                          folder,           "--node",  name, NULL};
    /* Workers see what an agent sees. */
    bool agent = strcmp(what, "agent") == 0;
    const char *unset[] = {"RUBATO_TOKEN", agent ? "PGPASSWORD" : NULL, NULL};
    ru_process *p;
    char mark[RU_PROCESS_MARK_BYTES];
    running now;
    if (log == NULL || path == NULL) {
        return no_memory(err);
    }
    if (find(folder, name, arena, &now)) {
        return RU_OK;
    }
    argv[6] = agent ? "--node" : NULL;
    const ru_process_options po = {.argv = argv, .unset = unset, .outlive = log, .pipe_in = true};
    RU_TRY(ru_process_start(&po, &p, err));
    int64_t pid = ru_process_id(p);
    mark[0] = 0;
    (void)ru_process_mark(pid, mark);
    const char *line =
        ru_arena_printf(arena, "{\"pid\":%lld,\"mark\":\"%s\"}\n", (long long)pid, mark);
    ru_status st =
        line != NULL ? ru_file_own(path, line, (int64_t)strlen(line), err) : no_memory(err);
    st = st == RU_OK ? ru_process_write(p, "\n", 1, err) : st;
    ru_process_leave(p);
    return st;
}

static ru_status make_key(const char *folder, const char *name, ru_arena *arena, ru_err *err)
{
    const char *path = path_of(arena, folder, "keys", name);
    char token[2 * RU_TOKEN_BYTES + 1];
    if (path == NULL) {
        return no_memory(err);
    }
    if (ru_path_is_file(path)) {
        return RU_OK;
    }
    ru_token_make(token);
    return ru_file_secret(path, token, (int64_t)strlen(token), err);
}

static ru_status make_folder(const rui_cluster *c, ru_arena *arena, ru_err *err)
{
    static const char *const folders[] = {"keys", "run", "log", "jobs"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(folders); k++) {
        const char *path = path_of(arena, c->folder, folders[k], NULL);
        RU_TRY(path != NULL ? ru_dir_make(path, err) : no_memory(err));
    }
    RU_TRY(make_key(c->folder, "admin", arena, err));
    RU_TRY(make_key(c->folder, "agent", arena, err));
    ru_text yaml = ru_text_arena(arena);
    ru_conf_dump(&cluster_table, c, NULL, &yaml);
    const char *path = path_of(arena, c->folder, "cluster.yaml", NULL);
    return path != NULL && !yaml.cut ? ru_file_own(path, yaml.p, yaml.n, err) : no_memory(err);
}

/* The last line of a log, for people. */
static const char *last_line(const char *folder, const char *name, ru_arena *arena)
{
    const char *path = path_of(arena, folder, "log", name);
    char *text;
    int64_t n;
    ru_err err;
    if (path == NULL || ru_file_read(path, 16 << 20, arena, &text, &n, &err) != RU_OK) {
        return "";
    }
    while (n > 0 && text[n - 1] == '\n') {
        text[--n] = 0;
    }
    const char *line = strrchr(text, '\n');
    return line != NULL ? line + 1 : text;
}

static uint32_t count(const char *text, const char *word)
{
    uint32_t n = 0;
    for (; (text = strstr(text, word)) != NULL; text++) {
        n++;
    }
    return n;
}

/* What ran before: [0] the scheduler, [1 + k] the agent of node k of this machine. */
static bool *running_of(const rui_cluster *c, ru_arena *arena)
{
    bool *ran = RU_NEW(arena, bool, c->nodes.n + 1);
    running r;
    for (uint32_t k = 0; ran != NULL && k <= c->nodes.n; k++) {
        const char *name = k == 0 ? "scheduler" : c->nodes.at[k - 1].name;
        ran[k] = (k == 0 || c->nodes.at[k - 1].host[0] == 0) && find(c->folder, name, arena, &r);
    }
    return ran;
}

/* *ended: a process did that ran before. */
static ru_status wait_for(const rui_cluster *c, const bool *ran, ru_arena *arena, bool *ended,
                          ru_err *err)
{
    int64_t until = ru_clock_now().ns + up_patience_ns;
    const rui_cluster_ask ask = {.folder = c->folder, .path = "/nodes", .json = true};
    for (;;) {
        running r;
        char *text;
        int64_t n;
        ru_err why = {0};
        if (!find(c->folder, "scheduler", arena, &r)) {
            *ended = ran[0];
            return RU_FAIL(err, RU_E_PEER, "the scheduler ended: %s",
                           last_line(c->folder, "scheduler", arena));
        }
        uint32_t up = 0;
        bool answers = rui_cluster_asked(&ask, arena, &text, &n, &why) == RU_OK;
        if (answers) {
            up = count(text, "\"state\":\"up\"") + count(text, "\"state\":\"drained\"");
        }
        if (answers && up >= c->nodes.n) {
            return RU_OK;
        }
        for (uint32_t k = 0; k < c->nodes.n; k++) {
            if (c->nodes.at[k].host[0] == 0 && !find(c->folder, c->nodes.at[k].name, arena, &r)) {
                *ended = ran[1 + k];
                return RU_FAIL(err, RU_E_PEER, "the agent %s ended: %s", c->nodes.at[k].name,
                               last_line(c->folder, c->nodes.at[k].name, arena));
            }
        }
        if (ru_clock_now().ns > until) {
            return RU_FAIL(err, RU_E_PEER, "%u of %u nodes are up; see the logs in %s/log", up,
                           c->nodes.n, c->folder);
        }
        ru_clock_pause(look_ns);
    }
}

static ru_status wait_gone(const char *folder, const char *name, const char *sentence,
                           int64_t until, ru_arena *arena, ru_err *err)
{
    running r;
    while (find(folder, name, arena, &r)) {
        if (ru_clock_now().ns > until) {
            return RU_FAIL(err, RU_E_AGAIN, "%s", sentence);
        }
        ru_clock_pause(look_ns);
    }
    return RU_OK;
}

static void stop(const char *folder, const char *name, ru_arena *arena)
{
    running r;
    ru_err ignored;
    if (find(folder, name, arena, &r)) {
        (void)ru_process_signal(r.pid, r.mark, SIGTERM);
        (void)!wait_gone(folder, name, "", ru_clock_now().ns + up_patience_ns, arena, &ignored);
    }
}

/* A scheduler that ran before goes on, with all agents that came to it. One that this command has
 * started ends, and so do the agents that it has started. Their workers, if any, outlive them. */
static ru_status give_up(const rui_cluster *c, const bool *ran, bool *came, ru_status st,
                         ru_arena *arena, ru_err *err)
{
    running r;
    ru_err other;
    bool began = false;
    if (!ran[0]) {
        began = find(c->folder, "scheduler", arena, &r);
        stop(c->folder, "scheduler", arena);
    }
    if (find(c->folder, "scheduler", arena, &r)) {
        return st;
    }
    for (uint32_t k = 0; k < c->nodes.n; k++) {
        came[k] = came[k] && !ran[1 + k];
        began = began || came[k];
    }
    (void)!rui_cluster_nodes_do(c, true, came, arena, &other);
    other = *err;
    return began ? RU_FAIL(err, st, "%s; what was started here has been ended", other.text) : st;
}

static ru_status start_all(const rui_cluster *c, ru_arena *arena, bool *ended, ru_err *err)
{
    running r;
    const bool *ran = running_of(c, arena);
    bool *came = RU_NEW(arena, bool, c->nodes.n + 1);
    if (ran == NULL || came == NULL) {
        return no_memory(err);
    }
    /* The addresses may be those of another one; of a database's, one elsewhere may lead. */
    if (!ru_journal_is_database(c->journal) && !find(c->folder, "scheduler", arena, &r)) {
        const char *http = path_of(arena, c->folder, "http", NULL);
        if (http != NULL && ru_path_exists(http)) {
            RU_TRY(ru_path_remove(http, err));
        }
    }
    ru_status st = start(c->folder, "scheduler", "scheduler", arena, err);
    memset(came, st == RU_OK, c->nodes.n * sizeof *came);
    st = st == RU_OK ? rui_cluster_nodes_do(c, false, came, arena, err) : st;
    st = st == RU_OK ? wait_for(c, ran, arena, ended, err) : st;
    return st == RU_OK ? RU_OK : give_up(c, ran, came, st, arena, err);
}

static ru_status up(const rui_cluster *c, ru_arena *arena, ru_err *err)
{
    bool ended = false, again = false;
    RU_TRY(make_folder(c, arena, err));
    ru_status st = start_all(c, arena, &ended, err);
    if (ended) { /* one that was killed a moment ago may have looked as if it ran */
        st = start_all(c, arena, &again, err);
    }
    RU_TRY(st);
    const char *path = pointer(arena);
    char *parent = path != NULL ? ru_arena_str(arena, path) : NULL;
    if (parent != NULL) {
        *strrchr(parent, '/') = 0;
        RU_TRY(ru_dir_make(parent, err));
        RU_TRY(ru_file_own(path, c->folder, (int64_t)strlen(c->folder), err));
    }
    return RU_OK;
}

ru_status rui_cluster_up(const rui_cluster *c, ru_arena *arena, ru_err *err)
{
    const char *keys = path_of(arena, c->folder, "keys", NULL);
    RU_TRY(keys != NULL ? ru_dir_make(keys, err) : no_memory(err));
    const ru_claim_options co = {.dir = keys, .alone = true, .wait_ns = 2 * up_patience_ns};
    ru_claim *claim;
    ru_status st = ru_claim_open(&co, &claim, err); /* two would start everything twice */
    if (st != RU_OK) {
        return st == RU_E_AGAIN
                   ? RU_FAIL(err, st, "another rubato cluster up works in %s; wait until it ends",
                             c->folder)
                   : st;
    }
    st = up(c, arena, err);
    ru_claim_close(claim);
    return st;
}

ru_status rui_cluster_down(const char *folder, int64_t patience_ns, ru_arena *arena, ru_err *err)
{
    rui_cluster c;
    char *text;
    int64_t n, until = ru_clock_now().ns + patience_ns;
    const rui_cluster_ask ask = {.folder = folder, .path = "/down", .body = ""};
    running r;
    bool heard = false;
    RU_TRY(rui_cluster_of(folder, arena, &c, err));
    for (;;) { /* who takes over from a leader that died meanwhile must be told, too */
        ru_status st = rui_cluster_asked(&ask, arena, &text, &n, err);
        heard = heard || st == RU_OK;
        bool runs = find(folder, "scheduler", arena, &r);
        if (st != RU_OK && (!heard || (st != RU_E_AGAIN && st != RU_E_PEER))) {
            return st;
        }
        if (st == RU_E_PEER && !runs) {
            break;
        }
        if (ru_clock_now().ns > until) {
            return RU_FAIL(err, RU_E_AGAIN,
                           "some jobs still write their checkpoints; the cluster ends after them");
        }
        ru_clock_pause(4 * look_ns);
    }
    return rui_cluster_nodes_do(&c, true, NULL, arena, err);
}

ru_status rui_cluster_agent_start(const char *folder, const char *name, ru_arena *arena,
                                  ru_err *err)
{
    const char *dir = ru_arena_printf(arena, "%s/run/%s/start", folder, name);
    RU_TRY(dir != NULL ? ru_dir_make(dir, err) : no_memory(err));
    const ru_claim_options co = {.dir = dir, .alone = true, .wait_ns = up_patience_ns};
    ru_claim *claim;
    RU_TRY(ru_claim_open(&co, &claim, err)); /* two at a time would both find no agent */
    ru_status st = start(folder, "agent", name, arena, err);
    ru_claim_close(claim);
    return st;
}

ru_status rui_cluster_agent_stop(const char *folder, const char *name, ru_arena *arena, ru_err *err)
{
    running r;
    if (find(folder, name, arena, &r)) {
        (void)ru_process_signal(r.pid, r.mark, SIGTERM);
    }
    return wait_gone(folder, name, "the agents still end", ru_clock_now().ns + up_patience_ns,
                     arena, err);
}

/* -- requests ------------------------------------------------------------------------------------
 */

static ru_status not_up(const char *folder, ru_err *err)
{
    return RU_FAIL(err, RU_E_PEER,
                   "the cluster of %s is not up; start it by `rubato cluster up FILE`", folder);
}

ru_status rui_cluster_asked(const rui_cluster_ask *a, ru_arena *arena, char **text, int64_t *n,
                            ru_err *err)
{
    const char *path = path_of(arena, a->folder, "http", NULL), *key;
    static const char *const accept[] = {"Accept: application/json"};
    char *address;
    int64_t n_address;
    const char *own = ru_conf_env("RUBATO_CLUSTER_KEY"); /* file of a user's key */
    RU_TRY(path == NULL  ? no_memory(err)
           : own != NULL ? ru_token_get(own, arena, &key, err)
                         : rui_cluster_key(a->folder, "admin", arena, &key, err));
    if (!ru_path_is_file(path)) {
        return not_up(a->folder, err);
    }
    RU_TRY(ru_file_read(path, 256, arena, &address, &n_address, err));
    const ru_fetch f = {.url = ru_arena_printf(arena, "http://%s%s", address, a->path),
                        .token = key,
                        .body = a->body,
                        .body_bytes = a->body != NULL ? (int64_t)strlen(a->body) : 0,
                        .type = "application/json",
                        .header = accept,
                        .n_headers = a->json ? 1 : 0,
                        .says = true};
    running now;
    ru_status st = f.url != NULL ? ru_http_fetch(&f, arena, text, n, err) : no_memory(err);
    return st == RU_E_PEER && !find(a->folder, "scheduler", arena, &now) ? not_up(a->folder, err)
                                                                         : st;
}
