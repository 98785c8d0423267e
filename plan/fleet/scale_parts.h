/* A job on functions whose batch changes: what step times say of other batches, and how the limits
 * of the rest of the job are divided among its parts, each of which has one batch. The policy
 * `scale` then chooses for the first part.
 *
 *   step = work batch / (workers share(memory)) + fixed + (exchange + each (workers - 2))
 *
 * of which one worker alone has no exchange. A part with a small batch gets little from many
 * workers, as they exchange as much. So the parts share one price of the limit: the money that a
 * second less costs (or the time that a USD less costs) is the same in all of them.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_SCALE_PARTS_H
#define RU_PLAN_SCALE_PARTS_H

#include "plan/fleet/scale.h"

enum { RU_SCALE_PARTS_MAX = 64 };

typedef struct ru_scale_part {
    double steps, batch;
} ru_scale_part;

typedef struct ru_scale_law {
    double work, fixed, exchange, each; /* exchange: of two workers */
} ru_scale_law;

/* Of in->probe, each of a step of batch[i] samples: least squares of the relative errors, no term
 * below 0. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_scale_law_of(const ru_scale_in *in, const double *batch, ru_arena *scratch,
                                      ru_scale_law *out, ru_err *err);
double ru_scale_law_step(const ru_scale_law *l, const ru_scale_in *in, double workers,
                         double memory_mb, double batch);
/* The limits of parts[0] out of those of the rest, in->limit_s and in->limit_usd; what is spare, or
 * lacks, is divided as the parts need it. Where the other parts can make up for it, the first one
 * may take longer than that (or more money, where the fastest is asked for), though not so long
 * that a cheaper choice fits. Cost: O(choices n). */
void ru_scale_divide(const ru_scale_in *in, const ru_scale_law *l, const ru_scale_part *parts,
                     uint32_t n, double *limit_s, double *limit_usd);

#endif
