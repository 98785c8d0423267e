/* JSON to nodes. jansson checks the text (strict syntax, UTF-8, duplicate keys) and decodes
 * strings; a second walk over the same text, in step with jansson's tree, finds the place of every
 * value. That walk needs no checks of its own: it runs only over text that jansson has accepted. */
#include <string.h>

#include <jansson.h>

#include "base/conf_impl.h"

typedef struct walker {
    rui_parse *p;
    const char *at, *end;
    uint32_t line, column;
} walker;

static void step(walker *w)
{
    if (w->at < w->end) {
        if (*w->at == '\n') {
            w->line++;
            w->column = 1;
        } else {
            w->column += ((uint8_t)*w->at & 0xc0) != 0x80; /* count characters, not bytes */
        }
        w->at++;
    }
}

static void skip_blanks(walker *w)
{
    while (w->at < w->end && strchr(" \t\r\n", *w->at) != NULL && *w->at != '\0') {
        step(w);
    }
}

/* Over one punctuation mark and the blanks around it, when it stands here. */
static void skip_mark(walker *w, char mark)
{
    skip_blanks(w);
    if (w->at < w->end && *w->at == mark) {
        step(w);
    }
    skip_blanks(w);
}

static void skip_string(walker *w)
{
    step(w);
    while (w->at < w->end && *w->at != '"') {
        if (*w->at == '\\') {
            step(w);
        }
        step(w);
    }
    step(w);
}

static ru_status walk(walker *w, json_t *v, uint32_t depth, rui_node **out, ru_err *err);

static ru_status walk_object(walker *w, json_t *v, uint32_t depth, rui_node *map, ru_err *err)
{
    const char *key;
    json_t *item;
    skip_mark(w, '{');
    json_object_foreach(v, key, item)
    {
        uint32_t line = w->line, column = w->column;
        skip_string(w);
        skip_mark(w, ':');
        rui_node *child;
        RU_TRY(walk(w, item, depth + 1, &child, err));
        child->key = ru_arena_str(w->p->arena, key);
        if (child->key == NULL) {
            return rui_node_full(w->p, err);
        }
        child->key_line = line;
        child->key_column = column;
        RU_TRY(rui_node_key_check(w->p, map, child, err));
        rui_node_append(map, child);
        skip_mark(w, ',');
    }
    skip_mark(w, '}');
    return RU_OK;
}

static ru_status walk_array(walker *w, json_t *v, uint32_t depth, rui_node *list, ru_err *err)
{
    skip_mark(w, '[');
    for (size_t i = 0; i < json_array_size(v); i++) {
        rui_node *child;
        RU_TRY(walk(w, json_array_get(v, i), depth + 1, &child, err));
        rui_node_append(list, child);
        skip_mark(w, ',');
    }
    skip_mark(w, ']');
    return RU_OK;
}

static ru_status walk_scalar(walker *w, json_t *v, rui_node *node, ru_err *err)
{
    const char *text = w->at;
    int64_t n;
    if (json_is_string(v)) {
        skip_string(w);
        text = json_string_value(v);
        n = (int64_t)json_string_length(v);
    } else {
        while (w->at < w->end && strchr(" \t\r\n,]}", *w->at) == NULL) {
            step(w);
        }
        n = w->at - text;
    }
    node->quoted = json_is_string(v);
    node->text = ru_arena_strn(w->p->arena, text, n);
    return node->text != NULL ? RU_OK : rui_node_full(w->p, err);
}

/* Recursion is bounded by RUI_CONF_DEPTH_MAX. */
static ru_status walk(walker *w, json_t *v, uint32_t depth, rui_node **out, ru_err *err)
{
    skip_blanks(w);
    if (depth > RUI_CONF_DEPTH_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "%s:%u:%u: nested deeper than %d levels",
                       w->p->source->label, w->line, w->column, RUI_CONF_DEPTH_MAX);
    }
    rui_node_kind kind = json_is_object(v) ? RUI_MAP : json_is_array(v) ? RUI_LIST : RUI_SCALAR;
    rui_node *node = rui_node_new(w->p, kind, w->line, w->column);
    if (node == NULL) {
        return rui_node_full(w->p, err);
    }
    *out = node;
    if (kind == RUI_MAP) {
        return walk_object(w, v, depth, node, err);
    }
    return kind == RUI_LIST ? walk_array(w, v, depth, node, err) : walk_scalar(w, v, node, err);
}

ru_status rui_conf_json(rui_parse *p, const char *text, int64_t size_bytes, rui_node **out,
                        ru_err *err)
{
    json_error_t problem;
    if (size_bytes == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: the text is empty, expected JSON", p->source->label);
    }
    json_t *root =
        json_loadb(text, (size_t)size_bytes,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &problem);
    if (root == NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "%s:%d:%d: %s", p->source->label, problem.line,
                       problem.column, problem.text);
    }
    walker w = {.p = p, .at = text, .end = text + size_bytes, .line = 1, .column = 1};
    ru_status st = walk(&w, root, 0, out, err);
    json_decref(root);
    return st;
}
