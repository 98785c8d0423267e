/* The log of a running checkpoint: what was reported as stored is read again, whatever call fails,
 * wherever the file is cut, and however often it is written anew. */
#include "store/shardlog.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/file/file.h"
#include "test/test.h"

enum { BLOCKS = 6, BYTES = 37, SOME = 100000, BYTES_MAX = 300000 };

static char folder[64];
static char path[128];

static void begin(void)
{
    /* In memory, if there is such a folder: thousands of syncs take a disk a minute. */
    const char *in = ru_path_is_dir("/dev/shm") ? "/dev/shm" : "/tmp";
    (void)snprintf(folder, sizeof folder, "%s/rubato-shardlog-XXXXXX", in);
    assert_non_null(mkdtemp(folder));
    ru_arena a;
    ru_arena_init(&a, 0);
    (void)snprintf(path, sizeof path, "%s", ru_shardlog_path(&a, folder, 3, 0xabc));
    ru_arena_fini(&a);
}

static void end(void)
{
    assert_int_equal(ru_path_remove(folder, NULL), RU_OK);
}

/* A payload that says which block and clock it is of. Valid until the next. */
static uint8_t *record(uint32_t block, uint32_t clock, bool first, int64_t bytes, int64_t *n)
{
    static uint8_t payload[BYTES_MAX], out[BYTES_MAX + 64];
    assert_true(bytes <= BYTES_MAX);
    memset(payload, (int)(block * 16 + clock % 16), (size_t)bytes);
    *n = ru_shardlog_bytes(bytes);
    ru_shardlog_put(&(ru_shardlog_record){.generation = 3,
                                          .object = 7,
                                          .block = block,
                                          .clock = clock,
                                          .first = first,
                                          .n = bytes,
                                          .bytes = payload},
                    out);
    return out;
}

static ru_status append(ru_shardlog *l, uint32_t block, uint32_t clock, int64_t bytes, ru_err *err)
{
    int64_t n;
    const uint8_t *r = record(block, clock, clock == 0, bytes, &n);
    return ru_shardlog_append(l, r, n, err);
}

/* Newest clock and first values of each block, as all logs of the folder have them; -1: none. */
static void newest(int64_t clock[BLOCKS], bool first[BLOCKS])
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text t = ru_text_arena(&a);
    ru_shardlog_record r;
    ru_err err;
    assert_ok(ru_shardlog_gather(folder, 3, 3, 7, &t, &err), err);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        clock[b] = -1;
        first[b] = false;
    }
    int64_t at = 0;
    while (ru_shardlog_next((const uint8_t *)t.p, t.n, &at, &r)) {
        assert_true(r.object == 7 && r.block < BLOCKS && r.generation == 3);
        for (int64_t i = 0; i < r.n; i++) {
            assert_int_equal(((const uint8_t *)r.bytes)[i], r.block * 16 + r.clock % 16);
        }
        clock[r.block] = r.clock > clock[r.block] ? r.clock : clock[r.block];
        first[r.block] = first[r.block] || r.first;
    }
    assert_int_equal(at, t.n);
    ru_arena_fini(&a);
}

static void test_newest_and_first_survive_compaction(void **state)
{
    (void)state;
    begin();
    ru_shardlog *l;
    ru_err err;
    int64_t clock[BLOCKS], is[BLOCKS] = {0}, most = 0;
    bool first[BLOCKS];
    ru_rng rng = ru_rng_from(1, 2);
    assert_ok(ru_shardlog_open(path, &l, &err), err);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        assert_ok(append(l, b, 0, 50000, &err), err);
    }
    for (uint32_t k = 1; k < 200; k++) { /* block 0 is never saved again */
        uint32_t b = 1 + ru_rng_below(&rng, BLOCKS - 1);
        assert_ok(append(l, b, k, 50000, &err), err);
        is[b] = k;
        int64_t size = ru_path_bytes(path);
        most = size > most ? size : most;
    }
    newest(clock, first);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(clock[b], is[b]);
        assert_true(first[b]);
    }
    assert_true(most < 3000000); /* 10 MB were written */
    ru_shardlog_close(l);
    end();
}

