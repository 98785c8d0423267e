/* The engine of apps with shared parameters in the simulator: its last model is that of one loop,
 * bit for bit, whatever moves, joins, leaves, dies or is cut off. */
#include "lab/worlds/params_world.h"

#include <string.h>

#include "lab/worlds/params_app.h"
#include "test/test.h"

static void equal(const ru_params_job *job)
{
    ru_err err;
    assert_ok(ru_params_check(job, &err), err);
}

static void run(const ru_params_job *job, ru_params_result *r)
{
    ru_err err;
    assert_ok(ru_params_run(job, r, &err), err);
    assert_string_equal(r->text, "");
}

/* It ends, and each item is there once. */
static void run_items(const ru_params_job *job, ru_params_result *r)
{
    run(job, r);
    assert_true(r->ended && ru_params_item_wrong(job, r) == 0);
}

static const ru_params_job plain = {
    .seed = 1, .founders = 3, .executors = 7, .shards = 5, .clocks = 12, .save_every = 4};

/* Processes die and vanish, so many a second; `left` stay alive. */
static ru_sim_chaos deaths(double crash_per_s, double vanish_per_s, uint32_t left)
{
    return (ru_sim_chaos){.crash_per_s = crash_per_s,
                          .vanish_per_s = vanish_per_s,
                          .jitter_ns = 1000000,
                          .keep_alive = left,
                          .until = {INT64_C(4000000000)}};
}

static void test_bsp_equals_one_loop(void **s)
{
    (void)s;
    for (uint32_t n = 1; n <= 4; n++) {
        ru_params_job job = plain;
        job.founders = n;
        equal(&job);
    }
}

static void test_rules_drivers_and_rotation(void **s)
{
    (void)s;
    for (uint32_t k = 0; k < 8; k++) {
        ru_params_job job = plain;
        job.rule = k % 5;
        job.rotate = k >= 4;
        job.drive = k % 2 == 1;
        equal(&job);
    }
}

/* More executors than rows that rotate: some blocks have none, and their holders fetch nothing. */
static void test_blocks_without_rows(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 4; seed++) {
        ru_params_job job = plain;
        job.seed = seed;
        job.rotate = true;
        job.executors = 120;
        job.clocks = 4;
        equal(&job);
    }
}

static void test_moves_change_nothing(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 12; seed++) {
        ru_params_job job = plain;
        job.seed = seed;
        job.clocks = 40;
        job.later = (uint32_t)(seed % 3);
        job.move_every_ns = 5000000;
        job.rotate = seed % 2 == 1;
        job.executors = job.rotate ? 4 : 7;
        equal(&job);
    }
}

static void test_death_changes_nothing(void **s)
{
    (void)s;
    for (uint64_t seed = 100; seed < 160; seed++) {
        ru_params_job job = plain;
        job.seed = seed;
        job.founders = 4;
        job.clocks = 60;
        job.task_ns = 10000000;
        job.later = (uint32_t)(seed % 3);
        job.move_every_ns = seed % 2 == 0 ? 20000000 : 0;
        job.rotate = seed % 4 >= 2;
        job.drive = seed % 5 == 0;
        job.executors = job.rotate ? 3 : 6;
        job.leave_ns = seed % 3 == 2 ? 400000000 : 0;
        job.chaos = deaths(0.5, 0.2, 3);
        job.chaos.freeze_per_s = 0.5;
        job.chaos.cut_per_s = 1;
        job.chaos.half_open_per_s = 0.3;
        equal(&job);
    }
}

/* A process to which an executor came by a map that it did not have yet sent it back, and it passed
 * from one to the other until the map was there. */
static void test_executors_wait_for_the_map(void **s)
{
    (void)s;
    uint32_t shipped = 0, arrived = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        ru_params_job job = plain;
        ru_params_result r;
        job.seed = seed;
        job.clocks = 40;
        job.task_ns = 10000000;
        job.move_every_ns = 3000000;
        job.chaos = (ru_sim_chaos){.slow_per_s = 4, .jitter_ns = 8000000, .until = {1000000000}};
        run(&job, &r);
        assert_true(r.ended);
        shipped += r.shipped;
        arrived += r.arrived;
        ru_params_result_fini(&r);
    }
    assert_true(shipped > 1000);
    assert_in_range(shipped, arrived, arrived + 12); /* 42 more before; moved on, or on their way */
}

/* Executors go on while a checkpoint is stored, and shards take their changes at once: one that
 * moves meanwhile was saved again, with changes of after the checkpoint, which then counted twice
 * for who went back to it. */
