#include "serve/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/file/file.h"
#include "env/thread.h"
#include "serve/stats.h"

/* BLOCKS: a thread without a core for 45 ms keeps the loop waiting at 60,000 requests a second. */
enum { ENTRIES = 1024, BLOCKS = 16, BLOCK_BYTES = 64 << 10, LINE_BYTES = 2048 };

typedef struct block {
    struct block *next;
    int64_t n;
    char text[BLOCK_BYTES];
} block;

/* The loop formats lines, 0.1 us each, and a thread writes blocks of them: an entry in place of its
 * line is as long, and would go from core to core too. */
typedef struct logger {
    ru_log_file *file; /* NULL: there is no log */
    ru_thread thread;
    block *mine; /* the loop's */
    ru_mutex lock;
    ru_cond more, room;
    block *given, **last; /* for the thread, the oldest first */
    block *free;          /* the last one used is first: it is in a cache */
    bool stop;
    bool failed; /* the thread's */
} logger;

struct rui_journal {
    rui_entry *ring; /* [ENTRIES] */
    uint64_t n, named;
    logger log;
};

static void block_write(logger *g, const block *b)
{
    ru_err err = {0};
    bool lost = ru_log_file_append(g->file, b->text, b->n, &err) != RU_OK;
    if (lost && !g->failed) {
        ru_log(RU_LOG_WARN, "serve", "access_log", "lines are lost: %s", err.text);
    }
    g->failed = lost;
}

static void log_blocks(void *self)
{
    logger *g = self;
    ru_mutex_lock(&g->lock);
    while (g->given != NULL || !g->stop) {
        block *b = g->given;
        if (b == NULL) {
            ru_cond_wait(&g->more, &g->lock);
            continue;
        }
        g->given = b->next;
        g->last = g->given != NULL ? g->last : &g->given;
        ru_mutex_unlock(&g->lock);
        block_write(g, b);
        ru_mutex_lock(&g->lock);
        b->next = g->free;
        g->free = b;
        ru_cond_signal(&g->room);
    }
    ru_mutex_unlock(&g->lock);
}

