/* What people are told of kept samples: which, why, and whether their bytes are right. */
#include "data/kept.h"

#include <string.h>

#include "data/cache.h"
#include "data/make/write.h"
#include "test/scratch.h"
#include "test/test.h"

enum { COUNT = 60, ROOM = 64 << 20 };

static ru_dataset *open_set(ru_scratch *f, const ru_disk_tier *tiers, uint32_t n)
{
    ru_dataset *d;
    const char *paths[] = {ru_path_join(&f->arena, f->root, "a-images"),
                           ru_path_join(&f->arena, f->root, "a-labels")};
    const ru_data_options o = {.format = "idx",
                               .paths = paths,
                               .n_paths = 2,
                               .resident_max_bytes = -1,
                               .cache = {.kind = RU_CACHE_DECODED,
                                         .tiers = tiers,
                                         .n_tiers = n,
                                         .plan = "0123",
                                         .none_s = 3,
                                         .epoch_s = 1}};
    assert_ok(ru_dataset_open(&o, &d, &f->err), f->err);
    return d;
}

static void write_set(ru_scratch *f)
{
    ru_dataset *d;
    const ru_data_options made = {
        .format = "synthetic", .generator = "digits", .seed = 3, .count = COUNT};
    assert_ok(ru_dataset_open(&made, &d, &f->err), f->err);
    const rui_write_job job = {.d = d, .n = COUNT, .dir = f->root, .prefix = "a"};
    assert_ok(rui_writer_find("idx")->write(&job, &f->err), f->err);
    ru_dataset_close(d);
}

static void read_set(ru_scratch *f, const ru_dataset *d, int64_t n)
{
    float x[28 * 28];
    int64_t y;
    for (int64_t k = 0; k < n; k++) {
        assert_ok(ru_dataset_read(d, k, (void *[]){x, &y}, &f->err), f->err);
    }
    (void)rui_cache_sum_get(d->cache); /* all of them are in their files */
}

static ru_kept_set list_one(ru_scratch *f, const ru_disk_tier *tier)
{
    uint32_t n;
    ru_kept_set *sets;
    assert_ok(ru_kept_list(tier, 1, &f->arena, &sets, &n, &f->err), f->err);
    assert_int_equal(n, 1);
    return sets[0];
}

static ru_kept_verified verify(ru_scratch *f, const ru_disk_tier *tier)
{
    ru_kept_verified v;
    const ru_kept_set set = list_one(f, tier);
    assert_ok(ru_kept_verify(tier, &set, &v, &f->err), f->err);
    return v;
}

/* One bit of the only file with this ending. */
static void flip(ru_scratch *f, const ru_disk_tier *tier, const char *ending, int64_t at)
{
    char **names, *data;
    uint32_t n;
    int64_t size;
    const ru_kept_set set = list_one(f, tier);
    const char *dir = ru_arena_printf(&f->arena, "%s/samples/%s", tier->path, set.key);
    assert_ok(ru_dir_list(dir, &f->arena, &names, &n, &f->err), f->err);
    for (uint32_t k = 0; k < n; k++) {
        const char *path = ru_path_join(&f->arena, dir, names[k]);
        if (ru_str_ends(ru_str_c(path), ending)) {
            assert_ok(ru_file_read(path, 0, &f->arena, &data, &size, &f->err), f->err);
            assert_true(at < size);
            data[at] = (char)(data[at] ^ 4);
            assert_ok(ru_file_own(path, data, size, &f->err), f->err);
        }
    }
}

static void test_told(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    uint32_t n;
    ru_kept_set *sets;
    write_set(f);
    assert_ok(ru_kept_list(&tier, 1, &f->arena, &sets, &n, &f->err), f->err);
    assert_int_equal(n, 0);
    ru_dataset *d = open_set(f, &tier, 1);
    read_set(f, d, COUNT / 2); /* its files have claimed more than they hold */
    ru_kept_set set = list_one(f, &tier);
    assert_true(set.in_use);
    assert_int_equal(set.records, COUNT / 2);
    assert_int_equal(verify(f, &tier).records, COUNT / 2);
    assert_int_equal(verify(f, &tier).damaged + verify(f, &tier).lines, 0);
    assert_int_equal(ru_kept_remove(&tier, &set, &f->err), RU_E_AGAIN);
    read_set(f, d, COUNT);
    ru_dataset_close(d);
    for (uint32_t k = 0; k < 2; k++) {
        d = open_set(f, &tier, 1);
        read_set(f, d, COUNT);
        ru_dataset_close(d);
    }
    set = list_one(f, &tier);
    assert_false(set.in_use);
    assert_string_equal(set.about.kind, "decoded");
    assert_string_equal(set.about.format, "idx");
    assert_string_equal(set.about.plan, "0123");
    assert_true(set.about.none_s == 3 && set.about.epoch_s == 1);
    assert_int_equal(set.about.samples, COUNT);
    assert_int_equal(set.about.processes, 3);
    assert_int_equal(set.about.found, COUNT / 2 + 2 * COUNT);
    assert_int_equal(set.about.read, COUNT);
    assert_int_equal(set.about.added, COUNT);
    assert_int_equal(set.records, COUNT);
    assert_int_equal(verify(f, &tier).records, COUNT);
    assert_ok(ru_kept_remove(&tier, &set, &f->err), f->err);
    assert_ok(ru_kept_remove(&tier, &set, &f->err), f->err); /* it is removed already */
    assert_ok(ru_kept_list(&tier, 1, &f->arena, &sets, &n, &f->err), f->err);
    assert_int_equal(n, 0);
}

