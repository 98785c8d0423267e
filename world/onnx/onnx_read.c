/* ModelProto to graph: names become values, functions are inlined, nodes are lifted one by one.
 *
 * Weights are loaded when the first node reads them, so that what a model carries but does not use
 * costs nothing. */
#include "world/onnx/onnx.h"
#include "world/onnx/onnx_lift.h"
#include "world/onnx/onnx_notice.h"
#include "world/onnx/onnx_read_impl.h"
#include "world/onnx/onnx_trained.h"

#include <string.h>

#include "world/graph/infer_impl.h"
#include "world/onnx/onnx_ml.h"

enum {
    TEXT_TYPE = 8,    /* TensorProto.STRING */
    SMALL_COUNT = 64, /* elements of a weight that a signature still loads: shapes, axes */
};

/* -- names ------------------------------------------------------------------------------------- */

static uint32_t name_hash(const char *s)
{
    uint32_t h = 2166136261U;
    for (; *s != 0; s++) {
        h = (h ^ (uint8_t)*s) * 16777619U;
    }
    return h;
}

/* Slot of that name, or the free one where it belongs. */
static rui_onnx_slot *names_slot(const rui_onnx_names *t, const char *name)
{
    uint32_t k = name_hash(name) & (t->cap - 1);
    while (t->slots[k].name != NULL && strcmp(t->slots[k].name, name) != 0) {
        k = (k + 1) & (t->cap - 1);
    }
    return &t->slots[k];
}

static bool names_grow(rui_onnx_names *t, ru_arena *arena)
{
    rui_onnx_names big = {.cap = t->cap == 0 ? 64 : t->cap * 2, .n = t->n};
    big.slots = RU_NEW(arena, rui_onnx_slot, big.cap);
    if (big.slots == NULL) {
        return false;
    }
    for (uint32_t k = 0; k < t->cap; k++) {
        if (t->slots[k].name != NULL) {
            *names_slot(&big, t->slots[k].name) = t->slots[k];
        }
    }
    *t = big;
    return true;
}

static ru_status names_add(rui_onnx_names *t, ru_arena *arena, rui_onnx_slot slot, ru_err *err)
{
    if (2 * t->n >= t->cap && !names_grow(t, arena)) {
        return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
    }
    rui_onnx_slot *at = names_slot(t, slot.name);
    if (at->name != NULL) {
        return RU_FAIL(err, RU_E_DATA, "onnx: two values have the name '%s'", slot.name);
    }
    *at = slot;
    t->n++;
    return RU_OK;
}

/* -- reading ----------------------------------------------------------------------------------- */

ru_status rui_onnx_full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
}

static int64_t opset_of(const rui_onnx_opsets *list, const char *domain)
{
    for (uint32_t k = 0; k < list->n; k++) {
        if (strcmp(list->v[k].domain, domain) == 0) {
            return list->v[k].version;
        }
    }
    return -1;
}

/* The elements of this weight in `like`, where they are the same bytes; NULL: they are not. */
static const void *data_alike(const ru_graph *like, const rui_onnx_tensor *t)
{
    int64_t bytes = ru_type_bytes(&t->type);
    bool whole = t->raw.size_bytes == bytes && !rui_onnx_four_bits(t->data_type);
    for (uint32_t i = 1; like != NULL && whole && i < like->n_values; i++) {
        const ru_value *v = &like->values[i];
        if (v->kind == RU_VALUE_CONST && v->data != NULL && v->name != NULL &&
            strcmp(v->name, t->name) == 0) {
            bool same = ru_type_equal(&v->type, &t->type) &&
                        memcmp(v->data, t->raw.data, (size_t)bytes) == 0;
            return same ? v->data : NULL;
        }
    }
    return NULL;
}

