/* Random cases: element-wise ops, reductions, shapes, gathers. */
#include "test/ops/ops.h"

#include <string.h>

/* -- helpers ---------------------------------------------------------------------------- */

int64_t ops_pick(ops_case *c, int64_t low, int64_t high)
{
    return low + (int64_t)ru_rng_below_u64(&c->rng, (uint64_t)(high - low + 1));
}

bool ops_coin(ops_case *c)
{
    return ru_rng_below(&c->rng, 2) == 1;
}

int64_t ops_dim(ops_case *c)
{
    static const int64_t dims[] = {1, 2, 3, 5, 7, 8, 13}, large[] = {16, 17, 31, 32, 48, 64, 65};
    return (c->big ? large : dims)[ru_rng_below(&c->rng, RU_ARRAY_LEN(dims))];
}

ru_type ops_type(ru_dtype dtype, uint32_t rank, const int64_t *dims)
{
    ru_type t = {.dtype = dtype, .rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        t.dims[d] = dims[d];
    }
    return t;
}

/* At most 420 elements, so that distinct values exist in bf16; big ones have more. */
ru_type ops_shape(ops_case *c, ru_dtype dtype, uint32_t rank_min, uint32_t rank_max)
{
    ru_type t = {.dtype = dtype, .rank = (uint32_t)ops_pick(c, rank_min, rank_max)};
    int64_t n = 1;
    for (uint32_t d = 0; d < t.rank; d++) {
        t.dims[d] = ops_dim(c);
        t.dims[d] = n * t.dims[d] > (c->big ? 20000 : 420) ? 1 : t.dims[d];
        n *= t.dims[d];
    }
    return t;
}

/* The same, with one dimension of 0 when the case asks for it. */
static ru_type any_shape(ops_case *c, ru_dtype dtype, uint32_t rank_min, uint32_t rank_max)
{
    ru_type t = ops_shape(c, dtype, rank_min, rank_max);
    if (c->empty && t.rank > 0) {
        t.dims[ru_rng_below(&c->rng, t.rank)] = 0;
    }
    return t;
}

ru_tensor *ops_in(ops_case *c, ru_type t)
{
    RU_CHECK(c->n_in < OPS_IN_MAX);
    ru_tensor *x = &c->in[c->n_in++];
    x->type = t;
    x->data = ru_arena_zalloc(c->arena, ops_count(x) * ru_dtype_bytes(t.dtype), 64);
    return x;
}

ru_tensor *ops_in_absent(ops_case *c)
{
    RU_CHECK(c->n_in < OPS_IN_MAX);
    c->in[c->n_in] = (ru_tensor){0};
    return &c->in[c->n_in++];
}

ru_tensor *ops_in_grid(ops_case *c, ru_type t, double low, double high)
{
    ru_tensor *x = ops_in(c, t);
    int64_t from = (int64_t)(low * 16.0), to = (int64_t)(high * 16.0) - 1;
    for (int64_t i = 0; i < ops_count(x); i++) {
        ops_set(x, i, (double)(2 * ops_pick(c, from, to) + 1) / 32.0);
    }
    return x;
}

ru_tensor *ops_in_distinct(ops_case *c, ru_type t)
{
    ru_tensor *x = ops_in(c, t);
    uint32_t n = (uint32_t)ops_count(x), *order = RU_NEW(c->arena, uint32_t, n);
    ru_rng_shuffle(&c->rng, order, n);
    for (uint32_t i = 0; i < n; i++) {
        ops_set(x, i, ((double)order[i] - (double)(n / 2)) / 32.0);
    }
    return x;
}

ru_tensor *ops_in_ints(ops_case *c, ru_type t, int64_t low, int64_t high)
{
    ru_tensor *x = ops_in(c, t);
    for (int64_t i = 0; i < ops_count(x); i++) {
        ops_set(x, i, (double)ops_pick(c, low, high));
    }
    return x;
}

ru_tensor *ops_in_consts(ops_case *c, const int64_t *xs, uint32_t n)
{
    c->fixed[c->n_in] = true;
    ru_tensor *x = ops_in(c, ops_type(RU_I64, 1, (int64_t[]){n}));
    memcpy(x->data, xs, n * sizeof xs[0]);
    return x;
}

