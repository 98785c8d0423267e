/* 3x3 convolutions of stride 1 by our own Winograd kernels, with AVX2: oneDNN has that algorithm
 * for AVX-512 only. Layouts are those of its direct kernels there (nChw8c, OIhw8i8o), so that both
 * live side by side without reorders.
 *
 * Forward and data gradient, in one of two orders by what is reused:
 *   many tiles: U of all weights once; then each thread takes blocks of tiles: V, products, y
 *   few tiles (deep layers): V of all tiles once; then each thread takes groups of 4 panels: their
 *     U, products, y. U, which is 4 times the weights, is never in memory as a whole.
 * Weight gradient: a chunk of tiles after the other: V and D, then blocks of 32 x 64 channels take
 * their sums on; the sums of a layer whose tiles are one chunk stay in the thread's work area.
 * What is summed in which order does not depend on the threads.
 *
 * Sums of transformed values round otherwise than direct ones, so this is a choice of the
 * autotuner's kind: never without that option. It is made by rule, as nothing was found where the
 * direct kernels win: one Zen 3 core, ResNet-18 at batch 32, direct work a second in GFLOP/s:
 * forward 166 to 235, data gradient 179 to 249, weight gradient 137 to 198; direct 40 to 72, 47 to
 * 83, 26 to 54. */
#include <string.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    WINO_POS = 36,
    PANEL = 16,
    GROUP = 4,              /* panels that share one reading of V */
    ROWS = 32,              /* input channels of a block of the weight gradient */
    BLOCK_FLOATS = 2 << 18, /* V and M of a block of tiles: 2 MiB */
    BLOCK_TILES_MIN = 66,   /* products of fewer rows wait for U */
    CHUNK_TILES_MIN = 256,  /* of the weight gradient: as many share one reading of the sums */
    TILES_WORTH = 16,       /* below, transforming the weights costs more than it gives */
};

typedef struct wino_state {
    const ru_kern *k;
    ru_kern_wino g;
    int64_t tiles, blocks, panels, groups, rows;
    int64_t work; /* floats of one thread */
} wino_state;

static int64_t odd_lines(int64_t floats)
{
    int64_t lines = (floats + 15) / 16;
    return (lines | 1) * 16;
}

static int64_t block_begin(const wino_state *s, int64_t b)
{
    return s->tiles * b / s->blocks;
}

/* Most tiles of a block. */
static int64_t block_tiles(const wino_state *s)
{
    return (s->tiles + s->blocks - 1) / s->blocks;
}

static int64_t u_floats(const wino_state *s, int64_t panels)
{
    return WINO_POS * s->g.u_pos * panels;
}

static int64_t m_floats(const wino_state *s)
{
    int64_t group = s->panels < GROUP ? s->panels : GROUP;
    return WINO_POS * PANEL * (block_tiles(s) * group + 1);
}

/* -- forward and data gradient
 * --------------------------------------------------------------------- */

/* SHARED: U of all panels, or V of all tiles. */
enum { C_X, C_W, C_BIAS, C_Y, C_SHARED, C_WORK, C_BUFS };

static void conv_weights(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const wino_state *s = state;
    s->k->wino_weights(&s->g, bufs[C_W], begin, end, (float *)bufs[C_SHARED] + u_floats(s, begin));
}

static void conv_tiles(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    const wino_state *s = state;
    float *v = work, *m = v + WINO_POS * s->g.v_pos;
    for (int64_t b = begin; b < end; b++) {
        int64_t t0 = block_begin(s, b), t1 = block_begin(s, b + 1);
        s->k->wino_in(&s->g, bufs[C_X], t0, t1, t0, v);
        for (int64_t p = 0; p < s->panels; p += GROUP) {
            int64_t p1 = p + GROUP < s->panels ? p + GROUP : s->panels;
            s->k->wino_out(&s->g, v, (const float *)bufs[C_SHARED] + u_floats(s, p), p, p1, t0, t1,
                           bufs[C_BIAS], bufs[C_Y], m);
        }
    }
}

static void conv_in(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const wino_state *s = state;
    s->k->wino_in(&s->g, bufs[C_X], begin, end, 0, bufs[C_SHARED]);
}

