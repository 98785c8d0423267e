/* Texts of times and sizes: 250us, 1.5s, 2h, 64KiB, 1MB.
 *
 * Times: ns us ms s min h d. Sizes: B kB MB GB TB (powers of 1000), KiB MiB GiB TiB (of 1024); a
 * bare number is bytes. A time needs its unit; only 0 needs none. Fractions are allowed when the
 * result is a whole ns or byte.
 *
 * Thread: any. */
#ifndef RU_BASE_UNIT_H
#define RU_BASE_UNIT_H

#include "base/str.h"

/* false (and nothing written) unless the whole slice is such a text, not negative, below 2^63. */
bool ru_unit_time(ru_str word, int64_t *ns);
bool ru_unit_size(ru_str word, int64_t *bytes);

/* Exact texts that parse to the same number: 90s, 1500us, 64KiB, 1000003. */
void ru_text_time(ru_text *t, int64_t ns);
void ru_text_size(ru_text *t, int64_t bytes);

/* Three digits for people: 1.25 s, 340 us, 2 h 5 min; 11.8 MiB. */
void ru_text_time_short(ru_text *t, int64_t ns);
void ru_text_size_short(ru_text *t, int64_t bytes);
/* A count with k, M, G: 1.25 M. */
void ru_text_count_short(ru_text *t, double count);

#endif
