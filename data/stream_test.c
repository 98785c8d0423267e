/* Streams: the same batches whatever the threads, exact resume, ends of epochs, errors, bounds. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "data/reader.h"
#include "data/take.h"
#include "env/file/file.h"
#include "test/test.h"

/* A set of `count` samples whose x is its own index: one-token rows of a u32 file. */
static ru_dataset *open_counting(int64_t count, char *path, size_t path_bytes)
{
    ru_err err = {0};
    uint32_t *words = malloc((size_t)(count + 1) * sizeof *words);
    for (int64_t i = 0; i <= count; i++) {
        words[i] = (uint32_t)i;
    }
    snprintf(path, path_bytes, "/tmp/rubato-test-%ld-%lld.u32", (long)getpid(), (long long)count);
    assert_ok(ru_file_replace(path, words, (count + 1) * 4, &err), err);
    free(words);
    const char *paths[] = {path};
    ru_data_options opt = {
        .format = "tokens", .paths = paths, .n_paths = 1, .context = 1, .classes = 1 << 20};
    ru_dataset *d = NULL;
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    assert_int_equal(ru_dataset_count(d), count);
    return d;
}

/* What samples are expected at global position p. */
static int64_t sample_at(const ru_stream_options *o, int64_t p, int64_t count)
{
    int64_t epoch = p / count, at = p % count;
    return o->shuffle == RU_SHUFFLE_FULL    ? ru_order_sample(o->seed, epoch, at, count)
           : o->shuffle == RU_SHUFFLE_BLOCK ? ru_order_block_sample(o->seed, epoch, at, count, 9)
                                            : at;
}

/* Run to the end (at most `most` batches); checks every sample against its position; returns
 * batches and the last batch's size and next position. */
static int64_t run(ru_dataset *d, ru_stream_options opt, int64_t most, int64_t *last_n,
                   int64_t *next)
{
    ru_err err = {0};
    ru_stream *s = NULL;
    assert_ok(ru_stream_open(d, &opt, &s, &err), err);
    int64_t batches = 0, count = ru_dataset_count(d);
    *next = opt.start;
    while (batches < most) {
        ru_batch b;
        assert_ok(ru_stream_next(s, &b, &err), err);
        if (b.n == 0) {
            break;
        }
        if (batches > 0 || !opt.drop_last) { /* else the start may lie in a dropped rest */
            assert_int_equal(b.position, *next);
        }
        assert_int_equal(b.epoch, b.position / count);
        const int64_t *x = b.fields[0];
        for (int64_t i = 0; i < b.n; i++) {
            assert_int_equal(x[i], sample_at(&opt, b.position + i, count));
        }
        assert_true(b.wait_ns >= 0);
        *next = b.next;
        *last_n = b.n;
        batches++;
    }
    ru_stream_close(s);
    return batches;
}

static void test_ends_of_epochs(void **state)
{
    (void)state;
    char path[64];
    ru_dataset *d = open_counting(103, path, sizeof path);
    static const struct {
        ru_stream_options opt;
        int64_t batches, last_n, next;
    } rows[] = {
        {{.batch = 10, .epochs = 1}, 10, 10, 100},
        {{.batch = 10, .epochs = 1, .partial_last = true}, 11, 3, 103},
        {{.batch = 10, .epochs = 3}, 30, 10, 300},
        {{.batch = 10, .epochs = 3, .partial_last = true}, 31, 9, 309},
        {{.batch = 10, .epochs = 3, .drop_last = true}, 30, 10, 309},
        {{.batch = 10, .epochs = 2, .drop_last = true, .start = 95}, 10, 10, 206},
        {{.batch = 10, .epochs = 2, .start = 95}, 11, 10, 205},
        {{.batch = 250, .epochs = 2, .partial_last = true}, 1, 206, 206},
        {{.batch = 103, .epochs = 2, .drop_last = true}, 2, 103, 206},
        {{.batch = 10, .epochs = 1, .start = 103}, 0, 0, 103},
        {{.batch = 7}, 50, 7, 350},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        for (uint32_t v = 0; v < 6; v++) {
            ru_stream_options opt = rows[k].opt;
            opt.shuffle = (ru_shuffle)(v % 3);
            opt.block = 9;
            opt.seed = 5;
            opt.threads = v < 3 ? 1 : 3;
            int64_t last_n = 0, next = 0;
            /* with drop_last positions jump at epoch ends: run() checks against b.next */
            int64_t n = run(d, opt, 50, &last_n, &next);
            assert_int_equal(n, rows[k].batches);
            assert_int_equal(last_n, rows[k].last_n);
            assert_int_equal(next, rows[k].next);
        }
    }
    ru_dataset_close(d);
    (void)unlink(path);
}

