/* The input of the policy `sums` as its file has it, and how the facts of a job that runs become
 * one. An executable runs a list of steps in one order; the parameter of a gradient is read by a
 * step of the forward pass, its gradient made by one of the backward pass:
 *
 *   list  | other | read w1 | read w2 ... | makes g2 ... | makes g1 | other | updates |
 *   ops   0: other, then one for each gradient in the order of reading, with the time until the
 *         next one is read; their backward passes in the order of making, with the time since the
 *         one before. Updates count where their parameter is read.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_SUMS_POLICY_H
#define RU_PLAN_SUMS_POLICY_H

#include "base/conf.h"
#include "plan/net/coll_policy.h"
#include "plan/net/sums.h"

typedef struct ru_sums_policy_op {
    const char *name;
    int64_t forward_ns, backward_ns, param_bytes;
    ru_conf_i64s after;
} ru_sums_policy_op;

typedef struct ru_sums_policy_in {
    ru_sums_in q; /* without ops, the backward order, costs of a byte and algorithms */
    struct {
        const ru_sums_policy_op *at; /* [n] laid out as ru_conf_sections */
        uint32_t n;
    } ops;
    ru_conf_i64s made; /* [ops.n] backward order; n 0: chosen */
    ru_coll_policy_costs costs;
    uint32_t primitive; /* 0: the fastest for each size */
    double bytes_per_s, added_bytes_per_s, ratio;
    const char *why; /* of a barrier that the input asks for; "" */
} ru_sums_policy_in;

/* The planner's question. Owner: `out` has memory of `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_sums_in_of(const ru_sums_policy_in *file, ru_arena *arena, ru_sums_in *out,
                                    ru_err *err);

/* A gradient of the list. */
typedef struct ru_sums_grad {
    const char *name;
    int64_t size_bytes;
    uint32_t made; /* the step that makes it */
    uint32_t used; /* the first that reads its parameter; UINT32_MAX: none does */
} ru_sums_grad;

typedef struct ru_sums_facts {
    const double *step_ns; /* [n_steps] of the list */
    uint32_t n_steps;
    uint32_t update_from;      /* the first step of the updates; n_steps: none */
    const ru_sums_grad *grads; /* [n_grads] in the order of making */
    uint32_t n_grads, n_ranks;
    /* [RU_COLL_ALGOS] measured; n_points 0: as the first that is, of all: assumed; NULL: as well */
    const ru_coll_cost *costs;
    bool barrier;       /* a step waits for all sums, whatever the plan says */
    const char *why;    /* a sentence without full stop, for the report; NULL: none */
    bool deterministic; /* sums in the order of ranks */
    ru_sums_method method;
} ru_sums_facts;

/* Owner: `out` has memory of `arena`, names are views. Errors: RU_E_MISSING without gradients or a
 * second rank, RU_E_ARG for steps that are not in the list, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_sums_policy_in_of(const ru_sums_facts *f, ru_arena *arena,
                                           ru_sums_policy_in *out, ru_err *err);

#endif
