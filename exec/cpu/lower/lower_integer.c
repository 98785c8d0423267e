/* What ONNX Runtime's dynamic quantiser writes: DynamicQuantizeLinear, and products of 8-bit
 * integers with sums of 32 bits whose zero points may be known at the run only.
 *
 * oneDNN makes the sums of the numbers as they stand, and what the zero points add is taken off.
 * Short sums are ours (ru_kern_bytes): to read and write them again would take longer than they do.
 * Sums of constants are made once. A convolution is a product over windows, if its image has been
 * padded with its zero point (world/onnx/onnx_lift_rules.c). */
#include <math.h>
#include <string.h>

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/kern/side.h"
#include "exec/cpu/lower/lower_few.h"
#include "exec/cpu/lower/lower_kern.h"

/* -- products -----------------------------------------------------------------------------------
 *
 * The right side is moved to i8 (u8 minus 128), where oneDNN takes it. With b = c + o, of zero
 * point w = c's:  sum (a - z)(c - w)  =  sum a c  -  z sum c  -  w (sum a - K z). */

typedef struct any_state {
    const ru_kern_numbers *k;
    int64_t rows, terms, cols, a_count, b_count, batches; /* of a matrix; matrices */
    const int64_t *a_at, *b_at;                           /* [batches] which matrix */
    const int32_t *sums; /* [b_count * cols] of constant columns; NULL: made by each run */
    int32_t moved;       /* o: 128 where b is u8, else 0 */
    bool a_sign, b_sign, left, right, each; /* sums of columns, of rows; w of each column */
    const ru_kern_bytes *few;               /* NULL: oneDNN's */
    const uint8_t *packed;                  /* few: constants [b_count][pieces] */
    int64_t pieces, piece;                  /* few: of a matrix; bytes */
} any_state;

/* Is the zero point absent or a constant 0? */
static bool no_zero(const rui_low *lo, const ru_node *n, uint32_t k)
{
    if (!ru_node_has_in(n, k)) {
        return true;
    }
    const ru_value *z = &rui_graph(lo)->values[n->in[k].v];
    bool zero = z->kind == RU_VALUE_CONST && z->data != NULL;
    for (int64_t i = 0; zero && i < ru_type_count(&z->type); i++) {
        zero = ((const uint8_t *)z->data)[i] == 0;
    }
    return zero;
}

/* Kernels for CPUs without dot products of bytes may cut sums of pairs to 16 bits. That of all
 * instruction sets takes the dot products where there are some. */
static bool is_exact(rui_low *lo, const_dnnl_primitive_desc_t pd)
{
    const char *name = rui_pd_name(lo, pd);
    return strstr(name, "vnni") != NULL || strstr(name, "amx") != NULL ||
           (strstr(name, "gemm:jit") != NULL && rui_dnnl_exact_bytes());
}

static const int8_t *constant_bytes(const rui_low *lo, ru_value_id v)
{
    const ru_value *b = &rui_graph(lo)->values[v.v];
    return b->kind == RU_VALUE_CONST && b->type.dtype == RU_I8 ? b->data : NULL;
}

/* bufs: b, c */
static void move_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    static const uint8_t top = 0x80;
    (void)state;
    ru_kern_best()->whole2(RU_KERN_WHOLE_XOR, RU_U8, (const uint8_t *)bufs[0] + begin, 1, &top, 0,
                           (uint8_t *)bufs[1] + begin, end - begin);
}

static ru_status move_run(void *state, void *const *bufs, const rui_run *run)
{
    const any_state *s = state;
    rui_kern_for(run, move_part, s, bufs, s->b_count * s->terms * s->cols, 65536);
    return RU_OK;
}

/* What is taken off the product: rows[i] * by[j] + cols[j]. */
enum { ANY_Y, ANY_A, ANY_C, ANY_A_ZERO, ANY_B_ZERO, ANY_ROWS, ANY_COLS, ANY_BY, ANY_BUFS };

static uint32_t zero_of(const void *zeros, bool sign, int64_t j)
{
    return zeros == NULL ? 0
           : sign        ? (uint32_t)((const int8_t *)zeros)[j]
                         : ((const uint8_t *)zeros)[j];
}

