#include "fleet/latency.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "test/test.h"

static ru_status open_text(const char *text, ru_arena *arena, ru_latency_trace **out, ru_err *err)
{
    char dir[] = "/tmp/rubato-latency-XXXXXX";
    assert_non_null(mkdtemp(dir));
    const char *path = ru_path_join(arena, dir, "trace.csv");
    assert_ok(ru_file_own(path, text, (int64_t)strlen(text), err), *err);
    ru_status st = ru_latency_trace_open(path, arena, out, err);
    ru_err gone;
    assert_ok(ru_path_remove(dir, &gone), gone);
    return st;
}

static void expect(const ru_latency_trace *t, uint32_t client, uint32_t round, uint32_t turn,
                   double seconds)
{
    assert_true(fabs(ru_latency_trace_at(t, client, round, turn) - seconds) < 1e-12);
}

static void test_rows_in_turn(void **state)
{
    (void)state;
    ru_arena arena;
    ru_latency_trace *t;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    assert_ok(
        open_text("# of a phone\nbattery, seconds ,client\n1,2.5,anna\n\n9,7,bob\r\n,lost,anna\n",
                  &arena, &t, &err),
        err);
    expect(t, 0, 1, 0, 2.5);
    expect(t, 0, 9, 1, -1);
    expect(t, 0, 1, 2, 2.5);
    expect(t, 1, 1, 5, 7);
    expect(t, 7, 1, 0, 7); /* as the second one */
    ru_arena_fini(&arena);
}

static void test_rounds(void **state)
{
    (void)state;
    ru_arena arena;
    ru_latency_trace *t;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    assert_ok(open_text("client,round,seconds\na,30,3\na,10,1\nb,5,9\na,20,2\n", &arena, &t, &err),
              err);
    static const uint32_t rounds[] = {0, 9, 10, 19, 20, 29, 30, 1000};
    static const double seconds[] = {1, 1, 1, 1, 2, 2, 3, 3};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rounds); k++) {
        expect(t, 0, rounds[k], 77, seconds[k]);
        expect(t, 1, rounds[k], k, 9);
    }
    ru_arena_fini(&arena);
}

static void test_refusals_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "has no row"},
               {"client,seconds\n", "has no row"},
               {"client,time\na,1\n", "trace.csv:1: the first line"},
               {"client,seconds,client\na,1,a\n", "trace.csv:1: two columns are named 'client'"},
               {"client,seconds\na,1\n\nb,-1\n", "trace.csv:4: expected seconds above 0"},
               {"client,seconds\na,nan\n", "trace.csv:2: expected seconds"},
               {"client,seconds\na,1e7\n", "trace.csv:2: expected seconds"},
               {"client,seconds\na\n", "trace.csv:2: the line has 1 fields; column 2"},
               {"client,seconds\n,1\n", "trace.csv:2: a row without a client"},
               {"client,seconds,round\na,1,0\n", "trace.csv:2: expected the number of a round"},
               {"client,seconds,round\na,1,2\nb,1,2\na,3,2\n", "trace.csv:4: line 2 has this"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        ru_arena arena;
        ru_latency_trace *t;
        ru_err err = {0};
        ru_arena_init(&arena, 0);
        assert_int_equal(open_text(bad[k].text, &arena, &t, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, bad[k].says));
        ru_arena_fini(&arena);
    }
}

/* The median of each law is 1; their quartiles are those of the formulas. */
static void test_laws(void **state)
{
    (void)state;
    enum { N = 40000 };
    static const struct {
        ru_latency_law law;
        double spread, quarter, three;
    } laws[] = {{RU_LATENCY_LOGNORMAL, 0.8, 0.58298, 1.71533},
                {RU_LATENCY_PARETO, 0.8, 0.72334, 1.74110},
                {RU_LATENCY_UNIFORM, 0.8, 0.6, 1.4}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(laws); k++) {
        ru_rng rng = ru_rng_from(7, k);
        uint32_t below[3] = {0};
        for (uint32_t i = 0; i < N; i++) {
            double v = ru_latency_speed(laws[k].law, laws[k].spread, &rng);
            below[0] += v < laws[k].quarter;
            below[1] += v < 1;
            below[2] += v < laws[k].three;
        }
        for (uint32_t i = 0; i < 3; i++) { /* five deviations */
            assert_true(fabs(below[i] - N * 0.25 * (i + 1)) < 5 * sqrt(N * 0.25));
        }
    }
}

RU_TESTS(fleet_latency, cmocka_unit_test(test_rows_in_turn), cmocka_unit_test(test_rounds),
         cmocka_unit_test(test_refusals_name_the_line), cmocka_unit_test(test_laws))
