/* Inside of the engine.
 *
 *   engine.c        opening, events, views and generations, clocks as members hear them
 *   engine_exec.c   executors: data, state, moves
 *   engine_task.c   one task: rows in, changes out
 *   engine_slice.c  work of a clock that changes hands; engine_help.c: at the helper;
 *                   engine_redo.c: helpers that died
 *   engine_share.c  the leader: what slow executors give away in every clock
 *   engine_backup.c clocks that close without the last executors
 *   engine_lead.c   the leader: DONE, closing clocks, the driver's arguments, checkpoints
 *   engine_map.c    the leader: who holds what; views
 *   engine_save.c   the running checkpoint of a member
 *   engine_recover.c objects whose holder died
 *   engine_count.c  tables that are made again of what executors hold
 *   engine_trace.c  records of what executors do and wait for
 *   engine_copy.c   copies of objects in the memory of reliable members
 *   engine_stage.c  the leader: clocks that are committed
 *   engine_place.c  the leader: stages, by what is measured
 *
 * Thread: loop only. */
#ifndef RU_TRAIN_ENGINE_ENGINE_IMPL_H
#define RU_TRAIN_ENGINE_ENGINE_IMPL_H

#include <stddef.h>

#include "base/log.h"
#include "comm/member/among.h"
#include "train/engine/engine.h"

#define RUI_ENGINE_NONE UINT32_MAX

/* Parcels. */
enum {
    RUI_ENGINE_DONE = RU_PS_WHAT_OWNER,
    RUI_ENGINE_CLOCK,
    RUI_ENGINE_READY,    /* a member has installed a view: tell it the clock */
    RUI_ENGINE_PREPARE,  /* open this executor's data: it will come */
    RUI_ENGINE_PREPARED, /* done */
    RUI_ENGINE_SAVED,    /* an object of a checkpoint is stored */
    RUI_ENGINE_FAILED,   /* the job cannot go on: a sentence */
    RUI_ENGINE_GO,       /* a member that wants to leave holds nothing any more */
    RUI_ENGINE_REBUILT,  /* a lost object is here again: rui_rebuilt */
    RUI_ENGINE_COPIES,   /* a member's copies of rows of a lost shard, for its new holder */
    RUI_ENGINE_SLICE,    /* between executors: rui_slice_head */
    RUI_ENGINE_SHARES,   /* what each executor gives to its helpers in every clock */
    RUI_ENGINE_COPY, /* an object, or what changed of it, for its keeper: executor, clock, since */
    RUI_ENGINE_COPIED, /* a keeper can make all its objects as of `clock` */
    RUI_ENGINE_FETCH,  /* its new holder asks the keeper for an object as of `clock` */
    RUI_ENGINE_KEPT,   /* ... and gets it */
    RUI_ENGINE_LATER,  /* COPY or FETCH (status) of a view that the keeper does not know */
};
enum { RUI_ENGINE_LEAVERS_MAX = 64 };
/* Timers. */
enum {
    RUI_ENGINE_AGAIN = RU_ENGINE_WHAT_FIRST + 16, /* DONE that may be lost */
    RUI_ENGINE_LOOK,                              /* leader: views that were not possible before */
    RUI_ENGINE_BYE,
    RUI_ENGINE_WAKE, /* slices */
    RUI_ENGINE_LATE, /* copies that a keeper could not take */
    RUI_ENGINE_LOCAL /* of parcels to this process */
};

typedef struct rui_engine_head {
    uint32_t generation, epoch;
    uint32_t closed;   /* clocks, as the sender knows */
    uint32_t executor; /* or object */
    uint32_t clock;    /* DONE: this one is; CLOCK: those below are closed */
    uint32_t args_clock, saved_generation, saved_clock; /* CLOCK: of the body; last valid ckpt */
    uint32_t save;         /* CLOCK: a checkpoint at `clock`, the number of this attempt; 0: none */
    uint32_t barrier;      /* CLOCK: next one; 0: none. READY: the fence, when nothing that was
                            * acknowledged is sent again any more */
    uint32_t end;          /* CLOCK: the job ends: 1 + status. READY: `wants` */
    uint32_t status;       /* SAVED, FAILED */
    uint32_t copy;         /* CLOCK: the last clock that is copied at its beginning; NONE: none */
    uint32_t kept;         /* CLOCK: the last one that is committed; NONE: none */
    uint32_t since;        /* COPY: what changed since this clock; NONE: all of it */
    int64_t cpu_ns, bytes; /* DONE */
    /* DONE: of this process since its last one: rows read, changes sent, time with a task; rate of
     * its link. */
    int64_t read_bytes, write_bytes, work_ns, link_bytes_per_s;
    int64_t unit_ns, rtt_ns; /* DONE: engine_slice.c */
    ru_engine_slices slices; /* DONE: of this clock */
} rui_engine_head;

