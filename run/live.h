/* The moving line on the terminal behind stderr.
 *
 * Thread: one at a time. */
#ifndef RU_RUN_LIVE_H
#define RU_RUN_LIVE_H

#include "base/status.h"

typedef struct ru_live {
    uint32_t columns; /* of the terminal; 0: there is none, nothing is drawn */
    uint32_t drawn;   /* characters that stand there */
} ru_live;

/* Draw `text` over what stands there, cut where the terminal ends. */
void ru_live_draw(ru_live *l, const char *text, int64_t size_bytes);
/* Wipe it: before any other line. */
void ru_live_clear(ru_live *l);

#endif
