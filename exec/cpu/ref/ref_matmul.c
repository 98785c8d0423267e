/* Matrix products: sums in double (or wrapping 64-bit integers), rounded once at the end. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

/* -- MatMul ----------------------------------------------------------------------------- */

typedef struct mat_plan {
    ru_type batch; /* broadcast batch dims of the output */
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col; /* element strides inside a matrix */
    int64_t a_batch[RU_RANK_MAX];       /* strides of the batch dims, in matrices */
    int64_t b_batch[RU_RANK_MAX];
} mat_plan;

/* numpy's rule: a vector on the left is a row, on the right a column, and loses that axis again. */
static ru_status mat_plan_make(const ru_ref_call *c, mat_plan *p, ru_err *err)
{
    const ru_type *a = &c->in[0].type, *b = &c->in[1].type, *y = &c->out[0].type;
    bool a_vec = a->rank == 1, b_vec = b->rank == 1;
    bool ta = !a_vec && ru_node_int(c->node, RU_ATTR_transA, 0) != 0;
    bool tb = !b_vec && ru_node_int(c->node, RU_ATTR_transB, 0) != 0;
    int64_t a_rows = a_vec ? 1 : a->dims[a->rank - 2], a_cols = a->dims[a->rank - 1];
    int64_t b_rows = b_vec ? b->dims[0] : b->dims[b->rank - 2],
            b_cols = b_vec ? 1 : b->dims[b->rank - 1];
    p->m = ta ? a_cols : a_rows;
    p->k = ta ? a_rows : a_cols;
    p->n = tb ? b_rows : b_cols;
    p->a_row = ta ? 1 : a_cols;
    p->a_col = ta ? a_cols : 1;
    p->b_row = tb ? 1 : b_cols;
    p->b_col = tb ? b_cols : 1;
    if ((tb ? b_cols : b_rows) != p->k) {
        return RU_FAIL(err, RU_E_DATA, "MatMul: inner sizes %lld and %lld differ", (long long)p->k,
                       (long long)(tb ? b_cols : b_rows));
    }
    p->batch = *y;
    p->batch.rank = y->rank - ((a_vec ? 0u : 1u) + (b_vec ? 0u : 1u));
    ru_type lead = *a;
    lead.rank = a_vec ? 0 : a->rank - 2;
    RU_TRY(rui_ref_strides_as(&lead, &p->batch, p->a_batch, err));
    lead = *b;
    lead.rank = b_vec ? 0 : b->rank - 2;
    return rui_ref_strides_as(&lead, &p->batch, p->b_batch, err);
}

/* y[m,n] = sum_k a[m,k] b[k,n]. */
static void product_at(const mat_plan *p, const double *a, const double *b, double *y)
{
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t l = 0; l < p->k; l++) {
            double x = a[i * p->a_row + l * p->a_col];
            for (int64_t j = 0; j < p->n; j++) {
                y[i * p->n + j] += x * b[l * p->b_row + j * p->b_col];
            }
        }
    }
}

static void product_int(const mat_plan *p, const int64_t *a, const int64_t *b, int64_t *y)
{
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            uint64_t sum = 0;
            for (int64_t l = 0; l < p->k; l++) {
                sum += (uint64_t)a[i * p->a_row + l * p->a_col] *
                       (uint64_t)b[l * p->b_row + j * p->b_col];
            }
            y[i * p->n + j] = (int64_t)sum;
        }
    }
}

/* Subtract the zero point (input k_zero) from x, input `k`: one number, one of each row (side a,
 * one axis), or whatever broadcasts. */
static ru_status zero_subtract(const ru_ref_call *c, uint32_t k, uint32_t k_zero, int64_t *x,
                               ru_err *err)
{
    const ru_type *t = &c->in[k].type;
    if (!rui_ref_has(c, k_zero)) {
        return RU_OK;
    }
    ru_tensor z = c->in[k_zero];
    if (k == 0 && z.type.rank == 1 && z.type.dims[0] != 1) {
        z.type = (ru_type){.dtype = z.type.dtype, .rank = 2, .dims = {z.type.dims[0], 1}};
    }
    int64_t *zero;
    RU_TRY(rui_ref_load_ints_as(c, &z, t, &zero, err));
    for (int64_t i = 0; i < rui_ref_count(t); i++) {
        x[i] -= zero[i];
    }
    return RU_OK;
}

