/* Shape rules of signals: Fourier transforms, windows, mel weights. */
#include "world/graph/infer_impl.h"

/* The number that input k spells. False with *status RU_OK: it is not known yet. */
static bool scalar_known(const rui_infer *c, uint32_t k, const char *what, int64_t low,
                         int64_t *out, ru_status *status)
{
    uint32_t n;
    const ru_type *t = rui_in(c, k);
    *status = RU_OK;
    if (!ru_dtype_is_int(t->dtype) || t->rank > 1 ||
        (ru_type_is_concrete(t) && ru_type_count(t) != 1)) {
        *status = rui_infer_fail(c, "%s (input %u) must be one integer", what, k);
        return false;
    }
    const int64_t *v = rui_known(c, k, &n);
    if (v == NULL || v[0] == RU_DIM_UNKNOWN) {
        return false;
    }
    if (!ru_dim_is_symbolic(v[0]) && (v[0] < low || v[0] > INT32_MAX)) {
        *status = rui_infer_fail(c, "%s is %lld, expected %lld..2^31-1", what, (long long)v[0],
                                 (long long)low);
        return false;
    }
    *out = v[0];
    return true;
}

static ru_status float_data(const rui_infer *c, uint32_t k)
{
    const ru_type *t = rui_in(c, k);
    return t == NULL || ru_dtype_is_float(t->dtype)
               ? RU_OK
               : rui_infer_fail(c, "input %u is %s, expected floats", k, ru_dtype_name(t->dtype));
}

/* Numbers that a one-sided spectrum of n has. */
static ru_status half(const rui_infer *c, int64_t n, int64_t *out)
{
    int64_t q;
    RU_TRY(rui_dim_floordiv(c, n, 2, false, &q));
    return rui_dim_sum(c, q, 1, out);
}

/* Axis of the transform: known, and not the last one. */
static ru_status dft_axis(const rui_infer *c, const ru_type *x, uint32_t *axis)
{
    uint32_t n;
    const int64_t *v = rui_in(c, 2) != NULL ? rui_known_numbers(c, 2, &n) : NULL;
    if (rui_in(c, 2) != NULL && (v == NULL || n != 1)) {
        return rui_infer_fail(c, "its axis must be one constant");
    }
    RU_TRY(rui_axis(c, v != NULL ? v[0] : -2, x->rank, axis));
    return *axis + 1 < x->rank ? RU_OK
                               : rui_infer_fail(c, "its axis is that of real and imaginary parts");
}

