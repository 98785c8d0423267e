/* QuantizeLinear, DequantizeLinear and sums of quantised tensors on exec/cpu/kern/k_int8.c: one
 * scale, flat over whatever order the tensor stands in; one scale per place of an axis, row-major.
 * Where few elements share a scale, each element has its own. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern_whole.h"

#include <string.h>

typedef struct quant_state {
    const ru_kern *k;
    ru_dtype q;                 /* the quantised side */
    int64_t n, channels, inner; /* elements; scales, and elements that share one in a row */
    bool back;                  /* to f32 */
} quant_state;

/* bufs: x, scale, zero?, y; a row of `inner` elements each */
static void quant_rows(const quant_state *s, void *const *bufs, int64_t row, int64_t at, int64_t n)
{
    int64_t c = row % s->channels, qb = ru_dtype_bytes(s->q);
    float scale = ((const float *)bufs[1])[c], zero = 0;
    if (bufs[2] != NULL) {
        int64_t whole;
        rui_wholes_load(s->q, (const char *)bufs[2] + c * qb, 1, &whole);
        zero = (float)whole;
    }
    if (s->back) {
        s->k->dequantize(s->q, (const char *)bufs[0] + at * qb, scale, zero, (float *)bufs[3] + at,
                         n);
    } else {
        s->k->quantize((const float *)bufs[0] + at, scale, zero, s->q, (char *)bufs[3] + at * qb,
                       n);
    }
}

static void quant_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const quant_state *s = state;
    while (begin < end) {
        int64_t row = begin / s->inner, stop = (row + 1) * s->inner;
        stop = stop < end ? stop : end;
        quant_rows(s, bufs, row, begin, stop - begin);
        begin = stop;
    }
}

static ru_status quant_run(void *state, void *const *bufs, const rui_run *run)
{
    const quant_state *s = state;
    rui_kern_for(run, quant_part, s, bufs, s->n, 4096);
    return RU_OK;
}

/* Rows to here: 56 elements a call took 30 ns of which 5 were their conversion. */
enum { EACH_MAX = 64 };

/* bufs: x, scale, zero?, y, scales and zeros of [channels * inner] */
static void each_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const quant_state *s = state;
    const ru_kern_numbers *k = ru_kern_numbers_best();
    const float *scales = bufs[4], *zeros = bufs[5];
    int64_t period = s->channels * s->inner, qb = ru_dtype_bytes(s->q);
    for (int64_t n; begin < end; begin += n) {
        int64_t at = begin % period;
        n = period - at < end - begin ? period - at : end - begin;
        if (s->back) {
            k->dequantize(s->q, (const char *)bufs[0] + begin * qb, scales + at, zeros + at,
                          (float *)bufs[3] + begin, n);
        } else {
            k->quantize((const float *)bufs[0] + begin, scales + at, zeros + at, s->q,
                        (char *)bufs[3] + begin * qb, n);
        }
    }
}

static ru_status each_run(void *state, void *const *bufs, const rui_run *run)
{
    const quant_state *s = state;
    float *scales = bufs[4], *zeros = bufs[5];
    for (int64_t c = 0; c < s->channels; c++) {
        int64_t whole = 0;
        if (bufs[2] != NULL) {
            rui_wholes_load(s->q, (const char *)bufs[2] + c * ru_dtype_bytes(s->q), 1, &whole);
        }
        for (int64_t i = c * s->inner; i < (c + 1) * s->inner; i++) {
            scales[i] = ((const float *)bufs[1])[c];
            zeros[i] = (float)whole;
        }
    }
    rui_kern_for(run, each_part, s, bufs, s->n, 4096);
    return RU_OK;
}

/* Where x stands, when its order is one of oneDNN without padding (zero is not stored as 0). */
static const rui_layout *order_of(rui_low *lo, ru_value_id x, bool one, ru_dtype t)
{
    const rui_layout *l = rui_standing(lo, x);
    if (l->opaque || l->padded || !one) {
        return rui_plain_as(lo, rui_type(lo, x), t);
    }
    return rui_layout_as(lo, l, t);
}

