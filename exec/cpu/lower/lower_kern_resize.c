/* Resize and its gradient: nearest by tables of places, the others axis by axis as weighted sums.
 *
 * The tables are the reference's own. Leading axes that stay as they are make planes; each plane is
 * resized in the scratch of the thread that has it, the axis that shrinks most first. The gradient
 * is the same with the tables turned round. */
#include <string.h>

#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_kern_places.h"
#include "exec/cpu/ref/resize.h"

typedef struct resize_state {
    const ru_kern *k;
    ru_kern_taps taps[RU_RANK_MAX];
    uint32_t n_taps;
    int64_t planes, x_plane, y_plane, work; /* elements */
    uint32_t threads;
} resize_state;

/* bufs: x y work */
static void resize_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const resize_state *s = state;
    float *work[2] = {own, (float *)own + s->work};
    for (int64_t p = begin; p < end; p++) {
        const float *from = (const float *)bufs[0] + p * s->x_plane;
        for (uint32_t k = 0; k < s->n_taps; k++) {
            float *to = k + 1 == s->n_taps ? (float *)bufs[1] + p * s->y_plane : work[k % 2];
            s->k->taps(&s->taps[k], from, to);
            from = to;
        }
    }
}

static ru_status resize_run(void *state, void *const *bufs, const rui_run *run)
{
    const resize_state *s = state;
    rui_kern_for_own(run, resize_part, s, bufs, s->planes, 1, bufs[2],
                     2 * s->work * (int64_t)sizeof(float));
    return RU_OK;
}

/* Tables of one axis for the kernel; `back`: from outputs to inputs. */
static bool taps_of(rui_low *lo, const rui_resize_axis *a, bool back, ru_kern_taps *t)
{
    int64_t total = 0, n = back ? a->in : a->out;
    for (int64_t i = 0; i < a->out; i++) {
        total += a->n[i];
    }
    int64_t *start = rui_keep(lo, (n + 1) * (int64_t)sizeof *start);
    int64_t *at = rui_keep(lo, (n + 1) * (int64_t)sizeof *at);
    int32_t *index = rui_keep(lo, (total + 1) * (int64_t)sizeof *index);
    float *weight = rui_keep(lo, (total + 1) * (int64_t)sizeof *weight);
    if (start == NULL || at == NULL || index == NULL || weight == NULL) {
        return false;
    }
    for (int64_t i = 0; i < a->out; i++) {
        for (int64_t k = 0; k < a->n[i]; k++) {
            start[(back ? a->index[i * a->room + k] : i) + 1]++;
        }
    }
    t->pairs = true;
    for (int64_t i = 0; i < n; i++) {
        t->pairs = t->pairs && start[i + 1] == 2;
        start[i + 1] += start[i];
        at[i] = start[i];
    }
    for (int64_t i = 0; i < a->out; i++) {
        for (int64_t k = 0; k < a->n[i]; k++) {
            int64_t from = a->index[i * a->room + k], to = at[back ? from : i]++;
            index[to] = (int32_t)(back ? i : from);
            weight[to] = (float)a->weight[i * a->room + k];
        }
    }
    t->in = back ? a->out : a->in;
    t->out = n;
    t->start = start;
    t->index = index;
    t->weight = weight;
    return true;
}

static bool stays(const rui_resize_axis *a)
{
    bool same = a->in == a->out;
    for (int64_t i = 0; same && i < a->out; i++) {
        same = a->n[i] == 1 && a->index[i * a->room] == i && a->weight[i * a->room] == 1.0;
    }
    return same;
}

/* The tables, from the node's constants. RU_E_UNSUPPORTED when an input is not constant or elements
 * lie outside. */
static ru_status tables(rui_low *lo, const ru_node *n, const ru_type *small, const ru_type *large,
                        uint32_t k, rui_resize_axis *axes)
{
    const ru_graph *g = rui_graph(lo);
    ru_tensor in[5] = {{0}};
    for (uint32_t i = k; i < n->n_in; i++) {
        const ru_value *v = &g->values[n->in[i].v];
        if (n->in[i].v != 0 && (v->kind != RU_VALUE_CONST || v->data == NULL)) {
            return RU_E_UNSUPPORTED;
        }
        union {
            const void *in;
            void *out;
        } data = {.in = n->in[i].v == 0 ? NULL : v->data}; /* the tables only read */
        in[i] = (ru_tensor){.data = data.out, .type = v->type};
    }
    ru_ref_call c = {.node = n, .in = in, .scratch = lo->arena};
    if (rui_resize_make(&c, small, large, k, axes, NULL) != RU_OK) {
        return RU_E_UNSUPPORTED;
    }
    for (uint32_t d = 0; d < small->rank; d++) {
        for (int64_t i = 0; i < axes[d].out; i++) {
            if (axes[d].outside[i] || axes[d].n[i] == 0) {
                return RU_E_UNSUPPORTED;
            }
        }
    }
    return RU_OK;
}