enum { RUI_ENGINE_ENDS_ME = 1, RUI_ENGINE_ENDS_JOB = 2 };

#define RUI_ENGINE_BLOB UINT32_C(0x31417552) /* "RuA1" */

/* Blob of a view. Then for each object its holder's place in the view, uint16_t, with
 * RUI_ENGINE_MOVED when it moved since the generation began: a member that missed views knows by it
 * whether to load the object or to wait for it. RUI_ENGINE_LOST: its holder rebuilds it unless it
 * has it. */
typedef struct rui_engine_blob {
    uint32_t magic;
    uint32_t generation; /* the epoch of the view that began it; 0: it begins with this one */
    uint32_t from_generation, from_clock, executors, shards;
    uint32_t fence;   /* epoch of the last view of the generation after a loss; NONE: this one */
    uint32_t keepers; /* the first so many reliable members keep copies; 0: nobody */
    uint32_t saved_generation, saved_clock; /* COUNTED: the newest checkpoint */
} rui_engine_blob;
/* In place of the generation of a checkpoint: it begins from the copies of its keepers. */
#define RUI_ENGINE_MEMORY UINT32_MAX
#define RUI_ENGINE_MOVED  UINT16_C(0x8000)
#define RUI_ENGINE_LOST   UINT16_C(0x4000)
/* Tag of reads for an object that is rebuilt, beside the generation. */
#define RUI_ENGINE_REBUILDS (UINT32_C(1) << 31)

typedef enum rui_want {
    RUI_WANT_NONE,
    RUI_WANT_RESTORE, /* from a checkpoint, or from nothing */
    RUI_WANT_ARRIVE,  /* from its last holder */
    RUI_WANT_REBUILD, /* its last holder died */
    RUI_WANT_READY    /* it is here */
} rui_want;

typedef enum rui_busy {
    RUI_IDLE,
    RUI_OPENS, /* the device reads its data */
    RUI_READS, /* ... its checkpoint */
    RUI_FETCHES,
    RUI_RUNS,
    RUI_SLICES, /* its clock is open, and parts of it run here or elsewhere */
    RUI_FLUSHES
} rui_busy;

typedef struct rui_exec {
    bool mine, prepare; /* prepare: the leader wants to know when it is open */
    bool used;          /* the state is not that of exec_open */
    rui_want want;
    rui_busy busy;
    uint32_t generation;             /* when the device began */
    uint32_t step;                   /* next; clock * rounds + round */
    uint32_t asked_clock;            /* clock of the checkpoint that is read */
    void *state;                     /* of the app; NULL: not open */
    int64_t first, rows;             /* its part of the data */
    float *local[RU_APP_TABLES_MAX]; /* [rows, width] */
    void *arrived;                   /* bytes of its state; NULL: none */
    int64_t arrived_bytes;
    uint32_t arrived_epoch; /* of the map by which it was sent */
    ru_time arrived_at;
    ru_engine_task task;
    ru_ps_rows *fetch; /* of all wants that come from the store */
    uint32_t n_fetch, cap_fetch;
    float *buffer;
    int64_t buffer_floats;
    double *sums;      /* [rounds, SUMS_MAX] of the clock under way */
    double *done;      /* [window, rounds, SUMS_MAX] of clocks that are not closed */
    int64_t *done_cpu; /* [window] */
    int64_t cpu_ns;    /* of the clock under way */
} rui_exec;

/* How a lost object came back. */
typedef struct rui_rebuilt {
    int64_t log_at, cache_at, rows, late;
    double moved, begun;
} rui_rebuilt;

/* State of an object at the beginning of a clock, or what changed of it. Owner: bytes is a buffer.
 */
typedef struct rui_entry {
    struct rui_entry *next;
    uint32_t clock, since; /* since NONE: all of it */
    bool reach;            /* with the base and the entries before it is the object as of `clock` */
    bool again;            /* its keeper does not have it */
    void *bytes;
    int64_t n;
} rui_entry;

/* What this process has of an object beside the object itself: as its keeper, or as its holder. */
typedef struct rui_copy {
    void *base; /* a buffer, as of base_clock; NULL: none */
    int64_t base_bytes;
    uint32_t base_clock;
    uint32_t taken;   /* newest entry that was made here; NONE: the next one is whole */
    rui_entry *entry; /* of clocks that were not committed, ascending */
    bool wanted;      /* its keeper was asked for it */
    ru_time asked;
} rui_copy;

