/* Windows, flight recordings and traces of other hosts, at a worker that leads alone, in times of
 * the test. */
#include <stdio.h>
#include <string.h>

#include "base/wire.h"
#include "env/file/file.h"
#include "host/shell_impl.h"
#include "test/job/lives.h"
#include "test/scratch.h"
#include "test/test.h"
#include "trace/read/read.h"

enum { STEP_NS = 1000000, WORK_NS = 900000, OTHER = 77 };

typedef struct rig {
    ru_scratch *f;
    const char *dir;
    job lone;
    ru_recorder *recorder;
    ru_loop *loop;
    ru_tracing t;
    bool over;
    uint16_t name;
    int64_t now_ns;
} rig;

static rig *rig_open(ru_scratch *f)
{
    rig *r = RU_NEW(&f->arena, rig, 1);
    assert_non_null(r);
    r->f = f;
    job_open(&r->lone, 1, 1000, 0);
    while (!ru_member_leads(ru_node_member(r->lone.l[0]->node))) {
        job_round(&r->lone);
    }
    r->dir = ru_path_join(&f->arena, f->root, "trace");
    const ru_recorder_options opt = {.dir = r->dir};
    assert_ok(ru_recorder_open(&opt, &r->recorder, &f->err), f->err);
    assert_ok(ru_loop_open(&r->loop, &f->err), f->err);
    r->name = ru_recorder_name(r->recorder, "step", "train");
    r->t = (ru_tracing){.recorder = r->recorder,
                        .loop = r->loop,
                        .chan = ru_node_chan(r->lone.l[0]->node),
                        .member = ru_node_member(r->lone.l[0]->node),
                        .self = r->lone.l[0]->id,
                        .out = f->root,
                        .over = &r->over};
    return r;
}

static void rig_close(rig *r)
{
    ru_loop_close(r->loop);
    ru_recorder_close(r->recorder);
    job_close(&r->lone);
}

/* Step k begins, takes took_ns and is done. */
static void step(rig *r, int64_t k, int64_t took_ns)
{
    ru_tracing_step(&r->t, k, (ru_time){r->now_ns});
    ru_rec_span(r->recorder, r->name, r->now_ns, r->now_ns + WORK_NS, k);
    r->now_ns += took_ns;
    ru_tracing_updated(&r->t, k, (ru_time){r->now_ns});
}

static void hear(rig *r, uint32_t what, const ru_wire_out *o, const uint8_t *data)
{
    ru_tracing_hear(&r->t, (ru_node_id){OTHER}, what, data, ru_wire_size(o), (ru_time){r->now_ns});
}

static void test_window(void **state)
{
    rig *r = rig_open(*state);
    uint8_t data[4];
    ru_wire_out o = ru_wire_out_into(data, sizeof data);
    ru_wire_put_u32(&o, 4);
    r->now_ns = STEP_NS;
    for (int64_t k = 1; k <= 12; k++) {
        step(r, k, STEP_NS);
        if (k == 3) {
            hear(r, RUI_MSG_TRACE_ASK, &o, data); /* the next steps that all can know of: 5 .. 8 */
        }
    }
    ru_recorder_sync(r->recorder);
    ru_trace t;
    const char *path = ru_path_join(&r->f->arena, r->dir, "steps-5-9/rank0.trace");
    assert_ok(ru_trace_load(path, &r->f->arena, &t, &r->f->err), r->f->err);
    assert_int_equal(t.threads[0].n, 4);
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(t.threads[0].records[i].value, 5 + i);
    }
    assert_int_equal(r->t.window.first, 5);
    rig_close(r);
}

/* A step of twice the mean and more leaves a recording; the next one within a minute does not. */
static void test_flight(void **state)
{
    rig *r = rig_open(*state);
    r->now_ns = STEP_NS;
    for (int64_t k = 1; k <= 60; k++) {
        step(r, k, k == 30 || k == 50 ? 4 * STEP_NS : k == 40 ? STEP_NS * 19 / 10 : STEP_NS);
        r->t.window.saving = false; /* a loop would have seen that it is saved */
    }
    ru_recorder_sync(r->recorder);
    char **names;
    uint32_t n;
    assert_ok(ru_dir_list(r->dir, &r->f->arena, &names, &n, &r->f->err), r->f->err);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], "flight-31");
    assert_string_equal(names[1], "rank0.trace");
    rig_close(r);
}

