/* What squeue prints: of each seat the job that stays, and those that must go. */
#include "cluster/slurm.h"

#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "test/test.h"

static void read_all(rui_slurm_list *l, const char *text)
{
    memset(l, 0, sizeof *l);
    rui_slurm_read(l, "rubato-a-", text, (int64_t)strlen(text));
}

static void lists_are_read(void **state)
{
    (void)state;
    rui_slurm_list l;
    read_all(&l, "12|PENDING|rubato-a-1|None\n13|RUNNING|rubato-a-1|None\n"
                 "14|RUNNING|rubato-a-2|None\n15|PENDING|rubato-a-2|Resources\n"
                 "16|RUNNING|rubato-b-3|None\n17|RUNNING|rubato-a-x|None\n"
                 "18|FAILED|rubato-a-4|None\n19_2|RUNNING|rubato-a-5|None\n20|RUNNING\n"
                 "21|PENDING|rubato-a-6|None\n22|COMPLETING|rubato-a-7|None\n"
                 "23|RUNNING|rubato-a-201|None\n24|RUNNING|rubato-a-0|None\n"
                 "25|PENDING|rubato-a-8|launch failed requeued held\n");
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
    read_all(&l, "");
    assert_true(l.n_extra == 0 && l.of[0] == 0);
}

/* 20,000 jobs of others, some with names longer than a line may be, and 200 of ours between them;
 * the pieces that come end anywhere. */
static void long_lists_come_in_pieces(void **state)
{
    (void)state;
    enum { LINES = 20000, LINE = 700 };
    static const uint32_t most[] = {1, 7, 513, 65536};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    char filler[LINE / 2 + 1];
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    memset(filler, 'x', sizeof filler - 1);
    filler[sizeof filler - 1] = 0;
    for (uint32_t k = 0; k < LINES; k++) {
        if (k % 100 == 50) {
            ru_text_putf(&t, "%u|RUNNING|rubato-a-%u|None\n", k + 1, k / 100 + 1);
        } else if (k % 1000 == 7) { /* of its rest a line of ours could be made */
            ru_text_putf(&t, "%u|RUNNING|%s%.*s9|RUNNING|rubato-a-1|None\n", k + 1, filler,
                         140 + (int)(k / 1000), filler);
        } else {
            ru_text_putf(&t, "%u_%u|PENDING|%.*s|Resources\n", k + 1, k, (int)(k % 60), filler);
        }
    }
    assert_false(t.cut);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(most); i++) {
        rui_slurm_list l = {0};
        for (int64_t at = 0, size; at < t.n; at += size) {
            size = 1 + ru_rng_below(&rng, most[i]);
            size = size < t.n - at ? size : t.n - at;
            rui_slurm_read(&l, "rubato-a-", t.p + at, size);
        }
        for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX; k++) {
            assert_int_equal(l.of[k], 100 * k + 51);
        }
        assert_int_equal(l.n_extra, 0);
    }
    ru_arena_fini(&arena);
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

RU_TESTS(cluster_slurm, cmocka_unit_test(lists_are_read),
         cmocka_unit_test(long_lists_come_in_pieces), cmocka_unit_test(seats_have_names))
