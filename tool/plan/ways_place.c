/* The question of the policy `place` for a job on the hosts of a cluster. */
#include <math.h>
#include <string.h>

#include "plan/cut/place.h"
#include "tool/plan/ways.h"
#include "train/pipe/units.h"
#include "train/worker/worker_pipe.h"

/* Steps that are measured here tell nothing of other types. */
static ru_status check_types(const rui_ways_ask *ask, const ru_job *job, const ru_units_device *at,
                             uint32_t n, ru_err *err)
{
    for (uint32_t k = 1; k < n && job->train.pipeline.facts[0] == '\0'; k++) {
        if (strcmp(at[k].type, at[0].type) != 0) {
            return RU_FAIL(err, RU_E_USAGE,
                           "%s has devices of types '%s' and '%s', and layers that are measured "
                           "here are those of one; name a file of `rubato profile` with --facts",
                           ask->cluster, at[0].type, at[k].type);
        }
    }
    return RU_OK;
}

ru_status rui_place_question(const rui_ways_ask *ask, ru_arena *arena, ru_json *j, ru_err *err)
{
    ru_cluster c;
    ru_job job;
    ru_units_device at[RU_PLACE_DEVICES_MAX];
    double bytes_per_s = INFINITY;
    uint32_t threads = 0;
    if (ask->cluster == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "place needs the hosts of a cluster; give --cluster with a job");
    }
    RU_TRY(rui_cluster_read(ask->cluster, arena, &c, err));
    RU_TRY(ru_job_load(ask->job, NULL, 0, arena, &job, NULL, err));
    const char *against = ru_pipe_job_against(&job);
    if (against != NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: a placed step %s", ask->job, against);
    }
    if (c.hosts.n > RU_PLACE_DEVICES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "%s has %u hosts, and layers are placed on at most %d",
                       ask->cluster, c.hosts.n, RU_PLACE_DEVICES_MAX);
    }
    for (uint32_t k = 0; k < c.hosts.n; k++) {
        const ru_cluster_host *h = &c.hosts.at[k];
        const ru_cluster_device *d = rui_cluster_device(&c, h->name);
        uint32_t cores = rui_cluster_threads(h, d);
        at[k] = (ru_units_device){
            .name = h->name,
            .type = d != NULL ? d->type : "cpu",
            .memory_bytes = d != NULL && d->memory_bytes > 0 ? d->memory_bytes : h->memory_bytes};
        bytes_per_s = fmin(bytes_per_s, h->net_bytes_per_s);
        threads = threads == 0 || (cores > 0 && cores < threads) ? cores : threads;
    }
    job.train.pipeline.facts = ask->facts != NULL ? ask->facts : job.train.pipeline.facts;
    RU_TRY(check_types(ask, &job, at, c.hosts.n, err));
    return ru_units_question(&job, threads, at, c.hosts.n, bytes_per_s, arena, j, err);
}