/* Rows of a, and matrices of c, as one range after the other. */
static void any_rows(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    const uint32_t z = zero_of(bufs[ANY_A_ZERO], s->a_sign, 0), all = (uint32_t)s->terms * z;
    const uint32_t w = zero_of(bufs[ANY_B_ZERO], s->b_sign, 0) - (uint32_t)s->moved;
    uint32_t *rows = bufs[ANY_ROWS];
    s->k->sum_rows(s->a_sign, (const uint8_t *)bufs[ANY_A] + begin * s->terms, end - begin,
                   s->terms, (int32_t *)rows + begin);
    for (int64_t i = begin; i < end; i++) {
        rows[i] = (rows[i] - all) * (s->each ? 1 : w);
    }
}

static void any_cols(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    const uint32_t z = zero_of(bufs[ANY_A_ZERO], s->a_sign, 0);
    uint32_t *cols = (uint32_t *)bufs[ANY_COLS];
    for (int64_t m = begin; s->sums == NULL && m < end; m++) {
        s->k->sum_columns((const int8_t *)bufs[ANY_C] + m * s->terms * s->cols, s->terms, s->cols,
                          (int32_t *)cols + m * s->cols);
    }
    const uint32_t *sums = s->sums != NULL ? (const uint32_t *)s->sums : cols;
    for (int64_t j = begin * s->cols; j < end * s->cols; j++) {
        cols[j] = z * sums[j];
    }
}

static void any_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    for (int64_t i = begin, n; i < end; i += n) {
        int64_t batch = i / s->rows, row = i % s->rows;
        n = s->rows - row < end - i ? s->rows - row : end - i;
        const uint32_t *rows = bufs[ANY_ROWS], *cols = bufs[ANY_COLS];
        s->k->less_terms(s->right ? rows + s->a_at[batch] * s->rows + row : NULL,
                         s->each ? bufs[ANY_BY] : NULL,
                         s->left ? cols + s->b_at[batch] * s->cols : NULL,
                         (uint32_t *)bufs[ANY_Y] + i * s->cols, n, s->cols);
    }
}

static void any_by(const any_state *s, void *const *bufs)
{
    uint32_t *by = bufs[ANY_BY];
    for (int64_t j = 0; s->each && j < s->cols; j++) {
        by[j] = zero_of(bufs[ANY_B_ZERO], s->b_sign, j) - (uint32_t)s->moved;
    }
}

