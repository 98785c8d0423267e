/* Sequences and optional values. Control flow is unrolled while a model is read, so that the reader
 * knows at each node which tensors a sequence holds: it is a list of values, and no op of the graph
 * ever sees one.
 *
 * A list hangs on a value without type and producer. Of a signature, whose loops are not unrolled,
 * a sequence is a node over all that was put into it. */
#include "world/onnx/onnx_read_impl.h"

#include <string.h>

enum { ITEMS_MAX = 1 << 16 };

const rui_onnx_list *rui_onnx_list_of(const rui_onnx_reader *r, ru_value_id v)
{
    const ru_value *x = ru_graph_value(r->g, v);
    bool list = v.v != 0 && x->kind == RU_VALUE_TEMP && x->producer.v == 0 &&
                x->type.dtype == RU_NONE && x->data != NULL;
    return list ? x->data : NULL;
}

static ru_status list_make(rui_onnx_reader *r, const ru_value_id *items, uint32_t n, bool none,
                           ru_value_id *out)
{
    rui_onnx_list *list = RU_NEW(r->arena, rui_onnx_list, 1);
    ru_value_id *copy = RU_NEW(r->arena, ru_value_id, n + 1);
    if (list == NULL || copy == NULL) {
        return rui_onnx_full(r->err);
    }
    memcpy(copy, items != NULL ? items : copy, n * sizeof *copy);
    *list = (rui_onnx_list){.n = n, .none = none, .items = copy};
    return ru_graph_add_value(r->g, &(ru_value){.kind = RU_VALUE_TEMP, .data = list}, out, r->err);
}

static const rui_onnx_attr *attr(const rui_onnx_node *n, const char *name)
{
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        if (strcmp(n->attrs[k].name, name) == 0) {
            return &n->attrs[k];
        }
    }
    return NULL;
}

static int64_t attr_int(const rui_onnx_node *n, const char *name, int64_t dflt)
{
    const rui_onnx_attr *a = attr(n, name);
    return a != NULL && a->type == RUI_ONNX_INT ? a->i : dflt;
}

/* Place that input k names, 0 .. n - 1 (n itself with `end`); `dflt` when it is absent. */
static ru_status place(rui_onnx_reader *r, const rui_onnx_node *node, const ru_value_id *in,
                       uint32_t k, int64_t n, bool end, int64_t dflt, int64_t *out)
{
    *out = dflt;
    if (k < node->in.n && in[k].v != 0) {
        RU_TRY(rui_onnx_scalar(r, in[k], "the position in a sequence", out));
        *out += *out < 0 ? n : 0;
    }
    return *out >= 0 && *out < n + (end ? 1 : 0)
               ? RU_OK
               : RU_FAIL(r->err, RU_E_DATA, "position %lld of a sequence of %lld", (long long)*out,
                         (long long)n);
}

static ru_status insert(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                        const rui_onnx_list *list, ru_value_id *out)
{
    int64_t at;
    RU_TRY(place(r, n, in, 2, list->n, true, list->n, &at));
    ru_value_id *items = RU_NEW(r->arena, ru_value_id, list->n + 1);
    if (items == NULL || list->n >= ITEMS_MAX) {
        return rui_onnx_full(r->err);
    }
    memcpy(items, list->items, (size_t)at * sizeof *items);
    items[at] = in[1];
    memcpy(items + at + 1, list->items + at, (list->n - (size_t)at) * sizeof *items);
    return list_make(r, items, list->n + 1, false, out);
}

static ru_status erase(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                       const rui_onnx_list *list, ru_value_id *out)
{
    int64_t at;
    RU_TRY(place(r, n, in, 1, list->n, false, (int64_t)list->n - 1, &at));
    ru_value_id *items = RU_NEW(r->arena, ru_value_id, list->n);
    if (items == NULL) {
        return rui_onnx_full(r->err);
    }
    memcpy(items, list->items, (size_t)at * sizeof *items);
    memcpy(items + at, list->items + at + 1, (list->n - 1 - (size_t)at) * sizeof *items);
    return list_make(r, items, list->n - 1, false, out);
}

