/* Elastic synchronous data-parallel training: a step machine over membership, collectives and a
 * device.
 *
 *   leader:  VIEW(epoch, start step, shares, plan of collectives) --> all
 *   all:     build what the share needs, open the group, READY --> leader;  leader: GO --> all
 *   step k:  device computes its share; each gradient bucket that is ready is all-reduced
 * meanwhile; all buckets reduced: DONE(k) --> leader;  leader, when all are DONE: COMMIT(k) --> all
 *   COMMIT:  the device updates its parameters, then step k+1 begins
 *
 * Nothing changes parameters before COMMIT, so if a step loses a worker, the survivors repeat it
 * from the state that they hold. A step is committed when its leader told any member: a successor
 * asks all survivors, whose statuses hold the last commit they saw.
 *
 * Joining: the joiner is in the group with share 0: it contributes nothing and receives every
 * reduced gradient. At each step boundary its peers copy a few pieces of state, within the budget
 * of the view, and send them during the step; the joiner is DONE with step k when gradients and
 * pieces of step k are there, writes the pieces (state before step k) and updates with everyone.
 * After the last piece the leader gives it a share. Training never stops.
 *
 * Samples: a step is the next B positions of the global order, cut into the shares; the leader
 * checks for every committed step that the parts reported by the members are exactly that. The view
 * carries B and the position of its first step, so B may change from view to view: a member whose
 * own position differs from the view's does not go on.
 *
 * Source: litz-2018, qiao-2019 and qiao-2021 for what elasticity has to keep. Thread: loop only; a
 * step machine whose device works elsewhere. */
#ifndef RU_TRAIN_ELASTIC_ELASTIC_H
#define RU_TRAIN_ELASTIC_ELASTIC_H

#include "comm/coll/coll.h"
#include "comm/node/node.h"
#include "plan/net/coll.h"
#include "plan/net/sums_live.h"
#include "plan/row/policy.h"

typedef struct ru_elastic ru_elastic;

enum {
    RU_ELASTIC_WHAT_FIRST = RU_NODE_WHAT_FIRST, /* messages and timers of this machine */
    RU_ELASTIC_TENSORS_MAX = 4096,
    RU_ELASTIC_CUTS_MAX = 512, /* of large tensors, about */
    RU_ELASTIC_BUCKETS_MAX = RU_ELASTIC_TENSORS_MAX + RU_ELASTIC_CUTS_MAX + 1,
    RU_ELASTIC_HANDLE_MAX = 96, /* of local_handle, with its NUL */
    RU_ELASTIC_SERVED_MAX = 64, /* members of a job with servers */
};

/* A part of every step: samples [first, first + n) of its `batch`. */
typedef struct ru_share {
    int64_t first, n, batch; /* n 0: receives and updates only */
    int64_t at;              /* of a step: position of its first sample in the global order */
    double done, gain;       /* of a step: progress before it, and what it adds (ru_pace) */
} ru_share;

/* With batches that adapt a step may be worth more or less than one of the first batch. */
typedef struct ru_pace {
    int64_t batch;
    double gain; /* of a step, in steps of the first batch */
} ru_pace;

/* Gradients that are summed together, in the order in which they become ready. */
typedef ru_sums_cut ru_elastic_part;

/* What the reads of a member's samples did so far, in all; counted, never reset. */
typedef struct ru_elastic_reads {
    int64_t bytes;             /* delivered */
    int64_t busy_ns;           /* with requests outstanding */
    int64_t stall_ns;          /* the step waited for them */
    int64_t batch_bytes;       /* of a step */
    int64_t outstanding_bytes; /* that it may have now */
} ru_elastic_reads;

/* Work of the device. All calls return at once; answers come through the ru_elastic_* calls below,
 * on the loop thread.
 *
 *   depth 1   step(k) : ready(k, *), computed(k); summed(k, *); update(k) : updated(k); step(k + 1)
 *   depth 2   step(k) : ready(k, *), computed(k); step(k + 1); summed(k, *); update(k) : updated(k)
 *
 * With depth 2 step(k + 1) comes after the answer computed(k) and before update(k). Then
 *   - an op of k + 1 that reads a parameter waits until all of its sums of k were told by `summed`
 *     and it is updated with them;
 *   - gradients of k + 1 are ready only when all sums of k were told: both steps share the memory;
 *   - the update of k stays open, that is it can be taken back, until update(k) or abort: update(k)
 *     says that what was updated counts. It may come while k + 1 computes and when it has computed,
 *     and is answered without waiting for the rest of k + 1;
 *   - no `summed` of k + 1 comes before the answer updated(k), so at most one update is open. */
