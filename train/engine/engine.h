/* The engine of apps with shared parameters, on many processes: executors and their tasks, the
 * store (comm/ps), moves, checkpoints, recovery. One part of a node (comm/node/node.h); the same
 * under Linux (train/worker) and in the simulator.
 *
 *   leader    driver: closes a clock when every executor is DONE with it, gives arguments; map of
 *             executors and shards to members, as the blob of the view; checkpoints
 *   members   executors and shards of the map
 *
 *   executor  rows fetched -> task on the device -> changes sent -> all acknowledged: DONE(clock)
 *   leader    all DONE(c): CLOCK(c + 1) -> all; shards close clock c, executors go on
 *
 * So every change of a task is in its shards before the leader counts the task: whoever runs after
 * it sees it (happens-before). An executor runs clock c when at most `slack` clocks below it are
 * open; never past a barrier (a clock with a checkpoint) that is open.
 *
 * Moves: a new map is a new view with the same members. Its old holder sends the object when it is
 * idle; requests wait for that object alone. The destination has opened the executor's data before
 * (PREPARE). A member that dies begins a new generation: everybody loads its objects of the last
 * checkpoint, and the clocks since then run again. In bsp and rotation the result is the same bits
 * whatever moved or died. With `partial` the generation goes on instead: the view without the dead
 * says which objects are lost, and their new holders rebuild them from the newest copies there are
 * (engine_recover.c).
 *
 * Source: litz-2018 (executors, micro-tasks, driver, moves, checkpoints); the map as a view ours.
 * Thread: loop only, but ru_engine_compute. */
#ifndef RU_TRAIN_ENGINE_ENGINE_H
#define RU_TRAIN_ENGINE_ENGINE_H

#include "comm/node/node.h"
#include "comm/ps/ps.h"
#include "plan/crew/moves.h"
#include "plan/crew/reassign.h"
#include "plan/crew/save.h"
#include "plan/crew/stage.h"
#include "trace/record/recorder.h"
#include "train/app/state.h"

typedef struct ru_engine ru_engine;

enum {
    RU_ENGINE_WHAT_FIRST = 0x500,
    RU_ENGINE_WHAT_END = 0x540,
    RU_ENGINE_SLACK_MAX = 62, /* async: as many clocks apart */
    /* ssp with copies on reliable members: with more, too many clocks would not be committed. */
    RU_ENGINE_COPIES_SLACK_MAX = 8,
    RU_ENGINE_OBJECTS_MAX = 8192,
};
/* Generation of a checkpoint that another host of the app wrote: the device makes its objects with
 * ru_engine_scatter. */
#define RU_ENGINE_GIVEN (UINT32_MAX - 1)
/* In place of the generation of a checkpoint: members died, the executors go on with what they have
 * or had saved, and the tables are made again of it (ru_app_ops.recount). */
#define RU_ENGINE_COUNTED (UINT32_MAX - 2)

#define RU_ENGINE_MEMORY (INT64_C(4) << 30)

typedef enum ru_engine_driver { RU_ENGINE_BSP, RU_ENGINE_SSP, RU_ENGINE_ASYNC } ru_engine_driver;

/* What is done about executors that fall behind within a clock (engine_slice.c). */
typedef enum ru_engine_stragglers {
    RU_ENGINE_WAIT,     /* nothing */
    RU_ENGINE_REASSIGN, /* parts of their work go to others */
    RU_ENGINE_PAPER,    /* the same with the settings of flexrr-2016 */
    RU_ENGINE_STEAL,    /* who has finished asks for work */
    RU_ENGINE_BACKUP,   /* clocks close without the last ones, whose changes are lost; bsp */
} ru_engine_stragglers;

/* Members whose machines may be taken away (RU_TIER_TRANSIENT): where shards and executors are, and
 * whether reliable members keep copies of all of it (engine_stage.c). The others: RU_ENGINE_STAGES
 * + ru_stage_method. */
enum { RU_ENGINE_STAGES_OFF, RU_ENGINE_STAGES };

typedef struct ru_engine_stages {
    uint32_t method;
    int64_t notice_ns;             /* before a machine is taken away; 0: 120 s */
    double ratio_two, ratio_three; /* as in ru_stage_in */
} ru_engine_stages;

