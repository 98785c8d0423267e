/* A world file that reads must survive writing: written, read and written again, the two texts are
 * the same. */
#include <stddef.h>
#include <string.h>

#include "store/world_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena a;
    ru_arena_init(&a, 64 << 20);
    ru_world w, again;
    ru_err err;
    ru_str text = ru_str_n((const char *)data, (int64_t)size);
    if (ru_world_file_parse("x", text, &a, &w, &err) == RU_OK) {
        ru_text one = ru_text_arena(&a), two = ru_text_arena(&a);
        RU_CHECK(ru_world_file_put(&w, &one, &err) == RU_OK);
        RU_CHECK(ru_world_file_is(ru_str_n(one.p, one.n)));
        RU_CHECK(ru_world_file_parse("y", ru_str_n(one.p, one.n), &a, &again, &err) == RU_OK);
        RU_CHECK(ru_world_file_put(&again, &two, &err) == RU_OK);
        RU_CHECK(one.n == two.n && memcmp(one.p, two.p, (size_t)one.n) == 0);
    }
    ru_arena_fini(&a);
    return 0;
}
