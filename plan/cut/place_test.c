#include "plan/cut/place.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { OPS = 240, EDGES = 900, DEVICES = 4, TINY_OPS = 5, TINY_ITEMS = TINY_OPS + 8 };

typedef struct drawn {
    ru_place_op ops[OPS];
    ru_place_edge edges[EDGES];
    ru_place_device devices[DEVICES];
    ru_place_link links[2];
    ru_place_in in;
} drawn;

/* Ops in an order in which edges go forward, then shuffled by number. */
static void draw(drawn *g, ru_rng *r, uint32_t n, uint32_t m, uint32_t n_devices, bool plain)
{
    uint32_t number[OPS];
    memset(g, 0, sizeof *g);
    ru_rng_shuffle(r, number, n);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool zero = ru_rng_below(r, 8) == 0, grouped = !plain && ru_rng_below(r, 4) == 0;
        g->ops[i] = (ru_place_op){.time_ns = zero ? 0 : 1 + ru_rng_below(r, 1000),
                                  .bytes = ru_rng_below(r, 100),
                                  .group = grouped ? (int32_t)ru_rng_below(r, n) : RU_PLACE_ANY,
                                  .pin = RU_PLACE_ANY,
                                  .given = (int32_t)ru_rng_below(r, n_devices)};
        bytes += g->ops[i].bytes;
    }
    uint32_t first = number[0];
    g->ops[first].pin = plain || g->ops[first].group >= 0 ? RU_PLACE_ANY : 0;
    for (uint32_t e = 0; e < m && n > 1; e++) {
        uint32_t b = 1 + ru_rng_below(r, n - 1), a = ru_rng_below(r, b);
        g->edges[e] = (ru_place_edge){.from = number[a],
                                      .to = number[b],
                                      .time_ns = ru_rng_below(r, 3) == 0 ? 0 : ru_rng_below(r, 500),
                                      .bytes = plain ? 0 : ru_rng_below(r, 300)};
        uint32_t like = plain ? e : ru_rng_below(r, e + 1);
        if (like < e && g->edges[like].from == number[a]) { /* one more reader of its value */
            uint32_t value = g->edges[like].value;
            g->edges[like].value = value > 0 ? value : like + 1;
            g->edges[e] = g->edges[like];
            g->edges[e].to = number[b];
        }
    }
    for (uint32_t d = 0; d < n_devices; d++) {
        g->devices[d].speed = plain ? 1 : 0.5 + ru_rng_f64(r);
        g->devices[d].memory_bytes =
            ru_rng_below(r, 3) == 0 ? 0 : bytes * 9 / (8 * n_devices) + 150;
    }
    g->links[0] = (ru_place_link){0, 1, 10, 1e9};
    g->links[1] = (ru_place_link){1, 0, 20, 2e9};
    g->in = (ru_place_in){.ops = g->ops,
                          .n = n,
                          .edges = g->edges,
                          .n_edges = n > 1 ? m : 0,
                          .devices = g->devices,
                          .n_devices = n_devices,
                          .latency_ns = 5,
                          .bytes_per_s = 3e9,
                          .byte_ns = plain ? 0 : ru_rng_below(r, 3),
                          .links = g->links,
                          .n_links = plain || n_devices < 2 ? 0 : 2,
                          .work_max = 1000000,
                          .seed = ru_rng_u32(r)};
}

/* -- every schedule of a tiny graph ------------------------------------------------------------ */

/* Items are ops, then edges between devices. They are laid down in the order of their starts, each
 * as early as its device or link allows: some order gives the shortest step. */
typedef struct trial {
    const ru_place_in *in;
    uint32_t dev[TINY_OPS];
    int64_t end[TINY_ITEMS]; /* -1: not laid down */
    int64_t dev_free[DEVICES], link_free[DEVICES][DEVICES];
    int64_t best;
} trial;

static bool apart(const trial *t, uint32_t e)
{
    return t->dev[t->in->edges[e].from] != t->dev[t->in->edges[e].to];
}

