/* Handles of shared segments are lines of text from other processes: any text is refused or names a
 * sealed segment of ours. */
#include <string.h>

#include "env/process/shm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char handle[256];
    size_t n = size < sizeof handle - 1 ? size : sizeof handle - 1;
    memcpy(handle, data, n);
    handle[n] = '\0';
    ru_shm *s = NULL;
    ru_err err;
    if (ru_shm_map(handle, 0, &s, &err) == RU_OK) {
        RU_CHECK(ru_shm_size_bytes(s) > 0 && ru_shm_data(s) != NULL);
        ru_shm_close(s);
    }
    return 0;
}
