/* Chrome trace JSON: complete events ("X") for spans, asynchronous ones on lanes beside their
 * thread (slices of a track must nest; a nanosecond is between two that touch), "s" and "f" for
 * flows, "i" for instants, "C" for counters, "M" for names. Times are microseconds with three
 * decimals, so no nanosecond is lost. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "trace/export/export.h"
#include "trace/export/export_impl.h"

enum {
    LANES = 1 << 16, /* thread numbers of lanes: LANES * (thread + 1) + lane */
    HTA_STREAM = 7,
    HTA_STREAM_SUMS = 20,
};

typedef struct writer {
    const ru_trace *trace;
    const ru_trace_clocks *clocks; /* NULL: own times */
    uint32_t index;                /* of the trace */
    bool comma;
    bool hta;             /* ops and sums as kernels of a device */
    uint32_t correlation; /* of kernels, counted */
    rui_export x;
} writer;

/* Does HolisticTraceAnalysis get it as a kernel? */
static bool is_kernel(const writer *w, const ru_record *r)
{
    const char *category = w->trace->names[r->name].category;
    return w->hta &&
           (r->kind == RU_REC_SUM || (r->kind == RU_REC_SPAN && strcmp(category, "op") == 0));
}

/* An event up to the colon before its name. */
static void begin(writer *w, const char *ph)
{
    rui_export_put(&w->x, "%s\n{\"ph\":\"%s\",\"name\":", w->comma ? "," : "", ph);
    w->comma = true;
}

static void open_event(writer *w, const char *ph, uint16_t name, int64_t at_ns, uint32_t tid)
{
    const ru_trace_name *k = &w->trace->names[name];
    at_ns = ru_trace_global(w->clocks, w->index, at_ns);
    at_ns = at_ns > 0 ? at_ns : 0;
    begin(w, ph);
    rui_export_str(&w->x, k->name);
    rui_export_put(&w->x, ",\"cat\":");
    rui_export_str(&w->x, k->category);
    rui_export_put(&w->x, ",\"pid\":%u,\"tid\":%u,\"ts\":%lld.%03d", w->trace->rank, tid,
                   (long long)(at_ns / 1000), (int)(at_ns % 1000));
}

static void meta(writer *w, const char *what, uint32_t tid, const char *name)
{
    begin(w, "M");
    rui_export_put(&w->x, "\"%s\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", what, w->trace->rank,
                   tid);
    rui_export_str(&w->x, name);
    rui_export_put(&w->x, "}}");
}

static void flow_args(writer *w, const ru_record *r, const ru_record_more *m)
{
    rui_export_put(&w->x, ",\"step\":%u,\"%s\":%u", m->step,
                   (m->flags & RU_REC_MESSAGE) != 0 ? "message" : "rank", m->rank);
    if (m->peer != 0) { /* as text: readers keep 53 bits of a number */
        rui_export_put(&w->x, ",\"peer\":\"%llu\"", (unsigned long long)m->peer);
    }
    if (m->wait_ns != 0) {
        rui_export_put(&w->x, ",\"waited_us\":%u.%03u", m->wait_ns / 1000, m->wait_ns % 1000);
    }
    if (m->label != 0 && m->label < w->trace->n_names && r->kind != RU_REC_SUM) {
        rui_export_put(&w->x, ",\"of\":");
        rui_export_str(&w->x, w->trace->names[m->label].name);
    }
    if ((m->flags & RU_REC_FAILED) != 0) {
        rui_export_put(&w->x, ",\"failed\":true");
    }
}

static void span_args(writer *w, const ru_record *r, const ru_record_more *m)
{
    rui_export_put(&w->x, ",\"args\":{");
    if (r->kind == RU_REC_WAIT && (uint64_t)r->value < w->trace->n_names) {
        rui_export_put(&w->x, "\"waits for\":");
        rui_export_str(&w->x, w->trace->names[r->value].name);
    } else {
        rui_export_put(&w->x, "\"value\":%lld", (long long)r->value);
    }
    if (r->predicted_ns != 0) {
        rui_export_put(&w->x, ",\"predicted_us\":%u.%03u", r->predicted_ns / 1000,
                       r->predicted_ns % 1000);
    }
    if (r->plan != 0) {
        rui_export_put(&w->x, ",\"plan\":%u", r->plan);
    }
    if (m != NULL) {
        flow_args(w, r, m);
    }
    rui_export_put(&w->x, "}}");
}

