/* Records of samples in folders of this machine (data/cache.h): segments, their index, the room.
 *
 * Thread: open and close on one thread, the rest on many. */
#ifndef RU_DATA_SEGMENTS_H
#define RU_DATA_SEGMENTS_H

#include "base/hash.h"
#include "data/data_impl.h"

typedef struct rui_segments rui_segments;

typedef struct rui_segments_options {
    const ru_disk_tier *tiers; /* [n_tiers] the first is filled first */
    uint32_t n_tiers;
    ru_hash128 key;  /* of the data; names the folder */
    int64_t samples; /* numbers are below it */
    bool waits;      /* who begins a record waits for the disk */
} rui_segments_options;

/* A record. `source` lives until close. */
typedef struct rui_kept {
    const rui_source *source;
    int64_t offset, size_bytes;
    uint64_t hash;
    const uint8_t *bytes; /* it waits in memory still, until rui_segments_done; NULL: in a file */
    struct rui_chunk *held;
} rui_kept;

/* A record that is being made. */
typedef struct rui_place {
    struct rui_chunk *chunk;
    uint32_t line;
} rui_place;

/* A record as it stands in an index file (NAME.idx). */
typedef struct rui_kept_line {
    int64_t number, offset, size_bytes;
    uint64_t hash, check;
} rui_kept_line;
bool rui_kept_line_is(const rui_kept_line *l, ru_hash128 key); /* is it a whole one? */

/* Reads the index of all segments that are there. Errors: RU_E_CONFIG, RU_E_CREATE naming a tier.
 */
RU_MUST_USE ru_status rui_segments_open(const rui_segments_options *opt, rui_segments **out,
                                        ru_err *err);
void rui_segments_drop(rui_segments *s);  /* what this process kept goes when it closes */
void rui_segments_close(rui_segments *s); /* NULL is fine */

bool rui_segments_find(rui_segments *s, int64_t number, rui_kept *out);
void rui_segments_done(rui_segments *s, const rui_kept *k); /* what was found is not needed now */
/* Memory for a record to keep, at a multiple of 8; NULL: it is kept already, there is no room, or
 * too much waits for the disk (but with `waits`). Each that begins ends. A thread of low priority
 * writes what ended, many records at a time; until then it is found in memory. */
uint8_t *rui_segments_begin(rui_segments *s, int64_t number, int64_t size_bytes, rui_place *p);
void rui_segments_end(rui_segments *s, const rui_place *p, bool good);
void rui_segments_forget(rui_segments *s, int64_t number); /* what cannot be read */
/* What other processes have added since; does nothing more often than every few seconds. */
void rui_segments_refresh(rui_segments *s);

typedef struct rui_segments_sum {
    int64_t kept;               /* samples, now */
    int64_t added, added_bytes; /* by this process */
    int64_t late;               /* not kept, since too much waited for the disk */
} rui_segments_sum;
/* Waits until all that ended is in its file, or has found no room. */
rui_segments_sum rui_segments_settle(rui_segments *s);

#endif
