/* The windows of the order in blocks, of data behind addresses: each is fetched whole, in large
 * requests, and kept while batches draw their samples from it. (Of files the kernel keeps them: see
 * announce in stream.c.)
 *
 *   slot 0   window w   <- batches are decoded        slot 1   window w+1   <- its reads go on
 *
 * A stream that has all samples fetches whole blocks, a worker those of its own samples (with small
 * gaps). Two windows are kept. One is replaced when nobody holds it and a batch needs the next; a
 * batch whose window has gone by reads its samples by itself.
 *
 * Thread: any. Memory: two windows of at most bytes_max (64 blocks of 1 MiB). */
#ifndef RU_DATA_AHEAD_H
#define RU_DATA_AHEAD_H

#include "data/fetch.h"

typedef struct rui_ahead rui_ahead;

enum { RUI_AHEAD_BYTES_MAX = 80 << 20 };

/* The order in blocks of a stream. */
typedef struct rui_windows {
    const ru_dataset *d;
    uint64_t seed;
    int64_t count, block, window; /* samples: of an epoch, a block, a window */
    int64_t start, stride, batch; /* of the stream: which samples are its own */
    int64_t epochs;               /* 0: endless */
    bool before;                  /* it also reads the sample before each batch */
} rui_windows;

/* All blocks of window `w`, counted over all epochs. */
void rui_window_where(const rui_windows *o, int64_t w, rui_where_fn fn, void *self);
/* Windows of `n` samples from position `in_epoch` of an epoch on. */
void rui_windows_of(const rui_windows *o, int64_t epoch, int64_t in_epoch, int64_t n,
                    int64_t *first, int64_t *last);

typedef struct rui_ahead_options {
    rui_fetch_options fetch;
    rui_windows windows;
    /* Requests of a window have ended. */
    void (*ended)(void *self, const ru_read_piece *reads, uint32_t n);
    void *self;
} rui_ahead_options;

RU_MUST_USE ru_status rui_ahead_open(const rui_ahead_options *opt, rui_ahead **out, ru_err *err);
void rui_ahead_close(rui_ahead *a);  /* NULL is fine; nobody holds a window */
void rui_ahead_cancel(rui_ahead *a); /* NULL is fine; from any thread, as rui_fetch_cancel */
void rui_ahead_depth_set(rui_ahead *a, uint32_t depth); /* the same */
int64_t rui_ahead_bytes(const rui_ahead *a);            /* read so far */
/* Windows first .. last, at most two, with all their bytes, until rui_ahead_give; the one behind
 * them begins when there is room. Blocks. Requests of at most `size_bytes`, `depth` of a window
 * outstanding. False: one has gone by. */
bool rui_ahead_take(rui_ahead *a, int64_t first, int64_t last, int64_t size_bytes, uint32_t depth,
                    const rui_fetch *held[2]);
void rui_ahead_give(rui_ahead *a, int64_t first, int64_t last);

#endif
