/* Which job a seed stands for. */
#include "lab/job.h"

#include <string.h>

#define MS INT64_C(1000000)

enum {
    SHORT_AIMS = RU_SIM_AIMS - 1,
    PLAIN_MOMENTS = RU_SIM_AT_TAKEOVER + 1, /* those of steps ahead come behind */
};

/* Aimed faults: the moments that chance meets rarely, those that last microseconds above all. */
static void draw_aims(ru_rng *r, ru_sim_job *into)
{
    static const uint32_t often[PLAIN_MOMENTS] = {0, 30, 3, 2, 2, 4, 1};
    static const ru_sim_fault hows[] = {RU_SIM_CRASH, RU_SIM_CRASH, RU_SIM_VANISH, RU_SIM_FREEZE,
                                        RU_SIM_ISOLATE};
    uint32_t n = ru_rng_below(r, SHORT_AIMS + 1);
    for (uint32_t k = 0; k < n; k++) {
        ru_sim_moment moment = (ru_sim_moment)(1 + ru_rng_below(r, PLAIN_MOMENTS - 1));
        if (k == 1 && ru_rng_below(r, 2) == 0) {
            moment = RU_SIM_AT_TAKEOVER; /* whoever takes over after the first */
        }
        into->aims[k] = (ru_sim_aim){.moment = moment,
                                     .nth = ru_rng_below(r, often[moment]),
                                     .after_ns = ru_rng_below(r, 300000),
                                     .how = hows[ru_rng_below(r, RU_ARRAY_LEN(hows))],
                                     .other = ru_rng_below(r, 3) == 0};
    }
}

/* In one job of four a process stands still for longer than the others wait for it, often past the
 * job's end. */
static void draw_sleep(uint64_t seed, ru_sim_aim *into)
{
    static const ru_sim_moment moments[] = {RU_SIM_AT_COMMIT, RU_SIM_AT_COMMIT, RU_SIM_AT_VIEW,
                                            RU_SIM_AT_TAKEOVER};
    ru_rng r = ru_rng_from(seed, ru_rng_label("sleep"));
    if (ru_rng_below(&r, 4) != 0) {
        return;
    }
    *into = (ru_sim_aim){.moment = moments[ru_rng_below(&r, RU_ARRAY_LEN(moments))],
                         .nth = ru_rng_below(&r, 3),
                         .after_ns = ru_rng_below(&r, 20000000),
                         .how = RU_SIM_SLEEP,
                         .other = ru_rng_below(&r, 2) == 0};
    into->nth = into->moment == RU_SIM_AT_COMMIT ? ru_rng_below(&r, 40) : into->nth % 2;
}

/* One to three reliable founders that vote, the first among them, and many processes that do not;
 * all of these are lost at once, once or twice. In half of the jobs nothing else kills, so that the
 * job must come to its end. */
static void draw_bulk(uint64_t seed, ru_sim_job *into)
{
    ru_rng r = ru_rng_from(seed, ru_rng_label("bulk"));
    uint32_t voters = 1 + ru_rng_below(&r, 3);
    into->no_vote = ~UINT64_C(1);
    for (uint32_t k = 1; k < voters; k++) {
        into->no_vote &= ~(UINT64_C(1) << ru_rng_below(&r, into->founders));
    }
    into->joiners += 1 + ru_rng_below(&r, 6);
    for (uint32_t k = 0; k < into->joiners; k++) {
        bool votes = ru_rng_below(&r, 4) == 0;
        into->no_vote &= ~((uint64_t)votes << (into->founders + k));
    }
    if (ru_rng_below(&r, 2) == 0) {
        ru_sim_chaos *c = &into->chaos;
        c->crash_per_s = c->vanish_per_s = 0;
        c->fail_operation = 0;
        into->leavers = 0;
        memset(into->aims, 0, sizeof into->aims);
    }
    uint32_t losses = 1 + ru_rng_below(&r, 2);
    for (uint32_t k = 0; k < losses; k++) {
        static const uint32_t often[PLAIN_MOMENTS] = {0, 20, 2, 2, 2, 4, 1};
        ru_sim_moment moment = (ru_sim_moment)(1 + ru_rng_below(&r, PLAIN_MOMENTS - 1));
        moment = ru_rng_below(&r, 2) == 0 ? RU_SIM_AT_COMMIT : moment;
        into->aims[k] = (ru_sim_aim){.moment = moment,
                                     .nth = ru_rng_below(&r, often[moment]),
                                     .after_ns = ru_rng_below(&r, 3000000),
                                     .how = ru_rng_below(&r, 2) == 0 ? RU_SIM_CRASH : RU_SIM_VANISH,
                                     .bulk = true};
    }
}

/* One to four other batches, each after a step of its own; some as small as there are workers. */
static void draw_batches(uint64_t seed, ru_sim_job *into)
{
    ru_rng r = ru_rng_from(seed, ru_rng_label("batches"));
    uint32_t n = 1 + ru_rng_below(&r, RU_SIM_BATCHES);
    int64_t step = 0;
    for (uint32_t k = 0; k < n; k++) {
        step += 1 + ru_rng_below(&r, (uint32_t)into->steps / n);
        into->batches[k] = (ru_sim_batch){step, 1 + ru_rng_below(&r, 4U << (2 * k + 1))};
    }
}

/* In three jobs of four two steps may be under way; some steps of half of these have none behind
 * them, those of all members or of each. Half of them lose somebody while two are, and of these
 * half somebody else while they are given up. */
