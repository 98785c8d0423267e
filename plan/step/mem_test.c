/* Buffer planning: brute force on small inputs, thousands of random ones, corrupted plans, reruns.
 */
#include "plan/step/mem.h"
#include "test/test.h"

#include <string.h>

#include "base/rng.h"

typedef struct fixture {
    ru_arena out, scratch;
} fixture;

static void open(fixture *f)
{
    ru_arena_init(&f->out, 0);
    ru_arena_init(&f->scratch, 0);
}

static void close(fixture *f)
{
    ru_arena_fini(&f->out);
    ru_arena_fini(&f->scratch);
}

static ru_mem_plan plan_of(fixture *f, const ru_mem_in *in)
{
    ru_mem_plan plan = {0};
    ru_err err;
    assert_ok(ru_plan_mem(in, &f->out, &f->scratch, &plan, &err), err);
    assert_ok(ru_plan_mem_check(in, &plan, &f->scratch, &err), err);
    assert_true(plan.peak_bytes >= plan.bound_bytes);
    return plan;
}

static bool refused(fixture *f, const ru_mem_in *in, const ru_mem_plan *plan)
{
    ru_err err;
    return ru_plan_mem_check(in, plan, &f->scratch, &err) == RU_E_INFEASIBLE;
}

/* Random lifetimes; with `parts`, some buffers lie in earlier ones. */
static void draw_bufs(ru_rng *r, ru_mem_buf *bufs, uint32_t n, uint32_t steps, bool parts)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = ru_rng_below(r, steps), b = ru_rng_below(r, steps);
        bufs[i] = (ru_mem_buf){.size_bytes = (int64_t)ru_rng_below(r, 2000),
                               .first = a < b ? a : b,
                               .last = a < b ? b : a};
        if (parts && i > 0 && ru_rng_below(r, 4) == 0) {
            bufs[i].part_of = 1 + ru_rng_below(r, i);
            bufs[i].part_at_bytes = 64 * (int64_t)ru_rng_below(r, 4);
        }
    }
}

/* The best peak over all placements at multiples of 1: all orders of first fit contain an optimum,
 * as every plan can be pushed down until each buffer touches 0 or another one below. */
static int64_t first_fit(const ru_mem_buf *bufs, const uint32_t *order, uint32_t n)
{
    int64_t at[8] = {0}, peak = 0;
    for (uint32_t k = 0; k < n; k++) {
        const ru_mem_buf *b = &bufs[order[k]];
        bool moved = true;
        while (moved) {
            moved = false;
            for (uint32_t l = 0; l < k; l++) {
                const ru_mem_buf *o = &bufs[order[l]];
                bool together = o->first <= b->last && b->first <= o->last;
                int64_t here = at[order[k]], there = at[order[l]];
                if (together && here < there + o->size_bytes && there < here + b->size_bytes) {
                    at[order[k]] = there + o->size_bytes;
                    moved = true;
                }
            }
        }
        int64_t end = at[order[k]] + b->size_bytes;
        peak = end > peak ? end : peak;
    }
    return peak;
}

static int64_t best_of_all(const ru_mem_buf *bufs, uint32_t *order, uint32_t k, uint32_t n)
{
    if (k == n) {
        return first_fit(bufs, order, n);
    }
    int64_t best = INT64_MAX;
    for (uint32_t i = k; i < n; i++) {
        uint32_t x = order[k];
        order[k] = order[i];
        order[i] = x;
        int64_t peak = best_of_all(bufs, order, k + 1, n);
        best = peak < best ? peak : best;
        order[i] = order[k];
        order[k] = x;
    }
    return best;
}

static void test_small_cases_are_optimal(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t round = 0; round < 300; round++) {
        fixture f;
        ru_mem_buf bufs[6];
        uint32_t order[6] = {0, 1, 2, 3, 4, 5}, n = 1 + ru_rng_below(&r, 6);
        open(&f);
        draw_bufs(&r, bufs, n, 8, false);
        ru_mem_in in = {.bufs = bufs, .n = n, .align_bytes = 1};
        ru_mem_plan plan = plan_of(&f, &in);
        assert_int_equal(plan.peak_bytes, best_of_all(bufs, order, 0, n));
        close(&f);
    }
}

static void test_random_cases_are_accepted(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 2);
    for (uint32_t round = 0; round < 3000; round++) {
        fixture f;
        ru_mem_buf bufs[40];
        uint32_t n = ru_rng_below(&r, 41);
        open(&f);
        draw_bufs(&r, bufs, n, 1 + ru_rng_below(&r, 50), round % 2 == 1);
        ru_mem_in in = {.bufs = bufs, .n = n, .work_max = 20000, .seed = round};
        (void)plan_of(&f, &in);
        close(&f);
    }
}

