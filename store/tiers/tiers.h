/* Files of a program on several disks: a fast one that is small, slower ones that are large. A file
 * begins where its hint lets it, and grows from tier to tier, so that no write fails because a fast
 * disk is full or broken.
 *
 *   create --hint--> the first tier where all of it fits now --no room, ENOSPC, EIO--> the next one
 *
 * A file of a group is placed by what came of earlier ones: the policy `storage` says whether it
 * begins on the first tier, and how far it may grow there (docs/policies/storage.md). It learns
 * from files that were removed, of all programs that used the space, on a thread of its own; until
 * 50 have ended, without XGBoost, and while the thread fails or is late, the first tier with room
 * has the file.
 *
 *   TIER/files/SPACE/MAP-ID-N.part   part N that process ID wrote, locked while it is written
 *   LAST/files/SPACE/id              MAP: what its last folder says, so that a fast one can have
 *                                    parts of several; a copy of the folder gets another one, and
 *                                    reads what had the first one
 *   LAST/files/SPACE/ID.map          log of process ID: names that were begun, files with their
 *                                    parts, files that are gone; locked while the process lives
 *   LAST/files/SPACE/room            locked while a name is taken, or logs of the dead are put
 *                                    together
 *   TIER/samples/room                locked while space is claimed (data/cache.h keeps the same
 *                                    quota)
 *
 * A file exists from its commit on, under one name in its space, for every process with the same
 * folders. With another last folder it is not found, and stays. What a killed process had begun
 * goes when the space is opened next; what it had committed stays. No lock is held while bytes of a
 * file are written or read. The log of a process grows until it closes the space; the next one that
 * opens it keeps what still counts.
 *
 * The last tier holds the map and must work. One before it that cannot be used is left out, with a
 * warning. Names may hold any bytes: they never become paths. Files are for what can be made again
 * after a loss of power, unless their hint says otherwise.
 *
 * Thread: one at a time for each object; ru_tier_read on many. */
#ifndef RU_STORE_TIERS_H
#define RU_STORE_TIERS_H

#include "base/arena.h"
#include "base/status.h"
#include "env/file/file.h"

RU_API_BEGIN

/* A folder on a disk of this machine, with a bound for what Rubato keeps in it. */
typedef struct ru_disk_tier {
    const char *path; /* made if it is missing */
    int64_t quota_bytes;
} ru_disk_tier;

enum { RU_TIERS_MAX = 8, RU_TIER_NAME_MAX = 255 };

typedef struct ru_tiers ru_tiers;
typedef struct ru_tier_file ru_tier_file;

typedef struct ru_tiers_options {
    const ru_disk_tier *tiers; /* [n_tiers] the fastest first */
    uint32_t n_tiers;          /* 1 .. RU_TIERS_MAX */
    const char *space;         /* of names: letters, digits, '-' and '_' */
    bool reads; /* nothing is made or changed, not even by opening: files are only read */
} ru_tiers_options;

/* What is known of a file before it is written; zero: nothing. It is removed by its name when
 * nobody needs it any more, and what it was worth is learned then. */
typedef struct ru_tier_hint {
    int64_t expected_bytes; /* it begins where so much fits; of a faster disk it takes at most twice
                               as much, then it grows on the next one */
    bool durable; /* its commit waits until it is on the disks, whatever happens to the machine, and
                     so does its removal */
    bool last;    /* on the last tier, beside the map: it is there as long as the map is; nothing is
                     learned from it */
    const char *group;         /* of files that are used alike: a step of a pipeline; at most
                                  RU_TIER_NAME_MAX bytes. NULL or "": nothing is learned */
    int64_t input_bytes;       /* what the step that writes it reads */
    uint32_t writers, readers; /* tasks */
    double life_s;             /* until it is removed */
} ru_tier_hint;

/* Opens or makes the space; removes what killed processes left. Strings of `opt` are copied.
 * With `reads` a folder that is not there has no files. Errors: RU_E_ARG (options), RU_E_CONFIG (a
 * folder that others can write into), RU_E_CREATE, RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status ru_tiers_open(const ru_tiers_options *opt, ru_tiers **out, ru_err *err);
/* All its files are closed before. Waits for the thread that learns: seconds at most. NULL is fine.
 */
void ru_tiers_close(ru_tiers *t);

