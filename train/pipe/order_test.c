/* The lists of all stages, run against each other: every schedule ends, in the published time. */
#include "train/pipe/order.h"

#include <string.h>

#include "test/test.h"

enum { STAGES_MAX = 6, MICRO_MAX = 16 };

/* Each part takes one unit: when do all stages have run their lists? An act begins when its stage
 * is free and what it needs is there; 0: they wait for each other. */
static uint32_t makespan(ru_pipe_schedule schedule, uint32_t n, uint32_t micro)
{
    ru_pipe_act list[STAGES_MAX][2 * MICRO_MAX];
    uint32_t at[STAGES_MAX] = {0}, ended[STAGES_MAX][2][MICRO_MAX], free_at[STAGES_MAX] = {0};
    memset(ended, 0xff, sizeof ended);
    for (uint32_t s = 0; s < n; s++) {
        ru_pipe_order(schedule, NULL, s, 0, n, micro, list[s]);
    }
    uint32_t left = 2 * n * micro, longest = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < n; s++) {
            if (at[s] == 2 * micro) {
                continue;
            }
            ru_pipe_act a = list[s][at[s]];
            uint32_t needs = 0;
            if (!a.back && s > 0) {
                needs = ended[s - 1][0][a.micro];
            } else if (a.back) {
                needs = s + 1 < n ? ended[s + 1][1][a.micro] : ended[s][0][a.micro];
            }
            if (needs == UINT32_MAX) {
                continue;
            }
            uint32_t begins = needs > free_at[s] ? needs : free_at[s];
            ended[s][a.back][a.micro] = free_at[s] = begins + 1;
            longest = free_at[s] > longest ? free_at[s] : longest;
            at[s]++;
            left--;
            moved = true;
        }
    }
    return left == 0 ? longest : 0;
}

/* Both drain: 2 (m + d - 1) units, so the part of idle time is (d - 1) / (m + d - 1). */
static void the_bubble_is_the_published_one(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= STAGES_MAX; n++) {
        for (uint32_t m = 1; m <= MICRO_MAX; m++) {
            assert_int_equal(makespan(RU_PIPE_SCHEDULE_FLUSH, n, m), 2 * (m + n - 1));
            assert_int_equal(makespan(RU_PIPE_SCHEDULE_GPIPE, n, m), 2 * (m + n - 1));
        }
    }
}

/* Each micro-batch goes forward once, then back once, in order, and no more than said are in
 * flight. */
static void lists_are_whole(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= STAGES_MAX; n++) {
        for (uint32_t m = 1; m <= MICRO_MAX; m++) {
            for (uint32_t s = 0; s < 2 * n; s++) {
                ru_pipe_schedule schedule = s < n ? RU_PIPE_SCHEDULE_FLUSH : RU_PIPE_SCHEDULE_GPIPE;
                ru_pipe_act list[2 * MICRO_MAX];
                uint32_t forward = 0, back = 0, most = 0;
                ru_pipe_order(schedule, NULL, s % n, 0, n, m, list);
                for (uint32_t k = 0; k < 2 * m; k++) {
                    assert_int_equal(list[k].micro, list[k].back ? back++ : forward++);
                    assert_true(back <= forward);
                    most = forward - back > most ? forward - back : most;
                }
                assert_int_equal(forward, m);
                assert_int_equal(back, m);
                assert_int_equal(most, ru_pipe_in_flight(schedule, NULL, s % n, n, m));
            }
        }
    }
}

