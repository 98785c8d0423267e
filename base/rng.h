/* Random numbers by counter: Philox4x32-10, so that draw i of stream s under seed k is a function
 * of (k, s, i) only: it does not depend on the machine, the number of threads, or earlier draws.
 *
 * All distributions use integers, IEEE add, multiply, divide and square root, and Rubato's own
 * logarithm, exponential and cosine (ru_math_*): they give the same bits everywhere, which libm
 * does not guarantee.
 *
 * Source: salmon-2011 sec 3.3 (Philox). Thread: any; an ru_rng belongs to one thread at a time. */
#ifndef RU_BASE_RNG_H
#define RU_BASE_RNG_H

#include "base/status.h"

RU_API_BEGIN

/* A sequence of draws: stream `stream` under `seed`, from `index` 0 on. */
typedef struct ru_rng {
    uint64_t seed, stream, index; /* index: next block of four words */
    uint32_t block[4];
    uint32_t left; /* words of `block` not yet given */
} ru_rng;

ru_rng ru_rng_from(uint64_t seed, uint64_t stream);

/* A number from a word, for streams by name. */
uint64_t ru_rng_label(const char *word);

uint64_t ru_rng_u64(ru_rng *r);
/* Uniform in 0..n-1 without bias; n >= 1. */
uint32_t ru_rng_below(ru_rng *r, uint32_t n);
uint64_t ru_rng_below_u64(ru_rng *r, uint64_t n);
/* Uniform in [0,1): 24 and 53 random bits. */
float ru_rng_f32(ru_rng *r);
double ru_rng_f64(ru_rng *r);
double ru_rng_uniform(ru_rng *r, double low, double high); /* [low, high) */
double ru_rng_normal(ru_rng *r);                           /* mean 0, deviation 1 */
double ru_rng_exponential(ru_rng *r);                      /* mean 1 */
/* Index with probability weights[i] / sum; weights >= 0, n >= 1, sum > 0. Cost: O(n). */
uint32_t ru_rng_pick(ru_rng *r, const double *weights, uint32_t n);
/* Put 0..n-1 into `order` in random order. */
void ru_rng_shuffle(ru_rng *r, uint32_t *order, uint32_t n);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* An independent generator named by (r's seed and stream, label); does not change `r`. The same
 * label gives the same child whatever was drawn in between. */
ru_rng ru_rng_split(const ru_rng *r, uint64_t label);
uint32_t ru_rng_u32(ru_rng *r);
/* A permutation of 0..n-1 that is computed, not stored: place -> sample. The order of training
 * samples is ru_perm_from(n, seed, epoch). n up to 2^62. Cost: a few Philox rounds an element, no
 * memory. */
typedef struct ru_perm {
    uint64_t n;
    uint64_t seed, stream;
    uint32_t half_bits; /* the Feistel network works on 2*half_bits >= log2 n bits */
} ru_perm;
ru_perm ru_perm_from(uint64_t n, uint64_t seed, uint64_t stream);
uint64_t ru_perm_at(const ru_perm *p, uint64_t place); /* place < n */
/* The bijection: 128 random bits from a counter and a key. */
void ru_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* 128 random bits number `index` of `stream` under `seed`: counter {index, stream}, key seed. */
void ru_philox_at(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);
double ru_rng_gamma(ru_rng *r, double shape);    /* scale 1; shape > 0 */
uint32_t ru_rng_poisson(ru_rng *r, double mean); /* 0 <= mean <= 1e6 */
/* Rank 0..n-1 with probability proportional to 1/(rank+1)^s; n >= 1, s >= 0. */
uint32_t ru_rng_zipf(ru_rng *r, uint32_t n, double s);
/* The same bits on every machine; a few units in the last place (rng_test.c holds the bounds). */
double ru_math_log(double x);    /* x > 0, normal numbers */
double ru_math_exp(double x);    /* |x| <= 700 */
double ru_math_cos2pi(double t); /* cos(2 pi t), 0 <= t < 1 */
double ru_math_sin2pi(double t);
double ru_math_pow(double x, double y); /* x > 0 */

#endif
