/* Another cut for workers of unequal speed: beside all cuts, tried one by one. */
#include "train/pipe/again.h"

#include <string.h>

#include "test/test.h"

enum { LAYERS = 7, STAGES = 3 };

static ru_pipe_layers layers(int64_t *ns, int64_t *bytes, const char **name)
{
    static bool stats[LAYERS];
    static const char *const names[LAYERS] = {"a", "b", "c", "d", "e", "f", "g"};
    memcpy(name, names, sizeof names);
    return (ru_pipe_layers){.name = name,
                            .n = LAYERS,
                            .forward_ns = ns,
                            .backward_ns = ns + LAYERS,
                            .update_ns = ns + 2 * LAYERS,
                            .param_bytes = bytes,
                            .cross_bytes = bytes + LAYERS,
                            .stats = stats,
                            .state = 1,
                            .micro = 4};
}

static void test_all_cuts(void **state)
{
    (void)state;
    int64_t ns[3 * LAYERS], bytes[2 * LAYERS];
    const char *name[LAYERS];
    double slow[STAGES] = {1, 4, 1}, speed[STAGES], was_s, same_s;
    ru_arena arena;
    ru_pipe_layers l = layers(ns, bytes, name);
    ru_arena_init(&arena, 0);
    for (uint32_t turn = 0; turn < 40; turn++) {
        double best = 1e30;
        for (uint32_t k = 0; k < 3 * LAYERS; k++) {
            ns[k] = 1000000 * (1 + (turn * 31 + k * k * 7) % 11);
        }
        for (uint32_t k = 0; k < 2 * LAYERS; k++) {
            bytes[k] = 1000 * (1 + (turn * 13 + k * 5) % 7);
        }
        slow[turn % STAGES] = 1 + turn % 5;
        const char *cut[STAGES - 1] = {"c", "f"};
        ru_pipe_choice again, other;
        ru_err err = {0};
        for (uint32_t k = 0; k < STAGES; k++) {
            speed[k] = 1 / slow[k];
        }
        ru_pipe_runs r = {.cut = cut, .n_cut = STAGES - 1, .speed = speed, .bytes_per_s = 1e6};
        assert_ok(ru_pipe_cut_again(&l, &r, &arena, &was_s, &again, &err), err);
        assert_non_null(strstr(again.asked, "\"speeds\":[")); /* what explain asks again */
        double bound = 1e30;
        for (uint32_t a = 1; a < LAYERS; a++) { /* the slowest stage or link of every cut */
            for (uint32_t b = a + 1; b < LAYERS; b++) {
                const uint32_t ends[STAGES + 1] = {0, a, b, LAYERS};
                double most = 0;
                for (uint32_t k = 0; k < STAGES; k++) {
                    double own = 0;
                    for (uint32_t i = ends[k]; i < ends[k + 1]; i++) {
                        own += slow[k] * (double)(ns[i] + ns[LAYERS + i] + ns[2 * LAYERS + i]);
                    }
                    double sent =
                        k + 1 < STAGES ? 2e3 * (double)bytes[LAYERS + ends[k + 1] - 1] : 0;
                    most = own > most ? own : most;
                    most = sent > most ? sent : most;
                }
                bool is = strcmp(again.cut[0], name[a]) == 0 && strcmp(again.cut[1], name[b]) == 0;
                bound = most < bound ? most : bound;
                best = is ? most : best;
            }
        }
        assert_true(best <= bound * (1 + 1e-9));
        r.cut = again.cut; /* the same answer, as good as itself */
        assert_ok(ru_pipe_cut_again(&l, &r, &arena, &same_s, &other, &err), err);
        assert_true(same_s <= again.pipeline_s && same_s >= again.pipeline_s);
        assert_true(other.pipeline_s <= again.pipeline_s && other.pipeline_s >= again.pipeline_s);
        ru_arena_fini(&arena);
        ru_arena_init(&arena, 0);
    }
    ru_arena_fini(&arena);
}