static void test_same_bytes_in_another_arena(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    static uint8_t garbage[1 << 20];
    for (uint32_t round = 0; round < 50; round++) {
        fixture f;
        ru_mem_buf bufs[64];
        open(&f);
        draw_bufs(&r, bufs, 64, 40, true);
        ru_mem_in in = {.bufs = bufs, .n = 64, .work_max = 100000};
        ru_mem_plan one = plan_of(&f, &in), two;
        memset(garbage, (int)(0xa5 ^ round), sizeof garbage);
        ru_arena both;
        ru_arena_init_fixed(&both, garbage + round, (int64_t)sizeof garbage - round);
        assert_int_equal(ru_plan_mem(&in, &both, &both, &two, NULL), RU_OK);
        assert_memory_equal(one.offsets, two.offsets, 64 * sizeof one.offsets[0]);
        assert_int_equal(one.peak_bytes, two.peak_bytes);
        assert_int_equal(one.work, two.work);
        close(&f);
    }
}

/* Every offset moved by one alignment either way, and every figure of the plan changed. A moved
 * buffer may still be legal; then the peak must have changed or the plan is truly another legal
 * one. */
static void test_corrupted_plans_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    uint32_t caught = 0;
    for (uint32_t round = 0; round < 100; round++) {
        fixture f;
        ru_mem_buf bufs[12];
        int64_t moved[12];
        open(&f);
        /* All alive together: no slack, so every move is a collision. */
        draw_bufs(&r, bufs, 12, 4, false);
        for (uint32_t i = 0; i < 12; i++) {
            bufs[i].first = 0;
            bufs[i].last = 4;
            bufs[i].size_bytes += 64;
        }
        ru_mem_in in = {.bufs = bufs, .n = 12};
        ru_mem_plan plan = plan_of(&f, &in), bad = plan;
        for (uint32_t i = 0; i < 12; i++) {
            for (int64_t by = -64; by <= 64; by += 32) {
                memcpy(moved, plan.offsets, sizeof moved);
                moved[i] += by;
                bad.offsets = moved;
                assert_int_equal(refused(&f, &in, &bad), by != 0);
                caught += by != 0;
            }
        }
        bad = plan;
        bad.peak_bytes += 64;
        assert_true(refused(&f, &in, &bad));
        bad = plan;
        bad.bound_bytes -= 64;
        assert_true(refused(&f, &in, &bad));
        bad = plan;
        bad.n -= 1;
        assert_true(refused(&f, &in, &bad));
        close(&f);
    }
    assert_int_equal(caught, 100 * 12 * 4);
}

static void test_parts_stand_in_their_whole(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    /* A concatenation of two results computed in place, and an outsider that lives all along. */
    ru_mem_buf bufs[] = {
        {.size_bytes = 256, .first = 2, .last = 3},
        {.size_bytes = 128, .first = 0, .last = 2, .part_of = 1},
        {.size_bytes = 128, .first = 1, .last = 2, .part_of = 1, .part_at_bytes = 128},
        {.size_bytes = 64, .first = 0, .last = 3},
    };
    ru_mem_in in = {.bufs = bufs, .n = 4};
    ru_mem_plan plan = plan_of(&f, &in);
    assert_int_equal(plan.offsets[1], plan.offsets[0]);
    assert_int_equal(plan.offsets[2], plan.offsets[0] + 128);
    assert_int_equal(plan.peak_bytes, 320);
    close(&f);
}

/* Do two buffers that live at once share a byte, or stand somewhere they may not? Written without
 * looking at the judge. */
