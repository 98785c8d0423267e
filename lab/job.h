/* A whole elastic training job in the simulator: the code that ships (train/elastic and all below
 * it) on simulated links and devices, checked against one process that trains alone.
 *
 * Real jobs hold small parameters made of whole numbers, so that sums of floats are exact: every
 * sample adds its own numbers to every gradient, an update mixes parameters and optimizer slots,
 * and after each committed step every process must hold bit for bit what one process alone holds.
 * Counted jobs move the same bytes without memory behind them.
 *
 * Checked after every event: epochs never go back, one leader and one member list per epoch, one
 * process commits in an epoch, the device is called in a legal order. All the time: nobody waits
 * longer than 5 s without a line that says so. At the end: everybody who lives has ended, and the
 * job is done; or no majority of its newest view is left by a count of its own, and all that live
 * say so.
 *
 * Thread: one. */
#ifndef RU_LAB_JOB_H
#define RU_LAB_JOB_H

#include "sim/sim.h"
#include "train/elastic/elastic.h"
#include "train/script/script.h"

/* X(name, what happened, for people): counted over a job; a sweep of seeds in which one of them
 * never happened has tested less than it claims. */
#define RU_SIM_SEEN_LIST(X)                                            \
    X(CRASH, "processes killed")                                       \
    X(VANISH, "machines lost without a word")                          \
    X(FREEZE, "processes frozen")                                      \
    X(SLEEP, "processes asleep for longer than others wait")           \
    X(OVERSLEPT, "processes that woke after the job's end")            \
    X(CUT, "pairs cut")                                                \
    X(ISOLATE, "processes cut off from all others")                    \
    X(BULK, "bulk losses of members without a vote")                   \
    X(BATCH, "steps with another batch than the one before")           \
    X(SLOW, "links slowed")                                            \
    X(HALF_OPEN, "connections half open")                              \
    X(FAIL, "operations failed")                                       \
    X(OVERTAKE, "jobs with frames that overtook others")               \
    X(ELSEWHERE, "payloads sent elsewhere while they arrived")         \
    X(REDIRECT, "joiners told to ask another worker")                  \
    X(JOIN, "processes let in")                                        \
    X(RETURN, "processes started at a dead one's address")             \
    X(JOINER_LOST, "processes lost before they had a share")           \
    X(LEAVE, "members that left in order")                             \
    X(LEADER_LEAVE, "leaders that left in order")                      \
    X(LEADER_STEP, "leaders lost during a step")                       \
    X(LEADER_COMMIT, "leaders lost with a commit on its way")          \
    X(LEADER_PROBE, "leaders lost while collectives were measured")    \
    X(LEADER_VIEW, "leaders lost with a view under way")               \
    X(LEADER_JOIN, "leaders lost with a joiner's view under way")      \
    X(LEADER_STATE, "leaders lost while state moved")                  \
    X(TAKEOVER_LOST, "processes lost while they took over")            \
    X(MEMBER_STEP, "members lost during a step")                       \
    X(MEMBER_COMMIT, "members lost with a commit on its way")          \
    X(MEMBER_PROBE, "members lost while collectives were measured")    \
    X(MEMBER_VIEW, "members lost with a view under way")               \
    X(MEMBER_STATE, "members lost while state moved")                  \
    X(LEADER_DONE, "leaders lost with a step done by some")            \
    X(MEMBER_DONE, "members lost with a step done by some")            \
    X(LEADER_AHEAD, "leaders lost with a step ahead in its gradients") \
    X(MEMBER_AHEAD, "members lost with a step ahead in its gradients") \
    X(LEADER_UNDO, "leaders lost while two steps were given up")       \
    X(MEMBER_UNDO, "members lost while two steps were given up")       \
    X(AHEAD, "steps begun before the commit of the one before")        \
    X(LED, "takeovers")                                                \
    X(REDONE, "steps begun again")                                     \
    X(EXPELLED, "processes cut out alive")                             \
    X(NO_MAJORITY, "jobs that lost their majority and said so")

typedef enum ru_sim_seen {
#define RU_X(name, text) RU_SIM_SEEN_##name,
    RU_SIM_SEEN_LIST(RU_X)
#undef RU_X
        RU_SIM_SEEN_KINDS
} ru_sim_seen;
const char *ru_sim_seen_text(ru_sim_seen k);

