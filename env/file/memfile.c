#include "env/file/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static ru_status write_all(int fd, int64_t at, const uint8_t *data, int64_t size_bytes, ru_err *err)
{
    while (size_bytes > 0) {
        ssize_t n = pwrite(fd, data, (size_t)size_bytes, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return RU_FAIL(err, errno == ENOMEM ? RU_E_MEM : RU_E_IO,
                           "%lld bytes cannot be kept as a file in memory: %s",
                           (long long)size_bytes, strerror(errno));
        }
        data += n;
        at += n;
        size_bytes -= n;
    }
    return RU_OK;
}

static ru_status make(int *fd, ru_err *err)
{
    *fd = memfd_create("rubato-file", MFD_CLOEXEC);
    return *fd >= 0 ? RU_OK
                    : RU_FAIL(err, errno == ENOMEM ? RU_E_MEM : RU_E_IO,
                              "no file in memory can be made: %s", strerror(errno));
}

ru_status ru_memfile_open(const void *data, int64_t size_bytes, int *fd, char path[RU_MEMFILE_PATH],
                          ru_err *err)
{
    int at;
    RU_TRY(make(&at, err));
    ru_status st = write_all(at, 0, data, size_bytes, err);
    if (st != RU_OK) {
        (void)close(at);
        return st;
    }
    (void)snprintf(path, RU_MEMFILE_PATH, "/proc/self/fd/%d", at);
    *fd = at;
    return RU_OK;
}

void ru_memfile_close(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

ru_status ru_memfile_share(int *fd, char path[RU_MEMFILE_PATH], ru_err *err)
{
    RU_TRY(make(fd, err));
    (void)snprintf(path, RU_MEMFILE_PATH, "/proc/%ld/fd/%d", (long)getpid(), *fd);
    return RU_OK;
}

ru_status ru_memfile_reach(const char *path, int *fd, ru_err *err)
{
    *fd = open(path, O_RDWR | O_CLOEXEC);
    return *fd >= 0 ? RU_OK
                    : RU_FAIL(err, RU_E_PEER, "cannot open the file in memory at %s: %s", path,
                              strerror(errno));
}

ru_status ru_memfile_put(int fd, int64_t at, const void *data, int64_t size_bytes, ru_err *err)
{
    return write_all(fd, at, data, size_bytes, err);
}

bool ru_memfile_get(int fd, int64_t at, void *into, int64_t size_bytes)
{
    uint8_t *to = into;
    while (size_bytes > 0) {
        ssize_t n = pread(fd, to, (size_t)size_bytes, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        to += n;
        at += n;
        size_bytes -= n;
    }
    return true;
}

ru_status ru_memfile_map(int64_t size_bytes, uint8_t **into, ru_map_file *out, ru_err *err)
{
    *into = NULL;
    *out = (ru_map_file){(const uint8_t *)"", 0};
    if (size_bytes > 0) {
        void *p = mmap(NULL, (size_t)size_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a file of %lld bytes",
                           (long long)size_bytes);
        }
        *into = p;
        *out = (ru_map_file){p, size_bytes};
    }
    return RU_OK;
}

ru_status ru_memfile_on_disk(const char *folder, int64_t size_bytes, void **out, ru_err *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/.rubato-XXXXXX", folder);
    int fd = n > 0 && n < (int)sizeof path ? mkostemp(path, O_CLOEXEC) : -1;
    int why = fd < 0 || unlink(path) != 0 ? errno : EINTR;
    while (fd >= 0 && why == EINTR) {
        why = posix_fallocate(fd, 0, size_bytes);
    }
    void *p = why == 0 ? mmap(NULL, (size_t)size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    why = why == 0 && p == MAP_FAILED ? errno : why;
    ru_memfile_close(fd);
    if (why != 0) {
        return RU_FAIL(err, why == ENOMEM ? RU_E_MEM : RU_E_CREATE,
                       "%s: no room for %lld bytes that do not fit into memory: %s", folder,
                       (long long)size_bytes, strerror(why));
    }
    *out = p;
    return RU_OK;
}

void ru_memfile_leave(void *at, int64_t size_bytes)
{
    if (at != NULL) {
        (void)munmap(at, (size_t)size_bytes);
    }
}

int64_t ru_memfile_lay(uint8_t *at, int fd, int64_t size_bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE), n = size_bytes - size_bytes % page;
    if (n == 0 || (uintptr_t)at % (uintptr_t)page != 0 ||
        mmap(at, (size_t)n, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        return 0;
    }
    return n;
}
