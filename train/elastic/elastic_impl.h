/* Inside of elastic training: what one member holds, and the seams between its parts.
 *
 *   elastic.c        phases of a member: view -> build -> connect -> GO -> steps
 *   elastic_hear.c   messages of others: the leader's, members', early and late ones
 *   elastic_step.c   one step: begin, DONE, commit, update
 *   elastic_reduce.c the exchange by all-reduce: buckets, sums, groups of a view
 *   elastic_table.c  ... which gradients a view sums together
 *   elastic_servers.c ... members that add the gradients of the others
 *   elastic_sum.c    ... each sum with its plan and predicted time
 *   elastic_probe.c  ... what collectives cost here
 *   elastic_state.c  the mover: pieces of state for joiners
 *   elastic_reads.c  the leader: is delivery fair at the storage that all read from?
 *   elastic_lead.c   the leader: readiness, commits, new views
 *   elastic_watch.c  ... who is slow
 *   elastic_facts.c  what it says of itself
 *   elastic_view.c   the owner's blob of a view: bytes <-> plan; group and schedules
 *
 * Thread: loop only. */
#ifndef RU_TRAIN_ELASTIC_ELASTIC_IMPL_H
#define RU_TRAIN_ELASTIC_ELASTIC_IMPL_H

#include "base/heap.h"
#include "base/vec.h"
#include "base/wire.h"
#include "comm/member/among.h"
#include "cost/queue.h"
#include "cost/step/recur.h"
#include "plan/crew/join.h"
#include "plan/crew/share.h"
#include "plan/disk/read_share.h"
#include "plan/net/coll.h"
#include "plan/net/coll_policy.h"
#include "train/elastic/elastic.h"

typedef enum rui_el_phase {
    RUI_EL_IDLE,    /* no view in force here, or nothing to do in it (paused) */
    RUI_EL_BUILD,   /* the device builds */
    RUI_EL_CONNECT, /* peers of the group are missing */
    RUI_EL_READY,   /* READY was sent, GO awaited */
    RUI_EL_PROBE,   /* the collectives are measured */
    RUI_EL_LOCAL,   /* the device maps its neighbours' memory */
    RUI_EL_STEP,    /* computing, reducing, or waiting for COMMIT; perhaps of two steps */
    RUI_EL_UPDATE,  /* the device updates, and no step is under way */
    RUI_EL_ABORT,   /* the device forgets what was under way */
    RUI_EL_ENDED,
} rui_el_phase;

enum {
    RUI_EL_READY_MSG = RU_ELASTIC_WHAT_FIRST,
    RUI_EL_GO_MSG,
    RUI_EL_DONE_MSG,
    RUI_EL_COMMIT_MSG,
    RUI_EL_END_MSG,
    RUI_EL_FAIL_MSG,
    RUI_EL_BYE_MSG,
    RUI_EL_APART_MSG, /* shared memory does not work here */
    RUI_EL_REDO_MSG,  /* bytes of this view were lost: begin again in another */
    RUI_EL_PROBE_MSG, /* measure the collectives */
    RUI_EL_PROBED_MSG,
    RUI_EL_PROBE_TURN_MSG, /* the leader's: is the phase over with this turn? */
    RUI_EL_READS_MSG,      /* what a member's reads did so far */
    RUI_EL_READ_SHARE_MSG, /* the leader's: how much may be outstanding */
    RUI_EL_WATCH_TIMER = RU_ELASTIC_WHAT_FIRST,
    RUI_EL_LINGER_TIMER,
    RUI_EL_PROBE_TURNS = 3,                    /* at most */
    RUI_EL_PROBED_MAX = RU_ELASTIC_SERVED_MAX, /* larger views follow the formulas alone */
    RUI_EL_XFERS_MAX = 4096,                   /* pieces in flight each way */
    RUI_EL_END_BYTES = RU_ERR_TEXT_MAX + 64,
    RUI_EL_FAIL_TEXT_MAX = 200,
    RUI_EL_ON_WIRE_BYTES = 64 << 10,      /* of a sum, that a more urgent one waits for */
    RUI_EL_TOLD_MAX = 512,                /* sums whose times members tell each other */
    RUI_EL_WHY_MAX = 96,                  /* a sentence: why a step waits for the one before */
    RUI_EL_GO_MAX = 60 << 10,             /* bytes of GO */
    RUI_EL_GO_HEAD = 16 + RUI_EL_WHY_MAX, /* ... of which the epoch and the depth take this */
};

