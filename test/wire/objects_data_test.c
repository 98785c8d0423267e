/* Files behind addresses give the bytes of the same files on the disk: every format, order, number
 * of threads, request size and depth, with a server that is at times overloaded or cuts answers
 * short. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "bench/reader/range_server.h"
#include "data/detect.h"
#include "data/fetch.h"
#include "data/make/write.h"
#include "test/scratch.h"
#include "test/test.h"

enum { COUNT = 230, CIFAR_BYTES = 3073, PATHS = 2 };

typedef struct rig {
    ru_scratch *s;
    ru_range_server *server;
    ru_log_options log;
} rig;

/* `log` is the server's; NULL: none. */
static void open_rig(rig *r, void **state, const char *log)
{
    *r = (rig){.s = *state, .log = ru_log_get()};
    ru_log_options quiet = r->log;
    quiet.level = RU_LOG_OFF;
    ru_log_set(&quiet);
    ru_range_server_options so = {.dir = r->s->root, .log = log};
    so.every[RU_RANGE_busy] = 1999;
    so.every[RU_RANGE_cut] = 101;
    so.every[RU_RANGE_brief] = 67;
    assert_ok(ru_range_server_open(&so, &r->server, &r->s->err), r->s->err);
    assert_ok(ru_range_server_start(r->server, &r->s->err), r->s->err);
}

static void close_rig(rig *r)
{
    ru_range_server_close(r->server);
    ru_log_set(&r->log);
}

static ru_dataset *open_set(const ru_data_options *opt, int64_t resident)
{
    ru_err err = {0};
    ru_data_options o = *opt;
    ru_dataset *d = NULL;
    o.resident_max_bytes = resident;
    assert_ok(ru_dataset_open(&o, &d, &err), err);
    return d;
}

static void compare(ru_dataset *a, ru_dataset *b, uint32_t v)
{
    ru_err err = {0};
    const ru_field *fields;
    uint32_t n_fields = ru_dataset_fields(a, &fields);
    ru_stream *s = NULL, *t = NULL;
    ru_batch x, y;
    ru_stream_options o = {.seed = v,
                           .shuffle = (ru_shuffle)(v % 3),
                           .block = 7,
                           .batch = 20 + v * 3,
                           .epochs = 2,
                           .partial_last = true,
                           .threads = 1 + v % 3};
    assert_ok(ru_stream_open(a, &o, &s, &err), err);
    assert_ok(ru_stream_open(b, &o, &t, &err), err);
    ru_stream_reads_set(t, 1000 << v, 1 + v * 2);
    do {
        assert_ok(ru_stream_next(s, &x, &err), err);
        assert_ok(ru_stream_next(t, &y, &err), err);
        assert_int_equal(x.n, y.n);
        for (uint32_t k = 0; k < n_fields && x.n > 0; k++) {
            assert_memory_equal(x.fields[k], y.fields[k], (size_t)(x.n * a->field_bytes[k]));
        }
    } while (x.n > 0);
    ru_stream_close(s);
    ru_stream_close(t);
}

/* `names` are files of the rig's folder. */
static void check(const rig *r, const ru_data_options *opt, const char *const *names)
{
    const char *near[PATHS], *far[PATHS];
    ru_arena *arena = &r->s->arena;
    for (uint32_t k = 0; k < opt->n_paths; k++) {
        near[k] = ru_path_join(arena, r->s->root, names[k]);
        far[k] = ru_arena_printf(arena, "http://127.0.0.1:%u/%s", ru_range_server_port(r->server),
                                 names[k]);
    }
    ru_data_options o = *opt;
    o.paths = near;
    ru_dataset *a = open_set(&o, INT64_MAX);
    o.paths = far;
    ru_dataset *b = open_set(&o, -1), *c = open_set(&o, 0);
    assert_int_equal(ru_dataset_count(a), ru_dataset_count(b));
    assert_int_equal(ru_dataset_bytes(a), ru_dataset_bytes(b));
    assert_true(b->format->where == NULL || b->objects != NULL);
    for (uint32_t v = 0; v < 6; v++) {
        compare(a, b, v);
    }
    compare(a, c, 1); /* small objects are kept in memory */
    ru_dataset_close(a);
    ru_dataset_close(b);
    ru_dataset_close(c);
}

static void check_written(const rig *r, const char *format, const char *const *names, uint32_t n)
{
    ru_scratch *f = r->s;
    const ru_data_options made = {
        .format = "synthetic", .generator = "digits", .seed = 3, .count = COUNT};
    ru_dataset *d = open_set(&made, 0);
    const rui_write_job job = {.d = d, .n = COUNT, .dir = f->root, .prefix = "a"};
    assert_ok(rui_writer_find(format)->write(&job, &f->err), f->err);
    ru_dataset_close(d);
    ru_data_options opt = {.format = format, .n_paths = n};
    check(r, &opt, names);
    opt.held = 0.3; /* a part drawn by a permutation */
    check(r, &opt, names);
}

