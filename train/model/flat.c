#include "train/model/flat.h"

#include <string.h>

#include "base/hash.h"

static ru_status take(const ru_graph *g, ru_value_role role, ru_flat *out, ru_value_id *at,
                      ru_hasher *h, ru_err *err)
{
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        if (x->kind != RU_VALUE_STATE || x->role != role) {
            continue;
        }
        if (x->type.dtype != RU_F32) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "'%s' of the model has values of type %s; federated training averages "
                           "f32 alone",
                           x->name != NULL ? x->name : "a value", ru_dtype_name(x->type.dtype));
        }
        ru_hasher_put_str(h, x->name);
        for (uint32_t d = 0; d < x->type.rank; d++) {
            ru_hasher_put_u64(h, (uint64_t)x->type.dims[d]);
        }
        at[out->n++] = (ru_value_id){v};
        out->count += ru_type_count(&x->type);
    }
    return RU_OK;
}

ru_status ru_flat_of(const ru_graph *g, ru_arena *arena, ru_flat *out, ru_err *err)
{
    ru_hasher h;
    ru_value_id *at = RU_NEW(arena, ru_value_id, g->n_values);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the values of a model");
    }
    *out = (ru_flat){.at = at};
    ru_hasher_init(&h);
    RU_TRY(take(g, RU_ROLE_PARAM, out, at, &h, err));
    out->params = out->count;
    RU_TRY(take(g, RU_ROLE_BUFFER, out, at, &h, err));
    out->hash = ru_hasher_get(&h).low;
    return RU_OK;
}

int64_t ru_flat_layout(const ru_flat *f, const ru_graph *g, ru_wire_out *into)
{
    int64_t bytes = (int64_t)sizeof(uint32_t);
    if (into != NULL) {
        ru_wire_put_u32(into, f->n);
    }
    for (uint32_t k = 0; k < f->n; k++) {
        const ru_value *v = &g->values[f->at[k].v];
        uint32_t length = (uint32_t)strlen(v->name);
        bytes += 2 * (int64_t)sizeof(uint32_t) + length + v->type.rank * (int64_t)sizeof(uint64_t);
        if (into == NULL) {
            continue;
        }
        ru_wire_put_text(into, v->name, length);
        ru_wire_put_u32(into, v->type.rank);
        for (uint32_t d = 0; d < v->type.rank; d++) {
            ru_wire_put_u64(into, (uint64_t)v->type.dims[d]);
        }
    }
    return bytes;
}

ru_status ru_flat_read(const ru_flat *f, const ru_graph *g, ru_exe *exe, float *into, ru_err *err)
{
    for (uint32_t k = 0; k < f->n; k++) {
        RU_TRY(ru_exe_state_read(exe, f->at[k], into, err));
        into += ru_type_count(&g->values[f->at[k].v].type);
    }
    return RU_OK;
}

ru_status ru_flat_write(const ru_flat *f, const ru_graph *g, ru_exe *exe, const float *from,
                        ru_err *err)
{
    for (uint32_t k = 0; k < f->n; k++) {
        RU_TRY(ru_exe_state_write(exe, f->at[k], from, err));
        from += ru_type_count(&g->values[f->at[k].v].type);
    }
    return RU_OK;
}
