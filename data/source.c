/* Bytes of a file: whole in memory when small or packed, by positioned reads otherwise; the same of
 * an object behind an address. */
#include "data/cache.h"
#include "data/fetch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

enum { INFLATE_START_BYTES = 1 << 20 };
static const int64_t inflate_max_bytes = (int64_t)8
                                         << 30; /* a packed file may not unpack to more */

ru_status rui_no_memory(ru_err *err, const char *what, int64_t size_bytes)
{
    return RU_FAIL(err, RU_E_MEM, "%s: no memory for %lld bytes", what, (long long)size_bytes);
}

static ru_status grow(uint8_t **buf, int64_t *room, const char *path, ru_err *err)
{
    int64_t next = *room == 0 ? INFLATE_START_BYTES : *room * 2;
    if (next > inflate_max_bytes) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%s: the file decompresses to more than %lld bytes; decompress it first and "
                       "name the plain file",
                       path, (long long)inflate_max_bytes);
    }
    uint8_t *p = realloc(*buf, (size_t)next);
    if (p == NULL) {
        return rui_no_memory(err, path, next);
    }
    *buf = p;
    *room = next;
    return RU_OK;
}

/* One or more gzip members, the whole of `in`. */
static ru_status inflate_all(z_stream *z, rui_source *s, const uint8_t *in, int64_t in_bytes,
                             ru_err *err)
{
    int64_t room = 0, fed = 0;
    int zrc = Z_OK;
    while (true) {
        if (z->avail_in == 0 && fed < in_bytes) {
            int64_t part = in_bytes - fed < (1 << 24) ? in_bytes - fed : (1 << 24);
            z->next_in = (Bytef *)(uintptr_t)(in + fed); /* zlib only reads it */
            z->avail_in = (uInt)part;
            fed += part;
        }
        if (s->size_bytes == room) {
            RU_TRY(grow(&s->bytes, &room, s->path, err));
        }
        int64_t out = room - s->size_bytes < (1 << 24) ? room - s->size_bytes : (1 << 24);
        z->next_out = s->bytes + s->size_bytes;
        z->avail_out = (uInt)out;
        zrc = inflate(z, Z_NO_FLUSH);
        s->size_bytes += out - (int64_t)z->avail_out;
        int64_t at = fed - (int64_t)z->avail_in;
        if (zrc == Z_STREAM_END) {
            if (at == in_bytes) {
                return RU_OK;
            }
            zrc = inflateReset(z);
        } else if (zrc == Z_BUF_ERROR && at == in_bytes && z->avail_out != 0) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: the gzip data ends early, after %lld bytes; copy the "
                           "file again",
                           s->path, (long long)in_bytes);
        }
        if (zrc != Z_OK && zrc != Z_BUF_ERROR) {
            return RU_FAIL(err, RU_E_DATA, "%s: damaged gzip data near byte %lld (%s)", s->path,
                           (long long)at, z->msg != NULL ? z->msg : "no such block");
        }
    }
}

static ru_status inflate_bytes(rui_source *s, const uint8_t *in, int64_t n, ru_err *err)
{
    z_stream z = {0};
    s->disk_bytes = n;
    s->size_bytes = 0;
    if (inflateInit2(&z, 15 + 16) != Z_OK) {
        return rui_no_memory(err, s->path, 0);
    }
    ru_status st = inflate_all(&z, s, in, n, err);
    (void)inflateEnd(&z);
    return st;
}

static ru_status inflate_file(rui_source *s, ru_err *err)
{
    ru_map_file map = {0};
    RU_TRY(ru_file_map(s->path, &map, err));
    ru_status st = inflate_bytes(s, map.data, map.size_bytes, err);
    ru_file_unmap(&map);
    return st;
}

/* -- objects -------------------------------------------------------------------------------------
 */

static ru_status whole_object(rui_source *s, ru_err *err)
{
    uint8_t *bytes = malloc(s->size_bytes > 0 ? (size_t)s->size_bytes : 1);
    if (bytes == NULL) {
        return rui_no_memory(err, s->path, s->size_bytes);
    }
    ru_status st = ru_object_read(s->object, 0, bytes, s->size_bytes, err);
    if (st == RU_OK && ru_str_ends(ru_str_c(s->path), ".gz")) {
        st = inflate_bytes(s, bytes, s->size_bytes, err);
        free(bytes);
    } else {
        s->bytes = bytes;
    }
    s->object = NULL;
    return st;
}

ru_status rui_object_open(ru_objects **objects, const char *address, ru_object **out, ru_err *err)
{
    const ru_objects_options opt = {0};
    if (*objects == NULL) {
        RU_TRY(ru_objects_open(&opt, objects, err));
    }
    return ru_object_open(*objects, address, out, err);
}

static ru_status open_object(ru_arena *arena, ru_objects **objects, const char *address,
                             int64_t resident_max_bytes, rui_source *out, ru_err *err)
{
    RU_TRY(rui_object_open(objects, address, &out->object, err));
    out->path = ru_arena_str(arena, ru_object_name(out->object));
    if (out->path == NULL) {
        return rui_no_memory(err, "address", (int64_t)strlen(address));
    }
    out->size_bytes = out->disk_bytes = ru_object_bytes(out->object);
    bool whole = ru_str_ends(ru_str_c(out->path), ".gz") || out->size_bytes <= resident_max_bytes;
    return whole ? whole_object(out, err) : RU_OK;
}

/* -- open and read -------------------------------------------------------------------------------
 */