static ru_status any_run(void *state, void *const *bufs, const rui_run *run)
{
    const any_state *s = state;
    any_by(s, bufs);
    if (s->right) {
        rui_kern_for(run, any_rows, s, bufs, s->a_count * s->rows, rui_kern_grain(s->terms));
    }
    if (s->left) {
        rui_kern_for(run, any_cols, s, bufs, s->b_count, rui_kern_grain(s->terms * s->cols));
    }
    rui_kern_for(run, any_part, s, bufs, s->batches * s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

/* Dimensions of an operand below those of the result's batch; which matrix each batch takes. */
static void batches_of(const ru_type *t, const ru_type *y, int64_t *dims, int64_t *at)
{
    uint32_t lead = y->rank - t->rank;
    for (uint32_t d = 0; d < y->rank; d++) {
        dims[d] = d < lead ? 1 : t->dims[d - lead];
    }
    for (int64_t i = 0; i < rui_dims(y, 0, y->rank - 2); i++) {
        int64_t left = i, step = 1;
        at[i] = 0;
        for (uint32_t d = y->rank - 2; d-- > 0;) {
            at[i] += dims[d] == 1 ? 0 : left % y->dims[d] * step;
            left /= y->dims[d];
            step *= dims[d];
        }
    }
}

/* One number for the left side, one or a row of one for each column for the right side. */
static bool any_fits(const rui_low *lo, const ru_node *n)
{
    const ru_type *a = rui_type(lo, n->in[0]), *b = rui_type(lo, n->in[1]);
    const ru_type *za = ru_node_has_in(n, 2) ? rui_type(lo, n->in[2]) : NULL;
    const ru_type *zb = ru_node_has_in(n, 3) ? rui_type(lo, n->in[3]) : NULL;
    return a->rank >= 2 && b->rank >= 2 && ru_type_count(a) > 0 && ru_type_count(b) > 0 &&
           (za == NULL || ru_type_count(za) == 1) &&
           (zb == NULL || ru_type_count(zb) == 1 ||
            (zb->rank == 1 && zb->dims[0] == b->dims[b->rank - 1]));
}

static any_state *any_new(rui_low *lo, const ru_node *n, int64_t *a_dims, int64_t *b_dims)
{
    const ru_type *a = rui_type(lo, n->in[0]), *b = rui_type(lo, n->in[1]);
    ru_type y = *rui_type(lo, n->out[0]), rows = *a;
    if (b->rank == 2) { /* many rows with one matrix are one product */
        rows = ru_type_make(a->dtype, 2,
                            (int64_t[]){rui_dims(a, 0, a->rank - 1), a->dims[a->rank - 1]});
        y = ru_type_make(RU_I32, 2, (int64_t[]){rows.dims[0], b->dims[1]});
    }
    int64_t batches = rui_dims(&y, 0, y.rank - 2);
    any_state *s = rui_keep(lo, (int64_t)sizeof *s);
    int64_t *at = rui_keep(lo, 2 * batches * (int64_t)sizeof *at);
    if (s == NULL || at == NULL) {
        return NULL;
    }
    batches_of(&rows, &y, a_dims, at);
    batches_of(b, &y, b_dims, at + batches);
    *s = (any_state){.k = ru_kern_numbers_best(),
                     .rows = y.dims[y.rank - 2],
                     .terms = b->dims[b->rank - 2],
                     .cols = y.dims[y.rank - 1],
                     .a_count = rui_dims(&rows, 0, rows.rank - 2),
                     .b_count = rui_dims(b, 0, b->rank - 2),
                     .batches = batches,
                     .a_at = at,
                     .b_at = at + batches,
                     .moved = b->dtype == RU_U8 ? 128 : 0,
                     .a_sign = a->dtype == RU_I8,
                     .b_sign = b->dtype == RU_I8,
                     .left = !no_zero(lo, n, 2)};
    s->right = s->moved != 0 || !no_zero(lo, n, 3);
    s->each = ru_node_has_in(n, 3) && ru_type_count(rui_type(lo, n->in[3])) > 1;
    const int8_t *known = constant_bytes(lo, n->in[1]);
    int32_t *sums = known != NULL ? rui_keep(lo, s->b_count * s->cols * 4) : NULL;
    for (int64_t m = 0; sums != NULL && m < s->b_count; m++) {
        s->k->sum_columns(known + m * s->terms * s->cols, s->terms, s->cols, sums + m * s->cols);
    }
    s->sums = sums;
    return s;
}

/* The right side as oneDNN takes it: constants packed once, u8 moved. */
static rui_buf any_right(rui_low *lo, const ru_node *n, any_state *s, const dnnl_memory_desc_t *c,
                         const dnnl_memory_desc_t *want)
{
    if (s->moved == 0) {
        return rui_in_as(lo, n->in[1], c, want);
    }
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[1]),
                       rui_workspace(lo, s->b_count * s->terms * s->cols)};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern move bytes", .fn = move_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return bufs[1];
}

/* -- short sums, few columns ----------------------------------------------------------------------
 * c is u8 where a is i8, else i8. One core (Zen 5), time by oneDNN over that of these: 2.2 of 5,000
 * x 16 by 4, 1.1 of 696 x 17 by 729 (whose result of 2 MB takes most of either). */

enum { FEW_COLS = 16, FEW_ROWS = 48, FEW_BYTES = 1 << 18 /* of packed columns */ };

/* bufs as ANY_; ANY_C: packed */
static void few_pack(const any_state *s, const uint8_t *b, int64_t i, uint8_t *to, int32_t *sums)
{
    const int64_t m = i / s->pieces, j = i % s->pieces * RU_KERN_BYTES_COLS;
    const int64_t n = s->cols - j < RU_KERN_BYTES_COLS ? s->cols - j : RU_KERN_BYTES_COLS;
    s->few->pack(b + m * s->terms * s->cols + j, s->cols, s->terms, n, s->moved != 0 ? 0x80 : 0,
                 !s->a_sign, to + i * s->piece, sums != NULL ? sums + m * s->cols + j : NULL);
}

enum { FEW_B = ANY_BUFS, FEW_BUFS };

static void few_packs(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    for (int64_t i = begin; i < end; i++) {
        few_pack(s, bufs[FEW_B], i, bufs[ANY_C], s->left ? bufs[ANY_COLS] : NULL);
    }
}

