/* Inside of what executors do for each other: each is a worker of train/tasks.
 *
 *   engine_slice.c   messages, own items, clocks, moves
 *   engine_help.c    slices of others: data, rows, changes
 *   engine_redo.c    slices of helpers that died
 *   engine_share.c   the leader: boundaries by lasting differences
 *
 * Items of train/tasks are units: a task has as many as any other, and unit u stands for items
 * lo + (hi - lo) u / units on. Thread: loop only. */
#ifndef RU_TRAIN_ENGINE_ENGINE_SLICE_IMPL_H
#define RU_TRAIN_ENGINE_ENGINE_SLICE_IMPL_H

#include "train/engine/engine_impl.h"
#include "train/tasks/tasks.h"

enum {
    RUI_SLICE_SLOTS = 2, /* slices of a pair under way: the number of a slice mod 2 is its slot */
    RUI_SLICE_EVENTS_MAX = 64,
};

#define RUI_SLICE_VOID   UINT32_MAX       /* number of a slice whose owner begins anew */
#define RUI_SLICE_RTT_NS INT64_C(2000000) /* of a message, until it is measured */
#define RUI_SLICE_TAIL   1.0 /* of an executor's items its helpers can take: all read the data */

/* Bytes of one slice. Owner: `bytes` is a buffer. */
typedef struct rui_slice_bytes {
    ru_tasks_range range;
    void *bytes;
    int64_t n;
} rui_slice_bytes;

/* An executor that this one may help. */
typedef struct rui_helpee {
    uint32_t id;
    bool opens;
    void *state;                           /* of the app, for its part; NULL: not open */
    float *local[RU_APP_TABLES_MAX];       /* [rows, width] of its part; buffers */
    ru_node_id asked;                      /* by whom last: answers go there */
    uint32_t refused[RUI_SLICE_SLOTS];     /* last number while this executor was not open */
    rui_slice_bytes came[RUI_SLICE_SLOTS]; /* its local rows */
    rui_slice_bytes made[RUI_SLICE_SLOTS]; /* sums [SUMS_MAX] | local rows, after the slice */
} rui_helpee;

/* What helpers did of the clock under way. */
typedef struct rui_slice_done {
    uint32_t helper, number;
    double sums[RU_APP_SUMS_MAX];
} rui_slice_done;

/* Changes of slices that wait until those before are acknowledged. Owner: buffers. */
typedef struct rui_slice_flush {
    struct rui_slice_flush *next;
    ru_tasks_range range[RUI_SLICE_SLOTS]; /* the first n_ranges: slices of one owner */
    uint32_t n_ranges;
    ru_ps_rows *rows;
    uint32_t n;
    float *change;
} rui_slice_flush;

/* A slice that was handed over in the clock that is open. Owner: buffers. */
typedef struct rui_slice_sent {
    struct rui_slice_sent *next;
    ru_tasks_range range;
    void *bytes; /* its local rows then */
    int64_t n;
    bool redo;    /* its helper died: worked on again here */
    bool counted; /* its figures and local rows are here */
} rui_slice_sent;

/* The slice that is worked on again. */
typedef struct rui_redo {
    rui_slice_sent *of;              /* NULL: none */
    void *state;                     /* of the app, a second one for the same data */
    bool opens, runs;                /* the device does */
    bool flushes;                    /* its changes are on their way */
    uint32_t generation;             /* when the device began */
    float *local[RU_APP_TABLES_MAX]; /* [rows, width]; buffers */
    ru_engine_task task;
    ru_ps_rows *rows; /* a buffer */
    uint32_t n_rows, cap_rows;
    float *buffer;
    int64_t buffer_floats;
} rui_redo;

/* One executor. */
typedef struct rui_slice {
    ru_tasks *machine; /* NULL: not open here */
    ru_arena arena;    /* of the machine */
    ru_reassign_rules rules;
    uint32_t n_helpers, n_helpees;
    uint32_t helper[RU_REASSIGN_GROUP_MAX];
    ru_node_id given[RU_REASSIGN_GROUP_MAX][RUI_SLICE_SLOTS]; /* to whom the slice went */
    uint32_t numbers[RU_REASSIGN_GROUP_MAX * RUI_SLICE_SLOTS];
    rui_helpee *helpee; /* [n_helpees] */
    bool leaves, begun;
    bool running, own;     /* the device has `work`, items of its own executor */
    uint32_t generation;   /* when the device began */
    int64_t wake_ns;       /* 0: none */
    int64_t unit_ns;       /* lately; 0: not known */
    ru_tasks_stats before; /* when the clock began */
    ru_time given_at[RU_REASSIGN_GROUP_MAX][RUI_SLICE_SLOTS];
    int64_t predicted_ns[RU_REASSIGN_GROUP_MAX][RUI_SLICE_SLOTS];
    ru_engine_slices slices; /* of the clock under way */
    ru_engine_slices *past;  /* [window] of clocks that are done */
    uint32_t grant[RU_REASSIGN_GROUP_MAX], expect[RU_REASSIGN_GROUP_MAX]; /* by helpers, helpees */
    ru_engine_task work; /* part of the executor's task, or of `slice` */
    /* A clock of another executor: rows that all of it uses, read once, and changes of its slices
     * that are done here, in `batch`, and not sent yet. */
    ru_engine_task slice;
    bool rows_read;
    uint32_t whose, clock; /* rows_read: of which executor and clock */
    ru_tasks_range batch[RUI_SLICE_SLOTS];
    uint32_t n_batch;
    ru_tasks_range of;      /* the slice; seq 0: none */
    ru_tasks_range pending; /* what the machine has under way, until the device begins it */
    ru_ps_rows *rows;       /* of the slice; a buffer */
    uint32_t n_rows, cap_rows;
    float *buffer;
    int64_t buffer_floats;
    rui_slice_done *done; /* [n_done]; a buffer */
    uint32_t n_done, cap_done;
    rui_slice_flush *flush, *flush_last; /* the first one is under way */
    rui_slice_sent *sent;                /* the newest first */
    uint32_t n_redo;                     /* of them, to be worked on again */
    rui_redo *redo;                      /* NULL: not used yet; a buffer */
} rui_slice;