static void test_written_formats(void **state)
{
    rig r;
    open_rig(&r, state, NULL);
    check_written(&r, "idx", (const char *const[]){"a-images", "a-labels"}, 2);
    check_written(&r, "npy", (const char *const[]){"a-x.npy", "a-y.npy"}, 2);
    check_written(&r, "packed", (const char *const[]){"a.pack"}, 1);
    check_written(&r, "csv", (const char *const[]){"a.csv"}, 1);
    check_written(&r, "libsvm", (const char *const[]){"a.svm"}, 1);
    close_rig(&r);
}

static void save(const rig *r, const char *name, const void *bytes, int64_t n)
{
    const char *path = ru_path_join(&r->s->arena, r->s->root, name);
    assert_ok(ru_file_replace(path, bytes, n, &r->s->err), r->s->err);
}

static void test_records(void **state)
{
    rig r;
    open_rig(&r, state, NULL);
    ru_rng rng = ru_rng_from(ru_test_seed(), 5);
    uint8_t *bytes = ru_arena_alloc(&r.s->arena, COUNT * CIFAR_BYTES, 1);
    for (int64_t i = 0; i < COUNT * CIFAR_BYTES; i++) {
        bytes[i] = (uint8_t)ru_rng_below(&rng, i % CIFAR_BYTES == 0 ? 10 : 256);
    }
    save(&r, "one.bin", bytes, 100 * CIFAR_BYTES);
    save(&r, "two.bin", bytes + 100 * CIFAR_BYTES, 130 * CIFAR_BYTES);
    check(&r, &(ru_data_options){.format = "cifar", .n_paths = 2},
          (const char *const[]){"one.bin", "two.bin"});
    save(&r, "one.u8", bytes, 700);
    save(&r, "two.u8", bytes + 700, 900);
    check(&r, &(ru_data_options){.format = "tokens", .n_paths = 2, .context = 11},
          (const char *const[]){"one.u8", "two.u8"});
    close_rig(&r);
}

static void test_detect(void **state)
{
    rig r;
    ru_err err = {0};
    open_rig(&r, state, NULL);
    save(&r, "t.csv", "a,b\n1,2\n3,4\n", 12);
    const char *paths[] = {
        ru_arena_printf(&r.s->arena, "http://127.0.0.1:%u/t.csv", ru_range_server_port(r.server))};
    ru_data_options o = {0};
    assert_ok(ru_data_detect(paths, 1, "train", &r.s->arena, &o, &err), err);
    assert_string_equal(o.format, "csv");
    close_rig(&r);
}

/* What stands behind '?' may be a secret: no message shows it. */
static void test_hidden(void **state)
{
    rig r;
    ru_err err = {0};
    open_rig(&r, state, NULL);
    save(&r, "t.csv", "a,b\n1,2\n3,x\n", 13);
    save(&r, "t.bin", "12345", 5);
    static const char *const formats[] = {"csv",    "libsvm", "idx",     "npy",
                                          "packed", "tar",    "tfrecord"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(formats); k++) {
        const char *paths[] = {ru_arena_printf(&r.s->arena, "http://127.0.0.1:%u/%s?sig=hidden",
                                               ru_range_server_port(r.server),
                                               k < 2 ? "t.csv" : "t.bin")};
        const ru_data_options o = {.format = formats[k], .paths = paths, .n_paths = 1};
        ru_dataset *d = NULL;
        assert_int_not_equal(ru_dataset_open(&o, &d, &err), RU_OK);
        if (strstr(err.text, "hidden") != NULL || strstr(err.text, "/t.") == NULL) {
            fail_msg("%s", err.text);
        }
    }
    close_rig(&r);
}

/* Damaged samples may be skipped; those of another version of the object never are. */
static void test_changed(void **state)
{
    rig r;
    ru_err err = {0};
    open_rig(&r, state, NULL);
    ru_rng rng = ru_rng_from(ru_test_seed(), 8);
    uint8_t *bytes = ru_arena_alloc(&r.s->arena, COUNT * CIFAR_BYTES, 1);
    for (int64_t i = 0; i < COUNT * CIFAR_BYTES; i++) {
        bytes[i] = (uint8_t)ru_rng_below(&rng, i % CIFAR_BYTES == 0 ? 10 : 256);
    }
    save(&r, "a.bin", bytes, COUNT * CIFAR_BYTES);
    const char *paths[] = {
        ru_arena_printf(&r.s->arena, "http://127.0.0.1:%u/a.bin", ru_range_server_port(r.server))};
    const ru_data_options o = {
        .format = "cifar", .paths = paths, .n_paths = 1, .skip_damaged = true};
    ru_dataset *d = open_set(&o, -1);
    ru_stream *s = NULL;
    ru_batch b;
    const ru_stream_options so = {.batch = 10, .shuffle = RU_SHUFFLE_FULL, .ahead = 1};
    assert_ok(ru_stream_open(d, &so, &s, &err), err);
    assert_ok(ru_stream_next(s, &b, &err), err);
    save(&r, "a.bin", bytes, COUNT * CIFAR_BYTES);
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < 300 && st == RU_OK; k++) {
        st = ru_stream_next(s, &b, &err);
    }
    assert_int_equal(st, RU_E_DATA);
    if (strstr(err.text, "changed while it was read") == NULL) {
        fail_msg("%s", err.text);
    }
    ru_stream_close(s);
    ru_dataset_close(d);
    close_rig(&r);
}