static void few_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    const uint32_t z = zero_of(bufs[ANY_A_ZERO], s->a_sign, 0), all = (uint32_t)s->terms * z;
    const uint32_t w = zero_of(bufs[ANY_B_ZERO], s->b_sign, 0) - (uint32_t)s->moved;
    const int64_t most = s->pieces > 1 ? 4 * RU_KERN_BYTES_ROWS : FEW_ROWS;
    const uint8_t *packed = s->packed != NULL ? s->packed : bufs[ANY_C];
    const bool own = s->right && s->cols <= RU_KERN_BYTES_OWN;
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t batch = i / s->rows, row = i % s->rows;
        uint32_t rows[FEW_ROWS];
        n = s->rows - row < end - i ? s->rows - row : end - i;
        n = n < most ? n : most;
        const uint8_t *a =
            (const uint8_t *)bufs[ANY_A] + (s->a_at[batch] * s->rows + row) * s->terms;
        if (s->right && !own) {
            s->k->sum_rows(s->a_sign, a, n, s->terms, (int32_t *)rows);
            for (int64_t r = 0; r < n; r++) {
                rows[r] = (rows[r] - all) * (s->each ? 1 : w);
            }
        }
        for (int64_t p = 0; p < s->pieces; p++) {
            const int64_t j = p * RU_KERN_BYTES_COLS, m = s->b_at[batch];
            s->few->sums(
                &(ru_kern_bytes_sums){
                    .own = own,
                    .all = all,
                    .each = s->each ? 1 : w,
                    .a_sign = s->a_sign,
                    .terms = s->terms,
                    .n = s->cols - j < RU_KERN_BYTES_COLS ? s->cols - j : RU_KERN_BYTES_COLS,
                    .a = a,
                    .c = packed + (m * s->pieces + p) * s->piece,
                    .rows = s->right && !own ? rows : NULL,
                    .by = s->each ? (const uint32_t *)bufs[ANY_BY] + j : NULL,
                    .cols = s->left ? (const uint32_t *)bufs[ANY_COLS] + m * s->cols + j : NULL,
                    .y = (uint32_t *)bufs[ANY_Y] + i * s->cols + j,
                    .a_step = s->terms,
                    .y_step = s->cols},
                n);
        }
    }
}

static ru_status few_run(void *state, void *const *bufs, const rui_run *run)
{
    const any_state *s = state;
    const int64_t pieces = s->b_count * s->pieces;
    any_by(s, bufs);
    if (s->packed == NULL) {
        rui_kern_for(run, few_packs, s, bufs, pieces, 1 + FEW_BYTES / 4 / s->piece);
    }
    const uint32_t z = zero_of(bufs[ANY_A_ZERO], s->a_sign, 0);
    uint32_t *cols = bufs[ANY_COLS];
    for (int64_t j = 0; s->left && j < s->b_count * s->cols; j++) {
        cols[j] = z * (s->sums != NULL ? (uint32_t)s->sums[j] : cols[j]);
    }
    rui_kern_for(run, few_part, s, bufs, s->batches * s->rows,
                 rui_kern_grain(s->cols * (1 + s->terms / 32)));
    return RU_OK;
}

/* RU_E_UNSUPPORTED: oneDNN's. */
static ru_status lower_few(rui_low *lo, const ru_node *n, any_state *s)
{
    const ru_kern_bytes *k = ru_kern_bytes_here();
    if (k == NULL || (s->terms > RUI_FEW_TERMS && s->cols > FEW_COLS)) {
        return RU_E_UNSUPPORTED;
    }
    s->pieces = (s->cols + RU_KERN_BYTES_COLS - 1) / RU_KERN_BYTES_COLS;
    s->piece = k->piece(s->terms);
    if (s->pieces * s->piece > FEW_BYTES) {
        return RU_E_UNSUPPORTED;
    }
    s->few = k;
    s->moved = s->a_sign == s->b_sign ? (s->a_sign ? -128 : 128) : 0;
    s->right = s->moved != 0 || !no_zero(lo, n, 3);
    const int64_t bytes = s->b_count * s->pieces * s->piece;
    const ru_value *b = &rui_graph(lo)->values[n->in[1].v];
    s->sums = NULL;
    if (b->kind == RU_VALUE_CONST && b->data != NULL) {
        uint8_t *packed = rui_keep(lo, bytes);
        int32_t *sums = rui_keep(lo, s->b_count * s->cols * 4);
        for (int64_t i = 0; packed != NULL && sums != NULL && i < s->b_count * s->pieces; i++) {
            few_pack(s, b->data, i, packed, sums);
        }
        s->packed = packed;
        s->sums = sums;
    }
    rui_buf bufs[FEW_BUFS] = {
        [ANY_Y] = rui_out_plain(lo, n->out[0]), [ANY_A] = rui_in_plain(lo, n->in[0])};
    bufs[FEW_B] = s->packed == NULL ? rui_in_plain(lo, n->in[1]) : (rui_buf){0};
    for (uint32_t z = 2; z < 4; z++) {
        bufs[ANY_A_ZERO + z - 2] = ru_node_has_in(n, z) ? rui_in_plain(lo, n->in[z]) : (rui_buf){0};
    }
    bufs[ANY_C] = rui_scratch(lo, s->packed == NULL ? bytes : 0);
    bufs[ANY_COLS] = rui_scratch(lo, s->left ? s->b_count * s->cols * 4 : 0);
    bufs[ANY_BY] = rui_scratch(lo, s->each ? s->cols * 4 : 0);
    rui_emit(lo, &(rui_step){.kernel = "kern few bytes",
                             .fn = few_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = FEW_BUFS});
    return rui_done(lo);
}

