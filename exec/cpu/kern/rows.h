/* Short rows copied with a step on both sides: what memcpy would spend on each call is more than
 * what such a row is.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_ROWS_H
#define RU_EXEC_CPU_KERN_ROWS_H

#include <stdint.h>
#include <string.h>

#define RUI_ROWS(copy)                                                     \
    for (int64_t r = 0; r < rows; r++, to += to_step, from += from_step) { \
        copy;                                                              \
    }                                                                      \
    return

/* Copy `rows` rows of `bytes` bytes; the steps are in bytes, too. Rows of y may not overlap. */
static inline void rui_rows_copy(char *to, int64_t to_step, const char *from, int64_t from_step,
                                 int64_t bytes, int64_t rows)
{
    char a[32], b[32]; /* both read before one is written: they overlap within a row */
    int64_t rest = bytes > 32 ? bytes - 32 : bytes > 16 ? bytes - 16 : bytes > 8 ? bytes - 8 : 0;
    switch (bytes) {
    case 1:
        RUI_ROWS(*to = *from);
    case 2:
        RUI_ROWS(memcpy(to, from, 2));
    case 3:
        RUI_ROWS(memcpy(to, from, 3));
    case 4:
        RUI_ROWS(memcpy(to, from, 4));
    case 6:
        RUI_ROWS(memcpy(to, from, 6));
    case 8:
        RUI_ROWS(memcpy(to, from, 8));
    case 12:
        RUI_ROWS(memcpy(to, from, 12));
    case 16:
        RUI_ROWS(memcpy(to, from, 16));
    default:
        break;
    }
    if (bytes > 8 && bytes < 16) {
        RUI_ROWS(memcpy(a, from, 8); memcpy(b, from + rest, 8); memcpy(to, a, 8);
                 memcpy(to + rest, b, 8));
    }
    if (bytes > 16 && bytes <= 32) {
        RUI_ROWS(memcpy(a, from, 16); memcpy(b, from + rest, 16); memcpy(to, a, 16);
                 memcpy(to + rest, b, 16));
    }
    if (bytes > 32 && bytes <= 64) {
        RUI_ROWS(memcpy(a, from, 32); memcpy(b, from + rest, 32); memcpy(to, a, 32);
                 memcpy(to + rest, b, 32));
    }
    RUI_ROWS(memcpy(to, from, (size_t)bytes));
}

#undef RUI_ROWS

#endif
