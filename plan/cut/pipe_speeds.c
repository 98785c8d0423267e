/* The best straight pipeline of workers of unequal speed. Worker k has stage k, so a stage takes
 * another time wherever it stands, and the search of equal units (pipe_search.c) does not do.
 * best[k, j] is the least bottleneck of stages 0 .. k that have the layers of cut j. */
#include <math.h>

#include "plan/cut/pipe_impl.h"

static double stage_s(const ru_pipe_in *in, const rui_pipe_cuts *c, uint32_t k, uint32_t i,
                      uint32_t j)
{
    return (c->compute_s[j] - c->compute_s[i]) / in->speeds[k];
}

static bool fits(const ru_pipe_in *in, const rui_pipe_cuts *c, uint32_t k, uint32_t i, uint32_t j)
{
    double bytes =
        ru_cost_pipe_memory_bytes(in->model, c->param_bytes[j] - c->param_bytes[i],
                                  c->activation_bytes[j] - c->activation_bytes[i],
                                  ru_cost_pipe_in_flight(1, in->n_speeds - 1 - k), in->state);
    return in->memory_bytes <= 0 || bytes <= in->memory_bytes;
}

ru_status rui_pipe_search_speeds(const ru_pipe_in *in, const rui_pipe_cuts *c, ru_arena *scratch,
                                 rui_pipe_parts *parts, double *minibatch_s, ru_err *err)
{
    const ru_pipe_cost cost = {in->model, in->levels[0].bytes_per_s, 1, in->compression,
                               in->overlap};
    uint32_t n = in->n_speeds, wide = c->n + 1;
    double *best = RU_NEW(scratch, double, (int64_t)n *wide);
    uint32_t *from = RU_NEW(scratch, uint32_t, (int64_t)n * wide);
    if (best == NULL || from == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u cuts on %u workers", c->n, n);
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t j = 0; j <= c->n; j++) {
            double *at = &best[(uint64_t)k * wide + j];
            *at = INFINITY;
            for (uint32_t i = k > 0 ? 1 : 0; i < (k > 0 || j == 0 ? j : 1); i++) {
                double s = stage_s(in, c, k, i, j);
                if (k > 0) {
                    s = fmax(s, best[(uint64_t)(k - 1) * wide + i]);
                    s = fmax(s, ru_cost_pipe_boundary_s(&cost, c->cut_bytes[i], 1, 1));
                }
                if (s < *at && rui_pipe_cuts_nest(c, i, j) && fits(in, c, k, i, j)) {
                    *at = s;
                    from[(uint64_t)k * wide + j] = i;
                }
            }
        }
    }
    *minibatch_s = best[(uint64_t)n * wide - 1];
    if (isinf(*minibatch_s)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no pipeline of %u layers on %u workers%s", in->n, n,
                       in->memory_bytes > 0 ? " fits into the memory"
                                            : ": one stage a worker needs more layers");
    }
    for (uint32_t k = 0; k < n; k++) {
        if (rui_pipe_parts_push(parts, scratch) == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for the stages of a pipeline");
        }
    }
    for (uint32_t k = n, j = c->n; k-- > 0;) {
        uint32_t i = from[(uint64_t)k * wide + j];
        parts->at[parts->n - n + k] = (ru_pipe_part){0, 1, i, j, stage_s(in, c, k, i, j)};
        j = i;
    }
    return RU_OK;
}
