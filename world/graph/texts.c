#include "world/graph/texts.h"

#include <string.h>

#include "base/hash.h"

/* Positive, so that no number is taken for a symbolic dimension. */
static int64_t number_of(const char *text)
{
    return (int64_t)(ru_hash_bytes(text, (int64_t)strlen(text), 0) >> 2);
}

static uint32_t *slot_of(const ru_texts *t, int64_t code)
{
    uint32_t k = (uint32_t)code & (t->cap - 1);
    while (t->slots[k] != 0 && t->codes[t->slots[k] - 1] != code) {
        k = (k + 1) & (t->cap - 1);
    }
    return &t->slots[k];
}

static bool grow(ru_texts *t)
{
    ru_texts big = *t;
    big.cap = t->cap == 0 ? 64 : t->cap * 2;
    big.slots = RU_NEW(t->arena, uint32_t, big.cap);
    big.text = RU_NEW(t->arena, const char *, big.cap);
    big.codes = RU_NEW(t->arena, int64_t, big.cap);
    if (big.slots == NULL || big.text == NULL || big.codes == NULL) {
        return false;
    }
    for (uint32_t k = 0; k < t->n; k++) {
        big.text[k] = t->text[k];
        big.codes[k] = t->codes[k];
        *slot_of(&big, t->codes[k]) = k + 1;
    }
    *t = big;
    return true;
}

ru_status ru_texts_code(ru_texts *t, const char *text, int64_t *code, ru_err *err)
{
    if (2 * t->n >= t->cap && !grow(t)) {
        return RU_FAIL(err, RU_E_LIMIT, "no room for more than %u texts", t->n);
    }
    *code = number_of(text);
    uint32_t *slot = slot_of(t, *code);
    if (*slot == 0) {
        t->text[t->n] = text;
        t->codes[t->n] = *code;
        *slot = ++t->n;
    } else if (strcmp(t->text[*slot - 1], text) != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the texts '%s' and '%s' have the same hash; rename one of them", text,
                       t->text[*slot - 1]);
    }
    return RU_OK;
}

const char *ru_texts_find(const ru_texts *t, int64_t code)
{
    uint32_t slot = t->cap > 0 ? *slot_of(t, code) : 0;
    return slot > 0 ? t->text[slot - 1] : NULL;
}