#define RUI_EL_COOKIE      (UINT64_C(0xe1) << 56)
#define RUI_EL_PROBE_EPOCH UINT32_C(0x800000) /* tells the probe's streams from the group's */
#define RUI_EL_WATCH_NS    INT64_C(1000000000)
#define RUI_EL_LINGER_NS   INT64_C(2000000000)
#define RUI_EL_NEVER       INT64_MAX

/* A sum of the step: gradients are missing; all are there; it is under way; it is in place. */
typedef enum rui_el_sum_at {
    RUI_EL_SUM_WAITS,
    RUI_EL_SUM_READY,
    RUI_EL_SUM_BEGUN,
    RUI_EL_SUM_DONE
} rui_el_sum_at;

/* Reduced together. */
typedef struct rui_el_bucket {
    ru_elastic_part part;
    rui_el_sum_at at;
    bool leaves;              /* nobody asks some members for it */
    uint32_t asked;           /* 1 + the last step for which another member has begun it; 0: none */
    ru_span cut;              /* of the step: where a cut stands */
    int64_t begun_ns, due_ns; /* of the sum under way; due_ns 0: no prediction */
    int64_t model_ns;         /* ... by the costs of all sums alone */
    int64_t took_ns;          /* the last one, here */
    int64_t told_ns, told_model_ns; /* took_ns, model_ns of the step that is DONE */
    uint16_t root, rank;            /* with servers: who adds it, its place in their order */
} rui_el_bucket;

static inline bool rui_el_holds(const rui_el_bucket *b, uint32_t tensor)
{
    return tensor >= b->part.first && tensor < b->part.first + b->part.n;
}

typedef struct rui_el_sums {
    uint64_t plan;      /* low half of the id; 0: none */
    ru_queue_job *jobs; /* [n_buckets] by rank: as the network is predicted to carry them */
    int64_t seen_ns;    /* they are as of then */
    uint16_t *labels;   /* [n_buckets] names in the trace */
    ru_recur *recur;    /* [n_buckets] from the begin of the last member to its end */
    ru_recur all;       /* those of a step together: as planned, each alone, and as they took */
    double last_off;    /* the second over the first, of the last step; 0: not known */
    uint32_t *least;    /* leader: [n_buckets] ns, of those that told what this step's sums took */
    uint32_t n_told;
} rui_el_sums;

typedef struct rui_el_piece {
    uint32_t tensor;
    bool more; /* the next piece must come in the same step */
    int64_t offset, size;
} rui_el_piece;

/* What a member told of its reads, at `at_ns` of its clock; all counted from some beginning. */
typedef struct rui_el_reads {
    ru_elastic_reads r;
    int64_t work_ns; /* it computed, or waited for samples */
    int64_t at_ns;   /* 0: nothing told yet */
} rui_el_reads;

typedef struct rui_el_member {
    ru_node_id node;
    uint32_t number;
    ru_share share;
    uint16_t host; /* members of one number share memory; where the view is `near` */
    uint32_t held; /* pieces of state it has; all: full */
    bool full;     /* held everything when the view began: sends pieces, may have a share */
    bool serves;   /* has none, adds gradients of the others */
    /* the leader's notes */
    bool ready;
    int64_t done; /* in this view: steps below, else 0 */
    uint64_t layout;
    char handle[RU_ELASTIC_HANDLE_MAX];
    int64_t part_first, part_n;
    /* of a server: its free memory before the view; what it puts aside of the sums of one step, by
     * the plan; of all that it may have under way, as it said */
    int64_t free_bytes, aside_said_bytes, aside_bytes;
} rui_el_member;

typedef struct rui_el_view {
    uint32_t epoch;
    ru_node_id leader;
    int64_t start;           /* first step */
    int64_t batch, position; /* position: of the first sample of that step */
    double done, gain;       /* progress before that step; of each step */
    int64_t budget_bytes;    /* of pieces for one joiner in one step, on average */
    int64_t age_ns, first;   /* of the job: since its first view; steps done before it */
    bool plain, paused;
    bool local;        /* all on one host: sums in shared memory */
    bool near;         /* several hosts, several members on some: those read each other's memory */
    rui_el_member *at; /* [n] */
    uint32_t n, me;    /* me == n: not in it */
    uint32_t takers;   /* members that do not hold all of the state yet */
    uint32_t workers;  /* members with a share of the samples */
    uint32_t servers;  /* members that serve; 0: everybody adds */
    ru_coll_choice *choice; /* [n_buckets]; known at GO */
    uint64_t plan;          /* low half of the id of the plan that `choice` is */
    /* Leader, while it composes: what it asked. */
    ru_share_in share_in;
    ru_join_in join_in;
} rui_el_view;

