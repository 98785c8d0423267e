/* Processes by their parents and by when they began: this one, its parent and a child of it. */
#include "env/process/origin.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/test.h"

static void parents_are_above(void **state)
{
    (void)state;
    int gate[2];
    assert_true(ru_process_is_above(getpid()));
    assert_true(ru_process_is_above(getppid()));
    assert_int_equal(pipe(gate), 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        (void)close(gate[1]);
        bool fine = ru_process_is_above(getppid()) && read(gate[0], &byte, 1) == 0;
        _exit(fine ? 0 : 1);
    }
    assert_false(ru_process_is_above(pid));
    (void)close(gate[1]);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)close(gate[0]);
    assert_false(ru_process_is_above(pid));
}

static void a_file_is_older_or_not(void **state)
{
    (void)state;
    char path[] = "/tmp/rubato-origin-XXXXXX";
    int fd = mkstemp(path);
    struct timespec old[2] = {{.tv_sec = 86400}, {.tv_sec = 86400}};
    assert_true(fd >= 0);
    assert_false(ru_process_follows(getpid(), path));
    assert_int_equal(futimens(fd, old), 0); /* 1970 */
    assert_true(ru_process_follows(getpid(), path));
    assert_true(ru_process_follows(getppid(), path));
    assert_false(ru_process_follows(1 << 30, path));
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    assert_false(ru_process_follows(getpid(), path));
}

RU_TESTS(env_origin, cmocka_unit_test(a_file_is_older_or_not), cmocka_unit_test(parents_are_above))
