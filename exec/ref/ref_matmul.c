/* Matrix products: sums in double (or wrapping 64-bit integers), rounded once at the end. */
#include "exec/ref/ref_impl.h"

#include <string.h>

/* -- MatMul --------------------------------------------------------------------------------------- */

typedef struct mat_plan {
    ru_type batch;                /* broadcast batch dims of the output */
    int64_t m, n, k;
    int64_t a_batch[RU_RANK_MAX]; /* element strides of the batch dims */
    int64_t b_batch[RU_RANK_MAX];
} mat_plan;

/* numpy's rule: a vector on the left is a row, on the right a column, and loses that axis again. */
static ru_status mat_plan_make(const ru_ref_call *c, mat_plan *p, ru_err *err)
{
    const ru_type *a = &c->in[0].type, *b = &c->in[1].type, *y = &c->out[0].type;
    bool a_vec = a->rank == 1, b_vec = b->rank == 1;
    p->m = a_vec ? 1 : a->dims[a->rank - 2];
    p->k = a->dims[a->rank - 1];
    p->n = b_vec ? 1 : b->dims[b->rank - 1];
    int64_t kb = b_vec ? b->dims[0] : b->dims[b->rank - 2];
    if (kb != p->k) {
        return RU_FAIL(err, RU_E_DATA, "MatMul: inner sizes %lld and %lld differ", (long long)p->k,
                       (long long)kb);
    }
    uint32_t tail = (a_vec ? 0u : 1u) + (b_vec ? 0u : 1u);
    p->batch = *y;
    p->batch.rank = y->rank - tail;
    ru_type lead = *a;
    lead.rank = a_vec ? 0 : a->rank - 2;
    RU_TRY(rui_ref_strides_as(&lead, &p->batch, p->a_batch, err));
    lead = *b;
    lead.rank = b_vec ? 0 : b->rank - 2;
    RU_TRY(rui_ref_strides_as(&lead, &p->batch, p->b_batch, err));
    return RU_OK;
}

/* y[m,n] = sum_k a[m,k] b[k,n] in doubles; row by row so that b streams. */
static void product(const double *a, const double *b, double *y, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m; i++) {
        memset(y + i * n, 0, (size_t)n * sizeof y[0]);
        for (int64_t l = 0; l < k; l++) {
            double x = a[i * k + l];
            for (int64_t j = 0; j < n; j++) {
                y[i * n + j] += x * b[l * n + j];
            }
        }
    }
}

static void product_int(const int64_t *a, const int64_t *b, int64_t *y, int64_t m, int64_t n,
                        int64_t k)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            uint64_t sum = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += (uint64_t)a[i * k + l] * (uint64_t)b[l * n + j];
            }
            y[i * n + j] = (int64_t)sum;
        }
    }
}

ru_status rui_ref_MatMul(const ru_ref_call *c, ru_err *err)
{
    mat_plan p;
    RU_TRY(mat_plan_make(c, &p, err));
    int64_t batches = rui_ref_count(&p.batch), mn = p.m * p.n;
    bool is_float = rui_ref_is_float(c->in[0].type.dtype);
    double *fa = NULL, *fb = NULL, *fy = NULL;
    int64_t *ia = NULL, *ib = NULL, *iy = NULL;
    if (is_float) {
        RU_TRY(rui_ref_in(c, 0, &fa, err));
        RU_TRY(rui_ref_in(c, 1, &fb, err));
        RU_TRY(rui_ref_zeros(c, batches * mn, &fy, err));
    } else {
        RU_TRY(rui_ref_in_ints(c, 0, &ia, err));
        RU_TRY(rui_ref_in_ints(c, 1, &ib, err));
        RU_TRY(rui_ref_zero_ints(c, batches * mn, &iy, err));
    }
    rui_walk w;
    rui_walk_init(&w, p.batch.dims, p.batch.rank);
    for (int64_t i = 0; i < batches; i++) {
        int64_t at_a = rui_walk_dot(&w, p.a_batch) * p.m * p.k;
        int64_t at_b = rui_walk_dot(&w, p.b_batch) * p.k * p.n;
        if (is_float) {
            product(fa + at_a, fb + at_b, fy + i * mn, p.m, p.n, p.k);
        } else {
            product_int(ia + at_a, ib + at_b, iy + i * mn, p.m, p.n, p.k);
        }
        rui_walk_next(&w);
    }
    if (is_float) {
        rui_ref_store(&c->out[0], fy);
    } else {
        rui_ref_store_ints(&c->out[0], iy);
    }
    return RU_OK;
}

/* -- Gemm: alpha op(A) op(B) + beta C, then the fused activation ----------------------------------- */

static double *transposed(const double *x, double *into, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            into[j * rows + i] = x[i * cols + j];
        }
    }
    return into;
}

static ru_status load_matrix(const ru_ref_call *c, uint32_t k, bool trans, double **out, ru_err *err)
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
    RU_TRY(load_matrix(c, 0, ta, &a, err));
    RU_TRY(load_matrix(c, 1, tb, &b, err));
    RU_TRY(rui_ref_zeros(c, m * n, &y, err));
    if (rui_ref_has(c, 2)) {
        RU_TRY(rui_ref_load_as(c, &c->in[2], shape, &bias, err));
    }
    product(a, b, y, m, n, k);
    for (int64_t i = 0; i < m * n; i++) {
        double x = alpha * y[i] + (bias != NULL ? beta * bias[i] : 0.0);
        y[i] = rui_ref_activate(c->node, x);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* -- Einsum ---------------------------------------------------------------------------------------- */

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
            return RU_FAIL(err, RU_E_DATA, "Einsum: '%s' does not fit input %u of rank %u", equation,
                           k, t->rank);
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
