/* Configuration: sources in, struct out. See conf_node.c (trees), conf_yaml.c and conf_json.c
 * (syntax), conf_read.c (checks), conf_print.c (dump, help), conf_schema.c (JSON Schema). */
#include "base/conf.h"

#include <string.h>

#include "base/conf_impl.h"

/* Is the table itself sound? Depth is bounded, so that no walk over tables needs a bound of its
 * own. */
static ru_status check_table(const ru_conf_table *t, uint32_t depth, ru_err *err)
{
    if (depth > 16) {
        return RU_FAIL(err, RU_E_BUG, "table '%s': nested deeper than 16", t->name);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        bool section = f->type == RU_CONF_SECTION || f->type == RU_CONF_SECTIONS;
        if (f->name == NULL || f->help == NULL || f->offset >= t->size_bytes) {
            return RU_FAIL(err, RU_E_BUG,
                           "table '%s': field %u lacks a name, help or place in %u bytes", t->name,
                           i, t->size_bytes);
        }
        if (rui_conf_find(t, f->name) != f) {
            return RU_FAIL(err, RU_E_BUG, "table '%s': two fields '%s'", t->name, f->name);
        }
        if (section != (f->table != NULL) || (f->type == RU_CONF_CHOICE) != (f->choices != NULL)) {
            return RU_FAIL(err, RU_E_BUG, "table '%s': field '%s' lacks its table or choices",
                           t->name, f->name);
        }
        if (section) {
            RU_TRY(check_table(f->table, depth + 1, err));
        }
    }
    ru_str rest = ru_str_c(t->one_of), item;
    while (ru_str_next(&rest, '|', &item)) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < t->n; i++) {
            found += ru_str_eq_c(item, t->fields[i].name);
        }
        if (found != 1) {
            return RU_FAIL(err, RU_E_BUG, "table '%s': one_of names '%.*s', which is no field",
                           t->name, RU_STR_ARG(item));
        }
    }
    return RU_OK;
}

ru_status ru_conf_new(const ru_conf_table *table, ru_arena *arena, ru_conf **out, ru_err *err)
{
    RU_TRY(check_table(table, 0, err));
    ru_conf *c = RU_NEW(arena, ru_conf, 1);
    rui_source *defaults = RU_NEW(arena, rui_source, 1);
    void *scratch = ru_arena_zalloc(arena, table->size_bytes, 64);
    if (c == NULL || defaults == NULL || scratch == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for the configuration");
    }
    *defaults = (rui_source){"default", RUI_DEFAULT};
    c->table = table;
    c->arena = arena;
    c->defaults = defaults;
    ru_map_init(&c->origins, arena, 0);
    /* Every default must be right by itself; what is required or asked of a user is not, here. */
    RU_TRY(rui_conf_read(c, table, NULL, false, scratch, err));
    for (uint32_t i = 0; i < c->n_problems; i++) {
        if (strncmp(c->problems[i], "default", 7) == 0) {
            return RU_FAIL(err, RU_E_BUG, "table '%s': %s", table->name, c->problems[i]);
        }
    }
    c->n_problems = c->n_found = 0;
    *out = c;
    return RU_OK;
}

static ru_status add_tree(ru_conf *c, const rui_source *source, rui_node *root, ru_err *err)
{
    rui_node **tree = &c->trees[source->rank];
    rui_node *spelled = rui_conf_spell(c->arena, c->table, root);
    rui_node *merged = spelled != NULL ? rui_conf_merge(c->arena, c->table, *tree, spelled) : NULL;
    if (merged == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory for the configuration",
                       source->label);
    }
    *tree = merged;
    return RU_OK;
}

static ru_status new_source(ru_conf *c, const char *label, rui_rank rank, rui_source **out,
                            ru_err *err)
{
    rui_source *s = RU_NEW(c->arena, rui_source, 1);
    char *name = ru_arena_str(c->arena, label);
    if (s == NULL || name == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory for the configuration", label);
    }
    *s = (rui_source){name, rank};
    *out = s;
    return RU_OK;
}

static ru_status add_text(ru_conf *c, const char *label, const char *text, int64_t size_bytes,
                          bool json, ru_err *err)
{
    int64_t text_max = c->text_max != 0 ? c->text_max : RUI_CONF_TEXT_MAX;
    if (size_bytes > text_max) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: the file has %lld bytes; at most %lld are allowed",
                       label, (long long)size_bytes, (long long)text_max);
    }
    rui_source *source;
    RU_TRY(new_source(c, label, RUI_FILE, &source, err));
    rui_parse p = {.arena = c->arena, .source = source, .nodes_max = c->nodes_max};
    rui_node *root;
    RU_TRY(json ? rui_conf_json(&p, text, size_bytes, &root, err)
                : rui_conf_yaml(&p, text, size_bytes, &root, err));
    return add_tree(c, source, root, err);
}

