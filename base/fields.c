/* Filled structs as data: checked against their table, hashed, and written as JSON.
 *
 * What ru_fields_check accepts reads back from ru_fields_json to the same struct with the same
 * hash. A list whose default is written as "" came to its table later than others: empty, it does
 * not count, so what was hashed before has the hash that it had. Recursion is bounded by the depth
 * of the tables. */
#include "base/fields.h"

#include <math.h>
#include <string.h>

#include "base/conf_impl.h"

static const char *text_at(const uint8_t *at)
{
    const char *v;
    memcpy(&v, at, sizeof v);
    return v;
}

static ru_conf_sections list_at(const uint8_t *at)
{
    ru_conf_sections v;
    memcpy(&v, at, sizeof v);
    return v;
}

static ru_conf_pairs pairs_at(const uint8_t *at)
{
    ru_conf_pairs v;
    memcpy(&v, at, sizeof v);
    return v;
}

uint32_t ru_fields_choices(const char *choices)
{
    ru_str rest = ru_str_c(choices), item;
    uint32_t n = 0;
    while (ru_str_next(&rest, '|', &item)) {
        n++;
    }
    return n;
}

void ru_fields_choice(const char *choices, uint32_t k, char *into, int64_t n)
{
    ru_str rest = ru_str_c(choices), word = {0};
    for (uint32_t i = 0; i <= k; i++) {
        bool found = ru_str_next(&rest, '|', &word);
        RU_CHECK(found && word.n < n);
    }
    memcpy(into, word.p, (size_t)word.n);
    into[word.n] = '\0';
}

/* -- check ----------------------------------------------------------------------------------------
 */

static ru_status check_number(const ru_conf_field *f, const char *path, double v, ru_err *err)
{
    if (isfinite(v) && rui_conf_in_bounds(f, v)) {
        return RU_OK;
    }
    char want[300], got[40];
    ru_text w = ru_text_into(want, sizeof want), g = ru_text_into(got, sizeof got);
    rui_conf_expected(f, &w);
    ru_text_f64(&g, v);
    return RU_FAIL(err, RU_E_ARG, "'%s' is %s, expected %s", path, got, want);
}

static ru_status check_list(const ru_conf_field *f, const char *path, const uint8_t *at,
                            ru_err *err)
{
    ru_conf_sections list = list_at(at); /* the list types have one layout */
    if (list.n > 0 && list.at == NULL) {
        return RU_FAIL(err, RU_E_ARG, "'%s' has %u elements and no memory", path, list.n);
    }
    const uint8_t *p = list.at;
    for (uint32_t i = 0; i < list.n; i++, p += 8) {
        ru_status st = RU_OK;
        char name[RUI_CONF_PATH_MAX];
        ru_text t = ru_text_into(name, sizeof name);
        if (f->type == RU_CONF_F64_LIST && isfinite(rui_conf_f64_at(p)) &&
            rui_conf_in_bounds(f, rui_conf_f64_at(p))) {
            continue;
        }
        ru_text_putf(&t, "%s[%u]", path, i);
        if (f->type == RU_CONF_TEXT_LIST) {
            st = text_at(p) != NULL ? RU_OK : RU_FAIL(err, RU_E_ARG, "'%s' has no text", name);
        } else {
            double v =
                f->type == RU_CONF_F64_LIST ? rui_conf_f64_at(p) : (double)rui_conf_i64_at(p);
            st = check_number(f, name, v, err);
        }
        RU_TRY(st);
    }
    return RU_OK;
}

static ru_status check_pairs(const ru_conf_field *f, const char *path, const uint8_t *at,
                             ru_err *err)
{
    ru_conf_pairs pairs = pairs_at(at);
    for (uint32_t i = 0; i < pairs.n; i++) {
        RU_TRY(check_number(f, path, pairs.at[i].value, err));
    }
    return RU_OK;
}

