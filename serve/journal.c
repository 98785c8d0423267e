#include "serve/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/ring.h"
#include "env/file/file.h"
#include "env/thread.h"
#include "serve/stats.h"

/* LOGGED: a thread without a core for 30 ms keeps the loop waiting at 60,000 requests a second. */
enum { ENTRIES = 1024, LOGGED = 2048, HELD_BYTES = 64 << 10, LINE_BYTES = 2048 };

/* Formatting and writing a line take 1.1 us, which the loop leaves to a thread. */
typedef struct logger {
    ru_log_file *file; /* NULL: there is no log */
    ru_thread thread;
    ru_mutex lock;
    ru_cond more, room;
    bool due, stop;
    ru_spsc ring; /* of rui_entry */
    char held[HELD_BYTES];
    bool failed;
} logger;

struct rui_journal {
    rui_entry *ring; /* [ENTRIES] */
    uint64_t n, named;
    logger log;
};

static void drain(logger *g);

static void log_lines(void *self)
{
    logger *g = self;
    bool stop = false;
    while (!stop) {
        ru_mutex_lock(&g->lock);
        while (!g->due && !g->stop) {
            ru_cond_wait(&g->more, &g->lock);
        }
        g->due = false;
        stop = g->stop;
        ru_mutex_unlock(&g->lock);
        drain(g);
    }
}

static ru_status log_open(logger *g, const char *path, ru_arena *arena, ru_err *err)
{
    rui_entry *slots = RU_NEW(arena, rui_entry, LOGGED);
    if (slots == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for lines of the access log");
    }
    RU_TRY(ru_log_file_open(path, true, &g->file, err));
    ru_spsc_init(&g->ring, slots, LOGGED, sizeof *slots);
    ru_mutex_init(&g->lock);
    ru_cond_init(&g->more);
    ru_cond_init(&g->room);
    return ru_thread_start(&g->thread, "access log", log_lines, g, err);
}

ru_status rui_journal_open(const char *path, ru_arena *arena, rui_journal **out, ru_err *err)
{
    rui_journal *j = RU_NEW(arena, rui_journal, 1);
    rui_entry *ring = RU_NEW(arena, rui_entry, ENTRIES);
    if (j == NULL || ring == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the journal of requests");
    }
    j->ring = ring;
    *out = j; /* also where its log does not open: who closes it ends what began */
    return path != NULL ? log_open(&j->log, path, arena, err) : RU_OK;
}

void rui_journal_flush(rui_journal *j)
{
    ru_mutex_lock(&j->log.lock);
    j->log.due = true;
    ru_cond_signal(&j->log.more);
    ru_mutex_unlock(&j->log.lock);
}

void rui_journal_close(rui_journal *j)
{
    if (j == NULL || j->log.file == NULL) {
        return;
    }
    logger *g = &j->log;
    ru_mutex_lock(&g->lock);
    g->stop = true;
    ru_cond_signal(&g->more);
    ru_mutex_unlock(&g->lock);
    ru_thread_join(&g->thread);
    ru_cond_fini(&g->room);
    ru_cond_fini(&g->more);
    ru_mutex_fini(&g->lock);
    ru_log_file_close(g->file);
    g->file = NULL;
}

void rui_journal_name(rui_journal *j, char id[64])
{
    ru_text t = ru_text_into(id, 64);
    ru_text_putf(&t, "#%llu", (unsigned long long)++j->named);
}

/* By one format: a key at a time takes twice as long. */
static void put(const rui_entry *e, ru_text *t)
{
    ru_text_putf(
        t, "{\"schema\":\"rubato.serve.request/1\",\"at_ns\":%lld,\"id\":", (long long)e->at_ns);
    ru_text_json(t, ru_str_c(e->id));
    if (e->trace[0] != '\0') { /* hexadecimal digits */
        ru_text_putf(t, ",\"trace\":\"%s\",\"parent\":\"%s\",\"span\":\"%s\"", e->trace, e->parent,
                     e->span);
    }
    ru_text_put(t, ",\"method\":");
    ru_text_json(t, ru_str_c(e->method));
    ru_text_put(t, ",\"path\":");
    ru_text_json(t, ru_str_c(e->path));
    ru_text_putf(t, ",\"status\":%u,\"bytes_in\":%lld,\"bytes_out\":%lld,\"all_ns\":%lld",
                 e->status, (long long)e->bytes_in, (long long)e->bytes_out, (long long)e->all_ns);
    if (e->rows > 0) {
        ru_text_putf(t, ",\"rows\":%u,\"parse_ns\":%lld", e->rows, (long long)e->parse_ns);
    }
    if (e->batch_requests > 0) {
        ru_text_putf(t,
                     ",\"buffer_ns\":%lld,\"queue_ns\":%lld,\"compute_ns\":%lld,\"answer_ns\":%lld,"
                     "\"batch_rows\":%u,\"batch_requests\":%u,\"why\":\"%s\"",
                     (long long)e->buffer_ns, (long long)e->queue_ns, (long long)e->compute_ns,
                     (long long)e->answer_ns, e->batch_rows, e->batch_requests,
                     rui_stats_reason(e->why));
    }
    ru_text_put(t, "}");
}

