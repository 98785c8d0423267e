/* Elastic jobs in the simulator: some seeds of what `rubato bench sim --only seeds` runs ten
 * thousand of. A seed that once broke something stays here. */
#include "lab/job.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/rng.h"
#include "test/many.h"
#include "test/test.h"

static ru_sim_job_result run(const ru_sim_job *job)
{
    ru_sim_job_result r;
    ru_err err = {0};
    assert_ok(ru_sim_job_run(job, &r, &err), err);
    return r;
}

static ru_sim_job_result run_seed(uint64_t seed)
{
    ru_sim_job job;
    ru_sim_job_draw(seed, &job);
    return run(&job);
}

static void an_undisturbed_job_gives_what_one_process_gives(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++) {
        const ru_sim_job job = {.seed = n,
                                .founders = n,
                                .steps = 12,
                                .batch = 40,
                                .sample_ns = 1000000,
                                .time_max_ns = INT64_C(20000000000)};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.committed, 12);
        assert_int_equal(r.redone, 0);
        assert_int_equal(r.lost, 0);
        assert_int_equal(r.expelled, 0);
    }
}

/* Who still updates its last step when the leader, which knows that all have heard of the end, goes
 * away does not take over: the job would be told to its end a second time. */
static void nobody_takes_over_a_job_that_ended(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 12; seed++) {
        const ru_sim_job job = {.seed = seed,
                                .founders = 2 + seed % 4,
                                .steps = 6,
                                .batch = 40,
                                .slowest = 0.001,
                                .deterministic = true,
                                .sample_ns = 1000,
                                .time_max_ns = INT64_C(60000000000)};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.committed, 6);
        assert_int_equal(r.led, 0);
    }
}

/* Members of a host map each other's memory each in its time: one that is through with its
 * computing before another has opened its group says its word to nobody, unless it is kept. */
static void words_before_the_group_is_open_are_kept(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 8; seed++) {
        const ru_sim_job job = {.seed = seed,
                                .founders = 2 + 2 * (seed % 3 + 1),
                                .per_host = seed % 2 == 0 ? 2 : 3,
                                .near = true,
                                .steps = 40,
                                .batch = 40,
                                .slowest = 0.3, /* so shares, and with them views, change */
                                .sample_ns = 10000,
                                .time_max_ns = INT64_C(20000000000)};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.committed, 40);
    }
}

static void faults_by_seed_break_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0, n = ru_test_many(40, 3); seed < n; seed++) {
        (void)run_seed(seed);
    }
}

/* One of eight votes, say, and the seven others are lost at once. */
static void members_without_a_vote_are_lost_in_bulk(void **state)
{
    (void)state;
    uint32_t bulk = 0;
    for (uint64_t seed = RU_SIM_BULK_FROM; seed < RU_SIM_BULK_FROM + 15; seed++) {
        bulk += run_seed(seed).seen[RU_SIM_SEEN_BULK];
    }
    assert_true(bulk >= 8);
    ru_sim_job job;
    ru_sim_job_draw(RU_SIM_BULK_FROM, &job);
    job.founders = 8;
    job.joiners = 0;
    job.no_vote = ~UINT64_C(1);
    job.chaos = (ru_sim_chaos){.keep_alive = 1};
    for (ru_sim_moment m = RU_SIM_AT_COMMIT; m < RU_SIM_AT_TAKEOVER; m++) {
        job.aims[0] = (ru_sim_aim){.moment = m, .how = RU_SIM_VANISH, .bulk = true};
        job.aims[1] = (ru_sim_aim){0};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.committed, job.steps);
        bool struck = m == RU_SIM_AT_COMMIT;
        assert_int_equal(r.lost, r.seen[RU_SIM_SEEN_BULK] * 7);
        assert_true(r.seen[RU_SIM_SEEN_BULK] == 1 || !struck);
    }
}

