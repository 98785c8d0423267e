/* Values of a model for a slow line: exponents as a prefix code, sign and mantissa as they are.
 *
 *   lengths [256]   of the codes of the exponents, at most 12 bits; 0: there is none
 *   bits            u64: of all codes together
 *   codes           least bit first, then 8 bytes of 0
 *   rest            3 bytes of each value: sign, 23 bits of mantissa
 *
 * Exponents of a model are alike (2.5 of 8 bits for values of a normal law), so 0.83 of the bytes
 * are left, to the bit.
 *
 * Source: huffman-1952 (codes of least length). Pure. Thread: any. */
#ifndef RU_FLEET_CLIENT_PACK_H
#define RU_FLEET_CLIENT_PACK_H

#include "base/status.h"

/* Bytes that `count` values take at most. */
int64_t rui_fed_pack_most(int64_t count);
/* Bytes written into `into` [rui_fed_pack_most(count)]. Cost: about 2 ns for each value. */
int64_t rui_fed_pack(const float *values, int64_t count, uint8_t *into);
/* Values [count] from what rui_fed_pack wrote; false: it is damaged, or of another count, and
 * `values` holds nothing. */
bool rui_fed_unpack(const uint8_t *data, int64_t size_bytes, float *values, int64_t count);

#endif
