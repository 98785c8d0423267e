#include "test/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/groups.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "env/process/stop.h"

/* Who owns a run in this process ends it without a signal. */
static void a_stop_needs_no_signal(void **state)
{
    (void)state;
    void (*was)(int) = signal(SIGINT, SIG_IGN);
    ru_self_stop_ask(); /* nobody watches */
    ru_self_stop_watch();
    assert_int_equal(ru_self_stop_asked(), 0);
    ru_self_stop_ask();
    ru_self_stop_ask(); /* no second one, which would end this process */
    assert_int_equal(ru_self_stop_asked(), SIGINT);
    ru_self_stop_unwatch();
    (void)signal(SIGINT, was);
}

static void first_stop_signal_is_counted(void **state)
{
    (void)state;
    void (*was)(int) = signal(SIGTERM, SIG_DFL);
    ru_self_stop_watch();
    assert_int_equal(ru_self_stop_asked(), 0);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(ru_self_stop_asked(), SIGTERM);
    ru_self_stop_patient();
    assert_int_equal(raise(SIGINT), 0); /* would end this process */
    assert_int_equal(ru_self_stop_asked(), SIGTERM);
    ru_self_stop_unwatch();
    (void)signal(SIGTERM, was);
}

/* Two clients of one process: the one that ends first leaves the other its signals. */
static void two_may_watch(void **state)
{
    (void)state;
    void (*was)(int) = signal(SIGTERM, SIG_DFL);
    ru_self_stop_watch();
    ru_self_stop_watch();
    assert_int_equal(raise(SIGTERM), 0);
    int fd = ru_self_stop_fd();
    ru_self_stop_unwatch();
    assert_int_equal(ru_self_stop_fd(), fd);
    assert_int_equal(ru_self_stop_asked(), SIGTERM);
    ru_self_stop_unwatch();
    assert_int_equal(ru_self_stop_fd(), -1);
    assert_int_equal(ru_self_stop_asked(), 0);
    assert_true(signal(SIGTERM, was) == SIG_DFL);
}

/* In a process of its own that is told to stop `times` times at once, or until it ends: its status.
 */
static int end_told(uint32_t times)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGTERM, SIG_DFL);
        ru_self_stop_watch();
        for (uint32_t k = 0; k < times; k++) {
            (void)raise(SIGTERM);
        }
        _exit(ru_self_stop_asked() == SIGTERM ? 7 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* timeout(1) signals twice for one request; who asks again later means it. */
static void second_stop_signal_ends(void **state)
{
    (void)state;
    int code = 0;
    for (uint32_t k = 0; k < 20 && code != 7; k++) { /* a busy machine may part the two */
        code = end_told(2);
    }
    assert_int_equal(code, 7);
    assert_int_equal(end_told(UINT32_MAX), 128 + SIGTERM);
}

/* As nohup and a shell's background jobs start a program: what was ignored stays ignored. */
static void ignored_signals_stay_ignored(void **state)
{
    (void)state;
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(numbers); k++) {
        struct sigaction sa, old;
        void (*was)(int) = signal(numbers[k], SIG_IGN);
        void (*next)(int) = signal(numbers[(k + 1) % 3], SIG_DFL);
        for (int round = 0; round < 2; round++) { /* twice: a worker that joins again */
            ru_self_stop_watch();
            assert_int_equal(raise(numbers[k]), 0);
            assert_int_equal(ru_self_stop_asked(), 0);
            assert_int_equal(sigaction(numbers[(k + 1) % 3], NULL, &old), 0);
            assert_true(old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN);
            ru_self_stop_unwatch();
            assert_int_equal(sigaction(numbers[k], NULL, &sa), 0);
            assert_true(sa.sa_handler == SIG_IGN);
            assert_int_equal(sigaction(numbers[(k + 1) % 3], NULL, &old), 0);
            assert_true(old.sa_handler == SIG_DFL);
        }
        (void)signal(numbers[k], was);
        (void)signal(numbers[(k + 1) % 3], next);
    }
}

/* In a process of its own, whose standard output is `fd`: how often it could tell something. */
static int tell_into(int fd, bool *error)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ru_self_stop_watch();
        (void)dup2(fd, STDOUT_FILENO);
        clearerr(stdout);
        for (int k = 0; k < 3; k++) {
            ru_self_tell("a line\n", 7);
        }
        _exit(ferror(stdout) != 0 || fflush(stdout) != 0 ? 1 : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *error = WIFEXITED(status) && WEXITSTATUS(status) == 1;
    return WIFEXITED(status) ? 0 : WTERMSIG(status);
}