/* A checkpoint: everything as of the beginning of `clock`. `generation` in which it was written;
 * 0: none. */
typedef struct ru_engine_ckpt {
    uint32_t generation, clock;
} ru_engine_ckpt;

/* A task on its way to the device and back. */
typedef struct ru_engine_task {
    uint32_t executor; /* who works on it; task.executor's items */
    bool part; /* some items of a task whose rows these are: it is checked when all are done */
    /* A part that runs piece by piece (ru_engine_piece) and may end early. Owner: the device, from
     * `run` to ru_engine_ran; hold and release guard it. */
    struct {
        uint32_t units;     /* the task has so many; 0: this is no such part */
        uint32_t from;      /* first unit of the part */
        uint32_t next, end; /* units next .. end - 1 have not begun */
        int64_t lo, items;  /* of the task */
    } cut;
    ru_app_task task;    /* lo, hi: of the piece */
    float *const *local; /* [tables] rows of the executor; NULL: the table is not local */
    uint32_t n_wants;
    ru_app_want want[RU_APP_WANTS_MAX];
    float *value[RU_APP_WANTS_MAX];        /* [rows, width] */
    float *delta[RU_APP_WANTS_MAX];        /* of rules other than ADD; else NULL */
    const float *before[RU_APP_WANTS_MAX]; /* ADD: as read; else NULL */
    void *state;
    ru_app_result result;
    ru_status status;
    ru_err err;
    int64_t cpu_ns;
} ru_engine_task;

/* What computes and stores. Each call but `close` is answered once by the function named, later or
 * from within the call. */
typedef struct ru_engine_device_ops {
    /* Read the executor's part and open it: ru_engine_opened. helper: who will use the state; the
     * executor itself, or one that helps it, or the executor for a second one (a number that no
     * executor has). */
    void (*open)(void *self, uint32_t executor, uint32_t helper);
    void (*close)(void *self, uint32_t executor, void *state); /* nothing of it is under way */
    /* ru_engine_compute(task) on some thread, or all its pieces one after another: ru_engine_ran.
     */
    void (*run)(void *self, ru_engine_task *task);
    /* Between the two no piece of this task begins. The engine may lower cut.end meanwhile, to
     * cut.next at least. May be NULL where executors do not help each other. */
    void (*hold)(void *self, ru_engine_task *task);
    void (*release)(void *self, ru_engine_task *task);
    /* Store bytes of an object durably: ru_engine_written; bytes are view until return. A
     * checkpoint is valid when its last object, ru_engine_objects - 1, is stored. */
    void (*write)(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes, int64_t n);
    void (*read)(void *self, ru_engine_ckpt at, uint32_t object, uint32_t tag); /* ru_engine_read */
    /* Append records (store/shardlog.h) to this process's log of a generation, durably:
     * ru_engine_logged. View until return. One at a time. Logs of generations before `since` are of
     * no use any more. May be NULL, as the next, without `partial`. */
    void (*log)(void *self, uint32_t generation, uint32_t since, const void *bytes, int64_t n);
    /* Records of an object in the logs of all processes and these generations:
     * ru_engine_log_read. */
    void (*log_read)(void *self, uint32_t generation, uint32_t since, uint32_t object);
} ru_engine_device_ops;

/* Work that changed hands. */
typedef struct ru_engine_slices {
    int64_t n, units, of;          /* slices, their units, of so many */
    int64_t predicted_ns, took_ns; /* of all slices, from when they were offered until done */
    /* Sent to other processes: messages about slices and boundaries; local rows with them; all. */
    int64_t bytes, row_bytes, all_bytes;
} ru_engine_slices;

typedef enum ru_engine_news_kind {
    RU_ENGINE_CLOSED,   /* every member: clocks below `clock` are */
    RU_ENGINE_CLOCKED,  /* leader: clock is over; sums, objective */
    RU_ENGINE_MOVED,    /* an object came here: object, bytes, took_ns */
    RU_ENGINE_SAVED,    /* leader: checkpoint `ckpt` is valid */
    RU_ENGINE_RESTORED, /* a generation began from `ckpt` */
    RU_ENGINE_SETTLED,  /* leader: all that plan/crew/moves asked for has moved, after took_ns */
    RU_ENGINE_LOGGED,   /* the running checkpoint has more: bytes, took_ns */
    RU_ENGINE_REBUILT,  /* an object whose holder died is here again: object, rebuilt, took_ns */
    RU_ENGINE_ENDED,    /* all clocks are done, or the job failed: status, text */
} ru_engine_news_kind;

