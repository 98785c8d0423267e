/* The gate: the bound of the lag, the rules of its baselines by hand, and the table of permissions
 * with a checker that refuses what was changed. */
#include "plan/serve/gate.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static const ru_gate_op request[] = {{RU_OP_COMPUTE, 40, 1e-3}, {RU_OP_MEMORY, 40, 2e-3}};
static const ru_gate_op step[] = {
    {RU_OP_COMPUTE, 30, 1e-3}, {RU_OP_MEMORY, 60, 1e-4}, {RU_OP_UNKNOWN, 200, 5e-3}};

static ru_gate opened(ru_gate_method method, ru_arena *a)
{
    const ru_gate_in in = {.method = method,
                           .service = request,
                           .training = step,
                           .n_service = 2,
                           .n_training = 3,
                           .device = 80,
                           .goal = 1.14,
                           .quantile = 0.99};
    ru_gate g;
    ru_err err;
    assert_ok(ru_gate_init(&g, &in, a, &err), err);
    return g;
}

/* Ops that may run beside the first op of a request, as bits. */
static uint32_t beside(ru_gate_method method, ru_arena *a)
{
    ru_gate g = opened(method, a);
    ru_gate_arrived(&g, 1);
    ru_gate_begun(&g, 1, 1, 0);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 3; i++) {
        bits |= ru_gate_may(&g, 1, i, RU_NAN) ? 1U << i : 0;
    }
    return bits;
}

static void test_rules_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    assert_int_equal(beside(RU_GATE_FREE, &a), 7);
    assert_int_equal(beside(RU_GATE_PRIORITY, &a), 0);
    assert_int_equal(beside(RU_GATE_IDLE, &a), 0);
    assert_int_equal(beside(RU_GATE_DEDICATED, &a), 0);
    assert_int_equal(beside(RU_GATE_ORION, &a), 2); /* another class, and it fits 80 units */
    assert_int_equal(beside(RU_GATE_REEF, &a), 2);  /* shorter, and at least as wide */
    ru_gate g = opened(RU_GATE_ORION, &a);
    assert_true(ru_gate_may(&g, 0, 2, RU_NAN)); /* idle: anything, */
    ru_gate_issued(&g, 2);
    assert_false(ru_gate_may(&g, 0, 0, RU_NAN)); /* until more is issued than 2.5 % of a request */
    ru_gate_training_op(&g, 2);
    assert_true(ru_gate_may(&g, 0, 0, RU_NAN));
    g = opened(RU_GATE_LAG, &a);
    assert_true(ru_gate_may(&g, 0, 2, RU_NAN));
    ru_gate_issued(&g, 2);
    assert_false(ru_gate_may(&g, 0, 0, RU_NAN)); /* one at a time */
    ru_arena_fini(&a);
}

/* The lag is what the service is behind a device of its own, and no op is let in beyond the budget.
 */
static void test_the_lag_is_bounded(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_gate g = opened(RU_GATE_LAG, &a);
    assert_true(fabs(ru_gate_lag_s(&g, 0)) < 1e-15);
    ru_gate_arrived(&g, 1);
    ru_gate_begun(&g, 1, 1, 0);
    assert_true(fabs(ru_gate_lag_s(&g, 1)) < 1e-12);
    assert_true(fabs(ru_gate_lag_s(&g, 1.001)) < 1e-12);
    const ru_corun_overlap o = {g.training_kind[1], 1e-3};
    ru_gate_service_op(&g, 1.0015, 0, &o, 1); /* 0.5 ms late */
    assert_true(fabs(ru_gate_lag_s(&g, 1.0015) - 5e-4) < 1e-12);
    assert_true(g.budget_s < 5e-4);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(ru_gate_may(&g, 1.0015, i, RU_NAN));
    }
    ru_gate_arrived(&g, 1.002); /* waits behind the first one on both */
    assert_true(fabs(ru_gate_lag_s(&g, 1.002) - 5e-4) < 1e-12);
    ru_gate_service_op(&g, 1.0035, 1, NULL, 0);
    ru_gate_ended(&g, 1.0035);
    ru_gate_begun(&g, 1.0035, 1.002, 0);
    assert_true(fabs(ru_gate_lag_s(&g, 1.0035) - 5e-4) < 1e-12);
    ru_gate_service_op(&g, 1.0045, 0, NULL, 0);
    ru_gate_service_op(&g, 1.0065, 1, NULL, 0);
    ru_gate_ended(&g, 1.0065);
    assert_true(fabs(ru_gate_lag_s(&g, 1.0065)) < 1e-12);
    g = opened(RU_GATE_ORACLE, &a);
    ru_gate_arrived(&g, 1);
    ru_gate_begun(&g, 1, 1, 0);
    assert_true(ru_gate_may(&g, 1, 0, 0.05)); /* 53 us of 294 */
    assert_false(ru_gate_may(&g, 1, 0, 0.5)); /* 1 ms */
    assert_true(ru_gate_may(&g, 1, 1, 0.5));  /* 100 us */
    ru_arena_fini(&a);
}

