#include "exec/together.h"

#include <stdlib.h>

#include "env/process/memory.h"
#include "exec/exe_impl.h"

struct ru_exe_together {
    void *memory;
    int64_t bytes;
};

ru_status ru_exe_open_part(const ru_graph *g, const ru_exe_options *opt, uint32_t n_brief,
                           ru_exe **out, ru_err *err)
{
    const rui_dev_how how = {.together = true, .n_brief = n_brief};
    RU_CHECK(opt->two_phase && opt->n_forward > 0 && n_brief <= opt->n_ports);
    return rui_exe_open_how(rui_dev_of(opt->device), how, g, opt, out, err);
}

/* The input of the graph that runs; absent: it has none. */
static ru_value_id input_of(const ru_exe *e, ru_value_id v)
{
    for (uint32_t k = 0; k < e->outer->n_inputs; k++) {
        if (e->outer->inputs[k].v == v.v) {
            return e->g.inputs[k];
        }
    }
    return (ru_value_id){0};
}

/* Values as the devices know them. Of what only passes through an executable there is a copy. */
static uint32_t list_hands(ru_exe *const *at, uint32_t n, const ru_exe_order *order,
                           ru_exe_hand *hands)
{
    uint32_t some = 0;
    for (uint32_t k = 0; k < order->n_hands; k++) {
        const ru_exe_hand *h = &order->hands[k];
        RU_CHECK(h->from < n && h->to < n && h->port.v < at[h->from]->outer->n_values);
        ru_value_id input = input_of(at[h->to], h->input);
        if (input.v != 0 && at[h->from]->outer->values[h->port.v].kind == RU_VALUE_TEMP) {
            hands[some++] = (ru_exe_hand){h->from, h->to, h->port, input};
        }
    }
    return some;
}

static ru_status plan(ru_exe *const *at, uint32_t n, const ru_exe_order *order, ru_arena *scratch,
                      ru_exe_together *t, ru_err *err)
{
    rui_dev **devs = RU_NEW(scratch, rui_dev *, n + 1);
    ru_exe_hand *hands = RU_NEW(scratch, ru_exe_hand, order->n_hands + 1);
    if (devs == NULL || hands == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u executables", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        RU_CHECK(at[k]->how.together && at[k]->ops == at[0]->ops && at[k]->ops->together != NULL);
        devs[k] = at[k]->dev;
    }
    const ru_exe_order inner = {.turns = order->turns,
                                .n_turns = order->n_turns,
                                .hands = hands,
                                .n_hands = list_hands(at, n, order, hands)};
    return n > 0 ? at[0]->ops->together(devs, n, &inner, &t->memory, &t->bytes, err) : RU_OK;
}

ru_status ru_exe_together_open(ru_exe *const *at, uint32_t n, const ru_exe_order *order,
                               ru_exe_together **out, ru_err *err)
{
    ru_exe_together *t = calloc(1, sizeof *t);
    ru_arena scratch;
    if (t == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u executables", n);
    }
    ru_arena_init(&scratch, 0);
    ru_status st = plan(at, n, order, &scratch, t, err);
    ru_arena_fini(&scratch);
    if (st != RU_OK) {
        ru_exe_together_close(t);
        return st;
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < at[k]->n_grads; i++) {
            rui_dev_value from;
            RU_CHECK(at[k]->ops->value(at[k]->dev, at[k]->grads[i].value, &from));
            at[k]->grads[i].data = from.data;
        }
    }
    *out = t;
    return RU_OK;
}

int64_t ru_exe_together_bytes(const ru_exe_together *t)
{
    return t->bytes;
}

void ru_exe_together_close(ru_exe_together *t)
{
    if (t != NULL) {
        ru_memory_unmap(t->memory, t->bytes);
        free(t);
    }
}
