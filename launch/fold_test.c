#include "launch/fold.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "test/test.h"

typedef struct seen {
    ru_text all;
} seen;

static void take(void *self, const char *text, int64_t n)
{
    seen *s = self;
    ru_text_put_n(&s->all, text, n);
    ru_text_put(&s->all, "\n");
}

static const int64_t ms = 1000000;

static ru_fold *open_fold(ru_arena *a, seen *s, uint32_t workers, uint32_t lines, uint32_t bytes)
{
    ru_fold *f = NULL;
    ru_err err;
    *s = (seen){ru_text_arena(a)};
    ru_fold_options o = {.workers_max = workers,
                         .lines_max = lines,
                         .line_bytes_max = bytes,
                         .line = take,
                         .self = s};
    assert_ok(ru_fold_open(&o, a, &f, &err), err);
    return f;
}

static void put(ru_fold *f, uint32_t worker, const char *text, int64_t at_ms)
{
    ru_fold_bytes(f, worker, text, (int64_t)strlen(text), (ru_time){at_ms * ms});
}

static void test_folds(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    seen s;
    ru_fold *f = open_fold(&a, &s, 8, 0, 0);
    for (uint32_t k = 1; k <= 8; k++) {
        put(f, k, "reading\n", 0);
    }
    assert_string_equal(s.all.p, "workers 1-8 | reading\n"); /* all wrote it: nobody to wait for */
    s.all.n = 0;
    put(f, 1, "a\nb\n", 10);
    put(f, 3, "a\n", 11);
    put(f, 4, "a\n", 12);
    put(f, 2, "b\na\n", 13);
    put(f, 1, "a\n", 14);
    assert_int_equal(s.all.n, 0);
    assert_int_equal(ru_fold_tick(f, (ru_time){209 * ms}).ns, 210 * ms);
    assert_int_equal(ru_fold_tick(f, (ru_time){400 * ms}).ns, INT64_MAX);
    assert_string_equal(s.all.p, "workers 1,3-4 | a\nworkers 1-2 | b\nworkers 1-2 | a\n");
    s.all.n = 0;
    ru_fold_workers(f, 1, (ru_time){500 * ms});
    put(f, 5, "alone\n", 501);
    assert_string_equal(s.all.p, "worker 5 | alone\n");
    ru_arena_fini(&a);
}

/* No byte of a worker reaches a terminal that obeys it. */
static void test_controls(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    seen s;
    ru_fold *f = open_fold(&a, &s, 1, 0, 8);
    put(f, 1, "\033[2Ja\tb\n", 0);
    put(f, 1, "\a\b\f\v\177\n", 0);
    put(f, 1, "\xc3\x9c \xe2\x82\xac\n", 0); /* text whose bytes are controls by themselves */
    put(f, 1,
        "\xc2\x9b"
        "2J \x9b"
        "1m\n",
        0);
    put(f, 1, "1234567\xc3", 0); /* cut inside a character */
    put(f, 1, "\x9c\n\xc3\n\x9bK\n", 0);
    assert_string_equal(s.all.p, "worker 1 | ?[2Ja\tb\n"
                                 "worker 1 | ?????\n"
                                 "worker 1 | \xc3\x9c \xe2\x82\xac\n"
                                 "worker 1 | \xc2?2J ?1m\n"
                                 "worker 1 | 1234567\xc3\n"
                                 "worker 1 | \x9c\n"
                                 "worker 1 | \xc3\n"
                                 "worker 1 | ?K\n");
    for (uint32_t b = 0; b < 256; b++) { /* each byte after each, also of an unknown worker */
        for (uint32_t c = 0; c < 256; c++) {
            const char two[] = {(char)b, (char)c, '\n'};
            s.all.n = 0;
            ru_fold_bytes(f, 1 + c % 2, two, 3, (ru_time){0});
            for (int64_t i = 0; i < s.all.n; i++) {
                uint8_t x = (uint8_t)s.all.p[i], before = i > 0 ? (uint8_t)s.all.p[i - 1] : 0;
                assert_true((x >= 0x20 || x == '\n' || x == '\t') && x != 0x7f);
                assert_true(x < 0x80 || x > 0x9f || before > 0xc2);
            }
        }
    }
    ru_arena_fini(&a);
}

