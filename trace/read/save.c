/* A window of what was recorded, as a trace of its own: the segments are read back, and of their
 * records those kept that touch the window. All else that they say is copied. */
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "trace/read/read_impl.h"
#include "trace/record/recorder_impl.h"

typedef struct window {
    ru_out *out;
    const rec_save *save;
    bool begun;                 /* its header is written */
    bool kept[REC_THREADS_MAX]; /* of each thread: the record before */
    int64_t records;
    uint8_t *buffer; /* [RUI_TRACE_PAYLOAD_MAX] */
} window;

static ru_status put_block(window *w, uint32_t kind, uint32_t thread, const void *payload,
                           uint32_t size_bytes, ru_err *err)
{
    uint32_t head[6] = {
        RUI_TRACE_BLOCK_MAGIC, kind, thread, size_bytes, ru_crc32c(0, payload, size_bytes), 0};
    RU_TRY(ru_out_write(w->out, head, sizeof head, err));
    return ru_out_write(w->out, payload, size_bytes, err);
}

static ru_status put_records(window *w, const rui_block *b, ru_err *err)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at + sizeof(ru_record) <= b->size_bytes; at += sizeof(ru_record)) {
        ru_record r;
        memcpy(&r, b->payload + at, sizeof r);
        bool *kept = &w->kept[b->thread];
        if (r.kind != RU_REC_MORE) {
            *kept = r.start_ns <= w->save->to_ns && r.start_ns + r.dur_ns >= w->save->from_ns;
        }
        if (*kept) {
            memcpy(w->buffer + n, &r, sizeof r);
            n += (uint32_t)sizeof r;
        }
    }
    w->records += n / (int64_t)sizeof(ru_record);
    return n == 0 ? RU_OK : put_block(w, RUI_TRACE_RECORDS, b->thread, w->buffer, n, err);
}

static ru_status put_segment(window *w, const ru_map_file *m, ru_err *err)
{
    if (m->size_bytes < RUI_TRACE_HEADER_BYTES) {
        return RU_OK;
    }
    if (!w->begun) {
        uint8_t head[RUI_TRACE_HEADER_BYTES];
        memcpy(head, m->data, sizeof head);
        memset(head + 32 + RUI_TRACE_PROCESS_BYTES, 0, 4); /* it is the first segment */
        RU_TRY(ru_out_write(w->out, head, sizeof head, err));
        w->begun = true;
    }
    rui_block b;
    for (int64_t at = RUI_TRACE_HEADER_BYTES;
         at < m->size_bytes && rui_trace_block_at(m->data, m->size_bytes, at, &b);
         at += RUI_TRACE_BLOCK_BYTES + b.size_bytes) {
        if (b.thread >= REC_THREADS_MAX) {
            continue;
        }
        if (b.kind == RUI_TRACE_RECORDS) {
            RU_TRY(put_records(w, &b, err));
        } else if (b.kind != RUI_TRACE_DROPPED && b.kind != RUI_TRACE_END) {
            RU_TRY(put_block(w, b.kind, b.thread, b.payload, b.size_bytes, err));
        }
    }
    return RU_OK;
}

static ru_status put_all(const ru_recorder *r, window *w, ru_err *err)
{
    for (uint32_t s = r->oldest; s <= r->segment; s++) {
        char path[REC_PATH_MAX + 32];
        ru_map_file m;
        if (s < r->segment && r->segments[s % REC_SEGMENTS_MAX].end_ns < w->save->from_ns) {
            continue; /* all of it was written before */
        }
        rui_segment_path(r, s, path);
        RU_TRY(ru_file_map(path, &m, err));
        ru_status st = put_segment(w, &m, err);
        ru_file_unmap(&m);
        RU_TRY(st);
    }
    int64_t totals[2] = {w->records, 0};
    return put_block(w, RUI_TRACE_END, 0, totals, sizeof totals, err);
}

ru_status rui_append(const rec_append *a, ru_arena *arena, ru_err *err)
{
    const char *slash = strrchr(a->path, '/');
    if (a->offset == 0 && slash != NULL) {
        const char *dir = ru_arena_strn(arena, a->path, slash - a->path);
        RU_TRY(dir != NULL ? ru_dir_make(dir, err) : RU_FAIL(err, RU_E_MEM, "no memory"));
    }
    if (ru_path_bytes(a->path) != a->offset) {
        return RU_OK; /* some before it were lost: what is there stays a readable prefix */
    }
    ru_log_file *file;
    RU_TRY(ru_log_file_open(a->path, true, &file, err));
    ru_status st = ru_log_file_append(file, a->data, a->size_bytes, err);
    ru_log_file_close(file);
    return st;
}

ru_status rui_save(const ru_recorder *r, const rec_save *s, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    window *w = RU_NEW(&arena, window, 1);
    const char *path = ru_arena_printf(&arena, "%s/rank%u.trace", s->dir, r->rank);
    ru_status st = RU_FAIL(err, RU_E_MEM, "no memory to save a window");
    if (w != NULL && path != NULL) {
        *w = (window){.save = s, .buffer = RU_NEW(&arena, uint8_t, RUI_TRACE_PAYLOAD_MAX)};
        st = w->buffer == NULL ? st : ru_dir_make(s->dir, err);
        st = st == RU_OK ? ru_out_open(path, &w->out, err) : st;
        st = st == RU_OK ? put_all(r, w, err) : st;
        st = st == RU_OK ? ru_out_commit(w->out, err) : st;
        ru_out_close(w->out);
    }
    ru_arena_fini(&arena);
    return st;
}