static ru_status matmul_ints(const ru_ref_call *c, const mat_plan *p, ru_err *err)
{
    int64_t *a, *b, *y, batches = rui_ref_count(&p->batch);
    RU_TRY(rui_ref_in_ints(c, 0, &a, err));
    RU_TRY(rui_ref_in_ints(c, 1, &b, err));
    if (c->node->op == RU_OP_MatMulInteger) {
        RU_TRY(zero_subtract(c, 0, 2, a, err));
        RU_TRY(zero_subtract(c, 1, 3, b, err));
    }
    RU_TRY(rui_ref_zero_ints(c, batches * p->m * p->n, &y, err));
    rui_walk w;
    rui_walk_init(&w, p->batch.dims, p->batch.rank);
    for (int64_t i = 0; i < batches; i++) {
        product_int(p, a + rui_walk_dot(&w, p->a_batch) * p->m * p->k,
                    b + rui_walk_dot(&w, p->b_batch) * p->k * p->n, y + i * p->m * p->n);
        rui_walk_next(&w);
    }
    rui_ref_store_ints(&c->out[0], y);
    return RU_OK;
}

ru_status rui_ref_MatMul(const ru_ref_call *c, ru_err *err)
{
    mat_plan p;
    RU_TRY(mat_plan_make(c, &p, err));
    if (!rui_ref_is_float(c->in[0].type.dtype)) {
        return matmul_ints(c, &p, err);
    }
    int64_t batches = rui_ref_count(&p.batch), mn = p.m * p.n;
    double *a, *b, *y, *bias;
    rui_finish f;
    RU_TRY(rui_ref_in(c, 0, &a, err));
    RU_TRY(rui_ref_in(c, 1, &b, err));
    RU_TRY(rui_ref_in(c, 2, &bias, err));
    RU_TRY(rui_finish_make(c, 3, &f, err));
    RU_TRY(rui_ref_zeros(c, batches * mn, &y, err));
    rui_walk w;
    rui_walk_init(&w, p.batch.dims, p.batch.rank);
    for (int64_t i = 0; i < batches; i++) {
        product_at(&p, a + rui_walk_dot(&w, p.a_batch) * p.m * p.k,
                   b + rui_walk_dot(&w, p.b_batch) * p.k * p.n, y + i * mn);
        rui_walk_next(&w);
    }
    for (int64_t i = 0; i < batches * mn; i++) {
        y[i] = rui_finish_apply(&f, i, y[i] + (bias != NULL ? bias[i % p.n] : 0.0));
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

ru_status rui_ref_MatMulInteger(const ru_ref_call *c, ru_err *err)
{
    mat_plan p;
    RU_TRY(mat_plan_make(c, &p, err));
    return matmul_ints(c, &p, err);
}

/* -- Gemm: alpha op(A) op(B) + beta C, then the fused activation ------------------------ */

static void product(const double *a, const double *b, double *y, int64_t m, int64_t n, int64_t k)
{
    mat_plan p = {.m = m, .n = n, .k = k, .a_row = k, .a_col = 1, .b_row = n, .b_col = 1};
    product_at(&p, a, b, y);
}

static double *transposed(const double *x, double *into, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            into[j * rows + i] = x[i * cols + j];
        }
    }
    return into;
}

static ru_status load_matrix(const ru_ref_call *c, uint32_t k, bool trans, double **out,
                             ru_err *err)
{
    const ru_type *t = &c->in[k].type;
    RU_TRY(rui_ref_in(c, k, out, err));
    if (trans) {
        double *into;
        RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &into, err));
        *out = transposed(*out, into, t->dims[0], t->dims[1]);
    }
    return RU_OK;
}

