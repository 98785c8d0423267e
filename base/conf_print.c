/* The filled struct as YAML, and the table as help text. */
#include <string.h>

#include "base/conf_impl.h"
#include "base/unit.h"

/* May this text stand without quotes and come back as the same text? Narrow on purpose. */
static bool is_plain(const char *s)
{
    bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '/' || *s == '_';
    for (const char *p = s; *p != '\0'; p++) {
        bool word = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                    (*p >= '0' && *p <= '9') || (*p != '\0' && strchr("_-./", *p) != NULL);
        if (!word) {
            return false;
        }
    }
    return letter && strcmp(s, "null") != 0 && strcmp(s, "true") != 0 && strcmp(s, "false") != 0;
}

static void put_text(const char *s, ru_text *out)
{
    if (is_plain(s)) {
        ru_text_put(out, s);
    } else {
        ru_text_json(out, ru_str_c(s));
    }
}

static void put_list(const ru_conf_field *f, const void *at, ru_text *out)
{
    ru_conf_i64s list;
    memcpy(&list, at, sizeof list);
    const uint8_t *items = (const uint8_t *)list.at;
    ru_text_put(out, "[");
    for (uint32_t i = 0; i < list.n; i++) {
        const void *item = items + (size_t)i * 8;
        ru_text_put(out, i > 0 ? ", " : "");
        if (f->type == RU_CONF_I64_LIST) {
            ru_text_putf(out, "%lld", (long long)rui_conf_i64_at(item));
        } else if (f->type == RU_CONF_F64_LIST) {
            ru_text_f64(out, rui_conf_f64_at(item));
        } else {
            const char *s;
            memcpy(&s, item, sizeof s);
            put_text(s, out);
        }
    }
    ru_text_put(out, "]");
}

static void put_pairs(const void *at, ru_text *out)
{
    ru_conf_pairs pairs;
    memcpy(&pairs, at, sizeof pairs);
    ru_text_put(out, "{");
    for (uint32_t i = 0; i < pairs.n; i++) {
        ru_text_put(out, i > 0 ? ", " : "");
        put_text(pairs.at[i].key, out);
        ru_text_put(out, ": ");
        ru_text_f64(out, pairs.at[i].value);
    }
    ru_text_put(out, "}");
}

/* A list of maps on one line: [{match: fc.weight, lr: 0.1}]. Their tables hold no section. */
static void put_sections(const ru_conf_table *t, const void *at, ru_text *out)
{
    ru_conf_sections list;
    memcpy(&list, at, sizeof list);
    ru_text_put(out, "[");
    for (uint32_t i = 0; i < list.n; i++) {
        const uint8_t *item = (const uint8_t *)list.at + (size_t)i * t->size_bytes;
        ru_text_put(out, i > 0 ? ", {" : "{");
        for (uint32_t k = 0; k < t->n; k++) {
            RU_CHECK(t->fields[k].table == NULL);
            ru_text_putf(out, "%s%s: ", k > 0 ? ", " : "", t->fields[k].name);
            rui_conf_put_value(&t->fields[k], rui_conf_at(&t->fields[k], item), out);
        }
        ru_text_put(out, "}");
    }
    ru_text_put(out, "]");
}

