#include "store/gunzip.h"

#include <string.h>
#include <zlib.h>

enum { SIZE_MAX_BYTES = 256 << 20 };

bool ru_is_gzip(ru_str text)
{
    return text.n > 2 && memcmp(text.p, "\x1f\x8b", 2) == 0;
}

/* Written by one of the common compressors, so its last four bytes say how large it was. */
ru_status ru_gunzip(const char *path, ru_str text, ru_arena *arena, ru_str *out, ru_err *err)
{
    uint32_t size = 0;
    for (uint32_t k = 0; text.n >= 18 && k < 4; k++) {
        size |= (uint32_t)(uint8_t)text.p[text.n - 4 + k] << 8 * k;
    }
    if (size == 0 || size > SIZE_MAX_BYTES) {
        return RU_FAIL(err, RU_E_DATA, "%s: expected compressed text of 1 to %d bytes", path,
                       SIZE_MAX_BYTES);
    }
    uint8_t *to = ru_arena_alloc(arena, size, 1);
    if (to == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for %u bytes", path, size);
    }
    union {
        const char *in;
        Bytef *z;
    } from = {.in = text.p};
    z_stream z = {.next_in = from.z, .avail_in = (uInt)text.n, .next_out = to, .avail_out = size};
    bool whole = inflateInit2(&z, 15 + 16) == Z_OK && inflate(&z, Z_FINISH) == Z_STREAM_END &&
                 z.avail_out == 0;
    (void)inflateEnd(&z);
    if (!whole) {
        return RU_FAIL(err, RU_E_DATA, "%s: the compressed data is damaged", path);
    }
    *out = ru_str_n((const char *)to, size);
    return RU_OK;
}
