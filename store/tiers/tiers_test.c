/* Files that grow from disk to disk: the same bytes as in memory, quotas kept, whatever fails. */
#include "store/tiers/tiers_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/str.h"
#include "env/file/file.h"
#include "env/file/grow.h"
#include "test/scratch.h"
#include "test/test.h"

enum { FILES = 40, BYTES = 60000, FAST = 100000, MIDDLE = 300000, SLOW = 64 << 20 };

typedef struct box {
    ru_scratch *f;
    ru_disk_tier tiers[3];
    ru_tiers_options opt;
} box;

static box make_box(ru_scratch *f)
{
    box b = {.f = f,
             .tiers = {{ru_path_join(&f->arena, f->root, "fast"), FAST},
                       {ru_path_join(&f->arena, f->root, "middle"), MIDDLE},
                       {ru_path_join(&f->arena, f->root, "slow"), SLOW}},
             .opt = {.n_tiers = 3, .space = "test"}};
    return b;
}

static ru_tiers *open_box(box *b)
{
    ru_tiers *t;
    b->opt.tiers = b->tiers;
    assert_ok(ru_tiers_open(&b->opt, &t, &b->f->err), b->f->err);
    return t;
}

/* Byte `at` of file `k`. */
static uint8_t byte_of(uint32_t k, int64_t at)
{
    return (uint8_t)((uint64_t)(at + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 40 ^ k * 37);
}

static ru_status write_file(ru_tiers *t, const char *name, uint32_t k, int64_t bytes,
                            int64_t expected, ru_err *err)
{
    static uint8_t data[BYTES];
    ru_tier_file *f;
    const ru_tier_hint hint = {.expected_bytes = expected, .durable = k % 2 == 1};
    RU_TRY(ru_tier_create(t, name, &hint, &f, err));
    ru_status st = RU_OK;
    for (int64_t at = 0, n; st == RU_OK && at < bytes; at += n) {
        n = bytes - at < 7001 ? bytes - at : 7001;
        for (int64_t i = 0; i < n; i++) {
            data[i] = byte_of(k, at + i);
        }
        st = ru_tier_write(f, data, n, err);
    }
    st = st == RU_OK ? ru_tier_commit(f, err) : st;
    ru_tier_close(f);
    return st;
}

static void check_file(ru_tiers *t, const char *name, uint32_t k, int64_t bytes)
{
    ru_err err = {0};
    ru_tier_file *f;
    uint8_t data[4096];
    assert_ok(ru_tier_open(t, name, &f, &err), err);
    assert_int_equal(ru_tier_bytes(f), bytes);
    for (int64_t at = 0; at < bytes; at += 3000) { /* ranges overlap */
        int64_t n = bytes - at < (int64_t)sizeof data ? bytes - at : (int64_t)sizeof data;
        assert_ok(ru_tier_read(f, at, data, n, &err), err);
        for (int64_t i = 0; i < n; i++) {
            if (data[i] != byte_of(k, at + i)) {
                fail_msg("byte %lld of %s is another one", (long long)(at + i), name);
            }
        }
    }
    assert_int_equal(ru_tier_read(f, bytes, data, 1, &err), RU_E_DATA);
    ru_map_file map;
    assert_ok(ru_tier_map(f, &map, &err), err);
    ru_tier_close(f);
    assert_int_equal(map.size_bytes, bytes);
    for (int64_t i = 0; i < bytes; i++) {
        if (map.data[i] != byte_of(k, i)) {
            fail_msg("byte %lld of the map of %s is another one", (long long)i, name);
        }
    }
    ru_file_unmap(&map);
}

static uint32_t count(ru_tiers *t, int64_t *bytes)
{
    uint32_t n = 0;
    ru_tier_entry e;
    *bytes = 0;
    assert_int_equal(ru_tiers_look(t, NULL), RU_OK);
    for (uint32_t at = 0; ru_tiers_next(t, &at, &e); n++) {
        int64_t sum = 0;
        for (uint32_t k = 0; k < 3; k++) {
            sum += e.in_bytes[k];
        }
        assert_int_equal(sum, e.bytes);
        *bytes += sum;
    }
    return n;
}

/* Bytes of all parts, in all folders. */
static int64_t part_bytes(box *b)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < 3; k++) {
        char **names;
        uint32_t n = 0;
        const char *dir = ru_arena_printf(&b->f->arena, "%s/files/test", b->tiers[k].path);
        if (ru_path_is_dir(dir)) {
            assert_ok(ru_dir_list(dir, &b->f->arena, &names, &n, &b->f->err), b->f->err);
        }
        for (uint32_t i = 0; i < n; i++) {
            bool is = ru_str_ends(ru_str_c(names[i]), ".part");
            sum += is ? ru_path_bytes(ru_path_join(&b->f->arena, dir, names[i])) : 0;
        }
    }
    return sum;
}

