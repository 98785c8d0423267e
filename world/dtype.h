/* Element types. Names follow numpy; ONNX numbers follow onnx.proto (TensorProto.DataType).
 *
 * Thread: any (constant data). */
#ifndef RU_WORLD_DTYPE_H
#define RU_WORLD_DTYPE_H

#include "base/status.h"

RU_API_BEGIN

/* X(NAME, printed name, bytes, ONNX number, safetensors name, numpy descr) */
#define RU_DTYPE_LIST(X)               \
    X(NONE, "none", 0, 0, "", "")      \
    X(F32, "f32", 4, 1, "F32", "<f4")  \
    X(F64, "f64", 8, 11, "F64", "<f8") \
    X(F16, "f16", 2, 10, "F16", "<f2") \
    X(BF16, "bf16", 2, 16, "BF16", "") \
    X(I8, "i8", 1, 3, "I8", "|i1")     \
    X(U8, "u8", 1, 2, "U8", "|u1")     \
    X(I16, "i16", 2, 5, "I16", "<i2")  \
    X(U16, "u16", 2, 4, "U16", "<u2")  \
    X(I32, "i32", 4, 6, "I32", "<i4")  \
    X(U32, "u32", 4, 12, "U32", "<u4") \
    X(I64, "i64", 8, 7, "I64", "<i8")  \
    X(U64, "u64", 8, 13, "U64", "<u8") \
    X(BOOL, "bool", 1, 9, "BOOL", "|b1")

typedef enum ru_dtype {
#define RU_X(name, word, bytes, onnx, st, np) RU_##name,
    RU_DTYPE_LIST(RU_X)
#undef RU_X
        RU_DTYPE_COUNT
} ru_dtype;

const char *ru_dtype_name(ru_dtype t);
int64_t ru_dtype_bytes(ru_dtype t);

/* Round-to-nearest-even conversions of one element. */
uint16_t ru_f32_to_bf16(float x);
float ru_bf16_to_f32(uint16_t x);
uint16_t ru_f32_to_f16(float x);
float ru_f16_to_f32(uint16_t x);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
bool ru_dtype_is_float(ru_dtype t);
bool ru_dtype_is_int(ru_dtype t); /* signed and unsigned, not bool */
int32_t ru_dtype_onnx(ru_dtype t);
ru_dtype ru_dtype_from_onnx(int32_t number); /* RU_NONE when unknown */

#endif
