/* What the shape rules share (world/graph/infer*.c, world/graph/known.c).
 *
 * A rule rui_shape_<name> reads the input types and attributes of one node and writes its output
 * types. Dimensions it cannot compute become derived symbols whose names spell the expression
 * ("(H+1)/2", "N*T"), so that equal expressions stay equal.
 *
 * Thread: one per graph. */
#ifndef RU_WORLD_INFER_IMPL_H
#define RU_WORLD_INFER_IMPL_H

#include "world/graph/graph.h"

#include <stddef.h>

enum { RUI_KNOWN_MAX = 4096 }; /* elements of an integer tensor that inference follows */

typedef struct rui_infer {
    ru_graph *g;
    ru_graph_node_id id;
    ru_node n; /* copy: the node table may move */
    ru_err *err;
} rui_infer;

/* Type of input k (NULL when absent) and of output k (a throw-away type when absent). */
const ru_type *rui_in(const rui_infer *c, uint32_t k);
void rui_set_out(const rui_infer *c, uint32_t k, const ru_type *t);

/* RU_E_DATA: "node 7 'conv1' (Conv of f32[N,3,8,8], f32[4,2,3,3]): <reason>". */
ru_status rui_infer_fail(const rui_infer *c, const char *fmt, ...) RU_PRINTF(2, 3);

/* infer_rule.c: the node's row of world/graph/rules.def holds; the types that its shape rule gave
 * the outputs have a size. */
ru_status rui_rule_before(const rui_infer *c);
ru_status rui_rule_after(const rui_infer *c);
/* What a model may give to an op of the standard, without what only passes give (rules.def). */
uint32_t rui_op_model_inputs(ru_op op); /* UINT32_MAX: any number */
bool rui_op_model_attr(ru_op op, const char *name);

/* Inputs that fusion adds: bias k (0: not checked; `n` elements) and residual `k_res` shaped as t.
 */
ru_status rui_fused_check(const rui_infer *c, uint32_t k_bias, int64_t n, uint32_t k_res,
                          const ru_type *t);

/* Attribute `axis`-like number brought into 0..rank-1 (or ..rank with `end`). */
ru_status rui_axis(const rui_infer *c, int64_t axis, uint32_t rank, uint32_t *out);

/* A dimension of known name, "<text>", as symbol with coefficient 1. */
ru_status rui_dim_named(const rui_infer *c, const char *name, int64_t *out);
/* Words for a dim: "N", "4*N", "32"; lives in the graph's arena. NULL when full. */
const char *rui_dim_text(const ru_graph *g, ru_arena *arena, int64_t dim);
/* Product and exact quotient of dims, derived symbols when needed. */
ru_status rui_dims_product(const rui_infer *c, const int64_t *dims, uint32_t n, int64_t *out);
ru_status rui_dims_quotient(const rui_infer *c, const int64_t *num, uint32_t n_num,
                            const int64_t *den, uint32_t n_den, int64_t *out);
ru_status rui_dim_sum(const rui_infer *c, int64_t a, int64_t b, int64_t *out);
/* floor or ceil of a/b for a number b >= 1. */
ru_status rui_dim_floordiv(const rui_infer *c, int64_t a, int64_t b, bool ceil, int64_t *out);
/* A fresh dimension for axis `axis` of output `k`: its size depends on data. */
ru_status rui_dim_fresh(const rui_infer *c, uint32_t k, uint32_t axis, int64_t *out);

/* Broadcast two dims; false when they do not match. */
bool rui_broadcast_dim(int64_t a, int64_t b, int64_t *out);
ru_status rui_broadcast(const rui_infer *c, const ru_type *a, const ru_type *b, ru_type *out);

/* Known elements of an integer value: constants, or what inference followed. NULL: not known at
 * all; else [*n] numbers, symbolic dims or RU_DIM_UNKNOWN. Lives in the graph's arena. */
const int64_t *rui_known(const rui_infer *c, uint32_t k, uint32_t *n);
/* Like rui_known, but all must be plain numbers; NULL otherwise. */
const int64_t *rui_known_numbers(const rui_infer *c, uint32_t k, uint32_t *n);
/* All elements of a constant input, row-major; NULL: it is none. */
const void *rui_const_data(const rui_infer *c, uint32_t k);
/* Elements of a constant float input as doubles; NULL: not constant. */
const double *rui_const_floats(const rui_infer *c, uint32_t k, uint32_t *n);
/* Is v, one integer or boolean, known, and what is it? */
bool rui_known_number(ru_graph *g, ru_value_id v, int64_t *out);
/* Follow integer elements through node c (after its output types are set). */
ru_status rui_known_node(const rui_infer *c);

ru_status rui_arena_full(ru_err *err);

#define RU_OP(name, onnx, in_min, in_max, out_min, out_max, shape, ...) \
    ru_status rui_shape_##shape(const rui_infer *c);
#include "world/graph/ops.def"
#undef RU_OP

#endif
