/* Inside store/tiers/: the map of a space and who may change it.
 *
 * Thread: as tiers.h. */
#ifndef RU_STORE_TIERS_IMPL_H
#define RU_STORE_TIERS_IMPL_H

#include "base/map.h"
#include "env/file/room.h"
#include "store/tiers/tiers.h"
#include "world/solver.h"

/* What a record of the map says; ru_shardlog_record.object. */
enum {
    RUI_TIER_BEGUN = 1,
    RUI_TIER_MADE,
    RUI_TIER_GONE,
    RUI_TIER_TOLD,  /* a ru_tier_told and its group, of a file that was made */
    RUI_TIER_READ,  /* the same: a reader made `ops` operations on it */
    RUI_TIER_ENDED, /* the same: it is gone */
    RUI_TIER_PUTS,  /* ids of logs whose files are told in this one from now on */
};

/* `by` of a RUI_TIER_READ: the sum of those in logs that were put together. */
enum { RUI_TIER_PUT = 1 };

typedef struct rui_part {
    uint64_t tier, number; /* hash of the tier's path; the part's name */
    int64_t bytes;
} rui_part;

/* A record's payload: this, its parts, its name. */
typedef struct rui_item_head {
    uint64_t writer, serial; /* which file it is */
    int64_t bytes, expected_bytes, made_ns;
    uint32_t n_parts, name_bytes;
} rui_item_head;

/* Operations that one log has of an item. */
typedef struct rui_ops {
    struct rui_ops *next;
    double ops;
    uint32_t home;
    bool told; /* it tells the item, with what the logs had that it puts together */
} rui_ops;

typedef struct rui_item {
    rui_item_head r;
    rui_part parts[RU_TIERS_MAX];
    const char *name; /* in the arena; "": only its end is known */
    uint32_t home;    /* log that has it, + 1 */
    uint32_t before;  /* of the same name, + 1 */
    bool made, gone, durable, ended;
    const char *group; /* in the arena; NULL: none */
    ru_tier_told told; /* its ops: of all logs */
    rui_ops *ops;      /* in the arena */
} rui_item;

typedef struct rui_ended {
    ru_tier_told told;
    const char *group;
    uint32_t home; /* log that has it */
} rui_ended;

enum { RUI_TIER_COPIED_MAX = 8 };

/* Operations on a disk for this many bytes in a row. */
#define RUI_TIER_RUN_BYTES ((double)(1 << 20))

typedef struct rui_tier {
    const char *path, *folder;
    ru_room room;
    uint64_t id;
    bool off; /* it cannot be used */
} rui_tier;

typedef struct rui_map_log {
    char *path;
    uint64_t id;
    int64_t read_bytes;
    const uint64_t *puts; /* [n_puts] logs that it puts together, in the arena */
    uint32_t n_puts;
    bool listed;
} rui_map_log;

struct ru_tiers {
    ru_arena arena; /* of the paths */
    rui_tier tiers[RU_TIERS_MAX];
    uint32_t n_tiers;
    const char *room; /* lock of the space */
    uint64_t id, map; /* of this process; of the map, which stands in its parts' names */
    uint64_t copied[RUI_TIER_COPIED_MAX]; /* [n_copied] of maps that this one is a copy of */
    uint32_t n_copied;
    ru_grow *log; /* NULL: the space was opened for reading */
    int64_t log_bytes;
    uint64_t files, parts; /* numbers given away */
    /* The map as read so far. */
    ru_arena known;
    rui_map_log *logs; /* [n_logs] */
    rui_item *items;   /* [n_items] */
    rui_ended *ended;  /* [n_ended] */
    uint32_t n_logs, cap_logs, n_items, cap_items, n_ended, cap_ended;
    uint64_t dropped;      /* ended files that made room for others */
    uint64_t forgotten;    /* times of forgetting all */
    int64_t listed;        /* number of the lock of the space when logs were listed; -1 */
    ru_map by_id, by_name; /* index + 1; of a name the last one */
    /* Where files of groups begin. */
    struct rui_learner *learner; /* NULL: no file of a group was created yet */
    const ru_solver *solver;     /* trains forests, */
    int64_t late_ns;             /* and is late after so long */
};

/* All that stands in the logs now. Errors: RU_E_IO, RU_E_MEM, RU_E_AGAIN. */
RU_MUST_USE ru_status rui_tiers_refresh(ru_tiers *t, ru_err *err);
void rui_tiers_forget(ru_tiers *t);
/* The file of that name; NULL: there is none. View until the next refresh. */
const rui_item *rui_tiers_find(const ru_tiers *t, const char *name);
/* Into this process's log. Errors: RU_E_CREATE, RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status rui_tiers_append(ru_tiers *t, uint32_t what, const rui_item *i, ru_err *err);
/* A record of a ru_tier_told. */
RU_MUST_USE ru_status rui_tiers_append_told(ru_tiers *t, uint32_t what, const ru_tier_told *told,
                                            const char *group, ru_err *err);
/* Decide where a file of `group` begins, and say so in *told; limit 0 with `by` of trees: not on
 * the first tier, which has so much room. What cannot be done is first fit. */
void rui_tiers_choose(ru_tiers *t, const ru_tier_hint *hint, int64_t room_bytes,
                      ru_tier_told *told);
/* What came of a file on its removal, into the log; what cannot be written is not learned. */
void rui_tiers_learn(ru_tiers *t, const rui_item *i);
void rui_tiers_learner_close(ru_tiers *t);
/* With the lock of the space: does the process that wrote it live? */
bool rui_tiers_lives(const ru_tiers *t, uint64_t writer);
/* With the lock of the space: put together what still counts of the logs of the dead, and remove
 * parts that are of no file. What cannot be done is left to the next one, with a warning. Errors:
 * those of refresh. */
RU_MUST_USE ru_status rui_tiers_clean(ru_tiers *t, ru_err *err);
/* Path of a part of the map; NULL: no memory. */
char *rui_tiers_part(uint64_t map, ru_arena *arena, const rui_tier *d, uint64_t writer,
                     uint64_t number);
ru_status rui_tiers_no_memory(ru_err *err);

#endif
