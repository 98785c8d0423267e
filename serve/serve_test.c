/* The server's buffers: deadlines by hand, against a list of arrivals cut by the rule, and a storm
 * of all events in which nothing is lost or served twice. */
#include "serve/serve.h"

#include <string.h>

#include "test/test.h"

enum { FIRST = 0x700 };

static const double all_of[1] = {1};

/* A server, its timer, and what the last step asked for. */
typedef struct box {
    ru_serve *s;
    ru_time timer;
    ru_arena memory; /* fixed */
    ru_effects fx;
    uint32_t n;
    ru_serve_start starts[16];
    uint32_t place;
    bool refused, cancelled;
    uint32_t n_late;
    uint64_t late[64]; /* [n_late] ids */
    int64_t wait_ns;   /* of the one refused */
} box;

static box server(ru_arena *a, uint32_t batch, int64_t timeout_ns, uint32_t requests,
                  uint32_t instances)
{
    enum { BYTES = 1 << 14 };
    const ru_serve_rule rule = {.batch = batch, .timeout_ns = timeout_ns, .memory_mb = 1024};
    const ru_serve_table table = {1, 1, &rule, all_of};
    const ru_serve_options opt = {requests, instances, 5, 1, FIRST};
    box b = {.timer = {INT64_MAX}};
    ru_err err;
    assert_ok(ru_serve_init(&opt, &table, (ru_time){0}, a, &b.s, &err), err);
    ru_arena_init_fixed(&b.memory, ru_arena_alloc(a, BYTES, 8), BYTES);
    return b;
}

static void see(box *b, const ru_effect *e)
{
    if (e->kind == RU_FX_TIMER || e->kind == RU_FX_TIMER_OFF) {
        assert_int_equal(e->what, FIRST + RU_SERVE_TIMER);
        b->timer.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
        return;
    }
    assert_int_equal(e->kind, RU_FX_LOCAL);
    if (e->what == FIRST + RU_SERVE_START) {
        assert_true(b->n < RU_ARRAY_LEN(b->starts));
        memcpy(&b->starts[b->n++], e->data, sizeof *b->starts);
    } else if (e->what == FIRST + RU_SERVE_TAKEN) {
        b->place = ((const ru_serve_request *)e->data)->place;
    }
    if (e->what == FIRST + RU_SERVE_LATE) {
        assert_true(b->n_late < RU_ARRAY_LEN(b->late));
        b->late[b->n_late++] = ((const ru_serve_request *)e->data)->id;
    } else if (e->what == FIRST + RU_SERVE_REFUSED) {
        b->wait_ns = ((const ru_serve_request *)e->data)->wait_ns;
    }
    b->refused = b->refused || e->what == FIRST + RU_SERVE_REFUSED;
    b->cancelled = b->cancelled || e->what == FIRST + RU_SERVE_CANCELLED;
}

static const box *step(box *b, ru_event ev)
{
    ru_effects_init(&b->fx, &b->memory);
    b->n = b->n_late = 0;
    b->refused = b->cancelled = false;
    b->timer.ns = ev.kind == RU_EV_TIMER ? INT64_MAX : b->timer.ns;
    ev.what += FIRST;
    ru_alloc_seal();
    ru_serve_step(b->s, &ev, &b->fx);
    ru_alloc_unseal();
    for (uint32_t i = 0; i < b->fx.n; i++) {
        see(b, &b->fx.at[i]);
    }
    ru_effects_clear(&b->fx);
    return b;
}

static const box *say(box *b, int64_t ns, ru_serve_word word, ru_serve_request r)
{
    return step(
        b, (ru_event){
               .kind = RU_EV_LOCAL, .now = {ns}, .what = word, .data = &r, .size_bytes = sizeof r});
}

static const box *ask(box *b, int64_t ns, uint64_t id)
{
    return say(b, ns, RU_SERVE_REQUEST, (ru_serve_request){.id = id});
}

static const box *finish(box *b, int64_t ns, int64_t batch)
{
    return step(
        b, (ru_event){.kind = RU_EV_LOCAL, .now = {ns}, .what = RU_SERVE_DONE, .value = batch});
}

static const box *wake(box *b, int64_t ns)
{
    return step(b, (ru_event){.kind = RU_EV_TIMER, .now = {ns}, .what = RU_SERVE_TIMER});
}

