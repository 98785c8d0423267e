#include "plan/net/order.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "plan/row/policy.h"
#include "test/test.h"

enum { OPS = 12 };

typedef struct small {
    int64_t op_ns[OPS], bytes[OPS];
    ru_step_edge edges[40];
    ru_order_in in;
} small;

/* Indexes rise along edges, so that the topological order is 0, 1, 2, ... */
static void small_make(small *s, ru_rng *r, uint32_t xfers_max)
{
    memset(s, 0, sizeof *s);
    uint32_t n = 1 + ru_rng_below(r, OPS), xfers = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->op_ns[i] = ru_rng_below(r, 4) == 0 ? 0 : ru_rng_below(r, 2000000);
        bool has = xfers < xfers_max && ru_rng_below(r, 3) > 0;
        s->bytes[i] = has ? 1 + ru_rng_below(r, 300000) : 0;
        xfers += has ? 1 : 0;
    }
    s->in = (ru_order_in){.n = n,
                          .op_ns = s->op_ns,
                          .param_bytes = s->bytes,
                          .edges = s->edges,
                          .link = {.overhead_ns = ru_rng_below(r, 3) * 20000,
                                   .latency_ns = ru_rng_below(r, 3) * 30000,
                                   .bytes_per_s = 125e6},
                          .workers = 1 + ru_rng_below(r, 3),
                          .slice_bytes = 50000,
                          .partition_bytes = 60000,
                          .credit_bytes = 130000,
                          .seed = ru_rng_u64(r)};
    for (uint32_t k = ru_rng_below(r, 40); n > 1 && k > 0; k--) {
        uint32_t a = ru_rng_below(r, n), b = ru_rng_below(r, n);
        if (a < b) {
            s->edges[s->in.n_edges++] = (ru_step_edge){a, b};
        }
    }
}

/* What op i needs, as a set of ops with parameters. */
static uint32_t needs(const ru_order_in *in, uint32_t i)
{
    uint32_t set = in->param_bytes[i] > 0 ? 1u << i : 0;
    for (uint32_t e = 0; e < in->n_edges; e++) {
        set |= in->edges[e].to == i ? needs(in, in->edges[e].from) : 0;
    }
    return set;
}

/* The next transfer by the definitions of TAC, computed anew. */
static uint32_t tac_next(const ru_order_in *in, uint32_t left)
{
    int64_t m[OPS], p[OPS] = {0}, plus[OPS];
    for (uint32_t r = 0; r < in->n; r++) {
        m[r] = ru_cost_link_held_ns(&in->link, in->param_bytes[r]);
        plus[r] = INT64_MAX;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        uint32_t set = needs(in, i) & left;
        int64_t sum = 0;
        for (uint32_t r = 0; r < in->n; r++) {
            sum += set >> r & 1 ? m[r] : 0;
        }
        for (uint32_t r = 0; r < in->n; r++) {
            if (set == 1u << r) {
                p[r] += in->op_ns[i];
            } else if (set >> r & 1) {
                plus[r] = sum < plus[r] ? sum : plus[r];
            }
        }
    }
    uint32_t best = OPS;
    for (uint32_t a = 0; a < in->n; a++) {
        if ((left >> a & 1) == 0) {
            continue;
        }
        if (best == OPS) {
            best = a;
            continue;
        }
        int64_t x = p[best] < m[a] ? p[best] : m[a], y = p[a] < m[best] ? p[a] : m[best];
        best = x < y || (x == y && plus[a] < plus[best]) ? a : best;
    }
    return best;
}

static uint32_t tic_group(const ru_order_in *in, uint32_t r)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < in->n; i++) {
        uint32_t set = needs(in, i), count = (uint32_t)__builtin_popcount(set);
        least = set >> r & 1 && count > 1 && count < least ? count : least;
    }
    return least;
}

