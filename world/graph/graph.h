/* The graph: values and nodes of one step (forward, backward, update), typed and shaped.
 *
 * Static single assignment: every value has one producer (a node, or none for inputs, constants and
 * state). Nodes stand in a legal execution order. State changes are written apart, as pairs
 * (state <- new value) that take effect together after the last node; the executor makes them in
 * place when order allows.
 *
 *   inputs --.
 *   consts ---+--> node --> value --> node --> value --> outputs
 *   state  --'                                   `-----> updates: state <- value
 *
 * A graph is plain data in an arena: it prints, diffs, hashes, travels. Passes take a graph and
 * give a new one. Value 0 is "absent" (an optional input that is not there).
 *
 * Dimensions: >= 0 is a number. A symbolic dimension (the batch) is negative and encodes
 * coefficient x symbol, see ru_dim_*. Equality of dims is equality of the int64_t.
 *
 * Op semantics: each op of the ONNX domain means what ONNX opset 21 says (older models are lifted
 * on import); our own ops are specified in world/graph/ops.def.
 *
 * Thread: a graph under construction belongs to one thread; a finished graph is read-only. */
#ifndef RU_WORLD_GRAPH_H
#define RU_WORLD_GRAPH_H

#include "base/arena.h"
#include "base/status.h"
#include "world/dtype.h"

RU_API_BEGIN

enum {
    RU_RANK_MAX = 8,
    RU_SYMBOLS_MAX = 256,     /* distinct symbolic dimensions of one graph */
    RU_NODES_MAX = 1 << 20,   /* nodes of one graph */
    RU_NODE_ARGS_MAX = 65535, /* inputs or outputs of one node */
};

typedef struct ru_value_id {
    uint32_t v; /* 0: absent */
} ru_value_id;

typedef struct ru_graph_node_id {
    uint32_t v; /* 0: none; nodes are numbered from 1 */
} ru_graph_node_id;

/* Element type and shape of a tensor, row-major unless an executor says otherwise. */
typedef struct ru_type {
    ru_dtype dtype;
    uint32_t rank; /* 0 .. RU_RANK_MAX; 0 is a scalar */
    int64_t dims[RU_RANK_MAX];
} ru_type;

/* -- dimensions -------------------------------------------------------------------------------- */

#define RU_DIM_UNKNOWN INT64_MIN /* not known yet; legal only before shape inference */

/* The symbolic dimension `coef` x symbol `sym` (0 .. RU_SYMBOLS_MAX-1), coef in 1 .. 2^40. It lies
 * near INT64_MIN, so that -1 and other small negative numbers are never taken for one. */
int64_t ru_dim_symbol(uint32_t sym, int64_t coef);
bool ru_dim_is_symbolic(int64_t dim);
int64_t ru_dim_coef(int64_t dim); /* of a symbolic dim */
uint32_t ru_dim_sym(int64_t dim); /* of a symbolic dim */

/* Number of elements, possibly symbolic or unknown; RU_DIM_UNKNOWN on overflow. */
int64_t ru_type_count(const ru_type *t);
/* Bytes of a concrete type, row-major and packed. */
int64_t ru_type_bytes(const ru_type *t);
ru_type ru_type_make(ru_dtype dtype, uint32_t rank, const int64_t *dims);
ru_type ru_type_scalar(ru_dtype dtype);

/* -- ops --------------------------------------------------------------------------------------- */

typedef enum ru_op {
    RU_OP_NONE,
#define RU_OP(name, ...) RU_OP_##name,
#include "world/graph/ops.def"
#undef RU_OP
    RU_OP_COUNT
} ru_op;

typedef struct ru_op_info {
    char name[32]; /* "Conv" */
    bool onnx;     /* of the ONNX standard domain; else our own */
    uint16_t in_min, in_max, out_min, out_max;
    double tol_f32, tol_bf16; /* relative tolerance of tests against the reference */
} ru_op_info;

/* -- attributes -------------------------------------------------------------------------------- */

