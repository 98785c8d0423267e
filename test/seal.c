/* The checked allocator of the test binary: between ru_alloc_seal and ru_alloc_unseal every
 * allocation that our own code makes on the sealing thread is a crash that names the call.
 *
 * The linker sends malloc and its kin through the functions below (--wrap in test/meson.build).
 * Calls inside shared libraries (oneDNN builds a small table at each execution) do not pass here:
 * what is promised is that Rubato allocates nothing. ru_test_alloc_fail makes the k-th allocation
 * fail, for sweeps over error paths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "test/test.h"

static _Thread_local int sealed;
static _Thread_local int64_t fail_after = -1; /* allocations that still succeed; -1: all */
static _Thread_local int64_t made;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
int __real_posix_memalign(void **p, size_t align, size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
int __wrap_posix_memalign(void **p, size_t align, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

void ru_alloc_seal(void)
{
    sealed++;
}

void ru_alloc_unseal(void)
{
    RU_CHECK(sealed > 0);
    sealed--;
}

void ru_test_alloc_fail(int64_t after)
{
    fail_after = after;
    made = 0;
}

int64_t ru_test_alloc_count(void)
{
    return made;
}

/* May this allocation be made? Crashes when sealed. */
static bool allowed(const char *call, size_t size)
{
    if (sealed > 0) {
        int n = sealed;
        sealed = 0; /* the panic itself may allocate */
        ru_panic(__FILE__, __LINE__, "%s of %zu bytes while allocation is sealed (%d deep)", call,
                 size, n);
    }
    made++;
    if (ru_test_fails_everywhere(false)) {
        return false;
    }
    if (fail_after == 0) {
        return false;
    }
    fail_after -= fail_after > 0;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return allowed("malloc", size) ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return allowed("calloc", n * size) ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t size)
{
    return allowed("realloc", size) ? __real_realloc(p, size) : NULL;
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return allowed("aligned_alloc", size) ? __real_aligned_alloc(align, size) : NULL;
}

int __wrap_posix_memalign(void **p, size_t align, size_t size)
{
    enum { NO_MEMORY = 12 };
    return allowed("posix_memalign", size) ? __real_posix_memalign(p, align, size) : NO_MEMORY;
}

char *__wrap_strdup(const char *s)
{
    return allowed("strdup", strlen(s) + 1) ? __real_strdup(s) : NULL;
}

char *__wrap_strndup(const char *s, size_t n)
{
    return allowed("strndup", n + 1) ? __real_strndup(s, n) : NULL;
}