/* What the leader remembers of a node when the view changes. */
typedef struct rui_el_known {
    ru_node_id node;
    double speed; /* samples/s, moving mean; 0: not measured */
    uint32_t samples;
    int64_t compute_ns;       /* of its last step with samples; 0: none yet */
    rui_el_reads told, taken; /* newest; that of the last decision */
    bool ordered;             /* since `told`: what it says next may still be of before */
} rui_el_known;
RU_VEC(rui_el_knowns, rui_el_known)

typedef struct rui_el_xfer {
    bool used, arrived;
    ru_xfer_id id;
    uint64_t cookie; /* of the device */
} rui_el_xfer;

/* How gradients become what a step updates with, as epochs and commits see it. All-reduce is one; a
 * parameter store, pipelines and federated rounds are others. */
typedef struct rui_el_exchange_ops {
    const char *name;
    uint32_t what; /* number of its messages */
    ru_status (*open)(ru_elastic *e, ru_err *err);
    void (*close)(ru_elastic *e);
    /* arena: of the view */
    ru_status (*view_taken)(ru_elastic *e, ru_arena *arena, ru_err *err);
    /* Are all connections up that it needs in the view? Asks for those that are not. */
    bool (*connected)(ru_elastic *e, ru_effects *fx);
    /* Leader: is something to be measured before GO? All begin then, and say PROBED at its end. */
    bool (*measure_due)(ru_elastic *e, ru_time now);
    bool (*measure_ripe)(const ru_elastic *e, ru_time now); /* a view is due for that */
    void (*measure_begin)(ru_elastic *e, ru_time now, ru_effects *fx);
    void (*measure_hear)(ru_elastic *e, ru_wire_in *w, ru_time now, ru_effects *fx);
    ru_status (*measured)(ru_elastic *e, ru_err *err); /* leader: everybody is through */
    /* What all must know before the first step of the view, behind GO's epoch. */
    ru_status (*go_write)(ru_elastic *e, ru_wire_out *w, ru_time now, ru_err *err);
    bool (*room_for_two)(const ru_elastic *e); /* leader, after go_write: steps under way */
    /* May set RUI_EL_LOCAL: the first step begins when the device has mapped memory. */
    ru_status (*go_read)(ru_elastic *e, ru_wire_in *w, ru_time now, ru_err *err);
    void (*planned)(ru_elastic *e, ru_time now); /* the first step begins */
    void (*view_left)(ru_elastic *e, ru_time now);
    bool (*reads)(const ru_elastic *e); /* the link reads memory of the view that was left */
    void (*step_begin)(ru_elastic *e);  /* no other one is under way */
    /* The first gradient of a step begins its exchange: that of the step before is over then. */
    void (*ready)(ru_elastic *e, int64_t step, uint32_t k, const ru_span *span, ru_time now,
                  ru_effects *fx);
    /* The device has kept its update of the step before: it may hear of sums. */
    void (*updated)(ru_elastic *e);
    /* The step may be DONE; calls rui_el_step_check then. */
    bool (*all_in)(const ru_elastic *e, int64_t step);
    void (*hear)(ru_elastic *e, const ru_event *ev, ru_effects *fx);
    bool (*owns)(uint64_t cookie);
    /* Upcalls of the channel; false: of a view that is over. */
    bool (*sent)(ru_elastic *e, uint64_t cookie, ru_time now);
    bool (*failed)(ru_elastic *e, uint64_t cookie, ru_status why, ru_time now);
    void (*arrived)(ru_elastic *e, uint64_t cookie, ru_time now);
    void (*room)(ru_elastic *e, ru_time now);
} rui_el_exchange_ops;

/* State on its way to joiners: what of it moves in a step follows from the view and the commits. */
typedef struct rui_el_mover {
    rui_el_piece *pieces; /* [n_pieces] of all state, in the order in which a joiner gets them */
    uint32_t n_pieces;
    rui_el_xfer *in, *out; /* [RUI_EL_XFERS_MAX] pieces of this step */
    uint32_t n_in, in_left;
    uint32_t n_out, top_out; /* of `out`: used ones; those that ever were */
    bool has_state;          /* this member has all of it */
} rui_el_mover;

/* The measurement of collectives under way. */
typedef struct rui_el_probe {
    uint32_t phase, turn, at; /* at: sums of this turn so far */
    uint32_t turns[3];        /* of each phase that has ended */
    int64_t phase_ns, begun_ns;
    bool told, over; /* the leader's message of this turn is there; it ends the phase */
    bool waits;      /* the turn is done here: for that message */
    uint32_t *begun; /* [bucket] sums of it */
    int64_t *ns;     /* [bucket][RUI_EL_PROBE_TURNS] */
    ru_span span;    /* one buffer for all */
} rui_el_probe;

