/* Requests of the Open Inference Protocol: any bytes give tensors that lie inside them or the
 * arena, or a sentence. The first two bytes say how much of the rest is JSON. */
#include "serve/oip.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ru_oip_request r;
    ru_arena arena;
    ru_err err;
    volatile uint64_t sum = 0;
    if (size < 2) {
        return 0;
    }
    int64_t json = data[0] == 0 ? -1 : data[0] * 4 + data[1];
    ru_arena_init(&arena, 1 << 24);
    if (ru_oip_read(data + 2, (int64_t)size - 2, json, &arena, &r, &err) == RU_OK) {
        for (uint32_t k = 0; k < r.n_inputs; k++) {
            const uint8_t *at = r.inputs[k].data;
            int64_t n = r.inputs[k].texts ? ru_type_count(&r.inputs[k].type) : 0;
            const char **text = RU_NEW(&arena, const char *, n);
            for (int64_t i = 0; text != NULL && i < n; i++) {
                text[i] = ru_texts_find(&r.words, ((const int64_t *)r.inputs[k].data)[i]);
                sum += text[i] != NULL;
            }
            r.inputs[k].text = text;
            if (text == NULL) {
                ru_arena_fini(&arena);
                return 0;
            }
            for (int64_t i = 0; i < ru_type_bytes(&r.inputs[k].type); i++) {
                sum += at[i];
            }
        }
        ru_text t = ru_text_arena(&arena);
        ru_oip_answer("m", "1", r.id, r.inputs, r.n_inputs, &t);
        sum += (uint64_t)t.n;
    }
    (void)sum;
    ru_arena_fini(&arena);
    return 0;
}