static void test_slow_worker(void **state)
{
    (void)state;
    int64_t ns[3 * LAYERS], bytes[2 * LAYERS];
    const char *name[LAYERS], *cut[1] = {"d"}, *none[1] = {"z"};
    double speed[2] = {1, 1.0 / 3}, was_s;
    ru_arena arena;
    ru_pipe_layers l = layers(ns, bytes, name);
    ru_pipe_choice again;
    ru_err err = {0};
    ru_pipe_runs r = {.cut = cut, .n_cut = 1, .speed = speed, .bytes_per_s = 1e12};
    ru_arena_init(&arena, 0);
    for (uint32_t k = 0; k < 3 * LAYERS; k++) {
        ns[k] = 1000000;
        bytes[k % (2 * LAYERS)] = 8;
    }
    assert_ok(ru_pipe_cut_again(&l, &r, &arena, &was_s, &again, &err), err);
    assert_string_equal(again.cut[0], "f"); /* 5 layers, and 2 that take three times as long */
    assert_true(again.pipeline_s < 0.65 * was_s);
    bytes[0] = 0; /* the first layer alone does not learn, and would get no gradient */
    speed[0] = 0.01;
    speed[1] = 1;
    assert_int_equal(ru_pipe_cut_again(&l, &r, &arena, &was_s, &again, &err), RU_E_INFEASIBLE);
    r.cut = none;
    assert_int_equal(ru_pipe_cut_again(&l, &r, &arena, &was_s, &again, &err), RU_E_MISSING);
    ru_arena_fini(&arena);
}

/* Four towers of 8 ms, forward and back; a device that gets slow keeps one of them. */
static void test_other_devices(void **state)
{
    (void)state;
    static const char asked[] =
        "{\"method\":\"search\",\"latency\":\"1us\",\"bytes_per_s\":1e9,\"byte_ns\":0,"
        "\"devices\":[{\"name\":\"device 1\",\"memory\":0,\"speed\":1},"
        "{\"name\":\"device 2\",\"memory\":0,\"speed\":1}],\"ops\":["
        "{\"name\":\"a\",\"time\":\"3ms\",\"group\":0},{\"name\":\"b\",\"time\":\"3ms\",\"group\":"
        "1},"
        "{\"name\":\"c\",\"time\":\"3ms\",\"group\":2},{\"name\":\"d\",\"time\":\"3ms\",\"group\":"
        "3},"
        "{\"name\":\"a back\",\"time\":\"5ms\",\"group\":0},"
        "{\"name\":\"b back\",\"time\":\"5ms\",\"group\":1},"
        "{\"name\":\"c back\",\"time\":\"5ms\",\"group\":2},"
        "{\"name\":\"d back\",\"time\":\"5ms\",\"group\":3}],\"edges\":["
        "{\"from\":0,\"to\":4,\"bytes\":0},{\"from\":1,\"to\":5,\"bytes\":0},"
        "{\"from\":2,\"to\":6,\"bytes\":0},{\"from\":3,\"to\":7,\"bytes\":0}]}";
    static const ru_conf_pair halves[] = {{"a", 1}, {"b", 1}, {"c", 2}, {"d", 2}};
    const ru_conf_pairs now = {.at = halves, .n = 4}, part = {.at = halves, .n = 3};
    const double slow[] = {1, 1.0 / 3};
    double was_s = 0;
    ru_units_choice c, same;
    ru_err err = {0};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    assert_ok(ru_units_again(asked, &now, slow, 2, &arena, &was_s, &c, &err), err);
    assert_true(was_s > 0.0479 && was_s < 0.0481);
    assert_true(c.step_s > 0.0239 && c.step_s < 0.0241);
    assert_int_equal(c.used, 2);
    uint32_t ones = 0;
    for (uint32_t k = 0; k < c.devices.n; k++) {
        ones += c.devices.at[k].value == 1;
    }
    assert_int_equal(ones, 3);
    assert_int_equal(c.back.n, 4);
    assert_ok(ru_units_again(c.asked, &c.devices, NULL, 2, &arena, &was_s, &same, &err), err);
    assert_true(was_s == c.step_s && same.step_s == c.step_s); /* its text keeps the speeds */
    assert_ok(ru_units_again(asked, NULL, NULL, 4, &arena, NULL, &c, &err), err);
    assert_true(c.used == 4 && c.step_s > 0.0079 && c.step_s < 0.0081);
    assert_int_equal(ru_units_again(asked, &part, NULL, 2, &arena, &was_s, &c, &err), RU_E_MISSING);
    ru_arena_fini(&arena);
}

RU_TESTS(train_again, cmocka_unit_test(test_all_cuts), cmocka_unit_test(test_other_devices),
         cmocka_unit_test(test_slow_worker))
