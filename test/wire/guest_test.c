/* Guests of a service: they count through crashes of hosts, and each limit refuses with its
 * sentence who passes it, while the others notice nothing. */
#include <stdio.h>
#include <string.h>

#include "test/test.h"
#include "test/wire/guest_world.h"

static uint64_t known_of(const guest_host *h, const guest_visitor *v)
{
    for (uint32_t k = 0; k < h->counter.n; k++) {
        if (h->counter.seen[k].node == v->id.v && h->counter.seen[k].guest != 0) {
            return h->counter.seen[k].count;
        }
    }
    return 0;
}

/* Whoever lives agrees on a total that holds all counts of living guests, once each. */
static void run_seed(uint64_t seed, bool chaos)
{
    guest_world w = {0};
    guest_world_open(&w, seed, GUEST_HOSTS);
    for (uint32_t k = 0; k < GUEST_VISITORS; k++) {
        (void)guest_world_visit(&w, true, NULL);
    }
    if (chaos) {
        const ru_sim_chaos c = {.crash_per_s = 1,
                                .cut_per_s = 4,
                                .half_open_per_s = 2,
                                .keep_alive = 2 * GUEST_HOSTS + GUEST_VISITORS - 3,
                                .until = {2000000000},
                                .told = guest_world_told,
                                .told_self = &w};
        ru_sim_chaos_start(w.sim, &c);
    }
    guest_world_run_ms(&w, 12000);
    uint64_t total = 0;
    uint32_t living = 0;
    for (uint32_t k = 0; k < GUEST_HOSTS; k++) {
        guest_host *h = &w.hosts[k];
        if (!ru_sim_alive(w.sim, h->process.node) ||
            ru_member_view(ru_node_member(h->node))->epoch == 0) {
            continue;
        }
        for (uint32_t i = 0; i < GUEST_VISITORS; i++) {
            const guest_visitor *v = &w.visitors[i];
            bool lives = ru_sim_alive(w.sim, v->process.node);
            uint64_t known = known_of(h, v);
            if (known > v->count || (lives && known != GUEST_GOAL)) {
                fail_msg("seed %llu: host %u knows of %llu counts of guest %u, which made %llu",
                         (unsigned long long)seed, k, (unsigned long long)known, i,
                         (unsigned long long)v->count);
            }
        }
        uint64_t mine = ru_counter_total(&h->counter);
        assert_true(living++ == 0 || mine == total);
        total = mine;
    }
    assert_true(living > 0);
    guest_world_close(&w);
}

static void guests_count_through_crashes(void **state)
{
    (void)state;
    run_seed(1, false);
    for (uint64_t seed = 1; seed <= 25; seed++) {
        run_seed(seed, true);
    }
}

/* -- limits ---------------------------------------------------------------------------------------
 */

typedef struct scene {
    guest_world w;
    guest_visitor *good, *bad;
} scene;

static void begin(scene *s, const ru_guests_options *limits)
{
    *s = (scene){.w = {.limits = *limits}};
    guest_world_open(&s->w, 7, 1);
    s->good = guest_world_visit(&s->w, true, NULL);
    s->bad = guest_world_visit(&s->w, false, NULL);
    guest_world_run_ms(&s->w, 100);
    guest_world_dial(s->bad, 0);
    guest_world_run_ms(&s->w, 100);
    assert_true(s->bad->up);
}

/* The bad one is told so; the other one counts on; afterwards the bad one may come again. */
static void refused(scene *s, const char *sentence)
{
    guest_world_run_ms(&s->w, 50);
    assert_false(s->bad->up);
    assert_int_equal(s->bad->why, RU_E_PERM);
    assert_string_equal(s->bad->sentence, sentence);
    assert_int_equal(s->bad->refusals, 1);
    ru_guests_facts f;
    ru_node_guests_facts(s->w.hosts[0].node, &f);
    assert_int_equal(f.n, 1);
    assert_int_equal(f.refused, 1);
    guest_world_run_ms(&s->w, 2500);
    guest_world_dial(s->bad, 0);
    guest_world_run_ms(&s->w, 100);
    assert_true(s->bad->up);
    assert_int_equal(s->good->known, GUEST_GOAL);
    assert_int_equal(s->good->ups, 1);
    guest_world_close(&s->w);
}

