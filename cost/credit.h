/* Token buckets of burstable machines: CPU credits, I/O credits of disks, bytes of network cards.
 *
 *     earn ----> [ earned 0..cap ] ----> use above the earn rate
 *                [ launch, once  ] ----> drained before the earned ones
 *
 * Use up to the earn rate is paid by what comes in; what is above it drains launch credits, then
 * earned ones. An empty bucket limits use to the earn rate at once; an unlimited one goes into
 * surplus, up to the cap for later earnings to pay, beyond it billed.
 *
 * Source: aws-burstable (rules of CPU credits, launch credits, unlimited mode); aws-ebs-gp2 (I/O
 * credits); azure-b-series; uta-2020 (network). Thread: any, pure. Cost: O(1) a call. */
#ifndef RU_COST_CREDIT_H
#define RU_COST_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ru_credit_rules {
    double earn;   /* tokens per second, > 0 */
    double cap;    /* of earned tokens, > 0 */
    double launch; /* tokens outside the cap at every launch */
    double start;  /* earned tokens at launch, at most cap */
    double burst;  /* fastest use, tokens per second, >= earn */
    bool unlimited;
    double usd_per_token; /* of surplus beyond the cap */
    double keep_s;        /* how long tokens outlive a stop */
} ru_credit_rules;

typedef struct ru_credit {
    double earned, launch; /* tokens that can be spent, >= 0 */
    double surplus;        /* spent before they were earned: 0 .. cap, only with earned == 0 */
    double billed;         /* tokens of surplus that had to be paid, in all */
} ru_credit;

typedef enum ru_credit_state {
    RU_CREDIT_ACCRUE,  /* use <= earn */
    RU_CREDIT_SPEND,   /* use above it, tokens are left */
    RU_CREDIT_EMPTY,   /* use is limited to earn */
    RU_CREDIT_SURPLUS, /* unlimited, and none are left */
} ru_credit_state;

/* CPU of a machine by the figures of its type: credits of one vCPU-minute. `launch_apart`: they
 * stand outside the cap and are drained first (AWS T2), else they are the first earned ones. */
ru_credit_rules ru_credit_cpu(uint32_t vcpus, double credits_per_hour, double cap, double launch,
                              bool launch_apart);
/* I/O of a gp2 volume: max(100, 3 per GiB) a second up to 16,000; bursts to 3,000. */
ru_credit_rules ru_credit_gp2(double size_gib);

/* As it stands after a launch. */
ru_credit ru_credit_launch(const ru_credit_rules *r);
/* What can be spent. */
double ru_credit_level(const ru_credit *c);
/* Seconds of constant use until it is limited, or until surplus begins; INFINITY: never. */
double ru_credit_empty_s(const ru_credit_rules *r, const ru_credit *c, double use);
/* Seconds of constant use until the earned tokens are at the cap; INFINITY: never. */
double ru_credit_refill_s(const ru_credit_rules *r, const ru_credit *c, double use);
/* Advance by dt_s with constant requested use, exact for any dt_s. Returns the tokens used. */
double ru_credit_run(const ru_credit_rules *r, ru_credit *c, double use, double dt_s);
/* A stop of off_s seconds and the start after it: surplus is billed, tokens may be lost. */
void ru_credit_stop(const ru_credit_rules *r, ru_credit *c, double off_s);

#endif