static ru_status concat(rui_onnx_reader *r, const rui_onnx_node *n, const rui_onnx_list *list,
                        ru_value_id *out)
{
    ru_attr axis = {
        .key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = attr_int(n, "axis", 0)};
    ru_value_id *in = RU_NEW(r->arena, ru_value_id, list->n), at;
    if (in == NULL) {
        return rui_onnx_full(r->err);
    }
    if (list->n == 0) {
        return RU_FAIL(r->err, RU_E_DATA, "it joins a sequence without elements");
    }
    RU_TRY(rui_onnx_put_i64s(r, &axis.u.i, 1, false, &at));
    for (uint32_t k = 0; k < list->n; k++) {
        in[k] = list->items[k];
        if (attr_int(n, "new_axis", 0) != 0) {
            ru_value_id pair[2] = {in[k], at};
            RU_TRY(rui_onnx_put(r, RU_OP_Unsqueeze, pair, 2, NULL, 0, &in[k]));
        }
    }
    return rui_onnx_put(r, RU_OP_Concat, in, list->n, &axis, 1, out);
}

/* Sizes of the parts of x along `axis`, of `dim`: input 1, one number for all or a list; or 1. */
static ru_status split_sizes(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                             int64_t dim, int64_t **out, uint32_t *count)
{
    int64_t size = 1;
    bool given = n->in.n > 1 && in[1].v != 0;
    const ru_type *t = given ? &ru_graph_value(r->g, in[1])->type : NULL;
    bool list = given && t->rank == 1;
    int64_t parts = list ? t->dims[0] : 0;
    if (given && !list) {
        RU_TRY(rui_onnx_scalar(r, in[1], "the size of the parts", &size));
    }
    if (size < 1 || parts < 0 || ru_dim_is_symbolic(dim)) {
        return RU_FAIL(r->err, RU_E_DATA,
                       "it splits an axis of unknown size, or into parts of %lld", (long long)size);
    }
    parts = list ? parts : (dim + size - 1) / size;
    *out = parts <= ITEMS_MAX ? RU_NEW(r->arena, int64_t, parts) : NULL;
    if (*out == NULL) {
        return rui_onnx_full(r->err);
    }
    for (int64_t k = 0; k < parts; k++) {
        (*out)[k] = dim - k * size < size ? dim - k * size : size;
        if (list) {
            ru_attr axis = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1};
            ru_value_id pair[2] = {in[1]}, v;
            RU_TRY(rui_onnx_put_i64s(r, &k, 1, true, &pair[1]));
            RU_TRY(rui_onnx_put(r, RU_OP_Gather, pair, 2, &axis, 1, &v));
            RU_TRY(rui_onnx_scalar(r, v, "the size of a part", &(*out)[k]));
        }
    }
    *count = (uint32_t)parts;
    return RU_OK;
}

static ru_status split(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                       ru_value_id *out)
{
    const ru_type t = ru_graph_value(r->g, in[0])->type;
    int64_t axis = attr_int(n, "axis", 0), *sizes, from = 0;
    axis += axis < 0 ? (int64_t)t.rank : 0;
    if (axis < 0 || axis >= (int64_t)t.rank) {
        return RU_FAIL(r->err, RU_E_DATA, "axis %lld of a tensor of rank %u", (long long)axis,
                       t.rank);
    }
    bool squeeze = attr_int(n, "keepdims", 1) == 0 && !(n->in.n > 1 && in[1].v != 0);
    uint32_t count = 0;
    RU_TRY(split_sizes(r, n, in, t.dims[axis], &sizes, &count));
    ru_value_id *items = RU_NEW(r->arena, ru_value_id, count + 1), slice[4] = {in[0]};
    if (items == NULL) {
        return rui_onnx_full(r->err);
    }
    RU_TRY(rui_onnx_put_i64s(r, &axis, 1, false, &slice[3]));
    for (uint32_t k = 0; k < count; k++) {
        int64_t to = from + sizes[k];
        if (sizes[k] < 0 || to > t.dims[axis]) {
            return RU_FAIL(r->err, RU_E_DATA, "its parts do not fit an axis of %lld",
                           (long long)t.dims[axis]);
        }
        RU_TRY(rui_onnx_put_i64s(r, &from, 1, false, &slice[1]));
        RU_TRY(rui_onnx_put_i64s(r, &to, 1, false, &slice[2]));
        RU_TRY(rui_onnx_put(r, RU_OP_Slice, slice, 4, NULL, 0, &items[k]));
        if (squeeze) {
            ru_value_id pair[2] = {items[k], slice[3]};
            RU_TRY(rui_onnx_put(r, RU_OP_Squeeze, pair, 2, NULL, 0, &items[k]));
        }
        from = to;
    }
    return list_make(r, items, count, false, out);
}

