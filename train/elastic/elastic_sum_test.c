/* What is predicted for a sum: its own time, what goes before it, the chunk on the wire. */
#include "test/job/lives.h"
#include "test/test.h"
#include "train/elastic/elastic_impl.h"

enum { BUCKETS = 4 };

static const int64_t ms = 1000000;

typedef struct told {
    int64_t predicted_ns[BUCKETS];
    uint32_t n;
} told;

static void summed(void *self, const ru_elastic_sum *sum)
{
    told *t = self;
    t->predicted_ns[sum->bucket] = sum->predicted_ns;
    t->n++;
}

typedef struct fixture {
    ru_elastic e;
    rui_el_bucket buckets[BUCKETS];
    ru_coll_choice choice[BUCKETS];
    ru_queue_job jobs[BUCKETS];
    ru_recur recur[BUCKETS];
    uint32_t least[BUCKETS];
    told told;
} fixture;

/* 1 and 3 are small: they go with the urgent ones. */
static void init(fixture *f)
{
    static const int64_t bytes[BUCKETS] = {6400 << 10, 4 << 10, 3200 << 10, 8 << 10};
    static const int64_t alone_ms[BUCKETS] = {100, 1, 50, 2};
    *f = (fixture){.e = {.reduce = {.n_buckets = BUCKETS, .sums.plan = 7}}};
    f->e.opt.summed = summed;
    f->e.opt.news_self = &f->told;
    f->e.reduce.buckets = f->buckets;
    f->e.v.choice = f->choice;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        f->buckets[b].part.size_bytes = bytes[b];
        f->choice[b].predicted_ns = alone_ms[b] * ms;
    }
    f->e.reduce.sums.jobs = f->jobs;
    f->e.reduce.sums.recur = f->recur;
    f->e.reduce.sums.least = f->least;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        f->jobs[b] = (ru_queue_job){.class = ru_coll_class(RU_CLASS_NORMAL, false, bytes[b]),
                                    .size_bytes = bytes[b],
                                    .alone_ns = alone_ms[b] * ms};
    }
    rui_el_sums_clear(&f->e);
}

static void begin(fixture *f, uint32_t b, int64_t at_ms)
{
    rui_el_sum_begin(&f->e, b, (ru_time){at_ms * ms});
}

static int64_t done_ms(fixture *f, uint32_t b, int64_t at_ms)
{
    uint32_t n = f->told.n;
    rui_el_sum_done(&f->e, b, (ru_time){at_ms * ms});
    assert_int_equal(f->told.n, n + 1);
    assert_int_equal(f->told.predicted_ns[b] % ms, 0);
    return f->told.predicted_ns[b] / ms;
}

static void a_sum_waits_for_what_is_as_urgent(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    begin(&f, 0, 1000);
    begin(&f, 2, 1020); /* 80 of the first are left */
    begin(&f, 1, 1030); /* urgent: 64 KiB of the first, which is on the wire: a hundredth */
    begin(&f, 3, 1030); /* behind the urgent one before it */
    assert_int_equal(done_ms(&f, 1, 1032), 2);
    assert_int_equal(done_ms(&f, 3, 1034), 3);
    assert_int_equal(done_ms(&f, 0, 1103), 100);
    assert_int_equal(done_ms(&f, 2, 1153), 130);
}

/* What ended sooner than predicted holds nobody up, nor what a step that was given up left. */
static void what_ended_is_not_waited_for(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    begin(&f, 0, 1000);
    assert_int_equal(done_ms(&f, 0, 1010), 100);
    begin(&f, 2, 1020);
    assert_int_equal(done_ms(&f, 2, 1080), 50);
    begin(&f, 0, 1100);
    rui_el_sums_clear(&f.e);
    begin(&f, 2, 1110);
    assert_int_equal(done_ms(&f, 2, 1160), 50);
}

/* The more urgent of two began later: it goes first once the chunk on the wire is through. */
static void the_order_of_buckets_is_that_of_the_wire(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    begin(&f, 2, 1000);
    begin(&f, 0, 1010);
    assert_int_equal(done_ms(&f, 2, 1151), 50);
    assert_int_equal(done_ms(&f, 0, 1111), 101);
}

/* Of the sum on the wire less is left than a chunk takes: half a millisecond. */
static void what_is_left_of_a_sum_is_waited_for(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    begin(&f, 0, 1000);
    rui_el_sum_begin(&f.e, 1, (ru_time){1099 * ms + ms / 2});
    rui_el_sum_done(&f.e, 1, (ru_time){1101 * ms});
    assert_int_equal(f.told.predicted_ns[1], ms + ms / 2);
}

