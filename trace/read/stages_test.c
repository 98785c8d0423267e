/* Typical stages of steps written by hand: two stages, two micro-batches, three steps. */
#include "trace/read/stages.h"

#include <string.h>

#include "test/test.h"

enum { NONE, STEP, FORWARD, BACKWARD, UPDATE, WAITING, INPUT, L12, L21, NORMAL, NAMES };

static const ru_trace_name names[NAMES] = {[NONE] = {"", ""},
                                           [STEP] = {"train", "step"},
                                           [FORWARD] = {"train", "forward"},
                                           [BACKWARD] = {"train", "backward"},
                                           [UPDATE] = {"train", "update"},
                                           [WAITING] = {"train", "wait for a stage"},
                                           [INPUT] = {"train", "input"},
                                           [L12] = {"stage", "stage 1 to 2"},
                                           [L21] = {"stage", "stage 2 to 1"},
                                           [NORMAL] = {"send", "normal"}};

typedef struct rank {
    ru_record at[2][256]; /* compute, loop */
    ru_trace_thread threads[2];
    ru_trace_meta meta;
} rank;

static void span(rank *r, uint16_t name, int64_t from, int64_t to, int64_t value)
{
    ru_trace_thread *t = &r->threads[0];
    r->at[0][t->n++] = (ru_record){.start_ns = from,
                                   .dur_ns = (uint32_t)(to - from),
                                   .name = name,
                                   .kind = name == WAITING ? RU_REC_WAIT : RU_REC_SPAN,
                                   .value = value};
}

static void end(rank *r, uint16_t kind, uint16_t link, uint32_t number, uint64_t flow, int64_t from,
                int64_t to, uint32_t wait)
{
    ru_trace_thread *t = &r->threads[1];
    const ru_record_more more = {
        .flow = flow, .step = number, .label = link, .kind = RU_REC_MORE, .wait_ns = wait};
    r->at[1][t->n++] = (ru_record){.start_ns = from,
                                   .dur_ns = (uint32_t)(to - from),
                                   .name = NORMAL,
                                   .kind = kind,
                                   .value = flow % 2 == 0 ? 64 : 32};
    memcpy(&r->at[1][t->n++], &more, sizeof more);
}

/* The first byte leaves at `from`, the last one is there at `to`. */
static void piece(rank *a, rank *b, uint16_t link, uint32_t number, uint64_t flow, int64_t from,
                  int64_t to)
{
    end(a, RU_REC_SEND, link, number, flow, from - 10, to, 10);
    end(b, RU_REC_RECV, link, number, flow, to - 5, to, 0);
}

static void put_step(rank *r, uint32_t s)
{
    int64_t t = 10000 * (int64_t)s, slow = s == 2 ? 30 : 0;
    for (uint32_t j = 0; j < 2; j++) { /* 40 and 5 on the link as one, 50 back */
        int64_t at = t + 100 * (j + 1);
        piece(&r[0], &r[1], L12, 2 * s + j, 100 * s + 10 * j, at, at + 40 + slow);
        piece(&r[0], &r[1], L12, 2 * s + j, 100 * s + 10 * j + 1, at + 30, at + 45 + slow);
        piece(&r[1], &r[0], L21, 2 * s + j, 100 * s + 10 * j + 2, at + 300, at + 350);
    }
    span(&r[0], STEP, t - 7, t + 1043, s + 1);
    span(&r[0], FORWARD, t - 7, t + 100, 0);
    span(&r[0], INPUT, t - 7, t, 0);
    span(&r[0], FORWARD, t + 100, t + 207, 1);
    span(&r[0], INPUT, t + 100, t + 107, 0);
    span(&r[0], BACKWARD, t + 210, t + 710, 0);
    span(&r[0], WAITING, t + 210, t + 510, L21);
    span(&r[0], BACKWARD, t + 710, t + 990, 1);
    span(&r[0], WAITING, t + 710, t + 800, L21);
    span(&r[0], UPDATE, t + 993, t + 1043, 0);
    span(&r[1], STEP, t, t + 900, s + 1);
    span(&r[1], FORWARD, t, t + 250, 0);
    span(&r[1], WAITING, t, t + 100, L12);
    span(&r[1], WAITING, t + 100, t + 150, L12); /* for its second piece */
    span(&r[1], BACKWARD, t + 250, t + 450, 0);
    span(&r[1], FORWARD, t + 450, t + 550 + slow, 1);
    if (s == 2) {
        span(&r[1], WAITING, t + 450, t + 450 + slow, L12);
    }
    span(&r[1], BACKWARD, t + 600, t + 800, 1);
    span(&r[1], UPDATE, t + 800, t + 860, 0);
}

