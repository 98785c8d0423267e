/* The gradient noise of a team (cost/goodput.h has the estimate), from what its members make and
 * its sums. Own gradients c_i of members with parts p_i of the batch and their sum G:
 *
 *   each member    |c_i|^2, p_i, p_i^2 ride in a vector that is summed beside the gradients
 *   all members    n = 1 / sum p_i^2: n sum |c_i|^2 is the mean square of n gradients of 1 / n of
 *                  the batch, |G|^2 the square of their mean
 *   one member     G of two steps in a row: their mean square, and the square of their mean
 *
 * So all members know the estimate, and none is lost with a leader. Every eighth step counts.
 *
 * Thread: ru_embed_noise_square any; the others the program's. */
#ifndef RU_TRAIN_EMBED_NOISE_H
#define RU_TRAIN_EMBED_NOISE_H

#include "base/status.h"
#include "cost/goodput.h"
#include "env/link/link.h"

enum { RU_EMBED_NOISE_BYTES = 16 }; /* of the vector */

typedef struct ru_embed_noise {
    ru_noise estimate;
    uint32_t samples;    /* steps that are in it */
    float *before;       /* [elements] sums of the step before a measured one */
    int64_t before_step; /* -1: none */
    int64_t elements;
} ru_embed_noise;

/* On the heap; memory of the sums is touched when it is used. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_embed_noise_open(ru_embed_noise *x, int64_t elements, ru_err *err);
void ru_embed_noise_close(ru_embed_noise *x);
/* Does this step count? */
bool ru_embed_noise_measures(int64_t step);
double ru_embed_noise_square(const float *x, int64_t n);
/* `own`: the squares of a member's gradients; `part` of the batch that it had. */
void ru_embed_noise_tell(double own, double part, float *vector);
/* All sums of `step`, [n] f32 spans. scale: the batch of the step as part of the usual one. */
void ru_embed_noise_summed(ru_embed_noise *x, int64_t step, double scale, const ru_span *sums,
                           uint32_t n, const float *vector);
/* false: not known yet. */
bool ru_embed_noise_known(const ru_embed_noise *x, double *sqr, double *var);

#endif
