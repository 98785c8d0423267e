/* What is fetched ahead is what a resident file gives: every format, order, engine and setting. */
#include "data/fetch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "data/make/write.h"
#include "data/stream_impl.h"
#include "test/scratch.h"
#include "test/test.h"

enum { COUNT = 230, CIFAR_BYTES = 3073 };

static ru_dataset *open_as(const ru_data_options *opt, int64_t resident)
{
    ru_err err = {0};
    ru_data_options o = *opt;
    ru_dataset *d = NULL;
    o.resident_max_bytes = resident;
    assert_ok(ru_dataset_open(&o, &d, &err), err);
    return d;
}

static bool can_direct(const ru_data_options *opt)
{
    ru_data_options o = *opt;
    ru_dataset *d = NULL;
    ru_err err = {0};
    o.resident_max_bytes = -1;
    o.direct = true;
    ru_status st = ru_dataset_open(&o, &d, &err);
    ru_dataset_close(d);
    assert_true(st == RU_OK || st == RU_E_CONFIG);
    if (st != RU_OK) {
        print_message("not tested: %s\n", err.text);
    }
    return st == RU_OK;
}

static ru_stream *open_stream(ru_dataset *d, const ru_stream_options *opt)
{
    ru_err err = {0};
    ru_stream *s = NULL;
    assert_ok(ru_stream_open(d, opt, &s, &err), err);
    return s;
}

/* Another number of batches ahead. No batch was taken that had no room under the one before, when
 * `taken` batches had been taken. Returns that count of now. */
static int64_t read_ahead(ru_stream *s, int64_t taken, ru_rng *rng)
{
    uint32_t least, most;
    ru_stream_ahead_range(s, &least, &most);
    ru_mutex_lock(&s->lock);
    int64_t room = s->released + s->n_ahead + 1;
    assert_true(s->next_take <= (taken > room ? taken : room));
    assert_int_equal(s->n_slots - s->n_blocks, s->next_take - s->released);
    ru_mutex_unlock(&s->lock);
    ru_stream_ahead_set(s, least + ru_rng_below(rng, most - least + 1));
    ru_mutex_lock(&s->lock);
    taken = s->next_take;
    ru_mutex_unlock(&s->lock);
    return taken;
}

/* Batches of both until the end of the second epoch. */
static void compare(ru_dataset *a, ru_dataset *b, const ru_stream_options *one,
                    const ru_stream_options *two)
{
    ru_err err = {0};
    const ru_field *fields;
    uint32_t n_fields = ru_dataset_fields(a, &fields);
    ru_stream *s = open_stream(a, one), *t = open_stream(b, two);
    ru_batch x, y;
    ru_rng rng = ru_rng_from(two->seed, 6);
    int64_t taken = INT64_MAX;
    do {
        assert_ok(ru_stream_next(s, &x, &err), err);
        assert_ok(ru_stream_next(t, &y, &err), err);
        assert_true(y.fill_ns >= 0 && (y.n == 0 || y.fill_ns > 0));
        taken = read_ahead(t, taken, &rng);
        assert_int_equal(x.n, y.n);
        assert_int_equal(x.next, y.next);
        for (uint32_t k = 0; k < n_fields && x.n > 0; k++) {
            assert_memory_equal(x.fields[k], y.fields[k], (size_t)(x.n * a->field_bytes[k]));
        }
    } while (x.n > 0);
    ru_stream_close(s);
    ru_stream_close(t);
}

static void check_reads(const ru_data_options *opt, bool direct)
{
    ru_data_options past = *opt;
    past.direct = direct;
    ru_dataset *a = open_as(opt, INT64_MAX), *b = open_as(&past, -1);
    for (uint32_t v = 0; v < 24; v++) {
        ru_stream_options o = {.seed = v,
                               .shuffle = (ru_shuffle)(v % 3),
                               .block = 7,
                               .batch = 1 + v * 3,
                               .epochs = 2,
                               .partial_last = true},
                          p = o;
        p.threads = 1 + v % 4;
        p.read_threads = v % 8 == 3;
        p.read_plain = v % 4 == 1;
        p.ahead = v % 5 == 0 ? 1 : 6;
        p.ahead_max = v % 3 == 0 ? 0 : 20;
        p.bytes_max = v % 7 == 6 ? 1 : 0; /* no batch ahead */
        compare(a, b, &o, &p);
    }
    ru_dataset_close(a);
    ru_dataset_close(b);
}

static void check(const ru_data_options *opt)
{
    check_reads(opt, false);
    if (can_direct(opt)) {
        check_reads(opt, true);
    }
}

