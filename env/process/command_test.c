/* Commands with real processes: what they say however much it is, and when they have ended. */
#include "env/process/command.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "test/test.h"

static const int64_t look_ns = 1000000, patience_ns = 300 * INT64_C(1000000000);

typedef struct heard {
    ru_command c;
    int64_t bytes, lines;
    char first[64]; /* of its output */
    int64_t ahead_ns;
    int code;
} heard;

static void words(void *self, const char *bytes, int64_t n)
{
    heard *h = self;
    for (int64_t k = 0; k < n; k++, h->bytes++) {
        h->lines += bytes[k] == '\n';
        if (h->bytes < (int64_t)sizeof h->first - 1) {
            h->first[h->bytes] = bytes[k];
        }
    }
}

static void look(void *self, uint32_t what, ru_time now)
{
    heard *h = self;
    ru_loop *loop = h->c.loop;
    (void)what;
    if (ru_command_ended(&h->c, patience_ns, ru_time_after(now, h->ahead_ns), &h->code)) {
        ru_loop_stop(loop);
    } else {
        ru_loop_timer(loop, look, h, 0, ru_time_after(now, look_ns));
    }
}

/* Run one until it has ended; it believes that `ahead_ns` have passed already. */
static void run(heard *h, const char *line, int64_t ahead_ns)
{
    ru_err err = {0};
    ru_loop *loop;
    const char *argv[] = {"sh", "-c", line, NULL};
    *h = (heard){.c = {.words = words, .self = h}, .ahead_ns = ahead_ns, .code = -1};
    assert_ok(ru_loop_open(&loop, &err), err);
    assert_ok(ru_command_start(&h->c, loop, argv, NULL, ru_clock_now(), &err), err);
    look(h, 0, ru_clock_now());
    assert_ok(ru_loop_run(loop, &err), err);
    assert_null(h->c.p);
    ru_loop_close(loop);
}

static void all_of_it_is_heard(void **state)
{
    (void)state;
    heard h;
    run(&h, "seq 1 200000; seq 1 100000 >&2; echo >&2; printf 'the\\033[1m end' >&2; exit 7", 0);
    assert_int_equal(h.code, 7);
    assert_int_equal(h.lines, 200000);
    assert_int_equal(h.bytes, 9 * 2 + 90 * 3 + 900 * 4 + 9000 * 5 + 90000 * 6 + 100001 * 7);
    assert_string_equal(h.c.last, "the [1m end");
    assert_true(h.c.whole);
}

/* Its process decides, not who holds its output. */
static void it_ends_with_its_process(void **state)
{
    (void)state;
    heard h;
    run(&h, "sleep 1000 & echo $!; exit 3", 0);
    assert_int_equal(h.code, 3);
    assert_false(h.c.whole); /* it could say more */
    long long left = strtoll(h.first, NULL, 10);
    assert_true(left > 1 && kill((pid_t)left, SIGKILL) == 0); /* what it left goes on */
    run(&h, "exec >&- 2>&-; exec sleep 1000", patience_ns + 1);
    assert_int_equal(h.code, 128 + SIGKILL);
    assert_string_equal(h.c.last, "no end in 300 s");
    run(&h, "yes & exec yes", patience_ns + 1); /* it speaks all the time */
    assert_int_equal(h.code, 128 + SIGKILL);
}

static void what_cannot_start_is_told(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_loop *loop;
    ru_command c = {0};
    int code;
    const char *argv[] = {"no-such-program-anywhere", NULL};
    assert_ok(ru_loop_open(&loop, &err), err);
    assert_int_equal(ru_command_start(&c, loop, argv, NULL, ru_clock_now(), &err), RU_E_MISSING);
    assert_false(ru_command_ended(&c, patience_ns, ru_clock_now(), &code));
    ru_command_close(&c);
    ru_loop_close(loop);
}

/* Who closes one that runs ends what it has started, too: nobody holds its output any more. */
static void nothing_of_it_is_left(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_loop *loop;
    char byte, path[] = "/tmp/rubato-command-XXXXXX";
    assert_non_null(mkdtemp(path));
    char line[256], fifo[64];
    snprintf(fifo, sizeof fifo, "%s/fifo", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(line, sizeof line, "exec 3>%s; (sleep 5; echo late >&3) & printf x >&3; wait", fifo);
    const char *argv[] = {"sh", "-c", line, NULL};
    ru_command c = {0};
    assert_ok(ru_loop_open(&loop, &err), err);
    assert_ok(ru_command_start(&c, loop, argv, NULL, ru_clock_now(), &err), err);
    int fd = open(fifo, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &byte, 1), 1); /* it has started what it starts */
    ru_command_close(&c);
    assert_int_equal(read(fd, &byte, 1), 0); /* comes when the last one is gone */
    close(fd);
    unlink(fifo);
    rmdir(path);
    ru_loop_close(loop);
}

RU_TESTS(env_command, cmocka_unit_test(nothing_of_it_is_left), cmocka_unit_test(all_of_it_is_heard),
         cmocka_unit_test(it_ends_with_its_process), cmocka_unit_test(what_cannot_start_is_told))