static ru_trace trace_of(rank *r, const char *said, int64_t wall_ns)
{
    r->meta = (ru_trace_meta){"pipe", said};
    for (uint32_t h = 0; h < 2; h++) {
        r->threads[h].records = r->at[h];
    }
    return (ru_trace){.names = names,
                      .n_names = NAMES,
                      .threads = r->threads,
                      .n_threads = 2,
                      .meta = &r->meta,
                      .n_meta = 1,
                      .wall_ns = wall_ns,
                      .records = r->threads[0].n + r->threads[1].n};
}

static void a_typical_step(void **state)
{
    (void)state;
    static rank r[3];
    ru_trace_pipe p;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    for (uint32_t s = 0; s < 3; s++) {
        put_step(r, s);
    }
    /* The first one is of a pipeline before. */
    const ru_trace traces[3] = {trace_of(&r[2], "0 3 2 flush a", 5),
                                trace_of(&r[1], "1 2 2 gpipe fc2", 7),
                                trace_of(&r[0], "0 2 2 gpipe fc1", 8)};
    assert_ok(ru_trace_pipe_read(traces, 3, NULL, &a, &p, &err), err);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.micro, 2);
    assert_string_equal(p.schedule, "gpipe");
    assert_int_equal(p.stages[0].trace, 2);
    assert_string_equal(p.stages[1].first, "fc2");
    assert_int_equal(p.stages[0].steps, 3);
    assert_int_equal(p.stages[0].step_ns, 1050);
    assert_int_equal(p.stages[1].step_ns, 900);
    assert_int_equal(p.stages[0].forward_ns, 100);
    assert_int_equal(p.stages[0].input_ns, 7);
    assert_int_equal(p.stages[1].input_ns, 0);
    assert_int_equal(p.stages[0].backward_ns, 195);
    assert_int_equal(p.stages[0].update_ns, 50);
    assert_int_equal(p.stages[1].forward_ns, 100);
    assert_int_equal(p.stages[1].update_ns, 60);
    assert_int_equal(p.n_flows, 2);
    const ru_stage_flow *f = p.flows;
    assert_true(f[0].from == 0 && f[0].to == 1 && f[1].from == 1 && f[1].to == 0);
    assert_int_equal(f[0].bytes, 96);
    assert_int_equal(f[0].n, 6);
    assert_int_equal(f[0].xfer_ns, 45); /* 75 in one step */
    assert_int_equal(f[0].wait_ns[0], 150);
    assert_int_equal(f[0].wait_ns[1], 10); /* 30 in one step of three */
    assert_int_equal(f[1].bytes, 64);
    assert_int_equal(f[1].xfer_ns, 50);
    assert_int_equal(f[1].wait_ns[0], 300);
    assert_int_equal(f[1].wait_ns[1], 90);
    ru_arena_fini(&a);
}

/* Of ten steps the shortest and the longest one do not count. */
static void outliers_are_left_out(void **state)
{
    (void)state;
    static rank r[2];
    ru_trace_name one_way[NAMES];
    ru_trace_pipe p;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    for (uint32_t s = 0; s < 10; s++) {
        put_step(r, s);
        uint32_t *update_ns = &r[0].at[0][r[0].threads[0].n - 1].dur_ns;
        *update_ns = s == 4 ? 5000 : s == 5 ? 1 : *update_ns;
    }
    ru_trace traces[2] = {trace_of(&r[0], "0 2 2 gpipe fc1", 8),
                          trace_of(&r[1], "1 2 2 gpipe fc2", 8)};
    assert_ok(ru_trace_pipe_read(traces, 2, NULL, &a, &p, &err), err);
    assert_int_equal(p.stages[0].update_ns, 50);
    memcpy(one_way, names, sizeof names);
    one_way[L21].name = "stage 2 to 3"; /* nothing comes back: no flow that could be played */
    traces[0].names = traces[1].names = one_way;
    assert_ok(ru_trace_pipe_read(traces, 2, NULL, &a, &p, &err), err);
    assert_int_equal(p.n_flows, 0);
    ru_arena_fini(&a);
}

