/* Concat, Split, Slice and its gradient along one axis: chunks of memory copied, or no copy at all.
 *
 * Row-major memory before and after an axis is [outer][extent x inner]; the blocked order nChw16c
 * along its channels is the same with extents in whole blocks. So every operation here is, for each
 * outer index, one contiguous chunk per part. Along the outermost axis a part is a view. */
#include <string.h>

#include "exec/cpu/kern/rows.h"
#include "exec/cpu/low/low.h"

/* NEAR: bytes of the whole that are made before the next part is read on; they stay in L1 */
enum { PARTS_MAX = 4096, NEAR = 16384 };

typedef struct chunk_state {
    int64_t outer, whole_bytes; /* of one outer index of the joined tensor */
    const int64_t *part_bytes;  /* [parts] */
    const int64_t *at_bytes;    /* [parts] where each part starts in the joined one */
    uint32_t parts;
    bool join;         /* parts -> whole, else whole -> parts */
    bool zero;         /* join: clear the rest of the whole first */
    void *const *bufs; /* whole, then the parts */
} chunk_state;

static void chunk_part(void *arg, uint32_t thread, uint32_t threads)
{
    const chunk_state *s = arg;
    int64_t begin = 0;
    int64_t end = 0;
    ru_pool_split(s->outer, 1, thread, threads, &begin, &end);
    int64_t most = s->whole_bytes > 0 && s->whole_bytes < NEAR ? NEAR / s->whole_bytes : 1;
    for (int64_t i = begin, rows; i < end; i += rows) {
        rows = end - i < most ? end - i : most;
        char *whole = (char *)s->bufs[0] + i * s->whole_bytes;
        if (s->zero) {
            memset(whole, 0, (size_t)(rows * s->whole_bytes));
        }
        for (uint32_t k = 0; k < s->parts; k++) {
            char *part = s->bufs[1 + k], *at = whole + s->at_bytes[k];
            int64_t bytes = s->part_bytes[k];
            if (part == NULL) {
                continue;
            }
            part += i * bytes;
            if (s->join) {
                rui_rows_copy(at, s->whole_bytes, part, bytes, bytes, rows);
            } else {
                rui_rows_copy(part, bytes, at, s->whole_bytes, bytes, rows);
            }
        }
    }
}

/* Of few outer indices each thread has a stretch of the whole. */
static void stretch_part(void *arg, uint32_t thread, uint32_t threads)
{
    enum { PAGE = 4096 };
    const chunk_state *s = arg;
    int64_t begin = 0;
    int64_t end = 0;
    ru_pool_split(s->whole_bytes, PAGE, thread, threads, &begin, &end);
    for (int64_t i = 0; i < s->outer; i++) {
        char *whole = (char *)s->bufs[0] + i * s->whole_bytes;
        if (s->zero && begin < end) {
            memset(whole + begin, 0, (size_t)(end - begin));
        }
        for (uint32_t k = 0; k < s->parts; k++) {
            int64_t at = s->at_bytes[k], bytes = s->part_bytes[k];
            int64_t from = at > begin ? at : begin, to = at + bytes < end ? at + bytes : end;
            char *part = s->bufs[1 + k];
            if (part == NULL || from >= to) {
                continue;
            }
            part += i * bytes + from - at;
            memcpy(s->join ? whole + from : part, s->join ? part : whole + from,
                   (size_t)(to - from));
        }
    }
}

static ru_status chunk_run(void *state, void *const *bufs, const rui_run *run)
{
    chunk_state s = *(const chunk_state *)state;
    const bool all = s.join || s.parts > 1; /* else one slice, which may lie in one stretch */
    s.bufs = bufs;
    if (s.outer * s.whole_bytes < 65536) {
        chunk_part(&s, 0, 1);
    } else if (all && s.outer < 4 * (int64_t)ru_pool_threads(run->pool)) {
        ru_pool_run(run->pool, stretch_part, &s);
    } else {
        ru_pool_run(run->pool, chunk_part, &s);
    }
    return RU_OK;
}

/* -- what is cut where
 * ------------------------------------------------------------------------------ */

typedef struct cut {
    ru_value_id whole;
    const ru_value_id *parts; /* [n] */
    const int64_t *starts;    /* [n] along the axis */
    uint32_t n, axis;
    bool join, zero;
} cut;

