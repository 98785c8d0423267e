/* Decoding of JPEG (TurboJPEG) and PNG (libspng), others by codec.h, and the resize that follows.
 *
 * Pixels are decoded to 4 bytes each (RGBX). The resize is separable: each output row is first
 * summed over source rows into one row of floats, then over columns; weights are a triangle as wide
 * as two output pixels, so that shrinking averages all source pixels and enlarging is plain
 * bilinear. JPEGs much larger than wanted are decoded at 1/2, 1/4 or 1/8 by the decoder itself,
 * which averages blocks and is several times as fast; what is left is at least twice the wanted
 * size, so that the result stays within a few steps of 255 of the slow way (formats_test.c). */
#include "data/format/image.h"
#include "data/format/codec.h"

#include <stdlib.h>
#include <string.h>

#include <spng.h>
#include <turbojpeg.h>

enum { PIXELS_MAX = 1 << 28, CHANNELS = 4 };

/* One decoder with its buffers, used by one thread at a time. */
typedef struct decoder {
    struct decoder *next;
    tjhandle jpeg;
    uint8_t *rgbx; /* decoded image */
    int64_t rgbx_room;
    float *row; /* [width, 4] summed source rows */
    int64_t row_room;
    uint8_t *planes; /* [3, out, out] */
    int64_t planes_room;
    float *weights; /* of both directions */
    int64_t weights_room;
    int64_t width, height; /* of rgbx */
} decoder;

ru_status rui_place_wrap(ru_err *err, ru_status st, const rui_place *at)
{
    if (at->member == NULL) {
        return ru_err_wrap(err, st, "%s", at->path);
    }
    return ru_err_wrap(err, st, "%s: member '%s' at byte %lld", at->path, at->member,
                       (long long)at->offset);
}

/* -- borrowing --------------------------------------------------------------------------------- */

static void decoder_free(decoder *c)
{
    if (c->jpeg != NULL) {
        (void)tjDestroy(c->jpeg);
    }
    free(c->rgbx);
    free(c->row);
    free(c->planes);
    free(c->weights);
    free(c);
}

static decoder *borrow(const ru_dataset *d)
{
    ru_mutex_lock(&d->guard->lock);
    decoder *c = d->guard->decoders;
    if (c != NULL) {
        d->guard->decoders = c->next;
    }
    ru_mutex_unlock(&d->guard->lock);
    if (c == NULL) {
        c = calloc(1, sizeof *c);
        if (c != NULL) {
            c->jpeg = tjInitDecompress();
        }
        if (c != NULL && c->jpeg == NULL) {
            free(c);
            c = NULL;
        }
    }
    return c;
}

static void put_back(const ru_dataset *d, decoder *c)
{
    ru_mutex_lock(&d->guard->lock);
    c->next = d->guard->decoders;
    d->guard->decoders = c;
    ru_mutex_unlock(&d->guard->lock);
}

void rui_image_close(ru_dataset *d)
{
    decoder *c = d->guard->decoders;
    while (c != NULL) {
        decoder *next = c->next;
        decoder_free(c);
        c = next;
    }
    d->guard->decoders = NULL;
}

/* Make *p at least `bytes` large; the content is not kept. */
static ru_status reserve(void **p, int64_t *room, int64_t bytes, ru_err *err)
{
    if (*room >= bytes) {
        return RU_OK;
    }
    free(*p);
    *p = malloc((size_t)bytes);
    *room = *p != NULL ? bytes : 0;
    return *p != NULL ? RU_OK : rui_no_memory(err, "image", bytes);
}

static ru_status reserve_rgbx(decoder *c, int64_t width, int64_t height, ru_err *err)
{
    if (width < 1 || height < 1 || width > PIXELS_MAX / height) {
        return RU_FAIL(err, RU_E_DATA,
                       "the image has %lld x %lld pixels; expected 1 to 2^28 pixels",
                       (long long)width, (long long)height);
    }
    void *p = c->rgbx;
    ru_status st = reserve(&p, &c->rgbx_room, width * height * CHANNELS, err);
    c->rgbx = p;
    c->width = width;
    c->height = height;
    return st;
}

/* -- JPEG -------------------------------------------------------------------------------------- */

static bool is_jpeg(const uint8_t *p, int64_t n)
{
    return n >= 3 && p[0] == 0xff && p[1] == 0xd8 && p[2] == 0xff;
}