static const char *save(ru_scratch *f, const char *name, const void *bytes, int64_t n)
{
    const char *path = ru_path_join(&f->arena, f->root, name);
    assert_ok(ru_file_replace(path, bytes, n, &f->err), f->err);
    return path;
}

static void check_written(ru_scratch *f, const char *format, const char *const *names, uint32_t n)
{
    const char *paths[2];
    const ru_data_options made = {
        .format = "synthetic", .generator = "digits", .seed = 3, .count = COUNT};
    ru_dataset *d = open_as(&made, 0);
    const rui_write_job job = {.d = d, .n = COUNT, .dir = f->root, .prefix = "a"};
    assert_ok(rui_writer_find(format)->write(&job, &f->err), f->err);
    ru_dataset_close(d);
    for (uint32_t k = 0; k < n; k++) {
        paths[k] = ru_path_join(&f->arena, f->root, names[k]);
    }
    ru_data_options opt = {.format = format, .paths = paths, .n_paths = n};
    check(&opt);
    opt.held = 0.3; /* a part drawn by a permutation */
    check(&opt);
}

static void test_written_formats(void **state)
{
    check_written(*state, "idx", (const char *const[]){"a-images", "a-labels"}, 2);
    check_written(*state, "npy", (const char *const[]){"a-x.npy", "a-y.npy"}, 2);
    check_written(*state, "packed", (const char *const[]){"a.pack"}, 1);
}

static void test_tokens_and_cifar(void **state)
{
    ru_scratch *f = *state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 5);
    uint8_t *bytes = ru_arena_alloc(&f->arena, COUNT * CIFAR_BYTES, 1);
    for (int64_t i = 0; i < COUNT * CIFAR_BYTES; i++) {
        bytes[i] = (uint8_t)ru_rng_below(&rng, i % CIFAR_BYTES == 0 ? 10 : 256);
    }
    const char *paths[2] = {save(f, "one.bin", bytes, 100 * CIFAR_BYTES),
                            save(f, "two.bin", bytes + 100 * CIFAR_BYTES, 130 * CIFAR_BYTES)};
    check(&(ru_data_options){.format = "cifar", .paths = paths, .n_paths = 2});
    paths[0] = save(f, "one.u8", bytes, 700);
    paths[1] = save(f, "two.u8", bytes + 700, 900);
    check(&(ru_data_options){.format = "tokens", .paths = paths, .n_paths = 2, .context = 11});
}

/* A tar file of members N.txt. */
static void test_tar(void **state)
{
    ru_scratch *f = *state;
    enum { MEMBERS = 40, MEMBER = 1024 };
    static char tar[MEMBERS * MEMBER + 1024];
    for (uint32_t k = 0; k < MEMBERS; k++) {
        char *h = tar + k * MEMBER;
        uint32_t sum = 0, n = 1 + k * 7;
        snprintf(h, 100, "%04u.txt", k);
        memcpy(h + 100, "0000644", 8);
        snprintf(h + 124, 12, "%011o", n);
        memcpy(h + 148, "        ", 8);
        h[156] = '0';
        memcpy(h + 257, "ustar\00000", 8);
        for (uint32_t i = 0; i < 512; i++) {
            sum += (uint8_t)h[i];
        }
        snprintf(h + 148, 8, "%06o", sum);
        memset(h + 512, 'a' + (int)(k % 26), n);
    }
    const char *path = save(f, "a.tar", tar, sizeof tar);
    const char *paths[] = {path};
    check(&(ru_data_options){.format = "tar", .paths = paths, .n_paths = 1, .context = 300});
}

/* Every sample of a stream is that which the format reads by itself. */
static void check_alone(ru_dataset *d, const ru_stream_options *opt, uint32_t *skipped)
{
    ru_err err = {0};
    const ru_field *fields;
    uint32_t n_fields = ru_dataset_fields(d, &fields);
    uint8_t *alone[2] = {test_malloc((size_t)d->field_bytes[0]),
                         test_malloc((size_t)d->field_bytes[1])};
    ru_stream *s = open_stream(d, opt);
    assert_int_equal(n_fields, 2);
    assert_true(ru_stream_reads(s) && ru_stream_reads_files(s));
    for (ru_batch x = {.n = 1}; x.n > 0;) {
        assert_ok(ru_stream_next(s, &x, &err), err);
        for (int64_t i = 0; i < x.n; i++) {
            assert_ok(ru_dataset_read(d, ru_stream_sample(s, x.position + i), (void **)alone, &err),
                      err);
            for (uint32_t k = 0; k < 2; k++) {
                const uint8_t *got = (const uint8_t *)x.fields[k] + i * d->field_bytes[k];
                assert_memory_equal(got, alone[k], (size_t)d->field_bytes[k]);
            }
        }
    }
    *skipped = (uint32_t)ru_dataset_skipped(d);
    ru_stream_close(s);
    test_free(alone[0]);
    test_free(alone[1]);
}

