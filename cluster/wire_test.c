/* Messages between agents and scheduler: what is put is got; every shorter or changed one is
 * refused or is another message, never more than it holds. */
#include "cluster/wire.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static void messages_come_back(void **state)
{
    (void)state;
    static uint8_t bytes[RU_CLUSTER_MESSAGE_BYTES];
    ru_cluster_state *s = calloc(1, sizeof *s), *t = calloc(1, sizeof *t);
    ru_cluster_orders *o = calloc(1, sizeof *o), *p = calloc(1, sizeof *p);
    ru_arena arena;
    assert_true(s != NULL && t != NULL && o != NULL && p != NULL);
    ru_arena_init(&arena, 0);
    *s = (ru_cluster_state){.name = "n1", .slots = 4, .leaving = true, .heard = UINT64_MAX, .n = 2};
    s->procs[0] = (ru_cluster_proc){.job = 3,
                                    .generation = 2,
                                    .rank = 9,
                                    .alive = true,
                                    .goes = true,
                                    .code = -1,
                                    .ended = "",
                                    .address = "h:1",
                                    .why = ""};
    s->procs[1] = (ru_cluster_proc){
        .job = 4, .left = true, .code = 69, .ended = "stopped", .address = "", .why = "no peer"};
    int64_t n = ru_cluster_state_put(s, bytes);
    assert_true(n > 0 && ru_cluster_state_get(bytes, n, &arena, t));
    assert_string_equal(t->name, "n1");
    assert_true(t->leaving && t->heard == UINT64_MAX);
    assert_true(t->n == 2 && t->procs[0].alive && !t->procs[0].left);
    assert_int_equal(t->procs[0].code, -1);
    assert_string_equal(t->procs[0].address, "h:1");
    assert_true(t->procs[0].goes && t->procs[1].left && !t->procs[1].alive);
    assert_string_equal(t->procs[1].why, "no peer");
    for (int64_t k = 0; k < n; k++) {
        assert_false(ru_cluster_state_get(bytes, k, &arena, t));
    }
    bytes[n] = 0;
    assert_false(ru_cluster_state_get(bytes, n + 1, &arena, t));
    o->number = 5;
    o->epoch = UINT64_MAX - 1;
    o->n = 1;
    o->at[0] = (ru_cluster_order){.job = 1,
                                  .generation = 2,
                                  .want = 3,
                                  .rank_first = 4080,
                                  .most = 8,
                                  .found = true,
                                  .end = true,
                                  .rented = true,
                                  .join = "",
                                  .out = "/o",
                                  .token = "t",
                                  .owner = "alice"};
    n = ru_cluster_orders_put(o, bytes);
    assert_true(n > 0 && ru_cluster_orders_get(bytes, n, &arena, p));
    assert_true(p->number == 5 && p->epoch == UINT64_MAX - 1 && p->at[0].found && p->at[0].end &&
                p->at[0].rented && !p->at[0].resume);
    assert_int_equal(p->at[0].want, 3);
    assert_string_equal(p->at[0].out, "/o");
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    for (uint32_t k = 0; k < 20000; k++) { /* changed bytes never make it read or hold too much */
        int64_t at = (int64_t)ru_rng_below(&rng, (uint32_t)n);
        uint8_t was = bytes[at];
        bytes[at] = (uint8_t)ru_rng_below(&rng, 256);
        if (ru_cluster_orders_get(bytes, n, &arena, p)) {
            assert_true(p->n <= RU_CLUSTER_PROCS_MAX);
        }
        (void)ru_cluster_state_get(bytes, n, &arena, t);
        bytes[at] = was;
    }
    ru_arena_fini(&arena);
    free(s);
    free(t);
    free(o);
    free(p);
}

static void services_come_back(void **state)
{
    (void)state;
    static uint8_t bytes[RU_CLUSTER_MESSAGE_BYTES];
    ru_cluster_state *s = calloc(1, sizeof *s), *t = calloc(1, sizeof *t);
    ru_arena arena;
    assert_true(s != NULL && t != NULL);
    ru_arena_init(&arena, 0);
    s->name = "n1";
    s->n_services = 2;
    s->services[0] = (ru_cluster_service){.name = "web", .up = true, .line = "window 3"};
    s->services[1] = (ru_cluster_service){.name = "db", .line = ""};
    int64_t n = ru_cluster_state_put(s, bytes);
    assert_true(n > 0 && ru_cluster_state_get(bytes, n, &arena, t));
    assert_true(t->n_services == 2 && t->services[0].up && !t->services[1].up);
    assert_string_equal(t->services[0].line, "window 3");
    assert_string_equal(t->services[1].name, "db");
    for (int64_t k = 0; k < n; k++) {
        assert_false(ru_cluster_state_get(bytes, k, &arena, t));
    }
    s->n_services = 0;
    int64_t head = ru_cluster_state_put(s, bytes); /* it ends with two numbers */
    bytes[head - 8] = RU_CLUSTER_SERVICES_MAX + 1;
    assert_false(ru_cluster_state_get(bytes, sizeof bytes, &arena, t));
    ru_arena_fini(&arena);
    free(s);
    free(t);
}

/* A process more than a state holds, and a flag of a later version. */
static void too_many_and_unknown_are_refused(void **state)
{
    (void)state;
    enum { MORE = RU_CLUSTER_PROCS_MAX + 1 };
    static uint8_t bytes[RU_CLUSTER_MESSAGE_BYTES];
    ru_cluster_state *s = calloc(1, sizeof *s), *t = calloc(1, sizeof *t);
    ru_arena arena;
    assert_true(s != NULL && t != NULL);
    ru_arena_init(&arena, 0);
    s->name = "n1";
    int64_t head = ru_cluster_state_put(s, bytes); /* it ends with the number of processes */
    s->n = RU_CLUSTER_PROCS_MAX;
    int64_t n = ru_cluster_state_put(s, bytes), one = (n - head) / RU_CLUSTER_PROCS_MAX;
    assert_true(ru_cluster_state_get(bytes, n, &arena, t));
    uint8_t *flags = &bytes[head + 12]; /* after three numbers of the first process */
    *flags = 8;
    assert_false(ru_cluster_state_get(bytes, n, &arena, t));
    *flags = 0;
    memcpy(&bytes[n], &bytes[head], (size_t)one);
    bytes[head - 4] = MORE & 0xff;
    bytes[head - 3] = MORE >> 8;
    assert_false(ru_cluster_state_get(bytes, n + one, &arena, t));
    ru_arena_fini(&arena);
    free(s);
    free(t);
}

/* Those of another build, too, say of which version they are. */
static void versions_are_told(void **state)
{
    (void)state;
    static uint8_t bytes[RU_CLUSTER_MESSAGE_BYTES];
    ru_cluster_orders *o = calloc(1, sizeof *o);
    ru_arena arena;
    assert_non_null(o);
    ru_arena_init(&arena, 0);
    int64_t n = ru_cluster_orders_put(o, bytes);
    assert_int_equal(ru_cluster_version(bytes, n), RU_CLUSTER_VERSION);
    bytes[0]--;
    assert_int_equal(ru_cluster_version(bytes, n), RU_CLUSTER_VERSION - 1);
    assert_false(ru_cluster_orders_get(bytes, n, &arena, o));
    assert_int_equal(ru_cluster_version(bytes, 3), 0);
    ru_arena_fini(&arena);
    free(o);
}

RU_TESTS(cluster_wire, cmocka_unit_test(versions_are_told), cmocka_unit_test(messages_come_back),
         cmocka_unit_test(services_come_back), cmocka_unit_test(too_many_and_unknown_are_refused))
