/* Rewriting graphs in place of copies: what fusing passes share.
 *
 * A round opens a working copy, lets patterns change it, and closes it into a new graph:
 *
 *     rui_rw_open -> for each node: try patterns (rui_rw_set, rui_rw_kill, ...) -> rui_rw_close
 *
 * A rewritten node takes the slot of the last node it replaces, so that its inputs stand before it.
 * Value ids never change. Use counts are exact at the start of a round and may be too high later in
 * it, which only delays a pattern to the next round.
 *
 * Thread: one. */
#ifndef RU_WORLD_REWRITE_IMPL_H
#define RU_WORLD_REWRITE_IMPL_H

#include "world/graph/graph.h"

#include <stddef.h>

typedef struct rui_extra { /* a node to stand before node `before` */
    uint32_t before;
    ru_node node;
    struct rui_extra *next;
} rui_extra;

typedef struct rui_rw {
    ru_graph g;           /* values and nodes of the round; nodes[i].op NONE: killed */
    uint32_t *uses;       /* [n0] by nodes, outputs and updates */
    uint32_t *last;       /* [n0] index of the last node that uses the value */
    uint32_t *first;      /* [n0] index of the first node that uses it */
    uint32_t n0;          /* values at the start of the round */
    const ru_graph *like; /* as ru_pass_fuse; only the round of normalisations has it */
    rui_extra *extras, *extras_end;
    uint32_t changes;
    ru_status status; /* first error */
    ru_err err;
} rui_rw;

ru_status rui_rw_open(const ru_graph *g, ru_arena *arena, rui_rw *rw, ru_err *err);
/* Emit, infer the types of what is new, drop what is dead. */
ru_status rui_rw_close(rui_rw *rw, ru_arena *arena, ru_graph *out, ru_err *err);

/* Node that makes `v` as output 0 if it is alive and of op `op` (RU_OP_NONE: any); else NULL. */
ru_node *rui_rw_made_by(const rui_rw *rw, ru_value_id v, ru_op op);
uint32_t rui_rw_index(const rui_rw *rw, ru_value_id v); /* of the producer; 0: none */
uint32_t rui_rw_uses(const rui_rw *rw, ru_value_id v);
/* The only user of `v` if there is exactly one and it has op `op`; else 0. */
uint32_t rui_rw_only_user(const rui_rw *rw, ru_value_id v, ru_op op);
const ru_type *rui_rw_type(const rui_rw *rw, ru_value_id v);

/* Write slot i: inputs, attributes and outputs are copied, names are kept. */
void rui_rw_set(rui_rw *rw, uint32_t i, ru_op op, const ru_value_id *in, uint32_t n_in,
                const ru_attr *attrs, uint32_t n_attrs, const ru_value_id *out, uint32_t n_out);
void rui_rw_kill(rui_rw *rw, uint32_t i);
/* A new one-output node before slot i; gives its value. */
ru_value_id rui_rw_insert(rui_rw *rw, uint32_t i, ru_op op, const ru_value_id *in, uint32_t n_in,
                          const ru_attr *attrs, uint32_t n_attrs);
/* A new constant whose data is already in the arena. */
ru_value_id rui_rw_const(rui_rw *rw, ru_type type, const void *data);
/* Every use of `from` by a later node reads `to` instead. False when `from` leaves the graph. */
bool rui_rw_replace(rui_rw *rw, ru_value_id from, ru_value_id to);

/* A float constant of one element. */
bool rui_rw_scalar(const rui_rw *rw, ru_value_id v, double *x);
/* Is `v` a constant scalar near x (relative 1e-4)? */
bool rui_rw_is(const rui_rw *rw, ru_value_id v, double x);
/* `v` made by commutative `op` of a value and a constant near x: that value; else absent. */
ru_value_id rui_rw_with_const(const rui_rw *rw, ru_value_id v, ru_op op, double x);
/* The known integers of a value; NULL when some are not numbers. */
const int64_t *rui_rw_ints(const rui_rw *rw, ru_value_id v, uint32_t *n);

/* Copy the attributes of `n` plus `more` into arena memory; *count is their number. */
ru_attr *rui_rw_attrs(rui_rw *rw, const ru_node *n, const ru_attr *more, uint32_t n_more,
                      uint32_t *count);

/* The attributes (at most 3) of an op whose activation is the function of node n; 0: none is. */
uint32_t rui_rw_activation(const rui_rw *rw, const ru_node *n, ru_attr *attrs);

/* The patterns, one round over all nodes each; they count rw->changes. */
void rui_expand_round(rui_rw *rw);
void rui_half_round(rui_rw *rw);
void rui_widen_round(rui_rw *rw);
void rui_simplify_round(rui_rw *rw);
void rui_lift_round(rui_rw *rw);
void rui_fuse_round(rui_rw *rw);
void rui_fold_norm_round(rui_rw *rw);
void rui_int8_round(rui_rw *rw);
void rui_int8_signed_round(rui_rw *rw); /* weights of i8 around 0 only */
void rui_unpack_round(rui_rw *rw);
/* Attention written out, ending in the product at slot i. */
bool rui_lift_attention(rui_rw *rw, uint32_t i);

#endif