/* Earliest start of an item; -1: what it needs is missing. */
static int64_t earliest(const trial *t, uint32_t item)
{
    uint32_t n = t->in->n;
    if (item >= n) {
        const ru_place_edge *x = &t->in->edges[item - n];
        int64_t freed = x->time_ns > 0 ? t->link_free[t->dev[x->from]][t->dev[x->to]] : 0;
        int64_t ready = t->end[x->from];
        return ready < 0 ? -1 : ready > freed ? ready : freed;
    }
    int64_t at = t->dev_free[t->dev[item]];
    for (uint32_t e = 0; e < t->in->n_edges; e++) {
        if (t->in->edges[e].to == item) {
            int64_t there = t->end[apart(t, e) ? n + e : t->in->edges[e].from];
            if (there < 0) {
                return -1;
            }
            at = there > at ? there : at;
        }
    }
    return at;
}

static void lay(trial *t, int64_t last, int64_t longest, uint32_t left)
{
    if (longest >= t->best) {
        return;
    }
    if (left == 0) {
        t->best = longest;
        return;
    }
    uint32_t n = t->in->n;
    for (uint32_t item = 0; item < n + t->in->n_edges; item++) {
        if (t->end[item] >= 0 || (item >= n && !apart(t, item - n))) {
            continue;
        }
        int64_t at = earliest(t, item);
        if (at < last) {
            continue;
        }
        const ru_place_edge *x = item >= n ? &t->in->edges[item - n] : NULL;
        int64_t took = x != NULL ? x->time_ns : t->in->ops[item].time_ns;
        int64_t *freed = x == NULL        ? &t->dev_free[t->dev[item]]
                         : x->time_ns > 0 ? &t->link_free[t->dev[x->from]][t->dev[x->to]]
                                          : NULL;
        int64_t before = freed != NULL ? *freed : 0;
        t->end[item] = at + took;
        if (freed != NULL) {
            *freed = at + took;
        }
        lay(t, at, x == NULL && at + took > longest ? at + took : longest, left - 1);
        t->end[item] = -1;
        if (freed != NULL) {
            *freed = before;
        }
    }
}

/* The shortest step of all placements; INT64_MAX: none fits. */
static int64_t exhaust(const ru_place_in *in)
{
    trial t = {.in = in, .best = INT64_MAX};
    uint32_t codes = 1;
    for (uint32_t i = 0; i < in->n; i++) {
        codes *= in->n_devices;
    }
    for (uint32_t code = 0; code < codes; code++) {
        int64_t used[DEVICES] = {0};
        uint32_t rest = code, left = in->n;
        bool ok = true;
        for (uint32_t i = 0; i < in->n; i++, rest /= in->n_devices) {
            t.dev[i] = rest % in->n_devices;
            used[t.dev[i]] += in->ops[i].bytes;
        }
        for (uint32_t d = 0; d < in->n_devices; d++) {
            int64_t most = in->devices[d].memory_bytes;
            ok = ok && (most == 0 || used[d] <= most);
        }
        for (uint32_t e = 0; e < in->n_edges; e++) {
            left += apart(&t, e) ? 1 : 0;
        }
        if (ok) {
            memset(t.end, 0xff, sizeof t.end);
            memset(t.dev_free, 0, sizeof t.dev_free);
            memset(t.link_free, 0, sizeof t.link_free);
            lay(&t, 0, -1, left);
        }
    }
    return t.best;
}

static void search_meets_every_schedule(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 71);
    uint32_t equal = 0, all = 0;
    for (uint32_t round = 0; round < 150; round++) {
        drawn g;
        ru_arena a;
        ru_err err;
        ru_place_plan p;
        ru_arena_init(&a, 0);
        draw(&g, &r, 1 + ru_rng_below(&r, TINY_OPS), ru_rng_below(&r, TINY_ITEMS - TINY_OPS),
             2 + ru_rng_below(&r, 2), true);
        int64_t best = exhaust(&g.in);
        ru_status st = ru_plan_place(&g.in, NULL, &a, &a, &p, &err);
        if (best == INT64_MAX) {
            assert_int_equal(st, RU_E_INFEASIBLE);
        } else if (st != RU_E_INFEASIBLE) { /* packing may miss the only way to fit */
            assert_ok(st, err);
            assert_ok(ru_plan_place_check(&g.in, &p, &a, &err), err);
            assert_true(p.bound_ns <= best);
            assert_true(p.step_ns >= best);
            equal += p.step_ns == best ? 1 : 0;
            all++;
        }
        ru_arena_fini(&a);
    }
    assert_true(all > 100);
    assert_true(equal * 100 >= all * 95);
}

