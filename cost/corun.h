/* How much of a request's time is lost while another op runs beside it, learned from measured
 * durations alone, by pairs of kinds of ops.
 *
 *   loss(h, b)   share of the time beside an op of kind b that an op of kind h stands still
 *   request      measured lost time <= margin * predicted lost time, in all but a share of requests
 *
 * Kinds are class x quarter of the device: a pair is met often enough to be learned within seconds.
 * Until it is met, its loss is the mean of what its op's kind has done to others, before that a
 * careful guess. The margin is a conformal quantile of true over predicted whose level follows what
 * was missed.
 *
 * Source: hafeez-2022 ch. 4 (aim); cui-2021 (Abacus: features by pair); gibbs-candes-2021 (margin).
 * Cost: O(ops overlapped) to learn, O(1) to ask. Thread: any, pure. */
#ifndef RU_COST_CORUN_H
#define RU_COST_CORUN_H

#include "base/arena.h"

typedef enum ru_op_class { RU_OP_COMPUTE, RU_OP_MEMORY, RU_OP_UNKNOWN } ru_op_class;

enum {
    RU_CORUN_SIZES = 4, /* up to 1/4 of the device, up to all of it, up to 4 times, more */
    RU_CORUN_KINDS = 3 * RU_CORUN_SIZES,
    RU_CORUN_KEPT = 512,   /* requests that the margin is taken from */
    RU_CORUN_EVERY = 64,   /* requests between two margins */
    RU_CORUN_OVERLAPS = 16 /* ops beside one op that are told apart */
};

/* `units`: demand of the op, `device`: units there are (SMs, cores); both >= 1. */
uint32_t ru_corun_kind(ru_op_class c, double units, double device);

typedef struct ru_corun_cell {
    double loss, spread; /* mean and mean absolute deviation */
    double weight;       /* overlapped time in units of the first one, at most 64 */
} ru_corun_cell;

typedef struct ru_corun {
    ru_corun_cell pair[RU_CORUN_KINDS]
                      [RU_CORUN_KINDS]; /* [kind of the request's op, kind beside] */
    ru_corun_cell beside[RU_CORUN_KINDS];
    double guess;                /* of a pair never met */
    double level, miss_goal;     /* share of requests that may lose more than predicted */
    double margin;               /* >= 1 */
    double ratio[RU_CORUN_KEPT]; /* ring of true over predicted */
    uint32_t n_ratios;           /* ever */
} ru_corun;

/* guess in [0, 1], miss_goal in (0, 1). */
void ru_corun_init(ru_corun *c, double guess, double miss_goal);
/* Expected share, and one that is kept when `sure` (with the spread). In [0, 0.98]. */
double ru_corun_loss(const ru_corun *c, uint32_t kind, uint32_t beside, bool sure);

typedef struct ru_corun_overlap {
    uint32_t kind;
    double s; /* >= 0 */
} ru_corun_overlap;

/* An op of `kind` lost `lost_s` (measured less alone) while others ran beside it. */
void ru_corun_learn(ru_corun *c, uint32_t kind, const ru_corun_overlap *o, uint32_t n,
                    double lost_s);
/* A request ended. Both >= 0; a request that was predicted to lose nothing teaches nothing. */
void ru_corun_request(ru_corun *c, double predicted_s, double lost_s);

#endif
