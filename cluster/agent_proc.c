/* Workers of a node: records, start, adoption, ends. */
#include "cluster/agent_impl.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "cluster/account.h"
#include "env/file/file.h"

static const int64_t end_patience_ns = 60 * INT64_C(1000000000);    /* from SIGINT to SIGKILL */
static const int64_t leave_patience_ns = 600 * INT64_C(1000000000); /* from SIGTERM to it */
static const int64_t begin_patience_ns = 5 * INT64_C(1000000000); /* of a record without process */
static const int64_t stale_ns = 2 * INT64_C(1000000000);  /* in which one comes into the job */
static const int64_t again_ns = 10 * INT64_C(1000000000); /* after one that failed */

/* -- what bounds a worker ------------------------------------------------------------------------
 */

/* Several agents may be on one machine: the name holds which folder is meant. */
static void group_name(const rui_proc *p, char into[64])
{
    const char *folder = p->agent->opt->folder;
    (void)snprintf(into, 64, "rubato-%08x/%u-%u",
                   (unsigned)ru_hash_bytes(folder, (int64_t)strlen(folder), 1), p->job, p->rank);
}

/* The group of a worker, made or found again; what it could not bound is in the log. */
static void bound(rui_proc *p)
{
    const ru_group_limits *l = &p->agent->opt->limits;
    char name[64];
    ru_err err = {0};
    uint32_t lacks = 0;
    if (l->cpu_quota_ns == 0 && l->memory_bytes == 0 && l->pids == 0) {
        return;
    }
    group_name(p, name);
    ru_status st = ru_group_make(name, l, NULL, &lacks, &p->group, &err);
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "cluster", "group", "worker %s is not bounded: %s", name, err.text);
    } else if ((lacks & ~p->agent->told_lacks) != 0) {
        p->agent->told_lacks |= lacks;
        ru_log(RU_LOG_WARN, "cluster", "group", "this node does not bound %s of its workers: %s",
               ru_group_names(lacks), err.text);
    }
}

/* It has ended: say so if the kernel ended it for want of memory, and let nothing of it go on. */
static void unbound(rui_proc *p)
{
    ru_group_figures f;
    if (p->group == NULL) {
        return;
    }
    ru_group_read(p->group, &f);
    if (f.oom_kills > 0) { /* it could not tell by itself */
        (void)snprintf(p->why, sizeof p->why,
                       "out of memory: the kernel ended a worker at its limit of %lld MiB on node "
                       "%s; let the job have smaller batches or more workers, or raise memory of "
                       "the node",
                       (long long)(p->agent->opt->limits.memory_bytes >> 20), p->agent->opt->name);
    }
    (void)ru_group_kill(p->group); /* what it started has nobody who waits for it */
    ru_status st = ru_group_remove(p->group, NULL);
    if (st != RU_E_AGAIN) { /* else when the record goes, too */
        ru_group_close(p->group);
        p->group = NULL;
    }
}

/* -- files ---------------------------------------------------------------------------------------
 */

typedef struct record {
    int64_t job, generation, rank;
    const char *out;
} record;

static const ru_conf_field record_fields[] = {
    RU_ROW(I64, record, job, NULL, "job", RU_IN(1, 4294967295.0)),
    RU_ROW(I64, record, generation, NULL, "its generation", RU_IN(1, 4294967295.0)),
    RU_ROW(I64, record, rank, NULL, "number of the worker", RU_IN(1, 1 << 20)),
    RU_ROW(TEXT, record, out, NULL, "folder of the run"),
};
static const ru_conf_table record_table = RU_TABLE("record", record, record_fields, NULL);

typedef struct told {
    int64_t pid, number, end, step;
    bool left, holds;
    const char *mark, *address, *ended, *why;
} told;