ru_status rui_ref_Gemm(const ru_ref_call *c, ru_err *err)
{
    bool ta = ru_node_int(c->node, RU_ATTR_transA, 0) != 0;
    bool tb = ru_node_int(c->node, RU_ATTR_transB, 0) != 0;
    double alpha = ru_node_float(c->node, RU_ATTR_alpha, 1.0);
    double beta = ru_node_float(c->node, RU_ATTR_beta, 1.0);
    const ru_type *ta_type = &c->in[0].type, *shape = &c->out[0].type;
    int64_t m = shape->dims[0], n = shape->dims[1], k = ta_type->dims[ta ? 0 : 1];
    if (c->in[1].type.dims[tb ? 1 : 0] != k) {
        return RU_FAIL(err, RU_E_DATA, "Gemm: inner sizes %lld and %lld differ", (long long)k,
                       (long long)c->in[1].type.dims[tb ? 1 : 0]);
    }
    double *a, *b, *y, *bias = NULL;
    rui_finish f;
    RU_TRY(rui_finish_make(c, 3, &f, err));
    RU_TRY(load_matrix(c, 0, ta, &a, err));
    RU_TRY(load_matrix(c, 1, tb, &b, err));
    RU_TRY(rui_ref_zeros(c, m * n, &y, err));
    if (rui_ref_has(c, 2)) {
        RU_TRY(rui_ref_load_as(c, &c->in[2], shape, &bias, err));
    }
    product(a, b, y, m, n, k);
    for (int64_t i = 0; i < m * n; i++) {
        double x = alpha * y[i] + (bias != NULL ? beta * bias[i] : 0.0);
        y[i] = rui_finish_apply(&f, i, x);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* -- Det: by elimination, with the largest element of each column ----------------------- */

static double determinant(double *a, int64_t n)
{
    double det = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t top = k;
        for (int64_t i = k + 1; i < n; i++) {
            top = fabs(a[i * n + k]) > fabs(a[top * n + k]) ? i : top;
        }
        det = top != k ? -det : det;
        for (int64_t j = k; top != k && j < n; j++) {
            double had = a[k * n + j];
            a[k * n + j] = a[top * n + j];
            a[top * n + j] = had;
        }
        double pivot = a[k * n + k];
        det *= pivot;
        for (int64_t i = k + 1; i < n && (pivot < 0 || pivot > 0); i++) {
            double f = a[i * n + k] / pivot;
            for (int64_t j = k + 1; j < n; j++) {
                a[i * n + j] -= f * a[k * n + j];
            }
        }
    }
    return det;
}

ru_status rui_ref_Det(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t n = t->dims[t->rank - 1], count = rui_ref_count(&c->out[0].type);
    double *x, *y;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, count, &y, err));
    for (int64_t i = 0; i < count; i++) {
        y[i] = determinant(x + i * n * n, n);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* -- Einsum ----------------------------------------------------------------------------- */

enum { EIN_INPUTS_MAX = 8, EIN_LABELS_MAX = 2 * RU_RANK_MAX };

/* Labels: letters 0..51, then the axes of the ellipsis counted from its right end: 52, 53, ... */
enum { EIN_ELLIPSIS = 52, EIN_LABEL_KINDS = EIN_ELLIPSIS + RU_RANK_MAX };

typedef struct ein_term {
    uint32_t n;
    uint32_t label[RU_RANK_MAX]; /* of each axis */
} ein_term;

typedef struct ein_plan {
    ein_term in[EIN_INPUTS_MAX], out;
    int64_t dim[EIN_LABEL_KINDS];
    uint32_t ellipsis_rank; /* longest of the inputs */
} ein_plan;

static int32_t letter(char ch)
{
    if (ch >= 'a' && ch <= 'z') {
        return ch - 'a';
    }
    return ch >= 'A' && ch <= 'Z' ? ch - 'A' + 26 : -1;
}

/* Parse one term that ends at ',' '-' or NUL; the ellipsis stands for `ellipsis` axes. */
static ru_status ein_parse(const char **at, uint32_t ellipsis, ein_term *t, ru_err *err)
{
    t->n = 0;
    for (; **at != '\0' && **at != ',' && **at != '-'; (*at)++) {
        bool dots = strncmp(*at, "...", 3) == 0;
        uint32_t axes = dots ? ellipsis : 1;
        int32_t l = letter(**at);
        if (**at == ' ') {
            continue;
        }
        if ((l < 0 && !dots) || t->n + axes > RU_RANK_MAX) {
            return RU_FAIL(err, RU_E_DATA, "Einsum: cannot read the equation at '%s'", *at);
        }
        for (uint32_t e = 0; e < axes; e++) {
            t->label[t->n++] = dots ? EIN_ELLIPSIS + axes - 1 - e : (uint32_t)l;
        }
        *at += dots ? 2 : 0;
    }
    return RU_OK;
}

/* Axes an ellipsis of this term stands for: the rank less the letters. */
static uint32_t ein_ellipsis_axes(const char *at, uint32_t rank)
{
    uint32_t letters = 0;
    for (; *at != '\0' && *at != ',' && *at != '-'; at++) {
        letters += letter(*at) >= 0;
    }
    return letters <= rank ? rank - letters : 0;
}

/* Without "->": ellipsis axes first, then letters that occur once, in alphabetical order (capitals
 * before small letters, as numpy sorts them). */
static void ein_implicit_out(const char *equation, ein_plan *p)
{
    uint32_t seen[52] = {0};
    for (const char *s = equation; *s != '\0'; s++) {
        if (letter(*s) >= 0) {
            seen[letter(*s)]++;
        }
    }
    p->out.n = 0;
    for (uint32_t e = 0; e < p->ellipsis_rank; e++) {
        p->out.label[p->out.n++] = EIN_ELLIPSIS + p->ellipsis_rank - 1 - e;
    }
    for (uint32_t k = 0; k < 52 && p->out.n < RU_RANK_MAX; k++) {
        uint32_t l = k < 26 ? k + 26 : k - 26;
        if (seen[l] == 1) {
            p->out.label[p->out.n++] = l;
        }
    }
}

static ru_status ein_plan_make(const ru_ref_call *c, ein_plan *p, ru_err *err)
{
    *p = (ein_plan){0};
    const char *equation = ru_node_str(c->node, RU_ATTR_equation, "");
    const char *at = equation;
    if (c->node->n_in > EIN_INPUTS_MAX) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "Einsum: %u inputs, at most 8", c->node->n_in);
    }
    for (uint32_t k = 0; k < c->node->n_in; k++) {
        const ru_type *t = &c->in[k].type;
        uint32_t axes = ein_ellipsis_axes(at, t->rank);
        RU_TRY(ein_parse(&at, axes, &p->in[k], err));
        bool more = k + 1 < c->node->n_in;
        if (p->in[k].n != t->rank || (*at == ',') != more) {
            return RU_FAIL(err, RU_E_DATA, "Einsum: '%s' does not fit input %u of rank %u",
                           equation, k, t->rank);
        }
        at += more;
        for (uint32_t d = 0; d < t->rank; d++) {
            uint32_t l = p->in[k].label[d];
            p->dim[l] = t->dims[d] != 1 || p->dim[l] == 0 ? t->dims[d] : p->dim[l];
            bool dots = l >= EIN_ELLIPSIS && l - EIN_ELLIPSIS + 1 > p->ellipsis_rank;
            p->ellipsis_rank = dots ? l - EIN_ELLIPSIS + 1 : p->ellipsis_rank;
        }
    }
    if (strncmp(at, "->", 2) != 0) {
        ein_implicit_out(equation, p);
        return RU_OK;
    }
    at += 2;
    return ein_parse(&at, p->ellipsis_rank, &p->out, err);
}

