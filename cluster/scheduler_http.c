/* What people ask the scheduler: texts for terminals, JSON for those who accept it.
 *
 *   POST /jobs                      {"name", "min", "max", "request", "priority", "yaml"} -> its
 *                                   number
 *   GET  /jobs (and services), /top, /nodes, /metrics, /audit, /world
 *   GET  /jobs/N/explain            why it waits, or has what it has; N may be a service
 *   GET  /jobs/N/log/OFFSET         bytes of the run's log from there on
 *   POST /jobs/N/cancel, /jobs/N/scale {"min", "max"}, /nodes/NAME/drain, /nodes/NAME/resume, /down
 *   POST /users                     {"name", "slots", "weight"} -> the user's key
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/conf.h"
#include "base/table.h"
#include "cluster/account.h"
#include "cluster/scheduler_impl.h"
#include "env/file/file.h"
#include "env/process/self.h"

enum { LOG_BYTES_MAX = 256 << 10, PARTS_MAX = 4, NAME_MAX_BYTES = 64, JOB_NAME_MAX = 200 };

typedef struct asked {
    rui_scheduler *s;
    ru_http_request *r;
    ru_arena *arena; /* of the answer: it lives until that is sent */
    bool json;
    char path[256];
    const char *part[PARTS_MAX]; /* of the path */
    uint32_t n_parts;
    const char *who;
} asked;

/* -- answers -------------------------------------------------------------------------------------
 */

static void done(void *self)
{
    ru_arena a = *(ru_arena *)self;
    ru_arena_fini(&a);
}

static void answer(asked *q, const char *type, const ru_text *t)
{
    const ru_http_field fields[] = {{"Content-Type", type}};
    const ru_http_span span = {t->p, t->n};
    const ru_http_reply reply = {.status = 200,
                                 .fields = fields,
                                 .n_fields = 1,
                                 .spans = &span,
                                 .n_spans = 1,
                                 .done = done,
                                 .self = q->arena};
    q->arena = NULL;
    ru_http_answer(q->r, &reply);
}

static void refuse(asked *q, const ru_err *err)
{
    uint32_t status = err->status == RU_E_MISSING                               ? 404
                      : err->status == RU_E_PERM                                ? 403
                      : err->status == RU_E_AGAIN || err->status == RU_E_LIMIT  ? 429
                      : err->status == RU_E_PEER                                ? 503
                      : err->status == RU_E_CREATE || err->status == RU_E_IO    ? 507
                      : err->status == RU_E_CONFIG || err->status == RU_E_USAGE ? 400
                                                                                : 500;
    ru_http_refuse(q->r, status, err->text, 0);
    done(q->arena);
    q->arena = NULL;
}

/* `services`: a second table; NULL: none. */
static ru_status give_tables(asked *q, const ru_table *table, const ru_table *services,
                             const char *schema, ru_err *err)
{
    ru_text t = ru_text_arena(q->arena);
    if (q->json) {
        ru_json j = ru_json_into(&t);
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "schema", schema);
        RU_TRY(ru_table_json(table, &j, "rows", err));
        RU_TRY(services != NULL ? ru_table_json(services, &j, "services", err) : RU_OK);
        ru_json_close(&j);
        ru_text_put(&t, "\n");
    } else {
        RU_TRY(ru_table_print(table, 0, &t, err));
        if (services != NULL) {
            ru_text_put(&t, "\n");
            RU_TRY(ru_table_print(services, 0, &t, err));
        }
    }
    answer(q, q->json ? "application/json" : "text/plain; charset=utf-8", &t);
    return RU_OK;
}

static ru_status give_table(asked *q, const ru_table *table, const char *schema, ru_err *err)
{
    return give_tables(q, table, NULL, schema, err);
}

static void give_line(asked *q, const char *line)
{
    ru_text t = ru_text_arena(q->arena);
    ru_text_putf(&t, "%s\n", line);
    answer(q, "text/plain; charset=utf-8", &t);
}

static bool is_admin(const asked *q)
{
    return strcmp(q->who, "admin") == 0;
}

static ru_status need_admin(const asked *q, ru_err *err)
{
    return is_admin(q) ? RU_OK
                       : RU_FAIL(err, RU_E_PERM,
                                 "only the administrator may do this, and you are %s", q->who);
}

