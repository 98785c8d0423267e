/* A view of a run from elsewhere (rubato top HOST:PORT): what reads can be drawn on any terminal
 * and shown again. */
#include <stddef.h>
#include <string.h>

#include "watch/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena a;
    ru_arena_init(&a, 64 << 20);
    ru_top t;
    ru_err err;
    if (ru_top_read((const char *)data, (int64_t)size, &a, &t, &err) == RU_OK) {
        ru_text drawn = ru_text_arena(&a), again = ru_text_arena(&a);
        ru_top_draw(&t, 24, 80, &drawn);
        for (int64_t i = 0; i < drawn.n; i++) {
            RU_CHECK(drawn.p[i] == '\n' || (unsigned char)drawn.p[i] >= 0x20);
        }
        RU_CHECK(ru_top_json(&t, &again, &err) == RU_OK);
        RU_CHECK(ru_top_read(again.p, again.n, &a, &t, &err) == RU_OK);
    }
    ru_arena_fini(&a);
    return 0;
}