static ru_attr *add_attr(ops_case *c, ru_attr_key key, ru_attr_kind kind)
{
    RU_CHECK(c->n_attrs < OPS_ATTRS_MAX);
    c->attrs[c->n_attrs] = (ru_attr){.key = key, .kind = kind, .n = 1};
    c->attrs[c->n_attrs + 1] = (ru_attr)RU_A_END;
    return &c->attrs[c->n_attrs++];
}

void ops_attr_int(ops_case *c, ru_attr_key key, int64_t x)
{
    add_attr(c, key, RU_ATTR_INT)->u.i = x;
}

void ops_attr_float(ops_case *c, ru_attr_key key, double x)
{
    add_attr(c, key, RU_ATTR_FLOAT)->u.f = x;
}

void ops_attr_str(ops_case *c, ru_attr_key key, const char *s)
{
    add_attr(c, key, RU_ATTR_STR)->u.s = s;
}

void ops_attr_ints(ops_case *c, ru_attr_key key, const int64_t *xs, uint32_t n)
{
    ru_attr *a = add_attr(c, key, RU_ATTR_INTS);
    a->n = n;
    a->u.is = ru_arena_copy(c->arena, xs, (int64_t)n * 8, 8);
}

void ops_attr_strs(ops_case *c, ru_attr_key key, const char *const *ss, uint32_t n)
{
    ru_attr *a = add_attr(c, key, RU_ATTR_STRS);
    a->n = n;
    a->u.ss = ru_arena_copy(c->arena, ss, (int64_t)(n * sizeof ss[0]), 8);
}

void ops_sample(ops_case *c, ru_op op)
{
    c->op = op;
    c->n_out = 1;
    c->grad_in = 1;
    c->grad_out = 1;
    c->attrs[0] = (ru_attr)RU_A_END;
    switch (op) {
#define RU_OP(name, onnx, i0, i1, o0, o1, shape, grad, flops, t32, t16, sample) \
    case RU_OP_##name:                                                          \
        sample_##sample(c);                                                     \
        return;
#include "world/graph/ops.def"
#undef RU_OP
    case RU_OP_NONE:
    case RU_OP_COUNT:
        break;
    }
}

void sample_by_gradient(ops_case *c)
{
    c->skip = true;
}

/* -- element-wise ----------------------------------------------------------------------- */

void sample_unary(ops_case *c)
{
    ops_in_grid(c, any_shape(c, RU_F32, 0, 4), -4.0, 4.0);
    if (c->op == RU_OP_Gelu && ops_coin(c)) {
        ops_attr_str(c, RU_ATTR_approximate, "tanh");
    }
    if ((c->op == RU_OP_LeakyRelu || c->op == RU_OP_Elu || c->op == RU_OP_Celu) && ops_coin(c)) {
        ops_attr_float(c, RU_ATTR_alpha, 0.75);
    }
}

void sample_unary_unit(ops_case *c)
{
    ops_in_grid(c, ops_shape(c, RU_F32, 0, 3), -0.9, 0.9);
}

void sample_unary_ge1(ops_case *c)
{
    ops_in_grid(c, ops_shape(c, RU_F32, 1, 3), 1.1, 4.0);
}

void sample_unary_pos(ops_case *c)
{
    ops_in_grid(c, any_shape(c, RU_F32, 0, 3), 0.2, 4.0);
}

void sample_unary_bool(ops_case *c)
{
    ops_in_ints(c, any_shape(c, RU_BOOL, 1, 3), 0, 1);
}

/* A shape that broadcasts to `t`: leading axes dropped, others made 1. */
static ru_type narrowed(ops_case *c, const ru_type *t, ru_dtype dtype)
{
    uint32_t drop = (uint32_t)ops_pick(c, 0, t->rank);
    ru_type r = ops_type(dtype, t->rank - drop, t->dims + drop);
    for (uint32_t d = 0; d < r.rank; d++) {
        r.dims[d] = ru_rng_below(&c->rng, 3) == 0 ? 1 : r.dims[d];
    }
    return r;
}

