/* Slices, number reading, nearest words, the builder. */
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "test/test.h"

static void test_split_and_trim(void **state)
{
    (void)state;
    ru_str rest = ru_str_c("a,,bc,"), item;
    const char *want[] = {"a", "", "bc", ""};
    uint32_t n = 0;
    while (ru_str_next(&rest, ',', &item)) {
        assert_true(n < 4 && ru_str_eq_c(item, want[n]));
        n++;
    }
    assert_int_equal(n, 4);
    assert_true(ru_str_eq_c(ru_str_trim(ru_str_c(" \t x y\r\n")), "x y"));
    assert_int_equal(ru_str_find(ru_str_c("hello"), "lo"), 3);
    assert_int_equal(ru_str_find(ru_str_c("hello"), "xx"), -1);
    assert_true(ru_str_starts(ru_str_c("hello"), "he") && ru_str_ends(ru_str_c("hello"), "lo"));
    assert_false(ru_str_starts(ru_str_c("h"), "he"));
    assert_true(ru_str_eq_c(ru_str_from(ru_str_c("hello"), 3), "lo"));
}

static void test_numbers_are_strict(void **state)
{
    (void)state;
    int64_t i = 5;
    uint64_t u = 5;
    double f = 5;
    assert_true(ru_str_i64(ru_str_c("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_true(ru_str_u64(ru_str_c("0xffffffffffffffff"), &u) && u == UINT64_MAX);
    assert_true(ru_str_f64(ru_str_c("1e-3"), &f) && f == 1e-3);
    assert_true(ru_str_f64(ru_str_c("-inf"), &f) && isinf(f));
    i = 5;
    u = 5;
    f = 5;
    const char *bad[] = {"",    " 1",  "1 ", "1x", "0x", "--1", "9223372036854775808",
                         "1.5", "1e3", "x"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_false(ru_str_i64(ru_str_c(bad[k]), &i));
    }
    const char *bad_u[] = {"-1", "18446744073709551616", "", " 1"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad_u); k++) {
        assert_false(ru_str_u64(ru_str_c(bad_u[k]), &u));
    }
    const char *bad_f[] = {"", "1e999", "0x1p3", "nan(1)", "1.5f", " 1", "1,5"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad_f); k++) {
        assert_false(ru_str_f64(ru_str_c(bad_f[k]), &f));
    }
    assert_false(ru_str_i64(ru_str_n("1\0002", 3), &i));
    assert_true(i == 5 && u == 5 && f == 5);
}

/* Witness: the C library, to the bit. */
static void test_short_numbers(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t round = 0; round < 50000; round++) {
        char text[64];
        double got, want;
        ru_text t = ru_text_into(text, sizeof text);
        ru_text_put(&t, ((const char *[]){"", "-", "+"})[ru_rng_below(&rng, 3)]);
        uint32_t n = 1 + ru_rng_below(&rng, 20), dot = ru_rng_below(&rng, 24);
        for (uint32_t k = 0; k < n; k++) {
            ru_text_putf(&t, k == dot ? ".%u" : "%u", ru_rng_below(&rng, 10));
        }
        if (ru_rng_below(&rng, 2) == 0) {
            ru_text_putf(&t, "%c%+d", "eE"[ru_rng_below(&rng, 2)],
                         (int)ru_rng_below(&rng, 80) - 40);
        }
        want = strtod(text, NULL);
        if (!ru_str_f64(ru_str_c(text), &got) || memcmp(&got, &want, sizeof got) != 0) {
            fail_msg("%s: %.17g, not %.17g", text, got, want);
        }
    }
    const char *bad[] = {"1e",   "1e+", ".",   "-",     "e5",    "1..2",
                         "1.5.", "--1", "+-1", "1e5e5", "1e1000"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        double got = 7;
        assert_false(ru_str_f64(ru_str_c(bad[k]), &got));
        assert_true(got == 7);
    }
}

static void test_nearest(void **state)
{
    (void)state;
    const char *words[] = {"epochs", "optimizer", "batch", "seed", "momentum", "lr"};
    static const struct {
        const char *typed;
        int32_t want;
    } rows[] = {{"epoch", 0},    {"epcohs", 0}, {"optimiser", 1}, {"bacth", 2},  {"sead", 3},
                {"momentun", 4}, {"zzzz", -1},  {"", -1},         {"Epochs", 0}, {"opt", 1},
                {"lt", 5},       {"l", 5},      {"quantize", -1}, {"batchsz", 2}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        int32_t got = ru_str_nearest(ru_str_c(rows[i].typed), words, RU_ARRAY_LEN(words));
        if (got != rows[i].want) {
            fail_msg("nearest of '%s' is %d", rows[i].typed, got);
        }
    }
    assert_int_equal(ru_str_distance(ru_str_c("kitten"), ru_str_c("sitting")), 3);
    assert_int_equal(ru_str_distance(ru_str_c("ab"), ru_str_c("ba")), 1);
    assert_int_equal(ru_str_distance(ru_str_c(""), ru_str_c("abc")), 3);
}

static void test_builder_cuts_or_grows(void **state)
{
    (void)state;
    char buf[8];
    ru_text t = ru_text_into(buf, sizeof buf);
    ru_text_put(&t, "abc");
    ru_text_putf(&t, "%d", 123456);
    ru_text_put(&t, "z");
    assert_true(t.cut);
    assert_string_equal(buf, "abc1234");
    ru_arena a;
    ru_arena_init(&a, 0);
    t = ru_text_arena(&a);
    assert_string_equal(t.p, "");
    for (int i = 0; i < 1000; i++) {
        ru_text_putf(&t, "%d,", i);
    }
    assert_false(t.cut);
    assert_int_equal(t.n, strlen(t.p));
    assert_int_equal(t.n, 10 * 2 + 90 * 3 + 900 * 4);
    ru_arena_fini(&a);
    ru_arena_init(&a, 200);
    t = ru_text_arena(&a);
    ru_text_char(&t, 'x', 1000);
    assert_true(t.cut && t.n < 200);
    assert_int_equal(t.n, strlen(t.p));
    ru_arena_fini(&a);
}