/* A fault that does not wait for chance. */
typedef enum ru_sim_moment {
    RU_SIM_NEVER,
    RU_SIM_AT_COMMIT,   /* the leader has committed, others have not */
    RU_SIM_AT_PROBE,    /* collectives are measured */
    RU_SIM_AT_VIEW,     /* a view without new members is under way */
    RU_SIM_AT_JOIN,     /* a view with new members is under way */
    RU_SIM_AT_STATE,    /* state moves to a joiner */
    RU_SIM_AT_TAKEOVER, /* somebody asks for promises, or has not yet put its first view in force */
    RU_SIM_AT_DONE,     /* some are done with a step, others are not */
    RU_SIM_AT_AHEAD, /* somebody has gradients of the step behind the one that is to be committed */
    RU_SIM_AT_UNDO,  /* somebody gives two steps up */
    RU_SIM_MOMENTS
} ru_sim_moment;

typedef struct ru_sim_aim {
    ru_sim_moment moment;
    uint32_t nth;     /* so many of these moments pass before */
    int64_t after_ns; /* from its beginning */
    ru_sim_fault how; /* RU_SIM_CRASH, VANISH, FREEZE, ISOLATE or SLEEP */
    bool other;       /* not who leads or takes over, but another */
    bool bulk;        /* RU_SIM_CRASH, VANISH: all that have no vote, at once */
} ru_sim_aim;

enum { RU_SIM_AIMS = 3 };

/* Seeds from here on draw jobs in which some have no vote, with bulk losses of those. */
#define RU_SIM_BULK_FROM UINT64_C(1000000000)
/* ... and jobs whose global batch changes; in one of four some have no vote as well. */
#define RU_SIM_BATCH_FROM UINT64_C(2000000000)
/* From this seed on members add the gradients of the others. */
#define RU_SIM_SERVERS_FROM UINT64_C(3000000000)
/* ... and jobs whose devices are programs (train/embed/device.h). */
#define RU_SIM_PROGRAM_FROM UINT64_C(4000000000)

enum { RU_SIM_BATCHES = 4 };
typedef struct ru_sim_batch {
    int64_t step, batch; /* of the steps after so many; batch 0: none */
} ru_sim_batch;

/* Where the workers of a simulated job have their samples from; `worker` counts from 0. */
typedef struct ru_sim_input {
    void (*open)(void *self, ru_sim *sim); /* before the first event */
    /* A step wants its samples: `fed` is called with `fed_self` and `arg`, now or later. */
    void (*step)(void *self, uint32_t worker, ru_sim_fn fed, void *fed_self, uint64_t arg);
    /* As in ru_elastic_device_ops. */
    void (*reads)(void *self, uint32_t worker, ru_elastic_reads *into);
    void (*share)(void *self, uint32_t worker, int64_t outstanding_bytes);
    void *self;
} ru_sim_input;

/* How members step. */
typedef struct ru_sim_pace {
    double noise;          /* relative deviation of a step's time */
    uint32_t ready_groups; /* gradients become ready in so many portions; 0: each by itself */
    bool ahead;            /* two steps may be under way */
    bool program;          /* the device is a program (train/embed/device.h); not with `ahead` */
    uint32_t barriers;     /* one step of so many has none behind it; 0: all may */
    bool barriers_differ;  /* ... and each process has its own */
    uint32_t servers;      /* as in ru_elastic_options */
} ru_sim_pace;

/* Each gradient in cuts. */
typedef struct ru_sim_cuts {
    int64_t bytes;   /* of a cut; 0: there is no table */
    uint32_t flight; /* at most so many of them are under way; 0: all that are ready */
    uint32_t algo;   /* cuts of gradient k go by algorithm algo + k, in turn; 0: none is named */
} ru_sim_cuts;