typedef struct ru_engine_news {
    ru_engine_news_kind kind;
    uint32_t clock, generation;
    const double *sums;       /* [RU_APP_SUMS_MAX] of the clock */
    uint32_t left_out;        /* CLOCKED: executors whose changes of the clock are dropped */
    const float *const *told; /* [tables] rows of those that are told, after the clock; else NULL */
    uint32_t object;
    int64_t bytes, took_ns;
    ru_engine_ckpt ckpt;
    const ru_ps_rebuilt *rebuilt; /* an executor: its state is as of clock at[0] */
    ru_status status;
    const char *text;
} ru_engine_news;

/* The running checkpoint: a part of the blocks is saved often, so that little is lost with a
 * member. Source: qiao-2019 (SCAR). */
typedef struct ru_engine_saves {
    uint32_t method; /* ru_save_method */
    double fraction; /* of the blocks that one save writes; 0: 1/8 */
    uint32_t clocks; /* in which as much is written as all blocks have; 0: 8 */
    double cost_max; /* share of the device's time that it may take; 0: no limit */
} ru_engine_saves;

typedef struct ru_engine_options {
    const ru_app_ops *ops;
    const void *app;
    const ru_app_shape *shape;
    const int64_t *part; /* [executors + 1] rows of the data: executor e has part[e] .. */
    uint32_t shards;
    int64_t block_bytes; /* partial: of rows that are placed and saved together; 0: as comm/ps */
    uint32_t moves;      /* ru_moves_method */
    uint32_t clocks;     /* to do */
    uint32_t driver;     /* ru_engine_driver; apps with rotation or arguments: bsp */
    uint32_t slack;      /* ssp: clocks that an executor may be ahead of the slowest */
    uint32_t stragglers; /* ru_engine_stragglers */
    uint32_t backup;     /* BACKUP: executors for which a clock does not wait */
    ru_engine_stages stages;
    uint32_t save_every; /* clocks between checkpoints; 0: by time */
    int64_t save_ns;     /* time between checkpoints; 0: one at the end */
    /* When members die the others go on, and what they held is rebuilt from older copies, or
     * counted again (ru_app_ops.recount). Without, all roll back to the last checkpoint, as they
     * must where stragglers are helped but in bsp. */
    bool partial;
    uint32_t recover; /* ru_recover_method: which copies; not ROLLBACK */
    ru_engine_saves saves;
    ru_engine_ckpt from; /* founders: begin with this checkpoint; generation 0: from nothing */
    uint32_t founders;   /* members that the first view waits for; 0: 1 */
    const ru_engine_device_ops *device;
    void *device_self;
    ru_member *member;
    ru_chan *chan;
    ru_node_id self;
    uint32_t peers_max;
    int64_t memory_bytes;  /* of shards, caches and tasks; 0: RU_ENGINE_MEMORY */
    ru_recorder *recorder; /* takes what executors do and wait for (engine_trace.c); NULL: none */
    void (*news)(void *self, const ru_engine_news *n, ru_time now);
    /* The leader moves what plan/crew/moves says to `in`; view until return. May be NULL. */
    void (*planned)(void *self, const ru_moves_in *in, ru_time now);
    /* Save number `count` of this process writes what plan/crew/save says. */
    void (*saving)(void *self, const ru_save_in *in, uint32_t count, ru_time now);
    /* Leader: all objects that were lost, each a block here, are rebuilt, took_ns after the view
     * that said so; their rows are so many clocks behind, on average. */
    void (*recovered)(void *self, const ru_recover_in *in, double late, int64_t took_ns,
                      ru_time now);
    /* The leader has plan/crew/reassign say what slow executors give to others in every clock,
     * again and again; told are its first question and later ones, each after twice as many.
     * slices, clock_ns: all that changed hands since the last one, and the mean time of a clock. in
     * NULL: the end. */
    void (*reassigned)(void *self, const ru_reassign_in *in, const ru_engine_slices *slices,
                       int64_t clock_ns);
    /* Leader: plan/crew/stage answers `in` (view until return), and this is in force soon. clock_s:
     * a clock took so long before; 0: not known. in NULL: the end. */
    void (*staged)(void *self, const ru_stage_in *in, double clock_s, ru_time now);
    void *news_self;
} ru_engine_options;

