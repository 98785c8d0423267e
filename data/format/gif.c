/* GIF by giflib: the first picture, on the background where it does not cover the canvas. */
#include "data/format/codec.h"

#include <stdlib.h>
#include <string.h>

static bool is_gif(const uint8_t *p, int64_t n)
{
    return n >= 10 && (memcmp(p, "GIF87a", 6) == 0 || memcmp(p, "GIF89a", 6) == 0);
}

static ru_status gif_size(const uint8_t *p, int64_t n, int64_t *width, int64_t *height, ru_err *err)
{
    (void)n;
    (void)err;
    *width = p[6] | p[7] << 8;
    *height = p[8] | p[9] << 8;
    return RU_OK;
}

#ifdef RU_HAS_GIF
#include <gif_lib.h>

enum { PICTURE_MAX = 1 << 28 }; /* pixels */

typedef struct input {
    const uint8_t *p;
    int64_t left;
} input;

static int take(GifFileType *g, GifByteType *into, int n)
{
    input *in = g->UserData;
    int64_t k = n < in->left ? n : in->left;
    memcpy(into, in->p, (size_t)k);
    in->p += k;
    in->left -= k;
    return (int)k;
}

static ru_status gif_fail(int code, ru_err *err)
{
    const char *text = GifErrorString(code);
    return RU_FAIL(err, RU_E_DATA, "damaged GIF: %s", text != NULL ? text : "it has no picture");
}

static void put_colour(const ColorMapObject *map, int k, uint8_t *out)
{
    bool some = map != NULL && k >= 0 && k < map->ColorCount;
    out[0] = some ? map->Colors[k].Red : 0;
    out[1] = some ? map->Colors[k].Green : 0;
    out[2] = some ? map->Colors[k].Blue : 0;
}

/* A picture may be larger than the canvas, and far larger than its own bytes. */
static ru_status read_place(GifFileType *g, ru_err *err)
{
    if (DGifGetImageDesc(g) == GIF_ERROR) {
        return gif_fail(g->Error, err);
    }
    if ((int64_t)g->Image.Width * g->Image.Height > PICTURE_MAX) {
        return RU_FAIL(err, RU_E_DATA,
                       "damaged GIF: its picture has %d x %d pixels; expected at most 2^28",
                       g->Image.Width, g->Image.Height);
    }
    return RU_OK;
}

/* Records up to the first picture. */
static ru_status seek_picture(GifFileType *g, ru_err *err)
{
    for (;;) {
        GifRecordType type;
        GifByteType *block = NULL;
        int code;
        if (DGifGetRecordType(g, &type) == GIF_ERROR) {
            return gif_fail(g->Error, err);
        }
        if (type == IMAGE_DESC_RECORD_TYPE) {
            return read_place(g, err);
        }
        if (type == TERMINATE_RECORD_TYPE) {
            return gif_fail(-1, err);
        }
        bool fine =
            type != EXTENSION_RECORD_TYPE || DGifGetExtension(g, &code, &block) != GIF_ERROR;
        while (fine && block != NULL) {
            fine = DGifGetExtensionNext(g, &block) != GIF_ERROR;
        }
        if (!fine) {
            return gif_fail(g->Error, err);
        }
    }
}

/* Rows of an interlaced picture come in four passes; else those below the canvas are not read. */
static ru_status put_picture(GifFileType *g, int64_t width, int64_t height, uint8_t *line,
                             uint8_t *rgbx, ru_err *err)
{
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    const GifImageDesc *at = &g->Image;
    const ColorMapObject *map = at->ColorMap != NULL ? at->ColorMap : g->SColorMap;
    for (int pass = 0; pass < (at->Interlace ? 4 : 1); pass++) {
        int from = at->Interlace ? first[pass] : 0, by = at->Interlace ? step[pass] : 1;
        for (int64_t y = from; y < at->Height; y += by) {
            if (!at->Interlace && at->Top + y >= height) {
                break;
            }
            if (DGifGetLine(g, line, at->Width) == GIF_ERROR) {
                return gif_fail(g->Error, err);
            }
            for (int64_t x = 0; x < at->Width; x++) {
                if (at->Left + x < width && at->Top + y < height) {
                    put_colour(map, line[x], rgbx + ((at->Top + y) * width + at->Left + x) * 4);
                }
            }
        }
    }
    return RU_OK;
}

static ru_status gif_decode(const uint8_t *p, int64_t n, int64_t width, int64_t height,
                            uint8_t *rgbx, ru_err *err)
{
    input in = {p, n};
    int code = 0;
    GifFileType *g = DGifOpen(&in, take, &code);
    if (g == NULL) {
        return gif_fail(code, err);
    }
    for (int64_t k = 0; k < width * height; k++) {
        put_colour(g->SColorMap, g->SBackGroundColor, rgbx + 4 * k);
    }
    ru_status st = seek_picture(g, err);
    if (st == RU_OK) {
        uint8_t *line = malloc((size_t)g->Image.Width + 1);
        st = line != NULL ? put_picture(g, width, height, line, rgbx, err)
                          : rui_no_memory(err, "GIF", g->Image.Width);
        free(line);
    }
    (void)DGifCloseFile(g, &code);
    return st;
}
#else
static ru_status gif_decode(const uint8_t *p, int64_t n, int64_t width, int64_t height,
                            uint8_t *rgbx, ru_err *err)
{
    (void)p;
    (void)n;
    (void)width;
    (void)height;
    (void)rgbx;
    return RU_FAIL(err, RU_E_UNSUPPORTED,
                   "a GIF picture, and this program was built without giflib; install libgif-dev "
                   "and build it again, or convert the picture to PNG");
}
#endif

const rui_codec rui_codec_gif = {
    .name = "GIF", .is = is_gif, .size = gif_size, .decode = gif_decode};
