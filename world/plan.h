/* The envelope that every plan travels in: whose answer it is, to which question, what it promises
 * and until when it holds.
 *
 *   input hash = hash of the policy's input, field by field, by its table
 *   plan id    = hash of (policy, version, input hash)
 *
 * The id names the question, so the same facts give the same id on every machine; since a policy is
 * a pure function, the id names the answer too.
 *
 * Thread: any, plain data. */
#ifndef RU_WORLD_PLAN_H
#define RU_WORLD_PLAN_H

#include "base/hash.h"
#include "base/str.h"

/* One predicted or measured number. The unit stands at the end of the name: "step_s",
 * "cost_usd", "goodput_samples_per_s"; a name without a unit is a count or a fraction. */
typedef struct ru_figure {
    const char *name;
    double value;
} ru_figure;

typedef struct ru_figures {
    const ru_figure *at; /* [n] */
    uint32_t n;
} ru_figures;

/* Plan again when the measured figure differs from the predicted one by more than this. */
typedef struct ru_plan_trigger {
    const char *figure; /* name of a predicted figure, or of a fact */
    double error_max;   /* relative: 0.2 is 20 %; 0: on any change */
} ru_plan_trigger;

typedef struct ru_plan_head {
    const char *policy; /* name in plan/row/policy.def */
    uint32_t version;
    ru_hash128 input, id;
    int64_t valid_ns;                /* from the instant of planning; 0: until a trigger */
    ru_figures predicted;            /* the first one is what the policy minimises or maximises */
    const ru_plan_trigger *triggers; /* [n_triggers] */
    uint32_t n_triggers;
} ru_plan_head;

/* The id of (policy, version, input). */
ru_hash128 ru_plan_id_of(const char *policy, uint32_t version, ru_hash128 input);

#endif