static void ranks_follow_the_definitions(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 21);
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    ru_arena_mark mark = ru_arena_mark_get(&a);
    for (uint32_t round = 0; round < 400; round++) {
        small s;
        ru_order_plan p;
        ru_err err;
        small_make(&s, &r, OPS);
        s.in.workers = 1;
        s.in.method = RU_ORDER_TAC;
        s.in.link.bytes_per_s = round % 4 == 0 ? 1e14 : 125e6; /* transfers of 0 ns */
        assert_ok(ru_plan_order(&s.in, &a, &scratch, &p, &err), err);
        uint32_t left = 0;
        for (uint32_t i = 0; i < s.in.n; i++) {
            left |= s.bytes[i] > 0 ? 1u << i : 0;
        }
        for (uint32_t k = 0; k < p.n_pieces; k++) {
            assert_int_equal(p.pieces[k].op, tac_next(&s.in, left));
            assert_int_equal(p.rank[p.pieces[k].op], k);
            left &= ~(1u << p.pieces[k].op);
        }
        assert_int_equal(left, 0);
        s.in.method = RU_ORDER_TIC;
        assert_ok(ru_plan_order(&s.in, &a, &scratch, &p, &err), err);
        for (uint32_t k = 0; k < p.n_pieces; k++) {
            uint32_t op = p.pieces[k].op, before = 0;
            for (uint32_t i = 0; i < s.in.n; i++) {
                bool less = s.bytes[i] > 0 && tic_group(&s.in, i) < tic_group(&s.in, op);
                before += less ? 1 : 0;
            }
            assert_int_equal(p.rank[op], before);
        }
        ru_arena_rewind(&a, mark);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

static void no_method_beats_the_optimum_or_its_bound(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 22);
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    ru_arena_mark mark = ru_arena_mark_get(&a);
    uint32_t tac_best = 0, rounds = 150;
    for (uint32_t round = 0; round < rounds; round++) {
        small s;
        ru_order_plan best, p;
        ru_err err;
        small_make(&s, &r, 5);
        s.in.method = RU_ORDER_OPTIMUM;
        assert_ok(ru_plan_order(&s.in, &a, &scratch, &best, &err), err);
        assert_true(best.bound_ns <= best.step_ns);
        assert_ok(ru_plan_order_check(&s.in, &best, &scratch, &err), err);
        for (uint32_t m = RU_ORDER_TAC; m < RU_ORDER_METHODS; m++) {
            s.in.method = (ru_order_method)m;
            assert_ok(ru_plan_order(&s.in, &a, &scratch, &p, &err), err);
            assert_ok(ru_plan_order_check(&s.in, &p, &scratch, &err), err);
            bool whole = m != RU_ORDER_P3 && m != RU_ORDER_CREDIT && m != RU_ORDER_RANDOM;
            assert_true(!whole || p.step_ns >= best.step_ns);
            tac_best += m == RU_ORDER_TAC && p.step_ns == best.step_ns ? 1 : 0;
        }
        ru_arena_rewind(&a, mark);
    }
    assert_true(tac_best > rounds / 2); /* a greedy rule, but not a bad one */
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

/* The best method's step is the least of all methods' and, for few transfers, of all orders; the
 * checker refuses another method's longer order under that name. */
static void the_best_is_the_shortest_of_all_methods(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 77);
    uint32_t not_tac = 0, refused_n = 0;
    for (uint32_t round = 0; round < 400; round++) {
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        small s;
        small_make(&s, &r, 5);
        ru_order_plan best, p;
        s.in.method = RU_ORDER_BEST;
        assert_ok(ru_plan_order(&s.in, &a, &a, &best, &err), err);
        assert_ok(ru_plan_order_check(&s.in, &best, &a, &err), err);
        not_tac += best.method != RU_ORDER_TAC ? 1 : 0;
        for (uint32_t m = RU_ORDER_BEST + 1; m < RU_ORDER_METHODS; m++) {
            ru_order_in by = s.in;
            by.method = (ru_order_method)m;
            assert_ok(ru_plan_order(&by, &a, &a, &p, &err), err);
            assert_true(best.step_ns <= p.step_ns);
            refused_n += ru_plan_order_check(&s.in, &p, &a, &err) != RU_OK ? 1 : 0;
        }
        ru_arena_fini(&a);
    }
    assert_true(not_tac > 0 && refused_n > 100);
}

/* Five transfers of which TAC sends the largest, 19 kB that only the last op needs, first: 63 ms
 * instead of the 47 ms that the link and the ops after it ask at least. */
