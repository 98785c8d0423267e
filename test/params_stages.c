/* Jobs with shared parameters on reliable machines and on machines that are taken away. */
#include "test/params_world.h"

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
