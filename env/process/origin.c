#include "env/process/origin.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "env/clock.h"

enum { PARENT = 4, START = 22, GENERATIONS_MAX = 1 << 16 };

static const int64_t second_ns = 1000000000;

bool rui_process_field(int64_t pid, int field, int64_t *out)
{
    char path[64], stat[1024] = {0};
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    const char *at = n > 0 ? strrchr(stat, ')') : NULL; /* a name may hold any byte */
    if (at == NULL || at[1] == 0 || at[2] == 'Z' || at[2] == 'X') {
        return false;
    }
    for (int k = 2; k < field && at != NULL; k++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL && ru_str_i64(ru_str_n(at + 1, (int64_t)strspn(at + 1, "-0123456789")), out);
}

bool ru_process_is_above(int64_t pid)
{
    int64_t at = getpid();
    for (int k = 0; k < GENERATIONS_MAX && at > 0 && at != pid; k++) {
        if (!rui_process_field(at, PARENT, &at)) {
            return false;
        }
    }
    return at == pid;
}

bool ru_process_follows(int64_t pid, const char *path)
{
    struct stat st;
    int64_t ticks, hz = sysconf(_SC_CLK_TCK);
    if (stat(path, &st) != 0 || hz <= 0 || !rui_process_field(pid, START, &ticks)) {
        return false;
    }
    int64_t start_ns = ticks / hz * second_ns + ticks % hz * (second_ns / hz);
    int64_t began_wall_ns = ru_clock_wall_ns() - (ru_clock_now().ns - start_ns);
    return began_wall_ns / second_ns > (int64_t)st.st_mtim.tv_sec + 2;
}
