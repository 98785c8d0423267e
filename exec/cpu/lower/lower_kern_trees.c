/* Trees: the nodes are packed once, features that no tree asks for are left out. */
#include <string.h>

#include "exec/cpu/lower/lower_kern.h"

enum { TILE_BYTES = 1 << 16, TILE_MAX = 512 };

typedef struct trees_state {
    const ru_kern *k;
    ru_kern_trees t;
    int64_t rows, grain, work; /* work: bytes of one thread */
} trees_state;

static const void *const_of(const rui_low *lo, const ru_node *n, uint32_t k, int64_t *count)
{
    const ru_value *v = &rui_graph(lo)->values[n->in[k].v];
    *count = ru_type_count(&v->type);
    return v->kind == RU_VALUE_CONST ? v->data : NULL;
}

/* Numbers the features that nodes ask for: place[k] of node k, and t->used. */
static int32_t *features_number(rui_low *lo, ru_kern_trees *t, const int32_t *feature,
                                const int32_t *left, int64_t n)
{
    int32_t *place = rui_keep(lo, n * (int64_t)sizeof *place);
    int32_t *at = rui_keep(lo, t->features * (int64_t)sizeof *at); /* 1 + place; 0: not asked for */
    int32_t *used = rui_keep(lo, t->features * (int64_t)sizeof *used);
    uint8_t *nan_left = rui_keep(lo, n);
    if (place == NULL || at == NULL || used == NULL || nan_left == NULL) {
        return NULL;
    }
    for (int64_t k = 0; k < n; k++) {
        int32_t f = feature[k] < 0 ? -1 - feature[k] : feature[k];
        nan_left[k] = feature[k] < 0 || left[k] == k ? 1 : 0;
        if (left[k] == k) {
            continue; /* a leaf looks at any place */
        }
        if (at[f] == 0) {
            used[t->n_used++] = f;
            at[f] = (int32_t)t->n_used;
        }
        place[k] = at[f] - 1;
    }
    t->n_used = t->n_used == 0 ? 1 : t->n_used; /* what the leaves look at */
    t->used = used;
    t->nan_left = nan_left;
    return place;
}

/* Steps from each node to its farthest leaf; children stand behind their parents. */
static bool levels_count(rui_low *lo, ru_kern_trees *t, const int32_t *left, int64_t n)
{
    uint32_t *far = rui_keep(lo, (n + 1) * (int64_t)sizeof *far);
    uint32_t *levels = rui_keep(lo, t->n_trees * (int64_t)sizeof *levels);
    if (far == NULL || levels == NULL) {
        return false;
    }
    for (int64_t k = n; k-- > 0;) {
        if (left[k] > k) {
            uint32_t a = far[left[k]], b = far[left[k] + 1];
            far[k] = 1 + (a > b ? a : b);
        }
    }
    for (int64_t k = 0; k < t->n_trees; k++) {
        levels[k] = far[t->root[k]];
    }
    t->levels = levels;
    return true;
}

/* What each leaf adds when there is one output. */
static void only_sum(rui_low *lo, ru_kern_trees *t, int64_t n)
{
    int64_t bytes = t->wide ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    void *only = t->outputs == 1 && t->mode == RU_KERN_TREES_SUM ? rui_keep(lo, n * bytes) : NULL;
    for (int64_t k = 0; only != NULL && k < n; k++) {
        for (int32_t e = t->first[k]; e < t->first[k + 1]; e++) {
            if (t->wide) {
                ((double *)only)[k] += ((const double *)t->weight)[e];
            } else {
                ((float *)only)[k] += ((const float *)t->weight)[e];
            }
        }
    }
    t->only = only;
}

/* Has every leaf one weight for each output, in order? */
static bool is_dense(const ru_kern_trees *t, const int32_t *left, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        bool leaf = left[k] == k;
        if (t->first[k + 1] - t->first[k] != (leaf ? t->outputs : 0)) {
            return false;
        }
        for (int64_t o = 0; leaf && o < t->outputs; o++) {
            if (t->target[t->first[k] + o] != o) {
                return false;
            }
        }
    }
    return true;
}

static void mode_set(ru_kern_trees *t, const char *mode)
{
    t->mode = strcmp(mode, "min") == 0   ? RU_KERN_TREES_MIN
              : strcmp(mode, "max") == 0 ? RU_KERN_TREES_MAX
                                         : RU_KERN_TREES_SUM;
    t->average = strcmp(mode, "average") == 0;
}

static bool trees_make(rui_low *lo, const ru_node *node, trees_state *s)
{
    ru_kern_trees *t = &s->t;
    const ru_type *x = rui_type(lo, node->in[0]);
    int64_t n, count;
    t->wide = x->dtype == RU_F64;
    t->features = x->dims[1];
    t->root = const_of(lo, node, 1, &t->n_trees);
    const int32_t *feature = const_of(lo, node, 2, &n);
    const void *value = const_of(lo, node, 3, &n);
    const int32_t *left = const_of(lo, node, 4, &n);
    t->first = const_of(lo, node, 5, &count);
    t->target = const_of(lo, node, 6, &count);
    t->weight = const_of(lo, node, 7, &count);
    t->base = const_of(lo, node, 8, &t->outputs);
    mode_set(t, ru_node_str(node, RU_ATTR_mode, "sum"));
    t->dense = is_dense(t, left, n);
    int32_t *place = features_number(lo, t, feature, left, n);
    void *nodes = rui_keep(lo, n * s->k->trees_node_bytes(t) + 64);
    if (place == NULL || nodes == NULL || !levels_count(lo, t, left, n)) {
        return false;
    }
    only_sum(lo, t, n);
    s->k->trees_pack(t, value, place, left, n, nodes);
    int64_t steps = 0, row = (t->n_used + 1) * (t->wide ? 8 : 4);
    for (int64_t k = 0; k < t->n_trees; k++) {
        steps += t->levels[k] + 1;
    }
    t->tile = TILE_BYTES / row / RU_KERN_TREES_LANES * RU_KERN_TREES_LANES;
    t->tile = t->tile < RU_KERN_TREES_LANES ? RU_KERN_TREES_LANES
              : t->tile > TILE_MAX          ? TILE_MAX
                                            : t->tile;
    s->rows = x->dims[0];
    s->grain = (rui_kern_grain(steps) + RU_KERN_TREES_LANES - 1) / RU_KERN_TREES_LANES *
               RU_KERN_TREES_LANES;
    s->work = (s->k->trees_work(t) + 63) / 64 * 64;
    return true;
}

static void trees_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    const trees_state *s = state;
    s->k->trees(&s->t, bufs[0], bufs[1], begin, end, work);
}

/* bufs: x y work */
static ru_status trees_run(void *state, void *const *bufs, const rui_run *run)
{
    const trees_state *s = state;
    rui_kern_for_own(run, trees_part, s, bufs, s->rows, s->grain, bufs[2], s->work);
    return RU_OK;
}

ru_status rui_lower_kern_trees(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    if (ru_type_count(x) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    trees_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    s->k = ru_kern_best();
    if (!trees_make(lo, n, s)) {
        return rui_done(lo);
    }
    rui_buf bufs[3] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, x->dtype)),
                       rui_out_plain(lo, n->out[0]),
                       rui_scratch(lo, s->work * (int64_t)rui_threads(lo))};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern trees", .fn = trees_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}
