/* config.pbtxt of a served model: any bytes give settings within their bounds, or a sentence. */
#include "serve/config.h"

#include <stddef.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rui_config c;
    ru_err err = {0};
    ru_status st = rui_config_read(ru_str_n((const char *)data, (int64_t)size), &c, &err);
    if (st != RU_OK ? err.text[0] == '\0'
                    : c.n_inputs > RUI_CONFIG_NAMES || c.n_outputs > RUI_CONFIG_NAMES ||
                          c.n_specific > RUI_CONFIG_NAMES || c.instances < 0 || c.delay_us < 0) {
        abort();
    }
    return 0;
}