/* What the network carried until a sum was done counts: of the other one a millisecond is left. */
static void a_sum_that_is_done_was_carried_first(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    begin(&f, 1, 1000);
    begin(&f, 3, 1000);
    assert_int_equal(done_ms(&f, 1, 1001), 1);
    begin(&f, 1, 1002);
    assert_int_equal(done_ms(&f, 1, 1004), 2);
}

/* Questions that differ anywhere have different ids, the same question the same one; sums in shared
 * memory follow no plan. */
static void plans_have_ids(void **state)
{
    (void)state;
    fixture f;
    uint64_t ids[7];
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < 7; k++) {
        init(&f);
        f.e.v.n = k == 1 ? 3 : 2;
        f.e.reduce.probed_n = f.e.v.n;
        f.buckets[1].part.size_bytes += k == 2 ? 4 : 0;
        f.e.reduce.costs[RU_ALGO_RING] = (ru_coll_cost){
            .alpha_ns = k == 3 ? 2000 : 1000, .beta_ns = 1, .n_points = k == 4 ? 3 : 2};
        f.e.opt.deterministic = k == 5;
        f.e.v.n += k == 6 ? 70 : 0; /* what was measured is not asked of large views */
        for (uint32_t twice = 0; twice < 2; twice++) {
            ru_err err;
            ru_elastic_part parts[BUCKETS];
            for (uint32_t b = 0; b < BUCKETS; b++) {
                parts[b] = f.buckets[b].part;
            }
            assert_ok(rui_el_choose(&f.e, &f.e.v, parts, BUCKETS, &a, NULL, &err), err);
            rui_el_sums_planned(&f.e, (ru_time){0});
            assert_true(twice == 0 || ids[k] == f.e.reduce.sums.plan);
            ids[k] = f.e.reduce.sums.plan;
        }
        assert_true(ids[k] != 0);
        for (uint32_t i = 0; i < k; i++) {
            assert_true(ids[i] != ids[k]);
        }
    }
    ru_arena_fini(&a);
    f.e.v.local = true;
    rui_el_sums_planned(&f.e, (ru_time){0});
    assert_true(f.e.reduce.sums.plan == 0);
}

static void no_plan_no_prediction(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    f.e.reduce.sums.plan = 0;
    f.jobs[0].alone_ns = 0;
    begin(&f, 0, 1000);
    assert_int_equal(done_ms(&f, 0, 1500), 0);
}

/* Sum b began here at that time and ended at 900; the others took a millisecond. */
static void sums_took(fixture *f, uint32_t b, int64_t begun_ms, uint32_t n)
{
    init(f);
    f->e.v.n = n;
    for (uint32_t k = 0; k < BUCKETS; k++) {
        begin(f, k, k == b ? begun_ms : 899);
        (void)done_ms(f, k, 900);
    }
    f->e.opt.recorder = (ru_recorder *)f; /* there is one */
    rui_el_sums_done(&f->e);
}

/* What the member that began last measured counts on all; its model alone is compared with it. */
static void members_tell_what_sums_took(void **state)
{
    (void)state;
    static fixture leader, member[2];
    uint8_t buf[4 * BUCKETS + 8];
    sums_took(&leader, 0, 300, 3);
    sums_took(&member[0], 0, 700, 3); /* the last one */
    sums_took(&member[1], 0, 500, 3);
    fixture *all[] = {&leader, &member[0], &member[1]};
    for (uint32_t k = 0; k < 3; k++) {
        ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
        rui_el_sums_least(&leader.e, &w);
        assert_int_equal(ru_wire_size(&w), 0); /* not all have told */
        rui_el_sums_tell(&all[k]->e, &w);
        assert_int_equal(ru_wire_size(&w), 4 * BUCKETS);
        ru_wire_in less = ru_wire_in_from(buf, 4 * BUCKETS - 4);
        rui_el_sums_told(&leader.e, &less); /* of other sums: nothing */
        ru_wire_in in = ru_wire_in_from(buf, 4 * BUCKETS);
        rui_el_sums_told(&leader.e, &in);
    }
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    rui_el_sums_least(&leader.e, &w);
    assert_int_equal(ru_wire_size(&w), 4 * BUCKETS);
    for (uint32_t k = 0; k < 3; k++) {
        ru_wire_in in = ru_wire_in_from(buf, 4 * BUCKETS);
        rui_el_sums_learn(&all[k]->e, &in);
        int64_t said = ru_recur_ns(&all[k]->recur[0], 0);
        assert_true(said > 200 * ms - ms / 100 && said < 200 * ms + ms / 100);
        assert_int_equal(all[k]->recur[0].model.n, k == 1);
        assert_int_equal(all[k]->recur[1].model.n, 1);
        ru_elastic_facts f; /* 200 and three times 1 ms, alone 100, 1, 50 and 2 */
        ru_elastic_facts_get(&all[k]->e, &f);
        assert_int_equal((int64_t)(f.step_off * 153 + 0.5), 203);
        assert_true(f.sums_off <= 0); /* of one step: nobody knows yet */
    }
    rui_el_sums_next(&leader.e);
    ru_wire_out next = ru_wire_out_into(buf, sizeof buf);
    rui_el_sums_least(&leader.e, &next);
    assert_int_equal(ru_wire_size(&next), 0);
}