static void test_cut_anywhere(void **state)
{
    (void)state;
    begin();
    ru_shardlog *l;
    ru_err err;
    int64_t clock[BLOCKS], end_of[BLOCKS];
    bool first[BLOCKS];
    assert_ok(ru_shardlog_open(path, &l, &err), err);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        assert_ok(append(l, b, b + 1, BYTES, &err), err);
        end_of[b] = ru_path_bytes(path);
    }
    ru_shardlog_close(l);
    for (int64_t n = end_of[BLOCKS - 1]; n >= 0; n--) {
        assert_int_equal(truncate(path, n), 0);
        newest(clock, first);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            assert_int_equal(clock[b], end_of[b] <= n ? (int64_t)b + 1 : -1);
        }
    }
    end();
}

static void test_any_flipped_bit_is_found(void **state)
{
    (void)state;
    int64_t n;
    uint8_t *bytes = record(1, 5, false, BYTES, &n);
    ru_shardlog_record r;
    for (int64_t bit = 0; bit < 8 * n; bit++) {
        int64_t at = 0;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bool read = ru_shardlog_next(bytes, n, &at, &r);
        assert_true(!read || bit / 8 >= n - 3); /* zeros that fill it up */
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    int64_t at = 0;
    assert_true(ru_shardlog_next(bytes, n, &at, &r) && at == n && r.n == BYTES);
}

/* A byte of any record is damaged, before the log is opened or while it is open: the others are
 * read, and the log goes on, through compactions too. */
static void test_damage_costs_one_record(void **state)
{
    (void)state;
    for (uint32_t open = 0; open < 2; open++) {
        for (uint32_t bad = 0; bad < BLOCKS; bad++) {
            begin();
            ru_shardlog *l;
            ru_err err;
            int64_t clock[BLOCKS];
            bool first[BLOCKS];
            assert_ok(ru_shardlog_open(path, &l, &err), err);
            for (uint32_t b = 0; b < BLOCKS; b++) {
                assert_ok(append(l, b, b + 1, SOME, &err), err);
            }
            if (open == 0) {
                ru_shardlog_close(l);
            }
            FILE *f = fopen(path, "r+b");
            assert_non_null(f);
            assert_int_equal(
                fseek(f, (long)(bad * ru_shardlog_bytes(SOME)) + 5 + 1000 * (long)open, SEEK_SET),
                0);
            assert_int_equal(fputc(0xA5, f), 0xA5);
            assert_int_equal(fclose(f), 0);
            if (open == 0) {
                assert_ok(ru_shardlog_open(path, &l, &err), err);
            }
            for (uint32_t c = 0; c < 20; c++) { /* of another block: enough to write it anew */
                assert_ok(append(l, (bad + 1) % BLOCKS, 20 + c, SOME, &err), err);
            }
            newest(clock, first);
            for (uint32_t b = 0; b < BLOCKS; b++) {
                int64_t is = b == bad ? -1 : b == (bad + 1) % BLOCKS ? 39 : (int64_t)b + 1;
                assert_int_equal(clock[b], is);
            }
            ru_shardlog_close(l);
            end();
        }
    }
}

/* The process dies at its k-th call, for all k, in appends and compactions: what was reported as
 * stored is there, and another process goes on with the log. */
static void test_killed_anywhere(void **state)
{
    (void)state;
    int64_t *is =
        mmap(NULL, BLOCKS * sizeof *is, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(is != MAP_FAILED);
    bool died = true;
    for (int64_t k = 0; died; k++) {
        begin();
        assert_true(k < 2000);
        memset(is, 0xFF, BLOCKS * sizeof *is);
        ru_shardlog *l = NULL;
        ru_err err = {0};
        int64_t clock[BLOCKS];
        bool first[BLOCKS];
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            ru_test_os_die(k);
            ru_status st = ru_shardlog_open(path, &l, &err);
            for (uint32_t c = 0; st == RU_OK && c < 16; c++) {
                st = append(l, c % 2, c, BYTES_MAX, &err);
                is[c % 2] = c;
            }
            _exit(st == RU_OK ? 2 : 3);
        }
        int how = 0;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) != 3);
        died = WEXITSTATUS(how) != 2;
        assert_ok(ru_shardlog_open(path, &l, &err), err);
        for (uint32_t c = 0; c < 12; c++) {
            assert_ok(append(l, 5, c, BYTES_MAX, &err), err);
        }
        newest(clock, first);
        assert_true(clock[0] >= is[0] && clock[1] >= is[1] && clock[5] == 11);
        assert_true(is[0] < 0 || first[0]);
        ru_shardlog_close(l);
        end();
    }
    assert_int_equal(munmap(is, BLOCKS * sizeof *is), 0);
}

