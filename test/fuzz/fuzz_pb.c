/* Protobuf cursor: any bytes, every sub-message and packed field, to a bounded depth. */
#include "base/pb.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t walk(ru_pb_in in, int depth)
{
    uint64_t sum = 0;
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        sum += f.number + f.value;
        uint64_t bits[8];
        for (int w = 0; w <= 5; w++) {
            if (w == RU_PB_VARINT || w == RU_PB_FIXED64 || w == RU_PB_FIXED32) {
                int64_t n = ru_pb_count(&f, (ru_pb_wire)w);
                int64_t got = ru_pb_values(&f, (ru_pb_wire)w, bits, 8);
                RU_CHECK(n < 0 || got == (n < 8 ? n : 8));
            }
        }
        if (f.wire == RU_PB_LEN && depth > 0) {
            RU_CHECK(f.size_bytes >= 0 && f.data + f.size_bytes <= in.end);
            sum += walk(ru_pb_sub(&f), depth - 1);
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)walk(ru_pb_in_open(data, (int64_t)size), 6);
    return 0;
}
