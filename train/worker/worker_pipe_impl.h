/* Inside of a worker of a pipeline.
 *
 *   worker_pipe.c           loop thread: opening, what machine and compute thread say, the end
 *   worker_pipe_flow.c      both: pieces on their way between stages
 *   worker_pipe_compute.c   compute thread: steps
 *   worker_pipe_memory.c    compute thread: what executables plan, and train.recompute
 *   worker_pipe_sum.c       compute thread: sums of the workers of a stage
 *   worker_pipe_news.c      compute thread: parameters that several stages have
 *   worker_pipe_eval.c      compute thread: evaluation, forward through the stages
 *   worker_pipe_sets.c      compute thread: copies of the state, for who goes on after a loss
 *   worker_pipe_lead.c      compute thread of the leader: reports, evaluation, checkpoints
 *
 * Thread: as said at each part; `lock` guards what both touch. */
#ifndef RU_TRAIN_WORKER_WORKER_PIPE_IMPL_H
#define RU_TRAIN_WORKER_WORKER_PIPE_IMPL_H

#include "env/thread.h"
#include "exec/together.h"
#include "train/driver/trainer_impl.h"
#include "train/model/stage.h"
#include "train/pipe/order.h"
#include "train/pipe/pipe.h"
#include "train/pipe/sets.h"
#include "train/worker/worker_pipe.h"

enum {
    RUI_PIPE_EVENTS_MAX = 1 << 14,
    RUI_PIPE_DECISIONS_MAX = 64,
    RUI_PIPE_FIGURES_BYTES = 12, /* loss, correct, count */
};

/* What follows a step. */
enum {
    RUI_PIPE_SAVE = 1,  /* all send their state to the leader */
    RUI_PIPE_WAIT = 2,  /* another decision comes before the next step */
    RUI_PIPE_OVER = 4,  /* no further step */
    RUI_PIPE_DRAIN = 8, /* of a schedule that flows on: the stages drain some steps later */
    RUI_PIPE_SET = 16,  /* all copy their state */
    RUI_PIPE_FAR = 32,  /* ... all send it to the leader, which copies it */
    RUI_PIPE_EVAL = 64, /* behind that: an evaluation */
};

typedef struct rui_pipe_decision {
    int64_t step; /* done */
    uint32_t flags;
} rui_pipe_decision;

typedef enum rui_pipe_word {
    RUI_PIPE_SAY_READY,
    RUI_PIPE_SAY_SEND,
    RUI_PIPE_SAY_POST,
    RUI_PIPE_SAY_DECIDE,
    RUI_PIPE_SAY_FAILED,
    RUI_PIPE_SAY_FINISHED,
} rui_pipe_word;

typedef struct rui_pipe_event {
    rui_pipe_word word;
    uint32_t link, number;
    rui_pipe_decision decision;
} rui_pipe_event;

/* Workers by seat: those of stage 0, then those of stage 1; of a placed step by device. The leader
 * has the last one. */
typedef struct rui_pipe_seats {
    uint32_t n;        /* workers in all */
    uint32_t *workers; /* [stages] */
    uint32_t *first;   /* [stages] seat of its first worker, which sends the state; of the last
                          stage the leader has it */
    uint32_t *place;   /* [n] its stage, or its device */
    uint32_t own, replica;
    const char *called; /* a place: "stage" or "device" */
    uint32_t places;
    ru_placed placed; /* n 0: a pipeline */
} rui_pipe_seats;

/* What of a step this worker computes: its stage, or one of several parts of a placed step, which
 * are stages too. */
typedef struct rui_pipe_part {
    uint32_t stage;
    ru_exe *home;      /* state, gradient sums, update */
    ru_exe **ring;     /* [course.versions] its state with the weights after each of the last
                          updates: after k of them in k mod course.versions. One of them is home */
    ru_exe **slot;     /* [n_exes] micro-batches in flight; share the state of one of these */
    const void **made; /* [n_exes, n_stats] statistics of the last forward part */
} rui_pipe_part;

