/* Reading files: maps, whole reads, positioned reads. */
#include "env/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/file/file_error.h"
#include "env/file/own.h"

enum { DIRECT_PART_BYTES = 1 << 20 };

/* `stream`: a pipe or device will do as well. Else it is not even opened: a FIFO that nobody writes
 * would hold up the process. */
static ru_status open_readable(const char *path, bool stream, int *fd, int64_t *size_bytes,
                               ru_err *err)
{
    struct stat before;
    if (!stream && stat(path, &before) == 0 && !S_ISREG(before.st_mode) &&
        !S_ISDIR(before.st_mode)) {
        return RU_FAIL(err, RU_E_DATA, "cannot read %s: it is %s, expected a regular file", path,
                       S_ISFIFO(before.st_mode)   ? "a FIFO"
                       : S_ISSOCK(before.st_mode) ? "a socket"
                                                  : "a device");
    }
    int f = open(path, O_RDONLY | O_CLOEXEC);
    if (f < 0) {
        return rui_file_fail(err, errno, "open", path);
    }
    struct stat st;
    if (fstat(f, &st) != 0) {
        int e = errno;
        close(f);
        return rui_file_fail(err, e, "look at", path);
    }
    if (S_ISDIR(st.st_mode)) {
        close(f);
        return rui_file_fail(err, EISDIR, "read", path);
    }
    *fd = f;
    *size_bytes = S_ISREG(st.st_mode) ? st.st_size : -1;
    return RU_OK;
}

ru_status ru_file_map(const char *path, ru_map_file *out, ru_err *err)
{
    int fd;
    int64_t size;
    RU_TRY(open_readable(path, false, &fd, &size, err));
    if (size < 0) {
        close(fd);
        return RU_FAIL(err, RU_E_DATA, "cannot map %s: it is not a regular file", path);
    }
    *out = (ru_map_file){(const uint8_t *)"", 0};
    if (size > 0) {
        void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            int e = errno;
            close(fd);
            return rui_file_fail(err, e, "map", path);
        }
        *out = (ru_map_file){p, size};
    }
    close(fd);
    return RU_OK;
}

void ru_file_unmap(ru_map_file *m)
{
    if (m->size_bytes > 0) {
        int rc = munmap((void *)(uintptr_t)m->data, (size_t)m->size_bytes);
        RU_CHECK(rc == 0);
    }
    *m = (ru_map_file){0};
}

