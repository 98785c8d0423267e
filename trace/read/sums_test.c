/* Typical sums of steps written by hand: two ranks, two sums, three steps. */
#include "trace/read/sums.h"

#include <string.h>

#include "test/test.h"

enum { STEP, SUM, NAMES };

static const ru_trace_name names[NAMES] = {[STEP] = {"train", "step"}, [SUM] = {"train", "sum"}};

typedef struct rank {
    ru_record at[64];
    int64_t n;
    ru_trace_thread thread;
} rank;

static void put_step(rank *r, int64_t step, int64_t from, int64_t to)
{
    r->at[r->n++] = (ru_record){.start_ns = from,
                                .dur_ns = (uint32_t)(to - from),
                                .name = STEP,
                                .kind = RU_REC_SPAN,
                                .value = step};
}

static void put_sum(rank *r, uint32_t step, uint16_t sum, int64_t bytes, int64_t from, int64_t to,
                    uint32_t said)
{
    const ru_record_more more = {
        .flow = 1 + 100 * step + sum, .step = step, .kind = RU_REC_MORE, .rank = sum};
    r->at[r->n++] = (ru_record){.start_ns = from,
                                .dur_ns = (uint32_t)(to - from),
                                .predicted_ns = said,
                                .name = SUM,
                                .kind = RU_REC_SUM,
                                .value = bytes};
    memcpy(&r->at[r->n++], &more, sizeof more);
}

static ru_trace trace_of(rank *r, uint32_t number)
{
    r->thread = (ru_trace_thread){.name = "main", .records = r->at, .n = r->n};
    return (ru_trace){.process = "rubato",
                      .rank = number,
                      .names = names,
                      .n_names = NAMES,
                      .threads = &r->thread,
                      .n_threads = 1,
                      .records = r->n,
                      .last_ns = 100000};
}

/* Steps of 1000; rank 1 begins each 50 later. Sum 0 is begun last by rank 1 in two of three steps,
 * at 300, 310 and 320, and takes 100; sum 1 by rank 0 at 500, and takes 200. */
static void sums_of_a_typical_step(void **state)
{
    (void)state;
    rank r[2] = {0};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    for (uint32_t k = 0; k < 2; k++) { /* a table before had a third sum */
        put_sum(&r[k], 2, 2, 64, 4100, 4200, 120);
        put_step(&r[k], 3, 4000, 4900);
    }
    for (uint32_t s = 0; s < 3; s++) {
        int64_t t = 5000 + 1000 * s, late = 300 + 10 * s;
        int64_t bytes = s == 0 ? 64 : 4096; /* the first is of a table before */
        int64_t mine[2] = {s == 0 ? late : 100, s == 0 ? 100 : late};
        for (uint32_t k = 0; k < 2; k++) {
            put_sum(&r[k], 10 + s, 0, 4096, t + mine[k], t + late + 100, 120);
            put_sum(&r[k], 10 + s, 1, bytes, t + (k == 0 ? 500 : 400), t + 700, 150);
            put_step(&r[k], 11 + s, t + 50 * k, t + 900);
        }
    }
    const ru_trace traces[2] = {trace_of(&r[0], 0), trace_of(&r[1], 1)};
    ru_sum_time *x;
    uint32_t n;
    assert_ok(ru_trace_sums(traces, 2, NULL, &a, &x, &n, &err), err);
    assert_int_equal(n, 2);
    assert_true(x[0].sum == 0 && x[0].size_bytes == 4096 && x[0].n == 3);
    assert_true(x[0].ready_ns == 310 && x[0].arrive_ns == 410 && x[0].said_ns == 430);
    assert_true(x[0].last == 1 && x[0].last_n == 2);
    assert_true(x[1].sum == 1 && x[1].size_bytes == 4096 && x[1].n == 2);
    assert_true(x[1].ready_ns == 500 && x[1].arrive_ns == 700 && x[1].said_ns == 650);
    assert_true(x[1].last == 0 && x[1].last_n == 2);
    assert_ok(ru_trace_sums(traces, 1, NULL, &a, &x, &n, &err), err);
    assert_int_equal(n, 0); /* nobody knows when the other began */
    ru_arena_fini(&a);
}

/* A step is begun anew; rank 1 begins it after rank 0 has begun its sum: the sum is 100 old, not as
 * old as what rank 1 gave up. */
static void sums_of_a_step_begun_anew(void **state)
{
    (void)state;
    rank r[2] = {0};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    for (uint32_t k = 0; k < 2; k++) {
        int64_t again = k == 0 ? 6000 : 6200;
        put_step(&r[k], 7, 5000 + 50 * k, 5600);
        put_sum(&r[k], 6, 0, 4096, again + 100, 6500, 120);
        put_step(&r[k], 7, again, 6900);
    }
    const ru_trace traces[2] = {trace_of(&r[0], 0), trace_of(&r[1], 1)};
    ru_sum_time *x;
    uint32_t n;
    assert_ok(ru_trace_sums(traces, 2, NULL, &a, &x, &n, &err), err);
    assert_int_equal(n, 1);
    assert_int_equal(x[0].ready_ns, 300); /* rank 1 begins it last */
    ru_arena_fini(&a);
}

RU_TESTS(trace_sums, cmocka_unit_test(sums_of_a_typical_step),
         cmocka_unit_test(sums_of_a_step_begun_anew))
