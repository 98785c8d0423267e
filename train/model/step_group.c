/* Groups of parameters by name. */
#include <stddef.h>

#include "base/str.h"
#include "train/model/step_impl.h"

enum { NAMES_BYTES_MAX = 300 };

static bool is_param(const ru_value *v)
{
    return v->kind == RU_VALUE_STATE && v->role == RU_ROLE_PARAM && v->name != NULL;
}

const ru_param_group *rui_step_group(const ru_step_options *opt, const char *name)
{
    for (uint32_t k = 0; name != NULL && k < opt->n_groups; k++) {
        if (ru_str_match(ru_str_c(name), opt->groups[k].match, NULL, 0)) {
            return &opt->groups[k];
        }
    }
    return NULL;
}

/* "conv1.weight, bn1.weight, ..." */
static void put_names(const ru_graph *model, ru_text *into)
{
    for (uint32_t v = 1; v < model->n_values; v++) {
        if (!is_param(&model->values[v])) {
            continue;
        }
        if (into->n > NAMES_BYTES_MAX) {
            ru_text_put(into, ", ...");
            return;
        }
        ru_text_putf(into, "%s%.80s", into->n > 0 ? ", " : "", model->values[v].name);
    }
}

ru_status rui_step_groups_check(const ru_step_options *opt, const ru_graph *model, ru_err *err)
{
    for (uint32_t k = 0; k < opt->n_groups; k++) {
        const ru_param_group *g = &opt->groups[k];
        bool first = false, any = false;
        for (uint32_t v = 1; v < model->n_values; v++) {
            const ru_value *p = &model->values[v];
            first = first || (is_param(p) && rui_step_group(opt, p->name) == g);
            any = any || (is_param(p) && ru_str_match(ru_str_c(p->name), g->match, NULL, 0));
        }
        if (any && !first) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.groups: earlier groups match all parameters that '%s' matches; "
                           "put it before them",
                           g->match);
        }
        if (!any) {
            char names[NAMES_BYTES_MAX + 120];
            ru_text text = ru_text_into(names, sizeof names);
            put_names(model, &text);
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.groups: no parameter matches '%s'; the model has %s", g->match,
                           names);
        }
    }
    return RU_OK;
}
