/* Evaluate boosted trees. See trees.h. */
#include "cost/math/trees.h"

#include "cost/math/norm.h"

#include <math.h>

static float leaf(const ru_trees *t, uint32_t at, const float *x)
{
    while (t->feature[at] >= 0) {
        float v = x[t->feature[at]];
        bool left = isnan(v) ? t->missing_left[at] != 0 : v < t->value[at];
        at = left ? t->left[at] : t->right[at];
    }
    return t->value[at];
}

void ru_trees_margin(const ru_trees *t, const float *x, float *into)
{
    for (uint32_t k = 0; k < t->n_outputs; k++) {
        into[k] = t->base[k];
    }
    for (uint32_t k = 0; k < t->n_trees; k++) {
        into[t->output[k]] += leaf(t, t->root[k], x);
    }
}

void ru_trees_predict(const ru_trees *t, const float *x, float *into)
{
    ru_trees_margin(t, x, into);
    double sum = 0, largest = (double)into[0];
    for (uint32_t k = 0; k < t->n_outputs; k++) {
        largest = (double)into[k] > largest ? (double)into[k] : largest;
    }
    for (uint32_t k = 0; t->link == RU_TREES_SOFTMAX && k < t->n_outputs; k++) {
        sum += ru_num_exp((double)into[k] - largest);
    }
    for (uint32_t k = 0; k < t->n_outputs; k++) {
        double m = (double)into[k];
        switch (t->link) {
        case RU_TREES_IDENTITY:
            break;
        case RU_TREES_LOGISTIC:
            into[k] = (float)(1 / (1 + ru_num_exp(-m)));
            break;
        case RU_TREES_SOFTMAX:
            into[k] = (float)(ru_num_exp(m - largest) / sum);
            break;
        case RU_TREES_EXP:
            into[k] = (float)ru_num_exp(m);
            break;
        }
    }
}

float ru_trees_value(const ru_trees *t, const float *x)
{
    float v[1];
    RU_CHECK(t->n_outputs == 1);
    ru_trees_predict(t, x, v);
    return v[0];
}
