/* Limits and figures of a control group: the files of both versions. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "env/process/group_impl.h"

const uint32_t rui_group_bit[RUI_TREES] = {RU_GROUP_CPU, 0, RU_GROUP_MEMORY, RU_GROUP_PIDS,
                                           RU_GROUP_IO};

const char *ru_group_names(uint32_t bits)
{
    static const char *const of[] = {
        "nothing",
        "cpu",
        "memory",
        "cpu and memory",
        "pids",
        "cpu and pids",
        "memory and pids",
        "cpu, memory and pids",
        "io",
        "cpu and io",
        "memory and io",
        "cpu, memory and io",
        "pids and io",
        "cpu, pids and io",
        "memory, pids and io",
        "cpu, memory, pids and io",
    };
    return of[bits & 15];
}

ru_status rui_group_fails(ru_err *err, int e, const char *what, const char *path)
{
    ru_status st = e == EACCES || e == EPERM || e == EROFS    ? RU_E_PERM
                   : e == ENOENT || e == ENODEV || e == ESRCH ? RU_E_MISSING
                   : e == EBUSY                               ? RU_E_AGAIN
                                                              : RU_E_LIMIT;
    return RU_FAIL(err, st, "%s %s: %s", what, path, strerror(e));
}

ru_status rui_group_put(const char *dir, const char *file, const char *value, ru_err *err)
{
    char path[4096];
    ru_text t = ru_text_into(path, sizeof path);
    ru_text_putf(&t, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW), e = errno;
    bool ok = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
    e = fd >= 0 ? errno : e;
    if (fd >= 0) {
        close(fd);
    }
    if (ok) {
        return RU_OK;
    }
    char what[128];
    t = ru_text_into(what, sizeof what);
    ru_text_putf(&t, "cannot write %s to", value);
    return rui_group_fails(err, e, what, path);
}

ru_status rui_group_put_i64(const char *dir, const char *file, int64_t value, ru_err *err)
{
    char text[32];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "%lld", (long long)value);
    return rui_group_put(dir, file, text, err);
}

ru_str rui_group_text(ru_arena *arena, const char *dir, const char *file)
{
    const char *path = ru_path_join(arena, dir, file);
    char *text;
    int64_t n;
    return path != NULL && ru_file_read(path, 1 << 20, arena, &text, &n, NULL) == RU_OK
               ? ru_str_n(text, n)
               : ru_str_c("");
}

bool rui_group_has(ru_arena *arena, const char *dir, const char *file)
{
    const char *path = ru_path_join(arena, dir, file);
    return path != NULL && ru_path_exists(path);
}

static ru_status set_cpu_1(ru_group *g, int64_t quota_us, int64_t period_us, ru_err *err)
{
    const char *dir = g->dir[RUI_CPU];
    if (period_us != g->period_us) { /* the old quota may be too much for the new period */
        RU_TRY(rui_group_put(dir, "cpu.cfs_quota_us", "-1", err));
        RU_TRY(rui_group_put_i64(dir, "cpu.cfs_period_us", period_us, err));
        g->period_us = period_us;
    }
    return rui_group_put_i64(dir, "cpu.cfs_quota_us", quota_us > 0 ? quota_us : -1, err);
}

static ru_status set_cpu(ru_group *g, const ru_group_limits *l, ru_err *err)
{
    enum { LEAST_US = 1000, MOST_US = 1000000 };
    const char *dir = g->dir[RUI_CPU];
    int64_t quota_us = l->cpu_quota_ns / 1000;
    int64_t period_us = (l->cpu_period_ns > 0 ? l->cpu_period_ns : 10000000) / 1000;
    if (l->cpu_quota_ns > 0 && quota_us < LEAST_US) {
        int64_t times = (LEAST_US * 1000 + l->cpu_quota_ns - 1) / l->cpu_quota_ns;
        quota_us = l->cpu_quota_ns * times / 1000;
        period_us *= times;
    }
    if (period_us > MOST_US) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "the kernel cannot give so little processor time: %lld us "
                       "in %lld us",
                       (long long)quota_us, (long long)period_us);
    }
    bool can_idle = rui_group_has(&g->arena, dir, "cpu.idle");
    if (can_idle) {
        RU_TRY(rui_group_put(dir, "cpu.idle", "0", err));
    }
    int64_t weight = l->cpu_weight > 0 ? (int64_t)l->cpu_weight : 100;
    if (g->two) {
        char max[64];
        ru_text t = ru_text_into(max, sizeof max);
        ru_text_putf(&t, quota_us > 0 ? "%lld " : "max ", (long long)quota_us);
        ru_text_putf(&t, "%lld", (long long)period_us);
        RU_TRY(rui_group_put(dir, "cpu.max", max, err));
        RU_TRY(rui_group_put_i64(dir, "cpu.weight", weight, err));
    } else {
        RU_TRY(set_cpu_1(g, quota_us, period_us, err));
        RU_TRY(rui_group_put_i64(dir, "cpu.shares", weight > 1 ? weight * 1024 / 100 : 10, err));
    }
    return l->cpu_idle ? rui_group_put(dir, "cpu.idle", "1", err) : RU_OK;
}

