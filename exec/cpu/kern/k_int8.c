/* Quantisation of tensors: a number q stands for (q - zero) * scale. */
#include "exec/cpu/kern/isa.h"

#define QUANTIZE(type)                                                  \
    do {                                                                \
        type *ys = y;                                                   \
        for (int64_t i = 0; i < n; i++) {                               \
            float q = rintf(x[i] / scale) + zero;                       \
            ys[i] = (type)(int)(q > low ? (q < high ? q : high) : low); \
        }                                                               \
    } while (0)

void RUI_K(rui_kern_quantize)(const float *x, float scale, float zero, ru_dtype t, void *y,
                              int64_t n)
{
    bool wide = t == RU_I16 || t == RU_U16;
    float low = t == RU_I8 ? -128.0f : t == RU_I16 ? -32768.0f : 0.0f;
    float high = low + (wide ? 65535.0f : 255.0f);
    if (t == RU_I8) {
        QUANTIZE(int8_t);
    } else if (t == RU_I16) {
        QUANTIZE(int16_t);
    } else if (t == RU_U16) {
        QUANTIZE(uint16_t);
    } else {
        QUANTIZE(uint8_t);
    }
}

#define DEQUANTIZE(type)                          \
    do {                                          \
        const type *xs = x;                       \
        for (int64_t i = 0; i < n; i++) {         \
            y[i] = ((float)xs[i] - zero) * scale; \
        }                                         \
    } while (0)

void RUI_K(rui_kern_dequantize)(ru_dtype t, const void *x, float scale, float zero, float *y,
                                int64_t n)
{
    if (t == RU_I8) {
        DEQUANTIZE(int8_t);
    } else if (t == RU_U8) {
        DEQUANTIZE(uint8_t);
    } else if (t == RU_I16) {
        DEQUANTIZE(int16_t);
    } else if (t == RU_U16) {
        DEQUANTIZE(uint16_t);
    } else {
        DEQUANTIZE(int32_t);
    }
}

#define ADD(ta, tb, ty)                                                                  \
    do {                                                                                 \
        const ta *as = a;                                                                \
        const tb *bs = b;                                                                \
        ty *ys = y;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                \
            float q = rintf((float)as[i] * s->a + (float)bs[i] * s->b + s->c) + s->zero; \
            ys[i] = (ty)(int)(q > s->low ? (q < s->high ? q : s->high) : s->low);        \
        }                                                                                \
    } while (0)

void RUI_K(rui_kern_add_int8)(const ru_kern_add8 *s, const void *a, const void *b, void *y,
                              int64_t n)
{
    switch (s->types) {
    case 0:
        ADD(uint8_t, uint8_t, uint8_t);
        return;
    case 1:
        ADD(int8_t, uint8_t, uint8_t);
        return;
    case 2:
        ADD(uint8_t, int8_t, uint8_t);
        return;
    case 3:
        ADD(int8_t, int8_t, uint8_t);
        return;
    case 4:
        ADD(uint8_t, uint8_t, int8_t);
        return;
    case 5:
        ADD(int8_t, uint8_t, int8_t);
        return;
    case 6:
        ADD(uint8_t, int8_t, int8_t);
        return;
    default:
        ADD(int8_t, int8_t, int8_t);
        return;
    }
}