static void kernel(writer *w, const ru_trace_span *s, uint32_t tid, int64_t dur_ns)
{
    char name[320];
    bool sum = s->record->kind == RU_REC_SUM;
    int64_t at_ns = ru_trace_global(w->clocks, w->index, s->start_ns);
    at_ns = at_ns > 0 ? at_ns : 0;
    (void)snprintf(name, sizeof name, "%s%.255s", sum ? "ncclKernel " : "",
                   w->trace->names[s->record->name].name);
    begin(w, "X");
    rui_export_str(&w->x, name);
    rui_export_put(&w->x,
                   ",\"cat\":\"kernel\",\"pid\":%u,\"tid\":%u,\"ts\":%lld.%03d,\"dur\":%lld.%03d,"
                   "\"args\":{\"device\":0,\"stream\":%u,\"correlation\":%u}}",
                   w->trace->rank, tid, (long long)(at_ns / 1000), (int)(at_ns % 1000),
                   (long long)(dur_ns / 1000), (int)(dur_ns % 1000),
                   sum ? HTA_STREAM_SUMS + s->depth : HTA_STREAM, ++w->correlation);
}

static void span(writer *w, const ru_trace_thread *t, const ru_trace_span *s, uint32_t tid,
                 int64_t end_ns)
{
    int64_t dur = ru_trace_global(w->clocks, w->index, end_ns) -
                  ru_trace_global(w->clocks, w->index, s->start_ns);
    dur = dur > 0 ? dur : 0;
    if (is_kernel(w, s->record)) {
        kernel(w, s, tid, dur);
        return;
    }
    open_event(w, "X", s->record->name, s->start_ns, tid);
    rui_export_put(&w->x, ",\"dur\":%lld.%03d", (long long)(dur / 1000), (int)(dur % 1000));
    span_args(w, s->record, ru_trace_more(t, s->record));
}

/* Transfers of one name and id: from the sender's slice to the receiver's. */
static void flow(writer *w, const ru_trace_span *s, const ru_record_more *m, uint32_t tid)
{
    bool ends = s->record->kind == RU_REC_RECV;
    int64_t at_ns = ru_trace_global(w->clocks, w->index, ends ? s->end_ns : s->start_ns);
    at_ns = at_ns > 0 ? at_ns : 0;
    rui_export_put(
        &w->x,
        ",\n{\"ph\":\"%s\",\"name\":\"transfer\",\"cat\":\"flow\",\"id\":\"%llx\",\"pid\":%u,"
        "\"tid\":%u,\"ts\":%lld.%03d%s}",
        ends ? "f" : "s", (unsigned long long)m->flow, w->trace->rank, tid,
        (long long)(at_ns / 1000), (int)(at_ns % 1000), ends ? ",\"bp\":\"e\"" : "");
}

static void point(writer *w, const ru_record *r, uint32_t tid)
{
    if (r->kind == RU_REC_INSTANT) {
        open_event(w, "i", r->name, r->start_ns, tid);
        rui_export_put(&w->x, ",\"s\":\"t\",\"args\":{\"value\":%lld}}", (long long)r->value);
    } else if (r->kind == RU_REC_COUNTER) {
        double v;
        memcpy(&v, &r->value, sizeof v);
        open_event(w, "C", r->name, r->start_ns, tid);
        rui_export_put(&w->x, ",\"args\":{\"value\":%.17g}}", isfinite(v) ? v : 0.0);
    }
}

/* Leave a nanosecond between a span and the next one of its lane that starts when it ends. Readers
 * add start and length as doubles of microseconds, and a sum that is rounded up would make the two
 * overlap. */
static ru_status part(ru_trace_span *s, int64_t n, ru_arena *arena, ru_err *err)
{
    uint32_t deepest = 0;
    for (int64_t i = 0; i < n; i++) {
        deepest = s[i].depth > deepest ? s[i].depth : deepest;
    }
    int64_t *next = RU_NEW(arena, int64_t, deepest + 1);
    if (next == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the spans of a trace");
    }
    for (uint32_t k = 0; k <= deepest; k++) {
        next[k] = INT64_MAX;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        bool touches = s[i].end_ns == next[s[i].depth] && s[i].end_ns > s[i].start_ns;
        next[s[i].depth] = s[i].start_ns;
        s[i].end_ns -= touches;
    }
    return RU_OK;
}

