#include "data/augment.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum {
    BLOCKS = 4,     /* of random words, for one sample */
    MIX_SHIFT = 10, /* 2^10 blocks for the draw of mixup, which takes a varying number */
};
static const uint64_t stream_change = (uint64_t)0x6175676d << 32; /* "augm" */
static const uint64_t stream_mix = (uint64_t)0x6d697875 << 32;    /* "mixu" */

/* Which word says what. */
enum {
    W_FLIP_X,
    W_FLIP_Y,
    W_CROP_Y,
    W_CROP_X,
    W_TURN,
    W_BRIGHT,
    W_CONTRAST,
    W_SATURATE,
    W_CUT_Y,
    W_CUT_X
};

typedef struct draw {
    uint32_t w[4 * BLOCKS];
} draw;

static draw draw_of(const rui_augmenter *a, int64_t epoch, int64_t index)
{
    draw d;
    for (uint32_t k = 0; k < BLOCKS; k++) {
        ru_philox_at(a->seed, stream_change + (uint64_t)epoch, (uint64_t)index * BLOCKS + k,
                     d.w + (size_t)4 * k);
    }
    return d;
}

/* In [-1, 1). */
static double spread(uint32_t word)
{
    return (double)word * (2.0 / 4294967296.0) - 1.0;
}

/* In 0 .. n-1. */
static int64_t below(uint32_t word, int64_t n)
{
    return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32);
}

/* -- places ------------------------------------------------------------------------------------ */

/* The image, padded with black, cut to its size elsewhere, then flipped. */
static void crop_flip(const rui_augmenter *a, const draw *r, float *x)
{
    int64_t h = a->height, w = a->width, pad = a->how.crop;
    int64_t dy = below(r->w[W_CROP_Y], 2 * pad + 1) - pad;
    int64_t dx = below(r->w[W_CROP_X], 2 * pad + 1) - pad;
    bool fx = (a->how.flip & RU_FLIP_HORIZONTAL) != 0 && r->w[W_FLIP_X] >> 31 != 0;
    bool fy = (a->how.flip & RU_FLIP_VERTICAL) != 0 && r->w[W_FLIP_Y] >> 31 != 0;
    float black = (float)a->d->shift;
    if (dy == 0 && dx == 0 && !fx && !fy) {
        return;
    }
    memcpy(a->scratch, x, (size_t)a->n_x * sizeof *x);
    for (int64_t c = 0; c < a->channels; c++) {
        for (int64_t i = 0; i < h; i++) {
            int64_t si = (fy ? h - 1 - i : i) + dy;
            const float *from = a->scratch + (c * h + si) * w;
            float *to = x + (c * h + i) * w;
            bool in = si >= 0 && si < h;
            for (int64_t j = 0; j < w; j++) {
                int64_t sj = (fx ? w - 1 - j : j) + dx;
                to[j] = in && sj >= 0 && sj < w ? from[sj] : black;
            }
        }
    }
}

static double pixel(const float *plane, int64_t h, int64_t w, int64_t i, int64_t j, double black)
{
    return i >= 0 && i < h && j >= 0 && j < w ? (double)plane[i * w + j] : black;
}

/* Counter-clockwise about the middle, bilinear; black comes in at the corners. Sine and cosine are
 * rounded to f32, so that another implementation gets the same bits. */
static void rotate(const rui_augmenter *a, const draw *r, float *x)
{
    int64_t h = a->height, w = a->width;
    double turn = spread(r->w[W_TURN]) * a->how.rotation / 360.0;
    turn = turn < 0 ? turn + 1.0 : turn;
    turn = turn < 1 ? turn : 0; /* -1e-20 + 1 */
    double cos = (double)(float)ru_math_cos2pi(turn), sin = (double)(float)ru_math_sin2pi(turn);
    double ci = (double)(h - 1) / 2, cj = (double)(w - 1) / 2, black = a->d->shift;
    black = (double)(float)black;
    memcpy(a->scratch, x, (size_t)a->n_x * sizeof *x);
    for (int64_t i = 0; i < h; i++) {
        for (int64_t j = 0; j < w; j++) {
            double y = (double)i - ci, z = (double)j - cj;
            double si = z * sin + y * cos + ci, sj = z * cos - y * sin + cj;
            double fi = (double)(int64_t)(si + (double)h + (double)w) - (double)(h + w);
            double fj = (double)(int64_t)(sj + (double)h + (double)w) - (double)(h + w);
            int64_t i0 = (int64_t)fi, j0 = (int64_t)fj;
            double u = si - fi, v = sj - fj;
            for (int64_t c = 0; c < a->channels; c++) {
                const float *p = a->scratch + c * h * w;
                double top =
                    (1 - v) * pixel(p, h, w, i0, j0, black) + v * pixel(p, h, w, i0, j0 + 1, black);
                double low = (1 - v) * pixel(p, h, w, i0 + 1, j0, black) +
                             v * pixel(p, h, w, i0 + 1, j0 + 1, black);
                x[(c * h + i) * w + j] = (float)((1 - u) * top + u * low);
            }
        }
    }
}