typedef struct ru_elastic_device_ops {
    const char *name;
    /* Be able to compute `share`. `plain`: gradients in row-major order (members whose kernels
     * order them differently). Answer: ru_elastic_built. Never during a step. */
    void (*build)(void *self, const ru_share *share, bool plain);
    /* Compute step `step` of `share` up to the gradients. Answers: ru_elastic_ready for every
     * tensor, then ru_elastic_computed. share.n 0: the device gives memory for the sums at once. */
    void (*step)(void *self, int64_t step, const ru_share *share);
    /* Abort the steps under way, the newer one first: afterwards parameters, statistics and slots
     * are as after the last step that `update` was called for. One answer, ru_elastic_aborted, even
     * if the steps were computed already. Never between update and its answer updated. */
    void (*abort)(void *self);
    /* All tensors hold their sums: update. Answer: ru_elastic_updated. */
    void (*update)(void *self, int64_t step);
    /* Bytes [offset, offset + size) of tensor k contain their sums of step `step` while others are
     * in flight: the device may already update their parameters if it can revert that on abort.
     * NULL: it waits for `update`. */
    void (*summed)(void *self, int64_t step, uint32_t k, int64_t offset, int64_t size);
    /* Steps that may be under way at one time, now that `share` is built: 2, or 1 and why as a
     * sentence without its full stop (view of a constant). 2 needs `summed`. NULL: 1. */
    uint32_t (*depth)(void *self, const char **why);
    /* Why step + 1 must not begin before update(step), a sentence as above; NULL: it may. Members
     * may answer differently: each begins step + 1 when it may. NULL: it always may. */
    const char *(*barrier)(void *self, int64_t step);
    /* Bytes [offset, offset + size) of state tensor k, row-major, as they are between two updates:
     * a copy that stays until state_release(cookie). NULL data: counted only. */
    ru_status (*state_copy)(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                            uint64_t *cookie);
    void (*state_release)(void *self, uint64_t cookie);
    /* Memory for bytes coming for state tensor k; state_placed follows before the next update. */
    ru_status (*state_place)(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                             uint64_t *cookie);
    /* `arrived` false: the bytes will not come (the view changed); forget the memory. */
    void (*state_placed)(void *self, uint64_t cookie, bool arrived);

    /* Members of one host sum their gradients in shared memory. The four may be NULL together.
     * local_handle: text by which the others map this process' gradients (after `built`; "" or
     * NULL: not possible). */
    const char *(*local_handle)(void *self);
    /* Be rank `rank` of n members with these handles. Answer: ru_elastic_local_opened. */
    void (*local_open)(void *self, const char *const *handles, uint32_t n, uint32_t rank,
                       uint32_t epoch);
    /* Tensors of `bucket`, all ready here: replace them by their sums over all members, added
     * in rank order. Reads the memory of others, writes only its own. Answer: ru_elastic_reduced.
     * Calls come in the order in which buckets become ready here, which may differ between members.
     * */
    void (*local_reduce)(void *self, uint32_t bucket, const ru_elastic_part *part, uint32_t iter);
    /* The gradients of member `rank` as they are mapped here, from local_opened to local_close;
     * those that `ready` tells of lie in one's own. May be NULL: no sums over several hosts with
     * several members each out of shared memory. */
    ru_span (*local_memory)(void *self, uint32_t rank);
    /* How its samples are read, now; false: they are in memory. NULL: always. */
    bool (*reads)(void *self, ru_elastic_reads *into);
    /* Keep `outstanding_bytes` outstanding from now on, so says plan `plan` (low half of its id)
     * for all members; 0: as it likes. May be NULL with `reads`. */
    void (*read_share)(void *self, int64_t outstanding_bytes, uint64_t plan);
    /* The group is over: stop waiting for the others. No answer of it comes any more, and `aborted`
     * is said only when no sum is being written either. */
    void (*local_close)(void *self);
} ru_elastic_device_ops;