static void the_best_is_not_misled_by_a_large_late_transfer(void **state)
{
    (void)state;
    const int64_t ns[] = {2000000, 4000000, 5000000, 20000000, 3000000};
    const int64_t bytes[] = {3000, 7000, 9000, 5000, 19000};
    const ru_step_edge edges[] = {{0, 1}, {0, 2}, {1, 2}, {2, 3}};
    ru_order_in in = {.n = 5,
                      .op_ns = ns,
                      .param_bytes = bytes,
                      .edges = edges,
                      .n_edges = 4,
                      .link = {.bytes_per_s = 1e6},
                      .workers = 1,
                      .slice_bytes = 1 << 20,
                      .partition_bytes = 1 << 20,
                      .credit_bytes = 1 << 20};
    ru_arena a;
    ru_err err;
    ru_order_plan p, tac;
    ru_arena_init(&a, 0);
    assert_ok(ru_plan_order(&in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_order_check(&in, &p, &a, &err), err);
    assert_int_equal(p.step_ns, 47000000);
    assert_int_equal(p.pieces[4].op, 4);
    in.method = RU_ORDER_TAC;
    assert_ok(ru_plan_order(&in, &a, &a, &tac, &err), err);
    assert_ok(ru_plan_order_check(&in, &tac, &a, &err), err);
    in.method = RU_ORDER_BEST;
    assert_int_equal(ru_plan_order_check(&in, &tac, &a, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

static void refused(const ru_order_in *in, const ru_order_plan *p, ru_arena *scratch)
{
    ru_err err;
    assert_int_equal(ru_plan_order_check(in, p, scratch, &err), RU_E_INFEASIBLE);
}

static void corrupt_lists(const ru_order_in *in, const ru_order_plan *good, ru_arena *scratch)
{
    union {
        const ru_order_piece *view;
        ru_order_piece *at;
    } pieces = {good->pieces};
    union {
        const uint32_t *view;
        uint32_t *at;
    } rank = {good->rank};
    for (uint32_t k = 0; k < good->n_pieces; k++) {
        ru_order_piece was = pieces.at[k];
        const ru_order_piece wrong[] = {{was.op + 1, was.size_bytes},
                                        {4, was.size_bytes},
                                        {was.op, was.size_bytes + 1},
                                        {was.op, was.size_bytes - 1},
                                        {was.op, -1}};
        for (uint32_t w = 0; w < RU_ARRAY_LEN(wrong); w++) {
            pieces.at[k] = wrong[w];
            refused(in, good, scratch);
        }
        pieces.at[k] = was;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        uint32_t was = rank.at[i];
        rank.at[i] = was == RU_ORDER_NO_RANK ? 0 : was + 1;
        refused(in, good, scratch);
        rank.at[i] = was == RU_ORDER_NO_RANK ? 3 : RU_ORDER_NO_RANK;
        refused(in, good, scratch);
        rank.at[i] = was;
    }
    ru_order_piece first = pieces.at[0]; /* another order takes longer here */
    pieces.at[0] = pieces.at[2];
    pieces.at[2] = first;
    refused(in, good, scratch);
}

static void the_checker_refuses_corrupted_plans(void **state)
{
    (void)state;
    int64_t op_ns[] = {100, 200, 300, 50}, bytes[] = {1000, 2000, 0, 500};
    const ru_step_edge edges[] = {{0, 1}, {1, 2}, {2, 3}};
    ru_order_in in = {.n = 4,
                      .op_ns = op_ns,
                      .param_bytes = bytes,
                      .edges = edges,
                      .n_edges = 3,
                      .link = {.bytes_per_s = 1e9},
                      .workers = 2,
                      .slice_bytes = 1,
                      .partition_bytes = 1,
                      .credit_bytes = 1};
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    ru_order_plan good, p;
    ru_err err;
    assert_ok(ru_plan_order(&in, &a, &scratch, &good, &err), err);
    assert_ok(ru_plan_order_check(&in, &good, &scratch, &err), err);
    for (uint32_t field = 0; field < 9; field++) {
        p = good;
        p.n_lists += field == 0 ? 1 : 0;
        p.n_pieces -= field == 1 ? 1 : 0;
        p.step_ns += field == 2 ? 1 : 0;
        p.straggle_ns += field == 3 ? 1 : 0;
        p.bound_ns = field == 4 ? p.step_ns + 7 : p.bound_ns;
        p.efficiency += field == 5 ? 1e-6 : 0;
        p.speedup_max -= field == 6 ? 1e-6 : 0;
        p.efficiency = field == 7 ? RU_NAN : p.efficiency;
        p.bound_ns = field == 8 ? 0 : p.bound_ns;
        refused(&in, &p, &scratch);
    }
    corrupt_lists(&in, &good, &scratch);
    in.method = RU_ORDER_TIC;
    assert_ok(ru_plan_order(&in, &a, &scratch, &good, &err), err);
    union {
        const uint32_t *view;
        uint32_t *at;
    } rank = {good.rank};
    rank.at[1] = 1; /* ops 0 and 1 are a tie: op 1 needs both */
    refused(&in, &good, &scratch);
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

static void bad_facts_are_refused(void **state)
{
    (void)state;
    int64_t op_ns[] = {1, 1}, bytes[] = {1, 1};
    ru_step_edge edges[] = {{0, 1}, {1, 0}};
    const ru_order_in good = {.n = 2,
                              .op_ns = op_ns,
                              .param_bytes = bytes,
                              .edges = edges,
                              .n_edges = 1,
                              .link = {.bytes_per_s = 1},
                              .workers = 1,
                              .slice_bytes = 1,
                              .partition_bytes = 1,
                              .credit_bytes = 1};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_order_plan p;
    ru_err err;
    assert_ok(ru_plan_order(&good, &a, &a, &p, &err), err);
    for (uint32_t k = 0; k < 10; k++) {
        ru_order_in in = good;
        in.n = k == 0 ? 0 : in.n;
        in.workers = k == 1 ? 0 : in.workers;
        in.link.bytes_per_s = k == 2 ? 0 : k == 3 ? RU_NAN : k == 4 ? (double)INFINITY : 1;
        in.link.latency_ns = k == 5 ? -1 : 0;
        in.slice_bytes = k == 6 ? 0 : 1;
        in.credit_bytes = k == 7 ? 0 : 1;
        in.method = k == 8 ? RU_ORDER_METHODS : RU_ORDER_TAC;
        op_ns[1] = k == 9 ? -1 : 1;
        assert_int_equal(ru_plan_order(&in, &a, &a, &p, &err), RU_E_ARG);
        op_ns[1] = 1;
    }
    ru_order_in in = good;
    in.n_edges = 2;
    assert_int_equal(ru_plan_order(&in, &a, &a, &p, &err), RU_E_INFEASIBLE);
    op_ns[0] = INT64_MAX / 2;
    assert_int_equal(ru_plan_order(&good, &a, &a, &p, &err), RU_E_ARG);
    uint8_t small_memory[256];
    ru_arena fixed;
    op_ns[0] = 1;
    ru_arena_init_fixed(&fixed, small_memory, sizeof small_memory);
    assert_int_equal(ru_plan_order(&good, &fixed, &fixed, &p, &err), RU_E_LIMIT);
    ru_arena_fini(&a);
}

/* A link of 1e9 bytes/s: 1 ms, then 3 ms. Ops of 2 ms without parameters, then 1 and 1 ms. */
static void a_worker_waits_for_what_comes_late(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const int64_t ns[] = {2000000, 1000000, 1000000}, bytes[] = {0, 1000000, 3000000};
    const ru_step_edge edges[] = {{1, 2}};
    for (uint32_t workers = 1; workers < 3; workers++) {
        ru_order_in in = {.n = 3,
                          .op_ns = ns,
                          .param_bytes = bytes,
                          .edges = edges,
                          .n_edges = 1,
                          .link = {.bytes_per_s = 1e9},
                          .workers = workers,
                          .slice_bytes = 1,
                          .partition_bytes = 1,
                          .credit_bytes = 1,
                          .method = RU_ORDER_FIFO};
        ru_order_plan p;
        ru_order_time x[3];
        uint32_t n;
        ru_err err;
        assert_ok(ru_plan_order(&in, &a, &a, &p, &err), err);
        assert_ok(ru_order_times(&in, &p, &a, x, &n, &err), err);
        assert_int_equal(n, 2);
        int64_t last = workers == 1 ? 4000000 : 5000000; /* the other's first is between */
        assert_true(x[0].op == 1 && x[0].arrive_ns == 1000000 && x[0].need_ns == 2000000);
        assert_int_equal(x[0].wait_ns, 0);
        assert_true(x[1].op == 2 && x[1].arrive_ns == last && x[1].need_ns == 3000000);
        assert_int_equal(x[1].wait_ns, last - 3000000);
    }
    ru_arena_fini(&a);
}

static void facts_give_an_input(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const int64_t first[] = {0}, second[] = {0, 1};
    const ru_op_fact ops[] = {
        {.rank = 1, .step = 0, .node = "one", .took = {.mean_ns = 9e3, .min_ns = 7000}},
        {.rank = 1, .step = 1, .node = "two", .after = {first, 1}, .took = {.mean_ns = 4e3}},
        {.rank = 1, .step = 2, .node = "back", .after = {second, 2}, .took = {.mean_ns = 8e3}},
        {.rank = 1, .step = 3, .node = "update", .took = {.mean_ns = 1e3}},
        {.rank = 2, .step = 0, .node = "one", .took = {.mean_ns = 1e3}}};
    ru_transfer_fact grads[] = {{.size_bytes = 40, .made_by = 2, .needed_by = 3, .used_by = 1},
                                {.size_bytes = 400, .made_by = 2, .needed_by = 3, .used_by = 0},
                                {.size_bytes = 4, .made_by = 2, .needed_by = 3, .used_by = 0},
                                {.size_bytes = 12, .made_by = 1, .needed_by = -1, .used_by = -1}};
    const ru_step_fact step = {.workers = 3};
    ru_world w = {.facts = {.ops = {ops, 5}, .transfers = {grads, 4}, .steps = {&step, 1}}};
    ru_err err;
    ru_text text = ru_text_arena(&a);
    ru_json j = ru_json_into(&text);
    ru_json_open(&j, NULL, '{');
    assert_ok(ru_policy_order.derive(&w, &a, &j, &err), err);
    ru_json_close(&j);
    assert_string_equal(
        text.p, "{\"ops\":["
                "{\"name\":\"one\",\"time\":\"7000ns\",\"parameters\":\"404B\",\"after\":[]},"
                "{\"name\":\"two\",\"time\":\"4000ns\",\"parameters\":\"40B\",\"after\":[0]},"
                "{\"name\":\"back\",\"time\":\"8000ns\",\"parameters\":\"0B\",\"after\":[0,1]}],"
                "\"workers\":3}");
    for (uint32_t k = 0; k < 3; k++) { /* pulled: 444 bytes in 222 ns */
        grads[k].made_by = grads[k].needed_by = -1;
        grads[k].took = (ru_fact){.count = 1, .mean_ns = (double)grads[k].size_bytes / 2};
    }
    text = ru_text_arena(&a);
    j = ru_json_into(&text);
    ru_json_open(&j, NULL, '{');
    assert_ok(ru_policy_order.derive(&w, &a, &j, &err), err);
    assert_non_null(strstr(text.p, "\"bytes_per_s\":2000000000,"));
    for (uint32_t k = 0; k < 4; k++) {
        grads[k].used_by = -1; /* files of before */
    }
    assert_int_equal(ru_policy_order.derive(&w, &a, &j, &err), RU_E_MISSING);
    ru_arena_fini(&a);
}

RU_TESTS(plan_order, cmocka_unit_test(a_worker_waits_for_what_comes_late),
         cmocka_unit_test(facts_give_an_input), cmocka_unit_test(ranks_follow_the_definitions),
         cmocka_unit_test(no_method_beats_the_optimum_or_its_bound),
         cmocka_unit_test(the_best_is_the_shortest_of_all_methods),
         cmocka_unit_test(the_best_is_not_misled_by_a_large_late_transfer),
         cmocka_unit_test(the_checker_refuses_corrupted_plans),
         cmocka_unit_test(bad_facts_are_refused))