static void conv_groups(const void *state, void *const *bufs, int64_t begin, int64_t end,
                        void *work)
{
    const wino_state *s = state;
    float *u = work, *m = u + u_floats(s, GROUP);
    for (int64_t p = begin; p < end; p += GROUP) {
        int64_t p1 = p + GROUP < end ? p + GROUP : end;
        s->k->wino_weights(&s->g, bufs[C_W], p, p1, u);
        s->k->wino_out(&s->g, bufs[C_SHARED], u, p, p1, 0, s->tiles, bufs[C_BIAS], bufs[C_Y], m);
    }
}

static ru_status conv_run(void *state, void *const *bufs, const rui_run *run)
{
    const wino_state *s = state;
    int64_t work = s->work * (int64_t)sizeof(float);
    if (s->blocks > 1) {
        rui_kern_for(run, conv_weights, s, bufs, s->panels, 1);
        rui_kern_for_own(run, conv_tiles, s, bufs, s->blocks, 1, bufs[C_WORK], work);
    } else {
        rui_kern_for(run, conv_in, s, bufs, s->tiles, 1);
        rui_kern_for_own(run, conv_groups, s, bufs, s->panels, GROUP, bufs[C_WORK], work);
    }
    return RU_OK;
}

/* -- weight gradient
 * ------------------------------------------------------------------------------- */

/* V, D of a chunk; SUMS of all channels when there are several chunks. */
enum { G_DY, G_X, G_DW, G_DB, G_V, G_D, G_SUMS, G_WORK, G_BUFS };

typedef struct grad_job {
    const wino_state *s;
    int64_t block; /* of tiles */
} grad_job;

static int64_t sums_floats(void)
{
    return WINO_POS * PANEL * (ROWS * GROUP + 1);
}

static int64_t tiles_in(const wino_state *s, int64_t block)
{
    return block_begin(s, block + 1) - block_begin(s, block);
}

static void grad_tiles(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const grad_job *j = state;
    const wino_state *s = j->s;
    int64_t t0 = block_begin(s, j->block);
    s->k->wino_in(&s->g, bufs[G_X], t0 + begin, t0 + end, t0, bufs[G_V]);
    s->k->wino_dy(&s->g, bufs[G_DY], t0 + begin, t0 + end, t0, bufs[G_D]);
}

static void grad_sums(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    const grad_job *j = state;
    const wino_state *s = j->s;
    int64_t tb = tiles_in(s, j->block);
    for (int64_t b = begin; b < end; b++) {
        int64_t p0 = b / s->rows * GROUP, c0 = b % s->rows * ROWS;
        int64_t p1 = p0 + GROUP < s->panels ? p0 + GROUP : s->panels;
        int64_t c1 = c0 + ROWS < s->g.ci ? c0 + ROWS : s->g.ci;
        float *sums = s->blocks > 1 ? (float *)bufs[G_SUMS] + b * sums_floats() : work;
        s->k->wino_dw(&s->g, bufs[G_V], bufs[G_D], tb, c0, c1, p0, p1, j->block > 0, sums);
        if (j->block == s->blocks - 1) {
            s->k->wino_dw_out(&s->g, sums, c0, c1, p0, p1, bufs[G_DW]);
        }
        if (c0 == 0 && bufs[G_DB] != NULL) {
            s->k->wino_db(&s->g, bufs[G_D], tb, p0, p1, j->block > 0, bufs[G_DB]);
        }
    }
}

static ru_status grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const wino_state *s = state;
    for (grad_job j = {.s = s}; j.block < s->blocks; j.block++) {
        rui_kern_for(run, grad_tiles, &j, bufs, tiles_in(s, j.block), 1);
        rui_kern_for_own(run, grad_sums, &j, bufs, s->groups * s->rows, 1, bufs[G_WORK],
                         s->work * (int64_t)sizeof(float));
    }
    return RU_OK;
}

/* -- lowering
 * -------------------------------------------------------------------------------------- */

