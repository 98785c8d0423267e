/* Zip archives of .npy files.
 *
 *   local header, name, extra, bytes | ... | central directory | [zip64 end, locator] | end record
 *
 * The central directory is what counts; local headers are read only to find where their bytes begin
 * (numpy writes sizes of all ones there). */
#include <string.h>
#include <zlib.h>

#include "store/npy_impl.h"

enum {
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    COMMENT_MAX = 65535,
    MEMBERS_MAX = 1 << 16,
    INFLATE_RATIO_MAX = 1032, /* deflate cannot do better: a larger claim is a lie */
};

typedef struct zip {
    const uint8_t *data;
    int64_t size_bytes;
} zip;

typedef struct member {
    char name[256];
    uint32_t method, crc;
    int64_t packed_bytes, size_bytes, offset;
} member;

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int k = 0; k < n; k++) {
        v |= (uint64_t)p[k] << (8 * k);
    }
    return v;
}

static bool inside(const zip *z, int64_t offset, int64_t n)
{
    return offset >= 0 && n >= 0 && offset <= z->size_bytes && n <= z->size_bytes - offset;
}

static ru_status damaged(ru_err *err, const char *what)
{
    return RU_FAIL(err, RU_E_DATA, "npz: the archive is damaged: %s", what);
}

/* Number of members and offset of the central directory. */
static ru_status end_find(const zip *z, int64_t *n, int64_t *offset, ru_err *err)
{
    int64_t at = z->size_bytes - END_BYTES;
    int64_t lowest = at - COMMENT_MAX > 0 ? at - COMMENT_MAX : 0;
    while (at >= lowest && little(z->data + at, 4) != 0x06054b50) {
        at--;
    }
    if (z->size_bytes < END_BYTES || at < lowest) {
        return RU_FAIL(err, RU_E_DATA, "npz: this is not a zip archive, or its end is cut off");
    }
    *n = (int64_t)little(z->data + at + 10, 2);
    *offset = (int64_t)little(z->data + at + 16, 4);
    if (*n != 0xffff && *offset != 0xffffffff) {
        return RU_OK;
    }
    int64_t locator = at - LOCATOR_BYTES;
    if (locator < 0 || little(z->data + locator, 4) != 0x07064b50) {
        return damaged(err, "its zip64 locator is missing");
    }
    uint64_t end64 = little(z->data + locator + 8, 8);
    if (end64 > INT64_MAX || !inside(z, (int64_t)end64, END64_BYTES) ||
        little(z->data + end64, 4) != 0x06064b50) {
        return damaged(err, "its zip64 end record is missing");
    }
    uint64_t count = little(z->data + end64 + 32, 8);
    uint64_t start = little(z->data + end64 + 48, 8);
    if (count > MEMBERS_MAX || start > INT64_MAX) {
        return damaged(err, "its zip64 end record has numbers out of range");
    }
    *n = (int64_t)count;
    *offset = (int64_t)start;
    return RU_OK;
}

/* Fields of 32 ones stand in the zip64 extra block, in this order. */
static ru_status extra64_read(const uint8_t *extra, int64_t n, member *m, ru_err *err)
{
    int64_t *fields[] = {&m->size_bytes, &m->packed_bytes, &m->offset};
    for (int64_t at = 0; at + 4 <= n;) {
        int64_t size = (int64_t)little(extra + at + 2, 2);
        if (size > n - at - 4) {
            break;
        }
        if (little(extra + at, 2) != 1) {
            at += 4 + size;
            continue;
        }
        int64_t from = at + 4, end = from + size;
        for (uint32_t k = 0; k < RU_ARRAY_LEN(fields); k++) {
            if (*fields[k] != 0xffffffff) {
                continue;
            }
            if (end - from < 8 || little(extra + from, 8) > INT64_MAX) {
                return damaged(err, "a zip64 field is missing or too large");
            }
            *fields[k] = (int64_t)little(extra + from, 8);
            from += 8;
        }
        return RU_OK;
    }
    return RU_OK;
}