/* -- tables --------------------------------------------------------------------------------------
 */

void rui_scheduler_columns(ru_table *t, const char *const *names, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        ru_table_col(t, names[k][0] == '>' ? names[k] + 1 : names[k],
                     names[k][0] == '>' ? RU_TABLE_RIGHT : RU_TABLE_LEFT);
    }
}

static void put_job(const asked *q, ru_table *t, uint32_t number)
{
    const ru_book_job *j = ru_book_job_at(&q->s->book, number);
    const ru_sched_job *p = ru_book_place(&q->s->book, j);
    uint32_t ready;
    uint32_t alive = p != NULL ? rui_scheduler_alive(q->s, j, &ready, NULL) : 0;
    int64_t end = p == NULL ? j->ended_wall_ns : ru_clock_wall_ns();
    ru_table_i64(t, number);
    ru_table_str(t, j->spec.name);
    ru_table_str(t, j->owner);
    ru_table_str(t, p != NULL && j->cancelled ? "ends" : ru_book_state_name(j->state));
    ru_table_i64(t, j->priority);
    ru_table_i64(t, alive);
    ru_table_i64(t, p != NULL ? p->replicas : 0);
    ru_table_i64(t, p != NULL ? p->n_parts : 0);
    ru_table_textf(t, j->min == j->max ? "%u" : "%u:%u", j->min, j->max);
    ru_table_i64(t, j->generation);
    ru_table_ns(t, end > j->submitted_wall_ns ? end - j->submitted_wall_ns : 0);
    ru_table_str(t, j->why[0] != 0 ? j->why : NULL);
}

static ru_status jobs(asked *q, ru_err *err)
{
    static const char *const names[] = {">job",      "name",        "user",     "state",
                                        ">priority", ">workers",    ">granted", ">nodes",
                                        ">wanted",   ">generation", ">age",     "why"};
    ru_table t = ru_table_in(q->arena);
    rui_scheduler_columns(&t, names, RU_ARRAY_LEN(names));
    for (uint32_t k = 1; k <= q->s->book.jobs.n; k++) {
        put_job(q, &t, k);
    }
    ru_table services = ru_table_in(q->arena);
    bool any = rui_scheduler_services(q->s, &services);
    return give_tables(q, &t, any ? &services : NULL, "rubato.cluster.jobs/1", err);
}

static ru_status nodes(asked *q, ru_err *err)
{
    static const char *const names[] = {"node", ">slots", ">granted", ">processes", "state"};
    ru_table t = ru_table_in(q->arena);
    rui_scheduler_columns(&t, names, RU_ARRAY_LEN(names));
    for (uint32_t k = 0; k < q->s->book.n_nodes; k++) {
        const ru_book_node *n = &q->s->book.nodes[k];
        uint32_t alive = 0;
        for (uint32_t i = 0; i < q->s->live[k].state.n; i++) {
            alive += q->s->live[k].state.procs[i].alive;
        }
        ru_table_str(&t, n->name);
        ru_table_i64(&t, n->slots);
        ru_table_i64(&t, q->s->book.sched.nodes[k].used);
        ru_table_i64(&t, alive);
        bool gone = n->slots == 0;
        ru_table_str(&t, gone && rui_market_goes(q->s, n->name) ? "not rented"
                         : gone                                 ? "lost"
                         : q->s->live[k].guest.v == 0           ? "silent"
                         : n->leaves                            ? "leaving"
                         : n->drained                           ? "drained"
                                                                : "up");
    }
    return give_table(q, &t, "rubato.cluster.nodes/1", err);
}

typedef struct audit_of {
    asked *q;
    ru_table t;
} audit_of;

