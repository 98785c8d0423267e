/* The input of the policy `coll` as its file has it: what ru_coll_choice_in says with pointers, in
 * the form that is hashed, kept and read again.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_COLL_POLICY_H
#define RU_PLAN_COLL_POLICY_H

#include "base/conf.h"
#include "plan/net/coll.h"
#include "world/world.h"

typedef struct ru_coll_policy_cost {
    uint32_t algo; /* ru_coll_algo, each once */
    uint32_t n_points;
    double alpha_ns, beta_ns, gamma_ns, error;
    ru_conf_i64s at_bytes, at_ns; /* [n_at] */
} ru_coll_policy_cost;

typedef struct ru_coll_policy_in {
    uint32_t op, n_ranks, method;
    ru_conf_i64s sizes_bytes;
    struct {
        const ru_coll_policy_cost *at; /* [n] laid out as ru_conf_sections */
        uint32_t n;
    } costs;
    bool assume, deterministic;
    uint32_t n_hosts, host_most, mesh_max;
    double overhead;
    int64_t delay_max_ns;
} ru_coll_policy_in;

/* The question that `in` asks, with the method of ours. Owner: `out` holds views of `in` and memory
 * of `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_coll_policy_in_of(const ru_coll_choice_in *in, ru_arena *arena,
                                           ru_coll_policy_in *out, ru_err *err);
/* The cost of a ring all-reduce, fitted to the collectives that these facts hold; false: they hold
 * too few. */
bool ru_coll_policy_ring(const ru_world *w, ru_coll_cost *ring);

#endif
