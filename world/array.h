/* A named array of concrete type: the form in which tensors meet files and users.
 *
 * Thread: any (plain data). */
#ifndef RU_WORLD_ARRAY_H
#define RU_WORLD_ARRAY_H

#include "world/graph/graph.h"
#include "world/graph/texts.h"

RU_API_BEGIN

typedef struct ru_array {
    const char *name; /* may be NULL where order says which it is */
    ru_type type;     /* concrete */
    const void
        *data; /* view, row-major and packed, aligned to the element; any pointer when empty */
    const char *const *text; /* [count] of an array of texts: type.dtype is I64, and data are their
                                numbers (world/graph/texts.h); else NULL */
} ru_array;

typedef struct ru_arrays {
    ru_array *at; /* [n] */
    uint32_t n, cap;
    ru_texts *texts; /* what numbers the texts that a file holds; NULL: such a file is refused */
} ru_arrays;

/* The array of that name, NULL when there is none. Cost: linear. */
const ru_array *ru_arrays_find(const ru_arrays *list, const char *name);

/* Append to a list that grows in `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_arrays_add(ru_arrays *list, ru_arena *arena, const ru_array *a,
                                    ru_err *err);

RU_API_END

#endif
