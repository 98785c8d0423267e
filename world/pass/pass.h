/* Graph in, graph out.
 *
 * Every pass reads a verified, inferred graph and builds a new one in `arena`; constant and state
 * data stay views of the old graph's. Names of inputs, outputs and state are kept.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_PASS_H
#define RU_WORLD_PASS_H

#include "world/graph/graph.h"

RU_API_BEGIN

/* Compute nodes whose inputs are all constant (small integer and shape arithmetic always; tensors
 * up to `size_max_bytes`), through the evaluator the caller passes (the reference device), so that
 * world/ stays free of kernels. `eval` fills out[] buffers of known type. */
typedef struct ru_fold_ops {
    const char *name;
    /* Compute node `n` of `g`: in[k]/out[k] row-major, NULL for absent. Must not keep pointers. */
    ru_status (*eval)(void *self, const ru_graph *g, const ru_node *n, const void *const *in,
                      void *const *out, ru_err *err);
    void *self;
    /* The same model for another batch, folded before: results that are equal are views of its own.
     * NULL: none. It must live longer. */
    const ru_graph *like;
} ru_fold_ops;
RU_MUST_USE ru_status ru_pass_fold(const ru_graph *g, const ru_fold_ops *ops,
                                   int64_t size_max_bytes, ru_arena *arena, ru_graph *out,
                                   ru_err *err);

/* A value whose elements were computed elsewhere. */
typedef struct ru_pin {
    ru_value_id value; /* made by a node, or an input */
    const void *data;  /* view, row-major */
} ru_pin;

/* Turn an imported graph into its training form: BatchNormalization -> BatchNormTrain with updates
 * of its running statistics (constants become BUFFER state), Dropout -> DropoutTrain, LSTM and GRU
 * -> LSTMTrain and GRUTrain. In a graph that was exported in training mode, a normalisation or
 * dropout that says it is not in that mode is frozen and stays as it is. Run before ru_graph_grad
 * on imported models. */
RU_MUST_USE ru_status ru_pass_train(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);

/* Merge what executes as one: Conv/ConvTranspose/Gemm/MatMul + bias + activation,
 * BatchNormalization at inference into the convolution before it, transposes into Gemm/MatMul, the
 * attention pattern MatMul-scale-mask-Softmax-MatMul into Attention, LayerNormalization and Gelu
 * written out in small ops; in training graphs BatchNormTrain + residual + relu and its gradient,
 * the loss and its gradient. The fused forms are specified in world/graph/ops.def. Constants that
 * fusing leaves unused stay until ru_pass_dead. Results are equal within the ops' tolerance.
 * `like`: the same model for another batch, fused before, which must live longer: normalisations go
 * into its weights where they make the same bits. NULL: none. `exact_bytes`: the device sums
 * products of any bytes exactly; else weights that are not i8 around 0 stay floats. */
RU_MUST_USE ru_status ru_pass_fuse(const ru_graph *g, const ru_graph *like, bool exact_bytes,
                                   ru_arena *arena, ru_graph *out, ru_err *err);

/* Reverse-mode differentiation. Copies `g` into `out` and appends the nodes that compute
 * d loss / d wrt[k] into grads[k] (absent when the loss does not depend on it; role GRAD). `loss`
 * is a scalar value of g; ids of g stay valid in `out`. Gradients of broadcasts are reduced back.
 * Errors: RU_E_UNSUPPORTED naming the node whose op has no gradient. */
RU_MUST_USE ru_status ru_graph_grad(const ru_graph *g, ru_value_id loss, const ru_value_id *wrt,
                                    uint32_t n_wrt, ru_arena *arena, ru_graph *out,
                                    ru_value_id *grads, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Drop nodes whose results reach neither an output nor an update, and optional outputs that nobody
 * uses (they become absent). Inputs stay. Like all passes, this keeps value ids: an id of `g` names
 * the same value in `out` as far as it is still made there; outputs and state always are. */
RU_MUST_USE ru_status ru_pass_dead(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);
/* Does some normalisation or dropout of `g` work in training mode? */
bool ru_graph_trains(const ru_graph *g);
/* The inverse, for prediction: normalisations use their running statistics, dropout copies, nothing
 * is updated. State keeps its names. Graphs imported in training mode are taken as well. */
RU_MUST_USE ru_status ru_pass_infer(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);
/* Elements of constants, start values and attributes that stand in `scratch`, where passes worked
 * before, move into the arena of `g`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_pass_keep(ru_graph *g, const ru_arena *scratch, ru_err *err);
/* Values that nodes make become constants where they leave the graph or inference can follow them,
 * else inputs (named "%<id>" when they have no name), and what only they needed is dropped. A node
 * whose size is open gets the elements that decide it as constants, those of inputs among them. */
RU_MUST_USE ru_status ru_pass_pin(const ru_graph *g, const ru_pin *pins, uint32_t n,
                                  ru_arena *arena, ru_graph *out, ru_err *err);
/* Inputs of the op whose elements decide the shape of an output, as a bit set. */
uint32_t ru_op_sized_by(ru_op op);
/* Give every use of a trained vector its own state. Exporters merge equal initialisers, and at the
 * start all scales are 1 and all biases 0, so layers would train one vector together; models tie
 * matrices on purpose, vectors never (also those of shape [C, 1, 1] that are added or multiplied).
 * Slots 3 and 4 of BatchNormalization become BUFFER, all others PARAM. The first use keeps the
 * name, others get "<name>.<node>.<slot>" or that of their alias. */
RU_MUST_USE ru_status ru_pass_untie(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);
/* A value that one part of a graph makes and another one needs. */
typedef struct ru_part_edge {
    uint32_t from, to; /* from < to */
    ru_value_id value;
} ru_part_edge;

/* What crosses between the parts of `g`, where node i belongs to part part_of[i] [g->n_nodes]:
 * each value once for each part that needs it, by from, to and id. A state v with held[v]
 * [g->n_values; NULL: none] counts as made by the first part that reads it. The list lives in
 * `arena`. Errors: RU_E_ARG when a node needs a value of a later part. */
RU_MUST_USE ru_status ru_pass_part_edges(const ru_graph *g, const uint32_t *part_of,
                                         const bool *held, ru_arena *arena, ru_part_edge **edges,
                                         uint32_t *n, ru_err *err);
/* Part k: its nodes in their order. What earlier parts make becomes an input (behind those inputs
 * of `g` that it reads), what later parts need an output (behind those outputs of `g` that it
 * makes). Constants and states that it does not read are left out; part 0 has the states that no
 * node reads. */
RU_MUST_USE ru_status ru_pass_part(const ru_graph *g, const uint32_t *part_of, uint32_t k,
                                   ru_arena *arena, ru_graph *out, ru_err *err);
/* As ru_graph_grad, of the sum over ys[i] * seeds[i] [n]: gradients of several values enter as
 * values of `g` of the same types. An absent seed is 1 (of a loss). The same value may come twice:
 * its seeds are added in their order. */
RU_MUST_USE ru_status ru_graph_grad_from(const ru_graph *g, const ru_value_id *ys,
                                         const ru_value_id *seeds, uint32_t n,
                                         const ru_value_id *wrt, uint32_t n_wrt, ru_arena *arena,
                                         ru_graph *out, ru_value_id *grads, ru_err *err);
/* Recognise what exporters write out in small ops - LayerNormalization, Gelu, HardSwish, attention
 * - and remove reshapes, transposes, casts and copies that do nothing. The result can be
 * differentiated; ru_pass_fuse begins with this pass. Constants should be folded before. */
RU_MUST_USE ru_status ru_pass_lift(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);

#endif