/* -- larger graphs ----------------------------------------------------------------------------- */

static void no_method_beats_the_search(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 72);
    uint32_t plans = 0;
    for (uint32_t round = 0; round < 40; round++) {
        drawn g;
        ru_arena a;
        ru_err err;
        ru_place_plan p, other;
        ru_arena_init(&a, 0);
        uint32_t n = 1 + ru_rng_below(&r, round % 4 == 0 ? OPS : 30);
        draw(&g, &r, n, ru_rng_below(&r, 3 * n), 1 + ru_rng_below(&r, DEVICES), round % 2 == 0);
        g.in.coarse_ops = round % 3 == 0 ? 12 : 0;
        ru_status st = ru_plan_place(&g.in, NULL, &a, &a, &p, &err);
        if (st != RU_E_INFEASIBLE) {
            assert_ok(st, err);
            assert_ok(ru_plan_place_check(&g.in, &p, &a, &err), err);
        }
        for (uint32_t m = RU_PLACE_SINGLE; m < RU_PLACE_METHODS; m++) {
            g.in.method = (ru_place_method)m;
            ru_status with = ru_plan_place(&g.in, NULL, &a, &a, &other, &err);
            if (m == RU_PLACE_SCT) {
                assert_int_equal(with, RU_E_UNSUPPORTED);
            } else if (with != RU_E_INFEASIBLE) {
                assert_ok(with, err);
                assert_ok(ru_plan_place_check(&g.in, &other, &a, &err), err);
                assert_int_equal(st, RU_OK);
                assert_true(p.step_ns <= other.step_ns);
                assert_true(p.bound_ns == other.bound_ns);
                plans++;
            }
        }
        ru_arena_fini(&a);
    }
    assert_true(plans > 100);
}

static void plans_are_the_same_elsewhere(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 73);
    drawn g;
    ru_err err;
    ru_place_plan p[2];
    ru_arena a[2];
    draw(&g, &r, OPS, 2 * OPS, 3, false);
    memset(&g.devices, 0, sizeof g.devices);
    g.devices[0].speed = g.devices[1].speed = g.devices[2].speed = 1;
    g.in.coarse_ops = 50;
    for (uint32_t k = 0; k < 2; k++) {
        ru_arena_init(&a[k], 0);
        memset(ru_arena_alloc(&a[k], 1000 + 5000 * k, 8), 0xa5, 1000 + 5000 * k);
        assert_ok(ru_plan_place(&g.in, NULL, &a[k], &a[k], &p[k], &err), err);
    }
    assert_int_equal(p[0].step_ns, p[1].step_ns);
    assert_int_equal(p[0].work, p[1].work);
    assert_memory_equal(p[0].device, p[1].device, OPS * sizeof *p[0].device);
    assert_memory_equal(p[0].start_ns, p[1].start_ns, OPS * sizeof *p[0].start_ns);
    assert_memory_equal(p[0].send_ns, p[1].send_ns, g.in.n_edges * sizeof *p[0].send_ns);
    ru_arena_fini(&a[0]);
    ru_arena_fini(&a[1]);
}

/* Op 0 sends a value to both readers on another device of half its speed, and op 2 another one
 * back; each end of a transfer is kept from ops for 2 ns a byte at speed 1. */