/* `rubato train --json | head -1` goes on; a full disk is an error all the same. */
static void output_ends_with_its_reader(void **state)
{
    (void)state;
    int ends[2], full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    bool error;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    assert_int_equal(tell_into(ends[1], &error), 0);
    assert_false(error);
    close(ends[1]);
    assert_true(full >= 0);
    assert_int_equal(tell_into(full, &error), 0);
    assert_true(error);
    close(full);
}

static void knows_itself(void **state)
{
    (void)state;
    char text[128];
    assert_true(ru_self_rss_bytes() > 0);
    assert_true(ru_self_rss_peak_bytes() >= ru_self_rss_bytes() / 2);
    assert_int_equal(ru_self_pid(), getpid());
    assert_true(ru_self_memory_bytes() > 1 << 20);
    char addresses[8][RU_SELF_ADDRESS_BYTES];
    uint32_t n = ru_self_addresses(addresses, 8), loopback = 0;
    for (uint32_t k = 0; k < n; k++) {
        assert_true(strchr(addresses[k], '.') != NULL || strchr(addresses[k], ':') != NULL);
        loopback += strcmp(addresses[k], "127.0.0.1") == 0;
    }
    assert_true(loopback <= 1);
    assert_int_equal(ru_self_addresses(addresses, 0), 0);
    ru_self_host(text, sizeof text);
    assert_true(strlen(text) > 0);
    ru_self_cpu(text, sizeof text);
    assert_true(strlen(text) > 0);
    int64_t start = ru_self_start_ns();
    assert_true(start >= 0 && start <= ru_clock_now().ns + 20000000);
}

static void knows_what_memory_is_free(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    int64_t free = ru_memory_free_bytes(), limit = ru_memory_limit_bytes(&a);
    assert_true(free > 1 << 20 && free <= ru_self_memory_bytes() && (limit == 0 || free <= limit));
    assert_true(limit >= 0);
    ru_arena_fini(&a);
}

static void put(ru_arena *a, const char *root, const char *dir, const char *file, const char *text)
{
    ru_err err = {0};
    char *path = ru_path_join(a, root, dir);
    assert_ok(ru_dir_make(path, &err), err);
    assert_ok(ru_file_replace(ru_path_join(a, path, file), text, (int64_t)strlen(text), &err), err);
}

/* A group is bound by those around it, and shares what they leave. */
static void finds_limits_of_groups(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    char root[] = "/tmp/rubato-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    put(&a, root, "out/in", "memory.max", "max\n");
    put(&a, root, "out", "memory.max", "5000\n");
    put(&a, root, "out", "memory.current", "4000\n");
    put(&a, root, "out", "memory.stat", "anon 1\ninactive_file 1500\nactive_file 7\n");
    put(&a, root, "full", "memory.max", "3000\n");
    put(&a, root, "full", "memory.current", "3100\n");
    put(&a, root, "memory/job", "memory.limit_in_bytes", "9223372036854771712\n");
    put(&a, root, "memory", "memory.limit_in_bytes", "7000\n");
    put(&a, root, "memory", "memory.usage_in_bytes", "1000\n");
    static const struct {
        const char *text;
        int64_t limit, rest;
    } cases[] = {
        {"", 0, INT64_MAX},
        {"0::/\n", 0, INT64_MAX},
        {"0::/none\n", 0, INT64_MAX},
        {"0::/out/in\n", 5000, 2500},
        {"0::/out", 5000, 2500},
        {"0::/full\n", 3000, 0},
        {"5:cpu:/job\n1:name=memory:/job\n0::/\n", 0, INT64_MAX},
        {"4:memory:/job\n0::/\n", 7000, 6000},
        {"4:cpu,memory:/elsewhere/job\n", 7000, 6000}, /* a container sees its own root only */
        {"4:memory:/job\n0::/out/in\n", 5000, 2500},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        rui_memory_groups g = rui_memory_groups_of(&a, ru_str_c(cases[i].text), root);
        assert_int_equal(g.limit_bytes, cases[i].limit);
        assert_int_equal(g.rest_bytes, cases[i].rest);
    }
    assert_int_equal(ru_path_remove(root, NULL), RU_OK);
    ru_arena_fini(&a);
}