typedef struct ru_sim_job {
    uint64_t seed;
    uint32_t founders;
    uint32_t joiners;  /* come at random times between join_from and join_to */
    uint32_t per_host; /* workers of one host; 0: 1 */
    /* [founders] host of each worker instead of per_host; NULL: none; view. Joiners get new ones.
     */
    const uint32_t *host;
    bool share_wire;     /* the workers of a host share one interface */
    double host_cores;   /* that the workers of a host share; 0: enough for all */
    double worker_cores; /* that each computes on; 0: 1 */
    uint64_t no_vote;    /* bit k: process k, in order of starting, has no vote; not the first */
    bool near;        /* those of a host read each other's gradients; only without faults and while
                         there are several hosts */
    uint32_t leavers; /* members leave in order, at random times in the same span */
    int64_t join_from_ns, join_to_ns;
    int64_t steps, batch;
    ru_sim_batch batches[RU_SIM_BATCHES]; /* other ones later */
    uint32_t n_tensors;
    const int64_t *tensor_n; /* [n_tensors] elements; NULL: some small ones by seed; view */
    bool counted;            /* no memory behind tensors */
    bool deterministic, equal_shares;
    ru_sums_method sums;     /* before anything is measured; CARAMEL: RULE */
    ru_sim_cuts cuts;        /* a table of the owner */
    int64_t chunk_bytes;     /* of a channel; 0: its own choice */
    ru_sim_nic nic;          /* of every worker; host is set here */
    int64_t sample_ns;       /* forward and backward of one sample */
    const ru_script *script; /* instead of tensor_n, sample_ns and portions, counted; NULL:
                                none; view */
    ru_sim_pace pace;
    ru_sim_chaos chaos; /* starts with the first committed step */
    int64_t chaos_ns;   /* faults begin no later than this after it */
    ru_sim_aim aims[RU_SIM_AIMS];
    bool returns;         /* joiners may come at the address of a dead process */
    const double *speeds; /* [founders] of their devices, to 1; NULL: by `slowest`; view */
    const ru_sim_quota
        *quotas;         /* [founders] of processor time, quota_ns 0: none; NULL: none; view */
    double slowest;      /* devices work at this speed to 1; 0: all at 1 */
    int64_t piece_bytes; /* of state that moves; 0: as a job without it */
    double join_part;    /* as in ru_elastic_options */
    int64_t probe_bytes; /* of the largest measured sum; 0: as a job without it */
    int64_t time_max_ns; /* virtual; a job still running then is stuck */
    /* Memory that the process may come to have while the job runs; 0: three quarters of what the
     * machine has free. */
    int64_t memory_max_bytes;
    int64_t events_max;
    /* A founder, the first byte says which, also sends what these bytes describe (lab/mad.c):
     * only that nobody crashes is asked for then, and the job ends soon after the last of them. */
    const uint8_t *mad;
    int64_t mad_bytes;
    const char *trace_dir; /* a trace of each process, in virtual time, goes there; NULL: none */
    const char *replay;    /* command that runs it again; NULL: by its seed */
    const ru_sim_input *input; /* NULL: samples are there; view */
    bool say;                  /* every log line, fault and event of the job on stderr */
} ru_sim_job;

typedef struct ru_sim_job_result {
    int64_t events, time_ns; /* virtual */
    uint64_t hash;           /* of all events: equal for equal seeds */
    int64_t committed;
    uint32_t faults, epochs, redone, joined, lost, left, led;
    uint32_t expelled;    /* processes that lived and were cut out */
    int64_t memory_bytes; /* of the simulator itself */
    int64_t step_ns;      /* mean of committed steps, virtual */
    int64_t compute_ns;   /* mean of the founders' steps until all gradients are ready */
    int64_t wire_bytes;   /* that the processes sent, headers included */
    int64_t pause_ns;     /* longest time without a commit after a commit or the last fault */
    uint32_t seen[RU_SIM_SEEN_KINDS];
} ru_sim_job_result;

/* A job of 2..8 workers with joiners and faults drawn by seed. */
void ru_sim_job_draw(uint64_t seed, ru_sim_job *into);

/* Run it. Errors: RU_E_BUG with what broke, in which process, at what time; RU_E_LIMIT, RU_E_MEM.
 */
RU_MUST_USE ru_status ru_sim_job_run(const ru_sim_job *job, ru_sim_job_result *into, ru_err *err);

/* The command that runs this seed again. */
void ru_sim_job_replay(uint64_t seed, char *into, int64_t size_bytes);

#endif