static ru_status log_open(logger *g, const char *path, ru_arena *arena, ru_err *err)
{
    block *blocks = ru_arena_alloc(arena, BLOCKS * (int64_t)sizeof *blocks, 64);
    if (blocks == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for lines of the access log");
    }
    for (uint32_t k = 0; k < BLOCKS; k++) {
        blocks[k].n = 0;
        blocks[k].next = k + 1 < BLOCKS ? &blocks[k + 1] : NULL;
    }
    g->mine = &blocks[0];
    g->free = &blocks[1];
    g->last = &g->given;
    RU_TRY(ru_log_file_open(path, true, &g->file, err));
    ru_mutex_init(&g->lock);
    ru_cond_init(&g->more);
    ru_cond_init(&g->room);
    return ru_thread_start(&g->thread, "access log", log_blocks, g, err);
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

/* What the loop has goes to the thread. A log that falls behind by all blocks is waited for, as by
 * one that the loop writes; `patient`: not now. false: it was not given. */
static bool log_give(logger *g, bool patient)
{
    ru_mutex_lock(&g->lock);
    bool give = g->free != NULL || !patient;
    if (give) {
        g->mine->next = NULL;
        *g->last = g->mine;
        g->last = &g->mine->next;
        ru_cond_signal(&g->more);
        while (g->free == NULL) {
            ru_cond_wait(&g->room, &g->lock);
        }
        g->mine = g->free;
        g->free = g->mine->next;
        g->mine->n = 0;
    }
    ru_mutex_unlock(&g->lock);
    return give;
}

bool rui_journal_flush(rui_journal *j)
{
    return j->log.mine->n == 0 || log_give(&j->log, true);
}

void rui_journal_close(rui_journal *j)
{
    if (j == NULL || j->log.file == NULL) {
        return;
    }
    logger *g = &j->log;
    if (g->mine->n > 0) {
        (void)log_give(g, false);
    }
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

/* -- lines of the log ---------------------------------------------------------------------------
 * By hand: text of known length is copied as words of the processor. A line takes 95 ns, by
 * ru_text_putf 330 (Zen 5). */

/* Into a buffer that has NUMBER_BYTES left, whatever the digits. */
static char *put_number(char *p, int64_t v)
{
    enum { NUMBER_BYTES = 24 };
    char digits[2 * NUMBER_BYTES] = {0}, *at = digits + NUMBER_BYTES;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    for (; u >= 100; u /= 100) {
        uint32_t two = (uint32_t)(u % 100);
        *--at = (char)('0' + two % 10);
        *--at = (char)('0' + two / 10);
    }
    if (u >= 10) {
        *--at = (char)('0' + u % 10);
        u /= 10;
    }
    *--at = (char)('0' + u);
    if (v < 0) {
        *--at = '-';
    }
    memcpy(p, at, NUMBER_BYTES);
    return p + (digits + NUMBER_BYTES - at);
}

/* As JSON, at most six bytes for each of its own. */
static char *put_text(char *p, const char *s)
{
    size_t n = 0;
    while (s[n] >= ' ' && s[n] <= '~' && s[n] != '"' && s[n] != '\\') {
        n++;
    }
    if (s[n] != '\0') {
        ru_text t = ru_text_into(p, 6 * (int64_t)strlen(s) + 3);
        ru_text_json(&t, ru_str_c(s));
        return p + t.n;
    }
    *p++ = '"';
    memcpy(p, s, n);
    p[n] = '"';
    return p + n + 1;
}

/* At most 1,800 bytes: 1,200 of texts, 300 of numbers, 300 of names. */
static int64_t line(const rui_entry *e, char *into)
{
    char *p = stpcpy(into, "{\"schema\":\"rubato.serve.request/1\",\"at_ns\":");
    p = put_number(p, e->at_ns);
    p = put_text(stpcpy(p, ",\"id\":"), e->id);
    if (e->trace[0] != '\0') { /* hexadecimal digits */
        p = stpcpy(stpcpy(p, ",\"trace\":\""), e->trace);
        p = stpcpy(stpcpy(p, "\",\"parent\":\""), e->parent);
        p = stpcpy(stpcpy(p, "\",\"span\":\""), e->span);
        *p++ = '"';
    }
    p = put_text(stpcpy(p, ",\"method\":"), e->method);
    p = put_text(stpcpy(p, ",\"path\":"), e->path);
    p = put_number(stpcpy(p, ",\"status\":"), e->status);
    p = put_number(stpcpy(p, ",\"bytes_in\":"), e->bytes_in);
    p = put_number(stpcpy(p, ",\"bytes_out\":"), e->bytes_out);
    p = put_number(stpcpy(p, ",\"all_ns\":"), e->all_ns);
    if (e->rows > 0) {
        p = put_number(stpcpy(p, ",\"rows\":"), e->rows);
        p = put_number(stpcpy(p, ",\"parse_ns\":"), e->parse_ns);
    }
    if (e->batch_requests > 0) {
        p = put_number(stpcpy(p, ",\"buffer_ns\":"), e->buffer_ns);
        p = put_number(stpcpy(p, ",\"queue_ns\":"), e->queue_ns);
        p = put_number(stpcpy(p, ",\"compute_ns\":"), e->compute_ns);
        p = put_number(stpcpy(p, ",\"answer_ns\":"), e->answer_ns);
        p = put_number(stpcpy(p, ",\"batch_rows\":"), e->batch_rows);
        p = put_number(stpcpy(p, ",\"batch_requests\":"), e->batch_requests);
        p = stpcpy(stpcpy(p, ",\"why\":\""), rui_stats_reason(e->why));
        *p++ = '"';
    }
    return stpcpy(p, "}\n") - into;
}

static void log_add(logger *g, const rui_entry *e)
{
    if (g->mine->n + LINE_BYTES > BLOCK_BYTES) {
        (void)log_give(g, false);
    }
    g->mine->n += line(e, g->mine->text + g->mine->n);
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