/* Evaluation through the stages. */
typedef struct rui_pipe_eval {
    ru_stages at[2];   /* of a batch, and of the last one where that is shorter; n 0: none */
    uint32_t first[2]; /* link of the first edge of each; those of the others follow */
    uint32_t batches;  /* of the first size */
    const char *alone; /* why the leader evaluates the whole model; NULL: there is nothing to say */
} rui_pipe_eval;

/* Links between seats: of each edge by the replicas of both stages, forward and back; of each stage
 * with several workers, from each to each, their sums of gradients; of a parameter that several
 * stages have its new values, to each worker of the other stage; of each edge of an evaluation; of
 * each stage its state. */
typedef struct rui_pipe_plan {
    uint32_t *edge; /* [n_edges] its first link */
    uint32_t *lead; /* [n_edges] that over which its value comes, for several parts of a device */
    uint32_t *news; /* [n_edges] the first of those of new values, if the edge is `held` */
    uint32_t *sum;  /* [stages] */
    uint32_t sums;  /* the first of all of them */
    uint32_t norm;  /* of train.clip_norm: of each seat but the leader's, to the leader and back */
    uint32_t figures; /* of the last stage's other workers, to the leader */
    rui_pipe_eval eval;
    uint32_t state; /* of stage 0 */
    uint32_t fill;  /* of the first worker: the state with which it begins */
    int64_t *bytes; /* [n_links] of a piece; 0: unused */
    int64_t memory; /* that steps need, with what was there before */
    bool on_disk;   /* the leader's copy for a checkpoint is */
} rui_pipe_plan;

/* The micro-batch under way. */
typedef struct rui_pipe_turn {
    uint32_t round; /* step of this job */
    uint32_t micro; /* in its step */
    uint32_t slot;
} rui_pipe_turn;

/* What a worker computes next: a fixed list, or, of a schedule that flows on, micro-batches one
 * after the other. */
typedef struct rui_pipe_course {
    ru_pipe_act *order; /* [n] */
    uint32_t n;
    ru_batch batch; /* the newest samples that were read */
    int64_t read;   /* micro-batches that were read */
    bool on;
    bool whole;        /* ru_pipe_whole */
    bool apart;        /* slots have weights of their own, */
    int64_t *has;      /* [n_slots] ... after so many updates; not if `whole` */
    uint32_t versions; /* executables with weights of their own beside slots */
    uint32_t own;      /* of this worker in a step */
    uint32_t ahead;    /* most on their way */
    int64_t gone;      /* the next one that goes forward: step * own and its place there */
    int64_t limit;     /* the stages drain before this step; INT64_MAX: not known yet */
    int64_t drained;   /* ... did so the last time */
    uint32_t n_news;   /* steps whose new values of parameters were taken */
    uint8_t **kept;    /* [n_slots] train.recompute: inputs of each on its way; NULL: not so */
    uint32_t fresh;    /* ... the slot whose forward part ran last */
    bool redo;         /* ... a forward part runs again: nothing leaves */
    ru_exe_together *together; /* memory of the steps of all parts; NULL: each has its own */
} rui_pipe_course;

/* Pieces of one link at this end: `ahead` places, used in turn. */
typedef struct rui_flow {
    int64_t bytes; /* 0: not of this process */
    uint32_t ahead;
    bool out;
    bool lent;     /* the place is an executable's: what comes is its input, what leaves its port */
    uint8_t *at;   /* [ahead, bytes] */
    uint8_t *busy; /* [ahead] under the lock: on its way */
} rui_flow;

/* A state of some stage, as it stands in the message of its stage. */
typedef struct rui_pipe_state {
    const char *name;
    uint32_t stage;
    ru_value_id value; /* in the stage's graph */
    int64_t offset, bytes;
} rui_pipe_state;

typedef struct rui_pipe_sets {
    int64_t after;   /* all go on after this step, with states from the leader; 0: they do not */
    ru_sets *at;     /* NULL: whoever started this worker keeps none */
    ru_sets_at from; /* this process went on from there; .step 0: not from a set */
    uint8_t *chunk;
    ru_time next; /* leader */
    uint32_t n;   /* that this process wrote */
    bool off;     /* there is no room for them */
} rui_pipe_sets;

