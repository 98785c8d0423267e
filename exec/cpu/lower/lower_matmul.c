/* Products: Gemm and MatMul onto oneDNN's matmul, transposes as strides, bias and activation fused.
 *
 * Weights that never change are packed once into the layout the kernel likes; others are read where
 * they stand (packing per step costs more than it gives below 16 rows: 212 against 238 GFLOP/s at
 * 16x2048x2048, equal at 128x512x784).
 *
 * With AVX2 a product of a long transposed left side, as gradients of weights have, is ours: oneDNN
 * walks down its columns (1024 x 256 and 256 x 1024 over 1024: 40 and 45 GFLOP/s, ours 83 and 82;
 * one Zen 3 core; other products 85 to 93 with either). */
#include <string.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_kern.h"

enum { MM_RANK_MAX = 6 };

typedef struct mm_call {
    int nd; /* dims of a, b and y as oneDNN sees them */
    int64_t a_dims[MM_RANK_MAX], a_str[MM_RANK_MAX];
    int64_t b_dims[MM_RANK_MAX], b_str[MM_RANK_MAX];
    int64_t y_dims[MM_RANK_MAX];
    int64_t bias_dims[MM_RANK_MAX];
    ru_value_id a, b, bias, y;
    double alpha, beta;
    ru_dtype store; /* dtype of operands and result in memory */
} mm_call;

static void strides_of(int nd, const int64_t *dims, int64_t *strides)
{
    int64_t s = 1;
    for (int d = nd - 1; d >= 0; d--) {
        strides[d] = s;
        s *= dims[d];
    }
}

static void transpose_last(int nd, int64_t *dims, int64_t *strides)
{
    int64_t d = dims[nd - 1];
    int64_t s = strides[nd - 1];
    dims[nd - 1] = dims[nd - 2];
    strides[nd - 1] = strides[nd - 2];
    dims[nd - 2] = d;
    strides[nd - 2] = s;
}

/* A vector is a row on the left and a column on the right; the result has no dim for it. Its dims
 * with them. */
static ru_type with_rows(const ru_type *y, bool row, bool column)
{
    ru_type t = *y;
    if (column) {
        t.dims[t.rank++] = 1;
    }
    if (row) {
        t.dims[t.rank] = t.rank > 0 ? t.dims[t.rank - 1] : 1;
        t.dims[t.rank > 0 ? t.rank - 1 : 0] = 1;
        t.rank++;
    }
    return t;
}

/* dims of an operand, filled with leading ones up to nd. */
static void lead_dims(const ru_type *t, int nd, int64_t *dims)
{
    int lead = nd - (int)t->rank;
    for (int d = 0; d < nd; d++) {
        dims[d] = d < lead ? 1 : t->dims[d - lead];
    }
}

static bool float_types(const rui_low *lo, const ru_node *n)
{
    const ru_graph *g = rui_graph(lo);
    ru_dtype t = g->values[n->out[0].v].type.dtype;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const ru_type *ti = &g->values[n->in[k].v].type;
        if (n->in[k].v != 0 && (ti->dtype != t || ru_type_count(ti) <= 0)) {
            return false;
        }
    }
    return t == RU_F32 || t == RU_BF16;
}

static ru_status gemm_call(rui_low *lo, const ru_node *n, mm_call *c)
{
    const ru_graph *g = rui_graph(lo);
    c->nd = 2;
    lead_dims(&g->values[n->in[0].v].type, 2, c->a_dims);
    lead_dims(&g->values[n->in[1].v].type, 2, c->b_dims);
    lead_dims(&g->values[n->out[0].v].type, 2, c->y_dims);
    strides_of(2, c->a_dims, c->a_str);
    strides_of(2, c->b_dims, c->b_str);
    c->alpha = ru_node_float(n, RU_ATTR_alpha, 1.0);
    c->beta = ru_node_float(n, RU_ATTR_beta, 1.0);
    if (ru_node_has_in(n, 2) && c->beta != 0.0) {
        c->bias = n->in[2];
        if (c->beta != 1.0 || g->values[n->in[2].v].type.rank > 2) {
            return RU_E_UNSUPPORTED;
        }
        lead_dims(&g->values[n->in[2].v].type, 2, c->bias_dims);
    }
    return RU_OK;
}