/* The passes, from the axis that shrinks most to the one that grows most. An element along the last
 * axis costs about eight along others, which are whole vectors: a last axis of ratio r goes before
 * others of more than 8 r / (1 + 7 r). */
static bool plan_passes(rui_low *lo, const rui_resize_axis *axes, uint32_t rank, bool back,
                        resize_state *s)
{
    int64_t dims[RU_RANK_MAX];
    bool done[RU_RANK_MAX];
    uint32_t first = rank;
    for (uint32_t d = rank; d-- > 0;) {
        dims[d] = back ? axes[d].out : axes[d].in;
        done[d] = stays(&axes[d]);
        first = done[d] ? first : d;
    }
    s->planes = s->x_plane = 1;
    for (uint32_t d = 0; d < rank; d++) {
        *(d < first ? &s->planes : &s->x_plane) *= dims[d];
    }
    for (;;) {
        uint32_t best = rank;
        double ratio = 0.0;
        for (uint32_t d = rank; d-- > first;) {
            double r = (double)axes[d].out / (double)axes[d].in;
            r = back ? 1.0 / r : r;
            r = d == rank - 1 ? 8.0 * r / (1.0 + 7.0 * r) : r;
            if (!done[d] && (best == rank || r < ratio)) {
                best = d;
                ratio = r;
            }
        }
        if (best == rank) {
            break;
        }
        ru_kern_taps *t = &s->taps[s->n_taps++];
        if (!taps_of(lo, &axes[best], back, t)) {
            return false;
        }
        t->outer = t->inner = 1;
        for (uint32_t d = first; d < rank; d++) {
            *(d < best ? &t->outer : &t->inner) *= d == best ? 1 : dims[d];
        }
        dims[best] = t->out;
        done[best] = true;
        s->y_plane = t->outer * t->out * t->inner;
        s->work = s->y_plane > s->work ? s->y_plane : s->work;
    }
    return true;
}

static ru_status lower_nearest(rui_low *lo, const ru_node *n, const rui_resize_axis *axes)
{
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    rui_places p;
    if (!rui_places_new(lo, &p, x, y)) {
        return rui_done(lo);
    }
    for (uint32_t d = 0; d < y->rank; d++) {
        for (int64_t i = 0; i < y->dims[d]; i++) {
            p.from[d][i] = axes[d].index[i * axes[d].room];
        }
    }
    return rui_places_emit(lo, &p, n->in[0], (ru_value_id){0}, n->out[0], "kern resize nearest");
}

/* Resize(x, roi?, scales?, sizes?) and ResizeGrad(dy, x_like, roi?, scales?, sizes?) */
ru_status rui_lower_kern_resize(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool back = n->op == RU_OP_ResizeGrad;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    rui_resize_axis axes[RU_RANK_MAX];
    if (ru_type_count(x) <= 0 || ru_type_count(y) <= 0 || x->rank == 0 || x->rank != y->rank) {
        return RU_E_UNSUPPORTED;
    }
    RU_TRY(tables(lo, n, back ? y : x, back ? x : y, back ? 2 : 1, axes));
    bool nearest = strcmp(ru_node_str(n, RU_ATTR_mode, "nearest"), "nearest") == 0;
    int64_t bytes = ru_dtype_bytes(x->dtype);
    if (nearest && !back && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) {
        return lower_nearest(lo, n, axes);
    }
    resize_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (x->dtype != RU_F32) {
        return RU_E_UNSUPPORTED;
    }
    if (s == NULL || !plan_passes(lo, axes, x->rank, back, s)) {
        return rui_done(lo);
    }
    rui_buf in = rui_in(lo, n->in[0], rui_plain_as(lo, x, RU_F32));
    if (s->n_taps == 0) {
        rui_out_view(lo, n->out[0], rui_plain_as(lo, y, RU_F32), in, 0);
        return rui_done(lo);
    }
    s->k = ru_kern_best();
    s->threads = rui_threads(lo);
    rui_buf bufs[3] = {in, rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32)),
                       rui_scratch(lo, 2 * s->work * (int64_t)s->threads * 4)};
    rui_emit(lo, &(rui_step){.kernel = back ? "kern resize grad" : "kern resize",
                             .fn = resize_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}