enum { RUI_SHARE_HISTORY = 8 };

/* The leader's. */
typedef struct rui_share {
    double *took; /* [HISTORY, executors] seconds of a clock, by speed; the oldest first */
    uint32_t n_took;
    double *now;     /* [executors] of the clock that is open; 0: not told yet */
    int64_t *rtt_ns; /* [executors] measured last; 0: not yet */
    uint32_t *grant; /* [executors, group] that members have */
    uint32_t plans;
    ru_time planned_at, told_at;
    uint32_t clocks; /* since told_at */
    ru_engine_slices slices;
    ru_arena scratch;
} rui_share;

struct rui_slices {
    ru_reassign_rules rules;
    uint32_t units, group;
    rui_slice *at; /* [executors] */
    rui_share share;
    ru_arena arena;
    ru_arena memory; /* of effects of one step */
    ru_effects fx;
    bool stepping;
    int64_t wake_ns;             /* of the timer; 0: off */
    ru_engine_slices sent, told; /* bytes alone: so far; when DONE was said last */
    uint32_t first, n;           /* of the ring */
    struct {
        uint32_t k;
        ru_tasks_word word;
        ru_tasks_said said;
    } ring[RUI_SLICE_EVENTS_MAX];
};

/* Message between executors. Body: DO_THIS: local rows; DONE_WORK: sums | local rows. */
typedef struct rui_slice_head {
    uint32_t generation, from, to, fence; /* fence: the last one that the sender knows */
    ru_tasks_msg msg;
} rui_slice_head;

/* engine_slice.c */
/* New grants to an open machine. */
void rui_slice_granted(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
/* The method of plan/crew/reassign whose rules hold: with a barrier, the paper's for one. */
ru_reassign_method rui_slice_method(const ru_engine *e);
RU_MUST_USE ru_status rui_share_open(ru_engine *e, ru_err *err);
/* said NULL: the word alone. */
void rui_slice_step(ru_engine *e, uint32_t k, ru_tasks_word word, const ru_tasks_said *said,
                    ru_time now, ru_effects *fx);
/* Items of a range of units. */
void rui_slice_items(const ru_engine *e, const ru_tasks_range *r, int64_t *lo, int64_t *hi);
/* Run what is pending, units of `whole`; WORKED follows. */
void rui_slice_run(ru_engine *e, uint32_t k, const ru_engine_task *whole, ru_time now,
                   ru_effects *fx);
/* Bytes of the local rows of a range; to or from `bytes`. */
int64_t rui_slice_local(const ru_engine *e, const ru_tasks_range *r, float *const *local,
                        uint8_t *bytes, bool out);
rui_helpee *rui_slice_helpee(const ru_engine *e, uint32_t k, uint32_t owner);

/* engine_help.c */
void rui_help_work(ru_engine *e, uint32_t k, const ru_tasks_range *r, ru_time now, ru_effects *fx);
void rui_help_flush(ru_engine *e, uint32_t k, const ru_tasks_range *r);
/* The slice's local rows came. Takes the buffer. */
void rui_help_came(ru_engine *e, rui_helpee *h, const ru_tasks_range *r, void *bytes, int64_t n);
/* Send the changes of slices that are done, unless more of the same owner follow now. */
void rui_help_look(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_help_drop(ru_engine *e, uint32_t k); /* all that is of a slice */
void rui_help_close(ru_engine *e, uint32_t k);
void rui_help_forget(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);

/* engine_redo.c */
void rui_redo_sent(ru_engine *e, uint32_t k, const ru_tasks_range *r, const void *bytes, int64_t n);
void rui_redo_drop(ru_engine *e, uint32_t k);
bool rui_redo_busy(const ru_engine *e, uint32_t k); /* the device has something of it */
void rui_redo_reset(ru_engine *e, uint32_t k);      /* a new generation */
void rui_redo_close(ru_engine *e, uint32_t k);

#endif
