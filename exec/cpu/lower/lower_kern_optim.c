/* Optimizer steps: all update nodes of one kind and one set of attributes become one parallel loop
 * over a list of segments, each in the layout its parameter stands in. Gradient norm and clipping.
 */
#include <math.h>
#include <string.h>

#include "exec/cpu/low/optim.h"
#include "exec/update.h"

enum { NORM_BLOCK = 16384 }; /* elements of one partial sum of the gradient norm: fixed */

static ru_status optim_bind(void *state, void *const *bufs, ru_err *err)
{
    (void)err;
    rui_optim *s = state;
    for (uint32_t i = 0; i < s->n; i++) {
        void *const *b = bufs + RUI_OPTIM_HEAD + i * RUI_OPTIM_PER;
        s->segs[i] = (ru_kern_segment){.p = b[0],
                                       .g = b[1],
                                       .m = b[2],
                                       .v = b[3],
                                       .p_out = b[4],
                                       .m_out = b[5],
                                       .v_out = b[6],
                                       .n = s->starts[i + 1] - s->starts[i]};
    }
    return RU_OK;
}

void rui_optim_part(const rui_optim *s, uint32_t i, int64_t a, int64_t b)
{
    if (s->op == RU_OP_SgdUpdate) {
        s->k->sgd(&s->now.sgd, &s->segs[i], a, b);
    } else if (s->op == RU_OP_AdamUpdate) {
        s->k->adam(&s->now.adam, &s->segs[i], a, b);
    } else if (s->op == RU_OP_RmspropUpdate) {
        s->k->rmsprop(&s->now.rmsprop, &s->segs[i], a, b);
    } else if (s->op == RU_OP_LionUpdate) {
        s->k->lion(&s->now.lion, &s->segs[i], a, b);
    } else {
        s->k->adagrad(s->now.adagrad.lr, s->now.adagrad.gscale, (float)s->weight_decay,
                      (float)s->epsilon, &s->segs[i], a, b);
    }
}

static void optim_range(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    (void)bufs;
    const rui_optim *s = state;
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t a = begin > s->starts[i] ? begin : s->starts[i];
        int64_t b = end < s->starts[i + 1] ? end : s->starts[i + 1];
        if (a < b) {
            rui_optim_part(s, i, a - s->starts[i], b - s->starts[i]);
        }
    }
}

void rui_optim_scalars(rui_optim *s, void *const *bufs)
{
    float lr = *(const float *)bufs[0];
    float gscale = bufs[1] == NULL ? 1.0f : *(const float *)bufs[1];
    if (s->op == RU_OP_SgdUpdate) {
        s->now.sgd = (ru_kern_sgd){.lr = lr,
                                   .gscale = gscale,
                                   .decay = (float)s->weight_decay,
                                   .momentum = (float)s->momentum,
                                   .nesterov = s->nesterov,
                                   .has_momentum = s->has_slot};
    } else if (s->op == RU_OP_AdamUpdate) {
        s->now.adam = ru_kern_adam_step((double)lr, (double)gscale, s->beta1, s->beta2, s->epsilon,
                                        s->weight_decay, s->decoupled, *(const int64_t *)bufs[2]);
    } else if (s->op == RU_OP_RmspropUpdate) {
        s->now.rmsprop = (ru_kern_rmsprop){.lr = lr,
                                           .gscale = gscale,
                                           .decay = (float)s->weight_decay,
                                           .alpha = (float)s->alpha,
                                           .epsilon = (float)s->epsilon,
                                           .momentum = (float)s->momentum,
                                           .has_momentum = s->segs[0].v != NULL};
    } else if (s->op == RU_OP_LionUpdate) {
        s->now.lion = (ru_kern_lion){.lr = lr,
                                     .gscale = gscale,
                                     .beta1 = (float)s->beta1,
                                     .beta2 = (float)s->beta2,
                                     .shrink = (float)(1.0 - (double)lr * s->weight_decay)};
    } else {
        s->now.adagrad.lr = lr;
        s->now.adagrad.gscale = gscale;
    }
}

