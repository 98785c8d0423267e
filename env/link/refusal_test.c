/* Refusals are told once, then counted; however many hosts and sentences come. */
#include "env/link/refusal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "test/test.h"

typedef struct book {
    ru_refusals r;
    ru_log_options was;
    int fd;
} book;

static void book_open(book *b)
{
    memset(b, 0, sizeof *b);
    b->was = ru_log_get();
    b->fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(b->fd >= 0);
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF, .level_file = RU_LOG_WARN, .fd_file = b->fd});
}

static void book_close(book *b)
{
    ru_log_set(&b->was);
    close(b->fd);
}

/* Lines that hold `word`; NULL: all. */
static uint32_t lines(const book *b, const char *word)
{
    static char text[1 << 20];
    ssize_t n = pread(b->fd, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    uint32_t found = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        found += word == NULL || strstr(line, word) != NULL;
    }
    return found;
}

static ru_time at(int64_t seconds)
{
    return (ru_time){seconds * 1000000000};
}

static void test_once_and_then_counted(void **state)
{
    (void)state;
    book b;
    book_open(&b);
    char sentence[64], address[32];
    for (uint32_t k = 0; k < 1000; k++) {
        snprintf(sentence, sizeof sentence,
                 "received data is not a Rubato frame (it begins with %#x)", k);
        snprintf(address, sizeof address, "10.0.0.1:%u", k);
        ru_refusals_add(&b.r, "comm", address, sentence, at(1));
        snprintf(sentence, sizeof sentence, "it refuses the connection: %c%c", 'a' + k % 26,
                 'a' + k / 26 % 26);
        ru_refusals_add(&b.r, "comm", address, sentence, at(1));
    }
    assert_int_equal(lines(&b, NULL), 2);
    ru_refusals_add(&b.r, "comm", "10.0.0.2:1", "it refuses the connection: no", at(2));
    assert_int_equal(lines(&b, NULL), 3);
    ru_refusals_tick(&b.r, "comm", at(30));
    assert_int_equal(lines(&b, NULL), 3);
    ru_refusals_tick(&b.r, "comm", at(63));
    assert_int_equal(lines(&b, "; 999 more since then"), 2);
    assert_int_equal(b.r.n, 2); /* 10.0.0.2 is forgotten */
    ru_refusals_add(&b.r, "comm", "10.0.0.1:7", "it refuses the connection: again", at(64));
    assert_int_equal(lines(&b, NULL), 5);
    ru_refusals_end(&b.r, "comm");
    assert_int_equal(lines(&b, "; 1 more since then"), 1);
    assert_int_equal(b.r.n, 0);
    book_close(&b);
}

/* A flood from ever new hosts costs a bounded number of lines a minute. */
static void test_many_hosts(void **state)
{
    (void)state;
    book b;
    book_open(&b);
    char address[32];
    for (uint32_t k = 0; k < 12000; k++) { /* two minutes */
        snprintf(address, sizeof address, "10.%u.%u.1:9", k / 256, k % 256);
        ru_refusals_add(&b.r, "comm", address, "it says nothing", at(1 + k / 100));
        ru_refusals_tick(&b.r, "comm", at(1 + k / 100));
    }
    ru_refusals_end(&b.r, "comm");
    assert_in_range(lines(&b, NULL), RU_REFUSALS_MAX, 3 * (RU_REFUSALS_MAX + 1));
    assert_in_range(lines(&b, "further hosts"), 1, 3);
    book_close(&b);
}

RU_TESTS(env_refusal, cmocka_unit_test(test_once_and_then_counted),
         cmocka_unit_test(test_many_hosts))
