/* Completed reads in, windows for the tuner (plan/disk/read.h) out.
 *
 *   begin --reads of the old setting, then `depth` reads: the ramp--> slices of equal counts -->
 * window
 *
 * A window holds at least 32 reads, twice the depth, and half a second, a quarter of that the ramp;
 * the spread of its slices gives the standard error.
 *
 * Source: hashemi-2020 (windows); the slices are ours. Thread: any, pure. */
#ifndef RU_PLAN_READ_METER_H
#define RU_PLAN_READ_METER_H

#include "plan/disk/read.h"

enum { RU_READ_SLICES = 8 };

typedef struct ru_read_meter {
    int64_t size_bytes; /* the setting */
    uint32_t depth;
    int64_t begun_ns;                     /* of the setting */
    int64_t ramp_ns;                      /* end of the ramp; 0: under way */
    uint32_t ramped;                      /* reads that ended in the ramp */
    uint32_t n, slice;                    /* reads after it, slices that are full */
    int64_t bytes, slice_bytes, slice_ns; /* all, of the slice under way, its begin */
    double latency_s;                     /* sum */
    double sum, squares;                  /* of the rates of slices */
    int64_t stall_ns;
} ru_read_meter;

void ru_read_meter_begin(ru_read_meter *m, int64_t size_bytes, uint32_t depth, int64_t now_ns);
/* The trainer waited for data. */
void ru_read_meter_stall(ru_read_meter *m, int64_t ns);
/* A read that was issued at `issued_ns` ended. True: *w is a window, and the next one begins
 * without a ramp. */
bool ru_read_meter_done(ru_read_meter *m, int64_t issued_ns, int64_t bytes, int64_t now_ns,
                        ru_read_window *w);

#endif
