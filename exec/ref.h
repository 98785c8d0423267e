/* The reference device: every op in plain C, row-major, one thread, all dtypes ONNX allows.
 *
 * It is the oracle of the op harness and the evaluator of constant folding; it favours being
 * obviously right over being fast. Float ops compute in double and round once to their dtype.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_REF_H
#define RU_EXEC_REF_H

#include "exec/exe.h"
#include "world/pass/pass.h"

typedef struct ru_tensor {
    void *data; /* NULL: absent */
    ru_type type;
} ru_tensor;

typedef struct ru_ref_call {
    const ru_node *node;
    const ru_tensor *in; /* [node->n_in] */
    ru_tensor *out;      /* [node->n_out] data allocated by the caller */
    const ru_run_args *args;
    ru_arena *scratch;
} ru_ref_call;

typedef ru_status (*ru_ref_fn)(const ru_ref_call *call, ru_err *err);

/* NULL when the op has no kernel (none should). */
ru_ref_fn ru_ref_kernel(ru_op op);

/* Evaluate one node of an inferred graph; binds ru_fold_ops. */
ru_status ru_ref_eval(void *self, const ru_graph *g, const ru_node *n, const void *const *in,
                      void *const *out, ru_err *err);

/* The evaluator for ru_pass_fold. */
ru_fold_ops ru_ref_fold_ops(void);

#endif
