/* Recorder and reader: what goes in comes out, killed runs keep a prefix, full rings count drops,
 * exports nest and parse. */
#include "test/scratch.h"
#include "test/test.h"
#include "trace/record/recorder.h"

#include <stdio.h>
#include <string.h>

#include "base/pb.h"
#include "env/file/file.h"
#include "env/thread.h"
#include "trace/export/export.h"
#include "trace/read/fold.h"
#include "trace/read/read.h"

/* Two steps, each with two ops inside, a wait, a counter and an instant. */
static void record_some(ru_recorder *r)
{
    uint16_t step = ru_recorder_name(r, "step", "train");
    uint16_t conv = ru_recorder_name(r, "Conv \"1\"\n", "op");
    uint16_t wait = ru_recorder_name(r, "batch", "reader");
    uint16_t loss = ru_recorder_name(r, "loss", "metric");
    uint16_t ckpt = ru_recorder_name(r, "checkpoint", "event");
    ru_recorder_thread(r, "main");
    for (int64_t k = 0; k < 2; k++) {
        int64_t t0 = 1000000 + k * 10000;
        ru_rec_act(r, conv, t0 + 1000, t0 + 4000, 64, 7, 2500);
        ru_rec_act(r, conv, t0 + 4000, t0 + 6000, 64, 7, 2500);
        ru_rec_wait(r, wait, t0 + 6000, t0 + 9000, step);
        ru_rec_span(r, step, t0, t0 + 10000, 0);
        ru_rec_counter(r, loss, 2.5 - (double)k);
    }
    ru_rec_instant(r, ckpt, 1);
}

static ru_trace record_and_load(ru_scratch *f)
{
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root, .process = "train", .rank = 3};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    record_some(r);
    ru_recorder_close(r);
    ru_trace t;
    char *path = ru_path_join(&f->arena, f->root, "rank3.trace");
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);
    return t;
}

static void test_round_trip(void **state)
{
    ru_scratch *f = *state;
    ru_trace t = record_and_load(f);
    assert_true(t.complete);
    assert_int_equal(t.damaged_at, -1);
    assert_int_equal(t.rank, 3);
    assert_string_equal(t.process, "train");
    assert_int_equal(t.n_threads, 1);
    assert_string_equal(t.threads[0].name, "main");
    assert_int_equal(t.records, 11);
    assert_int_equal(t.dropped, 0);
    const ru_record *conv = &t.threads[0].records[0];
    assert_string_equal(t.names[conv->name].name, "Conv \"1\"\n");
    assert_string_equal(t.names[conv->name].category, "op");
    assert_int_equal(conv->start_ns, 1001000);
    assert_int_equal(conv->dur_ns, 3000);
    assert_int_equal(conv->predicted_ns, 2500);
    assert_int_equal(conv->plan, 7);
}

/* Exports must be UTF-8, whatever a file says. */
static void test_names_are_text(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r;
    ru_trace t;
    const ru_recorder_options opt = {.dir = f->root};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    ru_recorder_thread(r, "\xc3\xa4 \xc3");
    ru_rec_span(r,
                ru_recorder_name(r,
                                 "a\xff"
                                 "b",
                                 "\xed\xa0\x80"),
                1, 2, 0);
    ru_recorder_close(r);
    const char *path = ru_path_join(&f->arena, f->root, "rank0.trace");
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);
    const ru_trace_name *name = &t.names[t.threads[0].records[0].name];
    assert_string_equal(name->name, "a\xef\xbf\xbd"
                                    "b");
    assert_string_equal(name->category, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(t.threads[0].name, "\xc3\xa4 \xef\xbf\xbd");
}

