#include "train/pipe/order.h"

#include <stddef.h>

#include "base/status.h"

enum { MANY = 1 << 24 }; /* micro-batches: more than any stage has in flight */

const char *const ru_pipe_schedule_names[5] = {"flush", "gpipe", "stash", "vertical", "2bw"};

bool ru_pipe_flows_on(ru_pipe_schedule schedule)
{
    return schedule == RU_PIPE_SCHEDULE_STASH || schedule == RU_PIPE_SCHEDULE_VERTICAL ||
           schedule == RU_PIPE_SCHEDULE_2BW;
}

uint32_t ru_pipe_micro(ru_pipe_schedule schedule, uint32_t micro)
{
    return ru_pipe_flows_on(schedule) && schedule != RU_PIPE_SCHEDULE_2BW ? 1 : micro;
}

uint32_t ru_pipe_late(ru_pipe_schedule schedule, uint32_t stage, uint32_t n)
{
    return schedule == RU_PIPE_SCHEDULE_STASH      ? n - 1 - stage
           : schedule == RU_PIPE_SCHEDULE_VERTICAL ? n - 1
           : schedule == RU_PIPE_SCHEDULE_2BW      ? 1
                                                   : 0;
}

uint32_t ru_pipe_versions(ru_pipe_schedule schedule, uint32_t stage, uint32_t n)
{
    uint32_t late = ru_pipe_late(schedule, stage, n);
    return schedule == RU_PIPE_SCHEDULE_2BW ? 2 : late > 0 ? late + 2 : 1;
}

static uint32_t workers_of(const uint32_t *workers, uint32_t stage)
{
    return workers != NULL ? workers[stage] : 1;
}

uint32_t ru_pipe_in_flight(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t stage,
                           uint32_t n, uint32_t micro)
{
    RU_CHECK(stage < n);
    uint32_t own = micro / workers_of(workers, stage), behind = 0, ahead = 1;
    if (ru_pipe_flows_on(schedule) && schedule != RU_PIPE_SCHEDULE_2BW) {
        return n - stage;
    }
    for (uint32_t k = n; k-- > stage;) { /* the stage behind has all that it is ahead by */
        uint32_t m = workers_of(workers, k);
        ahead = behind / m + (behind % m != 0) + 1;
        behind = ahead < micro ? ahead * m : micro;
    }
    return schedule == RU_PIPE_SCHEDULE_GPIPE || own < ahead ? own : ahead;
}

uint32_t ru_pipe_micro_min(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t n)
{
    uint32_t most = 1;
    for (uint32_t k = 0; k < n && schedule == RU_PIPE_SCHEDULE_2BW; k++) {
        uint32_t x = ru_pipe_in_flight(schedule, workers, k, n, MANY) * workers_of(workers, k);
        most = x > most ? x : most;
    }
    return most;
}

void ru_pipe_order(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t stage,
                   uint32_t replica, uint32_t n, uint32_t micro, ru_pipe_act *at)
{
    uint32_t m = workers_of(workers, stage), own = micro / m, forward = 0, back = 0;
    uint32_t ahead = ru_pipe_in_flight(schedule, workers, stage, n, micro);
    RU_CHECK(replica < m && own * m == micro);
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
