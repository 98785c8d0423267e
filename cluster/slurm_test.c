/* What squeue prints: of each seat the job that stays, and those that must go. */
#include "cluster/slurm.h"

#include "test/test.h"

static void lists_are_read(void **state)
{
    (void)state;
    rui_slurm_list l;
    rui_slurm_read("12|PENDING|rubato-a-1|None\n13|RUNNING|rubato-a-1|None\n"
                   "14|RUNNING|rubato-a-2|None\n15|PENDING|rubato-a-2|Resources\n"
                   "16|RUNNING|rubato-b-3|None\n17|RUNNING|rubato-a-x|None\n"
                   "18|FAILED|rubato-a-4|None\n19_2|RUNNING|rubato-a-5|None\n20|RUNNING\n"
                   "21|PENDING|rubato-a-6|None\n22|COMPLETING|rubato-a-7|None\n"
                   "23|RUNNING|rubato-a-201|None\n24|RUNNING|rubato-a-0|None\n"
                   "25|PENDING|rubato-a-8|launch failed requeued held\n",
                   "rubato-a-", &l);
    assert_int_equal(l.of[7], 0);
    assert_int_equal(l.of[0], 13); /* the one that runs stays */
    assert_int_equal(l.of[1], 14);
    assert_int_equal(l.of[2] | l.of[3] | l.of[4], 0);
    assert_int_equal(l.of[5], 21);
    assert_int_equal(l.of[6], 22);
    assert_int_equal(l.n_extra, 3);
    assert_int_equal(l.extra[2], 25);
    assert_int_equal(l.extra[0], 12);
    assert_int_equal(l.extra[1], 15);
    rui_slurm_read("", "rubato-a-", &l);
    assert_true(l.n_extra == 0 && l.of[0] == 0);
}

static void seats_have_names(void **state)
{
    (void)state;
    char name[16];
    uint32_t seat;
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX; k++) {
        ru_slurm_seat_name(k, name);
        assert_true(ru_slurm_seat_of(name, &seat) && seat == k);
    }
    static const char *const others[] = {"", "slurm", "slurm0", "slurm201", "slurm1x", "n1"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(others); k++) {
        assert_false(ru_slurm_seat_of(others[k], &seat));
    }
}

RU_TESTS(cluster_slurm, cmocka_unit_test(lists_are_read), cmocka_unit_test(seats_have_names))
