/* The recorder's file side: every flush_ns the writer thread drains all rings into blocks. A
 * failing disk stops the writing with one log line; recording and training go on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "env/clock.h"
#include "trace/record/format.h"
#include "trace/record/recorder_impl.h"

void rui_writer_give_up(ru_recorder *r, const ru_err *err)
{
    ru_mutex_lock(&r->mutex);
    r->failed = true;
    ru_mutex_unlock(&r->mutex);
    ru_log(RU_LOG_WARN, "trace", "write_stopped",
           "recording has stopped, and the run continues: %s", err->text);
}

/* Append the block whose payload stands in buffer + RUI_TRACE_BLOCK_BYTES. */
static void block_write(ru_recorder *r, rui_trace_block kind, uint32_t thread, uint32_t size_bytes)
{
    if (r->failed) {
        return;
    }
    const uint8_t *payload = r->buffer + RUI_TRACE_BLOCK_BYTES;
    uint32_t w[6] = {RUI_TRACE_BLOCK_MAGIC,
                     (uint32_t)kind,
                     thread,
                     size_bytes,
                     ru_crc32c(0, payload, size_bytes),
                     0};
    memcpy(r->buffer, w, sizeof w);
    ru_err err;
    int64_t total = RUI_TRACE_BLOCK_BYTES + (int64_t)size_bytes;
    if (ru_log_file_append(r->file, r->buffer, total, &err) != RU_OK) {
        rui_writer_give_up(r, &err);
        return;
    }
    ru_mutex_lock(&r->mutex);
    r->bytes_written += total;
    ru_mutex_unlock(&r->mutex);
    r->segments[r->segment % REC_SEGMENTS_MAX].bytes += total;
}

static void names_write(ru_recorder *r)
{
    enum { ROOM = REC_BUFFER_BYTES - RUI_TRACE_BLOCK_BYTES };
    uint8_t *p = r->buffer + RUI_TRACE_BLOCK_BYTES;
    uint32_t at = 0;
    ru_mutex_lock(&r->mutex);
    while (r->names_written < r->n_names && at + 4 + 2 * 255 <= ROOM) {
        uint16_t id = (uint16_t)r->names_written++;
        if (id == 0) {
            continue;
        }
        size_t c = strlen(r->names[id].category), n = strlen(r->names[id].name);
        memcpy(p + at, &id, 2);
        p[at + 2] = (uint8_t)c;
        p[at + 3] = (uint8_t)n;
        memcpy(p + at + 4, r->names[id].category, c);
        memcpy(p + at + 4 + c, r->names[id].name, n);
        at += 4 + (uint32_t)(c + n);
    }
    ru_mutex_unlock(&r->mutex);
    if (at > 0) {
        block_write(r, RUI_TRACE_NAMES, 0, at);
    }
}

static void node_write(ru_recorder *r)
{
    ru_mutex_lock(&r->mutex);
    uint64_t node = r->node_written ? 0 : r->node;
    r->node_written = true;
    ru_mutex_unlock(&r->mutex);
    if (node != 0) {
        memcpy(r->buffer + RUI_TRACE_BLOCK_BYTES, &node, sizeof node);
        block_write(r, RUI_TRACE_NODE, 0, sizeof node);
    }
}

static void meta_write(ru_recorder *r)
{
    uint8_t *p = r->buffer + RUI_TRACE_BLOCK_BYTES;
    for (;;) {
        ru_mutex_lock(&r->mutex);
        uint32_t k = r->meta_written;
        size_t n = 0;
        if (k < r->n_meta) {
            size_t key = strlen(r->meta[k].key), value = strlen(r->meta[k].value);
            memcpy(p, r->meta[k].key, key + 1);
            memcpy(p + key + 1, r->meta[k].value, value);
            n = key + 1 + value;
            r->meta_written++;
        }
        ru_mutex_unlock(&r->mutex);
        if (n == 0) {
            return;
        }
        block_write(r, RUI_TRACE_META, 0, (uint32_t)n);
    }
}