static void test_shortest_doubles_read_back(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 8);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = ru_rng_u64(&r);
        double v, back;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v)) {
            continue;
        }
        char buf[40];
        ru_text t = ru_text_into(buf, sizeof buf);
        ru_text_f64(&t, v);
        assert_true(sscanf(buf, "%lf", &back) == 1);
        assert_memory_equal(&back, &v, sizeof v);
    }
    char buf[40];
    ru_text t = ru_text_into(buf, sizeof buf);
    ru_text_f64(&t, 0.1);
    ru_text_put(&t, " ");
    ru_text_f64(&t, -0.0);
    ru_text_put(&t, " ");
    ru_text_f64(&t, 1e22);
    assert_string_equal(buf, "0.1 -0 1e+22");
}

static void test_json_strings(void **state)
{
    (void)state;
    char buf[200];
    ru_text t = ru_text_into(buf, sizeof buf);
    ru_text_json(&t, ru_str_n("a\"\\\n\x01\xc3\xa9\xff\xed\xa0\x80\0z", 13));
    assert_string_equal(buf, "\"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                             "\xef\xbf\xbd\\u0000z\"");
}

/* Our own conversions against those of the C library, whole and cut. */
static void test_formats(void **state)
{
    (void)state;
    const int64_t numbers[] = {0, 1, -1, 9, 10, -10, 99, INT64_MAX, INT64_MIN, 0xabcdef};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(numbers); k++) {
        for (int64_t cap = 1; cap < 300; cap += cap < 120 ? 1 : 90) {
            char got[400], want[400];
            long long v = numbers[k];
            ru_text t = ru_text_into(got, cap);
#define FORMAT                                                                                     \
    "%d|%u|%x|%lld|%llu|%016llx|%05d|%03lld|%c%%|%s|%.*s|%ld|%lu|%08x|%5.1f|%-4d|%+d|%zu|%s end",  \
        (int)v, (unsigned)v, (unsigned)v, v, (unsigned long long)v, (unsigned long long)v, (int)v, \
        v, 'x', "text", 3, "abcdef", (long)v, (unsigned long)v, (unsigned)v, 2.5, (int)v, (int)v,  \
        sizeof v, "the"
            ru_text_putf(&t, FORMAT);
            int n = snprintf(want, (size_t)cap, FORMAT);
#undef FORMAT
            assert_string_equal(got, want);
            assert_int_equal(t.cut, n >= cap);
        }
    }
}

static void test_json_writer(void **state)
{
    (void)state;
    char buf[300];
    ru_text t = ru_text_into(buf, sizeof buf);
    ru_json j = ru_json_into(&t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "a", "x\"y");
    ru_json_open(&j, "list", '[');
    ru_json_i64(&j, NULL, INT64_MIN);
    ru_json_f64(&j, NULL, 0.1);
    ru_json_f64(&j, NULL, RU_NAN);
    ru_json_open(&j, NULL, '{');
    ru_json_close(&j);
    ru_json_close(&j);
    ru_json_bool(&j, "b", true);
    ru_json_str(&j, "n", NULL);
    ru_json_close(&j);
    assert_string_equal(buf, "{\"a\":\"x\\\"y\",\"list\":[-9223372036854775808,0.1,null,{}],"
                             "\"b\":true,\"n\":null}");
}

/* Against a matcher that tries every length of every star. */
static bool slow_match(const char *s, const char *p)
{
    if (*p != '*') {
        return *p == *s && (*p == '\0' || slow_match(s + 1, p + 1));
    }
    return slow_match(s, p + 1) || (*s != '\0' && slow_match(s + 1, p));
}

static void test_patterns_with_stars(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(11, 0);
    uint32_t hits = 0;
    for (uint32_t k = 0; k < 20000; k++) {
        char s[10] = {0}, p[8] = {0};
        for (uint32_t i = 0, n = ru_rng_below(&rng, 9); i < n; i++) {
            s[i] = "ab"[ru_rng_below(&rng, 2)];
        }
        for (uint32_t i = 0, n = ru_rng_below(&rng, 7); i < n; i++) {
            p[i] = "ab*"[ru_rng_below(&rng, 3)];
        }
        bool yes = slow_match(s, p);
        hits += yes;
        if (ru_str_match(ru_str_c(s), p, NULL, 0) != yes) {
            fail_msg("'%s' and '%s'", s, p);
        }
    }
    assert_in_range(hits, 1000, 15000);
    ru_str stars[2];
    assert_true(ru_str_match(ru_str_c("layer1.0.bn1.weight"), "layer*.bn*.weight", stars, 2));
    assert_true(ru_str_eq_c(stars[0], "1.0") && ru_str_eq_c(stars[1], "1"));
    assert_true(ru_str_match(ru_str_c("module."), "module.*", stars, 1));
    assert_true(ru_str_eq_c(stars[0], ""));
}

RU_TESTS(base_str, cmocka_unit_test(test_short_numbers), cmocka_unit_test(test_patterns_with_stars),
         cmocka_unit_test(test_formats), cmocka_unit_test(test_json_writer),
         cmocka_unit_test(test_split_and_trim), cmocka_unit_test(test_numbers_are_strict),
         cmocka_unit_test(test_nearest), cmocka_unit_test(test_builder_cuts_or_grows),
         cmocka_unit_test(test_shortest_doubles_read_back), cmocka_unit_test(test_json_strings))