static ru_status check_scalar(const ru_conf_field *f, const char *path, const uint8_t *at,
                              ru_err *err)
{
    switch (f->type) {
    case RU_CONF_I64:
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
        return check_number(f, path, (double)rui_conf_i64_at(at), err);
    case RU_CONF_U32:
        return check_number(f, path, rui_conf_u32_at(at), err);
    case RU_CONF_F64:
        return check_number(f, path, rui_conf_f64_at(at), err);
    case RU_CONF_TEXT:
    case RU_CONF_JSON:
        return text_at(at) != NULL ? RU_OK : RU_FAIL(err, RU_E_ARG, "'%s' has no text", path);
    case RU_CONF_CHOICE:
        return rui_conf_u32_at(at) < ru_fields_choices(f->choices)
                   ? RU_OK
                   : RU_FAIL(err, RU_E_ARG, "'%s' is choice %u of %s", path, rui_conf_u32_at(at),
                             f->choices);
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
        return check_list(f, path, at, err);
    case RU_CONF_F64_MAP:
        return check_pairs(f, path, at, err);
    case RU_CONF_BOOL:
    case RU_CONF_SECTION:
    case RU_CONF_SECTIONS:
        break;
    }
    return RU_OK;
}

static ru_status check_section(const ru_conf_table *t, const void *section, const char *prefix,
                               ru_err *err)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        if (!rui_conf_live(t, f, section)) {
            continue;
        }
        char path[RUI_CONF_PATH_MAX];
        ru_text p = ru_text_into(path, sizeof path);
        ru_text_putf(&p, "%s%s%s", prefix, *prefix != '\0' ? "." : "", f->name);
        if (f->type == RU_CONF_SECTION) {
            RU_TRY(check_section(f->table, rui_conf_at(f, section), path, err));
        } else if (f->type == RU_CONF_SECTIONS) {
            ru_conf_sections list = list_at(rui_conf_at(f, section));
            int64_t stem = p.n;
            for (uint32_t k = 0; k < list.n; k++) {
                const uint8_t *item = (const uint8_t *)list.at + (size_t)k * f->table->size_bytes;
                p.n = stem;
                ru_text_putf(&p, "[%u]", k);
                RU_TRY(check_section(f->table, item, path, err));
            }
        } else {
            RU_TRY(check_scalar(f, path, rui_conf_at(f, section), err));
        }
    }
    ru_err why;
    if (t->check != NULL && t->check(section, &why) != RU_OK) {
        return RU_FAIL(err, RU_E_ARG, "%s%s%s", prefix, *prefix != '\0' ? ": " : "", why.text);
    }
    return RU_OK;
}

ru_status ru_fields_check(const ru_conf_table *table, const void *section, ru_err *err)
{
    return check_section(table, section, "", err);
}

/* -- hash -----------------------------------------------------------------------------------------
 */

static void hash_f64(ru_hasher *h, double v)
{
    uint64_t bits;
    v = v == 0 ? 0 : v; /* both zeroes are one value */
    memcpy(&bits, &v, sizeof bits);
    ru_hasher_put_u64(h, bits);
}

static void hash_list(const ru_conf_field *f, const uint8_t *at, ru_hasher *h)
{
    ru_conf_sections list = list_at(at);
    ru_hasher_put_u64(h, list.n);
    const uint8_t *p = list.at;
    for (uint32_t i = 0; i < list.n; i++, p += 8) {
        if (f->type == RU_CONF_TEXT_LIST) {
            ru_hasher_put_str(h, text_at(p));
        } else if (f->type == RU_CONF_F64_LIST) {
            hash_f64(h, rui_conf_f64_at(p));
        } else {
            ru_hasher_put_u64(h, (uint64_t)rui_conf_i64_at(p));
        }
    }
}

static void hash_value(const ru_conf_field *f, const uint8_t *at, ru_hasher *h)
{
    switch (f->type) {
    case RU_CONF_BOOL:
        ru_hasher_put_u64(h, *at);
        return;
    case RU_CONF_U32:
    case RU_CONF_CHOICE:
        ru_hasher_put_u64(h, rui_conf_u32_at(at));
        return;
    case RU_CONF_I64:
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
        ru_hasher_put_u64(h, (uint64_t)rui_conf_i64_at(at));
        return;
    case RU_CONF_F64:
        hash_f64(h, rui_conf_f64_at(at));
        return;
    case RU_CONF_TEXT:
    case RU_CONF_JSON:
        ru_hasher_put_str(h, text_at(at));
        return;
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
        hash_list(f, at, h);
        return;
    case RU_CONF_F64_MAP: {
        ru_conf_pairs pairs = pairs_at(at);
        ru_hasher_put_u64(h, pairs.n);
        for (uint32_t i = 0; i < pairs.n; i++) {
            ru_hasher_put_str(h, pairs.at[i].key);
            hash_f64(h, pairs.at[i].value);
        }
        return;
    }
    case RU_CONF_SECTION:
        ru_fields_hash(f->table, at, h);
        return;
    case RU_CONF_SECTIONS: {
        ru_conf_sections list = list_at(at);
        ru_hasher_put_u64(h, list.n);
        for (uint32_t k = 0; k < list.n; k++) {
            ru_fields_hash(f->table, (const uint8_t *)list.at + (size_t)k * f->table->size_bytes,
                           h);
        }
        return;
    }
    }
}