/* -- colours ----------------------------------------------------------------------------------- */

/* Rec. 601 luma of one pixel; images without three channels: the mean of them. */
static double gray(const rui_augmenter *a, const float *x, int64_t at)
{
    int64_t plane = a->height * a->width;
    if (a->channels == 3) {
        return 0.299 * (double)x[at] + 0.587 * (double)x[plane + at] +
               0.114 * (double)x[2 * plane + at];
    }
    double sum = 0;
    for (int64_t c = 0; c < a->channels; c++) {
        sum += (double)x[c * plane + at];
    }
    return sum / (double)a->channels;
}

static void colour(const rui_augmenter *a, const draw *r, float *x)
{
    const ru_augment *how = &a->how;
    int64_t plane = a->height * a->width;
    double black = (double)(float)a->d->shift, mean = 0;
    double bright = 1 + spread(r->w[W_BRIGHT]) * how->brightness;
    for (int64_t k = 0; how->brightness > 0 && k < a->n_x; k++) {
        x[k] = (float)(black + ((double)x[k] - black) * bright);
    }
    double contrast = 1 + spread(r->w[W_CONTRAST]) * how->contrast;
    for (int64_t k = 0; how->contrast > 0 && k < plane; k++) {
        mean += gray(a, x, k);
    }
    mean /= (double)plane;
    for (int64_t k = 0; how->contrast > 0 && k < a->n_x; k++) {
        x[k] = (float)(mean + ((double)x[k] - mean) * contrast);
    }
    double saturate = 1 + spread(r->w[W_SATURATE]) * how->saturation;
    for (int64_t k = 0; how->saturation > 0 && k < plane; k++) {
        double g = gray(a, x, k);
        for (int64_t c = 0; c < a->channels; c++) {
            x[c * plane + k] = (float)(g + ((double)x[c * plane + k] - g) * saturate);
        }
    }
}

/* A square of zeros with its middle anywhere in the image: the part inside is cut.
 * Source: devries-taylor-2017. */
static void cutout(const rui_augmenter *a, const draw *r, float *x)
{
    int64_t h = a->height, w = a->width, side = a->how.cutout;
    int64_t top = below(r->w[W_CUT_Y], h) - side / 2, left = below(r->w[W_CUT_X], w) - side / 2;
    int64_t end_i = top + side < h ? top + side : h, end_j = left + side < w ? left + side : w;
    for (int64_t c = 0; c < a->channels; c++) {
        for (int64_t i = top > 0 ? top : 0; i < end_i; i++) {
            for (int64_t j = left > 0 ? left : 0; j < end_j; j++) {
                x[(c * h + i) * w + j] = 0;
            }
        }
    }
}

/* -- public ------------------------------------------------------------------------------------ */

static bool changes_images(const ru_augment *a)
{
    return a->flip != RU_FLIP_NONE || a->crop > 0 || a->rotation > 0 || a->brightness > 0 ||
           a->contrast > 0 || a->saturation > 0 || a->cutout > 0;
}

bool rui_augments(const ru_augment *a)
{
    return changes_images(a) || a->mixup > 0;
}