/* Of trace records (trace/read/stages.h). */
typedef struct rui_pipe_names {
    uint16_t forward, backward, update;
} rui_pipe_names;

/* So far. */
typedef struct rui_pipe_counts {
    uint32_t saves; /* messages with states */
    uint32_t evals;
} rui_pipe_counts;

/* What the threads tell each other. */
typedef struct rui_pipe_told {
    bool viewed, go; /* the stages have their workers; all are ready */
    bool stop, over;
    uint32_t seat;
    rui_pipe_decision decisions[RUI_PIPE_DECISIONS_MAX];
    uint32_t n_decided, n_heard;
    ru_status failed; /* of the compute thread */
    ru_err why;
} rui_pipe_told;

/* Of the micro-batches of a step. */
typedef struct rui_pipe_sum {
    float loss, correct, count;
    float norm; /* of the gradients of all stages */
} rui_pipe_sum;

typedef struct rui_pipe_worker {
    const ru_worker_options *opt;
    ru_arena *arena; /* before the threads run, then the compute thread's */
    ru_arena arena_loop;
    rui_trainer t; /* compute thread, once it runs */

    /* fixed once open */
    ru_stages stages;
    ru_pipe_schedule schedule;
    uint32_t micro;
    int64_t micro_n;    /* samples of a micro-batch */
    int64_t first_step; /* known when all are there */
    rui_pipe_seats seats;
    ru_pipe_link *links; /* [n_links] between seats */
    uint32_t n_links;
    rui_pipe_plan plan;
    rui_pipe_state *states; /* [n_states] by stage */
    uint32_t n_states;
    int64_t *state_bytes; /* [stages.n] */

    /* loop thread */
    ru_shell shell;
    ru_pipe *pipe;

    /* compute thread */
    ru_thread thread;
    ru_spsc line;
    rui_pipe_part *parts; /* [n_parts] in the order in which they go forward */
    uint32_t n_parts;
    rui_pipe_part *at; /* the one under way */
    uint32_t n_slots;
    uint32_t n_exes; /* of all slots; unless those are apart, for each version of the weights */
    rui_pipe_turn turn;
    rui_pipe_course course;
    ru_stream *stream;
    rui_flow *flows; /* [n_links] */
    void *news;      /* of a parameter that two parts here have */
    rui_pipe_counts counts;
    rui_pipe_sets sets;
    int64_t waited_ns; /* in the step under way */
    rui_pipe_names names;
    rui_pipe_sum sum;
    ru_run_report_summary summary;
    bool reported;

    /* both, under lock */
    ru_mutex lock;
    ru_cond changed;
    rui_pipe_told told;
} rui_pipe_worker;

/* worker_pipe_flow.c: compute thread */
RU_MUST_USE ru_status rui_flows_open(rui_pipe_worker *w, ru_err *err);
/* Of pieces, or of the messages with states and the pieces of evaluations, which nothing touches
 * before the first is sent. */
int64_t rui_flows_bytes(const rui_pipe_worker *w, bool states);
void rui_flows_close(rui_pipe_worker *w);
/* A piece leaves: copied, or from where it is, until rui_flows_sent. RU_E_CANCELLED: the job is
 * over. */
RU_MUST_USE ru_status rui_flow_put(rui_pipe_worker *w, uint32_t link, uint32_t number, void *data);
/* Wait for the place of a piece: free, where it leaves, or with what came; until rui_flow_go. */
RU_MUST_USE ru_status rui_flow_place(rui_pipe_worker *w, uint32_t link, uint32_t number,
                                     void **place);
/* What the part made forward, or all that parts here lent to links (NULL), has left: its memory may
 * change. */
