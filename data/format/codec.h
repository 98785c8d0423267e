/* Pictures that are neither JPEG nor PNG: one file for each form.
 *
 * Thread: any, no shared state. */
#ifndef RU_DATA_CODEC_H
#define RU_DATA_CODEC_H

#include "data/data_impl.h"

typedef struct rui_codec {
    const char *name;
    bool (*is)(const uint8_t *bytes, int64_t n);
    /* From the header. Errors: RU_E_DATA, without the place. */
    ru_status (*size)(const uint8_t *bytes, int64_t n, int64_t *width, int64_t *height,
                      ru_err *err);
    /* Into [height, width, 4]: red, green, blue and a byte that nobody reads. Of several pictures
     * the first. Errors: as above; RU_E_UNSUPPORTED when this build lacks the library. */
    ru_status (*decode)(const uint8_t *bytes, int64_t n, int64_t width, int64_t height,
                        uint8_t *rgbx, ru_err *err);
    /* Of its Exif data, 1..8; NULL: the form has none. */
    int (*orientation)(const uint8_t *bytes, int64_t n);
} rui_codec;

extern const rui_codec rui_codec_bmp, rui_codec_gif, rui_codec_webp;

/* The codec that knows the bytes; NULL: none. */
const rui_codec *rui_codec_find(const uint8_t *bytes, int64_t n);

/* The orientation that TIFF data (the body of Exif) states, 1: as stored. image.c */
int rui_tiff_orientation(const uint8_t *p, int64_t n);

#endif
