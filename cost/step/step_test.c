#include "cost/step/step.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

typedef struct random_step {
    ru_step_task tasks[24];
    ru_step_edge edges[60];
    uint32_t lanes[4];
    bool in_order[4];
    ru_step_in in;
} random_step;

/* Edges go from smaller to larger numbers of a random renaming, so that indexes are in no order. */
static void random_step_make(random_step *s, ru_rng *r, bool zeroes, bool in_order)
{
    memset(s, 0, sizeof *s);
    uint32_t n = 1 + ru_rng_below(r, 24), name[24];
    ru_rng_shuffle(r, name, n);
    s->in = (ru_step_in){.tasks = s->tasks,
                         .n = n,
                         .edges = s->edges,
                         .n_servers = 1 + ru_rng_below(r, 4),
                         .lanes = s->lanes,
                         .in_order = s->in_order};
    for (uint32_t k = 0; k < s->in.n_servers; k++) {
        s->lanes[k] = 1 + (ru_rng_below(r, 4) == 0 ? 1u : 0u);
        s->in_order[k] = in_order && ru_rng_below(r, 2) == 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        s->tasks[name[i]] =
            (ru_step_task){.ns = (zeroes ? 0 : 1) + (int64_t)ru_rng_below(r, 6),
                           .latency_ns = ru_rng_below(r, 3) == 0 ? ru_rng_below(r, 4) : 0,
                           .ready_ns = ru_rng_below(r, 5) == 0 ? ru_rng_below(r, 15) : 0,
                           /* on in_order servers ranks must agree with the edges */
                           .rank = in_order ? (int64_t)i : (int64_t)ru_rng_below(r, 5),
                           .server = ru_rng_below(r, s->in.n_servers)};
    }
    for (uint32_t e = ru_rng_below(r, 60); n > 1 && e > 0; e--) {
        uint32_t a = ru_rng_below(r, n), b = ru_rng_below(r, n);
        if (a != b) {
            s->edges[s->in.n_edges++] = (ru_step_edge){name[a < b ? a : b], name[a < b ? b : a]};
        }
    }
}

static int64_t free_from(const ru_step_in *in, const ru_step_times *t, uint32_t i)
{
    int64_t at = in->tasks[i].ready_ns;
    for (uint32_t e = 0; e < in->n_edges; e++) {
        uint32_t j = in->edges[e].from;
        int64_t arrives = t->end_ns[j] + in->tasks[j].latency_ns;
        at = in->edges[e].to == i && arrives > at ? arrives : at;
    }
    return at;
}

static bool goes_before(const ru_step_in *in, uint32_t a, uint32_t b)
{
    return in->tasks[a].rank != in->tasks[b].rank ? in->tasks[a].rank < in->tasks[b].rank : a < b;
}

/* The header's rules, one by one: no task before what it waits for, no more than the lanes at a
 * time, no free lane while a task is ready, and of ready tasks the first by rank. */
static void judge(const ru_step_in *in, const ru_step_times *t, bool zeroes)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_step_task *task = &in->tasks[i];
        int64_t from = free_from(in, t, i);
        assert_true(t->start_ns[i] >= from);
        assert_true(t->end_ns[i] == t->start_ns[i] + task->ns);
        int64_t arrives = t->end_ns[i] + task->latency_ns;
        last = arrives > last ? arrives : last;
        bool in_order = in->in_order[task->server];
        for (uint32_t j = 0; j < in->n; j++) {
            bool same = j != i && in->tasks[j].server == task->server;
            if (same && in_order && goes_before(in, j, i)) {
                assert_true(t->start_ns[j] <= t->start_ns[i]);
            } else if (same && !zeroes && !in_order && t->start_ns[j] < t->start_ns[i] &&
                       t->start_ns[j] >= from) { /* j went first although i was ready */
                assert_true(goes_before(in, j, i));
            }
        }
        for (int64_t at = zeroes || in_order ? t->start_ns[i] : from; at <= t->start_ns[i]; at++) {
            uint32_t busy = 0; /* at every instant from ready to start all lanes are taken */
            for (uint32_t j = 0; j < in->n; j++) {
                bool holds = in->tasks[j].server == task->server && t->start_ns[j] <= at &&
                             t->end_ns[j] > at;
                busy += holds ? 1 : 0;
            }
            assert_true(busy <= in->lanes[task->server]);
            assert_true(at == t->start_ns[i] || busy == in->lanes[task->server]);
        }
    }
    assert_int_equal(last, t->makespan_ns);
}