/* What an event is about. A user that was added later again has the same name. */
static void put_of(audit_of *a, const ru_journal_event *e)
{
    const ru_book *b = &a->q->s->book;
    if (e->kind == RU_BOOK_NODE || e->kind == RU_BOOK_DRAIN) {
        bool known = e->node >= 0 && e->node < b->n_nodes && b->nodes[e->node].name != NULL;
        ru_table_textf(&a->t, "node %s", known ? b->nodes[e->node].name : "?");
    } else if (e->kind == RU_BOOK_MARKET) { /* its name stands in the text */
        if (e->job > 0) {
            ru_table_textf(&a->t, "market %lld node %lld", (long long)e->node, (long long)e->job);
        } else {
            ru_table_textf(&a->t, "market %lld", (long long)e->node);
        }
    } else if (e->kind == RU_BOOK_METHOD || e->kind == RU_BOOK_DOWN || e->kind == RU_BOOK_RESIZE) {
        ru_table_str(&a->t, e->kind == RU_BOOK_DOWN ? "cluster" : "plans");
    } else if (e->kind == RU_BOOK_USER) {
        ru_book_user u;
        ru_err err;
        bool known = ru_book_user_get(e->text, a->q->arena, &u, &err) == RU_OK;
        ru_table_textf(&a->t, "user %s", known ? u.name : "?");
    } else {
        ru_table_textf(&a->t, "job %lld", (long long)e->job);
    }
}

/* For people in UTC, as in the logs of runs; for programs in seconds since 1970. */
static ru_status audit_row(void *arg, const ru_journal_event *e, ru_err *err)
{
    static const char *const kinds[] = {"?",      "submit", "node", "grant", "scale",
                                        "cancel", "fail",   "end",  "drain", "user",
                                        "market", "method", "down", "resize"};
    static const char *const deals[RU_MARKET_WORDS] = {"price",
                                                       "rent",
                                                       "renew",
                                                       "give back",
                                                       "clock",
                                                       [RU_MARKET_GIVEN] = "given",
                                                       [RU_MARKET_TAKEN] = "taken"};
    audit_of *a = arg;
    ru_table *t = &a->t;
    time_t at = (time_t)(e->wall_ns / 1000000000);
    struct tm tm;
    (void)err;
    ru_table_i64(t, e->seq);
    if (a->q->json || gmtime_r(&at, &tm) == NULL) {
        ru_table_f64(t, (double)e->wall_ns * 1e-9, 3);
    } else {
        ru_table_textf(t, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900, tm.tm_mon + 1,
                       tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    }
    ru_table_str(t, e->who);
    bool deal =
        e->kind == RU_BOOK_MARKET && e->a >= 0 && e->a < RU_MARKET_WORDS && deals[e->a] != NULL;
    ru_table_str(t, deal ? deals[e->a] : e->kind < RU_BOOK_KINDS ? kinds[e->kind] : kinds[0]);
    put_of(a, e);
    ru_table_i64(t, e->a);
    ru_table_i64(t, deal ? e->b / 1000000000 : e->b);
    bool secret = e->kind == RU_BOOK_SUBMIT || e->kind == RU_BOOK_USER;
    ru_table_str(t, secret ? NULL : e->text);
    return RU_OK;
}

static ru_status audit(asked *q, ru_err *err)
{
    const char *names[] = {">event", q->json ? ">unix_s" : "time", "who", "what", "of", ">a", ">b",
                           "text"};
    audit_of a = {.q = q, .t = ru_table_in(q->arena)};
    RU_TRY(need_admin(q, err));
    rui_scheduler_columns(&a.t, names, RU_ARRAY_LEN(names));
    RU_TRY(q->s->journal.ops->read(q->s->journal.self, 0, audit_row, &a, err));
    return give_table(q, &a.t, "rubato.cluster.audit/1", err);
}

/* -- requests that change something --------------------------------------------------------------
 */

typedef struct wish {
    const char *name, *yaml;
    uint32_t min, max, request, slots, weight;
    int64_t priority;
} wish;

static const ru_conf_field wish_fields[] = {
    RU_ROW(TEXT, wish, name, "job", "name of the job"),
    RU_ROW(TEXT, wish, yaml, "", "resolved job"),
    RU_ROW(U32, wish, min, "1", "fewest workers", RU_IN(1, 1024)),
    RU_ROW(U32, wish, max, "1", "most workers", RU_IN(1, 1024)),
    RU_ROW(U32, wish, request, "0", "workers that it requests; 0: the most", RU_IN(0, 1024)),
    RU_ROW(U32, wish, slots, "0", "of a user; 0: no limit", RU_IN(0, 100000)),
    RU_ROW(U32, wish, weight, "0", "of a user beside others; 0: none",
           RU_IN(0, RU_BOOK_WEIGHT_MAX)),
    RU_ROW(I64, wish, priority, "0", "higher ones take their slots first", RU_IN(-1000, 1000)),
};
static const ru_conf_table wish_table = RU_TABLE("request", wish, wish_fields, NULL);

/* Everybody sees it, on terminals. */
static ru_status check_name(const char *name, ru_err *err)
{
    size_t n = strlen(name);
    bool plain = true;
    for (size_t k = 0; k < n; k++) {
        plain = plain && (uint8_t)name[k] >= ' ' && name[k] != 0x7f;
    }
    return plain && n <= JOB_NAME_MAX
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE,
                         "the job's name has %zu bytes%s; expected at most %d, and no ends of "
                         "lines or other control characters",
                         n, plain ? "" : " with control characters", JOB_NAME_MAX);
}

