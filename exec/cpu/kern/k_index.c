/* Movement by tables: every axis of the output has a table of where it reads, so one loop serves
 * cuts with steps, padding, repetition and nearest-neighbour resizing; and weighted sums along an
 * axis, which are the other resizings and their gradients. */
#include "exec/cpu/kern/isa.h"

/* Is the table of the last axis read element by element? Runs of a few are not worth their start.
 */
static bool in_table(const ru_kern_places *p)
{
    enum { RUN = 6 };
    return p->n_runs == 0 || p->n_runs * RUN > p->dims[p->rank - 1];
}

#define COPY_RUN(type, name)                                                                  \
    static void name##_fill(type *to, type v, int64_t n)                                      \
    {                                                                                         \
        for (int64_t j = 0; j < n; j++) {                                                     \
            to[j] = v;                                                                        \
        }                                                                                     \
    }                                                                                         \
    static void name##_step(type *to, const type *x, int64_t step, int64_t n)                 \
    {                                                                                         \
        for (int64_t j = 0; j < n; j++) {                                                     \
            to[j] = x[j * step];                                                              \
        }                                                                                     \
    }                                                                                         \
    static void name(const ru_kern_places *p, int64_t row, const type *x, type *y, type fill) \
    {                                                                                         \
        for (int64_t r = 0; !in_table(p) && r < p->n_runs; r++) {                             \
            const ru_kern_place_run *run = &p->runs[r];                                       \
            type *to = y + run->to;                                                           \
            if (row < 0 || run->from < 0) {                                                   \
                name##_fill(to, fill, run->n);                                                \
                continue;                                                                     \
            }                                                                                 \
            const type *s = x + row + run->from;                                              \
            if (run->step == 1) {                                                             \
                memcpy(to, s, sizeof(type) * (size_t)run->n);                                 \
            } else if (run->step == 0) {                                                      \
                name##_fill(to, s[0], run->n);                                                \
            } else {                                                                          \
                name##_step(to, s, run->step, run->n);                                        \
            }                                                                                 \
        }                                                                                     \
        if (in_table(p)) {                                                                    \
            const int64_t *from = p->from[p->rank - 1];                                       \
            for (int64_t j = 0; j < p->dims[p->rank - 1]; j++) {                              \
                to_one(p, row, from[j], x, y, j, fill);                                       \
            }                                                                                 \
        }                                                                                     \
    }

#define to_one(p, row, at, x, y, j, fill) y[j] = (row) < 0 || (at) < 0 ? (fill) : x[(row) + (at)]

COPY_RUN(uint8_t, row8)
COPY_RUN(uint16_t, row16)
COPY_RUN(uint32_t, row32)
COPY_RUN(uint64_t, row64)

/* Does the last axis read each element of x twice, one after the other, as an image does that is
 * doubled? */
static bool in_pairs(const ru_kern_places *p)
{
    int64_t n = p->dims[p->rank - 1];
    bool pairs = p->bytes == 4 && in_table(p) && n % 2 == 0;
    for (int64_t j = 0; pairs && j < n; j++) {
        pairs = p->from[p->rank - 1][j] == j / 2;
    }
    return pairs;
}

static void each_twice(const uint32_t *restrict x, uint32_t *restrict y, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        y[2 * j] = x[j];
        y[2 * j + 1] = x[j];
    }
}

/* Where row `r` of the outer axes begins in x, or -1. */
static int64_t row_at(const ru_kern_places *p, int64_t r)
{
    int64_t at = 0;
    for (int64_t d = p->rank - 1; d-- > 0;) {
        int64_t from = p->from[d][r % p->dims[d]];
        r /= p->dims[d];
        if (from < 0) {
            return -1;
        }
        at += from;
    }
    return at;
}

void RUI_K(rui_kern_places)(const ru_kern_places *p, const void *x, const void *fill, void *y,
                            int64_t r0, int64_t r1)
{
    uint64_t bits = 0;
    int64_t cols = p->dims[p->rank - 1];
    const bool pairs = in_pairs(p);
    if (fill != NULL) {
        memcpy(&bits, fill, (size_t)p->bytes);
    }
    for (int64_t r = r0, before = -1; r < r1; r++) {
        int64_t row = row_at(p, r);
        char *to = (char *)y + r * cols * p->bytes;
        if (r > r0 && row == before) {
            memcpy(to, to - cols * p->bytes, (size_t)(cols * p->bytes));
            continue;
        }
        before = row;
        if (pairs && row >= 0) {
            each_twice((const uint32_t *)x + row, (uint32_t *)(void *)to, cols / 2);
            continue;
        }
        switch (p->bytes) {
        case 1:
            row8(p, row, x, (uint8_t *)to, (uint8_t)bits);
            break;
        case 2:
            row16(p, row, x, (uint16_t *)(void *)to, (uint16_t)bits);
            break;
        case 4:
            row32(p, row, x, (uint32_t *)(void *)to, (uint32_t)bits);
            break;
        default:
            row64(p, row, x, (uint64_t *)(void *)to, bits);
            break;
        }
    }
}

