/* Bytes of the samples of a batch, read before they are decoded: many requests at a time.
 *
 *   add(where) ... --begin: sorted, neighbours merged, cut into requests--> end --> find(where)
 *
 * A format says where the bytes of its samples stand (rui_format.where) and asks for them when it
 * decodes (rui_bytes_view). What was fetched is a view of the buffer here; all else (a piece behind
 * the end of its file, after an error of the disk, beyond the bound of the memory) is read at that
 * moment, whose error names file and place.
 *
 * Thread: one at a time. Memory: grows to the largest batch, at most bytes_max. */
#ifndef RU_DATA_FETCH_H
#define RU_DATA_FETCH_H

#include "data/data_impl.h"
#include "env/file/reads.h"
#include "trace/record/recorder.h"

typedef struct rui_fetch rui_fetch;

enum {
    RUI_FETCH_GAP_BYTES = 16 << 10,        /* read rather than skipped: as dear as a request */
    RUI_FETCH_GAP_OBJECT_BYTES = 64 << 10, /* 20 ms, 100 MB/s, 32 requests at a time: 62 kB each */
};

typedef struct rui_fetch_options {
    uint32_t depth_max;
    int64_t bytes_max;
    int64_t pieces, bytes; /* of a usual batch: taken at open */
    ru_reads_kind kind;
    bool fixed; /* the buffer stays in memory, for direct reads; others are copied anyway */
    bool large; /* it may take whole large pages, however small it is */
    ru_objects *objects; /* for files behind addresses; NULL: there are none */
    uint32_t group;      /* of the reading thread: its batches share a depth */
} rui_fetch_options;

RU_MUST_USE ru_status rui_fetch_open(const rui_fetch_options *opt, rui_fetch **out, ru_err *err);
void rui_fetch_close(rui_fetch *f); /* NULL is fine; ends what is under way */
const char *rui_fetch_name(const rui_fetch *f);
const char *rui_fetch_plain_why(const rui_fetch *f); /* ru_reads_plain_why */

/* A range of the next batch; resident sources need none. Begins a new batch after rui_fetch_end. */
void rui_fetch_add(void *f, const rui_source *s, int64_t offset, int64_t size_bytes);
/* Requests of at most `size_bytes`, `depth` at a time. */
void rui_fetch_begin(rui_fetch *f, int64_t size_bytes, uint32_t depth);
void rui_fetch_poll(rui_fetch *f); /* NULL is fine */
/* Any thread: also of the requests under way; read so far, in all. */
void rui_fetch_depth_set(rui_fetch *f, uint32_t depth);
int64_t rui_fetch_bytes(const rui_fetch *f);
/* From any thread: requests over the network end at once, without bytes, and nothing is read
 * instead. */
void rui_fetch_cancel(rui_fetch *f); /* NULL is fine */
/* Errors: RU_E_CANCELLED. */
RU_MUST_USE ru_status rui_fetch_cancelled(const rui_fetch *f, ru_err *err); /* NULL is fine */
/* All ended. The requests: view until the next add; NULL, *n 0: nothing was asked for. */
const ru_read_piece *rui_fetch_end(rui_fetch *f, uint32_t *n);
/* The bytes, view until the next add; NULL: not fetched. */
const uint8_t *rui_fetch_find(const rui_fetch *f, const rui_source *s, int64_t offset,
                              int64_t size_bytes);

/* Records of requests that ended, and of the decoding of their batch from from_ns until now: all of
 * one flow, by `stream` (other streams have another) and number of the batch. */
void rui_fetch_record(ru_recorder *r, uint16_t name, uint64_t stream, int64_t batch,
                      const ru_read_piece *p, uint32_t n);
void rui_fetch_record_batch(ru_recorder *r, uint16_t name, uint64_t stream, int64_t batch,
                            int64_t from_ns, int64_t size_bytes);

#endif