static ru_status jpeg_fail(const decoder *c, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "damaged JPEG: %s", tjGetErrorStr2(c->jpeg));
}

static ru_status jpeg_header(decoder *c, const uint8_t *bytes, int64_t n, int *width, int *height,
                             int *space, ru_err *err)
{
    int sampling;
    if (tjDecompressHeader3(c->jpeg, bytes, (unsigned long)n, width, height, &sampling, space) !=
        0) {
        return jpeg_fail(c, err);
    }
    return RU_OK;
}

/* Big or little end first, as the TIFF header says; 0 past the end. */
static uint32_t tiff_number(const uint8_t *p, int64_t n, int64_t at, int bytes, bool big)
{
    uint32_t v = 0;
    for (int i = 0; at >= 0 && at <= n - bytes && i < bytes; i++) {
        v = v << 8 | p[big ? at + i : at + bytes - 1 - i];
    }
    return v;
}

/* Tag 0x0112 of the first directory of TIFF data: 1..8, how a camera was held. */
int rui_tiff_orientation(const uint8_t *p, int64_t n)
{
    bool big = n > 0 && p[0] == 'M';
    int64_t dir = tiff_number(p, n, 4, 4, big), entries = tiff_number(p, n, dir, 2, big);
    for (int64_t i = 0; i < entries && dir + 2 + i * 12 <= n - 12; i++) {
        int64_t at = dir + 2 + i * 12;
        if (tiff_number(p, n, at, 2, big) == 0x0112) {
            uint32_t v = tiff_number(p, n, at + 8, 2, big);
            return v >= 1 && v <= 8 ? (int)v : 1;
        }
    }
    return 1;
}

/* The orientation that a JPEG's Exif segment states; 1: as stored.
 * Source: the Exif standard (CIPA DC-008), tag Orientation. */
static int jpeg_orientation(const uint8_t *p, int64_t n)
{
    for (int64_t at = 2; at + 4 <= n && p[at] == 0xff && p[at + 1] != 0xda;) {
        int64_t size = p[at + 2] << 8 | p[at + 3];
        if (p[at + 1] == 0xe1 && size >= 16 && at + 2 + size <= n &&
            memcmp(p + at + 4, "Exif\0\0", 6) == 0) {
            return rui_tiff_orientation(p + at + 10, size - 8);
        }
        at += 2 + size;
    }
    return 1;
}

/* Turn and mirror the decoded pixels as a viewer shows them: the camera stores the rows of its
 * sensor. */
static ru_status orient(decoder *c, int o, ru_err *err)
{
    int64_t w = c->width, h = c->height, out_w = o >= 5 ? h : w, out_h = o >= 5 ? w : h;
    if (o == 1) {
        return RU_OK;
    }
    uint32_t *out = malloc((size_t)(w * h) * CHANNELS);
    if (out == NULL) {
        return rui_no_memory(err, "image", w * h * CHANNELS);
    }
    for (int64_t y = 0; y < out_h; y++) {
        for (int64_t x = 0; x < out_w; x++) {
            int64_t from_x = o >= 5 ? y : x, from_y = o >= 5 ? x : y;
            from_x = o == 2 || o == 3 || o == 7 || o == 8 ? w - 1 - from_x : from_x;
            from_y = o == 3 || o == 4 || o == 6 || o == 7 ? h - 1 - from_y : from_y;
            memcpy(&out[y * out_w + x], c->rgbx + (from_y * w + from_x) * CHANNELS, CHANNELS);
        }
    }
    free(c->rgbx);
    c->rgbx = (uint8_t *)out;
    c->rgbx_room = w * h * CHANNELS;
    c->width = out_w;
    c->height = out_h;
    return RU_OK;
}

/* Four inks to three colours; files store the inks inverted, as Adobe's programs do. */
static void inks_to_rgb(uint8_t *p, int64_t pixels)
{
    for (int64_t i = 0; i < pixels; i++, p += CHANNELS) {
        for (int k = 0; k < 3; k++) {
            p[k] = (uint8_t)((p[k] * p[3] + 127) / 255);
        }
    }
}

