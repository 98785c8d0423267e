/* The lists of all stages, run against each other: every schedule ends, in the published time. */
#include "train/pipe/order.h"

#include <string.h>

#include "test/test.h"

enum { STAGES_MAX = 6, MICRO_MAX = 16 };

static ru_pipe_shape shape(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t n,
                           uint32_t micro)
{
    return (ru_pipe_shape){.schedule = schedule, .n = n, .micro = micro, .workers = workers};
}

/* Each part takes one unit: when do all stages have run their lists? An act begins when its stage
 * is free and what it needs is there; 0: they wait for each other. */
static uint32_t makespan(ru_pipe_schedule schedule, uint32_t n, uint32_t micro)
{
    ru_pipe_act list[STAGES_MAX][2 * MICRO_MAX];
    uint32_t at[STAGES_MAX] = {0}, ended[STAGES_MAX][2][MICRO_MAX], free_at[STAGES_MAX] = {0};
    const ru_pipe_shape p = shape(schedule, NULL, n, micro);
    memset(ended, 0xff, sizeof ended);
    for (uint32_t s = 0; s < n; s++) {
        ru_pipe_order(&p, s, 0, list[s]);
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
                const ru_pipe_shape p = shape(schedule, NULL, n, m);
                ru_pipe_order(&p, s % n, 0, list);
                for (uint32_t k = 0; k < 2 * m; k++) {
                    assert_int_equal(list[k].micro, list[k].back ? back++ : forward++);
                    assert_true(back <= forward);
                    most = forward - back > most ? forward - back : most;
                }
                assert_int_equal(forward, m);
                assert_int_equal(back, m);
                assert_int_equal(most, ru_pipe_in_flight(&p, s % n));
            }
        }
    }
}

/* Do the lists of all replicas end, whatever the number of workers of each stage? */
static bool ends(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t n, uint32_t micro)
{
    bool done[STAGES_MAX][2][MICRO_MAX] = {{{false}}};
    uint32_t at[STAGES_MAX][4] = {{0}}, left = 2 * n * micro;
    const ru_pipe_shape p = shape(schedule, workers, n, micro);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < n; s++) {
            for (uint32_t r = 0; r < workers[s]; r++) {
                ru_pipe_act list[2 * MICRO_MAX];
                ru_pipe_order(&p, s, r, list);
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
    const ru_pipe_shape p = shape(RU_PIPE_SCHEDULE_FLUSH, w, 3, 48);
    assert_int_equal(ru_pipe_in_flight(&p, 2), 1);
    assert_int_equal(ru_pipe_in_flight(&p, 1), 2);
    assert_int_equal(ru_pipe_in_flight(&p, 0), 3);
}

/* In a list of 1F1B that does not end, as many updates as said are missing when a minibatch goes
 * forward, and as many minibatches as said are on their way. */
static void gradients_are_late_by_what_is_said(void **state)
{
    (void)state;
    enum { MANY = 5 * STAGES_MAX };
    for (uint32_t n = 1; n <= STAGES_MAX; n++) {
        const ru_pipe_shape long_one = shape(RU_PIPE_SCHEDULE_FLUSH, NULL, n, MANY),
                            stash = shape(RU_PIPE_SCHEDULE_STASH, NULL, n, 1),
                            vertical = shape(RU_PIPE_SCHEDULE_VERTICAL, NULL, n, 1),
                            flush = shape(RU_PIPE_SCHEDULE_FLUSH, NULL, n, 1),
                            gpipe = shape(RU_PIPE_SCHEDULE_GPIPE, NULL, n, 1);
        for (uint32_t s = 0; s < n; s++) {
            ru_pipe_act list[2 * MANY];
            uint32_t back = 0, late = ru_pipe_late(&stash, s);
            ru_pipe_order(&long_one, s, 0, list);
            for (uint32_t k = 0; k < 2 * MANY; k++) {
                uint32_t j = list[k].micro;
                assert_int_equal(list[k].back || j < late ? back : j - late, back);
                back += list[k].back;
            }
            assert_int_equal(late, n - 1 - s);
            assert_int_equal(ru_pipe_in_flight(&stash, s), late + 1);
            assert_int_equal(ru_pipe_in_flight(&vertical, s), late + 1);
            assert_int_equal(ru_pipe_late(&vertical, s), n - 1);
            assert_int_equal(ru_pipe_late(&flush, s), 0);
            assert_int_equal(ru_pipe_versions(&stash, s), s + 1 == n ? 1 : late + 2);
            assert_int_equal(ru_pipe_versions(&vertical, s), n > 1 ? n + 1 : 1);
            assert_int_equal(ru_pipe_versions(&gpipe, s), 1);
            assert_int_equal(ru_pipe_version(&stash, s, 9, 0, 0), 9 - late);
            assert_int_equal(ru_pipe_version(&vertical, s, 9, 0, 0), 9 - (n - 1));
            assert_int_equal(ru_pipe_version(&stash, s, 9, 0, 9), 9); /* they drained */
        }
    }
}

enum { STEPS = 4, LONG_MAX = 12 * STEPS };

/* Some steps of schedules that flow on as one list: who waits at the end of a step for the others
 * of its stage, which add their sums, never waits for ever. What goes forward with stash uses the
 * newest weights, and with the others those that are there; while it is in flight no more updates
 * come than said. */
static void flow(const ru_pipe_shape *p)
{
    uint32_t all = p->micro * STEPS, at[STAGES_MAX][4] = {{0}}, updates[STAGES_MAX] = {0};
    uint32_t left = 2 * p->n * all;
    bool done[STAGES_MAX][2][LONG_MAX] = {{{false}}};
    int64_t used[STAGES_MAX][LONG_MAX];
    const ru_pipe_shape one = shape(RU_PIPE_SCHEDULE_FLUSH, p->workers, p->n, all);
    assert_true(all <= LONG_MAX);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t k = 0; k < p->n * 4; k++) {
            uint32_t s = k / 4, r = k % 4, m = p->workers[s], own = p->micro / m, back = 0;
            ru_pipe_act list[2 * LONG_MAX];
            if (r >= m || at[s][r] == 2 * all / m) {
                continue;
            }
            ru_pipe_order(&one, s, r, list);
            for (uint32_t i = 0; i < at[s][r]; i++) {
                back += list[i].back;
            }
            ru_pipe_act a = list[at[s][r]];
            bool there =
                back / own <= updates[s] && (a.back ? s + 1 == p->n || done[s + 1][1][a.micro]
                                                    : s == 0 || done[s - 1][0][a.micro]);
            if (!there) {
                continue;
            }
            int64_t *v = &used[s][a.micro];
            *v = a.back ? *v : ru_pipe_version(p, s, a.micro / p->micro, a.micro % p->micro, 0);
            assert_true(*v <= updates[s] && updates[s] <= *v + ru_pipe_late(p, s));
            assert_true(p->schedule != RU_PIPE_SCHEDULE_STASH || a.back || *v == updates[s]);
            assert_true(p->schedule == RU_PIPE_SCHEDULE_STASH || *v == used[0][a.micro]);
            done[s][a.back][a.micro] = moved = true;
            at[s][r]++;
            left--;
            bool whole = true; /* all workers of the stage are at the end of the step? */
            for (uint32_t i = 0; i < m; i++) {
                for (uint32_t j = updates[s] * p->micro; j < (updates[s] + 1) * p->micro; j++) {
                    whole = whole && j < all && done[s][1][j];
                }
            }
            updates[s] += whole;
        }
    }
    assert_int_equal(left, 0);
}

