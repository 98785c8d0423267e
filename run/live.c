#include "run/live.h"

#include <stdio.h>

void ru_live_draw(ru_live *l, const char *text, int64_t size_bytes)
{
    if (l->columns == 0) {
        return;
    }
    uint32_t n =
        (uint32_t)(size_bytes < (int64_t)l->columns ? size_bytes : (int64_t)l->columns - 1);
    (void)fprintf(stderr, "\r%.*s%*s", (int)n, text, l->drawn > n ? (int)(l->drawn - n) : 0, "");
    (void)fflush(stderr);
    l->drawn = n;
}

void ru_live_clear(ru_live *l)
{
    if (l->drawn > 0) {
        (void)fprintf(stderr, "\r%*s\r", (int)l->drawn, "");
        l->drawn = 0;
    }
}
