/* Instances: times by hand, and a storm of all events beside a plain account of what must be. */
#include "function/pool.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { FIRST = 0x300, LOG = 64 };
#define MS INT64_C(1000000)

typedef struct box {
    ru_functions *f;
    ru_arena memory; /* fixed */
    ru_effects fx;
    ru_time now, timer;
    uint32_t n_spawn, n_invoke, n_end, n_answer;
    ru_function_order spawns[LOG], invokes[LOG], ends[LOG];
    ru_function_answer answers[LOG];
} box;

static box open_box(ru_arena *a, ru_functions_options o)
{
    enum { BYTES = 1 << 16 };
    box b = {.timer = {INT64_MAX}};
    ru_err err;
    o.what_first = FIRST;
    assert_ok(ru_functions_init(&o, a, &b.f, &err), err);
    ru_arena_init_fixed(&b.memory, ru_arena_alloc(a, BYTES, 8), BYTES);
    return b;
}

static void see(box *b, const ru_effect *e)
{
    if (e->kind == RU_FX_TIMER || e->kind == RU_FX_TIMER_OFF) {
        assert_int_equal(e->what, FIRST + RU_FUNCTION_TIMER);
        b->timer.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
        return;
    }
    assert_true(b->n_spawn < LOG && b->n_invoke < LOG && b->n_end < LOG && b->n_answer < LOG);
    switch (e->what - FIRST) {
    case RU_FUNCTION_SPAWN:
        memcpy(&b->spawns[b->n_spawn++], e->data, sizeof b->spawns[0]);
        break;
    case RU_FUNCTION_INVOKE:
        memcpy(&b->invokes[b->n_invoke++], e->data, sizeof b->invokes[0]);
        break;
    case RU_FUNCTION_END:
        memcpy(&b->ends[b->n_end++], e->data, sizeof b->ends[0]);
        break;
    default:
        assert_int_equal(e->what, FIRST + RU_FUNCTION_ANSWER);
        memcpy(&b->answers[b->n_answer++], e->data, sizeof b->answers[0]);
    }
}

static void step(box *b, ru_event ev)
{
    ru_effects_init(&b->fx, &b->memory);
    b->n_spawn = b->n_invoke = b->n_end = b->n_answer = 0;
    b->timer.ns = ev.kind == RU_EV_TIMER ? INT64_MAX : b->timer.ns;
    ev.what += FIRST;
    ev.now = b->now;
    ru_alloc_seal();
    ru_functions_step(b->f, &ev, &b->fx);
    ru_alloc_unseal();
    for (uint32_t i = 0; i < b->fx.n; i++) {
        see(b, &b->fx.at[i]);
    }
    ru_effects_clear(&b->fx);
}

static void call(box *b, int64_t at_ns, uint64_t id, uint32_t memory_mb)
{
    const ru_function_call c = {id, memory_mb};
    b->now.ns = at_ns;
    step(b, (ru_event){
                .kind = RU_EV_LOCAL, .what = RU_FUNCTION_CALL, .data = &c, .size_bytes = sizeof c});
}

static void up(box *b, int64_t at_ns, uint32_t instance)
{
    b->now.ns = at_ns;
    step(b, (ru_event){.kind = RU_EV_LOCAL, .what = RU_FUNCTION_UP, .value = instance});
}

static void say(box *b, int64_t at_ns, ru_function_word word, uint32_t instance, uint32_t try,
                ru_function_result result)
{
    const ru_function_reply r = {instance, try, result};
    b->now.ns = at_ns;
    step(b, (ru_event){.kind = RU_EV_LOCAL, .what = word, .data = &r, .size_bytes = sizeof r});
}

static void timer(box *b)
{
    b->now = b->timer;
    step(b, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNCTION_TIMER});
}