/* Keys: ONNX attribute names and our own. X(name) */
/* clang-format off */
#define RU_ATTR_LIST(X)                                                                            \
    X(activation) X(activations) X(activation_alpha) X(activation_beta) X(alpha) X(allowzero)      \
    X(approximate) X(auto_pad) X(axes) X(axis) X(batch_axis) X(batch_dims) X(beta) X(beta1)        \
    X(beta2) X(bias) X(blocksize) X(broadcast) X(causal) X(ceil_mode) X(clip)                      \
    X(coordinate_transformation_mode) X(count_include_pad) X(cubic_coeff_a) X(decoupled)           \
    X(detect_negative) X(detect_positive) X(dilations) X(direction) X(dtype) X(end) X(epsilon)     \
    X(equation) X(exclusive) X(exclude_outside) X(extrapolation_value) X(fmod) X(gamma) X(group)   \
    X(groups) X(head_size) X(heads) X(hidden_size) X(ignore_index) X(input_forget) X(k)            \
    X(kernel_shape) X(keepdims) X(label_smoothing) X(lambd) X(largest) X(layout)                   \
    X(linear_before_reset) X(mode) X(momentum) X(nearest_mode) X(nesterov)                         \
    X(noop_with_empty_axes) X(num_groups) X(num_outputs) X(output_padding) X(output_shape) X(p)    \
    X(pads) X(perm) X(pooled_shape) X(ratio) X(reduction) X(reverse) X(sampling_ratio)             \
    X(saturate) X(scale) X(seed) X(select_last_index) X(shape) X(size) X(size_bytes) X(sorted)     \
    X(spatial_scale) X(split) X(start) X(stash_type) X(storage_order) X(stream) X(strides) X(to)   \
    X(training) X(training_mode) X(transA) X(transB) X(upper) X(value) X(value_float)              \
    X(value_floats) X(value_int) X(value_ints) X(weight_decay) X(width_scale) X(height_scale)      \
    X(antialias) X(keep_aspect_ratio_policy) X(slots) X(has_mask) X(in_shape) X(bias_term)         \
    X(fused) X(rank) X(position) X(time_axis) X(samples) X(inner) X(center_point_box)      \
    X(block_size) X(output_dtype) X(x_zero) X(x_scale) X(y_zero) X(y_scale) X(b_zero) X(b_scale) \
    X(align_corners) X(padding_mode) X(inverse) X(onesided) X(periodic) X(output_datatype)         \
    X(output_height) X(output_width)
/* clang-format on */

typedef enum ru_attr_key {
    RU_ATTR_NONE,
#define RU_X(name) RU_ATTR_##name,
    RU_ATTR_LIST(RU_X)
#undef RU_X
        RU_ATTR_COUNT
} ru_attr_key;

typedef enum ru_attr_kind {
    RU_ATTR_INT,
    RU_ATTR_FLOAT,
    RU_ATTR_STR,
    RU_ATTR_INTS,
    RU_ATTR_FLOATS,
    RU_ATTR_STRS,
    RU_ATTR_TENSOR,
} ru_attr_kind;

typedef struct ru_attr {
    ru_attr_key key;
    ru_attr_kind kind;
    uint32_t n; /* elements of an array kind; 1 else */
    union {
        int64_t i;
        double f;
        const char *s;
        const int64_t *is;     /* [n] */
        const double *fs;      /* [n] */
        const char *const *ss; /* [n] */
        struct {
            const ru_type *type;
            const void *data; /* row-major */
        } t;
    } u;
} ru_attr;

/* -- values, nodes, graph ---------------------------------------------------------------------- */

typedef enum ru_value_kind {
    RU_VALUE_TEMP,  /* made by a node */
    RU_VALUE_INPUT, /* given at every run */
    RU_VALUE_CONST, /* data never changes */
    RU_VALUE_STATE, /* lives across runs; changed by updates only */
} ru_value_kind;

/* What a value is for; used for printing, saving and memory reports, never for arithmetic. */
typedef enum ru_value_role {
    RU_ROLE_PLAIN,
    RU_ROLE_PARAM,  /* trained */
    RU_ROLE_BUFFER, /* running statistics: saved, not trained */
    RU_ROLE_SLOT,   /* optimizer state: saved with checkpoints */
    RU_ROLE_CACHE,  /* of sequences under way: never saved */
    RU_ROLE_GRAD,
    RU_ROLE_LOSS,
    RU_ROLE_METRIC,
} ru_value_role;

