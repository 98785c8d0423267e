/* OTLP/JSON: an ExportTraceServiceRequest. Ids are hexadecimal, times and 64-bit numbers are text.
 * The span of a send has its flow as id, so that the receive can link to it without a table. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "env/file.h"
#include "trace/export.h"

enum { BUFFER_BYTES = 1 << 16, SPAN_BYTES_MAX = 8192, KIND_INTERNAL = 1, KIND_PRODUCER = 4 };

typedef struct writer {
    ru_out *file;
    const ru_trace *trace;
    const ru_trace_clocks *clocks;
    uint32_t index;
    char trace_id[33], parent[17]; /* parent "": none */
    uint64_t spans;
    bool comma;
    ru_status status;
    ru_err *err;
    size_t used;
    char buffer[BUFFER_BYTES];
} writer;

static void flush(writer *w)
{
    if (w->status == RU_OK && w->used > 0) {
        w->status = ru_out_write(w->file, w->buffer, (int64_t)w->used, w->err);
    }
    w->used = 0;
}

RU_PRINTF(2, 3) static void put(writer *w, const char *fmt, ...)
{
    if (w->used + SPAN_BYTES_MAX > BUFFER_BYTES) {
        flush(w);
    }
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(w->buffer + w->used, SPAN_BYTES_MAX, fmt, ap);
    va_end(ap);
    RU_CHECK(n >= 0 && n < SPAN_BYTES_MAX);
    w->used += (size_t)n;
}

/* JSON string body; names have at most 255 bytes. */
static const char *escape(const char *s, char into[1600])
{
    char *p = into;
    for (; *s != '\0' && p < into + 1590; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            *p++ = '\\';
            *p++ = (char)c;
        } else if (c < 0x20 || c == 0x7f) {
            p += snprintf(p, 7, "\\u%04x", c);
        } else {
            *p++ = (char)c;
        }
    }
    *p = '\0';
    return into;
}

bool ru_traceparent_read(const char *text, char trace_id[33], char parent[17])
{
    size_t hex = strspn(text, "0123456789abcdef-");
    bool form = hex == 55 && text[55] == '\0' && text[2] == '-' && text[35] == '-' &&
                text[52] == '-' && strncmp(text, "ff", 2) != 0 &&
                strspn(text + 3, "0123456789abcdef") == 32 &&
                strspn(text + 36, "0123456789abcdef") == 16;
    if (!form || strspn(text + 3, "0") == 32 || strspn(text + 36, "0") == 16) {
        return false;
    }
    memcpy(trace_id, text + 3, 32);
    memcpy(parent, text + 36, 16);
    trace_id[32] = parent[16] = '\0';
    return true;
}

/* Of any rank that has one; else made of what all ranks of the run share. */
static void ids(writer *w, const ru_trace *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *text = ru_trace_meta_get(&t[i], "traceparent");
        if (text != NULL && ru_traceparent_read(text, w->trace_id, w->parent)) {
            return;
        }
    }
    const uint64_t words[] = {n > 0 ? t[0].node : 0, n > 0 ? (uint64_t)t[0].wall_ns : 0};
    snprintf(w->trace_id, sizeof w->trace_id, "%016llx%016llx",
             (unsigned long long)ru_hash_bytes(words, sizeof words, 1) | 1,
             (unsigned long long)ru_hash_bytes(words, sizeof words, 2));
}

static uint64_t wall(const writer *w, int64_t ns)
{
    int64_t at = ru_trace_global(w->clocks, w->index, ns) + w->clocks->wall_ns;
    return at > 0 ? (uint64_t)at : 0;
}

static void number(writer *w, const char *key, long long value)
{
    put(w, ",{\"key\":\"%s\",\"value\":{\"intValue\":\"%lld\"}}", key, value);
}

static void flow(writer *w, const ru_record *r, const ru_record_more *m)
{
    number(w, "rubato.step", m->step);
    number(w, "rubato.bytes", (long long)r->value);
    put(w, ",{\"key\":\"rubato.peer\",\"value\":{\"stringValue\":\"%016llx\"}}",
        (unsigned long long)m->peer);
}

