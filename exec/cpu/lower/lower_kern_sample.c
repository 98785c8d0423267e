/* Col2Im and GridSample on exec/cpu/kern/k_sample.c. Fewer than three axes of an image get leading
 * ones of one element. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    AXES = 3,
    LINE_MAX = 4 << 20, /* floats of a line more than the tensors hold: pads can be of any size */
};

/* -- columns to images ---------------------------------------------------------------------------
 */

typedef struct fold_state {
    const ru_kern_numbers *k;
    ru_kern_fold f;
    int64_t planes, x_plane, y_plane, work;
} fold_state;

/* bufs: x y work */
static void fold_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const fold_state *s = state;
    for (int64_t p = begin; p < end; p++) {
        s->k->col2im(&s->f, (const float *)bufs[0] + p * s->x_plane, own,
                     (float *)bufs[1] + p * s->y_plane);
    }
}

static ru_status fold_run(void *state, void *const *bufs, const rui_run *run)
{
    const fold_state *s = state;
    rui_kern_for_own(run, fold_part, s, bufs, s->planes, rui_kern_grain(s->x_plane), bufs[2],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

static int64_t attr_at(const ru_node *n, ru_attr_key key, uint32_t i, int64_t otherwise)
{
    uint32_t count;
    const int64_t *v = ru_node_ints(n, key, &count);
    return v != NULL && i < count ? v[i] : otherwise;
}

/* False: not a fold that the kernel takes. */
static bool fold_of(const ru_node *n, const ru_type *x, const ru_type *y, const int64_t *block,
                    ru_kern_fold *f)
{
    uint32_t rank = y->rank - 2;
    int64_t taps = 1, windows = 1;
    for (uint32_t k = 0; k < AXES; k++) {
        bool own = k + rank >= AXES;
        uint32_t d = own ? k + rank - AXES : 0;
        f->image[k] = own ? y->dims[d + 2] : 1;
        f->taps[k] = own ? block[d] : 1;
        f->stride[k] = own ? attr_at(n, RU_ATTR_strides, d, 1) : 1;
        f->dilation[k] = own ? attr_at(n, RU_ATTR_dilations, d, 1) : 1;
        f->before[k] = own ? attr_at(n, RU_ATTR_pads, d, 0) : 0;
        int64_t after = own ? attr_at(n, RU_ATTR_pads, rank + d, 0) : 0;
        int64_t reach = (f->taps[k] - 1) * f->dilation[k] + 1;
        int64_t room = f->image[k] + f->before[k] + after - reach;
        if (f->taps[k] < 1 || f->stride[k] < 1 || f->dilation[k] < 1 || f->before[k] < 0 ||
            after < 0 || room < 0) {
            return false;
        }
        f->windows[k] = room / f->stride[k] + 1;
        taps *= f->taps[k];
        windows *= f->windows[k];
    }
    return x->dims[2] == windows && x->dims[1] == y->dims[1] * taps;
}

/* Col2Im(x, image_shape, block_shape) */
ru_status rui_lower_kern_col2im(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    uint32_t n_block;
    const int64_t *block = rui_const_i64(lo, n->in[2], &n_block);
    ru_kern_fold f;
    if (x->dtype != RU_F32 || x->rank != 3 || y->rank < 3 || y->rank - 2 > AXES || block == NULL ||
        n_block != y->rank - 2 || ru_type_count(x) <= 0 || ru_type_count(y) <= 0 ||
        !fold_of(n, x, y, block, &f)) {
        return RU_E_UNSUPPORTED;
    }
    fold_state made = {.k = ru_kern_numbers_best(),
                       .f = f,
                       .planes = y->dims[0] * y->dims[1],
                       .x_plane = f.taps[0] * f.taps[1] * f.taps[2] * x->dims[2],
                       .y_plane = rui_dims(y, 2, y->rank)};
    made.work = made.k->col2im_work(&f);
    if (made.work - LINE_MAX > made.x_plane + made.y_plane) {
        return RU_E_UNSUPPORTED;
    }
    fold_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = made;
    int64_t work = s->work * (int64_t)rui_threads(lo) * (int64_t)sizeof(float);
    rui_buf bufs[3] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, RU_F32)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32)), rui_scratch(lo, work)};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern col2im", .fn = fold_run, .state = s, .bufs = bufs, .n_bufs = 3});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}

