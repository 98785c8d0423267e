/* Which clients train in a round of federated learning. Clients are grouped into tiers by how long
 * they take, each round trains within one tier (a tier with fewer clients than a round needs is
 * filled from the faster ones, then from the slower ones), and slow tiers come less often:
 *
 *   chance of tier t  ~  clients(t) error(t) / sqrt(seconds of a round in t)
 *
 * the allocation that learns most in a given time when a tier's error stands for what its rounds
 * still teach (Neyman's allocation with costs), renewed every `interval` rounds from the accuracy
 * that each tier's clients report. Credits bound how often a tier comes.
 *
 * Source: chai-2020 (TiFL: tiers, credits, adaptive selection); cochran-1977 sec 5.5 (allocation
 * with costs); lai-2021 (Oort), nishio-2019 (FedCS), cho-2020 (power of choice).
 * Cost: O(n log n), tiers by k-means O(tiers min(n, 4096)^2) once (of more clients, neighbours in
 * order of latency stay together). Thread: any, pure. */
#ifndef RU_PLAN_PICK_H
#define RU_PLAN_PICK_H

#include <stddef.h>

#include "base/arena.h"

enum { RU_PICK_TIERS_MAX = 32, RU_PICK_CLIENTS_MAX = 1 << 20, RU_PICK_ROUND_MAX = 1024 };
#define RU_PICK_NONE UINT32_MAX

typedef enum ru_pick_method {
    RU_PICK_ADAPTIVE, /* ours */
    RU_PICK_TIFL,     /* equal credits; a stalled tier hands chances to those with low accuracy */
    RU_PICK_VANILLA,  /* any clients (FedAvg) */
    RU_PICK_OVER,     /* 1.3 times as many; the first answers count */
    RU_PICK_FEDCS,    /* of three times as many the fastest that keep the deadline */
    RU_PICK_OORT,     /* utility by loss and speed, exploration, pacer */
    RU_PICK_CHOICE,   /* of twice as many those with the largest loss */
    RU_PICK_UNIFORM,  /* tiers alike */
    RU_PICK_RANDOM,   /* .7 .1 .1 .05 .05 */
    RU_PICK_FAST,     /* the fastest tier */
    RU_PICK_SLOW,     /* the slowest tier */
    RU_PICK_METHODS
} ru_pick_method;

typedef struct ru_pick_client {
    double latency_s;    /* mean, > 0; of those that are away not used */
    double samples;      /* > 0 */
    double loss;         /* root mean square of its last losses; < 0: not known */
    uint32_t picks;      /* rounds it trained in */
    uint32_t last_round; /* the last of them; 0: none */
    bool away;           /* left, or excluded after a profile without an answer */
} ru_pick_client;

typedef struct ru_pick_tier {
    double credits;  /* rounds it may still come; < 0: as at the start */
    double accuracy; /* of the last evaluation; < 0: none yet */
    double before;   /* an interval earlier; < 0: none */
} ru_pick_tier;

/* As the table of the row fills it: lists are pairs as ru_conf_sections. */
typedef struct ru_pick_in {
    struct {
        const ru_pick_client *client; /* [n] */
        uint32_t n;
    };
    const uint32_t *tier_of; /* [n] of each client, RU_PICK_NONE: of none; NULL: by ru_pick_tiers */
    uint32_t n_tiers;
    uint32_t kmeans; /* 1: tiers by least squares of log latency; 0: equal counts */
    struct {
        const ru_pick_tier *tier; /* [n_told] */
        uint32_t n_told;          /* n_tiers; 0: as the job starts */
    };
    struct {
        const double *chance; /* [n_chance] in force */
        uint32_t n_chance;    /* n_tiers; 0: none yet */
    };
    uint32_t round, rounds; /* from 1; how many in all */
    uint32_t per_round;     /* clients that train */
    uint32_t interval;      /* rounds between two looks at accuracy */
    int64_t last_tier;      /* of the round before; -1: none */
    double deadline_s;      /* of a round; 0: 1.5 times its slowest expected answer */
    double fedcs_s;         /* FEDCS: deadline; 0: the median latency */
    double prefer;          /* OORT: quantile of latency that is fast enough */
    double spread;          /* deviation of the logarithm of a client's latency */
    uint64_t seed;
    ru_pick_method method;
} ru_pick_in;

typedef struct ru_pick_plan {
    const uint32_t *client; /* [n] rising, that get a task */
    uint32_t n, wait;       /* the round ends with so many answers */
    double deadline_s;      /* or here */
    uint32_t tier;          /* RU_PICK_NONE: not by tiers */
    uint32_t n_tiers;
    const uint32_t *tier_of; /* [clients] */
    const double *chance;    /* [n_tiers] of the next rounds too, until the next look */
    const double *credits;   /* [n_tiers] after this round */
    double share_most;       /* largest chance of a client to be in a round */
    double share_drawn;      /* ... to be in this one, for who knows its tier */
} ru_pick_plan;

/* What is known of a tier. */
static inline ru_pick_tier ru_pick_tier_now(const ru_pick_in *in, uint32_t tier)
{
    return in->n_told > 0 ? in->tier[tier] : (ru_pick_tier){-1, -1, -1};
}

/* Tiers of clients that are there, 0 the fastest; ties by index. Shape: into [n]. Errors:
 * RU_E_ARG, RU_E_INFEASIBLE for fewer clients than tiers, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_pick_tiers(const ru_pick_in *in, ru_arena *scratch, uint32_t *into,
                                    ru_err *err);
/* Owner: arrays in `out`. Errors: RU_E_ARG, RU_E_INFEASIBLE when fewer than per_round clients are
 * there, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_pick(const ru_pick_in *in, ru_arena *out, ru_arena *scratch,
                                   ru_pick_plan *plan, ru_err *err);
/* Mean seconds of the rounds to come with these chances and clients drawn as the method does; of
 * methods that look at each client, as if they drew by lot. Cost: of ru_round_mean for each tier.
 */
RU_MUST_USE ru_status ru_pick_round_mean(const ru_pick_in *in, const ru_pick_plan *plan,
                                         ru_arena *scratch, double *seconds, ru_err *err);
/* Every client is there and once, of the tier that was drawn as far as it has enough, tiers are in
 * order of latency, chances add up and respect credits. Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_pick_check(const ru_pick_in *in, const ru_pick_plan *plan,
                                         ru_arena *scratch, ru_err *err);

#endif
