/* What the reader of models (world/onnx/onnx_read.c) and control flow (onnx_flow.c, onnx_list.c)
 * share: names, frames, the state of one reading.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_ONNX_ONNX_READ_IMPL_H
#define RU_WORLD_ONNX_ONNX_READ_IMPL_H

#include "world/onnx/onnx.h"
#include "world/onnx/onnx_proto.h"
#include "world/onnx/onnx_texts.h"

enum { RUI_ONNX_DEPTH_MAX = 16 }; /* of calls and subgraphs in each other */

typedef struct rui_onnx_slot {
    const char *name; /* NULL: free */
    ru_value_id v;    /* absent: an absent function argument, or a weight not loaded yet */
    uint32_t weight;  /* 1 + index of the initialiser; 0: none */
    bool four;        /* a Constant of 4 bits, which are bytes here */
} rui_onnx_slot;

typedef struct rui_onnx_names {
    rui_onnx_slot *slots;
    uint32_t n, cap; /* cap: power of two */
} rui_onnx_names;

/* Where nodes are read: the model's graph, the body of a function that is being inlined, or a
 * subgraph that is. */
typedef struct rui_onnx_frame {
    rui_onnx_names names;
    struct rui_onnx_frame *outer; /* of a subgraph: what it may read besides its own; else NULL */
    const rui_onnx_tensor *inits; /* what slot.weight counts */
    const rui_onnx_opsets *opsets;
    const rui_onnx_function *fn; /* NULL: the graph */
    const rui_onnx_attr *attrs;  /* [n_attrs] of the call */
    uint32_t n_attrs;
    const char *prefix; /* "" in the graph, else "call/" */
    uint32_t depth;
} rui_onnx_frame;

typedef struct rui_onnx_reader {
    const ru_onnx_options *opt;
    ru_arena *arena;
    rui_onnx_model model;
    ru_graph *g;
    int64_t steps; /* nodes visited, so that calls of calls end */
    bool named;    /* the error names its node; the calls around it are in the name */
    rui_texts texts;
    ru_err *err;
} rui_onnx_reader;

/* -- onnx_read.c ------------------------------------------------------------------------------- */

RU_MUST_USE ru_status rui_onnx_full(ru_err *err); /* RU_E_LIMIT: the arena is */
RU_MUST_USE ru_status rui_onnx_name(rui_onnx_reader *r, rui_onnx_frame *f, const char *name,
                                    ru_value_id v);
RU_MUST_USE ru_status rui_onnx_find(rui_onnx_reader *r, rui_onnx_frame *f, const char *name,
                                    ru_value_id *out);
/* Names of the initialisers of a graph. */
RU_MUST_USE ru_status rui_onnx_weights(rui_onnx_reader *r, rui_onnx_frame *f,
                                       const rui_onnx_model *m);
RU_MUST_USE ru_status rui_onnx_nodes_read(rui_onnx_reader *r, rui_onnx_frame *f,
                                          const rui_onnx_nodes *nodes);
/* Inputs whose data decides an output shape of `op` and must be fixed for that, as a bit set: not
 * those of ops that select (what they select is computed ahead). */
uint32_t rui_onnx_shape_inputs(ru_op op);
/* A node of one output, typed unless only the signature is read. */
RU_MUST_USE ru_status rui_onnx_put(rui_onnx_reader *r, ru_op op, const ru_value_id *in,
                                   uint32_t n_in, const ru_attr *attrs, uint32_t n_attrs,
                                   ru_value_id *out);
RU_MUST_USE ru_status rui_onnx_put_i64s(rui_onnx_reader *r, const int64_t *x, uint32_t n,
                                        bool scalar, ru_value_id *out);

/* -- onnx_flow.c: a node with subgraphs is replaced by what it runs ------------------------------
 */

/* Does the node hold subgraphs that are read in its place? Then fill out [n->out.n]. */
bool rui_onnx_flows(const rui_onnx_node *n);
RU_MUST_USE ru_status rui_onnx_flow(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                                    const ru_value_id *in, ru_value_id *out);

/* The one integer or truth that v is: known, or computed ahead. `what`: for the sentence. Errors:
 * RU_E_UNSUPPORTED when it depends on data and nothing computes ahead. */
RU_MUST_USE ru_status rui_onnx_scalar(rui_onnx_reader *r, ru_value_id v, const char *what,
                                      int64_t *out);

/* -- onnx_list.c: sequences and optional values exist while a model is read, not in its graph
 * ------ */

typedef struct rui_onnx_list {
    uint32_t n;
    bool none;                /* an optional value that is not there */
    const ru_value_id *items; /* [n] */
} rui_onnx_list;

/* The list that v stands for; NULL: v is a tensor. */
const rui_onnx_list *rui_onnx_list_of(const rui_onnx_reader *r, ru_value_id v);
/* Is this one of the ops on sequences and optional values? Then fill out [n->out.n]. */
bool rui_onnx_lists(const rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in);
RU_MUST_USE ru_status rui_onnx_list_op(rui_onnx_reader *r, const rui_onnx_node *n,
                                       const ru_value_id *in, ru_value_id *out);

#endif