static void what_flows_on_ends_with_the_versions_it_keeps(void **state)
{
    (void)state;
    static const uint32_t many[][3] = {{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {1, 2, 1},
                                       {4, 3, 1}, {3, 1, 1}, {2, 3, 1}, {4, 1, 1}};
    for (uint32_t c = 0; c < RU_ARRAY_LEN(many); c++) {
        const uint32_t *w = many[c];
        for (uint32_t micro = 1; micro <= LONG_MAX / STEPS; micro++) {
            const ru_pipe_shape stash = shape(RU_PIPE_SCHEDULE_STASH, w, 3, micro),
                                vertical = shape(RU_PIPE_SCHEDULE_VERTICAL, w, 3, micro),
                                two = shape(RU_PIPE_SCHEDULE_2BW, w, 3, micro);
            if (micro % w[0] != 0 || micro % w[1] != 0) {
                continue;
            }
            flow(&stash);
            flow(&vertical);
            if (micro >= ru_pipe_micro_min(&two)) {
                flow(&two);
                assert_int_equal(ru_pipe_late(&two, 2), 1);
                assert_int_equal(ru_pipe_late(&vertical, 2), 1); /* the same rule */
                assert_int_equal(ru_pipe_versions(&two, 2), 2);
                assert_int_equal(ru_pipe_versions(&vertical, 2), 2);
            }
        }
    }
    /* 2 workers before 1: F2 lacks one update, in the first stage alone. */
    static const uint32_t w[] = {2, 1};
    const ru_pipe_shape p = shape(RU_PIPE_SCHEDULE_STASH, w, 2, 2),
                        four = shape(RU_PIPE_SCHEDULE_2BW, NULL, 4, 1);
    assert_int_equal(ru_pipe_in_flight(&p, 0), 2);
    assert_int_equal(ru_pipe_late(&p, 0), 1);
    assert_int_equal(ru_pipe_versions(&p, 0), 3);
    assert_int_equal(ru_pipe_versions(&p, 1), 1);
    assert_int_equal(ru_pipe_version(&p, 0, 5, 1, 0), 4);
    assert_int_equal(ru_pipe_version(&p, 1, 5, 1, 0), 5);
    assert_int_equal(ru_pipe_micro_min(&four), 4);
    assert_int_equal(ru_pipe_micro_min(&p), 1);
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
         cmocka_unit_test(what_flows_on_ends_with_the_versions_it_keeps),
         cmocka_unit_test(replicas_never_wait_for_each_other_for_ever),
         cmocka_unit_test(the_bubble_is_the_published_one), cmocka_unit_test(lists_are_whole))
