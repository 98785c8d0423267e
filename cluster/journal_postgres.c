/* A journal in PostgreSQL: one row for each event, one statement for each append, which is on the
 * server's disk when it is answered. Who leads holds an advisory lock, which the server gives up
 * with the connection. A number can be written once: a leader that does not know yet that it is
 * none cannot append beside the next one.
 *
 *   rubato_cluster   version, folder of the cluster, epoch of the last leader: one row
 *   rubato_journal   seq 1, 2, ... without a hole
 *
 * The library is opened with the first journal. Nothing waits longer than 5 s for a server. */
#include "cluster/journal_impl.h"

#ifdef RU_HAS_LIBPQ
#include <dlfcn.h>
#include <endian.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/clock.h"

#define RUI_PQ_LIST(X)         \
    X(connectStartParams)      \
    X(connectPoll)             \
    X(backendPID)              \
    X(connectionUsedPassword)  \
    X(connectionNeedsPassword) \
    X(setNoticeProcessor)      \
    X(setnonblocking)          \
    X(finish)                  \
    X(status)                  \
    X(socket)                  \
    X(errorMessage)            \
    X(sendQueryParams)         \
    X(flush)                   \
    X(consumeInput)            \
    X(isBusy)                  \
    X(getResult)               \
    X(resultStatus)            \
    X(resultErrorField)        \
    X(ntuples)                 \
    X(getvalue)                \
    X(getlength)               \
    X(clear)

enum { VERSION = 1, COLUMNS = 10, ROWS = 500, WHY_MAX = 400 };

static const int64_t patience_ns = 5 * INT64_C(1000000000), step_ns = 50 * INT64_C(1000000);
static const int64_t open_ns = 2 * INT64_C(1000000000);

/* Of pg_try_advisory_lock ("rucjrnl1"), and of who makes the tables ("rucjrnl2"). */
#define LOCK_LEAD "8247050049168289841"
#define LOCK_MAKE "8247050049168289842"

typedef struct store {
#define RUI_X(fn) __typeof__(&PQ##fn) fn;
    RUI_PQ_LIST(RUI_X)
#undef RUI_X
    const char *address, *folder;
    PGconn *db;        /* NULL: no connection */
    bool ready;        /* connected, and the tables are those of this cluster */
    bool leads;        /* implies ready */
    int wants;         /* while it connects: events of poll; else 0 */
    int64_t until;     /* ... how long */
    int64_t all_until; /* a time for several statements together; 0: each has its own */
    int64_t seq;       /* of the last event */
    uint64_t epoch;
    int session;       /* that led last, on the server; 0: none */
    char why[WHY_MAX]; /* the connection was lost, or could not be had */
} store;

static ru_status load(store *s, ru_err *err)
{
    void *library = dlopen(RU_LIBPQ_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "a journal in PostgreSQL needs libpq, but %s; run apt-get install libpq5",
                       dlerror());
    }