/* One that adds the gradients of the others is as mortal as they are. */
static void members_that_serve_may_be_lost(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 6; n++) {
        const ru_sim_job job = {.seed = n,
                                .founders = n,
                                .steps = 12,
                                .batch = 40,
                                .sample_ns = 1000000,
                                .pace = {.ahead = n % 2 == 0, .servers = 1 + n % 3},
                                .time_max_ns = INT64_C(20000000000)};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.committed, 12);
        assert_int_equal(r.redone, 0);
    }
    for (uint64_t k = 0, n = ru_test_many(15, 3); k < n; k++) {
        (void)run_seed(RU_SIM_SERVERS_FROM + k);
    }
    /* One that is cut off hears of a view from another than the leader; then the job ends. */
    (void)run_seed(RU_SIM_SERVERS_FROM + 365);
}

/* The device of a program inside another process (train/embed): also while members come and die. */
static void programs_train_as_devices_do(void **state)
{
    (void)state;
    for (uint64_t k = 0, n = ru_test_many(15, 3); k < n; k++) {
        (void)run_seed(RU_SIM_PROGRAM_FROM + k);
    }
}

/* Each step has one batch everywhere and begins where the one before ended. */
static void batches_change_between_views(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        const ru_sim_job job = {.seed = n,
                                .founders = n,
                                .steps = 40,
                                .batch = 32,
                                .batches = {{10, 64}, {20, 7}, {21, 7}, {30, 1}},
                                .sample_ns = 1000000,
                                .time_max_ns = INT64_C(20000000000)};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.committed, 40);
        assert_int_equal(r.redone, 0);
        assert_int_equal(r.seen[RU_SIM_SEEN_BATCH], 3);
    }
    uint32_t changes = 0;
    for (uint64_t seed = RU_SIM_BATCH_FROM; seed < RU_SIM_BATCH_FROM + 15; seed++) {
        changes += run_seed(seed).seen[RU_SIM_SEEN_BATCH];
    }
    assert_true(changes >= 15);
}

/* 176: somebody died after its DONE; the step was committed while the view that was to begin with
 * it was under way. 2087, 3042: half was left, without the oldest; those that were sure that the
 * others are gone waited for an older one that was not, in 3042 because it had followed a leader
 * that it knew to be dead. 6522: a leader that was cut off found sums done when it began them, and
 * what it had measured said that they take no time. 9078: a member that missed its leader threw
 * away the COMMIT with which it came back, and followed it again. 3405, 7935: sums in many cuts
 * among many members need more streams than a channel had, which is refused. 48, 512: a process
 * that slept past the job's end woke, was sure that all others are gone, and led on from where it
 * had stood. 2000001473: one with the whole state was cut out, the others with it were killed, and
 * those that joined ended for want of it, which is right. 11702: the simulator
 * let a frame overtake the one before it at the same instant. 12135: one was cut off, then
 * suspended, and led on when the others had ended. 20941: likewise, and it had heard of a view from
 * another than the leader. 3000003272: one was suspended for 0.5 s, then its beats were cut off; it
 * had found those of its leader, which had not heard it for 0.7 s, and led on after the end. */
static void seeds_that_once_broke_something(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {48,   176,  512,   2087,  3042,  3405,       6522,
                                     7935, 9078, 11702, 12135, 20941, 2000001473, 3000003272};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(seeds); k++) {
        (void)run_seed(seeds[k]);
    }
}

/* The machines of most are lost without a word: nobody may go on, and all say so. The machine of
 * one of four: the others go on. */
static void without_a_majority_everybody_says_so(void **state)
{
    (void)state;
    for (uint32_t keep = 1; keep <= 3; keep += 2) {
        const ru_sim_job job = {.seed = keep,
                                .founders = 4,
                                .steps = 40,
                                .batch = 40,
                                .sample_ns = 1000000,
                                .probe_bytes = 1024,
                                .chaos = {.vanish_per_s = 1000, .keep_alive = keep},
                                .time_max_ns = INT64_C(60000000000)};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.seen[RU_SIM_SEEN_VANISH], 4 - keep);
        assert_int_equal(r.seen[RU_SIM_SEEN_NO_MAJORITY], keep == 1 ? 1 : 0);
        assert_true(keep == 1 ? r.committed < 40 : r.committed == 40);
        /* Its connections still stand when it is cut out; it is lost all the same. */
        assert_int_equal(r.lost, keep == 1 ? 0 : 1);
        assert_int_equal(r.left, 0);
    }
}