/* A folder of images: files that grow, shrink, lose all bytes and are damaged after it was listed
 * too. */
static void test_images(void **state)
{
    ru_scratch *f = *state;
    const ru_data_options made = {
        .format = "synthetic", .generator = "digits", .raw = true, .seed = 4, .count = 60};
    ru_dataset *d = open_as(&made, 0);
    const rui_write_job job = {.d = d, .n = 60, .dir = f->root, .prefix = "a"};
    assert_ok(rui_writer_find("images")->write(&job, &f->err), f->err);
    ru_dataset_close(d);
    const char *paths[] = {ru_path_join(&f->arena, f->root, "a")};
    const ru_data_options opt = {
        .format = "images", .paths = paths, .n_paths = 1, .skip_damaged = true};
    d = open_as(&opt, -1);
    char first[256];
    const rui_source one = {.path = ru_dataset_where(d, 0, first, sizeof first),
                            .file = {.fd = -1},
                            .size_bytes = ru_path_bytes(first)};
    rui_fetch *fetch;
    const rui_fetch_options fo = {.depth_max = 4, .bytes_max = 1 << 20, .pieces = 2, .bytes = 10};
    assert_ok(rui_fetch_open(&fo, &fetch, &f->err), f->err);
    for (int64_t less = 0; less < 2; less++) { /* one that is longer than it was is not taken */
        rui_source s = one;
        uint32_t n;
        s.size_bytes -= less;
        rui_fetch_add(fetch, &s, 0, s.size_bytes);
        rui_fetch_begin(fetch, 1 << 20, 4);
        assert_int_equal(rui_fetch_end(fetch, &n)->got_bytes, s.size_bytes + less);
        assert_true((rui_fetch_find(fetch, &s, 0, s.size_bytes) == NULL) == (less == 1));
    }
    rui_fetch_close(fetch);
    uint32_t skipped, before = 0;
    for (uint32_t v = 0; v < 18; v++) {
        if (v == 12) {
            char where[256];
            for (int64_t k = 0; k < 8; k++) {
                const char *path = ru_dataset_where(d, k * 7, where, sizeof where);
                char *data;
                int64_t n;
                assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
                data[k % 4 == 3 ? n / 2 : n] ^= 0x5a; /* behind the end stands a NUL byte */
                n = k % 4 == 0 ? n + 1 : k % 4 == 1 ? n / 2 : k % 4 == 2 ? 0 : n;
                assert_ok(ru_file_replace(path, data, n, &f->err), f->err);
            }
        }
        const ru_stream_options o = {.seed = v,
                                     .shuffle = (ru_shuffle)(v % 3),
                                     .block = 7,
                                     .batch = 1 + v * 3,
                                     .epochs = 2,
                                     .partial_last = true,
                                     .threads = 1 + v % 4,
                                     .read_threads = v % 4 == 3};
        check_alone(d, &o, &skipped);
        assert_true((skipped > 0) == (v >= 12)); /* in all: each of the damaged files once */
        assert_true(v <= 12 || skipped == before);
        before = skipped;
    }
    ru_dataset_close(d);
}

