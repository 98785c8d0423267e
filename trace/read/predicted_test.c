/* Errors of predictors, by hand. */
#include "test/test.h"
#include "trace/read/predicted.h"

#include <math.h>
#include <string.h>

enum { N_OP, N_SUM, N_SEND, N_PROBE, NAMES };

static const ru_trace_name names[NAMES] = {
    {"op", "Gemm"}, {"sum", "gradients"}, {"send", "normal"}, {"probe", "measuring sums"}};

static int64_t put(ru_record *at, ru_rec_kind kind, int64_t start_ns, uint32_t took, uint32_t said,
                   ru_record_more more)
{
    static const uint16_t name_of[] = {[RU_REC_SPAN] = N_OP, [RU_REC_SUM] = N_SUM};
    at[0] = (ru_record){.start_ns = start_ns,
                        .value = 1 << 20,
                        .dur_ns = took,
                        .predicted_ns = said,
                        .name = kind == RU_REC_SPAN || kind == RU_REC_SUM ? name_of[kind] : N_SEND,
                        .kind = (uint16_t)kind};
    if (kind == RU_REC_SPAN) {
        return 1;
    }
    more.kind = RU_REC_MORE;
    memcpy(&at[1], &more, sizeof more);
    return 2;
}

typedef struct job {
    ru_record r[2][64];
    ru_trace_thread thread[2];
    ru_trace t[2];
    ru_trace_peer peer;
    ru_trace_clocks clocks;
    ru_arena a;
    ru_err err;
} job;

/* Two ranks; the clock of the second is `ahead` ns before that of the first, as it measured. */
static void job_open(job *j, const int64_t n[2], int64_t ahead, uint64_t peer)
{
    ru_arena_init(&j->a, 0);
    j->peer = (ru_trace_peer){.at_ns = 1000, .peer = peer, .offset_ns = -ahead, .bound_ns = 1};
    for (uint32_t k = 0; k < 2; k++) {
        j->thread[k] = (ru_trace_thread){.name = "main", .records = j->r[k], .n = n[k]};
        j->t[k] = (ru_trace){.rank = k,
                             .node = k + 1,
                             .names = names,
                             .n_names = NAMES,
                             .threads = &j->thread[k],
                             .n_threads = 1,
                             .peers = &j->peer,
                             .n_peers = k,
                             .records = n[k],
                             .last_ns = 100000 + (k == 1 ? ahead : 0)};
    }
    assert_ok(ru_trace_align(j->t, 2, &j->a, &j->clocks, &j->err), j->err);
}

static ru_predictor_error find(job *j, uint32_t n, int64_t last_ns, const char *name)
{
    ru_predictor_error e[RU_PREDICTORS_MAX];
    uint32_t count;
    assert_ok(ru_trace_predicted(j->t, n, &j->clocks, last_ns, &j->a, e, &count, &j->err), j->err);
    for (uint32_t k = 0; k < count; k++) {
        if (strcmp(e[k].predictor, name) == 0) {
            return e[k];
        }
    }
    return (ru_predictor_error){0};
}

/* A sum counts from when the last rank began it, with what that rank predicted. */
static void test_sums(void **state)
{
    (void)state;
    static job j;
    const int64_t ahead = 5000;
    int64_t n[2] = {0};
    for (uint32_t k = 0; k < 4; k++) { /* 100 from the last begin; 110 .. 140 told */
        int64_t at = 1000 * k;
        uint32_t said = 110 + 10 * k, early = 700;
        uint32_t last = k % 2, first = 1 - last;
        ru_record_more m = {.flow = 7 + k, .step = k / 2, .rank = (uint16_t)(k % 2)};
        n[first] += put(&j.r[first][n[first]], RU_REC_SUM, at + (first == 1 ? ahead : 0),
                        early + 100, 9 * said, m);
        n[last] += put(&j.r[last][n[last]], RU_REC_SUM, at + early + (last == 1 ? ahead : 0), 100,
                       said, m);
    }
    n[0] += put(&j.r[0][n[0]], RU_REC_SUM, 9000, 100, 500, (ru_record_more){.flow = 99});
    job_open(&j, n, ahead, 1);
    ru_predictor_error e = find(&j, 2, 0, "coll");
    assert_int_equal(e.n, 4); /* nobody knows when the others began the last one */
    assert_true(fabs(e.median - 0.25) < 1e-9 && fabs(e.p95 - 0.385) < 1e-9);
    assert_true(fabs(e.bias - 0.25) < 1e-9 && fabs(e.late_s + 25e-9) < 1e-15);
    e = find(&j, 2, 0, "coll step"); /* 1100 of each step: 1120 and 1140 */
    assert_int_equal(e.n, 2);
    assert_true(fabs(e.bias - (1120.0 + 1140.0) / 2200 + 1) < 1e-9);
    assert_int_equal(find(&j, 1, 0, "coll").n, 0);
    assert_int_equal(find(&j, 2, 1, "coll").n, 0); /* none began in the last nanosecond */
    ru_arena_fini(&j.a);
}

