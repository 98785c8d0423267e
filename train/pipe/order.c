#include "train/pipe/order.h"

#include <stddef.h>

#include "base/status.h"

const char *const ru_pipe_schedule_names[5] = {"flush", "gpipe", "stash", "vertical", "2bw"};

bool ru_pipe_flows_on(ru_pipe_schedule schedule)
{
    return schedule == RU_PIPE_SCHEDULE_STASH || schedule == RU_PIPE_SCHEDULE_VERTICAL ||
           schedule == RU_PIPE_SCHEDULE_2BW;
}

bool ru_pipe_whole(const ru_pipe_shape *p)
{
    return ru_pipe_flows_on(p->schedule) && p->schedule != RU_PIPE_SCHEDULE_2BW && p->micro == 1;
}

static uint32_t workers_of(const ru_pipe_shape *p, uint32_t stage)
{
    return p->workers != NULL ? p->workers[stage] : 1;
}

uint32_t ru_pipe_in_flight(const ru_pipe_shape *p, uint32_t stage)
{
    RU_CHECK(stage < p->n);
    bool on = ru_pipe_flows_on(p->schedule);
    uint32_t own = p->micro / workers_of(p, stage), behind = 0, ahead = 1;
    for (uint32_t k = p->n; k-- > stage;) { /* the stage behind has all that it is ahead by */
        uint32_t m = workers_of(p, k);
        ahead = behind / m + (behind % m != 0) + 1;
        behind = on || ahead < p->micro ? ahead * m : p->micro;
    }
    return p->schedule == RU_PIPE_SCHEDULE_GPIPE || (!on && own < ahead) ? own : ahead;
}

uint32_t ru_pipe_micro_min(const ru_pipe_shape *p)
{
    uint32_t most = 1;
    for (uint32_t k = 0; k < p->n && p->schedule == RU_PIPE_SCHEDULE_2BW; k++) {
        uint32_t x = ru_pipe_in_flight(p, k) * workers_of(p, k);
        most = x > most ? x : most;
    }
    return most;
}

/* What the workers of the stage have gone ahead by when a micro-batch goes forward, in steps; the
 * first stage is furthest ahead. */
uint32_t ru_pipe_late(const ru_pipe_shape *p, uint32_t stage)
{
    uint32_t of = p->schedule == RU_PIPE_SCHEDULE_STASH ? stage : 0;
    uint32_t before = (ru_pipe_in_flight(p, of) - 1) * workers_of(p, of);
    return !ru_pipe_flows_on(p->schedule)        ? 0
           : p->schedule == RU_PIPE_SCHEDULE_2BW ? 1
                                                 : before / p->micro + (before % p->micro != 0);
}

/* Of stash each micro-batch in flight has its own, of others each version is there once; but of
 * whole minibatches those that come next have theirs already. */
uint32_t ru_pipe_versions(const ru_pipe_shape *p, uint32_t stage)
{
    uint32_t late = ru_pipe_late(p, stage);
    bool stash = p->schedule == RU_PIPE_SCHEDULE_STASH;
    return late == 0 ? 1 : stash ? ru_pipe_in_flight(p, stage) + 1 : late + 1 + ru_pipe_whole(p);
}

int64_t ru_pipe_version(const ru_pipe_shape *p, uint32_t stage, int64_t step, uint32_t j,
                        int64_t drained)
{
    int64_t m = workers_of(p, stage), own = p->micro / m, after = step - ru_pipe_late(p, stage);
    if (p->schedule == RU_PIPE_SCHEDULE_STASH) { /* so many of its worker's went back before it */
        int64_t back = step * own + j / m + 1 - ru_pipe_in_flight(p, stage);
        after = back > 0 ? back / own : 0;
    }
    return after > drained ? after : drained;
}

void ru_pipe_order(const ru_pipe_shape *p, uint32_t stage, uint32_t replica, ru_pipe_act *at)
{
    uint32_t m = workers_of(p, stage), own = p->micro / m, forward = 0, back = 0;
    uint32_t ahead = ru_pipe_in_flight(p, stage);
    RU_CHECK(replica < m && own * m == p->micro);
    for (uint32_t k = 0; k < 2 * own; k++) {
        bool more = forward < own && forward - back < ahead;
        at[k] = (ru_pipe_act){.micro = (more ? forward : back) * m + replica, .back = !more};
        forward += more;
        back += !more;
    }
}

void ru_pipe_order_placed(uint32_t n, const uint32_t *back, uint32_t micro, ru_pipe_act *at)
{
    for (uint32_t k = 0; k < 2 * n * micro; k++) {
        uint32_t i = k % (2 * n);
        bool goes_back = i >= n;
        at[k] = (ru_pipe_act){
            .micro = k / (2 * n), .back = goes_back, .part = goes_back ? back[i - n] : i};
    }
}
