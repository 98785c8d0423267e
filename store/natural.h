/* Natural inputs of policies: files that other programs write (price histories, arrival traces,
 * graphs), turned into the policy's own input, so that `rubato plan prices.txt bid` works.
 *
 * A reader checks what it reads; what it leaves out gets the policy's defaults or `--set`.
 *
 * Thread: any. */
#ifndef RU_STORE_NATURAL_H
#define RU_STORE_NATURAL_H

#include "base/json.h"

typedef struct ru_natural {
    const char *policy; /* name in plan/row/policy.def */
    const char *what;   /* "price history: lines of epoch seconds and USD per hour" */
    /* Is this file of that kind? By its name or its first bytes; `text` is the whole file. */
    bool (*is)(const char *path, ru_str text);
    /* Put the members of the policy's input into the open object of `j`. Errors: RU_E_DATA with
     * path and line. */
    ru_status (*read)(const char *path, ru_str text, ru_arena *arena, ru_json *j, ru_err *err);
} ru_natural;

/* The first kind of `policy` that `path` is of; NULL: none. */
const ru_natural *ru_natural_find(const char *policy, const char *path, ru_str text);
/* The k-th kind that `policy` reads, k from 0; NULL: there are no more. */
const ru_natural *ru_natural_of(const char *policy, uint32_t k);

#define RU_NATURAL(symbol) extern const ru_natural rui_natural_##symbol;
#include "store/natural.def"
#undef RU_NATURAL

#endif
