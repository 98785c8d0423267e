/* ONNX: any bytes give a legal graph or an error; so does a tensor file. */
#include "world/onnx/onnx.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena arena;
    ru_arena_init(&arena, 1 << 24);
    ru_graph g;
    ru_onnx_info info;
    ru_err err;
    ru_onnx_options opt = {.signature = true};
    if (ru_onnx_read(data, (int64_t)size, &opt, &arena, &g, &info, &err) == RU_OK) {
        opt.signature = false;
        opt.train = true;
        (void)ru_onnx_read(data, (int64_t)size, &opt, &arena, &g, &info, &err);
    }
    ru_type type;
    const void *elements = NULL;
    const char *name = NULL;
    ru_texts words = {.arena = &arena};
    (void)ru_onnx_tensor_read(data, (int64_t)size, &words, &arena, &type, &elements, &name, &err);
    ru_arena_fini(&arena);
    return 0;
}
