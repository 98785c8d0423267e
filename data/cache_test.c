/* Samples that are kept: the same bytes as without, whatever stands in the folder. */
#include "data/cache.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "data/make/write.h"
#include "data/probe.h"
#include "env/file/grow.h"
#include "test/scratch.h"
#include "test/test.h"
#include "test/where.h"

enum { COUNT = 120, ROOM = 64 << 20 };

static ru_dataset *open_data(const ru_data_options *opt, ru_cache_kind kind,
                             const ru_disk_tier *tiers, uint32_t n)
{
    ru_err err = {0};
    ru_data_options o = *opt;
    ru_dataset *d = NULL;
    o.resident_max_bytes = -1;
    o.cache = (ru_cache_options){.kind = kind, .tiers = tiers, .n_tiers = n};
    assert_ok(ru_dataset_open(&o, &d, &err), err);
    return d;
}

/* `epochs` of both, batch by batch. Seeds 0 and 3 have one thread: others may read a sample of the
 * second epoch before it is kept. */
static void compare(ru_dataset *a, ru_dataset *b, int64_t epochs, uint64_t seed)
{
    ru_err err = {0};
    const ru_field *fields;
    uint32_t n_fields = ru_dataset_fields(a, &fields);
    const ru_stream_options o = {.seed = seed,
                                 .shuffle = (ru_shuffle)(seed % 3),
                                 .block = 7,
                                 .batch = 1 + (int64_t)seed * 5,
                                 .epochs = epochs,
                                 .partial_last = true,
                                 .threads = 1 + (uint32_t)seed % 3};
    ru_stream *s, *t;
    ru_batch x = {.n = 1}, y;
    assert_ok(ru_stream_open(a, &o, &s, &err), err);
    assert_ok(ru_stream_open(b, &o, &t, &err), err);
    while (x.n > 0) {
        assert_ok(ru_stream_next(s, &x, &err), err);
        assert_ok(ru_stream_next(t, &y, &err), err);
        assert_int_equal(x.n, y.n);
        for (uint32_t k = 0; k < n_fields && x.n > 0; k++) {
            assert_memory_equal(x.fields[k], y.fields[k], (size_t)(x.n * a->field_bytes[k]));
        }
    }
    ru_stream_close(s);
    ru_stream_close(t);
}

/* The folder is filled, used by the same dataset, then by a later process, then by a part. */
static void check(ru_scratch *f, const ru_data_options *opt, ru_cache_kind kind)
{
    static uint32_t number;
    char name[32];
    (void)snprintf(name, sizeof name, "tier%u", number++);
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, name), ROOM};
    ru_dataset *a = open_data(opt, RU_CACHE_NONE, NULL, 0);
    for (uint64_t v = 0; v < 6; v++) {
        ru_dataset *b = open_data(opt, kind, &tier, 1);
        rui_cache_sum sum;
        compare(a, b, 3, v);
        sum = rui_cache_sum_get(b->cache);
        assert_int_equal(sum.kept, a->count);
        assert_int_equal(sum.added, v == 0 ? a->count : 0);
        assert_int_equal(sum.found, v == 0 ? 2 * a->count : 3 * a->count);
        assert_int_equal(sum.damaged, 0);
        ru_dataset_close(b);
    }
    assert_null(a->cache);
    ru_dataset_close(a);
}

static const char *const *write_digits(ru_scratch *f, const char *format, const char *const *names,
                                       uint32_t n)
{
    ru_dataset *d;
    const char **paths = RU_NEW(&f->arena, const char *, n);
    const ru_data_options made = {.format = "synthetic",
                                  .generator = "digits",
                                  .seed = 3,
                                  .raw = strcmp(format, "images") == 0,
                                  .count = COUNT};
    assert_ok(ru_dataset_open(&made, &d, &f->err), f->err);
    const rui_write_job job = {.d = d, .n = COUNT, .dir = f->root, .prefix = "a"};
    assert_ok(rui_writer_find(format)->write(&job, &f->err), f->err);
    ru_dataset_close(d);
    for (uint32_t k = 0; k < n; k++) {
        paths[k] = ru_path_join(&f->arena, f->root, names[k]);
    }
    return paths;
}

static const char *const *write_images(ru_scratch *f)
{
    return write_digits(f, "images", (const char *const[]){"a"}, 1);
}

