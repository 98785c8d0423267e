/* Shape rules of sampling: grids over an image, columns back into one. */
#include "world/graph/infer_impl.h"

#include <string.h>

/* Attribute `key` must be one of the words, which end with NULL. */
static ru_status word_check(const rui_infer *c, ru_attr_key key, const char *const *words)
{
    const char *have = ru_node_str(&c->n, key, words[0]);
    for (uint32_t k = 0; words[k] != NULL; k++) {
        if (strcmp(have, words[k]) == 0) {
            return RU_OK;
        }
    }
    return rui_infer_fail(c, "attribute %s is '%s', which is not a value of it", ru_attr_name(key),
                          have);
}

ru_status rui_shape_gridsample(const rui_infer *c)
{
    static const char *const modes[] = {"linear", "nearest", "cubic", NULL};
    static const char *const pads[] = {"zeros", "border", "reflection", NULL};
    const ru_type *x = rui_in(c, 0), *g = rui_in(c, 1);
    if (!ru_dtype_is_float(x->dtype) || !ru_dtype_is_float(g->dtype)) {
        return rui_infer_fail(c, "expected floats");
    }
    RU_TRY(word_check(c, RU_ATTR_mode, modes));
    RU_TRY(word_check(c, RU_ATTR_padding_mode, pads));
    int64_t batch, nsp = (int64_t)x->rank - 2;
    if (x->rank < 3 || g->rank != x->rank ||
        (g->dims[g->rank - 1] != nsp && !ru_dim_is_symbolic(g->dims[g->rank - 1])) ||
        !rui_broadcast_dim(x->dims[0], g->dims[0], &batch)) {
        return rui_infer_fail(c, "expected an image [N, C, D1..Dr] and a grid [N, E1..Er, r]");
    }
    if (!ru_dim_is_symbolic(x->dims[0]) && !ru_dim_is_symbolic(g->dims[0]) &&
        x->dims[0] != g->dims[0]) {
        return rui_infer_fail(c, "the image has %lld samples and the grid %lld",
                              (long long)x->dims[0], (long long)g->dims[0]);
    }
    for (uint32_t i = 2; i < x->rank; i++) {
        if (x->dims[i] == 0) {
            return rui_infer_fail(c, "axis %u of the image is empty: there is nothing to sample",
                                  i);
        }
    }
    ru_type t = {.dtype = x->dtype, .rank = x->rank, .dims = {batch, x->dims[1]}};
    memcpy(t.dims + 2, g->dims + 1, sizeof *t.dims * (x->rank - 2));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_roialign(const rui_infer *c)
{
    enum { RATIO_MAX = 1024, SIDE_MAX = 1 << 16 };
    const ru_type *x = rui_in(c, 0);
    int64_t ratio = ru_node_int(&c->n, RU_ATTR_sampling_ratio, 0);
    int64_t high = ru_node_int(&c->n, RU_ATTR_output_height, 1);
    int64_t wide = ru_node_int(&c->n, RU_ATTR_output_width, 1);
    uint32_t n;
    const int64_t *pooled = ru_node_ints(&c->n, RU_ATTR_pooled_shape, &n);
    if (pooled != NULL && n != 2) {
        return rui_infer_fail(c, "attribute pooled_shape must have 2 entries");
    }
    high = pooled != NULL ? pooled[0] : high;
    wide = pooled != NULL ? pooled[1] : wide;
    if (ratio > RATIO_MAX || high > SIDE_MAX || wide > SIDE_MAX) {
        return rui_infer_fail(c, "expected a sampling_ratio of at most %d, sides of at most %d",
                              RATIO_MAX, SIDE_MAX);
    }
    if (x->dims[2] == 0 || x->dims[3] == 0) {
        return rui_infer_fail(c, "the image is empty: there is nothing to sample");
    }
    ru_type t = {
        .dtype = x->dtype, .rank = 4, .dims = {rui_in(c, 1)->dims[0], x->dims[1], high, wide}};
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Entry i of an ints attribute with `n` entries. */
static ru_status entry(const rui_infer *c, ru_attr_key key, uint32_t n, uint32_t i, int64_t low,
                       int64_t dflt, int64_t *out)
{
    uint32_t got;
    const int64_t *v = ru_node_ints(&c->n, key, &got);
    *out = v != NULL && i < got ? v[i] : dflt;
    return (v == NULL || got == n) && *out >= low && *out <= INT32_MAX
               ? RU_OK
               : rui_infer_fail(c, "attribute %s must have %u entries of at least %lld",
                                ru_attr_name(key), n, (long long)low);
}

/* Positions of the block along axis i of the image. */
static ru_status blocks_along(const rui_infer *c, uint32_t rank, uint32_t i, int64_t image,
                              int64_t block, int64_t *out)
{
    int64_t lo, hi, stride, dilation;
    RU_TRY(entry(c, RU_ATTR_pads, 2 * rank, i, 0, 0, &lo));
    RU_TRY(entry(c, RU_ATTR_pads, 2 * rank, rank + i, 0, 0, &hi));
    RU_TRY(entry(c, RU_ATTR_strides, rank, i, 1, 1, &stride));
    RU_TRY(entry(c, RU_ATTR_dilations, rank, i, 1, 1, &dilation));
    const int64_t most[] = {image, block, lo, hi, stride, dilation};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(most); k++) {
        if (most[k] > INT32_MAX || (k < 2 && most[k] < 1)) {
            return rui_infer_fail(c,
                                  "size, pad or step %lld of axis %u, expected at most 2^31-1 "
                                  "(image and block: at least 1)",
                                  (long long)most[k], i);
        }
    }
    int64_t room = image + lo + hi - dilation * (block - 1) - 1;
    *out = room < 0 ? 0 : room / stride + 1;
    return RU_OK;
}

ru_status rui_shape_col2im(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *image = rui_in(c, 1), *block = rui_in(c, 2);
    if (x->rank != 3 || image->rank != 1 || block->rank != 1 || image->dtype != RU_I64 ||
        block->dtype != RU_I64 || image->dims[0] < 1 || image->dims[0] + 2 > RU_RANK_MAX ||
        block->dims[0] != image->dims[0]) {
        return rui_infer_fail(c,
                              "expected columns [N, C * block, L] and two lists of sizes of "
                              "1 to %d dimensions",
                              RU_RANK_MAX - 2);
    }
    uint32_t rank = (uint32_t)image->dims[0], n;
    const int64_t *size = rui_known_numbers(c, 1, &n), *b = rui_known_numbers(c, 2, &n);
    ru_type t = {.dtype = x->dtype, .rank = rank + 2, .dims = {x->dims[0]}};
    int64_t taps = 1, places = 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (size == NULL || b == NULL) {
            RU_TRY(rui_dim_fresh(c, 0, i + 2, &t.dims[i + 2]));
            continue;
        }
        int64_t along = 0;
        RU_TRY(blocks_along(c, rank, i, size[i], b[i], &along));
        t.dims[i + 2] = size[i];
        taps = ru_dim_mul(taps, b[i]);
        places = ru_dim_mul(places, along);
    }
    if (size == NULL || b == NULL) {
        RU_TRY(rui_dim_fresh(c, 0, 1, &t.dims[1]));
    } else {
        bool known = taps != RU_DIM_UNKNOWN && places != RU_DIM_UNKNOWN;
        bool fits = known && (ru_dim_is_symbolic(x->dims[1]) || x->dims[1] % taps == 0);
        if (!fits || (!ru_dim_is_symbolic(x->dims[2]) && x->dims[2] != places)) {
            return rui_infer_fail(c,
                                  "blocks of %lld elements at %lld places do not fit the columns",
                                  (long long)taps, (long long)places);
        }
        RU_TRY(rui_dim_floordiv(c, x->dims[1], taps, false, &t.dims[1]));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}