static ru_status weight_data(rui_onnx_reader *r, const rui_onnx_tensor *t, const void **out)
{
    *out = NULL;
    int64_t count = ru_type_count(&t->type);
    if (r->opt->signature && count > SMALL_COUNT) {
        return RU_OK;
    }
    if (!t->external) {
        *out = t->raw.data != NULL ? data_alike(r->opt->like, t) : NULL;
        return *out != NULL ? RU_OK : rui_onnx_tensor_data(t, r->arena, out, r->err);
    }
    if (t->location == NULL) {
        return RU_FAIL(r->err, RU_E_DATA, "onnx: tensor '%s' is external but names no file",
                       t->name);
    }
    if (r->opt->external == NULL) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "onnx: tensor '%s' is stored in file '%s', which cannot be read here",
                       t->name, t->location);
    }
    const void *data = NULL;
    int64_t size_bytes = 0;
    ru_status st = r->opt->external->view(r->opt->external->self, t->location, t->offset, t->length,
                                          &data, &size_bytes, r->err);
    if (st != RU_OK) {
        return ru_err_wrap(r->err, st, "onnx: tensor '%s'", t->name);
    }
    int64_t want = ru_type_bytes(&t->type);
    want = rui_onnx_four_bits(t->data_type) ? (want + 1) / 2 : want;
    if (t->length < 0 && size_bytes > want && want >= 0) {
        size_bytes = want; /* no length given: what the shape says */
    }
    return rui_onnx_tensor_bytes(t, data, size_bytes, r->arena, out, r->err);
}

/* The value of initialiser `t`, made at its first use. */
static ru_status weight_load(rui_onnx_reader *r, const rui_onnx_tensor *t, bool named,
                             ru_value_id *out)
{
    if (t->data_type == TEXT_TYPE && !t->external) {
        ru_value text = {.name = t->name, .type = t->type, .kind = RU_VALUE_CONST};
        text.type.dtype = RU_I64;
        RU_TRY(rui_texts_tensor(&r->texts, t, &text.data, r->err));
        RU_TRY(ru_graph_add_value(r->g, &text, out, r->err));
        return rui_texts_mark(&r->texts, *out, r->err);
    }
    if (t->type.dtype == RU_NONE) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "onnx: tensor '%s' has element type %s (%d), which is not supported",
                       t->name, rui_onnx_type_name(t->data_type), t->data_type);
    }
    ru_value v = {.name = named ? t->name : NULL, .type = t->type, .kind = RU_VALUE_CONST};
    RU_TRY(weight_data(r, t, &v.data));
    if (r->opt->train && ru_dtype_is_float(t->type.dtype) && t->type.rank >= 1) {
        v.kind = RU_VALUE_STATE;
        v.role = RU_ROLE_PARAM;
    }
    return ru_graph_add_value(r->g, &v, out, r->err);
}

ru_status rui_onnx_name(rui_onnx_reader *r, rui_onnx_frame *f, const char *name, ru_value_id v)
{
    return names_add(&f->names, r->arena, (rui_onnx_slot){.name = name, .v = v}, r->err);
}

ru_status rui_onnx_put(rui_onnx_reader *r, ru_op op, const ru_value_id *in, uint32_t n_in,
                       const ru_attr *attrs, uint32_t n_attrs, ru_value_id *out)
{
    ru_value_id v; /* `out` may be one of `in` */
    RU_TRY(ru_graph_add_node(r->g, op, NULL, in, n_in, attrs, n_attrs, &v, 1, r->err));
    if (!r->opt->signature) {
        RU_TRY(ru_graph_infer_node(r->g, (ru_graph_node_id){r->g->n_nodes - 1}, r->err));
    }
    *out = v;
    return RU_OK;
}

ru_status rui_onnx_put_i64s(rui_onnx_reader *r, const int64_t *x, uint32_t n, bool scalar,
                            ru_value_id *out)
{
    ru_value v = {.kind = RU_VALUE_CONST,
                  .type = {.dtype = RU_I64, .rank = scalar ? 0 : 1, .dims = {scalar ? 0 : n}},
                  .data = ru_arena_copy(r->arena, x, n * (int64_t)sizeof *x, 64)};
    return v.data != NULL ? ru_graph_add_value(r->g, &v, out, r->err) : rui_onnx_full(r->err);
}

ru_status rui_onnx_find(rui_onnx_reader *r, rui_onnx_frame *f, const char *name, ru_value_id *out)
{
    rui_onnx_slot *slot = NULL;
    for (; f != NULL && (slot == NULL || slot->name == NULL); f = f->outer) {
        slot = f->names.cap > 0 ? names_slot(&f->names, name) : NULL;
        if (slot != NULL && slot->name != NULL && slot->weight != 0 && slot->v.v == 0) {
            RU_TRY(weight_load(r, &f->inits[slot->weight - 1], f->depth == 0, &slot->v));
        }
    }
    if (slot == NULL || slot->name == NULL) {
        return RU_FAIL(r->err, RU_E_DATA, "it reads '%s', which no earlier node computes", name);
    }
    *out = slot->v;
    return RU_OK;
}

