#include "world/onnx/onnx_proto.h"

#include <string.h>

#include "base/str.h"

enum { STRS_MAX = 1 << 26 }; /* texts of one attribute */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full or the model has too many parts");
}

void *rui_onnx_grow(ru_arena *arena, void *array, uint32_t n, uint32_t *cap, int64_t elem_bytes,
                    uint32_t max)
{
    if (n < *cap) {
        return array;
    }
    if (n >= max) {
        return NULL;
    }
    uint32_t cap_new = *cap == 0 ? 4 : *cap * 2;
    void *grown = ru_arena_zalloc(arena, (int64_t)cap_new * elem_bytes, 16);
    if (grown == NULL) {
        return NULL;
    }
    if (n > 0) {
        memcpy(grown, array, (size_t)(n * elem_bytes));
    }
    *cap = cap_new;
    return grown;
}

/* A string field; empty and absent are the same. Text with a NUL inside is refused. */
static ru_status str_get(const ru_pb_field *f, ru_arena *arena, const char **out, ru_err *err)
{
    if (f->wire != RU_PB_LEN || memchr(f->data, 0, (size_t)f->size_bytes) != NULL) {
        return RU_FAIL(err, RU_E_DATA, "onnx: field %u should be a text without NUL bytes",
                       f->number);
    }
    const char *s = ru_arena_strn(arena, (const char *)f->data, f->size_bytes);
    if (s == NULL) {
        return full(err);
    }
    *out = s;
    return RU_OK;
}

/* Names of a node's inputs and outputs, or elements of an attribute (modes of the nodes of trees).
 */
static ru_status strs_add(rui_onnx_strs *list, uint32_t max, const ru_pb_field *f, ru_arena *arena,
                          ru_err *err)
{
    list->s = rui_onnx_grow(arena, list->s, list->n, &list->cap, sizeof *list->s, max);
    if (list->s == NULL) {
        return full(err);
    }
    RU_TRY(str_get(f, arena, &list->s[list->n], err));
    list->n++;
    return RU_OK;
}

/* -- attributes -------------------------------------------------------------------------------- */

/* Append the numbers of one occurrence of a repeated field to a raw-bits array. */
static ru_status bits_add(uint64_t **bits, uint32_t *n, uint32_t *cap, const ru_pb_field *f,
                          ru_pb_wire elem, ru_arena *arena, ru_err *err)
{
    int64_t more = ru_pb_count(f, elem);
    if (more < 0 || more > INT32_MAX - (int64_t)*n) {
        return RU_FAIL(err, RU_E_DATA, "onnx: a list of numbers is damaged");
    }
    if (more == 0) {
        return RU_OK;
    }
    if (*n + more > *cap) {
        int64_t cap_new = (int64_t)*cap * 2 > *n + more ? (int64_t)*cap * 2 : *n + more;
        uint64_t *grown = RU_NEW(arena, uint64_t, cap_new);
        if (grown == NULL) {
            return full(err);
        }
        if (*n > 0) {
            memcpy(grown, *bits, *n * sizeof **bits);
        }
        *bits = grown;
        *cap = (uint32_t)cap_new;
    }
    int64_t got = ru_pb_values(f, elem, *bits + *n, more);
    RU_CHECK(got == more);
    *n += (uint32_t)more;
    return RU_OK;
}

typedef struct attr_lists {
    uint64_t *f, *i;
    uint32_t nf, ni, cap_f, cap_i;
    bool has_f, has_i, has_s, has_t, has_g, has_other;
} attr_lists;