/* A request of one op says nothing until it ends: what ran beside it counts as predicted, and once
 * it is late, time itself. */
static void test_a_request_of_one_op_is_not_lost_sight_of(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const ru_gate_op one[] = {{RU_OP_UNKNOWN, 1, 10}}, op[] = {{RU_OP_UNKNOWN, 1, 1}};
    const ru_gate_in in = {.method = RU_GATE_LAG,
                           .service = one,
                           .training = op,
                           .n_service = 1,
                           .n_training = 1,
                           .device = 2,
                           .goal = 3.1,
                           .quantile = 0.99};
    ru_gate g;
    ru_err err;
    assert_ok(ru_gate_init(&g, &in, &a, &err), err);
    ru_gate_arrived(&g, 0);
    ru_gate_begun(&g, 0, 0, 0);
    double lost = 0; /* 1 s for each op: half of the time beside one, as nothing is known; surely
                        at most 7 s, of a budget of 14.7 s */
    while (ru_gate_may(&g, lost, 0, RU_NAN)) {
        assert_true(fabs(ru_gate_lag_s(&g, lost) - lost) < 1e-12);
        ru_gate_issued(&g, 0);
        ru_gate_training_op(&g, 0);
        lost += 1;
    }
    assert_true(lost == 8);
    assert_true(fabs(ru_gate_lag_s(&g, 10) - lost) < 1e-12);
    assert_true(fabs(ru_gate_lag_s(&g, 10 + lost) - lost) < 1e-12);
    assert_true(fabs(ru_gate_lag_s(&g, 20) - 10) < 1e-12); /* it should have ended at 10 + lost */
    assert_false(ru_gate_may(&g, 20, 0, RU_NAN));
    ru_gate_service_op(&g, 21, 0, NULL, 0);
    ru_gate_ended(&g, 21);
    assert_true(ru_gate_may(&g, 21, 0, RU_NAN));
    ru_arena_fini(&a);
}

static void test_bad_ops_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_gate_op bad[] = {{RU_OP_COMPUTE, 1, 1}};
    ru_gate_in in = {.service = bad,
                     .training = step,
                     .n_service = 1,
                     .n_training = 3,
                     .device = 80,
                     .goal = 1.14,
                     .quantile = 0.99};
    ru_gate g;
    ru_err err;
    assert_ok(ru_gate_init(&g, &in, &a, &err), err);
    bad[0].s = RU_NAN;
    assert_int_equal(ru_gate_init(&g, &in, &a, &err), RU_E_ARG);
    bad[0].s = 1;
    bad[0].units = -1;
    assert_int_equal(ru_gate_init(&g, &in, &a, &err), RU_E_ARG);
    bad[0].units = 1;
    in.goal = 1;
    assert_int_equal(ru_gate_init(&g, &in, &a, &err), RU_E_ARG);
    in.goal = 2;
    in.n_training = 0;
    assert_int_equal(ru_gate_init(&g, &in, &a, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* -- the table ------------------------------------------------------------------------------------
 */

enum { SERVICES = 2, OPS = 4, SAMPLES = 9 };

typedef struct table {
    ru_gate_service service[SERVICES];
    ru_gate_op op[OPS];
    double count[OPS], slow[SERVICES * OPS][SAMPLES];
    ru_gate_pair pair[SERVICES * OPS];
    ru_gate_admit_in in;
} table;

static void draw(table *t, ru_rng *r, ru_gate_method method)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < SERVICES; k++) {
        double solo = ru_rng_uniform(r, 1e-3, 1e-2);
        t->service[k] = (ru_gate_service){
            solo, solo * ru_rng_uniform(r, 1, 4),  ru_rng_uniform(r, 1, 0.45 / solo),
            100,  (ru_op_class)ru_rng_below(r, 3), 80};
        for (uint32_t i = 0; i < OPS; i++) {
            t->op[i] = (ru_gate_op){(ru_op_class)ru_rng_below(r, 3), ru_rng_uniform(r, 1, 200),
                                    1e-3 * ru_rng_f64(r) + 1e-6};
            t->count[i] = 1 + ru_rng_below(r, 50);
            if (ru_rng_below(r, 4) == 0) {
                continue; /* not measured */
            }
            for (uint32_t m = 0; m < SAMPLES; m++) {
                t->slow[n][m] = ru_rng_uniform(r, 0.95, 3);
            }
            t->pair[n] = (ru_gate_pair){k, i, t->slow[n], ru_rng_below(r, SAMPLES + 1)};
            n++;
        }
    }
    t->in = (ru_gate_admit_in){.method = method,
                               .service = t->service,
                               .op = t->op,
                               .count = t->count,
                               .n_services = SERVICES,
                               .n_ops = OPS,
                               .pair = t->pair,
                               .n_pairs = n,
                               .device = 80,
                               .goal = 1.14,
                               .miss = 0.2,
                               .guess = 0.5,
                               .share_min = 0.2};
}