static ru_status optional(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                          ru_value_id *out)
{
    bool given = n->in.n > 0 && in[0].v != 0;
    const rui_onnx_list *list = given ? rui_onnx_list_of(r, in[0]) : NULL;
    bool there = given && !(list != NULL && list->none);
    if (strcmp(n->op, "OptionalHasElement") == 0) {
        uint8_t *truth = ru_arena_copy(r->arena, &there, 1, 1);
        ru_value v = {.kind = RU_VALUE_CONST, .type = {.dtype = RU_BOOL}, .data = truth};
        return truth != NULL ? ru_graph_add_value(r->g, &v, out, r->err) : rui_onnx_full(r->err);
    }
    if (strcmp(n->op, "Optional") == 0 && !there) {
        return list_make(r, NULL, 0, true, out);
    }
    if (!there) {
        return RU_FAIL(r->err, RU_E_DATA, "it reads an optional value that is not there");
    }
    *out = in[0];
    return RU_OK;
}

/* Of a signature: what comes out depends on all that goes in. */
static ru_status depends(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                         ru_value_id *out)
{
    ru_value_id all[64];
    uint32_t count = 0;
    for (uint32_t k = 0; k < n->in.n && count < RU_ARRAY_LEN(all); k++) {
        all[count] = in[k];
        count += in[k].v != 0 ? 1 : 0;
    }
    return count > 0 ? rui_onnx_put(r, RU_OP_Sum, all, count, NULL, 0, out)
                     : rui_onnx_put_i64s(r, &(int64_t){0}, 1, true, out);
}

static const char *const ops[] = {
    "SequenceEmpty", "SequenceConstruct",  "SequenceInsert",     "SequenceErase",
    "SequenceAt",    "SequenceLength",     "SplitToSequence",    "ConcatFromSequence",
    "Optional",      "OptionalGetElement", "OptionalHasElement",
};

bool rui_onnx_lists(const rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops); k++) {
        if (strcmp(n->op, ops[k]) == 0) {
            return true;
        }
    }
    return strcmp(n->op, "Identity") == 0 && n->in.n == 1 && in[0].v != 0 &&
           rui_onnx_list_of(r, in[0]) != NULL;
}

ru_status rui_onnx_list_op(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                           ru_value_id *out)
{
    if (n->out.n != 1) {
        return RU_FAIL(r->err, RU_E_DATA, "it has %u outputs, expected 1", n->out.n);
    }
    if (strncmp(n->op, "Optional", 8) == 0) {
        return optional(r, n, in, out);
    }
    if (r->opt->signature) {
        return depends(r, n, in, out);
    }
    if (strcmp(n->op, "SequenceEmpty") == 0) {
        return list_make(r, NULL, 0, false, out);
    }
    if (strcmp(n->op, "SequenceConstruct") == 0) {
        return list_make(r, in, n->in.n, false, out);
    }
    if (n->in.n < 1 || in[0].v == 0 ||
        (strcmp(n->op, "SequenceInsert") == 0 && (n->in.n < 2 || in[1].v == 0))) {
        return RU_FAIL(r->err, RU_E_DATA, "an input is absent");
    }
    if (strcmp(n->op, "SplitToSequence") == 0) {
        return split(r, n, in, out);
    }
    const rui_onnx_list *list = rui_onnx_list_of(r, in[0]);
    if (list == NULL || list->none) {
        return RU_FAIL(r->err, RU_E_DATA, "its first input is not a sequence");
    }
    if (strcmp(n->op, "Identity") == 0) {
        *out = in[0];
        return RU_OK;
    }
    if (strcmp(n->op, "SequenceInsert") == 0) {
        return insert(r, n, in, list, out);
    }
    if (strcmp(n->op, "SequenceErase") == 0) {
        return erase(r, n, in, list, out);
    }
    if (strcmp(n->op, "SequenceLength") == 0) {
        return rui_onnx_put_i64s(r, &(int64_t){list->n}, 1, true, out);
    }
    if (strcmp(n->op, "ConcatFromSequence") == 0) {
        return concat(r, n, list, out);
    }
    int64_t at;
    RU_TRY(place(r, n, in, 1, list->n, false, -1, &at));
    *out = list->items[at];
    return RU_OK;
}
