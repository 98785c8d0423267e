/* Memory that nobody may touch, for AddressSanitizer: zones between allocations of one block.
 * Without it these functions do nothing.
 *
 * Thread: that of the memory. */
#ifndef RU_BASE_ASAN_H
#define RU_BASE_ASAN_H

#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(RU_ASAN)
#define RU_ASAN 1
#endif

#if defined(RU_ASAN)
#include <sanitizer/asan_interface.h>

enum { RU_ASAN_ZONE = 32 }; /* bytes behind each allocation */

static inline void ru_asan_shut(const void *p, int64_t size_bytes)
{
    __asan_poison_memory_region(p, (size_t)size_bytes);
}

static inline void ru_asan_open(const void *p, int64_t size_bytes)
{
    __asan_unpoison_memory_region(p, (size_t)size_bytes);
}
#else
enum { RU_ASAN_ZONE = 0 };

static inline void ru_asan_shut(const void *p, int64_t size_bytes)
{
    (void)p;
    (void)size_bytes;
}

static inline void ru_asan_open(const void *p, int64_t size_bytes)
{
    (void)p;
    (void)size_bytes;
}
#endif

#endif