/* A product of many rows with one matrix is two-dimensional whatever the leading dims are. */
static ru_status matmul_call(rui_low *lo, const ru_node *n, mm_call *c)
{
    const ru_graph *g = rui_graph(lo);
    const ru_type *ta = &g->values[n->in[0].v].type, *tb = &g->values[n->in[1].v].type;
    bool row = ta->rank == 1, column = tb->rank == 1, vector = row || column;
    const ru_type left = with_rows(ta, row, false), right = with_rows(tb, false, column);
    const ru_type full = with_rows(&g->values[n->out[0].v].type, row, column);
    const ru_type *a = &left, *b = &right, *y = &full;
    if (a->rank < 2 || b->rank < 2 || a->rank > MM_RANK_MAX || b->rank > MM_RANK_MAX ||
        (vector && (ru_node_has_in(n, 2) || ru_node_has_in(n, 3) || n->n_attrs > 0))) {
        return RU_E_UNSUPPORTED;
    }
    c->alpha = ru_node_float(n, RU_ATTR_alpha, 1.0);
    bool flat = b->rank == 2 && ru_node_int(n, RU_ATTR_transA, 0) == 0;
    if (flat) {
        int64_t k = a->dims[a->rank - 1];
        c->nd = 2;
        c->a_dims[0] = ru_type_count(a) / k;
        c->a_dims[1] = k;
        c->b_dims[0] = b->dims[0];
        c->b_dims[1] = b->dims[1];
        c->y_dims[0] = c->a_dims[0];
        c->y_dims[1] = y->dims[y->rank - 1];
    } else {
        c->nd = (int)y->rank;
        lead_dims(a, c->nd, c->a_dims);
        lead_dims(b, c->nd, c->b_dims);
        lead_dims(y, c->nd, c->y_dims);
    }
    strides_of(c->nd, c->a_dims, c->a_str);
    strides_of(c->nd, c->b_dims, c->b_str);
    if (ru_node_has_in(n, 2)) { /* bias added by the fusion pass: [columns] */
        c->bias = n->in[2];
        if (g->values[n->in[2].v].type.rank > 1) {
            return RU_E_UNSUPPORTED;
        }
        for (int d = 0; d < c->nd; d++) {
            c->bias_dims[d] = 1;
        }
        c->bias_dims[c->nd - 1] = ru_type_count(&g->values[n->in[2].v].type);
    }
    return RU_OK;
}

