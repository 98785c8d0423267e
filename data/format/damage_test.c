/* Damaged files through the read engines: whatever reads them ahead, with requests of any size and
 * number, gives the bytes that a sample has when it is read by itself, and always the same error.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "data/data_impl.h"
#include "data/make/write.h"
#include "test/scratch.h"
#include "test/test.h"
#include "test/where.h"

enum { COUNT = 12, BATCH = 2, CHANGES = 6, CUTS = 2, BYTES_MAX = 1 << 17 };
enum { CIFAR_BYTES = 3073, CIFAR_COUNT = 4 };

#define AT(name) RU_SOURCE_ROOT "/test/data/reader/" name

/* What all samples give, one after the other. */
typedef struct outcome {
    ru_status status;
    ru_err err;
    int64_t good;         /* samples before the first error */
    int64_t sample_bytes; /* of all fields */
    uint8_t *bytes;       /* [good, sample_bytes] */
    int64_t skipped;
    char text[RU_ERR_TEXT_MAX]; /* of the first stream; that of a run of samples may differ from
                                   that of one */
} outcome;

typedef struct subject {
    ru_scratch *f;
    ru_data_options opt;
    const char *path; /* the file that is damaged */
    uint8_t *whole;   /* [n] */
    int64_t n;
} subject;

static void put(const char *path, const uint8_t *bytes, int64_t n)
{
    FILE *f = fopen(path, "wb"); /* not ru_file_replace: a sync each would take seconds */
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)n, f), (size_t)n);
    assert_int_equal(fclose(f), 0);
}

static ru_status open_one(const subject *s, bool skip, ru_dataset **d, ru_err *err)
{
    ru_data_options o = s->opt;
    o.resident_max_bytes = -1;
    o.skip_damaged = skip;
    return ru_dataset_open(&o, d, err);
}

/* Fields of a sample stand one after another, aligned for any number. */
static int64_t room(int64_t field_bytes)
{
    return (field_bytes + 7) / 8 * 8;
}

static void read_alone(const ru_dataset *d, outcome *o)
{
    void *fields[RU_FIELDS_MAX];
    o->sample_bytes = 0;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        o->sample_bytes += room(d->field_bytes[k]);
    }
    o->bytes = test_malloc((size_t)(o->sample_bytes * d->count));
    o->skipped = -ru_dataset_skipped(d); /* opening leaves some out, too */
    for (o->good = 0; o->good < d->count; o->good++) {
        uint8_t *at = o->bytes + o->good * o->sample_bytes;
        for (uint32_t k = 0; k < d->n_fields; k++) {
            fields[k] = at;
            at += room(d->field_bytes[k]);
        }
        o->status = ru_dataset_read(d, o->good, fields, &o->err);
        if (o->status != RU_OK) {
            break;
        }
    }
    o->skipped += ru_dataset_skipped(d);
}

static void expect_batch(const ru_dataset *d, const ru_batch *b, const outcome *want)
{
    assert_true(b->position + b->n <= want->good);
    for (int64_t i = 0; i < b->n; i++) {
        const uint8_t *at = want->bytes + (b->position + i) * want->sample_bytes;
        for (uint32_t k = 0; k < d->n_fields; k++) {
            const uint8_t *got = (const uint8_t *)b->fields[k] + i * d->field_bytes[k];
            assert_memory_equal(got, at, (size_t)d->field_bytes[k]);
            at += room(d->field_bytes[k]);
        }
    }
}

static void expect_same(const subject *s, ru_dataset *d, outcome *want, uint32_t v)
{
    static const struct {
        int64_t size_bytes;
        uint32_t depth;
    } ways[] = {{37, 1}, {1 << 20, 64}};
    const ru_stream_options o = {.batch = BATCH,
                                 .epochs = 1,
                                 .partial_last = true,
                                 .threads = 1 + v % 3,
                                 .ahead = 2,
                                 .read_threads = v % 2 == 1};
    ru_err err = {0};
    ru_stream *t;
    ru_batch b = {.n = 1};
    int64_t before = ru_dataset_skipped(d); /* the threads begin at once */
    if (d->guard->seen != NULL) {           /* each damaged sample counts once: begin anew */
        memset(d->guard->seen, 0, (size_t)d->count / 8 + 1);
    }
    assert_ok(ru_stream_open(d, &o, &t, &err), err);
    ru_stream_reads_set(t, ways[v / 2].size_bytes, ways[v / 2].depth);
    int64_t n = 0;
    ru_status st = RU_OK;
    while (st == RU_OK && b.n > 0) {
        st = ru_stream_next(t, &b, &err);
        if (st == RU_OK && b.n > 0) {
            expect_batch(d, &b, want);
            n += b.n;
        }
    }
    if (v == 0) {
        memcpy(want->text, err.text, sizeof want->text);
    }
    if (st != want->status || strcmp(st != RU_OK ? err.text : "", want->text) != 0) {
        fail_msg("%s by %s, %lld bytes a request: %s: %s; others: %s: %s", s->opt.format,
                 o.read_threads ? "threads" : "io_uring", (long long)ways[v / 2].size_bytes,
                 ru_status_name(st), err.text, ru_status_name(want->status), want->text);
    }
    assert_true(st == RU_OK || strstr(err.text, s->path) != NULL);
    assert_int_equal(n, want->good - (st == RU_OK ? 0 : want->good % BATCH));
    if (st == RU_OK) {
        assert_int_equal(ru_dataset_skipped(d) - before, want->skipped);
    }
    ru_stream_close(t);
}

