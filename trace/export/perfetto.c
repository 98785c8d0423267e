/* Perfetto protobuf. A file is repeated field 1 (TracePacket) of message Trace. Track descriptors
 * come before the first event; slices are begin and end events that nest on their track. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pb.h"
#include "env/file/file.h"
#include "trace/export/export.h"

enum { /* field numbers of the Perfetto protos */
       TRACE_PACKET = 1,
       PACKET_CLOCKS = 6,
       PACKET_TIMESTAMP = 8,
       PACKET_SEQUENCE = 10,
       PACKET_EVENT = 11,
       PACKET_SEQUENCE_FLAGS = 13,
       PACKET_DESCRIPTOR = 60,
       PACKET_FIRST = 87,
       TRACK_UUID = 1,
       TRACK_NAME = 2,
       TRACK_PROCESS = 3,
       TRACK_THREAD = 4,
       TRACK_PARENT = 5,
       TRACK_COUNTER = 8,
       PROCESS_PID = 1,
       PROCESS_NAME = 6,
       THREAD_PID = 1,
       THREAD_TID = 2,
       THREAD_NAME = 5,
       EVENT_ANNOTATION = 4,
       EVENT_TYPE = 9,
       EVENT_TRACK = 11,
       EVENT_CATEGORY = 22,
       EVENT_NAME = 23,
       EVENT_DOUBLE = 44,
       EVENT_FLOW = 47,
       EVENT_FLOW_END = 48,
       CLOCKS_CLOCK = 1,
       CLOCK_ID = 1,
       CLOCK_TIME = 2,
       CLOCK_REALTIME = 1,
       CLOCK_BOOTTIME = 6,
       CLOCK_OWN = 64, /* of a rank, before its clock was laid over the others */
       NOTE_INT = 4,
       NOTE_UINT = 3,
       NOTE_STRING = 6,
       NOTE_NAME = 10,
       TYPE_BEGIN = 1,
       TYPE_END = 2,
       TYPE_INSTANT = 3,
       TYPE_COUNTER = 4,
       FLUSH_BYTES = 1 << 20,
       LANES_MAX = 1 << 16, /* of asynchronous spans on one thread */
};

typedef struct writer {
    ru_pb_out pb;
    ru_out *file;
    const ru_trace *trace;
    const ru_trace_clocks *clocks; /* NULL: own times */
    uint32_t index;                /* of the trace */
    uint64_t process_uuid;
    uint32_t pid, sequence;
    bool first;
} writer;

/* uuids: rank in the upper bits, then a class, then an index; never 0. */
static uint64_t uuid_of(const writer *w, uint32_t class, uint32_t index)
{
    return ((uint64_t)(w->trace->rank + 1) << 40) | ((uint64_t) class << 32) | index;
}

static ru_status flush(writer *w, ru_err *err)
{
    RU_TRY(ru_pb_out_end(&w->pb, err));
    RU_TRY(ru_out_write(w->file, w->pb.data, w->pb.size_bytes, err));
    ru_pb_out_reset(&w->pb);
    return RU_OK;
}

static void packet_begin(writer *w)
{
    ru_pb_begin(&w->pb, TRACE_PACKET);
    ru_pb_put_u64(&w->pb, PACKET_SEQUENCE, w->sequence);
    if (w->first) {
        ru_pb_put_u64(&w->pb, PACKET_FIRST, 1);
        ru_pb_put_u64(&w->pb, PACKET_SEQUENCE_FLAGS, 1);
        w->first = false;
    }
}

static void process_track(writer *w)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%.64s rank %u", w->trace->process,
                   ru_trace_number(w->trace));
    packet_begin(w);
    ru_pb_begin(&w->pb, PACKET_DESCRIPTOR);
    ru_pb_put_u64(&w->pb, TRACK_UUID, w->process_uuid);
    ru_pb_begin(&w->pb, TRACK_PROCESS);
    ru_pb_put_i64(&w->pb, PROCESS_PID, w->pid);
    ru_pb_put_str(&w->pb, PROCESS_NAME, name);
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
}

