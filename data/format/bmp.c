/* BMP: rows from the bottom up (or down), each padded to 4 bytes, of 1, 4 or 8 bits that choose a
 * colour, or of 16, 24 or 32 bits; 4 and 8 bits also as runs.
 *
 *     14 bytes file header (place of the pixels at 10) | 12 or 40 and more bytes info header |
 * masks of 16 and 32 bits | colours of 3 or 4 bytes | pixels
 *
 * Source: the description of BITMAPINFOHEADER and of its compressions in Microsoft's documents */
#include "data/format/codec.h"

#include <string.h>

enum { PLAIN = 0, RUNS_8 = 1, RUNS_4 = 2, MASKS = 3, MASKS_ALPHA = 6, SIDE_MAX = 1 << 20 };

typedef struct bmp {
    const uint8_t *p; /* [n] the file */
    int64_t n, width, height, pixels_at, colours_at, n_colours;
    int colour_bytes, bits, kind;
    bool down; /* the first row is the top */
    uint32_t masks[3];
} bmp;

static uint32_t number(const uint8_t *p, int bytes)
{
    uint32_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        v = v << 8 | p[i];
    }
    return v;
}

static bool is_bmp(const uint8_t *p, int64_t n)
{
    return n >= 26 && p[0] == 'B' && p[1] == 'M';
}

static ru_status damaged(const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "damaged BMP: %s", what);
}

static void read_info(bmp *b, int64_t info)
{
    const uint8_t *p = b->p;
    int32_t height = info == 12 ? (int32_t)number(p + 20, 2) : (int32_t)number(p + 22, 4);
    b->width = info == 12 ? (int32_t)number(p + 18, 2) : (int32_t)number(p + 18, 4);
    b->down = height < 0;
    b->height = height < 0 ? -(int64_t)height : height;
    b->bits = (int)number(p + (info == 12 ? 24 : 28), 2);
    b->kind = info == 12 ? PLAIN : (int)number(p + 30, 4);
    b->n_colours = info == 12 ? 0 : number(p + 46, 4);
    b->colour_bytes = info == 12 ? 3 : 4;
}

static ru_status read_masks(bmp *b, int64_t info, ru_err *err)
{
    static const uint32_t of_16[] = {0x7c00, 0x3e0, 0x1f}, of_32[] = {0xff0000, 0xff00, 0xff};
    memcpy(b->masks, b->bits == 16 ? of_16 : of_32, sizeof b->masks);
    if (b->kind != MASKS && b->kind != MASKS_ALPHA) {
        return RU_OK;
    }
    if (b->n < 14 + 40 + 12) {
        return damaged("its masks are cut off", err);
    }
    for (int k = 0; k < 3; k++) {
        b->masks[k] = number(b->p + 54 + 4 * k, 4);
    }
    b->colours_at += info == 40 ? 12 : 0;
    return b->masks[0] != 0 && b->masks[1] != 0 && b->masks[2] != 0
               ? RU_OK
               : damaged("a colour has no bits", err);
}

static ru_status open_bmp(bmp *b, const uint8_t *p, int64_t n, ru_err *err)
{
    int64_t info = number(p + 14, 4);
    *b = (bmp){.p = p, .n = n, .pixels_at = number(p + 10, 4)};
    if ((info != 12 && info < 40) || info > n - 14) {
        return damaged("its header is cut off or unknown", err);
    }
    read_info(b, info);
    b->colours_at = 14 + info;
    if (b->width < 1 || b->height < 1 || b->width > SIDE_MAX || b->height > SIDE_MAX) {
        return damaged("its sides are not positive numbers of pixels", err);
    }
    bool runs = (b->kind == RUNS_8 && b->bits == 8) || (b->kind == RUNS_4 && b->bits == 4);
    bool masks = (b->kind == MASKS || b->kind == MASKS_ALPHA) && (b->bits == 16 || b->bits == 32);
    bool plain = b->kind == PLAIN && (b->bits == 1 || b->bits == 4 || b->bits == 8 ||
                                      b->bits == 16 || b->bits == 24 || b->bits == 32);
    if (!runs && !masks && !plain) {
        return RU_FAIL(err, RU_E_DATA, "BMP of %d bits and compression %d is not read", b->bits,
                       b->kind);
    }
    RU_TRY(read_masks(b, info, err));
    if (b->bits <= 8 && (b->n_colours == 0 || b->n_colours > 1 << b->bits)) {
        b->n_colours = 1 << b->bits;
    }
    return RU_OK;
}

static ru_status bmp_size(const uint8_t *p, int64_t n, int64_t *width, int64_t *height, ru_err *err)
{
    bmp b;
    RU_TRY(open_bmp(&b, p, n, err));
    *width = b.width;
    *height = b.height;
    return RU_OK;
}

