/* A store of shared parameters: rows of fixed width in tables, kept in shards by the processes of
 * a job, read and updated by executors.
 *
 *   table -> blocks of rows -> shards (a block's by hash: random) -> processes (the owner's map)
 *
 *   client  cache of rows with their age; GET for rows that are too old, UPDATE for changes
 *   server  shards: a GET waits until the shard has closed the clock it asks for; an UPDATE is
 *           tagged (executor, step, part) and applied once, however often it arrives
 *
 * The owner closes clocks (ru_ps_close) when all updates of a clock are acknowledged, so a shard
 * has them all. With `ordered` a shard keeps the updates of a clock until it closes and merges them
 * in the order of executors: the result is a function of the updates alone. Without, it merges at
 * once. Parts of a step are one change in order, their sum; without order each is merged alone. The
 * blocks of rows that rotate are shards of their own: a shard's clock is then the step, and the
 * update of its one holder closes it.
 *
 * Shards move while the store works: the owner gives a new map, the old holder sends the shard with
 * its tags and waiting updates, the new one lets requests wait for it; a client repeats what was
 * refused. A request of another generation is ignored: when the owner restores an older state, it
 * begins a new generation.
 *
 * Part of a node's part (comm/node/node.h). Steps machines only: no clock, memory within a bound.
 * Source: litz-2018 (shards that move, tags), flexrr-2016 (tables, clocks, caches by age),
 * qiao-2019 (blocks at random). Thread: loop only. */
#ifndef RU_COMM_PS_PS_H
#define RU_COMM_PS_PS_H

#include "comm/pull/pull.h"

typedef struct ru_ps ru_ps;

enum {
    RU_PS_TABLES_MAX = 8,
    RU_PS_SHARDS_MAX = 4096,
    RU_PS_EXECUTORS_MAX = 4096,
    RU_PS_MESSAGES = RU_PULL_MESSAGES, /* numbers of messages that it uses */
    RU_PS_LEFT_OUT_CLOCKS = 64,
    RU_PS_WHAT_OWNER = 16, /* parcels from here on are the owner's */
};

typedef struct ru_ps_table {
    int64_t rows;
    uint32_t width; /* floats a row */
    uint32_t extra; /* floats of state beside, seen by `merge` alone */
    /* Its rows rotate: block b is rows cut[b] .. cut[b + 1] - 1 and has one holder at a time, who
     * changes it in place. Shape: [executors + 1] view while open; NULL: it does not. */
    const int64_t *cut;
} ru_ps_table;

/* Rows first .. first + n - 1 of one table. */
typedef struct ru_ps_rows {
    uint32_t table, first, n;
} ru_ps_rows;

/* One update of one executor: exactly one is applied for each tag. */
typedef struct ru_ps_tag {
    uint32_t executor;
    uint32_t step; /* clock * rounds + round */
    /* Work of the executor's step may be divided: each part is an update of its own, sent from
     * anywhere before the executor's. 0: the executor's own; else a number of the part in its step.
     * Rows that rotate are not divided. */
    uint32_t part, part2; /* part2: it is of two parts; 0: not so */
    uint32_t flow;        /* of this process: whose `flushed` it is; one update at a time */
} ru_ps_tag;