#define RUI_X(fn)                                                                             \
    {                                                                                         \
        void *at = dlsym(library, "PQ" #fn);                                                  \
        if (at == NULL) {                                                                     \
            return RU_FAIL(err, RU_E_UNSUPPORTED, "%s has no function PQ%s", RU_LIBPQ_SONAME, \
                           #fn);                                                              \
        }                                                                                     \
        memcpy(&s->fn, &at, sizeof at);                                                       \
    }
    RUI_PQ_LIST(RUI_X)
#undef RUI_X
    return RU_OK;
}

/* -- the connection ------------------------------------------------------------------------------
 */

static void ignore(void *self, const char *notice)
{
    (void)self, (void)notice;
}

static void hang_up(store *s)
{
    if (s->db != NULL) {
        s->finish(s->db);
    }
    s->db = NULL;
    s->ready = s->leads = false;
}

/* No connection any more: what libpq says, in one line. It never quotes a password. */
static ru_status lost(store *s, const char *without, ru_err *err)
{
    const char *p = s->db != NULL ? s->errorMessage(s->db) : "";
    size_t n = 0;
    bool gap = false;
    p = p[0] != 0 ? p : without;
    for (; *p != 0 && n + 2 < sizeof s->why; p++) {
        bool blank = (unsigned char)*p <= ' ';
        if (!blank && gap && n > 0) {
            s->why[n++] = ' ';
        }
        if (!blank) {
            s->why[n++] = *p;
        }
        gap = blank;
    }
    s->why[n] = 0;
    bool asked = s->db != NULL && s->wants != 0 &&
                 (s->connectionNeedsPassword(s->db) || s->connectionUsedPassword(s->db));
    hang_up(s);
    return asked ? RU_FAIL(err, RU_E_PERM,
                           "the journal %s cannot be opened: %s; write the password into ~/.pgpass "
                           "(HOST:PORT:DATABASE:USER:PASSWORD, mode 0600)",
                           s->address, s->why)
                 : RU_FAIL(err, RU_E_PEER, "the journal %s is not there: %s", s->address, s->why);
}

/* Until the socket is ready for one of these, or some time has passed. */
static bool ready_for(const store *s, int events, int64_t wait_ns)
{
    struct pollfd p = {.fd = s->socket(s->db), .events = (short)events};
    return wait_ns > 0 && poll(&p, 1, (int)((wait_ns + 999999) / 1000000)) != 0;
}

static ru_status refused(store *s, const PGresult *r, ru_err *err)
{
    const char *code = s->resultErrorField(r, PG_DIAG_SQLSTATE);
    const char *why = s->resultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    code = code != NULL ? code : "";
    why = why != NULL ? why : "the server says nothing";
    if (s->status(s->db) != CONNECTION_OK || strncmp(code, "57P", 3) == 0 || code[0] == 0) {
        return lost(s, why, err);
    }
    if (strcmp(code, "23505") == 0) { /* this number has been written */
        hang_up(s);
        (void)snprintf(s->why, sizeof s->why, "another scheduler leads");
        return RU_FAIL(err, RU_E_AGAIN, "another scheduler leads the cluster by the journal %s",
                       s->address);
    }
    ru_status st = strncmp(code, "53", 2) == 0   ? RU_E_CREATE
                   : strncmp(code, "42", 2) != 0 ? RU_E_IO
                   : strcmp(code, "42501") == 0  ? RU_E_PERM
                                                 : RU_E_DATA;
    return RU_FAIL(err, st, "the journal %s cannot be %s: %s", s->address,
                   s->ready ? "written" : "opened", why);
}

/* One statement with its texts; *out (may be NULL) has binary values, and the caller clears it. */
static ru_status ask(store *s, const char *sql, int n, const char *const *values, PGresult **out,
                     ru_err *err)
{
    int64_t until = s->all_until > 0 ? s->all_until : ru_clock_now().ns + patience_ns;
    PGresult *r = NULL;
    if (!s->sendQueryParams(s->db, sql, n, NULL, values, NULL, NULL, 1)) {
        return lost(s, "the statement cannot be sent", err);
    }
    for (;;) {
        int more = s->flush(s->db);
        if (more == 0 && !s->isBusy(s->db)) {
            PGresult *next = s->getResult(s->db);
            if (next == NULL) {
                break;
            }
            s->clear(r);
            r = next;
            continue;
        }
        int64_t left = until - ru_clock_now().ns;
        bool there = more >= 0 && ready_for(s, more > 0 ? POLLIN | POLLOUT : POLLIN, left);
        if (!there || !s->consumeInput(s->db)) {
            s->clear(r);
            return lost(s, more < 0 || there ? "the connection broke" : "it does not answer", err);
        }
    }
    ExecStatusType is = r != NULL ? s->resultStatus(r) : PGRES_FATAL_ERROR;
    bool fine = is == PGRES_COMMAND_OK || is == PGRES_TUPLES_OK;
    ru_status st = fine        ? RU_OK
                   : r != NULL ? refused(s, r, err)
                               : lost(s, "it does not answer", err);
    if (fine && out != NULL) {
        *out = r;
    } else {
        s->clear(r);
    }
    return st;
}

static int64_t number(const store *s, const PGresult *r, int row, int column)
{
    uint64_t raw;
    RU_CHECK(s->getlength(r, row, column) == (int)sizeof raw); /* each statement casts it */
    memcpy(&raw, s->getvalue(r, row, column), sizeof raw);
    return (int64_t)be64toh(raw);
}

/* -- tables --------------------------------------------------------------------------------------
 */

static ru_status check_owner(store *s, ru_err *err)
{
    PGresult *r;
    ru_status st = RU_OK;
    RU_TRY(ask(s, "SELECT version::bigint, folder = $1::text, folder FROM rubato_cluster", 1,
               &s->folder, &r, err));
    if (s->ntuples(r) != 1 || number(s, r, 0, 0) != VERSION) {
        st = RU_FAIL(err, RU_E_DATA,
                     "the journal %s has version %lld, this program knows version %d; start the "
                     "program that wrote it",
                     s->address, s->ntuples(r) == 1 ? (long long)number(s, r, 0, 0) : 0, VERSION);
    } else if (s->getvalue(r, 0, 1)[0] == 0) {
        st = RU_FAIL(err, RU_E_DATA,
                     "the journal %s is that of the cluster in %s, and this one is in %s; name "
                     "another database",
                     s->address, s->getvalue(r, 0, 2), s->folder);
    }
    s->clear(r);
    return st;
}

/* The session: it ends within seconds on the server, too, when this host is gone. */
static ru_status prepare(store *s, ru_err *err)
{
    static const char *const make[] = {
        "SELECT set_config('client_min_messages', 'error', false),"
        " set_config('statement_timeout', '4s', false),"
        " set_config('tcp_keepalives_idle', '5', false),"
        " set_config('tcp_keepalives_interval', '2', false),"
        " set_config('tcp_keepalives_count', '3', false),"
        " CASE current_setting('synchronous_commit') WHEN 'off'"
        " THEN set_config('synchronous_commit', 'on', false) END",
        "BEGIN", "SELECT pg_advisory_xact_lock(" LOCK_MAKE ")",
        "CREATE TABLE IF NOT EXISTS rubato_cluster(version int NOT NULL, folder text NOT NULL,"
        " epoch bigint NOT NULL)",
        "CREATE TABLE IF NOT EXISTS rubato_journal(seq bigint PRIMARY KEY, at_ns bigint NOT NULL,"
        " wall_ns bigint NOT NULL, kind bigint NOT NULL, job bigint NOT NULL,"
        " node bigint NOT NULL, a bigint NOT NULL, b bigint NOT NULL, who bytea NOT NULL,"
        " text bytea NOT NULL)"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(make); k++) {
        RU_TRY(ask(s, make[k], 0, NULL, NULL, err));
    }
    RU_TRY(ask(s,
               "INSERT INTO rubato_cluster SELECT 1, $1::text, 0"
               " WHERE NOT EXISTS (SELECT FROM rubato_cluster)",
               1, &s->folder, NULL, err));
    RU_TRY(ask(s, "COMMIT", 0, NULL, NULL, err));
    return check_owner(s, err);
}

static ru_status dial(store *s, ru_err *err)
{
    static const char *const keys[] = {
        "fallback_application_name", "keepalives_idle", "keepalives_interval",
        "keepalives_count",          "dbname",          NULL};
    const char *const values[] = {"rubato", "5", "2", "3", s->address, NULL};
    s->db = s->connectStartParams(keys, values, 1);
    if (s->db == NULL || s->status(s->db) == CONNECTION_BAD) {
        return lost(s, "no memory", err);
    }
    (void)s->setNoticeProcessor(s->db, ignore, NULL);
    s->until = ru_clock_now().ns + patience_ns;
    s->wants = POLLOUT;
    return RU_OK;
}

/* Begin to connect, or go on; waits for a moment only. */
static ru_status reach(store *s, ru_err *err)
{
    PostgresPollingStatusType is = PGRES_POLLING_WRITING;
    if (s->db == NULL) {
        RU_TRY(dial(s, err));
    }
    while (is != PGRES_POLLING_OK) {
        if (!ready_for(s, s->wants, step_ns)) {
            return ru_clock_now().ns > s->until
                       ? lost(s, "it does not answer", err)
                       : RU_FAIL(err, RU_E_PEER, "the journal %s does not answer yet", s->address);
        }
        is = s->connectPoll(s->db);
        if (is == PGRES_POLLING_FAILED) {
            return lost(s, "the connection failed", err);
        }
        s->wants = is == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    }
    s->wants = 0;
    (void)s->setnonblocking(s->db, 1);
    s->all_until = ru_clock_now().ns + patience_ns;
    ru_status st = prepare(s, err);
    s->all_until = 0;
    if (st != RU_OK) {
        hang_up(s);
    }
    s->ready = st == RU_OK;
    return st;
}

/* Nobody has led since this one, whose session before has not ended on the server: end it. */
static ru_status end_session(store *s, ru_err *err)
{
    char pid[16];
    const char *value = pid;
    (void)snprintf(pid, sizeof pid, "%d", s->session);
    RU_TRY(ask(s,
               "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND"
               " granted AND pid = $1::int AND"
               " (classid::bigint << 32 | objid::bigint) = " LOCK_LEAD,
               1, &value, NULL, err));
    return RU_FAIL(err, RU_E_PEER,
                   "the journal %s is not there: the server has not ended the session from before",
                   s->address);
}

static ru_status take(store *s, ru_err *err)
{
    PGresult *r;
    RU_TRY(ask(s,
               "SELECT pg_try_advisory_lock(" LOCK_LEAD "),"
               " coalesce((SELECT epoch::bigint FROM rubato_cluster), 0)",
               0, NULL, &r, err));
    bool mine = s->getvalue(r, 0, 0)[0] != 0;
    bool ours = s->session != 0 && (uint64_t)number(s, r, 0, 1) == s->epoch;
    s->clear(r);
    if (!mine && ours) {
        return end_session(s, err);
    }
    if (!mine) {
        return RU_FAIL(err, RU_E_AGAIN, "another scheduler leads the cluster by the journal %s",
                       s->address);
    }
    /* By the server's clock it rises above that of a copy that was put back, too. */
    RU_TRY(ask(s,
               "UPDATE rubato_cluster c SET epoch = greatest(o.epoch + 1,"
               " extract(epoch FROM clock_timestamp())::bigint)"
               " FROM (SELECT epoch FROM rubato_cluster) o RETURNING c.epoch::bigint,"
               " o.epoch::bigint, (SELECT coalesce(max(seq), 0)::bigint FROM rubato_journal)",
               0, NULL, &r, err));
    if (s->ntuples(r) != 1) {
        s->clear(r);
        return RU_FAIL(err, RU_E_DATA, "the journal %s is damaged: rubato_cluster has not one row",
                       s->address);
    }
    bool alone = s->session == 0 || (uint64_t)number(s, r, 0, 1) == s->epoch;
    int64_t seq = number(s, r, 0, 2), knew = s->seq;
    s->epoch = (uint64_t)number(s, r, 0, 0);
    s->clear(r);
    if (!alone) {
        (void)snprintf(s->why, sizeof s->why, "another scheduler led");
        hang_up(s);
        return RU_FAIL(err, RU_E_AGAIN, "another scheduler led the cluster by the journal %s",
                       s->address);
    }
    s->leads = seq >= knew;
    s->session = s->backendPID(s->db);
    s->seq = seq;
    return s->leads
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "the journal %s ends at event %lld, and event %lld was written: it is "
                         "an older copy",
                         s->address, (long long)seq, (long long)knew);
}

