/* What a cluster rents, over random prices: the bill is that of a market that is walked second by
 * second from the decisions alone, and the same events give the same state. */
#include "cluster/spot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { ROWS = 400, EVENTS = 4000, MARKETS = 2, BEGIN_S = 400000 };

typedef struct life {
    ru_arena arena;
    ru_spot_market markets[MARKETS];
    ru_spot_options o;
    int64_t at_s[MARKETS][ROWS];
    double usd[MARKETS][ROWS];
    ru_spot spot;
    ru_spot_facts f;
    ru_journal_event events[EVENTS];
    double bid[EVENTS]; /* of ACQUIRE, as the machine has it */
    uint32_t n;
    ru_rng rng;
    int64_t now_s;
} life;

static void begin(life *l, uint64_t stream)
{
    memset(l, 0, sizeof *l);
    ru_arena_init(&l->arena, 0);
    l->rng = ru_rng_from(ru_test_seed(), stream);
    for (uint32_t m = 0; m < MARKETS; m++) {
        int64_t s = 0;
        for (uint32_t k = 0; k < ROWS; k++) {
            l->at_s[m][k] = s;
            l->usd[m][k] =
                0.05 + 0.01 * ru_rng_below(&l->rng, 10) + (ru_rng_below(&l->rng, 12) == 0 ? 3 : 0);
            s += 1 + ru_rng_below(&l->rng, 3000);
        }
        l->markets[m] = (ru_spot_market){.name = m == 0 ? "calm" : "lively",
                                         .nodes = 3,
                                         .slots = 1 + m,
                                         .on_demand_usd = 1 + m,
                                         .prices = {l->at_s[m], l->usd[m], ROWS}};
    }
    l->o = (ru_spot_options){.at = l->markets, .n = MARKETS, .speed = 1, .begin_s = BEGIN_S};
    l->f = (ru_spot_facts){.wants = 5,
                           .phi = 1,
                           .work = 10,
                           .sigma_ns = 120 * INT64_C(1000000000),
                           .lambda_ns = 60 * INT64_C(1000000000)};
    l->now_s = BEGIN_S;
}

static void happen(life *l, ru_journal_event e)
{
    ru_err err = {0};
    assert_true(l->n < EVENTS);
    e.seq = l->n + 1;
    e.text = ru_arena_str(&l->arena, e.text);
    assert_ok(ru_spot_fold(&l->spot, &e, &err), err);
    if (e.a == RU_MARKET_ACQUIRE) {
        uint32_t at = ru_market_alloc_of(&l->spot.job, (uint32_t)e.node, (uint32_t)e.job);
        assert_int_not_equal(at, UINT32_MAX);
        l->bid[l->n] = l->spot.job.allocs[at].bid_usd;
    }
    l->events[l->n++] = e;
}

static void ask(life *l, int64_t now_ns)
{
    ru_spot_answer a;
    ru_err err = {0};
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    assert_ok(ru_spot_ask(&l->spot, &l->o, &l->f, now_ns, &scratch, &a, &err), err);
    for (uint32_t k = 0; k < a.n; k++) {
        happen(l, a.events[k]);
    }
    assert_false(ru_spot_due(&l->spot, now_ns));
    ru_arena_fini(&scratch);
}

static void advance(life *l, int64_t to_s)
{
    ru_journal_event e;
    bool more = true;
    l->now_s = to_s;
    while (more) {
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        more = ru_spot_next(&l->spot, &l->o, to_s * 1000000000, &scratch, &e);
        if (more) {
            happen(l, e);
            if (ru_spot_due(&l->spot, e.b)) {
                ask(l, e.b);
            }
        }
        ru_arena_fini(&scratch);
    }
}

static double price_at(const life *l, uint32_t m, int64_t s)
{
    double usd = 0;
    for (uint32_t k = 0; k < ROWS && l->at_s[m][k] <= s; k++) {
        usd = l->usd[m][k];
    }
    return usd;
}

/* Was a lease renewed for the hour that begins at this second, and is it still there then? */
static bool renewed(const life *l, uint32_t first, int64_t hour_s)
{
    const ru_journal_event *of = &l->events[first];
    for (uint32_t k = first + 1; k < l->n; k++) {
        const ru_journal_event *e = &l->events[k];
        int64_t s = e->b / 1000000000;
        if (e->node == of->node && e->job == of->job && e->a == RU_MARKET_RENEW && s < hour_s &&
            s >= hour_s - 120) {
            return true;
        }
    }
    return false;
}

