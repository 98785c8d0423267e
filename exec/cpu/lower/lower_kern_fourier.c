/* DFT of a power of two on exec/cpu/kern/k_fourier.c; other lengths run on the reference. */
#include <math.h>

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    SIDES_MAX = 256, /* numbers: longer lines side by side leave L1 */
    COLS_LEAST = 8,  /* of a line that is a matrix */
    LENGTH_MAX = 1 << 24,
};

typedef struct fourier_state {
    const ru_kern_numbers *k;
    ru_kern_fourier f;
    int64_t lines, work; /* work: bytes of one thread */
} fourier_state;

/* bufs: x y work */
static void fourier_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                         void *own)
{
    const fourier_state *s = state;
    s->k->fourier(&s->f, bufs[0], bufs[1], begin, end, own);
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
    if (size < 2 || size > LENGTH_MAX || (size & (size - 1)) != 0) {
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
    int64_t cols = 1;
    while (cols * cols < size) {
        cols *= 2;
    }
    bool alone = size > SIDES_MAX || s->lines < RU_KERN_FOURIER_LINES;
    s->f.cols = alone && size / cols >= COLS_LEAST ? cols : 0;
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
    int64_t size = made.f.n, cols = made.f.cols;
    made.f.root = roots(lo, made.f.t, size, 1, size);
    made.f.turn = cols > 0 ? roots(lo, made.f.t, size, size / cols, cols) : NULL;
    if (s == NULL || made.f.root == NULL || (cols > 0 && made.f.turn == NULL)) {
        return rui_done(lo);
    }
    made.work = (made.k->fourier_work(&made.f) + 63) / 64 * 64;
    *s = made;
    rui_buf bufs[3] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0]),
                       rui_scratch(lo, s->work * (int64_t)rui_threads(lo))};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern fourier", .fn = fourier_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}