static void two(ops_case *c, ru_dtype dtype, double low, double high, double low2)
{
    ru_type t = any_shape(c, dtype, 0, 4), n = narrowed(c, &t, dtype);
    bool swap = ops_coin(c) && c->op != RU_OP_Pow && c->op != RU_OP_PRelu;
    ops_in_grid(c, swap ? n : t, low, high);
    ops_in_grid(c, swap ? t : n, low2, high);
    c->grad_in = 3;
}

void sample_binary(ops_case *c)
{
    two(c, RU_F32, -4.0, 4.0, -4.0);
    bool many =
        c->op == RU_OP_Sum || c->op == RU_OP_Mean || c->op == RU_OP_Max || c->op == RU_OP_Min;
    if (many && ops_coin(c)) {
        bool full = ops_coin(c); /* a third of full shape, or one number */
        ops_in_grid(c, full ? c->in[0].type : ops_type(RU_F32, 0, NULL), -4.0, 4.0);
        c->grad_in = 7;
    }
    if (c->op == RU_OP_Max || c->op == RU_OP_Min) {
        for (uint32_t k = 0; k < c->n_in; k++) { /* ties have no finite difference */
            for (int64_t i = 0; i < ops_count(&c->in[k]); i++) {
                ops_set(&c->in[k], i, ops_get(&c->in[k], i) + (double)k / 128.0);
            }
        }
        c->f32_only = true;
    }
}

void sample_binary_pos(ops_case *c)
{
    two(c, RU_F32, 0.5, 3.0, 0.5);
}

void sample_same2(ops_case *c)
{
    ru_type t = any_shape(c, RU_F32, 0, 3);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_grid(c, t, -4.0, 4.0);
}

void sample_prelu(ops_case *c)
{
    two(c, RU_F32, -4.0, 4.0, -1.0);
}

void sample_binary_bool(ops_case *c)
{
    ru_type t = any_shape(c, RU_BOOL, 1, 3);
    ops_in_ints(c, t, 0, 1);
    ops_in_ints(c, narrowed(c, &t, RU_BOOL), 0, 1);
}

void sample_bits(ops_case *c)
{
    ru_type t = any_shape(c, RU_I32, 1, 3);
    ops_in_ints(c, t, -1000, 1000);
    if (c->op != RU_OP_BitwiseNot) {
        ops_in_ints(c, narrowed(c, &t, RU_I32), -1000, 1000);
    }
}

void sample_bitshift(ops_case *c)
{
    ru_type t = ops_shape(c, RU_U32, 1, 3);
    ops_in_ints(c, t, 0, 100000);
    ops_in_ints(c, t, 0, 31);
    ops_attr_str(c, RU_ATTR_direction, ops_coin(c) ? "LEFT" : "RIGHT");
}

void sample_mod(ops_case *c)
{
    bool ints = ops_coin(c);
    ru_type t = ops_shape(c, ints ? RU_I64 : RU_F32, 1, 3);
    if (ints) {
        ops_in_ints(c, t, -50, 50);
        ops_in_ints(c, t, 1, 9);
    } else {
        ops_in_grid(c, t, -4.0, 4.0);
        ops_in_grid(c, t, 0.5, 2.0);
        ops_attr_int(c, RU_ATTR_fmod, ops_coin(c) ? 1 : 0);
    }
    c->f32_only = true;
}

void sample_clip(ops_case *c)
{
    ops_in_grid(c, any_shape(c, RU_F32, 0, 3), -4.0, 4.0);
    if (ops_coin(c)) {
        ops_set(ops_in(c, ops_type(RU_F32, 0, NULL)), 0, -1.5);
    } else {
        ops_in_absent(c);
    }
    if (ops_coin(c)) {
        ops_set(ops_in(c, ops_type(RU_F32, 0, NULL)), 0, 2.25);
    }
}

void sample_where(ops_case *c)
{
    ru_type t = any_shape(c, RU_F32, 1, 3);
    ops_in_ints(c, narrowed(c, &t, RU_BOOL), 0, 1);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_grid(c, narrowed(c, &t, RU_F32), -4.0, 4.0);
    c->grad_in = 6;
}

