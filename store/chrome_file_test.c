/* Chrome traces of other programs: both outer forms, fractions of microseconds, what is refused. */
#include "test/test.h"

#include <stdio.h>
#include <string.h>

#include "env/file.h"
#include "store/chrome_file.h"
#include "trace/fold.h"

typedef struct fixture {
    char root[64];
    ru_arena arena;
    ru_err err;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->root, sizeof f->root, "/tmp/rubato-test-XXXXXX");
    ru_arena_init(&f->arena, 0);
    *state = f;
    return mkdtemp(f->root) == NULL;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ru_status st = ru_path_remove(f->root, NULL);
    ru_arena_fini(&f->arena);
    free(f);
    return st != RU_OK;
}

static ru_status load(fixture *f, const char *text, ru_trace *out)
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

static void check(fixture *f, const ru_trace *t)
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
    fixture *f = *state;
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
    fixture *f = *state;
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

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
RU_TESTS(store_chrome_file, T(test_both_forms), T(test_refused))
