/* The machine against a queue of one server that is played request by request: clients that wait
 * for answers, requests at a rate of their own, a bucket that runs empty. */
#include "burst/pace.h"

#include <math.h>
#include <string.h>

#include "burst/pace_impl.h"
#include "test/test.h"

enum { CLIENTS_MAX = 64, HEARD_MAX = 8192 };

static const int64_t tick_ns = 100000000;
static const double disk_bytes = 30000; /* of a request, where there is a disk */
static const double mean_s = 0.004; /* of a request on the whole of 0.4 cores: 1.6 ms of a core */
static const ru_pace_options machine = {
    .at = {{.name = "cpu",
            .rules = {.earn = 2.4 / 3600, .cap = 57.6, .burst = 0.4 / 60},
            .begin = {.earned = 57},
            .servers = 1,
            .rate_min = 0.002 / 60}},
    .n = 1,
    .clock = 60,
    .slo_s = 0.15,
    .quantile = 0.95,
    .margin = 0.15, /* windows of 4 s have few requests */
    .gain_min = 0.02,
    .reserve_s = 600,
    .speed_min = 0.2,
    .window_ns = INT64_C(4000000000),
    .clients = {2, 6, 12},
};

/* A first-come queue of one server whose speed follows the quota. */
typedef struct world {
    ru_pace p;
    ru_rng rng;
    double now, cores, free_at; /* free_at: when the server has done all that has come */
    double next[CLIENTS_MAX];   /* when each client asks; open: next[0], the next one that comes */
    double latency[HEARD_MAX], end[HEARD_MAX];
    uint32_t n, clients;
    double rate, think_s, used_s;              /* rate > 0: open */
    double longer;                             /* than what was profiled each request takes */
    double tokens;                             /* that the machine counts for one of ours; 0: 1 */
    double disk_rate, disk_free_at, disk_used; /* behind the processor; requests without: rate 0 */
    uint32_t windows, kept, alarms, slow, open;
    double off, offs, alarm_level;
    ru_pace_record last;
} world;

/* Requests whose service begins before `until`; the server keeps its speed from begin to end. */
static void play(world *w, double until)
{
    for (;;) {
        uint32_t first = 0;
        for (uint32_t k = 1; k < w->clients; k++) {
            first = w->next[k] < w->next[first] ? k : first;
        }
        double begin = fmax(w->next[first], w->free_at);
        if (w->clients == 0 || begin >= until || w->n == HEARD_MAX) {
            return;
        }
        double took = mean_s * w->longer * ru_rng_exponential(&w->rng) * 0.4 / w->cores;
        w->free_at = begin + took;
        w->used_s += took * w->cores;
        double end = w->free_at;
        if (w->disk_rate > 0) {
            double bytes = disk_bytes * ru_rng_exponential(&w->rng);
            w->disk_free_at = fmax(end, w->disk_free_at) + bytes / w->disk_rate;
            w->disk_used += bytes;
            end = w->disk_free_at;
        }
        w->end[w->n] = end;
        w->latency[w->n++] = end - w->next[first];
        w->next[first] = w->rate > 0 ? w->next[first] + ru_rng_exponential(&w->rng) / w->rate
                                     : end + w->think_s * ru_rng_exponential(&w->rng);
    }
}

static void load(world *w, uint32_t clients, double rate)
{
    w->clients = rate > 0 ? 1 : clients;
    w->rate = rate;
    for (uint32_t k = 0; k < w->clients; k++) {
        w->next[k] = w->now;
    }
}

static void see(world *w, const ru_pace_effects *fx)
{
    w->cores = fx->quota[0] ? fx->rate[0] * 60 / (w->tokens > 0 ? w->tokens : 1) : w->cores;
    w->disk_rate = fx->quota[1] && w->disk_rate > 0 ? fx->rate[1] : w->disk_rate;
    if (fx->load) {
        load(w, fx->clients, 0);
    }
    if (fx->alarm[0] != 0) {
        w->alarms++;
        w->alarm_level = fx->window.at[0].level;
    }
    if (fx->record && fx->window.phase != RU_PACE_PROFILE) {
        w->last = fx->window;
        w->windows++;
        w->kept += fx->window.latency_s <= w->p.opt.slo_s;
        w->slow += fx->window.at[0].speed < 1;
        w->open += fx->window.open;
        if (isfinite(fx->window.predicted_s) && fx->window.latency_s > 0) {
            w->off += fabs(fx->window.predicted_s / fx->window.latency_s - 1);
            w->offs++;
        }
    }
}