static ru_status read_wish(asked *q, wish *w, ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(&wish_table, q->arena, &c, err));
    RU_TRY(ru_conf_add_json(c, "request", (const char *)q->r->body, q->r->body_bytes, err));
    RU_TRY(ru_conf_apply(c, w, err));
    if (w->min > w->max) {
        return RU_FAIL(err, RU_E_USAGE, "a job of %u to %u workers: the numbers must rise", w->min,
                       w->max);
    }
    if (w->request > 0 && (w->request < w->min || w->request > w->max)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "a job of %u to %u workers requests %u: ask for a number between them",
                       w->min, w->max, w->request);
    }
    return RU_OK;
}

/* A job that could never start is refused with what could. */
static ru_status check_size(const rui_scheduler *s, const char *owner, uint32_t min, ru_err *err)
{
    const ru_book_user *u = ru_book_user_of(&s->book, owner);
    uint32_t slots = ru_book_slots(&s->book, true) + rui_scheduler_more(s);
    if (u != NULL && u->slots > 0 && min > u->slots) {
        return RU_FAIL(err, RU_E_USAGE,
                       "the job needs at least %u workers, but %s may have %u at one time; ask for "
                       "%u or fewer",
                       min, u->name, u->slots, u->slots);
    }
    return (s->book.n_nodes == 0 && s->slurm == NULL && s->spot == NULL) || min <= slots
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE,
                         "the job needs at least %u workers, but the cluster has %u slots for it "
                         "(a job lies on at most %d nodes); ask for %u or fewer, or add "
                         "slots",
                         min, slots, RU_BOOK_SPREAD_MAX, slots);
}

/* 32 hexadecimal digits. */
static void draw_key(char into[33])
{
    uint8_t raw[16];
    ru_self_random(raw, sizeof raw);
    for (uint32_t k = 0; k < sizeof raw; k++) {
        (void)snprintf(&into[2 * k], 3, "%02x", raw[k]);
    }
}

/* A new user, or a new key for one; the key is shown this once. */
static ru_status add_user(asked *q, ru_err *err)
{
    wish w;
    char key[33];
    RU_TRY(need_admin(q, err));
    RU_TRY(read_wish(q, &w, err));
    size_t n = strspn(w.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.");
    if (n < 1 || n > NAME_MAX_BYTES || w.name[n] != 0 || strcmp(w.name, "admin") == 0 ||
        strcmp(w.name, "scheduler") == 0) {
        return RU_FAIL(err, RU_E_USAGE,
                       "a user has a name of 1 to 64 small letters, digits, '-', '_' and '.', and "
                       "is neither admin nor scheduler");
    }
    if (q->s->book.n_users == RU_BOOK_USERS_MAX && ru_book_user_of(&q->s->book, w.name) == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the cluster has %d users; that is all it takes",
                       RU_BOOK_USERS_MAX);
    }
    draw_key(key);
    ru_text text = ru_text_arena(q->arena);
    ru_book_user_put(&(ru_book_user){.name = w.name, .key = key}, &text);
    const ru_journal_event e = {
        .kind = RU_BOOK_USER, .a = w.slots, .b = w.weight, .who = q->who, .text = text.p};
    RU_TRY(rui_scheduler_event(q->s, e, err));
    q->s->plan_due = true;
    give_line(q, key);
    return RU_OK;
}

