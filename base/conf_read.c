/* Nodes to struct: every check that needs the table. Problems are collected, so that one run names
 * them all; the struct being filled is a staged one that is thrown away when there is any. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/conf_impl.h"
#include "base/json.h"
#include "base/unit.h"

/* Where we are: path of the section at hand. `asked`: required fields must be there. */
typedef struct scope {
    ru_conf *c;
    const char *path; /* "" at the top */
    bool asked;
    const rui_node *near; /* the deepest node of a source on the way here; for places in problems */
} scope;

void rui_conf_problem(ru_conf *c, const rui_node *node, bool at_key, const char *fmt, ...)
{
    c->n_found++;
    if (c->n_problems == RUI_CONF_PROBLEMS_MAX) {
        return;
    }
    ru_text t = ru_text_arena(c->arena);
    const rui_source *source = node != NULL ? node->source : c->defaults;
    uint32_t line = 0, column = 0;
    if (node != NULL) {
        line = at_key && node->key_line != 0 ? node->key_line : node->line;
        column = at_key && node->key_line != 0 ? node->key_column : node->column;
    }
    if (node == NULL) {
        ru_text_put(&t, "configuration: ");
    } else if (line != 0) {
        ru_text_putf(&t, "%s:%u:%u: ", source->label, line, column);
    } else {
        ru_text_putf(&t, "%s: ", source->label);
    }
    va_list ap;
    va_start(ap, fmt);
    ru_text_vputf(&t, fmt, ap);
    va_end(ap);
    c->problems[c->n_problems++] = t.p;
}

static void put_bound(const ru_conf_field *f, double v, ru_text *out)
{
    if (f->type == RU_CONF_TIME) {
        ru_text_time(out, (int64_t)v);
    } else if (f->type == RU_CONF_SIZE) {
        ru_text_size(out, (int64_t)v);
    } else {
        ru_text_f64(out, v);
    }
}

static void put_bounds(const ru_conf_field *f, ru_text *out)
{
    if (f->min >= f->max) {
        return;
    }
    bool top = f->max < 9e18;
    ru_text_put(out, f->open ? " above " : top ? " from " : " of at least ");
    put_bound(f, f->min, out);
    if (top) {
        ru_text_put(out, f->open ? ", at most " : " to ");
        put_bound(f, f->max, out);
    }
}

static const char *const type_words[] = {
    [RU_CONF_BOOL] = "true or false",
    [RU_CONF_I64] = "a whole number",
    [RU_CONF_U32] = "a whole number",
    [RU_CONF_F64] = "a number",
    [RU_CONF_TIME] = "a time such as 250us or 60s",
    [RU_CONF_SIZE] = "a size such as 4MiB or 2GB",
    [RU_CONF_TEXT] = "a text",
    [RU_CONF_CHOICE] = "one of",
    [RU_CONF_I64_LIST] = "a list of whole numbers",
    [RU_CONF_F64_LIST] = "a list of numbers",
    [RU_CONF_TEXT_LIST] = "a list of texts",
    [RU_CONF_F64_MAP] = "a map from names to numbers",
    [RU_CONF_JSON] = "any value",
    [RU_CONF_SECTION] = "a map",
    [RU_CONF_SECTIONS] = "a list of maps",
};

void rui_conf_expected(const ru_conf_field *f, ru_text *out)
{
    if (f->type == RU_CONF_SECTION && f->table->one_of != NULL) {
        ru_text_put(out, "one of");
    } else {
        ru_text_put(out, type_words[f->type]);
    }
    put_bounds(f, out);
    const char *words = f->type == RU_CONF_SECTION ? f->table->one_of : f->choices;
    ru_str rest = ru_str_c(words), word;
    for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
        ru_text_putf(out, "%s %.*s", i > 0 ? "," : "", RU_STR_ARG(word));
    }
}

bool rui_conf_in_bounds(const ru_conf_field *f, double v)
{
    if (f->min >= f->max) {
        return true;
    }
    return (f->open ? v > f->min : v >= f->min) && v <= f->max;
}

