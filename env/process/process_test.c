/* Processes: pipes, exit codes, what happens to missing programs. */
#include "env/process/process.h"
#include "test/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_lines_and_exit_code(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_process *p = NULL;
    const char *argv[] = {"sh", "-c", "while read x; do echo \"got $x $RU_A$HOME\"; done; exit 7",
                          NULL};
    const char *set[] = {"RU_A=1", NULL}, *unset[] = {"HOME", NULL};
    ru_process_options opt = {
        .argv = argv, .set = set, .unset = unset, .pipe_in = true, .pipe_out = true};
    assert_ok(ru_process_start(&opt, &p, &err), err);
    const char *line;
    assert_ok(ru_process_write(p, "a\nb\n", 4, &err), err);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    assert_string_equal(line, "got a 1");
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    assert_string_equal(line, "got b 1");
    assert_int_equal(ru_process_wait(p), 7);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    assert_null(line);
    ru_process_close(p);
}

static void only_what_is_kept_goes_on(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_process *p = NULL;
    const char *argv[] = {"env", NULL}, *keep[] = {"PATH", NULL}, *set[] = {"RU_A=1", NULL}, *line;
    const ru_process_options opt = {.argv = argv, .keep = keep, .set = set, .pipe_out = true};
    assert_ok(ru_process_start(&opt, &p, &err), err);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    assert_memory_equal(line, "PATH=", 5);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    assert_string_equal(line, "RU_A=1");
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    assert_null(line);
    ru_process_close(p);
}

static void test_missing_program(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_process *p = NULL;
    const char *argv[] = {"no-such-program-anywhere", NULL};
    assert_int_equal(ru_process_start(&(ru_process_options){.argv = argv}, &p, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "no-such-program-anywhere"));
}

static void test_killed_child(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_process *p = NULL;
    const char *argv[] = {"cat", NULL};
    ru_process_options opt = {.argv = argv, .pipe_in = true, .pipe_out = true};
    assert_ok(ru_process_start(&opt, &p, &err), err);
    ru_process_kill(p, 9);
    assert_int_equal(ru_process_wait(p), 128 + 9);
    ru_process_close(p);
}

/* Output and errors of a child in a group of its own, read as they come. */
static void both_streams_are_read_without_waiting(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_process *p = NULL;
    const char *argv[] = {"sh", "-c", "echo out; echo bad >&2; ps -o pgid= -p $$ | tr -d ' '",
                          NULL};
    const ru_process_options opt = {
        .argv = argv, .pipe_out = true, .pipe_err = true, .own_group = true};
    assert_ok(ru_process_start(&opt, &p, &err), err);
    assert_true(ru_process_fd(p, false) >= 0 && ru_process_fd(p, true) >= 0);
    char out[64] = {0}, bad[64] = {0};
    int64_t n[2] = {0}, got[2] = {0};
    while (got[0] >= 0 || got[1] >= 0) {
        if (got[0] >= 0) {
            got[0] = ru_process_read(p, false, out + n[0], (int64_t)sizeof out - 1 - n[0]);
            n[0] += got[0] > 0 ? got[0] : 0;
        }
        if (got[1] >= 0) {
            got[1] = ru_process_read(p, true, bad + n[1], (int64_t)sizeof bad - 1 - n[1]);
            n[1] += got[1] > 0 ? got[1] : 0;
        }
    }
    char group[64];
    snprintf(group, sizeof group, "out\n%lld\n", (long long)ru_process_id(p));
    assert_string_equal(out, group);
    assert_string_equal(bad, "bad\n");
    assert_int_equal(ru_process_wait(p), 0);
    ru_process_close(p);
}

/* It writes on after its starter has left it, and is found by number and mark. */
static void a_child_outlives_its_starter(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_process *p = NULL;
    char log[] = "/tmp/rubato-outlive-XXXXXX", mark[RU_PROCESS_MARK_BYTES];
    char text[64] = {0};
    int fd = mkstemp(log);
    const char *argv[] = {
        "sh", "-c", "trap 'echo told; exit' USR1; echo up; while :; do sleep 0.01; done", NULL};
    const ru_process_options opt = {.argv = argv, .outlive = log};
    assert_true(fd >= 0);
    assert_ok(ru_process_start(&opt, &p, &err), err);
    int64_t pid = ru_process_id(p);
    assert_int_equal(getsid((pid_t)pid), pid);
    assert_true(ru_process_mark(pid, mark));
    ru_process_leave(p);
    assert_true(ru_process_signal(pid, mark, 0));
    assert_false(ru_process_signal(pid, "another boot/1", SIGKILL));
    while (pread(fd, text, sizeof text - 1, 0) < 3) { /* until the trap stands */
    }
    assert_true(ru_process_signal(pid, mark, SIGUSR1));
    int status = 0;
    assert_int_equal(waitpid((pid_t)pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(pread(fd, text, sizeof text - 1, 0), 8);
    assert_string_equal(text, "up\ntold\n");
    assert_false(ru_process_signal(pid, mark, 0));
    assert_false(ru_process_mark(pid, mark));
    close(fd);
    unlink(log);
    assert_int_equal(mkfifo(log, 0600), 0); /* nobody waits for who would read it */
    assert_int_equal(ru_process_start(&opt, &p, &err), RU_E_PERM);
    unlink(log);
    const ru_process_options bad = {.argv = argv, .outlive = "/no/such/folder/log"};
    assert_int_not_equal(ru_process_start(&bad, &p, &err), RU_OK);
}

static void a_program_is_found_beside_this_one(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const char *beside = ru_process_beside(&a, "rubato-test", "nowhere");
    const char *above = ru_process_beside(&a, "test/rubato-test", ".");
    assert_non_null(beside);
    assert_int_equal(access(beside, X_OK), 0);
    assert_non_null(above);
    assert_non_null(strstr(above, "/.././test/rubato-test"));
    assert_null(ru_process_beside(&a, "no-such-program", "test"));
    ru_arena_fini(&a);
}

static void a_process_goes_on_as_another_program(void **state)
{
    (void)state;
    ru_err err = {0};
    const char *argv[] = {"sh", "-c", "test $$ = \"$1\" && exit 7", "sh", NULL, NULL};
    assert_int_equal(ru_process_become("/no/such/program", argv, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "/no/such/program"));
    pid_t pid = fork();
    if (pid == 0) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)getpid());
        argv[4] = text;
        _exit(ru_process_become("/bin/sh", argv, NULL) == RU_OK ? 1 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
}

RU_TESTS(env_process, cmocka_unit_test(a_child_outlives_its_starter),
         cmocka_unit_test(a_process_goes_on_as_another_program),
         cmocka_unit_test(a_program_is_found_beside_this_one),
         cmocka_unit_test(both_streams_are_read_without_waiting),
         cmocka_unit_test(only_what_is_kept_goes_on), cmocka_unit_test(test_lines_and_exit_code),
         cmocka_unit_test(test_missing_program), cmocka_unit_test(test_killed_child))
