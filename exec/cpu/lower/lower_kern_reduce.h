/* Which elements of a tensor make one line, by runs of kept and reduced dimensions. Inside
 * exec/cpu/lower only.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_KERN_REDUCE_H
#define RU_EXEC_CPU_LOWER_LOWER_KERN_REDUCE_H

#include "exec/cpu/lower/lower_kern.h"

/* x is [outer, keep, inner] with outer and inner reduced or, when `middle`, [keep, outer, inner]
 * with only outer reduced. */
typedef struct rui_runs {
    int64_t outer, keep, inner;
    bool middle;
    double count; /* elements of one line */
} rui_runs;

/* False: another pattern, or no elements. */
bool rui_runs_of(const ru_type *x, const bool *reduced, rui_runs *r);

#endif
