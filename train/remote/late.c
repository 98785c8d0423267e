#include "train/remote/late.h"

#include <string.h>

#include "base/log.h"
#include "exec/reads.h"

static ru_status no_memory(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the order of tensors");
}

/* The tensor for state `s` of the model; its type is what the model expects. */
static ru_status tensor_for(const ru_remote_late *l, const char *name, const ru_type *type,
                            uint32_t *i, ru_err *err)
{
    const ru_remote *w = ru_fetch_weights(l->fetch);
    const uint64_t *at = ru_map_get_c(&l->names, name);
    char want[160], have[160];
    ru_type_print(NULL, type, want, sizeof want);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s serves another model: it has no tensor '%s' (%s)",
                       l->address, name, want);
    }
    *i = (uint32_t)*at;
    if (!ru_type_equal(&w->at[*i].type, type)) {
        ru_type_print(NULL, &w->at[*i].type, have, sizeof have);
        return RU_FAIL(err, RU_E_DATA, "%s serves another model: '%s' is %s there, not %s",
                       l->address, name, have, want);
    }
    return RU_OK;
}

/* Ops of the executable, and for each the bytes of the tensors that it is the first to read. */
static ru_status make_in(ru_remote_late *l, const ru_exe *exe, const uint32_t *read_by, ru_err *err)
{
    const ru_remote *w = ru_fetch_weights(l->fetch);
    ru_op_fact *ops;
    uint32_t n, n_edges = 0, e = 0;
    RU_TRY(ru_exe_ops(exe, 0, l->arena, &ops, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        n_edges += ops[k].after.n;
    }
    int64_t *op_ns = RU_NEW(l->arena, int64_t, n), *bytes = RU_NEW(l->arena, int64_t, n);
    ru_step_edge *edges = RU_NEW(l->arena, ru_step_edge, n_edges + 1);
    if (op_ns == NULL || bytes == NULL || edges == NULL) {
        return no_memory(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        op_ns[k] = ru_order_op_ns((double)ops[k].flops, (double)ops[k].bytes);
        for (uint32_t j = 0; j < ops[k].after.n; j++) {
            edges[e++] = (ru_step_edge){(uint32_t)ops[k].after.at[j], k};
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        if (read_by[i] != UINT32_MAX) {
            bytes[read_by[i]] += ru_type_bytes(&w->at[i].type);
        }
    }
    l->in = (ru_order_in){.n = n,
                          .op_ns = op_ns,
                          .param_bytes = bytes,
                          .edges = edges,
                          .n_edges = n_edges,
                          .link = {.bytes_per_s = RU_ORDER_LINK_BYTES_PER_S},
                          .workers = 1,
                          .slice_bytes = 200000,
                          .partition_bytes = 4000000,
                          .credit_bytes = 16000000,
                          .seed = l->seed,
                          .method = l->method};
    return RU_OK;
}

static ru_status ask(ru_remote_late *l, const ru_exe *exe, const uint32_t *read_by, ru_err *err)
{
    const ru_remote *w = ru_fetch_weights(l->fetch);
    ru_arena scratch;
    uint32_t *ranks = RU_NEW(l->arena, uint32_t, w->n);
    if (ranks == NULL) {
        return no_memory(err);
    }
    RU_TRY(make_in(l, exe, read_by, err));
    ru_arena_init(&scratch, 0);
    ru_status st = ru_plan_order(&l->in, l->arena, &scratch, &l->plan, err);
    st = st == RU_OK ? ru_plan_order_check(&l->in, &l->plan, &scratch, err) : st;
    ru_arena_fini(&scratch);
    RU_TRY(st);
    for (uint32_t i = 0; i < w->n; i++) {
        ranks[i] = read_by[i] != UINT32_MAX ? l->plan.rank[read_by[i]] : RU_FETCH_NO_RANK;
    }
    l->ranks = ranks;
    l->read_by = read_by;
    return ru_fetch_ask(l->fetch, ranks, err);
}

static ru_status begin(void *self, const ru_graph *g, const ru_exe *exe, ru_err *err)
{
    ru_remote_late *l = self;
    const ru_remote *w = ru_fetch_weights(l->fetch);
    uint32_t *read_by = RU_NEW(l->arena, uint32_t, w->n);
    if (read_by == NULL) {
        return no_memory(err);
    }
    memset(read_by, 0xff, w->n * sizeof *read_by);
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *s = &g->values[v];
        if (s->kind == RU_VALUE_STATE && s->name != NULL && s->role != RU_ROLE_SLOT) {
            uint32_t i;
            RU_TRY(tensor_for(l, s->name, &s->type, &i, err));
            read_by[i] = ru_exe_read_first(exe, (ru_value_id){v});
        }
    }
    if (l->asked) { /* another executable of the model: what it reads was asked for */
        return RU_OK;
    }
    l->asked = true;
    l->exe = exe;
    return ask(l, exe, read_by, err);
}

static ru_status take(void *self, const char *name, const ru_type *type, const void **data,
                      ru_err *err)
{
    ru_remote_late *l = self;
    uint32_t i;
    RU_TRY(tensor_for(l, name, type, &i, err));
    return ru_fetch_wait(l->fetch, i, data, err);
}

ru_status ru_remote_late_open(ru_fetch *fetch, const char *address, ru_order_method method,
                              ru_arena *arena, ru_remote_late *l, ru_err *err)
{
    const ru_remote *w = ru_fetch_weights(fetch);
    *l = (ru_remote_late){.late = {l, begin, take},
                          .address = address,
                          .fetch = fetch,
                          .method = method,
                          .seed = 1,
                          .arena = arena};
    ru_map_init(&l->names, arena, RU_REMOTE_TENSORS_MAX);
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t *at = ru_map_put_c(&l->names, w->at[i].name, NULL);
        if (at == NULL) {
            return no_memory(err);
        }
        *at = i;
    }
    return RU_OK;
}