/* Reads until `size_bytes` or the end; returns what was read, or -errno. */
static int64_t read_full(int fd, void *into, int64_t size_bytes, int64_t offset)
{
    int64_t got = 0;
    while (got < size_bytes) {
        uint8_t *at = (uint8_t *)into + got;
        size_t want = (size_t)(size_bytes - got);
        ssize_t n = offset < 0 ? read(fd, at, want) : pread(fd, at, want, offset + got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        if (n == 0) {
            break;
        }
        got += n;
    }
    return got;
}

/* Pipes and the like have no size: read in growing pieces. */
static ru_status read_unsized(int fd, const char *path, int64_t size_max_bytes, ru_arena *arena,
                              char **data, int64_t *size_bytes, ru_err *err)
{
    int64_t cap = 64 * 1024, used = 0;
    char *buf = ru_arena_alloc(arena, cap + 1, 64);
    while (buf != NULL) {
        int64_t n = read_full(fd, buf + used, cap - used, -1);
        if (n < 0) {
            return rui_file_fail(err, (int)-n, "read", path);
        }
        used += n;
        if (used < cap) {
            buf[used] = '\0';
            *data = buf;
            *size_bytes = used;
            return RU_OK;
        }
        if (used >= size_max_bytes) {
            return RU_FAIL(err, RU_E_LIMIT, "%s is larger than the %lld bytes allowed here", path,
                           (long long)size_max_bytes);
        }
        char *bigger = ru_arena_alloc(arena, cap * 2 + 1, 64);
        if (bigger != NULL) {
            memcpy(bigger, buf, (size_t)used);
        }
        buf = bigger;
        cap *= 2;
    }
    return RU_FAIL(err, RU_E_MEM, "no memory to read %s", path);
}

ru_status ru_file_read(const char *path, int64_t size_max_bytes, ru_arena *arena, char **data,
                       int64_t *size_bytes, ru_err *err)
{
    int64_t bound = size_max_bytes > 0 ? size_max_bytes : (int64_t)1 << 30;
    int fd;
    int64_t size;
    RU_TRY(open_readable(path, true, &fd, &size, err));
    if (size <= 0) { /* also files of /proc, which say 0 */
        ru_status st = read_unsized(fd, path, bound, arena, data, size_bytes, err);
        close(fd);
        return st;
    }
    if (size > bound) {
        close(fd);
        return RU_FAIL(err, RU_E_LIMIT, "%s has %lld bytes, at most %lld are allowed here", path,
                       (long long)size, (long long)bound);
    }
    char *buf = ru_arena_alloc(arena, size + 1, 64);
    if (buf == NULL) {
        close(fd);
        return RU_FAIL(err, RU_E_MEM, "no memory to read %s (%lld bytes)", path, (long long)size);
    }
    int64_t n = read_full(fd, buf, size, 0);
    close(fd);
    if (n < 0) {
        return rui_file_fail(err, (int)-n, "read", path);
    }
    buf[n] = '\0';
    *data = buf;
    *size_bytes = n;
    return RU_OK;
}

ru_status ru_in_open(const char *path, ru_in_file *out, ru_err *err)
{
    ru_in_file f = {.fd = -1};
    RU_TRY(open_readable(path, false, &f.fd, &f.size_bytes, err));
    if (f.size_bytes < 0) {
        close(f.fd);
        return RU_FAIL(err, RU_E_DATA, "cannot read %s: it is not a regular file", path);
    }
    struct stat st;
    f.id = fstat(f.fd, &st) == 0 ? (uint64_t)st.st_ino : 0;
    *out = f;
    return RU_OK;
}

ru_status ru_in_open_own(const char *path, ru_in_file *out, ru_err *err)
{
    ru_in_file f = {.fd = -1};
    struct stat st;
    RU_TRY(rui_open_own(path, O_RDONLY, 0, &f.fd, err));
    if (fstat(f.fd, &st) != 0) {
        int e = errno;
        close(f.fd);
        return rui_file_fail(err, e, "look at", path);
    }
    f.size_bytes = st.st_size;
    f.id = (uint64_t)st.st_ino;
    *out = f;
    return RU_OK;
}

bool ru_in_direct(ru_in_file *f)
{
    int flags = fcntl(f->fd, F_GETFL);
    void *unit = aligned_alloc(RU_DIRECT_BYTES, RU_DIRECT_BYTES);
    bool can = flags >= 0 && unit != NULL && fcntl(f->fd, F_SETFL, flags | O_DIRECT) == 0;
    /* Some take the flag and refuse the reads. */
    f->direct = can && read_full(f->fd, unit, RU_DIRECT_BYTES, 0) >= 0;
    if (can && !f->direct) {
        (void)fcntl(f->fd, F_SETFL, flags);
    }
    free(unit);
    return f->direct;
}

static int64_t whole_units(int64_t size_bytes)
{
    return (size_bytes + RU_DIRECT_BYTES - 1) / RU_DIRECT_BYTES * RU_DIRECT_BYTES;
}

/* As read_full, by way of whole units. */
static int64_t read_direct(int fd, uint8_t *into, int64_t size_bytes, int64_t offset)
{
    int64_t room = whole_units(offset % RU_DIRECT_BYTES + size_bytes), done = 0;
    room = room < DIRECT_PART_BYTES ? room : DIRECT_PART_BYTES;
    uint8_t *part = aligned_alloc(RU_DIRECT_BYTES, (size_t)(room > 0 ? room : RU_DIRECT_BYTES));
    if (part == NULL) {
        return -ENOMEM;
    }
    while (done < size_bytes) {
        int64_t skip = (offset + done) % RU_DIRECT_BYTES, left = size_bytes - done;
        int64_t want = whole_units(skip + left) < room ? whole_units(skip + left) : room;
        ssize_t n = pread(fd, part, (size_t)want, offset + done - skip);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            done = -errno;
            break;
        }
        int64_t got = n - skip < left ? n - skip : left;
        if (got <= 0) {
            break; /* the end of the file */
        }
        memcpy(into + done, part + skip, (size_t)got);
        done += got;
    }
    free(part);
    return done;
}

ru_status ru_in_read(const ru_in_file *f, const char *path, int64_t offset, void *into,
                     int64_t size_bytes, ru_err *err)
{
    RU_CHECK(offset >= 0 && size_bytes >= 0);
    int64_t n = f->direct ? read_direct(f->fd, into, size_bytes, offset)
                          : read_full(f->fd, into, size_bytes, offset);
    if (n < 0) {
        return rui_file_fail(err, (int)-n, "read", path);
    }
    if (n < size_bytes) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s ends too early: expected %lld bytes at offset %lld, found %lld", path,
                       (long long)size_bytes, (long long)offset, (long long)n);
    }
    return RU_OK;
}

void ru_in_advise_sequential(const ru_in_file *f)
{
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

void ru_in_advise_soon(const ru_in_file *f, int64_t offset, int64_t size_bytes)
{
    (void)posix_fadvise(f->fd, offset, size_bytes, POSIX_FADV_WILLNEED);
}

void ru_in_close(ru_in_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    *f = (ru_in_file){.fd = -1};
}
