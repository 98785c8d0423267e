/* Batches whose memory a consumer keeps: the Python package, whose arrays are views of them.
 *
 * Thread: ru_stream_take as ru_stream_next, ru_stream_give any. */
#ifndef RU_DATA_TAKE_H
#define RU_DATA_TAKE_H

#include "data/reader.h"

/* The batch that ru_stream_next gave last is the caller's from now on: its fields stay where they
 * are until ru_stream_give. Returns its memory, which the first field begins; NULL: there is no
 * batch, it was taken, or there is no memory for another one in its place, and nothing changed. */
void *ru_stream_take(ru_stream *s, int64_t *size_bytes);
/* Nobody reads a batch that was taken any more: a later one may be put there. A stream keeps as
 * many as it reads ahead at most, beside its bytes_max. s NULL: the stream was closed. */
void ru_stream_give(ru_stream *s, void *taken, int64_t size_bytes);

#endif