/* -- reductions ------------------------------------------------------------------------- */

static void reduce_of(ops_case *c, double low)
{
    c->big = c->big && c->op != RU_OP_ReduceProd; /* a long product overflows */
    ru_type t = c->op == RU_OP_ReduceSum ? any_shape(c, RU_F32, 1, 4) : ops_shape(c, RU_F32, 1, 4);
    if (c->op == RU_OP_ReduceMax || c->op == RU_OP_ReduceMin) {
        ops_in_distinct(c, t);
        c->f32_only = true;
    } else {
        ops_in_grid(c, t, low, c->op == RU_OP_ReduceProd ? 1.5 : 4.0);
    }
    if (ops_coin(c)) {
        int64_t axes[2] = {ops_pick(c, -(int64_t)t.rank, (int64_t)t.rank - 1), 0};
        uint32_t n = 1;
        if (t.rank > 1 && ops_coin(c)) {
            axes[1] = (axes[0] + (int64_t)t.rank + 1) % (int64_t)t.rank;
            n = 2;
        }
        ops_in_consts(c, axes, n);
    } else if (ops_coin(c)) {
        ops_in_absent(c);
        ops_attr_int(c, RU_ATTR_noop_with_empty_axes, ops_coin(c));
    }
    ops_attr_int(c, RU_ATTR_keepdims, ops_coin(c));
}

void sample_reduce(ops_case *c)
{
    reduce_of(c, -4.0);
    for (int64_t i = 0; c->op == RU_OP_ReduceProd && i < 2 && i < ops_count(&c->in[0]); i++) {
        ops_set(&c->in[0], i, ops_coin(c) ? 0.0 : 1.5); /* the others' product counts at a zero */
    }
}

void sample_reduce_pos(ops_case *c)
{
    reduce_of(c, 0.5);
}

void sample_reduceto(ops_case *c)
{
    ru_type t = any_shape(c, RU_F32, 1, 4);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_grid(c, narrowed(c, &t, RU_F32), -4.0, 4.0);
}

void sample_argmax(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 4);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_attr_int(c, RU_ATTR_axis, ops_pick(c, -(int64_t)t.rank, (int64_t)t.rank - 1));
    ops_attr_int(c, RU_ATTR_keepdims, ops_coin(c));
    ops_attr_int(c, RU_ATTR_select_last_index, ops_coin(c));
}

void sample_cumsum(ops_case *c)
{
    ru_type t = any_shape(c, RU_F32, 1, 3);
    ops_in_grid(c, t, -4.0, 4.0);
    c->fixed[1] = true;
    ops_set(ops_in(c, ops_type(RU_I64, 0, NULL)), 0, (double)ops_pick(c, 0, (int64_t)t.rank - 1));
    ops_attr_int(c, RU_ATTR_exclusive, ops_coin(c));
    ops_attr_int(c, RU_ATTR_reverse, ops_coin(c));
}

void sample_topk(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 3);
    int64_t axis = ops_pick(c, 0, (int64_t)t.rank - 1);
    ops_in_distinct(c, t);
    ops_in_consts(c, (int64_t[]){ops_pick(c, 1, t.dims[axis])}, 1);
    ops_attr_int(c, RU_ATTR_axis, axis);
    ops_attr_int(c, RU_ATTR_largest, ops_coin(c));
    c->n_out = 2;
    c->f32_only = true;
}

/* -- shapes ----------------------------------------------------------------------------- */

static void fixed_scalar(ops_case *c, ru_dtype dtype, double x)
{
    c->fixed[c->n_in] = true;
    ops_set(ops_in(c, ops_type(dtype, 0, NULL)), 0, x);
}

static int64_t any_axis(ops_case *c, const ru_type *t)
{
    return ops_pick(c, -(int64_t)t->rank, (int64_t)t->rank - 1);
}