static ru_status check(const rui_augmenter *a, ru_err *err)
{
    const ru_augment *how = &a->how;
    const ru_type *x = &a->d->fields[0].type;
    char is[160];
    ru_type_print(NULL, x, is, sizeof is);
    if (x->dtype != RU_F32 || (x->rank != 3 && changes_images(how))) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.augment: the inputs are %s, expected %s; leave data.augment out", is,
                       x->dtype != RU_F32 ? "f32 numbers" : "images [channels,height,width]");
    }
    int64_t side = a->height < a->width ? a->height : a->width;
    if (x->rank == 3 && (how->crop > side || how->cutout > 2 * side)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.augment: %s is %lld pixels, but the images have %lld x %lld; make it "
                       "smaller",
                       how->crop > side ? "crop" : "cutout",
                       (long long)(how->crop > side ? how->crop : how->cutout),
                       (long long)a->height, (long long)a->width);
    }
    if (how->saturation > 0 && a->channels != 3) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.augment.saturation needs images of 3 channels; these have %lld",
                       (long long)a->channels);
    }
    if (how->mixup > 0 && a->y < 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.augment.mixup needs labels: classes, or numbers (train.loss: mse)");
    }
    return RU_OK;
}

ru_status rui_augmenter_init(rui_augmenter *out, const ru_dataset *d, const ru_augment *how,
                             uint64_t seed, ru_err *err)
{
    const ru_type *x = &d->fields[0].type;
    bool image = x->rank == 3;
    *out = (rui_augmenter){.d = d,
                           .how = *how,
                           .seed = seed,
                           .channels = image ? x->dims[0] : 1,
                           .height = image ? x->dims[1] : 1,
                           .width = image ? x->dims[2] : 1,
                           .n_x = ru_type_count(x),
                           .y = -1};
    for (uint32_t k = 1; k < d->n_fields; k++) {
        out->y = d->fields[k].type.dtype == RU_F32 ? (int32_t)k : out->y;
    }
    RU_TRY(check(out, err));
    int64_t sum = 0;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        sum += (d->field_bytes[k] + 63) / 64 * 64;
    }
    out->scratch = malloc((size_t)d->field_bytes[0]);
    uint8_t *at = malloc((size_t)sum);
    out->spare[0] = at;
    if (out->scratch == NULL || at == NULL) {
        return rui_no_memory(err, "augmentation", sum + d->field_bytes[0]);
    }
    for (uint32_t k = 0; k < d->n_fields; k++) {
        out->spare[k] = at;
        at += (d->field_bytes[k] + 63) / 64 * 64;
    }
    return RU_OK;
}

void rui_augmenter_fini(rui_augmenter *a)
{
    free(a->scratch);
    free(a->spare[0]);
    *a = (rui_augmenter){0};
}

ru_status rui_augment_read(const rui_augmenter *a, int64_t epoch, int64_t index,
                           void *const *fields, ru_err *err)
{
    RU_TRY(rui_read_stored(a->d, index, fields, err));
    draw r = draw_of(a, epoch, index);
    float *x = fields[0];
    if (a->how.flip != RU_FLIP_NONE || a->how.crop > 0) {
        crop_flip(a, &r, x);
    }
    if (a->how.rotation > 0) {
        rotate(a, &r, x);
    }
    colour(a, &r, x);
    RU_TRY(rui_normalize(a->d, fields, 1, err));
    if (a->how.cutout > 0) {
        cutout(a, &r, x);
    }
    return RU_OK;
}

/* From Beta(mixup, mixup). Source: zhang-2018-mixup. */
static double share(const rui_augmenter *a, int64_t epoch, int64_t index)
{
    ru_rng r = ru_rng_from(a->seed, stream_mix + (uint64_t)epoch);
    r.index = (uint64_t)index << MIX_SHIFT;
    double own = ru_rng_gamma(&r, a->how.mixup), other = ru_rng_gamma(&r, a->how.mixup);
    return own + other > 0 ? own / (own + other) : 1; /* both 0: a mixup near 0 */
}

void rui_augment_mix(const rui_augmenter *a, int64_t epoch, int64_t index, void *const *fields,
                     void *const *partner)
{
    RU_CHECK(a->y > 0);
    float m = (float)share(a, epoch, index), n = 1.0f - m;
    uint32_t y = (uint32_t)a->y;
    const struct {
        float *to;
        const float *from;
        int64_t n;
    } parts[] = {{fields[0], partner[0], a->n_x},
                 {fields[y], partner[y], ru_type_count(&a->d->fields[y].type)}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(parts); k++) {
        for (int64_t i = 0; i < parts[k].n; i++) {
            parts[k].to[i] = m * parts[k].to[i] + n * parts[k].from[i];
        }
    }
}