typedef struct ru_elastic_device {
    const ru_elastic_device_ops *ops;
    void *self;
} ru_elastic_device;

/* What happened, for reports; on the loop thread. */
typedef enum ru_elastic_what {
    RU_ELASTIC_COMMITTED, /* step; a: ns since the last commit, b: members with a share */
    RU_ELASTIC_MEMBER,    /* this process is in; a: its number, b: 1 when it holds the whole state:
                             if not, it is told again when it does */
    RU_ELASTIC_VIEW,      /* a view is in force here; a: its members; b: its batch where that is
                             another than the one before, else 0 */
    RU_ELASTIC_JOINED,  /* a: number of the member; in the group, without a share. b: its ru_tier */
    RU_ELASTIC_WORKS,   /* a: number; it has a share now */
    RU_ELASTIC_LEFT,    /* a: number */
    RU_ELASTIC_LOST,    /* a: number, b: ns from the last sign of life to the new view */
    RU_ELASTIC_LED,     /* a: number of the new leader */
    RU_ELASTIC_SLOW,    /* a: number of who is waited for, b: ns so far */
    RU_ELASTIC_SHARES,  /* shares changed; b: predicted ns of a step's computing, 0: not known;
                           sentence: number:samples of every member */
    RU_ELASTIC_PLANNED, /* a plan of sums is installed; a: number of buckets */
    RU_ELASTIC_READS,   /* leader: how long all waited for reads in a second; a: ns predicted by the
                           plan of `read-share` before, b: ns measured. sentence: the worker that is
                           treated unfairly, when that is new, else NULL */
    RU_ELASTIC_ENDED,   /* the job is over for this process: value ru_status, sentence; a: 1: this
                           process told the others, also if it has left meanwhile */
} ru_elastic_what;

typedef struct ru_elastic_news {
    ru_elastic_what what;
    int64_t step;
    int64_t a, b;
    ru_status status;
    const char *sentence; /* view until return */
} ru_elastic_news;

/* A sum of gradients that was done, on the loop thread. */
typedef struct ru_elastic_sum {
    uint32_t bucket;
    uint32_t epoch;       /* of the view whose members it is of */
    ru_time begun, ended; /* the last gradient of it was ready here; the sums are in place */
    int64_t size_bytes;
    int64_t predicted_ns; /* behind those that were begun before it; 0: none (shared memory) */
    uint64_t plan;        /* low half of the id; 0: none */
} ru_elastic_sum;