void sample_cast(ops_case *c)
{
    static const ru_dtype kinds[] = {RU_F32, RU_I64, RU_I32, RU_U8, RU_BOOL, RU_BF16, RU_F16};
    ops_in_grid(c, any_shape(c, RU_F32, 0, 3), 0.0, 4.0);
    ru_dtype to = kinds[ru_rng_below(&c->rng, RU_ARRAY_LEN(kinds))];
    ops_attr_int(c, RU_ATTR_to, ru_dtype_onnx(to));
    c->grad_in = to == RU_F32 ? 1 : 0;
}

void sample_castlike(ops_case *c)
{
    ops_in_grid(c, ops_shape(c, RU_F32, 0, 3), 0.0, 4.0);
    ops_in_ints(c, ops_type(RU_I32, 1, (int64_t[]){2}), 0, 1);
}

void sample_concat(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 4);
    int64_t axis = any_axis(c, &t), n = ops_pick(c, 1, 4);
    for (int64_t k = 0; k < n; k++) {
        t.dims[axis < 0 ? axis + (int64_t)t.rank : axis] = ops_pick(c, 1, 4);
        ops_in_grid(c, t, -4.0, 4.0);
    }
    ops_attr_int(c, RU_ATTR_axis, axis);
    c->grad_in = (1u << n) - 1;
}

void sample_compress(ops_case *c)
{
    ops_in_grid(c, ops_type(RU_F32, 2, (int64_t[]){3, 4}), -4.0, 4.0);
    c->fixed[1] = true;
    ru_tensor *keep = ops_in(c, ops_type(RU_BOOL, 1, (int64_t[]){3}));
    ops_set(keep, 1, 1.0);
    ops_set(keep, 2, 1.0);
    ops_attr_int(c, RU_ATTR_axis, 0);
}

/* Two batches, two classes; the size of the result is a matter of the numbers. */
void sample_nonmaxsuppression(ops_case *c)
{
    const int64_t n = 2 + ops_dim(c);
    for (uint32_t k = 0; k < 5; k++) {
        c->fixed[k] = true;
    }
    ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){2, n, 4}), 0.0, 4.0);
    ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){2, 2, n}), 0.0, 1.0);
    ops_in_consts(c, (int64_t[]){2}, 1);
    ops_set(ops_in(c, ops_type(RU_F32, 0, NULL)), 0, 0.25);
    ops_set(ops_in(c, ops_type(RU_F32, 0, NULL)), 0, 0.125);
}

void sample_constant(ops_case *c)
{
    static const ru_type type = {RU_F32, 1, {3}};
    static const float data[] = {1.5F, -2.0F, 3.25F};
    c->attrs[0] =
        (ru_attr){.key = RU_ATTR_value, .kind = RU_ATTR_TENSOR, .n = 1, .u.t = {&type, data}};
    c->attrs[1] = (ru_attr)RU_A_END;
    c->n_attrs = 1;
    c->grad_in = 0;
}

void sample_constantofshape(ops_case *c)
{
    ops_in_consts(c, (int64_t[]){2, ops_dim(c)}, 2);
    c->grad_in = 0;
}

void sample_depthtospace(ops_case *c)
{
    int64_t b = ops_pick(c, 1, 3);
    ops_in_grid(c, ops_type(RU_F32, 4, (int64_t[]){2, b * b * ops_pick(c, 1, 3), 3, 2}), -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_blocksize, b);
    ops_attr_str(c, RU_ATTR_mode, ops_coin(c) ? "DCR" : "CRD");
}

void sample_spacetodepth(ops_case *c)
{
    int64_t b = ops_pick(c, 1, 3);
    ops_in_grid(c, ops_type(RU_F32, 4, (int64_t[]){2, 3, 2 * b, b}), -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_blocksize, b);
}

void sample_expand(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 4);
    ops_in_grid(c, narrowed(c, &t, RU_F32), -4.0, 4.0);
    ops_in_consts(c, t.dims, t.rank);
}

void sample_eyelike(ops_case *c)
{
    ops_in_grid(c, ops_shape(c, RU_F32, 2, 2), -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_k, ops_pick(c, -1, 1));
}

void sample_flatten(ops_case *c)
{
    ru_type t = any_shape(c, RU_F32, 1, 4);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_axis, ops_pick(c, 0, (int64_t)t.rank));
}