/* The bill of what was rented by event `first`, without what is left of an hour that runs. */
static double bill(const life *l, uint32_t first)
{
    const ru_journal_event *e = &l->events[first];
    uint32_t m = (uint32_t)e->node;
    int64_t from = e->b / 1000000000, hour = from + 3600;
    bool safe = isinf(l->bid[first]);
    double paid = safe ? l->markets[m].on_demand_usd : price_at(l, m, from), sum = paid;
    for (int64_t s = from + 1; s <= l->now_s; s++) {
        double usd = price_at(l, m, s);
        if (!safe && usd > l->bid[first] + 1e-9) {
            return sum - paid;
        }
        if (s == hour) {
            if (!renewed(l, first, hour)) {
                return sum;
            }
            paid = safe ? l->markets[m].on_demand_usd : usd;
            sum += paid;
            hour += 3600;
        }
    }
    return sum - paid * (double)(hour - l->now_s) / 3600;
}

static void test_the_bill_of_random_lives(void **state)
{
    (void)state;
    uint32_t rented = 0, evicted = 0, safe = 0;
    for (uint64_t round = 0; round < 6; round++) {
        life *l = calloc(1, sizeof *l);
        begin(l, 20 + round);
        while (l->now_s < BEGIN_S + 12 * 3600) {
            l->f.wants = ru_rng_below(&l->rng, 4) == 0 ? ru_rng_below(&l->rng, 9) : l->f.wants;
            advance(l, l->now_s + 1 + ru_rng_below(&l->rng, 900));
            ask(l, l->now_s * 1000000000);
        }
        double sum = 0;
        for (uint32_t k = 0; k < l->n; k++) {
            bool buys = l->events[k].a == RU_MARKET_ACQUIRE;
            sum += buys ? bill(l, k) : 0;
            rented += buys;
            safe += buys && isinf(l->bid[k]);
        }
        assert_near(ru_spot_cost(&l->spot, l->now_s * 1000000000), sum, 1e-9);
        evicted += l->spot.job.evictions;
        ru_spot again = {0};
        ru_err err = {0};
        for (uint32_t k = 0; k < l->n; k++) {
            assert_ok(ru_spot_fold(&again, &l->events[k], &err), err);
        }
        assert_true(again.job.cost_usd == l->spot.job.cost_usd && again.job.n == l->spot.job.n &&
                    again.job.now.ns == l->spot.job.now.ns &&
                    again.job.told.ns == l->spot.job.told.ns &&
                    again.predicted_usd == l->spot.predicted_usd);
        ru_arena_fini(&l->arena);
        free(l);
    }
    assert_true(rented > 50 && evicted > 3 && safe < rented);
}

/* Two nodes of two are rented, paid for the hour, and given back when nobody needs them. */
static void test_an_hour(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    begin(l, 1);
    for (uint32_t k = 0; k < ROWS; k++) {
        l->usd[0][k] = 0.1;
        l->usd[1][k] = 0.5;
    }
    l->f.wants = 2;
    advance(l, BEGIN_S + 60);
    ask(l, l->now_s * 1000000000);
    assert_int_equal(l->spot.job.n, 2);
    assert_near(l->spot.job.cost_usd, 0.2, 1e-12);
    assert_near(ru_spot_cost(&l->spot, l->now_s * 1000000000), 0, 1e-12);
    l->f.busy[0][0] = l->f.busy[0][1] = true;
    l->f.wants = 0;
    advance(l, BEGIN_S + 60 + 3599); /* the paid hour is not cut short */
    assert_int_equal(l->spot.job.n, 2);
    assert_non_null(strstr(l->events[l->n - 1].text, "can use 0 workers"));
    advance(l, BEGIN_S + 60 + 3600);
    assert_int_equal(l->spot.job.n, 0);
    assert_near(ru_spot_cost(&l->spot, l->now_s * 1000000000), 0.2, 1e-12);
    l->f.wants = 3; /* the last node of each number is not gone yet: the third one, and no more of
                       this market */
    ask(l, l->now_s * 1000000000);
    uint32_t calm = 0;
    for (uint32_t k = 0; k < l->spot.job.n; k++) {
        calm += l->spot.job.allocs[k].market == 0;
    }
    assert_int_equal(calm, 1);
    assert_int_not_equal(ru_market_alloc_of(&l->spot.job, 0, 3), UINT32_MAX);
    ru_arena_fini(&l->arena);
    free(l);
}

