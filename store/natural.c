/* The rows of store/natural.def. */
#include "store/natural.h"

#include <string.h>

static const ru_natural *const kinds[] = {
#define RU_NATURAL(symbol) &rui_natural_##symbol,
#include "store/natural.def"
#undef RU_NATURAL
    NULL,
};

const ru_natural *ru_natural_of(const char *policy, uint32_t k)
{
    for (uint32_t i = 0; kinds[i] != NULL; i++) {
        if (strcmp(kinds[i]->policy, policy) == 0 && k-- == 0) {
            return kinds[i];
        }
    }
    return NULL;
}

const ru_natural *ru_natural_find(const char *policy, const char *path, ru_str text)
{
    const ru_natural *kind;
    for (uint32_t k = 0; (kind = ru_natural_of(policy, k)) != NULL; k++) {
        if (kind->is(path, text)) {
            return kind;
        }
    }
    return NULL;
}
