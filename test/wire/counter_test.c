/* The counter service in the simulator, under crashes, freezes and cuts: whoever lives in the end
 * agrees on the total, and no process ever saw a larger one than was counted. */
#include "test/wire/counter.h"

#include <stdio.h>
#include <string.h>

#include "sim/process.h"
#include "test/test.h"

enum { PROCESSES = 5, GOAL = 40 };

typedef struct world {
    ru_sim *sim;
    struct process {
        struct world *world;
        ru_sim_process process;
        ru_node *node;
        ru_counter counter;
        char address[32];
        bool lives;
    } at[PROCESSES];
} world;

static void fire(void *self, uint32_t what, ru_time now)
{
    struct process *p = self;
    ru_node_timer(p->node, what, now);
}

static void begin(void *self, uint64_t arg)
{
    (void)arg;
    struct process *p = self;
    ru_node_start(p->node, ru_sim_now(p->world->sim));
}

static void add(world *w, uint32_t k)
{
    struct process *p = &w->at[k];
    ru_err err;
    p->world = w;
    p->lives = true;
    snprintf(p->address, sizeof p->address, "10.0.0.%u:7", k);
    assert_ok(ru_sim_process_open(&p->process, w->sim, p->address, &(ru_sim_nic){0}, fire, p, &err),
              err);
    ru_node_id self = {ru_rng_u64(ru_sim_rng(w->sim)) | 1};
    ru_node_options o = {
        .chan = {.self = self,
                 .address = p->address,
                 .job = 1,
                 .token = (const uint8_t *)"a token of the counter, 32 bytes",
                 .token_bytes = 32,
                 .peers_max = 2 * PROCESSES,
                 .streams_max = 16,
                 .slots_max = 16},
        .link = p->process.link,
        .member = {.join = k == 0 ? NULL : w->at[0].address, .n_max = PROCESSES},
        .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &p->process},
    };
    o.member.self.node = self;
    snprintf(o.member.self.address, sizeof o.member.self.address, "%s", p->address);
    assert_ok(ru_node_open(&o, &p->process.arena, &p->node, &err), err);
    ru_sim_process_user(&p->process, ru_node_link_user(p->node));
    p->counter = (ru_counter){.self = self, .goal = GOAL, .step_ns = 20000000};
    ru_counter_part(&p->counter, p->node);
    ru_sim_process_at(&p->process, ru_sim_now(w->sim), begin, p, 0);
}

/* Nobody has seen more of a process than it counted. */
static ru_status invariant(void *self, ru_time now, ru_err *err)
{
    (void)now;
    const world *w = self;
    for (uint32_t k = 0; k < PROCESSES; k++) {
        for (uint32_t i = 0; i < w->at[k].counter.n; i++) {
            const ru_counter_seen *s = &w->at[k].counter.seen[i];
            for (uint32_t o = 0; o < PROCESSES; o++) {
                const ru_counter *c = &w->at[o].counter;
                if (c->self.v == s->node && s->guest == 0 && s->count > c->seen[0].count) {
                    return RU_FAIL(
                        err, RU_E_BUG, "process %u saw %llu of process %u, it counted %llu", k,
                        (unsigned long long)s->count, o, (unsigned long long)c->seen[0].count);
                }
            }
        }
    }
    return RU_OK;
}

/* Rounds of ticks after the last fault, so that what was cut off is told again. */
static uint64_t run_seed(uint64_t seed, bool chaos)
{
    world w = {0};
    ru_err err;
    const ru_sim_options so = {
        .seed = seed, .nodes_max = PROCESSES, .invariant = invariant, .invariant_self = &w};
    assert_ok(ru_sim_open(&so, &w.sim, &err), err);
    for (uint32_t k = 0; k < PROCESSES; k++) {
        add(&w, k);
    }
    if (chaos) {
        const ru_sim_chaos c = {.crash_per_s = 1,
                                .freeze_per_s = 1,
                                .cut_per_s = 2,
                                .jitter_ns = 1000000,
                                .keep_alive = PROCESSES - 2,
                                .until = {2000000000}};
        ru_sim_chaos_start(w.sim, &c);
    }
    assert_ok(ru_sim_run(w.sim, (ru_time){INT64_C(12000000000)}, &err), err);
    uint64_t total = 0;
    uint32_t living = 0;
    for (uint32_t k = 0; k < PROCESSES; k++) {
        struct process *p = &w.at[k];
        const ru_view *v = ru_member_view(ru_node_member(p->node));
        if (!ru_sim_alive(w.sim, p->process.node) || v->epoch == 0) {
            continue;
        }
        uint64_t mine = ru_counter_total(&p->counter);
        assert_int_equal(p->counter.seen[0].count, GOAL);
        total = living == 0 ? mine : total;
        living++;
        if (mine != total) {
            fail_msg("seed %llu: process %u says %llu, another %llu", (unsigned long long)seed, k,
                     (unsigned long long)mine, (unsigned long long)total);
        }
    }
    assert_true(living >= PROCESSES - 2);
    assert_true(total >= (uint64_t)living * GOAL);
    uint64_t hash = ru_sim_hash(w.sim);
    for (uint32_t k = 0; k < PROCESSES; k++) {
        ru_node_close(w.at[k].node);
    }
    ru_sim_close(w.sim);
    for (uint32_t k = 0; k < PROCESSES; k++) {
        ru_sim_process_fini(&w.at[k].process);
    }
    return hash;
}

static void test_counts_agree_without_faults(void **state)
{
    (void)state;
    assert_int_equal(run_seed(1, false), run_seed(1, false));
}

static void test_counts_agree_under_faults(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        (void)run_seed(seed, true);
    }
}

RU_TESTS(test_counter, cmocka_unit_test(test_counts_agree_without_faults),
         cmocka_unit_test(test_counts_agree_under_faults))