static ru_status attr_field(rui_onnx_attr *a, attr_lists *l, ru_pb_in *in, const ru_pb_field *f,
                            ru_arena *arena, ru_err *err)
{
    switch (f->number) {
    case 1:
        return str_get(f, arena, &a->name, err);
    case 2:
        a->f = (double)ru_pb_f32(in, f);
        l->has_f = true;
        break;
    case 3:
        a->i = ru_pb_i64(in, f);
        l->has_i = true;
        break;
    case 4:
        l->has_s = true;
        if (f->wire == RU_PB_LEN && memchr(f->data, 0, (size_t)f->size_bytes) == NULL) {
            return str_get(f, arena, &a->s, err);
        }
        break;
    case 5:
        a->t = (rui_onnx_bytes){f->data, f->size_bytes};
        l->has_t = f->wire == RU_PB_LEN;
        break;
    case 6:
        a->g = (rui_onnx_bytes){f->data, f->size_bytes};
        l->has_g = f->wire == RU_PB_LEN;
        break;
    case 7:
        return bits_add(&l->f, &l->nf, &l->cap_f, f, RU_PB_FIXED32, arena, err);
    case 8:
        return bits_add(&l->i, &l->ni, &l->cap_i, f, RU_PB_VARINT, arena, err);
    case 9:
        return strs_add(&a->ss, STRS_MAX, f, arena, err);
    case 10:
    case 11:
    case 14:
    case 15:
    case 22:
    case 23:
        l->has_other = true;
        break;
    case 20: {
        int64_t type = ru_pb_i64(in, f);
        a->type = type >= 1 && type <= 8 ? (rui_onnx_attr_type)type : RUI_ONNX_OTHER;
        break;
    }
    case 21:
        return str_get(f, arena, &a->ref, err);
    default:
        break;
    }
    return RU_OK;
}

/* Old writers leave `type` out: it is what is set. */
static rui_onnx_attr_type attr_guess(const rui_onnx_attr *a, const attr_lists *l)
{
    return l->has_other  ? RUI_ONNX_OTHER
           : l->has_g    ? RUI_ONNX_GRAPH
           : l->has_t    ? RUI_ONNX_TENSOR
           : l->has_s    ? RUI_ONNX_STRING
           : l->has_i    ? RUI_ONNX_INT
           : l->has_f    ? RUI_ONNX_FLOAT
           : l->nf > 0   ? RUI_ONNX_FLOATS
           : a->ss.n > 0 ? RUI_ONNX_STRINGS
                         : RUI_ONNX_INTS;
}

static ru_status attr_parse(ru_pb_in in, ru_arena *arena, rui_onnx_attr *a, ru_err *err)
{
    attr_lists l = {0};
    *a = (rui_onnx_attr){.name = ""};
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        RU_TRY(attr_field(a, &l, &in, &f, arena, err));
    }
    RU_TRY(ru_pb_in_end(&in, "an ONNX attribute", err));
    if (a->name[0] == 0) {
        return RU_FAIL(err, RU_E_DATA, "onnx: an attribute has no name");
    }
    if (a->type == RUI_ONNX_UNDEFINED && a->ref == NULL) {
        a->type = attr_guess(a, &l);
    }
    if (a->type == RUI_ONNX_FLOATS) {
        a->n = l.nf;
        a->fs = RU_NEW(arena, double, l.nf);
        if (a->fs == NULL) {
            return full(err);
        }
        for (uint32_t k = 0; k < l.nf; k++) {
            a->fs[k] = (double)ru_pb_bits_f32(l.f[k]);
        }
    } else if (a->type == RUI_ONNX_INTS) {
        a->n = l.ni;
        a->is = RU_NEW(arena, int64_t, l.ni);
        if (a->is == NULL) {
            return full(err);
        }
        for (uint32_t k = 0; k < l.ni; k++) {
            a->is[k] = (int64_t)l.i[k];
        }
    }
    return RU_OK;
}

/* -- nodes and functions ----------------------------------------------------------------------- */

/* A StringStringEntryProto: the rewriter of onnxscript notes the rules that made a node. */
static bool tells_of_fused_norm(const ru_pb_field *f)
{
    bool rule = false, fused = false;
    ru_pb_in in = ru_pb_sub(f);
    for (ru_pb_field e; ru_pb_next(&in, &e);) {
        ru_str s = ru_str_n((const char *)e.data, e.wire == RU_PB_LEN ? e.size_bytes : 0);
        rule = rule || (e.number == 1 && ru_str_ends(s, "rewriter.rule_name"));
        fused = fused || (e.number == 2 && ru_str_find(s, "FuseBatchNorm") >= 0);
    }
    return rule && fused;
}