enum { RUI_COPY_CLOCKS = 64, RUI_STAGE_DRIVERS = RUI_COPY_CLOCKS };

/* Copies at a member. */
typedef struct rui_copies_all {
    rui_copy *of;       /* [executors + shards] */
    ru_node_id *keeper; /* [RU_MEMBERS_MAX] of object o: o % n_keepers */
    uint32_t n_keepers; /* 0: there are no copies */
    uint32_t mine;      /* objects that this process keeps */
    uint32_t clock;     /* the last one that is copied; NONE: none */
    uint32_t kept;      /* ... that is committed; NONE: none */
    uint32_t complete;  /* the newest of which all that it keeps is here; NONE: none */
    uint32_t n_reach[RUI_COPY_CLOCKS]; /* [clock % CLOCKS] objects after `kept` that can be made */
    int64_t sent_bytes;
} rui_copies_all;

/* A clock that is told when it is committed. Owner: a buffer, with its rows behind it. */
typedef struct rui_told {
    struct rui_told *next;
    ru_engine_news news;
    double sums[RU_APP_SUMS_MAX];
    const float *told[RU_APP_TABLES_MAX];
} rui_told;

/* The leader: what is committed, and which stage it is. */
typedef struct rui_stager {
    uint32_t committed; /* the newest clock of which copies of everything are kept, */
    bool safe;          /* ... or the one with which the generation began, without copies */
    bool on;            /* there are copies */
    uint64_t *have;     /* [RU_MEMBERS_MAX] bit k: keeper i has all of clock committed + 1 + k */
    uint32_t copy;      /* the last clock that is copied; NONE: none */
    ru_app_bytes driver[RUI_STAGE_DRIVERS]; /* sums and driver as of driver_clock */
    uint32_t driver_clock[RUI_STAGE_DRIVERS];
    rui_told *told, *told_last;
    uint32_t dead;          /* members, a moment ago, */
    ru_time dead_at;        /* ... since the first of them */
    bool written;           /* the checkpoint under way is complete, and given to the device */
    uint32_t every, behind; /* clocks between copies; copied clocks not committed, at most */
    uint32_t barrier;       /* ssp: the one of the next copy; 0: none */
    /* What was measured; engine_place.c. */
    double read_bytes, write_bytes;       /* of a member that computes, in a clock, lately */
    double work_s, clock_s;               /* of all of them; of a clock */
    double link_bytes_per_s;              /* the fastest that was seen; 0: not yet */
    double sum_read, sum_write, sum_work; /* of the clock under way */
    uint32_t workers;                     /* members with executors, in this view; 0: not counted */
    ru_time closed_at;
    uint32_t n_measured;     /* clocks since members changed or things moved */
    uint32_t stage, servers; /* in force, or on the way; 0: none */
} rui_stager;

typedef struct rui_lead {
    bool on;
    uint32_t *done; /* [executors] clocks */
    double *sums;   /* [window, executors, rounds, SUMS_MAX] */
    double last[RU_APP_SUMS_MAX];
    int64_t *cpu_ns;  /* [executors] of a clock, lately */
    void *driver;     /* of the app; NULL: none */
    bool driving;     /* rows for its arguments are on their way */
    bool clocked;     /* ... and those that are told after a clock */
    uint32_t n_drive; /* wants of the driver; those after them are told */
    ru_engine_task drive;
    ru_ps_rows *drive_rows;
    uint32_t n_drive_rows, cap_drive_rows;
    float *drive_buffer;
    uint32_t closed;
    ru_app_bytes args; /* of clock args_clock; NONE: none */
    uint32_t args_clock;
    uint32_t barrier; /* clock of the next checkpoint by time; 0: none */
    uint32_t save;    /* clock of the checkpoint that is being stored + 1; 0: none */
    ru_time save_at;
    int64_t save_bytes;
    uint8_t *stored; /* [executors + shards] */
    uint32_t n_stored;
    ru_app_bytes driver_bytes;
    bool reading;      /* the driver's state of a checkpoint */
    ru_node_id *to;    /* [executors + shards] planned holder */
    ru_node_id *at;    /* [executors + shards] last reported holder; 0: none */
    uint8_t *prepared; /* [executors] 0 not asked, 1 asked, 2 yes */
    bool plan;         /* members changed: what moves where? */
    uint32_t *ready;   /* [RU_MEMBERS_MAX] epoch that each member of the view has said it has */
    bool planned;      /* ... and not all of it has moved yet */
    ru_time planned_at;
    bool renew; /* it became the leader: begin a generation */
    uint32_t n_members, n_leavers;
    uint32_t part_clock; /* checkpoint after which this leader may leave; 0: none was asked for */
    ru_node_id leaver[RUI_ENGINE_LEAVERS_MAX]; /* who want to leave */
    uint8_t *lost;        /* [executors + shards] nobody has it: rebuild it with the next view */
    uint8_t *seen;        /* [executors + shards] somebody said so since the last loss, */
    bool check;           /* ... and not all members have spoken yet */
    bool adopt;           /* it leads since the loss: which clock is it? the members say so */
    rui_rebuilt *rebuilt; /* [executors + shards] rows -1: not yet, 0: it was not lost */
    ru_time lost_at;      /* the last loss */
    ru_time watched_at;   /* clock `watched` was the next one to close since then */
    uint32_t watched;
    int64_t longest_ns;  /* of a clock */
    uint32_t *resent;    /* [RU_MEMBERS_MAX] fence of which each member has sent all again */
    uint32_t all_resent; /* ... of which all have */
    bool stalled;        /* none closes after a loss: begin a generation */
    bool restarts;       /* moves restart: the generation that begins is its plan's */
    uint32_t adopt_from; /* clocks closed, as far as they have said */
    ru_arena plan_out, plan_scratch;
    rui_stager stage;
    uint32_t end_clock; /* the job ends when so many clocks are closed and saved */
    bool ended;
} rui_lead;