/* -- samples -------------------------------------------------------------------------------------
 */

typedef struct sample_state {
    const ru_kern_numbers *k;
    ru_kern_sampler s;
    int64_t images, channels, plane, places; /* of an image */
    int64_t work;                            /* bytes */
} sample_state;

/* -1 .. 1 to elements, in f32 without fused products: which element is nearest depends on it. */
static void places_of(const ru_kern_sampler *s, const float *grid, int64_t n, int64_t axis,
                      float *to)
{
    const float size = (float)s->size[axis];
    grid += s->axes - 1 - axis; /* a grid names the last axis first */
    for (int64_t j = 0; j < n; j++) {
        float g = grid[j * s->axes] + 1.0f;
        float wide = g * size; /* of its own: products fuse within an expression alone */
        to[j] = s->align ? g / 2.0f * (size - 1.0f) : (wide - 1.0f) / 2.0f;
    }
}

/* bufs: x grid y work */
static void sample_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    enum { N = RU_KERN_SAMPLES };
    const sample_state *s = state;
    const int64_t pieces = (s->places + N - 1) / N;
    float place[AXES][N];
    const float *const all[AXES] = {place[0], place[1], place[2]};
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / pieces, at = i % pieces * N;
        int64_t n = s->places - at < N ? s->places - at : N;
        for (int64_t d = 0; d < s->s.axes; d++) {
            places_of(&s->s, (const float *)bufs[1] + (image * s->places + at) * s->s.axes, n, d,
                      place[d]);
        }
        s->k->sample_taps(&s->s, all, n, own);
        for (int64_t c = image * s->channels; c < (image + 1) * s->channels; c++) {
            s->k->sample(&s->s, own, (const float *)bufs[0] + c * s->plane,
                         (float *)bufs[2] + c * s->places + at, n);
        }
    }
}

static ru_status sample_run(void *state, void *const *bufs, const rui_run *run)
{
    const sample_state *s = state;
    int64_t pieces = (s->places + RU_KERN_SAMPLES - 1) / RU_KERN_SAMPLES;
    rui_kern_for_own(run, sample_part, s, bufs, s->images * pieces,
                     rui_kern_grain(s->channels * RU_KERN_SAMPLES), bufs[3], s->work);
    return RU_OK;
}

/* GridSample(x, grid) */
ru_status rui_lower_kern_sample(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *grid = rui_type(lo, n->in[1]);
    const ru_type *y = rui_type(lo, n->out[0]);
    char mode = ru_node_str(n, RU_ATTR_mode, "linear")[0];
    char pad = ru_node_str(n, RU_ATTR_padding_mode, "zeros")[0];
    if (x->dtype != RU_F32 || grid->dtype != RU_F32 || x->rank < 3 || x->rank - 2 > AXES ||
        ru_type_count(x) <= 0 || ru_type_count(y) <= 0 || rui_dims(x, 2, x->rank) > INT32_MAX) {
        return RU_E_UNSUPPORTED;
    }
    sample_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (sample_state){.k = ru_kern_numbers_best(),
                        .s = {.mode = mode == 'n'   ? RU_KERN_SAMPLE_NEAREST
                                      : mode == 'c' ? RU_KERN_SAMPLE_CUBIC
                                                    : RU_KERN_SAMPLE_LINEAR,
                              .pad = pad == 'z'   ? RU_KERN_SAMPLE_ZEROS
                                     : pad == 'b' ? RU_KERN_SAMPLE_BORDER
                                                  : RU_KERN_SAMPLE_REFLECT,
                              .align = ru_node_int(n, RU_ATTR_align_corners, 0) != 0,
                              .axes = x->rank - 2},
                        .images = x->dims[0],
                        .channels = x->dims[1],
                        .plane = rui_dims(x, 2, x->rank),
                        .places = rui_dims(y, 2, y->rank)};
    for (int64_t d = 0; d < s->s.axes; d++) {
        s->s.size[d] = x->dims[d + 2];
    }
    s->work = (s->k->sample_work(&s->s) + 63) / 64 * 64;
    rui_buf bufs[4] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, RU_F32)),
                       rui_in(lo, n->in[1], rui_plain_as(lo, grid, RU_F32)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32)),
                       rui_scratch(lo, s->work * (int64_t)rui_threads(lo))};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern sample", .fn = sample_run, .state = s, .bufs = bufs, .n_bufs = 4});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}
