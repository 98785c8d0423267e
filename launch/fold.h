/* The output of many workers as one: every line with who wrote it, lines that several wrote within
 * a short time once.
 *
 *     worker 3 | loss 0.31
 *     workers 1-8 | reading train-images
 *     workers 1,3-5 | warn: ...
 *
 * Each worker's lines stay in their order. Pure: time and bytes come in, lines go out through a
 * function. Memory is bounded at open: when more different lines are pending than fit, the oldest
 * goes out early; longer lines go out in pieces. A carriage return inside a line starts it again,
 * as on a terminal; other control bytes come
 * out as '?', so that no line can make a terminal do anything but show it.
 *
 * Thread: one at a time. */
#ifndef RU_LAUNCH_FOLD_H
#define RU_LAUNCH_FOLD_H

#include "base/arena.h"
#include "env/clock.h"

typedef struct ru_fold ru_fold;

typedef struct ru_fold_options {
    uint32_t workers_max;    /* numbers 1 .. workers_max fold; greater ones pass as they come */
    uint32_t lines_max;      /* pending at a time; 0: 256 */
    uint32_t line_bytes_max; /* 0: 4096 */
    int64_t window_ns;       /* a line waits this long for others like it; 0: 200 ms */
    /* One whole line with its prefix, without the line end; view until return. */
    void (*line)(void *self, const char *text, int64_t size_bytes);
    void *self;
} ru_fold_options;

RU_MUST_USE ru_status ru_fold_open(const ru_fold_options *opt, ru_arena *arena, ru_fold **out,
                                   ru_err *err);
/* Number of workers that write now: a line that all of them wrote appears at once. 1: no line
 * waits. */
void ru_fold_workers(ru_fold *f, uint32_t n, ru_time now);
/* Bytes that worker `number` (from 1) wrote, cut anywhere. */
void ru_fold_bytes(ru_fold *f, uint32_t number, const char *data, int64_t size_bytes, ru_time now);
/* It writes no more: what stands without a line end goes out too. */
void ru_fold_end(ru_fold *f, uint32_t number, ru_time now);
/* Lines whose time is up go out. Returns when to call again; INT64_MAX: nothing waits. */
ru_time ru_fold_tick(ru_fold *f, ru_time now);
/* Everything that waits goes out now. */
void ru_fold_flush(ru_fold *f);

#endif