/* Files come and go, the space is opened anew; beside a list in memory. */
static void test_random(void **state)
{
    box b = make_box(*state);
    ru_rng r = ru_rng_from(ru_test_seed(), 1);
    int64_t size[FILES], all;
    for (uint32_t k = 0; k < FILES; k++) {
        size[k] = -1;
    }
    ru_tiers *t = open_box(&b);
    for (uint32_t step = 0; step < 200; step++) {
        uint32_t k = ru_rng_below(&r, FILES);
        char name[16];
        ru_err err = {0};
        (void)snprintf(name, sizeof name, "../%u", k); /* a name is no path */
        if (ru_rng_below(&r, 20) == 0) {
            ru_tiers_close(t);
            t = open_box(&b);
        } else if (size[k] >= 0 && ru_rng_below(&r, 2) == 0) {
            check_file(t, name, k, size[k]);
            assert_ok(ru_tier_remove(t, name, &err), err);
            size[k] = -1;
        } else {
            int64_t n = ru_rng_below(&r, BYTES);
            ru_status st = write_file(t, name, k, n, ru_rng_below(&r, 2) * n, &err);
            assert_int_equal(st, size[k] >= 0 ? RU_E_CREATE : RU_OK);
            size[k] = st == RU_OK ? n : size[k];
        }
        for (uint32_t i = 0; i < 2; i++) {
            const char *files = ru_arena_printf(&b.f->arena, "%s/files", b.tiers[i].path);
            assert_true(ru_dir_bytes(files) <= b.tiers[i].quota_bytes);
        }
    }
    int64_t sum = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < FILES; k++) {
        char name[16];
        (void)snprintf(name, sizeof name, "../%u", k);
        if (size[k] >= 0) {
            check_file(t, name, k, size[k]);
            sum += size[k];
            n++;
        } else {
            ru_tier_file *none;
            assert_int_equal(ru_tier_open(t, name, &none, &b.f->err), RU_E_MISSING);
            assert_int_equal(ru_tier_remove(t, name, &b.f->err), RU_E_MISSING);
        }
    }
    assert_int_equal(count(t, &all), n);
    assert_int_equal(all, sum);
    assert_int_equal(part_bytes(&b), sum); /* what was claimed beyond is given back */
    ru_tiers_close(t);
}

/* Where a file is by what was expected of it. */
static void test_hint(void **state)
{
    static const struct {
        int64_t expected, bytes, in[3];
    } rows[] = {{1000, 1000, {1000, 0, 0}},        /* fits */
                {3000, 20000, {8192, 8192, 3616}}, /* about twice that on both */
                {150000, 1000, {0, 1000, 0}},      /* would not fit into the fast one */
                {400000, 1000, {0, 0, 1000}},      /* nor into the middle one */
                {0, 50000, {50000, 0, 0}}};        /* nobody knows */
    box b = make_box(*state);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_tier_entry e;
        uint32_t at = 0;
        ru_tiers *t = open_box(&b);
        assert_ok(write_file(t, "a", k, rows[k].bytes, rows[k].expected, &b.f->err), b.f->err);
        check_file(t, "a", k, rows[k].bytes);
        assert_true(ru_tiers_next(t, &at, &e));
        assert_string_equal(e.name, "a");
        assert_int_equal(e.expected_bytes, rows[k].expected);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(e.in_bytes[i], rows[k].in[i]);
        }
        assert_ok(ru_tier_remove(t, "a", &b.f->err), b.f->err);
        ru_tiers_close(t);
    }
    assert_int_equal(part_bytes(&b), 0);
}