void rui_conf_put_value(const ru_conf_field *f, const void *at, ru_text *out)
{
    switch (f->type) {
    case RU_CONF_BOOL: {
        bool v;
        memcpy(&v, at, sizeof v);
        ru_text_put(out, v ? "true" : "false");
        return;
    }
    case RU_CONF_I64:
        ru_text_putf(out, "%lld", (long long)rui_conf_i64_at(at));
        return;
    case RU_CONF_U32:
        ru_text_putf(out, "%u", rui_conf_u32_at(at));
        return;
    case RU_CONF_F64:
        ru_text_f64(out, rui_conf_f64_at(at));
        return;
    case RU_CONF_TIME:
        ru_text_time(out, rui_conf_i64_at(at));
        return;
    case RU_CONF_SIZE:
        ru_text_size(out, rui_conf_i64_at(at));
        return;
    case RU_CONF_TEXT: {
        const char *s;
        memcpy(&s, at, sizeof s);
        put_text(s != NULL ? s : "", out);
        return;
    }
    case RU_CONF_CHOICE: {
        ru_str rest = ru_str_c(f->choices), item = {0};
        for (uint32_t i = 0; ru_str_next(&rest, '|', &item) && i < rui_conf_u32_at(at); i++) {
        }
        ru_text_put_n(out, item.p, item.n);
        return;
    }
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
        put_list(f, at, out);
        return;
    case RU_CONF_F64_MAP:
        put_pairs(at, out);
        return;
    case RU_CONF_JSON: {
        const char *s;
        memcpy(&s, at, sizeof s);
        ru_text_put(out, s != NULL ? s : "null");
        return;
    }
    case RU_CONF_SECTIONS:
        put_sections(f->table, at, out);
        return;
    case RU_CONF_SECTION:
        break;
    }
}

typedef struct dump {
    const ru_conf *c; /* NULL: no origins */
    ru_text *out;
} dump;

static void put_origin(const dump *d, const char *path)
{
    if (d->c != NULL && ru_conf_given(d->c, path)) {
        const char *origin = ru_conf_origin(d->c, path);
        ru_text_putf(d->out, "  # %s", origin != NULL ? origin : "");
    }
}

bool rui_conf_live(const ru_conf_table *t, const ru_conf_field *f, const void *section)
{
    if (t->one_of == NULL) {
        return true;
    }
    uint32_t k = rui_conf_which(t, f->name);
    return k == 0 || k == rui_conf_u32_at((const uint8_t *)section + t->which_offset);
}

/* `first` is put in front of the first key (the "- " of a list), `depth` in front of the others. */
static void dump_section(const dump *d, const ru_conf_table *t, const void *section,
                         const char *prefix, uint32_t depth, bool in_list)
{
    bool fresh = in_list;
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        if (!rui_conf_live(t, f, section)) {
            continue;
        }
        char path[RUI_CONF_PATH_MAX];
        ru_text p = ru_text_into(path, sizeof path);
        ru_text_putf(&p, "%s%s%s", prefix, *prefix != '\0' ? "." : "", f->name);
        ru_text_char(d->out, ' ', fresh ? 0 : 2 * (int64_t)depth);
        fresh = false;
        ru_text_putf(d->out, "%s:", f->name);
        if (f->type == RU_CONF_SECTION) {
            int64_t before = d->out->n;
            ru_text_put(d->out, "\n");
            int64_t after = d->out->n;
            dump_section(d, f->table, rui_conf_at(f, section), path, depth + 1, false);
            if (d->out->n == after && after > before) {
                d->out->n = before; /* nothing in it: stay on the line */
                ru_text_put(d->out, " {}\n");
            }
        } else if (f->type == RU_CONF_SECTIONS) {
            ru_conf_sections list;
            memcpy(&list, rui_conf_at(f, section), sizeof list);
            ru_text_put(d->out, list.n == 0 ? " []\n" : "\n");
            for (uint32_t k = 0; k < list.n; k++) {
                ru_text_char(d->out, ' ', 2 * (int64_t)depth + 2);
                ru_text_put(d->out, "- ");
                const uint8_t *item = (const uint8_t *)list.at + (size_t)k * f->table->size_bytes;
                dump_section(d, f->table, item, path, depth + 2, true);
            }
        } else {
            ru_text_put(d->out, " ");
            rui_conf_put_value(f, rui_conf_at(f, section), d->out);
            put_origin(d, path);
            ru_text_put(d->out, "\n");
        }
    }
}

void ru_conf_dump(const ru_conf_table *table, const void *section, const ru_conf *c, ru_text *out)
{
    dump d = {c, out};
    dump_section(&d, table, section, "", 0, false);
}

