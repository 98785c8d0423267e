/* Transposed convolutions of few channels, which oneDNN would pad to vectors of them: one product,
 * then every row of results gathers its terms.
 *
 *     columns [co kh kw, H W] = w [ci, co kh kw]^T x [ci, H W]       group after group, row-major
 *     y [c, oy, ox] = bias + sum of columns [c ky kx, iy ix] where iy, ix reach oy, ox */
#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    COLUMNS_MAX = 16 << 20, /* floats */
    FEW = 8,                /* channels */
    BLOCK = 256,            /* results */
    TAPS_MAX = 16,
};

typedef struct col_state {
    const rui_dnnl *nn;
    int64_t n, groups, ci, co; /* channels of a group */
    int64_t h, w, oh, ow, kh, kw, sh, sw, dh, dw, pt, pl;
    int64_t part; /* image and group under way */
    struct {
        int64_t phase, off; /* its terms begin at result off of every sw-th from `phase` on */
    } tap[TAPS_MAX];        /* [kw] */
} col_state;

enum { C_X, C_W, C_BIAS, C_Y, C_COLUMNS, C_BUFS };

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

static void add_to(float *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        *(four *)(y + i) += *(const four *)(x + i);
    }
    for (; i < n; i++) {
        y[i] += x[i];
    }
}

/* Every sw-th of a row of results from `phase` on: the terms of these lie side by side. Results
 * [at, at + n) of them into t, which holds what they begin with. iy [kh]: row of each tap, -1:
 * none. */
static void add_terms(const col_state *s, const float *columns, const int64_t *iy, int64_t phase,
                      int64_t at, int64_t n, float *t)
{
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; iy[ky] >= 0 && kx < s->kw; kx++) {
            if (s->tap[kx].phase != phase) {
                continue;
            }
            int64_t off = s->tap[kx].off - at;
            int64_t from = off < 0 ? -off : 0, to = n - off < s->w ? n - off : s->w;
            if (to > from) {
                const float *row = columns + ((ky * s->kw + kx) * s->h + iy[ky]) * s->w;
                add_to(t + from + off, row + from, to - from);
            }
        }
    }
}

/* Taps of which none meet in a row add to the results where these lie. */
static void add_apart(const col_state *s, const float *columns, const int64_t *iy, float *y)
{
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; iy[ky] >= 0 && kx < s->kw; kx++) {
            const float *row = columns + ((ky * s->kw + kx) * s->h + iy[ky]) * s->w;
            int64_t off = s->tap[kx].off, at = off * s->sw + s->tap[kx].phase;
            for (int64_t i = off < 0 ? -off : 0; i < s->w && at + i * s->sw < s->ow; i++) {
                y[at + i * s->sw] += row[i];
            }
        }
    }
}

/* Rows [begin, end) of the results of one image and group: [co, oh]. */
static void rows_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const col_state *s = state;
    const float *columns = bufs[C_COLUMNS], *bias = bufs[C_BIAS];
    for (int64_t r = begin; r < end; r++) {
        int64_t c = r / s->oh, oy = r % s->oh;
        float *y = (float *)bufs[C_Y] + (s->part * s->co * s->oh + r) * s->ow;
        float first = bias != NULL ? bias[s->part % s->groups * s->co + c] : 0.0f;
        int64_t iy[TAPS_MAX];
        for (int64_t ky = 0; ky < s->kh; ky++) {
            int64_t at = oy + s->pt - ky * s->dh, row = at < 0 ? -1 : at / s->sh;
            iy[ky] = row * s->sh == at && row < s->h ? row : -1;
        }
        const float *own = columns + c * s->kh * s->kw * s->h * s->w;
        if (s->kw <= s->sw) {
            for (int64_t ox = 0; ox < s->ow; ox++) {
                y[ox] = first;
            }
            add_apart(s, own, iy, y);
            continue;
        }
        for (int64_t phase = 0; phase < s->sw && phase < s->ow; phase++) {
            int64_t all = (s->ow - phase + s->sw - 1) / s->sw;
            for (int64_t at = 0; at < all; at += BLOCK) {
                float t[BLOCK];
                int64_t n = all - at < BLOCK ? all - at : BLOCK;
                for (int64_t i = 0; i < n; i++) {
                    t[i] = first;
                }
                add_terms(s, own, iy, phase, at, n, t);
                for (int64_t i = 0; i < n; i++) {
                    y[(at + i) * s->sw + phase] = t[i];
                }
            }
        }
    }
}