static ru_status mm_call_of(rui_low *lo, const ru_node *n, mm_call *c)
{
    if (!float_types(lo, n) || ru_type_count(&rui_graph(lo)->values[n->out[0].v].type) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    c->a = n->in[0];
    c->b = n->in[1];
    c->y = n->out[0];
    RU_TRY(n->op == RU_OP_Gemm ? gemm_call(lo, n, c) : matmul_call(lo, n, c));
    if (ru_node_int(n, RU_ATTR_transA, 0) != 0) {
        transpose_last(c->nd, c->a_dims, c->a_str);
    }
    if (ru_node_int(n, RU_ATTR_transB, 0) != 0) {
        transpose_last(c->nd, c->b_dims, c->b_str);
    }
    c->store = rui_store_dtype(lo, c->y);
    return RU_OK;
}

/* Gradients of weights stay f32 on the bf16 path; everything else is stored as bf16. */
static ru_dtype result_dtype(const rui_low *lo, const mm_call *c)
{
    const ru_value *y = &rui_graph(lo)->values[c->y.v];
    return y->role == RU_ROLE_GRAD ? y->type.dtype : c->store;
}

static dnnl_primitive_desc_t mm_pd(rui_low *lo, const mm_call *c, bool any, const rui_post *post)
{
    dnnl_data_type_t dt = rui_dnnl_type(c->store);
    dnnl_memory_desc_t a = rui_md_strided(lo, c->nd, c->a_dims, c->a_str, dt);
    dnnl_memory_desc_t b = any ? rui_md_any(lo, c->nd, c->b_dims, dt)
                               : rui_md_strided(lo, c->nd, c->b_dims, c->b_str, dt);
    dnnl_memory_desc_t y = rui_md_plain(lo, c->nd, c->y_dims, rui_dnnl_type(result_dtype(lo, c)));
    dnnl_memory_desc_t bias = rui_md_plain(lo, c->nd, c->bias_dims, dnnl_f32);
    dnnl_matmul_desc_t d;
    dnnl_status_t st = rui_nn(lo)->matmul_desc_init(&d, &a, &b, c->bias.v != 0 ? &bias : NULL, &y);
    return rui_pd_fast(lo, rui_pd_make(lo, st, &d, post));
}

/* The plain operand under its own dims: matmul's strides describe the transpose. */
static void mm_in(rui_prim *p, int arg, ru_value_id v, ru_dtype dtype)
{
    rui_low *lo = p->lo;
    const rui_layout *plain = rui_plain_as(lo, &rui_graph(lo)->values[v.v].type, dtype);
    rui_prim_buf(p, arg, rui_in(lo, v, plain), NULL);
}

static bool frozen_matrix(rui_low *lo, const mm_call *c)
{
    const ru_value *b = &rui_graph(lo)->values[c->b.v];
    return c->nd == 2 && b->type.rank == 2 &&
           (b->kind == RU_VALUE_CONST || (b->kind == RU_VALUE_STATE && rui_inference(lo)));
}

/* In how many runs: each has rows enough to hide that it reads the weights again. */
static uint32_t times_of(rui_low *lo, const mm_call *c)
{
    enum { ROWS = 128 };
    const ru_graph *g = rui_graph(lo);
    const ru_type *x = g->n_inputs > 0 ? rui_type(lo, g->inputs[0]) : NULL;
    int64_t n = x != NULL && x->rank > 0 && x->dims[0] > 0 ? x->dims[0] : 1;
    int64_t times = n / rui_part_images(lo, n), rows = c->y_dims[0];
    return rows % times == 0 && rows / times >= ROWS ? (uint32_t)times : 1;
}

ru_status rui_lower_dnnl_matmul(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    mm_call c = {0};
    rui_post post = {0};
    RU_TRY(mm_call_of(lo, n, &c));
    RU_TRY(rui_post_of_node(lo, n, &post));
    post.scaled = c.alpha != 1.0;
    post.scale = (float)c.alpha;
    bool pack = frozen_matrix(lo, &c);
    post.sum = ru_node_has_in(n, 3);
    if (post.scaled && c.bias.v != 0) {
        return RU_E_UNSUPPORTED; /* the scale would reach the bias */
    }
    bool rows = pack && c.a_str[1] == 1 && c.bias_dims[0] <= 1;
    uint32_t times = rows ? times_of(lo, &c) : 1;
    c.a_dims[0] /= times;
    c.y_dims[0] /= times;
    dnnl_primitive_desc_t pd = mm_pd(lo, &c, pack, &post);
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_data_type_t made = rui_pd_md(lo, pd, DNNL_ARG_DST).data_type;
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    p.times = times;
    mm_in(&p, DNNL_ARG_SRC, c.a, c.store);
    if (pack) {
        dnnl_memory_desc_t b = rui_pd_md(lo, pd, DNNL_ARG_WEIGHTS);
        dnnl_memory_desc_t given = rui_md_strided(
            lo, c.nd, c.b_dims, c.b_str, rui_dnnl_type(rui_graph(lo)->values[c.b.v].type.dtype));
        rui_prim_buf(&p, DNNL_ARG_WEIGHTS, rui_in_as(lo, c.b, &given, &b), NULL);
    } else {
        mm_in(&p, DNNL_ARG_WEIGHTS, c.b, c.store);
    }
    rui_prim_in(&p, DNNL_ARG_BIAS, c.bias, NULL);
    const rui_layout *out =
        rui_plain_as(lo, &rui_graph(lo)->values[c.y.v].type, rui_dnnl_dtype(made));
    rui_buf dst = post.sum ? rui_out_sum(lo, c.y, out, n->in[3]) : rui_out(lo, c.y, out);
    rui_prim_buf(&p, DNNL_ARG_DST, dst, NULL);
    return rui_prim_emit(&p, "matmul");
}

/* Our own product, for what oneDNN does slowly with AVX2. */
static bool product_pays(rui_low *lo, const mm_call *c, const rui_post *post)
{
    bool relu = !post->has_act || (post->act == dnnl_eltwise_relu && post->alpha == 0.0f);
    bool bias = c->bias.v == 0 || (c->bias_dims[0] == 1 && c->bias_dims[1] == c->y_dims[1]);
    return c->nd == 2 && c->store == RU_F32 && result_dtype(lo, c) == RU_F32 && relu && bias &&
           rui_product_pays(c->y_dims[0], c->y_dims[1], c->a_dims[1], c->a_str[0]);
}

ru_status rui_lower_kern_product(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    mm_call c = {0};
    rui_post post = {0};
    RU_TRY(mm_call_of(lo, n, &c));
    RU_TRY(rui_post_of_node(lo, n, &post));
    if (!product_pays(lo, &c, &post)) {
        return RU_E_UNSUPPORTED;
    }
    ru_kern_product g = {.m = c.y_dims[0],
                         .n = c.y_dims[1],
                         .k = c.a_dims[1],
                         .a_row = c.a_str[0],
                         .a_col = c.a_str[1],
                         .b_row = c.b_str[0],
                         .b_col = c.b_str[1],
                         .c_row = c.y_dims[1],
                         .alpha = (float)c.alpha,
                         .add = ru_node_has_in(n, 3),
                         .relu = post.has_act};
    const rui_layout *out = rui_plain_as(lo, rui_type(lo, c.y), RU_F32);
    rui_buf a = rui_in(lo, c.a, rui_plain_as(lo, rui_type(lo, c.a), RU_F32));
    rui_buf b = rui_in(lo, c.b, rui_plain_as(lo, rui_type(lo, c.b), RU_F32));
    rui_buf bias = c.bias.v != 0 ? rui_in_plain(lo, c.bias) : (rui_buf){0};
    rui_buf y = g.add ? rui_out_sum(lo, c.y, out, n->in[3]) : rui_out(lo, c.y, out);
    return rui_product_emit(lo, &g, a, b, bias, y);
}

/* -- weights packed once for executables of one sample and of some -------------------------------
 * oneDNN packs for itself, takes twice as long for one row, and as much memory for its kernels of
 * each number of rows as a small layer for its weights. An MLP 784-256-10 with 1, 2, 4, 8, 16 and
 * 32 rows takes 5.3, 6.7, 7.8, 13.6, 26.5 and 52.8 us; it took 6.7 (weights as they came, beside
 * those that oneDNN had packed), 7.4, 7.8, 13.8, 26.0 and 53.4 (one Zen 5 core, medians). */

typedef struct samples_state {
    const ru_kern *k;
    ru_kern_gemm g;
    bool relu;
} samples_state;

enum { SAMPLES_A, SAMPLES_B, SAMPLES_BIAS, SAMPLES_Y, SAMPLES_WORK, SAMPLES_BUFS };

static ru_status samples_pack(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const samples_state *s = state;
    s->k->gemm_pack(bufs[0], s->g.b_row, s->g.b_col, s->g.k, s->g.n, bufs[1]);
    return RU_OK;
}

static ru_status samples_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const samples_state *s = state;
    ru_kern_gemm g = s->g;
    g.a = bufs[SAMPLES_A];
    g.packed_b = bufs[SAMPLES_B];
    g.c = bufs[SAMPLES_Y];
    g.work = bufs[SAMPLES_WORK];
    for (int64_t i = 0; g.add && i < g.m; i++) {
        memcpy(g.c + i * g.n, bufs[SAMPLES_BIAS], (size_t)g.n * sizeof *g.c);
    }
    s->k->gemm(&g);
    if (s->relu) {
        s->k->map1(RU_KERN_MAP1_Relu, 0, 0, RU_F32, g.c, g.c, g.m * g.n);
    }
    return RU_OK;
}