/* Central directory entry at *at; moves *at behind it. */
static ru_status entry_read(const zip *z, int64_t *at, member *m, ru_err *err)
{
    if (!inside(z, *at, ENTRY_BYTES) || little(z->data + *at, 4) != 0x02014b50) {
        return damaged(err, "its directory is cut off");
    }
    const uint8_t *e = z->data + *at;
    int64_t name = (int64_t)little(e + 28, 2), extra = (int64_t)little(e + 30, 2);
    int64_t all = ENTRY_BYTES + name + extra + (int64_t)little(e + 32, 2);
    if (!inside(z, *at, all) || name >= (int64_t)sizeof m->name ||
        memchr(e + ENTRY_BYTES, 0, (size_t)name) != NULL) {
        return damaged(err, "a name is cut off or longer than 255 bytes");
    }
    *m = (member){.method = (uint32_t)little(e + 10, 2),
                  .crc = (uint32_t)little(e + 16, 4),
                  .packed_bytes = (int64_t)little(e + 20, 4),
                  .size_bytes = (int64_t)little(e + 24, 4),
                  .offset = (int64_t)little(e + 42, 4)};
    memcpy(m->name, e + ENTRY_BYTES, (size_t)name);
    if ((little(e + 8, 2) & 1) != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "npz: member '%s' is encrypted", m->name);
    }
    *at += all;
    return extra64_read(e + ENTRY_BYTES + name, extra, m, err);
}

/* The packed bytes of a member: behind its local header. */
static ru_status packed_find(const zip *z, const member *m, const uint8_t **out, ru_err *err)
{
    if (!inside(z, m->offset, LOCAL_BYTES) || little(z->data + m->offset, 4) != 0x04034b50) {
        return damaged(err, "a member has no local header");
    }
    const uint8_t *h = z->data + m->offset;
    int64_t begin =
        m->offset + LOCAL_BYTES + (int64_t)little(h + 26, 2) + (int64_t)little(h + 28, 2);
    if (!inside(z, begin, m->packed_bytes)) {
        return damaged(err, "a member reaches beyond the end");
    }
    *out = z->data + begin;
    return RU_OK;
}

static ru_status inflate_all(const member *m, const uint8_t *packed, uint8_t *into, ru_err *err)
{
    z_stream s = {0};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK) {
        return RU_FAIL(err, RU_E_MEM, "npz: no memory to decompress");
    }
    int64_t in = 0, out = 0;
    int rc = Z_OK;
    while (rc == Z_OK) {
        int64_t in_n = m->packed_bytes - in, out_n = m->size_bytes - out;
        s.next_in = (Bytef *)(uintptr_t)(packed + in);
        s.avail_in = (uInt)(in_n < 1 << 30 ? in_n : 1 << 30);
        s.next_out = into + out;
        s.avail_out = (uInt)(out_n < 1 << 30 ? out_n : 1 << 30);
        uInt in_had = s.avail_in, out_had = s.avail_out;
        rc = inflate(&s, Z_NO_FLUSH);
        in += in_had - s.avail_in;
        out += out_had - s.avail_out;
        if (rc == Z_OK && in_had == s.avail_in && out_had == s.avail_out) {
            break; /* no progress: the stream wants more than there is */
        }
    }
    (void)inflateEnd(&s);
    return rc == Z_STREAM_END && out == m->size_bytes
               ? RU_OK
               : damaged(err, "a member does not decompress to its size");
}

static uint32_t crc_all(const uint8_t *data, int64_t n)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), data, (z_size_t)n);
}

static ru_status member_read(const zip *z, const member *m, ru_arena *arena, const uint8_t **out,
                             ru_err *err)
{
    const uint8_t *packed = NULL;
    RU_TRY(packed_find(z, m, &packed, err));
    if (m->method == 0) {
        if (m->packed_bytes != m->size_bytes) {
            return damaged(err, "a stored member has two sizes");
        }
        *out = packed;
    } else if (m->method == 8) {
        if (m->size_bytes / INFLATE_RATIO_MAX > m->packed_bytes + 1) {
            return damaged(err, "a member has a size that is not possible");
        }
        uint8_t *into = ru_arena_alloc(arena, m->size_bytes, 64);
        if (into == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "npz: no room for %lld bytes",
                           (long long)m->size_bytes);
        }
        RU_TRY(inflate_all(m, packed, into, err));
        *out = into;
    } else {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "npz: compression method %u is not supported (stored and deflate are)",
                       m->method);
    }
    return crc_all(*out, m->size_bytes) == m->crc ? RU_OK : damaged(err, "a checksum is wrong");
}

