/* The updates of a round as one: their mean by samples, or what withstands updates that are far
 * off; then what a server's optimizer makes of it.
 *
 *   mean      sum of samples x update / samples, added as updates come: 8 bytes for each value
 *   trimmed   of each value the mean without the `trim` lowest and highest part of the updates
 *   median    of each value; both keep all updates of a round: 4 bytes for each value of each
 *
 *   average   values = mean
 *   momentum  v = beta1 v + (mean - values), values += lr v
 *   adam      m = beta1 m + (1 - beta1) d, v = beta2 v + (1 - beta2) d^2, d = mean - values,
 *             values += lr m / (sqrt(v) + epsilon)
 *
 * With clip, a sum of moves instead: each update's move from the values of the round is scaled down
 * to the length clip, moves count alike, each value of their sum gets normal noise of deviation
 * noise x clip, and the mean is that sum over `most`, whoever answered (mcmahan-2018).
 *
 * Running statistics are averaged as they are. The mean does not depend on the order of updates
 * beyond the last bits of f32, the other two not at all.
 *
 * Source: mcmahan-2017; yin-2018 (trimmed mean, median); reddi-2021 (optimizers).
 * Thread: one at a time. */
#ifndef RU_FLEET_SUM_H
#define RU_FLEET_SUM_H

#include "base/rng.h"
#include "train/job/job.h"
#include "train/model/flat.h"

typedef enum ru_fed_sum_kind { RU_FED_MEAN, RU_FED_TRIMMED, RU_FED_MEDIAN } ru_fed_sum_kind;
typedef enum ru_fed_optimizer { RU_FED_AVERAGE, RU_FED_MOMENTUM, RU_FED_ADAM } ru_fed_optimizer;

typedef struct ru_fed_sum_options {
    ru_fed_sum_kind kind;
    double trim;         /* TRIMMED: from each end, below 0.5 */
    uint32_t most;       /* updates of a round; TRIMMED, MEDIAN, clip */
    int64_t count;       /* values */
    int64_t params;      /* the first ones are parameters, the others statistics */
    ru_fed_optimizer by; /* what the server makes of the mean */
    double lr, beta1, beta2, epsilon;
    double clip, noise; /* 0: none */
    ru_rng *rng;        /* of the noise; NULL: from the kernel, so that nobody knows it */
} ru_fed_sum_options;

typedef struct ru_fed_sum {
    ru_fed_sum_options opt;
    const float *from; /* [count] values of the round */
    double *at;        /* [count] MEAN */
    float *kept;       /* [most][count] TRIMMED, MEDIAN */
    float *slots;      /* [n_slots] of the optimizer, zero at first: part of a snapshot */
    int64_t n_slots;
    uint64_t bits[64]; /* of the kernel, the first n_bits are not used yet */
    uint32_t n_bits;
    double weight; /* of all updates so far */
    uint32_t n;
} ru_fed_sum;

/* As the section `federated` of a job says. */
ru_fed_sum_options ru_fed_sum_of(const ru_job_federated *job, const ru_flat *flat);
/* Errors: RU_E_MEM; RU_E_CONFIG for a clip of a model that has running statistics. Owner: memory in
 * `arena`. */
RU_MUST_USE ru_status ru_fed_sum_open(const ru_fed_sum_options *opt, ru_arena *arena,
                                      ru_fed_sum *out, ru_err *err);
/* from: the values that the clients of the round begin with; they stay until the end. */
void ru_fed_sum_begin(ru_fed_sum *s, const float *from);
/* Adds nothing unless all of values [count] are finite. Errors: RU_E_DATA names the first that is
 * not; RU_E_LIMIT for more than `most`. */
RU_MUST_USE ru_status ru_fed_sum_add(ru_fed_sum *s, const float *values, double weight,
                                     ru_err *err);
/* Instead of adds: the sum of the moves of n updates whose weights sum up to `weight`, with clip of
 * moves that were scaled down, as fixed point whose 1 is worth `unit` (fleet/secure/mask.h). */
void ru_fed_sum_masked(ru_fed_sum *s, const uint32_t *moves, double unit, double weight,
                       uint32_t n);
/* The values of the next round from those of this one and at least one update; may be the same. */
void ru_fed_sum_end(ru_fed_sum *s, float *into);

#endif
