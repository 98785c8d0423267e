/* A federation whose clients come while it runs: profiles in waves, a round that waits, losses,
 * what is kept before the next round begins, and a snapshot from which another process goes on. */
#include <string.h>

#include "cost/privacy.h"
#include "fleet/fed.h"
#include "test/test.h"

static const int64_t second = 1000000000;

enum { N = 8, LIST_MAX = 16, BYTES = 1 << 14 };

typedef struct box {
    ru_fed *f;
    ru_arena memory; /* fixed */
    ru_effects fx;
    ru_time timer;
    uint32_t task, send[LIST_MAX], n_send, n_tasks, n_merge, merge[LIST_MAX];
    int64_t waiting; /* -1: not told */
    bool profile, done;
    int64_t why; /* of done */
} box;

static void see(box *b, const ru_effect *e)
{
    const ru_fed_list *l = e->data;
    if (e->kind != RU_FX_LOCAL) {
        b->timer.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
    } else if (e->what == RU_FED_TASK) {
        b->n_tasks++;
        b->task = l->task;
        b->profile = l->profile;
        b->n_send = l->n;
        memcpy(b->send, l->client, l->n * sizeof *b->send);
    } else if (e->what == RU_FED_MERGE) {
        b->n_merge = l->n;
        memcpy(b->merge, l->client, l->n * sizeof *b->merge);
    } else if (e->what == RU_FED_WAITING) {
        b->waiting = e->value;
    }
    assert_true(e->kind != RU_FX_LOCAL || e->what != RU_FED_FAILED);
    if (e->kind == RU_FX_LOCAL && e->what == RU_FED_DONE) {
        b->done = true;
        b->why = e->value;
    }
}

static void at(box *b, double s, ru_event ev)
{
    ev.now.ns = 1 + (int64_t)(s * (double)second);
    ru_effects_init(&b->fx, &b->memory);
    b->n_send = b->n_merge = b->n_tasks = 0;
    b->waiting = -1;
    b->timer.ns = ev.kind == RU_EV_TIMER ? INT64_MAX : b->timer.ns;
    ru_alloc_seal();
    ru_fed_step(b->f, &ev, &b->fx);
    ru_alloc_unseal();
    for (uint32_t i = 0; i < b->fx.n; i++) {
        see(b, &b->fx.at[i]);
    }
    ru_effects_clear(&b->fx);
}

static void about(box *b, double s, ru_fed_word word, uint32_t client)
{
    at(b, s, (ru_event){.kind = RU_EV_LOCAL, .what = word, .value = client});
}

static void answer(box *b, double s, uint32_t client, uint32_t task)
{
    const ru_fed_answer a = {.client = client, .task = task, .loss = 1};
    at(b, s,
       (ru_event){.kind = RU_EV_LOCAL, .what = RU_FED_ANSWER, .data = &a, .size_bytes = sizeof a});
}

static box open_private(ru_arena *a, uint32_t rounds, double noise, double epsilon_most)
{
    const ru_fed_options opt = {.n = N,
                                .rounds = rounds,
                                .per_round = 2,
                                .n_tiers = 1,
                                .interval = 100,
                                .profile_rounds = 1,
                                .profile_wait_ns = 20 * second,
                                .method = RU_PICK_VANILLA,
                                .seed = 3,
                                .absent = true,
                                .at_once = 2,
                                .clients_min = 3,
                                .keeps = true,
                                .noise = noise,
                                .delta = 1e-5,
                                .epsilon_most = epsilon_most};
    box b = {.timer = {INT64_MAX}};
    ru_err err;
    assert_ok(ru_fed_init(&opt, (ru_time){1}, a, &b.f, &err), err);
    ru_arena_init_fixed(&b.memory, ru_arena_alloc(a, BYTES, 8), BYTES);
    return b;
}

static box open_box(ru_arena *a, uint32_t rounds)
{
    return open_private(a, rounds, 0, 0);
}

/* Three join, two are measured at a time; the first round begins when all are. */
static void begin(box *b)
{
    at(b, 0, (ru_event){.kind = RU_EV_START});
    assert_int_equal(b->waiting, 0);
    about(b, 1, RU_FED_JOIN, 0);
    assert_true(b->n_send == 1 && b->profile);
    uint32_t first = b->task;
    about(b, 2, RU_FED_JOIN, 1);
    assert_true(b->n_send == 1 && b->send[0] == 1);
    uint32_t second_task = b->task;
    about(b, 3, RU_FED_JOIN, 2);
    assert_int_equal(b->n_send, 0); /* two are under way */
    answer(b, 4, 0, first);
    assert_true(b->n_send == 1 && b->send[0] == 2 && b->waiting == 1);
    uint32_t third = b->task;
    answer(b, 5, 1, second_task);
    assert_true(b->n_send == 0 && b->waiting == 2);
    answer(b, 6, 2, third);
    assert_true(b->n_send == 2 && !b->profile && ru_fed_round(b->f) == 1);
}

