/* A service on as many burstable machines as its requests need: a step machine. At the beginning of
 * each period (an hour) it asks the policy `burst-fleet` for the cheapest machines that serve what
 * is expected, of those that run, with their credits, and new ones. Its driver starts and stops
 * them, spreads the requests, and tells every tick what each used and which requests ended.
 *
 * Credits are kept by what was really used; a machine without any may use what it earns. Beside it
 * stands the replay: the same policy for the rates that really came, with credits that are used
 * exactly, which is what a day costs at best by this policy.
 *
 * Thread: loop only; no clock, no system. */
#ifndef RU_BURST_FLEET_H
#define RU_BURST_FLEET_H

#include "base/rng.h"
#include "env/clock.h"
#include "plan/fleet/burst_fleet.h"

enum { RU_FLEET_MAX = 128, RU_FLEET_HEARD = 8192 };

typedef struct ru_fleet_type { /* as the policy's file has it */
    const char *name;
    uint32_t vcpus;
    double credits_per_h, cap, launch, usd_per_h, rate_max, cpu_s;
} ru_fleet_type;

typedef struct ru_fleet_options {
    struct {                        /* a pair as ru_conf_sections */
        const ru_fleet_type *types; /* [n_types] 1 .. RU_BURST_TYPES_MAX */
        uint32_t n_types;
    };
    const double *forecast; /* [n_forecast] requests a second of each period, then again from the
                               first; n_forecast 0: what the last period had */
    uint32_t n_forecast;
    double headroom;   /* so much more than that, as a fraction */
    double period_s;   /* on the credits' clock */
    double clock;      /* seconds of the credits' clock in one of ours */
    uint32_t launches; /* with credits, in all */
    double rate_first; /* of the first period without a forecast */
    double quantile;   /* of latencies */
} ru_fleet_options;

typedef struct ru_fleet_one {
    uint32_t number, type; /* number: 1, 2, ... in the order of starts */
    ru_credit now;
    double rate;  /* requests a second that it shall get */
    bool limited; /* it has no credits, and may use what it earns */
} ru_fleet_one;

typedef struct ru_fleet_tick {
    ru_time now;
    const double *used;      /* [n of machines] tokens of each since the last tick: vCPU-minutes */
    uint32_t requests;       /* that ended since then */
    const double *latency_s; /* [n] of these, or of some drawn from them */
    uint32_t n;
} ru_fleet_tick;

/* A period that ended. NAN: not known. */
typedef struct ru_fleet_record {
    uint32_t period;
    double expected, rate, latency_s;
    uint32_t machines, limited; /* that ran; that were without credits at some time */
    double usd, usd_all;        /* of the period, of all so far */
    double replay_usd_all;
} ru_fleet_record;

typedef struct ru_fleet_effects {
    bool record, plan; /* a period ended; `one` has other machines or rates from now on */
    ru_fleet_record was;
    char id[33];       /* of the plan */
    const char *input; /* its question as JSON, view until the next step */
} ru_fleet_effects;

typedef struct ru_fleet {
    ru_fleet_options opt;
    ru_burst_type type[RU_BURST_TYPES_MAX];
    ru_fleet_one one[RU_FLEET_MAX];
    uint32_t n, count, launched;
    uint32_t period;
    bool begun, was_limited[RU_FLEET_MAX];
    ru_time last, since; /* tick; begin of the period */
    double expected, usd, usd_all;
    uint64_t requests;
    uint32_t heard;
    double kept[RU_FLEET_HEARD];
    ru_burst_machine replay[RU_FLEET_MAX];
    uint32_t n_replay, replay_launched;
    double replay_usd;
    ru_rng rng;
    ru_arena arena; /* of the question */
} ru_fleet;

/* Errors: RU_E_CONFIG for options that contradict each other. */
RU_MUST_USE ru_status ru_fleet_init(ru_fleet *f, const ru_fleet_options *opt, uint64_t seed,
                                    ru_err *err);
void ru_fleet_fini(ru_fleet *f); /* zeroed is fine */
/* vCPUs that a machine may use now. */
double ru_fleet_vcpus(const ru_fleet *f, uint32_t one);
/* The first tick plans the first period. Errors: those of the policy: the machines stay as they are
 * for a period; the first one fails. */
RU_MUST_USE ru_status ru_fleet_step(ru_fleet *f, const ru_fleet_tick *t, ru_fleet_effects *fx,
                                    ru_err *err);

#endif