/* One output row of `inner` elements: the weighted sum of rows of x. */
static void tap_rows(const ru_kern_taps *p, const float *x, float *y, int64_t o)
{
    int64_t inner = p->inner, from = p->start[o], to = p->start[o + 1];
    if (from == to) {
        memset(y, 0, sizeof(float) * (size_t)inner);
        return;
    }
    if (to == from + 2) {
        const float *a = x + p->index[from] * inner, *b = x + p->index[from + 1] * inner;
        float v = p->weight[from], w = p->weight[from + 1];
#pragma omp simd
        for (int64_t j = 0; j < inner; j++) {
            y[j] = v * a[j] + w * b[j];
        }
        return;
    }
    for (int64_t t = from; t < to; t++) {
        const float *s = x + p->index[t] * inner;
        float w = p->weight[t];
        if (t == from) {
#pragma omp simd
            for (int64_t j = 0; j < inner; j++) {
                y[j] = w * s[j];
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < inner; j++) {
                y[j] += w * s[j];
            }
        }
    }
}

void RUI_K(rui_kern_taps)(const ru_kern_taps *p, const float *x, float *y)
{
    for (int64_t b = 0; b < p->outer; b++, x += p->in * p->inner, y += p->out * p->inner) {
        if (p->inner > 1) {
            for (int64_t o = 0; o < p->out; o++) {
                tap_rows(p, x, y + o * p->inner, o);
            }
            continue;
        }
        if (p->pairs) {
            const int32_t *i = p->index;
            const float *w = p->weight;
#pragma omp simd
            for (int64_t o = 0; o < p->out; o++) {
                y[o] = w[2 * o] * x[i[2 * o]] + w[2 * o + 1] * x[i[2 * o + 1]];
            }
            continue;
        }
        for (int64_t o = 0; o < p->out; o++) {
            float sum = 0.0f;
            for (int64_t t = p->start[o]; t < p->start[o + 1]; t++) {
                sum += p->weight[t] * x[p->index[t]];
            }
            y[o] = sum;
        }
    }
}

#define PUT_ROWS(name, value)                                                                   \
    static void name(const int64_t *restrict to, const int64_t *restrict from, int64_t rows,    \
                     const float *restrict x, int64_t cols, int64_t c0, int64_t c1, int64_t lo, \
                     int64_t hi, float *restrict y)                                             \
    {                                                                                           \
        for (int64_t r = 0; r < rows; r++) {                                                    \
            if (to[r] < lo || to[r] >= hi) {                                                    \
                continue;                                                                       \
            }                                                                                   \
            float *a = y + to[r];                                                               \
            const float *b = x + (from == NULL ? r * cols : from[r]);                           \
            _Pragma("omp simd") for (int64_t j = c0; j < c1; j++)                               \
            {                                                                                   \
                a[j] = value;                                                                   \
            }                                                                                   \
        }                                                                                       \
    }

PUT_ROWS(put_sums, a[j] + b[j])
PUT_ROWS(put_products, a[j] * b[j])
PUT_ROWS(put_largest, b[j] > a[j] ? b[j] : a[j])
PUT_ROWS(put_smallest, b[j] < a[j] ? b[j] : a[j])

void RUI_K(rui_kern_put_rows)(ru_kern_put how, const int64_t *to, const int64_t *from, int64_t rows,
                              const float *x, int64_t cols, int64_t c0, int64_t c1, int64_t lo,
                              int64_t hi, float *y)
{
    switch (how) {
    case RU_KERN_PUT_ADD:
        put_sums(to, from, rows, x, cols, c0, c1, lo, hi, y);
        break;
    case RU_KERN_PUT_MUL:
        put_products(to, from, rows, x, cols, c0, c1, lo, hi, y);
        break;
    case RU_KERN_PUT_MAX:
        put_largest(to, from, rows, x, cols, c0, c1, lo, hi, y);
        break;
    case RU_KERN_PUT_MIN:
        put_smallest(to, from, rows, x, cols, c0, c1, lo, hi, y);
        break;
    case RU_KERN_PUT:
        RU_CHECK(false);
        break;
    }
}