ru_status rui_source_open(ru_arena *arena, ru_objects **objects, const char *path,
                          int64_t resident_max_bytes, bool direct, rui_source *out, ru_err *err)
{
    *out = (rui_source){.path = ru_arena_str(arena, path), .file = {.fd = -1}};
    if (out->path == NULL) {
        return rui_no_memory(err, path, (int64_t)strlen(path));
    }
    if (ru_object_address(path)) {
        return direct ? RU_FAIL(err, RU_E_CONFIG,
                                "data.direct: %s is behind an address, and only files can be read "
                                "directly; leave data.direct out",
                                out->path)
                      : open_object(arena, objects, path, resident_max_bytes, out, err);
    }
    if (ru_str_ends(ru_str_c(path), ".gz")) {
        return inflate_file(out, err);
    }
    RU_TRY(ru_in_open(path, &out->file, err));
    out->size_bytes = out->disk_bytes = out->file.size_bytes;
    if (out->size_bytes > resident_max_bytes) {
        return !direct || ru_in_direct(&out->file)
                   ? RU_OK
                   : RU_FAIL(err, RU_E_CONFIG,
                             "data.direct: the file system of %s does not allow direct reads "
                             "(O_DIRECT); leave data.direct out, or copy the file to a local disk",
                             out->path);
    }
    out->bytes = malloc(out->size_bytes > 0 ? (size_t)out->size_bytes : 1);
    if (out->bytes == NULL) {
        return rui_no_memory(err, path, out->size_bytes);
    }
    ru_in_advise_sequential(&out->file);
    RU_TRY(ru_in_read(&out->file, path, 0, out->bytes, out->size_bytes, err));
    ru_in_close(&out->file);
    out->file.fd = -1;
    return RU_OK;
}

void rui_source_close(rui_source *s)
{
    if (s->path != NULL && s->file.fd >= 0) {
        ru_in_close(&s->file);
    }
    free(s->bytes);
    *s = (rui_source){.file = {.fd = -1}};
}

ru_status rui_source_read(const rui_source *s, int64_t offset, void *into, int64_t size_bytes,
                          ru_err *err)
{
    if (s->object != NULL) {
        return ru_object_read(s->object, offset, into, size_bytes, err);
    }
    if (s->bytes == NULL) {
        return ru_in_read(&s->file, s->path, offset, into, size_bytes, err);
    }
    if (offset < 0 || size_bytes < 0 || size_bytes > s->size_bytes - offset) {
        return RU_FAIL(
            err, RU_E_DATA, "%s: the file ends at byte %lld, but bytes %lld to %lld are needed",
            s->path, (long long)s->size_bytes, (long long)offset, (long long)(offset + size_bytes));
    }
    memcpy(into, s->bytes + offset, (size_t)size_bytes);
    return RU_OK;
}

ru_status rui_source_view(const rui_source *s, int64_t offset, int64_t size_bytes, void *scratch,
                          const uint8_t **view, ru_err *err)
{
    if (s->bytes != NULL && offset >= 0 && size_bytes >= 0 && offset <= s->size_bytes &&
        size_bytes <= s->size_bytes - offset) {
        *view = s->bytes + offset;
        return RU_OK;
    }
    *view = scratch;
    return rui_source_read(s, offset, scratch, size_bytes, err);
}

ru_status rui_scratch_get(rui_scratch *s, void *small, int64_t small_bytes, int64_t need_bytes,
                          ru_err *err)
{
    s->heap = need_bytes > small_bytes;
    s->p = s->heap ? malloc((size_t)need_bytes) : small;
    return s->p != NULL ? RU_OK : rui_no_memory(err, "read buffer", need_bytes);
}

void rui_scratch_put(rui_scratch *s)
{
    if (s->heap) {
        free(s->p);
    }
    s->p = NULL;
}

const uint8_t *rui_bytes_find(const ru_dataset *d, const rui_source *s, int64_t offset, int64_t n)
{
    if (s->bytes != NULL && offset >= 0 && n >= 0 && n <= s->size_bytes - offset) {
        return s->bytes + offset;
    }
    const uint8_t *p = d->moved != NULL ? rui_moved_find(d->moved, s, offset, n) : NULL;
    p = p == NULL && d->fetched != NULL ? rui_fetch_find(d->fetched, s, offset, n) : p;
    for (uint32_t k = 0; k < 2 && p == NULL && d->held[k] != NULL; k++) {
        p = rui_fetch_find(d->held[k], s, offset, n);
    }
    return p;
}

ru_status rui_bytes_read(const ru_dataset *d, const rui_source *s, int64_t offset, void *into,
                         int64_t size_bytes, ru_err *err)
{
    const uint8_t *p = rui_bytes_find(d, s, offset, size_bytes);
    if (p == NULL) {
        RU_TRY(rui_fetch_cancelled(d->fetched, err));
        return rui_source_read(s, offset, into, size_bytes, err);
    }
    memcpy(into, p, (size_t)size_bytes);
    return RU_OK;
}

ru_status rui_bytes_view(const ru_dataset *d, const rui_source *s, int64_t offset,
                         int64_t size_bytes, void *scratch, const uint8_t **view, ru_err *err)
{
    const uint8_t *p = rui_bytes_find(d, s, offset, size_bytes);
    if (p == NULL) {
        RU_TRY(rui_fetch_cancelled(d->fetched, err));
        return rui_source_view(s, offset, size_bytes, scratch, view, err);
    }
    *view = p;
    return RU_OK;
}

void rui_source_soon(void *self, const rui_source *s, int64_t offset, int64_t size_bytes)
{
    (void)self;
    if (s->bytes == NULL && s->object == NULL && s->file.fd >= 0 && !s->file.direct) { /* open */
        ru_in_advise_soon(&s->file, offset, size_bytes);
    }
}