/* Submissions whose requests came in one turn of the loop become durable together. */
enum { COMMIT_MAX = RUI_SCHEDULER_CONNS };
struct rui_commit {
    asked of[COMMIT_MAX];
    ru_journal_event events[COMMIT_MAX]; /* their texts are in the arenas of the answers */
    uint32_t n;
};

static void commit(void *self, ru_time now)
{
    rui_scheduler *s = self;
    struct rui_commit *c = s->commit;
    ru_err err;
    ru_status st = rui_scheduler_append(s, c->events, c->n, &err);
    for (uint32_t k = 0; k < c->n; k++) {
        if (st == RU_OK) {
            give_line(&c->of[k],
                      ru_arena_printf(c->of[k].arena, "%lld", (long long)c->events[k].job));
        } else {
            refuse(&c->of[k], &err);
        }
    }
    c->n = 0;
    s->plan_due = true;
    rui_scheduler_settle(s, now);
}

static ru_status submit(asked *q, ru_err *err)
{
    rui_scheduler *s = q->s;
    wish w;
    char token[33];
    ru_account room;
    const ru_account *account;
    RU_TRY(read_wish(q, &w, err));
    RU_TRY(check_name(w.name, err));
    RU_TRY(check_size(s, q->who, w.min, err));
    RU_TRY(ru_cluster_account(s->opt->own_accounts, q->who, q->arena, &room, &account, err));
    if (s->commit == NULL && (s->commit = RU_NEW(s->arena, struct rui_commit, 1)) == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a submission");
    }
    if (s->commit->n == COMMIT_MAX) {
        commit(s, ru_clock_now());
    }
    uint32_t number = s->book.jobs.n + 1 + s->commit->n;
    if (s->book.n_live + s->commit->n >= RU_BOOK_LIVE_MAX || s->closing) {
        return RU_FAIL(err, RU_E_LIMIT, "%s",
                       s->closing ? "the cluster is going down; submit the job when it is up again"
                                  : "12000 jobs have not ended; wait until some have");
    }
    draw_key(token);
    const char *out = ru_arena_printf(q->arena, "%s/jobs/%u", s->opt->folder, number);
    ru_text text = ru_text_arena(q->arena);
    ru_book_spec spec = {w.name, token, out, w.yaml, w.request};
    if (out == NULL || strlen(out) > RU_CLUSTER_TEXT_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "the path of the cluster's folder is too long: %s",
                       s->opt->folder);
    }
    ru_book_spec_put(&spec, &text);
    if (text.cut) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a submission");
    }
    RU_TRY(ru_book_spec_get(text.p, q->arena, &spec, err));
    s->commit->events[s->commit->n] = (ru_journal_event){.kind = RU_BOOK_SUBMIT,
                                                         .job = number,
                                                         .node = w.priority,
                                                         .a = w.min,
                                                         .b = w.max,
                                                         .who = q->who,
                                                         .text = text.p};
    s->commit->of[s->commit->n++] = *q;
    q->arena = NULL;
    ru_loop_after(s->loop, commit, s);
    return RU_OK;
}

static ru_status job_of(const asked *q, int64_t *number, const ru_book_job **j, ru_err *err)
{
    *j = ru_str_i64(ru_str_c(q->part[1]), number) ? ru_book_job_at(&q->s->book, *number) : NULL;
    if (*j == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "there is no job %s; see rubato cluster ps", q->part[1]);
    }
    return is_admin(q) || strcmp((*j)->owner, q->who) == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_PERM, "job %s is of %s, and you are %s", q->part[1], (*j)->owner,
                         q->who);
}

static ru_status change_job(asked *q, ru_err *err)
{
    const ru_book_job *j;
    wish w = {0};
    int64_t number;
    bool scales = strcmp(q->part[2], "scale") == 0;
    RU_TRY(job_of(q, &number, &j, err));
    if (ru_book_place(&q->s->book, j) == NULL) {
        return RU_FAIL(err, RU_E_USAGE, "job %lld has ended: %s", (long long)number,
                       ru_book_state_name(j->state));
    }
    if (scales) {
        RU_TRY(read_wish(q, &w, err));
        RU_TRY(check_size(q->s, j->owner, w.min, err));
    }
    const ru_journal_event e = {.kind = scales ? RU_BOOK_SCALE : RU_BOOK_CANCEL,
                                .job = number,
                                .a = w.min,
                                .b = w.max,
                                .who = q->who};
    RU_TRY(rui_scheduler_event(q->s, e, err));
    q->s->plan_due = true;
    const ru_sched_job *has = ru_book_place(&q->s->book, j);
    bool waits = scales && j->state == RU_BOOK_RUNS && has->replicas < j->min;
    give_line(q, waits    ? ru_arena_printf(q->arena, "resized; it keeps %u until it can have %u",
                                            has->replicas, j->min)
                 : scales ? "resized"
                          : "cancelled");
    return RU_OK;
}

