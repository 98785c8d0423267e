/* Errors of predictors, by hand. */
#include "test/test.h"
#include "trace/predicted.h"

#include <math.h>
#include <string.h>

enum { N_OP, N_SUM, N_SEND, NAMES };

static const ru_trace_name names[NAMES] = {
    {"op", "Gemm"}, {"sum", "gradients"}, {"send", "normal"}};

static int64_t put(ru_record *at, uint16_t name, ru_rec_kind kind, int64_t start_ns, uint32_t took,
                   uint32_t said, int64_t bytes, uint32_t wait_ns, uint8_t flags)
{
    at[0] = (ru_record){.start_ns = start_ns,
                        .value = bytes,
                        .dur_ns = took,
                        .predicted_ns = said,
                        .name = name,
                        .kind = (uint16_t)kind};
    if (kind == RU_REC_SPAN) {
        return 1;
    }
    const ru_record_more m = {.kind = RU_REC_MORE, .wait_ns = wait_ns, .flags = flags};
    memcpy(&at[1], &m, sizeof m);
    return 2;
}

static void test_by_hand(void **state)
{
    (void)state;
    ru_record r[64];
    int64_t n = 0;
    for (int64_t k = 0; k < 4; k++) { /* of 100: 110, 120, 130, 140 told; the last two are late */
        n += put(&r[n], N_SUM, RU_REC_SUM, 1000 * k, 100, (uint32_t)(110 + 10 * k), 8, 0, 0);
    }
    n += put(&r[n], N_SEND, RU_REC_SEND, 0, 300, 50, 1 << 20, 200, 0); /* 100 on its way */
    n += put(&r[n], N_SEND, RU_REC_SEND, 0, 300, 50, 100, 200, 0);     /* small */
    n += put(&r[n], N_SEND, RU_REC_SEND, 0, 300, 50, 1 << 20, 0, RU_REC_FAILED);
    n += put(&r[n], N_OP, RU_REC_SPAN, 0, 100, 0, 0, 0, 0); /* nobody told it */
    const ru_trace_thread thread = {.name = "main", .records = r, .n = n};
    const ru_trace t = {
        .names = names, .n_names = NAMES, .threads = &thread, .n_threads = 1, .last_ns = 3100};
    ru_predictor_error e[RU_PREDICTORS_MAX];
    uint32_t count;
    ru_arena a;
    ru_err err = {0};
    ru_arena_init(&a, 0);
    assert_ok(ru_trace_predicted(&t, 1, 0, &a, e, &count, &err), err);
    assert_int_equal(count, 2);
    assert_string_equal(e[0].predictor, "coll");
    assert_int_equal(e[0].n, 4);
    assert_true(fabs(e[0].median - 0.25) < 1e-9 && fabs(e[0].p95 - 0.385) < 1e-9);
    assert_true(fabs(e[0].bias - 0.25) < 1e-9 && fabs(e[0].late_s + 25e-9) < 1e-15);
    assert_string_equal(e[1].predictor, "link");
    assert_int_equal(e[1].n, 1);
    assert_true(fabs(e[1].median - 0.5) < 1e-9 && fabs(e[1].late95_s - 50e-9) < 1e-15);
    assert_ok(ru_trace_predicted(&t, 1, 1200, &a, e, &count, &err), err); /* the last two */
    assert_int_equal(count, 1);
    assert_int_equal(e[0].n, 2);
    assert_true(fabs(e[0].median - 0.35) < 1e-9);
    ru_arena_fini(&a);
}

RU_TESTS(trace_predicted, cmocka_unit_test(test_by_hand))