static ru_status set_memory(ru_group *g, const ru_group_limits *l, ru_err *err)
{
    const char *dir = g->dir[RUI_MEMORY];
    bool some = l->memory_bytes > 0;
    if (!g->two) { /* memory alone may never be more than memory and swap together */
        bool swap = rui_group_has(&g->arena, dir, "memory.memsw.limit_in_bytes");
        if (swap) {
            RU_TRY(rui_group_put(dir, "memory.memsw.limit_in_bytes", "-1", err));
        }
        RU_TRY(rui_group_put_i64(dir, "memory.limit_in_bytes", some ? l->memory_bytes : -1, err));
        return some && swap
                   ? rui_group_put_i64(dir, "memory.memsw.limit_in_bytes", l->memory_bytes, err)
                   : RU_OK;
    }
    if (rui_group_has(&g->arena, dir, "memory.swap.max")) {
        RU_TRY(rui_group_put(dir, "memory.swap.max", some ? "0" : "max", err));
    }
    return some ? rui_group_put_i64(dir, "memory.max", l->memory_bytes, err)
                : rui_group_put(dir, "memory.max", "max", err);
}

static ru_status set_pids(ru_group *g, const ru_group_limits *l, ru_err *err)
{
    return l->pids > 0 ? rui_group_put_i64(g->dir[RUI_PIDS], "pids.max", l->pids, err)
                       : rui_group_put(g->dir[RUI_PIDS], "pids.max", "max", err);
}

static const char *const throttles[] = {
    "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"};

static ru_status set_device(ru_group *g, const ru_group_io *d, ru_err *err)
{
    const char *const key[] = {"rbps", "wbps", "riops", "wiops"};
    const int64_t value[] = {d->read_bytes_s, d->write_bytes_s, d->read_ops_s, d->write_ops_s};
    char line[256];
    ru_text two = ru_text_into(line, sizeof line);
    ru_text_putf(&two, "%u:%u", d->major, d->minor);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(value); k++) {
        if (g->two) {
            ru_text_putf(&two, value[k] > 0 ? " %s=%lld" : " %s=max", key[k], (long long)value[k]);
        } else {
            char one[64];
            ru_text t = ru_text_into(one, sizeof one);
            ru_text_putf(&t, "%u:%u %lld", d->major, d->minor, (long long)value[k]);
            RU_TRY(rui_group_put(g->dir[RUI_IO], throttles[k], one, err));
        }
    }
    return g->two ? rui_group_put(g->dir[RUI_IO], "io.max", line, err) : RU_OK;
}

/* Devices of this file that the limits do not name; who set them may be gone. */
static ru_status free_devices(ru_group *g, const char *file, const ru_group_limits *l, ru_err *err)
{
    ru_str rest = rui_group_text(&g->arena, g->dir[RUI_IO], file), line, minor, major;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t number[2];
        bool stays = false;
        if (!ru_str_next(&line, ' ', &minor) || !ru_str_next(&minor, ':', &major) ||
            !ru_str_i64(major, &number[0]) || !ru_str_i64(minor, &number[1])) {
            continue;
        }
        const ru_group_io none = {.major = (uint32_t)number[0], .minor = (uint32_t)number[1]};
        for (uint32_t k = 0; k < l->n_io; k++) {
            stays = stays || (l->io[k].major == none.major && l->io[k].minor == none.minor);
        }
        RU_TRY(stays ? RU_OK : set_device(g, &none, err));
    }
    return RU_OK;
}

static ru_status set_io(ru_group *g, const ru_group_limits *l, ru_err *err)
{
    for (uint32_t k = 0; k < (g->two ? 1 : RU_ARRAY_LEN(throttles)); k++) {
        RU_TRY(free_devices(g, g->two ? "io.max" : throttles[k], l, err));
    }
    for (uint32_t k = 0; k < l->n_io; k++) {
        RU_TRY(set_device(g, &l->io[k], err));
    }
    return RU_OK;
}

uint32_t rui_group_wants(const ru_group_limits *l)
{
    return (l->cpu_quota_ns > 0 || l->cpu_weight > 0 || l->cpu_idle ? RU_GROUP_CPU : 0U) |
           (l->memory_bytes > 0 ? RU_GROUP_MEMORY : 0U) | (l->pids > 0 ? RU_GROUP_PIDS : 0U) |
           (l->n_io > 0 ? RU_GROUP_IO : 0U);
}

