/* Support vector machines of ai.onnx.ml. The kernels of all rows with all support vectors are one
 * product; a constant matrix then sums them for each pair of classes. */
#include <math.h>
#include <string.h>

#include "world/onnx/onnx_ml.h"

typedef struct svm {
    rui_ml *m;
    ru_value_id x;
    int64_t columns;
    const char *kernel;
    double gamma, coef0, degree;
} svm;

static svm svm_take(rui_ml *m)
{
    uint32_t n;
    svm s = {.m = m};
    s.x = rui_ml_rows(m, false, &s.columns);
    s.kernel = rui_ml_str(m, "kernel_type", "LINEAR");
    const double *p = rui_ml_floats(m, "kernel_params", &n);
    if (n != 0 && n != 3) {
        rui_ml_fail(m, RU_E_DATA,
                    "kernel_params has %u elements; gamma, coef0 and degree were "
                    "expected",
                    n);
    }
    if (p != NULL && n == 3) {
        s.gamma = p[0];
        s.coef0 = p[1];
        s.degree = p[2];
    }
    return s;
}

/* x v^T for the rows of `v`. */
static ru_value_id dots(const svm *s, const double *v, int64_t n)
{
    ru_attr trans = {.key = RU_ATTR_transB, .kind = RU_ATTR_INT, .n = 1, .u.i = 1};
    ru_value_id in[2] = {s->x, rui_ml_matrix(s->m, v, n, s->columns)};
    return rui_ml_node(s->m, RU_OP_Gemm, in, 2, &trans, 1);
}

/* |x - v|^2 = |x|^2 - 2 x v + |v|^2, not below 0. */
static ru_value_id distances(const svm *s, const double *v, int64_t n)
{
    rui_ml *m = s->m;
    const int64_t axis = 1;
    double *norms = rui_ml_alloc(m, n * (int64_t)sizeof *norms);
    for (int64_t k = 0; norms != NULL && k < n * s->columns; k++) {
        norms[k / s->columns] += v[k] * v[k];
    }
    ru_value_id in[2] = {s->x, rui_ml_i64s(m, &axis, 1)};
    ru_value_id own = rui_ml_node(m, RU_OP_ReduceSumSquare, in, 2, NULL, 0);
    ru_value_id cross = rui_ml_2(m, RU_OP_Mul, dots(s, v, n), rui_ml_scalar(m, -2));
    ru_value_id sum = rui_ml_2(m, RU_OP_Add, rui_ml_2(m, RU_OP_Add, cross, own),
                               rui_ml_list(m, norms, (uint32_t)n));
    return rui_ml_1(m, RU_OP_Relu, sum);
}

/* The kernel of every row with `n` vectors: [N, n]. */
static ru_value_id kernels(const svm *s, const double *v, int64_t n)
{
    rui_ml *m = s->m;
    if (strcmp(s->kernel, "LINEAR") == 0) {
        return dots(s, v, n);
    }
    ru_value_id gamma = rui_ml_scalar(m, s->gamma), coef0 = rui_ml_scalar(m, s->coef0);
    if (strcmp(s->kernel, "RBF") == 0) {
        return rui_ml_1(m, RU_OP_Exp,
                        rui_ml_2(m, RU_OP_Mul, distances(s, v, n), rui_ml_scalar(m, -s->gamma)));
    }
    ru_value_id y = rui_ml_2(m, RU_OP_Add, rui_ml_2(m, RU_OP_Mul, dots(s, v, n), gamma), coef0);
    if (strcmp(s->kernel, "POLY") == 0) {
        return rui_ml_2(m, RU_OP_Pow, y, rui_ml_scalar(m, s->degree));
    }
    if (strcmp(s->kernel, "SIGMOID") == 0) {
        return rui_ml_1(m, RU_OP_Tanh, y);
    }
    rui_ml_fail(m, RU_E_DATA, "kernel_type '%s' is none of LINEAR, POLY, RBF, SIGMOID", s->kernel);
    return y;
}

/* The model's numbers fit `n` vectors of the input's columns. */
static bool vectors_fit(svm *s, uint32_t n_values, int64_t n)
{
    if (n < 1 || n_values == 0 || n_values % n != 0 ||
        (s->columns >= 0 && s->columns != n_values / n)) {
        rui_ml_fail(s->m, RU_E_DATA, "its %lld vectors have %u numbers, its input has %lld columns",
                    (long long)n, n_values, (long long)s->columns);
        return false;
    }
    s->columns = n_values / n;
    return rui_ml_ok(s->m);
}

