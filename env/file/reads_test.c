/* Reads of random pieces give the file's bytes, by io_uring and by threads. */
#include "env/file/reads.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

enum { FILE_BYTES = 200000, PIECES = 300 };

/* Threads of the process that read. */
static uint32_t readers(ru_arena *arena)
{
    char **names = NULL, path[64], name[16];
    uint32_t n = 0, found = 0;
    ru_err err = {0};
    assert_ok(ru_dir_list("/proc/self/task", arena, &names, &n, &err), err);
    for (uint32_t k = 0; k < n; k++) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", names[k]);
        FILE *f = fopen(path, "r");
        found += f != NULL && fgets(name, sizeof name, f) != NULL && strcmp(name, "read\n") == 0;
        if (f != NULL) {
            fclose(f);
        }
    }
    return found;
}

static void check(ru_reads_kind kind, uint32_t depth, const char *path, const uint8_t *data,
                  ru_rng *rng)
{
    ru_err err = {0};
    ru_reads *r;
    assert_ok(ru_reads_open(64, kind, &r, &err), err);
    assert_true(kind != RU_READS_BY_THREADS || strcmp(ru_reads_name(r), "threads") == 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC), none = open("/", O_RDONLY | O_CLOEXEC);
    static ru_read_piece p[PIECES];
    static uint8_t buffer[PIECES][4096];
    int64_t got = 0;
    for (uint32_t round = 0; round < 3; round++) {
        /* of the last round only a part of the buffer; pieces beside it are read all the same */
        ru_reads_memory(r, round == 1 ? NULL : buffer,
                        round == 2 ? (PIECES / 2 * 4096) + 100 : (int64_t)sizeof buffer);
        uint32_t n = round == 0 ? PIECES : ru_rng_below(rng, PIECES);
        for (uint32_t k = 0; k < n; k++) {
            memset(buffer[k], 0xa5, sizeof buffer[k]);
            p[k] = (ru_read_piece){.fd = k % 50 == 7  ? none
                                         : k % 5 == 3 ? -1
                                                      : fd,
                                   .path = k % 50 == 13  ? "/nowhere/at/all"
                                           : k % 50 == 7 ? NULL
                                           : k % 5 == 3  ? path
                                                         : NULL,
                                   .offset = ru_rng_below(rng, FILE_BYTES + 2000),
                                   .size_bytes = ru_rng_below(rng, sizeof buffer[k] + 1),
                                   .into = buffer[k],
                                   .got_bytes = -2};
        }
        ru_reads_begin(r, p, n, depth);
        ru_reads_depth_set(r, 1 + ru_rng_below(rng, 100));
        ru_reads_poll(r);
        ru_reads_end(r);
        for (uint32_t k = 0; k < n; k++) {
            got += p[k].got_bytes > 0 ? p[k].got_bytes : 0;
            int64_t left = FILE_BYTES - p[k].offset;
            int64_t want = left < 0 ? 0 : left < p[k].size_bytes ? left : p[k].size_bytes;
            assert_true(p[k].ended_ns >= p[k].issued_ns && p[k].issued_ns > 0);
            if (p[k].path != NULL && p[k].path != path) {
                assert_int_equal(p[k].got_bytes, -1);
                continue;
            }
            if (p[k].fd == none) { /* a folder has no bytes; asking for none is no error */
                assert_int_equal(p[k].got_bytes, p[k].size_bytes > 0 ? -1 : 0);
                continue;
            }
            assert_int_equal(p[k].got_bytes, want);
            assert_memory_equal(buffer[k], data + (want > 0 ? p[k].offset : 0), (size_t)want);
            for (int64_t i = want; i < (int64_t)sizeof buffer[k]; i++) {
                assert_int_equal(buffer[k][i], 0xa5); /* nothing beside its place */
            }
        }
    }
    assert_int_equal(ru_reads_bytes(r), got);
    close(fd);
    close(none);
    ru_reads_close(r);
}

static void test_pieces(void **state)
{
    ru_scratch *f = *state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 77);
    uint8_t *data = ru_arena_alloc(&f->arena, FILE_BYTES, 1);
    for (uint32_t i = 0; i < FILE_BYTES; i++) {
        data[i] = (uint8_t)ru_rng_below(&rng, 256);
    }
    const char *path = ru_path_join(&f->arena, f->root, "data");
    assert_ok(ru_file_replace(path, data, FILE_BYTES, &f->err), f->err);
    static const uint32_t depths[] = {1, 7, 64, 1000};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(depths); k++) {
        check(RU_READS_BEST, depths[k], path, data, &rng);
        check(RU_READS_PLAIN, depths[k], path, data, &rng);
        check(RU_READS_BY_THREADS, depths[k], path, data, &rng);
    }
}