RU_MUST_USE ru_status rui_flows_sent(rui_pipe_worker *w, const rui_pipe_part *part);
/* The part under way went back: its inputs take the next pieces. */
RU_MUST_USE ru_status rui_flows_release(rui_pipe_worker *w);
/* The piece is written, and leaves; or it was read, and its place takes a later one. */
void rui_flow_go(rui_pipe_worker *w, uint32_t link, uint32_t number);
/* No further piece: the last one was read, or has left. Its memory is free. */
void rui_flow_drop(rui_pipe_worker *w, uint32_t link);
/* loop thread */
ru_span rui_flow_span(const rui_pipe_worker *w, uint32_t link, uint32_t number);
void rui_flow_moved(rui_pipe_worker *w, uint32_t link, uint32_t number);

ru_pipe_shape rui_pipe_shape(const rui_pipe_worker *w);
/* The link of an edge for the micro-batch under way, and its number there. */
uint32_t rui_pipe_link_of(const rui_pipe_worker *w, uint32_t edge, bool back, uint32_t *number);
/* States of a stage go to the leader in pieces. Bytes of piece `k`, from k * RU_STAGE_PIECE_BYTES
 * on, and its number on the link after so many messages. */
uint32_t rui_pipe_pieces(const rui_pipe_worker *w, uint32_t stage);
int64_t rui_pipe_piece_bytes(const rui_pipe_worker *w, uint32_t stage, uint32_t k);
/* The bytes of a state that are in the piece at `at`; *from: where in the state. 0: none. */
int64_t rui_pipe_overlap(const rui_pipe_state *s, int64_t at, int64_t n, int64_t *from);

/* All states of this worker, to the leader, by stage, as it takes them, if a decision with these
 * flags wants them. */
RU_MUST_USE ru_status rui_pipe_send_states(rui_pipe_worker *w, uint32_t flags, ru_err *err);

/* Micro-batches that a worker of a stage has in flight. */
uint32_t rui_pipe_ahead(const rui_pipe_worker *w, uint32_t stage);
/* This process's part with that stage; NULL: it is another one's. */
rui_pipe_part *rui_pipe_own(const rui_pipe_worker *w, uint32_t stage);
/* worker_pipe.c: the course of a device, whose parts go back as the plan has them. */
RU_MUST_USE ru_status rui_pipe_list_placed(rui_pipe_worker *w, ru_err *err);

/* worker_pipe_compute.c */
void rui_pipe_compute(void *self);
void rui_pipe_parts_close(rui_pipe_worker *w); /* when its threads have ended */
void rui_pipe_say(rui_pipe_worker *w, rui_pipe_event x);

/* worker_pipe_memory.c: compute thread. More than the job or the control group allows is refused.
 */
RU_MUST_USE ru_status rui_pipe_check_memory(rui_pipe_worker *w, ru_err *err);
/* Parts of a device compute one after the other: one memory for their steps. */
RU_MUST_USE ru_status rui_pipe_join_parts(rui_pipe_worker *w, ru_err *err);
/* The leader: the copy for a checkpoint stands on the disk if memory has no room for it. */
void rui_pipe_save_where(rui_pipe_worker *w);
void rui_pipe_tell_memory(rui_pipe_worker *w); /* what `rubato explain` shows of it */
/* train.recompute: activations of one micro-batch for all on their way. */
RU_MUST_USE ru_status rui_redo_open(rui_pipe_worker *w, ru_err *err);
/* Before the forward part: its inputs are kept. Before the backward part: they are put back, and
 * the forward part runs again, with the same masks, unless no other one ran since. */
void rui_redo_keep(rui_pipe_worker *w, uint32_t slot);
RU_MUST_USE ru_status rui_redo(rui_pipe_worker *w, uint32_t slot, const ru_run_args *args,
                               ru_err *err);

/* worker_pipe_sum.c: compute thread, behind the last part back of a step */
RU_MUST_USE ru_status rui_pipe_sum_up(rui_pipe_worker *w, ru_err *err);
/* Behind its last part forward, in a last stage with several workers: the leader gets the figures
 * of all. */
RU_MUST_USE ru_status rui_pipe_figures(rui_pipe_worker *w);