/* Random ranges: all that fit are there, with the file's bytes; nothing else is. */
static void test_ranges(void **state)
{
    ru_scratch *f = *state;
    enum { BYTES = 300000, MAX = 60000 };
    ru_rng rng = ru_rng_from(ru_test_seed(), 9);
    uint8_t *bytes = ru_arena_alloc(&f->arena, BYTES, 1);
    for (int64_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)ru_rng_below(&rng, 256);
    }
    rui_source s[2];
    ru_objects *none = NULL;
    for (uint32_t k = 0; k < 2; k++) {
        const char *path = save(f, k == 0 ? "a" : "b", bytes, BYTES - k * 1000);
        assert_ok(rui_source_open(&f->arena, &none, path, -1, false, &s[k], &f->err), f->err);
    }
    rui_fetch *fetch;
    const rui_fetch_options opt = {.depth_max = 32, .bytes_max = MAX, .pieces = 2, .bytes = 10};
    assert_ok(rui_fetch_open(&opt, &fetch, &f->err), f->err);
    for (uint32_t round = 0; round < 300; round++) {
        struct {
            uint32_t k;
            int64_t at, n;
        } want[50];
        uint32_t n = ru_rng_below(&rng, 50), found = 0;
        int64_t total = 0;
        for (uint32_t i = 0; i < n; i++) {
            want[i].k = ru_rng_below(&rng, 2);
            want[i].at = ru_rng_below(&rng, BYTES);
            want[i].n = 1 + ru_rng_below(&rng, round % 2 == 0 ? 100 : 20000);
            total += want[i].n + (16 << 10);
            rui_fetch_add(fetch, &s[want[i].k], want[i].at, want[i].n);
        }
        uint32_t reads;
        rui_fetch_begin(fetch, 1 << ru_rng_below(&rng, 20), 1 + ru_rng_below(&rng, 40));
        rui_fetch_poll(fetch);
        (void)rui_fetch_end(fetch, &reads);
        for (uint32_t i = 0; i < n; i++) {
            bool inside = want[i].at + want[i].n <= s[want[i].k].size_bytes;
            const uint8_t *p = rui_fetch_find(fetch, &s[want[i].k], want[i].at, want[i].n);
            assert_true(p == NULL || inside);
            found += p != NULL;
            assert_true(p != NULL || !inside || total > MAX);
            if (p != NULL) {
                assert_memory_equal(p, bytes + want[i].at, (size_t)want[i].n);
            }
        }
        assert_true(n == 0 || total <= MAX || found > 0 || reads == 0);
        assert_null(rui_fetch_find(fetch, &s[0], BYTES, 1));
    }
    uint32_t reads;
    for (int64_t k = 99; k >= 0; k--) { /* neighbours, then one near and one far: two requests */
        rui_fetch_add(fetch, &s[0], 100 * k, 100);
    }
    rui_fetch_add(fetch, &s[0], 20000, 100);
    rui_fetch_add(fetch, &s[0], 200000, 100);
    rui_fetch_begin(fetch, 1 << 20, 4);
    (void)rui_fetch_end(fetch, &reads);
    assert_int_equal(reads, 2);
    rui_fetch_add(fetch, &s[0], 0, 40000); /* requests have a largest size */
    rui_fetch_begin(fetch, 10000, 4);
    (void)rui_fetch_end(fetch, &reads);
    assert_int_equal(reads, 4);
    rui_fetch_add(fetch, &s[0], 5, 10); /* closed under way */
    rui_fetch_begin(fetch, 1, 1);
    rui_fetch_close(fetch);
    rui_source_close(&s[0]);
    rui_source_close(&s[1]);
}

/* A share stands in place of the depth; what was read is counted. */
static void test_shares(void **state)
{
    ru_scratch *f = *state;
    enum { CONTEXT = 15, SAMPLES = 8192, BATCH = 512 };
    static uint8_t bytes[SAMPLES * (CONTEXT + 1)];
    const char *paths[] = {save(f, "a.u8", bytes, sizeof bytes)};
    const ru_data_options opt = {
        .format = "tokens", .paths = paths, .n_paths = 1, .context = CONTEXT, .stride = 16};
    const int64_t kib = 1 << 10;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        ru_dataset *d = open_as(&opt, -1);
        ru_stream_options o = {.batch = BATCH, .threads = threads, .ahead = 3, .epochs = 1};
        o.read_threads = threads == 2;
        ru_stream *s = open_stream(d, &o);
        const struct {
            int64_t share;
            uint32_t depth;
        } rows[] = {{0, 12}, {256 * kib, 4}, {1000, 1}, {INT64_C(1) << 50, 512}, {0, 12}};
        ru_stream_reads_set(s, 64 * kib, 12);
        for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
            ru_stream_reads_share(s, rows[k].share);
            assert_int_equal(ru_stream_reads_depth(s), rows[k].depth);
        }
        ru_stream_reads_sum x;
        ru_batch b = {.n = 1};
        while (b.n > 0) {
            assert_ok(ru_stream_next(s, &b, &f->err), f->err);
            ru_stream_reads_share(s, b.position % 3 * 100 * kib);
        }
        ru_stream_reads_sum_get(s, &x);
        assert_int_equal(x.batch_bytes, d->bytes / d->count * BATCH);
        assert_true(x.bytes >= (d->count - BATCH) * CONTEXT);
        assert_true(x.bytes <= (int64_t)sizeof bytes + SAMPLES); /* neighbours overlap by one */
        assert_true(x.busy_ns > 0);
        assert_true(x.stall_ns >= 0); /* no wait at all: how fast the threads were */
        ru_stream_reads_share(s, 0);  /* what may be outstanding follows from settings alone */
        ru_stream_reads_sum_get(s, &x);
        assert_in_range(x.outstanding_bytes, x.batch_bytes, 12 * 64 * kib);
        ru_stream_close(s);
        ru_dataset_close(d);
    }
}

