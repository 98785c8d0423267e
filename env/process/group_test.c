/* Control groups that bound: version 1 or 2 of this kernel where we may make groups (the figures
 * are the kernel's own), version 2 on a made-up tree, and what is told where something is missing.
 */
#include "test/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/file/file.h"
#include "env/process/group.h"
#include "env/process/process.h"

static void put(ru_arena *a, const char *root, const char *dir, const char *file, const char *text)
{
    ru_err err = {0};
    char *path = ru_path_join(a, root, dir);
    assert_ok(ru_dir_make(path, &err), err);
    assert_ok(ru_file_replace(ru_path_join(a, path, file), text, (int64_t)strlen(text), &err), err);
}

static const char *get(ru_arena *a, const char *root, const char *file)
{
    ru_err err = {0};
    char *text;
    int64_t n;
    assert_ok(ru_file_read(ru_path_join(a, root, file), 0, a, &text, &n, &err), err);
    return text;
}

/* The files that version 2 gives each new group; a made-up tree has them before. */
static void made_up(ru_arena *a, const char *root, const char *dir, const char *own)
{
    static const char *const files[] = {"cgroup.procs", "cpu.max",        "cpu.weight",
                                        "cpu.idle",     "memory.max",     "pids.max",
                                        "io.max",       "memory.swap.max"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(files); k++) {
        put(a, root, dir, files[k], "");
    }
    put(a, root, own, "cgroup.controllers", "cpu io memory pids\n");
    put(a, root, own, "cgroup.subtree_control", "cpu io memory\n");
    put(a, root, own, "cgroup.type", "domain\n");
    put(a, root, own, "cgroup.procs", "17\n");
    put(a, root, ru_arena_printf(a, "%s/rubato-rest", own), "cgroup.procs", "");
}

static void version_2_is_written(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char root[] = "/tmp/rubato-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    made_up(&a, root, "svc/job-1", "svc");
    ru_group_place place = {.root = root, .own = "0::/svc/rubato-rest\n"};
    ru_group_io disk = {.major = 8, .minor = 16, .read_bytes_s = 1000, .write_ops_s = 7};
    ru_group_limits l = {.cpu_quota_ns = 500000,
                         .cpu_weight = 30,
                         .memory_bytes = 1 << 20,
                         .pids = 9,
                         .io = &disk,
                         .n_io = 1};
    ru_group *g = NULL;
    assert_ok(ru_group_make("job-1", &l, &place, NULL, &g, &err), err);
    assert_string_equal(get(&a, root, "svc/rubato-rest/cgroup.procs"), "17");
    assert_string_equal(get(&a, root, "svc/cgroup.subtree_control"), "+io"); /* the last */
    assert_string_equal(get(&a, root, "svc/job-1/cpu.max"), "1000 20000");   /* at least 1 ms */
    assert_string_equal(get(&a, root, "svc/job-1/cpu.weight"), "30");
    assert_string_equal(get(&a, root, "svc/job-1/memory.max"), "1048576");
    assert_string_equal(get(&a, root, "svc/job-1/memory.swap.max"), "0");
    assert_string_equal(get(&a, root, "svc/job-1/pids.max"), "9");
    assert_string_equal(get(&a, root, "svc/job-1/io.max"),
                        "8:16 rbps=1000 wbps=max riops=max wiops=7");
    assert_ok(ru_group_set(g, &(ru_group_limits){.cpu_idle = true}, &err), err);
    assert_string_equal(get(&a, root, "svc/job-1/cpu.max"), "max 10000");
    assert_string_equal(get(&a, root, "svc/job-1/cpu.idle"), "1");
    assert_string_equal(get(&a, root, "svc/job-1/memory.max"), "max");
    assert_string_equal(get(&a, root, "svc/job-1/io.max"),
                        "8:16 rbps=max wbps=max riops=max wiops=max");
    /* What another process left is taken away, too. */
    put(&a, root, "svc/job-1", "io.max", "8:32 rbps=5 wbps=max riops=max wiops=max\n");
    assert_ok(ru_group_set(g, &(ru_group_limits){.cpu_idle = true}, &err), err);
    assert_string_equal(get(&a, root, "svc/job-1/io.max"),
                        "8:32 rbps=max wbps=max riops=max wiops=max");
    assert_ok(ru_group_enter(g, 4711, &err), err);
    assert_string_equal(get(&a, root, "svc/job-1/cgroup.procs"), "4711");
    put(&a, root, "svc/job-1", "cpu.stat", "usage_usec 70\nnr_throttled 3\nthrottled_usec 20\n");
    put(&a, root, "svc/job-1", "memory.events", "max 2\noom 1\noom_kill 1\n");
    put(&a, root, "svc/job-1", "memory.peak", "900\n");
    put(&a, root, "svc/job-1", "io.stat",
        "8:0 rbytes=10 wbytes=4 rios=1 wios=2\n8:16 rbytes=5 wbytes=0 rios=2 wios=0\n");
    ru_group_figures f;
    ru_group_read(g, &f);
    assert_int_equal(f.cpu_ns, 70000);
    assert_int_equal(f.throttled_ns, 20000);
    assert_int_equal(f.throttled, 3);
    assert_int_equal(f.oom_kills, 1);
    assert_int_equal(f.memory_peak_bytes, 900);
    assert_int_equal(f.memory_bytes, -1);
    assert_int_equal(f.read_bytes, -1);
    ru_group_read_io(g, 8, 16, &f);
    assert_true(f.read_bytes == 5 && f.write_bytes == 0 && f.read_ops == 2 && f.write_ops == 0);
    ru_group_read_io(g, 8, 1, &f);
    assert_int_equal(f.read_bytes, 0);
    put(&a, root, "svc/job-1", "io.stat", ""); /* as the kernel has it of a new group */
    ru_group_read_io(g, 8, 0, &f);
    assert_true(f.read_bytes == 0 && f.write_ops == 0);
    ru_group_close(g);
    assert_int_equal(ru_path_remove(root, NULL), RU_OK);
    ru_arena_fini(&a);
}