static uint32_t tell(life *l, ru_market_word word, uint32_t lease)
{
    ru_journal_event out[2];
    uint32_t n =
        ru_spot_tell(&l->spot, &l->o, word, 0, lease, "so", l->now_s * 1000000000, &l->arena, out);
    for (uint32_t k = 0; k < n; k++) {
        happen(l, out[k]);
    }
    return n;
}

/* Asked for, come, taken and not needed any more, at a flat price whose history evicts. */
static void test_a_market_that_tells(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    begin(l, 3);
    l->o.n = 1;
    l->markets[0].told = true;
    l->markets[0].patience_ns = 600 * INT64_C(1000000000);
    l->markets[0].flat_usd = 0.2;
    l->markets[0].on_demand_usd = 0;
    l->f.wants = 2;
    advance(l, BEGIN_S + 60);
    ask(l, l->now_s * 1000000000);
    assert_int_equal(l->spot.job.n, 2);
    assert_true(l->spot.lent[0][0] && l->spot.lent[0][1] && !l->spot.lent[0][2]);
    ask(l, l->now_s * 1000000000); /* what was asked for is not asked for again */
    assert_int_equal(l->spot.job.n, 2);
    advance(l, BEGIN_S + 5000);
    assert_true(l->spot.job.n == 2 && ru_spot_cost(&l->spot, l->now_s * 1000000000) == 0);
    assert_int_equal(tell(l, RU_MARKET_GIVEN, 1), 1);
    assert_int_equal(tell(l, RU_MARKET_GIVEN, 1), 0);
    assert_int_equal(tell(l, RU_MARKET_GIVEN, 3), 0);
    advance(l, l->now_s + 1800);
    assert_near(ru_spot_cost(&l->spot, l->now_s * 1000000000), 0.1, 1e-12);
    l->f.wants = 1; /* the one that is there stays, the other one is not waited for any more */
    ask(l, l->now_s * 1000000000);
    assert_int_equal(l->spot.job.n, 1);
    assert_false(l->spot.job.allocs[0].waits);
    l->f.wants = 2;
    ask(l, l->now_s * 1000000000);
    assert_int_equal(l->spot.job.n, 2); /* who was not waited for may be asked for at once */
    assert_int_equal(tell(l, RU_MARKET_TAKEN, 2), 1);
    const int64_t refused_s = l->now_s;
    for (uint32_t k = 0; k < 2; k++) { /* refused: not before its patience is over */
        ask(l, (refused_s + (int64_t)k * 599) * 1000000000);
        assert_int_equal(l->spot.job.n, 1);
    }
    ask(l, (refused_s + 600) * 1000000000);
    assert_int_equal(l->spot.job.n, 2);
    l->now_s = refused_s + 600;
    assert_int_equal(tell(l, RU_MARKET_TAKEN, 2), 1);
    assert_int_equal(tell(l, RU_MARKET_TAKEN, 1), 1);
    assert_int_equal(l->spot.job.n, 0);
    assert_near(ru_spot_cost(&l->spot, l->now_s * 1000000000), 0, 1e-12);
    ru_arena_fini(&l->arena);
    free(l);
}