/* Two users of one folder. */
static void test_together(void **state)
{
    box b = make_box(*state);
    ru_err err = {0};
    ru_tiers *t = open_box(&b), *u = open_box(&b);
    ru_tier_file *f, *g;
    assert_ok(write_file(t, "a", 1, 9000, 0, &err), err);
    check_file(u, "a", 1, 9000);
    assert_int_equal(write_file(u, "a", 2, 9000, 0, &err), RU_E_CREATE);
    assert_ok(ru_tier_create(t, "b", NULL, &f, &err), err);
    assert_int_equal(ru_tier_create(u, "b", NULL, &g, &err), RU_E_CREATE);
    assert_ok(ru_tier_write(f, "0123", 4, &err), err);
    assert_int_equal(ru_tier_open(u, "b", &g, &err), RU_E_MISSING); /* not before its commit */
    ru_tiers *v = open_box(&b);                                     /* takes nothing from it */
    assert_ok(ru_tier_commit(f, &err), err);
    ru_tier_close(f);
    assert_ok(ru_tier_open(v, "b", &g, &err), err);
    assert_ok(ru_tier_remove(u, "b", &err), err);
    uint8_t data[4];
    assert_ok(ru_tier_read(g, 0, data, 4, &err), err); /* still open */
    assert_memory_equal(data, "0123", 4);
    ru_tier_close(g);
    assert_int_equal(ru_tier_open(t, "b", &g, &err), RU_E_MISSING);
    ru_tiers_close(t);
    assert_ok(ru_tier_remove(v, "a", &err),
              err); /* its log is t's, which goes with the next open */
    ru_tiers_close(v);
    t = open_box(&b);
    assert_int_equal(ru_tier_open(t, "a", &g, &err), RU_E_MISSING);
    assert_int_equal(ru_tier_open(u, "a", &g, &err), RU_E_MISSING);
    assert_ok(write_file(u, "a", 3, 100, 0, &err), err);
    check_file(t, "a", 3, 100);
    ru_tiers_close(u);
    ru_tiers_close(t);
}

/* Two maps have parts in one fast folder: neither removes those of the other. */
static void test_another_last(void **state)
{
    box b = make_box(*state), c = b;
    ru_err err = {0};
    c.tiers[2].path = ru_path_join(&b.f->arena, b.f->root, "other");
    for (uint32_t k = 0; k < 2; k++) {
        ru_tiers *t = open_box(&b), *u = open_box(&c);
        if (k == 0) {
            assert_ok(write_file(t, "a", 1, 5000, 5000, &err), err);
            assert_ok(write_file(u, "a", 2, 7000, 7000, &err), err);
        }
        check_file(t, "a", 1, 5000);
        check_file(u, "a", 2, 7000);
        assert_int_equal(part_bytes(&b), 12000);
        ru_tiers_close(t);
        ru_tiers_close(u);
    }
}

static void copy_folder(box *b, const char *from, const char *to)
{
    char **names, *text;
    uint32_t n;
    int64_t bytes;
    assert_ok(ru_dir_make(to, &b->f->err), b->f->err);
    assert_ok(ru_dir_list(from, &b->f->arena, &names, &n, &b->f->err), b->f->err);
    for (uint32_t k = 0; k < n; k++) {
        const char *one = ru_path_join(&b->f->arena, from, names[k]);
        const char *other = ru_path_join(&b->f->arena, to, names[k]);
        if (ru_path_is_dir(one)) {
            copy_folder(b, one, other);
            continue;
        }
        assert_ok(ru_file_read(one, 0, &b->f->arena, &text, &bytes, &b->f->err), b->f->err);
        assert_ok(ru_file_own(other, text, bytes, &b->f->err), b->f->err);
    }
}

/* A folder with a map is copied: both have what stood there, and neither removes what the other has
 * in the fast folder. */
static void test_copied(void **state)
{
    box b = make_box(*state), c = b;
    ru_err err = {0};
    c.tiers[2].path = ru_path_join(&b.f->arena, b.f->root, "copy");
    ru_tiers *t = open_box(&b), *u;
    assert_ok(write_file(t, "a", 1, 5000, 5000, &err), err);
    assert_ok(write_file(t, "b", 2, 50000, 5000, &err), err);
    ru_tiers_close(t);
    copy_folder(&b, b.tiers[2].path, c.tiers[2].path);
    for (uint32_t k = 0; k < 4; k++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", k);
        t = open_box(&b);
        u = open_box(&c);
        assert_ok(write_file(t, name, k, 3000, 3000, &err), err);
        assert_ok(write_file(u, name, 9 + k, 2000, 2000, &err), err);
        ru_tiers_close(u);
        ru_tiers_close(t);
    }
    t = open_box(&b);
    u = open_box(&c);
    check_file(u, "a", 1, 5000);
    check_file(u, "b", 2, 50000);
    assert_ok(ru_tier_remove(u, "a", &err), err);
    check_file(t, "a", 1, 5000);
    check_file(t, "n0", 0, 3000);
    check_file(t, "n3", 3, 3000);
    check_file(u, "n0", 9, 2000);
    check_file(u, "n3", 12, 2000);
    ru_tiers_close(t);
    ru_tiers_close(u);
}

