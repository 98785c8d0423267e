/* Inside of a worker: its threads and what they hand each other.
 *
 *   worker.c          loop thread: opening, the end; host/shell.h has the rest of a live process
 *   worker_device.c   loop thread: the device of train/elastic/elastic.h, commands out, events in
 *   worker_compute.c  compute thread
 *   worker_early.c    both: sums that are there while the compute thread waits for others
 *   worker_plan.c     both: the leader's plan of sums, from measured steps
 *   worker_order.c    both: the order in which servers give sums back
 *   worker_build.c    compute thread: step graph and executable of a share
 *   worker_local.c    adder thread: sums in shared memory
 *   worker_noise.c    the gradient noise scale
 *   worker_adapt.c    the batch that trains fastest
 *   worker_lead.c     what the leader tells
 *   worker_capture.c  the world file for who asks for it
 *   worker_weights.c  both: weights for guests
 *   worker_sum.c      loop thread: sums beside their plan, in the plan file
 *
 * Thread: as said at each part; `lock` guards what both touch. */
#ifndef RU_TRAIN_WORKER_WORKER_IMPL_H
#define RU_TRAIN_WORKER_WORKER_IMPL_H

#include "comm/coll/coll_shm.h"
#include "cost/goodput.h"
#include "env/thread.h"
#include "plan/net/sums_live.h"
#include "train/driver/driver.h"
#include "train/elastic/elastic.h"
#include "train/worker/worker.h"

enum { RUI_EVENTS_MAX = 1 << 14 /* more than any step or evaluation leaves unread */ };
_Static_assert(RUI_EVENTS_MAX > 2 * RU_ELASTIC_TENSORS_MAX + 64, "all gradients of two steps");

/* A step of one share: graph, executable, where its gradients and states stand. */
typedef struct rui_build {
    ru_arena arena;
    ru_step_graph step;
    ru_exe *exe;
    int64_t n; /* samples it computes */
    bool plain;
    bool early;           /* there is memory to take updates back */
    bool two;             /* two steps may be under way */
    const char *why;      /* ... not: a sentence */
    ru_exe_grad *tensors; /* [n_tensors] by number */
    ru_value_id *states;  /* [n_states] by number */
} rui_build;

typedef enum rui_verdict { RUI_VERDICT_NONE, RUI_VERDICT_UPDATE, RUI_VERDICT_ABORT } rui_verdict;

typedef enum rui_word_kind {
    RUI_EVENT_BUILT,
    RUI_EVENT_READY,
    RUI_EVENT_COMPUTED,
    RUI_EVENT_ABORTED,
    RUI_EVENT_UPDATED,
    RUI_EVENT_LOCAL_OPENED,
    RUI_EVENT_LOCAL_CLOSED,
    RUI_EVENT_REDUCED, /* tensor: the bucket */
    RUI_EVENT_OVER,    /* why: the last evaluation ends the job */
    RUI_EVENT_FINISHED,
    RUI_EVENT_TABLE,     /* of sums, by a plan */
    RUI_EVENT_MEASURE,   /* collectives, again */
    RUI_EVENT_WORLD,     /* the world file is written */
    RUI_EVENT_WEIGHTS,   /* weights for guests are copied, or cannot be */
    RUI_EVENT_EVALUATED, /* tensor: the batch; ns: the step it is of; over: all of it */
} rui_word_kind;

typedef struct rui_event {
    rui_word_kind kind;
    ru_status status;
    uint32_t seq, tensor;
    uint32_t n; /* READY: gradients tensor .. tensor + n - 1 */
    int64_t ns;
    int64_t step; /* UPDATED */
    uint64_t layout;
    ru_eval_sums sums;
    bool over;
    const char *why;
} rui_event;

/* Messages between workers. */
enum {
    RUI_MSG_EVAL = RU_SHELL_WHAT_OWNER, /* sums of a batch */
    RUI_MSG_EVAL_OVER,                  /* all are there */
};

enum { RUI_HISTORY = 64 /* steps a worker can tell about after its leader died */ };

/* Sums that other workers sent; n and what `at` and `have` point to are fixed once open. */
typedef struct rui_evals {
    int64_t n;        /* batches; 0: not open */
    ru_eval_sums *at; /* [n] */
    int64_t *have;    /* [n] the step after which they were evaluated */
    uint8_t *rows; /* [n, rows_bytes] outputs and labels of the batches, where figures need them */
    int64_t rows_bytes; /* of a full batch */
    uint8_t *message;   /* [SUMS_BYTES + rows_bytes] loop thread: being sent */
    int64_t over;       /* the last step of which nothing is missing any more */
} rui_evals;

