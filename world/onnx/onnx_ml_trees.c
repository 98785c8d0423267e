/* Tree ensembles of ai.onnx.ml as the op Trees.
 *
 * Every comparison becomes "left when x <= t", so that one kernel knows one kind of node:
 *
 *   x < t        x <= the number before t          x >= t    x < t with its sides changed
 *   x == t       x <= t, and then not x <= the number before t
 *   x in {a, b}  x == a, else x == b
 *
 * What a missing number does is written out: NaN goes left or right at each node. Nodes are placed
 * so that the two children of a node stand side by side, behind it. A node with several parents
 * (an exporter that merged equal parts) stands once, and its other places jump to it: a node that
 * every number leaves to the left. */
#include <math.h>
#include <string.h>

#include "world/onnx/onnx_ml.h"

enum { LEAF_FEATURE = -1 };

typedef enum mode { LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF } mode;

/* A node as the model has it; children are indexes of this array. */
typedef struct source {
    mode mode;
    int64_t feature;
    double value; /* MEMBER: index of the first of its numbers */
    bool missing; /* NaN goes to the true side */
    int64_t yes, no;
    uint32_t first, n; /* LEAF: its entries */
} source;

/* A node of one kind of comparison; the first of them stand for the sources. */
typedef struct step {
    int64_t feature;
    double value;
    bool nan_left, placed;
    uint32_t left, right;
    uint32_t first, n;
    uint32_t parents, seen; /* seen: of them, placed */
} step;

/* What an operator says, before it becomes the arrays of the op. */
typedef struct forest {
    rui_ml *m;
    bool wide;   /* compares doubles */
    source *src; /* [n_src] */
    uint32_t n_src;
    uint32_t *roots; /* [n_roots] in src */
    uint32_t n_roots;
    int64_t *target; /* [n_entries] of all leaves, in the order of source.first */
    double *weight;
    uint32_t n_entries;
    const double *members; /* [n_members] sets, each ended by NaN */
    uint32_t n_members;
    step *steps; /* [n_steps] */
    uint32_t n_steps, cap_steps;
    const double *base; /* [n_base] what every output begins with */
    uint32_t n_base;
    int64_t n_targets; /* outputs */
    const char *sums;  /* "sum", "average", "min", "max" */
} forest;

/* -- one kind of comparison -------------------------------------------------------------------- */

static uint32_t step_new(forest *f, const step *s)
{
    RU_CHECK(f->n_steps < f->cap_steps);
    f->steps[f->n_steps] = *s;
    return f->n_steps++;
}

/* The number next to `value` towards -infinity; it is not -infinity. */
static double before(double value, bool wide)
{
    float near = (float)value;
    if (wide) {
        uint64_t u;
        memcpy(&u, &value, sizeof u);
        u = value > 0 ? u - 1 : value < 0 ? u + 1 : UINT64_C(0x8000000000000001);
        memcpy(&value, &u, sizeof u);
        return value;
    }
    uint32_t u;
    memcpy(&u, &near, sizeof u);
    u = near > 0 ? u - 1 : near < 0 ? u + 1 : UINT32_C(0x80000001);
    memcpy(&near, &u, sizeof u);
    return (double)near;
}

/* x <= value, or x < value when `less`. */
static double bound(const forest *f, double value, bool less)
{
    if (less && value == -(double)INFINITY) {
        return (double)NAN; /* nothing is less: never left */
    }
    return less ? before(value, f->wide) : value;
}

/* x == value: yes, else no. */
static void equal(forest *f, uint32_t at, double value, bool nan_yes, int64_t yes, int64_t no)
{
    step inner = {.feature = f->steps[at].feature,
                  .value = bound(f, value, true),
                  .left = (uint32_t)no,
                  .right = (uint32_t)yes};
    uint32_t k = step_new(f, &inner);
    step *s = &f->steps[at];
    s->value = value;
    s->nan_left = nan_yes;
    s->left = k;
    s->right = (uint32_t)no;
}

/* One number of the set after the other: the next is asked where this one says no. */
static void member(forest *f, uint32_t at, const source *n)
{
    int64_t k = (int64_t)n->value;
    while (k + 1 < f->n_members && !isnan(f->members[k + 1])) {
        uint32_t more = step_new(f, &(step){.feature = n->feature});
        equal(f, at, f->members[k++], n->missing, n->yes, more);
        at = more;
    }
    equal(f, at, f->members[k], n->missing, n->yes, n->no);
}

