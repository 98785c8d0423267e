/* Convolutions of images that stand row-major and whose result only the caller reads, as products:
 *
 *     y [co, places] = bias + w [co, ci kernel] * columns [ci kernel, places]
 *
 * for some places at a time, group after group. A column holds what one place reads; for windows of
 * one with steps of one the image itself holds all columns. oneDNN's kernels want channels in
 * blocks: reordered there and back, an image costs more than a product of few channels. */
#include "exec/cpu/low/conv.h"
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
};

typedef struct rows_state {
    const ru_kern *k;
    int64_t n, groups, ci, co; /* channels of a group */
    int64_t in[AXES], out[AXES], kernel[AXES], stride[AXES], dilate[AXES], pad[AXES];
    int64_t depth, places;        /* ci * kernel; of an image of the result */
    int64_t each, pieces, splits; /* places of a piece; pieces of an image; of the channels */
    bool whole;                   /* the image is its columns */
    int64_t columns, work;        /* floats of one thread: of the columns; of all */
} rows_state;

enum { R_X, R_W, R_BIAS, R_Y, R_WORK, R_BUFS };

/* to[0 .. n) = one row of a channel as tap `at` (in elements) sees it from result `o` on. */
static void line(const rows_state *s, const float *x, int64_t at, int64_t o, int64_t n, float *to)
{
    int64_t step = s->stride[2], first = o * step + at, i = 0;
    for (; i < n && first + i * step < 0; i++) {
        to[i] = 0.0f;
    }
    int64_t last = s->in[2] - first <= 0 ? 0 : (s->in[2] - first + step - 1) / step;
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
        int64_t o = p % s->out[2], b = p / s->out[2] % s->out[1], a = p / s->out[2] / s->out[1];
        n = s->out[2] - o < p1 - p ? s->out[2] - o : p1 - p;
        int64_t z = a * s->stride[0] + tap[0], y = b * s->stride[1] + tap[1];
        if (z < 0 || z >= s->in[0] || y < 0 || y >= s->in[1]) {
            memset(to, 0, sizeof *to * (size_t)n);
        } else {
            line(s, x + (z * s->in[1] + y) * s->in[2], tap[2], o, n, to);
        }
    }
}

/* The same of all taps along the row, `tap` the first: a row of places is a matrix of steps and
 * taps, turned. */
static void column_rows(const rows_state *s, const float *x, const int64_t tap[AXES], int64_t p0,
                        int64_t p1, float *to)
{
    for (int64_t p = p0, n, at = 0; p < p1; p += n, at += n) {
        int64_t o = p % s->out[2], b = p / s->out[2] % s->out[1], a = p / s->out[2] / s->out[1];
        int64_t z = a * s->stride[0] + tap[0], y = b * s->stride[1] + tap[1];
        n = s->out[2] - o < p1 - p ? s->out[2] - o : p1 - p;
        s->k->transpose(4, x + (z * s->in[1] + y) * s->in[2] + o * s->stride[2], s->stride[2],
                        to + at, p1 - p0, n, s->kernel[2]);
    }
}

/* Does no tap meet padding, along no axis? */
static bool inside(const rows_state *s)
{
    bool all = s->dilate[2] == 1;
    for (int k = 0; k < AXES; k++) {
        int64_t reach = (s->out[k] - 1) * s->stride[k] + (s->kernel[k] - 1) * s->dilate[k];
        all = all && s->pad[k] == 0 && reach < s->in[k];
    }
    return all;
}

static void columns_of(const rows_state *s, const float *x, int64_t p0, int64_t p1, float *to)
{
    int64_t image = s->in[0] * s->in[1] * s->in[2];
    bool turned = s->stride[2] > 1 && inside(s);
    for (int64_t c = 0; c < s->ci; c++, x += image) {
        for (int64_t a = 0; a < s->kernel[0]; a++) {
            for (int64_t b = 0; b < s->kernel[1]; b++) {
                if (turned) {
                    const int64_t tap[AXES] = {a * s->dilate[0], b * s->dilate[1]};
                    column_rows(s, x, tap, p0, p1, to);
                    to += s->kernel[2] * (p1 - p0);
                    continue;
                }
                for (int64_t d = 0; d < s->kernel[2]; d++, to += p1 - p0) {
                    const int64_t tap[AXES] = {a * s->dilate[0] - s->pad[0],
                                               b * s->dilate[1] - s->pad[1],
                                               d * s->dilate[2] - s->pad[2]};
                    column_row(s, x, tap, p0, p1, to);
                }
            }
        }
    }
}