/* A transfer takes from its call until its receiver has it, whatever the link took from the
 * sender and when. */
static void test_transfers(void **state)
{
    (void)state;
    static job j;
    const int64_t ahead = -3000;
    const ru_record_more m = {.flow = 5, .peer = 2}, lost = {.flow = 6, .flags = RU_REC_FAILED};
    const ru_record_more alone = {.flow = 8}, note = {.flow = 9, .flags = RU_REC_MESSAGE};
    int64_t n[2] = {0};
    n[0] += put(&j.r[0][n[0]], RU_REC_SEND, 10000, 5, 150, m);
    n[0] += put(&j.r[0][n[0]], RU_REC_SEND, 10000, 5, 150, lost);
    n[0] += put(&j.r[0][n[0]], RU_REC_SEND, 10000, 5, 150, alone);
    n[0] += put(&j.r[0][n[0]], RU_REC_SEND, 10000, 5, 150, note);
    const ru_record_more probe = {.flow = 11, .peer = 2, .label = N_PROBE};
    n[0] += put(&j.r[0][n[0]], RU_REC_SEND, 20000, 5, 150, probe);
    n[0] += put(&j.r[0][n[0]], RU_REC_SPAN, 10000, 100, 0, m); /* nobody told it */
    n[0] += put(&j.r[0][n[0]], RU_REC_SPAN, 10000, 100, 120, m);
    n[1] += put(&j.r[1][n[1]], RU_REC_RECV, 10190 + ahead, 10, 0, m);
    n[1] += put(&j.r[1][n[1]], RU_REC_RECV, 10190 + ahead, 10, 0, note);
    n[1] += put(&j.r[1][n[1]], RU_REC_RECV, 20290 + ahead, 10, 0, probe);
    job_open(&j, n, ahead, 1);
    ru_predictor_error e = find(&j, 2, 0, "link");
    assert_int_equal(e.n, 1); /* 200 */
    assert_true(fabs(e.median - 0.25) < 1e-9 && fabs(e.late_s - 50e-9) < 1e-15);
    e = find(&j, 2, 0, "link probe"); /* 300 */
    assert_true(e.n == 1 && fabs(e.median - 0.5) < 1e-9);
    e = find(&j, 2, 0, "op");
    assert_true(e.n == 1 && fabs(e.median - 0.2) < 1e-9);
    ru_arena_fini(&j.a);
    job_open(&j, n, ahead, 77); /* nobody measured the second one's clock */
    assert_int_equal(find(&j, 2, 0, "link").n, 0);
    ru_arena_fini(&j.a);
}

/* Two transfers of one sum in each of five steps: the first takes 100, once 125, the second 300. */
static void test_repeats(void **state)
{
    (void)state;
    static job j;
    int64_t n[2] = {0};
    for (uint32_t k = 0; k < 10; k++) {
        int64_t at = 1000 * (k + 1), took = k % 2 == 1 ? 300 : k == 4 ? 125 : 100;
        ru_record_more m = {.flow = 50 + k, .peer = 2, .step = k / 2};
        n[0] += put(&j.r[0][n[0]], RU_REC_SEND, at, 5, 200, m);
        n[1] += put(&j.r[1][n[1]], RU_REC_RECV, at + took - 10, 10, 0, m);
    }
    job_open(&j, n, 0, 1);
    ru_predictor_error e = find(&j, 2, 0, "link");
    assert_true(e.n == 10 && e.repeat_n == 10);
    assert_true(fabs(e.repeat_median) < 1e-9 && fabs(e.repeat_p95 - 0.55 * 0.2) < 1e-9);
    ru_arena_fini(&j.a);
    n[0] = n[1] = 12; /* three steps: nobody knows how they spread */
    job_open(&j, n, 0, 1);
    e = find(&j, 2, 0, "link");
    assert_true(e.n == 6 && e.repeat_n == 0);
    ru_arena_fini(&j.a);
}

RU_TESTS(trace_predicted, cmocka_unit_test(test_sums), cmocka_unit_test(test_transfers),
         cmocka_unit_test(test_repeats))