static void test_saved_shards_that_move(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 24; seed++) {
        ru_params_job job = plain;
        job.seed = seed;
        job.founders = 4;
        job.clocks = 120;
        job.driver = seed % 2 == 0 ? RU_ENGINE_SSP : RU_ENGINE_ASYNC;
        job.slack = 3;
        job.save_every = 0;
        job.save_ns = 1000000;
        job.task_ns = 5000000;
        job.move_every_ns = 2000000;
        job.chaos = deaths(1, 0.5, 3);
        equal(&job);
    }
}

static const ru_params_job sliced = {.founders = 4,
                                     .executors = 6,
                                     .shards = 5,
                                     .clocks = 12,
                                     .save_every = 4,
                                     .task_ns = 120000000,
                                     .divided = true,
                                     .stragglers = RU_ENGINE_REASSIGN};

/* Executors of slow processes hand slices of their work to others. */
static void test_slices_are_applied_once(void **s)
{
    (void)s;
    int64_t helped = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        ru_params_job job = sliced;
        ru_params_result r;
        job.seed = seed;
        job.driver = seed % 3 == 1 ? RU_ENGINE_SSP : RU_ENGINE_BSP;
        job.slack = 1;
        run_items(&job, &r);
        helped += r.helped;
        ru_params_result_fini(&r);
    }
    assert_true(helped > 12 * 100);
}

/* A clock closes without one or two executors: what these change in it is in no shard, all of what
 * the others change is in it once, and so many are missing as were told, with faults and without.
 */
static void test_clocks_without_late_executors(void **s)
{
    (void)s;
    uint32_t left_out = 0;
    /* In the last one a shard that is ahead comes to an executor that has not heard yet that it was
     * left out. */
    const uint64_t seeds[] = {6795};
    for (uint64_t k = 0; k < 30 + RU_ARRAY_LEN(seeds); k++) {
        ru_params_job job;
        ru_err err;
        ru_params_draw_backup(k < 30 ? k : seeds[k - 30], &job);
        assert_ok(ru_params_check(&job, &err), err);
    }
    for (uint64_t seed = 0; seed < 6; seed++) {
        ru_params_job job = sliced;
        ru_params_result r;
        job.seed = seed;
        job.stragglers = RU_ENGINE_BACKUP;
        job.backup = 1 + (uint32_t)seed % 2;
        run_items(&job, &r);
        for (uint32_t c = 0; c < job.clocks; c++) {
            left_out += r.left_out[c];
        }
        ru_params_result_fini(&r);
    }
    assert_true(left_out > 6 * sliced.clocks / 2);
}

/* Half the processes are slow for good, and clocks close without them; but not for ever. */
static void test_executors_that_are_always_late(void **s)
{
    (void)s;
    ru_params_job job = sliced;
    ru_params_result r;
    uint32_t waited = 0;
    job.seed = 1;
    job.founders = job.executors = 8;
    job.clocks = 20;
    job.save_every = 0;
    job.pattern = RU_SPEED_HALF;
    job.stragglers = RU_ENGINE_BACKUP;
    job.backup = 4;
    run_items(&job, &r);
    for (uint32_t c = 0; c < job.clocks; c++) {
        waited += r.left_out[c] == 0 ? 1 : 0;
    }
    assert_true(waited > 0 && r.left_out[0] == job.backup);
    ru_params_result_fini(&r);
}

/* Helpers and owners die in the middle of slices: nothing rolls back, slices of dead helpers are
 * worked on again, and each item is there once but what is said to be lost. */
static void test_slices_of_dead_helpers(void **s)
{
    (void)s;
    uint32_t recovered = 0, redone = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        ru_params_job job = sliced;
        ru_params_result r;
        job.seed = seed;
        job.partial = true;
        job.save_clocks = 4;
        job.clocks = 20;
        job.move_every_ns = seed % 4 == 3 ? 30000000 : 0;
        job.chaos = deaths(1.2, 0.3, 2);
        run(&job, &r);
        assert_true(r.ended || r.living == 0);
        assert_true(!r.ended || ru_params_item_wrong(&job, &r) == 0);
        recovered += r.recoveries > 0 && r.generations == 1;
        redone += r.redone;
        ru_params_result_fini(&r);
    }
    assert_true(recovered > 20 && redone > 20);
}

typedef struct rival {
    uint32_t driver, slack, stragglers;
} rival;

