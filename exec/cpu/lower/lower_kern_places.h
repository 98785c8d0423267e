/* A table per axis: where the output reads. Inside exec/cpu/lower and exec/cpu/low only.
 *
 * Thread: as the executable. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_KERN_PLACES_H
#define RU_EXEC_CPU_LOWER_LOWER_KERN_PLACES_H

#include "exec/cpu/lower/lower_kern.h"

typedef struct rui_places {
    uint32_t rank;
    int64_t in[RU_RANK_MAX], out[RU_RANK_MAX];
    int64_t *from[RU_RANK_MAX]; /* [out[d]] input position, or -1 for the fill */
} rui_places;

/* Tables that copy; x has leading ones up to y's rank. False: no memory, the sticky error is set.
 */
bool rui_places_new(rui_low *lo, rui_places *p, const ru_type *x, const ru_type *y);

/* The step. `fill` absent: zero. Consumes the tables. */
ru_status rui_places_emit(rui_low *lo, rui_places *p, ru_value_id x, ru_value_id fill,
                          ru_value_id y, const char *name);

#endif
