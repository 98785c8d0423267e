/* The table of world files. */
#include "world/world.h"

#include <string.h>

static ru_status check_plan(const void *section, ru_err *err)
{
    const ru_world_plan *p = section;
    bool hex = strspn(p->id, "0123456789abcdef") == strlen(p->id);
    if (!hex || (strlen(p->id) != 32 && p->id[0] != '\0')) {
        return RU_FAIL(err, RU_E_ARG, "the id '%.40s' of a plan is not 32 hex digits", p->id);
    }
    if (p->input[0] != '{') {
        return RU_FAIL(err, RU_E_ARG, "the input of a plan is %.40s, expected an object", p->input);
    }
    return RU_OK;
}

static const ru_conf_field job_fields[] = {
    RU_ROW(TEXT, ru_world_job, name, NULL, "its name"),
    RU_ROW(TEXT, ru_world_job, model, "", "what it trains"),
    RU_ROW(TEXT, ru_world_job, data, "", "what it reads"),
    RU_ROW(I64, ru_world_job, batch, "0", "samples of one step of all workers", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_world_job, samples, "0", "samples of one epoch", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_world_job, steps, "0", "steps until it ends; 0 unknown", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_world_job, parameters, "0", "elements of all parameters", RU_IN(0, 1e18)),
    RU_ROW(U32, ru_world_job, workers_min, "1", "fewer workers: the job waits", RU_IN(0, 1e6)),
    RU_ROW(U32, ru_world_job, workers_max, "0", "at most so many workers; 0: any number",
           RU_IN(0, 1e6)),
    RU_ROW(BOOL, ru_world_job, deterministic, "false", "sums in rank order, equal shares"),
    RU_ROW(BOOL, ru_world_job, equal_shares, "false",
           "all workers compute as many samples, whatever their speeds"),
    RU_ROW(I64_LIST, ru_world_job, gradient_bytes, "[]",
           "bytes of each gradient, in the order in which they become ready", RU_IN(0, 1e18)),
    RU_ROW(I64_LIST, ru_world_job, state_bytes, "[]",
           "bytes of each tensor that a joining worker needs", RU_IN(0, 1e18)),
};

static const ru_conf_table job_table = RU_TABLE("job", ru_world_job, job_fields, "a training job");

static const ru_conf_field plan_fields[] = {
    RU_ROW(TEXT, ru_world_plan, policy, NULL, "which policy decided"),
    RU_ROW(U32, ru_world_plan, version, "0", "its version", RU_IN(0, 4e9)),
    RU_ROW(TEXT, ru_world_plan, id, "", "hash of policy, version and input"),
    RU_ROW(TEXT, ru_world_plan, job, "", "whose plan; empty: of the only job"),
    RU_ROW(I64, ru_world_plan, at_ns, "0", "when it was installed, nanoseconds since 1970",
           RU_IN(-9e18, 9e18)),
    RU_ROW(JSON, ru_world_plan, input, NULL,
           "the policy's input (`rubato plan POLICY --help-input`)"),
    RU_ROW(F64_MAP, ru_world_plan, predicted, "{}", "figures that the plan predicts"),
    RU_ROW(F64_MAP, ru_world_plan, measured, "{}", "the same figures as measured"),
};

static const ru_conf_table plan_table =
    RU_TABLE("plan", ru_world_plan, plan_fields, "a plan that was installed", .check = check_plan);

static const ru_conf_field fields[] = {
    RU_ROW(CHOICE, ru_world, schema, NULL, "kind and version of the file",
           .choices = "rubato.world/1"),
    RU_ROW(U32, ru_world, profiled, "0", "version of the profiles of `rubato profile`; 0: none",
           RU_IN(0, 4e9)),
    RU_ROW(SECTION, ru_world, cluster, NULL, "hosts, devices, links and disks",
           .table = &ru_cluster_table),
    RU_ROW(SECTIONS, ru_world, jobs, "[]", "jobs of the cluster", .table = &job_table),
    RU_ROW(SECTION, ru_world, facts, NULL, "what was measured", .table = &ru_facts_table),
    RU_ROW(SECTIONS, ru_world, plans, "[]", "plans, oldest first", .table = &plan_table),
};

const ru_conf_table ru_world_table =
    RU_TABLE("world", ru_world, fields, "a cluster, its jobs, facts and plans");

const ru_world_plan *ru_world_plan_newest(const ru_world *w, const char *policy)
{
    for (uint32_t i = w->plans.n; i > 0; i--) {
        if (strcmp(w->plans.at[i - 1].policy, policy) == 0) {
            return &w->plans.at[i - 1];
        }
    }
    return NULL;
}
