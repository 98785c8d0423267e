/* Ports: values that leave when they are made, and values that a run waits for. */
#include <stdlib.h>
#include <string.h>

#include "exec/exe_impl.h"
#include "exec/pool.h"
#include "exec/reads.h"

/* -- in a run ------------------------------------------------------------------------------------
 */

uint32_t rui_ports_from(const exe_ports *p, uint32_t step)
{
    uint32_t k = 0;
    while (k < p->n && p->at[k].at.step < step) {
        k++;
    }
    return k;
}

ru_status rui_ports_before(ru_exe *e, uint32_t step, uint32_t *next, ru_err *err)
{
    uint32_t first = *next;
    ru_status st = e->poll != NULL ? e->poll(e->poll_self, step) : RU_OK;
    for (; st == RU_OK && *next < e->awaits.n && e->awaits.at[*next].at.step == step; ++*next) {
        const exe_port *p = &e->awaits.at[*next];
        st = p->fn(p->self, &p->at);
    }
    if (st != RU_OK) {
        return RU_FAIL(err, st, "the run was aborted before step %u of %u", step, e->dev->n_steps);
    }
    return first == *next ? RU_OK
                          : e->ops->prepare(e->dev, err); /* a port may have written state */
}

ru_status rui_ports_after(const ru_exe *e, uint32_t step, uint32_t *next, ru_err *err)
{
    for (; *next < e->leaves.n && e->leaves.at[*next].at.step == step; ++*next) {
        const exe_port *p = &e->leaves.at[*next];
        ru_status st = p->fn(p->self, &p->at);
        if (st != RU_OK) {
            return RU_FAIL(err, st, "the run was aborted after step %u of %u", step,
                           e->dev->n_steps);
        }
    }
    return RU_OK;
}

/* -- set -----------------------------------------------------------------------------------------
 */

static bool is_listed(const ru_exe *e, ru_value_id v)
{
    bool listed = rui_grad_leaves(e->outer, v);
    for (uint32_t k = 0; k < e->opt.n_ports; k++) {
        listed = listed || e->opt.ports[k].v == v.v;
    }
    return listed;
}

/* The value of the graph that runs; absent: no port can have it. */
static ru_value_id inner_of(const ru_exe *e, ru_value_id v)
{
    const ru_graph *g = e->outer;
    ru_value_kind kind = v.v < g->n_values ? g->values[v.v].kind : RU_VALUE_CONST;
    for (uint32_t k = 0; k < g->n_inputs && kind == RU_VALUE_INPUT; k++) {
        if (g->inputs[k].v == v.v) {
            return e->g.inputs[k];
        }
    }
    bool fits = kind == RU_VALUE_STATE || (kind == RU_VALUE_TEMP && is_listed(e, v));
    return fits ? v : (ru_value_id){0};
}

uint32_t ru_exe_read_first(const ru_exe *e, ru_value_id v)
{
    rui_dev_value at = {.read = UINT32_MAX};
    if (v.v < e->outer->n_values && e->outer->values[v.v].kind == RU_VALUE_STATE) {
        ru_value_id inner = rui_inner_state(e, v);
        (void)(inner.v != 0 && e->ops->value(e->dev, inner, &at));
    }
    return at.read;
}

/* Behind all ports of its step and earlier ones. */
static void put(exe_ports *to, const exe_port *p)
{
    uint32_t at = to->n++;
    for (; at > 0 && to->at[at - 1].at.step > p->at.step; at--) {
        to->at[at] = to->at[at - 1];
    }
    to->at[at] = *p;
}

static ru_status add(const ru_exe *e, const ru_exe_port *port, ru_value_id v, exe_ports *leaves,
                     exe_ports *awaits, ru_err *err)
{
    ru_value_id inner = inner_of(e, v);
    if (inner.v != 0 && e->outer->values[v.v].kind == RU_VALUE_STATE) {
        inner = rui_inner_state(e, v);
    }
    rui_dev_value at = {.made = UINT32_MAX, .read = UINT32_MAX};
    (void)(inner.v != 0 && e->ops->value(e->dev, inner, &at));
    if (inner_of(e, v).v == 0 || (port->leaves && at.made == UINT32_MAX)) {
        const char *name = v.v < e->outer->n_values ? e->outer->values[v.v].name : NULL;
        return RU_FAIL(err, RU_E_ARG,
                       "value %u%s%s %s; ports take gradients, inputs, states and values that "
                       "ru_exe_options.ports names",
                       v.v, name != NULL ? " " : "", name != NULL ? name : "",
                       port->leaves ? "cannot leave" : "cannot be awaited");
    }
    uint32_t step = port->leaves ? at.made : port->again ? at.begun : at.read;
    if (step != UINT32_MAX) {
        put(port->leaves ? leaves : awaits, &(exe_port){.at = {v, at.data, at.size_bytes, step},
                                                        .fn = port->fn,
                                                        .self = port->self});
    }
    return RU_OK;
}

static ru_status add_all(const ru_exe *e, const ru_exe_port *ports, uint32_t n, exe_ports *leaves,
                         exe_ports *awaits, ru_err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        bool every = ports[k].value.v == 0;
        for (uint32_t i = 0; i < (every ? e->n_grads : 1); i++) {
            ru_value_id v = every ? e->grads[i].value : ports[k].value;
            RU_TRY(add(e, &ports[k], v, leaves, awaits, err));
        }
    }
    return RU_OK;
}

ru_status ru_exe_ports_set(ru_exe *e, const ru_exe_port *ports, uint32_t n, ru_err *err)
{
    uint32_t most = 1;
    for (uint32_t k = 0; k < n; k++) {
        most += ports[k].value.v == 0 ? e->n_grads : 1;
    }
    exe_ports leaves = {.at = calloc(most, sizeof *leaves.at)};
    exe_ports awaits = {.at = calloc(most, sizeof *awaits.at)};
    ru_status st = leaves.at == NULL || awaits.at == NULL
                       ? RU_FAIL(err, RU_E_MEM, "no memory for %u ports", most)
                       : add_all(e, ports, n, &leaves, &awaits, err);
    if (st != RU_OK) {
        free(leaves.at);
        free(awaits.at);
        return st;
    }
    free(e->leaves.at);
    free(e->awaits.at);
    e->leaves = leaves;
    e->awaits = awaits;
    return RU_OK;
}

void ru_exe_poll_set(ru_exe *e, ru_status (*poll)(void *self, uint32_t step), void *self)
{
    e->poll = poll;
    e->poll_self = self;
}

void ru_exe_narrow(ru_exe *e, bool on)
{
    ru_pool_narrow(e->pool, on);
}