ru_status rui_shape_dft(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    bool inverse = ru_node_int(&c->n, RU_ATTR_inverse, 0) != 0;
    bool onesided = ru_node_int(&c->n, RU_ATTR_onesided, 0) != 0;
    RU_TRY(float_data(c, 0));
    int64_t parts = t.rank > 0 ? t.dims[t.rank - 1] : 0;
    uint32_t axis;
    if (t.rank < 2 || (!ru_dim_is_symbolic(parts) && parts != 1 && parts != 2)) {
        return rui_infer_fail(c, "expected a signal [.., 1] or [.., 2] of real or complex numbers");
    }
    if (onesided && (inverse ? parts == 1 : parts == 2)) {
        return rui_infer_fail(c, inverse ? "a one-sided inverse transform needs complex input"
                                         : "a one-sided transform needs real input");
    }
    RU_TRY(dft_axis(c, &t, &axis));
    int64_t len = t.dims[axis];
    if (onesided && inverse) {
        RU_TRY(rui_dim_sum(c, len, -1, &len));
        len = ru_dim_mul(len, 2);
    }
    if (rui_in(c, 1) != NULL) {
        ru_status st;
        if (!scalar_known(c, 1, "dft_length", 1, &len, &st)) {
            RU_TRY(st);
            RU_TRY(rui_dim_fresh(c, 0, axis, &len));
        }
    }
    if (!ru_dim_is_symbolic(len) && len < 1) {
        return rui_infer_fail(c, "a transform of %lld numbers", (long long)len);
    }
    t.dims[axis] = len;
    if (onesided && !inverse) {
        RU_TRY(half(c, len, &t.dims[axis]));
    }
    t.dims[t.rank - 1] = onesided && inverse ? 1 : 2;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_stft(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *w = rui_in(c, 2);
    bool onesided = ru_node_int(&c->n, RU_ATTR_onesided, 1) != 0;
    RU_TRY(float_data(c, 0));
    RU_TRY(float_data(c, 2));
    if (x->rank < 2 || x->rank > 3 || (w != NULL && w->rank != 1) ||
        (x->rank == 3 && !ru_dim_is_symbolic(x->dims[2]) && x->dims[2] != 1 && x->dims[2] != 2) ||
        (rui_in(c, 3) == NULL && w == NULL)) {
        return rui_infer_fail(c, "expected a signal [batch, length, 1 or 2], a step, and a window "
                                 "or a frame length");
    }
    if (onesided && x->rank == 3 && x->dims[2] == 2) {
        return rui_infer_fail(c, "a one-sided transform needs real input");
    }
    int64_t step = 0, frame = w != NULL ? w->dims[0] : 0;
    ru_status st;
    bool known = scalar_known(c, 1, "frame_step", 1, &step, &st);
    RU_TRY(st);
    if (rui_in(c, 3) != NULL) {
        known = scalar_known(c, 3, "frame_length", 1, &frame, &st) && known;
        RU_TRY(st);
    }
    ru_type t = {.dtype = x->dtype, .rank = 4, .dims = {x->dims[0], 0, 0, 2}};
    if (!known || ru_dim_is_symbolic(step) || ru_dim_is_symbolic(frame)) {
        RU_TRY(rui_dim_fresh(c, 0, 1, &t.dims[1]));
        RU_TRY(rui_dim_fresh(c, 0, 2, &t.dims[2]));
    } else {
        int64_t room;
        RU_TRY(rui_dim_sum(c, x->dims[1], -frame, &room));
        bool fits = (ru_dim_is_symbolic(room) || room >= 0) && frame >= 1 &&
                    (w == NULL || ru_dim_is_symbolic(w->dims[0]) || w->dims[0] == frame);
        if (!fits) {
            return rui_infer_fail(c, "a frame of %lld does not fit the signal or the window",
                                  (long long)frame);
        }
        RU_TRY(rui_dim_floordiv(c, room, step, false, &room));
        RU_TRY(rui_dim_sum(c, room, 1, &t.dims[1]));
        t.dims[2] = onesided ? frame / 2 + 1 : frame;
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* The float type that attribute output_datatype names. */
static ru_status float_named(const rui_infer *c, ru_type *t)
{
    int64_t named = ru_node_int(&c->n, RU_ATTR_output_datatype, 1);
    t->dtype = ru_dtype_from_onnx((int32_t)named);
    return t->dtype != RU_NONE
               ? RU_OK
               : rui_infer_fail(c, "output_datatype %lld is not supported", (long long)named);
}

/* Size of axis `axis` of the result, which input k spells. */
static ru_status size_spelled(const rui_infer *c, uint32_t k, const char *what, bool spectrum,
                              uint32_t axis, ru_type *t)
{
    ru_status st;
    if (!scalar_known(c, k, what, 0, &t->dims[axis], &st)) {
        RU_TRY(st);
        return rui_dim_fresh(c, 0, axis, &t->dims[axis]);
    }
    return spectrum ? half(c, t->dims[axis], &t->dims[axis]) : RU_OK;
}

ru_status rui_shape_signalwindow(const rui_infer *c)
{
    ru_type t = {.rank = 1};
    RU_TRY(float_named(c, &t));
    RU_TRY(size_spelled(c, 0, "size", false, 0, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_melweightmatrix(const rui_infer *c)
{
    ru_type t = {.rank = 2};
    ru_status st;
    int64_t rate;
    RU_TRY(float_named(c, &t));
    RU_TRY(size_spelled(c, 0, "num_mel_bins", false, 1, &t));
    RU_TRY(size_spelled(c, 1, "dft_length", true, 0, &t));
    (void)scalar_known(c, 2, "sample_rate", 1, &rate, &st);
    RU_TRY(st);
    for (uint32_t k = 3; k < 5; k++) {
        RU_TRY(float_data(c, k));
        if (rui_in(c, k)->rank != 0 && ru_type_count(rui_in(c, k)) != 1) {
            return rui_infer_fail(c, "input %u must be one number", k);
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}