static ru_status drain(asked *q, ru_err *err)
{
    uint32_t k = ru_book_node_of(&q->s->book, q->part[1]);
    RU_TRY(need_admin(q, err));
    if (k >= q->s->book.n_nodes) {
        return RU_FAIL(err, RU_E_MISSING, "there is no node %s; see rubato cluster nodes",
                       q->part[1]);
    }
    const ru_journal_event e = {
        .kind = RU_BOOK_DRAIN, .node = k, .a = strcmp(q->part[2], "drain") == 0, .who = q->who};
    RU_TRY(rui_scheduler_event(q->s, e, err));
    q->s->plan_due = true;
    give_line(q, e.a ? "drained: its jobs move to other nodes" : "takes work again");
    return RU_OK;
}

static ru_status log_of(asked *q, ru_err *err)
{
    const ru_book_job *j;
    int64_t number, from = 0;
    RU_TRY(job_of(q, &number, &j, err));
    if (q->n_parts > 3 && (!ru_str_i64(ru_str_c(q->part[3]), &from) || from < 0)) {
        return RU_FAIL(err, RU_E_USAGE, "a log begins at a number of bytes, not at %s", q->part[3]);
    }
    const char *path = ru_path_join(q->arena, j->spec.out, "log");
    ru_text t = ru_text_arena(q->arena);
    ru_in_file f;
    if (path != NULL && ru_path_is_file(path)) { /* else nothing was written yet */
        RU_TRY(ru_in_open_own(path, &f, err));
        int64_t n = f.size_bytes - from;
        n = n < 0 ? 0 : n < LOG_BYTES_MAX ? n : LOG_BYTES_MAX;
        char *bytes = ru_arena_alloc(q->arena, n + 1, 1);
        ru_status st = bytes == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a log")
                       : n > 0       ? ru_in_read(&f, path, from, bytes, n, err)
                                     : RU_OK;
        ru_in_close(&f);
        RU_TRY(st);
        ru_text_put_n(&t, bytes, n);
    }
    answer(q, "text/plain", &t);
    return RU_OK;
}

static ru_status explain(asked *q, ru_err *err)
{
    const ru_book_job *j;
    int64_t number;
    ru_text t = ru_text_arena(q->arena);
    if (!ru_str_i64(ru_str_c(q->part[1]), &number)) {
        RU_TRY(rui_scheduler_service(q->s, q->part[1], &t, err));
    } else {
        RU_TRY(job_of(q, &number, &j, err));
        RU_TRY(rui_scheduler_explain(q->s, j, q->arena, &t, err));
    }
    answer(q, "text/plain; charset=utf-8", &t);
    return RU_OK;
}

/* -- routes --------------------------------------------------------------------------------------
 */

static bool is(const asked *q, uint32_t k, const char *word)
{
    return k < q->n_parts && strcmp(q->part[k], word) == 0;
}

static ru_status route_post(asked *q, ru_err *err)
{
    if (is(q, 0, "jobs") && q->n_parts == 1) {
        return submit(q, err);
    }
    if (is(q, 0, "jobs") && (is(q, 2, "cancel") || is(q, 2, "scale")) && q->n_parts == 3) {
        return change_job(q, err);
    }
    if (is(q, 0, "nodes") && (is(q, 2, "drain") || is(q, 2, "resume")) && q->n_parts == 3) {
        return drain(q, err);
    }
    if (is(q, 0, "users") && q->n_parts == 1) {
        return add_user(q, err);
    }
    if (is(q, 0, "down") && q->n_parts == 1) {
        RU_TRY(need_admin(q, err));
        RU_TRY(rui_scheduler_close(q->s, err));
        give_line(q, "the jobs end with checkpoints");
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_MISSING, "nobody answers POST %s", q->r->path);
}

