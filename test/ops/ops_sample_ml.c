/* Random cases: trees, look-up tables, pairs of classes. */
#include "test/ops/ops.h"

#include <math.h>

static ru_tensor *in_ints32(ops_case *c, const int32_t *v, int64_t n)
{
    c->fixed[c->n_in] = true;
    ru_tensor *t = ops_in(c, ops_type(RU_I32, 1, (int64_t[]){n}));
    for (int64_t k = 0; k < n; k++) {
        ops_set(t, k, v[k]);
    }
    return t;
}

static void in_fixed_grid(ops_case *c, int64_t n)
{
    c->fixed[c->n_in] = true;
    ops_in_grid(c, ops_type(RU_F32, 1, (int64_t[]){n}), -4.0, 4.0);
}

enum { SAMPLE_TREES = 13, SAMPLE_NODES = 15 };

/* Full trees of four levels, whose inner nodes may be leaves; a leaf has 0 to 2 entries. */
void sample_trees(ops_case *c)
{
    static const char *const modes[] = {"sum", "average", "min", "max"};
    int64_t rows = ops_dim(c), features = ops_pick(c, 1, 9), outputs = ops_pick(c, 1, 4);
    int64_t trees = ops_pick(c, 1, SAMPLE_TREES), n = trees * SAMPLE_NODES, entries = 0;
    int32_t root[SAMPLE_TREES] = {0}, feature[SAMPLE_TREES * SAMPLE_NODES] = {0},
            left[SAMPLE_TREES * SAMPLE_NODES] = {0}, first[SAMPLE_TREES * SAMPLE_NODES + 1] = {0},
            target[2 * SAMPLE_TREES * SAMPLE_NODES] = {0};
    ops_in_grid(c, ops_type(RU_F32, 2, (int64_t[]){rows, features}), -4.0, 4.0);
    for (int64_t k = 0; k < n; k++) {
        int64_t tree = k / SAMPLE_NODES, at = k % SAMPLE_NODES;
        root[tree] = (int32_t)(tree * SAMPLE_NODES);
        bool leaf = at >= SAMPLE_NODES / 2 || ops_pick(c, 0, 7) == 0;
        left[k] = (int32_t)(leaf ? k : tree * SAMPLE_NODES + 2 * at + 1);
        feature[k] = (int32_t)ops_pick(c, -features, features - 1);
        int64_t more = leaf ? ops_pick(c, 0, 2) : 0;
        for (int64_t e = 0; e < more; e++) {
            target[entries++] = (int32_t)ops_pick(c, 0, outputs - 1);
        }
        first[k + 1] = (int32_t)entries;
    }
    in_ints32(c, root, trees);
    in_ints32(c, feature, n);
    in_fixed_grid(c, n);
    for (int64_t k = 0; k < n; k++) {
        if (left[k] == k) {
            ops_set(&c->in[3], k, (double)INFINITY);
        }
    }
    in_ints32(c, left, n);
    in_ints32(c, first, n + 1);
    in_ints32(c, target, entries);
    in_fixed_grid(c, entries);
    in_fixed_grid(c, outputs);
    ops_attr_str(c, RU_ATTR_mode, modes[ops_pick(c, 0, 3)]);
    c->grad_in = 0;
    c->f32_only = true;
}

void sample_lookup(ops_case *c)
{
    int64_t n = ops_pick(c, 1, 6);
    ops_in_ints(c, ops_shape(c, RU_I64, 1, 3), 0, n - 1);
    c->fixed[1] = c->fixed[2] = true;
    ru_tensor *keys = ops_in(c, ops_type(RU_I64, 1, (int64_t[]){n}));
    for (int64_t k = 0; k < n; k++) {
        ops_set(keys, k, (double)k);
    }
    ops_in_grid(c, ops_type(RU_F32, 1, (int64_t[]){n}), -4.0, 4.0);
    c->grad_in = 0;
}

void sample_couplepairs(ops_case *c)
{
    int64_t n = ops_pick(c, 2, 5);
    ops_in_grid(c, ops_type(RU_F32, 2, (int64_t[]){ops_dim(c), n * (n - 1) / 2}), 0.0, 1.0);
    c->grad_in = 0;
    c->f32_only = true;
}
