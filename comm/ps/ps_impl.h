/* Inside of the parameter store.
 *
 *   ps.c         opening, map, requests to whom they belong
 *   ps_place.c   where rows are
 *   ps_shard.c   shards: merge, close, as bytes
 *   ps_serve.c   requests of others and of this process, at the shard
 *   ps_move.c    shards and objects on their way
 *   ps_ask.c     requests of this process: cache, tickets, repeats
 *   ps_save.c    what a running checkpoint has of shards
 *   ps_backup.c  what copies of shards lack
 *   ps_rebuild.c shards whose holder died
 *
 * Thread: loop only. */
#ifndef RU_COMM_PS_PS_IMPL_H
#define RU_COMM_PS_PS_IMPL_H

#include <stddef.h>

#include "base/log.h"
#include "comm/ps/ps.h"

#define RUI_PS_NONE UINT32_MAX

/* Requests stand in pages that do not move. */
enum { RUI_PS_ASK_PAGE = 1024, RUI_PS_ASK_PAGES_MAX = 1024 };

/* Cookies of parcels: shards on their way; else a request's place. */
#define RUI_PS_LEAVING (UINT64_C(1) << 54)

/* Parcels. */
enum {
    RUI_PS_GET = 1,
    RUI_PS_ROWS,
    RUI_PS_UPDATE,
    RUI_PS_ACK,
    RUI_PS_NACK,
    RUI_PS_MOVED,
    RUI_PS_CAME,
    RUI_PS_LATER
};

/* n rows from `row` on, counted over all tables. */
typedef struct rui_ps_run {
    uint32_t row, n;
} rui_ps_run;

/* Head of a request, and of its answer. */
typedef struct rui_ps_head {
    uint32_t generation, epoch; /* of the sender's map */
    uint32_t shard;
    uint32_t need;           /* GET; ROWS, UPDATE: clocks that are closed, at the sender */
    uint32_t executor, step; /* UPDATE */
    uint32_t part, part2;
    uint32_t ask, serial; /* place and number of the request at the client */
    uint32_t n_runs;
    uint64_t hops; /* MOVED, and its answers; UPDATE: the last fence that its sender knows */
} rui_ps_head;

/* -- ps_place.c -----------------------------------------------------------------------------------
 */
typedef struct rui_ps_place {
    uint32_t n_tables, n_rows, n_blocks;
    uint32_t n_shards; /* all */
    uint32_t n_spread; /* the first ones: rows by hash; the others rotate */
    ru_ps_table table[RU_PS_TABLES_MAX];
    uint32_t first[RU_PS_TABLES_MAX + 1];       /* row over all tables */
    uint32_t block_rows[RU_PS_TABLES_MAX];      /* rows of a block; 0: cut by the owner */
    uint32_t block_first[RU_PS_TABLES_MAX + 1]; /* block over all tables */
    uint32_t *block_row;                        /* [n_blocks + 1] its first row */
    uint32_t *shard;                            /* [n_blocks] */
    int64_t *offset;                            /* [n_blocks] floats in its shard */
    uint32_t *block;                            /* [n_blocks] of shard 0, 1, ... */
    uint32_t *shard_first;                      /* [n_shards + 1] in `block` */
    int64_t *shard_floats;                      /* [n_shards] */
} rui_ps_place;

RU_MUST_USE ru_status rui_ps_place_open(const ru_ps_options *opt, ru_arena *arena,
                                        rui_ps_place *out, ru_err *err);
uint32_t rui_ps_block_table(const rui_ps_place *p, uint32_t block);
uint32_t rui_ps_block_cut(const rui_ps_place *p, uint32_t table, uint32_t row);
static inline uint32_t rui_ps_table_of(const rui_ps_place *p, uint32_t row)
{
    uint32_t t = 0;
    while (row >= p->first[t + 1]) {
        t++;
    }
    return t;
}
static inline uint32_t rui_ps_block_of(const rui_ps_place *p, uint32_t table, uint32_t row)
{
    return p->block_rows[table] > 0
               ? p->block_first[table] + (row - p->first[table]) / p->block_rows[table]
               : rui_ps_block_cut(p, table, row);
}
/* Rows from `row` on that are in its block, at most n. */
static inline uint32_t rui_ps_block_left(const rui_ps_place *p, uint32_t block, uint32_t row,
                                         uint32_t n)
{
    uint32_t left = p->block_row[block + 1] - row;
    return left < n ? left : n;
}
/* Floats of a row in a shard; what is sent has `width`. */
static inline uint32_t rui_ps_stride(const rui_ps_place *p, uint32_t table)
{
    return p->table[table].width + p->table[table].extra;
}

/* -- ps_shard.c -----------------------------------------------------------------------------------
 */