/* What is durable waits for the disks, also when it goes; what is last is where the map is. */
static void test_durable(void **state)
{
    box b = make_box(*state);
    ru_err err = {0};
    ru_tier_file *f;
    ru_tier_entry e;
    uint32_t at = 0;
    int64_t calls[2];
    ru_tiers *t = open_box(&b);
    for (uint32_t k = 0; k < 2; k++) { /* the second one is durable */
        assert_ok(write_file(t, "a", k, 5000, 5000, &err), err);
        assert_ok(ru_tiers_look(t, &err), err);
        ru_test_os_fail(-1);
        assert_ok(ru_tier_remove(t, "a", &err), err);
        calls[k] = ru_test_os_count();
    }
    assert_true(calls[1] > calls[0]);
    const ru_tier_hint hint = {.last = true, .group = "none"};
    assert_ok(ru_tier_create(t, "b", &hint, &f, &err), err);
    assert_ok(ru_tier_write(f, "bytes", 5, &err), err);
    assert_ok(ru_tier_commit(f, &err), err);
    ru_tier_close(f);
    assert_ok(ru_tiers_look(t, &err), err);
    assert_true(ru_tiers_next(t, &at, &e));
    assert_true(e.in_bytes[2] == 5 && e.group[0] == '\0');
    ru_tiers_close(t);
}

/* An older version wrote the number of the map alone: its files are there, and go when they are
 * removed. */
static void test_older_map(void **state)
{
    box b = make_box(*state);
    ru_err err = {0};
    char *text;
    int64_t n;
    const char *id = ru_path_join(&b.f->arena, b.tiers[2].path, "files/test/id");
    ru_tiers *t = open_box(&b);
    assert_ok(write_file(t, "a", 1, 5000, 5000, &err), err);
    assert_ok(write_file(t, "b", 2, 50000, 5000, &err), err);
    ru_tiers_close(t);
    assert_ok(ru_file_read(id, 0, &b.f->arena, &text, &n, &err), err);
    assert_ok(ru_file_own(id, text, 16, &err), err);
    for (uint32_t k = 0; k < 4; k++) {
        b.opt.reads = k % 2 == 0; /* as it is, then with what it has become */
        t = open_box(&b);
        check_file(t, "a", 1, 5000);
        check_file(t, "b", 2, 50000);
        ru_tiers_close(t);
    }
    t = open_box(&b);
    assert_ok(ru_tier_remove(t, "a", &err), err);
    assert_int_equal(part_bytes(&b), 50000);
    ru_tiers_close(t);
}

/* One removes a file of another, who lives, and ends: what it said stays. */
static void test_removed_by_another(void **state)
{
    box b = make_box(*state);
    ru_err err = {0};
    ru_tiers *t = open_box(&b), *u = open_box(&b);
    assert_ok(write_file(t, "a", 1, 9000, 0, &err), err);
    assert_ok(ru_tier_remove(u, "a", &err), err);
    ru_tiers_close(u);
    ru_tiers *v = open_box(&b); /* the log of u goes, that of t stays */
    int64_t bytes;
    assert_int_equal(count(v, &bytes), 0);
    assert_ok(write_file(v, "a", 2, 100, 0, &err), err);
    check_file(t, "a", 2, 100);
    ru_tiers_close(v);
    ru_tiers_close(t);
}

static int64_t room_number(const box *b, uint32_t tier)
{
    return ru_lock_number(ru_arena_printf(&b->f->arena, "%s/samples/room", b->tiers[tier].path));
}

/* 100,000 files that stand in the map alone: nobody looks at folders for each new one, since what
 * is taken is a sum; it is right whatever comes and goes. */
