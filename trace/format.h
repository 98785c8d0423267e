/* The trace file: what the recorder writes and the reader reads.
 *
 *   file   = header, block*                      all numbers little-endian
 *   header = "RUBATOTR" | u32 version | u32 rank | i64 wall ns | i64 monotonic ns | process[32]
 *   block  = u32 'RBLK' | u32 kind | u32 thread | u32 bytes | u32 crc32c(payload) | u32 0 | payload
 *
 *   kind NAMES    (u16 id, u8 category bytes, u8 name bytes, category, name)*
 *        THREAD   name of the thread, not NUL-terminated
 *        RECORDS  ru_record[bytes / 32]
 *        DROPPED  i64 records lost so far on this thread
 *        CLOCK    i64 wall ns, i64 monotonic ns
 *        END      i64 records, i64 dropped: the run closed its trace
 *
 * A block is appended with one write, so a killed run leaves whole blocks and at most one torn one
 * at the end, which the checksum finds.
 *
 * Thread: any. */
#ifndef RU_TRACE_FORMAT_H
#define RU_TRACE_FORMAT_H

#include "base/status.h"

#define RUI_TRACE_MAGIC "RUBATOTR"

enum {
    RUI_TRACE_VERSION = 1,
    RUI_TRACE_HEADER_BYTES = 64,
    RUI_TRACE_BLOCK_BYTES = 24, /* block header */
    RUI_TRACE_BLOCK_MAGIC = 0x4b4c4252,
    RUI_TRACE_PAYLOAD_MAX = 1 << 24,
};

typedef enum rui_trace_block {
    RUI_TRACE_NAMES = 1,
    RUI_TRACE_THREAD = 2,
    RUI_TRACE_RECORDS = 3,
    RUI_TRACE_DROPPED = 4,
    RUI_TRACE_CLOCK = 5,
    RUI_TRACE_END = 6,
} rui_trace_block;

#endif
