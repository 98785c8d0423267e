/* Convolutions of images that stand row-major and whose result only the caller reads, as products:
 *
 *     y [co, places] = (w | bias) [co, ci kernel + 1] * (columns, ones) [ci kernel + 1, places]
 *
 * for some places at a time, group after group. A column holds what one place reads; for windows of
 * one with steps of one the image itself holds all columns, also of transposed ones, whose weights
 * are turned. oneDNN's kernels want channels in blocks: reordered there and back, an image costs
 * more than a product of few channels. */
#include "exec/cpu/low/conv.h"
#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    AXES = 3,
    NEAR = 1 << 16,    /* floats of columns: 256 KiB */
    PLACES_LEAST = 64, /* of a piece */
    PLACES_MOST = 1024,
    DEPTH_LEAST = 16,
    DEPTH_MOST = 512,
    CHANNELS_LEAST = 8, /* of a group of the result */
    COLUMNS_LEAST = 48, /* the same where columns are made first */
    BLOCK = 256,        /* rows of a block of packed columns (gemm_pack) */
};

typedef struct rows_state {
    const ru_kern *k;
    int64_t n, groups, ci, co; /* channels of a group */
    rui_cube g;
    int64_t depth, joined;         /* ci * kernel; with the bias */
    int64_t w_row, w_col;          /* from one channel's weights to the next, and between them */
    int64_t each, pieces, splits;  /* places of a piece; pieces of an image; of the channels */
    int64_t columns, packed, work; /* floats of one thread: of the columns, twice; of all */
} rows_state;

enum { R_X, R_W, R_Y, R_WORK, R_BUFS };

/* to[0 .. n) = one row of a channel as tap `at` (in elements) sees it from result `o` on. */
static void line(const rows_state *s, const float *x, int64_t at, int64_t o, int64_t n, float *to)
{
    int64_t step = s->g.stride[2], first = o * step + at, i = 0;
    for (; i < n && first + i * step < 0; i++) {
        to[i] = 0.0f;
    }
    int64_t last = s->g.in[2] - first <= 0 ? 0 : (s->g.in[2] - first + step - 1) / step;
    last = last < n ? last : n;
    if (step == 1 && i < last) {
        memcpy(to + i, x + first + i, sizeof *to * (size_t)(last - i));
        i = last;
    }
    const float *from = x + first + i * step;
    for (; i < last; i++, from += step) {
        to[i] = *from;
    }
    for (; i < n; i++) {
        to[i] = 0.0f;
    }
}

/* Places p0 .. p1 as one tap of a channel sees them. */
static void column_row(const rows_state *s, const float *x, const int64_t tap[AXES], int64_t p0,
                       int64_t p1, float *to)
{
    for (int64_t p = p0, n; p < p1; p += n, to += n) {
        int64_t o = p % s->g.out[2], b = p / s->g.out[2] % s->g.out[1],
                a = p / s->g.out[2] / s->g.out[1];
        n = s->g.out[2] - o < p1 - p ? s->g.out[2] - o : p1 - p;
        int64_t z = a * s->g.stride[0] + tap[0], y = b * s->g.stride[1] + tap[1];
        if (z < 0 || z >= s->g.in[0] || y < 0 || y >= s->g.in[1]) {
            memset(to, 0, sizeof *to * (size_t)n);
        } else {
            line(s, x + (z * s->g.in[1] + y) * s->g.in[2], tap[2], o, n, to);
        }
    }
}

/* The same of all taps along the row, `tap` the first: a row of places is a matrix of steps and
 * taps, turned. */
static void column_rows(const rows_state *s, const float *x, const int64_t tap[AXES], int64_t p0,
                        int64_t p1, float *to)
{
    for (int64_t p = p0, n, at = 0; p < p1; p += n, at += n) {
        int64_t o = p % s->g.out[2], b = p / s->g.out[2] % s->g.out[1],
                a = p / s->g.out[2] / s->g.out[1];
        int64_t z = a * s->g.stride[0] + tap[0], y = b * s->g.stride[1] + tap[1];
        n = s->g.out[2] - o < p1 - p ? s->g.out[2] - o : p1 - p;
        s->k->transpose(4, x + (z * s->g.in[1] + y) * s->g.in[2] + o * s->g.stride[2],
                        s->g.stride[2], to + at, p1 - p0, n, s->g.kernel[2]);
    }
}

