/* A child process crashes, or never comes back, inside of a user's call. */
#include "env/fault.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/file.h"
#include "test/test.h"

typedef struct fixture {
    char file[64], text[2048];
    int64_t n;
} fixture;

static void begin(fixture *f)
{
    *f = (fixture){0};
    (void)snprintf(f->file, sizeof f->file, "/tmp/rubato-fault-%ld", (long)getpid());
    (void)unlink(f->file);
}

/* Run one call in a child; its exit code. What it says to people is in f->text. */
static int child(fixture *f, void (*call)(void), int64_t limit_ns)
{
    int ends[2], code = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ru_err err;
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        const ru_fault_options o = {.who = "app ./x.so",
                                    .what_now = "; correct it",
                                    .file = f->file,
                                    .key = "limit",
                                    .limit_ns = limit_ns};
        if (ru_fault_open(&o, &err) != RU_OK) {
            _exit(99);
        }
        ru_fault_enter("run", 3, 12);
        call();
        ru_fault_leave();
        ru_fault_close();
        _exit(0);
    }
    (void)close(ends[1]);
    f->n = 0;
    for (int64_t n; (n = read(ends[0], f->text + f->n, sizeof f->text - 1 - (size_t)f->n)) > 0;) {
        f->n += n;
    }
    f->text[f->n] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}

static void segv(void)
{
    (void)raise(SIGSEGV);
}

static void loops(void)
{
    for (volatile int i = 0;; i = i + 1) {
    }
}

static void comes_back(void)
{
}

static void test_crash(void **state)
{
    (void)state;
    fixture f;
    char why[256];
    begin(&f);
    assert_int_equal(child(&f, comes_back, 0), 0);
    assert_int_equal(f.n, 0);
    assert_false(ru_fault_hopeless(f.file, 3, why));
    assert_int_equal(child(&f, segv, 0), 1);
    assert_string_equal(f.text, "rubato: app ./x.so crashed in run of executor 3, clock 12 (signal "
                                "11, an access to memory that is not its own); correct it\n");
    assert_false(ru_fault_hopeless(f.file, 3, why)); /* another worker may try */
    assert_int_equal(child(&f, segv, 0), 1);
    assert_true(ru_fault_hopeless(f.file, 3, why));
    assert_string_equal(why, "crashed 2 workers in run of executor 3 in clock 12 (signal 11)");
    assert_false(ru_fault_hopeless(f.file, 4, why));
    assert_int_equal(unlink(f.file), 0);
}

static void test_loop(void **state)
{
    (void)state;
    fixture f;
    char why[256];
    begin(&f);
    assert_int_equal(child(&f, loops, 1), 1);
    assert_non_null(strstr(f.text, "did not return from run of executor 3, clock 12 within 0 s "
                                   "(limit); correct it"));
    assert_true(ru_fault_hopeless(f.file, 3, why));
    assert_string_equal(why, "did not return from run of executor 3 in clock 12");
    assert_int_equal(unlink(f.file), 0);
}

RU_TESTS(env_fault, cmocka_unit_test(test_crash), cmocka_unit_test(test_loop))
