#include "env/memory.h"

#include <string.h>

#include "base/str.h"
#include "env/file.h"

/* The number behind `key` in a file of "key number" lines ("" and one line: the number); -1 when it
 * is not there. */
static int64_t number_of(ru_arena *arena, const char *path, const char *key)
{
    char *text;
    int64_t n, value = -1;
    if (path == NULL || ru_file_read(path, 1 << 20, arena, &text, &n, NULL) != RU_OK) {
        return -1;
    }
    ru_str rest = ru_str_n(text, n), line;
    while (ru_str_next(&rest, '\n', &line)) {
        if (ru_str_starts(line, key)) {
            ru_str number = ru_str_trim(ru_str_from(line, (int64_t)strlen(key)));
            number.n -= ru_str_ends(number, " kB") ? 3 : 0;
            return ru_str_i64(number, &value) ? value : -1;
        }
    }
    return -1;
}

/* Names of files, and the number of what can be dropped of a group's memory. */
typedef struct dialect {
    const char *limit, *used, *dropped;
} dialect;

static const dialect version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file "};
static const dialect version_2 = {"memory.max", "memory.current", "inactive_file "};

static void look_at(ru_arena *arena, const char *dir, const dialect *d, rui_memory_groups *out)
{
    int64_t limit = number_of(arena, ru_path_join(arena, dir, d->limit), "");
    if (limit < 0 || limit > INT64_MAX / 4) {
        return; /* not there, "max", or version 1's word for none */
    }
    int64_t used = number_of(arena, ru_path_join(arena, dir, d->used), "");
    int64_t dropped = number_of(arena, ru_path_join(arena, dir, "memory.stat"), d->dropped);
    used -= used > 0 && dropped > 0 ? dropped : 0;
    int64_t rest = used < limit ? limit - (used > 0 ? used : 0) : 0;
    out->limit_bytes = out->limit_bytes == 0 || limit < out->limit_bytes ? limit : out->limit_bytes;
    out->rest_bytes = rest < out->rest_bytes ? rest : out->rest_bytes;
}

/* Is `what` one of the names in the list "a,b,c"? */
static bool in_list(ru_str list, const char *what)
{
    ru_str one;
    while (ru_str_next(&list, ',', &one)) {
        if (ru_str_eq_c(one, what)) {
            return true;
        }
    }
    return false;
}

/* A group's limit holds for all groups below it: each is looked at, up to the root (which is where
 * a container sees its own). */
rui_memory_groups rui_memory_groups_of(ru_arena *arena, ru_str groups, const char *root)
{
    rui_memory_groups out = {.rest_bytes = INT64_MAX};
    ru_str line, number, names;
    while (ru_str_next(&groups, '\n', &line)) {
        if (!ru_str_next(&line, ':', &number) || !ru_str_next(&line, ':', &names)) {
            continue;
        }
        bool two = names.n == 0;
        if (!two && !in_list(names, "memory")) {
            continue;
        }
        const char *base = two ? root : ru_path_join(arena, root, "memory");
        char *dir =
            base == NULL ? NULL : ru_arena_printf(arena, "%s%.*s", base, (int)line.n, line.p);
        for (char *end = dir; end != NULL; end = strrchr(dir + strlen(base), '/')) {
            if (end != dir) {
                *end = 0;
            }
            look_at(arena, dir, two ? &version_2 : &version_1, &out);
        }
    }
    return out;
}

static rui_memory_groups own_groups(ru_arena *arena)
{
    char *text;
    int64_t n;
    if (ru_file_read("/proc/self/cgroup", 1 << 16, arena, &text, &n, NULL) != RU_OK) {
        return (rui_memory_groups){.rest_bytes = INT64_MAX};
    }
    return rui_memory_groups_of(arena, ru_str_n(text, n), "/sys/fs/cgroup");
}

int64_t ru_memory_limit_bytes(ru_arena *arena)
{
    return own_groups(arena).limit_bytes;
}

int64_t ru_memory_free_bytes(ru_arena *arena)
{
    int64_t kib = number_of(arena, "/proc/meminfo", "MemAvailable:");
    int64_t free = kib >= 0 ? kib * 1024 : INT64_MAX, rest = own_groups(arena).rest_bytes;
    free = rest < free ? rest : free;
    return free < INT64_MAX ? free : -1;
}