static void convert(forest *f, uint32_t at)
{
    const source *n = &f->src[at];
    step *s = &f->steps[at];
    bool swap = n->mode == GT || n->mode == GTE;
    switch (n->mode) {
    case LEQ:
    case LT:
    case GT:
    case GTE:
        s->value = bound(f, n->value, n->mode == LT || n->mode == GTE);
        s->nan_left = n->missing != swap;
        s->left = (uint32_t)(swap ? n->no : n->yes);
        s->right = (uint32_t)(swap ? n->yes : n->no);
        break;
    case EQ:
        equal(f, at, n->value, n->missing, n->yes, n->no);
        break;
    case NEQ:
        equal(f, at, n->value, false, n->no, n->yes);
        break;
    case MEMBER:
        member(f, at, n);
        break;
    case LEAF:
        break;
    }
}

static void steps_make(forest *f)
{
    f->cap_steps = 2 * (f->n_src + f->n_members) + 1;
    f->steps = rui_ml_alloc(f->m, f->cap_steps * (int64_t)sizeof *f->steps);
    for (uint32_t k = 0; k < f->n_src && f->steps != NULL; k++) {
        const source *n = &f->src[k];
        step_new(f, &(step){.feature = n->mode == LEAF ? LEAF_FEATURE : n->feature,
                            .first = n->first,
                            .n = n->n});
    }
    for (uint32_t k = 0; k < f->n_src && f->steps != NULL; k++) {
        convert(f, k);
    }
}

/* -- placing ----------------------------------------------------------------------------------- */

/* The arrays of the op; value and weight are of the forest's dtype. */
typedef struct placed {
    int32_t *feature, *left, *first, *root, *target;
    void *value, *weight;
    uint32_t *who; /* [n] the step that stands there */
    bool *jump;    /* [n] it stands elsewhere: jump there */
    uint32_t n;
} placed;

static void number_put(const forest *f, void *into, uint32_t at, double x)
{
    if (f->wide) {
        ((double *)into)[at] = x;
    } else {
        ((float *)into)[at] = (float)x;
    }
}

/* Reached from a root: count the parents of each step. Gives the number of steps reached. */
static uint32_t parents_count(forest *f)
{
    uint32_t n = 0, reached = 0;
    uint32_t *stack = rui_ml_alloc(f->m, f->n_steps * (int64_t)sizeof *stack);
    for (uint32_t r = 0; r < f->n_roots && stack != NULL; r++) {
        if (f->steps[f->roots[r]].parents++ == 0) {
            stack[n++] = f->roots[r];
        }
    }
    for (; n > 0; reached++) {
        const step *s = &f->steps[stack[--n]];
        for (uint32_t side = 0; s->feature != LEAF_FEATURE && side < 2; side++) {
            uint32_t child = side == 0 ? s->left : s->right;
            if (f->steps[child].parents++ == 0) {
                stack[n++] = child;
            }
        }
    }
    return reached;
}

static bool placed_alloc(const forest *f, placed *p)
{
    int64_t n = 3 * (int64_t)f->n_steps + f->n_roots + 1, i4 = (int64_t)sizeof(int32_t);
    p->feature = rui_ml_alloc(f->m, n * i4);
    p->left = rui_ml_alloc(f->m, n * i4);
    p->first = rui_ml_alloc(f->m, (n + 1) * i4);
    p->root = rui_ml_alloc(f->m, (int64_t)f->n_roots * i4);
    p->value = rui_ml_alloc(f->m, n * (int64_t)sizeof(double));
    p->who = rui_ml_alloc(f->m, n * i4);
    p->jump = rui_ml_alloc(f->m, n);
    return rui_ml_ok(f->m);
}

/* A place for one parent's step k. A leaf is copied; what has several parents stands behind the
 * last of them. */
static void place_child(forest *f, placed *p, uint32_t at, uint32_t k, uint32_t *stand)
{
    step *s = &f->steps[k];
    bool own = s->parents == 1 || s->feature == LEAF_FEATURE;
    p->who[at] = k;
    p->jump[at] = !own;
    s->seen++;
    if (!own && s->seen == s->parents) {
        stand[k] = p->n;
        p->who[p->n++] = k;
    }
    s->placed = s->seen == s->parents;
}