/* What a step gave, kept for a successor of the leader. */
typedef struct rui_past {
    int64_t step; /* done so far, from 1; 0: none */
    ru_run_report_step report;
} rui_past;

/* A sum that is there before the verdict. */
typedef struct rui_early_sum {
    uint32_t tensor;
    int64_t offset_bytes, size_bytes;
} rui_early_sum;

/* Sums of the oldest step under way whose parameters may be updated; under the worker's lock. */
typedef struct rui_early {
    rui_early_sum *at; /* [RU_ELASTIC_BUCKETS_MAX] */
    uint32_t n, done;
    bool told; /* compute thread: why nothing is updated early was said */
} rui_early;

/* What decides whether a step is followed by something that needs its state; loop thread. */
typedef struct rui_ahead {
    ru_share share; /* of the step begun last */
    int64_t step;
    ru_time saved; /* under the lock: the last checkpoint of this leader */
} rui_ahead;

/* Gradients are summed in buckets; the compute thread says which bucket is complete, so that the
 * loop wakes once for each. */
typedef struct rui_buckets {
    /* loop thread's, under the lock */
    ru_elastic_part
        *planned; /* [n_planned] of the plan in force; room for RU_ELASTIC_BUCKETS_MAX */
    uint32_t n_planned;
    bool changed; /* since the compute thread took them */
    /* compute thread */
    ru_elastic_part *at; /* [RU_ELASTIC_BUCKETS_MAX] of the step under way */
    uint32_t n;
    uint32_t *left; /* of each, gradients that this step has not made yet */
    uint32_t *of;   /* [n_tensors] bucket of a gradient; UINT32_MAX: not known, it is its own */
} rui_buckets;

/* Neighbours whose memory is to be mapped, as the loop thread asked for it. */
typedef struct rui_local_group {
    char handles[RU_COLL_SHM_RANKS_MAX][RU_SHM_HANDLE_MAX];
    uint32_t n, rank, epoch, seq;
} rui_local_group;

/* Sums in shared memory; closing and seq are the loop thread's, next and group the adder's, the
 * rest stands under the worker's lock. */
typedef struct rui_local {
    ru_coll_shm *shm; /* NULL: not possible here */
    int64_t *at;      /* [n_tensors] place in the segment */
    int64_t size_bytes;
    ru_thread thread;
    ru_spsc line; /* of rui_event: what the adder says */
    ru_cond changed;
    ru_flag stop; /* the adder must not wait for others */
    bool open_asked, close_asked, quit;
    rui_local_group asked, group; /* to be opened next; opened last */
    uint32_t close_seq;           /* of the CLOSE asked last */
    ru_elastic_part *pending;     /* [RU_ELASTIC_BUCKETS_MAX] by bucket; n 0: not ready */
    ru_coll_shm_range *ranges;
    uint32_t next; /* bucket to sum next */
    uint32_t seq;  /* of the group in force: answers of others mean nothing */
    bool closing;  /* CLOSE was asked, not yet answered */
    bool aborted;  /* ABORTED waits for that */
} rui_local;

typedef struct rui_sum_measured {
    int64_t n, took_ns, predicted_ns; /* sums done; totals */
} rui_sum_measured;

/* The plan of sums in force, for trace and plan file; loop thread. */
typedef struct rui_sums {
    bool open; /* the arena stands */
    bool led;  /* this worker led when it came into force */
    ru_arena arena;
    ru_elastic_sums plan;
    int64_t step;
    rui_sum_measured *measured; /* [n_buckets] */
} rui_sums;

typedef struct rui_weights rui_weights;

/* The world file, for processes that ask; under the worker's lock. */
typedef struct rui_capture {
    bool due;               /* the compute thread shall write it */
    double net_bytes_per_s; /* as the channel sees it */
    char *text;             /* malloc; written, not sent yet */
    rui_weights *weights;   /* for guests (worker_weights.c); NULL: none are given */
} rui_capture;

/* What a plan of sums is for. */
typedef struct rui_plan_view {
    uint32_t epoch, n_ranks, depth;
    uint32_t measured; /* the view in which its costs were measured */
    bool follows;      /* sums go by the algorithms that a table names */
    /* as ru_elastic_facts */
    int64_t aside_said_bytes, aside_bytes, server_said_bytes, server_bytes;
    char why[160]; /* depth 1: the reason, a sentence without full stop */
} rui_plan_view;