static const box *change(box *b, int64_t ns, const ru_serve_table *table)
{
    return step(b, (ru_event){.kind = RU_EV_LOCAL,
                              .now = {ns},
                              .what = RU_SERVE_TABLE,
                              .data = table,
                              .size_bytes = sizeof *table});
}

static void holds(const ru_serve *s, const ru_serve_start *b, uint32_t n, const uint64_t *ids)
{
    assert_int_equal(b->n, n);
    uint32_t p = b->first;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ru_serve_id(s, p), ids[i]);
        p = ru_serve_next(s, p);
    }
    assert_int_equal(p, RU_SERVE_NONE);
}

static void test_a_buffer_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = server(&a, 3, 100, 16, 2);
    const box *e = ask(&s, 10, 1);
    assert_true(e->n == 0 && e->timer.ns == 110);
    e = ask(&s, 20, 2);
    assert_true(e->n == 0 && e->timer.ns == 110); /* from the first request */
    e = ask(&s, 30, 3);
    assert_true(e->n == 1 && e->starts[0].why == RU_SERVE_FULL && e->timer.ns == INT64_MAX);
    holds(s.s, &e->starts[0], 3, (const uint64_t[]){1, 2, 3});
    uint32_t first = e->starts[0].batch;
    (void)ask(&s, 40, 4);
    e = ask(&s, 140, 5); /* at the very deadline: 4 leaves alone, 5 opens the next */
    assert_true(e->n == 1 && e->starts[0].why == RU_SERVE_TIMEOUT && e->timer.ns == 240);
    holds(s.s, &e->starts[0], 1, (const uint64_t[]){4});
    e = wake(&s, 300); /* late; no instance is free */
    assert_true(e->n == 0 && e->timer.ns == INT64_MAX);
    assert_int_equal(ru_serve_stats_get(s.s).ready, 1);
    e = finish(&s, 310, first);
    assert_true(e->n == 1);
    holds(s.s, &e->starts[0], 1, (const uint64_t[]){5});
    /* The one that is due at 400 pulls the deadline to 395. */
    (void)ask(&s, 320, 6);
    e = say(&s, 330, RU_SERVE_REQUEST, (ru_serve_request){.id = 7, .due = {400}});
    assert_int_equal(e->timer.ns, 395);
    uint32_t place = e->place;
    e = say(&s, 340, RU_SERVE_CANCEL, (ru_serve_request){.id = 8, .place = place});
    assert_false(e->cancelled); /* another one's place */
    e = say(&s, 350, RU_SERVE_CANCEL, (ru_serve_request){.id = 7, .place = place});
    assert_true(e->cancelled && e->timer.ns == 395);
    e = step(&s, (ru_event){.kind = RU_EV_LOCAL, .now = {360}, .what = RU_SERVE_STOP});
    assert_int_equal(e->timer.ns, INT64_MAX);
    ru_serve_stats st = ru_serve_stats_get(s.s);
    assert_true(st.requests == 7 && st.cancelled == 1 && st.batches == 4 && st.size_sum == 6);
    assert_true(st.why[RU_SERVE_FULL] == 1 && st.why[RU_SERVE_TIMEOUT] == 2 &&
                st.why[RU_SERVE_DRAIN] == 1 && st.running == 2 && st.ready == 1);
    ru_arena_fini(&a);
}

typedef struct ended {
    box b;
    int64_t batch;
} ended;

static void end(void *self)
{
    ended *d = self;
    (void)finish(&d->b, 10, d->batch);
}

static void test_a_batch_beyond_all_crashes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ended d = {.b = server(&a, 1, 100, 16, 2)};
    d.batch = ask(&d.b, 5, 1)->starts[0].batch;
    assert_false(ru_test_crashes(end, &d));
    d.batch += INT64_C(1) << 32;
    assert_true(ru_test_crashes(end, &d));
    ru_arena_fini(&a);
}

