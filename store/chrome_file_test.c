/* Chrome traces of other programs: both outer forms, fractions of microseconds, what is refused. */
#include "test/scratch.h"
#include "test/test.h"

#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "store/chrome_file.h"
#include "trace/export/export.h"
#include "trace/read/fold.h"

static ru_status load(ru_scratch *f, const char *text, ru_trace *out)
{
    const char *path = ru_path_join(&f->arena, f->root, "t.json");
    assert_ok(ru_file_replace(path, text, (int64_t)strlen(text), &f->err), f->err);
    return ru_chrome_file_load(path, &f->arena, out, &f->err);
}

static const char events[] =
    "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":7,\"tid\":1,\"ts\":10.5,"
    "\"dur\":4.25},"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":7,\"tid\":2,\"ts\":\"11\","
    "\"dur\":\"0.001\"},"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":\"gpu\",\"tid\":7,\"ts\":12,"
    "\"dur\":5000000},"
    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":7},{\"ph\":\"X\",\"name\":\"no time\"},17]";

static void check(ru_scratch *f, const ru_trace *t)
{
    ru_span_facts facts;
    assert_ok(ru_trace_fold(t, &f->arena, &facts, &f->err), f->err);
    assert_int_equal(t->n_threads, 3);
    assert_int_equal(facts.n, 2);
    assert_string_equal(facts.facts[0].name, "gemm");
    assert_int_equal(facts.facts[0].total_ns, 5000000000); /* in two records: joined */
    assert_int_equal(facts.facts[0].took.count, 1);
    assert_string_equal(facts.facts[1].category, "cpu_op");
    assert_int_equal(facts.facts[1].total_ns, 4251);
    assert_int_equal(facts.facts[1].took.count, 2);
    assert_int_equal(t->first_ns, 10500);
    assert_int_equal(t->last_ns, 5000012000);
}

static void test_both_forms(void **state)
{
    ru_scratch *f = *state;
    ru_trace t;
    assert_ok(load(f, events, &t), f->err);
    check(f, &t);
    const char *object = ru_arena_printf(
        &f->arena, "{\"distributedInfo\":{\"rank\": 3},\"traceEvents\":%s}", events);
    assert_ok(load(f, object, &t), f->err);
    check(f, &t);
    assert_int_equal(t.rank, 3);
}

static void test_refused(void **state)
{
    ru_scratch *f = *state;
    ru_trace t;
    assert_int_equal(load(f, "{\"traceEvents\":", &t), RU_E_DATA);
    assert_non_null(strstr(f->err.text, "is not valid JSON"));
    assert_int_equal(load(f, "{\"a\":1}", &t), RU_E_DATA);
    assert_non_null(strstr(f->err.text, "traceEvents is missing"));
    assert_int_equal(load(f, "\x1f\x8b\x08 no gzip", &t), RU_E_DATA);
    assert_int_equal(ru_chrome_file_load("/nowhere.json", &f->arena, &t, &f->err), RU_E_MISSING);
    /* Times that no clock shows are left out. */
    assert_ok(load(f,
                   "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1e300,\"dur\":1},"
                   "{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":-1},"
                   "{\"ph\":\"X\",\"name\":\"a\",\"ts\":\"x\",\"dur\":1}]",
                   &t),
              f->err);
    assert_int_equal(t.records, 1); /* "x" reads as 0 */
}

/* Names of other programs have any length: they go through every export and come back. */
static void test_long_names(void **state)
{
    enum { LONG = 5000, HUGE = 100000, CUT = 8192 };
    ru_scratch *f = *state;
    ru_trace t, back;
    char *name = ru_arena_zalloc(&f->arena, HUGE + 1, 1);
    const char *out = ru_path_join(&f->arena, f->root, "out.json");
    const char *otlp = ru_path_join(&f->arena, f->root, "otlp.json");
    static const int64_t sizes[] = {LONG, HUGE};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes); k++) {
        ru_trace_clocks clocks;
        memset(name, 'a', (size_t)sizes[k]);
        const char *text = ru_arena_printf(
            &f->arena, "[{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"ts\":1,\"dur\":2}]", name,
            name);
        assert_ok(load(f, text, &t), f->err);
        assert_ok(ru_trace_align(&t, 1, &f->arena, &clocks, &f->err), f->err);
        assert_ok(ru_trace_otlp(&t, 1, &clocks, otlp, &f->err), f->err);
        assert_ok(ru_trace_chrome(&t, 1, NULL, out, &f->err), f->err);
        assert_ok(ru_chrome_file_load(out, &f->arena, &back, &f->err), f->err);
        const char *got = back.names[back.threads[0].records[0].name].name;
        assert_int_equal(strlen(got), sizes[k] == LONG ? LONG : CUT);
        assert_int_equal(strncmp(got, name, strlen(got)), 0);
    }
}

/* A line of 60 bytes does not ask for gigabytes of records. */
static void test_absurd_times(void **state)
{
    ru_scratch *f = *state;
    ru_trace t;
    assert_int_equal(load(f, "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1e15}]", &t),
                     RU_E_DATA);
    assert_non_null(strstr(f->err.text, "52 days"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(store_chrome_file, T(test_both_forms), T(test_refused), T(test_long_names),
         T(test_absurd_times))
