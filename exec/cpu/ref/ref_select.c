/* Ops whose result has as many elements as the data say. */
#include "exec/cpu/ref/ref_impl.h"

#include <string.h>

#include "world/graph/unique.h"

static ru_status no_room(const ru_ref_call *c, int64_t n, int64_t room, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s: the data give %lld elements, but the output has %lld",
                   ru_op_get(c->node->op)->name, (long long)n, (long long)room);
}

ru_status rui_ref_NonZero(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t room = c->out[0].type.dims[1], n = 0, *y = c->out[0].data;
    rui_walk w;
    rui_walk_init(&w, t->dims, t->rank);
    for (int64_t i = 0; i < rui_ref_count(t); i++) {
        if (rui_ref_get(t->dtype, c->in[0].data, i) != 0) {
            for (uint32_t d = 0; n < room && d < (t->rank > 0 ? t->rank : 1); d++) {
                y[d * room + n] = t->rank > 0 ? w.at[d] : 0;
            }
            n++;
        }
        (void)rui_walk_next(&w);
    }
    return n == room ? RU_OK : no_room(c, n, room, err);
}

/* Output k, when it is asked for. */
static void list_store(const ru_ref_call *c, uint32_t k, const int64_t *x)
{
    if (rui_ref_has_out(c, k)) {
        rui_ref_store_ints(&c->out[k], x);
    }
}

ru_status rui_ref_Unique(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type, *ty = &c->out[0].type;
    rui_axis3 a = {1, rui_ref_count(t), 1};
    int64_t room = ty->dims[0], bytes = ru_dtype_bytes(t->dtype);
    if (ru_node_attr(c->node, RU_ATTR_axis) != NULL) {
        uint32_t axis;
        RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, 0), t->rank, &axis, err));
        a = rui_ref_axis3(t, axis);
        room = ty->dims[axis];
    }
    ru_unique u = {0};
    if (a.dim > 0) {
        RU_TRY(ru_unique_find(c->node, t, c->in[0].data, c->scratch, &u, err));
    }
    if (u.n != room) {
        return no_room(c, u.n, room, err);
    }
    for (int64_t o = 0; o < a.outer; o++) {
        for (int64_t k = 0; k < u.n; k++) {
            memcpy((uint8_t *)c->out[0].data + (o * u.n + k) * a.inner * bytes,
                   (const uint8_t *)c->in[0].data + (o * a.dim + u.first[k]) * a.inner * bytes,
                   (size_t)(a.inner * bytes));
        }
    }
    list_store(c, 1, u.first);
    list_store(c, 2, u.of);
    list_store(c, 3, u.count);
    return RU_OK;
}
