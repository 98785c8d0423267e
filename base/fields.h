/* Filled structs as data, by the table that describes them (base/conf.h): checked, hashed, written
 * as JSON. Pure, unlike reading.
 *
 * Thread: any. */
#ifndef RU_BASE_FIELDS_H
#define RU_BASE_FIELDS_H

#include "base/conf.h"
#include "base/hash.h"
#include "base/json.h"

/* Does a struct that a program filled keep the table's bounds and relations? Numbers must be
 * finite. Errors: RU_E_ARG with the path of the first field that does not. */
RU_MUST_USE ru_status ru_fields_check(const ru_conf_table *table, const void *section, ru_err *err);
/* Names and values of all fields in force, whatever the struct's padding and addresses. */
void ru_fields_hash(const ru_conf_table *table, const void *section, ru_hasher *h);
/* As a JSON object that ru_conf_add_json reads back to the same struct; `key` as in base/json.h. */
void ru_fields_json(const ru_conf_table *table, const void *section, const char *key, ru_json *j);
uint32_t ru_fields_choices(const char *choices); /* how many words "a|b|c" has */
/* Word k of "a|b|c", from 0, into a buffer of n bytes that is large enough. */
void ru_fields_choice(const char *choices, uint32_t k, char *into, int64_t n);

#endif
