/* Reference kernels of trees, look-up tables and pairs of classes. */
#include <math.h>
#include <string.h>

#include "exec/cpu/ref/ref_impl.h"

/* -- Trees ------------------------------------------------------------------------------------- */

typedef struct trees {
    const int32_t *root, *feature, *left, *first, *target;
    double *x, *value, *weight, *base;
    int64_t features, outputs, n_roots;
    const char *mode;
} trees;

static int32_t leaf_of(const trees *t, int32_t at, const double *x)
{
    while (t->left[at] != at) {
        int32_t f = t->feature[at];
        double v = x[f < 0 ? -1 - f : f];
        bool left = isnan(v) ? f < 0 : v <= t->value[at];
        at = t->left[at] + (left ? 0 : 1);
    }
    return at;
}

static double joined(const trees *t, bool seen, double a, double w)
{
    return !seen                         ? w
           : strcmp(t->mode, "min") == 0 ? fmin(a, w)
           : strcmp(t->mode, "max") == 0 ? fmax(a, w)
                                         : a + w;
}

ru_status rui_ref_Trees(const ru_ref_call *c, ru_err *err)
{
    trees t = {.root = c->in[1].data,
               .feature = c->in[2].data,
               .left = c->in[4].data,
               .first = c->in[5].data,
               .target = c->in[6].data,
               .features = c->in[0].type.dims[1],
               .outputs = c->out[0].type.dims[1],
               .n_roots = c->in[1].type.dims[0],
               .mode = ru_node_str(c->node, RU_ATTR_mode, "sum")};
    RU_TRY(rui_ref_in(c, 0, &t.x, err));
    RU_TRY(rui_ref_in(c, 3, &t.value, err));
    RU_TRY(rui_ref_in(c, 7, &t.weight, err));
    RU_TRY(rui_ref_in(c, 8, &t.base, err));
    int64_t rows = c->out[0].type.dims[0], *seen;
    double *y;
    RU_TRY(rui_ref_zeros(c, rows * t.outputs, &y, err));
    RU_TRY(rui_ref_zero_ints(c, t.outputs, &seen, err));
    bool average = strcmp(t.mode, "average") == 0;
    for (int64_t r = 0; r < rows; r++) {
        double *out = y + r * t.outputs;
        memset(seen, 0, (size_t)t.outputs * sizeof *seen);
        for (int64_t k = 0; k < t.n_roots; k++) {
            int32_t leaf = leaf_of(&t, t.root[k], t.x + r * t.features);
            for (int32_t e = t.first[leaf]; e < t.first[leaf + 1]; e++) {
                int32_t o = t.target[e];
                out[o] = joined(&t, seen[o] != 0, out[o], t.weight[e]);
                seen[o] = 1;
            }
        }
        for (int64_t o = 0; o < t.outputs; o++) {
            out[o] = (average ? out[o] / (double)t.n_roots : out[o]) + t.base[o];
        }
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* -- LookUp ------------------------------------------------------------------------------------ */

/* NaN is above every number and equals NaN. */
static int compare_floats(double a, double b)
{
    int nan = (isnan(a) ? 1 : 0) - (isnan(b) ? 1 : 0);
    return nan != 0 || isnan(a) ? nan : (a > b) - (a < b);
}

static int64_t place_of(const double *fk, const int64_t *ik, int64_t n, double f, int64_t i)
{
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        int order = fk != NULL ? compare_floats(fk[mid], f) : (ik[mid] > i) - (ik[mid] < i);
        if (order == 0) {
            return mid;
        }
        lo = order < 0 ? mid + 1 : lo;
        hi = order < 0 ? hi : mid;
    }
    return -1;
}

ru_status rui_ref_LookUp(const ru_ref_call *c, ru_err *err)
{
    bool floats = rui_ref_is_float(c->in[0].type.dtype);
    double *fx = NULL, *fk = NULL;
    int64_t *ix = NULL, *ik = NULL, n = rui_ref_count(&c->in[0].type);
    int64_t bytes = ru_dtype_bytes(c->out[0].type.dtype), keys = c->in[1].type.dims[0];
    if (floats) {
        RU_TRY(rui_ref_in(c, 0, &fx, err));
        RU_TRY(rui_ref_in(c, 1, &fk, err));
    } else {
        RU_TRY(rui_ref_in_ints(c, 0, &ix, err));
        RU_TRY(rui_ref_in_ints(c, 1, &ik, err));
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t at = place_of(fk, ik, keys, floats ? fx[k] : 0, floats ? 0 : ix[k]);
        if (at < 0 && !rui_ref_has(c, 3)) {
            return RU_FAIL(err, RU_E_DATA, "element %lld of its input is none of the %lld keys",
                           (long long)k, (long long)keys);
        }
        const char *from = at >= 0 ? (const char *)c->in[2].data + at * bytes : c->in[3].data;
        memcpy((char *)c->out[0].data + k * bytes, from, (size_t)bytes);
    }
    return RU_OK;
}

/* -- CouplePairs ------------------------------------------------------------------------------- */

/* Class probabilities p from r[i][j], the probability of i against j: minimises the sum over pairs
 * of (r[j][i] p[i] - r[i][j] p[j])^2 by cyclic steps along each p.
 * Source: Wu, Lin and Weng, JMLR 2004, algorithm 2 */
static void couple(int64_t n, const double *r, double *q, double *qp, double *p)
{
    const double enough = 0.005 / (double)n;
    for (int64_t t = 0; t < n; t++) {
        p[t] = 1.0 / (double)n;
        q[t * n + t] = 0;
        for (int64_t j = 0; j < n; j++) {
            q[t * n + t] += j == t ? 0 : r[j * n + t] * r[j * n + t];
            if (j != t) {
                q[t * n + j] = -r[j * n + t] * r[t * n + j];
            }
        }
    }
    for (int64_t round = 0, most = n > 100 ? n : 100; round < most; round++) {
        double pqp = 0, worst = 0;
        for (int64_t t = 0; t < n; t++) {
            qp[t] = 0;
            for (int64_t j = 0; j < n; j++) {
                qp[t] += q[t * n + j] * p[j];
            }
            pqp += p[t] * qp[t];
        }
        for (int64_t t = 0; t < n; t++) {
            worst = fmax(worst, fabs(qp[t] - pqp));
        }
        if (worst < enough) {
            return;
        }
        for (int64_t t = 0; t < n; t++) {
            double d = (pqp - qp[t]) / q[t * n + t];
            p[t] += d;
            pqp = (pqp + d * (d * q[t * n + t] + 2 * qp[t])) / (1 + d) / (1 + d);
            for (int64_t j = 0; j < n; j++) {
                qp[j] = (qp[j] + d * q[t * n + j]) / (1 + d);
                p[j] /= 1 + d;
            }
        }
    }
}

ru_status rui_ref_CouplePairs(const ru_ref_call *c, ru_err *err)
{
    int64_t n = c->out[0].type.dims[1], rows = c->out[0].type.dims[0];
    double *x, *work, *y;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, rows * n, &y, err));
    RU_TRY(rui_ref_zeros(c, 2 * n * n + n, &work, err));
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = i + 1; j < n; j++) {
                double p = fmin(fmax(*x++, 1e-7), 1 - 1e-7);
                work[i * n + j] = p;
                work[j * n + i] = 1 - p;
            }
        }
        couple(n, work, work + n * n, work + 2 * n * n, y + row * n);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}