static void judge_bounds(const ru_step_in *in, const ru_step_times *t, ru_arena *a)
{
    ru_err err;
    ru_step_path path;
    assert_ok(ru_cost_step_path(in, a, a, &path, &err), err);
    assert_true(path.path_ns <= t->makespan_ns && path.busy_max_ns <= t->makespan_ns);
    int64_t longest = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        assert_true(path.head_ns[i] <= t->start_ns[i]);
        int64_t through = path.head_ns[i] + path.tail_ns[i];
        longest = through > longest ? through : longest;
    }
    assert_int_equal(longest, path.path_ns);
}

static void played_steps_keep_the_rules(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_arena_mark mark = ru_arena_mark_get(&a);
    for (uint32_t round = 0; round < 3000; round++) {
        random_step s;
        bool zeroes = round % 3 == 1;
        random_step_make(&s, &r, zeroes, round % 3 == 2);
        ru_step_times t;
        ru_err err;
        assert_ok(ru_cost_step(&s.in, &a, &a, &t, &err), err);
        judge(&s.in, &t, zeroes);
        judge_bounds(&s.in, &t, &a);
        ru_arena_rewind(&a, mark);
    }
    ru_arena_fini(&a);
}

/*  link     |r1 |r0         |r2 |
 *  compute      |c1 |       |c0     |c2|        c2 waits for c0, c1 and r2 */
static void a_step_by_hand(void **state)
{
    (void)state;
    const ru_step_task tasks[] = {{.ns = 3, .rank = 1, .server = 1},
                                  {.ns = 1, .rank = 0, .server = 1},
                                  {.ns = 1, .rank = 2, .server = 1},
                                  {.ns = 2, .server = 0},
                                  {.ns = 1, .server = 0},
                                  {.ns = 1, .server = 0}};
    const ru_step_edge edges[] = {{0, 3}, {1, 4}, {2, 5}, {3, 5}, {4, 5}};
    const ru_step_in in = {tasks, 6, edges, 5, 2, NULL, NULL};
    ru_arena a;
    ru_err err;
    ru_step_times t;
    ru_arena_init(&a, 0);
    assert_ok(ru_cost_step(&in, &a, &a, &t, &err), err);
    const int64_t starts[] = {1, 0, 4, 4, 1, 6};
    assert_memory_equal(t.start_ns, starts, sizeof starts);
    assert_int_equal(t.makespan_ns, 7);
    ru_arena_fini(&a);
}

static void bad_steps_are_refused(void **state)
{
    (void)state;
    ru_step_task tasks[] = {{.ns = 1}, {.ns = 1}, {.ns = 1}};
    ru_step_edge edges[] = {{0, 1}, {1, 2}};
    ru_step_in in = {tasks, 3, edges, 2, 1, NULL, NULL};
    ru_arena a;
    ru_err err;
    ru_step_times t;
    ru_step_path path;
    ru_arena_init(&a, 0);
    assert_ok(ru_cost_step(&in, &a, &a, &t, &err), err);
    edges[1] = (ru_step_edge){1, 0};
    assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_INFEASIBLE);
    assert_int_equal(ru_cost_step_path(&in, &a, &a, &path, &err), RU_E_INFEASIBLE);
    edges[1] = (ru_step_edge){1, 3};
    assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_ARG);
    edges[1] = (ru_step_edge){1, 2};
    tasks[0].rank = 1; /* in order it would start after task 1, which waits for it */
    const bool in_order = true;
    in.in_order = &in_order;
    assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_INFEASIBLE);
    in.in_order = NULL;
    const int64_t bad[] = {-1, INT64_MAX, INT64_MAX / 2};
    for (uint32_t k = 0; k < 3; k++) {
        tasks[0] = (ru_step_task){.ns = bad[k]};
        assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_ARG);
        tasks[0] = (ru_step_task){.latency_ns = bad[k]};
        assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_ARG);
        tasks[0] = (ru_step_task){.ready_ns = bad[k]};
        assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_ARG);
    }
    tasks[0] = (ru_step_task){.server = 1};
    assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_ARG);
    tasks[0] = (ru_step_task){0};
    const uint32_t no_lane = 0;
    in.lanes = &no_lane;
    assert_int_equal(ru_cost_step(&in, &a, &a, &t, &err), RU_E_ARG);
    in.lanes = NULL;
    uint8_t small[300];
    ru_arena fixed;
    ru_arena_init_fixed(&fixed, small, sizeof small);
    assert_int_equal(ru_cost_step(&in, &fixed, &fixed, &t, &err), RU_E_LIMIT);
    ru_arena_fini(&a);
}

RU_TESTS(cost_step, cmocka_unit_test(a_step_by_hand), cmocka_unit_test(played_steps_keep_the_rules),
         cmocka_unit_test(bad_steps_are_refused))
