/* Inside of the simulated job: processes, their devices, and the oracle. Thread: one. */
#ifndef RU_LAB_JOB_IMPL_H
#define RU_LAB_JOB_IMPL_H

#include "base/map.h"
#include "lab/job.h"
#include "sim/process.h"
#include "train/elastic/elastic.h"

enum { RUI_SIMJOB_COPIES = 512 };

/* The longest freeze or cut: of an aim, and the default of ru_sim_chaos. */
#define RUI_SIMJOB_LASTS_NS INT64_C(300000000)

typedef struct rui_simjob rui_simjob;
typedef struct rui_simjob_node rui_simjob_node;

/* One process alone: parameters and slots before step `step`, whose first sample is `position`, and
 * the sums of that step for the batch that was asked for last. */
typedef struct rui_simjob_oracle {
    int64_t step, position;
    int64_t batch;             /* of `sum`; 0: of none */
    int64_t batch_done;        /* of the step before */
    float *param, *slot, *sum; /* [elements] all tensors, one after the other */
    uint64_t *hash;            /* [steps + 1] of param and slot before step k; 0: not yet there */
} rui_simjob_oracle;

typedef enum rui_simjob_phase {
    RUI_SIMJOB_IDLE,
    RUI_SIMJOB_BUILD,
    RUI_SIMJOB_STEP,
    RUI_SIMJOB_COMPUTED,
    RUI_SIMJOB_UPDATE,
    RUI_SIMJOB_ABORT,
} rui_simjob_phase;

typedef struct rui_simjob_copy {
    bool used, place;
    uint32_t tensor;
    int64_t first, n; /* elements */
    float *data;      /* NULL: counted */
} rui_simjob_copy;

typedef struct rui_simjob_device {
    rui_simjob_node *node;
    ru_sim_dev *dev;
    rui_simjob_phase phase;
    bool built;
    ru_share share;   /* built for */
    int64_t step;     /* begun last */
    int64_t older;    /* under way as well: all that counts before `step` begins to; -1: none */
    bool keeping;     /* it was told that `older` counts */
    bool undoes;      /* two steps are given up */
    bool hungry;      /* the samples are not there */
    int64_t steps;    /* updates done: parameters are those before step `steps` once set */
    uint32_t readied; /* tensors given so far */
    double speed;
    float *param, *slot, *grad;          /* [elements] */
    float *undo_param, *undo_slot;       /* [elements] before the update that is open */
    uint8_t *applied;                    /* [elements] of it */
    int64_t sum_step;                    /* whose sums grad becomes */
    int64_t *told_bytes;                 /* [n_tensors] of its sums that are there */
    uint8_t *param_ok, *slot_ok;         /* a joiner has it */
    rui_simjob_copy *copies;             /* [RUI_SIMJOB_COPIES] */
    uint32_t placing;                    /* copies that wait for state */
    int64_t begun_ns[2], computed_ns[2]; /* of steps by their number modulo 2 */
    int64_t waits_ns, waited_ns;         /* for parameters, since when, and so far */
    uint64_t seq;                        /* counts steps begun and given up */
    ru_script_play play[2];              /* of steps by their number modulo 2 */
    struct rui_simjob_program *program;  /* NULL: none */
    char handle[16];                     /* of its gradients: the number of its process */
    rui_simjob_node *near[8];            /* of this host, by rank */
    uint64_t near_seq;                   /* counts openings and closings */
} rui_simjob_device;

struct rui_simjob_node {
    rui_simjob *job;
    uint32_t index;
    ru_sim_process process;
    uint32_t place; /* of its address and host */
    ru_node *node;
    ru_elastic *elastic;
    ru_node_id id;
    char address[32];
    rui_simjob_device device;
    ru_status status;
    bool founder, ended, in; /* in: was member of a view */
    bool leaves;             /* was asked to */
    uint32_t epoch;          /* last seen */
    int64_t committed;
    char sentence[160];
    ru_recorder *recorder; /* NULL: none */
    struct {
        uint16_t step, sums;
    } names; /* in the trace */
};

typedef struct rui_simjob_plan {
    uint32_t epoch;
    uint64_t plan; /* of sums */
} rui_simjob_plan;

