/* Boosted trees as plain arrays. See trees.h. */
#include "world/graph/trees.h"

#include <math.h>

static ru_status check_node(const ru_trees *t, uint32_t i, ru_err *err)
{
    if (!isfinite(t->value[i])) {
        return RU_FAIL(err, RU_E_DATA, "node %u of a tree has the value %g, which is not finite", i,
                       (double)t->value[i]);
    }
    if (t->feature[i] < 0) {
        return RU_OK;
    }
    if ((uint32_t)t->feature[i] >= t->n_features) {
        return RU_FAIL(err, RU_E_DATA,
                       "node %u of a tree uses feature %d, but there are %u features", i,
                       t->feature[i], t->n_features);
    }
    if (t->left[i] <= i || t->right[i] <= i || t->left[i] >= t->n_nodes ||
        t->right[i] >= t->n_nodes) {
        return RU_FAIL(err, RU_E_DATA, "node %u of a tree has the children %u and %u of %u nodes",
                       i, t->left[i], t->right[i], t->n_nodes);
    }
    return RU_OK;
}

ru_status ru_trees_check(const ru_trees *t, ru_err *err)
{
    if (t->n_outputs == 0 || t->link > RU_TREES_EXP) {
        return RU_FAIL(err, RU_E_DATA, "trees have %u outputs and link %d, which is not valid",
                       t->n_outputs, (int)t->link);
    }
    for (uint32_t k = 0; k < t->n_outputs; k++) {
        if (!isfinite(t->base[k])) {
            return RU_FAIL(err, RU_E_DATA, "output %u of trees begins at %g", k,
                           (double)t->base[k]);
        }
    }
    for (uint32_t k = 0; k < t->n_trees; k++) {
        if (t->root[k] >= t->n_nodes || t->output[k] >= t->n_outputs) {
            return RU_FAIL(err, RU_E_DATA,
                           "tree %u begins at node %u and adds to output %u, which is not valid", k,
                           t->root[k], t->output[k]);
        }
    }
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        RU_TRY(check_node(t, i, err));
    }
    return RU_OK;
}
