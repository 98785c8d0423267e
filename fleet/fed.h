/* Federated training in synchronous rounds, as a step machine: profile, then pick, send, wait,
 * average, evaluate, again.
 *
 *   PROFILE   every client gets profile_rounds tasks one after the other; who never answers within
 *             profile_wait is excluded
 *   ROUND     the clients that plan/fleet/pick.h chose train; the round ends with the answers that
 *             count or at its deadline; answers that come later are not averaged, but their time
 *             is learnt
 *   EVALUATE  tiers report accuracy, every `interval` rounds where the method uses it
 *
 *   client:   IDLE --task--> BUSY --answer--> IDLE
 *             BUSY --deadline--> LATE --answer--> IDLE
 *             BUSY --enough others answered: told to stop--> IDLE
 *             any --leave--> AWAY --join--> IDLE
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

#include "base/wire.h"
#include "env/event.h"
#include "plan/fleet/pick.h"
#include "train/job/job.h"

typedef struct ru_fed_options {
    uint32_t n;            /* clients, numbers 0..n-1 */
    const double *samples; /* [n] of each, > 0; NULL: absent, JOIN says it */
    uint32_t rounds, per_round, n_tiers, interval;
    uint32_t profile_rounds; /* > 0 */
    int64_t profile_wait_ns; /* > 0 */
    uint32_t retier_rounds;  /* 0: only when clients change */
    uint32_t answers_min;    /* a round with fewer is begun again; 0: 1 */
    bool kmeans;
    double fedcs_s;
    ru_pick_method method;
    uint64_t seed;
    /* All clients are away until they join; each is profiled then, profile_rounds times, at most
     * `at_once` of them at one time (0: all), and leaves no round waiting. */
    bool absent;
    uint32_t at_once, clients_min; /* clients_min: the first round begins with so many */
    double deadline_s;             /* of each round; 0: the policy's, */
    double deadline_least_s;       /* ... at least this */
    uint32_t round_first;          /* rounds that are done, unless a snapshot says so */
    bool keeps;                    /* after MERGE nothing begins before KEPT */
    uint32_t what_first;           /* of its words */
    double noise;                  /* of the sum of a round, in units of what a client can change;
                                      0: nobody counts what rounds tell */
    double delta, epsilon_most;    /* noise: no round begins that would exceed it; 0: no bound */
} ru_fed_options;

/* As the section `federated` of a job says, for at most n clients that are absent at first and
 * whose choices are kept. */
ru_fed_options ru_fed_options_of(const ru_job *job, uint32_t n);

/* Words (env/event.h), and what comes with them. The profile begins with RU_EV_START. */
typedef enum ru_fed_word {
    RU_FED_ANSWER,    /* in: ru_fed_answer */
    RU_FED_EVALUATED, /* in: const double [n_tiers], accuracy of each; < 0: none */
    RU_FED_JOIN,      /* in, value: client; data: double, its samples, if they are new */
    RU_FED_LEAVE,     /* in, value: client */
    RU_FED_KEPT,      /* in: what was merged is safe */
    RU_FED_AGAIN,     /* in, instead of KEPT: it could not be merged, the round begins again */
    RU_FED_EXCUSED,   /* in, value: client whose answer does not count any more in this round */
    RU_FED_TIMER,
    RU_FED_STOP,     /* out: ru_fed_list, whose task is over: enough others answered */
    RU_FED_MERGE,    /* out: ru_fed_list: average their answers by samples, now */
    RU_FED_RETIERED, /* out: ru_fed_tier_of has changed */
    RU_FED_TASK,     /* out: ru_fed_list: send them this task */
    RU_FED_EVALUATE, /* out: accuracy of each tier's clients is wanted, by EVALUATED */
    RU_FED_WAITING,  /* out: fewer clients than a round needs are free; value: with a profile */
    RU_FED_DONE,   /* out: all rounds have been merged; value 1: another one would tell too much */
    RU_FED_FAILED, /* out, value: ru_status of a decision; its sentence. The job is over */
    RU_FED_WORDS
} ru_fed_word;

typedef struct ru_fed_answer {
    uint32_t client;
    uint32_t task; /* number that the task was sent with; others are not taken */
    double loss;   /* root mean square of the losses of its samples; < 0: none */
} ru_fed_answer;

typedef struct ru_fed_list {
    uint32_t round;    /* to which it belongs; 0: profile */
    uint32_t task;     /* TASK: its number, > 0 */
    double share_most; /* TASK: largest chance of a client to be in a round, whatever its tier */
    bool profile;      /* TASK: what comes back is not to be averaged */
    uint32_t n;
    uint32_t client[]; /* [n] */
} ru_fed_list;

typedef struct ru_fed ru_fed;

/* Owner: everything in `arena`. Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_fed_init(const ru_fed_options *opt, ru_time now, ru_arena *arena,
                                  ru_fed **out, ru_err *err);
void ru_fed_step(ru_fed *f, const ru_event *ev, ru_effects *fx);
uint32_t ru_fed_round(const ru_fed *f); /* from 1; 0: profile */
/* What the rounds that were merged tell about a client, for `delta`, to those who do not know in
 * which rounds it was; < 0: nobody counts. */
double ru_fed_epsilon(const ru_fed *f);
/* What the rounds that averaged the answer of one client tell about it, also to those who know
 * which rounds these were. No bound on the one follows from the other: they hold against different
 * observers, and the smaller of the two is a guarantee against neither. */
double ru_fed_epsilon_of(const ru_fed *f, uint32_t client);
/* [n] RU_PICK_NONE: of none. */
const uint32_t *ru_fed_tier_of(const ru_fed *f);
/* Will the answer to `task` be averaged, if it comes now? */
bool ru_fed_counts(const ru_fed *f, uint32_t client, uint32_t task);
/* The state between two rounds as bytes, to continue from in another process, where all clients are
 * away at first. whole: of MERGE, with all that clients owe, as if nothing had happened; KEPT comes
 * next. Loading: after init and before START. Errors: RU_E_DATA. */
int64_t ru_fed_saved_bytes(const ru_fed *f, bool whole);
void ru_fed_save(const ru_fed *f, bool whole, ru_wire_out *o);
RU_MUST_USE ru_status ru_fed_load(ru_fed *f, bool whole, ru_wire_in *w, ru_err *err);
/* Picks, mean latency and state of a client: the audit. */
ru_pick_client ru_fed_audit(const ru_fed *f, uint32_t client);
/* What is known, as the input of the next decision. View. */
const ru_pick_in *ru_fed_facts(ru_fed *f);

#endif