static void other_runs_have_none(void **state)
{
    (void)state;
    static rank r;
    ru_trace_pipe p;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    const char *const said[] = {"", "2 2 2 flush a", "0 2 0 flush a", "0 2", "0 999 4 flush a"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(said); k++) {
        const ru_trace t = trace_of(&r, said[k], 1);
        assert_ok(ru_trace_pipe_read(&t, 1, NULL, &a, &p, &err), err);
        assert_int_equal(p.n, 0);
    }
    ru_arena_fini(&a);
}

/* A device goes forward twice in a step, and waits in both directions. */
static void devices_have_several_parts(void **state)
{
    (void)state;
    static rank r[2];
    ru_trace_name own[NAMES];
    ru_arena arena;
    ru_err err = {0};
    ru_trace_pipe p;
    memset(r, 0, sizeof r);
    memcpy(own, names, sizeof own);
    own[L12].name = "device 1 to 2";
    own[L21].name = "device 2 to 1";
    for (uint32_t s = 0; s < 4; s++) {
        int64_t t = 10000 * (int64_t)s;
        piece(&r[0], &r[1], L12, s, 100 * s, t + 100, t + 150);
        piece(&r[1], &r[0], L21, s, 100 * s + 2, t + 250, t + 300);
        span(&r[0], STEP, t, t + 1000, s + 1);
        span(&r[0], FORWARD, t, t + 100, 0);
        span(&r[0], FORWARD, t + 100, t + 400, 0);
        span(&r[0], WAITING, t + 100, t + 300, L21);
        span(&r[0], BACKWARD, t + 400, t + 500, 0);
        span(&r[0], BACKWARD, t + 500, t + 900, 0);
        span(&r[0], WAITING, t + 500, t + 600, L21);
        span(&r[0], UPDATE, t + 900, t + 910, 0);
        span(&r[0], UPDATE, t + 910, t + 930, 0);
        span(&r[1], STEP, t, t + 1000, s + 1);
        span(&r[1], FORWARD, t, t + 250, 0);
        span(&r[1], WAITING, t, t + 150, L12);
        span(&r[1], BACKWARD, t + 300, t + 500, 0);
        span(&r[1], UPDATE, t + 500, t + 560, 0);
    }
    ru_trace traces[] = {trace_of(&r[0], "0 2 1 placed conv1", 1),
                         trace_of(&r[1], "1 2 1 placed branch", 1)};
    traces[0].names = traces[1].names = own;
    ru_trace_clocks clocks;
    ru_arena_init(&arena, 0);
    assert_ok(ru_trace_align(traces, 2, &arena, &clocks, &err), err);
    assert_ok(ru_trace_pipe_read(traces, 2, &clocks, &arena, &p, &err), err);
    assert_string_equal(p.schedule, "placed");
    assert_int_equal(p.n, 2);
    assert_true(p.stages[0].parts == 2 && p.stages[0].updates == 2 && p.stages[1].parts == 1);
    assert_int_equal(p.stages[0].forward_ns, 100);
    assert_int_equal(p.stages[0].backward_ns, 200);
    assert_int_equal(p.stages[0].update_ns, 15);
    assert_string_equal(p.stages[1].first, "branch");
    assert_int_equal(p.n_flows, 2);
    assert_int_equal(p.flows[0].wait_ns[0], 150);
    assert_int_equal(p.flows[1].wait_ns[0], 300);
    assert_int_equal(p.flows[1].xfer_ns, 50);
    ru_arena_fini(&arena);
}

RU_TESTS(trace_stages, cmocka_unit_test(a_typical_step), cmocka_unit_test(outliers_are_left_out),
         cmocka_unit_test(devices_have_several_parts), cmocka_unit_test(other_runs_have_none))