/* The leader's plan of sums (worker_plan.c). */
typedef struct rui_plan {
    /* under the lock: the view in force; its costs are known; a table for the loop thread */
    rui_plan_view told;
    bool known;
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_sums_net net;          /* how the rate of the network moves */
    uint32_t *rank;           /* [n_tensors] with servers: places in the order of their sums */
    ru_elastic_part *parts;   /* [n_parts]; room for RU_ELASTIC_BUCKETS_MAX */
    uint32_t n_parts, flight; /* flight: at most so many sums under way; 0: all that are ready */
    const char *barrier;      /* why steps with that table wait for all sums; NULL: they need not */
    /* compute thread */
    rui_plan_view view;
    ru_coll_cost costs_now[RU_COLL_ALGOS];
    double slower;          /* than when they were measured are bytes on the network now */
    bool trusted;           /* they were measured twice among these members */
    ru_time measured;       /* about when that was */
    int64_t steps;          /* of the view so far */
    double mean_ns;         /* ... how long the last ones took */
    bool watching, planned; /* planned: a table was handed over in this job */
    bool held;              /* with a barrier that no device asks for */
    int64_t again_ns;       /* no plan is made before, by the clock */
    uint32_t plans;         /* made for these members */
    ru_sums_watch watch;
} rui_plan;

enum { RUI_JOINS_MAX = 64 };

/* Newcomers that the leader let in and that have no share yet; loop thread. */
typedef struct rui_join {
    uint32_t number;
    int64_t step;
    ru_time begun;
} rui_join;

/* ru_elastic_facts when the shares in force came into force. */
typedef struct rui_shares_began {
    int64_t timed, longest_ns;
} rui_shares_began;

typedef struct rui_joins {
    rui_join at[RUI_JOINS_MAX];
    uint32_t n;
} rui_joins;

enum { RUI_ADAPT_SEEN = 64 };

/* Steps of one configuration, sums. */
typedef struct rui_adapt_seen {
    uint32_t nodes, replicas, local;
    double steps, pass_s, step_s;
} rui_adapt_seen;

/* The choice of the batch (worker_adapt.c). Compute thread, but `wanted`: under the lock. */
typedef struct rui_adapt {
    ru_pace wanted;    /* batch 0: nothing was chosen */
    int64_t local_max; /* samples of a pass here; 0: nothing is built */
    rui_adapt_seen seen[RUI_ADAPT_SEEN];
    uint32_t n;
    int64_t batch; /* the configuration of the steps `since` */
    uint32_t workers, passes, since;
    ru_perf perf;
    ru_time looked;
} rui_adapt;

/* The gradient noise scale (worker_noise.c); steps -1: of none. Compute thread. */
typedef struct rui_noise {
    ru_noise estimate; /* the leader's, of */
    uint32_t samples;
    int64_t *at;      /* [n_tensors - 1] places of gradients in a copy of all */
    int64_t elements; /* of all gradients */
    /* the run under way */
    int64_t step;
    double own, part; /* squares of own gradients; share of the batch */
    bool alone;       /* all of it, and this worker leads */
    /* of the last measured step, for the next one to tell */
    int64_t own_step;
    double own_squares, own_part;
    /* the leader: the sums of a step so far; of the last complete ones */
    int64_t sum_step, summed; /* elements */
    double sum;
    int64_t all_step, batch;
    double all;
    /* alone: gradients of the step before a measured one */
    int64_t before_step;
    float *before; /* NULL: they are not kept */
    rui_adapt adapt;
} rui_noise;

/* What all workers of the job number alike. */
typedef struct rui_list {
    uint32_t n_tensors, n_states;
    int64_t *tensor_bytes;    /* [n_tensors] gradients, last parameter first; then `shared` */
    const char **state_names; /* [n_states] */
    int64_t *state_bytes;
    uint32_t *state_group; /* a parameter and its slots have the same */
    int64_t first_step;    /* done before this process */
    double first_done;     /* progress then */
} rui_list;

/* Of the compute thread. */
typedef struct rui_times {
    ru_time begun, updated;     /* the run under way; the last update */
    int64_t waited_ns, made_ns; /* in that run: for sums; updates of the step before */
    int64_t computed_ns;        /* of the last run, without waiting */
    int64_t idle_ns;            /* since the last commit, with a step whose verdict is awaited */
    bool summed;                /* all sums of the step before are used */
} rui_times;

/* How samples are read. */
typedef struct rui_reads {
    ru_stream *stream;          /* the compute thread's; NULL: none */
    ru_stream_reads_sum before; /* of streams before it */
    int64_t share;              /* bytes that it may have outstanding; 0: as it likes */
} rui_reads;