/* The exchange by all-reduce. */
typedef struct rui_el_reduce {
    ru_elastic_part *rule; /* [n_rule] before anything is measured */
    uint32_t n_rule;
    ru_elastic_part *table; /* [RU_ELASTIC_BUCKETS_MAX] the owner's; NULL: none */
    uint32_t n_table;
    uint32_t
        table_members;     /* of the view when it was set: its algorithms are for as many; 0: all */
    const char *barrier;   /* ... and why its steps wait for all sums; NULL: they need not */
    uint32_t table_flight; /* ... and how many are under way at once; 0: all that are ready */
    uint32_t flight;       /* of the view, likewise */
    uint32_t n_begun;      /* sums under way here */
    uint32_t oldest;       /* all before this one are done, or every member is asked for them */
    ru_heap ready;         /* sums that may begin, by rank, and some that were begun early */
    rui_el_bucket *buckets; /* [n_buckets] of the view; GO may bring others than `rule` */
    uint32_t n_buckets;
    uint32_t *bucket_of; /* [n_tensors] the first, of tensors in cuts */
    ru_coll *group, *probe;
    int64_t aside_bytes; /* what one set of lanes of the group puts aside, by its schedules */
    ru_coll_cost costs[RU_COLL_ALGOS]; /* measured by the leader */
    uint32_t probed_n;                 /* members then; 0: never, or it is to be done again */
    uint32_t probed_epoch;             /* the view before whose first step it was */
    bool asked;                        /* leader: it is to be done before the next first step */
    uint32_t stay_n;                   /* leader: members that were not measured yet ... */
    int64_t stay_ns;                   /* ... since then */
    rui_el_probe probing;
    bool local_open; /* the device has a group */
    bool apart;      /* never local again: it failed once */
    /* [RUI_EL_KEPT_BYTES] of rui_el_kept; NULL: none can come early in this view */
    uint8_t *kept;
    int64_t kept_bytes;
    int64_t step;          /* whose gradients are summed */
    uint32_t buckets_done; /* of it */
    uint32_t *untold;      /* [n_untold] buckets done, which the device shall hear of later */
    uint32_t n_untold;
    uint32_t *left;  /* [n_buckets] tensors not ready */
    ru_span *spans;  /* [n_tensors] of the step */
    bool *tensor_in; /* [n_tensors] ready */
    rui_el_sums sums;
} rui_el_reduce;

/* What READY says. */
typedef struct rui_el_ready {
    uint64_t layout;
    const char *handle;
    uint32_t depth; /* steps that it can have under way; 1: */
    const char *why;
    int64_t free_bytes; /* of its memory; 0: not told */
} rui_el_ready;

/* READY of a view that this process, its leader, has not yet put in force: its device still
 * updates. */
typedef struct rui_el_early {
    ru_node_id from;
    uint8_t data[224];
    int64_t size_bytes;
} rui_el_early;
RU_VEC(rui_el_earlies, rui_el_early)

/* A message of a member of this host for the group that is not open here yet. */
typedef struct rui_el_kept {
    ru_node_id from;
    int64_t size_bytes; /* what follows it, to a multiple of 8 */
} rui_el_kept;

enum { RUI_EL_KEPT_BYTES = 256 << 10 };

/* The leader's view of the storage, by the policy `read-share`. */
typedef struct rui_el_fair {
    double capacity_mb_per_s; /* most that all got */
    double wait_next_s;       /* as the plan of the window before predicted; below 0: none told */
    uint32_t windows;         /* in a row that look unfair */
    bool repairs, told;       /* told: a plan, in this view */
} rui_el_fair;

/* What a leader keeps beside what every member does. */
typedef struct rui_el_lead {
    rui_el_earlies early;
    uint32_t n_refused; /* messages of strangers, with an epoch that is over */
    int64_t refused_ns; /* when that was told */
    rui_el_knowns known;
    uint32_t n_ready, n_done, n_bye;
    uint32_t depth; /* least of those that are ready */
    char why[RUI_EL_WHY_MAX];
    bool change, urgent; /* another view is due; at once: somebody is dead */
    int64_t named_ns;
    int64_t commit_ns, step_ns; /* of the last commit; moving mean of a step */
    double share_s; /* predicted time of a step's computing with the shares composed last */
    int64_t longest_now_ns, longest_ns, timed; /* slowest computing: of this step, of all; steps */
    int64_t samples_lost, samples_repeated;
    uint32_t n_probed; /* members that are through with measuring */
    rui_el_fair fair;  /* of these members */
} rui_el_lead;

