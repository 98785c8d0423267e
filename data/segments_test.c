/* Records in segments: what a process left is used or cut off, what waits is found in memory. */
#include "data/segments.h"

#include <string.h>

#include "env/file/grow.h"
#include "test/scratch.h"
#include "test/test.h"

enum { ROOM = 64 << 20, SAMPLES = 24, RECORD = 1000, LARGE = 400000, WHOLE = 1 << 20 };

static rui_segments *open_segments(ru_scratch *f, int64_t quota_bytes)
{
    rui_segments *s;
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), quota_bytes};
    const rui_segments_options opt = {
        .tiers = &tier, .n_tiers = 1, .key = {5, 6}, .samples = SAMPLES};
    assert_ok(rui_segments_open(&opt, &s, &f->err), f->err);
    return s;
}

static bool begin(rui_segments *s, int64_t number, int64_t size_bytes)
{
    rui_place p;
    uint8_t *to = rui_segments_begin(s, number, size_bytes, &p);
    if (to != NULL) {
        memset(to, 1 + (int)number, (size_t)size_bytes);
        rui_segments_end(s, &p, true);
    }
    return to != NULL;
}

/* Is it in a file now, and was not before? */
static bool put_bytes(rui_segments *s, int64_t number, int64_t size_bytes)
{
    rui_kept k;
    bool begun = begin(s, number, size_bytes);
    (void)rui_segments_settle(s);
    return begun && rui_segments_find(s, number, &k) && k.held == NULL;
}

static bool put(rui_segments *s, int64_t number)
{
    return put_bytes(s, number, RECORD);
}

/* Samples first .. end - 1 are there as put() made them, and no others. */
static void assert_kept(rui_segments *s, int64_t first, int64_t end)
{
    uint8_t record[RECORD];
    rui_kept k;
    ru_err err = {0};
    assert_int_equal(rui_segments_settle(s).kept, end - first);
    for (int64_t i = first; i < end; i++) {
        assert_true(rui_segments_find(s, i, &k));
        assert_int_equal(k.size_bytes, sizeof record);
        assert_ok(rui_source_read(k.source, k.offset, record, sizeof record, &err), err);
        assert_int_equal(ru_hash_bytes(record, sizeof record, 0), k.hash);
        assert_true(record[0] == 1 + i && record[RECORD - 1] == 1 + i);
    }
}

/* Files whose names end so; one of them. */
static uint32_t files_in(ru_scratch *f, const char *end, const char **path)
{
    char **names;
    uint32_t n, found = 0;
    char name[33];
    ru_hash128_text((ru_hash128){5, 6}, name);
    const char *dir = ru_arena_printf(&f->arena, "%s/tier/samples/%s", f->root, name);
    assert_ok(ru_dir_list(dir, &f->arena, &names, &n, &f->err), f->err);
    for (uint32_t i = 0; i < n; i++) {
        if (strstr(names[i], end) != NULL) {
            *path = ru_path_join(&f->arena, dir, names[i]);
            found++;
        }
    }
    return found;
}

/* Process after process goes on with one segment, whose torn end goes; two at a time have two. */
static void test_runs_share_a_segment(void **state)
{
    ru_scratch *f = *state;
    const char *file;
    char *data;
    int64_t n;
    for (int64_t i = 0; i < 6; i++) {
        rui_segments *s = open_segments(f, ROOM);
        assert_kept(s, 0, i);
        assert_true(put(s, i));
        assert_false(put(s, i));
        rui_segments_close(s);
        for (uint32_t k = 0; k < 2; k++) { /* as of a writer that was killed */
            assert_int_equal(files_in(f, k == 0 ? ".seg" : ".idx", &file), 1);
            assert_ok(ru_file_read(file, 0, &f->arena, &data, &n, &f->err), f->err);
            assert_int_equal(n, (i + 1) * (k == 0 ? RECORD : 40));
            data = memcpy(ru_arena_zalloc(&f->arena, n + 77 * i, 1), data, (size_t)n);
            memset(data + n, 3, (size_t)i);
            assert_ok(ru_file_replace(file, data, n + 77 * i, &f->err), f->err);
        }
    }
    assert_int_equal(files_in(f, ".seg", &file), 1);
    rui_segments *a = open_segments(f, ROOM), *b = open_segments(f, ROOM);
    assert_true(put(a, 6));
    assert_int_equal(files_in(f, ".seg", &file), 1);
    assert_true(put(b, 7));
    assert_int_equal(files_in(f, ".seg", &file), 2);
    assert_kept(a, 0, 7);
    rui_segments_close(a);
    rui_segments_close(b);
    a = open_segments(f, ROOM);
    b = open_segments(f, ROOM);
    assert_kept(a, 0, 8);
    assert_true(put(a, 8) && put(b, 9));
    rui_segments_drop(a); /* what it kept itself */
    rui_segments_close(a);
    rui_segments_close(b);
    a = open_segments(f, ROOM);
    assert_false(rui_segments_find(a, 8, &(rui_kept){0}));
    assert_true(put(a, 8));
    assert_kept(a, 0, 10);
    rui_segments_close(a);
    assert_int_equal(files_in(f, ".seg", &file), 2);
}

