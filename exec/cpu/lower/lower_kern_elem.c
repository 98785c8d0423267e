/* Element-wise ops on the vector kernels: flat over any layout when shapes agree, else row-major
 * with broadcasting collapsed to as few dimensions as possible. */
#include <math.h>
#include <string.h>

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_spread.h"

/* -- one input -----------------------------------------------------------------------------------
 */

typedef struct map1_row {
    ru_op op;
    ru_kern_map1 map;
    ru_attr_key a, b; /* NONE: constant */
    float a_default, b_default;
    bool zero_at_zero; /* f(0) = 0: padding stays zero */
} map1_row;

#define PLAIN_MAP(op, zero)                                                   \
    {                                                                         \
        RU_OP_##op, RU_KERN_MAP1_##op, RU_ATTR_NONE, RU_ATTR_NONE, 0, 0, zero \
    }
static const map1_row map1_rows[] = {
    PLAIN_MAP(Abs, true),
    PLAIN_MAP(Acos, false),
    PLAIN_MAP(Acosh, false),
    PLAIN_MAP(Asin, true),
    PLAIN_MAP(Asinh, true),
    PLAIN_MAP(Atan, true),
    PLAIN_MAP(Atanh, true),
    PLAIN_MAP(Ceil, true),
    PLAIN_MAP(Cos, false),
    PLAIN_MAP(Cosh, false),
    PLAIN_MAP(Erf, true),
    PLAIN_MAP(Exp, false),
    PLAIN_MAP(Floor, true),
    PLAIN_MAP(HardSwish, true),
    PLAIN_MAP(Log, false),
    PLAIN_MAP(Mish, true),
    PLAIN_MAP(Neg, true),
    PLAIN_MAP(Reciprocal, false),
    PLAIN_MAP(Relu, true),
    PLAIN_MAP(Round, true),
    PLAIN_MAP(Sigmoid, false),
    PLAIN_MAP(Sign, true),
    PLAIN_MAP(Sin, true),
    PLAIN_MAP(Sinh, true),
    PLAIN_MAP(Softplus, false),
    PLAIN_MAP(Softsign, true),
    PLAIN_MAP(Sqrt, true),
    PLAIN_MAP(Tan, true),
    PLAIN_MAP(Tanh, true),
    PLAIN_MAP(Gelu, true),
    {RU_OP_Celu, RU_KERN_MAP1_Celu, RU_ATTR_alpha, RU_ATTR_NONE, 1, 0, true},
    {RU_OP_Elu, RU_KERN_MAP1_Elu, RU_ATTR_alpha, RU_ATTR_NONE, 1, 0, true},
    {RU_OP_HardSigmoid, RU_KERN_MAP1_HardSigmoid, RU_ATTR_alpha, RU_ATTR_beta, 0.2f, 0.5f, false},
    {RU_OP_LeakyRelu, RU_KERN_MAP1_LeakyRelu, RU_ATTR_alpha, RU_ATTR_NONE, 0.01f, 0, true},
    {RU_OP_Selu, RU_KERN_MAP1_Selu, RU_ATTR_alpha, RU_ATTR_gamma, 1.67326319217681884765625f,
     1.05070102214813232421875f, true},
    {RU_OP_ThresholdedRelu, RU_KERN_MAP1_ThresholdedRelu, RU_ATTR_alpha, RU_ATTR_NONE, 1, 0, true},
    {RU_OP_Shrink, RU_KERN_MAP1_Shrink, RU_ATTR_lambd, RU_ATTR_bias, 0.5f, 0, true},
};

/* Has this map a form of f64? */
static bool is_wide1(ru_kern_map1 map)
{
    switch ((uint32_t)map) {
#define RU_X(name, f)         \
    case RU_KERN_MAP1_##name: \
        return true;
        RU_KERN_WIDE1_LIST(RU_X)
#undef RU_X
    default:
        return false;
    }
}

static bool is_wide2(ru_kern_map2 map)
{
    switch ((uint32_t)map) {
#define RU_X(name, f)         \
    case RU_KERN_MAP2_##name: \
        return true;
        RU_KERN_WIDE2_LIST(RU_X)
#undef RU_X
    default:
        return false;
    }
}

