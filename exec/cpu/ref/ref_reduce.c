/* Reductions, arg-reductions, running sums, top-k. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

/* -- which axes, and where each element goes -------------------------------------------- */

typedef struct reduce_plan {
    int64_t strides[RU_RANK_MAX]; /* into the reduced tensor, 0 along reduced axes */
    int64_t n_in, n_out, per;     /* per: elements that fall on one output */
} reduce_plan;

static ru_status reduce_plan_make(const ru_ref_call *c, const ru_type *t, uint32_t k_axes,
                                  reduce_plan *p, ru_err *err)
{
    bool reduced[RU_RANK_MAX] = {false};
    int64_t *input;
    RU_TRY(rui_ref_in_ints(c, k_axes, &input, err));
    uint32_t n_attr;
    const int64_t *axes = ru_node_ints(c->node, RU_ATTR_axes, &n_attr);
    int64_t n_axes = input != NULL ? rui_ref_count(&c->in[k_axes].type) : n_attr;
    axes = input != NULL ? input : axes;
    for (int64_t i = 0; i < n_axes; i++) {
        uint32_t d;
        RU_TRY(rui_ref_axis(c, axes[i], t->rank, &d, err));
        reduced[d] = true;
    }
    /* With noop_with_empty_axes nothing is reduced, but squares, logarithms... are still taken. */
    bool all = n_axes == 0 && ru_node_int(c->node, RU_ATTR_noop_with_empty_axes, 0) == 0;
    *p = (reduce_plan){.n_in = rui_ref_count(t), .n_out = 1, .per = 1};
    for (uint32_t d = t->rank; d > 0; d--) {
        bool gone = all || reduced[d - 1];
        p->strides[d - 1] = gone ? 0 : p->n_out;
        p->n_out *= gone ? 1 : t->dims[d - 1];
        p->per *= gone ? t->dims[d - 1] : 1;
    }
    return RU_OK;
}

typedef struct reduce_fns {
    double start;
    double (*add)(double sum, double x);
    double (*end)(double sum, double n); /* may be NULL: as it is */
    /* For integers, which wrap and of which doubles are too short; NULL: doubles. x of u64 as its
     * bits. */
    int64_t (*add_int)(int64_t sum, int64_t x, bool is_u64);
} reduce_fns;

static int64_t sum_int(int64_t s, int64_t x, bool is_u64)
{
    (void)is_u64;
    return (int64_t)((uint64_t)s + (uint64_t)x);
}

static int64_t size_int(int64_t s, int64_t x, bool is_u64)
{
    uint64_t size = is_u64 || x >= 0 ? (uint64_t)x : 0 - (uint64_t)x;
    return (int64_t)((uint64_t)s + size);
}

static int64_t square_int(int64_t s, int64_t x, bool is_u64)
{
    (void)is_u64;
    return (int64_t)((uint64_t)s + (uint64_t)x * (uint64_t)x);
}

static int64_t product_int(int64_t s, int64_t x, bool is_u64)
{
    (void)is_u64;
    return (int64_t)((uint64_t)s * (uint64_t)x);
}

static int64_t max_int(int64_t s, int64_t x, bool is_u64)
{
    return (is_u64 ? (uint64_t)x > (uint64_t)s : x > s) ? x : s;
}

static int64_t min_int(int64_t s, int64_t x, bool is_u64)
{
    return (is_u64 ? (uint64_t)x < (uint64_t)s : x < s) ? x : s;
}

/* Of no elements: infinity is the end of the type's range. */
static int64_t start_int(ru_dtype t, double start)
{
    bool is_signed = t == RU_I8 || t == RU_I16 || t == RU_I32 || t == RU_I64;
    int64_t spare = 64 - 8 * ru_dtype_bytes(t);
    if (isfinite(start)) {
        return (int64_t)start;
    }
    if (is_signed) {
        return start > 0.0 ? INT64_MAX >> spare : INT64_MIN >> spare;
    }
    return start > 0.0 ? (int64_t)(UINT64_MAX >> spare) : 0;
}