static ru_status route(asked *q, ru_err *err)
{
    if (strcmp(q->r->method, "POST") == 0) {
        return route_post(q, err);
    }
    if (strcmp(q->r->method, "GET") != 0 || q->n_parts == 0) {
        return RU_FAIL(err, RU_E_MISSING, "nobody answers %s %s", q->r->method, q->r->path);
    }
    if (is(q, 0, "jobs") && q->n_parts == 1) {
        return jobs(q, err);
    }
    if (is(q, 0, "top") && q->n_parts == 1) {
        ru_table t = ru_table_in(q->arena);
        rui_scheduler_top(q->s, &t);
        return give_table(q, &t, "rubato.cluster.top/1", err);
    }
    if (is(q, 0, "nodes") && q->n_parts == 1) {
        return nodes(q, err);
    }
    if (is(q, 0, "metrics") && q->n_parts == 1) {
        ru_text t = ru_text_arena(q->arena);
        rui_scheduler_metrics(q->s, &t);
        answer(q, "text/plain; version=0.0.4; charset=utf-8", &t);
        return RU_OK;
    }
    if (is(q, 0, "world") && q->n_parts == 1) {
        ru_text t = ru_text_arena(q->arena);
        RU_TRY(need_admin(q, err));
        RU_TRY(rui_scheduler_world(q->s, q->arena, &t, err));
        answer(q, "application/json", &t);
        return RU_OK;
    }
    if (is(q, 0, "audit") && q->n_parts == 1) {
        return audit(q, err);
    }
    if (is(q, 0, "jobs") && is(q, 2, "explain") && q->n_parts == 3) {
        return explain(q, err);
    }
    if (is(q, 0, "jobs") && is(q, 2, "log") && q->n_parts <= 4) {
        return log_of(q, err);
    }
    return RU_FAIL(err, RU_E_MISSING, "nobody answers GET %s", q->r->path);
}

static void cut_path(asked *q)
{
    (void)snprintf(q->path, sizeof q->path, "%s", q->r->path + (q->r->path[0] == '/'));
    char *at = q->path;
    while (*at != 0 && q->n_parts < PARTS_MAX) {
        q->part[q->n_parts++] = at;
        at += strcspn(at, "/");
        if (*at == '/') {
            *at++ = 0;
        }
    }
}

/* The same time for right and wrong keys. */
static bool has_key(const asked *q, const char *key)
{
    const char *said = ru_http_asked(q->r, "Authorization");
    static const char head[] = "Bearer ";
    size_t n = strlen(key);
    if (said == NULL || strncmp(said, head, sizeof head - 1) != 0 ||
        strlen(said) != n + sizeof head - 1) {
        return false;
    }
    unsigned differ = 0;
    for (size_t k = 0; k < n; k++) {
        differ |= (unsigned)(said[sizeof head - 1 + k] ^ key[k]);
    }
    return differ == 0;
}

void rui_scheduler_request(void *self, ru_http_request *r)
{
    asked q = {.s = self, .r = r, .who = "admin"};
    ru_arena a;
    ru_err err;
    const char *accept = ru_http_asked(r, "Accept");
    q.json = accept != NULL && strstr(accept, "application/json") != NULL;
    bool known = has_key(&q, q.s->opt->key);
    for (uint32_t k = 0; k < q.s->book.n_users && !known; k++) {
        known = has_key(&q, q.s->book.users[k].key);
        q.who = known ? q.s->book.users[k].name : q.who;
    }
    if (!known) {
        ru_http_refuse(r, 401, "the key is missing or not one of this cluster", 0);
        return;
    }
    ru_arena_init(&a, 0);
    q.arena = RU_NEW(&a, ru_arena, 1);
    if (q.arena == NULL) {
        ru_http_refuse(r, 503, "no memory for the answer", 1);
        return;
    }
    *q.arena = a; /* the answer lives in an arena that stands inside itself */
    cut_path(&q);
    if (route(&q, &err) != RU_OK) {
        refuse(&q, &err);
    }
    rui_scheduler_settle(q.s, ru_clock_now());
}