/* An update that waits for its clock to close. Owner: body is a buffer. */
typedef struct rui_ps_held {
    struct rui_ps_held *next;
    uint32_t executor, step, part;
    uint32_t epoch;  /* of the map by which it was sent last */
    uint32_t n_runs; /* 0 and no body: a part that is merged, until its clock closes */
    int64_t body_bytes;
    void *body; /* runs, then values */
} rui_ps_held;

/* A request that waits for its shard, or for a clock. */
typedef struct rui_ps_parked {
    struct rui_ps_parked *next;
    ru_node_id from;
    uint32_t what;
    rui_ps_head head;
    void *body;
    int64_t body_bytes;
} rui_ps_parked;

/* A shard, or an object of the owner's, that moves: kept until its new holder says that it came. */
typedef struct rui_ps_moving {
    /* So often it moved, and in the upper half the fence of its last loss: a copy with no more is
     * an old one. It may move often under one map, between processes that know two. */
    uint64_t hops;
    void *bytes; /* on its way; NULL: not so */
    int64_t n;
    ru_node_id to;
    rui_ps_head head;
    uint32_t reading;
    bool over, again;
} rui_ps_moving;

typedef struct rui_ps_shard {
    bool here;
    uint32_t closed; /* clocks below are applied */
    float *values;
    uint32_t *done;    /* [executors] the last step of which an update was taken, + 1 */
    rui_ps_held *held; /* in any order if `unsorted`, else by clock, executor, step, part */
    bool unsorted;
    rui_ps_parked *parked; /* in order of arrival */
} rui_ps_shard;

/* -- ps_ask.c -------------------------------------------------------------------------------------
 */
typedef struct rui_ps_ask {
    bool used, again;               /* again: to be sent anew */
    bool kept;                      /* acknowledged; kept until its clock closes */
    bool replays;                   /* ... and sent again to a shard that is rebuilt */
    bool over;                      /* answered; its body is still read */
    uint32_t what, serial, reading; /* reading: sends that read the body */
    uint32_t flow;                  /* UPDATE */
    uint32_t next_free;
    rui_ps_head head;
    void *body;
    int64_t body_bytes;
    ru_node_id to;
    uint64_t *tickets; /* [ticket_words] who waits for a GET */
} rui_ps_ask;

/* A row in the cache. */
typedef struct rui_ps_copy {
    uint32_t age;   /* clocks closed of the copy + 1; 0: none */
    uint32_t asked; /* request that fetches it + 1; 0: none */
} rui_ps_copy;

/* Other processes that have read a row: a bit of each. */
typedef struct rui_ps_read_by {
    uint32_t clock; /* of `now`; `before`: of the clock before */
    uint32_t now, before;
} rui_ps_read_by;

/* Rows that are asked for or changed now: a list for each shard. */
typedef struct rui_ps_wanted {
    rui_ps_run run;
    uint32_t shard, table;
    uint32_t next;  /* of its shard; RUI_PS_NONE: the last */
    int64_t offset; /* of its changes, in floats */
} rui_ps_wanted;

typedef struct rui_ps_wants {
    uint32_t n_runs, first, last; /* n_runs 0: nothing */
} rui_ps_wants;

typedef struct rui_ps_ticket {
    bool active;
    uint32_t waits; /* requests */
} rui_ps_ticket;

/* Clocks of an executor whose changes count for nothing: bit j is clock `last` - j. */
typedef struct rui_ps_left_out {
    uint64_t clocks;
    uint32_t last;
} rui_ps_left_out;

struct ru_ps {
    ru_ps_options opt;
    ru_arena *arena;
    ru_bufs bufs;
    ru_pull *pull;
    rui_ps_place place;
    uint32_t generation, epoch, closed;
    uint32_t base;             /* clocks that were closed when the generation began */
    uint32_t fence;            /* epoch: requests made before are void */
    uint32_t void_from;        /* fence of which what is void is out of the shards */
    rui_ps_left_out *left_out; /* [executors] */
    uint32_t *lost_at;  /* [executors] fence of its last loss: steps that are divided begin anew */
    ru_node_id *holder; /* [shards] */
    rui_ps_shard *shard;
    rui_ps_moving *moving; /* [shards + objects] */
    /* client */
    rui_ps_ask **ask_page; /* [ASK_PAGES_MAX] of ASK_PAGE requests; NULL: not used yet */
    uint32_t ask_free, ask_top, serial;
    uint32_t ticket_words;
    rui_ps_ticket *ticket;
    uint32_t *unacked;       /* [flows] requests of an update under way */
    uint32_t *replays;       /* [executors] those that are sent again */
    float **cache;           /* [n_blocks] */
    rui_ps_copy *copy;       /* [n_rows] */
    rui_ps_read_by *read_by; /* [n_rows] partial; else NULL */
    rui_ps_wanted *run;      /* scratch, a buffer: [run_cap] */
    uint32_t run_cap;
    rui_ps_wants *wants; /* [shards] scratch */
    bool retry_set;
    uint8_t *marked;    /* [n_rows] it changed since ru_ps_unmark; NULL: without copies */
    float **saved;      /* [n_blocks] as they are stored; NULL: not known */
    uint32_t *copy_at;  /* [n_rows] a buffer, when shards are rebuilt: clock of the copy, */
    uint8_t *copy_from; /* [n_rows] ... and where it is from */
    int64_t newest_log, newest_cache; /* of the shard that is rebuilt */
    double copy_moved; /* squared distance of copies from the saved blocks that they replace */
    double copy_begun; /* ... from first values */
    ru_ps_stats stats;
};