/* What the compute thread leaves. */
typedef struct rui_end {
    bool failed, reported;
    ru_err err; /* why it failed */
    ru_run_report_summary summary;
} rui_end;

typedef struct rui_crew {
    ru_member_info *at;   /* [n] of the view of `epoch`; room for max */
    ru_member_info *told; /* compute thread: its copy, that of the world file */
    uint32_t n, max, epoch, told_epoch;
} rui_crew;

typedef struct rui_worker {
    const ru_worker_options *opt;
    ru_arena *arena;     /* before the threads run, then the compute thread's */
    ru_arena arena_loop; /* the loop thread's: machines and reports */
    rui_trainer t;       /* compute thread, once it runs */

    /* fixed after opening */
    rui_list list;

    /* loop thread */
    ru_shell shell;
    ru_elastic *elastic; /* a part of its node */
    ru_elastic_device_ops ops;
    uint32_t seq;     /* of the step under way */
    bool aborting;    /* events of the step under way mean nothing any more */
    bool led;         /* this worker led before: reports are open */
    uint32_t rank;    /* in the view at the last command */
    const char *over; /* why the job may end; NULL: it may not */
    rui_sums sums;
    rui_joins joins;
    rui_shares_began began;

    /* compute thread */
    ru_thread thread;
    ru_spsc line;   /* of rui_event: what it says to the loop thread */
    rui_build *now; /* loop thread reads it while nothing is built */
    rui_driver d;
    rui_turn cmd; /* under way */
    ru_run_report
        *teller; /* progress for the launcher while another one leads; NULL: not needed yet */
    rui_times at;
    rui_ahead ahead;
    rui_noise noise;

    rui_local local;
    rui_early early;
    rui_buckets buckets;
    rui_plan plan;
    rui_capture capture;

    /* both, under lock */
    ru_mutex lock;
    ru_cond changed;
    rui_reads reads;
    rui_turn next;
    rui_verdict verdict;
    ru_flag said; /* the same, for a look without the lock */
    rui_end end;
    rui_past past[RUI_HISTORY];
    rui_evals evals;
    rui_crew crew;
} rui_worker;

/* worker_device.c */
ru_elastic_device rui_worker_device(rui_worker *w);
void rui_worker_said(void *self, const void *element, ru_time now, ru_effects *fx);
void rui_worker_command(rui_worker *w, const rui_turn *cmd);

/* worker_local.c */
RU_MUST_USE ru_status rui_local_open(rui_worker *w, ru_err *err);
void rui_local_stop(rui_worker *w);
void rui_local_main(void *self);
void rui_local_ops(ru_elastic_device_ops *ops);
void *rui_local_grad(rui_worker *w, uint32_t tensor); /* memory of a gradient; NULL: anywhere */

/* worker_compute.c */
void rui_worker_compute(void *self); /* the compute thread */

extern const rui_exchange_ops rui_worker_exchange; /* of the compute thread's driver */

/* worker_eval.c: compute thread */
extern const rui_helpers rui_worker_helpers;
/* loop thread */
void rui_evals_tell(rui_worker *w, const rui_event *x, ru_time now);
void rui_evals_hear(rui_worker *w, uint32_t what, const void *data, int64_t size_bytes);

/* worker_sum.c, compute thread: a step begins with the buckets of the plan in force */
void rui_buckets_begin(rui_worker *w);
/* Gradient `tensor` is made. Which are ready to be summed now? n 0: others of its bucket are not
 * made yet. */
ru_elastic_part rui_buckets_ready(rui_worker *w, uint32_t tensor);
RU_MUST_USE ru_status rui_buckets_open(rui_worker *w, ru_err *err);

/* worker_early.c */
RU_MUST_USE ru_status rui_early_open(rui_worker *w, ru_err *err);
void rui_early_ops(ru_elastic_device_ops *ops);
void rui_early_clear(rui_worker *w); /* the lock held: no sum is there */
/* May so much be taken of the free memory (-1: not known) for what training can do without? */
static inline bool rui_early_may(int64_t needed_bytes, int64_t free_bytes)
{
    return free_bytes < 0 || needed_bytes <= free_bytes / 2;
}
/* Compute thread. May two steps be under way with an executable of this worker? Else why not. */
bool rui_early_two(rui_worker *w, const char **why);
/* The executable is open: memory to take updates back. */
void rui_early_ready(rui_worker *w, rui_build *b);
/* The lock held: update for the next sum that is there, the lock let go meanwhile; false: there is
 * none, or no update is open. */
