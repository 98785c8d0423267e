/* The moving line: drawn over itself, cut at the terminal's width, wiped. */
#include "run/live.h"
#include "test/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct caught {
    int kept, fd;
    FILE *stream;
    char text[512];
} caught;

static void catch_start(caught *c, int fd, FILE *stream)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    *c = (caught){.fd = fd, .stream = f};
    (void)fflush(stream);
    c->kept = dup(fd);
    assert_true(c->kept >= 0 && dup2(fileno(f), fd) >= 0);
}

static const char *catch_end(caught *c, FILE *stream)
{
    (void)fflush(stream);
    (void)dup2(c->kept, c->fd);
    close(c->kept);
    rewind(c->stream);
    c->text[fread(c->text, 1, sizeof c->text - 1, c->stream)] = '\0';
    (void)fclose(c->stream);
    return c->text;
}

static void draws_over_itself(void **state)
{
    (void)state;
    caught c;
    ru_live l = {.columns = 8}, none = {0};
    catch_start(&c, 2, stderr);
    ru_live_clear(&l);
    ru_live_draw(&l, "123456789", 9);
    ru_live_draw(&l, "abcdef", 3);
    ru_live_clear(&l);
    ru_live_clear(&l);
    ru_live_draw(&none, "never", 5);
    assert_string_equal(catch_end(&c, stderr), "\r1234567\rabc    \r   \r");
}

RU_TESTS(run_live, cmocka_unit_test(draws_over_itself))