/* A step under way. */
typedef struct rui_el_step {
    bool computed, done_sent;
    int64_t compute_ns, begun_ns;
} rui_el_step;

/* Steps under way: `step` of ru_elastic and, with depth 2, the one behind it. */
typedef struct rui_el_steps {
    rui_el_step at[2]; /* by their number modulo 2 */
    uint32_t n;
    bool updating;     /* the device was told of the last commit and has not answered */
    int64_t held_from; /* no step from this one on begins: a view follows; RUI_EL_NEVER: none */
    uint32_t depth;    /* of the group: steps that may be under way */
    char why[RUI_EL_WHY_MAX]; /* ... are not two */
} rui_el_steps;

/* Epochs and commits. */
struct ru_elastic {
    ru_elastic_options opt;
    ru_arena *arena;
    const rui_el_exchange_ops *x;
    rui_el_reduce reduce;
    rui_el_mover mover;

    rui_el_phase phase;
    ru_arena view_arena[2]; /* in force, and the one before */
    uint32_t view_side;
    rui_el_view v;
    bool view_new; /* the member machine has a newer view than v */
    int64_t broken_ns;
    bool broken;        /* something of this view is lost: another comes, or is asked for */
    bool connect_asked; /* for this view; again after a while */
    ru_effects *fx;     /* of the call under way: for upcalls of the group */

    ru_share built;
    bool has_built, built_plain;
    uint64_t layout;

    bool born; /* the job's first view is known: */
    int64_t born_ns, first_step;
    int64_t step;      /* the older one under way, or next */
    int64_t position;  /* of its first sample in the global order */
    int64_t committed; /* steps done */
    rui_el_steps steps;
    int64_t work_ns;       /* computed or waited for samples in steps before */
    bool shared;           /* the leader said how much may be outstanding */
    bool ending, said_end; /* END was heard; END was said by this process */
    bool leaves;           /* it was asked to */
    ru_status end_status;
    char end_text[RU_ERR_TEXT_MAX];

    bool stop_all;
    int64_t progress_ns; /* last time something went on: slow members are named by it */
    uint32_t redone;
    rui_el_lead lead;
};

/* elastic_view.c */
/* Blob of a view into `out`; returns its size, 0: does not fit. */
int64_t rui_el_blob_write(const rui_el_view *v, void *into, int64_t size_bytes);
/* Errors: RU_E_DATA (a peer of another version, or hostile). */
RU_MUST_USE ru_status rui_el_blob_read(const ru_elastic *e, const ru_view *view, ru_arena *arena,
                                       rui_el_view *out, ru_err *err);
/* Algorithm, chunk and depth for each of parts [n] and the members of `v`: v->choice and v->plan;
 * `asked` (may be NULL) gets the question. */
RU_MUST_USE ru_status rui_el_choose(const ru_elastic *e, rui_el_view *v,
                                    const ru_elastic_part *parts, uint32_t n, ru_arena *arena,
                                    ru_coll_policy_in *asked, ru_err *err);
/* Is this a view whose sums can go by the algorithms that a table names? */
bool rui_el_may_follow(const ru_elastic *e, const rui_el_view *v);
/* ... and of as many members as the table was made for? */
bool rui_el_follows(const ru_elastic *e, const rui_el_view *v);
/* Of n buckets, those of the table before them in GO. */
void rui_el_choices_write(const ru_elastic *e, uint32_t n, ru_wire_out *w);
RU_MUST_USE ru_status rui_el_choices_read(ru_elastic *e, ru_wire_in *w, ru_err *err);
/* Hosts of a near view: their number, and the most members of one. */
uint32_t rui_el_hosts(const rui_el_view *v, uint32_t *most);
/* This rank's schedule of an all-reduce in the view; proved for views that can be. root: the hub of
 * a star, else 0. served: a star whose other members without a share have nothing to add. */
RU_MUST_USE ru_status rui_el_schedule(const ru_elastic *e, ru_coll_algo algo, uint32_t root,
                                      bool served, ru_arena *arena, const ru_coll_schedule **out,
                                      ru_err *err);
/* Of the bytes of a sum, those of chunks under way at one time. */
int64_t rui_el_lanes_bytes(const ru_coll_choice *c, int64_t size_bytes);
/* Leader, with the choices of the view: has the channel room for the sums of two steps? */
bool rui_el_room_for_two(const ru_elastic *e);
/* Are all connections up that the group of the view needs? Asks for those that are not. */
bool rui_el_connected(ru_elastic *e, ru_effects *fx);
RU_MUST_USE ru_status rui_el_group_open(ru_elastic *e, ru_err *err);
void rui_el_group_close(ru_elastic *e, ru_time now);
bool rui_el_group_read(const ru_elastic *e); /* by the link, still, of the closed group */
const ru_coll_user *rui_el_coll_user(void);