static void test_the_checker_refuses(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(31, 1);
    uint32_t admitted = 0, refused = 0;
    for (uint32_t round = 0; round < 300; round++) {
        ru_arena_mark m = ru_arena_mark_get(&a);
        table t;
        ru_gate_plan p;
        ru_err err;
        draw(&t, &r, (ru_gate_method)(round % RU_GATE_ORACLE));
        assert_ok(ru_plan_gate(&t.in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_gate_check(&t.in, &p, &err), err);
        admitted += p.admit;
        refused += !p.admit;
        ru_gate_plan bad = p;
        bad.share += 0.01;
        assert_int_equal(ru_plan_gate_check(&t.in, &bad, &err), RU_E_INFEASIBLE);
        bad = p;
        bad.busy *= 1.01;
        assert_int_equal(ru_plan_gate_check(&t.in, &bad, &err), RU_E_INFEASIBLE);
        bad = p;
        bad.n_ops--;
        assert_int_equal(ru_plan_gate_check(&t.in, &bad, &err), RU_E_INFEASIBLE);
        if (fabs(p.share - 0.2) > 1e-6) {
            bad = p;
            bad.admit = !p.admit;
            assert_int_equal(ru_plan_gate_check(&t.in, &bad, &err), RU_E_INFEASIBLE);
        }
        double *lists[] = {(double *)(uintptr_t)p.budget_s, (double *)(uintptr_t)p.beside_s,
                           (double *)(uintptr_t)p.lost_s, (double *)(uintptr_t)p.tail_ratio};
        for (uint32_t k = 0; k < RU_ARRAY_LEN(lists); k++) {
            for (uint32_t i = 0; i < SERVICES; i++) {
                double old = lists[k][i];
                lists[k][i] = isinf(old) ? 1 : 1.01 * old + 0.01;
                assert_int_equal(ru_plan_gate_check(&t.in, &p, &err), RU_E_INFEASIBLE);
                lists[k][i] = old;
            }
        }
        ru_gate_cell *cell = (ru_gate_cell *)(uintptr_t)p.cell;
        for (uint32_t i = 0; i < SERVICES * OPS; i++) {
            ru_gate_cell old = cell[i];
            cell[i].may = !old.may;
            assert_int_equal(ru_plan_gate_check(&t.in, &p, &err), RU_E_INFEASIBLE);
            cell[i] = old;
            cell[i].loss += 0.01;
            assert_int_equal(ru_plan_gate_check(&t.in, &p, &err), RU_E_INFEASIBLE);
            cell[i] = old;
            cell[i].lost_s += 1e-4;
            assert_int_equal(ru_plan_gate_check(&t.in, &p, &err), RU_E_INFEASIBLE);
            cell[i] = old;
        }
        ru_arena_rewind(&a, m);
    }
    assert_true(admitted > 20 && refused > 20);
    ru_arena_fini(&a);
}

/* What a set of ops brings beside a request less what it costs there, in proportion of a step, cut
 * where the request has lost `most_s`. */
static double gain_of(const table *t, const ru_gate_plan *p, uint32_t k, uint32_t set,
                      double most_s)
{
    double all = 0, work = 0, lost = 0;
    for (uint32_t i = 0; i < OPS; i++) {
        const ru_gate_cell *c = &p->cell[k * OPS + i];
        all += t->count[i] * t->op[i].s;
        if ((set >> i & 1) != 0) {
            if (c->lost_s > 0.14 * t->service[k].tail_s) {
                return 0; /* one such op alone breaks the goal */
            }
            work += t->count[i] * t->op[i].s;
            lost += t->count[i] * c->lost_s;
        }
    }
    double scale = t->service[k].solo_s / all, part = fmin(scale, most_s / fmax(lost, 1e-300));
    return part * (work - lost);
}

/* Exhaustive: no set of permitted ops brings more than ours. */
static void test_permissions_are_the_best_set(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(77, 1);
    uint32_t bound = 0;
    for (uint32_t round = 0; round < 200; round++) {
        table t;
        ru_gate_plan p;
        ru_err err;
        draw(&t, &r, RU_GATE_LAG);
        assert_ok(ru_plan_gate(&t.in, &a, &a, &p, &err), err);
        for (uint32_t k = 0; k < SERVICES; k++) {
            double mine = p.beside_s[k] - p.lost_s[k], asked = 0;
            for (uint32_t i = 0; i < SERVICES; i++) {
                asked += t.service[i].rate * p.budget_s[i];
            }
            double part = (1 - p.busy) / fmax(1, asked), n = 1.14 / (1 + 0.14 * p.busy);
            double most_s = part * asked >= p.busy * (n - 1) ? part * p.budget_s[k]
                                                             : (n - 1) * t.service[k].solo_s;
            bound += p.lost_s[k] >= most_s * (1 - 1e-9);
            assert_true(p.lost_s[k] <= most_s * (1 + 1e-9));
            for (uint32_t set = 0; set < 1U << OPS; set++) {
                assert_true(gain_of(&t, &p, k, set, most_s) <= mine + 1e-12);
            }
        }
        assert_true(p.tail_ratio[0] <= 1.14 + 1e-9);
    }
    assert_true(bound > 20); /* the bound on what is lost holds some of them */
    table t;
    ru_gate_plan p;
    ru_err err;
    draw(&t, &r, RU_GATE_LAG);
    t.service[0].rate = 2 / t.service[0].solo_s;
    assert_int_equal(ru_plan_gate(&t.in, &a, &a, &p, &err), RU_E_INFEASIBLE);
    t.in.n_services = 0;
    assert_int_equal(ru_plan_gate(&t.in, &a, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* From an idle service to a full one: the training never gets more where requests are more, and no
 * second holds more than a second of requests and what they lose. */
static void test_more_requests_leave_less(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 78);
    for (uint32_t round = 0; round < 100; round++) {
        table t;
        ru_err err;
        double before = 2, load = 0;
        draw(&t, &r, RU_GATE_LAG);
        for (uint32_t k = 0; k < SERVICES; k++) {
            load += t.service[k].rate * t.service[k].solo_s;
        }
        for (uint32_t part = 1; part < 50; part++) {
            ru_gate_plan p;
            double held = 0, scale = 0.02 * part / load;
            table u = t;
            u.in.service = u.service;
            for (uint32_t k = 0; k < SERVICES; k++) {
                u.service[k].rate = t.service[k].rate * scale;
            }
            assert_ok(ru_plan_gate(&u.in, &a, &a, &p, &err), err);
            assert_ok(ru_plan_gate_check(&u.in, &p, &err), err);
            for (uint32_t k = 0; k < SERVICES; k++) {
                held += u.service[k].rate * (u.service[k].solo_s + p.lost_s[k]);
            }
            assert_true(held <= 1 + 1e-9);
            assert_true(p.share <= before + 1e-9);
            before = p.share;
        }
        assert_true(before < 0.1);
    }
    ru_arena_fini(&a);
}

/* Of equals each has its turn; trainings whose turns bring them different work lose the same; one
 * that comes later is not behind those that were there; who is not there has no turn. */
static void test_trainings_take_turns(void **state)
{
    (void)state;
    double lost[4] = {1, 1, 1, -1};
    assert_int_equal(ru_gate_turn(lost, 4, 0), 1);
    assert_int_equal(ru_gate_turn(lost, 4, 2), 0);
    assert_int_equal(ru_gate_turn(lost, 1, 0), 0);
    static const double gain[3] = {1e-3, 2e-3, 4e-3}; /* of a turn of 5 ms */
    double work[3] = {0};
    uint32_t turn = 3, turns[3] = {0};
    lost[0] = lost[1] = 0;
    lost[2] = -1;
    for (uint32_t k = 0; k < 20000; k++) {
        uint32_t n = k < 10000 ? 2 : 3;
        lost[2] = k == 10000 ? 0 : lost[2];
        turn = ru_gate_turn(lost, 4, turn);
        assert_true(turn < n);
        for (uint32_t i = 0; i < n; i++) {
            double ran = i == turn ? gain[i] : 0;
            lost[i] = ru_gate_lost_s(lost[i], 5e-3, ran);
            work[i] += k >= 15000 ? ran : 0;
        }
        turns[turn] += k >= 15000 ? 1 : 0;
    }
    assert_true(turns[0] > turns[1] && turns[1] > turns[2] && turns[2] > 0);
    assert_true(fabs(work[0] / work[1] - 1) < 0.05 && fabs(work[1] / work[2] - 1) < 0.05);
}

RU_TESTS(plan_gate, cmocka_unit_test(test_trainings_take_turns),
         cmocka_unit_test(test_more_requests_leave_less), cmocka_unit_test(test_rules_by_hand),
         cmocka_unit_test(test_the_lag_is_bounded),
         cmocka_unit_test(test_a_request_of_one_op_is_not_lost_sight_of),
         cmocka_unit_test(test_bad_ops_are_refused), cmocka_unit_test(test_the_checker_refuses),
         cmocka_unit_test(test_permissions_are_the_best_set))
