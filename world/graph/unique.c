#include "world/graph/unique.h"

#include <string.h>

/* Slices along an axis: slice k holds places (o * all + k) * inner + i. */
typedef struct slices {
    const ru_type *t;
    const uint8_t *data;
    int64_t outer, all, inner;
} slices;

/* An element as a number whose order is that of the elements. */
static uint64_t key_of(const slices *s, int64_t place)
{
    int64_t bytes = ru_dtype_bytes(s->t->dtype);
    uint64_t x = 0, sign = UINT64_C(1) << (8 * bytes - 1);
    memcpy(&x, s->data + place * bytes, (size_t)bytes);
    switch (s->t->dtype) {
    case RU_F32:
    case RU_F64:
    case RU_F16:
    case RU_BF16:
        x = x == sign ? 0 : x; /* -0 is 0 */
        return (x & sign) != 0 ? sign - 1 - (x & (sign - 1)) : x | sign;
    case RU_I8:
    case RU_I16:
    case RU_I32:
    case RU_I64:
        return x ^ sign;
    case RU_U8:
    case RU_U16:
    case RU_U32:
    case RU_U64:
    case RU_BOOL:
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    return x;
}

/* Below 0, 0, above 0: slice a is before, equal to, after slice b. */
static int compare(const slices *s, int64_t a, int64_t b)
{
    for (int64_t o = 0; o < s->outer; o++) {
        for (int64_t i = 0; i < s->inner; i++) {
            uint64_t x = key_of(s, (o * s->all + a) * s->inner + i);
            uint64_t y = key_of(s, (o * s->all + b) * s->inner + i);
            if (x != y) {
                return x < y ? -1 : 1;
            }
        }
    }
    return 0;
}

/* Merge sort of places; equal ones stay in order. */
static void sort(const slices *s, int64_t *at, int64_t *spare)
{
    for (int64_t width = 1; width < s->all; width *= 2) {
        for (int64_t from = 0; from < s->all; from += 2 * width) {
            int64_t mid = from + width < s->all ? from + width : s->all;
            int64_t end = mid + width < s->all ? mid + width : s->all, i = from, j = mid;
            for (int64_t k = from; k < end; k++) {
                bool left = j >= end || (i < mid && compare(s, at[i], at[j]) <= 0);
                spare[k] = left ? at[i++] : at[j++];
            }
        }
        memcpy(at, spare, (size_t)s->all * sizeof *at);
    }
}

/* Renumber the distinct ones by the place where each stands first. */
static void by_first(const slices *s, int64_t n, const int64_t *was_first, const int64_t *was_count,
                     int64_t *number, int64_t *first, int64_t *of, int64_t *count)
{
    int64_t next = 0;
    for (int64_t k = 0; k < s->all; k++) {
        int64_t u = of[k];
        if (was_first[u] == k) {
            number[u] = next;
            first[next] = k;
            count[next++] = was_count[u];
        }
        of[k] = number[u];
    }
    RU_CHECK(next == n);
}

ru_status ru_unique_find(const ru_node *n, const ru_type *t, const void *data, ru_arena *arena,
                         ru_unique *out, ru_err *err)
{
    slices s = {.t = t, .data = data, .outer = 1, .all = ru_type_count(t), .inner = 1};
    if (ru_node_attr(n, RU_ATTR_axis) != NULL) {
        int64_t axis = ru_node_int(n, RU_ATTR_axis, 0);
        axis += axis < 0 ? (int64_t)t->rank : 0;
        for (int64_t d = 0; d < (int64_t)t->rank; d++) {
            s.outer *= d < axis ? t->dims[d] : 1;
            s.inner *= d > axis ? t->dims[d] : 1;
        }
        s.all = t->dims[axis];
    }
    int64_t *list[7];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(list); k++) {
        list[k] = RU_NEW(arena, int64_t, s.all);
        if (list[k] == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "Unique: the arena is full");
        }
    }
    int64_t *at = list[0], *first = list[1], *of = list[2], *count = list[3], found = 0;
    for (int64_t k = 0; k < s.all; k++) {
        at[k] = k;
    }
    sort(&s, at, list[4]);
    for (int64_t k = 0; k < s.all; k++) {
        if (k == 0 || compare(&s, at[k - 1], at[k]) != 0) {
            first[found++] = at[k];
        }
        of[at[k]] = found - 1;
        count[found - 1]++;
    }
    if (ru_node_int(n, RU_ATTR_sorted, 1) == 0) {
        by_first(&s, found, first, count, list[4], list[5], of, list[6]);
        first = list[5];
        count = list[6];
    }
    *out = (ru_unique){.n = found, .first = first, .of = of, .count = count};
    return RU_OK;
}
