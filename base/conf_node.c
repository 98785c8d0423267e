/* Trees of configuration nodes: building, finding, merging. */
#include "base/conf_impl.h"

#include <string.h>

static uint32_t nodes_max(const rui_parse *p)
{
    return p->nodes_max != 0 ? p->nodes_max : RUI_CONF_NODES_MAX;
}

rui_node *rui_node_new(rui_parse *p, rui_node_kind kind, uint32_t line, uint32_t column)
{
    if (p->n_nodes >= nodes_max(p)) {
        return NULL;
    }
    rui_node *n = RU_NEW(p->arena, rui_node, 1);
    if (n != NULL) {
        p->n_nodes++;
        n->kind = kind;
        n->source = p->source;
        n->line = line;
        n->column = column;
    }
    return n;
}

ru_status rui_node_full(const rui_parse *p, ru_err *err)
{
    if (p->n_nodes >= nodes_max(p)) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: more than %u values", p->source->label, nodes_max(p));
    }
    return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory for the configuration",
                   p->source->label);
}

void rui_node_append(rui_node *parent, rui_node *child)
{
    if (parent->last != NULL) {
        parent->last->next = child;
    } else {
        parent->first = child;
    }
    parent->last = child;
    parent->n++;
}

rui_node *rui_node_find(const rui_node *map, const char *key)
{
    for (rui_node *n = map->first; n != NULL; n = n->next) {
        if (n->key != NULL && strcmp(n->key, key) == 0) {
            return n;
        }
    }
    return NULL;
}

ru_status rui_node_key_check(const rui_parse *p, const rui_node *map, const rui_node *child,
                             ru_err *err)
{
    const rui_node *old = rui_node_find(map, child->key);
    if (old != NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "%s:%u:%u: key '%.60s' is already in line %u",
                       p->source->label, child->key_line, child->key_column, child->key,
                       old->key_line);
    }
    if (map->n >= RUI_CONF_KEYS_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "%s:%u:%u: more than %d keys in one map", p->source->label,
                       child->key_line, child->key_column, RUI_CONF_KEYS_MAX);
    }
    return RU_OK;
}

const ru_conf_field *rui_conf_find(const ru_conf_table *t, const char *name)
{
    for (uint32_t i = 0; t != NULL && i < t->n; i++) {
        if (strcmp(t->fields[i].name, name) == 0) {
            return &t->fields[i];
        }
    }
    return NULL;
}

uint32_t rui_conf_which(const ru_conf_table *t, const char *name)
{
    ru_str rest = ru_str_c(t->one_of), item;
    for (uint32_t i = 1; ru_str_next(&rest, '|', &item); i++) {
        if (ru_str_eq_c(item, name)) {
            return i;
        }
    }
    return 0;
}

static rui_node *copy_of(ru_arena *arena, const rui_node *n)
{
    rui_node *c = ru_arena_copy(arena, n, (int64_t)sizeof *n, _Alignof(rui_node));
    if (c != NULL) {
        c->next = NULL;
    }
    return c;
}

/* `optimizer: sgd` is short for `optimizer: {sgd: {}}`: the map form of such a word, else `n`. */
static rui_node *spell_word(ru_arena *arena, const ru_conf_table *t, rui_node *n)
{
    const ru_conf_field *f = NULL;
    if (t->one_of != NULL && n->kind == RUI_SCALAR && rui_conf_which(t, n->text) != 0) {
        f = rui_conf_find(t, n->text);
    }
    if (f == NULL || f->type != RU_CONF_SECTION) {
        return n;
    }
    rui_node *map = copy_of(arena, n), *inner = copy_of(arena, n);
    if (map == NULL || inner == NULL) {
        return NULL;
    }
    map->kind = inner->kind = RUI_MAP;
    inner->key = n->text;
    inner->key_line = n->line;
    inner->key_column = n->column;
    rui_node_append(map, inner);
    return map;
}

/* Depth is bounded by the tables'. */
rui_node *rui_conf_spell(ru_arena *arena, const ru_conf_table *t, rui_node *n)
{
    rui_node *out = spell_word(arena, t, n);
    if (out == NULL || out->kind != RUI_MAP || out->n == 0) {
        return out;
    }
    rui_node *copy = copy_of(arena, out);
    if (copy == NULL) {
        return NULL;
    }
    copy->first = copy->last = NULL;
    copy->n = 0;
    bool is_word = out != n;
    for (rui_node *child = out->first; child != NULL; child = child->next) {
        const ru_conf_field *f = rui_conf_find(t, child->key);
        bool section = f != NULL && f->type == RU_CONF_SECTION;
        rui_node *spelled = section ? rui_conf_spell(arena, f->table, child) : child;
        rui_node *kept = spelled != NULL ? copy_of(arena, spelled) : NULL;
        if (kept == NULL) {
            return NULL;
        }
        kept->whole = !is_word && child->kind == RUI_MAP && child->n == 0;
        rui_node_append(copy, kept);
    }
    return copy;
}

/* Does `over` choose another alternative of the table than `name`? */
static bool is_outvoted(const ru_conf_table *t, const rui_node *over, const char *name)
{
    if (t == NULL || t->one_of == NULL || rui_conf_which(t, name) == 0 ||
        rui_node_find(over, name) != NULL) {
        return false;
    }
    for (const rui_node *o = over->first; o != NULL; o = o->next) {
        if (rui_conf_which(t, o->key) != 0) {
            return true;
        }
    }
    return false;
}

/* Depth is bounded by the parsers' limit: both trees have at most RUI_CONF_DEPTH_MAX levels. */
rui_node *rui_conf_merge(ru_arena *arena, const ru_conf_table *table, rui_node *base,
                         rui_node *over)
{
    if (base == NULL || base->kind != RUI_MAP || over->kind != RUI_MAP || over->whole) {
        return over;
    }
    rui_node *out = copy_of(arena, over);
    if (out == NULL) {
        return NULL;
    }
    out->whole = base->whole;
    out->first = out->last = NULL;
    out->n = 0;
    for (rui_node *b = base->first; b != NULL; b = b->next) {
        if (is_outvoted(table, over, b->key)) {
            continue;
        }
        rui_node *o = rui_node_find(over, b->key), *kept = b;
        if (o != NULL) {
            const ru_conf_field *f = rui_conf_find(table, b->key);
            bool section = f != NULL && f->type == RU_CONF_SECTION;
            bool map = f != NULL && f->type == RU_CONF_F64_MAP;
            kept = section || map ? rui_conf_merge(arena, section ? f->table : NULL, b, o) : o;
        }
        kept = kept != NULL ? copy_of(arena, kept) : NULL;
        if (kept == NULL) {
            return NULL;
        }
        rui_node_append(out, kept);
    }
    for (rui_node *o = over->first; o != NULL; o = o->next) {
        if (rui_node_find(base, o->key) == NULL) {
            rui_node *kept = copy_of(arena, o);
            if (kept == NULL) {
                return NULL;
            }
            rui_node_append(out, kept);
        }
    }
    return out;
}