static void test_fold_by_hand(void **state)
{
    ru_scratch *f = *state;
    ru_trace t = record_and_load(f);
    ru_span_facts facts;
    assert_ok(ru_trace_fold(&t, &f->arena, &facts, &f->err), f->err);
    assert_int_equal(facts.n, 3);
    /* per step: 5,000 ns in Conv, 3,000 ns waiting, 2,000 ns left to the step itself */
    assert_string_equal(facts.facts[0].category, "op");
    assert_int_equal(facts.facts[0].took.count, 4);
    assert_int_equal(facts.facts[0].self_ns, 10000);
    assert_int_equal(facts.facts[0].took.min_ns, 2000);
    assert_int_equal(facts.facts[0].took.max_ns, 3000);
    assert_int_equal(facts.facts[0].value_total, 256);
    assert_int_equal(facts.facts[0].predicted_total_ns, 10000);
    assert_int_equal(facts.facts[0].actual_total_ns, 10000);
    assert_string_equal(facts.facts[1].name, "batch");
    assert_int_equal(facts.facts[1].self_ns, 6000);
    assert_string_equal(facts.facts[2].name, "step");
    assert_int_equal(facts.facts[2].self_ns, 4000);
    assert_int_equal(facts.facts[2].total_ns, 20000);
    assert_int_equal(facts.busy_ns, 14000);
    assert_int_equal(facts.wait_ns, 6000);
    assert_non_null(strstr(ru_span_facts_print(&facts, 2, &f->arena), "... and 1 more"));
}

/* Cut at every length and flip one bit at many places: a prefix or a clean refusal, never more. */
static void test_damage_keeps_the_prefix(void **state)
{
    ru_scratch *f = *state;
    ru_trace whole = record_and_load(f);
    char *data;
    int64_t n;
    char *path = ru_path_join(&f->arena, f->root, "rank3.trace");
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    for (int64_t cut = 0; cut < n; cut++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_trace t;
        ru_status st = ru_trace_parse((uint8_t *)data, cut, &a, &t, &f->err);
        assert_int_equal(st, cut < 64 ? RU_E_DATA : RU_OK);
        if (st == RU_OK) {
            assert_true(t.records <= whole.records);
            assert_false(t.complete);
        }
        ru_arena_fini(&a);
    }
    for (int64_t at = 64; at < n; at += 3) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_trace t;
        data[at] = (char)(data[at] ^ 0x10);
        assert_ok(ru_trace_parse((uint8_t *)data, n, &a, &t, &f->err), f->err);
        assert_true(t.records <= whole.records);
        data[at] = (char)(data[at] ^ 0x10);
        ru_arena_fini(&a);
    }
}

static void test_full_ring_counts_drops(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.ring_records = 64}; /* no folder: nobody drains */
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    uint16_t name = ru_recorder_name(r, "x", "test");
    assert_int_equal(name, ru_recorder_name(r, "x", "test"));
    assert_int_not_equal(name, ru_recorder_name(r, "x", "other"));
    for (int i = 0; i < 100; i++) {
        ru_rec_span(r, name, i, i + 1, 0);
    }
    ru_recorder_stats stats;
    ru_recorder_stats_get(r, &stats);
    assert_int_equal(stats.records + stats.dropped, 100);
    assert_true(stats.records >= 63);
    ru_recorder_close(r);
    ru_rec_span(NULL, name, 0, 1, 0); /* no recorder: nothing happens */
}

static void test_long_spans_are_joined(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    ru_rec_span(r, ru_recorder_name(r, "epoch", "train"), 5, 5 + 10000000000, 0);
    ru_recorder_close(r);
    ru_trace t;
    char *path = ru_path_join(&f->arena, f->root, "rank0.trace");
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);
    ru_trace_span *spans;
    int64_t n;
    assert_ok(ru_trace_spans(&t.threads[0], &f->arena, &spans, &n, &f->err), f->err);
    assert_int_equal(n, 1);
    assert_int_equal(spans[0].start_ns, 5);
    assert_int_equal(spans[0].end_ns, 5 + 10000000000);
}