typedef struct ru_ps_user {
    void *self;
    /* First values of a row; extra is zero. NULL: zero. */
    void (*first)(void *self, uint32_t table, int64_t row, float *value);
    /* Merge an update [width] of clock `clock` into a row. Where clocks are not ordered, `clock` is
     * the newest one that is closed. */
    void (*merge)(void *self, uint32_t table, uint32_t clock, float *value, float *extra,
                  const float *update);
    void (*fetched)(void *self, uint32_t ticket, ru_time now, ru_effects *fx);
    /* All of the update of this flow is acknowledged; also those that are sent
     * again. */
    void (*flushed)(void *self, uint32_t flow, ru_time now, ru_effects *fx);
    /* Shards here have closed a clock, and nothing of the next one is in them (ordered, or rows
     * that rotate): the moment to save them. */
    void (*closed)(void *self, ru_time now, ru_effects *fx);
    /* This process holds a shard that came from another. */
    void (*came)(void *self, uint32_t shard, ru_time now, ru_effects *fx);
    /* An object of the owner's came from another process (ru_ps_object_send), which had the map of
     * `epoch`. Owner: bytes is a buffer, the user's from here on. */
    void (*object)(void *self, uint32_t object, void *bytes, int64_t n, uint32_t epoch, ru_time now,
                   ru_effects *fx);
    /* Parcels of the owner's own. */
    void (*got)(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
} ru_ps_user;

typedef struct ru_ps_options {
    const ru_ps_table *tables; /* [n_tables] */
    uint32_t n_tables, n_shards, n_executors;
    uint32_t tickets; /* numbers of tickets: below this */
    uint32_t flows;   /* numbers of flows: below this; more than executors: steps come in parts */
    int64_t block_bytes; /* 0: 4 KiB */
    uint64_t seed;       /* of the placement of blocks */
    bool ordered;
    bool leaves_out; /* clocks may close without some executors: ru_ps_leave_out */
    bool partial;    /* lost shards may be rebuilt: what a rebuilt one needs again is kept */
    bool copies;     /* rows that change are marked for ru_ps_changes */
    uint32_t rounds; /* steps of a clock; 0: 1 */
    ru_chan *chan;
    ru_node_id self;
    uint32_t peers_max;
    uint32_t what_first, local; /* as in ru_pull_options */
    uint64_t background;        /* as there, of the owner's parcels */
    int64_t memory_bytes;       /* bound of shards, caches and parcels */
    ru_ps_user user;
} ru_ps_options;

/* Errors: RU_E_ARG, RU_E_LIMIT (rows), RU_E_MEM. */
RU_MUST_USE ru_status ru_ps_open(const ru_ps_options *opt, ru_arena *arena, ru_ps **out,
                                 ru_err *err);
void ru_ps_close_all(ru_ps *ps); /* NULL is fine */
ru_bufs *ru_ps_bufs(ru_ps *ps);
ru_pull *ru_ps_pull(ru_ps *ps);

/* -- the owner's decisions ------------------------------------------------------------------------
 */

/* A new generation: nothing is held, asked for or remembered; clocks below `closed` are applied.
 * Shards come by ru_ps_shard_first and ru_ps_shard_load, after the map. */
void ru_ps_reset(ru_ps *ps, uint32_t generation, uint32_t closed, ru_effects *fx);
/* Who holds each shard from now on: holder [ru_ps_shards]. Shards of this process that others hold
 * from now on are sent to them. Also after members went or came. */
void ru_ps_map(ru_ps *ps, const ru_node_id *holder, uint32_t epoch, ru_time now, ru_effects *fx);
/* Clocks below `closed` are closed: every update of them was acknowledged. */
void ru_ps_close(ru_ps *ps, uint32_t closed, ru_time now, ru_effects *fx);

/* Before a clock closes (ordered, one round): the changes of this executor in it count for nothing.
 * Shards leave out what they hold of it and take nothing of it any more. Known for the executor's
 * last LEFT_OUT_CLOCKS clocks. */
void ru_ps_leave_out(ru_ps *ps, uint32_t executor, uint32_t clock);

/* A shard of the map as of clock `closed` of the reset: first values, or bytes of ru_ps_shard_save.
 * Errors: RU_E_DATA, RU_E_MEM. */
RU_MUST_USE ru_status ru_ps_shard_first(ru_ps *ps, uint32_t shard, ru_time now, ru_effects *fx);
RU_MUST_USE ru_status ru_ps_shard_load(ru_ps *ps, uint32_t shard, const void *bytes, int64_t n,
                                       ru_time now, ru_effects *fx);
bool ru_ps_shard_here(const ru_ps *ps, uint32_t shard);
/* Is it here, as of the beginning of the clock that is open? */
bool ru_ps_shard_begins(const ru_ps *ps, uint32_t shard);
/* A copy of a shard that is here: a buffer (ru_ps_bufs) of *n bytes; NULL: no memory. */
RU_MUST_USE void *ru_ps_shard_save(ru_ps *ps, uint32_t shard, int64_t *n);
/* Rows of a saved shard into dense tables value [rows, width] and extra [rows, extra]; NULL: not
 * this one. Errors: RU_E_DATA. */
RU_MUST_USE ru_status ru_ps_shard_rows(const ru_ps *ps, uint32_t shard, const void *bytes,
                                       int64_t n, float *const *value, float *const *extra);
/* The inverse: a shard as it would be saved at the beginning of `clock`. Returns its size; NULL:
 * that alone. Thread: any. */
int64_t ru_ps_shard_of_rows(const ru_ps *ps, uint32_t shard, uint32_t clock, float *const *value,
                            float *const *extra, void *into);
int64_t ru_ps_shard_bytes(const ru_ps *ps, uint32_t shard);
int64_t ru_ps_shard_save_bytes(const ru_ps *ps, uint32_t shard); /* of ru_ps_shard_save */
/* Those of the options and, with rows that rotate, one for each executor. */
uint32_t ru_ps_shards(const ru_ps *ps);

/* -- copies on other machines: a saved shard, and what changed since (ps_backup.c) ---------------
 */

/* Rows of a shard that changed since it was last unmarked, as they are now, with the state of their
 * rules: a buffer of *n bytes; NULL: no memory. */
RU_MUST_USE void *ru_ps_changes(ru_ps *ps, uint32_t shard, int64_t *n);
/* No row of it has changed: its copy is as it is now. */
void ru_ps_unmark(ru_ps *ps, uint32_t shard);
/* Bring a saved shard [saved_bytes] to the clock of its changes. Errors: RU_E_DATA, nothing is
 * changed. */
RU_MUST_USE ru_status ru_ps_changes_apply(const ru_ps *ps, uint32_t shard, void *saved,
                                          int64_t saved_bytes, const void *changes, int64_t n);

/* -- a running checkpoint
 * --------------------------------------------------------------------------
 *
 * Blocks of rows are saved one by one, often, while the work goes on. */

uint32_t ru_ps_blocks(const ru_ps *ps); /* of all tables */
/* Values and state of the rules of a block: view until the next event; *shard, and *closed of it.
 * NULL: it is not here. */
const float *ru_ps_block(const ru_ps *ps, uint32_t block, int64_t *floats, uint32_t *shard,
                         uint32_t *closed);
/* Distance of its values (without the state of rules) from the saved ones. Below 0: none are known
 * to be saved. caches: squares of a row count a quarter for each other process whose cache has read
 * it in the last clock, down to 1/16: what this process loses may be there. */
double ru_ps_block_moved(const ru_ps *ps, uint32_t block, bool caches);
/* First values need not be stored: they count as the saved ones. */
void ru_ps_block_first(ru_ps *ps, uint32_t block);
/* These values [floats] of it are stored durably. Nothing happens when it is not here any more. */
void ru_ps_block_saved(ru_ps *ps, uint32_t block, const void *values);

/* -- shards whose holder died
 * ----------------------------------------------------------------------
 *
 * Everybody goes on; a lost shard is rebuilt from the newest copies of its rows that there are:
 * those of other processes' caches, saved blocks, a checkpoint, first values. */

/* Of every process, before the map with the new holders: requests made under maps before `epoch`
 * are refused, answers to them ignored. */
void ru_ps_fence(ru_ps *ps, uint32_t epoch);
/* ... and for each lost shard, or object (shards + executor). Updates that its old holder
 * acknowledged but had not merged are sent again (ordered, one round). Where steps come in parts, a
 * lost executor's step that is open begins anew: nothing that was sent of it before counts, and its
 * parts are not sent any more; what it sent itself is sent again if it is here after all. */
void ru_ps_lost(ru_ps *ps, uint32_t k, bool here);
/* The owner has said, since the fence, which clocks are closed: what lost executors did of open
 * ones is void from now on. Updates of after the fence are refused until then. */
void ru_ps_void(ru_ps *ps);
/* Are updates of this executor sent again? `flushed` follows when they are acknowledged. */
bool ru_ps_replays(const ru_ps *ps, uint32_t executor);
bool ru_ps_replays_any(const ru_ps *ps);
/* Are updates of this executor kept here, in case that their shards are lost? */
bool ru_ps_keeps(const ru_ps *ps, uint32_t executor);
/* Has this executor an update for the shard under way? */
bool ru_ps_updates(const ru_ps *ps, uint32_t executor, uint32_t shard);
/* Is a shard or object on its way from here to this process? */
bool ru_ps_leaving(const ru_ps *ps, uint32_t k, ru_node_id to);
/* Copies of rows of a shard in this process's cache, for ru_ps_rebuild_rows: a buffer of *n bytes.
 * NULL: no memory. */
RU_MUST_USE void *ru_ps_copies(ru_ps *ps, uint32_t shard, int64_t *n);

/* How a shard was rebuilt. Row r, counted over all tables, is as of clock (rows that rotate: step)
 * at[r]; what was merged between that and `closed` is lost. */
typedef struct ru_ps_rebuilt {
    uint32_t closed;
    int64_t rows, cached, logged, saved; /* rows from caches, saved blocks, checkpoint; the rest are
                                          * first values */
    int64_t late;                        /* clocks (steps) that the rows are behind, added up */
    int64_t log_at, cache_at;            /* clock of the newest saved block, and copy; -1: none */
    double moved;       /* distance of rows that caches gave from those of saved blocks */
    double begun;       /* ... of all rows from first values, about */
    const uint32_t *at; /* [rows of all tables] UINT32_MAX: not of this shard; view until the next
                         * rebuild */
} ru_ps_rebuilt;

/* Holder: a lost shard begins with first values. Then copies: a checkpoint, saved blocks, copies of
 * caches, in this order, all within one event. The newest of a row counts, but none of a clock that
 * is not closed. Errors: RU_E_MEM; RU_E_DATA, what came before the damage may be taken. */
RU_MUST_USE ru_status ru_ps_rebuild_begin(ru_ps *ps, uint32_t shard);
RU_MUST_USE ru_status ru_ps_rebuild_saved(ru_ps *ps, uint32_t shard, const void *bytes, int64_t n);
RU_MUST_USE ru_status ru_ps_rebuild_block(ru_ps *ps, uint32_t shard, uint32_t block,
                                          uint32_t closed, const void *bytes, int64_t n);
RU_MUST_USE ru_status ru_ps_rebuild_rows(ru_ps *ps, uint32_t shard, const void *bytes, int64_t n);
/* It is here. step: rows that rotate, the first step that may not be in it. */
void ru_ps_rebuild_end(ru_ps *ps, uint32_t shard, uint32_t step, ru_ps_rebuilt *out, ru_time now,
                       ru_effects *fx);

/* -- executors ------------------------------------------------------------------------------------
 */

/* Make rows [n] (view until then) readable as of clock `need` or later; those that rotate, as of
 * `step`. true: they are; false: `fetched` follows. fresh: not from the cache, whatever its age. */
bool ru_ps_fetch(ru_ps *ps, uint32_t ticket, uint32_t need, uint32_t step, bool fresh,
                 const ru_ps_rows *rows, uint32_t n, ru_time now, ru_effects *fx);
/* Copy fetched rows one after another. */
void ru_ps_read(const ru_ps *ps, const ru_ps_rows *rows, float *into);
/* Send changes of rows [n], one after another in `change`; copied. Of rows that rotate: their
 * values. Once for each tag. block: that the executor holds in this step, of the tables that
 * rotate; the next holder waits for this update. true: nothing to wait for; false: `flushed`
 * follows. */
bool ru_ps_update(ru_ps *ps, ru_ps_tag tag, uint32_t block, const ru_ps_rows *rows, uint32_t n,
                  const float *change, ru_time now, ru_effects *fx);
/* The executor is not this process's any more, or gave up its fetch. */
void ru_ps_forget(ru_ps *ps, uint32_t ticket);

/* Objects of the owner's, one for each executor, move as shards do: each time once, whatever the
 * connections do. bytes: a buffer, taken. false: not taken, its last move from here is not over. */
RU_MUST_USE bool ru_ps_object_send(ru_ps *ps, uint32_t object, ru_node_id to, void *bytes,
                                   int64_t n, ru_time now, ru_effects *fx);

/* A parcel of the owner's; what >= RU_PS_WHAT_OWNER; to a process that is not connected a large one
 * is not sent. body: a buffer, taken. */
void ru_ps_send(ru_ps *ps, ru_node_id to, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx);

/* -- what the owner's part hears; streams go to ru_pull_* directly --------------------------------
 */
void ru_ps_step(ru_ps *ps, const ru_event *ev, ru_effects *fx); /* MESSAGE, UP, DOWN, LOCAL */

typedef struct ru_ps_stats {
    int64_t gets, rows_sent, updates, rows_merged, duplicates, refused, shards_sent, waits;
    int64_t read_bytes, write_bytes; /* of this process's executors */
} ru_ps_stats;
const ru_ps_stats *ru_ps_stats_of(const ru_ps *ps);

#endif