static ru_status reduce_ints(const ru_ref_call *c, const reduce_fns *f, const reduce_plan *p,
                             ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t *x, *y;
    RU_TRY(rui_ref_in_ints(c, 0, &x, err));
    RU_TRY(rui_ref_zero_ints(c, p->n_out, &y, err));
    for (int64_t i = 0; i < p->n_out; i++) {
        y[i] = start_int(t->dtype, f->start);
    }
    rui_walk w;
    rui_walk_init(&w, t->dims, t->rank);
    for (int64_t i = 0; i < p->n_in; i++) {
        int64_t *to = &y[rui_walk_dot(&w, p->strides)];
        *to = f->add_int(*to, x[i], t->dtype == RU_U64);
        rui_walk_next(&w);
    }
    rui_ref_store_ints(&c->out[0], y);
    return RU_OK;
}

static ru_status reduce(const ru_ref_call *c, const reduce_fns *f, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    reduce_plan p;
    double *x, *y;
    RU_TRY(reduce_plan_make(c, t, 1, &p, err));
    if (f->add_int != NULL && ru_dtype_is_int(t->dtype)) {
        return reduce_ints(c, f, &p, err);
    }
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, p.n_out, &y, err));
    bool truth = t->dtype == RU_BOOL && isinf(f->start); /* the least one is false */
    for (int64_t i = 0; i < p.n_out; i++) {
        y[i] = truth ? (f->start > 0.0 ? 1.0 : 0.0) : f->start;
    }
    rui_walk w;
    rui_walk_init(&w, t->dims, t->rank);
    for (int64_t i = 0; i < p.n_in; i++) {
        double *to = &y[rui_walk_dot(&w, p.strides)];
        *to = f->add(*to, x[i]);
        rui_walk_next(&w);
    }
    for (int64_t i = 0; f->end != NULL && i < p.n_out; i++) {
        y[i] = f->end(y[i], (double)p.per);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

static double add_plain(double s, double x)
{
    return s + x;
}

static double add_abs(double s, double x)
{
    return s + fabs(x);
}

static double add_square(double s, double x)
{
    return s + x * x;
}

static double add_product(double s, double x)
{
    return s * x;
}

static double add_max(double s, double x)
{
    return x > s || isnan(x) ? x : s;
}

static double add_min(double s, double x)
{
    return x < s || isnan(x) ? x : s;
}

static double end_sqrt(double s, double n)
{
    (void)n;
    return sqrt(s);
}

static double end_log(double s, double n)
{
    (void)n;
    return log(s);
}

/* Of no elements: 0, as ONNX Runtime and PyTorch's empty bags give it (the standard: undefined). */
static double end_mean(double s, double n)
{
    return s / fmax(n, 1);
}

/* X(op, start, add, end, add of integers) */
#define REDUCE_LIST(X)                                      \
    X(ReduceL1, 0.0, add_abs, NULL, size_int)               \
    X(ReduceL2, 0.0, add_square, end_sqrt, NULL)            \
    X(ReduceLogSum, 0.0, add_plain, end_log, NULL)          \
    X(ReduceMax, (double)-INFINITY, add_max, NULL, max_int) \
    X(ReduceMean, 0.0, add_plain, end_mean, NULL)           \
    X(ReduceMin, (double)INFINITY, add_min, NULL, min_int)  \
    X(ReduceProd, 1.0, add_product, NULL, product_int)      \
    X(ReduceSum, 0.0, add_plain, NULL, sum_int)             \
    X(ReduceSumSquare, 0.0, add_square, NULL, square_int)

#define RU_X(name, start, add, end, add_int)                            \
    ru_status rui_ref_##name(const ru_ref_call *c, ru_err *err)         \
    {                                                                   \
        return reduce(c, &(reduce_fns){start, add, end, add_int}, err); \
    }
REDUCE_LIST(RU_X)
#undef RU_X

/* Two passes, so that no exponential overflows. */
ru_status rui_ref_ReduceLogSumExp(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    reduce_plan p;
    double *x, *top, *sum;
    RU_TRY(reduce_plan_make(c, t, 1, &p, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, p.n_out, &top, err));
    RU_TRY(rui_ref_zeros(c, p.n_out, &sum, err));
    for (int64_t i = 0; i < p.n_out; i++) {
        top[i] = (double)-INFINITY;
    }
    for (int pass = 0; pass < 2; pass++) {
        rui_walk w;
        rui_walk_init(&w, t->dims, t->rank);
        for (int64_t i = 0; i < p.n_in; i++) {
            int64_t to = rui_walk_dot(&w, p.strides);
            if (pass == 0) {
                top[to] = add_max(top[to], x[i]);
            } else {
                sum[to] += isinf(top[to]) ? (x[i] == top[to] ? 1.0 : 0.0) : exp(x[i] - top[to]);
            }
            rui_walk_next(&w);
        }
    }
    for (int64_t i = 0; i < p.n_out; i++) {
        sum[i] = top[i] + (sum[i] > 0.0 ? log(sum[i]) : 0.0);
    }
    rui_ref_store(&c->out[0], sum);
    return RU_OK;
}

/* (dy, x, y, axes?) -> dx to all maxima, divided by their number. */
ru_status rui_ref_ReduceMaxGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[1].type;
    reduce_plan p;
    double *dy, *x, *y, *count;
    RU_TRY(reduce_plan_make(c, t, 3, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_in(c, 2, &y, err));
    RU_TRY(rui_ref_zeros(c, p.n_out, &count, err));
    for (int pass = 0; pass < 2; pass++) {
        rui_walk w;
        rui_walk_init(&w, t->dims, t->rank);
        for (int64_t i = 0; i < p.n_in; i++) {
            int64_t at = rui_walk_dot(&w, p.strides);
            bool top = x[i] == y[at];
            if (pass == 0) {
                count[at] += top;
            } else {
                x[i] = top ? dy[at] / count[at] : 0.0;
            }
            rui_walk_next(&w);
        }
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

/* Sum of x over the dimensions that were broadcast from like's shape (the output's). */
ru_status rui_ref_ReduceTo(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t strides[RU_RANK_MAX], n = rui_ref_count(t);
    RU_TRY(rui_ref_strides_as(&c->out[0].type, t, strides, err));
    double *x, *y;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &y, err));
    rui_walk w;
    rui_walk_init(&w, t->dims, t->rank);
    for (int64_t i = 0; i < n; i++) {
        y[rui_walk_dot(&w, strides)] += x[i];
        rui_walk_next(&w);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* -- along one axis --------------------------------------------------------------------- */

/* Is a before b in the order asked for? Exact for integers of 64 bits. NaN is above (`nan_first`)
 * or below all numbers. */
static bool before(const ru_tensor *t, int64_t a, int64_t b, bool largest, bool nan_first)
{
    if (rui_ref_is_float(t->type.dtype)) {
        double x = rui_ref_get(t->type.dtype, t->data, a);
        double y = rui_ref_get(t->type.dtype, t->data, b);
        if (isnan(x) || isnan(y)) {
            return nan_first ? isnan(x) && !isnan(y) : !isnan(x) && isnan(y);
        }
        return largest ? x > y : x < y;
    }
    int64_t x = rui_ref_get_int(t->type.dtype, t->data, a);
    int64_t y = rui_ref_get_int(t->type.dtype, t->data, b);
    if (t->type.dtype == RU_U64) {
        return largest ? (uint64_t)x > (uint64_t)y : (uint64_t)x < (uint64_t)y;
    }
    return largest ? x > y : x < y;
}

/* NaN wins, as in numpy, whose functions ONNX's reference is made of. */
static ru_status arg(const ru_ref_call *c, bool largest, ru_err *err)
{
    const ru_tensor *x = &c->in[0];
    uint32_t axis;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, 0), x->type.rank, &axis, err));
    bool last = ru_node_int(c->node, RU_ATTR_select_last_index, 0) != 0;
    rui_axis3 a = rui_ref_axis3(&x->type, axis);
    for (int64_t o = 0; o < a.outer; o++) {
        for (int64_t i = 0; i < a.inner; i++) {
            int64_t at = o * a.dim * a.inner + i, best = 0;
            for (int64_t k = 1; k < a.dim; k++) {
                int64_t x_k = at + k * a.inner, x_best = at + best * a.inner;
                bool better = last ? !before(x, x_best, x_k, largest, true)
                                   : before(x, x_k, x_best, largest, true);
                best = better ? k : best;
            }
            ((int64_t *)c->out[0].data)[o * a.inner + i] = best;
        }
    }
    return RU_OK;
}

