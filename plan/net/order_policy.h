/* The input of the policy `order` as its file has it.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_ORDER_POLICY_H
#define RU_PLAN_ORDER_POLICY_H

#include "base/conf.h"
#include "plan/net/order.h"

typedef struct ru_order_policy_op {
    const char *name;
    int64_t time_ns, param_bytes;
    ru_conf_i64s after;
} ru_order_policy_op;

typedef struct ru_order_policy_in {
    ru_order_in q; /* without ops */
    struct {
        const ru_order_policy_op *at; /* [n] laid out as ru_conf_sections */
        uint32_t n;
    } ops;
    double ratio;
    uint32_t seed;
} ru_order_policy_in;

/* The planner's question. Owner: `out` has memory of `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_order_in_of(const ru_order_policy_in *file, ru_arena *arena,
                                     ru_order_in *out, ru_err *err);

#endif