static void draw_ahead(uint64_t seed, ru_sim_job *into)
{
    static const ru_sim_moment moments[] = {RU_SIM_AT_DONE, RU_SIM_AT_COMMIT, RU_SIM_AT_AHEAD,
                                            RU_SIM_AT_AHEAD};
    static const ru_sim_fault hows[] = {RU_SIM_CRASH, RU_SIM_CRASH, RU_SIM_VANISH, RU_SIM_FREEZE};
    ru_rng r = ru_rng_from(seed, ru_rng_label("ahead"));
    into->pace.ahead = ru_rng_below(&r, 4) != 0;
    into->pace.barriers = ru_rng_below(&r, 2) == 0 ? 2 + ru_rng_below(&r, 6) : 0;
    into->pace.barriers_differ = ru_rng_below(&r, 2) == 0;
    if (!into->pace.ahead || ru_rng_below(&r, 2) == 0) {
        return;
    }
    into->aims[0] = (ru_sim_aim){.moment = moments[ru_rng_below(&r, RU_ARRAY_LEN(moments))],
                                 .nth = ru_rng_below(&r, 20),
                                 .after_ns = ru_rng_below(&r, 400000),
                                 .how = hows[ru_rng_below(&r, RU_ARRAY_LEN(hows))],
                                 .other = ru_rng_below(&r, 2) == 0};
    if (ru_rng_below(&r, 2) == 0) {
        into->aims[0].how = RU_SIM_CRASH;
        into->aims[1] = (ru_sim_aim){.moment = RU_SIM_AT_UNDO,
                                     .after_ns = ru_rng_below(&r, 200000),
                                     .how = hows[ru_rng_below(&r, RU_ARRAY_LEN(hows))],
                                     .other = ru_rng_below(&r, 2) == 0};
    }
}

void ru_sim_job_draw(uint64_t seed, ru_sim_job *into)
{
    static const double rates[] = {5e6, 125e6, 1.25e9, 12.5e9};
    static const int64_t pieces[] = {64, 256, 1024}; /* a joiner needs many, some or a few steps */
    ru_rng r = ru_rng_from(seed, ru_rng_label("draw"));
    *into = (ru_sim_job){.seed = seed,
                         .founders = ru_rng_below(&r, 2) == 0 ? 8 : 2 + ru_rng_below(&r, 7),
                         .joiners = ru_rng_below(&r, 4),
                         .leavers = ru_rng_below(&r, 4) == 0 ? 1 + ru_rng_below(&r, 2) : 0,
                         .returns = ru_rng_below(&r, 2) == 0,
                         .slowest = ru_rng_below(&r, 4) == 0 ? 0.3 : 0,
                         .probe_bytes = 64 << 10,
                         .per_host = 1 + ru_rng_below(&r, 3),
                         .join_from_ns = 20 * MS,
                         .join_to_ns = 600 * MS,
                         .steps = 20 + ru_rng_below(&r, 30),
                         .batch = 16 + ru_rng_below(&r, 48),
                         .deterministic = ru_rng_below(&r, 4) == 0,
                         .nic = {.bytes_per_s = rates[ru_rng_below(&r, RU_ARRAY_LEN(rates))],
                                 .delay_ns = 1000 + ru_rng_below(&r, 100000)},
                         .sample_ns = MS,
                         .pace.noise = 0.1,
                         .cuts = {.bytes = seed % 3 == 0 ? 64 : 0,
                                  .flight = (uint32_t)(seed / 3 % 5),
                                  .algo = (uint32_t)(seed / 15 % 8)},
                         .chaos_ns = 2000 * MS,
                         .time_max_ns = 90000 * MS,
                         .events_max = 50000000};
    ru_sim_chaos *c = &into->chaos;
    const double much = 1 + 3 * ru_rng_f64(&r);
    c->crash_per_s = ru_rng_below(&r, 4) != 0 ? much : 0;
    c->vanish_per_s = ru_rng_below(&r, 4) == 0 ? 0.5 : 0;
    c->freeze_per_s = ru_rng_below(&r, 2) == 0 ? 2 * much : 0;
    c->cut_per_s = ru_rng_below(&r, 2) == 0 ? 2 * much : 0;
    c->isolate_per_s = ru_rng_below(&r, 4) == 0 ? much : 0;
    c->slow_per_s = ru_rng_below(&r, 2) == 0 ? 2 * much : 0;
    c->half_open_per_s = ru_rng_below(&r, 4) == 0 ? 1 : 0;
    c->jitter_ns = ru_rng_below(&r, 2) == 0 ? MS / 2 : 0;
    c->keep_alive = 1 + into->founders / 2;
    if (ru_rng_below(&r, 8) == 0) {
        c->fail_operation = 1 + ru_rng_below(&r, 2000);
    }
    draw_aims(&r, into);
    draw_sleep(seed, &into->aims[SHORT_AIMS]);
    into->join_part = 1e-4;
    into->piece_bytes = pieces[ru_rng_below(&r, RU_ARRAY_LEN(pieces))];
    draw_ahead(seed, into);
    bool batches = seed >= RU_SIM_BATCH_FROM;
    if (seed >= RU_SIM_BULK_FROM && (!batches || seed % 4 == 0)) {
        draw_bulk(seed, into);
    }
    if (batches) {
        draw_batches(seed, into);
    }
    if (seed >= RU_SIM_PROGRAM_FROM) {
        into->pace.program = true;
        into->pace.ahead = false;
    } else if (seed >= RU_SIM_SERVERS_FROM) {
        into->pace.servers = 1 + (uint32_t)(seed % 3);
    }
}