static bool blocked_fits(rui_low *lo, const cut *c, ru_value_id v)
{
    const ru_type *t = &rui_graph(lo)->values[v.v].type;
    return v.v == 0 || (t->rank >= 3 && t->rank <= 5 && t->dims[1] % 16 == 0 &&
                        ru_type_count(t) > 0 && (c->axis == 1));
}

/* nChw16c when everything is cut at whole blocks and stands (or may stand) so. */
static bool blocked_wanted(rui_low *lo, const cut *c)
{
    bool some = false;
    for (uint32_t k = 0; k < c->n; k++) {
        if (!blocked_fits(lo, c, c->parts[k]) || c->starts[k] % 16 != 0) {
            return false;
        }
        some = some || (c->join && !rui_standing(lo, c->parts[k])->plain);
    }
    some = some || (!c->join && !rui_standing(lo, c->whole)->plain);
    return some && blocked_fits(lo, c, c->whole);
}

static const rui_layout *layout_for(rui_low *lo, ru_value_id v, bool blocked, ru_dtype dtype)
{
    static const dnnl_format_tag_t tags[] = {dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c};
    const ru_type *t = &rui_graph(lo)->values[v.v].type;
    if (!blocked) {
        return rui_plain_as(lo, t, dtype);
    }
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {0};
    memcpy(dims, t->dims, t->rank * sizeof dims[0]);
    if (rui_nn(lo)->memory_desc_init_by_tag(&md, (int)t->rank, dims, rui_dnnl_type(dtype),
                                            tags[t->rank - 3]) != dnnl_success) {
        return rui_plain_as(lo, t, dtype);
    }
    return rui_layout_md(lo, &md);
}

static int64_t product(const ru_type *t, uint32_t from, uint32_t to)
{
    int64_t n = 1;
    for (uint32_t d = from; d < to; d++) {
        n *= t->dims[d];
    }
    return n;
}

static ru_status emit_views(rui_low *lo, const cut *c, const rui_layout *whole, ru_dtype dtype)
{
    rui_buf from = rui_in(lo, c->whole, whole);
    const ru_type *t = &rui_graph(lo)->values[c->whole.v].type;
    int64_t row = product(t, c->axis + 1, t->rank) * ru_dtype_bytes(dtype);
    for (uint32_t k = 0; k < c->n; k++) {
        if (c->parts[k].v != 0) {
            rui_out_view(lo, c->parts[k], layout_for(lo, c->parts[k], false, dtype), from,
                         c->starts[k] * row);
        }
    }
    return rui_done(lo);
}

static ru_status lower_cut(rui_low *lo, const cut *c)
{
    const ru_graph *g = rui_graph(lo);
    const ru_type *t = &g->values[c->whole.v].type;
    ru_value_id lead = c->join ? c->parts[0] : c->whole;
    ru_dtype dtype = rui_standing(lo, lead)->type.dtype;
    bool blocked = blocked_wanted(lo, c);
    int64_t outer = product(t, 0, c->axis);
    const rui_layout *whole = layout_for(lo, c->whole, blocked, dtype);
    if (!c->join && outer == 1 && !blocked) {
        return emit_views(lo, c, whole, dtype);
    }
    chunk_state *s = rui_keep(lo, sizeof *s);
    int64_t *sizes = rui_keep(lo, 2 * (int64_t)c->n * (int64_t)sizeof *sizes);
    rui_buf *bufs = rui_keep(lo, (int64_t)(c->n + 1) * (int64_t)sizeof *bufs);
    if (s == NULL || sizes == NULL || bufs == NULL) {
        return rui_done(lo);
    }
    int64_t row = product(t, c->axis + 1, t->rank) * ru_dtype_bytes(dtype);
    for (uint32_t k = 0; k < c->n; k++) {
        ru_value_id v = c->parts[k];
        sizes[k] = v.v == 0 ? 0 : g->values[v.v].type.dims[c->axis] * row;
        sizes[c->n + k] = c->starts[k] * row;
        const rui_layout *l = v.v == 0 ? NULL : layout_for(lo, v, blocked, dtype);
        bufs[1 + k] = v.v == 0 ? (rui_buf){0} : c->join ? rui_in(lo, v, l) : (rui_buf){0};
    }
    bufs[0] = c->join ? rui_out(lo, c->whole, whole) : rui_in(lo, c->whole, whole);
    for (uint32_t k = 0; k < c->n && !c->join; k++) {
        ru_value_id v = c->parts[k];
        bufs[1 + k] = v.v == 0 ? (rui_buf){0} : rui_out(lo, v, layout_for(lo, v, blocked, dtype));
    }
    *s = (chunk_state){.outer = outer,
                       .whole_bytes = t->dims[c->axis] * row,
                       .part_bytes = sizes,
                       .at_bytes = sizes + c->n,
                       .parts = c->n,
                       .join = c->join,
                       .zero = c->zero};
    const rui_step step = {.kernel = c->join ? "join chunks" : "cut chunks",
                           .fn = chunk_run,
                           .state = s,
                           .bufs = bufs,
                           .n_bufs = c->n + 1};
    rui_emit(lo, &step);
    return rui_done(lo);
}