static void check_written(ru_scratch *f, const char *format, const char *const *names, uint32_t n)
{
    ru_data_options opt = {
        .format = format, .paths = write_digits(f, format, names, n), .n_paths = n};
    check(f, &opt, RU_CACHE_DECODED);
    check(f, &opt, RU_CACHE_BYTES);
    opt.raw = true;
    check(f, &opt, RU_CACHE_DECODED);
}

static void test_formats(void **state)
{
    check_written(*state, "images", (const char *const[]){"a"}, 1);
    check_written(*state, "idx", (const char *const[]){"a-images", "a-labels"}, 2);
    check_written(*state, "npy", (const char *const[]){"a-x.npy", "a-y.npy"}, 2);
    check_written(*state, "packed", (const char *const[]){"a.pack"}, 1);
}

#define AT(name) RU_SOURCE_ROOT "/test/data/reader/" name

/* Files that other programs wrote, of every format whose samples stand in files. */
static void test_written_by_others(void **state)
{
    static const struct {
        const char *format, *path;
        int64_t context, image_size;
        bool packed; /* it stands in memory */
    } rows[] = {{"images", AT("photos"), 0, 16, false},
                {"tar", AT("shard-{000..001}.tar"), 0, 0, false},
                {"tar", AT("shard-{000..001}.tar"), 8, 0, false},
                {"tar", AT("arrays.tar"), 0, 0, false},
                {"tfrecord", AT("images.tfrecord"), 0, 0, false},
                {"tfrecord", AT("lists.tfrecord"), 0, 0, false},
                {"cifar", AT("cifar10.bin.gz"), 0, 0, true},
                {"tokens", AT("tokens.u16"), 3, 0, false},
                {"npy", AT("both.npz"), 0, 0, true},
                {"idx", AT("floats.idx"), 0, 0, false}};
    for (uint32_t k = 0; k < 2 * RU_ARRAY_LEN(rows); k++) {
        const ru_data_options opt = {.format = rows[k / 2].format,
                                     .paths = &rows[k / 2].path,
                                     .n_paths = 1,
                                     .context = rows[k / 2].context,
                                     .image_size = rows[k / 2].image_size};
        if (k % 2 == 0 || !rows[k / 2].packed) {
            check(*state, &opt, k % 2 == 0 ? RU_CACHE_DECODED : RU_CACHE_BYTES);
        }
    }
}

/* A file of one .npy member [6, 7] of bytes after the other, as tar has it, then `end` blocks. */
static const char *write_tar(ru_scratch *f, const char *name, int64_t n, const uint8_t *x,
                             int64_t end)
{
    enum { BLOCK = 512, MEMBER = 2 * BLOCK };
    const int64_t dims[] = {6, 7};
    const char *path = ru_path_join(&f->arena, f->root, name);
    char *all = ru_arena_zalloc(&f->arena, n * MEMBER + end * BLOCK, 1), *one;
    for (int64_t i = 0; i < n; i++) {
        char *head = all + i * MEMBER;
        int64_t bytes;
        uint32_t sum = 0;
        assert_ok(rui_npy_save(f->root, "one.npy", RU_U8, 2, dims, x + i * 42, &f->err), f->err);
        assert_ok(ru_file_read(ru_path_join(&f->arena, f->root, "one.npy"), BLOCK, &f->arena, &one,
                               &bytes, &f->err),
                  f->err);
        (void)snprintf(head, 100, "%04lld.npy", (long long)i);
        (void)snprintf(head + 124, 12, "%011llo", (unsigned long long)bytes);
        memset(head + 148, ' ', 8);
        head[156] = '0';
        for (uint32_t k = 0; k < BLOCK; k++) {
            sum += (uint8_t)head[k];
        }
        (void)snprintf(head + 148, 8, "%06o", sum);
        memcpy(head + BLOCK, one, (size_t)bytes);
    }
    assert_ok(ru_file_replace(path, all, n * MEMBER + end * BLOCK, &f->err), f->err);
    return path;
}