/* -- the operations ------------------------------------------------------------------------------
 */

static ru_status lead(void *self, uint64_t *epoch, ru_err *err)
{
    store *s = self;
    if (s->leads && (!s->consumeInput(s->db) || s->status(s->db) != CONNECTION_OK)) {
        return lost(s, "the connection broke", err);
    }
    if (!s->ready) {
        RU_TRY(reach(s, err));
    }
    if (!s->leads) {
        ru_status st = take(s, err);
        if (st != RU_OK && st != RU_E_AGAIN && s->ready) {
            (void)snprintf(s->why, sizeof s->why, "it cannot be led");
            hang_up(s); /* it may have the lock */
        }
        RU_TRY(st);
    }
    *epoch = s->epoch;
    return RU_OK;
}

static void put_bytes(ru_text *t, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    char hex[512];
    int64_t n = 0;
    ru_text_put(t, "\"\\\\x");
    for (const unsigned char *p = (const unsigned char *)(text != NULL ? text : ""); *p != 0; p++) {
        hex[n++] = digits[*p >> 4];
        hex[n++] = digits[*p & 15];
        if (n == (int64_t)sizeof hex) {
            ru_text_put_n(t, hex, n);
            n = 0;
        }
    }
    ru_text_put_n(t, hex, n);
    ru_text_put(t, "\"");
}