/* A row of each sample, of at most SAMPLES, and weights of at most 4 MB: what was measured. Panels
 * have 32 columns, so that packed weights of a few columns are mostly zeros: kept small. */
static bool samples_pay(rui_low *lo, const mm_call *c, const rui_post *post, const ru_node *n)
{
    enum { SAMPLES = 32, MOST = 1 << 20, LEAST = 32, SMALL = 1 << 14 };
    const ru_graph *g = rui_graph(lo);
    const ru_type *x = g->n_inputs > 0 ? rui_type(lo, g->inputs[0]) : NULL;
    const int64_t floats = ru_kern_best()->gemm_pack_floats(c->a_dims[1], c->y_dims[1]);
    bool some = rui_options(lo)->once || rui_options(lo)->share != NULL;
    bool each = x != NULL && x->rank > 0 && x->dims[0] == c->y_dims[0] && x->dims[0] <= SAMPLES;
    bool relu = !post->has_act || (post->act == dnnl_eltwise_relu && post->alpha == 0.0f);
    bool bias = c->bias.v == 0 || (c->bias_dims[0] == 1 && c->bias_dims[1] == c->y_dims[1]);
    return some && each && relu && bias && c->nd == 2 && c->store == RU_F32 &&
           g->values[c->b.v].kind == RU_VALUE_CONST && g->values[c->b.v].type.rank == 2 &&
           !ru_node_has_in(n, 3) && c->alpha == 1.0 && c->a_str[1] == 1 && c->a_dims[1] >= LEAST &&
           c->a_dims[1] * c->y_dims[1] <= MOST && c->y_dims[1] > 1 &&
           (floats <= SMALL || floats <= 4 * c->a_dims[1] * c->y_dims[1]) && rui_threads(lo) == 1 &&
           ru_kern_at(RU_KERN_AVX512) != NULL;
}