/* Arrays of bytes are pixels, which are kept as they stand. */
static void test_arrays_of_bytes(void **state)
{
    ru_scratch *f = *state;
    enum { N = 24, EACH = 42 };
    const int64_t dims[] = {N, 6, 7};
    uint8_t x[N * EACH];
    for (uint32_t i = 0; i < N * EACH; i++) {
        x[i] = (uint8_t)(1 + i * 37 % 255);
    }
    assert_ok(rui_npy_save(f->root, "u8.npy", RU_U8, 3, dims, x, &f->err), f->err);
    const char *npy[] = {ru_path_join(&f->arena, f->root, "u8.npy")},
               *tar[] = {write_tar(f, "a.tar", N, x, 2)};
    for (uint32_t k = 0; k < 8; k++) {
        const ru_data_options opt = {.format = k % 2 == 0 ? "npy" : "tar",
                                     .paths = k % 2 == 0 ? npy : tar,
                                     .n_paths = 1,
                                     .raw = k % 4 >= 2};
        check(f, &opt, k < 4 ? RU_CACHE_DECODED : RU_CACHE_BYTES);
    }
}

/* One name for many files: a change of any of them makes other data. */
static void test_shards(void **state)
{
    ru_scratch *f = *state;
    enum { N = 8, EACH = 42 };
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    const char *paths[] = {ru_path_join(&f->arena, f->root, "t{0..1}.tar")};
    const ru_data_options opt = {.format = "tar", .paths = paths, .n_paths = 1};
    uint8_t x[N * EACH];
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t i = 0; i < N * EACH && k < 2; i++) {
            x[i] = (uint8_t)(i + 100 * k);
        }
        if (k == 0) {
            (void)write_tar(f, "t0.tar", N, x, 2);
        }
        if (k < 2) {
            (void)write_tar(f, "t1.tar", N, x, 2 + k);
        }
        ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
        ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, &tier, 1);
        compare(a, b, 1, 1);
        rui_cache_sum sum = rui_cache_sum_get(b->cache);
        assert_int_equal(sum.found, k < 2 ? 0 : 2 * N);
        ru_dataset_close(a);
        ru_dataset_close(b);
    }
}

/* Images in a file with labels in memory are kept. */
static void test_labels_in_memory(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    const char *const names[] = {"a-images", "a-labels"};
    ru_data_options opt = {.format = "idx",
                           .paths = write_digits(f, "idx", names, 2),
                           .n_paths = 2,
                           .resident_max_bytes = 1000};
    ru_dataset *a, *b;
    assert_ok(ru_dataset_open(&opt, &a, &f->err), f->err);
    opt.cache = (ru_cache_options){.kind = RU_CACHE_BYTES, .tiers = &tier, .n_tiers = 1};
    assert_ok(ru_dataset_open(&opt, &b, &f->err), f->err);
    assert_non_null(b->cache);
    compare(a, b, 2, 3);
    rui_cache_sum sum = rui_cache_sum_get(b->cache);
    assert_int_equal(sum.found, COUNT);
    ru_dataset_close(a);
    ru_dataset_close(b);
}

/* Mean, std and labels as vectors come after what is kept; another size is another folder. */
static void test_options(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    const double mean[] = {0.4}, std[] = {0.3};
    ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    check(f, &opt, RU_CACHE_DECODED);
    opt.mean = mean;
    opt.std = std;
    opt.n_mean = opt.n_std = 1;
    opt.one_hot = true;
    check(f, &opt, RU_CACHE_DECODED);
    for (int64_t size = 20; size < 30; size += 8) {
        rui_cache_sum sum;
        opt.image_size = size;
        ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
        ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, &tier, 1);
        compare(a, b, 2, 3);
        sum = rui_cache_sum_get(b->cache);
        assert_int_equal(sum.found, COUNT);
        ru_dataset_close(a);
        ru_dataset_close(b);
    }
}

/* Two halves drawn by one permutation share a folder; each finds what the other kept. */
static void test_parts_share(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    rui_cache_sum sum;
    for (uint32_t k = 0; k < 3; k++) {
        opt.held = k < 2 ? 0.5 : 0;
        opt.held_out = k == 1;
        ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
        ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, &tier, 1);
        compare(a, b, 1, 4);
        sum = rui_cache_sum_get(b->cache);
        assert_int_equal(sum.found, k < 2 ? 0 : COUNT);
        ru_dataset_close(a);
        ru_dataset_close(b);
    }
}

/* What is measured of samples fits what is kept of them, and a set that keeps from then on gives
 * the same bytes. */
