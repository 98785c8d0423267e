/* A guest of a service that does what the bytes say: the honest one beside it never notices. */
#include <stddef.h>

#include "base/log.h"
#include "test/wire/guest_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t nothing[1] = {0};
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF});
    ru_err err = {0};
    ru_status st = guest_storm(size > 0 ? data : nothing, (int64_t)size, &err);
    RU_CHECK(st == RU_OK);
    return 0;
}
