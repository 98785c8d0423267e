/* Fourier transforms, windows and mel weights.
 *
 * A transform of n is split by four, then by its smallest prime factors until the factors are
 * prime; a prime is summed directly. With a larger prime than SUMMED it is a convolution instead,
 * which is three transforms of a power of two:
 *
 *   X[k] = c[k] sum over j of (x[j] c[j]) / c[k - j],   c[k] = e^(-pi i k^2 / n)
 *
 * Source: bluestein-1970. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

enum { FACTORS_MAX = 64, SUMMED = 31 };

/* Complex numbers are pairs. */
typedef struct fourier {
    int64_t n;
    bool inverse;
    double *root;           /* [n][2] e^(-2 pi i k / n), or its conjugate */
    double *work;           /* [2 n][2] */
    int64_t p[FACTORS_MAX]; /* factors, the last one joins first */
    uint32_t levels;
    int64_t *order; /* [n] which element the deepest level reads */
} fourier;

/* A transform of any length. */
typedef struct any_fourier {
    fourier f;
    int64_t n;
    double *chirp;    /* NULL: by f alone; else [n][2] c, and f is of a power of two */
    double *spectrum; /* [f.n][2] of 1 / c */
    double *line;     /* [f.n][2] */
} any_fourier;

static int64_t factor_of(int64_t n)
{
    for (int64_t p = 2; n % 4 != 0 && p * p <= n; p++) {
        if (n % p == 0) {
            return p;
        }
    }
    return n % 4 == 0 ? 4 : n;
}

static ru_status fourier_make(const ru_ref_call *c, int64_t n, bool inverse, fourier *f,
                              ru_err *err)
{
    *f = (fourier){.n = n, .inverse = inverse};
    RU_TRY(rui_ref_zeros(c, 2 * n, &f->root, err));
    RU_TRY(rui_ref_zeros(c, 4 * n, &f->work, err));
    RU_TRY(rui_ref_zero_ints(c, n, &f->order, err));
    for (int64_t k = 0; k < n; k++) {
        double angle = 2 * pi * (double)k / (double)n;
        f->root[2 * k] = cos(angle);
        f->root[2 * k + 1] = inverse ? sin(angle) : -sin(angle);
    }
    for (int64_t rest = n; rest > 1; rest /= f->p[f->levels - 1]) {
        f->p[f->levels++] = factor_of(rest);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, size = n, stride = 1;
        for (uint32_t l = 0; l < f->levels; l++) {
            size /= f->p[l];
            f->order[i] += rest / size * stride;
            rest %= size;
            stride *= f->p[l];
        }
    }
    return RU_OK;
}

/* t = x * r */
static inline void times(const double *x, const double *r, double *t)
{
    double re = x[0] * r[0] - x[1] * r[1];
    t[1] = x[0] * r[1] + x[1] * r[0];
    t[0] = re;
}

static void join_2(int64_t m, int64_t step, const double *root, const double *in, double *out)
{
    for (int64_t k = 0; k < 2 * m; k += 2) {
        double t[2];
        times(in + 2 * m + k, root + k * step, t);
        out[k] = in[k] + t[0];
        out[k + 1] = in[k + 1] + t[1];
        out[2 * m + k] = in[k] - t[0];
        out[2 * m + k + 1] = in[k + 1] - t[1];
    }
}

/* turn: -1, or 1 for the inverse, of which i is the fourth root. */
static void join_4(int64_t m, int64_t step, const double *root, double turn, const double *in,
                   double *out)
{
    for (int64_t k = 0; k < 2 * m; k += 2) {
        const double *a = in + k;
        double b[2], c[2], d[2];
        times(in + 2 * m + k, root + k * step, b);
        times(in + 4 * m + k, root + 2 * k * step, c);
        times(in + 6 * m + k, root + 3 * k * step, d);
        double even[2] = {a[0] + c[0], a[1] + c[1]}, odd[2] = {b[0] + d[0], b[1] + d[1]};
        double low[2] = {a[0] - c[0], a[1] - c[1]};
        double high[2] = {turn * (d[1] - b[1]), turn * (b[0] - d[0])};
        for (int64_t i = 0; i < 2; i++) {
            out[k + i] = even[i] + odd[i];
            out[2 * m + k + i] = low[i] + high[i];
            out[4 * m + k + i] = even[i] - odd[i];
            out[6 * m + k + i] = low[i] - high[i];
        }
    }
}