/* The bits of a mask as 0..255. */
static uint8_t part(uint32_t v, uint32_t mask)
{
    int shift = __builtin_ctz(mask);
    uint64_t most = mask >> shift;
    return (uint8_t)((((uint64_t)(v & mask) >> shift) * 255 + most / 2) / most);
}

static void put_colour(const bmp *b, uint32_t k, uint8_t *out)
{
    int64_t at = b->colours_at + (int64_t)k * b->colour_bytes;
    bool some = k < b->n_colours && at + 3 <= b->n;
    for (int i = 0; i < 3; i++) {
        out[i] = some ? b->p[at + 2 - i] : 0;
    }
}

static uint8_t *place(const bmp *b, uint8_t *rgbx, int64_t x, int64_t row)
{
    return rgbx + ((b->down ? row : b->height - 1 - row) * b->width + x) * 4;
}

static void put_row(const bmp *b, const uint8_t *p, int64_t row, uint8_t *rgbx)
{
    for (int64_t x = 0; x < b->width; x++) {
        uint8_t *out = place(b, rgbx, x, row);
        if (b->bits <= 8) {
            int shift = 8 - b->bits - (int)(x * b->bits % 8);
            put_colour(b, (uint32_t)(p[x * b->bits / 8] >> shift) & ((1U << b->bits) - 1), out);
        } else if (b->bits == 24) {
            out[0] = p[3 * x + 2];
            out[1] = p[3 * x + 1];
            out[2] = p[3 * x];
        } else {
            uint32_t v = number(p + x * b->bits / 8, b->bits / 8);
            for (int i = 0; i < 3; i++) {
                out[i] = part(v, b->masks[i]);
            }
        }
    }
}

/* Pixel `i` of a run of the bytes at p. */
static uint32_t run_pixel(const bmp *b, const uint8_t *p, int64_t i, bool literal)
{
    if (b->bits == 8) {
        return p[literal ? i : 0];
    }
    uint8_t two = p[literal ? i / 2 : 0];
    return i % 2 == 0 ? two >> 4 : two & 15;
}

static ru_status put_runs(const bmp *b, uint8_t *rgbx, ru_err *err)
{
    const uint8_t *p = b->p + b->pixels_at, *end = b->p + b->n;
    int64_t x = 0, row = 0;
    for (int64_t k = 0; k < b->width * b->height; k++) {
        put_colour(b, 0, rgbx + 4 * k);
    }
    while (end - p >= 2 && !(p[0] == 0 && p[1] == 1)) {
        bool literal = p[0] == 0 && p[1] > 2;
        int64_t n = literal ? p[1] : p[0];
        int64_t bytes = literal ? (b->bits == 8 ? n : (n + 1) / 2) : 1;
        const uint8_t *data = literal ? p + 2 : p + 1;
        if (p[0] == 0 && p[1] == 0) {
            x = 0;
            row++;
        } else if (p[0] == 0 && p[1] == 2) {
            x += end - p >= 4 ? p[2] : 0;
            row += end - p >= 4 ? p[3] : 0;
            p += end - p >= 4 ? 2 : 0;
        } else if (end - data < bytes) {
            return damaged("its runs are cut off", err);
        }
        for (int64_t i = 0; i < n && p[0] + literal > 0; i++, x++) {
            if (x < b->width && row < b->height) {
                put_colour(b, run_pixel(b, data, i, literal), place(b, rgbx, x, row));
            }
        }
        p += literal ? 2 + (bytes + 1) / 2 * 2 : 2;
    }
    bool whole = row >= b->height || (row == b->height - 1 && x >= b->width);
    return whole || end - p >= 2 ? RU_OK : damaged("its runs are cut off", err);
}

static ru_status bmp_decode(const uint8_t *p, int64_t n, int64_t width, int64_t height,
                            uint8_t *rgbx, ru_err *err)
{
    bmp b;
    RU_TRY(open_bmp(&b, p, n, err));
    RU_CHECK(b.width == width && b.height == height);
    int64_t row_bytes = (b.width * b.bits + 31) / 32 * 4;
    if (b.pixels_at > n) {
        return damaged("its pixels are cut off", err);
    }
    if (b.kind == RUNS_8 || b.kind == RUNS_4) {
        return put_runs(&b, rgbx, err);
    }
    if ((n - b.pixels_at) / row_bytes < b.height) {
        return damaged("its pixels are cut off", err);
    }
    for (int64_t row = 0; row < b.height; row++) {
        put_row(&b, p + b.pixels_at + row * row_bytes, row, rgbx);
    }
    return RU_OK;
}

const rui_codec rui_codec_bmp = {
    .name = "BMP", .is = is_bmp, .size = bmp_size, .decode = bmp_decode};
