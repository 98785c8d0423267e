/* JSON Schema (draft 2020-12) of a table, so that editors check and complete job files.
 *
 * Sections become objects without additional properties; "one of" becomes oneOf over required keys;
 * the short form `optimizer: sgd` an enum beside the object. */
#include <string.h>

#include "base/conf_impl.h"

static void put_words(const char *words, ru_text *out)
{
    ru_str rest = ru_str_c(words), word;
    ru_text_put(out, "[");
    for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
        ru_text_put(out, i > 0 ? "," : "");
        ru_text_json(out, word);
    }
    ru_text_put(out, "]");
}

static void put_bounds(const ru_conf_field *f, ru_text *out)
{
    bool unsigned32 = f->type == RU_CONF_U32;
    if (f->min < f->max) {
        ru_text_put(out, f->open ? ",\"exclusiveMinimum\":" : ",\"minimum\":");
        ru_text_f64(out, f->min);
        if (f->max < 9e18) {
            ru_text_put(out, ",\"maximum\":");
            ru_text_f64(out, f->max);
        }
    } else if (unsigned32) {
        ru_text_put(out, ",\"minimum\":0,\"maximum\":4294967295");
    }
}

static void put_object(const ru_conf_table *t, ru_text *out);

/* Type of a scalar, or of a list's element. */
static void put_scalar(const ru_conf_field *f, ru_conf_type type, ru_text *out)
{
    switch (type) {
    case RU_CONF_BOOL:
        ru_text_put(out, "\"type\":\"boolean\"");
        return;
    case RU_CONF_I64:
    case RU_CONF_U32:
        ru_text_put(out, "\"type\":\"integer\"");
        put_bounds(f, out);
        return;
    case RU_CONF_F64:
        ru_text_put(out, "\"type\":\"number\"");
        put_bounds(f, out);
        return;
    case RU_CONF_TIME:
        ru_text_put(out, "\"type\":[\"string\",\"integer\"],"
                         "\"pattern\":\"^(0|[0-9]+(\\\\.[0-9]+)?(ns|us|ms|s|min|h|d))$\"");
        return;
    case RU_CONF_SIZE:
        ru_text_put(out,
                    "\"type\":[\"string\",\"integer\"],"
                    "\"pattern\":\"^[0-9]+(\\\\.[0-9]+)?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$\"");
        return;
    case RU_CONF_CHOICE:
        ru_text_put(out, "\"enum\":");
        put_words(f->choices, out);
        return;
    case RU_CONF_TEXT:
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
    case RU_CONF_F64_MAP:
    case RU_CONF_JSON:
    case RU_CONF_SECTION:
    case RU_CONF_SECTIONS:
        break;
    }
    /* A bare number or true is a text too, where a text is wanted. */
    ru_text_put(out, "\"type\":[\"string\",\"number\",\"boolean\"]");
}

static void put_list(const ru_conf_field *f, ru_conf_type element, ru_text *out)
{
    ru_text_put(out, "\"anyOf\":[{");
    put_scalar(f, element, out);
    ru_text_put(out, "},{\"type\":\"array\",\"items\":{");
    put_scalar(f, element, out);
    ru_text_put(out, "}}]");
}

static void put_section(const ru_conf_table *t, ru_text *out)
{
    if (t->one_of == NULL) {
        put_object(t, out);
        return;
    }
    char words[512];
    ru_text w = ru_text_into(words, sizeof words);
    ru_str rest = ru_str_c(t->one_of), word;
    while (ru_str_next(&rest, '|', &word)) {
        for (uint32_t i = 0; i < t->n; i++) {
            if (t->fields[i].type == RU_CONF_SECTION && ru_str_eq_c(word, t->fields[i].name)) {
                ru_text_putf(&w, "%s%.*s", w.n > 0 ? "|" : "", RU_STR_ARG(word));
            }
        }
    }
    if (w.n == 0) {
        put_object(t, out);
        return;
    }
    ru_text_put(out, "\"anyOf\":[{\"enum\":");
    put_words(words, out);
    ru_text_put(out, "},{");
    put_object(t, out);
    ru_text_put(out, "}]");
}

