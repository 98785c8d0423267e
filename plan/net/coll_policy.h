/* The input of the policy `coll` as its file has it: what ru_coll_choice_in says with pointers, in
 * the form that is hashed, kept and read again.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_COLL_POLICY_H
#define RU_PLAN_COLL_POLICY_H

#include "base/conf.h"
#include "base/json.h"
#include "plan/net/coll.h"
#include "world/world.h"

typedef struct ru_coll_policy_cost {
    uint32_t algo; /* ru_coll_algo, each once */
    uint32_t n_points;
    double alpha_ns, beta_ns, gamma_ns, error;
    ru_conf_i64s at_bytes, at_ns; /* [n_at] */
} ru_coll_policy_cost;

typedef struct ru_coll_policy_costs {
    const ru_coll_policy_cost *at; /* [n] laid out as ru_conf_sections */
    uint32_t n;
} ru_coll_policy_costs;

extern const ru_conf_table ru_coll_policy_cost_table;

/* From costs [RU_COLL_ALGOS] to their section and back. Owner: `out` has memory of `arena`. Errors:
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_coll_policy_costs_of(const ru_coll_cost *costs, ru_arena *arena,
                                              ru_coll_policy_costs *out, ru_err *err);
void ru_coll_policy_costs_into(const ru_coll_policy_costs *in, ru_coll_cost *costs);
/* As `costs` of an input; none: nothing. */
void ru_coll_policy_costs_put(const ru_coll_policy_costs *in, ru_json *j);
/* Errors: RU_E_ARG when an algorithm stands there twice. */
RU_MUST_USE ru_status ru_coll_policy_costs_check(const ru_coll_policy_costs *in, ru_err *err);

typedef struct ru_coll_policy_in {
    uint32_t op, n_ranks, method;
    ru_conf_i64s sizes_bytes;
    ru_coll_policy_costs costs;
    ru_conf_i64s given; /* [sizes_bytes.n] 1 + algorithm, 0: to be chosen; n 0: all are */
    bool assume, deterministic;
    uint32_t n_hosts, host_most, mesh_max;
    double overhead;
    int64_t delay_max_ns;
} ru_coll_policy_in;

/* The question that `in` asks, with the method of ours. Owner: `out` holds views of `in` and memory
 * of `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_coll_policy_in_of(const ru_coll_choice_in *in, ru_arena *arena,
                                           ru_coll_policy_in *out, ru_err *err);
/* Costs of all-reduce [RU_COLL_ALGOS] fitted to the collectives that these facts hold; n_points 0:
 * they hold too few of an algorithm. */
void ru_coll_policy_fits(const ru_world *w, ru_coll_cost *costs);

#endif