static void test_tables_change_without_a_lost_request(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = server(&a, 4, 1000, 16, 16);
    const ru_serve_rule rules[2] = {{.batch = 2, .timeout_ns = 50, .memory_mb = 512},
                                    {.batch = 3, .timeout_ns = 60, .memory_mb = 2048}};
    const double share[4] = {0.5, 0, 0, 0.5};
    const ru_serve_table two = {2, 2, rules, share};
    (void)ask(&s, 0, 1);
    const box *e = change(&s, 10, &two);
    assert_true(e->n == 0 && e->timer.ns == 1000);
    e = ask(&s, 20, 2);
    assert_int_equal(e->timer.ns, 70);
    e = say(&s, 30, RU_SERVE_REQUEST, (ru_serve_request){.id = 3, .class_of = 99});
    e = change(&s, 40, &two); /* 1 leaves */
    assert_int_equal(e->n, 1);
    holds(s.s, &e->starts[0], 1, (const uint64_t[]){1});
    assert_true(e->starts[0].memory_mb == 1024 && e->starts[0].why == RU_SERVE_DRAIN);
    e = wake(&s, 70);
    assert_true(e->n == 1 && e->starts[0].memory_mb == 512 && e->timer.ns == 90);
    e = wake(&s, 90);
    assert_true(e->n == 1 && e->starts[0].memory_mb == 2048 && e->starts[0].largest == 1);
    const double none[4] = {0, 0, 0, 1};
    const ru_serve_table broken = {2, 2, rules, none};
    ru_err err;
    assert_int_equal(ru_serve_table_check(&broken, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Batches of a list of arrivals, cut by the rule: at most `batch`, all before first + timeout. */
static void test_random_arrivals_are_cut_by_the_rule(void **state)
{
    (void)state;
    enum { N = 400 };
    for (uint64_t seed = 0; seed < 40; seed++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_rng rng = ru_rng_from(seed, 1);
        uint32_t batch = 1 + ru_rng_below(&rng, 6);
        int64_t timeout = ru_rng_below(&rng, 60), t[N], now = 0;
        box s = server(&a, batch, timeout, N, N);
        for (uint32_t i = 0; i < N; i++) {
            now += ru_rng_below(&rng, 20);
            t[i] = now;
        }
        uint32_t at_first = 0;
        for (uint32_t i = 0; i < N; i++) {
            const box *e = ask(&s, t[i], i);
            for (uint32_t b = 0; b < e->n; b++) {
                uint32_t n = 0;
                while (n < batch && at_first + n < N &&
                       (n == 0 || t[at_first + n] < t[at_first] + timeout)) {
                    n++;
                }
                assert_int_equal(e->starts[b].n, n);
                assert_int_equal(ru_serve_id(s.s, e->starts[b].first), at_first);
                at_first += n;
            }
            assert_true(e->timer.ns == INT64_MAX || e->timer.ns == t[at_first] + timeout);
        }
        assert_int_equal(ru_serve_stats_get(s.s).open, N - at_first);
        ru_arena_fini(&a);
    }
}

static const box *ask_rows(box *b, int64_t ns, uint64_t id, uint32_t rows, uint32_t priority,
                           int64_t due)
{
    return say(b, ns, RU_SERVE_REQUEST,
               (ru_serve_request){.id = id, .rows = rows, .priority = priority, .due = {due}});
}

/* Rows fill a batch; one that does not fit any more leaves the others to go, one larger than a
 * batch goes alone. */
static void test_batches_are_counted_in_rows(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = server(&a, 8, 100, 16, 8);
    (void)ask_rows(&s, 0, 1, 5, 0, 0);
    const box *e = ask_rows(&s, 1, 2, 4, 0, 0);
    assert_true(e->n == 1 && e->starts[0].rows == 5 && e->starts[0].why == RU_SERVE_FULL);
    e = ask_rows(&s, 2, 3, 4, 0, 0);
    assert_true(e->n == 1 && e->starts[0].rows == 8);
    holds(s.s, &e->starts[0], 2, (const uint64_t[]){2, 3});
    e = ask_rows(&s, 3, 4, 20, 0, 0);
    assert_true(e->n == 1 && e->starts[0].rows == 20);
    assert_int_equal(ru_serve_stats_get(s.s).rows_sum, 33);
    ru_arena_fini(&a);
}

static box eager_server(ru_arena *a, uint32_t batch, uint32_t instances, int64_t promise_ns)
{
    box b = server(a, 1, 0, 64, instances);
    const ru_serve_rule rule = {.batch = batch, .eager = true, .promise_ns = promise_ns};
    (void)change(&b, 0, &(ru_serve_table){1, 1, &rule, all_of});
    return b;
}

/* While the instance is busy requests gather, and leave by priority, then due; who is due while
 * everything is busy is told so at that moment. */
static void test_an_idle_instance_takes_what_waits(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = eager_server(&a, 4, 1, 0);
    const box *e = ask_rows(&s, 10, 1, 1, 0, 0);
    assert_true(e->n == 1 && e->starts[0].why == RU_SERVE_IDLE && e->timer.ns == INT64_MAX);
    uint32_t first = e->starts[0].batch;
    (void)ask_rows(&s, 11, 2, 1, 0, 0);
    (void)ask_rows(&s, 12, 3, 1, 5, 0);
    (void)ask_rows(&s, 13, 4, 1, 0, 500);
    e = ask_rows(&s, 14, 5, 2, 1, 0);
    assert_true(e->n == 0 && e->timer.ns == 500);
    e = ask_rows(&s, 15, 6, 1, 1, 20);
    assert_true(e->n == 0 && e->timer.ns == 20);
    e = wake(&s, 20);
    assert_true(e->n_late == 1 && e->late[0] == 6 && e->timer.ns == 500);
    e = finish(&s, 30, first);
    assert_true(e->n == 1 && e->starts[0].why == RU_SERVE_FULL && e->starts[0].rows == 4);
    holds(s.s, &e->starts[0], 3, (const uint64_t[]){5, 4, 2});
    e = wake(&s, 500); /* 4 runs: its due does not matter any more */
    assert_int_equal(e->n_late, 0);
    e = finish(&s, 600, s.starts[0].batch);
    e = ask_rows(&s, 610, 7, 1, 0, 600); /* due already */
    assert_true(e->n == 0 && e->n_late == 1 && e->late[0] == 7);
    ru_serve_stats st = ru_serve_stats_get(s.s);
    assert_true(st.late == 2 && st.why[RU_SERVE_IDLE] == 2 && st.running == 1 && st.open == 0);
    ru_arena_fini(&a);
}

/* None of them leaves alone, and instances that are free share them. */
static void test_requests_that_come_together_share_instances(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = eager_server(&a, 8, 3, 0);
    for (uint64_t id = 1; id <= 7; id++) {
        const ru_serve_request r = {.id = id, .rows = 1, .more = id < 7};
        const box *e = say(&s, 10, RU_SERVE_REQUEST, r);
        assert_int_equal(e->n, id < 7 ? 0 : 3);
    }
    holds(s.s, &s.starts[0], 3, (const uint64_t[]){1, 2, 3});
    holds(s.s, &s.starts[1], 2, (const uint64_t[]){4, 5});
    holds(s.s, &s.starts[2], 2, (const uint64_t[]){6, 7});
    for (uint32_t k = 0; k < 3; k++) { /* each has room for more */
        assert_int_equal(s.starts[k].why, RU_SERVE_IDLE);
    }
    ru_arena_fini(&a);
}

/* One that is due leaves a batch that waits for an instance; the last one takes the batch along. */
static void test_a_ready_batch_loses_who_is_due(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = server(&a, 2, 100, 16, 1);
    (void)ask(&s, 0, 1);
    uint32_t running = ask(&s, 1, 2)->starts[0].batch;
    (void)ask_rows(&s, 2, 3, 1, 0, 50);
    (void)ask_rows(&s, 3, 4, 1, 0, 60);
    assert_int_equal(ru_serve_stats_get(s.s).ready, 1);
    const box *e = wake(&s, 55);
    assert_true(e->n_late == 1 && e->late[0] == 3 && e->timer.ns == 60);
    e = wake(&s, 60);
    assert_true(e->n_late == 1 && e->late[0] == 4);
    ru_serve_stats st = ru_serve_stats_get(s.s);
    assert_true(st.ready == 0 && st.batches == 1 && st.late == 2);
    e = finish(&s, 70, running);
    assert_true(e->n == 0 && e->timer.ns == INT64_MAX);
    ru_arena_fini(&a);
}

/* Batches of 4 take 100 on one instance; promised are 350: what would take longer is refused. */
static void test_a_promise_refuses_what_would_be_late(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = eager_server(&a, 1, 1, 350);
    const ru_serve_pace pace = {.batch = 4, .service_ns = {40, 60, 100}};
    step(&s,
         (ru_event){
             .kind = RU_EV_LOCAL, .what = RU_SERVE_PACE, .data = &pace, .size_bytes = sizeof pace});
    const box *e = ask(&s, 10, 0);
    assert_int_equal(e->n, 1);
    for (uint64_t id = 1; id <= 8; id++) { /* 100 runs, 100, 100: in time */
        assert_false(ask(&s, 10, id)->refused);
    }
    e = ask(&s, 10, 9);
    assert_true(e->refused && e->wait_ns == 50);
    assert_false(ask_rows(&s, 10, 10, 1, 1, 0)->refused); /* nobody is before it */
    e = finish(&s, 20, s.starts[0].batch);
    assert_true(e->n == 1 && e->starts[0].rows == 4);
    holds(s.s, &e->starts[0], 4, (const uint64_t[]){10, 1, 2, 3});
    assert_int_equal(ru_serve_stats_get(s.s).refused, 1);
    ru_arena_fini(&a);
}

/* The promise counts from when a request came, and what the loop takes for those before it. */
static void test_a_promise_counts_what_the_loop_takes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box s = eager_server(&a, 1, 1, 350);
    const ru_serve_pace pace = {
        .batch = 4, .service_ns = {40, 60, 100}, .turn_ns = 10, .margin_ns = 15};
    step(&s,
         (ru_event){
             .kind = RU_EV_LOCAL, .what = RU_SERVE_PACE, .data = &pace, .size_bytes = sizeof pace});
    const ru_serve_request late = {.id = 8, .since = {650}}, old = {.id = 0, .since = {651}};
    const box *e = say(&s, 1001, RU_SERVE_REQUEST, late); /* nothing is before it */
    assert_true(e->refused && e->wait_ns == 1);
    e = say(&s, 1001, RU_SERVE_REQUEST, old); /* it may just be in time */
    assert_true(!e->refused && e->n == 1);
    e = say(&s, 1001, RU_SERVE_REQUEST, (ru_serve_request){.id = 1, .since = {876}});
    assert_true(!e->refused); /* 125 old, 100 runs, its own 100 and 10, 15 late */
    e = say(&s, 1001, RU_SERVE_REQUEST, (ru_serve_request){.id = 2, .since = {885}});
    assert_true(e->refused && e->wait_ns == 1); /* 116 old, and 20 of the loop */
    assert_false(ask(&s, 1001, 3)->refused);
    ru_arena_fini(&a);
}

/* A server of two instances whose batches of r rows take 300 + 50 r us, promised 20 ms, under
 * Poisson arrivals. */
typedef struct rush {
    box s;
    int64_t at_ns[1 << 16]; /* arrival of each request */
    int64_t end_ns[2];      /* of what runs; 0: nothing */
    ru_serve_start run[2];
    uint64_t answered, late, urgent, urgent_late, urgent_refused, early_refused;
    int64_t took_ns; /* of `answered` together */
} rush;

static int64_t takes_ns(uint32_t rows)
{
    return 300000 + 50000 * (int64_t)rows;
}

static bool is_urgent(uint64_t id)
{
    return id % 10 == 0;
}

static void begin_runs(rush *w, int64_t now)
{
    for (uint32_t k = 0; k < w->s.n; k++) {
        uint32_t i = w->end_ns[0] == 0 ? 0 : 1;
        assert_int_equal(w->end_ns[i], 0);
        w->run[i] = w->s.starts[k];
        w->end_ns[i] = now + takes_ns(w->run[i].rows);
    }
}

static void end_run(rush *w, uint32_t i)
{
    int64_t now = w->end_ns[i];
    for (uint32_t p = w->run[i].first; p != RU_SERVE_NONE; p = ru_serve_next(w->s.s, p)) {
        uint64_t id = ru_serve_id(w->s.s, p);
        bool late = now - w->at_ns[id] > 20000000;
        *(is_urgent(id) ? &w->urgent : &w->answered) += 1;
        *(is_urgent(id) ? &w->urgent_late : &w->late) += late ? 1 : 0;
        w->took_ns += is_urgent(id) ? 0 : now - w->at_ns[id];
    }
    w->end_ns[i] = 0;
    finish(&w->s, now, w->run[i].batch);
    begin_runs(w, now);
}

/* Half of those that are not urgent are first asked for without what they say. */
static void come(rush *w, int64_t now, uint64_t id)
{
    int64_t wait_ns = 0;
    if (id % 2 == 1 && ru_serve_refuse(w->s.s, &(ru_serve_request){0}, (ru_time){now}, &wait_ns)) {
        assert_true(wait_ns > 0);
        w->early_refused++;
        return;
    }
    (void)ask_rows(&w->s, now, id, 1, is_urgent(id) ? 1 : 0, 0);
    assert_false(w->s.refused && id % 2 == 1); /* it says the same */
    w->urgent_refused += w->s.refused && is_urgent(id) ? 1 : 0;
    begin_runs(w, now);
}

/* Saturation is two batches of 32 rows in 1.9 ms. Returns answers in time over that. */
static double rush_at(rush *w, double load, ru_arena *a)
{
    enum { N = 1 << 16 };
    double top = 2 * 32 / (double)takes_ns(32);
    ru_rng rng = ru_rng_from(3, 5);
    ru_serve_pace pace = {.batch = 32};
    for (uint32_t k = 0; k < RU_SERVE_SIZES; k++) {
        pace.service_ns[k] = takes_ns(1u << k);
    }
    *w = (rush){.s = server(a, 1, 0, 2048, 2)};
    const ru_serve_rule rule = {.batch = 1, .eager = true, .promise_ns = 20000000};
    (void)change(&w->s, 0, &(ru_serve_table){1, 1, &rule, all_of});
    step(&w->s,
         (ru_event){
             .kind = RU_EV_LOCAL, .what = RU_SERVE_PACE, .data = &pace, .size_bytes = sizeof pace});
    int64_t now = 1;
    for (uint64_t id = 0; id < N; id++) {
        now += (int64_t)(ru_rng_exponential(&rng) / (load * top));
        for (;;) {
            uint32_t i = w->end_ns[1] > 0 && (w->end_ns[0] == 0 || w->end_ns[1] < w->end_ns[0]);
            if (w->end_ns[i] == 0 || w->end_ns[i] > now) {
                break;
            }
            end_run(w, i);
        }
        w->at_ns[id] = now;
        come(w, now, id);
    }
    return (double)(w->answered + w->urgent - w->late - w->urgent_late) / ((double)now * top);
}

/* Below saturation everything is in time; beyond it what is accepted is, as much as fits is, and
 * the queue is short: it would take nearly 20 ms. */
static void test_a_promise_holds_under_a_rush(void **state)
{
    (void)state;
    static rush w;
    ru_arena a;
    ru_arena_init(&a, 0);
    (void)rush_at(&w, 0.7, &a);
    assert_int_equal(ru_serve_stats_get(w.s.s).refused, 0);
    assert_true(w.late == 0 && w.urgent_late == 0 && w.answered > 50000);
    double good = rush_at(&w, 1.5, &a);
    assert_true(good >= 0.95);
    assert_true(w.late * 100 <= w.answered && w.urgent_late == 0 && w.urgent_refused == 0);
    ru_serve_stats st = ru_serve_stats_get(w.s.s);
    assert_true(st.refused > 10000 && w.early_refused > st.refused / 3);
    assert_int_equal(st.requests, RU_ARRAY_LEN(w.at_ns));
    assert_true(w.took_ns < 9000000 * (int64_t)w.answered);
    ru_arena_fini(&a);
}

enum { STORM = 3000, PLACES = 24 };

typedef struct storm {
    box s;
    uint8_t fate[STORM]; /* 0: not asked or refused, 1: waits, 2: cancelled, 3: runs, 4: answered,
                            5: late */
    int64_t due[STORM];
    uint32_t place[STORM], running[PLACES], n_running;
    int64_t now;
} storm;

static void take(storm *w)
{
    const box *e = &w->s;
    for (uint32_t k = 0; k < e->n_late; k++) {
        assert_int_equal(w->fate[e->late[k]], 1);
        w->fate[e->late[k]] = 5;
    }
    for (uint32_t b = 0; b < e->n; b++) {
        uint32_t n = 0;
        for (uint32_t p = e->starts[b].first; p != RU_SERVE_NONE; p = ru_serve_next(e->s, p)) {
            uint64_t id = ru_serve_id(e->s, p);
            assert_int_equal(w->fate[id], 1);
            assert_true(w->due[id] == 0 || w->due[id] > w->now);
            w->fate[id] = 3;
            n++;
        }
        assert_int_equal(n, e->starts[b].n);
        assert_true(w->n_running < 5);
        w->running[w->n_running++] = e->starts[b].batch;
    }
}

static void ask_any(storm *w, uint32_t id, uint32_t what, ru_rng *rng)
{
    w->due[id] = what < 20 ? w->now + 5 * what : 0;
    w->fate[id] = 1;
    say(&w->s, w->now, RU_SERVE_REQUEST,
        (ru_serve_request){.id = id,
                           .class_of = ru_rng_below(rng, 3),
                           .rows = ru_rng_below(rng, 4),
                           .priority = ru_rng_below(rng, 9),
                           .due = {w->due[id]}});
    w->fate[id] = w->s.refused ? 0 : 1;
}

static void test_a_storm_loses_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_rng rng = ru_rng_from(ru_test_seed() + seed, 2);
        storm w = {.s = server(&a, 4, 30, PLACES, 5)};
        ru_serve_start started[PLACES];
        ru_serve_rule rules[3] = {{.batch = 1, .memory_mb = 1, .instances = 2},
                                  {.batch = 3, .timeout_ns = 20, .memory_mb = 2},
                                  {.batch = 8, .eager = true, .memory_mb = 3}};
        const double share[6] = {1, 0.3, 1, 0.3, 0, 0.4};
        const ru_serve_table table = {3, 2, rules, share};
        int64_t now = 0;
        uint32_t asked = 0;
        while (asked < STORM) {
            now += ru_rng_below(&rng, 12);
            uint32_t what = ru_rng_below(&rng, 100);
            const box *e = &w.s;
            w.s.n = w.s.n_late = 0;
            w.now = now;
            if (what < 60) {
                ask_any(&w, asked, what, &rng);
                w.place[asked++] = e->place;
            } else if (what < 70 && asked > 0) {
                uint32_t id = asked - 1 - ru_rng_below(&rng, asked < 8 ? asked : 8);
                if (w.fate[id] == 0) {
                    continue;
                }
                say(&w.s, now, RU_SERVE_CANCEL, (ru_serve_request){.id = id, .place = w.place[id]});
                assert_true(!e->cancelled || w.fate[id] == 1);
                w.fate[id] = e->cancelled ? 2 : w.fate[id];
            } else if (what < 72) {
                rules[1].batch = 1 + ru_rng_below(&rng, 9);
                change(&w.s, now, &table);
            } else if (what < 80) {
                wake(&w.s, now);
            }
            for (uint32_t b = 0; b < e->n; b++) {
                started[e->starts[b].batch] = e->starts[b];
            }
            take(&w);
            if (what >= 80 && w.n_running > 0) {
                uint32_t which = ru_rng_below(&rng, w.n_running), b = w.running[which];
                w.running[which] = w.running[--w.n_running];
                for (uint32_t p = started[b].first; p != RU_SERVE_NONE;
                     p = ru_serve_next(w.s.s, p)) {
                    w.fate[ru_serve_id(w.s.s, p)] = 4;
                }
                finish(&w.s, now, b);
                for (uint32_t k = 0; k < e->n; k++) {
                    started[e->starts[k].batch] = e->starts[k];
                }
                take(&w);
            }
        }
        ru_serve_stats st = ru_serve_stats_get(w.s.s);
        uint64_t count[6] = {0};
        for (uint32_t i = 0; i < STORM; i++) {
            count[w.fate[i]]++;
        }
        assert_true(st.refused == count[0] && st.cancelled == count[2] && st.late == count[5]);
        assert_true(count[0] > 0 && count[2] > 0 && count[4] > 1000 && count[5] > 0);
        assert_int_equal(st.size_sum + st.open + st.cancelled + st.refused + st.late, STORM);
        ru_arena_fini(&a);
    }
}

RU_TESTS(serve_serve, cmocka_unit_test(test_a_buffer_by_hand),
         cmocka_unit_test(test_a_batch_beyond_all_crashes),
         cmocka_unit_test(test_tables_change_without_a_lost_request),
         cmocka_unit_test(test_batches_are_counted_in_rows),
         cmocka_unit_test(test_an_idle_instance_takes_what_waits),
         cmocka_unit_test(test_requests_that_come_together_share_instances),
         cmocka_unit_test(test_a_ready_batch_loses_who_is_due),
         cmocka_unit_test(test_a_promise_refuses_what_would_be_late),
         cmocka_unit_test(test_a_promise_counts_what_the_loop_takes),
         cmocka_unit_test(test_a_promise_holds_under_a_rush),
         cmocka_unit_test(test_random_arrivals_are_cut_by_the_rule),
         cmocka_unit_test(test_a_storm_loses_nothing))