static void test_probe(void **state)
{
    ru_scratch *f = *state;
    ru_err err = {0};
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "probed"), ROOM};
    ru_data_options o = {.format = "images", .paths = write_images(f), .n_paths = 1};
    for (ru_cache_kind kind = RU_CACHE_BYTES; kind <= RU_CACHE_DECODED; kind++) {
        ru_data_probe p;
        ru_dataset *a = open_data(&o, RU_CACHE_NONE, NULL, 0);
        ru_dataset *b = open_data(&o, RU_CACHE_NONE, NULL, 0);
        assert_ok(ru_data_probe_take(b, &p, &err), err);
        assert_true(p.fetch_s > 0 && p.decode_s > 0 && p.unpack_s > 0);
        assert_in_range(p.bytes, 1, a->bytes / a->count + 1);
        ru_data_options keeps = o;
        keeps.cache = (ru_cache_options){.kind = kind, .tiers = &tier, .n_tiers = 1};
        assert_ok(ru_dataset_keep(b, &keeps, &err), err);
        compare(a, b, 2, 0);
        rui_cache_sum sum = rui_cache_sum_get(b->cache);
        int64_t each = sum.added_bytes / COUNT;
        assert_int_equal(sum.added, COUNT);
        if (kind == RU_CACHE_DECODED) {
            assert_int_equal(each, p.decoded_bytes);
        } else {
            assert_in_range(each, p.bytes - p.bytes / 4, p.bytes + p.bytes / 4);
        }
        ru_dataset_close(a);
        ru_dataset_close(b);
    }
    const ru_data_options made = {.format = "synthetic", .generator = "digits", .count = COUNT};
    ru_dataset *d;
    ru_data_probe p;
    assert_ok(ru_dataset_open(&made, &d, &err), err);
    assert_ok(ru_data_probe_take(d, &p, &err), err);
    assert_true(p.bytes == 0 && p.decoded_bytes == 0 && p.fetch_s == 0);
    ru_dataset_close(d);
}

/* Two datasets at the same time, as of two processes: what one keeps the other finds, and the
 * folder never has more than its quota. The second tier takes what the first has no room for. */
static void test_room(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tiers[] = {{ru_path_join(&f->arena, f->root, "fast"), 100000},
                                  {ru_path_join(&f->arena, f->root, "slow"), 120000}};
    ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, tiers, 2);
    ru_dataset *c = open_data(&opt, RU_CACHE_DECODED, tiers, 2);
    rui_cache_sum x, y;
    compare(a, b, 1, 3);
    x = rui_cache_sum_get(b->cache); /* what waited is in its file, or found no room */
    compare(a, b, 1, 3);
    compare(a, c, 2, 2);
    x = rui_cache_sum_get(b->cache);
    int64_t record = rui_cache_record_bytes(b->cache), most = 220000 / record;
    assert_true(x.kept < most && x.kept > most * 9 / 10);
    assert_int_equal(x.found, x.kept);
    for (uint32_t k = 0; k < 2; k++) {
        assert_true(ru_dir_bytes(tiers[k].path) <= tiers[k].quota_bytes);
        assert_true(ru_dir_bytes(tiers[k].path) > tiers[k].quota_bytes * 9 / 10);
    }
    ru_dataset_close(b);
    ru_dataset_close(c);
    c = open_data(&opt, RU_CACHE_DECODED, tiers, 2);
    compare(a, c, 1, 2);
    y = rui_cache_sum_get(c->cache);
    assert_true(y.kept >= x.kept && y.found >= x.kept);
    ru_dataset_close(c);
    /* Other data push out what nobody uses, and nothing that is in use. */
    opt.image_size = 20;
    ru_dataset *d = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    for (uint32_t in_use = 2; in_use-- > 0;) {
        opt.image_size = 0;
        c = open_data(&opt, RU_CACHE_DECODED, tiers, 2);
        if (in_use == 0) {
            ru_dataset_close(c);
        }
        opt.image_size = 20;
        b = open_data(&opt, RU_CACHE_DECODED, tiers, 2);
        compare(d, b, 2, 5);
        x = rui_cache_sum_get(b->cache);
        assert_true(in_use > 0 ? x.added < 10 : x.added > 90);
        ru_dataset_close(b);
        if (in_use > 0) {
            ru_dataset_close(c);
        }
    }
    ru_dataset_close(d);
    ru_dataset_close(a);
}