/* train.clip_norm, behind that: the norm of the gradients of all stages, and what they are scaled
 * by */
RU_MUST_USE ru_status rui_pipe_norm(rui_pipe_worker *w, uint32_t round);

/* worker_pipe_news.c: the stage that updates parameters of several stages; 0: there are none. */
uint32_t rui_pipe_owner(const rui_pipe_worker *w);
/* Compute thread; `round` counts the steps of this process. */
RU_MUST_USE ru_status rui_news_open(rui_pipe_worker *w, ru_err *err);
RU_MUST_USE ru_status rui_news_give(rui_pipe_worker *w, uint32_t round, ru_err *err);
/* Those of all steps before `round` that were not taken yet. */
RU_MUST_USE ru_status rui_news_take(rui_pipe_worker *w, uint32_t round, ru_err *err);

/* worker_pipe_eval.c. How an evaluation is cut, before links are listed: main, before the threads
 * run. */
RU_MUST_USE ru_status rui_pipe_eval_cut(rui_pipe_worker *w, ru_err *err);
/* Who evaluates a stage: of the last one the leader, of others the first worker. */
uint32_t rui_pipe_eval_seat(const rui_pipe_worker *w, uint32_t stage);
/* Compute thread. What this worker evaluates: its stage, the leader the whole model where it does
 * so alone, or nothing. */
RU_MUST_USE ru_status rui_pipe_eval_open(rui_pipe_worker *w, ru_err *err);
/* Its stage, with its newest weights; metrics: the leader's. A stop is
 * for what follows: whoever left would leave the others waiting. */
RU_MUST_USE ru_status rui_pipe_eval_run(rui_pipe_worker *w, ru_metrics *out, ru_err *err);
int64_t rui_pipe_eval_bytes(const rui_pipe_worker *w); /* of its executables */

/* worker_pipe_sets.c. Those that the launcher keeps; what this process goes on from, if it is newer
 * than the newest checkpoint: main, before the threads run. */
RU_MUST_USE ru_status rui_sets_open(rui_pipe_worker *w, ru_err *err);
/* The state of the part under way; nothing, if it goes on from a checkpoint. */
RU_MUST_USE ru_status rui_sets_fill(rui_pipe_worker *w, ru_err *err);
/* Those who have no sets get their states from the leader, of a set or of the checkpoint from which
 * it goes on. Compute thread. */
RU_MUST_USE ru_status rui_sets_hand(rui_pipe_worker *w, ru_err *err);
/* All go on after this step, with states from the leader; 0: they do not. Loop thread, when all are
 * there. */
void rui_sets_after(rui_pipe_worker *w, int64_t after);
/* Is it this worker that gives the state of its stage to the leader, or to sets? */
bool rui_pipe_gives(const rui_pipe_worker *w);
/* No sets when they do not fit beside so many bytes into this worker's share of memory. */
void rui_sets_fit(rui_pipe_worker *w, int64_t beside_bytes);
int64_t rui_sets_bytes(const rui_pipe_worker *w); /* what this worker's take */
bool rui_sets_due(const rui_pipe_worker *w);      /* leader */
/* Between two steps; waited_ns: for the others' states. */
void rui_sets_put(rui_pipe_worker *w, int64_t waited_ns);

/* worker_pipe_lead.c */
RU_MUST_USE ru_status rui_pipe_lead_open(rui_pipe_worker *w, ru_err *err);
/* The loss of the step is known: what follows it? */
RU_MUST_USE ru_status rui_pipe_decide(rui_pipe_worker *w, int64_t step, double lr,
                                      rui_pipe_decision *out, ru_err *err);
/* The step is done: its report. */
RU_MUST_USE ru_status rui_pipe_report(rui_pipe_worker *w, double lr, int64_t step_ns, ru_err *err);
/* Take the states of all, evaluate, save, finish, as decided; *over: no further step. */
RU_MUST_USE ru_status rui_pipe_saved(rui_pipe_worker *w, const rui_pipe_decision *d, bool *over,
                                     ru_err *err);

#endif
