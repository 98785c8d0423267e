/* The moving line: drawn over itself, cut at the terminal's width, wiped, told to a launcher. */
#include "test/test.h"
#include "train/run/live.h"

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

static void tells_a_launcher(void **state)
{
    (void)state;
    caught c;
    catch_start(&c, 1, stdout);
    ru_live_tell("step 3/4  [##..]");
    const char *line = catch_end(&c, stdout);
    assert_int_equal(line[strlen(line) - 1], '\n');
    int64_t n = -1;
    const char *text = ru_live_told(line, &n);
    assert_non_null(text);
    assert_int_equal(n, 16);
    assert_memory_equal(text, "step 3/4  [##..]", 16);
    assert_null(ru_live_told("{\"schema\":\"rubato.train.step/1\",\"step\":3}", &n));
    assert_null(ru_live_told("", &n));
}

RU_TESTS(train_live, cmocka_unit_test(draws_over_itself), cmocka_unit_test(tells_a_launcher))
