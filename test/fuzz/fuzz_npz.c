/* .npy and .npz: any bytes give arrays that lie inside them or the arena, or an error. */
#include "store/npy.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_all(const ru_arrays *list)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < list->n; k++) {
        const uint8_t *at = list->at[k].data;
        int64_t bytes = ru_type_bytes(&list->at[k].type);
        for (int64_t i = 0; i < bytes; i++) {
            sum += at[i];
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena arena;
    ru_arena_init(&arena, 1 << 24);
    ru_arrays list = {0};
    ru_array one = {0};
    ru_err err;
    volatile uint64_t sum = 0;
    if (ru_npz_parse(data, (int64_t)size, &arena, &list, &err) == RU_OK) {
        sum += sum_all(&list);
    }
    if (ru_npy_parse(data, (int64_t)size, &arena, &one, &err) == RU_OK) {
        list = (ru_arrays){.at = &one, .n = 1};
        sum += sum_all(&list);
    }
    (void)sum;
    ru_arena_fini(&arena);
    return 0;
}