/* elastic_table.c */
RU_MUST_USE ru_status rui_el_rule_open(ru_elastic *e, ru_err *err); /* e->reduce.rule */
/* Sum parts [n] from now on; they are copied, all lives in `arena`. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_el_table_set(ru_elastic *e, const ru_elastic_part *parts, uint32_t n,
                                       ru_arena *arena, ru_err *err);
/* What the leader of the view takes: the owner's table, else the rule's. Returns how many. */
uint32_t rui_el_table(const ru_elastic *e, const ru_elastic_part **parts);
void rui_el_table_write(const ru_elastic_part *parts, uint32_t n, uint32_t flight, ru_wire_out *w);
/* Sums that may be under way at once in the view, by the owner's table; 0: all that are ready. */
uint32_t rui_el_flight(const ru_elastic *e, const rui_el_view *v);
/* Puts them in force. Errors: RU_E_DATA when not every byte of every gradient is in it, once. */
RU_MUST_USE ru_status rui_el_table_read(ru_elastic *e, ru_wire_in *w, ru_arena *arena, ru_err *err);

/* elastic_servers.c */
void rui_el_servers_mark(const ru_elastic *e, rui_el_view *v, ru_node_id leader); /* by `full` */
void rui_el_servers_tell(const ru_elastic *e, ru_effects *fx);                    /* leader */
/* Leader, with the choices of the view: notes what each server puts aside of a step's sums in parts
 * [n]. Errors: RU_E_CONFIG when that is more than the free memory of one. */
RU_MUST_USE ru_status rui_el_servers_fit(ru_elastic *e, const ru_elastic_part *parts, uint32_t n,
                                         ru_err *err);
bool rui_el_servers_fit_two(const ru_elastic *e); /* then: steps, in half of it */
/* Behind the choices in GO of a view with servers: the rank of each of parts [n]. Reading also
 * shares the buckets out. Errors: RU_E_MEM; RU_E_DATA. */
RU_MUST_USE ru_status rui_el_ranks_write(const ru_elastic *e, const ru_elastic_part *parts,
                                         uint32_t n, ru_arena *arena, ru_wire_out *w, ru_err *err);
RU_MUST_USE ru_status rui_el_ranks_read(ru_elastic *e, ru_wire_in *w, ru_err *err);

/* elastic_reduce.c */
const rui_el_exchange_ops *rui_el_reduce_ops(void);

/* elastic_probe.c */
/* Leader: before the first step of this view; a view is due for it. */
bool rui_el_probe_due(ru_elastic *e, ru_time now);
bool rui_el_probe_ripe(const ru_elastic *e, ru_time now);
void rui_el_probe_begin(ru_elastic *e, ru_time now, ru_effects *fx);
void rui_el_probe_hear(ru_elastic *e, ru_wire_in *w, ru_time now, ru_effects *fx);
RU_MUST_USE ru_status rui_el_probe_fit(ru_elastic *e, ru_err *err); /* leader: e->costs */

/* elastic.c */
bool rui_el_stale(ru_elastic *e);
void rui_el_settle(ru_elastic *e, ru_time now, ru_effects *fx); /* go as far as events allow */
/* The device failed here, at something of `step`: the leader decides whether that is everybody's
 * end. `why`: the cause as a sentence; NULL: the device says it itself. */
void rui_el_device_failed(ru_elastic *e, ru_status st, const char *doing, int64_t step,
                          const char *why, ru_time now, ru_effects *fx);
void rui_el_end(ru_elastic *e, ru_status st, const char *sentence, ru_time now, ru_effects *fx);
void rui_el_news(ru_elastic *e, ru_elastic_what what, int64_t a, int64_t b, ru_time now);
bool rui_el_leads(const ru_elastic *e);
rui_el_member *rui_el_member_of(const ru_elastic *e, ru_node_id node); /* NULL: not in the view */
void rui_el_say_ready(ru_elastic *e, ru_time now, ru_effects *fx);
void rui_el_status_set(ru_elastic *e, ru_time now, ru_effects *fx); /* for a successor */
/* Leave what is under way: the device forgets it. */
void rui_el_abort(ru_elastic *e, ru_time now);
/* A connection to a peer that lives broke and its bytes are lost: the step cannot end in this view.
 */