static void go(world *w, double seconds)
{
    double until = w->now + seconds, heard[HEARD_MAX];
    while (w->now < until) {
        double before = w->used_s, read = w->disk_used;
        w->now += 1e-9 * (double)tick_ns;
        play(w, w->now);
        uint32_t n = 0, left = 0;
        for (uint32_t k = 0; k < w->n; k++) {
            if (w->end[k] <= w->now) {
                heard[n++] = w->latency[k];
            } else {
                w->end[left] = w->end[k];
                w->latency[left++] = w->latency[k];
            }
        }
        w->n = left;
        const ru_pace_tick t = {
            .now = {(int64_t)(w->now * 1e9)},
            .used = {(w->used_s - before) / 60 * (w->tokens > 0 ? w->tokens : 1),
                     w->disk_used - read},
            .requests = n,
            .latency_s = heard,
            .n = n};
        ru_pace_effects fx;
        ru_pace_step(&w->p, &t, &fx);
        see(w, &fx);
    }
}

static world *begin(const ru_pace_options *o)
{
    static world w; /* large */
    ru_err err;
    memset(&w, 0, sizeof w);
    w.rng = ru_rng_from(ru_test_seed(), 7);
    w.cores = 0.4;
    w.longer = 1;
    assert_ok(ru_pace_init(&w.p, o, ru_test_seed(), &err), err);
    return &w;
}

static void profile(world *w)
{
    while (w->p.phase == RU_PACE_PROFILE) {
        go(w, 1);
    }
    assert_true(w->p.fitted);
    assert_true(w->p.think_s < 0.002); /* these clients do not think */
}

static void test_clients_wait(void **state)
{
    (void)state;
    world *w = begin(&machine);
    profile(w);
    load(w, 9, 0); /* as many as the profile did not have */
    double used = w->used_s, now = w->now, level = ru_credit_level(&w->p.bucket[0]);
    go(w, 170);
    assert_true(w->windows >= 40 && w->slow >= w->windows - 5);
    assert_true(w->kept >= 0.95 * w->windows);
    assert_true(w->off / w->offs < 0.15);
    assert_int_equal(w->last.phase, RU_PACE_HOLD);
    assert_true(w->last.stretch > 1.5);
    /* The bucket by its closed form: it was neither full nor empty. */
    double is = level - (w->used_s - used) + machine.at[0].rules.earn * 60 * (w->now - now);
    assert_true(fabs(ru_credit_level(&w->p.bucket[0]) - is) < 0.02 * machine.at[0].rules.cap);
    /* Full speed alone would keep the server busy all the time. */
    assert_true((w->used_s - used) / (w->now - now) < 0.7 * 0.4);
    ru_pace_fini(&w->p);
}

/* A processor and a disk: one choice for both, which spends less than that of the processor alone,
 * and both buckets are those of what was used. */