/* -- inputs ------------------------------------------------------------------------------------ */

static ru_status input_dim(rui_onnx_reader *r, const rui_onnx_info *info, uint32_t axis,
                           int64_t *out)
{
    const rui_onnx_dim *d = &info->dims[axis];
    if (d->value >= 0 && d->param == NULL) {
        *out = d->value;
        return RU_OK;
    }
    const char *symbol = d->param;
    if (symbol == NULL) {
        symbol = ru_arena_printf(r->arena, "%s.%u", info->name, axis);
        if (symbol == NULL) {
            return rui_onnx_full(r->err);
        }
    }
    for (uint32_t k = 0; k < r->opt->n_dims; k++) {
        if (strcmp(r->opt->dims[k].symbol, symbol) == 0) {
            *out = r->opt->dims[k].number;
            return RU_OK;
        }
    }
    uint32_t sym;
    RU_TRY(ru_graph_symbol(r->g, symbol, &sym, r->err));
    *out = ru_dim_symbol(sym, 1);
    return RU_OK;
}

static ru_status input_type(rui_onnx_reader *r, const rui_onnx_info *info, ru_type *out)
{
    ru_type t = {.dtype =
                     info->elem_type == TEXT_TYPE ? RU_I64 : ru_dtype_from_onnx(info->elem_type),
                 .rank = info->rank};
    if (strcmp(info->kind, "tensor") != 0) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "onnx: input '%s' is a %s; only tensors are "
                       "supported",
                       info->name, info->kind);
    }
    if (t.dtype == RU_NONE) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "onnx: input '%s' has element type %s (%d), which is not supported",
                       info->name, rui_onnx_type_name(info->elem_type), info->elem_type);
    }
    if (!info->has_shape) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "onnx: input '%s' has no shape; export the model with its rank known",
                       info->name);
    }
    for (uint32_t k = 0; k < info->rank; k++) {
        RU_TRY(input_dim(r, info, k, &t.dims[k]));
    }
    *out = t;
    return RU_OK;
}

static ru_status input_fixed(rui_onnx_reader *r, const rui_onnx_info *info, const ru_array *fixed,
                             ru_value *v)
{
    const ru_type *have = &fixed->type;
    bool fits = have->dtype == v->type.dtype && have->rank == v->type.rank;
    for (uint32_t k = 0; fits && k < have->rank; k++) {
        fits = ru_dim_is_symbolic(v->type.dims[k]) || v->type.dims[k] == have->dims[k];
    }
    if (!fits) {
        char a[128], b[128];
        return RU_FAIL(r->err, RU_E_DATA, "onnx: input '%s' is %s, but the given array is %s",
                       info->name, ru_type_print(r->g, &v->type, a, sizeof a),
                       ru_type_print(r->g, have, b, sizeof b));
    }
    v->kind = RU_VALUE_CONST;
    v->type = *have;
    v->data = fixed->data;
    return RU_OK;
}

ru_status rui_onnx_weights(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_model *m)
{
    f->inits = m->inits;
    for (uint32_t k = 0; k < m->n_inits; k++) {
        const char *name = m->inits[k].name;
        if (name[0] == 0) {
            return RU_FAIL(r->err, RU_E_DATA, "onnx: initialiser %u has no name", k);
        }
        RU_TRY(
            names_add(&f->names, r->arena, (rui_onnx_slot){.name = name, .weight = k + 1}, r->err));
    }
    return RU_OK;
}

static ru_status inputs_add(rui_onnx_reader *r, rui_onnx_frame *f)
{
    RU_TRY(rui_onnx_weights(r, f, &r->model));
    for (uint32_t k = 0; k < r->model.n_inputs; k++) {
        const rui_onnx_info *info = &r->model.inputs[k];
        if (f->names.cap > 0 && names_slot(&f->names, info->name)->weight != 0) {
            continue; /* an initialiser that old models also list as an input */
        }
        ru_value v = {.name = info->name, .kind = RU_VALUE_INPUT};
        RU_TRY(input_type(r, info, &v.type));
        for (uint32_t i = 0; i < r->opt->n_fixed; i++) {
            if (strcmp(r->opt->fixed[i].name, info->name) == 0) {
                RU_TRY(input_fixed(r, info, &r->opt->fixed[i], &v));
            }
        }
        rui_onnx_slot slot = {.name = info->name};
        RU_TRY(ru_graph_add_value(r->g, &v, &slot.v, r->err));
        if (info->elem_type == TEXT_TYPE) {
            RU_TRY(rui_texts_mark(&r->texts, slot.v, r->err));
        }
        RU_TRY(names_add(&f->names, r->arena, slot, r->err));
    }
    return RU_OK;
}