ru_status ru_npz_parse(const void *data, int64_t size_bytes, ru_arena *arena, ru_arrays *out,
                       ru_err *err)
{
    zip z = {data, size_bytes};
    int64_t n = 0, at = 0;
    RU_TRY(end_find(&z, &n, &at, err));
    ru_arrays list = {.texts = out->texts};
    for (int64_t k = 0; k < n; k++) {
        member m;
        const uint8_t *bytes = NULL;
        ru_array a;
        RU_TRY(entry_read(&z, &at, &m, err));
        size_t len = strlen(m.name);
        if (len >= 9 && strcmp(m.name + len - 9, "/data.pkl") == 0) {
            return RU_FAIL(err, RU_E_DATA,
                           "this is a file of torch.save (.pt, .pth), not an archive of arrays; "
                           "numpy.savez writes one");
        }
        ru_status st = member_read(&z, &m, arena, &bytes, err);
        if (st == RU_OK) {
            st = rui_npy_parse(bytes, m.size_bytes, arena, list.texts, &a, err);
        }
        if (st != RU_OK) {
            return ru_err_wrap(err, st, "member '%s'", m.name);
        }
        if (len > 4 && strcmp(m.name + len - 4, ".npy") == 0) {
            m.name[len - 4] = 0;
        }
        if (ru_arrays_find(&list, m.name) != NULL) {
            return RU_FAIL(err, RU_E_DATA, "npz: two members have the name '%s'", m.name);
        }
        a.name = ru_arena_str(arena, m.name);
        if (a.name == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "npz: the arena is full");
        }
        RU_TRY(ru_arrays_add(&list, arena, &a, err));
    }
    *out = list;
    return RU_OK;
}

ru_status ru_npz_read(const void *data, int64_t size_bytes, ru_arena *arena, ru_arrays *out,
                      ru_err *err)
{
    const uint8_t *p = data;
    ru_array one;
    ru_arrays list = {.texts = out->texts};
    if (size_bytes < 1 || p[0] != 0x93) {
        return ru_npz_parse(data, size_bytes, arena, out, err);
    }
    RU_TRY(rui_npy_parse(data, size_bytes, arena, list.texts, &one, err));
    one.name = "";
    RU_TRY(ru_arrays_add(&list, arena, &one, err));
    *out = list;
    return RU_OK;
}

ru_status ru_npz_open(const char *path, ru_arena *arena, ru_map_file *map, ru_arrays *out,
                      ru_err *err)
{
    ru_map_file m;
    RU_TRY(ru_file_map(path, &m, err));
    ru_arrays list = {.texts = out->texts};
    ru_status st = ru_npz_read(m.data, m.size_bytes, arena, &list, err);
    if (st != RU_OK) {
        ru_file_unmap(&m);
        return ru_err_wrap(err, st, "%s", path);
    }
    *map = m;
    *out = list;
    return RU_OK;
}

/* -- writing ----------------------------------------------------------------------------------- */

static void put(uint8_t **at, uint64_t v, int n)
{
    for (int k = 0; k < n; k++) {
        *(*at)++ = (uint8_t)(v >> (8 * k));
    }
}

/* The 26 bytes that local header and directory entry share, from "version needed" on. 1980-01-01 is
 * the date, so that equal arrays give equal files. */
static void put_common(uint8_t **at, uint32_t crc, int64_t bytes, int64_t name_bytes)
{
    put(at, 20, 2);
    put(at, 0x0800, 2); /* names are UTF-8 */
    put(at, 0, 2);      /* stored */
    put(at, 0, 2);
    put(at, 0x21, 2);
    put(at, crc, 4);
    put(at, (uint64_t)bytes, 4);
    put(at, (uint64_t)bytes, 4);
    put(at, (uint64_t)name_bytes, 2);
    put(at, 0, 2);
}

typedef struct writer {
    ru_out *file;
    ru_arena arena; /* directory and conversions */
    int64_t at;
    uint8_t **entries; /* [n] */
    int64_t *entry_bytes;
} writer;