static void test_clients_come_and_go(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box b = open_box(&a, 3);
    begin(&b);
    uint32_t one = b.send[0], two = b.send[1], task = b.task;
    assert_true(ru_fed_counts(b.f, one, task) && !ru_fed_counts(b.f, one, task + 1));
    about(&b, 7, RU_FED_JOIN, 5); /* a late joiner is measured beside the round */
    assert_true(b.n_send == 1 && b.send[0] == 5 && b.profile);
    uint32_t late = b.task;
    answer(&b, 8, one, task);
    assert_int_equal(b.n_merge, 0);
    assert_false(ru_fed_counts(b.f, one, task)); /* not twice */
    about(&b, 9, RU_FED_LEAVE, two);             /* nobody waits for who is lost */
    assert_true(b.n_merge == 1 && b.merge[0] == one && b.n_send == 0);
    answer(&b, 10, 5, late);
    assert_int_equal(b.n_send, 0); /* round 1 is not safe yet */
    at(&b, 11, (ru_event){.kind = RU_EV_LOCAL, .what = RU_FED_KEPT});
    assert_true(b.n_send == 2 && ru_fed_round(b.f) == 2);
    assert_true(b.send[0] != two && b.send[1] != two);
    /* One that never answers its profile lets the others have their turn. */
    about(&b, 12, RU_FED_JOIN, 6);
    about(&b, 12, RU_FED_JOIN, 7);
    assert_int_equal(b.n_send, 1);
    about(&b, 13, RU_FED_JOIN, 3);
    assert_int_equal(b.n_send, 0);
    at(&b, 33, (ru_event){.kind = RU_EV_TIMER, .what = RU_FED_TIMER});
    assert_true(b.n_tasks >= 1);
    ru_arena_fini(&a);
}

/* A client that is lost or excused while others train is not waited for; one that is excused is
 * taken again when it says a word. What could not be merged begins again. */
static void test_nobody_waits(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box b = open_box(&a, 3);
    begin(&b);
    uint32_t one = b.send[0], two = b.send[1], task = b.task;
    about(&b, 7, RU_FED_EXCUSED, one);
    assert_false(ru_fed_counts(b.f, one, task));
    about(&b, 7, RU_FED_EXCUSED, one); /* it is already */
    answer(&b, 8, two, task);
    assert_true(b.n_merge == 1 && b.merge[0] == two);
    about(&b, 9, RU_FED_AGAIN, 0);
    assert_true(b.n_send == 2 && ru_fed_round(b.f) == 1 && b.send[0] != one && b.send[1] != one);
    uint32_t again = b.task, other = b.send[0] == two ? b.send[1] : b.send[0];
    answer(&b, 10, one, task); /* it is free again, and no more than that */
    assert_int_equal(b.n_merge, 0);
    about(&b, 11, RU_FED_LEAVE, other);
    assert_int_equal(b.n_merge, 0);
    answer(&b, 12, two, again); /* the only one that is left */
    assert_true(b.n_merge == 1 && b.merge[0] == two);
    at(&b, 13, (ru_event){.kind = RU_EV_LOCAL, .what = RU_FED_KEPT});
    assert_true(b.n_send == 2 && ru_fed_round(b.f) == 2);
    about(&b, 14, RU_FED_AGAIN, 0); /* it is under way */
    assert_true(b.n_send == 0 && ru_fed_round(b.f) == 2);
    ru_arena_fini(&a);
}

