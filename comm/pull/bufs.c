/* Size classes: a buffer holds its class in the 64 bytes before it. Class 4 k + m: the sizes up to
 * 2^k (4 + m) / 4, so at most a quarter of a buffer is unused. */
#include "comm/pull/bufs.h"

#include <stddef.h>

enum { HEAD = 64 };

typedef struct head {
    uint32_t class;
    void *next; /* free: the next one */
} head;

_Static_assert(sizeof(head) <= HEAD, "a buffer's head");

static int64_t class_bytes(uint32_t c)
{
    return (INT64_C(1) << (c / 4 + 6)) / 4 * (4 + c % 4);
}

/* Smallest class that holds so many bytes, head included; RU_BUFS_CLASSES: none. */
static uint32_t class_of(int64_t size_bytes)
{
    uint32_t c = 0;
    while (c + 4 < RU_BUFS_CLASSES && class_bytes(c + 4) < size_bytes) {
        c += 4;
    }
    while (c < RU_BUFS_CLASSES && class_bytes(c) < size_bytes) {
        c++;
    }
    return c;
}

void ru_bufs_init(ru_bufs *b, int64_t max_bytes)
{
    *b = (ru_bufs){.max_bytes = max_bytes};
    ru_arena_init(&b->arena, 0);
}

void ru_bufs_fini(ru_bufs *b)
{
    ru_arena_fini(&b->arena);
    *b = (ru_bufs){0};
}

static void *take(ru_bufs *b, int64_t size_bytes, int64_t room_bytes)
{
    if (size_bytes < 0 || size_bytes > INT64_MAX / 4) {
        return NULL;
    }
    uint32_t c = class_of(size_bytes + HEAD);
    if (c == RU_BUFS_CLASSES || class_bytes(c) > room_bytes) {
        return NULL;
    }
    head *h = b->free[c];
    if (h != NULL) {
        b->free[c] = h->next;
    } else {
        h = ru_arena_alloc(&b->arena, class_bytes(c), HEAD);
        if (h == NULL) {
            return NULL;
        }
    }
    *h = (head){.class = c};
    b->used_bytes += class_bytes(c);
    return (uint8_t *)h + HEAD;
}

void *ru_bufs_get(ru_bufs *b, int64_t size_bytes)
{
    return take(b, size_bytes, b->max_bytes - b->used_bytes);
}

void *ru_bufs_need(ru_bufs *b, int64_t size_bytes)
{
    return take(b, size_bytes, INT64_MAX);
}

void ru_bufs_put(ru_bufs *b, void *buf)
{
    if (buf == NULL) {
        return;
    }
    head *h = (void *)((uint8_t *)buf - HEAD);
    RU_CHECK(h->class < RU_BUFS_CLASSES);
    b->used_bytes -= class_bytes(h->class);
    RU_CHECK(b->used_bytes >= 0);
    h->next = b->free[h->class];
    b->free[h->class] = h;
}
