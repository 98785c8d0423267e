#include "train/pipe/order.h"

#include "base/status.h"

uint32_t ru_pipe_in_flight(ru_pipe_schedule schedule, uint32_t stage, uint32_t n, uint32_t micro)
{
    RU_CHECK(stage < n);
    bool all = schedule == RU_PIPE_SCHEDULE_GPIPE || micro < n - stage;
    return all ? micro : n - stage;
}

void ru_pipe_order(ru_pipe_schedule schedule, uint32_t stage, uint32_t n, uint32_t micro,
                   ru_pipe_act *at)
{
    uint32_t ahead = ru_pipe_in_flight(schedule, stage, n, micro), forward = 0, back = 0;
    for (uint32_t k = 0; k < 2 * micro; k++) {
        bool more = forward < micro && forward - back < ahead;
        at[k] = (ru_pipe_act){.micro = more ? forward : back, .back = !more};
        forward += more;
        back += !more;
    }
}