/* A refusal that shows only when requests run is counted, once for each fetch. */
static bool counts_refusals(void *dataset)
{
    ru_err err;
    ru_stream *s;
    char why[RU_READS_WHY_MAX];
    if (ru_stream_open(dataset, &(ru_stream_options){.batch = 10}, &s, &err) != RU_OK) {
        return false;
    }
    bool ok = true, ring = strcmp(ru_stream_reads_by(s), "io_uring") == 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < 20; k++) {
        ru_batch b;
        ok = ok && ru_stream_next(s, &b, &err) == RU_OK;
        uint32_t now = ru_stream_reads_plain(s, why, sizeof why);
        ok = ok && now >= n && (now > 0) == ring;
        n = now;
    }
    ok = ok && (!ring || (n == s->flights && strstr(why, "'ulimit -n'") != NULL));
    ru_stream_close(s);
    return ok;
}

static void test_refusals_count_while_it_runs(void **state)
{
    ru_scratch *f = *state;
    const ru_data_options made = {.format = "synthetic", .generator = "digits", .count = COUNT};
    ru_dataset *d = open_as(&made, 0);
    const rui_write_job job = {.d = d, .n = COUNT, .dir = f->root, .prefix = "a"};
    assert_ok(rui_writer_find("packed")->write(&job, &f->err), f->err);
    ru_dataset_close(d);
    const char *path = ru_path_join(&f->arena, f->root, "a.pack");
    d = open_as(&(ru_data_options){.format = "packed", .paths = &path, .n_paths = 1}, -1);
    /* the table of files takes 256 more */
    assert_true(ru_test_files_max(FETCH_DEPTH_MAX + 100, counts_refusals, d));
    ru_dataset_close(d);
}

/* Where the system gives no memory for a batch, half of what it gave is left for others. */
static void test_fewer_batches_where_memory_ends(void **state)
{
    ru_scratch *f = *state;
    enum { AHEAD = 40 };
    const ru_data_options made = {.format = "synthetic", .generator = "digits", .count = COUNT};
    const ru_stream_options opt = {.batch = 2, .epochs = 1, .ahead_max = AHEAD};
    ru_dataset *d = open_as(&made, 0);
    const rui_write_job job = {.d = d, .n = COUNT, .dir = f->root, .prefix = "a"};
    assert_ok(rui_writer_find("packed")->write(&job, &f->err), f->err);
    ru_dataset_close(d);
    const char *path = ru_path_join(&f->arena, f->root, "a.pack");
    d = open_as(&(ru_data_options){.format = "packed", .paths = &path, .n_paths = 1}, -1);
    uint32_t fewer = 0, all = 0;
    for (int64_t k = 0; all < 8; k++) {
        ru_stream *s = NULL;
        uint32_t least, most = 0;
        ru_test_os_fail(k);
        ru_status st = ru_stream_open(d, &opt, &s, &f->err);
        ru_test_os_fail(-1);
        if (st == RU_OK) {
            ru_stream_ahead_range(s, &least, &most);
            assert_true(least >= 1 && (most == AHEAD || most <= AHEAD / 2));
        }
        fewer += st == RU_OK && most < AHEAD ? 1 : 0;
        all += most == AHEAD ? 1 : 0;
        ru_stream_close(s);
    }
    assert_true(fewer > 10);
    ru_dataset_close(d);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
static void test_direct_reads_are_refused(void **state)
{
    ru_scratch *f = *state;
    ru_objects *none = NULL;
    rui_source s;
    static const char *const paths[] = {"/proc/version", "https://h.invalid/a"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(paths); k++) {
        assert_int_equal(rui_source_open(&f->arena, &none, paths[k], -1, true, &s, &f->err),
                         RU_E_CONFIG);
        assert_non_null(strstr(f->err.text, paths[k]));
        assert_null(strchr(f->err.text, '\n'));
        rui_source_close(&s);
    }
    assert_null(none);
}

RU_TESTS(data_fetch, T(test_fewer_batches_where_memory_ends), T(test_direct_reads_are_refused),
         T(test_refusals_count_while_it_runs), T(test_written_formats), T(test_tokens_and_cifar),
         T(test_tar), T(test_images), T(test_shares), T(test_ranges))
