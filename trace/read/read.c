/* Parsing trace files. Two passes over the blocks: count, then copy. Every length is checked before
 * it is used; the file may come from anywhere. */
#include "trace/read/read.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/str.h"
#include "env/file/file.h"
#include "trace/read/read_impl.h"
#include "trace/record/format.h"

enum { NAMES_MAX = 65536, THREADS_MAX = 4096, NAME_BYTES = 255 };

typedef rui_block block;

bool rui_trace_block_at(const uint8_t *data, int64_t size_bytes, int64_t at, block *b)
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

/* Text of a file that may come from anywhere, as UTF-8, which all exports need; NULL: the arena is
 * full. */
static const char *text_of(ru_arena *arena, const void *bytes, int64_t n)
{
    ru_text t = ru_text_arena(arena);
    ru_text_utf8(&t, ru_str_n(bytes, n));
    return t.cut ? NULL : t.p;
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
        names[id].category = text_of(arena, b->payload + at + 4, c);
        names[id].name = text_of(arena, b->payload + at + 4 + c, n);
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
    uint32_t n_threads, n_peers, n_meta;
} tally;

/* Returns where the readable prefix ends. */
static int64_t count_blocks(const uint8_t *data, int64_t size_bytes, tally *t)
{
    int64_t at = RUI_TRACE_HEADER_BYTES;
    block b;
    while (at < size_bytes && rui_trace_block_at(data, size_bytes, at, &b)) {
        if (b.kind == RUI_TRACE_RECORDS || b.kind == RUI_TRACE_THREAD) {
            t->n_threads = b.thread >= t->n_threads ? b.thread + 1 : t->n_threads;
        }
        if (b.kind == RUI_TRACE_RECORDS) {
            t->records[b.thread] += b.size_bytes / (int64_t)sizeof(ru_record);
        }
        t->n_peers += b.kind == RUI_TRACE_PEER ? b.size_bytes / RUI_TRACE_PEER_BYTES : 0;
        t->n_meta += b.kind == RUI_TRACE_META;
        at += RUI_TRACE_BLOCK_BYTES + b.size_bytes;
    }
    return at < size_bytes ? at : size_bytes;
}

/* Times of a damaged or hostile file: far enough from the limits that nothing overflows. */
static int64_t sane(int64_t ns)
{
    const int64_t limit = (int64_t)1 << 59; /* 18 years since a machine booted */
    return ns > limit ? limit : ns < -limit ? -limit : ns;
}

/* What a file, or the segments of one, is read into. */
typedef struct reading {
    ru_arena *arena;
    ru_trace *out;
    ru_trace_name *names;     /* [NAMES_MAX] */
    ru_trace_thread *threads; /* [n_threads] */
    ru_record **into;         /* [n_threads] */
    ru_trace_peer *peers;
    ru_trace_meta *meta;
    bool any; /* a record was seen */
} reading;

static void records_apply(reading *rd, const block *b)
{
    ru_trace_thread *t = &rd->threads[b->thread];
    ru_record *into = rd->into[b->thread] + t->n;
    ru_trace *out = rd->out;
    int64_t n = b->size_bytes / (int64_t)sizeof(ru_record);
    if (n > 0) {
        memcpy(into, b->payload, (size_t)n * sizeof(ru_record));
    }
    for (int64_t i = 0; i < n; i++) {
        if (into[i].kind == RU_REC_MORE) {
            continue;
        }
        into[i].start_ns = sane(into[i].start_ns);
        int64_t start = into[i].start_ns, end = start + into[i].dur_ns;
        out->first_ns = !rd->any || start < out->first_ns ? start : out->first_ns;
        out->last_ns = !rd->any || end > out->last_ns ? end : out->last_ns;
        rd->any = true;
    }
    t->n += n;
    out->records += n;
}

static void peers_apply(reading *rd, const block *b)
{
    for (uint32_t at = 0; at + RUI_TRACE_PEER_BYTES <= b->size_bytes; at += RUI_TRACE_PEER_BYTES) {
        ru_trace_peer p;
        _Static_assert(sizeof p == RUI_TRACE_PEER_BYTES, "read as it stands in the file");
        memcpy(&p, b->payload + at, sizeof p);
        p.at_ns = sane(p.at_ns);
        p.offset_ns = sane(p.offset_ns);
        p.bound_ns = p.bound_ns < 0 ? 0 : sane(p.bound_ns);
        rd->peers[rd->out->n_peers++] = p;
    }
}