static ru_status emit(writer *w, const void *data, int64_t n, ru_err *err)
{
    w->at += n;
    return n > 0 ? ru_out_write(w->file, data, n, err) : RU_OK;
}

static ru_status member_write(writer *w, const ru_array *a, uint32_t k, ru_err *err)
{
    char head[RUI_NPY_HEADER_MAX];
    int64_t head_bytes = rui_npy_header(a, head);
    int64_t body_bytes = rui_npy_bytes(a);
    const void *body = rui_npy_elements(a, &w->arena);
    int64_t name_bytes = (int64_t)strlen(a->name) + 4;
    int64_t all = head_bytes + body_bytes;
    uint8_t local[LOCAL_BYTES], *at = local;
    uint8_t *entry = ru_arena_alloc(&w->arena, ENTRY_BYTES + name_bytes, 1);
    if (body == NULL || entry == NULL) {
        return RU_FAIL(err, RU_E_MEM, "npz: no memory");
    }
    if (name_bytes > 255) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "npz: the name '%.40s...' is too long", a->name);
    }
    if (w->at + all + LOCAL_BYTES + name_bytes >= UINT32_MAX - ((int64_t)1 << 24)) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "npz: the archive would reach 4 GiB at array '%s'; use safetensors",
                       a->name);
    }
    uint32_t crc =
        (uint32_t)crc32_z(crc_all((const uint8_t *)head, head_bytes), body, (z_size_t)body_bytes);
    int64_t offset = w->at;
    put(&at, 0x04034b50, 4);
    put_common(&at, crc, all, name_bytes);
    RU_TRY(emit(w, local, LOCAL_BYTES, err));
    RU_TRY(emit(w, a->name, name_bytes - 4, err));
    RU_TRY(emit(w, ".npy", 4, err));
    RU_TRY(emit(w, head, head_bytes, err));
    RU_TRY(emit(w, body, body_bytes, err));

    at = entry;
    put(&at, 0x02014b50, 4);
    put(&at, 20, 2);
    put_common(&at, crc, all, name_bytes);
    put(&at, 0, 2);
    put(&at, 0, 4);
    put(&at, 0, 4);
    put(&at, (uint64_t)offset, 4);
    memcpy(at, a->name, (size_t)name_bytes - 4);
    memcpy(at + name_bytes - 4, ".npy", 4);
    w->entries[k] = entry;
    w->entry_bytes[k] = ENTRY_BYTES + name_bytes;
    return RU_OK;
}

static ru_status archive_write(writer *w, const ru_array *arrays, uint32_t n, ru_err *err)
{
    w->entries = RU_NEW(&w->arena, uint8_t *, n);
    w->entry_bytes = RU_NEW(&w->arena, int64_t, n);
    if (w->entries == NULL || w->entry_bytes == NULL) {
        return RU_FAIL(err, RU_E_MEM, "npz: no memory");
    }
    if (n >= UINT16_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "npz: there are %u arrays; at most %d are possible", n,
                       UINT16_MAX - 1);
    }
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(member_write(w, &arrays[k], k, err));
    }
    int64_t directory = w->at;
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(emit(w, w->entries[k], w->entry_bytes[k], err));
    }
    uint8_t end[END_BYTES], *at = end;
    int64_t directory_bytes = w->at - directory;
    put(&at, 0x06054b50, 4);
    put(&at, 0, 4);
    put(&at, n, 2);
    put(&at, n, 2);
    put(&at, (uint64_t)directory_bytes, 4);
    put(&at, (uint64_t)directory, 4);
    put(&at, 0, 2);
    return emit(w, end, END_BYTES, err);
}

ru_status ru_npz_save(const char *path, const ru_array *arrays, uint32_t n, ru_err *err)
{
    writer w = {0};
    RU_TRY(ru_out_open(path, &w.file, err));
    ru_arena_init(&w.arena, 0);
    ru_status st = archive_write(&w, arrays, n, err);
    if (st == RU_OK) {
        st = ru_out_commit(w.file, err);
    }
    ru_out_close(w.file);
    ru_arena_fini(&w.arena);
    return st;
}
