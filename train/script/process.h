/* One real process of a job whose device is a script: it sends everything over real links and
 * computes nothing. Channel, membership, collectives and elastic training are those of a real job;
 * the device sleeps until absolute instants, so that a late wake-up does not make a step longer.
 *
 * Gradients have memory, since the collectives add them; state is not kept. With `check` each
 * process fills its gradients with a number of its own and looks at every sum.
 *
 * Thread: one, which runs the loop. */
#ifndef RU_TRAIN_SCRIPT_PROCESS_H
#define RU_TRAIN_SCRIPT_PROCESS_H

#include "cost/step/coll.h"
#include "plan/net/sums_live.h"
#include "train/script/script.h"

typedef struct ru_script_run_options {
    const ru_script *script;
    int64_t batch, steps; /* of the job */
    uint32_t founders;    /* processes before the first step */
    uint32_t number;      /* of this one, from 1 */
    const char *listen;   /* HOST:PORT; NULL: loopback, any port */
    const char *join;     /* address of the first process; NULL: it is this one */
    const uint8_t *token;
    uint32_t token_bytes;
    bool equal_shares, deterministic;
    ru_sums_method sums; /* before anything is measured */
    /* [n_table] sums of all views; NULL: those of `sums`. flight: at most so many of them are under
     * way; 0: all that are ready. barrier: why each step waits for all of
     * them, a constant; NULL: with `ahead` two steps may be under way. */
    const ru_sums_cut *table;
    uint32_t n_table, flight;
    const char *barrier;
    bool ahead;
    bool serial; /* a gradient is summed when the one before is, the first when all are made */
    bool check;  /* while all founders are there */
    int64_t *commit_ns; /* [steps] into: when each step counted, by the clock; NULL: not wanted */
    /* It listens there now. May be NULL. */
    void (*address)(void *self, const char *address);
    void *self;
} ru_script_run_options;

typedef struct ru_script_run_result {
    int64_t committed;
    int64_t
        step_ns; /* mean of committed steps, from the first commit to the last; 0: fewer than 2 */
    uint32_t members;
    ru_coll_cost costs[RU_COLL_ALGOS]; /* as measured at the start; n_points 0: not */
} ru_script_run_result;

/* Until the job has ended. Errors: RU_E_MEM, RU_E_PEER, those of the link; RU_E_DATA for a wrong
 * sum. */
RU_MUST_USE ru_status ru_script_run(const ru_script_run_options *opt, ru_script_run_result *into,
                                    ru_err *err);

#endif