ru_status ru_conf_add_yaml(ru_conf *c, const char *label, const char *text, int64_t size_bytes,
                           ru_err *err)
{
    return add_text(c, label, text, size_bytes, false, err);
}

ru_status ru_conf_add_json(ru_conf *c, const char *label, const char *text, int64_t size_bytes,
                           ru_err *err)
{
    return add_text(c, label, text, size_bytes, true, err);
}

ru_status ru_conf_add_file(ru_conf *c, const char *path, const char *text, int64_t size_bytes,
                           ru_err *err)
{
    return add_text(c, path, text, size_bytes, ru_str_ends(ru_str_c(path), ".json"), err);
}

const char *ru_conf_peek(const ru_conf *c, const char *path)
{
    const char *found = NULL;
    for (uint32_t rank = RUI_FILE; rank <= RUI_FLAG; rank++) {
        const rui_node *node = c->trees[rank];
        ru_str rest = ru_str_c(path), part = {0};
        while (node != NULL && ru_str_next(&rest, '.', &part)) {
            char key[RUI_CONF_PATH_MAX];
            ru_text name = ru_text_into(key, sizeof key);
            ru_text_put_n(&name, part.p, part.n);
            node = node->kind == RUI_MAP ? rui_node_find(node, key) : NULL;
        }
        found = node != NULL && node->kind == RUI_SCALAR ? node->text : found;
    }
    return found;
}

void ru_conf_bulk(ru_conf *c)
{
    c->text_max = RU_CONF_BULK_BYTES_MAX;
    c->nodes_max = RU_CONF_BULK_VALUES_MAX;
    c->bulk = true;
}

static bool is_scalar(ru_conf_type type)
{
    return type <= RU_CONF_CHOICE;
}

static void names_of(const ru_conf_table *t, const char **names, uint32_t *n, uint32_t n_max)
{
    *n = 0;
    for (uint32_t i = 0; t != NULL && i < t->n && *n < n_max; i++) {
        names[(*n)++] = t->fields[i].name;
    }
}

/* The field at `path` below `t`, NULL when there is none; a key of a map gives the map's field. */
static const ru_conf_field *field_at(const ru_conf_table *t, ru_str path, ru_str *bad,
                                     const ru_conf_table **where)
{
    const ru_conf_field *f = NULL;
    ru_str word;
    while (ru_str_next(&path, '.', &word)) {
        if (f != NULL && f->type == RU_CONF_F64_MAP) {
            return f;
        }
        t = f != NULL ? f->table : t;
        *where = t;
        *bad = word;
        f = NULL;
        for (uint32_t i = 0; t != NULL && i < t->n; i++) {
            f = ru_str_eq_c(word, t->fields[i].name) ? &t->fields[i] : f;
        }
        if (f == NULL || (f->type == RU_CONF_SECTIONS && path.n > 0)) {
            return NULL; /* elements of a list have no path */
        }
    }
    return f;
}

/* value at path under a label, as a chain of maps of one key each. */
static ru_status add_path(ru_conf *c, const char *label, rui_rank rank, ru_str path,
                          const char *value, ru_err *err)
{
    ru_str bad = path;
    const ru_conf_table *where = c->table;
    const ru_conf_field *f =
        path.n < RUI_CONF_PATH_MAX ? field_at(c->table, path, &bad, &where) : NULL;
    if (f == NULL) {
        const char *names[256];
        uint32_t n;
        names_of(where, names, &n, RU_ARRAY_LEN(names));
        int32_t near = ru_str_nearest(bad, names, n);
        ru_str ours;
        if (where != NULL && rui_conf_called(where, bad, &ours)) {
            return RU_FAIL(err, RU_E_CONFIG, "%s: unknown key '%.*s'; it is called '%.*s' here",
                           label, RU_STR_ARG(path), RU_STR_ARG(ours));
        }
        return RU_FAIL(err, RU_E_CONFIG, "%s: unknown key '%.*s'%s%s%s", label, RU_STR_ARG(path),
                       near >= 0 ? "; did you mean '" : "", near >= 0 ? names[near] : "",
                       near >= 0 ? "'?" : "");
    }
    rui_source *source;
    RU_TRY(new_source(c, label, rank, &source, err));
    rui_parse p = {.arena = c->arena, .source = source};
    rui_node *node = NULL;
    if (is_scalar(f->type) || *value == '\0') {
        node = rui_node_new(&p, RUI_SCALAR, 0, 0);
        char *text = node != NULL ? ru_arena_str(c->arena, value) : NULL;
        if (text == NULL) {
            return rui_node_full(&p, err);
        }
        node->text = text;
        node->quoted = f->type == RU_CONF_TEXT || f->type == RU_CONF_CHOICE;
    } else {
        RU_TRY(rui_conf_yaml(&p, value, (int64_t)strlen(value), &node, err));
    }
    /* From the last word to the first: wrap the node in a map of that key. */
    while (path.n > 0) {
        int64_t cut = path.n;
        while (cut > 0 && path.p[cut - 1] != '.') {
            cut--;
        }
        rui_node *map = rui_node_new(&p, RUI_MAP, 0, 0);
        char *key = ru_arena_strn(c->arena, path.p + cut, path.n - cut);
        if (map == NULL || key == NULL) {
            return rui_node_full(&p, err);
        }
        node->key = key;
        rui_node_append(map, node);
        node = map;
        path.n = cut > 0 ? cut - 1 : 0;
    }
    return add_tree(c, source, node, err);
}

