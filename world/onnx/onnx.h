/* ONNX models, in and out: bytes to graph, graph to bytes.
 *
 * Reading accepts opsets RU_ONNX_OPSET_MIN to RU_ONNX_OPSET_MAX of the standard domain and lifts
 * every node to the meaning it has at opset 21: attributes that became inputs move, deprecated ops
 * become their successors, defaults that changed are written out. Functions of the model are
 * inlined, If is replaced by the branch that it takes, Loop and Scan by their iterations. Sequences
 * and optional values exist between nodes only.
 * Every error names the node, its op and the opset.
 *
 * The bytes stay where they are: weights whose bytes are aligned are views of them, so they must
 * live as long as the graph. Weights in other files are asked from `external` (world/ reads no
 * files; store/onnx_file.h does both).
 *
 * Thread: any, no shared state.
 * Source: onnx.proto and Changelog.md of the ONNX project */
#ifndef RU_WORLD_ONNX_H
#define RU_WORLD_ONNX_H

#include "base/pb.h"
#include "world/array.h"
#include "world/graph/texts.h"
#include "world/pass/pass.h"

RU_API_BEGIN

enum {
    RU_ONNX_OPSET_MIN = 1, /* below 9 only ops whose old meaning is known are taken */
    RU_ONNX_OPSET_MAX = 28,
    RU_ONNX_OPSET_WRITE = 21, /* the newest that is written; its meaning is the graph's */
};

/* Bytes of weights kept outside the model file. */
typedef struct ru_onnx_external {
    const char *name;
    /* View of `length` bytes (-1: to the end) at `offset` of file `location`, relative to the
     * model's folder. Must refuse locations that leave the folder. The view lives as long as the
     * graph. */
    ru_status (*view)(void *self, const char *location, int64_t offset, int64_t length,
                      const void **data, int64_t *size_bytes, ru_err *err);
    void *self;
} ru_onnx_external;

typedef struct ru_onnx_dim {
    const char *symbol; /* dim_param, or "<input>.<axis>" where the model gives no name */
    int64_t number;
} ru_onnx_dim;

/* Computes parts of a model while it is read, from the arrays that it will run on: what conditions
 * of If and Loop, and positions in sequences, are. */
typedef struct ru_onnx_ahead {
    const char *name;
    /* Elements of values ids[0 .. n-1], which nodes of `g` compute, as far as it is read: type and
     * data (in the arena of `g`) of out[k]. */
    ru_status (*compute)(void *self, const ru_graph *g, const ru_value_id *ids, uint32_t n,
                         ru_array *out, ru_err *err);
    /* The model gets an input with these elements: a value that was computed ahead. */
    ru_status (*keep)(void *self, const ru_array *a, ru_err *err);
    void *self;
} ru_onnx_ahead;

typedef struct ru_onnx_options {
    const ru_onnx_ahead *ahead;       /* NULL: what depends on data of the run is an error */
    const ru_onnx_external *external; /* NULL: outside weights are an error */
    const ru_onnx_dim *dims;          /* [n_dims] symbols that get a number */
    uint32_t n_dims;
    const ru_array *fixed; /* [n_fixed] inputs that become constants */
    uint32_t n_fixed;
    /* For training: float initialisers of rank >= 1 become STATE of role PARAM (running statistics
     * of BatchNormalization: role BUFFER) instead of constants. */
    bool train;
    /* The same model as it was read before: weights that are equal are views of its own. NULL:
     * none. It must live longer. */
    const ru_graph *like;
    /* Only the signature matters: names, inputs, outputs and info. Weights carry no data and the
     * types of node outputs stay open. */
    bool signature;
} ru_onnx_options;

