/* OTLP/JSON: an ExportTraceServiceRequest. Ids are hexadecimal, times and 64-bit numbers are text.
 * The span of a send has its flow as id, so that the receive can link to it without a table. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "env/file/file.h"
#include "trace/export/export.h"
#include "trace/export/export_impl.h"

enum { KIND_INTERNAL = 1, KIND_PRODUCER = 4 };

typedef struct writer {
    const ru_trace *trace;
    const ru_trace_clocks *clocks;
    uint32_t index;
    char trace_id[33], parent[17]; /* parent "": none */
    uint64_t spans;
    bool comma;
    int64_t held, held_max; /* spans of this request; a request may have; 0: any number */
    ru_otlp_send send;      /* fn NULL: one request into a file */
    ru_text *text;          /* of this request */
    rui_export x;
} writer;

bool ru_traceparent_read(const char *text, char trace_id[33], char parent[17])
{
    if (!ru_str_is_traceparent(text)) {
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
    rui_export_put(&w->x, ",{\"key\":\"%s\",\"value\":{\"intValue\":\"%lld\"}}", key, value);
}

static void flow(writer *w, const ru_record *r, const ru_record_more *m)
{
    number(w, "rubato.step", m->step);
    if (r->kind == RU_REC_SPAN || r->kind == RU_REC_ASYNC) {
        return;
    }
    number(w, "rubato.bytes", (long long)r->value);
    rui_export_put(&w->x, ",{\"key\":\"rubato.peer\",\"value\":{\"stringValue\":\"%016llx\"}}",
                   (unsigned long long)m->peer);
}

static void begin(writer *w)
{
    w->comma = false;
    rui_export_put(&w->x,
                   "%s\n{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{"
                   "\"stringValue\":",
                   w->send.fn == NULL && w->index > 0 ? "," : "");
    rui_export_str(&w->x, w->trace->process);
    rui_export_put(
        &w->x,
        "}},{\"key\":\"service.instance.id\",\"value\":{\"stringValue\":\"%u\"}}]},"
        "\"scopeSpans\":[{\"scope\":{\"name\":\"rubato\",\"version\":\"%s\"},\"spans\":[",
        w->trace->rank, RU_VERSION);
}

/* A whole request goes out; the next begins. */
static void pass_on(writer *w)
{
    static const char tail[] = "]}]}\n]}\n";
    rui_export_put(&w->x, "%s", tail);
    rui_export_flush(&w->x);
    if (w->x.status == RU_OK && w->held > 0) {
        w->x.status = w->send.fn(w->send.self, w->text->p, w->text->n, w->held, w->x.err);
    }
    w->text->n = 0;
    w->held = 0;
    rui_export_put(&w->x, "{\"resourceSpans\":[");
}

/* parent 0: that of the run. Returns the span's id. */
static uint64_t span(writer *w, const ru_trace_thread *t, const ru_trace_span *s, uint64_t parent)
{
    const ru_record *r = s->record;
    const ru_record_more *m = ru_trace_more(t, r);
    const ru_trace_name *k = &w->trace->names[r->name];
    const uint64_t words[] = {w->trace->node, w->index, ++w->spans};
    bool sends = r->kind == RU_REC_SEND && m != NULL,
         receives = r->kind == RU_REC_RECV && m != NULL;
    uint64_t id = sends ? m->flow | 1 : ru_hash_bytes(words, sizeof words, 3) | 1;
    rui_export_put(&w->x, "%s\n{\"traceId\":\"%s\",\"spanId\":\"%016llx\",", w->comma ? "," : "",
                   w->trace_id, (unsigned long long)id);
    w->comma = true;
    if (parent != 0) {
        rui_export_put(&w->x, "\"parentSpanId\":\"%016llx\",", (unsigned long long)parent);
    } else if (w->parent[0] != '\0') {
        rui_export_put(&w->x, "\"parentSpanId\":\"%s\",", w->parent);
    }
    rui_export_put(&w->x, "\"name\":");
    rui_export_str(&w->x, k->name);
    rui_export_put(&w->x,
                   ",\"kind\":%d,\"startTimeUnixNano\":\"%llu\",\"endTimeUnixNano\":\"%llu\","
                   "\"attributes\":[{\"key\":\"rubato.category\",\"value\":{\"stringValue\":",
                   sends      ? KIND_PRODUCER
                   : receives ? KIND_PRODUCER + 1
                              : KIND_INTERNAL,
                   (unsigned long long)wall(w, s->start_ns),
                   (unsigned long long)wall(w, s->end_ns));
    rui_export_str(&w->x, k->category);
    rui_export_put(&w->x, "}}");
    if (m != NULL) {
        flow(w, r, m);
    }
    if (r->plan != 0) {
        number(w, "rubato.plan", r->plan);
    }
    if (r->predicted_ns != 0) {
        number(w, "rubato.predicted_ns", r->predicted_ns);
    }
    rui_export_put(&w->x, "]");
    if (receives) {
        rui_export_put(&w->x, ",\"links\":[{\"traceId\":\"%s\",\"spanId\":\"%016llx\"}]",
                       w->trace_id, (unsigned long long)(m->flow | 1));
    }
    rui_export_put(&w->x, "}");
    if (++w->held == w->held_max) {
        pass_on(w);
        begin(w);
    }
    return id;
}

static void thread(writer *w, const ru_trace_thread *t, ru_arena *arena)
{
    enum { DEPTH_MAX = 64 };
    ru_trace_span *s;
    int64_t n = 0;
    uint64_t parents[DEPTH_MAX + 1] = {0};
    w->x.status = w->x.status == RU_OK ? ru_trace_spans(t, arena, &s, &n, w->x.err) : w->x.status;
    for (int64_t i = 0; w->x.status == RU_OK && i < n; i++) {
        uint32_t d = s[i].depth;
        if (s[i].record->name >= w->trace->n_names || d >= DEPTH_MAX) {
            continue;
        }
        parents[d + 1] = parents[d];
        if (strcmp(w->trace->names[s[i].record->name].category, "op") != 0) {
            parents[d + 1] = span(w, t, &s[i], parents[d]);
        }
    }
    w->x.status = w->x.status == RU_OK ? ru_trace_asyncs(t, arena, &s, &n, w->x.err) : w->x.status;
    for (int64_t i = 0; i < n && w->x.status == RU_OK; i++) {
        if (s[i].record->name < w->trace->n_names) {
            (void)span(w, t, &s[i], 0);
        }
    }
}

static void rank(writer *w, const ru_trace *t, uint32_t index)
{
    w->trace = t;
    w->index = index;
    begin(w);
    for (uint32_t k = 0; k < t->n_threads && w->x.status == RU_OK; k++) {
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        thread(w, &t->threads[k], &scratch);
        ru_arena_fini(&scratch);
    }
}

ru_status ru_trace_otlp(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                        const char *path, ru_err *err)
{
    writer w = {.clocks = clocks};
    ids(&w, traces, n);
    RU_TRY(rui_export_open(&w.x, path, err));
    rui_export_put(&w.x, "{\"resourceSpans\":[");
    for (uint32_t i = 0; i < n && w.x.status == RU_OK; i++) {
        rank(&w, &traces[i], i);
        rui_export_put(&w.x, "]}]}");
    }
    rui_export_put(&w.x, "\n]}\n");
    return rui_export_close(&w.x);
}

ru_status ru_trace_otlp_send(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                             int64_t spans_max, ru_otlp_send send, ru_err *err)
{
    RU_CHECK(spans_max > 0);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text text = ru_text_arena(&arena);
    writer w = {.clocks = clocks, .held_max = spans_max, .send = send, .text = &text};
    ids(&w, traces, n);
    rui_export_into(&w.x, &text, err);
    rui_export_put(&w.x, "{\"resourceSpans\":[");
    for (uint32_t i = 0; i < n && w.x.status == RU_OK; i++) {
        rank(&w, &traces[i], i);
        pass_on(&w);
    }
    ru_arena_fini(&arena);
    return w.x.status;
}
