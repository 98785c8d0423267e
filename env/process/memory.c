#include "env/process/memory.h"

#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/str.h"
#include "env/file/file.h"
#include "env/process/groups.h"

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

static void look_at(void *arg, ru_arena *arena, const char *dir, bool two)
{
    rui_memory_groups *out = arg;
    const dialect *d = two ? &version_2 : &version_1;
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

rui_memory_groups rui_memory_groups_of(ru_arena *arena, ru_str groups, const char *root)
{
    rui_memory_groups out = {.rest_bytes = INT64_MAX};
    rui_groups_each(arena, groups, root, "memory", look_at, &out);
    return out;
}

static rui_memory_groups own_groups(ru_arena *arena)
{
    return rui_memory_groups_of(arena, rui_groups_own(arena), rui_groups_root);
}

int64_t ru_memory_limit_bytes(ru_arena *arena)
{
    return own_groups(arena).limit_bytes;
}

int64_t ru_memory_free_bytes(void)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    int64_t kib = number_of(&scratch, "/proc/meminfo", "MemAvailable:");
    int64_t free = kib >= 0 ? kib * 1024 : INT64_MAX, rest = own_groups(&scratch).rest_bytes;
    ru_arena_fini(&scratch);
    free = rest < free ? rest : free;
    return free < INT64_MAX ? free : -1;
}

enum { PAGE_BYTES = 4096 };

static int64_t mapped(int64_t size_bytes)
{
    int64_t page = size_bytes >= RU_MEMORY_PAGE_BYTES ? RU_MEMORY_PAGE_BYTES : PAGE_BYTES;
    return (size_bytes + page - 1) / page * page;
}

int64_t ru_memory_own_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) {
        return 0;
    }
    int n = fscanf(f, "%*d %*d %*d %*d %*d %lld", &pages);
    (void)fclose(f);
    return n == 1 ? (int64_t)pages * sysconf(_SC_PAGESIZE) : 0;
}

int64_t ru_memory_touched_bytes(void)
{
    long long resident = 0, files = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) {
        return 0;
    }
    int n = fscanf(f, "%*d %lld %lld", &resident, &files);
    (void)fclose(f);
    return n == 2 ? (int64_t)(resident - files) * sysconf(_SC_PAGESIZE) : 0;
}

void ru_memory_own_bound(int64_t size_bytes)
{
    const struct rlimit most = {(rlim_t)size_bytes, (rlim_t)size_bytes};
    (void)setrlimit(RLIMIT_DATA, &most);
}

uint32_t ru_files_max(uint32_t want)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) {
        return want;
    }
    if (r.rlim_cur < want) {
        r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
        (void)setrlimit(RLIMIT_NOFILE, &r);
        (void)getrlimit(RLIMIT_NOFILE, &r);
    }
    return r.rlim_cur < want ? (uint32_t)r.rlim_cur : want;
}

void *ru_memory_map(int64_t size_bytes)
{
    /* Kernels before 6.7 put it anywhere, but large pages begin at multiples of their size. */
    int64_t bytes = mapped(size_bytes);
    int64_t more = bytes >= RU_MEMORY_LARGE_BYTES ? RU_MEMORY_PAGE_BYTES - PAGE_BYTES : 0;
    uint8_t *p = mmap(NULL, (size_t)(bytes + more), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    if (more > 0) {
        int64_t before = -(int64_t)(uintptr_t)p & (RU_MEMORY_PAGE_BYTES - 1);
        (void)(before > 0 ? munmap(p, (size_t)before) : 0);
        p += before;
        (void)(before < more ? munmap(p + bytes, (size_t)(more - before)) : 0);
    }
    /* a last large page that would be less than half used costs more than it saves */
    int64_t tail = size_bytes % RU_MEMORY_PAGE_BYTES;
    if (bytes >= RU_MEMORY_LARGE_BYTES) {
        bytes -= tail > 0 && tail < RU_MEMORY_PAGE_BYTES / 2 ? RU_MEMORY_PAGE_BYTES : 0;
        (void)madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    }
    return p;
}

void ru_memory_small(void *p, int64_t n_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)p / page * page,
              to = ((uintptr_t)p + (uintptr_t)n_bytes) / page * page;
    if (to > from) {
        (void)madvise((void *)from, to - from, MADV_NOHUGEPAGE);
    }
}

void ru_memory_forget(void *p, int64_t n_bytes, int64_t size_bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE), whole = n_bytes / page * page;
    if (n_bytes == size_bytes) { /* what a large page has behind it too */
        n_bytes = whole = mapped(size_bytes);
    }
    if (whole > 0 && madvise(p, (size_t)whole, MADV_DONTNEED) != 0) {
        memset(p, 0, (size_t)whole);
    }
    memset((uint8_t *)p + whole, 0, (size_t)(n_bytes - whole));
}

void ru_memory_trim(void)
{
    (void)malloc_trim(0);
}

void ru_memory_drop(const void *p, int64_t n_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)p + (uintptr_t)n_bytes) / page * page;
    if (to > from) {
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
}

void ru_memory_unmap(void *p, int64_t size_bytes)
{
    if (p != NULL) {
        (void)munmap(p, (size_t)mapped(size_bytes));
    }
}