/* Nothing is learnt of a sum that took longer than the message can say. */
static void long_sums_tell_nothing(void **state)
{
    (void)state;
    static fixture f;
    uint8_t buf[4 * BUCKETS];
    sums_took(&f, 0, 900 - 4295, 1);
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    rui_el_sums_tell(&f.e, &w);
    ru_wire_in in = ru_wire_in_from(buf, ru_wire_size(&w));
    rui_el_sums_told(&f.e, &in);
    w = ru_wire_out_into(buf, sizeof buf);
    rui_el_sums_least(&f.e, &w);
    in = ru_wire_in_from(buf, ru_wire_size(&w));
    rui_el_sums_learn(&f.e, &in);
    assert_int_equal(f.recur[0].time.n, 0);
    assert_int_equal(f.recur[1].time.n, 1);
}

/* The COMMIT of a step whose view is over: what sums took still counts, and nothing is known of
 * those of the view to come. */
static void a_view_without_go_has_no_choice(void **state)
{
    (void)state;
    static fixture f;
    uint8_t buf[4 * BUCKETS];
    sums_took(&f, 0, 300, 1);
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    rui_el_sums_tell(&f.e, &w);
    f.e.v.choice = NULL;
    ru_wire_in in = ru_wire_in_from(buf, ru_wire_size(&w));
    rui_el_sums_learn(&f.e, &in);
    assert_int_equal(f.recur[1].time.n, 1);
    assert_true(rui_el_sums_off(&f.e) == 0);
}

enum { CUTS = 8, CUT_BYTES = 16 }; /* less than an element for each member of five or more */

/* Each gradient in four cuts, of which `flight` may be under way. */
static void open_in_cuts(job *j, uint32_t members, ru_coll_algo algo, uint32_t flight)
{
    ru_err err = {0};
    ru_elastic_part cuts[CUTS];
    job_open(j, members, 6, 0);
    ru_elastic *e = j->l[0]->elastic;
    for (uint32_t b = 0; b < CUTS; b++) {
        assert_int_equal(e->opt.tensor_bytes[b / 4], 4 * CUT_BYTES);
        cuts[b] = (ru_elastic_part){b / 4, 1, b % 4 * CUT_BYTES, CUT_BYTES, 1 + (uint32_t)algo};
    }
    assert_ok(ru_elastic_table_set(e, cuts, CUTS, flight, NULL, &err), err);
}

/* The first has all its gradients, the others none yet. */
static uint32_t begun_alone(const job *j, uint32_t members)
{
    const ru_elastic *e = j->l[0]->elastic;
    for (uint32_t i = 1; i < members; i++) {
        j->l[i]->stalls = LIFE_COMPUTED;
    }
    return e->phase == RUI_EL_STEP && e->steps.at[0].computed ? e->reduce.n_begun : 0;
}

static void ends_well(job *j, uint32_t members)
{
    assert_true(job_run(j));
    for (uint32_t i = 0; i < members; i++) {
        assert_true(j->l[i]->status == RU_OK && j->l[i]->committed == 6);
    }
    job_close(j);
}

static const struct {
    uint32_t members;
    ru_coll_algo algo;
} in_cuts[] = {{3, RU_ALGO_RING},     {4, RU_ALGO_HALVING},    {3, RU_ALGO_HALVING},
               {3, RU_ALGO_DIRECT},   {7, RU_ALGO_DOUBLING},   {5, RU_ALGO_RING},
               {7, RU_ALGO_DIRECT},   {4, RU_ALGO_TREE},       {2, RU_ALGO_RING},
               {4, RU_ALGO_DOUBLING}, {4, RU_ALGO_DOUBLE_TREE}};

