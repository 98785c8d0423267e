/* Epochs of workers by hand: choices, hand-over before the time limit, a lost worker, one that
 * never answers, too little memory; and a storm of losses in which every step is done once, in
 * order. */
#include "fleet/func.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static const int64_t second = 1000000000;

enum { FIRST = 0x7c0, CALLS_MAX = 64 };

typedef struct box {
    ru_func *f;
    ru_arena memory;
    ru_effects fx;
    ru_time timer;
    uint32_t epoch, n_calls;
    ru_func_call calls[CALLS_MAX]; /* of the epoch */
    bool plan, fenced, failed;
    int64_t last, state; /* -1: not said */
    ru_status why;
} box;

static void see(box *b, const ru_effect *e)
{
    if (e->kind != RU_FX_LOCAL) {
        assert_int_equal(e->what, FIRST + RU_FUNC_TIMER);
        b->timer.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
        return;
    }
    switch ((ru_func_word)(e->what - FIRST)) {
    case RU_FUNC_PLAN:
        b->plan = true;
        break;
    case RU_FUNC_EPOCH:
        b->epoch = (uint32_t)e->value;
        b->n_calls = 0;
        b->fenced = false;
        b->last = -1;
        break;
    case RU_FUNC_STATE:
        b->state = e->value;
        break;
    case RU_FUNC_CALL:
        assert_true(b->n_calls < CALLS_MAX);
        memcpy(&b->calls[b->n_calls++], e->data, sizeof b->calls[0]);
        break;
    case RU_FUNC_LAST:
        b->last = e->value;
        break;
    case RU_FUNC_FENCE:
        b->fenced = true;
        break;
    case RU_FUNC_FAILED:
        b->failed = true;
        b->why = (ru_status)e->value;
        break;
    case RU_FUNC_CHOICE:
    case RU_FUNC_ANSWER:
    case RU_FUNC_SUMMED:
    case RU_FUNC_BUSY:
    case RU_FUNC_AGAIN:
    case RU_FUNC_STOP:
    case RU_FUNC_TIMER:
    case RU_FUNC_WORDS:
        fail_msg("word %u", e->what - FIRST);
    }
}

static void at(box *b, double s, ru_event ev)
{
    ev.now.ns = 1 + (int64_t)(s * (double)second);
    ev.what += FIRST;
    b->timer.ns = ev.kind == RU_EV_TIMER ? INT64_MAX : b->timer.ns;
    b->plan = false;
    ru_func_step(b->f, &ev, &b->fx);
    for (uint32_t i = 0; i < b->fx.n; i++) {
        see(b, &b->fx.at[i]);
    }
    ru_effects_clear(&b->fx);
}

static void say(box *b, double s, ru_func_word w, int64_t value)
{
    at(b, s, (ru_event){.kind = RU_EV_LOCAL, .what = w, .value = value});
}

static void choose(box *b, double s, uint32_t workers, int64_t end)
{
    const ru_func_choice c = {.workers = workers, .memory_mb = 1769, .end = end};
    at(b, s,
       (ru_event){.kind = RU_EV_LOCAL, .what = RU_FUNC_CHOICE, .data = &c, .size_bytes = sizeof c});
}

static void answer(box *b, double s, uint32_t epoch, uint32_t rank, ru_func_result r, int64_t step)
{
    const ru_func_answer a = {
        .epoch = epoch, .rank = rank, .result = r, .step = step, .why = "it is gone"};
    at(b, s,
       (ru_event){.kind = RU_EV_LOCAL, .what = RU_FUNC_ANSWER, .data = &a, .size_bytes = sizeof a});
}

static void open_with(box *b, const ru_func_options *o)
{
    *b = (box){.last = -1, .state = -1, .timer = {INT64_MAX}};
    ru_arena_init(&b->memory, 0);
    ru_err err;
    assert_ok(ru_func_init(o, &b->memory, &b->f, &err), err);
    ru_effects_init(&b->fx, &b->memory);
    at(b, 0, (ru_event){.kind = RU_EV_START, .what = 0});
    assert_true(b->plan);
}

static void open_box(box *b, int64_t steps, int64_t life_ns)
{
    const ru_func_options o = {.steps = steps, .life_ns = life_ns, .what_first = FIRST};
    open_with(b, &o);
}

static void close_box(box *b)
{
    ru_arena_fini(&b->memory);
}

