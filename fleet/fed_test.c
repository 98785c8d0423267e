/* Rounds of clients: profile, deadline, late answers and exclusion by hand; tiers that are made
 * again; a storm of answers, losses, joins and leaves in which every update is averaged once. */
#include "fleet/fed.h"

#include <math.h>
#include <string.h>

#include "base/fields.h"
#include "base/rng.h"
#include "plan/row/policy.h"
#include "test/test.h"

static const int64_t second = 1000000000;

enum { FIRST = 0x740, LIST_MAX = 64 };

/* A job, its timer, and what the last step asked for. */
typedef struct box {
    ru_fed *f;
    ru_time timer;
    ru_arena memory; /* fixed */
    ru_effects fx;
    uint32_t task, send[LIST_MAX], n_send, merge[LIST_MAX], n_merge;
    bool profile, retiered, evaluate, done;
} box;

static uint32_t list_of(const ru_effect *e, uint32_t *into)
{
    const ru_fed_list *l = e->data;
    assert_int_equal(e->size_bytes, sizeof *l + l->n * sizeof *into);
    assert_true(l->n >= 1 && l->n <= LIST_MAX);
    memcpy(into, l->client, l->n * sizeof *into);
    return l->n;
}

static void see(box *b, const ru_effect *e)
{
    if (e->kind != RU_FX_LOCAL) {
        assert_int_equal(e->what, FIRST + RU_FED_TIMER);
        b->timer.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
        return;
    }
    if (e->what == FIRST + RU_FED_TASK) {
        const ru_fed_list *l = e->data;
        b->n_send = list_of(e, b->send);
        b->task = l->task;
        b->profile = l->profile;
    } else if (e->what == FIRST + RU_FED_MERGE) {
        b->n_merge = list_of(e, b->merge);
    }
    assert_int_not_equal(e->what, FIRST + RU_FED_FAILED);
    b->retiered = b->retiered || e->what == FIRST + RU_FED_RETIERED;
    b->evaluate = b->evaluate || e->what == FIRST + RU_FED_EVALUATE;
    b->done = b->done || e->what == FIRST + RU_FED_DONE;
}

static const box *at(box *b, double s, ru_event ev)
{
    ev.now.ns = 1 + (int64_t)(s * (double)second);
    ev.what += FIRST;
    ru_effects_init(&b->fx, &b->memory);
    b->task = b->n_send = b->n_merge = 0;
    b->profile = b->retiered = b->evaluate = false;
    b->timer.ns = ev.kind == RU_EV_TIMER ? INT64_MAX : b->timer.ns;
    ru_alloc_seal();
    ru_fed_step(b->f, &ev, &b->fx);
    ru_alloc_unseal();
    for (uint32_t i = 0; i < b->fx.n; i++) {
        see(b, &b->fx.at[i]);
    }
    ru_effects_clear(&b->fx);
    return b;
}

static const ru_event begin = {.kind = RU_EV_START};
static const ru_event timer = {.kind = RU_EV_TIMER, .what = RU_FED_TIMER};

static ru_event about(ru_fed_word word, uint32_t client)
{
    return (ru_event){.kind = RU_EV_LOCAL, .what = word, .value = client};
}

static ru_event with(ru_fed_word word, const void *data, int64_t size_bytes)
{
    return (ru_event){.kind = RU_EV_LOCAL, .what = word, .data = data, .size_bytes = size_bytes};
}

static const box *answer(box *b, double s, uint32_t client, uint32_t task)
{
    const ru_fed_answer a = {.client = client, .task = task, .loss = 1};
    return at(b, s, with(RU_FED_ANSWER, &a, sizeof a));
}

static bool has(const uint32_t *list, uint32_t n, uint32_t client)
{
    for (uint32_t i = 0; i < n; i++) {
        if (list[i] == client) {
            return true;
        }
    }
    return false;
}

static box fed_of(ru_arena *a, uint32_t n, ru_pick_method method, uint32_t rounds)
{
    static const double samples[64] = {
        10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10,
        10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10,
        10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10};
    const ru_fed_options opt = {.n = n,
                                .samples = samples,
                                .rounds = rounds,
                                .per_round = 2,
                                .n_tiers = 2,
                                .interval = 3,
                                .profile_rounds = 2,
                                .profile_wait_ns = 20 * second,
                                .method = method,
                                .seed = 3,
                                .what_first = FIRST};
    enum { BYTES = 1 << 14 };
    box b = {.timer = {INT64_MAX}};
    ru_err err;
    assert_ok(ru_fed_init(&opt, (ru_time){1}, a, &b.f, &err), err);
    ru_arena_init_fixed(&b.memory, ru_arena_alloc(a, BYTES, 8), BYTES);
    return b;
}