static ru_status node_parse(ru_pb_in in, ru_arena *arena, rui_onnx_node *n, ru_err *err)
{
    *n = (rui_onnx_node){.name = "", .op = "", .domain = "", .overload = ""};
    uint32_t cap = 0;
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        switch (f.number) {
        case 1:
            RU_TRY(strs_add(&n->in, RU_NODE_ARGS_MAX, &f, arena, err));
            break;
        case 2:
            RU_TRY(strs_add(&n->out, RU_NODE_ARGS_MAX, &f, arena, err));
            break;
        case 3:
            RU_TRY(str_get(&f, arena, &n->name, err));
            break;
        case 4:
            RU_TRY(str_get(&f, arena, &n->op, err));
            break;
        case 5:
            n->attrs = rui_onnx_grow(arena, n->attrs, n->n_attrs, &cap, sizeof *n->attrs, 256);
            if (n->attrs == NULL) {
                return full(err);
            }
            RU_TRY(attr_parse(ru_pb_sub(&f), arena, &n->attrs[n->n_attrs], err));
            n->n_attrs++;
            break;
        case 7:
            RU_TRY(str_get(&f, arena, &n->domain, err));
            break;
        case 8:
            RU_TRY(str_get(&f, arena, &n->overload, err));
            break;
        case 9:
            n->norm_fused = n->norm_fused || tells_of_fused_norm(&f);
            break;
        default:
            break;
        }
    }
    if (strcmp(n->domain, "ai.onnx") == 0) {
        n->domain = "";
    }
    return ru_pb_in_end(&in, "an ONNX node", err);
}

static ru_status nodes_add(rui_onnx_nodes *list, const ru_pb_field *f, ru_arena *arena, ru_err *err)
{
    list->v = rui_onnx_grow(arena, list->v, list->n, &list->cap, sizeof *list->v, RU_NODES_MAX);
    if (list->v == NULL) {
        return full(err);
    }
    RU_TRY(node_parse(ru_pb_sub(f), arena, &list->v[list->n], err));
    list->n++;
    return RU_OK;
}

static ru_status opsets_add(rui_onnx_opsets *list, const ru_pb_field *field, ru_arena *arena,
                            ru_err *err)
{
    list->v = rui_onnx_grow(arena, list->v, list->n, &list->cap, sizeof *list->v, 1024);
    if (list->v == NULL) {
        return full(err);
    }
    rui_onnx_opset *o = &list->v[list->n];
    *o = (rui_onnx_opset){.domain = ""};
    ru_pb_in in = ru_pb_sub(field);
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number == 1) {
            RU_TRY(str_get(&f, arena, &o->domain, err));
        } else if (f.number == 2) {
            o->version = ru_pb_i64(&in, &f);
        }
    }
    if (strcmp(o->domain, "ai.onnx") == 0) {
        o->domain = "";
    }
    list->n++;
    return ru_pb_in_end(&in, "an ONNX opset import", err);
}

static ru_status function_parse(ru_pb_in in, ru_arena *arena, rui_onnx_function *fn, ru_err *err)
{
    *fn = (rui_onnx_function){.name = "", .domain = "", .overload = ""};
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        switch (f.number) {
        case 1:
            RU_TRY(str_get(&f, arena, &fn->name, err));
            break;
        case 4:
            RU_TRY(strs_add(&fn->in, RU_NODE_ARGS_MAX, &f, arena, err));
            break;
        case 5:
            RU_TRY(strs_add(&fn->out, RU_NODE_ARGS_MAX, &f, arena, err));
            break;
        case 7:
            RU_TRY(nodes_add(&fn->nodes, &f, arena, err));
            break;
        case 9:
            RU_TRY(opsets_add(&fn->opsets, &f, arena, err));
            break;
        case 10:
            RU_TRY(str_get(&f, arena, &fn->domain, err));
            break;
        case 11:
            fn->dflts = rui_onnx_grow(arena, fn->dflts, fn->n_dflts, &fn->cap_dflts,
                                      sizeof *fn->dflts, 256);
            if (fn->dflts == NULL) {
                return full(err);
            }
            RU_TRY(attr_parse(ru_pb_sub(&f), arena, &fn->dflts[fn->n_dflts], err));
            fn->n_dflts++;
            break;
        case 13:
            RU_TRY(str_get(&f, arena, &fn->overload, err));
            break;
        default:
            break;
        }
    }
    return ru_pb_in_end(&in, "an ONNX function", err);
}

