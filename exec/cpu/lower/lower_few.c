/* Convolutions of bytes by windows of few numbers: y [channels, places] of 64 places at a time,
 * whose windows are gathered before the weights of all channels pass (ru_kern_bytes). oneDNN
 * reorders the image, and its result would be read and written twice more for the zero point and
 * the order.
 *
 * One core (Zen 5), time by oneDNN over that of these: 2.9 of 2 channels to 140, 1x1,
 * steps of two, 60x9; 3.6 of 3 to 18, 1x1, 46x17; 1.8 of 2 to 8, 3x3, 92x23. */
#include "exec/cpu/lower/lower_few.h"

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/kern/side.h"

enum { AXES = 3 };

typedef struct places_state {
    const ru_kern_bytes *k;
    const int8_t *weights;         /* [groups * co][terms], zeros after the `deep` ones */
    const int32_t *sums;           /* [groups * co] of them */
    int64_t groups, ci, co, parts; /* channels of a group; images * groups */
    rui_cube g;
    int64_t deep, terms, pieces;
    int64_t at[RUI_FEW_TERMS]; /* what a tap adds to where a place begins */
    bool sign, zero;           /* x is i8; rows of sums are taken off */
} places_state;

enum { PL_Y, PL_X, PL_ZERO, PL_ROWS, PL_BUFS };

/* Places of a piece in one row of results. */
typedef struct places_row {
    int64_t at, n, a, b, e;
    int64_t from; /* where it begins, without padding */
} places_row;

/* Term k of a sum: its place in a window, and the channel. */
static int64_t tap_of(const places_state *s, int64_t k, int64_t tap[AXES])
{
    for (int d = AXES - 1; d >= 0; d--) {
        tap[d] = k % s->g.kernel[d];
        k /= s->g.kernel[d];
    }
    return k;
}

static int rows_of(const places_state *s, int64_t p0, int64_t p1, places_row *rows)
{
    int count = 0;
    for (int64_t p = p0, n; p < p1; p += n) {
        places_row *r = &rows[count++];
        *r = (places_row){.at = p - p0,
                          .a = p / s->g.out[2] / s->g.out[1],
                          .b = p / s->g.out[2] % s->g.out[1],
                          .e = p % s->g.out[2]};
        r->from = (r->a * s->g.stride[0] * s->g.in[1] + r->b * s->g.stride[1]) * s->g.in[2] +
                  r->e * s->g.stride[2];
        n = s->g.out[2] - r->e < p1 - p ? s->g.out[2] - r->e : p1 - p;
        r->n = n;
    }
    return count;
}

/* What the places of a row read by one tap of a channel x. */
static void tap_row(const places_state *s, const places_row *r, const uint8_t *x,
                    const int64_t tap[AXES], uint8_t *to)
{
    const int64_t z = r->a * s->g.stride[0] + tap[0], y = r->b * s->g.stride[1] + tap[1];
    const int64_t step = s->g.stride[2], first = r->e * step + tap[2];
    int64_t from = first < 0 ? (step - 1 - first) / step : 0;
    int64_t end = s->g.in[2] - first <= 0 ? 0 : (s->g.in[2] - first + step - 1) / step;
    end = end < r->n ? end : r->n;
    if (z < 0 || z >= s->g.in[0] || y < 0 || y >= s->g.in[1] || from >= end) {
        memset(to, 0, (size_t)r->n);
        return;
    }
    memset(to, 0, (size_t)from);
    s->k->line(x + (z * s->g.in[1] + y) * s->g.in[2] + first + from * step, step, end - from,
               to + from);
    memset(to + end, 0, (size_t)(r->n - end));
}

/* Windows of places p0 .. p1, at most a piece, to lines of them. */
static void lines_of(const places_state *s, const uint8_t *x, int64_t p0, int64_t p1, uint8_t *to)
{
    places_row rows[RU_KERN_BYTES_COLS];
    const int n = rows_of(s, p0, p1, rows);
    const int64_t image = s->g.in[0] * s->g.in[1] * s->g.in[2];
    for (int64_t k = 0; s->g.inside && k < s->deep; k++, to += RU_KERN_BYTES_COLS) {
        for (int r = 0; r < n; r++) {
            s->k->line(x + rows[r].from + s->at[k], s->g.stride[2], rows[r].n, to + rows[r].at);
        }
    }
    for (int64_t k = 0; !s->g.inside && k < s->deep; k++, to += RU_KERN_BYTES_COLS) {
        int64_t tap[AXES];
        const int64_t c = tap_of(s, k, tap);
        for (int d = 0; d < AXES; d++) {
            tap[d] = tap[d] * s->g.dilate[d] - s->g.pad[d];
        }
        for (int r = 0; r < n; r++) {
            tap_row(s, &rows[r], x + c * image, tap, to + rows[r].at);
        }
    }
}

