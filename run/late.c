#include "run/late.h"

#include <stddef.h>

typedef struct state {
    ru_late_ports *all;
    const ru_value *value;
    ru_value_id id;
    bool here;
} state;

struct ru_late_ports {
    const ru_late *late;
    ru_exe *exe;
    state *at; /* [n] */
    uint32_t n;
    ru_err why; /* status RU_OK: nothing failed */
};

static ru_status arrive(void *self, const ru_exe_at *at)
{
    state *s = self;
    ru_late_ports *p = s->all;
    const void *data;
    (void)at;
    if (s->here) {
        return RU_OK;
    }
    ru_status st = p->late->take(p->late->self, s->value->name, &s->value->type, &data, &p->why);
    if (st == RU_OK) {
        st = ru_exe_state_write(p->exe, s->id, data, &p->why);
    }
    s->here = st == RU_OK;
    return st;
}

ru_status ru_late_set(const ru_late *late, const ru_graph *g, ru_exe *exe, ru_arena *arena,
                      ru_late_ports **out, ru_err *err)
{
    ru_late_ports *p = RU_NEW(arena, ru_late_ports, 1);
    state *at = RU_NEW(arena, state, g->n_values);
    ru_exe_port *ports = RU_NEW(arena, ru_exe_port, g->n_values);
    if (p == NULL || at == NULL || ports == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the states of %u values", g->n_values);
    }
    *p = (ru_late_ports){.late = late, .exe = exe, .at = at};
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *s = &g->values[v];
        if (s->kind == RU_VALUE_STATE && s->name != NULL && s->role != RU_ROLE_SLOT) {
            at[p->n] = (state){.all = p, .value = s, .id = {v}};
            ports[p->n] = (ru_exe_port){.value = {v}, .fn = arrive, .self = &at[p->n]};
            p->n++;
        }
    }
    RU_TRY(late->begin(late->self, g, exe, err));
    RU_TRY(ru_exe_ports_set(exe, ports, p->n, err));
    *out = p;
    return RU_OK;
}

ru_status ru_late_over(ru_late_ports *p, ru_err *err)
{
    return ru_exe_ports_set(p->exe, NULL, 0, err);
}

ru_status ru_late_why(const ru_late_ports *p, ru_status st, ru_err *err)
{
    if (st != RU_OK && p->why.status != RU_OK && err != NULL) {
        *err = p->why;
        return p->why.status;
    }
    return st;
}
