/* Fourier transforms, windows and mel weights.
 *
 * A transform of n is split by its smallest prime factor until the factors are prime; a prime is
 * summed directly. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

typedef struct fourier {
    int64_t n;
    double *root; /* [n][2] e^(-2 pi i k / n), or its conjugate */
    double *work; /* [2 n][2] */
} fourier;

static ru_status fourier_make(const ru_ref_call *c, int64_t n, bool inverse, fourier *f,
                              ru_err *err)
{
    f->n = n;
    RU_TRY(rui_ref_zeros(c, 2 * n, &f->root, err));
    RU_TRY(rui_ref_zeros(c, 4 * n, &f->work, err));
    for (int64_t k = 0; k < n; k++) {
        double angle = 2 * pi * (double)k / (double)n;
        f->root[2 * k] = cos(angle);
        f->root[2 * k + 1] = inverse ? sin(angle) : -sin(angle);
    }
    return RU_OK;
}

static int64_t factor_of(int64_t n)
{
    for (int64_t p = 2; p * p <= n; p++) {
        if (n % p == 0) {
            return p;
        }
    }
    return n;
}

/* out[k] = sum over the p parts of root^(j k) part_j[k mod m]; the parts stand in `in`, one after
 * the other, and are transforms of m numbers. */
static void join(const fourier *f, int64_t n, int64_t p, const double *in, double *out)
{
    int64_t m = n / p, step = f->n / n;
    for (int64_t k = 0; k < n; k++) {
        double re = 0, im = 0;
        for (int64_t j = 0; j < p; j++) {
            const double *r = f->root + 2 * (j * k % n * step);
            const double *x = in + 2 * (j * m + k % m);
            re += x[0] * r[0] - x[1] * r[1];
            im += x[0] * r[1] + x[1] * r[0];
        }
        out[2 * k] = re;
        out[2 * k + 1] = im;
    }
}

enum { FACTORS_MAX = 64 };

/* The transform of x [f->n][2], in place. Decimation in time without recursion: elements are put in
 * the order in which the deepest level reads them, then levels are joined from the bottom. */
static void transform(const fourier *f, double *x)
{
    int64_t p[FACTORS_MAX], n = f->n;
    uint32_t levels = 0;
    double *a = f->work, *b = f->work + 2 * n;
    for (int64_t rest = n; rest > 1; rest /= p[levels - 1]) {
        p[levels++] = factor_of(rest);
    }
    for (int64_t i = 0; i < n; i++) { /* place i of the order holds element `from` */
        int64_t from = 0, rest = i, size = n, stride = 1;
        for (uint32_t l = 0; l < levels; l++) {
            size /= p[l];
            from += rest / size * stride;
            rest %= size;
            stride *= p[l];
        }
        a[2 * i] = x[2 * from];
        a[2 * i + 1] = x[2 * from + 1];
    }
    int64_t size = 1;
    for (uint32_t l = levels; l-- > 0;) {
        size *= p[l];
        for (int64_t at = 0; at < n; at += size) {
            join(f, size, p[l], a + 2 * at, b + 2 * at);
        }
        double *t = a;
        a = b;
        b = t;
    }
    for (int64_t i = 0; i < 2 * n; i++) {
        x[i] = a[i];
    }
}

/* Element k of a line of real or complex numbers. */
static void number(const double *x, int64_t place, int64_t parts, double *out)
{
    out[0] = x[place * parts];
    out[1] = parts == 2 ? x[place * parts + 1] : 0;
}

/* A one-sided spectrum of n numbers becomes the whole: X[n - k] is the conjugate of X[k]. */
static void mirror(double *line, int64_t n)
{
    for (int64_t k = n / 2 + 1; k < n; k++) {
        line[2 * k] = line[2 * (n - k)];
        line[2 * k + 1] = -line[2 * (n - k) + 1];
    }
}