/* Copies of rows that a member sent. Owner: buffers. */
typedef struct rui_copies {
    struct rui_copies *next;
    ru_node_id from;
    void *bytes;
    int64_t n;
} rui_copies;

/* An object that is rebuilt here. Owner: a buffer, as what it points to. */
typedef struct rui_rebuild {
    bool begun, saved_read, log_read;
    void *saved, *log; /* of the newest checkpoint; records */
    int64_t saved_bytes, log_bytes;
    uint32_t step; /* rows that rotate: the first one that may not be done */
    rui_copies *copies;
    ru_time at;
} rui_rebuild;

typedef struct rui_saver {
    uint8_t *bytes; /* records on their way, a buffer; NULL: none */
    int64_t n;
    bool begun;                      /* all that is here has been saved once */
    uint32_t clock, count;           /* of the last save; saves so far */
    double due;                      /* fractions that this save writes */
    uint32_t cursor, turn;           /* of blocks, of executors */
    double owed_blocks, owed_states; /* fractions of one that the next save owes */
    ru_time at, next;                /* of the last save; none before `next` */
    ru_arena out;
} rui_saver;

/* The end of the job here, and why. */
typedef struct rui_engine_end {
    ru_err why;
    bool told; /* to the owner */
} rui_engine_end;

struct ru_engine {
    ru_engine_options opt;
    ru_arena *arena;
    ru_ps *ps;
    ru_bufs *bufs;
    uint32_t n_execs, n_shards, window, driver_slack;
    int64_t sums_n; /* rounds * SUMS_MAX */
    uint32_t generation, epoch, closed;
    ru_engine_ckpt saved;  /* newest valid one that this member knows */
    ru_engine_ckpt base;   /* of this generation */
    ru_node_id *holder;    /* [executors + shards] */
    uint8_t *moved;        /* [executors + shards] since the generation began */
    uint8_t *lost;         /* [executors + shards] its holder rebuilds it */
    bool counts;           /* what is lost is counted again; then opt.partial is false */
    uint32_t fence;        /* epoch of the last view after a loss; messages of before are void */
    uint32_t heard;        /* epoch in which the leader told the clock last */
    rui_rebuild **rebuild; /* [executors + shards] NULL: not rebuilt here */
    rui_saver saver;
    rui_copies_all copies;
    struct rui_backup *backup; /* NULL: clocks wait for all */
    uint32_t n_works;          /* tasks here on the device */
    ru_time works_since;
    int64_t work_ns, told_work_ns, told_read_bytes, told_write_bytes; /* told with DONE */
    rui_exec *exec;
    uint32_t save;     /* clock whose checkpoint is being written + 1; 0: none */
    uint32_t save_try; /* its number */
    uint8_t *written;  /* [executors + shards] this member has given it to the device */
    uint8_t *args;
    int64_t args_bytes;
    uint32_t args_clock; /* RUI_ENGINE_NONE: none */
    uint32_t barrier;    /* no executor runs this clock before it is closed below; 0: none */
    rui_lead lead;
    struct rui_slices *slices; /* NULL: nobody helps anybody */
    struct rui_records *trace; /* NULL: nothing is recorded */
    bool ended;
    uint32_t wants; /* RUI_ENGINE_ENDS_...: every READY says it */
    rui_engine_end end;
    ru_engine_facts facts;
};