static uint64_t digest(ru_dataset *d, ru_stream_options opt, int64_t batches)
{
    ru_err err = {0};
    ru_stream *s = NULL;
    assert_ok(ru_stream_open(d, &opt, &s, &err), err);
    uint64_t h = 1;
    for (int64_t i = 0; i < batches; i++) {
        ru_batch b;
        assert_ok(ru_stream_next(s, &b, &err), err);
        h = ru_hash_bytes(b.fields[0], b.n * 28 * 28 * 4, h);
        h = ru_hash_bytes(b.fields[1], b.n * 8, h);
    }
    ru_stream_close(s);
    return h;
}

/* Pixels through 1 to 5 threads, any depth and tight memory: the same bytes. */
static void test_threads_do_not_matter(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_dataset *d = NULL;
    ru_data_options data = {.format = "synthetic", .generator = "digits", .seed = 3, .count = 100};
    assert_ok(ru_dataset_open(&data, &d, &err), err);
    ru_stream_options opt = {.batch = 16, .shuffle = RU_SHUFFLE_FULL, .seed = 9};
    uint64_t want = digest(d, opt, 20);
    for (uint32_t t = 1; t <= 5; t++) {
        opt.threads = t;
        opt.ahead = t == 3 ? 1 : 7;
        opt.bytes_max = t == 4 ? 1 : 0;
        assert_true(digest(d, opt, 20) == want);
    }
    opt.seed = 10;
    assert_true(digest(d, opt, 20) != want);
    ru_dataset_close(d);
}

static void check_resume(ru_dataset *d, ru_stream_options opt, int64_t stop)
{
    int64_t last_n = 0, next = 0, total = run(d, opt, 1000, &last_n, &next), end = next;
    int64_t first = run(d, opt, stop, &last_n, &next);
    opt.start = next;
    assert_int_equal(first + run(d, opt, 1000, &last_n, &next), total);
    assert_int_equal(next, end);
}

/* Stop after any batch and start again from its `next`: nothing lost, nothing twice. 37 samples
 * leave a rest at the end of an epoch, 40 do not. */
static void test_resume_is_exact(void **state)
{
    (void)state;
    for (int64_t count = 37; count <= 40; count += 3) {
        char path[64];
        ru_dataset *d = open_counting(count, path, sizeof path);
        for (int64_t stop = 1; stop < 12; stop++) {
            for (int v = 0; v < 6; v++) {
                check_resume(d,
                             (ru_stream_options){.batch = 8,
                                                 .epochs = 3,
                                                 .shuffle = (ru_shuffle)(v / 2),
                                                 .block = 9,
                                                 .seed = 2,
                                                 .drop_last = v % 2 == 1},
                             stop);
            }
        }
        ru_dataset_close(d);
        (void)unlink(path);
    }
}

/* An error comes at its batch, after the good ones, and again when asked again. */
static void test_errors_come_in_order(void **state)
{
    (void)state;
    char path[64];
    ru_err err = {0};
    uint32_t words[101];
    for (uint32_t i = 0; i < 101; i++) {
        words[i] = i == 50 ? 9999 : i;
    }
    snprintf(path, sizeof path, "/tmp/rubato-test-%ld-bad.u32", (long)getpid());
    assert_ok(ru_file_replace(path, words, sizeof words, &err), err);
    const char *paths[] = {path};
    ru_data_options opt = {
        .format = "tokens", .paths = paths, .n_paths = 1, .context = 1, .classes = 200};
    ru_dataset *d = NULL;
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        ru_stream *s = NULL;
        ru_stream_options so = {.batch = 10, .threads = threads};
        assert_ok(ru_stream_open(d, &so, &s, &err), err);
        ru_batch b;
        for (int64_t i = 0; i < 4; i++) { /* sample 49's target is the bad one */
            assert_ok(ru_stream_next(s, &b, &err), err);
        }
        for (int k = 0; k < 3; k++) {
            assert_int_equal(ru_stream_next(s, &b, &err), RU_E_DATA);
            assert_non_null(strstr(err.text, "token 9999 at byte 200"));
        }
        ru_stream_close(s);
    }
    /* skipping: the next good sample stands in, and is counted */
    opt.skip_damaged = true;
    ru_dataset_close(d);
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    ru_stream_options so = {.batch = 100, .epochs = 1};
    ru_stream *s = NULL;
    assert_ok(ru_stream_open(d, &so, &s, &err), err);
    ru_batch b;
    assert_ok(ru_stream_next(s, &b, &err), err);
    const int64_t *x = b.fields[0];
    assert_int_equal(x[48], 48);
    assert_int_equal(x[49], 51);
    assert_int_equal(x[50], 51);
    ru_stream_close(s);
    assert_int_equal(ru_dataset_skipped(d), 2); /* each once, however often it is met */
    ru_dataset_close(d);
    (void)unlink(path);
}