static void test_a_snapshot_goes_on(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box b = open_box(&a, 3), c = open_box(&a, 3);
    ru_err err;
    begin(&b);
    uint32_t task = b.task, one = b.send[0], two = b.send[1];
    answer(&b, 8, one, task);
    answer(&b, 9, two, task);
    assert_int_equal(b.n_merge, 2);
    int64_t bytes = ru_fed_saved_bytes(b.f, false);
    void *data = ru_arena_alloc(&a, bytes, 8);
    ru_wire_out o = ru_wire_out_into(data, bytes);
    ru_fed_save(b.f, false, &o);
    assert_true(!o.bad && ru_wire_size(&o) == bytes);
    for (int64_t cut = 0; cut < bytes; cut += 7) {
        box d = open_box(&a, 3);
        ru_wire_in w = ru_wire_in_from(data, cut);
        assert_int_equal(ru_fed_load(d.f, false, &w, &err), RU_E_DATA);
    }
    ru_wire_in w = ru_wire_in_from(data, bytes);
    assert_ok(ru_fed_load(c.f, false, &w, &err), err);
    assert_int_equal(ru_fed_round(c.f), 1);
    at(&c, 20, (ru_event){.kind = RU_EV_START});
    assert_int_equal(c.waiting, 0);
    about(&c, 21, RU_FED_JOIN, 1);
    assert_int_equal(c.n_send, 0); /* its time is known */
    assert_near(ru_fed_audit(c.f, 1).latency_s, ru_fed_audit(b.f, 1).latency_s, 1e-12);
    about(&c, 22, RU_FED_JOIN, 0);
    assert_true(c.n_send == 2 && !c.profile && ru_fed_round(c.f) == 2);
    assert_true(c.task > task); /* an update for the first server is none for this one */
    answer(&c, 23, 0, task);
    assert_int_equal(ru_fed_audit(c.f, 0).picks, ru_fed_audit(b.f, 0).picks);
    answer(&c, 23, 0, c.task);
    answer(&c, 24, 1, c.task);
    assert_int_equal(c.n_merge, 2);
    ru_arena_fini(&a);
}

/* A whole snapshot of a merged round, with one client late: both go on with the same words. */
static void test_a_whole_snapshot_is_the_machine(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    box b = open_box(&a, 9), c = open_box(&a, 9), d = open_box(&a, 9);
    begin(&b);
    uint32_t late = b.send[1], late_task = b.task;
    answer(&b, 7, b.send[0], b.task);
    at(&b, 200, (ru_event){.kind = RU_EV_TIMER, .what = RU_FED_TIMER});
    assert_int_equal(b.n_merge, 1);
    int64_t bytes = ru_fed_saved_bytes(b.f, true);
    void *data = ru_arena_alloc(&a, bytes, 8);
    ru_wire_out o = ru_wire_out_into(data, bytes);
    ru_fed_save(b.f, true, &o);
    assert_true(!o.bad && ru_wire_size(&o) == bytes);
    ru_wire_in w = ru_wire_in_from(data, bytes), half = ru_wire_in_from(data, bytes / 2);
    assert_int_equal(ru_fed_load(d.f, true, &half, &err), RU_E_DATA);
    assert_ok(ru_fed_load(c.f, true, &w, &err), err);
    assert_int_equal(ru_wire_left(&w), 0);
    about(&b, 201, RU_FED_KEPT, 0);
    about(&c, 201, RU_FED_KEPT, 0);
    assert_true(b.n_send == 2 && c.n_send == 2 && b.task == c.task);
    assert_memory_equal(b.send, c.send, 2 * sizeof *b.send);
    answer(&b, 202, late, late_task);
    answer(&c, 202, late, late_task);
    assert_true(ru_fed_audit(c.f, late).latency_s > 50);
    assert_near(ru_fed_audit(b.f, late).latency_s, ru_fed_audit(c.f, late).latency_s, 0);
    ru_arena_fini(&a);
}

/* A snapshot of a machine whose queue holds two clients more, with these numbers. */
static ru_status load_queue(box *from, box *into, uint32_t one, uint32_t other, ru_arena *a)
{
    enum { N_QUEUE_AT = 28 }; /* in what only whole snapshots have */
    ru_err err;
    int64_t bytes = ru_fed_saved_bytes(from->f, true);
    uint8_t *data = ru_arena_alloc(a, bytes + 8, 8);
    ru_wire_out o = ru_wire_out_into(data, bytes);
    ru_fed_save(from->f, true, &o);
    ru_wire_out queue = ru_wire_out_into(data + ru_fed_saved_bytes(from->f, false) + N_QUEUE_AT, 4);
    ru_wire_put_u32(&queue, 2);
    ru_wire_out list = ru_wire_out_into(data + bytes, 8);
    ru_wire_put_u32(&list, one);
    ru_wire_put_u32(&list, other);
    ru_wire_in w = ru_wire_in_from(data, bytes + 8);
    return ru_fed_load(into->f, true, &w, &err);
}

static void test_a_snapshot_has_no_client_twice(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    box b = open_box(&a, 9), c = open_box(&a, 9), d = open_box(&a, 9);
    begin(&b);
    answer(&b, 7, b.send[0], b.task);
    at(&b, 200, (ru_event){.kind = RU_EV_TIMER, .what = RU_FED_TIMER});
    assert_int_equal(load_queue(&b, &c, 1, 0, &a), RU_OK);
    assert_int_equal(load_queue(&b, &d, 1, 1, &a), RU_E_DATA);
    ru_arena_fini(&a);
}