/* -- value infos ------------------------------------------------------------------------------- */

static ru_status dim_parse(ru_pb_in in, ru_arena *arena, rui_onnx_dim *d, ru_err *err)
{
    *d = (rui_onnx_dim){.value = -1};
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number == 1) {
            d->value = ru_pb_i64(&in, &f);
        } else if (f.number == 2) {
            RU_TRY(str_get(&f, arena, &d->param, err));
        }
    }
    if (d->param != NULL && d->param[0] == 0) {
        d->param = NULL;
    }
    return ru_pb_in_end(&in, "an ONNX dimension", err);
}

static ru_status tensor_type_parse(ru_pb_in in, ru_arena *arena, rui_onnx_info *v, ru_err *err)
{
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number == 1) {
            v->elem_type = (int32_t)ru_pb_i64(&in, &f);
        } else if (f.number == 2) {
            v->has_shape = true;
            ru_pb_in shape = ru_pb_sub(&f);
            for (ru_pb_field d; ru_pb_next(&shape, &d);) {
                if (d.number != 1) {
                    continue;
                }
                if (v->rank == RU_RANK_MAX) {
                    return RU_FAIL(err, RU_E_UNSUPPORTED, "onnx: '%s' has more than %d dimensions",
                                   v->name, RU_RANK_MAX);
                }
                RU_TRY(dim_parse(ru_pb_sub(&d), arena, &v->dims[v->rank++], err));
            }
            RU_TRY(ru_pb_in_end(&shape, "an ONNX shape", err));
        }
    }
    return ru_pb_in_end(&in, "an ONNX tensor type", err);
}

static ru_status info_parse(ru_pb_in in, ru_arena *arena, rui_onnx_info *v, ru_err *err)
{
    *v = (rui_onnx_info){.name = "", .kind = "value without type"};
    ru_pb_field type = {0};
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number == 1) {
            RU_TRY(str_get(&f, arena, &v->name, err));
        } else if (f.number == 2) {
            type = f;
        }
    }
    RU_TRY(ru_pb_in_end(&in, "an ONNX value", err));
    if (type.number == 0) {
        return RU_OK;
    }
    ru_pb_in ty = ru_pb_sub(&type);
    for (ru_pb_field f; ru_pb_next(&ty, &f);) {
        if (f.number == 1) {
            v->kind = "tensor";
            RU_TRY(tensor_type_parse(ru_pb_sub(&f), arena, v, err));
        } else if (f.number == 4 || f.number == 5 || f.number == 8 || f.number == 9) {
            v->kind = f.number == 4   ? "sequence"
                      : f.number == 5 ? "map"
                      : f.number == 9 ? "optional"
                                      : "sparse tensor";
        }
    }
    return ru_pb_in_end(&ty, "an ONNX type", err);
}

static ru_status infos_add(rui_onnx_info **v, uint32_t *n, uint32_t *cap, const ru_pb_field *f,
                           ru_arena *arena, ru_err *err)
{
    *v = rui_onnx_grow(arena, *v, *n, cap, sizeof **v, RU_NODE_ARGS_MAX);
    if (*v == NULL) {
        return full(err);
    }
    RU_TRY(info_parse(ru_pb_sub(f), arena, &(*v)[*n], err));
    (*n)++;
    return RU_OK;
}

/* -- graph and model --------------------------------------------------------------------------- */