static void places_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const places_state *s = state;
    uint8_t lines[RUI_FEW_TERMS * RU_KERN_BYTES_COLS], packed[RUI_FEW_TERMS * RU_KERN_BYTES_COLS];
    const uint8_t flip = s->sign ? 0x80 : 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t part = i / s->pieces, group = part % s->groups;
        const int64_t p0 = i % s->pieces * RU_KERN_BYTES_COLS, left = s->g.places - p0;
        const int64_t n = left < RU_KERN_BYTES_COLS ? left : RU_KERN_BYTES_COLS;
        const uint8_t *x =
            (const uint8_t *)bufs[PL_X] + part * s->ci * s->g.in[0] * s->g.in[1] * s->g.in[2];
        if (s->g.same) {
            s->k->pack(x + p0, s->g.places, s->deep, n, flip, false, packed, NULL);
        } else {
            lines_of(s, x, p0, p0 + n, lines);
            s->k->pack(lines, RU_KERN_BYTES_COLS, s->deep, n, flip, false, packed, NULL);
        }
        s->k->sums(
            &(ru_kern_bytes_sums){.a_sign = true,
                                  .terms = s->terms,
                                  .n = n,
                                  .a = (const uint8_t *)s->weights + group * s->co * s->terms,
                                  .c = packed,
                                  .rows = s->zero ? (const uint32_t *)bufs[PL_ROWS] + group * s->co
                                                  : NULL,
                                  .y = (uint32_t *)bufs[PL_Y] + part * s->co * s->g.places + p0,
                                  .a_step = s->terms,
                                  .y_step = s->g.places},
            s->co);
    }
}

static ru_status places_run(void *state, void *const *bufs, const rui_run *run)
{
    const places_state *s = state;
    const uint8_t *given = bufs[PL_ZERO];
    uint32_t zero = given == NULL ? 0 : given[0];
    zero = s->sign ? (uint32_t)(int8_t)zero + 128 : zero;
    for (int64_t j = 0; s->zero && j < s->groups * s->co; j++) {
        ((uint32_t *)bufs[PL_ROWS])[j] = zero * (uint32_t)s->sums[j];
    }
    rui_kern_for(run, places_part, s, bufs, s->parts * s->pieces,
                 rui_kern_grain(RU_KERN_BYTES_COLS * s->co));
    return RU_OK;
}

static void places_plan(const rui_window *w, places_state *s)
{
    *s = (places_state){.k = ru_kern_bytes_here(),
                        .groups = w->groups,
                        .ci = w->ci / w->groups,
                        .co = w->co / w->groups,
                        .parts = w->n * w->groups,
                        .g = rui_cube_of(w)};
    s->deep = s->ci * s->g.taps;
    for (int64_t k = 0; k < s->deep && k < RUI_FEW_TERMS; k++) {
        int64_t tap[AXES], c = tap_of(s, k, tap);
        s->at[k] =
            ((c * s->g.in[0] + tap[0] * s->g.dilate[0]) * s->g.in[1] + tap[1] * s->g.dilate[1]) *
                s->g.in[2] +
            tap[2] * s->g.dilate[2];
    }
    s->terms = (s->deep + 3) / 4 * 4;
    s->pieces = (s->g.places + RU_KERN_BYTES_COLS - 1) / RU_KERN_BYTES_COLS;
}

ru_status rui_lower_few_places(rui_low *lo, const ru_node *n, const rui_window *w,
                               const int8_t *from, bool zero)
{
    places_state made;
    places_plan(w, &made);
    if (made.k == NULL || made.terms > RUI_FEW_TERMS) {
        return RU_E_UNSUPPORTED;
    }
    places_state *s = rui_keep(lo, (int64_t)sizeof *s);
    int8_t *weights = rui_keep(lo, w->co * made.terms);
    int32_t *sums = rui_keep(lo, w->co * (int64_t)sizeof *sums);
    if (s == NULL || weights == NULL || sums == NULL) {
        return rui_done(lo);
    }
    *s = made;
    s->weights = weights;
    s->sums = sums;
    s->sign = rui_type(lo, n->in[0])->dtype == RU_I8;
    s->zero = s->sign || zero;
    for (int64_t o = 0; o < w->co; o++) {
        memcpy(weights + o * s->terms, from + o * s->deep, (size_t)s->deep);
    }
    ru_kern_numbers_best()->sum_rows(true, from, w->co, s->deep, sums);
    rui_buf bufs[PL_BUFS] = {
        [PL_Y] = rui_out_plain(lo, n->out[0]), [PL_X] = rui_in_plain(lo, n->in[0])};
    bufs[PL_ZERO] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[PL_ROWS] = rui_scratch(lo, s->zero ? w->co * 4 : 0);
    rui_emit(lo, &(rui_step){.kernel = "kern few bytes of windows",
                             .fn = places_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = PL_BUFS});
    return rui_done(lo);
}