ru_status ru_conf_add_set(ru_conf *c, const char *assignment, ru_err *err)
{
    const char *eq = strchr(assignment, '=');
    if (eq == NULL || eq == assignment) {
        return RU_FAIL(err, RU_E_USAGE, "--set %.80s: expected KEY=VALUE, as in train.batch=64",
                       assignment);
    }
    char label[128];
    ru_text t = ru_text_into(label, sizeof label);
    ru_text_putf(&t, "--set %.100s", assignment);
    return add_path(c, label, RUI_SET, ru_str_n(assignment, eq - assignment), eq + 1, err);
}

ru_status ru_conf_add_flag(ru_conf *c, const char *flag, const char *path, const char *value,
                           ru_err *err)
{
    return add_path(c, flag, RUI_FLAG, ru_str_c(path), value, err);
}

/* Depth is that of the tables, checked in check_table. */
static ru_status add_env_of(ru_conf *c, const ru_conf_table *t, ru_str prefix, ru_err *err)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        char path[RUI_CONF_PATH_MAX], name[RUI_CONF_PATH_MAX + 8];
        ru_text p = ru_text_into(path, sizeof path), v = ru_text_into(name, sizeof name);
        ru_text_putf(&p, "%.*s%s%s", RU_STR_ARG(prefix), prefix.n > 0 ? "." : "", f->name);
        ru_text_put(&v, "RUBATO_");
        for (int64_t k = 0; k < p.n; k++) {
            char ch = path[k] >= 'a' && path[k] <= 'z' ? (char)(path[k] - 'a' + 'A') : path[k];
            ru_text_char(&v, ch == '.' || ch == '-' ? '_' : ch, 1);
        }
        if (p.cut || v.cut) {
            continue; /* longer than any name a table should hold; --set and files still reach it */
        }
        const char *value = ru_conf_env(name);
        if (value != NULL && f->type != RU_CONF_SECTIONS &&
            (f->type != RU_CONF_SECTION || f->table->one_of != NULL)) {
            RU_TRY(add_path(c, name, RUI_ENV, ru_str_c(path), value, err));
        }
        if (f->type == RU_CONF_SECTION) {
            RU_TRY(add_env_of(c, f->table, ru_str_c(path), err));
        }
    }
    return RU_OK;
}

ru_status ru_conf_add_env(ru_conf *c, ru_err *err)
{
    return add_env_of(c, c->table, (ru_str){0}, err);
}

ru_status ru_conf_apply(ru_conf *c, void *into, ru_err *err)
{
    rui_node *all = NULL;
    for (int rank = RUI_FILE; rank <= RUI_FLAG; rank++) {
        if (c->trees[rank] != NULL) {
            all = rui_conf_merge(c->arena, c->table, all, c->trees[rank]);
            if (all == NULL) {
                return RU_FAIL(err, RU_E_LIMIT, "not enough memory for the configuration");
            }
        }
    }
    c->n_problems = c->n_found = 0;
    ru_map_init(&c->origins, c->arena, 0);
    void *staged = ru_arena_zalloc(c->arena, c->table->size_bytes, 64);
    if (staged == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for the configuration");
    }
    RU_TRY(rui_conf_read(c, c->table, all, true, staged, err));
    if (c->n_found > 1) {
        return RU_FAIL(err, RU_E_CONFIG, "%s (and %u more)", c->problems[0], c->n_found - 1);
    }
    if (c->n_found == 1) {
        return RU_FAIL(err, RU_E_CONFIG, "%s", c->problems[0]);
    }
    memcpy(into, staged, c->table->size_bytes);
    return RU_OK;
}

const char *const *ru_conf_problems(const ru_conf *c, uint32_t *n)
{
    *n = c->n_problems;
    return c->problems;
}

static const rui_node *origin_node(const ru_conf *c, const char *path)
{
    const uint64_t *v = ru_map_get_c(&c->origins, path);
    return v == NULL ? NULL : (const rui_node *)(uintptr_t)*v;
}

const char *ru_conf_origin(const ru_conf *c, const char *path)
{
    const rui_node *n = origin_node(c, path);
    if (n == NULL || n->line == 0) {
        return n == NULL ? NULL : n->source->label;
    }
    return ru_arena_printf(c->arena, "%s:%u:%u", n->source->label, n->line, n->column);
}

bool ru_conf_given(const ru_conf *c, const char *path)
{
    const rui_node *n = origin_node(c, path);
    return n != NULL && n->source->rank != RUI_DEFAULT;
}
