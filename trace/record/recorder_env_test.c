/* What env/ does in a thread with a name is recorded, and only there and as long as it has one. */
#include "test/scratch.h"
#include "test/test.h"

#include <string.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "env/loop/loop.h"
#include "env/probe.h"
#include "trace/read/read.h"
#include "trace/record/recorder.h"

static const ru_record *find(const ru_trace *t, const char *name, int64_t *n)
{
    const ru_record *last = NULL;
    *n = 0;
    for (uint32_t h = 0; h < t->n_threads; h++) {
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            const ru_record *r = &t->threads[h].records[i];
            bool is = strcmp(t->names[r->name].name, name) == 0 &&
                      strcmp(t->names[r->name].category, "env") == 0;
            last = is ? r : last;
            *n += is;
        }
    }
    return last;
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    (void)what;
    ru_time *until = self; /* busy for so long */
    while (ru_time_since(ru_clock_now(), now) < until->ns) {
    }
}

static void test_records(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r;
    ru_loop *l;
    ru_trace t;
    int64_t n;
    const char *path = ru_path_join(&f->arena, f->root, "file");
    const ru_recorder_options opt = {.dir = f->root};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    assert_ok(ru_file_replace(path, "123", 3, &f->err), f->err); /* no name yet */
    ru_recorder_thread(r, "main");
    assert_ok(ru_file_replace(path, "12345", 5, &f->err), f->err);
    assert_ok(ru_loop_open(&l, &f->err), f->err);
    ru_time busy = {RU_PROBE_CALL_NS + 1000}, past = ru_clock_now();
    past.ns -= 3 * (int64_t)RU_PROBE_LATE_NS;
    ru_loop_timer(l, on_timer, &busy, 7, past);
    assert_ok(ru_loop_round(l, 0, &f->err), f->err);
    ru_loop_close(l);
    ru_recorder_thread_end(r);
    assert_ok(ru_file_replace(path, "1", 1, &f->err), f->err); /* no name any more */
    ru_recorder_close(r);
    assert_null(ru_probe_self());
    assert_ok(
        ru_trace_load(ru_path_join(&f->arena, f->root, "rank0.trace"), &f->arena, &t, &f->err),
        f->err);
    const ru_record *write = find(&t, "write", &n);
    assert_int_equal(n, 1);
    assert_int_equal(write->value, 5);
    (void)find(&t, "sync", &n);
    assert_int_equal(n, 2); /* the file and its folder */
    const ru_record *late = find(&t, "timer late", &n);
    assert_int_equal(n, 1);
    assert_int_equal(late->start_ns, past.ns);
    assert_int_equal(late->value, 7);
    assert_int_equal(late->kind, RU_REC_ASYNC);
    const ru_record *call = find(&t, "callback", &n);
    assert_int_equal(n, 1);
    assert_true(call->dur_ns > RU_PROBE_CALL_NS && call->value == 7);
}

/* A thread that closes the recorder may go on without it. */
static void test_closed(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r;
    const ru_recorder_options opt = {.dir = f->root};
    assert_ok(ru_recorder_open(&opt, &r, &f->err), f->err);
    ru_recorder_thread(r, "main");
    assert_ptr_equal(ru_probe_self(), r);
    ru_recorder_close(r);
    assert_null(ru_probe_self());
    assert_ok(ru_file_replace(ru_path_join(&f->arena, f->root, "file"), "1", 1, &f->err), f->err);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(trace_recorder_env, T(test_records), T(test_closed))