static void columns_of(const rows_state *s, const float *x, int64_t p0, int64_t p1, float *to)
{
    int64_t image = s->g.in[0] * s->g.in[1] * s->g.in[2];
    bool turned = s->g.stride[2] > 1 && s->g.inside && s->g.dilate[2] == 1;
    for (int64_t c = 0; c < s->ci; c++, x += image) {
        for (int64_t a = 0; a < s->g.kernel[0]; a++) {
            for (int64_t b = 0; b < s->g.kernel[1]; b++) {
                if (turned) {
                    const int64_t tap[AXES] = {a * s->g.dilate[0], b * s->g.dilate[1]};
                    column_rows(s, x, tap, p0, p1, to);
                    to += s->g.kernel[2] * (p1 - p0);
                    continue;
                }
                for (int64_t d = 0; d < s->g.kernel[2]; d++, to += p1 - p0) {
                    const int64_t tap[AXES] = {a * s->g.dilate[0] - s->g.pad[0],
                                               b * s->g.dilate[1] - s->g.pad[1],
                                               d * s->g.dilate[2] - s->g.pad[2]};
                    column_row(s, x, tap, p0, p1, to);
                }
            }
        }
    }
}

/* bufs: w, bias, and (w | bias) turned, so that channels stand side by side: [group, joined, co] */
static void weights_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const rows_state *s = state;
    for (int64_t r = begin; r < end; r++) {
        const int64_t group = r / s->joined, k = r % s->joined;
        const float *from = (const float *)bufs[0] + group * s->co * s->depth + k * s->w_col;
        float *to = (float *)bufs[2] + r * s->co;
        for (int64_t o = 0; o < s->co; o++) {
            to[o] = k < s->depth ? from[o * s->w_row] : ((const float *)bufs[1])[group * s->co + o];
        }
    }
}

static ru_status weights_run(void *state, void *const *bufs, const rui_run *run)
{
    const rows_state *s = state;
    rui_kern_for(run, weights_part, s, bufs, s->groups * s->joined, rui_kern_grain(s->co));
    return RU_OK;
}

/* n columns, rows `row` apart, with the ones below them, as gemm_pack packs them. */
static void pack_joined(const rows_state *s, const float *x, int64_t row, int64_t n, float *to)
{
    const int64_t wide = s->k->gemm_pack_floats(1, 1);
    for (int64_t k = 0; k < s->joined; k += BLOCK) {
        const int64_t all = s->joined - k < BLOCK ? s->joined - k : BLOCK;
        const int64_t deep = s->depth - k < BLOCK ? s->depth - k : BLOCK;
        for (int64_t j = 0; j < n; j += wide, to += all * wide) {
            s->k->gemm_pack(x + k * row + j, row, 1, deep, n - j < wide ? n - j : wide, to);
            for (int64_t i = deep * wide; i < all * wide; i++) {
                to[i] = 1.0f;
            }
        }
    }
}

static void rows_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const rows_state *s = state;
    int64_t image = s->ci * s->g.in[0] * s->g.in[1] * s->g.in[2];
    float *packed = (float *)own + s->columns;
    for (int64_t r = begin; r < end; r++) {
        int64_t part = r / (s->pieces * s->splits), group = part % s->groups;
        int64_t piece = r / s->splits % s->pieces, split = r % s->splits;
        int64_t p0 = piece * s->each, p1 = p0 + s->each < s->g.places ? p0 + s->each : s->g.places;
        int64_t o0 = s->co * split / s->splits, o1 = s->co * (split + 1) / s->splits;
        const float *x = (const float *)bufs[R_X] + part * image, *from = x + p0;
        if (!s->g.same) {
            columns_of(s, x, p0, p1, own);
            from = own;
        }
        pack_joined(s, from, s->g.same ? s->g.places : p1 - p0, p1 - p0, packed);
        s->k->gemm(&(ru_kern_gemm){.m = o1 - o0,
                                   .n = p1 - p0,
                                   .k = s->joined,
                                   .a = (const float *)bufs[R_W] + group * s->joined * s->co + o0,
                                   .a_row = 1,
                                   .a_col = s->co,
                                   .packed_b = packed,
                                   .c = (float *)bufs[R_Y] + (part * s->co + o0) * s->g.places + p0,
                                   .c_row = s->g.places,
                                   .alpha = 1.0f,
                                   .work = packed + s->packed});
    }
}

static ru_status rows_run(void *state, void *const *bufs, const rui_run *run)
{
    const rows_state *s = state;
    rui_kern_for_own(run, rows_part, s, bufs, s->n * s->groups * s->pieces * s->splits, 1,
                     bufs[R_WORK], s->work * (int64_t)sizeof(float));
    return RU_OK;
}

