/* Random cases: sampling, signals, ops whose size depends on data, products of integers. */
#include "test/ops.h"

#include <stddef.h>

static void integers_only(ops_case *c)
{
    c->f32_only = true;
    c->grad_in = 0;
}

void sample_dynamicquantizelinear(ops_case *c)
{
    (void)ops_in_grid(c, ops_shape(c, RU_F32, 0, 3), -4.0, 4.0);
    c->n_out = 3;
    integers_only(c);
}

static ru_dtype bytes_in(ops_case *c, uint32_t rank, const int64_t *dims)
{
    ru_dtype t = ops_coin(c) ? RU_U8 : RU_I8;
    (void)ops_in_ints(c, ops_type(t, rank, dims), t == RU_U8 ? 0 : -128, t == RU_U8 ? 255 : 127);
    return t;
}

static void zeros_in(ops_case *c, ru_dtype t, int64_t n)
{
    (void)ops_in_ints(c, ops_type(t, n > 1 ? 1 : 0, &n), t == RU_U8 ? 0 : -128, 127);
}

void sample_convinteger(ops_case *c)
{
    int64_t out = ops_pick(c, 1, 5), in = ops_pick(c, 1, 3);
    ru_dtype x = bytes_in(c, 4, (int64_t[]){2, in, 5, 6});
    c->fixed[1] = ops_coin(c);
    ru_dtype w = bytes_in(c, 4, (int64_t[]){out, in, 3, 2});
    if (ops_coin(c)) {
        zeros_in(c, x, 1);
        if (ops_coin(c)) {
            zeros_in(c, w, ops_coin(c) ? out : 1);
        }
    }
    ops_attr_ints(c, RU_ATTR_pads, (int64_t[]){1, 0, 1, 2}, 4);
    integers_only(c);
}

void sample_matmulinteger(ops_case *c)
{
    int64_t m = ops_dim(c), k = ops_dim(c), n = ops_dim(c);
    ru_dtype a = bytes_in(c, 3, (int64_t[]){2, m, k});
    c->fixed[1] = ops_coin(c);
    ru_dtype b = bytes_in(c, 2, (int64_t[]){k, n});
    if (ops_coin(c)) {
        zeros_in(c, a, ops_coin(c) ? m : 1);
        if (ops_coin(c)) {
            zeros_in(c, b, ops_coin(c) ? n : 1);
        }
    }
    integers_only(c);
}