void sample_measure(ops_case *c)
{
    ops_in_grid(c, any_shape(c, RU_F32, 1, 4), -4.0, 4.0);
}

void sample_range(ops_case *c)
{
    fixed_scalar(c, RU_I64, 3);
    fixed_scalar(c, RU_I64, (double)ops_pick(c, 4, 20));
    fixed_scalar(c, RU_I64, (double)ops_pick(c, 1, 3));
    c->grad_in = 0;
}

void sample_reshape(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 4);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_consts(c, (int64_t[]){-1, t.dims[t.rank - 1]}, 2);
}

void sample_squeeze(ops_case *c)
{
    int64_t a = ops_dim(c), b = ops_dim(c);
    ops_in_grid(c, ops_type(RU_F32, 4, (int64_t[]){1, a, 1, b}), -4.0, 4.0);
    ops_in_consts(c, (int64_t[]){0, -2}, ops_coin(c) ? 2 : 1);
}

void sample_unsqueeze(ops_case *c)
{
    ops_in_grid(c, any_shape(c, RU_F32, 0, 3), -4.0, 4.0);
    ops_in_consts(c, (int64_t[]){0, -1}, ops_coin(c) ? 2 : 1);
}

void sample_slice(ops_case *c)
{
    int64_t i = ops_pick(c, 2, 7), j = ops_pick(c, 3, 9), k = ops_dim(c);
    ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){i, j, k}), -4.0, 4.0);
    bool back = ops_coin(c);
    ops_in_consts(c, (int64_t[]){back ? -1 : 1, 0}, 2);
    ops_in_consts(c, (int64_t[]){back ? -100 : 100, -1}, 2);
    ops_in_consts(c, (int64_t[]){1, 0}, 2);
    ops_in_consts(c, (int64_t[]){back ? -2 : ops_pick(c, 1, 3), 1}, 2);
}

void sample_split(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 3);
    uint32_t axis = (uint32_t)ops_pick(c, 0, (int64_t)t.rank - 1);
    int64_t parts[] = {2, ops_pick(c, 1, 3), 1};
    t.dims[axis] = parts[0] + parts[1] + parts[2];
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_consts(c, parts, 3);
    ops_attr_int(c, RU_ATTR_axis, axis);
    c->n_out = 3;
    c->grad_out = 7;
}

void sample_tile(ops_case *c)
{
    int64_t i = ops_pick(c, 1, 3), j = ops_pick(c, 1, 4);
    ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){i, j, 2}), -4.0, 4.0);
    int64_t first = ops_pick(c, 1, 3), last = ops_pick(c, 1, 4);
    ops_in_consts(c, (int64_t[]){first, 1, last}, 3);
}

void sample_transpose(ops_case *c)
{
    ru_type t = any_shape(c, RU_F32, 2, 5);
    uint32_t order[8];
    int64_t perm[8];
    ru_rng_shuffle(&c->rng, order, t.rank);
    for (uint32_t d = 0; d < t.rank; d++) {
        perm[d] = order[d];
    }
    ops_in_grid(c, t, -4.0, 4.0);
    ops_attr_ints(c, RU_ATTR_perm, perm, t.rank);
}

void sample_trilu(ops_case *c)
{
    ops_in_grid(c, ops_shape(c, RU_F32, 2, 4), -4.0, 4.0);
    fixed_scalar(c, RU_I64, (double)ops_pick(c, -2, 2));
    ops_attr_int(c, RU_ATTR_upper, ops_coin(c));
}

void sample_pad(ops_case *c)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    int64_t i = ops_pick(c, 3, 5), j = ops_pick(c, 3, 5), k = ops_pick(c, 3, 4);
    const char *mode = modes[ru_rng_below(&c->rng, 4)];
    ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){i, j, k}), -4.0, 4.0);
    int64_t before = ops_pick(c, 0, 2), after = ops_pick(c, 0, 2);
    ops_in_consts(c, (int64_t[]){before, 0, 1, 1, after, 2}, 6);
    if (mode == modes[0] && ops_coin(c)) {
        fixed_scalar(c, RU_F32, 1.5);
    }
    ops_attr_str(c, RU_ATTR_mode, mode);
}