static void test_an_instance_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box b = open_box(&a, (ru_functions_options){.instances_max = 2,
                                                .waiting_max = 1,
                                                .limit_ns = 100 * MS,
                                                .start_max_ns = 1000 * MS,
                                                .keep_ns = 500 * MS});
    call(&b, 0, 1, 512);
    assert_true(b.n_spawn == 1 && b.spawns[0].memory_mb == 512 && b.n_invoke == 0);
    assert_int_equal(b.timer.ns, 1000 * MS);
    uint32_t first = b.spawns[0].instance;
    up(&b, 20 * MS, first);
    assert_true(b.n_invoke == 1 && b.invokes[0].id == 1 && b.invokes[0].left_ns == 100 * MS);
    call(&b, 25 * MS, 2, 512); /* the other place */
    assert_true(b.n_spawn == 1 && b.spawns[0].instance != first);
    uint32_t second = b.spawns[0].instance;
    say(&b, 30 * MS + 1, RU_FUNCTION_REPLY, first, b.invokes[0].try, RU_FUNCTION_OK);
    /* 10 ms and a bit are billed as 11; the warm one takes the second call */
    assert_true(b.n_answer == 1 && b.answers[0].result == RU_FUNCTION_OK && b.answers[0].cold);
    assert_true(b.answers[0].wait_ns == 20 * MS && b.answers[0].billed_ns == 11 * MS);
    assert_true(b.n_invoke == 1 && b.invokes[0].instance == first && b.invokes[0].id == 2);
    call(&b, 40 * MS, 3, 512); /* for the one that starts */
    call(&b, 40 * MS, 4, 512); /* waits */
    assert_int_equal(b.n_answer, 0);
    call(&b, 40 * MS, 5, 512);
    assert_true(b.n_answer == 1 && b.answers[0].result == RU_FUNCTION_THROTTLED);
    /* the second call's time is up at 130 ms + 1 */
    assert_int_equal(b.timer.ns, 130 * MS + 1);
    timer(&b);
    assert_true(b.n_answer == 1 && b.answers[0].id == 2 &&
                b.answers[0].result == RU_FUNCTION_LATE && !b.answers[0].cold);
    assert_true(b.n_end == 1 && b.ends[0].instance == first && b.ends[0].kill);
    say(&b, 131 * MS, RU_FUNCTION_REPLY, first, 2, RU_FUNCTION_OK); /* nobody asks any more */
    assert_int_equal(b.n_answer, 0);
    say(&b, 132 * MS, RU_FUNCTION_DOWN, first, 0, RU_FUNCTION_DIED);
    assert_int_equal(b.n_spawn, 1); /* for call 4 */
    up(&b, 140 * MS, second);
    assert_true(b.n_invoke == 1 && b.invokes[0].id == 3);
    say(&b, 150 * MS, RU_FUNCTION_DOWN, second, 0, RU_FUNCTION_MEMORY);
    assert_true(b.n_answer == 1 && b.answers[0].result == RU_FUNCTION_MEMORY);
    up(&b, 160 * MS, first);
    say(&b, 161 * MS, RU_FUNCTION_REPLY, first, b.invokes[0].try, RU_FUNCTION_OK);
    assert_int_equal(b.timer.ns, 661 * MS);
    timer(&b); /* idle for long enough */
    assert_true(b.n_end == 1 && !b.ends[0].kill);
    ru_function_meter m = ru_functions_meter(b.f);
    assert_true(m.calls == 4 && m.starts == 3 && m.start_ns == (20 + 115 + 28) * MS);
    assert_true(m.busy == 0 && m.waiting == 0);
    assert_near(m.gb_s, (11 + 100 + 10 + 1) * 1e-3 / 2, 1e-12);
    ru_arena_fini(&a);
}

static void test_other_memory_makes_room(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box b = open_box(&a, (ru_functions_options){.instances_max = 1});
    call(&b, 0, 1, 512);
    up(&b, 1, 0);
    say(&b, 2, RU_FUNCTION_REPLY, 0, b.invokes[0].try, RU_FUNCTION_OK);
    call(&b, 3, 2, 1024); /* nothing may wait, but this one has a place soon */
    assert_true(b.n_end == 1 && b.n_answer == 0 && b.n_spawn == 0);
    say(&b, 4, RU_FUNCTION_DOWN, 0, 0, RU_FUNCTION_OK);
    assert_true(b.n_spawn == 1 && b.spawns[0].memory_mb == 1024);
    for (int k = 0; k < 3; k++) { /* it never starts */
        assert_int_equal(b.n_answer, 0);
        say(&b, 5, RU_FUNCTION_DOWN, 0, 0, RU_FUNCTION_OK);
    }
    assert_true(b.n_answer == 1 && b.answers[0].result == RU_FUNCTION_START);
    ru_arena_fini(&a);
}

static void test_an_endpoint_is_asked_again_later(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box b = open_box(&a, (ru_functions_options){.instances_max = 4,
                                                .waiting_max = 4,
                                                .tries_max = 3,
                                                .again_ns = 10 * MS,
                                                .remote = true});
    call(&b, 0, 1, 512);
    for (int64_t k = 0, wait = 10 * MS, at = MS; k < 3; k++, wait *= 2) {
        assert_true(b.n_spawn == 0 && b.n_invoke == 1);
        say(&b, at, RU_FUNCTION_REPLY, b.invokes[0].instance, b.invokes[0].try,
            RU_FUNCTION_THROTTLED);
        if (k < 2) {
            assert_true(b.n_answer == 0 && b.timer.ns == at + wait);
            at = b.timer.ns;
            timer(&b);
        }
    }
    assert_true(b.n_answer == 1 && b.answers[0].tries == 3 &&
                b.answers[0].result == RU_FUNCTION_THROTTLED && b.answers[0].billed_ns == 0);
    assert_true(ru_functions_meter(b.f).calls == 0 && ru_functions_meter(b.f).again == 2);
    ru_arena_fini(&a);
}

