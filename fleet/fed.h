/* Federated training in synchronous rounds, as a step machine: profile, then pick, send, wait,
 * average, evaluate, again.
 *
 *   PROFILE   every client gets profile_rounds tasks one after the other; who never answers within
 *             profile_wait is excluded
 *   ROUND     the clients that plan/fleet/pick.h chose train; the round ends with the answers that
 * count or at its deadline. Answers that come later are not averaged, but their time is learnt
 * EVALUATE tiers report accuracy, every `interval` rounds where the method uses it
 *
 *   client: IDLE --task--> BUSY --answer--> IDLE;  BUSY --deadline--> LATE --answer--> IDLE
 *           BUSY --enough others answered--> told to stop, IDLE;  any --leave--> AWAY --join-->
 * IDLE
 *
 * Means of a profile are replaced by what the law of all of them says about each
 * (cost/step/prior.h).
 *
 * A client that is BUSY or LATE is not picked, so one that died is left alone until it answers or
 * joins. Tiers are made again every retier_rounds rounds, when a client joins or leaves, and when
 * more than a tenth of a tier answers 30 % off its profile.
 *
 * Source: chai-2020 (TiFL). Thread: loop only. No clock; memory at init alone. */
#ifndef RU_FLEET_FED_H
#define RU_FLEET_FED_H

#include "env/clock.h"
#include "plan/fleet/pick.h"

typedef struct ru_fed_options {
    uint32_t n;            /* clients, numbers 0..n-1 */
    const double *samples; /* [n] of each, > 0 */
    uint32_t rounds, per_round, n_tiers, interval;
    uint32_t profile_rounds; /* > 0 */
    int64_t profile_wait_ns; /* > 0 */
    uint32_t retier_rounds;  /* 0: only when clients change */
    uint32_t answers_min;    /* a round with fewer is begun again; 0: 1 */
    bool kmeans;
    double fedcs_s;
    ru_pick_method method;
    uint64_t seed;
} ru_fed_options;

typedef enum ru_fed_kind {
    RU_FED_START,
    RU_FED_ANSWER, /* client, task, loss */
    RU_FED_TIMER,
    RU_FED_EVALUATED, /* accuracy */
    RU_FED_JOIN,      /* client */
    RU_FED_LEAVE      /* client */
} ru_fed_kind;

typedef struct ru_fed_event {
    ru_time now; /* never falls */
    ru_fed_kind kind;
    uint32_t client;
    uint32_t task;          /* number that the task was sent with; others are not taken */
    double loss;            /* ANSWER: root mean square of the losses of its samples; < 0: none */
    const double *accuracy; /* [n_tiers] EVALUATED; < 0: none */
} ru_fed_event;

typedef struct ru_fed_effects {
    uint32_t task;        /* > 0: send it to the clients of `send` */
    const uint32_t *send; /* [n_send] view until the next step */
    uint32_t n_send;
    bool profile;          /* what comes back is not to be averaged */
    const uint32_t *merge; /* [n_merge] average their answers by samples, now */
    uint32_t n_merge;
    const uint32_t *stop; /* [n_stop] their task is over: enough others answered */
    uint32_t n_stop;
    bool evaluate; /* accuracy of each tier's clients is wanted, by EVALUATED */
    bool retiered; /* ru_fed_tier has changed */
    bool done;
    bool waiting;      /* fewer clients than a round needs are free */
    ru_time timer;     /* step again by then; ns INT64_MAX: no need */
    double share_most; /* largest chance of a client to be in this round: for privacy accounts */
} ru_fed_effects;

typedef struct ru_fed ru_fed;

/* Owner: everything in `arena`. Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_fed_init(const ru_fed_options *opt, ru_time now, ru_arena *arena,
                                  ru_fed **out, ru_err *err);
/* Errors: of ru_plan_pick. */
RU_MUST_USE ru_status ru_fed_step(ru_fed *f, const ru_fed_event *ev, ru_fed_effects *out,
                                  ru_err *err);
uint32_t ru_fed_round(const ru_fed *f); /* from 1; 0: profile */
/* [n] RU_PICK_NONE: of none. */
const uint32_t *ru_fed_tier_of(const ru_fed *f);
/* Picks, mean latency and state of a client: the audit. */
ru_pick_client ru_fed_client(const ru_fed *f, uint32_t client);
/* What is known, as the input of the next decision. View. */
const ru_pick_in *ru_fed_facts(ru_fed *f);

#endif