static void plan(const rui_window *w, int64_t threads, bool turned, bool bias, rows_state *s)
{
    *s = (rows_state){.k = ru_kern_best(),
                      .n = w->n,
                      .groups = w->groups,
                      .ci = w->ci / w->groups,
                      .co = w->co / w->groups,
                      .g = rui_cube_of(w)};
    s->depth = s->ci * s->g.taps;
    s->joined = s->depth + (bias ? 1 : 0);
    s->w_row = turned ? 1 : s->depth;
    s->w_col = turned ? s->co : 1;
    int64_t each = NEAR / s->depth / 32 * 32;
    each = each < PLACES_LEAST ? PLACES_LEAST : each > PLACES_MOST ? PLACES_MOST : each;
    s->pieces = (s->g.places + each - 1) / each;
    s->each = ((s->g.places + s->pieces - 1) / s->pieces + 31) / 32 * 32;
    s->pieces = (s->g.places + s->each - 1) / s->each;
    int64_t parts = s->n * s->groups * s->pieces;
    s->splits = parts >= threads || s->co < 32 ? 1 : (threads + parts - 1) / parts;
    s->columns = s->g.same ? 0 : (s->depth * s->each + 15) / 16 * 16;
    s->packed = (s->k->gemm_pack_floats(s->joined, s->each) + 15) / 16 * 16;
    s->work = s->columns + s->packed + (s->k->gemm_work(s->co, s->each, s->joined) + 15) / 16 * 16;
}

/* One core with AVX-512, ratio to another library's time, these and oneDNN's kernels: 128 of 64
 * channels, 14x14 places of 8 images, windows of one 1.02 and 0.66; 4x4 windows with steps of four
 * 0.89 and 0.51; of sums of 768 and of 1,024 0.84 and 0.95, 0.65 and 0.80. Where windows overlap an
 * image is smaller than its columns, and only those of one channel pay. */
static bool pays(rui_low *lo, const ru_node *n, const rows_state *s)
{
    bool apart = true, steps = false;
    for (int k = 0; k < AXES; k++) {
        apart = apart && s->g.stride[k] >= s->g.kernel[k];
        steps = steps || s->g.stride[k] > 1;
    }
    bool sums = apart ? s->depth >= DEPTH_LEAST : s->ci == 1 && s->groups == 1 && steps;
    return ru_kern_at(RU_KERN_AVX512) != NULL && rui_leaves(lo, n) &&
           rui_standing(lo, n->in[0])->plain && sums && s->depth <= DEPTH_MOST &&
           s->co >= (s->g.same ? CHANNELS_LEAST : COLUMNS_LEAST) && s->g.places >= PLACES_LEAST;
}

/* Weights as products read them: made once where they do not change. */
static rui_buf weights(rui_low *lo, const ru_node *n, rows_state *s, bool bias)
{
    const int64_t bytes = s->groups * s->joined * s->co * (int64_t)sizeof(float);
    const bool frozen = lo->vals[n->in[1].v].frozen && (!bias || lo->vals[n->in[2].v].frozen);
    rui_buf bufs[3] = {rui_in_plain(lo, n->in[1])};
    bufs[1] = bias ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[2] = frozen ? rui_buf_new(lo, RUI_BUF_PACKED, bytes) : rui_workspace(lo, bytes);
    rui_step step = {
        .kernel = "kern rows pack", .fn = weights_run, .state = s, .bufs = bufs, .n_bufs = 3};
    rui_emit_to(lo, frozen ? &lo->prep : &lo->run, &step, frozen ? 0 : lo->node);
    return bufs[2];
}

ru_status rui_lower_kern_rows(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    rows_state made;
    const bool turned = n->op == RU_OP_ConvTranspose;
    if (!rui_inference(lo) || !rui_conv_plain(lo, n, turned, &w)) {
        return RU_E_UNSUPPORTED;
    }
    const bool bias = ru_node_has_in(n, 2);
    plan(&w, (int64_t)rui_threads(lo), turned, bias, &made);
    if ((turned && !made.g.same) || !pays(lo, n, &made)) {
        return RU_E_UNSUPPORTED;
    }
    rows_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = made;
    rui_buf bufs[R_BUFS] = {[R_X] = rui_in_plain(lo, n->in[0]), [R_W] = weights(lo, n, s, bias)};
    bufs[R_Y] = rui_out_plain(lo, n->out[0]);
    bufs[R_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern conv product",
                             .fn = rows_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = R_BUFS});
    rui_act_emit(lo, n);
    return rui_done(lo);
}