/* What the storm knows: which calls are open, which instances it was told to run. */
typedef struct storm {
    box b;
    ru_rng rng;
    bool open[4096];
    uint32_t alive[8], memory[8], try[8]; /* 0: none, 1: starts, 2: up, 3: busy, 4: ends */
    uint64_t id[8];
    int64_t since[8];
    uint32_t asked, answered;
    double gb_s;
} storm;

static void bill(storm *s, uint32_t i)
{
    int64_t ran = s->b.now.ns - s->since[i];
    s->gb_s += (double)((ran + MS - 1) / MS) * 1e-3 * s->memory[i] / 1024;
}

static void follow(storm *s)
{
    box *b = &s->b;
    for (uint32_t k = 0; k < b->n_answer; k++) {
        const ru_function_answer *a = &b->answers[k];
        assert_true(s->open[a->id]);
        s->open[a->id] = false;
        s->answered++;
        if (a->instance != RU_FUNCTION_NONE && s->alive[a->instance] == 3 &&
            s->id[a->instance] == a->id) {
            bill(s, a->instance); /* its time was up */
            s->alive[a->instance] = 2;
        }
    }
    for (uint32_t k = 0; k < b->n_end; k++) {
        uint32_t i = b->ends[k].instance;
        assert_true(s->alive[i] == 1 || s->alive[i] == 2);
        s->alive[i] = 4;
    }
    for (uint32_t k = 0; k < b->n_spawn; k++) {
        uint32_t i = b->spawns[k].instance;
        assert_int_equal(s->alive[i], 0);
        s->alive[i] = 1;
        s->memory[i] = b->spawns[k].memory_mb;
    }
    for (uint32_t k = 0; k < b->n_invoke; k++) {
        const ru_function_order *o = &b->invokes[k];
        assert_true(s->alive[o->instance] == 2 && s->memory[o->instance] == o->memory_mb);
        assert_true(s->open[o->id]);
        s->alive[o->instance] = 3;
        s->id[o->instance] = o->id;
        s->try[o->instance] = o->try;
        s->since[o->instance] = b->now.ns;
    }
}

static void happen(storm *s, bool asks)
{
    box *b = &s->b;
    int64_t at = b->now.ns + (int64_t)ru_rng_below(&s->rng, 8000000);
    uint32_t i = ru_rng_below(&s->rng, 8), dice = ru_rng_below(&s->rng, 100);
    if (b->timer.ns <= at) {
        timer(b);
    } else if (asks && dice < 40) {
        s->open[s->asked] = true;
        call(b, at, s->asked++, 256u << ru_rng_below(&s->rng, 3));
    } else if (s->alive[i] == 1 && dice < 90) {
        s->alive[i] = 2;
        up(b, at, i);
    } else if (s->alive[i] == 3 && dice < 90) {
        ru_function_result r = dice < 70 ? RU_FUNCTION_OK : RU_FUNCTION_FAULT;
        b->now.ns = at;
        bill(s, i);
        s->alive[i] = 2;
        say(b, at, RU_FUNCTION_REPLY, i, s->try[i], r);
    } else if (s->alive[i] != 0 && dice < 95) {
        b->now.ns = at;
        if (s->alive[i] == 3) {
            bill(s, i);
        }
        s->alive[i] = 0;
        say(b, at, RU_FUNCTION_DOWN, i, 0, RU_FUNCTION_DIED);
    } else {
        b->now.ns = at;
        return;
    }
    follow(s);
}

static void test_storm(void **state)
{
    (void)state;
    uint64_t seed = ru_test_seed();
    for (uint32_t round = 0; round < 20; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        storm s = {.b = open_box(&a, (ru_functions_options){.instances_max = 8,
                                                            .waiting_max = round % 5,
                                                            .tries_max = 1 + round % 3,
                                                            .limit_ns = 40 * MS,
                                                            .start_max_ns = 60 * MS,
                                                            .keep_ns = 30 * MS}),
                   .rng = ru_rng_from(seed + round, 1)};
        while (s.asked < 2000) {
            happen(&s, true);
        }
        for (uint32_t k = 0; k < 20000 && s.answered < s.asked; k++) {
            happen(&s, false);
        }
        assert_int_equal(s.answered, s.asked);
        ru_function_meter m = ru_functions_meter(s.b.f);
        assert_near(m.gb_s, s.gb_s, 1e-9);
        assert_true(m.waiting == 0 && m.alive <= 8);
        ru_arena_fini(&a);
    }
}

RU_TESTS(function_pool, cmocka_unit_test(test_an_instance_by_hand),
         cmocka_unit_test(test_other_memory_makes_room),
         cmocka_unit_test(test_an_endpoint_is_asked_again_later), cmocka_unit_test(test_storm))