/* A number of the kernel about this process, -1: it does not tell. */
static int64_t figure(const char *path, const char *name)
{
    char line[256];
    int64_t n = -1;
    FILE *f = fopen(path, "r");
    while (f != NULL && n < 0 && fgets(line, sizeof line, f) != NULL) {
        n = strncmp(line, name, strlen(name)) == 0 ? strtoll(line + strlen(name), NULL, 10) : n;
    }
    if (f != NULL) {
        fclose(f);
    }
    return n;
}

/* KiB that the process has fixed, once it has come down to `kib`: the kernel gives back the memory
 * of a ring that is closed a little later. */
static int64_t pinned_kib(int64_t kib)
{
    int64_t now = figure("/proc/self/status", "VmPin:");
    for (uint32_t k = 0; k < 1000 && now > kib; k++) {
        ru_clock_pause(1000000);
        now = figure("/proc/self/status", "VmPin:");
    }
    return now;
}

/* What the ring refuses is read by pread, with the same bytes: the kernel must not see any. */
static void test_ring_reads_by_itself(void **state)
{
    enum { EACH = 64, BYTES = 4096 };
    ru_scratch *f = *state;
    const char *path = ru_path_join(&f->arena, f->root, "data");
    static uint8_t into[EACH * BYTES], data[EACH * BYTES];
    static ru_read_piece p[EACH];
    assert_ok(ru_file_replace(path, data, sizeof data, &f->err), f->err);
    for (uint32_t kind = RU_READS_BEST; kind <= RU_READS_PLAIN; kind++) {
        ru_reads *r;
        (void)pinned_kib(0);
        assert_ok(ru_reads_open(16, (ru_reads_kind)kind, &r, &f->err), f->err);
        bool ring = strcmp(ru_reads_name(r), "io_uring") == 0;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        int64_t pinned = figure("/proc/self/status", "VmPin:");
        for (uint32_t round = 0; round < 2; round++) {
            int64_t bytes = round == 0 ? sizeof into : sizeof into / 2;
            ru_reads_memory(r, into, bytes);
            if (ring && kind == RU_READS_BEST && ru_reads_plain_why(r) == NULL) {
                /* whole large pages count */
                assert_true(figure("/proc/self/status", "VmPin:") - pinned >= bytes >> 10);
            }
            for (uint32_t k = 0; k < EACH; k++) {
                p[k] = (ru_read_piece){.fd = fd,
                                       .offset = (int64_t)k * BYTES,
                                       .size_bytes = BYTES,
                                       .into = into + (size_t)k * BYTES};
            }
            int64_t before = figure("/proc/self/io", "syscr:");
            ru_reads_begin(r, p, EACH, 16);
            ru_reads_end(r);
            int64_t calls = figure("/proc/self/io", "syscr:") - before;
            assert_true(!ring || calls < EACH / 4);
        }
        ru_reads_memory(r, NULL, 0);
        assert_int_equal(pinned_kib(pinned), pinned);
        close(fd);
        ru_reads_close(r);
    }
}

/* Two descriptors that have the same place in the ring's table of files: each gives its own file.
 */
static void test_descriptors_that_share_a_place(void **state)
{
    enum { APART = 256, BYTES = 4096, EACH = 8 };
    ru_scratch *f = *state;
    static uint8_t data[2][BYTES], into[2 * EACH][BYTES];
    ru_read_piece p[2 * EACH];
    int fd[2];
    for (uint32_t k = 0; k < 2; k++) {
        memset(data[k], k == 0 ? 'a' : 'b', BYTES);
        const char *path = ru_path_join(&f->arena, f->root, k == 0 ? "a" : "b");
        assert_ok(ru_file_replace(path, data[k], BYTES, &f->err), f->err);
        fd[k] = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd[k] >= 0);
    }
    assert_int_equal(dup2(fd[1], fd[0] + APART), fd[0] + APART);
    close(fd[1]);
    fd[1] = fd[0] + APART;
    for (uint32_t kind = RU_READS_BEST; kind <= RU_READS_BY_THREADS; kind++) {
        ru_reads *r;
        assert_ok(ru_reads_open(EACH, (ru_reads_kind)kind, &r, &f->err), f->err);
        for (uint32_t k = 0; k < 2 * EACH; k++) {
            p[k] = (ru_read_piece){.fd = fd[k % 2], .size_bytes = BYTES, .into = into[k]};
        }
        ru_reads_begin(r, p, 2 * EACH, EACH);
        ru_reads_end(r);
        for (uint32_t k = 0; k < 2 * EACH; k++) {
            assert_int_equal(p[k].got_bytes, BYTES);
            assert_memory_equal(into[k], data[k % 2], BYTES);
        }
        ru_reads_close(r);
    }
    close(fd[0]);
    close(fd[1]);
}