static void put_name(const ru_conf_table *t, const void *section, ru_text *out)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (rui_conf_which(t, t->fields[i].name) != 0 && rui_conf_live(t, &t->fields[i], section)) {
            ru_text_put(out, t->fields[i].name);
        }
    }
}

/* "path now (was before)", taken back when both are the same. */
static void put_change(const ru_conf_field *f, const char *path, const void *before,
                       const void *now, ru_text *out)
{
    int64_t begin = out->n;
    ru_text_putf(out, "%s%s ", begin > 0 ? ", " : "", path);
    int64_t a = out->n;
    rui_conf_put_value(f, rui_conf_at(f, now), out);
    int64_t a_end = out->n;
    ru_text_put(out, " (was ");
    int64_t b = out->n;
    rui_conf_put_value(f, rui_conf_at(f, before), out);
    int64_t b_end = out->n;
    ru_text_put(out, ")");
    if (!out->cut && a_end - a == b_end - b &&
        memcmp(out->p + a, out->p + b, (size_t)(a_end - a)) == 0) {
        out->n = begin;
        out->p[begin] = 0;
    }
}

static void put_changes(const ru_conf_table *t, const void *before, const void *now,
                        const char *prefix, ru_text *out)
{
    const uint8_t *was = before, *is = now;
    if (t->one_of != NULL &&
        rui_conf_u32_at(was + t->which_offset) != rui_conf_u32_at(is + t->which_offset)) {
        ru_text_putf(out, "%s%s ", out->n > 0 ? ", " : "", prefix);
        put_name(t, now, out);
        ru_text_put(out, " (was ");
        put_name(t, before, out);
        ru_text_put(out, ")");
    }
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        char path[RUI_CONF_PATH_MAX];
        ru_text p = ru_text_into(path, sizeof path);
        ru_text_putf(&p, "%s%s%s", prefix, *prefix != '\0' ? "." : "", f->name);
        if (!rui_conf_live(t, f, before) || !rui_conf_live(t, f, now)) {
            continue;
        }
        if (f->type == RU_CONF_SECTION) {
            put_changes(f->table, rui_conf_at(f, before), rui_conf_at(f, now), path, out);
        } else {
            put_change(f, path, before, now, out);
        }
    }
}

void ru_conf_changes(const ru_conf_table *table, const void *before, const void *now, ru_text *out)
{
    put_changes(table, before, now, "", out);
}

static void help_section(const ru_conf_table *t, uint32_t depth, uint32_t width, ru_text *out)
{
    enum { HELP_COLUMN = 26 };
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        ru_text_char(out, ' ', 2 * (int64_t)depth);
        ru_text_putf(out, "%s:", f->name);
        uint32_t at = 2 * depth + (uint32_t)strlen(f->name) + 1;
        if (at + 2 > HELP_COLUMN) {
            ru_text_put(out, "\n");
            at = 0;
        }
        char buf[1024];
        ru_text line = ru_text_into(buf, sizeof buf);
        ru_text_putf(&line, "%s", f->help);
        bool choice = t->one_of != NULL && rui_conf_which(t, f->name) != 0;
        if (f->type == RU_CONF_SECTIONS) {
            ru_text_put(&line, " (a list of the following)");
        } else if (f->type != RU_CONF_SECTION || f->table->one_of != NULL) {
            ru_text_put(&line, " (");
            rui_conf_expected(f, &line);
            if (f->def != NULL) {
                ru_text_putf(&line, "; default %s", *f->def != '\0' ? f->def : "empty");
            } else if (!choice && f->type != RU_CONF_SECTION) {
                ru_text_put(&line, "; required");
            }
            ru_text_put(&line, ")");
        }
        ru_text_wrap(out, buf, at, HELP_COLUMN, width);
        if (f->table != NULL) {
            help_section(f->table, depth + 1, width, out);
        }
    }
}

void ru_conf_help(const ru_conf_table *table, uint32_t width, ru_text *out)
{
    help_section(table, 0, width == 0 ? 100 : width < 50 ? 50 : width, out);
}