static void transfers_by_hand(void **state)
{
    (void)state;
    ru_place_op ops[4];
    const ru_place_edge edges[] = {
        {0, 1, 0, 100, 7}, {0, 2, 0, 100, 7}, {2, 3, 0, 10, 0}, {0, 3, 0, 1000, 7}};
    const ru_place_device devices[] = {{.speed = 1}, {.speed = 0.5}};
    ru_place_in in = {.ops = ops,
                      .n = 4,
                      .edges = edges,
                      .n_edges = 3,
                      .devices = devices,
                      .n_devices = 2,
                      .latency_ns = 5,
                      .bytes_per_s = 1e8,
                      .byte_ns = 2};
    ru_arena a;
    ru_err err;
    ru_place_plan p;
    for (uint32_t i = 0; i < 4; i++) {
        ops[i] = (ru_place_op){1000, 0, RU_PLACE_ANY, i == 1 || i == 2 ? 1 : 0, RU_PLACE_ANY};
    }
    ru_arena_init(&a, 0);
    assert_ok(ru_plan_place(&in, NULL, &a, &a, &p, &err), err);
    assert_ok(ru_plan_place_check(&in, &p, &a, &err), err);
    /* 0: 1000 + 200, once; 1005 on the link. 2: 2000 + 40 first, 1: 2000 + 400. 105 back, 3. */
    assert_int_equal(p.took_ns[0], 1200);
    assert_int_equal(p.took_ns[1], 2400);
    assert_int_equal(p.took_ns[2], 2040);
    assert_int_equal(p.took_ns[3], 1020);
    assert_int_equal(p.send_ns[0], p.send_ns[1]);
    assert_int_equal(p.step_ns, 1200 + 1005 + 2040 + 2400);
    in.n_edges = 4; /* edge 3 has other bytes than edges of its value */
    assert_int_equal(ru_plan_place(&in, NULL, &a, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* -- refusals ---------------------------------------------------------------------------------- */

static void refused(const ru_place_in *in, const ru_place_plan *p)
{
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_int_equal(ru_plan_place_check(in, p, &a, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

/* A graph in which every op has an edge that takes time. */
static void draw_joined(drawn *g, ru_rng *r)
{
    draw(g, r, 30, 80, 2, true);
    for (uint32_t i = 1; i < g->in.n; i++) {
        g->edges[i - 1] = (ru_place_edge){i - 1, i, 50, 0, 0};
    }
    for (uint32_t e = g->in.n - 1; e < g->in.n_edges; e++) {
        uint32_t b = 1 + ru_rng_below(r, g->in.n - 1);
        g->edges[e] = (ru_place_edge){ru_rng_below(r, b), b, 50, 0, 0};
    }
}

static void corrupted_plans_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 74);
    drawn g;
    ru_arena a;
    ru_err err;
    ru_place_plan p;
    ru_arena_init(&a, 0);
    draw_joined(&g, &r);
    assert_ok(ru_plan_place(&g.in, NULL, &a, &a, &p, &err), err);
    uint32_t *device = ru_arena_copy(&a, p.device, g.in.n * 4, 8);
    int64_t *start = ru_arena_copy(&a, p.start_ns, g.in.n * 8, 8);
    int64_t *send = ru_arena_copy(&a, p.send_ns, g.in.n_edges * 8, 8);
    p.device = device;
    p.start_ns = start;
    p.send_ns = send;
    assert_ok(ru_plan_place_check(&g.in, &p, &a, &err), err);
    for (uint32_t i = 0; i < g.in.n; i++) {
        uint32_t dev = device[i];
        for (uint32_t k = 1; k < 3; k++) {
            device[i] = (dev + k) % 3; /* the other device, and one that is not there */
            refused(&g.in, &p);
        }
        device[i] = dev;
        start[i]--; /* every start waits for something */
        refused(&g.in, &p);
        start[i] += p.step_ns + 2;
        refused(&g.in, &p);
        start[i] -= p.step_ns + 1;
    }
    for (uint32_t e = 0; e < g.in.n_edges; e++) {
        int64_t at = send[e];
        int64_t bad[] = {at - 1, at >= 0 ? -1 : 0, INT64_MAX, INT64_MIN};
        for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
            send[e] = bad[k];
            refused(&g.in, &p);
        }
        send[e] = at;
    }
    ru_place_plan bad[] = {p, p, p, p, p, p, p};
    bad[0].step_ns++;
    bad[1].step_ns--;
    bad[2].step_ns = INT64_MAX;
    bad[3].bound_ns = p.step_ns + 1;
    bad[4].n_ops--;
    bad[5].n_edges--;
    bad[6].bound_ns = -1;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        refused(&g.in, &bad[k]);
    }
    assert_ok(ru_plan_place_check(&g.in, &p, &a, &err), err);
    /* The same plan under other rules. */
    g.ops[0].pin = device[0] == 0 ? 1 : 0;
    refused(&g.in, &p);
    g.ops[0].pin = RU_PLACE_ANY;
    uint32_t other = 1;
    while (other < g.in.n && device[other] == device[0]) {
        other++;
    }
    if (other < g.in.n) {
        g.ops[0].group = g.ops[other].group = 3;
        refused(&g.in, &p);
        g.ops[0].group = g.ops[other].group = RU_PLACE_ANY;
    }
    g.devices[device[0]].memory_bytes = 1;
    g.ops[0].bytes = 2;
    refused(&g.in, &p);
    ru_arena_fini(&a);
}

static void says(const ru_place_in *in, ru_status want, const char *word)
{
    ru_arena a;
    ru_err err = {0};
    ru_place_plan p;
    ru_arena_init(&a, 0);
    assert_int_equal(ru_plan_place(in, NULL, &a, &a, &p, &err), want);
    if (strstr(err.text, word) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, word);
    }
    ru_arena_fini(&a);
}

static void bad_facts_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 75);
    drawn g;
    draw(&g, &r, 6, 0, 2, true);
    g.edges[0] = (ru_place_edge){0, 1, 5, 0, 0};
    g.edges[1] = (ru_place_edge){1, 2, 5, 0, 0};
    g.in.n_edges = 2;
    g.devices[0].memory_bytes = g.devices[1].memory_bytes = 0;
    for (uint32_t i = 0; i < g.in.n; i++) {
        g.ops[i].bytes = 1;
    }
    const drawn good = g;