/* The file of prices grows behind the clock: what rose before now evicts now, once. */
static void test_a_price_that_is_told_late(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    begin(l, 4);
    l->o.n = 1;
    l->f.wants = 1;
    for (uint32_t k = 0; k < ROWS; k++) {
        l->usd[0][k] = 0.1;
    }
    advance(l, BEGIN_S + 60);
    ask(l, l->now_s * 1000000000);
    assert_int_equal(l->spot.job.n, 1);
    assert_true(l->spot.job.allocs[0].bid_usd < 9);
    const uint32_t before = l->n;
    for (uint32_t k = 0; k < ROWS && l->at_s[0][k] < l->now_s; k++) {
        l->usd[0][k] = k + 1 == ROWS || l->at_s[0][k + 1] >= l->now_s ? 9 : 0.1;
    }
    const int64_t asked_ns = l->now_s * 1000000000;
    advance(l, l->now_s + 600);
    assert_int_equal(l->spot.job.n, 0);
    assert_int_equal(l->spot.job.evictions, 1);
    assert_int_equal(l->spot.clock_ns, asked_ns + 600 * INT64_C(1000000000)); /* it goes on */
    assert_int_equal(l->n, before + 1);
    assert_true(l->events[before].a == RU_MARKET_PRICE && l->events[before].b == asked_ns);
    advance(l, l->now_s);
    assert_int_equal(l->n, before + 1);
    ru_arena_fini(&l->arena);
    free(l);
}

/* What follows a market drops old prices: a clock before them has none, and asks nobody. */
static void test_prices_that_begin_later(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    begin(l, 5);
    l->o.n = 1;
    l->f.wants = 1;
    advance(l, BEGIN_S + 60);
    const int64_t now_ns = l->now_s * 1000000000;
    static const int64_t later_s[] = {-3601, -3600, 0, 1};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(later_s); k++) {
        const int64_t at_s[] = {l->now_s + later_s[k]};
        static const double usd[] = {0.1};
        ru_spot_answer a;
        ru_err err = {0};
        l->markets[0].prices = (ru_prices){at_s, usd, 1};
        const ru_status want = k == 0 ? RU_OK : RU_E_CONFIG;
        assert_int_equal(ru_spot_reaches("m", &l->markets[0].prices, now_ns, &err), want);
        ru_status st = ru_spot_ask(&l->spot, &l->o, &l->f, now_ns, &l->arena, &a, &err);
        assert_true((st == RU_OK) == (k == 0) && (a.n > 0) == (k == 0));
    }
    ru_arena_fini(&l->arena);
    free(l);
}

static void test_odd_events_are_refused(void **state)
{
    (void)state;
    const ru_journal_event odd[] = {
        {.a = RU_MARKET_TIMER, .b = -1, .text = "{}"},
        {.a = 99, .text = "{}"},
        {.a = RU_MARKET_RENEW, .job = 1, .text = "{}"},
        {.a = RU_MARKET_PRICE, .text = "{\"usd\":0}"},
        {.a = RU_MARKET_PRICE, .text = "no JSON"},
        {.a = RU_MARKET_GIVEN, .job = 1, .text = "{}"},
        {.a = RU_MARKET_EVICTED, .text = "{}"},
        {.a = RU_MARKET_ACQUIRE, .node = 8, .job = 1, .text = "{\"usd\":1}"},
        {.a = RU_MARKET_ACQUIRE, .job = 0, .text = "{\"usd\":1}"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(odd); k++) {
        ru_spot s = {0};
        ru_err err = {0};
        assert_int_not_equal(ru_spot_fold(&s, &odd[k], &err), RU_OK);
    }
}

static void test_names(void **state)
{
    (void)state;
    const ru_spot_market at[] = {{.name = "spot", .nodes = 12}, {.name = "spot-b", .nodes = 2}};
    const ru_spot_options o = {.at = at, .n = 2};
    uint32_t m = 0, lease = 0;
    char name[80];
    assert_true(ru_spot_of(&o, "spot12", &m, &lease) && m == 0 && lease == 12);
    assert_true(ru_spot_of(&o, "spot-b2", &m, &lease) && m == 1 && lease == 2);
    assert_false(ru_spot_of(&o, "spot13", &m, &lease));
    assert_false(ru_spot_of(&o, "spot01", &m, &lease));
    assert_false(ru_spot_of(&o, "spot", &m, &lease));
    assert_false(ru_spot_of(&o, "own1", &m, &lease));
    ru_spot_name(&o, 1, 2, name);
    assert_string_equal(name, "spot-b2");
}

RU_TESTS(cluster_spot, cmocka_unit_test(test_the_bill_of_random_lives),
         cmocka_unit_test(test_an_hour), cmocka_unit_test(test_a_market_that_tells),
         cmocka_unit_test(test_a_price_that_is_told_late),
         cmocka_unit_test(test_prices_that_begin_later),
         cmocka_unit_test(test_odd_events_are_refused), cmocka_unit_test(test_names))