static void test_end(void **state)
{
    box b;
    (void)state;
    open_box(&b, 10, 0);
    choose(&b, 0, 2, 4);
    assert_int_equal(b.n_calls, 2);
    assert_int_equal(b.state, 0);
    for (int64_t k = 0; k < 4; k++) {
        say(&b, 1 + (double)k, RU_FUNC_SUMMED, k);
    }
    answer(&b, 5, 1, 0, RU_FUNC_ENDED, 4);
    assert_false(b.plan);
    answer(&b, 5, 1, 1, RU_FUNC_ENDED, 4);
    assert_true(b.plan);
    assert_false(b.fenced);
    choose(&b, 5, 3, 10);
    assert_int_equal(b.epoch, 2);
    assert_int_equal(b.n_calls, 3);
    assert_int_equal(b.calls[2].first, 4);
    assert_int_equal(b.state, 4);
    answer(&b, 6, 1, 0, RU_FUNC_LOST, 0); /* of the epoch before */
    assert_false(b.fenced);
    close_box(&b);
}

/* The last step is said while it is not done, and the next epoch begins behind it. */
static void test_life(void **state)
{
    box b;
    int64_t k = 0;
    double s = 0;
    (void)state;
    open_box(&b, 1000, 20 * second);
    choose(&b, 0, 2, 1000);
    for (; b.last < 0; k++) {
        assert_true(k < 20);
        s += 1;
        say(&b, s, RU_FUNC_SUMMED, k);
    }
    assert_int_equal(b.last, k); /* the step that is under way */
    assert_true(s >= 10 && s + 2 <= 19);
    say(&b, s + 1, RU_FUNC_SUMMED, k);
    answer(&b, s + 1, 1, 0, RU_FUNC_ENDED, k + 1);
    answer(&b, s + 1, 1, 1, RU_FUNC_ENDED, k + 1);
    assert_false(b.plan);
    assert_int_equal(b.epoch, 2);
    assert_int_equal(b.calls[1].first, k + 1);
    assert_int_equal(ru_func_figures_of(b.f).fenced, 0);
    close_box(&b);
}

/* What is wanted anew ends the epoch behind the step under way, also when a hand-over was said. */
static void test_again(void **state)
{
    box b;
    (void)state;
    open_box(&b, 100, 0);
    choose(&b, 0, 2, 50);
    say(&b, 1, RU_FUNC_SUMMED, 0);
    say(&b, 1.5, RU_FUNC_AGAIN, 0);
    assert_int_equal(b.last, 1);
    say(&b, 1.6, RU_FUNC_AGAIN, 0);
    say(&b, 2, RU_FUNC_SUMMED, 1);
    answer(&b, 2, 1, 0, RU_FUNC_ENDED, 2);
    answer(&b, 2, 1, 1, RU_FUNC_ENDED, 2);
    assert_true(b.plan && !b.fenced);
    choose(&b, 3, 1, 4); /* two steps: the second one is the last anyway */
    say(&b, 4, RU_FUNC_SUMMED, 2);
    say(&b, 4, RU_FUNC_AGAIN, 0);
    assert_int_equal(b.last, -1);
    close_box(&b);
}

/* Sums that come late: the last step is one that no worker can have ended. */
static void test_ahead(void **state)
{
    box b;
    const ru_func_options o = {.steps = 100, .ahead = 3, .what_first = FIRST};
    (void)state;
    open_with(&b, &o);
    choose(&b, 0, 1, 50);
    say(&b, 1, RU_FUNC_SUMMED, 0);
    say(&b, 1, RU_FUNC_AGAIN, 0);
    assert_int_equal(b.last, 4);
    for (int64_t k = 1; k < 5; k++) {
        say(&b, 2, RU_FUNC_SUMMED, k);
    }
    answer(&b, 3, 1, 0, RU_FUNC_ENDED, 5);
    assert_true(b.plan && !b.fenced);
    close_box(&b);
}

