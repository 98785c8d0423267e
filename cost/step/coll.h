/* What a collective costs: alpha (seconds per step), beta (seconds per byte on one link), gamma
 * (seconds per byte of summation), fitted per algorithm from measured times.
 *
 *   one piece:  t(S) = steps alpha + sent S beta + added S gamma
 *   n chunks of c bytes, d in flight:  t(c) + (n - 1) max(t(c) / d, alpha + busy c beta)
 *                                      (sent for busy where beta was fitted; both then as at the
 *                                      largest size that was measured)
 *
 * Source: the formulas of hockney-1994 and thakur-2005; choice by size as caramel-2020.
 * Thread: any, pure. */
#ifndef RU_COST_COLL_H
#define RU_COST_COLL_H

#include "world/coll.h"

typedef struct ru_coll_point {
    int64_t size_bytes; /* of the whole buffer */
    int64_t ns;
} ru_coll_point;

enum { RU_COLL_COST_POINTS_MAX = 16 };

typedef struct ru_coll_cost {
    double alpha_ns;   /* per step */
    double beta_ns;    /* per byte over one link */
    double gamma_ns;   /* per byte added; 0 when it cannot be distinguished from beta */
    uint32_t n_points; /* 0: unknown */
    double error;      /* largest relative residual of the fit */
    uint32_t n_at;     /* 0: predicted by the formula alone */
    ru_coll_point at[RU_COLL_COST_POINTS_MAX]; /* [n_at] what was measured, rising sizes */
} ru_coll_cost;

/* Coefficients of the formula for (op, algo, N), along the longest path; `busy`: bytes that one
 * direction of the busiest rank's link carries, per byte of the buffer. HIERARCHY: all on one host.
 */
typedef struct ru_coll_terms {
    double steps, sent, added, busy;
} ru_coll_terms;
ru_coll_terms ru_cost_coll_terms(ru_coll_op op, ru_coll_algo algo, uint32_t n_ranks);

/* What to assume of an algorithm until something is measured: 30 us a step and 10 Gbit/s between
 * hosts, 4 GB/s of additions. */
ru_coll_cost ru_cost_coll_prior(void);
/* What a hierarchy costs whose members share the memory of their host: n_ranks members on n_hosts
 * hosts, `most` on one of them. Between hosts it is the ring of their leaders, by what a step and a
 * byte of the flat `ring` cost; inside of a host messages there and back for each of two steps,
 * then additions and copies by one core. */
ru_coll_cost ru_cost_coll_hierarchy(const ru_coll_cost *ring, uint32_t n_ranks, uint32_t n_hosts,
                                    uint32_t most);

/* Least squares on relative errors, coefficients >= 0. Up to RU_COLL_COST_POINTS_MAX sizes are kept
 * (of several times of one size the least): between them ru_cost_coll_ns goes straight from one to
 * the next, since a link with queues and a kernel in between is no straight line as a whole. For
 * one (op, algo, N) the terms of beta and gamma are proportional, so gamma stays 0 and beta holds
 * both. Errors: RU_E_ARG with fewer than 2 sizes, a time <= 0, or a single rank. */
RU_MUST_USE ru_status ru_cost_coll_fit(ru_coll_op op, ru_coll_algo algo, uint32_t n_ranks,
                                       const ru_coll_point *points, uint32_t n, ru_coll_cost *out,
                                       ru_err *err);
int64_t ru_cost_coll_ns(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo, uint32_t n_ranks,
                        int64_t size_bytes);
/* What the bytes that `other` sends take on links where those of `algo`, all in one piece, took
 * `took->ns`: a bound for an algorithm that was not measured at this size. 0: algo sends none. */
int64_t ru_cost_coll_carry_ns(const ru_coll_point *took, ru_coll_op op, ru_coll_algo algo,
                              ru_coll_algo other, uint32_t n_ranks);
/* What a byte takes where many chunks keep a link busy: fitted, as at the largest size that was
 * measured; not rounded. */
double ru_cost_coll_byte_ns(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo,
                            uint32_t n_ranks);
/* What a byte takes on one direction of a link, by what sums in a ring took: each link carries the
 * same. */
double ru_cost_coll_carried_ns(const ru_coll_cost *ring, uint32_t n_ranks);
/* The same cost when each byte takes `times` as long. */
ru_coll_cost ru_cost_coll_slower(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo,
                                 uint32_t n_ranks, double times);
/* Cut into nearly equal chunks of at most chunk_bytes, `depth` in flight. */
int64_t ru_cost_coll_chunked_ns(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo,
                                uint32_t n_ranks, int64_t size_bytes, int64_t chunk_bytes,
                                uint32_t depth);

#endif