static void peers_write(ru_recorder *r)
{
    _Static_assert(sizeof(rec_peer) == RUI_TRACE_PEER_BYTES, "written as it stands in memory");
    ru_mutex_lock(&r->mutex);
    uint32_t n = r->n_peers;
    memcpy(r->buffer + RUI_TRACE_BLOCK_BYTES, r->peers, n * sizeof *r->peers);
    r->n_peers = 0;
    ru_mutex_unlock(&r->mutex);
    if (n > 0) {
        block_write(r, RUI_TRACE_PEER, 0, n * (uint32_t)sizeof *r->peers);
    }
}

static void thread_write(ru_recorder *r, rec_thread *t)
{
    uint8_t *p = r->buffer + RUI_TRACE_BLOCK_BYTES;
    bool name_due;
    ru_mutex_lock(&r->mutex);
    size_t n = strlen(t->name);
    name_due = !t->name_written && n > 0;
    memcpy(p, t->name, n);
    t->name_written = true;
    ru_mutex_unlock(&r->mutex);
    if (name_due) {
        block_write(r, RUI_TRACE_THREAD, t->index, (uint32_t)n);
    }
    enum { RECORDS_MAX = (REC_BUFFER_BYTES - RUI_TRACE_BLOCK_BYTES) / sizeof(ru_record) };
    uint32_t got;
    for (const void *src; (src = ru_spsc_peek(&t->ring, RECORDS_MAX, &got)) != NULL && got > 0;) {
        memcpy(p, src, got * sizeof(ru_record));
        ru_spsc_drop(&t->ring, got);
        t->written += got;
        block_write(r, RUI_TRACE_RECORDS, t->index, got * (uint32_t)sizeof(ru_record));
    }
    int64_t lost = (int64_t)ru_spsc_lost(&t->ring);
    if (lost != t->lost_written) {
        memcpy(p, &lost, 8);
        t->lost_written = lost;
        block_write(r, RUI_TRACE_DROPPED, t->index, 8);
    }
}

/* One round: all names, then every ring that exists now. A name is interned before its first record
 * is pushed, so at most the records of one round can stand before their names in the file; the
 * reader does not mind. */
static void drain(ru_recorder *r)
{
    names_write(r);
    node_write(r);
    meta_write(r);
    peers_write(r);
    ru_mutex_lock(&r->mutex);
    uint32_t n = r->n_threads;
    ru_mutex_unlock(&r->mutex);
    for (uint32_t i = 0; i < n; i++) {
        thread_write(r, r->threads[i]);
    }
}

static void clock_write(ru_recorder *r)
{
    int64_t pair[2] = {ru_clock_wall_ns(), ru_rec_now()};
    memcpy(r->buffer + RUI_TRACE_BLOCK_BYTES, pair, sizeof pair);
    block_write(r, RUI_TRACE_CLOCK, 0, sizeof pair);
}

/* -- segments -------------------------------------------------------------------------------------
 */

void rui_segment_path(const ru_recorder *r, uint32_t s, char *into)
{
    int n = s == 0 ? snprintf(into, REC_PATH_MAX + 32, "%s.trace", r->base)
                   : snprintf(into, REC_PATH_MAX + 32, "%s+%u.trace", r->base, s);
    RU_CHECK(n > 0 && n < REC_PATH_MAX + 32);
}

static ru_status header_write(ru_recorder *r, ru_err *err)
{
    uint8_t h[RUI_TRACE_HEADER_BYTES] = {0};
    uint32_t version = RUI_TRACE_VERSION;
    int64_t wall = r->driven ? 0 : ru_clock_wall_ns(), mono = r->driven ? 0 : ru_rec_now();
    memcpy(h, RUI_TRACE_MAGIC, 8);
    memcpy(h + 8, &version, 4);
    memcpy(h + 12, &r->rank, 4);
    memcpy(h + 16, &wall, 8);
    memcpy(h + 24, &mono, 8);
    memcpy(h + 32, r->process, RUI_TRACE_PROCESS_BYTES);
    memcpy(h + 32 + RUI_TRACE_PROCESS_BYTES, &r->segment, 4);
    r->segments[r->segment % REC_SEGMENTS_MAX] = (rec_segment){.bytes = sizeof h};
    return ru_log_file_append(r->file, h, sizeof h, err);
}

