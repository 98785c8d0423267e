/* Batch normalisation of one run of positions, forward and backward, with the addition of a
 * residual and ReLU inside.
 *
 * A run is `s` positions of `lanes` channels side by side: 16 or 8 in the blocked orders, 1 in
 * row-major (then the run is one channel's plane). Either way the loop works on vectors of 16; with
 * one lane the coefficients are spread and the sums folded at the end. Four running sums hide the
 * latency of additions; their order is fixed. */
#include "exec/cpu/kern/isa.h"

/* Functions over v16 are all inlined, so how one would be passed does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float v16 __attribute__((vector_size(64)));
typedef float v16_any __attribute__((vector_size(64), aligned(4)));
typedef uint32_t u16v __attribute__((vector_size(64)));
typedef int32_t i16v __attribute__((vector_size(64)));
typedef uint16_t h16_any __attribute__((vector_size(32), aligned(2)));

RU_KERN_INLINE v16 get(bool half, const void *p, int64_t i)
{
    if (half) {
        h16_any h = *(const h16_any *)((const uint16_t *)p + i);
        u16v w = __builtin_convertvector(h, u16v) << 16;
        return (v16)w;
    }
    return *(const v16_any *)((const float *)p + i);
}

RU_KERN_INLINE void put(bool half, void *p, int64_t i, v16 x)
{
    if (half) {
        u16v u = (u16v)x;
        u16v r = u + 0x7fffu + ((u >> 16) & 1u);
        u16v nan = (u16v)(x != x);
        r = (nan & (u | 0x400000u)) | (~nan & r);
        *(h16_any *)((uint16_t *)p + i) = __builtin_convertvector(r >> 16, h16_any);
        return;
    }
    *(v16_any *)((float *)p + i) = x;
}

RU_KERN_INLINE float get1(bool half, const void *p, int64_t i)
{
    return half ? kv_from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

RU_KERN_INLINE void put1(bool half, void *p, int64_t i, float x)
{
    if (half) {
        ((uint16_t *)p)[i] = kv_to_bf16(x);
    } else {
        ((float *)p)[i] = x;
    }
}

RU_KERN_INLINE v16 coef(const float *c, int64_t lanes)
{
    if (lanes == 8) { /* two positions side by side */
        v16 x;
        memcpy(&x, c, 32);
        memcpy((char *)&x + 32, c, 32);
        return x;
    }
    return lanes == 16 ? *(const v16_any *)c : (v16){0} + c[0];
}

/* Lane of an element of the tail, which begins at a whole vector. */
RU_KERN_INLINE int64_t lane_of(int64_t i, int64_t lanes)
{
    return lanes == 8 ? i & 7 : 0;
}

RU_KERN_INLINE v16 keep_where(v16 x, i16v mask)
{
    return (v16)((i16v)x & mask);
}

/* Sums over lanes or, with one lane, over everything; `tail` [8] joins at the end. */
RU_KERN_INLINE void fold(const v16 *acc, int64_t lanes, const float *tail, float *out)
{
    v16 all = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    if (lanes == 16) {
        *(v16_any *)out = all;
        return;
    }
    if (lanes == 8) {
        for (int l = 0; l < 8; l++) {
            out[l] = all[l] + all[l + 8] + tail[l];
        }
        return;
    }
    float sum = 0.0f;
    for (int l = 0; l < 16; l++) {
        sum += all[l];
    }
    out[0] = sum + tail[0];
}

RU_KERN_INLINE void sums(bool half, const ru_kern_bn *b, float *sum, float *sq)
{
    v16 pivot = coef(b->mean, b->lanes);
    v16 a[4] = {{0}};
    v16 q[4] = {{0}};
    int64_t n = b->s * b->lanes;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int k = 0; k < 4; k++) {
            v16 d = get(half, b->x, i + 16 * k) - pivot;
            a[k] += d;
            q[k] += d * d;
        }
    }
    for (; i + 16 <= n; i += 16) {
        v16 d = get(half, b->x, i) - pivot;
        a[0] += d;
        q[0] += d * d;
    }
    float ta[8] = {0};
    float tq[8] = {0};
    for (; i < n; i++) {
        int64_t l = lane_of(i, b->lanes);
        float d = get1(half, b->x, i) - b->mean[l];
        ta[l] += d;
        tq[l] += d * d;
    }
    fold(a, b->lanes, ta, sum);
    fold(q, b->lanes, tq, sq);
}

void RUI_K(rui_kern_bn_sums)(const ru_kern_bn *b, float *sum, float *sq)
{
    if (b->t == RU_BF16) {
        sums(true, b, sum, sq);
    } else {
        sums(false, b, sum, sq);
    }
}

/* each: mul and add are those of every element. */
RU_KERN_INLINE void apply(bool half, bool each, bool add, bool relu, const ru_kern_bn *b)
{
    v16 mul = each ? (v16){0} : coef(b->mul, b->lanes);
    v16 off = each ? (v16){0} : coef(b->add, b->lanes);
    int64_t n = each ? b->lanes : b->s * b->lanes;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 y = get(half, b->x, i) * (each ? get(false, b->mul, i) : mul) +
                (each ? get(false, b->add, i) : off);
        y = add ? y + get(half, b->residual, i) : y;
        put(half, b->out, i, relu ? keep_where(y, ~(y <= 0.0f)) : y); /* NaN stays */
    }
    for (; i < n; i++) {
        int64_t l = each ? i : lane_of(i, b->lanes);
        float y = get1(half, b->x, i) * b->mul[l] + b->add[l];
        y = add ? y + get1(half, b->residual, i) : y;
        put1(half, b->out, i, relu && y <= 0.0f ? 0.0f : y);
    }
}

