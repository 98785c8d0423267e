/* A job of three workers in the simulator, one of which says anything to the others: what the
 * machines of membership, training and collectives and the owner of the process hear. */
#include <stddef.h>

#include "lab/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 6) {
        return 0;
    }
    const ru_sim_job job = {.seed = 1 + data[size - 1] % 4,
                            .founders = 3,
                            .steps = 60,
                            .batch = 6,
                            .n_tensors = 3,
                            .sample_ns = 300000,
                            .nic = {.bytes_per_s = 1.25e9, .delay_ns = 20000},
                            .probe_bytes = 8192,      /* or most of a run goes into sums of MiB */
                            .time_max_ns = 300000000, /* some 900 words */
                            .events_max = 2000000,
                            .mad = data,
                            .mad_bytes = (int64_t)size};
    ru_sim_job_result r;
    ru_err err;
    (void)(ru_sim_job_run(&job, &r, &err) == RU_OK);
    return 0;
}