/* A column of all events as an array of PostgreSQL. */
static void put_column(ru_text *t, const ru_journal_event *events, uint32_t n, uint32_t column)
{
    for (uint32_t k = 0; k < n; k++) {
        const ru_journal_event *e = &events[k];
        const int64_t numbers[] = {e->seq, e->at_ns, e->wall_ns, e->kind,
                                   e->job, e->node,  e->a,       e->b};
        ru_text_put(t, k == 0 ? "{" : ",");
        if (column < RU_ARRAY_LEN(numbers)) {
            ru_text_putf(t, "%lld", (long long)numbers[column]);
        } else {
            put_bytes(t, column == COLUMNS - 1 ? e->text : e->who);
        }
    }
    ru_text_put(t, "}");
}

static ru_status append(void *self, ru_journal_event *events, uint32_t n, ru_err *err)
{
    store *s = self;
    const char *values[COLUMNS];
    ru_arena scratch;
    ru_status st = RU_OK;
    if (!s->leads) {
        return RU_FAIL(err, RU_E_PEER, "the journal %s is not there, so nothing was changed: %s",
                       s->address, s->why);
    }
    RU_CHECK(n > 0 && s->ready);
    ru_arena_init(&scratch, 0);
    for (uint32_t k = 0; k < n; k++) {
        events[k].seq = s->seq + 1 + k;
    }
    for (uint32_t k = 0; k < COLUMNS; k++) {
        ru_text t = ru_text_arena(&scratch);
        put_column(&t, events, n, k);
        values[k] = t.p;
        st = t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for %u events", n) : st;
    }
    st = st != RU_OK
             ? st
             : ask(s,
                   "INSERT INTO rubato_journal(seq,at_ns,wall_ns,kind,job,node,a,b,who,text) "
                   "SELECT * FROM unnest("
                   "$1::bigint[],$2::bigint[],$3::bigint[],$4::bigint[],$5::bigint[],"
                   "$6::bigint[],$7::bigint[],$8::bigint[],$9::bytea[],$10::bytea[])",
                   COLUMNS, values, NULL, err);
    ru_arena_fini(&scratch);
    if (st == RU_OK) {
        s->seq += n;
    } else if (st == RU_E_PEER) {
        return RU_FAIL(err, RU_E_PEER,
                       "the journal %s was lost while this was written: %s; look whether it was "
                       "done before you ask for it again",
                       s->address, s->why);
    }
    return st;
}