static void test_many_files(void **state)
{
    enum { MANY = 100000 };
    box b = make_box(*state);
    ru_err err = {0};
    ru_tiers *t = open_box(&b), *u;
    int64_t calls[2], was = -1;
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint64_t k = 1; turn == 1 && k <= MANY; k++) {
            char name[32];
            (void)snprintf(name, sizeof name, "m%u", (unsigned)k);
            const rui_item i = {
                .name = name,
                .r = {.writer = t->id + 1, .serial = k, .bytes = 4096, .n_parts = 1},
                .parts[0] = {.tier = t->tiers[0].id, .number = k, .bytes = 4096}};
            assert_ok(rui_tiers_append(t, RUI_TIER_MADE, &i, &err), err);
        }
        assert_ok(ru_tiers_look(t, &err), err);
        for (uint32_t k = 0; k < 51; k++) {
            if (k == 1) { /* all is known now */
                ru_test_os_fail(-1);
            }
            assert_ok(write_file(t, "a", k, 20000 + k, k % 3 * 9000, &err), err);
            assert_int_equal(write_file(t, "b", k, MIDDLE / 2, 100000, &err), RU_OK);
            assert_int_equal(write_file(t, "b", k, 1, 0, &err), RU_E_CREATE);
            assert_ok(ru_tier_remove(t, "b", &err), err);
            assert_ok(ru_tier_remove(t, "a", &err), err);
            assert_true(was < 0 || room_number(&b, 0) == was);
            was = room_number(&b, 0);
        }
        calls[turn] = ru_test_os_count();
    }
    assert_true(calls[1] < calls[0] + 100);
    /* What comes by itself is seen by who opens next, also by those that were open. */
    const char *other = ru_path_join(&b.f->arena, b.tiers[0].path, "samples/x");
    const char *kept = ru_arena_zalloc(&b.f->arena, FAST, 1);
    assert_ok(ru_file_own(other, kept, FAST, &err), err);
    assert_int_equal(room_number(&b, 0), was);
    u = open_box(&b);
    assert_int_equal(room_number(&b, 0), -1);
    assert_ok(write_file(t, "a", 1, 5000, 5000, &err), err);
    ru_tier_entry e;
    uint32_t at = MANY;
    assert_ok(ru_tiers_look(t, &err), err);
    while (ru_tiers_next(t, &at, &e) && strcmp(e.name, "a") != 0) {
    }
    assert_int_equal(e.in_bytes[0], 0);
    ru_tiers_close(u);
    ru_tiers_close(t);
}

/* The quota of the fast folder is lowered, then the folder goes: files stay, those that were in it
 * are missed by name, and new ones go to the next folder. */
static void test_lowered(void **state)
{
    box b = make_box(*state);
    ru_err err = {0};
    ru_tier_file *f;
    ru_tiers *t = open_box(&b);
    assert_ok(write_file(t, "a", 1, 50000, 50000, &err), err);
    b.tiers[0].quota_bytes = 20000;
    ru_tiers *u = open_box(&b);
    check_file(u, "a", 1, 50000);
    assert_ok(write_file(u, "b", 2, 9000, 0, &err), err);
    assert_int_equal(part_bytes(&b), 59000);
    assert_ok(ru_path_remove(b.tiers[0].path, &err), err);
    assert_int_equal(ru_tier_open(t, "a", &f, &err), RU_E_MISSING);
    check_file(u, "b", 2, 9000);
    assert_ok(write_file(t, "c", 3, 14000, 0, &err), err);
    check_file(u, "c", 3, 14000);
    assert_ok(ru_tier_remove(t, "a", &err), err);
    ru_tiers_close(u);
    ru_tiers_close(t);
    t = open_box(&b); /* it is made again */
    int64_t bytes;
    assert_int_equal(count(t, &bytes), 2);
    assert_int_equal(part_bytes(&b), 23000);
    ru_tiers_close(t);
}

/* Samples that are kept (data/cache.h) take of the same quota. */
static void test_beside_samples(void **state)
{
    box b = make_box(*state);
    ru_err err = {0};
    ru_tier_entry e;
    const char *samples = ru_path_join(&b.f->arena, b.tiers[0].path, "samples/x");
    const char *kept = ru_arena_zalloc(&b.f->arena, FAST - 10000, 1);
    assert_ok(ru_dir_make(samples, &err), err);
    assert_ok(ru_file_own(ru_path_join(&b.f->arena, samples, "s"), kept, FAST - 10000, &err), err);
    for (uint32_t k = 0; k < 2; k++) { /* nobody knows, or it cannot fit */
        uint32_t at = 0;
        ru_tiers *t = open_box(&b);
        assert_ok(write_file(t, "a", k, 50000, k * 50000, &err), err);
        assert_ok(ru_tiers_look(t, &err), err);
        assert_true(ru_tiers_next(t, &at, &e));
        assert_in_range(e.in_bytes[0], k == 0 ? 1 : 0, k == 0 ? 10000 : 0);
        assert_int_equal(e.in_bytes[0] + e.in_bytes[1], 50000);
        assert_ok(ru_tier_remove(t, "a", &err), err);
        ru_tiers_close(t);
    }
}

