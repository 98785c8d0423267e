/* Quotas of processor time by hand: when work ends that needs several periods, what two devices of
 * a process get, how fast messages leave that take processor time. */
#include "test/sim_box.h"
#include "test/test.h"

static const ru_sim_quota four_of_ten = {.quota_ns = 4 * MS, .period_ns = 10 * MS};

static void note_time(void *self, uint64_t arg)
{
    ru_time *at = self;
    at[arg] = ru_sim_now((ru_sim *)(uintptr_t)at[0].ns);
}

static void about(ru_time is, double ms)
{
    if ((double)is.ns < (ms - 0.01) * 1e6 || (double)is.ns > (ms + 0.01) * 1e6) {
        fail_msg("%lld ns, expected %g ms", (long long)is.ns, ms);
    }
}

/* 4 ms a period of 10 ms: the k-th millisecond of work ends at 10 (k / 4) + k % 4. */
static void work_pauses_when_the_quota_is_used_up(void **state)
{
    (void)state;
    static const struct {
        int64_t quota_ms, begin_ms, work_ms;
        double end_ms;
    } cases[] = {
        {4, 0, 3, 3},   {4, 0, 6, 12},  {4, 0, 12, 24}, {4, 5, 3, 8},
        {4, 8, 6, 14},  {4, 8, 7, 21},  {2, 0, 7, 31},  {10, 3, 25, 28},
        {4, 23, 4, 27}, {4, 28, 5, 33}, {1, 0, 3, 21},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        ru_sim *s = sim_new(1);
        box a;
        box_add(s, &a, "a:1", &gigabit);
        ru_sim_dev *d = ru_sim_dev_add(s, a.node, 1);
        ru_sim_quota q = four_of_ten;
        q.quota_ns = cases[i].quota_ms * MS;
        q.phase_ns = 10 * MS - 2; /* periods begin at 0, 10 ms, ... */
        ru_sim_quota_set(s, a.node, &q);
        run_until(s, cases[i].begin_ms * MS);
        ru_time at[2] = {{(int64_t)(uintptr_t)s}, {0}};
        ru_sim_dev_work(d, cases[i].work_ms * MS, note_time, at, 1);
        run_until(s, 100 * MS);
        about(at[1], cases[i].end_ms);
        ru_sim_close(s);
    }
}

/* The quota is used up at the instant at which one work ends and the next begins. */
static void work_that_begins_without_quota_waits(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a;
    box_add(s, &a, "a:1", &gigabit);
    ru_sim_dev *d = ru_sim_dev_add(s, a.node, 1);
    ru_sim_quota q = four_of_ten;
    q.phase_ns = 10 * MS - 2;
    ru_sim_quota_set(s, a.node, &q);
    ru_time at[5] = {{(int64_t)(uintptr_t)s}, {0}, {0}, {0}, {0}};
    for (uint32_t k = 1; k < RU_ARRAY_LEN(at); k++) {
        ru_sim_dev_work(d, 2 * MS, note_time, at, k);
    }
    run_until(s, 100 * MS);
    about(at[2], 4);
    about(at[3], 12);
    about(at[4], 14);
    ru_sim_close(s);
}

static void devices_of_a_process_share_its_quota(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a;
    box_add(s, &a, "a:1", &gigabit);
    ru_sim_dev *d[2] = {ru_sim_dev_add(s, a.node, 1), ru_sim_dev_add(s, a.node, 2)};
    ru_sim_quota q = four_of_ten;
    q.phase_ns = 10 * MS - 2;
    ru_sim_quota_set(s, a.node, &q);
    ru_time at[3] = {{(int64_t)(uintptr_t)s}, {0}, {0}};
    ru_sim_dev_work(d[0], 4 * MS, note_time, at, 1);  /* 2 ms, a pause, 2 ms */
    ru_sim_dev_work(d[1], 12 * MS, note_time, at, 2); /* at speed 2: 2 + 2 ms, then 2 ms alone */
    run_until(s, 100 * MS);
    about(at[1], 12);
    about(at[2], 22);
    ru_sim_close(s);
}

/* 1000 frames of 10 kB to a node with 1 ms of each 10 ms, of which a byte takes byte_ns. */
static ru_sim *send_to_quota(box *a, box *b, double byte_ns)
{
    ru_sim *s = sim_new(1);
    box_add(s, a, "a:1", &gigabit);
    box_add(s, b, "b:1", &gigabit);
    const ru_sim_quota q = {.quota_ns = MS, .period_ns = 10 * MS, .byte_ns = byte_ns};
    ru_sim_quota_set(s, b->node, &q);
    box_connect(a, "b:1", 1000, 10000 - RU_LINK_HEAD_BYTES);
    return s;
}

/* A frame takes 0.1 ms of processor time: ten frames use up 1 ms of each 10 ms. */
static void messages_use_the_quota(void **state)
{
    (void)state;
    box a, b;
    ru_sim *s = send_to_quota(&a, &b, 10);
    run_until(s, 500 * MS);
    assert_in_range(b.c[0].next, 480, 520);
    run_until(s, 2000 * MS);
    assert_int_equal(b.c[0].next, 1000);
    assert_false(b.out_of_order);
    ru_sim_close(s);
}

/* A frame takes 0.3 ms of 1 ms: the fourth of a period makes a debt for the next one. */
static void a_debt_is_carried_over(void **state)
{
    (void)state;
    box a, b;
    ru_sim *s = send_to_quota(&a, &b, 30);
    run_until(s, 1000 * MS);
    assert_in_range(b.c[0].next, 325, 345); /* 400 without the debt */
    ru_sim_close(s);
}

RU_TESTS(sim_vquota, cmocka_unit_test(work_pauses_when_the_quota_is_used_up),
         cmocka_unit_test(work_that_begins_without_quota_waits),
         cmocka_unit_test(devices_of_a_process_share_its_quota),
         cmocka_unit_test(messages_use_the_quota), cmocka_unit_test(a_debt_is_carried_over))
