/* Attention on the vector kernel: one (batch, head) after another, split over the threads. */
#include <math.h>
#include <string.h>

#include "exec/cpu/lower/lower_kern.h"

typedef struct attn_side {
    int64_t batch, head, row; /* strides in elements */
    int64_t offset;
} attn_side;

typedef struct attn_state {
    const ru_kern *k;
    ru_kern_attn proto;
    int64_t batch, heads;
    attn_side q, kk, v, y;
    int64_t mask_batch, mask_head;
    int64_t work; /* floats of one thread */
    bool grad, packed;
} attn_state;

/* bufs: q k v mask y stats dy dq dk dv work; the packed form has its one tensor at q, k and v. */
enum { A_Q, A_K, A_V, A_MASK, A_Y, A_STATS, A_DY, A_DQ, A_DK, A_DV, A_WORK, A_BUFS };

static void *place(const attn_state *s, void *base, const attn_side *side, int64_t b, int64_t h)
{
    int64_t at = side->offset + b * side->batch + h * side->head;
    return base == NULL ? NULL : (char *)base + at * ru_dtype_bytes(s->proto.t);
}

static void one_head(const attn_state *s, void *const *bufs, int64_t i, float *work)
{
    int64_t b = i / s->heads, h = i % s->heads;
    ru_kern_attn a = s->proto;
    a.q = place(s, bufs[A_Q], &s->q, b, h);
    a.k = place(s, bufs[A_K], &s->kk, b, h);
    a.v = place(s, bufs[A_V], &s->v, b, h);
    a.y = place(s, bufs[A_Y], &s->y, b, h);
    a.stats = bufs[A_STATS] == NULL ? NULL : (float *)bufs[A_STATS] + i * a.rows;
    a.work = work;
    if (bufs[A_MASK] != NULL) {
        a.mask = (const float *)bufs[A_MASK] + b * s->mask_batch + h * s->mask_head;
    }
    if (!s->grad) {
        s->k->attn(&a);
        return;
    }
    a.dy = place(s, bufs[A_DY], &s->y, b, h);
    a.dq = place(s, bufs[A_DQ], &s->q, b, h);
    a.dk = place(s, bufs[A_DK], &s->kk, b, h);
    a.dv = place(s, bufs[A_DV], &s->v, b, h);
    s->k->attn_grad(&a);
}

static void attn_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    for (int64_t i = begin; i < end; i++) {
        one_head(state, bufs, i, work);
    }
}

