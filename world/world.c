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
    {.name = "name",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_world_job, name),
     .help = "its name"},
    {.name = "model",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_world_job, model),
     .def = "",
     .help = "what it trains"},
    {.name = "data",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_world_job, data),
     .def = "",
     .help = "what it reads"},
    {.name = "batch",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_world_job, batch),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "samples of one step of all workers"},
    {.name = "samples",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_world_job, samples),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "samples of one epoch"},
    {.name = "steps",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_world_job, steps),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "steps until it ends; 0 unknown"},
    {.name = "parameters",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_world_job, parameters),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "elements of all parameters"},
    {.name = "workers_min",
     .type = RU_CONF_U32,
     .offset = offsetof(ru_world_job, workers_min),
     .def = "1",
     .min = 0,
     .max = 1e6,
     .help = "fewer workers: the job waits"},
    {.name = "workers_max",
     .type = RU_CONF_U32,
     .offset = offsetof(ru_world_job, workers_max),
     .def = "0",
     .min = 0,
     .max = 1e6,
     .help = "at most so many workers; 0: any number"},
    {.name = "deterministic",
     .type = RU_CONF_BOOL,
     .offset = offsetof(ru_world_job, deterministic),
     .def = "false",
     .help = "sums in rank order, equal shares"},
    {.name = "equal_shares",
     .type = RU_CONF_BOOL,
     .offset = offsetof(ru_world_job, equal_shares),
     .def = "false",
     .help = "all workers compute as many samples, whatever their speeds"},
    {.name = "gradient_bytes",
     .type = RU_CONF_I64_LIST,
     .offset = offsetof(ru_world_job, gradient_bytes),
     .def = "[]",
     .min = 0,
     .max = 1e18,
     .help = "bytes of each gradient, in the order in which they become ready"},
    {.name = "state_bytes",
     .type = RU_CONF_I64_LIST,
     .offset = offsetof(ru_world_job, state_bytes),
     .def = "[]",
     .min = 0,
     .max = 1e18,
     .help = "bytes of each tensor that a joining worker needs"},
};

static const ru_conf_table job_table = {.name = "job",
                                        .fields = job_fields,
                                        .n = RU_ARRAY_LEN(job_fields),
                                        .size_bytes = sizeof(ru_world_job),
                                        .help = "a training job"};

static const ru_conf_field plan_fields[] = {
    {.name = "policy",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_world_plan, policy),
     .help = "which policy decided"},
    {.name = "version",
     .type = RU_CONF_U32,
     .offset = offsetof(ru_world_plan, version),
     .def = "0",
     .min = 0,
     .max = 4e9,
     .help = "its version"},
    {.name = "id",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_world_plan, id),
     .def = "",
     .help = "hash of policy, version and input"},
    {.name = "job",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_world_plan, job),
     .def = "",
     .help = "whose plan; empty: of the only job"},
    {.name = "at_ns",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_world_plan, at_ns),
     .def = "0",
     .min = -9e18,
     .max = 9e18,
     .help = "when it was installed, nanoseconds since 1970"},
    {.name = "input",
     .type = RU_CONF_JSON,
     .offset = offsetof(ru_world_plan, input),
     .help = "the policy's input (`rubato plan POLICY --help-input`)"},
    {.name = "predicted",
     .type = RU_CONF_F64_MAP,
     .offset = offsetof(ru_world_plan, predicted),
     .def = "{}",
     .help = "figures that the plan predicts"},
    {.name = "measured",
     .type = RU_CONF_F64_MAP,
     .offset = offsetof(ru_world_plan, measured),
     .def = "{}",
     .help = "the same figures as measured"},
};

static const ru_conf_table plan_table = {.name = "plan",
                                         .fields = plan_fields,
                                         .n = RU_ARRAY_LEN(plan_fields),
                                         .size_bytes = sizeof(ru_world_plan),
                                         .check = check_plan,
                                         .help = "a plan that was installed"};

static const ru_conf_field fields[] = {
    {.name = "schema",
     .type = RU_CONF_CHOICE,
     .offset = offsetof(ru_world, schema),
     .choices = "rubato.world/1",
     .help = "kind and version of the file"},
    {.name = "cluster",
     .type = RU_CONF_SECTION,
     .offset = offsetof(ru_world, cluster),
     .table = &ru_cluster_table,
     .help = "hosts, devices, links and disks"},
    {.name = "jobs",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(ru_world, jobs),
     .def = "[]",
     .table = &job_table,
     .help = "jobs of the cluster"},
    {.name = "facts",
     .type = RU_CONF_SECTION,
     .offset = offsetof(ru_world, facts),
     .table = &ru_facts_table,
     .help = "what was measured"},
    {.name = "plans",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(ru_world, plans),
     .def = "[]",
     .table = &plan_table,
     .help = "plans, oldest first"},
};

const ru_conf_table ru_world_table = {.name = "world",
                                      .fields = fields,
                                      .n = RU_ARRAY_LEN(fields),
                                      .size_bytes = sizeof(ru_world),
                                      .help = "a cluster, its jobs, facts and plans"};

const ru_world_plan *ru_world_plan_newest(const ru_world *w, const char *policy)
{
    for (uint32_t i = w->plans.n; i > 0; i--) {
        if (strcmp(w->plans.at[i - 1].policy, policy) == 0) {
            return &w->plans.at[i - 1];
        }
    }
    return NULL;
}
