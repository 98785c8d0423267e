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
} rui_segments_options;

/* A record. `source` lives until close. */
typedef struct rui_kept {
    const rui_source *source;
    int64_t offset, size_bytes;
    uint64_t hash;
} rui_kept;

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
/* Keep a record. False: it is kept already, or there is no room. */
bool rui_segments_put(rui_segments *s, int64_t number, const void *record, int64_t size_bytes);
void rui_segments_forget(rui_segments *s, int64_t number); /* what cannot be read */
/* Is it of use to make a record of so many bytes? False: no tier has room for it. */
bool rui_segments_room(rui_segments *s, int64_t size_bytes);
/* What other processes have added since; does nothing more often than every few seconds. */
void rui_segments_refresh(rui_segments *s);
int64_t rui_segments_count(rui_segments *s); /* samples that are kept */

#endif