static void thread_track(writer *w, uint32_t index)
{
    const char *name = w->trace->threads[index].name;
    packet_begin(w);
    ru_pb_begin(&w->pb, PACKET_DESCRIPTOR);
    ru_pb_put_u64(&w->pb, TRACK_UUID, uuid_of(w, 1, index));
    ru_pb_put_u64(&w->pb, TRACK_PARENT, w->process_uuid);
    ru_pb_begin(&w->pb, TRACK_THREAD);
    ru_pb_put_i64(&w->pb, THREAD_PID, w->pid);
    ru_pb_put_i64(&w->pb, THREAD_TID, (int64_t)w->pid * 4096 + index);
    ru_pb_put_str(&w->pb, THREAD_NAME, name[0] != '\0' ? name : "thread");
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
}

/* Viewers fold tracks of one name and parent into one group. */
static void lane_track(writer *w, uint64_t uuid, const char *name)
{
    packet_begin(w);
    ru_pb_begin(&w->pb, PACKET_DESCRIPTOR);
    ru_pb_put_u64(&w->pb, TRACK_UUID, uuid);
    ru_pb_put_u64(&w->pb, TRACK_PARENT, w->process_uuid);
    ru_pb_put_str(&w->pb, TRACK_NAME, name);
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
}

static void counter_track(writer *w, uint16_t name)
{
    packet_begin(w);
    ru_pb_begin(&w->pb, PACKET_DESCRIPTOR);
    ru_pb_put_u64(&w->pb, TRACK_UUID, uuid_of(w, 2, name));
    ru_pb_put_u64(&w->pb, TRACK_PARENT, w->process_uuid);
    ru_pb_put_str(&w->pb, TRACK_NAME, w->trace->names[name].name);
    ru_pb_begin(&w->pb, TRACK_COUNTER);
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
}

static void note_uint(writer *w, const char *name, uint64_t v)
{
    ru_pb_begin(&w->pb, EVENT_ANNOTATION);
    ru_pb_put_str(&w->pb, NOTE_NAME, name);
    ru_pb_put_u64(&w->pb, NOTE_UINT, v);
    ru_pb_end(&w->pb);
}

static void note_text(writer *w, const char *name, const char *text)
{
    ru_pb_begin(&w->pb, EVENT_ANNOTATION);
    ru_pb_put_str(&w->pb, NOTE_NAME, name);
    ru_pb_put_str(&w->pb, NOTE_STRING, text);
    ru_pb_end(&w->pb);
}

static void event_begin(writer *w, int64_t at_ns, uint32_t type, uint64_t track)
{
    int64_t global = ru_trace_global(w->clocks, w->index, at_ns);
    packet_begin(w);
    ru_pb_put_u64(&w->pb, PACKET_TIMESTAMP, global > 0 ? (uint64_t)global : 0);
    ru_pb_begin(&w->pb, PACKET_EVENT);
    ru_pb_put_u64(&w->pb, EVENT_TYPE, type);
    ru_pb_put_u64(&w->pb, EVENT_TRACK, track);
}

static void event_end(writer *w)
{
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
}

/* What is known of a transfer or sum. A sum has no direction: viewers join its ends in order. */
static void flow_notes(writer *w, const ru_record *r, const ru_record_more *m)
{
    bool ends = r->kind == RU_REC_RECV;
    if (m->flow != 0) {
        ru_pb_put_fixed64(&w->pb, ends ? EVENT_FLOW_END : EVENT_FLOW, m->flow);
    }
    if (m->peer != 0) {
        note_uint(w, "peer", m->peer);
    }
    note_uint(w, "step", m->step);
    note_uint(w, (m->flags & RU_REC_MESSAGE) != 0 ? "message" : "rank", m->rank);
    if (m->wait_ns != 0) {
        note_uint(w, "waited_ns", m->wait_ns);
    }
    if (m->label != 0 && m->label < w->trace->n_names && r->kind != RU_REC_SUM) {
        note_text(w, "of", w->trace->names[m->label].name);
    }
    if ((m->flags & RU_REC_FAILED) != 0) {
        note_text(w, "failed", "cancelled or lost");
    }
}