/* A transfer has two records; one longer than a record can say is joined, and keeps its flow. */
static void test_flows_round_trip(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root, .rank = 1};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    ru_rec_flow x = {.kind = RU_REC_SEND,
                     .name = ru_recorder_name(r, "normal", "send"),
                     .label = ru_recorder_name(r, "gradients", "sum"),
                     .flow = 0x8000000000000007u,
                     .peer = 11,
                     .start_ns = 1000,
                     .end_ns = 9000001000,
                     .wait_ns = 250,
                     .bytes = 64,
                     .step = 3,
                     .plan = 9,
                     .predicted_ns = INT64_MAX,
                     .rank = 2,
                     .chan_class = 1,
                     .flags = RU_REC_FAILED};
    ru_rec_flows(r, &x);
    ru_recorder_node(r, 77);
    ru_recorder_peer(r, 11, 5000, -300, 20);
    ru_recorder_meta(r, "traceparent", "old");
    ru_recorder_meta(r, "traceparent", "new");
    ru_recorder_close(r);
    ru_trace t;
    char *path = ru_path_join(&f->arena, f->root, "rank1.trace");
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);
    ru_trace_span *s;
    int64_t n;
    assert_ok(ru_trace_asyncs(&t.threads[0], &f->arena, &s, &n, &f->err), f->err);
    assert_int_equal(n, 1);
    assert_int_equal(s[0].end_ns - s[0].start_ns, 9000000000);
    assert_int_equal(s[0].record->predicted_ns, UINT32_MAX);
    const ru_record_more *m = ru_trace_more(&t.threads[0], s[0].record);
    assert_true(m->flow == x.flow && m->peer == 11 && m->step == 3 && m->rank == 2);
    assert_true(m->chan_class == 1 && m->flags == RU_REC_FAILED && m->wait_ns == 250);
    assert_string_equal(t.names[m->label].name, "gradients");
    assert_int_equal(t.first_ns, 1000);
    assert_int_equal(t.last_ns, 9000001000);
    assert_int_equal(t.node, 77);
    assert_int_equal(t.n_peers, 1);
    assert_true(t.peers[0].peer == 11 && t.peers[0].at_ns == 5000);
    assert_true(t.peers[0].offset_ns == -300 && t.peers[0].bound_ns == 20);
    assert_string_equal(ru_trace_meta_get(&t, "traceparent"), "new");
}

typedef struct requests {
    const char *whole; /* the export as one file */
    int64_t spans, n;
} requests;

/* Each request is a whole document of one span that also stands in the file. */
static ru_status take_request(void *self, const char *json, int64_t n, int64_t spans, ru_err *err)
{
    (void)err;
    requests *q = self;
    static const char head[] = "{\"resourceSpans\":[", tail[] = "}]}]}\n]}\n";
    assert_int_equal(spans, 1);
    assert_memory_equal(json, head, sizeof head - 1);
    assert_memory_equal(json + n - (int64_t)sizeof tail + 1, tail, sizeof tail - 1);
    char id[] = "\"spanId\":\"0123456789abcdef\"";
    const char *at = strstr(json, "\"spanId\":");
    assert_non_null(at);
    memcpy(id, at, sizeof id - 1);
    assert_non_null(strstr(q->whole, id));
    q->n++;
    q->spans += spans;
    return q->n == 4 ? RU_E_AGAIN : RU_OK;
}

static int64_t count_of(const char *text, const char *what)
{
    int64_t n = 0;
    for (; (text = strstr(text, what)) != NULL; text++) {
        n++;
    }
    return n;
}