/* A file of the folder whose name ends so. */
static const char *file_of(ru_scratch *f, const char *tier, const char *end)
{
    char **names;
    uint32_t n;
    const char *room = ru_path_join(&f->arena, tier, "samples"), *found = NULL;
    assert_ok(ru_dir_list(room, &f->arena, &names, &n, &f->err), f->err);
    for (uint32_t i = 0; i < n; i++) {
        const char *dir = ru_path_join(&f->arena, room, names[i]);
        char **files;
        uint32_t n_files = 0;
        if (ru_path_is_dir(dir)) {
            assert_ok(ru_dir_list(dir, &f->arena, &files, &n_files, &f->err), f->err);
        }
        for (uint32_t k = 0; k < n_files; k++) {
            found = strstr(files[k], end) != NULL ? ru_path_join(&f->arena, dir, files[k]) : found;
        }
    }
    assert_non_null(found);
    return found;
}

/* Flipped bits, a torn index, garbage and a truncated segment: found, and read from the source. */
static void test_damage(void **state)
{
    ru_scratch *f = *state;
    const char *const *paths = write_images(f);
    ru_data_options opt = {.format = "images", .paths = paths, .n_paths = 1};
    ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t v = 0; v < 12; v++) { /* every file with every damage */
        ru_cache_kind kind = v % 2 == 0 ? RU_CACHE_DECODED : RU_CACHE_BYTES;
        char name[32];
        (void)snprintf(name, sizeof name, "tier%u", v);
        const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, name), ROOM};
        ru_dataset *b = open_data(&opt, kind, &tier, 1);
        rui_cache_sum sum;
        char *data;
        int64_t n;
        compare(a, b, 1, 2);
        ru_dataset_close(b);
        const char *file = file_of(f, tier.path, v % 4 < 2 ? ".seg" : ".idx");
        assert_ok(ru_file_read(file, 0, &f->arena, &data, &n, &f->err), f->err);
        for (uint32_t k = 0; k < 1 + v; k++) {
            data[ru_rng_below(&rng, (uint32_t)n)] ^= (char)(1 + ru_rng_below(&rng, 127));
        }
        n = v % 3 == 0 ? ru_rng_below(&rng, (uint32_t)n) : n;
        assert_ok(ru_file_replace(file, data, n, &f->err), f->err);
        for (uint32_t again = 0; again < 2; again++) {
            b = open_data(&opt, kind, &tier, 1);
            compare(a, b, 2, v % 7);
            sum = rui_cache_sum_get(b->cache);
            /* Bytes that the decoder had to read by itself are kept when they are fetched next. */
            assert_true(sum.kept == COUNT ||
                        (kind == RU_CACHE_BYTES && sum.kept >= COUNT - sum.damaged));
            assert_true(v % 4 >= 2 || again > 0 || sum.damaged > 0);
            ru_dataset_close(b);
        }
    }
    ru_dataset_close(a);
}

/* Threads write their lines in any order, and a folder may be named twice: nothing is cut off. */
static void test_order_of_lines(void **state)
{
    enum { LINE = 40 };
    ru_scratch *f = *state;
    const char *path = ru_path_join(&f->arena, f->root, "tier");
    const ru_disk_tier tiers[] = {{path, ROOM}, {path, ROOM}};
    ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, tiers, 1);
    char *data, line[LINE];
    int64_t n;
    compare(a, b, 1, 3);
    ru_dataset_close(b);
    const char *file = file_of(f, path, ".idx");
    assert_ok(ru_file_read(file, 0, &f->arena, &data, &n, &f->err), f->err);
    memcpy(line, data + n - LINE, LINE);
    memcpy(data + n - LINE, data + n - 2 * LINE, LINE);
    memcpy(data + n - 2 * LINE, line, LINE);
    assert_ok(ru_file_replace(file, data, n, &f->err), f->err);
    for (uint32_t k = 1; k < 3; k++) {
        b = open_data(&opt, RU_CACHE_DECODED, tiers, k);
        compare(a, b, 1, 1);
        rui_cache_sum sum = rui_cache_sum_get(b->cache);
        assert_int_equal(sum.found, COUNT);
        assert_int_equal(sum.damaged, 0);
        ru_dataset_close(b);
    }
    ru_dataset_close(a);
}

/* Files that change before they are opened again are other data; what is kept of files that change
 * meanwhile is left out. */