/* Steps are taken in the order of their places. */
static void place_all(forest *f, placed *p)
{
    uint32_t reached = parents_count(f), done = 0;
    uint32_t *stand = rui_ml_alloc(f->m, f->n_steps * (int64_t)sizeof *stand);
    if (stand == NULL || !placed_alloc(f, p)) {
        return;
    }
    for (uint32_t r = 0; r < f->n_roots; r++) {
        p->root[r] = (int32_t)p->n;
        p->n++;
    }
    for (uint32_t r = 0; r < f->n_roots; r++) {
        place_child(f, p, (uint32_t)p->root[r], f->roots[r], stand);
    }
    for (uint32_t at = 0; at < p->n; at++) {
        const step *s = &f->steps[p->who[at]];
        if (!p->jump[at] && s->feature != LEAF_FEATURE) {
            p->left[at] = (int32_t)p->n;
            p->n += 2;
            place_child(f, p, p->n - 2, s->left, stand);
            place_child(f, p, (uint32_t)p->left[at] + 1, s->right, stand);
        }
    }
    for (uint32_t k = 0; k < f->n_steps; k++) {
        done += f->steps[k].placed ? 1 : 0;
    }
    if (done != reached) {
        rui_ml_fail(f->m, RU_E_DATA, "the nodes of a tree form a cycle");
    }
    for (uint32_t at = 0; at < p->n && rui_ml_ok(f->m); at++) {
        const step *s = &f->steps[p->who[at]];
        bool leaf = s->feature == LEAF_FEATURE, always = leaf || p->jump[at];
        p->left[at] = leaf ? (int32_t)at : p->jump[at] ? (int32_t)stand[p->who[at]] : p->left[at];
        int32_t feature = always ? 0 : (int32_t)s->feature;
        p->feature[at] = always || s->nan_left ? -1 - feature : feature;
        number_put(f, p->value, at, always ? (double)INFINITY : s->value);
        p->first[at + 1] = p->first[at] + (int32_t)(leaf ? s->n : 0);
    }
}

static void entries_place(forest *f, placed *p)
{
    int64_t n = rui_ml_ok(f->m) ? p->first[p->n] : 0;
    p->target = rui_ml_alloc(f->m, (n + 1) * (int64_t)sizeof *p->target);
    p->weight = rui_ml_alloc(f->m, (n + 1) * (int64_t)sizeof(double));
    for (uint32_t at = 0; rui_ml_ok(f->m) && at < p->n; at++) {
        const step *s = &f->steps[p->who[at]];
        for (uint32_t e = 0; s->feature == LEAF_FEATURE && e < s->n; e++) {
            uint32_t to = (uint32_t)p->first[at] + e;
            p->target[to] = (int32_t)f->target[s->first + e];
            number_put(f, p->weight, to, f->weight[s->first + e]);
        }
    }
}

/* -- the op ------------------------------------------------------------------------------------ */

static ru_value_id array(const forest *f, ru_dtype dtype, const void *data, int64_t n)
{
    ru_type t = {.dtype = dtype, .rank = 1, .dims = {n}};
    ru_value_id out = {0};
    if (rui_ml_ok(f->m)) {
        f->m->st = rui_lift_const(f->m->l, &t, data, &out, f->m->err);
    }
    return out;
}

/* The sums of `x` [N, features], [N, n_targets]. */
static ru_value_id forest_node(forest *f, ru_value_id x)
{
    placed p = {0};
    ru_dtype real = f->wide ? RU_F64 : RU_F32;
    if (rui_ml_ok(f->m)) {
        steps_make(f);
    }
    if (rui_ml_ok(f->m)) {
        place_all(f, &p);
        entries_place(f, &p);
    }
    void *base = rui_ml_alloc(f->m, f->n_targets * (int64_t)sizeof(double));
    for (uint32_t k = 0; base != NULL && k < f->n_base; k++) {
        number_put(f, base, k, f->base[k]);
    }
    if (!rui_ml_ok(f->m)) {
        return x;
    }
    int64_t entries = p.first[p.n];
    ru_value_id in[9] = {x,
                         array(f, RU_I32, p.root, f->n_roots),
                         array(f, RU_I32, p.feature, p.n),
                         array(f, real, p.value, p.n),
                         array(f, RU_I32, p.left, p.n),
                         array(f, RU_I32, p.first, (int64_t)p.n + 1),
                         array(f, RU_I32, p.target, entries),
                         array(f, real, p.weight, entries),
                         array(f, real, base, f->n_targets)};
    ru_attr how = {.key = RU_ATTR_mode, .kind = RU_ATTR_STR, .n = 1, .u.s = f->sums};
    return rui_ml_node(f->m, RU_OP_Trees, in, 9, &how, 1);
}