/* Time of eight processes with an executor each over that of all work spread freely. A message
 * between them takes delay_ns; 0: hardly any time. */
static double over_ideal(ru_speed_pattern pattern, uint64_t seed, rival v, int64_t task_ns,
                         int64_t delay_ns)
{
    const ru_params_job job = {.seed = seed,
                               .founders = 8,
                               .executors = 8,
                               .shards = 8,
                               .clocks = 12,
                               .task_ns = task_ns,
                               .delay_ns = delay_ns,
                               .divided = true,
                               .pattern = pattern,
                               .driver = v.driver,
                               .slack = v.slack,
                               .stragglers = v.stragglers};
    const ru_speeds speeds = {seed, pattern};
    ru_params_result r;
    run_items(&job, &r);
    double work_ns = (double)job.executors * job.clocks * (double)job.task_ns;
    double ideal = ru_speed_ideal_ns(&speeds, job.founders, r.begun.ns, work_ns);
    double took = (double)(r.done.ns - r.begun.ns);
    ru_params_result_fini(&r);
    return took / ideal;
}

/* Slices with a slack of one clock come near the ideal where a barrier does not, and where slack
 * alone or slices alone do not either. */
static void test_slices_against_stragglers(void **s)
{
    (void)s;
    static const rival rivals[] = {{RU_ENGINE_SSP, 1, RU_ENGINE_REASSIGN},
                                   {RU_ENGINE_BSP, 0, RU_ENGINE_REASSIGN},
                                   {RU_ENGINE_BSP, 0, RU_ENGINE_WAIT},
                                   {RU_ENGINE_SSP, 1, RU_ENGINE_WAIT},
                                   {RU_ENGINE_SSP, 3, RU_ENGINE_WAIT}};
    for (uint32_t p = RU_SPEED_SLOW; p < RU_SPEED_PATTERNS; p++) {
        double mean[RU_ARRAY_LEN(rivals)] = {0};
        for (uint32_t k = 0; k < RU_ARRAY_LEN(rivals); k++) {
            for (uint64_t seed = 1; seed <= 2; seed++) {
                mean[k] += over_ideal((ru_speed_pattern)p, seed, rivals[k], 1000000000, 0) / 2;
            }
        }
        assert_true(mean[0] < 1.05 && mean[2] > 1.25);
        for (uint32_t k = 1; k < RU_ARRAY_LEN(rivals); k++) {
            assert_true(mean[0] < mean[k]);
        }
    }
}

/* An answer takes a tenth of a clock: slices are measured to be late, and come earlier or not at
 * all. With delays that are not measured they take longer than no slices (1.12 times as long). */
static void test_slices_with_late_answers(void **s)
{
    (void)s;
    static const rival slices = {RU_ENGINE_SSP, 1, RU_ENGINE_REASSIGN},
                       none = {RU_ENGINE_SSP, 1, RU_ENGINE_WAIT};
    double with = 0, without = 0;
    for (uint32_t p = RU_SPEED_SLOW; p < RU_SPEED_PATTERNS; p++) {
        for (uint64_t seed = 1; seed <= 2; seed++) {
            with += over_ideal((ru_speed_pattern)p, seed, slices, 300000000, 15000000);
            without += over_ideal((ru_speed_pattern)p, seed, none, 300000000, 15000000);
        }
    }
    assert_true(with < without);
}

static void test_mistakes_end_the_job(void **s)
{
    (void)s;
    static const struct {
        ru_params_mistake mistake;
        ru_status status;
        const char *words;
        bool rotate;
    } cases[] = {
        {RU_PARAMS_ROW, RU_E_USER, "app tally wants row 97 of table counts at place 7", false},
        {RU_PARAMS_BLOCK, RU_E_USER, "of table rotates; expected rows from", true},
        {RU_PARAMS_MANY, RU_E_USER, "has 17 wants in a task", false},
        {RU_PARAMS_NAN, RU_E_DATA, "row 0 of table numbers gets a value that is not finite", false},
        {RU_PARAMS_DRIVER, RU_E_USER, "wants rows of table locals, which only their executor has",
         true},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_params_job job = plain;
        ru_params_result r;
        ru_err err;
        job.rule = RU_APP_STEP;
        job.mistake = cases[k].mistake;
        job.rotate = cases[k].rotate;
        job.drive = cases[k].mistake == RU_PARAMS_DRIVER;
        assert_ok(ru_params_run(&job, &r, &err), err);
        assert_int_equal(r.status, cases[k].status);
        if (strstr(r.text, cases[k].words) == NULL) {
            fail_msg("'%s' lacks '%s'", r.text, cases[k].words);
        }
        assert_int_equal(r.living, 0);
        ru_params_result_fini(&r);
    }
}