ru_status rui_lower_dnnl_matmul_integer(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    int64_t a_dims[RU_RANK_MAX], b_dims[RU_RANK_MAX], y_dims[RU_RANK_MAX];
    any_state *s = any_fits(lo, n) ? any_new(lo, n, a_dims, b_dims) : NULL;
    if (s == NULL) {
        return any_fits(lo, n) ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    ru_status few = lower_few(lo, n, s);
    if (few != RU_E_UNSUPPORTED) {
        return few;
    }
    const ru_type *ty = rui_type(lo, n->out[0]), *tb = rui_type(lo, n->in[1]);
    int nd = tb->rank == 2 ? 2 : (int)ty->rank;
    for (int d = 0; d < nd; d++) {
        y_dims[d] = nd == 2 ? (d == 0 ? s->rows : s->cols) : ty->dims[d];
    }
    dnnl_memory_desc_t a = rui_md_plain(lo, nd, a_dims, s->a_sign ? dnnl_s8 : dnnl_u8);
    dnnl_memory_desc_t c = rui_md_plain(lo, nd, b_dims, dnnl_s8);
    dnnl_memory_desc_t want = s->sums != NULL && nd == 2 ? rui_md_any(lo, 2, b_dims, dnnl_s8) : c;
    dnnl_memory_desc_t y = rui_md_plain(lo, nd, y_dims, dnnl_s32);
    dnnl_matmul_desc_t md;
    dnnl_status_t st = rui_nn(lo)->matmul_desc_init(&md, &a, &want, NULL, &y);
    dnnl_primitive_desc_t pd = rui_pd_fast(lo, rui_pd_make(lo, st, &md, NULL));
    if (pd == NULL || !is_exact(lo, pd)) {
        rui_pd_free(lo, pd);
        return RU_E_UNSUPPORTED;
    }
    want = rui_pd_md(lo, pd, DNNL_ARG_WEIGHTS);
    rui_buf right = any_right(lo, n, s, &c, &want);
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], &a);
    rui_prim_buf(&p, DNNL_ARG_WEIGHTS, right, NULL);
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], &y);
    RU_TRY(rui_prim_emit(&p, "matmul integer"));
    if (!s->left && !s->right) {
        return rui_done(lo);
    }
    rui_buf bufs[ANY_BUFS] = {rui_in_standing(lo, n->out[0]), rui_in_plain(lo, n->in[0])};
    bufs[ANY_C] = s->sums == NULL ? right : (rui_buf){0};
    for (uint32_t k = 2; k < 4; k++) {
        bufs[ANY_A_ZERO + k - 2] = ru_node_has_in(n, k) ? rui_in_plain(lo, n->in[k]) : (rui_buf){0};
    }
    bufs[ANY_ROWS] = rui_scratch(lo, s->right ? s->a_count * s->rows * 4 : 0);
    bufs[ANY_COLS] = rui_scratch(lo, s->left ? s->b_count * s->cols * 4 : 0);
    bufs[ANY_BY] = rui_scratch(lo, s->each ? s->cols * 4 : 0);
    rui_emit(lo, &(rui_step){.kernel = "kern zero points",
                             .fn = any_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = ANY_BUFS});
    return rui_done(lo);
}

