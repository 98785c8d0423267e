/* LAMB: the step of a parameter is scaled by its norm over that of its direction, so a first loop
 * makes slots and norms, and a second one updates. Norms are sums of blocks in the row-major order,
 * whatever layout the parameter stands in elsewhere: all workers of a job get the same bits.
 *
 * Source: lamb-2020 */
#include <math.h>

#include "exec/cpu/lower/lower_kern.h"

enum { BLOCK = 16384 }; /* elements of one partial sum: fixed */

typedef struct lamb_state {
    const ru_kern *k;
    double beta1, beta2, epsilon, weight_decay;
    int64_t n;
    ru_kern_lamb now; /* of this run */
    float step;
} lamb_state;

enum { LR, GSCALE, STEP, P, G, M, V, P_OUT, M_OUT, V_OUT, SUMS, BUFS };

static ru_kern_segment segment_of(const lamb_state *s, void *const *bufs)
{
    return (ru_kern_segment){.p = bufs[P],
                             .g = bufs[G],
                             .m = bufs[M],
                             .v = bufs[V],
                             .p_out = bufs[P_OUT],
                             .m_out = bufs[M_OUT],
                             .v_out = bufs[V_OUT],
                             .n = s->n};
}

static int64_t end_of(const lamb_state *s, int64_t block)
{
    int64_t end = (block + 1) * BLOCK;
    return end < s->n ? end : s->n;
}

static void slots_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const lamb_state *s = state;
    const ru_kern_segment g = segment_of(s, bufs);
    for (int64_t b = begin; b < end; b++) {
        s->k->lamb_slots(&s->now, &g, b * BLOCK, end_of(s, b), (float *)bufs[SUMS] + 2 * b);
    }
}

static void update_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const lamb_state *s = state;
    const ru_kern_segment g = segment_of(s, bufs);
    for (int64_t b = begin; b < end; b++) {
        s->k->lamb(&s->now, s->step, &g, b * BLOCK, end_of(s, b));
    }
}

static ru_status lamb_run(void *state, void *const *bufs, const rui_run *run)
{
    lamb_state *s = state;
    double t = (double)*(const int64_t *)bufs[STEP], p = 0.0, r = 0.0;
    int64_t blocks = (s->n + BLOCK - 1) / BLOCK;
    s->now = (ru_kern_lamb){.beta1 = (float)s->beta1,
                            .beta2 = (float)s->beta2,
                            .epsilon = (float)s->epsilon,
                            .gscale = bufs[GSCALE] == NULL ? 1.0f : *(const float *)bufs[GSCALE],
                            .decay = (float)s->weight_decay,
                            .mean_scale = (float)(1.0 / (1.0 - pow(s->beta1, t))),
                            .root_scale = (float)(1.0 / sqrt(1.0 - pow(s->beta2, t)))};
    rui_kern_for(run, slots_part, s, bufs, blocks, 1);
    const float *sums = bufs[SUMS];
    for (int64_t b = 0; b < blocks; b++) {
        p += (double)sums[2 * b];
        r += (double)sums[2 * b + 1];
    }
    double trust = p > 0.0 && r > 0.0 ? sqrt(p / r) : 1.0;
    s->step = (float)((double)*(const float *)bufs[LR] * trust);
    rui_kern_for(run, update_part, s, bufs, blocks, 1);
    return RU_OK;
}

ru_status rui_lower_kern_lamb(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool takes = rui_type(lo, n->in[LR])->dtype == RU_F32;
    for (uint32_t k = P; k <= V; k++) {
        takes = takes && rui_type(lo, n->in[k])->dtype == RU_F32;
    }
    for (uint32_t k = 0; k < 3; k++) {
        takes = takes && ru_node_has_out(n, k);
    }
    if (!takes) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *l = rui_plain(lo, rui_type(lo, n->in[P]));
    lamb_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (lamb_state){.k = ru_kern_best(),
                      .beta1 = ru_node_float(n, RU_ATTR_beta1, 0.9),
                      .beta2 = ru_node_float(n, RU_ATTR_beta2, 0.999),
                      .epsilon = ru_node_float(n, RU_ATTR_epsilon, 1e-6),
                      .weight_decay = ru_node_float(n, RU_ATTR_weight_decay, 0.0),
                      .n = l->flat_n};
    rui_buf bufs[BUFS] = {rui_in_plain(lo, n->in[LR]),
                          ru_node_has_in(n, GSCALE) ? rui_in_plain(lo, n->in[GSCALE])
                                                    : (rui_buf){0},
                          rui_in_plain(lo, n->in[STEP])};
    for (uint32_t k = P; k <= V; k++) {
        bufs[k] = rui_in(lo, n->in[k], l);
    }
    bufs[P_OUT] = rui_out_over(lo, n->out[0], l, bufs[P]);
    bufs[M_OUT] = rui_out_over(lo, n->out[1], l, bufs[M]);
    bufs[V_OUT] = rui_out_over(lo, n->out[2], l, bufs[V]);
    bufs[SUMS] = rui_scratch(lo, (s->n + BLOCK - 1) / BLOCK * 8 + 8);
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern LAMB", .fn = lamb_run, .state = s, .bufs = bufs, .n_bufs = BUFS});
    return rui_done(lo);
}
