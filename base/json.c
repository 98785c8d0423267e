/* The JSON writer: a stack of open levels, a comma before every item but a level's first. */
#include "base/json.h"

#include <math.h>
#include <stddef.h>

ru_json ru_json_into(ru_text *out)
{
    return (ru_json){.out = out};
}

static void begin_item(ru_json *j, const char *key)
{
    if (j->depth > 0) {
        bool object = j->closers[j->depth - 1] == '}';
        RU_CHECK(object == (key != NULL));
        if (j->more[j->depth - 1]) {
            ru_text_put(j->out, ",");
        }
        j->more[j->depth - 1] = true;
    }
    if (key != NULL) {
        ru_text_json(j->out, ru_str_c(key));
        ru_text_put(j->out, ":");
    }
}

void ru_json_open(ru_json *j, const char *key, char bracket)
{
    RU_CHECK(bracket == '{' || bracket == '[');
    RU_CHECK(j->depth < RU_JSON_DEPTH_MAX);
    begin_item(j, key);
    ru_text_char(j->out, bracket, 1);
    j->closers[j->depth] = bracket == '{' ? '}' : ']';
    j->more[j->depth++] = false;
}

void ru_json_close(ru_json *j)
{
    RU_CHECK(j->depth > 0);
    ru_text_char(j->out, j->closers[--j->depth], 1);
}

void ru_json_str(ru_json *j, const char *key, const char *value)
{
    if (value == NULL) {
        ru_json_null(j, key);
        return;
    }
    begin_item(j, key);
    ru_text_json(j->out, ru_str_c(value));
}

void ru_json_i64(ru_json *j, const char *key, int64_t value)
{
    begin_item(j, key);
    ru_text_putf(j->out, "%lld", (long long)value);
}

void ru_json_f64(ru_json *j, const char *key, double value)
{
    if (!isfinite(value)) {
        ru_json_null(j, key);
        return;
    }
    begin_item(j, key);
    ru_text_f64(j->out, value);
}

void ru_json_bool(ru_json *j, const char *key, bool value)
{
    begin_item(j, key);
    ru_text_put(j->out, value ? "true" : "false");
}

void ru_json_raw(ru_json *j, const char *key, const char *json)
{
    begin_item(j, key);
    ru_text_put(j->out, json);
}

void ru_json_null(ru_json *j, const char *key)
{
    begin_item(j, key);
    ru_text_put(j->out, "null");
}
