/* Cursors over little-endian bytes, for messages and files. Bounds are checked at every step; a
 * read past the end gives 0 and makes the cursor bad for good, so that a parser may read a whole
 * header and ask once. Lengths are checked against what is left before anything is allocated.
 *
 * Thread: one at a time. */
#ifndef RU_BASE_WIRE_H
#define RU_BASE_WIRE_H

#include "base/status.h"

typedef struct ru_wire_in {
    const uint8_t *at, *end; /* view */
    bool bad;                /* something was read past the end */
} ru_wire_in;

ru_wire_in ru_wire_in_from(const void *data, int64_t size_bytes);
int64_t ru_wire_left(const ru_wire_in *w); /* bytes not read yet; 0 once bad */
uint8_t ru_wire_u8(ru_wire_in *w);
uint16_t ru_wire_u16(ru_wire_in *w);
uint32_t ru_wire_u32(ru_wire_in *w);
uint64_t ru_wire_u64(ru_wire_in *w);
double ru_wire_f64(ru_wire_in *w);
/* View of the next size_bytes, NULL (and bad) when they are not there; negative sizes are bad. */
const uint8_t *ru_wire_bytes(ru_wire_in *w, int64_t size_bytes);
/* A slice with its length in front (u32); NULL when it does not fit or is longer than n_max. */
const char *ru_wire_text(ru_wire_in *w, uint32_t n_max, uint32_t *n);

typedef struct ru_wire_out {
    uint8_t *at, *end, *start; /* view of the caller's buffer */
    bool bad;                  /* something did not fit; nothing of it was written */
} ru_wire_out;

ru_wire_out ru_wire_out_into(void *buf, int64_t size_bytes);
int64_t ru_wire_size(const ru_wire_out *w); /* bytes written */
void ru_wire_put_u8(ru_wire_out *w, uint8_t v);
void ru_wire_put_u16(ru_wire_out *w, uint16_t v);
void ru_wire_put_u32(ru_wire_out *w, uint32_t v);
void ru_wire_put_u64(ru_wire_out *w, uint64_t v);
void ru_wire_put_f64(ru_wire_out *w, double v);
void ru_wire_put_bytes(ru_wire_out *w, const void *data, int64_t size_bytes);
void ru_wire_put_text(ru_wire_out *w, const char *s, uint32_t n);

#endif