/* -- versions 1 and 3 -------------------------------------------------------------------------- */

/* Indexes of nodes by tree and node number. */
typedef struct lookup {
    const int64_t *tree, *node; /* [n] */
    uint32_t *slots;            /* [cap] 1 + index */
    uint32_t cap;               /* power of two */
} lookup;

static uint32_t *slot_of(const lookup *t, int64_t tree, int64_t node)
{
    uint64_t h = ((uint64_t)tree * 0x9E3779B97F4A7C15U + (uint64_t)node) * 0xBF58476D1CE4E5B9U;
    uint32_t k = (uint32_t)(h >> 32) & (t->cap - 1);
    while (t->slots[k] != 0 &&
           (t->tree[t->slots[k] - 1] != tree || t->node[t->slots[k] - 1] != node)) {
        k = (k + 1) & (t->cap - 1);
    }
    return &t->slots[k];
}

static bool lookup_make(forest *f, lookup *t)
{
    for (t->cap = 16; t->cap < 2 * f->n_src; t->cap *= 2) {
    }
    t->slots = rui_ml_alloc(f->m, t->cap * (int64_t)sizeof *t->slots);
    for (uint32_t k = 0; t->slots != NULL && k < f->n_src; k++) {
        uint32_t *slot = slot_of(t, t->tree[k], t->node[k]);
        if (*slot != 0) {
            rui_ml_fail(f->m, RU_E_DATA, "tree %lld has two nodes %lld", (long long)t->tree[k],
                        (long long)t->node[k]);
        }
        *slot = k + 1;
    }
    return rui_ml_ok(f->m);
}

/* Integers, `n` of them (or none when they may be absent). */
static const int64_t *ints_of(forest *f, const char *name, uint32_t n, bool may)
{
    uint32_t have;
    const int64_t *v = rui_ml_ints(f->m, name, &have);
    if (have != n && !(may && have == 0)) {
        rui_ml_fail(f->m, RU_E_DATA, "%s has %u elements, %u were expected", name, have, n);
    }
    return v;
}

/* Numbers of the attribute `name`, or of the tensor name_as_tensor, which may be of doubles. */
static const double *numbers_of(forest *f, const char *name, const char *tensor, uint32_t *n)
{
    ru_dtype dtype;
    const double *v = rui_ml_floats(f->m, name, n);
    uint32_t more;
    const double *w = rui_ml_tensor(f->m, tensor, &more, &dtype);
    if (v != NULL && w != NULL) {
        rui_ml_fail(f->m, RU_E_DATA, "it has both %s and %s", name, tensor);
    }
    f->wide = f->wide || (w != NULL && dtype == RU_F64);
    *n = w != NULL ? more : *n;
    return w != NULL ? w : v;
}

static mode mode_of(forest *f, const char *word)
{
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        if (k != MEMBER && strcmp(names[k], word) == 0) {
            return (mode)k;
        }
    }
    rui_ml_fail(f->m, RU_E_DATA, "nodes_modes has '%s', which is no mode", word);
    return LEAF;
}

static int64_t child_of(forest *f, const lookup *t, int64_t tree, int64_t node, int64_t child)
{
    uint32_t at = *slot_of(t, tree, child);
    if (at == 0) {
        rui_ml_fail(f->m, RU_E_DATA, "node %lld of tree %lld names node %lld, which is not there",
                    (long long)node, (long long)tree, (long long)child);
        return 0;
    }
    return at - 1;
}

static void source_check(forest *f, const source *n, int64_t features, bool value)
{
    if (n->feature < 0 || n->feature >= INT32_MAX || (features >= 0 && n->feature >= features)) {
        rui_ml_fail(f->m, RU_E_DATA, "a node compares feature %lld, but its input has %lld",
                    (long long)n->feature, (long long)features);
    }
    if (value && isnan(n->value)) {
        rui_ml_fail(f->m, RU_E_DATA, "a node compares with NaN");
    }
}

