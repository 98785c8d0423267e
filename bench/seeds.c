/* rubato bench sim --only seeds: elastic jobs with faults by seed, and what happened in them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "bench/bench.h"
#include "env/clock.h"
#include "lab/job.h"

enum {
    SEEDS = 10000,
    SEEDS_QUICK = 300,
    TWICE_EVERY = 50, /* every so many seeds one is run again: equal events */
    /* From so many seeds on, each kind of event must have happened: the rarest comes in one seed of
     * fifty. */
    COVER_MIN = 500,
};
static const int64_t progress_ns = 10000000000;

/* One seed, told in full, twice: the same events both times. */
static ru_status replay(uint64_t seed, ru_err *err)
{
    ru_sim_job job;
    ru_sim_job_result first = {0}, second;
    ru_sim_job_draw(seed, &job);
    job.say = true;
    ru_status st = ru_sim_job_run(&job, &first, err);
    ru_err again_err;
    job.say = false;
    ru_status same = ru_sim_job_run(&job, &second, &again_err);
    if (same != st || first.hash != second.hash) {
        return RU_FAIL(err, RU_E_BUG,
                       "seed %" PRIu64 " gave other events the second time: something depends on "
                       "more than the seed",
                       seed);
    }
    fprintf(stderr,
            "seed %" PRIu64 ": %lld events, %.1f ms, hash %016" PRIx64
            ", %lld steps, %u epochs, %u faults, %u lost, %u joined, %u led, %u expelled\n",
            seed, (long long)first.events, (double)first.time_ns * 1e-6, first.hash,
            (long long)first.committed, first.epochs, first.faults, first.lost, first.joined,
            first.led, first.expelled);
    return st;
}

typedef struct tally {
    uint64_t from, to; /* inclusive */
    uint32_t done, passed, repeated, twice;
    double events, faults;
    uint64_t seen[RU_SIM_SEEN_KINDS];
    int64_t pause_ns; /* the longest, and its seed */
    uint64_t pause_seed;
    int64_t began_ns, told_ns;
} tally;

static ru_status run_again(uint64_t seed, const ru_sim_job *job, const ru_sim_job_result *r,
                           tally *t, ru_err *err)
{
    ru_sim_job_result same;
    t->twice++;
    RU_TRY(ru_sim_job_run(job, &same, err));
    if (same.hash != r->hash) {
        return RU_FAIL(err, RU_E_BUG, "seed %" PRIu64 " gave other events the second time", seed);
    }
    t->repeated++;
    return RU_OK;
}

static void one_seed(uint64_t seed, tally *t)
{
    ru_sim_job job;
    ru_sim_job_result r;
    ru_err err;
    ru_sim_job_draw(seed, &job);
    ru_status st = ru_sim_job_run(&job, &r, &err);
    if (st == RU_OK && seed % TWICE_EVERY == 0) {
        st = run_again(seed, &job, &r, t, &err);
    }
    t->done++;
    if (st != RU_OK) {
        fprintf(stderr, "BROKEN: %s\n", err.text);
    }
    t->passed += st == RU_OK ? 1 : 0;
    t->events += (double)r.events;
    t->faults += r.faults;
    for (uint32_t k = 0; k < RU_SIM_SEEN_KINDS; k++) {
        t->seen[k] += r.seen[k];
    }
    if (r.pause_ns > t->pause_ns) {
        t->pause_ns = r.pause_ns;
        t->pause_seed = seed;
    }
}

static void progress(tally *t)
{
    int64_t now_ns = ru_clock_now().ns;
    if (now_ns - t->told_ns >= progress_ns) {
        t->told_ns = now_ns;
        fprintf(stderr, "seeds %" PRIu64 "-%" PRIu64 ": %u done, %u broken, %.0f s\n", t->from,
                t->to, t->done, t->done - t->passed, (double)(now_ns - t->began_ns) * 1e-9);
    }
}

/* What happened, one kind a line: "seen COUNT KIND"; scripts/seeds adds these up. */
static uint32_t tell(const tally *t)
{
    uint32_t never = 0;
    for (ru_sim_seen k = 0; k < RU_SIM_SEEN_KINDS; k++) {
        bool drawn = k == RU_SIM_SEEN_BULK    ? t->to >= RU_SIM_BULK_FROM
                     : k == RU_SIM_SEEN_BATCH ? t->to >= RU_SIM_BATCH_FROM
                                              : true;
        if (!drawn) {
            continue;
        }
        fprintf(stderr, "seen %8" PRIu64 " %s\n", t->seen[k], ru_sim_seen_text(k));
        never += t->seen[k] == 0 ? 1 : 0;
    }
    fprintf(stderr,
            "%u seeds: %.0f faults, %.0f events, longest pause %.2f s (seed %" PRIu64
            "); %u of %u seeds run twice were equal\n",
            t->done, t->faults, t->events, (double)t->pause_ns * 1e-9, t->pause_seed, t->repeated,
            t->twice);
    return never;
}

static ru_status sweep(ru_bench *b, uint64_t from, uint64_t to, ru_err *err)
{
    tally t = {.from = from, .to = to, .began_ns = ru_clock_now().ns};
    t.told_ns = t.began_ns;
    int64_t cpu_ns = ru_clock_cpu_ns();
    for (uint64_t k = from; k <= to; k++) {
        one_seed(k, &t);
        progress(&t);
    }
    double seconds = (double)(ru_clock_cpu_ns() - cpu_ns) * 1e-9, passed = t.passed;
    uint32_t never = tell(&t);
    RU_TRY(ru_bench_add(b,
                        &(ru_bench_row){.name = "seeds of an elastic job, no invariant broken",
                                        .unit = "seeds",
                                        .goal = t.done,
                                        .ours = ru_bench_stat_of(&passed, 1)},
                        err));
    RU_TRY(ru_bench_add(b,
                        &(ru_bench_row){.name = "seeds of an elastic job, time",
                                        .unit = "s",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(&seconds, 1)},
                        err));
    if (t.passed < t.done) {
        return RU_FAIL(err, RU_E_BUG, "%u of %u seeds broke an invariant", t.done - t.passed,
                       t.done);
    }
    return never > 0 && t.done >= COVER_MIN
               ? RU_FAIL(err, RU_E_BUG, "%u kinds of events never happened in %u seeds", never,
                         t.done)
               : RU_OK;
}

/* "17-99", "17" */
static bool range(ru_str text, uint64_t *from, uint64_t *to)
{
    int64_t dash = 0;
    while (dash < text.n && text.p[dash] != '-') {
        dash++;
    }
    bool one = dash == text.n;
    ru_str last = one ? text : ru_str_from(text, dash + 1);
    return ru_str_u64((ru_str){text.p, dash}, from) && ru_str_u64(last, to) && *from <= *to &&
           *to - *from < UINT32_MAX;
}

ru_status ru_bench_seeds(ru_bench *b, ru_err *err)
{
    ru_str only = ru_str_c(b->only);
    uint64_t from = 0, to = (b->quick ? SEEDS_QUICK : SEEDS) - 1;
    if (ru_str_starts(only, "seed:")) {
        if (!ru_str_u64(ru_str_from(only, 5), &from)) {
            return RU_FAIL(err, RU_E_USAGE, "'%s' names no seed; write --only seed:17", b->only);
        }
        b->told = true;
        return replay(from, err);
    }
    if (ru_str_starts(only, "seeds:") && !range(ru_str_from(only, 6), &from, &to)) {
        return RU_FAIL(err, RU_E_USAGE, "'%s' names no seeds; write --only seeds:0-499", b->only);
    }
    return sweep(b, from, to, err);
}
