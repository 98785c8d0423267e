/* DFT of a power of two on exec/cpu/kern/k_fourier.c. Another length becomes a convolution with a
 * chirp, which transforms of a power of two compute in f64:
 *
 *   2 j k = j^2 + k^2 - (k - j)^2, so with c[k] = e^(-pi i k^2 / n)
 *   y[k] = c[k] times the sum over j of (x[j] c[j]) / c[k - j]
 *
 * Source: Bluestein's algorithm. Few or very many numbers run on the reference. */
#include <math.h>

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    SIDES_MAX = 256, /* numbers: longer lines side by side leave L1 */
    COLS_LEAST = 8,  /* of a line that is a matrix */
    LENGTH_MAX = 1 << 24,
    CHIRP_LEAST = 32, /* numbers of a line that is convolved */
    CHIRP_MOST = 1 << 16,
};

typedef struct fourier_state {
    const ru_kern_numbers *k;
    ru_kern_fourier f;
    int64_t lines, work; /* work: bytes of one thread */
    /* Of a length that is no power of two */
    ru_kern_fourier there, back; /* of m complex numbers */
    double *chirp, *image;       /* c[n]; the transform of 1 / c, [m]: both complex */
} fourier_state;

/* bufs: x y work */
static void fourier_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                         void *own)
{
    const fourier_state *s = state;
    s->k->fourier(&s->f, bufs[0], bufs[1], begin, end, own);
}

/* Number k of a line, parts exchanged for the inverse. */
static void number_of(const ru_kern_fourier *f, const void *x, int64_t line, int64_t k, double *to)
{
    const bool turned = f->mirror && k > f->n / 2;
    const int64_t at = turned ? f->n - k : k;
    const int64_t i = ((line / f->inner * f->in + at) * f->inner + line % f->inner) * f->parts;
    double part[2] = {0, 0};
    for (int64_t p = 0; at < f->have && p < f->parts; p++) {
        part[p] = f->t == RU_F32 ? (double)((const float *)x)[i + p] : ((const double *)x)[i + p];
    }
    part[1] = turned ? -part[1] : part[1];
    to[0] = part[f->inverse ? 1 : 0];
    to[1] = part[f->inverse ? 0 : 1];
}

static void times(const double *a, const double *b, double *to)
{
    const double re = a[0] * b[0] - a[1] * b[1], im = a[0] * b[1] + a[1] * b[0];
    to[0] = re;
    to[1] = im;
}

/* bufs: x y work */
static void chirp_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const fourier_state *s = state;
    const ru_kern_fourier *f = &s->f;
    const int64_t m = s->there.n;
    const double scale = f->inverse ? 1 / (double)f->n : 1;
    double *a = own, *b = a + 2 * m, *work = b + 2 * m;
    for (int64_t l = begin; l < end; l++) {
        for (int64_t k = 0; k < f->n; k++) {
            number_of(f, bufs[0], l, k, a + 2 * k);
            times(a + 2 * k, s->chirp + 2 * k, a + 2 * k);
        }
        s->k->fourier(&s->there, a, b, 0, 1, work);
        for (int64_t k = 0; k < m; k++) {
            times(b + 2 * k, s->image + 2 * k, b + 2 * k);
        }
        s->k->fourier(&s->back, b, a, 0, 1, work);
        for (int64_t k = 0; k < f->out; k++) {
            int64_t i = ((l / f->inner * f->out + k) * f->inner + l % f->inner) * f->out_parts;
            times(a + 2 * k, s->chirp + 2 * k, b);
            for (int64_t p = 0; p < f->out_parts; p++) {
                double v = b[f->inverse ? 1 - p : p] * scale;
                if (f->t == RU_F32) {
                    ((float *)bufs[1])[i + p] = (float)v;
                } else {
                    ((double *)bufs[1])[i + p] = v;
                }
            }
        }
    }
}

static ru_status chirp_run(void *state, void *const *bufs, const rui_run *run)
{
    const fourier_state *s = state;
    rui_kern_for_own(run, chirp_part, s, bufs, s->lines, rui_kern_grain(16 * s->there.n), bufs[2],
                     s->work);
    return RU_OK;
}

static ru_status fourier_run(void *state, void *const *bufs, const rui_run *run)
{
    const fourier_state *s = state;
    int64_t grain = rui_kern_grain(8 * s->f.n);
    if (s->f.cols == 0) {
        grain = (grain + RU_KERN_FOURIER_LINES - 1) / RU_KERN_FOURIER_LINES * RU_KERN_FOURIER_LINES;
    }
    rui_kern_for_own(run, fourier_part, s, bufs, s->lines, grain, bufs[2], s->work);
    return RU_OK;
}

/* e^(-2 pi i k / n) for k = row * col of a matrix, its parts apart. */
static const void *roots(rui_low *lo, ru_dtype t, int64_t n, int64_t rows, int64_t cols)
{
    void *to = rui_keep(lo, 2 * n * ru_dtype_bytes(t));
    for (int64_t i = 0; to != NULL && i < n; i++) {
        int64_t k = rows > 1 ? i / cols * (i % cols) % n : i;
        double angle = 2 * 3.14159265358979323846 * (double)k / (double)n;
        if (t == RU_F32) {
            ((float *)to)[i] = (float)cos(angle);
            ((float *)to)[n + i] = (float)-sin(angle);
        } else {
            ((double *)to)[i] = cos(angle);
            ((double *)to)[n + i] = -sin(angle);
        }
    }
    return to;
}