static void put_field(const ru_conf_field *f, ru_text *out)
{
    ru_text_put(out, "{\"description\":");
    ru_text_json(out, ru_str_c(f->help));
    ru_text_put(out, ",");
    switch (f->type) {
    case RU_CONF_I64_LIST:
        put_list(f, RU_CONF_I64, out);
        break;
    case RU_CONF_F64_LIST:
        put_list(f, RU_CONF_F64, out);
        break;
    case RU_CONF_TEXT_LIST:
        put_list(f, RU_CONF_TEXT, out);
        break;
    case RU_CONF_F64_MAP:
        ru_text_put(out,
                    "\"type\":[\"object\",\"null\"],\"additionalProperties\":{\"type\":\"number\"");
        put_bounds(f, out);
        ru_text_put(out, "}");
        break;
    case RU_CONF_JSON:
        ru_text_put(out,
                    "\"type\":[\"object\",\"array\",\"string\",\"number\",\"boolean\",\"null\"]");
        break;
    case RU_CONF_SECTION:
        put_section(f->table, out);
        break;
    case RU_CONF_SECTIONS:
        ru_text_put(out, "\"type\":\"array\",\"items\":{");
        put_section(f->table, out);
        ru_text_put(out, "}");
        break;
    case RU_CONF_BOOL:
    case RU_CONF_I64:
    case RU_CONF_U32:
    case RU_CONF_F64:
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
    case RU_CONF_TEXT:
    case RU_CONF_CHOICE:
        put_scalar(f, f->type, out);
        break;
    }
    if (f->def != NULL && f->type <= RU_CONF_CHOICE) {
        bool bare = f->type <= RU_CONF_F64;
        ru_text_put(out, ",\"default\":");
        if (bare) {
            ru_text_put(out, f->def);
        } else {
            ru_text_json(out, ru_str_c(f->def));
        }
    }
    ru_text_put(out, "}");
}

/* Does leaving the field out mean an error? */
static bool is_required(const ru_conf_table *t, const ru_conf_field *f)
{
    bool choice = t->one_of != NULL && rui_conf_which(t, f->name) != 0;
    if (choice || f->def != NULL) {
        return false;
    }
    if (f->type != RU_CONF_SECTION) {
        return true;
    }
    bool needed = f->table->one_of != NULL && !f->table->none_ok;
    for (uint32_t i = 0; i < f->table->n && !needed; i++) {
        needed = is_required(f->table, &f->table->fields[i]);
    }
    return needed;
}

static void put_one_of(const ru_conf_table *t, ru_text *out)
{
    ru_text_put(out, ",\"oneOf\":[");
    ru_str rest = ru_str_c(t->one_of), word;
    for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
        ru_text_put(out, i > 0 ? ",{\"required\":[" : "{\"required\":[");
        ru_text_json(out, word);
        ru_text_put(out, "]}");
    }
    if (t->none_ok) {
        ru_text_put(out, ",{\"not\":{\"anyOf\":[");
        rest = ru_str_c(t->one_of);
        for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
            ru_text_put(out, i > 0 ? ",{\"required\":[" : "{\"required\":[");
            ru_text_json(out, word);
            ru_text_put(out, "]}");
        }
        ru_text_put(out, "]}}");
    }
    ru_text_put(out, "]");
}

/* Depth is that of the tables. */
static void put_object(const ru_conf_table *t, ru_text *out)
{
    ru_text_put(out,
                "\"type\":[\"object\",\"null\"],\"additionalProperties\":false,\"properties\":{");
    for (uint32_t i = 0; i < t->n; i++) {
        ru_text_put(out, i > 0 ? "," : "");
        ru_text_json(out, ru_str_c(t->fields[i].name));
        ru_text_put(out, ":");
        put_field(&t->fields[i], out);
    }
    ru_text_put(out, "}");
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        if (is_required(t, &t->fields[i])) {
            ru_text_put(out, n++ == 0 ? ",\"required\":[" : ",");
            ru_text_json(out, ru_str_c(t->fields[i].name));
        }
    }
    ru_text_put(out, n > 0 ? "]" : "");
    if (t->one_of != NULL) {
        put_one_of(t, out);
    }
}

void ru_conf_schema(const ru_conf_table *table, const char *title, ru_text *out)
{
    ru_text_put(out, "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"title\":");
    ru_text_json(out, ru_str_c(title));
    ru_text_put(out, ",");
    put_object(table, out);
    ru_text_put(out, "}\n");
}