ru_status rui_group_set_tree(ru_group *g, int tree, const ru_group_limits *l, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(&g->arena);
    ru_status st = RU_OK;
    if (g->dir[tree] == NULL) {
        st = (rui_group_wants(l) & rui_group_bit[tree]) == 0
                 ? RU_OK
                 : RU_FAIL(err, RU_E_MISSING, "the control group has no controller %s",
                           ru_group_names(rui_group_bit[tree]));
    } else {
        st = tree == RUI_CPU      ? set_cpu(g, l, err)
             : tree == RUI_MEMORY ? set_memory(g, l, err)
             : tree == RUI_PIDS   ? set_pids(g, l, err)
             : tree == RUI_IO     ? set_io(g, l, err)
                                  : RU_OK;
    }
    ru_arena_rewind(&g->arena, mark);
    return st;
}

ru_status ru_group_set(ru_group *g, const ru_group_limits *limits, ru_err *err)
{
    for (int tree = 0; tree < RUI_TREES; tree++) {
        RU_TRY(rui_group_set_tree(g, tree, limits, err));
    }
    return RU_OK;
}

/* The number behind `key` in lines "key number"; "": the first number of the file. */
static int64_t number(ru_arena *arena, const char *dir, const char *file, const char *key)
{
    int64_t value = -1;
    ru_str rest = dir == NULL ? ru_str_c("") : rui_group_text(arena, dir, file), line;
    while (ru_str_next(&rest, '\n', &line)) {
        ru_str head = line;
        if (key[0] == 0 || (ru_str_next(&line, ' ', &head) && ru_str_eq_c(head, key))) {
            return ru_str_i64(ru_str_trim(line), &value) ? value : -1;
        }
    }
    return -1;
}

/* Of a device "MAJOR:MINOR ... key=number" (version 2) or "MAJOR:MINOR key number". The kernel has
 * no line of one that was not used. */
static int64_t io_of(ru_arena *arena, const ru_group *g, const char *file, const char *device,
                     const char *key)
{
    int64_t v;
    if (g->dir[RUI_IO] == NULL || !rui_group_has(arena, g->dir[RUI_IO], file)) {
        return -1;
    }
    ru_str rest = rui_group_text(arena, g->dir[RUI_IO], file), line, word;
    while (ru_str_next(&rest, '\n', &line)) {
        bool is = ru_str_next(&line, ' ', &word) && ru_str_eq_c(word, device);
        while (is && ru_str_next(&line, ' ', &word)) {
            ru_str value = g->two ? ru_str_from(word, (int64_t)strlen(key) + 1) : line;
            if (ru_str_starts(word, key) && ru_str_i64(value, &v)) {
                return v;
            }
        }
    }
    return 0;
}

void ru_group_read_io(const ru_group *g, uint32_t major, uint32_t minor, ru_group_figures *out)
{
    char device[32];
    ru_arena arena;
    ru_arena_init(&arena, 8 << 20);
    (void)snprintf(device, sizeof device, "%u:%u", major, minor);
    const char *bytes = g->two ? "io.stat" : "blkio.throttle.io_service_bytes_recursive";
    const char *ops = g->two ? "io.stat" : "blkio.throttle.io_serviced_recursive";
    out->read_bytes = io_of(&arena, g, bytes, device, g->two ? "rbytes" : "Read");
    out->write_bytes = io_of(&arena, g, bytes, device, g->two ? "wbytes" : "Write");
    out->read_ops = io_of(&arena, g, ops, device, g->two ? "rios" : "Read");
    out->write_ops = io_of(&arena, g, ops, device, g->two ? "wios" : "Write");
    ru_arena_fini(&arena);
}

void ru_group_read(const ru_group *g, ru_group_figures *out)
{
    ru_arena arena;
    ru_arena_init(&arena, 8 << 20);
    const char *cpu = g->dir[RUI_CPU], *memory = g->dir[RUI_MEMORY];
    *out = (ru_group_figures){
        .cpu_ns = g->two ? number(&arena, cpu, "cpu.stat", "usage_usec")
                         : number(&arena, g->dir[RUI_USAGE], "cpuacct.usage", ""),
        .throttled_ns =
            number(&arena, cpu, "cpu.stat", g->two ? "throttled_usec" : "throttled_time"),
        .throttled = number(&arena, cpu, "cpu.stat", "nr_throttled"),
        .memory_bytes =
            number(&arena, memory, g->two ? "memory.current" : "memory.usage_in_bytes", ""),
        .memory_peak_bytes =
            number(&arena, memory, g->two ? "memory.peak" : "memory.max_usage_in_bytes", ""),
        .oom_kills =
            number(&arena, memory, g->two ? "memory.events" : "memory.oom_control", "oom_kill"),
        .pids = number(&arena, g->dir[RUI_PIDS], "pids.current", ""),
        .read_bytes = -1,
        .write_bytes = -1,
        .read_ops = -1,
        .write_ops = -1,
    };
    if (g->two) { /* its times are in microseconds */
        out->cpu_ns *= out->cpu_ns > 0 ? 1000 : 1;
        out->throttled_ns *= out->throttled_ns > 0 ? 1000 : 1;
    }
    ru_arena_fini(&arena);
}