static const ru_conf_field told_fields[] = {
    RU_ROW(I64, told, pid, "0", "process"),
    RU_ROW(TEXT, told, mark, "", "its mark"),
    RU_ROW(TEXT, told, address, "", "where it listens"),
    RU_ROW(I64, told, number, "0", "of the worker in the job; 0: it is not in it"),
    RU_ROW(BOOL, told, holds, "true", "it has the whole state"),
    RU_ROW(I64, told, end, "-1", "exit code"),
    RU_ROW(I64, told, step, "0", "last step"),
    RU_ROW(BOOL, told, left, "false", "it left"),
    RU_ROW(TEXT, told, ended, "", "how the run ended"),
    RU_ROW(TEXT, told, why, "", "its error"),
};
static const ru_conf_table told_table = RU_TABLE("worker", told, told_fields, NULL);

static const char *record_path(rui_agent *a, const rui_proc *p, char into[RUI_AGENT_PATH_MAX])
{
    (void)snprintf(into, RUI_AGENT_PATH_MAX, "%s/%u-%u", a->opt->folder, p->job, p->rank);
    return into;
}

static const char *out_path(const rui_proc *p, const char *name, char into[RUI_AGENT_PATH_MAX])
{
    int n = snprintf(into, RUI_AGENT_PATH_MAX, "%s/%s.%u", p->out, name, p->rank);
    RU_CHECK(n > 0 && n < RUI_AGENT_PATH_MAX);
    return into;
}

static ru_status write_record(rui_agent *a, const rui_proc *p, ru_err *err)
{
    char path[RUI_AGENT_PATH_MAX];
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text t = ru_text_arena(&scratch);
    ru_json j = ru_json_into(&t);
    ru_json_open(&j, NULL, '{');
    ru_json_i64(&j, "job", p->job);
    ru_json_i64(&j, "generation", p->generation);
    ru_json_i64(&j, "rank", p->rank);
    ru_json_str(&j, "out", p->out);
    ru_json_close(&j);
    ru_status st = t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for the record of a worker")
                         : ru_file_secret(record_path(a, p, path), t.p, t.n, err);
    ru_arena_fini(&scratch);
    return st;
}

/* Lines of what the worker told; a later one adds to those before, one that was cut says nothing.
 * The folder is its user's, who may have put anything there. false: nothing to read. */
static bool read_told(const rui_proc *p, ru_arena *scratch, told *out)
{
    enum { TOLD_MAX = 1 << 16 };
    char path[RUI_AGENT_PATH_MAX], *text = ru_arena_alloc(scratch, TOLD_MAX, 1);
    ru_in_file f;
    ru_conf *c;
    ru_err err;
    if (text == NULL || ru_conf_new(&told_table, scratch, &c, &err) != RU_OK ||
        ru_in_open_own(out_path(p, "tell", path), &f, &err) != RU_OK) {
        return false;
    }
    int64_t n = f.size_bytes < TOLD_MAX ? f.size_bytes : TOLD_MAX;
    ru_status st = ru_in_read(&f, path, 0, text, n, &err);
    ru_in_close(&f);
    ru_str rest = ru_str_n(text, st == RU_OK ? n : 0);
    for (int64_t end; (end = ru_str_find(rest, "\n")) >= 0; rest = ru_str_from(rest, end + 1)) {
        (void)!ru_conf_add_json(c, path, rest.p, end, &err);
    }
    return ru_conf_apply(c, out, &err) == RU_OK;
}

/* -- ends ----------------------------------------------------------------------------------------
 */

static void note(rui_proc *p)
{
    ru_arena scratch;
    told t;
    ru_arena_init(&scratch, 0);
    if (read_told(p, &scratch, &t)) {
        if (p->pid == 0 && t.pid > 0) { /* a process of another account is not its worker */
            p->pid = t.pid;
            (void)snprintf(p->mark, sizeof p->mark, "%s",
                           ru_account_runs(p->out, t.pid) ? t.mark : "");
        }
        (void)snprintf(p->address, sizeof p->address, "%s",
                       t.number > 0 && t.holds ? t.address : "");
        p->member = t.number > 0;
        (void)snprintf(p->ended, sizeof p->ended, "%s", t.ended);
        (void)snprintf(p->why, sizeof p->why, "%s", t.why);
        for (char *c = p->why; *c != 0; c++) { /* a job wrote it, and others read it on terminals */
            *c = (uint8_t)*c < ' ' || *c == 0x7f ? ' ' : *c;
        }
        p->left = t.left;
        p->code = (int32_t)t.end;
    }
    ru_arena_fini(&scratch);
}