/* -- convolutions ------------------------------------------------------------------------------ */

typedef struct zero_state {
    const ru_kern_numbers *k;
    const int32_t *sums; /* [cols] of a channel's weights */
    int64_t rows, cols;
    bool sign; /* the zero point is i8, else u8 */
} zero_state;

/* bufs: product, zero point, its products with the sums [cols] */
static void zero_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const zero_state *s = state;
    s->k->less_terms(NULL, NULL, bufs[2], (uint32_t *)bufs[0] + begin * s->cols, end - begin,
                     s->cols);
}

static ru_status zero_run(void *state, void *const *bufs, const rui_run *run)
{
    const zero_state *s = state;
    const uint32_t zero = zero_of(bufs[1], s->sign, 0);
    for (int64_t j = 0; j < s->cols; j++) {
        ((uint32_t *)bufs[2])[j] = zero * (uint32_t)s->sums[j];
    }
    rui_kern_for(run, zero_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

/* Subtract the left zero point's share from the product where it stands, `cols` channels last. */
static ru_status zero_emit(rui_low *lo, const ru_node *n, int64_t cols)
{
    const ru_value *b = &rui_graph(lo)->values[n->in[1].v];
    int64_t terms = ru_type_count(&b->type) / cols;
    zero_state *s = rui_keep(lo, (int64_t)sizeof *s);
    int32_t *sums = rui_keep(lo, cols * (int64_t)sizeof *sums);
    if (s == NULL || sums == NULL || no_zero(lo, n, 2)) {
        return rui_done(lo);
    }
    *s = (zero_state){.k = ru_kern_numbers_best(),
                      .sums = sums,
                      .rows = ru_type_count(rui_type(lo, n->out[0])) / cols,
                      .cols = cols,
                      .sign = rui_type(lo, n->in[0])->dtype == RU_I8};
    s->k->sum_rows(true, b->data, cols, terms, sums);
    rui_buf bufs[3] = {rui_in_standing(lo, n->out[0]), rui_in_plain(lo, n->in[2]),
                       rui_scratch(lo, cols * 4)};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern zero point", .fn = zero_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* The left side is u8 or i8 with one zero point; the right side constant i8 around 0. */
static bool product_fits(const rui_low *lo, const ru_node *n)
{
    bool one = !ru_node_has_in(n, 2) || ru_type_count(rui_type(lo, n->in[2])) == 1;
    return constant_bytes(lo, n->in[1]) != NULL && one && no_zero(lo, n, 3) &&
           ru_type_count(rui_type(lo, n->in[0])) > 0 && ru_type_count(rui_type(lo, n->in[1])) > 0;
}

/* Channels last, so that those of a place stand side by side. */
static dnnl_memory_desc_t channels_last(rui_low *lo, const rui_window *w)
{
    dnnl_dims_t strides = {0};
    int last = w->nsp + 1;
    strides[1] = 1;
    strides[last] = w->co;
    for (int d = last - 1; d > 1; d--) {
        strides[d] = strides[d + 1] * w->y_dims[d + 1];
    }
    strides[0] = strides[2] * w->y_dims[2];
    return rui_md_strided(lo, w->nsp + 2, w->y_dims, strides, dnnl_s32);
}

static bool padded(const rui_window *w)
{
    bool any = false;
    for (int d = 0; d < w->nsp; d++) {
        any = any || w->pad_l[d] != 0 || w->pad_r[d] != 0;
    }
    return any;
}

ru_status rui_lower_dnnl_conv_integer(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    const ru_type *tx = rui_type(lo, n->in[0]), *tw = rui_type(lo, n->in[1]);
    const ru_type *ty = rui_type(lo, n->out[0]);
    RU_TRY(rui_window_of(n, tx, tw, ty, false, false, &w));
    if (!product_fits(lo, n) || ru_type_count(ty) <= 0 || (padded(&w) && !no_zero(lo, n, 2))) {
        return RU_E_UNSUPPORTED; /* pads stand for the zero point: the reader makes them a Pad */
    }
    ru_status few =
        rui_lower_few_places(lo, n, &w, constant_bytes(lo, n->in[1]), !no_zero(lo, n, 2));
    if (few != RU_E_UNSUPPORTED) {
        return few;
    }
    dnnl_memory_desc_t x = rui_md_any(lo, w.nsp + 2, w.x_dims, rui_dnnl_type(tx->dtype));
    dnnl_memory_desc_t wt = rui_md_any(lo, w.w_ndims, w.w_dims, dnnl_s8);
    dnnl_memory_desc_t y = channels_last(lo, &w);
    dnnl_convolution_desc_t cd;
    dnnl_status_t st = rui_nn(lo)->dilated_convolution_forward_desc_init(
        &cd, dnnl_forward_inference, dnnl_convolution_direct, &x, &wt, NULL, &y, w.stride, w.dilate,
        w.pad_l, w.pad_r);
    dnnl_primitive_desc_t pd = rui_pd_fast(lo, rui_pd_make(lo, st, &cd, NULL));
    if (pd == NULL || !is_exact(lo, pd)) {
        rui_pd_free(lo, pd);
        return RU_E_UNSUPPORTED;
    }
    rui_prim p;
    dnnl_memory_desc_t want = rui_pd_md(lo, pd, DNNL_ARG_WEIGHTS);
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], NULL);
    rui_prim_buf(&p, DNNL_ARG_WEIGHTS, rui_in(lo, n->in[1], rui_layout_md(lo, &want)), NULL);
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], NULL);
    RU_TRY(rui_prim_emit(&p, "conv integer"));
    return zero_emit(lo, n, w.co);
}