#define BAD(change, status, word) \
    g = good;                     \
    g.in.ops = g.ops;             \
    g.in.edges = g.edges;         \
    g.in.devices = g.devices;     \
    change;                       \
    says(&g.in, status, word)
    BAD(g.in.n = 0, RU_E_ARG, "0 ops");
    BAD(g.in.n_devices = 0, RU_E_ARG, "0 devices");
    BAD(g.devices[1].speed = RU_NAN, RU_E_ARG, "device 1");
    BAD(g.devices[1].speed = 0, RU_E_ARG, "device 1");
    BAD(g.devices[1].memory_bytes = -1, RU_E_ARG, "device 1");
    BAD(g.in.bytes_per_s = RU_NAN, RU_E_ARG, "bytes/s");
    BAD(g.ops[3].time_ns = -1, RU_E_ARG, "op 3");
    BAD(g.ops[3].time_ns = INT64_MAX, RU_E_ARG, "together take");
    BAD(g.ops[3].bytes = INT64_MAX, RU_E_ARG, "bytes");
    BAD(g.ops[3].pin = 2, RU_E_ARG, "op 3");
    BAD(g.edges[1].to = 6, RU_E_ARG, "edge 1");
    BAD(g.edges[1].time_ns = INT64_MAX, RU_E_ARG, "together take");
    BAD(g.edges[1] = ((ru_place_edge){1, 0, 5, 0, 0}), RU_E_ARG, "cycle");
    BAD((g.ops[0].group = g.ops[1].group = 1, g.ops[0].pin = 0, g.ops[1].pin = 1), RU_E_INFEASIBLE,
        "group 1");
    BAD((g.devices[0].memory_bytes = g.devices[1].memory_bytes = 50, g.ops[4].bytes = 51),
        RU_E_INFEASIBLE, "op 4");
    BAD((g.devices[0].memory_bytes = g.devices[1].memory_bytes = 100, g.ops[4].bytes = 90,
         g.ops[3].bytes = 80, g.ops[2].bytes = 70),
        RU_E_INFEASIBLE, "together");
    BAD(g.in.method = RU_PLACE_SCT, RU_E_UNSUPPORTED, "solver");
    BAD((g.in.method = RU_PLACE_GIVEN, g.ops[2].given = RU_PLACE_ANY), RU_E_INFEASIBLE, "given");
#undef BAD
}

RU_TESTS(plan_place, cmocka_unit_test(search_meets_every_schedule),
         cmocka_unit_test(no_method_beats_the_search),
         cmocka_unit_test(plans_are_the_same_elsewhere), cmocka_unit_test(transfers_by_hand),
         cmocka_unit_test(corrupted_plans_are_refused), cmocka_unit_test(bad_facts_are_refused))
