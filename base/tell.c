#include "base/tell.h"

void ru_tell_open(const ru_tell *o, const char *key, char bracket)
{
    if (o->json != NULL) {
        ru_json_open(o->json, key, bracket);
    }
}

void ru_tell_close(const ru_tell *o)
{
    if (o->json != NULL) {
        ru_json_close(o->json);
    }
}

void ru_tell_i64(const ru_tell *o, const char *key, int64_t value)
{
    if (o->json != NULL) {
        ru_json_i64(o->json, key, value);
    }
}

void ru_tell_f64(const ru_tell *o, const char *key, double value)
{
    if (o->json != NULL) {
        ru_json_f64(o->json, key, value);
    }
}

void ru_tell_ns(const ru_tell *o, const char *key, double ns)
{
    ru_tell_f64(o, key, ns * 1e-9);
}

void ru_tell_str(const ru_tell *o, const char *key, const char *value)
{
    if (o->json != NULL) {
        ru_json_str(o->json, key, value);
    }
}

void ru_tell_note(const ru_tell *o, const char *key, const char *fmt, ...)
{
    char line[512];
    ru_text t = ru_text_into(line, sizeof line);
    va_list ap;
    va_start(ap, fmt);
    ru_text_vputf(&t, fmt, ap);
    va_end(ap);
    ru_text_putf(o->text, "%s\n", line);
    ru_tell_str(o, key, line);
}

ru_status ru_tell_table(const ru_tell *o, const char *key, const char *title, const ru_table *t,
                        ru_err *err)
{
    if (title != NULL) {
        ru_text_putf(o->text, "%s\n", title);
    }
    RU_TRY(ru_table_print(t, 2, o->text, err));
    return o->json != NULL ? ru_table_json_units(t, o->json, key, err) : RU_OK;
}