/* -- dynamic quantisation ---------------------------------------------------------------------- */

enum { PART = 16384 };

typedef struct dynamic_state {
    const ru_kern *k;
    int64_t n;
} dynamic_state;

/* bufs: x, y, scale, zero, limits [parts][2] */
static void limits_parts(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    (void)state;
    for (int64_t at = begin; at < end; at += PART) {
        float *limits = (float *)bufs[4] + at / PART * 2;
        limits[0] = limits[1] = 0;
        ru_kern_numbers_best()->limits((const float *)bufs[0] + at,
                                       at + PART < end ? PART : end - at, limits);
    }
}

static void bytes_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const dynamic_state *s = state;
    s->k->quantize((const float *)bufs[0] + begin, *(const float *)bufs[2],
                   (float)*(const uint8_t *)bufs[3], RU_U8, (uint8_t *)bufs[1] + begin,
                   end - begin);
}

static ru_status dynamic_run(void *state, void *const *bufs, const rui_run *run)
{
    const dynamic_state *s = state;
    const float *limits = bufs[4];
    float low = 0, high = 0, *scale = bufs[2];
    rui_kern_for(run, limits_parts, s, bufs, s->n, PART);
    for (int64_t k = 0; k < (s->n + PART - 1) / PART; k++) {
        low = limits[2 * k] < low ? limits[2 * k] : low;
        high = limits[2 * k + 1] > high ? limits[2 * k + 1] : high;
    }
    *scale = high > low ? (high - low) / 255.0F : 1;
    float zero = rintf(-low / *scale);
    *(uint8_t *)bufs[3] = (uint8_t)(zero < 255 ? zero : 255);
    rui_kern_for(run, bytes_part, s, bufs, s->n, PART);
    return RU_OK;
}

ru_status rui_lower_kern_dynamic_quant(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    const rui_layout *l = rui_standing(lo, n->in[0]);
    int64_t count = ru_type_count(x);
    if (count <= 0) {
        return RU_E_UNSUPPORTED;
    }
    l = l->opaque || l->padded ? rui_plain_as(lo, x, RU_F32) : rui_layout_as(lo, l, RU_F32);
    dynamic_state *s = rui_keep(lo, (int64_t)sizeof *s);
    const rui_layout *to = l != NULL ? rui_layout_as(lo, l, RU_U8) : NULL;
    if (s == NULL || to == NULL) {
        return rui_done(lo);
    }
    *s = (dynamic_state){.k = ru_kern_best(), .n = count};
    rui_buf bufs[5] = {rui_in(lo, n->in[0], l), rui_out(lo, n->out[0], to),
                       rui_out_plain(lo, n->out[1]), rui_out_plain(lo, n->out[2]),
                       rui_scratch(lo, (count + PART - 1) / PART * 2 * (int64_t)sizeof(float))};
    rui_emit(lo, &(rui_step){.kernel = "kern dynamic quantize",
                             .fn = dynamic_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 5});
    return rui_done(lo);
}
