/* Inputs of policies in replays. */
#include "bench/replay/replay_input.h"

#include <math.h>
#include <string.h>

#include "env/file/file.h"
#include "store/natural.h"

static void set(rui_replay_input *g, const char *name, const void *v, size_t size)
{
    const ru_conf_table *t = g->policy->in;
    for (uint32_t i = 0; i < t->n; i++) {
        if (strcmp(t->fields[i].name, name) == 0) {
            memcpy(g->u.bytes + t->fields[i].offset, v, size);
            return;
        }
    }
    RU_CHECK(false);
}

void rui_replay_set_u32(rui_replay_input *g, const char *name, uint32_t v)
{
    set(g, name, &v, sizeof v);
}

void rui_replay_set_i64(rui_replay_input *g, const char *name, int64_t v)
{
    set(g, name, &v, sizeof v);
}

void rui_replay_set_f64(rui_replay_input *g, const char *name, double v)
{
    set(g, name, &v, sizeof v);
}

double rui_replay_f64(const rui_replay_input *g, const char *name)
{
    const ru_conf_table *t = g->policy->in;
    double v = RU_NAN;
    for (uint32_t i = 0; i < t->n; i++) {
        if (strcmp(t->fields[i].name, name) == 0) {
            memcpy(&v, g->u.bytes + t->fields[i].offset, sizeof v);
        }
    }
    return v;
}

ru_status rui_replay_load(ru_replay *r, const ru_policy *policy, const char *path, const char *name,
                          rui_replay_input *out, ru_err *err)
{
    char *text;
    int64_t size;
    ru_conf *c;
    RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, r->arena, &text, &size, err));
    const ru_natural *kind = ru_natural_find(policy->name, path, ru_str_n(text, size));
    if (kind == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s is no file that %s reads", path, policy->name);
    }
    ru_text json = ru_text_arena(r->arena);
    ru_json j = ru_json_into(&json);
    ru_json_open(&j, NULL, '{');
    RU_TRY(kind->read(path, ru_str_n(text, size), r->arena, &j, err));
    ru_json_close(&j);
    RU_TRY(ru_conf_new(policy->in, r->arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, path, json.p, json.n, err));
    *out = (rui_replay_input){.name = name, .policy = policy};
    out->u.bytes = ru_arena_zalloc(r->arena, policy->in->size_bytes, 64);
    return out->u.bytes == NULL ? RU_FAIL(err, RU_E_LIMIT, "no memory for %s", path)
                                : ru_conf_apply(c, out->u.bytes, err);
}