static void one_has_it_alone(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char root[] = "/tmp/rubato-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    made_up(&a, root, "svc/web", "svc");
    ru_group_place place = {.root = root, .own = "0::/svc\n"};
    const ru_group_limits l = {.cpu_quota_ns = 500000, .alone = true},
                          none = {.measured = RU_GROUP_CPU, .alone = true};
    ru_group *g = NULL, *other = NULL;
    assert_ok(ru_group_make("web", &l, &place, NULL, &g, &err), err);
    const char *was = get(&a, root, "svc/web/cpu.max");
    assert_int_equal(ru_group_make("web", &none, &place, NULL, &other, &err), RU_E_AGAIN);
    assert_non_null(strstr(err.text, "another process has the control group"));
    assert_string_equal(get(&a, root, "svc/web/cpu.max"), was);
    ru_group_close(g);
    assert_ok(ru_group_make("web", &none, &place, NULL, &other, &err), err);
    assert_string_not_equal(get(&a, root, "svc/web/cpu.max"), was);
    ru_group_close(other);
    assert_ok(ru_path_remove(root, &err), err);
    ru_arena_fini(&a);
}

static void tells_what_is_not_bounded(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err = {0};
    char root[] = "/tmp/rubato-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    made_up(&a, root, "svc/x", "svc");
    put(&a, root, "svc", "cgroup.controllers", "cpu io memory\n");
    ru_group_place place = {.root = root, .own = "0::/svc\n"};
    ru_group_limits l = {.memory_bytes = 4096, .pids = 9};
    ru_group *g = NULL;
    uint32_t lacks = 0;
    assert_ok(ru_group_make("x", &l, &place, &lacks, &g, &err), err);
    assert_int_equal(lacks, RU_GROUP_PIDS);
    assert_string_equal(ru_group_names(lacks), "pids");
    assert_non_null(strstr(err.text, "has no controller pids"));
    assert_string_equal(get(&a, root, "svc/x/memory.max"), "4096");
    assert_int_equal(ru_group_set(g, &l, &err), RU_E_MISSING);
    ru_group_close(g);
    assert_int_equal(ru_group_make("x", &l, &place, NULL, &g, &err), RU_E_MISSING);
    place.root = "/nowhere";
    assert_int_equal(ru_group_make("x", &l, &place, NULL, &g, &err), RU_E_MISSING);
    assert_ok(ru_group_make("x", &l, &place, &lacks, &g, &err), err);
    assert_int_equal(lacks, RU_GROUP_MEMORY | RU_GROUP_PIDS);
    assert_non_null(strstr(err.text, "no control groups with memory are mounted"));
    assert_ok(ru_group_enter(g, 1, &err), err); /* there is nothing to enter */
    assert_ok(ru_group_remove(g, &err), err);
    ru_group_close(g);
    const char *const bad[] = {"", "/x", "x/", "a//b", "..", "a/.b", "a b"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_group_make(bad[k], &l, &place, &lacks, &g, &err), RU_E_ARG);
    }
    assert_int_equal(ru_path_remove(root, NULL), RU_OK);
    ru_arena_fini(&a);
}

