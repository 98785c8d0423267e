/* Files: atomic replacement, reads past the end, folders, error sentences. */
#include "env/file/file.h"
#include "test/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/file/claim.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/rubato-test-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int drop_root(void **state)
{
    (void)state;
    return ru_path_remove(root, NULL) != RU_OK;
}

static void test_replace_and_read(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *p = ru_path_join(&a, root, "f.txt");
    assert_ok(ru_file_replace(p, "one", 3, &err), err);
    assert_ok(ru_file_replace(p, "three", 5, &err), err);
    char *data;
    int64_t n;
    assert_ok(ru_file_read(p, 0, &a, &data, &n, &err), err);
    assert_int_equal(n, 5);
    assert_string_equal(data, "three");
    char **names;
    uint32_t count;
    assert_ok(ru_dir_list(root, &a, &names, &count, &err), err);
    assert_int_equal(count, 1); /* no temporary file is left */
    assert_int_equal(ru_file_read(p, 4, &a, &data, &n, &err), RU_E_LIMIT);
    ru_arena_fini(&a);
}

static void test_uncommitted_leaves_nothing(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *p = ru_path_join(&a, root, "g.txt");
    ru_out *o = NULL;
    assert_ok(ru_out_open(p, &o, &err), err);
    assert_ok(ru_out_write(o, "half", 4, &err), err);
    ru_out_close(o);
    assert_false(ru_path_exists(p));
    char **names;
    uint32_t count;
    assert_ok(ru_dir_list(root, &a, &names, &count, &err), err);
    assert_int_equal(count, 0);
    ru_arena_fini(&a);
}

static void test_positioned_reads(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *p = ru_path_join(&a, root, "h.bin");
    assert_ok(ru_file_replace(p, "0123456789", 10, &err), err);
    ru_in_file f;
    assert_ok(ru_in_open(p, &f, &err), err);
    char buf[8];
    assert_ok(ru_in_read(&f, p, 6, buf, 4, &err), err);
    assert_memory_equal(buf, "6789", 4);
    assert_int_equal(ru_in_read(&f, p, 7, buf, 4, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "ends too early"));
    ru_in_close(&f);
    ru_map_file m;
    assert_ok(ru_file_map(p, &m, &err), err);
    assert_memory_equal(m.data, "0123456789", 10);
    ru_file_unmap(&m);
    ru_arena_fini(&a);
}

static void test_errors_name_path_and_reason(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *p = ru_path_join(&a, root, "nothing/here");
    ru_map_file m;
    assert_int_equal(ru_file_map(p, &m, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, p));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(ru_file_map(root, &m, &err), RU_E_DATA);
    char *data;
    int64_t n;
    assert_ok(ru_file_read("/proc/self/status", 0, &a, &data, &n, &err), err);
    assert_true(n > 100); /* files of /proc say they are empty */
    ru_arena_fini(&a);
}

/* Where an output cannot be, the output is what is wrong, whatever its path lacks. */
static void test_outputs_that_cannot_be(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *file = ru_path_join(&a, root, "file");
    assert_ok(ru_file_replace(file, "x", 1, &err), err);
    char *below = ru_path_join(&a, file, "below"), *dir = ru_path_join(&a, root, "dir");
    assert_ok(ru_dir_make(dir, &err), err);
    char *name = ru_arena_printf(&a, "%s/%0300d", root, 0);
    ru_out *out = NULL;
    ru_log_file *log = NULL;
    const char *const places[] = {below, name, "/nowhere/x", "/proc/x/y"};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(places); i++) {
        assert_int_equal(ru_file_replace(places[i], "x", 1, &err), RU_E_CREATE);
        assert_non_null(strstr(err.text, places[i]));
        assert_int_equal(ru_file_secret(places[i], "x", 1, &err), RU_E_CREATE);
        assert_int_equal(ru_out_open(places[i], &out, &err), RU_E_CREATE);
        assert_int_equal(ru_log_file_open(places[i], true, &log, &err), RU_E_CREATE);
    }
    assert_int_equal(ru_dir_make(file, &err), RU_E_CREATE);
    assert_non_null(strstr(err.text, "choose another name"));
    assert_int_equal(ru_dir_make(below, &err), RU_E_CREATE);
    assert_int_equal(ru_dir_make("/proc/x/y", &err), RU_E_CREATE);
    assert_int_equal(ru_file_replace(dir, "x", 1, &err), RU_E_CREATE);
    assert_int_equal(ru_log_file_open(dir, true, &log, &err), RU_E_CREATE);
    assert_int_equal(ru_path_rename(file, ru_path_join(&a, file, "y"), &err), RU_E_CREATE);
    ru_arena_fini(&a);
}