/* -- nodes ------------------------------------------------------------------------------------- */

/* Attributes of a node with references to the call's attributes replaced. */
static ru_status attrs_resolve(rui_onnx_reader *r, const rui_onnx_frame *f, const rui_onnx_node *n,
                               rui_onnx_attr **out, uint32_t *n_out)
{
    rui_onnx_attr *a = RU_NEW(r->arena, rui_onnx_attr, n->n_attrs);
    if (a == NULL) {
        return rui_onnx_full(r->err);
    }
    uint32_t count = 0;
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        a[count] = n->attrs[k];
        if (a[count].ref == NULL) {
            count++;
            continue;
        }
        if (f->fn == NULL) {
            return RU_FAIL(r->err, RU_E_DATA, "attribute '%s' refers to a call, outside a function",
                           a[count].name);
        }
        const rui_onnx_attr *found = NULL;
        for (uint32_t i = 0; i < f->n_attrs && found == NULL; i++) {
            found = strcmp(f->attrs[i].name, a[count].ref) == 0 ? &f->attrs[i] : NULL;
        }
        for (uint32_t i = 0; i < f->fn->n_dflts && found == NULL; i++) {
            found = strcmp(f->fn->dflts[i].name, a[count].ref) == 0 ? &f->fn->dflts[i] : NULL;
        }
        if (found != NULL && found->ref == NULL) {
            const char *name = a[count].name;
            a[count] = *found;
            a[count++].name = name;
        }
    }
    *out = a;
    *n_out = count;
    return RU_OK;
}

static const rui_onnx_function *function_find(const rui_onnx_reader *r, const rui_onnx_node *n)
{
    for (uint32_t k = 0; k < r->model.n_functions; k++) {
        const rui_onnx_function *fn = &r->model.functions[k];
        if (strcmp(fn->name, n->op) == 0 && strcmp(fn->domain, n->domain) == 0 &&
            strcmp(fn->overload, n->overload) == 0) {
            return fn;
        }
    }
    return NULL;
}

/* Read the body of `fn` with the call's arguments in place of its inputs. */
static ru_status call_inline(rui_onnx_reader *r, const rui_onnx_frame *f,
                             const rui_onnx_function *fn, const rui_onnx_node *n,
                             const ru_value_id *in, ru_value_id *out)
{
    if (f->depth + 1 >= RUI_ONNX_DEPTH_MAX) {
        return RU_FAIL(r->err, RU_E_DATA, "function calls are nested deeper than %d",
                       RUI_ONNX_DEPTH_MAX);
    }
    if (n->in.n > fn->in.n || n->out.n > fn->out.n) {
        return RU_FAIL(r->err, RU_E_DATA, "function '%s' has %u inputs and %u outputs", fn->name,
                       fn->in.n, fn->out.n);
    }
    rui_onnx_frame body = {
        .opsets = fn->opsets.n > 0 ? &fn->opsets : f->opsets, .fn = fn, .depth = f->depth + 1};
    rui_onnx_attr *attrs = NULL;
    RU_TRY(attrs_resolve(r, f, n, &attrs, &body.n_attrs));
    body.attrs = attrs;
    const char *call = n->name[0] != 0 ? n->name : n->op;
    body.prefix = ru_arena_printf(r->arena, "%s%s/", f->prefix, call);
    if (body.prefix == NULL) {
        return rui_onnx_full(r->err);
    }
    for (uint32_t k = 0; k < fn->in.n; k++) {
        rui_onnx_slot slot = {.name = fn->in.s[k], .v = k < n->in.n ? in[k] : (ru_value_id){0}};
        RU_TRY(names_add(&body.names, r->arena, slot, r->err));
    }
    RU_TRY(rui_onnx_nodes_read(r, &body, &fn->nodes));
    for (uint32_t k = 0; k < n->out.n; k++) {
        RU_TRY(rui_onnx_find(r, &body, fn->out.s[k], &out[k]));
    }
    return RU_OK;
}

