/* A journal in SQLite: one table, one transaction for each append, WAL with synchronous=FULL. The
 * lock is exclusive for the life of the connection; the kernel gives it up when the process ends.
 * The library is opened with the first journal. */
#include "cluster/journal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "env/file/file.h"

#ifdef RU_HAS_SQLITE3
#include <sqlite3.h>

#define RUI_SQLITE_LIST(X) \
    X(open_v2)             \
    X(close)               \
    X(exec)                \
    X(prepare_v2)          \
    X(step)                \
    X(reset)               \
    X(finalize)            \
    X(bind_int64)          \
    X(bind_text)           \
    X(column_int64)        \
    X(column_text)         \
    X(errmsg)              \
    X(last_insert_rowid)

enum { VERSION = 1 };

typedef struct store {
#define RUI_X(fn) __typeof__(&sqlite3_##fn) fn;
    RUI_SQLITE_LIST(RUI_X)
#undef RUI_X
    sqlite3 *db;
    sqlite3_stmt *insert, *select;
    const char *path;
    const char *copy; /* PATH.copy */
} store;

static ru_status load(store *s, ru_err *err)
{
    void *library = dlopen(RU_SQLITE3_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "a cluster keeps its journal with SQLite, but %s; run apt-get install "
                       "libsqlite3-0",
                       dlerror());
    }
#define RUI_X(fn)                                                                  \
    {                                                                              \
        void *at = dlsym(library, "sqlite3_" #fn);                                 \
        if (at == NULL) {                                                          \
            return RU_FAIL(err, RU_E_UNSUPPORTED, "%s has no function sqlite3_%s", \
                           RU_SQLITE3_SONAME, #fn);                                \
        }                                                                          \
        memcpy(&s->fn, &at, sizeof at);                                            \
    }
    RUI_SQLITE_LIST(RUI_X)
#undef RUI_X
    return RU_OK;
}

static ru_status failed(const store *s, int code, ru_err *err)
{
    int kind = code & 0xff;
    const char *why = s->db != NULL ? s->errmsg(s->db) : "no memory";
    if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED) {
        return RU_FAIL(err, RU_E_AGAIN, "another scheduler uses the journal %s; end it first",
                       s->path);
    }
    if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB) {
        bool copy = s->copy != NULL && ru_path_is_file(s->copy);
        return RU_FAIL(
            err, RU_E_DATA,
            "the journal %s is damaged (%s); move it away with its -wal and -shm%s%s, or "
            "begin with an empty cluster",
            s->path, why, copy ? " and put its last copy there, " : " and put a copy there",
            copy ? s->copy : "");
    }
    ru_status st = kind == SQLITE_FULL || kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY
                       ? RU_E_CREATE
                       : RU_E_IO;
    return RU_FAIL(err, st, "the journal %s cannot be written: %s", s->path, why);
}

static ru_status run(const store *s, const char *sql, ru_err *err)
{
    int code = s->exec(s->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? RU_OK : failed(s, code, err);
}

static int insert(const store *s, ru_journal_event *e)
{
    const int64_t numbers[] = {e->at_ns, e->wall_ns, e->kind, e->job, e->node, e->a, e->b};
    const char *texts[] = {e->who, e->text};
    int at = 1, code = SQLITE_OK;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(numbers) && code == SQLITE_OK; k++) {
        code = s->bind_int64(s->insert, at++, numbers[k]);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(texts) && code == SQLITE_OK; k++) {
        code = s->bind_text(s->insert, at++, texts[k] != NULL ? texts[k] : "", -1, SQLITE_STATIC);
    }
    code = code == SQLITE_OK ? s->step(s->insert) : code;
    (void)s->reset(s->insert);
    e->seq = s->last_insert_rowid(s->db);
    return code;
}

static ru_status append(void *self, ru_journal_event *events, uint32_t n, ru_err *err)
{
    store *s = self;
    RU_TRY(run(s, "BEGIN IMMEDIATE", err));
    int code = SQLITE_DONE;
    for (uint32_t k = 0; k < n && code == SQLITE_DONE; k++) {
        code = insert(s, &events[k]);
    }
    ru_status st = code == SQLITE_DONE ? run(s, "COMMIT", err) : failed(s, code, err);
    if (st != RU_OK) {
        (void)s->exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return st;
}

static const char *text_of(const store *s, int column)
{
    const char *text = (const char *)s->column_text(s->select, column);
    return text != NULL ? text : "";
}

static ru_status read_all(void *self, int64_t seq,
                          ru_status (*fn)(void *arg, const ru_journal_event *e, ru_err *err),
                          void *arg, ru_err *err)
{
    store *s = self;
    ru_status st = RU_OK;
    int code = s->bind_int64(s->select, 1, seq);
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = s->step(s->select);
        if (code != SQLITE_ROW) {
            break;
        }
        const ru_journal_event e = {.seq = s->column_int64(s->select, 0),
                                    .at_ns = s->column_int64(s->select, 1),
                                    .wall_ns = s->column_int64(s->select, 2),
                                    .kind = (uint32_t)s->column_int64(s->select, 3),
                                    .job = s->column_int64(s->select, 4),
                                    .node = s->column_int64(s->select, 5),
                                    .a = s->column_int64(s->select, 6),
                                    .b = s->column_int64(s->select, 7),
                                    .who = text_of(s, 8),
                                    .text = text_of(s, 9)};
        st = fn(arg, &e, err);
        if (st != RU_OK) {
            break;
        }
    }
    if (st == RU_OK && code != SQLITE_DONE) {
        st = failed(s, code, err);
    }
    (void)s->reset(s->select);
    return st;
}