static void test_damage(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    write_set(f);
    ru_dataset *d = open_set(f, &tier, 1);
    read_set(f, d, COUNT);
    ru_dataset_close(d);
    flip(f, &tier, ".seg", 1000); /* of the first record */
    ru_kept_verified v = verify(f, &tier);
    assert_int_equal(v.damaged, 1);
    assert_int_equal(v.records, COUNT - 1);
    flip(f, &tier, ".idx", 40 * (COUNT - 1) + 8);
    v = verify(f, &tier);
    assert_int_equal(v.damaged, 1);
    assert_int_equal(v.lines, 1);
    assert_int_equal(v.records, COUNT - 2);
    d = open_set(f, &tier, 1); /* reads both from the source, and keeps them anew */
    read_set(f, d, COUNT);
    ru_dataset_close(d);
    assert_int_equal(list_one(f, &tier).about.damaged, 1);
    v = verify(f, &tier);
    assert_int_equal(v.damaged, 1);
    assert_int_equal(v.lines, 0);
    assert_int_equal(v.records, COUNT);
}

/* One quota for samples and for files of programs (store/tiers/tiers.h). */
static void test_quota_of_both(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), 40000};
    const char *files = ru_path_join(&f->arena, tier.path, "files/test");
    char *bytes = ru_arena_zalloc(&f->arena, 35000, 1);
    write_set(f);
    for (uint32_t k = 0; k < 2; k++) {
        ru_dataset *d = open_set(f, &tier, 1);
        read_set(f, d, COUNT);
        ru_dataset_close(d);
        ru_kept_set set = list_one(f, &tier);
        assert_true(k == 0 ? set.records > 8 && set.records < COUNT : set.records < 3);
        assert_ok(ru_kept_remove(&tier, &set, &f->err), f->err);
        assert_ok(ru_dir_make(files, &f->err), f->err);
        assert_ok(ru_file_own(ru_path_join(&f->arena, files, "a"), bytes, 35000, &f->err), f->err);
    }
}

/* Whatever call fails: an answer or an error, and no folder that is half gone counts as whole. */
static void test_failing_calls(void **state)
{
    ru_scratch *f = *state;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    write_set(f);
    ru_dataset *d = open_set(f, &tier, 1);
    read_set(f, d, COUNT);
    ru_dataset_close(d);
    bool removed = false;
    for (int64_t at = 0; !removed; at++) {
        uint32_t n = 0;
        ru_err why = {0};
        ru_kept_set *sets;
        ru_kept_verified v;
        assert_true(at < 1000);
        ru_test_os_fail(at);
        ru_status st = ru_kept_list(&tier, 1, &f->arena, &sets, &n, &why);
        st = st == RU_OK && n == 1 ? ru_kept_verify(&tier, &sets[0], &v, &why) : st;
        bool failed = ru_test_os_count() > at;
        ru_test_os_fail(-1);
        assert_true(st != RU_OK || n == 0 || v.records + v.damaged == COUNT); /* or it says so */
        if (!failed) {
            assert_ok(st, why);
            assert_int_equal(v.records, COUNT);
            assert_ok(ru_kept_remove(&tier, &sets[0], &why), why);
            removed = true;
        }
    }
}

static void test_saved(void **state)
{
    (void)state;
    ru_kept_about a = {.found = 10, .read = 5, .found_ns = 100, .read_ns = 500};
    assert_int_equal(ru_kept_saved_ns(&a), 900); /* ten reads of 100 ns each, less 100 ns */
    a.found_ns = 1500;
    assert_int_equal(ru_kept_saved_ns(&a), -500); /* a folder on a slow disk */
    a.read = 0;
    assert_int_equal(ru_kept_saved_ns(&a), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(data_kept, T(test_told), T(test_damage), T(test_quota_of_both), T(test_failing_calls),
         cmocka_unit_test(test_saved))