/* Processes open and close the space all the time: logs go while others read them. */
static void test_many_processes(void **state)
{
    enum { N = 4, TIMES = 30 };
    box b = make_box(*state);
    b.opt.tiers = b.tiers;
    pid_t pid[N];
    for (uint32_t k = 0; k < N; k++) {
        pid[k] = fork();
        assert_true(pid[k] >= 0);
        bool fine = true;
        for (uint32_t i = 0; pid[k] == 0 && fine && i < TIMES; i++) {
            const char name[] = {(char)('a' + k), '\0'};
            ru_tiers *t = NULL;
            ru_err err = {0};
            fine = ru_tiers_open(&b.opt, &t, &err) == RU_OK &&
                   (i == 0 || ru_tier_remove(t, name, &err) == RU_OK) &&
                   write_file(t, name, k, 300 + i, 0, &err) == RU_OK;
            for (uint32_t j = 0; fine && j < 20; j++) { /* each looks at all logs */
                ru_tier_file *f = NULL;
                fine = ru_tier_open(t, name, &f, &err) == RU_OK;
                ru_tier_close(f);
            }
            ru_tiers_close(t);
        }
        if (pid[k] == 0) {
            _exit(fine ? 0 : 1);
        }
    }
    for (uint32_t k = 0; k < N; k++) {
        int how;
        assert_int_equal(waitpid(pid[k], &how, 0), pid[k]);
        assert_int_equal(how, 0);
    }
    ru_tiers *t = open_box(&b);
    int64_t bytes;
    assert_int_equal(count(t, &bytes), N);
    assert_int_equal(bytes, N * (300 + TIMES - 1));
    assert_int_equal(part_bytes(&b), bytes);
    ru_tiers_close(t);
}

/* A process that ends at its k-th call: what it had committed is whole, and nothing else is left.
 */
static void test_killed(void **state)
{
    box b = make_box(*state);
    b.tiers[0].quota_bytes = 20000;
    bool whole = false;
    for (int64_t at = 0; !whole; at++) {
        ru_err err = {0};
        ru_tier_file *f;
        pid_t pid = fork();
        assert_true(pid >= 0 && at < 2000);
        if (pid == 0) {
            ru_tiers *t;
            ru_test_os_die(at);
            b.opt.tiers = b.tiers;
            bool fine = ru_tiers_open(&b.opt, &t, &err) == RU_OK &&
                        write_file(t, "a", 1, 30000, 0, &err) == RU_OK &&
                        write_file(t, "b", 2, 500, 0, &err) == RU_OK &&
                        ru_tier_remove(t, "b", &err) == RU_OK &&
                        ru_tier_create(t, "c", NULL, &f, &err) == RU_OK &&
                        ru_tier_write(f, "0123", 4, &err) == RU_OK;
            _exit(fine ? 7 : 9);
        }
        int how;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) != 9);
        whole = WEXITSTATUS(how) == 7;
        ru_tiers *t = open_box(&b);
        int64_t bytes;
        uint32_t n = count(t, &bytes);
        assert_int_equal(part_bytes(&b), bytes);
        assert_true(n <= 2 && (!whole || n == 1));
        if (ru_tier_open(t, "a", &f, &err) == RU_OK) {
            ru_tier_close(f);
            check_file(t, "a", 1, 30000);
            assert_ok(ru_tier_remove(t, "a", &err), err);
        }
        if (ru_tier_open(t, "b", &f, &err) == RU_OK) {
            ru_tier_close(f);
            check_file(t, "b", 2, 500);
            assert_ok(ru_tier_remove(t, "b", &err), err);
        }
        ru_tiers_close(t);
    }
}

/* The k-th call fails: a file that was committed is whole, and a full or broken fast disk is no
 * error. */
