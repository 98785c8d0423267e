/* Writing JSON into a text, one call a value. Commas and quotes are the writer's business; the
 * result is strict JSON on one line: text that is not UTF-8 is replaced, numbers that JSON cannot
 * hold are null.
 *
 *     ru_json j = ru_json_into(&text);
 *     ru_json_open(&j, NULL, '{');
 *     ru_json_str(&j, "schema", "rubato.doctor/1");
 *     ru_json_open(&j, "checks", '[');
 *     ru_json_i64(&j, NULL, 3);              keys are NULL inside lists
 *     ru_json_close(&j); ru_json_close(&j);
 *
 * Thread: one at a time. */
#ifndef RU_BASE_JSON_H
#define RU_BASE_JSON_H

#include "base/str.h"

enum { RU_JSON_DEPTH_MAX = 32 };

typedef struct ru_json {
    ru_text *out;
    uint32_t depth;
    char closers[RU_JSON_DEPTH_MAX]; /* what ends each open level */
    bool more[RU_JSON_DEPTH_MAX];    /* does the level have an item yet? */
} ru_json;

ru_json ru_json_into(ru_text *out);

/* '{' or '['. */
void ru_json_open(ru_json *j, const char *key, char bracket);
void ru_json_close(ru_json *j);

void ru_json_str(ru_json *j, const char *key, const char *value); /* NULL writes null */
void ru_json_i64(ru_json *j, const char *key, int64_t value);
void ru_json_f64(ru_json *j, const char *key, double value);
void ru_json_bool(ru_json *j, const char *key, bool value);
/* A value that is JSON already; not checked. */
void ru_json_raw(ru_json *j, const char *key, const char *json);
void ru_json_null(ru_json *j, const char *key);

#endif