/* What others read: a send and a receive, linked; the trace that the run is a part of. */
static void test_open_telemetry(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    static const char parent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    ru_recorder_meta(r, "traceparent", parent);
    record_some(r);
    ru_rec_flow x = {.kind = RU_REC_SEND, .flow = 0xabc1, .start_ns = 5, .end_ns = 9};
    x.name = ru_recorder_name(r, "normal", "send");
    ru_rec_flows(r, &x);
    x.kind = RU_REC_RECV;
    ru_rec_flows(r, &x);
    ru_recorder_close(r);
    ru_trace t;
    ru_trace_clocks c;
    char *path = ru_path_join(&f->arena, f->root, "rank0.trace"), *data;
    int64_t n;
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);
    assert_ok(ru_trace_align(&t, 1, &f->arena, &c, &f->err), f->err);
    path = ru_path_join(&f->arena, f->root, "o.json");
    assert_ok(ru_trace_otlp(&t, 1, &c, path, &f->err), f->err);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    assert_non_null(strstr(data, "\"traceId\":\"0af7651916cd43dd8448eb211c80319c\""));
    assert_non_null(strstr(data, "\"parentSpanId\":\"b7ad6b7169203331\""));
    assert_non_null(strstr(data, "\"spanId\":\"000000000000abc1\",\"parentSpanId\""));
    assert_non_null(strstr(data, "\"spanId\":\"000000000000abc1\"}]"));
    assert_non_null(strstr(data, "\"kind\":4"));
    assert_null(strstr(data, "Conv")); /* ops are left out */
    requests q = {.whole = data, .n = 100};
    const ru_otlp_send send = {take_request, &q};
    assert_ok(ru_trace_otlp_send(&t, 1, &c, 1, send, &f->err), f->err);
    assert_int_equal(q.spans, count_of(data, "{\"traceId\"") - count_of(data, "\"links\""));
    q.n = 3; /* an error of the receiver ends it */
    assert_int_equal(ru_trace_otlp_send(&t, 1, &c, 1, send, &f->err), RU_E_AGAIN);
    assert_int_equal(q.n, 4);
    assert_ok(ru_trace_hta(&t, 1, &c, f->root, &f->err), f->err);
    path = ru_path_join(&f->arena, f->root, "rank-0.json");
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    assert_non_null(strstr(data, "\"rank\": 0,\"world_size\":1}"));
    assert_non_null(strstr(data, "\"cat\":\"kernel\""));
    char ids[2][33];
    assert_true(ru_traceparent_read(parent, ids[0], ids[1]));
    assert_false(ru_traceparent_read("", ids[0], ids[1]));
    assert_false(ru_traceparent_read("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                                     ids[0], ids[1]));
}

/* Sums wrap, and a child that outlives its parent leaves it less than nothing: printed all the
 * same.
 */
static void test_fold_of_odd_values(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    uint16_t outer = ru_recorder_name(r, "outer", "test");
    uint16_t inner = ru_recorder_name(r, "inner", "test");
    ru_rec_span(r, outer, 0, 10, INT64_MAX);
    ru_rec_span(r, inner, 1, 1000, INT64_MAX);
    ru_rec_span(r, inner, 2000, 2001, INT64_MAX);
    ru_recorder_close(r);
    ru_trace t;
    char *path = ru_path_join(&f->arena, f->root, "rank0.trace");
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);
    ru_span_facts facts;
    assert_ok(ru_trace_fold(&t, &f->arena, &facts, &f->err), f->err);
    assert_int_equal(facts.n, 2);
    assert_int_equal(facts.facts[1].self_ns, 10 - 999);
    assert_int_equal(facts.facts[0].value_total, -2);
    assert_non_null(strstr(ru_span_facts_print(&facts, 0, &f->arena), "outer"));
}

/* A ring with one free place takes neither half of a transfer. */
static void test_full_ring_keeps_pairs(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.ring_records = 8};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    ru_rec_span(r, 0, 1, 2, 0);
    for (int i = 0; i < 5; i++) {
        ru_rec_flows(r, &(ru_rec_flow){.kind = RU_REC_RECV, .start_ns = 1, .end_ns = 2});
    }
    ru_recorder_stats stats;
    ru_recorder_stats_get(r, &stats);
    assert_int_equal(stats.records, 7);
    assert_int_equal(stats.dropped, 4);
    ru_recorder_close(r);
}

/* Threads that come and go share the ring of their name; another name has its own. */
static void brief_main(void *arg)
{
    ru_recorder *r = arg;
    ru_recorder_thread(r, "brief");
    ru_rec_span(r, 1, 5, 6, 0);
    ru_recorder_thread_end(r);
}

static void test_ended_threads_leave_their_ring(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    ru_recorder_thread(r, "main");
    for (int i = 0; i < 5; i++) {
        ru_thread t = {0};
        assert_ok(ru_thread_start(&t, "brief", brief_main, r, &f->err), f->err);
        ru_thread_join(&t);
    }
    ru_recorder_stats stats;
    ru_recorder_stats_get(r, &stats);
    assert_int_equal(stats.threads, 2);
    assert_int_equal(stats.records, 5);
    ru_recorder_close(r);
}

typedef struct burst {
    ru_recorder *r;
    uint16_t name;
    int64_t n;
} burst;

static void burst_main(void *arg)
{
    burst *b = arg;
    for (int64_t i = 0; i < b->n; i++) {
        ru_rec_span(b->r, b->name, i * 10, i * 10 + 5, i);
    }
}

static void test_threads_lose_nothing_unseen(void **state)
{
    ru_scratch *f = *state;
    enum { THREADS = 4, EACH = 20000 };
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root, .ring_records = 1024, .flush_ns = 1000000};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    ru_thread threads[THREADS] = {0};
    burst b = {r, ru_recorder_name(r, "work", "test"), EACH};
    for (int i = 0; i < THREADS; i++) {
        assert_ok(ru_thread_start(&threads[i], "burst", burst_main, &b, &f->err), f->err);
    }
    for (int i = 0; i < THREADS; i++) {
        ru_thread_join(&threads[i]);
    }
    ru_recorder_close(r);
    ru_trace t;
    char *path = ru_path_join(&f->arena, f->root, "rank0.trace");
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);
    assert_int_equal(t.n_threads, THREADS);
    assert_int_equal(t.records + t.dropped, (int64_t)THREADS * EACH);
    for (uint32_t k = 0; k < t.n_threads; k++) {
        for (int64_t i = 1; i < t.threads[k].n; i++) {
            assert_true(t.threads[k].records[i].value > t.threads[k].records[i - 1].value);
        }
    }
}