static void test_failing_calls(void **state)
{
    box b = make_box(*state);
    b.tiers[0].quota_bytes = 20000;
    bool failed = true;
    for (int64_t at = 0; failed; at++) {
        ru_err err = {0};
        ru_tiers *t = NULL;
        ru_tier_file *f;
        assert_true(at < 2000);
        b.opt.tiers = b.tiers;
        ru_test_os_fail(at);
        ru_status st = ru_tiers_open(&b.opt, &t, &err);
        st = st == RU_OK ? write_file(t, "a", 1, 30000, 0, &err) : st;
        failed = ru_test_os_count() > at;
        ru_test_os_fail(-1);
        assert_true(failed || st == RU_OK);
        if (t != NULL) {
            if (st == RU_OK) {
                check_file(t, "a", 1, 30000);
            } else {
                assert_int_equal(ru_tier_open(t, "a", &f, &err), RU_E_MISSING);
            }
            ru_tiers_close(t);
        }
        t = open_box(&b);
        int64_t bytes;
        uint32_t n = count(t, &bytes);
        assert_int_equal(n, st == RU_OK ? 1 : 0);
        assert_true(part_bytes(&b) >= bytes); /* what was claimed may not have been given back */
        assert_true(failed || part_bytes(&b) == bytes);
        if (n == 1) {
            check_file(t, "a", 1, 30000);
            ru_test_os_fail(at);
            st = ru_tier_remove(t, "a", &err);
            ru_test_os_fail(-1);
            st = st == RU_OK ? st : ru_tier_remove(t, "a", &err);
            assert_true(st == RU_OK || st == RU_E_MISSING); /* gone, but perhaps not synced */
        }
        ru_tiers_close(t);
    }
}

/* Memory ends at the k-th allocation: an error or a whole file. */
static void test_no_memory(void **state)
{
    box b = make_box(*state);
    bool failed = true;
    b.opt.tiers = b.tiers;
    for (int64_t at = 0; failed; at++) {
        ru_err err = {0};
        ru_tiers *t = NULL;
        ru_tier_file *f = NULL;
        assert_true(at < 2000);
        ru_test_alloc_fail(at);
        ru_status st = ru_tiers_open(&b.opt, &t, &err);
        st = st == RU_OK ? write_file(t, "a", 1, 9000, 100, &err) : st;
        st = st == RU_OK ? ru_tier_open(t, "a", &f, &err) : st;
        failed = ru_test_alloc_count() > at;
        ru_test_alloc_fail(-1);
        assert_true(failed || st == RU_OK);
        ru_tier_close(f);
        ru_tiers_close(t);
        t = open_box(&b);
        int64_t bytes;
        if (count(t, &bytes) == 1) {
            check_file(t, "a", 1, 9000);
            assert_ok(ru_tier_remove(t, "a", &err), err);
        }
        assert_int_equal(part_bytes(&b), 0);
        ru_tiers_close(t);
    }
}

/* One byte of the map is another one: its record does not count, all others do. */
static void test_damaged_map(void **state)
{
    box b = make_box(*state);
    ru_tiers *t = open_box(&b);
    char **names, *data;
    uint32_t n;
    int64_t size;
    for (uint32_t k = 0; k < 4; k++) {
        const char name[] = {(char)('a' + k), '\0'};
        assert_ok(write_file(t, name, k, 100 + k, 0, &b.f->err), b.f->err);
    }
    ru_tiers_close(t);
    const char *dir = ru_arena_printf(&b.f->arena, "%s/files/test", b.tiers[2].path);
    assert_ok(ru_dir_list(dir, &b.f->arena, &names, &n, &b.f->err), b.f->err);
    assert_true(ru_str_ends(ru_str_c(names[0]), ".map"));
    const char *path = ru_path_join(&b.f->arena, dir, names[0]);
    assert_ok(ru_file_read(path, 0, &b.f->arena, &data, &size, &b.f->err), b.f->err);
    for (int64_t at = 0; at < size; at += 37) {
        char was = data[at];
        data[at] = (char)(was ^ 16);
        const char *folder = ru_arena_printf(&b.f->arena, "%s/%lld", b.f->root, (long long)at);
        const char *to = ru_arena_printf(&b.f->arena, "%s/files/test", folder);
        assert_ok(ru_dir_make(to, &b.f->err), b.f->err);
        assert_ok(ru_file_own(ru_path_join(&b.f->arena, to, names[0]), data, size, &b.f->err),
                  b.f->err);
        data[at] = was;
        const ru_disk_tier tier = {folder, SLOW};
        const ru_tiers_options o = {.tiers = &tier, .n_tiers = 1, .space = "test"};
        int64_t bytes = 0;
        ru_tier_entry e;
        uint32_t files = 0;
        assert_ok(ru_tiers_open(&o, &t, &b.f->err), b.f->err);
        for (uint32_t k = 0; ru_tiers_next(t, &k, &e); files++) {
            bytes += e.bytes;
        }
        assert_true(files == 3 || (files == 4 && bytes == 406)); /* or a record of a beginning */
        ru_tiers_close(t);
    }
}