/* A slow link still holds pieces of state when the view changes: they stay as they are until it has
 * let go of them. The simulated device checks that. */
static void state_under_way_is_kept_until_the_link_lets_go(void **state)
{
    (void)state;
    uint32_t lost = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        const ru_sim_job job = {.seed = seed,
                                .founders = 4,
                                .joiners = 2,
                                .join_from_ns = 200000000,
                                .join_to_ns = 300000000,
                                .steps = 40,
                                .batch = 16,
                                .n_tensors = 2,
                                .tensor_n = (const int64_t[]){2000, 2000},
                                .nic = {.bytes_per_s = 1e6},
                                .sample_ns = 100000,
                                .deterministic = true,
                                .probe_bytes = 1024,
                                .piece_bytes = 8192,
                                .join_part = 1,
                                .aims = {{.moment = RU_SIM_AT_STATE,
                                          .after_ns = (int64_t)seed * 8000000,
                                          .how = RU_SIM_CRASH,
                                          .other = true}},
                                .time_max_ns = INT64_C(60000000000)};
        const ru_sim_job_result r = run(&job);
        lost += r.seen[RU_SIM_SEEN_MEMBER_STATE];
    }
    assert_true(lost > 0);
}

/* The same for gradients: no step and no build while the link reads those of a step given up. A
 * frozen process takes nothing, while the others agree on a view without one that died. */
static void gradients_under_way_are_kept_until_the_link_lets_go(void **state)
{
    (void)state;
    uint32_t lost = 0, redone = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        const ru_sim_job job = {.seed = seed,
                                .founders = 6,
                                .steps = 6,
                                .batch = 16,
                                .n_tensors = 2,
                                .tensor_n = (const int64_t[]){20000, 20000},
                                .nic = {.bytes_per_s = 1e6, .window_bytes = 8192},
                                .sample_ns = 100000,
                                .deterministic = true,
                                .chunk_bytes = 1 << 20,
                                .probe_bytes = 1024,
                                .aims = {{.moment = RU_SIM_AT_COMMIT,
                                          .after_ns = (int64_t)seed * 4000000,
                                          .how = RU_SIM_FREEZE,
                                          .other = true},
                                         {.moment = RU_SIM_AT_COMMIT,
                                          .after_ns = (int64_t)seed * 4000000 + 30000000,
                                          .how = RU_SIM_CRASH,
                                          .other = true}},
                                .time_max_ns = INT64_C(60000000000)};
        const ru_sim_job_result r = run(&job);
        lost += r.seen[RU_SIM_SEEN_CRASH];
        redone += r.redone;
    }
    assert_true(lost > 0 && redone > 0);
}

static void equal_seeds_run_equally(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1004; seed++) {
        const ru_sim_job_result a = run_seed(seed), b = run_seed(seed);
        assert_true(a.hash == b.hash);
        assert_int_equal(a.events, b.events);
    }
}

static void many_workers_move_counted_bytes(void **state)
{
    (void)state;
    const ru_sim_job job = {.seed = 1,
                            .founders = 70,
                            .steps = 3,
                            .batch = 140,
                            .n_tensors = 3,
                            .tensor_n = (const int64_t[]){1000000, 300000, 50},
                            .counted = true,
                            .sample_ns = 1000000,
                            .time_max_ns = INT64_C(20000000000)};
    const ru_sim_job_result r = run(&job);
    assert_int_equal(r.committed, 3);
    /* 5.2 MB at 1.25 GB/s, twice nearly all of it: no step is faster than its bytes. */
    assert_true(r.step_ns > 2 * 5200200 * INT64_C(1000) / 1250 * 69 / 70);
}

/* A job of 24 gradients of 1 MB on links that carry them in `transfer` times the time of computing.
 */