ru_status rui_optim_run(void *state, void *const *bufs, const rui_run *run)
{
    rui_optim *s = state;
    rui_optim_scalars(s, bufs);
    rui_kern_for(run, optim_range, s, bufs, s->starts[s->n], 4096);
    return RU_OK;
}

/* Where the operands stand in a node: SgdUpdate(lr, gscale?, p, g, m?), AdamUpdate(lr, gscale?,
 * step, p, g, m, v), AdagradUpdate(lr, gscale?, p, g, s), RmspropUpdate(lr, gscale?, p, g, s, m?),
 * LionUpdate(lr, gscale?, p, g, m). */
static uint32_t first_operand(const ru_node *n)
{
    return n->op == RU_OP_AdamUpdate ? 3 : 2;
}

static ru_value_id in_or_none(const ru_node *n, uint32_t k)
{
    return ru_node_has_in(n, k) ? n->in[k] : (ru_value_id){0};
}

static bool same_attrs(const ru_node *a, const ru_node *b)
{
    static const ru_attr_key keys[] = {RU_ATTR_momentum, RU_ATTR_alpha,   RU_ATTR_beta1,
                                       RU_ATTR_beta2,    RU_ATTR_epsilon, RU_ATTR_weight_decay};
    bool same = ru_node_int(a, RU_ATTR_nesterov, 0) == ru_node_int(b, RU_ATTR_nesterov, 0) &&
                ru_node_int(a, RU_ATTR_decoupled, 0) == ru_node_int(b, RU_ATTR_decoupled, 0);
    for (uint32_t i = 0; same && i < RU_ARRAY_LEN(keys); i++) {
        same = !(ru_node_float(a, keys[i], 0.0) < ru_node_float(b, keys[i], 0.0)) &&
               !(ru_node_float(a, keys[i], 0.0) > ru_node_float(b, keys[i], 0.0));
    }
    return same;
}

static bool takes(rui_low *lo, const ru_node *n)
{
    uint32_t p = first_operand(n);
    for (uint32_t k = p; k < n->n_in; k++) {
        if (ru_node_has_in(n, k) && rui_type(lo, n->in[k])->dtype != RU_F32) {
            return false;
        }
    }
    bool slots = n->op == RU_OP_SgdUpdate || (ru_node_has_in(n, p + 2) && ru_node_has_out(n, 1));
    slots = slots &&
            (n->op != RU_OP_RmspropUpdate || ru_node_has_in(n, p + 3) == ru_node_has_out(n, 2));
    return ru_node_has_out(n, 0) && slots && rui_type(lo, n->in[0])->dtype == RU_F32;
}

/* May `n` be done together with `first`, at first's place? */
static bool joins(rui_low *lo, const ru_node *first, const ru_node *n)
{
    const ru_graph *g = rui_graph(lo);
    if (n->op != first->op || rui_claimed(lo, n) || !takes(lo, n) || !same_attrs(first, n)) {
        return false;
    }
    uint32_t p = first_operand(n), here = (uint32_t)(first - g->nodes);
    for (uint32_t k = 0; k < p; k++) {
        if (in_or_none(n, k).v != in_or_none(first, k).v) {
            return false;
        }
    }
    for (uint32_t k = p; k < n->n_in; k++) {
        if (g->values[n->in[k].v].producer.v >= here) {
            return false;
        }
    }
    bool same = true; /* the same slots */
    for (uint32_t k = p + 2; k < p + 4; k++) {
        same = same && (in_or_none(n, k).v != 0) == (in_or_none(first, k).v != 0);
    }
    return same;
}

static int64_t add_segment(rui_low *lo, const ru_node *n, rui_buf *b)
{
    uint32_t p = first_operand(n);
    ru_value_id pv = n->in[p];
    const rui_layout *l = rui_standing_as(lo, pv, RU_F32);
    if (l->opaque) {
        l = rui_plain(lo, rui_type(lo, pv));
    }
    for (uint32_t k = 0; k < 4; k++) {
        ru_value_id v = in_or_none(n, p + k);
        b[k] = v.v == 0 ? (rui_buf){0} : rui_in(lo, v, l);
    }
    static const uint32_t over[3] = {0, 2, 3}; /* p', s1', s2' take the place of p, s1, s2 */
    for (uint32_t k = 0; k < 3; k++) {
        b[4 + k] = ru_node_has_out(n, k) && b[over[k]].v != 0
                       ? rui_out_over(lo, n->out[k], l, b[over[k]])
                       : (rui_buf){0};
    }
    return l->flat_n;
}