static void test_pieces(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    seen s;
    ru_fold *f = open_fold(&a, &s, 2, 0, 8);
    ru_fold_workers(f, 1, (ru_time){0});
    put(f, 1, "ab", 0);
    put(f, 1, "cd\n10%\r20%\r", 0);
    put(f, 1, "30%\r\n\n", 0);
    put(f, 1, "123456789\n", 0);
    put(f, 7, "beyond\n", 0);
    put(f, 2, "no end", 0);
    ru_fold_end(f, 2, (ru_time){0});
    assert_string_equal(s.all.p, "worker 1 | abcd\nworker 1 | 30%\nworker 1 | \n"
                                 "worker 1 | 12345678\nworker 1 | 9\nworker 7 | beyond\n"
                                 "worker 2 | no end\n");
    ru_arena_fini(&a);
}

/* Who ended is not waited for; a list too long for its line says how many more; a zero byte does
 * not end anything. */
static void test_ends_and_bounds(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    seen s;
    ru_fold *f = open_fold(&a, &s, 4, 0, 0);
    put(f, 1, "one\n", 0);
    put(f, 2, "one\n", 0);
    assert_int_equal(s.all.n, 0);
    ru_fold_workers(f, 2, (ru_time){ms});
    assert_string_equal(s.all.p, "workers 1-2 | one\n");
    s.all.n = 0;
    ru_fold_bytes(f, 3, "a\0b\n", 4, (ru_time){ms});
    ru_fold_flush(f);
    assert_string_equal(s.all.p, "worker 3 | a?b\n");
    f = open_fold(&a, &s, 2000, 0, 0);
    for (uint32_t k = 1; k <= 1999; k += 2) {
        put(f, k, "odd\n", 0);
    }
    ru_fold_flush(f);
    unsigned more = 0;
    const char *and = strstr(s.all.p, " and ");
    assert_non_null(and);
    assert_int_equal(sscanf(and, " and %u more | odd\n", &more), 1);
    for (const char *c = s.all.p; c < and; c++) { /* each one named has a comma or is the last */
        more += *c == ',';
    }
    assert_int_equal(more + 1, 1000);
    ru_arena_fini(&a);
}

/* Whatever comes in whatever cuts: each worker's lines come out once, in their order; nothing is
 * allocated after open. */
static void test_order_is_kept(void **state)
{
    (void)state;
    enum { WORKERS = 40, LINES = 40 };
    ru_rng r = ru_rng_from(ru_test_seed(), 9);
    for (uint32_t round = 0; round < 20; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        seen s;
        ru_fold *f = open_fold(&a, &s, WORKERS, 1 + ru_rng_below(&r, 30), 0);
        static char out[1 << 20];
        s.all = ru_text_into(out, sizeof out);
        uint32_t next[WORKERS] = {0};
        uint32_t word[WORKERS][LINES];
        ru_alloc_seal();
        for (int64_t t = 0; t < WORKERS * LINES; t++) {
            uint32_t k = ru_rng_below(&r, WORKERS);
            if (next[k] < LINES) {
                uint32_t w = word[k][next[k]++] = ru_rng_below(&r, 5);
                char text[16];
                int n = snprintf(text, sizeof text, "w%u\n", w);
                ru_fold_bytes(f, k + 1, text, 1, (ru_time){t * ms});
                ru_fold_bytes(f, k + 1, text + 1, n - 1, (ru_time){t * ms});
            }
        }
        ru_fold_flush(f);
        ru_alloc_unseal();
        uint32_t seen_of[WORKERS] = {0};
        ru_str rest = ru_str_c(s.all.p), line;
        while (ru_str_next(&rest, '\n', &line) && line.n > 0) {
            int64_t bar = ru_str_find(line, " | ");
            uint32_t w = (uint32_t)(line.p[bar + 4] - '0');
            ru_str names = ru_str_n(line.p, bar), part;
            names = ru_str_from(names, ru_str_find(names, " ") + 1);
            while (ru_str_next(&names, ',', &part)) {
                int64_t lo, hi, dash = ru_str_find(part, "-");
                assert_true(ru_str_i64(dash < 0 ? part : ru_str_n(part.p, dash), &lo));
                hi = lo;
                assert_true(dash < 0 || ru_str_i64(ru_str_from(part, dash + 1), &hi));
                for (int64_t k = lo; k <= hi; k++) {
                    assert_int_equal(word[k - 1][seen_of[k - 1]++], w);
                }
            }
        }
        for (uint32_t k = 0; k < WORKERS; k++) {
            assert_int_equal(seen_of[k], next[k]);
        }
        ru_arena_fini(&a);
    }
}

RU_TESTS(launch_fold, cmocka_unit_test(test_folds), cmocka_unit_test(test_controls),
         cmocka_unit_test(test_pieces), cmocka_unit_test(test_ends_and_bounds),
         cmocka_unit_test(test_order_is_kept))
