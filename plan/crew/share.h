/* Who computes how much of a global batch.
 *
 * A synchronous step takes as long as its slowest member: max of share / speed. Shares follow the
 * measured speeds; because new shares cost a rebuild, the old ones stay unless the gain is worth
 * it.
 *
 * Source: load balance of litz-2018 at the grain of samples; the hysteresis is ours.
 * Thread: any. Pure: equal input gives equal bytes. */
#ifndef RU_PLAN_SHARE_H
#define RU_PLAN_SHARE_H

#include "base/arena.h"

enum { RU_SHARES_MAX = 4096 };
#define RU_SHARE_SPEED_MIN 1e-9
#define RU_SHARE_SPEED_MAX 1e15

typedef enum ru_share_method {
    RU_SHARE_SPEED, /* ours: by measured speed */
    RU_SHARE_EQUAL, /* as if nobody knew speeds, whatever shares are in force */
} ru_share_method;

/* As the table of the row fills it: lists are pairs as ru_conf_f64s. */
typedef struct ru_share_in {
    int64_t batch; /* >= 1 samples of a step */
    struct {
        const double *speed; /* [n] samples a second; 0: not known, taken as the mean of the others;
                                < 0: gets nothing. NULL: all equal */
        uint32_t n;          /* 1 .. RU_SHARES_MAX members */
    };
    struct {
        const int64_t *now; /* [n_now] shares in force, summing to batch */
        uint32_t n_now;     /* n; 0: none */
    };
    ru_share_method method;
    double gain_min; /* new shares only when the step gets this part shorter: 0.1 */
} ru_share_in;

typedef struct ru_share_plan {
    const int64_t *share; /* [n] sums to batch */
    uint32_t n;
    bool changed;           /* differs from `now` */
    double predicted_s;     /* longest share / speed; 0 when no speed is known */
    double predicted_now_s; /* the same with `now`; 0 without */
} ru_share_plan;

/* Shares whose longest part (share / speed) is as short as can be; a member for which even one
 * sample would take longer gets none. Of equal ones the earlier member gets the sample. Owner:
 * plan->share lives in `out`. Cost: O(n^2). Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_share(const ru_share_in *in, ru_arena *out, ru_share_plan *plan,
                                    ru_err *err);

/* Shares are valid: they sum to the batch, no excluded member works, and moving one sample from one
 * member to another never makes the slowest part faster (new shares only). Shares no code with the
 * planner. Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_share_check(const ru_share_in *in, const ru_share_plan *plan,
                                          ru_err *err);

/* Do the parts that were computed cover the positions 0 .. batch - 1 of a step? Parts come in the
 * order of members, as shares are given out; zeroed to begin with. */
typedef struct ru_share_cover {
    int64_t at;       /* positions below are seen */
    int64_t lost;     /* positions of no part */
    int64_t repeated; /* of one more */
} ru_share_cover;

void ru_share_cover_part(ru_share_cover *c, int64_t first, int64_t n, int64_t batch);
void ru_share_cover_end(ru_share_cover *c, int64_t batch); /* no part follows */

#endif
