/* Eight processes that become slow: time until the last clock, over that of all work spread freely,
 * for each order and method; and the part of the items that others worked on.
 * params-stragglers SEEDS CLOCKS */
#include <stdio.h>
#include <stdlib.h>

#include "test/params_app.h"

enum { PROCESSES = 8, CLOCK_NS = 1000000000 };

typedef struct rival {
    const char *name;
    uint32_t driver, slack, stragglers;
} rival;

static const rival rivals[] = {
    {"bsp", RU_ENGINE_BSP, 0, RU_ENGINE_WAIT},
    {"ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_WAIT},
    {"ssp 3", RU_ENGINE_SSP, 3, RU_ENGINE_WAIT},
    {"reassign, bsp", RU_ENGINE_BSP, 0, RU_ENGINE_REASSIGN},
    {"reassign, ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_REASSIGN},
    {"paper, ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_PAPER},
    {"steal, ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_STEAL},
};

static bool run(const ru_params_job *job, double *over, double *helped)
{
    const ru_params_speeds speeds = {job->seed, job->pattern};
    ru_params_result r;
    ru_err err = {0};
    ru_status st = ru_params_run(job, &r, &err);
    bool ok = st == RU_OK && r.ended && ru_params_item_wrong(job, &r) == 0;
    if (ok) {
        double work_ns = (double)PROCESSES * job->clocks * CLOCK_NS;
        *over += (double)(r.done.ns - r.begun.ns) /
                 ru_params_ideal_ns(&speeds, PROCESSES, r.begun.ns, work_ns);
        *helped += (double)r.helped / ((double)PROCESSES * job->clocks * RU_PARAMS_SLICED);
    } else {
        (void)printf("seed %llu: %s%s\n", (unsigned long long)job->seed, err.text, r.text);
    }
    ru_params_result_fini(&r);
    return ok;
}

int main(int argc, char **argv)
{
    static const char *const patterns[RU_PARAMS_PATTERNS] = {"even", "slow", "disrupted",
                                                             "power law", "half at half speed"};
    uint32_t seeds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2;
    uint32_t clocks = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 12;
    bool ok = true;
    for (uint32_t p = RU_PARAMS_SLOW; p < RU_PARAMS_PATTERNS; p++) {
        (void)printf("%s\n", patterns[p]);
        for (uint32_t k = 0; k < RU_ARRAY_LEN(rivals); k++) {
            double over = 0, helped = 0;
            for (uint32_t s = 1; s <= seeds; s++) {
                const ru_params_job job = {.seed = s,
                                           .founders = PROCESSES,
                                           .executors = PROCESSES,
                                           .shards = PROCESSES,
                                           .clocks = clocks,
                                           .task_ns = CLOCK_NS,
                                           .divided = true,
                                           .pattern = (ru_params_pattern)p,
                                           .driver = rivals[k].driver,
                                           .slack = rivals[k].slack,
                                           .stragglers = rivals[k].stragglers,
                                           .limit_ns = INT64_C(10) * CLOCK_NS * clocks};
                ok = run(&job, &over, &helped) && ok;
            }
            (void)printf("  %-16s %.3f of the ideal, %2.0f %% helped\n", rivals[k].name,
                         over / seeds, 100 * helped / seeds);
        }
    }
    return ok ? 0 : 1;
}
