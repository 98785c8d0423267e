/* WebP by libwebp; transparency is ignored. */
#include "data/format/codec.h"

#include <string.h>

static bool is_webp(const uint8_t *p, int64_t n)
{
    return n >= 16 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0;
}

/* Chunk "EXIF" of the container: name, size, bytes padded to an even number. */
static int webp_orientation(const uint8_t *p, int64_t n)
{
    for (int64_t at = 12; at + 8 <= n;) {
        int64_t size = p[at + 4] | p[at + 5] << 8 | p[at + 6] << 16 | (int64_t)p[at + 7] << 24;
        if (size > n - at - 8) {
            break;
        }
        if (memcmp(p + at, "EXIF", 4) == 0) {
            bool head = size >= 6 && memcmp(p + at + 8, "Exif\0\0", 6) == 0;
            return rui_tiff_orientation(p + at + (head ? 14 : 8), size - (head ? 6 : 0));
        }
        at += 8 + size + size % 2;
    }
    return 1;
}

#ifdef RU_HAS_WEBP
#include <webp/decode.h>

static ru_status webp_size(const uint8_t *p, int64_t n, int64_t *width, int64_t *height,
                           ru_err *err)
{
    WebPBitstreamFeatures f;
    if (WebPGetFeatures(p, (size_t)n, &f) != VP8_STATUS_OK) {
        return RU_FAIL(err, RU_E_DATA, "damaged WebP: its header is cut off or unknown");
    }
    if (f.has_animation) {
        return RU_FAIL(err, RU_E_DATA, "an animated WebP is not read; save one picture of it");
    }
    *width = f.width;
    *height = f.height;
    return RU_OK;
}

static ru_status webp_decode(const uint8_t *p, int64_t n, int64_t width, int64_t height,
                             uint8_t *rgbx, ru_err *err)
{
    bool fine = WebPDecodeRGBAInto(p, (size_t)n, rgbx, (size_t)(width * height * 4),
                                   (int)(width * 4)) != NULL;
    return fine ? RU_OK : RU_FAIL(err, RU_E_DATA, "damaged WebP: its pixels cannot be decoded");
}
#else
static ru_status lacks_webp(ru_err *err)
{
    return RU_FAIL(err, RU_E_UNSUPPORTED,
                   "a WebP picture, and this program was built without libwebp; install "
                   "libwebp-dev and build it again, or convert the picture to PNG");
}

static ru_status webp_size(const uint8_t *p, int64_t n, int64_t *width, int64_t *height,
                           ru_err *err)
{
    (void)p;
    (void)n;
    (void)width;
    (void)height;
    return lacks_webp(err);
}

static ru_status webp_decode(const uint8_t *p, int64_t n, int64_t width, int64_t height,
                             uint8_t *rgbx, ru_err *err)
{
    (void)p;
    (void)n;
    (void)width;
    (void)height;
    (void)rgbx;
    return lacks_webp(err);
}
#endif

const rui_codec rui_codec_webp = {.name = "WebP",
                                  .is = is_webp,
                                  .size = webp_size,
                                  .decode = webp_decode,
                                  .orientation = webp_orientation};