/* A file cut short while it is read gives a sentence, not a crash. */
static void test_file_cut_while_reading(void **state)
{
    (void)state;
    char path[64];
    ru_err err = {0};
    ru_dataset_close(open_counting(1000, path, sizeof path));
    const char *paths[] = {path};
    ru_data_options opt = {.format = "tokens",
                           .paths = paths,
                           .n_paths = 1,
                           .context = 1,
                           .classes = 1 << 20,
                           .resident_max_bytes = -1};
    ru_dataset *d = NULL;
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    assert_int_equal(truncate(path, 2000), 0);
    ru_stream_options so = {.batch = 100};
    ru_stream *s = NULL;
    assert_ok(ru_stream_open(d, &so, &s, &err), err);
    ru_batch b;
    ru_status st = RU_OK;
    for (int k = 0; st == RU_OK && k < 10; k++) {
        st = ru_stream_next(s, &b, &err);
    }
    assert_int_equal(st, RU_E_DATA);
    assert_non_null(strstr(err.text, path));
    ru_stream_close(s);
    ru_dataset_close(d);
    (void)unlink(path);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    char path[64];
    ru_err err = {0};
    ru_dataset *d = open_counting(10, path, sizeof path);
    static const ru_stream_options bad[] = {
        {.batch = 0},
        {.batch = -1},
        {.batch = 11, .drop_last = true},
        {.batch = 1, .start = -1},
        {.batch = 1, .epochs = INT64_MAX / 4},
        {.batch = 1, .threads = 100000},
        {.batch = 1, .ahead = 1u << 30},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        ru_stream *s = NULL;
        assert_int_equal(ru_stream_open(d, &bad[k], &s, &err), RU_E_CONFIG);
        assert_true(err.text[0] != '\0');
    }
    ru_dataset_close(d);
    (void)unlink(path);
}

/* Two parts of every batch of 20 together read what one stream of 20 reads. */
static void test_stride_reads_a_part_of_every_batch(void **state)
{
    (void)state;
    char path[128];
    ru_dataset *d = open_counting(37, path, sizeof path);
    ru_err err = {0};
    for (int64_t first = 0; first < 20; first += 13) {
        ru_stream_options opt = {.seed = 3,
                                 .shuffle = RU_SHUFFLE_FULL,
                                 .batch = first == 0 ? 13 : 7,
                                 .stride = 20,
                                 .start = first,
                                 .threads = 2};
        int64_t last_n, next;
        (void)run(d, opt, 9, &last_n, &next); /* checks samples and positions */
        assert_int_equal(next, 9 * 20 + first);
    }
    ru_stream *s = NULL;
    ru_stream_options bad = {.batch = 8, .stride = 7};
    assert_int_equal(ru_stream_open(d, &bad, &s, &err), RU_E_CONFIG);
    ru_dataset_close(d);
    (void)unlink(path);
}

/* A share that moves and changes its size from step to step: the stream is kept where little
 * changes, and gives what a new one would. */