static ru_status decode_jpeg(decoder *c, const uint8_t *bytes, int64_t n, int64_t side_min,
                             ru_err *err)
{
    int width, height, space;
    RU_TRY(jpeg_header(c, bytes, n, &width, &height, &space, err));
    int shorter = width < height ? width : height, scale = 1;
    while (side_min > 0 && scale < 8 && shorter / (2 * scale) >= 2 * side_min) {
        scale *= 2;
    }
    width = (width + scale - 1) / scale;
    height = (height + scale - 1) / scale;
    RU_TRY(reserve_rgbx(c, width, height, err));
    bool inks = space == TJCS_CMYK || space == TJCS_YCCK;
    int rc = tjDecompress2(c->jpeg, bytes, (unsigned long)n, c->rgbx, width, width * CHANNELS,
                           height, inks ? TJPF_CMYK : TJPF_RGBX, 0);
    if (rc != 0 && (tjGetErrorCode(c->jpeg) != TJERR_WARNING ||
                    strstr(tjGetErrorStr2(c->jpeg), "extraneous bytes") == NULL)) {
        return jpeg_fail(c, err); /* stray bytes between markers hurt nothing and are common */
    }
    if (inks) {
        inks_to_rgb(c->rgbx, (int64_t)width * height);
    }
    return orient(c, jpeg_orientation(bytes, n), err);
}

/* -- PNG --------------------------------------------------------------------------------------- */

static bool is_png(const uint8_t *p, int64_t n)
{
    return n >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0;
}

/* Chunk eXIf, wherever it stands: length, name, bytes, checksum. */
static int png_orientation(const uint8_t *p, int64_t n)
{
    for (int64_t at = 8; at + 12 <= n;) {
        int64_t size = tiff_number(p, n, at, 4, true);
        if (size > n - at - 12) {
            break;
        }
        if (memcmp(p + at + 4, "eXIf", 4) == 0) {
            return rui_tiff_orientation(p + at + 8, size);
        }
        at += 12 + size;
    }
    return 1;
}

static ru_status png_fail(int rc, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "damaged PNG: %s", spng_strerror(rc));
}

static ru_status png_start(spng_ctx **out, const uint8_t *bytes, int64_t n, struct spng_ihdr *head,
                           ru_err *err)
{
    spng_ctx *ctx = spng_ctx_new(0);
    if (ctx == NULL) {
        return rui_no_memory(err, "PNG decoder", 0);
    }
    *out = ctx;
    int rc = spng_set_image_limits(ctx, 1 << 20, 1 << 20);
    rc = rc == 0 ? spng_set_chunk_limits(ctx, 1 << 26, 1 << 26) : rc;
    rc = rc == 0 ? spng_set_png_buffer(ctx, bytes, (size_t)n) : rc;
    rc = rc == 0 ? spng_get_ihdr(ctx, head) : rc;
    return rc == 0 ? RU_OK : png_fail(rc, err);
}

static ru_status decode_png(decoder *c, const uint8_t *bytes, int64_t n, ru_err *err)
{
    spng_ctx *ctx = NULL;
    struct spng_ihdr head;
    ru_status st = png_start(&ctx, bytes, n, &head, err);
    if (st == RU_OK) {
        st = reserve_rgbx(c, head.width, head.height, err);
    }
    if (st == RU_OK) {
        int rc = spng_decode_image(ctx, c->rgbx, (size_t)(c->width * c->height * CHANNELS),
                                   SPNG_FMT_RGBA8, 0);
        st = rc == 0 ? RU_OK : png_fail(rc, err);
    }
    spng_ctx_free(ctx);
    return st == RU_OK ? orient(c, png_orientation(bytes, n), err) : st;
}

/* -- other forms ------------------------------------------------------------------------------- */

const rui_codec *rui_codec_find(const uint8_t *bytes, int64_t n)
{
    static const rui_codec *const codecs[] = {&rui_codec_bmp, &rui_codec_gif, &rui_codec_webp};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(codecs); k++) {
        if (codecs[k]->is(bytes, n)) {
            return codecs[k];
        }
    }
    return NULL;
}

static ru_status decode_other(decoder *c, const rui_codec *codec, const uint8_t *bytes, int64_t n,
                              ru_err *err)
{
    int64_t width = 0, height = 0;
    RU_TRY(codec->size(bytes, n, &width, &height, err));
    RU_TRY(reserve_rgbx(c, width, height, err));
    RU_TRY(codec->decode(bytes, n, width, height, c->rgbx, err));
    return orient(c, codec->orientation != NULL ? codec->orientation(bytes, n) : 1, err);
}

/* -- resize ------------------------------------------------------------------------------------ */

