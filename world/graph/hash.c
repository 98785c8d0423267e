/* A 64-bit hash of a graph: structure, types, attributes, constant data; names do not count.
 *
 * Words are mixed one by one with a multiply and a shift (the finaliser of a Weyl-sequence
 * generator): not for adversaries, the same on every machine of one byte order. */
#include "world/graph/graph.h"

#include <string.h>

static uint64_t mix(uint64_t h, uint64_t x)
{
    h += x + 0x9e3779b97f4a7c15U;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9U;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebU;
    return h ^ (h >> 31);
}

static uint64_t mix_bytes(uint64_t h, const void *data, int64_t n)
{
    const uint8_t *p = data;
    h = mix(h, (uint64_t)n);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, sizeof w);
        h = mix(h, w);
    }
    uint64_t w = 0;
    if (n > 0) {
        memcpy(&w, p, (size_t)n);
    }
    return mix(h, w);
}

static uint64_t mix_type(uint64_t h, const ru_type *t)
{
    h = mix(h, ((uint64_t)t->dtype << 32) | t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        h = mix(h, (uint64_t)t->dims[i]);
    }
    return h;
}

static uint64_t mix_double(uint64_t h, double x)
{
    uint64_t w;
    memcpy(&w, &x, sizeof w);
    return mix(h, w);
}

static uint64_t mix_attr(uint64_t h, const ru_attr *a)
{
    h = mix(h, ((uint64_t)a->key << 32) | (uint64_t)a->kind);
    h = mix(h, a->n);
    switch (a->kind) {
    case RU_ATTR_INT:
        return mix(h, (uint64_t)a->u.i);
    case RU_ATTR_FLOAT:
        return mix_double(h, a->u.f);
    case RU_ATTR_STR:
        return mix_bytes(h, a->u.s, (int64_t)strlen(a->u.s));
    case RU_ATTR_INTS:
        return mix_bytes(h, a->u.is, (int64_t)a->n * 8);
    case RU_ATTR_FLOATS:
        for (uint32_t i = 0; i < a->n; i++) {
            h = mix_double(h, a->u.fs[i]);
        }
        return h;
    case RU_ATTR_STRS:
        for (uint32_t i = 0; i < a->n; i++) {
            h = mix_bytes(h, a->u.ss[i], (int64_t)strlen(a->u.ss[i]));
        }
        return h;
    case RU_ATTR_TENSOR:
        h = mix_type(h, a->u.t.type);
        return a->u.t.data != NULL && ru_type_is_concrete(a->u.t.type)
                   ? mix_bytes(h, a->u.t.data, ru_type_bytes(a->u.t.type))
                   : h;
    default:
        return h;
    }
}

uint64_t ru_graph_hash(const ru_graph *g)
{
    uint64_t h = mix(0, g->n_values);
    for (uint32_t i = 1; i < g->n_values; i++) {
        const ru_value *v = &g->values[i];
        h = mix_type(mix(h, ((uint64_t)v->kind << 32) | (uint64_t)v->role), &v->type);
        if (v->kind == RU_VALUE_CONST && v->data != NULL) {
            h = mix_bytes(h, v->data, ru_type_bytes(&v->type));
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        h = mix(h, ((uint64_t)n->op << 32) | n->n_attrs);
        h = mix(h, ((uint64_t)n->n_in << 32) | n->n_out);
        for (uint32_t k = 0; k < n->n_in; k++) {
            h = mix(h, n->in[k].v);
        }
        for (uint32_t k = 0; k < n->n_out; k++) {
            h = mix(h, n->out[k].v);
        }
        for (uint32_t k = 0; k < n->n_attrs; k++) {
            h = mix_attr(h, &n->attrs[k]);
        }
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        h = mix(h, g->inputs[i].v);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        h = mix(h, g->outputs[i].v);
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        h = mix(h, ((uint64_t)g->updates[i].state.v << 32) | g->updates[i].value.v);
    }
    return h;
}