/* ps_shard.c */
RU_MUST_USE bool rui_ps_shard_make(ru_ps *ps, uint32_t s); /* memory; false: none */
void rui_ps_shard_drop(ru_ps *ps, uint32_t s);             /* but not what is parked */
/* Take an update; body becomes the shard's when true is returned in *taken. false: was here before.
 */
bool rui_ps_shard_update(ru_ps *ps, uint32_t s, const rui_ps_head *h, void *body,
                         int64_t body_bytes, bool *taken);
void rui_ps_shard_close(ru_ps *ps, uint32_t s, uint32_t closed);
bool rui_ps_is_left_out(const ru_ps *ps, uint32_t executor, uint32_t clock);
/* Out with what waits of executors that were lost after it was sent: they do their step again, and
 * divide it in another way. */
void rui_ps_shard_fence(ru_ps *ps, uint32_t s);
float *rui_ps_row(const ru_ps *ps, uint32_t s, uint32_t table, uint32_t row);
/* As bytes, with what is held if `all`. */
void *rui_ps_shard_pack(ru_ps *ps, uint32_t s, bool all, int64_t *n);
RU_MUST_USE ru_status rui_ps_shard_unpack(ru_ps *ps, uint32_t s, const void *bytes, int64_t n);
/* Are the runs of a body rows of this shard, and how many floats are they? false: no. */
bool rui_ps_runs_ok(const ru_ps *ps, uint32_t s, const void *body, int64_t body_bytes,
                    uint32_t n_runs, int64_t *floats);

/* Where the values of a saved shard begin, and as of which clock; NULL: it is none of this shard.
 */
const uint8_t *rui_ps_shard_packed(const ru_ps *ps, uint32_t s, const void *bytes, int64_t n,
                                   uint32_t *closed);
/* A saved shard is as of this clock from now on. */
void rui_ps_shard_packed_at(void *bytes, uint32_t closed);
/* It is here now. */
void rui_ps_installed(ru_ps *ps, uint32_t s, bool map_follows, bool moved, ru_time now,
                      ru_effects *fx);
void rui_ps_shard_begin(ru_ps *ps, uint32_t s); /* first values */
void rui_ps_unsaved(ru_ps *ps, uint32_t s);     /* nothing of it is known to be stored */

/* ps_serve.c */
void rui_ps_serve(ru_ps *ps, ru_node_id from, uint32_t what, const rui_ps_head *h, void *body,
                  int64_t body_bytes, ru_time now, ru_effects *fx);
void rui_ps_unpark(ru_ps *ps, uint32_t s, ru_time now, ru_effects *fx);
void rui_ps_shard_send(ru_ps *ps, uint32_t s, ru_time now, ru_effects *fx);
/* ps_move.c: k is a shard, or n_shards + an object */
/* Bytes (a buffer, taken) to their new holder. false: not taken, an older copy is still read. */
RU_MUST_USE bool rui_ps_move(ru_ps *ps, uint32_t k, ru_node_id to, void *bytes, int64_t n,
                             ru_time now, ru_effects *fx);
/* Again: what was on its way to `up` (0: what failed). */
void rui_ps_move_again(ru_ps *ps, ru_node_id up, ru_time now, ru_effects *fx);
void rui_ps_move_came(ru_ps *ps, const rui_ps_head *h, bool later);
void rui_ps_move_sent(ru_ps *ps, uint32_t k, bool ok);
void rui_ps_move_drop(ru_ps *ps, uint32_t k);

/* ps_ask.c */
static inline rui_ps_ask *rui_ps_ask_at(const ru_ps *ps, uint32_t i)
{
    return &ps->ask_page[i / RUI_PS_ASK_PAGE][i % RUI_PS_ASK_PAGE];
}
void rui_ps_ask_reset(ru_ps *ps);
void rui_ps_ask_closed(ru_ps *ps); /* updates of clocks that are closed are not kept longer */
void rui_ps_answer(ru_ps *ps, uint32_t what, const rui_ps_head *h, const void *body,
                   int64_t body_bytes, ru_time now, ru_effects *fx);
void rui_ps_ask_sent(ru_ps *ps, uint64_t cookie, bool ok);
/* Send anew what was refused or lost; with `moved`: what went to processes that do not hold it. */
void rui_ps_ask_again(ru_ps *ps, bool moved, ru_time now, ru_effects *fx);

#endif