static ru_status read_rows(store *s, const PGresult *r, int64_t *seq,
                           ru_status (*fn)(void *arg, const ru_journal_event *e, ru_err *err),
                           void *arg, ru_err *err)
{
    ru_status st = RU_OK;
    for (int k = 0; st == RU_OK && k < s->ntuples(r); k++) {
        const ru_journal_event e = {.seq = number(s, r, k, 0),
                                    .at_ns = number(s, r, k, 1),
                                    .wall_ns = number(s, r, k, 2),
                                    .kind = (uint32_t)number(s, r, k, 3),
                                    .job = number(s, r, k, 4),
                                    .node = number(s, r, k, 5),
                                    .a = number(s, r, k, 6),
                                    .b = number(s, r, k, 7),
                                    .who = s->getvalue(r, k, 8),
                                    .text = s->getvalue(r, k, 9)};
        if (e.seq != *seq + 1) {
            return RU_FAIL(err, RU_E_DATA,
                           "the journal %s is damaged: event %lld is followed by %lld; put back a "
                           "copy of the database",
                           s->address, (long long)*seq, (long long)e.seq);
        }
        *seq = e.seq;
        st = fn(arg, &e, err);
    }
    return st;
}

static ru_status read_all(void *self, int64_t seq,
                          ru_status (*fn)(void *arg, const ru_journal_event *e, ru_err *err),
                          void *arg, ru_err *err)
{
    store *s = self;
    ru_status st = RU_OK;
    char from[32];
    const char *value = from;
    for (int n = ROWS; st == RU_OK && n == ROWS;) {
        PGresult *r;
        if (!s->ready) {
            return RU_FAIL(err, RU_E_PEER, "the journal %s is not there: %s", s->address, s->why);
        }
        (void)snprintf(from, sizeof from, "%lld", (long long)seq);
        RU_TRY(ask(s,
                   "SELECT seq::bigint,at_ns::bigint,wall_ns::bigint,kind::bigint,job::bigint,"
                   "node::bigint,a::bigint,b::bigint,who::bytea,text::bytea FROM rubato_journal "
                   "WHERE seq > $1::bigint"
                   " ORDER BY seq LIMIT 500",
                   1, &value, &r, err));
        n = s->ntuples(r);
        st = read_rows(s, r, &seq, fn, arg, err);
        s->clear(r);
    }
    return st;
}

static void close_store(void *self)
{
    hang_up(self);
}

static const ru_journal_ops ops = {
    .name = "postgres", .append = append, .read = read_all, .lead = lead, .close = close_store};

ru_status rui_journal_postgres(const char *address, const char *folder, ru_arena *arena,
                               ru_journal *out, ru_err *err)
{
    store *s = RU_NEW(arena, store, 1);
    int64_t until = ru_clock_now().ns + open_ns;
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the journal %s", address);
    }
    s->address = address;
    s->folder = folder;
    RU_TRY(load(s, err));
    ru_status st;
    while ((st = reach(s, err)) == RU_E_PEER && ru_clock_now().ns < until) {
        ru_clock_pause(step_ns); /* a server that starts refuses for a while */
    }
    RU_TRY(st);
    *out = (ru_journal){&ops, s};
    return RU_OK;
}

#else

ru_status rui_journal_postgres(const char *address, const char *folder, ru_arena *arena,
                               ru_journal *out, ru_err *err)
{
    (void)address, (void)folder, (void)arena, (void)out;
    return RU_FAIL(err, RU_E_UNSUPPORTED,
                   "Rubato was built without libpq, by which a journal is in PostgreSQL; run "
                   "apt-get install libpq-dev and build it again");
}

#endif
