/* Pictures: any bytes decode and resize, or give an error. */
#include "data/format/image.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float pixels[3 * 16 * 16];
    rui_guard guard = {0};
    ru_dataset d = {.guard = &guard, .scale = 1.0};
    ru_mutex_init(&guard.lock);
    ru_err err;
    int64_t width = 0, height = 0;
    if (rui_image_measure(&d, data, (int64_t)size, &width, &height, &err) == RU_OK &&
        width <= 4096 && height <= 4096) {
        (void)!(rui_image_decode(&d, data, (int64_t)size, 16, 16, true, pixels, &err) == RU_OK);
    }
    rui_image_close(&d);
    ru_mutex_fini(&guard.lock);
    return 0;
}