static int64_t step_of(double transfer, bool ahead)
{
    enum { TENSORS = 24, RANKS = 4, EACH = 250000, SAMPLES = 10 };
    static const double computes_s = 0.3;
    int64_t sizes[TENSORS];
    for (uint32_t k = 0; k < TENSORS; k++) {
        sizes[k] = EACH;
    }
    const double carried = 2.0 * (RANKS - 1) / RANKS * TENSORS * 4 * EACH;
    const ru_sim_job job = {
        .seed = 1,
        .founders = RANKS,
        .steps = 20,
        .batch = SAMPLES * RANKS,
        .n_tensors = TENSORS,
        .tensor_n = sizes,
        .counted = true,
        .sums = RU_SUMS_SERIAL,
        .nic = {.bytes_per_s = carried / (transfer * computes_s), .delay_ns = 100000},
        .sample_ns = (int64_t)(computes_s * 1e9 / SAMPLES),
        .pace = {.ahead = ahead},
        .time_max_ns = INT64_C(60000000000)};
    const ru_sim_job_result r = run(&job);
    assert_int_equal(r.committed, 20);
    return r.step_ns;
}

/* With steps ahead a step takes as long as the longer of computing and transfer; without, what of
 * the transfer does not fit beside the backward pass comes on top. */
static void a_step_ahead_hides_the_shorter_of_both(void **state)
{
    (void)state;
    static const struct {
        double transfer, gain; /* to computing; at least */
    } rows[] = {{0.5, 1}, {1, 1.27}, {1.5, 1.2}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        double bound_ns = 3e8 * (rows[k].transfer > 1 ? rows[k].transfer : 1);
        double barrier_ns = (double)step_of(rows[k].transfer, false),
               ahead_ns = (double)step_of(rows[k].transfer, true);
        assert_true(ahead_ns >= bound_ns && ahead_ns < 1.07 * bound_ns);
        assert_true(barrier_ns >= rows[k].gain * ahead_ns);
    }
}

/* Hundreds of gradients, each a sum of its own whose messages have 8 kB, come in the order in which
 * the next forward pass reads: where they come as they are ready, the last one is read first. */
static void small_sums_come_in_the_order_of_use(void **state)
{
    (void)state;
    enum { N = 300, EACH = 32000, RANKS = 4 };
    static const double computes_s = 0.3;
    static double ready[N];
    static int64_t sizes[N];
    for (uint32_t k = 0; k < N; k++) {
        sizes[k] = EACH;
        ready[k] = (1 + 2.0 * (k + 1) / N) / 3; /* behind a third of the step */
    }
    const ru_script script = {
        .sample_ns = computes_s * 1e9, .size_bytes = sizes, .ready = ready, .n = N, .early = true};
    const double carried = 2.0 * (RANKS - 1) / RANKS * N * EACH;
    const ru_sim_job job = {.seed = 1,
                            .founders = RANKS,
                            .steps = 12,
                            .batch = RANKS,
                            .equal_shares = true,
                            .counted = true,
                            .script = &script,
                            .sums = RU_SUMS_SERIAL,
                            .nic = {.bytes_per_s = carried / computes_s, .delay_ns = 20000},
                            .pace = {.ahead = true},
                            .time_max_ns = INT64_C(60000000000)};
    const ru_sim_job_result r = run(&job);
    assert_true((double)r.step_ns >= computes_s * 1e9 && (double)r.step_ns < 1.06e9 * computes_s);
}

/* Who joins and leaves in order, and another batch, cost no step: the commit before says so, or all
 * know. */
static void orderly_changes_repeat_no_step(void **state)
{
    (void)state;
    uint32_t ahead = 0, joined = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        const ru_sim_job job = {.seed = seed,
                                .founders = 4,
                                .joiners = 2,
                                .leavers = seed % 3 == 0 ? 1 : 0,
                                .join_from_ns = 20000000,
                                .join_to_ns = 200000000,
                                .steps = 60,
                                .batch = 16,
                                .batches = {{20, 24}, {21, 8}, {40, 16}},
                                .sample_ns = 1000000,
                                .pace = {.ahead = true,
                                         .barriers = seed % 2 == 0 ? 5 : 0,
                                         .barriers_differ = seed % 4 == 0},
                                .time_max_ns = INT64_C(60000000000)};
        const ru_sim_job_result r = run(&job);
        assert_int_equal(r.committed, 60);
        assert_true(r.redone == 0 || job.pace.barriers_differ);
        ahead += r.seen[RU_SIM_SEEN_AHEAD];
        joined += r.joined;
    }
    assert_true(ahead > 1000 && joined > 12);
}