/* Is it a convolution that these kernels do faster than the direct ones? */
static bool wino_pays(rui_low *lo, const rui_window *w)
{
    if (!rui_options(lo)->autotune || rui_bf16(lo) || rui_inference(lo) ||
        ru_kern_best() != ru_kern_at(RU_KERN_AVX2) || w->nsp != 2 || w->groups != 1 ||
        w->ci % PANEL != 0 || w->co % PANEL != 0) {
        return false;
    }
    int64_t covered = w->n;
    for (int d = 0; d < 2; d++) {
        if (w->kernel[d] != 3 || w->stride[d] != 1 || w->dilate[d] != 0 || w->pad_l[d] < 0 ||
            w->pad_l[d] > 2 || w->pad_r[d] < 0 || w->pad_r[d] > 2) {
            return false;
        }
        covered *= (w->out[d] + 3) / 4;
    }
    return covered >= TILES_WORTH && covered * 16 <= 2 * w->n * w->out[0] * w->out[1];
}

/* The state for `n`, a convolution of x and w that gives y. NULL: not for these kernels. */
static wino_state *wino_make(rui_low *lo, const ru_node *n, ru_value_id x, ru_value_id w,
                             ru_value_id y, bool turned)
{
    const ru_type *tx = rui_type(lo, x), *tw = rui_type(lo, w), *ty = rui_type(lo, y);
    rui_window win;
    if (tx->dtype != RU_F32 || tw->dtype != RU_F32 || ty->dtype != RU_F32 ||
        rui_window_of(n, tx, tw, ty, false, false, &win) != RU_OK || !wino_pays(lo, &win)) {
        return NULL;
    }
    wino_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    ru_kern_wino *g = &s->g;
    *g = (ru_kern_wino){.ci = turned ? win.co : win.ci,
                        .co = turned ? win.ci : win.co,
                        .h = turned ? win.out[0] : win.in[0],
                        .w = turned ? win.out[1] : win.in[1],
                        .oh = turned ? win.in[0] : win.out[0],
                        .ow = turned ? win.in[1] : win.out[1],
                        .pad_t = turned ? 2 - win.pad_l[0] : win.pad_l[0],
                        .pad_l = turned ? 2 - win.pad_l[1] : win.pad_l[1],
                        .turned = turned};
    g->tiles_y = (g->oh + 3) / 4;
    g->tiles_x = (g->ow + 3) / 4;
    g->v_row = odd_lines(g->ci);
    g->u_pos = odd_lines(g->ci * PANEL);
    s->k = ru_kern_best();
    s->tiles = win.n * g->tiles_y * g->tiles_x;
    s->panels = g->co / PANEL;
    s->groups = (s->panels + GROUP - 1) / GROUP;
    s->rows = (g->ci + ROWS - 1) / ROWS;
    return s;
}

static ru_status emit_conv(rui_low *lo, wino_state *s, ru_value_id x, ru_value_id w,
                           ru_value_id bias, ru_value_id y)
{
    const rui_layout *lx = rui_layout_tag(lo, rui_type(lo, x), dnnl_nChw8c);
    const rui_layout *ly = rui_layout_tag(lo, rui_type(lo, y), dnnl_nChw8c);
    const rui_layout *lw = rui_layout_tag(lo, rui_type(lo, w), dnnl_OIhw8i8o);
    if (lx == NULL || ly == NULL || lw == NULL) {
        return RU_E_UNSUPPORTED;
    }
    int64_t most = BLOCK_FLOATS / (WINO_POS * (s->g.ci + GROUP * PANEL));
    most = most < BLOCK_TILES_MIN ? BLOCK_TILES_MIN : most;
    s->blocks = (s->tiles + most - 1) / most;
    s->g.v_pos = odd_lines(s->g.v_row * block_tiles(s));
    bool many = s->blocks > 1;
    int64_t v = WINO_POS * s->g.v_pos, u = u_floats(s, many ? s->panels : GROUP);
    s->work = (many ? v : u) + m_floats(s);
    rui_buf bufs[C_BUFS] = {{0}};
    bufs[C_X] = rui_in(lo, x, lx);
    bufs[C_W] = rui_in(lo, w, lw);
    bufs[C_BIAS] = bias.v != 0 ? rui_in_plain(lo, bias) : (rui_buf){0};
    bufs[C_Y] = rui_out(lo, y, ly);
    bufs[C_SHARED] = rui_scratch(lo, (many ? u : v) * (int64_t)sizeof(float));
    bufs[C_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = s->g.turned ? "kern winograd data" : "kern winograd",
                             .fn = conv_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = C_BUFS});
    return rui_done(lo);
}

