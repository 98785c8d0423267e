/* Ids of plans. */
#include "world/plan.h"

#include <string.h>

ru_hash128 ru_plan_id_of(const char *policy, uint32_t version, ru_hash128 input)
{
    ru_hasher h;
    ru_hasher_init(&h);
    ru_hasher_put_str(&h, policy);
    ru_hasher_put_u64(&h, version);
    ru_hasher_put_u64(&h, input.low);
    ru_hasher_put_u64(&h, input.high);
    return ru_hasher_get(&h);
}