static void test_a_job_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box f = fed_of(&a, 5, RU_PICK_UNIFORM, 3);
    const box *e = at(&f, 0, begin);
    assert_true(e->n_send == 5 && e->profile && e->timer.ns == 1 + 20 * second);
    for (uint32_t i = 0; i < 4; i++) {
        e = answer(&f, i + 1, i, e->task > 0 ? e->task : 1);
        assert_int_equal(e->n_send, 0);
    }
    e = at(&f, 20, timer); /* the fifth never answers */
    assert_true(e->n_send == 4 && e->profile && e->task == 2);
    for (uint32_t i = 0; i < 4; i++) {
        e = answer(&f, 21 + i, i, 2);
    }
    /* Tiers of 1, 2 and 3, 4 seconds; the first round is one of them. */
    assert_true(e->n_send == 2 && !e->profile && e->retiered && e->task == 3);
    const uint32_t *tier = ru_fed_tier_of(f.f);
    assert_true(tier[0] == 0 && tier[1] == 0 && tier[2] == 1 && tier[3] == 1);
    assert_int_equal(tier[4], RU_PICK_NONE);
    assert_near(ru_fed_audit(f.f, 2).latency_s, 3, 1e-6);
    uint32_t one = e->send[0], two = e->send[1];
    assert_int_equal(tier[one], tier[two]);
    double deadline = 24 + 1.5 * ru_fed_audit(f.f, two).latency_s;
    assert_true(fabs((double)(e->timer.ns - 1) / 1e9 - deadline) < 1e-6);
    e = answer(&f, 24.5, one, 2); /* an old task */
    assert_int_equal(e->n_merge, 0);
    e = answer(&f, 24.5, one, 3);
    assert_int_equal(e->n_merge, 0);
    e = at(&f, deadline, timer); /* the other one is late */
    assert_true(e->n_merge == 1 && e->merge[0] == one && ru_fed_round(f.f) == 2);
    assert_false(has(e->send, e->n_send, two));
    e = answer(&f, deadline + 0.1, two, 3); /* learnt, not averaged */
    assert_int_equal(e->n_merge, 0);
    assert_int_equal(ru_fed_audit(f.f, two).picks, 0);
    assert_int_equal(ru_fed_audit(f.f, one).picks, 1);
    ru_arena_fini(&a);
}

/* In rounds with tiers and without, beside a client that nobody heard of. */
static void test_facts_are_an_input_of_the_policy(void **state)
{
    (void)state;
    static const ru_pick_method methods[] = {RU_PICK_UNIFORM, RU_PICK_VANILLA};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(methods); k++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_err err;
        box f = fed_of(&a, 6, methods[k], 3);
        (void)at(&f, 0, begin);
        for (uint32_t i = 0; i < 5; i++) {
            (void)answer(&f, 1 + i, i, 1);
        }
        (void)at(&f, 20, timer); /* the sixth never answers */
        for (uint32_t i = 0; i < 5; i++) {
            (void)answer(&f, 21 + i, i, 2);
        }
        assert_int_equal(ru_fed_round(f.f), 1);
        const ru_pick_in *in = ru_fed_facts(f.f);
        assert_true(in->client[5].away && in->n_told == 2 && in->n_chance == 2);
        assert_true(methods[k] == RU_PICK_VANILLA ? in->last_tier == -1
                                                  : in->last_tier >= 0 && in->last_tier < 2);
        assert_ok(ru_fields_check(ru_policy_pick.in, in, &err), err);
        ru_arena_fini(&a);
    }
}

typedef struct word {
    box b;
    ru_event ev;
} word;

static void say(void *self)
{
    word *w = self;
    (void)at(&w->b, 1, w->ev);
}

/* Their low 32 bits name a client. */
static void test_numbers_beyond_the_clients_crash(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    word w = {.b = fed_of(&a, 5, RU_PICK_UNIFORM, 3)};
    (void)at(&w.b, 0, begin);
    static const ru_fed_word words[] = {RU_FED_JOIN, RU_FED_LEAVE};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        static const int64_t beyond[] = {5, -1, INT64_C(1) << 32};
        w.ev = about(words[k], 4);
        assert_false(ru_test_crashes(say, &w));
        for (uint32_t i = 0; i < RU_ARRAY_LEN(beyond); i++) {
            w.ev.value = beyond[i];
            assert_true(ru_test_crashes(say, &w));
        }
    }
    ru_arena_fini(&a);
}