ru_status rui_ref_ArgMax(const ru_ref_call *c, ru_err *err)
{
    return arg(c, true, err);
}

ru_status rui_ref_ArgMin(const ru_ref_call *c, ru_err *err)
{
    return arg(c, false, err);
}

/* In doubles, or in integers, which wrap. */
ru_status rui_ref_CumSum(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    uint32_t axis;
    int64_t *which, *whole = NULL;
    RU_TRY(rui_ref_in_ints(c, 1, &which, err));
    RU_TRY(rui_ref_axis(c, which[0], t->rank, &axis, err));
    bool exclusive = ru_node_int(c->node, RU_ATTR_exclusive, 0) != 0;
    bool reverse = ru_node_int(c->node, RU_ATTR_reverse, 0) != 0;
    rui_axis3 a = rui_ref_axis3(t, axis);
    bool ints = ru_dtype_is_int(t->dtype);
    double *x = NULL;
    RU_TRY(ints ? rui_ref_in_ints(c, 0, &whole, err) : rui_ref_in(c, 0, &x, err));
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        int64_t from = line / a.inner * a.dim * a.inner + line % a.inner;
        double sum = 0.0;
        uint64_t all = 0;
        for (int64_t k = 0; k < a.dim; k++) {
            int64_t at = from + (reverse ? a.dim - 1 - k : k) * a.inner;
            double before_it = sum;
            uint64_t all_before = all;
            if (ints) {
                all += (uint64_t)whole[at];
                whole[at] = (int64_t)(exclusive ? all_before : all);
            } else {
                sum += x[at];
                x[at] = exclusive ? before_it : sum;
            }
        }
    }
    if (ints) {
        rui_ref_store_ints(&c->out[0], whole);
    } else {
        rui_ref_store(&c->out[0], x);
    }
    return RU_OK;
}