static void test_two_together(void **state)
{
    (void)state;
    ru_pace_options o = machine;
    o.at[1] = (ru_pace_resource){.name = "disk",
                                 .rules = {.earn = 1e6, .cap = 9e10, .burst = 1e7},
                                 .begin = {.earned = 8e10},
                                 .servers = 1,
                                 .rate_min = 1};
    o.n = 2;
    world *w = begin(&o);
    w->disk_rate = 1e7;
    profile(w);
    assert_int_equal(w->p.n_of, 2);
    load(w, 9, 0);
    double used[2] = {w->used_s, w->disk_used}, now = w->now;
    double had[2] = {ru_credit_level(&w->p.bucket[0]), ru_credit_level(&w->p.bucket[1])};
    go(w, 170);
    assert_int_equal(w->last.phase, RU_PACE_HOLD);
    assert_true(w->windows >= 40 && w->slow >= w->windows - 6);
    assert_true(w->kept >= 0.95 * w->windows);
    assert_true(w->off / w->offs < 0.15);
    assert_true(w->last.stretch > 1.5);
    used[0] = (w->used_s - used[0]) / 60 * 60; /* credits: a minute of ours is an hour of theirs */
    used[1] = (w->disk_used - used[1]) * 60;
    for (uint32_t i = 0; i < 2; i++) {
        double is = had[i] - used[i] + o.at[i].rules.earn * 60 * (w->now - now);
        assert_true(fabs(ru_credit_level(&w->p.bucket[i]) - is) < 0.02 * o.at[i].rules.cap);
        assert_true(w->last.at[i].speed > 0 && w->last.at[i].speed <= 1);
        assert_near(w->last.at[i].level, ru_credit_level(&w->p.bucket[i]),
                    0.02 * o.at[i].rules.cap);
    }
    /* The question names both, and no choice of one alone is cheaper. */
    ru_pace_record r;
    ru_burst_plan both;
    ru_err err;
    assert_ok(rui_pace_ask(&w->p, false, 9, &r, &both, &err), err);
    assert_non_null(strstr(r.input, "\"name\":\"disk\""));
    /* Each has the speed that the plan for the load of this window gives it. */
    ru_burst_plan in_force;
    assert_ok(rui_pace_ask(&w->p, false, w->p.load, &r, &in_force, &err), err);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(in_force.speed[i] < 1);
        assert_near(w->p.speed[w->p.of[i]], in_force.speed[i], 0);
    }
    for (uint32_t only = 0; only < 2; only++) {
        for (uint32_t k = 0; k <= 8; k++) {
            double speed[RU_PACE_RESOURCES] = {1, 1, 1}, rate, late;
            speed[only] = 1 - 0.1 * k;
            late = w->p.drift * rui_pace_modelled(&w->p, 9, speed, &rate);
            assert_true(late > (1 - w->p.margin) * o.slo_s || rate >= both.rate * (1 - 1e-9));
        }
    }
    static double saved[RU_PACE_SAVED];
    static ru_pace next;
    uint32_t n = ru_pace_save(&w->p, saved);
    assert_ok(ru_pace_init(&next, &o, 1, &err), err);
    ru_pace_resume(&next, saved, n);
    assert_int_equal(next.phase, RU_PACE_FULL);
    assert_memory_equal(next.need, w->p.need, sizeof next.need);
    ru_pace_fini(&next);
    ru_pace_fini(&w->p);
}

/* What requests need nothing of is in no question, and stays at full speed: also what was used
 * once, long ago. */
static void test_one_of_two_is_not_needed(void **state)
{
    (void)state;
    ru_pace_options o = machine;
    o.at[1] = o.at[0];
    o.at[1].name = "disk";
    o.n = 2;
    world *w = begin(&o);
    profile(w); /* without a disk: its rate is 0 */
    w->p.need[1] = 1e-9 * w->p.need[0];
    load(w, 9, 0);
    go(w, 60);
    assert_int_equal(w->p.n_of, 1);
    assert_true(w->slow > 0 && w->last.at[1].next_speed == 1);
    assert_true(w->last.at[0].next_speed < 1);
    ru_pace_fini(&w->p);
}

/* Bytes or operations in place of credits: a machine that counts in other units decides the same.
 * A power of two changes no digit. */
static void test_tokens_of_any_size(void **state)
{
    (void)state;
    const double tokens = 1 << 28;
    ru_pace_options o = machine;
    o.at[0].name = "disk";
    o.at[0].rules = (ru_credit_rules){.earn = machine.at[0].rules.earn * tokens,
                                      .cap = machine.at[0].rules.cap * tokens,
                                      .burst = machine.at[0].rules.burst * tokens};
    o.at[0].begin.earned *= tokens;
    o.at[0].rate_min *= tokens;
    ru_pace_record is[2];
    for (uint32_t k = 0; k < 2; k++) {
        world *w = begin(k == 0 ? &machine : &o);
        w->tokens = k == 0 ? 1 : tokens;
        profile(w);
        load(w, 9, 0);
        go(w, 60);
        assert_true(w->slow > 0);
        is[k] = w->last;
        ru_pace_fini(&w->p);
    }
    assert_int_equal(is[0].window, is[1].window);
    assert_int_equal(is[0].phase, is[1].phase);
    assert_near(is[1].at[0].speed, is[0].at[0].speed, 0);
    assert_near(is[1].latency_s, is[0].latency_s, 0);
    assert_near(is[1].next_s, is[0].next_s, 1e-9);
    assert_near(is[1].at[0].level, is[0].at[0].level * tokens, 1e-9 * o.at[0].rules.cap);
    assert_near(is[1].at[0].empty_s, is[0].at[0].empty_s, 1e-6 * is[0].at[0].empty_s);
}

static void test_requests_do_not_wait(void **state)
{
    (void)state;
    for (double share = 0.3; share < 0.8; share += 0.2) {
        world *w = begin(&machine);
        profile(w);
        load(w, 0, share / mean_s);
        go(w, 200);
        assert_true(w->slow <= 0.1 * w->windows);
        assert_true(w->open >= 0.6 * w->windows);
        ru_pace_fini(&w->p);
    }
}