static void test_shares_that_move_keep_the_stream(void **state)
{
    (void)state;
    enum { COUNT = 103, STRIDE = 60, STEPS = 60 };
    char path[64];
    ru_err err = {0};
    ru_dataset *d = open_counting(COUNT, path, sizeof path);
    ru_rng rng = ru_rng_from(ru_test_seed(), 5);
    for (uint32_t v = 0; v < 6; v++) {
        ru_stream_options opt = {.shuffle = (ru_shuffle)(v % 3),
                                 .block = 9,
                                 .seed = 5,
                                 .batch = 20,
                                 .room = 24,
                                 .stride = STRIDE,
                                 .start = 20,
                                 .threads = v < 3 ? 1 : 3};
        int64_t first = opt.start, n = opt.batch, kept = 0, opened = 0;
        ru_stream *s = NULL;
        for (int64_t step = 0; step < STEPS; step++) {
            bool far = step % 13 == 12;
            uint32_t range = far ? 30 : 5;
            int64_t now_first =
                (first + (int64_t)ru_rng_below(&rng, 2 * range) + STRIDE - range) % 30;
            int64_t now_n = 15 + (int64_t)ru_rng_below(&rng, 10);
            bool same = step % 3 == 0;
            now_first = same || (!far && step % 3 == 1) ? first : now_first;
            now_n = same ? n : now_n;
            int64_t at = step * STRIDE + now_first;
            if (s != NULL && (same || ru_stream_share_set(s, at, now_n))) {
                kept += same ? 0 : 1;
            } else {
                ru_stream_close(s);
                opt.batch = now_n;
                opt.room = now_n + 4;
                opt.start = at;
                assert_ok(ru_stream_open(d, &opt, &s, &err), err);
                opened++;
            }
            first = now_first;
            n = now_n;
            ru_batch b;
            assert_ok(ru_stream_next(s, &b, &err), err);
            assert_int_equal(b.n, n);
            assert_int_equal(b.position, at);
            assert_int_equal(b.next, at + STRIDE);
            const int64_t *x = b.fields[0];
            for (int64_t i = 0; i < n; i++) {
                assert_int_equal(x[i], sample_at(&opt, at + i, COUNT));
            }
        }
        int64_t at = STEPS * STRIDE + first;
        assert_false(ru_stream_share_set(s, at + n, n)); /* all are new */
        while (n < opt.room) {                           /* a few new ones at a time */
            assert_true(ru_stream_share_set(s, at, ++n));
        }
        assert_false(ru_stream_share_set(s, at, n + 1)); /* no room */
        assert_true(kept >= 10 && opened >= 2);
        ru_stream_close(s);
    }
    ru_stream_options ends = {.batch = 10, .epochs = 2};
    ru_stream *s = NULL;
    assert_ok(ru_stream_open(d, &ends, &s, &err), err);
    assert_false(ru_stream_share_set(s, 0, 9));
    ru_stream_close(s);
    ru_dataset_close(d);
    (void)unlink(path);
}

/* A batch that was taken stays while others come, and after the end; what is given back is used
 * again. */
static void test_a_batch_can_be_taken(void **state)
{
    (void)state;
    enum { COUNT = 100, BATCH = 10 };
    ru_err err = {0};
    char path[128];
    ru_dataset *d = open_counting(COUNT, path, sizeof path);
    ru_stream_options opt = {.batch = BATCH, .epochs = 3};
    ru_stream *s = NULL;
    assert_ok(ru_stream_open(d, &opt, &s, &err), err);
    void *kept[COUNT];
    int64_t size, n_kept = 0, reused = 0;
    assert_null(ru_stream_take(s, &size)); /* there is none yet */
    for (int64_t at = 0; at < 3 * COUNT; at += BATCH) {
        ru_batch b;
        assert_ok(ru_stream_next(s, &b, &err), err);
        assert_int_equal(b.n, BATCH);
        for (int64_t k = 0; k < n_kept; k++) {
            reused += kept[k] == b.fields[0];
            assert_int_equal(*(const int64_t *)kept[k], k * 3 * BATCH % COUNT);
        }
        if (at % (3 * BATCH) == 0) {
            void *at_memory = ru_stream_take(s, &size);
            assert_ptr_equal(at_memory, b.fields[0]);
            assert_int_equal(*(const int64_t *)at_memory, at % COUNT);
            kept[n_kept++] = at_memory;
        }
    }
    assert_int_equal(reused, 0);
    void *first = kept[--n_kept];
    ru_stream_give(s, first, size);
    void *last = ru_stream_take(s, &size); /* what was given back stands in its place */
    assert_non_null(last);
    assert_null(ru_stream_take(s, &size)); /* it was taken */
    ru_stream_give(s, last, size);
    ru_stream_close(s);
    for (int64_t k = 0; k < n_kept; k++) {
        assert_int_equal(*(const int64_t *)kept[k], k * 3 * BATCH % COUNT);
        ru_stream_give(NULL, kept[k], size);
    }
    ru_dataset_close(d);
    (void)unlink(path);
}

RU_TESTS(data_stream, cmocka_unit_test(test_a_batch_can_be_taken),
         cmocka_unit_test(test_shares_that_move_keep_the_stream),
         cmocka_unit_test(test_stride_reads_a_part_of_every_batch),
         cmocka_unit_test(test_ends_of_epochs), cmocka_unit_test(test_threads_do_not_matter),
         cmocka_unit_test(test_resume_is_exact), cmocka_unit_test(test_errors_come_in_order),
         cmocka_unit_test(test_file_cut_while_reading), cmocka_unit_test(test_options_are_checked))
