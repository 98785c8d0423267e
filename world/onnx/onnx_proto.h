/* ONNX messages as plain structs: what onnx.proto says, before it means anything.
 *
 * Strings are checked (no NUL inside) and copied NUL-terminated into the arena; nested messages
 * that are read later (tensors) stay as their bytes.
 *
 * Thread: any, no shared state.
 * Source: onnx.proto (field numbers) */
#ifndef RU_WORLD_ONNX_ONNX_PROTO_H
#define RU_WORLD_ONNX_ONNX_PROTO_H

#include "base/pb.h"
#include "world/graph/graph.h"

typedef enum rui_onnx_attr_type {
    RUI_ONNX_UNDEFINED = 0,
    RUI_ONNX_FLOAT = 1,
    RUI_ONNX_INT = 2,
    RUI_ONNX_STRING = 3,
    RUI_ONNX_TENSOR = 4,
    RUI_ONNX_GRAPH = 5,
    RUI_ONNX_FLOATS = 6,
    RUI_ONNX_INTS = 7,
    RUI_ONNX_STRINGS = 8,
    RUI_ONNX_OTHER = 9, /* tensors, graphs, sparse tensors, type protos */
} rui_onnx_attr_type;

typedef struct rui_onnx_strs {
    const char **s; /* [n] */
    uint32_t n, cap;
} rui_onnx_strs;

typedef struct rui_onnx_bytes {
    const uint8_t *data;
    int64_t size_bytes;
} rui_onnx_bytes;

typedef struct rui_onnx_attr {
    const char *name, *ref; /* ref: inside functions, the attribute of the call; else NULL */
    rui_onnx_attr_type type;
    double f;
    int64_t i;
    const char *s;       /* NULL when not a text without NUL */
    rui_onnx_bytes t, g; /* a tensor, a graph */
    double *fs;          /* [n] */
    int64_t *is;         /* [n] */
    rui_onnx_strs ss;
    uint32_t n; /* of fs or is */
} rui_onnx_attr;

typedef struct rui_onnx_node {
    const char *name, *op, *domain, *overload; /* "" when not set */
    bool norm_fused;       /* its metadata say that a batch normalisation was folded into it */
    rui_onnx_strs in, out; /* "" is absent */
    rui_onnx_attr *attrs;  /* [n_attrs] */
    uint32_t n_attrs;
} rui_onnx_node;

/* Whole numbers of 4 bits, two in a byte: read as u8 and i8. */
static inline bool rui_onnx_four_bits(int32_t data_type)
{
    enum { UINT4 = 21, INT4 = 22 };
    return data_type == UINT4 || data_type == INT4;
}

/* A tensor's head; its elements are read by rui_onnx_tensor_data. */
typedef struct rui_onnx_tensor {
    const char *name;
    int32_t data_type;    /* onnx number */
    ru_type type;         /* dtype NONE when the number is not one of ours */
    rui_onnx_bytes bytes; /* the whole message */
    rui_onnx_bytes raw;   /* data NULL: not set */
    bool external;
    const char *location;   /* external */
    int64_t offset, length; /* external; length -1: to the end */
} rui_onnx_tensor;

/* Of weights; elsewhere numbers of 4 bits have no dtype. */
static inline void rui_onnx_four_as_bytes(rui_onnx_tensor *t)
{
    enum { INT4 = 22 };
    if (rui_onnx_four_bits(t->data_type)) {
        t->type.dtype = t->data_type == INT4 ? RU_I8 : RU_U8;
    }
}

typedef struct rui_onnx_dim {
    int64_t value;     /* >= 0, else -1: symbolic or unknown */
    const char *param; /* NULL: none */
} rui_onnx_dim;

typedef struct rui_onnx_info {
    const char *name;
    int32_t elem_type; /* 0: not a tensor or not given */
    const char *kind;  /* "tensor", "sequence", ...: for the error sentence */
    bool has_shape;
    uint32_t rank;
    rui_onnx_dim dims[RU_RANK_MAX];
} rui_onnx_info;

typedef struct rui_onnx_opset {
    const char *domain;
    int64_t version;
} rui_onnx_opset;

typedef struct rui_onnx_opsets {
    rui_onnx_opset *v; /* [n] */
    uint32_t n, cap;
} rui_onnx_opsets;

typedef struct rui_onnx_nodes {
    rui_onnx_node *v; /* [n] */
    uint32_t n, cap;
} rui_onnx_nodes;

typedef struct rui_onnx_function {
    const char *name, *domain, *overload;
    rui_onnx_strs in, out;
    rui_onnx_attr *dflts; /* [n_dflts] attributes with a default */
    uint32_t n_dflts, cap_dflts;
    rui_onnx_nodes nodes;
    rui_onnx_opsets opsets;
} rui_onnx_function;

typedef struct rui_onnx_model {
    int64_t ir_version;
    const char *producer;
    const char *graph_name;
    rui_onnx_opsets opsets;
    rui_onnx_nodes nodes;
    rui_onnx_tensor *inits;          /* [n_inits] */
    rui_onnx_info *inputs, *outputs; /* [n_inputs], [n_outputs] */
    rui_onnx_function *functions;    /* [n_functions] */
    uint32_t n_inits, n_inputs, n_outputs, n_functions;
    uint32_t n_norms_fused; /* nodes of the graph that are norm_fused */
    uint32_t cap_inits, cap_inputs, cap_outputs, cap_functions;
} rui_onnx_model;

/* Parse a ModelProto. Errors: RU_E_DATA, RU_E_UNSUPPORTED (sparse initialisers), RU_E_LIMIT. */
RU_MUST_USE ru_status rui_onnx_model_parse(const void *data, int64_t size_bytes, ru_arena *arena,
                                           rui_onnx_model *out, ru_err *err);

/* Parse a GraphProto, as a branch of If holds one, into the parts of `out` that a graph has.
 * Errors: as rui_onnx_model_parse. */
RU_MUST_USE ru_status rui_onnx_graph_parse(rui_onnx_bytes bytes, ru_arena *arena,
                                           rui_onnx_model *out, ru_err *err);

/* Parse the head of a TensorProto. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_onnx_tensor_parse(rui_onnx_bytes bytes, ru_arena *arena,
                                            rui_onnx_tensor *out, ru_err *err);

/* Elements of a tensor that is not external, row-major: a view when aligned, else in `arena`.
 * Errors: RU_E_UNSUPPORTED naming tensor and type, RU_E_DATA when count and shape differ. */
RU_MUST_USE ru_status rui_onnx_tensor_data(const rui_onnx_tensor *t, ru_arena *arena,
                                           const void **out, ru_err *err);

/* The check that `size_bytes` bytes fit the tensor's type, and the aligned view or copy of them. */
RU_MUST_USE ru_status rui_onnx_tensor_bytes(const rui_onnx_tensor *t, const void *data,
                                            int64_t size_bytes, ru_arena *arena, const void **out,
                                            ru_err *err);

/* "float8e4m3fn" for 17: names of TensorProto.DataType for sentences. */
const char *rui_onnx_type_name(int32_t data_type);

/* Room for one more element of a growing arena array; NULL when full. */
void *rui_onnx_grow(ru_arena *arena, void *array, uint32_t n, uint32_t *cap, int64_t elem_bytes,
                    uint32_t max);

#endif
