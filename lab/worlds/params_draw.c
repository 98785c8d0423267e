/* The jobs of seeds: with faults, with executors that help each other, on machines that are taken
 * away. */
#include "lab/worlds/params_world.h"

void ru_params_draw(uint64_t seed, ru_params_job *job)
{
    ru_rng r = ru_rng_from(seed, 77);
    *job = (ru_params_job){.seed = seed};
    job->founders = 1 + ru_rng_below(&r, 5);
    job->later = ru_rng_below(&r, 4);
    job->rotate = ru_rng_below(&r, 3) == 0;
    job->drive = ru_rng_below(&r, 4) == 0;
    job->executors = job->rotate ? 2 + ru_rng_below(&r, 4) : 1 + ru_rng_below(&r, 10);
    job->shards = 1 + ru_rng_below(&r, 12);
    job->clocks = 10 + ru_rng_below(&r, 60);
    job->driver = job->rotate || job->drive ? RU_ENGINE_BSP : ru_rng_below(&r, 3);
    job->slack = ru_rng_below(&r, 4);
    job->save_every = ru_rng_below(&r, 4) == 0 ? 0 : 1 + ru_rng_below(&r, 12);
    job->save_ns = job->save_every == 0 ? 50000000 : 0;
    job->rule = ru_rng_below(&r, 5);
    job->task_ns = 500000 + (int64_t)ru_rng_below(&r, 20000000);
    job->move_every_ns = ru_rng_below(&r, 2) == 0 ? 2000000 + ru_rng_below(&r, 60000000) : 0;
    job->leave_ns = job->later > 0 && ru_rng_below(&r, 3) == 0 ? 400000000 : 0;
    job->leader_leaves = ru_rng_below(&r, 2) == 0;
    ru_rng q = ru_rng_from(seed, 78);
    job->partial = ru_rng_below(&q, 2) == 0;
    job->recover = ru_rng_below(&q, 4) == 0 ? RU_RECOVER_PARTIAL : RU_RECOVER_NEWEST;
    job->save_method = ru_rng_below(&q, RU_SAVE_NONE + 1);
    job->save_clocks = 1 + ru_rng_below(&q, 8);
    double hard = ru_rng_f64(&r);
    job->chaos = (ru_sim_chaos){.crash_per_s = ru_rng_below(&r, 2) * hard,
                                .vanish_per_s = ru_rng_below(&r, 2) * hard,
                                .freeze_per_s = ru_rng_below(&r, 2) * hard * 2,
                                .cut_per_s = ru_rng_below(&r, 2) * hard * 4,
                                .isolate_per_s = ru_rng_below(&r, 2) * hard,
                                .slow_per_s = ru_rng_below(&r, 2) * hard,
                                .half_open_per_s = ru_rng_below(&r, 2) * hard * 2,
                                .jitter_ns = 1 + (int64_t)ru_rng_below(&r, 2000000),
                                .keep_alive = job->founders + job->later > 2 ? 3 : 8,
                                .until = {INT64_C(5000000000)}};
}

void ru_params_draw_sliced(uint64_t seed, ru_params_job *job)
{
    ru_params_draw(seed, job);
    ru_rng r = ru_rng_from(seed, 78);
    job->divided = true;
    job->stragglers = 1 + ru_rng_below(&r, 3);
    job->rotate = job->drive = false;
    job->driver = ru_rng_below(&r, 3);
    ru_rng q = ru_rng_from(seed, 79);
    job->partial = job->driver == RU_ENGINE_BSP && ru_rng_below(&q, 2) == 0;
    job->executors = 2 + ru_rng_below(&r, 9);
    job->clocks = 5 + ru_rng_below(&r, 25);
    job->task_ns = 20000000 + (int64_t)ru_rng_below(&r, 200000000);
}

void ru_params_draw_backup(uint64_t seed, ru_params_job *job)
{
    ru_params_draw_sliced(seed, job);
    ru_rng r = ru_rng_from(seed, 80);
    job->stragglers = RU_ENGINE_BACKUP;
    job->driver = RU_ENGINE_BSP;
    job->partial = false;
    job->clocks = 8 + ru_rng_below(&r, 13);
    job->backup = 1 + ru_rng_below(&r, job->executors < 4 ? 1 : 3);
}

void ru_params_draw_counted(uint64_t seed, ru_params_job *job)
{
    ru_params_draw(seed, job);
    ru_rng r = ru_rng_from(seed, 81);
    job->counted = job->partial = true;
    job->rotate = ru_rng_below(&r, 2) == 0;
    job->drive = ru_rng_below(&r, 3) == 0;
    job->driver = job->rotate || job->drive ? RU_ENGINE_BSP : ru_rng_below(&r, 2);
    job->executors = 1 + ru_rng_below(&r, 8);
    job->save_every = ru_rng_below(&r, 2) == 0 ? 0 : 1 + ru_rng_below(&r, 12);
}

static ru_params_event draw_event(ru_rng *r, const ru_params_job *job, uint32_t n_now)
{
    uint32_t from = job->reliable, n = n_now > from ? n_now - from : 1;
    ru_params_event x = {.ns = 200000000 + (int64_t)ru_rng_below(r, 2500000000),
                         .first = from + ru_rng_below(r, n)};
    x.n = 1 + ru_rng_below(r, n_now > x.first ? n_now - x.first : 1);
    if (ru_rng_below(r, 3) == 0) { /* all of them */
        x.first = from;
        x.n = n;
    }
    x.what = (ru_params_what)(RU_PARAMS_LEAVE + ru_rng_below(r, 3));
    return x;
}

void ru_params_draw_staged(uint64_t seed, ru_params_job *job, ru_params_events *events)
{
    ru_params_draw(seed, job);
    ru_rng r = ru_rng_from(seed, 79);
    job->reliable = 1 + ru_rng_below(&r, 3);
    job->founders = job->reliable + ru_rng_below(&r, 5);
    job->later = ru_rng_below(&r, 5);
    job->stages = RU_ENGINE_STAGES + ru_rng_below(&r, RU_STAGE_THREE + 1);
    job->driver = ru_rng_below(&r, 4) == 0 ? job->driver : RU_ENGINE_BSP;
    job->leave_ns = 0;
    job->task_ns = 1000000 + (int64_t)ru_rng_below(&r, 30000000);
    job->n_events = ru_rng_below(&r, 5);
    for (uint32_t i = 0; i < job->n_events; i++) {
        events->at[i] = draw_event(&r, job, job->founders + job->later);
    }
    if (job->later > 1 && ru_rng_below(&r, 2) == 0) { /* all at once */
        events->at[job->n_events++] =
            (ru_params_event){.ns = 100000000 + (int64_t)ru_rng_below(&r, 600000000),
                              .what = RU_PARAMS_JOIN,
                              .first = job->founders,
                              .n = job->later};
    }
    job->event = events->at;
    if (ru_rng_below(&r, 2) == 0) { /* nobody else dies */
        job->chaos = (ru_sim_chaos){.jitter_ns = 1 + (int64_t)ru_rng_below(&r, 2000000),
                                    .cut_per_s = ru_rng_below(&r, 2) * 2.0,
                                    .half_open_per_s = ru_rng_below(&r, 2) * 1.0,
                                    .keep_alive = 64,
                                    .until = {INT64_C(5000000000)}};
    } else {
        job->chaos.keep_alive = 3;
    }
}