bool rui_conf_i64(const ru_conf_field *f, const rui_node *node, int64_t *out)
{
    ru_str text = ru_str_c(node->text);
    int64_t v = 0;
    bool ok;
    if (f->type == RU_CONF_TIME) {
        ok = ru_unit_time(text, &v);
    } else if (f->type == RU_CONF_SIZE) {
        ok = ru_unit_size(text, &v);
    } else {
        double d;
        ok = !node->quoted && ru_str_i64(text, &v);
        if (!ok && !node->quoted && ru_str_f64(text, &d) && fabs(d) < 0x1p53 && d == floor(d)) {
            v = (int64_t)d; /* 1e6 */
            ok = true;
        }
    }
    bool fits = f->type != RU_CONF_U32 || (v >= 0 && v <= UINT32_MAX);
    if (!ok || !fits || !rui_conf_in_bounds(f, (double)v)) {
        return false;
    }
    *out = v;
    return true;
}

bool rui_conf_f64(const ru_conf_field *f, const rui_node *node, double *out)
{
    double v;
    if (node->quoted || !ru_str_f64(ru_str_c(node->text), &v) || !isfinite(v) ||
        !rui_conf_in_bounds(f, v)) {
        return false;
    }
    *out = v;
    return true;
}

bool rui_conf_choice(const ru_conf_field *f, const char *word, uint32_t *out)
{
    ru_str rest = ru_str_c(f->choices), item;
    for (uint32_t i = 0; ru_str_next(&rest, '|', &item); i++) {
        if (ru_str_eq_c(item, word)) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool is_null(const rui_node *n)
{
    return n->kind == RUI_SCALAR && !n->quoted &&
           (*n->text == '\0' || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}

/* The words after "did you mean", out of a '|' list; "" when none is near. */
static void put_nearest_choice(const char *choices, const char *word, ru_text *out)
{
    const char *names[64];
    char copies[64][32];
    uint32_t n = 0;
    ru_str rest = ru_str_c(choices), item;
    while (n < 64 && ru_str_next(&rest, '|', &item)) {
        snprintf(copies[n], sizeof copies[n], "%.*s", RU_STR_ARG(item));
        names[n] = copies[n];
        n++;
    }
    int32_t near = ru_str_nearest(ru_str_c(word), names, n);
    if (near >= 0) {
        ru_text_putf(out, "; did you mean '%s'?", names[near]);
    }
}

static void wrong_value(const scope *s, const ru_conf_field *f, const rui_node *node,
                        const char *path)
{
    char buf[400];
    ru_text t = ru_text_into(buf, sizeof buf);
    ru_text_put(&t, "expected ");
    rui_conf_expected(f, &t);
    const char *choices = f->type == RU_CONF_SECTION ? f->table->one_of : f->choices;
    if (choices != NULL && node->kind == RUI_SCALAR) {
        put_nearest_choice(choices, node->text, &t);
    }
    if (node->kind != RUI_SCALAR) {
        rui_conf_problem(s->c, node, false, "'%s' is a %s, %s", path,
                         node->kind == RUI_MAP ? "map" : "list", buf);
    } else if (is_null(node)) {
        rui_conf_problem(s->c, node, false, "'%s' has no value, %s", path, buf);
    } else {
        rui_conf_problem(s->c, node, false, "'%s' is %s%.60s%s, %s", path, node->quoted ? "\"" : "",
                         node->text, node->quoted ? "\"" : "", buf);
    }
}

static ru_status full(const scope *s, ru_err *err)
{
    (void)s;
    return RU_FAIL(err, RU_E_LIMIT, "not enough memory for the configuration");
}

/* One scalar into its place. false: wrong value. */
static bool put_scalar(const ru_conf_field *f, const rui_node *node, uint8_t *at)
{
    int64_t i;
    double d;
    uint32_t k;
    if (node->kind != RUI_SCALAR || (is_null(node) && f->type != RU_CONF_TEXT)) {
        return false;
    }
    switch (f->type) {
    case RU_CONF_BOOL: {
        bool yes = strcmp(node->text, "true") == 0;
        if (node->quoted || (!yes && strcmp(node->text, "false") != 0)) {
            return false;
        }
        memcpy(at, &yes, sizeof yes);
        return true;
    }
    case RU_CONF_I64:
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
        if (!rui_conf_i64(f, node, &i)) {
            return false;
        }
        memcpy(at, &i, sizeof i);
        return true;
    case RU_CONF_U32:
        if (!rui_conf_i64(f, node, &i)) {
            return false;
        }
        k = (uint32_t)i;
        memcpy(at, &k, sizeof k);
        return true;
    case RU_CONF_F64:
        if (!rui_conf_f64(f, node, &d)) {
            return false;
        }
        memcpy(at, &d, sizeof d);
        return true;
    case RU_CONF_TEXT:
        if (is_null(node)) {
            return false;
        }
        memcpy(at, &node->text, sizeof node->text);
        return true;
    case RU_CONF_CHOICE:
        if (!rui_conf_choice(f, node->text, &k)) {
            return false;
        }
        memcpy(at, &k, sizeof k);
        return true;
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
    case RU_CONF_F64_MAP:
    case RU_CONF_JSON:
    case RU_CONF_SECTION:
    case RU_CONF_SECTIONS:
        break;
    }
    return false;
}

/* Lists of scalars: the element's type and size. */
static ru_conf_field element_of(const ru_conf_field *f, int64_t *elem_bytes)
{
    ru_conf_field e = *f;
    e.type = f->type == RU_CONF_I64_LIST   ? RU_CONF_I64
             : f->type == RU_CONF_F64_LIST ? RU_CONF_F64
                                           : RU_CONF_TEXT;
    *elem_bytes = 8;
    return e;
}

static ru_status read_list(const scope *s, const ru_conf_field *f, const rui_node *node,
                           const char *path, uint8_t *at, ru_err *err)
{
    int64_t elem_bytes;
    ru_conf_field e = element_of(f, &elem_bytes);
    if (node->kind == RUI_MAP || is_null(node)) {
        wrong_value(s, f, node, path);
        return RU_OK;
    }
    uint32_t n = node->kind == RUI_LIST ? node->n : 1;
    uint8_t *items = ru_arena_zalloc(s->c->arena, n * elem_bytes, 8);
    if (items == NULL) {
        return full(s, err);
    }
    const rui_node *child = node->kind == RUI_LIST ? node->first : node;
    for (uint32_t i = 0; i < n; i++, child = child->next) {
        if (!put_scalar(&e, child, items + i * elem_bytes)) {
            char name[RUI_CONF_PATH_MAX];
            snprintf(name, sizeof name, "%s[%u]", path, i);
            wrong_value(s, &e, child, name);
        }
    }
    /* The three list types have one layout: pointer, count. */
    ru_conf_i64s list = {.at = n > 0 ? (const int64_t *)(void *)items : NULL, .n = n};
    memcpy(at, &list, sizeof list);
    return RU_OK;
}

static ru_status read_pairs(const scope *s, const ru_conf_field *f, const rui_node *node,
                            const char *path, uint8_t *at, ru_err *err)
{
    if (node->kind != RUI_MAP && !is_null(node)) {
        wrong_value(s, f, node, path);
        return RU_OK;
    }
    uint32_t n = node->kind == RUI_MAP ? node->n : 0;
    ru_conf_pair *pairs = RU_NEW(s->c->arena, ru_conf_pair, n);
    if (pairs == NULL) {
        return full(s, err);
    }
    ru_conf_field e = *f;
    e.type = RU_CONF_F64;
    uint32_t i = 0;
    for (const rui_node *child = node->first; child != NULL; child = child->next, i++) {
        pairs[i].key = child->key;
        if (!put_scalar(&e, child, (uint8_t *)&pairs[i].value)) {
            char name[RUI_CONF_PATH_MAX];
            snprintf(name, sizeof name, "%s.%s", path, child->key);
            wrong_value(s, &e, child, name);
        }
    }
    ru_conf_pairs list = {.at = pairs, .n = n};
    memcpy(at, &list, sizeof list);
    return RU_OK;
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static bool is_json_number(const char *p)
{
    p += *p == '-';
    size_t whole = strspn(p, "0123456789");
    if (whole == 0 || (whole > 1 && *p == '0')) {
        return false;
    }
    p += whole;
    if (*p == '.') {
        size_t part = strspn(p + 1, "0123456789");
        if (part == 0) {
            return false;
        }
        p += 1 + part;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+';
        size_t exponent = strspn(p, "0123456789");
        p += exponent;
        return exponent > 0 && *p == '\0';
    }
    return *p == '\0';
}

/* Depth is bounded by RUI_CONF_DEPTH_MAX, as many levels as the writer has. */
static void put_json(const rui_node *node, const char *key, ru_json *j)
{
    if (node->kind != RUI_SCALAR) {
        bool map = node->kind == RUI_MAP;
        ru_json_open(j, key, map ? '{' : '[');
        for (const rui_node *child = node->first; child != NULL; child = child->next) {
            put_json(child, map ? child->key : NULL, j);
        }
        ru_json_close(j);
    } else if (is_null(node)) {
        ru_json_null(j, key);
    } else if (!node->quoted && (is_json_number(node->text) || strcmp(node->text, "true") == 0 ||
                                 strcmp(node->text, "false") == 0)) {
        ru_json_raw(j, key, node->text);
    } else {
        ru_json_str(j, key, node->text);
    }
}

static ru_status read_json(const scope *s, const rui_node *node, uint8_t *at, ru_err *err)
{
    ru_text text = ru_text_arena(s->c->arena);
    ru_json j = ru_json_into(&text);
    put_json(node, NULL, &j);
    if (text.cut) {
        return full(s, err);
    }
    const char *p = text.p;
    memcpy(at, &p, sizeof p);
    return RU_OK;
}

static ru_status read_section(const scope *s, const ru_conf_table *t, const rui_node *node,
                              uint8_t *into, ru_err *err);

static ru_status read_sections(const scope *s, const ru_conf_field *f, const rui_node *node,
                               const char *path, uint8_t *at, ru_err *err)
{
    if (node->kind != RUI_LIST && !is_null(node)) {
        wrong_value(s, f, node, path);
        return RU_OK;
    }
    int64_t elem_bytes = f->table->size_bytes;
    uint32_t n = node->kind == RUI_LIST ? node->n : 0;
    uint8_t *items = ru_arena_zalloc(s->c->arena, n * elem_bytes, 64);
    if (items == NULL) {
        return full(s, err);
    }
    uint32_t i = 0;
    for (const rui_node *child = node->first; child != NULL; child = child->next, i++) {
        scope inner = {s->c, ru_arena_printf(s->c->arena, "%s[%u]", path, i), s->asked, child};
        if (inner.path == NULL) {
            return full(s, err);
        }
        /* An element may be short for its alternative, as anywhere else. */
        union {
            const rui_node *in;
            rui_node *out;
        } u = {.in = child};
        const rui_node *spelled = rui_conf_spell(s->c->arena, f->table, u.out);
        if (spelled == NULL) {
            return full(s, err);
        }
        RU_TRY(read_section(&inner, f->table, spelled, items + i * elem_bytes, err));
    }
    ru_conf_sections list = {.at = n > 0 ? items : NULL, .n = n};
    memcpy(at, &list, sizeof list);
    return RU_OK;
}

/* The node of a default: text as it stands in the table. */
static ru_status default_node(const scope *s, const ru_conf_field *f, rui_node **out, ru_err *err)
{
    rui_parse p = {.arena = s->c->arena, .source = s->c->defaults};
    if (f->type > RU_CONF_CHOICE) {
        const char *text = *f->def != '\0' ? f->def : "[]";
        RU_TRY(rui_conf_yaml(&p, text, (int64_t)strlen(text), out, err));
        (*out)->line = (*out)->column = 0;
        if (f->type == RU_CONF_SECTION) {
            *out = rui_conf_spell(s->c->arena, f->table, *out);
        }
        return *out != NULL ? RU_OK : full(s, err);
    }
    rui_node *n = rui_node_new(&p, RUI_SCALAR, 0, 0);
    if (n == NULL) {
        return full(s, err);
    }
    n->text = f->def;
    n->quoted = f->type == RU_CONF_TEXT || f->type == RU_CONF_CHOICE;
    *out = n;
    return RU_OK;
}

static ru_status note_origin(const scope *s, const char *path, const rui_node *node, ru_err *err)
{
    if (s->c->bulk) {
        return RU_OK;
    }
    uint64_t *v = ru_map_put_c(&s->c->origins, path, NULL);
    if (v == NULL) {
        return full(s, err);
    }
    *v = (uint64_t)(uintptr_t)node;
    return RU_OK;
}

/* One field: what was given, else its default, else a problem when it is required. */
static ru_status read_field(const scope *s, const ru_conf_field *f, const rui_node *node,
                            uint8_t *at, ru_err *err)
{
    const char *dot = *s->path != '\0' ? "." : "";
    const char *path = ru_arena_printf(s->c->arena, "%s%s%s", s->path, dot, f->name);
    if (path == NULL) {
        return full(s, err);
    }
    if (node == NULL && f->def != NULL) {
        rui_node *made;
        RU_TRY(default_node(s, f, &made, err));
        node = made;
    }
    if (node != NULL) {
        RU_TRY(note_origin(s, path, node, err));
    }
    if (f->type == RU_CONF_SECTION) {
        scope inner = {s->c, path, s->asked, node != NULL ? node : s->near};
        return read_section(&inner, f->table, node, at, err);
    }
    if (node == NULL) {
        if (s->asked) {
            rui_conf_problem(s->c, s->near, true, "key '%s' is missing: %s", path, f->help);
        }
        if (f->type == RU_CONF_TEXT) {
            const char *empty = "";
            memcpy(at, &empty, sizeof empty);
        }
        return RU_OK;
    }
    switch (f->type) {
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
        return read_list(s, f, node, path, at, err);
    case RU_CONF_F64_MAP:
        return read_pairs(s, f, node, path, at, err);
    case RU_CONF_JSON:
        return read_json(s, node, at, err);
    case RU_CONF_SECTIONS:
        return read_sections(s, f, node, path, at, err);
    case RU_CONF_BOOL:
    case RU_CONF_I64:
    case RU_CONF_U32:
    case RU_CONF_F64:
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
    case RU_CONF_TEXT:
    case RU_CONF_CHOICE:
    case RU_CONF_SECTION:
        break;
    }
    if (!put_scalar(f, node, at)) {
        wrong_value(s, f, node, path);
    }
    return RU_OK;
}

bool rui_conf_called(const ru_conf_table *t, ru_str key, ru_str *ours)
{
    ru_str rest = ru_str_c(t->called), pair, theirs;
    while (ru_str_next(&rest, '|', &pair)) {
        *ours = pair;
        if (ru_str_next(ours, '=', &theirs) && ru_str_eq(theirs, key)) {
            return true;
        }
    }
    return false;
}

static void unknown_key(const scope *s, const ru_conf_table *t, const rui_node *child)
{
    const char *names[256];
    uint32_t n = 0;
    for (; n < t->n && n < RU_ARRAY_LEN(names); n++) {
        names[n] = t->fields[n].name;
    }
    int32_t near = ru_str_nearest(ru_str_c(child->key), names, n);
    const char *dot = *s->path != '\0' ? "." : "";
    ru_str ours;
    if (rui_conf_called(t, ru_str_c(child->key), &ours)) {
        rui_conf_problem(s->c, child, true, "unknown key '%s%s%.60s'; it is called '%.*s' here",
                         s->path, dot, child->key, RU_STR_ARG(ours));
        return;
    }
    const char *colon = strchr(child->key, ':');
    if (colon != NULL && colon[1] != '\0') { /* {lr:0.1} is one word of YAML */
        rui_conf_problem(s->c, child, true,
                         "unknown key '%s%s%.60s'; a blank is missing behind ':'", s->path, dot,
                         child->key);
        return;
    }
    if (near >= 0) {
        rui_conf_problem(s->c, child, true, "unknown key '%s%s%.60s'; did you mean '%s'?", s->path,
                         dot, child->key, names[near]);
        return;
    }
    char buf[300];
    ru_text list = ru_text_into(buf, sizeof buf);
    for (uint32_t i = 0; i < n; i++) {
        ru_text_putf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    rui_conf_problem(s->c, child, true, "unknown key '%s%s%.60s'; known keys here: %s%s", s->path,
                     dot, child->key, buf, list.cut ? "..." : "");
}

/* The number of the alternative that `node` gives, 0 for none; problems for two, or none if asked.
 */
static uint32_t choose(const scope *s, const ru_conf_table *t, const rui_node *node)
{
    uint32_t which = 0;
    const rui_node *first = NULL;
    const char *name = *s->path != '\0' ? s->path : t->name;
    for (const rui_node *child = node != NULL ? node->first : NULL; child != NULL;
         child = child->next) {
        uint32_t k = rui_conf_which(t, child->key);
        if (k != 0 && which != 0) {
            rui_conf_problem(s->c, child, true, "'%s' has both %s and %s; give one of them", name,
                             first->key, child->key);
        }
        if (k != 0) {
            which = k;
            first = child;
        }
    }
    if (which == 0 && !t->none_ok && s->asked) {
        char buf[300];
        ru_text list = ru_text_into(buf, sizeof buf);
        ru_str rest = ru_str_c(t->one_of), item;
        while (ru_str_next(&rest, '|', &item)) {
            ru_text_putf(&list, "%s%.*s", list.n > 0 ? ", " : "", RU_STR_ARG(item));
        }
        rui_conf_problem(s->c, s->near, true, "'%s' needs exactly one of: %s", name, buf);
    }
    return which;
}

/* Where the sentence of a check belongs: at the key in quotes that it begins with ("'a.b' is 3"),
 * or the deepest part of it that was given; else at the section. */
static const rui_node *place_of(const scope *s, const rui_node *section, const char *sentence)
{
    const rui_node *at = s->near;
    ru_str rest = ru_str_c(sentence), key, part;
    if (!ru_str_starts(rest, "'") || !ru_str_next(&rest, '\'', &part) ||
        !ru_str_next(&rest, '\'', &key)) {
        return at;
    }
    for (const rui_node *in = section; in != NULL && ru_str_next(&key, '.', &part);) {
        char name[64];
        (void)snprintf(name, sizeof name, "%.*s", RU_STR_ARG(part));
        in = rui_node_find(in, name);
        at = in != NULL ? in : at;
    }
    return at;
}

/* Depth is bounded by the tables'. */
static ru_status read_section(const scope *s, const ru_conf_table *t, const rui_node *node,
                              uint8_t *into, ru_err *err)
{
    if (node != NULL && is_null(node)) {
        node = NULL;
    }
    if (node != NULL && node->kind != RUI_MAP) {
        ru_conf_field as_field = {.name = t->name, .type = RU_CONF_SECTION, .table = t};
        wrong_value(s, &as_field, node, *s->path != '\0' ? s->path : t->name);
        return RU_OK;
    }
    uint32_t found_before = s->c->n_found;
    for (const rui_node *child = node != NULL ? node->first : NULL; child != NULL;
         child = child->next) {
        if (rui_conf_find(t, child->key) == NULL) {
            unknown_key(s, t, child);
        }
    }
    uint32_t which = 0;
    if (t->one_of != NULL) {
        which = choose(s, t, node);
        memcpy(into + t->which_offset, &which, sizeof which);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        uint32_t k = t->one_of != NULL ? rui_conf_which(t, f->name) : 0;
        scope inner = {s->c, s->path, s->asked && (k == 0 || k == which), s->near};
        const rui_node *child = node != NULL ? rui_node_find(node, f->name) : NULL;
        RU_TRY(read_field(&inner, f, child, into + f->offset, err));
    }
    if (t->check != NULL && s->asked && s->c->n_found == found_before) {
        ru_err why;
        if (t->check(into, &why) != RU_OK) {
            rui_conf_problem(s->c, place_of(s, node, why.text), true, "%s", why.text);
        }
    }
    return RU_OK;
}

ru_status rui_conf_read(ru_conf *c, const ru_conf_table *table, const rui_node *node, bool asked,
                        void *into, ru_err *err)
{
    scope top = {c, "", asked, node};
    return read_section(&top, table, node, into, err);
}
