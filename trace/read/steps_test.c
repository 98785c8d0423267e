/* The parts of steps written by hand: two ranks, one of them late. */
#include "test/test.h"
#include "trace/read/steps.h"

#include <string.h>

enum { MS = 1000000 };
enum { OP, STEP, SUMS, INPUT, EVAL, FORWARD, BACKWARD, UPDATE, STAGE, NAMES };

static const ru_trace_name names[NAMES] = {[OP] = {"op", "Gemm"},
                                           [STEP] = {"train", "step"},
                                           [SUMS] = {"train", "sums of gradients"},
                                           [INPUT] = {"train", "input"},
                                           [EVAL] = {"train", "eval"},
                                           [FORWARD] = {"train", "forward"},
                                           [BACKWARD] = {"train", "backward"},
                                           [UPDATE] = {"train", "update"},
                                           [STAGE] = {"train", "wait for a stage"}};

static ru_record span(uint16_t name, ru_rec_kind kind, int64_t from_ms, int64_t to_ms,
                      int64_t value)
{
    return (ru_record){.start_ns = from_ms * MS,
                       .dur_ns = (uint32_t)((to_ms - from_ms) * MS),
                       .name = name,
                       .kind = (uint16_t)kind,
                       .value = value};
}

/* A sum stands in two records. */
static void put_sum(ru_record *at, uint64_t flow, uint32_t step, int64_t from_ms, int64_t to_ms)
{
    ru_record_more more = {.flow = flow, .step = step, .kind = RU_REC_MORE};
    at[0] = span(OP, RU_REC_SUM, from_ms, to_ms, 1 << 20);
    memcpy(&at[1], &more, sizeof more);
}

static ru_trace trace_of(ru_trace_thread *thread, const ru_record *records, int64_t n,
                         uint32_t rank)
{
    *thread = (ru_trace_thread){.name = "main", .records = records, .n = n};
    return (ru_trace){.process = "rubato",
                      .rank = rank,
                      .names = names,
                      .n_names = NAMES,
                      .threads = thread,
                      .n_threads = 1,
                      .records = n,
                      .first_ns = 0,
                      .last_ns = 200 * MS};
}

typedef struct pair {
    ru_arena arena;
    ru_err err;
    ru_record records[2][16];
    ru_trace_thread threads[2];
    ru_trace traces[2];
    ru_rank_steps steps[2];
} pair;

static void fold(pair *p, int64_t n0, int64_t n1)
{
    ru_arena_init(&p->arena, 0);
    p->traces[0] = trace_of(&p->threads[0], p->records[0], n0, 1);
    p->traces[1] = trace_of(&p->threads[1], p->records[1], n1, 2);
    assert_ok(ru_trace_steps(p->traces, 2, NULL, &p->arena, p->steps, &p->err), p->err);
}

static void check_parts(const ru_step_time *s, int64_t compute, int64_t network, int64_t peer,
                        int64_t input, int64_t other)
{
    int64_t all = 0;
    assert_int_equal(s->part_ns[RU_STEP_COMPUTE], compute * MS);
    assert_int_equal(s->part_ns[RU_STEP_NETWORK], network * MS);
    assert_int_equal(s->part_ns[RU_STEP_PEER], peer * MS);
    assert_int_equal(s->part_ns[RU_STEP_INPUT], input * MS);
    assert_int_equal(s->part_ns[RU_STEP_OTHER], other * MS);
    for (uint32_t k = 0; k < RU_STEP_PARTS; k++) {
        all += s->part_ns[k];
    }
    assert_int_equal(all, s->end_ns - s->start_ns);
}

/* The parts of a stage compute, but for what they wait for other stages, and read. */
static void test_stage(void **state)
{
    (void)state;
    pair p = {0};
    ru_record *r = p.records[0];
    r[0] = span(STAGE, RU_REC_WAIT, 2, 12, 0);
    r[1] = span(INPUT, RU_REC_SPAN, 0, 2, 0);
    r[2] = span(FORWARD, RU_REC_SPAN, 0, 30, 0);
    r[3] = span(STAGE, RU_REC_WAIT, 30, 50, 0);
    r[4] = span(BACKWARD, RU_REC_SPAN, 30, 70, 0);
    r[5] = span(UPDATE, RU_REC_SPAN, 75, 80, 0);
    r[6] = span(STEP, RU_REC_SPAN, 0, 100, 1);
    fold(&p, 7, 0);
    check_parts(&p.steps[0].at[0], 43, 0, 30, 2, 25);
    ru_arena_fini(&p.arena);
}

