/* CRC-32C (Castagnoli), the checksum of TFRecord, TensorBoard and our own frames.
 *
 * By the processor's instruction where there is one, else by table. Thread: any. */
#ifndef RU_BASE_CRC32C_H
#define RU_BASE_CRC32C_H

#include "base/status.h"

/* CRC of `data`, continuing from `crc` (0 to begin): crc(a then b) = crc(b, from crc(a)). */
uint32_t ru_crc32c(uint32_t crc, const void *data, int64_t size_bytes);

/* The same by table, whatever the processor: the instruction's witness in tests. */
uint32_t ru_crc32c_table(uint32_t crc, const void *data, int64_t size_bytes);

/* The form stored in TFRecord frames: rotated right by 15, plus a constant. */
uint32_t ru_crc32c_mask(uint32_t crc);

#endif
