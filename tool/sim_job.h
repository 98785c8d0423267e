/* A whole elastic training job in the simulator: the code that ships (train/peer and all below it)
 * on simulated links and devices, checked against one process that trains alone.
 *
 * Real jobs hold small parameters made of whole numbers, so that sums of floats are exact: every
 * sample adds its own numbers to every gradient, an update mixes parameters and optimizer slots,
 * and after each committed step every process must hold bit for bit what one process alone holds.
 * Counted jobs move the same bytes without memory behind them.
 *
 * Checked after every event: epochs never go back, one leader and one member list per epoch, the
 * device is called in a legal order. At the end: everybody who lives has ended, and the job is
 * done.
 *
 * Thread: one. */
#ifndef RU_TOOL_SIM_JOB_H
#define RU_TOOL_SIM_JOB_H

#include "sim/sim.h"

enum { RU_SIM_JOB_TENSORS_MAX = 64 };

typedef struct ru_sim_job {
    uint64_t seed;
    uint32_t founders;
    uint32_t joiners;  /* come at random times between join_from and join_to */
    uint32_t per_host; /* workers of one host; 0: 1 */
    int64_t join_from_ns, join_to_ns;
    int64_t steps, batch;
    uint32_t n_tensors;
    int64_t tensor_n[RU_SIM_JOB_TENSORS_MAX]; /* elements; 0: some small ones by seed */
    bool counted;                             /* no memory behind tensors */
    bool deterministic;
    int64_t fuse_bytes, chunk_bytes; /* 0: as a job without them */
    ru_sim_nic nic;                  /* of every worker; host is set here */
    int64_t sample_ns;               /* forward and backward of one sample */
    double noise;                    /* relative deviation of a step's time */
    uint32_t ready_groups; /* gradients become ready in so many portions; 0: each by itself */
    ru_sim_chaos chaos;    /* starts with the first committed step */
    int64_t chaos_ns;      /* faults begin no later than this after it */
    int64_t time_max_ns;   /* virtual; a job still running then is stuck */
    int64_t events_max;
    const char *replay; /* command that runs it again; NULL: by its seed */
    bool say;           /* every log line, fault and event of the job on stderr */
} ru_sim_job;

typedef struct ru_sim_job_result {
    int64_t events, time_ns; /* virtual */
    uint64_t hash;           /* of all events: equal for equal seeds */
    int64_t committed;
    uint32_t faults, epochs, redone, joined, lost, led;
    uint32_t expelled;    /* processes that lived and were cut out */
    int64_t memory_bytes; /* of the simulator itself */
    int64_t step_ns;      /* mean of committed steps, virtual */
} ru_sim_job_result;

/* A job of 2..8 workers with joiners and faults drawn by seed. */
void ru_sim_job_draw(uint64_t seed, ru_sim_job *into);

/* Run it. Errors: RU_E_BUG with what broke, in which process, at what time; RU_E_LIMIT, RU_E_MEM.
 */
RU_MUST_USE ru_status ru_sim_job_run(const ru_sim_job *job, ru_sim_job_result *into, ru_err *err);

/* The command that runs this seed again. */
void ru_sim_job_replay(uint64_t seed, char *into, int64_t size_bytes);

#endif
