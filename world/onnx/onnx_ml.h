/* Operators of the domain ai.onnx.ml (classical models) as nodes of the standard domain, Trees and
 * LookUp. A builder with a sticky error: after the first one all functions do nothing.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_ONNX_ONNX_ML_H
#define RU_WORLD_ONNX_ONNX_ML_H

#include "world/onnx/onnx_lift.h"

typedef struct rui_ml {
    rui_lift *l;
    ru_status st;
    ru_err *err;
} rui_ml;

/* Read the node as an operator of ai.onnx.ml: fills l->out. Errors: RU_E_UNSUPPORTED for operators
 * that are not here, RU_E_DATA. */
RU_MUST_USE ru_status rui_lift_ml(rui_lift *l, ru_err *err);

typedef void (*rui_ml_fn)(rui_ml *m);
rui_ml_fn rui_ml_trees_find(const char *op); /* onnx_ml_trees.c; NULL: none of them */
rui_ml_fn rui_ml_svm_find(const char *op);   /* onnx_ml_svm.c */

/* -- for operators ------------------------------------------------------------------------------
 */

void rui_ml_fail(rui_ml *m, ru_status st, const char *fmt, ...) RU_PRINTF(3, 4);
void *rui_ml_alloc(rui_ml *m, int64_t size_bytes); /* zeroed; NULL sets the error */
bool rui_ml_ok(const rui_ml *m);

/* Attributes, taken; a wrong kind is an error. Lists: NULL and *n = 0 when not set. */
const double *rui_ml_floats(rui_ml *m, const char *name, uint32_t *n);
const int64_t *rui_ml_ints(rui_ml *m, const char *name, uint32_t *n);
const char *const *rui_ml_strs(rui_ml *m, const char *name, uint32_t *n);
const char *rui_ml_str(rui_ml *m, const char *name, const char *dflt);
double rui_ml_float(rui_ml *m, const char *name, double dflt);
int64_t rui_ml_int(rui_ml *m, const char *name, int64_t dflt);
/* Elements of a tensor attribute as doubles, its type in *dtype (NONE: not set). */
const double *rui_ml_tensor(rui_ml *m, const char *name, uint32_t *n, ru_dtype *dtype);

/* Nodes. */
ru_value_id rui_ml_node(rui_ml *m, ru_op op, const ru_value_id *in, uint32_t n_in,
                        const ru_attr *attrs, uint32_t n_attrs);
ru_value_id rui_ml_1(rui_ml *m, ru_op op, ru_value_id a);
ru_value_id rui_ml_2(rui_ml *m, ru_op op, ru_value_id a, ru_value_id b);
ru_value_id rui_ml_3(rui_ml *m, ru_op op, ru_value_id a, ru_value_id b, ru_value_id c);
ru_value_id rui_ml_cast(rui_ml *m, ru_value_id a, ru_dtype to);  /* a itself when it is that */
ru_value_id rui_ml_scalar(rui_ml *m, double x);                  /* f32 */
ru_value_id rui_ml_list(rui_ml *m, const double *v, uint32_t n); /* f32 [n] */
ru_value_id rui_ml_matrix(rui_ml *m, const double *v, int64_t rows, int64_t cols); /* f32 */
ru_value_id rui_ml_i64s(rui_ml *m, const int64_t *v, uint32_t n);
ru_value_id rui_ml_softmax(rui_ml *m, ru_value_id a);
ru_value_id rui_ml_beside(rui_ml *m, ru_value_id a, ru_value_id b); /* Concat along axis 1 */

/* Input 0 as f32 (f64 stays when `wide`) of rank 2: one dimension is one row. *features: the
 * number of columns when it is known, else -1. */
ru_value_id rui_ml_rows(rui_ml *m, bool wide, int64_t *features);

typedef enum rui_ml_post {
    RUI_ML_NONE,
    RUI_ML_SOFTMAX,
    RUI_ML_LOGISTIC,
    RUI_ML_SOFTMAX_ZERO,
    RUI_ML_PROBIT,
} rui_ml_post;

rui_ml_post rui_ml_post_take(rui_ml *m); /* the attribute post_transform */
ru_value_id rui_ml_post_apply(rui_ml *m, ru_value_id scores, rui_ml_post post);

/* Labels of a classifier: texts or numbers. */
typedef struct rui_ml_labels {
    uint32_t n;
    const int64_t *ints;     /* NULL: texts */
    const char *const *text; /* NULL: numbers */
} rui_ml_labels;

/* The attributes `ints` and classlabels_strings; neither: n is 0. */
rui_ml_labels rui_ml_labels_take(rui_ml *m, const char *ints);
/* The label of each row's index (i64 [N]), as the node's output 0. */
void rui_ml_labels_out(rui_ml *m, const rui_ml_labels *labels, ru_value_id index);
/* Index of the first largest column. */
ru_value_id rui_ml_argmax(rui_ml *m, ru_value_id scores);
/* 1 where the only column is above x, else 0: i64 [N]. */
ru_value_id rui_ml_above(rui_ml *m, ru_value_id column, double x);
void rui_ml_out(rui_ml *m, uint32_t k, ru_value_id v);

#endif
