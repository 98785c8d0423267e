/* What many transient members cost: params-crowd [MEMBERS [CLOCKS]]. One reliable member, and all
 * others serve and compute; half of them fall silent at once. In the simulator: virtual times, and
 * the processor time of all members together. */
#include <stdio.h>
#include <stdlib.h>

#include "env/clock.h"
#include "lab/worlds/params_world.h"

int main(int argc, char **argv)
{
    uint32_t members = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100;
    uint32_t clocks = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 20;
    const ru_params_event half = {
        .ns = 5000000000, .what = RU_PARAMS_VANISH, .first = 1, .n = members / 2};
    ru_params_job job = {.seed = 3,
                         .founders = members,
                         .reliable = 1,
                         .executors = members,
                         .shards = 128,
                         .clocks = clocks,
                         .rule = RU_APP_ADAGRAD,
                         .task_ns = 300000000,
                         .timed = true,
                         .stages = RU_ENGINE_STAGES + RU_STAGE_TWO};
    for (uint32_t k = 0; k < 2; k++) {
        ru_params_result r;
        ru_err err = {0};
        job.event = &half;
        job.n_events = k;
        int64_t begin_ns = ru_clock_cpu_ns();
        if (ru_params_run(&job, &r, &err) != RU_OK || r.status != RU_OK || !r.ended) {
            (void)printf("%s%s%s\n", err.text, r.text, r.ended ? "" : "; it did not end");
            return 1;
        }
        double cpu_s = 1e-9 * (double)(ru_clock_cpu_ns() - begin_ns);
        double all_s = 1e-9 * (double)ru_time_since(r.done, r.begun);
        (void)printf(
            "%u members%s: %.3f s a clock, longest %.3f s, %u generations from copies, "
            "idle %.3f s; in a clock %.3f ms of a core for each member, and %.2f ms and %.0f "
            "frames for the first one\n",
            members, k > 0 ? ", half of them vanish" : "", all_s / clocks, 1e-9 * (double)r.gap_ns,
            r.from_copies, 1e-9 * (double)r.idle_ns, 1e3 * cpu_s / clocks / members,
            1e-6 * (double)r.first_cpu_ns / clocks, (double)r.first_frames / clocks);
        ru_params_result_fini(&r);
    }
    return 0;
}