/* Rank 2 reads for 30 ms and begins its sum at 68; rank 1 began it at 38 and waits from 40 on. */
static void test_late_rank(void **state)
{
    (void)state;
    pair p = {0};
    p.records[0][0] = span(OP, RU_REC_SPAN, 0, 39, 0);
    put_sum(&p.records[0][1], 7, 0, 38, 90);
    p.records[0][3] = span(SUMS, RU_REC_WAIT, 40, 100, 0);
    p.records[0][4] = span(STEP, RU_REC_SPAN, 0, 100, 1);
    p.records[1][0] = span(INPUT, RU_REC_WAIT, 0, 30, 0);
    p.records[1][1] = span(OP, RU_REC_SPAN, 30, 70, 0);
    put_sum(&p.records[1][2], 7, 0, 68, 90);
    p.records[1][4] = span(SUMS, RU_REC_WAIT, 70, 98, 0);
    p.records[1][5] = span(STEP, RU_REC_SPAN, 0, 100, 1);
    fold(&p, 5, 6);
    assert_int_equal(p.steps[0].n, 1);
    check_parts(&p.steps[0].at[0], 39, 32, 28, 0, 1);
    assert_int_equal(p.steps[0].at[0].late, 1);
    assert_int_equal(p.steps[0].at[0].late_ns, 28 * MS);
    check_parts(&p.steps[1].at[0], 40, 28, 0, 30, 2);
    assert_int_equal(p.steps[1].at[0].late, RU_STEP_NOBODY);
    int64_t(*chain)[RU_STEP_PARTS];
    assert_ok(ru_trace_chain(p.steps, 2, &p.arena, &chain, &p.err), p.err);
    assert_int_equal(chain[0][RU_STEP_COMPUTE], 0);
    assert_int_equal(chain[1][RU_STEP_COMPUTE], 40 * MS);
    assert_int_equal(chain[1][RU_STEP_INPUT], 30 * MS);
    ru_arena_fini(&p.arena);
}

/* Two buckets: the first is summed between 20 and 30, then rank 1 waits again, for the second. */
static void test_two_buckets(void **state)
{
    (void)state;
    pair p = {0};
    p.records[0][0] = span(OP, RU_REC_SPAN, 0, 10, 0);
    put_sum(&p.records[0][1], 7, 3, 5, 30);
    put_sum(&p.records[0][3], 8, 3, 9, 80);
    p.records[0][5] = span(SUMS, RU_REC_WAIT, 10, 80, 0);
    p.records[0][6] = span(STEP, RU_REC_SPAN, 0, 80, 4);
    p.records[1][0] = span(OP, RU_REC_SPAN, 0, 60, 0);
    put_sum(&p.records[1][1], 7, 3, 20, 30);
    put_sum(&p.records[1][3], 8, 3, 60, 80);
    p.records[1][5] = span(SUMS, RU_REC_WAIT, 60, 80, 0);
    p.records[1][6] = span(STEP, RU_REC_SPAN, 0, 80, 4);
    fold(&p, 7, 7);
    check_parts(&p.steps[0].at[0], 10, 30, 40, 0, 0);
    assert_int_equal(p.steps[0].at[0].late_ns, 40 * MS);
    check_parts(&p.steps[1].at[0], 60, 20, 0, 0, 0);
    ru_arena_fini(&p.arena);
}

/* A step that was begun twice: the sum of the first attempt has nothing to do with the second. */
static void test_repeated_step(void **state)
{
    (void)state;
    pair p = {0};
    p.records[0][0] = span(OP, RU_REC_SPAN, 0, 10, 0);
    put_sum(&p.records[0][1], 7, 3, 5, 20);
    p.records[0][3] = span(SUMS, RU_REC_WAIT, 10, 20, 0);
    p.records[0][4] = span(STEP, RU_REC_SPAN, 0, 20, 4);
    p.records[1][0] = span(OP, RU_REC_SPAN, 100, 110, 0);
    put_sum(&p.records[1][1], 7, 3, 105, 120);
    p.records[1][3] = span(SUMS, RU_REC_WAIT, 110, 120, 0);
    p.records[1][4] = span(STEP, RU_REC_SPAN, 100, 120, 4);
    fold(&p, 5, 5);
    check_parts(&p.steps[0].at[0], 10, 10, 0, 0, 0);
    check_parts(&p.steps[1].at[0], 10, 10, 0, 0, 0);
    ru_arena_fini(&p.arena);
}

/* What happens between steps (an evaluation) belongs to none; a rank without steps has none. */
static void test_without_steps(void **state)
{
    (void)state;
    pair p = {0};
    p.records[0][0] = span(OP, RU_REC_SPAN, 0, 10, 0);
    p.records[0][1] = span(STEP, RU_REC_SPAN, 0, 12, 1);
    p.records[0][2] = span(EVAL, RU_REC_SPAN, 12, 90, 0);
    p.records[0][3] = span(OP, RU_REC_SPAN, 90, 95, 0);
    p.records[0][4] = span(STEP, RU_REC_SPAN, 90, 100, 2);
    fold(&p, 5, 0);
    assert_int_equal(p.steps[0].n, 2);
    check_parts(&p.steps[0].at[0], 10, 0, 0, 0, 2);
    check_parts(&p.steps[0].at[1], 5, 0, 0, 0, 5);
    assert_int_equal(p.steps[0].step_ns, 22 * MS);
    assert_int_equal(p.steps[1].n, 0);
    ru_arena_fini(&p.arena);
}

#define T(f) cmocka_unit_test(f)
RU_TESTS(trace_steps, T(test_stage), T(test_late_rank), T(test_two_buckets), T(test_repeated_step),
         T(test_without_steps))