static void test_folders(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *deep = ru_path_join(&a, root, "a/b/c");
    assert_ok(ru_dir_make(deep, &err), err);
    assert_ok(ru_dir_make(deep, &err), err);
    assert_true(ru_path_is_dir(deep));
    assert_ok(ru_file_replace(ru_path_join(&a, deep, "x"), "x", 1, &err), err);
    assert_int_equal(symlink("/usr", ru_path_join(&a, deep, "link")), 0);
    assert_ok(ru_path_remove(ru_path_join(&a, root, "a"), &err), err);
    assert_false(ru_path_exists(ru_path_join(&a, root, "a")));
    assert_true(ru_path_exists("/usr/bin"));
    assert_int_equal(ru_path_remove(deep, &err), RU_E_MISSING);
    ru_arena_fini(&a);
}

static void is_text(const char *path, const char *text)
{
    ru_map_file m;
    ru_err err = {0};
    assert_ok(ru_file_map(path, &m, &err), err);
    assert_int_equal(m.size_bytes, strlen(text));
    assert_memory_equal(m.data, text, strlen(text));
    ru_file_unmap(&m);
}

static mode_t kind_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & S_IFMT;
}

/* An output goes to the file that a link names, wherever it lies, and the link stays. */
static void test_through_links(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *dir = ru_path_join(&a, root, "far"), *file = ru_path_join(&a, dir, "file");
    char *link = ru_path_join(&a, root, "link"), *second = ru_path_join(&a, dir, "second");
    char *full = ru_path_join(&a, root, "full"), *loop = ru_path_join(&a, root, "loop");
    assert_ok(ru_dir_make(dir, &err), err);
    assert_int_equal(symlink("far/second", link), 0); /* relative, to another link */
    assert_int_equal(symlink("file", second), 0);
    assert_int_equal(symlink(file, full), 0);
    assert_int_equal(symlink("loop", loop), 0);
    const char *const links[] = {link, full, second};
    static const char *const texts[] = {"first", "another", "third"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(links); k++) { /* the first finds no file there */
        assert_ok(ru_file_replace(links[k], texts[k], (int64_t)strlen(texts[k]), &err), err);
        assert_int_equal(kind_of(links[k]), S_IFLNK);
        is_text(file, texts[k]);
    }
    assert_ok(ru_file_secret(link, "0123456789", 10, &err), err);
    assert_int_equal(kind_of(link), S_IFREG); /* a secret is not written where a link leads */
    is_text(link, "0123456789");
    is_text(file, "third");
    char **names;
    uint32_t n;
    assert_ok(ru_dir_list(dir, &a, &names, &n, &err), err);
    assert_int_equal(n, 2); /* no temporary file is left beside the link's end */
    assert_int_equal(ru_file_replace(loop, "x", 1, &err), RU_E_CREATE);
    assert_non_null(strstr(err.text, "symbolic links"));
    assert_int_equal(kind_of(loop), S_IFLNK);
    ru_in_file in;
    assert_int_equal(ru_in_open_own(loop, &in, &err), RU_E_CREATE);
    assert_int_equal(ru_in_open_own(ru_path_join(&a, dir, "none"), &in, &err), RU_E_MISSING);
    ru_arena_fini(&a);
}

