/* Processes: pipes, exit codes, what happens to missing programs. */
#include "env/process/process.h"
#include "test/test.h"

#include <stdio.h>
#include <string.h>

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

RU_TESTS(env_process, cmocka_unit_test(both_streams_are_read_without_waiting),
         cmocka_unit_test(test_lines_and_exit_code), cmocka_unit_test(test_missing_program),
         cmocka_unit_test(test_killed_child))
