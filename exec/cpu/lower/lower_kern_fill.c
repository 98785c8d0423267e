/* Trilu, EyeLike and OneHot: rows that are partly filled. Any dtype that only moves. */
#include <string.h>

#include "exec/cpu/lower/lower_kern_whole.h"

static int64_t first_of(ru_dtype t, const void *data)
{
    int64_t v;
    rui_wholes_load(t, data, 1, &v);
    return v;
}

/* -- Trilu ---------------------------------------------------------------------------------------
 */

typedef struct tri_state {
    int64_t bytes, rows, cols, all; /* all: rows of all matrices */
    bool upper;
} tri_state;

/* bufs: x diagonal y */
static void tri_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const tri_state *s = state;
    int64_t diagonal = bufs[1] == NULL ? 0 : *(const int64_t *)bufs[1];
    diagonal = diagonal > s->cols ? s->cols : diagonal < -s->rows ? -s->rows : diagonal;
    for (int64_t r = begin; r < end; r++) {
        int64_t edge = r % s->rows + diagonal + (s->upper ? 0 : 1);
        edge = edge < 0 ? 0 : edge > s->cols ? s->cols : edge; /* columns before it go, or stay */
        int64_t from = s->upper ? edge : 0, to = s->upper ? s->cols : edge;
        const char *x = (const char *)bufs[0] + r * s->cols * s->bytes;
        char *y = (char *)bufs[2] + r * s->cols * s->bytes;
        if (x != y) {
            memcpy(y + from * s->bytes, x + from * s->bytes, (size_t)((to - from) * s->bytes));
        }
        memset(y, 0, (size_t)(from * s->bytes));
        memset(y + to * s->bytes, 0, (size_t)((s->cols - to) * s->bytes));
    }
}

static ru_status tri_run(void *state, void *const *bufs, const rui_run *run)
{
    const tri_state *s = state;
    rui_kern_for(run, tri_part, s, bufs, s->all, rui_kern_grain(s->cols));
    return RU_OK;
}

