/* The trace file: what the recorder writes and the reader reads.
 *
 *   file   = header, block*                      all numbers little-endian
 *   header = "RUBATOTR" | u32 version | u32 rank | i64 wall ns | i64 monotonic ns | process[24]
 *            | u32 segment | u32 0
 *   block  = u32 'RBLK' | u32 kind | u32 thread | u32 bytes | u32 crc32c(payload) | u32 0 | payload
 *
 *   kind NAMES    (u16 id, u8 category bytes, u8 name bytes, category, name)*
 *        THREAD   name of the thread, not NUL-terminated
 *        RECORDS  ru_record[bytes / 32]; behind SEND, RECV and SUM stands a ru_record_more
 *        DROPPED  i64 records lost so far on this thread
 *        CLOCK    i64 wall ns, i64 monotonic ns
 *        END      i64 records, i64 dropped: the run closed its trace
 *        NODE     u64 id of this process among its peers: ru_record_more.peer of the others
 *        PEER     (i64 at ns, u64 peer, i64 offset ns, i64 bound ns)*: at `at` of this process'
 *                 monotonic clock that of the peer showed at + offset, wrong by at most bound
 *        META     key, '\0', value: facts about the run, such as "traceparent"
 *
 * A block is appended with one write, so a killed run leaves whole blocks and at most one torn one
 * at the end, which the checksum finds. Readers skip kinds that they do not know.
 *
 * A recorder writes segments: rank0.trace, then rank0+1.trace, ... Each begins with all names, so
 * that it can be read alone; thread numbers and clock go on. The oldest ones are deleted when all
 * together pass the limit. A resumed run begins again with rank0-2.trace.
 *
 * Version 2 added records of transfers, NODE, PEER, META and segments; files of version 1 are
 * refused.
 *
 * Thread: any. */
#ifndef RU_TRACE_FORMAT_H
#define RU_TRACE_FORMAT_H

#include "base/status.h"

#define RUI_TRACE_MAGIC "RUBATOTR"

enum {
    RUI_TRACE_VERSION = 2,
    RUI_TRACE_HEADER_BYTES = 64,
    RUI_TRACE_PROCESS_BYTES = 24,
    RUI_TRACE_PEER_BYTES = 32,  /* one entry of PEER */
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
    RUI_TRACE_NODE = 7,
    RUI_TRACE_PEER = 8,
    RUI_TRACE_META = 9,
} rui_trace_block;

#endif
