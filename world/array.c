#include "world/array.h"

#include <string.h>

const ru_array *ru_arrays_find(const ru_arrays *list, const char *name)
{
    for (uint32_t k = 0; k < list->n; k++) {
        if (list->at[k].name != NULL && strcmp(list->at[k].name, name) == 0) {
            return &list->at[k];
        }
    }
    return NULL;
}

ru_status ru_arrays_add(ru_arrays *list, ru_arena *arena, const ru_array *a, ru_err *err)
{
    if (list->n == list->cap) {
        uint32_t cap = list->cap == 0 ? 16 : list->cap * 2;
        ru_array *grown = cap > RU_NODES_MAX ? NULL : RU_NEW(arena, ru_array, cap);
        if (grown == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no room for more than %u arrays", list->n);
        }
        if (list->n > 0) {
            memcpy(grown, list->at, list->n * sizeof *grown);
        }
        list->at = grown;
        list->cap = cap;
    }
    list->at[list->n++] = *a;
    return RU_OK;
}