typedef struct elem_state {
    const ru_kern *k;
    int32_t op;
    float a, b;
    ru_dtype t;
    int64_t n; /* flat elements */
} elem_state;

static bool is_tanh_form(const ru_node *n)
{
    return strcmp(ru_node_str(n, RU_ATTR_approximate, "none"), "tanh") == 0;
}

static float attr_or(const ru_node *n, ru_attr_key key, float dflt)
{
    return key == RU_ATTR_NONE ? dflt : (float)ru_node_float(n, key, (double)dflt);
}

static void map1_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const elem_state *s = state;
    int64_t at = begin * ru_dtype_bytes(s->t);
    if (s->t == RU_F64) {
        ru_kern_numbers_best()->map1((ru_kern_map1)s->op, (const double *)bufs[0] + begin,
                                     (double *)bufs[1] + begin, end - begin);
        return;
    }
    s->k->map1((ru_kern_map1)s->op, s->a, s->b, s->t, (const char *)bufs[0] + at,
               (char *)bufs[1] + at, end - begin);
}

/* Of the functions of the C library an element takes 10 to 30 ns. */
static int64_t map1_grain(const elem_state *s)
{
    switch ((uint32_t)s->op) {
    case RU_KERN_MAP1_Acosh:
    case RU_KERN_MAP1_Asinh:
    case RU_KERN_MAP1_Cosh:
    case RU_KERN_MAP1_Sinh:
    case RU_KERN_MAP1_Tan:
        return 256;
    default:
        return s->t == RU_F64 ? 1024 : 4096;
    }
}

static ru_status map1_run(void *state, void *const *bufs, const rui_run *run)
{
    const elem_state *s = state;
    rui_kern_for(run, map1_part, s, bufs, s->n, map1_grain(s));
    return RU_OK;
}

static elem_state *elem_new(rui_low *lo, int32_t op, float a, float b, const rui_layout *l)
{
    elem_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (elem_state){ru_kern_best(), op, a, b, l->type.dtype, l->flat_n};
    }
    return s;
}

/* The layout a flat map may run over: as it stands when it has an order and padding is safe. */
static const rui_layout *flat_layout(rui_low *lo, ru_value_id v, bool zero_at_zero)
{
    const rui_layout *l = rui_standing(lo, v);
    if (l->opaque || (l->padded && !zero_at_zero)) {
        l = rui_plain_as(lo, rui_type(lo, v), l->type.dtype);
    }
    return l;
}

