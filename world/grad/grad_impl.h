/* What the gradient rules share (world/grad/grad*.c).
 *
 * rui_grad_<rule>(c) looks at node c->n, whose outputs have gradients rui_dy(c, k), and gives each
 * wanted input its share with rui_give. Rules read as formulas: after the first error every helper
 * is a no-op (c->b.status), and the driver reports it.
 *
 * Thread: one. */
#ifndef RU_WORLD_GRAD_IMPL_H
#define RU_WORLD_GRAD_IMPL_H

#include "world/graph/build.h"

#include <stddef.h>

typedef struct rui_grad {
    ru_build b; /* b.g: the graph that grows */
    ru_node n;  /* node under differentiation; its ids are those of b.g */
    ru_graph_node_id id;
    ru_value_id *grads; /* [n_old] gradient collected so far */
    const bool *needed; /* [n_old] leads to a wrt */
    uint32_t n_old;     /* values of the graph before differentiation */
} rui_grad;

typedef ru_value_id vid;

vid rui_dy(const rui_grad *c, uint32_t k);    /* gradient of output k; absent: none */
bool rui_want(const rui_grad *c, uint32_t k); /* is the gradient of input k needed? */
vid rui_x(const rui_grad *c, uint32_t k);     /* input k */
vid rui_y(const rui_grad *c, uint32_t k);     /* output k */
ru_type rui_type(const rui_grad *c, vid v);

/* Add `v` to the gradient of input k; shapes must agree. Absent v: nothing. */
void rui_give(rui_grad *c, uint32_t k, vid v);
/* The same after summing over what was broadcast. */
void rui_give_reduced(rui_grad *c, uint32_t k, vid v);
/* Make output k of the forward node exist (LayerNormalization's statistics) and return it. */
vid rui_force_output(rui_grad *c, uint32_t k);

/* RU_E_UNSUPPORTED: "node 7 'x' (Op): <why>". */
void rui_no_gradient(rui_grad *c, const char *why);

vid rui_op1(rui_grad *c, ru_op op, vid x);
vid rui_op2(rui_grad *c, ru_op op, vid x, vid y);
vid rui_op3(rui_grad *c, ru_op op, vid x, vid y, vid z);
/* With the attributes of the forward node. */
vid rui_op_same(rui_grad *c, ru_op op, const vid *in, uint32_t n_in);
/* Several outputs, attributes of the forward node and `extra` more (END-terminated or NULL). */
void rui_node_same(rui_grad *c, ru_op op, const vid *in, uint32_t n_in, const ru_attr *extra,
                   vid *out, uint32_t n_out);
vid rui_scalar(rui_grad *c, ru_dtype dtype, double x);
vid rui_mul(rui_grad *c, vid x, vid y);
vid rui_scale(rui_grad *c, vid x, double k);
vid rui_reshape_like(rui_grad *c, vid x, vid like); /* Reshape(x, shape of like) */
vid rui_shape_of(rui_grad *c, vid x);               /* i64 list: constant when concrete */
vid rui_expand_like(rui_grad *c, vid x, vid like);
vid rui_reduce_to(rui_grad *c, vid x, vid like);
vid rui_zeros_like(rui_grad *c, vid x);

#define RU_OP(name, onnx, in_min, in_max, out_min, out_max, shape, grad, ...) \
    void rui_grad_##grad(rui_grad *c);
#include "world/graph/ops.def"
#undef RU_OP

#endif