/* Two of four members die while the others work: nothing rolls back, and each change of the counts
 * is there once but those that are said to be lost. */
static void test_losses_are_rebuilt(void **s)
{
    (void)s;
    uint32_t recovered = 0, rebuilt = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        ru_params_job job = plain;
        job.seed = seed;
        job.founders = 4;
        job.clocks = 60;
        job.task_ns = 10000000;
        job.executors = seed % 4 == 3 ? 3 : 8;
        job.rotate = seed % 4 == 3;
        job.driver = seed % 4 == 2 ? RU_ENGINE_SSP : RU_ENGINE_BSP;
        job.slack = 2;
        job.partial = true;
        job.save_clocks = 4;
        job.move_every_ns = seed % 3 == 0 ? 20000000 : 0;
        job.chaos = deaths(1.5, 0.3, 3);
        ru_params_result r;
        if (seed < 12) { /* is it what happens? */
            run(&job, &r);
            recovered += r.recoveries > 0 && r.generations == 1;
            rebuilt += r.rebuilt;
            ru_params_result_fini(&r);
        }
        equal(&job);
    }
    assert_true(recovered > 4 && rebuilt > 20);
}

/* A save waits until the one before is stored, and then makes up for the clocks that it waited. */
static void test_late_saves_write_as_much(void **s)
{
    (void)s;
    for (uint32_t method = RU_SAVE_PRIORITY; method <= RU_SAVE_RANDOM; method++) {
        uint32_t saves[2];
        int64_t bytes[2];
        for (uint32_t late = 0; late < 2; late++) {
            ru_params_job job = plain;
            ru_params_result r;
            job.founders = 1;
            job.clocks = 300;
            job.shards = 24;
            job.partial = true;
            job.save_method = method;
            job.save_clocks = 16;
            job.task_ns = 1000000;
            job.log_ns = late == 1 ? 10000000 : 1000;
            run(&job, &r);
            assert_true(r.ended);
            saves[late] = r.saves;
            bytes[late] = r.saved_bytes;
            ru_params_result_fini(&r);
        }
        assert_true(2 * saves[1] < saves[0]);
        /* The last one is open; executors that work while a save begins wait for the next. */
        assert_in_range(100 * bytes[1], 75 * bytes[0], 105 * bytes[0]);
    }
}

/* Members die whose executors' states are what the tables count: the others go on with theirs, lost
 * ones with saved states, and at the end the tables are exactly what all states say. */
static void test_what_is_lost_is_counted_again(void **s)
{
    (void)s;
    uint32_t counted = 0, disk = 0, rebuilt = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        ru_params_job job = plain;
        ru_params_result r;
        job.seed = seed;
        job.founders = 4;
        job.clocks = 60;
        job.task_ns = 10000000;
        job.executors = 8;
        job.counted = job.partial = true;
        job.rotate = seed % 2 == 0;
        job.task_ns = job.rotate ? 2000000 : 10000000;
        job.drive = seed % 5 == 4;
        job.driver = seed % 4 == 1 && !job.drive ? RU_ENGINE_SSP : RU_ENGINE_BSP;
        job.slack = 2;
        job.save_clocks = 4;
        job.move_every_ns = seed % 3 == 0 ? 20000000 : 0;
        job.chaos = deaths(1.5, 0.3, 2);
        run(&job, &r);
        assert_true(r.ended || r.living == 0);
        assert_int_equal(r.wrong, 0);
        counted += r.counted;
        rebuilt += r.rebuilt;
        disk += job.drive ? 0 : r.from_disk; /* with the leader dies the state of a driver */
        ru_params_result_fini(&r);
    }
    for (uint64_t seed = 0; seed < 60; seed++) { /* more: params-seeds FIRST LAST counts */
        ru_params_job job;
        ru_params_draw_counted(seed, &job);
        equal(&job);
    }
    assert_true(counted > 20 && rebuilt > 40 && disk == 0);
}

static const ru_params_job staged = {.seed = 1,
                                     .founders = 6,
                                     .reliable = 1,
                                     .executors = 12,
                                     .shards = 10,
                                     .clocks = 60,
                                     .task_ns = 10000000,
                                     .stages = RU_ENGINE_STAGES + RU_STAGE_TWO};

