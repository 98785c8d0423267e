/* Parsing trace files. Two passes over the blocks: count, then copy. Every length is checked before
 * it is used; the file may come from anywhere. */
#include "trace/read.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "env/file.h"
#include "trace/format.h"

enum { NAMES_MAX = 65536, THREADS_MAX = 4096 };

typedef struct block {
    uint32_t kind, thread, size_bytes;
    const uint8_t *payload;
} block;

/* The block at `at`, or false where the readable prefix ends. */
static bool block_at(const uint8_t *data, int64_t size_bytes, int64_t at, block *b)
{
    if (size_bytes - at < RUI_TRACE_BLOCK_BYTES) {
        return false;
    }
    uint32_t w[6];
    memcpy(w, data + at, sizeof w);
    if (w[0] != RUI_TRACE_BLOCK_MAGIC || w[2] >= THREADS_MAX || w[3] > RUI_TRACE_PAYLOAD_MAX ||
        (int64_t)w[3] > size_bytes - at - RUI_TRACE_BLOCK_BYTES) {
        return false;
    }
    *b = (block){w[1], w[2], w[3], data + at + RUI_TRACE_BLOCK_BYTES};
    return ru_crc32c(0, b->payload, b->size_bytes) == w[4];
}

static bool names_apply(const block *b, ru_trace_name *names, uint32_t *n_names, ru_arena *arena)
{
    uint32_t at = 0;
    while (at + 4 <= b->size_bytes) {
        uint16_t id;
        memcpy(&id, b->payload + at, 2);
        uint32_t c = b->payload[at + 2], n = b->payload[at + 3];
        if (at + 4 + c + n > b->size_bytes) {
            return true; /* the checksum held, so this is a writer's bug: keep what was read */
        }
        const char *text = (const char *)b->payload + at + 4;
        names[id].category = ru_arena_strn(arena, text, c);
        names[id].name = ru_arena_strn(arena, text + c, n);
        if (names[id].category == NULL || names[id].name == NULL) {
            return false;
        }
        if (id >= *n_names) {
            *n_names = id + 1u;
        }
        at += 4 + c + n;
    }
    return true;
}

typedef struct tally {
    int64_t records[THREADS_MAX];
    uint32_t n_threads;
} tally;

static void count_blocks(const uint8_t *data, int64_t size_bytes, tally *t, ru_trace *out)
{
    int64_t at = RUI_TRACE_HEADER_BYTES;
    block b;
    out->damaged_at = -1;
    while (at < size_bytes) {
        if (!block_at(data, size_bytes, at, &b)) {
            out->damaged_at = at;
            break;
        }
        if (b.kind == RUI_TRACE_RECORDS || b.kind == RUI_TRACE_THREAD) {
            t->n_threads = b.thread >= t->n_threads ? b.thread + 1 : t->n_threads;
        }
        if (b.kind == RUI_TRACE_RECORDS) {
            t->records[b.thread] += b.size_bytes / (int64_t)sizeof(ru_record);
        }
        at += RUI_TRACE_BLOCK_BYTES + b.size_bytes;
    }
}

static bool records_apply(const block *b, ru_trace_thread *t, ru_record *into, ru_trace *out)
{
    int64_t n = b->size_bytes / (int64_t)sizeof(ru_record);
    memcpy(into + t->n, b->payload, (size_t)n * sizeof(ru_record));
    for (int64_t i = t->n; i < t->n + n; i++) {
        int64_t end = into[i].start_ns + into[i].dur_ns;
        bool first = out->records == 0 && i == t->n;
        out->first_ns =
            first || into[i].start_ns < out->first_ns ? into[i].start_ns : out->first_ns;
        out->last_ns = first || end > out->last_ns ? end : out->last_ns;
    }
    t->n += n;
    out->records += n;
    return true;
}

static bool block_apply(const block *b, ru_trace *out, ru_trace_name *names,
                        ru_trace_thread *threads, ru_record *const *into, ru_arena *arena)
{
    switch (b->kind) {
    case RUI_TRACE_NAMES:
        return names_apply(b, names, &out->n_names, arena);
    case RUI_TRACE_THREAD:
        threads[b->thread].name = ru_arena_strn(arena, (const char *)b->payload, b->size_bytes);
        return threads[b->thread].name != NULL;
    case RUI_TRACE_RECORDS:
        return records_apply(b, &threads[b->thread], into[b->thread], out);
    case RUI_TRACE_DROPPED:
        if (b->size_bytes == 8 && b->thread < out->n_threads) {
            memcpy(&threads[b->thread].dropped, b->payload, 8);
        }
        return true;
    case RUI_TRACE_END:
        out->complete = true;
        return true;
    default:
        return true; /* of a newer version: skip */
    }
}

static ru_status out_of_memory(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena for the trace is full");
}

static ru_status apply_blocks(const uint8_t *data, int64_t size_bytes, const tally *t,
                              ru_arena *arena, ru_trace *out, ru_err *err)
{
    ru_trace_name *names = RU_NEW(arena, ru_trace_name, NAMES_MAX);
    ru_trace_thread *threads = RU_NEW(arena, ru_trace_thread, t->n_threads);
    ru_record **into = RU_NEW(arena, ru_record *, t->n_threads);
    if (names == NULL || threads == NULL || into == NULL) {
        return out_of_memory(err);
    }
    for (uint32_t i = 0; i < NAMES_MAX; i++) {
        names[i] = (ru_trace_name){"", ""};
    }
    for (uint32_t i = 0; i < t->n_threads; i++) {
        into[i] = RU_NEW(arena, ru_record, t->records[i]);
        threads[i] = (ru_trace_thread){.name = "", .records = into[i]};
        if (into[i] == NULL) {
            return out_of_memory(err);
        }
    }
    out->names = names;
    out->threads = threads;
    out->n_threads = t->n_threads;
    int64_t stop = out->damaged_at >= 0 ? out->damaged_at : size_bytes;
    block b;
    for (int64_t at = RUI_TRACE_HEADER_BYTES; at < stop;
         at += RUI_TRACE_BLOCK_BYTES + b.size_bytes) {
        bool good = block_at(data, size_bytes, at, &b);
        RU_CHECK(good);
        if (!block_apply(&b, out, names, threads, into, arena)) {
            return out_of_memory(err);
        }
    }
    for (uint32_t i = 0; i < t->n_threads; i++) {
        out->dropped += threads[i].dropped;
    }
    return RU_OK;
}