ru_status rui_lower_kern_optim(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    if (!takes(lo, n)) {
        return RU_E_UNSUPPORTED;
    }
    const ru_graph *g = rui_graph(lo);
    uint32_t count = 1, here = (uint32_t)(n - g->nodes);
    for (uint32_t i = here + 1; i < g->n_nodes; i++) {
        count += joins(lo, n, &g->nodes[i]) ? 1 : 0;
    }
    rui_optim *s = rui_keep(lo, (int64_t)sizeof *s);
    rui_buf *bufs =
        rui_keep(lo, (RUI_OPTIM_HEAD + (int64_t)count * RUI_OPTIM_PER) * (int64_t)sizeof *bufs);
    ru_kern_segment *segs = rui_keep(lo, count * (int64_t)sizeof *segs);
    int64_t *starts = rui_keep(lo, (count + 1) * (int64_t)sizeof *starts);
    if (s == NULL || bufs == NULL || segs == NULL || starts == NULL) {
        return rui_done(lo);
    }
    *s = (rui_optim){
        .k = ru_kern_best(),
        .op = n->op,
        .momentum = ru_node_float(n, RU_ATTR_momentum, 0.0),
        .alpha = ru_node_float(n, RU_ATTR_alpha, 0.99),
        .beta1 = ru_node_float(n, RU_ATTR_beta1, 0.9),
        .beta2 = ru_node_float(n, RU_ATTR_beta2, n->op == RU_OP_LionUpdate ? 0.99 : 0.999),
        .epsilon = ru_node_float(n, RU_ATTR_epsilon, n->op == RU_OP_AdagradUpdate ? 1e-10 : 1e-8),
        .weight_decay = ru_node_float(n, RU_ATTR_weight_decay, 0.0),
        .nesterov = ru_node_int(n, RU_ATTR_nesterov, 0) != 0,
        .decoupled = ru_node_int(n, RU_ATTR_decoupled, 0) != 0,
        .has_slot = in_or_none(n, first_operand(n) + 2).v != 0,
        .segs = segs,
        .starts = starts};
    bufs[0] = rui_in_plain(lo, n->in[0]);
    bufs[1] = rui_in_plain(lo, in_or_none(n, 1));
    bufs[2] = n->op == RU_OP_AdamUpdate ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    for (uint32_t i = here; i < g->n_nodes; i++) {
        const ru_node *m = &g->nodes[i];
        if (m != n && !joins(lo, n, m)) {
            continue;
        }
        int64_t size = add_segment(lo, m, bufs + RUI_OPTIM_HEAD + s->n * RUI_OPTIM_PER);
        starts[s->n + 1] = starts[s->n] + size;
        s->n++;
        if (m != n) {
            rui_claim(lo, m);
        }
    }
    rui_emit(lo, &(rui_step){.kernel = rui_keep_printf(lo, "kern optimizer of %u tensors", s->n),
                             .fn = rui_optim_run,
                             .bind = optim_bind,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = RUI_OPTIM_HEAD + s->n * RUI_OPTIM_PER});
    return rui_done(lo);
}

/* -- gradient norm -------------------------------------------------------------------------------
 */

typedef struct norm_state {
    const ru_kern *k;
    uint32_t n;
    int64_t *sizes;  /* [n] */
    int64_t *blocks; /* [n + 1] first block of each tensor */
} norm_state;