/* What to do about an op that is not here: by the head of its name, "" for all others. */
static const char *instead(const char *op)
{
    static const char *const rows[][2] = {
        {"Sequence", "concatenate or stack lists of tensors before the export"},
        {"String", "convert texts to numbers before the model"},
        {"Tfidf", "convert texts to numbers before the model"},
        {"Random", "make random numbers an input of the model"},
        {"Bernoulli", "make random numbers an input of the model"},
        {"", "use supported operators (docs/onnx.md), or end the model before this op"},
    };
    uint32_t k = 0;
    while (strncmp(op, rows[k][0], strlen(rows[k][0])) != 0) {
        k++;
    }
    return rows[k][1];
}

static ru_status op_find(rui_onnx_reader *r, const rui_onnx_node *n, int64_t opset, ru_op *op)
{
    *op = RU_OP_NONE;
    if (strcmp(n->domain, "ai.onnx.ml") == 0 ||
        rui_lift_quant(n->domain, n->op, NULL, NULL, NULL) ||
        rui_lift_later(n->domain, n->op, NULL, NULL, NULL)) {
        return RU_OK;
    }
    if (n->domain[0] != 0) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "op '%s' of domain '%s' is not supported and the model has no function of "
                       "that name; export with standard operators only, before other tools "
                       "optimise the model",
                       n->op, n->domain);
    }
    if (opset < 0) {
        return RU_FAIL(r->err, RU_E_DATA, "the model imports no opset of the standard domain");
    }
    static const char *const renamed[][2] = {{"Upsample", "Resize"},
                                             {"Scatter", "ScatterElements"}};
    const char *name = n->op;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(renamed); k++) {
        name = strcmp(name, renamed[k][0]) == 0 ? renamed[k][1] : name;
    }
    *op = ru_op_find(name, true);
    if (*op == RU_OP_NONE) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED, "this op is not supported; %s", instead(n->op));
    }
    return RU_OK;
}

static ru_status node_lift(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                           int64_t opset, ru_op op, ru_value_id *in, bool *wanted, ru_value_id *out)
{
    rui_lift l = {.g = r->g,
                  .arena = r->arena,
                  .opset = opset,
                  .infer = !r->opt->signature,
                  .op_name = n->op,
                  .op = op,
                  .in = in,
                  .n_in = n->in.n,
                  .n_out = n->out.n,
                  .out = out,
                  .n_out_model = n->out.n,
                  .wanted = wanted,
                  .texts = &r->texts};
    if (n->name[0] != 0) {
        l.name = f->depth > 0 ? ru_arena_printf(r->arena, "%s%s", f->prefix, n->name) : n->name;
    }
    while (l.n_out > 1 && !wanted[l.n_out - 1]) {
        l.n_out--;
    }
    RU_TRY(attrs_resolve(r, f, n, &l.raw, &l.n_raw));
    l.taken = RU_NEW(r->arena, bool, l.n_raw);
    if (l.taken == NULL) {
        return rui_onnx_full(r->err);
    }
    bool text;
    ru_status st;
    if (strcmp(n->domain, "ai.onnx.ml") == 0) {
        return rui_lift_ml(&l, r->err);
    }
    RU_TRY(rui_texts_pass(&l, &text, r->err));
    if (rui_lift_quant(n->domain, n->op, &l, &st, r->err) ||
        rui_lift_later(n->domain, n->op, &l, &st, r->err)) {
        return st;
    }
    RU_TRY(rui_lift_rules(&l, r->err));
    if (!l.done) {
        RU_TRY(rui_lift_emit(&l, r->err));
    }
    for (uint32_t k = 0; text && k < n->out.n; k++) {
        RU_TRY(wanted[k] ? rui_texts_mark(&r->texts, out[k], r->err) : RU_OK);
    }
    return RU_OK;
}

static ru_status tensors_check(const rui_onnx_reader *r, const rui_onnx_node *n,
                               const ru_value_id *in)
{
    for (uint32_t k = 0; k < n->in.n; k++) {
        if (rui_onnx_list_of(r, in[k]) != NULL) {
            return RU_FAIL(r->err, RU_E_DATA, "input %u is a sequence, expected a tensor", k);
        }
    }
    return RU_OK;
}

