/* What stands in the folders of `storage`, for people: which data, why, and what that saved.
 *
 *   TIER/samples/KEY/about   JSON: the data, why its samples are kept, what all processes that
 *                            ended saved; each adds its own when it closes the cache
 *
 * A process that is killed adds nothing. All below is safe beside processes that read and write the
 * folders: the index names a record after its bytes, and a folder goes only when nobody uses it.
 *
 * Thread: any. */
#ifndef RU_DATA_KEPT_H
#define RU_DATA_KEPT_H

#include "base/conf.h"
#include "base/hash.h"
#include "data/reader.h"

typedef struct ru_kept_about {
    const char *data, *format; /* path of the first file */
    const char *kind;          /* bytes, decoded */
    const char *plan;          /* id of the plan of `keep`; "": the job says what to keep */
    int64_t samples;           /* of the data */
    double none_s, epoch_s;    /* of the plan: reading an epoch without, and with what is kept */
    int64_t processes;         /* that ended */
    int64_t found, read;       /* reads from kept samples, from the source */
    int64_t found_ns, read_ns; /* of a thread, in all */
    int64_t added, damaged;
} ru_kept_about;

/* Say what the folder of `key` holds, and add to what it saved. What cannot be written is not
 * known later. */
void rui_kept_note(const char *tier, ru_hash128 key, const ru_kept_about *add);
/* What a read of a kept sample saved on the average, times their number; 0: not known. */
int64_t ru_kept_saved_ns(const ru_kept_about *a);

/* One version of one dataset in one folder of `storage`. */
typedef struct ru_kept_set {
    uint32_t tier;       /* index */
    const char *key;     /* 32 hex digits */
    ru_kept_about about; /* texts "" when nobody says */
    int64_t bytes, files, records;
    int64_t used_ns; /* since 1970 */
    bool in_use;     /* by a process, now */
} ru_kept_set;

/* All sets, tier by tier, by key. A tier that does not exist has none. Owner: arena. Errors:
 * RU_E_MEM, RU_E_IO. */
RU_MUST_USE ru_status ru_kept_list(const ru_disk_tier *tiers, uint32_t n_tiers, ru_arena *arena,
                                   ru_kept_set **out, uint32_t *n, ru_err *err);
/* Errors: RU_E_AGAIN: a process uses it; those of removing files. */
RU_MUST_USE ru_status ru_kept_remove(const ru_disk_tier *tier, const ru_kept_set *set, ru_err *err);

/* The folder of data but these that was used longest ago and that nobody uses goes: one of TIER/
 * samples, whose lock of the room is held. False: there is none. */
bool rui_kept_evict(const char *samples, const char *but);

typedef struct ru_kept_verified {
    int64_t records, bytes; /* that are what was written */
    int64_t damaged;        /* records that are not, or cannot be read */
    int64_t lines;          /* of an index that are damaged: nobody finds their records */
} ru_kept_verified;

/* Read every record and compare its checksum. Records that go meanwhile are passed over. Errors:
 * RU_E_MEM, RU_E_IO: not all could be looked at. */
RU_MUST_USE ru_status ru_kept_verify(const ru_disk_tier *tier, const ru_kept_set *set,
                                     ru_kept_verified *out, ru_err *err);

#endif