static void staged_run(const ru_params_job *job, ru_params_result *r)
{
    run(job, r);
    assert_true(r->ended);
    equal(job);
}

/* Transient members die at once, all of them or some, while they hold the shards: nothing is read
 * from the disk, at most two clocks roll back, the result is the same bits. */
static void test_copies_of_those_who_die(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 24; seed++) {
        ru_params_job job = staged;
        ru_params_result r;
        const ru_params_event die[] = {{.ns = 500000000,
                                        .what = seed % 2 == 0 ? RU_PARAMS_CRASH : RU_PARAMS_VANISH,
                                        .first = 1,
                                        .n = seed % 4 < 2 ? 5 : 2},
                                       {.ns = 520000000 + (int64_t)seed * 3000000,
                                        .what = RU_PARAMS_CRASH,
                                        .first = seed % 4 < 2 ? 1 : 3,
                                        .n = seed % 8 < 4 ? 0 : 2}};
        job.seed = seed;
        job.event = die;
        job.n_events = RU_ARRAY_LEN(die);
        job.stages = RU_ENGINE_STAGES + RU_STAGE_ONE + (uint32_t)(seed % 3);
        job.rotate = seed % 5 == 4;
        job.executors = job.rotate ? 5 : 12;
        job.drive = seed % 7 == 6;
        job.rule = (uint32_t)(seed % 5);
        staged_run(&job, &r);
        assert_true(r.from_copies > 0 && r.from_disk == 0 && r.told_again == 0);
        assert_true(r.clocks_back <= 2 * r.from_copies);
        assert_true(r.gap_ns < 1200000000); /* 0.7 s of silence until it is known */
        ru_params_result_fini(&r);
    }
}

/* Members die while clocks are closed and not committed: copies are late, and connections and
 * processes break off. Nothing is read from the disk, and no committed clock is told twice. */
static void test_deaths_between_close_and_commit(void **s)
{
    (void)s;
    uint32_t back = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        ru_params_job job = staged;
        ru_params_result r;
        const ru_params_event die = {.ns = 600000000 + (int64_t)seed * 7000000,
                                     .what = RU_PARAMS_CRASH,
                                     .first = 2 + (uint32_t)(seed % 3),
                                     .n = 2};
        job.seed = seed;
        job.delay_ns = 3000000;
        job.event = &die;
        job.n_events = 1;
        job.chaos = (ru_sim_chaos){.freeze_per_s = 1,
                                   .cut_per_s = 2,
                                   .jitter_ns = 2000000,
                                   .keep_alive = 64,
                                   .until = {INT64_C(3000000000)}};
        staged_run(&job, &r);
        assert_int_equal(r.from_disk + r.told_again, 0);
        assert_true(r.clocks_back <= 2 * r.from_copies);
        back += r.clocks_back;
        ru_params_result_fini(&r);
    }
    assert_true(back > 0);
}

/* With notice nothing rolls back at all, with a job on disk or without. */
static void test_notices_lose_nothing(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 12; seed++) {
        ru_params_job job = staged;
        ru_params_result r;
        const ru_params_event go[] = {
            {.ns = 100000000, .what = RU_PARAMS_JOIN, .first = 6, .n = 6},
            {.ns = 500000000, .what = RU_PARAMS_LEAVE, .first = 3, .n = 7}};
        job.seed = seed;
        job.later = 6;
        job.event = go;
        job.n_events = RU_ARRAY_LEN(go);
        job.stages = RU_ENGINE_STAGES + RU_STAGE_ONE + (uint32_t)(seed % 3);
        staged_run(&job, &r);
        assert_int_equal(r.from_copies + r.from_disk + r.told_again, 0);
        ru_params_result_fini(&r);
    }
}

/* The only reliable member, which leads and keeps all copies, leaves: the others go on from the
 * checkpoint that it made, in the same processes, and one of them may die. */
static void test_the_last_reliable_member_leaves(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 24; seed++) {
        const ru_params_event events[] = {
            {.ns = 300000000, .what = RU_PARAMS_LEAVE, .first = 0, .n = 1},
            {.ns = 700000000, .what = RU_PARAMS_CRASH, .first = 2, .n = (uint32_t)(seed % 2)}};
        ru_params_job job = staged;
        ru_params_result r;
        job.seed = seed;
        job.event = events;
        job.n_events = RU_ARRAY_LEN(events);
        job.stages = RU_ENGINE_STAGES + RU_STAGE_ONE + (uint32_t)(seed % 3);
        job.drive = seed % 5 == 4;
        staged_run(&job, &r);
        assert_int_equal(r.survivors, 6 - seed % 2); /* with the one that left */
        assert_int_equal(r.from_copies, 0);
        ru_params_result_fini(&r);
    }
}

