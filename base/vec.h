/* Growable arrays on an arena. A vector of T is any struct that holds `T *at; uint32_t n, cap;`;
 * one line makes the type and its functions, all of them ordinary code:
 *
 *     RU_VEC(rui_edges, ru_edge)         struct rui_edges, rui_edges_push, _reserve, _append
 *     rui_edges v = {0};
 *     ru_edge *e = rui_edges_push(&v, arena);   one zeroed element, NULL when the arena is full
 *     v.at[i], v.n                              0 <= i < v.n; `at` moves when the vector grows
 *
 * Growth doubles and leaves the old memory in the arena (at most as much again as the vector).
 *
 * Thread: one at a time. */
#ifndef RU_BASE_VEC_H
#define RU_BASE_VEC_H

#include <string.h>

#include "base/arena.h"

/* The grown copy of an array of *cap elements, n of them used, or NULL when the arena is full. */
static inline void *ru_vec_grow(ru_arena *a, const void *at, uint32_t n, uint32_t *cap,
                                uint32_t cap_min, int64_t elem_bytes, int64_t align)
{
    uint64_t want = *cap < 4 ? 8 : (uint64_t)*cap * 2;
    want = want < cap_min ? cap_min : want;
    want = want > UINT32_MAX ? UINT32_MAX : want;
    if (want > (uint64_t)(INT64_MAX / 8) / (uint64_t)elem_bytes) {
        return NULL;
    }
    void *p = ru_arena_alloc(a, (int64_t)want * elem_bytes, align);
    if (p != NULL) {
        if (n > 0) {
            memcpy(p, at, (size_t)n * (size_t)elem_bytes);
        }
        *cap = (uint32_t)want;
    }
    return p;
}

#define RU_VEC(name, type)                                                                        \
    typedef struct name {                                                                         \
        type *at;                                                                                 \
        uint32_t n, cap;                                                                          \
    } name;                                                                                       \
    /* Room for cap_min elements in all; false when the arena is full. */                         \
    RU_UNUSED static inline bool name##_reserve(name *v, ru_arena *a, uint32_t cap_min)           \
    {                                                                                             \
        if (v->cap >= cap_min) {                                                                  \
            return true;                                                                          \
        }                                                                                         \
        void *p = ru_vec_grow(a, v->at, v->n, &v->cap, cap_min, (int64_t)sizeof(type),            \
                              (int64_t) _Alignof(type));                                          \
        v->at = p != NULL ? p : v->at;                                                            \
        return p != NULL;                                                                         \
    }                                                                                             \
    RU_UNUSED static inline type *name##_push(name *v, ru_arena *a)                               \
    {                                                                                             \
        if (v->n == UINT32_MAX || !name##_reserve(v, a, v->n + 1)) {                              \
            return NULL;                                                                          \
        }                                                                                         \
        memset(&v->at[v->n], 0, sizeof(type));                                                    \
        return &v->at[v->n++];                                                                    \
    }                                                                                             \
    /* n copies from `src`; false when the arena is full. */                                      \
    RU_UNUSED static inline bool name##_append(name *v, ru_arena *a, const type *src, uint32_t n) \
    {                                                                                             \
        if (n > UINT32_MAX - v->n || !name##_reserve(v, a, v->n + n)) {                           \
            return false;                                                                         \
        }                                                                                         \
        if (n > 0) {                                                                              \
            memcpy(&v->at[v->n], src, (size_t)n * sizeof(type));                                  \
        }                                                                                         \
        v->n += n;                                                                                \
        return true;                                                                              \
    }

#endif