/* As a user that may not make groups. */
static void permission_is_named(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip(); /* who may make groups is not known */
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ru_err err = {0};
        ru_group *g;
        uint32_t lacks = 0;
        ru_group_limits l = {.memory_bytes = 1 << 24};
        bool good = setuid(65534) == 0 &&
                    ru_group_make("rubato-test-perm", &l, NULL, &lacks, &g, &err) == RU_OK &&
                    lacks == RU_GROUP_MEMORY &&
                    (err.status == RU_E_PERM || err.status == RU_E_MISSING);
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int run_in(const ru_group *g, const char *script)
{
    ru_err err = {0};
    ru_process *p = NULL;
    const char *argv[] = {"sh", "-c", script, NULL};
    assert_ok(ru_process_start(&(ru_process_options){.argv = argv, .group = g}, &p, &err), err);
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code;
}

/* The kernel bounds processes that start in the group and that are moved to it, and counts. */
static void this_kernel_bounds(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_group *g = NULL;
    char name[64];
    (void)snprintf(name, sizeof name, "rubato-test-%d/a", (int)getpid());
    ru_group_limits l = {.cpu_quota_ns = 500000, .memory_bytes = 24 << 20, .pids = 8};
    if (ru_group_make(name, &l, NULL, NULL, &g, &err) != RU_OK) {
        skip();
    }
    ru_group_figures f = {0};
    for (uint32_t k = 0; k < 20 && f.throttled == 0; k++) { /* busy cores may give it less */
        assert_int_equal(run_in(g, "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; exit 5"), 5);
        ru_group_read(g, &f);
    }
    assert_true(f.throttled > 0 && f.throttled_ns > 0 && f.cpu_ns > 1000000 && f.oom_kills == 0);
    l.cpu_quota_ns = 0;
    assert_ok(ru_group_set(g, &l, &err), err);
    assert_int_equal(run_in(g, "head -c 64m /dev/zero | tail -c 48m >/dev/null"), 128 + 9);
    assert_true(run_in(g, "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait") != 0);
    assert_true(ru_group_kill(g) > 0);
    ru_group_read(g, &f);
    assert_true(f.oom_kills >= 1 && f.memory_peak_bytes > 20 << 20 &&
                f.memory_peak_bytes <= 24 << 20);
    ru_process *p = NULL;
    const char *argv[] = {"cat", NULL};
    assert_ok(ru_process_start(&(ru_process_options){.argv = argv, .pipe_in = true}, &p, &err),
              err);
    assert_ok(ru_group_enter(g, ru_process_id(p), &err), err);
    assert_int_equal(ru_group_remove(g, &err), RU_E_AGAIN);
    assert_true(ru_group_kill(g) > 0);
    assert_int_equal(ru_process_wait(p), 128 + 9);
    ru_process_close(p);
    ru_status st = RU_E_AGAIN; /* the orphans of the shell end when the kernel comes to it */
    for (int k = 0; k < 1000000 && st == RU_E_AGAIN; k++) {
        st = ru_group_remove(g, &err);
    }
    assert_ok(st, err);
    ru_group_close(g);
}

/* Of three groups of one name, the one that somebody has stays, and so does one of another name. */
static void what_is_left_is_ended(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_group *g[3] = {NULL};
    char name[4][64];
    const ru_group_limits alone = {.measured = RU_GROUP_CPU, .alone = true};
    for (int k = 0; k < 3; k++) {
        (void)snprintf(name[k], sizeof name[k], "rubato-test-%d/%s-%d", (int)getpid(),
                       k == 2 ? "a-1" : "a", k + 1);
        if (ru_group_make(name[k], &alone, NULL, NULL, &g[k], &err) != RU_OK) {
            skip();
        }
    }
    (void)snprintf(name[3], sizeof name[3], "rubato-test-%d/a-", (int)getpid());
    ru_process *p = NULL;
    const char *argv[] = {"cat", NULL};
    assert_ok(ru_process_start(&(ru_process_options){.argv = argv, .pipe_in = true, .group = g[0]},
                               &p, &err),
              err);
    ru_group_close(g[0]); /* as the end of its owner */
    ru_group_close(g[2]);
    assert_int_equal(ru_group_sweep(name[3], NULL), 1);
    assert_int_equal(ru_process_wait(p), 128 + 9);
    ru_process_close(p);
    assert_int_equal(ru_group_sweep(name[3], NULL), 0);
    assert_int_equal(ru_group_make(name[1], &alone, NULL, NULL, &g[0], &err), RU_E_AGAIN);
    assert_ok(ru_group_make(name[2], &alone, NULL, NULL, &g[2], &err), err);
    assert_ok(ru_group_remove(g[1], &err), err);
    assert_ok(ru_group_remove(g[2], &err), err); /* and the folder above: nothing else is in it */
    assert_int_equal(ru_group_sweep(name[3], NULL), 0);
    ru_group_close(g[1]);
    ru_group_close(g[2]);
}

RU_TESTS(env_group, cmocka_unit_test(what_is_left_is_ended), cmocka_unit_test(one_has_it_alone),
         cmocka_unit_test(version_2_is_written), cmocka_unit_test(tells_what_is_not_bounded),
         cmocka_unit_test(permission_is_named), cmocka_unit_test(this_kernel_bounds))