typedef struct ru_value {
    const char *name; /* unique among named values; NULL: printed as %<id> */
    ru_type type;
    ru_value_kind kind;
    ru_value_role role;
    ru_graph_node_id producer; /* none unless TEMP */
    uint32_t producer_out;     /* which output of it */
    const void *data;     /* CONST: elements, row-major. STATE: start value or NULL for zeros */
    const int64_t *known; /* [count] elements of a small integer tensor as far as inference knows
                             them: numbers, symbolic dims, RU_DIM_UNKNOWN; NULL: none known */
} ru_value;

typedef struct ru_node {
    ru_op op;
    const char *name;       /* may be NULL */
    const ru_value_id *in;  /* [n_in] */
    const ru_value_id *out; /* [n_out]; absent allowed for optional outputs */
    const ru_attr *attrs;   /* [n_attrs] */
    uint32_t n_in, n_out, n_attrs;
} ru_node;

typedef struct ru_update {
    ru_value_id state, value; /* after the step: state := value, same type */
} ru_update;

typedef struct ru_graph {
    ru_arena *arena; /* owns every pointer below, the graph does not own the arena */
    const char *name;
    ru_value *values;                    /* [n_values], values[0] is the absent value */
    ru_node *nodes;                      /* [n_nodes], nodes[0] unused, execution order */
    ru_value_id *inputs;                 /* [n_inputs] in the order of the model's signature */
    ru_value_id *outputs;                /* [n_outputs] */
    ru_update *updates;                  /* [n_updates] */
    const char *symbols[RU_SYMBOLS_MAX]; /* names of symbolic dims, e.g. "N" */
    uint32_t n_values, n_nodes, n_inputs, n_outputs, n_updates, n_symbols;
    uint32_t cap_values, cap_nodes, cap_inputs, cap_outputs, cap_updates;
} ru_graph;

/* An empty graph in `arena`. Errors: RU_E_LIMIT when the arena is full (all functions below). */
RU_MUST_USE ru_status ru_graph_init(ru_graph *g, ru_arena *arena, const char *name, ru_err *err);

static inline ru_value *ru_graph_value(const ru_graph *g, ru_value_id id)
{
    RU_DCHECK(id.v < g->n_values);
    return &g->values[id.v];
}

static inline ru_node *ru_graph_node(const ru_graph *g, ru_graph_node_id id)
{
    RU_DCHECK(id.v != 0 && id.v < g->n_nodes);
    return &g->nodes[id.v];
}

/* Find by name; absent when there is none. Cost: linear. */
ru_value_id ru_graph_find(const ru_graph *g, const char *name);

/* -- whole-graph functions (infer.c, verify.c, print.c, hash.c of world/graph) ----------------- */

/* Fill the types of all node outputs, in place, from inputs, constants and attributes. Follows
 * known integer values (Shape, Constant, Concat, arithmetic) through the graph, so that computed
 * shapes are known. Errors: RU_E_DATA naming node, op and shapes. */
RU_MUST_USE ru_status ru_graph_infer(ru_graph *g, ru_err *err);

/* Give `sym` a number: returns a new graph in `arena` with that symbol replaced everywhere and
 * types inferred again. */
RU_MUST_USE ru_status ru_graph_bind(const ru_graph *g, uint32_t sym, int64_t number,
                                    ru_arena *arena, ru_graph *out, ru_err *err);

/* Text, one node a line; for people, golden tests and diffs. The text lives in `arena`. */
const char *ru_graph_print(const ru_graph *g, ru_arena *arena);
/* "f32[N,3,32,32]" into `into` (at least 128 bytes). Returns `into`. */
const char *ru_type_print(const ru_graph *g, const ru_type *t, char *into, int64_t size_bytes);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
bool ru_type_is_concrete(const ru_type *t);
bool ru_type_equal(const ru_type *a, const ru_type *b);
const ru_op_info *ru_op_get(ru_op op);
ru_op ru_op_find(const char *name, bool onnx); /* RU_OP_NONE when unknown */
/* Add a value; its name is copied, `data` is view: it must live as long as the graph. INPUT values
 * are appended to g->inputs. A TEMP value (importers, copies) waits for its node (add_node_into).
 */
