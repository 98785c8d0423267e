/* Lines that come in pieces of every size, in every encoding. */
#include "data/format/lines.h"

#include <string.h>

#include "test/test.h"

typedef struct pieces {
    const char *text;
    int64_t n, at, most; /* bytes at a time */
} pieces;

static int64_t give(void *self, void *into, int64_t size)
{
    pieces *p = self;
    int64_t n = p->n - p->at < p->most ? p->n - p->at : p->most;
    n = n < size ? n : size;
    memcpy(into, p->text + p->at, (size_t)n);
    p->at += n;
    return n;
}

#define TEXT(t) t, sizeof t - 1

static void test_encodings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t n;
        const char *want; /* each line in brackets; NULL: it is no text */
    } rows[] = {
        {TEXT(""), ""},
        {TEXT("a,b\n1,2\n"), "[a,b][1,2]"},
        {TEXT("a\n\n1"), "[a][][1]"},
        {TEXT("a\r\n1\r\n"), "[a\r][1\r]"},
        {TEXT("a\r1\r2"), "[a][1][2]"},
        {TEXT("a\n1\r2"), "[a][1\r2]"},
        {TEXT("\xef\xbb\xbfgr\xc3\xbcn\n1\n"), "[gr\xc3\xbcn][1]"},
        {TEXT("gr\xfcn\n1\n"), "[gr\xc3\xbcn][1]"},
        {TEXT("gr\xfcn\ngr\xc3\xbc\n"), "[gr\xc3\xbcn][gr\xc3\x83\xc2\xbc]"},
        {TEXT("\xff\xfe"
              "g\0\xfc\0\n\0\0\x0a\n\0"
              "1\0"),
         "[g\xc3\xbc][\xe0\xa8\x80][1]"},
        {TEXT("\xfe\xff"
              "\0g\0\xfc\0\n\x0a\0\0\n\0"
              "1"),
         "[g\xc3\xbc][\xe0\xa8\x80][1]"},
        {TEXT("\xff\xfe"
              "a\0\r\0"
              "1\0\r\0"),
         "[a][1]"},
        {TEXT("\xfe\xff"
              "\0a\0\r\0"
              "1\0\r"),
         "[a][1]"},
        {TEXT("a\n\0001\n"), NULL},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        for (int64_t most = 1; most <= rows[k].n + 1; most++) {
            pieces p = {rows[k].text, rows[k].n, 0, most};
            ru_arena arena;
            ru_lines *l;
            ru_err err = {0};
            char got[200] = "";
            ru_text t = ru_text_into(got, sizeof got);
            bool found = true;
            ru_arena_init(&arena, 0);
            assert_ok(ru_lines_open("stdin", give, &p, &arena, &l, &err), err);
            ru_status st = RU_OK;
            while (st == RU_OK && found) {
                ru_str line = {0};
                st = ru_lines_next(l, &line, &found, &err);
                if (st == RU_OK && found) {
                    ru_text_putf(&t, "[%.*s]", RU_STR_ARG(line));
                }
            }
            if (rows[k].want == NULL) {
                assert_int_equal(st, RU_E_DATA);
                assert_non_null(strstr(err.text, "stdin: byte 2 is 0, so the file is no text"));
            } else {
                assert_ok(st, err);
                assert_string_equal(got, rows[k].want);
            }
            ru_lines_close(l);
            ru_arena_fini(&arena);
        }
    }
}

/* Lines longer than what is read at once, one behind the other. */
static void test_long_lines(void **state)
{
    (void)state;
    enum { LINE = 300001, LINES = 3 };
    ru_arena arena;
    ru_lines *l;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    char *text = ru_arena_alloc(&arena, LINE * LINES, 1);
    for (int64_t i = 0; i < (int64_t)LINE * LINES; i++) {
        text[i] = (char)(i % LINE == LINE - 1 ? '\n' : 'a' + i / LINE + i % 7);
    }
    pieces p = {text, (int64_t)LINE * LINES, 0, 50000};
    assert_ok(ru_lines_open("stdin", give, &p, &arena, &l, &err), err);
    for (int64_t k = 0; k <= LINES; k++) {
        ru_str line;
        bool found;
        assert_ok(ru_lines_next(l, &line, &found, &err), err);
        assert_int_equal(found, k < LINES);
        if (found) {
            assert_int_equal(line.n, LINE - 1);
            assert_memory_equal(line.p, text + k * LINE, LINE - 1);
        }
    }
    ru_lines_close(l);
    ru_arena_fini(&arena);
}

/* A stop in the middle of a line: lines before it are whole, the rest of it is not. */
static int64_t give_and_stop(void *self, void *into, int64_t size)
{
    int64_t n = give(self, into, size);
    return n > 0 ? n : RU_LINES_STOPPED;
}

static const char *stopped_at(const char *text, ru_lines_fn fn, ru_err *err, char *got, int64_t cap)
{
    pieces p = {text, (int64_t)strlen(text), 0, 3};
    ru_arena arena;
    ru_lines *l;
    ru_text t = ru_text_into(got, cap);
    ru_arena_init(&arena, 0);
    assert_ok(ru_lines_open("stdin", fn, &p, &arena, &l, err), *err);
    ru_status st = RU_OK;
    for (bool found = true; found && st == RU_OK;) {
        ru_str line = {0};
        st = ru_lines_next(l, &line, &found, err);
        if (st == RU_OK && found) {
            ru_text_putf(&t, "[%.*s]", RU_STR_ARG(line));
        }
    }
    assert_true(st == RU_OK || st == RU_E_DATA);
    ru_lines_close(l);
    ru_arena_fini(&arena);
    return got;
}

static void test_stopped(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"1,2\n12", "[1,2]"}, {"1,2\n12\n", "[1,2][12]"}, {"1,2\r12\r1", "[1,2][12]"}, {"12", ""}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        char got[100] = "";
        ru_err err = {0};
        assert_string_equal(stopped_at(rows[k][0], give_and_stop, &err, got, sizeof got),
                            rows[k][1]);
    }
}

/* What was answered as UTF-8 cannot become Latin-1 afterwards. */
static void test_two_encodings(void **state)
{
    (void)state;
    char got[100] = "";
    ru_err err = {0};
    stopped_at("gr\xc3\xbcn\ngr\xfcn\n", give, &err, got, sizeof got);
    assert_string_equal(got, "[gr\xc3\xbcn]");
    assert_non_null(strstr(err.text, "stdin: the line at byte 6 is not UTF-8"));
}

RU_TESTS(data_lines, cmocka_unit_test(test_encodings), cmocka_unit_test(test_stopped),
         cmocka_unit_test(test_two_encodings), cmocka_unit_test(test_long_lines))
