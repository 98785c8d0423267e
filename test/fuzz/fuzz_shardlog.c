/* The log of a running checkpoint: any bytes give whole records that lie inside them; records that
 * are written and damaged give the records before the damage, unchanged. */
#include "store/shardlog.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t read_all(const uint8_t *bytes, int64_t n, uint64_t *sum)
{
    ru_shardlog_record r;
    uint32_t records = 0;
    for (int64_t at = 0; ru_shardlog_next(bytes, n, &at, &r); records++) {
        RU_CHECK(at <= n && r.n >= 0);
        for (int64_t i = 0; i < r.n; i++) {
            *sum += ((const uint8_t *)r.bytes)[i];
        }
    }
    return records;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    volatile uint64_t kept;
    uint64_t sum = 0;
    (void)read_all(data, (int64_t)size, &sum);
    if (size < 4) {
        return 0;
    }
    /* Two records of the input's bytes, one of them damaged at a place that the input names. */
    int64_t n = (int64_t)size - 4, one = ru_shardlog_bytes(n);
    uint8_t *bytes = malloc((size_t)(2 * one));
    RU_CHECK(bytes != NULL);
    const ru_shardlog_record r = {.object = data[0], .block = data[1], .n = n, .bytes = data + 4};
    ru_shardlog_put(&r, bytes);
    ru_shardlog_put(&r, bytes + one);
    RU_CHECK(read_all(bytes, 2 * one, &sum) == 2);
    int64_t head = one - (n + 7) / 8 * 8, at = head + (n > 0 ? (data[2] << 8 | data[3]) % n : -1);
    bytes[one + at] ^= 1;
    /* The input may hold a record itself, which is found where the one around it is damaged. */
    uint32_t within = read_all(bytes + one + 8, one - 8, &sum);
    RU_CHECK(read_all(bytes, 2 * one, &sum) == 1 + within);
    free(bytes);
    kept = sum;
    (void)kept;
    return 0;
}
