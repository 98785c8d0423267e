#include "cost/pipe.h"

#include "base/status.h"

ru_pipe_rate ru_cost_pipe_rate(const ru_pipe_cost *c, uint32_t m, bool first)
{
    double others = (double)m - 1, per_byte = 1 / c->bytes_per_s;
    ru_pipe_rate r = {.share = 1.0 / m};
    switch (c->model) {
    case RU_PIPE_REPO:
        r.sync_s_per_byte = 4 * others * per_byte / m / (first ? c->inner : 1);
        r.beta = 1;
        break;
    case RU_PIPE_PAPER:
        r.sync_s_per_byte = 2 * others * per_byte;
        break;
    case RU_PIPE_CALIBRATED:
        r.sync_s_per_byte = 2 * others * per_byte / m;
        r.beta = 1 - c->overlap;
        break;
    }
    return r;
}

double ru_cost_pipe_boundary_s(const ru_pipe_cost *c, double cut_bytes, uint32_t left,
                               uint32_t right)
{
    if (c->compression <= 0) {
        return 0;
    }
    double links = c->model == RU_PIPE_PAPER ? 1 : right;
    links = c->model == RU_PIPE_CALIBRATED && left < right ? left : links;
    return 2 * cut_bytes / (c->bytes_per_s * links * c->compression);
}

double ru_cost_pipe_behind_s(const ru_pipe_cost *c, double cut_bytes, uint32_t m)
{
    bool counts = c->model == RU_PIPE_REPO && c->compression > 0;
    return counts ? 2 * cut_bytes / (c->bytes_per_s * m * c->compression) : 0;
}

uint32_t ru_cost_pipe_in_flight(uint32_t m, uint32_t behind)
{
    RU_CHECK(m > 0);
    return behind / m + (behind % m != 0 ? 1 : 0) + 1;
}

double ru_cost_pipe_memory_bytes(ru_pipe_model model, double param_bytes, double activation_bytes,
                                 uint32_t in_flight, double state)
{
    RU_CHECK(in_flight > 0);
    if (model == RU_PIPE_REPO) {
        return (in_flight - 1.0) * (param_bytes + activation_bytes);
    }
    return in_flight * (param_bytes + activation_bytes) + state * param_bytes;
}