/* Errors: RU_E_ARG, RU_E_LIMIT, RU_E_MEM, of the app's driver. */
RU_MUST_USE ru_status ru_engine_open(const ru_engine_options *opt, ru_arena *arena, ru_engine **out,
                                     ru_err *err);
/* After ru_node_quiet, when the device is idle. States are closed by the device. NULL is fine. */
void ru_engine_close(ru_engine *e);
ru_part ru_engine_part(ru_engine *e);

/* Answers of the device, within ru_node_enter and _leave unless from within its call. */
void ru_engine_opened(ru_engine *e, uint32_t executor, uint32_t helper, void *state, ru_status st,
                      const char *why, ru_time now, ru_effects *fx);
void ru_engine_ran(ru_engine *e, ru_engine_task *task, ru_time now, ru_effects *fx);
void ru_engine_written(ru_engine *e, ru_engine_ckpt at, uint32_t object, ru_status st,
                       const char *why, ru_time now, ru_effects *fx);
/* bytes: view until return. */
void ru_engine_read(ru_engine *e, uint32_t tag, uint32_t object, const void *bytes, int64_t n,
                    ru_status st, const char *why, ru_time now, ru_effects *fx);

void ru_engine_logged(ru_engine *e, uint32_t generation, int64_t busy_ns, ru_status st,
                      const char *why, ru_time now, ru_effects *fx);
/* bytes: view until return. */
void ru_engine_log_read(ru_engine *e, uint32_t generation, uint32_t object, const void *bytes,
                        int64_t n, ru_status st, const char *why, ru_time now, ru_effects *fx);

/* Begin the next piece of a task, of at most `units` units; less near its end. false: none is left.
 * Thread: any, but not while the task is held. */
bool ru_engine_piece(ru_engine_task *task, uint32_t units);
/* Run the app, for a piece if the task has some, and find what changed. Thread: any, one for each
 * task. */
void ru_engine_compute(const ru_app_ops *ops, const ru_app_shape *shape, ru_engine_task *task);

/* Leader: move an object (executors, then shards) to a member, by its place in the view; elsewhere
 * it does nothing. */
void ru_engine_move(ru_engine *e, uint32_t object, uint32_t rank, ru_time now, ru_effects *fx);
/* Leave in order, or end the job after the clock under way with a checkpoint. */
void ru_engine_stop(ru_engine *e, bool all, ru_time now, ru_effects *fx);
/* The job cannot go on, for all. */
void ru_engine_fail(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx);
uint32_t ru_engine_objects(const ru_engine *e); /* of a checkpoint: executors, shards, the driver */

/* The contents of one object of a checkpoint into a state of the same shape: all objects together
 * are the whole job. Thread: any, as long as the engine is open. Errors: RU_E_DATA, RU_E_MEM. */
RU_MUST_USE ru_status ru_engine_gather(const ru_engine *e, uint32_t object, const void *bytes,
                                       int64_t n, ru_app_state *into);
/* The inverse: an object as it would be in a checkpoint at the beginning of from->clock. Returns
 * its size; into NULL: that alone. Thread: as gather. */
int64_t ru_engine_scatter(const ru_engine *e, uint32_t object, const ru_app_state *from,
                          void *into);

typedef struct ru_engine_facts {
    uint32_t generation, closed, executors_here, shards_here, moves, restores;
    uint32_t shipped;             /* executors sent from here */
    uint32_t redone;              /* slices of dead helpers, worked on again */
    uint32_t recoveries, rebuilt; /* views after which all went on; objects rebuilt here */
    bool leads, ended;
    int64_t busy_ns, logged_bytes;
    /* With a recorder: what this process did, and waited for; 0 otherwise. */
    int64_t compute_ns, network_ns, wait_ns, other_ns;
} ru_engine_facts;
/* Steps from now on are recorded with this plan of the map, and its time of a clock. */
void ru_engine_record_plan(ru_engine *e, uint32_t plan, uint32_t predicted_ns);
void ru_engine_facts_get(const ru_engine *e, ru_engine_facts *into);

#endif
