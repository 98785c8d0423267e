#include "exec/waits.h"

#include "test/test.h"

enum { MS = 1000000 };

/* A machine: how long a run takes with long and with brief waits, and how often it is preempted. */
typedef struct machine {
    int64_t now_ns, lost, spun_ns, brief_ns, lost_per_s;
} machine;

/* Runs for `ns`; how much of it with brief waits. */
static double brief_part(rui_waits *w, machine *m, int64_t ns)
{
    int64_t end = m->now_ns + ns, brief = 0, owed = 0;
    while (m->now_ns < end) {
        int64_t took = w->brief ? m->brief_ns : m->spun_ns;
        m->now_ns += took;
        brief += w->brief ? took : 0;
        owed += took * m->lost_per_s;
        m->lost += owed / 1000000000;
        owed %= 1000000000;
        if (rui_waits_ran(w, took)) {
            rui_waits_judge(w, m->now_ns, m->lost);
        }
    }
    return (double)brief / (double)ns;
}

static void alone_it_always_spins(void **state)
{
    (void)state;
    rui_waits w = {0};
    machine m = {.spun_ns = MS / 5, .brief_ns = MS, .lost_per_s = 5};
    assert_true(brief_part(&w, &m, (int64_t)10000 * MS) <= 0);
}

static void beside_others_it_sleeps(void **state)
{
    (void)state;
    rui_waits w = {0};
    machine m = {.spun_ns = 40 * MS, .brief_ns = MS, .lost_per_s = 200};
    (void)brief_part(&w, &m, (int64_t)20000 * MS);
    assert_true(brief_part(&w, &m, (int64_t)60000 * MS) > 0.97);
    m.lost_per_s = 3; /* the others end */
    m.spun_ns = MS / 5;
    (void)brief_part(&w, &m, (int64_t)9000 * MS);
    assert_true(brief_part(&w, &m, (int64_t)20000 * MS) <= 0);
}

/* Others that spin for one period after their own work are no reason. */
static void one_bad_period_is_no_reason(void **state)
{
    (void)state;
    rui_waits w = {0};
    machine m = {.spun_ns = MS, .brief_ns = MS / 2};
    for (uint32_t k = 0; k < 20; k++) {
        m.lost_per_s = 200;
        assert_true(brief_part(&w, &m, (int64_t)50 * MS) <= 0);
        m.lost_per_s = 5;
        assert_true(brief_part(&w, &m, (int64_t)100 * MS) <= 0);
    }
}

/* Preempted, but short waits do not help: trials become rare. */
static void trials_that_fail_become_rare(void **state)
{
    (void)state;
    rui_waits w = {0};
    machine m = {.spun_ns = MS, .brief_ns = 4 * MS, .lost_per_s = 100};
    (void)brief_part(&w, &m, (int64_t)60000 * MS);
    assert_true(brief_part(&w, &m, (int64_t)300000 * MS) < 0.001);
}

RU_TESTS(exec_waits, cmocka_unit_test(alone_it_always_spins),
         cmocka_unit_test(beside_others_it_sleeps), cmocka_unit_test(one_bad_period_is_no_reason),
         cmocka_unit_test(trials_that_fail_become_rare))