ru_status ru_trace_parse(const uint8_t *data, int64_t size_bytes, ru_arena *arena, ru_trace *out,
                         ru_err *err)
{
    if (size_bytes < RUI_TRACE_HEADER_BYTES || memcmp(data, RUI_TRACE_MAGIC, 8) != 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "this is not a trace; expected the first eight bytes to be %s",
                       RUI_TRACE_MAGIC);
    }
    ru_trace tr = {0};
    uint32_t version;
    memcpy(&version, data + 8, 4);
    memcpy(&tr.rank, data + 12, 4);
    memcpy(&tr.wall_ns, data + 16, 8);
    memcpy(&tr.mono_ns, data + 24, 8);
    if (version != RUI_TRACE_VERSION) {
        return RU_FAIL(err, RU_E_DATA,
                       "the trace has format version %u, but this program reads version %d",
                       version, RUI_TRACE_VERSION);
    }
    char process[33] = {0};
    memcpy(process, data + 32, 32);
    tr.process = ru_arena_str(arena, process);
    tally *t = RU_NEW(arena, tally, 1);
    if (tr.process == NULL || t == NULL) {
        return out_of_memory(err);
    }
    count_blocks(data, size_bytes, t, &tr);
    RU_TRY(apply_blocks(data, size_bytes, t, arena, &tr, err));
    *out = tr;
    return RU_OK;
}

ru_status ru_trace_load(const char *path, ru_arena *arena, ru_trace *out, ru_err *err)
{
    ru_map_file m;
    RU_TRY(ru_file_map(path, &m, err));
    ru_status st = ru_trace_parse(m.data, m.size_bytes, arena, out, err);
    ru_file_unmap(&m);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", path);
}

static int by_start(const void *pa, const void *pb)
{
    const ru_trace_span *a = pa, *b = pb;
    if (a->start_ns != b->start_ns) {
        return a->start_ns < b->start_ns ? -1 : 1;
    }
    if (a->end_ns != b->end_ns) {
        return a->end_ns > b->end_ns ? -1 : 1; /* the outer one first */
    }
    return a->record > b->record ? -1 : 1; /* recorded later means it ended later: outer */
}

static void set_depths(ru_trace_span *s, int64_t n)
{
    enum { DEPTH_MAX = 64 };
    int64_t ends[DEPTH_MAX];
    uint32_t depth = 0;
    for (int64_t i = 0; i < n; i++) {
        while (depth > 0 && ends[depth - 1] <= s[i].start_ns) {
            depth--;
        }
        s[i].depth = depth;
        if (depth < DEPTH_MAX) {
            ends[depth++] = s[i].end_ns;
        }
    }
}

/* Lane of each: the first that is free. */
static ru_status set_lanes(ru_trace_span *s, int64_t n, ru_arena *arena, ru_err *err)
{
    int64_t *ends = n > 0 ? RU_NEW(arena, int64_t, n) : NULL;
    if (n > 0 && ends == NULL) {
        return out_of_memory(err);
    }
    uint32_t lanes = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < lanes && ends[k] > s[i].start_ns) {
            k++;
        }
        lanes = k == lanes ? k + 1 : lanes;
        ends[k] = s[i].end_ns;
        s[i].depth = k;
    }
    return RU_OK;
}

static bool wanted(const ru_record *r, bool async)
{
    return async ? r->kind == RU_REC_ASYNC : r->kind == RU_REC_SPAN || r->kind == RU_REC_WAIT;
}

static ru_status collect(const ru_trace_thread *t, bool async, ru_arena *arena,
                         ru_trace_span **spans, int64_t *n, ru_err *err)
{
    ru_trace_span *s = RU_NEW(arena, ru_trace_span, t->n);
    if (s == NULL) {
        return out_of_memory(err);
    }
    int64_t used = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const ru_record *r = &t->records[i];
        if (!wanted(r, async)) {
            continue;
        }
        int64_t end = r->start_ns + r->dur_ns;
        bool joins = used > 0 && s[used - 1].record->dur_ns == UINT32_MAX &&
                     s[used - 1].record->name == r->name && s[used - 1].end_ns == r->start_ns;
        if (joins) {
            s[used - 1].end_ns = end;
            s[used - 1].record = r;
        } else {
            s[used++] = (ru_trace_span){r->start_ns, end, r, 0};
        }
    }
    if (used > 0) {
        qsort(s, (size_t)used, sizeof *s, by_start);
    }
    *spans = s;
    *n = used;
    return RU_OK;
}

ru_status ru_trace_spans(const ru_trace_thread *t, ru_arena *arena, ru_trace_span **spans,
                         int64_t *n, ru_err *err)
{
    RU_TRY(collect(t, false, arena, spans, n, err));
    set_depths(*spans, *n);
    return RU_OK;
}

ru_status ru_trace_asyncs(const ru_trace_thread *t, ru_arena *arena, ru_trace_span **spans,
                          int64_t *n, ru_err *err)
{
    RU_TRY(collect(t, true, arena, spans, n, err));
    return set_lanes(*spans, *n, arena, err);
}