/* Every begin has its end, ends never stand before begins, all tracks are described first. */
static void test_perfetto_nests(void **state)
{
    ru_scratch *f = *state;
    ru_trace t = record_and_load(f);
    char *path = ru_path_join(&f->arena, f->root, "t.perfetto-trace"), *data;
    int64_t n;
    assert_ok(ru_trace_perfetto(&t, 1, NULL, path, &f->err), f->err);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    ru_pb_in in = ru_pb_in_open(data, n);
    int depth = 0, begins = 0, descriptors = 0, counters = 0;
    uint64_t last_slice_ns = 0;
    for (ru_pb_field packet; ru_pb_next(&in, &packet);) {
        assert_int_equal(packet.number, 1);
        ru_pb_in p = ru_pb_sub(&packet);
        uint64_t at = 0;
        for (ru_pb_field k; ru_pb_next(&p, &k);) {
            at = k.number == 8 ? k.value : at;
            descriptors += k.number == 60;
            if (k.number != 11) {
                continue;
            }
            ru_pb_in e = ru_pb_sub(&k);
            for (ru_pb_field g; ru_pb_next(&e, &g);) {
                if (g.number == 9 && g.value <= 2) {
                    assert_true(at >= last_slice_ns);
                    last_slice_ns = at;
                    begins += g.value == 1;
                    depth += g.value == 1 ? 1 : -1;
                    assert_true(depth >= 0);
                }
                counters += g.number == 44;
            }
        }
        assert_ok(ru_pb_in_end(&p, "TracePacket", &f->err), f->err);
    }
    assert_ok(ru_pb_in_end(&in, "Trace", &f->err), f->err);
    assert_int_equal(depth, 0);
    assert_int_equal(begins, 8);
    assert_int_equal(counters, 2);
    assert_int_equal(descriptors, 3); /* process, thread, counter */
}

static void test_chrome_escapes(void **state)
{
    ru_scratch *f = *state;
    ru_trace t = record_and_load(f);
    char *path = ru_path_join(&f->arena, f->root, "t.json"), *data;
    int64_t n;
    assert_ok(ru_trace_chrome(&t, 1, NULL, path, &f->err), f->err);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    assert_non_null(strstr(data, "Conv \\\"1\\\"\\n"));
    /* The next begins at 1004: a nanosecond is left, since doubles add up to a little more. */
    assert_non_null(strstr(data, "\"ts\":1001.000,\"dur\":2.999"));
    assert_non_null(
        strstr(data, "\"process_name\",\"pid\":3,\"tid\":0,\"args\":{\"name\":\"train rank 3\"}"));
    assert_non_null(strstr(data, "\"waits for\":\"step\""));
}

/* Sums under way while their thread does other things: they overlap, take none of its time, and
 * keep what was predicted. */