static ru_status attn_run(void *state, void *const *bufs, const rui_run *run)
{
    const attn_state *s = state;
    rui_kern_for_own(run, attn_part, s, bufs, s->batch * s->heads, 1, bufs[A_WORK],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

/* Strides of [B,T,H*D] ("bthd") or [B,H,T,D] ("bhtd"). */
static attn_side side_of(bool bhtd, int64_t heads, int64_t rows, int64_t size)
{
    return bhtd ? (attn_side){heads * rows * size, rows * size, size, 0}
                : (attn_side){rows * heads * size, size, heads * size, 0};
}

/* Additive mask, broadcast to [B,H,T,S]. */
static bool read_mask(rui_low *lo, const ru_node *n, uint32_t k, attn_state *s)
{
    if (!ru_node_has_in(n, k)) {
        return true;
    }
    const ru_type *t = rui_type(lo, n->in[k]);
    int64_t full[4] = {s->batch, s->heads, s->proto.rows, s->proto.keys}, step = 1, st[4] = {0};
    if (t->dtype != RU_F32 || t->rank > 4) {
        return false;
    }
    for (uint32_t d = t->rank; d-- > 0;) {
        uint32_t at = 4 - (t->rank - d);
        if (t->dims[d] != 1 && t->dims[d] != full[at]) {
            return false;
        }
        st[at] = t->dims[d] == 1 ? 0 : step;
        step *= t->dims[d];
    }
    s->mask_batch = st[0];
    s->mask_head = st[1];
    s->proto.mask_row = st[2];
    s->proto.mask_col = st[3];
    return true;
}

/* Sizes and strides from q's and k's types. False: not this kernel's business. */
static bool read_shapes(rui_low *lo, const ru_node *n, const ru_type *q, const ru_type *k,
                        attn_state *s)
{
    bool bhtd = strcmp(ru_node_str(n, RU_ATTR_layout, "bthd"), "bhtd") == 0;
    s->k = ru_kern_best();
    s->batch = q->dims[0];
    s->proto.causal = ru_node_int(n, RU_ATTR_causal, 0) != 0;
    if (s->packed) {
        s->heads = ru_node_int(n, RU_ATTR_heads, 1);
        s->proto.rows = s->proto.keys = q->dims[1];
        int64_t width = q->dims[2] / 3, d = width / s->heads, ld = 3 * width;
        s->proto.head_size = d;
        s->q = (attn_side){s->proto.rows * ld, d, ld, 0};
        s->kk = (attn_side){s->proto.rows * ld, d, ld, width};
        s->v = (attn_side){s->proto.rows * ld, d, ld, 2 * width};
        s->y = side_of(false, s->heads, s->proto.rows, d);
        return rui_type(lo, n->in[0])->rank == 3;
    }
    s->heads = bhtd ? q->dims[1] : ru_node_int(n, RU_ATTR_heads, 1);
    s->proto.rows = q->dims[bhtd ? 2 : 1];
    s->proto.keys = k->dims[bhtd ? 2 : 1];
    s->proto.head_size = bhtd ? q->dims[3] : q->dims[2] / s->heads;
    s->q = s->y = side_of(bhtd, s->heads, s->proto.rows, s->proto.head_size);
    s->kk = s->v = side_of(bhtd, s->heads, s->proto.keys, s->proto.head_size);
    return q->rank == (bhtd ? 4u : 3u) && k->rank == q->rank;
}

static void finish_state(attn_state *s, const ru_node *n, ru_dtype t)
{
    ru_kern_attn *p = &s->proto;
    p->t = p->t_kv = t;
    double usual = 1.0 / sqrt((double)(p->head_size > 0 ? p->head_size : 1));
    p->scale = (float)ru_node_float(n, RU_ATTR_scale, usual);
    p->ld_q = p->ld_dq = s->q.row;
    p->ld_k = p->ld_dk = s->kk.row;
    p->ld_v = p->ld_dv = s->v.row;
    p->ld_y = s->y.row;
    s->work = (s->k->attn_work(p, s->grad) + 1023) / 1024 * 1024;
}

static rui_buf work_of(rui_low *lo, const attn_state *s)
{
    return rui_scratch(lo, s->work * (int64_t)sizeof(float) * (int64_t)rui_threads(lo));
}

/* Everything of the same float dtype: bf16 when the first tensor stands so. */
static rui_buf in_as(rui_low *lo, ru_value_id v, ru_dtype t)
{
    return rui_in(lo, v, rui_plain_as(lo, rui_type(lo, v), t));
}

static rui_buf out_as(rui_low *lo, const ru_node *n, uint32_t k, ru_dtype t)
{
    return ru_node_has_out(n, k)
               ? rui_out(lo, n->out[k], rui_plain_as(lo, rui_type(lo, n->out[k]), t))
               : (rui_buf){0};
}

static attn_state *attn_new(rui_low *lo, const ru_node *n, ru_value_id q, ru_value_id k,
                            bool packed, bool grad, uint32_t mask_in, ru_dtype t)
{
    attn_state s = {.packed = packed, .grad = grad};
    if (!rui_kern_float(t) || !read_shapes(lo, n, rui_type(lo, q), rui_type(lo, k), &s) ||
        !read_mask(lo, n, mask_in, &s) || s.proto.keys == 0 || s.proto.head_size == 0 ||
        ru_type_count(rui_type(lo, q)) == 0) {
        return NULL;
    }
    finish_state(&s, n, t);
    attn_state *kept = rui_keep(lo, (int64_t)sizeof s);
    if (kept != NULL) {
        *kept = s;
    }
    return kept;
}

ru_status rui_lower_kern_attention(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool packed = n->op == RU_OP_AttentionQkv;
    ru_dtype t = rui_kern_dtype(lo, n->in[0]);
    uint32_t mask = packed ? 1 : 3;
    attn_state *s = attn_new(lo, n, n->in[0], n->in[packed ? 0 : 1], packed, false, mask, t);
    if (s == NULL) {
        return rui_done(lo) == RU_OK ? RU_E_UNSUPPORTED : rui_done(lo);
    }
    rui_buf b[A_BUFS] = {{0}};
    b[A_Q] = in_as(lo, n->in[0], t);
    b[A_K] = packed ? b[A_Q] : in_as(lo, n->in[1], t);
    b[A_V] = packed ? b[A_Q] : in_as(lo, n->in[2], t);
    b[A_MASK] = ru_node_has_in(n, mask) ? rui_in_plain(lo, n->in[mask]) : (rui_buf){0};
    b[A_Y] = out_as(lo, n, 0, t);
    b[A_STATS] = out_as(lo, n, 1, RU_F32);
    b[A_WORK] = work_of(lo, s);
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern attention", .fn = attn_run, .state = s, .bufs = b, .n_bufs = A_BUFS});
    return rui_done(lo);
}

/* AttentionGrad(dy, q, k, v, y, stats, mask?), AttentionQkvGrad(dy, qkv, y, stats, mask?) */
ru_status rui_lower_kern_attention_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool packed = n->op == RU_OP_AttentionQkvGrad;
    ru_dtype t = rui_kern_dtype(lo, n->in[1]);
    uint32_t y = packed ? 2 : 4;
    attn_state *s = attn_new(lo, n, n->in[1], n->in[packed ? 1 : 2], packed, true, y + 2, t);
    if (s == NULL) {
        return rui_done(lo) == RU_OK ? RU_E_UNSUPPORTED : rui_done(lo);
    }
    rui_buf b[A_BUFS] = {{0}};
    b[A_DY] = in_as(lo, n->in[0], t);
    b[A_Q] = in_as(lo, n->in[1], t);
    b[A_K] = packed ? b[A_Q] : in_as(lo, n->in[2], t);
    b[A_V] = packed ? b[A_Q] : in_as(lo, n->in[3], t);
    b[A_Y] = in_as(lo, n->in[y], t);
    b[A_STATS] = in_as(lo, n->in[y + 1], RU_F32);
    b[A_MASK] = ru_node_has_in(n, y + 2) ? rui_in_plain(lo, n->in[y + 2]) : (rui_buf){0};
    for (uint32_t k = 0; k < 3; k++) {
        ru_value_id like = n->in[packed ? 1 : 1 + k];
        b[A_DQ + k] = packed && k > 0 ? b[A_DQ] : out_as(lo, n, packed ? 0 : k, t);
        if (b[A_DQ + k].v == 0) {
            b[A_DQ + k] = rui_scratch(lo, ru_type_count(rui_type(lo, like)) * ru_dtype_bytes(t));
        }
    }
    b[A_WORK] = work_of(lo, s);
    rui_emit(lo, &(rui_step){.kernel = "kern attention grad",
                             .fn = attn_run,
                             .state = s,
                             .bufs = b,
                             .n_bufs = A_BUFS});
    return rui_done(lo);
}