static bool meta_apply(reading *rd, const block *b)
{
    const char *text = (const char *)b->payload;
    const char *end = b->size_bytes > 0 ? memchr(text, 0, b->size_bytes) : NULL;
    if (end == NULL) {
        return true; /* without a value */
    }
    uint32_t key = (uint32_t)(end - text);
    ru_trace_meta *m = &rd->meta[rd->out->n_meta];
    m->key = text_of(rd->arena, text, key);
    m->value = text_of(rd->arena, end + 1, b->size_bytes - key - 1);
    rd->out->n_meta++;
    return m->key != NULL && m->value != NULL;
}

/* false: the arena is full. */
static bool block_apply(reading *rd, const block *b)
{
    ru_trace *out = rd->out;
    switch (b->kind) {
    case RUI_TRACE_NAMES:
        return names_apply(b, rd->names, &out->n_names, rd->arena);
    case RUI_TRACE_THREAD:
        rd->threads[b->thread].name =
            text_of(rd->arena, b->payload, b->size_bytes < NAME_BYTES ? b->size_bytes : NAME_BYTES);
        return rd->threads[b->thread].name != NULL;
    case RUI_TRACE_RECORDS:
        records_apply(rd, b);
        return true;
    case RUI_TRACE_DROPPED:
        if (b->size_bytes == 8 && b->thread < out->n_threads) {
            int64_t dropped;
            memcpy(&dropped, b->payload, 8);
            const int64_t most = (int64_t)1 << 48; /* sums of it do not overflow */
            rd->threads[b->thread].dropped = dropped < 0 ? 0 : dropped > most ? most : dropped;
        }
        return true;
    case RUI_TRACE_NODE:
        if (b->size_bytes == 8) {
            memcpy(&out->node, b->payload, 8);
        }
        return true;
    case RUI_TRACE_PEER:
        peers_apply(rd, b);
        return true;
    case RUI_TRACE_META:
        return meta_apply(rd, b);
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

static ru_status reading_open(reading *rd, const tally *t, ru_err *err)
{
    ru_arena *arena = rd->arena;
    rd->names = RU_NEW(arena, ru_trace_name, NAMES_MAX);
    rd->threads = RU_NEW(arena, ru_trace_thread, t->n_threads);
    rd->into = RU_NEW(arena, ru_record *, t->n_threads);
    rd->peers = RU_NEW(arena, ru_trace_peer, t->n_peers);
    rd->meta = RU_NEW(arena, ru_trace_meta, t->n_meta);
    if (rd->names == NULL || rd->threads == NULL || rd->into == NULL || rd->peers == NULL ||
        rd->meta == NULL) {
        return out_of_memory(err);
    }
    for (uint32_t i = 0; i < NAMES_MAX; i++) {
        rd->names[i] = (ru_trace_name){"", ""};
    }
    for (uint32_t i = 0; i < t->n_threads; i++) {
        rd->into[i] = RU_NEW(arena, ru_record, t->records[i]);
        rd->threads[i] = (ru_trace_thread){.name = "", .records = rd->into[i]};
        if (rd->into[i] == NULL) {
            return out_of_memory(err);
        }
    }
    rd->out->names = rd->names;
    rd->out->threads = rd->threads;
    rd->out->n_threads = t->n_threads;
    rd->out->peers = rd->peers;
    rd->out->meta = rd->meta;
    return RU_OK;
}

/* The readable prefix of one file; `stop` is where it ends. */
static ru_status apply_blocks(reading *rd, const uint8_t *data, int64_t size_bytes, int64_t stop,
                              ru_err *err)
{
    block b;
    for (int64_t at = RUI_TRACE_HEADER_BYTES; at < stop;
         at += RUI_TRACE_BLOCK_BYTES + b.size_bytes) {
        bool good = rui_trace_block_at(data, size_bytes, at, &b);
        RU_CHECK(good);
        if (!block_apply(rd, &b)) {
            return out_of_memory(err);
        }
    }
    return RU_OK;
}

static ru_status header_read(const uint8_t *data, int64_t size_bytes, ru_trace *out,
                             ru_arena *arena, ru_err *err)
{
    if (size_bytes < RUI_TRACE_HEADER_BYTES || memcmp(data, RUI_TRACE_MAGIC, 8) != 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "this is not a trace; expected the first eight bytes to be %s",
                       RUI_TRACE_MAGIC);
    }
    uint32_t version;
    memcpy(&version, data + 8, 4);
    memcpy(&out->rank, data + 12, 4);
    memcpy(&out->wall_ns, data + 16, 8);
    memcpy(&out->mono_ns, data + 24, 8);
    memcpy(&out->segment, data + 32 + RUI_TRACE_PROCESS_BYTES, 4);
    out->wall_ns = out->wall_ns < 0 ? 0 : out->wall_ns & INT64_C(0x1fffffffffffffff);
    out->mono_ns = sane(out->mono_ns);
    if (version != RUI_TRACE_VERSION) {
        return RU_FAIL(err, RU_E_DATA,
                       "the trace has format version %u, but this program reads version %d; use "
                       "the version of rubato that recorded it",
                       version, RUI_TRACE_VERSION);
    }
    char process[RUI_TRACE_PROCESS_BYTES + 1] = {0};
    memcpy(process, data + 32, RUI_TRACE_PROCESS_BYTES);
    out->process = text_of(arena, process, (int64_t)strlen(process));
    return out->process != NULL ? RU_OK : out_of_memory(err);
}

ru_status rui_trace_parse_parts(const rui_trace_part *parts, uint32_t n, ru_arena *arena,
                                ru_trace *out, ru_err *err)
{
    ru_trace tr = {0};
    tally *t = RU_NEW(arena, tally, 1);
    int64_t *stops = RU_NEW(arena, int64_t, n);
    if (t == NULL || stops == NULL) {
        return out_of_memory(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        ru_trace head = {0};
        if (k > 0 && parts[k].size_bytes < RUI_TRACE_HEADER_BYTES) {
            stops[k] = 0; /* killed while it began the next segment */
            continue;
        }
        RU_TRY(header_read(parts[k].data, parts[k].size_bytes, &head, arena, err));
        if (k == 0) {
            tr = head;
            tr.damaged_at = -1;
        }
        stops[k] = count_blocks(parts[k].data, parts[k].size_bytes, t);
        if (stops[k] < parts[k].size_bytes && tr.damaged_at < 0) {
            tr.damaged_at = stops[k];
        }
    }
    reading rd = {.arena = arena, .out = &tr};
    RU_TRY(reading_open(&rd, t, err));
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(apply_blocks(&rd, parts[k].data, parts[k].size_bytes, stops[k], err));
    }
    for (uint32_t i = 0; i < t->n_threads; i++) {
        tr.dropped += tr.threads[i].dropped;
    }
    *out = tr;
    return RU_OK;
}

ru_status ru_trace_parse(const uint8_t *data, int64_t size_bytes, ru_arena *arena, ru_trace *out,
                         ru_err *err)
{
    return rui_trace_parse_parts(&(rui_trace_part){data, size_bytes}, 1, arena, out, err);
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

const ru_record_more *ru_trace_more(const ru_trace_thread *t, const ru_record *r)
{
    bool has = r->kind == RU_REC_SEND || r->kind == RU_REC_RECV || r->kind == RU_REC_SUM ||
               r->kind == RU_REC_SPAN || r->kind == RU_REC_ASYNC;
    if (!has || r + 1 >= t->records + t->n || r[1].kind != RU_REC_MORE) {
        return NULL;
    }
    return (const ru_record_more *)(const void *)(r + 1);
}

const char *ru_trace_meta_get(const ru_trace *t, const char *key)
{
    for (uint32_t k = t->n_meta; k > 0; k--) {
        if (strcmp(t->meta[k - 1].key, key) == 0) {
            return t->meta[k - 1].value;
        }
    }
    return NULL;
}

uint32_t ru_trace_number(const ru_trace *t)
{
    int64_t v;
    const char *said = ru_trace_meta_get(t, "number");
    bool is = said != NULL && ru_str_i64(ru_str_c(said), &v) && v >= 0 && v < UINT32_MAX;
    return is ? (uint32_t)v : t->rank;
}

static bool wanted(const ru_record *r, bool async)
{
    bool beside = r->kind == RU_REC_ASYNC || r->kind == RU_REC_SEND || r->kind == RU_REC_RECV ||
                  r->kind == RU_REC_SUM;
    return async ? beside : r->kind == RU_REC_SPAN || r->kind == RU_REC_WAIT;
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
