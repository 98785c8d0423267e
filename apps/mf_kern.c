/* Stochastic gradient descent of matrix factorisation.
 *
 * For rating r of (u, v):  e = r - b_u - b_v - u.v
 *     u += lr (e v - lambda u)    v += lr (e u - lambda v)    b += lr (e - lambda b)
 *
 * Ratings stand user by user, so the user's row stays in registers or the nearest cache, and the
 * next item's row is fetched ahead. Rows are multiples of 8 floats. */
#include "apps/mf_kern.h"

#include "apps/kern_impl.h"

#include <string.h>

enum { LANES = 8 };

RUI_APP_INLINE float dot(const float *RU_RESTRICT u, const float *RU_RESTRICT v, uint32_t width)
{
    float a[LANES] = {0};
    for (uint32_t i = 0; i < width; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            a[l] += u[i + l] * v[i + l];
        }
    }
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

RUI_APP_INLINE void step(float *RU_RESTRICT u, float *RU_RESTRICT v, uint32_t width, float e,
                         float keep)
{
    for (uint32_t i = 0; i < width; i++) {
        float x = u[i], y = v[i];
        u[i] = keep * x + e * y;
        v[i] = keep * y + e * x;
    }
}

/* Behind the block's ratings stand those of the next, whose rows may be no rows here: an address
 * that is only fetched from may be any. */
RUI_APP_INLINE void fetch(const float *rows, uint64_t at, uint64_t bytes)
{
#ifdef __GNUC__
    for (uint64_t line = 0; line < bytes; line += 64) {
        __builtin_prefetch((const void *)((uintptr_t)rows + at + line), 1);
    }
#endif
}

RUI_APP_INLINE double sgd_body(const rui_mf_ratings *r, const rui_mf_step *s, uint32_t width)
{
    const float lr = s->lr, keep = 1.0F - s->lr * s->lambda;
    double sum = 0.0;
    float none = 0.0F;
    for (int64_t k = 0; k < r->n_users; k++) {
        float *u = s->users + (int64_t)r->user[k] * width;
        float *bu = s->user_bias != NULL ? s->user_bias + r->user[k] : &none;
        for (int64_t i = r->begin[k]; i < r->begin[k + 1]; i++) {
            float *v = s->items + (int64_t)r->item[i] * width;
            float *bv = s->item_bias != NULL ? s->item_bias + r->item[i] : &none;
            fetch(s->items, (uint64_t)r->item[i + RUI_MF_AHEAD] * width * sizeof(float),
                  width * sizeof(float));
            float e = r->value[i] - *bu - *bv - dot(u, v, width);
            sum += (double)e * (double)e;
            step(u, v, width, lr * e, keep);
            if (s->user_bias != NULL) {
                *bu = keep * *bu + lr * e;
                *bv = keep * *bv + lr * e;
            }
        }
    }
    return sum;
}

/* Known widths let the compiler keep rows in registers. */
double RUI_APP_K(rui_mf_sgd)(const rui_mf_ratings *r, const rui_mf_step *s)
{
    switch (s->width) {
    case 8:
        return sgd_body(r, s, 8);
    case 16:
        return sgd_body(r, s, 16);
    case 32:
        return sgd_body(r, s, 32);
    case 64:
        return sgd_body(r, s, 64);
    default:
        return sgd_body(r, s, s->width);
    }
}
