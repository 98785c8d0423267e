/* The speeds of one service on a machine with credits of a processor, a disk and a network card, or
 * some of them: a step machine. Its driver tells it every tick what the service used and which
 * requests ended; it keeps the buckets (cost/credit.h) and, at the end of each window, says at
 * which rates the service may use tokens from now on: one choice for all. A token is a core for a
 * minute, a byte, or an operation.
 *
 *   PROFILE   at 3 loads: full speed, then each resource alone at 4 lower ones, one window each;
 *             then the latency model is fitted
 *   FULL      full speed: nothing to save, no model, or stood down
 *   TRIAL     the first window below full speed: does the load really use less?
 *   HELD      the speeds that the policy `burst` chose; fitted and asked again each window
 *
 * Clients are told from the figures by Little's law. A rate below what so many clients would cause
 * means that requests do not wait for answers: throttling them saves nothing. So does a trial whose
 * rate stayed, after which the machine stands down for some windows, longer each time. A trial is
 * so fast that it serves the rate in any case.
 *
 * Predictions are scaled by how far measured quantiles lay above or below the model of late. The
 * margin below the objective grows with each late window and shrinks slowly, so that in the long
 * run one of 20 is late (Source: gibbs-candes-2021).
 *
 * Thread: loop only; no clock, no system. */
#ifndef RU_BURST_PACE_H
#define RU_BURST_PACE_H

#include "base/arena.h"
#include "base/rng.h"
#include "cost/credit.h"
#include "env/clock.h"
#include "plan/fleet/burst.h"

enum {
    RU_PACE_RESOURCES = RU_BURST_RESOURCES_MAX,
    RU_PACE_SLOWER = 4, /* speeds of a resource in the profile, beside full speed */
    RU_PACE_LOADS = 3,
    RU_PACE_KEPT = 60,    /* windows that the model is fitted to */
    RU_PACE_DRAWN = 40,   /* latencies of each */
    RU_PACE_HEARD = 8192, /* requests of a window that its quantile is of; drawn beyond it */
    RU_PACE_WHY = 256,
};

typedef struct ru_pace_resource {
    const char *name;      /* cpu, disk or network */
    ru_credit_rules rules; /* in seconds of the bucket's clock; burst: full speed */
    ru_credit begin;
    uint32_t servers; /* that share full speed: cores; > 0 */
    double rate_min;  /* tokens per second that the kernel can bound */
} ru_pace_resource;

typedef struct ru_pace_options {
    ru_pace_resource at[RU_PACE_RESOURCES];
    uint32_t n;   /* of them */
    double clock; /* seconds of the buckets' clock in one of ours */
    double slo_s, quantile, margin, gain_min, reserve_s, speed_min;
    double think_s; /* of clients, as long as no profile with a load of its own has told it */
    int64_t window_ns;
    uint32_t clients[RU_PACE_LOADS]; /* of the profile's own load; 0: what comes is the load */
} ru_pace_options;

typedef struct ru_pace_tick {
    ru_time now;
    double used[RU_PACE_RESOURCES]; /* tokens since the last tick, >= 0 */
    uint32_t requests;              /* that ended since then */
    const double *latency_s;        /* [n] of these, or of some drawn from them */
    uint32_t n;
} ru_pace_tick;

typedef enum ru_pace_phase {
    RU_PACE_PROFILE,
    RU_PACE_FULL,
    RU_PACE_TRIAL,
    RU_PACE_HOLD,
} ru_pace_phase;
#define RU_PACE_PHASES "profile|full|trial|held"

/* Of one resource. NAN: not known. */
typedef struct ru_pace_bucket {
    double speed;                  /* that was in force; the bucket may have allowed less */
    bool empty;                    /* the bucket was, for some of the window */
    double level, level_predicted; /* tokens at its end */
    double use;                    /* tokens per second of the bucket's clock */
    double empty_s;                /* at that use, on the bucket's clock; INFINITY: never */
    double next_speed;             /* the decision */
} ru_pace_bucket;