static void on_end(void *self, int64_t pid, ru_time now)
{
    rui_proc *p = self;
    (void)pid;
    p->alive = false;
    p->since = now;
    note(p);
    if (p->child != NULL) {
        int code = ru_process_wait(p->child);
        p->code = p->code < 0 && code <= 128 ? code : p->code;
        ru_process_leave(p->child);
        p->child = NULL;
    }
    unbound(p);
    ru_log(RU_LOG_INFO, "cluster", "worker_end", "job %u worker %u code %d", p->job, p->rank,
           p->code);
    rui_agent_changed(p->agent); /* what follows is for the scheduler to say first */
}

/* Watch a process whose number is known. */
static void watch(rui_proc *p)
{
    ru_err err;
    p->alive = (p->child != NULL || ru_process_signal(p->pid, p->mark, 0)) &&
               ru_loop_child(p->agent->loop, p->pid, on_end, p, &err) == RU_OK;
    if (!p->alive) {
        note(p);
        unbound(p);
    }
}

static void forget(rui_proc *p)
{
    char path[RUI_AGENT_PATH_MAX];
    ru_err err;
    (void)!ru_path_remove(record_path(p->agent, p, path), &err);
    unbound(p);
    ru_group_close(p->group);
    *p = (rui_proc){0};
}

static void send_signal(rui_proc *p, int sig, ru_time now)
{
    if (p->pid > 0 && p->sent != sig && p->sent != SIGKILL) {
        p->sent = sig;
        p->sent_at = now;
        (void)ru_process_signal(p->pid, p->mark, sig);
    }
}

/* The job ends here: with a checkpoint, and if that hangs, without. One that leaves does not hear
 * a second signal, which would end it at once. */
static void end_one(rui_proc *p, ru_time now)
{
    if (p->sent == 0) {
        send_signal(p, SIGINT, now);
    } else if (ru_time_since(now, p->sent_at) > end_patience_ns) {
        send_signal(p, SIGKILL, now);
    }
}

/* -- starts --------------------------------------------------------------------------------------
 */

static rui_proc *free_place(rui_agent *a)
{
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        if (a->procs[k].agent == NULL) {
            return &a->procs[k];
        }
    }
    return NULL;
}

/* Errors: RU_E_LIMIT for a path that is too long or a node that is full. */
static ru_status place_for(rui_agent *a, const ru_cluster_order *o, rui_proc **out, ru_err *err)
{
    rui_proc *p = free_place(a);
    char path[RUI_AGENT_PATH_MAX];
    if (p == NULL || strlen(o->out) > RUI_AGENT_PATH_MAX - 32) {
        return RU_FAIL(err, RU_E_LIMIT, "no room for another worker of job %u", o->job);
    }
    *p = (rui_proc){.job = o->job, .generation = o->generation, .code = -1};
    (void)snprintf(p->out, sizeof p->out, "%s", o->out);
    p->rank = o->rank_first;
    do { /* files of a worker are its own for good */
        p->rank++;
    } while (ru_path_exists(out_path(p, "tell", path)) || ru_path_exists(record_path(a, p, path)));
    *out = p;
    return RU_OK;
}

