/* Arenas: memory with one lifetime, freed as a whole.
 *
 * A growing arena takes blocks from malloc (doubling, up to `size_max_bytes`); a fixed arena lives
 * in the caller's buffer. Blocks are 64-byte aligned so that kernels may use aligned vector loads.
 * Mark/rewind gives scratch memory inside an arena. An arena rewound to its beginning keeps one
 * block as large as all it had taken: what is done again and again allocates the first time only.
 *
 * Thread: one thread at a time. */
#ifndef RU_BASE_ARENA_H
#define RU_BASE_ARENA_H

#include "base/status.h"

RU_API_BEGIN

typedef struct ru_arena_block ru_arena_block;

typedef struct ru_arena {
    ru_arena_block *last;   /* newest block; NULL before the first allocation */
    ru_arena_block *spare;  /* kept by a rewind for the next growth; NULL: none */
    uint8_t *at, *end;      /* free range of the newest block */
    int64_t used_bytes;     /* handed out, padding included */
    int64_t size_max_bytes; /* 0: no bound but the machine's */
    bool fixed;             /* memory is the caller's: never grows */
} ru_arena;

typedef struct ru_arena_mark {
    ru_arena_block *last;
    uint8_t *at, *end;
    int64_t used_bytes;
} ru_arena_mark;

/* A growing arena; `size_max_bytes` 0 means unbounded. Allocates nothing yet. */
void ru_arena_init(ru_arena *a, int64_t size_max_bytes);

/* Free all blocks. Accepts zeroed memory. */
void ru_arena_fini(ru_arena *a);

/* Zeroed memory aligned to `align` (power of two, <= 4096), or NULL when the arena is full.
 * Unit: bytes. A request of 0 bytes gives a valid unique pointer. */
void *ru_arena_zalloc(ru_arena *a, int64_t size_bytes, int64_t align);

/* The same without zeroing, for what is overwritten at once. */
void *ru_arena_alloc(ru_arena *a, int64_t size_bytes, int64_t align);

/* A copy of a C string, and formatted text; NULL when full. */
char *ru_arena_str(ru_arena *a, const char *s);
char *ru_arena_printf(ru_arena *a, const char *fmt, ...) RU_PRINTF(2, 3);

ru_arena_mark ru_arena_mark_get(const ru_arena *a);
void ru_arena_rewind(ru_arena *a, ru_arena_mark mark);

/* n zeroed objects of `type`, or NULL when the arena is full. */
#define RU_NEW(arena, type, n) \
    ((type *)ru_arena_zalloc((arena), (int64_t)(n) * (int64_t)sizeof(type), RU_ALIGNOF(type)))

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* A fixed arena over the caller's `buf` (view, until fini). */
void ru_arena_init_fixed(ru_arena *a, void *buf, int64_t size_bytes);
/* Copies of bytes; NULL when full. */
void *ru_arena_copy(ru_arena *a, const void *src, int64_t size_bytes, int64_t align);
char *ru_arena_strn(ru_arena *a, const char *s, int64_t n);
char *ru_arena_vprintf(ru_arena *a, const char *fmt, va_list ap) RU_PRINTF(2, 0);
/* Does `p` point into memory of a growing arena? */
bool ru_arena_has(const ru_arena *a, const void *p);
/* After ru_alloc_seal() every malloc of this process is a crash (test builds link the checked
 * allocator; elsewhere the calls do nothing). Nests. */
void ru_alloc_seal(void);
void ru_alloc_unseal(void);

#endif