static ru_status inits_add(rui_onnx_model *m, const ru_pb_field *f, ru_arena *arena, ru_err *err)
{
    m->inits =
        rui_onnx_grow(arena, m->inits, m->n_inits, &m->cap_inits, sizeof *m->inits, RU_NODES_MAX);
    if (m->inits == NULL || f->wire != RU_PB_LEN) {
        return full(err);
    }
    rui_onnx_bytes bytes = {f->data, f->size_bytes};
    rui_onnx_tensor *t = &m->inits[m->n_inits];
    RU_TRY(rui_onnx_tensor_parse(bytes, arena, t, err));
    rui_onnx_four_as_bytes(t);
    m->n_inits++;
    return RU_OK;
}

static ru_status graph_parse(ru_pb_in in, ru_arena *arena, rui_onnx_model *m, ru_err *err)
{
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        switch (f.number) {
        case 1:
            RU_TRY(nodes_add(&m->nodes, &f, arena, err));
            m->n_norms_fused += m->nodes.v[m->nodes.n - 1].norm_fused ? 1 : 0;
            break;
        case 2:
            RU_TRY(str_get(&f, arena, &m->graph_name, err));
            break;
        case 5:
            RU_TRY(inits_add(m, &f, arena, err));
            break;
        case 11:
            RU_TRY(infos_add(&m->inputs, &m->n_inputs, &m->cap_inputs, &f, arena, err));
            break;
        case 12:
            RU_TRY(infos_add(&m->outputs, &m->n_outputs, &m->cap_outputs, &f, arena, err));
            break;
        case 15:
            return RU_FAIL(err, RU_E_UNSUPPORTED, "onnx: sparse initialisers are not supported");
        default:
            break;
        }
    }
    return ru_pb_in_end(&in, "the ONNX graph", err);
}

ru_status rui_onnx_graph_parse(rui_onnx_bytes bytes, ru_arena *arena, rui_onnx_model *out,
                               ru_err *err)
{
    *out = (rui_onnx_model){.producer = "", .graph_name = ""};
    return graph_parse(ru_pb_in_open(bytes.data, bytes.size_bytes), arena, out, err);
}

static ru_status functions_add(rui_onnx_model *m, const ru_pb_field *f, ru_arena *arena,
                               ru_err *err)
{
    m->functions = rui_onnx_grow(arena, m->functions, m->n_functions, &m->cap_functions,
                                 sizeof *m->functions, RU_NODE_ARGS_MAX);
    if (m->functions == NULL) {
        return full(err);
    }
    RU_TRY(function_parse(ru_pb_sub(f), arena, &m->functions[m->n_functions], err));
    m->n_functions++;
    return RU_OK;
}

ru_status rui_onnx_model_parse(const void *data, int64_t size_bytes, ru_arena *arena,
                               rui_onnx_model *out, ru_err *err)
{
    rui_onnx_model m = {.producer = "", .graph_name = ""};
    bool has_graph = false;
    ru_pb_in in = ru_pb_in_open(data, size_bytes);
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        switch (f.number) {
        case 1:
            m.ir_version = ru_pb_i64(&in, &f);
            break;
        case 2:
            RU_TRY(str_get(&f, arena, &m.producer, err));
            break;
        case 7:
            if (has_graph) {
                return RU_FAIL(err, RU_E_DATA, "onnx: the model has two graphs");
            }
            has_graph = true;
            RU_TRY(graph_parse(ru_pb_sub(&f), arena, &m, err));
            break;
        case 8:
            RU_TRY(opsets_add(&m.opsets, &f, arena, err));
            break;
        case 25:
            RU_TRY(functions_add(&m, &f, arena, err));
            break;
        default:
            break;
        }
    }
    RU_TRY(ru_pb_in_end(&in, "the ONNX model", err));
    if (!has_graph) {
        return RU_FAIL(err, RU_E_DATA, "onnx: this is not an ONNX model, because it has no graph");
    }
    *out = m;
    return RU_OK;
}