/* A record that is larger than what is left takes nothing from smaller ones. */
static void test_large_records(void **state)
{
    ru_scratch *f = *state;
    rui_segments *s = open_segments(f, 1 << 20);
    for (int64_t k = 0; k < 3; k++) {
        assert_int_equal(put_bytes(s, 10 + k, LARGE), k < 2);
    }
    assert_false(begin(s, 13, LARGE)); /* it is not made in vain again */
    assert_true(put(s, 0));
    rui_segments_close(s);
    s = open_segments(f, 1 << 20);
    assert_int_equal(rui_segments_settle(s).kept, 3);
    rui_segments_close(s);
}

/* The disk is behind: what waits is found in memory, what is too much is not kept, or waits. */
static void test_behind(void **state)
{
    ru_scratch *f = *state;
    ru_lock *room;
    rui_kept k;
    rui_place p;
    int64_t n = 0;
    rui_segments *s = open_segments(f, ROOM);
    assert_ok(ru_lock_open(ru_path_join(&f->arena, f->root, "tier/samples/room"), true, true, &room,
                           &f->err),
              f->err);
    while (begin(s, n, WHOLE)) {
        n++;
    }
    assert_int_equal(n, 16); /* MiB */
    for (int64_t i = 0; i < n; i++) {
        assert_true(rui_segments_find(s, i, &k));
        assert_true(k.bytes[0] == 1 + i && k.bytes[WHOLE - 1] == 1 + i && k.size_bytes == WHOLE);
        rui_segments_forget(s, i); /* only what is in a file can be damaged */
        rui_segments_done(s, &k);
    }
    assert_false(begin(s, n, RECORD));
    assert_true(rui_segments_find(s, n - 1, &k));
    ru_lock_close(room);
    rui_segments_sum sum = rui_segments_settle(s);
    assert_true(sum.kept == n && sum.added == n && sum.added_bytes == n * WHOLE && sum.late == 2);
    assert_true(begin(s, n + 1, WHOLE)); /* in other memory than what is still read */
    assert_true(k.bytes[0] == n && k.bytes[WHOLE - 1] == n);
    rui_segments_done(s, &k);
    uint8_t *to = rui_segments_begin(s, n, RECORD, &p);
    assert_non_null(to);
    assert_false(rui_segments_find(s, n, &k)); /* not before it is whole */
    rui_segments_end(s, &p, false);
    assert_true(put(s, n)); /* what had failed may come again */
    rui_segments_close(s);
    const ru_disk_tier tier = {ru_path_join(&f->arena, f->root, "tier"), ROOM};
    const rui_segments_options waits = {
        .tiers = &tier, .n_tiers = 1, .key = {7, 8}, .samples = SAMPLES, .waits = true};
    assert_ok(rui_segments_open(&waits, &s, &f->err), f->err);
    for (n = 0; n < SAMPLES; n++) {
        assert_true(begin(s, n, WHOLE));
    }
    sum = rui_segments_settle(s);
    assert_true(sum.kept == SAMPLES && sum.late == 0);
    rui_segments_close(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(data_segments, T(test_runs_share_a_segment), T(test_large_records), T(test_behind))