struct rui_simjob {
    int64_t memory_max_bytes, memory_first_bytes; /* of the process; what it had before */
    const ru_sim_job *opt;
    const ru_script *script; /* of the job, or made for it */
    ru_sim *sim;
    ru_rng rng;
    ru_arena arena;
    rui_simjob_oracle oracle;
    uint32_t n_tensors;
    int64_t *tensor_n, *tensor_bytes; /* [n_tensors] */
    int64_t *state_bytes;             /* [2 n_tensors] parameters, slots */
    uint32_t *state_group;
    int64_t *first;         /* [n_tensors + 1] element of tensor k */
    ru_sim_cpu **cpus;      /* [n_max] of each host by number; NULL: not shared, or not yet */
    rui_simjob_node *nodes; /* [n] */
    uint32_t n, n_max, turn;
    bool chaos_on, mad_done;
    rui_simjob_plan plans[64]; /* by epoch, the newest */
    ru_map epochs;             /* epoch -> hash of leader and members */
    ru_map committers;         /* epoch -> process that committed in it, + 1 */
    bool aim_was[RU_SIM_AIMS];
    uint32_t aim_passed[RU_SIM_AIMS];
    int64_t last_fault_ns, last_said_ns; /* a line that names who is waited for, or worse */
    int64_t stuck_ns;                    /* since when nobody but stuck processes is left; 0: no */
    ru_sim_job_result *result;
    ru_status failed;
    ru_err failure;
    int64_t first_commit_ns, last_commit_ns;
    int64_t computed_ns, computed_n; /* all steps of devices with a script: from begin on */
    uint8_t token[32];
};

/* lab/job.c */
void rui_simjob_fail(rui_simjob *j, const rui_simjob_node *n, const char *fmt, ...) RU_PRINTF(3, 4);
void rui_simjob_say(const rui_simjob *j, const rui_simjob_node *n, const char *fmt, ...)
    RU_PRINTF(3, 4);

/* lab/judge.c */
ru_status rui_simjob_invariant(void *self, ru_time now, ru_err *err);
void rui_simjob_check_commit(rui_simjob *j, const rui_simjob_node *n, ru_time now);
/* Nobody lives any more, or whoever does has said for long that there is no majority. */
bool rui_simjob_over(rui_simjob *j);
void rui_simjob_check_end(rui_simjob *j);

/* lab/cover.c */
/* Is it a member that still has something to do? */
static inline bool rui_simjob_votes(const rui_simjob *j, const rui_simjob_node *n)
{
    return n->index >= 64 || (j->opt->no_vote >> n->index & 1) == 0;
}
bool rui_simjob_trains(const rui_simjob *j, const rui_simjob_node *n);
void rui_simjob_see(rui_simjob *j, ru_sim_seen k);
void rui_simjob_told(void *self, ru_sim_fault what, uint32_t node, uint32_t other, ru_time now);
void rui_simjob_aim(rui_simjob *j);               /* after every event */
void rui_simjob_leaves(void *self, uint64_t arg); /* an event: somebody leaves */

/* lab/mad.c */
void rui_simjob_mad(void *self, uint64_t at); /* an event: byte `at` of what it has to say */

/* lab/oracle.c */
RU_MUST_USE ru_status rui_simjob_oracle_open(rui_simjob *j, ru_err *err);
/* Gradient element i of samples [from, to) of the global order, for a parameter's value. */
float rui_simjob_gradient(int64_t from, int64_t to, int64_t i, float param);
float rui_simjob_first(int64_t i); /* of parameter i before step 0 */
void rui_simjob_update(float *param, float *slot, float sum);
/* The batch of the step whose first sample is `position`. */
int64_t rui_simjob_batch_at(const rui_simjob *j, int64_t position);
/* Sums of the step before which it stands, with this batch. */
const float *rui_simjob_oracle_sums(rui_simjob *j, int64_t batch);
/* Make the oracle stand before step `step` (it only goes forward by one), after one of `batch`. */
void rui_simjob_oracle_to(rui_simjob *j, int64_t step, int64_t batch);

/* lab/device.c */
RU_MUST_USE ru_status rui_simjob_device_open(rui_simjob_node *n, bool holds_state, ru_err *err);
const ru_elastic_device_ops *rui_simjob_device_ops(const ru_sim_job *job);
bool rui_simjob_device_full(const rui_simjob_device *d);
extern const ru_elastic_device_ops rui_simjob_device_plain;

/* lab/program.c: between elastic training and the device */
typedef struct rui_simjob_program rui_simjob_program;
RU_MUST_USE ru_status rui_simjob_program_open(rui_simjob_device *d, ru_err *err);
void rui_simjob_program_begin(rui_simjob_program *p); /* the process has elastic training now */
void rui_simjob_program_close(rui_simjob_program *p); /* NULL is fine */
/* Operations of the device; `self` is the rui_simjob_device. */
void rui_simjob_program_build(void *self, const ru_share *share, bool plain);
void rui_simjob_program_step(void *self, int64_t step, const ru_share *share);
void rui_simjob_program_abort(void *self);
void rui_simjob_program_update(void *self, int64_t step);
/* What the device says: gradient k is made; the update is; it has computed, or begins. */
void rui_simjob_program_ready(rui_simjob_program *p, uint32_t k);
void rui_simjob_program_updated(rui_simjob_program *p);
void rui_simjob_program_look(rui_simjob_program *p);
void rui_simjob_program_leave(rui_simjob_program *p); /* the program leaves the job */

#endif