static void lines_write(logger *g, const ru_text *lines)
{
    ru_err err = {0};
    if (lines->n == 0) {
        return;
    }
    bool lost = ru_log_file_append(g->file, g->held, lines->n, &err) != RU_OK;
    if (lost && !g->failed) {
        ru_log(RU_LOG_WARN, "serve", "access_log", "lines are lost: %s", err.text);
    }
    g->failed = lost;
}

/* All that is there, in blocks. */
static void drain(logger *g)
{
    uint32_t n = 0;
    ru_text lines = ru_text_into(g->held, HELD_BYTES);
    for (const rui_entry *e; (e = ru_spsc_peek(&g->ring, LOGGED / 8, &n)) != NULL && n > 0;) {
        for (uint32_t k = 0; k < n; k++) {
            if (lines.n + LINE_BYTES > HELD_BYTES) {
                lines_write(g, &lines);
                lines = ru_text_into(g->held, HELD_BYTES);
            }
            put(&e[k], &lines);
            ru_text_put(&lines, "\n");
        }
        ru_mutex_lock(&g->lock);
        ru_spsc_drop(&g->ring, n);
        ru_cond_signal(&g->room);
        ru_mutex_unlock(&g->lock);
    }
    lines_write(g, &lines);
}

/* A log that falls behind by all of its ring is waited for, as by one that the loop writes. */
static void log_add(logger *g, const rui_entry *e)
{
    uint64_t used = ru_spsc_used(&g->ring);
    if (used == LOGGED / 4 || used == LOGGED) {
        ru_mutex_lock(&g->lock);
        g->due = true;
        ru_cond_signal(&g->more);
        while (!ru_spsc_room(&g->ring, 1)) {
            ru_cond_wait(&g->room, &g->lock);
        }
        ru_mutex_unlock(&g->lock);
    }
    memcpy(ru_spsc_place(&g->ring), e, sizeof *e);
    ru_spsc_put(&g->ring);
}

bool rui_journal_add(rui_journal *j, const rui_entry *e)
{
    if (e->id[0] != '\0') { /* others would push them out */
        j->ring[j->n++ % ENTRIES] = *e;
    }
    if (j->log.file != NULL) {
        log_add(&j->log, e);
    }
    return j->log.file != NULL;
}

static int by_time(const void *a, const void *b)
{
    const rui_entry *x = *(const rui_entry *const *)a, *y = *(const rui_entry *const *)b;
    return x->all_ns != y->all_ns ? (x->all_ns < y->all_ns ? -1 : 1) : 0;
}

static void put_part(const ru_tell *o, const char *what, int64_t ns)
{
    char key[32];
    ru_text k = ru_text_into(key, sizeof key);
    ru_text_putf(&k, "%s_s", what);
    ru_tell_ns(o, key, (double)ns);
    ru_text_putf(o->text, "  %-10s %10.3f ms   ", what, (double)ns * 1e-6);
}