/* A window that ended, and what was decided at its end. NAN: not known. */
typedef struct ru_pace_record {
    uint32_t window;
    ru_pace_phase phase;
    ru_pace_bucket at[RU_PACE_RESOURCES];
    bool empty;  /* some bucket was */
    bool open;   /* requests that do not wait for answers */
    double rate; /* requests per second */
    double clients;
    double latency_s, predicted_s; /* the quantile: measured, and as predicted at its beginning */
    double next_s;                 /* the quantile that the decision predicts */
    double stretch;                /* how much longer credits last than at full speed */
    char plan[33];                 /* id; "": the policy was not asked */
    const char *input;             /* its question as JSON, view until the next step; NULL */
    char why[RU_PACE_WHY];
} ru_pace_record;

typedef struct ru_pace_effects {
    bool quota[RU_PACE_RESOURCES];
    double rate[RU_PACE_RESOURCES]; /* tokens per second that the service may use from now on */
    bool load;                      /* the profile's load: so many clients from now on; 0: none */
    uint32_t clients;
    bool record;
    ru_pace_record window;
    char alarm[RU_PACE_WHY]; /* "": none. Once, when credits begin to run out */
} ru_pace_effects;

typedef struct ru_pace_kept {
    double load, speed[RU_PACE_RESOURCES];
    double latency_s[RU_PACE_DRAWN]; /* evenly spread over its distribution */
} ru_pace_kept;

/* What a window measures. */
typedef struct ru_pace_sum {
    ru_time begun;
    double used[RU_PACE_RESOURCES], latency_s; /* tokens */
    uint32_t requests, heard, n;               /* heard: latencies; n: of these kept below */
    double kept[RU_PACE_HEARD];
    bool empty[RU_PACE_RESOURCES];
} ru_pace_sum;

typedef struct ru_pace {
    ru_pace_options opt;
    ru_credit bucket[RU_PACE_RESOURCES];
    ru_pace_phase phase;
    uint32_t point;  /* of the profile */
    uint32_t window; /* number of the current one */
    ru_time last;    /* tick */
    bool begun, settling, limited[RU_PACE_RESOURCES], alarmed[RU_PACE_RESOURCES];
    double speed[RU_PACE_RESOURCES], rate[RU_PACE_RESOURCES]; /* decided, and told last */
    ru_pace_sum sum;
    ru_pace_kept kept[RU_PACE_KEPT];
    uint32_t n_kept, next_kept;
    double need[RU_PACE_RESOURCES]; /* tokens of a request; 0: none, or not known */
    double think_s, delay_s;        /* of clients; of answers, without these resources */
    double model[RU_BURST_FEATURES_MAX];
    uint32_t of[RU_PACE_RESOURCES], n_of; /* whose model it is: requests need nothing of others */
    bool fitted;
    double drift;     /* measured over modelled quantiles */
    double recent[3]; /* clients of the last windows */
    uint32_t n_recent;
    double rate_full, rate_expected; /* of a trial */
    double margin;                   /* wider after windows that were late */
    double load;                     /* clients, or requests a second, as forecast */
    uint32_t closed;                 /* windows in a row whose requests wait for answers */
    uint32_t down_until, down;       /* window; how many windows next time */
    double predicted_s, level_predicted[RU_PACE_RESOURCES];
    ru_rng rng;
    ru_arena arena; /* of the question */
} ru_pace;

/* Errors: RU_E_CONFIG for options that contradict each other. */
RU_MUST_USE ru_status ru_pace_init(ru_pace *p, const ru_pace_options *opt, uint64_t seed,
                                   ru_err *err);
void ru_pace_fini(ru_pace *p); /* zeroed is fine */
/* What a later machine can begin with in place of a profile: what was measured, as numbers. */
enum {
    RU_PACE_SAVED = 2 + RU_PACE_RESOURCES + RU_PACE_KEPT * (1 + RU_PACE_RESOURCES + RU_PACE_DRAWN)
};
uint32_t ru_pace_save(const ru_pace *p, double into[RU_PACE_SAVED]);
/* After init. Too few windows, or others than ru_pace_save gives: the profile is taken. */
void ru_pace_resume(ru_pace *p, const double *from, uint32_t n);
/* The first tick begins the first window; its figures are not counted. */
void ru_pace_step(ru_pace *p, const ru_pace_tick *t, ru_pace_effects *fx);

#endif
