#include "env/process/groups.h"

#include <string.h>

#include "env/file/file.h"

const char rui_groups_root[] = "/sys/fs/cgroup";

bool rui_groups_listed(ru_str list, char between, const char *what)
{
    ru_str one;
    list = ru_str_trim(list);
    while (ru_str_next(&list, between, &one)) {
        if (ru_str_eq_c(one, what)) {
            return true;
        }
    }
    return false;
}

/* A group's limit holds for all groups below it: each is looked at, up to the root (which is where
 * a container sees its own). */
void rui_groups_each(ru_arena *arena, ru_str groups, const char *root, const char *controller,
                     rui_group_fn fn, void *arg)
{
    ru_str line, number, names;
    while (ru_str_next(&groups, '\n', &line)) {
        if (!ru_str_next(&line, ':', &number) || !ru_str_next(&line, ':', &names)) {
            continue;
        }
        bool two = names.n == 0;
        if (!two && !rui_groups_listed(names, ',', controller)) {
            continue;
        }
        const char *base = two ? root : ru_path_join(arena, root, controller);
        char *dir =
            base == NULL ? NULL : ru_arena_printf(arena, "%s%.*s", base, (int)line.n, line.p);
        for (char *end = dir; end != NULL; end = strrchr(dir + strlen(base), '/')) {
            if (end != dir) {
                *end = 0;
            }
            fn(arg, arena, dir, two);
        }
    }
}

ru_str rui_groups_own(ru_arena *arena)
{
    char *text;
    int64_t n;
    ru_status st = ru_file_read("/proc/self/cgroup", 1 << 16, arena, &text, &n, NULL);
    return st == RU_OK ? ru_str_n(text, n) : ru_str_c("");
}

/* The first `max` numbers of a small file ("max" is none); returns how many are there. */
static uint32_t numbers_of(ru_arena *arena, const char *dir, const char *name, int64_t *into,
                           uint32_t max)
{
    const char *path = ru_path_join(arena, dir, name);
    char *text;
    int64_t n;
    uint32_t got = 0;
    if (path == NULL || ru_file_read(path, 4096, arena, &text, &n, NULL) != RU_OK) {
        return 0;
    }
    ru_str rest = ru_str_trim(ru_str_n(text, n)), word;
    while (got < max && ru_str_next(&rest, ' ', &word) && ru_str_i64(word, &into[got])) {
        got++;
    }
    return got;
}

/* The least quota so far, in microseconds as the kernel counts; quota_us 0: none. */
typedef struct least {
    int64_t quota_us, period_us;
} least;

static void look_at(void *arg, ru_arena *arena, const char *dir, bool two)
{
    least *l = arg;
    int64_t v[2] = {0, 0};
    if (two ? numbers_of(arena, dir, "cpu.max", v, 2) != 2
            : numbers_of(arena, dir, "cpu.cfs_quota_us", &v[0], 1) != 1 ||
                  numbers_of(arena, dir, "cpu.cfs_period_us", &v[1], 1) != 1) {
        return; /* not there, or "max" */
    }
    if (v[0] <= 0 || v[1] <= 0) {
        return; /* version 1's word for none is -1 */
    }
    double part = (double)v[0] / (double)v[1];
    if (l->quota_us == 0 || part < (double)l->quota_us / (double)l->period_us) {
        *l = (least){v[0], v[1]};
    }
}

uint32_t rui_groups_cores_of(ru_arena *arena, ru_str groups, const char *root)
{
    least l = {0, 1};
    rui_groups_each(arena, groups, root, "cpu", look_at, &l);
    int64_t cores = l.quota_us / l.period_us + (l.quota_us % l.period_us != 0);
    return cores <= UINT32_MAX ? (uint32_t)cores : 0;
}

bool rui_groups_quota_of(ru_arena *arena, ru_str groups, const char *root, int64_t *quota_ns,
                         int64_t *period_ns)
{
    enum { SECONDS_MAX = 1000000 };
    least l = {0, 1};
    rui_groups_each(arena, groups, root, "cpu", look_at, &l);
    bool some = l.quota_us > 0 && l.quota_us < INT64_C(1000000) * SECONDS_MAX &&
                l.period_us < INT64_C(1000000) * SECONDS_MAX;
    *quota_ns = some ? l.quota_us * 1000 : 0;
    *period_ns = some ? l.period_us * 1000 : 0;
    return some;
}

uint32_t ru_groups_cores(ru_arena *arena)
{
    return rui_groups_cores_of(arena, rui_groups_own(arena), rui_groups_root);
}

bool ru_groups_quota(ru_arena *arena, int64_t *quota_ns, int64_t *period_ns)
{
    return rui_groups_quota_of(arena, rui_groups_own(arena), rui_groups_root, quota_ns, period_ns);
}