/* Weights of 4 bits are bytes here: an op that takes the type of a result from one would give
 * bytes. */
static ru_status rounding_check(const rui_onnx_reader *r, const rui_onnx_frame *f,
                                const rui_onnx_node *n)
{
    uint32_t k = strcmp(n->op, "QuantizeLinear") == 0 ? 2 : 1;
    bool types = k == 2 || strcmp(n->op, "CastLike") == 0;
    for (; types && k < n->in.n && f != NULL; f = f->outer) {
        const rui_onnx_slot *s = f->names.cap > 0 ? names_slot(&f->names, n->in.s[k]) : NULL;
        bool weight = s != NULL && s->weight != 0;
        if (weight ? rui_onnx_four_bits(f->inits[s->weight - 1].data_type) : s != NULL && s->four) {
            return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                           "results of 4 bits are not supported, only weights that "
                           "DequantizeLinear reads; quantise to 8 bits");
        }
    }
    return RU_OK;
}

/* Is it a Constant of numbers of 4 bits? */
static ru_status four_of(rui_onnx_reader *r, const rui_onnx_frame *f, const rui_onnx_node *n,
                         bool *four)
{
    rui_onnx_attr *attrs = NULL;
    uint32_t count = 0;
    *four = false;
    if (strcmp(n->op, "Constant") != 0) {
        return RU_OK;
    }
    RU_TRY(attrs_resolve(r, f, n, &attrs, &count));
    for (uint32_t k = 0; k < count; k++) {
        rui_onnx_tensor t = {0};
        if (attrs[k].type == RUI_ONNX_TENSOR) {
            RU_TRY(rui_onnx_tensor_parse(attrs[k].t, r->arena, &t, r->err));
            *four = *four || rui_onnx_four_bits(t.data_type);
        }
    }
    return RU_OK;
}

static ru_status node_values(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                             int64_t opset)
{
    ru_value_id *in = RU_NEW(r->arena, ru_value_id, n->in.n + RUI_LIFT_ARGS_MORE);
    ru_value_id *out = RU_NEW(r->arena, ru_value_id, n->out.n);
    bool *wanted = RU_NEW(r->arena, bool, n->out.n), four = false;
    if (in == NULL || out == NULL || wanted == NULL) {
        return rui_onnx_full(r->err);
    }
    for (uint32_t k = 0; k < n->in.n; k++) {
        if (n->in.s[k][0] != 0) {
            RU_TRY(rui_onnx_find(r, f, n->in.s[k], &in[k]));
        }
    }
    for (uint32_t k = 0; k < n->out.n; k++) {
        wanted[k] = n->out.s[k][0] != 0;
    }
    const rui_onnx_function *fn = function_find(r, n);
    if (fn != NULL && (n->domain[0] != 0 || ru_op_find(n->op, true) == RU_OP_NONE)) {
        RU_TRY(call_inline(r, f, fn, n, in, out));
    } else if (rui_onnx_flows(n)) {
        RU_TRY(rui_onnx_flow(r, f, n, in, out));
    } else if (n->domain[0] == 0 && rui_onnx_lists(r, n, in)) {
        RU_TRY(rui_onnx_list_op(r, n, in, out));
    } else {
        RU_TRY(tensors_check(r, n, in));
        RU_TRY(rounding_check(r, f, n));
        ru_op op;
        RU_TRY(op_find(r, n, opset, &op));
        RU_TRY(node_lift(r, f, n, opset, op, in, wanted, out));
        RU_TRY(four_of(r, f, n, &four));
    }
    for (uint32_t k = 0; k < n->out.n; k++) {
        if (!wanted[k]) {
            continue;
        }
        rui_onnx_slot slot = {.name = n->out.s[k], .v = out[k], .four = four};
        RU_TRY(names_add(&f->names, r->arena, slot, r->err));
        ru_value *v = ru_graph_value(r->g, out[k]);
        if (f->depth == 0 && out[k].v != 0 && v->name == NULL) {
            v->name = n->out.s[k];
        }
    }
    return RU_OK;
}

