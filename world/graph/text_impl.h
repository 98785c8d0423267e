/* A growing text in an arena: printing without stdio.
 *
 * Thread: one. */
#ifndef RU_WORLD_TEXT_IMPL_H
#define RU_WORLD_TEXT_IMPL_H

#include "base/arena.h"

typedef struct rui_text {
    ru_arena *arena;
    char *at;
    int64_t n, cap;
    bool full; /* the arena is full: the text is cut */
} rui_text;

void rui_text_add(rui_text *t, const char *s);
void rui_text_int(rui_text *t, int64_t x);
void rui_text_fmt(rui_text *t, const char *fmt, ...) RU_PRINTF(2, 3);

#endif