/* Weights of one direction: output k is the sum over i < n[k] of w[k * taps + i] * source[from[k] +
 * i]. */
typedef struct taps {
    float *w;
    int32_t *from, *n;
    int64_t taps;
} taps;

/* Outputs first .. first + count - 1 of a line of `in` pixels brought to `out` pixels. */
static void make_taps(taps *t, int64_t in, int64_t out, int64_t first, int64_t count)
{
    double scale = (double)in / (double)out, reach = scale > 1.0 ? scale : 1.0;
    for (int64_t k = 0; k < count; k++) {
        double centre = ((double)(first + k) + 0.5) * scale, sum = 0.0;
        int64_t from = (int64_t)(centre - reach + 0.5), to = (int64_t)(centre + reach + 0.5);
        from = centre - reach + 0.5 < 0.0 ? 0 : from;
        to = to > in ? in : to;
        float *w = t->w + k * t->taps;
        for (int64_t i = from; i < to; i++) {
            double far = ((double)i + 0.5 - centre) / reach;
            double v = far < 0.0 ? 1.0 + far : 1.0 - far;
            w[i - from] = (float)(v > 0.0 ? v : 0.0);
            sum += (double)w[i - from];
        }
        for (int64_t i = 0; i < to - from; i++) {
            w[i] = (float)((double)w[i] / sum);
        }
        t->from[k] = (int32_t)from;
        t->n[k] = (int32_t)(to - from);
    }
}

static int64_t taps_of(int64_t in, int64_t out)
{
    return in > out ? 2 * ((in + out - 1) / out) + 2 : 4;
}

static void sum_rows(const decoder *c, const taps *t, int64_t k, float *RU_RESTRICT row)
{
    int64_t n = c->width * CHANNELS;
    for (int64_t i = 0; i < t->n[k]; i++) {
        const uint8_t *RU_RESTRICT p = c->rgbx + (t->from[k] + i) * n;
        float w = t->w[k * t->taps + i];
        if (i == 0) {
            for (int64_t j = 0; j < n; j++) {
                row[j] = w * (float)p[j];
            }
        } else {
            for (int64_t j = 0; j < n; j++) {
                row[j] += w * (float)p[j];
            }
        }
    }
}

static uint8_t to_pixel(float v)
{
    return (uint8_t)(v < 0.0f ? 0.0f : v > 255.0f ? 255.0f : v + 0.5f);
}

static void sum_columns(const float *row, const taps *t, int64_t count, uint8_t *red, int64_t plane)
{
    for (int64_t k = 0; k < count; k++) {
        float sum[CHANNELS] = {0};
        const float *p = row + (int64_t)t->from[k] * CHANNELS, *w = t->w + k * t->taps;
        for (int32_t i = 0; i < t->n[k]; i++) {
            for (int j = 0; j < CHANNELS; j++) {
                sum[j] += w[i] * p[i * CHANNELS + j];
            }
        }
        red[k] = to_pixel(sum[0]);
        red[plane + k] = to_pixel(sum[1]);
        red[2 * plane + k] = to_pixel(sum[2]);
    }
}

/* Shorter side to `side`, middle side x side into c->planes. */
static ru_status resize(decoder *c, int64_t side, ru_err *err)
{
    bool wide = c->width >= c->height;
    int64_t out_w = wide ? side * c->width / c->height : side;
    int64_t out_h = wide ? side : side * c->height / c->width;
    int64_t taps_x = taps_of(c->width, out_w), taps_y = taps_of(c->height, out_h);
    void *p = c->weights;
    ru_status st = reserve(&p, &c->weights_room, side * (taps_x + taps_y + 4) * 4, err);
    c->weights = p;
    RU_TRY(st);
    p = c->row;
    st = reserve(&p, &c->row_room, c->width * CHANNELS * 4, err);
    c->row = p;
    RU_TRY(st);
    int32_t *whole = (int32_t *)(void *)(c->weights + side * (taps_x + taps_y));
    taps x = {c->weights, whole, whole + side, taps_x};
    taps y = {c->weights + side * taps_x, whole + 2 * side, whole + 3 * side, taps_y};
    make_taps(&x, c->width, out_w, (out_w - side + 1) / 2, side);
    make_taps(&y, c->height, out_h, (out_h - side + 1) / 2, side);
    for (int64_t k = 0; k < side; k++) {
        sum_rows(c, &y, k, c->row);
        sum_columns(c->row, &x, side, c->planes + k * side, side * side);
    }
    return RU_OK;
}