static void every_limit_refuses_with_its_sentence(void **state)
{
    (void)state;
    static const uint8_t bytes[8192];
    scene s;
    begin(&s, &(ru_guests_options){.message_bytes = 64});
    (void)!guest_world_send(s.bad, RU_COUNTER_ADD, bytes, 65);
    refused(&s, "a message has 65 bytes; guests may send at most 64");

    static const uint32_t numbers[] = {0, 1, 0x100, 0x104, 0x1ff, 0x300, 0x380, 0x402, UINT32_MAX};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(numbers); k++) {
        char text[80];
        snprintf(text, sizeof text, "guests may not send message %#x", numbers[k]);
        begin(&s, &(ru_guests_options){0});
        (void)!guest_world_send(s.bad, numbers[k], bytes, 8);
        refused(&s, text);
    }

    begin(&s, &(ru_guests_options){.unanswered_max = 3});
    for (uint32_t k = 0; k < 4; k++) {
        (void)!guest_world_send(s.bad, GUEST_MUTE, bytes, 1);
    }
    assert_int_equal(s.w.hosts[0].mute_downs, 0);
    refused(&s, "more than 3 unanswered messages");

    begin(&s, &(ru_guests_options){.messages_per_s = 60});
    for (uint32_t k = 0; k < 61; k++) {
        (void)!guest_world_send(s.bad, RU_COUNTER_ADD, bytes, 8);
    }
    refused(&s, "more than 60 messages per second");

    begin(&s, &(ru_guests_options){.message_bytes = 1000, .bytes_per_s = 2000});
    for (uint32_t k = 0; k < 3; k++) {
        (void)!guest_world_send(s.bad, RU_COUNTER_ADD, bytes, 1000);
    }
    refused(&s, "more than 2000 bytes per second");

    begin(&s, &(ru_guests_options){.idle_ns = 300000000});
    guest_world_run_ms(&s.w, 400);
    refused(&s, "no message for 0.3 s");
}

/* What is within the limits for long is never refused: as many messages as there may be, for 5 s.
 */
static void nobody_within_the_limits_is_refused(void **state)
{
    (void)state;
    static const uint8_t bytes[100];
    scene s;
    begin(&s,
          &(ru_guests_options){.messages_per_s = 50, .message_bytes = 100, .bytes_per_s = 5000});
    for (uint32_t k = 0; k < 250; k++) {
        assert_int_equal(guest_world_send(s.bad, RU_COUNTER_ADD, bytes, 100), RU_OK);
        guest_world_run_ms(&s.w, 20);
    }
    guest_world_run_ms(&s.w, 100);
    assert_true(s.bad->up);
    assert_int_equal(s.bad->answers, 250);
    guest_world_close(&s.w);
}

static void a_full_house_says_so(void **state)
{
    (void)state;
    guest_world w = {.limits = {.n_max = 2}};
    guest_world_open(&w, 3, 1);
    for (uint32_t k = 0; k < 4; k++) {
        (void)guest_world_visit(&w, false, NULL);
    }
    for (uint32_t k = 0; k < 4; k++) {
        guest_world_dial(&w.visitors[k], 0);
        guest_world_run_ms(&w, 50);
    }
    for (uint32_t k = 0; k < 4; k++) {
        assert_true(w.visitors[k].up == (k < 2));
        assert_int_equal(w.visitors[k].refusals, k < 2 ? 0 : 1);
    }
    assert_string_equal(w.visitors[3].sentence, "this process already has 2 guests, its limit");
    ru_sim_crash(w.sim, w.visitors[0].process.node);
    guest_world_run_ms(&w, 2000);
    guest_world_dial(&w.visitors[2], 0);
    guest_world_run_ms(&w, 100);
    assert_true(w.visitors[2].up);
    guest_world_close(&w);
}

/* Without the guests' token nobody gets past the first message, with that of the members neither.
 */
static void the_token_is_the_guests_own(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a token of the counter, 32 bytes",
                                         "no token that anybody has at all"};
    guest_world w = {0};
    guest_world_open(&w, 5, 1);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(tokens); k++) {
        guest_visitor *v = guest_world_visit(&w, false, tokens[k]);
        guest_world_dial(v, 0);
        guest_world_run_ms(&w, 4000);
        assert_int_equal(v->ups, 0);
        assert_true(v->why != RU_OK && v->why != RU_E_PERM);
    }
    ru_guests_facts f;
    ru_node_guests_facts(w.hosts[0].node, &f);
    assert_int_equal(f.n + f.taken, 0);
    guest_world_close(&w);
}

/* A guest that is gone, or does not listen, costs its host a bounded amount of memory. */
static void who_takes_no_answers_is_refused(void **state)
{
    (void)state;
    scene s;
    begin(&s, &(ru_guests_options){0});
    assert_int_equal(guest_world_send(s.bad, GUEST_GUSH, "", 0), RU_OK);
    guest_world_run_ms(&s.w, 3000);
    ru_guests_facts f;
    ru_node_guests_facts(s.w.hosts[0].node, &f);
    assert_int_equal(f.refused, 1);
    assert_int_equal(s.w.hosts[0].mute_downs, 1);
    assert_int_equal(s.good->known, GUEST_GOAL);
    assert_int_equal(s.good->ups, 1);
    guest_world_close(&s.w);
}