/* The same for processor time: what is left is the least along the way. */
static void finds_quota_of_groups(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    char root[] = "/tmp/rubato-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    put(&a, root, "out/in", "cpu.max", "600000 100000\n");
    put(&a, root, "out", "cpu.max", "250000 100000\n");
    put(&a, root, "out/tight", "cpu.max", "50000 100000\n");
    put(&a, root, "out/free", "cpu.max", "max 100000\n");
    put(&a, root, "odd", "cpu.max", "100000\n");
    put(&a, root, "zero", "cpu.max", "100000 0\n");
    put(&a, root, "cpu", "cpu.cfs_quota_us", "800000\n");
    put(&a, root, "cpu", "cpu.cfs_period_us", "100000\n");
    put(&a, root, "cpu/job", "cpu.cfs_quota_us", "-1\n");
    put(&a, root, "cpu/job", "cpu.cfs_period_us", "100000\n");
    put(&a, root, "cpu/job/small", "cpu.cfs_quota_us", "300000\n");
    put(&a, root, "cpu/job/small", "cpu.cfs_period_us", "100000\n");
    static const struct {
        const char *text;
        uint32_t cores;
    } cases[] = {
        {"", 0},
        {"0::/\n", 0},
        {"0::/none\n", 0},
        {"0::/out\n", 3},
        {"0::/out/in\n", 3},
        {"0::/out/tight\n", 1},
        {"0::/out/free/deeper\n", 3},
        {"0::/odd\n", 0},
        {"0::/zero\n", 0},
        {"4:memory:/job/small\n", 0},
        {"4:cpu:/job\n", 8},
        {"4:cpu:/elsewhere\n", 8},
        {"4:cpuacct,cpu:/job/small\n0::/out/in\n", 3},
        {"4:cpu:/job\n0::/out/tight\n", 1},
    };
    int64_t quota_ns, period_ns;
    assert_false(rui_groups_quota_of(&a, ru_str_c("0::/none\n"), root, &quota_ns, &period_ns));
    assert_true(rui_groups_quota_of(&a, ru_str_c("4:cpu:/job/small\n0::/out/in\n"), root, &quota_ns,
                                    &period_ns)); /* 2.5 cores are less than 3 */
    assert_int_equal(quota_ns, 250000000);
    assert_int_equal(period_ns, 100000000);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        assert_int_equal(rui_groups_cores_of(&a, ru_str_c(cases[i].text), root), cases[i].cores);
    }
    put(&a, root, ".", "cpu.max", "150000 100000\n");
    assert_int_equal(rui_groups_cores_of(&a, ru_str_c("0::/out/in\n"), root), 2);
    assert_int_equal(ru_path_remove(root, NULL), RU_OK);
    ru_arena_fini(&a);
}

/* Large pages begin at multiples of their size; what is given back is zero, the rest stays. */
static void large_memory_begins_at_a_large_page(void **state)
{
    (void)state;
    enum { SIZE = RU_MEMORY_LARGE_BYTES + 3 * 4096, HEAD = RU_MEMORY_PAGE_BYTES };
    uint8_t *of[4];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(of); k++) {
        of[k] = ru_memory_map(SIZE);
        assert_non_null(of[k]);
        assert_int_equal((uintptr_t)of[k] % RU_MEMORY_PAGE_BYTES, 0);
        memset(of[k], 1 + (int)k, SIZE);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(of); k++) {
        ru_memory_forget(of[k], HEAD, SIZE);
        assert_int_equal(of[k][0] + of[k][HEAD - 1], 0);
        assert_int_equal(of[k][HEAD], 1 + k);
        assert_int_equal(of[k][SIZE - 1], 1 + k);
        ru_memory_unmap(of[k], SIZE);
    }
}

/* Where large pages are not wanted a touched place takes a small one. */
static void small_places_take_small_pages(void **state)
{
    (void)state;
    enum { SIZE = 8 * RU_MEMORY_PAGE_BYTES };
    int64_t before = ru_memory_touched_bytes();
    uint8_t *p = ru_memory_map(SIZE);
    assert_true(before > 0 && p != NULL);
    ru_memory_small(p, SIZE);
    for (uint32_t k = 0; k < 8; k++) {
        memset(p + (int64_t)k * RU_MEMORY_PAGE_BYTES, 1, 1);
    }
    assert_true(ru_memory_touched_bytes() - before < RU_MEMORY_PAGE_BYTES);
    memset(p, 1, SIZE);
    assert_true(ru_memory_touched_bytes() - before >= SIZE / 2); /* the system counts roughly */
    assert_int_equal(p[SIZE - 1], 1);
    ru_memory_unmap(p, SIZE);
}

RU_TESTS(env_self, cmocka_unit_test(large_memory_begins_at_a_large_page),
         cmocka_unit_test(small_places_take_small_pages), cmocka_unit_test(two_may_watch),
         cmocka_unit_test(first_stop_signal_is_counted), cmocka_unit_test(a_stop_needs_no_signal),
         cmocka_unit_test(second_stop_signal_ends), cmocka_unit_test(ignored_signals_stay_ignored),
         cmocka_unit_test(output_ends_with_its_reader), cmocka_unit_test(knows_itself),
         cmocka_unit_test(knows_what_memory_is_free), cmocka_unit_test(finds_limits_of_groups),
         cmocka_unit_test(finds_quota_of_groups))