ru_status rui_lower_kern_trilu(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    if (x->rank < 2 || ru_type_count(x) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    tri_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (tri_state){.bytes = ru_dtype_bytes(x->dtype),
                     .rows = x->dims[x->rank - 2],
                     .cols = x->dims[x->rank - 1],
                     .all = rui_dims(x, 0, x->rank - 1),
                     .upper = ru_node_int(n, RU_ATTR_upper, 1) != 0};
    rui_buf from = rui_in_plain(lo, n->in[0]);
    rui_buf bufs[3] = {from, ru_node_has_in(n, 1) ? rui_in_plain(lo, n->in[1]) : (rui_buf){0},
                       rui_out_over(lo, n->out[0], rui_plain(lo, x), from)};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern trilu", .fn = tri_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* -- EyeLike -------------------------------------------------------------------------------------
 */

typedef struct eye_state {
    int64_t bytes, rows, cols, k;
    uint64_t one; /* as the type has it */
} eye_state;

/* bufs: y */
static void eye_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const eye_state *s = state;
    char *y = (char *)bufs[0];
    memset(y + begin * s->cols * s->bytes, 0, (size_t)((end - begin) * s->cols * s->bytes));
    for (int64_t r = begin; r < end; r++) {
        if (r + s->k >= 0 && r + s->k < s->cols) {
            memcpy(y + (r * s->cols + r + s->k) * s->bytes, &s->one, (size_t)s->bytes);
        }
    }
}

static ru_status eye_run(void *state, void *const *bufs, const rui_run *run)
{
    const eye_state *s = state;
    rui_kern_for(run, eye_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

static uint64_t one_of(ru_dtype t)
{
    return t == RU_F32   ? 0x3f800000u
           : t == RU_F64 ? 0x3ff0000000000000u
           : t == RU_F16 ? 0x3c00u
                         : 1u;
}

ru_status rui_lower_kern_eye(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *y = rui_type(lo, n->out[0]);
    int64_t k = ru_node_int(n, RU_ATTR_k, 0), bytes = ru_dtype_bytes(y->dtype);
    bool plain = y->dtype == RU_F32 || y->dtype == RU_F64 || y->dtype == RU_F16 ||
                 ru_dtype_is_int(y->dtype) || y->dtype == RU_BOOL;
    if (y->rank != 2 || ru_type_count(y) <= 0 || !plain || bytes > 8 || bytes < 1) {
        return RU_E_UNSUPPORTED;
    }
    k = k > y->dims[1] ? y->dims[1] : k < -y->dims[0] ? -y->dims[0] : k; /* beyond: no ones */
    eye_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (eye_state){bytes, y->dims[0], y->dims[1], k, one_of(y->dtype)};
    rui_buf bufs[1] = {rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern eye", .fn = eye_run, .state = s, .bufs = bufs, .n_bufs = 1});
    return rui_done(lo);
}

/* -- OneHot --------------------------------------------------------------------------------------
 */

enum { NEAR_BYTES = 8192 };

typedef struct hot_state {
    ru_dtype it, dt; /* of the indices and of depth */
    int64_t bytes, outer, dim, inner;
} hot_state;

static void put(char *y, int64_t i, const char *value, int64_t bytes)
{
    memcpy(y + i * bytes, value, (size_t)bytes);
}

/* n times the same, doubled while what there is stays in L1. */
static void put_all(char *y, int64_t n, const char *value, int64_t bytes)
{
    static const char zeros[8];
    const int64_t all = n * bytes;
    int64_t done = bytes;
    if (memcmp(value, zeros, (size_t)bytes) == 0) {
        memset(y, 0, (size_t)all);
        return;
    }
    put(y, 0, value, bytes);
    for (int64_t some; done < all; done += some) {
        const int64_t from = done < NEAR_BYTES ? done : NEAR_BYTES / bytes * bytes;
        some = from < all - done ? from : all - done;
        memcpy(y + done, y, (size_t)some);
    }
}

/* bufs: indices depth values y. Indices outside the line give off values alone. */
static void hot_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const hot_state *s = state;
    const char *off = bufs[2], *on = off + s->bytes;
    int64_t depth = first_of(s->dt, bufs[1]), index_bytes = ru_dtype_bytes(s->it);
    for (int64_t o = begin; o < end; o++) {
        char *y = (char *)bufs[3] + o * s->dim * s->inner * s->bytes;
        put_all(y, s->dim * s->inner, off, s->bytes);
        for (int64_t j = 0; j < s->inner; j++) {
            int64_t at = first_of(s->it, (const char *)bufs[0] + (o * s->inner + j) * index_bytes);
            at += at < 0 ? depth : 0;
            if (at >= 0 && at < s->dim) {
                put(y, at * s->inner + j, on, s->bytes);
            }
        }
    }
}

static ru_status hot_run(void *state, void *const *bufs, const rui_run *run)
{
    const hot_state *s = state;
    rui_kern_for(run, hot_part, s, bufs, s->outer, rui_kern_grain(s->dim * s->inner));
    return RU_OK;
}

ru_status rui_lower_kern_one_hot(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *y = rui_type(lo, n->out[0]), *index = rui_type(lo, n->in[0]);
    const ru_type *depth = rui_type(lo, n->in[1]);
    uint32_t axis = rui_axis(ru_node_int(n, RU_ATTR_axis, -1), y->rank);
    if (!rui_is_whole(index->dtype) || !rui_is_whole(depth->dtype) || axis >= y->rank ||
        ru_type_count(y) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    hot_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (hot_state){.it = index->dtype,
                     .dt = depth->dtype,
                     .bytes = ru_dtype_bytes(y->dtype),
                     .outer = rui_dims(y, 0, axis),
                     .dim = y->dims[axis],
                     .inner = rui_dims(y, axis + 1, y->rank)};
    rui_buf bufs[4] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       rui_in_plain(lo, n->in[2]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern one hot", .fn = hot_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}