void sample_reversesequence(ops_case *c)
{
    ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){5, 3, 2}), -4.0, 4.0);
    ops_in_ints(c, ops_type(RU_I64, 1, (int64_t[]){3}), 1, 5);
    ops_attr_int(c, RU_ATTR_time_axis, 0);
    ops_attr_int(c, RU_ATTR_batch_axis, 1);
}

/* -- gathers and scatters --------------------------------------------------------------- */

void sample_gather(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 3);
    int64_t axis = ops_pick(c, 0, (int64_t)t.rank - 1);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_ints(c, ops_shape(c, RU_I64, 0, 2), -t.dims[axis], t.dims[axis] - 1);
    ops_attr_int(c, RU_ATTR_axis, axis);
}

void sample_gatherelements(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 3), it = t;
    int64_t axis = ops_pick(c, 0, (int64_t)t.rank - 1);
    it.dtype = RU_I64;
    it.dims[axis] = ops_pick(c, 1, 6);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_ints(c, it, -t.dims[axis], t.dims[axis] - 1);
    ops_attr_int(c, RU_ATTR_axis, axis);
}

void sample_gathernd(ops_case *c)
{
    int64_t batch = ops_pick(c, 0, 1);
    ops_in_grid(c, ops_type(RU_F32, 4, (int64_t[]){3, 3, 3, 2}), -4.0, 4.0);
    ops_in_ints(c, ops_type(RU_I64, 3, (int64_t[]){3, 4, ops_pick(c, 1, 2)}), -3, 2);
    ops_attr_int(c, RU_ATTR_batch_dims, batch);
}

void sample_onehot(ops_case *c)
{
    ops_in_ints(c, ops_shape(c, RU_I64, 1, 2), -5, 6);
    fixed_scalar(c, RU_I64, 5);
    c->fixed[c->n_in] = true;
    ops_in_grid(c, ops_type(RU_F32, 1, (int64_t[]){2}), -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_axis, ops_pick(c, -1, 1));
    c->grad_in = 0;
}

/* Each place at most once, so that the result does not depend on the order. */
void sample_scatterelements(ops_case *c)
{
    int64_t rows = ops_pick(c, 2, 6), cols = ops_pick(c, 1, 5);
    ru_type t = ops_type(RU_F32, 2, (int64_t[]){rows, cols});
    ru_type it = ops_type(RU_I64, 2, (int64_t[]){ops_pick(c, 1, rows), cols});
    ops_in_grid(c, t, -4.0, 4.0);
    ru_tensor *index = ops_in(c, it);
    uint32_t order[8];
    for (int64_t col = 0; col < it.dims[1]; col++) {
        ru_rng_shuffle(&c->rng, order, (uint32_t)t.dims[0]);
        for (int64_t row = 0; row < it.dims[0]; row++) {
            ops_set(index, row * it.dims[1] + col, order[row]);
        }
    }
    it.dtype = RU_F32;
    ops_in_grid(c, it, -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_axis, 0);
    ops_attr_str(c, RU_ATTR_reduction, ops_coin(c) ? "none" : "add");
    c->grad_in = 5;
}

void sample_scatternd(ops_case *c)
{
    uint32_t order[6];
    int64_t n = ops_pick(c, 1, 6), inner = ops_dim(c);
    ops_in_grid(c, ops_type(RU_F32, 2, (int64_t[]){6, inner}), -4.0, 4.0);
    ru_tensor *index = ops_in(c, ops_type(RU_I64, 2, (int64_t[]){n, 1}));
    ru_rng_shuffle(&c->rng, order, 6);
    for (int64_t i = 0; i < n; i++) {
        ops_set(index, i, order[i]);
    }
    ops_in_grid(c, ops_type(RU_F32, 2, (int64_t[]){n, inner}), -4.0, 4.0);
    ops_attr_str(c, RU_ATTR_reduction, ops_coin(c) ? "none" : "add");
    c->grad_in = 5;
}
