/* The tuner (plan/disk/read.h) on a real stream, beside fixed settings: for the rows of `rubato
 * bench reader` about stores and disks.
 *
 * Thread: main only. */
#ifndef RU_BENCH_READER_SEARCH_H
#define RU_BENCH_READER_SEARCH_H

#include "bench/bench.h"
#include "data/reader.h"
#include "plan/disk/read.h"

typedef struct rui_searched {
    ru_stream *stream;
    ru_read_done *ended; /* [RU_READS_KEPT] */
    ru_arena *arena;
    ru_read_in in;       /* no windows */
    ru_read_state state; /* after rui_search */
} rui_searched;

/* Square images of `side` pixels that mean nothing: an idx file of about `bytes`. */
RU_MUST_USE ru_status rui_make_images(const char *path, int64_t side, int64_t bytes, ru_err *err);
/* Batches for `seconds` with this setting, half of that as a ramp. */
RU_MUST_USE ru_status rui_measure(rui_searched *s, int64_t size, uint32_t depth, double seconds,
                                  ru_read_window *w, ru_err *err);
/* From nothing until the tuner is steady, at most `seconds`; the time it took. */
RU_MUST_USE ru_status rui_search(rui_searched *s, double seconds, double *taken_s, ru_err *err);
/* The tuner goes on for `seconds`, in windows of one. */
RU_MUST_USE ru_status rui_search_on(rui_searched *s, double seconds, ru_err *err);
/* The fastest of all sizes (times 2) and depths (times 4) that the tuner may choose, each for a
 * second; their number in *points. */
RU_MUST_USE ru_status rui_grid(rui_searched *s, uint32_t depth_min, ru_read_window *best,
                               uint32_t *points, ru_err *err);

#endif
