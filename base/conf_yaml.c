/* YAML to nodes, through libyaml's events. What could grow without bound or mean two things
 * (anchors, aliases, tags, several documents, duplicate keys, maps as keys) is an error. */
#include <string.h>

#include <yaml.h>

#include "base/conf_impl.h"

typedef struct reader {
    yaml_parser_t parser;
    rui_parse *p;
} reader;

static uint32_t place(size_t zero_based)
{
    return zero_based < UINT32_MAX ? (uint32_t)zero_based + 1 : UINT32_MAX;
}

static ru_status fail_at(const reader *r, yaml_mark_t at, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_CONFIG, "%s:%u:%u: %s", r->p->source->label, place(at.line),
                   place(at.column), what);
}

static ru_status next_event(reader *r, yaml_event_t *ev, ru_err *err)
{
    if (yaml_parser_parse(&r->parser, ev)) {
        return RU_OK;
    }
    yaml_parser_t *y = &r->parser;
    const char *problem = y->problem != NULL ? y->problem : "not readable as YAML";
    if (y->error == YAML_MEMORY_ERROR) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory to read YAML", r->p->source->label);
    }
    if (y->error == YAML_READER_ERROR) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: byte %zu: %s", r->p->source->label, y->problem_offset,
                       problem);
    }
    if (y->context != NULL && y->context_mark.line != y->problem_mark.line) {
        return RU_FAIL(err, RU_E_CONFIG, "%s:%u:%u: %s %s that begins in line %u",
                       r->p->source->label, place(y->problem_mark.line),
                       place(y->problem_mark.column), problem, y->context,
                       place(y->context_mark.line));
    }
    return fail_at(r, y->problem_mark, problem, err);
}

static ru_status read_node(reader *r, yaml_event_t *ev, uint32_t depth, rui_node **out,
                           ru_err *err);

static ru_status read_scalar(reader *r, const yaml_event_t *ev, rui_node **out, ru_err *err)
{
    const char *text = (const char *)ev->data.scalar.value;
    size_t n = ev->data.scalar.length;
    if (memchr(text, '\0', n) != NULL) {
        return fail_at(r, ev->start_mark, "a text with a NUL character", err);
    }
    rui_node *node =
        rui_node_new(r->p, RUI_SCALAR, place(ev->start_mark.line), place(ev->start_mark.column));
    char *copy = node != NULL ? ru_arena_strn(r->p->arena, text, (int64_t)n) : NULL;
    if (copy == NULL) {
        return rui_node_full(r->p, err);
    }
    node->text = copy;
    node->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    *out = node;
    return RU_OK;
}

static ru_status read_list(reader *r, const yaml_event_t *ev, uint32_t depth, rui_node **out,
                           ru_err *err)
{
    rui_node *list =
        rui_node_new(r->p, RUI_LIST, place(ev->start_mark.line), place(ev->start_mark.column));
    if (list == NULL) {
        return rui_node_full(r->p, err);
    }
    for (;;) {
        yaml_event_t item;
        RU_TRY(next_event(r, &item, err));
        if (item.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&item);
            *out = list;
            return RU_OK;
        }
        rui_node *child;
        RU_TRY(read_node(r, &item, depth + 1, &child, err));
        rui_node_append(list, child);
    }
}

static ru_status read_map(reader *r, const yaml_event_t *ev, uint32_t depth, rui_node **out,
                          ru_err *err)
{
    rui_node *map =
        rui_node_new(r->p, RUI_MAP, place(ev->start_mark.line), place(ev->start_mark.column));
    if (map == NULL) {
        return rui_node_full(r->p, err);
    }
    for (;;) {
        yaml_event_t item;
        RU_TRY(next_event(r, &item, err));
        if (item.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&item);
            *out = map;
            return RU_OK;
        }
        yaml_mark_t at = item.start_mark;
        rui_node *key, *child;
        RU_TRY(read_node(r, &item, depth + 1, &key, err));
        if (key->kind != RUI_SCALAR) {
            return fail_at(r, at, "a key must be a text, not a list or map", err);
        }
        RU_TRY(next_event(r, &item, err));
        RU_TRY(read_node(r, &item, depth + 1, &child, err));
        child->key = key->text;
        child->key_line = key->line;
        child->key_column = key->column;
        RU_TRY(rui_node_key_check(r->p, map, child, err));
        rui_node_append(map, child);
    }
}

/* Why this event may not stand here, or NULL. */
static const char *forbidden(const yaml_event_t *ev, uint32_t depth)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (ev->type == YAML_ALIAS_EVENT) {
        return "aliases (*name) are not supported; write the value again";
    }
    if (ev->type == YAML_SCALAR_EVENT) {
        anchor = ev->data.scalar.anchor;
        tag = ev->data.scalar.tag;
    } else if (ev->type == YAML_SEQUENCE_START_EVENT) {
        anchor = ev->data.sequence_start.anchor;
        tag = ev->data.sequence_start.tag;
    } else if (ev->type == YAML_MAPPING_START_EVENT) {
        anchor = ev->data.mapping_start.anchor;
        tag = ev->data.mapping_start.tag;
    } else {
        return "expected a value";
    }
    if (anchor != NULL) {
        return "anchors (&name) are not supported";
    }
    if (tag != NULL) {
        return "tags (!name) are not supported";
    }
    return depth > RUI_CONF_DEPTH_MAX ? "nested deeper than 32 levels" : NULL;
}

/* Takes the event. Recursion is bounded by RUI_CONF_DEPTH_MAX. */
static ru_status read_node(reader *r, yaml_event_t *ev, uint32_t depth, rui_node **out, ru_err *err)
{
    ru_status st;
    const char *why = forbidden(ev, depth);
    if (why != NULL) {
        st = fail_at(r, ev->start_mark, why, err);
    } else if (ev->type == YAML_SCALAR_EVENT) {
        st = read_scalar(r, ev, out, err);
    } else if (ev->type == YAML_SEQUENCE_START_EVENT) {
        st = read_list(r, ev, depth, out, err);
    } else {
        st = read_map(r, ev, depth, out, err);
    }
    yaml_event_delete(ev);
    return st;
}

static ru_status read_document(reader *r, rui_node **out, ru_err *err)
{
    yaml_event_t ev;
    rui_node *root = NULL;
    for (uint32_t documents = 0;;) {
        RU_TRY(next_event(r, &ev, err));
        yaml_event_type_t type = ev.type;
        if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_END_EVENT) {
            yaml_event_delete(&ev);
        } else if (type == YAML_STREAM_END_EVENT) {
            yaml_event_delete(&ev);
            break;
        } else if (type == YAML_DOCUMENT_START_EVENT) {
            yaml_mark_t at = ev.start_mark;
            yaml_event_delete(&ev);
            if (documents++ > 0) {
                return fail_at(r, at, "the file has a second document; only one is allowed", err);
            }
        } else {
            RU_TRY(read_node(r, &ev, 0, &root, err));
        }
    }
    if (root == NULL) {
        root = rui_node_new(r->p, RUI_MAP, 1, 1);
    }
    if (root == NULL) {
        return rui_node_full(r->p, err);
    }
    *out = root;
    return RU_OK;
}

ru_status rui_conf_yaml(rui_parse *p, const char *text, int64_t size_bytes, rui_node **out,
                        ru_err *err)
{
    reader r = {.p = p};
    if (!yaml_parser_initialize(&r.parser)) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory to read YAML", p->source->label);
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, (size_t)size_bytes);
    ru_status st = read_document(&r, out, err);
    yaml_parser_delete(&r.parser);
    return st;
}