static void explain(const rui_entry *e, const ru_tell *o)
{
    ru_text *t = o->text;
    static const char *const because[RU_SERVE_REASONS] = {
        [RU_SERVE_FULL] = "it was full",
        [RU_SERVE_TIMEOUT] = "the delay of its buffer was over",
        [RU_SERVE_DUE] = "a request in it was nearly due",
        [RU_SERVE_DRAIN] = "the server stopped or had a new table of buffers",
        [RU_SERVE_IDLE] = "an instance was free"};
    ru_text_putf(t, "request %s: %s %s, answered %u after %.3f ms", e->id, e->method, e->path,
                 e->status, (double)e->all_ns * 1e-6);
    ru_tell_str(o, "request", e->id);
    ru_tell_str(o, "method", e->method);
    ru_tell_str(o, "path", e->path);
    ru_tell_i64(o, "status", e->status);
    ru_tell_ns(o, "took_s", (double)e->all_ns);
    ru_tell_str(o, "trace", e->trace[0] != '\0' ? e->trace : NULL);
    ru_tell_i64(o, "received_bytes", e->bytes_in);
    ru_tell_i64(o, "rows", e->rows);
    ru_text_putf(t, e->trace[0] != '\0' ? ", trace %s\n" : "\n", e->trace);
    put_part(o, "parsed", e->rows > 0 ? e->parse_ns : e->all_ns);
    ru_text_putf(t, "%lld bytes, %u rows\n", (long long)e->bytes_in, e->rows);
    if (e->batch_requests == 0) {
        ru_text_put(t, "  ");
        ru_tell_note(o, "note", "it was in no batch");
        return;
    }
    ru_tell_i64(o, "batch_rows", e->batch_rows);
    ru_tell_i64(o, "batch_requests", e->batch_requests);
    ru_tell_str(o, "left_because", because[e->why]);
    ru_tell_i64(o, "sent_bytes", e->bytes_out);
    put_part(o, "buffered", e->buffer_ns);
    ru_text_putf(t, "its batch of %u row%s (%u request%s) left because %s\n", e->batch_rows,
                 e->batch_rows == 1 ? "" : "s", e->batch_requests,
                 e->batch_requests == 1 ? "" : "s", because[e->why]);
    put_part(o, "queued", e->queue_ns);
    ru_text_put(t, "until a thread had the batch\n");
    put_part(o, "computed", e->compute_ns);
    ru_text_putf(t, "%u row%s at once\n", e->batch_rows, e->batch_rows == 1 ? "" : "s");
    put_part(o, "answered", e->answer_ns);
    ru_text_putf(t, "%lld bytes\n", (long long)e->bytes_out);
}

static const rui_entry *at_quantile(const rui_entry *const *sorted, uint32_t n, double percent)
{
    uint32_t at = (uint32_t)(percent / 100 * n);
    return sorted[at < n ? at : n - 1];
}

bool rui_journal_explain(const rui_journal *j, ru_str which, const ru_tell *o)
{
    ru_text *t = o->text;
    uint32_t held = (uint32_t)(j->n < ENTRIES ? j->n : ENTRIES), n = 0;
    const rui_entry *sorted[ENTRIES], *found = NULL;
    double percent = 0;
    for (uint32_t k = 0; k < held; k++) {
        const rui_entry *e = &j->ring[(j->n - held + k) % ENTRIES];
        found = ru_str_eq_c(which, e->id) ? e : found;
        if (e->status == 200 && e->batch_requests > 0) {
            sorted[n++] = e;
        }
    }
    qsort(sorted, n, sizeof *sorted, by_time);
    bool quantile = which.n > 1 && which.p[0] == 'p' &&
                    ru_str_f64(ru_str_n(which.p + 1, which.n - 1), &percent) && percent >= 0 &&
                    percent <= 100;
    if (found == NULL && quantile && n > 0) {
        found = at_quantile(sorted, n, percent);
    }
    if (found == NULL) {
        ru_text_putf(t,
                     quantile ? "no infer request has been answered with outputs yet; send one, "
                                "then ask for %.*s again"
                              : "no request '%.*s' is among the last %u; its id stands in the "
                                "field X-Request-Id of its answer",
                     (int)(which.n < 64 ? which.n : 64), which.p, (uint32_t)ENTRIES);
        return false;
    }
    explain(found, o);
    if (n > 0) {
        ru_tell_i64(o, "answers", n);
        ru_tell_ns(o, "p50_s", (double)at_quantile(sorted, n, 50)->all_ns);
        ru_tell_ns(o, "p90_s", (double)at_quantile(sorted, n, 90)->all_ns);
        ru_tell_ns(o, "p99_s", (double)at_quantile(sorted, n, 99)->all_ns);
        ru_text_putf(t,
                     "of the last %u answers with outputs: p50 %.3f ms, p90 %.3f ms, p99 %.3f "
                     "ms\n",
                     n, (double)at_quantile(sorted, n, 50)->all_ns * 1e-6,
                     (double)at_quantile(sorted, n, 90)->all_ns * 1e-6,
                     (double)at_quantile(sorted, n, 99)->all_ns * 1e-6);
    }
    return true;
}