/* A new file; nobody else sees it before its commit. `hint` may be NULL. Errors: RU_E_ARG (names),
 * RU_E_CREATE: a file has that name, or a living process writes one; RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status ru_tier_create(ru_tiers *t, const char *name, const ru_tier_hint *hint,
                                     ru_tier_file **out, ru_err *err);
/* Append. Errors: RU_E_CREATE: no tier has room; RU_E_IO; then the file can only be closed. */
RU_MUST_USE ru_status ru_tier_write(ru_tier_file *f, const void *data, int64_t size_bytes,
                                    ru_err *err);
/* The file exists from now on; then only ru_tier_close. Errors: RU_E_CREATE, RU_E_IO: it does not.
 */
RU_MUST_USE ru_status ru_tier_commit(ru_tier_file *f, ru_err *err);

/* A file for reading. It can be read until it is closed, even when it is removed meanwhile. Errors:
 * RU_E_MISSING: there is none, or a part of it is in none of the folders; RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status ru_tier_open(ru_tiers *t, const char *name, ru_tier_file **out, ru_err *err);
int64_t ru_tier_bytes(const ru_tier_file *f);
/* Exactly `size_bytes` at `offset` of a file that was opened. Errors: RU_E_DATA (beyond its end),
 * RU_E_IO. Thread: any. */
RU_MUST_USE ru_status ru_tier_read(const ru_tier_file *f, int64_t offset, void *into,
                                   int64_t size_bytes, ru_err *err);
/* One that was created and not committed goes. NULL is fine. */
void ru_tier_close(ru_tier_file *f);

/* Errors: RU_E_MISSING: there is none; RU_E_CREATE, RU_E_IO: it may still be there. */
RU_MUST_USE ru_status ru_tier_remove(ru_tiers *t, const char *name, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* All of a file that was opened, read-only: a map of its parts; of one that begins within a page
 * of the file a copy.
 * Owner: ru_file_unmap. Errors: RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status ru_tier_map(const ru_tier_file *f, ru_map_file *out, ru_err *err);
/* Who decided where a file begins. */
typedef enum ru_tier_by {
    RU_TIER_BY_ROOM,     /* first fit: it has no group, or there is one tier alone */
    RU_TIER_BY_TREES,    /* the policy `storage` */
    RU_TIER_BY_YOUNG,    /* first fit: too few files have ended */
    RU_TIER_BY_MISSING,  /* first fit: the library of trees is missing */
    RU_TIER_BY_TRAINING, /* first fit: the first trees are being trained */
    RU_TIER_BY_LATE,     /* first fit: training takes too long */
    RU_TIER_BY_FAILED,   /* first fit: training failed */
    RU_TIER_BYS,
} ru_tier_by;

/* What is known of a file of a group; of one that is gone also what came of it. */
typedef struct ru_tier_told {
    uint64_t writer, serial;
    double open_s, input_bytes, writers, readers, life_s; /* since 1970; life measured at its end */
    double limit_bytes;                                   /* on the first tier, by trees */
    double size_bytes, fast_bytes, ops;                   /* at its end; of it on the first tier */
    double expected_usd, measured_usd;                    /* saved by the first tier */
    double decide_s;                                      /* how long the decision took */
    uint64_t plan;                                        /* 0: first fit */
    uint32_t by, group_bytes;                             /* ru_tier_by */
} ru_tier_told;

/* Where a file is. */
typedef struct ru_tier_entry {
    const char *name;                /* view, until the next call with the same ru_tiers */
    int64_t bytes;                   /* of all of it */
    int64_t in_bytes[RU_TIERS_MAX];  /* [n_tiers] of it */
    int64_t expected_bytes, made_ns; /* of its hint; since 1970 */
    uint64_t writer;                 /* process that wrote it */
    const char *group;               /* "": none, and `told` is zero */
    ru_tier_told told;
} ru_tier_entry;
/* All that stands in the map now. Errors: RU_E_IO, RU_E_MEM, RU_E_AGAIN. */
RU_MUST_USE ru_status ru_tiers_look(ru_tiers *t, ru_err *err);
/* The next file after *at (0 to begin) of what was seen last; false: there is none. */
bool ru_tiers_next(ru_tiers *t, uint32_t *at, ru_tier_entry *out);
/* The same for the newest files of groups that ended, thousands at most. *group: view as above. */
bool ru_tiers_ended(ru_tiers *t, uint32_t *at, const char **group, ru_tier_told *out);
/* Has this writer, as seen last, the space open still? Not with `reads`. Errors: RU_E_CREATE. */
RU_MUST_USE ru_status ru_tiers_lives(ru_tiers *t, uint64_t writer, bool *lives, ru_err *err);

#endif
