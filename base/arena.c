/* Arenas: a chain of malloc'd blocks, newest first; the free range of the newest is kept in the
 * arena itself.
 *
 *   arena.last -> [header | ........used........ | free ]  -> prev -> prev -> NULL
 *                                                ^at    ^end                            */
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ALIGN = 64, BLOCK_MIN = 16 * 1024, BLOCK_DOUBLE_MAX = 64 * 1024 * 1024 };

struct ru_arena_block {
    ru_arena_block *prev;
    int64_t size_bytes; /* header included */
};

void ru_arena_init(ru_arena *a, int64_t size_max_bytes)
{
    *a = (ru_arena){.size_max_bytes = size_max_bytes};
}

void ru_arena_init_fixed(ru_arena *a, void *buf, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0);
    *a = (ru_arena){.at = buf, .end = (uint8_t *)buf + size_bytes, .fixed = true};
}

void ru_arena_fini(ru_arena *a)
{
    ru_arena_block *b = a->last;
    while (b != NULL) {
        ru_arena_block *prev = b->prev;
        free(b);
        b = prev;
    }
    free(a->spare);
    *a = (ru_arena){.size_max_bytes = a->size_max_bytes, .fixed = a->fixed};
}

/* A block of at least `size_bytes`: the spare one when it is large enough. */
static ru_arena_block *block_take(ru_arena *a, int64_t size_bytes)
{
    ru_arena_block *b = a->spare;
    if (b != NULL && b->size_bytes >= size_bytes) {
        a->spare = NULL;
        return b;
    }
    b = aligned_alloc(BLOCK_ALIGN, (size_t)size_bytes);
    if (b != NULL) {
        b->size_bytes = size_bytes;
    }
    return b;
}

static bool grow(ru_arena *a, int64_t need_bytes)
{
    if (a->fixed) {
        return false;
    }
    int64_t header = BLOCK_ALIGN;
    int64_t size = a->last != NULL ? a->last->size_bytes * 2 : BLOCK_MIN;
    size = size > BLOCK_DOUBLE_MAX ? BLOCK_DOUBLE_MAX : size;
    if (size < need_bytes + header) {
        size = (need_bytes + header + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    }
    ru_arena_block *b = block_take(a, size);
    if (b == NULL) {
        return false;
    }
    b->prev = a->last;
    a->last = b;
    a->at = (uint8_t *)b + header;
    a->end = (uint8_t *)b + b->size_bytes;
    return true;
}

void *ru_arena_alloc(ru_arena *a, int64_t size_bytes, int64_t align)
{
    RU_CHECK(size_bytes >= 0 && align > 0 && align <= 4096 && (align & (align - 1)) == 0);
    if (size_bytes > INT64_MAX / 4) {
        return NULL;
    }
    int64_t want = size_bytes > 0 ? size_bytes : 1;
    int64_t pad = (int64_t)(-(uintptr_t)a->at & (uintptr_t)(align - 1));
    bool over = a->size_max_bytes > 0 && a->used_bytes + want + pad > a->size_max_bytes;
    if (over) {
        return NULL;
    }
    if (a->at == NULL || a->end - a->at < want + pad) {
        if (!grow(a, want + align)) {
            return NULL;
        }
        pad = (int64_t)(-(uintptr_t)a->at & (uintptr_t)(align - 1));
    }
    uint8_t *p = a->at + pad;
    a->at = p + want;
    a->used_bytes += want + pad;
    return p;
}

void *ru_arena_zalloc(ru_arena *a, int64_t size_bytes, int64_t align)
{
    void *p = ru_arena_alloc(a, size_bytes, align);
    if (p != NULL) {
        memset(p, 0, (size_t)size_bytes);
    }
    return p;
}

void *ru_arena_copy(ru_arena *a, const void *src, int64_t size_bytes, int64_t align)
{
    void *p = ru_arena_alloc(a, size_bytes, align);
    if (p != NULL && size_bytes > 0) {
        memcpy(p, src, (size_t)size_bytes);
    }
    return p;
}

char *ru_arena_strn(ru_arena *a, const char *s, int64_t n)
{
    char *p = ru_arena_alloc(a, n + 1, 1);
    if (p != NULL) {
        if (n > 0) { /* the empty slice has no address */
            memcpy(p, s, (size_t)n);
        }
        p[n] = '\0';
    }
    return p;
}

char *ru_arena_str(ru_arena *a, const char *s)
{
    return ru_arena_strn(a, s, (int64_t)strlen(s));
}

char *ru_arena_vprintf(ru_arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = n < 0 ? NULL : ru_arena_alloc(a, (int64_t)n + 1, 1);
    if (p != NULL) {
        vsnprintf(p, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    return p;
}

char *ru_arena_printf(ru_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = ru_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

bool ru_arena_has(const ru_arena *a, const void *p)
{
    const ru_arena_block *b = a->last;
    while (b != NULL && ((uintptr_t)p < (uintptr_t)b ||
                         (uintptr_t)p >= (uintptr_t)b + (uintptr_t)b->size_bytes)) {
        b = b->prev;
    }
    return b != NULL;
}

ru_arena_mark ru_arena_mark_get(const ru_arena *a)
{
    return (ru_arena_mark){a->last, a->at, a->end, a->used_bytes};
}

/* Keep one block for next time: the only one there was, or a new one as large as all of them. */
static void spare_keep(ru_arena *a, ru_arena_block *only, uint32_t n, int64_t bytes)
{
    if (n == 0) {
        return;
    }
    free(a->spare);
    a->spare = only;
    if (n > 1) {
        a->spare = NULL;
        a->spare = block_take(a, bytes);
    }
}

void ru_arena_rewind(ru_arena *a, ru_arena_mark mark)
{
    ru_arena_block *only = NULL;
    uint32_t n = 0;
    int64_t bytes = 0;
    while (a->last != mark.last) {
        RU_CHECK(a->last != NULL);
        ru_arena_block *b = a->last;
        a->last = b->prev;
        bytes += b->size_bytes;
        if (n++ == 0 && a->last == NULL) {
            only = b;
        } else {
            free(b);
        }
    }
    if (mark.last == NULL) {
        spare_keep(a, only, n, bytes);
    }
    a->at = mark.at;
    a->end = mark.end;
    a->used_bytes = mark.used_bytes;
}