static void slice_begin(writer *w, const ru_trace_thread *t, const ru_trace_span *s, uint64_t track)
{
    const ru_record *r = s->record;
    const ru_trace_name *name = &w->trace->names[r->name];
    event_begin(w, s->start_ns, TYPE_BEGIN, track);
    ru_pb_put_str(&w->pb, EVENT_NAME, name->name);
    ru_pb_put_str(&w->pb, EVENT_CATEGORY, r->kind == RU_REC_WAIT ? "wait" : name->category);
    if (r->kind == RU_REC_WAIT && (uint64_t)r->value < w->trace->n_names) {
        note_text(w, "waits for", w->trace->names[r->value].name);
    } else if (r->kind != RU_REC_WAIT && r->value != 0) {
        note_uint(w, "value", (uint64_t)r->value);
    }
    if (r->predicted_ns != 0) {
        note_uint(w, "predicted_ns", r->predicted_ns);
    }
    if (r->plan != 0) {
        note_uint(w, "plan", r->plan);
    }
    const ru_record_more *m = ru_trace_more(t, r);
    if (m != NULL) {
        flow_notes(w, r, m);
    }
    event_end(w);
}

static void slice_end(writer *w, int64_t at_ns, uint64_t track)
{
    event_begin(w, at_ns, TYPE_END, track);
    event_end(w);
}

/* Begin and end events in time order; a span that outlives the one it started in is cut to it,
 * since slices of a track must nest. */
static ru_status thread_slices(writer *w, uint32_t index, ru_arena *arena, ru_err *err)
{
    enum { DEPTH_MAX = 64 };
    ru_trace_span *s;
    int64_t n, ends[DEPTH_MAX];
    uint32_t depth = 0;
    uint64_t track = uuid_of(w, 1, index);
    RU_TRY(ru_trace_spans(&w->trace->threads[index], arena, &s, &n, err));
    for (int64_t i = 0; i < n; i++) {
        while (depth > 0 && ends[depth - 1] <= s[i].start_ns) {
            slice_end(w, ends[--depth], track);
        }
        if (depth == DEPTH_MAX) {
            continue;
        }
        slice_begin(w, &w->trace->threads[index], &s[i], track);
        int64_t end = s[i].end_ns;
        ends[depth] = depth > 0 && end > ends[depth - 1] ? ends[depth - 1] : end;
        depth++;
        if (w->pb.size_bytes > FLUSH_BYTES) {
            RU_TRY(flush(w, err));
        }
    }
    while (depth > 0) {
        slice_end(w, ends[--depth], track);
    }
    return RU_OK;
}

/* One track a lane, described before its first slice. */
static ru_status thread_asyncs(writer *w, uint32_t index, ru_arena *arena, ru_err *err)
{
    const ru_trace_thread *t = &w->trace->threads[index];
    ru_trace_span *s;
    int64_t n;
    uint32_t lanes = 0;
    RU_TRY(ru_trace_asyncs(t, arena, &s, &n, err));
    for (int64_t i = 0; i < n; i++) {
        if (s[i].record->name >= w->trace->n_names || s[i].depth >= LANES_MAX) {
            continue;
        }
        uint64_t track = uuid_of(w, 3, index * LANES_MAX + s[i].depth);
        for (; lanes <= s[i].depth; lanes++) {
            char name[160];
            snprintf(name, sizeof name, "%s: %s", t->name[0] != '\0' ? t->name : "thread",
                     w->trace->names[s[i].record->name].category);
            lane_track(w, uuid_of(w, 3, index * LANES_MAX + lanes), name);
        }
        slice_begin(w, t, &s[i], track);
        slice_end(w, s[i].end_ns, track);
        if (w->pb.size_bytes > FLUSH_BYTES) {
            RU_TRY(flush(w, err));
        }
    }
    return RU_OK;
}

static ru_status thread_points(writer *w, uint32_t index, uint8_t *counter_seen, ru_err *err)
{
    const ru_trace_thread *t = &w->trace->threads[index];
    for (int64_t i = 0; i < t->n; i++) {
        const ru_record *r = &t->records[i];
        if (r->name >= w->trace->n_names) {
            continue;
        }
        if (r->kind == RU_REC_INSTANT) {
            event_begin(w, r->start_ns, TYPE_INSTANT, uuid_of(w, 1, index));
            ru_pb_put_str(&w->pb, EVENT_NAME, w->trace->names[r->name].name);
            ru_pb_put_str(&w->pb, EVENT_CATEGORY, w->trace->names[r->name].category);
            note_uint(w, "value", (uint64_t)r->value);
            event_end(w);
        } else if (r->kind == RU_REC_COUNTER) {
            if (counter_seen[r->name] == 0) {
                counter_track(w, r->name);
                counter_seen[r->name] = 1;
            }
            double v;
            memcpy(&v, &r->value, sizeof v);
            event_begin(w, r->start_ns, TYPE_COUNTER, uuid_of(w, 2, r->name));
            ru_pb_put_f64(&w->pb, EVENT_DOUBLE, v);
            event_end(w);
        }
        if (w->pb.size_bytes > FLUSH_BYTES) {
            RU_TRY(flush(w, err));
        }
    }
    return RU_OK;
}