ru_status rui_lower_kern_samples(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    mm_call c = {0};
    rui_post post = {0};
    RU_TRY(mm_call_of(lo, n, &c));
    RU_TRY(rui_post_of_node(lo, n, &post));
    samples_state *s = samples_pay(lo, &c, &post, n) ? rui_keep(lo, (int64_t)sizeof *s) : NULL;
    if (s == NULL) {
        return rui_done(lo) == RU_OK ? RU_E_UNSUPPORTED : rui_done(lo);
    }
    *s = (samples_state){.k = ru_kern_best(),
                         .g = {.m = c.y_dims[0],
                               .n = c.y_dims[1],
                               .k = c.a_dims[1],
                               .a_row = c.a_str[0],
                               .a_col = c.a_str[1],
                               .b_row = c.b_str[0],
                               .b_col = c.b_str[1],
                               .c_row = c.y_dims[1],
                               .alpha = 1.0f,
                               .add = c.bias.v != 0,
                               .thin = c.y_dims[0] == 1},
                         .relu = post.has_act};
    const int64_t of[] = {s->g.k, s->g.n, s->g.b_row, s->g.b_col};
    int64_t floats = s->k->gemm_pack_floats(s->g.k, s->g.n);
    rui_buf bufs[SAMPLES_BUFS] = {
        [SAMPLES_A] = rui_in_plain(lo, c.a),
        [SAMPLES_B] = rui_buf_new(lo, RUI_BUF_PACKED, floats * (int64_t)sizeof(float)),
        [SAMPLES_BIAS] = c.bias.v != 0 ? rui_in_plain(lo, c.bias) : (rui_buf){0}};
    bufs[SAMPLES_Y] = rui_out_plain(lo, n->out[0]);
    bufs[SAMPLES_WORK] = rui_scratch(lo, s->k->gemm_work(s->g.m, 0, s->g.k) *
                                             (int64_t)sizeof(float)); /* B is packed */
    rui_step pack = {.kernel = "kern samples pack",
                     .fn = samples_pack,
                     .state = s,
                     .bufs = (rui_buf[]){rui_in_plain(lo, c.b), bufs[SAMPLES_B]},
                     .n_bufs = 2,
                     .recipe = ru_hash_bytes(of, sizeof of, 0) | 1};
    rui_emit_to(lo, &lo->prep, &pack, 0);
    rui_emit(lo, &(rui_step){.kernel = "kern samples",
                             .fn = samples_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = SAMPLES_BUFS});
    return rui_done(lo);
}

