/* Inside of reading traces. Thread: one. */
#ifndef RU_TRACE_READ_IMPL_H
#define RU_TRACE_READ_IMPL_H

#include "trace/read/read.h"

/* A file, or one segment of several in their order. */
typedef struct rui_trace_part {
    const uint8_t *data;
    int64_t size_bytes;
} rui_trace_part;

typedef struct rui_block {
    uint32_t kind, thread, size_bytes;
    const uint8_t *payload;
} rui_block;

/* The block at `at`, or false where the readable prefix ends. */
bool rui_trace_block_at(const uint8_t *data, int64_t size_bytes, int64_t at, rui_block *b);

RU_MUST_USE ru_status rui_trace_parse_parts(const rui_trace_part *parts, uint32_t n,
                                            ru_arena *arena, ru_trace *out, ru_err *err);

#endif