typedef struct ru_elastic_options {
    ru_node *node;
    ru_member *member; /* of the node, as the next three: filled in by ru_elastic_open */
    ru_chan *chan;
    ru_node_id self;
    ru_recorder *recorder; /* takes a record of each sum, with one `flow` on all members */
    ru_elastic_device device;
    void (*news)(void *self, const ru_elastic_news *news, ru_time now);
    void *news_self;
    void (*summed)(void *news_self, const ru_elastic_sum *sum); /* NULL: not asked for */
    /* Leader: a plan is installed, the answer of `policy` to `in` (view until return). NULL: not
     * asked for. */
    void (*planned)(void *news_self, const ru_policy *policy, const void *in, ru_time now);

    int64_t batch; /* global, of each step; with batch_at: of the first view */
    /* The global batch of the step whose first sample is `position`, 1 .. UINT32_MAX: pure, so that
     * every member has the same answer at any time. A step with another batch than the one before
     * begins a view. NULL: it does not change. */
    int64_t (*batch_at)(void *news_self, int64_t position);
    /* Leader, after a step and when a view is made: what shall be in force from now on? `p` has
     * what is. A view begins when it is another one; all members count progress by it, and the job
     * ends when that reaches steps_end. With batch_at NULL. NULL: a step is worth 1. */
    void (*pace)(void *news_self, ru_pace *p);
    double first_done;           /* with pace: progress of first_step */
    int64_t first_step;          /* steps done before (resume); equal on all founders */
    int64_t first_position;      /* samples of these; 0: first_step * batch */
    int64_t steps_end;           /* leader ends the job here */
    uint32_t founders;           /* members to wait for before the first step; 0: 1 */
    uint32_t n_min;              /* with fewer members the job pauses until another joins */
    uint32_t n_begin;            /* the same before the first step; less than n_min: n_min */
    const int64_t *tensor_bytes; /* [n_tensors] gradients in the order they become ready */
    uint32_t n_tensors;
    const int64_t *state_bytes; /* [n_state] everything a joiner needs, row-major */
    /* [n_state] tensors of one group are updated together, element by element (a parameter, its
     * optimizer slots): a joiner gets the same elements of all of them in the same step, since an
     * update with a missing slot would spoil the parameter. NULL: each is its own group. */
    const uint32_t *state_group;
    uint32_t n_state;
    /* Members that get no share and add the gradients of all others: elastic_servers.c. The leader
     * is none. n_max of membership is at most RU_ELASTIC_SERVED_MAX. 0: members add among each
     * other. */
    uint32_t servers;
    /* Leader, with servers, before the first step of a view: the order in which the next step needs
     * what each gradient updates, small ranks first, into rank [n_tensors], which has the reverse
     * of their order. NULL: that. */
    void (*order)(void *news_self, uint32_t *rank);
    int64_t (*free_bytes)(void); /* of this process's memory; NULL, < 1: not known */
    bool equal_shares;           /* do not follow measured speed */
    bool barrier;                /* never two steps under way, whatever the device can do */
    bool deterministic;          /* DIRECT collectives, equal shares: same worker set, same bits */
    double join_part;            /* part of a step's transfer time for state of joiners; 0: 0.1 */
    ru_sums_method sums; /* how they are grouped before anything is measured; CARAMEL: RULE */
    int64_t piece_bytes; /* state moves to joiners in pieces of up to this; 0: 1 MiB */
    int64_t probe_bytes; /* largest sum that is measured at the start of a view; 0: 1 MiB */
    int64_t slow_ns;     /* name who is waited for after; 0: 5 s */
    bool counted;        /* simulator: no memory behind tensors */
    bool bf16;           /* gradients are bf16, which is summed in f32; else f32 */
} ru_elastic_options;

/* One part of opt->node. Everything lives in `arena`; what belongs to one view lives in arenas of
 * its own. Errors: RU_E_ARG also when the channel may have too few peers. */
RU_MUST_USE ru_status ru_elastic_open(const ru_elastic_options *opt, ru_arena *arena,
                                      ru_elastic **out, ru_err *err);
void ru_elastic_close(ru_elastic *e); /* between ru_node_quiet and ru_node_close; NULL is fine */

/* Answers of the device, between ru_node_enter, which gives `fx`, and ru_node_leave. `layout`: hash
 * of the order of elements in the gradients. */
void ru_elastic_built(ru_elastic *e, ru_status st, uint64_t layout, ru_time now, ru_effects *fx);
/* Gradient tensor k of step `step` is complete in span and untouched until updated, or until the
 * next step or build after aborted: the link may read it till then. */
void ru_elastic_ready(ru_elastic *e, int64_t step, uint32_t k, const ru_span *span, ru_time now,
                      ru_effects *fx);
/* compute_ns: without what it waited for sums of the step before. */
void ru_elastic_computed(ru_elastic *e, int64_t step, ru_status st, int64_t compute_ns, ru_time now,
                         ru_effects *fx);
void ru_elastic_aborted(ru_elastic *e, ru_time now, ru_effects *fx);
void ru_elastic_local_opened(ru_elastic *e, ru_status st, ru_time now, ru_effects *fx);
void ru_elastic_reduced(ru_elastic *e, int64_t step, uint32_t bucket, ru_time now, ru_effects *fx);
void ru_elastic_updated(ru_elastic *e, int64_t step, ru_status st, ru_time now, ru_effects *fx);

/* Leave in order (first Ctrl-C), after the current step. With `all` every member stops: the job
 * ends after the current step with a checkpoint from the leader's owner. */
void ru_elastic_stop(ru_elastic *e, bool all, ru_time now, ru_effects *fx);