/* The first node of each tree is its root. */
static void nodes_take(forest *f, lookup *t, int64_t features)
{
    uint32_t n, n_modes, n_values;
    t->tree = rui_ml_ints(f->m, "nodes_treeids", &n);
    f->n_src = n;
    t->node = ints_of(f, "nodes_nodeids", n, false);
    const int64_t *feature = ints_of(f, "nodes_featureids", n, false);
    const int64_t *yes = ints_of(f, "nodes_truenodeids", n, false);
    const int64_t *no = ints_of(f, "nodes_falsenodeids", n, false);
    const int64_t *missing = ints_of(f, "nodes_missing_value_tracks_true", n, true);
    const char *const *modes = rui_ml_strs(f->m, "nodes_modes", &n_modes);
    const double *values = numbers_of(f, "nodes_values", "nodes_values_as_tensor", &n_values);
    rui_lift_take(f->m->l, "nodes_hitrates");
    rui_lift_take(f->m->l, "nodes_hitrates_as_tensor");
    if (n == 0 || n_modes != n || n_values != n || n > 1u << 27) {
        rui_ml_fail(f->m, RU_E_DATA, "it has %u nodes, %u modes and %u values", n, n_modes,
                    n_values);
    }
    f->src = rui_ml_alloc(f->m, n * (int64_t)sizeof *f->src);
    f->roots = rui_ml_alloc(f->m, n * (int64_t)sizeof *f->roots);
    if (!rui_ml_ok(f->m) || !lookup_make(f, t)) {
        return;
    }
    for (uint32_t k = 0; k < n && rui_ml_ok(f->m); k++) {
        source *s = &f->src[k];
        *s = (source){.mode = mode_of(f, modes[k]),
                      .feature = feature[k],
                      .value = f->wide ? values[k] : (double)(float)values[k],
                      .missing = missing != NULL && missing[k] != 0};
        if (s->mode != LEAF) {
            s->yes = child_of(f, t, t->tree[k], t->node[k], yes[k]);
            s->no = child_of(f, t, t->tree[k], t->node[k], no[k]);
            source_check(f, s, features, true);
        }
        if (k == 0 || t->tree[k] != t->tree[k - 1]) {
            f->roots[f->n_roots++] = k;
        }
    }
}

/* Entries by leaf: counted, then put. */
static void entries_take(forest *f, const lookup *t, const char *const names[5])
{
    uint32_t n, n_weights;
    const int64_t *tree = rui_ml_ints(f->m, names[0], &n);
    const int64_t *node = ints_of(f, names[1], n, false);
    const int64_t *id = ints_of(f, names[2], n, false);
    const double *weight = numbers_of(f, names[3], names[4], &n_weights);
    if (n_weights != n) {
        rui_ml_fail(f->m, RU_E_DATA, "%s has %u elements, %u were expected", names[3], n_weights,
                    n);
    }
    uint32_t *leaf = rui_ml_alloc(f->m, n * (int64_t)sizeof *leaf);
    f->target = rui_ml_alloc(f->m, n * (int64_t)sizeof *f->target);
    f->weight = rui_ml_alloc(f->m, n * (int64_t)sizeof *f->weight);
    f->n_entries = n;
    for (uint32_t k = 0; k < n && rui_ml_ok(f->m); k++) {
        uint32_t at = *slot_of(t, tree[k], node[k]);
        if (at == 0 || f->src[at - 1].mode != LEAF) {
            rui_ml_fail(f->m, RU_E_DATA, "%s and %s name node %lld of tree %lld, which is no leaf",
                        names[0], names[1], (long long)node[k], (long long)tree[k]);
        } else {
            leaf[k] = at - 1;
            f->src[at - 1].n++;
        }
    }
    uint32_t first = 0;
    for (uint32_t k = 0; k < f->n_src && rui_ml_ok(f->m); k++) {
        f->src[k].first = first;
        first += f->src[k].n;
        f->src[k].n = 0;
    }
    for (uint32_t k = 0; k < n && rui_ml_ok(f->m); k++) {
        source *s = &f->src[leaf[k]];
        f->target[s->first + s->n] = id[k];
        f->weight[s->first + s->n++] = weight[k];
    }
}

static void targets_check(forest *f, int64_t n_base)
{
    for (uint32_t k = 0; k < f->n_entries && rui_ml_ok(f->m); k++) {
        if (f->target[k] < 0 || f->target[k] >= f->n_targets || isnan(f->weight[k])) {
            rui_ml_fail(f->m, RU_E_DATA, "a leaf adds %g to output %lld; it has outputs 0 to %lld",
                        f->weight[k], (long long)f->target[k], (long long)f->n_targets - 1);
        }
    }
    if (f->n_base != 0 && f->n_base != n_base) {
        rui_ml_fail(f->m, RU_E_DATA, "it has %u base values for %lld outputs", f->n_base,
                    (long long)f->n_targets);
    }
}

static void targets_count(forest *f, int64_t n)
{
    if (n < 1 || n > INT32_MAX) {
        rui_ml_fail(f->m, RU_E_DATA, "it has %lld outputs", (long long)n);
    }
    f->n_targets = n;
}