RU_KERN_INLINE void apply_any(bool half, bool each, const ru_kern_bn *b)
{
    if (b->residual != NULL) {
        if (b->relu) {
            apply(half, each, true, true, b);
        } else {
            apply(half, each, true, false, b);
        }
    } else if (b->relu) {
        apply(half, each, false, true, b);
    } else {
        apply(half, each, false, false, b);
    }
}

/* s = 0: `lanes` elements of one place, any number, each with coefficients of its own. */
void RUI_K(rui_kern_bn_apply)(const ru_kern_bn *b)
{
    if (b->t == RU_BF16) {
        RU_CHECK(b->s > 0);
        apply_any(true, false, b);
    } else if (b->s == 0) {
        apply_any(false, true, b);
    } else {
        apply_any(false, false, b);
    }
}

/* The gradient after ReLU: where the forward result was positive. That is read from y, or, when y
 * had no residual, computed again from x, which is read anyway. */
enum { MASK_NONE, MASK_Y, MASK_X };

RU_KERN_INLINE v16 masked(bool half, int how, const ru_kern_bn *b, int64_t i, v16 x, v16 mul,
                          v16 off)
{
    v16 dy = get(half, b->dy, i);
    if (how == MASK_Y) {
        return keep_where(dy, get(half, b->y, i) > 0.0f);
    }
    return how == MASK_X ? keep_where(dy, x * mul + off > 0.0f) : dy;
}

RU_KERN_INLINE float masked1(bool half, int how, const ru_kern_bn *b, int64_t i, float x)
{
    float dy = get1(half, b->dy, i);
    int64_t l = lane_of(i, b->lanes);
    bool on = how == MASK_NONE ||
              (how == MASK_Y ? get1(half, b->y, i) > 0.0f : x * b->mul[l] + b->add[l] > 0.0f);
    return on ? dy : 0.0f;
}

RU_KERN_INLINE void grad_sums(bool half, int how, const ru_kern_bn *b, float *sum, float *dot)
{
    v16 mul = how == MASK_X ? coef(b->mul, b->lanes) : (v16){0};
    v16 off = how == MASK_X ? coef(b->add, b->lanes) : (v16){0};
    v16 mean = coef(b->mean, b->lanes);
    v16 a[4] = {{0}};
    v16 q[4] = {{0}};
    int64_t n = b->s * b->lanes;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int k = 0; k < 4; k++) {
            v16 x = get(half, b->x, i + 16 * k);
            v16 dy = masked(half, how, b, i + 16 * k, x, mul, off);
            a[k] += dy;
            q[k] += dy * (x - mean);
        }
    }
    for (; i + 16 <= n; i += 16) {
        v16 x = get(half, b->x, i);
        v16 dy = masked(half, how, b, i, x, mul, off);
        a[0] += dy;
        q[0] += dy * (x - mean);
    }
    float ta[8] = {0};
    float tq[8] = {0};
    for (; i < n; i++) {
        int64_t l = lane_of(i, b->lanes);
        float x = get1(half, b->x, i);
        float dy = masked1(half, how, b, i, x);
        ta[l] += dy;
        tq[l] += dy * (x - b->mean[l]);
    }
    fold(a, b->lanes, ta, sum);
    fold(q, b->lanes, tq, dot);
}

RU_KERN_INLINE void grad_sums_any(bool half, const ru_kern_bn *b, float *sum, float *dot)
{
    if (b->y != NULL) {
        grad_sums(half, MASK_Y, b, sum, dot);
    } else if (b->relu) {
        grad_sums(half, MASK_X, b, sum, dot);
    } else {
        grad_sums(half, MASK_NONE, b, sum, dot);
    }
}

void RUI_K(rui_kern_bn_grad_sums)(const ru_kern_bn *b, float *sum, float *dot)
{
    if (b->t == RU_BF16) {
        grad_sums_any(true, b, sum, dot);
    } else {
        grad_sums_any(false, b, sum, dot);
    }
}

RU_KERN_INLINE void grad_apply(bool half, int how, bool res, const ru_kern_bn *b)
{
    v16 mul = how == MASK_X ? coef(b->mul, b->lanes) : (v16){0};
    v16 off = how == MASK_X ? coef(b->add, b->lanes) : (v16){0};
    v16 k_dy = coef(b->k_dy, b->lanes);
    v16 k_x = coef(b->k_x, b->lanes);
    v16 k_1 = coef(b->k_1, b->lanes);
    int64_t n = b->s * b->lanes;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 x = get(half, b->x, i);
        v16 dy = masked(half, how, b, i, x, mul, off);
        put(half, b->out, i, dy * k_dy + (x * k_x + k_1));
        if (res) {
            put(half, b->dres, i, dy);
        }
    }
    for (; i < n; i++) {
        float x = get1(half, b->x, i);
        float dy = masked1(half, how, b, i, x);
        int64_t l = lane_of(i, b->lanes);
        put1(half, b->out, i, dy * b->k_dy[l] + (x * b->k_x[l] + b->k_1[l]));
        if (res) {
            put1(half, b->dres, i, dy);
        }
    }
}

RU_KERN_INLINE void grad_apply_any(bool half, bool res, const ru_kern_bn *b)
{
    if (b->y != NULL) {
        grad_apply(half, MASK_Y, res, b);
    } else if (b->relu) {
        grad_apply(half, MASK_X, res, b);
    } else {
        grad_apply(half, MASK_NONE, res, b);
    }
}

void RUI_K(rui_kern_bn_grad_apply)(const ru_kern_bn *b)
{
    if (b->t == RU_BF16) {
        if (b->dres != NULL) {
            grad_apply_any(true, true, b);
        } else {
            grad_apply_any(true, false, b);
        }
    } else if (b->dres != NULL) {
        grad_apply_any(false, true, b);
    } else {
        grad_apply_any(false, false, b);
    }
}