static void a_table_limits_sums_under_way(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4 * RU_ARRAY_LEN(in_cuts); k++) {
        uint32_t members = in_cuts[k / 4].members, flight = k % 4, begun = 0;
        job j = {0};
        open_in_cuts(&j, members, in_cuts[k / 4].algo, flight);
        for (uint32_t round = 0; begun == 0; round++) {
            assert_true(round < LIFE_ROUNDS);
            begun = begun_alone(&j, members);
            job_round(&j);
        }
        assert_int_equal(begun, flight == 0 ? CUTS : flight);
        for (uint32_t i = 1; i < members; i++) {
            j.l[i]->stalls = LIFE_NOTHING;
        }
        ends_well(&j, members);
    }
}

/* One may be under way, the first of 64 bytes; the last one is needed first. It is begun as well if
 * it is a quarter of that or less. */
static void a_small_urgent_sum_passes_a_large_one(void **state)
{
    (void)state;
    for (int64_t small = 16; small <= 20; small += 4) {
        job j = {0};
        ru_err err = {0};
        uint32_t begun = 0;
        job_open(&j, 2, 6, 0);
        const ru_elastic_part cuts[] = {{0, 1, 0, 64, 1 + RU_ALGO_RING},
                                        {1, 1, 0, 64 - small, 1 + RU_ALGO_RING},
                                        {1, 1, 64 - small, small, 1 + RU_ALGO_RING}};
        assert_ok(ru_elastic_table_set(j.l[0]->elastic, cuts, 3, 1, NULL, &err), err);
        j.l[0]->depth = j.l[1]->depth = 2; /* so that ranks are those of next use */
        for (uint32_t round = 0; begun == 0; round++) {
            assert_true(round < LIFE_ROUNDS);
            begun = begun_alone(&j, 2);
            job_round(&j);
        }
        const rui_el_bucket *b = j.l[0]->elastic->reduce.buckets;
        assert_int_equal(begun, small == 16 ? 2 : 1);
        assert_true(b[0].at == RUI_EL_SUM_BEGUN && b[1].at == RUI_EL_SUM_READY);
        j.l[1]->stalls = LIFE_NOTHING;
        ends_well(&j, 2);
    }
}

/* Members choose different sums first, here since their gradients are ready in another order, and
 * none of these ends before all have begun it. */
static void members_begin_what_others_have_begun(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 3 * RU_ARRAY_LEN(in_cuts); k++) {
        uint32_t members = in_cuts[k / 3].members;
        job j = {0};
        open_in_cuts(&j, members, in_cuts[k / 3].algo, 1 + k % 3);
        for (uint32_t i = 0; i < members; i++) {
            j.l[i]->backward = i % 2 == 1;
            j.l[i]->depth = 1 + k % 2;
        }
        ends_well(&j, members);
    }
}

/* Each hears of another one's sums before it has their gradients, while its own ones are as many as
 * may be under way. */
static void members_begin_later_what_others_have_begun(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2 * RU_ARRAY_LEN(in_cuts); k++) {
        uint32_t members = in_cuts[k / 2].members;
        job j = {0};
        open_in_cuts(&j, members, in_cuts[k / 2].algo, 1 + k % 2);
        for (uint32_t i = 0; i < members; i++) {
            j.l[i]->backward = i % 2 == 1;
            j.l[i]->pauses = 50;
        }
        ends_well(&j, members);
    }
}

RU_TESTS(train_elastic_sum, cmocka_unit_test(a_table_limits_sums_under_way),
         cmocka_unit_test(a_small_urgent_sum_passes_a_large_one),
         cmocka_unit_test(members_begin_what_others_have_begun),
         cmocka_unit_test(members_begin_later_what_others_have_begun),
         cmocka_unit_test(a_sum_waits_for_what_is_as_urgent),
         cmocka_unit_test(what_ended_is_not_waited_for),
         cmocka_unit_test(the_order_of_buckets_is_that_of_the_wire),
         cmocka_unit_test(what_is_left_of_a_sum_is_waited_for),
         cmocka_unit_test(a_sum_that_is_done_was_carried_first), cmocka_unit_test(plans_have_ids),
         cmocka_unit_test(no_plan_no_prediction), cmocka_unit_test(members_tell_what_sums_took),
         cmocka_unit_test(long_sums_tell_nothing),
         cmocka_unit_test(a_view_without_go_has_no_choice))
