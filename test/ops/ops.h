/* The op harness: random cases for every row of ops.def, and a plain evaluator of graphs.
 *
 * A case is one node with its inputs; the harness builds a graph of it, asks for its gradient, and
 * runs both on the reference and on the devices. A sampler draws shapes (1, primes, powers of two)
 * and data. Float data are odd multiples of 1/32 below 8: exact in bf16, and never on the corner of
 * a piecewise function whose corners are multiples of 1/16, so that finite differences are
 * meaningful.
 *
 * Thread: one. */
#ifndef RU_TEST_OPS_H
#define RU_TEST_OPS_H

#include "base/arena.h"
#include "base/rng.h"
#include "exec/ref.h"
#include "world/graph/build.h"
#include "world/graph/graph.h"

enum { OPS_IN_MAX = 12, OPS_ATTRS_MAX = 16, OPS_OUT_MAX = 8 };

typedef struct ops_case {
    ru_arena *arena;
    ru_rng rng;
    ru_op op;
    ru_attr attrs[OPS_ATTRS_MAX + 1]; /* RU_A_END after the last */
    uint32_t n_attrs;
    ru_tensor in[OPS_IN_MAX]; /* dtype RU_NONE: absent */
    bool fixed[OPS_IN_MAX];   /* a constant of the graph: shapes, axes, indices of slices */
    uint32_t n_in, n_out;
    uint32_t grad_in;  /* bit k: differentiable by input k */
    uint32_t grad_out; /* bit k: output k takes part in the loss */
    bool f32_only;     /* no bf16 run: states of optimizers, integer results */
    bool plain;        /* asks for no fused form, so that there is a gradient */
    bool empty;        /* asks for a dimension of 0 where the sampler can give one */
    bool big;          /* asks for sizes at which kernels block, vectorise and share work */
    bool skip;         /* the sampler has nothing for this op */
} ops_case;

/* Draw a case of `op` into `c` (arena and rng set by the caller). */
void ops_sample(ops_case *c, ru_op op);

/* -- for samplers ----------------------------------------------------------------------- */

/* One draw for each variable: compilers differ in the order in which they evaluate arguments and
 * elements of a list. */

int64_t ops_pick(ops_case *c, int64_t low, int64_t high); /* both included */
bool ops_coin(ops_case *c);
int64_t ops_dim(ops_case *c); /* 1, 2, 3, 5, 7, 8, 13; big: 16 .. 65 */
ru_type ops_shape(ops_case *c, ru_dtype dtype, uint32_t rank_min, uint32_t rank_max);
ru_type ops_type(ru_dtype dtype, uint32_t rank, const int64_t *dims);
/* Append an input; its data are zero. */
ru_tensor *ops_in(ops_case *c, ru_type t);
ru_tensor *ops_in_absent(ops_case *c);
/* Append and fill: odd multiples of 1/32 in (low, high); all different; integers; booleans. */
ru_tensor *ops_in_grid(ops_case *c, ru_type t, double low, double high);
ru_tensor *ops_in_distinct(ops_case *c, ru_type t);
ru_tensor *ops_in_ints(ops_case *c, ru_type t, int64_t low, int64_t high);
ru_tensor *ops_in_consts(ops_case *c, const int64_t *xs, uint32_t n); /* fixed i64 list */
void ops_attr_int(ops_case *c, ru_attr_key key, int64_t x);
void ops_attr_float(ops_case *c, ru_attr_key key, double x);
void ops_attr_str(ops_case *c, ru_attr_key key, const char *s);
void ops_attr_ints(ops_case *c, ru_attr_key key, const int64_t *xs, uint32_t n);
void ops_attr_strs(ops_case *c, ru_attr_key key, const char *const *ss, uint32_t n);

#define RU_OP(name, onnx, i0, i1, o0, o1, shape, grad, flops, t32, t16, sample) \
    void sample_##sample(ops_case *c);
#include "world/graph/ops.def"
#undef RU_OP

/* -- evaluating ------------------------------------------------------------------------- */

/* Run every node of a concrete graph on the reference kernels. `values` [n_values] gets a tensor
 * for each; inputs are read from `inputs` [n_inputs]. With `wide`, f32 values are f64 throughout,
 * so that the result is good to 1e-12 and finite differences of it to 1e-8. Around each result lie
 * guard zones; a kernel that writes there or into its inputs is an error. */
RU_MUST_USE ru_status ops_eval(const ru_graph *g, const ru_tensor *inputs, bool wide,
                               const ru_run_args *args, ru_arena *arena, ru_tensor *values,
                               ru_err *err);

double ops_get(const ru_tensor *t, int64_t i);
void ops_set(const ru_tensor *t, int64_t i, double x);
int64_t ops_count(const ru_tensor *t);

#endif
