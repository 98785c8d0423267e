/* How work changes hands between workers of a clocked job: who may help whom, when and how much,
 * how stale parameters may be, and which boundaries move for the next clock.
 *
 *   group    helpers of a worker: the next ones of a stride over machines, so that groups overlap
 *   slices   sizes, and how far behind a worker must be, in parts of a clock
 *   grants   items that a worker which is slow by prediction hands over in every clock, least
 *            longest time; a maximum flow over the groups (sticky boundaries)
 *
 * Source: flexrr-2016 (groups, slices, slack); grants are ours.
 * Thread: any, pure. */
#ifndef RU_PLAN_REASSIGN_H
#define RU_PLAN_REASSIGN_H

#include "base/arena.h"

enum {
    RU_REASSIGN_WORKERS_MAX = 4096,
    RU_REASSIGN_GROUP_MAX = 64,
    RU_REASSIGN_ITEMS_MAX = 1 << 30,
};

/* What the step machines of train/tasks go by. Parts of a clock in millionths. */
typedef struct ru_reassign_rules {
    bool push;           /* workers that are behind hand out slices */
    bool pull;           /* workers without work ask for them */
    uint32_t slack;      /* clocks that a worker may be ahead of the slowest; 0: a barrier */
    uint32_t backup;     /* a clock closes without its last so many workers */
    uint32_t group;      /* helpers of each worker */
    int64_t trigger_ppm; /* a helper that works must be ahead by more */
    int64_t idle_ppm;    /* one that does not, by more */
    int64_t behind_ppm;  /* one that works helps if the mean of all helpers is ahead by more, too;
                            0: the mean does not matter */
    int64_t first_ppm;   /* size of a clock's first slice of a pair; it doubles up to */
    int64_t next_ppm;
    int64_t least_ppm;  /* no smaller slices */
    int64_t report_ppm; /* progress is told this often */
    int64_t grain_ppm;  /* and messages are looked at this often */
    int64_t rtt_ns;     /* measured: message and answer */
} ru_reassign_rules;

typedef enum ru_reassign_method {
    RU_REASSIGN_STICKY, /* ours: slices, and boundaries that follow lasting differences */
    RU_REASSIGN_FLEXRR, /* slices and slack 1 with the settings of the paper */
    RU_REASSIGN_SLICES, /* slices under a barrier: reassignment alone */
    RU_REASSIGN_STEAL,  /* pull style: who has finished asks for half of what is left */
    RU_REASSIGN_BSP,    /* a barrier, nothing moves */
    RU_REASSIGN_SSP1,   /* slack 1, nothing moves */
    RU_REASSIGN_SSP3,
    RU_REASSIGN_STATIC, /* a barrier, boundaries by predicted speeds, no slices */
    RU_REASSIGN_BACKUP, /* a barrier without the slowest workers, whose clock is lost */
    RU_REASSIGN_METHODS
} ru_reassign_method;

typedef struct ru_reassign_in {
    uint32_t n, clocks, items;  /* workers, clocks of the history, items of a worker's clock */
    const double *took;         /* [clocks, n] seconds for own items, > 0 */
    struct {                    /* a pair as ru_conf_i64s */
        const int64_t *machine; /* [n_machine] helpers stand on other machines */
        uint32_t n_machine;     /* n; 0: all stand alone */
    };
    uint32_t group_max; /* helpers of a worker that memory allows; 0: the method's own */
    double tail;        /* part of a worker's items that its helpers hold, 0 to 1 */
    uint32_t slack_max; /* of ours, which takes at most RU_REASSIGN_SLACK_MAX */
    uint32_t backup;    /* of RU_REASSIGN_BACKUP; 0: the best of 1 to n / 8 */
    int64_t rtt_ns;
    ru_reassign_method method;
} ru_reassign_in;

typedef struct ru_reassign_plan {
    ru_reassign_rules rules;
    uint32_t n;
    const uint32_t *helper; /* [n, group] RU_REASSIGN_NONE after a worker's last */
    const uint32_t *grant;  /* [n, group] items of every clock to that helper */
    const uint8_t *tight;   /* [n] workers whose work, less what they may give, over their speed
                               is the bound */
    const double *next_s;   /* [n] predicted for own items */
    double stays;           /* of differences between workers, from clock to clock */
    int64_t clock_ns;       /* predicted, with the grants: the longest */
    int64_t bound_ns;       /* no grants within the groups make it shorter */
    int64_t history_ns;     /* what the history would have taken, predicted */
    int64_t ideal_ns;       /* the same with all work spread freely */
} ru_reassign_plan;

#define RU_REASSIGN_NONE      UINT32_MAX
#define RU_REASSIGN_SLACK_MAX 3 /* ssp3's: more was never measured */

/* Owner: arrays in `out`. Cost: O(clocks n + flows over n * group edges), O(n group) memory.
 * Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_reassign(const ru_reassign_in *in, ru_arena *out, ru_arena *scratch,
                                       ru_reassign_plan *plan, ru_err *err);
/* Groups, grants and rules are legal, predicted figures follow, and the grants are the best within
 * the groups up to rounding (by the bound of `tight`). Shares no code with the planner.
 * Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_reassign_check(const ru_reassign_in *in, const ru_reassign_plan *plan,
                                             ru_arena *scratch, ru_err *err);

#endif
