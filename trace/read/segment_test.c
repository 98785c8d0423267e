/* Segments: the newest window stays, all of it readable; windows of it are saved; a disk that takes
 * nothing more stops the writing and nothing else. */
#include "test/scratch.h"
#include "test/test.h"
#include "trace/read/read.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "env/file/file.h"

enum { BYTES_MAX = 1 << 18 };

/* n pairs of a span and a transfer, 10 ns apart from `first` on. */
static void record(ru_recorder *r, int64_t first, int64_t n)
{
    uint16_t name = ru_recorder_name(r, "work", "test");
    for (int64_t i = first; i < first + n; i++) {
        ru_rec_span(r, name, 10 * i, 10 * i + 5, i);
        ru_rec_flows(r, &(ru_rec_flow){.kind = RU_REC_SEND,
                                       .name = name,
                                       .flow = (uint64_t)i + 1,
                                       .start_ns = 10 * i,
                                       .end_ns = 10 * i + 9});
    }
}

static ru_trace load(ru_scratch *f, const char *dir)
{
    ru_trace *t;
    uint32_t n;
    assert_ok(ru_trace_run_load(dir, &f->arena, &t, &n, &f->err), f->err);
    assert_int_equal(n, 1);
    return t[0];
}

static int64_t bytes_in(ru_scratch *f, uint32_t *files)
{
    char **names;
    int64_t bytes = 0;
    assert_ok(ru_dir_list(f->root, &f->arena, &names, files, &f->err), f->err);
    for (uint32_t i = 0; i < *files; i++) {
        bytes += ru_path_bytes(ru_path_join(&f->arena, f->root, names[i]));
    }
    return bytes;
}

static void test_the_newest_window_stays(void **state)
{
    ru_scratch *f = *state;
    enum { ROUNDS = 200, EACH = 100 }; /* 96 bytes each: 1.9 MB in all */
    ru_recorder *r = NULL;
    const ru_recorder_options o = {
        .dir = f->root, .driven = true, .bytes_max = BYTES_MAX, .ring_records = 512};
    assert_ok(ru_recorder_open(&o, &r, &f->err), f->err);
    ru_recorder_node(r, 9);
    for (int64_t k = 0; k < ROUNDS; k++) {
        record(r, k * EACH, EACH);
    }
    ru_recorder_close(r);
    uint32_t files;
    int64_t bytes = bytes_in(f, &files);
    assert_in_range(bytes, BYTES_MAX * 3 / 4, BYTES_MAX + 65536);
    assert_in_range(files, 6, 10);
    ru_trace t = load(f, f->root);
    assert_true(t.complete && t.damaged_at < 0 && t.segment > 0);
    assert_int_equal(t.node, 9);
    const ru_trace_thread *th = &t.threads[0];
    int64_t last = -1, spans = 0;
    for (int64_t i = 0; i < th->n; i++) {
        const ru_record *x = &th->records[i];
        if (x->kind == RU_REC_SPAN) {
            assert_string_equal(t.names[x->name].name, "work");
            assert_true(last < 0 || x->value == last + 1); /* without a hole */
            last = x->value;
            spans++;
        } else if (x->kind == RU_REC_SEND) {
            assert_int_equal(ru_trace_more(th, x)->flow, (uint64_t)last + 1);
        }
    }
    assert_int_equal(last, ROUNDS * EACH - 1);
    assert_true(spans > BYTES_MAX / 96 / 2);
}

static void test_a_window_is_saved(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    const ru_recorder_options o = {.dir = f->root, .rank = 2, .bytes_max = BYTES_MAX};
    assert_ok(ru_recorder_open(&o, &r, &f->err), f->err);
    record(r, 0, 2000);
    const char *dir = ru_path_join(&f->arena, f->root, "window");
    assert_int_equal(ru_recorder_save(r, dir, 5000, 8000), RU_OK);
    ru_recorder_sync(r);
    ru_recorder_stats stats;
    ru_recorder_stats_get(r, &stats);
    assert_int_equal(stats.saves, 1);
    assert_int_equal(stats.saves_failed, 0);
    ru_trace t = load(f, dir);
    assert_true(t.complete);
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.first_ns, 5000);
    assert_int_equal(t.last_ns, 8009);
    assert_int_equal(t.threads[0].n, 3 * 301); /* 500 to 800, and its halves */
    for (uint32_t k = 0; k < RU_RECORDER_SAVES_MAX; k++) {
        (void)!ru_recorder_save(r, dir, 0, 1);
    }
    ru_recorder_close(r); /* waits for those that were asked for */
}

/* Files may not grow: one warning, records are lost, nothing waits. */
static void test_a_full_disk_stops_the_writing(void **state)
{
    ru_scratch *f = *state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    ru_recorder *r = NULL;
    const ru_recorder_options o = {.dir = f->root};
    assert_ok(ru_recorder_open(&o, &r, &f->err), f->err);
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){4096, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    record(r, 0, 1000);
    ru_recorder_sync(r);
    record(r, 1000, 1000);
    ru_recorder_sync(r);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, before);
    ru_recorder_stats stats;
    ru_recorder_stats_get(r, &stats);
    assert_true(stats.stopped);
    assert_int_equal(ru_recorder_save(r, f->root, 0, 1), RU_E_IO);
    ru_recorder_close(r);
    ru_trace t = load(f, f->root);
    assert_false(t.complete);
}

/* What stands beside the trace cannot be written: as if the trace could not. */
static void test_a_file_beside_the_trace_stops_the_writing(void **state)
{
    ru_scratch *f = *state;
    ru_recorder *r = NULL;
    const ru_recorder_options o = {.dir = f->root};
    assert_ok(ru_recorder_open(&o, &r, &f->err), f->err);
    record(r, 0, 100);
    ru_recorder_sync(r);
    ru_recorder_stats stats;
    ru_recorder_stats_get(r, &stats);
    assert_false(stats.stopped);
    ru_recorder_fail(r, &(ru_err){.text = "no room for a list"});
    ru_recorder_fail(r, &(ru_err){.text = "no room for another one"});
    ru_recorder_sync(r);
    ru_recorder_stats_get(r, &stats);
    assert_true(stats.stopped);
    ru_recorder_fail(NULL, &f->err);
    ru_recorder_close(r);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(trace_segment, T(test_the_newest_window_stays), T(test_a_window_is_saved),
         T(test_a_file_beside_the_trace_stops_the_writing), T(test_a_full_disk_stops_the_writing))