/* Of one output, the first entry of a leaf counts. ONNX Runtime does so, and exporters of leaves'
 * numbers rely on it. */
static void first_entries(forest *f)
{
    for (uint32_t k = 0; f->n_targets == 1 && f->src != NULL && k < f->n_src; k++) {
        f->src[k].n = f->src[k].n > 1 ? 1 : f->src[k].n;
    }
}

static void regressor(rui_ml *m)
{
    static const char *const names[] = {"target_treeids", "target_nodeids", "target_ids",
                                        "target_weights", "target_weights_as_tensor"};
    static const char *const how[][2] = {
        {"SUM", "sum"}, {"AVERAGE", "average"}, {"MIN", "min"}, {"MAX", "max"}};
    const ru_type *in = rui_lift_type(m->l, 0);
    forest f = {.m = m, .wide = in != NULL && in->dtype == RU_F64};
    lookup t = {0};
    int64_t features;
    ru_value_id x = rui_ml_rows(m, true, &features);
    nodes_take(&f, &t, features);
    entries_take(&f, &t, names);
    targets_count(&f, rui_ml_int(m, "n_targets", 1));
    f.base = numbers_of(&f, "base_values", "base_values_as_tensor", &f.n_base);
    targets_check(&f, f.n_targets);
    first_entries(&f);
    const char *sums = rui_ml_str(m, "aggregate_function", "SUM");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(how); k++) {
        f.sums = strcmp(how[k][0], sums) == 0 ? how[k][1] : f.sums;
    }
    if (f.sums == NULL) {
        rui_ml_fail(m, RU_E_DATA, "aggregate_function '%s' is none of SUM, AVERAGE, MIN, MAX",
                    sums);
    }
    rui_ml_post post = rui_ml_post_take(m);
    ru_value_id y = forest_node(&f, f.wide ? rui_ml_cast(m, x, RU_F64) : x);
    rui_ml_out(m, 0, rui_ml_post_apply(m, rui_ml_cast(m, y, RU_F32), post));
}

/* -- classifier -------------------------------------------------------------------------------- */

static bool all_positive(const forest *f)
{
    uint32_t k = 0;
    while (k < f->n_entries && f->weight[k] >= 0) {
        k++;
    }
    return k == f->n_entries;
}

/* All weights are of the second of two classes: the score of the first is 0 and decides nothing.
 * ONNX Runtime does so; the standard does not say. */
static ru_value_id second_wins(const forest *f, ru_value_id scores)
{
    static const int64_t second = 1;
    ru_attr axis = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = -1};
    ru_value_id in[2] = {scores, rui_ml_i64s(f->m, &second, 1)};
    ru_value_id s = rui_ml_node(f->m, RU_OP_Gather, in, 2, &axis, 1);
    return rui_ml_above(f->m, s, all_positive(f) ? 0.5 : 0);
}

/* Two classes and one column s. Where all weights are positive, s is the probability of the second
 * class; else 0 divides the classes. */
static void binary(forest *f, ru_value_id x, const rui_ml_labels *labels, rui_ml_post post)
{
    rui_ml *m = f->m;
    bool positive = all_positive(f);
    memset(f->target, 0, f->n_entries * sizeof *f->target);
    f->n_targets = 1;
    if (f->n_base == 2) {
        f->base++;
        f->n_base = 1;
    }
    ru_value_id s = rui_ml_cast(m, forest_node(f, x), RU_F32), scores = s;
    if (post == RUI_ML_PROBIT) {
        rui_ml_fail(m, RU_E_UNSUPPORTED,
                    "post_transform PROBIT of two classes with the weights "
                    "of one is not defined");
    }
    ru_value_id other = positive && post != RUI_ML_LOGISTIC
                            ? rui_ml_2(m, RU_OP_Sub, rui_ml_scalar(m, 1), s)
                            : rui_ml_1(m, RU_OP_Neg, s);
    scores = rui_ml_beside(m, other, s);
    if (post == RUI_ML_LOGISTIC) {
        scores = rui_ml_post_apply(m, scores, post);
    }
    rui_ml_labels_out(m, labels, rui_ml_above(m, s, positive ? 0.5 : 0));
    rui_ml_out(m, 1, scores);
}