static void test_changes(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, &tier, 1);
    char first[256], second[256];
    char *data;
    int64_t n;
    rui_cache_sum sum;
    compare(a, b, 1, 3);
    assert_ok(
        ru_file_read(ru_dataset_where(a, 0, first, sizeof first), 0, &f->arena, &data, &n, &f->err),
        f->err);
    assert_ok(ru_file_replace(ru_dataset_where(a, 1, second, sizeof second), data, n, &f->err),
              f->err);
    ru_dataset_close(a);
    ru_dataset_close(b);
    a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    for (uint32_t k = 0; k < 2; k++) {
        b = open_data(&opt, RU_CACHE_DECODED, &tier, 1);
        compare(a, b, 1, 3);
        sum = rui_cache_sum_get(b->cache);
        assert_int_equal(sum.found, k == 0 ? 0 : COUNT);
        ru_dataset_close(b);
    }
    ru_dataset_close(a);
}

/* A quota that is lowered under use: what is there stays and is read, nothing is added; what nobody
 * uses goes when others want room. */
static void test_lowered(void **state)
{
    ru_scratch *f = *state;
    const char *path = ru_path_join(&f->arena, f->root, "tier");
    const ru_disk_tier wide = {path, ROOM}, narrow = {path, 50000};
    ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, &wide, 1);
    compare(a, b, 1, 3);
    assert_int_equal(rui_cache_sum_get(b->cache).kept, COUNT);
    ru_dataset *c = open_data(&opt, RU_CACHE_DECODED, &narrow, 1);
    compare(a, c, 1, 3);
    assert_int_equal(rui_cache_sum_get(c->cache).found, COUNT);
    ru_dataset_close(c);
    ru_dataset_close(a);
    opt.image_size = 20;
    a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    for (uint32_t used = 2; used-- > 0;) {
        c = open_data(&opt, RU_CACHE_DECODED, &narrow, 1);
        compare(a, c, 1, 3);
        assert_int_equal(rui_cache_sum_get(c->cache).added > 0, used == 0);
        ru_dataset_close(c);
        if (used == 1) {
            ru_dataset_close(b);
        }
    }
    assert_true(ru_dir_bytes(path) <= narrow.quota_bytes);
    ru_dataset_close(a);
}

/* The folder goes while it is used: the same bytes, and the next dataset has one again. */
static void test_vanishes(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    ru_dataset *a = open_data(&opt, RU_CACHE_NONE, NULL, 0);
    for (uint32_t k = 0; k < 3; k++) { /* before anything is kept, after that, and not at all */
        ru_dataset *b = open_data(&opt, RU_CACHE_DECODED, &tier, 1);
        if (k == 1) {
            compare(a, b, 1, 3);
            assert_int_equal(rui_cache_sum_get(b->cache).kept, COUNT);
        }
        if (k < 2) {
            assert_ok(ru_path_remove(tier.path, &f->err), f->err);
        }
        compare(a, b, 2, 4);
        assert_int_equal(rui_cache_sum_get(b->cache).added, k == 0 ? 0 : COUNT);
        ru_dataset_close(b);
    }
    ru_dataset_close(a);
}

static void test_mistakes(void **state)
{
    ru_scratch *f = *state;
    ru_dataset *d;
    ru_data_options opt = {
        .format = "images", .paths = write_images(f), .n_paths = 1, .cache.kind = RU_CACHE_DECODED};
    assert_int_equal(ru_dataset_open(&opt, &d, &f->err), RU_E_CONFIG);
    assert_non_null(strstr(f->err.text, "storage"));
    const char *file = ru_path_join(&f->arena, f->root, "file");
    assert_ok(ru_file_replace(file, "x", 1, &f->err), f->err);
    const ru_disk_tier tier = {file, ROOM};
    opt.cache.tiers = &tier;
    opt.cache.n_tiers = 1;
    assert_int_equal(ru_dataset_open(&opt, &d, &f->err), RU_E_CREATE);
    assert_non_null(strstr(f->err.text, file));
    assert_non_null(strstr(f->err.text, "storage"));
    const ru_disk_tier open = {f->root, ROOM}; /* others may write into it */
    const char *samples = ru_path_join(&f->arena, f->root, "samples");
    opt.cache.tiers = &open;
    assert_ok(ru_dir_make(samples, &f->err), f->err);
    assert_int_equal(chmod(samples, 0777), 0);
    assert_int_equal(ru_dataset_open(&opt, &d, &f->err), RU_E_CONFIG);
    assert_non_null(strstr(f->err.text, "chmod go-w"));
}