/* Do the lists of all replicas end, whatever the number of workers of each stage? */
static bool ends(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t n, uint32_t micro)
{
    bool done[STAGES_MAX][2][MICRO_MAX] = {{{false}}};
    uint32_t at[STAGES_MAX][4] = {{0}}, left = 2 * n * micro;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < n; s++) {
            for (uint32_t r = 0; r < workers[s]; r++) {
                ru_pipe_act list[2 * MICRO_MAX];
                ru_pipe_order(schedule, workers, s, r, n, micro, list);
                if (at[s][r] == 2 * micro / workers[s]) {
                    continue;
                }
                ru_pipe_act a = list[at[s][r]];
                bool there = a.back ? s + 1 == n || done[s + 1][1][a.micro]
                                    : s == 0 || done[s - 1][0][a.micro];
                assert_int_equal(a.micro % workers[s], r);
                assert_false(done[s][a.back][a.micro]);
                assert_true(!a.back || done[s][0][a.micro]);
                if (there) {
                    done[s][a.back][a.micro] = true;
                    at[s][r]++;
                    left--;
                    moved = true;
                }
            }
        }
    }
    return left == 0;
}

static void replicas_never_wait_for_each_other_for_ever(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        for (uint32_t code = 0; code < 1u << (2 * n); code++) {
            uint32_t workers[4];
            for (uint32_t s = 0; s < n; s++) {
                workers[s] = 1 + (code >> (2 * s) & 3);
            }
            assert_true(ends(RU_PIPE_SCHEDULE_FLUSH, workers, n, 12));
            assert_true(ends(RU_PIPE_SCHEDULE_GPIPE, workers, n, 12));
        }
    }
    /* 4-3-1: each has at least as many as the next stage waits for. */
    const uint32_t w[] = {4, 3, 1};
    assert_int_equal(ru_pipe_in_flight(RU_PIPE_SCHEDULE_FLUSH, w, 2, 3, 48), 1);
    assert_int_equal(ru_pipe_in_flight(RU_PIPE_SCHEDULE_FLUSH, w, 1, 3, 48), 2);
    assert_int_equal(ru_pipe_in_flight(RU_PIPE_SCHEDULE_FLUSH, w, 0, 3, 48), 3);
}

/* In a list of 1F1B that does not end, as many updates as said are missing when a minibatch goes
 * forward, and as many minibatches as said are on their way. */
static void gradients_are_late_by_what_is_said(void **state)
{
    (void)state;
    enum { MANY = 5 * STAGES_MAX };
    for (uint32_t n = 1; n <= STAGES_MAX; n++) {
        for (uint32_t s = 0; s < n; s++) {
            ru_pipe_act list[2 * MANY];
            uint32_t back = 0, late = ru_pipe_late(RU_PIPE_SCHEDULE_STASH, s, n);
            ru_pipe_order(RU_PIPE_SCHEDULE_FLUSH, NULL, s, 0, n, MANY, list);
            for (uint32_t k = 0; k < 2 * MANY; k++) {
                uint32_t j = list[k].micro;
                assert_int_equal(list[k].back || j < late ? back : j - late, back);
                back += list[k].back;
            }
            assert_int_equal(ru_pipe_in_flight(RU_PIPE_SCHEDULE_STASH, NULL, s, n, 1), late + 1);
            assert_int_equal(ru_pipe_in_flight(RU_PIPE_SCHEDULE_VERTICAL, NULL, s, n, 1), late + 1);
            assert_int_equal(ru_pipe_late(RU_PIPE_SCHEDULE_VERTICAL, s, n), n - 1);
            assert_int_equal(ru_pipe_late(RU_PIPE_SCHEDULE_FLUSH, s, n), 0);
            assert_int_equal(ru_pipe_versions(RU_PIPE_SCHEDULE_STASH, s, n),
                             s + 1 == n ? 1 : late + 2);
            assert_int_equal(ru_pipe_versions(RU_PIPE_SCHEDULE_GPIPE, s, n), 1);
        }
    }
}

/* 2bw, some steps as one list: what a worker has in flight is of two steps at most, and who waits
 * at the end of a step for the others of its stage, which add their sums, never waits for ever. */
