#include "tool/plan/world_in.h"

#include <string.h>

#include "env/file/file.h"
#include "store/layers.h"
#include "store/world_file.h"
#include "store/world_layers.h"
#include "tool/serve/client.h"
#include "train/driver/op_facts.h"
#include "train/driver/step_facts.h"

ru_status rui_world_open(const char *path, ru_arena *arena, ru_world *into, ru_err *err)
{
    if (rui_served_is_address(path)) {
        char *text;
        int64_t n;
        RU_TRY(rui_served_get(path, "/v2/rubato/world", arena, &text, &n, err));
        return ru_world_file_parse(path, ru_str_n(text, n), arena, into, err);
    }
    if (!ru_path_exists(path)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is no run or world file %s; name the folder of a run or a file that "
                       "`rubato capture` wrote",
                       path);
    }
    if (!ru_path_is_dir(path)) {
        char *text;
        int64_t n;
        RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, arena, &text, &n, err));
        ru_str body = ru_str_trim(ru_str_n(text, n));
        if (!ru_layers_are_profile(path, body) && (body.n == 0 || body.p[0] != '{')) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "%s is no world file: it is no JSON; name the folder of a run or a file "
                           "that `rubato capture` wrote",
                           path);
        }
        return ru_layers_are_profile(path, ru_str_n(text, n))
                   ? ru_world_of_layers(path, ru_str_n(text, n), arena, into, err)
                   : ru_world_file_parse(path, ru_str_n(text, n), arena, into, err);
    }
    const char *file = ru_path_join(arena, path, "world.json");
    if (file != NULL && !ru_path_exists(file) &&
        ru_path_exists(ru_path_join(arena, path, "job.yaml"))) {
        return RU_FAIL(err, RU_E_MISSING,
                       "the run %s has no world.json: its first step is not done yet", path);
    }
    if (file == NULL || !ru_path_exists(file)) {
        return RU_FAIL(
            err, RU_E_MISSING,
            "%s has no world.json, so it is not a run of `rubato train`; name the folder of a run",
            path);
    }
    RU_TRY(ru_world_file_load(file, arena, into, err));
    RU_TRY(ru_op_facts(path, RU_OP_FACTS_BYTES, arena, into, NULL, err)); /* it may still run */
    return ru_step_facts(path, RU_OP_FACTS_BYTES, arena, into, err);
}

ru_status rui_world_question(const ru_world *w, const char *path, const ru_policy *p, ru_conf *c,
                             ru_arena *arena, const ru_world_plan **plan, ru_err *err)
{
    const ru_world_plan *newest = ru_world_plan_newest(w, p->name);
    if (plan != NULL) {
        *plan = newest;
    }
    if (newest != NULL) {
        const char *label = ru_arena_printf(arena, "%s: plan %s", path, newest->id);
        return ru_conf_add_json(c, label != NULL ? label : path, newest->input,
                                (int64_t)strlen(newest->input), err);
    }
    if (p->derive == NULL) {
        return RU_FAIL(err, RU_E_MISSING,
                       "%s contains no plan of '%s', and the input of this policy cannot be "
                       "derived from facts",
                       path, p->name);
    }
    ru_text json = ru_text_arena(arena);
    ru_json j = ru_json_into(&json);
    ru_json_open(&j, NULL, '{');
    ru_status st = p->derive(w, arena, &j, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "%s contains no plan of '%s' and not the facts to make one",
                           path, p->name);
    }
    ru_json_close(&j);
    return ru_conf_add_json(c, path, json.p, json.n, err);
}

ru_status rui_policy_named(const char *name, const ru_policy **out, ru_err *err)
{
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    const char *names[64];
    *out = ru_policy_find(name);
    if (*out != NULL) {
        return RU_OK;
    }
    for (uint32_t i = 0; i < n && i < RU_ARRAY_LEN(names); i++) {
        names[i] = all[i]->name;
    }
    n = n < RU_ARRAY_LEN(names) ? n : RU_ARRAY_LEN(names);
    int32_t near = ru_str_nearest(ru_str_c(name), names, n);
    return RU_FAIL(err, RU_E_USAGE, "there is no policy '%s'%s%s%s", name,
                   near >= 0 ? "; did you mean '" : "; `rubato plan --list` shows all",
                   near >= 0 ? names[near] : "", near >= 0 ? "'?" : "");
}
