/* Graphs and types as text: one node a line.
 *
 *   graph "lenet" N
 *     input  x f32[N,1,28,28]
 *     param  conv1.weight f32[6,1,5,5]
 *     %7 f32[N,6,24,24] = Conv(x, conv1.weight, conv1.bias; strides=[1,1])
 *     output %7
 *     update conv1.weight <- %31 */
#include "world/graph/graph.h"
#include "world/graph/text_impl.h"

#include <string.h>

static bool text_room(rui_text *t, int64_t more)
{
    if (t->full || t->n + more + 1 <= t->cap) {
        return !t->full;
    }
    int64_t cap = t->cap < 4096 ? 4096 : t->cap * 2;
    cap = cap < t->n + more + 1 ? t->n + more + 1 : cap;
    char *p = ru_arena_alloc(t->arena, cap, 1);
    if (p == NULL) {
        t->full = true;
        return false;
    }
    if (t->n > 0) {
        memcpy(p, t->at, (size_t)t->n);
    }
    p[t->n] = '\0';
    t->at = p;
    t->cap = cap;
    return true;
}

void rui_text_add(rui_text *t, const char *s)
{
    int64_t len = (int64_t)strlen(s);
    if (text_room(t, len)) {
        memcpy(t->at + t->n, s, (size_t)len + 1);
        t->n += len;
    }
}

void rui_text_fmt(rui_text *t, const char *fmt, ...)
{
    ru_arena_mark mark = ru_arena_mark_get(t->arena);
    char small[64] = "";
    va_list ap;
    va_start(ap, fmt);
    const char *s = ru_arena_vprintf(t->arena, fmt, ap);
    va_end(ap);
    strncpy(small, s != NULL ? s : "", sizeof small - 1);
    t->full = t->full || s == NULL;
    ru_arena_rewind(t->arena, mark);
    rui_text_add(t, small);
}

void rui_text_int(rui_text *t, int64_t x)
{
    rui_text_fmt(t, "%lld", (long long)x);
}

/* Decimal digits of x at *p, not beyond end; returns the new place. */
static char *put_int(char *p, const char *end, int64_t x)
{
    char tmp[24];
    uint32_t n = 0;
    uint64_t u = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    do {
        tmp[n++] = (char)('0' + u % 10);
        u /= 10;
    } while (u != 0);
    if (x < 0) {
        tmp[n++] = '-';
    }
    while (n > 0 && p < end) {
        *p++ = tmp[--n];
    }
    return p;
}

static char *put_str(char *p, const char *end, const char *s)
{
    while (*s != '\0' && p < end) {
        *p++ = *s++;
    }
    return p;
}

const char *ru_type_print(const ru_graph *g, const ru_type *t, char *into, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 1);
    char *p = into;
    const char *end = into + size_bytes - 1;
    p = put_str(p, end, ru_dtype_name(t->dtype));
    p = put_str(p, end, "[");
    for (uint32_t i = 0; i < t->rank && i < RU_RANK_MAX; i++) {
        int64_t d = t->dims[i];
        p = put_str(p, end, i == 0 ? "" : ",");
        if (d == RU_DIM_UNKNOWN) {
            p = put_str(p, end, "?");
        } else if (ru_dim_is_symbolic(d)) {
            uint32_t s = ru_dim_sym(d);
            if (ru_dim_coef(d) != 1) {
                p = put_int(p, end, ru_dim_coef(d));
                p = put_str(p, end, "*");
            }
            p = put_str(p, end, g != NULL && s < g->n_symbols ? g->symbols[s] : "?");
        } else {
            p = put_int(p, end, d);
        }
    }
    p = put_str(p, end, "]");
    *p = '\0';
    return into;
}

static void put_value(rui_text *t, const ru_graph *g, ru_value_id id)
{
    if (id.v == 0) {
        rui_text_add(t, "-");
    } else if (id.v < g->n_values && g->values[id.v].name != NULL) {
        rui_text_add(t, g->values[id.v].name);
    } else {
        rui_text_fmt(t, "%%%u", id.v);
    }
}

static void put_type(rui_text *t, const ru_graph *g, const ru_type *type)
{
    char buf[256];
    rui_text_add(t, ru_type_print(g, type, buf, sizeof buf));
}