/* A log that was torn goes on: what is whole stays, what is new is read. */
static void test_appends_behind_a_torn_record(void **state)
{
    (void)state;
    begin();
    ru_shardlog *l;
    ru_err err;
    int64_t clock[BLOCKS];
    bool first[BLOCKS];
    assert_ok(ru_shardlog_open(path, &l, &err), err);
    assert_ok(append(l, 1, 4, BYTES, &err), err);
    assert_ok(append(l, 2, 4, BYTES, &err), err);
    int64_t n = ru_path_bytes(path);
    ru_shardlog_close(l);
    assert_int_equal(truncate(path, n - 9), 0);
    assert_ok(ru_shardlog_open(path, &l, &err), err);
    assert_ok(append(l, 3, 6, BYTES, &err), err);
    ru_shardlog_close(l);
    newest(clock, first);
    assert_true(clock[1] == 4 && clock[2] == -1 && clock[3] == 6);
    end();
}

/* The k-th call or allocation fails, for all k: what was reported as stored is there, and the log
 * goes on afterwards. Every record is large enough for compactions. */
static void test_failures(void **state)
{
    (void)state;
    for (uint32_t os = 0; os < 2; os++) {
        bool failed = true;
        for (int64_t k = 0; failed; k++) {
            begin();
            assert_true(k < 2000);
            ru_shardlog *l = NULL;
            ru_err err = {0};
            int64_t clock[BLOCKS], is[BLOCKS] = {-1, -1, -1, -1, -1, -1};
            bool first[BLOCKS];
            (os == 1 ? ru_test_os_fail : ru_test_alloc_fail)(k);
            ru_status st = ru_shardlog_open(path, &l, &err);
            for (uint32_t c = 0; st == RU_OK && c < 16; c++) {
                uint32_t b = c % 2;
                if (append(l, b, c, BYTES_MAX, &err) == RU_OK) {
                    is[b] = c;
                } else if (os == 0) {
                    break;
                }
            }
            failed = (os == 1 ? ru_test_os_count() : ru_test_alloc_count()) > k;
            ru_test_os_fail(-1);
            ru_test_alloc_fail(-1);
            assert_true(failed || st == RU_OK);
            if (st == RU_OK) {
                assert_ok(append(l, 5, 9, BYTES, &err), err);
                is[5] = 9;
            }
            newest(clock, first);
            for (uint32_t b = 0; b < BLOCKS; b++) {
                assert_true(clock[b] >= is[b]);
            }
            ru_shardlog_close(l);
            end();
        }
    }
}

static void test_folder(void **state)
{
    (void)state;
    begin();
    ru_shardlog *l;
    ru_err err;
    ru_arena a;
    ru_arena_init(&a, 0);
    int64_t clock[BLOCKS];
    bool first[BLOCKS];
    for (uint64_t p = 1; p <= 2; p++) { /* two processes held the block one after another */
        assert_ok(ru_shardlog_open(ru_shardlog_path(&a, folder, 3, p), &l, &err), err);
        assert_ok(append(l, 1, (uint32_t)(10 - p), BYTES, &err), err);
        ru_shardlog_close(l);
    }
    char *other = ru_shardlog_path(&a, folder, 2, 1);
    assert_ok(ru_shardlog_open(other, &l, &err), err);
    ru_shardlog_close(l);
    newest(clock, first);
    assert_int_equal(clock[1], 9);
    assert_ok(ru_shardlog_clean(folder, 3, &err), err);
    assert_false(ru_path_exists(other));
    newest(clock, first);
    assert_int_equal(clock[1], 9);
    ru_arena_fini(&a);
    end();
}

RU_TESTS(store_shardlog, cmocka_unit_test(test_newest_and_first_survive_compaction),
         cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_any_flipped_bit_is_found),
         cmocka_unit_test(test_damage_costs_one_record), cmocka_unit_test(test_killed_anywhere),
         cmocka_unit_test(test_appends_behind_a_torn_record), cmocka_unit_test(test_failures),
         cmocka_unit_test(test_folder))