static ru_status col_run(void *state, void *const *bufs, const rui_run *run)
{
    col_state *s = state;
    int64_t m = s->co * s->kh * s->kw, n = s->h * s->w;
    for (s->part = 0; s->part < s->n * s->groups; s->part++) {
        const float *x = (const float *)bufs[C_X] + s->part * s->ci * n;
        const float *w = (const float *)bufs[C_W] + s->part % s->groups * s->ci * m;
        if (s->nn->sgemm('T', 'N', m, n, s->ci, 1.0f, w, m, x, n, 0.0f, bufs[C_COLUMNS], n) !=
            dnnl_success) {
            return RU_FAIL(run->err, RU_E_BUG, "oneDNN refused a product");
        }
        rui_kern_for(run, rows_part, s, bufs, s->co * s->oh, rui_kern_grain(s->ow * s->kh * s->kw));
    }
    return RU_OK;
}

/* A channel each is what oneDNN's depthwise kernels are for. */
static bool pays(const rui_window *w)
{
    int64_t ci = w->ci / w->groups, co = w->co / w->groups;
    int64_t columns = w->in[0] * w->in[1] * w->kernel[0] * w->kernel[1] * co;
    return w->nsp == 2 && (ci <= FEW || co <= FEW) && ci * co > 1 && ci <= 4 * FEW &&
           co <= 4 * FEW && columns <= COLUMNS_MAX && w->kernel[0] <= TAPS_MAX &&
           w->kernel[1] <= TAPS_MAX;
}

ru_status rui_lower_kern_deconv_few(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    if (!rui_inference(lo) || ru_type_count(rui_type(lo, n->in[0])) <= 0 ||
        !rui_standing(lo, n->in[0])->plain || !rui_conv_plain(lo, n, true, &w) || !pays(&w)) {
        return RU_E_UNSUPPORTED;
    }
    col_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (col_state){.nn = rui_nn(lo),
                     .n = w.n,
                     .groups = w.groups,
                     .ci = w.ci / w.groups,
                     .co = w.co / w.groups,
                     .h = w.in[0],
                     .w = w.in[1],
                     .oh = w.out[0],
                     .ow = w.out[1],
                     .kh = w.kernel[0],
                     .kw = w.kernel[1],
                     .sh = w.stride[0],
                     .sw = w.stride[1],
                     .dh = w.dilate[0] + 1,
                     .dw = w.dilate[1] + 1,
                     .pt = w.pad_l[0],
                     .pl = w.pad_l[1]};
    for (int64_t kx = 0; kx < s->kw; kx++) {
        int64_t shift = kx * s->dw - s->pl, phase = shift % s->sw;
        s->tap[kx].phase = phase < 0 ? phase + s->sw : phase;
        s->tap[kx].off = (shift - s->tap[kx].phase) / s->sw;
    }
    int64_t columns = s->co * s->kh * s->kw * s->h * s->w;
    rui_buf bufs[C_BUFS] = {[C_X] = rui_in_plain(lo, n->in[0]), [C_W] = rui_in_plain(lo, n->in[1])};
    bufs[C_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[C_Y] = rui_out_plain(lo, n->out[0]);
    bufs[C_COLUMNS] = rui_scratch(lo, columns * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern deconv of few channels",
                             .fn = col_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = C_BUFS});
    rui_act_emit(lo, n);
    return rui_done(lo);
}