enum { OWN_COUNT = 400, OWN_VALUES = 65536, OWN_HEAD = 128, OWN_BATCH = 2, OWN_WORKERS = 2 };

/* 400 samples of 256 KiB: their number, and zeros that need no space on the disk. */
static void save_large(const rig *r)
{
    char head[OWN_HEAD + 1];
    (void)snprintf(head, sizeof head, "\x93NUMPY\x01%c\x76%c%-117s\n", 0, 0,
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (400, 65536), }");
    save(r, "x.npy", head, OWN_HEAD);
    FILE *f = fopen(ru_path_join(&r->s->arena, r->s->root, "x.npy"), "r+");
    assert_non_null(f);
    for (long k = 0; k < OWN_COUNT; k++) {
        float values[2] = {(float)k, 0}; /* the first and the last one */
        assert_int_equal(fseek(f, OWN_HEAD + k * OWN_VALUES * 4, SEEK_SET), 0);
        assert_int_equal(fwrite(&values[0], 4, 1, f), 1);
        assert_int_equal(fseek(f, OWN_HEAD + (k + 1) * OWN_VALUES * 4 - 4, SEEK_SET), 0);
        assert_int_equal(fwrite(&values[1], 4, 1, f), 1);
    }
    assert_int_equal(fclose(f), 0);
}

/* Of the samples, a server's log names only those. */
static void check_asked(rig *r, const char *log, const bool own[OWN_COUNT])
{
    char *text = NULL;
    int64_t n = 0;
    uint32_t asked = 0;
    assert_ok(ru_file_read(log, 16 << 20, &r->s->arena, &text, &n, &r->s->err), r->s->err);
    for (const char *at = text; (at = strstr(at, "Range: bytes=")) != NULL; at++) {
        long long first = 0, last = 0;
        assert_int_equal(sscanf(at, "Range: bytes=%lld-%lld", &first, &last), 2);
        if (first == 0) {
            continue; /* when it was opened */
        }
        long long from = (first - OWN_HEAD) / (OWN_VALUES * 4);
        long long to = (last - OWN_HEAD) / (OWN_VALUES * 4);
        assert_true(from >= 0 && from <= to && to < OWN_COUNT);
        for (long long k = from; k <= to; k++) {
            assert_true(own[k]);
        }
        asked++;
    }
    assert_true(asked > 0);
}

static void check_own(void **state, ru_shuffle shuffle, uint32_t worker)
{
    rig r;
    ru_err err = {0};
    ru_scratch *scratch = *state;
    const char *log =
        ru_arena_printf(&scratch->arena, "%s/log-%u-%u", scratch->root, (uint32_t)shuffle, worker);
    open_rig(&r, state, log);
    save_large(&r);
    const char *paths[] = {
        ru_arena_printf(&r.s->arena, "http://127.0.0.1:%u/x.npy", ru_range_server_port(r.server))};
    const ru_data_options o = {.format = "npy", .paths = paths, .n_paths = 1};
    ru_dataset *d = open_set(&o, -1);
    ru_stream *s = NULL;
    const ru_stream_options so = {.shuffle = shuffle,
                                  .seed = 5,
                                  .batch = OWN_BATCH,
                                  .stride = OWN_BATCH * OWN_WORKERS,
                                  .start = worker * OWN_BATCH,
                                  .threads = 2};
    bool own[OWN_COUNT] = {0};
    assert_ok(ru_stream_open(d, &so, &s, &err), err);
    for (int64_t p = 0; p < OWN_COUNT; p++) {
        own[ru_stream_sample(s, p)] = p / OWN_BATCH % OWN_WORKERS == worker;
    }
    for (uint32_t k = 0; k < 20; k++) { /* what is read ahead does not end the epoch */
        ru_batch b;
        assert_ok(ru_stream_next(s, &b, &err), err);
        for (int64_t i = 0; i < OWN_BATCH; i++) {
            int64_t sample = ru_stream_sample(s, b.position + i);
            assert_true(own[sample]);
            assert_true(((const float *)b.fields[0])[i * OWN_VALUES] == (float)sample);
        }
    }
    ru_stream_close(s);
    ru_dataset_close(d);
    close_rig(&r);
    check_asked(&r, log, own);
}

/* Each of two workers asks for its own samples alone, in every order. */
static void test_own_samples(void **state)
{
    for (uint32_t v = 0; v < 3 * OWN_WORKERS; v++) {
        check_own(state, (ru_shuffle)(v / OWN_WORKERS), v % OWN_WORKERS);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(test_objects_data, T(test_written_formats), T(test_records), T(test_detect),
         T(test_hidden), T(test_changed), T(test_own_samples))
