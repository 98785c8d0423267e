#include "env/memory.h"

#include <string.h>

#include "base/str.h"
#include "env/file.h"

/* The number behind `key` in a file of "key: number kB" lines; -1 when it is not there. */
static int64_t meminfo_kib(ru_arena *arena, const char *key)
{
    char *text;
    int64_t n, value = -1;
    if (ru_file_read("/proc/meminfo", 1 << 20, arena, &text, &n, NULL) != RU_OK) {
        return -1;
    }
    ru_str rest = ru_str_n(text, n), line;
    while (ru_str_next(&rest, '\n', &line)) {
        if (ru_str_starts(line, key)) {
            ru_str number = ru_str_trim(ru_str_from(line, (int64_t)strlen(key)));
            number.n -= ru_str_ends(number, " kB") ? 3 : 0;
            (void)ru_str_i64(number, &value);
        }
    }
    return value;
}

static int64_t read_limit(ru_arena *arena, const char *path)
{
    char *text;
    int64_t n, v;
    if (ru_file_read(path, 4096, arena, &text, &n, NULL) != RU_OK ||
        !ru_str_i64(ru_str_trim(ru_str_n(text, n)), &v) || v > INT64_MAX / 4) {
        return 0; /* not there, "max", or version 1's word for none */
    }
    return v;
}

/* Version 2 in memory.max, version 1 in memory.limit_in_bytes; each also as the container's own
 * root shows it. */
int64_t ru_memory_limit_bytes(ru_arena *arena)
{
    char *text;
    int64_t n, least = 0;
    if (ru_file_read("/proc/self/cgroup", 1 << 16, arena, &text, &n, NULL) != RU_OK) {
        return 0;
    }
    ru_str rest = ru_str_n(text, n), line;
    while (ru_str_next(&rest, '\n', &line)) {
        bool two = ru_str_starts(line, "0::");
        int64_t one = ru_str_find(line, ":memory:");
        if (!two && one < 0) {
            continue;
        }
        ru_str group = ru_str_from(line, two ? 3 : one + 8);
        const char *base = two ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        const char *file = two ? "memory.max" : "memory.limit_in_bytes";
        for (int root = 0; root < 2; root++) {
            const char *path =
                ru_arena_printf(arena, "%s%.*s/%s", base, root ? 0 : (int)group.n, group.p, file);
            int64_t v = path != NULL ? read_limit(arena, path) : 0;
            least = v > 0 && (least == 0 || v < least) ? v : least;
        }
    }
    return least;
}

int64_t ru_memory_free_bytes(ru_arena *arena)
{
    int64_t kib = meminfo_kib(arena, "MemAvailable:");
    return kib > 0 ? kib * 1024 : 0;
}