/* parent 0: that of the run. Returns the span's id. */
static uint64_t span(writer *w, const ru_trace_thread *t, const ru_trace_span *s, uint64_t parent)
{
    char n[1600], c[1600];
    const ru_record *r = s->record;
    const ru_record_more *m = ru_trace_more(t, r);
    const ru_trace_name *k = &w->trace->names[r->name];
    const uint64_t words[] = {w->trace->node, w->index, ++w->spans};
    bool sends = r->kind == RU_REC_SEND && m != NULL,
         receives = r->kind == RU_REC_RECV && m != NULL;
    uint64_t id = sends ? m->flow | 1 : ru_hash_bytes(words, sizeof words, 3) | 1;
    put(w, "%s\n{\"traceId\":\"%s\",\"spanId\":\"%016llx\",", w->comma ? "," : "", w->trace_id,
        (unsigned long long)id);
    w->comma = true;
    if (parent != 0) {
        put(w, "\"parentSpanId\":\"%016llx\",", (unsigned long long)parent);
    } else if (w->parent[0] != '\0') {
        put(w, "\"parentSpanId\":\"%s\",", w->parent);
    }
    put(w,
        "\"name\":\"%s\",\"kind\":%d,\"startTimeUnixNano\":\"%llu\",\"endTimeUnixNano\":\"%llu\","
        "\"attributes\":[{\"key\":\"rubato.category\",\"value\":{\"stringValue\":\"%s\"}}",
        escape(k->name, n),
        sends      ? KIND_PRODUCER
        : receives ? KIND_PRODUCER + 1
                   : KIND_INTERNAL,
        (unsigned long long)wall(w, s->start_ns), (unsigned long long)wall(w, s->end_ns),
        escape(k->category, c));
    if (m != NULL) {
        flow(w, r, m);
    }
    if (r->plan != 0) {
        number(w, "rubato.plan", r->plan);
    }
    if (r->predicted_ns != 0) {
        number(w, "rubato.predicted_ns", r->predicted_ns);
    }
    put(w, "]");
    if (receives) {
        put(w, ",\"links\":[{\"traceId\":\"%s\",\"spanId\":\"%016llx\"}]", w->trace_id,
            (unsigned long long)(m->flow | 1));
    }
    put(w, "}");
    return id;
}

static void thread(writer *w, const ru_trace_thread *t, ru_arena *arena)
{
    enum { DEPTH_MAX = 64 };
    ru_trace_span *s;
    int64_t n = 0;
    uint64_t parents[DEPTH_MAX + 1] = {0};
    w->status = ru_trace_spans(t, arena, &s, &n, w->err);
    for (int64_t i = 0; i < n && w->status == RU_OK; i++) {
        uint32_t d = s[i].depth;
        if (s[i].record->name >= w->trace->n_names || d >= DEPTH_MAX) {
            continue;
        }
        parents[d + 1] = parents[d];
        if (strcmp(w->trace->names[s[i].record->name].category, "op") != 0) {
            parents[d + 1] = span(w, t, &s[i], parents[d]);
        }
    }
    w->status = w->status == RU_OK ? ru_trace_asyncs(t, arena, &s, &n, w->err) : w->status;
    for (int64_t i = 0; i < n && w->status == RU_OK; i++) {
        if (s[i].record->name < w->trace->n_names) {
            (void)span(w, t, &s[i], 0);
        }
    }
}

ru_status ru_trace_otlp(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                        const char *path, ru_err *err)
{
    char name[1600];
    writer w = {.err = err, .clocks = clocks};
    ids(&w, traces, n);
    RU_TRY(ru_out_open(path, &w.file, err));
    put(&w, "{\"resourceSpans\":[");
    for (uint32_t i = 0; i < n && w.status == RU_OK; i++) {
        w.trace = &traces[i];
        w.index = i;
        w.comma = false;
        put(&w,
            "%s\n{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{"
            "\"stringValue\":"
            "\"%s\"}},{\"key\":\"service.instance.id\",\"value\":{\"stringValue\":\"%u\"}}]},"
            "\"scopeSpans\":[{\"scope\":{\"name\":\"rubato\",\"version\":\"%s\"},\"spans\":[",
            i > 0 ? "," : "", escape(w.trace->process, name), w.trace->rank, RU_VERSION);
        for (uint32_t k = 0; k < traces[i].n_threads && w.status == RU_OK; k++) {
            ru_arena scratch;
            ru_arena_init(&scratch, 0);
            thread(&w, &traces[i].threads[k], &scratch);
            ru_arena_fini(&scratch);
        }
        put(&w, "]}]}");
    }
    put(&w, "\n]}\n");
    flush(&w);
    if (w.status == RU_OK) {
        w.status = ru_out_commit(w.file, err);
    }
    ru_out_close(w.file);
    return w.status;
}