/* bufs: g1..gn, norm, partial sums */
static void norm_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const norm_state *s = state;
    float *part = bufs[s->n + 1];
    uint32_t t = 0;
    for (int64_t b = begin; b < end; b++) {
        while (b >= s->blocks[t + 1]) {
            t++;
        }
        int64_t at = (b - s->blocks[t]) * NORM_BLOCK, left = s->sizes[t] - at;
        part[b] = s->k->reduce(RU_KERN_RED_SUM_SQUARE, RU_F32, (const float *)bufs[t] + at,
                               left < NORM_BLOCK ? left : NORM_BLOCK, 1, 0);
    }
}

static ru_status norm_run(void *state, void *const *bufs, const rui_run *run)
{
    const norm_state *s = state;
    int64_t blocks = s->blocks[s->n];
    rui_kern_for(run, norm_part, s, bufs, blocks, 1);
    const float *part = bufs[s->n + 1];
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++) {
        sum += (double)part[b];
    }
    *(float *)bufs[s->n] = (float)sqrt(sum);
    return RU_OK;
}

ru_status rui_lower_kern_global_norm(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (rui_type(lo, n->in[i])->dtype != RU_F32) {
            return RU_E_UNSUPPORTED;
        }
    }
    norm_state *s = rui_keep(lo, (int64_t)sizeof *s);
    rui_buf *bufs = rui_keep(lo, (n->n_in + 2) * (int64_t)sizeof *bufs);
    int64_t *sizes = rui_keep(lo, (n->n_in + 1) * (int64_t)sizeof *sizes);
    int64_t *blocks = rui_keep(lo, (n->n_in + 1) * (int64_t)sizeof *blocks);
    if (s == NULL || bufs == NULL || sizes == NULL || blocks == NULL) {
        return rui_done(lo);
    }
    *s = (norm_state){.k = ru_kern_best(), .n = n->n_in, .sizes = sizes, .blocks = blocks};
    for (uint32_t i = 0; i < n->n_in; i++) {
        const rui_layout *l = rui_standing_as(lo, n->in[i], RU_F32); /* padding is zero */
        if (l->opaque) {
            l = rui_plain(lo, rui_type(lo, n->in[i]));
        }
        bufs[i] = rui_in(lo, n->in[i], l);
        sizes[i] = l->flat_n;
        blocks[i + 1] = blocks[i] + (l->flat_n + NORM_BLOCK - 1) / NORM_BLOCK;
    }
    bufs[n->n_in] = rui_out_plain(lo, n->out[0]);
    bufs[n->n_in + 1] = rui_scratch(lo, (blocks[n->n_in] + 1) * 4);
    rui_emit(lo, &(rui_step){.kernel = "kern gradient norm",
                             .fn = norm_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = n->n_in + 2});
    return rui_done(lo);
}

double ru_exe_grads_squares(const ru_exe *e)
{
    const ru_exe_grad *g;
    const ru_kern *kern = ru_kern_best();
    double sum = 0.0;
    for (uint32_t k = ru_exe_grads(e, &g); k-- > 0;) {
        int64_t n = g[k].size_bytes / 4;
        for (int64_t at = 0; at < n; at += NORM_BLOCK) {
            sum +=
                (double)kern->reduce(RU_KERN_RED_SUM_SQUARE, RU_F32, (const float *)g[k].data + at,
                                     n - at < NORM_BLOCK ? n - at : NORM_BLOCK, 1, 0);
        }
    }
    return sum;
}

typedef struct clip_state {
    double most;
} clip_state;

/* bufs: norm scale */
static ru_status clip_scale_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    double most = ((const clip_state *)state)->most, norm = (double)*(const float *)bufs[0];
    *(float *)bufs[1] = norm > most ? (float)(most / norm) : 1.0f;
    return RU_OK;
}

/* ClipScale(norm; clip) -> min(1, clip/norm) */
ru_status rui_lower_kern_clip_scale(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    clip_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    s->most = ru_node_float(n, RU_ATTR_clip, 1.0);
    rui_buf bufs[2] = {rui_in(lo, n->in[0], rui_plain_as(lo, rui_type(lo, n->in[0]), RU_F32)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), RU_F32))};
    rui_emit(lo, &(rui_step){.kernel = "kern clip scale",
                             .fn = clip_scale_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 2});
    return rui_done(lo);
}