bool rui_early_next(rui_worker *w);

/* worker_noise.c: compute thread. A run begins; its gradient stands there, before it is told (the
 * vector of what else is summed gets what the step before measured); all are told. */
RU_MUST_USE ru_status rui_noise_open(rui_worker *w, ru_err *err);
void rui_noise_close(rui_worker *w);
void rui_noise_begin(rui_worker *w);
void rui_noise_made(rui_worker *w, uint32_t tensor, void *data);
void rui_noise_end(rui_worker *w);
/* The leader, before the update: a piece of a sum is there, unless the step waits for all; all are
 * there. */
bool rui_noise_holds(const rui_worker *w, const rui_turn *turn);
void rui_noise_summed(rui_worker *w, const rui_turn *turn, const rui_early_sum *s);
void rui_noise_commit(rui_worker *w, const rui_turn *turn);

/* worker_adapt.c: compute thread, but `pace` */
void rui_adapt_built(rui_worker *w, rui_build *b);
void rui_adapt_stepped(rui_worker *w, const ru_run_report_step *s);
void rui_adapt_pace(void *self, ru_pace *p);

/* worker_capture.c */
void rui_capture_asked(void *self, ru_time now);   /* loop thread */
void rui_capture_make(rui_worker *w);              /* compute thread */
void rui_capture_send(rui_worker *w, ru_time now); /* loop thread: written */
void rui_capture_close(rui_worker *w);

/* worker_weights.c, loop thread */
RU_MUST_USE ru_status rui_weights_open(rui_worker *w, ru_err *err);
void rui_weights_made(rui_worker *w, ru_effects *fx);
void rui_weights_close(rui_worker *w);
/* Compute thread. Does a guest wait for weights (the lock held)? Copy them, if so: no update is
 * open. */
bool rui_weights_due(const rui_worker *w);
void rui_weights_make(rui_worker *w);

/* worker_plan.c */
RU_MUST_USE ru_status rui_plan_open(rui_worker *w, ru_err *err);
/* Loop thread: these sums are in force; the table of a plan is ready, or costs are to be measured.
 */
void rui_plan_view_told(rui_worker *w, const ru_elastic_sums *s, const ru_elastic_facts *f);
void rui_plan_said(rui_worker *w, bool measure);
void rui_plan_committed(rui_worker *w); /* what sums take now */
/* Compute thread: a step took so long. */
void rui_plan_stepped(rui_worker *w, int64_t took_ns);

/* worker_order.c */
RU_MUST_USE ru_status rui_order_open(rui_worker *w, ru_err *err);
/* Compute thread, no step under way: from what is measured now. Is it another order than before? */
bool rui_order_make(rui_worker *w);
void rui_order_ranks(void *self, uint32_t *rank); /* loop thread: into [n_tensors] */

/* worker_build.c */
RU_MUST_USE ru_status rui_build_list(rui_worker *w, ru_err *err); /* tensors and states */
RU_MUST_USE ru_status rui_build_open(rui_worker *w, int64_t n, bool plain, bool first,
                                     rui_build **out, ru_err *err);
void rui_build_close(rui_build *b); /* NULL is fine */
/* All state of `from` into `to`. */
RU_MUST_USE ru_status rui_build_take(rui_worker *w, rui_build *from, rui_build *to, ru_err *err);

/* worker_sum.c, loop thread */
void rui_worker_sums_planned(rui_worker *w, int64_t step);
void rui_worker_sums_end(rui_worker *w);  /* what was measured is kept */
void rui_worker_steps_end(rui_worker *w); /* the same of steps with the shares in force */
void rui_worker_summed(void *self, const ru_elastic_sum *sum);
/* The leader: a newcomer is in, or has a share now: figures of the policy `join`. */
void rui_worker_join_begun(rui_worker *w, uint32_t number, int64_t step, ru_time now);
void rui_worker_join_ended(rui_worker *w, uint32_t number, int64_t step, ru_time now);
/* A plan is installed and this worker leads. */
void rui_worker_planned(void *self, const ru_policy *policy, const void *in, ru_time now);

/* worker_lead.c, loop thread */
void rui_worker_news(void *self, const ru_elastic_news *news, ru_time now);
void rui_worker_log(void *self, int level, const char *line, ru_time now);
/* Open the reports when this worker leads; true when it does. */
bool rui_worker_leads(rui_worker *w);
/* Steps up to `done` count here: where this worker leads, what nobody has told of them is told. */
void rui_worker_updated(rui_worker *w, int64_t done);

#endif