static ru_value_id sums(const svm *s, ru_value_id k, const double *w, int64_t n, int64_t outputs,
                        const double *bias)
{
    ru_value_id in[3] = {k, rui_ml_matrix(s->m, w, n, outputs),
                         rui_ml_list(s->m, bias, (uint32_t)outputs)};
    return rui_ml_node(s->m, RU_OP_Gemm, in, 3, NULL, 0);
}

static void regressor(rui_ml *m)
{
    uint32_t n_w, n_rho, n_v;
    svm s = svm_take(m);
    const double *w = rui_ml_floats(m, "coefficients", &n_w);
    const double *rho = rui_ml_floats(m, "rho", &n_rho);
    const double *v = rui_ml_floats(m, "support_vectors", &n_v);
    int64_t n = rui_ml_int(m, "n_supports", 0), one = rui_ml_int(m, "one_class", 0);
    rui_ml_post post = rui_ml_post_take(m);
    if (rho == NULL || w == NULL || (n > 0 && n_w != n)) {
        rui_ml_fail(m, RU_E_DATA, "it has %u coefficients and %u rho for %lld vectors", n_w, n_rho,
                    (long long)n);
    }
    ru_value_id y = s.x;
    if (n == 0 && vectors_fit(&s, n_w, 1)) { /* a linear model without vectors */
        y = rui_ml_2(m, RU_OP_Add, dots(&s, w, 1), rui_ml_scalar(m, rho[0]));
    } else if (n > 0 && vectors_fit(&s, n_v, n)) {
        y = sums(&s, kernels(&s, v, n), w, n, 1, rho);
    }
    if (one != 0) {
        ru_value_id above = rui_ml_2(m, RU_OP_Greater, y, rui_ml_scalar(m, 0));
        y = rui_ml_3(m, RU_OP_Where, above, rui_ml_scalar(m, 1), rui_ml_scalar(m, -1));
        post = RUI_ML_NONE;
    }
    rui_ml_out(m, 0, rui_ml_post_apply(m, y, post));
}

/* -- classifier -------------------------------------------------------------------------------- */

typedef struct pairs {
    int64_t classes, n; /* n = classes * (classes - 1) / 2: (0,1), (0,2), ..., (1,2), ... */
    int64_t *i, *j;     /* [n] */
} pairs;

static pairs pairs_of(rui_ml *m, int64_t classes)
{
    pairs p = {.classes = classes};
    p.i = rui_ml_alloc(m, classes * classes * (int64_t)sizeof *p.i);
    p.j = rui_ml_alloc(m, classes * classes * (int64_t)sizeof *p.j);
    for (int64_t i = 0; rui_ml_ok(m) && i < classes; i++) {
        for (int64_t j = i + 1; j < classes; j++) {
            p.i[p.n] = i;
            p.j[p.n++] = j;
        }
    }
    return p;
}

/* What vector v of class c adds to the score of each pair: [n, pairs]. */
static double *pair_weights(rui_ml *m, const pairs *p, const int64_t *per_class, int64_t n,
                            const double *w)
{
    double *out = rui_ml_alloc(m, n * p->n * (int64_t)sizeof *out);
    int64_t v = 0;
    for (int64_t c = 0; out != NULL && c < p->classes; c++) {
        for (int64_t end = v + per_class[c]; v < end; v++) {
            for (int64_t k = 0; k < p->n; k++) {
                int64_t row = p->i[k] == c ? p->j[k] - 1 : p->j[k] == c ? p->i[k] : -1;
                out[v * p->n + k] = row >= 0 ? w[row * n + v] : 0;
            }
        }
    }
    return out;
}

/* Votes of the pairs: s > 0 for the first class, else for the second. [N, classes] */
static ru_value_id votes(rui_ml *m, const pairs *p, ru_value_id s)
{
    double *first = rui_ml_alloc(m, p->n * p->classes * (int64_t)sizeof *first);
    double *second = rui_ml_alloc(m, p->classes * (int64_t)sizeof *second);
    for (int64_t k = 0; rui_ml_ok(m) && k < p->n; k++) {
        first[k * p->classes + p->i[k]] += 1;
        first[k * p->classes + p->j[k]] -= 1;
        second[p->j[k]] += 1;
    }
    ru_value_id above = rui_ml_cast(m, rui_ml_2(m, RU_OP_Greater, s, rui_ml_scalar(m, 0)), RU_F32);
    ru_value_id in[3] = {above, rui_ml_matrix(m, first, p->n, p->classes),
                         rui_ml_list(m, second, (uint32_t)p->classes)};
    return rui_ml_node(m, RU_OP_Gemm, in, 3, NULL, 0);
}