ru_status rui_onnx_nodes_read(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_nodes *nodes)
{
    for (uint32_t k = 0; k < nodes->n; k++) {
        const rui_onnx_node *n = &nodes->v[k];
        int64_t opset = opset_of(f->opsets, n->domain);
        if (++r->steps > RU_NODES_MAX) {
            return RU_FAIL(r->err, RU_E_LIMIT, "onnx: more than %d nodes", RU_NODES_MAX);
        }
        ru_status st = node_values(r, f, n, opset);
        if (st != RU_OK && r->named) {
            return st;
        }
        if (st != RU_OK) {
            r->named = true;
            const char *name = n->name[0] != 0 ? n->name : n->out.n > 0 ? n->out.s[0] : "";
            return ru_err_wrap(r->err, st, "onnx: node %s'%s' (%s%s%s, opset %lld)", f->prefix,
                               name, n->domain, n->domain[0] != 0 ? "." : "", n->op,
                               (long long)opset);
        }
    }
    return RU_OK;
}

/* -- outputs and info -------------------------------------------------------------------------- */

/* A result is made by a node and given once: others pass through Identity. */
static ru_status output_add(rui_onnx_reader *r, ru_value_id v)
{
    bool again = ru_graph_value(r->g, v)->kind != RU_VALUE_TEMP;
    for (uint32_t i = 0; i < r->g->n_outputs; i++) {
        again = again || r->g->outputs[i].v == v.v;
    }
    if (again) {
        bool text = rui_texts_is(&r->texts, v);
        RU_TRY(rui_onnx_put(r, RU_OP_Identity, &v, 1, NULL, 0, &v));
        RU_TRY(text ? rui_texts_mark(&r->texts, v, r->err) : RU_OK);
    }
    return ru_graph_add_output(r->g, v, r->err);
}

/* Output k of the model, which is `v`: a tensor, or a sequence, whose tensors become NAME_0, NAME_1
 * and so on. `names` gets those of the outputs that are added; NULL: only their number is asked. */
static ru_status output_of(rui_onnx_reader *r, uint32_t k, ru_value_id v, const char **names,
                           uint32_t *n)
{
    const char *name = r->model.outputs[k].name, *kind = r->model.outputs[k].kind;
    const rui_onnx_list *list = rui_onnx_list_of(r, v);
    if (strcmp(kind, "optional") == 0 || (list != NULL && list->none)) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "onnx: output '%s' is an optional value; give its tensor in the model",
                       name);
    }
    *n = list != NULL ? list->n : 1;
    for (uint32_t i = 0; names != NULL && i < *n; i++) {
        names[i] = list != NULL ? ru_arena_printf(r->arena, "%s_%u", name, i) : name;
        if (names[i] == NULL) {
            return rui_onnx_full(r->err);
        }
        for (uint32_t m = 0; list != NULL && m < r->model.n_outputs; m++) {
            if (strcmp(names[i], r->model.outputs[m].name) == 0) {
                return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                               "onnx: tensor %u of the sequence '%s' would be called like output "
                               "'%s'; rename one of them",
                               i, name, names[i]);
            }
        }
        RU_TRY(output_add(r, list != NULL ? list->items[i] : v));
    }
    return RU_OK;
}

static ru_status outputs_add(rui_onnx_reader *r, rui_onnx_frame *f, const char ***names_out)
{
    uint32_t all = 0, at = 0, n;
    ru_value_id *v = RU_NEW(r->arena, ru_value_id, r->model.n_outputs);
    if (v == NULL) {
        return rui_onnx_full(r->err);
    }
    for (uint32_t k = 0; k < r->model.n_outputs; k++, all += n) {
        ru_status st = rui_onnx_find(r, f, r->model.outputs[k].name, &v[k]);
        if (st != RU_OK) {
            return ru_err_wrap(r->err, st, "onnx: output '%s'", r->model.outputs[k].name);
        }
        RU_TRY(output_of(r, k, v[k], NULL, &n));
    }
    const char **names = RU_NEW(r->arena, const char *, all);
    if (names == NULL) {
        return rui_onnx_full(r->err);
    }
    for (uint32_t k = 0; k < r->model.n_outputs; k++, at += n) {
        RU_TRY(output_of(r, k, v[k], names + at, &n));
    }
    *names_out = names;
    return RU_OK;
}

uint32_t rui_onnx_shape_inputs(ru_op op)
{
    bool selects = op == RU_OP_NonZero || op == RU_OP_Unique || op == RU_OP_Compress;
    return selects ? 0 : ru_op_sized_by(op) & ~(op == RU_OP_NonMaxSuppression ? 3U : 0U);
}

