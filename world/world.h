/* A world: one cluster, its jobs, what was measured on it and what was decided. World files carry
 * it (store/world_file.h): a run directory has one, `rubato capture` takes one from a live job, and
 * `rubato plan`, `rubato explain` and `rubato sim` read it on any machine.
 *
 * The input of each plan is kept as JSON text, since only its policy knows its keys; the policy's
 * table reads it back to the same struct, so that the plan can be made again with the same id.
 *
 * Thread: any, plain data. */
#ifndef RU_WORLD_WORLD_H
#define RU_WORLD_WORLD_H

#include "world/cluster.h"
#include "world/facts.h"

typedef struct ru_world_job {
    const char *name, *model, *data;
    int64_t batch;      /* samples of one step of all workers */
    int64_t samples;    /* of one epoch */
    int64_t steps;      /* until it ends; 0: not known */
    int64_t parameters; /* elements */
    uint32_t workers_min, workers_max;
    bool deterministic;          /* sums in rank order, equal shares */
    bool equal_shares;           /* whatever the workers' speeds */
    ru_conf_i64s gradient_bytes; /* [n] of each gradient, in the order in which they become ready */
    ru_conf_i64s state_bytes;    /* [n] of each tensor that a joining worker needs */
} ru_world_job;

typedef struct ru_world_plan {
    const char *policy; /* name in plan/row/policy.def */
    uint32_t version;
    const char *id;                    /* 32 hex digits */
    const char *job;                   /* whose plan; "" the only one's */
    int64_t at_ns;                     /* when it was installed, nanoseconds since 1970 */
    const char *input;                 /* JSON object that the policy's table reads */
    ru_conf_pairs predicted, measured; /* figures by name; measured may lack some */
} ru_world_plan;

typedef struct ru_world {
    uint32_t schema;   /* 0: rubato.world/1 */
    uint32_t profiled; /* version of the profiles in `facts` (RU_PROFILE_VERSION of
                          train/pipe/profile.h); 0: none, or before they had one */
    ru_cluster cluster;
    struct {
        const ru_world_job *at; /* [n] */
        uint32_t n;
    } jobs;
    ru_facts facts;
    struct {
        const ru_world_plan *at; /* [n] in the order in which they were installed */
        uint32_t n;
    } plans;
} ru_world;

/* The keys of a world file. */
extern const ru_conf_table ru_world_table;

/* The plan of `policy` that was installed last; NULL: none. */
const ru_world_plan *ru_world_plan_newest(const ru_world *w, const char *policy);

#endif