static bool came_later(const ru_conf_field *f)
{
    bool list = f->type == RU_CONF_SECTIONS || f->type == RU_CONF_I64_LIST ||
                f->type == RU_CONF_F64_LIST || f->type == RU_CONF_TEXT_LIST;
    return list && f->def != NULL && f->def[0] == '\0';
}

void ru_fields_hash(const ru_conf_table *table, const void *section, ru_hasher *h)
{
    for (uint32_t i = 0; i < table->n; i++) {
        const ru_conf_field *f = &table->fields[i];
        bool empty = came_later(f) && list_at(rui_conf_at(f, section)).n == 0;
        if (rui_conf_live(table, f, section) && !empty) {
            ru_hasher_put_str(h, f->name);
            hash_value(f, rui_conf_at(f, section), h);
        }
    }
}

/* -- JSON -----------------------------------------------------------------------------------------
 */

static void json_list(const ru_conf_field *f, const uint8_t *at, ru_json *j)
{
    ru_conf_sections list = list_at(at);
    ru_json_open(j, f->name, '[');
    const uint8_t *p = list.at;
    for (uint32_t i = 0; i < list.n; i++, p += 8) {
        if (f->type == RU_CONF_TEXT_LIST) {
            ru_json_str(j, NULL, text_at(p));
        } else if (f->type == RU_CONF_F64_LIST) {
            ru_json_f64(j, NULL, rui_conf_f64_at(p));
        } else {
            ru_json_i64(j, NULL, rui_conf_i64_at(p));
        }
    }
    ru_json_close(j);
}

static void json_value(const ru_conf_field *f, const uint8_t *at, ru_json *j)
{
    switch (f->type) {
    case RU_CONF_BOOL:
        ru_json_bool(j, f->name, *at != 0);
        return;
    case RU_CONF_U32:
        ru_json_i64(j, f->name, rui_conf_u32_at(at));
        return;
    case RU_CONF_I64:
        ru_json_i64(j, f->name, rui_conf_i64_at(at));
        return;
    case RU_CONF_F64:
        ru_json_f64(j, f->name, rui_conf_f64_at(at));
        return;
    case RU_CONF_TEXT:
        ru_json_str(j, f->name, text_at(at) != NULL ? text_at(at) : "");
        return;
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
    case RU_CONF_CHOICE: {
        char word[64];
        ru_text t = ru_text_into(word, sizeof word);
        rui_conf_put_value(f, at, &t);
        ru_json_str(j, f->name, word);
        return;
    }
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
        json_list(f, at, j);
        return;
    case RU_CONF_F64_MAP: {
        ru_conf_pairs pairs = pairs_at(at);
        ru_json_open(j, f->name, '{');
        for (uint32_t i = 0; i < pairs.n; i++) {
            ru_json_f64(j, pairs.at[i].key, pairs.at[i].value);
        }
        ru_json_close(j);
        return;
    }
    case RU_CONF_JSON:
        ru_json_raw(j, f->name, text_at(at) != NULL ? text_at(at) : "null");
        return;
    case RU_CONF_SECTION:
        ru_fields_json(f->table, at, f->name, j);
        return;
    case RU_CONF_SECTIONS: {
        ru_conf_sections list = list_at(at);
        ru_json_open(j, f->name, '[');
        for (uint32_t k = 0; k < list.n; k++) {
            ru_fields_json(f->table, (const uint8_t *)list.at + (size_t)k * f->table->size_bytes,
                           NULL, j);
        }
        ru_json_close(j);
        return;
    }
    }
}

void ru_fields_json(const ru_conf_table *table, const void *section, const char *key, ru_json *j)
{
    ru_json_open(j, key, '{');
    for (uint32_t i = 0; i < table->n; i++) {
        const ru_conf_field *f = &table->fields[i];
        if (rui_conf_live(table, f, section)) {
            json_value(f, rui_conf_at(f, section), j);
        }
    }
    ru_json_close(j);
}