static void two_versions_are_enough(void **state)
{
    (void)state;
    static const uint32_t many[][3] = {{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {1, 2, 1}, {4, 3, 1}};
    for (uint32_t c = 0; c < RU_ARRAY_LEN(many); c++) {
        enum { STEPS = 3, PARTS = 12 * STEPS };
        const uint32_t *workers = many[c];
        uint32_t micro = ru_pipe_micro_min(RU_PIPE_SCHEDULE_2BW, workers, 3);
        bool done[3][2][PARTS] = {{{false}}};
        uint32_t at[3][4] = {{0}}, summed[3] = {0}, left = 3 * 2 * PARTS;
        assert_true(micro <= 12);
        while (12 % micro != 0 || micro % workers[0] != 0 || micro % workers[1] != 0) {
            micro++;
        }
        uint32_t all = micro * STEPS;
        left = 3 * 2 * all;
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t s = 0; s < 3; s++) {
                uint32_t least = UINT32_MAX, own = micro / workers[s];
                for (uint32_t r = 0; r < workers[s]; r++) {
                    ru_pipe_act list[2 * PARTS];
                    ru_pipe_order(RU_PIPE_SCHEDULE_FLUSH, workers, s, r, 3, all, list);
                    uint32_t back = 0, forward = 0;
                    for (uint32_t k = 0; k < at[s][r]; k++) {
                        back += list[k].back;
                        forward += !list[k].back;
                    }
                    least = back / own < least ? back / own : least;
                    assert_true(forward <= (back / own + 2) * own);
                    bool over = at[s][r] == 2 * all / workers[s];
                    ru_pipe_act a = list[over ? 0 : at[s][r]];
                    bool there = !over && back / own <= summed[s] &&
                                 (a.back ? s == 2 || done[s + 1][1][a.micro]
                                         : s == 0 || done[s - 1][0][a.micro]);
                    if (there) {
                        done[s][a.back][a.micro] = moved = true;
                        at[s][r]++;
                        left--;
                    }
                }
                moved = moved || least > summed[s];
                summed[s] = least;
            }
        }
        assert_int_equal(left, 0);
    }
    assert_int_equal(ru_pipe_micro_min(RU_PIPE_SCHEDULE_2BW, NULL, 4), 4);
    assert_int_equal(ru_pipe_micro_min(RU_PIPE_SCHEDULE_STASH, NULL, 4), 1);
    assert_int_equal(ru_pipe_late(RU_PIPE_SCHEDULE_2BW, 0, 4), 1);
    assert_int_equal(ru_pipe_versions(RU_PIPE_SCHEDULE_2BW, 3, 4), 2);
}

/* Of a worker with two parts: each micro-batch forward through all, then back. */
static void a_device_goes_through_its_parts(void **state)
{
    (void)state;
    static const ru_pipe_act want[] = {
        {.part = 0, .micro = 0},
        {.part = 1, .micro = 0},
        {.part = 1, .micro = 0, .back = true},
        {.part = 0, .micro = 0, .back = true},
        {.part = 0, .micro = 1},
        {.part = 1, .micro = 1},
        {.part = 1, .micro = 1, .back = true},
        {.part = 0, .micro = 1, .back = true},
    };
    ru_pipe_act list[RU_ARRAY_LEN(want)];
    static const uint32_t reverse[] = {1, 0}, same[] = {0, 1};
    ru_pipe_order_placed(2, reverse, 2, list);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
        assert_int_equal(list[k].part, want[k].part);
        assert_int_equal(list[k].micro, want[k].micro);
        assert_int_equal(list[k].back, want[k].back);
    }
    ru_pipe_order_placed(2, same, 2, list); /* as the plan says */
    for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
        assert_int_equal(list[k].part, want[k].back ? 1 - want[k].part : want[k].part);
    }
}

RU_TESTS(train_order, cmocka_unit_test(a_device_goes_through_its_parts),
         cmocka_unit_test(gradients_are_late_by_what_is_said),
         cmocka_unit_test(two_versions_are_enough),
         cmocka_unit_test(replicas_never_wait_for_each_other_for_ever),
         cmocka_unit_test(the_bubble_is_the_published_one), cmocka_unit_test(lists_are_whole))