/* Every client that got a task in the tier drawn answers after its time; rounds until the end. */
static uint32_t play(box f, const double *seconds, uint32_t change_at, const double *later,
                     uint32_t *rounds)
{
    double now = 0;
    uint32_t retiered = 0;
    const box *e = at(&f, 0, begin);
    *rounds = 0;
    while (!e->done) {
        uint32_t send[64], n_send = e->n_send, task = e->task;
        memcpy(send, e->send, n_send * sizeof *send);
        double begun = now, end = now;
        const double *s = ru_fed_round(f.f) >= change_at ? later : seconds;
        /* Answers in order of time. */
        for (uint32_t k = 0; k < n_send; k++) {
            uint32_t best = k;
            for (uint32_t j = k + 1; j < n_send; j++) {
                best = s[send[j]] < s[send[best]] ? j : best;
            }
            uint32_t t = send[k];
            send[k] = send[best];
            send[best] = t;
            double when = begun + s[send[k]];
            if ((double)e->timer.ns / 1e9 < when) {
                e = at(&f, (double)e->timer.ns / 1e9, timer);
                now = fmax(end, now);
                end = when;
                break;
            }
            end = when;
            e = answer(&f, when, send[k], task);
        }
        now = end;
        retiered += e->retiered ? 1 : 0;
        *rounds += e->n_merge > 0 ? 1 : 0;
        if (e->evaluate) {
            const double accuracy[2] = {0.9, 0.5};
            e = at(&f, now, with(RU_FED_EVALUATED, accuracy, sizeof accuracy));
            retiered += e->retiered ? 1 : 0;
        }
    }
    return retiered;
}

static void test_tiers_follow_clients_that_change(void **state)
{
    (void)state;
    double seconds[20], later[20];
    for (uint32_t i = 0; i < 20; i++) {
        seconds[i] = i < 10 ? 1 + 0.01 * i : 3 + 0.01 * i;
        later[i] = i < 10 ? seconds[i] * 1.4 : seconds[i];
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    uint32_t rounds;
    assert_int_equal(play(fed_of(&a, 20, RU_PICK_ADAPTIVE, 80), seconds, 100, later, &rounds), 1);
    assert_int_equal(rounds, 80);
    box f = fed_of(&a, 20, RU_PICK_ADAPTIVE, 80);
    assert_true(play(f, seconds, 10, later, &rounds) > 1);
    assert_int_equal(rounds, 80);
    ru_arena_fini(&a);
}

enum { N = 24, EVENTS = 6000 };

static void test_a_storm_averages_every_update_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_rng rng = ru_rng_from(ru_test_seed() + seed, 4);
        box f = fed_of(&a, N, (ru_pick_method)(seed % RU_PICK_METHODS), 1000000);
        uint32_t task_of[N] = {0}, taken[N] = {0};
        bool away[N] = {false};
        uint32_t n_away = 0, merges = 0;
        double now = 0, accuracy[2];
        ru_fed_answer said;
        ru_event ev = begin;
        for (uint32_t k = 0; k < EVENTS; k++) {
            const box *e = at(&f, now, ev);
            for (uint32_t m = 0; m < e->n_merge; m++) {
                uint32_t i = e->merge[m];
                assert_true(taken[i] != 0); /* it answered this round's task, once */
                taken[i] = 0;
                merges++;
            }
            if (e->n_send > 0 && !e->profile) {
                memset(taken, 0, sizeof taken);
            }
            for (uint32_t s = 0; s < e->n_send; s++) {
                assert_false(away[e->send[s]]);
                assert_true(e->task > 0);
                task_of[e->send[s]] = e->task;
            }
            now += ru_fed_round(f.f) == 0 ? 0.1 : 0.05 + ru_rng_f64(&rng);
            uint32_t what = ru_rng_below(&rng, 100), i = ru_rng_below(&rng, N);
            accuracy[0] = ru_rng_f64(&rng);
            accuracy[1] = ru_rng_f64(&rng);
            ev = timer;
            what = ru_fed_round(f.f) == 0 ? 0 : what; /* nobody is lost in the profile */
            if (e->evaluate) {
                ev = with(RU_FED_EVALUATED, accuracy, sizeof accuracy);
            } else if (what < 75) {
                for (uint32_t tries = 0; tries < N && task_of[i] == 0; tries++) {
                    i = (i + 1) % N;
                }
                said = (ru_fed_answer){.client = i, .task = task_of[i]};
                ev = with(RU_FED_ANSWER, &said, sizeof said);
                taken[i] = task_of[i] != 0 ? task_of[i] : taken[i]; /* else it answers twice */
                task_of[i] = 0;
            } else if (what < 77 && n_away < N / 4 && !away[i] && ru_fed_round(f.f) > 0) {
                ev = about(RU_FED_LEAVE, i);
                away[i] = true;
                n_away++;
            } else if (what < 82 && away[i]) {
                ev = about(RU_FED_JOIN, i);
                away[i] = false;
                n_away--;
            } else if (e->timer.ns != INT64_MAX) {
                now = fmax(now, (double)e->timer.ns / 1e9);
            }
        }
        assert_true(merges > 200);
        ru_arena_fini(&a);
    }
}

RU_TESTS(fleet_fed, cmocka_unit_test(test_a_job_by_hand),
         cmocka_unit_test(test_facts_are_an_input_of_the_policy),
         cmocka_unit_test(test_numbers_beyond_the_clients_crash),
         cmocka_unit_test(test_tiers_follow_clients_that_change),
         cmocka_unit_test(test_a_storm_averages_every_update_once))
