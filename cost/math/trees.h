/* Evaluate gradient-boosted trees.
 *
 * Features are compared and leaves are added as IEEE single precision in the order of the trees, as
 * XGBoost does; NaN is a missing value and goes the way that training chose. Thread: any, pure. */
#ifndef RU_COST_TREES_H
#define RU_COST_TREES_H

#include "world/graph/trees.h"

/* Outputs for one row: base plus the leaves reached, then the link. Shape: x [t->n_features],
 * into [t->n_outputs]. Cost: O(trees * depth). `t` must have passed ru_trees_check. */
void ru_trees_predict(const ru_trees *t, const float *x, float *into);
/* The same before the link (log-odds, logarithms). */
void ru_trees_margin(const ru_trees *t, const float *x, float *into);
/* First output alone, for regression. */
float ru_trees_value(const ru_trees *t, const float *x);

#endif