static ru_status write_trace(writer *w, ru_err *err)
{
    process_track(w);
    uint8_t counter_seen[65536] = {0};
    for (uint32_t i = 0; i < w->trace->n_threads; i++) {
        thread_track(w, i);
    }
    for (uint32_t i = 0; i < w->trace->n_threads; i++) {
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        ru_status st = thread_slices(w, i, &scratch, err);
        st = st == RU_OK ? thread_asyncs(w, i, &scratch, err) : st;
        ru_arena_fini(&scratch);
        RU_TRY(st);
        RU_TRY(thread_points(w, i, counter_seen, err));
    }
    return flush(w, err);
}

/* -- clocks ---------------------------------------------------------------------------------------
 */

static void clock_put(writer *w, uint32_t id, int64_t ns)
{
    ru_pb_begin(&w->pb, CLOCKS_CLOCK);
    ru_pb_put_u64(&w->pb, CLOCK_ID, id);
    ru_pb_put_u64(&w->pb, CLOCK_TIME, ns > 0 ? (uint64_t)ns : 0);
    ru_pb_end(&w->pb);
}

/* At a knot of the writer's trace: global, wall and own clock. */
static void snapshot(writer *w, const ru_trace_knot *k)
{
    int64_t global = ru_trace_global(w->clocks, w->index, k->at_ns);
    packet_begin(w);
    ru_pb_begin(&w->pb, PACKET_CLOCKS);
    clock_put(w, CLOCK_BOOTTIME, global);
    clock_put(w, CLOCK_REALTIME, global + w->clocks->wall_ns);
    clock_put(w, CLOCK_OWN, k->at_ns);
    ru_pb_end(&w->pb);
    ru_pb_end(&w->pb);
}

/* All snapshots stand before the events, rising in global time: readers drop a clock that goes
 * back. */
static ru_status snapshots(writer *all, uint32_t n, ru_err *err)
{
    const ru_trace_clocks *c = n > 0 ? all[0].clocks : NULL;
    uint32_t *at = calloc(n > 0 ? n : 1, sizeof *at);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the clocks of %u traces", n);
    }
    ru_status st = RU_OK;
    while (c != NULL && st == RU_OK) {
        uint32_t next = n;
        int64_t least = INT64_MAX;
        for (uint32_t i = 0; i < n; i++) {
            if (at[i] < c->n_knots[i]) {
                int64_t ns = ru_trace_global(c, i, c->knots[i][at[i]].at_ns);
                next = ns < least ? i : next;
                least = ns < least ? ns : least;
            }
        }
        if (next == n) {
            break;
        }
        snapshot(&all[next], &c->knots[next][at[next]++]);
        st = flush(&all[next], err);
    }
    free(at);
    return st;
}

ru_status ru_trace_perfetto(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                            const char *path, ru_err *err)
{
    ru_out *file = NULL;
    writer *all = calloc(n > 0 ? n : 1, sizeof *all);
    if (all == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to convert %u traces", n);
    }
    ru_status st = ru_out_open(path, &file, err);
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (writer){.file = file,
                          .trace = &traces[i],
                          .clocks = clocks,
                          .index = i,
                          .pid = traces[i].rank + 1,
                          .sequence = i + 1,
                          .first = true};
        all[i].process_uuid = uuid_of(&all[i], 0, 1);
        ru_pb_out_init(&all[i].pb);
    }
    st = st == RU_OK ? snapshots(all, n, err) : st;
    for (uint32_t i = 0; i < n; i++) {
        st = st == RU_OK ? write_trace(&all[i], err) : st;
        ru_pb_out_fini(&all[i].pb);
    }
    if (st == RU_OK) {
        st = ru_out_commit(file, err);
    }
    ru_out_close(file);
    free(all);
    return st;
}
