/* Protobuf wire format, read and written.
 *
 * One module for every format that uses it (ONNX, Perfetto, TensorBoard, TFRecord). Reading
 * is a cursor over bytes that copies nothing: a field is a number, a wire type and either a value
 * or a view. Every length is checked against the available bytes. The first bad byte stops the
 * cursor, which remembers it, so a reader is one plain loop:
 *
 *     ru_pb_in in = ru_pb_in_open(data, size_bytes);
 *     for (ru_pb_field f; ru_pb_next(&in, &f);) {
 *         switch (f.number) { case 1: name = ru_pb_slice(&f); break; ... }
 *     }
 *     RU_TRY(ru_pb_in_end(&in, "ModelProto", err));
 *
 * A reader skips unknown fields by not naming them. Groups (wire types 3 and 4) are refused.
 * Writing appends to one growing buffer; a nested message is begun and ended around its fields.
 *
 * Thread: a cursor or writer belongs to one thread.
 * Source: protobuf.dev/programming-guides/encoding */
#ifndef RU_BASE_PB_H
#define RU_BASE_PB_H

#include "base/status.h"

typedef enum ru_pb_wire {
    RU_PB_VARINT = 0,
    RU_PB_FIXED64 = 1,
    RU_PB_LEN = 2,
    RU_PB_FIXED32 = 5,
} ru_pb_wire;

/* -- reading ----------------------------------------------------------------------------------- */

typedef struct ru_pb_in {
    const uint8_t *begin, *at, *end;
    const char *why; /* NULL: all is well; else what is wrong at `at` (static text) */
} ru_pb_in;

typedef struct ru_pb_field {
    uint32_t number; /* >= 1 */
    ru_pb_wire wire;
    uint64_t value;      /* VARINT, FIXED32, FIXED64: the raw bits */
    const uint8_t *data; /* LEN: view [size_bytes] */
    int64_t size_bytes;  /* LEN */
} ru_pb_field;

/* A cursor over `size_bytes` bytes of `data` (view; NULL only with 0 bytes). */
ru_pb_in ru_pb_in_open(const void *data, int64_t size_bytes);

/* Read the next field. false: at the end, or after an error (ru_pb_in_end reports it). */
bool ru_pb_next(ru_pb_in *in, ru_pb_field *f);

/* RU_OK when the cursor ended cleanly. `what` names the message in the sentence.
 * Errors: RU_E_DATA with the offset in this message. */
RU_MUST_USE ru_status ru_pb_in_end(const ru_pb_in *in, const char *what, ru_err *err);

/* Mark the message bad at the current place (a caller's own check); keeps the first reason. */
void ru_pb_in_fail(ru_pb_in *in, const char *why);

/* The bytes of a LEN field as a cursor; a field of another wire type gives a failed cursor. */
ru_pb_in ru_pb_sub(const ru_pb_field *f);

/* The values of a scalar field, read with sticky errors on `in`: the wire type must fit. */
int64_t ru_pb_i64(ru_pb_in *in, const ru_pb_field *f); /* int32, int64, uint*, bool, enum */
float ru_pb_f32(ru_pb_in *in, const ru_pb_field *f);   /* float */

/* A repeated scalar field comes packed (LEN) or one by one (its own wire type). `elem` is the wire
 * type of one element. Count of elements in this occurrence; -1 when malformed. */
int64_t ru_pb_count(const ru_pb_field *f, ru_pb_wire elem);
/* Raw bits of the elements of this occurrence into `into` [max]; returns how many were written.
 * Cost: one pass. A malformed tail ends it, so ask ru_pb_count first. */
int64_t ru_pb_values(const ru_pb_field *f, ru_pb_wire elem, uint64_t *into, int64_t max);

float ru_pb_bits_f32(uint64_t bits);

/* -- writing ----------------------------------------------------------------------------------- */

enum { RU_PB_DEPTH_MAX = 16 }; /* open nested messages */

typedef struct ru_pb_out {
    uint8_t *data; /* [size_bytes] so far; moves when it grows */
    int64_t size_bytes, cap_bytes;
    bool full; /* sticky: no memory; later writes do nothing */
    uint32_t depth;
    int64_t open[RU_PB_DEPTH_MAX]; /* where the bodies of open messages start */
} ru_pb_out;

/* A growing writer; takes memory at the first write. */
void ru_pb_out_init(ru_pb_out *o);
void ru_pb_out_fini(ru_pb_out *o); /* accepts zeroed memory */
/* Forget the bytes, keep the memory. */
void ru_pb_out_reset(ru_pb_out *o);
/* RU_OK when every write fitted and every message was ended. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_pb_out_end(const ru_pb_out *o, ru_err *err);

void ru_pb_put_u64(ru_pb_out *o, uint32_t field, uint64_t v); /* uint*, bool, enum */
void ru_pb_put_i64(ru_pb_out *o, uint32_t field,
                   int64_t v); /* int32, int64: negative takes 10 bytes */
void ru_pb_put_fixed64(ru_pb_out *o, uint32_t field, uint64_t v);
void ru_pb_put_f64(ru_pb_out *o, uint32_t field, double v);
void ru_pb_put_f32(ru_pb_out *o, uint32_t field, float v);
void ru_pb_put_bytes(ru_pb_out *o, uint32_t field, const void *data, int64_t size_bytes);
void ru_pb_put_str(ru_pb_out *o, uint32_t field, const char *s);
void ru_pb_put_packed_i64(ru_pb_out *o, uint32_t field, const int64_t *v, int64_t n);

/* Everything written between the two calls is the body of message `field`. */
void ru_pb_begin(ru_pb_out *o, uint32_t field);
void ru_pb_end(ru_pb_out *o);

/* Bytes as they are (a message that was made elsewhere, framing around messages). */
void ru_pb_raw(ru_pb_out *o, const void *data, int64_t size_bytes);

#endif