ru_status rui_lower_kern_map1(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const map1_row *row = NULL;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(map1_rows) && row == NULL; i++) {
        row = map1_rows[i].op == n->op ? &map1_rows[i] : NULL;
    }
    ru_dtype t = rui_kern_dtype(lo, n->in[0]);
    if (row == NULL || !(rui_kern_float(t) || (t == RU_F64 && is_wide1(row->map)))) {
        return RU_E_UNSUPPORTED;
    }
    ru_kern_map1 map = row->map;
    if (n->op == RU_OP_Gelu && is_tanh_form(n)) {
        map = RU_KERN_MAP1_GeluTanh;
    }
    const rui_layout *l = flat_layout(lo, n->in[0], row->zero_at_zero);
    rui_buf in = rui_in(lo, n->in[0], l);
    rui_buf bufs[2] = {in, rui_out_over(lo, n->out[0], l, in)};
    elem_state *s = elem_new(lo, (int32_t)map, attr_or(n, row->a, row->a_default),
                             attr_or(n, row->b, row->b_default), l);
    rui_emit(lo, &(rui_step){
                     .kernel = "kern map", .fn = map1_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

/* x to a constant power that a cheap function gives. */
ru_status rui_lower_kern_power(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    static const struct {
        float power;
        ru_kern_map1 map;
        bool zero_at_zero;
    } powers[] = {{2.0f, RU_KERN_MAP1_Square, true},
                  {1.0f, RU_KERN_MAP1_Identity, true},
                  {-1.0f, RU_KERN_MAP1_Reciprocal, false},
                  {3.0f, RU_KERN_MAP1_Cube, true}};
    const ru_value *by = &rui_graph(lo)->values[n->in[1].v];
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    if (by->kind != RU_VALUE_CONST || by->data == NULL || ru_type_count(&by->type) != 1 ||
        x->dtype != RU_F32 || ru_type_count(x) != ru_type_count(y) || x->rank != y->rank) {
        return RU_E_UNSUPPORTED;
    }
    float power = by->type.dtype == RU_F32   ? *(const float *)by->data
                  : by->type.dtype == RU_I64 ? (float)*(const int64_t *)by->data
                                             : NAN;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(powers); i++) {
        if (powers[i].power != power) {
            continue;
        }
        const rui_layout *l = flat_layout(lo, n->in[0], powers[i].zero_at_zero);
        rui_buf in = rui_in(lo, n->in[0], l);
        rui_buf bufs[2] = {in, rui_out_over(lo, n->out[0], l, in)};
        elem_state *s = elem_new(lo, (int32_t)powers[i].map, 0, 0, l);
        rui_emit(
            lo, &(rui_step){
                    .kernel = "kern power", .fn = map1_run, .state = s, .bufs = bufs, .n_bufs = 2});
        return rui_done(lo);
    }
    return RU_E_UNSUPPORTED;
}

/* -- clip ----------------------------------------------------------------------------------------
 */

typedef struct clip_call {
    elem_state s;
} clip_call;

static ru_status clip_run(void *state, void *const *bufs, const rui_run *run)
{
    clip_call c = {*(const elem_state *)state};
    c.s.a = bufs[2] == NULL ? -INFINITY : *(const float *)bufs[2];
    c.s.b = bufs[3] == NULL ? INFINITY : *(const float *)bufs[3];
    rui_kern_for(run, map1_part, &c.s, bufs, c.s.n, 4096);
    return RU_OK;
}

static rui_buf scalar_in(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_in(n, k)
               ? rui_in(lo, n->in[k], rui_plain_as(lo, rui_type(lo, n->in[k]), RU_F32))
               : (rui_buf){0};
}

ru_status rui_lower_kern_clip(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    if (!rui_kern_float(rui_kern_dtype(lo, n->in[0]))) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *l = flat_layout(lo, n->in[0], false);
    rui_buf in = rui_in(lo, n->in[0], l);
    rui_buf lo_b = scalar_in(lo, n, 1), hi_b = scalar_in(lo, n, 2);
    rui_buf bufs[4] = {in, rui_out_over(lo, n->out[0], l, in), lo_b, hi_b};
    elem_state *s = elem_new(lo, RU_KERN_MAP1_Clip, 0, 0, l);
    rui_emit(lo, &(rui_step){
                     .kernel = "kern clip", .fn = clip_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}

/* -- two inputs ----------------------------------------------------------------------------------
 */

typedef struct map2_row {
    ru_op op;
    ru_kern_map2 map;
    ru_attr_key a, b;
    float a_default, b_default;
    bool zero_at_zero; /* f(0,0) = 0 */
} map2_row;

#define PLAIN_MAP2(op, zero)                                                  \
    {                                                                         \
        RU_OP_##op, RU_KERN_MAP2_##op, RU_ATTR_NONE, RU_ATTR_NONE, 0, 0, zero \
    }
static const map2_row map2_rows[] = {
    PLAIN_MAP2(Add, true),
    PLAIN_MAP2(Sub, true),
    PLAIN_MAP2(Mul, true),
    PLAIN_MAP2(Div, false),
    PLAIN_MAP2(Max, true),
    PLAIN_MAP2(Min, true),
    PLAIN_MAP2(Pow, false),
    PLAIN_MAP2(Mod, false),
    PLAIN_MAP2(PRelu, true),
    {RU_OP_Sum, RU_KERN_MAP2_Add, RU_ATTR_NONE, RU_ATTR_NONE, 0, 0, true},
    {RU_OP_AddInto, RU_KERN_MAP2_Add, RU_ATTR_NONE, RU_ATTR_NONE, 0, 0, true},
    PLAIN_MAP2(ReluGrad, true),
    PLAIN_MAP2(TanhGrad, true),
    PLAIN_MAP2(SigmoidGrad, true),
    PLAIN_MAP2(GeluGrad, true),
    {RU_OP_EluGrad, RU_KERN_MAP2_EluGrad, RU_ATTR_alpha, RU_ATTR_NONE, 1, 0, true},
    {RU_OP_SeluGrad, RU_KERN_MAP2_SeluGrad, RU_ATTR_alpha, RU_ATTR_gamma,
     1.67326319217681884765625f, 1.05070102214813232421875f, true},
    {RU_OP_CeluGrad, RU_KERN_MAP2_CeluGrad, RU_ATTR_alpha, RU_ATTR_NONE, 1, 0, true},
    {RU_OP_LeakyReluGrad, RU_KERN_MAP2_LeakyReluGrad, RU_ATTR_alpha, RU_ATTR_NONE, 0.01f, 0, true},
    PLAIN_MAP2(SoftplusGrad, true),
    PLAIN_MAP2(SoftsignGrad, true),
    {RU_OP_HardSigmoidGrad, RU_KERN_MAP2_HardSigmoidGrad, RU_ATTR_alpha, RU_ATTR_beta, 0.2f, 0.5f,
     true},
    PLAIN_MAP2(HardSwishGrad, true),
    PLAIN_MAP2(MishGrad, true),
    PLAIN_MAP2(ErfGrad, true),
};

typedef struct spread_state {
    const ru_kern *k;
    int32_t op;
    float a, b;
    ru_dtype t;
    rui_spread at;
    bool compare;
} spread_state;

static void spread_piece(const void *state, void *const *at, const int64_t *step, int64_t n)
{
    const spread_state *s = state;
    if (s->compare && s->t == RU_F64) {
        ru_kern_numbers_best()->cmp((ru_kern_cmp)s->op, at[0], step[0], at[1], step[1], at[2], n);
    } else if (s->t == RU_F64) {
        ru_kern_numbers_best()->map2((ru_kern_map2)s->op, at[0], step[0], at[1], step[1], at[2], n);
    } else if (s->compare) {
        s->k->cmp((ru_kern_cmp)s->op, s->t, at[0], step[0], at[1], step[1], at[2], n);
    } else {
        s->k->map2((ru_kern_map2)s->op, s->a, s->b, s->t, at[0], step[0], at[1], step[1], at[2], n);
    }
}

static ru_status spread_run(void *state, void *const *bufs, const rui_run *run)
{
    const spread_state *s = state;
    rui_spread_run(run, &s->at, spread_piece, s, bufs);
    return RU_OK;
}

/* The layout of a binary op whose operands have the output's shape: the first operand's, else the
 * second's, whichever can hold the output's dtype. */
static const rui_layout *binary_layout(rui_low *lo, const ru_node *n, bool zero_at_zero, ru_dtype t)
{
    const ru_type *out = rui_type(lo, n->out[0]);
    for (uint32_t k = 0; k < 2; k++) {
        const rui_layout *l = rui_standing(lo, n->in[k]);
        if (!l->opaque && (!l->padded || zero_at_zero) && !rui_undecided(lo, n->in[k])) {
            return rui_layout_as(lo, l, t);
        }
    }
    return rui_plain_as(lo, out, t);
}

static bool same_dims(const ru_type *a, const ru_type *b)
{
    bool same = a->rank == b->rank;
    for (uint32_t d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == b->dims[d];
    }
    return same;
}

/* bf16 when the executor stores the result so and an operand already is, else the graph's dtype. */
static ru_dtype binary_dtype(rui_low *lo, const ru_node *n)
{
    ru_dtype t = rui_type(lo, n->out[0])->dtype;
    if (rui_bf16(lo) && t == RU_F32 && rui_store_dtype(lo, n->out[0]) == RU_BF16 &&
        rui_graph(lo)->values[n->out[0].v].role != RU_ROLE_GRAD &&
        (rui_kern_dtype(lo, n->in[0]) == RU_BF16 || rui_kern_dtype(lo, n->in[1]) == RU_BF16)) {
        t = RU_BF16;
    }
    return t;
}

/* bufs: x y out */
static void flat2(rui_low *lo, const ru_node *n, spread_state *s, bool zero_at_zero, rui_buf *bufs)
{
    const rui_layout *l = binary_layout(lo, n, zero_at_zero, s->t);
    RU_CHECK(!l->opaque);
    bufs[0] = rui_in(lo, n->in[0], l);
    bufs[1] = rui_in(lo, n->in[1], l);
    bufs[2] = rui_out_over(lo, n->out[0], l, bufs[0]);
    int64_t bytes = ru_dtype_bytes(s->t);
    s->at = (rui_spread){
        .n = 2, .rows = 1, .cols = l->flat_n, .step = {1, 1}, .bytes = {bytes, bytes, bytes}};
}

static ru_status lower_flat2(rui_low *lo, const ru_node *n, spread_state *s, bool zero_at_zero)
{
    rui_buf bufs[3];
    flat2(lo, n, s, zero_at_zero, bufs);
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern map2", .fn = spread_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* bufs: dy x dx min max */
static ru_status clip_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    spread_state s = *(const spread_state *)state;
    s.a = bufs[3] == NULL ? -INFINITY : *(const float *)bufs[3];
    s.b = bufs[4] == NULL ? INFINITY : *(const float *)bufs[4];
    return spread_run(&s, bufs, run);
}

/* ClipGrad(dy, x, min?, max?) -> dx */
ru_status rui_lower_kern_clip_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    if (rui_type(lo, n->out[0])->dtype != RU_F32) {
        return RU_E_UNSUPPORTED;
    }
    spread_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (spread_state){.k = ru_kern_best(), .op = RU_KERN_MAP2_ClipGrad, .t = binary_dtype(lo, n)};
    rui_buf bufs[5];
    flat2(lo, n, s, true, bufs);
    bufs[3] = scalar_in(lo, n, 2);
    bufs[4] = scalar_in(lo, n, 3);
    rui_emit(lo, &(rui_step){.kernel = "kern clip grad",
                             .fn = clip_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 5});
    return rui_done(lo);
}

static ru_status lower_spread(rui_low *lo, const ru_node *n, spread_state *s)
{
    const ru_type *out = rui_type(lo, n->out[0]);
    const ru_type *t[] = {rui_type(lo, n->in[0]), rui_type(lo, n->in[1])};
    rui_spread_plan(&s->at, out, t, 2);
    rui_buf x = rui_in(lo, n->in[0], rui_plain_as(lo, rui_type(lo, n->in[0]), s->t));
    rui_buf y = rui_in(lo, n->in[1], rui_plain_as(lo, rui_type(lo, n->in[1]), s->t));
    const rui_layout *lz = rui_plain_as(lo, out, s->compare ? RU_BOOL : s->t);
    s->at.bytes[0] = s->at.bytes[1] = ru_dtype_bytes(s->t); /* which may be bf16 */
    s->at.bytes[2] = ru_dtype_bytes(lz->type.dtype);
    bool over = !s->compare && same_dims(rui_type(lo, n->in[0]), out);
    rui_buf bufs[3] = {x, y,
                       over ? rui_out_over(lo, n->out[0], lz, x) : rui_out(lo, n->out[0], lz)};
    rui_emit(lo, &(rui_step){.kernel = s->compare ? "kern compare" : "kern map2 broadcast",
                             .fn = spread_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}

ru_status rui_lower_kern_map2(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const map2_row *row = NULL;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(map2_rows) && row == NULL; i++) {
        row = map2_rows[i].op == n->op ? &map2_rows[i] : NULL;
    }
    const ru_type *out = rui_type(lo, n->out[0]);
    if (row == NULL || n->n_in != 2 ||
        !(rui_kern_float(out->dtype) || (out->dtype == RU_F64 && is_wide2(row->map))) ||
        rui_type(lo, n->in[1])->dtype != out->dtype) {
        return RU_E_UNSUPPORTED;
    }
    spread_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    ru_kern_map2 map = row->map;
    if (n->op == RU_OP_GeluGrad && is_tanh_form(n)) {
        map = RU_KERN_MAP2_GeluTanhGrad;
    } else if (n->op == RU_OP_Mod && ru_node_int(n, RU_ATTR_fmod, 0) == 0) {
        map = RU_KERN_MAP2_FloorMod;
    }
    *s = (spread_state){.k = ru_kern_best(),
                        .op = (int32_t)map,
                        .a = attr_or(n, row->a, row->a_default),
                        .b = attr_or(n, row->b, row->b_default),
                        .t = binary_dtype(lo, n)};
    if (same_dims(rui_type(lo, n->in[0]), out) && same_dims(rui_type(lo, n->in[1]), out)) {
        return lower_flat2(lo, n, s, row->zero_at_zero);
    }
    return lower_spread(lo, n, s);
}

ru_status rui_lower_kern_compare(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    static const ru_op ops[] = {RU_OP_Equal, RU_OP_Greater, RU_OP_GreaterOrEqual, RU_OP_Less,
                                RU_OP_LessOrEqual};
    int32_t op = -1;
    for (int32_t i = 0; i < (int32_t)RU_ARRAY_LEN(ops); i++) {
        op = ops[i] == n->op ? i : op;
    }
    ru_dtype t = rui_type(lo, n->in[0])->dtype;
    if (op < 0 || (t != RU_F32 && t != RU_F64) || rui_type(lo, n->in[1])->dtype != t) {
        return RU_E_UNSUPPORTED;
    }
    spread_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (spread_state){.k = ru_kern_best(), .op = op, .t = t, .compare = true};
    return lower_spread(lo, n, s);
}

/* -- where ---------------------------------------------------------------------------------------
 */

static void where_piece(const void *state, void *const *at, const int64_t *step, int64_t n)
{
    const spread_state *s = state;
    s->k->where(s->at.bytes[3], at[0], step[0], at[1], step[1], at[2], step[2], at[3], n);
}

/* bufs: condition x y out */
static ru_status where_run(void *state, void *const *bufs, const rui_run *run)
{
    const spread_state *s = state;
    rui_spread_run(run, &s->at, where_piece, s, bufs);
    return RU_OK;
}

ru_status rui_lower_kern_where(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *out = rui_type(lo, n->out[0]);
    spread_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (spread_state){.k = ru_kern_best(), .t = out->dtype};
    const ru_type *t[] = {rui_type(lo, n->in[0]), rui_type(lo, n->in[1]), rui_type(lo, n->in[2])};
    rui_spread_plan(&s->at, out, t, 3);
    rui_buf bufs[4] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       rui_in_plain(lo, n->in[2]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern where", .fn = where_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}

/* -- cast ----------------------------------------------------------------------------------------
 */

typedef struct cast_state {
    const ru_kern *k;
    ru_dtype from, to;
    int64_t n;
} cast_state;

static void cast_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const cast_state *s = state;
    (void)s->k->cast(s->from, (const char *)bufs[0] + begin * ru_dtype_bytes(s->from), s->to,
                     (char *)bufs[1] + begin * ru_dtype_bytes(s->to), end - begin);
}

static ru_status cast_run(void *state, void *const *bufs, const rui_run *run)
{
    const cast_state *s = state;
    rui_kern_for(run, cast_part, s, bufs, s->n, 8192);
    return RU_OK;
}

ru_status rui_lower_kern_cast(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *from = rui_type(lo, n->in[0]), *to = rui_type(lo, n->out[0]);
    const ru_kern *k = ru_kern_best();
    if (from->dtype == to->dtype || !k->cast(from->dtype, "", to->dtype, NULL, 0)) {
        return RU_E_UNSUPPORTED;
    }
    cast_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (cast_state){k, from->dtype, to->dtype, ru_type_count(to)};
    }
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern cast", .fn = cast_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}
