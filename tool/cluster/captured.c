#include "tool/cluster/captured.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/file/file.h"
#include "plan/row/policy.h"
#include "tool/cluster/burst.h"
#include "tool/cluster/cluster.h"

enum { BYTES_MAX = 256 << 20 };

static const struct kind {
    const char *file, *plan, *input;
    const ru_policy *policy;
} kinds[] = {
    {"windows.jsonl", "plan", "input", &ru_policy_burst},
    {"periods.jsonl", "next_plan", "next_input", &ru_policy_burst_fleet},
};

static const struct kind *kind_of(const char *folder, ru_arena *arena, const char **path)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kinds); k++) {
        *path = ru_path_join(arena, folder, kinds[k].file);
        if (*path != NULL && ru_path_is_file(*path)) {
            return &kinds[k];
        }
    }
    return NULL;
}

bool rui_captured_is(const char *folder, ru_arena *arena)
{
    const char *path;
    return kind_of(folder, arena, &path) != NULL;
}

/* The question of a line, with its plan. false: it has none. */
static bool plan_of(const struct kind *k, ru_str line, ru_arena *arena, ru_world_plan *out)
{
    json_t *o = json_loadb(line.p, (size_t)line.n, 0, NULL); /* the last one may be half written */
    const char *id = json_string_value(json_object_get(o, k->plan));
    const json_t *input = json_object_get(o, k->input);
    bool is = json_is_object(input) && id != NULL && id[0] != 0;
    if (is) {
        char *text = json_dumps(input, JSON_COMPACT | JSON_REAL_PRECISION(17));
        *out = (ru_world_plan){.policy = k->policy->name,
                               .version = k->policy->version,
                               .id = ru_arena_str(arena, id),
                               .job = "",
                               .at_ns = json_integer_value(json_object_get(o, "wall_ns")),
                               .input = text != NULL ? ru_arena_str(arena, text) : NULL};
        free(text);
    }
    json_decref(o);
    return is;
}

ru_status rui_captured_plan(const char *folder, ru_arena *arena, ru_world_plan *out, ru_err *err)
{
    char *text;
    int64_t n;
    const char *path;
    const struct kind *k = kind_of(folder, arena, &path);
    if (k == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "%s is no folder of a service or a fleet", folder);
    }
    RU_TRY(ru_file_read(path, BYTES_MAX, arena, &text, &n, err));
    for (int64_t end = n; end > 0;) {
        int64_t begin = end - 1;
        while (begin > 0 && text[begin - 1] != '\n') {
            begin--;
        }
        if (plan_of(k, ru_str_n(text + begin, end - begin), arena, out)) {
            return out->id != NULL && out->input != NULL
                       ? RU_OK
                       : RU_FAIL(err, RU_E_MEM, "no memory for a world file");
        }
        end = begin;
    }
    return RU_FAIL(err, RU_E_MISSING,
                   "%s has no plan of '%s' yet; it is asked once the profile has ended", path,
                   k->policy->name);
}

ru_status rui_captured_services(const char *cluster, ru_arena *arena, ru_world *w, ru_err *err)
{
    rui_cluster c;
    RU_TRY(rui_cluster_of(cluster, arena, &c, err));
    ru_world_plan *all = RU_NEW(arena, ru_world_plan, w->plans.n + c.bursts.n + 1);
    uint32_t n = w->plans.n;
    if (all == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a world file");
    }
    if (n > 0) {
        memcpy(all, w->plans.at, n * sizeof *all);
    }
    for (uint32_t k = 0; k < c.bursts.n; k++) {
        ru_burst_options o;
        ru_err why = {0};
        ru_status st = rui_burst_load(c.bursts.at[k].service, arena, &o, &why);
        st = st == RU_OK ? rui_captured_plan(o.folder, arena, &all[n], &why) : st;
        if (st == RU_OK) {
            all[n++].job = o.name;
        } else {
            ru_log(RU_LOG_WARN, "cluster", "capture", "no plan of service %s of node %s: %s",
                   c.bursts.at[k].service, c.bursts.at[k].node, why.text);
        }
    }
    w->plans.at = all;
    w->plans.n = n;
    return RU_OK;
}
