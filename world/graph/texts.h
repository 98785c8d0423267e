/* Texts as numbers. A tensor of texts is one of i64: a hash of its bytes gives each distinct text a
 * positive number. Ops that compare and move elements work on texts without knowing it; a table
 * turns the numbers back. Two texts of one number are refused.
 *
 * Thread: one per table. */
#ifndef RU_WORLD_TEXTS_H
#define RU_WORLD_TEXTS_H

#include "base/arena.h"
#include "base/status.h"

/* Zeroed but for the arena is empty. */
typedef struct ru_texts {
    ru_arena *arena;
    const char **text; /* [n] in the order of their coming */
    int64_t *codes;    /* [n] */
    uint32_t n, cap;
    uint32_t *slots; /* [cap] 1 + index of a text; 0: free. cap: power of two, or 0 */
} ru_texts;

/* The number of `text` (view), which is added when new. Errors: RU_E_UNSUPPORTED for two texts of
 * one number, RU_E_LIMIT when the arena is full. */
RU_MUST_USE ru_status ru_texts_code(ru_texts *t, const char *text, int64_t *code, ru_err *err);
/* The text of a number; NULL when there is none. */
const char *ru_texts_find(const ru_texts *t, int64_t code);

#endif