/* What the kernel does not fix is read all the same, and the engine says why it is slower. */
static bool says_why(const char *path, const char *want)
{
    ru_reads *r;
    ru_err err;
    uint8_t into[4] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (ru_reads_open(16, RU_READS_BEST, &r, &err) != RU_OK) {
        return false;
    }
    bool ring = strcmp(ru_reads_name(r), "io_uring") == 0;
    ru_read_piece p = {.fd = fd, .size_bytes = 4, .into = into};
    ru_reads_begin(r, &p, 1, 1);
    ru_reads_end(r);
    const char *why = ru_reads_plain_why(r);
    bool ok = memcmp(into, "text", 4) == 0;
    ok = ok && (ring && want != NULL ? why != NULL && strstr(why, want) != NULL : why == NULL);
    ru_reads_memory(r, into, ((int64_t)1 << 30) + 1); /* nothing is read there */
    why = ru_reads_plain_why(r);
    ok = ok && (ring ? why != NULL && strstr(why, "more than the 1024 MiB") != NULL : why == NULL);
    ru_reads_memory(r, NULL, 0);
    ok = ok && ru_reads_plain_why(r) == NULL;
    close(fd);
    ru_reads_close(r);
    return ok;
}

/* 16 files of paths fit into the table, 256 more do not. */
static bool says_too_few(void *path)
{
    return says_why(path, "272 files needs more than the 200 that");
}

static void test_says_what_is_not_fixed(void **state)
{
    ru_scratch *f = *state;
    char *path = ru_path_join(&f->arena, f->root, "data");
    assert_ok(ru_file_replace(path, "text", 4, &f->err), f->err);
    assert_true(says_why(path, NULL));
    assert_true(ru_test_files_max(200, says_too_few, path));
}

/* Many engines share the threads, take turns, and leave none behind. */
static void test_threads(void **state)
{
    enum { ENGINES = 12, EACH = 40, BYTES = 512 };
    ru_scratch *f = *state;
    const char *path = ru_path_join(&f->arena, f->root, "data");
    uint8_t *data = ru_arena_alloc(&f->arena, EACH * BYTES, 1);
    for (uint32_t i = 0; i < EACH * BYTES; i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
    assert_ok(ru_file_replace(path, data, EACH * BYTES, &f->err), f->err);
    static ru_read_piece p[ENGINES][EACH];
    static uint8_t into[ENGINES][EACH * BYTES];
    ru_reads *r[ENGINES];
    uint32_t before = readers(&f->arena);
    for (uint32_t e = 0; e < ENGINES; e++) {
        assert_ok(ru_reads_open(16, RU_READS_BY_THREADS, &r[e], &f->err), f->err);
    }
    for (uint32_t round = 0; round < 3; round++) {
        memset(into, 0, sizeof into);
        for (uint32_t e = 0; e < ENGINES; e++) {
            for (uint32_t k = 0; k < EACH; k++) {
                p[e][k] = (ru_read_piece){.path = path,
                                          .fd = -1,
                                          .offset = k * BYTES,
                                          .size_bytes = BYTES,
                                          .into = into[e] + k * BYTES};
            }
            ru_reads_begin(r[e], p[e], EACH, 16);
        }
        for (uint32_t e = 0; e < ENGINES; e++) {
            ru_reads_end(r[(e + round) % ENGINES]);
        }
        /* now, as a thread gives itself its name when it first runs */
        assert_in_range(readers(&f->arena), before + 1, before + RU_READS_THREADS);
        for (uint32_t e = 0; e < ENGINES; e++) {
            assert_memory_equal(into[e], data, EACH * BYTES);
        }
    }
    for (uint32_t e = 0; e < ENGINES; e++) {
        ru_reads_close(r[(e + 5) % ENGINES]);
    }
    uint32_t left = readers(&f->arena);
    for (uint32_t k = 0; k < 10000 && left > before; k++) { /* the kernel still lists what ended */
        sched_yield();
        left = readers(&f->arena);
    }
    assert_int_equal(left, before);
}

RU_TESTS(env_reads, cmocka_unit_test_setup_teardown(test_pieces, ru_scratch_open, ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_ring_reads_by_itself, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_descriptors_that_share_a_place, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_says_what_is_not_fixed, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_threads, ru_scratch_open, ru_scratch_close))