/* What is no regular file stays what it is and takes the bytes. */
static void test_through_what_is_no_file(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char *fifo = ru_path_join(&a, root, "fifo"), *to = ru_path_join(&a, root, "to");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("fifo", to), 0);
    int fd = open(fifo, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    const char *const ways[] = {fifo, to};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ways); k++) {
        char got[16] = {0};
        assert_ok(ru_file_replace(ways[k], "through", 7, &err), err);
        assert_int_equal(read(fd, got, sizeof got), 7);
        assert_string_equal(got, "through");
        assert_int_equal(kind_of(fifo), S_IFIFO);
        ru_out *o = NULL;
        assert_ok(ru_out_open(ways[k], &o, &err), err);
        ru_out_close(o); /* given up: the FIFO is not removed */
        assert_int_equal(kind_of(fifo), S_IFIFO);
    }
    assert_int_equal(close(fd), 0);
    ru_map_file map; /* nobody writes it: reading would wait for ever */
    ru_in_file in;
    assert_int_equal(ru_file_map(fifo, &map, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "it is a FIFO, expected a regular file"));
    assert_int_equal(ru_in_open(to, &in, &err), RU_E_DATA);
    char *null = ru_path_join(&a, root, "null");
    if (mknod(null, S_IFCHR | 0600, makedev(1, 3)) == 0) { /* as root */
        assert_ok(ru_file_replace(null, "x", 1, &err), err);
        assert_int_equal(kind_of(null), S_IFCHR);
    }
    char *disk = ru_path_join(&a, root, "disk"); /* /dev/full itself must not be at risk here */
    assert_int_equal(symlink("/dev/full", disk), 0);
    assert_int_equal(ru_file_replace(disk, "x", 1, &err), RU_E_CREATE);
    assert_non_null(strstr(err.text, "No space left"));
    ru_out *o = NULL;
    assert_int_equal(ru_out_open(root, &o, &err), RU_E_CREATE); /* before the work, not after it */
    assert_non_null(strstr(err.text, "expected a file"));
    ru_arena_fini(&a);
}

/* A growing file on a disk that takes no more: here, above the largest size of a file. */
static void test_full_disk(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_log_file *f = NULL;
    struct rlimit was, none;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    none = (struct rlimit){.rlim_cur = 4, .rlim_max = was.rlim_max};
    assert_ok(ru_log_file_open(ru_path_join(&a, root, "log"), true, &f, &err), err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    ru_status st = ru_log_file_append(f, "12345", 5, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(st, RU_E_CREATE);
    assert_non_null(strstr(err.text, "ulimit -f"));
    assert_ok(ru_log_file_append(f, "whole\n", 6, &err), err); /* nothing cut stands before it */
    ru_log_file_close(f);
    char *text;
    int64_t n;
    assert_ok(ru_file_read(ru_path_join(&a, root, "log"), 100, &a, &text, &n, &err), err);
    assert_string_equal(text, "whole\n");
    (void)signal(SIGXFSZ, before);
    ru_arena_fini(&a);
}

/* What somebody puts under the name of a run's file is neither followed nor waited for. */
static void test_files_of_our_own(void **state)
{
    (void)state;
    enum { LINK, DANGLING, FIFO, READ_FIFO, DEVICE, DIR, KINDS };
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    ru_map_file m;
    ru_log_file *log = NULL;
    const char *target = ru_path_join(&a, root, "target"), *name = ru_path_join(&a, root, "name");
    for (uint32_t k = 0; k < KINDS; k++) {
        int reader = -1;
        assert_ok(ru_file_replace(target, "precious", 8, &err), err);
        switch (k) {
        case LINK:
            assert_int_equal(symlink(target, name), 0);
            break;
        case DANGLING:
            assert_int_equal(symlink("nowhere", name), 0);
            break;
        case DIR:
            assert_int_equal(mkdir(name, 0700), 0);
            break;
        case DEVICE:
            assert_int_equal(symlink("/dev/null", name), 0);
            break;
        default:
            assert_int_equal(mkfifo(name, 0600), 0);
            reader = k == READ_FIFO ? open(name, O_RDONLY | O_NONBLOCK) : -1;
            break;
        }
        for (uint32_t keep = 0; keep < 2; keep++) {
            assert_int_equal(ru_log_file_open(name, keep != 0, &log, &err), RU_E_CREATE);
            assert_non_null(strstr(err.text, "expected a regular file of the run"));
        }
        const ru_claim_options co = {.dir = root, .key = 1, .alone = true};
        const char *lock = ru_path_join(&a, root, "lock");
        ru_claim *claim = NULL;
        assert_int_equal(rename(name, lock), 0);
        assert_int_equal(ru_claim_open(&co, &claim, &err), RU_E_CREATE);
        assert_int_equal(rename(lock, name), 0);
        assert_int_equal(ru_file_own(name, "new", 3, &err), k == DIR ? RU_E_CREATE : RU_OK);
        if (k != DIR) {
            assert_int_equal(ru_path_kind_of(name), RU_PATH_FILE);
            assert_ok(ru_file_map(name, &m, &err), err);
            assert_int_equal(m.size_bytes, 3);
            ru_file_unmap(&m);
        }
        assert_ok(ru_file_map(target, &m, &err), err);
        assert_int_equal(m.size_bytes, 8);
        ru_file_unmap(&m);
        assert_false(ru_path_exists(ru_path_join(&a, root, "nowhere")));
        assert_ok(ru_path_remove(name, &err), err);
        if (reader >= 0) {
            close(reader);
        }
    }
    ru_arena_fini(&a);
}

#define T(f) cmocka_unit_test_setup_teardown(f, make_root, drop_root)
/* A secret is this user's alone, also when the file was there before. */
static void a_secret_is_private(void **state)
{
    (void)state;
    ru_err err = {0};
    char path[64];
    snprintf(path, sizeof path, "/tmp/rubato-secret-%ld", (long)getpid());
    assert_ok(ru_file_replace(path, "old", 3, &err), err);
    assert_ok(ru_file_secret(path, "0123456789", 10, &err), err);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, 10);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ru_file_secret("/nowhere/secret", "x", 1, &err), RU_E_CREATE);
}

