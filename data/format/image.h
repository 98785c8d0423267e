/* JPEG, PNG, BMP, GIF and WebP from memory into planes of pixels, resized and cropped.
 *
 * Thread: any; decoders are borrowed from the dataset and given back. */
#ifndef RU_DATA_IMAGE_H
#define RU_DATA_IMAGE_H

#include "data/data_impl.h"

/* Where an image comes from, for error sentences. */
typedef struct rui_place {
    const char *path;
    const char *member; /* name within an archive, NULL: the file itself */
    int64_t offset;     /* of the image in the file */
} rui_place;

/* Put "path: " or "path, member 'm' at byte n: " before a sentence just written; keeps `st`. */
ru_status rui_place_wrap(ru_err *err, ru_status st, const rui_place *at);

/* Width and height from the header alone. */
RU_MUST_USE ru_status rui_image_measure(const ru_dataset *d, const uint8_t *bytes, int64_t n,
                                        int64_t *width, int64_t *height, ru_err *err);

/* Decode into [3, height, width] of the dataset's pixel form. With `resize` the shorter side is
 * first brought to width = height (bilinear, every source pixel counted) and the middle is cut out;
 * without, the image must have exactly this size. Gray becomes RGB, transparency is ignored.
 * Errors: RU_E_DATA without the place (the caller adds it). */
RU_MUST_USE ru_status rui_image_decode(const ru_dataset *d, const uint8_t *bytes, int64_t n,
                                       int64_t width, int64_t height, bool resize, void *into,
                                       ru_err *err);

/* Free the idle decoders of a dataset. */
void rui_image_close(ru_dataset *d);

#endif