static void test_lost(void **state)
{
    box b;
    (void)state;
    open_box(&b, 100, 0);
    choose(&b, 0, 3, 100);
    say(&b, 1, RU_FUNC_SUMMED, 0);
    say(&b, 2, RU_FUNC_SUMMED, 1);
    answer(&b, 2.5, 1, 1, RU_FUNC_LOST, 0);
    assert_true(b.fenced);
    say(&b, 2.6, RU_FUNC_SUMMED, 2); /* nothing that is fenced counts */
    answer(&b, 2.7, 1, 0, RU_FUNC_ENDED, 2);
    assert_int_equal(b.epoch, 1);
    answer(&b, 2.8, 1, 2, RU_FUNC_ENDED, 2);
    assert_int_equal(b.epoch, 2);
    assert_int_equal(b.calls[0].first, 2);
    /* A worker that never answers: the others go on without it. */
    say(&b, 4, RU_FUNC_SUMMED, 2);
    double stall = (double)b.timer.ns / (double)second;
    assert_true(stall >= 34 && stall < 40);
    at(&b, stall, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
    assert_true(b.fenced);
    answer(&b, stall, 2, 0, RU_FUNC_ENDED, 3);
    answer(&b, stall, 2, 1, RU_FUNC_ENDED, 3);
    assert_int_equal(b.epoch, 2);
    at(&b, (double)b.timer.ns / (double)second,
       (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
    assert_int_equal(b.epoch, 3);
    assert_int_equal(b.calls[0].first, 3);
    close_box(&b);
}

/* Steps that wait for the owner are no stall, and have their time when it goes on. */
static void test_busy(void **state)
{
    box b;
    (void)state;
    open_box(&b, 100, 0);
    choose(&b, 0, 1, 100);
    say(&b, 1, RU_FUNC_SUMMED, 0);
    say(&b, 2, RU_FUNC_SUMMED, 1);
    say(&b, 2, RU_FUNC_BUSY, 1);
    double s = (double)b.timer.ns / (double)second;
    at(&b, s, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
    assert_false(b.fenced);
    double free_s = (double)b.timer.ns / (double)second - 1;
    assert_true(free_s > s);
    say(&b, free_s, RU_FUNC_BUSY, 0);
    at(&b, free_s + 29, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
    assert_false(b.fenced);
    at(&b, free_s + 31, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
    assert_true(b.fenced);
    close_box(&b);
}

static void test_failures(void **state)
{
    box b;
    double s = 0;
    (void)state;
    open_box(&b, 100, 0);
    choose(&b, 0, 1, 100);
    for (uint32_t k = 0; k < 5; k++) {
        assert_false(b.failed);
        assert_int_equal(b.epoch, k + 1);
        answer(&b, s, b.epoch, 0, RU_FUNC_LOST, 0);
        s = b.timer.ns == INT64_MAX ? s : (double)b.timer.ns / (double)second;
        if (!b.failed) {
            at(&b, s, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
        }
    }
    assert_true(b.failed);
    close_box(&b);
    open_box(&b, 2, 0); /* they end as they should, but their sums are not those of the owner */
    choose(&b, 0, 1, 2);
    for (uint32_t k = 0; k < 5; k++) {
        assert_int_equal(b.epoch, k + 1);
        answer(&b, s, b.epoch, 0, RU_FUNC_ENDED, 2);
        s = b.failed ? s : (double)b.timer.ns / (double)second;
        at(&b, s, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
    }
    assert_true(b.failed);
    close_box(&b);
    open_box(&b, 100, 0);
    choose(&b, 0, 2, 100);
    answer(&b, 1, 1, 0, RU_FUNC_MEMORY, 0);
    answer(&b, 1, 1, 1, RU_FUNC_ENDED, 0);
    assert_true(b.plan);
    choose(&b, 1, 2, 100);
    answer(&b, 2, 2, 0, RU_FUNC_REFUSED, 0);
    assert_true(b.failed);
    assert_int_equal(b.why, RU_E_USER);
    close_box(&b);
}

/* Workers die at random, answer late or never; steps are done in order, none twice. */
static void test_storm(void **state)
{
    enum { STEPS = 300 };
    box b;
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    double s = 0;
    int64_t done = 0;
    (void)state;
    open_box(&b, STEPS, 50 * second);
    choose(&b, 0, 3, STEPS);
    while (done < STEPS) {
        assert_false(b.failed);
        uint32_t epoch = b.epoch, n = 1 + (uint32_t)ru_rng_below(&rng, 40);
        assert_int_equal(b.n_calls, 3);
        assert_int_equal(b.calls[0].first, done);
        assert_int_equal(b.state, done);
        for (uint32_t k = 0; k < n && done < STEPS && (b.last < 0 || done <= b.last); k++) {
            s += 0.1;
            say(&b, s, RU_FUNC_SUMMED, done++);
        }
        bool lost = done < STEPS && (b.last < 0 || done <= b.last);
        uint32_t dead = lost ? (uint32_t)ru_rng_below(&rng, 3) : 3;
        if (lost) {
            answer(&b, s, epoch, dead, RU_FUNC_LOST, 0);
            assert_true(b.fenced);
        }
        for (uint32_t r = 0; r < 3; r++) {
            if (r != dead && (!lost || ru_rng_below(&rng, 8) > 0)) {
                answer(&b, s, epoch, r, RU_FUNC_ENDED, done);
            }
        }
        while (done < STEPS && b.epoch == epoch) { /* somebody did not answer, or a moment passes */
            assert_true(b.timer.ns < INT64_MAX);
            s = (double)b.timer.ns / (double)second;
            at(&b, s, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNC_TIMER});
        }
    }
    assert_int_equal(ru_func_figures_of(b.f).done, STEPS);
    close_box(&b);
}

RU_TESTS(fleet_func, cmocka_unit_test(test_end), cmocka_unit_test(test_life),
         cmocka_unit_test(test_again), cmocka_unit_test(test_ahead), cmocka_unit_test(test_lost),
         cmocka_unit_test(test_busy), cmocka_unit_test(test_failures), cmocka_unit_test(test_storm))
