/* Every way in which the machines of a cluster can run a job, side by side.
 *
 * Thread: main only. */
#ifndef RU_TOOL_WAYS_H
#define RU_TOOL_WAYS_H

#include "base/json.h"
#include "world/cluster.h"

typedef struct rui_ways_ask {
    const char *job, *cluster; /* files */
    const char *facts;         /* of `rubato profile`; NULL: times are measured here */
    bool least_money;          /* else least time */
    bool json;
} rui_ways_ask;

/* The cluster in a file (YAML or JSON). Errors: RU_E_MISSING, RU_E_CONFIG: also for one without
 * hosts, or a host whose net_bytes_per_s is missing or out of range. */
RU_MUST_USE ru_status rui_cluster_read(const char *path, ru_arena *arena, ru_cluster *out,
                                       ru_err *err);
/* The first device of a host; NULL: none. */
const ru_cluster_device *rui_cluster_device(const ru_cluster *c, const char *host);
/* Of a worker on a host with this first device, or without one (NULL); 0: all cores here. */
uint32_t rui_cluster_threads(const ru_cluster_host *h, const ru_cluster_device *d);
/* Print the ways, the winner first in a sentence. Errors: those of job, data and facts;
 * RU_E_INFEASIBLE when no way fits. */
RU_MUST_USE ru_status rui_ways(const rui_ways_ask *ask, ru_arena *arena, ru_err *err);

/* What the policy `device` is asked for a job on the types of a cluster, from profiles, as members
 * of the open object of `j`. Errors: as rui_ways. */
RU_MUST_USE ru_status rui_device_question(const rui_ways_ask *ask, ru_arena *arena, ru_json *j,
                                          ru_err *err);

/* What the policy `place` is asked for a job, a device each host, as members of the open object of
 * `j`. Errors: as rui_ways. */
RU_MUST_USE ru_status rui_place_question(const rui_ways_ask *ask, ru_arena *arena, ru_json *j,
                                         ru_err *err);

#endif