/* A folder that is there and takes no files, as one on a disk that is full or read-only: samples
 * are kept in the next one. */
static void test_takes_no_files(void **state)
{
    ru_scratch *f = *state;
    ru_dataset *d;
    ru_data_options opt = {
        .format = "images", .paths = write_images(f), .n_paths = 1, .cache.kind = RU_CACHE_DECODED};
    const ru_disk_tier tiers[2] = {{ru_path_join(&f->arena, f->root, "fast"), ROOM},
                                   {ru_path_join(&f->arena, f->root, "slow"), ROOM}};
    opt.cache.tiers = tiers;
    opt.cache.n_tiers = 2;
    assert_ok(ru_dir_make(tiers[0].path, &f->err), f->err);
    const char *taken = ru_path_join(&f->arena, tiers[0].path, "samples");
    assert_ok(ru_file_replace(taken, "x", 1, &f->err), f->err);
    assert_ok(ru_dataset_open(&opt, &d, &f->err), f->err);
    float x[28 * 28 * 3];
    int64_t y;
    assert_ok(ru_dataset_read(d, 0, (void *[]){x, &y}, &f->err), f->err);
    assert_int_equal(rui_cache_sum_get(d->cache).added, 1);
    ru_dataset_close(d);
    assert_true(ru_path_is_dir(ru_path_join(&f->arena, tiers[1].path, "samples")));
}

typedef struct kept {
    ru_scratch *f;
    const ru_data_options *opt;
    ru_dataset *plain;
    uint32_t round;
    int64_t calls; /* that the last one made */
} kept;

/* Any one call of the system fails: the dataset does not open, or gives the same bytes. */
static void survives(kept *k, int64_t at)
{
    ru_err err = {0};
    char name[32];
    ru_data_options o = *k->opt;
    ru_dataset *d = NULL;
    (void)snprintf(name, sizeof name, "full%u", k->round++);
    const ru_disk_tier tier = {ru_path_join(&k->f->arena, k->f->root, name), ROOM};
    float x[2][28 * 28 * 3];
    int64_t y[2];
    o.cache = (ru_cache_options){.kind = RU_CACHE_DECODED, .tiers = &tier, .n_tiers = 1};
    k->calls = 0;
    ru_test_fail_everywhere(true, at);
    ru_status st = ru_dataset_open(&o, &d, &err);
    for (int64_t i = 0; st == RU_OK && i < 4; i++) {
        ru_err why = {0};
        if (ru_dataset_read(d, i % 2, (void *[]){x[0], &y[0]}, &why) == RU_OK) {
            int64_t made = ru_test_everywhere_count(true);
            k->calls += made;
            ru_test_fail_everywhere(true, -1);
            assert_ok(ru_dataset_read(k->plain, i % 2, (void *[]){x[1], &y[1]}, &why), why);
            assert_memory_equal(x[0], x[1], (size_t)k->plain->field_bytes[0]);
            assert_int_equal(y[0], y[1]);
            ru_test_fail_everywhere(true, at > made ? at - made : -1);
            at = at > made ? at - made : -1;
        }
    }
    ru_dataset_close(d);
    k->calls += ru_test_everywhere_count(true);
    ru_test_fail_everywhere(true, -1);
}

static void test_failing_calls(void **state)
{
    ru_scratch *f = *state;
    const ru_data_options opt = {.format = "images", .paths = write_images(f), .n_paths = 1};
    kept k = {.f = f, .opt = &opt, .plain = open_data(&opt, RU_CACHE_NONE, NULL, 0)};
    survives(&k, 1 << 20); /* none fails */
    const int64_t calls = k.calls;
    assert_true(calls > 10);
    for (int64_t at = 0; at < calls && at < 200; at++) {
        survives(&k, at);
    }
    ru_dataset_close(k.plain);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(data_cache, T(test_formats), T(test_written_by_others), T(test_arrays_of_bytes),
         T(test_shards), T(test_probe), T(test_labels_in_memory), T(test_options),
         T(test_parts_share), T(test_room), T(test_damage), T(test_order_of_lines), T(test_changes),
         T(test_lowered), T(test_vanishes), T(test_mistakes), T(test_takes_no_files),
         T(test_failing_calls))
