#include "env/file/memfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static ru_status write_all(int fd, const uint8_t *data, int64_t size_bytes, ru_err *err)
{
    while (size_bytes > 0) {
        ssize_t n = write(fd, data, (size_t)size_bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return RU_FAIL(err, errno == ENOMEM ? RU_E_MEM : RU_E_IO,
                           "%lld bytes cannot be kept as a file in memory: %s",
                           (long long)size_bytes, strerror(errno));
        }
        data += n;
        size_bytes -= n;
    }
    return RU_OK;
}

ru_status ru_memfile_open(const void *data, int64_t size_bytes, int *fd, char path[RU_MEMFILE_PATH],
                          ru_err *err)
{
    int at = memfd_create("rubato-file", MFD_CLOEXEC);
    if (at < 0) {
        return RU_FAIL(err, errno == ENOMEM ? RU_E_MEM : RU_E_IO,
                       "no file in memory can be made: %s", strerror(errno));
    }
    ru_status st = write_all(at, data, size_bytes, err);
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
