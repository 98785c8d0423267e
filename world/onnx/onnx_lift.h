/* Lifting one ONNX node to opset 21 (world/onnx/onnx_lift*.c), called by world/onnx/onnx_read.c.
 *
 * A lift starts with what the model says: inputs as graph values, attributes as raw messages. Rules
 * of the op's older opsets take attributes away, append inputs, put nodes before it or change the
 * op; what is left is appended to the graph as one node.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_ONNX_ONNX_LIFT_H
#define RU_WORLD_ONNX_ONNX_LIFT_H

#include "world/onnx/onnx_proto.h"

enum { RUI_LIFT_ARGS_MORE = 8 }; /* inputs and attributes a rule may append */

typedef struct rui_lift {
    ru_graph *g;
    ru_arena *arena;
    int64_t opset;
    bool infer;          /* types of inputs are known */
    const char *op_name; /* as in the model */
    ru_op op;
    const char *name; /* of the node; may be NULL */
    ru_value_id *in;  /* [n_in], room for RUI_LIFT_ARGS_MORE more */
    uint32_t n_in;
    rui_onnx_attr *raw; /* [n_raw] references resolved */
    bool *taken;        /* [n_raw] rules have used it */
    uint32_t n_raw;
    ru_attr more[RUI_LIFT_ARGS_MORE]; /* attributes that rules write */
    uint32_t n_more;
    uint32_t n_out;   /* outputs of the node that is appended */
    ru_value_id *out; /* [n_out_model] results, filled by emission */
    uint32_t n_out_model;
    const bool *wanted;      /* [n_out_model] output has a name in the model */
    struct rui_texts *texts; /* of the model */
    bool done;               /* the rule has filled `out` itself */
} rui_lift;

/* Apply the rules of op and opset. Errors: RU_E_UNSUPPORTED, RU_E_DATA without the node's name. */
RU_MUST_USE ru_status rui_lift_rules(rui_lift *l, ru_err *err);

/* Append the node: fills l->out. */
RU_MUST_USE ru_status rui_lift_emit(rui_lift *l, ru_err *err);

/* Is `op` of `domain` one of the ops on quantised tensors that are written as several others? With
 * `l` (may be NULL) it is written: fills l->out, and *status as rui_lift_emit. */
bool rui_lift_quant(const char *domain, const char *op, rui_lift *l, ru_status *status,
                    ru_err *err);

/* The same for the operators that came after opset 21. */
bool rui_lift_later(const char *domain, const char *op, rui_lift *l, ru_status *status,
                    ru_err *err);

/* The rule of the ops that got attributes or types after opset 21. */
RU_MUST_USE ru_status rui_lift_later_attrs(rui_lift *l, ru_err *err);

/* The rule of MatMulInteger and ConvInteger for constant weights. */
RU_MUST_USE ru_status rui_lift_integer_weights(rui_lift *l, ru_err *err);

/* -- for rules --------------------------------------------------------------------------------- */

/* The raw attribute of that name, marked as used; NULL when not set. */
const rui_onnx_attr *rui_lift_take(rui_lift *l, const char *name);
/* An integer attribute with default; taken. */
int64_t rui_lift_take_int(rui_lift *l, const char *name, int64_t dflt);
/* Make input k exist (absent ones before it are filled in). Errors: RU_E_DATA when it is there. */
RU_MUST_USE ru_status rui_lift_set_in(rui_lift *l, uint32_t k, ru_value_id v, ru_err *err);
RU_MUST_USE ru_status rui_lift_const(rui_lift *l, const ru_type *type, const void *data,
                                     ru_value_id *out, ru_err *err);
RU_MUST_USE ru_status rui_lift_const_i64s(rui_lift *l, const int64_t *v, uint32_t n,
                                          ru_value_id *out, ru_err *err);
RU_MUST_USE ru_status rui_lift_const_f32s(rui_lift *l, const float *v, uint32_t n, bool scalar,
                                          ru_value_id *out, ru_err *err);
/* A node before the lifted one, typed when l->infer. */
RU_MUST_USE ru_status rui_lift_node(rui_lift *l, ru_op op, const ru_value_id *in, uint32_t n_in,
                                    const ru_attr *attrs, uint32_t n_attrs, ru_value_id *out,
                                    ru_err *err);
/* Type of an input; NULL when absent or not known. */
const ru_type *rui_lift_type(const rui_lift *l, uint32_t k);

/* Write an attribute unless the model sets it. */
void rui_lift_dflt_int(rui_lift *l, ru_attr_key key, int64_t v);
void rui_lift_dflt_float(rui_lift *l, ru_attr_key key, double v);
void rui_lift_dflt_str(rui_lift *l, ru_attr_key key, const char *v);

#endif