/* A member asks for the end of the job, and its leader dies before it hears of it, or a little
 * later; then all that is left of the job ends early, at one clock. */
static void test_a_stop_outlives_the_leader(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 24; seed++) {
        const ru_params_event events[] = {
            {.ns = 300000000, .what = RU_PARAMS_STOP, .first = 2, .n = 1},
            {.ns = 300000000 + (int64_t)(seed / 4) * 100000, .what = RU_PARAMS_CRASH, .n = 1}};
        ru_params_job job = plain;
        ru_params_result r;
        job.seed = seed;
        job.founders = 4;
        job.clocks = 5000;
        job.partial = seed % 2 == 0;
        job.driver = seed % 4 < 2 ? RU_ENGINE_BSP : RU_ENGINE_SSP;
        job.slack = seed % 4 < 2 ? 0 : 3;
        job.event = events;
        job.n_events = RU_ARRAY_LEN(events);
        run(&job, &r);
        assert_int_equal(r.survivors, 3);
        assert_int_equal(r.living, 0);
        assert_in_range(r.closed, 1, job.clocks / 2);
        ru_params_result_fini(&r);
    }
}

static void test_staged_seeds(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 60; seed++) { /* more: params-seeds FIRST LAST stages */
        ru_params_job job;
        ru_params_events events;
        ru_params_draw_staged(seed, &job, &events);
        equal(&job);
    }
}

/* Drawn jobs that failed once. */
static void test_seeds_that_failed(void **s)
{
    (void)s;
    static const struct {
        uint64_t seed;
        bool whole; /* recovers as a whole, not what was lost alone */
    } cases[] = {
        /* An object was offered to a process that was then no member any more, over a connection of
         * which one side was gone: it never moved again. */
        {1065, true},
        /* A shard was lost with the member to which its living holder was to send it: its new
         * holder may rebuild it and be sent it, too. */
        {1575, false},
        /* After a loss an object had no holder, and the last checkpoint missed a part: the leader's
         * watch ends both with the last checkpoint. */
        {13672, false},
        {18974, false},
        /* An executor moved while its process alone could send its changes of the open clock again,
         * and that process died with a shard that had them. */
        {11893, false},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_params_job job;
        ru_params_draw(cases[k].seed, &job);
        if (cases[k].whole) {
            job.partial = false;
        }
        assert_true(job.partial != cases[k].whole);
        equal(&job);
    }
}

static void test_seeds(void **s)
{
    (void)s;
    for (uint64_t seed = 0; seed < 100; seed++) { /* more: build/test/params-seeds 0 9999 */
        ru_params_job job;
        ru_params_draw(seed, &job);
        equal(&job);
    }
}

RU_TESTS(test_params, cmocka_unit_test(test_losses_are_rebuilt),
         cmocka_unit_test(test_late_saves_write_as_much),
         cmocka_unit_test(test_what_is_lost_is_counted_again),
         cmocka_unit_test(test_copies_of_those_who_die),
         cmocka_unit_test(test_deaths_between_close_and_commit),
         cmocka_unit_test(test_notices_lose_nothing),
         cmocka_unit_test(test_the_last_reliable_member_leaves),
         cmocka_unit_test(test_a_stop_outlives_the_leader), cmocka_unit_test(test_staged_seeds),
         cmocka_unit_test(test_executors_wait_for_the_map),
         cmocka_unit_test(test_saved_shards_that_move), cmocka_unit_test(test_seeds),
         cmocka_unit_test(test_seeds_that_failed), cmocka_unit_test(test_death_changes_nothing),
         cmocka_unit_test(test_bsp_equals_one_loop), cmocka_unit_test(test_mistakes_end_the_job),
         cmocka_unit_test(test_rules_drivers_and_rotation),
         cmocka_unit_test(test_blocks_without_rows), cmocka_unit_test(test_slices_are_applied_once),
         cmocka_unit_test(test_clocks_without_late_executors),
         cmocka_unit_test(test_executors_that_are_always_late),
         cmocka_unit_test(test_slices_against_stragglers),
         cmocka_unit_test(test_slices_with_late_answers),
         cmocka_unit_test(test_slices_of_dead_helpers), cmocka_unit_test(test_moves_change_nothing))