RU_MUST_USE ru_status ru_graph_add_value(ru_graph *g, const ru_value *proto, ru_value_id *out,
                                         ru_err *err);
/* Append a node; `name`, `in` and `attrs` are copied, attribute arrays and strings too (the data of
 * tensor attributes is view). Gives `n_out` fresh TEMP
 * values of type NONE into `out` (shape inference fills the types). */
RU_MUST_USE ru_status ru_graph_add_node(ru_graph *g, ru_op op, const char *name,
                                        const ru_value_id *in, uint32_t n_in, const ru_attr *attrs,
                                        uint32_t n_attrs, ru_value_id *out, uint32_t n_out,
                                        ru_err *err);
RU_MUST_USE ru_status ru_graph_add_output(ru_graph *g, ru_value_id v, ru_err *err);
RU_MUST_USE ru_status ru_graph_add_update(ru_graph *g, ru_value_id state, ru_value_id value,
                                          ru_err *err);
/* Index of the symbol of that name, added when new. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_graph_symbol(ru_graph *g, const char *name, uint32_t *sym, ru_err *err);
/* Attribute access with a default. Kinds must match, else the default is given (the verifier has
 * refused such a graph before). */
const ru_attr *ru_node_attr(const ru_node *n, ru_attr_key key); /* NULL when not set */
int64_t ru_node_int(const ru_node *n, ru_attr_key key, int64_t dflt);
double ru_node_float(const ru_node *n, ru_attr_key key, double dflt);
/* Is the graph legal: ids in range, one producer, order, arity, attribute kinds, types filled,
 * updates of equal type? Errors: RU_E_DATA naming the first place. */
RU_MUST_USE ru_status ru_graph_verify(const ru_graph *g, ru_err *err);
/* Floating-point operations and bytes moved of one node, from its types (concrete). */
int64_t ru_node_flops(const ru_graph *g, const ru_node *n);
/* Hash of structure, types, attributes and constant data; names do not count. */
uint64_t ru_graph_hash(const ru_graph *g);
/* Product; RU_DIM_UNKNOWN when it is not a number or one symbol times a number. */
int64_t ru_dim_mul(int64_t a, int64_t b);
/* Exact quotient; RU_DIM_UNKNOWN when b does not divide a. */
int64_t ru_dim_div(int64_t a, int64_t b);
/* Sum; RU_DIM_UNKNOWN unless both are numbers, one is 0, or both are of the same symbol. */
int64_t ru_dim_add(int64_t a, int64_t b);
const char *ru_attr_name(ru_attr_key key);
ru_attr_key ru_attr_find(const char *name); /* RU_ATTR_NONE when unknown */
/* The same with outputs that exist already (importers, copies); an entry may be absent. */
RU_MUST_USE ru_status ru_graph_add_node_into(ru_graph *g, const ru_node *node,
                                             ru_graph_node_id *out, ru_err *err);
const char *ru_node_str(const ru_node *n, ru_attr_key key, const char *dflt);
/* View of an ints attribute; *n = 0 and NULL when not set. */
const int64_t *ru_node_ints(const ru_node *n, ru_attr_key key, uint32_t *count);
bool ru_node_has_in(const ru_node *n, uint32_t k);  /* input k present (not absent) */
bool ru_node_has_out(const ru_node *n, uint32_t k); /* output k present (not absent) */
/* The same for one node whose inputs are typed. */
RU_MUST_USE ru_status ru_graph_infer_node(ru_graph *g, ru_graph_node_id id, ru_err *err);
/* Where the samples of a batch of `sym` stand in each value: with the result x and n samples,
 * element e of sample s stands at ((e / x) * n + s) * x + e % x of the row-major value. Returns
 * [n_values], in `arena`; RU_SAMPLES_NONE for a value that does not grow with the batch,
 * RU_SAMPLES_UNKNOWN where the graph does not tell; NULL when the arena is full. */
enum { RU_SAMPLES_NONE = 0, RU_SAMPLES_UNKNOWN = -1 };
const int64_t *ru_graph_samples(const ru_graph *g, uint32_t sym, ru_arena *arena);

#endif