static void classifier(rui_ml *m)
{
    static const char *const names[] = {"class_treeids", "class_nodeids", "class_ids",
                                        "class_weights", "class_weights_as_tensor"};
    const ru_type *in = rui_lift_type(m->l, 0);
    forest f = {.m = m, .wide = in != NULL && in->dtype == RU_F64, .sums = "sum"};
    lookup t = {0};
    int64_t features;
    ru_value_id x = rui_ml_rows(m, true, &features);
    nodes_take(&f, &t, features);
    entries_take(&f, &t, names);
    rui_ml_labels labels = rui_ml_labels_take(m, "classlabels_int64s");
    rui_ml_post post = rui_ml_post_take(m);
    f.base = numbers_of(&f, "base_values", "base_values_as_tensor", &f.n_base);
    bool one_id = labels.n == 2;
    for (uint32_t k = 1; k < f.n_entries && rui_ml_ok(m); k++) {
        one_id = one_id && f.target[k] == f.target[0];
    }
    if (labels.n < 2) {
        rui_ml_fail(m, RU_E_UNSUPPORTED, "it has %u class labels; two or more are supported",
                    labels.n);
    }
    targets_count(&f, labels.n);
    targets_check(&f, one_id && f.n_base == 1 ? 1 : f.n_targets);
    if (f.n_entries == 0) {
        rui_ml_fail(m, RU_E_DATA, "%s is empty: no leaf adds to the score of a class", names[0]);
    }
    if (!rui_ml_ok(m)) {
        return;
    }
    x = f.wide ? rui_ml_cast(m, x, RU_F64) : x;
    if (one_id && (f.target[0] == 0 || f.n_base != 0)) {
        binary(&f, x, &labels, post);
        return;
    }
    ru_value_id s = rui_ml_cast(m, forest_node(&f, x), RU_F32);
    rui_ml_labels_out(m, &labels, one_id ? second_wins(&f, s) : rui_ml_argmax(m, s));
    rui_ml_out(m, 1, rui_ml_post_apply(m, s, post));
}

/* -- version 5 --------------------------------------------------------------------------------- */

/* One side of an inner node: an index of nodes, or of leaves, which follow the nodes. */
static int64_t side_of(forest *f, int64_t at, int64_t leaf, uint32_t n, uint32_t n_leaves)
{
    if (at < 0 || at >= (leaf != 0 ? n_leaves : n)) {
        rui_ml_fail(f->m, RU_E_DATA, "a node names %s %lld of %u", leaf != 0 ? "leaf" : "node",
                    (long long)at, leaf != 0 ? n_leaves : n);
        return 0;
    }
    return leaf != 0 ? n + at : at;
}

static void leaves_take(forest *f, uint32_t n)
{
    ru_dtype dtype;
    uint32_t n_leaves, n_weights;
    const int64_t *target = rui_ml_ints(f->m, "leaf_targetids", &n_leaves);
    const double *weight = rui_ml_tensor(f->m, "leaf_weights", &n_weights, &dtype);
    if (n_leaves == 0 || n_weights != n_leaves || n_leaves > 1u << 26 || n > 1u << 26) {
        rui_ml_fail(f->m, RU_E_DATA, "it has %u nodes, %u targets of leaves and %u weights", n,
                    n_leaves, n_weights);
    }
    f->n_src = n + n_leaves;
    f->n_entries = n_leaves;
    f->src = rui_ml_alloc(f->m, f->n_src * (int64_t)sizeof *f->src);
    f->target = rui_ml_alloc(f->m, n_leaves * (int64_t)sizeof *f->target);
    f->weight = rui_ml_alloc(f->m, n_leaves * (int64_t)sizeof *f->weight);
    for (uint32_t k = 0; k < n_leaves && rui_ml_ok(f->m); k++) {
        f->src[n + k] = (source){.mode = LEAF, .first = k, .n = 1};
        f->target[k] = target[k];
        f->weight[k] = weight[k];
    }
}

/* The set of the next node of BRANCH_MEMBER, in the order of the nodes. */
static double members_next(forest *f, uint32_t *next)
{
    uint32_t at = *next;
    if (at >= f->n_members || isnan(f->members[at])) {
        rui_ml_fail(f->m, RU_E_DATA, "membership_values has no numbers for a BRANCH_MEMBER node");
        return 0;
    }
    while (*next < f->n_members && !isnan(f->members[*next])) {
        ++*next;
    }
    ++*next;
    return at;
}

