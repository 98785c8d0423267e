/* Processes: pipes, exit codes, what happens to missing programs. */
#include "env/process.h"
#include "test/test.h"

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
    assert_true(ru_process_peak_rss_bytes(ru_process_id(p)) > 0);
    ru_process_kill(p, 9);
    assert_int_equal(ru_process_wait(p), 128 + 9);
    ru_process_close(p);
}

RU_TESTS(env_process, cmocka_unit_test(test_lines_and_exit_code),
         cmocka_unit_test(test_missing_program), cmocka_unit_test(test_killed_child))
