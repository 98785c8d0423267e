/* A child process crashes, or never comes back, inside of a user's call. */
#include "env/fault_impl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/file/file.h"
#include "env/thread.h"
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

static void exits(void)
{
    exit(0); // NOLINT(concurrency-mt-unsafe)
}

/* A child that the app forks may end as it likes. */
static void forks(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        exit(0); // NOLINT(concurrency-mt-unsafe)
    }
    if (pid < 0 || waitpid(pid, NULL, 0) != pid) {
        _exit(97);
    }
}

static void starts(void)
{
    ru_fault_leave();
    ru_fault_enter("first", RU_FAULT_NONE, RU_FAULT_NONE);
    (void)raise(SIGSEGV);
}

static void loops(void)
{
    for (volatile int i = 0;; i = i + 1) {
    }
}

static void one_call(void *self)
{
    ru_fault_enter("run", 4, 12);
    if (self != NULL) {
        (void)raise(SIGSEGV);
    }
    ru_fault_leave();
}

/* The thread that crashes is one of many. */
static void segv_of_many(void)
{
    ru_err err;
    ru_thread t;
    for (uint32_t k = 0; k <= 300; k++) {
        if (ru_thread_start(&t, "call", one_call, k == 300 ? &err : NULL, &err) != RU_OK) {
            _exit(98);
        }
        ru_thread_join(&t);
    }
}

static void comes_back(void)
{
}

/* A call that two workers make and neither survives: what each says, and why the job gives up. */
static void twice(fixture *f, void (*call)(void), const char *says, const char *gives_up)
{
    char why[256];
    assert_int_equal(child(f, call, 0), 1);
    assert_string_equal(f->text, says);
    assert_false(ru_fault_hopeless(f->file, 3, why)); /* another worker may try */
    assert_int_equal(child(f, call, 0), 1);
    assert_true(ru_fault_hopeless(f->file, 3, why));
    assert_string_equal(why, gives_up);
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
    twice(&f, segv,
          "rubato: app ./x.so crashed in run of executor 3, clock 12 (signal 11, an access to "
          "memory that is not its own); correct it\n",
          "crashed 2 workers in run of executor 3 in clock 12 (signal 11)");
    assert_false(ru_fault_hopeless(f.file, 4, why));
    assert_int_equal(child(&f, segv_of_many, 0), 1);
    assert_non_null(strstr(f.text, "crashed in run of executor 4, clock 12 (signal 11"));
    assert_int_equal(unlink(f.file), 0);
}

/* A library that calls exit must not look like a run that went well. */
static void test_exit(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    twice(
        &f, exits,
        "rubato: app ./x.so ended the process in run of executor 3, clock 12 (exit); correct it\n",
        "ended 2 workers in run of executor 3 in clock 12 (exit)");
    assert_int_equal(unlink(f.file), 0);
    assert_int_equal(child(&f, forks, 0), 0);
    assert_null(strstr(f.text, "rubato:")); /* a sanitizer may say something of its own */
    char why[256];
    assert_false(ru_fault_hopeless(f.file, 3, why));
}

/* Some functions belong to no executor and no clock. */
static void test_crash_before_all_clocks(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    twice(&f, starts,
          "rubato: app ./x.so crashed in first (signal 11, an access to memory that is not its "
          "own); correct it\n",
          "crashed 2 workers in first (signal 11)");
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

static void change(rui_fault_place *p, const char *name)
{
    p->name = name;
    p->calls++;
}

/* A short call of one function says nothing of another one. */
static void test_limit_of_each_function(void **state)
{
    (void)state;
    const int64_t s = 1000000000;
    rui_fault_place p = {.executor = 3, .clock = 12};
    rui_fault_longest l = {.n = 0};
    rui_fault_call late;
    assert_false(rui_fault_look(&p, &l, s, 0, &late)); /* nothing was called yet */
    change(&p, "exec_open");
    assert_false(rui_fault_look(&p, &l, s, 0, &late));
    change(&p, "exec_open"); /* back */
    assert_false(rui_fault_look(&p, &l, s, 0, &late));
    change(&p, "run"); /* the first: an hour */
    for (uint32_t k = 0; k <= 3600; k++) {
        assert_false(rui_fault_look(&p, &l, s, 0, &late));
    }
    assert_true(rui_fault_look(&p, &l, s, 0, &late));
    assert_string_equal(late.name, "run");
    assert_true(late.executor == 3 && late.clock == 12 && late.limit_ns == 3600 * s);
    p.age_ns = 2 * s;
    p.calls += 2; /* another one after the first, which took 2 s: fifty times that */
    for (uint32_t k = 0; k <= 100; k++) {
        assert_false(rui_fault_look(&p, &l, s, 0, &late));
    }
    assert_true(rui_fault_look(&p, &l, s, 0, &late));
    assert_true(late.limit_ns == 100 * s + 50);
    change(&p, "run");
    assert_false(rui_fault_look(&p, &l, s, 0, &late));
    change(&p, "exec_open"); /* known as short: a minute */
    for (uint32_t k = 0; k <= 60; k++) {
        assert_false(rui_fault_look(&p, &l, s, 0, &late));
    }
    assert_true(rui_fault_look(&p, &l, s, 0, &late));
    assert_true(late.limit_ns == 60 * s);
    p.age_ns = 0;
    assert_true(rui_fault_look(&p, &l, 2 * s, s, &late)); /* as the settings say */
    assert_true(late.limit_ns == s);
}

RU_TESTS(env_fault, cmocka_unit_test(test_crash), cmocka_unit_test(test_exit),
         cmocka_unit_test(test_crash_before_all_clocks), cmocka_unit_test(test_loop),
         cmocka_unit_test(test_limit_of_each_function))