/* So many that the rate does not tell them from clients who wait: trials do, ever more seldom. */
static void test_stands_down(void **state)
{
    (void)state;
    world *w = begin(&machine);
    profile(w);
    load(w, 0, 0.85 / mean_s);
    go(w, 400);
    assert_true(w->windows >= 95 && w->slow >= 1 && w->slow <= 7);
    assert_true(w->p.down >= 32);
    ru_pace_fini(&w->p);
}

/* Requests become longer than the profile knows: predictions follow, and the margin grows. */
static void test_learns(void **state)
{
    (void)state;
    world *w = begin(&machine);
    profile(w);
    load(w, 9, 0);
    go(w, 60);
    double drift = w->p.drift, most = 0, widest = 0;
    w->longer = 1.6;
    for (uint32_t k = 0; k < 8; k++) {
        go(w, 4);
        most = fmax(most, w->p.drift);
        widest = fmax(widest, w->p.margin);
    }
    assert_true(most > drift + 0.15);
    assert_true(widest > machine.margin + 0.09); /* of one late window */
    ru_pace_fini(&w->p);
}

/* Full speed by a profile that cannot tell loads apart: the bucket runs empty, which is told
 * before, and then holds. */
static void test_empty(void **state)
{
    (void)state;
    ru_pace_options o = machine;
    memset(o.clients, 0, sizeof o.clients);
    o.slo_s = 0.005; /* late at any speed: the profile stays at full speed */
    o.at[0].begin.earned = 8;
    world *w = begin(&o);
    load(w, 4, 0);
    go(w, 120);
    assert_true(!w->p.fitted && strstr(w->last.why, "the bucket is empty") != NULL);
    assert_int_equal(w->alarms, 1);
    assert_true(w->alarm_level > 0);
    assert_true(w->last.empty && w->last.at[0].level < 0.1);
    assert_true(fabs(w->cores - 0.04) < 1e-9);
    double spent = w->used_s, may = 8 + o.at[0].rules.earn * 60 * w->now;
    assert_true(spent <= may * 1.02 + 0.1 && spent >= may * 0.95);
    ru_pace_fini(&w->p);
}

/* What is saved is what goes on: no profile, the same fit. */
static void test_resume(void **state)
{
    (void)state;
    static double saved[RU_PACE_SAVED];
    static ru_pace next;
    ru_err err;
    world *w = begin(&machine);
    profile(w);
    uint32_t n = ru_pace_save(&w->p, saved);
    assert_int_equal(n, 3 + (1 + RU_PACE_SLOWER) * RU_PACE_LOADS * (2 + RU_PACE_DRAWN));
    assert_ok(ru_pace_init(&next, &machine, 1, &err), err);
    ru_pace_resume(&next, saved, n - 1);
    assert_int_equal(next.phase, RU_PACE_PROFILE);
    ru_pace_resume(&next, saved, n);
    assert_int_equal(next.phase, RU_PACE_FULL);
    assert_memory_equal(next.model, w->p.model, sizeof next.model);
    saved[7] = -1;
    ru_pace_fini(&next);
    assert_ok(ru_pace_init(&next, &machine, 1, &err), err);
    ru_pace_resume(&next, saved, n);
    assert_int_equal(next.phase, RU_PACE_PROFILE);
    ru_pace_fini(&next);
    ru_pace_fini(&w->p);
}

static void test_options(void **state)
{
    (void)state;
    ru_err err;
    static ru_pace p;
    ru_pace_options o = machine;
    o.at[0].rules.earn = o.at[0].rules.burst;
    assert_int_equal(ru_pace_init(&p, &o, 1, &err), RU_E_CONFIG);
    o = machine;
    o.clients[1] = 1;
    assert_int_equal(ru_pace_init(&p, &o, 1, &err), RU_E_CONFIG);
    o = machine;
    o.at[0].begin.earned = 100;
    assert_int_equal(ru_pace_init(&p, &o, 1, &err), RU_E_CONFIG);
}

RU_TESTS(burst_pace, cmocka_unit_test(test_clients_wait), cmocka_unit_test(test_two_together),
         cmocka_unit_test(test_one_of_two_is_not_needed), cmocka_unit_test(test_tokens_of_any_size),
         cmocka_unit_test(test_requests_do_not_wait), cmocka_unit_test(test_stands_down),
         cmocka_unit_test(test_learns), cmocka_unit_test(test_empty), cmocka_unit_test(test_resume),
         cmocka_unit_test(test_options))