/* The p parts stand in `in`, one after the other, and are transforms of m numbers. */
static void join_any(const fourier *f, int64_t p, int64_t m, const double *in, double *out)
{
    double t[SUMMED][2];
    int64_t step = f->n / (p * m), turn = f->n / p;
    for (int64_t k = 0; k < m; k++) {
        for (int64_t j = 0; j < p; j++) {
            times(in + 2 * (j * m + k), f->root + 2 * j * k * step, t[j]);
        }
        for (int64_t q = 0; q < p; q++) {
            double re = 0, im = 0;
            for (int64_t j = 0, at = 0; j < p; j++) {
                const double *r = f->root + 2 * at;
                re += t[j][0] * r[0] - t[j][1] * r[1];
                im += t[j][0] * r[1] + t[j][1] * r[0];
                at += q * turn;
                at -= at >= f->n ? f->n : 0;
            }
            out[2 * (q * m + k)] = re;
            out[2 * (q * m + k) + 1] = im;
        }
    }
}

/* Of x [f->n][2], in place. Decimation in time without recursion: elements are put in the order in
 * which the deepest level reads them, then levels are joined from the bottom. */
static void transform_by_factors(const fourier *f, double *x)
{
    int64_t n = f->n, m = 1;
    double *a = f->work, *b = f->work + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        a[2 * i] = x[2 * f->order[i]];
        a[2 * i + 1] = x[2 * f->order[i] + 1];
    }
    for (uint32_t l = f->levels; l-- > 0;) {
        int64_t p = f->p[l], step = n / (p * m);
        for (int64_t at = 0; at < 2 * n; at += 2 * p * m) {
            if (p == 2) {
                join_2(m, step, f->root, a + at, b + at);
            } else if (p == 4) {
                join_4(m, step, f->root, f->inverse ? 1.0 : -1.0, a + at, b + at);
            } else {
                join_any(f, p, m, a + at, b + at);
            }
        }
        double *t = a;
        a = b;
        b = t;
        m *= p;
    }
    memcpy(x, a, sizeof *x * (size_t)(2 * n));
}

static ru_status any_fourier_make(const ru_ref_call *c, int64_t n, bool inverse, any_fourier *a,
                                  ru_err *err)
{
    int64_t rest = n, most = 1, two = 1;
    for (; rest > 1; rest /= most) {
        most = factor_of(rest); /* the last one is the largest prime */
    }
    *a = (any_fourier){.n = n};
    if (most <= SUMMED) {
        return fourier_make(c, n, inverse, &a->f, err);
    }
    while (two < 2 * n - 1) {
        two *= 2;
    }
    RU_TRY(fourier_make(c, two, false, &a->f, err));
    RU_TRY(rui_ref_zeros(c, 2 * n, &a->chirp, err));
    RU_TRY(rui_ref_zeros(c, 2 * two, &a->spectrum, err));
    RU_TRY(rui_ref_zeros(c, 2 * two, &a->line, err));
    for (int64_t k = 0; k < n; k++) {
        double angle = pi * (double)(k * k % (2 * n)) / (double)n, re = cos(angle);
        double im = inverse ? sin(angle) : -sin(angle);
        int64_t back = k == 0 ? 0 : two - k;
        a->chirp[2 * k] = a->spectrum[2 * k] = a->spectrum[2 * back] = re;
        a->chirp[2 * k + 1] = im;
        a->spectrum[2 * k + 1] = a->spectrum[2 * back + 1] = -im;
    }
    transform_by_factors(&a->f, a->spectrum);
    return RU_OK;
}

/* Of x [a->n][2], in place. */
static void transform(const any_fourier *a, double *x)
{
    const int64_t n = a->n, two = a->f.n;
    double *line = a->line;
    if (a->chirp == NULL) {
        transform_by_factors(&a->f, x);
        return;
    }
    memset(line, 0, sizeof *line * (size_t)(2 * two));
    for (int64_t k = 0; k < n; k++) {
        times(x + 2 * k, a->chirp + 2 * k, line + 2 * k);
    }
    transform_by_factors(&a->f, line);
    for (int64_t k = 0; k < two; k++) { /* the inverse is the conjugate's, conjugate */
        times(line + 2 * k, a->spectrum + 2 * k, line + 2 * k);
        line[2 * k + 1] = -line[2 * k + 1];
    }
    transform_by_factors(&a->f, line);
    for (int64_t k = 0; k < n; k++) {
        double y[2] = {line[2 * k] / (double)two, -line[2 * k + 1] / (double)two};
        times(y, a->chirp + 2 * k, x + 2 * k);
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
    any_fourier f;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(ty), &y, err));
    RU_TRY(rui_ref_zeros(c, 2 * n, &line, err));
    RU_TRY(any_fourier_make(c, n, inverse, &f, err));
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
    any_fourier f;
    RU_TRY(rui_ref_zeros(c, rui_ref_count(ty), &y, err));
    RU_TRY(rui_ref_zeros(c, 2 * n, &line, err));
    RU_TRY(any_fourier_make(c, n, false, &f, err));
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
