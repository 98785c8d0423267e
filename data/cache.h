/* Samples that were read once, kept on a disk of this machine: the next epoch, and the next run,
 * reads them from there.
 *
 *   read  found? --yes--> range of a segment --hash right--> fields
 *           | no                               | wrong: forgotten, counted
 *         the format reads it --fits into the room?--> appended to the segment of this process
 *
 *   TIER/samples/KEY/  use          locked while a process uses the folder
 *                      NAME.seg     records one after another, of one process at a time
 *                      NAME.idx     (number, offset, size, hash, check) of each record
 *   TIER/samples/room               locked while space is claimed
 *
 * KEY is the hash of the versions of all files and of all that decoding depends on: other data, or
 * other options, have another folder. A record holds the fields of a sample as the format gives
 * them, pixels as u8 (RU_CACHE_DECODED), or the bytes that the format asks for (RU_CACHE_BYTES).
 * Each epoch reads each sample once, so that any fixed set of samples saves the same and replacing
 * them saves nothing: what comes first stays. When the room is full, folders of other data that
 * nobody uses go, the one used longest ago first.
 *
 * A thread of low priority writes, many records at a time. A sample that comes while 16 MiB wait
 * for it is not kept in this epoch, so that reading never waits for the disk (but where `waits` of
 * the options says so).
 *
 * Nothing fails for the cache: what cannot be written is not kept (the next tier is tried), what
 * cannot be read is read from the source.
 *
 * Thread: open and close on one thread, the rest on many. */
#ifndef RU_DATA_CACHE_H
#define RU_DATA_CACHE_H

#include "data/data_impl.h"

typedef struct rui_cache rui_cache;

/* For a dataset that is open but for its cache. *out NULL: samples of this format stand in memory
 * decoded, and nothing would be saved. Errors: RU_E_CONFIG naming the tier. */
RU_MUST_USE ru_status rui_cache_open(ru_dataset *d, const ru_data_options *opt, rui_cache **out,
                                     ru_err *err);
void rui_cache_close(rui_cache *c); /* NULL is fine; tells what it saved */

/* Sample `index` of the format: rui_format.read through the cache. */
RU_MUST_USE ru_status rui_cache_read(const ru_dataset *d, int64_t index, void *const *fields,
                                     ru_err *err);
/* The range of a kept sample to `fn`; false: it is not kept. */
bool rui_cache_where(rui_cache *c, int64_t index, rui_where_fn fn, void *self);
/* What came from kept samples so far; waits until what was read is in its files. */
typedef struct rui_cache_sum {
    int64_t found, read;        /* reads of samples: from kept ones, from the source */
    int64_t found_ns, read_ns;  /* how long they took, over all threads */
    int64_t added, added_bytes; /* kept by this process */
    int64_t damaged;            /* kept ones that could not be read */
    int64_t late;               /* not kept, since too much waited for the disk */
    int64_t kept, samples;      /* now, of so many */
} rui_cache_sum;
rui_cache_sum rui_cache_sum_get(rui_cache *c);
int64_t rui_cache_record_bytes(const rui_cache *c); /* of a sample at most; 0: not known */

/* -- where the bytes of a sample stand now (RU_CACHE_BYTES) ------------------------------------ */

enum { RUI_MOVED_MAX = 64 };

/* Ranges of one sample in the format's files, one after another in its record. */
typedef struct rui_moved {
    struct {
        const rui_source *source;
        int64_t offset, size_bytes;
    } at[RUI_MOVED_MAX];
    uint32_t n;
    const uint8_t *bytes; /* of the record */
} rui_moved;

/* NULL: not in the record. */
const uint8_t *rui_moved_find(const rui_moved *m, const rui_source *s, int64_t offset,
                              int64_t size_bytes);

#endif
