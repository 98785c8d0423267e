/* What the files of plan/cut/pipe share. Thread: any. */
#ifndef RU_PLAN_PIPE_IMPL_H
#define RU_PLAN_PIPE_IMPL_H

#include "base/vec.h"
#include "plan/cut/pipe.h"

/* Cuts in topological order: number 0 holds no layer, the last one all. */
typedef struct rui_pipe_cuts {
    uint32_t n;                                         /* besides number 0 */
    uint32_t words;                                     /* of a set */
    uint64_t *set;                                      /* [n + 1, words] layers of the cut */
    double *compute_s, *param_bytes, *activation_bytes; /* [n + 1] of all its layers */
    double *cut_bytes;                                  /* [n + 1] what later layers may read */
    bool *nest; /* [n + 1, n + 1] the first one is a subset of the second, a < b */
    bool all;
} rui_pipe_cuts;

ru_status rui_pipe_cuts_find(const ru_pipe_in *in, ru_arena *scratch, rui_pipe_cuts *c,
                             ru_err *err);
static inline bool rui_pipe_cuts_nest(const rui_pipe_cuts *c, uint32_t a, uint32_t b)
{
    return c->nest[(uint64_t)a * (c->n + 1) + b];
}

RU_VEC(rui_pipe_parts, ru_pipe_part)

/* The parts of the best pipeline over all cuts; first and end are cuts. `straight`: one unit a
 * part. Uses all units, with the calibrated model fewer ones of the last level when they do as
 * well. */
ru_status rui_pipe_search(const ru_pipe_in *in, const rui_pipe_cuts *c, bool straight,
                          ru_arena *scratch, rui_pipe_parts *parts, double *minibatch_s,
                          ru_err *err);
/* The same, straight, of in->speeds: uses all units. */
ru_status rui_pipe_search_speeds(const ru_pipe_in *in, const rui_pipe_cuts *c, ru_arena *scratch,
                                 rui_pipe_parts *parts, double *minibatch_s, ru_err *err);

#endif