/* Probabilities of the pairs, coupled to those of the classes (op CouplePairs). */
static ru_value_id probabilities(rui_ml *m, const pairs *p, ru_value_id s, const double *a,
                                 const double *b)
{
    uint32_t n = (uint32_t)p->n;
    ru_value_id z = rui_ml_2(m, RU_OP_Add, rui_ml_2(m, RU_OP_Mul, s, rui_ml_list(m, a, n)),
                             rui_ml_list(m, b, n));
    ru_value_id r = rui_ml_1(m, RU_OP_Sigmoid, rui_ml_1(m, RU_OP_Neg, z));
    return rui_ml_1(m, RU_OP_CouplePairs, r);
}

/* Without vectors: one row of coefficients for each class. */
static void linear(rui_ml *m, svm *s, const rui_ml_labels *labels, const double *w, uint32_t n_w,
                   const double *rho, rui_ml_post post)
{
    ru_value_id y = s->x;
    if (vectors_fit(s, n_w, labels->n)) {
        y = rui_ml_2(m, RU_OP_Add, dots(s, w, labels->n), rui_ml_scalar(m, rho[0]));
    }
    rui_ml_labels_out(m, labels, rui_ml_argmax(m, y));
    rui_ml_out(m, 1, rui_ml_post_apply(m, y, post));
}

static void classifier(rui_ml *m)
{
    uint32_t n_w, n_rho, n_v, n_per, n_a, n_b;
    svm s = svm_take(m);
    const double *w = rui_ml_floats(m, "coefficients", &n_w);
    const double *rho = rui_ml_floats(m, "rho", &n_rho);
    const double *v = rui_ml_floats(m, "support_vectors", &n_v);
    const int64_t *per = rui_ml_ints(m, "vectors_per_class", &n_per);
    const double *a = rui_ml_floats(m, "prob_a", &n_a);
    const double *b = rui_ml_floats(m, "prob_b", &n_b);
    rui_ml_labels labels = rui_ml_labels_take(m, "classlabels_ints");
    rui_ml_post post = rui_ml_post_take(m);
    int64_t n = 0;
    for (uint32_t k = 0; k < n_per; k++) {
        n += per[k] < 0 || per[k] > INT32_MAX ? INT32_MAX : per[k];
    }
    pairs p = pairs_of(m, labels.n < 2048 ? labels.n : 0);
    bool sized = n == 0 ? n_rho > 0 : n_rho == p.n && n_w == (p.classes - 1) * n;
    if (labels.n < 2 || w == NULL || !sized || (n > 0 && n_per != labels.n) || n_a != n_b ||
        (n_a != 0 && n_a != p.n) || n > INT32_MAX / 2048) {
        rui_ml_fail(m, RU_E_DATA,
                    "its %u labels, %u coefficients, %u rho and %lld vectors do not "
                    "fit together",
                    labels.n, n_w, n_rho, (long long)n);
    }
    if (n == 0 || !rui_ml_ok(m) || !vectors_fit(&s, n_v, n)) {
        if (rui_ml_ok(m)) {
            linear(m, &s, &labels, w, n_w, rho, post);
        }
        return;
    }
    ru_value_id y = sums(&s, kernels(&s, v, n), pair_weights(m, &p, per, n, w), n, p.n, rho);
    ru_value_id count = votes(m, &p, y);
    rui_ml_labels_out(m, &labels, rui_ml_argmax(m, count));
    if (a != NULL) {
        y = probabilities(m, &p, y, a, b);
    } else if (p.n == 1 && post == RUI_ML_NONE) {
        y = rui_ml_beside(m, rui_ml_1(m, RU_OP_Neg, y), y);
    } else if (p.n == 1 && post != RUI_ML_PROBIT) {
        y = rui_ml_beside(m, rui_ml_2(m, RU_OP_Sub, rui_ml_scalar(m, 1), y), y);
        post = RUI_ML_NONE;
    }
    rui_ml_out(m, 1, rui_ml_post_apply(m, y, post));
}

rui_ml_fn rui_ml_svm_find(const char *op)
{
    return strcmp(op, "SVMRegressor") == 0    ? regressor
           : strcmp(op, "SVMClassifier") == 0 ? classifier
                                              : NULL;
}