/* Bounded, and under the account of the job's user. */
static ru_status start_as(rui_proc *p, const ru_cluster_order *o, const char *const *argv,
                          const char *token, ru_err *err)
{
    char log[RUI_AGENT_PATH_MAX];
    ru_account room;
    const ru_account *account;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st =
        ru_cluster_account(p->agent->opt->own_accounts, o->owner, &scratch, &room, &account, err);
    if (st == RU_OK) {
        const char *set[5] = {token};
        static const char *const keep[] = {
            "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY",
            NULL}; /* the rest may have secrets of who started the cluster */
        if (account != NULL) {
            set[1] = ru_arena_printf(&scratch, "HOME=%s", account->home);
            set[2] = ru_arena_printf(&scratch, "USER=%s", account->name);
            set[3] = ru_arena_printf(&scratch, "LOGNAME=%s", account->name);
        }
        bound(p);
        const ru_process_options po = {.argv = argv,
                                       .set = set,
                                       .keep = account != NULL ? keep : NULL,
                                       .outlive = out_path(p, "log", log),
                                       .account = account,
                                       .group = p->group};
        st = ru_process_start(&po, &p->child, err);
    }
    ru_arena_fini(&scratch);
    return st;
}

static ru_status start(rui_agent *a, const ru_cluster_order *o, const char *join, ru_time now,
                       ru_err *err)
{
    rui_proc *p = NULL;
    RU_TRY(place_for(a, o, &p, err));
    char numbers[4][16], tell[RUI_AGENT_PATH_MAX];
    char job[RUI_AGENT_PATH_MAX], token[RU_CLUSTER_TEXT_MAX + 16];
    const uint32_t values[] = {o->most, p->rank, a->opt->threads, o->generation};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(values); k++) {
        (void)snprintf(numbers[k], sizeof numbers[k], "%u", values[k]);
    }
    (void)snprintf(job, sizeof job, "%.1000s/job.yaml", p->out);
    (void)snprintf(token, sizeof token, "RUBATO_TOKEN=%s", o->token);
    const char *argv[32] = {"/proc/self/exe", "worker",
                            "--job",          job,
                            "--out",          p->out,
                            "--max",          numbers[0],
                            "--rank",         numbers[1],
                            "--threads",      numbers[2],
                            "--tell",         out_path(p, "tell", tell),
                            "--generation",   numbers[3],
                            "--listen",       a->opt->listen};
    uint32_t n = 18;
    if (join[0] != 0) {
        argv[n++] = "--join";
        argv[n++] = join;
        argv[n++] = "--newcomer";
    } else if (o->resume) {
        argv[n++] = "--resume";
    }
    if (o->rented) {
        argv[n++] = "--tier=rented";
    }
    p->agent = a;
    p->since = now;
    (void)snprintf(p->join, sizeof p->join, "%s", join);
    ru_status st = write_record(a, p, err);
    st = st == RU_OK ? start_as(p, o, argv, token, err) : st;
    if (st != RU_OK) { /* the scheduler hears of it as of one that ended */
        p->pid = -1;
        p->code = ru_status_exit_code(st);
        (void)snprintf(p->why, sizeof p->why, "%.*s", RU_CLUSTER_TEXT_MAX, err->text);
        unbound(p);
        return st;
    }
    p->pid = ru_process_id(p->child);
    (void)ru_process_mark(p->pid, p->mark);
    watch(p);
    ru_log(RU_LOG_INFO, "cluster", "worker_start", "job %u generation %u worker %u pid %lld",
           p->job, p->generation, p->rank, (long long)p->pid);
    return RU_OK;
}

/* -- orders --------------------------------------------------------------------------------------
 */

static const ru_cluster_order *order_of(const rui_agent *a, uint32_t job)
{
    for (uint32_t k = 0; k < a->heard.n; k++) {
        if (a->heard.at[k].job == job) {
            return &a->heard.at[k];
        }
    }
    return NULL;
}

/* Did a later one end in the same way? It says as much of the job. */
static bool is_repeated(const rui_proc *p)
{
    bool yes = false;
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        const rui_proc *q = &p->agent->procs[k];
        bool later = q->since.ns > p->since.ns || (q->since.ns == p->since.ns && q > p);
        yes = yes || (q->agent != NULL && q->job == p->job && q->generation == p->generation &&
                      later && !q->alive && q->pid != 0 && q->left == p->left &&
                      q->code == p->code && q->sent == p->sent && strcmp(q->ended, p->ended) == 0);
    }
    return yes;
}