/* A round of two among three. */
static void round_of(box *b, double s)
{
    uint32_t task = b->task, list[2] = {b->send[0], b->send[1]};
    assert_int_equal(b->n_send, 2);
    answer(b, s, list[0], task);
    answer(b, s + 1, list[1], task);
    assert_int_equal(b->n_merge, 2);
    at(b, s + 2, (ru_event){.kind = RU_EV_LOCAL, .what = RU_FED_KEPT});
}

/* The federation ends before its rounds tell more than they may, also when another process goes on
 * from a snapshot; one of a run that did not count is refused. */
static void test_rounds_end_with_privacy(void **state)
{
    (void)state;
    enum { ROUNDS = 4 };
    ru_arena a;
    ru_err err;
    ru_privacy *p;
    ru_arena_init(&a, 0);
    assert_ok(ru_privacy_open(2, &a, &p, &err), err);
    for (uint32_t k = 0; k < ROUNDS; k++) {
        ru_privacy_add(p, 2.0 / 3);
    }
    double four = ru_privacy_epsilon(p, 1e-5, 0);
    box b = open_private(&a, 100, 2, four * 1.0001), c = open_private(&a, 100, 2, four * 1.0001);
    begin(&b);
    assert_near(ru_fed_epsilon(b.f), 0, 0);
    round_of(&b, 10);
    round_of(&b, 20);
    assert_false(b.done);
    bool above = false;
    for (uint32_t i = 0; i < N; i++) { /* by the rounds of each, also above that of all */
        double known = ru_privacy_known(2, ru_fed_audit(b.f, i).picks, 1e-5);
        above = above || known > ru_fed_epsilon(b.f);
        assert_near(ru_fed_epsilon_of(b.f, i), known, 1e-12);
    }
    assert_true(above);
    int64_t bytes = ru_fed_saved_bytes(b.f, false);
    void *data = ru_arena_alloc(&a, bytes, 8);
    ru_wire_out o = ru_wire_out_into(data, bytes);
    ru_fed_save(b.f, false, &o);
    assert_true(!o.bad && ru_wire_size(&o) == bytes);
    round_of(&b, 30);
    round_of(&b, 40);
    assert_true(b.done && b.why == 1 && b.n_send == 0);
    assert_near(ru_fed_epsilon(b.f), four, 1e-9);

    ru_wire_in w = ru_wire_in_from(data, bytes);
    assert_ok(ru_fed_load(c.f, false, &w, &err), err);
    assert_true(ru_fed_epsilon(c.f) > 0.5 * four && ru_fed_epsilon(c.f) < four);
    box d = open_box(&a, 100), e = open_private(&a, 100, 2, 0);
    begin(&d);
    round_of(&d, 10);
    memset(data, 0, (size_t)bytes); /* what follows it may look like an account of nothing */
    o = ru_wire_out_into(data, bytes);
    ru_fed_save(d.f, false, &o);
    w = ru_wire_in_from(data, bytes);
    assert_int_equal(ru_fed_load(e.f, false, &w, &err), RU_E_DATA);
    ru_arena_fini(&a);
}

/* A sum that is never opened tells nothing: rounds that begin again count once, however often. */
static void test_a_sum_that_is_not_opened_is_not_counted(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_privacy *p;
    ru_arena_init(&a, 0);
    assert_ok(ru_privacy_open(2, &a, &p, &err), err);
    box b = open_private(&a, 3, 2, 0);
    begin(&b);
    for (uint32_t k = 1; k <= 3; k++) {
        for (uint32_t again = 0; again < k; again++) {
            double s = 100.0 * k + 10 * again;
            uint32_t task = b.task, list[2] = {b.send[0], b.send[1]};
            assert_int_equal(b.n_send, 2);
            answer(&b, s, list[0], task);
            answer(&b, s + 1, list[1], task);
            about(&b, s + 2, RU_FED_AGAIN, 0);
            assert_near(ru_fed_epsilon(b.f), ru_privacy_epsilon(p, 1e-5, 0), 0);
        }
        ru_privacy_add(p, 2.0 / 3);
        round_of(&b, 100.0 * k + 90);
        assert_near(ru_fed_epsilon(b.f), ru_privacy_epsilon(p, 1e-5, 0), 0);
    }
    assert_true(b.done && b.why == 0);
    ru_arena_fini(&a);
}

RU_TESTS(fleet_fed_late, cmocka_unit_test(test_a_snapshot_has_no_client_twice),
         cmocka_unit_test(test_a_whole_snapshot_is_the_machine),
         cmocka_unit_test(test_rounds_end_with_privacy),
         cmocka_unit_test(test_a_sum_that_is_not_opened_is_not_counted),
         cmocka_unit_test(test_clients_come_and_go), cmocka_unit_test(test_nobody_waits),
         cmocka_unit_test(test_a_snapshot_goes_on))