static bool legal(const ru_mem_buf *b, const int64_t *at)
{
    for (uint32_t i = 0; i < 3; i++) {
        if (at[i] % 64 != 0 ||
            (b[i].part_of != 0 && at[i] != at[b[i].part_of - 1] + b[i].part_at_bytes)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t j = 0; j < i; j++) {
            bool family =
                b[i].part_of == j + 1 || (b[i].part_of != 0 && b[i].part_of == b[j].part_of);
            for (uint32_t step = 0; step < 4 && !family; step++) {
                bool live = b[i].first <= step && step <= b[i].last && b[j].first <= step &&
                            step <= b[j].last;
                int64_t top = at[i] > at[j] ? at[i] : at[j];
                int64_t end_i = at[i] + b[i].size_bytes, end_j = at[j] + b[j].size_bytes;
                if (live && top < (end_i < end_j ? end_i : end_j)) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* The figures a legal placement must carry: its end, and the most bytes alive at one step. */
static ru_mem_plan figures(const ru_mem_buf *b, const int64_t *at)
{
    ru_mem_plan p = {.offsets = at, .n = 3};
    for (uint32_t i = 0; i < 3; i++) {
        int64_t end = at[i] + (b[i].size_bytes + 63) / 64 * 64;
        p.peak_bytes = end > p.peak_bytes ? end : p.peak_bytes;
    }
    for (uint32_t step = 0; step < 4; step++) {
        int64_t live = 0;
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t first = b[i].first, last = b[i].last;
            int64_t size = (b[i].size_bytes + 63) / 64 * 64;
            for (uint32_t j = 0; j < 3 && b[i].part_of == 0; j++) { /* its parts come with it */
                if (b[j].part_of == i + 1) {
                    int64_t reach = b[j].part_at_bytes + (b[j].size_bytes + 63) / 64 * 64;
                    first = b[j].first < first ? b[j].first : first;
                    last = b[j].last > last ? b[j].last : last;
                    size = reach > size ? reach : size;
                }
            }
            live += b[i].part_of == 0 && first <= step && step <= last ? size : 0;
        }
        p.bound_bytes = live > p.bound_bytes ? live : p.bound_bytes;
    }
    return p;
}

/* Three buffers, all lifetimes of up to three steps, all places on a small grid, alone or as parts:
 * the judge says what counting bytes and steps says. */
static void test_the_judge_agrees_with_counting(void **state)
{
    (void)state;
    static const uint32_t lives[][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {1, 2}, {0, 2}};
    static const int64_t places[] = {0, 32, 64, 128};
    uint32_t legal_n = 0, n = 0;
    fixture f;
    open(&f);
    for (uint32_t k = 0; k < 6 * 6 * 6 * 64 * 3; k++) {
        uint32_t c = k, life[3], parts;
        int64_t at[3];
        ru_mem_buf b[3];
        for (uint32_t i = 0; i < 3; i++, c /= 24) {
            life[i] = c % 6;
            at[i] = places[c / 6 % 4];
            b[i] = (ru_mem_buf){.size_bytes = i == 1 ? 100 : 64,
                                .first = lives[life[i]][0],
                                .last = lives[life[i]][1]};
        }
        parts = c; /* 0: none, 1: the second in the first, 2: the third in the second */
        if (parts > 0) {
            b[parts].part_of = parts;
            b[parts].part_at_bytes = 64 * (int64_t)(k % 2);
        }
        ru_mem_in in = {.bufs = b, .n = 3};
        ru_mem_plan p = figures(b, at);
        bool good = legal(b, at) && p.bound_bytes <= p.peak_bytes;
        if (refused(&f, &in, &p) == good) {
            fail_msg("case %u: the judge %s it", k, good ? "refuses" : "accepts");
        }
        legal_n += good;
        n++;
    }
    assert_true(legal_n > n / 50 && legal_n < n / 2);
    close(&f);
}

static void test_bad_input_is_an_error(void **state)
{
    (void)state;
    fixture f;
    ru_mem_plan plan;
    ru_err err;
    open(&f);
    const ru_mem_buf bad[] = {
        {.size_bytes = -1},
        {.size_bytes = 1, .first = 2, .last = 1},
        {.size_bytes = 1, .part_of = 1},
        {.size_bytes = 1, .part_at_bytes = 64},
        {.size_bytes = INT64_MAX},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(bad); i++) {
        ru_mem_in in = {.bufs = &bad[i], .n = 1};
        assert_int_equal(ru_plan_mem(&in, &f.out, &f.scratch, &plan, &err), RU_E_ARG);
    }
    ru_mem_in in = {.bufs = bad, .n = 1, .align_bytes = 48};
    assert_int_equal(ru_plan_mem(&in, &f.out, &f.scratch, &plan, &err), RU_E_ARG);
    ru_mem_buf huge[3] = {{.size_bytes = INT64_MAX / 9},
                          {.size_bytes = INT64_MAX / 9},
                          {.size_bytes = INT64_MAX / 9}};
    in = (ru_mem_in){.bufs = huge, .n = 3};
    assert_int_equal(ru_plan_mem(&in, &f.out, &f.scratch, &plan, &err), RU_E_LIMIT);
    close(&f);
}

/* A full arena is RU_E_LIMIT at whatever allocation it happens. */
static void test_full_arena_is_a_limit(void **state)
{
    (void)state;
    static uint8_t small[16384];
    ru_mem_buf bufs[16] = {{0}};
    ru_mem_in in = {.bufs = bufs, .n = 16};
    bool done = false;
    for (int64_t size = 0; !done && size <= (int64_t)sizeof small; size += 40) {
        ru_arena a;
        ru_mem_plan plan;
        ru_arena_init_fixed(&a, small, size);
        ru_status st = ru_plan_mem(&in, &a, &a, &plan, NULL);
        assert_true(st == RU_OK || st == RU_E_LIMIT);
        done = st == RU_OK;
    }
    assert_true(done);
}

RU_TESTS(plan_mem, cmocka_unit_test(test_the_judge_agrees_with_counting),
         cmocka_unit_test(test_small_cases_are_optimal),
         cmocka_unit_test(test_random_cases_are_accepted),
         cmocka_unit_test(test_same_bytes_in_another_arena),
         cmocka_unit_test(test_corrupted_plans_are_refused),
         cmocka_unit_test(test_parts_stand_in_their_whole),
         cmocka_unit_test(test_bad_input_is_an_error), cmocka_unit_test(test_full_arena_is_a_limit))