static void test_mistakes(void **state)
{
    box b = make_box(*state);
    ru_err err = {0};
    ru_tiers *t;
    ru_tier_file *f;
    char name[400];
    b.opt.tiers = b.tiers;
    static const char *const spaces[] = {NULL, "", "a/b", "..", "a b"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(spaces); k++) {
        ru_tiers_options o = b.opt;
        o.space = spaces[k];
        assert_int_equal(ru_tiers_open(&o, &t, &err), RU_E_ARG);
    }
    ru_tiers_options o = b.opt;
    o.n_tiers = 0;
    assert_int_equal(ru_tiers_open(&o, &t, &err), RU_E_ARG);
    t = open_box(&b);
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(ru_tier_create(t, "", NULL, &f, &err), RU_E_ARG);
    assert_int_equal(ru_tier_create(t, name, NULL, &f, &err), RU_E_ARG);
    ru_tiers_close(t);
    /* The fast folder is a file, the middle one is open to others: both are left out. */
    b.tiers[0].path = ru_path_join(&b.f->arena, b.f->root, "none");
    assert_ok(ru_file_own(b.tiers[0].path, "x", 1, &err), err);
    const char *open = ru_arena_printf(&b.f->arena, "%s/files", b.tiers[1].path);
    assert_int_equal(chmod(open, 0777), 0);
    t = open_box(&b);
    assert_ok(write_file(t, "a", 1, 5000, 10, &err), err);
    check_file(t, "a", 1, 5000);
    ru_tier_entry e;
    uint32_t at = 0;
    assert_true(ru_tiers_next(t, &at, &e));
    assert_int_equal(e.in_bytes[2], 5000);
    ru_tiers_close(t);
    /* The last one must work, and has an end. */
    b.tiers[2].path = b.tiers[1].path;
    assert_int_equal(ru_tiers_open(&b.opt, &t, &err), RU_E_CONFIG);
    const char *help = ru_arena_printf(&b.f->arena, "chmod go-w %s", open);
    assert_string_equal(strstr(err.text, "chmod"), help);
    assert_int_equal(chmod(open, 0700), 0);
    b.tiers[1].quota_bytes = b.tiers[2].quota_bytes = 3000;
    t = open_box(&b);
    assert_int_equal(write_file(t, "b", 1, 7000, 0, &err), RU_E_CREATE);
    assert_non_null(strstr(err.text, "no room for"));
    assert_ok(write_file(t, "c", 2, 500, 0, &err), err); /* what had no room is gone */
    ru_tiers_close(t);
    /* The same folders by other paths. */
    b = make_box(*state);
    b.tiers[0].path = ru_path_join(&b.f->arena, b.f->root, "first");
    t = open_box(&b);
    assert_ok(write_file(t, "e", 1, 5000, 1000, &err), err);
    ru_tiers_close(t);
    for (uint32_t k = 0; k < 3; k++) {
        b.tiers[k].path = ru_arena_printf(&b.f->arena, "%s/.", b.tiers[k].path);
    }
    t = open_box(&b);
    check_file(t, "e", 1, 5000);
    ru_tiers_close(t);
    /* A folder that is no tier any more. */
    b = make_box(*state);
    b.tiers[0].path = ru_path_join(&b.f->arena, b.f->root, "first");
    b.tiers[1].path = ru_path_join(&b.f->arena, b.f->root, "second");
    t = open_box(&b);
    assert_ok(write_file(t, "d", 1, 5000, 0, &err), err);
    ru_tiers_close(t);
    b.tiers[0].path = b.tiers[1].path;
    t = open_box(&b);
    assert_int_equal(ru_tier_open(t, "d", &f, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "in none of the folders"));
    ru_tiers_close(t);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(store_tiers, T(test_random), T(test_hint), T(test_together), T(test_another_last),
         T(test_copied), T(test_older_map), T(test_durable), T(test_many_processes),
         T(test_removed_by_another), T(test_many_files), T(test_lowered), T(test_beside_samples),
         T(test_killed), T(test_failing_calls), T(test_no_memory), T(test_damaged_map),
         T(test_mistakes))