static void test_asynchronous_spans(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = f->root, .rank = 5};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    uint16_t work = ru_recorder_name(r, "work", "test");
    uint16_t sum = ru_recorder_name(r, "sum", "net");
    ru_recorder_thread(r, "loop");
    ru_rec_async(r, sum, 1000, 11000, 64, 9, 8000);
    ru_rec_span(r, work, 2000, 4000, 0);
    ru_rec_async(r, sum, 11000, 16000, 64, 9, 8000);
    ru_rec_async(r, sum, 6000, 21000, 64, 9, 8000);
    ru_rec_async(r, sum, 12000, 9000012000, 64, 9, 8000); /* longer than a record can say */
    ru_recorder_close(r);
    ru_trace t;
    char *path = ru_path_join(&f->arena, f->root, "rank5.trace");
    assert_ok(ru_trace_load(path, &f->arena, &t, &f->err), f->err);

    ru_trace_span *s;
    int64_t n;
    assert_ok(ru_trace_asyncs(&t.threads[0], &f->arena, &s, &n, &f->err), f->err);
    assert_int_equal(n, 4);
    static const uint32_t lanes[] = {0, 1, 0, 2};
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(s[i].depth, lanes[i]);
    }
    assert_int_equal(s[3].end_ns - s[3].start_ns, 9000000000);

    ru_span_facts facts;
    assert_ok(ru_trace_fold(&t, &f->arena, &facts, &f->err), f->err);
    assert_int_equal(facts.busy_ns, 2000);
    assert_string_equal(facts.facts[1].name, "sum");
    assert_int_equal(facts.facts[1].self_ns, 0);
    assert_int_equal(facts.facts[1].took.count, 4);
    assert_int_equal(facts.facts[1].predicted_n, 4);
    assert_int_equal(facts.facts[1].actual_total_ns, 10000 + 15000 + 5000 + 9000000000);
    assert_non_null(strstr(ru_span_facts_print(&facts, 0, &f->arena), "8.00 us"));

    char *json = ru_path_join(&f->arena, f->root, "t.json"), *data;
    assert_ok(ru_trace_chrome(&t, 1, NULL, json, &f->err), f->err);
    assert_ok(ru_file_read(json, 0, &f->arena, &data, &n, &f->err), f->err);
    int spans = 0, names = 0;
    for (const char *p = data; (p = strstr(p, "\"ph\":\"")) != NULL; p++) {
        spans += p[6] == 'X';
        names += strncmp(p, "\"ph\":\"M\",\"name\":\"thread_name\"", 29) == 0;
    }
    assert_int_equal(spans, 5);
    assert_int_equal(names, 4); /* the thread, and a lane for each that overlaps */
    assert_ok(ru_trace_perfetto(&t, 1, NULL, json, &f->err), f->err);
}

/* The records of a TensorBoard file are framed as TFRecord; checked with an own reading of the
 * frame. */
static void test_tensorboard_frames(void **state)
{
    ru_scratch *f = *state;
    ru_tensorboard *tb = NULL;
    assert_ok(ru_tensorboard_open(f->root, 1700000000000000000, &tb, &f->err), f->err);
    assert_ok(ru_tensorboard_scalar(tb, "loss", 1, 1700000001000000000, 0.5, &f->err), f->err);
    const double limits[] = {-0.5, 0.25, 4}, counts[] = {1, 2, 3};
    const ru_tb_histogram h = {.min = -1,
                               .max = 3,
                               .num = 6,
                               .sum = 8,
                               .squares = 22,
                               .limits = limits,
                               .counts = counts,
                               .n = 3};
    assert_ok(ru_tensorboard_histogram(tb, "w", 2, 1700000002000000000, &h, &f->err), f->err);
    assert_ok(ru_tensorboard_commit(tb, &f->err), f->err);
    ru_tensorboard_close(tb);
    char **names, *data;
    uint32_t count;
    int64_t n;
    assert_ok(ru_dir_list(f->root, &f->arena, &names, &count, &f->err), f->err);
    assert_int_equal(count, 1);
    assert_int_equal(strncmp(names[0], "events.out.tfevents.1700000000.", 31), 0);
    char *path = ru_path_join(&f->arena, f->root, names[0]);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    int64_t at = 0;
    int records = 0;
    while (at < n) {
        uint64_t size;
        memcpy(&size, data + at, 8);
        at += 16 + (int64_t)size;
        records++;
    }
    assert_int_equal(at, n);
    assert_int_equal(records, 3);
    /* HistogramProto: bucket_limit is field 6, packed: 0x32, 24 bytes; bucket follows as field 7 */
    const char *packed = memmem(data, (size_t)n, "\x32\x18", 2);
    assert_non_null(packed);
    assert_memory_equal(packed + 2, limits, sizeof limits);
    assert_memory_equal(packed + 26, "\x3a\x18", 2);
    assert_memory_equal(packed + 28, counts, sizeof counts);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(trace_recorder, T(test_round_trip), T(test_names_are_text), T(test_fold_by_hand),
         T(test_damage_keeps_the_prefix), T(test_full_ring_counts_drops),
         T(test_long_spans_are_joined), T(test_threads_lose_nothing_unseen), T(test_perfetto_nests),
         T(test_chrome_escapes), T(test_asynchronous_spans), T(test_tensorboard_frames),
         T(test_flows_round_trip), T(test_full_ring_keeps_pairs),
         T(test_ended_threads_leave_their_ring), T(test_open_telemetry), T(test_fold_of_odd_values))
