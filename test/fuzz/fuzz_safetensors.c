/* safetensors: any bytes give tensors that lie inside them, or an error. */
#include "store/safetensors.h"

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
    ru_safetensors s;
    ru_err err;
    if (ru_safetensors_parse(data, (int64_t)size, &arena, &s, &err) == RU_OK) {
        volatile uint64_t sum = sum_all(&s.tensors);
        (void)sum;
    }
    ru_arena_fini(&arena);
    return 0;
}