static void nodes_take_5(forest *f, int64_t features)
{
    ru_dtype dtype;
    uint32_t n, n_splits, n_modes, next = 0;
    const double *splits = rui_ml_tensor(f->m, "nodes_splits", &n_splits, &dtype);
    f->wide = f->wide || dtype == RU_F64;
    const double *modes = rui_ml_tensor(f->m, "nodes_modes", &n_modes, &dtype);
    const int64_t *feature = rui_ml_ints(f->m, "nodes_featureids", &n);
    const int64_t *yes = ints_of(f, "nodes_truenodeids", n, false);
    const int64_t *no = ints_of(f, "nodes_falsenodeids", n, false);
    const int64_t *yes_leaf = ints_of(f, "nodes_trueleafs", n, false);
    const int64_t *no_leaf = ints_of(f, "nodes_falseleafs", n, false);
    const int64_t *missing = ints_of(f, "nodes_missing_value_tracks_true", n, true);
    rui_lift_take(f->m->l, "nodes_hitrates");
    f->members = rui_ml_tensor(f->m, "membership_values", &f->n_members, &dtype);
    if (n == 0 || n_splits != n || n_modes != n) {
        rui_ml_fail(f->m, RU_E_DATA, "it has %u nodes, %u modes and %u splits", n, n_modes,
                    n_splits);
    }
    leaves_take(f, n);
    for (uint32_t k = 0; k < n && rui_ml_ok(f->m); k++) {
        source *s = &f->src[k];
        if (modes[k] < 0 || modes[k] > MEMBER) {
            rui_ml_fail(f->m, RU_E_DATA, "nodes_modes has %g; modes are 0 to 6", modes[k]);
            return;
        }
        *s = (source){.mode = (mode)(int)modes[k],
                      .feature = feature[k],
                      .missing = missing != NULL && missing[k] != 0,
                      .yes = side_of(f, yes[k], yes_leaf[k], n, f->n_entries),
                      .no = side_of(f, no[k], no_leaf[k], n, f->n_entries)};
        s->value = s->mode == MEMBER ? members_next(f, &next) : splits[k];
        source_check(f, s, features, s->mode != MEMBER);
    }
    uint32_t n_roots;
    const int64_t *roots = rui_ml_ints(f->m, "tree_roots", &n_roots);
    f->roots = rui_ml_alloc(f->m, n_roots * (int64_t)sizeof *f->roots);
    for (uint32_t r = 0; r < n_roots && rui_ml_ok(f->m); r++) {
        f->roots[f->n_roots++] = (uint32_t)side_of(f, roots[r], 0, n, 0);
    }
    if (n_roots == 0) {
        rui_ml_fail(f->m, RU_E_DATA, "it has no tree_roots");
    }
}

static void ensemble(rui_ml *m)
{
    static const char *const how[] = {"average", "sum", "min", "max"};
    static const rui_ml_post posts[] = {RUI_ML_NONE, RUI_ML_SOFTMAX, RUI_ML_LOGISTIC,
                                        RUI_ML_SOFTMAX_ZERO, RUI_ML_PROBIT};
    const ru_type *in = rui_lift_type(m->l, 0);
    ru_dtype dtype = in != NULL ? in->dtype : RU_F32;
    forest f = {.m = m, .wide = dtype == RU_F64};
    int64_t features;
    ru_value_id x = rui_ml_rows(m, true, &features);
    nodes_take_5(&f, features);
    targets_count(&f, rui_ml_int(m, "n_targets", 1));
    targets_check(&f, f.n_targets);
    int64_t sums = rui_ml_int(m, "aggregate_function", 1);
    int64_t post = rui_ml_int(m, "post_transform", 0);
    if (sums < 0 || sums > 3 || post < 0 || post > 4) {
        rui_ml_fail(m, RU_E_DATA, "aggregate_function %lld or post_transform %lld is not known",
                    (long long)sums, (long long)post);
        return;
    }
    f.sums = how[sums];
    ru_value_id y = forest_node(&f, f.wide ? rui_ml_cast(m, x, RU_F64) : x);
    if (posts[post] != RUI_ML_NONE) {
        y = rui_ml_post_apply(m, rui_ml_cast(m, y, RU_F32), posts[post]);
    }
    rui_ml_out(m, 0, rui_ml_cast(m, y, dtype));
}

rui_ml_fn rui_ml_trees_find(const char *op)
{
    return strcmp(op, "TreeEnsembleRegressor") == 0    ? regressor
           : strcmp(op, "TreeEnsembleClassifier") == 0 ? classifier
           : strcmp(op, "TreeEnsemble") == 0           ? ensemble
                                                       : NULL;
}