/* A member that says anything: nobody crashes. At length: build-sanitize/test/fuzz/fuzz_job. */
static void a_member_that_says_anything_crashes_nobody(void **state)
{
    (void)state;
    enum { JOBS = 3, BYTES = 1500 };
    static uint8_t says[BYTES];
    ru_log_options was = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF});
    for (uint64_t k = 0; k < JOBS; k++) {
        ru_rng rng = ru_rng_from(ru_test_seed() + k, ru_rng_label("mad"));
        for (uint32_t i = 0; i < BYTES; i++) { /* small numbers are understood more often */
            uint32_t small = ru_rng_below(&rng, 3);
            says[i] = (uint8_t)(small > 0 ? ru_rng_below(&rng, 4) : ru_rng_u32(&rng));
        }
        const ru_sim_job job = {.seed = 1 + k,
                                .founders = 3,
                                .steps = 100,
                                .batch = 6,
                                .sample_ns = 300000,
                                .time_max_ns = 3000000000,
                                .mad = says,
                                .mad_bytes = BYTES};
        const ru_sim_job_result r = run(&job);
        assert_true(r.events > 1000);
    }
    ru_log_set(&was);
}

static ru_sim_job large_job(uint32_t workers, int64_t steps)
{
    static const int64_t sizes[] = {4 << 20, 4 << 20};
    return (ru_sim_job){.seed = workers,
                        .founders = workers,
                        .steps = steps,
                        .batch = workers,
                        .n_tensors = 2,
                        .tensor_n = sizes,
                        .counted = true,
                        .sample_ns = 50000000,
                        .sums = RU_SUMS_NONE,
                        .chunk_bytes = 32 << 20,
                        .time_max_ns = INT64_C(60000000000)};
}

/* A step costs each worker a bounded number of events, which grows like log n: what every process
 * does for every other, or does again because somebody was refused, shows here. More than 64
 * workers: they do not all connect to each other. */
static void a_step_of_many_workers_is_cheap(void **state)
{
    (void)state;
    static const uint32_t workers[] = {72, 144};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(workers); k++) {
        uint32_t n = workers[k];
        const ru_sim_job small = large_job(n, 2), large = large_job(n, 4);
        const ru_sim_job_result few = run(&small), more = run(&large);
        assert_int_equal(more.epochs, 1);
        assert_int_equal(more.expelled + more.lost + more.redone, 0);
        int64_t start_ns = more.time_ns - 3 * more.step_ns; /* and the way out */
        if (start_ns > 1000000000) {
            fail_msg("%u workers were ready after %.3f s", n, (double)start_ns * 1e-9);
        }
        double each = (double)(more.events - few.events) / 2 / n;
        if (each > 300) {
            fail_msg("%u workers: %.0f events a worker and step", n, each);
        }
    }
}

RU_TESTS(test_sim_job, cmocka_unit_test(an_undisturbed_job_gives_what_one_process_gives),
         cmocka_unit_test(nobody_takes_over_a_job_that_ended),
         cmocka_unit_test(words_before_the_group_is_open_are_kept),
         cmocka_unit_test(faults_by_seed_break_nothing),
         cmocka_unit_test(members_without_a_vote_are_lost_in_bulk),
         cmocka_unit_test(members_that_serve_may_be_lost),
         cmocka_unit_test(programs_train_as_devices_do),
         cmocka_unit_test(batches_change_between_views),
         cmocka_unit_test(seeds_that_once_broke_something),
         cmocka_unit_test(without_a_majority_everybody_says_so),
         cmocka_unit_test(state_under_way_is_kept_until_the_link_lets_go),
         cmocka_unit_test(gradients_under_way_are_kept_until_the_link_lets_go),
         cmocka_unit_test(equal_seeds_run_equally),
         cmocka_unit_test(many_workers_move_counted_bytes),
         cmocka_unit_test(a_step_ahead_hides_the_shorter_of_both),
         cmocka_unit_test(small_sums_come_in_the_order_of_use),
         cmocka_unit_test(orderly_changes_repeat_no_step),
         cmocka_unit_test(a_member_that_says_anything_crashes_nobody),
         cmocka_unit_test(a_step_of_many_workers_is_cheap))