/* Walk back from every input that decides a shape; Shape and Size end the walk, because they read
 * no data. */
static ru_status shapes_mark(const rui_onnx_reader *r, ru_arena *arena, const bool **out,
                             ru_err *err)
{
    const ru_graph *g = r->g;
    bool *needed = RU_NEW(arena, bool, g->n_values);
    bool *shapes = RU_NEW(arena, bool, g->n_inputs);
    if (needed == NULL || shapes == NULL) {
        return rui_onnx_full(err);
    }
    for (uint32_t k = g->n_nodes; k-- > 1;) {
        const ru_node *n = &g->nodes[k];
        bool all = false;
        for (uint32_t i = 0; i < n->n_out; i++) {
            all = all || (n->out[i].v != 0 && needed[n->out[i].v]);
        }
        all = all && n->op != RU_OP_Shape && n->op != RU_OP_Size;
        uint32_t some = rui_onnx_shape_inputs(n->op);
        for (uint32_t i = 0; i < n->n_in; i++) {
            bool type = n->op == RU_OP_CastLike && i == 1; /* not its data */
            if ((all && !type) || (i < 32 && (some >> i & 1) != 0)) {
                needed[n->in[i].v] = true;
            }
        }
    }
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        shapes[k] = needed[g->inputs[k].v];
    }
    *out = shapes;
    return RU_OK;
}

static ru_status opset_check(const rui_onnx_reader *r, int64_t opset)
{
    if (opset > RU_ONNX_OPSET_MAX || (opset != -1 && opset < RU_ONNX_OPSET_MIN)) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                       "onnx: the model uses opset %lld, supported are %d to %d; convert it with "
                       "onnx.version_converter or export it again",
                       (long long)opset, RU_ONNX_OPSET_MIN, RU_ONNX_OPSET_MAX);
    }
    return RU_OK;
}

ru_status ru_onnx_read(const void *data, int64_t size_bytes, const ru_onnx_options *opt,
                       ru_arena *arena, ru_graph *out, ru_onnx_info *info, ru_err *err)
{
    static const ru_onnx_options none = {0};
    ru_graph g;
    rui_onnx_reader r = {.opt = opt != NULL ? opt : &none,
                         .arena = arena,
                         .g = &g,
                         .texts = {.words = {.arena = arena}},
                         .err = err};
    RU_TRY(rui_onnx_model_parse(data, size_bytes, arena, &r.model, err));
    int64_t opset = opset_of(&r.model.opsets, "");
    RU_TRY(opset_check(&r, opset));
    for (uint32_t k = 0; k < r.model.n_functions; k++) {
        RU_TRY(opset_check(&r, opset_of(&r.model.functions[k].opsets, "")));
    }
    RU_TRY(ru_graph_init(&g, arena, r.model.graph_name, err));
    rui_onnx_frame f = {.opsets = &r.model.opsets, .prefix = ""};
    RU_TRY(inputs_add(&r, &f));
    RU_TRY(rui_onnx_nodes_read(&r, &f, &r.model.nodes));
    const char **outputs = NULL;
    RU_TRY(outputs_add(&r, &f, &outputs));
    if (r.opt->train && !r.opt->signature) {
        RU_TRY(rui_onnx_trained(&g, arena, err));
    }
    if (!r.opt->signature) {
        RU_TRY(ru_graph_verify(&g, err));
    }
    if (info != NULL) {
        ru_onnx_info i = {.ir_version = r.model.ir_version,
                          .opset = opset,
                          .outputs = outputs,
                          .producer = r.model.producer,
                          .n_functions = r.model.n_functions,
                          .words = r.texts.words,
                          .maps = r.texts.maps};
        RU_TRY(shapes_mark(&r, arena, &i.shapes, err));
        RU_TRY(rui_texts_list(&r.texts, g.inputs, g.n_inputs, &i.texts_in, err));
        RU_TRY(rui_texts_list(&r.texts, g.outputs, g.n_outputs, &i.texts_out, err));
        if (r.opt->train && !r.opt->signature) {
            RU_TRY(rui_onnx_notice(&r.model, &g, arena, &i.notice, err));
        }
        *info = i;
    }
    *out = g;
    return RU_OK;
}