ru_status rui_ref_DFT(const ru_ref_call *c, ru_err *err)
{
    const ru_type *tx = &c->in[0].type, *ty = &c->out[0].type;
    bool inverse = ru_node_int(c->node, RU_ATTR_inverse, 0) != 0;
    bool onesided = ru_node_int(c->node, RU_ATTR_onesided, 0) != 0;
    int64_t parts = tx->dims[tx->rank - 1], out_parts = ty->dims[ty->rank - 1];
    uint32_t axis;
    double *x, *y, *line;
    int64_t *given;
    RU_TRY(rui_ref_in_ints(c, 2, &given, err));
    RU_TRY(rui_ref_axis(c, given != NULL ? given[0] : -2, tx->rank, &axis, err));
    rui_axis3 in = rui_ref_axis3(tx, axis), out = rui_ref_axis3(ty, axis);
    RU_TRY(rui_ref_in_ints(c, 1, &given, err));
    int64_t n = given != NULL ? given[0] : onesided && inverse ? 2 * (in.dim - 1) : in.dim;
    int64_t used = onesided && inverse ? n / 2 + 1 : n, inner = in.inner / parts;
    fourier f;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(ty), &y, err));
    RU_TRY(rui_ref_zeros(c, 2 * n, &line, err));
    RU_TRY(fourier_make(c, n, inverse, &f, err));
    for (int64_t l = 0; l < in.outer * inner; l++) {
        int64_t o = l / inner, i = l % inner;
        for (int64_t k = 0; k < n; k++) {
            line[2 * k] = line[2 * k + 1] = 0;
            if (k < in.dim && k < used) {
                number(x, (o * in.dim + k) * inner + i, parts, line + 2 * k);
            }
        }
        if (onesided && inverse) {
            mirror(line, n);
        }
        transform(&f, line);
        for (int64_t k = 0; k < out.dim; k++) {
            for (int64_t part = 0; part < out_parts; part++) {
                y[((o * out.dim + k) * inner + i) * out_parts + part] =
                    line[2 * k + part] / (inverse ? (double)n : 1);
            }
        }
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

ru_status rui_ref_STFT(const ru_ref_call *c, ru_err *err)
{
    const ru_type *tx = &c->in[0].type, *ty = &c->out[0].type;
    int64_t parts = tx->rank == 3 ? tx->dims[2] : 1, bins = ty->dims[2], frames = ty->dims[1];
    double *x, *y, *w, *line;
    int64_t *step, *length;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in_ints(c, 1, &step, err));
    RU_TRY(rui_ref_in(c, 2, &w, err));
    RU_TRY(rui_ref_in_ints(c, 3, &length, err));
    int64_t n = length != NULL ? length[0] : c->in[2].type.dims[0];
    fourier f;
    RU_TRY(rui_ref_zeros(c, rui_ref_count(ty), &y, err));
    RU_TRY(rui_ref_zeros(c, 2 * n, &line, err));
    RU_TRY(fourier_make(c, n, false, &f, err));
    for (int64_t at = 0; at < tx->dims[0] * frames; at++) {
        int64_t from = at / frames * tx->dims[1] + at % frames * step[0];
        for (int64_t k = 0; k < n; k++) {
            number(x, from + k, parts, line + 2 * k);
            line[2 * k] *= w != NULL ? w[k] : 1;
            line[2 * k + 1] *= w != NULL ? w[k] : 1;
        }
        transform(&f, line);
        for (int64_t k = 0; k < 2 * bins; k++) {
            y[at * bins * 2 + k] = line[k];
        }
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* a0 - a1 cos(2 pi k / n) + a2 cos(4 pi k / n) */
static ru_status window(const ru_ref_call *c, double a0, double a1, double a2)
{
    int64_t size = c->out[0].type.dims[0];
    double n = (double)(ru_node_int(c->node, RU_ATTR_periodic, 1) != 0 ? size : size - 1);
    for (int64_t k = 0; k < size; k++) {
        double angle = n > 0 ? 2 * pi * (double)k / n : pi; /* a window of one number is 1 */
        rui_ref_set(c->out[0].type.dtype, c->out[0].data, k,
                    a0 - a1 * cos(angle) + a2 * cos(2 * angle));
    }
    return RU_OK;
}

ru_status rui_ref_HannWindow(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    return window(c, 0.5, 0.5, 0);
}

ru_status rui_ref_HammingWindow(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    return window(c, 25.0 / 46, 21.0 / 46, 0);
}

ru_status rui_ref_BlackmanWindow(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    return window(c, 0.42, 0.5, 0.08);
}

/* Triangle `i` of the filters, between the bins low, top and high. */
static void triangle(double *y, int64_t bins, int64_t mels, int64_t i, const int64_t *edge)
{
    int64_t low = edge[0], top = edge[1], high = edge[2];
    for (int64_t j = low; j <= top && j < bins; j++) {
        y[j * mels + i] = top == low ? 1 : (double)(j - low) / (double)(top - low);
    }
    for (int64_t j = top; j < high && j < bins && high > top; j++) {
        y[j * mels + i] = (double)(high - j) / (double)(high - top);
    }
}

ru_status rui_ref_MelWeightMatrix(const ru_ref_call *c, ru_err *err)
{
    int64_t bins = c->out[0].type.dims[0], mels = c->out[0].type.dims[1], *length, *rate;
    double *y, *low, *high;
    RU_TRY(rui_ref_zeros(c, bins * mels, &y, err));
    RU_TRY(rui_ref_in_ints(c, 1, &length, err));
    RU_TRY(rui_ref_in_ints(c, 2, &rate, err));
    RU_TRY(rui_ref_in(c, 3, &low, err));
    RU_TRY(rui_ref_in(c, 4, &high, err));
    double from = 2595 * log10(1 + low[0] / 700);
    double step = (2595 * log10(1 + high[0] / 700) - from) / (double)(mels + 2);
    if (!(low[0] >= 0 && high[0] >= low[0] && high[0] < 1e9) || rate[0] < 1) {
        return RU_FAIL(err, RU_E_DATA,
                       "MelWeightMatrix: frequencies from %g to %g at %lld samples per second",
                       low[0], high[0], (long long)rate[0]);
    }
    for (int64_t i = 0; i < mels; i++) {
        int64_t edge[3];
        for (int64_t k = 0; k < 3; k++) {
            double hertz = 700 * (pow(10, (from + (double)(i + k) * step) / 2595) - 1);
            edge[k] = (int64_t)floor((double)(length[0] + 1) * hertz / (double)rate[0]);
        }
        triangle(y, bins, mels, i, edge);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}