/* The file as it is now: 1 if it cannot be opened. `cut`: it is cut to `left` bytes after that. */
static uint32_t check(const subject *s, bool skip, bool cut, int64_t left, bool *failed)
{
    ru_dataset *d;
    outcome want = {.status = RU_OK};
    *failed = false;
    if (open_one(s, skip, &d, &want.err) != RU_OK) {
        return 1;
    }
    if (cut) {
        assert_int_equal(truncate(s->path, left), 0);
    }
    read_alone(d, &want);
    *failed = want.status != RU_OK || want.skipped > 0;
    for (uint32_t v = 0; v < 4; v++) {
        expect_same(s, d, &want, v);
    }
    test_free(want.bytes);
    ru_dataset_close(d);
    return 0;
}

/* Changed bytes all over the file, and files that are cut after they were opened. */
static void damage(subject *s)
{
    ru_rng rng = ru_rng_from(ru_test_seed(), (uint64_t)s->n);
    char *text;
    bool failed;
    uint32_t shut = 0, cuts_seen = 0;
    assert_ok(ru_file_read(s->path, BYTES_MAX, &s->f->arena, &text, &s->n, &s->f->err), s->f->err);
    s->whole = (uint8_t *)text;
    for (uint32_t k = 0; k < CHANGES; k++) {
        int64_t at = (k * s->n + (int64_t)ru_rng_below(&rng, (uint32_t)s->n)) / CHANGES;
        uint8_t bit = (uint8_t)(1u << ru_rng_below(&rng, 8));
        s->whole[at] ^= bit;
        put(s->path, s->whole, s->n);
        s->whole[at] ^= bit;
        shut += check(s, k % 2 == 1, false, 0, &failed);
    }
    assert_true(shut < CHANGES); /* else nothing was compared */
    for (uint32_t k = 0; k < CUTS; k++) {
        put(s->path, s->whole, s->n);
        assert_int_equal(check(s, false, true, k * s->n / CUTS, &failed), 0);
        cuts_seen += failed;
    }
    assert_true(cuts_seen > 0);
    put(s->path, s->whole, s->n);
    assert_int_equal(check(s, false, false, 0, &failed), 0);
    assert_false(failed);
}

static void damage_copy(ru_scratch *f, const char *format, const char *from, const char *name)
{
    char *text;
    int64_t n;
    const char *path = ru_path_join(&f->arena, f->root, name);
    assert_ok(ru_file_read(from, 0, &f->arena, &text, &n, &f->err), f->err);
    put(path, (const uint8_t *)text, n);
    subject s = {.f = f, .path = path, .opt = {.format = format, .paths = &path, .n_paths = 1}};
    s.opt.context = 4;
    s.opt.raw = strcmp(format, "tokens") == 0;
    damage(&s);
}

static void test_files(void **state)
{
    ru_scratch *f = *state;
    damage_copy(f, "idx", AT("images.idx"), "a.idx");
    damage_copy(f, "npy", AT("x.npy"), "a.npy");
    damage_copy(f, "tokens", AT("tokens.u16"), "a.u16");
    damage_copy(f, "tar", AT("shard-000.tar"), "a.tar");
    damage_copy(f, "tar", AT("arrays.tar"), "b.tar");
    damage_copy(f, "tfrecord", AT("images.tfrecord"), "a.tfrecord");
    damage_copy(f, "tfrecord", AT("lists.tfrecord"), "b.tfrecord");
}

static void test_cifar(void **state)
{
    ru_scratch *f = *state;
    static uint8_t bytes[CIFAR_COUNT * CIFAR_BYTES];
    for (int64_t i = 0; i < (int64_t)sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i % CIFAR_BYTES == 0 ? i % 10 : i % 251);
    }
    const char *from = ru_path_join(&f->arena, f->root, "made.bin");
    put(from, bytes, sizeof bytes);
    damage_copy(f, "cifar", from, "a.bin");
}

/* Written by our own writers: records with checksums, a folder of images. */
static void test_written(void **state)
{
    ru_scratch *f = *state;
    const ru_data_options made = {
        .format = "synthetic", .generator = "digits", .raw = true, .seed = 3, .count = COUNT};
    ru_dataset *d;
    assert_ok(ru_dataset_open(&made, &d, &f->err), f->err);
    const rui_write_job job = {.d = d, .n = COUNT, .dir = f->root, .prefix = "w"};
    assert_ok(rui_writer_find("packed")->write(&job, &f->err), f->err);
    assert_ok(rui_writer_find("images")->write(&job, &f->err), f->err);
    ru_dataset_close(d);
    const char *packed = ru_path_join(&f->arena, f->root, "w.pack");
    subject s = {
        .f = f, .path = packed, .opt = {.format = "packed", .paths = &packed, .n_paths = 1}};
    damage(&s);
    const char *folder = ru_path_join(&f->arena, f->root, "w");
    s.opt = (ru_data_options){.format = "images", .paths = &folder, .n_paths = 1};
    assert_ok(ru_dataset_open(&s.opt, &d, &f->err), f->err);
    char where[256];
    s.path = ru_arena_str(&f->arena, ru_dataset_where(d, COUNT / 2 + 1, where, sizeof where));
    ru_dataset_close(d);
    damage(&s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(data_damage, T(test_files), T(test_cifar), T(test_written))
