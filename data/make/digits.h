/* Drawn digits: strokes with jitter, rasterised to 28 x 28 gray pixels.
 *
 * Sample `index` of `seed` is a function of the two and of nothing else. Thread: any (no state). */
#ifndef RU_DATA_DIGITS_H
#define RU_DATA_DIGITS_H

#include "base/status.h"

enum { RU_DIGIT_SIDE = 28, RU_DIGIT_PIXELS = RU_DIGIT_SIDE * RU_DIGIT_SIDE };

/* Draw one digit into pixels [28, 28] (0 = paper, 255 = ink); returns its class 0..9. */
int32_t ru_digit_draw(uint64_t seed, int64_t index, uint8_t *pixels);

#endif