/* Element strides of a term over the walk's labels: a repeated label adds up (the diagonal). */
static ru_status ein_strides(const ru_type *t, const ein_term *term, const ein_plan *p,
                             const uint32_t *labels, uint32_t n, int64_t *s, ru_err *err)
{
    int64_t own[RU_RANK_MAX];
    rui_ref_strides(t, own);
    for (uint32_t i = 0; i < n; i++) {
        s[i] = 0;
        for (uint32_t d = 0; d < term->n; d++) {
            if (term->label[d] != labels[i]) {
                continue;
            }
            if (t->dims[d] != p->dim[labels[i]] && t->dims[d] != 1) {
                return RU_FAIL(err, RU_E_DATA, "Einsum: sizes %lld and %lld of one label differ",
                               (long long)t->dims[d], (long long)p->dim[labels[i]]);
            }
            s[i] += t->dims[d] == 1 ? 0 : own[d];
        }
    }
    return RU_OK;
}

/* All labels of the equation: the output's first, then the summed ones. */
static uint32_t ein_labels(const ein_plan *p, uint32_t n_in, uint32_t *labels)
{
    bool used[EIN_LABEL_KINDS] = {false};
    uint32_t n = 0;
    for (uint32_t d = 0; d < p->out.n; d++) {
        labels[n++] = p->out.label[d];
        used[p->out.label[d]] = true;
    }
    for (uint32_t k = 0; k < n_in; k++) {
        for (uint32_t d = 0; d < p->in[k].n && n < EIN_LABELS_MAX; d++) {
            if (!used[p->in[k].label[d]]) {
                used[p->in[k].label[d]] = true;
                labels[n++] = p->in[k].label[d];
            }
        }
    }
    return n;
}

ru_status rui_ref_Einsum(const ru_ref_call *c, ru_err *err)
{
    ein_plan p;
    RU_TRY(ein_plan_make(c, &p, err));
    uint32_t labels[EIN_LABELS_MAX], n_in = c->node->n_in;
    uint32_t n = ein_labels(&p, n_in, labels);
    int64_t dims[EIN_LABELS_MAX], total = 1, s[EIN_INPUTS_MAX + 1][EIN_LABELS_MAX];
    double *x[EIN_INPUTS_MAX], *y;
    for (uint32_t i = 0; i < n; i++) {
        dims[i] = p.dim[labels[i]];
        total *= dims[i];
    }
    for (uint32_t k = 0; k < n_in; k++) {
        RU_TRY(rui_ref_in(c, k, &x[k], err));
        RU_TRY(ein_strides(&c->in[k].type, &p.in[k], &p, labels, n, s[k], err));
    }
    RU_TRY(ein_strides(&c->out[0].type, &p.out, &p, labels, n, s[n_in], err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &y, err));
    rui_walk w;
    rui_walk_init(&w, dims, n);
    for (int64_t i = 0; i < total; i++) {
        double prod = 1.0;
        for (uint32_t k = 0; k < n_in; k++) {
            prod *= x[k][rui_walk_dot(&w, s[k])];
        }
        y[rui_walk_dot(&w, s[n_in])] += prod;
        rui_walk_next(&w);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}
