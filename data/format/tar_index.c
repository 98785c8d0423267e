/* Walking the headers of a tar file.
 *
 *     512 bytes header | content, padded to 512 | header | content | ... | two zero blocks
 *
 *     0 name 100 | 124 size 12 (octal, or base 256) | 148 checksum 8 | 156 type | 257 "ustar" |
 *     345 prefix 155
 *
 * Long names come as a member before (GNU type L, pax type x with path=...).
 *
 * Source: posix-2017-pax (ustar and pax interchange formats); the GNU tar manual for type L. */
#include "data/format/tar_index.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { BLOCK = 512, PAX_MAX = 1 << 16 };

rui_tar rui_tar_from(const rui_source *file)
{
    return (rui_tar){.file = file, .long_size = -1};
}

/* An octal field, or base 256 when its top bit is set; -1 when it is neither. */
static int64_t number_field(const uint8_t *p, int n)
{
    int64_t v = 0;
    if (p[0] & 0x80) {
        for (int i = 1; i < n; i++) {
            if (v > INT64_MAX >> 9) {
                return -1;
            }
            v = v << 8 | p[i];
        }
        return p[0] == 0x80 ? v : -1;
    }
    int i = 0;
    while (i < n && p[i] == ' ') {
        i++;
    }
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        v = v << 3 | (p[i] - '0');
    }
    return i == n || p[i] == 0 || p[i] == ' ' ? v : -1;
}

static ru_status check_header(const rui_tar *t, const uint8_t *h, ru_err *err)
{
    int64_t sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        sum += i >= 148 && i < 156 ? ' ' : h[i];
    }
    if (number_field(h + 148, 8) != sum) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the tar header at byte %lld is damaged (its checksum does "
                       "not fit)",
                       t->file->path, (long long)t->at);
    }
    return RU_OK;
}

/* "27 path=some/long/name\n" records of a pax header. */
static void read_pax(rui_tar *t, const char *text, int64_t n)
{
    ru_str rest = ru_str_n(text, n);
    while (rest.n > 0) {
        int64_t blank = ru_str_find(rest, " "), length;
        if (blank < 1 || !ru_str_i64(ru_str_n(rest.p, blank), &length) || length <= blank + 1 ||
            length > rest.n) {
            return;
        }
        ru_str record = ru_str_n(rest.p + blank + 1, length - blank - 2);
        if (ru_str_starts(record, "path=") && record.n - 5 < RUI_TAR_NAME_MAX) {
            memcpy(t->long_name, record.p + 5, (size_t)(record.n - 5));
            t->long_name[record.n - 5] = '\0';
        } else if (ru_str_starts(record, "size=")) {
            int64_t size;
            t->long_size = ru_str_i64(ru_str_from(record, 5), &size) && size >= 0 ? size : -1;
        }
        rest = ru_str_from(rest, length);
    }
}

/* A header that says something about the next one. */
static ru_status read_extra(rui_tar *t, uint8_t type, int64_t at, int64_t size, ru_err *err)
{
    char text[PAX_MAX];
    if (size > (type == 'L' ? RUI_TAR_NAME_MAX - 1 : PAX_MAX - 1)) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the extended tar header at byte %lld has %lld bytes; at "
                       "most %d are read",
                       t->file->path, (long long)t->at, (long long)size,
                       type == 'L' ? RUI_TAR_NAME_MAX - 1 : PAX_MAX - 1);
    }
    RU_TRY(rui_source_read(t->file, at, text, size, err));
    text[size] = '\0';
    if (type == 'L') {
        memcpy(t->long_name, text, (size_t)size + 1);
    } else {
        read_pax(t, text, size);
    }
    return RU_OK;
}

static void take_name(rui_tar *t, const uint8_t *h, rui_tar_member *m)
{
    const char *name = (const char *)h, *prefix = (const char *)h + 345;
    bool ustar = memcmp(h + 257, "ustar\0", 6) == 0; /* GNU's old form keeps other things there */
    if (t->long_name[0] != '\0') {
        memcpy(m->name, t->long_name, sizeof m->name);
    } else if (ustar && prefix[0] != '\0') {
        snprintf(m->name, sizeof m->name, "%.155s/%.100s", prefix, name);
    } else {
        snprintf(m->name, sizeof m->name, "%.100s", name);
    }
    t->long_name[0] = '\0';
}

static bool all_zero(const uint8_t *p)
{
    for (int i = 0; i < BLOCK; i++) {
        if (p[i] != 0) {
            return false;
        }
    }
    return true;
}

ru_status rui_tar_next(rui_tar *t, rui_tar_member *m, bool *found, ru_err *err)
{
    while (true) {
        int64_t left = t->file->size_bytes - t->at;
        uint8_t block[2 * BLOCK] = {0};
        if (left < BLOCK && t->closed) {
            *found = false;
            return RU_OK;
        }
        if (left < BLOCK) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: ends at byte %lld without the two zero blocks that "
                           "close a tar file; it is cut short",
                           t->file->path, (long long)t->file->size_bytes);
        }
        RU_TRY(rui_source_read(t->file, t->at, block, left < 2 * BLOCK ? BLOCK : 2 * BLOCK, err));
        if (all_zero(block)) { /* another archive may follow */
            t->closed = true;
            t->at += BLOCK;
            continue;
        }
        ru_status st = check_header(t, block, err);
        if (st == RU_E_DATA && t->closed) {
            ru_log(RU_LOG_WARN, "data", "tar_end",
                   "%s: the %lld bytes from byte %lld on, after the end of the archive, are no tar "
                   "file; they are not read",
                   t->file->path, (long long)left, (long long)t->at);
            *found = false;
            return RU_OK;
        }
        RU_TRY(st);
        t->closed = false;
        uint8_t type = block[156];
        int64_t size = number_field(block + 124, 12), at = t->at + BLOCK;
        bool extra = type == 'L' || type == 'x';
        size = !extra && t->long_size >= 0 ? t->long_size : size;
        if (size < 0 || size > t->file->size_bytes - at) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: the member at byte %lld claims %lld bytes, but the file "
                           "ends at %lld; it is cut short",
                           t->file->path, (long long)t->at, (long long)size,
                           (long long)t->file->size_bytes);
        }
        if (extra) {
            RU_TRY(read_extra(t, type, at, size, err));
        }
        bool file = type == '0' || type == '\0' || type == '7';
        if (!extra && type != 'g' && type != 'K') {
            take_name(t, block, m);
            t->long_size = -1;
        }
        t->at = at + (size + BLOCK - 1) / BLOCK * BLOCK;
        if (file) {
            m->at = at;
            m->size_bytes = size;
            memcpy(m->look, block + BLOCK, BLOCK);
            *found = true;
            return RU_OK;
        }
    }
}