/* Any range, also up to the end and beyond it, is what a plain read gives. */
static void test_direct_reads(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err = {0};
    ru_arena_init(&a, 0);
    enum { BYTES = 3 * 1024 * 1024 + 777 };
    uint8_t *all = ru_arena_alloc(&a, BYTES, 1), *got = ru_arena_alloc(&a, BYTES, 1);
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t i = 0; i < BYTES; i++) {
        all[i] = (uint8_t)ru_rng_below(&rng, 256);
    }
    const char *path = ru_path_join(&a, root, "direct");
    ru_in_file in;
    assert_ok(ru_file_replace(path, all, BYTES, &err), err);
    assert_ok(ru_in_open(path, &in, &err), err);
    if (!ru_in_direct(&in)) {
        print_message("direct reads were not tested: this file system does not allow them\n");
    }
    for (uint32_t k = 0; k < 60; k++) {
        int64_t at = ru_rng_below(&rng, BYTES), most = k % 2 == 0 ? BYTES - at : 9000;
        int64_t n = ru_rng_below(&rng, (uint32_t)(most < BYTES - at ? most : BYTES - at) + 1);
        n = k % 7 == 0 ? BYTES - at : n;
        assert_ok(ru_in_read(&in, path, at, got, n, &err), err);
        assert_memory_equal(got, all + at, (size_t)n);
    }
    assert_int_equal(ru_in_read(&in, path, 5, got, BYTES - 4, &err), RU_E_DATA);
    assert_int_equal(ru_in_read(&in, path, BYTES + 9000, got, 1, &err), RU_E_DATA);
    ru_in_close(&in);
    ru_arena_fini(&a);
}

/* procfs cannot: the file is read as before. */
static void test_direct_reads_are_refused(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_in_file in;
    uint8_t got[4] = {0};
    assert_ok(ru_in_open("/proc/version", &in, &err), err);
    assert_false(ru_in_direct(&in));
    assert_false(in.direct);
    assert_ok(ru_in_read(&in, "/proc/version", 1, got, 4, &err), err);
    assert_memory_equal(got, "inux", 4);
    ru_in_close(&in);
}

RU_TESTS(env_file, T(test_direct_reads), T(test_direct_reads_are_refused),
         cmocka_unit_test(a_secret_is_private), T(test_replace_and_read),
         T(test_uncommitted_leaves_nothing), T(test_positioned_reads),
         T(test_errors_name_path_and_reason), T(test_outputs_that_cannot_be), T(test_folders),
         T(test_full_disk), T(test_files_of_our_own), T(test_through_links),
         T(test_through_what_is_no_file))