/* Begin the next segment; it says all names again, so that it can be read alone. */
static ru_status next_segment(ru_recorder *r, ru_err *err)
{
    char path[REC_PATH_MAX + 32];
    rec_segment *old = &r->segments[r->segment % REC_SEGMENTS_MAX];
    old->end_ns = r->driven ? INT64_MAX : ru_rec_now();
    r->segments_bytes += old->bytes;
    ru_log_file_close(r->file);
    r->file = NULL;
    rui_segment_path(r, r->segment + 1, path);
    RU_TRY(ru_log_file_open(path, false, &r->file, err));
    ru_mutex_lock(&r->mutex);
    r->segment++;
    r->names_written = r->meta_written = 0;
    r->node_written = false;
    for (uint32_t i = 0; i < r->n_threads; i++) {
        r->threads[i]->name_written = false;
        r->threads[i]->lost_written = 0;
    }
    ru_mutex_unlock(&r->mutex);
    return header_write(r, err);
}

static void rotate(ru_recorder *r)
{
    ru_err err;
    if (r->failed || r->segments[r->segment % REC_SEGMENTS_MAX].bytes < r->segment_max) {
        return;
    }
    if (next_segment(r, &err) != RU_OK) {
        rui_writer_give_up(r, &err);
        return;
    }
    while (r->oldest < r->segment && (r->segments_bytes + r->segment_max > r->bytes_max ||
                                      r->segment - r->oldest >= REC_SEGMENTS_MAX - 1)) {
        char path[REC_PATH_MAX + 32];
        rui_segment_path(r, r->oldest, path);
        if (ru_path_remove(path, &err) != RU_OK) {
            ru_log(RU_LOG_WARN, "trace", "segment", "%s", err.text);
        }
        r->segments_bytes -= r->segments[r->oldest % REC_SEGMENTS_MAX].bytes;
        ru_mutex_lock(&r->mutex);
        r->oldest++;
        ru_mutex_unlock(&r->mutex);
    }
}

void rui_writer_drain(ru_recorder *r)
{
    if (r->file != NULL) {
        drain(r);
        rotate(r);
    }
}

/* -- what others ask for --------------------------------------------------------------------------
 */

static void save_all(ru_recorder *r)
{
    for (;;) {
        rec_save s = {0};
        ru_mutex_lock(&r->mutex);
        if (r->n_saves > 0) {
            s = r->saves[0];
            memmove(r->saves, r->saves + 1, --r->n_saves * sizeof *r->saves);
        }
        ru_mutex_unlock(&r->mutex);
        if (s.dir == NULL) {
            return;
        }
        ru_err err;
        ru_status st = rui_save(r, &s, &err);
        if (st == RU_E_CREATE && !r->failed) { /* the trace stands on the same disk */
            rui_writer_give_up(r, &err);
        } else if (st != RU_OK && !r->failed) {
            ru_log(RU_LOG_WARN, "trace", "window", "the window %s cannot be saved: %s", s.dir,
                   err.text);
        }
        ru_mutex_lock(&r->mutex);
        r->saves_done++;
        r->saves_failed += st != RU_OK;
        ru_mutex_unlock(&r->mutex);
        free(s.dir);
    }
}

static void append_all(ru_recorder *r)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    for (bool more = true; more;) {
        rec_append a = {0};
        ru_mutex_lock(&r->mutex);
        more = r->n_appends > 0;
        if (more) {
            a = r->appends[0];
            memmove(r->appends, r->appends + 1, --r->n_appends * sizeof *r->appends);
        }
        ru_mutex_unlock(&r->mutex);
        ru_err err;
        if (more && !r->failed && rui_append(&a, &arena, &err) != RU_OK) {
            rui_writer_give_up(r, &err);
        }
        free(a.path);
        free(a.data);
    }
    ru_arena_fini(&arena);
}