ru_status rui_lower_kern_wino(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const char *act = ru_node_str(n, RU_ATTR_activation, "");
    if (ru_node_has_in(n, 3) || (act[0] != '\0' && !rui_act_on(n, NULL, 0))) {
        return RU_E_UNSUPPORTED;
    }
    wino_state *s = wino_make(lo, n, n->in[0], n->in[1], n->out[0], false);
    if (s == NULL) {
        return RU_E_UNSUPPORTED;
    }
    s->g.relu = strcmp(act, "relu") == 0;
    ru_value_id bias = ru_node_has_in(n, 2) ? n->in[2] : (ru_value_id){0};
    RU_TRY(emit_conv(lo, s, n->in[0], n->in[1], bias, n->out[0]));
    if (!s->g.relu) {
        rui_act_emit(lo, n);
    }
    return rui_done(lo);
}

/* ConvGradX(dy, w, x_like) -> dx */
ru_status rui_lower_kern_wino_grad_x(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    wino_state *s = wino_make(lo, n, n->out[0], n->in[1], n->in[0], true);
    return s == NULL ? RU_E_UNSUPPORTED
                     : emit_conv(lo, s, n->in[0], n->in[1], (ru_value_id){0}, n->out[0]);
}

/* One chunk while V and D are not larger than the sums that several would go through again; else
 * chunks of what L3 holds, or more. One Zen 3 core, 56 to 256 tiles a chunk, GFLOP/s of direct
 * work: 256 channels 14x14 at batch 32 70 to 104, 56x56 at batch 16 90 to 127; 512 channels, 28 to
 * 256 tiles, 28x28 at batch 16 67 to 134. */
static void grad_sizes(wino_state *s)
{
    int64_t tile = WINO_POS * (s->g.ci + s->g.co), sums = WINO_POS * s->g.ci * s->g.co;
    int64_t room = sums > 2 * BLOCK_FLOATS ? sums : 2 * BLOCK_FLOATS;
    int64_t most = s->tiles * tile <= room ? s->tiles : 2 * BLOCK_FLOATS / tile;
    most = most < CHUNK_TILES_MIN ? CHUNK_TILES_MIN : most;
    s->blocks = (s->tiles + most - 1) / most;
    s->g.v_pos = odd_lines(s->g.v_row * block_tiles(s));
    s->g.d_pos = odd_lines(PANEL * block_tiles(s));
    s->work = s->blocks > 1 ? 0 : sums_floats();
}

/* ConvGradW(dy, x, w_like; bias_term) -> dw, db? */
ru_status rui_lower_kern_wino_grad_w(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    wino_state *s = wino_make(lo, n, n->in[1], n->out[0], n->in[0], false);
    if (s == NULL) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *lx = rui_layout_tag(lo, rui_type(lo, n->in[1]), dnnl_nChw8c);
    const rui_layout *ly = rui_layout_tag(lo, rui_type(lo, n->in[0]), dnnl_nChw8c);
    const rui_layout *lw = rui_layout_tag(lo, rui_type(lo, n->out[0]), dnnl_OIhw8i8o);
    if (lx == NULL || ly == NULL || lw == NULL) {
        return RU_E_UNSUPPORTED;
    }
    grad_sizes(s);
    int64_t all = s->blocks > 1 ? s->groups * s->rows * sums_floats() : 0;
    int64_t d = WINO_POS * s->g.d_pos * s->panels;
    rui_buf bufs[G_BUFS] = {{0}};
    bufs[G_DY] = rui_in(lo, n->in[0], ly);
    bufs[G_X] = rui_in(lo, n->in[1], lx);
    bufs[G_DW] = rui_out(lo, n->out[0], lw);
    bufs[G_DB] = ru_node_has_out(n, 1) ? rui_out_plain(lo, n->out[1]) : (rui_buf){0};
    bufs[G_V] = rui_scratch(lo, WINO_POS * s->g.v_pos * (int64_t)sizeof(float));
    bufs[G_D] = rui_scratch(lo, d * (int64_t)sizeof(float));
    bufs[G_SUMS] = rui_scratch(lo, all * (int64_t)sizeof(float));
    bufs[G_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern winograd weights",
                             .fn = grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = G_BUFS});
    return rui_done(lo);
}