ru_status rui_lower_kern_quant(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *s = rui_type(lo, n->in[1]);
    bool back = n->op == RU_OP_DequantizeLinear, one = ru_type_count(s) == 1;
    ru_dtype q = back ? x->dtype : rui_type(lo, n->out[0])->dtype;
    if (!(q == RU_U8 || q == RU_I8 || q == RU_U16 || q == RU_I16 || (back && q == RU_I32)) ||
        s->dtype != RU_F32 || (!back && x->dtype != RU_F32)) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *from = order_of(lo, n->in[0], one, back ? q : RU_F32);
    const rui_layout *to = rui_layout_as(lo, from, back ? RU_F32 : q);
    uint32_t axis = one ? 0 : rui_axis(ru_node_int(n, RU_ATTR_axis, 1), x->rank);
    quant_state *state = rui_keep(lo, (int64_t)sizeof *state);
    if (state == NULL || from == NULL || to == NULL) {
        return rui_done(lo);
    }
    *state = (quant_state){.k = ru_kern_best(),
                           .q = q,
                           .n = ru_type_count(x),
                           .channels = one ? 1 : x->dims[axis],
                           .inner = one ? ru_type_count(x) : rui_dims(x, axis + 1, x->rank),
                           .back = back};
    rui_buf bufs[6] = {rui_in(lo, n->in[0], from), rui_in_plain(lo, n->in[1]),
                       ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0},
                       rui_out(lo, n->out[0], to)};
    bool each = !one && state->inner < EACH_MAX;
    for (uint32_t k = 4; each && k < 6; k++) {
        bufs[k] = rui_scratch(lo, state->channels * state->inner * (int64_t)sizeof(float));
    }
    rui_emit(lo, &(rui_step){.kernel = back ? "kern dequantize" : "kern quantize",
                             .fn = each ? each_run : quant_run,
                             .state = state,
                             .bufs = bufs,
                             .n_bufs = each ? 6 : 4});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}

/* -- sums -------------------------------------------------------------------------------------- */

typedef struct add_state {
    const ru_kern *k;
    ru_kern_add8 s;
    int64_t n;
} add_state;

static void add_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const add_state *s = state;
    s->k->add_int8(&s->s, (const char *)bufs[0] + begin, (const char *)bufs[1] + begin,
                   (char *)bufs[2] + begin, end - begin);
}

static ru_status add_run(void *state, void *const *bufs, const rui_run *run)
{
    const add_state *s = state;
    rui_kern_for(run, add_part, s, bufs, s->n, 16384);
    return RU_OK;
}

ru_status rui_lower_kern_add_int8(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    ru_dtype ta = rui_type(lo, n->in[0])->dtype, tb = rui_type(lo, n->in[1])->dtype;
    ru_dtype ty = rui_type(lo, n->out[0])->dtype;
    const char *act = ru_node_str(n, RU_ATTR_activation, "");
    bool relu = strcmp(act, "relu") == 0;
    if (!relu && act[0] != 0) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *la = order_of(lo, n->in[0], true, ta);
    const rui_layout *lb = rui_layout_as(lo, la, tb), *ly = rui_layout_as(lo, la, ty);
    add_state *state = rui_keep(lo, (int64_t)sizeof *state);
    if (state == NULL || lb == NULL || ly == NULL) {
        return rui_done(lo);
    }
    double y = ru_node_float(n, RU_ATTR_y_scale, 1),
           zero = (double)ru_node_int(n, RU_ATTR_y_zero, 0);
    double a = ru_node_float(n, RU_ATTR_x_scale, 1) / y;
    double b = ru_node_float(n, RU_ATTR_b_scale, 1) / y;
    double az = (double)ru_node_int(n, RU_ATTR_x_zero, 0);
    double bz = (double)ru_node_int(n, RU_ATTR_b_zero, 0);
    double low = ty == RU_I8 ? -128 : 0;
    *state = (add_state){.k = ru_kern_best(), .n = ru_type_count(rui_type(lo, n->in[0]))};
    state->s = (ru_kern_add8){.a = (float)a,
                              .b = (float)b,
                              .c = (float)(-az * a - bz * b),
                              .zero = (float)zero,
                              .low = (float)(relu && zero > low ? zero : low),
                              .high = ty == RU_I8 ? 127 : 255,
                              .types = (ta == RU_I8) + 2U * (tb == RU_I8) + 4U * (ty == RU_I8)};
    rui_buf in = rui_in(lo, n->in[0], la), other = rui_in(lo, n->in[1], lb);
    rui_buf bufs[3] = {in, other, rui_out_over(lo, n->out[0], ly, in)};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern add int8", .fn = add_run, .state = state, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}