/* One that the orders do not want any more. */
static void part(rui_proc *p, const ru_cluster_order *o, ru_time now)
{
    if (!p->alive && p->pid == 0) {
        return; /* adopted, and it may still tell its number: rui_agent_look */
    }
    if (!p->alive && (o == NULL || o->generation > p->generation || is_repeated(p))) {
        forget(p);
    } else if (p->alive && o != NULL && o->generation > p->generation) {
        send_signal(p, SIGKILL, now); /* the next generation must not meet it */
    } else if (p->alive && (o == NULL || o->end)) {
        end_one(p, now);
    } else if (p->alive && p->sent == SIGTERM &&
               ru_time_since(now, p->sent_at) > leave_patience_ns) {
        send_signal(p, SIGKILL, now); /* it hangs: others wait for its slot */
    }
}

/* Does p leave before q? Who is not in the job yet is missed least, then who came last. */
static bool leaves_first(const rui_proc *p, const rui_proc *q)
{
    bool in = p->address[0] != 0;
    return in != (q->address[0] != 0) ? !in : p->rank > q->rank;
}

/* Those that live and were not told to leave, and the one of them that leaves next. */
static uint32_t count(rui_agent *a, const ru_cluster_order *o, rui_proc **next, const char **join)
{
    uint32_t n = 0;
    *next = NULL;
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        rui_proc *p = &a->procs[k];
        if (p->agent == NULL || p->job != o->job || !p->alive || p->generation != o->generation ||
            p->sent != 0) {
            continue;
        }
        n++;
        *next = *next == NULL || leaves_first(p, *next) ? p : *next;
        *join = p->address[0] != 0 ? p->address : *join;
    }
    return n;
}

/* Has a worker of this generation ended here as its job does (0)? Then it is for the scheduler to
 * say how the job goes on; also after one that failed, when nothing else of the job lives. Else
 * another one is tried some time later. One that was told to leave before it could hear signals has
 * left, too. */
static bool ended_here(const rui_agent *a, const ru_cluster_order *o, ru_time now)
{
    bool yes = false;
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        const rui_proc *p = &a->procs[k];
        bool waits = p->sent != SIGTERM && (o->found || ru_time_since(now, p->since) < again_ns);
        yes = yes || (p->agent != NULL && p->job == o->job && p->generation == o->generation &&
                      !p->alive && !p->left && (p->code == 0 || waits));
    }
    return yes;
}

/* Is the one through which p should have come into the job by now gone, and another one known? */
static bool is_astray(const rui_proc *p, const ru_cluster_order *o, ru_time now)
{
    bool there = o->join[0] == 0 || strcmp(p->join, o->join) == 0;
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX && !there; k++) {
        const rui_proc *q = &p->agent->procs[k];
        there = q->agent != NULL && q->job == p->job && q->alive && q->sent == 0 &&
                strcmp(p->join, q->address) == 0;
    }
    return !there && p->alive && p->sent == 0 && !p->member && p->join[0] != 0 &&
           ru_time_since(now, p->since) > stale_ns;
}

static void follow_one(rui_agent *a, const ru_cluster_order *o, ru_time now)
{
    rui_proc *next;
    const char *join = o->join;
    uint32_t n;
    ru_err err;
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        rui_proc *p = &a->procs[k];
        if (p->agent != NULL && p->job == o->job && p->generation == o->generation &&
            is_astray(p, o, now)) {
            send_signal(p, SIGTERM, now); /* another one is started in its place */
        }
    }
    n = count(a, o, &next, &join);
    for (; n > o->want; n--) {
        send_signal(next, SIGTERM, now);
        (void)count(a, o, &next, &join);
    }
    if (a->leaving || (n < o->want && ended_here(a, o, now))) {
        return;
    }
    if (n == 0 && o->want > 0 && join[0] == 0 && o->found) {
        st = start(a, o, "", now, &err);
        n = o->want; /* the others when it tells where it listens */
    }
    for (; st == RU_OK && n < o->want && join[0] != 0; n++) {
        st = start(a, o, join, now, &err);
    }
    if (st != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "worker_start", "job %u: %s", o->job, err.text);
    }
}