/* -- the ops
 * ----------------------------------------------------------------------------------------- */

static bool axis_of(int64_t axis, uint32_t rank, uint32_t *out)
{
    axis += axis < 0 ? (int64_t)rank : 0;
    *out = (uint32_t)axis;
    return axis >= 0 && axis < (int64_t)rank;
}

static ru_status lower_list(rui_low *lo, ru_value_id whole, const ru_value_id *parts, uint32_t n,
                            int64_t axis, bool join)
{
    const ru_graph *g = rui_graph(lo);
    const ru_type *t = &g->values[whole.v].type;
    cut c = {.whole = whole, .parts = parts, .n = n, .join = join};
    if (n == 0 || n > PARTS_MAX || ru_type_count(t) <= 0 || !axis_of(axis, t->rank, &c.axis)) {
        return RU_E_UNSUPPORTED;
    }
    int64_t *starts = rui_keep(lo, (int64_t)n * (int64_t)sizeof *starts);
    int64_t at = 0;
    for (uint32_t k = 0; k < n && starts != NULL; k++) {
        if (parts[k].v == 0 || ru_type_count(&g->values[parts[k].v].type) <= 0) {
            return RU_E_UNSUPPORTED;
        }
        starts[k] = at;
        at += g->values[parts[k].v].type.dims[c.axis];
    }
    c.starts = starts;
    return starts == NULL ? rui_done(lo) : lower_cut(lo, &c);
}

ru_status rui_lower_concat(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    return lower_list(lo, n->out[0], n->in, n->n_in, ru_node_int(n, RU_ATTR_axis, 0), true);
}

ru_status rui_lower_split(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    return lower_list(lo, n->in[0], n->out, n->n_out, ru_node_int(n, RU_ATTR_axis, 0), false);
}

/* Element k of a constant integer vector; false when it is not constant. */
static bool const_int(const ru_graph *g, ru_value_id v, uint32_t k, int64_t *out)
{
    const ru_value *c = &g->values[v.v];
    if (c->kind != RU_VALUE_CONST || c->data == NULL) {
        return false;
    }
    if (c->type.dtype == RU_I64) {
        *out = ((const int64_t *)c->data)[k];
    } else if (c->type.dtype == RU_I32) {
        *out = ((const int32_t *)c->data)[k];
    } else {
        return false;
    }
    return true;
}

/* Slice(x, starts, ends, axes?, steps?) and SliceGrad(dy, x_like, ...): one axis, step 1. */
ru_status rui_lower_slice(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_graph *g = rui_graph(lo);
    bool grad = n->op == RU_OP_SliceGrad;
    uint32_t first = grad ? 2 : 1;
    cut c = {.whole = grad ? n->out[0] : n->in[0], .n = 1, .join = grad, .zero = grad};
    ru_value_id small = grad ? n->in[0] : n->out[0];
    const ru_type *t = &g->values[c.whole.v].type;
    int64_t start = 0;
    int64_t axis = 0;
    int64_t step = 1;
    if (g->values[n->in[first].v].type.rank != 1 || g->values[n->in[first].v].type.dims[0] != 1 ||
        !const_int(g, n->in[first], 0, &start) ||
        (ru_node_has_in(n, first + 2) && !const_int(g, n->in[first + 2], 0, &axis)) ||
        (ru_node_has_in(n, first + 3) && !const_int(g, n->in[first + 3], 0, &step)) || step != 1 ||
        !axis_of(axis, t->rank, &c.axis) || ru_type_count(&g->values[small.v].type) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    int64_t extent = t->dims[c.axis];
    start += start < 0 ? extent : 0;
    start = start < 0 ? 0 : start > extent ? extent : start;
    if (start + g->values[small.v].type.dims[c.axis] > extent) {
        return RU_E_UNSUPPORTED;
    }
    c.parts = &small;
    c.starts = &start;
    return lower_cut(lo, &c);
}