static void put_part(rig *r, const char *name, int64_t offset, const char *bytes)
{
    uint8_t data[256];
    ru_wire_out o = ru_wire_out_into(data, sizeof data);
    ru_wire_put_u16(&o, (uint16_t)strlen(name));
    ru_wire_put_bytes(&o, name, (int64_t)strlen(name));
    ru_wire_put_u64(&o, (uint64_t)offset);
    ru_wire_put_bytes(&o, bytes, (int64_t)strlen(bytes));
    hear(r, RUI_MSG_TRACE_PART, &o, data);
}

/* Parts make files of known names in the run's folder, in order, and never touch what is there. */
static void test_parts(void **state)
{
    rig *r = rig_open(*state);
    char *text;
    int64_t size;
    ru_recorder_sync(r->recorder);
    put_part(r, "rank9.trace", 0, "abc");
    put_part(r, "rank9.trace", 3, "def");
    put_part(r, "rank9.trace", 9, "behind a gap");
    put_part(r, "rank9.trace", 0, "again");
    put_part(r, "rank8.trace", 3, "no beginning");
    put_part(r, "steps-5-9/rank9.trace", 0, "window");
    put_part(r, "rank0.trace", 0, "its own");
    static const char *const hostile[] = {"../rank9.trace",
                                          "/tmp/rank9.trace",
                                          "steps-1/../rank7.trace",
                                          "rank7.trace/rank7.trace",
                                          "other/rank7.trace",
                                          "rank7.yaml",
                                          "steps-..",
                                          "rank..trace"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(hostile); k++) {
        put_part(r, hostile[k], 0, "hostile");
    }
    ru_recorder_sync(r->recorder);
    char **names;
    uint32_t n;
    assert_ok(ru_dir_list(r->dir, &r->f->arena, &names, &n, &r->f->err), r->f->err);
    assert_int_equal(n, 3);
    assert_string_equal(names[0], "rank0.trace");
    assert_string_equal(names[1], "rank9.trace");
    assert_string_equal(names[2], "steps-5-9");
    const char *path = ru_path_join(&r->f->arena, r->dir, names[1]);
    assert_ok(ru_file_read(path, 0, &r->f->arena, &text, &size, &r->f->err), r->f->err);
    assert_string_equal(text, "abcdef");
    path = ru_path_join(&r->f->arena, r->dir, "rank0.trace");
    assert_ok(ru_file_read(path, 0, &r->f->arena, &text, &size, &r->f->err), r->f->err);
    assert_memory_equal(text, "RUBATOTR", 8);
    assert_null(strstr(text + 64, "its own"));
    assert_ok(ru_dir_list(r->f->root, &r->f->arena, &names, &n, &r->f->err), r->f->err);
    assert_int_equal(n, 1);
    rig_close(r);
}

/* A folder that cannot be made: who asked does not hear that all have saved. */
static void test_failed_window(void **state)
{
    rig *r = rig_open(*state);
    r->now_ns = STEP_NS;
    const char *path = ru_path_join(&r->f->arena, r->dir, "flight-3");
    ru_recorder_sync(r->recorder);
    assert_ok(ru_file_replace(path, "a file", 6, &r->f->err), r->f->err);
    step(r, 1, STEP_NS);
    step(r, 2, STEP_NS);
    ru_tracing_lost(&r->t, (ru_time){r->now_ns});
    step(r, 3, STEP_NS);
    ru_recorder_sync(r->recorder);
    for (uint32_t k = 0; k < 1000 && r->t.window.saving; k++) {
        assert_ok(ru_loop_round(r->loop, -1, &r->f->err), r->f->err);
    }
    assert_false(r->t.window.saving);
    assert_int_equal(r->t.saved, 0);
    rig_close(r);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(host_traces, T(test_window), T(test_flight), T(test_parts), T(test_failed_window))
