/* One report for people and for programs, from the same calls: text, and beside it JSON.
 *
 *     ru_tell o = {.text = &text, .json = &json};     json NULL: text alone
 *     ru_text_putf(o.text, "%u tensors\n", n);        a sentence
 *     ru_tell_i64(&o, "tensors", n);                  ... each of its figures
 *     ru_tell_table(&o, "order", "in order", &t, err); a table: base/table.h
 *     ru_tell_note(&o, "note", "nothing was recorded");
 *
 * The JSON are members of an object that the caller has opened: keys are its own, and end with the
 * unit of their value (_s, _bytes, _share of 1, _usd). Thread: one at a time. */
#ifndef RU_BASE_TELL_H
#define RU_BASE_TELL_H

#include "base/table.h"

typedef struct ru_tell {
    ru_text *text;
    ru_json *json;
} ru_tell;

/* In JSON alone. */
void ru_tell_open(const ru_tell *o, const char *key, char bracket);
void ru_tell_close(const ru_tell *o);
void ru_tell_i64(const ru_tell *o, const char *key, int64_t value);
void ru_tell_f64(const ru_tell *o, const char *key, double value);
void ru_tell_ns(const ru_tell *o, const char *key, double ns); /* in seconds */
void ru_tell_str(const ru_tell *o, const char *key, const char *value);
/* A line without figures of its own, in both. */
void ru_tell_note(const ru_tell *o, const char *key, const char *fmt, ...) RU_PRINTF(3, 4);
/* Below its title (NULL: none), in both; keys with units. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_tell_table(const ru_tell *o, const char *key, const char *title,
                                    const ru_table *t, ru_err *err);

#endif