static void lanes(writer *w, uint32_t index, const ru_trace_span *s, int64_t n)
{
    const ru_trace_thread *t = &w->trace->threads[index];
    uint32_t named = 0;
    for (int64_t i = 0; w->x.status == RU_OK && i < n; i++) {
        if (s[i].record->name >= w->trace->n_names || s[i].depth >= LANES) {
            continue;
        }
        for (; named <= s[i].depth; named++) {
            char name[64];
            snprintf(name, sizeof name, "%.40s: lane %u", t->name[0] != '\0' ? t->name : "thread",
                     named);
            meta(w, "thread_name", LANES * (index + 1) + named, name);
        }
        uint32_t tid = LANES * (index + 1) + s[i].depth;
        span(w, t, &s[i], tid, s[i].end_ns);
        const ru_record_more *m = ru_trace_more(t, s[i].record);
        bool transfer = s[i].record->kind == RU_REC_SEND || s[i].record->kind == RU_REC_RECV;
        if (m != NULL && transfer && (m->flags & RU_REC_FAILED) == 0) {
            flow(w, &s[i], m, tid);
        }
    }
}

/* Slices of a track must nest (viewers drop those that do not): a span that outlives the one it
 * started in is cut to it. */
static void thread(writer *w, uint32_t index, ru_arena *arena)
{
    enum { DEPTH_MAX = 64 };
    const ru_trace_thread *t = &w->trace->threads[index];
    ru_trace_span *s;
    int64_t n, ends[DEPTH_MAX];
    meta(w, "thread_name", index, t->name[0] != '\0' ? t->name : "thread");
    w->x.status = w->x.status == RU_OK ? ru_trace_spans(t, arena, &s, &n, w->x.err) : w->x.status;
    if (w->x.status == RU_OK && !w->hta) {
        w->x.status = part(s, n, arena, w->x.err);
    }
    for (int64_t i = 0; w->x.status == RU_OK && i < n; i++) {
        if (s[i].depth >= DEPTH_MAX) {
            continue;
        }
        int64_t end = s[i].end_ns;
        if (s[i].depth > 0 && end > ends[s[i].depth - 1]) {
            end = ends[s[i].depth - 1];
        }
        ends[s[i].depth] = end;
        if (s[i].record->name < w->trace->n_names) {
            span(w, t, &s[i], index, end);
        }
    }
    w->x.status = w->x.status == RU_OK ? ru_trace_asyncs(t, arena, &s, &n, w->x.err) : w->x.status;
    if (w->x.status == RU_OK && !w->hta) {
        w->x.status = part(s, n, arena, w->x.err);
    }
    if (w->x.status == RU_OK) {
        lanes(w, index, s, n);
    }
    for (int64_t i = 0; i < t->n && w->x.status == RU_OK; i++) {
        if (t->records[i].name < w->trace->n_names) {
            point(w, &t->records[i], index);
        }
    }
}

static void write_rank(writer *w, const ru_trace *trace, uint32_t index)
{
    w->trace = trace;
    w->index = index;
    char name[96];
    (void)snprintf(name, sizeof name, "%.64s rank %u", trace->process, ru_trace_number(trace));
    meta(w, "process_name", 0, name);
    for (uint32_t k = 0; k < trace->n_threads && w->x.status == RU_OK; k++) {
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        thread(w, k, &scratch);
        ru_arena_fini(&scratch);
    }
}

ru_status ru_trace_chrome(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                          const char *path, ru_err *err)
{
    writer w = {.clocks = clocks};
    RU_TRY(rui_export_open(&w.x, path, err));
    rui_export_put(&w.x, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    for (uint32_t i = 0; i < n && w.x.status == RU_OK; i++) {
        write_rank(&w, &traces[i], i);
    }
    rui_export_put(&w.x, "\n]}\n");
    return rui_export_close(&w.x);
}

ru_status ru_trace_hta(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                       const char *dir, ru_err *err)
{
    RU_TRY(ru_dir_make(dir, err));
    for (uint32_t i = 0; i < n; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/rank-%u.json", dir, i);
        if (length < 0 || length >= (int)sizeof path) {
            return RU_FAIL(err, RU_E_CREATE, "the folder's name is too long: %s", dir);
        }
        writer w = {.clocks = clocks, .hta = true};
        RU_TRY(rui_export_open(&w.x, path, err));
        rui_export_put(
            &w.x,
            "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"rubato\",\"rank\": %u,"
            "\"world_size\":%u},\"traceEvents\":[",
            i, n);
        write_rank(&w, &traces[i], i);
        rui_export_put(&w.x, "\n]}\n");
        RU_TRY(rui_export_close(&w.x));
    }
    return RU_OK;
}
