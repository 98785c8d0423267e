/* Frames from anybody to a channel, before and after the proof: an honest pair never notices. */
#include <stddef.h>

#include "base/log.h"
#include "test/wire/chan_hostile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t nothing[1] = {0};
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF});
    ru_chan_hostile_report r;
    ru_err err;
    ru_status st = ru_chan_hostile(1, 0, size > 0 ? data : nothing, (int64_t)size, &r, &err);
    RU_CHECK(st == RU_OK);
    return 0;
}