typedef struct ru_elastic_facts {
    int64_t committed;                      /* steps done */
    int64_t batch, position;                /* of the view; samples of the steps done */
    int64_t samples_lost, samples_repeated; /* leader's count; 0 and 0 or a bug */
    uint32_t members, epoch;
    uint32_t working;   /* members with a share */
    uint32_t redone;    /* steps begun again after a loss */
    ru_time born;       /* of the job, its first view; 0: not known yet */
    int64_t first_step; /* steps done before it */
    int64_t timed;      /* leader: steps that were committed with all compute times known */
    int64_t longest_ns; /* of the slowest member's computing, all these steps together */
    ru_time progress;   /* leader: when a member last did what it waits for */
    bool steps;         /* a step is running */
    uint32_t done;      /* leader: members that are done with it */
    bool probes;        /* the collectives are being measured */
    bool moves;         /* a member of the view does not hold the whole state yet */
    uint32_t depth;     /* steps that may be under way in this view; 1: */
    const char *why;    /* ... the reason, as a sentence; view until the next view */
    /* Times of a step's sums, all together, over what the plan of `coll` predicts of each alone:
     * over the last steps of the view, and of the last one. 0: not known yet. */
    double sums_off, step_off;
    /* What a second step under way puts aside of its sums until they are added: by the schedules of
     * the view, and as it was taken. 0: there is no second one, or sums are in shared memory. */
    int64_t aside_said_bytes, aside_bytes;
    /* Leader, with servers: what the one that needs most puts aside of all sums under way, as
     * well; server_bytes 0: it has not told yet. */
    int64_t server_said_bytes, server_bytes;
} ru_elastic_facts;
void ru_elastic_facts_get(const ru_elastic *e, ru_elastic_facts *into);
/* The plan of sums in force: how gradients are grouped and which collective adds each group. */
typedef struct ru_elastic_bucket {
    ru_elastic_part part;  /* tensors in the order in which they become ready */
    ru_coll_choice choice; /* with its predicted time, alone on the network; not for `local` */
} ru_elastic_bucket;

typedef struct ru_elastic_sums {
    uint64_t plan; /* low half of its id; 0: none, shared memory or a single member */
    uint32_t epoch, n_members;
    bool local;
    /* Leader: the algorithms that a table names would be in force, and `only` of each part says
     * what is. Else members share memory, servers add or sums are in the order of ranks, and `only`
     * is 0. */
    bool follows;
    const ru_elastic_bucket *at; /* [n_buckets] */
    uint32_t n_buckets;
    const ru_coll_cost *costs; /* [RU_COLL_ALGOS] what the choice rests on; NULL: not measured */
    uint32_t measured;         /* the view before whose first step that was */
} ru_elastic_sums;
/* Owner: `at` lives in `arena`, `costs` in the machine. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_elastic_sums_get(const ru_elastic *e, ru_arena *arena,
                                          ru_elastic_sums *into, ru_err *err);

/* Sum gradients in these parts, whole ones or cuts in their order, from the next view on; copied.
 * Each goes by the algorithm that it names in views of as many members as now, of all while there
 * is none yet, unless members share memory, servers add or sums are in the order of ranks.
 * Likewise at most `flight` sums are under way at once, those that are needed first; beyond it are
 * those that another member has begun, and a small one before large ones. 0: all that are ready.
 * `barrier`: why each step waits for all sums of the one before, a sentence as in `depth` (view of
 * a constant); NULL: where it may, none does. Where this process leads, that view comes with the
 * next commit; who leads later has a table of its own or the rule's. Shared memory and views of
 * more than 64 members follow the rule. Errors: RU_E_DATA when not every byte of every gradient is
 * in `parts` once, or one names an algorithm that is none or the star; RU_E_LIMIT, about 2000 sums;
 * RU_E_MEM. */
RU_MUST_USE ru_status ru_elastic_table_set(ru_elastic *e, const ru_elastic_part *parts, uint32_t n,
                                           uint32_t flight, const char *barrier, ru_err *err);

/* Measure collectives again before the first step of the next view. Where this process leads, that
 * view comes with the next commit. */
void ru_elastic_measure(ru_elastic *e);

/* What this process does now, as a short text for people: "computing step 12". View of a constant
 * or of `into` [64]. */
const char *ru_elastic_doing(const ru_elastic *e, char into[64]);

#endif
