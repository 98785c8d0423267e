/* Which gradients are summed together.
 *
 * Neighbours in the order of readiness share a bucket: each sum has a fixed cost, but a large
 * bucket waits for its last gradient. A large gradient is cut, so that the update of its first part
 * need not wait for its last.
 *
 * Source: buckets after li-2020-ddp sec 3.2; cuts are ours.
 * Thread: any. Pure: equal input gives equal bytes. */
#ifndef RU_PLAN_FUSE_H
#define RU_PLAN_FUSE_H

#include "base/conf.h"

typedef enum ru_fuse_method {
    RU_FUSE_NEIGHBOURS,
    RU_FUSE_EACH, /* a bucket for each gradient, nothing cut */
    RU_FUSE_ONE,  /* one bucket */
    RU_FUSE_METHODS
} ru_fuse_method;

enum {
    RU_FUSE_TENSORS_MAX = 1 << 16,
    RU_FUSE_BYTES_DEFAULT = 1 << 20,
    RU_FUSE_CUT_DEFAULT = 16 << 20
};

typedef struct ru_fuse_in {
    ru_conf_i64s tensor_bytes; /* [n] in the order in which they become ready */
    int64_t fuse_bytes;        /* most bytes of a bucket of several */
    int64_t cut_bytes;         /* larger gradients are cut; a multiple of 4 */
    uint32_t cuts_max;         /* about so many cuts in all; larger cuts keep to it */
    uint32_t method;           /* ru_fuse_method */
} ru_fuse_in;

/* Whole gradients [first, first + n), or a cut: size_bytes at offset_bytes of gradient `first`
 * (n 1). */
typedef struct ru_fuse_bucket {
    uint32_t first, n;
    int64_t offset_bytes, size_bytes;
} ru_fuse_bucket;

typedef struct ru_fuse_plan {
    const ru_fuse_bucket *at; /* [n] every byte of every gradient once, in order */
    uint32_t n;               /* <= tensors + cuts_max */
    int64_t cut_bytes;        /* size of the cuts */
} ru_fuse_plan;

/* Owner: plan->at lives in `out`. Cost: O(n + cuts). Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_fuse(const ru_fuse_in *in, ru_arena *out, ru_fuse_plan *plan,
                                   ru_err *err);
/* Every byte lies in one bucket, in order; no bucket of several is larger than fuse_bytes, none
 * could take its successor in; cuts are of the stated size. Shares no code with the planner.
 * Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_fuse_check(const ru_fuse_in *in, const ru_fuse_plan *plan,
                                         ru_err *err);

#endif