/* Inlined with steps that the compiler knows, so that they need no products. */
#define TAKE(name, itype, type)                                                                    \
    RU_KERN_INLINE bool name##_by(const itype *index, int64_t n, int64_t limit,                    \
                                  const int64_t step, const int64_t along, const type *x, type *y) \
    {                                                                                              \
        uint64_t bad = 0;                                                                          \
        _Pragma("omp simd reduction(| : bad)") for (int64_t j = 0; j < n; j++)                     \
        {                                                                                          \
            int64_t p = (int64_t)index[j];                                                         \
            p += p < 0 ? limit : 0;                                                                \
            bool out = (uint64_t)p >= (uint64_t)limit;                                             \
            bad |= out ? 1 : 0;                                                                    \
            y[j] = x[(out ? 0 : p) * step + j * along];                                            \
        }                                                                                          \
        return bad == 0;                                                                           \
    }                                                                                              \
    static bool name(const void *index, int64_t n, int64_t limit, int64_t step, int64_t along,     \
                     const void *x, void *y)                                                       \
    {                                                                                              \
        return step == 1 && along == 0 ? name##_by(index, n, limit, 1, 0, x, y)                    \
                                       : name##_by(index, n, limit, step, along, x, y);            \
    }

#define TAKE_BYTES(bytes, type)               \
    TAKE(take_##bytes##_of_64, int64_t, type) \
    TAKE(take_##bytes##_of_32, int32_t, type)

TAKE_BYTES(1, uint8_t)
TAKE_BYTES(2, uint16_t)
TAKE_BYTES(4, uint32_t)
TAKE_BYTES(8, uint64_t)

bool RUI_K(rui_kern_take)(int64_t bytes, ru_dtype it, const void *index, int64_t n, int64_t limit,
                          int64_t step, int64_t along, const void *x, void *y)
{
    bool wide = it == RU_I64;
    switch (bytes) {
    case 1:
        return wide ? take_1_of_64(index, n, limit, step, along, x, y)
                    : take_1_of_32(index, n, limit, step, along, x, y);
    case 2:
        return wide ? take_2_of_64(index, n, limit, step, along, x, y)
                    : take_2_of_32(index, n, limit, step, along, x, y);
    case 4:
        return wide ? take_4_of_64(index, n, limit, step, along, x, y)
                    : take_4_of_32(index, n, limit, step, along, x, y);
    default:
        return wide ? take_8_of_64(index, n, limit, step, along, x, y)
                    : take_8_of_32(index, n, limit, step, along, x, y);
    }
}

/* -- trees ----------------------------------------------------------------------------------------
 * Ensembles of trees: many rows through many trees. A step is two loads, a comparison and an
 * addition, without a branch that could be mispredicted; steps of LANES walks overlap. */

enum { LANES = RU_KERN_TREES_LANES };

#define KT         float
#define KT_NAME(x) x##_f32
#include "exec/cpu/kern/trees.def"
#undef KT
#undef KT_NAME
#define KT         double
#define KT_NAME(x) x##_f64
#include "exec/cpu/kern/trees.def"
#undef KT
#undef KT_NAME

int64_t RUI_K(rui_kern_trees_node_bytes)(const ru_kern_trees *t)
{
    return t->wide ? (int64_t)sizeof(node_f64) : (int64_t)sizeof(node_f32);
}

void RUI_K(rui_kern_trees_pack)(ru_kern_trees *t, const void *value, const int32_t *place,
                                const int32_t *left, int64_t n, void *nodes)
{
    for (int64_t k = 0; k < n; k++) {
        if (t->wide) {
            put_f64(nodes, k, value, place[k], left[k]);
        } else {
            put_f32(nodes, k, value, place[k], left[k]);
        }
    }
    t->nodes = nodes;
}

int64_t RUI_K(rui_kern_trees_work)(const ru_kern_trees *t)
{
    int64_t bytes = t->wide ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    return t->n_used * t->tile * bytes + t->tile / LANES + t->tile * t->outputs + 64;
}

void RUI_K(rui_kern_trees)(const ru_kern_trees *t, const void *x, void *y, int64_t r0, int64_t r1,
                           void *work)
{
    if (t->wide) {
        trees_f64(t, x, y, r0, r1, work);
    } else {
        trees_f32(t, x, y, r0, r1, work);
    }
}