/* -- sums of few products: what it takes to store the result is all -------------------------------
 * One core with AVX-512, 5000 x 5000 over 3: ours 12 ms, oneDNN's 32. */

typedef struct outer_state {
    const ru_kern *k;
    ru_kern_gemm g;
    int64_t batches, a_step, b_step; /* steps of 0: all share it */
    int64_t work;                    /* floats of one thread */
} outer_state;

/* Rows of all batches. */
static void outer_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const outer_state *s = state;
    const int64_t m = s->g.m;
    for (int64_t i = begin, next; i < end; i = next) {
        const int64_t batch = i / m;
        next = (batch + 1) * m < end ? (batch + 1) * m : end;
        ru_kern_gemm g = s->g;
        g.m = next - i;
        g.a = (const float *)bufs[0] + batch * s->a_step + i % m * g.a_row;
        g.b = (const float *)bufs[1] + batch * s->b_step;
        g.c = (float *)bufs[2] + i * g.c_row;
        g.work = own;
        s->k->gemm(&g);
    }
}

static ru_status outer_run(void *state, void *const *bufs, const rui_run *run)
{
    const outer_state *s = state;
    int64_t grain = (rui_kern_grain(s->g.n * s->g.k) + 13) / 14 * 14;
    rui_kern_for_own(run, outer_part, s, bufs, s->batches * s->g.m, grain, bufs[3],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

static bool outer_pays(rui_low *lo, const ru_node *n, const mm_call *c, const rui_post *post)
{
    enum { FEW = 8, WIDE = 64, LARGE = 1 << 16 };
    const int64_t *rows = c->a_dims + c->nd - 2, *made = c->y_dims + c->nd - 2;
    return (c->nd == 2 || c->nd == 3) && rows[1] > 0 && rows[1] <= FEW && made[1] >= WIDE &&
           made[0] >= WIDE && made[0] * made[1] >= LARGE && c->bias.v == 0 && !post->has_act &&
           !ru_node_has_in(n, 3) && c->store == RU_F32 && result_dtype(lo, c) == RU_F32 &&
           ru_kern_at(RU_KERN_AVX512) != NULL;
}

ru_status rui_lower_kern_outer(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    mm_call c = {0};
    rui_post post = {0};
    RU_TRY(mm_call_of(lo, n, &c));
    RU_TRY(rui_post_of_node(lo, n, &post));
    if (!outer_pays(lo, n, &c, &post)) {
        return RU_E_UNSUPPORTED;
    }
    outer_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    const int d = c.nd - 2; /* of the rows */
    *s = (outer_state){.k = ru_kern_best(),
                       .g = {.m = c.y_dims[d],
                             .n = c.y_dims[d + 1],
                             .k = c.a_dims[d + 1],
                             .a_row = c.a_str[d],
                             .a_col = c.a_str[d + 1],
                             .b_row = c.b_str[d],
                             .b_col = c.b_str[d + 1],
                             .c_row = c.y_dims[d + 1],
                             .alpha = (float)c.alpha},
                       .batches = d > 0 ? c.y_dims[0] : 1,
                       .a_step = d > 0 && c.a_dims[0] > 1 ? c.a_str[0] : 0,
                       .b_step = d > 0 && c.b_dims[0] > 1 ? c.b_str[0] : 0};
    s->work = (s->k->gemm_work(s->g.m, s->g.n, s->g.k) + 15) / 16 * 16;
    rui_buf bufs[4] = {rui_in_plain(lo, c.a), rui_in_plain(lo, c.b)};
    bufs[2] = rui_out_plain(lo, c.y);
    bufs[3] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern outer", .fn = outer_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}
