/* The machines of a run by its members: each once, by the name that people know it by. */
#include <stdio.h>
#include <string.h>

#include "comm/member/member.h"
#include "test/test.h"
#include "train/driver/trainer_impl.h"

static ru_member_info member(uint32_t number, const char *host)
{
    ru_member_info m = {.number = number, .capacity = 2, .tier = RU_TIER_RELIABLE};
    (void)snprintf(m.host, sizeof m.host, "%s", host);
    return m;
}

static void machines_have_their_names(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    /* Names of one length, one that begins with another, two workers of one machine, and two
     * machines of one name. */
    const ru_member_info crew[] = {member(1, "node1/aa"), member(2, "node2/bb"),
                                   member(3, "node10/cc"), member(4, "node2/bb"),
                                   member(5, "node1/dd")};
    static const char *const names[] = {"node1", "node2", "node10", "node1/dd"};
    static const char *const host_of[] = {"node1", "node2", "node10", "node2", "node1/dd"};
    for (uint32_t self = 0; self < RU_ARRAY_LEN(crew); self++) {
        const rui_trainer t = {
            .crew = crew, .n_crew = RU_ARRAY_LEN(crew), .crew_self = self, .cores = 7};
        static const uint32_t mates_of[] = {1, 2, 1, 2, 1};
        ru_world w = {0};
        ru_err err;
        uint32_t mates;
        assert_int_equal(rui_trainer_hosts(&t, &mates), RU_ARRAY_LEN(names));
        assert_int_equal(mates, mates_of[self]);
        assert_ok(rui_trainer_cluster(&t, &a, &w, &err), err);
        assert_int_equal(w.cluster.hosts.n, RU_ARRAY_LEN(names));
        for (uint32_t k = 0; k < w.cluster.hosts.n; k++) {
            const ru_cluster_host *h = &w.cluster.hosts.at[k];
            assert_string_equal(h->name, names[k]);
            /* a process knows the cores of its own machine alone */
            assert_int_equal(h->cores, strcmp(h->name, host_of[self]) == 0 ? 7 : 0);
        }
        assert_int_equal(w.cluster.devices.n, RU_ARRAY_LEN(crew));
        for (uint32_t k = 0; k < w.cluster.devices.n; k++) {
            assert_string_equal(w.cluster.devices.at[k].host, host_of[k]);
            assert_int_equal(w.cluster.devices.at[k].cores, 2);
        }
    }
    const rui_trainer alone = {0};
    uint32_t mates;
    assert_int_equal(rui_trainer_hosts(&alone, &mates), 1);
    assert_int_equal(mates, 1);
    ru_arena_fini(&a);
}

RU_TESTS(train_trainer_world, cmocka_unit_test(machines_have_their_names))