static void split_planes(decoder *c)
{
    int64_t n = c->width * c->height;
    for (int64_t i = 0; i < n; i++) {
        c->planes[i] = c->rgbx[i * CHANNELS];
        c->planes[n + i] = c->rgbx[i * CHANNELS + 1];
        c->planes[2 * n + i] = c->rgbx[i * CHANNELS + 2];
    }
}

/* -- the two calls ----------------------------------------------------------------------------- */

static ru_status neither(const uint8_t *p, int64_t n, ru_err *err)
{
    return RU_FAIL(
        err, RU_E_DATA,
        "the file is no JPEG, PNG, BMP, GIF or WebP (%lld bytes, beginning with %02x %02x %02x "
        "%02x)",
        (long long)n, n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0);
}

/* Sides of the picture as it is shown. */
static void turn(int orientation, int64_t w, int64_t h, int64_t *width, int64_t *height)
{
    *width = orientation >= 5 ? h : w;
    *height = orientation >= 5 ? w : h;
}

ru_status rui_image_measure(const ru_dataset *d, const uint8_t *bytes, int64_t n, int64_t *width,
                            int64_t *height, ru_err *err)
{
    if (is_jpeg(bytes, n)) {
        decoder *c = borrow(d);
        if (c == NULL) {
            return rui_no_memory(err, "JPEG decoder", 0);
        }
        int w = 0, h = 0, space = 0;
        ru_status st = jpeg_header(c, bytes, n, &w, &h, &space, err);
        put_back(d, c);
        turn(jpeg_orientation(bytes, n), w, h, width, height);
        return st;
    }
    if (is_png(bytes, n)) {
        spng_ctx *ctx = NULL;
        struct spng_ihdr head = {0};
        ru_status st = png_start(&ctx, bytes, n, &head, err);
        spng_ctx_free(ctx);
        turn(png_orientation(bytes, n), head.width, head.height, width, height);
        return st;
    }
    const rui_codec *other = rui_codec_find(bytes, n);
    if (other != NULL) {
        int64_t w = 0, h = 0;
        ru_status st = other->size(bytes, n, &w, &h, err);
        turn(other->orientation != NULL ? other->orientation(bytes, n) : 1, w, h, width, height);
        return st;
    }
    return neither(bytes, n, err);
}

static ru_status decode_any(decoder *c, const uint8_t *bytes, int64_t n, int64_t side_min,
                            ru_err *err)
{
    if (is_jpeg(bytes, n)) {
        return decode_jpeg(c, bytes, n, side_min, err);
    }
    if (is_png(bytes, n)) {
        return decode_png(c, bytes, n, err);
    }
    const rui_codec *other = rui_codec_find(bytes, n);
    return other != NULL ? decode_other(c, other, bytes, n, err) : neither(bytes, n, err);
}

static ru_status decode_with(const ru_dataset *d, decoder *c, const uint8_t *bytes, int64_t n,
                             int64_t width, int64_t height, bool resized, void *into, ru_err *err)
{
    RU_TRY(decode_any(c, bytes, n, resized ? width : 0, err));
    void *p = c->planes;
    ru_status st = reserve(&p, &c->planes_room, 3 * width * height, err);
    c->planes = p;
    RU_TRY(st);
    if (resized && (c->width != width || c->height != height)) {
        RU_TRY(resize(c, width, err));
    } else if (c->width == width && c->height == height) {
        split_planes(c);
    } else {
        return RU_FAIL(err, RU_E_DATA,
                       "the image has %lld x %lld pixels, but the first image has %lld x %lld; set "
                       "image_size to resize all images",
                       (long long)c->width, (long long)c->height, (long long)width,
                       (long long)height);
    }
    rui_pixels_put(d, c->planes, 3 * width * height, into);
    return RU_OK;
}

ru_status rui_image_decode(const ru_dataset *d, const uint8_t *bytes, int64_t n, int64_t width,
                           int64_t height, bool resize_it, void *into, ru_err *err)
{
    RU_CHECK(!resize_it || width == height);
    decoder *c = borrow(d);
    if (c == NULL) {
        return rui_no_memory(err, "image decoder", 0);
    }
    ru_status st = decode_with(d, c, bytes, n, width, height, resize_it, into, err);
    put_back(d, c);
    return st;
}