void rui_el_redo(ru_elastic *e, ru_time now, ru_effects *fx);
/* The view cannot go on. This member asks for another one if none comes within a second. */
void rui_el_broken(ru_elastic *e, ru_time now);
/* A group of collectives failed at `peer`. */
void rui_el_lost(ru_elastic *e, ru_node_id peer, ru_status why, ru_time now);

double rui_el_progress(const ru_elastic *e, int64_t steps); /* ... when so many steps are done */
bool rui_el_over(const ru_elastic *e, int64_t steps);       /* the job ends then */
int64_t rui_el_batch_at(const ru_elastic *e, int64_t position); /* of the step that begins there */

/* elastic_hear.c */
void rui_el_hear(ru_elastic *e, const ru_event *ev, ru_effects *fx); /* MESSAGE */
void rui_el_hear_early(ru_elastic *e, ru_time now, ru_effects *fx);
/* A message of the view in force, begun in `buf`; then said to its leader, or told by it to all
 * members. The leader hears its own messages at once, as any member hears them. */
ru_wire_out rui_el_word(const ru_elastic *e, uint8_t *buf, int64_t size_bytes);
void rui_el_say(ru_elastic *e, uint32_t what, const ru_wire_out *w, ru_time now, ru_effects *fx);
void rui_el_say_only(ru_elastic *e, uint32_t what, ru_time now, ru_effects *fx);
void rui_el_tell_others(ru_elastic *e, uint32_t what, const ru_wire_out *w, ru_effects *fx);
void rui_el_tell_all(ru_elastic *e, uint32_t what, const ru_wire_out *w, ru_time now,
                     ru_effects *fx);

/* elastic_reads.c */
void rui_el_reads_tell(ru_elastic *e, ru_time now, ru_effects *fx); /* once a second */
void rui_el_reads_hear(ru_elastic *e, ru_node_id from, ru_wire_in *w);
void rui_el_reads_share(ru_elastic *e, ru_wire_in *w);          /* the leader's order */
void rui_el_reads_view(ru_elastic *e, const rui_el_view *next); /* comes into force */

/* Order of a sum on the wire: that in which the next step needs what it updates, which is the
 * reverse of that in which gradients become ready; where a step waits for all sums, the latter. */
static inline uint32_t rui_el_rank(const ru_elastic *e, uint32_t bucket)
{
    return e->steps.depth < 2 ? bucket
           : e->v.servers > 0 ? e->reduce.buckets[bucket].rank
                              : e->reduce.n_buckets - 1 - bucket;
}

/* Does the next step wait for others of this one while this sum is under way? The first one
 * (losses, where there are any) goes before all. */
static inline bool rui_el_in_order(const ru_elastic *e, uint32_t bucket)
{
    return e->steps.depth > 1 && rui_el_rank(e, bucket) > 0;
}

/* elastic_step.c */
static inline rui_el_step *rui_el_older(ru_elastic *e)
{
    return &e->steps.at[e->step % 2];
}
/* The next commit says, or the last one said, that a view follows. */
static inline bool rui_el_held(const ru_elastic *e)
{
    return e->steps.held_from <= e->committed;
}
/* The view is in force, and its members have to do something before anything else happens. */
static inline bool rui_el_waits(const ru_elastic *e)
{
    return e->phase >= RUI_EL_BUILD && e->phase <= RUI_EL_STEP;
}
/* The step under way as the leader hears of it: every member is DONE with it before the next. */
static inline bool rui_el_under_way(const ru_elastic *e, int64_t step)
{
    return e->phase == RUI_EL_STEP && step >= e->step && step - e->step < e->steps.n;
}
void rui_el_step_begin(ru_elastic *e, ru_time now, ru_effects *fx);
void rui_el_step_check(ru_elastic *e, ru_time now, ru_effects *fx); /* done already? */
void rui_el_commit(ru_elastic *e, ru_time now, ru_effects *fx);     /* the older step counts */
/* Steps that this member's device can have under way; 1: and why. */
uint32_t rui_el_depth(const ru_elastic *e, const char **why);
/* Why the step behind the older one does not begin before its commit, as a sentence; NULL: it
 * may, somewhere at least. */
const char *rui_el_barrier(const ru_elastic *e);
void rui_el_step_ahead(ru_elastic *e, ru_time now, ru_effects *fx); /* begin it if it may */
/* Upcalls of the channel, of ru_part_ops. */
void rui_el_sent(void *self, uint64_t cookie, ru_time now, ru_effects *fx);
void rui_el_arrived(void *self, uint64_t cookie, ru_time now, ru_effects *fx);
void rui_el_room(void *self, ru_time now, ru_effects *fx);
void rui_el_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx);