static inline uint32_t rui_objects(const ru_engine *e)
{
    return e->n_execs + e->n_shards;
}
static inline bool rui_among(const ru_node_id *nodes, uint32_t n, ru_node_id x)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ru_node_is(nodes[i], x)) {
            return true;
        }
    }
    return false;
}
/* Of the view, into `nodes` [RU_MEMBERS_MAX]; returns how many. */
static inline uint32_t rui_members(const ru_engine *e, ru_node_id *nodes)
{
    const ru_view *v = ru_member_view(e->opt.member);
    for (uint32_t i = 0; i < v->n; i++) {
        nodes[i] = v->at[i].node;
    }
    return v->n;
}
/* engine.c */
void rui_engine_news(ru_engine *e, ru_engine_news *n, ru_time now);
bool rui_engine_newer(ru_engine_ckpt a, ru_engine_ckpt than);
/* The job cannot go on. */
void rui_engine_fail(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx);
void rui_engine_over(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx);
/* It has ended: long enough ago, */
void rui_engine_bye(ru_engine *e, ru_time now);
/* and a connection ended too. */
void rui_engine_down(ru_engine *e, ru_time now, ru_effects *fx);
/* To a member, this one too. */
void rui_engine_send(ru_engine *e, ru_node_id to, uint32_t what, rui_engine_head *h,
                     const void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
/* Which objects are here; asks: for the clock. */
void rui_engine_ready(ru_engine *e, bool asks, ru_time now, ru_effects *fx);
void rui_engine_heard_clock(ru_engine *e, const rui_engine_head *h, const void *args,
                            int64_t args_bytes, ru_time now, ru_effects *fx);

/* Its part of the checkpoint under way, if it is not given yet. */
void rui_engine_save_shard(ru_engine *e, uint32_t s, ru_time now, ru_effects *fx);

/* engine_save.c */
void rui_saver_reset(ru_engine *e);                             /* a new generation */
void rui_saver_look(ru_engine *e, ru_time now, ru_effects *fx); /* clocks were closed */
void rui_saver_close(ru_engine *e);

/* engine_recover.c: members */
void rui_rebuild_reset(ru_engine *e); /* a new generation */
/* A view is in force; recovers: with it objects were lost. */
void rui_rebuild_view(ru_engine *e, bool recovers, ru_time now, ru_effects *fx);
/* Those that are complete are here; copies that are missing are asked for by the next view. */
void rui_rebuild_look(ru_engine *e, ru_time now, ru_effects *fx);
void rui_rebuild_read(ru_engine *e, uint32_t object, const void *bytes, int64_t n, ru_status st,
                      const char *why, ru_time now, ru_effects *fx);
void rui_rebuild_copies(ru_engine *e, ru_node_id from, const rui_engine_head *h, void *body,
                        int64_t body_bytes, ru_time now, ru_effects *fx); /* takes body */
/* ... the leader */
RU_MUST_USE bool rui_recover_may(const ru_engine *e, const ru_node_id *nodes, uint32_t n);
void rui_recover_in_force(ru_engine *e, ru_time now, ru_effects *fx);
/* The leader, several times a second: clocks must close after a loss. */
void rui_recover_watch(ru_engine *e, ru_time now, ru_effects *fx);
void rui_recover_rebuilt(ru_engine *e, const rui_engine_head *h, const void *body, int64_t bytes,
                         ru_time now);
/* READY of a member: its objects, those here and those on their way from it. */
void rui_recover_ready(ru_engine *e, const rui_engine_head *h, const uint8_t *here,
                       const uint8_t *leaving, bool all, ru_time now, ru_effects *fx);

/* engine_count.c */
/* The leader: may the job go on without those who are not among these members? */
RU_MUST_USE bool rui_count_may(const ru_engine *e, const ru_node_id *nodes, uint32_t n);
/* ... with this in place of a checkpoint. */
RU_MUST_USE ru_engine_ckpt rui_count_from(ru_engine *e, const ru_node_id *nodes, uint32_t n,
                                          ru_engine_ckpt newest, ru_time now);
RU_MUST_USE bool rui_count_is(const ru_engine *e); /* such a generation */
/* The clock as of which a task reads that needs the rows of `need`: tables are whole again. */
uint32_t rui_count_need(const ru_engine *e, uint32_t need);
/* Such a generation begins at the leader. */
void rui_count_begin(ru_engine *e);
/* A generation begins: which executors have to be restored, and which go on. */
void rui_count_execs(ru_engine *e);
/* Logs of earlier generations are of no use. */
RU_MUST_USE uint32_t rui_count_since(const ru_engine *e);

/* engine_copy.c */
RU_MUST_USE ru_status rui_copy_open(ru_engine *e, ru_err *err);
/* A view with so many keepers is in force; before its generation begins. */
void rui_copy_view(ru_engine *e, uint32_t keepers, bool fresh);
void rui_copy_reset(ru_engine *e); /* a new generation */
/* The object as of the clock that is copied, if it is, and was not taken. */
void rui_copy_take(ru_engine *e, uint32_t object, ru_time now, ru_effects *fx);
void rui_copy_came(ru_engine *e, uint32_t object); /* from another holder */
void rui_copy_commit(ru_engine *e, uint32_t clock);
/* A generation that begins from copies: the object as it begins; NULL: it is fetched. Owner: view
 * until the next event. */
const void *rui_copy_base(ru_engine *e, uint32_t object, int64_t *n, ru_time now, ru_effects *fx);
/* A shard of this member as its generation begins, from wherever that is. */
void rui_engine_load_shard(ru_engine *e, uint32_t s, ru_time now, ru_effects *fx);
void rui_copy_heard(ru_engine *e, ru_node_id from, uint32_t what, const rui_engine_head *h,
                    void *body, int64_t body_bytes, ru_time now, ru_effects *fx); /* takes body */
/* A keeper that does not know yet the sender's generation, or that it is a keeper. */
void rui_copy_refuse(ru_engine *e, ru_node_id from, uint32_t what, const rui_engine_head *h,
                     ru_time now, ru_effects *fx);
void rui_copy_up(ru_engine *e, ru_node_id node, ru_time now, ru_effects *fx);
void rui_copy_again(ru_engine *e, ru_time now, ru_effects *fx);
static inline bool rui_copy_restores(const ru_engine *e)
{
    return e->base.generation == RUI_ENGINE_MEMORY;
}
/* engine_stage.c: the leader */
RU_MUST_USE ru_status rui_stage_open(ru_engine *e, ru_err *err);
void rui_stage_close(ru_engine *e);
void rui_stage_begin(ru_engine *e);                               /* a generation */
void rui_stage_closed(ru_engine *e, ru_time now, ru_effects *fx); /* a clock: is it copied? */
bool rui_stage_may_close(const ru_engine *e);            /* the next clock, by what copies lack */
bool rui_stage_safe(const ru_engine *e, uint32_t clock); /* or there are no copies */
void rui_stage_tell(ru_engine *e, const ru_engine_news *n, ru_time now); /* a clock, once safe */
void rui_stage_copied(ru_engine *e, ru_node_id from, uint32_t clock, ru_time now, ru_effects *fx);
void rui_stage_look(ru_engine *e, ru_time now, ru_effects *fx); /* is more committed? */
/* Sums and driver as of the clock with which the generation begins. */
const ru_app_bytes *rui_stage_driver(const ru_engine *e);
/* Can a generation with these members begin from copies? */
RU_MUST_USE bool rui_stage_may(const ru_engine *e, const ru_node_id *nodes, uint32_t n);
bool rui_stage_broken(const ru_engine *e, const ru_node_id *nodes,
                      uint32_t n); /* a keeper is gone */
/* Members are dead; may more be, at the same time? */
RU_MUST_USE bool rui_stage_waits(ru_engine *e, const ru_node_id *nodes, uint32_t n, uint32_t n_dead,
                                 ru_time now);
/* engine_place.c: the leader */
uint32_t rui_stage_keepers(ru_engine *e, const ru_node_id *nodes, uint32_t n, bool fresh);
void rui_stage_heard(ru_engine *e, const rui_engine_head *h); /* DONE */
void rui_stage_end(ru_engine *e, ru_time now);                /* of the job */
void rui_stage_measure(ru_engine *e, ru_time now);            /* a clock is closed */
/* Does another stage pay by now? */
RU_MUST_USE bool rui_stage_pays(ru_engine *e);
/* A member: what DONE says of it. */
void rui_stage_facts(ru_engine *e, rui_engine_head *h);
void rui_stage_works(ru_engine *e, bool begins, ru_time now); /* a task here */
/* Who holds what among these members, those that leave aside; `to` is what they hold now, 0:
 * nobody. false: it is not its business. */
RU_MUST_USE bool rui_stage_place(ru_engine *e, const ru_node_id *nodes, uint32_t n, ru_node_id *to,
                                 ru_time now, ru_effects *fx);

/* engine_exec.c */
void rui_exec_settle(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_exec_reset(ru_engine *e, uint32_t k); /* a new generation */
void rui_exec_map(ru_engine *e, uint32_t k, bool mine, ru_time now, ru_effects *fx);
/* epoch: of the map by which it was sent. */
void rui_exec_came(ru_engine *e, uint32_t k, void *bytes, int64_t n, uint32_t epoch, ru_time now,
                   ru_effects *fx);
void rui_exec_tell(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx); /* DONE, again */
/* State as bytes: a buffer; NULL: no memory. */
void *rui_exec_pack(ru_engine *e, uint32_t k, int64_t *n);
uint32_t rui_exec_clock(const ru_engine *e, uint32_t k);                    /* that it runs next */
uint32_t rui_exec_packed(const ru_engine *e, const void *bytes, int64_t n); /* ... of such bytes */
/* An open executor goes on at the open clock with a state of before; bytes NULL: with that of
 * exec_open. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_exec_revive(ru_engine *e, uint32_t k, const void *bytes, int64_t n,
                                      ru_time now, ru_effects *fx);
void rui_exec_at(ru_engine *e, uint32_t k, uint32_t clock); /* next; it has no results */
bool rui_exec_stateful(const ru_engine *e);                 /* do executors keep anything? */
void rui_exec_close(ru_engine *e, uint32_t k);              /* its state */

/* engine_task.c */
/* May it run its next step? Then it fetches or runs. */
void rui_task_begin(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_task_fetched(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_task_flushed(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
/* Rows of the wants that lie in the store, as ranges. false: no memory. */
RU_MUST_USE bool rui_task_rows(ru_engine *e, const ru_engine_task *t, ru_ps_rows **rows,
                               uint32_t *n, uint32_t *cap);
int64_t rui_task_floats(const ru_engine *e, const ru_engine_task *t);
/* Places of the wants in `buffer`, and the values of those in the store. */
void rui_task_place(ru_engine *e, ru_engine_task *t, float *buffer);

/* Are the changes and figures of a task that ran numbers? Otherwise the job fails. */
bool rui_task_fine(ru_engine *e, const ru_engine_task *t, ru_time now, ru_effects *fx);
RU_MUST_USE ru_status rui_task_check(const ru_app_shape *shape, ru_engine_task *t);
/* What a task changed, one row after another, and which rows. false: no memory. Owner: *out is a
 * buffer. */
RU_MUST_USE bool rui_task_changes(ru_engine *e, const ru_engine_task *t, ru_ps_rows **rows,
                                  uint32_t *n, uint32_t *cap, float **out);
void rui_task_flush(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx); /* its changes */

/* engine_slice.c */
RU_MUST_USE ru_status rui_slice_open_all(ru_engine *e, ru_err *err);
void rui_slice_close_all(ru_engine *e);
bool rui_slice_ready(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx); /* may it begin? */
void rui_slice_begin(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx); /* rows are here */
void rui_slice_ran(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
bool rui_slice_leaves(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx); /* may it move? */
void rui_slice_left(ru_engine *e, uint32_t k);
void rui_slice_reset(ru_engine *e, uint32_t k);
void rui_slice_void(ru_engine *e, uint32_t k); /* it is rebuilt elsewhere */
int64_t rui_slice_numbers_bytes(const ru_engine *e);
void rui_slice_first_numbers(const ru_engine *e, void *numbers); /* of a state that is new */
void rui_slice_numbers(ru_engine *e, uint32_t k, void *numbers, bool out);
void rui_slice_heard(ru_engine *e, ru_node_id from, const void *head, uint32_t head_bytes,
                     void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
void rui_slice_wake(ru_engine *e, ru_time now, ru_effects *fx);
void rui_slice_told(const ru_engine *e, uint32_t k, uint32_t clock, rui_engine_head *h);
/* engine_share.c */
void rui_share_reset(ru_engine *e, ru_time now);
void rui_share_heard(ru_engine *e, const rui_engine_head *h);     /* leader: DONE */
void rui_share_closed(ru_engine *e, ru_time now, ru_effects *fx); /* leader: a clock */
void rui_share_end(ru_engine *e, ru_time now);                    /* leader */
void rui_share_take(ru_engine *e, const void *grants, int64_t n, ru_time now, ru_effects *fx);
/* engine_redo.c */
bool rui_redo_owes(const ru_engine *e, uint32_t k); /* slices of its open clock */
void rui_redo_fence(ru_engine *e, ru_time now, ru_effects *fx);
void rui_redo_opened(ru_engine *e, uint32_t k, void *state, ru_time now, ru_effects *fx);
void rui_redo_fetched(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_redo_flushed(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
RU_MUST_USE bool rui_redo_ran(ru_engine *e, const ru_engine_task *task, ru_time now,
                              ru_effects *fx); /* false: it is not its task */
/* engine_help.c */
void rui_help_opened(ru_engine *e, uint32_t helper, uint32_t owner, void *state, ru_time now,
                     ru_effects *fx);
void rui_help_fetched(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_help_flushed(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);

/* engine_trace.c: all do nothing without a recorder */
RU_MUST_USE ru_status rui_engine_record_open(ru_engine *e, ru_err *err);
/* Executor k may do something else than before. Cost: O(1). */
void rui_engine_record_look(ru_engine *e, uint32_t k, ru_time now);
/* Clocks below `closed` are closed; the engine still says which were before. */
void rui_engine_record_clock(ru_engine *e, uint32_t closed, ru_time now);
void rui_engine_record_facts(const ru_engine *e, ru_engine_facts *into);
void rui_engine_record_begin(ru_engine *e, ru_time now); /* a generation */
/* A slice came back so long after it was given; predicted_ns 0: nobody knew. */
void rui_engine_record_slice(ru_engine *e, uint32_t units, int64_t took_ns, int64_t predicted_ns,
                             ru_time now);
/* Executor k has done `clock`. */
void rui_engine_record_done(ru_engine *e, uint32_t clock, ru_time now);

/* engine_lead.c */
RU_MUST_USE ru_status rui_lead_open(ru_engine *e, ru_err *err);
void rui_lead_close(ru_engine *e);
void rui_lead_stop(ru_engine *e, ru_time now, ru_effects *fx);  /* READY asks for it */
void rui_lead_begin(ru_engine *e, ru_time now, ru_effects *fx); /* a generation */
/* Members were lost: a checkpoint under way is void. adopt: this member has led since then. */
void rui_lead_lost(ru_engine *e, bool adopt, ru_time now, ru_effects *fx);
/* The clock is known again: tell it, and go on. */
void rui_lead_go(ru_engine *e, ru_time now, ru_effects *fx);
void rui_lead_advance(ru_engine *e, ru_time now, ru_effects *fx); /* close clocks */
void rui_lead_heard(ru_engine *e, ru_node_id from, uint32_t what, const rui_engine_head *h,
                    const void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
/* engine_backup.c: may the next clock close, without whom; what CLOCK says of it */
RU_MUST_USE ru_status rui_backup_open(ru_engine *e, ru_err *err);
void rui_backup_begin(ru_engine *e); /* leader: a generation */
bool rui_backup_may_close(const ru_engine *e);
void rui_backup_close(ru_engine *e);
uint32_t rui_backup_last(const ru_engine *e); /* executors that the last clock closed without */
const void *rui_backup_list(const ru_engine *e, int64_t *n);
void rui_backup_heard(ru_engine *e, uint32_t clock, const void *list, int64_t n);
bool rui_backup_late(const ru_engine *e, uint32_t k); /* the clock of its task is closed */
void rui_backup_skip(ru_engine *e, uint32_t k);       /* go on with the clock that is open */

void rui_lead_tell(ru_engine *e, ru_node_id to, ru_time now, ru_effects *fx); /* CLOCK; 0: all */
void rui_lead_look(ru_engine *e, ru_time now, ru_effects *fx); /* more is committed */
void rui_lead_fetched(ru_engine *e, ru_time now, ru_effects *fx);
void rui_lead_written(ru_engine *e, ru_engine_ckpt at, ru_time now, ru_effects *fx);
void rui_lead_read(ru_engine *e, const void *bytes, int64_t n, ru_status st, const char *why,
                   ru_time now, ru_effects *fx);

/* engine_map.c */
void rui_map_look(ru_engine *e, ru_time now, ru_effects *fx);
/* Members of the next view, of n > 0 that should be in it, of which the last n_joining are new.
 * Each new member hears of all, about 50 bytes of each: when many join, some wait for the view
 * after, so that the words that close a clock do not wait behind those. */
uint32_t rui_map_admitted(uint32_t n, uint32_t n_joining);
void rui_map_in_force(ru_engine *e, bool fresh, ru_time now, ru_effects *fx);
void rui_map_reach(ru_engine *e, ru_effects *fx); /* a member: connect to whom the map names */
/* here: bits of objects that are there. */
void rui_map_ready(ru_engine *e, ru_node_id from, const rui_engine_head *h, const uint8_t *here,
                   int64_t bytes, ru_time now, ru_effects *fx);
void rui_map_prepared(ru_engine *e, ru_node_id from, uint32_t executor, ru_time now,
                      ru_effects *fx);

#endif
