/* Any bytes in any cuts from any workers: lines come out whole, with a prefix, within the bounds.
 */
#include "launch/fold.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINE_MAX_BYTES = 64, PREFIX_MAX = 256 };

static void take(void *self, const char *text, int64_t n)
{
    (void)self;
    if (n <= 0 || n > LINE_MAX_BYTES + PREFIX_MAX || memcmp(text, "worker", 6) != 0 ||
        memchr(text, '\n', (size_t)n) != NULL) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_fold_options o = {
        .workers_max = 100, .lines_max = 4, .line_bytes_max = LINE_MAX_BYTES, .line = take};
    ru_fold *f;
    if (ru_fold_open(&o, &arena, &f, NULL) != RU_OK) {
        abort();
    }
    int64_t now = 0;
    for (size_t i = 0; i + 2 < size;) {
        uint32_t worker = 1u + data[i] % 110u;
        size_t n = data[i + 1] % 32u;
        n = n < size - i - 2 ? n : size - i - 2;
        ru_fold_bytes(f, worker, (const char *)data + i + 2, (int64_t)n, (ru_time){now});
        now += (int64_t)data[i] * 1000000;
        (void)ru_fold_tick(f, (ru_time){now});
        i += n + 2;
    }
    ru_fold_flush(f);
    ru_arena_fini(&arena);
    return 0;
}
