#include "train/embed/noise.h"

#include <stdlib.h>
#include <string.h>

enum {
    EVERY = 8,    /* steps between measured ones */
    SAMPLES = 16, /* that tell something together */
};

#define FEWEST 1.2 /* gradients of equal size: if one share is nearly all, little is learned */

ru_status ru_embed_noise_open(ru_embed_noise *x, int64_t elements, ru_err *err)
{
    *x = (ru_embed_noise){.estimate.every = EVERY, .before_step = -1, .elements = elements};
    x->before = malloc((size_t)elements * sizeof *x->before);
    return x->before != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the sums of a step, %lld bytes",
                         (long long)elements * (long long)sizeof *x->before);
}

void ru_embed_noise_close(ru_embed_noise *x)
{
    free(x->before);
    x->before = NULL;
}

bool ru_embed_noise_measures(int64_t step)
{
    return step >= EVERY && step % EVERY == 0;
}

double ru_embed_noise_square(const float *x, int64_t n)
{
    double part[8] = {0}, sum = 0; /* eight running sums become vectors */
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            part[k] += (double)x[i + k] * (double)x[i + k];
        }
    }
    for (; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    for (int k = 0; k < 8; k++) {
        sum += part[k];
    }
    return sum;
}

void ru_embed_noise_tell(double own, double part, float *vector)
{
    vector[0] = (float)own;
    vector[1] = (float)(part * part);
}

/* Both sums as a pair of gradients: the mean of their squares, and the square of their mean. */
static void pair(ru_embed_noise *x, double scale, const ru_span *sums, uint32_t n)
{
    const float *before = x->before;
    double mean = 0, squares = 0;
    for (uint32_t k = 0; k < n; k++) {
        const float *now = sums[k].data;
        int64_t size = sums[k].size_bytes / (int64_t)sizeof *now;
        squares += (ru_embed_noise_square(now, size) + ru_embed_noise_square(before, size)) / 2;
        for (int64_t i = 0; i < size; i++) {
            double m = ((double)now[i] + (double)before[i]) / 2;
            mean += m * m;
        }
        before += size;
    }
    ru_noise_add(&x->estimate, 1, scale, squares, mean);
    x->samples++;
}

void ru_embed_noise_summed(ru_embed_noise *x, int64_t step, double scale, const ru_span *sums,
                           uint32_t n, const float *vector)
{
    double gradients = vector[1] > 0 ? 1 / (double)vector[1] : 0, all = 0;
    bool splits = gradients >= FEWEST, paired = x->estimate.paired;
    if (ru_embed_noise_measures(step) && splits) {
        for (uint32_t k = 0; k < n; k++) {
            all += ru_embed_noise_square(sums[k].data, sums[k].size_bytes / 4);
        }
        ru_noise_add(&x->estimate, gradients, scale, gradients * (double)vector[0], all);
        x->samples = paired && !x->estimate.paired ? 1 : x->samples + 1; /* pairs were forgotten */
    } else if (ru_embed_noise_measures(step) && x->before_step == step - 1) {
        pair(x, scale, sums, n);
    } else if (ru_embed_noise_measures(step + 1) && !splits) {
        float *to = x->before;
        for (uint32_t k = 0; k < n; k++) {
            memcpy(to, sums[k].data, (size_t)sums[k].size_bytes);
            to += sums[k].size_bytes / 4;
        }
        x->before_step = step;
    }
}

bool ru_embed_noise_known(const ru_embed_noise *x, double *sqr, double *var)
{
    *sqr = ru_noise_sqr_least(&x->estimate);
    *var = ru_noise_var(&x->estimate);
    return x->samples >= SAMPLES;
}