/* The name of a file as SQL has it. */
static void put_name(ru_text *t, const char *name)
{
    ru_text_put(t, "'");
    for (; *name != 0; name++) {
        ru_text_putf(t, "%s%c", *name == '\'' ? "'" : "", *name);
    }
    ru_text_put(t, "'");
}

static ru_status copied(const store *s, const char *path, ru_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool kept = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return kept && rename(path, s->copy) == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_IO, "the copy %s cannot be written: %s", path, strerror(errno));
}

static ru_status snapshot(void *self, ru_err *err)
{
    store *s = self;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text sql = ru_text_arena(&scratch);
    const char *path = ru_arena_printf(&scratch, "%s.new", s->copy);
    ru_text_put(&sql, "VACUUM INTO ");
    put_name(&sql, path != NULL ? path : "");
    ru_status st = RU_FAIL(err, RU_E_MEM, "no memory to copy the journal");
    if (path != NULL && !sql.cut) {
        (void)unlink(path); /* of who was killed while it wrote */
        mode_t before = umask(077);
        st = run(s, sql.p, err);
        (void)umask(before);
        st = st == RU_OK ? copied(s, path, err) : st;
    }
    ru_arena_fini(&scratch);
    return st;
}

static void close_store(void *self)
{
    store *s = self;
    if (s->db != NULL) {
        (void)s->finalize(s->insert);
        (void)s->finalize(s->select);
        (void)s->close(s->db);
        s->db = NULL;
    }
}

static const ru_journal_ops ops = {.name = "sqlite",
                                   .append = append,
                                   .read = read_all,
                                   .snapshot = snapshot,
                                   .close = close_store};

static ru_status check_version(store *s, ru_err *err)
{
    sqlite3_stmt *q = NULL;
    int code = s->prepare_v2(s->db, "PRAGMA user_version", -1, &q, NULL);
    code = code == SQLITE_OK ? s->step(q) : code;
    int64_t version = code == SQLITE_ROW ? s->column_int64(q, 0) : -1;
    (void)s->finalize(q);
    if (code != SQLITE_ROW) {
        return failed(s, code, err);
    }
    return version <= VERSION
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "the journal %s has version %lld, this program knows version %d; start "
                         "the program that wrote it",
                         s->path, (long long)version, VERSION);
}

static ru_status prepare(store *s, ru_err *err)
{
    RU_TRY(run(s, "PRAGMA locking_mode=EXCLUSIVE", err));
    RU_TRY(check_version(s, err));
    RU_TRY(run(s,
               "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; BEGIN EXCLUSIVE;"
               "CREATE TABLE IF NOT EXISTS events(seq INTEGER PRIMARY KEY AUTOINCREMENT,"
               " at_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL, kind INTEGER NOT NULL,"
               " job INTEGER NOT NULL, node INTEGER NOT NULL, a INTEGER NOT NULL,"
               " b INTEGER NOT NULL, who TEXT NOT NULL, text TEXT NOT NULL);"
               "PRAGMA user_version=1; COMMIT",
               err));
    int code = s->prepare_v2(s->db,
                             "INSERT INTO events(at_ns,wall_ns,kind,job,node,a,b,who,text)"
                             " VALUES(?,?,?,?,?,?,?,?,?)",
                             -1, &s->insert, NULL);
    code = code == SQLITE_OK ? s->prepare_v2(s->db,
                                             "SELECT seq,at_ns,wall_ns,kind,job,node,a,b,who,text"
                                             " FROM events WHERE seq>? ORDER BY seq",
                                             -1, &s->select, NULL)
                             : code;
    return code == SQLITE_OK ? RU_OK : failed(s, code, err);
}

ru_status ru_journal_sqlite(const char *path, ru_arena *arena, ru_journal *out, ru_err *err)
{
    store *s = RU_NEW(arena, store, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the journal %s", path);
    }
    s->path = path;
    s->copy = ru_arena_printf(arena, "%s.copy", path);
    if (s->copy == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the journal %s", path);
    }
    RU_TRY(load(s, err));
    mode_t before = umask(077); /* SQLite gives its other files the mode of this one */
    int code = s->open_v2(path, &s->db,
                          SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE, NULL);
    (void)umask(before);
    ru_status st = code == SQLITE_OK ? prepare(s, err) : failed(s, code, err);
    if (st != RU_OK) {
        close_store(s);
        return st;
    }
    *out = (ru_journal){&ops, s};
    return RU_OK;
}

#else

ru_status ru_journal_sqlite(const char *path, ru_arena *arena, ru_journal *out, ru_err *err)
{
    (void)path, (void)arena, (void)out;
    return RU_FAIL(err, RU_E_UNSUPPORTED,
                   "Rubato was built without SQLite, in which a cluster keeps its journal; run "
                   "apt-get install libsqlite3-dev and build it again");
}

#endif