/* Of the matrix that a line alone is; 0: it is none. */
static int64_t cols_of(int64_t size, int64_t lines)
{
    int64_t cols = 1;
    while (cols * cols < size) {
        cols *= 2;
    }
    bool alone = size > SIDES_MAX || lines < RU_KERN_FOURIER_LINES;
    return alone && size / cols >= COLS_LEAST ? cols : 0;
}

/* False: not a transform that the kernel takes. */
static bool fourier_of(const rui_low *lo, const ru_node *n, fourier_state *s)
{
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    bool inverse = ru_node_int(n, RU_ATTR_inverse, 0) != 0;
    bool half = ru_node_int(n, RU_ATTR_onesided, 0) != 0;
    uint32_t given;
    const int64_t *length = ru_node_has_in(n, 1) ? rui_const_i64(lo, n->in[1], &given) : NULL;
    const int64_t *axis = ru_node_has_in(n, 2) ? rui_const_i64(lo, n->in[2], &given) : NULL;
    if ((x->dtype != RU_F32 && x->dtype != RU_F64) || y->dtype != x->dtype ||
        ru_type_count(x) <= 0 || ru_type_count(y) <= 0 ||
        (ru_node_has_in(n, 1) && length == NULL) || (ru_node_has_in(n, 2) && axis == NULL)) {
        return false;
    }
    uint32_t d = rui_axis(axis != NULL ? *axis : -2, x->rank);
    if (d + 1 >= x->rank) {
        return false;
    }
    int64_t dim = x->dims[d], size = half && inverse ? 2 * (dim - 1) : dim;
    size = length != NULL ? *length : size;
    int64_t used = half && inverse ? size / 2 + 1 : size;
    bool two = (size & (size - 1)) == 0;
    if (size < (two ? 2 : CHIRP_LEAST) || size > (two ? LENGTH_MAX : CHIRP_MOST)) {
        return false;
    }
    s->k = ru_kern_numbers_best();
    s->f = (ru_kern_fourier){.t = x->dtype,
                             .n = size,
                             .in = dim,
                             .have = used < dim ? used : dim,
                             .out = y->dims[d],
                             .inner = rui_dims(x, d + 1, x->rank - 1),
                             .parts = x->dims[x->rank - 1],
                             .out_parts = y->dims[y->rank - 1],
                             .inverse = inverse,
                             .mirror = half && inverse};
    s->lines = rui_dims(x, 0, d) * s->f.inner;
    s->f.cols = two ? cols_of(size, s->lines) : 0;
    return true;
}

/* The tables of a transform of a power of two, and what it needs. False: no room. */
static bool tables_of(rui_low *lo, const ru_kern_numbers *k, ru_kern_fourier *f, int64_t *work)
{
    f->root = roots(lo, f->t, f->n, 1, f->n);
    f->turn = f->cols > 0 ? roots(lo, f->t, f->n, f->n / f->cols, f->cols) : NULL;
    *work = (k->fourier_work(f) + 63) / 64 * 64;
    return f->root != NULL && (f->cols == 0 || f->turn != NULL);
}

/* The chirp and the transform of its inverse, whose negative places stand at the end. */
static bool chirp_of(rui_low *lo, fourier_state *s)
{
    int64_t n = s->f.n, m = 1;
    while (m < 2 * n - 1) {
        m *= 2;
    }
    s->there = (ru_kern_fourier){.t = RU_F64,
                                 .n = m,
                                 .in = m,
                                 .have = n,
                                 .out = m,
                                 .inner = 1,
                                 .parts = 2,
                                 .out_parts = 2,
                                 .cols = cols_of(m, 1)};
    const int64_t pair = 2 * (int64_t)sizeof(double);
    bool room = tables_of(lo, s->k, &s->there, &s->work);
    s->chirp = rui_keep(lo, n * pair);
    s->image = rui_keep(lo, m * pair);
    double *inverse = rui_keep(lo, m * pair), *work = rui_keep(lo, s->work);
    if (!room || s->chirp == NULL || s->image == NULL || inverse == NULL || work == NULL) {
        return false;
    }
    memset(inverse, 0, (size_t)(m * pair));
    for (int64_t k = 0; k < n; k++) {
        double angle = 3.14159265358979323846 * (double)(k * k % (2 * n)) / (double)n;
        s->chirp[2 * k] = cos(angle);
        s->chirp[2 * k + 1] = -sin(angle);
        int64_t at[2] = {k, k == 0 ? 0 : m - k};
        for (int i = 0; i < 2; i++) {
            inverse[2 * at[i]] = cos(angle);
            inverse[2 * at[i] + 1] = sin(angle);
        }
    }
    ru_kern_fourier all = s->there;
    all.have = m;
    s->k->fourier(&all, inverse, s->image, 0, 1, work);
    s->back = all;
    s->back.inverse = true;
    s->work += 2 * m * pair;
    return true;
}

/* DFT(x, dft_length?, axis?) */
ru_status rui_lower_kern_fourier(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    fourier_state made = {0};
    if (!fourier_of(lo, n, &made)) {
        return RU_E_UNSUPPORTED;
    }
    fourier_state *s = rui_keep(lo, (int64_t)sizeof *s);
    bool two = (made.f.n & (made.f.n - 1)) == 0;
    bool room = two ? tables_of(lo, made.k, &made.f, &made.work) : chirp_of(lo, &made);
    if (s == NULL || !room) {
        return rui_done(lo);
    }
    *s = made;
    int64_t threads = s->lines > 1 ? (int64_t)rui_threads(lo) : 1; /* one line may be long */
    rui_buf bufs[3] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0]),
                       rui_scratch(lo, s->work * threads)};
    rui_emit(lo, &(rui_step){.kernel = two ? "kern fourier" : "kern chirp",
                             .fn = two ? fourier_run : chirp_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}