void rui_agent_follow(rui_agent *a, ru_time now)
{
    if (a->heard.number == 0) {
        return; /* it does not know yet what is wanted */
    }
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        if (a->procs[k].agent != NULL) {
            part(&a->procs[k], order_of(a, a->procs[k].job), now);
        }
    }
    for (uint32_t k = 0; k < a->heard.n; k++) {
        if (!a->heard.at[k].end) {
            follow_one(a, &a->heard.at[k], now);
        }
    }
}

void rui_agent_clear(rui_agent *a, int sig, ru_time now)
{
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        bool heard = a->procs[k].sent != 0 && sig != SIGKILL;
        if (a->procs[k].agent != NULL && a->procs[k].alive && !heard) {
            send_signal(&a->procs[k], sig, now);
        }
    }
}

bool rui_agent_busy(const rui_agent *a)
{
    bool busy = false;
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        busy = busy || (a->procs[k].agent != NULL && (a->procs[k].alive || a->procs[k].pid == 0));
    }
    return busy;
}

bool rui_agent_look(rui_agent *a, ru_time now)
{
    bool more = false;
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        rui_proc *p = &a->procs[k];
        if (p->agent == NULL || (p->address[0] != 0 && p->pid != 0) || (!p->alive && p->pid != 0)) {
            continue;
        }
        bool known = p->pid != 0;
        note(p);
        if (!known && p->pid != 0) {
            watch(p);
        } else if (!known && ru_time_since(now, p->since) > begin_patience_ns) {
            forget(p); /* its agent was killed before it started it */
            continue;
        }
        if (p->address[0] != 0) {
            rui_agent_changed(a);
        } else {
            more = more || p->alive || p->pid == 0;
        }
    }
    return more;
}

static ru_status adopt_one(rui_agent *a, const char *name, ru_arena *scratch, ru_err *err)
{
    char path[RUI_AGENT_PATH_MAX], *text;
    int64_t n;
    ru_conf *c;
    record r;
    rui_proc *p = free_place(a);
    (void)snprintf(path, sizeof path, "%s/%s", a->opt->folder, name);
    RU_TRY(ru_file_read(path, 1 << 16, scratch, &text, &n, err));
    RU_TRY(ru_conf_new(&record_table, scratch, &c, err));
    RU_TRY(ru_conf_add_json(c, path, text, n, err));
    RU_TRY(ru_conf_apply(c, &r, err));
    if (p == NULL || strlen(r.out) > RUI_AGENT_PATH_MAX - 32) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: no room for another worker", path);
    }
    *p = (rui_proc){.agent = a,
                    .job = (uint32_t)r.job,
                    .generation = (uint32_t)r.generation,
                    .rank = (uint32_t)r.rank,
                    .since = ru_clock_now(),
                    .code = -1};
    (void)snprintf(p->out, sizeof p->out, "%s", r.out);
    bound(p); /* as it was before, and as the node says now */
    note(p);
    if (p->pid != 0) {
        watch(p);
    }
    ru_log(RU_LOG_INFO, "cluster", "adopt", "job %u worker %u %s", p->job, p->rank,
           p->alive      ? "runs"
           : p->pid != 0 ? "has ended"
                         : "has not told yet");
    return RU_OK;
}

ru_status rui_agent_adopt(rui_agent *a, ru_err *err)
{
    char **names;
    uint32_t n;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = ru_dir_list(a->opt->folder, &scratch, &names, &n, err);
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        if (names[k][0] >= '1' && names[k][0] <= '9') {
            st = adopt_one(a, names[k], &scratch, err);
        }
    }
    ru_arena_fini(&scratch);
    return st;
}