/* The k best of each line in order; equal values keep the lower index first. NaN counts as the
 * largest, as in PyTorch; the standard does not say. */
ru_status rui_ref_TopK(const ru_ref_call *c, ru_err *err)
{
    const ru_tensor *x = &c->in[0];
    uint32_t axis;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, -1), x->type.rank, &axis, err));
    bool largest = ru_node_int(c->node, RU_ATTR_largest, 1) != 0;
    rui_axis3 a = rui_ref_axis3(&x->type, axis);
    const ru_tensor *shape = rui_ref_has_out(c, 0) ? &c->out[0] : &c->out[1];
    int64_t keep = shape->type.dims[axis], *order;
    size_t size = (size_t)ru_dtype_bytes(x->type.dtype);
    if (keep > a.dim) {
        return RU_FAIL(err, RU_E_DATA, "TopK: k is %lld, but the axis has %lld elements",
                       (long long)keep, (long long)a.dim);
    }
    RU_TRY(rui_ref_zero_ints(c, a.dim, &order, err));
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        int64_t o = line / a.inner, i = line % a.inner, at = o * a.dim * a.inner + i;
        for (int64_t k = 0; k < a.dim; k++) {
            int64_t j = k; /* insertion: stable, so ties keep their order */
            for (; j > 0 &&
                   before(x, at + k * a.inner, at + order[j - 1] * a.inner, largest, largest);
                 j--) {
                order[j] = order[j - 1];
            }
            order[j] = k;
        }
        for (int64_t k = 0; k < keep; k++) {
            int64_t to = (o * keep + k) * a.inner + i;
            if (rui_ref_has_out(c, 0)) {
                memcpy((uint8_t *)c->out[0].data + (size_t)to * size,
                       (const uint8_t *)x->data + (size_t)(at + order[k] * a.inner) * size, size);
            }
            if (rui_ref_has_out(c, 1)) {
                ((int64_t *)c->out[1].data)[to] = order[k];
            }
        }
    }
    return RU_OK;
}