enum { SHOWN_MAX = 16 }; /* array elements printed before "..." */

static void put_attr(rui_text *t, const ru_graph *g, const ru_attr *a)
{
    rui_text_add(t, ru_attr_name(a->key));
    rui_text_add(t, "=");
    uint32_t n = a->n < SHOWN_MAX ? a->n : SHOWN_MAX;
    switch (a->kind) {
    case RU_ATTR_INT:
        rui_text_int(t, a->u.i);
        return;
    case RU_ATTR_FLOAT:
        rui_text_fmt(t, "%.9g", a->u.f);
        return;
    case RU_ATTR_STR:
        rui_text_add(t, "\"");
        rui_text_add(t, a->u.s);
        rui_text_add(t, "\"");
        return;
    case RU_ATTR_TENSOR:
        put_type(t, g, a->u.t.type);
        return;
    case RU_ATTR_INTS:
    case RU_ATTR_FLOATS:
    case RU_ATTR_STRS:
    default:
        break;
    }
    rui_text_add(t, "[");
    for (uint32_t i = 0; i < n; i++) {
        rui_text_add(t, i == 0 ? "" : ",");
        if (a->kind == RU_ATTR_INTS) {
            rui_text_int(t, a->u.is[i]);
        } else if (a->kind == RU_ATTR_FLOATS) {
            rui_text_fmt(t, "%.9g", a->u.fs[i]);
        } else {
            rui_text_add(t, a->u.ss[i]);
        }
    }
    rui_text_add(t, n < a->n ? ",...]" : "]");
}

static void put_node(rui_text *t, const ru_graph *g, const ru_node *n)
{
    rui_text_add(t, "  ");
    for (uint32_t k = 0; k < n->n_out; k++) {
        rui_text_add(t, k == 0 ? "" : ", ");
        put_value(t, g, n->out[k]);
        if (n->out[k].v != 0) {
            rui_text_add(t, " ");
            put_type(t, g, &g->values[n->out[k].v].type);
        }
    }
    rui_text_add(t, " = ");
    rui_text_add(t, ru_op_get(n->op)->name);
    rui_text_add(t, "(");
    for (uint32_t k = 0; k < n->n_in; k++) {
        rui_text_add(t, k == 0 ? "" : ", ");
        put_value(t, g, n->in[k]);
    }
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        rui_text_add(t, k == 0 ? "; " : ", ");
        put_attr(t, g, &n->attrs[k]);
    }
    rui_text_add(t, ")\n");
}

static const char *value_word(const ru_value *v)
{
    switch (v->kind) {
    case RU_VALUE_INPUT:
        return "input ";
    case RU_VALUE_CONST:
        return "const ";
    case RU_VALUE_STATE:
        return v->role == RU_ROLE_PARAM    ? "param "
               : v->role == RU_ROLE_BUFFER ? "buffer"
               : v->role == RU_ROLE_SLOT   ? "slot  "
               : v->role == RU_ROLE_CACHE  ? "cache "
                                           : "state ";
    case RU_VALUE_TEMP:
    default:
        return NULL;
    }
}

const char *ru_graph_print(const ru_graph *g, ru_arena *arena)
{
    rui_text t = {.arena = arena};
    rui_text_add(&t, "graph \"");
    rui_text_add(&t, g->name);
    rui_text_add(&t, "\"\n");
    for (uint32_t i = 1; i < g->n_values; i++) {
        const char *word = value_word(&g->values[i]);
        if (word != NULL) {
            rui_text_add(&t, "  ");
            rui_text_add(&t, word);
            rui_text_add(&t, " ");
            put_value(&t, g, (ru_value_id){i});
            rui_text_add(&t, " ");
            put_type(&t, g, &g->values[i].type);
            rui_text_add(&t, "\n");
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        put_node(&t, g, &g->nodes[i]);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        rui_text_add(&t, "  output ");
        put_value(&t, g, g->outputs[i]);
        rui_text_add(&t, "\n");
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        rui_text_add(&t, "  update ");
        put_value(&t, g, g->updates[i].state);
        rui_text_add(&t, " <- ");
        put_value(&t, g, g->updates[i].value);
        rui_text_add(&t, "\n");
    }
    return t.full || t.at == NULL ? "(the arena is full)" : t.at;
}