static void options_out_of_their_limits_are_refused(void **state)
{
    (void)state;
    static const ru_guests_options rows[] = {{.n_max = 4097},
                                             {.message_bytes = RU_CHAN_MESSAGE_MAX + 1},
                                             {.message_bytes = 2000, .bytes_per_s = 1999},
                                             {.idle_ns = -1},
                                             {.n_max = 1}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        guest_world w = {0};
        guest_world_open(&w, 5, 0);
        ru_node *node;
        ru_err err = {0};
        ru_arena arena;
        ru_arena_init(&arena, 0);
        guest_visitor *v = guest_world_visit(&w, false, NULL); /* for its link */
        ru_node_options o = {.chan = {.self = {9},
                                      .address = "a:1",
                                      .token = (const uint8_t *)"a token of the counter",
                                      .token_bytes = 20,
                                      .peers_max = 4,
                                      .streams_max = 4,
                                      .slots_max = 4},
                             .link = v->process.link,
                             .member = {.self = {.node = {9}, .address = "a:1"}, .n_max = 2}};
        assert_ok(ru_node_open(&o, &arena, &node, &err), err);
        ru_guests_options g = rows[k];
        g.self = o.chan.self;
        g.address = "a:2";
        g.token = o.chan.token;
        g.token_bytes = 20;
        g.link = o.link;
        ru_status st = ru_node_guests(node, &g, &arena, &err);
        assert_int_equal(st, k + 1 < RU_ARRAY_LEN(rows) ? RU_E_ARG : RU_OK);
        ru_node_close(node);
        ru_arena_fini(&arena);
        guest_world_close(&w);
    }
}

static void hostile_guests_disturb_nobody(void **state)
{
    (void)state;
    enum { SEEDS = 60, BYTES = 1200 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint8_t bytes[BYTES];
        ru_err err = {0};
        ru_rng r = ru_rng_from(ru_test_seed() + seed, 9);
        for (uint32_t k = 0; k < BYTES; k++) {
            bytes[k] = (uint8_t)ru_rng_u32(&r);
        }
        ru_status st = guest_storm(bytes, BYTES, &err);
        if (st != RU_OK) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
        }
    }
}

/* What comm/node/guests.h says of the memory of an idle guest. */
static void a_full_house_fits_into_memory(void **state)
{
    (void)state;
    enum { FEW = 96, MANY = 4096 };
    int64_t bytes[2];
    for (uint32_t k = 0; k < 2; k++) {
        guest_world w = {.limits = {.n_max = k == 0 ? FEW : MANY}};
        guest_world_open(&w, 5, 1);
        bytes[k] = w.hosts[0].process.arena.used_bytes;
        guest_world_close(&w);
    }
    int64_t each = (bytes[1] - bytes[0]) / (MANY - FEW);
    assert_true(each > 0 && each < 120 << 10);
}

/* -- a key for each guest -------------------------------------------------------------------------
 */

static const char *const owners[] = {"alice", "bob"};
static const char *const keys[] = {"the key of alice, with 32 bytes.",
                                   "the key of bob, with all 32 byte"};

static bool key_of(void *self, ru_node_id node, const uint8_t **key, uint32_t *key_bytes)
{
    (void)self;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(owners); k++) {
        if (ru_node_is(ru_guest_name(owners[k]), node)) {
            *key = (const uint8_t *)keys[k];
            *key_bytes = 32;
            return true;
        }
    }
    return false;
}

/* Only the owner of a key comes in under a name; a second one of the same name does not end the
 * first. */
static void each_guest_has_its_own_key(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t key; /* 2: that of all */
        bool comes;
    } rows[] = {{"alice", 0, true},
                {"bob", 0, false},
                {"bob", 2, false},
                {"eve", 1, false},
                {"bob", 1, true}};
    guest_world w = {.limits = {.key_of = key_of}};
    guest_visitor *v[RU_ARRAY_LEN(rows)];
    guest_world_open(&w, 7, 1);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        w.name = rows[k].name;
        v[k] = guest_world_visit(&w, false, rows[k].key < 2 ? keys[rows[k].key] : NULL);
        guest_world_run_ms(&w, 10);
        guest_world_dial(v[k], 0);
        guest_world_run_ms(&w, 4000);
        assert_int_equal(v[k]->up, rows[k].comes);
        assert_true(v[0]->up);
    }
    static const uint64_t count = 1;
    assert_int_equal(guest_world_send(v[4], RU_COUNTER_ADD, &count, sizeof count), RU_OK);
    guest_world_run_ms(&w, 100);
    assert_int_equal(v[4]->known, 1);
    guest_world_close(&w);
}

RU_TESTS(test_guest, cmocka_unit_test(guests_count_through_crashes),
         cmocka_unit_test(every_limit_refuses_with_its_sentence),
         cmocka_unit_test(nobody_within_the_limits_is_refused),
         cmocka_unit_test(a_full_house_says_so), cmocka_unit_test(the_token_is_the_guests_own),
         cmocka_unit_test(who_takes_no_answers_is_refused),
         cmocka_unit_test(options_out_of_their_limits_are_refused),
         cmocka_unit_test(a_full_house_fits_into_memory),
         cmocka_unit_test(each_guest_has_its_own_key),
         cmocka_unit_test(hostile_guests_disturb_nobody))