static void writer_main(void *arg)
{
    enum { ROUNDS_PER_CLOCK = 100 };
    ru_recorder *r = arg;
    for (int64_t round = 1;; round++) {
        ru_mutex_lock(&r->mutex);
        if (!r->stop && r->n_saves == 0 && r->n_appends < REC_APPENDS_MAX / 2 &&
            r->sync_asked == r->sync_done) {
            (void)ru_cond_wait_for(&r->cond, &r->mutex, r->flush_ns);
        }
        bool stop = r->stop;
        bool told = r->told; /* then nobody writes `why` any more */
        uint64_t asked = r->sync_asked;
        ru_mutex_unlock(&r->mutex);
        drain(r);
        if (told && !r->failed) {
            rui_writer_give_up(r, &r->why);
        }
        save_all(r);
        append_all(r);
        if (round % ROUNDS_PER_CLOCK == 0) {
            clock_write(r);
        }
        rotate(r);
        ru_mutex_lock(&r->mutex);
        r->sync_done = asked;
        ru_cond_broadcast(&r->synced);
        ru_mutex_unlock(&r->mutex);
        if (stop) {
            return;
        }
    }
}

/* rank<k>; where that is to stay, rank<k>-2 and so on. */
static ru_status choose_base(ru_recorder *r, const ru_recorder_options *opt, ru_err *err)
{
    char path[REC_PATH_MAX + 32];
    int n = snprintf(r->base, sizeof r->base, "%s/rank%u", opt->dir, opt->rank);
    for (uint32_t k = 2; opt->keep_old && n > 0 && n < REC_PATH_MAX; k++) {
        rui_segment_path(r, 0, path);
        if (!ru_path_exists(path)) {
            break;
        }
        n = snprintf(r->base, sizeof r->base, "%s/rank%u-%u", opt->dir, opt->rank, k);
    }
    if (n < 0 || n >= REC_PATH_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "the trace folder's name is too long: %s", opt->dir);
    }
    return RU_OK;
}

ru_status rui_writer_start(ru_recorder *r, const ru_recorder_options *opt, ru_err *err)
{
    char path[REC_PATH_MAX + 32];
    const char *process = opt->process != NULL ? opt->process : "rubato";
    size_t n = strlen(process);
    memcpy(r->process, process, n < RUI_TRACE_PROCESS_BYTES ? n : RUI_TRACE_PROCESS_BYTES);
    r->rank = opt->rank;
    RU_TRY(choose_base(r, opt, err));
    RU_TRY(ru_dir_make(opt->dir, err));
    rui_segment_path(r, 0, path);
    RU_TRY(ru_log_file_open(path, false, &r->file, err));
    RU_TRY(header_write(r, err));
    return r->driven ? RU_OK : ru_thread_start(&r->writer, "rubato-trace", writer_main, r, err);
}

void rui_writer_stop(ru_recorder *r)
{
    if (r->driven) {
        rui_writer_drain(r);
    }
    if (r->file == NULL || (!r->driven && !r->writer.started)) {
        return;
    }
    if (!r->driven) {
        ru_mutex_lock(&r->mutex);
        r->stop = true;
        ru_cond_signal(&r->cond);
        ru_mutex_unlock(&r->mutex);
        ru_thread_join(&r->writer);
    }
    int64_t totals[2] = {0, 0};
    for (uint32_t i = 0; i < r->n_threads; i++) {
        totals[0] += r->threads[i]->written;
        totals[1] += (int64_t)ru_spsc_lost(&r->threads[i]->ring);
    }
    memcpy(r->buffer + RUI_TRACE_BLOCK_BYTES, totals, sizeof totals);
    block_write(r, RUI_TRACE_END, 0, sizeof totals);
    ru_err err;
    if (!r->failed && ru_log_file_sync(r->file, &err) != RU_OK) {
        rui_writer_give_up(r, &err);
    }
}
