/* What squeue prints: of each seat the job that stays, and those that must go. */
#include "cluster/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/conf.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/str.h"
#include "env/file/file.h"
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

typedef struct controller {
    char dir[32];
    ru_loop *loop;
    ru_slurm *s;
    int64_t ahead_ns, step_ns; /* its clock runs fast */
    bool until_well, adopted;
} controller;

static void look(void *self, uint32_t what, ru_time now)
{
    controller *c = self;
    (void)what;
    c->ahead_ns += c->step_ns;
    c->adopted = ru_slurm_tick(c->s, ru_time_after(now, c->ahead_ns));
    const char *trouble = ru_slurm_trouble(c->s);
    bool late = strcmp(trouble, "no end in 30 s") == 0;
    c->step_ns = late ? 0 : c->step_ns; /* too fast for this machine */
    if (late || (c->until_well ? !c->adopted || trouble[0] != 0 : trouble[0] == 0)) {
        ru_loop_timer(c->loop, look, c, 0, ru_time_after(now, 1000000));
    } else {
        ru_loop_stop(c->loop);
    }
}

static void put_script(const controller *c, const char *name, const char *lines)
{
    char path[64], script[320];
    ru_err err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", c->dir, name);
    int n = snprintf(script, sizeof script, "#!/bin/sh\n%s\n", lines);
    assert_ok(ru_file_own(path, script, n, &err), err); /* who reads the old one goes on */
    assert_int_equal(chmod(path, 0700), 0);
}

/* What squeue says from now on, $p is the prefix of names; the trouble that it makes. */
static const char *squeue_says(controller *c, const char *prefix, const char *script)
{
    char lines[256];
    ru_err err = {0};
    (void)snprintf(lines, sizeof lines, "p=%s\n%s", prefix, script);
    put_script(c, "squeue", lines);
    look(c, 0, ru_clock_now());
    assert_ok(ru_loop_run(c->loop, &err), err);
    return ru_slurm_trouble(c->s);
}

/* A list that may lack jobs ends none of them: nothing is asked for in their place. */
static void cut_lists_are_no_lists(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_arena arena;
    ru_slurm_shell *shell;
    controller c = {.dir = "/tmp/rubato-slurm-XXXXXX", .step_ns = 30000000, .until_well = true};
    const ru_slurm_options o = {
        .name = "slurm", .folder = "/c", .exe = "/r", .partition = "", .seats = 2};
    char prefix[64], path[64], before[4096];
    (void)snprintf(before, sizeof before, "%s", ru_conf_env("PATH"));
    (void)snprintf(prefix, sizeof prefix, "rubato-%08x", (unsigned)ru_hash_bytes("/c", 2, 1));
    ru_arena_init(&arena, 0);
    assert_non_null(mkdtemp(c.dir));
    (void)snprintf(path, sizeof path, "%s:/usr/bin:/bin", c.dir);
    assert_int_equal(setenv("PATH", path, 1), 0);
    put_script(&c, "sbatch", "echo asked >&2; exit 1");
    assert_ok(ru_loop_open(&c.loop, &err), err);
    assert_ok(ru_slurm_shell_open(c.loop, &arena, &shell, &err), err);
    ru_slurm_options nameless = o;
    nameless.exe = NULL;
    assert_int_equal(ru_slurm_open(&nameless, shell, &arena, &c.s, &err), RU_E_MISSING);
    assert_ok(ru_slurm_open(&o, shell, &arena, &c.s, &err), err);
    static const char whole[] = "echo \"7|RUNNING|$p-1|None\"; echo \"8|PENDING|$p-2|None\"";
    assert_string_equal(squeue_says(&c, prefix, whole), "");
    assert_true(ru_slurm_wanted(c.s, 0) && ru_slurm_wanted(c.s, 1));
    static const char *const cut[][2] = {
        {"printf '7|RUNNING|'", "within a line"},
        {"(while echo; do :; done) & exit 0", "another process"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cut); k++) {
        c.until_well = false;
        assert_non_null(strstr(squeue_says(&c, prefix, cut[k][0]), cut[k][1]));
        c.until_well = true;
        assert_string_equal(squeue_says(&c, prefix, whole), "");
    }
    ru_slurm_shell_close(shell);
    ru_loop_close(c.loop);
    assert_int_equal(setenv("PATH", before, 1), 0);
    assert_ok(ru_path_remove(c.dir, &err), err);
    ru_arena_fini(&arena);
}

RU_TESTS(cluster_slurm, cmocka_unit_test(lists_are_read),
         cmocka_unit_test(long_lists_come_in_pieces), cmocka_unit_test(seats_have_names),
         cmocka_unit_test(cut_lists_are_no_lists))