static void rows_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    static const float zero = 0.0f;
    const rows_state *s = state;
    int64_t image = s->ci * s->in[0] * s->in[1] * s->in[2];
    for (int64_t r = begin; r < end; r++) {
        int64_t part = r / (s->pieces * s->splits), group = part % s->groups;
        int64_t piece = r / s->splits % s->pieces, split = r % s->splits;
        int64_t p0 = piece * s->each, p1 = p0 + s->each < s->places ? p0 + s->each : s->places;
        int64_t o0 = s->co * split / s->splits, o1 = s->co * (split + 1) / s->splits;
        const float *x = (const float *)bufs[R_X] + part * image, *from = x + p0;
        const float *bias = bufs[R_BIAS];
        float *y = (float *)bufs[R_Y] + (part * s->co + o0) * s->places + p0;
        if (!s->whole) {
            columns_of(s, x, p0, p1, own);
            from = own;
        }
        for (int64_t o = o0; bias != NULL && o < o1; o++) {
            s->k->map2(RU_KERN_MAP2_Add, 0, 0, RU_F32, bias + group * s->co + o, 0, &zero, 0,
                       y + (o - o0) * s->places, p1 - p0);
        }
        s->k->gemm(&(ru_kern_gemm){.m = o1 - o0,
                                   .n = p1 - p0,
                                   .k = s->depth,
                                   .a = (const float *)bufs[R_W] + (group * s->co + o0) * s->depth,
                                   .a_row = s->depth,
                                   .a_col = 1,
                                   .b = from,
                                   .b_row = s->whole ? s->places : p1 - p0,
                                   .b_col = 1,
                                   .c = y,
                                   .c_row = s->places,
                                   .alpha = 1.0f,
                                   .add = bias != NULL,
                                   .work = (float *)own + s->columns});
    }
}

static ru_status rows_run(void *state, void *const *bufs, const rui_run *run)
{
    const rows_state *s = state;
    rui_kern_for_own(run, rows_part, s, bufs, s->n * s->groups * s->pieces * s->splits, 1,
                     bufs[R_WORK], s->work * (int64_t)sizeof(float));
    return RU_OK;
}

static void plan(const rui_window *w, int64_t threads, rows_state *s)
{
    *s = (rows_state){.k = ru_kern_best(),
                      .n = w->n,
                      .groups = w->groups,
                      .ci = w->ci / w->groups,
                      .co = w->co / w->groups,
                      .places = 1,
                      .whole = true};
    s->depth = s->ci;
    for (int k = 0; k < AXES; k++) {
        int d = k - (AXES - w->nsp); /* < 0: an axis of one */
        s->in[k] = d < 0 ? 1 : w->in[d];
        s->out[k] = d < 0 ? 1 : w->out[d];
        s->kernel[k] = d < 0 ? 1 : w->kernel[d];
        s->stride[k] = d < 0 ? 1 : w->stride[d];
        s->dilate[k] = d < 0 ? 1 : w->dilate[d] + 1;
        s->pad[k] = d < 0 ? 0 : w->pad_l[d];
        s->depth *= s->kernel[k];
        s->places *= s->out[k];
        s->whole = s->whole && s->kernel[k] == 1 && s->stride[k] == 1 && s->pad[k] == 0 &&
                   s->in[k] == s->out[k];
    }
    int64_t each = NEAR / s->depth / 32 * 32;
    each = each < PLACES_LEAST ? PLACES_LEAST : each > PLACES_MOST ? PLACES_MOST : each;
    s->pieces = (s->places + each - 1) / each;
    s->each = ((s->places + s->pieces - 1) / s->pieces + 31) / 32 * 32;
    s->pieces = (s->places + s->each - 1) / s->each;
    int64_t parts = s->n * s->groups * s->pieces;
    s->splits = parts >= threads || s->co < 32 ? 1 : (threads + parts - 1) / parts;
    s->columns = s->whole ? 0 : (s->depth * s->each + 15) / 16 * 16;
    s->work = s->columns + (s->k->gemm_work(s->co, s->each, s->depth) + 15) / 16 * 16;
}

/* One core with AVX-512, ratio to another library's time, these and oneDNN's kernels: 128 of 64
 * channels, 14x14 places of 8 images, windows of one 1.02 and 0.66; 4x4 windows with steps of four
 * 0.89 and 0.51; of sums of 768 and of 1,024 0.84 and 0.95, 0.65 and 0.80. Where windows overlap an
 * image is smaller than its columns, and only those of one channel pay. */
static bool pays(rui_low *lo, const ru_node *n, const rows_state *s)
{
    bool leaves = rui_uses(lo, n->out[0]) == 1 && rui_only_reader(lo, n->out[0]) == NULL;
    bool apart = true, steps = false;
    for (int k = 0; k < AXES; k++) {
        apart = apart && s->stride[k] >= s->kernel[k];
        steps = steps || s->stride[k] > 1;
    }
    bool sums = apart ? s->depth >= DEPTH_LEAST : s->ci == 1 && s->groups == 1 && steps;
    return ru_kern_at(RU_KERN_AVX512) != NULL && leaves && rui_standing(lo, n->in[0])->plain &&
           sums && s->depth <= DEPTH_MOST && s->co >= (s->whole ? CHANNELS_LEAST : COLUMNS_LEAST) &&
           s->places >= PLACES_LEAST;
}

ru_status rui_lower_kern_rows(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    rows_state made;
    if (!rui_inference(lo) || !rui_conv_plain(lo, n, false, &w)) {
        return RU_E_UNSUPPORTED;
    }
    plan(&w, (int64_t)rui_threads(lo), &made);
    if (!pays(lo, n, &made)) {
        return RU_E_UNSUPPORTED;
    }
    rows_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = made;
    rui_buf bufs[R_BUFS] = {[R_X] = rui_in_plain(lo, n->in[0]), [R_W] = rui_in_plain(lo, n->in[1])};
    bufs[R_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
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