/* elastic_sum.c */
void rui_el_sums_planned(ru_elastic *e, ru_time now); /* the choices of the view are known */
RU_MUST_USE ru_status rui_el_sums_open(ru_elastic *e, ru_arena *arena, ru_err *err);
void rui_el_sums_label(ru_elastic *e); /* name them by the choices of the view */
void rui_el_sums_clear(ru_elastic *e); /* none is under way */
void rui_el_sums_next(ru_elastic *e);  /* members tell of the next step from now on */
void rui_el_sums_done(ru_elastic *e);  /* the step is DONE: what its sums took is told below */
void rui_el_sum_begin(ru_elastic *e, uint32_t b, ru_time now);
void rui_el_sum_done(ru_elastic *e, uint32_t b, ru_time now);
/* Behind DONE: what the sums took here. Behind COMMIT: what each took where it took least, which is
 * where it began last. */
void rui_el_sums_tell(const ru_elastic *e, ru_wire_out *w);
void rui_el_sums_told(ru_elastic *e, ru_wire_in *w); /* leader */
void rui_el_sums_least(const ru_elastic *e, ru_wire_out *w);
void rui_el_sums_learn(ru_elastic *e, ru_wire_in *w);
double rui_el_sums_off(const ru_elastic *e); /* as ru_elastic_facts */

/* elastic_state.c */
RU_MUST_USE ru_status rui_el_state_open(ru_elastic *e, ru_err *err);
uint32_t rui_el_pieces_now(const ru_elastic *e, uint32_t held); /* pieces of one step */
void rui_el_state_begin(ru_elastic *e, ru_time now, ru_effects *fx);
void rui_el_state_commit(ru_elastic *e); /* take over what came, count what everybody got */
void rui_el_state_drop(ru_elastic *e, ru_time now); /* the view ended */
/* Upcalls of the channel for its streams. */
bool rui_el_state_owns(uint64_t cookie);
void rui_el_state_sent(ru_elastic *e, uint64_t cookie);
void rui_el_state_arrived(ru_elastic *e, uint64_t cookie, ru_time now, ru_effects *fx);
void rui_el_state_failed(ru_elastic *e, uint64_t cookie, ru_status why, ru_time now,
                         ru_effects *fx);
void rui_el_state_close(ru_elastic *e); /* the channel closes next: nothing is sent */

/* elastic_lead.c */
void rui_el_lead_member(ru_elastic *e, const ru_event *ev, ru_effects *fx); /* LOCAL */
void rui_el_lead_ready(ru_elastic *e, ru_node_id from, const rui_el_ready *said, ru_time now,
                       ru_effects *fx);
void rui_el_lead_probed(ru_elastic *e, ru_time now, ru_effects *fx);
void rui_el_lead_apart(ru_elastic *e, ru_time now, ru_effects *fx);
void rui_el_lead_redo(ru_elastic *e, ru_node_id from, ru_time now, ru_effects *fx);
void rui_el_lead_done(ru_elastic *e, ru_node_id from, const rui_el_member *part, int64_t compute_ns,
                      ru_wire_in *sums, ru_time now, ru_effects *fx);
rui_el_known *rui_el_lead_known(ru_elastic *e, ru_node_id node, bool make); /* NULL: none */
/* Put another view in force, now or (not urgent, a step under way) with the next commit. true: it
 * was proposed. */
bool rui_el_lead_change(ru_elastic *e, bool urgent, ru_time now, ru_effects *fx);
void rui_el_tell_plan(const ru_elastic *e, const ru_policy *policy, const void *in, ru_time now);
uint32_t rui_el_needed(const ru_elastic *e);     /* members without whom nothing goes on */
bool rui_el_view_under_way(const ru_elastic *e); /* proposed, perhaps accepted */
/* The view that held everybody back is not needed any more. */
void rui_el_say_release(ru_elastic *e, ru_time now, ru_effects *fx);
bool rui_el_lead_ends(ru_elastic *e, ru_time now, ru_effects *fx); /* END was said */
/* Somebody asked for the end of the job: this process leads, or it is not for it to say so. */
void rui_el_lead_stop(ru_elastic *e, ru_time now, ru_effects *fx);
void rui_el_lead_fail(ru_elastic *e, ru_node_id from, ru_status st, const char *text, ru_time now,
                      ru_effects *fx);

/* elastic_watch.c */
void rui_el_lead_watch(ru_elastic *e, ru_time now, ru_effects *fx); /* now and then */

#endif