typedef struct ru_onnx_info {
    int64_t ir_version, opset; /* of the standard domain */
    const char *producer;      /* may be "" */
    /* [graph->n_inputs] does the shape of some value depend on this input's data? Such inputs must
     * be fixed before shapes can be known. */
    const bool *shapes;
    const char *const *outputs; /* [graph->n_outputs] names the model gives its outputs */
    uint32_t n_functions;
    /* With options.train: one line about what its author may not expect of training this file, as
     * folded normalisations; NULL: nothing is to be said. */
    const char *notice;
    ru_texts words;        /* the model's texts: a tensor of texts is one of i64 */
    const bool *texts_in;  /* [graph->n_inputs] it is a tensor of texts */
    const bool *texts_out; /* [graph->n_outputs] */
    bool maps; /* outputs that the model makes maps of (ZipMap) are tables, a column for each class
                */
} ru_onnx_info;

/* Read a ModelProto into `out` (types inferred, verified). `info` may be NULL.
 * Errors: RU_E_DATA for damage and illegal models, RU_E_UNSUPPORTED, RU_E_LIMIT when `arena` is
 * full. */
RU_MUST_USE ru_status ru_onnx_read(const void *data, int64_t size_bytes, const ru_onnx_options *opt,
                                   ru_arena *arena, ru_graph *out, ru_onnx_info *info, ru_err *err);

/* Read a model for running it on these arrays: symbolic dims take their numbers from the arrays'
 * shapes (`opt->dims` adds to them), and inputs whose data decides shapes become constants. Inputs
 * that `arrays` does not name stay inputs; names that are no input are an error.
 * Errors: as ru_onnx_read; RU_E_DATA naming an array whose type, rank or dims do not fit. */
RU_MUST_USE ru_status ru_onnx_read_bound(const void *data, int64_t size_bytes,
                                         const ru_onnx_options *opt, const ru_array *arrays,
                                         uint32_t n_arrays, ru_arena *arena, ru_graph *out,
                                         ru_onnx_info *info, ru_err *err);

/* Where weights go that stay outside the model file. */
typedef struct ru_onnx_sink {
    const char *location; /* the file's name, relative to the model's folder */
    int64_t bytes_min;    /* smaller tensors stay inside */
    /* Append; *offset says where the bytes begin. */
    ru_status (*put)(void *self, const void *data, int64_t size_bytes, int64_t *offset,
                     ru_err *err);
    void *self;
} ru_onnx_sink;

enum { RU_ONNX_INSIDE_BYTES_MAX = INT32_MAX - (1 << 24) }; /* protobuf readers stop at 2 GiB */

typedef struct ru_onnx_write_options {
    int64_t opset;                /* 17 .. 21; 0: 21 */
    const char *producer_version; /* NULL: none */
    const ru_onnx_sink *outside;  /* NULL: all weights inside, RU_ONNX_INSIDE_BYTES_MAX at most */
    bool external;                /* ru_onnx_file_save: outside even when they would fit inside */
    /* Current data of a STATE value (trained weights), row-major; NULL function: the start values.
     */
    const void *(*state)(void *self, ru_value_id state);
    void *self;
} ru_onnx_write_options;

/* Append the inference graph `g` (inferred) as a ModelProto. State becomes initialisers under its
 * name; updates are not written. Our own ops are written out in standard ones.
 * Errors: RU_E_UNSUPPORTED naming a node that has no form in that opset; RU_E_LIMIT for more
 * weights than fit inside; those of the sink. */
RU_MUST_USE ru_status ru_onnx_write(const ru_graph *g, const ru_onnx_write_options *opt,
                                    ru_arena *scratch, ru_pb_out *out, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Make all shapes numbers, as executables need: what depends on constants only is computed by `ops`
 * until every shape is known. Errors: RU_E_DATA or RU_E_UNSUPPORTED naming a value, its symbolic
 * dimension and what to give. */
RU_MUST_USE ru_status ru_onnx_settle(const ru_graph *g, const ru_fold_ops *ops, ru_arena *arena,
                                     ru_graph *out, ru_err *err);
/* Read one TensorProto (the test vectors' file form). Elements are a view of `data` when aligned,
 * else in `arena`. Texts become their numbers in `words` (NULL: they are refused). `name` may be
 * NULL. */
RU_MUST_USE ru_status ru_onnx_tensor_read(const void *data, int64_t size_bytes, ru_texts *words,
                                          ru_arena *arena, ru_type *type, const void **elements,
                                          const char **name, ru_err *err);

#endif
